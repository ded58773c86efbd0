"""Forecasts of one task or several in sequence, against stage-by-stage solutions and plain descent."""

import numpy as np
import pytest

import learncast as lc
from learncast import LinearRNN, Stage, Status, Task, follow, plan, tasks
from learncast.results import load_dataset
from learncast.theory import modes_of

RATE = 1e-3
#: Closed forms against closed forms: a few hundred operations of round-off.
CLOSE = 1e-10


def assert_refused(call, field, error=lc.InvalidSpec):
    with pytest.raises(error) as caught:
        call()
    assert caught.value.field == field


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


# --- stages ----------------------------------------------------------------------------------------------------------


def test_a_stage_has_exactly_one_rule_to_stop(target):
    assert_refused(lambda: Stage(target), "goal")
    assert_refused(lambda: Stage(target, goal=0.9, steps=5), "goal")
    for value in (1.2, float("nan")):
        assert_refused(lambda value=value: Stage(target, goal=value), "accuracy")
    for value in (-3, "ten"):
        assert_refused(lambda value=value: Stage(target, steps=value), "steps")
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
    for stage, found_stage in zip(stages, found.stages, strict=True):
        solution = lc.forecast(stage.task, network, learning_rate=RATE).solution
        steps = solution.time_to(stage.goal.value).flow_steps
        assert found_stage.steps.flow == pytest.approx(steps, rel=CLOSE, abs=1e-9)
        assert found_stage.accuracy >= stage.goal.value - 1e-12
        assert found_stage.steps.status is Status.ok
        network, total = solution.network_at(steps), total + steps
        assert found_stage.end[0] == pytest.approx((network.output_weights @ network.input_weights).item(), rel=CLOSE)
    assert found.steps.flow == pytest.approx(total, rel=CLOSE)
    direct = lc.forecast(pool["target"], first, learning_rate=RATE).solution.time_to(0.99)
    assert found.direct.flow == direct.flow_steps
    assert found.saving.flow == pytest.approx(direct.flow_steps - total, rel=1e-8, abs=1e-8)
    assert found.forecast_class == "exact"


def test_a_stage_lasts_until_its_slowest_mode_is_learned(two_modes):
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
    assert_refused(lambda: found.at([-1.0]), "times")


def test_a_forecast_is_saved_as_labelled_numbers(target, stronger, network, tmp_path):
    found = follow([Stage(stronger, goal=0.5), Stage(target, goal=0.99)], network, learning_rate=RATE)
    dataset = found.dataset
    assert dataset["task"].values.tolist() == ["stronger", "target"]
    assert float(dataset["total_steps"]) == pytest.approx(found.steps.flow)
    assert float(dataset["speedup_ratio"]) == pytest.approx(found.direct.flow / found.steps.flow)
    assert all("units" in variable.attrs for variable in dataset.data_vars.values())
    path = found.save(tmp_path / "forecast.nc")
    again, provenance = load_dataset(path, kind="forecast")
    assert again.drop_attrs().identical(dataset.drop_attrs())
    assert provenance == found.provenance
    assert lc.Forecast.load(path).drop_attrs().identical(dataset.drop_attrs())
    assert (found.steps.descent, found.direct.descent) == (237, 331)
    assert found.steps.flow == pytest.approx(236.158, abs=5e-4)
    assert found.saving.flow == pytest.approx(93.83, abs=5e-3)


def test_unusable_curricula_are_refused(target, network):
    for none in ([], [target], [Stage(target, goal=0.9), target]):
        assert_refused(lambda none=none: follow(none, network, learning_rate=RATE), "stages")
    stages = [Stage(target, goal=0.9)]
    assert_refused(lambda: follow(stages, network, learning_rate=-1.0), "learning_rate")
    assert_refused(lambda: follow(stages, network), "learning_rate")
    assert_refused(lambda: follow(stages, network, lc.Training(RATE), learning_rate=RATE), "learning_rate")
    wide = [Stage(tasks.integration(target_strength=[1.0, 2.0]), goal=0.9)]
    with pytest.raises(lc.InvalidSpec):
        follow(wide, network, learning_rate=RATE)


