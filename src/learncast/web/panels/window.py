"""The window panel: how far back the gradient of a saved model carries a signal, and from how many sequences."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import create_model

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import readable
from learncast._core.validation import FloatArray
from learncast.theory.assumptions import Trust
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import Panel, State, control, help_texts, settings_line
from learncast.web.uploads import UPLOADS
from learncast.web.view import Note, Reading, View

if TYPE_CHECKING:
    import xarray as xr

    from learncast.windows import Window

#: Points of the curve over numbers of sequences.
_POINTS = 240
#: Most layers of a dropped window.
_MOST_LAYERS = 64

_SAMPLE_NOTE = 'This is a sample, a small gated network; "learncast explore --window DIR/window.nc" shows your own.'
_NOISES = {"per_lag": "against the noise of its own lag", "total": "against the noise of the whole gradient"}

_evidence = partial(control, step=0.02, scale="log", group="Evidence")
_sample_size = partial(_evidence, label="sequences", span=(1.0, 1e9), unit="sequences")
_threshold = partial(_evidence, label="threshold", span=(0.01, 100.0))
_layer = partial(control, 0, "layer", step=1.0, allowed=(0, _MOST_LAYERS - 1), group="Model")

#: The window that is shown by default, with the sequences and the threshold of its diagnosis.
SAMPLE = Path(__file__).parents[1] / "sample" / "window.nc"
SAMPLE_SEQUENCES, SAMPLE_THRESHOLD = 512.0, 5.424028632761561


class WindowState(State):
    """Settings of the window panel."""

    sample_size: float = _sample_size(SAMPLE_SEQUENCES)
    threshold: float = _threshold(SAMPLE_THRESHOLD)
    layer: int = _layer(span=(0, 0))
    data: str | None = control(None, "dropped window", kind="hidden", lengths=(0, 64))

    @property
    def sequences(self) -> int:
        """Number of sequences as an integer."""
        return round(self.sample_size)


def window_panel(window: Window | None) -> Panel:
    """Return the panel of a saved window.

    Parameters
    ----------
    window : Window, optional
        The window named on the command line; the sample by default.
    """
    state = WindowState if window is None else _state_for(window)
    texts = help_texts("window")
    changes = _example_changes(state())
    texts["examples"] = tuple(replace(e, changes=c) for e, c in zip(texts["examples"], changes, strict=True))
    if window is None:
        texts["introduction"] += f" {_SAMPLE_NOTE}"
    return Panel(
        name="window",
        **texts,
        state=state,
        parts={"window": lru_cache(maxsize=64)(partial(_view, window))},
        study=partial(_study, window),
        drops='a window.nc that "learncast window --out DIR" saved',
        open_file=_open_window,
    )


def _example_changes(opening: WindowState) -> tuple[dict[str, float], ...]:
    """Return the settings of the examples, whose texts are in the help file."""
    sequences, threshold = opening.sample_size, opening.threshold
    fewer, more = max(1.0, float(round(sequences / 20))), min(1e9, 100.0 * sequences)
    strict, lax = min(100.0, round(4 * threshold, 4)), max(0.01, round(threshold / 4, 4))
    return {}, {"sample_size": fewer}, {"sample_size": more}, {"threshold": strict}, {"threshold": lax}


def _open_window(token: str) -> Panel:
    """Return the panel for a dropped window."""
    panel = window_panel(_dropped(token))
    first, *others = panel.examples
    changes = {**panel.state().model_dump(), "data": token}
    return replace(panel, examples=(replace(first, changes=changes), *others))


def _dropped(token: str) -> Window:
    from learncast.windows import Window

    def load(path: Path) -> Window:
        with readable(path, kind="a window that can be drawn", error=SchemaMismatch):
            window = Window.load(path)
            _view(window, WindowState())
            return window

    return UPLOADS.read(token, "window", load)


@lru_cache(maxsize=1)
def sample() -> Window:
    """Return the window of a small gated network on a task with two lags, see ``sample/study.toml``."""
    from learncast.windows import Window

    return Window.load(SAMPLE)


def windows_at(layer: xr.Dataset, sequences: ArrayLike, threshold: float, *, noise: str = "per_lag") -> Window:
    """Return the longest learnable lags for numbers of sequences, by the rule of the diagnosis.

    Parameters
    ----------
    layer : Dataset
        One layer of a `Window`.
    sequences : (...)
    threshold : float
        Signal-to-noise ratio that a lag must reach.
    noise : {"per_lag", "total"}
    """
    from learncast.windows.detection import learnable_window

    return learnable_window(layer["lag"].values, _detected(layer), _ratio(layer, sequences, noise), threshold)


def _detected(layer: xr.Dataset) -> NDArray[np.bool_]:
    """Return whether the signal at each lag differs from zero."""
    return np.asarray(layer["score"] > layer["critical_score"])


def _ratio(layer: xr.Dataset, sequences: ArrayLike, noise: str) -> FloatArray:
    from learncast.windows.detection.requirement import signal_to_noise

    names = ("scale", "tail_index") if noise == "per_lag" else ("total_scale", "total_tail_index")
    scale, index = (layer[name].values for name in names)
    sizes = np.asarray(sequences, dtype=np.float64)[..., None]
    return signal_to_noise(layer["signal"].values, scale=scale, index=index, sequences=sizes)


def _state_for(window: Window) -> type[WindowState]:
    """Return a state whose defaults are those of the diagnosis."""
    threshold = float(np.clip(window.dataset["threshold"].isel(layer=0), 0.01, 100.0))
    return create_model(
        "WindowState",
        __base__=WindowState,
        sample_size=(float, _sample_size(float(window.sequences))),
        threshold=(float, _threshold(threshold)),
        layer=(int, _layer(span=(0, window.layers - 1))),
    )


def _view(window: Window | None, state: WindowState) -> View:
    from learncast.windows.result import summary

    window = _dropped(state.data) if state.data is not None else window or sample()
    if state.layer >= window.layers:
        raise InvalidSpec(f"layer must be below {window.layers}, got {state.layer}.", field="layer")
    layer = window.dataset.sel(layer=state.layer)
    return View(
        charts=(_curve(layer, state), _envelope(layer, state), _time_scales(layer)),
        trust=Trust(window.validity(state.layer), "measured"),
        readings=_readings(layer, state),
        notes=_notes(layer, state),
        text=summary(layer).partition(". ")[2],  # the answer says how far back this number of sequences reaches
        answer=_answer(layer, state),
    )


def _answer(layer: xr.Dataset, state: WindowState) -> str:
    window = windows_at(layer, state.sequences, state.threshold)
    longest, gapless = float(window.any_lag), float(window.contiguous)
    sequences = f"{state.sequences:,} {'sequence' if state.sequences == 1 else 'sequences'}"
    if not longest > 0:
        return f"With {sequences} the gradient has no detectable signal at any lag."
    gaps = "" if gapless == longest else f", but not at every lag (without gaps: {_lag_text(gapless)})"
    least = "at least " if state.sequences > int(layer["sequences"]) else ""
    total = float(windows_at(layer, state.sequences, state.threshold, noise="total").any_lag)
    return (
        f"With {sequences} the gradient has a detectable signal at lags up to {least}{longest:.0f}{gaps}; above the "
        f"noise of the whole gradient: {_above(total)}."
    )


def _above(lag: float) -> str:
    return f"up to {lag:.0f}" if lag > 0 else _lag_text(lag)


def _envelope(layer: xr.Dataset, state: WindowState) -> Chart:
    lag, envelope, detected = layer["lag"].values.astype(float), layer["envelope"].values, _detected(layer)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The signal is proportional to the envelope: with this one it would just reach the threshold.
        needed = envelope * state.threshold / _ratio(layer, state.sequences, "per_lag")
    gates, fit = layer["envelope_gate"].values, layer["envelope_fit"].values
    traces = (
        Trace("line", "data", "with the optimiser", lag, _positive(envelope)),
        Trace("line", "data", "gates at the learning rate", lag, _positive(gates), series=Series.FIRST),
        Trace("points", "data", "detected signal", lag[detected], _positive(envelope[detected])),
        Trace("line", "theory", f"fit: {layer['decay_kind'].values}", lag, _positive(fit)),
        Trace("line", "threshold", "needed with these sequences", lag[detected], _positive(needed[detected])),
    )
    unit = str(layer["envelope"].attrs.get("units", "parameter change per gradient"))
    return Chart("envelope", "Envelope", ChartAxis("lag", "steps"), ChartAxis("envelope", unit, "log"), traces)


def _positive(values: FloatArray) -> FloatArray:
    """Return the values that a logarithmic axis can show, and nan for the others."""
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _curve(layer: xr.Dataset, state: WindowState) -> Chart:
    sizes, chosen = layer["sample_size"].values.astype(float), float(state.sequences)
    diagnosed, longest = float(layer["sequences"]), float(layer["lag"].values[-1])
    ends = min(sizes[0], diagnosed, chosen), max(sizes[-1], diagnosed, chosen)
    grid = np.unique(np.concatenate([np.geomspace(*ends, _POINTS), sizes]))
    per_lag, total = (windows_at(layer, grid, state.threshold, noise=noise) for noise in _NOISES)
    null = layer["null_window"].max("noise").values
    traces = (
        Trace("band", "null", "data without a signal (95%)", sizes, np.zeros(len(sizes)), null),
        Trace("steps", "data", _NOISES["per_lag"], grid, per_lag.any_lag),
        Trace("steps", "data", _NOISES["total"], grid, total.any_lag, series=Series.FIRST),
        Trace("steps", "dashed", f"{_NOISES['per_lag']}, without gaps", grid, per_lag.contiguous),
        Trace("line", "threshold", "chosen", np.full(2, chosen), np.array([0.0, 1.05 * longest])),
    )
    x = ChartAxis("sequences", "sequences", "log", span=(float(grid[0]), float(grid[-1])))
    y = ChartAxis("longest lag with a signal", "steps", span=(0.0, 1.05 * longest))
    shades = ((diagnosed, float(grid[-1]), "more than diagnosed", Series.OTHER),) if grid[-1] > diagnosed else ()
    return Chart("window", "Window against sequences", x, y, traces, shades=shades, main=True)


def _time_scales(layer: xr.Dataset) -> Chart:
    known = np.sort(layer["time_scale"].values[~np.isnan(layer["time_scale"].values)])
    finite = known[np.isfinite(known)]
    share = 1 - np.arange(len(finite)) / max(1, len(known))
    x, y = ChartAxis("time scale", "steps", "log"), ChartAxis("fraction of units at least as slow", span=(0.0, 1.03))
    return Chart("time_scales", "Time scales of the units", x, y, (Trace("steps", "data", "units", finite, share),))


def _readings(layer: xr.Dataset, state: WindowState) -> tuple[Reading, ...]:
    own, total = (windows_at(layer, state.sequences, state.threshold, noise=noise) for noise in _NOISES)
    lags = {"longest lag": own.any_lag, "without gaps": own.contiguous, _NOISES["total"]: total.any_lag}
    score = state.threshold / np.sqrt(2)  # of a normal statistic, whose scale is its deviation over sqrt(2)
    counts = {"sequences": state.sequences, "sequences diagnosed": int(layer["sequences"])}
    return (
        *(Reading(label, float(value), "steps", _lag_text(float(value))) for label, value in lags.items()),
        *(Reading(label, float(value), "sequences", f"{value:,}") for label, value in counts.items()),
        Reading("threshold as the report's score", score, "1", f"{score:.3g}"),
    )


def _lag_text(value: float) -> str:
    return "unknown" if np.isnan(value) else "none" if value == 0 else f"{value:.0f}"


def _notes(layer: xr.Dataset, state: WindowState) -> tuple[Note, ...]:
    diagnosed, threshold = int(layer["sequences"]), float(layer["threshold"])
    infinite = int(np.isinf(layer["time_scale"].values).sum())
    few = f"Only {diagnosed:,} sequences were diagnosed. The window is a lower bound: more may reveal other lags."
    band = f"The band without signal was measured at a threshold of {threshold:.3g}; noise reaches further here."
    still = f"{infinite} of {layer.sizes['unit']} units do not decay and have no time scale to draw."
    notes = {
        Note(few): state.sequences > diagnosed,
        Note(band, "warning"): state.threshold < threshold,
        Note(still): infinite > 0,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _study(window: Window | None, state: WindowState) -> str:
    """Return what the file records about its origin; it does not hold the study."""
    window = _dropped(state.data) if state.data is not None else window or sample()
    origin, attributes = window.provenance, window.dataset.attrs
    versions = ", ".join(f"{name} {number}" for name, number in origin.versions.items())
    lines = [
        "# learncast window STUDY.toml --out DIR",
        settings_line("window", state),
        "# The file does not hold its study, which that command writes to study.toml in the same folder. It holds:",
        *(f"# {key}: {value}" for key, value in sorted(attributes.items()) if isinstance(value, str | int | float)),
        f"# sequences: {window.sequences}",
        f"# lags: {window.dataset['lag'].values.tolist()}",
        f"# sample_sizes: {window.dataset['sample_size'].values.tolist()}",
        f"# input {origin.spec_hash}, seed {origin.seed}; {versions}",
        "# The numbers of this view in Python:",
        "# Window.load(FILE) and learncast.web.panels.window.windows_at(",
        f"#     window.dataset.sel(layer={state.layer}), {state.sequences}, {state.threshold!r})",
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
