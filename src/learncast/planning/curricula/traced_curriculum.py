"""A curriculum traced over a terrain: stage after stage, without modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption, require
from learncast.dynamics.learning_problem import checked_learn
from learncast.dynamics.modes import Modes, modes_of
from learncast.dynamics.solution import LearningTime, Solution, checked_times
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curricula.curriculum import Curriculum, Stage, StageOutcome
from learncast.planning.curricula.explanation import Explanation
from learncast.planning.curricula.replicas import ReplicaSteps
from learncast.planning.curricula.terrain import FlowTerrain, LinearTerrain, PooledTerrain, Terrain
from learncast.planning.solving import LEARNABLE
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, one_of

#: How tasks in sequence may be followed.
WAYS = ("auto", "modes", "two-layer", "flow")


@dataclass(frozen=True, eq=False, repr=False)
class TracedCurriculum(Curriculum):
    """A curriculum of a network whose tasks have no common modes, or whose recurrence learns.

    Accuracies are those of the loss: a task is learned when the excess loss is (1 - accuracy)^2 of what a network that
    answers nothing has.

    Attributes
    ----------
    terrain : Terrain
    places : tuple of int
        Each stage's task in the terrain.
    courses : tuple of Solution
        Training on each stage.
    """

    terrain: Terrain | None = None
    places: tuple[int, ...] = ()
    courses: tuple[Solution, ...] = ()

    @property
    def ground(self) -> Terrain:
        """The terrain it was traced over."""
        assert self.terrain is not None
        return self.terrain

    def with_replicas(self, replicas: ReplicaSteps, ends: Sequence[tuple[float, float]]) -> TracedCurriculum:
        """The same with the steps that resampled statistics take, and the intervals of its stages."""
        outcomes = tuple(replace(o, interval=pair) for o, pair in zip(self.outcomes, ends, strict=True))
        return replace(self, outcomes=outcomes, replicas=replicas)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the terrain's solutions."""
        return self.ground.assumptions

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.ground.forecast_class

    @property
    def why(self) -> Explanation | None:
        """None: the three terms are of one mode."""
        return None

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        parts = [(o.stage.task.hash, repr(o.stage.accuracy), repr(o.stage.steps)) for o in self.outcomes]
        digest = spec_hash(*parts, self.ground.start.hash, self.learning_rate)
        return Provenance(self.ground.kind, self.ground.citations, digest)

    def at(self, times: Any) -> Trajectory:
        """Strengths along the target's modes and losses, at times in gradient steps of the flow."""
        steps = checked_times(times)
        ends = np.cumsum([o.flow_steps for o in self.outcomes])
        index = np.minimum(np.searchsorted(ends, steps, side="left"), len(ends) - 1)
        begins = np.concatenate([[0.0], ends[:-1]])
        ground, target = self.ground, self.ground.target
        rows: list[FloatArray] = []
        loss, target_loss = np.empty(len(steps)), np.empty(len(steps))
        for n, (time, k) in enumerate(zip(steps, index, strict=True)):
            network = self.courses[k].network_at(time - begins[k] if math.isfinite(time) else time)
            rows.append(ground.strength(network))
            loss[n], target_loss[n] = ground.excess(self.places[k], network), ground.excess(target, network)
        strength = np.stack(rows)
        dataset = xr.Dataset(
            {
                "strength": (("time", "mode"), strength, described("strength along the target's modes", "1")),
                "excess_loss": ("time", loss, described("excess loss of the task in training", "target^2")),
                "target_excess_loss": ("time", target_loss, described("excess loss of the target task", "target^2")),
            },
            coords={
                "time": ("time", steps, described("training time", STEPS)),
                "mode": ("mode", np.arange(strength.shape[1])),
                "stage": ("time", index, described("stage in training", "1")),
            },
            attrs={
                "learning_rate": self.learning_rate,
                "stages": " | ".join(o.stage.task.name for o in self.outcomes),
            },
        )
        return Trajectory(dataset, self.provenance)


