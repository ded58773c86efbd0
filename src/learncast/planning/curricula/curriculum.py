"""A curriculum: tasks learned one after another by the same network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from learncast import assumptions as conditions
from learncast.assumptions import Assumption, exact, require, worst
from learncast.dynamics import mode_equation
from learncast.dynamics.modes import Modes
from learncast.dynamics.solution import LearningTime, checked_times, worst_status
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curricula.explanation import Explanation, explain
from learncast.planning.curricula.passage import Problem
from learncast.planning.curricula.replicas import ReplicaSteps, ends_of, replicated
from learncast.responses.bootstrap import bounds
from learncast.responses.modes import ResponseModes, has_one_response, modes_seen_by, solution_of
from learncast.responses.response import check_network
from learncast.responses.trials import seed_of
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, save_dataset, spec_hash
from learncast.validation import FloatArray, between, positive


@dataclass(frozen=True)
class Stage:
    """Training on one task until an accuracy is reached, or for a number of steps.

    Parameters
    ----------
    task : Task
    accuracy : float, optional
        Stop when every mode is within 1 - accuracy of its optimum on this task.
    steps : float, optional
        Or stop after this many gradient steps.
    """

    task: Task
    accuracy: float | None = None
    steps: float | None = None

    def __post_init__(self) -> None:
        if (self.accuracy is None) == (self.steps is None):
            raise InvalidSpec(
                required="a stage must have either an accuracy or a number of steps",
                got=f"accuracy={self.accuracy}, steps={self.steps}",
                why="it needs exactly one rule to stop",
                remedy="give one of them",
            )
        if self.accuracy is not None:
            between("accuracy", self.accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        elif self.steps != 0:
            positive("steps", self.steps, why="training takes time")


@dataclass(frozen=True, eq=False)
class StageOutcome:
    """What one stage of a curriculum did.

    Attributes
    ----------
    flow_steps, descent_steps : float
        Duration; the one a real number, the other whole.
    start, end : (modes,)
        Strengths before and after, by the flow.
    accuracy : float
        Accuracy on the stage's own task at its end, that of the worst mode.
    interval : (low, high), optional
        95% confidence interval of the flow steps, where the statistics were measured on trials.
    """

    stage: Stage
    flow_steps: float
    descent_steps: float
    start: FloatArray
    end: FloatArray
    accuracy: float
    status: Status
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Curriculum:
    """An exact forecast of training on several tasks in sequence; the last one is the target.

    Attributes
    ----------
    outcomes : tuple of StageOutcome
    direct : LearningTime or None
        Training on the target alone from the same start; None when the last stage is given by steps.
    modes : tuple of Modes
        Each stage's task in the common frame.
    replicas : ReplicaSteps or None
        Where statistics were measured on trials: what intervals are made of.
    """

    outcomes: tuple[StageOutcome, ...]
    direct: LearningTime | None
    modes: tuple[Modes, ...]
    learning_rate: float
    replicas: ReplicaSteps | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of the flow steps; None where nothing was measured."""
        return None if self.replicas is None else ends_of(self.replicas.flow.sum(axis=0))

    @property
    def descent_interval(self) -> tuple[float, float] | None:
        """The same of the descent steps."""
        return None if self.replicas is None else ends_of(self.replicas.descent.sum(axis=0))

    @property
    def direct_interval(self) -> tuple[float, float] | None:
        """The same of direct training."""
        return None if self.replicas is None else ends_of(self.replicas.direct)

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The same of the flow steps saved: sharper than the difference of two intervals."""
        if self.replicas is None:
            return None
        with np.errstate(invalid="ignore"):
            return ends_of(self.replicas.direct - self.replicas.flow.sum(axis=0))

    @property
    def flow_steps(self) -> float:
        """Flow steps of all stages together."""
        return float(sum(o.flow_steps for o in self.outcomes))

    @property
    def descent_steps(self) -> float:
        """Descent steps of all stages together."""
        return float(sum(o.descent_steps for o in self.outcomes))

    @property
    def status(self) -> Status:
        """Status of the whole."""
        return worst_status(o.status for o in self.outcomes)

    @property
    def speedup_steps(self) -> float:
        """Flow steps saved against training on the target alone; negative when it costs."""
        direct = float("nan") if self.direct is None else self.direct.flow_steps
        return difference(direct, self.flow_steps)

    @property
    def speedup_ratio(self) -> float:
        """Direct training time over the curriculum's; above 1 when it helps."""
        direct = float("nan") if self.direct is None else self.direct.flow_steps
        return ratio(direct, self.flow_steps)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """For each condition the worst measured over the stages."""
        return worst(
            (*m.assumptions, _stability(m, o.start, self.learning_rate))
            for m, o in zip(self.modes, self.outcomes, strict=True)
        )

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        if not exact(self.assumptions):
            return "outside"
        return "response" if any(isinstance(m, ResponseModes) for m in self.modes) else "exact"

    @cached_property
    def why(self) -> Explanation | None:
        """The three terms of eq. (16), for a curriculum of two tasks."""
        if len(self.outcomes) != 2 or self.direct is None:
            return None
        one, two = self.modes
        k = int(np.argmax(self.direct.mode_flow_steps))
        target_accuracy = self.outcomes[1].stage.accuracy
        assert target_accuracy is not None  # direct is None otherwise
        return explain(
            mode=k,
            start=float(one.start[k]),
            end=float(self.outcomes[0].end[k]),
            first=(float(one.weighted_cross[k]), float(one.weighted_input[k])),
            second=(float(two.weighted_cross[k]), float(two.weighted_input[k])),
            tolerance=float(1 - one.accuracy(self.outcomes[0].end)[k]),
            target_tolerance=1 - target_accuracy,
            learning_rate=self.learning_rate,
            names=(one.task.name, two.task.name),
        )

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        parts = [
            (m.task.hash, repr(o.stage.accuracy), repr(o.stage.steps))
            for m, o in zip(self.modes, self.outcomes, strict=True)
        ]
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), spec_hash(*parts, self.learning_rate))

    def at(self, times: Any) -> Trajectory:
        """Strengths and losses at times in gradient steps of the flow, across the stages.

        ``loss`` is that of the task being trained, ``target_loss`` that of the last task; ``stage`` says which
        one is trained.
        """
        steps = checked_times(times)
        ends = np.cumsum([o.flow_steps for o in self.outcomes])
        index = np.minimum(np.searchsorted(ends, steps, side="left"), len(ends) - 1)
        begins = np.concatenate([[0.0], ends[:-1]])
        strengths = np.empty((len(steps), len(self.modes[0])))
        loss = np.empty(len(steps))
        target_loss = np.empty(len(steps))
        for k, (outcome, m) in enumerate(zip(self.outcomes, self.modes, strict=True)):
            here = index == k
            if not here.any():
                continue
            with np.errstate(invalid="ignore"):
                local = np.where(np.isinf(steps[here]), np.inf, steps[here] - begins[k])
            strengths[here] = _problem(m).strength(local * self.learning_rate, outcome.start)
            loss[here] = m.loss(strengths[here])
        target_loss[:] = self.modes[-1].loss(strengths)
        dataset = xr.Dataset(
            {
                "strength": (
                    ("time", "mode"),
                    strengths,
                    described("strength u of each mode", "1"),
                ),
                "loss": ("time", loss, described("loss of the task in training", "target^2")),
                "target_loss": (
                    "time",
                    target_loss,
                    described("loss of the target task", "target^2"),
                ),
            },
            coords={
                "time": ("time", steps, described("training time", STEPS)),
                "mode": ("mode", np.arange(strengths.shape[1])),
                "stage": ("time", index, described("stage in training", "1")),
            },
            attrs={
                "learning_rate": self.learning_rate,
                "stages": " | ".join(m.task.name for m in self.modes),
            },
        )
        return Trajectory(dataset, self.provenance)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Numbers of every stage, labelled."""
        per_stage = {
            "flow_steps": ([o.flow_steps for o in self.outcomes], "flow duration", STEPS),
            "descent_steps": ([o.descent_steps for o in self.outcomes], "predicted descent duration", STEPS),
            "accuracy": ([o.accuracy for o in self.outcomes], "accuracy at the end, worst mode", "1"),
        }
        variables: dict[str, Any] = {
            name: ("stage", np.array(values), described(text, units))
            for name, (values, text, units) in per_stage.items()
        }
        for name in ("start", "end"):
            values = np.stack([getattr(o, name) for o in self.outcomes])
            variables[f"{name}_strength"] = (
                ("stage", "mode"),
                values,
                described(f"strength at the {name}", "1"),
            )
        direct = float("nan") if self.direct is None else self.direct.flow_steps
        for name, value, units in (
            ("total_steps", self.flow_steps, STEPS),
            ("direct_steps", direct, STEPS),
            ("speedup_steps", self.speedup_steps, STEPS),
            ("speedup_ratio", self.speedup_ratio, "1"),
        ):
            variables[name] = ((), value, described(name.replace("_", " "), units))
        variables |= self._interval_variables()
        return xr.Dataset(
            variables,
            coords={
                "task": ("stage", [o.stage.task.name for o in self.outcomes]),
                "status": ("stage", [o.status.name for o in self.outcomes]),
            },
        )

    def _interval_variables(self) -> dict[str, Any]:
        """Ends of the intervals, for the dataset; none where nothing was measured."""
        if self.replicas is None:
            return {}
        found: dict[str, Any] = {}
        stage = bounds(self.replicas.flow.T)
        whole = {
            "total_steps": self.interval,
            "direct_steps": ends_of(self.replicas.direct),
            "speedup_steps": self.speedup_interval,
        }
        for k, end in enumerate(("low", "high")):
            note = f"{end} end of its interval"
            found[f"flow_steps_{end}"] = ("stage", stage[k], described(f"flow duration, {note}", STEPS))
            for name, ends in whole.items():
                assert ends is not None
                found[f"{name}_{end}"] = ((), ends[k], described(f"{name.replace('_', ' ')}, {note}", STEPS))
        return found

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the stages' numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="curriculum", provenance=self.provenance)

    def __repr__(self) -> str:
        parts = " -> ".join(f"{o.stage.task.name} ({o.flow_steps:.6g})" for o in self.outcomes)
        within = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return (
            f"<Curriculum {parts}: {self.flow_steps:.6g} flow steps{within}, speedup {self.speedup_steps:.6g}, "
            f"{self.forecast_class}>"
        )


def follow(
    stages: Sequence[Stage],
    network: LinearRNN | TwoLayer | Activated,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    rng: np.random.Generator | int = 0,
) -> Curriculum:
    """Forecast training on several tasks in sequence, exactly.

    Tasks that share the modes of one frame are followed mode by mode. Others are followed by the exact flow of a
    two-layer network where that holds, and by the integrated flow when asked for; accuracies are then of the loss.

    An `Activated` network is followed through its measured responses, with confidence intervals: in closed form where
    its ReLU units share one response, integrated otherwise.

    Parameters
    ----------
    stages : sequence of Stage
        In order; the last is the target, against whose direct training the speedup is measured.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
        Step size of gradient descent.
    learn : tuple of str, optional
        Weights that learn; input and output weights (both layers) by default. Others need ``by="flow"``.
    by : {"auto", "modes", "two-layer", "flow"}
        How to follow them: by modes or the two-layer flow, whichever is exact, or the way that is named.
    strict : bool
        Raise when a condition of the theory fails for any stage.
    rng : numpy.random.Generator or int
        Activated networks: generator or seed of the trials on which responses are measured, the same for every task.

    Implements: curriculum2025 Eq. (13), for any number of stages
    Implements: curriculum2025 Eq. (15), the speedup as a difference
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if not stages:
        raise InvalidSpec(
            required="a curriculum must have at least one stage",
            got="none",
            why="there is nothing to follow",
            remedy="pass Stage(task, accuracy=0.99)",
        )
    if isinstance(network, Activated):
        from learncast.planning.curricula.response_curriculum import follow_integrated  # it builds on this module

        check_network(network)
        rng = seed_of(rng)
        if not has_one_response(network):
            return follow_integrated(stages, network, rate, rng)
    else:
        from learncast.planning.curricula.traced_curriculum import traced  # it builds on this module

        found = traced(stages, network, rate, learn, by, strict)
        if found is not None:
            return found
        assert isinstance(network, LinearRNN)
    target, *rest = modes_seen_by(network, [stages[-1].task, *(s.task for s in stages[:-1])], rng)
    if isinstance(network, Activated) and not all(exact(m.assumptions) for m in (*rest, target)):
        return follow_integrated(stages, network, rate, rng)
    curriculum = follow_modes(stages, (*rest, target), network, rate)
    if strict:
        require(curriculum.assumptions)
    return curriculum


