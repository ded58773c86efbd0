"""Reversal and revision of knowledge, and the saddle between: figure 6 of braun2022."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import TwoLayer, figures, tasks
from learncast.figures.look import COLOURS
from learncast.papers.paper import Numbers, short
from learncast.papers.prior_knowledge import descent
from learncast.papers.prior_knowledge.kingdom import BY_COLOUR, ITEMS, living_kingdom, revisions
from learncast.results import STEPS, described
from learncast.theory.dynamics.balanced.two_layer import shallow
from learncast.theory.dynamics.gradient_flow import gradient_flow
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.representation.similarity import scaled_to_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Noise on every weight at the switch of tasks, which determines when training leaves the saddle.
KICK = 1e-6
#: Learning rate of the reversal.
SLOW = 0.01
#: Number of random starts of the revision for comparison.
CONTROLS = 5


def reversal() -> xr.Dataset:
    """Figure 6A: a task learned completely, then its opposite, and the steps at which the saddle between is left."""
    rng, starts = np.random.default_rng(8), list[TwoLayer]()
    task = descent.random_task(3, 2, rng, name="task")
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    plan: dict[str, Any] = {"learning_rate": SLOW, "steps": 3000, "every": 10, "kick": KICK, "rng": rng}
    both = [task, tasks.reversed(task, name="reversed")]
    dataset = descent.training(both, start, settled=True, starts=starts, **plan)
    return _with_escapes(dataset, dataset["loss"].isel(task=1), both[1], starts[1], SLOW)


def _with_escapes(
    dataset: xr.Dataset, loss: xr.DataArray, task: tasks.Task, start: TwoLayer, rate: float
) -> xr.Dataset:
    """Add the steps at which training, and the integrated flow from its weights, leave the saddle; nan without one."""
    theory, switch = loss.sel(source="theory"), float(descent.stage_of(dataset, 1)["time"][0])
    least = float(PooledProblem.of(task, start).least_loss)
    saddle, step, predicted = float(theory[-1]) - least, np.nan, np.nan
    left = (loss.sel(source="descent") - least < saddle / 2) & (dataset["stage"] == 1)
    if saddle > 1e-3 and bool(left.any()):
        step = float(dataset["time"][left.values.argmax()])
        predicted = switch + float(np.ceil(gradient_flow(task, start, learning_rate=rate).time_to_loss(saddle / 2)))
    text = described("time at which training leaves the saddle", STEPS)
    flow = described("time at which the integrated flow leaves the saddle", STEPS)
    return dataset.assign(escape_step=((), step, text), flow_escape_step=((), predicted, flow))


def shallow_reversal() -> xr.Dataset:
    """Figure 6B: the reversal with one layer, W += rate (S - W)."""
    task, rate, every, steps = tasks.from_pairs(*descent.random_pairs(3, 2, np.random.default_rng(8))), SLOW, 5, 1000
    weights, stages = np.zeros((2, 3)), []
    for k, goal in enumerate((task, tasks.reversed(task, name="reversed"))):
        exact = shallow(goal, weights, np.arange(0, steps + 1, every), learning_rate=rate)["network_function"]
        S = goal.cross_covariance.dense()[0, :, 0, :].T
        path = S + (weights - S) * (1 - rate) ** exact["time"].values[:, None, None]
        weights = path[-1]
        both = xr.concat([exact.copy(data=path), exact], dim="source")
        stages.append(both.assign_coords(time=both["time"] + k * steps, stage=("time", [k] * both.sizes["time"])))
    joined = xr.concat(stages, dim="time")
    named = joined.assign_coords(descent.over_steps(joined["time"])).assign_attrs(described("network function W", "1"))
    return named.to_dataset(name="network_function")


@cache
def revised() -> xr.Dataset:
    """Figure 6E to H: small weights, the living kingdom, then the swap; large weights, then the colours (`panel`)."""
    joined = xr.concat([_revision(k) for k in range(2)], dim="panel")
    named = joined.assign_coords(panel=["two fish swapped", "colour hierarchy"])
    return named.assign_coords(descent.over_steps(joined["time"]))


def curves() -> xr.Dataset:
    """Figure 6E, F: the curves of `revised` without the whole network functions."""
    return revised().drop_vars(["network_function", "loss"])


def _revision(k: int) -> xr.Dataset:
    """Train one panel: the living kingdom, then its revision."""
    rate, scale, tree, revision = (0.01, descent.RATE)[k], (0.003, 0.25)[k], living_kingdom(), revisions()[k]
    rng, starts = np.random.default_rng(9 + k), list[TwoLayer]()
    start = descent.regular_start([tree], 16, rng, scale=scale, learning_rate=rate)
    plan: dict[str, Any] = {"learning_rate": rate, "steps": 6000, "every": 20}
    dataset = descent.training([tree, revision], start, settled=True, kick=KICK, rng=rng, starts=starts, **plan)
    current = dataset["loss"].values[:, np.arange(dataset.sizes["time"]), dataset["stage"].values]
    dataset["loss_in_training"] = (("source", "time"), current, described("loss in training", "target^2"))
    outputs = np.sqrt(len(ITEMS)) * dataset["network_function"].isel(column=k).drop_attrs()
    dataset["item_output"] = outputs.assign_attrs(described("output for one item", "target"))
    dataset["control_loss"] = _control(revision, starts[1], rng, **plan)
    dataset = _with_escapes(dataset, dataset["loss_in_training"], revision, starts[1], rate)
    return dataset.drop_vars("task")


def _control(task: tasks.Task, learned: TwoLayer, rng: np.random.Generator, **plan: Any) -> xr.DataArray:
    """Return the losses of the revision from random balanced weights with the variance of the learned weights."""
    size, parts = _size(learned), []
    for _ in range(CONTROLS):
        random = descent.regular_start([task], learned.hidden_size, rng, scale=1.0, learning_rate=plan["learning_rate"])
        start = TwoLayer(*(w * size / _size(random) for w in (random.first, random.second)))
        parts.append(descent.training([task], start, **plan)["loss"])
    losses = xr.concat(parts, "draw").isel(task=0, drop=True).drop_vars("stage").rename(time="control_time")
    return losses.assign_attrs(described("loss from random weights of the same variance", "target^2"))


def _size(network: TwoLayer) -> float:
    """Return the root mean square of all weights."""
    return float(np.sqrt(np.mean(np.concatenate([network.first.ravel(), network.second.ravel()]) ** 2)))


def paths(stage: int, points: int = 25) -> xr.Dataset:
    """Return the outputs for all items, at times that divide the path evenly, scaled to a plane.

    The paths of the living kingdom from small and from large weights are in one map, because they have one end.
    """
    runs, outputs = revised(), []
    for k in (0, 1):
        functions = runs["network_function"].isel(panel=k, time=runs["stage"].values == stage).values
        way = np.linalg.norm(np.diff(functions[0], axis=0), axis=(1, 2)).cumsum()
        chosen = np.searchsorted(way, np.linspace(0, 0.9999 * way[-1], points))
        outputs.append(np.sqrt(len(ITEMS)) * np.swapaxes(functions[:, chosen], 2, 3))
    every = np.array(outputs)  # (panel, source, time, item, feature)
    maps = [every] if stage == 0 else [every[:1], every[1:]]
    planes, stresses = [], []
    for part in maps:
        flat, near = part.reshape(-1, part.shape[-1]), 3.0 if len(part) > 1 else 1.0
        plane, stress = scaled_to_plane(flat, np.random.default_rng(0), nearness=near)
        planes.append(plane.reshape(*part.shape[:-1], 2))
        stresses += [stress] * len(part)
    over = ("panel", "source", "time", "item")
    return xr.Dataset(
        {
            "points": ((*over, "axis"), np.concatenate(planes), described("output", "target")),
            "outputs": ((*over, "feature"), every, described("network output", "target")),
            "stress": ("panel", stresses, described("share of squared distances that the plane misses", "1")),
        },
        coords={"source": list(descent.SOURCES), "item": list(ITEMS)},
    )


def draw_features(dataset: xr.Dataset) -> figures.Figure:
    """Draw the trees of the items in each task, and their features."""
    orders = (range(8), (1, 0, *range(2, 8)), BY_COLOUR)
    each = zip(orders, dataset["task"].values, strict=True)
    trees = [partial(figures.tree, leaves=ITEMS, order=order, title=str(task)) for order, task in each]
    features = [partial(figures.matrix, one, columns=ITEMS, title="features") for one in dataset["features"]]
    return figures.sheet(*trees, *features, columns=3, width=2.36, height=2.0)


def draw_revision(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw a quantity while the living kingdom and then its revision are learned."""

    def draw(k: int, ax: Axes) -> None:
        one, what = dataset.isel(panel=k), f": {ITEMS[k]}" if name == "item_output" else ""
        head = f"then {dataset['panel'].values[k]}{what}"
        descent.curves(one, name, legend=False, title=head)(ax)
        if name == "loss_in_training":
            switch = float(descent.stage_of(one, 1)["time"][0])
            control = one["control_loss"].sel(source="descent")
            look: dict[str, Any] = {"color": COLOURS[3], "linewidth": 0.9, "linestyle": "--"}
            for n, line in enumerate(control.transpose("draw", "control_time")):
                named = None if n else "random weights, same variance"
                ax.plot(switch + control["control_time"], line, **look, label=named)
            escape = float(one["escape_step"])
            if np.isfinite(escape):
                height = float(one[name].sel(source="descent", time=escape))
                ring: dict[str, Any] = {"markerfacecolor": "none", "markersize": 8, "markeredgewidth": 1.3}
                ax.plot(escape, height, "o", color=COLOURS[2], **ring, linestyle="none", label="leaves the saddle")
            ax.set_yscale("log")
            ax.set_ylim(1e-4, 20.0)
        if k == 0:
            figures.key(ax, below=name == "loss_in_training", ncols=2 if name == "loss_in_training" else 1)

    height = 2.6 if name == "loss_in_training" else 2.2  # with space for the legend below
    return figures.sheet(partial(draw, 0), partial(draw, 1), width=3.55, height=height)