def trace(
    stages: Sequence[Stage], places: Sequence[int], terrain: Terrain, *, direct: LearningTime | None = None
) -> TracedCurriculum:
    """Follow stages over a terrain; `places` are their tasks in it.

    Descent is counted step by step on the same statistics, each stage from where the last whole step left off. The
    target's direct training is followed too, unless it is given.
    """
    descent = True
    terrain = terrain.precise
    flow = whole = terrain.start
    outcomes, courses = [], []
    for stage, place in zip(stages, places, strict=True):
        course = terrain.course(place, flow)
        steps = stage.steps if stage.steps is not None else terrain.steps_to(place, flow, _asked(stage), course)
        after = course.network_at(steps) if math.isfinite(steps) else flow
        counted = math.nan
        if descent and math.isfinite(steps):
            counted, whole = terrain.counted(place, whole, steps=stage.steps, accuracy=stage.accuracy)
            descent = math.isfinite(counted)
        accuracy = terrain.accuracy(place, after)
        status = Status.diverged if math.isinf(counted) else terrain.status(steps)
        ends = terrain.strength(flow), terrain.strength(after)
        outcomes.append(StageOutcome(stage, float(steps), counted, *ends, accuracy, status))
        courses.append(course)
        flow = after
    if direct is None and stages[-1].accuracy is not None:
        first, whole_steps = outcomes[0].flow_steps, outcomes[0].descent_steps
        alone = len(stages) == 1
        direct = (
            LearningTime(stages[-1].accuracy, np.array([first]), np.array([whole_steps]), (outcomes[0].status,))
            if alone
            else direct_time(terrain, stages[-1].accuracy)
        )
    return TracedCurriculum(
        tuple(outcomes), direct, (), terrain.learning_rate, None, terrain, tuple(places), tuple(courses)
    )


def direct_time(terrain: Terrain, accuracy: float) -> LearningTime:
    """Training on the target alone."""
    steps = terrain.steps_to(terrain.target, terrain.start, accuracy)
    counted = math.nan
    if math.isfinite(steps):
        counted, _ = terrain.counted(terrain.target, terrain.start, steps=None, accuracy=accuracy)
    status = Status.diverged if math.isinf(counted) else terrain.status(steps)
    return LearningTime(accuracy, np.array([steps]), np.array([counted]), (status,))


def _asked(stage: Stage) -> float:
    assert stage.accuracy is not None  # a stage has one rule or the other
    return stage.accuracy


def traced(
    stages: Sequence[Stage],
    network: LinearRNN | TwoLayer,
    learning_rate: float,
    learn: tuple[str, ...] | None,
    by: str,
    strict: bool,
) -> TracedCurriculum | None:
    """Follow stages over a terrain where that is the way; None where modes are."""
    one_of("by", by, WAYS, why="these are the ways to follow a curriculum")
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(
            required="the network must be a LinearRNN, a TwoLayer or an Activated LinearRNN",
            got=type(network).__name__,
            why="a curriculum is followed from a network's weights",
            remedy="describe it as learncast.LinearRNN(...) or learncast.TwoLayer(first, second)",
        )
    tasks = [stage.task for stage in stages]
    terrain = linear_terrain(tasks, network, learning_rate, learn, by)
    if terrain is None:
        return None
    if strict:
        require(terrain.assumptions)
    return trace(stages, range(len(stages)), terrain)


def linear_terrain(
    tasks: Sequence[Task],
    network: LinearRNN | TwoLayer,
    learning_rate: float,
    learn: tuple[str, ...] | None,
    by: str,
    *,
    otherwise_flow: bool = False,
) -> LinearTerrain | None:
    """The terrain on which tasks are to be followed; None where their common modes tell.

    Asked for "auto", tasks without common modes go by the two-layer flow where it is exact; else by modes after all,
    which then says what fails, or by the integrated flow where `otherwise_flow` allows it.
    """
    usual = LEARNABLE.get(type(network), ())
    fixed = learn is None or set(learn) == set(usual)
    modal = isinstance(network, LinearRNN) and fixed
    if by == "modes" and not modal:
        raise InvalidSpec(
            required='by="modes" needs a LinearRNN of fixed recurrence',
            got=type(network).__name__ if fixed else f"learn={learn!r}",
            why="other problems do not fall apart into modes",
            remedy='use by="auto", or by="flow"',
        )
    if by in ("auto", "modes") and modal:
        assert isinstance(network, LinearRNN)
        if by == "modes" or separate(modes_of([tasks[-1], *tasks[:-1]], network)):
            return None
    chosen = checked_learn(network, usual if learn is None else learn)
    if fixed and by in ("auto", "two-layer"):
        pooled = PooledTerrain(tasks, network, learning_rate, chosen)
        if by == "two-layer" or pooled.solved:
            return pooled
    if by == "auto" and modal and not otherwise_flow:
        return None
    return FlowTerrain(tasks, network, learning_rate, chosen)


def separate(modes: Sequence[Modes]) -> bool:
    """Whether every task falls apart into the modes of one frame."""
    return all(a.holds or not a.condition.binding for m in modes for a in m.assumptions)
