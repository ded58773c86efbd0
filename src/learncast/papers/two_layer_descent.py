"""Two-layer linear networks trained by gradient descent beside their exact flow: the data of braun2022's figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast import tasks
from learncast.dynamics.decoupling import peak_time, two_mode_coupling
from learncast.dynamics.exact import solve
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.representation import tangent_kernel
from learncast.dynamics.shallow import shallow
from learncast.dynamics.two_layer import TwoLayerSolution, checked_two_layer
from learncast.networks.two_layer import TwoLayer
from learncast.planning.forgetting import ContinualLearning, learn_in_sequence
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
#: Noise on every weight when the task is switched in figure 6: it decides when training leaves the saddle.
KICK = 1e-6
ITEMS = ("salmon", "trout", "robin", "canary", "oak", "pine", "rose", "daisy")
#: Which leaf of the tree each item sits on when the items are sorted by colour.
BY_COLOUR = (0, 2, 4, 6, 1, 3, 5, 7)
STARTS = {"3C": "small random", "3D": "large random", "3E": "large zero-balanced"}
SCALES = {"small": 0.02, "intermediate": 0.3, "large": 1.5}
TARGETS = {"4D": ((1.5, 0.8), (0.3, 1.2)), "4E": ((2.0, 0.0), (0.0, 1.0)), "4F": ((1.5, 0.0), (0.0, 1.5))}


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
        """|W2^T W2 - W1 W1^T| / |W2^T W2 + W1 W1^T|: 0 for balanced layers, at most 1."""
        first = self.first @ np.swapaxes(self.first, -1, -2)
        second = np.swapaxes(self.second, -1, -2) @ self.second
        return np.asarray(np.linalg.norm(second - first, axis=(-2, -1)) / np.linalg.norm(second + first, axis=(-2, -1)))

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


def stacked(matrices: Sequence[FloatArray]) -> FloatArray:
    """Matrices of different sizes as one stack, filled up with zeros.

    Descent leaves the zeros alone: a unit without weights has no gradient, so each network learns as it would alone.
    """
    shape = np.max([m.shape for m in matrices], axis=0)
    return np.stack([np.pad(m, [(0, size - own) for size, own in zip(shape, m.shape, strict=True)]) for m in matrices])


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
        run = descend(problem.cross, actual.first, actual.second, learning_rate=learning_rate, steps=steps, every=every)
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


def random_task(inputs: int, outputs: int, rng: np.random.Generator, *, name: str = "random") -> tasks.Task:
    """40 pairs with exactly white inputs; a linear teacher with singular values from 0.5 to 1.5, and noise of 0.2."""
    rank = min(inputs, outputs)
    x = np.sqrt(40) * np.linalg.qr(rng.standard_normal((40, inputs)))[0]
    right, left = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (inputs, outputs))
    targets = x @ (right * rng.uniform(0.5, 1.5, rank)) @ left.T + 0.2 * rng.standard_normal((40, outputs))
    return tasks.from_pairs(x, targets, name=name)


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


def outputs_from(panel: str) -> xr.Dataset:
    """Figure 1: one task from small, from large and from already learned weights."""
    rng = np.random.default_rng(1)
    before, task = (random_task(3, 2, rng, name=name) for name in ("earlier task", "task"))
    network = TwoLayer.balanced(3, 5, 2, scale={"1B": 0.02, "1C": 0.8, "1D": 0.02}[panel], rng=rng)
    if panel == "1D":
        network = cast(TwoLayer, solve(before, network, learning_rate=RATE).network_at(np.inf))
    return training([task], network, learning_rate=RATE, steps=4000, every=20)


def everything_from(panel: str) -> xr.Dataset:
    """Figure 2A, B: all that the solution gives, the tangent kernel of three items too."""
    rng = np.random.default_rng(2)
    task, items = random_task(3, 2, rng), np.sqrt(3) * np.eye(3)
    network = TwoLayer.balanced(3, 4, 2, scale=0.02 if panel == "2A" else 0.8, rng=rng)
    found = training([task], network, learning_rate=RATE, steps=4000, every=40)
    solution = checked_two_layer(solve(task, network, learning_rate=RATE))
    run = descend(solution.problem.cross, network.first, network.second, learning_rate=RATE, steps=4000, every=40)
    kernels = [
        [_kernel_by_derivatives(a, b, items) for a, b in zip(run.first, run.second, strict=True)],
        [tangent_kernel(solution, float(step), items) for step in run.steps],
    ]
    over = ("source", "time", "output", "output_other")
    return found.assign(tangent_kernel=(over, np.array(kernels), described("tangent kernel", "1")))


def _kernel_by_derivatives(first: FloatArray, second: FloatArray, items: FloatArray) -> FloatArray:
    """J J^T with J the derivatives of all outputs by all weights, written out."""
    outputs, rows = len(second), len(second) * len(items)
    by_first = np.einsum("oh,pi->ophi", second, items).reshape(rows, -1)
    by_second = np.einsum("oq,ph->opqh", np.eye(outputs), items @ first.T).reshape(rows, -1)
    return np.asarray(by_first @ by_first.T + by_second @ by_second.T)


@cache
def architectures(networks: int, finest: int) -> xr.Dataset:
    """Figure 2C, D: random architectures, trained at learning rates down to 1 / `finest` of the largest."""
    rng, coarse = np.random.default_rng(3), 0.05
    cases: list[TwoLayerSolution] = []
    while len(cases) < networks:
        inputs, hidden, outputs = (int(n) for n in rng.integers(2, 9, 3))
        task, scale = random_task(inputs, outputs, rng), float(np.exp(rng.uniform(np.log(0.05), np.log(0.3))))
        start = TwoLayer.balanced(inputs, hidden, outputs, scale=scale, rng=rng)
        if learns_all([task], start, learning_rate=coarse):
            cases.append(checked_two_layer(solve(task, start, learning_rate=coarse)))
    steps = np.arange(241)
    theory = np.stack([case.at(steps)["loss"].values for case in cases])
    cross, first, second = (
        stacked([getattr(case.problem, name) for case in cases]) for name in ("cross", "first", "second")
    )
    least = np.array([case.problem.least_loss for case in cases])
    finer = np.array([k for k in (1, 2, 5, 10, 20, 50, 100) if k <= finest])
    losses = np.empty((len(finer), networks, len(steps)))
    for i, k in enumerate(finer):
        run = descend(cross, first, second, learning_rate=coarse / k, steps=240 * int(k), every=int(k))
        losses[i] = (0.5 * ((run.functions - cross) ** 2).sum(axis=(-2, -1)) + least).T
    gap = np.abs(losses - theory).max(axis=2).T
    both = np.stack([losses[0].T, theory.T])
    return xr.Dataset(
        {
            "loss": (("source", "time", "network"), both, described("loss", "target^2")),
            "deviation": (("network", "learning_rate"), gap, described("largest deviation of the loss", "target^2")),
        },
        coords=_steps(steps)
        | {
            "learning_rate": ("learning_rate", coarse / finer, described("learning rate", "1 / gradient steps")),
            "network": [
                "-".join(map(str, (c.network.inputs, c.network.hidden_size, c.network.outputs))) for c in cases
            ],
        },
    )


def living_kingdom() -> tasks.Hierarchy:
    """Eight items with eight features on a tree of three levels: the task of figure 3."""
    return tasks.hierarchy(depth=3, form="signed", name="living kingdom")


def revisions() -> tuple[tasks.Hierarchy, tasks.Hierarchy]:
    """The tasks of figure 6: the two fish swapped, and the same items sorted by colour."""
    tree = living_kingdom()
    return tree.swapped(0, 1), tree.shuffled(BY_COLOUR, name="colour hierarchy")


@cache
def regimes() -> xr.Dataset:
    """Figure 3C to F: the hierarchy from small random, large random and large balanced weights."""
    rng, tree, rate = np.random.default_rng(4), living_kingdom(), 0.005
    starts = [TwoLayer.random(8, 32, 8, scale=scale, rng=rng) for scale in (0.002, 0.35)]
    starts.append(regular_start([tree], 32, rng, scale=0.35, learning_rate=rate))
    exact = checked_two_layer(solve(tree, starts[2], learning_rate=rate))
    first, second, S = np.stack([n.first for n in starts]), np.stack([n.second for n in starts]), exact.problem.cross
    run = descend(S, first, second, learning_rate=rate, steps=4000, every=2)
    loss = 0.5 * ((run.functions - S) ** 2).sum(axis=(-2, -1))
    # Only the balanced start has a theory.
    predicted = np.full(loss.shape, np.nan)
    predicted[:, 2] = exact.at(run.steps)["excess_loss"]
    U, s, Vt = np.linalg.svd(S)
    own = np.vstack([Vt.T, U]) * np.sqrt(s)
    shares, grams = np.stack([loss / loss[0], predicted / loss[0]]), ("start", "row", "column")
    return xr.Dataset(
        {
            "loss": (("source", "time", "start"), shares, described("loss, share of the start's", "1")),
            "start_gram": (grams, run.grams[0], described("Q Q^T at the start", "1")),
            "end_gram": (grams, run.grams[-1], described("after training", "1")),
            "task_gram": (("row", "column"), own @ own.T, described("the task's own", "1")),
            "limit_gram": (("row", "column"), exact.flow.grams(np.inf), described("limit of the balanced flow", "1")),
            "final_loss": (("start",), loss[-1], described("final loss", "target^2")),
        },
        coords=_steps(run.steps) | {"start": list(STARTS.values())},
    )


def decoupling_from(panel: str) -> xr.Dataset:
    """Figure 4: A^T A in the singular basis of a 2 x 2 target, from one shape of start at several sizes."""
    scales = {"intermediate": 0.3} if panel == "4A" else SCALES
    S = np.array(TARGETS["4E" if panel == "4A" else panel])
    U, s, Vt = np.linalg.svd(S)
    A = np.array(list(scales.values()))[:, None, None] * np.array([[0.9, 0.5], [-0.1, 0.7]])
    run = descend(S, A @ Vt, U @ np.swapaxes(A, 1, 2), learning_rate=RATE, steps=4000, every=5)
    trained = U.T @ run.functions @ Vt.T
    gram = np.swapaxes(A, 1, 2) @ A
    a1, a2, b = gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1]
    exact = two_mode_coupling(RATE * run.steps[:, None], a1, a2, b, (s[0], s[1]))
    within = np.stack([np.diagonal(trained, axis1=-2, axis2=-1), np.stack(exact[:2], axis=-1)])
    between = np.stack([trained[..., 0, 1], exact[2]])
    tied = np.isclose(s[0], s[1])
    peaks = [peak_time(*start, s[0]) / RATE if tied else np.nan for start in zip(a1, a2, b, strict=True)]
    return xr.Dataset(
        {
            "diagonal": (("source", "time", "scale", "mode"), within, described("A^T A within modes", "1")),
            "coupling": (("source", "time", "scale"), between, described("A^T A between modes", "1")),
            "peak_step": (("scale",), peaks, described("predicted time of the largest coupling", STEPS)),
        },
        coords=_steps(run.steps) | {"scale": list(scales)},
    )


def three_tasks() -> xr.Dataset:
    """Figure 5A: three tasks in turn from small balanced weights."""
    rng = np.random.default_rng(5)
    in_turn = [random_task(3, 2, rng, name=f"task {k}") for k in (1, 2, 3)]
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    return training(in_turn, start, learning_rate=RATE, steps=5000, every=25)


@cache
def forgotten(networks: int) -> xr.Dataset:
    """Figure 5B, C: pairs of random tasks in turn; forgetting told and measured, balance measured."""
    rng, rate, steps = np.random.default_rng(6), 0.02, 4000
    forecasts: list[ContinualLearning] = []
    redrawn = 0
    while len(forecasts) < networks:
        inputs, outputs = (int(n) for n in rng.integers(2, 9, 2))
        two = [random_task(inputs, outputs, rng, name=f"task {k}") for k in (1, 2)]
        hidden = min(inputs, outputs) + int(rng.integers(0, 5))
        start = TwoLayer.balanced(inputs, hidden, outputs, scale=0.1, rng=rng)
        if learns_all(two, start, learning_rate=rate, steps=steps):
            forecasts.append(learn_in_sequence(two, start, learning_rate=rate))
        else:
            redrawn += 1
    cross = [stacked([f.solutions[k].problem.cross for f in forecasts]) for k in (0, 1)]
    first, second = (
        stacked([getattr(f.solutions[0].problem, name) for f in forecasts]) for name in ("first", "second")
    )
    excess: list[FloatArray] = []
    imbalance: list[FloatArray] = []
    for S in cross:
        run = descend(S, first, second, learning_rate=rate, steps=steps, every=steps)
        first, second = run.first[-1], run.second[-1]
        excess.append(0.5 * ((second @ first - cross[0]) ** 2).sum(axis=(-2, -1)))
        imbalance += list(run.imbalance[1:] if imbalance else run.imbalance)
    predicted = [float(f.forgetting.isel(stage=1, task=0)) for f in forecasts]
    return xr.Dataset(
        {
            "predicted": ("network", predicted, described("forgetting told before training", "target^2")),
            "measured": ("network", excess[1] - excess[0], described("forgetting after training", "target^2")),
            "imbalance": (("when", "network"), np.stack(imbalance), described("imbalance of the layers", "1")),
        },
        coords={"when": ["at the start", "after task 1", "after task 2"]},
        attrs={"draws_set_aside": redrawn},
    )


@cache
def five_tasks() -> xr.Dataset:
    """Figure 5D, E: loss of each of five tasks after each has been learned in turn."""
    rng, rate, steps = np.random.default_rng(7), 0.02, 4000
    in_turn = [random_task(5, 4, rng, name=f"task {k}") for k in range(1, 6)]
    start = regular_start(in_turn, 6, rng, scale=0.05, learning_rate=rate)
    predicted = learn_in_sequence(in_turn, start, learning_rate=rate).loss[1:].values
    trained = training(in_turn, start, learning_rate=rate, steps=steps, every=steps)["loss"].sel(source="descent")
    variables: dict[str, Any] = {}
    for name, table in (("predicted", predicted), ("measured", trained.values[1::2])):
        variables[f"{name}_loss"] = (("stage", "task"), table, described("loss", "target^2"))
        change = described("change of loss", "target^2")
        variables[f"{name}_forgetting"] = (("later", "task"), np.diff(table, axis=0), change)
    names = [task.name for task in in_turn]
    return xr.Dataset(variables, coords={"stage": names, "task": names, "later": names[1:]})


def reversal() -> xr.Dataset:
    """Figure 6A: a task wholly learned, then its opposite."""
    rng = np.random.default_rng(8)
    task = random_task(3, 2, rng, name="task")
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    both = [task, tasks.reversed(task, name="reversed")]
    found = training(both, start, learning_rate=0.01, steps=3000, every=10, settled=True, kick=KICK, rng=rng)
    return found.assign(escape_step=_escape(found, found["loss"].isel(task=1)))


def _escape(found: xr.Dataset, loss: xr.DataArray) -> xr.DataArray:
    """First step of the last stage at which training has left half of the loss on which the flow ends; nan for none."""
    saddle = float(loss.sel(source="theory")[-1])
    left = (loss.sel(source="descent") < saddle / 2) & (found["stage"] == 1)
    step = float(found["time"][left.values.argmax()]) if saddle > 1e-3 and bool(left.any()) else np.nan
    return xr.DataArray(step, attrs=described("time at which training leaves the saddle", STEPS))


def shallow_reversal() -> xr.Dataset:
    """Figure 6B: the same by one layer, W += rate (S - W)."""
    task, rate, every, steps = random_task(3, 2, np.random.default_rng(8), name="task"), 0.01, 5, 1000
    weights, stages = np.zeros((2, 3)), []
    for k, goal in enumerate((task, tasks.reversed(task, name="reversed"))):
        exact = shallow(goal, weights, np.arange(0, steps + 1, every), learning_rate=rate)["network_function"]
        S, path = goal.cross_covariance.dense()[0, :, 0, :].T, [weights]
        for _ in range(steps):
            path.append(path[-1] + rate * (S - path[-1]))
        weights = path[-1]
        both = xr.concat([exact.copy(data=np.stack(path[::every])), exact], dim="source")
        stages.append(both.assign_coords(time=both["time"] + k * steps, stage=("time", [k] * both.sizes["time"])))
    joined = xr.concat(stages, dim="time")
    named = joined.assign_coords(_steps(joined["time"])).assign_attrs(described("network function W", "1"))
    return named.to_dataset(name="network_function")


@cache
def revised() -> xr.Dataset:
    """Figure 6E to H: small weights, the living kingdom, then the swap; large weights, then the colours (`panel`)."""
    tree, panels = living_kingdom(), []
    for k, (rate, scale, revision) in enumerate(zip((0.01, RATE), (0.003, 0.25), revisions(), strict=True)):
        rng = np.random.default_rng(9 + k)
        start = regular_start([tree], 16, rng, scale=scale, learning_rate=rate)
        plan: dict[str, Any] = {"learning_rate": rate, "steps": 6000, "every": 20, "settled": True, "kick": KICK}
        found = training([tree, revision], start, rng=rng, **plan)
        current = found["loss"].values[:, np.arange(found.sizes["time"]), found["stage"].values]
        found["loss_in_training"] = (("source", "time"), current, described("loss in training", "target^2"))
        outputs = np.sqrt(len(ITEMS)) * found["network_function"].isel(column=k).drop_attrs()
        found["item_output"] = outputs.assign_attrs(described("output for one item", "target"))
        found["escape_step"] = _escape(found, found["loss_in_training"])
        panels.append(found.drop_vars("task"))
    joined = xr.concat(panels, dim="panel").assign_coords(panel=["two fish swapped", "colour hierarchy"])
    return joined.assign_coords(_steps(joined["time"]))


def _steps(values: Any) -> dict[str, Any]:
    return {"source": list(SOURCES), "time": ("time", np.asarray(values, float), described("training time", STEPS))}
