"""Advice on pretraining: a ranking of plans, without step counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, one_of
from learncast.advice.race import Race
from learncast.advice.request import EVALUATION, Request
from learncast.display import Displayable, HtmlRepr, Plot, Reported, Table, format_number
from learncast.procedure.stage import Stage
from learncast.results import FORECAST_CLASSES, Result, described, spec_hash
from learncast.theory.assumptions import Assumption, Condition, Trust
from learncast.training.run import Execution, Records, TrainingRun, training_provenance
from learncast.training.trainer import train

#: Name of the plan without pretraining.
DIRECT = "no pretraining"
#: Plans on the shortlist.
SHORTLIST = 3


class AdvisedPlan(NamedTuple):
    """A plan: its first task, its stages, its score, and a description.

    From a surrogate also the share of the excess loss at which the first task ends, the loss there, and whether the
    plan may be recommended.
    """

    task: str
    stages: tuple[Stage[object], ...]
    score: float
    words: str
    stop: float = math.nan
    stop_loss: float = math.nan
    within_cap: bool = True


#: What the advice promises, by class.
PROMISES = {
    "surrogate": FORECAST_CLASSES["surrogate"],
    "decisions": "an order of plans by the features of the untrained network, without step counts",
    "outside": "rankings for such networks are weak: a shortlist, best decided by a pilot race",
}


#: Conditions of advice.
CONDITIONS = {
    "linear_decides": Condition(
        0.25,
        "a linear map of the inputs must reach the goal (measured: shortfall of the best one, as a share of the way "
        "from chance to the goal)",
        "the answer is a nonlinear function of the inputs, which second-order statistics do not show: the ranking says "
        "nothing about the decision",
        "decide by a pilot race, which is run to the goal itself",
    ),
    "linear_at_start": Condition(
        0.25,
        "none: the untrained model should answer like its linear surrogate (measured: relative difference of answers)",
        "the units are already nonlinear at the start, and the ranking is less certain",
        "start from smaller weights, or run a pilot race",
        binding=False,
    ),
    "surrogate_learns_target": Condition(
        0.0,
        "the surrogate must learn the target (measured: 1 if it does not)",
        "no plan can be compared with direct training",
        "lower the learning rate or the goal, or raise most_steps",
    ),
    "smooth_descent": Condition(
        0.0,
        "units without a kink, or an adaptive optimiser (measured: 1 for ReLU with SGD)",
        "rankings agree only weakly with training, as do two trainings with each other",
        "use tanh or a gated layer, an adaptive optimiser, or a pilot race",
    ),
    "squared_loss": Condition(
        0.0,
        "none: the surrogate minimises half the squared error with equal weights (measured: 1 for another loss or "
        "other weights)",
        "the model is trained on another loss than its surrogate",
        "use the order of the plans as a shortlist, and run a pilot race",
        binding=False,
    ),
    "fresh_optimizer": Condition(
        0.0,
        "every stage of the surrogate starts with a fresh optimiser (measured: 1 if an adaptive one is kept)",
        "much of what a first stage saves is due to resetting an adaptive optimiser",
        "reset the optimiser between stages, or run a pilot race, which keeps it",
    ),
}


class AdviceValidity(Assumption):
    """A measured condition of advice; `name` is a key of `CONDITIONS`."""

    conditions = CONDITIONS


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Result, Reported, Displayable):
    """Which task to train first, and when to stop, to learn the target soonest.

    Attributes
    ----------
    dataset : Dataset
        Over ``plan``, best first: ``task``, ``words`` (the plan in a sentence), ``score`` (predicted time relative to
        direct training), ``rank``, and ``within_cap`` (whether it may be recommended). From a surrogate also ``stop``
        (the share of the excess loss at which pretraining ends) and ``stop_loss``; with a pilot race its steps.
    provenance : Provenance
    request : Request or None
        The request; None after `load`.
    plans : dict of str to tuple of Stage
        The stages of each plan; empty after `load`.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 6, 1)).astype("float32")
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> target, easy = (inputs, inputs.sum(axis=1)), (inputs, inputs[:, -1])
    >>> training, quiet = lc.Training(0.02, optimizer="adam"), lambda text: None
    >>> advice = lc.advise(model, target, {"last input": easy}, training, goal=lc.Loss(1.0), log=quiet)
    >>> advice.forecast_class, advice.recommended in advice.shortlist, advice.dataset.sizes["plan"]
    ('surrogate', True, 7)
    >>> [stage.goal.text for stage in advice.stages("no pretraining")]
    ['loss 1']
    >>> advice.train("no pretraining").status.name
    'ok'
    """

    kind = "advice"

    request: Request | None = field(default=None, repr=False)
    plans: dict[str, tuple[Stage[object], ...]] = field(default_factory=dict, repr=False)

    @property
    def recommended(self) -> str:
        """Name of the recommended plan: the winner of the race, else the best of the ranking."""
        return str(self.dataset.attrs["recommended"])

    @property
    def shortlist(self) -> tuple[str, ...]:
        """The three best plans within the cap."""
        return tuple(str(self.dataset.attrs["shortlist"]).split("\n"))

    @property
    def score(self) -> float:
        """Score of the recommended plan."""
        return float(self.dataset["score"].sel(plan=self.recommended))

    @property
    def forecast_class(self) -> str:
        """Class of the forecast: "surrogate" or "outside"."""
        return str(self.dataset.attrs["forecast_class"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for caution."""
        text = str(self.dataset.attrs["warnings"])
        return tuple(text.split("\n")) if text else ()

    @property
    def cost_estimate(self) -> str:
        """Estimated cost, as logged before the work began."""
        return str(self.dataset.attrs["cost_estimate"])

    @property
    def validity(self) -> tuple[AdviceValidity, ...]:
        """The measured conditions of the advice."""
        values = {name: self.dataset.attrs.get(f"validity_{name}") for name in CONDITIONS}
        return tuple(AdviceValidity(name, float(value)) for name, value in values.items() if value is not None)

    @property
    def trust(self) -> Trust:
        """How far the advice can be trusted."""
        return Trust(self.validity, "surrogate")

    @property
    def table(self) -> Table:
        """Every plan with its score, best first."""
        columns = ("plan", str(self.dataset["score"].attrs["long_name"]), "may be recommended")
        each = (self.dataset[name].values for name in ("plan", "score", "within_cap"))
        rows = [
            (str(plan), format_number(float(score)), "yes" if ok else "no")
            for plan, score, ok in zip(*each, strict=True)
        ]
        return Table("Plans, best first", columns, rows)

    def _html_repr(self) -> HtmlRepr:
        return HtmlRepr("Advice", self.summary, [self.table], self.trust.standing, self.trust.table)

    def _plot(self) -> Plot:
        return Plot.of("plan_scores", self.dataset.where(np.isfinite(self.dataset["score"]), drop=True))

    @property
    def pilot(self) -> Race | None:
        """The pilot race, if one was run."""
        return Race(self.dataset) if "race_steps" in self.dataset else None

    def raced(self, race: Race) -> Advice:
        """Return the advice with the result of a pilot race, whose winner is recommended."""
        own, of_race = self.dataset.attrs, race.dataset.attrs
        attrs = {**own, **of_race, "recommended": race.winner or self.recommended}
        return replace(self, dataset=self.dataset.merge(race.dataset).assign_attrs(attrs))

    def stages(self, plan: str | None = None) -> list[Stage[object]]:
        """Return the stages of a plan (by default the recommended one), for `training.train` or `training.Loop`."""
        plans = tuple(map(str, self.dataset["plan"].values))
        name = one_of("plan", self.recommended if plan is None else plan, plans)
        self._known_request()
        return list(self.plans[name])

    def train(
        self,
        plan: str | None = None,
        *,
        most_steps: int = 20_000,
        record: Records | Sequence[str] = Records(("loss", "goal"), every=10, evaluation=EVALUATION),  # noqa: B008
        execution: Execution | None = None,
        progress: Progress = silent,
    ) -> TrainingRun:
        """Train a copy of the model by a plan.

        Parameters
        ----------
        plan : str, optional
            The recommended one by default; ``"no pretraining"`` trains directly.
        most_steps : int
            Steps after which a stage is given up.
        record, execution, progress
            As of `training.train`; the precision is that of the model by default.

        Returns
        -------
        TrainingRun
            `module` is the trained model.
        """
        request, stages = self._known_request(), self.stages(plan)
        given = Execution(dtype=str(request.dtype).removeprefix("torch.")) if execution is None else execution
        training = request.training.with_(most_steps=most_steps)
        return train(stages, request.model, training, record=record, execution=given, progress=progress)

    def _known_request(self) -> Request:
        if self.request is None:
            raise InvalidSpec("Advice that was loaded from a file has no model and no trials.", field="request")
        return self.request

    @property
    def summary(self) -> str:
        """The advice in one paragraph."""
        a, row = self.dataset.attrs, self.dataset.sel(plan=self.recommended)
        reason = str(a["score_words"]).format(float(row["score"]))
        if self.recommended == DIRECT:
            reason = "it won the race" if self.pilot else "no pretraining is forecast to be faster"
        said = f"{row['words'].item()}: {reason}."
        others = ", ".join(name for name in self.shortlist if name != self.recommended)
        parts = [said, f"Also on the shortlist: {others}." if others else ""]
        pilot = self.pilot
        parts.append(pilot.summary if pilot is not None else "A pilot race would compare them on the real model.")
        between = "Every stage starts with a fresh optimiser." if a["optimizer_between_stages"] == "reset" else ""
        parts.append(between)
        parts.append(f"Class {self.forecast_class} ({a['kind']} trained by {a['optimizer']}): no step counts.")
        return " ".join(part for part in (*parts, *self.warnings) if part)

    def __repr__(self) -> str:
        said = str(self.dataset.attrs["score_words"]).format(self.score)
        lines = [f"<Advice ({self.forecast_class}): {self.recommended}, {said}"]
        for name in self.dataset["plan"].values[:5]:
            row = self.dataset.sel(plan=name)
            note = "" if bool(row["within_cap"]) else " (stop beyond the cap)"
            lines.append(f"  {int(row['rank']):>2}. {name}: {float(row['score']):.2f}{note}")
        left = self.dataset.sizes["plan"] - 5
        return "\n".join(lines) + (f"\n  ... {left} more>" if left > 0 else ">")


