"""Answers from solutions: stages, curricula, plans, best stops, phase portraits and their explanations.

One mode from a balanced start follows the logistic equation du/dtau = 2u (beta - u B). The oracle below is written
from that line alone.
"""

import numpy as np
import pytest
import xarray as xr

import learncast as lc
from learncast import Stage, Status, follow, plan, tasks
from learncast._core.errors import AssumptionViolated, InvalidSpec, NotLearned, UnsupportedModel
from learncast.networks import LinearRNN
from learncast.planning import closeness, singular_accuracy, speedup_terms
from learncast.planning.schedules.stopping import best_stop
from learncast.tasks import Task
from learncast.theory import Problem, modes, modes_of

RATE = 1e-3
#: Closed forms against closed forms: a few hundred operations of round-off.
CLOSE = 1e-10


def refused(call, error=InvalidSpec):
    with pytest.raises(error) as caught:
        call()
    assert all((caught.value.required, caught.value.got, caught.value.why, caught.value.remedy))
    return str(caught.value)


@pytest.fixture(scope="module")
def target():
    return tasks.integration(steps=50, name="target")


@pytest.fixture(scope="module")
def stronger():
    return tasks.integration(steps=50, target_strength=1.5, name="stronger")


@pytest.fixture(scope="module")
def network():
    return LinearRNN.aligned(hidden_size=4)


@pytest.fixture(scope="module")
def two_modes():
    return LinearRNN.aligned(hidden_size=4, inputs=2, outputs=2)


def logistic(time, start, beta, power):
    """Strength after a flow time."""
    grown = np.exp(-2 * beta * time)
    best = beta / power
    return best / (1 + (best / start - 1) * grown)


def band_time(start, beta, power, tolerance):
    """Flow time to the nearer edge of the band around the optimum, 0 inside it."""
    best = beta / power
    edge = np.where(start < best, (1 - tolerance) * best, (1 + tolerance) * best)
    time = np.log((best / start - 1) / (best / edge - 1)) / (2 * beta)
    return np.where(np.abs(start - best) <= tolerance * best * (1 + 1e-14), 0.0, time)


# --- stages ----------------------------------------------------------------------------------------------------------


def test_a_stage_has_exactly_one_rule_to_stop(target):
    assert "got accuracy=None, steps=None" in refused(lambda: Stage(target))
    assert "it needs exactly one rule to stop" in refused(lambda: Stage(target, goal=0.9, steps=5))
    assert "accuracy must lie between 0 and 1, but got 1.2" in refused(lambda: Stage(target, goal=1.2))
    assert "accuracy must be finite" in refused(lambda: Stage(target, goal=float("nan")))
    assert "steps must be positive, but got -3" in refused(lambda: Stage(target, steps=-3))
    assert "steps must be a number" in refused(lambda: Stage(target, steps="ten"))
    assert Stage(target, steps=0).steps == 0


# --- following -------------------------------------------------------------------------------------------------------

CURRICULA = {
    "one": [("target", 0.99)],
    "two": [("stronger", 0.5), ("target", 0.99)],
    "two, overshooting": [("stronger", 0.95), ("target", 0.99)],
    "four": [("weaker", 0.7), ("stronger", 0.4), ("leaky", 0.9), ("target", 0.99)],
}


@pytest.mark.parametrize("start", [{}, {"initial": 0.05, "output_initial": 0.3}, {"initial": 2.0}], ids=str)
@pytest.mark.parametrize("curriculum", CURRICULA)
def test_following_is_solving_stage_after_stage(curriculum, start):
    pool = {
        "target": tasks.integration(),
        "stronger": tasks.integration(target_strength=1.5),
        "weaker": tasks.integration(input_strength=2.0),
        "leaky": tasks.leaky_integration(timescale=20.0),
    }
    first = LinearRNN.aligned(hidden_size=3, **start)
    stages = [Stage(pool[name], goal=accuracy) for name, accuracy in CURRICULA[curriculum]]
    found = follow(stages, first, learning_rate=RATE)
    network, total = first, 0.0
    for stage, outcome in zip(stages, found.stages, strict=True):
        solution = lc.forecast(stage.task, network, learning_rate=RATE).solution
        steps = solution.time_to(stage.accuracy).flow_steps
        assert outcome.steps.flow == pytest.approx(steps, rel=CLOSE, abs=1e-9)
        assert outcome.accuracy >= stage.accuracy - 1e-12
        assert outcome.steps.status is Status.ok
        network, total = solution.network_at(steps), total + steps
        assert outcome.end[0] == pytest.approx((network.output_weights @ network.input_weights).item(), rel=CLOSE)
    assert found.steps.flow == pytest.approx(total, rel=CLOSE)
    direct = lc.forecast(pool["target"], first, learning_rate=RATE).solution.time_to(0.99)
    assert found.direct.flow == direct.flow_steps
    assert found.saving.flow == pytest.approx(direct.flow_steps - total, rel=1e-8, abs=1e-8)
    assert found.forecast_class == "exact"


def test_several_modes_share_the_clock(two_modes):
    first = tasks.integration(target_strength=[3.0, 1.0])
    last = tasks.integration(target_strength=[1.0, 2.0])
    found = follow([Stage(first, goal=0.9), Stage(last, goal=0.99)], two_modes, learning_rate=RATE)
    one = lc.forecast(first, two_modes, learning_rate=RATE).solution
    steps = one.time_to(0.9).mode_flow_steps.max()
    two = lc.forecast(last, one.network_at(steps), learning_rate=RATE).solution
    assert found.stages[0].steps.flow == pytest.approx(steps, rel=CLOSE)
    assert found.stages[1].steps.flow == pytest.approx(two.time_to(0.99).flow_steps, rel=CLOSE)


def test_stages_by_steps(target, stronger, network):
    found = follow([Stage(stronger, steps=100), Stage(target, steps=50.5)], network, learning_rate=RATE)
    assert [o.steps.flow for o in found.stages] == pytest.approx([100.0, 50.5])
    assert [o.steps.descent for o in found.stages] == [100.0, 51.0]
    after = lc.forecast(stronger, network, learning_rate=RATE).solution.network_at(100)
    ended = lc.forecast(target, after, learning_rate=RATE).solution.at([50.5])["strength"].item()
    assert found.stages[1].end[0] == pytest.approx(ended, rel=CLOSE)
    assert found.direct is None
    assert found.explanation is None
    assert np.isnan(found.saving.flow)
    assert np.isnan(found.speedup_ratio)


def test_a_stage_of_no_steps_changes_nothing(target, stronger, network):
    found = follow([Stage(stronger, steps=0), Stage(target, goal=0.99)], network, learning_rate=RATE)
    assert found.stages[0].end == pytest.approx(found.stages[0].start)
    assert found.steps.flow == pytest.approx(found.direct.flow, rel=CLOSE)
    assert found.steps.descent == found.direct.descent