def follow_modes(
    stages: Sequence[Stage], modes: tuple[Modes, ...], network: LinearRNN | Activated, learning_rate: float
) -> Curriculum:
    """Follow stages whose tasks are already taken apart in one frame."""
    flow = descent = modes[-1].start
    outcomes = []
    for stage, m in zip(stages, modes, strict=True):
        problem = _problem(m)
        if stage.accuracy is not None:
            tolerance = 1.0 - stage.accuracy
            time, after = problem.arrival(flow, tolerance)
            steps, descended = problem.descent_arrival(descent, tolerance, learning_rate)
        else:
            assert stage.steps is not None
            time = np.asarray(stage.steps * learning_rate)
            steps = np.asarray(np.ceil(stage.steps))
            after = problem.strength(time, flow)
            descended = problem.after_descent(descent, steps, learning_rate)
        if not np.isfinite(time):
            after = problem.strength(np.inf, flow)
        outcomes.append(
            StageOutcome(
                stage,
                float(time) / learning_rate,
                float(steps),
                flow,
                after,
                float(m.accuracy(after).min()),
                _stage_status(m, flow, float(time), float(steps), learning_rate),
            )
        )
        flow, descent = outcomes[-1].end, descended
    accuracy = stages[-1].accuracy
    direct = None if accuracy is None else solution_of(modes[-1], network, learning_rate).time_to(accuracy)
    replicas = replicated([(s.accuracy, s.steps) for s in stages], modes, learning_rate)
    if replicas is not None:
        ends = bounds(replicas.flow.T).T
        outcomes = [
            replace(o, interval=(float(low), float(high))) for o, (low, high) in zip(outcomes, ends, strict=True)
        ]
    return Curriculum(tuple(outcomes), direct, modes, learning_rate, replicas)


def _problem(m: Modes) -> Problem:
    return Problem(m.weighted_cross, m.weighted_input, m.imbalance)


def _stability(m: Modes, start: FloatArray, learning_rate: float) -> Assumption:
    sharp = mode_equation.sharpness(start, m.imbalance, m.weighted_cross, m.weighted_input)
    return conditions.stable_learning_rate(learning_rate, sharp)


def _stage_status(m: Modes, start: FloatArray, time: float, steps: float, learning_rate: float) -> Status:
    if np.isnan(time):
        return Status.outside_theory
    if np.isinf(time):
        return Status.not_learned
    if np.isinf(steps) or not _stability(m, start, learning_rate).holds:
        return Status.diverged
    return Status.ok if exact(m.assumptions) else Status.outside_theory


def difference(direct: float, total: float) -> float:
    """Steps saved; unknown when both are infinite."""
    return float("nan") if np.isinf(direct) and np.isinf(total) else direct - total


def ratio(direct: float, total: float) -> float:
    """Direct time over total; 1 when neither takes any, unknown when both are infinite."""
    if direct == total:
        return float("nan") if np.isinf(direct) else 1.0
    return direct / total if total > 0 else float("inf")
