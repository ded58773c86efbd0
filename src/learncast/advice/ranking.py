"""Ranking of plans by the linear surrogate of a model, for goals on the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.advice.advice import DIRECT, SHORTLIST, Advice, AdviceValidity, AdvisedPlan, advice_of
from learncast.advice.moments import Moments, MomentStack, Rows
from learncast.advice.request import AdviceTerms, Request
from learncast.advice.surrogate import (
    BatchSlopes,
    LinearSurrogate,
    Parameters,
    descend_surrogate,
    in_numbers,
    linear_surrogate,
    stacked,
    written_out,
)
from learncast.procedure.goals import Explained, Loss
from learncast.procedure.stage import Stage
from learncast.tasks.recorded.streams import batches_of, from_batches
from learncast.tasks.task import Task
from learncast.training.losses import Answered
from learncast.training.sources import Batch, Source, checked_trials
from learncast.training.torch_state import evaluating

#: Trials drawn from a sampler to estimate its statistics.
SAMPLED = 4000
#: Numbers of trials, written out lag by lag, from which moments are summed.
WRITTEN = 2**26
#: Share of the loss to remove if the goal does not say.
USUAL_SHARE = 0.95


def rank_plans(request: Request, terms: AdviceTerms, *, progress: Progress = silent) -> Advice:
    """Rank plans by exact descent of the model's linear surrogate, in the model's own parameters and optimiser.

    Only the order of the plans is reliable.
    """
    request.rule.check_elementwise()
    surrogate = linear_surrogate(request.model)
    request.check_fit()
    forecaster = Forecaster.of(request, surrogate, terms)
    goal_loss, losses = forecaster.losses()
    direct = forecaster.direct(goal_loss)
    steps = forecaster.steps(goal_loss, direct, progress=progress)
    return _surrogate_advice(forecaster, forecaster.plans([direct, *steps.ravel()], losses), losses[0])


def _surrogate_advice(forecaster: Forecaster, plans: dict[str, AdvisedPlan], target_loss: float) -> Advice:
    """Return advice from the surrogate's forecasts, with its conditions."""
    request, surrogate = forecaster.request, forecaster.surrogate
    rule, loss = request.rule, request.loss
    measured = {
        "linear_at_start": _nonlinearity(request.model, surrogate, forecaster.target),
        "surrogate_learns_target": float(math.isinf(plans[DIRECT].score)),
        "smooth_descent": float(surrogate.kind == "relu" and not rule.adaptive),
        "squared_loss": float(not loss.squared or bool(loss.steps or loss.outputs)),
        "fresh_optimizer": float(rule.adaptive and not request.training.reset_optimizer),
    }
    conditions = sorted((AdviceValidity(*pair) for pair in measured.items()), key=lambda one: not one.condition.binding)
    failed = [(one.name, one.condition) for one in conditions if not one.holds]
    kept = [name for name, plan in plans.items() if math.isfinite(plan.score)][:SHORTLIST] or [DIRECT]
    best = plans[kept[0]]
    helps = f"the linear surrogate of the model takes {best.score:.2f} of the time of direct training with this plan"
    if kept[0] == DIRECT:
        helps = "by the linear surrogate of the model, no other plan saves time"
    elif best.task == request.target.name and request.rule.adaptive:
        helps += "; a fresh optimiser no longer divides its steps by the size of the first, large gradients"
    return advice_of(
        request,
        None,
        plans,
        shortlist=kept,
        measured=measured,
        warnings=[f"{name}: {one.otherwise}; {one.remedy}." for name, one in failed],
        target_loss=float(target_loss),
        kind=surrogate.kind,
        help=f"{helps}.",
        expect="The order of the plans, at small rates and for tasks that a linear map solves; the times are relative, "
        "and no steps of your model are counted.",
    )


def _factor(request: Request) -> float:
    """Return the ratio of the training loss to half the squared error; 1 if it is not a squared error."""
    if not request.loss.squared:
        return 1.0
    x, y, w = request.held_out(request.target)
    with evaluating(request.model):
        return request.loss.factor(Answered.of(request.model(x), y, w))


def _nonlinearity(model: nn.Module, surrogate: LinearSurrogate, target: Member) -> float:
    """Return the relative difference between the answers of the model and of its surrogate."""
    trials = target.source.held_out(200, (0, 0), next(model.parameters()).dtype)
    lags = target.moments.lags
    x, y, _ = in_numbers(trials, surrogate.outputs)
    rows, _ = written_out(x.double(), y.double(), lags)
    with evaluating(model):
        real = model(x).double().reshape(-1, surrogate.outputs)
        filters = surrogate.system(surrogate.stacked(1)).filters(lags).flatten(2)[0]
    size = float(real.pow(2).mean().sqrt())
    return float((real - rows @ filters.T).pow(2).mean().sqrt()) / size if size > 0 else 0.0


