"""Gradient descent of two-layer linear networks, their exact flow, and the gap between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import TwoLayer, figures, forecast, tasks
from learncast._core.validation import FloatArray
from learncast.papers.paper import Numbers, short
from learncast.results import STEPS, described
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution, checked_two_layer
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, joined

#: Labels of the ``source`` dimension of quantities that are both trained and predicted.
SOURCES = ("descent", "theory")
#: Quantities of a network that are compared, by their names in `TwoLayerSolution.at`.
QUANTITIES: dict[str, Callable[[TwoLayer], FloatArray]] = {
    "network_function": lambda network: network.function,
    "input_gram": lambda network: network.first.T @ network.first,
    "output_gram": lambda network: network.second @ network.second.T,
}
#: Learning rate of figures that do not vary it.
RATE = 0.002
#: Inputs (trials, inputs) and targets (trials, outputs).
Pairs = tuple[FloatArray, FloatArray]


def solved(task: tasks.Task, network: TwoLayer, learning_rate: float) -> TwoLayerSolution:
    """Return the exact flow."""
    return checked_two_layer(forecast(task, network, learning_rate=learning_rate).solution)


def descended(task: tasks.Task, network: TwoLayer, learning_rate: float, steps: Any) -> list[TwoLayer]:
    """Return the network after each of these steps, in increasing order, of descent on the task's statistics."""
    p, start = PooledProblem.of(task, network), joined(network.layer_weights)[None]
    descent = PooledDescent(p.power, p.cross)
    path = descent.advance(start, [int(step) for step in steps], learning_rate)
    return [TwoLayer(*descent.layers(states[0])) for states in path]


def training(
    in_turn: Sequence[tasks.Task],
    network: TwoLayer,
    *,
    learning_rate: float,
    steps: int,
    every: int = 1,
    settled: bool = False,
    kick: float = 0.0,
    rng: np.random.Generator | None = None,
    starts: list[TwoLayer] | None = None,
    names: Sequence[str] = ("network_function",),
) -> xr.Dataset:
    """Learn tasks with white inputs one after another, by descent and by the exact flow.

    Parameters
    ----------
    in_turn : sequence of Task
    network : TwoLayer
        Balanced.
    learning_rate : float
    steps, every : int
        Steps of each task, and steps between records.
    settled : bool
        Let the flow switch to the next task at infinite time, when a task is completely learned.
    kick : float
        Standard deviation of the noise on every weight of the descent at each switch.
    rng : numpy Generator
        Generator of the noise.
    starts : list, optional
        The network of the descent at the start of each task is appended to it.
    names : sequence of str
        Keys of `QUANTITIES`.

    Returns
    -------
    xarray.Dataset
        The quantities and the ``loss`` of every task over (source, time, ...); the time of a switch occurs twice.
    """
    expected = actual = network
    stages, problems, times = [], [], np.arange(0, steps + 1, every)
    for k, task in enumerate(in_turn):
        if k and kick:
            assert rng is not None, "a kick needs its generator"
            actual = TwoLayer(*(w + kick * rng.standard_normal(w.shape) for w in (actual.first, actual.second)))
        if starts is not None:
            starts.append(actual)
        path = descended(task, actual, learning_rate, times)
        exact = solved(task, expected, learning_rate)
        theory = exact.at(times).dataset[list(names)]
        trained = theory.copy(data={name: np.array([QUANTITIES[name](network) for network in path]) for name in names})
        stage = xr.concat([trained, theory], dim="source")
        stages.append(stage.assign_coords(time=stage["time"] + k * steps, stage=("time", [k] * len(times))))
        problems.append(exact.problem)
        actual, expected = path[-1], cast(TwoLayer, exact.network_at(np.inf if settled else float(steps)))
    joined = xr.concat(stages, dim="time").assign_coords(source=list(SOURCES), task=[task.name for task in in_turn])
    joined["time"].attrs = described("training time", STEPS)
    losses = np.stack([problem.loss(joined["network_function"].values) for problem in problems], axis=-1)
    joined["loss"] = (("source", "time", "task"), losses, described("loss", "target^2"))
    return joined.drop_attrs(deep=False)


