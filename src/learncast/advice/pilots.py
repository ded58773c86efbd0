"""Pilots: a few steps at several learning rates, to find the rate that a network bears."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.procedure.training import Training
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import own_randomness, training_copy
from learncast.training.updates import Updates, optimizer_of, scaled

#: Steps of a pilot.
STEPS = 5
#: Factor between the learning rates of successive pilots, and the share of the best one that is taken.
FACTOR, SAFETY = 4.0, 0.7
#: A higher rate is tried while the loss is at most this multiple of the best, a lower one while it is below the second.
WORSE, BETTER = 1.02, 0.98
#: Pilots at most in either direction.
MOST = 12


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
    module : nn.Module
        The model after the steps of the best pilot.

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
    module: nn.Module = field(repr=False)

    @property
    def at_edge(self) -> bool:
        """Whether the smallest mean loss was at the lowest or the highest rate, so that a better one may lie beyond."""
        best = self.factors[int(self.losses.mean(1).argmin())]
        return best in (min(self.factors), max(self.factors))

    @property
    def steps(self) -> int:
        """Gradient steps of all pilots."""
        return int(self.losses.size)


def find_rate(model: nn.Module, source: Source, training: Training, *, progress: Progress = silent) -> Pilots:
    """Find the learning rate that a model bears on a task.

    Every pilot starts from the same weights and takes five steps on the same five batches. The rate is multiplied by 4
    while the mean loss does not grow, or divided by 4 if the first multiplication fails and smaller rates are better. A
    parabola through the losses of the best rate and its neighbours says which rate between them to choose. Of that, 0.7
    is taken, because a rate that is too high costs more than one that is too low. The rate of SGD with momentum is
    lowered further, because its first steps are smaller than later ones.

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

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(64, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> source = lc.training.Source.of((inputs, inputs.sum(1)))
    >>> found = lc.advice.find_rate(model, source, lc.Training(1e3, optimizer="adam", batch=16))
    >>> found.factor < 0.01
    True
    """
    dtype, key, shuffle = next(model.parameters()).dtype, (training.seed, 0), training.shuffle
    batches = [source.batch(training.batch, key, k, dtype, shuffle=shuffle) for k in range(STEPS)]
    tried: dict[float, FloatArray] = {}
    modules: dict[float, nn.Module] = {}

    def loss(factor: float) -> float:
        if factor not in tried:
            modules[factor], tried[factor] = _pilot(model, scaled(training, factor), batches)
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
    group = optimizer_of(training, dict(modules[best].named_parameters())).param_groups[0]
    slower = float(np.mean([1 - group.get("momentum", 0.0) ** k for k in range(1, STEPS + 1)]))
    least = FACTOR ** _vertex({factor: loss(factor) for factor in tried}, best)
    losses = np.array(list(tried.values()))
    return Pilots(tuple(tried), losses, SAFETY * slower * best * least, modules[best])


def _search(loss: Callable[[float], float]) -> float:
    """Return the factor of the smallest loss, searched up or down from 1."""
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
    return best


def _vertex(losses: Mapping[float, float], best: float) -> float:
    """Return where a parabola through the loss at the best rate and its neighbours is least, between -1/2 and 1/2."""
    if not {best / FACTOR, best * FACTOR} <= losses.keys():
        return 0.0
    most = 1.5 * losses[1.0] if math.isfinite(losses[1.0]) else 3.0 * losses[best]
    below, above = (min(losses[factor], most) for factor in (best / FACTOR, best * FACTOR))
    bend = below - 2 * losses[best] + above
    return min(max(0.5 * (below - above) / bend, -0.5), 0.5) if bend > 0 else 0.0


def _pilot(model: nn.Module, training: Training, batches: list[Batch]) -> tuple[nn.Module, FloatArray]:
    """Return a copy of the model after a few steps, and the training losses before each of them."""
    module, losses = training_copy(model), np.full(len(batches), np.inf)
    updates = Updates(module, training)
    with own_randomness(0):
        for k, batch in enumerate(batches):
            torch.manual_seed(training.seed * 1_000_003**2 + k)
            loss = updates.step(batch)
            if loss is None:
                break
            losses[k] = loss
    return module, losses
