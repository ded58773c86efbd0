"""Figures of the learnability windows of several cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, TOKENS, Look
from learncast.figures.page import key, label, logarithmic, name_line
from learncast.figures.windows import ENVELOPE, FIT, LAG, with_key

#: Cells in the order of their colours.
CELLS = ("ConstGate", "SharedGate", "DiagGate", "GRU", "LSTM")


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
        # The data set the range, since a fitted power law can leave it by many decades.
        values = dataset["envelope"].mean("seed").values
        ax.set_ylim(0.5 * values[values > 0].min(), 3 * values.max())
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
        name_line(ax, float(longest), "task's longest lag")
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
    for height, text in ((2.0, "finite variance"), (1.47, "product of two normals")):
        ax.axhline(height, **FIT)
        name_line(ax, height, text, x=0.0)
    ax.set_ylim(1.0, 2.25)
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
    return with_key(ax, LAG, r"noise scale $\hat\sigma_\alpha$ (change per gradient)", title)


def envelope_agreement(dataset: xr.Dataset, ax: Axes, *, legend: bool = True, title: str = "") -> Axes:
    """Draw first-order over exact envelopes, one point per lag, with the line of equality.

    Parameters
    ----------
    dataset : Dataset
        ``envelope`` and ``exact_envelope`` over (cell, seed, lag).
    ax : Axes
    legend : bool
        Draw a legend.
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
    ...     {"envelope": (dims, [[[1.0, 0.5, 0.25]]]), "exact_envelope": (dims, [[[1.0, 0.6, 0.2]]])},
    ...     coords={"cell": ["GRU"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.envelope_agreement(dataset, ax).get_ylabel()
    'first-order envelope'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['equal', 'GRU']
    >>> plt.close(figure)
    """
    exact = dataset["exact_envelope"].values
    span = np.array([exact[exact > 0].min(), exact[exact > 0].max()])
    ax.plot(span, span, **FIT, label="equal")
    for cell, colour, one in _cells(dataset):
        for row, (x, y) in enumerate(zip(one["exact_envelope"].values, one["envelope"].values, strict=True)):
            name = cell if row == 0 else None
            dashed = "--" if cell not in CELLS else "-"
            ax.plot(x, y, "o", linestyle=dashed, color=colour, markersize=2.2, linewidth=0.7, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log")
    if legend:
        key(ax)
    return label(ax, x="exact envelope\n(change per gradient)", y="first-order envelope", title=title)


def statistic_by_cell(dataset: xr.Dataset, ax: Axes, *, variable: str, legend: bool = True, title: str = "") -> Axes:
    """Draw one statistic of every run as a point, with one marker per optimizer.

    Parameters
    ----------
    dataset : Dataset
        The variable over (cell, optimizer, seed); 1 is perfect.
    ax : Axes
    variable : str
    legend : bool
        Draw a legend.
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
    ...     {"slope": (("cell", "optimizer", "seed"), [[[0.98, 1.01], [0.9, 0.95]]], {"short_name": "slope"})},
    ...     coords={"cell": ["GRU"], "optimizer": ["SGD", "Adam"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.statistic_by_cell(dataset, ax, variable="slope").get_ylabel()
    'slope'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['SGD', 'Adam']
    >>> plt.close(figure)
    """
    cells = dataset["cell"].values
    for j, optimizer in enumerate(dataset["optimizer"].values):
        values = dataset[variable].sel(optimizer=optimizer).values
        spots = np.repeat(np.arange(len(cells)) + 0.2 * (j - 1), values.shape[1])
        look: Look = {"color": COLOURS[(0, 1, 2)[j % 3]], "markersize": 3.2, "linestyle": "none"}
        ax.plot(spots, values.ravel(), "osD"[j % 3], **look, label=str(optimizer))
    ax.axhline(1.0, **FIT)
    ax.set_xticks(range(len(cells)), [str(cell) for cell in cells], rotation=35, ha="right", rotation_mode="anchor")
    if legend:
        key(ax)
    return label(ax, x="", y=dataset[variable].attrs["short_name"], title=title)


def requirements_by_cell(
    dataset: xr.Dataset, ax: Axes, *, measure: Callable[[xr.Dataset], tuple[FloatArray, FloatArray]], title: str = ""
) -> Axes:
    """Draw the sequences that lags need over their envelope, one point per lag, with lines of slope -2.

    Parameters
    ----------
    dataset : Dataset
        Data of several cells.
    ax : Axes
    measure : callable
        Function from one cell's dataset to the sequences and the envelope of its lags.
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
    ...     {"sequences": (("cell", "lag"), [[10.0, 40.0, 160.0]]), "envelope": (("cell", "lag"), [[1.0, 0.5, 0.25]])},
    ...     coords={"cell": ["GRU"]},
    ... )
    >>> def measure(one):
    ...     return one["sequences"].values, one["envelope"].values
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.requirements_by_cell(dataset, ax, measure=measure)
    >>> ax.get_legend().get_texts()[0].get_text()
    'GRU (3 lags)'
    >>> plt.close(figure)
    """
    for cell, colour, one in _cells(dataset):
        needed, envelope = measure(one)
        ax.plot(envelope, needed, "o", color=colour, markersize=2.5, alpha=0.8, label=f"{cell} ({len(needed)} lags)")
        if len(needed):
            ends = np.array([envelope.min(), envelope.max()])
            middle = np.exp(np.mean(np.log(needed))) * np.exp(np.mean(np.log(envelope))) ** 2
            ax.plot(ends, middle / ends**2, **{**FIT, "color": colour})
    ax.plot([], [], **FIT, label=r"slope $-\kappa=-2$")
    ax.set_xscale("log")
    ax.set_yscale("log")
    return with_key(ax, ENVELOPE, r"sequences needed $N(\ell)$", title)


def curves_by_cell(
    values: xr.DataArray,
    ax: Axes,
    *,
    y: str,
    band: tuple[xr.DataArray, xr.DataArray] | None = None,
    legend: bool = True,
    title: str = "",
) -> Axes:
    """Draw a quantity of every cell over training.

    Parameters
    ----------
    values : DataArray over (cell, update)
    ax : Axes
    y : str
        Label of the quantity.
    band : pair of DataArray over (cell, update), optional
        Limits of a band around each curve, on a logarithmic axis.
    legend : bool
        Draw a legend.
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
    >>> values = xr.DataArray(
    ...     [[0.5, 0.9], [0.5, 0.7]], dims=("cell", "update"), coords={"cell": ["GRU", "LSTM"], "update": [10, 100]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.curves_by_cell(values, ax, y="accuracy").get_ylabel()
    'accuracy'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU', 'LSTM']
    >>> plt.close(figure)
    """
    for cell in values["cell"].values:
        one, colour = values.sel(cell=cell), _colour(str(cell))
        ax.plot(values["update"], one, "o-", color=colour, markersize=2.5, label=str(cell))
        if band is not None:
            low, high = (end.sel(cell=cell) for end in band)
            finite = np.isfinite(low) & np.isfinite(high)
            ax.fill_between(values["update"], low, high, where=finite, color=colour, alpha=0.15, linewidth=0)
    for along in "x" if band is None else "xy":
        logarithmic(ax, along)
    if legend:
        key(ax)
    return label(ax, x="training (gradient steps)", y=y, title=title)


def _cells(dataset: xr.Dataset) -> Iterator[tuple[str, str, xr.Dataset]]:
    """Yield name, colour and data of every cell."""
    for cell in dataset["cell"].values:
        yield str(cell), _colour(str(cell)), dataset.sel(cell=cell)


def _colour(cell: str) -> str:
    """Return the colour of a cell, the same in every figure."""
    return COLOURS[CELLS.index(cell)] if cell in CELLS else TOKENS["warning"]
