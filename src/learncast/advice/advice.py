"""Advice on pretraining for a model of which everything is trained: a ranking of plans, never a count of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from learncast.advice.race import Race
from learncast.assumptions import Assumption, Condition
from learncast.errors import InvalidSpec
from learncast.simulate.goals import LossBelow
from learncast.simulate.sources import Source
from learncast.trajectory import FORECAST_CLASSES, Result
from learncast.validation import one_of

#: Name of the plan without pretraining.
DIRECT = "no pretraining"
#: What may be promised.
PROMISES = {
    "surrogate": FORECAST_CLASSES["surrogate"],
    "outside": "rankings of such a network are weak: a shortlist with a warning, best decided by a pilot race",
}


#: What advice assumes.
CONDITIONS = {
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
}


class AdviceValidity(Assumption):
    """One condition of advice, as measured; `name` is a key of `CONDITIONS`."""

    conditions = CONDITIONS


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Result):
    """Which pretraining task, stopped when, reaches the target soonest.

    Attributes
    ----------
    dataset : Dataset
        Over ``plan``, best first: ``task`` and ``stop`` (the accuracy at which its pretraining ends; nan without),
        ``score`` (predicted time relative to training directly, which is 1), ``rank``, and ``within_cap`` (whether it
        may be recommended). With a pilot race also its steps.
    provenance : Provenance
    sources : dict
        Trials of each task by name, as given; empty after `load`.
    """

    kind = "advice"

    sources: dict[str, Source] = field(default_factory=dict, repr=False)

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
        """Predicted time of the recommended plan, relative to training directly."""
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
        return tuple(AdviceValidity(name, float(self.dataset.attrs[f"validity_{name}"])) for name in CONDITIONS)

    @property
    def pilot(self) -> Race | None:
        """The pilot race, if there was one."""
        return Race(self.dataset) if "race_steps" in self.dataset else None

    def raced(self, race: Race) -> Advice:
        """The same advice after a pilot race, whose winner is recommended."""
        own, of_race = self.dataset.attrs, race.dataset.attrs
        attrs = {**own, **of_race, "recommended": race.winner or self.recommended}
        return replace(self, dataset=self.dataset.merge(race.dataset).assign_attrs(attrs))

    def stages(self, plan: str | None = None) -> list[tuple[Source, LossBelow]]:
        """The stages of a plan (the recommended one by default) for `learncast.simulate.train`.

        Each is a pair of trials and the loss of the real model at which it ends.
        """
        plans = tuple(map(str, self.dataset["plan"].values))
        name = one_of("the plan", self.recommended if plan is None else plan, plans, why="only these were compared")
        if not self.sources:
            raise InvalidSpec(
                required="stages need the trials that the advice was about",
                got="advice that was loaded from a file",
                why="a file keeps the ranking and not the trials",
                remedy="ask for advice again, or build the stages yourself from the task and stop of the plan",
            )
        row = self.dataset.sel(plan=name)
        target = (self.sources[str(self.dataset.attrs["target"])], LossBelow(float(self.dataset.attrs["target_loss"])))
        if math.isnan(float(row["stop"])):
            return [target]
        return [(self.sources[str(row["task"].item())], LossBelow(float(row["stop_loss"]))), target]

    @property
    def summary(self) -> str:
        """The advice in one plain paragraph."""
        a, target = self.dataset.attrs, str(self.dataset.attrs["target"])
        row = self.dataset.sel(plan=self.recommended)
        if self.recommended == DIRECT:
            reason = "no pretraining won the race" if self.pilot else "no pretraining is forecast to be sooner"
            said = f"Train on {target} directly: {reason}."
        else:
            said = (
                f"Train on {row['task'].item()} until {float(row['stop']):.0%} of what it can lose is lost "
                f"(loss {float(row['stop_loss']):.3g}), then on {target}: forecast {float(row['score']):.2f} of the "
                "time of training directly."
            )
        others = ", ".join(name for name in self.shortlist if name != self.recommended)
        parts = [said, f"Also on the shortlist: {others}." if others else ""]
        pilot = self.pilot
        parts.append(pilot.summary if pilot is not None else "A pilot race of the shortlist would tell them apart.")
        parts.append(f"Class {self.forecast_class} ({a['kind']} trained by {a['optimizer']}): no step counts.")
        return " ".join(part for part in (*parts, *self.warnings) if part)

    def __repr__(self) -> str:
        lines = [f"<Advice ({self.forecast_class}): {self.recommended}, forecast {self.score:.2f} of direct training"]
        for name in self.dataset["plan"].values[:5]:
            row = self.dataset.sel(plan=name)
            note = "" if bool(row["within_cap"]) else " (stop beyond the cap)"
            lines.append(f"  {int(row['rank']):>2}. {name}: {float(row['score']):.2f}{note}")
        left = self.dataset.sizes["plan"] - 5
        return "\n".join(lines) + (f"\n  ... {left} more>" if left > 0 else ">")
