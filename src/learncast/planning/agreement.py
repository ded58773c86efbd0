"""Agreement of theory and training, as numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
import xarray as xr

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.validation import FloatArray
from learncast.planning.forecast import Forecast
from learncast.results import STEPS, Trajectory, described
from learncast.theory.dynamics.solution import Solution

#: Quantities of a trajectory that theory and training share and that agreement is measured on.
COMPARED = ("strength", "loss", "network_function", "input_gram", "output_gram", "input_weight", "output_weight")
#: Two-sided confidence of the intervals over seeds.
CONFIDENCE = 0.95


def agreement(theory: Solution | Forecast | Trajectory, simulation: Trajectory | Sequence[Trajectory]) -> xr.Dataset:
    """Measure how far training is from theory.

    Parameters
    ----------
    theory : Solution, Forecast or Trajectory
        A trajectory must have the simulation's times.
    simulation : Trajectory or sequence of Trajectory
        One run, or one for each of several seeds. Runs that stopped at different steps are compared as far as each
        one went.

    Returns
    -------
    Dataset
        For every shared quantity ``{name}_deviation``, training minus theory, mean over the runs, with its
        ``_low`` and ``_high`` (95% over runs, nan for one run), and ``{name}_largest``: the largest mean deviation
        as a share of the theory's own largest value. `learncast.check` compares numbers of steps.

    Raises
    ------
    SchemaMismatch
        If the two share no times or modes.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> theory = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> run = lc.descend(task, network, learning_rate=1e-3, steps=400)
    >>> result = lc.agreement(theory, run.at(range(401)))
    >>> float(result["loss_largest"]) < 0.03
    True
    """
    runs = list(simulation) if isinstance(simulation, Sequence) else [simulation]
    if not runs or not all(hasattr(run, "dataset") for run in runs):
        kinds = ", ".join(type(run).__name__ for run in runs) or "none"
        raise InvalidSpec(f"simulation must be a Trajectory or a list of them, got {kinds}.", field="simulation")
    times = max((np.asarray(run.time.values, dtype=float) for run in runs), key=len)
    expected = theory.at(times).dataset
    variables: dict[str, Any] = {}
    for name in COMPARED:
        if all(name in one and bool(one[name].notnull().any()) for one in (expected, *(run.dataset for run in runs))):
            variables |= _deviations(name, expected[name], [run.dataset[name] for run in runs])
    if not variables:
        raise SchemaMismatch(
            f"Theory and training share none of {', '.join(COMPARED)}. Record strength or loss while training."
        )
    return xr.Dataset(
        variables, coords={"seed": np.arange(len(runs)), "time": expected["time"]}, attrs={"runs": len(runs)}
    )


def _deviations(name: str, expected: xr.DataArray, measured: list[xr.DataArray]) -> dict[str, object]:
    rows = []
    for one in measured:
        both = xr.align(expected, one, join="left", exclude=[d for d in expected.dims if d != "time"])
        rows.append(np.asarray(both[1].values - both[0].values, dtype=float))
    stacked = np.stack(rows)
    known = np.isfinite(stacked).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known > 0, np.nansum(stacked, axis=0) / np.maximum(known, 1), np.nan)
        spread = np.sqrt(np.nansum((stacked - mean) ** 2, axis=0) / np.where(known > 1, known - 1, np.nan))
        half = _t_factor(known) * spread / np.sqrt(known)
    scale = float(np.nanmax(np.abs(expected.values), initial=0.0))
    finite = np.abs(mean[np.isfinite(mean)])
    largest = float(finite.max(initial=0.0)) / scale if scale else math.nan
    units = {"units": expected.attrs.get("units", "1")}
    text = f"{name.replace('_', ' ')}, training minus theory"
    return {
        f"{name}_deviation": (expected.dims, mean, {**units, "long_name": text}),
        f"{name}_deviation_low": (expected.dims, mean - half, {**units, "long_name": f"{text}, lower bound"}),
        f"{name}_deviation_high": (expected.dims, mean + half, {**units, "long_name": f"{text}, upper bound"}),
        f"{name}_largest": ((), largest, described(f"{text}: largest, as a share of theory's largest value", "1")),
    }


def _t_factor(runs: object) -> Any:
    """Half-width of the interval of a mean in standard errors, by number of runs; nan for one."""
    with np.errstate(invalid="ignore"):
        return scipy.special.stdtrit(np.where(np.asarray(runs) > 1, np.asarray(runs) - 1, np.nan), (1 + CONFIDENCE) / 2)


def step_statistics(flow: float, descent: float, measured: FloatArray) -> dict[str, object]:
    """Predicted and measured steps as variables of a Dataset."""
    n = len(measured)
    mean = float(measured.mean())
    spread = float(measured.std(ddof=1)) if n > 1 and math.isfinite(mean) else math.nan
    half = float(_t_factor(n)) * spread / math.sqrt(n)
    reference = flow if math.isnan(descent) else descent
    deviation = mean / reference - 1 if math.isfinite(mean) and math.isfinite(reference) and reference else math.nan
    values = {
        "predicted_steps": (flow, "steps of the flow", STEPS),
        "predicted_descent_steps": (descent, "predicted steps of descent", STEPS),
        "measured_mean": (mean, "measured steps, mean over runs", STEPS),
        "measured_sd": (spread, "measured steps, standard deviation over runs", STEPS),
        "measured_low": (mean - half, "measured steps, lower bound of the mean", STEPS),
        "measured_high": (mean + half, "measured steps, upper bound of the mean", STEPS),
        "steps_deviation": (deviation, "measured over predicted steps, minus 1", "1"),
    }
    found: dict[str, object] = {name: ((), v, described(text, units)) for name, (v, text, units) in values.items()}
    found["measured_steps"] = ("seed", measured, described("measured steps", STEPS))
    return found
