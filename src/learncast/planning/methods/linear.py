"""The grounds of linear networks without common modes: pooled, two-layer, and the integrated flow of anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.methods.ground import Ground, Learned, ReplicaSteps, State
from learncast.procedure.goals import Loss
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.covariance import Dense
from learncast.tasks.recorded.resampling import pooled_recording, resampled
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.descent import MOST_COUNTED, descend
from learncast.theory.dynamics.gradient_flow import FlowSolution, gradient_flow
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.modes import can_be_resampled
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import Solution
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, hidden_basis

if TYPE_CHECKING:
    from learncast.training.measured_accuracy import LossRange

#: Error per step of flows that are searched, and of the plans that are reported.
SEARCHED, REPORTED = 1e-6, 1e-8
#: Resampled pools on which a plan is followed again: counted together, and one by one.
REPLICAS = {True: 100, False: 40}
#: Of these, how many are enough for means, where stops are compared with each other on the same ones.
AVERAGED = 24
#: Times the steps of the estimate after which a resampling is given up.
LATE = 10
#: Steps in which descent from a sharp start shows whether it runs away, and the growth that tells.
TRIED, RUNAWAY = 500, 1e8
#: Share of weights beyond the hidden directions of the start that is round-off.
OUTSIDE = 1e-11


class LinearGround(Ground):
    """What flows of linear networks share: losses from statistics, and descent on them. States are networks."""

    promise = "integrated"
    countable = float(MOST_COUNTED)

    def __init__(
        self,
        tasks: Sequence[Task],
        network: LinearRNN | TwoLayer,
        learning_rate: float,
        learn: tuple[str, ...],
        seed: int = 0,
    ) -> None:
        super().__init__(tasks, network, learning_rate)
        self.problems = [LearningProblem.of(_with_target_power(task), network, learn) for task in tasks]
        self.learn: tuple[str, ...] = self.problems[0].learn
        self._resampling = seed

    @property
    def start(self) -> State:
        return self.network

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (self.learn, *((self._resampling,) if self.recorded else ()))

    def excess(self, task: int, state: State) -> float:
        problem = self.problems[task]
        return problem.loss_and_slopes(LearningProblem(problem.task, state, self.learn).start)[0] - problem.least_loss

    def least(self, task: int) -> float:
        return math.nan if self.tasks[task].target_covariance is None else self.problems[task].least_loss

    def whole(self, task: int) -> float:
        return self.problems[task].statistics.constant - self.problems[task].least_loss

    def strength(self, state: State) -> FloatArray:
        """Diagonal of the map in the frame of the target's modes."""
        problem = self.problems[self.target]
        return problem.strengths(LearningProblem(problem.task, state, self.learn).start)

    def goal_of(self, task: int, accuracy: float) -> float:
        """Excess loss at which a task is learned."""
        return max((1.0 - accuracy) ** 2 * self.whole(task), 1e-300)

    def learned(self, task: int, accuracy: float) -> Learned:
        """By the loss of a map of the pooled input, which the statistics have where the recurrence is a number."""
        s, goal = self.problems[task].statistics, (1.0 - accuracy) ** 2 * self.whole(task)
        d = PooledDescent(s.input[0, :, 0, :], s.cross[0])
        return lambda maps: d.excess_of(maps) <= goal

    def has_learned(self, task: int, accuracy: float, network: Any) -> bool:
        return self.excess(task, network) <= (1.0 - accuracy) ** 2 * self.whole(task)

    def state_at(self, course: Solution, steps: float) -> State:
        return course.network_at(steps)

    def course(self, task: int, state: State) -> Solution:
        return gradient_flow(
            self.problems[task].task, state, learning_rate=self.learning_rate, learn=self.learn, tolerance=REPORTED
        )

    def solution(self, *, tolerance: float, separatrix_tolerance: float | None) -> Solution:
        return gradient_flow(
            self.tasks[-1], self.network, learning_rate=self.learning_rate, learn=self.learn, tolerance=tolerance
        )

    def steps_to(self, task: int, state: State, accuracy: float, course: Solution | None = None) -> float:
        flow = self.course(task, state) if course is None else course
        return flow.time_to_loss(self.goal_of(task, accuracy))

    def counted(self, task: int, states: Sequence[State], accuracy: float) -> tuple[FloatArray, list[State]]:
        found = [self._one_counted(task, state, self.goal_of(task, accuracy)) for state in states]
        return np.array([steps for steps, _ in found]), [state for _, state in found]

    def _one_counted(self, task: int, state: State, goal: float) -> tuple[float, State]:
        training = Training(self.learning_rate, learn=self.learn, most_steps=2 * MOST_COUNTED)
        problem = self.problems[task]
        run = descend(problem.task, state, training, goal=Loss(problem.least_loss + goal))
        if run.status is Status.diverged:
            return math.inf, state
        return (float(run.steps), run.network_at(run.steps)) if run.status is Status.ok else (math.nan, state)

    def descended(self, task: int, states: Sequence[State], stops: Sequence[int]) -> list[list[State]]:
        each = []
        for state in states:
            training = Training(self.learning_rate, learn=self.learn)
            run = descend(self.problems[task].task, state, training, steps=max(stops, default=0))
            each.append([run.network_at(min(stop, run.steps)) for stop in stops])
        return [[row[k] for row in each] for k in range(len(stops))]

    @property
    def recorded(self) -> bool:
        return any(map(can_be_resampled, self.tasks))

    @cached_property
    def replicas(self) -> list[LinearGround]:
        """The same ground under resampled pools."""
        streams = [np.random.default_rng(self._resampling) for _ in self.tasks]  # the same trials are drawn alike
        return [
            type(self)(
                [resampled(t, rng) if can_be_resampled(t) else t for t, rng in zip(self.tasks, streams, strict=True)],
                self.network,
                self.learning_rate,
                self.learn,
            )
            for _ in range(REPLICAS[self.batched])
        ]

    def replicated(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> ReplicaSteps | None:
        if not self.recorded:
            return None
        rows = [ground._replica(places, rules) for ground in self.replicas]
        flows, counts, direct = (np.array([row[k] for row in rows]) for k in range(3))
        return ReplicaSteps(flows.T, counts.T, direct, np.full(len(direct), math.nan))

    def _replica(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> tuple[list[float], list[float], float]:
        """Flow steps of each stage and of direct training; descent is not counted replica by replica."""
        state, found = self.start, []
        for place, (accuracy, given) in zip(places, rules, strict=True):
            course = self.course(place, state)
            steps = given if given is not None else self.steps_to(place, state, float(accuracy or 0.0), course)
            state = self.after(place, state, steps, course)
            found.append(math.inf if math.isnan(steps) else float(steps))
        last = rules[-1][0]
        direct = math.nan if last is None else self.steps_to(self.target, self.start, last)
        return found, [math.nan] * len(found), direct


class PooledGround(LinearGround):
    """A recurrence that is a number, and stays: a two-layer network on the pooled input, of any covariance and start.

    Descent is counted on a few dozen numbers, many networks and resamplings side by side.
    """

    by = "pooled"
    batched = True
    countable = math.inf

    @cached_property
    def pooled(self) -> list[PooledProblem]:
        """Each task as the start sees it; the recurrence stays, so only the two maps move on."""
        return [PooledProblem.of(task, self.network) for task in self.tasks]

    @cached_property
    def descents(self) -> list[PooledDescent]:
        """Each task's descent."""
        return [PooledDescent(p.power, p.cross) for p in self.pooled]

    @cached_property
    def _basis(self) -> FloatArray:
        """Hidden directions that the start uses."""
        return hidden_basis(self.pooled[-1].first, self.pooled[-1].second)

    def _packed(self, states: Sequence[State]) -> tuple[FloatArray, FloatArray]:
        """Weights of networks as rows, and the hidden directions they are told in."""
        whole = np.stack([np.concatenate([first.T, second]) for first, second in (s.maps for s in states)])
        basis = self._basis
        inside = whole @ basis
        if float(np.abs(whole - inside @ basis.T).max(initial=0.0)) <= OUTSIDE * float(np.abs(whole).max(initial=0.0)):
            return inside, basis
        return whole, np.eye(whole.shape[2])

    def _unpacked(self, rows: FloatArray, basis: FloatArray) -> list[State]:
        inputs = self.descents[-1].inputs
        return [self.network.with_maps(w[:inputs].T, w[inputs:]) for w in rows @ basis.T]

    def counted(self, task: int, states: Sequence[State], accuracy: float) -> tuple[FloatArray, list[State]]:
        rows, basis = self._packed(states)
        asked = task, accuracy, rows.shape, rows.tobytes()
        if asked not in self._counts:
            steps, ends = self.descents[task].counted(rows, self.goal_of(task, accuracy), self.learning_rate)
            self._counts[asked] = steps, np.where(np.isfinite(ends), ends, 0.0)
        steps, ends = self._counts[asked]
        return steps.copy(), self._unpacked(ends, basis)

    @cached_property
    def _counts(self) -> dict[Any, tuple[FloatArray, FloatArray]]:
        """What has been counted: the same descent is asked for by a forecast, its plan and the plan's resamplings."""
        return {}

    def descended(self, task: int, states: Sequence[State], stops: Sequence[int]) -> list[list[State]]:
        rows, basis = self._packed(states)
        found = self.descents[task].descended(rows, stops, self.learning_rate)
        return [self._unpacked(np.where(np.isfinite(at), at, 0.0), basis) for at in found]

    def conditions(self, task: int) -> tuple[Assumption, ...]:
        """Nothing but a recurrence that is a number, and a learning rate under which descent can settle at all.

        Beyond what the flattest optimum allows it settles nowhere. A start that is too sharp may be left for a flatter
        place or run away, which is tried.
        """
        sharp = [self.descents[task].flattest, *([self._start_sharpness(task)] if self._runs_away(task) else [])]
        return (self.pooled[task].scalar_recurrence, stable_learning_rate(self.learning_rate, np.array(sharp)))

    def _start_sharpness(self, task: int) -> float:
        return self.descents[task].sharpness(self._packed([self.network])[0])

    def _runs_away(self, task: int) -> bool:
        """Whether descent from the start explodes; tried only where the start is too sharp for the learning rate."""
        if self.learning_rate * self._start_sharpness(task) <= 2.0:
            return False
        d, begin = self.descents[task], self._packed([self.network])[0]
        end = d.descended(begin, [TRIED], self.learning_rate)[0]
        return not np.abs(end).max() < RUNAWAY * max(float(np.abs(begin).max()), 1.0)

    def course(self, task: int, state: State) -> Solution:
        return replace(cast(FlowSolution, super().course(task, state)), conditions=self.measured(task))

    def solution(self, *, tolerance: float, separatrix_tolerance: float | None) -> Solution:
        found = super().solution(tolerance=tolerance, separatrix_tolerance=separatrix_tolerance)
        return replace(cast(FlowSolution, found), conditions=self.measured(self.target))

    def largest_rate(self, task: int) -> float:
        """By the curvature at the balanced optimum: between it and the flattest one descent may settle or not."""
        return 2.0 / self.descents[task].curvature if self.descents[task].curvature > 0 else math.nan

    def loss_range(self, task: int, end: State) -> LossRange:
        from learncast.training.measured_accuracy import LossRange

        pooled, own = self.pooled[task], self.tasks[task]
        if pooled.scalar_recurrence.holds and self.network.hidden_size >= min(own.inputs, own.outputs):
            return LossRange.pooled(own, pooled.recurrence)
        return super().loss_range(task, end)

    @cached_property
    def _drawn(self) -> list[PooledDescent]:
        """Each task's descent in every resampling, one a row; a task that is known exactly is the same in all."""
        number = REPLICAS[True]
        found = []
        for k, task in enumerate(self.tasks):
            if can_be_resampled(task):
                rng = np.random.default_rng(self._resampling)  # tasks of the same trials are drawn alike
                seen = pooled_recording(task, self.pooled[k].recurrence)
                each = [PooledProblem.of(resampled(seen, rng), self.network) for _ in range(number)]
                found.append(PooledDescent(np.stack([p.power for p in each]), np.stack([p.cross for p in each])))
            else:
                d = self.descents[k]
                found.append(PooledDescent(*(np.broadcast_to(v, (number, *v.shape)) for v in (d.power, d.cross))))
        return found

    def _patience(self, task: int, accuracy: float) -> int:
        """Steps after which a resampling that has not arrived counts as one that never does."""
        steps = float(self.counted(task, [self.network], accuracy)[0][0])
        return int(LATE * steps) + 1000 if math.isfinite(steps) else MOST_COUNTED

    def _drawn_directly(self, accuracy: float) -> FloatArray:
        """Steps of direct training in every resampling, counted once."""
        if accuracy not in self._directly:
            begin, drawn = np.repeat(self._packed([self.network])[0], REPLICAS[True], axis=0), self._drawn[self.target]
            patience = self._patience(self.target, accuracy)
            goals = (1 - accuracy) ** 2 * drawn.whole
            steps = drawn.counted(begin, goals, self.learning_rate, patience, precise=False)[0]
            self._directly[accuracy] = np.where(np.isnan(steps), np.inf, steps)
        return self._directly[accuracy]

    @cached_property
    def _directly(self) -> dict[float, FloatArray]:
        return {}

    def replica_steps(self, order: Sequence[int], lengths: Sequence[Sequence[int]], accuracy: float) -> FloatArray:
        """Fewer resamplings, for means alone; one stage before the target is descended once for all its lengths."""
        if len(order) != 1:
            return super().replica_steps(order, lengths, accuracy)
        some, stops = np.arange(AVERAGED), sorted({n for (n,) in lengths})
        begin = np.repeat(self._packed([self.network])[0], AVERAGED, axis=0)
        ends = self._drawn[order[0]].rows(some).descended(begin, stops, self.learning_rate, precise=False)
        states = np.concatenate([ends[stops.index(n)] for (n,) in lengths])
        states = np.where(np.isfinite(states), states, 0.0)
        drawn = self._drawn[self.target].rows(np.tile(some, len(lengths)))
        goals, patience = (1 - accuracy) ** 2 * drawn.whole, self._patience(self.target, accuracy)
        rest = drawn.counted(states, goals, self.learning_rate, patience, precise=False)[0].reshape(len(lengths), -1)
        spent = np.repeat(np.array(lengths, dtype=float), AVERAGED, axis=1)
        return np.stack([spent, np.where(np.isnan(rest), np.inf, rest)], axis=1)

    def replicated(
        self, places: Sequence[int], rules: Sequence[tuple[float | None, float | None]]
    ) -> ReplicaSteps | None:
        """Counted by descent, all resamplings together."""
        if not self.recorded:
            return None
        begin = np.repeat(self._packed([self.network])[0], REPLICAS[True], axis=0)
        states, counts = begin, []
        for place, (accuracy, given) in zip(places, rules, strict=True):
            drawn = self._drawn[place]
            if accuracy is not None:
                goals, patience = (1 - accuracy) ** 2 * drawn.whole, self._patience(place, accuracy)
                steps, states = drawn.counted(states, goals, self.learning_rate, patience, precise=False)
            else:
                whole = math.ceil(given or 0.0)
                steps = np.full(len(states), float(whole))
                states = drawn.descended(states, [whole], self.learning_rate, precise=False)[0]
            counts.append(np.where(np.isnan(steps), np.inf, steps))
            states = np.where(np.isfinite(states), states, 0.0)  # what ran away learns nothing afterwards
        last = rules[-1][0]
        direct = np.full(len(begin), np.nan) if last is None else self._drawn_directly(last)
        unknown = np.full((len(counts), len(begin)), np.nan)
        return ReplicaSteps(unknown, np.stack(counts), np.full(len(begin), np.nan), direct)


class TwoLayerGround(PooledGround):
    """A pooled input that is white and a balanced start: the exact flow for tasks of any geometry."""

    by = "two-layer"
    promise = "exact"
    kind = "theory"
    batched = False

    @property
    def citations(self) -> tuple[str, ...]:  # type: ignore[override]
        """A two-layer network rests on its own theory alone."""
        return self.course(self.target, self.start).provenance.citations

    def course(self, task: int, state: State) -> TwoLayerSolution:
        if state is self.start and task in self._from_start:
            return self._from_start[task]
        first, second = state.maps
        problem = replace(self.pooled[task], first=first, second=second)
        found = TwoLayerSolution(problem, state, self.learning_rate, None)
        if state is self.start:
            self._from_start[task] = found
        return found

    @cached_property
    def _from_start(self) -> dict[int, TwoLayerSolution]:
        """Solutions from the start, whose factorisation every question shares."""
        return {}

    def solution(self, *, tolerance: float, separatrix_tolerance: float | None) -> Solution:
        found = self.course(self.target, self.start)
        if separatrix_tolerance is None:
            return found
        return replace(found, separatrix_tolerance=separatrix_tolerance)

    def conditions(self, task: int) -> tuple[Assumption, ...]:
        return self.course(task, self.start).assumptions

    def excess(self, task: int, state: State) -> float:
        first, second = state.maps
        d = self.descents[task]
        return float(d.excess_of(second @ first))

    def whole(self, task: int) -> float:
        return float(self.descents[task].whole)

    def least(self, task: int) -> float:
        return self.pooled[task].least_loss

    def mode_rows(self, task: int, accuracy: float) -> list[dict[str, Any]]:
        solution = self.course(task, self.start)
        status = self.learning_time(task, accuracy).status
        begin, end = solution.at([0.0, np.inf])["strength"].values
        p, lost = solution.problem, set(solution.flow.lost_modes.tolist())
        return [
            {
                "mode": k,
                "recurrence": p.recurrence,
                "weighted_cross": optimum * p.variance,
                "weighted_input": p.variance,
                "optimum": optimum,
                "initial": begin[k],
                "final": end[k],
                **({"flow_steps": math.inf, "descent_steps": math.inf} if k in lost else {}),
                "status": Status.not_learned.name if k in lost else status.name,
            }
            for k, optimum in enumerate(solution.optimum)
        ]


class FlowGround(LinearGround):
    """Any linear network and any weights that learn: gradient flow, integrated.

    A learned recurrence may never come down to the best linear filter. Losses are therefore measured from where
    training on each task from the start comes to rest, for every plan alike.
    """

    by = "flow"
    tolerance = SEARCHED

    @cached_property
    def precise(self) -> FlowGround:
        """The same flows, integrated to the precision of a report; learned is what it was."""
        found = FlowGround(self.tasks, self.network, self.learning_rate, self.learn, self._resampling)
        found.problems, found.tolerance, found.floors = self.problems, REPORTED, self.floors
        return found

    @cached_property
    def floors(self) -> list[float]:
        """Excess loss at which training on each task from the start comes to rest."""
        return [self._floor(k) for k in range(len(self.tasks))]

    def _floor(self, task: int) -> float:
        if self.problems[task].pooled_recurrence is not None:
            return 0.0  # the readout can be any map of the pooled input
        left = float(self.course(task, self.start).limit().dataset["excess_loss"][0])
        return max(left, 0.0) if math.isfinite(left) else 0.0

    def whole(self, task: int) -> float:
        """Excess loss of no answer above where training rests."""
        return super().whole(task) - self.floors[task]

    def excess(self, task: int, state: State) -> float:
        """Loss above where training rests; a plan may end below it."""
        return super().excess(task, state) - self.floors[task]

    def least(self, task: int) -> float:
        return super().least(task) + self.floors[task]

    def goal_of(self, task: int, accuracy: float) -> float:
        """Loss above the best linear filter's at which a task is learned."""
        return self.floors[task] + super().goal_of(task, accuracy)

    def course(self, task: int, state: State) -> FlowSolution:
        return gradient_flow(
            self.problems[task].task, state, learning_rate=self.learning_rate, learn=self.learn,
            tolerance=self.tolerance,
        )  # fmt: skip


def _with_target_power(task: Task) -> Task:
    """The task with the least target covariance its other statistics allow, where it does not know its own.

    What a target holds beyond its inputs adds the same to every loss, so no excess loss depends on it.
    """
    if task.target_covariance is not None:
        return task
    inputs, cross = task.input_covariance, task.cross_covariance
    steps, channels, readouts, outputs = cross.shape
    flat = cross.dense().reshape(steps * channels, readouts * outputs)
    power = inputs.dense().reshape(steps * channels, steps * channels)
    told = flat.T @ np.linalg.lstsq(power, flat, rcond=None)[0]
    target = Dense(((told + told.T) / 2).reshape(readouts, outputs, readouts, outputs))
    return Task.trusted(inputs, cross, target, name=task.name, trials=task.trials)
