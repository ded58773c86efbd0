"""How soon a readout of the features that a network has at its start would learn a task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from learncast.simulate.borrowed import at_rest
from learncast.simulate.goals import DecisionAccuracy, Goal
from learncast.simulate.losses import Answered, Loss
from learncast.simulate.sources import Batch

#: Trials of a probe, one half to learn from and one to judge by, and of the batches whose slopes are measured.
PROBED, SLOPED = 256, 32
#: Steps at which the linear flow is looked at.
TIMES = np.geomspace(1.0, 1e4, 60)


@dataclass(frozen=True, eq=False)
class Probe:
    """Trials with what a network makes of them: one pass forward, no gradient.

    Attributes
    ----------
    trials : Batch
        As tensors.
    features : (trials, readouts, features)
        What the network's last linear layer reads; its answers where it has none.
    answers : (trials, readouts, outputs)
    """

    trials: Batch
    features: Tensor
    answers: Tensor

    @classmethod
    def of(cls, model: nn.Module, trials: Batch) -> Probe:
        """Show trials to a model."""
        read: list[Tensor] = []
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        hooks = [layer.register_forward_pre_hook(lambda _, given: read.append(given[0].detach())) for layer in layers]
        try:
            with at_rest(model):
                answers = model(trials.inputs).detach()
        finally:
            for hook in hooks:
                hook.remove()
        several = answers if answers.ndim == 3 else answers[:, None]
        return cls(trials, _beside(read[-1] if read else answers, several), several)


def _beside(features: Tensor, answers: Tensor) -> Tensor:
    """Features with the answers' axes of trials and readouts; a layer inside may have them the other way round."""
    shape = answers.shape[:2]
    if features.ndim == 3 and features.shape[:2] == shape[::-1] and shape[0] != shape[1]:
        return features.transpose(0, 1)
    return features.reshape(*shape, -1) if features.shape[:-1].numel() == shape.numel() else answers


def readout_time(probe: Probe, goal: Goal, loss: Loss, *, learning_rate: float, adaptive: bool) -> float:
    """Steps until the linear flow of the readout alone meets a goal on trials it was not computed from.

    The recurrent features stay as they are: the answers move by dF/dt = -K (F - Y) with K = X D X' / n, X the features
    at the readouts that decide, and D the learning rate of each weight: an adaptive optimiser divides by the root mean
    square of the slopes of batches, others do not. A goal that is not met within 10^4 steps gives a number above
    that, the larger the farther it stays. The numbers order tasks of one network; they are no counts of its steps.

    Parameters
    ----------
    probe : Probe
        Its first half is learned from, its second judged by.
    goal : Goal
    loss : Loss
        That of the training.
    learning_rate : float
    adaptive : bool
        Whether the optimiser divides by the size of past slopes.
    """
    half = len(probe.features) // 2
    ones = torch.ones_like(probe.features[:, :, :1])
    read = torch.cat([probe.features, ones], 2).double()
    rates = _rates(probe, read[:half], loss, learning_rate) if adaptive else learning_rate * torch.ones(1, 1).double()
    beside = Answered.of(probe.answers, probe.trials.targets, probe.trials.weights)
    deciding = _deciding(goal, beside, probe.trials)[:half].reshape(-1)
    rows = read[:half].reshape(-1, read.shape[2])[deciding]
    gaps = (beside.wanted - beside.answers)[:half].reshape(-1, beside.answers.shape[2])[deciding].double()
    factor = loss.factor(beside) if loss.squared else 1.0 / beside.answers.shape[1]
    flow = _Flow.of(rows, gaps, rates.expand(gaps.shape[1], rows.shape[1]), factor / half)
    rest = Batch(*(None if part is None else part[half:] for part in probe.trials))
    best = -np.inf
    for time in TIMES:
        moved = probe.answers[half:].double() + read[half:] @ flow.weights(float(time)).T
        value = goal.measure(_as_answered(moved, rest), rest.targets, rest.weights)
        if goal.met(value):
            return float(time)
        sign = -1.0 if goal.met(-np.inf) else 1.0
        best = max(best, sign * value) if np.isfinite(value) else best
    short = abs(goal.level - sign * best) if np.isfinite(best) else 1.0
    return float(TIMES[-1] * (1.0 + short))


