"""Figures of learnability windows, of one model and of several cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from learncast._core.validation import FloatArray
from learncast.figures.page import COLOURS, GREY, THEORY, Look, axis_label, key, label, logarithmic, name_line

_FIT = {**THEORY, "linewidth": 1.0}
#: Axis labels.
_ENVELOPE = "envelope $f(\\ell)$ (change per gradient)"
_LAG = r"lag $\ell$ (steps)"
#: Cells in the order of their colours.
CELLS = ("ConstGate", "SharedGate", "DiagGate", "GRU", "LSTM")


def envelope(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the envelope and its gate part over the lag, with the fitted law; points mark lags with a signal.

    Parameters
    ----------
    layer : Dataset
        ``envelope``, ``envelope_gate``, ``envelope_fit``, ``score`` over lag, and ``decay_kind``.
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
    >>> layer = xr.Dataset(
    ...     {
    ...         "envelope": ("lag", [1.0, 0.5, 0.25]),
    ...         "envelope_gate": ("lag", [0.8, 0.4, 0.2]),
    ...         "envelope_fit": ("lag", [1.0, 0.5, 0.25]),
    ...         "score": ("lag", [9.0, 4.0, 1.0]),
    ...         "critical_score": 3.0,
    ...         "decay_kind": "exponential",
    ...     },
    ...     coords={"lag": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.envelope(layer, ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['gates at the learning rate', 'with the optimizer', 'significant signal', 'fit: exponential']
    >>> plt.close(figure)
    """
    lag = layer["lag"].values
    ax.plot(lag, layer["envelope_gate"], color=COLOURS[1], linewidth=1.3, label="gates at the learning rate")
    ax.plot(lag, layer["envelope"], color=COLOURS[0], linewidth=1.3, label="with the optimizer")
    significant = (layer["score"] > layer["critical_score"]).values
    points = lag[significant], layer["envelope"].values[significant]
    ax.plot(*points, "o", color=COLOURS[0], markersize=3, label="significant signal")
    ax.plot(lag, layer["envelope_fit"], **THEORY, label=f"fit: {layer['decay_kind'].values}")
    ax.set_yscale("log")
    return _labelled(ax, _LAG, _ENVELOPE, title)


