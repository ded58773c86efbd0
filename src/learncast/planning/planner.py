"""The plan: which intermediate task to train first, and when to stop it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption, exact, require
from learncast.dynamics.modes import Modes, modes_of
from learncast.dynamics.response_modes import solution_of
from learncast.dynamics.solution import LearningTime
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curriculum import Curriculum, Stage, difference, follow_modes, ratio
from learncast.planning.passage import Problem
from learncast.planning.stopping import best_stop
from learncast.progress import Progress, silent
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, described, save_dataset, spec_hash
from learncast.validation import FloatArray, between, count, positive

#: Residual up to which a plan that is not strict still uses a candidate; 10% anisotropy costs 2-8% of the time.
USABLE = 0.1


@dataclass(frozen=True, eq=False)
class Candidate:
    """One intermediate task with its best stop.

    Attributes
    ----------
    curriculum : Curriculum
        The candidate to its best stop, then the target; the target alone when no stop of it saves time.
    stop_steps : float
        Flow steps to spend on it; 0 when direct training is at least as fast.
    accuracy : float
        Accuracy on the candidate at that stop (worst mode).
    """

    task: Task
    modes: Modes
    stop_steps: float
    accuracy: float
    flow_steps: float
    descent_steps: float
    direct: LearningTime
    target_modes: Modes
    network: LinearRNN | Activated
    learning_rate: float
    assumptions: tuple[Assumption, ...]

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of the flow steps at this stop; None where nothing was measured."""
        return None if self.target_modes.replicas is None else self.curriculum.interval

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """The same of the flow steps saved."""
        return None if self.target_modes.replicas is None else self.curriculum.speedup_interval

    @property
    def helps(self) -> bool:
        """Whether some stop of this task saves time."""
        return self.stop_steps > 0 and self.flow_steps < self.direct.flow_steps

    @property
    def usable(self) -> bool:
        """Whether the theory speaks about this task well enough to recommend it."""
        return all(a.measured <= max(a.allowed, USABLE) for a in self.assumptions)

    @property
    def holds(self) -> bool:
        """Whether every condition of the theory is met."""
        return exact(self.assumptions)

    @property
    def status(self) -> Status:
        """How the forecast came out."""
        failed = {a.name for a in self.assumptions if a.condition.binding and not a.holds}
        if failed - {"stable_learning_rate"} or math.isnan(self.flow_steps):
            return Status.outside_theory
        if math.isinf(self.flow_steps):
            return Status.not_learned
        return Status.diverged if failed or math.isinf(self.descent_steps) else Status.ok

    @property
    def speedup_steps(self) -> float:
        """Flow steps saved against direct training."""
        return difference(self.direct.flow_steps, self.flow_steps)

    @property
    def speedup_ratio(self) -> float:
        """Direct training time over this curriculum's."""
        return ratio(self.direct.flow_steps, self.flow_steps)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that carry it out."""
        target = Stage(self.target_modes.task, accuracy=self.direct.accuracy)
        return (self.first_stage, target) if self.helps else (target,)

    @property
    def first_stage(self) -> Stage:
        """Training on the candidate to its stop: by accuracy where one accuracy says it, else by steps."""
        if 0.0 <= self.accuracy <= 1.0 and self.stop_steps > 0:
            return Stage(self.task, accuracy=self.accuracy)
        return Stage(self.task, steps=self.stop_steps)

    @cached_property
    def curriculum(self) -> Curriculum:
        """The stages followed exactly."""
        modes = (self.modes, self.target_modes) if self.helps else (self.target_modes,)
        return follow_modes(self.stages, modes, self.network, self.learning_rate)

    @cached_property
    def why(self) -> dict[str, Any]:
        """The terms of eq. (16) at the best stop, and a sentence."""
        if not self.usable:
            failed = next(a for a in self.assumptions if a.measured > max(a.allowed, USABLE))
            return {"sentence": f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"}
        pair = follow_modes(
            (self.first_stage, Stage(self.target_modes.task, accuracy=self.direct.accuracy)),
            (self.modes, self.target_modes),
            self.network,
            self.learning_rate,
        )
        assert pair.why is not None
        found = pair.why.as_dict()
        if not self.helps:
            target = self.target_modes.task.name
            found["sentence"] = (
                f"no stop of {self.task.name} saves time: train {target} directly"
                if math.isfinite(self.direct.flow_steps)
                else f"no stop of {self.task.name} makes {target} learnable"
            )
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Which intermediate task to train first and when to stop it, ranked against training directly.

    Attributes
    ----------
    target : Task
    direct : LearningTime
        Training on the target alone.
    candidates : tuple of Candidate
        Best first; those the theory cannot speak about last.
    best : Curriculum
        The recommended stages; the target alone when nothing helps.
    assumptions : tuple of Assumption
        Conditions of the theory for the recommended stages, as measured.
    """

    target: Task
    direct: LearningTime
    candidates: tuple[Candidate, ...]
    best: Curriculum
    network: LinearRNN | Activated
    learning_rate: float

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory for the recommended stages."""
        return self.best.assumptions

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of the recommended flow steps; None where nothing was measured."""
        return self.best.interval

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.best.forecast_class

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The ranking, labelled."""
        columns = {
            "best_accuracy": ("accuracy", "accuracy at which to stop the candidate", "1"),
            "stop_steps": ("stop_steps", "flow steps to spend on the candidate", STEPS),
            "flow_steps": ("flow_steps", "flow steps of candidate and target together", STEPS),
            "descent_steps": ("descent_steps", "predicted descent steps of both", STEPS),
            "speedup_steps": ("speedup_steps", "flow steps saved against direct training", STEPS),
            "speedup_ratio": ("speedup_ratio", "direct flow steps over these", "1"),
        }
        variables: dict[str, Any] = {
            name: (
                "candidate",
                np.array([getattr(c, attribute) for c in self.candidates], dtype=float),
                described(text, units),
            )
            for name, (attribute, text, units) in columns.items()
        }
        variables["direct_steps"] = (
            (),
            self.direct.flow_steps,
            described("direct flow steps", STEPS),
        )
        if self.best.replicas is not None:
            variables |= self._interval_variables()
        return xr.Dataset(
            variables,
            coords={
                "candidate": ("candidate", np.array([c.task.name for c in self.candidates], dtype=str)),
                "status": ("candidate", np.array([c.status.name for c in self.candidates], dtype=str)),
            },
            attrs={
                "target": self.target.name,
                "learning_rate": self.learning_rate,
                "accuracy": self.direct.accuracy,
            },
        )

    def _interval_variables(self) -> dict[str, Any]:
        """Ends of the intervals, for the dataset."""
        found: dict[str, Any] = {}
        for k, end in enumerate(("low", "high")):
            note = f"{end} end of its interval"
            for name, attribute in (("flow_steps", "interval"), ("speedup_steps", "speedup_interval")):
                values = np.array([getattr(c, attribute)[k] for c in self.candidates], dtype=float)
                found[f"{name}_{end}"] = ("candidate", values, described(f"{name.replace('_', ' ')}, {note}", STEPS))
            assert self.direct.interval is not None
            found[f"direct_steps_{end}"] = ((), self.direct.interval[k], described(f"direct steps, {note}", STEPS))
        return found

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.target.hash, *(c.task.hash for c in self.candidates), self.learning_rate)
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), digest)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the ranking to NetCDF."""
        return save_dataset(self.dataset, path, kind="plan", provenance=self.provenance)

    def __repr__(self) -> str:
        steps = " -> ".join(
            f"{o.stage.task.name} to {o.accuracy:.4g} ({o.flow_steps:.6g} steps)" for o in self.best.outcomes
        )
        return (
            f"<Plan for {self.target.name!r}: {steps}; saves {self.best.speedup_steps:.6g} of "
            f"{self.direct.flow_steps:.6g} flow steps; {self.forecast_class}>"
        )


