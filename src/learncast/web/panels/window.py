"""The window room: how far back a saved model can learn, and from how many sequences."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import create_model

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import readable
from learncast._core.validation import FloatArray
from learncast.web.guide import WINDOW_WORDS, window_examples
from learncast.web.panel import (
    MODES,
    TARGET,
    THIRD,
    Axis,
    Note,
    Panel,
    Reading,
    Trace,
    View,
    validity_of,
    warnings_of,
)
from learncast.web.room import Room, State, control
from learncast.web.uploads import UPLOADS

if TYPE_CHECKING:
    import xarray as xr

    from learncast.windows.detection.requirement import Window
    from learncast.windows.learnability_window import LearnabilityWindow

#: Numbers of sequences at which the curve is drawn.
_POINTS = 240

_SAMPLED = "This is a sample, a small gated network; `learncast explore --window DIR/window.nc` shows your own."

_NOISES = {"per_lag": "against the noise of its lag", "total": "against all gradient noise"}


_evidence = partial(control, step=0.02, scale="log", group="Evidence")
_sample_size = partial(
    _evidence, label="sequences", span=(1.0, 1e9), unit="sequences", help="How many sequences the model is trained on."
)
_threshold = partial(
    _evidence, label="threshold", span=(0.01, 100.0), help="Signal-to-noise ratio from which a lag counts."
)
#: Layers that a dropped window may have.
_MOST_LAYERS = 64
_layer = partial(
    control,
    0,
    "layer",
    step=1.0,
    allowed=(0, _MOST_LAYERS - 1),
    group="Model",
    help="Recurrent layer, the lowest first.",
)


#: The window that the room shows where no other is open; how many sequences it was diagnosed on, and at what threshold.
SAMPLE = Path(__file__).parents[1] / "sample" / "window.nc"
SAMPLE_SEQUENCES, SAMPLE_THRESHOLD = 512.0, 5.424028632761561


class WindowState(State):
    """What the controls of the window room say."""

    sample_size: float = _sample_size(SAMPLE_SEQUENCES)
    threshold: float = _threshold(SAMPLE_THRESHOLD)
    layer: int = _layer(span=(0, 0))
    data: str | None = control(None, "dropped window", kind="hidden", lengths=(0, 64))

    @property
    def number(self) -> int:
        """Whole sequences."""
        return round(self.sample_size)


def window_room(window: LearnabilityWindow | None) -> Room:
    """The room of a saved window, or of none.

    Parameters
    ----------
    window : LearnabilityWindow, optional
        As named on the command line; the sample where there is none.
    """
    state = WindowState if window is None else _state_of(window)
    opening = state()
    return Room(
        name="window",
        title="Window",
        introduction=(
            "How far back can a trained recurrent model learn, and from how many sequences? Move the number of "
            "sequences and the signal-to-noise ratio that a lag must reach."
            + ("" if window is not None else f" {_SAMPLED}")
        ),
        state=state,
        parts={"window": lru_cache(maxsize=64)(partial(_shown, window))},
        study=partial(_study, window),
        examples=window_examples(opening.sample_size, opening.threshold),
        words=WINDOW_WORDS,
        drops="a window.nc that `learncast window --out DIR` saved",
        opened=_opened,
        own=window is not None,
    )


def _opened(token: str) -> Room:
    """The room as a dropped window opens it."""
    room = window_room(_dropped(token))
    yours, *others = room.examples
    own = {**room.state().model_dump(), "data": token}
    return replace(room, examples=(replace(yours, changes=own), *others), introduction=room.introduction)


def _dropped(token: str) -> LearnabilityWindow:
    from learncast.windows.learnability_window import LearnabilityWindow

    def load(path: Path) -> LearnabilityWindow:
        with readable(path, kind="a window that can be drawn", error=SchemaMismatch):
            found = LearnabilityWindow.load(path)
            _shown(found, WindowState())
            return found

    found: LearnabilityWindow = UPLOADS.read(token, "window", load)
    return found


@lru_cache(maxsize=1)
def sample() -> LearnabilityWindow:
    """The window of a small gated network on a task with two lags; its study lies beside it."""
    from learncast.windows.learnability_window import LearnabilityWindow

    return LearnabilityWindow.load(SAMPLE)


def windows_at(layer: xr.Dataset, sequences: Any, threshold: float, *, noise: str = "per_lag") -> Window:
    """Longest learnable lag after numbers of sequences, by the rule of the diagnosis, from what its file keeps.

    Parameters
    ----------
    layer : Dataset
        One layer of a `LearnabilityWindow`.
    sequences : (...)
    threshold : float
        Signal-to-noise ratio from which a lag counts.
    noise : {"per_lag", "total"}
    """
    from learncast.windows.detection.requirement import learnable_window

    told = (layer["score"] > layer["critical_score"]).values
    return learnable_window(layer["lag"].values, told, _ratio(layer, sequences, noise), threshold)


def _ratio(layer: xr.Dataset, sequences: Any, noise: str) -> FloatArray:
    from learncast.windows.detection.requirement import signal_to_noise

    own = ("scale", "tail_index") if noise == "per_lag" else ("total_scale", "total_tail_index")
    scale, index = (layer[name].values for name in own)
    sizes = np.asarray(sequences, dtype=np.float64)[..., None]
    return signal_to_noise(layer["signal"].values, scale=scale, index=index, sequences=sizes)


def _state_of(window: LearnabilityWindow) -> type[WindowState]:
    """A state whose sliders begin at what was diagnosed."""
    threshold = float(np.clip(window.dataset["threshold"].isel(layer=0), 0.01, 100.0))
    return create_model(
        "WindowState",
        __base__=WindowState,
        sample_size=(float, _sample_size(float(window.sequences))),
        threshold=(float, _threshold(threshold)),
        layer=(int, _layer(span=(0, window.layers - 1))),
    )


def _shown(window: LearnabilityWindow | None, state: WindowState) -> View:
    window = _dropped(state.data) if state.data is not None else window or sample()
    if state.layer >= window.layers:
        raise InvalidSpec(f"layer must be below {window.layers}, got {state.layer!s}.", field="layer")
    from learncast.windows.learnability_window import summary

    layer = window.dataset.sel(layer=state.layer)
    conditions = window.validity(state.layer)
    return View(
        panels=(_curve(layer, state), _envelope(layer, state), _time_scales(layer)),
        validity=validity_of("measured", conditions),
        readings=_readings(layer, state),
        notes=(*warnings_of(conditions), *_remarks(layer, state)),
        words=f"As it was diagnosed: {summary(layer)}",
        answer=_answer(layer, state),
    )


def _answer(layer: xr.Dataset, state: WindowState) -> str:
    own = windows_at(layer, state.number, state.threshold)
    longest, gapless = float(own.any_lag), float(own.contiguous)
    sequences = f"{state.number:,} {'sequence' if state.number == 1 else 'sequences'}"
    if not longest > 0:
        return f"From {sequences} no lag can be told from noise."
    gaps = "" if gapless == longest else f", though not at every lag (without gaps: {_lag(gapless)})"
    more = "at least " if state.number > int(layer["sequences"]) else ""
    return f"From {sequences} this model can learn {more}{longest:.0f} steps back{gaps}."


def _envelope(layer: xr.Dataset, state: WindowState) -> Panel:
    lag, envelope = layer["lag"].values.astype(float), layer["envelope"].values
    told = (layer["score"] > layer["critical_score"]).values
    with np.errstate(divide="ignore", invalid="ignore"):
        # The signal is proportional to the envelope: this one would just reach the threshold.
        needed = envelope * state.threshold / _ratio(layer, state.number, "per_lag")
    traces = (
        Trace("line", "data", "with the optimiser", lag, _above(envelope)),
        Trace("line", "data", "gates at the learning rate", lag, _above(layer["envelope_gate"].values), series=MODES),
        Trace("points", "data", "signal told from 0", lag[told], _above(envelope[told])),
        Trace("line", "theory", f"fit: {layer['decay_kind'].values}", lag, _above(layer["envelope_fit"].values)),
        Trace("line", "threshold", "needed with these sequences", lag[told], _above(needed[told])),
    )
    rate = str(layer["envelope"].attrs.get("units", "parameter change per gradient"))
    return Panel("envelope", "Envelope", Axis("lag", "steps"), Axis("envelope", rate, "log"), traces)


def _above(values: FloatArray) -> FloatArray:
    """Values that a logarithmic axis can show."""
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _curve(layer: xr.Dataset, state: WindowState) -> Panel:
    sizes = layer["sample_size"].values.astype(float)
    diagnosed, longest = float(layer["sequences"]), float(layer["lag"].values[-1])
    ends = min(sizes[0], diagnosed, state.number), max(sizes[-1], diagnosed, state.number)
    grid = np.unique(np.concatenate([np.geomspace(*ends, _POINTS), sizes]))
    traces = [
        Trace("steps", "data", name, grid, windows_at(layer, grid, state.threshold, noise=noise).any_lag, series=k)
        for k, (noise, name) in zip((TARGET, MODES), _NOISES.items(), strict=True)
    ]
    gapless = windows_at(layer, grid, state.threshold).contiguous
    null = layer["null_window"].max("noise").values
    return Panel(
        "window",
        "Window against sequences",
        Axis("sequences", "sequences", "log", span=(float(grid[0]), float(grid[-1]))),
        Axis("longest learnable lag", "steps", span=(0.0, 1.05 * longest)),
        (
            Trace("band", "null", "data without signal (95%)", sizes, np.zeros(len(sizes)), null),
            *traces,
            Trace("steps", "data", "the first, without gaps", grid, gapless, series=MODES + 1),
            Trace("line", "threshold", "chosen", np.full(2, float(state.number)), np.array([0.0, 1.05 * longest])),
        ),
        shades=((diagnosed, float(grid[-1]), "more than were diagnosed", THIRD),) if grid[-1] > diagnosed else (),
        main=True,
    )


def _time_scales(layer: xr.Dataset) -> Panel:
    known = np.sort(layer["time_scale"].values[~np.isnan(layer["time_scale"].values)])
    finite = known[np.isfinite(known)]
    share = 1 - np.arange(len(finite)) / max(1, len(known))
    return Panel(
        "time_scales",
        "Time scales of the units",
        Axis("time scale", "steps", "log"),
        Axis("share of units at least as slow", "1", span=(0.0, 1.03)),
        (Trace("steps", "data", "units", finite, share),),
    )


def _readings(layer: xr.Dataset, state: WindowState) -> tuple[Reading, ...]:
    own, total = (windows_at(layer, state.number, state.threshold, noise=noise) for noise in _NOISES)
    rows = (("longest lag", own.any_lag), ("without gaps", own.contiguous), (_NOISES["total"], total.any_lag))
    found = [Reading(label, float(value), "steps", _lag(float(value))) for label, value in rows]
    diagnosed = int(layer["sequences"])
    return (
        *found,
        Reading("sequences", float(state.number), "sequences", f"{state.number:,}"),
        Reading("sequences diagnosed", float(diagnosed), "sequences", f"{diagnosed:,}"),
    )


def _lag(value: float) -> str:
    return "unknown" if np.isnan(value) else "none" if value == 0 else f"{value:.0f}"


def _remarks(layer: xr.Dataset, state: WindowState) -> tuple[Note, ...]:
    notes = []
    diagnosed, own = int(layer["sequences"]), float(layer["threshold"])
    if state.number > diagnosed:
        text = f"More than the {diagnosed:,} sequences diagnosed: at least so far, since lags without a signal here "
        notes.append(Note(f"{text}stay unknown."))
    if state.threshold < own:
        text = (
            f"The band without signal was measured at a threshold of {own:.3g}; at a lower one noise reaches further."
        )
        notes.append(Note(text, "warning"))
    endless = int(np.isinf(layer["time_scale"].values).sum())
    if endless:
        notes.append(Note(f"{endless} of {layer.sizes['unit']} units do not decay: they have no time scale to draw."))
    return tuple(notes)


def _study(window: LearnabilityWindow | None, state: WindowState) -> str:
    """What is known of how the file was made; it does not hold the study itself."""
    lines = ["# learncast window STUDY.toml --out DIR", f"# explorer, window: {state.model_dump_json()}"]
    window = _dropped(state.data) if state.data is not None else window or sample()
    origin, attributes = window.provenance, window.dataset.attrs
    versions = ", ".join(f"{name} {number}" for name, number in origin.versions.items())
    lines += [
        "# The file does not hold its study; where that command wrote it, study.toml lies beside it. It does hold:",
        *(f"# {key}: {value}" for key, value in sorted(attributes.items()) if isinstance(value, str | int | float)),
        f"# sequences: {window.sequences}",
        f"# lags: {window.dataset['lag'].values.tolist()}",
        f"# sample_sizes: {window.dataset['sample_size'].values.tolist()}",
        f"# input {origin.spec_hash}, seed {origin.seed}; {versions}",
        "# In Python, for the numbers of this view:",
        "# LearnabilityWindow.load(FILE) and learncast.web.panels.window.windows_at(",
        f"#     window.dataset.sel(layer={state.layer}), {state.number}, {state.threshold!r})",
    ]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
