"""The search for the cheapest schedule: orders of tasks and stops that all modes share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learncast.assumptions import exact, require
from learncast.dynamics.modes import Modes
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.schedules.branching import Found, explored, settled
from learncast.planning.schedules.course import Course
from learncast.planning.schedules.optimal import cheapest_path
from learncast.planning.schedules.schedule import Schedule, ScheduledStage
from learncast.planning.terms import Terms, checked_pool, checked_terms
from learncast.progress import Progress, silent
from learncast.responses.modes import modes_seen_by, solution_of
from learncast.tasks.task import Task
from learncast.trajectory import Status
from learncast.validation import count, positive

#: Gap between a schedule and its lower bound at which a search is content, and boxes after which it gives up.
GAP = 1e-6
MOST_BOXES = 100_000


@dataclass(frozen=True, eq=False)
class Setting:
    """A course with the tasks, network and clock it stands for; the target is the last of `modes`."""

    course: Course
    modes: tuple[Modes, ...]
    excluded: tuple[str, ...]
    network: LinearRNN | Activated
    learning_rate: float
    max_stages: int
    gap: float
    max_boxes: int

    @property
    def paired(self) -> Setting:
        """The same with one stage before the target."""
        return replace(self, max_stages=2)

    def limited(self, task: int, most_loss: float) -> Setting:
        """The same with a limit on the excess loss of one task at the end."""
        limits = self.course.most_loss.copy()
        limits[task] = min(limits[task], most_loss)
        return replace(self, course=replace(self.course, most_loss=limits))


def best_schedule(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    *,
    learning_rate: float,
    accuracy: float = 0.99,
    goal: str = "modes",
    max_stages: int = 3,
    costs: Any = 1.0,
    switch_cost: float = 0.0,
    least_accuracy: Any = None,
    most_accuracy: Any = None,
    most_excess_loss: Any = None,
    strict: bool = True,
    gap: float = GAP,
    max_boxes: int = MOST_BOXES,
    progress: Progress = silent,
    rng: np.random.Generator | int = 0,
) -> Schedule:
    """Find the cheapest order of tasks and stops that ends with the target learned, over all orders and stops.

    One mode is solved exactly. Several modes share every stop; orders and boxes of durations are searched by branch
    and bound on the closed forms, so the result comes with a lower bound on what any schedule costs.

    Parameters
    ----------
    target : Task
        What must be learned in the end: the last stage, which stops as soon as it is learned.
    candidates : sequence of Task
        Tasks that may be trained before, each any number of times; the target may be, too.
    network : LinearRNN or Activated
        The network before training; ReLU units must share one response (one recurrence, one sign, one output).
    learning_rate, accuracy : float
    goal : {"modes", "loss"}
        Whether every mode must be within 1 - accuracy of its optimum, or the excess loss within (1 - accuracy)^2 of
        that of a network that has learned nothing. For one mode both are the same.
    max_stages : int
        Stages at most, the target included.
    costs : float or (candidates + 1,)
        Cost of a step on each candidate and, last, on the target.
    switch_cost : float
        Cost of each change of task, in the same unit; the change to the target counts.
    least_accuracy, most_accuracy : float or (candidates,), optional
        Accuracy on its own task (worst mode) at which a candidate's stage may stop; nan where it is free.
    most_excess_loss : (candidates,), optional
        Excess loss of each candidate allowed at the end: a limit on what is forgotten; nan or infinity for none.
    strict : bool
        Raise when the target fails a condition of the theory, and use only candidates that meet all.
    gap : float
        Relative gap between the schedule's cost and the lower bound at which the search is content.
    max_boxes : int
        Boxes of durations to bound before giving up the proof.
    progress : callable
        Called with the share of these boxes that is done.
    rng : numpy.random.Generator or int
        Activated networks: generator or seed of the trials on which responses are measured, the same for every task.

    Returns
    -------
    Schedule
        With status not_learned and an infinite total where no schedule meets the rules.
    """
    setting = setting_of(
        target,
        candidates,
        network,
        learning_rate=learning_rate,
        accuracy=accuracy,
        goal=goal,
        max_stages=max_stages,
        costs=costs,
        switch_cost=switch_cost,
        least_accuracy=least_accuracy,
        most_accuracy=most_accuracy,
        most_excess_loss=most_excess_loss,
        strict=strict,
        gap=gap,
        max_boxes=max_boxes,
        rng=rng,
    )
    return solved(setting, progress)


def solved(setting: Setting, progress: Progress = silent) -> Schedule:
    """Solve a setting: exactly where one mode and no limit on forgetting allow it, else by branch and bound."""
    course = setting.course
    if len(course.start) == 1 and not np.isfinite(course.most_loss).any():
        return _packed(setting, _one_mode(course, setting.max_stages), "exact")
    found = explored(course, setting.max_stages - 1, gap=setting.gap, max_boxes=setting.max_boxes, progress=progress)
    # A lower bound of infinity proves that there is none.
    met = found.lower >= found.total * (1 - setting.gap) if math.isfinite(found.total) else math.isinf(found.lower)
    return _packed(setting, found, "certified" if met else "best found")


def _one_mode(course: Course, max_stages: int) -> Found:
    best, room = float(course.optimum[-1, 0]), course.tolerance * abs(float(course.optimum[-1, 0]))
    path = cheapest_path(
        course.cross[:, 0],
        course.power[:, 0],
        start=float(course.start[0]),
        end=(best - room, best + room),
        learning_rate=1.0,
        imbalance=float(course.imbalance[0]),
        costs=course.cost,
        switch_cost=course.switch_cost,
        max_stages=max_stages,
        last=course.target,
        least_accuracy=np.where(np.isinf(course.least), np.nan, course.least),
        most_accuracy=np.where(course.most == 1, np.nan, course.most),
    )
    if path.status is not Status.ok:
        return Found((), (), math.inf, math.inf, math.inf, 0)
    before, last = path.legs[:-1], path.legs[-1]
    order, durations = tuple(leg.task for leg in before), tuple(leg.flow_steps for leg in before)
    return Found(order, durations, last.flow_steps, path.total, path.total, 0)


def _packed(setting: Setting, found: Found, proof: str) -> Schedule:
    course, rate = setting.course, setting.learning_rate
    direct = float(course.rest(course.start[None])[0]) * float(course.cost[-1]) / rate
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
                m = setting.modes[task]
                price = float(time * course.cost[task] / rate)
                stages.append(ScheduledStage(m.task, m, time / rate, price, at, float(m.accuracy(at).min())))
    return Schedule(
        stages=tuple(stages),
        total=found.total / rate,
        lower_bound=found.lower / rate,
        proof=proof,
        direct=direct,
        switch_cost=course.switch_cost / rate,
        target=setting.modes[-1],
        goal="loss" if course.by_loss else "modes",
        accuracy=1.0 - course.tolerance,
        pool=setting.modes,
        excess_loss=excess,
        excluded=setting.excluded,
        network=setting.network,
        learning_rate=rate,
    )


def setting_of(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    *,
    learning_rate: float,
    accuracy: float,
    goal: str,
    max_stages: int,
    costs: Any,
    switch_cost: float,
    least_accuracy: Any,
    most_accuracy: Any,
    most_excess_loss: Any,
    strict: bool,
    gap: float,
    max_boxes: int,
    rng: np.random.Generator | int,
) -> Setting:
    """Validate what `best_schedule` is given, and take the tasks apart into modes."""
    pool = checked_pool(target, candidates)
    terms = checked_terms(
        len(pool),
        learning_rate=learning_rate,
        accuracy=accuracy,
        goal=goal,
        max_stages=max_stages,
        costs=costs,
        switch_cost=switch_cost,
        least_accuracy=least_accuracy,
        most_accuracy=most_accuracy,
        most_excess_loss=most_excess_loss,
    )
    target_modes, *pool_modes = modes_seen_by(network, [target, *pool], rng)
    if strict:
        require(solution_of(target_modes, network, terms.learning_rate).assumptions)
    keep = [
        k
        for k, m in enumerate(pool_modes)
        if not strict or exact(solution_of(m, network, terms.learning_rate).assumptions)
    ]
    return setting_from(terms, pool_modes, target_modes, keep, network, gap=gap, max_boxes=max_boxes)


def setting_from(
    terms: Terms,
    pool: Sequence[Modes],
    target: Modes,
    keep: Sequence[int],
    network: LinearRNN | Activated,
    *,
    gap: float = GAP,
    max_boxes: int = MOST_BOXES,
) -> Setting:
    """The setting of some of the candidates, already taken apart into modes."""
    every = (*(pool[k] for k in keep), target)
    rows = list(keep)
    course = Course(
        cross=np.stack([m.weighted_cross for m in every]),
        power=np.stack([m.weighted_input for m in every]),
        cost=terms.cost[[*rows, len(pool)]],
        imbalance=target.imbalance,
        start=target.start,
        tolerance=1.0 - terms.accuracy,
        by_loss=terms.goal == "loss",
        switch_cost=terms.switch_cost * terms.learning_rate,
        least=np.append(terms.least[rows], -np.inf),
        most=np.append(terms.most[rows], 1.0),
        most_loss=np.append(terms.most_loss[rows], np.inf),
    )
    return Setting(
        course,
        every,
        tuple(m.task.name for k, m in enumerate(pool) if k not in keep),
        network,
        terms.learning_rate,
        terms.max_stages,
        positive("gap", gap, why="a proof down to the last digit would never end"),
        count("max_boxes", max_boxes, why="a search must look somewhere"),
    )