def draw_paths(titles: Sequence[str], dataset: xr.Dataset) -> figures.Figure:
    """Draw the paths of the items in a plane."""
    draws = (
        partial(figures.item_paths, dataset["points"].isel(panel=k), names=ITEMS, legend=k == 0, title=text)
        for k, text in enumerate(titles)
    )
    return figures.sheet(*draws, width=3.5, height=3.2)


def draw_reversal(dataset: xr.Dataset) -> figures.Figure:
    """Draw the network function during the reversal, and the loss of the reversed task."""
    function = descent.curves(dataset, "network_function", title="reversal, two layers")
    loss = dataset["loss"].isel(task=1, drop=True).to_dataset(name="loss")
    right = descent.curves(loss, "loss", legend=False, title="loss of the reversed task")
    return figures.sheet(function, right, width=3.5, height=2.4)


def reversal_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the loss on the saddle, and when training and the flow leave it."""
    first, last = descent.stage_of(dataset, 0), dataset.isel(time=-1)
    learned, switch = first.isel(time=-1).sel(source="theory"), float(first["time"][-1])
    least = float(learned["loss"].isel(task=0))
    yield "half the squared norm of the task", short(0.5 * (learned["network_function"] ** 2).sum())
    yield "excess loss, flow at its end", short(last["loss"].sel(source="theory").isel(task=1) - least)
    yield "excess loss, training at its end", short(np.round(last["loss"].sel(source="descent")[1] - least, 12))
    yield "training leaves the saddle, steps after the switch", int(dataset["escape_step"] - switch)
    yield "the flow from these weights leaves the saddle, steps", int(dataset["flow_escape_step"] - switch)
    # One layer goes from S to -S: |2 S r^n|^2 <= |S|^2 / 2.
    yield "one layer: steps to the same loss", int(np.ceil(np.log(8) / (-2 * np.log1p(-SLOW))))
    yield from descent.gaps(["network_function"], first)


def revision_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps to learn and final losses of each stage."""
    for k, name in enumerate(dataset["panel"].values):
        for stage, case in enumerate((f"living kingdom before {name}", f"then {name}")):
            part = descent.stage_of(dataset.isel(panel=k), stage)
            for source in descent.SOURCES:
                loss = part["loss_in_training"].sel(source=source).values
                learned = np.flatnonzero(loss < 0.01)
                steps = int(part["time"][learned[0]] - part["time"][0]) if learned.size else None
                yield f"{case}: steps to a loss of 0.01, {source}", steps
                if stage:
                    yield f"{case}: final loss, {source}", short(np.round(loss[-1], 9))
        controls = dataset["control_loss"].isel(panel=k).sel(source="descent").transpose("draw", ...).values < 0.01
        times = [int(dataset["control_time"][line.argmax()]) if line.any() else None for line in controls]
        yield f"{name} from random balanced weights of the same variance: steps to a loss of 0.01", times
        predicted, switch = float(dataset["flow_escape_step"][k]), float(descent.stage_of(dataset, 1)["time"][0])
        if np.isfinite(predicted):
            escape = int(float(dataset["escape_step"][k]) - switch)
            yield f"then {name}: training leaves the saddle, steps after the switch", escape
            yield f"then {name}: the flow from these weights leaves the saddle, steps", int(predicted - switch)


def item_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the gaps between theory and training in the outputs for one item."""
    yield from descent.gaps(["item_output"], descent.stage_of(dataset, 0))
    ends = np.ptp(dataset["item_output"].isel(time=-1).transpose("source", "panel", "row").values, axis=0).max(axis=1)
    for name, gap in zip(dataset["panel"].values, ends, strict=True):
        yield f"then {name}: largest gap at the end", short(gap)


def path_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the distances that the planes miss, and the final distance of the fish."""
    fish = dataset["outputs"].isel(item=0, time=-1) - dataset["outputs"].isel(item=1, time=-1)
    apart = np.sqrt((fish**2).sum("feature"))
    for k in (0, 1):
        yield f"panel {k + 1}: share of squared distances missed", short(dataset["stress"][k])
        for i, source in enumerate(descent.SOURCES):
            yield f"panel {k + 1}: distance of the two fish at the end, {source}", short(np.round(apart[k, i], 9))
    ends = dataset["outputs"].isel(time=-1).sel(source="descent")
    yield "largest distance of the two panels' outputs at the end", short(np.abs(ends[0] - ends[1]).max())
