"""Advice on pretraining for a model of which everything is trained: a ranking of plans, never a count of steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import one_of
from learncast.advice.race import Race
from learncast.advice.request import Request
from learncast.display import Displayable, HtmlRepr, Plot, Table, format_number
from learncast.results import FORECAST_CLASSES, Result
from learncast.theory.assumptions import Assumption, Condition, Trust
from learncast.training.run import TrainingRun
from learncast.training.sources import Source
from learncast.training.stopping import Rule
from learncast.training.trainer import train

#: Name of the plan without pretraining.
DIRECT = "no pretraining"
#: Plans on the shortlist.
SHORTLIST = 3


def plan_name(task: str, stop: float, *, restart: bool = False) -> str:
    """Name of the plan that begins with a task and leaves it at an accuracy."""
    return f"{task} itself to {stop:.0%}, restarted" if restart else f"{task} to {stop:.0%}"


#: What may be promised.
PROMISES = {
    "surrogate": FORECAST_CLASSES["surrogate"],
    "decisions": "a first stage that is read from the features that the network starts with: an order of plans, no "
    "step counts",
    "outside": "rankings of such a network are weak: a shortlist with a warning, best decided by a pilot race",
}


#: What advice assumes.
CONDITIONS = {
    "linear_decides": Condition(
        0.25,
        "a linear map of the inputs must decide as well as the goal asks (measured: share of the way from chance to "
        "the goal that the best one falls short by)",
        "the answer is a product or another bend of the inputs, which second-order statistics do not show: the ranking "
        "says nothing about the decision",
        "go by a pilot race, which is run to the goal itself",
    ),
    "linear_at_start": Condition(
        0.25,
        "none: near its start the model should answer like its linear surrogate (measured: share of the answers' "
        "spread by which they differ on the target)",
        "activity is already bent by the units, and the ranking is less sure",
        "start from smaller weights, or ask for a pilot race",
        binding=False,
    ),
    "surrogate_learns_target": Condition(
        0.0,
        "the surrogate must learn the target (measured: 1 when it does not)",
        "no plan can be compared with direct training",
        "lower the learning rate or the accuracy, or raise most_steps",
    ),
    "smooth_descent": Condition(
        0.0,
        "the units' slope must not jump while everything is trained without an adaptive optimiser (measured: 1 for "
        "ReLU with SGD)",
        "rankings agree with training only weakly there, and so do two trainings with each other",
        "use tanh or a gated layer, an adaptive optimiser, or ask for a pilot race",
    ),
    "squared_loss": Condition(
        0.0,
        "none: the surrogate descends half the squared error, every step and output counted alike (measured: 1 for "
        "another loss or other weights)",
        "the model is trained on another loss than its surrogate",
        "take the order of the plans for a shortlist, and ask for a pilot race",
        binding=False,
    ),
    "fresh_optimizer": Condition(
        0.0,
        "the surrogate's stages start with a fresh optimiser (measured: 1 where an adaptive one is kept)",
        "much of what a first stage saves is the fresh start of an adaptive optimiser, which a kept one does not have",
        "reset the optimiser between stages, or ask for a pilot race, which keeps it",
    ),
}


class AdviceValidity(Assumption):
    """One condition of advice, as measured; `name` is a key of `CONDITIONS`."""

    conditions = CONDITIONS


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Result, Displayable):
    """Which pretraining task, stopped when, reaches the target soonest.

    Attributes
    ----------
    dataset : Dataset
        Over ``plan``, best first: ``task``, ``words`` (the plan in a sentence), ``score`` (predicted time relative to
        training directly, which is 1), ``rank``, and ``within_cap`` (whether it may be recommended). From a surrogate
        also ``stop`` (the accuracy at which pretraining ends; nan without) and ``stop_loss``; with a pilot race its
        steps.
    provenance : Provenance
    request : Request or None
        What was asked; None after `load`.
    plans : dict of str to tuple of (Source, rule)
        What each plan trains on and by which rule it goes on; empty after `load`.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 6, 1)).astype("float32")
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> target, easy = (inputs, inputs.sum(axis=1)), (inputs, inputs[:, -1])
    >>> asked = {"optimizer": "adam", "learning_rate": 0.02, "batch": None, "echo": lambda text: None}
    >>> found = lc.advise(model, target, {"last input": easy}, goal=1.0, **asked)
    >>> found.forecast_class, found.recommended in found.shortlist, found.dataset.sizes["plan"]
    ('surrogate', True, 7)
    >>> [rule.words for _, rule in found.stages("no pretraining")]
    ['a loss of 1']
    >>> found.train("no pretraining").status.name
    'ok'
    """

    kind = "advice"

    request: Request | None = field(default=None, repr=False)
    plans: dict[str, tuple[tuple[Source, Rule], ...]] = field(default_factory=dict, repr=False)

    @property
    def recommended(self) -> str:
        """Name of the plan to carry out: the race's winner, else the surrogate's."""
        return str(self.dataset.attrs["recommended"])

    @property
    def shortlist(self) -> tuple[str, ...]:
        """The three best plans within the cap."""
        return tuple(str(self.dataset.attrs["shortlist"]).split("\n"))

    @property
    def score(self) -> float:
        """Predicted time of the recommended plan, relative to training directly; of its readout, to a decision."""
        return float(self.dataset["score"].sel(plan=self.recommended))

    @property
    def forecast_class(self) -> str:
        """What may be promised: "surrogate", or "outside"."""
        return str(self.dataset.attrs["forecast_class"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about."""
        text = str(self.dataset.attrs["warnings"])
        return tuple(text.split("\n")) if text else ()

    @property
    def cost_estimate(self) -> str:
        """What was said before the work began."""
        return str(self.dataset.attrs["cost_estimate"])

    @property
    def validity(self) -> tuple[AdviceValidity, ...]:
        """What the advice assumes, as measured."""
        found = {name: self.dataset.attrs.get(f"validity_{name}") for name in CONDITIONS}
        return tuple(AdviceValidity(name, float(value)) for name, value in found.items() if value is not None)

    @property
    def trust(self) -> Trust:
        """How far it can be trusted."""
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
        """The pilot race, if there was one."""
        return Race(self.dataset) if "race_steps" in self.dataset else None

    def raced(self, race: Race) -> Advice:
        """The same advice after a pilot race, whose winner is recommended."""
        own, of_race = self.dataset.attrs, race.dataset.attrs
        attrs = {**own, **of_race, "recommended": race.winner or self.recommended}
        return replace(self, dataset=self.dataset.merge(race.dataset).assign_attrs(attrs))

    def stages(self, plan: str | None = None) -> list[tuple[Source, Rule]]:
        """The stages of a plan (the recommended one by default) for `learncast.training.train`.

        Each is a pair of trials and the rule by which it ends.
        """
        plans = tuple(map(str, self.dataset["plan"].values))
        name = one_of("the plan", self.recommended if plan is None else plan, plans)
        self._asked("stages need the trials that the advice was about")
        return list(self.plans[name])

    def train(
        self,
        plan: str | None = None,
        *,
        most_steps: int = 20_000,
        record: tuple[str, ...] = ("loss", "goal"),
        every: int = 10,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1000,
        log: Callable[[str], object] = silent,
        writer: Any = None,
        progress: Progress = silent,
    ) -> TrainingRun:
        """Carry a plan out on the model: a copy of it is trained, stage by stage, as was asked.

        Parameters
        ----------
        plan : str, optional
            The recommended one by default; ``"no pretraining"`` trains directly.
        most_steps : int
            Where a stage is given up that does not reach its goal.
        record, every
            What is recorded, and steps between records, as of `training.Training`.
        checkpoint, checkpoint_every, log, writer, progress
            As of `training.train`: going on after a stop, a sentence at every switch, scalars for TensorBoard.

        Returns
        -------
        TrainingRun
            `module` is the trained model.
        """
        asked, stages = (
            self._asked("training needs the model and the trials that the advice was about"),
            self.stages(plan),
        )
        training = asked.trained_as(most_steps=most_steps, record=record, every=every)
        options: dict[str, Any] = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
        return train(list(stages), asked.model, training, log=log, writer=writer, progress=progress, **options)

    def _asked(self, required: str) -> Request:
        if self.request is None:
            raise InvalidSpec(f"{required}, got advice that was loaded from a file.")
        return self.request

    @property
    def summary(self) -> str:
        """The advice in one plain paragraph."""
        a, row = self.dataset.attrs, self.dataset.sel(plan=self.recommended)
        reason = str(a["score_words"]).format(float(row["score"]))
        if self.recommended == DIRECT:
            reason = "no pretraining won the race" if self.pilot else "no pretraining is forecast to be sooner"
        said = f"{row['words'].item()}: {reason}."
        others = ", ".join(name for name in self.shortlist if name != self.recommended)
        parts = [said, f"Also on the shortlist: {others}." if others else ""]
        pilot = self.pilot
        parts.append(pilot.summary if pilot is not None else "A pilot race of the shortlist would tell them apart.")
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
