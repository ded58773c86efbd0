"""The adviser: from a model, a target and candidates to advice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, noticed, silent, within
from learncast._core.validation import FloatArray, between, count
from learncast.advice.advice import CONDITIONS, DIRECT, PROMISES, SHORTLIST, Advice, plan_name
from learncast.advice.decisions import decision_advice, decision_cost
from learncast.advice.moments import Moments, MomentStack, Rows
from learncast.advice.race import run_race
from learncast.advice.request import Request
from learncast.advice.runner import LOOK
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
from learncast.display import plural
from learncast.results import described, spec_hash
from learncast.tasks.recorded.streams import batches_of, from_batches
from learncast.tasks.task import Task
from learncast.training.borrowed import at_rest
from learncast.training.goals import DecisionAccuracy, LossBelow, Measured
from learncast.training.losses import Answered
from learncast.training.run import training_provenance
from learncast.training.sources import Batch, Source, checked_trials
from learncast.training.stopping import Rule
from learncast.training.training import Training

#: Steps of a race unless told otherwise, as a multiple of the surrogate's steps of direct training, which come out
#: two to three times short for saturating units.
RACE_SHARE = 30
#: Steps of a race to a goal of decisions, where nothing tells how long direct training takes.
DECISION_RACE = 20_000
#: Trials drawn from a sampler to learn its statistics.
SAMPLED = 4000
#: Numbers of written-out trials from which moments are summed: more trials would cost more than they tell.
WRITTEN = 2**26


@noticed("weighing plans")
def advise(
    model: nn.Module,
    target: Any,
    candidates: Any,
    *,
    goal: Any = None,
    accuracy: float = 0.95,
    optimizer: Any = "adam",
    learning_rate: float | None = None,
    batch: int | None = 256,
    loss: Any = "half_squared_error",
    clip: float | None = None,
    schedule: Any = None,
    weight_decay: float | None = None,
    reset_optimizer: bool = True,
    training: Training | None = None,
    stops: Sequence[float] = (0.5, 0.8, 0.95),
    cap: float = 0.8,
    pilot: bool = False,
    seeds: int = 3,
    budget: int | None = None,
    most_steps: int = 20_000,
    seed: int = 0,
    progress: Progress = silent,
    echo: Callable[[str], object] = print,
) -> Advice:
    """Advise which task to train a model on first, and when to stop, to learn a target soonest.

    To a goal of decisions, or one that a function measures, plans are ordered by what the network's own features show
    of each task at its start, and by what its trials tell of the target's answers; the model may be any module, and
    no gradient step is taken (`stops`, `cap`, `accuracy` and `most_steps` are not used then). To a loss plans are
    compared by exact descent of the model's linear surrogate, in the model's own parameters and by its own
    optimiser; nothing but their order is promised. An accuracy is the share of the loss above the least that is gone:
    0 at the model's start and 1 at the loss of the best linear map.

    Parameters
    ----------
    model : nn.Module
        Before training; it is not changed. To a loss, nn.RNN, nn.GRU or nn.LSTM with a linear readout.
    target : Task, environment, pair (inputs, targets), function of (trials, rng), DataLoader or Dataset
        Labels, masks and layouts are said with `training.trials`.
    candidates : list of such, or mapping from names to such
        Tasks that could be trained first.
    goal : Goal or float, optional
        When the target counts as learned: `DecisionAccuracy`, `LossBelow` or `Measured` of `learncast.training`; a
        number is a loss. Without it
    accuracy : float
        says at which share of its loss it does.
    optimizer : str, torch optimiser, its class, or a function from parameters to one
    learning_rate : float, optional
        With a name or a class; an optimiser that exists has its own.
    batch : int or None
        Trials per step; None for all recorded trials or a loader's own batches.
    loss, clip, schedule, weight_decay, reset_optimizer
        As of `training.Training`: what is made small and how; `reset_optimizer` says whether every stage starts with a
        fresh optimiser, as by default, or goes on with the one before.
    training : Training, optional
        Says all of these from optimizer on, and the seed.
    stops : sequence of float
        Accuracies at which pretraining may end.
    cap : float
        Later stops are ranked and not recommended: their forecast is less sure, and they cost more when wrong.
    pilot : bool
        Whether to race the shortlist, and no pretraining, on the real model to the goal.
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

    Returns
    -------
    Advice
        Every plan with its score, a shortlist, the plan to carry out, and what it rests on.

    Raises
    ------
    InvalidSpec
        If trials, goal or settings do not fit the model or each other.
    UnsupportedModel
        If a loss is the goal and the model has no linear surrogate.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> import torch
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((64, 6, 1)).astype("float32")
    >>> class Reader(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer, self.readout = torch.nn.RNN(1, 4, batch_first=True), torch.nn.Linear(4, 1)
    ...     def forward(self, inputs):
    ...         return self.readout(self.layer(inputs)[0][:, -1])
    ...
    >>> target, easy = (inputs, inputs.sum(axis=1)), (inputs, inputs[:, -1])
    >>> asked = {"learning_rate": 1e-2, "accuracy": 0.5, "batch": None, "echo": lambda text: None}
    >>> found = lc.advise(Reader(), target, {"last input": easy}, **asked)
    >>> found.forecast_class
    'surrogate'
    >>> sorted(found.shortlist)[0] in map(str, found.dataset["plan"].values)
    True
    """
    ends = _checked_stops(stops, cap)
    count("most_steps", most_steps)
    settings = {
        "loss": loss,
        "clip": clip,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "reset_optimizer": reset_optimizer,
    }
    request = Request.of(
        model,
        target,
        candidates,
        goal=goal,
        optimizer=optimizer,
        learning_rate=learning_rate,
        batch=batch,
        seed=seed,
        training=training,
        **({} if training is not None else settings),
    )
    share = between("accuracy", accuracy, 0.0, 1.0)
    asked = None if budget is None else count("budget", budget)
    report = within(progress, 0, 2 if pilot else 1)
    if isinstance(request.goal, DecisionAccuracy | Measured):
        request.check_fit()
        steps = DECISION_RACE if asked is None else asked
        echo(decision_cost(request) + (_race_cost(request, steps) if pilot else ""))
        advice = decision_advice(request)
    else:
        surrogate = linear_surrogate(model)
        pool = TrialPool.of(request, surrogate)
        request.check_fit()
        goal_loss, losses = _goals(request, surrogate, pool, ends, share)
        forecaster = Forecaster(surrogate, pool, request, goal_loss, most_steps)
        direct = forecaster.direct()
        usual = 10_000 if math.isinf(direct) else max(200, RACE_SHARE * math.ceil(direct))
        steps = usual if asked is None else asked
        estimate = forecaster.cost(direct, len(ends)) + (_race_cost(request, steps) if pilot else "")
        echo(estimate)
        total = forecaster.plans(ends, direct, progress=report)
        table = _table(pool, np.array([direct, *total.ravel()]), ends, losses, cap)
        advice = _surrogate_advice(request, surrogate, pool, table, _plans(request, pool, ends, losses))
        advice.dataset.attrs["cost_estimate"] = estimate
    if pilot and advice.shortlist != (DIRECT,):
        plans = {name: advice.stages(name) for name in dict.fromkeys([*advice.shortlist, DIRECT])}
        race = run_race(
            model,
            plans,
            request.rule,
            budget=steps,
            seeds=seeds,
            training=request.training,
            progress=within(progress, 1, 2),
        )
        advice = advice.raced(race)
    progress(1.0)
    return advice


def _surrogate_advice(
    request: Request,
    surrogate: LinearSurrogate,
    pool: TrialPool,
    dataset: xr.Dataset,
    plans: dict[str, tuple[tuple[Source, Rule], ...]],
) -> Advice:
    """The table of a surrogate's forecasts as advice, with what it assumes."""
    rule, direct = request.rule, dataset["score"].sel(plan=DIRECT)
    kept = dataset["plan"].values[dataset["within_cap"].values & np.isfinite(dataset["score"].values)]
    shortlist = [str(name) for name in kept[:SHORTLIST]] or [DIRECT]
    measured = {
        "linear_at_start": _bent(request.model, surrogate, pool.target),
        "surrogate_learns_target": float(np.isinf(direct)),
        "smooth_descent": float(surrogate.kind == "relu" and not rule.adaptive),
        "squared_loss": float(not request.loss.squared or bool(request.loss.steps or request.loss.outputs)),
        "fresh_optimizer": float(rule.adaptive and not request.training.reset_optimizer),
    }
    failed = {name: CONDITIONS[name] for name, value in measured.items() if value > CONDITIONS[name].allowed}
    forecast_class = "outside" if any(condition.binding for condition in failed.values()) else "surrogate"
    first = sorted(failed.items(), key=lambda item: not item[1].binding)
    warnings = [f"{name}: {one.otherwise}; {one.remedy}." for name, one in first]
    dataset.attrs = {
        **request.facts,
        "target_loss": float(dataset.attrs["target_loss"]),
        "kind": surrogate.kind,
        "score_words": "forecast {:.2f} of the time of training directly",
        "recommended": shortlist[0],
        "shortlist": "\n".join(shortlist),
        "forecast_class": forecast_class,
        "promise": PROMISES[forecast_class],
        "warnings": "\n".join([*warnings, *request.remarks]),
        **{f"validity_{name}": value for name, value in measured.items()},
    }
    weights = (value.numpy() for value in surrogate.parameters.values())
    digest = spec_hash(*(one.source.hash for one in pool.members), *weights, rule.name, rule.learning_rate)
    return Advice(dataset, training_provenance(digest, request.training.seed), request, plans)


def _plans(
    request: Request, pool: TrialPool, stops: Sequence[float], losses: Sequence[float]
) -> dict[str, tuple[tuple[Source, Rule], ...]]:
    """Trials and rules of every plan: the first stage ends at a loss, the last at the goal."""
    loss = request.loss
    last = (pool.target.source, request.goal if request.goal is not None else LossBelow(losses[0], loss))
    plans: dict[str, tuple[tuple[Source, Rule], ...]] = {DIRECT: (last,)}
    firsts = [(one, stop) for one in pool.first for stop in stops]
    for (one, stop), at in zip(firsts, losses[1:], strict=True):
        first: tuple[Source, Rule] = (one.source, LossBelow(at, loss))
        plans[plan_name(one.name, stop, restart=one.name == pool.target.name)] = (first, last)
    return plans


def _checked_stops(stops: Sequence[float], cap: float) -> tuple[float, ...]:
    """The stops in order, of which one at least is within the cap."""
    ends = tuple(sorted({between("stop", s, 0.0, 1.0) for s in stops}))
    if not any(stop <= between("cap", cap, 0.0, 1.0) for stop in ends):
        raise InvalidSpec(
            f"some stop must be within the cap of {cap:g}, got {tuple(stops)}. Add an earlier stop, or raise the cap."
        )
    return ends


def _goals(
    request: Request, surrogate: LinearSurrogate, pool: TrialPool, stops: Sequence[float], share: float
) -> tuple[float, list[float]]:
    """Loss at which the surrogate has learned the target, and losses of the model where each plan's first stage ends.

    The first of these is that of the target itself; the others go through the stops of each first task in turn. Of a
    loss that is no squared error the least is unknown: a share of all of it is lost.
    """
    squared, factor = request.loss.squared, _factor(request)
    least, start = pool.target.moments.least, start_loss(surrogate, pool.target)
    goal = remaining(start, least, share)

    def at(member: Member, accuracy: float) -> float:
        floor = factor * member.moments.least if squared else 0.0
        return remaining(request.measured(request.loss, member.source), floor, accuracy)

    last, asked = at(pool.target, share), request.goal
    if isinstance(asked, LossBelow):
        last = asked.tolerance
        if squared and asked.loss == request.loss:
            goal = asked.tolerance / factor
            if not least < goal < start:
                raise InvalidSpec(
                    f"the loss to reach must lie between {factor * least:.4g}, the least of any linear map, and "
                    f"{factor * start:.4g}, where the model starts, got {asked.tolerance:g}."
                )
    return goal, [last, *(at(one, stop) for one in pool.first for stop in stops)]


def _factor(request: Request) -> float:
    """By what half the squared error is multiplied in the loss that is trained on; 1 for one that is another."""
    if not request.loss.squared:
        return 1.0
    x, y, w = request.held_out(request.target)
    with at_rest(request.model):
        return request.loss.factor(Answered.of(request.model(x), y, w))


def _table(
    pool: TrialPool, steps: FloatArray, stops: Sequence[float], losses: Sequence[float], cap: float
) -> xr.Dataset:
    """All plans, best first; steps and losses are those of no pretraining and of each candidate at each stop."""
    direct = float(steps[0])
    # When direct training is never done in time, the others are compared with each other.
    unit = direct if math.isfinite(direct) else float(np.min(steps))
    scores = steps / unit if math.isfinite(unit) and unit > 0 else np.full(len(steps), np.inf)
    order = np.argsort(scores, kind="stable")
    pairs = [(one.name, stop) for one in pool.first for stop in stops]
    own = pool.target.name
    names = np.array([DIRECT, *(plan_name(name, stop, restart=name == own) for name, stop in pairs)])
    ends = np.array([math.nan, *(stop for _, stop in pairs)])
    words = [f"Train on {own} directly"]
    for (name, stop), loss in zip(pairs, losses[1:], strict=True):
        then = f"on with {own}, the optimiser restarted" if name == own else f"on {own}"
        words.append(f"Train on {name} until {stop:.0%} of what it can lose is lost (loss {loss:.3g}), then {then}")
    variables = {
        "task": (np.array(["", *(name for name, _ in pairs)]), "task trained first", "1"),
        "stop": (ends, "accuracy at which its training ends", "1"),
        "stop_loss": (np.array([math.nan, *losses[1:]]), "loss of the model at which its training ends", "target^2"),
        "words": (np.array(words), "the plan in words", "1"),
        "score": (scores, "forecast time relative to training directly", "1"),
        "within_cap": (~(ends > cap), "whether it may be recommended", "1"),
    }
    dataset = xr.Dataset(
        {name: ("plan", values[order], described(text, unit)) for name, (values, text, unit) in variables.items()},
        coords={"plan": names[order]},
        attrs={"target_loss": losses[0]},
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


def _race_cost(request: Request, steps: int) -> str:
    runner = request.runner([(request.target, None)])
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
    request : Request
        Its batches matter to an adaptive optimiser, which divides by the size of noisy gradients; others follow exact
        slopes, because what noise adds to their steps cancels on average.
    goal : float
        Loss of the surrogate at which the target counts as learned.
    most_steps : int
        Where direct training is given up.
    """

    surrogate: LinearSurrogate
    pool: TrialPool
    request: Request
    goal: float
    most_steps: int

    def direct(self) -> float:
        """Steps of the surrogate on the target alone."""
        found = self._run(
            [self.pool.target], self.surrogate.stacked(1), np.array([[self.goal]]), key=0, limits=self.most_steps
        )
        return float(found.steps[0, 0])

    def cost(self, direct: float, stops: int) -> str:
        """What the forecast of all plans will cost, in words, from a few timed steps."""
        members = self.pool.first
        steps = direct if math.isfinite(direct) else float(self.most_steps)
        plans, seconds = len(members) * stops, 0.0
        for group, copies in ((members, len(members)), ([self.pool.target], plans)):
            begun = time.perf_counter()
            self._run(group, self.surrogate.stacked(copies), np.full((copies, 1), -np.inf), key=2, limits=3)
            seconds += (time.perf_counter() - begun) / 3 * steps
        return f"surrogate of {plans + 1} plans: about {seconds:.1f} s"

    def plans(self, stops: Sequence[float], direct: float, *, progress: Progress = silent) -> FloatArray:
        """Steps of the plans of every candidate at every stop, (candidates, stops); infinite for one given up."""
        members = self.pool.first
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
        training, rule = self.request.training, self.request.rule
        if rule.adaptive:
            sources = [one.source for one in members]
            batches = BatchSlopes(sources, training.batch, (training.seed, key), moments.lags)
        return descend_surrogate(
            self.surrogate,
            start,
            moments,
            goals,
            optimizer=rule.made,
            batches=batches,
            scale=_factor(self.request),
            **options,
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
    source : Source
        Where batches come from.
    moments : Moments
        What the surrogate learns from.
    """

    source: Source
    moments: Moments

    @property
    def name(self) -> str:
        """What the task is called."""
        return self.source.name


@dataclass(frozen=True, eq=False)
class TrialPool:
    """A target and the tasks that may be trained before it.

    Attributes
    ----------
    target : Member
    candidates : tuple of Member
    restarts : bool
        Whether the target itself may come first: with an optimiser that remembers, a fresh one after it is no direct
        training.
    """

    target: Member
    candidates: tuple[Member, ...]
    restarts: bool

    @property
    def members(self) -> tuple[Member, ...]:
        """All of them, the target first."""
        return (self.target, *self.candidates)

    @property
    def first(self) -> tuple[Member, ...]:
        """What may be trained first."""
        return (*self.candidates, self.target) if self.restarts else self.candidates

    @classmethod
    def of(cls, request: Request, surrogate: LinearSurrogate) -> TrialPool:
        """Collect the moments of all trials, and check that the model can be trained on each of them."""
        target, *others = (_member(source, surrogate, request.training.seed) for source in request.sources)
        return cls(target, tuple(others), request.training.reset_optimizer and request.rule.remembers)


def _member(trials: Source, surrogate: LinearSurrogate, seed: int) -> Member:
    affine = surrogate.has_biases
    if trials.task is not None and trials.passes is None and trials.draw == trials.task.sample:
        _check_fit(trials.name, trials.task, surrogate)
        return Member(trials, Moments.of(trials.task, affine=affine))
    parts = _batches(trials, seed)
    first = next(parts)
    _check_steps(trials.name, first.inputs)
    if first.weights is None and first.targets_are_numbers:
        task, means = _statistics(trials, chain([first], parts))
        _check_fit(trials.name, task, surrogate)
        return Member(trials, Moments.of(task, means=means, affine=affine))
    _check_labelled(trials.name, first, surrogate)
    return Member(trials, _written_moments(chain([first], parts), surrogate))


def _batches(trials: Source, seed: int) -> Iterator[Batch]:
    """The trials that tell the statistics: all that were recorded, a loader's, or a sample."""
    if trials.data is not None:
        yield trials.data
    elif trials.passes is None:
        yield trials.drawn(SAMPLED if trials.task is None else SAMPLED // 8, np.random.default_rng(seed))
    else:
        source, given = trials.passes.source, 0
        for k, batch in enumerate(batches_of(source)):
            found = checked_trials(batch, f"batch {k} of {trials.name!r}", batch_first=trials.batch_first)
            given += len(found.inputs)
            yield found
            if hasattr(source, "__next__") and given >= SAMPLED:
                return  # it may have no end


def _statistics(trials: Source, parts: Iterable[Batch]) -> tuple[Task, tuple[FloatArray, FloatArray]]:
    """A task's statistics and the means."""
    sums: list[Any] = [0, 0.0, 0.0]

    def watched() -> Iterator[tuple[FloatArray, FloatArray]]:
        for x, y, _ in parts:
            _check_steps(trials.name, x)
            sums[:] = (old + new for old, new in zip(sums, (len(x), x.sum(0), y.sum(0)), strict=True))
            yield x, y

    if trials.passes is not None:
        task = from_batches(watched(), name=trials.name)
    else:
        x, y = next(watched())
        task = Task.from_samples(x, y, name=trials.name)
    return task, (sums[1] / sums[0], np.atleast_2d(sums[2] / sums[0]))


def _written_moments(parts: Iterable[Batch], surrogate: LinearSurrogate) -> Moments:
    """The moments of trials with labels or masks, summed over the readouts that count."""
    found = [in_numbers(batch.tensors(torch.float64), surrogate.outputs) for batch in parts]
    lags, inputs = max(x.shape[1] for x, _, _ in found), surrogate.inputs
    readouts = lags if found[0][1].ndim == 3 else 1
    most = max(200, WRITTEN // (readouts * lags * (inputs + 1)))
    total = 0

    def rows() -> Iterator[Rows]:
        nonlocal total
        for x, y, w in found:
            for k in range(0, len(x), 64):
                if total >= most:
                    return
                part = slice(k, k + 64)
                written, wanted = written_out(x[part], y[part], lags)
                total += len(x[part])
                weights = None if w is None else w[part].reshape(len(wanted), -1).numpy()
                yield written.numpy(), wanted.numpy(), weights

    pieces = list(rows())
    return Moments.of_rows(pieces, trials=total, lags=lags, inputs=inputs, affine=surrogate.has_biases)


def _check_labelled(name: str, trials: Batch, surrogate: LinearSurrogate) -> None:
    """Refuse trials with labels or masks that the model does not answer."""
    if trials.inputs.shape[2] != surrogate.inputs or trials.every_step != surrogate.every_step:
        raise InvalidSpec(
            f"{name!r} must have the model's {plural(surrogate.inputs, 'input')}, with targets "
            f"{_when('every_step' if surrogate.every_step else 'end')}, got "
            f"{plural(trials.inputs.shape[2], 'input')}, with targets "
            f"{_when('every_step' if trials.every_step else 'end')}. Match channels and readout to the model, "
            "or leave it out.",
            field=name,
        )


def _check_steps(name: str, x: FloatArray) -> None:
    if x.ndim != 3:
        raise InvalidSpec(f"inputs of {name!r} must be (trials, steps, inputs), got shape {x.shape}.")


def _check_fit(name: str, task: Task, surrogate: LinearSurrogate) -> None:
    when = "every_step" if surrogate.every_step else "end"
    wanted = (surrogate.inputs, surrogate.outputs, when)
    # A trial of one step has one target, which is both at the end and at every step.
    targets = when if task.steps == 1 else task.targets
    if (task.inputs, task.outputs, targets) != wanted:
        raise InvalidSpec(
            f"{name!r} must have the model's {plural(wanted[0], 'input')} and "
            f"{plural(wanted[1], 'output')}, with targets {_when(when)}, got {task.inputs} and "
            f"{task.outputs}, with targets {_when(task.targets)}. Match channels and readout to the model, or "
            "leave it out.",
            field=name,
        )


def _when(targets: str) -> str:
    return "at the end" if targets == "end" else "at every step"
