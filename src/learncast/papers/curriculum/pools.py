"""Pools of first tasks, their forecasts and their training: figure 4 of curriculum2025."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from learncast import Accuracy, Activated, Forecast, LinearRNN, Stage, Training, figures, phase, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.paper import Numbers
from learncast.papers.runs import PaperRun, Settings
from learncast.planning.methods.choice import method_for
from learncast.procedure import Plateau
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.training import TrainingRun

#: Stops at which the theory's curve is drawn.
FINE = np.linspace(0.05, 0.985, 60)
LEARNING_RATE, ACCURACY, BATCH = 1e-3, 0.99, 1000
#: Timescales in steps that the paper's kappa = 0.5 may mean: a rate per step, or steps.
READINGS = {"rate": 2.0, "steps": 0.5}
#: CPU seconds of one curriculum at the paper's learning rate.
SECONDS = {"linear": 0.7, "relu": 2.2}
#: Activations and their names in pictures.
UNITS = {"linear": "linear units", "relu": "ReLU units"}

Network = LinearRNN | Activated


@dataclass(frozen=True)
class TaskPool:
    """First tasks that differ from their target in one keyword."""

    vary: str
    target: tasks.Task
    values: tuple[float, ...]

    def first(self, value: float) -> tasks.Task:
        """Return the first task with a value."""
        return self.target.varied(**{self.vary: value, "name": f"{self.vary} {value:g}"})


@cache
def pools() -> dict[str, TaskPool]:
    """Return the paper's four panels; the values are ours.

    While K varies, the paper fixes kappa = 0.5, here a rate: weights exp(-0.5 (T - t)), a timescale of 2 steps.
    """
    plain = tasks.integration(steps=50, name="target")
    fixed = tasks.leaky_integration(steps=50, timescale=READINGS["rate"], correlation=0.5, name="target")
    white = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0, name="target")
    return {
        "4A": TaskPool("target_strength", plain, (0.75, 1.5)),
        "4B": TaskPool("input_strength", plain, (0.5, 1.5)),
        "4C": TaskPool("correlation", fixed, (0.25, 0.8)),
        "4D": TaskPool("timescale", white, (5.0, 20.0)),
    }


@dataclass(frozen=True)
class TrainingSize:
    """Amount of training: stops, seeds of ReLU and linear units, and the rate.

    The number of steps is proportional to 1 / rate, so that a larger one shows the same in less time.
    """

    stops: tuple[float, ...]
    seeds: dict[str, int]
    rate: float = LEARNING_RATE


SIZES = {
    "default": TrainingSize((0.3, 0.6, 0.9), {"relu": 2, "linear": 1}, 5e-3),
    "smoke": TrainingSize((0.5, 0.9), {"relu": 1, "linear": 1}),
    "full": TrainingSize((0.3, 0.5, 0.7, 0.85, 0.95), {"relu": 4, "linear": 3}),
}


def network(activation: str) -> Network:
    """Return a network of 128 units, recurrence 0.96, one mode at 0.01."""
    linear = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    return linear if activation == "linear" else Activated(linear, activation)


def portrait_of(pool: TaskPool, unit: str, values: ArrayLike, stops: FloatArray, rate: float) -> xr.Dataset:
    """Return the flow steps over the value of the first task and its stop."""
    over: dict[str, Any] = {"vary": pool.vary, "values": np.array(values), "accuracies": stops}
    return phase(pool.target, network(unit), **over, learning_rate=rate, goal=ACCURACY)


@cache
def forecasts_of(name: str, activation: str, preset: str) -> list[Forecast]:
    """Return the forecasts of direct training on a pool's target, and of every first task and stop."""
    pool, size = pools()[name], SIZES[preset]
    last, firsts = Stage(pool.target, goal=ACCURACY), [pool.first(value) for value in pool.values]
    plans = [(last,), *((Stage(task, goal=stop), last) for task, stop in product(firsts, size.stops))]
    method = method_for([*firsts, pool.target], network(activation), size.rate, method="modes")
    names = [task.name for task in method.tasks]
    return [Forecast(method, plan, tuple(names.index(stage.task.name) for stage in plan)) for plan in plans]


def panel_runs(name: str, preset: str) -> list[PaperRun]:
    """Return the runs of `panel`: linear and ReLU units."""
    return [PaperRun(train_pool, {"name": name, "activation": k, "preset": preset}, estimated_seconds) for k in UNITS]


def estimated_seconds(settings: Settings) -> float:
    """Estimate the CPU seconds of a run from its number of curricula, from times on one core of a server."""
    size, unit = SIZES[settings["preset"]], settings["activation"]
    return SECONDS[unit] * size.seeds[unit] * (1 + 2 * len(size.stops)) * LEARNING_RATE / size.rate


