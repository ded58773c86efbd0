"""Relevance: how much the trials of one task say about the answers to another."""

from __future__ import annotations

import torch
from torch import Tensor

from learncast.training.goals import TrialGoal
from learncast.training.losses import Answered
from learncast.training.sources import Batch

#: Trials that are fitted, and trials that are evaluated.
TRIALS = 800
#: Ridge, as a share of the kernel's mean diagonal.
RIDGE = 1e-3


def answer_share(fitted: Batch, held_out: Batch, goal: TrialGoal, *, power: int) -> float:
    """Measure a goal of polynomial answers to held-out trials, fitted to other trials.

    Kernel ridge regression of the targets at every readout on all inputs of the trial, with the kernel
    (1 + x'y / mean |x|^2)^power: power 1 is linear, power 2 includes products of two inputs. Trials of unequal length
    are aligned at their ends, where decisions are made.

    Parameters
    ----------
    fitted, held_out : Batch
        Trials as tensors.
    goal : TrialGoal
    power : int
    """
    steps = held_out.inputs.shape[1]
    x, other = (_flat(one.inputs, steps) for one in (fitted, held_out))
    outputs = max(_outputs(fitted), _outputs(held_out))
    wanted = _flat(_wanted(fitted, outputs), steps if held_out.every_step else 1)
    scale = x.square().sum(1).mean().clamp_min(1e-12)
    kernel = (1 + x @ x.T / scale) ** power
    ridge = RIDGE * kernel.diagonal().mean() * torch.eye(len(x), dtype=x.dtype)
    mean = wanted.mean(0)
    weights = torch.linalg.solve(kernel + ridge, wanted - mean)
    answers = ((1 + other @ x.T / scale) ** power @ weights + mean).reshape(len(other), -1, outputs)
    return goal.measure(answers if held_out.every_step else answers[:, 0], held_out.targets, held_out.weights)


def _outputs(trials: Batch) -> int:
    y = trials.targets
    return int(y.shape[-1]) if y.is_floating_point() else max(2, int(y.max()) + 1)


def _wanted(trials: Batch, outputs: int) -> Tensor:
    """Return targets (trials, readouts, outputs), one-hot for labels."""
    y = trials.targets
    shape = (*y.shape[:-1], outputs) if y.is_floating_point() else (*y.shape, outputs)
    return Answered.of(y.new_zeros(shape, dtype=torch.float64), y, trials.weights).wanted


def _flat(values: Tensor, steps: int) -> Tensor:
    """Return one row per trial with its last steps; shorter trials are padded with zeros at the start."""
    values = values.double()
    if values.ndim == 3:
        missing = max(0, steps - values.shape[1])
        values = torch.cat([values.new_zeros(len(values), missing, values.shape[2]), values[:, -steps:]], 1)
    return values.flatten(1)
