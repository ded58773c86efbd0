"""Faults of a figure: clipped or overlapping texts, legends on data, too long axis titles, unnamed marks, missing numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

#: Pixels between two places on a curve or in a bar that are tested, and from a marker to the text that names it.
SPACING, BESIDE = 2.0, 12.0
#: Markers at the ends of error bars.
CAPS = ("_", "|")


def text_boxes(figure: Figure) -> list[tuple[str, Any]]:
    """Words and place of each text that is shown, in pixels."""
    FigureCanvasAgg(figure).draw()
    every = [one for ax in figure.axes for one in (ax, *ax.child_axes)]
    beyond = {id(label) for ax in every for axis in (ax.xaxis, ax.yaxis) for label in _not_drawn(ax, axis)}
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    texts = [one for one in texts if id(one) not in beyond]
    # The box around a slanted text is larger than the text.
    return [(one.get_text(), one.get_window_extent().padded(-0.5)) for one in texts if one.get_rotation() % 90 == 0]


def faults(figure: Figure) -> list[str]:
    """Texts outside the figure or on each other, legends on data or titles, too long titles, unnamed marks and axes."""
    boxes, inside = text_boxes(figure), figure.bbox.padded(1)
    clipped = [words for words, box in boxes if not _within(box, inside)]
    overlaps = [f"{a!r} on {b!r}" for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]
    shown = [one for legend in figure.findobj(Legend) for one in (*legend.findobj(Line2D), *legend.findobj(Collection))]
    unnamed = [fault for ax in figure.axes for fault in _unnamed(ax, {look for one in shown for look in _look(one)})]
    unnamed += _without_numbers(figure)
    return clipped + overlaps + unnamed + [fault for ax in figure.axes for fault in _axes_faults(ax, boxes)]


def _without_numbers(figure: Figure) -> Iterator[str]:
    """Axes with ticks but without numbers, unless a panel in the same row or column shows those of the same axis."""
    panels = [ax for ax in figure.axes if ax.axison and ax.get_visible()]
    for name, along in (("x", 0), ("y", 1)):
        numbered = {ax: _numbers(ax, name) for ax in panels}
        for ax, (ticks, labels) in numbered.items():
            place = ax.get_position().get_points()[:, along]
            others = (one for one in panels if numbered[one][1] and _limits(one, name) == _limits(ax, name))
            if (
                ticks
                and not labels
                and not any(np.allclose(one.get_position().get_points()[:, along], place, atol=0.01) for one in others)
            ):
                yield f"the {name} axis of panel {panels.index(ax) + 1} has ticks without numbers"


def _numbers(ax: Axes, name: str) -> tuple[bool, bool]:
    """Whether an axis has ticks in view, and whether one of them has a label."""
    axis = getattr(ax, f"{name}axis")
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high] if axis.get_visible() else []
    drawn = [tick for tick in ticks if tick.tick1line.get_visible() or tick.tick2line.get_visible()]
    labels = [label for tick in ticks for label in (tick.label1, tick.label2)]
    return bool(drawn), any(label.get_visible() and label.get_text().strip() for label in labels)


def _limits(ax: Axes, name: str) -> tuple[float, ...]:
    return tuple(getattr(ax, f"{name}axis").get_view_interval())


def _look(mark: Any) -> tuple[str, ...]:
    """Shape and colour of a marker, or the colour of a line; nothing if a colour bar explains it."""
    if isinstance(mark, Line2D):
        face, shape = mark.get_markerfacecolor(), str(mark.get_marker())
        if shape in ("None", "none", "", " ", *CAPS):
            return (to_hex(mark.get_color()),)
        return f"marker {shape}", to_hex(mark.get_markeredgecolor() if str(face) == "none" else face)
    if isinstance(mark, PathCollection) and mark.get_array() is None and len(mark.get_facecolor()):
        return "points", to_hex(mark.get_facecolor()[0])
    return ()


def _unnamed(ax: Axes, named: set[str]) -> Iterator[str]:
    """Markers that neither a legend nor a text beside them names.

    The only series of axes is named by their titles, and a series in a column of its own by the label of the column.
    """
    every = [one for one in (*ax.get_lines(), *ax.collections) if one.get_visible()]
    marks = {one: _look(one) for one in every if len(_look(one)) == 2}
    curves = [one for one in ax.get_lines() if one not in marks and len(one.get_xydata()) > 2]
    others = [*curves, *ax.images, *ax.patches, *(one for one in ax.collections if one not in marks)]
    columns = any(
        re.search("[A-Za-z]{2}", label.get_text()) for label in (*ax.get_xticklabels(), *ax.get_yticklabels())
    )
    if not ax.axison or columns or len(set(marks.values())) + bool(others) < 2:
        return
    named = named | {to_hex(text.get_color()) for text in ax.texts}  # a text in the colour of what it names
    texts = [text for text in ax.texts if text.get_text().strip()]
    beside = [text.get_window_extent().padded(BESIDE) for text in texts]
    pointed = [ax.transData.transform(text.xy) for text in texts if getattr(text, "xycoords", "") == "data"]
    beside += [Bbox.from_extents(*place, *place).padded(1) for place in pointed]  # what an annotation points at
    for one, look in marks.items():
        line = isinstance(one, Line2D)
        places = one.get_xydata() if line else np.ma.filled(one.get_offsets(), np.nan)
        points = (one.get_transform() if line else one.get_offset_transform()).transform(places)
        points = points[_inside(points, ax.bbox.padded(1))]
        if len(points) and not named.issuperset(look) and not any(_inside(points, box).any() for box in beside):
            yield f"no legend names {' in '.join(look)}"


def _axes_faults(ax: Axes, boxes: list[tuple[str, Any]]) -> Iterator[str]:
    box = ax.get_window_extent()
    for words, title, room in (
        (ax.get_ylabel(), ax.yaxis.label, box.height),
        (ax.get_xlabel(), ax.xaxis.label, box.width),
    ):
        place = title.get_window_extent()
        if words and (place.height if room == box.height else place.width) > room + 1:
            yield f"{words!r} is longer than its axis"
    legend = ax.get_legend()
    if legend is None:
        return
    frame = legend.get_window_extent().padded(-1)
    own = {text.get_text() for text in legend.findobj(Text)}
    yield from (f"legend on {words!r}" for words, other in boxes if words not in own and frame.overlaps(other))
    for name, points in _marks(ax):
        shown = points[_inside(points, box)]
        if _inside(shown, frame).any():
            yield f"legend on the data of {name!r}"


def _inside(points: Any, box: Any) -> Any:
    """Whether each point lies in a box."""
    x, y = points.T
    return (x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)


def _marks(ax: Axes) -> Iterator[tuple[str, Any]]:
    """Names and places, in pixels, of curves, guide lines, points, bars and spans; only a background does not count."""
    for line in ax.get_lines():
        points = line.get_transform().transform(line.get_xydata())
        points = points[np.isfinite(points).all(axis=1)]
        if len(points) > 1:
            yield str(line.get_label()), _dense(points) if line.get_linestyle() != "None" else points
    for bar in ax.patches:
        box = bar.get_window_extent()
        background = box.width > 0.98 * ax.bbox.width and box.height > 0.98 * ax.bbox.height
        if box.width > 0 and box.height > 0 and not background:
            box = Bbox.intersection(box, ax.bbox) or Bbox.null()
            x, y = np.meshgrid(np.arange(box.x0, box.x1, SPACING), np.arange(box.y0, box.y1, SPACING))
            yield "a bar", np.column_stack([x.ravel(), y.ravel()])
    for group in ax.collections:
        if len(offsets := np.ma.filled(group.get_offsets(), np.nan)) > 1:
            yield str(group.get_label()), group.get_offset_transform().transform(offsets)


def _dense(points: Any) -> Any:
    """Places along a curve, at most `SPACING` apart."""
    lengths = np.hypot(*np.diff(points, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    places = np.linspace(0.0, along[-1], 2 + int(along[-1] / SPACING))
    return np.column_stack([np.interp(places, along, points[:, k]) for k in (0, 1)])


def _not_drawn(ax: Axes, axis: Any) -> list[Text]:
    """Labels of ticks beyond the ends of an axis, of hidden axes, and of axes without a frame."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    ticks = [tick for tick in ticks if not (ax.axison and axis.get_visible() and low <= tick.get_loc() <= high)]
    return [label for tick in ticks for label in (tick.label1, tick.label2)]


def _within(box: Any, outer: Any) -> bool:
    return outer.x0 <= box.x0 and box.x1 <= outer.x1 and outer.y0 <= box.y0 and box.y1 <= outer.y1
