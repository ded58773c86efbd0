"""The learnability window of a model: its numbers, how far to trust them, and what they mean."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import exact
from learncast.learnability.detection import NOISES
from learncast.learnability.validity import CONDITIONS, Validity
from learncast.learnability.window_summary import summary
from learncast.trajectory import Provenance, load_dataset, save_dataset
from learncast.validation import one_of

KIND = "window"


@dataclass(frozen=True, eq=False, repr=False)
class LearnabilityWindow:
    """How far back a trained recurrent model can learn, per layer, and from how many sequences.

    Attributes
    ----------
    dataset : xarray.Dataset
        Over (layer, lag, unit, sample_size, direction, noise, side), each variable with ``units`` and ``long_name``:
        the envelope and its parts, the signal and noise of every lag, the sequences it needs, windows and what they
        would be without any signal, the decay of the envelope, and the time scale of every unit. ``noise`` says what a
        signal competes with: ``"per_lag"`` the noise of its own lag, as published, or ``"total"`` that of the whole
        gradient. Signal, score, tail index and scale are those of the mean over directions; those of each direction
        are in ``signal_by_direction`` and so on.
    provenance : Provenance
        Where the numbers come from.
    """

    dataset: xr.Dataset
    provenance: Provenance

    def __getitem__(self, name: str) -> xr.DataArray:
        return self.dataset[name]

    @property
    def layers(self) -> int:
        """Recurrent layers."""
        return int(self.dataset.sizes["layer"])

    @property
    def sequences(self) -> int:
        """Sequences that were diagnosed."""
        return int(self.dataset["sequences"])

    @property
    def method(self) -> str:
        """``"sound"`` or ``"paper"``."""
        return str(self.dataset.attrs["method"])

    def windows(self, layer: int = 0, *, noise: str = "per_lag", contiguous: bool = False) -> dict[int, float]:
        """Longest learnable lag by number of sequences; nan is unknown.

        More sequences than were diagnosed cannot show lags whose signal these did not tell from 0: for them it is a
        lower bound.
        """
        one_of("noise", noise, NOISES, why="it says what the signal competes with")
        found = self.dataset["contiguous_window" if contiguous else "window"].sel(layer=layer, noise=noise)
        return _by_size(found)

    def null_windows(self, layer: int = 0, *, noise: str = "per_lag") -> dict[int, float]:
        """Window by number of sequences that 95% of data without signal do not exceed."""
        one_of("noise", noise, NOISES, why="it says what the signal competes with")
        return _by_size(self.dataset["null_window"].sel(layer=layer, noise=noise))

    def validity(self, layer: int = 0) -> tuple[Validity, ...]:
        """What the diagnosis assumes, as measured on one layer."""
        here = self.dataset.sel(layer=layer)
        return tuple(
            Validity(name, float(here[f"validity_{name}"])) for name in CONDITIONS if f"validity_{name}" in here
        )

    @property
    def trusted(self) -> bool:
        """Whether every binding condition holds in every layer."""
        return all(exact(self.validity(layer)) for layer in range(self.layers))

    def summary(self, layer: int | None = None) -> str:
        """What it means, in plain words; of one layer or of all."""
        chosen = range(self.layers) if layer is None else [layer]
        texts = [summary(self.dataset.sel(layer=index)) for index in chosen]
        if len(texts) == 1:
            return texts[0]
        return "\n".join(f"Layer {index}: {text}" for index, text in zip(chosen, texts, strict=True))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to NetCDF; the file appears whole or not at all."""
        return save_dataset(self.dataset, path, kind=KIND, provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LearnabilityWindow:
        """Read a file that `save` wrote."""
        dataset, provenance = load_dataset(path, kind=KIND)
        return cls(dataset, provenance)

    def __repr__(self) -> str:
        here = self.dataset.isel(layer=0)
        lags = here["lag"].values
        told = int((here["score"] > here["critical_score"]).sum())
        failed = [v.name for v in self.validity() if not v.holds and v.condition.binding]
        health = f"do not trust: {', '.join(failed)}" if failed else "conditions hold"
        layers = f"{self.layers} layers, of the first: " if self.layers > 1 else ""
        return (
            f"<LearnabilityWindow by the {self.method} method: {layers}{self.sequences:,} sequences, lags {lags[0]} to "
            f"{lags[-1]}, signal at {told} of {len(lags)}, window {float(here['reach']):g} steps; {health}>"
        )


def _by_size(found: xr.DataArray) -> dict[int, float]:
    sizes: Any = found["sample_size"].values
    return {int(size): float(value) for size, value in zip(sizes, np.asarray(found.values), strict=True)}
