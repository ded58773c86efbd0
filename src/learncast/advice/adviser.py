"""The adviser: from a model, a target and candidates to advice."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast.advice.advice import CONDITIONS, DIRECT, PROMISES, Advice
from learncast.advice.moments import Moments, MomentStack
from learncast.advice.race import LOOK, Runner, held_out_loss, run_race
from learncast.advice.surrogate import (
    BatchSlopes,
    LinearSurrogate,
    Parameters,
    Passages,
    descend_surrogate,
    in_numbers,
    linear_surrogate,
    stacked,
    written_out,
)
from learncast.advice.update_rule import UpdateRule
from learncast.errors import InvalidSpec
from learncast.progress import Progress, silent, within
from learncast.simulate.borrowed import at_rest
from learncast.simulate.run import training_provenance
from learncast.simulate.sources import Batch, Source, checked_trials
from learncast.tasks.recorded.streams import batches_of, from_batches
from learncast.tasks.task import Task
from learncast.trajectory import described, spec_hash
from learncast.validation import FloatArray, between, count, positive

#: Plans on the shortlist.
SHORTLIST = 3
#: Steps of a race unless told otherwise, as a multiple of the surrogate's steps of direct training, which come out
#: two to three times short for saturating units.
RACE_SHARE = 30
#: Trials drawn from a sampler to learn its statistics.
SAMPLED = 4000
#: Names that say nothing about the task.
_NAMELESS = ("recorded", "DataLoader", "<lambda>", "function", "partial")


def advise(
    model: nn.Module,
    target: Any,
    candidates: Any,
    *,
    optimizer: Any = "adam",
    learning_rate: float | None = None,
    accuracy: float = 0.95,
    loss: float | None = None,
    stops: Sequence[float] = (0.5, 0.8, 0.95),
    cap: float = 0.8,
    batch: int | None = 256,
    pilot: bool = False,
    seeds: int = 3,
    budget: int | None = None,
    most_steps: int = 20_000,
    seed: int = 0,
    progress: Progress = silent,
    echo: Callable[[str], object] = print,
) -> Advice:
    """Advise which task to train a model on first, and when to stop, to learn a target soonest.

    Plans are compared by exact descent of the model's linear surrogate, in the model's own parameters and by its own
    optimiser; nothing but their order is promised. An accuracy is the share of the loss above the least that is gone:
    0 at the model's start and 1 at the loss of the best linear map.

    Parameters
    ----------
    model : nn.Module
        nn.RNN, nn.GRU or nn.LSTM with a linear readout, before training. It is not changed.
    target : Task, pair (inputs, targets), function of (trials, rng), DataLoader or Dataset
    candidates : list of such, or mapping from names to such
        Tasks that could be trained first.
    optimizer : str, torch optimiser, its class, or a function from parameters to one
    learning_rate : float, optional
        With a name or a class; an optimiser that exists has its own.
    accuracy : float
        At which the target counts as learned; or
    loss : float, optional
        the loss at which it does: half the squared error, summed over outputs and readout steps.
    stops : sequence of float
        Accuracies at which pretraining may end.
    cap : float
        Later stops are ranked and not recommended: their forecast is less sure, and they cost more when wrong.
    batch : int or None
        Trials per step; None for all recorded trials or a loader's own batches.
    pilot : bool
        Whether to race the shortlist, and no pretraining, on the real model.
    seeds, budget : int
        Most seeds of that race, and the gradient steps it may take altogether.
    most_steps : int
        Where the surrogate's direct training is given up.
    seed : int
        Of the batches.
    progress : callable
        Called with the share of the work done.
    echo : callable
        Called with the estimated cost before the work begins.
    """
    ends = _checked_stops(stops, cap)
    count("most_steps", most_steps, why="it bounds the descent")
    surrogate = linear_surrogate(model)
    rule = UpdateRule.of(optimizer, learning_rate, model)
    pool = TrialPool.of(target, candidates, surrogate, seed=seed)
    for member in pool.members:
        member.source.check(batch)
    goal, losses = _goals(model, surrogate, pool, ends, accuracy, loss)
    forecaster = Forecaster(surrogate, pool, rule, batch, goal, most_steps, seed)
    direct = forecaster.direct()
    usual = 10_000 if math.isinf(direct) else max(200, RACE_SHARE * math.ceil(direct))
    steps = usual if budget is None else count("budget", budget, why="it counts gradient steps")
    estimate = forecaster.cost(direct, len(ends)) + (_race_cost(model, pool, rule, batch, steps) if pilot else "")
    echo(estimate)
    total = forecaster.plans(ends, direct, progress=within(progress, 0, 2 if pilot else 1))
    dataset = _table(pool, np.array([direct, *total.ravel()]), ends, losses, cap)
    kept = dataset["plan"].values[dataset["within_cap"].values & np.isfinite(dataset["score"].values)]
    shortlist = [str(name) for name in kept[:SHORTLIST]] or [DIRECT]
    measured = {
        "linear_at_start": _bent(model, surrogate, pool.target),
        "surrogate_learns_target": float(math.isinf(direct)),
        "smooth_descent": float(surrogate.kind == "relu" and not rule.adaptive),
    }
    failed = {name: CONDITIONS[name] for name, value in measured.items() if value > CONDITIONS[name].allowed}
    forecast_class = "outside" if any(condition.binding for condition in failed.values()) else "surrogate"
    dataset.attrs = {
        "target": pool.target.name,
        "target_loss": losses[0],
        "kind": surrogate.kind,
        "optimizer": rule.name,
        "learning_rate": rule.learning_rate,
        "recommended": shortlist[0],
        "shortlist": "\n".join(shortlist),
        "forecast_class": forecast_class,
        "promise": PROMISES[forecast_class],
        "warnings": "\n".join(f"{name}: {one.otherwise}; {one.remedy}." for name, one in failed.items()),
        "cost_estimate": estimate,
        **{f"validity_{name}": value for name, value in measured.items()},
    }
    weights = (value.numpy() for value in surrogate.parameters.values())
    digest = spec_hash(*(one.task.hash for one in pool.members), *weights, rule.name, rule.learning_rate)
    advice = Advice(dataset, training_provenance(digest, seed), {one.name: one.source for one in pool.members})
    if pilot and shortlist != [DIRECT]:
        plans = {
            name: [(source, goal.tolerance) for source, goal in advice.stages(name)]
            for name in dict.fromkeys([*shortlist, DIRECT])
        }
        report = within(progress, 1, 2)
        advice = advice.raced(run_race(model, plans, rule, batch=batch, budget=steps, seeds=seeds, progress=report))
    progress(1.0)
    return advice


def _checked_stops(stops: Sequence[float], cap: float) -> tuple[float, ...]:
    """The stops in order, of which one at least is within the cap."""
    ends = tuple(sorted({between("stop", s, 0.0, 1.0, why="it is an accuracy") for s in stops}))
    if not any(stop <= between("cap", cap, 0.0, 1.0, why="it is an accuracy") for stop in ends):
        raise InvalidSpec(
            required=f"some stop must be within the cap of {cap:g}",
            got=f"{tuple(stops)}",
            why="no pretraining could be recommended",
            remedy="add an earlier stop, or raise the cap",
        )
    return ends


def _goals(
    model: nn.Module,
    surrogate: LinearSurrogate,
    pool: TrialPool,
    stops: Sequence[float],
    accuracy: float,
    loss: float | None,
) -> tuple[float, list[float]]:
    """Loss at which the surrogate has learned the target, and losses of the model where each plan's first stage ends.

    The first of these is that of the target itself; the others go through the stops of each candidate in turn.
    """
    share = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the share of loss that remains")
    own = copy.deepcopy(model)
    least, start = pool.target.moments.least, start_loss(surrogate, pool.target)
    goal, last = (remaining(began, least, share) for began in (start, held_out_loss(own, pool.target.source)))
    if loss is not None:
        goal = last = positive("loss", loss, why="no sampled loss falls to nothing")
        if not least < goal < start:
            raise InvalidSpec(
                required=f"loss must lie between {least:.4g}, the least of any linear map, and {start:.4g}, where the "
                "model starts",
                got=f"{goal:g}",
                why="the surrogate learns the target when its loss falls to it",
                remedy="choose a loss between them, or an accuracy",
            )
    began = [(held_out_loss(own, one.source), one.moments.least) for one in pool.candidates]
    return goal, [last, *(remaining(*pair, stop) for pair in began for stop in stops)]


def _table(
    pool: TrialPool, steps: FloatArray, stops: Sequence[float], losses: Sequence[float], cap: float
) -> xr.Dataset:
    """All plans, best first; steps and losses are those of no pretraining and of each candidate at each stop."""
    direct = float(steps[0])
    # When direct training is never done in time, the others are compared with each other.
    unit = direct if math.isfinite(direct) else float(np.min(steps))
    scores = steps / unit if math.isfinite(unit) and unit > 0 else np.full(len(steps), np.inf)
    order = np.argsort(scores, kind="stable")
    pairs = [(one.name, stop) for one in pool.candidates for stop in stops]
    names = np.array([DIRECT, *(f"{name} to {stop:.0%}" for name, stop in pairs)])
    ends = np.array([math.nan, *(stop for _, stop in pairs)])
    variables = {
        "task": (np.array(["", *(name for name, _ in pairs)]), "task trained first", "1"),
        "stop": (ends, "accuracy at which its training ends", "1"),
        "stop_loss": (np.array([math.nan, *losses[1:]]), "loss of the model at which its training ends", "target^2"),
        "score": (scores, "forecast time relative to training directly", "1"),
        "within_cap": (~(ends > cap), "whether it may be recommended", "1"),
    }
    dataset = xr.Dataset(
        {name: ("plan", values[order], described(text, unit)) for name, (values, text, unit) in variables.items()},
        coords={"plan": names[order]},
    )
    return dataset.assign(rank=("plan", 1 + np.arange(len(names)), described("place in the ranking", "1")))


def _bent(model: nn.Module, surrogate: LinearSurrogate, target: Member) -> float:
    """How far the model's answers are from its surrogate's, as a share of their size."""
    trials = target.source.held_out(200, (0, 0), next(model.parameters()).dtype)
    lags = target.moments.lags
    x, y, _ = in_numbers(trials, surrogate.outputs)
    rows, _ = written_out(x.double(), y.double(), lags)
    with at_rest(model):
        real = model(x).double().reshape(-1, surrogate.outputs)
        filters = surrogate.system(surrogate.stacked(1)).filters(lags).flatten(2)[0]
    size = float(real.pow(2).mean().sqrt())
    return float((real - rows @ filters.T).pow(2).mean().sqrt()) / size if size > 0 else 0.0


def _race_cost(model: nn.Module, pool: TrialPool, rule: UpdateRule, batch: int | None, steps: int) -> str:
    runner = Runner(model, [(pool.target.source, -math.inf)], rule, batch, 0)
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        runner.advance(LOOK)
        seconds.append((time.perf_counter() - begun) / LOOK)
    return f"; pilot race: at most {steps} gradient steps, about {steps * min(seconds):.0f} s"


#: A plan is given up when it takes this many times the steps of direct training.
PATIENCE = 4.0


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Runs the surrogate through plans: its steps are not those of the model, only their order means something.

    Attributes
    ----------
    surrogate : LinearSurrogate
    pool : TrialPool
    rule : UpdateRule
    batch : int or None
        Trials of a batch. They matter to an adaptive optimiser, which divides by the size of noisy gradients; others
        follow exact slopes, because what noise adds to their steps cancels on average.
    goal : float
        Loss of the surrogate at which the target counts as learned.
    most_steps : int
        Where direct training is given up.
    """

    surrogate: LinearSurrogate
    pool: TrialPool
    rule: UpdateRule
    batch: int | None
    goal: float
    most_steps: int
    seed: int

    def direct(self) -> float:
        """Steps of the surrogate on the target alone."""
        found = self._run(
            [self.pool.target], self.surrogate.stacked(1), np.array([[self.goal]]), key=0, limits=self.most_steps
        )
        return float(found.steps[0, 0])

    def cost(self, direct: float, stops: int) -> str:
        """What the forecast of all plans will cost, in words, from a few timed steps."""
        members = self.pool.candidates
        steps = direct if math.isfinite(direct) else float(self.most_steps)
        plans, seconds = len(members) * stops, 0.0
        for group, copies in ((members, len(members)), ([self.pool.target], plans)):
            begun = time.perf_counter()
            self._run(group, self.surrogate.stacked(copies), np.full((copies, 1), -np.inf), key=2, limits=3)
            seconds += (time.perf_counter() - begun) / 3 * steps
        return f"surrogate of {plans + 1} plans: about {seconds:.1f} s"

    def plans(self, stops: Sequence[float], direct: float, *, progress: Progress = silent) -> FloatArray:
        """Steps of the plans of every candidate at every stop, (candidates, stops); infinite for one given up."""
        members = self.pool.candidates
        patience = PATIENCE * direct if math.isfinite(direct) else float(self.most_steps)
        starts = [(start_loss(self.surrogate, one), one.moments.least) for one in members]
        first = self._run(
            members,
            self.surrogate.stacked(len(members)),
            np.array([[remaining(*pair, stop) for stop in stops] for pair in starts]),
            key=1,
            limits=min(patience, self.most_steps),
            progress=lambda step: progress(min(0.4 * step / patience, 0.4)),
        )
        total = np.full_like(first.steps, np.inf)
        reached = np.isfinite(first.steps)
        states = [state for row in first.states for state in row if state is not None]
        if states:
            second = self._run(
                [self.pool.target],
                stacked(states),
                np.full((len(states), 1), self.goal),
                key=0,
                limits=np.minimum(patience - first.steps[reached], self.most_steps),
                progress=lambda step: progress(min(0.4 + 0.6 * step / patience, 1.0)),
            )
            total[reached] = first.steps[reached] + second.steps[:, 0]
        progress(1.0)
        return total

    def _run(
        self, members: Sequence[Member], start: Parameters, goals: FloatArray, *, key: int, **options: Any
    ) -> Passages:
        moments = MomentStack.of([one.moments for one in members])
        batches = None
        if self.rule.adaptive:
            batches = BatchSlopes([one.source for one in members], self.batch, (self.seed, key), moments.lags)
        return descend_surrogate(
            self.surrogate, start, moments, goals, optimizer=self.rule.made, batches=batches, **options
        )


