"""Pools of first tasks, their forecasts and their training: figure 4 of curriculum2025."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from learncast import Accuracy, Activated, Forecast, LinearRNN, Stage, Training, figures, forecast, phase, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.paper import Numbers
from learncast.papers.runs import PaperRun, Settings
from learncast.planning.methods.choice import method_for
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.training import TrainingJob

#: Stops at which the theory's curve is drawn.
FINE = np.linspace(0.05, 0.985, 60)
LEARNING_RATE, ACCURACY, BATCH = 1e-3, 0.99, 1000
#: For each portrait its pool, and value and stop of a weaker and a stronger first task (our choice).
SAMPLES = {
    "2A": ("4A", ((0.75, 0.9), (1.5, 0.8))),
    "2D": ("4B", ((0.5, 0.4), (1.5, 0.9))),
    "3B": ("4C", ((0.3, 0.9), (0.7, 0.7))),
    "3D": ("4D", ((5.0, 0.9), (20.0, 0.7))),
}
#: Timescales in steps that the paper's kappa = 0.5 may mean: a rate per step, or steps.
READINGS = {"rate": 2.0, "steps": 0.5}
#: A pool with the same target, whose direct training serves both.
SAME_TARGET = {"4B": "4A"}
#: When a ReLU network has learned: at the optimum of its response features (ours), or where training converges.
OPTIMA = ("response", "trained")
#: Last steps over which the strength at a plateau is averaged.
AVERAGED = 50

Network = LinearRNN | Activated


@dataclass(frozen=True)
class TaskPool:
    """First tasks that differ from their target in one keyword; a panel shows two of them."""

    vary: str
    target: tasks.Task
    values: tuple[float, ...]
    sketched: tuple[float, ...]

    def first(self, value: float) -> tasks.Task:
        """Return the first task with a value."""
        return self.target.varied(**{self.vary: value, "name": f"{self.vary} {value:g}"})


@cache
def pools() -> dict[str, TaskPool]:
    """Return the paper's four panels and a fifth pool, 23 first tasks in total; the values are ours.

    While K varies, the paper fixes kappa = 0.5, here a rate: weights exp(-0.5 (T - t)), a timescale of 2 steps.
    """
    plain = tasks.integration(steps=50, name="target")
    fixed = tasks.leaky_integration(steps=50, timescale=READINGS["rate"], correlation=0.5, name="target")
    correlated = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.5, name="target")
    white = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0, name="target")
    return {
        "4A": TaskPool("target_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.75, 1.5)),
        "4B": TaskPool("input_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.5, 1.5)),
        "4C": TaskPool("correlation", fixed, (0.0, 0.25, 0.65, 0.8), (0.25, 0.8)),
        "4D": TaskPool("timescale", white, (3.0, 5.0, 15.0, 20.0, 30.0), (5.0, 20.0)),
        "noise": TaskPool("noise_strength", correlated, (0.5, 0.75, 1.5, 2.0), (0.5, 1.5)),
    }


@dataclass(frozen=True)
class TrainingSize:
    """Amount of training: stops, seeds of ReLU and linear units, whether all values are trained, and the rate.

    The number of steps is proportional to 1 / rate, so that a larger one shows the same in less time.
    """

    stops: tuple[float, ...]
    seeds: dict[str, int]
    every_value: bool
    rate: float = LEARNING_RATE


SIZES = {
    "default": TrainingSize((0.3, 0.6, 0.9), {"relu": 2, "linear": 1}, False, 5e-3),
    "smoke": TrainingSize((0.5, 0.9), {"relu": 1, "linear": 1}, False),
    "full": TrainingSize((0.3, 0.5, 0.7, 0.85, 0.95), {"relu": 4, "linear": 3}, True),
}


def network(activation: str) -> Network:
    """Return a network of 128 units, recurrence 0.96, one mode at 0.01."""
    linear = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    return linear if activation == "linear" else Activated(linear, activation)


def portrait_of(
    pool: TaskPool,
    activation: str,
    values: Sequence[float] | FloatArray,
    stops: FloatArray,
    rate: float = LEARNING_RATE,
) -> xr.Dataset:
    """Return the flow steps over the value of the first task and its stop."""
    over: dict[str, Any] = {"vary": pool.vary, "values": np.array(values), "accuracies": stops}
    return phase(pool.target, network(activation), **over, learning_rate=rate, goal=ACCURACY)


def settings_of(seed: int, rate: float = LEARNING_RATE, **options: Any) -> Training:
    """Settings of every training here."""
    return Training(rate, batch=BATCH, seed=seed, **options)


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """Direct training on a pool's target and every curriculum to it, with their forecasts.

    Attributes
    ----------
    pool : TaskPool
    activation : str
    values, stops : tuple of float
        First tasks, and accuracies at which they are stopped.
    forecasts, linear : list of Forecast
        Forecasts of direct training, then of every value and stop: for this activation and for linear units.
    """

    pool: TaskPool
    activation: str
    values: tuple[float, ...]
    stops: tuple[float, ...]
    forecasts: list[Forecast]
    linear: list[Forecast]
    rate: float = LEARNING_RATE

    @classmethod
    def of(
        cls,
        pool: TaskPool,
        activation: str,
        *,
        values: Sequence[float],
        stops: Sequence[float],
        rate: float = LEARNING_RATE,
    ) -> PoolPlan:
        """Forecast all curricula."""
        last, firsts = Stage(pool.target, goal=ACCURACY), [pool.first(value) for value in values]
        plans = [[last]] + [[Stage(task, goal=s), last] for task in firsts for s in stops]
        forecasts, linear = (
            _forecasts(plans, firsts, pool.target, net, rate) for net in (network(activation), network("linear"))
        )
        return cls(pool, activation, tuple(values), tuple(stops), forecasts, linear, rate)

    def job(self, place: int, seed: int) -> TrainingJob:
        """One training, given up at twenty times its forecast."""
        told = self.forecasts[place]
        settings = settings_of(seed, self.rate, most_steps=20 * math.ceil(told.steps.descent))
        return _to_optima(
            list(told.requested), [modes.optimum for modes in told.modes], network(self.activation), settings
        )


def _to_optima(stages: Sequence[Stage], optima: Sequence[FloatArray], net: Any, settings: Training) -> TrainingJob:
    """A training whose stages end near given optima."""
    from learncast.training import TrainingJob

    goals = [
        Accuracy(float(getattr(stage.goal, "value", 0.0)), optimum=tuple(optimum))
        for stage, optimum in zip(stages, optima, strict=True)
    ]
    ends = [Stage(stage.task, goal) for stage, goal in zip(stages, goals, strict=True)]
    return TrainingJob(ends, net, settings, record=())


def _forecasts(
    plans: list[list[Stage]], firsts: list[tasks.Task], target: tasks.Task, net: Network, rate: float
) -> list[Forecast]:
    """Return the forecasts of many plans over the same tasks; each task is analysed once."""
    method = method_for([*firsts, target], net, rate, method="modes")
    names = [task.name for task in method.tasks]
    return [Forecast(method, tuple(plan), tuple(names.index(stage.task.name) for stage in plan)) for plan in plans]


def _values(pool: TaskPool, activation: str, preset: str) -> tuple[float, ...]:
    """Return the first tasks that are trained: all for ReLU units if the preset is large."""
    return pool.values if SIZES[preset].every_value and activation == "relu" else pool.sketched


@cache
def plan_of(name: str, activation: str, preset: str) -> PoolPlan:
    """Return the curricula of one of the `pools`."""
    pool, size = pools()[name], SIZES[preset]
    return PoolPlan.of(pool, activation, values=_values(pool, activation, preset), stops=size.stops, rate=size.rate)


def pool_runs(name: str, activation: str, preset: str, optimum: str = "response") -> list[PaperRun]:
    """Return every training of one of the `pools`, direct training first.

    If the optimum is found by training, all curricula of a seed are one run, so that each task's optimum is found once.
    """
    size, seeds = SIZES[preset], range(SIZES[preset].seeds[activation])
    shared: dict[str, object] = {"activation": activation}
    if optimum == "trained" and activation != "linear":
        shared |= {"pool": name, "preset": preset}
        return [PaperRun(train_to_trained_optima, {**shared, "seed": seed}) for seed in seeds]
    shared["rate"] = size.rate
    curricula = [(None, None), *product(_values(pools()[name], activation, preset), size.stops)]
    return [
        PaperRun(train_once, {"pool": of, "value": value, "stop": stop, "seed": seed, **shared})
        for (value, stop), seed in product(curricula, seeds)
        for of in (name if value is not None else SAME_TARGET.get(name, name),)
    ]


def curriculum_job(settings: Mapping[str, Any]) -> TrainingJob:
    """The job of one of `pool_runs`."""
    value, stop = settings["value"], settings["stop"]
    plan = _one_plan(settings["pool"], settings["activation"], value, stop, settings.get("rate", LEARNING_RATE))
    return plan.job(0 if value is None else 1, settings["seed"])


@cache
def _one_plan(name: str, activation: str, value: float | None, stop: float | None, rate: float) -> PoolPlan:
    """Return direct training and one curriculum of a pool, or only direct training."""
    values, stops = ((), ()) if value is None or stop is None else ((value,), (stop,))
    return PoolPlan.of(pools()[name], activation, values=values, stops=stops, rate=rate)


def train_to_trained_optima(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train all curricula of a pool with one seed, to optima that are found by training, as in the paper.

    Each task is first trained to a plateau. The strength there is the optimum of every stage with this task.
    """
    from learncast.training import Plateau, train

    plan = plan_of(settings["pool"], settings["activation"], settings["preset"])
    seed, found = settings["seed"], dict[str, FloatArray]()
    steps, learned = [], []
    for k in range(len(plan.forecasts)):
        job = plan.job(k, seed)
        stages = cast(list[Stage], job.source)
        for stage in stages:
            if stage.task.name not in found:
                to_end = train(stage.task, job.network, job.training, goal=Plateau(), record=("strength",))
                found[stage.task.name] = to_end["strength"].values[-AVERAGED:].mean(axis=0)
        optima = [found[stage.task.name] for stage in stages]
        run = _to_optima(stages, optima, job.network, job.training).run()
        steps.append(float(run.steps))
        learned.append(run.status.name == "ok")
        progress((k + 1) / len(plan.forecasts))
    return xr.Dataset(
        {
            "steps": ("curriculum", steps, described("measured steps", STEPS)),
            "learned": ("curriculum", learned, described("whether the last stage was learned", "1")),
            "optimum": ("task", [float(v[0]) for v in found.values()], described("strength after training", "1")),
        },
        coords={"task": list(found)},
    )


