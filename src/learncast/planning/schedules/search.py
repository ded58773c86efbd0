"""The search for the cheapest schedule: orders of tasks and stops that all modes share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from learncast._core.progress import Progress, noticed, silent
from learncast._core.validation import count, positive
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.choice import ground_for
from learncast.planning.methods.modal import ModeGround
from learncast.planning.schedules.branching import Found, explored, mode_path, settled
from learncast.planning.schedules.course import Course
from learncast.planning.schedules.schedule import Schedule, ScheduledStage
from learncast.planning.terms import PoolTerms, Terms, checked_pool
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.assumptions import Trust, require

#: Gap between a schedule and its lower bound at which a search is content, and boxes after which it gives up.
GAP = 1e-6
MOST_BOXES = 100_000


@dataclass(frozen=True, eq=False)
class Setting:
    """A course on a ground of modes; the candidates that take part are its `places`, the target comes last."""

    course: Course
    ground: ModeGround
    terms: PoolTerms
    places: tuple[int, ...]
    gap: float = GAP
    max_boxes: int = MOST_BOXES

    @classmethod
    def of(cls, ground: ModeGround, terms: PoolTerms, keep: Sequence[int]) -> Setting:
        """The setting of some of the candidates."""
        rows, target = list(keep), ground.modes[-1]
        every = [*(ground.modes[k] for k in rows), target]
        course = Course(
            cross=np.stack([m.weighted_cross for m in every]),
            power=np.stack([m.weighted_input for m in every]),
            cost=terms.cost[[*rows, ground.target]],
            imbalance=target.imbalance,
            start=target.start,
            tolerance=1.0 - terms.accuracy,
            by_loss=ground.goal == "loss",
            switch_cost=terms.switch_cost * ground.learning_rate,
            least=np.append(terms.least[rows], -np.inf),
            most=np.append(terms.most[rows], 1.0),
            most_loss=np.append(terms.most_loss[rows], np.inf),
        )
        return cls(course, ground, terms, (*rows, ground.target))

    def limited(self, task: int, most_loss: float) -> Setting:
        """The same with a limit on the excess loss of one task at the end."""
        limits = self.course.most_loss.copy()
        limits[task] = min(limits[task], most_loss)
        return replace(self, course=replace(self.course, most_loss=limits))


@noticed("searching schedules")
def best_schedule(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    *,
    learning_rate: float,
    terms: Terms = Terms(max_stages=3),  # noqa: B008  frozen
    strict: bool = True,
    gap: float = GAP,
    max_boxes: int = MOST_BOXES,
    progress: Progress = silent,
    seed: int = 0,
) -> Schedule:
    """Find the cheapest order of tasks and stops that ends with the target learned, over all orders and stops.

    One mode is solved exactly. Several modes share every stop; orders and boxes of durations are searched by branch
    and bound on the closed forms, so the result comes with a lower bound on what any schedule costs. Durations are
    those of the flow.

    Parameters
    ----------
    target : Task
        What must be learned in the end: the last stage, which stops as soon as it is learned.
    candidates : sequence of Task
        Tasks that may be trained before, each any number of times.
    network : LinearRNN or Activated
        The network before training; ReLU units must share one response (one recurrence, one sign, one output).
    learning_rate : float
    terms : Terms
        What is asked of the end, what steps cost, where stages may stop.
    strict : bool
        Raise when the target fails a condition of the theory, and use only candidates that meet all.
    gap : float
        Relative gap between the schedule's cost and the lower bound at which the search is content.
    max_boxes : int
        Boxes of durations to bound before giving up the proof.
    progress : callable
        Called with the share of these boxes that is done.
    seed : int
        Of the trials on which responses of an Activated network are measured.

    Returns
    -------
    Schedule
        With status not_learned and an infinite total where no schedule meets the rules.

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
    >>> lc.planning.best_schedule(task, pool, network, learning_rate=1e-3)
    <Schedule strength 2 (119.919) -> integration (0): cost 119.919, direct 329.985, exact, gap 0>
    """
    setting = setting_of(
        target, candidates, network, learning_rate, terms, strict, gap=gap, max_boxes=max_boxes, seed=seed
    )
    return solved(setting, progress)


def setting_of(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    learning_rate: float,
    terms: Terms,
    strict: bool,
    *,
    gap: float,
    max_boxes: int,
    seed: int,
) -> Setting:
    """Take the tasks apart into modes, and leave out the candidates of which the theory does not speak."""
    pool = checked_pool(target, candidates)
    bound = terms.over(len(pool))
    ground = cast(
        ModeGround,
        ground_for([*pool, target], network, learning_rate=learning_rate, by="modes", goal=terms.goal, seed=seed),
    )
    if strict:
        require(ground.measured(ground.target))
    return replace(
        Setting.of(ground, bound, taking_part(ground, strict)),
        gap=positive("gap", gap),
        max_boxes=count("max_boxes", max_boxes),
    )


def taking_part(ground: ModeGround, strict: bool) -> list[int]:
    """Candidates that meet every condition; all of them where that is not asked for."""
    return [k for k in range(ground.target) if not strict or Trust(ground.measured(k), ground.promise).holds]


def solved(setting: Setting, progress: Progress = silent, max_stages: int | None = None) -> Schedule:
    """Find the cheapest schedule of a setting."""
    course, stages = setting.course, max_stages or setting.terms.max_stages
    if len(course.start) == 1 and not np.isfinite(course.most_loss).any():
        return _packed(setting, _one_mode(course, stages), "exact")
    found = explored(course, stages - 1, gap=setting.gap, max_boxes=setting.max_boxes, progress=progress)
    # A lower bound of infinity proves that there is none.
    met = found.lower >= found.total * (1 - setting.gap) if math.isfinite(found.total) else math.isinf(found.lower)
    return _packed(setting, found, "certified" if met else "best found")


def _one_mode(course: Course, max_stages: int) -> Found:
    room = course.tolerance * abs(float(course.optimum[-1, 0]))
    least = np.where(np.isinf(course.least), np.nan, course.least)
    most = np.where(course.most == 1, np.nan, course.most)
    limits = {"least_accuracy": least, "most_accuracy": most}
    path = mode_path(course, 0, room, range(len(course.cost)), max_stages, **limits)
    if path.status is not Status.ok:
        return Found((), (), math.inf, math.inf, math.inf)
    before, last = path.legs[:-1], path.legs[-1]
    order, durations = tuple(leg.task for leg in before), tuple(leg.flow_steps for leg in before)
    return Found(order, durations, last.flow_steps, path.total, path.total)


def _packed(setting: Setting, found: Found, proof: str) -> Schedule:
    course, ground = setting.course, setting.ground
    rate = ground.learning_rate
    stages: list[ScheduledStage] = []
    excess = np.full(len(course.cost), np.nan)
    if math.isfinite(found.total):
        states = settled(course, found.order, found.durations)
        before = states[-1] if len(states) else course.start
        end = course.last.strength(found.rest, before)
        excess = course.excess(end)
        rows = zip((*found.order, course.target), (*found.durations, found.rest), (*states, end), strict=True)
        for task, time, at in rows:
            if time > 0 or task == course.target:
                place, price = setting.places[task], float(time * course.cost[task] / rate)
                accuracy = float(ground.modes[place].accuracy(at).min())
                stages.append(ScheduledStage(ground.tasks[place], place, time / rate, price, at, accuracy))
    return Schedule(
        stages=tuple(stages),
        total=found.total / rate,
        lower_bound=found.lower / rate,
        proof=proof,
        direct=float(course.rest(course.start[None])[0]) * float(course.cost[-1]) / rate,
        ground=ground,
        terms=setting.terms,
        places=setting.places,
        excess_loss=excess,
    )
