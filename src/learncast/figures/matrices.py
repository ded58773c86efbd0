"""Figures of matrices and of networks compared with predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from numpy.typing import NDArray

from learncast.display import format_loss
from learncast.figures.look import COLOURS, LOSSES, ON_DARK, ON_LIGHT, SAVED, UNSIGNED, Look
from learncast.figures.page import axis_label, colour_bar, label, with_key, wrapped


def matrix(
    values: xr.DataArray,
    ax: Axes,
    *,
    limit: float | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    borders: Sequence[int] = (),
    blocks: bool = False,
    bar: bool = True,
    title: str = "",
) -> Axes:
    """Draw a matrix as a heat map, blue above 0 and red below.

    Parameters
    ----------
    values : DataArray, two-dimensional
        Rows are drawn from the top; the unit is written beside the colour bar.
    ax : Axes
    limit : float, optional
        Size at which the colours saturate, with arrows at the ends of the scale; the largest entry by default.
    rows, columns : sequence of str, optional
        Names of rows and columns; no ticks by default.
    borders : sequence of int
        Rows and columns before which lines mark a block.
    blocks : bool
        Scale each block between the borders by its largest entry, which is written into it.
    bar : bool
        Draw the colour bar.
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
    >>> values = xr.DataArray([[1.0, -0.5], [0.0, 2.0]], dims=("output", "input"))
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.matrix(values, ax, rows=["y1", "y2"], columns=["x1", "x2"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['y1', 'y2']
    >>> plt.close(figure)
    """
    top = float(np.abs(values).max()) if limit is None else limit
    entries, edges = np.array(values, dtype=float), [0, *borders, len(values)]
    if blocks:
        top = 1.0
        for i, j in np.ndindex(len(edges) - 1, len(edges) - 1):
            part = (slice(edges[i], edges[i + 1]), slice(edges[j], edges[j + 1]))
            scale = float(np.abs(entries[part]).max()) or 1.0
            entries[part] /= scale
            box: Look = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.6}
            ax.text(edges[j] - 0.2, edges[i + 1] - 0.8, f"±{scale:.2g}", fontsize=5.5, va="bottom", bbox=box, zorder=5)
    image = ax.imshow(entries, cmap=SAVED, vmin=-(top or 1.0), vmax=top or 1.0, interpolation="nearest")
    for place in borders:
        ax.axhline(place - 0.5, color=ON_LIGHT, linewidth=0.7)
        ax.axvline(place - 0.5, color=ON_LIGHT, linewidth=0.7)
    _frame(ax, rows, columns)
    if bar:
        clipped = float(np.abs(entries).max()) > 1.01 * (top or 1.0)
        unit = str(values.attrs.get("units", "1")).replace(" ", " · ")
        words = "entry, share of its block's ±" if blocks else "" if unit == "1" else unit
        # Beside the square matrix, not beside the space of the axes.
        beside = ax.inset_axes((1.06, 0.08, 0.07, 0.84))
        colour_bar(ax, image, words, cax=beside, extend="both" if clipped else "neither")
    return label(ax, x="", y="", title=title)


def predicted_and_trained(
    predicted: xr.DataArray,
    trained: xr.DataArray,
    ax: Axes,
    *,
    rows: Sequence[str],
    limit: float,
    bar: bool = True,
    title: str = "",
) -> Axes:
    """Draw two tables in one: each square has the prediction above its diagonal and the training below.

    The tables are losses or their changes: red is a loss or a rise of it, blue a fall.

    Parameters
    ----------
    predicted, trained : DataArray, two-dimensional, the second dimension ``task``
    ax : Axes
    rows : sequence of str
        Names of the rows.
    limit : float
        Size at which the colours saturate, so that several tables can be compared.
    bar : bool
        Draw the colour bar.
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
    >>> loss = xr.DataArray([[1.0, 0.0], [3.0, 0.1]], dims=("stage", "task"), coords={"task": ["A", "B"]}, name="loss")
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.predicted_and_trained(loss, loss + 0.1, ax, rows=["after A", "after B"], limit=3.0)
    >>> [text.get_text() for text in ax.texts[:4]]
    ['1.0', '0.0', '3.0', '0.1']
    >>> plt.close(figure)
    """
    signed = min(float(predicted.min()), float(trained.min())) < -1e-9 * limit
    norm, colours = (Normalize(-limit, limit), SAVED.reversed()) if signed else (Normalize(0.0, limit), LOSSES)
    for values, corners in ((predicted, ((0, 0), (1, 0), (0, 1))), (trained, ((1, 1), (1, 0), (0, 1)))):
        halves = [np.array(corners) - 0.5 + np.array([j, i]) for i, j in np.ndindex(values.shape)]
        squares = PolyCollection(halves, cmap=colours, norm=norm, linewidths=0.3, edgecolors="face")
        squares.set_array(values.values.ravel())
        ax.add_collection(squares)
        for value, half in zip(values.values.ravel(), halves, strict=True):
            x, y = 0.85 * half.mean(axis=0) + 0.15 * half[0]
            _write(ax, x, y, f"{value:.1f}", 6.5, dark=abs(value) > 0.6 * limit)
    ax.set(xlim=(-0.5, predicted.shape[1] - 0.5), ylim=(predicted.shape[0] - 0.5, -0.5), aspect="equal")
    _frame(ax, rows, [str(task) for task in predicted["task"].values])
    if bar:
        colour_bar(ax, squares, axis_label(predicted), shrink=0.75)
    return label(ax, x="", y="", title=title)


def _write(ax: Axes, x: float, y: float, text: str, size: float, *, dark: bool) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=ON_DARK if dark else ON_LIGHT)


def loss_matrix(loss: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Draw the loss of every task after every stage as a heat map with numbers.

    Parameters
    ----------
    loss : DataArray over (stage, task)
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> later = task.varied(target_strength=0.5).renamed("weaker")
    >>> learned = lc.forget([task, later], network, learning_rate=1e-3, steps=[400, 50])
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.loss_matrix(learned.losses(), ax)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['start', 'after integration', 'after weaker']
    >>> plt.close(figure)
    """
    values = loss.values
    mesh = ax.imshow(values, cmap=UNSIGNED, vmin=0.0, aspect="auto")
    if values.size <= 100:
        middle = float(np.nanmax(values)) / 2
        for i, j in np.ndindex(values.shape):
            text = format_loss(max(float(values[i, j]), 0.0), size=2 * middle)
            _write(ax, j, i, text, 6.5, dark=bool(values[i, j] > middle))
    slanted: Look = {"rotation": 30, "ha": "right"} if loss.sizes["task"] > 3 else {}
    ax.set_xticks(range(loss.sizes["task"]), [wrapped(name, 14) for name in loss["task"].values], **slanted)
    stages = [wrapped(f"after {name}" if k else name, 18) for k, name in enumerate(loss["stage"].values)]
    ax.set_yticks(range(len(stages)), stages)
    colour_bar(ax, mesh, axis_label(loss) if loss.attrs else "loss")
    return label(ax, x="task", y="", title=title)


def spectrum(values: NDArray[np.complexfloating], ax: Axes, *, title: str = "") -> Axes:
    """Draw the eigenvalues of a recurrence in the complex plane, with the unit circle.

    Parameters
    ----------
    values : array of complex
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
    >>> import learncast as lc
    >>> recurrence = np.array([[0.5, -0.8], [0.8, 0.5]])
    >>> figure, ax = plt.subplots()
    >>> lc.figures.spectrum(np.linalg.eigvals(recurrence), ax).get_xlabel()
    'real part'
    >>> plt.close(figure)
    """
    angle = np.linspace(0.0, 2 * np.pi, 200)
    ax.plot(np.cos(angle), np.sin(angle), color="grey", linewidth=0.7, label="unit circle")
    ax.plot(np.real(values), np.imag(values), "o", color=COLOURS[0], alpha=0.6, markeredgewidth=0, label="eigenvalues")
    ax.set_aspect("equal")
    return with_key(ax, "real part", "imaginary part", title, below=True, ncols=2)


def _frame(ax: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    ax.set_yticks(range(len(rows or ())), rows or ())
    rotated: Look = {"rotation": 60, "ha": "right"} if columns else {}
    ax.set_xticks(range(len(columns or ())), columns or (), **rotated, rotation_mode="anchor")
