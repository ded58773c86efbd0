"""A pilot race: a few plans trained on the real model, seed after seed, until one is clearly the soonest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import t as student
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count
from learncast.advice.runner import LOOK, Runner
from learncast.advice.update_rule import UpdateRule
from learncast.results import STEPS, described
from learncast.training.goals import Goal
from learncast.training.sources import Source
from learncast.training.training import Training

#: Once a plan has arrived the others go on to this multiple of its steps, then they are cut off.
SLACK = 1.5
#: Confidence at which a race is decided.
SURE = 0.95

#: What is trained one after another: trials, and the goal at which each stage ends; a number is a loss.
Stages = Sequence[tuple[Source, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Race:
    """How plans did against each other on the real model.

    Attributes
    ----------
    dataset : Dataset
        ``race_steps`` over (lane, seed): steps until the target was learned; infinite when the plan was cut off at
        ``race_cut`` steps, nan when it no longer took part.
    winner : str or None
        The plan that is soonest on average over the seeds it shares with the runner-up; None when nobody arrived.
    decided : bool
        Whether it is clear: all others were cut off, or the confidence is at least 0.95.
    confidence : float
        That the winner is really sooner than the runner-up: one-sided paired t-test over the seeds; nan for one seed.
    """

    dataset: xr.Dataset

    @property
    def winner(self) -> str | None:
        """The soonest plan."""
        return str(self.dataset.attrs["race_winner"]) or None

    @property
    def decided(self) -> bool:
        """Whether the winner is clear."""
        return bool(self.dataset.attrs["race_decided"])

    @property
    def confidence(self) -> float:
        """That the winner is sooner than the runner-up."""
        return float(self.dataset.attrs["race_confidence"])

    @property
    def steps_spent(self) -> int:
        """Gradient steps of all plans and seeds together."""
        return int(self.dataset.attrs["race_spent"])

    @property
    def summary(self) -> str:
        """What came out, in plain words."""
        spent = f"{self.steps_spent} of {int(self.dataset.attrs['race_budget'])} steps"
        if self.winner is None:
            return f"The pilot race ended after {spent} before any plan had learned the target."
        seeds = int(np.isfinite(self.dataset["race_steps"].sel(lane=self.winner)).sum())
        sure = "" if math.isnan(self.confidence) else f", confidence {self.confidence:.2f}"
        return (
            f"In the pilot race {self.winner} came first over {seeds} seed{'s' if seeds != 1 else ''} "
            f"({'decided' if self.decided else 'not decided'}{sure}; {spent})."
        )

    def __repr__(self) -> str:
        return f"<Race: {self.summary}>"


def run_race(
    model: nn.Module,
    plans: Mapping[str, Stages],
    rule: UpdateRule,
    *,
    batch: int | None = None,
    budget: int,
    seeds: int = 3,
    training: Training | None = None,
    progress: Progress = silent,
) -> Race:
    """Train copies of a model by each plan, and halve the field after every seed.

    All plans of a seed take steps in turn. When the first has learned the target the others go on to 1.5 times its
    steps and are cut off. Then the better half goes on to the next seed, which has other batches, until one plan is
    left, two are told apart, or the seeds or the budget are used up.

    Parameters
    ----------
    model : nn.Module
        The start of every run; copied.
    plans : mapping from names to stages
        Of trials and the goal (a number is a loss) at which to go on, the target last.
    rule : UpdateRule
    batch : int or None
        Trials per step, where no training says it.
    budget : int
        Gradient steps of all plans and seeds together.
    seeds : int
        Most seeds.
    training : Training, optional
        Loss, batch, clipping, schedule, and whether stages reset the optimiser.
    progress : callable
        Called with the share of the budget used.
    """
    if len(plans) < 2:
        raise InvalidSpec(
            f"a race needs at least two plans, got {len(plans)}. Give more plans, or train the one there is."
        )
    left = count("budget", budget)
    settings = training or Training(rule.learning_rate, batch=batch)
    read = {name: [_stage(stage) for stage in stages] for name, stages in plans.items()}
    lanes: list[str] = list(plans)
    found: list[Round] = []
    for seed in range(count("seeds", seeds)):
        runners = {name: Runner(copy.deepcopy(model), read[name], rule, settings.with_(seed=seed)) for name in lanes}
        steps, cut, left = _round(runners, left, lambda rest: progress(1 - rest / budget))
        _check_finite(runners)
        if not np.isfinite(list(steps.values())).any():
            break  # the budget ended before anyone arrived
        found.append((steps, cut))
        means = {name: float(np.nanmean(_times(found, name))) for name in lanes}
        lanes = sorted(lanes, key=means.__getitem__)[: max(2, math.ceil(len(lanes) / 2))]
        if _told_apart(found, lanes) or left <= 0:
            break
    progress(1.0)
    table = np.array([[steps.get(name, math.nan) for steps, _ in found] for name in plans]).reshape(len(plans), -1)
    dataset = xr.Dataset(
        {
            "race_steps": (("lane", "seed"), table, described("steps until the target was learned", STEPS)),
            "race_cut": ("seed", [cut for _, cut in found], described("steps at which plans were cut off", STEPS)),
        },
        coords={"lane": list(plans), "seed": np.arange(len(found))},
        attrs={
            "race_winner": lanes[0] if found else "",
            "race_decided": int(bool(found) and _told_apart(found, lanes)),
            "race_confidence": _confidence(found, lanes[0], lanes[1]) if found else math.nan,
            "race_spent": budget - left,
            "race_budget": budget,
        },
    )
    return Race(dataset)


#: Steps of each plan on one seed (infinite: cut off), and where they were cut off.
Round = tuple[dict[str, float], float]


def _round(runners: dict[str, Runner], left: int, report: Callable[[int], None]) -> tuple[dict[str, float], float, int]:
    """Run side by side until all have arrived or are cut off; also the steps that are left of the budget."""
    steps = {name: 0.0 if runner.finished else math.inf for name, runner in runners.items()}
    arrived, now = math.inf, 0
    running = [name for name in runners if not runners[name].finished]
    while running and left >= LOOK * len(running) and now < SLACK * arrived:
        now += LOOK
        left -= LOOK * len(running)
        for name in running:
            runners[name].advance(LOOK)
            if runners[name].finished:
                steps[name] = float(runners[name].taken)
                arrived = min(arrived, steps[name])
        running = [name for name in running if not (runners[name].finished or runners[name].lost)]
        report(left)
    return steps, float(max(now, LOOK)), left


def _stage(stage: tuple[Source, Any]) -> tuple[Source, Any]:
    source, rule = stage
    return source, Goal.read(rule) if isinstance(rule, float) else rule


def _check_finite(runners: dict[str, Runner]) -> None:
    """Refuse a race in which no plan can be trained at all."""
    if all(runner.lost for runner in runners.values()):
        name, first = min(runners.items(), key=lambda item: item[1].taken)
        raise InvalidSpec(
            "the loss of some plan must stay a number while it is trained, got NaN or infinity in every "
            f"plan, first in {name!r} at step {first.taken}. Lower the learning rate, or clip gradients with "
            "clip=1.0."
        )


def _times(found: list[Round], name: str) -> FloatArray:
    """Logarithm of the steps on each seed a plan ran, its cut where it was cut off; nan where it did not run."""
    rows = [math.log(max(min(steps[name], cut), 1.0)) if name in steps else math.nan for steps, cut in found]
    return np.array(rows)


def _confidence(found: list[Round], first: str, second: str) -> float:
    """One-sided paired t-test over the seeds both ran."""
    gaps = _times(found, second) - _times(found, first)
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps) < 2:
        return math.nan
    spread = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if spread == 0.0:
        return 1.0 if gaps.mean() > 0 else 0.5
    return float(student.cdf(float(gaps.mean()) / spread, len(gaps) - 1))


def _told_apart(found: list[Round], lanes: list[str]) -> bool:
    """Whether the leader is clear: alone in arriving at every seed so far, or sure by the paired test."""
    last, _ = found[-1]
    others = [name for name in last if name != lanes[0]]
    if math.isfinite(last[lanes[0]]) and all(math.isinf(last[name]) for name in others):
        return True
    return _confidence(found, lanes[0], lanes[1]) >= SURE
