"""Rotated tasks on white and non-white inputs: times of alignment and of growth (our experiment)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import Task, TwoLayer, figures, forecast, tasks
from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, THEORY
from learncast.papers.paper import Numbers, short
from learncast.results import STEPS, described
from learncast.theory.representation.alignment import AlignmentTime, time_to_align

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Angles by which the second task is rotated, and ratios of the largest to the smallest input variance.
ANGLES, SPREADS = np.linspace(0.0, 1.5, 6), (1.0, 3.0, 10.0)
#: Strengths of the first task, ratio of the second task's strengths to them, and accuracy of both.
STRENGTHS, GROWN, ACCURACY = (1.5, 1.0, 0.7), 2.0, 0.95
RATE, DRAWS = 1e-3, 2


def rotation(size: int, angle: float) -> FloatArray:
    """Return a rotation by `angle` in every plane of two neighbouring axes; an odd last axis stays."""
    matrix = np.eye(size)
    for k in range(0, size - 1, 2):
        matrix[k : k + 2, k : k + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return matrix


def switched(angle: float, spread: float, draw: int) -> tuple[Task, TwoLayer, TwoLayer]:
    """Return the second task, the network that has learned the first, and this network with rotated inputs."""
    rng, outputs, inputs = np.random.default_rng([7, draw]), len(STRENGTHS), len(STRENGTHS) + 1
    V, U = (np.linalg.qr(rng.standard_normal((k, k)))[0] for k in (inputs, outputs))
    C = V @ np.diag(np.geomspace(1.0, spread, inputs) / spread**0.5) @ V.T
    best = U @ np.diag(STRENGTHS) @ np.eye(outputs, inputs)
    start = TwoLayer.balanced(inputs, 6, outputs, scale=0.1, rng=rng)
    solution = forecast(tasks.static(best @ C, C, name="first"), start, learning_rate=RATE).solution
    network = solution.network_at(solution.time_to(0.999).flow_steps)
    assert isinstance(network, TwoLayer)
    turn = rotation(inputs, angle)
    second = tasks.static(GROWN * best @ turn.T @ C, C, name="turned")
    return second, network, TwoLayer(network.first @ turn.T, network.second)


def times() -> xr.Dataset:
    """Return the steps until aligned and until learned, and those of a network that is aligned from the start."""
    shape = len(SPREADS), len(ANGLES), DRAWS
    values = np.empty((4, *shape))
    for place in np.ndindex(*shape):
        task, network, turned = switched(float(ANGLES[place[1]]), SPREADS[place[0]], place[2])
        both: list[AlignmentTime] = [
            time_to_align(forecast(task, one, learning_rate=RATE).solution, ACCURACY) for one in (network, turned)
        ]
        error = max(one.error for one in both)
        values[:, *place] = both[0].aligned, both[0].learned, both[1].learned, error
    texts = ("time to align", "time to learn", "time to learn without rotation", "error of these times")
    names = ("aligned", "learned", "growing_alone", "error")
    over = ("spread", "angle", "draw")
    return xr.Dataset(
        {name: (over, values[k], described(texts[k], STEPS)) for k, name in enumerate(names)},
        coords={
            "spread": ("spread", list(SPREADS), described("largest over smallest variance of the inputs", "1")),
            "angle": ("angle", ANGLES, described("angle by which the task is rotated", "rad")),
            "draw": np.arange(DRAWS),
        },
    )


def draw(dataset: xr.Dataset) -> figures.Figure:
    """Draw the times against the angle, one panel for each spread of the inputs."""

    def panel(k: int, spread: float, ax: Axes) -> None:
        one = dataset.sel(spread=spread)
        looks: dict[str, dict[str, Any]] = {
            "learned": {"color": COLOURS[0], "label": "learned"},
            "aligned": {"color": COLOURS[1], "linestyle": "--", "label": "aligned"},
            "growing_alone": {"color": COLOURS[2], "linestyle": "-.", "label": "learned if aligned from the start"},
        }
        for name, look in looks.items():
            ax.plot(one["angle"], one[name].mean("draw"), **look)
            ax.fill_between(one["angle"], one[name].min("draw"), one[name].max("draw"), alpha=0.15, color=look["color"])
        ax.plot(one["angle"], (one["aligned"] + one["growing_alone"]).mean("draw"), **THEORY, label="sum of both")
        ax.set_ylim(bottom=0)
        title = "white inputs" if spread == 1 else f"variances 1 to {spread:g}"
        figures.label(ax, x="angle between the tasks (rad)", y="" if k else "gradient steps", title=title)

    draws = (partial(panel, k, spread) for k, spread in enumerate(dataset["spread"].values))
    figure = figures.sheet(*draws, width=2.36, height=2.4)
    with figures.style():
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the learning time relative to the sum of both times and to the longer of them, for rotated tasks."""
    turned = dataset.isel(angle=slice(1, None))
    both = turned["aligned"] + turned["growing_alone"]
    longer = np.maximum(turned["aligned"], turned["growing_alone"])
    yield "largest error of a time, steps", short(dataset["error"].max())
    for spread in dataset["spread"].values:
        for name, other in (("the sum of both", both), ("the longer of both", longer)):
            ratio = (turned["learned"] / other).sel(spread=spread)
            key = f"variances 1 to {spread:g}: learning over {name}, least and most"
            yield key, [short(ratio.min()), short(ratio.max())]
