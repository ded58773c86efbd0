"""Loss that noise adds along training: in inputs, hidden units and weights, or by another session's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, between
from learncast.planning.generalise.curve import HeldOutProblem
from learncast.planning.generalise.learners import PooledLearner, within_reach
from learncast.planning.generalise.subsets import check_alike, in_units_of, raw_trials, sample_of
from learncast.results import STEPS, described, variables
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr


def added_losses(
    problem: HeldOutProblem,
    held_out: xr.DataArray,
    states: FloatArray,
    sizes: dict[str, float],
    session: Task | None,
    correlation: float,
) -> xr.Dataset:
    """Loss that each kind of noise adds at every stop, their sum with the held-out loss, and its best stop.

    Implements: generalise Eq. (11), against a simulation with noise
    """
    import xarray as xr

    learner, task = problem.learner, problem.task
    between("correlation", correlation, -1.0, 1.0)
    added: dict[str, FloatArray] = {}
    for name, size in sizes.items():
        between(name, size, 0.0, 1e150)
        if not learner.linear:
            raise UnsupportedModel("Noise is forecast for linear networks; give a session instead.", field=name)
        if name == "weights":
            added[name] = _weight_noise(problem, states, size)
        else:
            filters = learner.filters(states, task.steps, hidden=name == "hidden")  # (stops, lags, outputs, ...)
            gram = np.einsum("sjoi,skoi->sjk", filters, filters, optimize=True)
            added[name] = size**2 / 2 * np.einsum("sjk,jk->s", gram, _shared(task, correlation))
    if session is not None:
        added["session"] = _session_loss(problem, states, session) - held_out.values
    if not added:
        raise InvalidSpec("Name at least one of input, hidden, weights and session.", field="input")
    total = held_out.values + sum(added.values())
    table = {name: (values, f"loss added by {name}", "target^2") for name, values in added.items()}
    table["total"] = (total, "held-out loss with noise", "target^2")
    result = xr.Dataset(variables("steps", table), {"steps": held_out["steps"]})
    best = int(held_out["steps"][int(np.argmin(np.where(np.isnan(total), np.inf, total)))])
    return result.assign(stop=((), best, described("best stop with noise", STEPS)))


def _shared(task: Task, correlation: float) -> FloatArray:
    """Correlation of the noise at lags j and k, times the readouts that have both lags behind them."""
    lags, readouts = np.arange(task.steps), task.cross_covariance.shape[2]
    counted = None if task.recording is None else task.recording.counted
    last = np.maximum(lags[:, None], lags)
    if counted is None and readouts == 1:
        number: FloatArray = np.ones(last.shape)
    else:
        shares = np.ones(readouts) if counted is None else counted
        number = np.append(np.cumsum(shares[::-1])[::-1], 0.0)[last]
    return number * np.power(float(correlation), np.abs(lags[:, None] - lags))


def _weight_noise(problem: HeldOutProblem, states: FloatArray, size: float) -> FloatArray:
    """½[τ²(tr S |C|² + m tr(A S A^T)) + τ⁴ m h tr S] for noise of variance τ² in every input and output weight.

    Implements: generalise Eq. (12), against a simulation with noise
    """
    learner = problem.learner
    layers = learner.layers(states) if isinstance(learner, PooledLearner) else []
    if not isinstance(learner, PooledLearner) or len(layers) > 2:
        raise UnsupportedModel(
            "Noise of weights is forecast for two layers, both of which learn, and a fixed scalar recurrence.",
            field="weights",
        )
    sample = problem.samples.samples(problem.kept)[-1]
    power = sample.windows.T @ sample.windows / sample.trials
    if problem.test is None:
        power = problem.samples.moments(problem.kept)[0]
    first, second = layers
    trace, outputs = np.trace(power), second.shape[1]
    linear = trace * (second**2).sum(axis=(1, 2)) + outputs * np.einsum("shi,ij,shj->s", first, power, first)
    return np.asarray((size**2 * linear + size**4 * outputs * learner.units * trace) / 2)


def _session_loss(problem: HeldOutProblem, states: FloatArray, session: Task) -> FloatArray:
    check_alike(problem.task, session, "session", ("inputs", "outputs", "steps"))
    raw = raw_trials(session)
    own = None if raw is None else in_units_of(raw, problem.task.recording)
    return within_reach(problem.learner, lambda one: sample_of(session, one, own).losses(one.maps(states)))
