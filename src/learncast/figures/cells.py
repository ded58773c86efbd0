"""Figures of the learnability windows of several cells, and of the claims about them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast.figures.look import COLOURS, TOKENS, Look
from learncast.figures.page import key, label, logarithmic, name_line, with_key
from learncast.figures.windows import ENVELOPE, FIT, LAG

#: Cells in the order of their colours.
CELLS = ("ConstGate", "SharedGate", "DiagGate", "GRU", "LSTM")
#: Share of the largest value at which logarithmic axes end: an envelope that falls by 35 decades hides the others.
DECADES = 1e-10


def envelopes_by_cell(
    dataset: xr.Dataset, ax: Axes, *, law: str | None = None, axis: str = "linear", title: str = ""
) -> Axes:
    """Draw the mean envelope of every cell over the lag, with one fitted law dotted.

    Parameters
    ----------
    dataset : Dataset
        ``envelope`` and ``envelope_auxiliary`` (dashed, may be nan) over (cell, seed, lag), ``{law}_fit`` over (cell,
        lag) and ``{law}_r_squared`` over cell.
    ax : Axes
    law : {"exponential", "power"}, optional
    axis : {"linear", "semilog", "log-log"}
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import xarray as xr
    >>> import learncast as lc
    >>> gone = np.full((1, 1, 3), np.nan)
    >>> dataset = xr.Dataset(
    ...     {
    ...         "envelope": (("cell", "seed", "lag"), [[[1.0, 0.5, 0.25]]]),
    ...         "envelope_auxiliary": (("cell", "seed", "lag"), gone),
    ...         "exponential_fit": (("cell", "lag"), [[1.0, 0.5, 0.25]]),
    ...         "exponential_r_squared": ("cell", [1.0]),
    ...     },
    ...     coords={"cell": ["GRU"], "lag": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.envelopes_by_cell(dataset, ax, law="exponential", axis="semilog")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU, $R^2$ 1.000', 'exponential fit']
    >>> plt.close(figure)
    """
    for cell, colour, one in _cells(dataset):
        name = cell if law is None else f"{cell}, $R^2$ {float(one[f'{law}_r_squared']):.3f}"
        ax.plot(one["lag"], one["envelope"].mean("seed"), color=colour, label=name)
        if bool(one["envelope_auxiliary"].notnull().any()):
            more = one["envelope_auxiliary"].mean("seed")
            ax.plot(one["lag"], more, color=colour, linestyle="--", label=f"{cell}, eq. 58" if law is None else None)
        if law is not None:
            ax.plot(one["lag"], one[f"{law}_fit"], **FIT)
    if law is not None:
        ax.plot([], [], **FIT, label=f"{law} fit")
    if axis != "linear":
        ax.set_yscale("log")
        _within_decades(ax, dataset["envelope"])
    if axis == "log-log":
        logarithmic(ax)
    return with_key(ax, LAG, ENVELOPE, title, below=True, ncols=2 if law is None else 1)


def windows_by_cell(
    dataset: xr.Dataset,
    ax: Axes,
    *,
    variable: str,
    noise: str = "per_lag",
    null: str | None = None,
    legend: bool = True,
    title: str = "",
) -> Axes:
    """Draw the median window of every cell over the number of sequences; windows without signal are dashed.

    Parameters
    ----------
    dataset : Dataset
        Variables over (cell, seed, noise, sample_size).
    ax : Axes
    variable : str
        Variable of the windows.
    noise : {"per_lag", "total"}
    null : str, optional
        Variable of the windows without signal.
    legend : bool
        Draw a legend below the axes.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dataset = xr.Dataset(
    ...     {"window": (("cell", "seed", "noise", "sample_size"), [[[[4, 9]]], [[[2, 5]]]])},
    ...     coords={"cell": ["GRU", "LSTM"], "noise": ["per_lag"], "sample_size": [100, 1000], "lag": range(1, 13)},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.windows_by_cell(dataset, ax, variable="window")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU', 'LSTM']
    >>> plt.close(figure)
    """
    sizes = dataset["sample_size"].values
    for k, (cell, colour, one) in enumerate(_cells(dataset.sel(noise=noise))):
        width = 2.6 - 0.45 * k  # windows often coincide, so later lines are thinner
        line: Look = {"color": colour, "linewidth": width}
        ax.plot(sizes, one[variable].median("seed"), "o-", **line, markersize=1.0 + width, label=cell)
        if null is not None:
            ax.plot(sizes, one[null].median("seed"), "--", **line)
    if null is not None:
        ax.plot([], [], "--", color="0.4", label="no signal (95%)")
    logarithmic(ax)
    last, longest = float(dataset["lag"][-1]), dataset.attrs.get("longest_task_lag")
    if longest is not None:
        ax.axhline(float(longest), color="grey", linewidth=0.8, linestyle=":")
        name_line(ax, float(longest), "task's longest lag", x=0.02, up=-8)
    ax.set_ylim(-0.03 * last, 1.05 * last)
    if legend:
        key(ax, below=True, ncols=2, columnspacing=0.8)
    return label(ax, x="sequences $N$", y=r"longest learnable lag $\mathcal{H}_N$ (steps)", title=title)


def tail_indices_by_cell(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the tail index of a gradient's single terms (hollow) and of means of 16 terms (filled), a point per network.

    Parameters
    ----------
    dataset : Dataset
        ``pooled_tail_index`` and ``block_tail_index`` over (cell, seed).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dims = ("cell", "seed")
    >>> dataset = xr.Dataset(
    ...     {"pooled_tail_index": (dims, [[1.5, 1.4]]), "block_tail_index": (dims, [[2.0, 1.9]])},
    ...     coords={"cell": ["GRU"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.tail_indices_by_cell(dataset, ax)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['GRU']
    >>> plt.close(figure)
    """
    for j, (kind, text) in enumerate({"pooled": "single terms", "block": "means of 16 terms"}.items()):
        points(dataset[f"{kind}_tail_index"], ax, shift=0.3 * j - 0.15, hollow=j == 0)
        ax.plot([], [], "o", color="0.4", markerfacecolor="0.4" if j else "none", markersize=3, label=text)
    for height, text, line in ((2.0, "finite variance", "--"), (1.47, "product of two normals", ":")):
        ax.axhline(height, **FIT | {"linestyle": line}, label=text)
    ax.set_ylim(min(1.0, float(dataset["pooled_tail_index"].min()) - 0.05), 2.25)
    return with_key(ax, "", r"tail index $\hat\alpha$", title, below=True, ncols=2)


def points(values: xr.DataArray, ax: Axes, *, shift: float = 0.0, hollow: bool = False) -> None:
    """Draw a point for every network, (cell, seed), in columns of cells."""
    cells = [str(cell) for cell in values["cell"].values]
    for k, cell in enumerate(cells):
        one = values.sel(cell=cell).values
        across, colour = k + shift + np.linspace(-0.08, 0.08, len(one)), _colour(cell)
        face = "none" if hollow else colour
        ax.plot(across, one, "o", color=colour, markersize=3.2, markerfacecolor=face, markeredgewidth=0.8)
    short = [cell.replace("Gate", "") for cell in cells] if len(cells) > 2 else cells
    ax.set_xticks(range(len(cells)), short)
    ax.set_xlim(-0.5, len(cells) - 0.5)


def networks_by_cell(values: xr.DataArray, ax: Axes, *, y: str, title: str = "") -> Axes:
    """Draw one measure of every network, by cell.

    Parameters
    ----------
    values : DataArray over (cell, seed)
    ax : Axes
    y : str
        Label of the measure.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> values = xr.DataArray([[10.7, 10.9], [4.1, 4.6]], {"cell": ["ConstGate", "GRU"]}, ("cell", "seed"))
    >>> figure, ax = plt.subplots()
    >>> lc.figures.networks_by_cell(values, ax, y="drop").get_ylabel()
    'drop'
    >>> plt.close(figure)
    """
    points(values, ax)
    ax.tick_params(axis="x", labelsize=6, labelrotation=30)
    spread = values.values[np.isfinite(values.values)]
    if spread.size and spread.min() > 0 and spread.max() > 20 * spread.min():
        ax.set_yscale("log")
    return label(ax, x="", y=y, title=title)


def noise_scales_by_cell(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the noise scale of every cell over the lag; its envelope, scaled to the first lag, is dotted.

    Parameters
    ----------
    dataset : Dataset
        ``scale`` and ``envelope`` over (cell, seed, lag).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dims = ("cell", "seed", "lag")
    >>> dataset = xr.Dataset(
    ...     {"scale": (dims, [[[0.2, 0.1, 0.06]]]), "envelope": (dims, [[[1.0, 0.5, 0.25]]])},
    ...     coords={"cell": ["GRU"], "lag": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.noise_scales_by_cell(dataset, ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU', 'envelope, rescaled']
    >>> plt.close(figure)
    """
    for cell, colour, one in _cells(dataset[["scale", "envelope"]].mean("seed")):
        scale, envelope = one["scale"], one["envelope"]
        ax.plot(one["lag"], scale, color=colour, linewidth=1.3, label=cell)
        ax.plot(one["lag"], envelope * float(scale[0] / envelope[0]), **{**FIT, "color": colour})
    ax.plot([], [], **{**FIT, "color": "0.4"}, label="envelope, rescaled")
    ax.set_yscale("log")
    _within_decades(ax, dataset["scale"])
    return with_key(ax, LAG, r"noise scale $\hat\sigma_\alpha$ (change per gradient)", title, below=True, ncols=2)


def dial(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the weight of the longest lag that networks with constant gates have learned, over the drop of the envelope.

    Parameters
    ----------
    dataset : Dataset
        ``dial_drop`` and ``dial_recovered`` over (gate, seed).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dims = ("gate", "seed")
    >>> dataset = xr.Dataset(
    ...     {"dial_drop": (dims, [[2.0], [9.0]]), "dial_recovered": (dims, [[0.1], [0.4]])}, {"gate": [0.05, 0.5]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.dial(dataset, ax)
    >>> len(ax.lines)
    2
    >>> plt.close(figure)
    """
    for k, gate in enumerate(dataset["gate"].values):
        one = dataset.sel(gate=gate)
        look: Look = {"color": COLOURS[k % len(COLOURS)], "markersize": 3.2, "linestyle": "none"}
        ax.plot(one["dial_drop"], one["dial_recovered"], "o", **look, label=f"s = {gate:g}")
    logarithmic(ax)
    return with_key(ax, "drop of the envelope", "weight of the longest lag", title, fontsize=5.5, loc="best")


def verdicts(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Write the verdict of every claim.

    Parameters
    ----------
    dataset : Dataset
        ``verdict`` over claim.
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dataset = xr.Dataset({"verdict": ("claim", ["holds", "fails"])}, {"claim": ["C1", "C5"]})
    >>> figure, ax = plt.subplots()
    >>> len(lc.figures.verdicts(dataset, ax).texts)
    4
    >>> plt.close(figure)
    """
    colours, rows = {"holds": COLOURS[2], "fails": COLOURS[1], "undecided": "0.5"}, dataset.sizes["claim"]
    for k, (name, verdict) in enumerate(zip(dataset["claim"].values, dataset["verdict"].values, strict=True)):
        height = 1 - (k + 0.5) / rows
        ax.text(0.0, height, str(name), transform=ax.transAxes, va="center", fontsize=6.5)
        ax.text(1.0, height, str(verdict), transform=ax.transAxes, va="center", ha="right", fontsize=6.5).set_color(
            colours[str(verdict)]
        )
    ax.set_axis_off()
    ax.set_title(title, loc="left")
    return ax


def _within_decades(ax: Axes, values: xr.DataArray) -> None:
    """Limit a logarithmic axis to the data, which fits can leave, and to the decades that show all cells."""
    means = values.mean("seed").values
    known = means[means > 0]
    if known.size:
        ax.set_ylim(max(0.5 * known.min(), DECADES * known.max()), 3 * known.max())


def _cells(dataset: xr.Dataset) -> Iterator[tuple[str, str, xr.Dataset]]:
    """Yield name, colour and data of every cell."""
    for cell in dataset["cell"].values:
        yield str(cell), _colour(str(cell)), dataset.sel(cell=cell)


def _colour(cell: str) -> str:
    """Return the colour of a cell, the same in every figure."""
    return COLOURS[CELLS.index(cell)] if cell in CELLS else TOKENS["warning"]
