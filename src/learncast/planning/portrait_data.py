"""The labelled numbers of a phase portrait, with their figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import xarray as xr

from learncast.display import Displayable, HtmlRepr, Plot, facts, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Portrait(xr.Dataset):  # type: ignore[no-untyped-call]
    """Steps of two-task curricula over a task parameter and the first task's stop: a Dataset that draws itself.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> grid = {"values": [0.5, 1.5], "accuracies": [0.3, 0.6]}
    >>> portrait = lc.phase(task, network, vary="target_strength", **grid, learning_rate=1e-3)
    >>> portrait.plot().get_xlabel()
    'accuracy at which the first task stops'
    """

    __slots__ = ()

    def plot(self, ax: Axes | None = None, **options: object) -> Axes:  # type: ignore[override]
        """Draw the steps saved; see `learncast.figures.portrait`."""
        return self._plot().on(ax, **options)

    def _plot(self) -> Plot:
        return Plot.of("portrait", self, title="Steps saved by pretraining")

    def _html_repr(self) -> HtmlRepr:
        vary, saved = self.attrs["vary"], self["speedup_steps"].fillna(-math.inf)
        best = saved[saved.argmax(dim=list(saved.dims))]
        rows = [
            ("direct training", f"{format_count(float(self['direct_descent_steps']))} steps"),
            (f"best {vary.replace('_', ' ')}", f"{float(best[vary]):.4g}"),
            ("stopped at accuracy", f"{float(best['accuracy']):.4g}"),
            ("saves", f"{format_count(float(best))} flow steps"),
        ]
        return HtmlRepr("Portrait", "Where pretraining pays, and where it costs.", [facts(rows)])

    _repr_html_ = Displayable._repr_html_
