"""Pictures that set the learnability of several cells side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from learncast.figures.page import COLOURS, THEORY, label

_FIT = {**THEORY, "linewidth": 1.2}
#: Leading digits of labelled ticks, the fewest first.
_DIGITS = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))


def envelopes_by_cell(
    dataset: xr.Dataset, ax: Axes, *, law: str | None = None, axis: str = "linear", title: str = ""
) -> Axes:
    """Mean envelope of every cell against the lag, with one fitted law dotted.

    Parameters
    ----------
    dataset : Dataset
        ``envelope`` over (cell, seed, lag), ``{law}_fit`` over (cell, lag) and ``{law}_r_squared`` over cell.
    ax : Axes
    law : {"exponential", "power"}, optional
    axis : {"linear", "semilog", "log-log"}
    title : str
    """
    for k, cell in enumerate(dataset["cell"].values):
        one = dataset.sel(cell=cell)
        name = str(cell) if law is None else f"{cell}, $R^2$ {float(one[f'{law}_r_squared']):.3f}"
        ax.plot(one["lag"], one["envelope"].mean("seed"), color=COLOURS[k], linewidth=1.8, label=name)
        if law is not None:
            ax.plot(one["lag"], one[f"{law}_fit"], **_FIT)
    if axis != "linear":
        ax.set_yscale("log")
        # A power law bends away from a steep envelope by many decades: the data set the range.
        values = dataset["envelope"].mean("seed").values
        ax.set_ylim(0.5 * values[values > 0].min(), 3 * values.max())
    if axis == "log-log":
        _logarithmic(ax)
    ax.legend(frameon=False, fontsize=7.5)
    return label(ax, x="lag (steps)", y="envelope (change per gradient)", title=title)


def windows_by_cell(
    dataset: xr.Dataset, ax: Axes, *, variable: str, noise: str = "per_lag", null: str | None = None, title: str = ""
) -> Axes:
    """Window of every cell against the number of sequences, median over seeds; dashed, without any signal.

    Parameters
    ----------
    dataset : Dataset
        The variables over (cell, seed, noise, sample_size).
    ax : Axes
    variable : str
    noise : {"per_lag", "total"}
    null : str, optional
        Variable of the windows without signal.
    title : str
    """
    sizes = dataset["sample_size"].values
    for k, cell in enumerate(dataset["cell"].values):
        one = dataset.sel(cell=cell, noise=noise)
        width = 3.4 - 0.55 * k  # windows often coincide: a thinner line shows the one below
        line: dict[str, Any] = {"color": COLOURS[k], "linewidth": width}
        ax.plot(sizes, one[variable].median("seed"), "o-", **line, markersize=1.5 + width, label=str(cell))
        if null is not None:
            ax.plot(sizes, one[null].median("seed"), "--", **line)
    if null is not None:
        ax.plot([], [], "--", color="0.4", label="no signal (95%)")
    _logarithmic(ax)
    last = float(dataset["lag"][-1])
    ax.set_ylim(-0.03 * last, 1.05 * last)
    ax.legend(frameon=False, fontsize=7.5)
    return label(ax, x="sequences", y="longest learnable lag (steps)", title=title)


def survivals_by_cell(dataset: xr.Dataset, ax: Axes, *, scale: str = "semilog", title: str = "") -> Axes:
    """Share of units at least as slow, every cell; units that do not decay keep a curve above 0.

    Parameters
    ----------
    dataset : Dataset
        ``time_scale`` over (cell, seed, unit).
    ax : Axes
    scale : {"semilog", "log-log"}
        Of the axes: the time scale's is logarithmic in both.
    title : str
    """
    for k, cell in enumerate(dataset["cell"].values):
        values = dataset["time_scale"].sel(cell=cell).values.ravel()
        known = np.sort(values[~np.isnan(values)])
        finite = known[np.isfinite(known)]
        share = 1 - np.arange(len(known)) / max(1, len(known))
        endless = 100 * (1 - len(finite) / max(1, len(known)))
        name = f"{cell}, {endless:.0f}% do not decay" if endless else str(cell)
        ax.step(finite, share[: len(finite)], where="pre", color=COLOURS[k], linewidth=1.8, label=name)
    _logarithmic(ax)
    if scale == "log-log":
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, 1.03)
    ax.legend(frameon=False, fontsize=7.5)
    return label(ax, x="time scale (steps)", y="share of units at least as slow", title=title)


def tail_indices_by_cell(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Tail index of every lag as a point, with quartiles: to use (filled), and of single sequences (hollow).

    Parameters
    ----------
    dataset : Dataset
        ``tail_index`` and ``published_tail_index`` over (cell, seed, lag).
    ax : Axes
    title : str
    """
    names = {
        "tail_index": "used: 2 if the variance is finite",
        "published_tail_index": "single sequences, published rule",
    }
    cells = dataset["cell"].values
    for j, (variable, text) in enumerate(names.items()):
        for k, cell in enumerate(cells):
            values = dataset[variable].sel(cell=cell).values.ravel()
            values = values[np.isfinite(values)]
            spots = k + 0.36 * j - 0.18 + np.linspace(-0.11, 0.11, len(values))
            ax.plot(spots, values, "o", color=COLOURS[k], markersize=3.5, alpha=0.7,
                    markerfacecolor="none" if j else COLOURS[k])  # fmt: skip
            if len(values):
                low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
                ax.errorbar(k + 0.36 * j - 0.18, middle, [[middle - low], [high - middle]], color="black", capsize=3,
                            marker="_", markersize=12, linewidth=1.2)  # fmt: skip
        ax.plot([], [], "o", color="0.4", markerfacecolor="none" if j else "0.4", markersize=4, label=text)
    ax.axhline(2.0, **_FIT)
    ax.set_xticks(range(len(cells)), [str(cell) for cell in cells])
    ax.legend(frameon=False, fontsize=7.5, loc="lower center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    return label(ax, x="", y="tail index (one point per lag)", title=title)


def noise_scales_by_cell(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Noise scale of every cell against the lag; dotted, its envelope scaled to meet it at the first lag.

    Parameters
    ----------
    dataset : Dataset
        ``scale`` and ``envelope`` over (cell, seed, lag).
    ax : Axes
    title : str
    """
    for k, cell in enumerate(dataset["cell"].values):
        one = dataset[["scale", "envelope"]].sel(cell=cell).mean("seed")
        scale, envelope = one["scale"], one["envelope"]
        ax.plot(one["lag"], scale, color=COLOURS[k], linewidth=1.8, label=str(cell))
        ax.plot(one["lag"], envelope * float(scale[0] / envelope[0]), **{**_FIT, "color": COLOURS[k]})
    ax.plot([], [], **{**_FIT, "color": "0.4"}, label="envelope, to scale")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=7.5)
    return label(ax, x="lag (steps)", y="noise scale (change per gradient)", title=title)


def time_scale_histogram(layer: xr.Dataset, ax: Axes, *, colour: int = 0, title: str = "") -> Axes:
    """Histogram of finite time scales.

    Parameters
    ----------
    layer : Dataset
        ``time_scale`` over unit, and seed if any.
    ax : Axes
    colour : int
    title : str
    """
    values = layer["time_scale"].values.ravel()
    finite = values[np.isfinite(values)]
    if len(finite):
        low, high = np.log(finite.min() / 1.05), np.log(finite.max() * 1.05)
        ax.hist(finite, bins=np.exp(np.linspace(low, high, 17)).tolist(), color=COLOURS[colour], alpha=0.8)
    endless = int(np.isinf(values).sum())
    if endless:
        ax.annotate(f"{endless} do not decay", (0.97, 0.95), xycoords="axes fraction", ha="right", fontsize=8)
    _logarithmic(ax)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return label(ax, x="time scale (steps)", y="units", title=title)


def envelope_agreement(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """First-order against exact envelopes, one point per lag, over the line of equality.

    Parameters
    ----------
    dataset : Dataset
        ``envelope`` and ``exact_envelope`` over (cell, seed, lag).
    ax : Axes
    title : str
    """
    first, exact = dataset["envelope"], dataset["exact_envelope"]
    known = exact.values[exact.values > 0]
    span = np.array([known.min(), known.max()])
    ax.plot(span, span, **_FIT)
    for k, cell in enumerate(dataset["cell"].values):
        x, y = exact.sel(cell=cell).values, first.sel(cell=cell).values
        for row in range(len(x)):
            name = str(cell) if row == 0 else None
            ax.plot(x[row], y[row], "o-", color=COLOURS[k], markersize=3.5, linewidth=0.8, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.legend(frameon=False, fontsize=7.5)
    return label(ax, x="exact envelope", y="first-order envelope", title=title)


def statistic_by_cell(dataset: xr.Dataset, ax: Axes, *, variable: str, title: str = "") -> Axes:
    """One statistic of the table, every run a point: optimisers by shape, hollow where the candidate is normalised.

    Parameters
    ----------
    dataset : Dataset
        The variable over (start, cell, optimiser, seed); 1 would be perfect.
    ax : Axes
    variable : str
    title : str
    """
    cells, starts = dataset["cell"].values, dataset["start"].values
    for i, start in enumerate(starts):
        for j, optimiser in enumerate(dataset["optimiser"].values):
            values = dataset[variable].sel(start=start, optimiser=optimiser).values
            spots = np.repeat(np.arange(len(cells)) + 0.12 * (j - 1) + 0.36 * (i - 0.5), values.shape[1])
            colour = COLOURS[(0, 1, 2)[j % 3]]
            ax.plot(spots, values.ravel(), "osD"[j % 3], color=colour, markersize=5,
                    markerfacecolor="none" if i else colour, label=f"{optimiser}, {start}")  # fmt: skip
    ax.axhline(1.0, **_FIT)
    ax.set_xticks(range(len(cells)), [str(cell) for cell in cells], rotation=20)
    ax.legend(frameon=False, fontsize=7)
    return label(ax, x="", y=dataset[variable].attrs["short_name"], title=title)


def _logarithmic(ax: Axes) -> None:
    """A logarithmic horizontal axis with a few plain numbers."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in _DIGITS:
        ticks = np.outer(powers, digits).ravel()
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) >= 3:
            break
    else:
        ticks = np.array([float(f"{tick:.2g}") for tick in np.linspace(low, high, 5)[1:-1]])
    ax.xaxis.set_major_locator(FixedLocator(ticks.tolist()))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
