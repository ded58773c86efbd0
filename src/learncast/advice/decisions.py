"""Advice to a goal of decisions: which task to begin with, read from the features that the network starts with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr

from learncast.advice.advice import CONDITIONS, DIRECT, PROMISES, SHORTLIST, Advice
from learncast.advice.readout import PROBED, TIMES, Probe, readout_time
from learncast.advice.relevance import TRIALS, answer_share
from learncast.advice.request import Request
from learncast.results import described, spec_hash
from learncast.training.borrowed import own_threads
from learncast.training.goals import DecisionAccuracy, Goal, Measured
from learncast.training.run import training_provenance
from learncast.training.sources import Batch, Source
from learncast.training.stopping import LOOKS, Ahead, Learned, Rule, Stalled

#: Share of the target's way from chance to its goal below which it may be said to stall.
NEAR = 0.3
#: Share of that way at which a candidate has helped enough, and at which the target alone has its optimiser restarted.
HALFWAY = 0.5
#: A task whose trials tell less than this of the target's answers (0 at chance, 1 as much as the target's own) may be
#: another question with the same inputs.
RELEVANT = 0.15
#: A target as soon read as this multiple of its easiest candidate has little to gain.
CLOSE = 3.0

#: What unseen pools of tasks have shown (docs/theory/surrogates.md), said with every advice for decisions.
UNSURE = (
    "unsure: on public tasks that it was not tuned on this advice took 0.9 of the steps of the target with its "
    "optimiser restarted, from half as many to 1.7 times as many; it pays where direct training is slow, and a pilot "
    "race tells."
)


#: What was seen with SGD and momentum there.
NOT_ADAPTIVE = (
    "not_adaptive: this advice was tuned with Adam; with SGD and momentum it took 0.85 of the restarted target's steps "
    "on public tasks, but 1.2 with tanh units, which reach a goal and lose it again: a pilot race tells."
)


@dataclass(frozen=True, eq=False)
class Outlook:
    """What the tasks look like before any training.

    Attributes
    ----------
    goal : Goal
        Of decisions, or measured by a function.
    names : tuple of str
        Of the target and each candidate.
    times : tuple of float
        Steps until a readout of the network's features at its start would meet the goal on each task; above 10^4 where
        it never would (see `readout_time`).
    chances : tuple of float
        The goal's measure of the best constant answer to each; nan where unknown.
    own, told : float
        The goal's measure of answers to the target by a square of its inputs that was fitted to the target's own
        trials, and to those of the first candidate in `order` (see `answer_share`); nan where there is none.
    linear : float
        The goal's measure of the best linear answers to the target.
    """

    goal: Goal
    names: tuple[str, ...]
    times: tuple[float, ...]
    chances: tuple[float, ...]
    own: float
    told: float
    linear: float

    @classmethod
    def of(cls, request: Request) -> Outlook:
        """Look once at every task; no gradient step is taken."""
        goal, loss, rule = request.goal, request.loss, request.rule
        assert goal is not None
        times, chances = [], []
        for source in request.sources:
            trials = _sample(source, PROBED, request)
            chances.append(goal.chance(trials.targets, trials.weights))
            seen = Probe.of(request.model, trials)
            times.append(readout_time(seen, goal, loss, learning_rate=rule.learning_rate, adaptive=rule.adaptive))
        names = tuple(one.name for one in request.sources)
        bare = cls(goal, names, tuple(times), tuple(chances), math.nan, math.nan, math.nan)
        trials = _sample(request.target, 2 * TRIALS, request)
        half = len(trials.inputs) // 2
        first, judged = trials.rows(slice(0, half)), trials.rows(slice(half, None))
        told = math.nan
        if bare.order:
            chosen = next(one for one in request.candidates if one.name == bare.order[0])
            told = answer_share(_sample(chosen, TRIALS, request), judged, goal, power=2)
        own, linear = (answer_share(first, judged, goal, power=power) for power in (2, 1))
        return replace(bare, own=own, told=told, linear=linear)

    @property
    def constant(self) -> tuple[str, ...]:
        """Candidates that a constant answer solves: they are learned first and teach nothing."""
        pairs = zip(self.names[1:], self.chances[1:], strict=True)
        return tuple(name for name, chance in pairs if self.goal.met(chance))

    @property
    def order(self) -> tuple[str, ...]:
        """Candidates that can teach something, the soonest read first."""
        left = [name for name in self.names[1:] if name not in self.constant]
        return tuple(sorted(left, key=self.time))

    @property
    def easier(self) -> bool:
        """Whether some candidate is read sooner than the target itself."""
        return bool(self.order) and self.time(self.order[0]) < self.times[0]

    @property
    def relevance(self) -> float:
        """How much of the target's answers the first candidate's trials tell; nan where unknown."""
        way = self.own - self.chances[0]
        return (self.told - self.chances[0]) / way if abs(way) > 1e-9 else math.nan

    def time(self, name: str) -> float:
        """Steps of a readout on a task."""
        return self.times[self.names.index(name)]

    def on_the_way(self, share: float) -> Goal | None:
        """The goal of having come so far from chance on the target; none where chance is unknown."""
        goal, chance = self.goal, self.chances[0]
        if not math.isfinite(chance) or goal.met(chance):
            return None
        level, looks = chance + share * (goal.level - chance), max(LOOKS, goal.looks)
        if isinstance(goal, DecisionAccuracy):
            return replace(goal, accuracy=level, looks=looks)
        assert isinstance(goal, Measured)
        if goal.at_least is None:
            return replace(goal, looks=looks, at_most=level)
        return replace(goal, looks=looks, at_least=level)

    def helped(self, target: str) -> str:
        """When a candidate has helped enough, in words."""
        halfway = self.on_the_way(HALFWAY)
        return f"it is learned ({self.goal.words})" + (
            "" if halfway is None else f" or {target} itself reaches {halfway.words}"
        )

    @property
    def undecided(self) -> float:
        """By how much linear answers fall short of the goal, as a share of the way from chance; nan where unknown."""
        way = self.goal.level - self.chances[0]
        return max(0.0, (self.goal.level - self.linear) / way) if way else math.nan

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to be careful about, what matters most first."""
        goal, target, order = self.goal, self.names[0], self.order
        found = []
        if self.undecided > CONDITIONS["linear_decides"].allowed:
            found.append(
                f"linear_decides: no linear answer decides {target} ({self.linear:.2f} where chance is "
                f"{self.chances[0]:.2f} and the goal {goal.level:.2f}): forecasts from linear moments know nothing of "
                "it; this advice goes by the network's own features, which may not show it either, and a pilot "
                "race to the goal would tell."
            )
        if goal.met(self.chances[0]):
            found.append(
                f"chance: a constant answer meets the goal on {target} ({self.chances[0]:.2f}); raise the goal, or "
                "leave out the steps that ask for no decision."
            )
        if self.constant:
            found.append(
                f"constant: {', '.join(self.constant)} left out: a constant answer solves what is asked there."
            )
        if not order:
            found.append("none: no candidate is left; the target with its optimiser restarted is what remains.")
        elif not self.easier:
            found.append(f"no_easier: no candidate is read sooner than {target} itself: help may not help.")
        elif self.time(order[0]) > TIMES[-1]:
            found.append(
                "never: no candidate can be read from the features that the network starts with; their order is by how "
                "near they come, which is a weak sign: watch the first stage, or ask for a pilot race."
            )
        elif self.times[0] <= CLOSE * self.time(order[0]):
            found.append(
                f"close: {target} itself is read nearly as soon as its easiest candidate: there is little to gain, and "
                "training directly may be as soon."
            )
        if self.relevance < RELEVANT:
            found.append(
                f"relevance: the trials of {order[0]} tell no more than chance of {target}'s answers: it may be "
                "another question with the same inputs, which teaches the network to hold and to read them and no more."
            )
        found.append(UNSURE)
        return tuple(found)