def _as_answered(answers: Tensor, trials: Batch) -> Tensor:
    return answers if trials.every_step else answers[:, 0]


def _deciding(goal: Goal, beside: Answered, trials: Batch) -> Tensor:
    """Which readouts of each trial the goal is about, (trials, readouts)."""
    shape = beside.answers.shape[:2]
    if isinstance(goal, DecisionAccuracy):
        return goal.counted(_as_answered(beside.answers, trials), trials.targets, trials.weights) > 0
    return torch.ones(shape, dtype=torch.bool) if beside.weights is None else beside.weights.amax(2) > 0


def _rates(probe: Probe, read: Tensor, loss: Loss, learning_rate: float) -> Tensor:
    """Learning rate of each weight of the readout (outputs, features): that over the root mean square of its slopes."""
    square = torch.zeros(probe.answers.shape[2], read.shape[2], dtype=read.dtype)
    batches = range(0, len(read), SLOPED)
    for first in batches:
        rows = slice(first, min(first + SLOPED, len(read)))
        moved = torch.zeros_like(square).requires_grad_()
        answers = probe.answers[rows].double() + read[rows] @ moved.T
        some = probe.trials.rows(rows)
        weights = None if some.weights is None else some.weights.double()
        targets = some.targets.double() if some.targets.is_floating_point() else some.targets
        (slope,) = torch.autograd.grad(loss(_as_answered(answers, some), targets, weights), moved)
        square += slope.square() / len(batches)
    return learning_rate / (square.sqrt() + 1e-8)


@dataclass(frozen=True, eq=False)
class _Flow:
    """Linear flow of readout weights, each output by itself: dw/dt = D X'(g - X w) s."""

    values: Tensor
    vectors: Tensor
    pushed: Tensor
    roots: Tensor

    @classmethod
    def of(cls, rows: Tensor, gaps: Tensor, rates: Tensor, scale: float) -> _Flow:
        # In u = D^(-1/2) w the flow is symmetric, and its modes are those of D^(1/2) X'X D^(1/2).
        roots = rates.sqrt()
        scaled = rows[None] * roots[:, None, :]
        values, vectors = torch.linalg.eigh(scale * scaled.mT @ scaled)
        pushed = scale * (vectors.mT @ (scaled.mT @ gaps.T[:, :, None]))[:, :, 0]
        return cls(values.clamp_min(0.0), vectors, pushed, roots)

    def weights(self, time: float) -> Tensor:
        """How far the weights have moved (outputs, features)."""
        size = self.values * time
        # (1 - exp(-v t)) / v is t where v is nothing.
        share = torch.where(size > 1e-9, -torch.expm1(-size) / self.values.clamp_min(1e-300), torch.full_like(size, time))
        return self.roots * (self.vectors @ (share * self.pushed)[:, :, None])[:, :, 0]


def linear_share(trials: Batch, goal: Goal, *, ridge: float = 1e-2) -> float:
    """The goal's measure of the best linear answers, on the half of the trials that they were not fitted to.

    Answers at every readout are a linear function of the whole trial's inputs. At chance, no forecast that goes by
    linear moments knows anything of the decision.
    """
    n = len(trials.inputs)
    x = trials.inputs.double().reshape(n, -1)
    x = torch.cat([x, torch.ones(n, 1).double()], 1)
    outputs = int(trials.targets.max()) + 1 if not trials.targets.is_floating_point() else trials.targets.shape[-1]
    shape = (*trials.targets.shape, outputs) if not trials.targets.is_floating_point() else trials.targets.shape
    beside = Answered.of(torch.zeros(shape).double(), trials.targets, trials.weights)
    half = n // 2
    wanted = beside.wanted.reshape(n, -1).double()
    gram = x[:half].T @ x[:half] / half
    gram += ridge * gram.diagonal().mean() * torch.eye(len(gram)).double()
    fitted = x[half:] @ torch.linalg.solve(gram, x[:half].T @ wanted[:half] / half)
    rest = trials.rows(slice(half, None))
    return goal.measure(_as_answered(fitted.reshape(n - half, *beside.answers.shape[1:]), rest), rest.targets, rest.weights)