#: Meaning and unit of the columns of a table of plans.
COLUMNS = {
    "task": ("task trained first", "1"),
    "words": ("the plan in words", "1"),
    "within_cap": ("whether it may be recommended", "1"),
    "stop": ("accuracy at which its training ends", "1"),
    "stop_loss": ("loss of the model at which its training ends", "target^2"),
}


def failed_conditions(measured: Mapping[str, float]) -> dict[str, Condition]:
    """Return the conditions that do not hold."""
    return {name: CONDITIONS[name] for name, value in measured.items() if value > CONDITIONS[name].allowed}


def advice_of(
    request: Request,
    plans: Mapping[str, AdvisedPlan],
    measured: Mapping[str, float],
    weights: Iterable[FloatArray],
    *,
    promise: str,
    score: str,
    shortlist: Sequence[str],
    warnings: Sequence[str],
    **facts: object,
) -> Advice:
    """Return advice from plans, best first, and the measured conditions.

    `promise` is a key of `PROMISES` if no binding condition fails, and `score` says what the scores are. `weights`
    identify the model.
    """
    rows = list(plans.values())
    used = COLUMNS if any(math.isfinite(row.stop) for row in rows) else list(COLUMNS)[:3]
    columns = {name: ("plan", [getattr(row, name) for row in rows], described(*COLUMNS[name])) for name in used}
    columns["score"] = ("plan", [row.score for row in rows], described(score, "1"))
    columns["rank"] = ("plan", [*range(1, len(rows) + 1)], described("place in the ranking", "1"))
    outside = any(condition.binding for condition in failed_conditions(measured).values())
    attributes = {
        **request.facts,
        "recommended": shortlist[0],
        "shortlist": "\n".join(shortlist),
        "forecast_class": "outside" if outside else "surrogate",
        "promise": PROMISES["outside" if outside else promise],
        "warnings": "\n".join([*warnings, *request.remarks]),
        **{f"validity_{name}": value for name, value in measured.items()},
        **facts,
    }
    rule, hashes = request.rule, (source.hash for source in request.sources)
    digest = spec_hash(*hashes, *weights, rule.name, rule.learning_rate)
    dataset = xr.Dataset(columns, coords={"plan": list(plans)}, attrs=attributes)
    stages = {name: row.stages for name, row in plans.items()}
    return Advice(dataset, training_provenance(digest, request.training.seed), request, stages)
