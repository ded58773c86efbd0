"""The numbers of a forecast: its learning curve and its dataset."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import NotLearned, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.planning.run import settling
from learncast.results import STEPS, Steps, described, variables

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.forecast import Forecast


def learning_curve(forecast: Forecast, points: int) -> xr.Dataset:
    """Compute the curve that `Forecast.learning_curve` documents."""
    import xarray as xr

    found = curve_values(forecast, points)
    values = {"loss": ("time", found.pop("loss"), forecast.losses().attrs)}
    if "r2" in found:
        values["r2"] = ("time", found.pop("r2"), described("R²", "1"))
    time = ("time", found.pop("step"), described("training", STEPS))
    return xr.Dataset(values, coords={"time": time}, attrs=found)


def curve_values(forecast: Forecast, points: int = 60) -> dict[str, FloatArray | float]:
    """Step, loss and R² (left out if the variance of the targets is unknown) through all stages."""
    m, target = forecast.method.precise, forecast.places[-1]
    begun, times, states = 0.0, [], []
    for k in range(len(forecast.places)):
        local, own, length = _stage_curve(forecast, k, points)
        times.append(begun + local)
        states.append(own)
        begun += length
    least = m.least_loss(target)
    loss, zero = m.loss(target, np.concatenate(states)), m.baseline_loss(target) + least
    goal = math.nan
    if forecast.goal is not None:
        goal = m.goal_excess(target, forecast.goal) + (0 if math.isnan(least) else least)
    return {
        "step": np.concatenate(times),
        "loss": loss,
        **({"r2": 1.0 - loss / zero} if zero > 0 else {}),
        "goal_loss": goal,
        "goal_r2": 1.0 - goal / zero if zero > 0 else math.nan,
        "zero_loss": zero,
    }


def _stage_curve(forecast: Forecast, stage: int, points: int) -> tuple[FloatArray, FloatArray, float]:
    """Times within a stage, the states then, and the length of the stage; the start alone if neither is known."""
    m, steps, flow = forecast.method.precise, forecast.run.stages[stage].steps, forecast.run.flows[stage]
    beyond = 1.2 if stage == len(forecast.places) - 1 else 1.0
    counted = steps.descent if math.isfinite(steps.descent) else steps.tried
    start = forecast.run.descent_states[stage][None]
    if math.isfinite(counted):
        local = np.unique(np.append(np.linspace(0.0, beyond * counted, points).round(), counted))
        stops = local[local > 0].astype(int).tolist()
        after = m.advance(forecast.places[stage], start, stops) if stops else ()
        return local, np.concatenate([start, *after]), counted
    try:
        length = steps.flow if math.isfinite(steps.flow) else settling(flow)
        local = np.linspace(0.0, beyond * length, points)
        return local, m.flow_states(flow, local), length
    except (NotLearned, UnsupportedModel):
        return np.zeros(1), start, 0.0


def forecast_dataset(forecast: Forecast) -> xr.Dataset:
    """Numbers of every stage and of all of them together, labelled."""
    import xarray as xr

    stages, steps, direct = forecast.stages, forecast.steps, forecast.direct or Steps(math.nan, math.nan)
    per_stage: dict[str, tuple[Any, str, str]] = {
        "flow_steps": ([s.steps.flow for s in stages], "flow duration", STEPS),
        "descent_steps": ([s.steps.descent for s in stages], "descent duration", STEPS),
        "accuracy": ([s.accuracy for s in stages], "accuracy at the end", "1"),
    }
    totals = {
        "total_steps": steps.flow,
        "total_descent_steps": steps.descent,
        "direct_steps": direct.flow,
        "direct_descent_steps": direct.descent,
        "speedup_steps": forecast.saving.flow,
    }
    if forecast.batches is not None:
        per_stage["spread"] = ([s.steps.spread for s in stages], "standard deviation over batches", STEPS)
        totals |= {"total_spread": steps.spread, "full_batch_steps": forecast.full_batch.steps.descent}
    if forecast.resampled is not None:
        for end in ("low", "high"):
            text = f"duration, {end} end of its interval"
            per_stage[f"steps_{end}"] = ([getattr(s.steps, end) for s in stages], text, STEPS)
            for name, known in (("total", steps), ("direct", direct), ("saving", forecast.saving)):
                totals[f"{name}_{end}"] = getattr(known, end)
    strengths = {
        f"{end}_strength": (np.stack([getattr(s, end) for s in stages]), f"strength at the {end}", "1")
        for end in ("start", "end")
    }
    scalars = {name: (value, name.replace("_", " "), STEPS) for name, value in totals.items()}
    scalars["speedup_ratio"] = (forecast.speedup_ratio, "speedup ratio", "1")
    coords = {
        "task": ("stage", [task.name for task in forecast.tasks]),
        "status": ("stage", [s.steps.status.name for s in stages]),
    }
    numbers = variables("stage", per_stage) | variables(("stage", "mode"), strengths) | variables((), scalars)
    return xr.Dataset(numbers, coords=coords)


def difference(direct: float, total: float) -> float:
    """Steps saved; unknown if both are infinite."""
    return math.nan if math.isinf(direct) and math.isinf(total) else direct - total


def ratio(direct: float, total: float) -> float:
    """Direct steps over total; 1 if neither takes any, unknown if both are infinite."""
    if direct == total:
        return math.nan if math.isinf(direct) else 1.0
    return math.inf if total == 0 else direct / total
