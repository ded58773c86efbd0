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
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import Progress, noticed, silent
from learncast._core.validation import FloatArray, count, one_of, one_or_each, positive
from learncast.display import plural
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.results import STEPS, Result, Status, described, spec_hash
from learncast.training.run import training_provenance
from learncast.training.sources import Source
from learncast.training.torch_state import own_threads

Layered = TwoLayer | Activated
#: Inputs and targets.
Pair = tuple[FloatArray, FloatArray]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
#: What can be recorded.
RECORDS = ("loss", "weights", "answers")
#: Dimensions, name and unit of each record.
LABELS = {
    "loss": ((), "half mean squared error", "target^2"),
    "input_weights": (("unit", "column"), "input weights W1", "1"),
    "output_weights": (("row", "unit"), "output weights W2", "1"),
    "answers": (("trial", "row"), "answers", "target"),
}
#: Steps between two calls of the progress report.
REPORT = 64


@dataclass(frozen=True, eq=False, repr=False)
class EnsembleRun(Result):
    """The record of an ensemble's training, and the trained networks.

    Attributes
    ----------
    dataset : Dataset
        ``loss`` over (time, network), ``input_weights`` and ``output_weights`` over (time, network, ...), ``answers``
        over (time, network, trial, output), if recorded. Values of a network that has stopped are repeated; those of a
        diverged network are nan. Smaller networks are padded with 0. ``final_loss`` and ``steps`` over network are
        always present.
    status : tuple of Status
        Of each network: ``ok``, ``not_within`` if the steps ran out above its target loss, or ``diverged`` if its
        numbers stopped being finite.
    networks : tuple of TwoLayer or Activated
        After training; the last finite weights of a diverged network. Files do not contain them.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((32, 2))
    >>> starts = [lc.TwoLayer.random(2, 3, 1, scale=scale, rng=rng) for scale in (0.01, 0.1, 1.0)]
    >>> trials = (inputs, inputs.sum(axis=1, keepdims=True))
    >>> run = lc.training.train_ensemble(trials, starts, learning_rate=0.1, steps=100, target_loss=0.01)
    >>> run
    <EnsembleRun of 3 networks: up to 36 steps; 3 ok>
    >>> run.steps, [status.name for status in run.status]
    ((36, 20, 15), ['ok', 'ok', 'ok'])
    """

    kind = "ensemble"

    networks: tuple[Layered, ...] = ()

    @property
    def time(self) -> xr.DataArray:
        """Time in gradient steps."""
        return self.dataset["time"]

    @property
    def status(self) -> tuple[Status, ...]:
        """Status of each network."""
        return tuple(Status[str(name)] for name in self.dataset["status"].values)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of each network."""
        return tuple(int(n) for n in self.dataset["steps"].values)

    def __repr__(self) -> str:
        tally = ", ".join(f"{self.status.count(kind)} {kind.name}" for kind in Status if kind in self.status)
        return (
            f"<EnsembleRun of {plural(len(self.steps), 'network')}: up to {plural(max(self.steps), 'step')}; {tally}>"
        )


@noticed("training")
def train_ensemble(
    trials: Pair | list[Pair],
    networks: Sequence[Layered],
    *,
    learning_rate: float | Sequence[float],
    steps: int | Sequence[int],
    target_loss: float | Sequence[float] | None = None,
    every: int = 1,
    record: Sequence[str] = ("loss",),
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
    steps : int or one per network
        Largest number of steps.
    target_loss : float or one per network, optional
        A network stops when its loss is at most this.
    every : int
        Steps between records; the last step is always recorded.
    record : sequence of {"loss", "weights", "answers"}
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
    starts = _checked_networks(networks)
    pairs = _checked_trials(trials, starts)
    n = len(starts)
    rates = one_or_each("learning_rate", learning_rate, n, of="networks").copy()
    positive("learning_rate", rates.min())
    limits = np.array([count("steps", k, least=0) for k in one_or_each("steps", steps, n, of="networks")])
    goals = np.full(n, -np.inf)
    if target_loss is not None:
        goals = one_or_each("target_loss", target_loss, n, of="networks")
        positive("target_loss", goals.min())
    for name in record:
        one_of("record", name, RECORDS)
    last, spacing = int(limits.max()), count("every", every)
    digest = spec_hash(*(s.hash for s in starts), *(a for pair in pairs for a in pair), rates, limits, goals)
    with own_threads(1), torch.no_grad():  # small matrices: more threads would be slower
        ensemble = _Ensemble(pairs, starts, rates, np.append(np.arange(0, last, spacing), last), record)
        _descend(ensemble, limits, goals, progress)
    attributes = {"optimizer": "gd", "batch": "all", "ends_by": "steps" if target_loss is None else "loss"}
    dataset = ensemble.dataset().assign_attrs(attributes)
    return EnsembleRun(dataset, training_provenance(digest, None), tuple(ensemble.networks))


def _descend(ensemble: _Ensemble, limits: IntArray, goals: FloatArray, progress: Progress) -> None:
    """Take steps until every network has stopped; each leaves the ensemble when it stops."""
    step, last, has_goals = 0, int(limits.max()), bool((goals > -np.inf).any())
    leaving = set(limits.tolist())
    while len(ensemble.place):
        ensemble.forward()
        ensemble.record(step)
        if has_goals or step in leaving:
            loss, goal = ensemble.losses(), goals[ensemble.place]
            ended = (loss <= goal) | (limits[ensemble.place] == step)
            if ended.any():
                ensemble.close(step, ended, [_outcome(*pair) for pair in zip(loss.tolist(), goal, strict=True)])
        if not ensemble.slopes():
            lost = ensemble.lost()
            ensemble.close(step, lost, [Status.diverged] * len(lost))
        ensemble.update()
        step += 1
        if step % REPORT == 0:
            progress(min(1.0, step / max(last, 1)))
    progress(1.0)


def _outcome(loss: float, goal: float) -> Status:
    """Return the status of a network that stops now; the goal is minus infinity if there is none."""
    if not np.isfinite(loss):
        return Status.diverged
    return Status.ok if np.isneginf(goal) or loss <= goal else Status.not_within


class _Ensemble:
    """The networks still in training, as stacked tensors, and the records of all networks.

    Trials are the last axis, where small products are fastest.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        starts: Sequence[Layered],
        rates: FloatArray,
        times: IntArray,
        record: Sequence[str],
    ) -> None:
        n, self.starts = len(starts), starts
        weights: list[Any] = [start.network if isinstance(start, Activated) else start for start in starts]
        self.place = np.arange(n)
        self.activations = [s.activation if isinstance(s, Activated) else None for s in starts]
        self.first, self.second = _stacked([w.first for w in weights]), _stacked([w.second for w in weights])
        self.x, self.y = _stacked([x for x, _ in pairs]), _stacked([y.T for _, y in pairs])
        self.inputs = self.x.mT.contiguous()
        self.share = 1.0 / torch.tensor([len(x) for x, _ in pairs], dtype=torch.float64)
        self.rate = torch.as_tensor(rates)
        self._arrange()
        self.forward()
        self.times, self.rows = times, {int(t): k for k, t in enumerate(times)}
        both = ("input_weights", "output_weights")
        self.chosen = [name for word in record for name in (both if word == "weights" else (word,))]
        self.records = {name: np.full((len(times), *now.shape), np.nan) for name, now in self._now().items()}
        self.final_loss, self.steps = np.full(n, np.nan), np.zeros(n, dtype=int)
        self.status, self.networks = [Status.ok] * n, list(starts)

    def _arrange(self) -> None:
        """Find runs of equal activations, and compute the step sizes."""
        self.runs: list[tuple[str, slice]] = []
        begun = 0
        for kind, members in groupby(self.activations):
            ended = begun + len(list(members))
            if kind is not None:
                self.runs.append((kind, slice(begun, ended)))
            begun = ended
        self.scale = (self.rate * self.share)[:, None, None]

    def forward(self) -> None:
        """Compute the answers to all trials."""
        self.hidden = torch.bmm(self.first, self.inputs)
        for kind, run in self.runs:
            getattr(self.hidden[run], f"{kind}_")()
        self.answers = torch.bmm(self.second, self.hidden)
        self.error = self.answers - self.y

    def losses(self) -> FloatArray:
        """Return the loss of each network."""
        return (self.error.square().sum((1, 2)) * self.share / 2).numpy()

    def slopes(self) -> bool:
        """Compute gradients times learning rates, and return whether all numbers are finite."""
        error = self.error * self.scale
        self.second_slope = torch.bmm(error, self.hidden.mT)
        back = torch.bmm(self.second.mT, error)
        for kind, run in self.runs:
            part, hidden = back[run], self.hidden[run]
            if kind == "relu":
                part.mul_(hidden > 0)
            else:
                part.addcmul_(part, hidden.square(), value=-1)
        self.first_slope = torch.bmm(back, self.x)
        # One sum shows every nan and infinity. It may also overflow by itself; then `lost` finds no network.
        flat = self.error.view(-1)
        return isfinite(float(torch.dot(flat, flat) + self.first_slope.sum() + self.second_slope.sum()))

    def lost(self) -> BoolArray:
        """Return which networks are no longer finite."""
        finite = np.isfinite(self.losses())
        for slope in (self.first_slope, self.second_slope):
            finite &= torch.isfinite(slope).all(-1).all(-1).numpy()
        return np.asarray(~finite)

    def update(self) -> None:
        """Take one step."""
        self.first -= self.first_slope
        self.second -= self.second_slope

    def record(self, step: int) -> None:
        """Record the networks in training, if this step is to be recorded."""
        row = self.rows.get(step)
        if row is not None:
            for name, values in self._now().items():
                self.records[name][row, self.place] = values

    def _now(self) -> dict[str, FloatArray]:
        now = {
            "loss": self.losses,
            "input_weights": self.first.numpy,
            "output_weights": self.second.numpy,
            "answers": self.answers.mT.numpy,
        }
        return {name: now[name]() for name in self.chosen}

    def close(self, step: int, ended: BoolArray, kinds: Sequence[Status]) -> None:
        """Stop networks: repeat their last values in later records, or nan if they diverged."""
        now, loss = self._now(), self.losses()
        here, later = np.searchsorted(self.times, step, side="left"), np.searchsorted(self.times, step, side="right")
        for i in np.flatnonzero(ended).tolist():
            k, kind = int(self.place[i]), kinds[i]
            start = self.starts[k]
            self.status[k], self.steps[k], self.final_loss[k] = kind, step, float(loss[i])
            h, n, m = start.hidden_size, start.inputs, start.outputs
            new = TwoLayer(self.first[i, :h, :n].numpy(), self.second[i, :m, :h].numpy())
            self.networks[k] = Activated(new, start.activation) if isinstance(start, Activated) else new
            for name, values in now.items():
                if kind is Status.diverged:
                    self.records[name][here:, k] = np.nan
                else:
                    self.records[name][later:, k] = values[i]
        self._keep(~ended)

    def _keep(self, chosen: BoolArray) -> None:
        """Continue with some of the networks."""
        if chosen.all():
            return
        mask = torch.as_tensor(chosen)
        for name, value in vars(self).items():  # every tensor has an axis of networks
            if isinstance(value, torch.Tensor):
                setattr(self, name, value[mask])
        self.activations = [kind for kind, kept in zip(self.activations, chosen, strict=True) if kept]
        self.place = self.place[chosen]
        self._arrange()

    def dataset(self) -> xr.Dataset:
        """Return the records as a Dataset."""
        variables: dict[str, object] = {
            name: (("time", "network", *LABELS[name][0]), values, described(*LABELS[name][1:]))
            for name, values in self.records.items()
        }
        variables["final_loss"] = ("network", self.final_loss, described(*LABELS["loss"][1:]))
        variables["steps"] = ("network", self.steps, described("updates", STEPS))
        coordinates = {
            "time": ("time", self.times.astype(float), described("training time", STEPS)),
            "status": ("network", [kind.name for kind in self.status]),
        }
        return xr.Dataset(variables, coords=coordinates)


