"""The sheet that figures are drawn on, and its colours."""

from __future__ import annotations

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


def save(figure: Figure, path: str | Path, *, dpi: int = 160) -> Path:
    """Write a figure to a file."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi)
    return target
