"""Two-layer linear networks trained by gradient descent beside their exact flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast import tasks
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.two_layer import checked_two_layer
from learncast.networks.two_layer import TwoLayer
from learncast.planning.solving import solve
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray

#: The order along the ``source`` dimension of everything that is both trained and predicted.
SOURCES = ("descent", "theory")

#: What is compared, as `TwoLayerSolution.at` names it.
QUANTITIES = {
    "network_function": ("network function W2 W1", ("row", "column")),
    "input_gram": ("W1^T W1", ("column", "column_other")),
    "output_gram": ("W2 W2^T", ("row", "row_other")),
}

#: Learning rate, where a figure does not vary it.
RATE = 0.002
#: Inputs (trials, inputs) and targets (trials, outputs).
Pairs = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Descent:
    """Weights at the recorded steps, of one network or of a stack of them.

    Attributes
    ----------
    steps : (times,)
    first : (times, ..., hidden, inputs)
    second : (times, ..., outputs, hidden)
    """

    steps: NDArray[np.intp]
    first: FloatArray
    second: FloatArray

    @property
    def functions(self) -> FloatArray:
        """W2 W1 at every recorded step."""
        return np.asarray(self.second @ self.first)

    @property
    def grams(self) -> FloatArray:
        """Q Q^T with Q = [W1^T; W2] at every recorded step."""
        factor = np.concatenate([np.swapaxes(self.first, -1, -2), self.second], axis=-2)
        return np.asarray(factor @ np.swapaxes(factor, -1, -2))

    @property
    def imbalance(self) -> FloatArray:
        """Of the layers at every recorded step, as of `imbalance`."""
        return imbalance(self.first, self.second)

    def dataset(self) -> xr.Dataset:
        """Function and similarities of one network's weights, named as in a trajectory."""
        n = self.first.shape[-1]
        function, first, second = (self.grams[:, n:, :n], self.grams[:, :n, :n], self.grams[:, n:, n:])
        return xr.Dataset(
            {
                name: (("time", *over), values, described(text, "1"))
                for (name, (text, over)), values in zip(QUANTITIES.items(), (function, first, second), strict=True)
            },
            coords={"time": self.steps.astype(float)},
        )

    def network(self) -> TwoLayer:
        """The one network after the last step."""
        return TwoLayer(self.first[-1], self.second[-1])


def imbalance(first: FloatArray, second: FloatArray) -> FloatArray:
    """|W2^T W2 - W1 W1^T| / |W2^T W2 + W1 W1^T| of layers or stacks of them: 0 if balanced, at most 1."""
    one, two = first @ np.swapaxes(first, -1, -2), np.swapaxes(second, -1, -2) @ second
    return np.asarray(np.linalg.norm(two - one, axis=(-2, -1)) / np.linalg.norm(two + one, axis=(-2, -1)))


