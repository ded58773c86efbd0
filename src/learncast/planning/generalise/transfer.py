"""Pretraining for generalisation: the held-out loss against the stops of the source and of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.display import Table
from learncast.planning.generalise.curve import NORMAL, FoldCurve, HeldOutProblem, held_out_losses, jackknife, stop_grid
from learncast.planning.generalise.folds import Labels, mean_error
from learncast.planning.generalise.learners import MapLearner, in_parts, within_reach
from learncast.planning.generalise.subsets import (
    GivenSamples,
    Kept,
    Samples,
    Trials,
    learn,
    raw_trials,
    same_trials,
    sample_of,
)
from learncast.results import STEPS, described
from learncast.tasks.best_map import best_map
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.generalise.more_trials import Expected
    from learncast.planning.generalise.result import Generalisation

#: Share of the stops of the grid that are tried for the source.
EVERY = 3
#: Trials below which the error of a gain includes that of the choice of stops.
FEW = 50


@dataclass(frozen=True, eq=False)
class Transfer:
    """What training on a source task first is worth.

    Attributes
    ----------
    source : str
        Name of the source.
    table : DataArray over (source_steps, steps)
        Held-out loss of the target.
    source_stop : int
        Best number of steps on the source, at least 1.
    loss : float
        Held-out loss of the best pair of stops.
    direct : Generalisation
        Training on the target only.
    gain : float
        Share of the held-out loss that training on the source saves; negative if it hurts.
    gain_interval : (float, float)
    last_gain : float
        Gain if the source is trained until the last step of the table.
    distance : float
        Squared distance of the map from the best map of the target after the source, over that before training; nan
        for tanh units, which cannot have any map.
    """

    source: str
    table: xr.DataArray
    source_stop: int
    loss: float
    direct: Generalisation
    gain: float
    gain_interval: tuple[float, float]
    last_gain: float
    distance: float

    @property
    def verdict(self) -> str:
        """Whether the source helps: "helps", "hurts" or "unclear"."""
        low, high = self.gain_interval
        return "helps" if low > 0 else "hurts" if high < 0 else "unclear"

    @cached_property
    def worth(self) -> Expected | None:
        """Trials that direct training needs beyond its own for the same held-out loss; None if it is unknown.

        It is infinite if no number of trials is enough, and nan beyond the largest number that is claimed.
        """
        from learncast.planning.generalise.more_trials import Expected

        try:
            curve = self.direct.trial_curve
        except InvalidSpec:
            return None
        own = float(curve.at(curve.trials)[0])  # the fit need not pass through the loss itself
        ends = [curve.inverse(own * (1 - gain)) - curve.trials for gain in (self.gain, *self.gain_interval)]
        return Expected(*ends)

    @property
    def sentence(self) -> str:
        """The result in a few sentences."""
        low, high = self.gain_interval
        size = f"{self.gain:.0%} of the held-out loss ({low:.0%} to {high:.0%})"
        words = {
            "helps": f'Training "{self.source}" first for {self.source_stop:,} steps saves {size}.',
            "hurts": f'Training "{self.source}" first costs {-self.gain:.0%} ({-high:.0%} to {-low:.0%}) even at its '
            "best stop.",
            "unclear": f'These trials do not show whether "{self.source}" helps: it saves {size}.',
        }
        if math.isnan(self.distance):
            return words[self.verdict]
        closer = "closer to" if self.distance < 1 else "farther from"
        why = f"It moves the map {closer} the best map of the target (squared distance times {self.distance:.2g})"
        if self.verdict == "helps" and self.distance >= 1:
            why += ", but in directions that the target needs"
        end = f" Trained to the end it saves {self.last_gain:.0%}." if self.last_gain < self.gain - 0.01 else ""
        return f"{words[self.verdict]} {why}.{end}"

    @property
    def report_table(self) -> Table:
        """Best held-out loss for each stop of the source."""
        best = self.table.min("steps").values
        stops = self.table["steps"].values[self.table.argmin("steps").values]
        each = zip(self.table["source_steps"].values, stops, best, strict=True)
        rows = [(f"{n:,}", f"{m:,}", f"{loss:.4g}", f"{1 - loss / self.direct.loss:.1%}") for n, m, loss in each]
        notes = [self.sentence, *self._worth_notes()]
        return Table(f"After {self.source}", ("steps on it", "then", "held-out loss", "gain"), rows, notes)

    def _worth_notes(self) -> list[str]:
        if self.verdict != "helps" or self.worth is None or not math.isfinite(self.worth.low):
            return []
        value, low, high = self.worth
        if not math.isfinite(high):
            return [f"It is worth at least {low:,.0f} trials of the target."]
        return [f"It is worth about {value:,.0f} trials of the target ({low:,.0f} to {high:,.0f})."]


def source_path(problem: HeldOutProblem, source: Task, rows: list[Kept], stops: list[int]) -> FloatArray:
    """States after each stop on the source, (stops, rows, ...); a source that shares trials leaves out their folds."""
    target, learner, training = problem.samples, problem.learner, problem.training
    if source.recorded_trials is None or not isinstance(target, Trials):
        given = GivenSamples([sample_of(source, learner, source.recorded_trials)], learner, training)
        return _same_path(given, len(rows), stops)
    folds = _shared_folds(problem, target, source)
    if (folds == target.number).all():
        return _same_path(Trials.of(source, learner, training), len(rows), stops)
    samples = Trials.of(source, learner, training, folds)
    kept = [np.append(row, True)[: samples.number] for row in rows]
    start = np.repeat(learner.start[None], len(rows), axis=0)

    def path(own: MapLearner) -> FloatArray:
        power, cross = (np.stack(part) for part in zip(*map(samples.read_by(own).moments, kept), strict=True))
        return np.concatenate([after for _, after in in_parts(own.advancing((power, cross)), start, stops)])

    return within_reach(learner, path)


def _same_path(source: Samples, rows: int, stops: list[int]) -> FloatArray:
    """States of training on all of a source, for every row."""
    return np.repeat(learn(source, [np.array([True])], stops).first[:, None], rows, axis=1)


def _shared_folds(problem: HeldOutProblem, target: Trials, source: Task) -> Labels:
    """Fold of the target that has the same trial as each source trial, or one fold more for other trials."""
    parts = [raw_trials(t) for t in (problem.task, problem.test) if t is not None]
    theirs, own = [part.inputs for part in parts if part is not None], raw_trials(source)
    assert own is not None
    if any(inputs.shape[1:] != own.inputs.shape[1:] for inputs in theirs):
        return np.full(len(own), target.number)
    return np.append(target.folds, target.number)[same_trials(own.inputs, np.concatenate(theirs))]


def transfer_table(
    samples: Samples, path: FloatArray, rows: list[Kept], source_stops: list[int], most: int, test: bool
) -> xr.DataArray:
    """Held-out loss for every stop of the source and of the target."""
    import xarray as xr

    stops = stop_grid(most)
    flat = path.reshape(-1, *path.shape[2:])
    losses = learn(samples, rows * len(path), stops, starts=list(flat)).losses
    each = losses.reshape(len(path), len(rows), *losses.shape[1:])
    curves = [held_out_losses(samples, own, test) for own in each]
    on_source = ("source_steps", source_stops, described("steps on the source", STEPS))
    coords = {"source_steps": on_source, "steps": stops}
    attrs = described("held-out loss", "target^2")
    return xr.DataArray(np.stack(curves), dims=("source_steps", "steps"), coords=coords, attrs=attrs)


def source_stops(most: int) -> list[int]:
    """Stops that are tried for the source, 0 first."""
    grid = stop_grid(most)
    return sorted({0, *grid[1::EVERY], grid[-1]})


def transfer_of(
    direct: Generalisation, after: Generalisation, stop: int, table: xr.DataArray, source: Task, state: FloatArray
) -> Transfer:
    """Compare training after `stop` steps on the source, which end in `state`, with direct training, trial by trial."""
    problem, ratio = direct.asked, after.loss / direct.loss
    factor = math.exp(NORMAL * _log_ratio_error(after, direct, problem.test is None and problem.trials < FEW))
    last = float(table.isel(source_steps=-1).min("steps"))
    ends = 1 - ratio * factor, 1 - ratio / factor
    return Transfer(source.name, table, stop, after.loss, direct, 1 - ratio, ends, 1 - last / direct.loss,
                    _distance(problem, state))  # fmt: skip


def _distance(problem: HeldOutProblem, state: FloatArray) -> float:
    """Squared distance of the map from the best map of the target, over that before training; nan if none is best."""
    if not problem.learner.any_map:
        return math.nan
    power, cross = problem.samples.moments(problem.kept)
    gaps = problem.learner.maps(np.stack([problem.learner.start, state])) - best_map(power, cross)
    before, after = np.einsum("soi,ij,soj->s", gaps, power, gaps).tolist()
    return after / before if before > 0 else math.inf


def _log_ratio_error(after: Generalisation, before: Generalisation, few: bool) -> float:
    """Standard error of the logarithm of the loss after the source over that of direct training."""
    parts, without = [], []
    for g in (after, before):
        curve = g.found
        if curve is None or curve.by_trial is None:
            return 0.0
        parts.append(curve.by_trial[:, curve.stops.index(g.stop)] / g.loss)
        if few and isinstance(curve, FoldCurve):
            without.append(np.log(curve.without.min(axis=1)))
    units = before.asked.units if before.asked.test is None else np.arange(len(parts[0]))
    error = float(mean_error((parts[0] - parts[1])[:, None], units)[0])
    return max(error, float(jackknife(without[0] - without[1]))) if without else error
