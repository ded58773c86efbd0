"""A recommendation: the plan itself, what it saves, its alternatives and how much its stops matter."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption
from learncast.dynamics.solution import LearningTime
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curricula.curriculum import Curriculum, Stage, difference, ratio
from learncast.planning.plans import wording
from learncast.planning.plans.candidate import Candidate
from learncast.planning.plans.mode_planner import ModePlanner
from learncast.planning.plans.terrain_planner import TerrainPlanner
from learncast.planning.plans.training_loop import TrainingLoop, training_loop_of
from learncast.planning.terms import Terms
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, described, save_dataset, spec_hash

#: What stops are multiplied by to see how much their moment matters.
FACTORS = (0.5, 0.75, 0.9, 1.1, 1.25, 1.5)

#: Candidates that are offered as alternatives, beside direct training and the first task learned in full.
MOST_ALTERNATIVES = 3


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another plan, and what it costs more than the recommended one.

    Attributes
    ----------
    name : str
        In words.
    total : float
        Its cost; steps where nothing else is priced.
    extra : float
        What it costs more.
    """

    name: str
    stages: tuple[Stage, ...]
    flow_steps: float
    descent_steps: float
    total: float
    extra: float


@dataclass(frozen=True, eq=False)
class Shift:
    """What stopping a stage earlier or later than planned does.

    Attributes
    ----------
    stage : int
    factor : float
        Length of that stage, as a multiple of the planned one.
    steps : float
        Its flow steps then.
    flow_steps, total, extra : float
        Flow steps and cost of the whole then, and what it costs more than the plan.
    """

    stage: int
    task: str
    factor: float
    steps: float
    flow_steps: float
    total: float
    extra: float


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Which intermediate tasks to train first and when to stop them, ranked against training directly.

    Attributes
    ----------
    target : Task
    direct : LearningTime
        Training on the target alone.
    candidates : tuple of Candidate
        Each alone before the target, best first; those the theory cannot speak about last.
    best : Curriculum
        The recommended stages; the target alone when nothing helps.
    total, direct_total : float
        Cost of the recommended stages and of the target alone; flow steps where nothing else is priced.
    lower_bound : float
        What any plan that meets the terms costs at least; nan where no bound is known.
    proof : str
        How good the recommendation is: a key of `learncast.planning.schedules.schedule.PROOFS`.
    """

    target: Task
    direct: LearningTime
    candidates: tuple[Candidate, ...]
    best: Curriculum
    total: float
    direct_total: float
    lower_bound: float
    proof: str
    network: LinearRNN | TwoLayer | Activated
    learning_rate: float
    terms: Terms
    planner: ModePlanner | TerrainPlanner

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory for the recommended stages."""
        return self.best.assumptions

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% confidence interval of the recommended flow steps; None where nothing was measured."""
        return self.best.interval

    @property
    def saving_interval(self) -> tuple[float, float] | None:
        """The same of the flow steps saved."""
        return self.best.speedup_interval

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.best.forecast_class

    @property
    def pretrains(self) -> bool:
        """Whether anything is trained before the target."""
        return len(self.best.outcomes) > 1

    @property
    def saving(self) -> float:
        """Cost saved against training the target alone."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of training the target alone over the plan's."""
        return ratio(self.direct_total, self.total)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The recommended stages, for `follow` or `learncast.simulate.train`."""
        return tuple(o.stage for o in self.best.outcomes)

    def cost_of(self, curriculum: Curriculum) -> float:
        """What stages cost under the terms of this plan."""
        places = {id(c): k for k, c in enumerate(self.pool)}
        outcomes = [o for o in curriculum.outcomes if o.flow_steps > 0 or o is curriculum.outcomes[-1]]
        steps = sum(o.flow_steps * float(self.terms.cost[places.get(id(o.stage.task), -1)]) for o in outcomes)
        return float(steps + self.terms.switch_cost * (len(outcomes) - 1))

    @property
    def pool(self) -> tuple[Task, ...]:
        """The candidates in the order they were given."""
        if isinstance(self.planner, ModePlanner):
            return tuple(m.task for m in self.planner.pool)
        return self.planner.terrain.tasks[:-1]

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Other plans, the best first: direct training, the first task learned in full, the next candidates."""
        first = self.best.outcomes[0].stage.task
        last = Stage(self.target, accuracy=self.terms.accuracy)
        found: list[tuple[str, Curriculum]] = []
        if self.pretrains:
            found.append((f"train {self.target.name} directly", self.planner.follow([last])))
        if self.pretrains and first is not self.target and self._may_finish(first):
            full = self.planner.follow([Stage(first, accuracy=self.terms.accuracy), last])
            found.append((f"{first.name} to {wording.percent(self.terms.accuracy)}, then {self.target.name}", full))
        others = [c for c in self.candidates if c.helps and c.usable and not (self._only(c))]
        for c in others[:MOST_ALTERNATIVES]:
            found.append((f"{c.task.name} to {wording.percent(c.accuracy)}, then {self.target.name}", c.curriculum))
        rows = [
            Alternative(
                name,
                tuple(o.stage for o in way.outcomes),
                way.flow_steps,
                way.descent_steps,
                self.cost_of(way),
                self.cost_of(way) - self.total,
            )
            for name, way in found
        ]
        return tuple(sorted(rows, key=lambda a: (math.isnan(a.total), a.total)))

    def _may_finish(self, task: Task) -> bool:
        """Whether the terms allow a candidate to be learned as well as the target is asked for."""
        place = next(k for k, other in enumerate(self.pool) if other is task)
        low, high = self.terms.least[place], self.terms.most[place]
        return bool(low <= self.terms.accuracy <= high) and not np.isfinite(self.terms.most_loss).any()

    def _only(self, candidate: Candidate) -> bool:
        """Whether the recommended plan is this candidate's own."""
        before = self.best.outcomes[:-1]
        return len(before) == 1 and before[0].stage.task is candidate.task

    @cached_property
    def sensitivity(self) -> tuple[Shift, ...]:
        """What if a stage is stopped earlier or later, the others being as long as planned?"""
        found = []
        planned = [o.flow_steps for o in self.best.outcomes[:-1]]
        for k, outcome in enumerate(self.best.outcomes[:-1]):
            for factor in FACTORS:
                steps = [t * (factor if j == k else 1.0) for j, t in enumerate(planned)]
                stages = [Stage(o.stage.task, steps=t) for o, t in zip(self.best.outcomes[:-1], steps, strict=True)]
                way = self.planner.follow([*stages, Stage(self.target, accuracy=self.terms.accuracy)])
                total = self.cost_of(way)
                found.append(
                    Shift(k, outcome.stage.task.name, factor, steps[k], way.flow_steps, total, total - self.total)
                )
        return tuple(found)

    @cached_property
    def summary(self) -> str:
        """The answer in one paragraph of plain words."""
        return wording.paragraph(self)

    def training_loop(self, **options: Any) -> TrainingLoop:
        """A schedule for a training loop of your own; options are those of `training_loop_of`."""
        return training_loop_of(self.best, **options)

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
            "total": ("total", "cost of candidate and target together", "cost"),
        }
        variables: dict[str, Any] = {
            name: (
                "candidate",
                np.array([getattr(c, attribute) for c in self.candidates], dtype=float),
                described(text, units),
            )
            for name, (attribute, text, units) in columns.items()
        }
        variables["direct_steps"] = ((), self.direct.flow_steps, described("direct flow steps", STEPS))
        variables["direct_total"] = ((), self.direct_total, described("cost of direct training", "cost"))
        variables["plan_total"] = ((), self.total, described("cost of the recommended plan", "cost"))
        if self.candidates and self.best.replicas is not None:
            variables |= self._interval_variables()
        stages = {
            "stage_steps": ([o.flow_steps for o in self.best.outcomes], "flow steps of the stage", STEPS),
            "stage_accuracy": ([o.accuracy for o in self.best.outcomes], "accuracy at its end", "1"),
        }
        for name, (values, text, units) in stages.items():
            variables[name] = ("stage", np.array(values, dtype=float), described(text, units))
        return xr.Dataset(
            variables,
            coords={
                "candidate": ("candidate", np.array([c.task.name for c in self.candidates], dtype=str)),
                "status": ("candidate", np.array([c.status.name for c in self.candidates], dtype=str)),
                "stage_task": ("stage", np.array([o.stage.task.name for o in self.best.outcomes], dtype=str)),
            },
            attrs={
                "target": self.target.name,
                "learning_rate": self.learning_rate,
                "accuracy": self.terms.accuracy,
                "goal": self.terms.goal,
                "proof": self.proof,
                "summary": self.summary,
            },
        )

    def _interval_variables(self) -> dict[str, Any]:
        """Ends of the intervals, for the dataset."""
        found: dict[str, Any] = {}
        unknown = (math.nan, math.nan)
        for k, end in enumerate(("low", "high")):
            note = f"{end} end of its interval"
            for name, attribute in (("flow_steps", "interval"), ("speedup_steps", "speedup_interval")):
                values = np.array([(getattr(c, attribute) or unknown)[k] for c in self.candidates], dtype=float)
                found[f"{name}_{end}"] = ("candidate", values, described(f"{name.replace('_', ' ')}, {note}", STEPS))
            alone = (self.direct.interval or self.best.direct_interval or unknown)[k]
            found[f"direct_steps_{end}"] = ((), alone, described(f"direct steps, {note}", STEPS))
        return found

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        own = self.best.provenance
        digest = spec_hash(self.target.hash, *(c.task.hash for c in self.candidates), self.learning_rate)
        return Provenance(own.kind, own.citations, digest, own.seed)

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
