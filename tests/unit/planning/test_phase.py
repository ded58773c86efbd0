"""Phase portraits, against following each point of the grid by itself."""

import numpy as np
import pytest

import learncast as lc
from learncast import LinearRNN, Stage, Task, follow, tasks
from learncast.theory import modes_of

RATE = 1e-3
#: Closed forms against closed forms: a few hundred operations of round-off.
CLOSE = 1e-10


@pytest.fixture(scope="module")
def target():
    return tasks.integration(steps=50, name="target")


@pytest.fixture(scope="module")
def network():
    return LinearRNN.aligned(hidden_size=4)


@pytest.fixture(scope="module")
def two_modes():
    return LinearRNN.aligned(hidden_size=4, inputs=2, outputs=2)


GRID = {"values": [0.5, 1.0, 1.5, 3.0], "accuracies": [0.0, 0.1, 0.5, 0.9, 0.999], "learning_rate": RATE}


def assert_same_grids(one, other):
    for name in ("first_stage_steps", "second_stage_steps", "total_steps", "speedup_steps", "optimum"):
        np.testing.assert_allclose(one[name].values, other[name].values, rtol=CLOSE, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("vary", ["target_strength", "input_strength"])
@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_a_portrait_computed_at_once_equals_one_computed_value_by_value(vary, targets):
    """A keyword given per channel is varied task by task, a single number all at once."""
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
            point = follow(stages, network, learning_rate=slow)
            assert found["total_steps"].values[i, j] == pytest.approx(point.steps.flow, rel=1e-8)
            assert found["speedup_ratio"].values[i, j] == pytest.approx(point.speedup_ratio, rel=1e-8)


def test_the_length_of_the_trial_can_be_varied(target, network):
    found = lc.phase(target, network, vary="steps", **{**GRID, "values": [10, 50]})
    stages = [Stage(tasks.integration(10), goal=0.5), Stage(target, goal=0.99)]
    point = follow(stages, network, learning_rate=RATE)
    assert found["total_steps"].sel(steps=10, accuracy=0.5).item() == pytest.approx(point.steps.flow, rel=CLOSE)
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
    point = follow([Stage(target, goal=0.5), Stage(target, goal=0.99)], learned, learning_rate=RATE)
    assert point.speedup_ratio == 1.0  # nothing over nothing
    assert found["speedup_ratio"].sel(accuracy=0.5).item() == point.speedup_ratio


def test_a_first_task_that_never_ends_takes_infinitely_many_steps(target, network):
    found = lc.phase(target, network, vary="target_strength", **{**GRID, "values": [0.0, -1.0]})
    assert np.isposinf(found["total_steps"].values[:, 1:]).all()
    assert np.isposinf(found["second_stage_steps"].values[:, 1:]).all()  # there is nothing to start it from
    assert np.isneginf(found["speedup_steps"].values[:, 1:]).all()
    assert (found["speedup_ratio"].values[:, 1:] == 0).all()


def test_a_first_task_trained_to_perfection_never_ends(target, network):
    found = lc.phase(target, network, vary="target_strength", **{**GRID, "accuracies": [1.0]})
    for name in ("first_stage_steps", "second_stage_steps", "total_steps"):
        assert np.isposinf(found[name]).all()


def test_the_speedup_is_unknown_if_nothing_is_ever_learned(target):
    found = lc.phase(target, LinearRNN.aligned(hidden_size=2, initial=0.0), vary="target_strength", **GRID)
    assert np.isposinf(found["direct_steps"])
    assert np.isnan(found["speedup_steps"].values[:, 1:]).all()


def test_an_unstable_first_task_is_marked_or_refused(target, network):
    grid = {**GRID, "values": [1.0, 200.0]}
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.phase(target, network, vary="target_strength", **grid)
    assert caught.value.assumption == "stable_learning_rate"
    found = lc.phase(target, network, vary="target_strength", strict=False, **grid)
    assert found["stable"].values.tolist() == [True, False]


@pytest.mark.parametrize("shape", [(300, 50), (40, 400)])
@pytest.mark.parametrize("strength", [1.0, -1.0])
def test_descent_is_counted_at_the_best_points_of_a_large_portrait(shape, strength):
    """More rows than points that are counted, and fewer; with first stages of the wrong sign that never end."""
    target = tasks.integration(steps=8)
    network = LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=4)
    grid = {"values": np.linspace(-0.5, 3, shape[0]) * strength, "accuracies": np.linspace(0.1, 0.9, shape[1])}
    found = lc.phase(target, network, learning_rate=1e-3, vary="target_strength", strict=False, **grid)
    counted, saved = np.isfinite(found["total_descent_steps"].values), found["speedup_steps"].values
    assert np.isinf(found["first_stage_steps"].values).any()
    assert counted.sum() == 200
    assert saved[counted].min() >= saved[~counted].max()
    part = {"vary": "target_strength", "values": grid["values"][-3:], "accuracies": grid["accuracies"]}
    again = lc.phase(target, network, learning_rate=1e-3, **part, strict=False)
    for name in ("first_stage_steps", "second_stage_steps", "total_steps", "speedup_steps", "speedup_ratio"):
        np.testing.assert_allclose(again[name].values, found[name].values[-3:], rtol=1e-12)