#: The plan that is recommended.
HELPED = "helped where it stalls"


class Plan(NamedTuple):
    """A plan by its stages, with how soon its first task can be read relative to the target, and itself in words."""

    task: str
    stages: tuple[tuple[Source, Rule], ...]
    score: float
    words: str


def decision_plans(request: Request, outlook: Outlook) -> dict[str, Plan]:
    """Every plan by name, the recommended one first, then the target restarted, the target, and single candidates."""
    target, goal = request.target, outlook.goal
    last = (target, goal)
    halfway = outlook.on_the_way(HALFWAY)
    single: dict[str, Plan] = {}
    for name in outlook.order:
        words = f"Train on {name} until {outlook.helped(target.name)}, then on {target.name}"
        share = outlook.time(name) / outlook.times[0]
        single[f"{name} until learned"] = Plan(name, (_help(request, outlook, name), last), share, words)
    own: dict[str, Plan] = {}
    # An optimiser without a memory, or one that is kept, is the same after the switch as before.
    if halfway is not None and request.training.reset_optimizer and request.rule.remembers:
        words = f"Train on {target.name} until {halfway.words}, then go on with it and a fresh optimiser"
        own[f"{target.name} itself, restarted"] = Plan(target.name, ((target, halfway), last), 1.0, words)
    own[DIRECT] = Plan("", (last,), 1.0, f"Train on {target.name} directly")
    # The restarted target is the plan to beat: it comes second, so that a race of the shortlist tries it.
    return {**({HELPED: _helped(request, outlook)} if outlook.order else {}), **own, **single}


