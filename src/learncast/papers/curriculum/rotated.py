"""Rotated tasks on inputs that are white or not: how the times of aligning and of growing add up (ours)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures, tasks
from learncast._core.validation import FloatArray
from learncast.figures.page import COLOURS, THEORY
from learncast.networks.two_layer import TwoLayer
from learncast.papers.paper import short
from learncast.planning.solving import solve
from learncast.results import STEPS, described
from learncast.tasks.task import Task
from learncast.theory.representation.alignment import AlignmentTime, time_to_align

#: Angles by which the second task is turned, and largest over smallest variance of the inputs.
ANGLES, SPREADS = np.linspace(0.0, 1.5, 6), (1.0, 3.0, 10.0)
#: Strengths of the first task, how many times as strong the second is, and how far both are learned.
STRENGTHS, GROWN, ACCURACY = (1.5, 1.0, 0.7), 2.0, 0.95
RATE, DRAWS = 1e-3, 2


def turning(size: int, angle: float) -> FloatArray:
    """Turn every second direction towards the next, and leave a last one alone."""
    turn = np.eye(size)
    for k in range(0, size - 1, 2):
        turn[k : k + 2, k : k + 2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn


def switched(angle: float, spread: float, draw: int) -> tuple[Task, TwoLayer, TwoLayer]:
    """The second task, the network that has learned the first, and the same network with its inputs turned along."""
    rng, outputs, inputs = np.random.default_rng([7, draw]), len(STRENGTHS), len(STRENGTHS) + 1
    V, U = (np.linalg.qr(rng.standard_normal((k, k)))[0] for k in (inputs, outputs))
    C = V @ np.diag(np.geomspace(1.0, spread, inputs) / spread**0.5) @ V.T
    best = U @ np.diag(STRENGTHS) @ np.eye(outputs, inputs)
    start = TwoLayer.balanced(inputs, 6, outputs, scale=0.1, rng=rng)
    course = solve(tasks.static(best @ C, C, name="first"), start, learning_rate=RATE)
    network = course.network_at(course.time_to(0.999).flow_steps)
    assert isinstance(network, TwoLayer)
    turn = turning(inputs, angle)
    second = tasks.static(GROWN * best @ turn.T @ C, C, name="turned")
    return second, network, TwoLayer(network.first @ turn.T, network.second)


def times() -> xr.Dataset:
    """Steps until aligned and until learned, and those of a network that need not turn, over cases that are drawn."""
    shape = len(SPREADS), len(ANGLES), DRAWS
    found = np.empty((4, *shape))
    for place in np.ndindex(*shape):
        task, network, turned = switched(float(ANGLES[place[1]]), SPREADS[place[0]], place[2])
        both: list[AlignmentTime] = [
            time_to_align(solve(task, one, learning_rate=RATE), ACCURACY) for one in (network, turned)
        ]
        error = max(one.error for one in both)
        found[:, *place] = both[0].aligned, both[0].learned, both[1].learned, error
    texts = ("time to align", "time to learn", "time to learn without turning", "error of these times")
    names = ("aligned", "learned", "growing_alone", "error")
    over = ("spread", "angle", "draw")
    return xr.Dataset(
        {name: (over, found[k], described(texts[k], STEPS)) for k, name in enumerate(names)},
        coords={
            "spread": ("spread", list(SPREADS), described("largest over smallest variance of the inputs", "1")),
            "angle": ("angle", ANGLES, described("angle by which the task is turned", "rad")),
            "draw": np.arange(DRAWS),
        },
    )


def draw(dataset: xr.Dataset) -> figures.Figure:
    """Times against the angle, a panel for each spread of the inputs."""

    def panel(k: int, spread: float, ax: Any) -> None:
        one = dataset.sel(spread=spread)
        looks: dict[str, dict[str, Any]] = {
            "learned": {"color": COLOURS[0], "label": "learned"},
            "aligned": {"color": COLOURS[1], "linestyle": "--", "label": "aligned"},
            "growing_alone": {"color": COLOURS[2], "linestyle": "-.", "label": "learned if it need not turn"},
        }
        for name, look in looks.items():
            ax.plot(one["angle"], one[name].mean("draw"), **look)
            ax.fill_between(one["angle"], one[name].min("draw"), one[name].max("draw"), alpha=0.15, color=look["color"])
        ax.plot(one["angle"], (one["aligned"] + one["growing_alone"]).mean("draw"), **THEORY, label="sum of both")
        ax.set_ylim(bottom=0)
        words = "white inputs" if spread == 1 else f"variances 1 to {spread:g}"
        title = words if k else f"R  {words}"
        figures.label(ax, x="angle between the tasks (rad)", y="" if k else "gradient steps", title=title)

    draws = (partial(panel, k, spread) for k, spread in enumerate(dataset["spread"].values))
    figure = figures.sheet(*draws, width=2.36, height=2.4)
    with figures.style():
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Learning against the sum of both times and against the longer of them, where there is something to turn."""
    turned = dataset.isel(angle=slice(1, None))
    both = turned["aligned"] + turned["growing_alone"]
    longer = np.maximum(turned["aligned"], turned["growing_alone"])
    found: dict[str, Any] = {"largest error of a time, steps": short(dataset["error"].max())}
    for spread in dataset["spread"].values:
        words = f"variances 1 to {spread:g}"
        for name, other in (("the sum of both", both), ("the longer of both", longer)):
            ratio = (turned["learned"] / other).sel(spread=spread)
            found[f"{words}: learning over {name}, least and most"] = [short(ratio.min()), short(ratio.max())]
    return found
