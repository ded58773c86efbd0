"""Plans: which intermediate tasks to train first, and when to stop them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.display import Displayable, HtmlRepr, Plot, Reported, Table
from learncast.networks import Network
from learncast.planning import summary
from learncast.planning.candidate import Candidate, Priced, hardly_pays
from learncast.planning.forecast import Forecast
from learncast.planning.front import Front, front_of
from learncast.planning.methods.method import Method
from learncast.planning.plan_numbers import plan_dataset, ranking_table, stop_portrait
from learncast.planning.search import DescentSearch, FlowSearch, Route
from learncast.planning.summary import percent
from learncast.planning.terms import PoolTerms
from learncast.procedure.goals import Accuracy, Goal
from learncast.procedure.stage import Stage
from learncast.results import PROOFS, Provenance, Steps, load_dataset, save_dataset
from learncast.tasks.task import Task
from learncast.theory.assumptions import Trust
from learncast.theory.dynamics.solution import LearningTime

if TYPE_CHECKING:
    import xarray as xr

    from learncast.training.loop import Loop

#: Multiples of a stage's length whose cost shows how much its stop matters.
FACTORS = (0.5, 0.75, 0.9, 1.1, 1.25, 1.5)
#: Candidates offered as alternatives, besides direct training and the first task learned in full.
MOST_ALTERNATIVES = 3


@dataclass(frozen=True, eq=False)
class Alternative:
    """Another plan, and what it costs more than the recommended one."""

    name: str
    stages: tuple[Stage, ...]
    steps: float
    total: float
    extra: float
    #: Whether its first task is trained to the accuracy asked of the target.
    in_full: bool = False


@dataclass(frozen=True, eq=False)
class Shift:
    """Cost of stopping a stage earlier or later than planned.

    Attributes
    ----------
    stage : int
    task : str
    factor : float
        Length of the stage, as a multiple of the planned one.
    steps, all_steps : float
        Steps of the stage and of all stages then.
    total, extra : float
        Cost of all stages then, and its difference to the plan.
    """

    stage: int
    task: str
    factor: float
    steps: float
    all_steps: float
    total: float
    extra: float


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Priced, Reported, Displayable):
    """Which intermediate tasks to train first and when to stop them, ranked against training directly.

    `learncast.plan` makes it.

    Attributes
    ----------
    method
        How the pool is learned; ``method.tasks`` are the candidates and the target.
    terms
        Goal, costs and limits, with the candidates that they refer to.
    best : Forecast
        The recommended stages; the target alone if nothing helps.
    candidates : tuple
        Each candidate by itself before the target, best first; unusable ones last. Each has ``task``, ``accuracy`` (its
        best stop), ``stop_steps``, ``total``, ``helps`` and ``forecast``.
    route, direct_route
        The recommended stages and direct training, in the steps that are reported: ``order`` (places of the tasks),
        ``durations`` (steps of each stage), ``steps`` and ``total``.
    in_sample_route
        The cheapest stages on the given statistics: other than `route` if other stops are better on average over
        resamples.
    flow_route, direct_flow_route
        The best stages by the flow, and direct training by the flow.
    bound : float
        Lower bound of the flow cost of any plan that meets the terms; nan if unknown.
    proof : str
        How good the recommendation is: a key of `learncast.results.PROOFS`.
    counted : bool
        Whether steps are those of descent; otherwise descent was too long to count and they are the flow's.
    compares : bool
        Whether alternatives and the sensitivity to stops are computed.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> plan = lc.plan(task, [stronger], network, learning_rate=1e-3)
    >>> plan.saving, plan.direct_total, plan.worthwhile
    (163.0, 331.0, True)
    >>> [(stage.task.name, round(stage.goal.value, 3)) for stage in plan.stages]
    [('stronger targets', 0.662), ('integration', 0.99)]
    >>> print(plan.summary.split(" (")[0])
    Train "stronger targets" for 168 steps
    """

    method: Method
    terms: PoolTerms
    best: Forecast
    candidates: tuple[Candidate, ...]
    route: Route
    in_sample_route: Route
    direct_route: Route
    flow_route: Route
    direct_flow_route: Route
    bound: float
    proof: str
    counted: bool
    compares: bool = True

    @property
    def target(self) -> Task:
        """What must be learned in the end."""
        return self.method.tasks[-1]

    @property
    def pool(self) -> tuple[Task, ...]:
        """The candidates in the order given."""
        return self.method.tasks[:-1]

    @property
    def network(self) -> Network:
        """The network before training."""
        return self.method.network

    @property
    def learning_rate(self) -> float:
        """Learning rate of all stages."""
        return self.method.learning_rate

    @property
    def goal(self) -> Goal:
        """Goal of the target."""
        return self.terms.goal

    @property
    def goal_text(self) -> str:
        """Goal of the target in a few words: an accuracy as a percentage."""
        return percent(self.goal.value) if isinstance(self.goal, Accuracy) else self.goal.text

    @property
    def forecast(self) -> Forecast:
        """Forecast of the recommended stages."""
        return self.best

    @property
    def direct_time(self) -> LearningTime:
        """Times of direct training, mode by mode."""
        time = self.best.direct_time
        assert time is not None
        return time

    @cached_property
    def direct(self) -> Steps:
        """Steps of direct training, by descent and by the flow, with their interval."""
        time, own = self.direct_time, self.best.direct
        assert own is not None
        low, high = time.interval or (own.low, own.high)
        return replace(time.steps, low=low, high=high)

    @property
    def direct_steps(self) -> float:
        """Steps of direct training as a number: of descent if it was counted, or else of the flow."""
        return self.direct.descent if self.counted else self.direct.flow

    @cached_property
    def trust(self) -> Trust:
        """How far the recommended stages can be trusted."""
        return self.best.trust

    @property
    def forecast_class(self) -> str:
        """What may be promised: a key of `learncast.results.FORECAST_CLASSES`, such as ``"exact"``."""
        return self.trust.forecast_class

    @property
    def direct_interval(self) -> tuple[float, float] | None:
        """95% interval of the cost of direct training; None if nothing was estimated from trials."""
        return None if self.costs is None else self.costs.direct_interval

    @property
    def saving_interval(self) -> tuple[float, float] | None:
        """95% interval of the saving; 0 if nothing is trained before the target."""
        if self.costs is None:
            return None
        if self.pretrains:
            return self.costs.saving_interval
        return (0.0, 0.0) if math.isfinite(self.saving) else (math.nan, math.nan)

    @property
    def may_not_pay(self) -> bool:
        """Whether the interval of the saving includes 0, though the plan trains other tasks first."""
        return self.pretrains and self.saving_interval is not None and not self.saving_interval[0] > 0

    @property
    def pretrains(self) -> bool:
        """Whether anything is trained before the target."""
        return len(self.best.requested) > 1

    @property
    def worthwhile(self) -> bool:
        """Whether pretraining saves at least 2% of direct training."""
        return self.pretrains and not hardly_pays(self.direct_total, self.total)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The recommended stages, for `learncast.follow` or `learncast.training.train`."""
        return self.best.requested

    def stage_steps(self, forecast: Forecast | None = None) -> list[float]:
        """Steps of each stage, in the count that the plan reports."""
        stages = (self.best if forecast is None else forecast).stages
        return [s.steps.descent if self.counted else s.steps.flow for s in stages]

    def follow(self, stages: Sequence[Stage]) -> Forecast:
        """Forecast other stages of the plan's tasks."""
        places = tuple(self.method.place(s.task) for s in stages)
        return Forecast(self.method, tuple(stages), places, known_direct=self.direct_time)

    def cost_of(self, forecast: Forecast) -> float:
        """Cost of stages under the terms of this plan."""
        return float(self.terms.price(list(map(self.method.place, forecast.tasks)), self.stage_steps(forecast)))

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Other plans, the best first: direct training, the first task learned in full, the next candidates."""
        if not self.compares:
            return ()
        last, target = Stage(self.target, self.goal), self.target.name
        others: list[tuple[str, Forecast, bool]] = []
        if self.pretrains:
            first = self.route.order[0]
            others.append((f"train {target} directly", self.follow([last]), False))
            if self.terms.may_finish(first, self.direct_time.accuracy):
                full = self.follow([Stage(self.method.tasks[first], self.goal), last])
                others.append((f"{full.tasks[0].name} to {self.goal_text}, then {target}", full, True))
        helpful = [c for c in self.candidates if c.helps and c.usable and c.route.order != self.route.order]
        for c in helpful[:MOST_ALTERNATIVES]:
            others.append((f"{c.task.name} to {percent(c.accuracy)}, then {target}", c.forecast, False))
        rows = []
        for name, forecast, in_full in others:
            cost = self.cost_of(forecast)
            steps = float(sum(self.stage_steps(forecast)))
            rows.append(Alternative(name, forecast.requested, steps, cost, cost - self.total, in_full))
        return tuple(sorted(rows, key=lambda a: (math.isnan(a.total), a.total)))

    @cached_property
    def sensitivity(self) -> tuple[Shift, ...]:
        """Cost of stopping each stage earlier or later, with the other stages as planned."""
        search = (DescentSearch if self.counted else FlowSearch)(self.method, self.terms.without_limits)
        shifts = []
        for k, task in enumerate(self.route.order if self.compares else ()):
            for factor in FACTORS:
                steps = [t * (factor if j == k else 1.0) for j, t in enumerate(self.route.durations)]
                moved = search.price(self.route.order, steps)
                own = float(round(steps[k])) if self.counted else steps[k]
                name = self.method.tasks[task].name
                shifts.append(Shift(k, name, factor, own, moved.steps, moved.total, moved.total - self.total))
        return tuple(shifts)

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
        """The recommendation in one paragraph."""
        return summary.paragraph(self)

    def loop(self, loaders: Mapping[str, Any], **options: Any) -> Loop:
        """Return a loop that leads your own training through the plan; options are those of `loop_of`."""
        return loop_of(self.best, loaders, **options)

    def front(self, task: Task | str, **options: Any) -> Front:
        """Trade the cost of a plan against forgetting of a candidate; options are those of `front_of`."""
        return front_of(self, task, **options)

    def stop_portrait(self, candidate: int = 0) -> xr.Dataset:
        """Steps saved by one candidate over its stop and the accuracy asked of the target.

        Parameters
        ----------
        candidate : int
            Position in the ranking.

        Returns
        -------
        Dataset
            ``saving_steps`` over (accuracy, stop), and ``saving_cost`` if steps have prices, with the candidate's best
            stop, the plan's accuracy and whether the plan has this stop as attributes; nan where the target is never
            learned that well.
        """
        return stop_portrait(self, candidate)

    # Output

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The ranking and the recommended stages, labelled."""
        return plan_dataset(self)

    @property
    def provenance(self) -> Provenance:
        """Version, settings and hashes from which the numbers come."""
        return self.method.provenance(self.terms.terms.hash)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan's numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="plan", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> xr.Dataset:
        """Read the numbers that `save` wrote."""
        return load_dataset(path, kind="plan")[0]

    @property
    def stages_table(self) -> Table:
        """What to do, stage by stage, and how good it is."""
        title = "Do this" if self.worthwhile or not self.pretrains else "The best plan, which hardly pays"
        own = self.best.table
        cost = [f"Cost, with the prices of tasks and switches: {self.total:,.4g}."] if self.terms.priced else []
        proof = [self._proof_text] if self.candidates else []
        return Table(title, own.columns, own.rows, [*own.notes, *cost, *proof])

    @property
    def _proof_text(self) -> str:
        if self.proof == "best found" and math.isnan(self.bound):
            average = ", on average over resamples of the data" if summary.chosen_on_average(self) else ""
            return f"How good it is: the best of the plans that were tried{average}. A better one may exist."
        text, total = PROOFS[self.proof]["meaning"], self.flow_route.total
        gap = (total - self.bound) / total if total > 0 else 0.0
        left = f" The flow's best is {gap:.1%} above that bound." if self.proof in ("certified", "best found") else ""
        return f"How good it is: {self.proof}. {text[:1].upper()}{text[1:]}.{left}"

    @property
    def ranking_table(self) -> Table:
        """All candidates, best first."""
        return ranking_table(self)

    def _html_repr(self) -> HtmlRepr:
        tables = [self.stages_table, self.ranking_table]
        return HtmlRepr(f"Plan for {self.target.name}", self.summary, tables, self.trust.standing, self.trust.table)

    def _plot(self) -> Plot:
        """The slowest mode under the plan and directly; the loss if modes are not learned one by one."""
        best, modes = self.best, self.best.modes
        spans = [s for s in (self.direct.flow, best.steps.flow) if math.isfinite(s)]
        per_mode = bool(modes) and len(self.direct_time.mode_flow_steps) == len(modes[-1])
        times = np.linspace(0.0, 1.25 * max(spans, default=1000.0) or 1.0, 500 if per_mode else 120)
        paths = [forecast.at(times).dataset for forecast in (best, self.follow([best.requested[-1]]))]
        ends = np.cumsum([s.steps.flow for s in best.stages])[:-1]
        switches = [float(t) for t in ends if math.isfinite(t)]
        learned = [self.direct_steps, *([float(sum(self.stage_steps()))] if self.pretrains else [])]
        if not per_mode:
            excess = self.method.goal_excess(self.method.target, self.goal)
            title = f"Learning {self.target.name}"
            return Plot.of("loss_paths", *paths, goal=excess, switches=switches, learned=learned, title=title)
        mode = int(np.argmax(self.direct_time.mode_flow_steps))
        own, first = (float(m.optimum[mode]) for m in (modes[-1], modes[0]))
        optima = {"optimum": own, "first_optimum": first if self.pretrains else None}
        band, title = 1.0 - self.direct_time.accuracy, f"Slowest mode of {self.target.name}"
        marks = {"switch": switches, "learned": learned, "mode": mode}
        return Plot.of("curriculum_paths", *paths, **optima, tolerance=band, **marks, title=title)

    def __repr__(self) -> str:
        unit = "steps" if self.counted else "flow steps"
        steps = " -> ".join(
            f"{s.task.name} to {s.accuracy:.4g} ({n:.6g} {unit})"
            for s, n in zip(self.best.stages, self.stage_steps(), strict=True)
        )
        return (
            f"<Plan for {self.target.name!r}: {steps}; saves {self.saving:.6g} of {self.direct_total:.6g}"
            f"{' in cost' if self.terms.priced else ' ' + unit}"
            f"{', which hardly pays' if self.pretrains and not self.worthwhile else ''}; {self.forecast_class}>"
        )


def loop_of(forecast: Forecast, loaders: Mapping[str, Any], *, criterion: str | None = None, **options: Any) -> Loop:
    """Turn a forecast into a loop that leads your own training through its stages.

    Parameters
    ----------
    forecast : Forecast
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
    >>> forecast = lc.forecast(task, network, learning_rate=0.002, goal=0.9)
    >>> batch = tuple(map(torch.tensor, task.sample(1000, np.random.default_rng(0))))
    >>> loop = lc.planning.loop_of(forecast, {task.name: [batch]})
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
    from learncast.training.plan_loop import plan_loop

    return plan_loop(forecast, loaders, criterion=criterion, **options)