def start_loss(surrogate: LinearSurrogate, member: Member) -> float:
    """Loss of the surrogate before any training."""
    moments = MomentStack.of([member.moments])
    with torch.no_grad():
        filters = surrogate.system(surrogate.stacked(1)).filters(moments.lags).flatten(2)
        return float(moments.loss_and_slope(filters)[0][0])


def remaining(start: float, least: float, accuracy: float) -> float:
    """Loss that remains when this share of what can be learned is learned."""
    return least + (1.0 - accuracy) * max(start - least, 0.0)


@dataclass(frozen=True, eq=False)
class Member:
    """One task of the pool.

    Attributes
    ----------
    name : str
    source : Source
        Where batches come from.
    task : Task
        Its second-order statistics.
    moments : Moments
        What the surrogate learns from.
    """

    name: str
    source: Source
    task: Task
    moments: Moments


@dataclass(frozen=True, eq=False)
class TrialPool:
    """A target and the candidates that may be trained before it."""

    target: Member
    candidates: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """All of them, the target first."""
        return (self.target, *self.candidates)

    @classmethod
    def of(cls, target: Any, candidates: Any, surrogate: LinearSurrogate, *, seed: int = 0) -> TrialPool:
        """Read the target and the candidates, and check that the model can be trained on each of them.

        Parameters
        ----------
        target : Task, pair of arrays, function of (trials, rng), DataLoader or Dataset
        candidates : mapping from names to such, or a sequence of such
        surrogate : LinearSurrogate
            Of the model.
        seed : int
            Of the trials drawn from samplers.
        """
        named = _named(candidates)
        first = _member(target, "target", surrogate, seed)
        members: list[Member] = []
        taken = {first.name}
        for place, (name, source) in enumerate(named):
            one = _member(source, name or f"candidate {place + 1}", surrogate, seed, given=name is not None)
            if one.task.hash == first.task.hash:
                raise InvalidSpec(
                    required="candidates must differ from the target",
                    got=f"{one.name!r} (number {place + 1}), which has the target's own statistics",
                    why="to train on the target first is to train directly",
                    remedy="leave it out",
                )
            label, again = one.name, 2
            while label in taken:
                label, again = f"{one.name} ({again})", again + 1
            taken.add(label)
            members.append(replace(one, name=label))
        return cls(first, tuple(members))


