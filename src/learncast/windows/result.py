"""The learnability window of a model: its numbers, how far to trust them, and a summary in words."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import xarray as xr

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import readable
from learncast._core.validation import one_of
from learncast.display import Columns, Displayable, HtmlRepr, Plot, Reported, Table
from learncast.results import Result
from learncast.theory.assumptions import Assumption, Trust, read_conditions, worst
from learncast.windows.detection.detection import NOISES

CONDITIONS = read_conditions(Path(__file__).with_name("conditions.toml"))


class WindowAssumption(Assumption):
    """One measured condition of a learnability window; `name` is a key of `CONDITIONS`."""

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
#: Part of the summary of a window without an optimiser.
NO_OPTIMIZER = "without an optimiser, every base rate is 1"
DECAYS = {
    "exponential": "exponentially",
    "power": "as a power of the lag",
    "tempered": "as a power of the lag with an exponential end",
    "logarithmic": "with the logarithm of the lag",
}
#: Part of the summary: which window predicts training, by the claims that were tested on trained networks.
_PREDICTS = (
    "a training step meets the noise of the whole gradient, but no test on trained networks shows that either number "
    "predicts how far training reaches"
)
#: Relative round-off of an envelope whose weights are in single precision.
_ROUND_OFF = 1e-6


def summary(layer: xr.Dataset) -> str:
    """Summarise one layer of a `Window` in words."""
    parts = [_reach(layer), _PREDICTS, _task(layer), _more_data(layer), _decay(layer), _exact(layer), _optimizer(layer)]
    text = " ".join(f"{part[0].upper()}{part[1:]}." for part in parts if part)
    return f"{text}{_warning(layer)}"


def summaries(texts: list[str]) -> str:
    """One line per layer, numbered if there are several."""
    return texts[0] if len(texts) == 1 else "\n".join(f"Layer {k}: {text}" for k, text in enumerate(texts))


def _reach(layer: xr.Dataset) -> str:
    n, cell = int(layer["sequences"]), CELLS.get(str(layer.attrs.get("cell")), "model")
    reach, longest = float(layer["reach"]), int(layer["lag"][-1])
    if math.isnan(reach):
        return f"{n:,} sequences are too few to estimate how far back the gradient of this {cell} has a signal"
    if reach == 0:
        return f"with {n:,} sequences this {cell} shows no gradient signal above the noise at any lag up to {longest}"
    gap = float(layer["contiguous_reach"])
    broken = "" if gap == reach else f" (at every lag up to {gap:g})" if gap else " (though not at every lag below)"
    most = ", the longest lag measured" if reach == longest else ""
    lags = f"has a detectable signal at lags up to {reach:g}{most}{broken}"
    total = f"above the noise of the whole gradient: {_total_reach(layer)}"
    return f"with {n:,} sequences the gradient of this {cell} {lags}; {total}"


def _total_reach(layer: xr.Dataset) -> str:
    """Window above the noise of the whole gradient at the diagnosed number of sequences, or the largest below it."""
    sizes = layer["sample_size"].values
    below = sizes[sizes <= int(layer["sequences"])]
    if not len(below):
        return "unknown"
    total = float(layer["window"].sel(noise="total", sample_size=below[-1]))
    return "unknown" if math.isnan(total) else "none" if total == 0 else f"up to {total:g}"


def _task(layer: xr.Dataset) -> str:
    """Say which lags are due to the task, if a control was measured."""
    if "attributable_reach" not in layer:
        return "lags that are due to the task are found with control = true" if float(layer["reach"]) > 0 else ""
    own = float(layer["attributable_reach"])
    return f"the task explains lags up to {own:g}" if own else "no lag is due to the task"


def _more_data(layer: xr.Dataset) -> str:
    reach, more = float(layer["reach"]), float(layer["reach_of_fourfold"])
    if not reach > 0 or math.isnan(more):
        return ""
    if more > 10 * int(layer["lag"][-1]):
        return "by the fitted decay, 4x the data would reach far beyond the measured lags"
    return f"4x the data would give at least {reach:g}, and by the fitted decay about {max(more, reach):.0f}"


def _decay(layer: xr.Dataset) -> str:
    kind = str(layer["decay_kind"].values)
    if kind == "unknown" or str(layer["decay_status"].values) != "ok":
        return str(layer["decay_implication"].values)
    if kind == "exponential":
        return "the envelope decays exponentially, so more data helps only logarithmically"
    return f"the envelope decays {DECAYS[kind]}: {layer['decay_implication'].values}"


def _exact(layer: xr.Dataset) -> str:
    slope = float(layer["exact_slope"]) if "exact_slope" in layer else math.nan
    return "" if math.isnan(slope) else f"its first order decays {slope:.2f} times as fast as all orders"


def _optimizer(layer: xr.Dataset) -> str:
    name = str(layer.attrs.get("optimizer", "none"))
    if name == "none":
        return NO_OPTIMIZER
    f, part = float(layer["envelope"].sum()), float(layer["envelope_optimizer"].sum())
    if not f > 0 or abs(part) < _ROUND_OFF * f:
        return f"{name} has one rate for all weights, so the envelope is due to the gates"
    if 0 < part < 0.9 * f:
        return f"{100 * part / f:.0f}% of the envelope is due to {name}'s rates"
    return f"{name}'s rates make the envelope {f / (f - part):.3g} times as large as the learning rate would"


def _warning(layer: xr.Dataset) -> str:
    if layer.attrs.get("method") != "paper":
        return ""
    alarms = float(layer["validity_silent_null"])
    return f" Do not rely on it: the published rule shows a window in {100 * alarms:.0f}% of data without a signal."


@dataclass(frozen=True, eq=False, repr=False)
class Window(Result, Reported, Displayable):
    """How far back the gradient of a trained recurrent model carries a signal, by layer and number of sequences.

    A signal is necessary for learning from that far back, not sufficient.

    Attributes
    ----------
    dataset : xarray.Dataset
        Over (layer, lag, unit, sample_size, noise, side), each variable with ``units`` and ``long_name``:
        the envelope and its parts, the signal and noise of every lag, the sequences it needs, windows and null windows
        of data without a signal, the decay of the envelope, and the time scale of every unit. ``noise`` is what a
        signal competes with: ``"per_lag"`` the noise of its own lag, as published, or ``"total"`` that of the total
        gradient. Signal, score, tail index and scale belong to the mean over directions.
    provenance : Provenance
        Where the numbers come from.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(400, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("gru", hidden_size=4)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3))
    >>> window = lc.windows.window(model, inputs, inputs[:, -2], measurement=measurement)
    >>> window.sequences, window.windows()[400], all(one.holds for one in window.validity())
    (400, 3.0, True)
    """

    kind = "window"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, most_bytes: int | None = None) -> Self:
        """Read a file that `save` wrote; raise an error for any other, or if its numbers exceed `most_bytes`."""
        window = super().load(path, most_bytes=most_bytes)
        with readable(Path(path), kind="a complete window", error=SchemaMismatch):
            for layer in range(window.layers):
                summary(window.dataset.sel(layer=layer)), window.validity(layer)
        return window

    @property
    def layers(self) -> int:
        """Number of recurrent layers."""
        return int(self.dataset.sizes["layer"])

    @property
    def sequences(self) -> int:
        """Number of diagnosed sequences."""
        return int(self.dataset["sequences"])

    @property
    def method(self) -> str:
        """``"sound"`` or ``"paper"``."""
        return str(self.dataset.attrs["method"])

    def windows(self, layer: int = 0, *, noise: str = "per_lag", contiguous: bool = False) -> dict[int, float]:
        """Longest lag with a detectable signal by number of sequences; nan is unknown.

        For more sequences than were diagnosed it is a lower bound: they may reveal signals that are not significant
        here.
        """
        return self._by_size("contiguous_window" if contiguous else "window", layer, noise)

    def null_windows(self, layer: int = 0, *, noise: str = "per_lag") -> dict[int, float]:
        """Window by number of sequences that 95% of data without a signal do not exceed."""
        return self._by_size("null_window", layer, noise)

    def attributable(self, layer: int = 0) -> float:
        """Longest lag whose signal is due to the task; 0 if none is.

        A network's own answer carries signals of its inputs too, which a window counts. These stay if every sequence
        gets the targets of another one; a lag whose signal then changes is due to the task.

        Raises
        ------
        InvalidSpec
            If the window was measured without ``Measurement(control=True)``.
        """
        if "attributable_reach" not in self.dataset:
            raise InvalidSpec("control must be True in the Measurement of this window.", field="control")
        return float(self.dataset["attributable_reach"].sel(layer=layer))

    def _by_size(self, name: str, layer: int, noise: str) -> dict[int, float]:
        one_of("noise", noise, NOISES)
        values = self.dataset[name].sel(layer=layer, noise=noise)
        return dict(zip(values["sample_size"].values.tolist(), values.values.tolist(), strict=True))

    def validity(self, layer: int = 0) -> tuple[WindowAssumption, ...]:
        """The measured conditions of one layer."""
        values = self.dataset.sel(layer=layer)
        known = [name for name in CONDITIONS if f"validity_{name}" in values]
        return tuple(WindowAssumption(name, float(values[f"validity_{name}"])) for name in known)

    @property
    def trust(self) -> Trust:
        """How far the window can be trusted: the worst measurement of every condition over the layers."""
        return Trust(worst(self.validity(layer) for layer in range(self.layers)), "measured")

    def table(self, layer: int = 0) -> Table:
        """Longest lag with a detectable signal by number of sequences."""
        of = f" of layer {layer}" if self.layers > 1 else ""
        longest = {
            "own noise": self.windows(layer),
            "own, without gaps": self.windows(layer, contiguous=True),
            "whole gradient": self.windows(layer, noise="total"),
            "no signal (95%)": self.null_windows(layer),
        }
        columns: Columns = {
            "sequences": (longest["own noise"], "{:,}".format),
            **{
                name: (one.values(), lambda lag: "unknown" if math.isnan(lag) else f"{lag:.0f}")
                for name, one in longest.items()
            },
        }
        notes = [
            "Against the noise of its own lag, without gaps (every shorter lag too), and against the noise of the "
            "whole gradient; the last column is what 95% of data without a signal do not exceed.",
            f"Windows of more than {self.sequences:,} sequences are lower bounds.",
        ]
        return Table.of(f"Longest lag with a detectable signal{of}", columns, notes)

    def _html_repr(self) -> HtmlRepr:
        tables = [self.table(layer) for layer in range(self.layers)]
        return HtmlRepr("Learnability window", self.summary, tables, self.trust.standing, self.trust.table)

    def _plot(self) -> Plot:
        """Picture of the first layer; `figures.window_curve` draws any layer."""
        return Plot.of("window_curve", self.dataset.sel(layer=0), title=self.picture_title)

    @property
    def picture_title(self) -> str:
        """Title of a picture, which says if the published rule of detection was followed."""
        return "Window by the published rule" if self.method == "paper" else "Window"

    @property
    def summary(self) -> str:
        """Summary in words, layer by layer."""
        return summaries([summary(self.dataset.sel(layer=layer)) for layer in range(self.layers)])

    def __repr__(self) -> str:
        first = self.dataset.isel(layer=0)
        lags = first["lag"].values
        detected = int((first["score"] > first["critical_score"]).sum())
        failed = [v.name for v in self.validity() if not v.holds and v.condition.binding]
        health = f"do not trust: {', '.join(failed)}" if failed else "conditions hold"
        layers = f"{self.layers} layers, of the first: " if self.layers > 1 else ""
        return (
            f"<Window by the {self.method} method: {layers}{self.sequences:,} sequences, lags {lags[0]} to {lags[-1]}, "
            f"signal at {detected} of {len(lags)}, window {float(first['reach']):g} steps; {health}>"
        )


def _lag(lag: float) -> str:
    return "unknown" if math.isnan(lag) else f"{lag:.0f}"