def plan(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | Activated,
    *,
    learning_rate: float,
    accuracy: float = 0.99,
    max_stages: int = 2,
    strict: bool = True,
    progress: Progress = silent,
    rng: np.random.Generator | int = 0,
) -> Plan:
    """Find the intermediate task and the stop that reach the target soonest.

    Each candidate is tried as one stage before the target, with its optimal stop: exact for one mode, and for several
    modes that share a stop.

    Parameters
    ----------
    target : Task
        What must be learned in the end.
    candidates : sequence of Task
        Tasks that may be trained first.
    network : LinearRNN or Activated
        The network before training; ReLU units must share one response (one recurrence, one sign, one output).
    learning_rate : float
    accuracy : float
        Accuracy the target must reach; 1 is reached at infinite time only.
    max_stages : int
        2 allows one candidate before the target; 1 trains the target directly.
    strict : bool
        Raise when the target fails a condition of the theory, and recommend only candidates that meet all. Otherwise
        candidates within a residual of 0.1 compete too, and the plan says which condition is not exact.
    progress : callable
        Called with the share of candidates done.
    rng : numpy.random.Generator or int
        Activated networks: generator or seed of the trials on which responses are measured, the same for every task.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
    if count("max_stages", max_stages, why="the target itself is one stage") > 2:
        raise InvalidSpec(
            required="max_stages must be 1 or 2",
            got=f"{max_stages}",
            why="a plan tries each candidate as one stage before the target",
            remedy="use 2, or follow() for a longer curriculum of your own",
        )
    pool = list(candidates) if max_stages == 2 else []
    target_modes, *pool_modes = modes_of([target, *pool], network, rng=rng)
    solution = solution_of(target_modes, network, rate)
    if strict:
        require(solution.assumptions)
    direct = solution.time_to(accuracy)
    found = _weighed(pool_modes, target_modes, direct, network, rate, progress)
    ranked = tuple(sorted(found, key=lambda c: (not c.usable, _last(c.flow_steps), _last(c.descent_steps))))
    chosen = next((c for c in ranked if c.helps and (c.holds if strict else c.usable)), None)
    best = (
        chosen.curriculum
        if chosen
        else follow_modes([Stage(target, accuracy=accuracy)], (target_modes,), network, rate)
    )
    return Plan(target, direct, ranked, best, network, rate)


def _last(steps: float) -> float:
    return math.inf if math.isnan(steps) else steps


def _weighed(
    pool: list[Modes],
    target: Modes,
    direct: LearningTime,
    network: LinearRNN | Activated,
    learning_rate: float,
    progress: Progress,
) -> list[Candidate]:
    """Give every candidate its best stop, all at once."""
    if not pool:
        return []
    start, tolerance = target.start, 1.0 - direct.accuracy
    first = Problem(
        np.stack([m.weighted_cross for m in pool]),
        np.stack([m.weighted_input for m in pool]),
        target.imbalance,
    )
    second = Problem(target.weighted_cross, target.weighted_input, target.imbalance)
    stops, totals = best_stop(start, first, second, tolerance, progress=progress)
    ends = first.strength(stops, start)
    accuracies = np.array([m.accuracy(end).min() for m, end in zip(pool, ends, strict=True)])
    descents = _descent_totals(start, first, second, stops, accuracies, tolerance, learning_rate)
    return [
        Candidate(
            task=m.task,
            modes=m,
            stop_steps=float(stops[k]) / learning_rate,
            accuracy=float(accuracies[k]),
            flow_steps=float(totals[k]) / learning_rate,
            descent_steps=float(descents[k]),
            direct=direct,
            target_modes=target,
            network=network,
            learning_rate=learning_rate,
            assumptions=solution_of(m, network, learning_rate).assumptions,
        )
        for k, m in enumerate(pool)
    ]


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
