"""A learnability window in plain words."""

from __future__ import annotations

import math

import xarray as xr

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
DECAYS = {
    "exponential": "exponentially",
    "power": "as a power of the lag",
    "tempered": "as a power of the lag with an exponential end",
    "logarithmic": "with the logarithm of the lag",
}


def summary(layer: xr.Dataset) -> str:
    """Say what one layer's numbers mean.

    Parameters
    ----------
    layer : Dataset
        One layer of a `LearnabilityWindow`.
    """
    parts = [_reach(layer), _more(layer), _decay(layer), _exact(layer), _optimiser(layer)]
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


def _optimiser(layer: xr.Dataset) -> str:
    name = str(layer.attrs.get("optimizer", "none"))
    if name == "none":
        return "no optimiser was given, so every base rate counts as 1"
    f, part = float(layer["envelope"].sum()), float(layer["envelope_optimizer"].sum())
    if not f > 0 or abs(part) < 1e-9 * f:
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