def _named(candidates: Any) -> list[tuple[str | None, Any]]:
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Mapping | Sequence) or not candidates:
        raise InvalidSpec(
            required="candidates must be a list of tasks, or a mapping from names to tasks, at least one candidate",
            got=type(candidates).__name__ if candidates else "none",
            why="advice compares pretraining on each of them with none",
            remedy="put them in a list, a single one too",
        )
    if isinstance(candidates, Mapping):
        return [(str(name), source) for name, source in candidates.items()]
    return [(None, source) for source in candidates]


def _member(source: Any, name: str, surrogate: LinearSurrogate, seed: int, *, given: bool = False) -> Member:
    trials = Source.of(source)
    if not given and trials.name not in _NAMELESS:
        name = trials.name
    task, means = _statistics(source, trials, name, seed, surrogate.outputs)
    _check_fit(name, task, surrogate)
    return Member(name, trials, task, Moments.of(task, means=means, affine=surrogate.has_biases))


def _statistics(
    source: Any, trials: Source, name: str, seed: int, outputs: int
) -> tuple[Task, tuple[FloatArray, FloatArray] | None]:
    """A task's statistics and, where trials tell them, the means."""
    if trials.task is not None:
        return trials.task, None
    if trials.passes is not None:
        sums: list[Any] = [0, 0.0, 0.0]

        def watched() -> Iterator[tuple[FloatArray, FloatArray]]:
            for k, batch in enumerate(batches_of(source)):
                found = checked_trials(batch, f"batch {k} of {name!r}", batch_first=trials.batch_first)
                x, y, _ = _numbers(found, outputs)
                _check_steps(name, x)
                sums[:] = (old + new for old, new in zip(sums, (len(x), x.sum(0), y.sum(0)), strict=True))
                yield x, y

        task = from_batches(watched(), name=name)
        return task, (sums[1] / sums[0], np.atleast_2d(sums[2] / sums[0]))
    if trials.data is not None:
        x, y, w = _numbers(trials.data, outputs)
    else:
        x, y, w = _numbers(trials.drawn(SAMPLED, np.random.default_rng(seed)), outputs)
    _check_steps(name, x)
    if w is None:
        return Task.from_samples(x, y, name=name), (x.mean(0), np.atleast_2d(y.mean(0)))
    return Task.from_samples(x, y, name=name, mask=w), None


