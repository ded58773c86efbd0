"""Contract of every Trajectory: one schema, so that any two can be subtracted."""

import itertools

import numpy as np
import pytest

import learncast as lc
from learncast import SchemaMismatch
from learncast.results import ALWAYS, SCHEMA, Trajectory
from learncast.theory import (
    ModeSolution,
    PooledProblem,
    ResponseFlowSolution,
    TwoLayerSolution,
    gradient_flow,
    modes,
    response,
    solve_response,
)
from learncast.training import Records, train

RATE, TIMES = 2e-3, np.arange(0.0, 601.0, 50.0)
#: Closed forms against each other: some hundred roundings. The integration: 1e-11 per step, over some hundred steps and
#: spread by the flow; that of a curriculum 1e-8 per step.
ROUNDING, INTEGRATED, CURRICULUM = 1e-11, 3e-9, 3e-6
#: Descent is off its flow by half a step of the learning rate: with curvatures up to 8 here, 8 RATE / 2 of numbers of
#: order 1, grown by at most e while modes rise.
STEPPED = 8 * RATE * np.e / 2
#: Steps by autograd and from statistics differ by a unit of the last place at each of 600 steps.
TRAINED = 1e-10


def trials():
    """Trials whose inputs are exactly white over steps and channels, so that every linear theory holds."""
    rng = np.random.default_rng(0)
    flat = np.linalg.qr(rng.normal(size=(64, 6)))[0] * 8.0
    inputs = flat.reshape(64, 3, 2)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    return inputs, inputs.sum(axis=1) @ (turn @ np.diag([1.5, 0.9])).T


@pytest.fixture(scope="module")
def found():
    """One learning problem, solved by every method."""
    data = trials()
    task = lc.Task.from_samples(*data)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.2, hidden_size=3, task=task)
    learn = ("input", "output")
    known = lc.Task(
        *(c.dense() for c in (task.input_covariance, task.cross_covariance)),
        target_covariance=task.target_covariance.dense(),
    )  # without trials there is nothing to resample
    solutions = {
        "modes": ModeSolution(modes(task, network), network, RATE),
        "two layers": TwoLayerSolution(PooledProblem.of(task, network), network, RATE),
        "flow": gradient_flow(task, network, learning_rate=RATE, learn=learn),
        "curriculum": lc.follow([lc.Stage(task, goal=0.99)], network, learning_rate=RATE),
        "integrated curriculum": lc.follow([lc.Stage(known, goal=0.99)], network, learning_rate=RATE, method="flow"),
        "descent": lc.descend(task, network, learning_rate=RATE, steps=int(TIMES[-1])),
    }
    return {
        **{name: solution.at(TIMES) for name, solution in solutions.items()},
        "training": train(data, network, lc.Training(RATE), steps=int(TIMES[-1]), record=Records(every=50)),
    }


BOUNDS = {
    **dict.fromkeys(("modes", "two layers", "curriculum"), ROUNDING),
    "flow": INTEGRATED,
    "integrated curriculum": CURRICULUM,
    **dict.fromkeys(("descent", "training"), STEPPED),
}


@pytest.mark.parametrize("pair", [*itertools.combinations(BOUNDS, 2)], ids=" - ".join)
def test_any_two_can_be_subtracted(found, pair):
    one, other = (found[name] for name in pair)
    difference, back = one - other, other - one
    assert set(ALWAYS) <= set(difference.data_vars)
    np.testing.assert_array_equal(difference["time"], TIMES)
    bound = TRAINED if pair == ("descent", "training") else max(BOUNDS[name] for name in pair)
    for name, values in difference.data_vars.items():
        assert values.dims == SCHEMA[name][0]
        assert {"units", "long_name"} <= set(values.attrs)
        assert float(np.abs(values).max()) <= bound, name
        np.testing.assert_array_equal(values, -back[name])
    assert float(np.ptp(one["strength"].values)) > 0.5  # something was learned


def test_responses_in_closed_form_and_integrated_can_be_subtracted():
    """The one mode of the closed form is one of two features of the integrated flow."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(100, 4, 1))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1) + 0.5)
    for sign in (1.0, -1.0):
        weights = lc.LinearRNN([[0.3 * sign]], [[0.8]], [[0.2]])
        measured = response(task, lc.Activated(weights, "relu"))
        closed = solve_response(measured, learning_rate=1e-3).at([0.0, 100.0, 400.0])
        integrated = ResponseFlowSolution.of(measured, 1e-3).at([0.0, 100.0, 400.0])
        difference = closed - integrated
        assert difference.sizes["mode"] == 1
        for name in ALWAYS:
            assert float(np.abs(difference[name]).max()) <= INTEGRATED


def test_only_shared_times_and_sizes_are_subtracted(found):
    one = found["flow"]
    early = Trajectory(one.dataset.isel(time=slice(0, 3)), one.provenance)
    assert (one - early).sizes["time"] == 3
    wider = Trajectory(one.dataset.pad(unit=(0, 1)), one.provenance)
    weights = {"input_weights", "output_weights"}
    assert set((one - wider).data_vars) == set(one.dataset.data_vars) - weights


def test_trajectories_without_common_times_cannot_be_subtracted(found):
    one = found["modes"]
    later = Trajectory(one.dataset.assign_coords(time=TIMES + 0.5), one.provenance)
    with pytest.raises(SchemaMismatch):
        one - later
    with pytest.raises(SchemaMismatch):
        one - Trajectory(one.dataset.isel(time=[0, 0, 1]), one.provenance)
    with pytest.raises(TypeError):
        one - 1.0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.drop_vars("excess_loss"), "excess_loss"),
        (lambda d: d.drop_vars("mode"), "mode"),
        (lambda d: d.rename(input_weight="input_wait"), "input_wait"),
        (lambda d: d.transpose("mode", "time"), "strength"),
        (lambda d: d.assign_coords(stage=("mode", [0, 1])), "stage"),
    ],
)
def test_datasets_with_another_schema_raise(found, change, field):
    one = found["modes"]
    with pytest.raises(SchemaMismatch) as error:
        Trajectory(change(one.dataset), one.provenance)
    assert error.value.field == field
