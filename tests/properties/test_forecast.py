"""Properties of forecasts and plans for any task, network and curriculum."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

import learncast as lc
from learncast.theory import modes as modes_of_one
from learncast.theory import strength, time_to_band


def every(examples, *, shrink=True):
    """Settings with reproducible examples and no deadline, as the machine may be busy."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])]
    quiet, few = [HealthCheck.too_slow], examples * settings().max_examples // 300
    return settings(derandomize=True, deadline=None, max_examples=few, phases=phases, suppress_health_check=quiet)


def numbers(low, high):
    return st.floats(low, high, allow_nan=False)


CHANNEL = st.fixed_dictionaries(
    {
        "timescale": numbers(0.5, 20),
        "correlation": numbers(-0.5, 0.9),
        "noise_strength": numbers(0.2, 3),
        "gain": numbers(0.3, 2),
    }
)
MODE = st.fixed_dictionaries(
    {"recurrence": numbers(0.2, 1.0), "input": numbers(0.05, 1.2), "output": numbers(0.05, 1.2)}
)


@st.composite
def problems(draw, max_modes=3):
    """Channels and modes of a task and network in which hidden unit i carries channel i."""
    n = draw(st.integers(1, max_modes))
    return {
        "steps": draw(st.integers(1, 6)),
        "targets": draw(st.sampled_from(["end", "every_step"])),
        "channels": draw(st.lists(CHANNEL, min_size=n, max_size=n)),
        "modes": draw(st.lists(MODE, min_size=n, max_size=n)),
    }


TWINS = {
    "steps": 3,
    "targets": "end",
    "channels": [{"timescale": 2.0, "correlation": 0.3, "noise_strength": 1.0, "gain": 1.0}] * 2,
    "modes": [{"recurrence": 0.5, "input": 0.1, "output": 0.2}, {"recurrence": 0.9, "input": 0.3, "output": 0.1}],
}


def task_of(problem, **changes):
    channels = problem["channels"]
    keywords = {key: [channel[key] for channel in channels] for key in channels[0]} | changes
    return lc.tasks.leaky_integration(
        problem["steps"], **keywords, mixing=np.eye(len(channels)), targets=problem["targets"]
    )


def network_of(problem):
    columns = {key: [mode[key] for mode in problem["modes"]] for key in problem["modes"][0]}
    return lc.LinearRNN(np.diag(columns["input"]), np.diag(columns["recurrence"]), np.diag(columns["output"]))


def gentle(task, network):
    """A learning rate of 1/50 over the largest curvature, so that descent is always stable."""
    modes = modes_of_one(task, network)
    furthest = np.maximum(np.abs(modes.start), np.abs(modes.optimum))
    return 0.02 / float(np.max(modes.weighted_input * np.hypot(2 * furthest, modes.imbalance)))


def solved(problem):
    task, network = task_of(problem), network_of(problem)
    return lc.forecast(task, network, learning_rate=gentle(task, network)).solution


@every(25)
@given(problems(), numbers(0.01, 1.0), numbers(0.1, 0.999))
def test_scaling_the_learning_rate_scales_time(problem, factor, accuracy):
    task, network = task_of(problem), network_of(problem)
    learning_rate = gentle(task, network)
    slow, fast = (
        lc.forecast(task, network, learning_rate=rate).solution for rate in (factor * learning_rate, learning_rate)
    )
    # one multiplication apart
    np.testing.assert_allclose(
        slow.time_to(accuracy).mode_flow_steps * factor,
        fast.time_to(accuracy).mode_flow_steps,
        rtol=1e-12,
    )
    steps = np.array([0.0, 3.0, 40.0, 500.0])
    for name in ("strength", "loss"):
        np.testing.assert_allclose(slow.at(steps / factor)[name], fast.at(steps)[name], rtol=1e-10)


