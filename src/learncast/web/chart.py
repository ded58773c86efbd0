"""Charts as plain data: what is plotted, without how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from numpy.typing import ArrayLike

#: How a trace is drawn; the page chooses colours and widths.
Kind = Literal["line", "steps", "points", "bars", "heat", "band", "contour"]
#: What a trace stands for, which decides its colour and dash.
Role = Literal[
    "theory", "descent", "data", "dashed", "target", "zero", "best", "pinned", "null", "threshold", "differs", "finish"
]


class Series(IntEnum):
    """Series that have the same colour in every panel; mode k has the number ``MODE + k``."""

    TARGET = 0
    FIRST = 1
    OTHER = 2
    MODE = 3
    #: A curriculum has the colour of its target, and direct training is grey.
    CURRICULUM = 0
    DIRECT = 2


@dataclass(frozen=True)
class ChartAxis:
    """A labelled axis.

    Attributes
    ----------
    label, unit : str
        Quantity and its unit; a dimensionless quantity has the unit ``1``.
    scale : {"linear", "log"}
    span : pair of float, optional
        Limits of the axis or of a colour scale; the range of the data by default.
    clock : bool
        Whether the axis is training time, on which the page marks the current frame.
    worse_above : bool
        Whether numbers above 0 have the colours of a loss, as forgetting does.
    """

    label: str
    unit: str = "1"
    scale: Literal["linear", "log"] = "linear"
    span: tuple[float, float] | None = None
    clock: bool = False
    worse_above: bool = False


@dataclass(frozen=True)
class Trace:
    """One curve, set of points, band or heat map.

    Attributes
    ----------
    kind, role
        How it is drawn, and what it stands for.
    name : str
        Name in the legend.
    x, y, z : array
        Coordinates. `z` holds the values of a heat map, with rows along y, or the upper edge of a band, whose lower
        edge is `y`. Bars and heat maps may have text as `x`. A contour is the zero level of the chart's heat map and
        has no data of its own. Nan values are not drawn.
    series : int
        Index of the colour, see `Series`.
    legend : bool
        Whether the legend lists it.
    frames : array, optional
        Values of `z` (heat map) or `y` at each frame of the view's clock, frames first.
    labels : tuple of str
        Text next to each point.
    """

    kind: Kind
    role: Role
    name: str
    x: ArrayLike = ()
    y: ArrayLike = ()
    z: ArrayLike | None = None
    series: int = Series.TARGET
    legend: bool = True
    frames: ArrayLike | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """A label at the edge of a chart that points beyond it."""

    x: float
    y: float
    towards: Literal["left", "right", "up", "down"]
    text: str


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes
    ----------
    key : str
        Name within the panel.
    title : str
    x, y : ChartAxis
    traces : tuple of Trace
    z : ChartAxis, optional
        Quantity that the colours of a heat map show.
    shades : tuple of (start, end, label, series)
        Intervals of x with a coloured background, such as the stages of a curriculum.
    picks : pair of str, optional
        Settings that a click on the chart sets to its x and y.
    drags : str, optional
        Setting (a list of numbers) that changes when the chart's points are dragged.
    main : bool
        Whether it is the panel's main chart, which stays visible.
    side : bool
        Whether it is the second picture, beside the main chart.
    """

    key: str
    title: str
    x: ChartAxis
    y: ChartAxis
    traces: tuple[Trace, ...]
    z: ChartAxis | None = None
    shades: tuple[tuple[float, float, str, int], ...] = ()
    picks: tuple[str, str] | None = None
    drags: str | None = None
    main: bool = False
    side: bool = False


@dataclass(frozen=True)
class Overlay:
    """Traces, arrows and a caption that one part of a panel adds to another part's chart."""

    traces: tuple[Trace, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    caption: str = ""
