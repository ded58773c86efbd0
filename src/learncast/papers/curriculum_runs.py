"""The trainings behind figure 4 of curriculum2025: pools of first tasks, and one job for each curriculum and seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.dynamics.modes import modes_of
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.papers.runs import PaperRun
from learncast.planning.curricula.curriculum import Curriculum, Stage, follow_modes
from learncast.planning.solving import solve
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, described

LEARNING_RATE, ACCURACY, BATCH = 1e-3, 0.99, 1000

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
        from learncast import simulate

        told = self.forecasts[place]
        settings = simulate.Training(LEARNING_RATE, batch=BATCH, learn=("input", "output"), record=())
        settings = settings.with_(seed=seed, most_steps=20 * math.ceil(told.descent_steps))
        stages = [outcome.stage for outcome in told.outcomes]
        return stages, network(self.activation), settings, [modes.optimum for modes in told.modes]


def _forecasts(plans: list[list[Stage]], firsts: list[tasks.Task], target: tasks.Task, net: Any) -> list[Curriculum]:
    """Forecasts of many plans over the same tasks, each of which is measured once."""
    last, *rest = modes_of([target, *firsts], net)
    own = {task.name: modes for task, modes in zip(firsts, rest, strict=True)}
    return [
        follow_modes(stages, (*(own[stage.task.name] for stage in stages[:-1]), last), net, LEARNING_RATE)
        for stages in plans
    ]


@cache
def planned(name: str, activation: str, preset: str) -> PoolPlan:
    """The curricula of one of the `pools`."""
    size, pool = SIZES[preset], pools()[name]
    whole = size.whole and activation == "relu"
    return PoolPlan.of(pool, activation, values=pool.values if whole else pool.sketched, stops=size.stops)


def pool_runs(name: str, activation: str, preset: str) -> list[PaperRun]:
    """Every training of one of the `pools`, curriculum by curriculum, direct training first."""
    size, pool = SIZES[preset], pools()[name]
    values = pool.values if size.whole and activation == "relu" else pool.sketched
    shared = {"pool": name, "activation": activation, "preset": preset}
    ways = [(None, None), *((value, stop) for value in values for stop in size.stops)]
    return [
        PaperRun(train_curriculum, {**shared, "value": value, "stop": stop, "seed": seed})
        for value, stop in ways
        for seed in range(size.seeds_of(activation))
    ]


def curriculum_job(settings: Mapping[str, Any]) -> Job:
    """The job of one of `pool_runs`."""
    plan = planned(settings["pool"], settings["activation"], settings["preset"])
    return plan.job(plan.place(settings["value"], settings["stop"]), settings["seed"])


def train_curriculum(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train one curriculum of a pool once."""
    return _trained(curriculum_job, settings, progress)


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
    return [PaperRun(train_tanh, {"task": k, "seed": seed}) for k in range(number) for seed in range(seeds)]


def tanh_job(settings: Mapping[str, Any]) -> Job:
    """The job of one of `tanh_runs`."""
    from learncast import simulate

    goal = tanh_goal(settings["task"])
    training = simulate.Training(LEARNING_RATE, batch=BATCH, learn=("input", "output"), record=())
    rule = simulate.Accuracy(0.99, optimum=goal.strength / 0.99)  # entered from below, at the goal
    return (
        goal.task,
        network("tanh"),
        training.with_(seed=settings["seed"], until=rule, most_steps=3 * goal.steps),
        None,
    )


def train_tanh(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train one tanh unit on one task once."""
    return _trained(tanh_job, settings, progress)


def several_at_a_time(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Compute trainings by processes of this machine; nothing is kept before all are done."""
    from learncast import simulate

    jobs = [_JOBS[run.function](run.settings) for run in runs]
    return [_steps(run) for run in simulate.train_all(jobs, progress=progress)]


_JOBS: dict[Any, Callable[[Mapping[str, Any]], Job]] = {train_curriculum: curriculum_job, train_tanh: tanh_job}


def _trained(job: Callable[[Mapping[str, Any]], Job], settings: Mapping[str, Any], progress: Progress) -> xr.Dataset:
    from learncast import simulate

    source, net, training, optima = job(settings)
    return _steps(simulate.train(source, net, training, optima=optima, progress=progress))


def _steps(run: Any) -> xr.Dataset:
    """Steps of a training, and whether it reached what it was to reach."""
    return xr.Dataset(
        {
            "steps": ((), float(run.steps), described("measured steps", STEPS)),
            "learned": ((), run.status.name == "ok", described("whether the last stage was learned", "1")),
        }
    )