def descend(
    cross: FloatArray, first: FloatArray, second: FloatArray, *, learning_rate: float, steps: int, every: int = 1
) -> Descent:
    """Take whole steps on both layers at once, W1 += rate W2^T (S - W2 W1), W2 += rate (S - W2 W1) W1^T.

    Parameters
    ----------
    cross : (..., outputs, inputs)
        S = E[y x^T], for white inputs of variance 1; one matrix, or one per network.
    first, second : (..., hidden, inputs), (..., outputs, hidden)
    learning_rate : float
    steps, every : int
        Weights are recorded at 0, every, 2 every, ... up to `steps`, a multiple of it.
    """
    times = np.arange(0, steps + 1, every)
    firsts, seconds = np.empty((len(times), *first.shape)), np.empty((len(times), *second.shape))
    W1, W2, rate_cross = np.array(first, dtype=float), np.array(second, dtype=float), learning_rate * cross
    firsts[0], seconds[0] = W1, W2
    for step in range(1, steps + 1):
        error = rate_cross - learning_rate * (W2 @ W1)
        W1, W2 = W1 + np.swapaxes(W2, -1, -2) @ error, W2 + error @ np.swapaxes(W1, -1, -2)
        if step % every == 0:
            firsts[step // every], seconds[step // every] = W1, W2
    return Descent(times, firsts, seconds)


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
    learn: Callable[[int, TwoLayer], Descent] | None = None,
) -> xr.Dataset:
    """Learn white tasks one after another, by descent and by the exact flow.

    Parameters
    ----------
    in_turn : sequence of Task
    network : TwoLayer
        Balanced.
    learning_rate : float
    steps, every : int
        Of each task.
    settled : bool
        The flow goes on to the next task from infinite time, so that it sees a switch from a task wholly learned.
    kick : float
        Standard deviation of the noise that every weight of the descent gets at each switch.
    rng : numpy Generator
        For the kick.
    learn : callable, optional
        What trains the network on the task of that number, for so many steps; `descend` on its statistics by default.

    Returns
    -------
    xarray.Dataset
        ``network_function``, ``input_gram``, ``output_gram`` and the ``loss`` of every task over (source, time, ...);
        the instant of a switch is there twice.
    """
    problems = [PooledProblem.of(task, network) for task in in_turn]
    expected = actual = network
    stages = []
    for k, (task, problem) in enumerate(zip(in_turn, problems, strict=True)):
        if k and kick:
            assert rng is not None, "a kick needs its generator"
            actual = TwoLayer(*(w + kick * rng.standard_normal(w.shape) for w in (actual.first, actual.second)))
        run = (
            learn(k, actual)
            if learn is not None
            else descend(
                problem.cross, actual.first, actual.second, learning_rate=learning_rate, steps=steps, every=every
            )
        )
        exact = checked_two_layer(solve(task, expected, learning_rate=learning_rate))
        stage = xr.concat([run.dataset(), exact.at(run.steps).dataset[list(QUANTITIES)]], dim="source")
        stages.append(stage.assign_coords(time=stage["time"] + k * steps, stage=("time", [k] * len(run.steps))))
        end = np.inf if settled else float(steps)
        actual, expected = run.network(), cast(TwoLayer, exact.network_at(end))
    joined = xr.concat(stages, dim="time").assign_coords(source=list(SOURCES), task=[task.name for task in in_turn])
    joined["time"].attrs = described("training time", STEPS)
    losses = np.stack([problem.loss(joined["network_function"].values) for problem in problems], axis=-1)
    joined["loss"] = (("source", "time", "task"), losses, described("loss", "target^2"))
    return joined.drop_attrs(deep=False)


def random_pairs(inputs: int, outputs: int, rng: np.random.Generator) -> Pairs:
    """40 pairs with exactly white inputs; a linear teacher with singular values from 0.5 to 1.5, and noise of 0.2."""
    rank = min(inputs, outputs)
    x = np.sqrt(40) * np.linalg.qr(rng.standard_normal((40, inputs)))[0]
    right, left = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (inputs, outputs))
    return x, x @ (right * rng.uniform(0.5, 1.5, rank)) @ left.T + 0.2 * rng.standard_normal((40, outputs))


def random_task(inputs: int, outputs: int, rng: np.random.Generator, *, name: str = "random") -> tasks.Task:
    """The task of `random_pairs`."""
    return tasks.from_pairs(*random_pairs(inputs, outputs, rng), name=name)


def learns_all(
    in_turn: Sequence[tasks.Task],
    network: TwoLayer,
    *,
    learning_rate: float,
    steps: float = np.inf,
    tolerance: float = 1e-8,
) -> bool:
    """Whether the exact flow learns every task in turn, to the tolerance and in time.

    From half of all balanced square starts it does not: it ends on the saddle without the weakest mode. What the hidden
    layer has no room for is not counted.
    """
    for task in in_turn:
        solution = checked_two_layer(solve(task, network, learning_rate=learning_rate))
        room = min(network.hidden_size, task.inputs, task.outputs)
        if len(solution.flow.lost_modes) > min(task.inputs, task.outputs) - room:
            return False
        if solution.time_to_loss(solution.flow.final_loss + tolerance) > steps:
            return False
        network = cast(TwoLayer, solution.network_at(np.inf))
    return True


def regular_start(
    in_turn: Sequence[tasks.Task], hidden: int, rng: np.random.Generator, *, scale: float, learning_rate: float
) -> TwoLayer:
    """The first of random balanced starts from which the flow learns all the tasks in turn."""
    while True:
        network = TwoLayer.balanced(in_turn[0].inputs, hidden, in_turn[0].outputs, scale=scale, rng=rng)
        if learns_all(in_turn, network, learning_rate=learning_rate):
            return network


def over_steps(values: Any) -> dict[str, Any]:
    """Coordinates of what is trained and predicted over time."""
    return {"source": list(SOURCES), "time": ("time", np.asarray(values, float), described("training time", STEPS))}