#: Tasks of the tanh table: settings of `tasks.leaky_integration`.
TANH_TASKS = ({"gain": 0.5}, {"gain": 1.0}, {"gain": 1.0, "correlation": 0.5}, {"gain": 1.0, "timescale": 20.0})
TANH_ACCURACY = 0.3
#: Number of tasks of the table and of training runs of each.
TANH_SIZES = {"default": (2, 1), "smoke": (1, 1), "full": (len(TANH_TASKS), 3)}


@dataclass(frozen=True, eq=False)
class TanhGoal:
    """The strength that one tanh unit must reach, and the steps by its response table and by the linear theory."""

    task: tasks.Task
    strength: float
    steps: int
    linear_steps: float


@cache
def tanh_goal(index: int, rate: float) -> TanhGoal:
    """Return the goal of one of `TANH_TASKS`."""
    task = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0).varied(**TANH_TASKS[index])
    solution = forecast(task, network("tanh"), learning_rate=rate).solution
    steps = math.ceil(solution.time_to(TANH_ACCURACY).flow_steps)
    goal = solution.descend(steps)["strength"].values.reshape(steps + 1)[-1]  # type: ignore[attr-defined]
    linear = forecast(task, network("linear"), learning_rate=rate).solution.at(np.arange(steps + 1.0))
    reached = linear["strength"].values[:, 0] >= goal
    return TanhGoal(task, float(goal), steps, float(np.argmax(reached)) if reached.any() else math.inf)


