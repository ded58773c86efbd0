"""The learnability window of a model: its numbers, how far to trust them, and what they mean."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import xarray as xr

from learncast._core.errors import SchemaMismatch
from learncast._core.limits import readable
from learncast._core.validation import one_of
from learncast.card import Card, Picture, Shown, Table
from learncast.results import Result
from learncast.theory.assumptions import Assumption, Condition, Trust, worst
from learncast.windows.detection.detection import NOISES

#: Share of an envelope that is the round-off of weights in single precision.
ROUNDED = 1e-6
CONDITIONS = {
    "faithful_replay": Condition(
        1e-3,
        "the replayed gates must give back the layer's own outputs",
        "the transport would belong to another network",
        "run the model in float64, or report the model's equations as a defect",
    ),
    "silent_null": Condition(
        0.05,
        "data whose sequences have random signs must almost never show a window",
        "the same window could come from no signal at all",
        'use method="sound" with more sequences',
    ),
    "enough_sequences": Condition(
        1.0,
        "at least 100 sequences must be left for the noise after its signs are chosen (measured: 100 / sequences)",
        "the tail index is unknown, and with it the number of sequences that a lag needs",
        "diagnose on more sequences",
    ),
    "averaging_helps": Condition(
        0.0,
        "the noise of every lag with a signal must have a tail index above 1 (measured: the share without)",
        "means over more sequences would not concentrate",
        "clip or rescale the outliers of the data",
    ),
    "falling_envelope": Condition(
        0.0,
        "none: a rising envelope (measured: its largest relative rise from one lag to the next) is only reported",
        "lemma 5.1 fails to first order: transport need not fall with the lag, and decay laws describe it on average",
        "read the envelope instead of its fit",
        binding=False,
    ),
    "first_order_transport": Condition(
        0.25,
        "none: to all orders the envelope decays at another rate (measured: how far their ratio is from 1)",
        "by that factor the growth of the window with the data is misjudged",
        "read exact_envelope",
        binding=False,
    ),
    "noise_apart_from_envelope": Condition(
        2.0,
        "none: the noise of a lag (measured: largest over smallest scale) usually shrinks with its envelope",
        "the envelope cancels from the ratio of each lag to its own noise",
        'read the windows with noise="total", for which all lags compete with the same gradient noise',
        binding=False,
    ),
}


class Validity(Assumption):
    """One condition of a learnability window, as measured; `name` is a key of `CONDITIONS`."""

    conditions = CONDITIONS


CELLS = {
    "const": "constant-gate cell",
    "shared": "shared-gate cell",
    "diag": "diagonal-gate cell",
    "paper_gru": "GRU",
    "gru": "GRU",
    "lstm": "LSTM",
    "tanh": "tanh RNN",
    "relu": "ReLU RNN",
}
#: Said where there is none.
NO_OPTIMIZER = "no optimiser was given, so every base rate counts as 1"
DECAYS = {
    "exponential": "exponentially",
    "power": "as a power of the lag",
    "tempered": "as a power of the lag with an exponential end",
    "logarithmic": "with the logarithm of the lag",
}


#: What every window holds beside its layers: over which dimensions, and whether in words.
VARIABLES = {
    ("lag",): "envelope envelope_gate envelope_optimizer signal score tail_index scale envelope_fit",
    ("lag", "side"): "signal_interval tail_index_interval scale_interval",
    ("noise", "lag"): "required_sequences",
    ("noise", "sample_size"): "window contiguous_window null_window",
    ("unit",): "time_scale",
    (): "critical_score threshold reach contiguous_reach reach_of_fourfold total_scale total_tail_index "
    "decay_amplitude decay_rate decay_exponent decay_r_squared",
}
WORDS = {("lag",): "status", (): "decay_kind decay_status decay_implication"}


def _check_variables(dataset: xr.Dataset) -> None:
    """Every variable that a reader looks at is there, over its own dimensions, as numbers or as words."""
    for kinds, table in (("biuf", VARIABLES), ("U", WORDS)):
        for dims, names in table.items():
            for name in names.split():
                found = dataset[name]
                if found.dims != ("layer", *dims) or found.dtype.kind not in kinds or 0 in found.shape:
                    raise ValueError(f"{name} over {found.dims} of kind {found.dtype}")
    for name in ("method", "signs", "optimizer"):
        if not isinstance(dataset.attrs[name], str):
            raise ValueError(f"{name} = {dataset.attrs[name]!r}")
    if dataset["sequences"].ndim or not 1 <= int(dataset["sequences"]) <= 10**9:
        raise ValueError(f"sequences = {dataset['sequences'].values}")
    for name, size in (("lag", 1), ("sample_size", 1), ("layer", 0)):
        values = dataset[name].values
        if values.dtype.kind not in "iu" or (values < size).any() or (values[1:] <= values[:-1]).any():
            raise ValueError(f"{name} that does not grow")
    if [*dataset["layer"].values] != [*range(dataset.sizes["layer"])] or [*dataset["noise"].values] != [*NOISES]:
        raise ValueError("other layers or noises")


def summary(layer: xr.Dataset) -> str:
    """Say what one layer's numbers mean.

    Parameters
    ----------
    layer : Dataset
        One layer of a `LearnabilityWindow`.
    """
    parts = [_reach(layer), _more(layer), _decay(layer), _exact(layer), _optimizer(layer)]
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}.{_warning(layer)}"


def _reach(layer: xr.Dataset) -> str:
    n, cell = int(layer["sequences"]), CELLS.get(str(layer.attrs.get("cell")), "model")
    reach, longest = float(layer["reach"]), int(layer["lag"][-1])
    if math.isnan(reach):
        return f"{n:,} sequences are too few to say how far back this {cell} can learn"
    if reach == 0:
        return (
            f"with {n:,} sequences no lag up to {longest} shows a gradient signal that is told from noise, so this "
            f"{cell} cannot be said to learn across any of them"
        )
    gap = float(layer["contiguous_reach"])
    broken = "" if gap == reach else f" (at every lag up to {gap:g})" if gap else " (though not at every lag below)"
    most = ", the longest lag looked at" if reach == longest else ""
    return f"with {n:,} sequences this {cell} can credit up to {reach:g} steps back{most}{broken}"


def _more(layer: xr.Dataset) -> str:
    reach, more = float(layer["reach"]), float(layer["reach_of_fourfold"])
    if not reach > 0 or math.isnan(more):
        return ""
    if more > 10 * int(layer["lag"][-1]):
        return "4x the data would reach far beyond the lags looked at, by the fitted decay"
    return f"4x the data would give about {max(more, reach):.0f}, by the fitted decay"


def _decay(layer: xr.Dataset) -> str:
    kind = str(layer["decay_kind"].values)
    if kind == "unknown" or str(layer["decay_status"].values) != "ok":
        return str(layer["decay_implication"].values)
    if kind == "exponential":
        return "the envelope decays exponentially, so more data helps only logarithmically"
    return f"the envelope decays {DECAYS[kind]}: {layer['decay_implication'].values}"


def _exact(layer: xr.Dataset) -> str:
    slope = float(layer["exact_slope"]) if "exact_slope" in layer else math.nan
    if math.isnan(slope):
        return ""
    return f"it decays {slope:.2f} times as fast as the envelope to all orders"


def _optimizer(layer: xr.Dataset) -> str:
    name = str(layer.attrs.get("optimizer", "none"))
    if name == "none":
        return NO_OPTIMIZER
    f, part = float(layer["envelope"].sum()), float(layer["envelope_optimizer"].sum())
    if not f > 0 or abs(part) < ROUNDED * f:
        return f"{name} moves all weights at one rate, so the envelope is all the gates'"
    if 0 < part < 0.9 * f:
        return f"{name}'s rates account for {100 * part / f:.0f}% of it"
    return f"{name}'s rates make it {f / (f - part):.3g} times what the learning rate alone would give"


def _warning(layer: xr.Dataset) -> str:
    if layer.attrs.get("method") == "paper":
        alarms = float(layer["validity_silent_null"])
        return (
            f" By the published rule, which shows a window in {100 * alarms:.0f}% of data sets without any signal: do "
            "not rely on it."
        )
    return ""


@dataclass(frozen=True, eq=False, repr=False)
class LearnabilityWindow(Result, Shown):
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

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(400, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("gru", hidden_size=4)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3))
    >>> found = lc.windows.window(model, inputs, inputs[:, -2], measurement=measurement)
    >>> found.sequences, found.windows()[400], all(one.holds for one in found.validity())
    (400, 3.0, True)
    """

    kind = "window"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Self:
        """Read a file that `save` wrote, refusing any other, and one whose numbers take more than `most_bytes`."""
        found = super().load(path, most_bytes=most_bytes)
        with readable(Path(path), kind="a whole learnability window", error=SchemaMismatch):
            _check_variables(found.dataset)
            for layer in range(found.layers):
                summary(found.dataset.sel(layer=layer)), found.validity(layer)
        return found

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
        return self._by_size("contiguous_window" if contiguous else "window", layer, noise)

    def null_windows(self, layer: int = 0, *, noise: str = "per_lag") -> dict[int, float]:
        """Window by number of sequences that 95% of data without signal do not exceed."""
        return self._by_size("null_window", layer, noise)

    def _by_size(self, name: str, layer: int, noise: str) -> dict[int, float]:
        one_of("noise", noise, NOISES)
        found = self.dataset[name].sel(layer=layer, noise=noise)
        return dict(zip(found["sample_size"].values.tolist(), found.values.tolist(), strict=True))

    def validity(self, layer: int = 0) -> tuple[Validity, ...]:
        """What the diagnosis assumes, as measured on one layer."""
        here = self.dataset.sel(layer=layer)
        return tuple(
            Validity(name, float(here[f"validity_{name}"])) for name in CONDITIONS if f"validity_{name}" in here
        )

    @property
    def trust(self) -> Trust:
        """How far it can be trusted: the worst of every condition over the layers."""
        return Trust(worst(self.validity(layer) for layer in range(self.layers)), "measured")

    @property
    def trusted(self) -> bool:
        """Whether every binding condition holds in every layer."""
        return self.trust.holds

    def table(self, layer: int = 0) -> Table:
        """Longest learnable lag by number of sequences."""
        of = f" of layer {layer}" if self.layers > 1 else ""
        parts = (
            self.windows(layer),
            self.windows(layer, contiguous=True),
            self.windows(layer, noise="total"),
            self.null_windows(layer),
        )
        rows = [(f"{n:,}", *("unknown" if math.isnan(p[n]) else f"{p[n]:.0f}" for p in parts)) for n in parts[0]]
        columns = ("sequences", "window", "without gaps", "against all noise", "no signal (95%)")
        more = (
            f"More than {self.sequences:,} sequences: at least so far, since lags without a signal here stay unknown."
        )
        return Table(f"Longest learnable lag{of}", columns, rows, [more])

    def _card(self) -> Card:
        tables = [self.table(layer) for layer in range(self.layers)]
        return Card("Learnability window", self.summary, tables, self.trust.standing, self.trust.table)

    def _picture(self) -> Picture:
        """Of the first layer; `figures.window_curve` draws any."""
        return Picture.of("window_curve", self.dataset.sel(layer=0), title=f"Window ({self.method} method)")

    @property
    def summary(self) -> str:
        """What it means, in plain words, layer by layer."""
        texts = [summary(self.dataset.sel(layer=layer)) for layer in range(self.layers)]
        return texts[0] if len(texts) == 1 else "\n".join(f"Layer {k}: {text}" for k, text in enumerate(texts))

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
