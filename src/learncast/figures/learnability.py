"""Pictures of a learnability window."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from learncast.figures.page import COLOURS, THEORY, label


def envelope(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Envelope and its gates' part against the lag, with the fitted law dotted; lags with a signal are filled.

    Parameters
    ----------
    layer : Dataset
        ``envelope``, ``envelope_gate``, ``envelope_fit``, ``score`` over lag, and ``decay_kind``.
    ax : Axes
    title : str
    """
    lag = layer["lag"].values
    ax.plot(lag, layer["envelope_gate"], color=COLOURS[1], linewidth=1.6, label="gates at the learning rate")
    ax.plot(lag, layer["envelope"], color=COLOURS[0], linewidth=1.6, label="with the optimiser")
    told = (layer["score"] > layer["critical_score"]).values
    ax.plot(lag[told], layer["envelope"].values[told], "o", color=COLOURS[0], markersize=4, label="signal told from 0")
    ax.plot(lag, layer["envelope_fit"], **THEORY, label=f"fit: {layer['decay_kind'].values}")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=8)
    return label(ax, x="lag (steps)", y="envelope (change per gradient)", title=title)


def window_curve(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Window against the number of sequences, with the band that data without signal stay in.

    Parameters
    ----------
    layer : Dataset
        ``window``, ``contiguous_window`` and ``null_window`` over (noise, sample_size), and ``sequences``.
    ax : Axes
    title : str
    """
    sizes = layer["sample_size"].values
    names = {"per_lag": "against the noise of its lag", "total": "against all gradient noise"}
    for k, noise in enumerate(layer["noise"].values):
        values = layer["window"].sel(noise=noise)
        ax.plot(sizes, values, "o-", color=COLOURS[k], markersize=4, linewidth=1.6, label=names.get(noise, noise))
    gapless = layer["contiguous_window"].sel(noise="per_lag")
    ax.plot(sizes, gapless, "--", color=COLOURS[0], linewidth=1.2, label="the first, without gaps")
    null = layer["null_window"].max("noise").values
    ax.fill_between(sizes, np.zeros(len(sizes)), null, color="0.75", linewidth=0, zorder=0)
    ax.plot(sizes, null, color="0.55", linewidth=4, alpha=0.6, zorder=0, label="data without signal (95%)")
    ax.axvline(float(layer["sequences"]), color="0.5", linewidth=0.8, linestyle="--")
    ax.annotate("diagnosed", (float(layer["sequences"]), 0.45), xycoords=("data", "axes fraction"), fontsize=8,
                xytext=(-3, 0), textcoords="offset points", rotation=90, ha="right", va="top", color="0.4")  # fmt: skip
    ax.set_xscale("log")
    ax.set_ylim(bottom=-0.02 * max(1.0, float(layer["lag"][-1])))
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return label(ax, x="sequences", y="longest learnable lag (steps)", title=title)


def time_scale_survival(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Share of units whose time scale is at least as long; units that do not decay stand at the right end.

    Parameters
    ----------
    layer : Dataset
        ``time_scale`` over unit.
    ax : Axes
    title : str
    """
    known = np.sort(layer["time_scale"].values[~np.isnan(layer["time_scale"].values)])
    finite = known[np.isfinite(known)]
    share = 1 - np.arange(len(known)) / max(1, len(known))
    ax.step(finite, share[: len(finite)], where="pre", color=COLOURS[2], linewidth=1.8)
    endless = len(known) - len(finite)
    if endless:
        ax.annotate(f"{endless} of {len(known)} units do not decay", (0.97, 0.93), xycoords="axes fraction",
                    ha="right", fontsize=8)  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(0, 1.03)
    return label(ax, x="time scale (steps)", y="share of units at least as slow", title=title)
