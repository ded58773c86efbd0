"""Advice to a goal of decisions: which candidates to mix, read from the features that the network has at its start."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from learncast.advice.mixture import Mixture
from learncast.advice.readout import PROBED, TIMES, Probe, linear_share, readout_time
from learncast.advice.request import Request
from learncast.simulate.goals import DecisionAccuracy, Goal, Measured
from learncast.simulate.sources import Batch, Source
from learncast.simulate.stopping import Ahead, Learned, Rule

#: Candidates that are mixed in the first stage: two are surer than one, and all of them dilute the useful.
MIXED = 2
#: Share of the target's way from chance to its goal at which the first stage ends in any case.
ARRIVED = 0.7
#: Share of that way at which the target alone has its optimiser restarted.
RESTARTED = 0.5
#: Looks whose mean ends the first stage: a single one is noisy, and to leave too early costs most.
LOOKS = 3
#: Trials by which it is judged whether linear answers decide.
LINEAR = 2000
#: A target as soon read as this multiple of its easiest candidate has little to gain.
CLOSE = 3.0
#: Linear answers that fall short of the goal by more than this share of the way from chance do not decide.
UNDECIDED = 0.5
#: Name of the plan without pretraining.
DIRECT = "no pretraining"


@dataclass(frozen=True, eq=False)
class Outlook:
    """What the tasks look like to the network at its start.

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
    linear : float
        The goal's measure of the best linear answers to the target.
    """

    goal: Goal
    names: tuple[str, ...]
    times: tuple[float, ...]
    chances: tuple[float, ...]
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
        linear = linear_share(_sample(request.target, LINEAR, request), goal)
        return cls(goal, tuple(one.name for one in request.sources), tuple(times), tuple(chances), linear)

    @property
    def constant(self) -> tuple[str, ...]:
        """Candidates that a constant answer solves: they are learned first and teach nothing."""
        pairs = zip(self.names[1:], self.chances[1:], strict=True)
        return tuple(name for name, chance in pairs if self.goal.met(chance))

    @property
    def order(self) -> tuple[str, ...]:
        """Candidates that can teach something, the soonest first."""
        left = [name for name in self.names[1:] if name not in self.constant]
        return tuple(sorted(left, key=self.time))

    @property
    def mixed(self) -> tuple[str, ...]:
        """Candidates of the first stage; none where none is sooner than the target itself."""
        order = self.order
        return order[:MIXED] if order and self.time(order[0]) < self.times[0] else ()

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
        return replace(goal, looks=looks, **{"at_most" if goal.at_least is None else "at_least": level})

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
        if self.undecided > UNDECIDED:
            found.append(
                f"linear_decides: no linear answer decides {target} ({self.linear:.2f} where chance is "
                f"{self.chances[0]:.2f} and the goal {goal.level:.2f}): forecasts from linear moments know nothing of "
                "it; this advice goes by the network's own features, which may not show it either."
            )
        if goal.met(self.chances[0]):
            found.append(
                f"chance: a constant answer meets the goal on {target} ({self.chances[0]:.2f}); raise the goal, or "
                "leave out the steps that ask for no decision."
            )
        if self.constant:
            names = ", ".join(self.constant)
            found.append(f"constant: {names} left out, a constant answer solves it: it is learned first, and misleads.")
        if not order:
            found.append("none: no candidate is left; the target with its optimiser restarted is what remains.")
        elif not self.mixed:
            found.append(f"no_easier: no candidate is read sooner than {target} itself, which is trained from the start.")
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
        if len(order) == 1:
            found.append("one: a single candidate is left to begin with; two mixed are surer.")
        return tuple(found)


class Plan(NamedTuple):
    """A plan by its stages, with how soon its first task can be read relative to the target, and itself in words."""

    stages: tuple[tuple[Source, Rule], ...]
    score: float
    words: str


def decision_plans(request: Request, outlook: Outlook) -> dict[str, Plan]:
    """Every plan by name, the recommended one first: mixed, each candidate, the target restarted, and the target."""
    target, goal = request.target, outlook.goal
    sources = {one.name: one for one in request.sources}
    last = (target, goal)
    arrived = outlook.on_the_way(ARRIVED)
    ahead = None if arrived is None else Ahead(target, arrived)
    rule = Learned(replace(goal, looks=max(LOOKS, goal.looks)), ahead=ahead)  # type: ignore[type-var]
    sooner = "" if arrived is None else f", or until {target.name} itself reaches {arrived.words}"
    firsts = [(name,) for name in outlook.order]
    if len(outlook.mixed) > 1:
        firsts.insert(0, outlook.mixed)
    easier: dict[str, Plan] = {}
    for names in firsts:
        one = Mixture.mixed([sources[name] for name in names])
        share = min(outlook.time(name) for name in names) / outlook.times[0]
        mixed = ", mixed in every batch," if len(names) > 1 else ""
        words = f"Train on {one.name}{mixed} until learned ({goal.words}){sooner}, then on {target.name}."
        easier[f"{one.name} until learned"] = Plan(((one, rule), last), share, words)
    own: dict[str, Plan] = {}
    again = outlook.on_the_way(RESTARTED)
    if again is not None:
        words = f"Train on {target.name} until {again.words}, then go on with a fresh optimiser."
        own[f"{target.name} itself, optimiser restarted"] = Plan(((target, again), last), 1.0, words)
    own[DIRECT] = Plan((last,), 1.0, f"Train on {target.name} directly.")
    return {**easier, **own} if outlook.mixed else {**own, **easier}


def _sample(source: Source, trials: int, request: Request) -> Batch:
    """Held-out trials in an order of their own: recorded ones may come sorted."""
    found = source.held_out(trials, (0, 0), request.dtype)
    order = np.random.default_rng(request.training.seed).permutation(len(found.inputs))[:trials]
    return found.rows(torch.from_numpy(order))
