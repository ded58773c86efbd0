"""A portrait of one candidate's stop: what is saved for any stop, and for any accuracy asked of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from learncast._core.validation import FloatArray
from learncast.planning.plans.recommendation import Plan
from learncast.results import STEPS, described

if TYPE_CHECKING:
    import xarray as xr

#: Stops and accuracies of a portrait: counted many at once, and one by one.
MANY, FEW = (61, 21), (13, 9)


def stop_portrait(plan: Plan, candidate: int = 0) -> xr.Dataset:
    """Steps of descent saved by one candidate of a plan, over its stop and the accuracy asked of the target.

    Parameters
    ----------
    plan : Plan
    candidate : int
        Place in the plan's ranking.

    Returns
    -------
    Dataset
        ``saving_steps`` over (accuracy, stop), with the plan's own stop and accuracy as attributes; nan where the
        target is never learned that well.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> found = lc.plan(task, pool, network, learning_rate=1e-3)
    >>> sorted(map(str, lc.planning.stop_portrait(found).data_vars))
    ['direct_steps', 'saving_steps']
    """
    import xarray as xr

    chosen, ground = plan.candidates[candidate], plan.ground
    stops_number, accuracies_number = MANY if ground.by in ("modes", "two-layer", "pooled") else FEW
    reach = max(2.0 * chosen.stop_steps, plan.direct_steps if np.isfinite(plan.direct_steps) else 0.0) or 1.0
    stops = np.unique([*np.linspace(0.0, reach, stops_number).round(), round(chosen.stop_steps)]).astype(int)
    asked = plan.terms.accuracy
    far = 1.0 - min(0.1 * (1.0 - asked), 1e-4) if asked < 1 else asked
    # Even in the logarithm of what is left to learn.
    accuracies = np.union1d(1.0 - np.geomspace(0.7, max(1.0 - far, 1e-6), accuracies_number), [asked])
    states = ground.descended(ground.place(chosen.task), [ground.start], stops.tolist())
    totals = _totals(plan, [at[0] for at in states], stops, accuracies)
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


def _totals(plan: Plan, states: list[object], stops: FloatArray, accuracies: FloatArray) -> FloatArray:
    """Steps of both stages, (accuracies, stops): each accuracy is counted on from where the one before it was met."""
    ground, spent, found = plan.ground, np.asarray(stops, dtype=float), []
    for accuracy in accuracies:
        rest, ends = ground.counted(ground.target, states, float(accuracy))
        spent = spent + np.where(np.isnan(rest), np.inf, rest)
        states = [end if np.isfinite(n) else state for end, state, n in zip(ends, states, rest, strict=True)]
        found.append(spent)
    return np.stack(found)
