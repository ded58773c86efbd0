"""Many two-layer networks, each with its own start, learning rate and trials, trained together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np
import torch

from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.training.torch_state import own_threads

Layered = TwoLayer | Activated
#: Inputs and targets.
Pair = tuple[FloatArray, FloatArray]
#: Steps between two calls of the progress report.
REPORT = 64


def train_ensemble(
    pairs: Sequence[Pair],
    networks: Sequence[Layered],
    *,
    learning_rates: Sequence[float] | FloatArray,
    steps: int,
    every: int = 1,
    progress: Progress = silent,
) -> tuple[FloatArray, tuple[Layered, ...]]:
    """Train many two-layer networks together, by full-batch gradient descent.

    Each network learns as with `train` and ``Training(rate)``: the loss is half the squared error, summed over outputs,
    mean over trials. Networks are stacked and padded with zeros to one size. Padding does not learn: a unit without
    weights has no gradient, and a trial of zeros no error.

    Parameters
    ----------
    pairs : sequence of (inputs, targets)
        (trials, inputs) and (trials, outputs) of each network.
    networks : sequence of TwoLayer or Activated
        The starts; linear, ReLU and tanh may be mixed. Fastest if equal activations are adjacent.
    learning_rates : (networks,)
    steps : int
    every : int
        Steps between records of the loss; the last step is always recorded.
    progress : callable
        Called with the share of steps done.

    Returns
    -------
    losses : (records, networks)
    networks : tuple of TwoLayer or Activated
        After training; a network that diverged has its last finite weights.
    """
    losses = []
    with own_threads(1), torch.no_grad():  # small matrices: more threads would be slower
        ensemble = _Ensemble(pairs, networks, np.asarray(learning_rates, dtype=float))
        for step in range(steps + 1):
            ensemble.forward()
            if step % every == 0 or step == steps:
                losses.append(ensemble.losses())
            if step < steps:
                ensemble.step()
            if step % REPORT == 0:
                progress(step / max(steps, 1))
    progress(1.0)
    return np.stack(losses), ensemble.networks()


class _Ensemble:
    """The networks as stacked tensors.

    Trials are the last axis, where small products are fastest.
    """

    def __init__(self, pairs: Sequence[Pair], starts: Sequence[Layered], rates: FloatArray) -> None:
        self.starts, self.runs = starts, list[tuple[str, slice]]()
        begun = 0
        for kind, members in groupby(starts, lambda start: getattr(start, "activation", None)):
            ended = begun + len(list(members))
            if kind is not None:
                self.runs.append((kind, slice(begun, ended)))
            begun = ended
        weights: list[Any] = [start.network if isinstance(start, Activated) else start for start in starts]
        self.first, self.second = _stacked([w.first for w in weights]), _stacked([w.second for w in weights])
        self.x, self.y = _stacked([x for x, _ in pairs]), _stacked([y.T for _, y in pairs])
        self.inputs = self.x.mT.contiguous()
        self.share = 1.0 / torch.tensor([len(x) for x, _ in pairs], dtype=torch.float64)
        self.scale = (torch.tensor(rates) * self.share)[:, None, None]

    def forward(self) -> None:
        """Compute the errors on all trials."""
        self.hidden = torch.bmm(self.first, self.inputs)
        for kind, run in self.runs:
            getattr(self.hidden[run], f"{kind}_")()
        self.error = torch.bmm(self.second, self.hidden) - self.y

    def losses(self) -> FloatArray:
        """Return the loss of each network."""
        return (self.error.square().sum((1, 2)) * self.share / 2).numpy()

    def step(self) -> None:
        """Take one step; a network whose gradient is not finite stays where it is."""
        error = self.error * self.scale
        second_slope = torch.bmm(error, self.hidden.mT)
        back = torch.bmm(self.second.mT, error)
        for kind, run in self.runs:
            part, hidden = back[run], self.hidden[run]
            if kind == "relu":
                part.mul_(hidden > 0)
            else:
                part.addcmul_(part, hidden.square(), value=-1)
        first_slope = torch.bmm(back, self.x)
        # One sum shows every nan and infinity.
        if not isfinite(float(first_slope.sum() + second_slope.sum())):
            diverged = ~(torch.isfinite(first_slope).all(-1).all(-1) & torch.isfinite(second_slope).all(-1).all(-1))
            first_slope[diverged], second_slope[diverged] = 0.0, 0.0
        self.first -= first_slope
        self.second -= second_slope

    def networks(self) -> tuple[Layered, ...]:
        """Return the networks with their current weights."""
        made: list[Layered] = []
        for start, first, second in zip(self.starts, self.first.numpy(), self.second.numpy(), strict=True):
            h, n, m = start.hidden_size, start.inputs, start.outputs
            new = TwoLayer(first[:h, :n], second[:m, :h])
            made.append(Activated(new, start.activation) if isinstance(start, Activated) else new)
        return tuple(made)


def _stacked(matrices: Sequence[FloatArray]) -> torch.Tensor:
    shape = np.max([m.shape for m in matrices], axis=0)
    stack = np.zeros((len(matrices), *shape))
    for place, m in zip(stack, matrices, strict=True):
        place[: m.shape[0], : m.shape[1]] = m
    return torch.as_tensor(stack)
