"""What a ground says of losses, accuracies and modes, against plain numpy and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import learncast as lc
from learncast._core.errors import InvalidSpec
from learncast.planning.methods.method import by_mode
from learncast.theory import PooledDescent

RATE = 0.01


def static(cross, variance=2.0, name="task"):
    """A task of white input of some variance."""
    cross = np.asarray(cross, dtype=float)
    return lc.tasks.static(cross, variance * np.eye(cross.shape[1]), name=name)


def grounded(tasks, network, by):
    return lc.planning.method_for(tasks, network, RATE, method=by)


@pytest.mark.parametrize("by", ["pooled", "two-layer", "flow"])
def test_accuracy_is_one_less_the_root_of_the_share_of_the_loss(by):
    rng = np.random.default_rng(0)
    cross, network = rng.normal(size=(2, 3)), lc.TwoLayer.balanced(3, 2, 2, scale=0.5, rng=rng)
    ground = grounded([static(cross, name="goal")], network, by)
    best, map_ = cross / 2.0, network.second @ network.first
    excess, whole = (2.0 * np.sum(gap**2) / 2 for gap in (map_ - best, best))
    assert ground.excess(0, network) == pytest.approx(excess, rel=1e-12)
    assert ground.whole(0) == pytest.approx(whole, rel=1e-12)
    assert ground.accuracy(0, network) == pytest.approx(1 - np.sqrt(excess / whole), rel=1e-12)
    assert ground.goal_loss(0, 0.9) - ground.least(0) == pytest.approx(0.01 * whole, rel=1e-9)
    assert ground.meaning(0, 0.9) == (
        "learned to 0.9: its excess loss is down to 0.01 of that of a network without an answer"
    )
    # A network that has learned the task, up to rounding below the least loss.
    left, strengths, right = np.linalg.svd(best, full_matrices=False)
    there = lc.TwoLayer(np.sqrt(strengths)[:, None] * right, left * np.sqrt(strengths))
    assert ground.accuracy(0, there) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("by", ["pooled", "flow"])
def test_a_task_of_nothing_is_always_learned(by):
    network = lc.TwoLayer.random(2, 2, 2, scale=0.5, rng=np.random.default_rng(0))
    ground = grounded([static(np.zeros((2, 2)), name="nothing"), static(np.eye(2), name="goal")], network, by)
    assert ground.accuracy(0, network) == 1


def test_a_task_is_found_by_what_it_is():
    one, other = static(np.eye(2), name="one"), static(2 * np.eye(2), name="other")
    ground = grounded([one, other], lc.TwoLayer.balanced(2, 2, 2, scale=0.1, rng=np.random.default_rng(0)), "two-layer")
    assert [ground.place(task) for task in (one, other)] == [0, 1]
    assert ground.place(static(2 * np.eye(2), name="other")) == 1
    with pytest.raises(InvalidSpec, match="its statistics have not been looked at"):
        ground.place(static(3 * np.eye(2), name="third"))


def test_modes_of_two_layers_are_told_in_the_units_of_the_task():
    rng = np.random.default_rng(1)
    cross = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ np.diag([3.0, 1.0, 0.5])
    rows = grounded([static(cross, variance=0.5)], lc.TwoLayer.balanced(3, 3, 3, scale=0.1, rng=rng), "two-layer")
    rows = rows.mode_rows(0, 0.9)
    np.testing.assert_allclose([row["weighted_cross"] for row in rows], [3.0, 1.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose([row["weighted_input"] for row in rows], 0.5, rtol=1e-12)
    np.testing.assert_allclose([row["optimum"] for row in rows], [6.0, 2.0, 1.0], rtol=1e-12)


def test_descent_is_counted_on_the_hidden_directions_that_are_used():
    rng = np.random.default_rng(2)
    turn = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    network = lc.TwoLayer(turn @ rng.normal(size=(2, 3)), rng.normal(size=(2, 2)) @ turn.T)
    ground = grounded([static(rng.normal(size=(2, 3)))], network, "pooled")
    rows, basis = ground._packed([network])
    assert rows.shape == (1, 5, 2)
    np.testing.assert_allclose(rows[0] @ basis.T, np.vstack([network.first.T, network.second]), rtol=0, atol=1e-14)
    # A state that uses others is taken as it is.
    other = lc.TwoLayer(rng.normal(size=(20, 3)), rng.normal(size=(2, 20)))
    rows, basis = ground._packed([other])
    np.testing.assert_array_equal(basis, np.eye(20))
    np.testing.assert_array_equal(rows[0], np.vstack([other.first.T, other.second]))


def test_resamplings_are_counted_in_strides_alone(monkeypatch):
    """A step more or less is nothing to an interval, and takes longer than all others."""
    rng, asked = np.random.default_rng(4), []
    inputs = rng.normal(size=(40, 5, 2))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1) + rng.normal(size=(40, 2)))
    network = lc.LinearRNN.random(2, 6, 2, recurrence=0.5, scale=0.2, rng=0)
    ground = grounded([task], network, "pooled")
    plainly = PooledDescent.steps_to

    def counted(self, states, *rest, precise=True):
        asked.append((len(states), precise))
        return plainly(self, states, *rest, precise=precise)

    monkeypatch.setattr(PooledDescent, "steps_to", counted)
    assert ground.replicated([0], [(0.9, None)]) is not None
    ground.replica_steps([0], [[3], [5]], 0.9)
    assert {precise for rows, precise in asked if rows > 1} == {False}
    assert {rows for rows, precise in asked if precise} == {1}  # the estimate itself
    assert len([rows for rows, _ in asked if rows > 1]) == 3  # the plan, training directly, and the means


def test_a_sharp_start_is_tried_and_called_unstable_where_it_runs_away():
    """Weights 10 and 0.01: beyond 2 over their sharpness of 100 descent leaves them for flatter ones, or explodes."""
    network, outcomes = lc.TwoLayer(np.array([[10.0]]), np.array([[0.01]])), []
    for rate in (0.019, 0.021, 0.03, 0.035, 0.045, 0.06):
        ground = lc.planning.method_for([static([[1.0]], variance=1.0)], network, rate, method="pooled")
        stable = next(a for a in ground.conditions(0) if a.name == "stable_learning_rate")
        a, c = 10.0, 0.01
        for _ in range(500):
            if abs(a) + abs(c) > 1e20:
                break
            pull = rate * (1 - a * c)
            a, c = a + c * pull, c + a * pull
        exploded = abs(a) + abs(c) > 1e9
        assert stable.holds != exploded
        assert stable.measured == pytest.approx(rate * (100.0001 if exploded else 2.0), rel=1e-6)
        outcomes.append(exploded)
    assert not any(outcomes[:2])
    assert outcomes[-1]


def test_strengths_of_several_responses_are_modes_in_their_order():
    strength = xr.DataArray(np.arange(12.0).reshape(2, 2, 3), dims=("time", "output", "feature"))
    found = by_mode(xr.Dataset({"strength": strength, "loss": ("time", [1.0, 0.5])}))
    assert found["strength"].dims == ("time", "mode")
    np.testing.assert_array_equal(found["strength"], np.arange(12.0).reshape(2, 6))
    np.testing.assert_array_equal(found["mode"], range(6))
    assert by_mode(found) is found
