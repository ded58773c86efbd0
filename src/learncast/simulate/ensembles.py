"""An ensemble: many two-layer networks, each with its own start, rate and trials, trained at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np
import torch
import xarray as xr

from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.progress import Progress, silent
from learncast.simulate.run import training_provenance
from learncast.simulate.sources import Source
from learncast.trajectory import STEPS, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, count, one_of, real_array

Layered = TwoLayer | Activated
#: What can be recorded along a run.
RECORDS = ("loss", "weights", "answers")
#: Steps between two calls of the progress report.
REPORT = 64


@dataclass(frozen=True, repr=False)
class EnsembleRun(Trajectory):
    """The record of an ensemble's training, and the networks it ended with.

    Attributes
    ----------
    dataset : Dataset
        ``loss`` over (time, network), ``first_weights`` and ``second_weights`` over (time, network, ...), ``answers``
        over (time, network, trial, output), as far as recorded. A network that has ended stays as it is; one that
        diverged is nan from then on. Where networks differ in size, what a network does not have is 0. Always there:
        ``final_loss`` and ``steps`` over network.
    status : tuple of Status
        Of each network: ``ok``, ``not_learned`` when the steps ran out above the loss it was to reach, or ``diverged``
        when its numbers stopped being finite.
    networks : tuple of TwoLayer or Activated
        After training; of a diverged network the last finite weights.
    """

    status: tuple[Status, ...] = ()
    networks: tuple[Layered, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Updates of each network."""
        return tuple(int(n) for n in self.dataset["steps"].values)

    def __repr__(self) -> str:
        tally = ", ".join(f"{self.status.count(kind)} {kind.name}" for kind in Status if kind in self.status)
        return f"<EnsembleRun of {len(self.networks)} networks: up to {max(self.steps)} steps; {tally}>"


def train_ensemble(
    trials: Any,
    networks: Sequence[Layered],
    *,
    learning_rate: Any,
    steps: Any,
    until: Any = None,
    every: int = 1,
    record: Sequence[str] = ("loss",),
    progress: Progress = silent,
) -> EnsembleRun:
    """Train many two-layer networks at once, by gradient descent on all their trials at every step.

    Each learns as it would alone with `train` and ``Training(batch=None)``: W1 and W2 move against the gradient of half
    the squared error, summed over outputs, mean over trials. Networks are stacked and filled up with zeros to one size,
    which descent leaves alone: a unit without weights has no gradient, a trial of zeros no error.

    Parameters
    ----------
    trials : (inputs, targets) or list of such pairs
        (trials, inputs) and (trials, outputs), shared by all networks or one pair for each.
    networks : sequence of TwoLayer or Activated
        The starts; linear, ReLU and tanh may be mixed. Fastest when those of a kind stand together.
    learning_rate : float or one per network
    steps : int or one per network
        The most updates.
    until : float or one per network, optional
        A network ends when its loss is at most this.
    every : int
        Steps between records; the last step is recorded too.
    record : sequence of {"loss", "weights", "answers"}
    progress : callable
        Called with the share of steps done.
    """
    starts = tuple(_checked_network(network) for network in _some("networks", networks))
    pairs = _checked_trials(trials, starts)
    n = len(starts)
    rates = _each("learning_rate", learning_rate, n)
    limits = np.array([count("steps", k, least=0, why="it counts updates") for k in _each("steps", steps, n, least=0)])
    goals = np.full(n, -np.inf) if until is None else _each("until", until, n)
    for name in record:
        one_of("record", name, RECORDS, why="these can be recorded")
    spacing = count("every", every, why="it counts steps")
    digest = spec_hash(*(s.hash for s in starts), *(a for pair in pairs for a in pair), rates, limits, goals)
    with _one_thread(), torch.no_grad():
        batch = _Batch(pairs, starts, rates)
        ledger = _Ledger(batch, int(limits.max()), spacing, tuple(record), starts)
        _descend(batch, ledger, limits, goals, progress)
    found = ledger.dataset(until is not None)
    return EnsembleRun(found, replace(training_provenance(digest, 0), seed=None), *ledger.ends())


