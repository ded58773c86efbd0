"""What is known of a task before training: how soon its answers can be read out, and what they say about another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from learncast.training.goals import DecisionAccuracy, TrialGoal
from learncast.training.losses import Answered, LossFunction
from learncast.training.sources import Batch
from learncast.training.torch_state import evaluating

#: Trials of a probe (half to fit, half to evaluate), and of the batches whose gradients are measured.
PROBED, SLOPED = 256, 32
#: Steps at which the linear flow is evaluated.
TIMES = np.geomspace(1.0, 1e4, 60)
#: Trials of a regression that are fitted, and trials that are evaluated.
TRIALS = 800
#: Ridge, as a share of the kernel's mean diagonal.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Probe:
    """Trials with the network's features and answers, from one forward pass.

    Attributes
    ----------
    trials : Batch
        As tensors.
    features : (trials, readouts, features)
        Inputs of the network's last linear layer; its answers if it has none.
    answers : (trials, readouts, outputs)
    """

    trials: Batch
    features: Tensor
    answers: Tensor

    @classmethod
    def of(cls, model: nn.Module, trials: Batch) -> Probe:
        """Run a model on trials."""
        read: list[Tensor] = []
        layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        hooks = [layer.register_forward_pre_hook(lambda _, given: read.append(given[0].detach())) for layer in layers]
        try:
            with evaluating(model):
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
        """Return some of the trials."""
        return Probe(self.trials.rows(chosen), self.features[chosen], self.answers[chosen])

    def measure(self, goal: TrialGoal, answers: Tensor) -> float:
        """Measure a goal of other answers to these trials."""
        return goal.measure(_as_answered(answers, self.trials), self.trials.targets, self.trials.weights)


def _beside(features: Tensor, answers: Tensor) -> Tensor:
    """Return features with the axes (trials, readouts) of the answers; an inner layer may have them transposed."""
    shape = answers.shape[:2]
    if features.ndim == 3 and features.shape[:2] == shape[::-1] and shape[0] != shape[1]:
        return features.transpose(0, 1)
    return features.reshape(*shape, -1) if features.shape[:-1].numel() == shape.numel() else answers


def readout_time(probe: Probe, goal: TrialGoal, loss: LossFunction, *, learning_rate: float, adaptive: bool) -> float:
    """Return the steps until the linear flow of the readout meets a goal on held-out trials; features are fixed.

    If the goal is not met within 10^4 steps, the result is above 10^4 and grows with the shortfall. The numbers order
    the tasks of one network; they are not counts of its training steps.

    Parameters
    ----------
    probe : Probe
        The first half is fitted, the second evaluated.
    goal : TrialGoal
    loss : LossFunction
        That is trained on.
    learning_rate : float
    adaptive : bool
        Whether the optimiser divides by the size of past gradients.
    """
    half = len(probe.features) // 2
    fitted, held_out = probe.rows(slice(0, half)), probe.rows(slice(half, None))
    flow = ReadoutFlow.of(fitted, goal, loss, learning_rate=learning_rate, adaptive=adaptive)
    shortfalls = []
    for time in TIMES:
        value = held_out.measure(goal, flow.answers(held_out, float(time)))
        if goal.met(value):
            return float(time)
        shortfalls.append(abs(goal.level - value))
    return float(TIMES[-1] * (1.0 + np.nanmin([*shortfalls, 1.0])))


@dataclass(frozen=True, eq=False)
class ReadoutFlow:
    """The linear flow of a readout with fixed features: dF/dt = -K (F - Y), K = X D X' s, for each output.

    X are the features and a constant at the readouts with a decision. D is the learning rate of each weight, which an
    adaptive optimiser divides by the root mean square of batch gradients. s is the factor of the loss.

    Attributes
    ----------
    values, vectors : (outputs, modes), (outputs, features, modes)
        Modes of D^(1/2) X'X D^(1/2) s.
    pushed : (outputs, modes)
        Projection of Y - F on each mode.
    roots : (outputs, features)
        D^(1/2).
    """

    values: Tensor
    vectors: Tensor
    pushed: Tensor
    roots: Tensor

    @classmethod
    def of(
        cls, probe: Probe, goal: TrialGoal, loss: LossFunction, *, learning_rate: float, adaptive: bool
    ) -> ReadoutFlow:
        """Return the flow on a probe's trials."""
        beside = Answered.of(probe.answers, probe.trials.targets, probe.trials.weights)
        outputs, read = beside.answers.shape[2], probe.read
        rates = torch.full((outputs, read.shape[2]), learning_rate, dtype=read.dtype)
        if adaptive:
            rates = rates / (gradient_sizes(probe, loss) + 1e-8)
        deciding = _deciding(goal, beside, probe.trials).reshape(-1)
        rows = read.flatten(0, 1)[deciding]
        gaps = (beside.wanted - beside.answers).flatten(0, 1)[deciding].double()
        # A cross-entropy begins like a squared error with this factor; nothing is known about a user's loss.
        scale = (loss.factor(beside) if loss.squared else 1.0 / beside.answers.shape[1]) / len(read)
        # In u = D^(-1/2) w the flow is symmetric.
        roots = rates.sqrt()
        scaled = rows[None] * roots[:, None, :]
        values, vectors = torch.linalg.eigh(scale * scaled.mT @ scaled)
        pushed = scale * (vectors.mT @ (scaled.mT @ gaps.T[:, :, None]))[:, :, 0]
        return cls(values.clamp_min(0.0), vectors, pushed, roots)

    def weights(self, time: float) -> Tensor:
        """Return the change of the weights (outputs, features)."""
        size = self.values * time
        # The limit of (1 - exp(-v t)) / v at v = 0 is t.
        share = torch.where(size > 1e-9, -torch.expm1(-size) / self.values.clamp_min(1e-300), time)
        return self.roots * (self.vectors @ (share * self.pushed)[:, :, None])[:, :, 0]

    def answers(self, probe: Probe, time: float) -> Tensor:
        """Return the answers to a probe's trials at a time."""
        return probe.answers.double() + probe.read @ self.weights(time).T


def _as_answered(answers: Tensor, trials: Batch) -> Tensor:
    return answers if trials.every_step else answers[:, 0]


def _deciding(goal: TrialGoal, beside: Answered, trials: Batch) -> Tensor:
    """Return the readouts that the goal depends on, (trials, readouts)."""
    shape = beside.answers.shape[:2]
    if isinstance(goal, DecisionAccuracy):
        return goal.counted(_as_answered(beside.answers, trials), trials.targets, trials.weights) > 0
    return torch.ones(shape, dtype=torch.bool) if beside.weights is None else beside.weights.amax(2) > 0


def gradient_sizes(probe: Probe, loss: LossFunction) -> Tensor:
    """Return the root mean square over batches of the readout's gradient, (outputs, features and constant)."""
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
