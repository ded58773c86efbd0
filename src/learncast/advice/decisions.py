"""Advice for goals on decisions: the order of tasks by the features of the untrained network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from learncast.advice.advice import CONDITIONS, DIRECT, SHORTLIST, Advice, AdvisedPlan, advice_of, failed_conditions
from learncast.advice.readout import PROBED, TIMES, TRIALS, Probe, answer_share, readout_time
from learncast.advice.request import Request
from learncast.procedure.stage import Stage
from learncast.training.goals import DecisionAccuracy, Measured, TrialGoal
from learncast.training.rules import LOOKS, Learned, Lookahead, Stalled
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import own_threads

#: Share of the way from chance to the goal below which the target may stall.
NEAR = 0.3
#: Share of that way at which a candidate has helped enough, and at which the optimiser of direct training is reset.
HALFWAY = 0.5
#: Below this relevance (0 at chance, 1 for the target's own trials) a candidate may be an unrelated question.
RELEVANT = 0.15
#: If the target takes less than this multiple of its easiest candidate's readout time, there is little to gain.
CLOSE = 3.0

#: Results on unseen tasks (docs/theory/surrogates.md), part of every advice for decisions.
UNSURE = (
    "unsure: on public tasks that it was not tuned on, this advice took 0.9 of the steps of direct training with a "
    "reset optimiser, between 0.5 and 1.7; it pays if direct training is slow. Run a pilot race to decide."
)


#: Results with SGD and momentum on the same tasks.
NOT_ADAPTIVE = (
    "not_adaptive: this advice was tuned with Adam; with SGD and momentum it took 0.85 of the steps of direct training "
    "with a reset optimiser on public tasks, but 1.2 with tanh units. Run a pilot race to decide."
)


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is known about the tasks before training.

    Attributes
    ----------
    goal : TrialGoal
    names : tuple of str
        Of the target and each candidate.
    times : tuple of float
        Steps until a readout of the untrained network's features would meet the goal on each task; above 10^4 if it
        never would (see `readout_time`).
    chances : tuple of float
        The goal's measure of the best constant answer to each task; nan if unknown.
    own, transferred : float
        The goal's measure of quadratic answers to the target, fitted to the target's own trials and to those of the
        first candidate in `order` (see `answer_share`); nan if there is none.
    linear : float
        The goal's measure of the best linear answers to the target.
    """

    goal: TrialGoal
    names: tuple[str, ...]
    times: tuple[float, ...]
    chances: tuple[float, ...]
    own: float
    transferred: float
    linear: float

    @classmethod
    def of(cls, request: Request) -> Outlook:
        """Evaluate every task once; no gradient step is taken."""
        goal, loss, rule = request.goal, request.loss, request.rule
        assert isinstance(goal, TrialGoal)
        times, chances = [], []
        for source in request.sources:
            trials = _sample(source, PROBED, request)
            chances.append(goal.chance(trials.targets, trials.weights))
            probe = Probe.of(request.model, trials)
            times.append(readout_time(probe, goal, loss, learning_rate=rule.learning_rate, adaptive=rule.adaptive))
        names = tuple(one.name for one in request.sources)
        bare = cls(goal, names, tuple(times), tuple(chances), math.nan, math.nan, math.nan)
        trials = _sample(request.target, 2 * TRIALS, request)
        half = len(trials.inputs) // 2
        first, judged = trials.rows(slice(0, half)), trials.rows(slice(half, None))
        transferred = math.nan
        if bare.order:
            chosen = next(one for one in request.candidates if one.name == bare.order[0])
            transferred = answer_share(_sample(chosen, TRIALS, request), judged, goal, power=2)
        own, linear = (answer_share(first, judged, goal, power=power) for power in (2, 1))
        return replace(bare, own=own, transferred=transferred, linear=linear)

    @property
    def constant(self) -> tuple[str, ...]:
        """Candidates that a constant answer solves; they teach nothing."""
        pairs = zip(self.names[1:], self.chances[1:], strict=True)
        return tuple(name for name, chance in pairs if self.goal.met(chance))

    @property
    def order(self) -> tuple[str, ...]:
        """The other candidates, by readout time."""
        left = [name for name in self.names[1:] if name not in self.constant]
        return tuple(sorted(left, key=self.time))

    @property
    def easier(self) -> bool:
        """Whether some candidate has a shorter readout time than the target."""
        return bool(self.order) and self.time(self.order[0]) < self.times[0]

    @property
    def relevance(self) -> float:
        """Relevance of the first candidate: how much its trials say about the target's answers; nan if unknown."""
        way = self.own - self.chances[0]
        return (self.transferred - self.chances[0]) / way if abs(way) > 1e-9 else math.nan

    def time(self, name: str) -> float:
        """Return the readout time of a task."""
        return self.times[self.names.index(name)]

    def on_the_way(self, share: float) -> TrialGoal | None:
        """Return the goal at a share of the way from chance to the goal; None if chance is unknown."""
        goal, chance = self.goal, self.chances[0]
        if not math.isfinite(chance) or goal.met(chance):
            return None
        level, looks = chance + share * (goal.level - chance), max(LOOKS, goal.looks)
        if isinstance(goal, DecisionAccuracy):
            return replace(goal, value=level, looks=looks)
        assert isinstance(goal, Measured)
        if goal.at_least is None:
            return replace(goal, looks=looks, at_most=level)
        return replace(goal, looks=looks, at_least=level)

    def helped(self, target: str) -> str:
        """Return in words when a candidate has helped enough."""
        halfway = self.on_the_way(HALFWAY)
        return f"it is learned ({self.goal.text})" + ("" if halfway is None else f" or {target} reaches {halfway.text}")

    @property
    def undecided(self) -> float:
        """Shortfall of linear answers, as a share of the way from chance to the goal; nan if unknown."""
        way = self.goal.level - self.chances[0]
        return max(0.0, (self.goal.level - self.linear) / way) if way else math.nan

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for caution, the most important first."""
        goal, target, order = self.goal, self.names[0], self.order
        texts = []
        if self.undecided > CONDITIONS["linear_decides"].allowed:
            measured = f"{self.linear:.2f}; chance {self.chances[0]:.2f}, goal {goal.level:.2f}"
            texts.append(f"linear_decides: no linear answer decides {target} ({measured}); run a pilot race.")
        if goal.met(self.chances[0]):
            texts.append(
                f"chance: a constant answer meets the goal on {target} ({self.chances[0]:.2f}); raise the goal."
            )
        if self.constant:
            texts.append(f"constant: {', '.join(self.constant)} left out because a constant answer solves it.")
        if not order:
            texts.append("none: no candidate is left; train directly and reset the optimiser on the way.")
        elif not self.easier:
            texts.append(f"no_easier: no candidate has a shorter readout time than {target}; it may not help.")
        elif self.time(order[0]) > TIMES[-1]:
            texts.append("never: no candidate can be read from the untrained network's features; run a pilot race.")
        elif self.times[0] <= CLOSE * self.time(order[0]):
            texts.append(
                f"close: {target} is read out nearly as soon as its easiest candidate; there is little to gain."
            )
        if self.relevance < RELEVANT:
            texts.append(f"relevance: the trials of {order[0]} say no more than chance about the answers of {target}.")
        texts.append(UNSURE)
        return tuple(texts)


#: The recommended plan.
HELPED = "helped where it stalls"


def decision_plans(request: Request, outlook: Outlook) -> dict[str, AdvisedPlan]:
    """Return every plan by name: the recommended one, direct training with and without reset, single candidates."""
    target, goal = request.target, outlook.goal
    last = Stage(target, goal)
    halfway = outlook.on_the_way(HALFWAY)
    single: dict[str, AdvisedPlan] = {}
    for name in outlook.order:
        words = f"Train on {name} until {outlook.helped(target.name)}, then on {target.name}"
        share = outlook.time(name) / outlook.times[0]
        single[f"{name} until learned"] = AdvisedPlan(name, (_help(request, outlook, name), last), share, words)
    own: dict[str, AdvisedPlan] = {}
    # Resetting matters only for an optimiser with a state.
    if halfway is not None and request.training.reset_optimizer and request.rule.remembers:
        words = f"Train on {target.name} until {halfway.text}, then continue with a fresh optimiser"
        stages = (Stage(target, halfway), last)
        own[f"{target.name} itself, restarted"] = AdvisedPlan(target.name, stages, 1.0, words)
    own[DIRECT] = AdvisedPlan("", (last,), 1.0, f"Train on {target.name} directly")
    # Direct training with a reset is the plan to beat. It comes second, so that it takes part in a race.
    return {**({HELPED: _helped(request, outlook)} if outlook.order else {}), **own, **single}


def _helped(request: Request, outlook: Outlook) -> AdvisedPlan:
    """Return the plan that trains the target and, whenever it stalls, the next candidate."""
    target, goal = request.target, outlook.goal
    direct = Stage(target, Stalled(goal, near=outlook.on_the_way(NEAR)))
    stages = [direct]
    for name in outlook.order:
        stages += [_help(request, outlook, name), direct]
    stages[-1] = Stage(target, goal)
    first, *others = outlook.order
    then = f", the next time {', then '.join(others)}" if others else ""
    words = (
        f"Train on {target.name}; whenever it stalls, train on another task until {outlook.helped(target.name)}, then "
        f"continue with {target.name}: the first time on {first}{then}"
    )
    return AdvisedPlan(target.name, tuple(stages), outlook.time(first) / outlook.times[0], words)


def _help(request: Request, outlook: Outlook, name: str) -> Stage[Source]:
    """Return a stage on a candidate: until it is learned, or until the target is half way."""
    source = next(one for one in request.candidates if one.name == name)
    halfway, goal = outlook.on_the_way(HALFWAY), outlook.goal
    ahead = None if halfway is None else Lookahead(request.target, halfway)
    return Stage(source, Learned(replace(goal, looks=max(LOOKS, goal.looks)), ahead=ahead))  # type: ignore[type-var]


def decision_cost(request: Request) -> str:
    """Return the cost of the advice as text."""
    return (
        f"advice for decisions: no gradient step; one forward pass on {PROBED} trials of {len(request.sources)} "
        f"tasks, and three regressions on {TRIALS} trials"
    )


def decision_advice(request: Request) -> Advice:
    """Return advice from one evaluation of every task."""
    with own_threads(1):
        outlook = Outlook.of(request)
    plans = decision_plans(request, outlook)
    kept = request.rule.adaptive and not request.training.reset_optimizer
    measured = {"linear_decides": outlook.undecided, "fresh_optimizer": float(kept)}
    again, failed = CONDITIONS["fresh_optimizer"], failed_conditions(measured)
    warnings = [
        *([] if request.rule.adaptive else [NOT_ADAPTIVE]),
        *outlook.warnings,
        *([f"fresh_optimizer: {again.otherwise}; {again.remedy}."] if kept else ()),
    ]
    return advice_of(
        request,
        plans,
        measured,
        (value.detach().numpy() for value in request.model.parameters()),
        promise="decisions",
        score="time to read its answer, of the target's",
        shortlist=list(plans)[:SHORTLIST],
        warnings=sorted(warnings, key=lambda text: text.partition(":")[0] not in failed),  # failed conditions first
        kind=type(request.model).__name__,
        score_words="its answer is read from the network's features in {:.2g} of the target's time",
        cost_estimate=decision_cost(request),
    )


def _sample(source: Source, trials: int, request: Request) -> Batch:
    """Return held-out trials in random order, because recorded trials may be sorted."""
    found = source.held_out(trials, (0, 0), request.dtype)
    order = np.random.default_rng(request.training.seed).permutation(len(found.inputs))[:trials]
    return found.rows(torch.from_numpy(order))