def train_pool(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train every curriculum of a pool with every seed, and return the steps; inf if it is not learned.

    The paths of direct training and of every first task with the middle stop are kept for figure S5.
    """
    size, unit, forecasts = SIZES[settings["preset"]], settings["activation"], forecasts_of(**settings)
    net, stops = network(unit), len(size.stops)
    optima, kept = optima_of(forecasts, net, size.rate), {0, *range(stops // 2 + 1, len(forecasts), stops)}
    steps, paths = np.full((len(forecasts), size.seeds[unit]), math.inf), []
    for k, seed in np.ndindex(steps.shape):
        run = trained(forecasts[k], net, optima, size.rate, seed)
        steps[k, seed] = run.steps if run.status.name == "ok" else math.inf
        if seed == 0 and k in kept:
            paths.append(path_of(forecasts[k], run))
        progress((k * steps.shape[1] + seed + 1) / steps.size)
    measured = (("curriculum", "seed"), steps, described("measured steps", STEPS))
    return xr.concat(paths, "sample", join="outer").assign(steps=measured)


def optima_of(forecasts: Iterable[Forecast], net: Network, rate: float) -> dict[str, FloatArray]:
    """Return the optimum of every task: known for linear units, else where training converges, as in the paper."""
    stages = [pair for told in forecasts for pair in zip(told.requested, told.modes, strict=True)]
    each = {stage.task.name: (stage.task, modes.optimum) for stage, modes in stages}
    known = isinstance(net, LinearRNN)
    return {name: best if known else _converged(task, net, rate) for name, (task, best) in each.items()}


def trained(told: Forecast, net: Network, optima: Settings, rate: float, seed: int) -> TrainingRun:
    """Train each stage until it is near its optimum; give up at twenty times the forecast."""
    from learncast.training import train

    goals = [Accuracy(getattr(s.goal, "value", 0.0), optimum=tuple(optima[s.task.name])) for s in told.requested]
    stages = [Stage(stage.task, goal) for stage, goal in zip(told.requested, goals, strict=True)]
    training = Training(rate, batch=BATCH, seed=seed, most_steps=20 * math.ceil(told.steps.descent))
    return train(stages, net, training, record=("strength",))


def path_of(told: Forecast, run: TrainingRun) -> xr.Dataset:
    """Return the strength at every step, in training and by theory, with optima, the switch and predicted steps."""
    times = run["time"].values
    both = {"trained": run["strength"], "theory": told.at(times)["strength"]}
    variables: dict[str, object] = {
        **{name: ("time", one.values[:, 0], described(f"strength, {name}", "1")) for name, one in both.items()},
        "first_optimum": ((), told.modes[0].optimum[0], described("optimum of the first task", "1")),
        "target_optimum": ((), told.modes[-1].optimum[0], described("optimum of the target", "1")),
        "switch": ((), float(told.stages[0].steps.descent), described("end of the first task", STEPS)),
        "flow_steps": ((), told.steps.flow, described("flow steps", STEPS)),
        "descent_steps": ((), told.steps.descent, described("descent steps", STEPS)),
    }
    return xr.Dataset(variables, {"time": ("time", times, described("training time", STEPS))})


def _converged(task: tasks.Task, net: Network, rate: float) -> FloatArray:
    """Return the mean strength over the last steps of training to a plateau."""
    from learncast.training import train

    window = round(0.25 / rate)
    goal = Plateau(window=window, tolerance=5e-3)
    run = train(task, net, Training(rate, batch=BATCH, seed=0), goal=goal, record=("strength",))
    return np.asarray(run["strength"].values[-window:].mean(axis=0))


def panel(name: str, results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return one panel: steps against the first task's stop, for linear and ReLU units and two first tasks."""
    pool, size, parts = pools()[name], SIZES[preset], []
    for unit, one in zip(UNITS, results, strict=True):
        predicted = np.array([told.steps.descent for told in forecasts_of(name, unit, preset)], dtype=float)
        steps, grid = one["steps"].values, (len(pool.values), len(size.stops))
        curve = portrait_of(pool, unit, pool.values, FINE, size.rate)["total_steps"].values
        variables: dict[str, object] = {
            "measured": (("value", "stop", "seed"), steps[1:].reshape(*grid, -1), described("measured steps", STEPS)),
            "direct_measured": ("seed", steps[0], described("measured steps", STEPS)),
            "predicted": (("value", "stop"), predicted[1:].reshape(grid), described("predicted steps", STEPS)),
            "direct_predicted": ((), predicted[0], described("predicted steps, direct training", STEPS)),
            "curve": (("value", "fine_stop"), curve, described("flow steps", STEPS)),
        }
        places = {"value": list(pool.values), "stop": list(size.stops), "fine_stop": FINE}
        parts.append(xr.Dataset(variables, places | {"seed": np.arange(steps.shape[1])}))
    joined = xr.concat(parts, dim="activation", join="outer")  # missing seeds are nan
    return joined.assign_coords(activation=list(UNITS)).assign_attrs(vary=pool.vary, panel=name, preset=preset)


def draw_panel(dataset: xr.Dataset) -> figures.Figure:
    """Draw linear units (left) and ReLU units (right): training as dots, theory dotted, direct training as a line."""
    vary = str(dataset.attrs["vary"]).replace("_", " ")
    draws = (partial(figures.stop_curves, dataset.sel(activation=k), name=vary, title=t) for k, t in UNITS.items())
    return figures.sheet(*draws, width=3.5, height=2.6)


def panel_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps of direct training, the median error of the forecasts, and how often they tell if a task helps."""
    for activation in UNITS:
        one = dataset.sel(activation=activation)
        measured, direct = (one[name].mean("seed") for name in ("measured", "direct_measured"))
        helps = (measured < direct) == (one["predicted"] < one["direct_predicted"])
        yield f"{activation}: direct, predicted", int(one["direct_predicted"])
        yield f"{activation}: direct, trained", round(float(direct), 1)
        error = abs(one["predicted"] / measured - 1).median()
        yield f"{activation}: median error of total steps", round(float(error), 4)
        yield f"{activation}: curricula that help or cost as predicted, of {helps.size}", int(helps.sum())
