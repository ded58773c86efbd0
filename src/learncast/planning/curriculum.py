"""A curriculum: tasks learned one after another by the same network."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.display import Displayable, HtmlRepr, Plot, Table, format_number
from learncast.networks import Network
from learncast.planning.batches import BatchSteps, in_batches
from learncast.planning.methods.choice import ground_for
from learncast.planning.methods.ground import Ground, ReplicaSteps, State
from learncast.planning.wording import Explanation, descended, explain
from learncast.practice.stage import Stage
from learncast.results import STEPS, Provenance, Status, Trajectory, described, load_dataset, save_dataset
from learncast.theory.assumptions import Assumption, Trust, worst
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_times, worst_status
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.trials import seed_of

if TYPE_CHECKING:
    import xarray as xr

Interval = tuple[float, float]

#: Share of direct training that is not worth another task: what a batch, a seed or a learning rate that is a little off
#: changes by as much.
NEGLIGIBLE = 0.02


@dataclass(frozen=True, eq=False)
class StageOutcome:
    """What one stage of a curriculum did.

    Attributes
    ----------
    flow_steps, descent_steps : float
        Duration; the one a real number, the other whole.
    start, end : (modes,)
        Strengths before and after, by the flow.
    accuracy : float
        Accuracy on the stage's own task at its end.
    interval : (low, high), optional
        95% confidence interval of the steps, where the statistics were measured on trials.
    """

    stage: Stage
    flow_steps: float
    descent_steps: float
    start: FloatArray
    end: FloatArray
    accuracy: float
    status: Status
    interval: Interval | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Curriculum(Displayable):
    """A forecast of training on several tasks in sequence; the last one is the target.

    Attributes
    ----------
    outcomes : tuple of StageOutcome
    direct : LearningTime or None
        Training on the target alone from the same start; None when the last stage is given by steps.
    ground : Ground
        How these tasks are learned by this network.
    places : tuple of int
        Each stage's task in the ground's pool.
    replicas : ReplicaSteps or None
        Where statistics were measured on trials: what intervals are made of.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> first = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> way = lc.follow([lc.Stage(first, accuracy=0.5), lc.Stage(task, accuracy=0.99)], network, learning_rate=1e-3)
    >>> way.descent_steps, way.direct.descent_steps, way.forecast_class
    (237.0, 331.0, 'exact')
    """

    outcomes: tuple[StageOutcome, ...]
    direct: LearningTime | None
    ground: Ground
    places: tuple[int, ...]
    replicas: ReplicaSteps | None
    courses: tuple[Solution, ...]
    states: tuple[State, ...]
    descent_states: tuple[State, ...]

    @property
    def learning_rate(self) -> float:
        """Step size of gradient descent."""
        return self.ground.learning_rate

    @property
    def interval(self) -> Interval | None:
        """95% confidence interval of the flow steps; None where nothing was measured."""
        return None if self.replicas is None else ends_of(self.flow_steps, self.replicas.flow.sum(axis=0))

    @property
    def descent_interval(self) -> Interval | None:
        """The same of the descent steps."""
        return None if self.replicas is None else ends_of(self.descent_steps, self.replicas.descent.sum(axis=0))

    @property
    def direct_interval(self) -> Interval | None:
        """The same of direct training: of its flow steps."""
        return None if self.replicas is None else ends_of(self._alone[0], self.replicas.direct)

    @property
    def alone_interval(self) -> Interval | None:
        """The same of direct training, counted by descent where that is told and by the flow elsewhere."""
        if self.replicas is None:
            return None
        known = ends_of(self._alone[1], self.replicas.direct_descent)
        return self.direct_interval if any(map(math.isnan, known)) else known

    @property
    def speedup_interval(self) -> Interval | None:
        """The same of the flow steps saved: sharper than the difference of two intervals."""
        return self._saved(self.speedup_steps, lambda r: (r.direct, r.flow))

    @property
    def saving_interval(self) -> Interval | None:
        """The same of the steps saved, counted by descent where that is told and by the flow elsewhere."""
        counted = difference(self._alone[1], self.descent_steps)
        found = self._saved(counted, lambda r: (r.direct_descent, r.descent))
        return self.speedup_interval if found is None or any(map(math.isnan, found)) else found

    @property
    def _alone(self) -> tuple[float, float]:
        """Flow and descent steps of direct training; unknown where the target is trained for given steps."""
        return (math.nan, math.nan) if self.direct is None else (self.direct.flow_steps, self.direct.descent_steps)

    def _saved(self, estimate: float, of: Any) -> Interval | None:
        if self.replicas is None:
            return None
        direct, stages = of(self.replicas)
        with np.errstate(invalid="ignore"):
            return ends_of(estimate, direct - stages.sum(axis=0), signed=True)

    @property
    def flow_steps(self) -> float:
        """Flow steps of all stages together."""
        return float(sum(o.flow_steps for o in self.outcomes))

    @property
    def descent_steps(self) -> float:
        """Descent steps of all stages together; infinite where one never ends, whatever comes after it."""
        steps = [o.descent_steps for o in self.outcomes]
        return math.inf if math.inf in steps else float(sum(steps))

    @property
    def status(self) -> Status:
        """Status of the whole."""
        return worst_status(o.status for o in self.outcomes)

    @property
    def speedup_steps(self) -> float:
        """Flow steps saved against training on the target alone; negative when it costs."""
        return difference(self._alone[0], self.flow_steps)

    @property
    def speedup_ratio(self) -> float:
        """Direct training time over the curriculum's, by the flow; above 1 when it helps."""
        return ratio(self._alone[0], self.flow_steps)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """For each condition the worst measured over the stages."""
        return self.trust.assumptions

    @cached_property
    def trust(self) -> Trust:
        """How far it can be trusted: the conditions of the pool, also where each stage begins."""
        own = self.ground.trust_of(self.places)
        names = {a.name for a in own.assumptions}
        begun = ([a for a in course.assumptions if a.name in names] for course in self.courses)
        return Trust(worst([own.assumptions, *begun]), own.promise)

    @property
    def table(self) -> Table:
        """What every stage takes, and all of them together."""
        rows = [
            (o.stage.task.name, f"{o.accuracy:.4g}", o.descent_steps, o.flow_steps, o.status) for o in self.outcomes
        ]
        rows.append(("total", "", self.descent_steps, self.flow_steps, self.status))
        columns = ("stage", "stop at accuracy", "descent steps", "flow steps", "status")
        cells = [(name, at, descended(n, status), format_number(t), status.name) for name, at, n, t, status in rows]
        return Table("Stages", columns, cells)

    def _html_repr(self) -> HtmlRepr:
        lead = f"{descended(self.descent_steps, self.status)} steps in all"
        if self.direct is not None:
            lead += f"; {self.outcomes[-1].stage.task.name} alone takes {descended(self._alone[1], self.direct.status)}"
        return HtmlRepr("Curriculum", f"{lead}.", [self.table], self.trust.standing, self.trust.table)

    def _plot(self) -> Plot:
        return Plot.of("forgetting_curves", self.curves(points=80), title="Loss over training")

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.trust.forecast_class

    @property
    def modes(self) -> tuple[Any, ...]:
        """Each stage's task in the common frame; none where there are no modes."""
        return tuple(self.ground.modes[k] for k in self.places) if self.ground.modes else ()

    @property
    def optimum(self) -> FloatArray:
        """Strength each mode of the target comes to."""
        return self.ground.optimum

    @property
    def last_stage(self) -> int:
        """Place of the target's stage."""
        return len(self.outcomes) - 1

    def time_to(self, accuracy: float) -> LearningTime:
        """Steps of all stages; `accuracy` must be that of the last one."""
        return LearningTime(accuracy, np.array([self.flow_steps]), np.array([self.descent_steps]), (self.status,))

    @cached_property
    def why(self) -> Explanation | None:
        """The three terms of eq. (16), for a curriculum of two tasks with common modes."""
        accuracy = self.outcomes[-1].stage.accuracy
        if len(self.outcomes) != 2 or accuracy is None or not self.modes:
            return None
        one, two = self.modes
        assert self.direct is not None
        times = self.direct.mode_flow_steps
        k = int(np.argmax(times)) if len(times) == len(two) else 0
        return explain(
            mode=k,
            start=float(one.start[k]),
            end=float(self.outcomes[0].end[k]),
            first=(float(one.weighted_cross[k]), float(one.weighted_input[k])),
            second=(float(two.weighted_cross[k]), float(two.weighted_input[k])),
            tolerance=float(1 - one.accuracy(self.outcomes[0].end)[k]),
            target_tolerance=1 - accuracy,
            learning_rate=self.learning_rate,
            names=(one.task.name, two.task.name),
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Stages that never learn a mode, in words."""
        return tuple(
            f"stage {k + 1} ({o.stage.task.name}): {remark}"
            for k, (o, course) in enumerate(zip(self.outcomes, self.courses, strict=True))
            for remark in course.remarks
        )

    def in_batches(self, batch: int, *, runs: int | None = None, seed: int = 0) -> BatchSteps:
        """Steps of the same stages where every step of descent sees so many trials only, over several runs."""
        rules = [(o.stage.accuracy, o.stage.steps) for o in self.outcomes]
        expected = [o.descent_steps for o in self.outcomes]
        return in_batches(self.ground, self.places, rules, expected, batch=batch, runs=runs, seed=seed)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        return self.ground.provenance(
            *((k, o.stage.accuracy, o.stage.steps) for k, o in zip(self.places, self.outcomes, strict=True))
        )

    def at(self, times: Any) -> Trajectory:
        """Strengths and losses at times in gradient steps of the flow, across the stages.

        ``loss`` and ``excess_loss`` are those of the task being trained, ``target_loss`` and ``target_excess_loss``
        those of the last task; ``stage`` says which one is trained.
        """
        steps = checked_times(times)
        ends = np.cumsum([o.flow_steps for o in self.outcomes])
        index = np.minimum(np.searchsorted(ends, steps, side="left"), len(ends) - 1)
        begins = np.concatenate([[0.0], ends[:-1]])
        states: list[State] = [None] * len(steps)
        for k, course in enumerate(self.courses):
            here = np.flatnonzero(index == k)
            with np.errstate(invalid="ignore"):
                local = np.where(np.isinf(steps[here]), np.inf, steps[here] - begins[k])
            for n, state in zip(here, self.ground.along(course, local), strict=True):
                states[n] = state
        g = self.ground
        target = np.array([g.excess(g.target, s) for s in states])
        trained = zip((self.places[k] for k in index), states, target, strict=True)
        own = np.array([last if place == g.target else g.excess(place, s) for place, s, last in trained])
        least = np.array([g.least(k) for k in self.places])[index]
        strength = np.stack([g.strength(s) for s in states]) if states else np.empty((0, len(g.strength(g.start))))
        return Trajectory.of(
            steps,
            {
                "strength": strength,
                "loss": own + least,
                "excess_loss": own,
                "target_loss": target + g.least(g.target),
                "target_excess_loss": target,
            },
            self.provenance,
            coords={"stage": ("time", index, described("stage in training", "1"))},
            learning_rate=self.learning_rate,
            stages=" | ".join(o.stage.task.name for o in self.outcomes),
        )

    def losses(self, *, descent: bool = True) -> xr.DataArray:
        """Loss of every stage's task before training and after every stage, (stage, task); stage ``"start"`` first.

        After so many steps of gradient descent, or of the flow. Above the best linear map's for tasks that do not know
        the power of their targets.
        """
        import xarray as xr

        g, tasks = self.ground, [o.stage.task for o in self.outcomes]
        states = [g.start, *(self.descent_states if descent else self.states)[1:]]
        unknown = any(math.isnan(g.least(k)) for k in self.places)
        return xr.DataArray(
            np.array([[g.loss(k, s) for k in self.places] for s in states]),
            dims=("stage", "task"),
            coords={
                "stage": ["start", *(t.name for t in tasks)],
                "task": [t.name for t in tasks],
                "steps": ("stage", [0.0, *((o.descent_steps if descent else o.flow_steps) for o in self.outcomes)]),
            },
            name="loss",
            attrs=described("loss above the best linear map's" if unknown else "half mean squared error", "target^2"),
        )

    @property
    def forgetting(self) -> xr.DataArray:
        """Change of every task's loss over every stage, (stage, task): positive is forgotten."""
        change = self.losses().diff("stage", label="upper")
        return change.rename("forgetting").assign_attrs(described("change of loss over the stage", "target^2"))

    def curves(self, *, points: int = 200, horizon: Any = None) -> xr.Dataset:
        """Loss of every task at times across all stages by the flow, (time, task), with the stage in training.

        Parameters
        ----------
        points : int
            Per stage.
        horizon : float or sequence of float, optional
            Steps to show of a stage that runs to convergence, or of each stage; by default until its loss is within 1%
            of its end.
        """
        import xarray as xr

        g, times, values, stage, begun = self.ground, [], [], [], 0.0
        for k, (course, outcome) in enumerate(zip(self.courses, self.outcomes, strict=True)):
            asked = None if horizon is None else np.broadcast_to(horizon, len(self.courses))[k]
            span = outcome.flow_steps if math.isfinite(outcome.flow_steps) else (asked or settling(course))
            local = np.linspace(0.0, span, points)
            values.append([[g.loss(place, s) for place in self.places] for s in g.along(course, local)])
            times.append(begun + local)
            stage.append(np.full(points, k))
            begun += span
        return xr.Dataset(
            {"loss": (("time", "task"), np.concatenate([np.array(v) for v in values]), self.losses().attrs)},
            coords={
                "time": ("time", np.concatenate(times), described("training time", STEPS)),
                "task": [o.stage.task.name for o in self.outcomes],
                "stage": ("time", np.concatenate(stage).astype(int), described("stage in training", "1")),
            },
        )

    @cached_property
    def dataset(self) -> xr.Dataset:
        """Numbers of every stage, labelled."""
        import xarray as xr

        per_stage = {
            "flow_steps": ([o.flow_steps for o in self.outcomes], "flow duration", STEPS),
            "descent_steps": ([o.descent_steps for o in self.outcomes], "descent duration", STEPS),
            "accuracy": ([o.accuracy for o in self.outcomes], "accuracy at the end", "1"),
        }
        variables: dict[str, Any] = {
            name: ("stage", np.array(values), described(text, units))
            for name, (values, text, units) in per_stage.items()
        }
        for name in ("start", "end"):
            values = np.stack([getattr(o, name) for o in self.outcomes])
            variables[f"{name}_strength"] = (("stage", "mode"), values, described(f"strength at the {name}", "1"))
        for name, value, units in (
            ("total_steps", self.flow_steps, STEPS),
            ("total_descent_steps", self.descent_steps, STEPS),
            ("direct_steps", self._alone[0], STEPS),
            ("direct_descent_steps", self._alone[1], STEPS),
            ("speedup_steps", self.speedup_steps, STEPS),
            ("speedup_ratio", self.speedup_ratio, "1"),
        ):
            variables[name] = ((), value, described(name.replace("_", " "), units))
        if self.replicas is not None:
            stage = interval(np.array([o.flow_steps for o in self.outcomes]), self.replicas.flow.T)
            whole = {
                "total_steps": self.interval,
                "total_descent_steps": self.descent_interval,
                "direct_steps": self.direct_interval,
                "speedup_steps": self.speedup_interval,
            }
            for k, end in enumerate(("low", "high")):
                note = f"{end} end of its interval"
                variables[f"flow_steps_{end}"] = ("stage", stage[k], described(f"flow duration, {note}", STEPS))
                for name, ends in whole.items():
                    assert ends is not None
                    variables[f"{name}_{end}"] = ((), ends[k], described(f"{name.replace('_', ' ')}, {note}", STEPS))
        return xr.Dataset(
            variables,
            coords={
                "task": ("stage", [o.stage.task.name for o in self.outcomes]),
                "status": ("stage", [o.status.name for o in self.outcomes]),
            },
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the stages' numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="curriculum", provenance=self.provenance)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> xr.Dataset:
        """Read back the numbers that `save` wrote."""
        return load_dataset(path, kind="curriculum")[0]

    def __repr__(self) -> str:
        parts = " -> ".join(f"{o.stage.task.name} ({o.descent_steps:.6g})" for o in self.outcomes)
        within = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return (
            f"<Curriculum {parts}: {self.descent_steps:.6g} descent steps, {self.flow_steps:.6g} flow steps{within}, "
            f"speedup {self.speedup_steps:.6g}, {self.forecast_class}>"
        )


def follow(
    stages: Sequence[Stage],
    network: Network,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    seed: int = 0,
) -> Curriculum:
    """Forecast training on several tasks in sequence.

    Tasks that share the modes of one frame are followed mode by mode, others by the exact flow of a two-layer network
    where that holds, by the pooled problem where the recurrence is a number, and by the integrated flow elsewhere;
    accuracies are then of the loss. An `Activated` network is followed through its measured responses, with intervals.

    Parameters
    ----------
    stages : sequence of Stage
        In order; the last is the target, against whose direct training the speedup is measured.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
        Step size of gradient descent.
    learn : tuple of str, optional
        Weights that learn; input and output weights (both layers) by default.
    by : {"auto", "modes", "two-layer", "pooled", "flow", "responses"}
        How to follow them: the first of these whose conditions hold, or the one named.
    strict : bool
        Raise when a condition of the theory fails for any stage.
    seed : int
        Of the trials on which responses are measured, the same for every task.

    Implements: curriculum2025 Eq. (13), for any number of stages
    Implements: curriculum2025 Eq. (15), the speedup as a difference

    Returns
    -------
    Curriculum
        Steps, accuracy and state of every stage, and direct training beside them.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> first = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> lc.follow([lc.Stage(first, accuracy=0.5), lc.Stage(task, accuracy=0.99)], network, learning_rate=1e-3)
    <Curriculum stronger targets (158) -> integration (79): 237 descent steps, 236.158 flow steps, speedup 93.8266,
    exact>
    """
    if not stages:
        raise InvalidSpec("a curriculum must have at least one stage, got none. Pass Stage(task, accuracy=0.99).")
    for stage in stages:
        stage.check_planned()
    tasks = [stage.task for stage in stages]
    seed = seed_of(seed)
    ground = ground_for(tasks, network, learning_rate=learning_rate, learn=learn, by=by, strict=strict, seed=seed)
    return followed(stages, range(len(stages)), ground)


def followed(
    stages: Sequence[Stage],
    places: Sequence[int],
    ground: Ground,
    *,
    direct: LearningTime | None = None,
    resample: bool = True,
) -> Curriculum:
    """Follow stages on a ground; `places` are their tasks in it.

    Flow and descent each go on from where they themselves ended.
    """
    ground = ground.precise
    flow = whole = ground.start
    going = True
    outcomes, courses, states, wholes = [], [], [flow], [whole]
    for stage, place in zip(stages, places, strict=True):
        course = ground.course(place, flow)
        steps = stage.steps
        if steps is None:
            assert stage.accuracy is not None  # a stage has one rule or the other
            steps = ground.steps_to(place, flow, stage.accuracy, course)
        after = ground.after(place, flow, steps, course) if not math.isnan(steps) else flow
        counted = math.nan
        if going and ((math.isfinite(steps) and steps <= ground.countable) or stage.steps is not None):
            counted, whole = _descended(ground, place, whole, stage, after)
        going = going and (math.isfinite(counted) or stage.steps is not None)
        reached = counted if math.isfinite(steps) else 0.0
        status = ground.status(place, 0.0 if stage.steps is not None else steps, reached)
        accuracy = ground.accuracy(place, after)
        ends = ground.strength(flow), ground.strength(after)
        outcomes.append(
            StageOutcome(
                stage, float(steps), counted if math.isfinite(steps) else float(steps), *ends, accuracy, status
            )
        )
        courses.append(course)
        flow = after
        states.append(flow)
        wholes.append(whole)
    accuracy_asked = stages[-1].accuracy
    if direct is None and accuracy_asked is not None:
        direct = ground.learning_time(places[-1], accuracy_asked)
    rules = [(s.accuracy, s.steps) for s in stages]
    # A stage to convergence has no steps that could differ between resamplings.
    endless = any(s.steps is not None and math.isinf(s.steps) for s in stages)
    replicas = ground.replicated(places, rules) if resample and not endless else None
    if replicas is not None:
        counted = bool(np.isnan(replicas.flow).all())
        known = replicas.descent if counted else replicas.flow
        outcomes = [
            replace(o, interval=ends_of(o.descent_steps if counted else o.flow_steps, row))
            for o, row in zip(outcomes, known, strict=True)
        ]
    return Curriculum(
        tuple(outcomes), direct, ground, tuple(places), replicas, tuple(courses), tuple(states), tuple(wholes)
    )


def settling(course: Solution) -> float:
    """Steps until the loss has done 99% of its way."""
    first, last = course.at([0.0, math.inf])["excess_loss"].values
    if not first > last * (1 + 1e-9):
        return 1.0 / course.learning_rate
    time = course.time_to_loss(float(last + 0.01 * (first - last)))
    return 1.3 * time if math.isfinite(time) and time > 0 else 1.0 / course.learning_rate


def _descended(ground: Ground, place: int, state: State, stage: Stage, rest: State) -> tuple[float, State]:
    """Whole descent steps of a stage, and the state after them; to convergence descent ends where the flow does."""
    if stage.accuracy is not None:
        steps, ends = ground.counted(place, [state], stage.accuracy)
        return float(steps[0]), ends[0]
    assert stage.steps is not None
    if math.isinf(stage.steps):
        return math.inf, rest
    whole = math.ceil(stage.steps)
    return float(whole), ground.descended(place, [state], [whole])[0][0]


def ends_of(estimate: float, replicas: FloatArray, *, signed: bool = False) -> Interval:
    """Low and high end of the interval of one number."""
    low, high = interval(estimate, replicas, signed=signed)
    return float(low), float(high)


def difference(direct: float, total: float) -> float:
    """Steps saved; unknown when both are infinite."""
    return math.nan if math.isinf(direct) and math.isinf(total) else direct - total


def hardly_pays(direct: float, total: float) -> bool:
    """Whether what is saved is too little to be worth another task: less than `NEGLIGIBLE` of direct training."""
    return 0.0 < difference(direct, total) < NEGLIGIBLE * direct < math.inf


def ratio(direct: float, total: float) -> float:
    """Direct time over total; 1 when neither takes any, unknown when both are infinite."""
    if direct == total:
        return math.nan if math.isinf(direct) else 1.0
    return direct / total if total > 0 else math.inf