def test_a_first_task_of_another_geometry_is_computed_without_modes(two_modes):
    goal = tasks.integration(steps=8, mixing=np.diag([2.0, 1.0]))
    values = [np.diag([3.0, 1.0]), np.array([[2.0, 0.5], [0.0, 1.0]])]
    grid = {**GRID, "values": values, "accuracies": [0.5, 0.9]}
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.phase(goal, two_modes, method="modes", vary="mixing", **grid)
    assert caught.value.assumption == "static_geometry"
    found = lc.phase(goal, two_modes, method="modes", vary="mixing", strict=False, **grid)
    assert found.attrs["static_geometry"] > 0.1
    assert found["mixing"].values.tolist() == [0, 1]  # a matrix cannot be a coordinate: its index is
    exact = lc.phase(goal, two_modes, vary="mixing", **grid)
    assert exact.attrs["method"] == "two-layer"
    assert exact.attrs["forecast_class"] == "exact"
    for i, value in enumerate(values):
        stages = [Stage(goal.varied(mixing=value), goal=0.5), Stage(goal, goal=0.99)]
        point = follow(stages, two_modes, learning_rate=RATE, method="two-layer")
        assert exact["total_steps"].values[i, 0] == pytest.approx(point.steps.flow, rel=1e-8)
        assert exact["total_descent_steps"].values[i, 0] == point.steps.descent


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"vary": "target_strenght"}, "target_strenght"),
        ({"vary": "name"}, "vary"),
        ({"values": []}, "values"),
        ({"accuracies": []}, "values"),
        ({"accuracies": [0.5, 1.5]}, "accuracies"),
        ({"accuracies": [-0.5]}, "accuracies"),
        ({"accuracies": [np.nan]}, "accuracies"),
        ({"accuracies": 0.5}, "accuracies"),
        ({"values": [np.nan]}, "target_strength"),
        ({"values": 0.5}, "values"),
        ({"vary": "input_strength", "values": [1.0, 0.0]}, "input_strength"),
        ({"vary": "steps", "values": [10.5]}, "steps"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"goal": 2.0}, "accuracy"),
        # Refused before memory is reserved for the grid.
        ({"values": np.broadcast_to(1.0, 20_000), "accuracies": np.broadcast_to(0.5, 20_000)}, "values"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_unusable_portraits_are_refused(target, network, change, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.phase(target, network, **{"vary": "target_strength", **GRID, **change})
    assert caught.value.field == field


def test_a_task_given_by_statistics_has_nothing_to_vary(target, network):
    given = Task(target.input_covariance, target.cross_covariance)
    with pytest.raises(lc.InvalidSpec):
        lc.phase(given, network, vary="target_strength", **GRID)


def test_a_value_whose_statistics_overflow_is_refused(network):
    goal = tasks.leaky_integration(1000)
    with pytest.raises(lc.InvalidSpec):
        lc.phase(goal, network, vary="correlation", **{**GRID, "values": [0.5, 5.0]})


@pytest.mark.parametrize("goal", [lc.Explained(0.9), lc.R2(0.5)], ids=["explained", "r2"])
def test_a_portrait_of_another_goal_agrees_with_following_each_point(target, network, goal):
    grid = {"values": [0.5, 1.5], "accuracies": [0.3, 0.9], "learning_rate": RATE}
    found = lc.phase(target, network, vary="target_strength", goal=goal, **grid)
    for i, value in enumerate(grid["values"]):
        for j, accuracy in enumerate(grid["accuracies"]):
            first = Stage(target.varied(target_strength=value, name="first"), goal=accuracy)
            point = follow([first, Stage(target, goal)], network, learning_rate=RATE)
            assert found["total_steps"].values[i, j] == pytest.approx(point.steps.flow, rel=1e-8)
            assert found["total_descent_steps"].values[i, j] == point.steps.descent
            assert found["saved_descent_steps"].values[i, j] == point.saving.descent
    assert float(found["direct_descent_steps"]) == point.direct.descent


def test_a_portrait_without_any_time_is_unknown(target, network):
    for size in (3, 300):
        grid = {"values": np.linspace(0.5, 2.0, size), "accuracies": np.linspace(0.1, 0.9, size)}
        found = lc.phase(target, network, vary="target_strength", learning_rate=RATE, seconds=1e-9, **grid)
        for name in ("total_steps", "total_descent_steps"):
            assert np.isnan(found[name]).all()
        assert "incomplete" in found.attrs
        assert float(found["direct_descent_steps"]) == 331


def test_values_that_there_was_no_time_for_are_unknown(target, network):
    """In closed form, a block of rows at a time: the first few values of a large grid are computed."""
    values, accuracies = np.linspace(0.5, 2.0, 3000), np.linspace(0.1, 0.9, 3000)
    grid = {"vary": "target_strength", "values": values, "accuracies": accuracies, "learning_rate": RATE}
    found = lc.phase(target, network, seconds=0.05, **grid)
    known = np.isfinite(found["total_steps"].values).all(axis=1)
    rows = int(known.sum())
    assert rows < len(values)
    assert known[:rows].all()
    assert np.isnan(found["total_steps"].values[rows:]).all()
    assert np.isnan(found["speedup_steps"].values[rows:]).all()
    assert str(rows) in found.attrs["incomplete"]
    counted = ~np.isnan(found["total_descent_steps"].values)
    assert (counted.sum() == 200 and known[counted.any(axis=1)].all()) or rows == 0
    part = lc.phase(target, network, **{**grid, "values": values[:2], "accuracies": accuracies[:5]})
    assert "incomplete" not in part.attrs
    if rows >= 2:
        np.testing.assert_allclose(found["total_steps"].values[:2, :5], part["total_steps"], rtol=CLOSE)


def test_a_large_portrait_counts_the_descent_of_the_points_that_save_most_by_the_flow():
    grid = {"vary": "target_strength", "values": np.linspace(0.1, 3.0, 400), "accuracies": np.linspace(0.01, 0.99, 40)}
    portrait = lc.phase(
        lc.tasks.integration(steps=10), lc.LinearRNN.aligned(hidden_size=2), learning_rate=1e-3, strict=False, **grid
    )
    saved, counted = (portrait[name].values.ravel() for name in ("speedup_steps", "total_descent_steps"))
    chosen = ~np.isnan(counted)
    assert chosen.sum() == 200
    assert saved[chosen].min() >= np.nanmax(saved[~chosen])