@every(25)
@given(problems(), st.randoms(use_true_random=False))
@example(TWINS, random.Random(1))
def test_permuting_channels_permutes_modes(problem, shuffle):
    n = len(problem["channels"])
    order = shuffle.sample(range(n), n)
    shuffled = problem | {key: [problem[key][i] for i in order] for key in ("channels", "modes")}
    one, other = solved(problem), solved(shuffled)
    # each channel has equal weights at any time, in either order
    for time in (0.0, 10.0, 100.0, np.inf):
        here, there = one.network_at(time), other.network_at(time)
        for a, b in ((here.input_weights, there.input_weights), (here.output_weights, there.output_weights)):
            np.testing.assert_allclose(np.asarray(a)[np.ix_(order, order)], b, rtol=0, atol=1e-12)
    times = [np.sort(s.time_to(0.9).mode_flow_steps) for s in (one, other)]
    np.testing.assert_allclose(*times, rtol=1e-10)


@every(20)
@given(problems())
@example(TWINS)
def test_independent_channels_learn_as_each_does_by_itself(problem):
    """Channels with their own hidden units do not interact, even if two are equal."""
    together = solved(problem)
    rate = gentle(task_of(problem), network_of(problem))
    singles = []
    for channel, mode in zip(problem["channels"], problem["modes"], strict=True):
        single = problem | {"channels": [channel], "modes": [mode]}
        singles.append(lc.forecast(task_of(single), network_of(single), learning_rate=rate).solution)
    times = [s.time_to(0.95).flow_steps for s in singles]
    learned = together.time_to(0.95)
    np.testing.assert_allclose(np.sort(learned.mode_flow_steps), np.sort(times), rtol=1e-10)
    assert learned.flow_steps == pytest.approx(max(times), rel=1e-10)
    # the loss is the sum over channels, none of which is near 0 at these times
    losses = sum(np.asarray(s.at([0.0, 20.0, 300.0])["loss"]) for s in singles)
    np.testing.assert_allclose(together.at([0.0, 20.0, 300.0])["loss"], losses, rtol=1e-11)


