"""Figures of the learnability window of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, GREY, THEORY, Look
from learncast.figures.page import label, logarithmic, with_key

FIT = {**THEORY, "linewidth": 1.0}


#: Axis labels.
ENVELOPE = "envelope $f(\\ell)$\n(change per gradient)"


LAG = r"lag $\ell$ (steps)"


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
    ['gates at the learning rate', 'with the optimiser', 'detected signal', 'fit: exponential']
    >>> plt.close(figure)
    """
    lag = layer["lag"].values
    ax.plot(lag, layer["envelope_gate"], color=COLOURS[1], linewidth=1.3, label="gates at the learning rate")
    ax.plot(lag, layer["envelope"], color=COLOURS[0], linewidth=1.3, label="with the optimiser")
    significant = (layer["score"] > layer["critical_score"]).values
    points = lag[significant], layer["envelope"].values[significant]
    ax.plot(*points, "o", color=COLOURS[0], markersize=3, label="detected signal")
    ax.plot(lag, layer["envelope_fit"], **THEORY, label=f"fit: {layer['decay_kind'].values}")
    ax.set_yscale("log")
    return with_key(ax, LAG, ENVELOPE, title, below=True)


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
    'lags with a signal (steps)'
    >>> plt.close(figure)
    """
    sizes = layer["sample_size"].values
    names = {"per_lag": "against the noise of its own lag", "total": "against the noise of the whole gradient"}
    for k, noise in enumerate(layer["noise"].values):
        values = layer["window"].sel(noise=noise)
        ax.plot(sizes, values, "o-", color=COLOURS[k], markersize=4, linewidth=1.3, label=names.get(noise, noise))
    gapless = layer["contiguous_window"].sel(noise="per_lag")
    ax.plot(
        sizes, gapless, "--", color=COLOURS[0], linewidth=1.2, label="against the noise of its own lag, without gaps"
    )
    null = layer["null_window"].max("noise").values
    ax.fill_between(sizes, np.zeros(len(sizes)), null, color="0.75", linewidth=0, zorder=0)
    ax.plot(sizes, null, color="0.55", linewidth=4, alpha=0.6, zorder=0, label="data without a signal (95%)")
    ax.axvline(float(layer["sequences"]), color="0.5", linewidth=0.8, linestyle="--")
    beside: Look = {"xytext": (-3, 0), "textcoords": "offset points", "xycoords": ("data", "axes fraction")}
    beside |= {"fontsize": 6.5, "rotation": 90, "ha": "right", "va": "top", "color": GREY}
    ax.annotate("diagnosed", (float(layer["sequences"]), 0.45), **beside)
    ax.set_xscale("log")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(bottom=-0.02 * max(1.0, float(layer["lag"][-1])))
    return with_key(ax, "sequences $N$", "lags with a signal (steps)", title, below=True)


def time_scale_survival(
    lines: Mapping[str, FloatArray],
    ax: Axes,
    *,
    colours: str | Sequence[str] = COLOURS[2:],
    scale: str = "semilog",
    title: str = "",
) -> Axes:
    """Draw the share of units with at least a time scale, one line for each group of units.

    Parameters
    ----------
    lines : mapping
        Name and time scales of each group; the legend leaves out names that begin with an underscore.
    ax : Axes
    colours : str or sequence of str
        Colours of the lines, or the name of a colour map.
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
    >>> import learncast as lc
    >>> figure, ax = plt.subplots()
    >>> lc.figures.time_scale_survival({"GRU": np.array([2.0, 5.0, np.inf, np.inf])}, ax).get_ylabel().split()[0]
    'share'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['GRU, 2 of 4 do not decay']
    >>> plt.close(figure)
    """
    shades = colormaps[colours](np.linspace(0.08, 1, len(lines))) if isinstance(colours, str) else colours
    for (name, scales), colour in zip(lines.items(), shades, strict=False):
        known = np.sort(scales[~np.isnan(scales)])
        finite = known[np.isfinite(known)]
        share, undecayed = 1 - np.arange(len(finite)) / max(1, len(known)), len(known) - len(finite)
        text = f"{name}, {undecayed} of {len(known)} do not decay" if undecayed else name
        ax.step(finite, share, where="pre", color=colour, linewidth=1.3, label=text)
    logarithmic(ax)
    if scale == "log-log":
        logarithmic(ax, "y")
    else:
        ax.set_ylim(0, 1.03)
    return with_key(ax, r"time scale $\tau$ (steps)", "share of units\nat least as slow", title, below=True, ncols=2)


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
        ax.annotate(f"{undecayed} do not decay", (0.97, 0.94), xycoords="axes fraction", ha="right", fontsize=6.5)
    logarithmic(ax)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    return label(ax, x=r"time scale $\tau$ (steps)", y="number of units", title=title)
