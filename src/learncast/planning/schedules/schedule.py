"""A schedule: which tasks to train, for how long, and how good that is."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.validation import FloatArray
from learncast.planning.curriculum import Curriculum, difference, followed, ratio
from learncast.planning.methods.modal import ModeGround
from learncast.planning.terms import PoolTerms
from learncast.procedure.stage import Stage
from learncast.results import STEPS, Provenance, Status, described, load_dataset, save_dataset
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr

#: What a schedule's word of proof means.
PROOFS = {
    "exact": "one mode: no schedule that meets the rules costs less, to round-off",
    "certified": "no schedule that meets the rules costs less than the lower bound, which is within the gap asked for",
    "robust": "the stop that is best on average over resampled statistics, for each candidate alone",
    "given up": "the time it was given had passed: a cheaper schedule may exist, also among what was not tried",
    "best found": "the search ended before its bounds met: a cheaper schedule may exist, down to the lower bound",
}


class Saved:
    """What has a total cost, beside that of training the target alone."""

    total: float
    direct: float

    @property
    def saving(self) -> float:
        """Cost saved against training the target alone; negative where rules make it dearer."""
        return difference(self.direct, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of training the target alone over the total."""
        return ratio(self.direct, self.total)


@dataclass(frozen=True, eq=False)
class ScheduledStage:
    """Training on one task of a schedule.

    Attributes
    ----------
    place : int
        Of the task in the ground's pool.
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
    place: int
    steps: float
    cost: float
    strength: FloatArray
    accuracy: float


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Saved):
    """The cheapest order of tasks and stops that was found, with the proof of how good it is.

    Attributes
    ----------
    stages : tuple of ScheduledStage
        In order; the last is the target, which may need no steps. None where no schedule meets the rules.
    total : float
        Cost of all stages and changes of task, by the flow; infinite where there is none.
    lower_bound : float
        What every schedule that meets the rules costs at least.
    proof : str
        A key of `PROOFS`.
    direct : float
        Cost of training the target alone, rules or not.
    places : tuple of int
        The candidates that took part, and the target.
    excess_loss : (places,)
        Excess loss of each of them at the end: what is forgotten.

    Examples
    --------
    What it saves and whether anything cheaper can exist, by the flow. Descent lags behind it and comes to this stop a
    little too weak: `plan` chooses stops by steps of descent.

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> best = lc.planning.best_schedule(task, pool, network, learning_rate=1e-3)
    >>> round(best.saving, 1), best.proof, best.gap
    (210.1, 'exact', 0.0)
    >>> way = lc.follow(best.as_stages(), network, learning_rate=1e-3)
    >>> round(way.flow_steps, 1), way.descent_steps
    (119.9, 174.0)
    """

    stages: tuple[ScheduledStage, ...]
    total: float
    lower_bound: float
    proof: str
    direct: float
    ground: ModeGround
    terms: PoolTerms
    places: tuple[int, ...]
    excess_loss: FloatArray

    @property
    def pool(self) -> tuple[Task, ...]:
        """The candidates that took part, and the target."""
        return tuple(self.ground.tasks[k] for k in self.places)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Candidates that fail a condition of the theory and were left out."""
        return tuple(task.name for k, task in enumerate(self.ground.tasks) if k not in self.places)

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
    def status(self) -> Status:
        """How it came out: not_learned where no schedule meets the rules."""
        return Status.not_learned if not math.isfinite(self.total) else self.curriculum.status

    def as_stages(self) -> list[Stage]:
        """Stages for `follow`: by steps, and the target to its accuracy where every mode is asked for it."""
        found = [Stage(s.task, steps=s.steps) for s in self.stages]
        if self.stages and self.ground.goal == "modes":
            found[-1] = Stage(self.stages[-1].task, goal=self.terms.accuracy)
        return found

    @cached_property
    def curriculum(self) -> Curriculum:
        """The stages followed; the target alone where no schedule meets the rules."""
        stages = self.as_stages() or [Stage(self.ground.tasks[-1], goal=self.terms.accuracy)]
        places = [s.place for s in self.stages] or [self.ground.target]
        return followed(stages, places, self.ground)

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Numbers of every stage, and of the whole, labelled."""
        import xarray as xr

        shape = (len(self.stages), len(self.ground.modes[-1]))
        strength = np.array([s.strength for s in self.stages], dtype=float).reshape(shape)
        told = {
            "steps": ("flow steps", STEPS),
            "cost": ("cost", "cost"),
            "accuracy": ("accuracy on its own task at the end, worst mode", "1"),
        }
        variables: dict[str, Any] = {
            name: ("stage", np.array([getattr(s, name) for s in self.stages], dtype=float), described(*words))
            for name, words in told.items()
        }
        variables["strength"] = (("stage", "mode"), strength, described("strength at the end", "1"))
        left = described("excess loss at the end of the schedule", "target^2")
        variables["excess_loss"] = ("pool", self.excess_loss, left)
        for name in ("total", "lower_bound", "gap", "direct", "saving"):
            units = "1" if name == "gap" else "cost"
            variables[name] = ((), getattr(self, name), described(name.replace("_", " "), units))
        return xr.Dataset(
            variables,
            coords={"task": ("stage", [s.task.name for s in self.stages]), "pool": [task.name for task in self.pool]},
            attrs={
                "proof": self.proof,
                "status": self.status.name,
                "goal": self.ground.goal,
                "learning_rate": self.ground.learning_rate,
                "target": self.ground.tasks[-1].name,
                "target_accuracy": self.terms.accuracy,
            },
        )

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        found = ((s.place, s.steps) for s in self.stages)
        return self.ground.provenance(self.terms.terms.hash, self.lower_bound, *found)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="schedule", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> xr.Dataset:
        """Read back the numbers that `save` wrote."""
        return load_dataset(path, kind="schedule")[0]

    def __repr__(self) -> str:
        parts = " -> ".join(f"{s.task.name} ({s.steps:.6g})" for s in self.stages) or "none"
        return f"<Schedule {parts}: cost {self.total:.6g}, direct {self.direct:.6g}, {self.proof}, gap {self.gap:.2g}>"