def random_pairs(inputs: int, outputs: int, rng: np.random.Generator) -> Pairs:
    """Return 40 exactly white inputs and targets of a linear teacher with singular values 0.5 to 1.5 and noise 0.2."""
    rank = min(inputs, outputs)
    x = np.sqrt(40) * np.linalg.qr(rng.standard_normal((40, inputs)))[0]
    right, left = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (inputs, outputs))
    return x, x @ (right * rng.uniform(0.5, 1.5, rank)) @ left.T + 0.2 * rng.standard_normal((40, outputs))


def random_task(inputs: int, outputs: int, rng: np.random.Generator, *, name: str = "random") -> tasks.Task:
    """Return the task of `random_pairs`."""
    return tasks.from_pairs(*random_pairs(inputs, outputs, rng), name=name)


def learns_all(
    in_turn: Sequence[tasks.Task], network: TwoLayer, *, learning_rate: float, steps: float = np.inf
) -> bool:
    """Return whether the exact flow learns every task in turn to within 1e-8 of its final loss in time.

    From half of all balanced square starts it does not, but ends on the saddle without the weakest mode. Modes beyond
    the size of the hidden layer do not count.
    """
    for task in in_turn:
        solution = solved(task, network, learning_rate)
        if solution.orientation_margin == 0 or solution.time_to_loss(solution.flow.final_loss + 1e-8) > steps:
            return False
        network = cast(TwoLayer, solution.network_at(np.inf))
    return True


def regular_start(
    in_turn: Sequence[tasks.Task], hidden: int, rng: np.random.Generator, *, scale: float, learning_rate: float
) -> TwoLayer:
    """Return the first random balanced start from which the flow learns all tasks in turn."""
    while True:
        network = TwoLayer.balanced(in_turn[0].inputs, hidden, in_turn[0].outputs, scale=scale, rng=rng)
        if learns_all(in_turn, network, learning_rate=learning_rate):
            return network


def over_steps(values: object) -> dict[str, object]:
    """Return the coordinates of quantities that are trained and predicted over time."""
    return {"source": list(SOURCES), "time": ("time", np.asarray(values, float), described("training time", STEPS))}


def curves(dataset: xr.Dataset, name: str, **options: object) -> Callable[..., object]:
    """Return a function that draws a quantity over training, with a line at each switch of tasks."""
    stage = dataset["stage"].values if "stage" in dataset.coords else np.zeros(1)
    switches = dataset["time"].values[1:][np.diff(stage) > 0].tolist() if len(stage) > 1 else []
    return partial(figures.learning_curves, dataset[name], switches=switches, **options)


def draw_functions(title: str, dataset: xr.Dataset, *, name: str = "network_function") -> figures.Figure:
    """Draw the network function over training, or the loss of every network."""
    names = {"names": [str(one) for one in dataset["network"].values]} if name == "loss" else {}
    return figures.sheet(curves(dataset, name, title=title, **names), width=3.4, height=2.4 if names else 2.2)


def gaps(names: Sequence[str], dataset: xr.Dataset) -> Numbers:
    """Yield the largest gap between theory and training relative to the size of each quantity."""
    for name in names:
        trained, theory = (dataset[name].sel(source=source).values for source in SOURCES)
        share = np.nanmax(np.abs(trained - theory)) / np.nanmax(np.abs(theory))
        yield f"largest gap of theory and training, {name.replace('_', ' ')}, share", short(share)


def stage_of(dataset: xr.Dataset, stage: int) -> xr.Dataset:
    """Return the part of a dataset in one stage."""
    return dataset.isel(time=dataset["stage"].values == stage)
