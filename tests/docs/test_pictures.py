"""Figures of the pages: every text is inside its figure, and no text lies on another or on the legend's entries."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import drawings
import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

pytest.importorskip("torch")

import pictures

from learncast.figures import style

NAMES = [name for name, one in vars(pictures).items() if hasattr(one, "size") and callable(one)]
#: Pictures that are drawn within a second.
QUICK = ("recordings_trials", "dynamics_start", "forecast_and_trained", "speed_chart")


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
    ticks = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
    return [label for tick in ticks for label in (tick.label1, tick.label2)]


def _within(box: Any, outer: Any) -> bool:
    return outer.x0 <= box.x0 and box.x1 <= outer.x1 and outer.y0 <= box.y0 and box.y1 <= outer.y1


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NAMES]
)
def test_no_text_is_clipped_or_covered(name):
    draw = getattr(pictures, name)
    size, columns = drawings.sizes(draw)
    with style(), mpl.rc_context({"font.size": 10}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots(1, columns))
        assert faults(figure) == []
        assert all(ax.get_xlabel() for ax in figure.axes)


def test_texts_that_overlap_or_leave_the_figure_are_found():
    figure = Figure(figsize=(3, 2))
    figure.text(0.5, 0.5, "one")
    figure.text(0.52, 0.5, "two")
    figure.text(0.98, 0.1, "beyond")
    assert sorted(faults(figure)) == ["'one' on 'two'", "beyond"]
