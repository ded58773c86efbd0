"""Figures of the pages: every text is inside its figure, and no text lies on another or on the legend's entries."""

from __future__ import annotations

import json

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
    """As they are stored, within the axes, and with both numbers of each problem whose numbers differ."""
    _, axes = drawings.empty(pictures.forecast_and_trained)
    pictures.forecast_and_trained(axes)
    stored = json.loads((pictures.ROOT / "docs/results/forecasts.json").read_text(encoding="utf-8"))["rows"]
    rows = sorted(
        (one["trained"], 100 * (one["forecast"] / one["trained"] - 1)) for one in stored if one["trained"] >= 1
    )
    drawn = sorted(map(tuple, np.vstack([one.get_offsets() for ax in axes for one in ax.collections])))
    assert len(rows) > 400
    np.testing.assert_allclose(drawn, rows)
    assert all(low < error < high for ax in axes for low, high in [ax.get_ylim()] for _, error in rows)
    named = [text for ax in axes for text in ax.texts if text.get_text().endswith("trained")]
    assert len(named) == sum(error != 0 for _, error in rows)


def test_texts_that_overlap_or_leave_the_figure_are_found():
    figure = Figure(figsize=(3, 2))
    figure.text(0.5, 0.5, "one")
    figure.text(0.52, 0.5, "two")
    figure.text(0.98, 0.1, "beyond")
    assert sorted(faults(figure)) == ["'one' on 'two'", "beyond"]