def _stacked(matrices: Sequence[FloatArray]) -> torch.Tensor:
    shape = np.max([m.shape for m in matrices], axis=0)
    stack = np.zeros((len(matrices), *shape))
    for place, m in zip(stack, matrices, strict=True):
        place[: m.shape[0], : m.shape[1]] = m
    return torch.as_tensor(stack)


def _checked_networks(networks: Sequence[Layered]) -> tuple[Layered, ...]:
    if not isinstance(networks, Sequence) or not len(networks):
        raise InvalidSpec("networks must be a list of at least one network.", field="networks")
    for network in networks:
        weights = network.network if isinstance(network, Activated) else network
        if not isinstance(weights, TwoLayer):
            raise UnsupportedModel(f"networks must be TwoLayer, got {type(weights).__name__}.", field="networks")
    return tuple(networks)


def _checked_trials(trials: Pair | list[Pair], starts: Sequence[Layered]) -> list[Pair]:
    """Return one pair of arrays per network."""
    given = [trials] * len(starts) if isinstance(trials, tuple) else trials
    if not isinstance(given, list) or len(given) != len(starts) or not all(isinstance(pair, tuple) for pair in given):
        got = f"{len(given)} entries" if isinstance(given, list) else type(trials).__name__
        raise InvalidSpec(f"trials must be (inputs, targets), or {len(starts)} such pairs, got {got}.", field="trials")
    pairs = []
    for pair, start in zip(given, starts, strict=True):
        data = Source.of(pair).data
        assert data is not None, "a pair holds recorded trials"
        x, y = data.inputs, data.targets
        if x.ndim != 2 or y.ndim != 2 or (x.shape[1], y.shape[1]) != (start.inputs, start.outputs):
            wanted = f"(trials, {start.inputs}) and (trials, {start.outputs})"
            raise InvalidSpec(f"trials must have shapes {wanted}, got {x.shape} and {y.shape}.", field="trials")
        pairs.append((x, y))
    return pairs
