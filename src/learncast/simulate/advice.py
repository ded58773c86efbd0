"""Advice on pretraining for a model of which everything is trained: a ranking of plans, never a count of steps."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from learncast.errors import InvalidSpec
from learncast.simulate.advice_validity import CONDITIONS, AdviceValidity
from learncast.simulate.race import Race
from learncast.simulate.sources import Source
from learncast.simulate.stopping import LossBelow
from learncast.trajectory import FORECAST_CLASSES, Provenance, load_dataset, save_dataset

KIND = "advice"
#: Name of the plan without pretraining.
DIRECT = "no pretraining"
#: What may be promised.
PROMISES = {
    "surrogate": FORECAST_CLASSES["surrogate"],
    "outside": "rankings of such a network are weak: a shortlist with a warning, best decided by a pilot race",
}


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
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

    dataset: xr.Dataset
    provenance: Provenance
    sources: dict[str, Source] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> xr.DataArray:
        return self.dataset[name]

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

    def stages(self, plan: str | None = None) -> list[tuple[Source, LossBelow]]:
        """The stages of a plan (the recommended one by default) for `learncast.simulate.train`.

        Each is a pair of trials and the loss of the real model at which it ends.
        """
        name = self.recommended if plan is None else plan
        if name not in self.dataset["plan"].values:
            raise InvalidSpec(
                required=f"the plan must be one of {', '.join(map(str, self.dataset['plan'].values))}",
                got=repr(name),
                why="only these were compared",
                remedy="choose one of these, or leave it out for the recommended one",
            )
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
        parts.append(f"Class {self.forecast_class} ({a['kind']} trained by {a['optimiser']}): no step counts.")
        return " ".join(part for part in (*parts, *self.warnings) if part)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to NetCDF; the file appears whole or not at all."""
        return save_dataset(self.dataset, path, kind=KIND, provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Advice:
        """Read a file that `save` wrote."""
        dataset, provenance = load_dataset(path, kind=KIND)
        return cls(dataset, provenance)

    def __repr__(self) -> str:
        lines = [f"<Advice ({self.forecast_class}): {self.recommended}, forecast {self.score:.2f} of direct training"]
        for name in self.dataset["plan"].values[:5]:
            row = self.dataset.sel(plan=name)
            lines.append(f"  {int(row['rank']):>2}. {name}: {float(row['score']):.2f}{_note(row)}")
        left = self.dataset.sizes["plan"] - 5
        return "\n".join(lines) + (f"\n  ... {left} more>" if left > 0 else ">")


def _note(row: xr.Dataset) -> str:
    return "" if bool(row["within_cap"]) else " (stop beyond the cap)"


def ranked(scores: np.ndarray) -> np.ndarray:
    """Places of plans in order of their scores, 1 for the least; equal ones keep their order."""
    order = np.argsort(np.where(np.isnan(scores), np.inf, scores), kind="stable")
    places = np.empty(len(scores), dtype=int)
    places[order] = np.arange(1, len(scores) + 1)
    return places
