"""Methods for linear networks without common modes: pooled descent of any number of layers, and integrated flow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.networks.deep import Deep, Linear
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.method import CONVERGED, Learned, Method
from learncast.procedure.goals import Goal
from learncast.procedure.training import Training
from learncast.results import Status, Steps
from learncast.tasks.best_map import best_map
from learncast.tasks.covariance import Dense
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.recorded.resampling import pooled_recording, resampled
from learncast.tasks.recorded.span import in_span, trial_span
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, exact, stable_learning_rate
from learncast.theory.dynamics.deep import closed_form
from learncast.theory.dynamics.descent import MOST_COUNTED
from learncast.theory.dynamics.gradient_flow import FlowSolution, flow_of
from learncast.theory.dynamics.learning_problem import LearningProblem, curvature
from learncast.theory.dynamics.modes import can_be_resampled
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import Solution
from learncast.theory.dynamics.steps.lag_descent import LagDescent
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, in_bases, joined, out_of_bases

if TYPE_CHECKING:
    from learncast.training.measured_accuracy import LossRange

#: Integration tolerance of flows, and of the solution that a forecast returns.
TOLERANCE, PRECISE = 1e-8, 1e-11
#: Resamples that are enough for means, which are compared on the same resamples.
MEAN_RESAMPLES = 24
#: Multiple of the estimated steps after which a resample counts as never learning, in strides and in single steps.
LATE, LATE_SINGLE = 10, 4
#: Learning rate x curvature of resampled descents: their steps differ from those of the flow by less than resamples do.
COARSE = 0.1
#: Strides or single steps that are counted for all resamples together.
MOST_RESAMPLE_MOVES = 20_000
#: Share of the resamples that are counted on alone after that.
FEW_LEFT = 0.1
#: Steps after which descent from a start that is too sharp has diverged, and the growth of weights that shows it.
TRIAL_STEPS, DIVERGED = 500, 1e8
#: Counts that are taken again from weights changed by a relative `ROUNDING`, and the share of the steps by which these
#: may differ.
RECOUNTS, ROUNDING, STEADY = 3, 1e-12, 1e-3
#: Places along descent at which the curvature is measured if its count depends on rounding.
PLACES = 200


class LinearMethod(Method):
    """Losses and gradients of a linear network from statistics. A state is the weights that learn, flattened."""

    promise = "integrated"
    resamples = 40
    network: Linear
    learn: tuple[str, ...]

    def __init__(self, tasks: Sequence[Task], network: Linear, training: Training, seed: int = 0) -> None:
        super().__init__(tasks, network, training)
        self.problems = [LearningProblem.of(_with_target_power(task), network, training.learn) for task in tasks]
        self.learn = self.problems[0].learn
        self.recorded = any(map(can_be_resampled, tasks))
        self._resampling_seed = seed

    @cached_property
    def start(self) -> FloatArray:
        return self._state_of(self.network)

    def _state_of(self, network: Linear) -> FloatArray:
        own = self.problems[-1]
        return own.flatten(replace(own, network=network).start)

    def _weights(self, state: FloatArray) -> dict[str, FloatArray]:
        """Weights of a state, by name."""
        own = self.problems[-1]
        return own.unflatten(state, own.start)

    def network_of(self, state: FloatArray) -> Linear:
        return self.network.with_weights(self._weights(state))

    @property
    def _settings(self) -> tuple[Any, ...]:
        return (self.learn, *((self._resampling_seed,) if self.recorded else ()))

    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        problem = self.problems[task]
        return problem.by_lag.loss_and_slopes(states)[0] - problem.least_loss

    def least_loss(self, task: int) -> float:
        return math.nan if self.tasks[task].target_covariance is None else self.problems[task].least_loss

    def baseline_loss(self, task: int) -> float:
        return self.problems[task].baseline_loss

    def _start_and_best(self, task: int) -> tuple[FloatArray, FloatArray]:
        problem = self.problems[task]
        return problem.strengths(problem.start), problem.best_strengths

    def strengths(self, states: FloatArray) -> FloatArray:
        """Diagonal of the map in the frame of the target's modes, (rows, modes)."""
        problem = self.problems[self.target]
        return np.stack([problem.strengths(self._weights(state)) for state in states])

    def learned(self, task: int, goal: Goal) -> Learned:
        problem, limit = self.problems[task], self.goal_excess(task, goal)
        if (pooled := problem.map_problem) is not None:
            return lambda maps: pooled.excess_of(maps) <= limit
        return lambda maps: problem.by_lag.losses(maps) <= problem.least_loss + limit

    def _flow(self, task: int, state: FloatArray) -> Solution:
        return self._integrate(task, state, TOLERANCE)

    def _integrate(self, task: int, state: FloatArray, tolerance: float) -> FlowSolution:
        problem = self.problems[task]
        own = problem if state is self.start else replace(problem, network=self.network_of(state))
        return replace(flow_of(own, self.learning_rate, tolerance), known_least=problem.least_loss)

    def flow_states(self, flow: Solution, times: FloatArray) -> FloatArray:
        return np.stack([self._state_of(cast(LinearRNN, flow.network_at(float(t)))) for t in times])

    def solution(self) -> Solution:
        return self._integrate(self.target, self.start, PRECISE)

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        problem = self.problems[task]
        goals = np.full(len(states), problem.least_loss + self.goal_excess(task, goal))
        return problem.by_lag.steps_to(states, goals, self.learning_rate, MOST_COUNTED)

    def most_counted(self, task: int, state: FloatArray) -> float:
        return float(MOST_COUNTED)

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        return np.stack(self.problems[task].by_lag.advance(states, stops, self.learning_rate))

    @cached_property
    def _resampled_by_lag(self) -> list[LagDescent]:
        """Each task's descent in every resample, one per row; a known task is the same in all."""
        every = []
        for task, problem in zip(self.tasks, self.problems, strict=True):
            draws = [problem.by_lag] * self.resamples
            if can_be_resampled(task):
                rng = np.random.default_rng(self._resampling_seed)  # tasks of the same trials are resampled identically
                tasks = (_with_target_power(resampled(task, rng)) for _ in draws)
                draws = [replace(problem, task=one).by_lag for one in tasks]
            power, cross = np.stack([d.power for d in draws]), np.stack([d.cross for d in draws])
            constant = np.stack([d.constant for d in draws])
            every.append(replace(problem.by_lag, power=power, cross=cross, constant=constant))
        return every

    @cached_property
    def _coarse_rate(self) -> float:
        """Learning rate of resamples: larger where descent is so slow that it follows the flow."""
        sharpest = max(
            float(curvature(p, p.unflatten(w, p.start)))
            for p in self.problems
            for w in (p.by_lag.start, p.by_lag.rest[0])
        )
        return max(self.learning_rate, COARSE / sharpest if 0 < sharpest < math.inf else 0.0)

    def _advance_resampled(self, task: int, states: FloatArray, stop: int) -> FloatArray:
        """States of every resample after some steps."""
        whole, left = divmod(stop * self.learning_rate, self._coarse_rate)
        (after,) = self._resampled_by_lag[task].advance(states, [int(whole)], self._coarse_rate)
        return self._resampled_by_lag[task].advance(after, [1], left)[0]

    def _count_resampled(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        """Steps of every row to the goal and the states then; late rows never arrive."""
        expected = self.train(task, self.start, self.start, goal)[0].descent
        problem, descent, rate = self.problems[task], self._resampled_by_lag[task], self._coarse_rate
        if not math.isfinite(expected):
            return np.full(len(states), math.nan), states
        if problem.map_problem is None:
            least = problem.by_lag.rest_losses(descent)
        else:
            best = PooledDescent(descent.power, descent.cross, self.network.hidden_size)
            least = descent.constant - best.baseline_loss
        goals = least + goal.excess(descent.constant - least, self.least_loss(task))
        share = rate / self.learning_rate
        steps, ends = descent.steps_to(states, goals, rate, int(LATE_SINGLE * expected / share) + 100)
        return np.where(np.isnan(steps), np.inf, np.ceil(share * steps)), ends


class PooledMethod(LinearMethod):
    """Fixed scalar recurrence: a network of layers on the pooled input, of any covariance and start.

    A state is all weights, flattened, each layer in the hidden directions that the layers around it use: descent never
    leaves these. Many states and resamples descend together. The flow of a Deep network has a closed form if its layers
    are balanced and aligned with the modes of the task.
    """

    name = "pooled"
    counts_many = True
    resamples = 100

    def __init__(self, tasks: Sequence[Task], network: Linear, training: Training, seed: int = 0) -> None:
        super().__init__(tasks, network, training, seed)
        if isinstance(network, Deep):
            self.name = "deep"
            if all(closed_form(problem) is not None for problem in self.problems):
                self.promise, self.kind = "exact", "theory"
        self._counts: dict[tuple[Any, ...], tuple[FloatArray, FloatArray]] = {}
        self._unsteady: dict[tuple[int, Goal, bytes], tuple[Assumption, ...]] = {}

    @cached_property
    def pooled(self) -> list[PooledProblem]:
        """Each task on the pooled input, in the span of all trials."""
        b = self.network.scalar_recurrence
        span = None if b is None else trial_span(self.tasks, b)
        return [PooledProblem.of(task, self.network, span) for task in self.tasks]

    @cached_property
    def descents(self) -> list[PooledDescent]:
        """Each task's descent."""
        return [p.descent for p in self.pooled]

    @property
    def _bases(self) -> list[FloatArray]:
        """Directions of the inputs, of each hidden layer and of the outputs in which weights move."""
        return self.pooled[-1].bases

    def _state_of(self, network: Linear) -> FloatArray:
        return joined(in_bases(network.layer_weights, self._bases))

    def _layers(self, state: FloatArray) -> list[FloatArray]:
        return out_of_bases(self.descents[-1].layers(state), self._bases, self.network.layer_weights[0])

    def _weights(self, state: FloatArray) -> dict[str, FloatArray]:
        own = self.problems[-1]
        return {**own.start, **dict(zip(own.layers, self._layers(state), strict=True))}

    def network_of(self, state: FloatArray) -> Linear:
        return self.network if state is self.start else self.network.with_layers(*self._layers(state))

    def excess_loss(self, task: int, states: FloatArray) -> FloatArray:
        return self.descents[task].excess(states)

    def baseline_loss(self, task: int) -> float:
        return float(self.descents[task].baseline_loss)

    def converged(self, task: int, state: FloatArray, rest: FloatArray) -> FloatArray:
        """Descend to the end: finite steps leave saddles of the flow, and unbalance the layers a little."""
        if self.nothing_to_learn(task, CONVERGED) or self.proved_never(task, state, CONVERGED):
            return rest
        steps, ends = self.steps_to(task, state[None], CONVERGED)
        return ends[0] if math.isfinite(steps[0]) else rest

    def proved_never(self, task: int, state: FloatArray, goal: Goal) -> bool:
        network, excess = self.network_of(state), self.goal_excess(task, goal)
        if super().proved_never(task, state, goal) or replace(self.pooled[task], network=network).never_reaches(excess):
            return True
        modes = closed_form(replace(self.problems[task], network=network))
        return modes is not None and modes.lost_for_ever(self.learning_rate) > excess

    def most_counted(self, task: int, state: FloatArray) -> float:
        return float(self.descents[task].most_counted(state[None], self.learning_rate))

    def _steps_to(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        # A forecast, its plan and the resamples of both ask for the same counts.
        key = task, goal, states.shape, states.tobytes()
        if key not in self._counts:
            going = self._bounded(states)  # weights that have diverged would set the pace of all
            steps, ends = np.full(len(states), np.inf), states.copy()
            if going.any():
                excess = self.goal_excess(task, goal)
                steps[going], ends[going] = self.descents[task].steps_to(states[going], excess, self.learning_rate)
            self._counts[key] = steps, np.where(np.isfinite(ends), ends, 0.0)
        steps, ends = self._counts[key]
        return steps.copy(), ends

    def advance(self, task: int, states: FloatArray, stops: Sequence[int]) -> FloatArray:
        after = np.stack(self.descents[task].advance(states, stops, self.learning_rate))
        return np.where(np.isfinite(after), after, 0.0)

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        """The closed form's conditions, if there is one, scalar recurrence, and a learning rate that can settle.

        Above the rate that the flattest optimum allows, descent settles nowhere. A start that is too sharp may be left
        for a flatter place or diverge, which is tried.
        """
        sharp = [self.descents[task].flattest]
        if self._diverges(task):
            sharp.append(self.descents[task].sharpness(self.start[None]))
        modes, rate = closed_form(self.problems[task]), stable_learning_rate(self.learning_rate, np.array(sharp))
        return (*(() if modes is None else modes.assumptions), self.pooled[task].scalar_recurrence, rate)

    def steady(self, task: int, state: FloatArray) -> bool:
        return self.descents[task].falls(state[None], self.learning_rate)

    def unsteady(self, task: int, state: FloatArray, goal: Goal) -> tuple[Assumption, ...]:
        key = task, goal, state.tobytes()
        if key not in self._unsteady:
            self._unsteady[key] = self._measure_unsteady(task, state, goal)
        return self._unsteady[key]

    def _measure_unsteady(self, task: int, state: FloatArray, goal: Goal) -> tuple[Assumption, ...]:
        """The learning rate at the largest curvature that descent meets, if its count depends on rounding."""
        if self.steady(task, state):
            return ()
        near = state * (1 + ROUNDING * np.random.default_rng(0).standard_normal((RECOUNTS, *state.shape)))
        (steps,), counts = (self.steps_to(task, states, goal)[0] for states in (state[None], near))
        if not math.isfinite(steps) or (np.abs(counts - steps) <= max(1.0, STEADY * steps)).all():
            return ()
        stops = np.unique(np.linspace(0, steps, PLACES).astype(int)).tolist()
        way = self.advance(task, state[None], stops)[:, 0]
        sharp = np.array([curvature(self.problems[task], self._weights(at)) for at in way])
        return (stable_learning_rate(self.learning_rate, sharp),)

    def _train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None
    ) -> tuple[Steps, FloatArray]:
        steps, end = super()._train(task, flow_state, state, goal, flow)
        if steps.status is Status.ok and not exact(self.unsteady(task, state, goal)):
            steps = replace(steps, status=Status.outside_theory)
        return steps, end

    def _diverges(self, task: int) -> bool:
        """Whether descent from the start diverges; tried only if the start is too sharp for the learning rate."""
        descent, start = self.descents[task], self.start[None]
        if self.learning_rate * descent.sharpness(start) <= 2.0:
            return False
        end = descent.advance(start, [TRIAL_STEPS], self.learning_rate)[0]
        return not self._bounded(end)[0]

    def _bounded(self, states: FloatArray) -> NDArray[np.bool_]:
        """Whether the weights of states (rows, ...) have not diverged."""
        limit = DIVERGED * max(float(np.abs(self.start).max()), *(d.size for d in self.descents))
        return np.asarray(np.abs(states).max(axis=1) < limit)

    def _integrate(self, task: int, state: FloatArray, tolerance: float) -> FlowSolution:
        return replace(super()._integrate(task, state, tolerance), conditions=self.conditions(task))

    def largest_rate(self, task: int) -> float:
        """Two over the curvature at the balanced optimum."""
        return 2.0 / self.descents[task].curvature if self.descents[task].curvature > 0 else math.nan

    def loss_range(self, task: int, end: FloatArray) -> LossRange:
        from learncast.training.measured_accuracy import LossRange

        pooled, own = self.pooled[task], self.tasks[task]
        if pooled.scalar_recurrence.holds and self.network.hidden_size >= min(own.inputs, own.outputs):
            return LossRange.pooled(own, pooled.recurrence)
        return super().loss_range(task, end)

    @cached_property
    def _resampled_descents(self) -> list[PooledDescent]:
        """Each task's descent in every resample, one per row; a known task is the same in all."""
        every = []
        for task, own in zip(self.tasks, self.pooled, strict=True):
            b, draws = own.recurrence, [(own.descent.cross.T, own.descent.power)] * self.resamples
            if can_be_resampled(task):
                rng = np.random.default_rng(self._resampling_seed)  # tasks of the same trials are resampled identically
                pooled, draws = pooled_recording(task, b) if own.span is None else in_span(task, b, own.span), []
                for _ in range(self.resamples):
                    check_time()
                    draws.append(pooled_statistics(resampled(pooled, rng), b))
            power, cross = np.stack([power for _, power in draws]), np.stack([cross.T for cross, _ in draws])
            every.append(replace(own.descent, power=power, cross=cross))
        return every

    def _advance_resampled(self, task: int, states: FloatArray, stop: int) -> FloatArray:
        after = self._resampled_descents[task].advance(states, [stop], self.learning_rate, precise=False)[0]
        return np.where(np.isfinite(after), after, 0.0)

    def _count_resampled(self, task: int, states: FloatArray, goal: Goal) -> tuple[FloatArray, FloatArray]:
        return self._count_resamples(self._resampled_descents[task], task, states, goal)

    def _count_resamples(
        self, descent: PooledDescent, task: int, states: FloatArray, goal: Goal
    ) -> tuple[FloatArray, FloatArray]:
        """Steps of every row to the goal and the states then; late rows never arrive, diverged ones stay at zero.

        The steps are unknown if those of the recorded trials are too many to count.
        """
        direct = self.train(task, self.start, self.start, goal)[0]
        if math.isnan(direct.descent):
            return np.full(len(states), math.nan), states
        most = int(LATE * direct.descent) + 1000 if math.isfinite(direct.descent) else MOST_COUNTED
        limits = goal.excess(descent.baseline_loss, self.least_loss(task))
        steps, ends = np.full(len(states), np.inf), states.copy()
        some = np.flatnonzero(limits >= 0)  # the others are below the least loss
        if len(some):
            rows, rate = descent.rows(some), self.learning_rate
            begin = states[some]
            counted = min(most, rows.most_counted(begin, rate, MOST_RESAMPLE_MOVES))
            steps[some], ends[some] = rows.steps_to(begin, limits[some], rate, counted, precise=False)
            left = np.flatnonzero(np.isnan(steps))
            if counted < most and 0 < len(left) <= FEW_LEFT * len(states):
                last, begin = descent.rows(left), ends[left]
                more = min(most - counted, last.most_counted(begin, rate))
                steps[left], ends[left] = last.steps_to(begin, limits[left], rate, more, precise=False)
                steps[left] += counted
                counted += more
            if counted == most or 2 * len(left) < len(states):  # the others are late; otherwise they are unknown
                steps[np.isnan(steps)] = np.inf
        return steps, np.where(np.isfinite(ends), ends, 0.0)

    def resample_stops(self, order: Sequence[int], lengths: Sequence[Sequence[int]], goal: Goal) -> FloatArray:
        """Fewer resamples than `resample` uses; one stage before the target descends once for all its lengths."""
        if len(order) != 1:
            return super().resample_stops(order, lengths, goal)
        some, stops = np.arange(MEAN_RESAMPLES), sorted({n for (n,) in lengths})
        start = np.repeat(self.start[None], MEAN_RESAMPLES, axis=0)
        first = self._resampled_descents[order[0]].rows(some)
        ends = first.advance(start, stops, self.learning_rate, precise=False)
        states = np.concatenate([ends[stops.index(n)] for (n,) in lengths])
        states = np.where(np.isfinite(states), states, 0.0)
        descent = self._resampled_descents[self.target].rows(np.tile(some, len(lengths)))
        rest = self._count_resamples(descent, self.target, states, goal)[0].reshape(len(lengths), -1)
        spent = np.repeat(np.array(lengths, dtype=float), MEAN_RESAMPLES, axis=1)
        return np.stack([spent, rest], axis=1)


class FlowMethod(LinearMethod):
    """Any linear network and any weights that learn: gradient flow, integrated."""

    name = "flow"

    def _train(
        self, task: int, flow_state: FloatArray, state: FloatArray, goal: Goal, flow: Solution | None
    ) -> tuple[Steps, FloatArray]:
        """Count descent that takes many steps in strides: the flow tells how sharp the loss is on the way."""
        flow = self.flow(task, flow_state) if flow is None else flow
        steps, end = super()._train(task, flow_state, state, goal, flow)
        if math.isnan(steps.descent) and math.isfinite(steps.flow) and isinstance(flow, FlowSolution):
            limit, rate = self.problems[task].least_loss + self.goal_excess(task, goal), self.learning_rate
            by_lag, sharpest = self.problems[task].by_lag, float(flow.curvatures_until(steps.flow).max())
            counted, end = by_lag.strides_to(state, limit, rate, int(2 * steps.flow) + 1000, sharpest)
            steps = replace(steps, descent=counted)
        return steps, end


def _with_target_power(task: Task) -> Task:
    """Return the task with the least target covariance that its other statistics allow, if it has none.

    The variance of targets that inputs do not explain adds the same to every loss, so no excess loss depends on it.
    """
    if task.target_covariance is not None:
        return task
    inputs, cross = task.input_covariance, task.cross_covariance
    steps, channels, readouts, outputs = cross.shape
    flat = cross.dense().reshape(steps * channels, readouts * outputs)
    power = inputs.dense().reshape(steps * channels, steps * channels)
    explained = best_map(power, flat.T) @ flat
    target = Dense(((explained + explained.T) / 2).reshape(readouts, outputs, readouts, outputs))
    return Task.trusted(inputs, cross, target, name=task.name, trials=task.trials)
