"""How soon a readout of the features that a network has at its start would learn a task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from learncast.training.borrowed import at_rest
from learncast.training.goals import DecisionAccuracy, Goal
from learncast.training.losses import Answered, Loss
from learncast.training.sources import Batch

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

    @property
    def read(self) -> Tensor:
        """Features and a constant, (trials, readouts, features + 1)."""
        return torch.cat([self.features, torch.ones_like(self.features[:, :, :1])], 2).double()

    def rows(self, chosen: slice) -> Probe:
        """Some of the trials."""
        return Probe(self.trials.rows(chosen), self.features[chosen], self.answers[chosen])

    def measure(self, goal: Goal, answers: Tensor) -> float:
        """A goal's measure of other answers to these trials."""
        return goal.measure(_as_answered(answers, self.trials), self.trials.targets, self.trials.weights)


def _beside(features: Tensor, answers: Tensor) -> Tensor:
    """Features with the answers' axes of trials and readouts; a layer inside may have them the other way round."""
    shape = answers.shape[:2]
    if features.ndim == 3 and features.shape[:2] == shape[::-1] and shape[0] != shape[1]:
        return features.transpose(0, 1)
    return features.reshape(*shape, -1) if features.shape[:-1].numel() == shape.numel() else answers


def readout_time(probe: Probe, goal: Goal, loss: Loss, *, learning_rate: float, adaptive: bool) -> float:
    """Steps until the linear flow of the readout alone meets a goal on trials it was not computed from.

    The features stay as they are. A goal that is not met within 10^4 steps gives a number above that, the larger the
    farther it stays. The numbers order tasks of one network; they are no counts of its steps.

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
    learned, judged = probe.rows(slice(0, half)), probe.rows(slice(half, None))
    flow = ReadoutFlow.of(learned, goal, loss, learning_rate=learning_rate, adaptive=adaptive)
    shortfalls = []
    for time in TIMES:
        value = judged.measure(goal, flow.answers(judged, float(time)))
        if goal.met(value):
            return float(time)
        shortfalls.append(abs(goal.level - value))
    return float(TIMES[-1] * (1.0 + np.nanmin([*shortfalls, 1.0])))


@dataclass(frozen=True, eq=False)
class ReadoutFlow:
    """The linear flow of a readout whose features stay: dF/dt = -K (F - Y), K = X D X' s, each output by itself.

    X are the features, and a constant, at the readouts that decide; D the learning rate of each weight, which an
    adaptive optimiser divides by the root mean square of the slopes of batches; s the loss's own factor.

    Attributes
    ----------
    values, vectors : (outputs, modes), (outputs, features, modes)
        Modes of D^(1/2) X'X D^(1/2) s.
    pushed : (outputs, modes)
        What Y - F pushes along each.
    roots : (outputs, features)
        D^(1/2).
    """

    values: Tensor
    vectors: Tensor
    pushed: Tensor
    roots: Tensor

    @classmethod
    def of(cls, probe: Probe, goal: Goal, loss: Loss, *, learning_rate: float, adaptive: bool) -> ReadoutFlow:
        """The flow on a probe's trials."""
        beside = Answered.of(probe.answers, probe.trials.targets, probe.trials.weights)
        outputs, read = beside.answers.shape[2], probe.read
        rates = torch.full((outputs, read.shape[2]), learning_rate, dtype=read.dtype)
        if adaptive:
            rates = rates / (slope_sizes(probe, loss) + 1e-8)
        deciding = _deciding(goal, beside, probe.trials).reshape(-1)
        rows = read.flatten(0, 1)[deciding]
        gaps = (beside.wanted - beside.answers).flatten(0, 1)[deciding].double()
        # A cross-entropy begins as a squared error of this factor would; of a loss of one's own nothing is known.
        scale = (loss.factor(beside) if loss.squared else 1.0 / beside.answers.shape[1]) / len(read)
        # In u = D^(-1/2) w the flow is symmetric.
        roots = rates.sqrt()
        scaled = rows[None] * roots[:, None, :]
        values, vectors = torch.linalg.eigh(scale * scaled.mT @ scaled)
        pushed = scale * (vectors.mT @ (scaled.mT @ gaps.T[:, :, None]))[:, :, 0]
        return cls(values.clamp_min(0.0), vectors, pushed, roots)

    def weights(self, time: float) -> Tensor:
        """How far the weights have moved (outputs, features)."""
        size = self.values * time
        # (1 - exp(-v t)) / v is t where v is nothing.
        share = torch.where(size > 1e-9, -torch.expm1(-size) / self.values.clamp_min(1e-300), time)
        return self.roots * (self.vectors @ (share * self.pushed)[:, :, None])[:, :, 0]

    def answers(self, probe: Probe, time: float) -> Tensor:
        """Answers to a probe's trials after some time."""
        return probe.answers.double() + probe.read @ self.weights(time).T


def _as_answered(answers: Tensor, trials: Batch) -> Tensor:
    return answers if trials.every_step else answers[:, 0]


def _deciding(goal: Goal, beside: Answered, trials: Batch) -> Tensor:
    """Which readouts of each trial the goal is about, (trials, readouts)."""
    shape = beside.answers.shape[:2]
    if isinstance(goal, DecisionAccuracy):
        return goal.counted(_as_answered(beside.answers, trials), trials.targets, trials.weights) > 0
    return torch.ones(shape, dtype=torch.bool) if beside.weights is None else beside.weights.amax(2) > 0


def slope_sizes(probe: Probe, loss: Loss) -> Tensor:
    """Root mean square over batches of the slope of each weight of the readout, (outputs, features and constant)."""
    read = probe.read
    square = torch.zeros(probe.answers.shape[2], read.shape[2], dtype=read.dtype)
    batches = range(0, len(read), SLOPED)
    for first in batches:
        some = probe.rows(slice(first, first + SLOPED))
        moved = torch.zeros_like(square).requires_grad_()
        answers = some.answers.double() + some.read @ moved.T
        trials = some.trials.tensors(torch.float64)
        (slope,) = torch.autograd.grad(loss(_as_answered(answers, trials), trials.targets, trials.weights), moved)
        square += slope.square() / len(batches)
    return square.sqrt()