def tanh_runs(preset: str) -> list[PaperRun]:
    """Return every training of the tanh table, task by task."""
    number, seeds = TANH_SIZES[preset]
    rate = SIZES[preset].rate
    return [PaperRun(train_once, {"task": k, "seed": seed, "rate": rate}) for k, seed in np.ndindex(number, seeds)]


def tanh_job(settings: Mapping[str, Any]) -> TrainingJob:
    """The job of one of `tanh_runs`."""
    from learncast.training import TrainingJob

    goal = tanh_goal(settings["task"], settings["rate"])
    rule = Accuracy(0.99, optimum=(goal.strength / 0.99,))  # entered from below, at the goal
    training = settings_of(settings["seed"], settings["rate"], most_steps=3 * goal.steps)
    return TrainingJob(goal.task, network("tanh"), training, rule, record=())


def train_once(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train one curriculum of a pool, or one tanh unit on one task, once."""
    run = (curriculum_job if "pool" in settings else tanh_job)(settings).run(progress)
    return xr.Dataset(
        {
            "steps": ((), float(run.steps), described("measured steps", STEPS)),
            "learned": ((), run.status.name == "ok", described("whether the last stage was learned", "1")),
        }
    )


def with_forecasts(plan: PoolPlan, measured: FloatArray) -> xr.Dataset:
    """Return forecast and measured steps, directly and through each first task and stop.

    Parameters
    ----------
    plan : PoolPlan
    measured : (curricula, seeds)
        In the order of the plan's forecasts.

    Returns
    -------
    Dataset
        Over (value, stop): ``predicted`` descent steps with ``predicted_low`` and ``predicted_high``,
        ``linear_predicted`` by the theory of linear units, and ``measured`` over (value, stop, seed). Variables of
        direct training have the prefix ``direct_``.
    """
    seeds, grid = measured.shape[1], (len(plan.values), len(plan.stops))
    forecasts = plan.forecasts
    bounds = np.array([f.steps.interval or (f.steps.descent,) * 2 for f in forecasts], dtype=float)
    columns = {
        "predicted": (np.array([f.steps.descent for f in forecasts]), "predicted steps"),
        "predicted_low": (bounds[:, 0], "predicted steps, lower bound"),
        "predicted_high": (bounds[:, 1], "predicted steps, upper bound"),
        "linear_predicted": (np.array([f.steps.descent for f in plan.linear]), "steps predicted for linear units"),
    }
    text = described("measured steps", STEPS)
    variables: dict[str, object] = {"measured": (("value", "stop", "seed"), measured[1:].reshape(*grid, seeds), text)}
    variables["direct_measured"] = ("seed", measured[0], text)
    for name, (column, words) in columns.items():
        variables[name] = (("value", "stop"), column[1:].reshape(grid), described(words, STEPS))
        variables[f"direct_{name}"] = ((), column[0], described(f"{words}, direct training", STEPS))
    curve = portrait_of(plan.pool, plan.activation, plan.values, FINE, plan.rate)
    variables["curve"] = (("value", "fine_stop"), curve["total_steps"].values, described("flow steps", STEPS))
    return xr.Dataset(
        variables,
        coords={"value": list(plan.values), "stop": list(plan.stops), "seed": np.arange(seeds), "fine_stop": FINE},
        attrs={"vary": plan.pool.vary, "activation": plan.activation, "target": plan.pool.target.name},
    )


def tanh_table(results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return the steps of one tanh unit to one strength: by its response table, by the linear theory, by training.

    On a linear target the optimum of a tanh unit is at an input weight of 0, which it approaches forever. So the steps
    are counted to the strength at which the flow of the table has an accuracy of 0.3 by its loss.
    """
    number, seeds = TANH_SIZES[preset]
    goals = [tanh_goal(k, SIZES[preset].rate) for k in range(number)]
    measured = np.array([float(one["steps"]) for one in results]).reshape(number, seeds)
    names = [", ".join(f"{key} {value:g}" for key, value in setting.items()) for setting in TANH_TASKS[:number]]
    columns = {"predicted": [goal.steps for goal in goals], "linear_predicted": [goal.linear_steps for goal in goals]}
    variables: dict[str, object] = {
        key: ("task", np.array(column, dtype=float), described(key.replace("_", " "), STEPS))
        for key, column in columns.items()
    }
    variables["measured"] = (("task", "seed"), measured, described("measured steps", STEPS))
    return xr.Dataset(variables, coords={"task": names, "seed": np.arange(seeds)}, attrs={"preset": preset})


def tanh_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps and errors of every task."""
    mean = dataset["measured"].mean("seed")
    for k, name in enumerate(dataset["task"].values):
        for key in ("predicted", "linear_predicted"):
            yield f"{name}: {key.replace('_', ' ')} steps", float(dataset[key][k])
        yield f"{name}: measured steps", round(float(mean[k]), 1)
        yield f"{name}: error", round(float(dataset["predicted"][k] / mean[k] - 1), 4)
    yield "largest error", round(float(np.abs(dataset["predicted"] / mean - 1).max()), 4)


def draw_tanh(dataset: xr.Dataset) -> figures.Figure:
    """Draw measured steps of every task with those of the table and of the linear theory."""
    plans = dataset.rename(task="plan", measured="measured_steps", predicted="predicted_descent_steps")
    plans["measured_mean"] = plans["measured_steps"].mean("seed")
    draw = partial(figures.predicted_and_measured, plans, title="one tanh unit")
    return figures.sheet(draw, width=3.5, height=2.4)


def panel_runs(name: str, optimum: str, preset: str) -> list[PaperRun]:
    """Return the runs of `panel`."""
    return [run for activation in ("linear", "relu") for run in pool_runs(name, activation, preset, optimum)]


def scoreboard_runs(optimum: str, preset: str) -> list[PaperRun]:
    """Return the runs of `scoreboard`."""
    return [run for name in _scored(preset) for run in pool_runs(name, "relu", preset, optimum)]


def _scored(preset: str) -> list[str]:
    """Return the pools of the scoreboard; the default only has those that are trained for figure 4 anyway."""
    return [name for name in pools() if name != "noise" or preset != "default"]


def _pools(
    results: list[xr.Dataset], names: Iterable[tuple[str, str]], preset: str, optimum: str
) -> Iterator[xr.Dataset]:
    """Yield forecasts and measured steps for each name and activation of a pool."""
    left = iter(results)
    for name, activation in names:
        own = [*islice(left, len(pool_runs(name, activation, preset, optimum)))]
        steps = [np.where(one["learned"], one["steps"], math.inf) for one in own]
        # A run is one training of one seed, or all trainings of one seed.
        seeds = SIZES[preset].seeds[activation]
        measured = np.stack(steps, axis=-1) if steps[0].ndim else np.reshape(steps, (-1, seeds))
        yield with_forecasts(plan_of(name, activation, preset), measured)


def panel(name: str, optimum: str, results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return one panel: steps against the first task's stop, for linear and ReLU units and two first tasks."""
    parts = _pools(results, ((name, "linear"), (name, "relu")), preset, optimum)
    plain = [part.sel(value=list(pools()[name].sketched)).drop_attrs(deep=False) for part in parts]
    # Missing seeds are nan.
    joined = xr.concat(plain, dim="activation", join="outer", combine_attrs="drop_conflicts")
    named = joined.assign_coords(activation=["linear", "relu"])
    return named.assign_attrs(vary=pools()[name].vary, panel=name, preset=preset, optimum=optimum)


def draw_panel(dataset: xr.Dataset) -> figures.Figure:
    """Draw linear units (left) and ReLU units (right): training as dots, theory dotted, direct training as a line."""
    vary = str(dataset.attrs["vary"]).replace("_", " ")
    titles = {"linear": "linear units", "relu": "ReLU units"}
    draws = (
        partial(figures.stop_curves, dataset.sel(activation=k), name=vary, title=title) for k, title in titles.items()
    )
    return figures.sheet(*draws, width=3.5, height=2.6)


def panel_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps of direct training and the median error of the forecasts."""
    for activation in ("linear", "relu"):
        one = dataset.sel(activation=activation)
        error = np.abs(one["predicted"] / one["measured"].mean("seed") - 1)
        yield f"{activation}: direct, predicted", int(one["direct_predicted"])
        yield f"{activation}: direct, trained", round(float(one["direct_measured"].mean("seed")), 1)
        yield f"{activation}: median error of total steps", round(float(np.median(error)), 4)


def scoreboard(optimum: str, results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return the steps of all ReLU curricula of all pools: by linear theory, by response theory, by training."""
    sources = {"linear": "linear_predicted", "response": "predicted", "measured": "measured"}
    parts = [
        part.drop_vars(("curve", "fine_stop")).stack(curriculum=("value", "stop"), create_index=False)
        for part in _pools(results, ((name, "relu") for name in _scored(preset)), preset, optimum)
    ]
    variables: dict[str, object] = {
        key: ("curriculum", np.concatenate([part[key].values for part in parts])) for key in ("value", "stop")
    }
    for key, name in sources.items():
        columns = [part[name].mean("seed") if key == "measured" else part[name] for part in parts]
        variables[key] = ("curriculum", np.concatenate(columns), described(f"total steps, {key}", STEPS))
        direct = np.array([float(part[f"direct_{name}"].mean()) for part in parts])
        variables[f"direct_{key}"] = ("pool_name", direct, described(f"direct training, {key}", STEPS))
    several = SIZES[preset].seeds["relu"] > 1
    spread = [part["measured"].std("seed", ddof=1) if several else part["measured"][0] * np.nan for part in parts]
    variables["spread"] = ("curriculum", np.concatenate(spread), described("total steps, spread", STEPS))
    of = np.repeat(_scored(preset), [part.sizes["curriculum"] for part in parts])
    coordinates = {"pool": ("curriculum", of), "pool_name": _scored(preset)}
    return xr.Dataset(variables, coords=coordinates, attrs={"preset": preset})


def scores(dataset: xr.Dataset, theory: str) -> dict[str, float]:
    """Return the quality of a forecast: rank correlation, sign of the speedup, errors, and regret of its stops."""
    predicted, measured = dataset[theory].values, dataset["measured"].values
    error = np.abs(predicted / measured - 1)
    pairs = ((theory, predicted), ("measured", measured))
    saves = [np.sign(dataset[f"direct_{k}"].sel(pool_name=dataset["pool"]).values - v) for k, v in pairs]
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


def scoreboard_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the scores of both theories."""
    for theory in ("linear", "response"):
        for key, value in scores(dataset, theory).items():
            yield f"{theory} theory: {key}", round(value, 4)


def draw_scoreboard(dataset: xr.Dataset) -> figures.Figure:
    """Draw predicted against measured steps, for the linear theory and for response features."""
    titles = {"linear": "ReLU units, linear theory", "response": "by response features"}
    draws = (partial(figures.predictions, dataset, theory=theory, title=title) for theory, title in titles.items())
    return figures.sheet(*draws, width=3.5, height=3.0)
