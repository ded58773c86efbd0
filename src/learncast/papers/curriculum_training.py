"""Curricula trained for real: figure 4 of curriculum2025, and the forecast of every plan set against training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from learncast.papers.curriculum_runs import (
    ACCURACY,
    LEARNING_RATE,
    SIZES,
    TANH_SIZES,
    TANH_TASKS,
    Pool,
    PoolPlan,
    network,
    planned,
    pool_runs,
    pools,
    several_at_a_time,
    tanh_goal,
    tanh_runs,
)
from learncast.papers.runs import Compute, PaperRun
from learncast.planning.phase import phase_portrait
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Stops at which the theory's curve is drawn.
FINE = np.linspace(0.05, 0.985, 60)


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

    plan = PoolPlan.of(pool, activation, values=values, stops=stops)
    jobs = [plan.job(place, seed) for place in range(len(plan.forecasts)) for seed in range(seeds)]
    runs = simulate.train_all(jobs, processes=processes, progress=progress)
    steps = [float(run.steps) if run.status.name == "ok" else math.inf for run in runs]
    return _beside_forecasts(plan, np.array(steps).reshape(-1, seeds))


def _beside_forecasts(plan: PoolPlan, measured: FloatArray) -> xr.Dataset:
    """Forecasts, and steps measured over (curriculum, seed)."""
    seeds, grid = measured.shape[1], (len(plan.values), len(plan.stops))
    forecasts = plan.forecasts
    bounds = np.array([getattr(f, "descent_interval", None) or (f.descent_steps,) * 2 for f in forecasts], dtype=float)
    columns = {
        "predicted": (np.array([f.descent_steps for f in forecasts]), "predicted steps"),
        "predicted_low": (bounds[:, 0], "predicted steps, lower bound"),
        "predicted_high": (bounds[:, 1], "predicted steps, upper bound"),
        "linear_predicted": (np.array([f.descent_steps for f in plan.linear]), "steps predicted for linear units"),
    }
    text = described("measured steps", STEPS)
    variables: dict[str, Any] = {"measured": (("value", "stop", "seed"), measured[1:].reshape(*grid, seeds), text)}
    variables["direct_measured"] = ("seed", measured[0], text)
    for name, (column, words) in columns.items():
        variables[name] = (("value", "stop"), column[1:].reshape(grid), described(words, STEPS))
        variables[f"direct_{name}"] = ((), column[0], described(f"{words}, direct training", STEPS))
    variables["curve"] = (("value", "fine_stop"), _curve(plan), described("steps of the flow", STEPS))
    return xr.Dataset(
        variables,
        coords={"value": list(plan.values), "stop": list(plan.stops), "seed": np.arange(seeds), "fine_stop": FINE},
        attrs={"vary": plan.pool.vary, "activation": plan.activation, "target": plan.pool.target.name},
    )


def _curve(plan: PoolPlan) -> FloatArray:
    """Steps of the flow over (value, stop), at fine stops."""
    portrait = phase_portrait(
        plan.pool.target,
        network(plan.activation),
        vary=plan.pool.vary,
        values=np.array(plan.values),
        accuracies=FINE,
        learning_rate=LEARNING_RATE,
        accuracy=ACCURACY,
    )
    return np.asarray(portrait["total_steps"].values)


def tanh_table(
    *, preset: str = "smoke", progress: Progress = silent, compute: Compute = several_at_a_time
) -> xr.Dataset:
    """One tanh unit: steps to the same strength by its response table, by the theory of linear units, by training.

    A tanh unit's best weights on a linear target lie at an input weight of 0, to which it creeps for ever; so the
    steps are those to the strength at which the table's flow has covered part of the way: accuracy 0.3 by its loss.
    """
    number, seeds = TANH_SIZES[preset]
    goals = [tanh_goal(k) for k in range(number)]
    found = compute(tanh_runs(preset), progress=progress)
    measured = np.array([float(one["steps"]) for one in found]).reshape(number, seeds)
    names = [", ".join(f"{key} {value:g}" for key, value in setting.items()) for setting in TANH_TASKS[:number]]
    columns = {"predicted": [goal.steps for goal in goals], "linear_predicted": [goal.linear_steps for goal in goals]}
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


@cache
def _pool(name: str, activation: str, preset: str, compute: Compute) -> xr.Dataset:
    found = compute(pool_runs(name, activation, preset))
    steps = [float(one["steps"]) if one["learned"] else math.inf for one in found]
    return _beside_forecasts(
        planned(name, activation, preset), np.array(steps).reshape(-1, SIZES[preset].seeds_of(activation))
    )


def panel_runs(name: str, preset: str) -> list[PaperRun]:
    """What `panel` needs."""
    return [run for activation in ("linear", "relu") for run in pool_runs(name, activation, preset)]


def scoreboard_runs(preset: str) -> list[PaperRun]:
    """What `scoreboard` needs."""
    return [run for name in pools() for run in pool_runs(name, "relu", preset)]


def panel(
    name: str, *, preset: str = "smoke", progress: Progress = silent, compute: Compute = several_at_a_time
) -> xr.Dataset:
    """One panel: linear and ReLU units, a smaller and a larger value, steps against the first task's stop."""
    shown = list(pools()[name].sketched)
    parts = []
    for k, activation in enumerate(("linear", "relu")):
        parts.append(_pool(name, activation, preset, compute).sel(value=shown))
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


def scoreboard(
    *, preset: str = "smoke", progress: Progress = silent, compute: Compute = several_at_a_time
) -> xr.Dataset:
    """All ReLU curricula of all pools, one row each: linear theory, response theory, training."""
    rows: dict[str, list[Any]] = {k: [] for k in ("pool", "value", "stop", "linear", "response", "measured", "spread")}
    direct: list[tuple[float, float, float]] = []
    for k, name in enumerate(pools()):
        part = _pool(name, "relu", preset, compute)
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
