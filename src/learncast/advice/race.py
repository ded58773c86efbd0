"""A pilot race: several plans trained on the real model, seed after seed, until one is clearly the fastest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from scipy.stats import t as student
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray, count
from learncast.procedure.goals import Goal, Rule
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import STEPS, Status, described
from learncast.training.loop import Loop
from learncast.training.rules import Learned, Stalled
from learncast.training.updates import Updates

#: After a plan has finished, the others may take this multiple of its steps.
SLACK = 1.5
#: Confidence at which a race is decided.
SURE = 0.95
#: Steps between two evaluations of a goal, each of which costs as much as a step.
LOOK = 5


@dataclass(frozen=True, eq=False, repr=False)
class Race:
    """The result of a pilot race.

    Attributes
    ----------
    dataset : Dataset
        ``race_steps`` over (lane, seed): steps until the target was learned; infinite if the plan was stopped at
        ``race_cut`` steps, nan if it did not take part.
    winner : str or None
        The plan that is fastest on average over the seeds it shares with the runner-up; None if no plan finished.
    decided : bool
        Whether all others were stopped, or the confidence is at least 0.95.
    confidence : float
        That the winner is faster than the runner-up: one-sided paired t-test over the seeds; nan for one seed.

    Examples
    --------
    See `run_race`.

    >>> import learncast as lc
    >>> [name for name in ("winner", "decided", "confidence") if hasattr(lc.advice.Race, name)]
    ['winner', 'decided', 'confidence']
    """

    dataset: xr.Dataset

    @property
    def winner(self) -> str | None:
        """The fastest plan."""
        return str(self.dataset.attrs["race_winner"]) or None

    @property
    def decided(self) -> bool:
        """Whether the winner is certain."""
        return bool(self.dataset.attrs["race_decided"])

    @property
    def confidence(self) -> float:
        """Confidence that the winner is faster than the runner-up."""
        return float(self.dataset.attrs["race_confidence"])

    @property
    def steps_spent(self) -> int:
        """Gradient steps of all plans and seeds."""
        return int(self.dataset.attrs["race_spent"])

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        spent = f"{self.steps_spent} of {int(self.dataset.attrs['race_budget'])} steps"
        if self.winner is None:
            return f"The pilot race ended after {spent} before any plan had learned the target."
        seeds = int(np.isfinite(self.dataset["race_steps"].sel(lane=self.winner)).sum())
        sure = "" if math.isnan(self.confidence) else f", confidence {self.confidence:.2f}"
        return (
            f"In the pilot race {self.winner} was fastest over {seeds} seed{'s' if seeds != 1 else ''} "
            f"({'decided' if self.decided else 'not decided'}{sure}; {spent})."
        )

    def __repr__(self) -> str:
        return f"<Race: {self.summary}>"


def race_loop(model: nn.Module, stages: Sequence[Stage[object]], training: Training) -> Loop:
    """Return a loop that trains a copy of a model; goals are evaluated at most every 5 steps, on the same trials."""
    module = copy.deepcopy(model).train()
    spaced = [replace(stage, goal=_spaced(stage.goal)) for stage in stages]
    return Loop.of(spaced, module, training, optimizer=Updates(module, training), judge_seed=0)


def _spaced(rule: Rule | None) -> Rule | None:
    if isinstance(rule, Learned | Stalled):
        goal = _spaced(rule.goal)
        assert isinstance(goal, Goal)
        return replace(rule, goal=goal)
    return replace(rule, every=LOOK) if isinstance(rule, Goal) and rule.every < LOOK else rule  # type: ignore[type-var]


def run_race(
    model: nn.Module,
    plans: Mapping[str, Sequence[Stage[object]]],
    training: Training,
    *,
    budget: int,
    seeds: int = 3,
    progress: Progress = silent,
) -> Race:
    """Train copies of a model by each plan, and halve the field after every seed.

    All plans of a seed take steps in turn. When the first has learned the target, the others may take 1.5 times its
    steps. Then the better half goes on to the next seed, which has other batches, until one plan is left, the leader is
    certain, or the seeds or the budget are used up.

    Parameters
    ----------
    model : nn.Module
        The start of every run; copied.
    plans : mapping from names to stages
        The target is the last stage.
    training : Training
        Its seed is replaced.
    budget : int
        Gradient steps of all plans and seeds.
    seeds : int
        Largest number of seeds.
    progress : callable
        Called with the share of the budget used.

    Returns
    -------
    Race

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(64, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> trials = {"last": (inputs, inputs[:, -1]), "sum": (inputs, inputs.sum(1))}
    >>> first, last = lc.Stage(trials["last"], lc.Loss(0.2)), lc.Stage(trials["sum"], lc.Loss(1.0))
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> training = lc.Training(0.02, optimizer="adam")
    >>> lc.advice.run_race(model, {"direct": [last], "last first": [first, last]}, training, budget=2000).winner
    'direct'
    """
    if len(plans) < 2:
        raise InvalidSpec(f"A race needs at least two plans, got {len(plans)}.", field="plans")
    left = count("budget", budget)
    lanes: list[str] = list(plans)
    rounds: list[Round] = []
    # The steps are counted by the race alone.
    settings = training.with_(most_steps=max(left, 1))
    for seed in range(count("seeds", seeds)):
        loops = {name: race_loop(model, plans[name], settings.with_(seed=seed)) for name in lanes}
        steps, cut, left = _round(loops, left, lambda rest: progress(1 - rest / budget))
        _check_finite(loops)
        if not np.isfinite(list(steps.values())).any():
            break  # the budget ended before any plan finished
        rounds.append((steps, cut))
        means = {name: float(np.nanmean(_times(rounds, name))) for name in lanes}
        lanes = sorted(lanes, key=means.__getitem__)[: max(2, math.ceil(len(lanes) / 2))]
        if _certain(rounds, lanes) or left <= 0:
            break
    progress(1.0)
    table = np.array([[steps.get(name, math.nan) for steps, _ in rounds] for name in plans]).reshape(len(plans), -1)
    dataset = xr.Dataset(
        {
            "race_steps": (("lane", "seed"), table, described("steps until the target was learned", STEPS)),
            "race_cut": ("seed", [cut for _, cut in rounds], described("steps at which plans were stopped", STEPS)),
        },
        coords={"lane": list(plans), "seed": np.arange(len(rounds))},
        attrs={
            "race_winner": lanes[0] if rounds else "",
            "race_decided": int(bool(rounds) and _certain(rounds, lanes)),
            "race_confidence": _confidence(rounds, lanes[0], lanes[1]) if rounds else math.nan,
            "race_spent": budget - left,
            "race_budget": budget,
        },
    )
    return Race(dataset)


#: Steps of each plan on one seed (infinite: stopped), and where they were stopped.
Round = tuple[dict[str, float], float]


def _round(loops: dict[str, Loop], left: int, report: Callable[[int], None]) -> tuple[dict[str, float], float, int]:
    """Run all plans until each has finished or is stopped; return their steps, the stop and the remaining budget."""
    steps = {name: 0.0 if loop.done else math.inf for name, loop in loops.items()}
    finished, now = math.inf, 0
    running = [name for name in loops if not loops[name].done]
    while running and left >= LOOK * len(running) and now < SLACK * finished:
        now += LOOK
        left -= LOOK * len(running)
        for name in running:
            loop = loops[name]
            loop.advance(LOOK)
            if loop.done and loop.status is Status.ok:
                steps[name] = float(sum(loop.steps))
                finished = min(finished, steps[name])
        running = [name for name in running if not (loops[name].done or _lost(loops[name]))]
        report(left)
    return steps, float(max(now, LOOK)), left


def _lost(loop: Loop) -> bool:
    return loop.status is Status.diverged or math.isinf(loop.latest)


def _check_finite(loops: dict[str, Loop]) -> None:
    """Raise if every plan diverged."""
    if all(_lost(loop) for loop in loops.values()):
        name, first = min(loops.items(), key=lambda item: sum(item[1].steps))
        raise InvalidSpec(
            f"Every plan diverged, first {name!r} at step {sum(first.steps)}. Lower the learning rate or set clip.",
            field="training",
        )


def _times(rounds: list[Round], name: str) -> FloatArray:
    """Return the logarithm of a plan's steps on each seed; nan if it did not run."""
    rows = [math.log(max(min(steps[name], cut), 1.0)) if name in steps else math.nan for steps, cut in rounds]
    return np.array(rows)


def _confidence(rounds: list[Round], first: str, second: str) -> float:
    """Return the confidence of a one-sided paired t-test over the seeds that both ran."""
    gaps = _times(rounds, second) - _times(rounds, first)
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps) < 2:
        return math.nan
    spread = float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    if spread == 0.0:
        return 1.0 if gaps.mean() > 0 else 0.5
    return float(student.cdf(float(gaps.mean()) / spread, len(gaps) - 1))


def _certain(rounds: list[Round], lanes: list[str]) -> bool:
    """Whether the leader is certain: the only plan that finished on the last seed, or by the paired test."""
    last, _ = rounds[-1]
    others = [name for name in last if name != lanes[0]]
    if math.isfinite(last[lanes[0]]) and all(math.isinf(last[name]) for name in others):
        return True
    return _confidence(rounds, lanes[0], lanes[1]) >= SURE
