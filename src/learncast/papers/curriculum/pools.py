"""Pools of first tasks, trained for real beside their forecasts: figure 4 of curriculum2025."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, product
from typing import Any, cast

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from learncast import figures, tasks
from learncast.dynamics.descent import descend
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.papers.runs import PaperRun
from learncast.planning.curriculum import Curriculum, follow, followed
from learncast.planning.grounds.choice import ground_for
from learncast.planning.phase import phase_portrait
from learncast.planning.solving import solve
from learncast.practice.stage import Stage
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray

#: Stops at which the theory's curve is drawn.
FINE = np.linspace(0.05, 0.985, 60)
LEARNING_RATE, ACCURACY, BATCH = 1e-3, 0.99, 1000
#: The pool of a portrait and of its samples, and value and stop of a weaker and a stronger first task (ours).
SAMPLES = {
    "2A": ("4A", ((0.75, 0.9), (1.5, 0.8))),
    "2D": ("4B", ((0.5, 0.4), (1.5, 0.9))),
    "3B": ("4C", ((0.3, 0.9), (0.7, 0.7))),
    "3D": ("4D", ((5.0, 0.9), (20.0, 0.7))),
}
#: Training runs of a sample.
SEEDS = {"smoke": 1, "full": 3}

#: What `simulate.train_all` takes: trials or stages, network, training, optima.
Job = tuple[Any, Any, Any, Any]


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

    def seeds_of(self, activation: str) -> int:
        """Training runs of every curriculum of such units."""
        return self.seeds if activation == "relu" else self.linear_seeds


SIZES = {
    "smoke": Size((0.5, 0.9), 1, False, 1),
    "full": Size((0.3, 0.5, 0.7, 0.85, 0.95), 4, True, 3),
}


def network(activation: str) -> LinearRNN | Activated:
    """128 units, recurrence 0.96, one mode at 0.01."""
    linear = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    return linear if activation == "linear" else Activated(linear, activation)


def portrait_of(pool: Pool, activation: str, values: Any, accuracies: FloatArray) -> xr.Dataset:
    """Steps of the flow over the value of the first task and its stop."""
    over: dict[str, Any] = {"vary": pool.vary, "values": np.array(values), "accuracies": accuracies}
    return phase_portrait(pool.target, network(activation), **over, learning_rate=LEARNING_RATE, accuracy=ACCURACY)


def settings_of(seed: int, record: tuple[str, ...] = (), **options: Any) -> Any:
    """Of every training here."""
    from learncast import simulate

    settings = simulate.Training(LEARNING_RATE, batch=BATCH, learn=("input", "output"), record=record)
    return settings.with_(seed=seed, **options)


@dataclass(frozen=True, eq=False)
class PoolPlan:
    """Direct training on a pool's target and every curriculum to it, with their forecasts.

    Attributes
    ----------
    pool : Pool
    activation : str
    values, stops : tuple of float
        First tasks, and accuracies at which they are stopped.
    forecasts, linear : list of Curriculum
        Of direct training, then of every value and stop: for these units, and what is said of linear ones.
    """

    pool: Pool
    activation: str
    values: tuple[float, ...]
    stops: tuple[float, ...]
    forecasts: list[Curriculum]
    linear: list[Curriculum]

    @classmethod
    def of(cls, pool: Pool, activation: str, *, values: Sequence[float], stops: Sequence[float]) -> PoolPlan:
        """Forecast all curricula."""
        last, firsts = Stage(pool.target, accuracy=ACCURACY), [pool.first(value) for value in values]
        plans = [[last]] + [[Stage(task, accuracy=s), last] for task in firsts for s in stops]
        forecasts, linear = (
            _forecasts(plans, firsts, pool.target, net) for net in (network(activation), network("linear"))
        )
        return cls(pool, activation, tuple(values), tuple(stops), forecasts, linear)

    def place(self, value: float | None, stop: float | None) -> int:
        """Where a curriculum is among the forecasts; direct training has no value."""
        if value is None or stop is None:
            return 0
        return 1 + self.values.index(value) * len(self.stops) + self.stops.index(stop)

    def job(self, place: int, seed: int) -> Job:
        """One training, given up at twenty times its forecast."""
        told = self.forecasts[place]
        settings = settings_of(seed, most_steps=20 * math.ceil(told.descent_steps))
        stages = [outcome.stage for outcome in told.outcomes]
        return stages, network(self.activation), settings, [modes.optimum for modes in told.modes]


def _forecasts(plans: list[list[Stage]], firsts: list[tasks.Task], target: tasks.Task, net: Any) -> list[Curriculum]:
    """Forecasts of many plans over the same tasks, each of which is measured once."""
    ground = ground_for([*firsts, target], net, learning_rate=LEARNING_RATE, by="modes")
    names = [task.name for task in ground.tasks]
    return [followed(stages, [names.index(stage.task.name) for stage in stages], ground) for stages in plans]


def _values(pool: Pool, activation: str, preset: str) -> tuple[float, ...]:
    """The first tasks that are trained: of ReLU units all, if the preset is large."""
    return pool.values if SIZES[preset].whole and activation == "relu" else pool.sketched


@cache
def planned(name: str, activation: str, preset: str) -> PoolPlan:
    """The curricula of one of the `pools`."""
    pool = pools()[name]
    return PoolPlan.of(pool, activation, values=_values(pool, activation, preset), stops=SIZES[preset].stops)


def pool_runs(name: str, activation: str, preset: str) -> list[PaperRun]:
    """Every training of one of the `pools`, curriculum by curriculum, direct training first."""
    size, shared = SIZES[preset], {"pool": name, "activation": activation, "preset": preset}
    ways = [(None, None), *product(_values(pools()[name], activation, preset), size.stops)]
    return [
        PaperRun(train_once, {**shared, "value": value, "stop": stop, "seed": seed})
        for (value, stop), seed in product(ways, range(size.seeds_of(activation)))
    ]


def curriculum_job(settings: Mapping[str, Any]) -> Job:
    """The job of one of `pool_runs`."""
    plan = planned(settings["pool"], settings["activation"], settings["preset"])
    return plan.job(plan.place(settings["value"], settings["stop"]), settings["seed"])


#: Tasks of the tanh table: settings of `tasks.leaky_integration` with the weights' own timescale.
TANH_TASKS = ({"gain": 0.5}, {"gain": 1.0}, {"gain": 1.0, "correlation": 0.5}, {"gain": 1.0, "timescale": 20.0})
TANH_ACCURACY = 0.3
#: Tasks of the table and training runs of each, by preset.
TANH_SIZES = {"smoke": (1, 1), "full": (len(TANH_TASKS), 3)}


@dataclass(frozen=True, eq=False)
class TanhGoal:
    """The strength that one tanh unit is to reach, and the steps its table and the linear theory tell."""

    task: tasks.Task
    strength: float
    steps: int
    linear_steps: float


@cache
def tanh_goal(index: int) -> TanhGoal:
    """Of one of `TANH_TASKS`."""
    task = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0).varied(**TANH_TASKS[index])
    solution = solve(task, network("tanh"), learning_rate=LEARNING_RATE)
    steps = math.ceil(solution.time_to(TANH_ACCURACY).flow_steps)
    goal = solution.descend(steps)["strength"].values.reshape(steps + 1)[-1]  # type: ignore[attr-defined]
    linear = solve(task, network("linear"), learning_rate=LEARNING_RATE)
    straight = linear.at(np.arange(steps + 1.0))["strength"].values[:, 0]
    told = float(np.argmax(straight >= goal)) if (straight >= goal).any() else math.inf
    return TanhGoal(task, float(goal), steps, told)


def tanh_runs(preset: str) -> list[PaperRun]:
    """Every training of the tanh table, task by task."""
    number, seeds = TANH_SIZES[preset]
    return [PaperRun(train_once, {"task": k, "seed": seed}) for k, seed in np.ndindex(number, seeds)]


def tanh_job(settings: Mapping[str, Any]) -> Job:
    """The job of one of `tanh_runs`."""
    from learncast import simulate

    goal = tanh_goal(settings["task"])
    rule = simulate.Accuracy(0.99, optimum=goal.strength / 0.99)  # entered from below, at the goal
    training = settings_of(settings["seed"], until=rule, most_steps=3 * goal.steps)
    return goal.task, network("tanh"), training, None


def several_at_a_time(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute trainings by processes of this machine; nothing is kept before all are done."""
    from learncast import simulate

    jobs = [_job(run.settings) for run in runs]
    return [_steps(run) for run in simulate.train_all(jobs, progress=progress)]


