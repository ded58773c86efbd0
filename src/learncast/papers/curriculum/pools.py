"""Pools of first tasks, trained for real beside their forecasts: figure 4 of curriculum2025."""

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

from learncast import figures, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.papers.runs import PaperRun
from learncast.planning.curriculum import Curriculum, follow, followed
from learncast.planning.methods.choice import ground_for
from learncast.planning.phase import phase_portrait
from learncast.planning.solving import solve
from learncast.procedure.goals import Accuracy
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import STEPS, described
from learncast.theory.dynamics.descent import descend

if TYPE_CHECKING:
    from learncast.training import TrainingJob

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
#: Timescales in steps that the print's kappa = 0.5 may stand for: a rate per step, or steps.
READINGS = {"rate": 2.0, "steps": 0.5}
#: A pool with the same target, whose direct training serves both.
SAME_TARGET = {"4B": "4A"}
#: Where a ReLU network has learned: at the optimum of its response features (ours), or where training converges.
OPTIMA = ("response", "trained")
#: Training runs of a sample.
SEEDS = {"smoke": 1, "full": 3}


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


#: Last steps over which the strength at a plateau is averaged.
AVERAGED = 50


@cache
def pools() -> dict[str, Pool]:
    """The paper's four panels and a fifth pool, 23 first tasks in all; the values are ours.

    While K varies the print holds kappa = 0.5, here read as a rate: weights exp(-0.5 (T - t)), a timescale of 2 steps.
    """
    plain = tasks.integration(steps=50, name="target")
    held = tasks.leaky_integration(steps=50, timescale=READINGS["rate"], correlation=0.5, name="target")
    correlated = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.5, name="target")
    white = tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.0, name="target")
    return {
        "4A": Pool("target_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.75, 1.5)),
        "4B": Pool("input_strength", plain, (0.5, 0.75, 1.25, 1.5, 2.0), (0.5, 1.5)),
        "4C": Pool("correlation", held, (0.0, 0.25, 0.65, 0.8), (0.25, 0.8)),
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


def settings_of(seed: int, **options: Any) -> Training:
    """Settings of every training here."""
    return Training(LEARNING_RATE, batch=BATCH, seed=seed, **options)


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
        last, firsts = Stage(pool.target, goal=ACCURACY), [pool.first(value) for value in values]
        plans = [[last]] + [[Stage(task, goal=s), last] for task in firsts for s in stops]
        forecasts, linear = (
            _forecasts(plans, firsts, pool.target, net) for net in (network(activation), network("linear"))
        )
        return cls(pool, activation, tuple(values), tuple(stops), forecasts, linear)

    def place(self, value: float | None, stop: float | None) -> int:
        """Where a curriculum is among the forecasts; direct training has no value."""
        if value is None or stop is None:
            return 0
        return 1 + self.values.index(value) * len(self.stops) + self.stops.index(stop)

    def job(self, place: int, seed: int) -> TrainingJob:
        """One training, given up at twenty times its forecast."""
        told = self.forecasts[place]
        settings = settings_of(seed, most_steps=20 * math.ceil(told.descent_steps))
        return _to_optima(
            [outcome.stage for outcome in told.outcomes],
            [modes.optimum for modes in told.modes],
            network(self.activation),
            settings,
        )


def _to_optima(stages: Sequence[Stage], optima: Sequence[FloatArray], net: Any, settings: Training) -> TrainingJob:
    """A training whose stages end near given optima."""
    from learncast.training import TrainingJob

    goals = [
        Accuracy(float(stage.accuracy or 0.0), optimum=tuple(optimum))
        for stage, optimum in zip(stages, optima, strict=True)
    ]
    ends = [Stage(stage.task, goal) for stage, goal in zip(stages, goals, strict=True)]
    return TrainingJob(ends, net, settings, record=())


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


def pool_runs(name: str, activation: str, preset: str, optimum: str = "response") -> list[PaperRun]:
    """Every training of one of the `pools`, curriculum by curriculum, direct training first.

    Where the optimum is found by training, all of a seed are one run: each task is then trained to its optimum once.
    """
    size, seeds = SIZES[preset], range(SIZES[preset].seeds_of(activation))
    if optimum == "trained" and activation != "linear":
        shared = {"pool": name, "activation": activation, "preset": preset}
        return [PaperRun(train_to_trained_optima, {**shared, "seed": seed}) for seed in seeds]
    ways = [(None, None), *product(_values(pools()[name], activation, preset), size.stops)]
    return [
        PaperRun(train_once, {"pool": of, "activation": activation, "value": value, "stop": stop, "seed": seed})
        for (value, stop), seed in product(ways, seeds)
        for of in (name if value is not None else SAME_TARGET.get(name, name),)
    ]


def curriculum_job(settings: Mapping[str, Any]) -> TrainingJob:
    """The job of one of `pool_runs`."""
    value, stop = settings["value"], settings["stop"]
    plan = _one_plan(settings["pool"], settings["activation"], value, stop)
    return plan.job(plan.place(value, stop), settings["seed"])


@cache
def _one_plan(name: str, activation: str, value: float | None, stop: float | None) -> PoolPlan:
    """Direct training and one curriculum of a pool; without one, direct training alone."""
    values, stops = ((), ()) if value is None or stop is None else ((value,), (stop,))
    return PoolPlan.of(pools()[name], activation, values=values, stops=stops)


def train_to_trained_optima(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """All curricula of a pool by one seed, to optima that training itself has found: the paper's way.

    Each task is first trained until it stays where it is; the strength it then has is the optimum of every stage on it.
    """
    from learncast.training import Plateau, train

    plan = planned(settings["pool"], settings["activation"], settings["preset"])
    seed, found = settings["seed"], dict[str, FloatArray]()
    steps, learned = [], []
    for k in range(len(plan.forecasts)):
        job = plan.job(k, seed)
        for stage in job.source:
            if stage.task.name not in found:
                to_end = train(stage.task, job.network, job.training, goal=Plateau(), record=("strength",))
                found[stage.task.name] = to_end["strength"].values[-AVERAGED:].mean(axis=0)
        optima = [found[stage.task.name] for stage in job.source]
        run = _to_optima(job.source, optima, job.network, job.training).run()
        steps.append(float(run.steps))
        learned.append(run.status.name == "ok")
        progress((k + 1) / len(plan.forecasts))
    return xr.Dataset(
        {
            "steps": ("curriculum", steps, described("measured steps", STEPS)),
            "learned": ("curriculum", learned, described("whether the last stage was learned", "1")),
            "optimum": ("task", [float(v[0]) for v in found.values()], described("strength training ends at", "1")),
        },
        coords={"task": list(found)},
    )


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


def tanh_job(settings: Mapping[str, Any]) -> TrainingJob:
    """The job of one of `tanh_runs`."""
    from learncast.training import TrainingJob

    goal = tanh_goal(settings["task"])
    rule = Accuracy(0.99, optimum=(goal.strength / 0.99,))  # entered from below, at the goal
    training = settings_of(settings["seed"], most_steps=3 * goal.steps)
    return TrainingJob(goal.task, network("tanh"), training, rule, record=())


def _job(settings: Mapping[str, Any]) -> TrainingJob:
    return curriculum_job(settings) if "pool" in settings else tanh_job(settings)


def train_once(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train one curriculum of a pool, or one tanh unit on one task, once."""
    return _steps(_job(settings).run(progress))


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
    return figures.sheet(draw, width=3.5, height=2.4)


def panel_runs(name: str, optimum: str, preset: str) -> list[PaperRun]:
    """What `panel` needs."""
    return [run for activation in ("linear", "relu") for run in pool_runs(name, activation, preset, optimum)]


def scoreboard_runs(optimum: str, preset: str) -> list[PaperRun]:
    """What `scoreboard` needs."""
    return [run for name in pools() for run in pool_runs(name, "relu", preset, optimum)]


def _pools(
    found: list[xr.Dataset], names: Iterable[tuple[str, str]], preset: str, optimum: str
) -> Iterator[xr.Dataset]:
    """Trainings beside their forecasts, for each name of a pool and its units in turn."""
    left = iter(found)
    for name, activation in names:
        own = [*islice(left, len(pool_runs(name, activation, preset, optimum)))]
        steps = [np.where(one["learned"], one["steps"], math.inf) for one in own]
        seeds = SIZES[preset].seeds_of(activation)
        # A run is one training, curriculum by curriculum and seed by seed, or all of one seed.
        measured = np.stack(steps, axis=-1) if steps[0].ndim else np.reshape(steps, (-1, seeds))
        yield beside_forecasts(planned(name, activation, preset), measured)


def panel(name: str, optimum: str, found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """One panel: linear and ReLU units, a smaller and a larger value, steps against the first task's stop."""
    parts = _pools(found, ((name, "linear"), (name, "relu")), preset, optimum)
    plain = [part.sel(value=list(pools()[name].sketched)).drop_attrs(deep=False) for part in parts]
    # Where there are fewer seeds the others are nan.
    joined = xr.concat(plain, dim="activation", join="outer", combine_attrs="drop_conflicts")
    named = joined.assign_coords(activation=["linear", "relu"])
    return named.assign_attrs(vary=pools()[name].vary, panel=name, preset=preset, optimum=optimum)


def draw_panel(dataset: xr.Dataset) -> figures.Figure:
    """Left linear, right ReLU units: training as points, theory dotted through them, direct training as a line."""
    vary, kinds = str(dataset.attrs["vary"]).replace("_", " "), {"linear": "linear units", "relu": "ReLU units"}
    draws = (
        partial(
            figures.stop_curves,
            dataset.sel(activation=k),
            name=vary,
            title=f"{dataset.attrs['panel']}  {kind}" if k == "linear" else kind,
        )
        for k, kind in kinds.items()
    )
    return figures.sheet(*draws, width=3.5, height=2.6)


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


def scoreboard(optimum: str, found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """All ReLU curricula of all pools, one row each: linear theory, response theory, training."""
    told = {"linear": "linear_predicted", "response": "predicted", "measured": "measured"}
    parts = [
        part.drop_vars(("curve", "fine_stop")).stack(curriculum=("value", "stop"), create_index=False)
        for part in _pools(found, ((name, "relu") for name in pools()), preset, optimum)
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
        partial(figures.predictions, dataset, theory=theory, title=words)
        for theory, words in (("linear", "4X  ReLU units, linear theory"), ("response", "by response features"))
    )
    return figures.sheet(*draws, width=3.5, height=3.0)


def sample_runs(samples: Sequence[tuple[str, int]], units: Sequence[str], preset: str) -> list[PaperRun]:
    """Samples, by panel and number, of each kind of units: the curriculum, and direct training on its target."""
    shared, runs = {"seeds": SEEDS[preset]}, []
    for (panel, index), unit in product(samples, units):
        name, choices = SAMPLES[panel]
        value, accuracy = choices[index]
        way = {"activation": unit, **shared}
        runs.append(PaperRun(train_path, {"pool": name, "value": value, "stop": accuracy, **way}))
        runs.append(PaperRun(train_path, {"pool": SAME_TARGET.get(name, name), "value": None, "stop": None, **way}))
    return runs


def sampled(samples: Sequence[tuple[str, int]], units: Sequence[str], found: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Each sample's curriculum and direct training together, as `sample_runs` has them."""
    pairs = zip(found[::2], found[1::2], strict=True)
    return [
        _sample(panel, index, unit, *pair)
        for ((panel, index), unit), pair in zip(product(samples, units), pairs, strict=True)
    ]


def _sample(panel: str, index: int, activation: str, staged: xr.Dataset, alone: xr.Dataset) -> xr.Dataset:
    """Theory, training, and for linear units descent on the same statistics, over the longer of both times."""
    name, choices = SAMPLES[panel]
    (value, accuracy), target = choices[index], pools()[name].target
    longest = max((staged["time"], alone["time"]), key=len)
    parts = [
        one.reindex(time=longest).rename({key: f"{key}_{words}" for key in one.data_vars})
        for one, words in ((staged, "curriculum"), (alone, "direct"))
    ]
    return xr.merge(parts, combine_attrs="drop").assign_attrs(
        panel=panel,
        vary=pools()[name].vary,
        activation=activation,
        value=value,
        stop_accuracy=accuracy,
        target_value=float(target.recipe.parameters[pools()[name].vary]) if target.recipe else np.nan,
        target_optimum=staged.attrs["optimum"],
        first_optimum=staged.attrs["first_optimum"],
        switch_step=staged.attrs["switch_step"],
        **{f"{words}_steps": one.attrs["flow_steps"] for words, one in (("direct", alone), ("curriculum", staged))},
        **{f"{words}_descent_steps": one.attrs["steps"] for words, one in (("direct", alone), ("curriculum", staged))},
    )


def train_path(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """One curriculum, or direct training: its strength by theory, by training, and for linear units by descent."""
    pool, net = pools()[settings["pool"]], network(settings["activation"])
    value, accuracy, target = settings["value"], settings["stop"], Stage(pool.target, goal=ACCURACY)
    stages = [target] if value is None else [Stage(pool.first(value), goal=accuracy), target]
    curriculum = follow(stages, network=net, learning_rate=LEARNING_RATE)
    horizon = int(1.15 * curriculum.flow_steps) + 20
    times = np.arange(horizon + 1.0)
    variables: dict[str, Any] = {
        "theory": ("time", curriculum.at(times)["strength"].values[:, 0], described("theory", "1")),
        "trained": (
            ("seed", "time"),
            _trained(curriculum, net, horizon, settings["seeds"]),
            described("training", "1"),
        ),
    }
    if isinstance(net, LinearRNN):
        variables["descent"] = ("time", _descended(curriculum, net, horizon), described("descent", "1"))
    progress(1.0)
    return xr.Dataset(
        variables,
        coords={"time": ("time", times, described("training time", STEPS))},
        attrs={
            "optimum": float(curriculum.modes[-1].optimum[0]),
            "first_optimum": float(curriculum.modes[0].optimum[0]),
            "switch_step": float(curriculum.outcomes[0].descent_steps),
            "flow_steps": curriculum.flow_steps,
            "steps": curriculum.descent_steps,
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
    from learncast.training import train

    stages = _schedule(curriculum, horizon)
    runs = [train(stages, net, settings_of(seed), record=("strength",)) for seed in range(seeds)]
    return np.stack([run["strength"].values[:, 0] for run in runs])


def _descended(curriculum: Curriculum, net: LinearRNN, horizon: int) -> np.ndarray[Any, Any]:
    """Strength at every step of descent on the exact statistics."""
    parts = []
    for stage in _schedule(curriculum, horizon):
        assert stage.steps is not None
        run = descend(stage.task, net, learning_rate=LEARNING_RATE, steps=int(stage.steps))
        parts.append(run.strength[:, 0])
        net = cast(LinearRNN, run.network_at(stage.steps))
    return np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])
