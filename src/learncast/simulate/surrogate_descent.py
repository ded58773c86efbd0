"""The descent of a linear surrogate on tasks' moments, for many plans at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learncast.simulate.moments import MomentStack
from learncast.simulate.sources import Source
from learncast.simulate.surrogate import LinearSurrogate
from learncast.validation import FloatArray

Parameters = dict[str, Tensor]
#: Makes a fresh optimiser for the stacked parameters that learn, by their names in the model.
MakeOptimiser = Callable[[Mapping[str, Tensor]], torch.optim.Optimizer]
#: Numbers of a batch, written out lag by lag, that are held at a time.
CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Passages:
    """When copies of a surrogate passed their goals.

    Attributes
    ----------
    steps : (copies, goals)
        First step at which the loss is at most the goal; infinite when that was not seen, nan for no goal.
    states : list of lists of parameters
        The parameters there; None where it was not seen.
    taken : int
        Steps taken altogether.
    """

    steps: FloatArray
    states: list[list[Parameters | None]]
    taken: int


@dataclass(frozen=True, eq=False)
class BatchSlopes:
    """Slopes on batches as the model's training will see them.

    Attributes
    ----------
    sources : list of Source
        One for each copy, or one for all.
    """

    sources: Sequence[Source]
    batch: int | None
    key: tuple[int, int]
    lags: int

    def at(self, filters: Tensor, step: int) -> Tensor:
        """Slope of each copy's batch loss in its filters (copies, outputs, variables)."""
        if len(self.sources) == 1:
            return self._slope(filters, self.sources[0], step)
        return torch.cat([self._slope(filters[k : k + 1], one, step) for k, one in enumerate(self.sources)])

    def _slope(self, filters: Tensor, source: Source, step: int) -> Tensor:
        x, y = source.batch(self.batch, self.key, step, torch.float64)
        total = torch.zeros_like(filters)
        size = max(1, CHUNK // (filters.shape[2] * (x.shape[1] if y.ndim == 3 else 1)))
        for first in range(0, len(x), size):
            rows, wanted = written_out(x[first : first + size], y[first : first + size], self.lags)
            total += (filters @ rows.T - wanted.T) @ rows
        return total / len(x)

    def kept(self, index: Tensor) -> BatchSlopes:
        """Those of some copies."""
        if len(self.sources) == 1:
            return self
        return BatchSlopes([self.sources[int(k)] for k in index], self.batch, self.key, self.lags)


def written_out(x: Tensor, y: Tensor, lags: int) -> tuple[Tensor, Tensor]:
    """Trials as rows of (lag, input and constant 1) before each readout, and the targets there."""
    n, steps, inputs = x.shape
    ones = torch.cat([x, x.new_ones(n, steps, 1)], dim=2)
    every_step = y.ndim == 3
    rows = x.new_zeros(n, steps if every_step else 1, lags, inputs + 1)
    for place, r in enumerate(range(steps) if every_step else [steps - 1]):
        rows[:, place, : r + 1] = ones[:, : r + 1].flip(1)
    return rows.reshape(-1, lags * (inputs + 1)), y.reshape(-1, y.shape[-1])


def descend_surrogate(
    surrogate: LinearSurrogate,
    parameters: Parameters,
    moments: MomentStack,
    goals: FloatArray,
    *,
    optimiser: MakeOptimiser,
    most_steps: int,
    batches: BatchSlopes | None = None,
    limits: Callable[[FloatArray], FloatArray] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Passages:
    """Descend until every copy has passed its goals, in the model's parameters.

    Parameters
    ----------
    surrogate : LinearSurrogate
    parameters : dict of (copies, ...) tensors
    moments : MomentStack
        One task for each copy, or one for all; they give the loss.
    goals : (copies, goals)
        Losses to pass; nan for none.
    optimiser : callable
        Its step must treat every number by itself: the copies are stacked.
    most_steps : int
        Where any copy is given up.
    batches : BatchSlopes, optional
        Slopes of batches; exact ones, from the moments, unless given.
    limits : callable, optional
        From the steps found so far to a limit for each copy, asked at every passage.
    progress : callable, optional
        Called with the number of steps taken.
    """
    n, many = goals.shape
    steps = np.where(np.isnan(goals), -1.0, np.inf)
    states: list[list[Parameters | None]] = [[None] * many for _ in range(n)]
    limit = np.full(n, float(most_steps)) if limits is None else np.minimum(limits(steps), most_steps)
    alive, walk = np.arange(n), _Walk(surrogate, parameters, moments, optimiser, batches)
    step = 0
    while True:
        now = walk.look()
        passed = np.isinf(steps[alive]) & (now[:, None] <= goals[alive])
        for place, goal in np.argwhere(passed):
            steps[alive[place], goal] = step
            states[alive[place]][goal] = walk.state(int(place))
        if passed.any() and limits is not None:
            limit = np.minimum(limits(steps), most_steps)
        on = np.isinf(steps[alive]).any(1) & (step < limit[alive]) & np.isfinite(now)
        if not on.any():
            break
        walk.step(step)
        if on.sum() < len(alive):
            walk.keep(torch.from_numpy(np.flatnonzero(on)))
            alive = alive[on]
        step += 1
        if progress is not None and step % 16 == 0:
            progress(step)
    return Passages(np.where(steps < 0, math.nan, steps), states, step)


class _Walk:
    """Stacked copies on their way down."""

    def __init__(
        self,
        surrogate: LinearSurrogate,
        parameters: Parameters,
        moments: MomentStack,
        optimiser: MakeOptimiser,
        batches: BatchSlopes | None,
    ) -> None:
        self.surrogate, self.moments, self.batches = surrogate, moments, batches
        self.parameters = {
            name: value.detach().clone().requires_grad_(name in surrogate.learns) for name, value in parameters.items()
        }
        self.optimiser = optimiser({name: self.parameters[name] for name in surrogate.learns})
        self._filters = self._slope = torch.zeros(0)

    def look(self) -> FloatArray:
        """Loss of each copy now."""
        self._filters = self.surrogate.system(self.parameters).filters(self.moments.lags).flatten(2)
        loss, self._slope = self.moments.loss_and_slope(self._filters.detach())
        return np.asarray(loss.numpy())

    def step(self, step: int) -> None:
        """One update from where `look` looked."""
        slope = self._slope if self.batches is None else self.batches.at(self._filters.detach(), step)
        self.optimiser.zero_grad(set_to_none=True)
        self._filters.backward(slope)  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def state(self, place: int) -> Parameters:
        """The parameters of one copy."""
        return {name: value[place].detach().clone() for name, value in self.parameters.items()}

    def keep(self, index: Tensor) -> None:
        """Go on with some copies only, in the state their optimiser is in."""
        self.moments = self.moments.kept(index)
        self.batches = None if self.batches is None else self.batches.kept(index)
        with torch.no_grad():
            for value in self.parameters.values():
                held: dict[str, Any] = self.optimiser.state.get(value, {})
                for key, moment in held.items():
                    if isinstance(moment, Tensor) and moment.shape == value.shape:
                        held[key] = moment[index]
                value.grad = None
                value.set_(value.detach()[index])  # type: ignore[call-overload]


def stacked(states: Sequence[Parameters]) -> Parameters:
    """States of several copies, with a leading axis."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