def rotation(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


@every(25)
@given(problems(), st.integers(0, 10_000))
@example(TWINS, 0)
def test_rotating_inputs_outputs_and_network_keeps_times(problem, seed):
    rng = np.random.default_rng(seed)
    n = len(problem["channels"])
    q, p, r = (rotation(rng, n) for _ in range(3))
    task, network = task_of(problem), network_of(problem)
    inputs = np.einsum("ia,tasb,jb->tisj", q, np.asarray(task.input_covariance), q)
    cross = np.einsum("ia,tarb,jb->tirj", q, np.asarray(task.cross_covariance), p)
    targets = np.einsum("ia,rasb,jb->risj", p, np.asarray(task.target_covariance), p)
    if problem["targets"] == "end":
        cross, targets = cross[:, :, 0], targets[0, :, 0]
    rotated_task = lc.Task(inputs, cross, targets)
    rotated_network = lc.LinearRNN(
        r @ np.asarray(network.input_weights) @ q.T,
        r @ np.asarray(network.recurrent_weights) @ r.T,
        p @ np.asarray(network.output_weights) @ r.T,
    )
    rate = gentle(task, network)
    plain, rotated = (
        lc.forecast(task, network, learning_rate=rate).solution,
        lc.forecast(rotated_task, rotated_network, learning_rate=rate).solution,
    )
    # two rotations and the search for the modes' frame: 1e-15 times a condition number below 1e5
    times = [np.sort(s.time_to(0.9).mode_flow_steps) for s in (plain, rotated)]
    np.testing.assert_allclose(*times, rtol=1e-9, atol=1e-9)
    for time in (0.0, 30.0, np.inf):
        here, there = plain.network_at(time), rotated.network_at(time)
        np.testing.assert_allclose(r @ here.input_weights @ q.T, there.input_weights, rtol=0, atol=1e-9)
        np.testing.assert_allclose(p @ here.output_weights @ r.T, there.output_weights, rtol=0, atol=1e-9)
        # a noiseless task may reach loss 0: compare relative to the variance of the targets
        variance = np.einsum("riri->", np.asarray(task.target_covariance))
        np.testing.assert_allclose(plain.at(time)["loss"], rotated.at(time)["loss"], rtol=0, atol=1e-10 * variance)


@every(25)
@given(problems(max_modes=1), numbers(1.0, 30.0), numbers(0.1, 0.999))
def test_larger_cross_strength_with_the_same_optimum_is_learned_no_later(problem, factor, accuracy):
    weak = task_of(problem)
    strong = task_of(problem, noise_strength=[factor * problem["channels"][0]["noise_strength"]])
    network = network_of(problem)
    rate = gentle(strong, network)
    modes = [modes_of_one(task, network) for task in (weak, strong)]
    # more input noise multiplies both covariances, which keeps the optimum and increases the cross strength
    np.testing.assert_allclose(modes[0].optimum, modes[1].optimum, rtol=1e-12)
    np.testing.assert_allclose(modes[0].weighted_cross * factor, modes[1].weighted_cross, rtol=1e-12)
    times = [lc.forecast(task, network, learning_rate=rate).solution.time_to(accuracy) for task in (weak, strong)]
    assert times[1].flow_steps <= times[0].flow_steps * (1 + 1e-12)
    assert times[1].flow_steps * factor == pytest.approx(times[0].flow_steps, rel=1e-11)


@every(25)
@given(problems(), numbers(0.0, 300.0), numbers(0.0, 300.0))
def test_a_solution_can_be_continued_from_any_time(problem, first, second):
    straight = solved(problem)
    rate = gentle(task_of(problem), network_of(problem))
    on = lc.forecast(task_of(problem), straight.network_at(first), learning_rate=rate).solution
    here, there = on.network_at(second), straight.network_at(first + second)
    # the flow amplifies the rounding of the weights in between by a few e-foldings at most
    np.testing.assert_allclose(here.input_weights, there.input_weights, rtol=0, atol=1e-11)
    np.testing.assert_allclose(here.output_weights, there.output_weights, rtol=0, atol=1e-11)
    remaining, total = (np.sort(s.time_to(0.99).mode_flow_steps) for s in (on, straight))
    # sorted, because equal channels have no order
    expected = np.maximum(total - first, 0)
    # near the band the remaining time is a small difference of strengths: 1e-9 of the total
    np.testing.assert_allclose(remaining, expected, rtol=0, atol=1e-9 * max(1.0, total.max()))


@every(15, shrink=False)
@given(problems(), numbers(0.3, 3), numbers(1.0, 200.0), numbers(0.3, 0.95), numbers(0.6, 0.99))
@example(TWINS, 1.5, 30.0, 0.7, 0.99)
def test_a_curriculum_is_the_solution_of_one_stage_after_another(problem, gain, steps, middle, accuracy):
    """Each of three stages is solved from the network at the end of the one before, also with equal channels."""
    target, network = task_of(problem), network_of(problem)
    other = task_of(problem, gain=[gain * channel["gain"] for channel in problem["channels"]])
    rate = min(gentle(task, network) for task in (target, other))
    stages = [lc.Stage(other, steps=steps), lc.Stage(target, goal=middle), lc.Stage(target, goal=accuracy)]
    curriculum = lc.follow(stages, network, learning_rate=rate)
    here, durations = network, []
    for stage, found_stage in zip(stages, curriculum.stages, strict=True):
        one = lc.forecast(stage.task, here, learning_rate=rate).solution
        modes = modes_of_one(stage.task, here)
        duration = steps if stage.steps else one.time_to(stage.goal.value).flow_steps
        # the time to a band that is near is a small difference: relative to direct training
        assert found_stage.steps.flow == pytest.approx(duration, rel=1e-9, abs=1e-9 * curriculum.direct.flow)
        here = one.network_at(found_stage.steps.flow)
        np.testing.assert_allclose(np.sort(found_stage.start), np.sort(modes.start), rtol=1e-10)
        end = np.ravel(one.at(found_stage.steps.flow)["strength"])
        np.testing.assert_allclose(np.sort(found_stage.end), np.sort(end), rtol=1e-10)
        if stage.steps is None:  # after given steps it is that of descent, which plain descent tests elsewhere
            assert found_stage.accuracy == pytest.approx(1 - np.max(np.abs(end / modes.optimum - 1)), abs=1e-9)
        # within a stage and at its end the curriculum's trajectory is that solution's
        inside = np.array([0.3, 1.0]) * found_stage.steps.flow
        found = np.asarray(curriculum.at(sum(durations) + inside)["strength"])
        expected = np.asarray(one.at(inside)["strength"])
        np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), rtol=1e-9)
        durations.append(found_stage.steps.flow)
    assert curriculum.steps.flow == pytest.approx(sum(durations), rel=1e-12)
    direct = lc.forecast(target, network, learning_rate=rate).solution.time_to(accuracy).flow_steps
    assert curriculum.direct.flow == pytest.approx(direct, rel=1e-12)
    assert curriculum.saving.flow == pytest.approx(direct - sum(durations), rel=1e-9, abs=1e-9 * sum(durations))
    assert curriculum.speedup_ratio == pytest.approx(direct / sum(durations), rel=1e-9)