def _job(settings: Mapping[str, Any]) -> Job:
    return curriculum_job(settings) if "pool" in settings else tanh_job(settings)


def train_once(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train one curriculum of a pool, or one tanh unit on one task, once."""
    from learncast import simulate

    source, net, training, optima = _job(settings)
    return _steps(simulate.train(source, net, training, optima=optima, progress=progress))


def _steps(run: Any) -> xr.Dataset:
    """Steps of a training, and whether it reached what it was to reach."""
    return xr.Dataset(
        {
            "steps": ((), float(run.steps), described("measured steps", STEPS)),
            "learned": ((), run.status.name == "ok", described("whether the last stage was learned", "1")),
        }
    )


def beside_forecasts(plan: PoolPlan, measured: FloatArray) -> xr.Dataset:
    """Forecasts of the target directly and through each first task and stop, and steps measured.

    Parameters
    ----------
    plan : PoolPlan
    measured : (curricula, seeds)
        In the order of the plan's forecasts.

    Returns
    -------
    Dataset
        Over (value, stop): ``predicted`` steps of descent with ``predicted_low`` and ``predicted_high``,
        ``linear_predicted``, what the theory of linear units says, and ``measured`` over (value, stop, seed); the
        same of direct training with the prefix ``direct_``.
    """
    seeds, grid = measured.shape[1], (len(plan.values), len(plan.stops))
    forecasts = plan.forecasts
    bounds = np.array([f.descent_interval or (f.descent_steps,) * 2 for f in forecasts], dtype=float)
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
    curve = portrait_of(plan.pool, plan.activation, plan.values, FINE)
    variables["curve"] = (("value", "fine_stop"), curve["total_steps"].values, described("steps of the flow", STEPS))
    return xr.Dataset(
        variables,
        coords={"value": list(plan.values), "stop": list(plan.stops), "seed": np.arange(seeds), "fine_stop": FINE},
        attrs={"vary": plan.pool.vary, "activation": plan.activation, "target": plan.pool.target.name},
    )


def tanh_table(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """One tanh unit: steps to the same strength by its response table, by the theory of linear units, by training.

    A tanh unit's best weights on a linear target lie at an input weight of 0, to which it creeps for ever; so the
    steps are those to the strength at which the table's flow has covered part of the way: accuracy 0.3 by its loss.
    """
    number, seeds = TANH_SIZES[preset]
    goals = [tanh_goal(k) for k in range(number)]
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


def draw_tanh(dataset: xr.Dataset) -> figures.Figure:
    """Measured steps of every task beside the table's and the linear theory's."""
    plans = dataset.rename(task="plan", measured="measured_steps", predicted="predicted_descent_steps")
    plans["measured_mean"] = plans["measured_steps"].mean("seed")
    draw = partial(figures.predicted_and_measured, plans, title="4Y  one tanh unit, by its response table")
    return figures.sheet(draw, width=6.4, height=3.2)


def panel_runs(name: str, preset: str) -> list[PaperRun]:
    """What `panel` needs."""
    return [run for activation in ("linear", "relu") for run in pool_runs(name, activation, preset)]


def scoreboard_runs(preset: str) -> list[PaperRun]:
    """What `scoreboard` needs."""
    return [run for name in pools() for run in pool_runs(name, "relu", preset)]


def _pools(found: list[xr.Dataset], names: Iterable[tuple[str, str]], preset: str) -> Iterator[xr.Dataset]:
    """Trainings beside their forecasts, for each name of a pool and its units in turn."""
    steps = (float(one["steps"]) if one["learned"] else math.inf for one in found)
    for name, activation in names:
        own = np.array([*islice(steps, len(pool_runs(name, activation, preset)))])
        yield beside_forecasts(planned(name, activation, preset), own.reshape(-1, SIZES[preset].seeds_of(activation)))


def panel(name: str, found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """One panel: linear and ReLU units, a smaller and a larger value, steps against the first task's stop."""
    parts = _pools(found, ((name, "linear"), (name, "relu")), preset)
    plain = [part.sel(value=list(pools()[name].sketched)).drop_attrs(deep=False) for part in parts]
    # Where there are fewer seeds the others are nan.
    joined = xr.concat(plain, dim="activation", join="outer", combine_attrs="drop_conflicts")
    named = joined.assign_coords(activation=["linear", "relu"])
    return named.assign_attrs(vary=pools()[name].vary, panel=name, preset=preset)


def draw_panel(dataset: xr.Dataset) -> figures.Figure:
    """Left linear, right ReLU units: training as points, theory dotted through them, direct training as a line."""
    vary, kinds = str(dataset.attrs["vary"]).replace("_", " "), {"linear": "linear units", "relu": "ReLU units"}
    draws = (
        partial(figures.stop_curves, dataset.sel(activation=k), name=vary, title=f"{dataset.attrs['panel']}  {kind}")
        for k, kind in kinds.items()
    )
    return figures.sheet(*draws, width=4.4, height=3.4)


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


def scoreboard(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """All ReLU curricula of all pools, one row each: linear theory, response theory, training."""
    told = {"linear": "linear_predicted", "response": "predicted", "measured": "measured"}
    parts = [
        part.drop_vars(("curve", "fine_stop")).stack(curriculum=("value", "stop"), create_index=False)
        for part in _pools(found, ((name, "relu") for name in pools()), preset)
    ]
    variables: dict[str, Any] = {
        key: ("curriculum", np.concatenate([part[key].values for part in parts])) for key in ("value", "stop")
    }
    for key, name in told.items():
        columns = [part[name].mean("seed") if key == "measured" else part[name] for part in parts]
        variables[key] = ("curriculum", np.concatenate(columns), described(f"total steps, {key}", STEPS))
        alone = np.array([float(part[f"direct_{name}"].mean()) for part in parts])
        variables[f"direct_{key}"] = ("pool_name", alone, described(f"direct training, {key}", STEPS))
    spread = np.concatenate([_spread(part["measured"]) for part in parts])
    variables["spread"] = ("curriculum", spread, described("total steps, spread", STEPS))
    of = np.repeat(list(pools()), [part.sizes["curriculum"] for part in parts])
    coordinates = {"pool": ("curriculum", of), "pool_name": list(pools())}
    return xr.Dataset(variables, coords=coordinates, attrs={"preset": preset})


def _spread(measured: xr.DataArray) -> FloatArray:
    """Standard deviation over seeds; of one seed it is unknown."""
    return np.asarray(measured.std("seed", ddof=1) if measured.sizes["seed"] > 1 else measured.mean("seed") * np.nan)


def scores(dataset: xr.Dataset, theory: str) -> dict[str, float]:
    """How good a forecast is: rank correlation, sign of the speedup, errors, and the price of its choices of stop."""
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


def scoreboard_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Both theories' scores."""
    return {
        f"{label}: {key}": round(value, 4)
        for label, theory in (("linear theory", "linear"), ("response theory", "response"))
        for key, value in scores(dataset, theory).items()
    }


def draw_scoreboard(dataset: xr.Dataset) -> figures.Figure:
    """Predicted against measured steps, linear theory and response features."""
    draws = (
        partial(figures.predictions, dataset, theory=theory, title=f"ReLU curricula, {words}")
        for theory, words in (("linear", "linear theory"), ("response", "response features"))
    )
    return figures.sheet(*draws, width=4.2, height=3.8)


def sample_runs(samples: Sequence[tuple[str, int]], units: Sequence[str], preset: str) -> list[PaperRun]:
    """Samples, by panel and number, of each kind of units."""
    return [
        PaperRun(train_sample, {"panel": panel, "index": index, "activation": unit, "seeds": SEEDS[preset]})
        for (panel, index), unit in product(samples, units)
    ]


def train_sample(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Curriculum and direct training: theory, training, and for linear units descent on the same statistics."""
    panel, activation = settings["panel"], settings["activation"]
    name, choices = SAMPLES[panel]
    value, accuracy = choices[settings["index"]]
    pool, net = pools()[name], network(activation)
    vary, target = pool.vary, pool.target
    forecast = partial(follow, network=net, learning_rate=LEARNING_RATE)
    staged = forecast([Stage(pool.first(value), accuracy=accuracy), Stage(target, accuracy=ACCURACY)])
    alone = forecast([Stage(target, accuracy=ACCURACY)])
    assert staged.direct is not None
    horizon = int(1.15 * max(staged.flow_steps, staged.direct.flow_steps)) + 20
    times = np.arange(horizon + 1.0)
    variables: dict[str, Any] = {}
    for k, (name, curriculum) in enumerate((("curriculum", staged), ("direct", alone))):
        theory = curriculum.at(times)["strength"].values[:, 0]
        variables[f"theory_{name}"] = ("time", theory, described(f"theory, {name}", "1"))
        trained = _trained(curriculum, net, horizon, settings["seeds"])
        variables[f"trained_{name}"] = (("seed", "time"), trained, described(f"training, {name}", "1"))
        if isinstance(net, LinearRNN):
            descent = _descended(curriculum, net, horizon)
            variables[f"descent_{name}"] = ("time", descent, described(f"descent, {name}", "1"))
        progress((k + 1) / 2)
    return xr.Dataset(
        variables,
        coords={"time": ("time", times, described("training time", STEPS))},
        attrs={
            "panel": panel,
            "vary": vary,
            "activation": activation,
            "value": value,
            "stop_accuracy": accuracy,
            "target_value": float(target.recipe.parameters[vary]) if target.recipe else np.nan,
            "target_optimum": float(staged.modes[1].optimum[0]),
            "first_optimum": float(staged.modes[0].optimum[0]),
            "switch_step": float(staged.outcomes[0].descent_steps),
            "direct_steps": staged.direct.flow_steps,
            "curriculum_steps": staged.flow_steps,
            "direct_descent_steps": staged.direct.descent_steps,
            "curriculum_descent_steps": staged.descent_steps,
        },
    )


def _schedule(curriculum: Curriculum, horizon: int) -> list[Stage]:
    """The stages by predicted whole steps; the last one fills the horizon."""
    stages, left = [], horizon
    for outcome in curriculum.outcomes[:-1]:
        steps = min(int(outcome.descent_steps), left)
        stages.append(Stage(outcome.stage.task, steps=steps))
        left -= steps
    return [*stages, Stage(curriculum.outcomes[-1].stage.task, steps=left)]


def _trained(curriculum: Curriculum, net: Any, horizon: int, seeds: int) -> np.ndarray[Any, Any]:
    """Strength at every step of real training, (seeds, steps)."""
    from learncast import simulate

    stages = _schedule(curriculum, horizon)
    runs = [simulate.train(stages, net, settings_of(seed, record=("strength",))) for seed in range(seeds)]
    return np.stack([run["strength"].values[:, 0] for run in runs])


def _descended(curriculum: Curriculum, net: LinearRNN, horizon: int) -> np.ndarray[Any, Any]:
    """Strength at every step of descent on the exact statistics."""
    parts = []
    for stage in _schedule(curriculum, horizon):
        assert stage.steps is not None
        run = descend(stage.task, net, learning_rate=LEARNING_RATE, steps=int(stage.steps), learn=("input", "output"))
        parts.append(run.strength[:, 0])
        net = cast(LinearRNN, run.network_at(stage.steps))
    return np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])