def _descend(batch: _Batch, ledger: _Ledger, limits: Any, goals: FloatArray, progress: Progress) -> None:
    """Step until every network has ended; each leaves the batch at its own end."""
    step, last, judged = 0, int(limits.max()), bool((goals > -np.inf).any())
    leaving = set(limits.tolist())
    while batch.size:
        batch.forward()
        ledger.note(step)
        if judged or step in leaving:
            loss, goal = batch.losses(), goals[batch.place]
            ended = (loss <= goal) | (limits[batch.place] == step)
            if ended.any():
                ledger.close(step, ended, [_outcome(*pair) for pair in zip(loss.tolist(), goal, strict=True)])
                batch.keep(~ended)
        if not batch.slopes():
            lost = batch.lost()
            ledger.close(step, lost, [Status.diverged] * batch.size)
            batch.keep(~lost)
        batch.update()
        step += 1
        if step % REPORT == 0:
            progress(min(1.0, step / max(last, 1)))
    progress(1.0)


def _outcome(loss: float, goal: float) -> Status:
    """How a network that ends now has come out; without a goal, minus infinity, any finite loss will do."""
    if not np.isfinite(loss):
        return Status.diverged
    return Status.ok if np.isneginf(goal) or loss <= goal else Status.not_learned


class _Batch:
    """The networks still in training, as stacked tensors; trials come last, where small products are fastest."""

    def __init__(self, pairs: Sequence[tuple[FloatArray, FloatArray]], starts: Sequence[Layered], rates: Any) -> None:
        weights = [_weights(start) for start in starts]
        self.place = np.arange(len(starts))
        self.activations: list[str | None] = [s.activation if isinstance(s, Activated) else None for s in starts]
        self.first, self.second = _stacked([w.first for w in weights]), _stacked([w.second for w in weights])
        self.x, self.y = _stacked([x for x, _ in pairs]), _stacked([y.T for _, y in pairs])
        self.inputs = self.x.mT.contiguous()
        self.share = 1.0 / torch.tensor([len(x) for x, _ in pairs], dtype=torch.float64)
        self.rate = torch.as_tensor(rates)
        # Filled by the passes; declared here so that `keep` finds them at any time.
        self.hidden = self.answers = self.error = self.first_slope = self.second_slope = self.first
        self._arrange()

    @property
    def size(self) -> int:
        return len(self.place)

    def _arrange(self) -> None:
        """Runs of networks with one activation, and constants of the steps."""
        self.runs: list[tuple[str, slice]] = []
        begun = 0
        for kind, members in groupby(self.activations):
            ended = begun + len(list(members))
            if kind is not None:
                self.runs.append((kind, slice(begun, ended)))
            begun = ended
        self.scale = (self.rate * self.share)[:, None, None]

    def forward(self) -> None:
        """Answer all trials."""
        self.hidden = torch.bmm(self.first, self.inputs)
        for kind, run in self.runs:
            part = self.hidden[run]
            part.clamp_(min=0) if kind == "relu" else part.tanh_()
        self.answers = torch.bmm(self.second, self.hidden)
        self.error = self.answers - self.y

    def losses(self) -> FloatArray:
        """Of each network, half the squared error, mean over trials."""
        return (self.error.square().sum((1, 2)) * self.share / 2).numpy()

    def slopes(self) -> bool:
        """Gradients times the learning rates; whether all numbers are finite."""
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
        # One number holds every nan and infinity; it may overflow by itself, which `lost` then finds to be nobody's.
        flat = self.error.view(-1)
        return isfinite(float(torch.dot(flat, flat) + self.first_slope.sum() + self.second_slope.sum()))

    def lost(self) -> Any:
        """Networks whose numbers are no longer finite."""
        finite = np.isfinite(self.losses())
        for slope in (self.first_slope, self.second_slope):
            finite &= torch.isfinite(slope).all(-1).all(-1).numpy()
        return ~finite

    def update(self) -> None:
        self.first -= self.first_slope
        self.second -= self.second_slope

    def keep(self, chosen: Any) -> None:
        """Go on with some of the networks."""
        if chosen.all():
            return
        mask = torch.as_tensor(chosen)
        names = ("first", "second", "x", "inputs", "y", "share", "rate", "hidden", "answers", "error")
        for name in (*names, "first_slope", "second_slope"):
            setattr(self, name, getattr(self, name)[mask])
        self.activations = [kind for kind, kept in zip(self.activations, chosen, strict=True) if kept]
        self.place = self.place[chosen]
        self._arrange()