def test_the_trajectory_runs_through_the_stages(target, stronger, network):
    found = follow([Stage(stronger, goal=0.5), Stage(target, goal=0.99)], network, learning_rate=RATE)
    switch = found.stages[0].steps.flow
    path = found.at([0.0, switch / 2, switch, switch + 10.0, found.steps.flow, np.inf])
    assert path.dataset["stage"].values.tolist() == [0, 0, 0, 1, 1, 1]
    one = lc.forecast(stronger, network, learning_rate=RATE).solution
    two = lc.forecast(target, one.network_at(switch), learning_rate=RATE).solution
    before, after = one.at([0.0, switch / 2, switch]), two.at([10.0, found.stages[1].steps.flow, np.inf])
    np.testing.assert_allclose(path["strength"][:3], before["strength"], rtol=CLOSE)
    np.testing.assert_allclose(path["strength"][3:], after["strength"], rtol=CLOSE)
    np.testing.assert_allclose(path["loss"][:3], before["loss"], rtol=CLOSE)
    np.testing.assert_allclose(path["target_loss"][3:], after["loss"], rtol=CLOSE)
    assert "times must be a list of gradient steps from 0 on" in refused(lambda: found.at([-1.0]))


def test_a_curriculum_as_labelled_numbers(target, stronger, network, tmp_path):
    found = follow([Stage(stronger, goal=0.5), Stage(target, goal=0.99)], network, learning_rate=RATE)
    dataset = found.dataset
    assert dataset["task"].values.tolist() == ["stronger", "target"]
    assert float(dataset["total_steps"]) == pytest.approx(found.steps.flow)
    assert float(dataset["speedup_ratio"]) == pytest.approx(found.direct.flow / found.steps.flow)
    assert all("units" in variable.attrs for variable in dataset.data_vars.values())
    stored = xr.load_dataset(found.save(tmp_path / "curriculum.nc"), engine="h5netcdf")
    assert stored.attrs["learncast_object"] == "curriculum"
    np.testing.assert_array_equal(stored["flow_steps"], dataset["flow_steps"])
    assert repr(found).startswith(
        "<Curriculum stronger (158) -> target (79): 237 descent steps, 236.158 flow steps, speedup 93.8"
    )


def test_unusable_curricula_are_refused(target, network):
    assert "a curriculum must have at least one stage" in refused(lambda: follow([], network, learning_rate=RATE))
    stages = [Stage(target, goal=0.9)]
    assert "learning_rate must be positive" in refused(lambda: follow(stages, network, learning_rate=-1.0))
    wide = [Stage(tasks.integration(target_strength=[1.0, 2.0]), goal=0.9)]
    assert "must have the network's 1 input and 1 output" in refused(lambda: follow(wide, network, learning_rate=RATE))


