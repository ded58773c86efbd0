"""A recommendation: the plan itself, what it saves, its alternatives and how much its stops matter."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.card import Card, Picture, Shown
from learncast.planning import wording
from learncast.planning.curriculum import Curriculum, Interval, difference, followed, hardly_pays, ratio
from learncast.planning.methods.ground import Ground
from learncast.planning.plans.route import Candidate, Route, Walker
from learncast.planning.plans.tables import ranking_table, stages_table
from learncast.planning.schedules.certified import Searched
from learncast.planning.schedules.pareto import Front, forgetting_front
from learncast.planning.terms import PoolTerms
from learncast.procedure.stage import Stage
from learncast.results import STEPS, Provenance, described, load_dataset, save_dataset
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust
from learncast.theory.dynamics.solution import LearningTime

if TYPE_CHECKING:
    import xarray as xr

    from learncast.training.loop import Loop

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
    steps : float
        Its steps.
    total : float
        Its cost; steps where nothing else is priced.
    extra : float
        What it costs more.
    """

    name: str
    stages: tuple[Stage, ...]
    steps: float
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
        Its steps then.
    all_steps, total, extra : float
        Steps and cost of the whole then, and what it costs more than the plan.
    """

    stage: int
    task: str
    factor: float
    steps: float
    all_steps: float
    total: float
    extra: float


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """Which intermediate tasks to train first and when to stop them, ranked against training directly.

    Attributes
    ----------
    ground : Ground
        How the pool is learned.
    terms : PoolTerms
        What was asked, and what steps cost.
    direct : LearningTime
        Training on the target alone.
    candidates : tuple of Candidate
        Each alone before the target, best first; those the theory cannot speak about last.
    best : Curriculum
        The recommended stages; the target alone when nothing helps.
    route, direct_route : Route
        The recommended stages and the target alone, in steps of descent.
    flow : Searched
        What is best by the flow, and its lower bound.
    proof : str
        How good the recommendation is: a key of `learncast.planning.schedules.schedule.PROOFS`.
    counted : bool
        Whether steps are those of descent; where these could not be counted they are the flow's.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> found = lc.plan(task, [stronger], network, learning_rate=1e-3)
    >>> found.saving, found.direct_total, found.worthwhile
    (163.0, 331.0, True)
    >>> [(stage.task.name, round(stage.accuracy, 3)) for stage in found.stages]
    [('stronger targets', 0.662), ('integration', 0.99)]
    >>> print(found.summary.split(". ")[0])
    Pretrain on stronger targets until 66% (168 steps) and integration is already learned: half of the 331 steps of
    direct training
    """

    ground: Ground
    terms: PoolTerms
    direct: LearningTime
    candidates: tuple[Candidate, ...]
    best: Curriculum
    route: Route
    direct_route: Route
    flow: Searched
    proof: str
    counted: bool

    @property
    def given_up(self) -> bool:
        """Whether the time for the search ran out; what else could be done is then not looked into either."""
        return self.proof == "given up"

    @property
    def target(self) -> Task:
        """What must be learned in the end."""
        return self.ground.tasks[-1]

    @property
    def pool(self) -> tuple[Task, ...]:
        """The candidates in the order they were given."""
        return self.ground.tasks[:-1]

    @property
    def network(self) -> Any:
        """The network before training."""
        return self.ground.network

    @property
    def learning_rate(self) -> float:
        """Step size of gradient descent."""
        return self.ground.learning_rate

    @property
    def total(self) -> float:
        """Cost of the recommended stages; steps of descent where nothing else is priced."""
        return self.route.total

    @property
    def direct_total(self) -> float:
        """Cost of the target alone."""
        return self.direct_route.total

    @property
    def direct_steps(self) -> float:
        """Steps of the target alone."""
        return self.direct.descent_steps if self.counted else self.direct.flow_steps

    @property
    def lower_bound(self) -> float:
        """What any plan that meets the terms costs at least, by the flow; nan where no bound is known."""
        return self.flow.lower_bound

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory for the recommended stages, the worst of each."""
        return self.trust.assumptions

    @cached_property
    def trust(self) -> Trust:
        """How far the recommended stages can be trusted."""
        return self.ground.trust_of(self.best.places)

    @property
    def interval(self) -> Interval | None:
        """95% confidence interval of the recommended steps; None where nothing was measured."""
        found = self.best.descent_interval
        return self.best.interval if found is None or any(map(math.isnan, found)) else found

    @property
    def saving_interval(self) -> Interval | None:
        """The same of the steps saved; nothing where nothing is trained before the target."""
        if self.best.saving_interval is None or self.pretrains:
            return self.best.saving_interval
        return (0.0, 0.0) if math.isfinite(self.saving) else (math.nan, math.nan)

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.trust.forecast_class

    @property
    def pretrains(self) -> bool:
        """Whether anything is trained before the target."""
        return len(self.best.outcomes) > 1

    @property
    def worthwhile(self) -> bool:
        """Whether pretraining saves enough to be recommended: 2% of direct training at least."""
        return self.pretrains and not hardly_pays(self.direct_total, self.total)

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
        """The recommended stages, for `follow` or `learncast.training.train`."""
        return tuple(o.stage for o in self.best.outcomes)

    def stage_steps(self, curriculum: Curriculum | None = None) -> list[float]:
        """Steps of each stage, in the count that the plan is made in."""
        outcomes = (self.best if curriculum is None else curriculum).outcomes
        return [o.descent_steps if self.counted else o.flow_steps for o in outcomes]

    def follow(self, stages: list[Stage]) -> Curriculum:
        """Follow other stages of the plan's tasks."""
        return followed(stages, [self.ground.place(s.task) for s in stages], self.ground, direct=self.direct)

    def cost_of(self, curriculum: Curriculum) -> float:
        """What stages cost under the terms of this plan."""
        places = [self.ground.place(o.stage.task) for o in curriculum.outcomes]
        steps = self.stage_steps(curriculum)
        used = [(k, n) for k, n in zip(places, steps, strict=True) if n > 0 or k == self.ground.target]
        return float(sum(n * self.terms.cost[k] for k, n in used) + self.terms.switch_cost * (len(used) - 1))

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Other plans, the best first: direct training, the first task learned in full, the next candidates."""
        last = Stage(self.target, goal=self.terms.accuracy)
        found: list[tuple[str, Curriculum]] = []
        if self.given_up:
            return ()
        if self.pretrains:
            first = self.route.order[0]
            found.append((f"train {self.target.name} directly", self.follow([last])))
            if self.terms.may_finish(first):
                task = self.ground.tasks[first]
                full = self.follow([Stage(task, goal=self.terms.accuracy), last])
                found.append((f"{task.name} to {wording.percent(self.terms.accuracy)}, then {self.target.name}", full))
        others = [c for c in self.candidates if c.helps and c.usable and c.route is not self.route]
        others = [c for c in others if c.route.order != self.route.order]
        for c in others[:MOST_ALTERNATIVES]:
            found.append((f"{c.task.name} to {wording.percent(c.accuracy)}, then {self.target.name}", c.curriculum))
        rows = [
            Alternative(
                name,
                tuple(o.stage for o in way.outcomes),
                float(sum(self.stage_steps(way))),
                self.cost_of(way),
                self.cost_of(way) - self.total,
            )
            for name, way in found
        ]
        return tuple(sorted(rows, key=lambda a: (math.isnan(a.total), a.total)))

    @cached_property
    def sensitivity(self) -> tuple[Shift, ...]:
        """What if a stage is stopped earlier or later, the others being as long as planned?"""
        found = []
        for k, task in enumerate(() if self.given_up else self.route.order):
            for factor in FACTORS:
                steps = [t * (factor if j == k else 1.0) for j, t in enumerate(self.route.durations)]
                total, every = self._shifted(steps)
                name = self.ground.tasks[task].name
                found.append(
                    Shift(
                        k, name, factor, round(steps[k]) if self.counted else steps[k], every, total, total - self.total
                    )
                )
        return tuple(found)

    def _shifted(self, steps: list[float]) -> tuple[float, float]:
        """Cost and steps of the same order with other lengths, limits or not."""
        if self.counted:
            free = self.terms.terms.with_(least_accuracy=None, most_accuracy=None, most_excess_loss=None)
            route = Walker(self.ground, free.over(len(self.pool))).walked(self.route.order, steps)
            return route.total, route.steps
        stages = [Stage(self.ground.tasks[k], steps=t) for k, t in zip(self.route.order, steps, strict=True)]
        way = self.follow([*stages, Stage(self.target, goal=self.terms.accuracy)])
        return self.cost_of(way), way.flow_steps

    @property
    def fragile(self) -> tuple[Shift, Shift] | None:
        """The stage whose stop matters most: 10% early and 10% late."""
        pairs = [
            (early, late)
            for early, late in zip(self.sensitivity, self.sensitivity[1:], strict=False)
            if (early.factor, late.factor) == (0.9, 1.1)
        ]
        return max(pairs, key=lambda pair: max(pair[0].extra, pair[1].extra), default=None)

    @cached_property
    def summary(self) -> str:
        """The answer in one paragraph of plain words."""
        return wording.paragraph(self)

    def loop(self, loaders: Mapping[str, Any], **options: Any) -> Loop:
        """Return a loop that leads your own training through the plan; options are those of `loop_of`."""
        return loop_of(self.best, loaders, **options)

    def front(self, task: Task | str, **options: Any) -> Front:
        """What it costs not to forget a candidate, point by point; options are those of `forgetting_front`."""
        names = [t.name for t in self.pool]
        place = names.index(wording.known("task", str(getattr(task, "name", task)), names))
        own = self.terms.terms
        return forgetting_front(
            self.target,
            self.pool,
            self.network,
            learning_rate=self.learning_rate,
            terms=own.with_(max_stages=max(2, own.max_stages), most_excess_loss=None),
            remember=place,
            **options,
        )

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The ranking, labelled."""
        import xarray as xr

        columns = {
            "best_accuracy": ("accuracy", "accuracy at which to stop the candidate", "1"),
            "stop_steps": ("stop_steps", "steps to spend on the candidate", STEPS),
            "descent_steps": ("descent_steps", "descent steps of candidate and target together", STEPS),
            "flow_steps": ("flow_steps", "flow steps of both at the flow's own best stop", STEPS),
            "saving": ("saving", "cost saved against direct training", "cost"),
            "saving_ratio": ("saving_ratio", "cost of direct training over these", "1"),
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
        whole = {
            "direct_steps": (self.direct_steps, "steps of direct training", STEPS),
            "direct_flow_steps": (self.direct.flow_steps, "flow steps of direct training", STEPS),
            "direct_total": (self.direct_total, "cost of direct training", "cost"),
            "plan_total": (self.total, "cost of the recommended plan", "cost"),
            "plan_flow_total": (self.flow.best.total, "cost of the best plan by the flow", "cost"),
        }
        for name, (value, text, units) in whole.items():
            variables[name] = ((), value, described(text, units))
        if self.candidates and self.best.replicas is not None:
            variables |= self._interval_variables()
        stages = {
            "stage_steps": (self.stage_steps(), "steps of the stage", STEPS),
            "stage_flow_steps": ([o.flow_steps for o in self.best.outcomes], "flow steps of the stage", STEPS),
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
                "goal": self.ground.goal,
                "by": self.ground.by,
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
            pairs = {
                "steps": [c.interval for c in self.candidates],
                "saving": [c.curriculum.saving_interval for c in self.candidates],
            }
            for name, ends in pairs.items():
                values = np.array([(pair or unknown)[k] for pair in ends], dtype=float)
                found[f"{name}_{end}"] = ("candidate", values, described(f"{name}, {note}", STEPS))
            alone = (self.direct_interval or unknown)[k]
            found[f"direct_steps_{end}"] = ((), alone, described(f"direct steps, {note}", STEPS))
        return found

    @property
    def direct_interval(self) -> Interval | None:
        """Interval of direct training."""
        return self.direct.interval or self.best.alone_interval

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        return self.ground.provenance(self.terms.terms.hash)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the ranking to NetCDF."""
        return save_dataset(self.dataset, path, kind="plan", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> xr.Dataset:
        """Read back the ranking that `save` wrote."""
        return load_dataset(path, kind="plan")[0]

    def _card(self) -> Card:
        tables = [stages_table(self), ranking_table(self)]
        return Card(f"Plan for {self.target.name}", self.summary, tables, self.trust.standing, self.trust.table)

    def _picture(self) -> Picture:
        """The slowest mode under the plan and directly; the loss where modes are not learned one by one."""
        best, direct, modes = self.best, self.direct, self.best.modes
        spans = [s for s in (direct.flow_steps, best.flow_steps) if math.isfinite(s)]
        apart = bool(modes) and len(direct.mode_flow_steps) == len(modes[-1])
        times = np.linspace(0.0, 1.25 * max(spans, default=1000.0) or 1.0, 500 if apart else 120)
        paths = [way.at(times).dataset for way in (best, self.follow([best.outcomes[-1].stage]))]
        ends = np.cumsum([o.flow_steps for o in best.outcomes])[:-1]
        switches, eps = [float(t) for t in ends if math.isfinite(t)], 1.0 - self.terms.accuracy
        if not apart:
            goal = eps**2 * self.ground.whole(self.ground.target)
            title = f"Learning {self.target.name}"
            return Picture.of("loss_paths", *paths, goal=goal, switches=switches, title=title)
        mode = int(np.argmax(direct.mode_flow_steps))
        optima = [float(m.optimum[mode]) for m in (modes[-1], modes[0])]
        known = {"optimum": optima[0], "first_optimum": optima[1] if self.pretrains else None}
        look = {"tolerance": eps, "switch": switches, "mode": mode, "title": f"Slowest mode of {self.target.name}"}
        return Picture.of("curriculum_paths", *paths, **known, **look)

    def __repr__(self) -> str:
        unit = "steps" if self.counted else "flow steps"
        steps = " -> ".join(
            f"{o.stage.task.name} to {o.accuracy:.4g} ({n:.6g} {unit})"
            for o, n in zip(self.best.outcomes, self.stage_steps(), strict=True)
        )
        return (
            f"<Plan for {self.target.name!r}: {steps}; saves {self.saving:.6g} of {self.direct_total:.6g}"
            f"{' in cost' if self.terms.priced else ' ' + unit}"
            f"{', which hardly pays' if self.pretrains and not self.worthwhile else ''}; {self.forecast_class}>"
        )


def loop_of(
    curriculum: Curriculum, loaders: Mapping[str, Any], *, criterion: str | None = None, **options: Any
) -> Loop:
    """Turn a curriculum into a loop that leads your own training through it.

    Parameters
    ----------
    curriculum : Curriculum
        From `follow`.
    loaders : mapping of task name to batches
        For each task a DataLoader, a Dataset, an iterable of (inputs, targets), or a function that returns one.
    criterion : {"strength", "loss", "steps"}, optional
        What ends a stage with an accuracy as goal. By default strength for a linear network on which the theory is
        exact, and loss for any other.
    **options
        ``most``, ``window`` and ``every`` of `learncast.training.plan_loop`.

    Returns
    -------
    Loop

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> import torch
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> way = lc.follow([lc.Stage(task, goal=0.9)], network, learning_rate=0.002)
    >>> batch = tuple(map(torch.tensor, task.sample(1000, np.random.default_rng(0))))
    >>> loop = lc.planning.loop_of(way, {task.name: [batch]})
    >>> model = lc.training.as_module(network)
    >>> optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.002)
    >>> for inputs, targets in loop:
    ...     output = model(inputs)
    ...     loss = (output - targets).pow(2).sum() / (2 * len(inputs))
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     loop.update(loss, output)
    >>> loop.stages[0].status.name, round(loop.stages[0].reached, 2)
    ('ok', 0.9)
    """
    from learncast.training.plan_loop import PlannedStage, plan_loop

    ground = curriculum.ground
    planned = []
    for k, (place, outcome) in enumerate(zip(curriculum.places, curriculum.outcomes, strict=True)):
        # Too many descent steps to be counted one by one are nan; the flow need not count.
        steps = outcome.flow_steps if isnan(outcome.descent_steps) else outcome.descent_steps
        losses = partial(ground.loss_range, place, curriculum.states[k + 1])
        planned.append(PlannedStage(outcome.stage, float(steps), outcome.status, ground.readable_modes(place), losses))
    if criterion is None:
        told = ground.readable_modes(ground.target) is not None
        criterion = "strength" if told and curriculum.trust.holds else "loss"
    return plan_loop(planned, loaders, spec=curriculum.provenance.spec_hash, criterion=criterion, **options)
