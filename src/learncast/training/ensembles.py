"""Ensembles: many two-layer networks, each with its own start, learning rate and trials, trained together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np
import torch
import xarray as xr

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, noticed, silent
from learncast._core.validation import FloatArray, count, one_or_each, positive
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.results import STEPS, described
from learncast.training.sources import Source
from learncast.training.torch_state import own_threads

Layered = TwoLayer | Activated
#: Inputs and targets.
Pair = tuple[FloatArray, FloatArray]
#: Steps between two calls of the progress report.
REPORT = 64


@dataclass(frozen=True, eq=False)
class EnsembleRun:
    """The losses of an ensemble's training, and the trained networks.

    Attributes
    ----------
    dataset : Dataset
        ``loss`` over (time, network).
    networks : tuple of TwoLayer or Activated
        After training; a network that diverged has its last finite weights.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((32, 2))
    >>> starts = [lc.TwoLayer.random(2, 3, 1, scale=scale, rng=rng) for scale in (0.01, 0.1, 1.0)]
    >>> run = lc.training.train_ensemble((inputs, inputs[:, :1]), starts, learning_rate=0.1, steps=100)
    >>> len(run.networks), run.dataset.sizes["time"]
    (3, 101)
    """

    dataset: xr.Dataset
    networks: tuple[Layered, ...]


@noticed("training")
def train_ensemble(
    trials: Pair | list[Pair],
    networks: Sequence[Layered],
    *,
    learning_rate: float | Sequence[float],
    steps: int,
    every: int = 1,
    progress: Progress = silent,
) -> EnsembleRun:
    """Train many two-layer networks together, by full-batch gradient descent.

    Each network learns as with `train` and ``Training(rate)``: the loss is half the squared error, summed over outputs,
    mean over trials. Networks are stacked and padded with zeros to one size. Padding does not learn: a unit without
    weights has no gradient, and a trial of zeros no error.

    Parameters
    ----------
    trials : (inputs, targets) or list of such pairs
        (trials, inputs) and (trials, outputs), shared by all networks or one pair per network.
    networks : sequence of TwoLayer or Activated
        The starts; linear, ReLU and tanh may be mixed. Fastest if equal activations are adjacent.
    learning_rate : float or one per network
    steps : int
    every : int
        Steps between records of the loss; the last step is always recorded.
    progress : callable
        Called with the share of steps done.

    Returns
    -------
    EnsembleRun

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((32, 2))
    >>> starts = [lc.TwoLayer.random(2, 3, 1, scale=0.1, rng=rng) for _ in range(3)]
    >>> trials = (inputs, inputs.sum(axis=1, keepdims=True))
    >>> run = lc.training.train_ensemble(trials, starts, learning_rate=[0.05, 0.1, 0.2], steps=20, every=10)
    >>> run.dataset["loss"].values.round(3)
    array([[1.134, 1.132, 1.152],
           [1.009, 0.637, 0.028],
           [0.656, 0.008, 0.   ]])
    """
    pairs = _checked_trials(trials, networks)
    rates = one_or_each("learning_rate", learning_rate, len(pairs), of="networks")
    positive("learning_rate", rates.min())
    last, spacing, losses = count("steps", steps, least=0), count("every", every), {}
    with own_threads(1), torch.no_grad():  # small matrices: more threads would be slower
        ensemble = _Ensemble(pairs, networks, rates)
        for step in range(last + 1):
            ensemble.forward()
            if step % spacing == 0 or step == last:
                losses[step] = ensemble.losses()
            if step < last:
                ensemble.step()
            if step % REPORT == 0:
                progress(step / max(last, 1))
    progress(1.0)
    loss = (("time", "network"), np.stack([*losses.values()]), described("half mean squared error", "target^2"))
    time = ("time", np.array([*losses], dtype=float), described("training time", STEPS))
    return EnsembleRun(xr.Dataset({"loss": loss}, coords={"time": time}), ensemble.networks())


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


def _checked_trials(trials: Pair | list[Pair], networks: Sequence[Layered]) -> list[Pair]:
    """Return one pair of arrays per network."""
    for network in networks:
        weights = network.network if isinstance(network, Activated) else network
        if not isinstance(weights, TwoLayer):
            raise UnsupportedModel(f"networks must be TwoLayer, got {type(weights).__name__}.", field="networks")
    if not networks:
        raise InvalidSpec("networks must be a list of at least one network.", field="networks")
    given = [trials] * len(networks) if isinstance(trials, tuple) else trials
    if not isinstance(given, list) or len(given) != len(networks) or not all(isinstance(pair, tuple) for pair in given):
        got = f"{len(given)} entries" if isinstance(given, list) else type(trials).__name__
        raise InvalidSpec(f"trials must be a pair, or {len(networks)} pairs, got {got}.", field="trials")
    pairs = []
    for pair, network in zip(given, networks, strict=True):
        data = Source.of(pair).data
        assert data is not None, "a pair holds recorded trials"
        x, y = data.inputs, data.targets
        if x.ndim != 2 or y.ndim != 2 or (x.shape[1], y.shape[1]) != (network.inputs, network.outputs):
            wanted = f"(trials, {network.inputs}) and (trials, {network.outputs})"
            raise InvalidSpec(f"trials must have shapes {wanted}, got {x.shape} and {y.shape}.", field="trials")
        pairs.append((x, y))
    return pairs
