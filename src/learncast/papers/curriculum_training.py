"""Curricula trained for real: figure 4 of curriculum2025, and the forecast of every plan set against training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from learncast import tasks
from learncast.dynamics.exact import solve
from learncast.dynamics.modes import modes_of
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.curriculum import Curriculum, Stage, follow_modes
from learncast.planning.phase import phase_portrait
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATE, ACCURACY, BATCH = 1e-3, 0.99, 1000
#: Stops at which the theory's curve is drawn.
FINE = np.linspace(0.05, 0.985, 60)


@dataclass(frozen=True)
class Pool:
    """First tasks that differ from their target in one keyword."""

    vary: str
    target: tasks.Task
    values: tuple[float, ...]
    sketched: tuple[float, ...]

    def first(self, value: float) -> tasks.Task:
        """The first task with that value."""
        return self.target.varied(**{self.vary: value, "name": f"{self.vary} {value:g}"})


@cache
def pools() -> dict[str, Pool]:
    """The paper's four panels and a fifth pool, 23 first tasks in all; the values are ours."""
    plain = tasks.integration(steps=50, name="target")
    correlated = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.5, name="target")
    white = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0, name="target")
    return {
        "4A": Pool("target_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.75, 1.5)),
        "4B": Pool("input_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.5, 1.5)),
        "4C": Pool("correlation", correlated, (0.0, 0.25, 0.65, 0.8), (0.25, 0.8)),
        "4D": Pool("timescale", white, (3.0, 5.0, 15.0, 20.0, 30.0), (5.0, 20.0)),
        "noise": Pool("noise_strength", correlated, (0.5, 0.75, 1.5, 2.0), (0.5, 1.5)),
    }


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    stops: tuple[float, ...]
    seeds: int
    whole: bool  # every value of a pool, or the two that a panel shows
    linear_seeds: int


SIZES = {
    "smoke": Size((0.5, 0.9), 1, False, 1),
    "full": Size((0.3, 0.5, 0.7, 0.85, 0.95), 4, True, 3),
}


def network(activation: str) -> LinearRNN | Activated:
    """128 units, recurrence 0.96, one mode at 0.01."""
    linear = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    return linear if activation == "linear" else Activated(linear, activation)


def trained_pool(
    pool: Pool,
    activation: str,
    *,
    values: Sequence[float],
    stops: Sequence[float],
    seeds: int,
    processes: int | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Forecast and train the target directly and through each first task and stop.

    Returns
    -------
    Dataset
        Over (value, stop): ``predicted`` steps of descent with ``predicted_low`` and ``predicted_high``,
        ``linear_predicted``, what the theory of linear units says, and ``measured`` over (value, stop, seed); the
        same of direct training with the prefix ``direct_``.
    """
    from learncast import simulate

    net, last, firsts = network(activation), Stage(pool.target, accuracy=ACCURACY), [pool.first(v) for v in values]
    plans = [[last]] + [[Stage(task, accuracy=s), last] for task in firsts for s in stops]
    forecasts, linear = (_forecasts(plans, firsts, pool.target, kind) for kind in (net, network("linear")))
    settings = simulate.Training(LEARNING_RATE, batch=BATCH, learn=("input", "output"), record=())
    jobs = [
        (
            stages,
            net,
            settings.with_(seed=seed, most_steps=20 * math.ceil(f.descent_steps)),
            [m.optimum for m in f.modes],
        )
        for stages, f in zip(plans, forecasts, strict=True)
        for seed in range(seeds)
    ]
    runs = simulate.train_all(jobs, processes=processes, progress=progress)
    steps = [float(run.steps) if run.status.name == "ok" else math.inf for run in runs]
    measured = np.array(steps).reshape(len(plans), seeds)
    grid = (len(values), len(stops))
    bounds = np.array([getattr(f, "descent_interval", None) or (f.descent_steps,) * 2 for f in forecasts], dtype=float)
    columns = {
        "predicted": (np.array([f.descent_steps for f in forecasts]), "predicted steps"),
        "predicted_low": (bounds[:, 0], "predicted steps, lower bound"),
        "predicted_high": (bounds[:, 1], "predicted steps, upper bound"),
        "linear_predicted": (np.array([f.descent_steps for f in linear]), "steps predicted for linear units"),
    }
    variables: dict[str, Any] = {"measured": (("value", "stop", "seed"), measured[1:].reshape(*grid, seeds))}
    variables["direct_measured"] = ("seed", measured[0])
    for name, (column, text) in columns.items():
        variables[name] = (("value", "stop"), column[1:].reshape(grid), described(text, STEPS))
        variables[f"direct_{name}"] = ((), column[0], described(f"{text}, direct training", STEPS))
    portrait = phase_portrait(
        pool.target,
        net,
        vary=pool.vary,
        values=np.array(values),
        accuracies=FINE,
        learning_rate=LEARNING_RATE,
        accuracy=ACCURACY,
    )
    curve = portrait["total_steps"].values
    variables["curve"] = (("value", "fine_stop"), curve, described("steps of the flow", STEPS))
    for name in ("measured", "direct_measured"):
        variables[name] = (*variables[name], described("measured steps", STEPS))
    return xr.Dataset(
        variables,
        coords={"value": list(values), "stop": list(stops), "seed": np.arange(seeds), "fine_stop": FINE},
        attrs={"vary": pool.vary, "activation": activation, "target": pool.target.name},
    )


#: Tasks of the tanh table: settings of `tasks.leaky_integration` with the weights' own timescale.
TANH_TASKS = ({"gain": 0.5}, {"gain": 1.0}, {"gain": 1.0, "correlation": 0.5}, {"gain": 1.0, "timescale": 20.0})
TANH_ACCURACY = 0.3


def tanh_table(*, preset: str = "smoke", progress: Progress = silent) -> xr.Dataset:
    """One tanh unit: steps to the same strength by its response table, by the theory of linear units, by training.

    A tanh unit's best weights on a linear target lie at an input weight of 0, to which it creeps for ever; so the
    steps are those to the strength at which the table's flow has covered part of the way: accuracy 0.3 by its loss.
    """
    from learncast import simulate

    chosen = TANH_TASKS[:1] if preset == "smoke" else TANH_TASKS
    seeds = 1 if preset == "smoke" else 3
    net, rows, jobs = network("tanh"), [], []
    settings = simulate.Training(LEARNING_RATE, batch=BATCH, learn=("input", "output"), record=())
    for setting in chosen:
        task = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0).varied(**setting)
        solution = solve(task, net, learning_rate=LEARNING_RATE)
        steps = math.ceil(solution.time_to(TANH_ACCURACY).flow_steps)
        strength = solution.descend(steps)["strength"].values.reshape(steps + 1)  # type: ignore[attr-defined]
        goal = strength[-1]
        linear = solve(task, network("linear"), learning_rate=LEARNING_RATE)
        straight = linear.at(np.arange(steps + 1.0))["strength"].values[:, 0]
        rows.append((steps, float(np.argmax(straight >= goal)) if (straight >= goal).any() else math.inf))
        rule = simulate.Accuracy(0.99, optimum=goal / 0.99)  # entered from below, at the goal
        jobs += [(task, net, settings.with_(seed=k, until=rule, most_steps=3 * steps), None) for k in range(seeds)]
    runs = simulate.train_all(jobs, progress=progress)
    measured = np.array([float(run.steps) for run in runs]).reshape(len(chosen), seeds)
    names = [", ".join(f"{key} {value:g}" for key, value in setting.items()) for setting in chosen]
    columns = {"predicted": [row[0] for row in rows], "linear_predicted": [row[1] for row in rows]}
    variables: dict[str, Any] = {
        key: ("task", np.array(column, dtype=float), described(key.replace("_", " "), STEPS))
        for key, column in columns.items()
    }
    variables["measured"] = (("task", "seed"), measured, described("measured steps", STEPS))
    return xr.Dataset(variables, coords={"task": names, "seed": np.arange(seeds)}, attrs={"preset": preset})


def tanh_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps and errors of every task."""
    mean, found = dataset["measured"].mean("seed"), {}
    for k, name in enumerate(dataset["task"].values):
        for key in ("predicted", "linear_predicted"):
            found[f"{name}: {key.replace('_', ' ')} steps"] = float(dataset[key][k])
        found[f"{name}: measured steps"] = round(float(mean[k]), 1)
        found[f"{name}: error"] = round(float(dataset["predicted"][k] / mean[k] - 1), 4)
    found["largest error"] = round(float(np.abs(dataset["predicted"] / mean - 1).max()), 4)
    return found


def draw_tanh(dataset: xr.Dataset) -> Figure:
    """Measured steps of every task beside the table's and the linear theory's."""
    from learncast.figures import page, predicted_and_measured

    figure, (ax,) = page(width=6.4, height=3.2)
    plans = xr.Dataset(
        {
            "measured_steps": (("plan", "seed"), dataset["measured"].values),
            "measured_mean": ("plan", dataset["measured"].mean("seed").values),
            "predicted_descent_steps": ("plan", dataset["predicted"].values),
        },
        coords={"plan": dataset["task"].values},
    )
    predicted_and_measured(plans, ax, title="4Y  one tanh unit, by its response table")
    return figure


def _forecasts(plans: list[list[Stage]], firsts: list[tasks.Task], target: tasks.Task, net: Any) -> list[Curriculum]:
    """Forecasts of many plans over the same tasks, each of which is measured once."""
    last, *rest = modes_of([target, *firsts], net)
    own = {task.name: modes for task, modes in zip(firsts, rest, strict=True)}
    return [
        follow_modes(stages, (*(own[stage.task.name] for stage in stages[:-1]), last), net, LEARNING_RATE)
        for stages in plans
    ]


@cache
def _pool(name: str, activation: str, preset: str) -> xr.Dataset:
    size, pool = SIZES[preset], pools()[name]
    whole = size.whole and activation == "relu"
    return trained_pool(
        pool,
        activation,
        values=pool.values if whole else pool.sketched,
        stops=size.stops,
        seeds=size.seeds if activation == "relu" else size.linear_seeds,
    )


def panel(name: str, *, preset: str = "smoke", progress: Progress = silent) -> xr.Dataset:
    """One panel: linear and ReLU units, a smaller and a larger value, steps against the first task's stop."""
    shown = list(pools()[name].sketched)
    parts = []
    for k, activation in enumerate(("linear", "relu")):
        parts.append(_pool(name, activation, preset).sel(value=shown))
        progress((k + 1) / 2)
    longest = max(part.sizes["seed"] for part in parts)
    padded = [part.pad(seed=(0, longest - part.sizes["seed"])).assign_coords(seed=np.arange(longest)) for part in parts]
    joined = xr.concat([p.drop_attrs(deep=False) for p in padded], dim="activation", combine_attrs="drop_conflicts")
    return joined.assign_coords(activation=["linear", "relu"]).assign_attrs(
        vary=pools()[name].vary, panel=name, preset=preset
    )


def draw_panel(dataset: xr.Dataset) -> Figure:
    """Left linear, right ReLU units: training as points, theory dotted through them, direct training as a line."""
    from learncast.figures import page, stop_curves

    figure, axes = page(1, 2, width=4.4, height=3.4)
    vary = str(dataset.attrs["vary"]).replace("_", " ")
    for ax, activation in zip(axes, ("linear", "relu"), strict=True):
        kind = "linear units" if activation == "linear" else "ReLU units"
        stop_curves(dataset.sel(activation=activation), ax, name=vary, title=f"{dataset.attrs['panel']}  {kind}")
    return figure


def panel_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps, and how far the forecast is off."""
    found: dict[str, Any] = {}
    for activation in ("linear", "relu"):
        one = dataset.sel(activation=activation)
        error = np.abs(one["predicted"] / one["measured"].mean("seed") - 1)
        found[f"{activation}: direct, predicted"] = int(one["direct_predicted"])
        found[f"{activation}: direct, trained"] = round(float(one["direct_measured"].mean("seed")), 1)
        found[f"{activation}: median error of total steps"] = round(float(np.median(error)), 4)
    return found


def scoreboard(*, preset: str = "smoke", progress: Progress = silent) -> xr.Dataset:
    """All ReLU curricula of all pools, one row each: linear theory, response theory, training."""
    rows: dict[str, list[Any]] = {k: [] for k in ("pool", "value", "stop", "linear", "response", "measured", "spread")}
    direct: list[tuple[float, float, float]] = []
    for k, name in enumerate(pools()):
        part = _pool(name, "relu", preset)
        progress((k + 1) / len(pools()))
        alone = part["direct_measured"]
        direct.append((float(part["direct_linear_predicted"]), float(part["direct_predicted"]), float(alone.mean())))
        for value in part["value"].values:
            for stop in part["stop"].values:
                one = part.sel(value=value, stop=stop)
                line = (name, value, stop, one["linear_predicted"], one["predicted"])
                spread = float(one["measured"].std(ddof=1)) if one.sizes["seed"] > 1 else math.nan
                whole = (*line, one["measured"].mean(), spread)
                for key, cell in zip(rows, whole, strict=True):
                    rows[key].append(cell if isinstance(cell, str) else float(cell))
    variables: dict[str, Any] = {key: ("curriculum", column) for key, column in rows.items() if key != "pool"}
    for key in ("linear", "response", "measured", "spread"):
        variables[key] = (*variables[key], described(f"total steps, {key}", STEPS))
    for key, column in zip(("linear", "response", "measured"), np.array(direct).T, strict=True):
        variables[f"direct_{key}"] = ("pool_name", column, described(f"direct training, {key}", STEPS))
    coordinates = {"pool": ("curriculum", rows["pool"]), "pool_name": list(pools())}
    return xr.Dataset(variables, coords=coordinates, attrs={"preset": preset})


def scores(dataset: xr.Dataset, theory: str) -> dict[str, float]:
    """How good a forecast is: rank correlation, sign of the speedup, errors, and the price of its choices of stop."""
    predicted, measured = dataset[theory].values, dataset["measured"].values
    error = np.abs(predicted / measured - 1)
    place = {str(name): k for k, name in enumerate(dataset["pool_name"].values)}
    own = np.array([place[str(name)] for name in dataset["pool"].values])
    saves = [np.sign(dataset[f"direct_{k}"].values[own] - v) for k, v in ((theory, predicted), ("measured", measured))]
    regrets = []
    for key in sorted({*zip(dataset["pool"].values, dataset["value"].values, strict=True)}):
        here = (dataset["pool"].values == key[0]) & (dataset["value"].values == key[1])
        regrets.append(measured[here][np.argmin(predicted[here])] / measured[here].min())
    return {
        "curricula": len(measured),
        "sign of the speedup right": float(np.mean(saves[0] == saves[1])),
        "Spearman": float(spearmanr(predicted, measured)[0]),
        "median error": float(np.median(error)),
        "90th percentile of the error": float(np.quantile(error, 0.9)),
        "regret of the stop, mean": float(np.mean(regrets)),
        "regret of the stop, largest": float(np.max(regrets)),
    }


def scoreboard_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Both theories' scores."""
    return {
        f"{label}: {key}": round(value, 4)
        for label, theory in (("linear theory", "linear"), ("response theory", "response"))
        for key, value in scores(dataset, theory).items()
    }


def draw_scoreboard(dataset: xr.Dataset) -> Figure:
    """Predicted against measured steps, linear theory and response features."""
    from learncast.figures import page, predictions

    figure, axes = page(1, 2, width=4.2, height=3.8)
    titles = {"linear": "linear theory", "response": "response features"}
    for ax, (theory, title) in zip(axes, titles.items(), strict=True):
        predictions(dataset, ax, theory=theory, title=f"ReLU curricula, {title}")
    return figure