def window_curve(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the window over the number of sequences, with the band of data without signal.

    Parameters
    ----------
    layer : Dataset
        ``window``, ``contiguous_window`` and ``null_window`` over (noise, sample_size), and ``sequences``.
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
    >>> sizes = {"noise": ["per_lag"], "sample_size": [100, 1000]}
    >>> layer = xr.Dataset(
    ...     {
    ...         "window": (("noise", "sample_size"), [[4, 9]]),
    ...         "contiguous_window": (("noise", "sample_size"), [[4, 8]]),
    ...         "null_window": (("noise", "sample_size"), [[1, 1]]),
    ...         "sequences": 1000,
    ...     },
    ...     coords={**sizes, "lag": range(1, 13)},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.window_curve(layer, ax).get_ylabel()
    'longest learnable lag (steps)'
    >>> plt.close(figure)
    """
    sizes = layer["sample_size"].values
    names = {"per_lag": "noise of its lag", "total": "all gradient noise"}
    for k, noise in enumerate(layer["noise"].values):
        values = layer["window"].sel(noise=noise)
        ax.plot(sizes, values, "o-", color=COLOURS[k], markersize=4, linewidth=1.3, label=names.get(noise, noise))
    gapless = layer["contiguous_window"].sel(noise="per_lag")
    ax.plot(sizes, gapless, "--", color=COLOURS[0], linewidth=1.2, label="noise of its lag, without gaps")
    null = layer["null_window"].max("noise").values
    ax.fill_between(sizes, np.zeros(len(sizes)), null, color="0.75", linewidth=0, zorder=0)
    ax.plot(sizes, null, color="0.55", linewidth=4, alpha=0.6, zorder=0, label="data without signal (95%)")
    ax.axvline(float(layer["sequences"]), color="0.5", linewidth=0.8, linestyle="--")
    beside: Look = {"xytext": (-3, 0), "textcoords": "offset points", "xycoords": ("data", "axes fraction")}
    beside |= {"fontsize": 6.5, "rotation": 90, "ha": "right", "va": "top", "color": GREY}
    ax.annotate("diagnosed", (float(layer["sequences"]), 0.45), **beside)
    ax.set_xscale("log")
    ax.set_ylim(bottom=-0.02 * max(1.0, float(layer["lag"][-1])))
    return _labelled(ax, "sequences $N$", "longest learnable lag (steps)", title, below=True, ncols=2)


def time_scale_survival(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the share of units with at least a time scale; a remark counts units that do not decay.

    Parameters
    ----------
    layer : Dataset
        ``time_scale`` over unit.
    ax : Axes
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
    >>> layer = xr.Dataset({"time_scale": ("unit", [2.0, 5.0, np.inf, np.inf])})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.time_scale_survival(layer, ax).get_ylabel()
    'share of units at least as slow'
    >>> ax.texts[0].get_text()
    '2 of 4 units do not decay'
    >>> plt.close(figure)
    """
    finite, share, undecayed = _survival(layer["time_scale"].values)
    ax.step(finite, share, where="pre", color=COLOURS[2], linewidth=1.3)
    if undecayed:
        _remark(ax, f"{undecayed} of {len(finite) + undecayed} units do not decay")
    logarithmic(ax)
    ax.set_ylim(0, 1.03)
    return label(ax, x=r"time scale $\tau$ (steps)", y="share of units at least as slow", title=title)


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
            ax.plot(one["lag"], one[f"{law}_fit"], **_FIT)
    if law is not None:
        ax.plot([], [], **_FIT, label=f"{law} fit")
    if axis != "linear":
        ax.set_yscale("log")
        # The data set the range, since a fitted power law can leave it by many decades.
        values = dataset["envelope"].mean("seed").values
        ax.set_ylim(0.5 * values[values > 0].min(), 3 * values.max())
    if axis == "log-log":
        logarithmic(ax)
    return _labelled(ax, _LAG, _ENVELOPE, title)


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


def survivals_by_cell(dataset: xr.Dataset, ax: Axes, *, scale: str = "semilog", title: str = "") -> Axes:
    """Draw the share of units with at least a time scale for every cell.

    Parameters
    ----------
    dataset : Dataset
        ``time_scale`` over (cell, seed, unit).
    ax : Axes
    scale : {"semilog", "log-log"}
        Scale of the axes; the time scale is logarithmic in both.
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
    >>> dataset = xr.Dataset(
    ...     {"time_scale": (("cell", "seed", "unit"), [[[2.0, 5.0, 20.0, np.inf]]])}, coords={"cell": ["GRU"]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.survivals_by_cell(dataset, ax).get_ylabel()
    'share of units at least as slow'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU, 25% do not decay']
    >>> plt.close(figure)
    """
    for cell, colour, one in _cells(dataset):
        finite, share, undecayed = _survival(one["time_scale"].values)
        name = f"{cell}, {100 * undecayed / (len(finite) + undecayed):.0f}% do not decay" if undecayed else cell
        ax.step(finite, share, where="pre", color=colour, linewidth=1.3, label=name)
    logarithmic(ax)
    if scale == "log-log":
        logarithmic(ax, "y")
    else:
        ax.set_ylim(0, 1.03)
    return _labelled(ax, r"time scale $\tau$ (steps)", r"share of units at least as slow", title, below=True, ncols=2)


def tail_indices_by_cell(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the tail index of every lag with quartiles: the one used (filled) and that of single sequences (hollow).

    Parameters
    ----------
    dataset : Dataset
        ``tail_index`` and ``published_tail_index`` over (cell, seed, lag).
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
    ...     {"tail_index": (dims, [[[2.0, 1.8, 1.9]]]), "published_tail_index": (dims, [[[1.7, 1.5, 1.6]]])},
    ...     coords={"cell": ["GRU"]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.tail_indices_by_cell(dataset, ax)
    >>> [text.get_text() for text in ax.get_xticklabels()]
    ['GRU']
    >>> plt.close(figure)
    """
    names = {"tail_index": "used: 2 if the variance is finite"}
    names["published_tail_index"] = "single sequences, published rule"
    quartiles: Look = {"color": "black", "capsize": 1.8, "marker": "_", "linewidth": 0.9}
    cells = dataset["cell"].values
    for j, (variable, text) in enumerate(names.items()):
        for k, (_, colour, one) in enumerate(_cells(dataset)):
            values = np.sort(one[variable].values[np.isfinite(one[variable].values)])
            left = k + 0.42 * j - 0.38
            point: Look = {"color": colour, "markersize": 2, "alpha": 0.7, "markeredgewidth": 0.6}
            point["markerfacecolor"] = "none" if j else colour
            ax.plot(left + np.linspace(0.0, 0.22, len(values)), values, "o", **point)
            if len(values):
                low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
                ax.errorbar(left + 0.29, median, [[median - low], [high - median]], markersize=5, **quartiles)
        ax.plot([], [], "o", color="0.4", markerfacecolor="none" if j else "0.4", markersize=3, label=text)
    ax.errorbar([], [], [], **quartiles, label="median and quartiles")
    ax.axhline(2.0, **_FIT)
    name_line(ax, 2.0, "finite variance", x=0.0)
    ax.set_xticks(range(len(cells)), [str(cell) for cell in cells])
    ax.set_xlim(-0.5, len(cells) - 0.5)
    return _labelled(ax, "", r"tail index $\hat\alpha$ (one point per lag)", title, below=True, ncols=2)


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
        ax.plot(one["lag"], envelope * float(scale[0] / envelope[0]), **{**_FIT, "color": colour})
    ax.plot([], [], **{**_FIT, "color": "0.4"}, label="envelope, rescaled")
    ax.set_yscale("log")
    return _labelled(ax, _LAG, r"noise scale $\hat\sigma_\alpha$ (change per gradient)", title)


def time_scale_histogram(layer: xr.Dataset, ax: Axes, *, colour: int = 0, title: str = "") -> Axes:
    """Draw a histogram of the finite time scales.

    Parameters
    ----------
    layer : Dataset
        ``time_scale`` over unit, and seed if any.
    ax : Axes
    colour : int
        Index of the colour.
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
    >>> layer = xr.Dataset({"time_scale": ("unit", [2.0, 5.0, np.inf, np.inf])})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.time_scale_histogram(layer, ax).get_ylabel()
    'number of units'
    >>> ax.texts[0].get_text()
    '2 do not decay'
    >>> plt.close(figure)
    """
    values = layer["time_scale"].values.ravel()
    finite = values[np.isfinite(values)]
    if len(finite):
        low, high = np.log(finite.min() / 1.05), np.log(finite.max() * 1.05)
        # The number of bins grows with the number of units.
        bins = int(np.clip(np.sqrt(2 * len(finite)), 4, 24))
        ax.hist(finite, bins=np.exp(np.linspace(low, high, bins + 1)).tolist(), color=COLOURS[colour], alpha=0.8)
        if len(finite) < 30:
            ax.plot(finite, np.zeros(len(finite)), "|", color="black", markersize=7, clip_on=False)
    undecayed = int(np.isinf(values).sum())
    if undecayed:
        _remark(ax, f"{undecayed} do not decay")
    logarithmic(ax)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return label(ax, x=r"time scale $\tau$ (steps)", y="number of units", title=title)


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
    ax.plot(span, span, **_FIT, label="equal")
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
    ax.axhline(1.0, **_FIT)
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
            ax.plot(ends, middle / ends**2, **{**_FIT, "color": colour})
    ax.plot([], [], **_FIT, label=r"slope $-\kappa=-2$")
    ax.set_xscale("log")
    ax.set_yscale("log")
    return _labelled(ax, _ENVELOPE, r"sequences needed $N(\ell)$", title)


def time_scales_over_training(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the median time scale of every cell's units over training, with the band from 10% to 90%.

    Parameters
    ----------
    dataset : Dataset
        ``watched_time_scale`` over (cell, seed, update, unit).
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
    >>> scales = [[[[2.0, 3.0, 4.0], [3.0, 6.0, 12.0]]]]
    >>> dataset = xr.Dataset(
    ...     {"watched_time_scale": (("cell", "seed", "update", "unit"), scales)},
    ...     coords={"cell": ["GRU"], "update": [10, 100]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.time_scales_over_training(dataset, ax).get_xlabel()
    'training (gradient steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU']
    >>> plt.close(figure)
    """
    for cell, colour, one in _cells(dataset):
        values = one["watched_time_scale"].transpose("update", ...).values.reshape(one.sizes["update"], -1)
        low, median, high = np.nanquantile(values, (0.1, 0.5, 0.9), axis=1, method="lower")
        ax.plot(one["update"], median, "o-", color=colour, markersize=2.5, label=cell)
        finite = np.isfinite(low) & np.isfinite(high)
        ax.fill_between(one["update"], low, high, where=finite, color=colour, alpha=0.15, linewidth=0)
    for along in "xy":
        logarithmic(ax, along)
    return _labelled(ax, "training (gradient steps)", r"time scale $\tau$ (steps)", title)


def curves_by_cell(values: xr.DataArray, ax: Axes, *, y: str, title: str = "") -> Axes:
    """Draw a quantity of every cell over training.

    Parameters
    ----------
    values : DataArray over (cell, update)
    ax : Axes
    y : str
        Label of the quantity.
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
        one = values.sel(cell=cell)
        ax.plot(values["update"], one, "o-", color=_colour(str(cell)), markersize=2.5, label=str(cell))
    logarithmic(ax)
    return _labelled(ax, "training (gradient steps)", y, title)


def time_scale_spectra(layer: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the share of units with at least a time scale for every state, darker later in training.

    Parameters
    ----------
    layer : Dataset
        ``time_scale`` over (step, unit).
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
    >>> layer = xr.Dataset(
    ...     {"time_scale": (("step", "unit"), [[2.0, 3.0, 4.0], [3.0, 6.0, 12.0]])},
    ...     coords={"step": ("step", [10, 100], {"long_name": "gradient step"})},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.time_scale_spectra(layer, ax).get_ylabel()
    'share of units at least as slow'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['gradient step 10', 'gradient step 100']
    >>> plt.close(figure)
    """
    steps = layer["step"].values
    lines = colormaps["viridis_r"](np.linspace(0.08, 1, len(steps)))
    for k, colour in enumerate(lines):
        finite, share, undecayed = _survival(layer["time_scale"].isel(step=k).values)
        more = f" ({undecayed} of {layer.sizes['unit']} units do not decay)" if undecayed else ""
        named = k in {0, len(steps) // 2, len(steps) - 1}
        text = f"{layer['step'].attrs['long_name']} {steps[k]:,}{more}" if named else None
        ax.step(finite, share, where="pre", color=colour, linewidth=1.2, label=text)
    logarithmic(ax)
    ax.set_ylim(0, 1.03)
    return _labelled(ax, r"time scale $\tau$ (steps)", "share of units at least as slow", title)


#: Axis label and title of each quantity over training.
_QUANTITIES = {
    "envelope_exponent": ("exponent of the envelope", "envelope as a power of the lag"),
    "tail_index": ("tail index", "noise between sequences"),
    "reach": ("longest learnable lag (steps)", "window"),
}


def window_over_training(layer: xr.Dataset, name: str, ax: Axes, *, title: str = "") -> Axes:
    """Draw a quantity of a window over the states of a model.

    Parameters
    ----------
    layer : Dataset
        ``envelope_exponent``, ``reach`` and ``contiguous_reach`` over step, or ``tail_index`` over (step, lag) with its
        median.
    name : {"envelope_exponent", "tail_index", "reach"}
    ax : Axes
    title : str
        Letter of the panel.

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> layer = xr.Dataset(
    ...     {"reach": ("step", [2, 5, 9]), "contiguous_reach": ("step", [2, 4, 9])}, coords={"step": [0, 50, 100]}
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.window_over_training(layer, "reach", ax, title="A").get_ylabel()
    'longest learnable lag (steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['any lag', 'without gaps']
    >>> plt.close(figure)
    """
    look: Look = {"color": COLOURS[0], "markersize": 3}
    steps, (y, text) = layer["step"].values, _QUANTITIES[name]
    if name == "tail_index":
        values = layer[name].transpose("step", "lag").values
        ax.plot(np.repeat(steps, values.shape[1]), values.ravel(), ".", color="0.7", markersize=3, label="one lag")
        ax.plot(steps, layer["tail_index_median"], "o-", **look, label="median over lags")
        ax.axhline(2, **_FIT)
        name_line(ax, 2, "finite variance", up=-8)
    else:
        ax.plot(steps, layer[name], "o-", **look, label="any lag" if name == "reach" else None)
    if name == "reach":
        ax.plot(steps, layer["contiguous_reach"], "--", color=COLOURS[1], label="without gaps")
        ax.set_ylim(bottom=0)
    if len(steps) > 2 and steps[0] > 0 and steps[-1] > 20 * steps[0]:
        logarithmic(ax)
    elif len(steps) < 8:
        ax.set_xticks(steps)
    if ax.get_legend_handles_labels()[0]:
        key(ax)
    return label(ax, x=axis_label(layer["step"]), y=y, title=f"{title}  {text}")


def envelopes_by_gate(dataset: xr.Dataset, ax: Axes, *, colour: int = 0, title: str = "") -> Axes:
    """Draw the envelope of one cell for each initial value of its gates.

    Parameters
    ----------
    dataset : Dataset
        ``envelope`` over (gate, seed, lag).
    ax : Axes
    colour : int
        Index of the colour.
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
    ...     {"envelope": (("gate", "seed", "lag"), [[[1.0, 0.5, 0.25]], [[1.0, 0.8, 0.64]]])},
    ...     coords={"gate": [0.5, 0.9], "lag": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.envelopes_by_gate(dataset, ax)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['gates start at 0.5', 'gates start at 0.9']
    >>> plt.close(figure)
    """
    for gate, look in zip(dataset["gate"].values, ("-", "--"), strict=True):
        mean = dataset["envelope"].sel(gate=gate).mean("seed")
        ax.plot(dataset["lag"], mean, color=COLOURS[colour], linestyle=look, label=f"gates start at {gate:g}")
    ax.set_yscale("log")
    return _labelled(ax, _LAG, _ENVELOPE, title)


def _cells(dataset: xr.Dataset) -> Iterator[tuple[str, str, xr.Dataset]]:
    """Yield name, colour and data of every cell."""
    for cell in dataset["cell"].values:
        yield str(cell), _colour(str(cell)), dataset.sel(cell=cell)


def _colour(cell: str) -> str:
    """Return the colour of a cell, the same in every figure."""
    return COLOURS[CELLS.index(cell)] if cell in CELLS else "#8C5A00"


def _survival(time_scales: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """Return ascending finite time scales, the share of units at least as slow, and the number without decay."""
    known = np.sort(time_scales[~np.isnan(time_scales)])
    finite = known[np.isfinite(known)]
    return finite, 1 - np.arange(len(finite)) / max(1, len(known)), len(known) - len(finite)


def _remark(ax: Axes, text: str) -> None:
    ax.annotate(text, (0.97, 0.94), xycoords="axes fraction", ha="right", fontsize=6.5)


def _labelled(ax: Axes, x: str, y: str, title: str, **legend: Any) -> Axes:
    key(ax, **legend)
    return label(ax, x=x, y=y, title=title)
