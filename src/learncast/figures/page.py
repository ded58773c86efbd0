"""The sheet that figures are drawn on, and its colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")

#: Theory is dotted black over coloured simulation, everywhere.
THEORY: dict[str, Any] = {"color": "black", "linestyle": (0, (1, 1.2)), "linewidth": 1.8}


def page(rows: int = 1, columns: int = 1, *, width: float = 4.2, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, made without matplotlib's global state."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.ravel():
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9)
    return figure, list(axes.ravel())


def sheet(*draws: Callable[[Axes], Any], columns: int = 0, width: float = 4.2, height: float = 3.2) -> Figure:
    """A page with one axes for each of the draws, `columns` in a row; all in one row by default."""
    across = columns or len(draws)
    figure, axes = page(-(-len(draws) // across), across, width=width, height=height)
    for draw, ax in zip(draws, axes, strict=True):
        draw(ax)
    return figure


def label(ax: Axes, *, x: str, y: str, title: str = "") -> Axes:
    """Name the axes."""
    ax.set_xlabel(x, fontsize=10)
    ax.set_ylabel(y, fontsize=10)
    if title:
        ax.set_title(title, fontsize=10.5, loc="left")
    return ax


def axis_label(variable: Any) -> str:
    """Write "long name (units)" of a labelled array."""
    name = str(variable.attrs.get("long_name", variable.name)).replace("_", " ")
    units = variable.attrs.get("units", "1")
    return name if units == "1" else f"{name} ({units})"


def name_line(ax: Axes, height: float, text: str, *, x: float = 0.01, up: float = 3, size: float = 7.5) -> None:
    """Write beside a horizontal line what it is."""
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate(text, (x, height), xytext=(0, up), fontsize=size, color="dimgrey", **place)


def colour_bar(ax: Axes, drawn: Any, text: str, *, size: float = 9, **options: Any) -> Any:
    """Draw the scale of the colours and write what it is."""
    bar = ax.figure.colorbar(drawn, ax=ax, **options)
    bar.set_label(text, fontsize=size)
    bar.ax.tick_params(labelsize=8)
    return bar


def shortened(name: object, most: int) -> str:
    """A name with at most so many letters."""
    text = str(name)
    return text if len(text) <= most else text[: most - 2] + "…"


def save(figure: Figure, path: str | Path, *, dpi: int = 160) -> Path:
    """Write a figure to a file."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi)
    return target
