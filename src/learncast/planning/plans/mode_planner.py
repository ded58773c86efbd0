"""Planning by modes: exact stops, exact or certified schedules, and stops for estimated statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from learncast.assumptions import exact, require
from learncast.dynamics.modes import Modes
from learncast.dynamics.solution import LearningTime
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.curriculum import Curriculum, Stage, follow_modes
from learncast.planning.curricula.passage import Problem
from learncast.planning.curricula.replicas import replica_problems
from learncast.planning.plans.candidate import Candidate, last_if_unknown
from learncast.planning.plans.robust import robust_stop
from learncast.planning.schedules.schedule import Schedule
from learncast.planning.schedules.search import Setting, setting_from, solved
from learncast.planning.schedules.stopping import best_stop
from learncast.planning.terms import Terms
from learncast.progress import Progress, silent
from learncast.responses.modes import solution_of
from learncast.trajectory import Status
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False)
class Ranked:
    """What a way of planning finds out.

    Attributes
    ----------
    candidates : tuple of Candidate
        Best first; those the theory cannot speak about last.
    best : Curriculum
        The recommended stages; the target alone when nothing helps.
    total, direct_total : float
        Their cost, and that of the target alone.
    lower_bound : float
        What any schedule that meets the terms costs at least; nan where no bound is known.
    proof : str
        How good the recommendation is: a key of `learncast.planning.schedules.schedule.PROOFS`.
    """

    candidates: tuple[Candidate, ...]
    direct: LearningTime
    best: Curriculum
    total: float
    direct_total: float
    lower_bound: float
    proof: str


@dataclass(frozen=True, eq=False)
class ModePlanner:
    """Tasks taken apart into the modes of one frame.

    Attributes
    ----------
    target : Modes
    pool : tuple of Modes
        The candidates.
    """

    target: Modes
    pool: tuple[Modes, ...]
    network: LinearRNN | Activated
    terms: Terms
    strict: bool

    def follow(self, stages: Sequence[Stage]) -> Curriculum:
        """Follow stages of these tasks; the target, which comes last, as far as the plan's goal asks."""
        known = {id(m.task): m for m in (*self.pool, self.target)}
        modes = tuple(known[id(s.task)] for s in stages)
        if self.terms.goal == "modes":
            return follow_modes(stages, modes, self.network, self.terms.learning_rate)
        before = follow_modes(stages, modes, self.network, self.terms.learning_rate).outcomes[-1].start
        rest = float(self._rests(before[None])[0]) / self.terms.learning_rate
        last = Stage(self.target.task, steps=rest if np.isfinite(rest) else 0.0)
        found = follow_modes([*stages[:-1], last], modes, self.network, self.terms.learning_rate)
        return replace(found, direct=self._direct())

    def _rests(self, strengths: FloatArray) -> FloatArray:
        """Flow time on the target until it is learned, from strengths (rows, modes)."""
        if self.terms.goal == "loss":
            return setting_from(self.terms, self.pool, self.target, [], self.network).course.rest(strengths)
        second = Problem(self.target.weighted_cross, self.target.weighted_input, self.target.imbalance)
        return second.arrival(strengths, 1.0 - self.terms.accuracy)[0]

    def _direct(self) -> LearningTime:
        """Training on the target alone, to the plan's goal."""
        by_modes = solution_of(self.target, self.network, self.terms.learning_rate).time_to(self.terms.accuracy)
        if self.terms.goal == "modes":
            return by_modes
        steps = float(self._rests(self.target.start[None])[0]) / self.terms.learning_rate
        # Descent and flow differ by a fraction of the steps' own discretisation; no count is derived for a loss.
        status = by_modes.status if np.isfinite(steps) else Status.not_learned
        return LearningTime(self.terms.accuracy, np.array([steps]), np.array([np.nan]), (status,))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know of training on the target alone, beyond its numbers."""
        return solution_of(self.target, self.network, self.terms.learning_rate).remarks

    def ranked(self, progress: Progress = silent) -> Ranked:
        """Give every candidate its best stop, and find the best schedule of them together."""
        solution = solution_of(self.target, self.network, self.terms.learning_rate)
        if self.strict:
            require(solution.assumptions)
        direct = self._direct()
        searched = not self.terms.plain or (self.terms.max_stages > 2 and len(self.pool) > 0)
        share = 0.5 if searched else 1.0
        found = self._weighed(direct, lambda done: progress(share * done))
        ranked = tuple(
            sorted(found, key=lambda c: (not c.usable, last_if_unknown(c.expected), last_if_unknown(c.descent_steps)))
        )
        alone = self.follow([self._last_stage()])
        direct_total = direct.flow_steps * float(self.terms.cost[-1])
        chosen = next((c for c in ranked if c.helps and (c.holds if self.strict else c.usable)), None)
        best = chosen.curriculum if chosen else alone
        total = chosen.total if chosen else direct_total
        lower, proof = total, "exact"
        if searched and self.pool:
            schedule = self._schedule(lambda done: progress(share + share * done))
            lower, proof, direct_total = schedule.lower_bound, schedule.proof, schedule.direct
            best, total = self._followed_schedule(schedule), schedule.total
        elif self.target.replicas is not None or any(m.replicas is not None for m in self.pool):
            proof = "robust" if chosen is not None and chosen.expected != chosen.total else proof
        progress(1.0)
        return Ranked(ranked, direct, best, total, direct_total, lower, proof)

    def _last_stage(self) -> Stage:
        return Stage(self.target.task, accuracy=self.terms.accuracy)

    def _setting(self, keep: Sequence[int]) -> Setting:
        return setting_from(self.terms, self.pool, self.target, keep, self.network)

    def _schedule(self, progress: Progress) -> Schedule:
        rate = self.terms.learning_rate
        keep = [
            k
            for k, m in enumerate(self.pool)
            if not self.strict or exact(solution_of(m, self.network, rate).assumptions)
        ]
        schedule = solved(self._setting(keep), progress)
        if not schedule.stages and np.isfinite(schedule.direct) and np.isfinite(self.terms.most_loss).any():
            raise InvalidSpec(
                required="some schedule must meet the limits on forgetting",
                got="none that does",
                why="the target cannot be learned without forgetting more than most_excess_loss allows",
                remedy="raise the limits; forgetting_front shows what they cost",
            )
        return schedule

    def _followed_schedule(self, schedule: Schedule) -> Curriculum:
        """A schedule's stages, each by accuracy where one accuracy says when to stop it."""
        if not schedule.stages:
            return self.follow([self._last_stage()])
        before = [self._first_stage(s.modes, s.steps, s.accuracy) for s in schedule.stages[:-1]]
        by_accuracy = self.follow([*before, self._last_stage()])
        exactly = schedule.curriculum
        same = np.allclose(
            [o.flow_steps for o in by_accuracy.outcomes],
            [o.flow_steps for o in exactly.outcomes],
            rtol=1e-9,
            atol=1e-9 * max(schedule.flow_steps, 1.0),
        )
        return by_accuracy if same else self.follow([*schedule.as_stages()[:-1], self._last_stage()])

    def _weighed(self, direct: LearningTime, progress: Progress) -> list[Candidate]:
        if not self.pool:
            return []
        stops, totals = self._stops(progress)
        rate = self.terms.learning_rate
        first = _stacked(self.pool, self.target)
        ends = first.strength(stops, self.target.start)
        accuracies = np.array([m.accuracy(end).min() for m, end in zip(self.pool, ends, strict=True)])
        second = Problem(self.target.weighted_cross, self.target.weighted_input, self.target.imbalance)
        rests = self._rests(ends)
        flows = np.where(stops > 0, stops + rests, direct.flow_steps * rate)
        descents = _descent_totals(self.target.start, first, second, stops, accuracies, 1.0 - self.terms.accuracy, rate)
        expected = self._expected(stops, totals, rate)
        return [
            Candidate(
                task=m.task,
                target=self.target.task,
                stop_steps=float(stops[k]) / rate,
                accuracy=float(accuracies[k]),
                flow_steps=float(flows[k]) / rate,
                descent_steps=float(descents[k]),
                total=float(totals[k]) / rate,
                direct_total=direct.flow_steps * float(self.terms.cost[-1]),
                expected=float(expected[k]) / rate,
                direct=direct,
                assumptions=solution_of(m, self.network, rate).assumptions,
                followed=partial(self._followed, m, float(stops[k]) / rate, float(accuracies[k])),
                reason=partial(self._reason, m),
            )
            for k, m in enumerate(self.pool)
        ]

    def _stops(self, progress: Progress) -> tuple[FloatArray, FloatArray]:
        """Flow time to spend on each candidate, and the cost of both stages."""
        start, tolerance = self.target.start, 1.0 - self.terms.accuracy
        if self.terms.plain:
            first = _stacked(self.pool, self.target)
            second = Problem(self.target.weighted_cross, self.target.weighted_input, self.target.imbalance)
            stops, totals = best_stop(start, first, second, tolerance, progress=progress)
            stops, totals = stops.copy(), totals * float(self.terms.cost[-1])
            for k, m in enumerate(self.pool):
                self._make_robust(k, m, stops, totals)
            return stops, totals
        rate, found = self.terms.learning_rate, []
        for k in range(len(self.pool)):
            schedule = solved(self._setting([k]).paired)
            found.append((schedule.stages[0].steps * rate if len(schedule.stages) > 1 else 0.0, schedule.total * rate))
            progress((k + 1) / len(self.pool))
        return np.array([t for t, _ in found]), np.array([total for _, total in found])

    def _make_robust(self, k: int, m: Modes, stops: FloatArray, totals: FloatArray) -> None:
        """Move a candidate's stop to where it is best on average over resampled statistics."""
        problems = replica_problems((m, self.target))
        if problems is None or isinstance(self.network, Activated):
            return
        start, tolerance = self.target.start, 1.0 - self.terms.accuracy
        stop, mean, alone = robust_stop(start, problems[0], problems[1], tolerance)
        stops[k] = stop if mean < alone else 0.0
        first, second = (Problem(x.weighted_cross, x.weighted_input, x.imbalance) for x in (m, self.target))
        after = first.strength(np.asarray(stops[k]), start)
        totals[k] = (stops[k] + float(second.arrival(after, tolerance)[0])) * float(self.terms.cost[-1])

    def _expected(self, stops: FloatArray, totals: FloatArray, rate: float) -> FloatArray:
        """Mean total over resampled statistics, where there are such."""
        if not self.terms.plain or isinstance(self.network, Activated):
            return totals
        found = totals.copy()
        for k, m in enumerate(self.pool):
            problems = replica_problems((m, self.target))
            if problems is not None:
                first, second = problems
                after = first.strength(
                    np.full(len(first.cross), stops[k]), np.broadcast_to(self.target.start, first.cross.shape)
                )
                rest = second.arrival(after, 1.0 - self.terms.accuracy)[0]
                found[k] = float(np.mean(stops[k] + rest)) * float(self.terms.cost[-1])
        return found

    def _first_stage(self, m: Modes, steps: float, accuracy: float) -> Stage:
        """Training on the candidate to its stop: by accuracy where one accuracy says it, else by steps."""
        if 0.0 <= accuracy <= 1.0 and steps > 0:
            return Stage(m.task, accuracy=accuracy)
        return Stage(m.task, steps=steps)

    def _followed(self, m: Modes, steps: float, accuracy: float) -> Curriculum:
        stages = [self._first_stage(m, steps, accuracy)] if steps > 0 else []
        return self.follow([*stages, self._last_stage()])

    def _reason(self, m: Modes, candidate: Candidate) -> dict[str, Any]:
        """The terms of eq. (16) at the best stop, and a sentence."""
        first = self._first_stage(m, candidate.stop_steps, candidate.accuracy)
        pair = follow_modes(
            [first, self._last_stage()], (m, self.target), self.network, self.terms.learning_rate
        )  # the terms are those of an accuracy, whatever the goal
        assert pair.why is not None
        found = pair.why.as_dict()
        if not candidate.helps:
            found["sentence"] = candidate.no_help
        return found


def _stacked(pool: Sequence[Modes], target: Modes) -> Problem:
    return Problem(
        np.stack([m.weighted_cross for m in pool]), np.stack([m.weighted_input for m in pool]), target.imbalance
    )


def _descent_totals(
    start: FloatArray,
    first: Problem,
    second: Problem,
    stops: FloatArray,
    accuracies: FloatArray,
    tolerance: float,
    learning_rate: float,
) -> FloatArray:
    """Whole descent steps of both stages, the second from where the first's last whole step left off."""
    many = np.broadcast_to(start, first.cross.shape)
    by_accuracy = (accuracies >= 0) & (accuracies <= 1)
    tolerances = np.where(by_accuracy, 1 - accuracies, 1.0)
    steps, after = first.descent_arrival(many, tolerances, learning_rate)
    if not by_accuracy.all():
        whole = np.ceil(stops / learning_rate)
        steps = np.where(by_accuracy, steps, whole)
        after = np.where(by_accuracy[:, None], after, first.after_descent(many, whole, learning_rate))
    used = stops > 0
    steps, after = np.where(used, steps, 0.0), np.where(used[:, None], after, many)
    rest, _ = second.descent_arrival(after, tolerance, learning_rate)
    return steps + rest