class _Ledger:
    """Records of the networks along the run and at their ends."""

    def __init__(
        self, batch: _Batch, last: int, every: int, record: tuple[str, ...], starts: Sequence[Layered]
    ) -> None:
        self.batch, self.starts = batch, starts
        self.times = np.append(np.arange(0, last, every), last)
        self.rows = {int(t): k for k, t in enumerate(self.times)}
        n, (outputs, trials) = len(starts), batch.y.shape[1:]
        shapes = {
            "loss": (),
            "first_weights": tuple(batch.first.shape[1:]),
            "second_weights": tuple(batch.second.shape[1:]),
            "answers": (trials, outputs),
        }
        wanted = {"weights": ("first_weights", "second_weights")}
        chosen = [name for word in record for name in wanted.get(word, (word,))]
        self.records = {name: np.full((len(self.times), n, *shapes[name]), np.nan) for name in chosen}
        self.final_loss, self.steps = np.full(n, np.nan), np.zeros(n, dtype=int)
        self.status, self.networks = [Status.ok] * n, list(starts)

    def note(self, step: int) -> None:
        """Write down the networks in training, where this step is one to be recorded."""
        row = self.rows.get(step)
        if row is not None:
            for name, values in self._now().items():
                self.records[name][row, self.batch.place] = values

    def _now(self) -> dict[str, FloatArray]:
        batch = self.batch
        now = {
            "loss": batch.losses,
            "first_weights": batch.first.numpy,
            "second_weights": batch.second.numpy,
            "answers": batch.answers.mT.numpy,
        }
        return {name: now[name]() for name in self.records}

    def close(self, step: int, ended: Any, kinds: Sequence[Status]) -> None:
        """Networks that end here: their ends are kept, and repeated in later records; of those that diverged, nan."""
        now, loss = self._now(), self.batch.losses()
        here, later = np.searchsorted(self.times, step, side="left"), np.searchsorted(self.times, step, side="right")
        for i in np.flatnonzero(ended).tolist():
            k, kind, start = int(self.batch.place[i]), kinds[i], self.starts[int(self.batch.place[i])]
            self.status[k], self.steps[k], self.final_loss[k] = kind, step, float(loss[i])
            h, n, m = start.hidden_size, start.inputs, start.outputs
            new = TwoLayer(self.batch.first[i, :h, :n].numpy(), self.batch.second[i, :m, :h].numpy())
            self.networks[k] = Activated(new, start.activation) if isinstance(start, Activated) else new
            for name, values in now.items():
                if kind is Status.diverged:
                    self.records[name][here:, k] = np.nan
                else:
                    self.records[name][later:, k] = values[i]

    def ends(self) -> tuple[tuple[Status, ...], tuple[Layered, ...]]:
        return tuple(self.status), tuple(self.networks)

    def dataset(self, by_loss: bool) -> xr.Dataset:
        """The records, labelled."""
        labels = {
            "loss": ((), "half mean squared error", "target^2"),
            "first_weights": (("hidden", "input"), "first weights W1", "1"),
            "second_weights": (("output", "hidden"), "second weights W2", "1"),
            "answers": (("trial", "output"), "answers", "target"),
        }
        variables: dict[str, Any] = {
            name: (("time", "network", *labels[name][0]), values, described(*labels[name][1:]))
            for name, values in self.records.items()
        }
        variables["final_loss"] = ("network", self.final_loss, described("half mean squared error", "target^2"))
        variables["steps"] = ("network", self.steps, described("updates", STEPS))
        coordinates = {
            "time": ("time", self.times.astype(float), described("training time", STEPS)),
            "status": ("network", [kind.name for kind in self.status]),
        }
        rule = "loss" if by_loss else "steps"
        return xr.Dataset(variables, coords=coordinates, attrs={"optimiser": "gd", "batch": "all", "ends_by": rule})


