"""The Pareto front of cost against forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, noticed, silent
from learncast._core.validation import FloatArray, count
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.schedules.branching import lattice_of, orders_of
from learncast.planning.schedules.schedule import Schedule
from learncast.planning.schedules.search import MOST_BOXES, Setting, setting_of, solved
from learncast.planning.terms import Terms
from learncast.results import described
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr

#: Durations tried for each stage when looking for how little may be forgotten.
_TRIED = 24


@dataclass(frozen=True, eq=False, repr=False)
class Front:
    """The cheapest schedules for falling limits on what is forgotten of one task.

    Attributes
    ----------
    task : Task
        The task whose excess loss at the end is limited.
    limits : (points,)
        The limits, falling; the first is what the cheapest schedule of all leaves.
    schedules : tuple of Schedule
        The cheapest under each limit; of status not_learned where none meets it.
    excess_loss : (points,)
        Excess loss of the task at the end of each.

    Examples
    --------
    What it costs to keep more of the stronger targets than the cheapest schedule does:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger")
    >>> front = lc.planning.forgetting_front(task, [stronger], network, learning_rate=1e-3, points=2)
    >>> front.total.round(1), front.excess_loss.round(2)
    (array([166. , 166.9]), array([4.91, 4.53]))
    """

    task: Task
    limits: FloatArray
    schedules: tuple[Schedule, ...]
    excess_loss: FloatArray

    @property
    def total(self) -> FloatArray:
        """Cost of each schedule."""
        return np.array([s.total for s in self.schedules])

    @property
    def lower_bound(self) -> FloatArray:
        """What any schedule under each limit costs at least."""
        return np.array([s.lower_bound for s in self.schedules])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The front, labelled."""
        import xarray as xr

        gaps = np.array([s.gap for s in self.schedules])
        return xr.Dataset(
            {
                "total": ("limit", self.total, described("cost of the cheapest schedule", "cost")),
                "lower_bound": ("limit", self.lower_bound, described("least cost of any schedule", "cost")),
                "gap": ("limit", gaps, described("relative gap between both", "1")),
                "excess_loss": ("limit", self.excess_loss, described("excess loss at the end", "target^2")),
            },
            coords={
                "limit": ("limit", self.limits, described("limit on the excess loss", "target^2")),
                "proof": ("limit", [s.proof for s in self.schedules]),
                "status": ("limit", [s.status.name for s in self.schedules]),
                "order": ("limit", [" -> ".join(p.task.name for p in s.stages) for s in self.schedules]),
            },
            attrs={"task": self.task.name},
        )

    def __repr__(self) -> str:
        met = np.isfinite(self.total)
        if not met.any():
            return f"<Front of {self.task.name!r}: no schedule>"
        costs, left = self.total[met], self.excess_loss[met]
        return (
            f"<Front of {self.task.name!r}: cost {costs.min():.6g} to {costs.max():.6g} for an excess loss of "
            f"{left.max():.4g} to {left.min():.4g}>"
        )


@noticed("weighing what is forgotten")
def forgetting_front(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    *,
    learning_rate: float,
    remember: int = 0,
    points: int = 8,
    terms: Terms = Terms(max_stages=3),  # noqa: B008  frozen
    strict: bool = True,
    gap: float = 1e-3,
    max_boxes: int = MOST_BOXES,
    progress: Progress = silent,
    seed: int = 0,
) -> Front:
    """Trade the cost of a schedule against what it forgets of one candidate.

    The limit on the candidate's excess loss at the end falls in even steps from what the cheapest schedule leaves to
    the least that any tried schedule left; under each the cheapest schedule is searched anew.

    Parameters
    ----------
    target, candidates, network, learning_rate, terms, strict, gap, max_boxes, seed
        As for `best_schedule`.
    remember : int
        Candidate that is to be remembered.
    points : int
        Points of the front.
    progress : callable
        Called with the share of points done.

    Returns
    -------
    Front
        The cheapest schedule for each limit on what is forgotten.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> lc.planning.forgetting_front(task, pool[:1], network, learning_rate=1e-3, points=2)
    <Front of 'strength 1.5': cost 165.954 to 166.88 for an excess loss of 4.907 to 4.53>
    """
    number = count("points", points, least=2)
    setting = setting_of(
        target, candidates, network, learning_rate, terms, strict, gap=gap, max_boxes=max_boxes, seed=seed
    )
    task = _remembered(setting, candidates, remember)
    cheapest = solved(setting)
    high = float(cheapest.excess_loss[task])
    low = min(high, _least_left(setting, task))
    limits = np.linspace(high, low, number)
    # The last limit was met by a schedule that was tried; rounding must not put it out of reach.
    limits[-1] *= 1 + 1e-9
    schedules = [cheapest]
    for k, limit in enumerate(limits[1:]):
        schedules.append(solved(setting.limited(task, float(limit))))
        progress((k + 2) / number)
    left = np.array([s.excess_loss[task] for s in schedules])
    return Front(cheapest.pool[task], limits, tuple(schedules), left)


def _remembered(setting: Setting, candidates: Sequence[Task], remember: int) -> int:
    """Index of the task among those that take part."""
    place = count("remember", remember, least=0)
    known = setting.places[:-1]
    if place not in known:
        raise InvalidSpec(
            f"remember must be the place of a candidate that takes part, got {remember} with "
            f"{len(candidates)} candidates, of which {len(known)} take part.",
            field="remember",
        )
    return known.index(place)


def _least_left(setting: Setting, task: int) -> float:
    """Least excess loss of the task among a sample of schedules that meet the rules."""
    course, stages = setting.course, setting.terms.max_stages - 1
    direct = float(course.rest(course.start[None])[0]) * float(course.cost[-1])
    if not np.isfinite(direct):
        return np.inf
    share = np.concatenate([[0.0], np.geomspace(0.01, 3.0, _TRIED if stages < 3 else 6)])
    grid = lattice_of(share, stages)
    least = np.inf
    for order in orders_of(len(course.cost), stages, shorter=True):
        durations = np.where(order >= 0, grid * direct / course.cost[order], 0.0)
        cost, rest = course.priced(np.tile(order, (len(grid), 1)), durations)
        good = np.isfinite(cost)
        at = np.broadcast_to(course.start, (len(grid), len(course.start)))
        for stage in range(stages):
            at = course.moved(np.full(len(grid), order[stage]), durations[:, stage], at)
        left = course.excess(course.last.strength(np.where(good, rest, 0.0), at))[:, task]
        least = min(least, float(left[good].min(initial=np.inf)))
    return least
