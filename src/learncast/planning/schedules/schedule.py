"""A schedule: which tasks to train, for how long, and how good that is."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from learncast.dynamics.modes import Modes
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.curriculum import Curriculum, Stage, difference, follow_modes, ratio
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, Status, described, save_dataset, spec_hash
from learncast.validation import FloatArray

#: What a schedule's word of proof means.
PROOFS = {
    "exact": "one mode: no schedule that meets the rules costs less, to round-off",
    "certified": "no schedule that meets the rules costs less than the lower bound, which is within the gap asked for",
    "robust": "the stop that is best on average over resampled statistics, for each candidate alone",
    "best found": "the search ended before its bounds met: a cheaper schedule may exist, down to the lower bound",
}


@dataclass(frozen=True, eq=False)
class ScheduledStage:
    """Training on one task of a schedule.

    Attributes
    ----------
    steps : float
        Flow steps.
    cost : float
        What they cost, without the change of task.
    strength : (modes,)
        Strengths at its end.
    accuracy : float
        Accuracy on its own task at its end, that of the worst mode.
    """

    task: Task
    modes: Modes
    steps: float
    cost: float
    strength: FloatArray
    accuracy: float


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """The cheapest order of tasks and stops that was found, with the proof of how good it is.

    Attributes
    ----------
    stages : tuple of ScheduledStage
        In order; the last is the target, which may need no steps. None where no schedule meets the rules.
    total : float
        Cost of all stages and changes of task; infinite where there is none.
    lower_bound : float
        What every schedule that meets the rules costs at least.
    proof : str
        A key of `PROOFS`.
    direct : float
        Cost of training the target alone, rules or not.
    pool : tuple of Modes
        The candidates that took part, and the target.
    excess_loss : (pool,)
        Excess loss of each of them at the end: what is forgotten.
    excluded : tuple of str
        Candidates that fail a condition of the theory and were left out.
    """

    stages: tuple[ScheduledStage, ...]
    total: float
    lower_bound: float
    proof: str
    direct: float
    switch_cost: float
    target: Modes
    goal: str
    accuracy: float
    pool: tuple[Modes, ...]
    excess_loss: FloatArray
    excluded: tuple[str, ...]
    network: LinearRNN | Activated
    learning_rate: float

    @property
    def gap(self) -> float:
        """By what share of the total a cheaper schedule could at most be cheaper; unknown where there is none."""
        if not math.isfinite(self.total):
            return math.nan
        return (self.total - self.lower_bound) / self.total if self.total > 0 else 0.0

    @property
    def flow_steps(self) -> float:
        """Flow steps of all stages together."""
        return float(sum(s.steps for s in self.stages)) if math.isfinite(self.total) else math.inf

    @property
    def saving(self) -> float:
        """Cost saved against training the target alone; negative where rules make the schedule dearer."""
        return difference(self.direct, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of training the target alone over the schedule's."""
        return ratio(self.direct, self.total)

    @property
    def status(self) -> Status:
        """How it came out: not_learned where no schedule meets the rules."""
        return Status.not_learned if not math.isfinite(self.total) else self.curriculum.status

    def as_stages(self) -> list[Stage]:
        """Stages for `follow`: by steps, and the target to its accuracy where every mode is asked for it."""
        found = [Stage(s.task, steps=s.steps) for s in self.stages[:-1]]
        if self.stages:
            last = self.stages[-1]
            by_accuracy = self.goal == "modes"
            found.append(
                Stage(last.task, accuracy=self.accuracy) if by_accuracy else Stage(last.task, steps=last.steps)
            )
        return found

    @cached_property
    def curriculum(self) -> Curriculum:
        """The stages followed exactly; the target alone where no schedule meets the rules."""
        if not self.stages:
            stages = [Stage(self.target.task, accuracy=self.accuracy)]
            return follow_modes(stages, (self.target,), self.network, self.learning_rate)
        return follow_modes(self.as_stages(), tuple(s.modes for s in self.stages), self.network, self.learning_rate)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Numbers of every stage, and of the whole, labelled."""
        shape = (len(self.stages), len(self.target))
        strength = np.array([s.strength for s in self.stages], dtype=float).reshape(shape)
        variables = {
            "steps": ("stage", np.array([s.steps for s in self.stages], dtype=float), described("flow steps", STEPS)),
            "cost": ("stage", np.array([s.cost for s in self.stages], dtype=float), described("cost", "cost")),
            "accuracy": (
                "stage",
                np.array([s.accuracy for s in self.stages], dtype=float),
                described("accuracy on its own task at the end, worst mode", "1"),
            ),
            "strength": (("stage", "mode"), strength, described("strength at the end", "1")),
            "excess_loss": (
                "pool",
                self.excess_loss,
                described("excess loss at the end of the schedule", "target^2"),
            ),
        }
        for name in ("total", "lower_bound", "gap", "direct", "saving"):
            units = "1" if name == "gap" else "cost"
            variables[name] = ((), getattr(self, name), described(name.replace("_", " "), units))
        return xr.Dataset(
            variables,
            coords={"task": ("stage", [s.task.name for s in self.stages]), "pool": [m.task.name for m in self.pool]},
            attrs={
                "proof": self.proof,
                "status": self.status.name,
                "goal": self.goal,
                "learning_rate": self.learning_rate,
                "target": self.target.task.name,
                "target_accuracy": self.accuracy,
            },
        )

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        parts = [(s.task.hash, repr(s.steps)) for s in self.stages]
        return Provenance("theory", ("curriculum2025",), spec_hash(*parts, self.learning_rate, self.accuracy))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="schedule", provenance=self.provenance)

    def __repr__(self) -> str:
        parts = " -> ".join(f"{s.task.name} ({s.steps:.6g})" for s in self.stages) or "none"
        return f"<Schedule {parts}: cost {self.total:.6g}, direct {self.direct:.6g}, {self.proof}, gap {self.gap:.2g}>"
