"""Pilots: a few steps at several learning rates, to find the rate that a network bears."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.procedure.training import Training
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import own_randomness
from learncast.training.updates import Updates, optimizer_of, scaled

#: Steps of a pilot.
STEPS = 5
#: Factor between the learning rates of successive pilots; the last two are a square root of it apart.
FACTOR = 4.0
#: A higher rate is tried while the loss is at most this multiple of the best, a lower one while it is below the second.
WORSE, BETTER = 1.02, 0.98
#: Pilots at most in either direction.
MOST = 8


@dataclass(frozen=True, eq=False)
class Pilots:
    """What the pilots found.

    Attributes
    ----------
    factors : tuple of float
        Learning rates tried, as multiples of the given one, in the order of the pilots.
    losses : (pilots, steps)
        Training loss before each step; infinite from the step on at which it was not finite.
    factor : float
        The chosen multiple.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(256, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("rnn", hidden_size=8)
    >>> source = lc.training.Source.of((inputs, inputs.sum(1)))
    >>> found = lc.advice.find_rate(model, source, lc.Training(1e-4, optimizer="adam", batch=32))
    >>> found.factor > 10, found.steps == 5 * len(found.factors)
    (True, True)
    """

    factors: tuple[float, ...]
    losses: FloatArray
    factor: float

    @property
    def steps(self) -> int:
        """Gradient steps of all pilots."""
        return int(self.losses.size)


def find_rate(model: nn.Module, source: Source, training: Training, *, progress: Progress = silent) -> Pilots:
    """Find the learning rate that a model bears on a task.

    Every pilot starts from the same weights and takes five steps on the same five batches. The rate is multiplied by 4
    while the mean loss does not grow, or divided by 4 if the first multiplication fails and smaller rates are better.
    Then twice and half the best rate are tried. The rate of SGD with momentum is lowered afterwards, because its first
    steps are smaller than later ones.

    Parameters
    ----------
    model : nn.Module
        Not changed.
    source : Source
        Trials of the target.
    training : Training
        A schedule is followed from its start.
    progress : callable
        Called with the share of the pilots done.

    Returns
    -------
    Pilots
    """
    dtype, key, shuffle = next(model.parameters()).dtype, (training.seed, 0), training.shuffle
    batches = [source.batch(training.batch, key, k, dtype, shuffle=shuffle) for k in range(STEPS)]
    tried: dict[float, FloatArray] = {}

    def loss(factor: float) -> float:
        if factor not in tried:
            tried[factor] = _pilot(model, scaled(training, factor), batches)
            progress(min(len(tried) / MOST, 0.99))
        return float(tried[factor].mean())

    best = _search(loss)
    if not math.isfinite(loss(best)):
        raise InvalidSpec(
            f"The loss is not finite at any learning rate from {training.learning_rate * min(tried):.2g} to "
            f"{training.learning_rate * max(tried):.2g}. Check the inputs, the targets and the model for NaN.",
            field="model",
        )
    progress(1.0)
    group = optimizer_of(training, [nn.Parameter(torch.zeros(1))]).param_groups[0]
    slower = float(np.mean([1 - group.get("momentum", 0.0) ** k for k in range(1, STEPS + 1)]))
    return Pilots(tuple(tried), np.array(list(tried.values())), best * slower)


def _search(loss: Callable[[float], float]) -> float:
    """Return the factor of the smallest loss of a search up or down from 1."""
    best, factor = 1.0, 1.0
    for _ in range(MOST):
        if math.isinf(loss(best)) or not loss(factor * FACTOR) <= WORSE * loss(best):
            break
        factor *= FACTOR
        best = min(best, factor, key=loss)
    if factor == 1.0:
        for _ in range(MOST):
            if not (loss(factor / FACTOR) < BETTER * loss(best) or math.isinf(loss(best))):
                break
            factor /= FACTOR
            best = min(best, factor, key=loss)
    half = math.sqrt(FACTOR)
    return best * half if loss(best * half) < loss(best) else min(best, best / half, key=loss)


def _pilot(model: nn.Module, training: Training, batches: list[Batch]) -> FloatArray:
    """Return the training losses of a few steps from the model's weights."""
    module, losses = copy.deepcopy(model).train(), np.full(len(batches), np.inf)
    updates = Updates(module, training)
    with own_randomness(0):
        for k, batch in enumerate(batches):
            torch.manual_seed(training.seed * 1_000_003**2 + k)
            loss = updates.step(batch)
            if loss is None:
                break
            losses[k] = loss
    return losses
