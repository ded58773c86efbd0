"""Help for a target that stalls: which easier tasks are mixed in, and when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from learncast.advice.request import Request
from learncast.procedure.stage import Stage
from learncast.results import spec_hash
from learncast.training.goals import DecisionAccuracy, Measured, TrialGoal
from learncast.training.rules import LOOKS, Learned, Lookahead, Stalled
from learncast.training.sources import Batch, Source


@dataclass(frozen=True, eq=False)
class Mixture(Source):
    """Trials of a target, mixed with those of other tasks: half of each batch, from one of them after the other.

    Where their trials cannot be joined, e.g. because they have other lengths, batches alternate. Trials for evaluation
    are those of the target.

    Attributes
    ----------
    target : Source
    others : tuple of Source
    """

    target: Source = field(kw_only=True)
    others: tuple[Source, ...] = field(kw_only=True)

    @classmethod
    def mixed(cls, target: Source, others: Sequence[Source]) -> Mixture:
        """Mix a target with other tasks."""
        known = {one.name: getattr(target, one.name) for one in fields(Source) if one.init}
        name = f"{target.name}, mixed with {', '.join(one.name for one in others)}"
        digest = spec_hash("mixture", target.hash, *(one.hash for one in others))
        return cls(**{**known, "name": name, "hash": digest}, target=target, others=tuple(others))

    def batch(
        self, trials: int | None, key: tuple[int, int], step: int, dtype: torch.dtype, *, shuffle: bool = False
    ) -> Batch:
        place = (step // 2) % len(self.others)
        half = None if trials is None else max(trials // 2, 1)
        own = self.target.batch(half, key, step, dtype, shuffle=shuffle)
        # Other random numbers than those of the target, so that noise is not shared.
        other = self.others[place].batch(half, (key[0], key[1] + 1000 + place), step, dtype, shuffle=shuffle)
        if any(
            (a is None) != (b is None) or (a is not None and a.shape[1:] != b.shape[1:])
            for a, b in zip(own, other, strict=True)
        ):
            return own if step % 2 else other
        return Batch(*(None if a is None else torch.cat([a, b]) for a, b in zip(own, other, strict=True)))


#: Share of the way from chance to the goal below which the target may stall.
NEAR = 0.3
#: Share of that way at which easier tasks have helped enough.
HALFWAY = 0.5
#: Steps before which a target cannot stall, and factor of the learning rate from then on.
LEAST, SLOWER = 60, 0.5
#: Trials compared, and nearest trials of the target that are looked up for each of them.
COMPARED, NEAREST = 500, 5
#: Trials look like the target's if they are at most this many times as far from them as those are from each other.
ALIKE = 1.5
#: Distance below which inputs are the same, in float32.
SAME = 1e-5
#: Trials of the target say too little about each other's answers if they agree less than this above chance.
TELLING = 0.1


def on_the_way(goal: TrialGoal, chance: float, share: float) -> TrialGoal | None:
    """Return the goal at a share of the way from chance to the goal; None if chance is unknown or meets the goal."""
    if not math.isfinite(chance) or goal.met(chance):
        return None
    level, looks = chance + share * (goal.level - chance), max(LOOKS, goal.looks)
    if isinstance(goal, DecisionAccuracy):
        return replace(goal, value=level, looks=looks)
    assert isinstance(goal, Measured)
    if goal.at_least is None:
        return replace(goal, looks=looks, at_most=level)
    return replace(goal, looks=looks, at_least=level)


def left_out(request: Request) -> dict[str, str]:
    """Return the candidates that should not be mixed in, with the reason."""
    goal, chance = request.goal, request.chance()
    assert isinstance(goal, TrialGoal)
    reasons = {}
    for source in request.candidates:
        trials = request.held_out(source)
        if goal.met(goal.chance(trials.targets, trials.weights)):
            reasons[source.name] = "a constant answer solves it"
        elif contradicts(request.held_out(request.target), trials, goal, chance):
            reasons[source.name] = "its trials look like the target's and are answered differently"
    return reasons


def contradicts(target: Batch, other: Batch, goal: TrialGoal, chance: float) -> bool:
    """Whether trials look like the target's, and are answered differently from the nearest of them.

    Half of the target's trials are looked up. The other half says how well such an answer fits the target itself.
    """
    half = min(len(target.inputs) // 2, COMPARED)
    known, judged = target.rows(slice(0, half)), target.rows(slice(half, 2 * half))
    compared = other.rows(slice(0, COMPARED))
    if half <= NEAREST or known.inputs.shape[1:] != compared.inputs.shape[1:]:
        return False
    same, places = torch.cdist(compared.inputs.flatten(1), target.inputs.flatten(1)).min(1)
    equal = same <= SAME * float(known.inputs.abs().mean() + 1)
    if isinstance(goal, DecisionAccuracy) and int(equal.sum()) > NEAREST:  # the target's own inputs
        asked = compared.rows(equal)
        agreed = goal.measure(_answers(target, places[equal], asked), asked.targets, asked.weights)
        return agreed - chance < HALFWAY * (1 - chance)
    own, distance = _agreement(known, judged, goal)
    agreement, far = _agreement(known, compared, goal)
    way = own - chance
    return far <= ALIKE * distance and abs(way) > TELLING and (agreement - chance) / way < HALFWAY


def _agreement(known: Batch, asked: Batch, goal: TrialGoal) -> tuple[float, float]:
    """Return the goal's measure of the nearest known trials' answers, and the mean distance of the nearest trials."""
    distance, places = torch.cdist(asked.inputs.flatten(1), known.inputs.flatten(1)).topk(NEAREST, largest=False)
    measures = [
        goal.measure(_answers(known, places[:, k], asked), asked.targets, asked.weights) for k in range(NEAREST)
    ]
    return sum(measures) / NEAREST, float(distance.square().mean())


def _answers(known: Batch, places: Tensor, asked: Batch) -> Tensor:
    """Return the targets of some trials as answers."""
    targets: Tensor = known.targets[places]
    if targets.is_floating_point():
        return targets
    classes = 1 + int(max(known.targets.max(), asked.targets.max()))
    return torch.nn.functional.one_hot(targets.clamp(min=0), max(classes, 2)).double()


def helped_stages(request: Request, helpers: Sequence[Source]) -> list[Stage[object]]:
    """Return the stages of training: the target, where it stalls a mixture with easier tasks, and the target again."""
    target, goal, chance = request.target, request.goal, request.chance()
    assert isinstance(goal, TrialGoal)
    if not helpers:
        return [Stage(target, goal)]
    ahead = Lookahead(target, on_the_way(goal, chance, HALFWAY) or goal)
    enough = Learned(replace(goal, looks=max(LOOKS, goal.looks)), ahead=ahead)  # type: ignore[type-var]
    stalled = Stalled(goal, near=on_the_way(goal, chance, NEAR), least=LEAST)
    mixture = Mixture.mixed(target, helpers)
    return [Stage(target, stalled), Stage(mixture, enough, rate=SLOWER), Stage(target, goal, rate=SLOWER)]
