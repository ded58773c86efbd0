"""Figures of the pages: every text is inside its figure, and no text lies on another or on the legend's entries."""

from __future__ import annotations

import drawings
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from text_faults import faults

pytest.importorskip("torch")

import pictures

from learncast.figures import style

NAMES = [name for name, one in vars(pictures).items() if hasattr(one, "size") and callable(one)]
#: Pictures that are drawn within a second.
QUICK = ("recordings_trials", "dynamics_start", "forecast_and_trained", "speed_chart")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NAMES]
)
def test_no_text_is_clipped_or_covered(name):
    draw = getattr(pictures, name)
    with style(), mpl.rc_context({"font.size": 10}):
        figure, axes = drawings.empty(draw)
        draw(axes)
        assert faults(figure) == []
        assert all(ax.get_xlabel() for ax in figure.axes[-draw.grid["ncols"] :])


def test_the_errors_of_all_forecasts_are_drawn():
    _, (above, strip) = drawings.empty(pictures.forecast_and_trained)
    pictures.forecast_and_trained((above, strip))
    pairs = np.vstack([one.get_offsets() for one in above.collections])
    errors = np.vstack([one.get_offsets() for one in strip.collections])
    assert len(pairs) > 400
    np.testing.assert_allclose(errors[:, 1], 100 * (pairs[:, 1] / pairs[:, 0] - 1))
    low, high = strip.get_ylim()
    assert ((low < errors[:, 1]) & (errors[:, 1] < high)).all()


def test_texts_that_overlap_or_leave_the_figure_are_found():
    figure = Figure(figsize=(3, 2))
    figure.text(0.5, 0.5, "one")
    figure.text(0.52, 0.5, "two")
    figure.text(0.98, 0.1, "beyond")
    assert sorted(faults(figure)) == ["'one' on 'two'", "beyond"]
