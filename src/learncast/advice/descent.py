"""The descent of a linear surrogate on tasks' moments, for many plans at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from learncast.advice.moments import MomentStack
from learncast.advice.surrogate import LinearSurrogate
from learncast.advice.update_rule import Make
from learncast.progress import Progress, silent
from learncast.simulate.sources import Source
from learncast.validation import FloatArray

Parameters = dict[str, Tensor]
#: Numbers of a batch, written out lag by lag, that are held at a time.
CHUNK = 2**22


@dataclass(frozen=True, eq=False)
class Passages:
    """When copies of a surrogate passed their goals.

    Attributes
    ----------
    steps : (copies, goals)
        First step at which the loss is at most the goal; infinite when that was not seen.
    states : list of lists of parameters
        The parameters there; None where it was not seen.
    """

    steps: FloatArray
    states: list[list[Parameters | None]]


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
    optimizer: Make,
    limits: FloatArray | float,
    batches: BatchSlopes | None = None,
    progress: Progress = silent,
) -> Passages:
    """Descend until every copy has passed its goals, in the model's parameters.

    Parameters
    ----------
    surrogate : LinearSurrogate
    parameters : dict of (copies, ...) tensors
    moments : MomentStack
        One task for each copy, or one for all; they give the loss.
    goals : (copies, goals)
        Losses to pass.
    optimizer : callable
        Its step must treat every number by itself: the copies are stacked.
    limits : float or (copies,)
        Steps after which each copy is given up.
    batches : BatchSlopes, optional
        Slopes of batches; exact ones, from the moments, unless given.
    progress : callable, optional
        Called with the number of steps taken.
    """
    n, many = goals.shape
    steps, alive = np.full((n, many), np.inf), np.arange(n)
    states: list[list[Parameters | None]] = [[None] * many for _ in range(n)]
    limit = np.broadcast_to(limits, n)
    moving = {name: value.detach().clone() for name, value in parameters.items()}
    rule = optimizer({name: moving[name].requires_grad_() for name in surrogate.learns})
    for step in count():
        filters = surrogate.system(moving).filters(moments.lags).flatten(2)
        loss, slope = moments.loss_and_slope(filters.detach())
        now = np.asarray(loss.numpy())
        passed = np.isinf(steps[alive]) & (now[:, None] <= goals[alive])
        for place, goal in np.argwhere(passed):
            steps[alive[place], goal] = step
            states[alive[place]][goal] = {name: value[place].detach().clone() for name, value in moving.items()}
        on = np.isinf(steps[alive]).any(1) & (step < limit[alive]) & np.isfinite(now)
        if not on.any():
            break
        rule.zero_grad(set_to_none=True)
        filters.backward(slope if batches is None else batches.at(filters.detach(), step))  # type: ignore[no-untyped-call]
        rule.step()
        if on.sum() < len(alive):
            alive, index = alive[on], torch.from_numpy(np.flatnonzero(on))
            moments, batches = moments.kept(index), batches and batches.kept(index)
            _keep(moving, rule, index)
        if step % 16 == 15:
            progress(step + 1)
    return Passages(steps, states)


def _keep(moving: Parameters, rule: torch.optim.Optimizer, index: Tensor) -> None:
    """Go on with some copies only, in the state their optimiser is in."""
    with torch.no_grad():
        for value in moving.values():
            held: dict[str, Any] = rule.state.get(value, {})
            for key, moment in held.items():
                if isinstance(moment, Tensor) and moment.shape == value.shape:
                    held[key] = moment[index]
            value.grad = None
            value.set_(value.detach()[index])  # type: ignore[call-overload]


def stacked(states: Sequence[Parameters]) -> Parameters:
    """States of several copies, with a leading axis."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
