"""Figures of quantities over the steps of a trial or over a lag."""

from __future__ import annotations

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from learncast.figures.look import COLOURS
from learncast.figures.page import axis_label, key, label, with_key


def step_profile(values: xr.DataArray, ax: Axes, *, title: str = "") -> Axes:
    """Draw a quantity over the steps of a trial.

    Parameters
    ----------
    values : DataArray over step
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> weights = xr.DataArray([0.0, 0.5, 1.0], dims="step", coords={"step": [1, 2, 3]}, attrs={"long_name": "weight"})
    >>> figure, ax = plt.subplots()
    >>> lc.figures.step_profile(weights, ax).get_ylabel()
    'weight'
    >>> plt.close(figure)
    """
    ax.axhline(0.0, color="grey", linewidth=0.7)
    ax.plot(values["step"], values, color=COLOURS[0], marker="o", markersize=2.5)
    ax.margins(y=0.15)
    return label(ax, x="step of the trial", y=axis_label(values), title=title)


def lag_covariances(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the input covariance over the lag, one line per correlation.

    Parameters
    ----------
    dataset : Dataset
        ``covariance`` over (correlation, lag).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dataset = xr.Dataset(
    ...     {"covariance": (("correlation", "lag"), [[1.0, 0.0, 0.0], [1.3, 0.6, 0.3]])},
    ...     coords={"correlation": [0.0, 0.5], "lag": [0, 1, 2]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.lag_covariances(dataset, ax).get_xlabel()
    'lag (steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['$K$ = 0', '$K$ = 0.5']
    >>> plt.close(figure)
    """
    _one_line_each(dataset["covariance"], ax, "$K$ = {:g}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return with_key(ax, "lag (steps)", "covariance with the last input (input$^2$)", title)


def integration_profiles(dataset: xr.Dataset, ax: Axes, *, title: str = "") -> Axes:
    """Draw the weight of each input step in the target, one line per timescale.

    Parameters
    ----------
    dataset : Dataset
        ``weight`` over (timescale, step).
    ax : Axes
    title : str

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import xarray as xr
    >>> import learncast as lc
    >>> dataset = xr.Dataset(
    ...     {"weight": (("timescale", "step"), [[0.37, 0.61, 1.0], [0.67, 0.82, 1.0]])},
    ...     coords={"timescale": [2.0, 5.0], "step": [1, 2, 3]},
    ... )
    >>> figure, ax = plt.subplots()
    >>> lc.figures.integration_profiles(dataset, ax).get_xlabel()
    'step of the trial (steps)'
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['2 steps', '5 steps']
    >>> plt.close(figure)
    """
    _one_line_each(dataset["weight"], ax, "{:g} steps")
    key(ax, title="timescale")
    return label(ax, x="step of the trial (steps)", y="weight in the target (target / input)", title=title)


def _one_line_each(lines: xr.DataArray, ax: Axes, name: str) -> None:
    each, along = lines.dims
    for k, value in enumerate(lines[each].values):
        ax.plot(lines[along], lines[k], color=COLOURS[k % len(COLOURS)], label=name.format(value))