@pytest.mark.parametrize(
    "call",
    [
        lambda target, net: lc.forecast(target, net, learning_rate=RATE),
        lambda target, net: follow([Stage(target, goal=0.9)], net, learning_rate=RATE),
        lambda target, net: plan(target, [], net, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
        lambda target, net: lc.phase(
            target, net, learning_rate=RATE, vary="target_strength", values=[1.0], accuracies=[0.5]
        ),
    ],
    ids=["forecast", "follow", "plan", "phase"],
)
def test_another_kind_of_network_is_refused(target, call):
    assert_refused(lambda: call(target, "a network"), "network", lc.UnsupportedModel)


# --- never learned, diverged, outside --------------------------------------------------------------------------------

NEVER = {
    "no start": (tasks.integration(), LinearRNN.aligned(hidden_size=2, initial=0.0)),
    "wrong sign, balanced": (tasks.integration(), LinearRNN.aligned(hidden_size=2, initial=0.1, output_initial=-0.1)),
}


@pytest.mark.parametrize("case", NEVER)
def test_steps_are_infinite_if_a_task_is_never_learned(case):
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
    assert planned.candidates[0].steps.status is Status.not_learned
    assert not planned.candidates[0].helps
    assert len(planned.best.stages) == 1


@pytest.mark.parametrize("case", ["no start", "wrong sign, balanced"])
def test_a_stage_that_never_ends_reports_the_accuracy_it_reaches(case):
    task, network = NEVER[case]
    found_stage = follow([Stage(task, goal=0.99)], network, learning_rate=RATE).stages[0]
    assert found_stage.end == pytest.approx([0.0], abs=1e-12)
    assert found_stage.accuracy == pytest.approx(0.0, abs=1e-9)  # 1 - |0 - u*| / |u*|


def test_a_mode_with_nothing_to_learn_is_judged_by_the_scale_of_the_strongest():
    """Its strength decays like 1/t at best, and must fall below 1% of the strongest mode's optimum."""
    task = tasks.integration(target_strength=[1.0, 0.0])
    network = LinearRNN.aligned(hidden_size=2, inputs=2, outputs=2)
    times = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    one_mode = LinearRNN.aligned(hidden_size=2)
    single = lc.forecast(tasks.integration(), one_mode, learning_rate=RATE).solution.time_to(0.99)
    assert times.status is Status.ok
    assert times.flow_steps == pytest.approx(single.flow_steps, rel=CLOSE)
    assert times.descent_steps == single.descent_steps
    left = LinearRNN.aligned(hidden_size=2, inputs=2, outputs=2, initial=[0.1, 1.2])  # 1.44 of a mode that wants 0
    late = lc.forecast(task, left, learning_rate=RATE).solution.time_to(0.99)
    power = modes_of([task], left)[0].weighted_input[1]
    best = modes_of([task], left)[0].optimum[0]
    # du/dtau = -2 B u^2 down to 1% of the strongest mode's optimum
    assert late.mode_flow_steps[1] * RATE == pytest.approx((1 / (0.01 * best) - 1 / 1.44) / (2 * power), rel=CLOSE)


def test_imbalance_overcomes_a_start_of_the_wrong_sign(target):
    crossing = LinearRNN.aligned(hidden_size=2, initial=0.02, output_initial=-0.01)
    assert lc.forecast(target, crossing, learning_rate=RATE).solution.time_to(0.99).status is Status.ok


@pytest.fixture(scope="module")
def silent():
    """A recording whose second input and output never move, and a network that starts on its modes."""
    inputs = np.random.default_rng(0).normal(size=(200, 5, 2))
    inputs[..., 1] = 0.0
    task = Task.from_samples(inputs, inputs.sum(axis=1), name="silent")
    single = Task.from_samples(inputs[..., :1], inputs[..., :1].sum(axis=1), name="single")
    return task, LinearRNN.aligned(task=task, hidden_size=3), single, LinearRNN.aligned(task=single, hidden_size=3)


def test_a_silent_channel_does_not_change_the_forecast(silent):
    task, network, single, smaller = silent
    times = lc.forecast(task, network, learning_rate=RATE).solution.time_to(0.99)
    assert times.status is Status.ok
    assert times.flow_steps == pytest.approx(
        lc.forecast(single, smaller, learning_rate=RATE).solution.time_to(0.99).flow_steps
    )


def test_strengths_stay_finite_with_a_silent_channel(silent):
    task, network, *_ = silent
    assert np.isfinite(lc.forecast(task, network, learning_rate=RATE).solution.limit()["strength"]).all()


def test_a_candidate_without_a_number_is_not_ok(silent):
    task, network, *_ = silent
    louder = Task(2.25 * task.input_covariance.dense(), 1.5 * task.cross_covariance.dense()[:, :, 0, :], name="louder")
    [candidate] = plan(task, [louder], network, learning_rate=RATE).candidates
    assert np.isfinite(candidate.steps.flow) or candidate.steps.status is not Status.ok


def test_accuracy_one_is_reached_at_infinity_only(target, network):
    assert lc.forecast(target, network, learning_rate=RATE).solution.time_to(1.0).status is Status.not_learned


def test_a_large_learning_rate_diverges(target, stronger, network):
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast(target, network, learning_rate=1.0)
    assert caught.value.assumption == "stable_learning_rate"
    found = lc.forecast(target, network, learning_rate=1.0, strict=False)
    times = found.solution.time_to(0.99)
    for number in (times, found.steps):
        assert number.status is Status.diverged
    assert times.descent_steps == found.steps.descent == np.inf
    assert np.isfinite(times.flow_steps)
    stages = [Stage(stronger, goal=0.5), Stage(target, goal=0.99)]
    with pytest.raises(lc.AssumptionViolated):
        follow(stages, network, learning_rate=1.0)
    found = follow(stages, network, learning_rate=1.0, strict=False)
    assert found.steps.status is Status.diverged
    assert found.forecast_class == "outside"
    with pytest.raises(lc.AssumptionViolated):
        plan(target, [stronger], network, learning_rate=1.0)
    flow = times.flow_steps  # at a rate of 1
    for rate in (flow / 3.2, flow * 10):
        found = plan(target, [stronger], network, learning_rate=rate, strict=False)
        assert found.direct.status is Status.diverged
        assert found.direct.flow == pytest.approx(flow / rate, rel=CLOSE)


def test_descent_can_diverge_on_the_first_stage_only(target, network):
    violent = tasks.integration(target_strength=200.0, name="violent")
    stages = [Stage(violent, goal=0.5), Stage(target, goal=0.99)]
    found = follow(stages, network, learning_rate=RATE, strict=False)
    assert found.stages[0].steps.status is Status.diverged
    assert [o.steps.descent for o in found.stages] == pytest.approx([np.inf, np.nan], nan_ok=True)
    assert found.steps.descent == np.inf


def plain_descent(statistics, weights, rate, steps):
    """Input, recurrent and output weights after steps of gradient descent, from the three covariances alone.

    The output at the last step is W_y sum_t W_h^(T-t) W_x x_t, with fixed W_h.
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
        power = np.einsum("hsj,skj->hk", pooled, filters)  # E[h h^T]
        outputs = np.einsum("tio,thi->oh", cross, filters)  # E[y h^T]
        slope = outputs - second @ power
        error = np.einsum("oh,tio->thi", second, cross) - np.einsum("oh,ok,ksj->shj", second, second, pooled)
        back = np.einsum("tkh,tki->hi", lag.reshape(length, hidden, hidden), error)
        first, second = first + rate * back, second + rate * slope
    return first, second


def test_modes_do_not_apply_to_a_misaligned_network(target):
    leaning = LinearRNN([[0.1], [0.0]], np.diag([0.9, 0.5]), [[0.1, 0.02]])
    stages = [Stage(target, goal=0.9)]
    direct = {"learning_rate": RATE, "terms": lc.Terms(max_stages=1), "method": "modes"}
    modes = {"learning_rate": RATE, "method": "modes"}
    grid = {"vary": "target_strength", "values": [0.5], "accuracies": [0.5], **modes}
    for call in (
        lambda: lc.forecast(target, leaning, **modes),
        lambda: follow(stages, leaning, **modes),
        lambda: plan(target, [], leaning, **direct),
        lambda: lc.phase(target, leaning, **grid),
    ):
        with pytest.raises(lc.AssumptionViolated) as caught:
            call()
        assert caught.value.assumption in ("aligned_start", "normal_recurrence")
    solution = lc.forecast(target, leaning, strict=False, **modes).solution
    assert solution.time_to(0.99).status is Status.outside_theory
    assert solution.forecast_class == "outside"
    assert follow(stages, leaning, **modes, strict=False).steps.status is Status.outside_theory
    assert plan(target, [], leaning, **direct, strict=False).forecast_class == "outside"
    assert lc.phase(target, leaning, strict=False, **grid).attrs["aligned_start"] > 0


def test_a_misaligned_network_is_forecast_by_the_next_method():
    """Steps are those of plain descent, in a forecast and in a plan."""
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
        flat = inputs[:, 0, :, 0]
        best = np.linalg.solve(flat, cross[:, 0, 0])
        return float((filters - best) @ flat @ (filters - best)) / 2

    # Training may not reach the best filter: the least loss is where the flow rests.
    end = lc.forecast(target, leaning, learning_rate=rate).solution.network_at(np.inf)
    rest = excess(end.input_weights, end.output_weights)
    baseline = excess(np.zeros((2, 1)), np.zeros((1, 2)))
    goal = rest + 0.01 * (baseline - rest)
    assert excess(*plain_descent(statistics, weights, rate, steps)) <= goal * (1 + 1e-9)
    assert excess(*plain_descent(statistics, weights, rate, steps - 1)) > goal
    planned = plan(target, [], leaning, learning_rate=rate, terms=lc.Terms(goal=lc.Accuracy(0.9), max_stages=1))
    assert planned.total == steps
    assert planned.forecast_class == "integrated"


def test_training_the_input_weights_only_is_forecast_by_the_flow(target, network):
    """With the output weight fixed at c the strength u = a c obeys du/dtau = c^2 (beta - u B): exponential."""
    own = modes_of([target], network)[0]
    found = lc.forecast(target, network, training=lc.Training(RATE, learn=("input",))).solution
    start, best = float(own.start[0]), float(own.optimum[0])
    pace = float(own.alignment.output_weight[0]) ** 2 * float(own.weighted_input[0]) * RATE
    times = np.array([0.0, 1e5, 1e6])
    expected = best + (start - best) * np.exp(-pace * times)
    np.testing.assert_allclose(found.at(times)["strength"].values[:, 0], expected, rtol=1e-8)  # integrated to 1e-11
    for learn, method, field in ((("inptu",), "auto", "learn"), (("input",), "modes", "method")):
        training = lc.Training(RATE, learn=learn)
        assert_refused(lambda t=training, m=method: lc.forecast(target, network, t, method=m), field)


def test_unusable_forecasts_are_refused(target, network):
    assert_refused(lambda: lc.forecast(target, network, learning_rate=0), "learning_rate")
    assert_refused(lambda: lc.forecast(target, network, learning_rate=RATE, method="guess"), "method")
    overflowing = LinearRNN.aligned(hidden_size=2, recurrence=1e10)
    with pytest.raises(lc.InvalidSpec):
        lc.forecast(target, overflowing, learning_rate=RATE)


def test_steps_too_short_to_change_a_weight_are_not_divergence(target, network):
    rate = 1e-19
    steps, usual = (lc.forecast(target, network, learning_rate=r).steps for r in (rate, RATE))
    assert steps.status is Status.ok
    assert np.isnan(steps.descent)
    assert steps.flow * rate == pytest.approx(usual.flow * RATE, rel=CLOSE)


@pytest.mark.parametrize(("rate", "steps"), [(1e-3, 250), (1e-2, 26), (2e-2, 12)])
def test_the_accuracy_after_given_steps_is_that_of_plain_descent(rate, steps):
    target = lc.tasks.integration(steps=20)
    strong = target.varied(target_strength=1.5).renamed("strong")
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=16)
    found = lc.follow([lc.Stage(strong, steps=steps), lc.Stage(target, 0.99)], network, learning_rate=rate)
    kept = 0.96 ** np.arange(20)
    power, cross = (kept**2).sum(), 1.5 * kept.sum()
    first, second = network.input_weights.copy(), network.output_weights.copy()
    for _ in range(steps):
        slope = (second @ first) * power - cross
        first, second = first - rate * second.T @ slope, second - rate * slope @ first.T
    assert found.stages[0].accuracy == pytest.approx((second @ first).item() * power / cross, rel=1e-9)


@pytest.mark.parametrize("limits", [{"most_accuracy": 0.3}, {"least_accuracy": 0.6, "most_accuracy": 0.64}])
def test_a_stage_of_a_plan_ends_within_its_limits(limits):
    target = lc.tasks.integration(steps=20)
    strong = target.varied(target_strength=1.5).renamed("strong")
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=16)
    plan = lc.plan(target, [strong], network, learning_rate=1e-2, terms=lc.Terms(**limits))
    goal = plan.best.requested[0].goal
    assert limits.get("least_accuracy", 0.0) <= goal.value <= limits["most_accuracy"]
    followed = lc.follow(plan.best.requested, network, learning_rate=1e-2)
    assert followed.steps.descent == plan.total
