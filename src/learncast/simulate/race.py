"""A pilot race: a few plans trained on the real model, seed after seed, until one is clearly the soonest."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.stats import t as student
from torch import nn

from learncast.errors import InvalidSpec
from learncast.progress import Progress, silent
from learncast.simulate.sources import Source
from learncast.simulate.update_rule import UpdateRule
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray, count

#: Steps between two looks at the loss, and held-out trials on which it is judged.
LOOK, JUDGED = 5, 500
#: Once a plan has arrived the others go on to this multiple of its steps, then they are cut off.
SLACK = 1.5
#: Confidence at which a race is decided.
SURE = 0.95

#: What is trained one after another: trials, and the loss at which each stage ends.
Stages = Sequence[tuple[Source, float]]


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
    batch: int | None,
    budget: int,
    seeds: int = 3,
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
        Of trials and the loss at which to go on, the target last.
    rule : UpdateRule
        Made afresh for every stage.
    batch : int or None
        Trials per step.
    budget : int
        Gradient steps of all plans and seeds together.
    seeds : int
        Most seeds.
    progress : callable
        Called with the share of the budget used.
    """
    if len(plans) < 2:
        raise InvalidSpec(
            required="a race needs at least two plans",
            got=f"{len(plans)}",
            why="there is nothing to compare",
            remedy="give more plans, or train the one there is",
        )
    field = _Field(model, dict(plans), rule, batch, count("budget", budget, why="it counts steps"), progress)
    lanes, found = list(plans), []
    for seed in range(count("seeds", seeds, why="each is a repetition")):
        found.append(field.round(lanes, seed))
        if not np.isfinite(list(found[-1][0].values())).any():
            found.pop()  # the budget ended before anyone arrived
            break
        means = {name: _mean(found, name) for name in lanes}
        lanes = sorted(lanes, key=means.__getitem__)[: max(2, math.ceil(len(lanes) / 2))]
        if _told_apart(found, lanes) or field.left <= 0:
            break
    progress(1.0)
    return _packed(list(plans), found, lanes, field)


Round = tuple[dict[str, float], float]


class _Field:
    """All plans of a race and the steps they may still take."""

    def __init__(
        self,
        model: nn.Module,
        plans: dict[str, Stages],
        rule: UpdateRule,
        batch: int | None,
        budget: int,
        progress: Any,
    ) -> None:
        self.model, self.plans, self.rule, self.batch = model, plans, rule, batch
        self.budget, self.left, self.progress = budget, budget, progress

    def round(self, lanes: list[str], seed: int) -> Round:
        """Steps of each plan on one seed (infinite: cut off), and where they were cut off."""
        runners = {name: _Runner(self.model, self.plans[name], self.rule, self.batch, seed) for name in lanes}
        steps, arrived, now = dict.fromkeys(lanes, math.inf), math.inf, 0
        running = [name for name in lanes if not runners[name].finished]
        steps.update({name: 0.0 for name in lanes if runners[name].finished})
        while running and self.left >= LOOK * len(running) and now < SLACK * arrived:
            now += LOOK
            for name in running:
                runners[name].advance(LOOK)
                self.left -= LOOK
                if runners[name].finished:
                    steps[name], arrived = float(now), min(arrived, now)
            running = [name for name in running if not (runners[name].finished or runners[name].lost)]
            self.progress(1 - self.left / self.budget)
        return steps, float(max(now, LOOK))


class _Runner:
    """A copy of the model on its way through one plan."""

    def __init__(self, model: nn.Module, stages: Stages, rule: UpdateRule, batch: int | None, seed: int) -> None:
        self.module = copy.deepcopy(model).train()
        self.dtype = next(self.module.parameters()).dtype
        self.stages, self.rule, self.batch, self.seed = stages, rule, batch, seed
        self.stage, self.step, self.lost = 0, 0, False
        self._begin()
        self._judge()

    @property
    def finished(self) -> bool:
        """Whether the last stage has ended."""
        return self.stage == len(self.stages)

    def advance(self, steps: int) -> None:
        """Take some steps, then judge."""
        source = self.stages[self.stage][0]
        with own_randomness(self.seed * 1_000_003 + self.step):  # for dropout
            for _ in range(steps):
                x, y = source.batch(self.batch, (self.seed, self.stage), self.step, self.dtype)
                self.optimiser.zero_grad(set_to_none=True)
                half_squared_error(self.module, x, y).backward()  # type: ignore[no-untyped-call]
                self.optimiser.step()
                self.step += 1
        self._judge()

    def _judge(self) -> None:
        """Go on to the next stage when this one has ended; several may end at once."""
        while not self.finished and not self.lost:
            source, goal = self.stages[self.stage]
            loss = judged(self.module, source, self.dtype)
            self.lost = not math.isfinite(loss)
            if not loss <= goal:
                return
            self.stage += 1
            self._begin()

    def _begin(self) -> None:
        learning = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        self.optimiser = self.rule.made(learning)


def half_squared_error(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Half the squared error, summed over outputs and readout steps, mean over trials."""
    return (module(x) - y).pow(2).sum() / (2 * len(x))


def judged(module: nn.Module, source: Source, dtype: torch.dtype) -> float:
    """Loss on held-out trials, judged without training."""
    x, y = source.held_out(JUDGED, (0, 0), dtype)
    module.eval()
    with torch.no_grad():
        value = float(half_squared_error(module, x[:JUDGED], y[:JUDGED]))  # recorded trials come all of them
    module.train()
    return value


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed, and the global ones as they were afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _times(found: list[Round], name: str) -> FloatArray:
    """Logarithm of the steps on each seed a plan ran, its cut where it was cut off; nan where it did not run."""
    rows = [math.log(max(min(steps[name], cut), 1.0)) if name in steps else math.nan for steps, cut in found]
    return np.array(rows)


def _mean(found: list[Round], name: str) -> float:
    return float(np.nanmean(_times(found, name)))


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


def _packed(names: list[str], found: list[Round], lanes: list[str], field: _Field) -> Race:
    table = np.array([[steps.get(name, math.nan) for steps, _ in found] for name in names]).reshape(len(names), -1)
    attributes = {
        "race_winner": lanes[0] if found else "",
        "race_decided": int(bool(found) and _told_apart(found, lanes)),
        "race_confidence": _confidence(found, lanes[0], lanes[1]) if found else math.nan,
        "race_spent": field.budget - field.left,
        "race_budget": field.budget,
    }
    return Race(
        xr.Dataset(
            {
                "race_steps": (("lane", "seed"), table, described("steps until the target was learned", STEPS)),
                "race_cut": ("seed", [cut for _, cut in found], described("steps at which plans were cut off", STEPS)),
            },
            coords={"lane": names, "seed": np.arange(len(found))},
            attrs=attributes,
        )
    )
