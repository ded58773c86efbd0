"""A portrait of one candidate's stop: what is saved for any stop, and for any accuracy asked of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast.planning.curricula.passage import Problem
from learncast.planning.plans.mode_planner import ModePlanner
from learncast.planning.plans.terrain_planner import TerrainPlanner
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from learncast.planning.plans.recommendation import Plan

#: Stops and accuracies of a portrait in closed form, and of one that is integrated stop by stop.
CLOSED = (121, 41)
INTEGRATED = (17, 13)


def stop_portrait(plan: Plan, candidate: int = 0) -> xr.Dataset:
    """Flow steps saved by one candidate of a plan, over its stop and the accuracy asked of the target.

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
    """
    chosen = plan.candidates[candidate]
    stops_number, accuracies_number = CLOSED if isinstance(plan.planner, ModePlanner) else INTEGRATED
    reach = max(2.0 * chosen.stop_steps, plan.direct.flow_steps if np.isfinite(plan.direct.flow_steps) else 0.0)
    stops = np.union1d(np.linspace(0.0, reach or 1.0, stops_number), [chosen.stop_steps])
    asked = plan.terms.accuracy
    far = 1.0 - min(0.1 * (1.0 - asked), 1e-4) if asked < 1 else asked
    # Even in the logarithm of what is left to learn.
    accuracies = np.union1d(1.0 - np.geomspace(0.7, max(1.0 - far, 1e-6), accuracies_number), [asked])
    place = next(k for k, task in enumerate(plan.pool) if task is chosen.task)
    totals, direct = (
        _by_modes(plan.planner, place, stops, accuracies)
        if isinstance(plan.planner, ModePlanner)
        else _by_terrain(plan.planner, place, stops, accuracies)
    )
    with np.errstate(invalid="ignore"):
        saving = np.where(np.isfinite(direct[:, None]), direct[:, None] - totals, np.nan)
    return xr.Dataset(
        {
            "saving_steps": (
                ("accuracy", "stop"),
                saving,
                described("flow steps saved against direct training", STEPS),
            ),
            "direct_steps": ("accuracy", direct, described("flow steps of direct training", STEPS)),
        },
        coords={
            "stop": ("stop", stops, described(f"flow steps on {chosen.task.name}", STEPS)),
            "accuracy": ("accuracy", accuracies, described("accuracy asked of the target", "1")),
        },
        attrs={
            "candidate": chosen.task.name,
            "target": plan.target.name,
            "stop_steps": chosen.stop_steps,
            "accuracy": asked,
        },
    )


def _by_modes(
    planner: ModePlanner, place: int, stops: FloatArray, accuracies: FloatArray
) -> tuple[FloatArray, FloatArray]:
    rate, start = planner.terms.learning_rate, planner.target.start
    first, second = (
        Problem(m.weighted_cross, m.weighted_input, m.imbalance) for m in (planner.pool[place], planner.target)
    )
    after = first.strength(stops * rate, np.broadcast_to(start, (len(stops), len(start))))
    tolerance = np.broadcast_to((1.0 - accuracies)[:, None], (len(accuracies), len(stops)))
    rest = second.arrival(np.broadcast_to(after, (len(accuracies), *after.shape)), tolerance)[0] / rate
    alone = second.arrival(np.broadcast_to(start, (len(accuracies), len(start))), 1.0 - accuracies)[0] / rate
    return stops + rest, alone


def _by_terrain(
    planner: TerrainPlanner, place: int, stops: FloatArray, accuracies: FloatArray
) -> tuple[FloatArray, FloatArray]:
    ground = planner.terrain
    totals = np.empty((len(accuracies), len(stops)))
    before = ground.course(place, ground.start)
    for k, stop in enumerate(stops):
        network = before.network_at(stop)
        course = ground.course(ground.target, network)
        totals[:, k] = [stop + ground.steps_to(ground.target, network, float(a), course) for a in accuracies]
    return totals, totals[:, 0]
