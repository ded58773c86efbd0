"""Stages of training, carried out by a method: their steps, states and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray
from learncast.planning.methods.method import CONVERGED, LIMIT, Method
from learncast.procedure.goals import Goal
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import STEPS, Provenance, Status, Steps, Trajectory, described
from learncast.tasks.task import Task
from learncast.theory.assumptions import Trust, worst
from learncast.theory.dynamics.modes import Modes
from learncast.theory.dynamics.solution import Solution, checked_times, status_of, worst_status

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class StageForecast:
    """Forecast of one stage.

    Attributes
    ----------
    stage : Stage
    steps : Steps
    accuracy : float
        Accuracy on the stage's own task at its end.
    start, end : (modes,)
        Strengths before and after, by the flow.
    """

    stage: Stage
    steps: Steps
    accuracy: float
    _strengths: Callable[[], FloatArray]

    @cached_property
    def start(self) -> FloatArray:
        return self._strengths()[0]

    @cached_property
    def end(self) -> FloatArray:
        return self._strengths()[1]

    @property
    def task(self) -> Task:
        """What is trained."""
        return self.stage.task


@dataclass(frozen=True, eq=False)
class SequenceRun:
    """Stages carried out by a method, with everything needed to look at them again.

    Attributes
    ----------
    stages : tuple of StageForecast
    flows : tuple of Solution
        Gradient flow of each stage from where the stage begins.
    states, descent_states : tuple of array
        States of the method before the first stage and after each stage, by the flow and by descent.
    """

    stages: tuple[StageForecast, ...]
    flows: tuple[Solution, ...]
    states: tuple[FloatArray, ...]
    descent_states: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False, repr=False)
class StageSequence:
    """Stages of training on a pool of tasks, carried out by a method.

    Attributes
    ----------
    method : Method
        How these tasks are learned by this network.
    requested : tuple of Stage
        The stages.
    places : tuple of int
        Index of each stage's task in the method's pool.
    batch : int or None
        Trials per step of the counts that are reported; None for full batches. Flows are those of full batches.
    """

    method: Method
    requested: tuple[Stage, ...]
    places: tuple[int, ...]
    batch: int | None = None

    @property
    def training(self) -> Training:
        """How the network is trained."""
        return self.method.training

    @property
    def learning_rate(self) -> float:
        """Learning rate."""
        return self.method.learning_rate

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Task of each stage."""
        return tuple(stage.task for stage in self.requested)

    @property
    def target(self) -> Task:
        """Task of the last stage."""
        return self.requested[-1].task

    @property
    def goal(self) -> Goal | None:
        """Goal of the last stage; None if it is given by steps."""
        return self.requested[-1].goal

    @cached_property
    def run(self) -> SequenceRun:
        """The stages, carried out."""
        return _carry_out(self.method.precise, self.requested, self.places)

    @property
    def total(self) -> Steps:
        """Steps of all stages together, without an interval."""
        each = [s.steps for s in self.run.stages]
        descent = math.inf if any(math.isinf(s.descent) for s in each) else float(sum(s.descent for s in each))
        flow, status = float(sum(s.flow for s in each)), worst_status(s.status for s in each)
        late = next((k for k, s in enumerate(each) if s.status is Status.not_within), None)
        tried, loss = math.nan, math.nan
        if late is not None:  # the steps before it were taken too
            tried, loss = each[late].tried + sum(s.descent for s in each[:late]), each[late].loss
        return Steps(descent, flow, status=status, tried=tried, loss=loss)

    @cached_property
    def solution(self) -> Solution:
        """Gradient flow of direct training on the target, as a function of time."""
        return self.method.solution()

    @cached_property
    def trust(self) -> Trust:
        """How far the forecast can be trusted: the conditions at the start, and of each stage up to its stop.

        If descent was tried for longer without reaching the stop, they are those of the flow up to there. If rounding
        changes the steps of descent, they are those along descent.
        """
        own = self.method.trust(self.places)
        names = {a.name for a in own.assumptions}
        ends = zip(self.run.flows, self.run.stages, strict=True)
        later = [
            [a for a in flow.conditions_until(float(np.fmax(s.steps.flow, s.steps.tried))) if a.name in names]
            for flow, s in ends
        ]
        promise = "flow" if own.promise == "exact" and self.ends_at_saddle else own.promise
        m, counted = self.method.precise, zip(self.places, self.run.descent_states, self.run.stages, strict=False)
        outside = ((k, at, s.stage.goal) for k, at, s in counted if s.steps.status is Status.outside_theory)
        unsteady = [m.unsteady(k, at, goal) for k, at, goal in outside if goal is not None]
        return Trust(worst([[a for a in own.assumptions if a.name != LIMIT], *later, *unsteady]), promise)

    @property
    def ends_at_saddle(self) -> bool:
        """Whether a stage to convergence ends on a saddle of the flow, which descent may leave."""
        m, stages = self.method.precise, zip(self.places, self.run.states, self.run.flows, self.requested, strict=False)
        return any(
            stage.steps == math.inf and m.rests_at_saddle(k, at, flow) and not m.proved_never(k, at, CONVERGED)
            for k, at, flow, stage in stages
        )

    @property
    def forecast_class(self) -> str:
        """What may be promised: a key of `learncast.results.FORECAST_CLASSES`."""
        return self.trust.forecast_class

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on stages that never learn a mode, and on the recorded trials of a stage."""
        recorded = (t.recording.sentences(t.trials or 0, t.target_power) if t.recording else () for t in self.tasks)
        return (*self.switch_remarks, *self._by_stage(recorded))

    @property
    def switch_remarks(self) -> tuple[str, ...]:
        """Notes on stages that never learn a mode."""
        return self._by_stage(flow.remarks for flow in self.run.flows)

    def _by_stage(self, notes: Iterable[Iterable[str]]) -> tuple[str, ...]:
        stages = enumerate(zip(self.requested, notes, strict=True), start=1)
        return tuple(f"stage {k} ({stage.task.name}): {note}" for k, (stage, own) in stages for note in own)

    @property
    def modes(self) -> tuple[Modes, ...]:
        """Each stage's task in the common frame; empty if there are no common modes."""
        return tuple(self.method.modes[k] for k in self.places) if self.method.modes else ()

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        parts = ((k, repr(s.goal), s.steps) for k, s in zip(self.places, self.requested, strict=True))
        return self.method.provenance(self.batch, *parts)

    def at(self, times: ArrayLike) -> Trajectory:
        """Strengths and losses at times in gradient steps of the flow, across the stages.

        Descent is followed instead through a stage in which it leaves a saddle at which the flow rests.
        ``loss`` and ``excess_loss`` are those of the task being trained, ``target_loss`` and ``target_excess_loss``
        those of the target; ``stage`` is the index of the stage.
        """
        steps, m = checked_times(times), self.method.precise
        ends = np.cumsum([self._followed(k) for k in range(len(self.places))])
        index = np.minimum(np.searchsorted(ends, steps, side="left"), len(ends) - 1)
        begins = np.concatenate([[0.0], ends[:-1]])
        states = np.empty((len(steps), *m.start.shape))
        own = np.empty(len(steps))
        for k, place in enumerate(self.places):
            here = np.flatnonzero(index == k)
            if len(here):
                with np.errstate(invalid="ignore"):
                    local = np.where(np.isinf(steps[here]), np.inf, steps[here] - begins[k])
                states[here] = self._states(k, local)
                own[here] = m.excess_loss(place, states[here])
        none = np.empty(0)
        target = m.excess_loss(m.target, states) if len(steps) else none
        strength = m.strengths(states) if len(steps) else np.empty((0, m.strengths(m.start[None]).shape[1]))
        least = np.array([m.least_loss(k) for k in self.places])[index]
        return Trajectory.of(
            steps,
            {
                "strength": strength,
                "loss": own + least,
                "excess_loss": own,
                "target_loss": target + m.least_loss(m.target),
                "target_excess_loss": target,
            },
            self.provenance,
            coords={"stage": ("time", index, described("stage in training", "1"))},
            learning_rate=self.learning_rate,
            stages=" | ".join(task.name for task in self.tasks),
        )

    def _followed(self, stage: int) -> float:
        """Steps of a stage on the curve that is shown: of the flow, or of descent if it leaves the flow's saddle."""
        steps = self.run.stages[stage].steps
        return steps.descent if math.isinf(steps.flow) and math.isfinite(steps.descent) else steps.flow

    def _states(self, stage: int, times: FloatArray) -> FloatArray:
        """States at times within a stage."""
        m, place, steps = self.method.precise, self.places[stage], self.run.stages[stage].steps
        flow, rest = self.run.flows[stage], np.isinf(times)
        if self._followed(stage) == steps.flow or rest.all():
            return m.flow_states(flow, times)
        stops, which = np.unique(np.rint(times[~rest]).astype(int), return_inverse=True)
        begun = self.run.descent_states[stage]
        states = np.empty((len(times), *m.start.shape))
        states[~rest] = m.advance(place, begun[None], stops.tolist())[which, 0]
        if rest.any():
            states[rest] = m.converged(place, begun, m.after_flow(place, self.run.states[stage], math.inf, flow))
        return states

    def losses(self, *, descent: bool = True) -> xr.DataArray:
        """Loss of every stage's task before training and after every stage, (stage, task); stage ``"start"`` first.

        After the steps of gradient descent, or of the flow. The excess loss if the target variance is unknown.
        """
        import xarray as xr

        m, names = self.method.precise, [task.name for task in self.tasks]
        states = np.stack([m.start, *(self.run.descent_states if descent else self.run.states)[1:]])
        unknown = any(math.isnan(m.least_loss(k)) for k in self.places)
        steps = [s.steps.descent if descent else s.steps.flow for s in self.run.stages]
        return xr.DataArray(
            np.stack([m.loss(k, states) for k in self.places], axis=1),
            dims=("stage", "task"),
            coords={"stage": ["start", *names], "task": names, "steps": ("stage", [0.0, *steps])},
            name="loss",
            attrs=described("loss above the best linear map's" if unknown else "half mean squared error", "target^2"),
        )

    @property
    def forgetting(self) -> xr.DataArray:
        """Change of every task's loss over every stage, (stage, task); positive values are forgetting."""
        change = self.losses().diff("stage", label="upper")
        return change.rename("forgetting").assign_attrs(described("change of loss over the stage", "target^2"))

    def curves(self, *, points: int = 200, horizon: float | Sequence[float] | None = None) -> xr.Dataset:
        """Loss of every task at times across all stages by the flow, (time, task), with the stage in training.

        Parameters
        ----------
        points : int
            Per stage.
        horizon : float or sequence of float, optional
            Steps to show of stages that run to convergence; by default until the loss of every task is within 1% of
            its end, so that the next stage begins where this one is left.
        """
        import xarray as xr

        m, times, values, stage, begun = self.method.precise, [], [], [], 0.0
        for k in range(len(self.places)):
            given = None if horizon is None else np.broadcast_to(horizon, len(self.requested))[k]
            span = self._followed(k)
            local = np.linspace(0.0, span if math.isfinite(span) else (given or self._settling(k)), points)
            span, states = local[-1], self._states(k, local)
            values.append(np.stack([m.loss(place, states) for place in self.places], axis=1))
            times.append(begun + local)
            stage.append(np.full(points, k))
            begun += span
        return xr.Dataset(
            {"loss": (("time", "task"), np.concatenate(values), self.losses().attrs)},
            coords={
                "time": ("time", np.concatenate(times), described("training time", STEPS)),
                "task": [task.name for task in self.tasks],
                "stage": ("time", np.concatenate(stage).astype(int), described("stage in training", "1")),
            },
        )

    def _settling(self, stage: int) -> float:
        """Steps of a stage to convergence until every loss is within 1% of its end, at most 64 `settling` times."""
        m, flow = self.method.precise, self.run.flows[stage]
        span = settling(flow)
        spans = span * 2 ** np.linspace(0.0, 6.0, 25)
        states = np.concatenate([m.flow_states(flow, spans), self.run.states[stage + 1][None]])
        losses = np.stack([m.loss(place, states) for place in self.places], axis=1)
        settled = (np.abs(losses[:-1] - losses[-1]) <= 0.01 * np.abs(losses).max()).all(axis=1)
        return float(spans[np.argmax(settled)]) if settled.any() else span