def _numbers(batch: Batch, outputs: int) -> tuple[FloatArray, FloatArray, Any]:
    """Inputs and targets as numbers, labels one-hot and 0 where they do not count, and which readouts count."""
    x, y, w = in_numbers(batch.tensors(torch.float64), outputs)
    counted = None if w is None else w.amax(2).numpy() > 0
    wanted = y if w is None else y * (w.amax(2, keepdim=True) > 0).reshape(*y.shape[:-1], 1)
    return x.numpy(), wanted.numpy(), counted


def _check_steps(name: str, x: FloatArray) -> None:
    if x.ndim != 3:
        raise InvalidSpec(
            required=f"inputs of {name!r} must be (trials, steps, inputs)",
            got=f"shape {x.shape}",
            why="a recurrent model reads them step by step",
            remedy="add the axis of steps",
        )


def _check_fit(name: str, task: Task, surrogate: LinearSurrogate) -> None:
    when = "every_step" if surrogate.every_step else "end"
    wanted = (surrogate.inputs, surrogate.outputs, when)
    # A trial of one step has one target, which is both at the end and at every step.
    targets = when if task.steps == 1 else task.targets
    if (task.inputs, task.outputs, targets) != wanted:
        raise InvalidSpec(
            required=f"{name!r} must have the model's {wanted[0]} inputs and {wanted[1]} outputs, "
            f"with targets {_when(when)}",
            got=f"{task.inputs} inputs and {task.outputs} outputs, with targets {_when(task.targets)}",
            why="the model is trained on it as it is",
            remedy="match channels and readout to the model, or leave it out",
        )


def _when(targets: str) -> str:
    return "at the end" if targets == "end" else "at every step"
