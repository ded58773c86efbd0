"""Plans: which intermediate tasks to train first, and when to stop them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.validation import FloatArray, one_of
from learncast.display import (
    Displayable,
    HtmlRepr,
    Plot,
    Reported,
    Table,
    format_count,
    format_interval,
    format_number,
)
from learncast.networks import Network
from learncast.planning import summary
from learncast.planning.forecast import Forecast, difference, ratio
from learncast.planning.front import Front, front_with
from learncast.planning.methods.method import Method
from learncast.planning.search import UNTRIED, DescentSearch, FlowSearch, Route
from learncast.planning.summary import PROOFS, percent
from learncast.planning.terms import PoolTerms
from learncast.procedure.goals import Goal
from learncast.procedure.stage import Stage
from learncast.results import STEPS, Provenance, Status, Steps, described, load_dataset, save_dataset
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust, exact
from learncast.theory.dynamics.solution import LearningTime, status_of
from learncast.theory.responses.bootstrap import interval

if TYPE_CHECKING:
    import xarray as xr

    from learncast.training.loop import Loop

#: Multiples of a stage's length whose cost shows how much its stop matters.
FACTORS = (0.5, 0.75, 0.9, 1.1, 1.25, 1.5)
#: Candidates offered as alternatives, besides direct training and the first task learned in full.
MOST_ALTERNATIVES = 3
#: Share of direct training below which a saving does not justify another task.
NEGLIGIBLE = 0.02
#: Rows of a table of candidates; files hold all.
MOST_ROWS = 25


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost of a curriculum and of direct training under resampled statistics.

    Attributes
    ----------
    total, direct : float
        On the statistics that were not resampled, in the count of the resamples.
    totals, directs : (resamples,)
    """

    total: float
    direct: float
    totals: FloatArray
    directs: FloatArray

    @classmethod
    def of(cls, forecast: Forecast, terms: PoolTerms) -> Costs | None:
        """Price the resamples of a forecast; None if nothing was estimated from trials."""
        resampled, direct = forecast.resampled, forecast.direct
        if resampled is None or direct is None:
            return None
        steps = [s.steps.flow if resampled.flow else s.steps.descent for s in forecast.stages]
        last = float(terms.cost[-1])
        return cls(
            float(terms.price(forecast.places, steps)),
            (direct.flow if resampled.flow else direct.descent) * last,
            _finished(terms.price(forecast.places, resampled.stages)),
            _finished(resampled.direct * last),
        )

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the cost."""
        low, high = interval(self.total, self.totals)
        return float(low), float(high)

    @property
    def direct_interval(self) -> tuple[float, float]:
        """95% interval of the cost of direct training."""
        low, high = interval(self.direct, self.directs)
        return float(low), float(high)

    @property
    def saving_interval(self) -> tuple[float, float]:
        """95% interval of the cost saved; a resample that neither plan nor direct training learns may save any cost."""
        with np.errstate(invalid="ignore"):
            saved, estimate = self.directs - self.totals, difference(self.direct, self.total)
        low, high = (
            interval(estimate, np.where(np.isnan(saved), unknown, saved), signed=True)
            for unknown in (-math.inf, math.inf)
        )
        return float(low[0]), float(high[1])


@dataclass(frozen=True, eq=False)
class Candidate:
    """One intermediate task with its best stop.

    Attributes
    ----------
    task : Task
    make_forecast : callable
        Makes the forecast when it is first needed.
    route, flow_route : Route
        The recommended stop, in whole steps of descent, and the flow's best stop.
    direct_route : Route
        Direct training.
    terms : PoolTerms
    assumptions, failures : tuple of Assumption
        Conditions of the theory for this task, and those because of which the plan does not use it.
    refined : bool
        Whether the stop was refined in whole steps of descent.
    """

    task: Task
    make_forecast: Callable[[], Forecast]
    route: Route
    flow_route: Route
    direct_route: Route
    terms: PoolTerms
    assumptions: tuple[Assumption, ...]
    failures: tuple[Assumption, ...]
    refined: bool

    @cached_property
    def forecast(self) -> Forecast:
        """The candidate to its best stop, then the target; the target alone if no stop pays."""
        return self.make_forecast()

    @cached_property
    def accuracy(self) -> float:
        """Accuracy on the candidate at its stop: of the worst mode, or of the loss if there are no modes."""
        if self.route.order:
            return self.forecast.stages[0].accuracy
        method = self.forecast.method.precise
        return float(method.accuracy(method.place(self.task), method.start[None])[0])

    @property
    def stop_steps(self) -> float:
        """Steps to spend on the candidate; 0 if direct training is at least as good."""
        return self.route.durations[0] if self.route.order else 0.0

    @property
    def total(self) -> float:
        """Cost of both stages."""
        return self.route.total

    @property
    def direct_total(self) -> float:
        """Cost of direct training."""
        return self.direct_route.total

    @cached_property
    def costs(self) -> Costs | None:
        """Cost under resampled statistics; None if nothing was estimated from trials."""
        return Costs.of(self.forecast, self.terms)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of the total; None if nothing was estimated from trials."""
        return None if self.costs is None else self.costs.interval

    @cached_property
    def steps(self) -> Steps:
        """Steps of candidate and target together; flow steps are those of the flow's own best stop."""
        if self.route is UNTRIED:
            return Steps(math.nan, math.nan, status=Status.outside_theory)
        own = self.forecast.steps
        same = self.route is self.flow_route or not self.flow_route.order
        flow = own.flow if same else self.flow_route.steps
        status = status_of(flow, self.route.steps, self.assumptions)
        return Steps(self.route.steps, flow, own.low, own.high, status, own.tried, own.loss)

    @property
    def helps(self) -> bool:
        """Whether some stop of this task pays."""
        return self.stop_steps > 0 and self.total < self.direct_total

    @property
    def tried(self) -> bool:
        """Whether there was time for it."""
        return self.route is not UNTRIED

    @property
    def usable(self) -> bool:
        """Whether the conditions hold well enough to recommend it."""
        return not self.failures

    @property
    def holds(self) -> bool:
        """Whether every condition of the theory holds."""
        return exact(self.assumptions)

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over this curriculum's."""
        return ratio(self.direct_total, self.total)

    @cached_property
    def why(self) -> dict[str, Any]:
        """Why it helps or not, in a sentence; with common modes also the terms of eq. (16)."""
        if self.failures:
            failed = self.failures[0]
            return {"sentence": f"{failed.name} fails ({failed.measured:.2g}): {failed.condition.otherwise}"}
        name, target = f'"{self.task.name}"', f'"{self.forecast.target.name}"'
        if not self.tried:
            return {"sentence": f"there was no time to try {name}"}
        terms = self.forecast.explanation
        found = {} if terms is None else terms.as_dict()
        if not self.helps:
            late = f"reaches the goal of {target} in the steps tried"
            reason = late if not math.isfinite(self.direct_total) else f"saves time: train {target} directly"
            return {**found, "sentence": f"no stop of {name} {reason}"}
        direct = self.forecast.direct_time
        assert direct is not None
        sentence = (
            f"{self.stop_steps:,.0f} steps of {name} leave {self.steps.descent - self.stop_steps:,.0f} of the "
            f"{direct.descent_steps:,.0f} that {target} takes directly"
        )
        return {"sentence": sentence, **found}


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
class Plan(Reported, Displayable):
    """Which intermediate tasks to train first and when to stop them, ranked against training directly.

    Attributes
    ----------
    method : Method
        How the pool is learned.
    terms : PoolTerms
        Goal, costs and limits.
    best : Forecast
        The recommended stages; the target alone if nothing helps.
    candidates : tuple of Candidate
        Each candidate by itself before the target, best first; unusable ones last.
    route, direct_route : Route
        The recommended stages and direct training, in the steps that are reported.
    in_sample_route : Route
        The cheapest stages on the given statistics: other than `route` if other stops are better on average over
        resamples.
    flow_route, direct_flow_route : Route
        The best stages by the flow, and direct training by the flow.
    bound : float
        Lower bound of the flow cost of any plan that meets the terms; nan if unknown.
    proof : str
        How good the recommendation is: a key of `learncast.planning.summary.PROOFS`.
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
    >>> print(plan.summary.split(". ")[0])
    Train "stronger targets" for 168 steps (66% learned), then stop: "integration" is already learned
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
    def out_of_time(self) -> bool:
        """Whether the search ran out of time."""
        return self.proof == "out of time"

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
        """Learning rate."""
        return self.method.learning_rate

    @property
    def goal(self) -> Goal:
        """Goal of the target."""
        return self.terms.goal

    @property
    def goal_value(self) -> float:
        """Number in the goal, such as the accuracy."""
        return float(getattr(self.goal, "value", math.nan))

    @property
    def total(self) -> float:
        """Cost of the recommended stages, in steps if `terms` sets no price."""
        return self.route.total

    @property
    def direct_total(self) -> float:
        """Cost of direct training."""
        return self.direct_route.total

    @property
    def direct_time(self) -> LearningTime:
        """Direct training, mode by mode."""
        time = self.best.direct_time
        assert time is not None
        return time

    @cached_property
    def direct(self) -> Steps:
        """Steps of direct training."""
        time, own = self.direct_time, self.best.direct
        assert own is not None
        low, high = time.interval or (own.low, own.high)
        return replace(time.steps, low=low, high=high)

    @property
    def direct_steps(self) -> float:
        """Reported steps of direct training."""
        return self.direct.descent if self.counted else self.direct.flow

    @cached_property
    def trust(self) -> Trust:
        """How far the recommended stages can be trusted."""
        return self.best.trust

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.trust.forecast_class

    @cached_property
    def costs(self) -> Costs | None:
        """Cost of the recommended stages under resampled statistics; None if nothing was estimated from trials."""
        return Costs.of(self.best, self.terms)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of the total; None if nothing was estimated from trials."""
        return None if self.costs is None else self.costs.interval

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
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over the plan's."""
        return ratio(self.direct_total, self.total)

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
        return Forecast(self.method, tuple(stages), places, self.direct_time)

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
                others.append((f"{full.tasks[0].name} to {percent(self.goal_value)}, then {target}", full, True))
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
        shifts = []
        for k, task in enumerate(self.route.order if self.compares else ()):
            for factor in FACTORS:
                steps = [t * (factor if j == k else 1.0) for j, t in enumerate(self.route.durations)]
                total, every = self._shifted(steps)
                own = float(round(steps[k])) if self.counted else steps[k]
                name = self.method.tasks[task].name
                shifts.append(Shift(k, name, factor, own, every, total, total - self.total))
        return tuple(shifts)

    def _shifted(self, steps: list[float]) -> tuple[float, float]:
        """Cost and steps of the same order with other lengths, without limits."""
        search = (DescentSearch if self.counted else FlowSearch)(self.method, self.terms.without_limits)
        route = search.price(self.route.order, steps)
        return route.total, route.steps

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
        """Trade the cost of a plan against forgetting of a candidate; options are those of `front_with`."""
        names = tuple(t.name for t in self.pool)
        place = names.index(one_of("task", str(getattr(task, "name", task)), names))
        own = self.terms.terms
        terms = own.with_(max_stages=max(2, own.max_stages), most_excess_loss=None)
        return front_with(self.method, terms, remember=place, **options)

    def stop_portrait(self, candidate: int = 0) -> xr.Dataset:
        """Steps saved by one candidate over its stop and the accuracy asked of the target.

        Parameters
        ----------
        candidate : int
            Position in the ranking.

        Returns
        -------
        Dataset
            ``saving_steps`` over (accuracy, stop), with the plan's own stop and accuracy as attributes; nan where the
            target is never learned that well.
        """
        from learncast.planning.stop_portrait import stop_portrait

        return stop_portrait(self, candidate)

    # Output

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The ranking and the recommended stages, labelled."""
        import xarray as xr

        rows, unknown = self.candidates, (math.nan, math.nan)
        columns: dict[str, tuple[list[float], str, str]] = {
            "best_accuracy": ([c.accuracy for c in rows], "accuracy at which to stop the candidate", "1"),
            "stop_steps": ([c.stop_steps for c in rows], "steps to spend on the candidate", STEPS),
            "descent_steps": ([c.steps.descent for c in rows], "descent steps of candidate and target together", STEPS),
            "flow_steps": ([c.steps.flow for c in rows], "flow steps of both at the flow's own best stop", STEPS),
            "saving": ([c.saving for c in rows], "cost saved against direct training", "cost"),
            "saving_ratio": ([c.saving_ratio for c in rows], "cost of direct training over these", "1"),
            "total": ([c.total for c in rows], "cost of candidate and target together", "cost"),
        }
        totals = {
            "direct_steps": (self.direct_steps, "steps of direct training", STEPS),
            "direct_flow_steps": (self.direct.flow, "flow steps of direct training", STEPS),
            "direct_total": (self.direct_total, "cost of direct training", "cost"),
            "plan_total": (self.total, "cost of the recommended plan", "cost"),
            "plan_in_sample_total": (self.in_sample_route.total, "cost of the cheapest plan on these data", "cost"),
            "plan_flow_total": (self.flow_route.total, "cost of the best plan by the flow", "cost"),
        }
        if rows and self.best.resampled is not None:
            for k, end in enumerate(("low", "high")):
                note = f"{end} end of its interval"
                columns[f"steps_{end}"] = ([getattr(c.steps, end) for c in rows], f"steps, {note}", STEPS)
                savings = [math.nan if c.costs is None else c.costs.saving_interval[k] for c in rows]
                columns[f"saving_{end}"] = (savings, f"saving, {note}", "cost")
                direct = (self.direct.interval or unknown)[k]
                totals[f"direct_steps_{end}"] = (direct, f"direct steps, {note}", STEPS)
        stages = {
            "stage_steps": (self.stage_steps(), "steps of the stage", STEPS),
            "stage_flow_steps": ([s.steps.flow for s in self.best.stages], "flow steps of the stage", STEPS),
            "stage_accuracy": ([s.accuracy for s in self.best.stages], "accuracy at its end", "1"),
        }
        variables: dict[str, Any] = {}
        for dim, group in (("candidate", columns), ("stage", stages)):
            for name, (values, text, units) in group.items():
                variables[name] = (dim, np.array(values, dtype=float), described(text, units))
        for name, (value, text, units) in totals.items():
            variables[name] = ((), value, described(text, units))
        return xr.Dataset(
            variables,
            coords={
                "candidate": ("candidate", np.array([c.task.name for c in rows], dtype=str)),
                "status": ("candidate", np.array([c.steps.status.name for c in rows], dtype=str)),
                "stage_task": ("stage", np.array([task.name for task in self.best.tasks], dtype=str)),
            },
            attrs={
                "target": self.target.name,
                "learning_rate": self.learning_rate,
                "goal": self.goal.text,
                "method": self.method.name,
                "proof": self.proof,
                "summary": self.summary,
            },
        )

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        return self.method.provenance(self.terms.terms.hash)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan's numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="plan", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> SavedPlan:
        """Read the plan that `save` wrote."""
        return SavedPlan(*load_dataset(path, kind="plan"))

    @property
    def stages_table(self) -> Table:
        """What to do, stage by stage, and how good it is."""
        title = "Do this" if self.worthwhile or not self.pretrains else "The best plan, which hardly pays"
        own = self.best.table
        return Table(title, own.columns, own.rows, [self._proof_text] if self.candidates else [])

    @property
    def _proof_text(self) -> str:
        if self.proof != "best found":
            flow = "" if self.proof == "robust" else f" Its flow costs {format_number(self.flow_route.total)}."
            text = PROOFS[self.proof][0]
            return f"How good it is: {self.proof}. {text[:1].upper()}{text[1:]}.{flow}"
        if math.isnan(self.bound):
            return "How good it is: the best of the plans that were tried. A better one may exist."
        total = self.flow_route.total
        gap = (total - self.bound) / total if total > 0 else 0.0
        return f"How good it is: best found. A better plan may exist, by at most {gap:.1%} of the flow's cost."

    @property
    def ranking_table(self) -> Table:
        """All candidates, best first."""
        some = self.candidates[:MOST_ROWS]
        rows: list[tuple[str, ...]] = [
            (
                c.task.name,
                f"{c.accuracy:.4g}" if c.helps else "do not use" if c.tried else "not tried",
                c.steps.count,
                format_number(c.steps.flow),
                format_count(c.saving),
                f"{c.saving_ratio:.3f}",
            )
            for c in some
        ]
        direct = self.direct
        steps = direct.count, format_number(direct.flow)
        rows.append(("direct training", "", *steps, "", "1.000"))
        columns: tuple[str, ...] = ("candidate", "best stop", "descent steps", "flow steps", "saves", "ratio")
        if self.terms.priced:
            costs = [*(c.total for c in some), self.direct_total]
            rows = [(*row, format_number(cost)) for row, cost in zip(rows, costs, strict=True)]
            columns = (*columns, "cost")
        if self.best.resampled is not None:
            ends = [*(c.interval for c in some), self.direct_interval]
            rows = [(*row, format_interval(i)) for row, i in zip(rows, ends, strict=True)]
            columns = (*columns, "95% interval of the cost" if self.terms.priced else "95% interval")
        sentences = [(c.task.name, str(c.why["sentence"])) for c in some]
        notes = [f"{text}." if name in text else f"{name}: {text}." for name, text in sentences]
        if len(self.candidates) > MOST_ROWS:
            notes.append(f"{len(self.candidates) - MOST_ROWS} more candidates are in the files.")
        return Table("All candidates, best first", columns, rows, notes)

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
        if not per_mode:
            excess = self.method.goal_excess(self.method.target, self.goal)
            title = f"Learning {self.target.name}"
            return Plot.of("loss_paths", *paths, goal=excess, switches=switches, title=title)
        mode = int(np.argmax(self.direct_time.mode_flow_steps))
        optima = [float(m.optimum[mode]) for m in (modes[-1], modes[0])]
        known = {"optimum": optima[0], "first_optimum": optima[1] if self.pretrains else None}
        tolerance = 1.0 - self.direct_time.accuracy
        look = {
            "tolerance": tolerance,
            "switch": switches,
            "mode": mode,
            "title": f"Slowest mode of {self.target.name}",
        }
        return Plot.of("curriculum_paths", *paths, **known, **look)

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


@dataclass(frozen=True, eq=False, repr=False)
class SavedPlan(Displayable):
    """A plan read from a file: its numbers and summary, without the tasks and the network."""

    dataset: xr.Dataset
    provenance: Provenance

    @property
    def summary(self) -> str:
        """The recommendation in one paragraph."""
        return str(self.dataset.attrs["summary"])

    @property
    def proof(self) -> str:
        """How good the recommendation is."""
        return str(self.dataset.attrs["proof"])

    @property
    def total(self) -> float:
        """Cost of the recommended stages."""
        return float(self.dataset["plan_total"])

    @property
    def direct_total(self) -> float:
        """Cost of direct training."""
        return float(self.dataset["direct_total"])

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct_total, self.total)

    @property
    def stages_table(self) -> Table:
        """The recommended stages."""
        names = [str(name) for name in self.dataset["stage_task"].values]
        steps, accuracy = self.dataset["stage_steps"].values, self.dataset["stage_accuracy"].values
        rows = [(n, format_count(float(s)), f"{float(a):.4g}") for n, s, a in zip(names, steps, accuracy, strict=True)]
        return Table("Do this", ("stage", "steps", "stop at accuracy"), rows)

    def _html_repr(self) -> HtmlRepr:
        return HtmlRepr(f"Plan for {self.dataset.attrs['target']}", self.summary, [self.stages_table])

    def _plot(self) -> Plot:
        return Plot.of("ranking", self.dataset, title="Candidates before the target")

    def __repr__(self) -> str:
        target = self.dataset.attrs["target"]
        return f"<SavedPlan for {target!r}: saves {self.saving:.6g} of {self.direct_total:.6g}; {self.proof}>"


def _finished(costs: FloatArray) -> FloatArray:
    """Costs of resamples, infinite where the count was stopped; unknown if no count ended."""
    unknown = np.isnan(costs)
    return costs if unknown.all() else np.where(unknown, np.inf, costs)


def hardly_pays(direct: float, total: float) -> bool:
    """Whether the saving is positive but too small to justify another task."""
    return 0.0 < difference(direct, total) < NEGLIGIBLE * direct < math.inf


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
    from learncast.training.plan_loop import PlannedStage, plan_loop

    method = forecast.method.precise
    planned = []
    for k, (place, s) in enumerate(zip(forecast.places, forecast.stages, strict=True)):
        losses = partial(method.loss_range, place, forecast.states[k + 1])
        accuracy = None if s.stage.goal is None else method.goal_accuracy(place, s.stage.goal)
        modes = method.readable_modes(place)
        planned.append(PlannedStage(s.stage, s.steps.value, s.steps.status, modes, losses, accuracy))
    if criterion is None:
        linear = method.readable_modes(method.target) is not None
        per_mode = all(s.goal is None or method.per_mode(s.goal) for s in forecast.requested)
        criterion = "strength" if linear and per_mode and forecast.trust.holds else "loss"
    return plan_loop(planned, loaders, spec=forecast.provenance.spec_hash, criterion=criterion, **options)
