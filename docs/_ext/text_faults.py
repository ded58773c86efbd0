"""Texts of a figure that are clipped or lie on each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def text_boxes(figure: Figure) -> list[tuple[str, Any]]:
    """Words and place of each text that is shown, in pixels."""
    FigureCanvasAgg(figure).draw()
    beyond = {id(label) for ax in figure.axes for axis in (ax.xaxis, ax.yaxis) for label in _not_drawn(axis)}
    texts = [one for one in figure.findobj(Text) if one.get_visible() and one.get_text().strip()]
    texts = [one for one in texts if id(one) not in beyond]
    return [(one.get_text(), one.get_window_extent().padded(-0.5)) for one in texts]


def faults(figure: Figure) -> list[str]:
    """Texts outside the figure and pairs of texts that overlap."""
    boxes, inside = text_boxes(figure), figure.bbox.padded(1)
    clipped = [words for words, box in boxes if not _within(box, inside)]
    return clipped + [f"{a!r} on {b!r}" for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]


def _not_drawn(axis: Any) -> list[Text]:
    """Labels of ticks beyond the ends of an axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    ticks = [tick for tick in ticks if not low <= tick.get_loc() <= high]
    return [label for tick in ticks for label in (tick.label1, tick.label2)]


def _within(box: Any, outer: Any) -> bool:
    return outer.x0 <= box.x0 and box.x1 <= outer.x1 and outer.y0 <= box.y0 and box.y1 <= outer.y1