#: A plan is given up when it takes this many times the steps of direct training.
PATIENCE = 4.0


@dataclass(frozen=True, eq=False)
class Member:
    """A task with its trials and its moments."""

    source: Source
    moments: Moments


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Runs the surrogate through plans. Its steps are not those of the model; only their order is meaningful.

    Attributes
    ----------
    request : Request
        An adaptive optimiser divides by the size of noisy gradients, so it is given batches. Others use exact
        gradients, because the noise of their steps averages out.
    surrogate : LinearSurrogate
    terms : AdviceTerms
    target : Member
    first : tuple of Member
        Tasks that may be trained first. The target is one of them if resetting the optimiser, which has a state,
        differs from direct training.
    """

    request: Request
    surrogate: LinearSurrogate
    terms: AdviceTerms
    target: Member
    first: tuple[Member, ...]

    @classmethod
    def of(cls, request: Request, surrogate: LinearSurrogate, terms: AdviceTerms) -> Forecaster:
        """Collect the moments of all tasks; refuse tasks that do not fit the model."""
        target, *others = (_member(source, surrogate, request.training.seed) for source in request.sources)
        restarts = request.training.reset_optimizer and request.rule.remembers
        return cls(request, surrogate, terms, target, (*others, target) if restarts else tuple(others))

    def losses(self) -> tuple[float, list[float]]:
        """Return the surrogate's loss at the goal, and the model's losses at the ends of stages.

        The first of these losses is that of the target; the others are those of each first task at each stop. If the
        loss is not a squared error, its least value is unknown and taken as 0.
        """
        request, goal = self.request, self.request.goal
        squared, factor = request.loss.squared, _factor(request)
        least, start = self.target.moments.least, start_loss(self.surrogate, self.target)
        share = goal.value if isinstance(goal, Explained) else USUAL_SHARE
        surrogate_loss = remaining(start, least, share)

        def at(member: Member, removed: float) -> float:
            floor = factor * member.moments.least if squared else 0.0
            return remaining(request.start_loss(member.source), floor, removed)

        last = goal.value if isinstance(goal, Loss) else at(self.target, share)
        if isinstance(goal, Loss) and squared and goal.function == request.loss:
            surrogate_loss = goal.value / factor
            if not least < surrogate_loss < start:
                raise InvalidSpec(
                    f"goal must lie between {factor * least:.4g}, the least loss of any linear map, and "
                    f"{factor * start:.4g}, the model's loss, got {goal.value:g}.",
                    field="goal",
                )
        return surrogate_loss, [last, *(at(one, stop) for one in self.first for stop in self.terms.stops)]

    def plans(self, steps: Sequence[float], losses: Sequence[float]) -> dict[str, AdvisedPlan]:
        """Return all plans, best first; steps and losses are those of direct training, then of each task and stop."""
        target, function, goal = self.target.source, self.request.loss, self.request.goal
        # If direct training never finishes, plans are compared with the fastest one.
        unit = steps[0] if math.isfinite(steps[0]) else min(steps)
        scores = [one / unit if math.isfinite(unit) and unit > 0 else math.inf for one in steps]
        last = Stage(target, goal if isinstance(goal, Loss) else Loss(losses[0], function=function))
        plans = {DIRECT: AdvisedPlan((last,), f'Train on "{target.name}" directly', scores[0])}
        firsts = [(one.source, stop) for one in self.first for stop in self.terms.stops]
        for (source, stop), score, loss in zip(firsts, scores[1:], losses[1:], strict=True):
            name, then = f"{source.name} to {stop:.0%}", f'train on "{target.name}"'
            if source.name == target.name:
                name = f"{target.name} itself to {stop:.0%}, restarted"
                then = f'continue with "{target.name}" and a fresh optimiser'
            until = f"until {stop:.0%} of its excess loss is gone (loss {loss:.3g})"
            words = f'Train on "{source.name}" {until}, then {then}'
            stages = (Stage(source, Loss(loss, function=function)), last)
            plans[name] = AdvisedPlan(stages, words, score, source.name, stop, loss)
        return dict(sorted(plans.items(), key=lambda item: item[1].score))

    def direct(self, goal: float) -> float:
        """Return the surrogate's steps of direct training to a loss."""
        start, limits = self.surrogate.stacked(1), self.terms.most_steps
        return float(self._run([self.target], start, np.array([[goal]]), key=0, limits=limits)[0][0, 0])

    def steps(self, goal: float, direct: float, *, progress: Progress = silent) -> FloatArray:
        """Return the steps of every plan, (first tasks, stops); infinite if it was given up."""
        members, most = self.first, self.terms.most_steps
        patience = PATIENCE * direct if math.isfinite(direct) else float(most)
        starts = [(start_loss(self.surrogate, one), one.moments.least) for one in members]
        begun, ends = self._run(
            members,
            self.surrogate.stacked(len(members)),
            np.array([[remaining(*pair, stop) for stop in self.terms.stops] for pair in starts]),
            key=1,
            limits=min(patience, most),
            progress=lambda step: progress(min(0.4 * step / patience, 0.4)),
        )
        total = np.full_like(begun, np.inf)
        reached = np.isfinite(begun)
        states = [state for row in ends for state in row if state is not None]
        if states:
            rest, _ = self._run(
                [self.target],
                stacked(states),
                np.full((len(states), 1), goal),
                key=0,
                limits=np.minimum(patience - begun[reached], most),
                progress=lambda step: progress(min(0.4 + 0.6 * step / patience, 1.0)),
            )
            total[reached] = begun[reached] + rest[:, 0]
        progress(1.0)
        return total

    def _run(
        self, members: Sequence[Member], start: Parameters, goals: FloatArray, *, key: int, **options: Any
    ) -> tuple[FloatArray, list[list[Parameters | None]]]:
        moments = MomentStack.of([one.moments for one in members])
        training, rule = self.request.training, self.request.rule
        if rule.adaptive:
            sources = [one.source for one in members]
            options["batches"] = BatchSlopes(sources, training, key, moments.lags)
        scale = _factor(self.request)
        return descend_surrogate(self.surrogate, start, moments, goals, optimizer=rule.made, scale=scale, **options)


