"""What the trials of one task alone tell of the answers to another: no network is asked."""

from __future__ import annotations

import torch
from torch import Tensor

from learncast.training.goals import Goal
from learncast.training.losses import Answered
from learncast.training.sources import Batch

#: Trials from which answers are learned, and by which they are judged.
TRIALS = 800
#: Ridge, as a share of the kernel's mean diagonal.
RIDGE = 1e-3


def answer_share(learned: Batch, judged: Batch, goal: Goal, *, power: int) -> float:
    """The goal's measure of answers to some trials by a polynomial of their inputs that was fitted to others.

    Kernel ridge regression of the targets at every readout on the inputs of the whole trial, with the kernel
    (1 + x'y / mean |x|^2)^power: power 1 is the best linear answer, 2 knows products of two inputs. Trials of unequal
    length are set side by side by their ends, where decisions are made.

    Parameters
    ----------
    learned, judged : Batch
        Trials as tensors.
    goal : Goal
    power : int
    """
    steps = judged.inputs.shape[1]
    x, other = (_flat(one.inputs, steps) for one in (learned, judged))
    outputs = max(_outputs(learned), _outputs(judged))
    wanted = _flat(_wanted(learned, outputs), steps if judged.every_step else 1)
    scale = x.square().sum(1).mean().clamp_min(1e-12)
    kernel = (1 + x @ x.T / scale) ** power
    ridge = RIDGE * kernel.diagonal().mean() * torch.eye(len(x), dtype=x.dtype)
    mean = wanted.mean(0)
    fitted = torch.linalg.solve(kernel + ridge, wanted - mean)
    answers = ((1 + other @ x.T / scale) ** power @ fitted + mean).reshape(len(other), -1, outputs)
    return goal.measure(answers if judged.every_step else answers[:, 0], judged.targets, judged.weights)


def _outputs(trials: Batch) -> int:
    y = trials.targets
    return int(y.shape[-1]) if y.is_floating_point() else max(2, int(y.max()) + 1)


def _wanted(trials: Batch, outputs: int) -> Tensor:
    """Targets at every readout, one-hot where they are labels (trials, readouts, outputs)."""
    y = trials.targets
    shape = (*y.shape[:-1], outputs) if y.is_floating_point() else (*y.shape, outputs)
    return Answered.of(y.new_zeros(shape, dtype=torch.float64), y, trials.weights).wanted


def _flat(values: Tensor, steps: int) -> Tensor:
    """One row a trial, of its last steps; what a shorter one lacks at its beginning is nothing."""
    values = values.double()
    if values.ndim == 3:
        missing = max(0, steps - values.shape[1])
        values = torch.cat([values.new_zeros(len(values), missing, values.shape[2]), values[:, -steps:]], 1)
    return values.flatten(1)