def _weights(network: Layered) -> TwoLayer:
    found = network.network if isinstance(network, Activated) else network
    assert isinstance(found, TwoLayer)
    return found


def _stacked(matrices: Sequence[FloatArray]) -> torch.Tensor:
    shape = np.max([m.shape for m in matrices], axis=0)
    stack = np.zeros((len(matrices), *shape))
    for place, m in zip(stack, matrices, strict=True):
        place[: m.shape[0], : m.shape[1]] = m
    return torch.as_tensor(stack)


def _some(name: str, values: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(values, Sequence) or not len(values):
        raise InvalidSpec(
            required=f"{name} must be a list of at least one",
            got=f"{type(values).__name__}" if not isinstance(values, Sequence) else "an empty one",
            why="there is nothing to train",
            remedy="pass [network, ...]; for a single one `train` does the same",
        )
    return values


def _checked_network(network: Any) -> Layered:
    weights: Any = network.network if isinstance(network, Activated) else network
    if not isinstance(weights, TwoLayer):
        raise UnsupportedModel(
            required="an ensemble must be of TwoLayer networks, Activated or not",
            got=type(weights).__name__,
            why="their layers are stacked and trained at once",
            remedy="use learncast.simulate.train_replicas for other networks",
        )
    return network


def _checked_trials(trials: Any, starts: Sequence[Layered]) -> list[tuple[FloatArray, FloatArray]]:
    """One pair of arrays for each network."""
    given = [trials] * len(starts) if isinstance(trials, tuple) else list(trials) if isinstance(trials, list) else None
    if given is None or len(given) != len(starts) or not all(isinstance(p, tuple) and len(p) == 2 for p in given):
        raise InvalidSpec(
            required=f"trials must be one pair (inputs, targets), or a list of {len(starts)} pairs",
            got=type(trials).__name__ if given is None else f"{len(given)} entries",
            why="each network has its trials",
            remedy="pass (inputs, targets), or one such pair for each network",
        )
    return [_checked_pair(pair, start) for pair, start in zip(given, starts, strict=True)]


def _checked_pair(pair: Any, start: Layered) -> tuple[FloatArray, FloatArray]:
    data = Source.of(pair).data
    assert data is not None, "a pair holds recorded trials"
    x, y = data
    if x.ndim != 2 or y.ndim != 2 or (x.shape[1], y.shape[1]) != (start.inputs, start.outputs):
        raise InvalidSpec(
            required=f"trials must be (trials, {start.inputs} inputs) and (trials, {start.outputs} outputs)",
            got=f"shapes {x.shape} and {y.shape}",
            why="the network answers these inputs with these outputs",
            remedy="match the network's channels to the trials'",
        )
    return data


def _each(name: str, value: Any, n: int, *, least: float | None = None) -> FloatArray:
    """One positive number for each network, or from `least` on."""
    found = real_array(name, value, ndim=(0, 1))
    good = (found > 0).all() if least is None else (found >= least).all()
    if (found.ndim and len(found) != n) or not good:
        raise InvalidSpec(
            required=f"{name} must be {'positive' if least is None else f'at least {least:g}'}, one number or one for "
            f"each of the {n} networks",
            got=f"shape {found.shape}" if good else repr(value)[:60],
            why="each network has its own",
            remedy="check the numbers and how many there are",
        )
    return np.array(np.broadcast_to(found, (n,)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small matrices: threads would only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