def _carry_out(method: Method, stages: Sequence[Stage], places: Sequence[int]) -> SequenceRun:
    """Train through the stages; the flow and descent each continue from where they themselves ended."""
    flow_state = descent_state = method.start
    found: list[StageForecast] = []
    flows: list[Solution] = []
    counting, states, descent_states = True, [method.start], [method.start]
    for stage, place in zip(stages, places, strict=True):
        flow = method.flow(place, flow_state)
        if stage.goal is not None and found and found[-1].stage.steps == math.inf:
            at = zip(places, [*flows, flow], states, strict=False)
            if any(method.rests_at_saddle(k, state, one) for k, one, state in at):
                descent_state = _converged(method, [s.stage for s in found], places, descent_states)
                descent_states[-1] = descent_state
        steps, descent_state = _train(method, place, stage, flow_state, descent_state, flow)
        if not method.has_flow or stage.steps == math.inf:
            after = descent_state
        else:
            after = flow_state if math.isnan(steps.flow) else method.after_flow(place, flow_state, steps.flow, flow)
        if not counting:  # an earlier stage has no known end
            steps = replace(steps, descent=math.inf if steps.status is Status.not_learned else math.nan)
        counting = counting and (math.isfinite(steps.descent) or stage.goal is None)
        strengths = partial(method.strengths, np.stack([flow_state, after]))
        counted = math.isfinite(steps.descent) and bool(np.isfinite(descent_state).all())
        given, past_saddle = stage.goal is None, math.isinf(steps.flow)
        reached = descent_state if counted and (given or past_saddle) else after
        accuracy = float(method.accuracy(place, reached[None])[0])
        found.append(StageForecast(stage, steps, accuracy, strengths))
        flow_state = after
        flows.append(flow)
        states.append(flow_state)
        descent_states.append(descent_state)
    return SequenceRun(tuple(found), tuple(flows), tuple(states), tuple(descent_states))