@every(25)
@given(problems())
def test_loss_never_rises(problem):
    found = solved(problem).at(np.append(np.linspace(0, 2000, 60), np.inf))
    loss, excess = np.asarray(found["loss"]), np.asarray(found["excess_loss"])
    # the loss is a difference of the variances of targets and outputs, which have these roundings
    scale = np.einsum("riri->", np.asarray(task_of(problem).target_covariance)) + loss[0]
    assert np.all(np.diff(loss) <= 1e-13 * scale)
    assert np.all(np.diff(excess) <= 1e-13 * scale)
    assert np.all(loss >= -1e-13 * scale)
    assert np.all(excess >= 0)


@every(25)
@given(problems(), st.lists(numbers(0.1, 1 - 1e-6), min_size=2, max_size=6))
def test_a_higher_accuracy_never_takes_less_time(problem, accuracies):
    one = solved(problem)
    learned = [one.time_to(accuracy) for accuracy in sorted(accuracies)]
    for earlier, later in itertools.pairwise(learned):
        assert np.all(earlier.mode_flow_steps <= later.mode_flow_steps)
        assert np.all(earlier.mode_descent_steps <= later.mode_descent_steps)
        assert earlier.flow_steps <= later.flow_steps
    # the slowest mode decides
    assert all(time.flow_steps == np.max(time.mode_flow_steps) for time in learned)


@every(200)
@given(
    # the smallest doubles have too few digits for this test
    st.one_of(st.just(0.0), numbers(1e-200, 1e3), numbers(-1e3, -1e-200)),
    # no two doubles a, c have 0 < |a^2 - c^2| < 1e-16 |a c|; tests/reference has the imbalances that underflow
    st.one_of(st.just(0.0), numbers(1e-20, 1e3), numbers(-1e3, -1e-20)),
    st.one_of(numbers(1e-3, 1e3), numbers(-1e3, -1e-3)),
    numbers(1e-3, 1e3),
    numbers(1e-6, 0.9),
)
def test_strength_at_the_time_of_the_band_is_its_edge(start, imbalance, cross, power, tolerance):
    time, there = (float(x) for x in time_to_band(start, imbalance, cross, power, tolerance))
    optimum = cross / power
    if not np.isfinite(time):
        # never: without imbalance, from zero or from the other side of it
        assert imbalance == 0
        assert start * cross <= 0
        return
    edges = [(1 - tolerance) * optimum, (1 + tolerance) * optimum]
    if time == 0:
        assert there == start
        assert abs(start - optimum) <= tolerance * abs(optimum) * (1 + 1e-12)
        return
    assert min(abs(there - edge) for edge in edges) <= 1e-14 * abs(there)
    # the strength moves at S (beta - u B), which a few roundings of the time are multiplied by
    speed = abs(np.hypot(2 * there, imbalance) * (cross - there * power))
    assert (
        abs(float(strength(time, start, imbalance, cross, power)) - there) <= 1e-13 * abs(there) + 1e-14 * speed * time
    )


def best_on_a_grid(target, candidate, network, accuracy, learning_rate, direct, points=1500):
    """Shortest total over stops spread over (0, direct), by the mode equation itself."""
    one, two = modes_of_one(candidate, network), modes_of_one(target, network)
    # modes of two tasks are paired by the hidden unit they use, that is by recurrence and start
    pair = [
        int(np.flatnonzero((one.recurrence == b) & (one.start == u))[0])
        for b, u in zip(two.recurrence, two.start, strict=True)
    ]
    stops = np.linspace(0, direct, points)[:, None]
    reached = strength(
        stops * learning_rate, two.start, two.imbalance, one.weighted_cross[pair], one.weighted_input[pair]
    )
    left = time_to_band(reached, two.imbalance, two.weighted_cross, two.weighted_input, 1 - accuracy)[0] / learning_rate
    return float((stops[:, 0] + left.max(axis=1)).min())