@pytest.mark.parametrize(
    "call",
    [
        lambda target, net: lc.forecast(target, net, learning_rate=RATE).solution,
        lambda target, net: follow([Stage(target, goal=0.9)], net, learning_rate=RATE),
        lambda target, net: plan(target, [], net, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
        lambda target, net: lc.phase(
            target, net, learning_rate=RATE, vary="target_strength", values=[1.0], accuracies=[0.5]
        ),
    ],
    ids=["solve", "follow", "plan", "phase_portrait"],
)
def test_another_kind_of_network_is_refused_by_name(target, call):
    assert "LinearRNN" in refused(lambda: call(target, "a network"), UnsupportedModel)


# --- never learned, diverged, outside --------------------------------------------------------------------------------

NEVER = {
    "no start": (tasks.integration(), LinearRNN.aligned(hidden_size=2, initial=0.0)),
    "wrong sign, balanced": (tasks.integration(), LinearRNN.aligned(hidden_size=2, initial=0.1, output_initial=-0.1)),
    "nothing to learn": (
        tasks.integration(target_strength=[0.0, 0.0]),
        LinearRNN.aligned(hidden_size=2, inputs=2, outputs=2),
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_is_never_learned_takes_forever(case):
    task, network = NEVER[case]
    times = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    assert times.flow_steps == np.inf
    assert times.descent_steps == np.inf
    assert times.status is Status.not_learned
    assert times.mode_status[-1] is Status.not_learned
    found = follow([Stage(task, goal=0.99)], network, learning_rate=RATE)
    assert found.steps.status is Status.not_learned
    assert found.steps.flow == np.inf
    assert np.isnan(found.saving.flow)  # never against never
    planned = plan(task, [task.varied(input_strength=2.0, name="other")], network, learning_rate=RATE)
    assert planned.candidates[0].status is Status.not_learned
    assert not planned.candidates[0].helps
    assert len(planned.best.stages) == 1


@pytest.mark.parametrize("case", NEVER)
def test_strict_timing_raises_for_what_is_never_learned(case):
    task, network = NEVER[case]
    words = refused(lambda: lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99), NotLearned)
    assert words.startswith("every mode must reach accuracy 0.99, but got mode ")
    assert "with inf flow steps (not_learned): never reaches the tolerance band" in words


@pytest.mark.parametrize("case", ["no start", "wrong sign, balanced"])
def test_a_stage_that_never_arrives_does_not_claim_its_accuracy(case):
    task, network = NEVER[case]
    outcome = follow([Stage(task, goal=0.99)], network, learning_rate=RATE).stages[0]
    assert outcome.end == pytest.approx([0.0], abs=1e-12)
    assert outcome.accuracy == pytest.approx(0.0, abs=1e-9)  # 1 - |0 - u*| / |u*|


def test_a_mode_with_nothing_to_learn_is_judged_beside_the_others():
    """Its strength decays like 1/t at best; what is left of it counts as little as what the strongest mode lacks."""
    task = tasks.integration(target_strength=[1.0, 0.0])
    network = LinearRNN.aligned(hidden_size=2, inputs=2, outputs=2)
    times = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    alone = lc.forecast(tasks.integration(), LinearRNN.aligned(hidden_size=2), learning_rate=RATE).solution.time_to(
        0.99
    )
    assert times.status is Status.ok
    assert times.flow_steps == pytest.approx(alone.flow_steps, rel=CLOSE)
    assert times.descent_steps == alone.descent_steps
    left = LinearRNN.aligned(hidden_size=2, inputs=2, outputs=2, initial=[0.1, 1.2])  # 1.44 of a mode that wants 0
    late = lc.forecast(task, left, learning_rate=RATE).solution.time_to(0.99)
    power = modes_of([task], left)[0].weighted_input[1]
    best = modes_of([task], left)[0].optimum[0]
    # du/dtau = -2 B u^2 down to 1% of the strongest mode's optimum
    assert late.mode_flow_steps[1] * RATE == pytest.approx((1 / (0.01 * best) - 1 / 1.44) / (2 * power), rel=CLOSE)


def test_the_wrong_sign_is_overcome_by_imbalance(target):
    crossing = LinearRNN.aligned(hidden_size=2, initial=0.02, output_initial=-0.01)
    assert lc.forecast(target, crossing, learning_rate=RATE).solution.time_to(0.99).status is Status.ok


@pytest.fixture(scope="module")
def silent():
    """A recording whose second input and output never move, and a network that starts on its modes."""
    inputs = np.random.default_rng(0).normal(size=(200, 5, 2))
    inputs[..., 1] = 0.0
    task = Task.from_samples(inputs, inputs.sum(axis=1), name="silent")
    alone = Task.from_samples(inputs[..., :1], inputs[..., :1].sum(axis=1), name="alone")
    return task, LinearRNN.aligned(task=task, hidden_size=3), alone, LinearRNN.aligned(task=alone, hidden_size=3)


def test_a_silent_channel_does_not_spoil_the_forecast(silent):
    task, network, alone, smaller = silent
    times = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    assert times.status is Status.ok
    assert times.flow_steps == pytest.approx(
        lc.forecast(alone, smaller, learning_rate=RATE).solution.time_to(0.99).flow_steps
    )


def test_a_silent_channel_stays_silent_forever(silent):
    task, network, *_ = silent
    assert np.isfinite(lc.forecast(task, network, learning_rate=RATE).solution.limit()["strength"]).all()


def test_an_unknown_number_is_never_ok(silent):
    task, network, *_ = silent
    louder = Task(2.25 * task.input_covariance.dense(), 1.5 * task.cross_covariance.dense()[:, :, 0, :], name="louder")
    [candidate] = plan(task, [louder], network, learning_rate=RATE).candidates
    assert np.isfinite(candidate.flow_steps) or candidate.status is not Status.ok


def test_accuracy_one_is_reached_at_infinity_only(target, network):
    assert lc.forecast(target, network, learning_rate=RATE).solution.time_to(1.0).status is Status.not_learned


def test_a_large_learning_rate_diverges(target, stronger, network):
    words = refused(lambda: lc.forecast(target, network, learning_rate=1.0).solution, AssumptionViolated)
    assert words.startswith("stable_learning_rate requires that learning_rate times the sharpest curvature")
    times = lc.forecast(target, network, learning_rate=1.0, strict=False).solution.time_to(0.99)
    assert times.status is Status.diverged
    assert times.descent_steps == np.inf
    assert np.isfinite(times.flow_steps)
    with pytest.raises(AssumptionViolated):
        lc.forecast(target, network, learning_rate=1.0, strict=False).solution.time_to(0.99)
    stages = [Stage(stronger, goal=0.5), Stage(target, goal=0.99)]
    with pytest.raises(AssumptionViolated):
        follow(stages, network, learning_rate=1.0)
    found = follow(stages, network, learning_rate=1.0, strict=False)
    assert found.steps.status is Status.diverged
    assert found.forecast_class == "outside"
    with pytest.raises(AssumptionViolated):
        plan(target, [stronger], network, learning_rate=1.0)
    flow = times.flow_steps  # at a rate of 1
    for rate, words in ((flow / 3.2, "3 steps"), (flow * 10, "less than a step")):
        said = plan(target, [stronger], network, learning_rate=rate, strict=False).summary
        assert f"Gradient descent diverges on {target.name} at this learning rate" in said
        assert f"The flow takes {words}." in said


def test_descent_can_diverge_on_the_first_stage_alone(target, network):
    violent = tasks.integration(target_strength=200.0, name="violent")
    stages = [Stage(violent, goal=0.5), Stage(target, goal=0.99)]
    found = follow(stages, network, learning_rate=RATE, strict=False)
    assert found.stages[0].steps.status is Status.diverged
    assert [o.steps.descent for o in found.stages] == pytest.approx([np.inf, np.nan], nan_ok=True)
    assert found.steps.descent == np.inf


def descended(statistics, weights, rate, steps):
    """Input, recurrent and output weights after steps of gradient descent, from the three covariances alone.

    The output at the last step is W_y sum_t W_h^(T-t) W_x x_t; the recurrence stays.
    """
    inputs, cross = statistics
    first, recurrent, second = (np.array(w, dtype=float) for w in weights)
    length = len(inputs)
    powers = [np.linalg.matrix_power(recurrent, length - 1 - t) for t in range(length)]
    lag = np.stack([p.ravel() for p in powers])  # (steps, hidden^2)
    hidden = len(recurrent)
    for _ in range(steps):
        filters = lag.reshape(length, hidden, hidden) @ first  # (steps, hidden, inputs)
        pooled = np.einsum("thi,tisj->hsj", filters, inputs)
        answered = np.einsum("hsj,skj->hk", pooled, filters)  # E[h h^T]
        told = np.einsum("tio,thi->oh", cross, filters)  # E[y h^T]
        slope = told - second @ answered
        wanted = np.einsum("oh,tio->thi", second, cross) - np.einsum("oh,ok,ksj->shj", second, second, pooled)
        back = np.einsum("tkh,tki->hi", lag.reshape(length, hidden, hidden), wanted)
        first, second = first + rate * back, second + rate * slope
    return first, second


def test_a_misaligned_network_is_outside_modes_and_told_of_by_the_flow(target):
    leaning = LinearRNN([[0.1], [0.0]], np.diag([0.9, 0.5]), [[0.1, 0.02]])
    stages = [Stage(target, goal=0.9)]
    alone = {"learning_rate": RATE, "terms": lc.Terms(max_stages=1)}
    grid = {"vary": "target_strength", "values": [0.5], "accuracies": [0.5], "learning_rate": RATE}
    by = {"by": "modes"}
    for call in (
        lambda **o: lc.forecast(target, leaning, learning_rate=RATE, **o).solution,
        lambda **o: follow(stages, leaning, learning_rate=RATE, **o),
        lambda **o: plan(target, [], leaning, **alone, **o),
        lambda **o: lc.phase(target, leaning, **grid, **o),
    ):
        with pytest.raises(AssumptionViolated) as caught:
            call(**by)
        assert caught.value.assumption in ("aligned_start", "normal_recurrence")
    solution = lc.forecast(target, leaning, learning_rate=RATE, strict=False, **by).solution
    assert solution.time_to(0.99).status is Status.outside_theory
    assert solution.forecast_class == "outside"
    with pytest.raises(AssumptionViolated):
        solution.time_to(0.99)
    assert follow(stages, leaning, learning_rate=RATE, **by, strict=False).status is Status.outside_theory
    assert plan(target, [], leaning, **alone, **by, strict=False).forecast_class == "outside"
    assert lc.phase(target, leaning, strict=False, **grid, **by).attrs["aligned_start"] > 0


def test_a_misaligned_network_is_told_of_as_descent_takes_it():
    """The next ground answers through every door, with the count of descent written out here."""
    target, rate = tasks.integration(steps=6, name="target"), 0.02
    leaning = LinearRNN([[0.1], [0.0]], np.diag([0.9, 0.5]), [[0.1, 0.02]])
    statistics = target.input_covariance.dense(), target.cross_covariance.dense()[:, :, 0, :]
    weights = leaning.input_weights, leaning.recurrent_weights, leaning.output_weights
    found = follow([Stage(target, goal=0.9)], leaning, learning_rate=rate)
    steps = int(found.steps.descent)
    assert found.forecast_class == "integrated"

    def excess(first, second):
        inputs, cross = statistics
        filters = np.stack([second @ np.linalg.matrix_power(weights[1], 5 - t) @ first for t in range(6)])[:, 0, 0]
        flat, told = inputs[:, 0, :, 0], cross[:, 0, 0]
        best = np.linalg.solve(flat, told)
        return float((filters - best) @ flat @ (filters - best)) / 2

    # Training need not come down to the best filter: what can be learned is where the flow rests.
    rest = float(lc.forecast(target, leaning, learning_rate=rate).solution.limit()["excess_loss"].values[0])
    whole = excess(np.zeros((2, 1)), np.zeros((1, 2)))
    goal = rest + 0.01 * (whole - rest)
    assert excess(*descended(statistics, weights, rate, steps)) <= goal * (1 + 1e-9)
    assert excess(*descended(statistics, weights, rate, steps - 1)) > goal
    planned = plan(target, [], leaning, learning_rate=rate, terms=lc.Terms(goal=lc.Accuracy(0.9), max_stages=1))
    assert planned.total == steps
    assert planned.forecast_class == "integrated"


def test_solving_some_of_the_weights_is_left_to_the_flow(target, network):
    """With the output weight fixed at c the strength u = a c obeys du/dtau = c^2 (beta - u B): exponential."""
    own = modes_of([target], network)[0]
    found = lc.forecast(target, network, training=lc.Training(RATE, learn=("input",))).solution
    start, best = float(own.start[0]), float(own.optimum[0])
    pace = float(own.alignment.output_weight[0]) ** 2 * float(own.weighted_input[0]) * RATE
    times = np.array([0.0, 1e5, 1e6])
    expected = best + (start - best) * np.exp(-pace * times)
    np.testing.assert_allclose(found.at(times)["strength"].values[:, 0], expected, rtol=1e-8)  # integrated to 1e-11
    assert "learn" in refused(
        lambda: lc.forecast(target, network, training=lc.Training(RATE, learn=("inptu",))).solution
    )
    assert "learn=('input',)" in refused(
        lambda: lc.forecast(target, network, training=lc.Training(RATE, learn=("input",)), method="modes").solution
    )


def test_solving_says_what_it_cannot_do(target, network):
    assert "learning_rate must be positive, but got 0" in refused(
        lambda: lc.forecast(target, network, learning_rate=0).solution
    )
    too_wild = LinearRNN.aligned(hidden_size=2, recurrence=1e10)
    assert "the recurrence must not overflow over a trial" in refused(
        lambda: lc.forecast(target, too_wild, learning_rate=RATE).solution
    )


# --- plans -----------------------------------------------------------------------------------------------------------


def test_candidates_are_ranked_and_the_best_is_followed(target, stronger, network):
    weaker = tasks.integration(input_strength=0.5, name="weaker inputs")
    slower = tasks.integration(target_strength=0.5, name="slower")
    found = plan(target, [slower, weaker, stronger], network, learning_rate=RATE)
    assert [c.task.name for c in found.candidates] == ["stronger", "weaker inputs", "slower"]
    assert [c.helps for c in found.candidates] == [True, True, False]
    assert [o.stage.task.name for o in found.best.stages] == ["stronger", "target"]
    for candidate in found.candidates:
        assert candidate.status is Status.ok
        by_flow = [Stage(candidate.task, steps=t) for t in candidate.flow.durations]
        again = follow([*by_flow, Stage(target, goal=0.99)], network, learning_rate=RATE)
        assert candidate.flow_steps == pytest.approx(again.steps.flow, rel=CLOSE)
        assert candidate.flow_steps <= candidate.forecast.flow_steps * (1 + CLOSE)
        assert candidate.descent_steps == candidate.forecast.descent_steps
        assert candidate.descent_steps <= again.steps.descent
    assert found.total == found.best.steps.descent < found.direct_total == found.direct.descent
    assert found.flow_route.total < found.direct.flow
    assert found.best.speedup_ratio == pytest.approx(found.direct.flow / found.best.steps.flow)
    assert found.forecast_class == "exact"
    assert all(a.holds for a in found.trust.assumptions)


def test_a_candidate_that_hurts_is_not_used(target, network):
    slower = tasks.integration(target_strength=0.5, name="slower")
    found = plan(target, [slower], network, learning_rate=RATE)
    [candidate] = found.candidates
    assert not candidate.helps
    assert candidate.stop_steps == 0
    assert candidate.saving == 0
    assert candidate.saving_ratio == 1
    assert [o.stage.task.name for o in found.best.stages] == ["target"]
    assert found.best.speedup_steps == 0
    assert candidate.why["sentence"] == "no stop of slower saves time: train target directly"


def test_the_target_itself_and_an_empty_pool_are_refused(target, network):
    words = refused(lambda: plan(target, [target.renamed("the same")], network, learning_rate=RATE))
    assert "candidates must differ from the target, but got candidate 0, 'the same', which is the target" in words
    assert "there must be at least one candidate" in refused(lambda: plan(target, [], network, learning_rate=RATE))


def test_one_stage_means_direct_training(target, stronger, network):
    for found in (
        plan(target, [], network, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
        plan(target, [stronger], network, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
    ):
        assert found.candidates == ()
        assert found.best.flow_steps == found.direct.flow_steps == found.flow.best.total
        assert found.total == found.direct.descent_steps
        assert found.dataset.sizes["candidate"] == 0
    assert repr(found) == ("<Plan for 'target': target to 0.99 (331 steps); saves 0 of 331 steps; exact>")
    dear = plan(target, [], network, learning_rate=RATE, terms=lc.Terms(max_stages=1, costs=2.0))
    assert dear.total == 2.0 * found.total


def test_unusable_plans_are_refused(target, stronger, network):
    def planned(**keywords):
        return plan(target, [stronger], network, **{"learning_rate": RATE, **keywords})

    assert "by must be one of auto, modes, two-layer, pooled, flow" in refused(lambda: planned(by="guess"))
    assert "max_stages is one of the terms of a plan" in refused(lambda: planned(max_stages=2))
    assert "terms must be learncast.Terms" in refused(lambda: planned(terms={"accuracy": 0.9}))
    assert "learning_rate must be positive" in refused(lambda: planned(learning_rate=0.0))
    wide = tasks.integration(target_strength=[1.0, 2.0], name="wide")
    assert "task 'wide' must have the network's 1 input and 1 output, but got 2 and 2" in refused(
        lambda: plan(target, [wide], network, learning_rate=RATE)
    )


def turned(angle, strengths, name):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return tasks.integration(mixing=turn @ np.diag(strengths), name=name)


def test_a_candidate_of_another_geometry_comes_last_and_is_never_chosen(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0], name="goal")
    strange = turned(0.5, [20.0, 10.0], "strange")  # so strong that it would win if its numbers counted
    hurts = tasks.integration(target_strength=[0.2, 0.1], name="hurts")
    helps = tasks.integration(target_strength=[3.0, 1.5], name="helps")
    for strict in (True, False):
        found = plan(goal, [strange, hurts, helps], two_modes, learning_rate=RATE, method="modes", strict=strict)
        assert [c.task.name for c in found.candidates] == ["helps", "hurts", "strange"]
        last = found.candidates[-1]
        assert last.status is Status.outside_theory
        assert last.flow_steps < found.candidates[0].steps.flow
        assert last.why["sentence"].startswith("static_geometry fails (0.48): modes would mix while they learn")
        assert found.best.stages[0].stage.task.name == "helps"
        alone = plan(goal, [strange], two_modes, learning_rate=RATE, method="modes", strict=strict)
        assert len(alone.best.stages) == 1
        assert alone.forecast_class == "exact"


def test_a_candidate_nearly_of_the_same_geometry_competes_only_when_not_strict(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0], name="goal")
    near = turned(0.02, [3.0, 1.5], "near")
    assert len(plan(goal, [near], two_modes, learning_rate=RATE, method="modes").best.stages) == 1
    relaxed = plan(goal, [near], two_modes, learning_rate=RATE, method="modes", strict=False)
    assert relaxed.best.stages[0].stage.task.name == "near"
    assert relaxed.forecast_class == "outside"
    measured = {a.name: a.measured for a in relaxed.trust.assumptions}
    assert measured["static_geometry"] == pytest.approx(np.sin(0.02), rel=1e-6)


def test_a_candidate_on_which_descent_diverges_says_so_and_is_never_chosen(target, network):
    violent = tasks.integration(target_strength=200.0, name="violent")
    for strict in (True, False):
        found = plan(target, [violent], network, learning_rate=RATE, strict=strict)
        [candidate] = found.candidates
        # The very first steps have not run away yet: what they lead to is counted, and not recommended.
        own, other = modes_of([target, violent], network)
        problems = [(m.weighted_cross, m.weighted_input) for m in (other, own)]
        steps = mode_descent(own.start, *problems, 0.01, RATE, int(candidate.stop_steps))
        assert candidate.descent_steps == steps
        assert len(found.best.stages) == 1
        assert "stable_learning_rate fails" in candidate.why["sentence"]
        assert candidate.status is Status.diverged


def test_a_plan_as_labelled_numbers(target, stronger, network, tmp_path):
    found = plan(target, [stronger], network, learning_rate=RATE)
    dataset = found.dataset
    assert dataset["candidate"].values.tolist() == ["stronger"]
    assert float(dataset["direct_flow_steps"]) == pytest.approx(329.98, abs=0.005)
    assert float(dataset["direct_steps"]) == 331
    assert dataset["stop_steps"].attrs["units"] == "gradient steps"
    stored = xr.load_dataset(found.save(tmp_path / "plan.nc"), engine="h5netcdf")
    assert stored.attrs["learncast_object"] == "plan"
    assert stored["status"].values.tolist() == ["ok"]


def test_progress_is_reported_up_to_the_end(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0])
    pool = [tasks.integration(target_strength=[k, 1.0], name=str(k)) for k in (1.5, 2.5, 3.5)]
    shares = []
    plan(goal, pool, two_modes, learning_rate=RATE, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# --- the best stop, against a grid -----------------------------------------------------------------------------------


def totals(stops, start, first, second, tolerance):
    """Total flow time when the first task is trained for each of `stops`, by the logistic oracle."""
    after = logistic(stops[:, None], start, *first)
    return stops + band_time(after, *second, tolerance).max(axis=1)


@pytest.mark.parametrize("modes", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_no_stop_on_a_fine_grid_beats_the_best_stop(modes, seed):
    rng = np.random.default_rng([modes, seed])
    start = 10.0 ** rng.uniform(-4, 0.3, modes)  # from far below to above the optimum
    first, second = (10.0 ** rng.uniform(-0.7, 0.7, (2, modes)) for _ in range(2))
    tolerance = 10.0 ** rng.uniform(-3, -0.5)
    zero = np.zeros(modes)
    stop, best = best_stop(start, Problem(*first, zero), Problem(*second, zero), tolerance)
    direct = totals(np.zeros(1), start, first, second, tolerance)[0]
    grid = np.concatenate([np.linspace(0.0, 1.2 * direct, 20_001), stop + direct * np.linspace(-1e-3, 1e-3, 2001)])
    tried = totals(grid[grid >= 0], start, first, second, tolerance)
    assert best <= tried.min() * (1 + 1e-9)
    # and it is what that stop really takes; a stop on a band's edge may fall outside it by one rounding
    nearby = stop + direct * np.array([-1e-12, 0.0, 1e-12])
    reached = totals(np.maximum(nearby, 0.0), start, first, second, tolerance)
    assert reached.min() - 1e-9 * direct <= best <= direct * (1 + 1e-12)


@pytest.mark.parametrize("points", [17, pytest.param(101, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strengths", [[1.0], [1.0, 2.0]])
def test_the_plan_uses_the_best_stop(strengths, points):
    goal = tasks.integration(target_strength=strengths)
    first = tasks.integration(target_strength=[3.0] * len(strengths), name="first")
    network = LinearRNN.aligned(task=goal, hidden_size=3)
    [candidate] = plan(goal, [first], network, learning_rate=RATE).candidates
    trials = [
        follow([Stage(first, steps=steps), Stage(goal, goal=0.99)], network, learning_rate=RATE).flow_steps
        for steps in np.linspace(0.5, 1.5, points) * candidate.flow.durations[0]
    ]
    assert candidate.flow_steps <= min(trials) * (1 + 1e-9)


def mode_descent(start, first, second, tolerance, rate, stop):
    """Steps of plain descent when the first task is trained for a whole number of them, the target then learned."""
    a, c = np.sqrt(start), np.sqrt(start)
    for _ in range(stop):
        pull = rate * (first[0] - first[1] * a * c)
        a, c = a + c * pull, c + a * pull
    best, steps = second[0] / second[1], stop
    while (np.abs(a * c - best) > tolerance * best).any():
        pull = rate * (second[0] - second[1] * a * c)
        a, c, steps = a + c * pull, c + a * pull, steps + 1
    return steps


@pytest.mark.parametrize("strengths", [[1.0], [1.0, 2.0], [1.0, 0.6, 2.0]], ids=str)
def test_no_other_stop_takes_fewer_steps_of_descent(strengths):
    goal = tasks.integration(target_strength=strengths)
    first = tasks.integration(target_strength=[3.0 - 0.4 * k for k in range(len(strengths))], name="first")
    network = LinearRNN.aligned(task=goal, hidden_size=3, initial=0.1)
    found = plan(goal, [first], network, learning_rate=RATE)
    own, other = modes_of([goal, first], network)
    problems = [(m.weighted_cross, m.weighted_input) for m in (other, own)]
    stop = int(found.candidates[0].stop_steps)
    steps = [mode_descent(own.start, *problems, 0.01, RATE, n) for n in range(2 * stop + 20)]
    assert stop > 0
    assert found.total == steps[stop]
    assert found.total == min(steps)
    assert found.direct_total == steps[0]


def test_without_gain_the_best_stop_is_none():
    zero = np.zeros(1)
    same = Problem(np.ones(1), np.ones(1), zero)
    slower = Problem(0.5 * np.ones(1), np.ones(1), zero)
    for first in (same, slower):
        stop, best = best_stop(np.full(1, 0.01), first, same, 0.01)
        assert stop == 0.0
        assert best == pytest.approx(float(band_time(0.01, 1.0, 1.0, 0.01)), rel=CLOSE)


# --- phase portraits -------------------------------------------------------------------------------------------------

GRID = {"values": [0.5, 1.0, 1.5, 3.0], "accuracies": [0.0, 0.1, 0.5, 0.9, 0.999], "learning_rate": RATE}


def assert_same_grids(one, other):
    for name in ("first_stage_steps", "second_stage_steps", "total_steps", "speedup_steps", "optimum"):
        np.testing.assert_allclose(one[name].values, other[name].values, rtol=CLOSE, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("vary", ["target_strength", "input_strength"])
@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_the_vectorised_portrait_equals_the_loop(vary, targets):
    """A keyword given per channel is varied task by task, a plain number all at once."""
    network = LinearRNN.aligned(hidden_size=2, initial=0.02, recurrence=0.9)
    plain = tasks.integration(20, targets=targets)
    listed = tasks.integration(20, input_strength=[1.0], targets=targets)
    fast = lc.phase(plain, network, vary=vary, **GRID)
    slow = lc.phase(listed, network, vary=vary, **{**GRID, "values": [[value] for value in GRID["values"]]})
    assert_same_grids(fast, slow)
    assert float(fast["direct_steps"]) == pytest.approx(float(slow["direct_steps"]), rel=CLOSE)


@pytest.mark.slow_cases("correlation-values1", "noise_strength-values2", "gain-values3")
@pytest.mark.parametrize(
    ("vary", "values"),
    [
        ("timescale", [3.0, 10.0]),
        ("correlation", [-0.5, 0.0, 1.0]),
        ("noise_strength", [0.5, 2.0]),
        ("gain", [0.5, 2.0]),
    ],
)
def test_every_keyword_of_a_family_can_be_varied(vary, values):
    goal = tasks.leaky_integration(20, mixing=np.array([[2.0, 0.3], [0.1, 1.0]]))
    network = LinearRNN.aligned(task=goal, hidden_size=3, recurrence=[0.9, 0.7])
    slow = RATE / 10  # a random walk is a strong input: stable only at a smaller learning rate
    found = lc.phase(goal, network, vary=vary, **{**GRID, "values": values, "learning_rate": slow})
    assert found["total_steps"].dims == (vary, "accuracy")
    for i, value in enumerate(values):
        for j, accuracy in enumerate(GRID["accuracies"]):
            stages = [Stage(goal.varied(**{vary: value}), goal=accuracy), Stage(goal, goal=0.99)]
            alone = follow(stages, network, learning_rate=slow)
            assert found["total_steps"].values[i, j] == pytest.approx(alone.steps.flow, rel=1e-8)
            assert found["speedup_ratio"].values[i, j] == pytest.approx(alone.speedup_ratio, rel=1e-8)


def test_varying_the_length_of_the_trial_takes_the_loop(target, network):
    found = lc.phase(target, network, vary="steps", **{**GRID, "values": [10, 50]})
    stages = [Stage(tasks.integration(10), goal=0.5), Stage(target, goal=0.99)]
    alone = follow(stages, network, learning_rate=RATE)
    assert found["total_steps"].sel(steps=10, accuracy=0.5).item() == pytest.approx(alone.steps.flow, rel=CLOSE)
    # the target's own length changes nothing, up to round-off of a sum of 330 steps
    np.testing.assert_allclose(found["speedup_steps"].sel(steps=50)[:-1], 0.0, atol=1e-9)


def test_the_singular_stop_is_where_the_first_task_ends_on_the_targets_optimum(target, network):
    found = lc.phase(target, network, vary="target_strength", **GRID)
    # u2*/u1* = 1/value below 1; a weaker first task never reaches the target's optimum
    np.testing.assert_allclose(found["singular_accuracy"], [np.nan, np.nan, 1 / 1.5, 1 / 3], rtol=CLOSE)


def test_a_portrait_agrees_with_following_from_a_start_that_has_already_learned(target):
    optimum = modes_of([target], LinearRNN.aligned(hidden_size=2))[0].optimum[0]
    learned = LinearRNN.aligned(hidden_size=2, initial=np.sqrt(optimum))
    found = lc.phase(target, learned, vary="target_strength", **{**GRID, "values": [1.0]})
    alone = follow([Stage(target, goal=0.5), Stage(target, goal=0.99)], learned, learning_rate=RATE)
    assert alone.speedup_ratio == 1.0  # nothing over nothing
    assert found["speedup_ratio"].sel(accuracy=0.5).item() == alone.speedup_ratio


def test_a_first_task_that_never_ends_costs_forever(target, network):
    found = lc.phase(target, network, vary="target_strength", **{**GRID, "values": [0.0, -1.0]})
    assert np.isposinf(found["total_steps"].values[:, 1:]).all()
    assert np.isposinf(found["second_stage_steps"].values[:, 1:]).all()  # there is nothing to start it from
    assert np.isneginf(found["speedup_steps"].values[:, 1:]).all()
    assert (found["speedup_ratio"].values[:, 1:] == 0).all()


def test_a_first_task_trained_to_perfection_never_ends(target, network):
    found = lc.phase(target, network, vary="target_strength", **{**GRID, "accuracies": [1.0]})
    for name in ("first_stage_steps", "second_stage_steps", "total_steps"):
        assert np.isposinf(found[name]).all()


def test_never_against_never_is_unknown(target):
    found = lc.phase(target, LinearRNN.aligned(hidden_size=2, initial=0.0), vary="target_strength", **GRID)
    assert np.isposinf(found["direct_steps"])
    assert np.isnan(found["speedup_steps"].values[:, 1:]).all()


def test_an_unstable_first_task_is_marked_or_refused(target, network):
    grid = {**GRID, "values": [1.0, 200.0]}
    with pytest.raises(AssumptionViolated, match="stable_learning_rate"):
        lc.phase(target, network, vary="target_strength", **grid)
    found = lc.phase(target, network, vary="target_strength", strict=False, **grid)
    assert found["stable"].values.tolist() == [True, False]


@pytest.mark.parametrize("shape", [(300, 50), (40, 400)])
@pytest.mark.parametrize("strength", [1.0, -1.0])
def test_of_a_large_portrait_the_points_that_save_most_are_counted(shape, strength):
    """More rows than points that are counted, and fewer; with first stages of the wrong sign that never end."""
    target = tasks.integration(steps=8)
    network = LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=4)
    grid = {"values": np.linspace(-0.5, 3, shape[0]) * strength, "accuracies": np.linspace(0.1, 0.9, shape[1])}
    found = lc.phase(target, network, learning_rate=1e-3, vary="target_strength", strict=False, **grid)
    counted, saved = np.isfinite(found["total_descent_steps"].values), found["speedup_steps"].values
    assert np.isinf(found["first_stage_steps"].values).any()
    assert counted.sum() == 200
    assert saved[counted].min() >= saved[~counted].max()
    again = lc.phase(target, network, learning_rate=1e-3, vary="target_strength", values=grid["values"][-3:], accuracies=grid["accuracies"], strict=False)  # fmt: skip
    for name in ("first_stage_steps", "second_stage_steps", "total_steps", "speedup_steps", "speedup_ratio"):
        np.testing.assert_allclose(again[name].values, found[name].values[-3:], rtol=1e-12)


def test_a_first_task_of_another_geometry_is_refused_by_modes_and_followed_without(two_modes):
    goal = tasks.integration(steps=8, mixing=np.diag([2.0, 1.0]))
    values = [np.diag([3.0, 1.0]), np.array([[2.0, 0.5], [0.0, 1.0]])]
    grid = {**GRID, "values": values, "accuracies": [0.5, 0.9]}
    with pytest.raises(AssumptionViolated, match="static_geometry"):
        lc.phase(goal, two_modes, method="modes", vary="mixing", **grid)
    found = lc.phase(goal, two_modes, method="modes", vary="mixing", strict=False, **grid)
    assert found.attrs["static_geometry"] > 0.1
    assert found["mixing"].values.tolist() == [0, 1]  # a matrix is no coordinate: counted instead
    told = lc.phase(goal, two_modes, vary="mixing", **grid)
    assert told.attrs["by"] == "two-layer"
    assert told.attrs["forecast_class"] == "exact"
    for i, value in enumerate(values):
        stages = [Stage(goal.varied(mixing=value), goal=0.5), Stage(goal, goal=0.99)]
        alone = follow(stages, two_modes, learning_rate=RATE, method="two-layer")
        assert told["total_steps"].values[i, 0] == pytest.approx(alone.steps.flow, rel=1e-8)
        assert told["total_descent_steps"].values[i, 0] == alone.steps.descent


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vary": "target_strenght"}, "did you mean 'target_strength'?"),
        ({"values": []}, "a portrait must have at least one point"),
        ({"accuracies": []}, "a portrait must have at least one point"),
        ({"accuracies": [0.5, 1.5]}, "accuracies must lie between 0 and 1"),
        ({"accuracies": [-0.5]}, "accuracies must lie between 0 and 1"),
        ({"accuracies": [np.nan]}, "accuracies must be finite"),
        ({"accuracies": 0.5}, "accuracies must have 1 dimension"),
        ({"values": [np.nan]}, "target_strength must be finite"),
        ({"values": 0.5}, "values"),
        ({"vary": "input_strength", "values": [1.0, 0.0]}, "input_strength must be positive"),
        ({"vary": "steps", "values": [10.5]}, "steps must be a whole number"),
        ({"learning_rate": -1.0}, "learning_rate must be positive"),
        ({"accuracy": 2.0}, "accuracy must lie between 0 and 1"),
    ],
    ids=str,
)
def test_unusable_portraits_are_refused(target, network, change, words):
    grid = {"vary": "target_strength", **GRID, **change}
    assert words in refused(lambda: lc.phase(target, network, **grid))


def test_a_grid_too_large_is_refused_before_it_is_made(target, network):
    grid = {**GRID, "values": np.broadcast_to(1.0, 20_000), "accuracies": np.broadcast_to(0.5, 20_000)}
    words = refused(lambda: lc.phase(target, network, vary="target_strength", **grid))
    assert "fit in 2 GiB, but got 20000 values x 20000 accuracies (20.9 GiB)" in words


def test_a_task_of_statistics_has_nothing_to_vary(target, network):
    given = Task(target.input_covariance, target.cross_covariance)
    words = refused(lambda: lc.phase(given, network, vary="target_strength", **GRID))
    assert "a task must come from a family to be varied" in words


def test_an_overflow_in_the_grid_is_said_in_words(network):
    goal = tasks.leaky_integration(1000)
    words = refused(lambda: lc.phase(goal, network, vary="correlation", **{**GRID, "values": [0.5, 5.0]}))
    assert "every value of correlation must give finite statistics" in words


# --- explanations ----------------------------------------------------------------------------------------------------


def test_the_terms_are_those_of_the_printed_speedup():
    u0, (b1, p1), (b2, p2), eps = 1e-4, (30.0, 12.0), (20.0, 11.0), 0.2
    scale, crossing, near = speedup_terms(u0, (b1, p1), (b2, p2), eps)
    u1, u2 = b1 / p1, b2 / p2
    assert scale == pytest.approx(np.log(abs(u2 / u0 - 1)), rel=1e-14)
    assert crossing == pytest.approx(b2 / b1 * np.log(eps * u0 / ((1 - eps) * abs(u1 - u0))), rel=1e-14)
    assert near == pytest.approx(-np.log(abs(u2 / ((1 - eps) * u1) - 1)), rel=1e-14)


def test_from_below_the_printed_speedup_is_the_exact_one(target, network):
    slower = tasks.integration(target_strength=0.75, name="slower")
    found = follow([Stage(slower, goal=0.9), Stage(target, goal=0.99)], network, learning_rate=RATE)
    why = found.explanation
    assert why.printed_speedup_steps == pytest.approx(found.saving.flow, rel=1e-9)
    beta = found.modes[1].weighted_cross[0]
    terms = why.initial_scale + why.cross_ratio + why.closeness
    assert terms / (2 * RATE * beta) == pytest.approx(why.printed_speedup_steps, rel=1e-12)
    assert set(why.as_dict()) >= {"mode", "initial_scale", "cross_ratio", "closeness", "sentence"}


def test_closeness_is_infinite_on_the_targets_optimum():
    assert closeness(2.0, 1.0, 0.5) == np.inf
    assert closeness(2.0, 1.0, 0.4) == pytest.approx(-np.log(abs(1 / 1.2 - 1)))
    np.testing.assert_array_equal(singular_accuracy([2.0, 1.0, 0.5, -2.0], 1.0), [0.5, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("strength", "accuracy", "words"),
    [
        (1.5, 0.5, "first starts 1.5 times faster than target and ends at 75.0% of the way to target's optimum"),
        (0.5, 0.9, "first starts 2 times slower than target and ends at 45.0% of the way to target's optimum"),
        (1.0, 0.5, "first starts as fast as target and ends at 50.0% of the way to target's optimum"),
        (3.0, 0.9, "first starts 3 times faster than target and overshoots to 270.0% of target's optimum, which must"),
        (2.0, 0.5, "first starts 2 times faster than target and ends inside the tolerance of target"),
        (-1.0, 0.0, "first pulls this mode away from target"),
    ],
)
def test_the_sentence_says_how_fast_and_where_it_ends(target, network, strength, accuracy, words):
    first = tasks.integration(target_strength=strength, name="first")
    found = follow([Stage(first, goal=accuracy), Stage(target, goal=0.99)], network, learning_rate=RATE)
    assert found.explanation.sentence.startswith(words)


def test_a_target_that_asks_nothing_is_explained(network):
    nothing = tasks.integration(target_strength=0.0, name="nothing")
    stages = [Stage(tasks.integration(), steps=10), Stage(nothing, goal=0.0)]
    assert follow(stages, network, learning_rate=RATE).why.sentence == "nothing asks nothing of this mode"


def test_an_explanation_is_about_two_tasks(target, stronger, network):
    assert follow([Stage(target, goal=0.9)], network, learning_rate=RATE).why is None
    stages = [Stage(stronger, goal=0.1), Stage(stronger, goal=0.2), Stage(target, goal=0.9)]
    assert follow(stages, network, learning_rate=RATE).why is None


def test_the_explained_mode_is_the_slowest(two_modes):
    goal = tasks.integration(target_strength=[1.0, 2.0])
    first = tasks.integration(target_strength=[2.0, 4.0])
    found = follow([Stage(first, goal=0.3), Stage(goal, goal=0.99)], two_modes, learning_rate=RATE)
    assert found.explanation.mode == int(np.argmax(found.direct.mode_flow_steps))


# --- the printed time and the fastest path ---------------------------------------------------------------------------


def test_the_printed_time_is_the_exact_one_from_below(target, network):
    solution = solve(target, network, learning_rate=RATE)
    assert lc.papers.paper_time(solution, 0.9) == pytest.approx(
        time_to_learn(solution, 0.9).mode_flow_steps, rel=1e-9
    )
    assert "the printed formula needs a solution made of modes" in refused(
        lambda: lc.papers.paper_time("no solution"), UnsupportedModel
    )


def test_the_fastest_path_climbs_the_highest_line():
    # du/dtau ~ beta - u B: task 1 leads below u = 1, task 0 above
    path = lc.planning.fastest_path([2.0, 4.0], [1.0, 3.0], start=0.01, end=1.5, learning_rate=RATE)
    assert [(leg.task, leg.end) for leg in path.legs] == [(1, pytest.approx(1.0)), (0, pytest.approx(1.5))]
    single = [
        lc.planning.fastest_path([b], [p], start=0.01, end=1.2, learning_rate=RATE).flow_steps
        for b, p in ((2, 1), (4, 3))
    ]
    both = lc.planning.fastest_path([2.0, 4.0], [1.0, 3.0], start=0.01, end=1.2, learning_rate=RATE).flow_steps
    assert both < min(single)
    down = lc.planning.fastest_path([2.0, 4.0], [1.0, 3.0], start=3.0, end=2.2, learning_rate=RATE)
    assert [leg.task for leg in down.legs] == [1]
    assert lc.planning.fastest_path([1.0], [1.0], start=0.5, end=0.5, learning_rate=RATE).legs == ()
    assert lc.planning.fastest_path([1.0], [1.0], start=0.5, end=1.5, learning_rate=RATE).flow_steps == np.inf
    assert "must list the same tasks" in refused(
        lambda: lc.planning.fastest_path([1.0, 2.0], [1.0], start=0.1, end=0.5, learning_rate=RATE)
    )


@pytest.mark.parametrize("share", [0.01, 0.5, 3.0])
def test_the_largest_rate_does_not_depend_on_the_one_in_use(share):
    """Twice the inverse of the curvature at the balanced optimum, which is 2 beta."""
    task = tasks.integration(steps=6)
    network = LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=3)
    curvature = 2 * float(modes(task, network).weighted_cross[0])
    ground = lc.planning.method_for([task], network, share / curvature, method="modes")
    assert ground.largest_rate(0) == pytest.approx(2.0 / curvature, rel=1e-9)


@pytest.mark.parametrize("weight", [3.0, 4.8, 6.0, 7.0, 12.0])
def test_a_start_that_is_too_sharp_is_told_only_where_descent_runs_away_from_it(weight):
    """Beyond 2 / curvature of the start, plain descent may still leave for a flatter place and settle."""
    rate, first, second = 0.1, weight, 0.3
    start = lc.TwoLayer([[first]], [[second]])
    for _ in range(100):
        error = rate * (first * second - 1.0)
        first, second = first - second * error, second - first * error
        if abs(first) > 1e12:
            break
    settles = abs(first * second - 1.0) < 1e-6
    ground = lc.planning.method_for([tasks.static([[1.0]], [[1.0]])], start, rate, method="pooled")
    assert all(condition.holds for condition in ground.conditions(0)) is settles


def test_modes_are_counted_to_the_goal_of_a_loss():
    goal, rate = tasks.integration(steps=5, target_strength=[1.0, 0.6]), 0.02
    network = LinearRNN.aligned(task=goal, recurrence=[0.7, 0.5], initial=[0.2, 0.3], hidden_size=2)
    ground = lc.planning.method_for([goal], network, rate, method="modes")
    own = modes(goal, network)
    beta, power, weights = own.weighted_cross, own.weighted_input, np.array([[0.2, 0.3]] * 2)

    def excess(strength):
        return 0.5 * float(power @ (strength - beta / power) ** 2)

    steps, whole = 0, excess(np.zeros(2))
    while excess(weights[0] * weights[1]) > 0.15**2 * whole:
        weights, steps = weights + rate * weights[::-1] * (beta - power * weights[0] * weights[1]), steps + 1
    assert ground.counted(0, [ground.start], 0.85)[0][0] == steps
