"""Drawings of networks, modes and trees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from learncast.figures.look import COLOURS, GREY, STAGED
from learncast.figures.page import label


def network_scheme(ax: Axes, *, sizes: Sequence[int], title: str = "") -> Axes:
    """Draw the inputs, state and output of a recurrent network as boxes, and the weights that learn.

    Parameters
    ----------
    ax : Axes
    sizes : three of int
        Numbers of inputs, hidden units and outputs.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.network_scheme(ax, sizes=(1, 128, 1), title="linear RNN")
    >>> ax.get_title(loc="left")
    'linear RNN'
    >>> plt.close(figure)
    """
    words = (r"inputs $x_t$", r"state $h_t$", r"output $\hat y_T$")
    for k, (name, size) in enumerate(zip(words, sizes, strict=True)):
        box = FancyBboxPatch((k - 0.26, -0.2), 0.52, 0.4, boxstyle="round,pad=0.03", facecolor="white",
                             edgecolor=COLOURS[(5, 0, 1)[k]], linewidth=1.5)  # fmt: skip
        ax.add_patch(box)
        ax.text(k, 0, f"{name}\n{size} unit{'s' if size > 1 else ''}", ha="center", va="center", fontsize=7)
    for start, text in ((0, "$W_x$\nlearned"), (1, "$W_y$\nlearned")):
        ax.add_patch(_arrow((start + 0.31, 0), (start + 0.69, 0), STAGED))
        ax.text(start + 0.5, 0.08, text, ha="center", va="bottom", fontsize=7, color=STAGED)
    ax.add_patch(_arrow((1.12, 0.25), (0.88, 0.25), GREY, connectionstyle="arc3,rad=1.6"))
    ax.text(1, 0.45, "$W_h$, fixed", ha="center", va="bottom", fontsize=7, color=GREY)
    ax.set(xlim=(-0.4, 2.4), ylim=(-0.3, 0.65))
    ax.set_axis_off()
    return label(ax, x="", y="", title=title)


def layer_scheme(ax: Axes, *, sizes: Sequence[int], title: str = "") -> Axes:
    """Draw a two-layer linear network: its neurons, and both layers of weights.

    Parameters
    ----------
    ax : Axes
    sizes : three of int
        Numbers of input, hidden and output neurons.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.layer_scheme(ax, sizes=(3, 5, 2))
    >>> len(ax.lines) == 3 * 5 + 5 * 2 + 3  # weights and layers
    True
    >>> plt.close(figure)
    """
    columns = [[(k, y) for y in np.linspace(-1, 1, 2 * n + 1)[1::2]] for k, n in enumerate(sizes)]
    for (left, right), colour in zip(pairwise(columns), (COLOURS[5], COLOURS[1]), strict=True):
        _edges(ax, [(one, other) for one in left for other in right], colour)
    words = ("inputs $x$", "hidden $h$", r"outputs $\hat y$")
    for column, colour, size, word in zip(columns, (COLOURS[5], COLOURS[0], COLOURS[1]), sizes, words, strict=True):
        _neurons(ax, column, colour)
        ax.text(column[0][0], -1.12, f"{word}\n{size}", ha="center", va="top", fontsize=7)
    for place, word in ((0.5, "$W_1$"), (1.5, "$W_2$")):
        ax.text(place, 0.98, word, ha="center", va="bottom", fontsize=8)
    return _bare(ax, (-0.3, 2.3), (-1.5, 1.2), title)


def mode_scheme(ax: Axes, *, modes: int = 3, title: str = "") -> Axes:
    r"""Draw a task in the frame of its modes: inputs, one chain of a strength and a recurrence per mode, outputs.

    Parameters
    ----------
    ax : Axes
    modes : int
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.mode_scheme(ax, modes=2)
    >>> [text.get_text() for text in ax.texts][-2:]
    ['$V^\\top$', '$U$']
    >>> plt.close(figure)
    """
    heights = np.linspace(0.8, -0.8, modes)
    given = [[(x, y) for y in heights] for x in (0.0, 4.0)]
    turned = [[(x, y) for y in heights] for x in (1.0, 3.0)]
    for column, colour in zip((*given, *turned), (COLOURS[5], COLOURS[1]) * 2, strict=True):
        _neurons(ax, column, colour)
    _edges(ax, [(a, b) for a in given[0] for b in turned[0]] + [(a, b) for a in turned[1] for b in given[1]], GREY)
    for k, y in enumerate(heights):
        _neurons(ax, [(2.0, y)], COLOURS[0])
        for start, end in ((1.12, 1.88), (2.12, 2.88)):
            ax.add_patch(_arrow((start, y), (end, y), STAGED))
        ax.text(1.5, y + 0.06, f"$a_{k + 1}$", ha="center", fontsize=7, color=STAGED)
        ax.text(2.5, y + 0.06, f"$c_{k + 1}$", ha="center", fontsize=7, color=STAGED)
        ax.add_patch(_arrow((2.09, y + 0.1), (1.91, y + 0.1), GREY, connectionstyle="arc3,rad=1.8"))
        ax.text(2.0, y + 0.3, f"$b_{k + 1}$", ha="center", va="bottom", fontsize=6.5, color=GREY)
    for x, text in ((0.0, "$x$"), (4.0, "$y$"), (1.0, "modes\nof $x$"), (3.0, "modes\nof $y$")):
        ax.text(x, -1.05, text, ha="center", va="top", fontsize=7)
    for x, text in ((0.5, r"$V^\top$"), (3.5, "$U$")):
        ax.text(x, 1.05, text, ha="center", fontsize=8)
    return _bare(ax, (-0.2, 4.2), (-1.5, 1.35), title)


def decoupling_scheme(ax: Axes, *, title: str = "") -> Axes:
    """Draw two modes that are coupled at the start of learning and separate at its end.

    Parameters
    ----------
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
    >>> figure, ax = plt.subplots()
    >>> [text.get_text() for text in lc.figures.decoupling_scheme(ax).texts][:2]
    ['start: modes coupled', 'end: modes separate']
    >>> plt.close(figure)
    """
    for left, mixed, word in ((0.0, True, "start: modes coupled"), (2.6, False, "end: modes separate")):
        rows = (0.6, -0.6)
        columns = [[(left + x, y) for y in rows] for x in (0.0, 0.7, 1.4)]
        for one, other in pairwise(columns):
            _edges(ax, list(zip(one, other, strict=True)), COLOURS[0], width=2.0)
            if mixed:
                _edges(ax, list(zip(one, other[::-1], strict=True)), COLOURS[1], width=1.2)
        for column in columns:
            _neurons(ax, column, COLOURS[0])
        ax.text(left + 0.7, -0.95, word, ha="center", va="top", fontsize=7)
    ax.add_patch(_arrow((1.75, 0.0), (2.25, 0.0), GREY))
    ax.text(2.0, 0.12, "learning", ha="center", fontsize=7, color=GREY)
    ax.text(0.7, 0.95, "within modes (blue), between modes (orange)", fontsize=6.5, ha="left", color=GREY)
    return _bare(ax, (-0.3, 4.3), (-1.3, 1.2), title)


def tree(ax: Axes, *, leaves: Sequence[str], order: Sequence[int] | None = None, title: str = "") -> Axes:
    """Draw a binary tree of items.

    Parameters
    ----------
    ax : Axes
    leaves : sequence of str
        Names of the items, a power of two.
    order : sequence of int, optional
        Leaf of each item; items in another order than the first tree are marked.
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> figure, ax = plt.subplots()
    >>> _ = lc.figures.tree(ax, leaves=["salmon", "trout", "robin", "canary"], order=[1, 0, 2, 3])
    >>> [text.get_text() for text in ax.texts]
    ['trout', 'salmon', 'robin', 'canary']
    >>> plt.close(figure)
    """
    places, level, depth = np.arange(len(leaves), dtype=float), 0, len(leaves).bit_length() - 1
    while len(places) > 1:
        parents = places.reshape(-1, 2).mean(axis=1)
        for child, parent in zip(places, np.repeat(parents, 2), strict=True):
            ax.plot([child, child, parent], [level, level + 1, level + 1], color=COLOURS[0], linewidth=1.3)
        places, level = parents, level + 1
    ax.plot([places[0]] * 2, [level, level + 0.4], color=COLOURS[0], linewidth=1.3)
    at = list(range(len(leaves))) if order is None else list(order)
    for leaf in range(len(leaves)):
        item = at.index(leaf)
        look: dict[str, Any] = {"ha": "right", "va": "top", "rotation": 50, "rotation_mode": "anchor", "fontsize": 7}
        ax.text(leaf, -0.15, leaves[item], color="black" if item == leaf else COLOURS[1], **look)
    return _bare(ax, (-0.8, len(leaves) - 0.4), (-1.6, depth + 0.5), title)


def _neurons(ax: Axes, places: Sequence[tuple[float, float]], colour: str) -> None:
    x, y = zip(*places, strict=True)
    ax.plot(x, y, "o", markersize=9, markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.4, zorder=3)


def _edges(
    ax: Axes, pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]], colour: str, width: float = 0.7
) -> None:
    for (x, y), (x_end, y_end) in pairs:
        ax.plot([x, x_end], [y, y_end], color=colour, linewidth=width, alpha=0.7, zorder=1)


def _bare(ax: Axes, x: tuple[float, float], y: tuple[float, float], title: str) -> Axes:
    ax.set(xlim=x, ylim=y)
    ax.set_axis_off()
    return label(ax, x="", y="", title=title)


def _arrow(start: tuple[float, float], end: tuple[float, float], colour: str, **options: Any) -> FancyArrowPatch:
    return FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=colour, linewidth=1.3, **options)