def _helped(request: Request, outlook: Outlook) -> Plan:
    """The target, and whenever it stalls the candidate that is soonest read and was not trained yet."""
    target, goal = request.target, outlook.goal
    alone: tuple[Source, Rule] = (target, Stalled(goal, near=outlook.on_the_way(NEAR)))
    stages = [alone]
    for name in outlook.order:
        stages += [_help(request, outlook, name), alone]
    stages[-1] = (target, goal)
    first, *others = outlook.order
    then = f", the next time {', then '.join(others)}" if others else ""
    words = (
        f"Train on {target.name}; whenever it stalls train on another task until {outlook.helped(target.name)}, then "
        f"go on with {target.name}: the first time on {first}{then}"
    )
    return Plan(target.name, tuple(stages), outlook.time(first) / outlook.times[0], words)


def _help(request: Request, outlook: Outlook, name: str) -> tuple[Source, Rule]:
    """A stage on a candidate: until it is learned, or until the target is half way."""
    source = next(one for one in request.candidates if one.name == name)
    halfway, goal = outlook.on_the_way(HALFWAY), outlook.goal
    ahead = None if halfway is None else Ahead(request.target, halfway)
    return source, Learned(replace(goal, looks=max(LOOKS, goal.looks)), ahead=ahead)  # type: ignore[type-var]


def decision_cost(request: Request) -> str:
    """What the advice costs, in words."""
    return (
        f"advice for decisions: no gradient step; {PROBED} trials of each of {len(request.sources)} tasks are shown "
        f"once to the model, and three regressions on {TRIALS} trials"
    )


def decision_advice(request: Request) -> Advice:
    """Advice from one look at every task."""
    with own_threads(request.training.threads):
        outlook = Outlook.of(request)
    plans = decision_plans(request, outlook)
    kept = request.rule.adaptive and not request.training.reset_optimizer
    measured = {"linear_decides": outlook.undecided, "fresh_optimizer": float(kept)}
    failed = [name for name, value in measured.items() if value > CONDITIONS[name].allowed]
    forecast_class = "outside" if failed else "surrogate"
    again = CONDITIONS["fresh_optimizer"]
    warnings = [
        *([] if request.rule.adaptive else [NOT_ADAPTIVE]),
        *outlook.warnings,
        *([f"fresh_optimizer: {again.otherwise}; {again.remedy}."] if kept else ()),
    ]
    warnings.sort(key=lambda text: text.partition(":")[0] not in failed)  # what costs the class comes first
    variables = {
        "task": ([plan.task for plan in plans.values()], "task trained first", "1"),
        "score": ([plan.score for plan in plans.values()], "time to read its answer, of the target's", "1"),
        "within_cap": ([True] * len(plans), "whether it may be recommended", "1"),
        "rank": (1 + np.arange(len(plans)), "place in the ranking", "1"),
        "words": ([plan.words for plan in plans.values()], "the plan in words", "1"),
    }
    names = list(plans)
    dataset = xr.Dataset(
        {name: ("plan", values, described(text, unit)) for name, (values, text, unit) in variables.items()},
        coords={"plan": names},
        attrs={
            **request.facts,
            "kind": type(request.model).__name__,
            "score_words": "its answer is read from the network's features in {:.2g} of the target's time",
            "recommended": names[0],
            "shortlist": "\n".join(names[:SHORTLIST]),
            "forecast_class": forecast_class,
            "promise": PROMISES["decisions" if forecast_class == "surrogate" else "outside"],
            "warnings": "\n".join([*warnings, *request.remarks]),
            "cost_estimate": decision_cost(request),
            **{f"validity_{name}": value for name, value in measured.items()},
        },
    )
    weights = (value.detach().numpy() for value in request.model.parameters())
    rule = request.rule
    digest = spec_hash(*(one.hash for one in request.sources), *weights, rule.name, rule.learning_rate)
    stages = {name: plan.stages for name, plan in plans.items()}
    return Advice(dataset, training_provenance(digest, request.training.seed), request, stages)


def _sample(source: Source, trials: int, request: Request) -> Batch:
    """Held-out trials in an order of their own: recorded ones may come sorted."""
    found = source.held_out(trials, (0, 0), request.dtype)
    order = np.random.default_rng(request.training.seed).permutation(len(found.inputs))[:trials]
    return found.rows(torch.from_numpy(order))