def start_loss(surrogate: LinearSurrogate, member: Member) -> float:
    """Return the loss of the surrogate before training."""
    moments = MomentStack.of([member.moments])
    with torch.no_grad():
        filters = surrogate.system(surrogate.stacked(1)).filters(moments.lags).flatten(2)
        return float(moments.loss_and_slope(filters)[0][0])


def remaining(start: float, least: float, accuracy: float) -> float:
    """Return the loss that remains after a share of the excess loss is gone."""
    return least + (1.0 - accuracy) * max(start - least, 0.0)


def _member(trials: Source, surrogate: LinearSurrogate, seed: int) -> Member:
    affine = surrogate.has_biases
    if trials.task is not None and trials.passes is None and trials.draw == trials.task.sample:
        return Member(trials, Moments.of(trials.task, affine=affine))
    parts = _batches(trials, seed)
    first = next(parts)
    if first.weights is None and first.numeric:
        task, means = _statistics(trials, chain([first], parts))
        return Member(trials, Moments.of(task, means=means, affine=affine))
    return Member(trials, _written_moments(chain([first], parts), surrogate))


def _batches(trials: Source, seed: int) -> Iterator[Batch]:
    """Yield the trials from which statistics are estimated: all recorded ones, a loader's, or a sample."""
    if trials.data is not None:
        yield trials.data
    elif trials.passes is None:
        yield trials.fresh(SAMPLED if trials.task is None else SAMPLED // 8, np.random.default_rng(seed))
    else:
        source, total = trials.passes.source, 0
        for k, batch in enumerate(batches_of(source)):
            found = checked_trials(batch, f"batch {k} of {trials.name!r}", trials.batch_first, trials.labels)
            total += len(found.inputs)
            yield found
            if hasattr(source, "__next__") and total >= SAMPLED:
                return  # an iterator may never end


def _statistics(trials: Source, parts: Iterable[Batch]) -> tuple[Task, tuple[FloatArray, FloatArray]]:
    """Return a task's statistics, and its mean inputs and targets."""
    sums: list[Any] = [0, 0.0, 0.0]

    def watched() -> Iterator[tuple[FloatArray, FloatArray]]:
        for x, y, _ in parts:
            sums[:] = (old + new for old, new in zip(sums, (len(x), x.sum(0), y.sum(0)), strict=True))
            yield x, y

    task = from_batches(watched(), name=trials.name)
    return task, (sums[1] / sums[0], np.atleast_2d(sums[2] / sums[0]))


def _written_moments(parts: Iterable[Batch], surrogate: LinearSurrogate) -> Moments:
    """Return the moments of trials with labels or masks."""
    found = [in_numbers(batch.tensors(torch.float64), surrogate.outputs) for batch in parts]
    lags, inputs = max(x.shape[1] for x, _, _ in found), surrogate.inputs
    most = max(200, WRITTEN // ((lags if found[0][1].ndim == 3 else 1) * lags * (inputs + 1)))
    pieces: list[Rows] = []
    total = 0
    for x, y, w in found:
        for part in (slice(k, k + 64) for k in range(0, min(len(x), most - total), 64)):
            written, wanted = written_out(x[part], y[part], lags)
            total += len(x[part])
            weights = None if w is None else w[part].reshape(len(wanted), -1).numpy()
            pieces.append((written.numpy(), wanted.numpy(), weights))
    return Moments.of_rows(pieces, trials=total, lags=lags, inputs=inputs, affine=surrogate.has_biases)