def check_plan(problem, changes, accuracy):
    target, network = task_of(problem), network_of(problem)
    modes = modes_of_one(target, network)
    # the oracle cannot pair two equal modes
    assume(len(set(zip(modes.recurrence, modes.start, strict=True))) == modes.start.size)
    candidates = [
        task_of(
            problem,
            name=f"candidate {k}",
            gain=[gain * channel["gain"] for gain, channel in zip(gains, problem["channels"], strict=False)],
            timescale=[stretch * channel["timescale"] for channel in problem["channels"]],
        )
        for k, (gains, stretch) in enumerate(changes)
    ]
    rate = min(gentle(task, network) for task in (target, *candidates))
    found = lc.plan(target, candidates, network, learning_rate=rate, terms=lc.Terms(accuracy))
    direct = lc.forecast(target, network, learning_rate=rate).solution.time_to(accuracy).flow_steps
    assert found.direct.flow == pytest.approx(direct, rel=1e-12)
    assert found.flow_route.total <= direct * (1 + 1e-12)
    for candidate in candidates:
        grid = best_on_a_grid(target, candidate, network, accuracy, rate, direct)
        # closed forms are good to about 1e-13; the best stop is often a kink, where an imprecise one is visible
        assert found.flow_route.total <= grid * (1 + 1e-9)
    ranked = [candidate.total for candidate in found.candidates]
    assert ranked == sorted(ranked)
    assert found.total == min([found.direct_total, *ranked])
    for candidate in found.candidates:
        if candidate.flow_route.order:
            stages = [
                lc.Stage(candidate.task, steps=candidate.flow_route.durations[0]),
                lc.Stage(target, goal=accuracy),
            ]
            followed = lc.follow(stages, network, learning_rate=rate)
            assert followed.steps.flow == pytest.approx(candidate.flow_route.total, rel=1e-9)
        if candidate.stop_steps > 0:
            stages = [lc.Stage(candidate.task, steps=candidate.stop_steps), lc.Stage(target, goal=accuracy)]
            followed = lc.follow(stages, network, learning_rate=rate)
            assert followed.steps.descent == candidate.steps.descent
            # the flow of a candidate ends its first stage at the accuracy that descent has there
            stages = [lc.Stage(candidate.task, goal=candidate.accuracy), lc.Stage(target, goal=accuracy)]
            followed = lc.follow(stages, network, learning_rate=rate)
            assert followed.steps.flow == pytest.approx(candidate.steps.flow, rel=1e-9)


# a plan takes a fifth of a second, too long to shrink a failing example
@every(30, shrink=False)
@given(
    problems(max_modes=1),
    st.lists(st.tuples(st.tuples(numbers(0.3, 4)), numbers(0.3, 3)), min_size=1, max_size=2),
    numbers(0.5, 0.999),
)
def test_the_plan_for_one_mode_is_the_best_stop(problem, changes, accuracy):
    check_plan(problem, changes, accuracy)


@pytest.mark.slow
@every(30, shrink=False)
@given(
    problems(max_modes=3).filter(lambda problem: len(problem["modes"]) > 1),
    st.lists(
        st.tuples(st.tuples(numbers(0.3, 4), numbers(0.3, 4), numbers(0.3, 4)), numbers(0.3, 3)), min_size=1, max_size=1
    ),
    numbers(0.5, 0.999),
)
def test_the_plan_for_several_modes_is_the_best_stop(problem, changes, accuracy):
    check_plan(problem, changes, accuracy)


@every(25)
@given(numbers(0.05, 0.95), numbers(1e-3, 0.5), numbers(1e-3, 0.5))
def test_weaker_inputs_help_only_if_stopped_early(weaker, first_tolerance, second_tolerance):
    """As derived on the theory page: with eps1 <= eps2 weaker inputs in the first task never help."""
    target = lc.tasks.integration(steps=20)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=3)
    tolerances = min(first_tolerance, second_tolerance), max(first_tolerance, second_tolerance)
    first = target.varied(input_strength=weaker)
    stages = [lc.Stage(first, goal=1 - tolerances[0]), lc.Stage(target, goal=1 - tolerances[1])]
    curriculum = lc.follow(stages, network, learning_rate=1e-3)
    # they may tie if the first task also learns the second
    assert curriculum.saving.flow <= 1e-9 * curriculum.direct.flow