def _converged(
    method: Method, stages: Sequence[Stage], places: Sequence[int], states: Sequence[FloatArray]
) -> FloatArray:
    """State of descent after stages of which the last are to convergence, if it does not rest where the flow does.

    Finite steps leave saddles of the flow. How they leave the next one depends on how they came there.
    """
    first = max((k + 1 for k, stage in enumerate(stages) if stage.steps != math.inf), default=0)
    state = states[first]
    for place, rest in zip(places[first:], states[first + 1 :], strict=False):
        state = method.converged(place, state, rest)
    return state


def _train(
    method: Method, place: int, stage: Stage, flow_state: FloatArray, state: FloatArray, flow: Solution
) -> tuple[Steps, FloatArray]:
    """Steps of a stage, and the state of descent after them; a stage to convergence ends where the flow rests."""
    if stage.goal is not None:
        return method.train(place, flow_state, state, stage.goal, flow)
    assert stage.steps is not None
    given = float(stage.steps)
    status = status_of(0.0, 0.0, flow.conditions_until(given))
    if math.isinf(given):
        return Steps(given, given, status=status), method.after_flow(place, flow_state, given, flow)
    whole = math.ceil(given)
    end = method.advance(place, state[None], [whole])[0, 0]
    return Steps(float(whole), given, status=status), end


def format_accuracy(value: float) -> str:
    """Return an accuracy with four digits; of a start that is worse than no answer, only that."""
    return "below 0" if value < 0 else f"{value:.4g}"


def settling(flow: Solution) -> float:
    """Steps until the loss has covered 99% of its change, and a third more."""
    first, last = flow.at([0.0, math.inf])["excess_loss"].values
    if not first > last * (1 + 1e-9):
        return 1.0 / flow.learning_rate
    near = float(last + 0.01 * (first - last))
    if near <= 0:  # rectified units that changed their signs fall below the least loss of the signs at the start
        return 1.0 / flow.learning_rate
    time = flow.time_to_loss(near)
    return 1.3 * time if math.isfinite(time) and time > 0 else 1.0 / flow.learning_rate
