"""The stop portrait of a candidate: steps saved over its stop and the accuracy asked of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learncast._core.validation import FloatArray
from learncast.planning.methods.method import Method
from learncast.procedure.goals import Accuracy, Explained, Goal
from learncast.results import STEPS, described

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.plan import Plan

#: Stops and accuracies of a portrait: for methods that count many states together, and one by one.
MANY, FEW = (61, 21), (13, 9)


def stop_portrait(plan: Plan, candidate: int = 0) -> xr.Dataset:
    """Compute the portrait that `Plan.stop_portrait` documents.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> plan = lc.plan(task, pool, network, learning_rate=1e-3)
    >>> sorted(map(str, plan.stop_portrait().data_vars))
    ['direct_steps', 'saving_steps']
    """
    import xarray as xr

    chosen, method = plan.candidates[candidate], plan.method
    stops_number, accuracies_number = MANY if method.name in ("modes", "two-layer", "pooled") else FEW
    reach = max(2.0 * chosen.stop_steps, plan.direct_steps if np.isfinite(plan.direct_steps) else 0.0) or 1.0
    stops = np.unique([*np.linspace(0.0, reach, stops_number).round(), round(chosen.stop_steps)]).astype(int)
    asked = plan.direct_time.accuracy
    far = 1.0 - min(0.1 * (1.0 - asked), 1e-4) if asked < 1 else asked
    # Even in the logarithm of what is left to learn.
    accuracies = np.union1d(1.0 - np.geomspace(0.7, max(1.0 - far, 1e-6), accuracies_number), [asked])
    goals = [plan.goal if accuracy == asked else _goal(plan.goal, float(accuracy)) for accuracy in accuracies]
    states = method.advance(method.place(chosen.task), method.start[None], stops.tolist())[:, 0]
    totals = _totals(method, states, stops.astype(float), goals)
    direct = totals[:, 0]
    with np.errstate(invalid="ignore"):
        saving = np.where(np.isfinite(direct[:, None]), direct[:, None] - totals, np.nan)
    return xr.Dataset(
        {
            "saving_steps": (("accuracy", "stop"), saving, described("steps saved against direct training", STEPS)),
            "direct_steps": ("accuracy", direct, described("steps of direct training", STEPS)),
        },
        coords={
            "stop": ("stop", stops.astype(float), described(f"steps on {chosen.task.name}", STEPS)),
            "accuracy": ("accuracy", accuracies, described("accuracy asked of the target", "1")),
        },
        attrs={
            "candidate": chosen.task.name,
            "target": plan.target.name,
            "stop_steps": chosen.stop_steps,
            "accuracy": asked,
        },
    )


def _goal(like: Goal, accuracy: float) -> Goal:
    """An accuracy of every mode or, for goals on the loss, the loss that corresponds to it."""
    return Accuracy(accuracy) if isinstance(like, Accuracy) else Explained(1.0 - (1.0 - accuracy) ** 2)


def _totals(method: Method, states: FloatArray, spent: FloatArray, goals: list[Goal]) -> FloatArray:
    """Steps of both stages, (goals, stops): each goal is counted from where the one before it was met."""
    rows = []
    for goal in goals:
        rest, ends = method.steps_to(method.target, states, goal)
        spent = spent + np.where(np.isnan(rest), np.inf, rest)
        finite = np.isfinite(rest).reshape(-1, *(1,) * (states.ndim - 1))
        states = np.where(finite, ends, states)
        rows.append(spent)
    return np.stack(rows)
