"""An ensemble: many two-layer networks, each with its own start, rate and trials, trained at once."""

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
#: What can be recorded along a run.
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
    """The record of an ensemble's training, and the networks it ended with.

    Attributes
    ----------
    dataset : Dataset
        ``loss`` over (time, network), ``input_weights`` and ``output_weights`` over (time, network, ...), ``answers``
        over (time, network, trial, output), as far as recorded. A network that has ended stays as it is; one that
        diverged is nan from then on. Where networks differ in size, what a network does not have is 0. Always there:
        ``final_loss`` and ``steps`` over network.
    status : tuple of Status
        Of each network: ``ok``, ``not_learned`` when the steps ran out above the loss it was to reach, or ``diverged``
        when its numbers stopped being finite.
    networks : tuple of TwoLayer or Activated
        After training; of a diverged network the last finite weights. A file does not keep them.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((32, 2))
    >>> starts = [lc.TwoLayer.random(2, 3, 1, scale=scale, rng=rng) for scale in (0.01, 0.1, 1.0)]
    >>> trials = (inputs, inputs.sum(axis=1, keepdims=True))
    >>> run = lc.training.train_ensemble(trials, starts, learning_rate=0.1, steps=100, until=0.01)
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
        """How each network ended."""
        return tuple(Status[str(name)] for name in self.dataset["status"].values)

    @property
    def steps(self) -> tuple[int, ...]:
        """Updates of each network."""
        return tuple(int(n) for n in self.dataset["steps"].values)

    def __repr__(self) -> str:
        tally = ", ".join(f"{self.status.count(kind)} {kind.name}" for kind in Status if kind in self.status)
        return (
            f"<EnsembleRun of {plural(len(self.steps), 'network')}: up to {plural(max(self.steps), 'step')}; {tally}>"
        )


@noticed("training")
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

    Returns
    -------
    EnsembleRun
        What was recorded, how each network ended, and the networks as they are then.

    Raises
    ------
    UnsupportedModel
        If a network is not of two layers.

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
    asked = one_or_each("steps", steps, n, of="networks")
    limits = np.array([count("steps", k, least=0) for k in asked])
    goals = np.full(n, -np.inf) if until is None else one_or_each("until", until, n, of="networks")
    if until is not None:
        positive("until", goals.min())
    for name in record:
        one_of("record", name, RECORDS)
    last, spacing = int(limits.max()), count("every", every)
    digest = spec_hash(*(s.hash for s in starts), *(a for pair in pairs for a in pair), rates, limits, goals)
    with own_threads(1), torch.no_grad():  # small matrices: threads would only wait for one another
        ensemble = _Ensemble(pairs, starts, rates, np.append(np.arange(0, last, spacing), last), record)
        _descend(ensemble, limits, goals, progress)
    attributes = {"optimizer": "gd", "batch": "all", "ends_by": "steps" if until is None else "loss"}
    found = ensemble.dataset().assign_attrs(attributes)
    return EnsembleRun(found, training_provenance(digest, None), tuple(ensemble.networks))


def _descend(ensemble: _Ensemble, limits: Any, goals: FloatArray, progress: Progress) -> None:
    """Step until every network has ended; each leaves the ensemble at its own end."""
    step, last, judged = 0, int(limits.max()), bool((goals > -np.inf).any())
    leaving = set(limits.tolist())
    while len(ensemble.place):
        ensemble.forward()
        ensemble.note(step)
        if judged or step in leaving:
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
    """How a network that ends now has come out; without a goal, minus infinity, any finite loss will do."""
    if not np.isfinite(loss):
        return Status.diverged
    return Status.ok if np.isneginf(goal) or loss <= goal else Status.not_learned


class _Ensemble:
    """The networks still in training, as stacked tensors, and the records of all.

    Trials come last in the tensors, where small products are fastest.
    """

    def __init__(
        self, pairs: Sequence[Pair], starts: Sequence[Layered], rates: FloatArray, times: Any, record: Sequence[str]
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
        # Filled by `slopes`; declared here so that `keep` finds them at any time.
        self.first_slope = self.second_slope = self.first
        self._arrange()
        self.forward()
        self.times, self.rows = times, {int(t): k for k, t in enumerate(times)}
        both = ("input_weights", "output_weights")
        self.chosen = [name for word in record for name in (both if word == "weights" else (word,))]
        self.records = {name: np.full((len(times), *now.shape), np.nan) for name, now in self._now().items()}
        self.final_loss, self.steps = np.full(n, np.nan), np.zeros(n, dtype=int)
        self.status, self.networks = [Status.ok] * n, list(starts)

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
            getattr(self.hidden[run], f"{kind}_")()
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

    def note(self, step: int) -> None:
        """Write down the networks in training, where this step is one to be recorded."""
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

    def close(self, step: int, ended: Any, kinds: Sequence[Status]) -> None:
        """Let networks end here: their ends are kept, and repeated in later records; of those that diverged, nan."""
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

    def _keep(self, chosen: Any) -> None:
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

    def dataset(self) -> xr.Dataset:
        """The records, labelled."""
        variables: dict[str, Any] = {
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


def _checked_networks(networks: Any) -> tuple[Layered, ...]:
    if not isinstance(networks, Sequence) or not len(networks):
        raise InvalidSpec(
            required="networks must be a list of at least one",
            got=type(networks).__name__ if not isinstance(networks, Sequence) else "an empty one",
            why="there is nothing to train",
            remedy="pass [network, ...]; for a single one `train` does the same",
        )
    for network in networks:
        weights = network.network if isinstance(network, Activated) else network
        if not isinstance(weights, TwoLayer):
            raise UnsupportedModel(
                f"an ensemble must be of TwoLayer networks, Activated or not, got {type(weights).__name__}. Use "
                "learncast.training.train_replicas for other networks."
            )
    return tuple(networks)


def _checked_trials(trials: Any, starts: Sequence[Layered]) -> list[Pair]:
    """One pair of arrays for each network."""
    given = [trials] * len(starts) if isinstance(trials, tuple) else trials
    if not isinstance(given, list) or len(given) != len(starts) or not all(isinstance(pair, tuple) for pair in given):
        raise InvalidSpec(
            required=f"trials must be one pair (inputs, targets), or a list of {len(starts)} pairs",
            got=f"{len(given)} entries" if isinstance(given, list) else type(trials).__name__,
            why="each network has its trials",
            remedy="pass (inputs, targets), or one such pair for each network",
        )
    found = []
    for pair, start in zip(given, starts, strict=True):
        data = Source.of(pair).data
        assert data is not None, "a pair holds recorded trials"
        x, y = data.inputs, data.targets
        if x.ndim != 2 or y.ndim != 2 or (x.shape[1], y.shape[1]) != (start.inputs, start.outputs):
            raise InvalidSpec(
                f"trials must be (trials, {start.inputs} inputs) and (trials, {start.outputs} outputs), got "
                f"shapes {x.shape} and {y.shape}. Match the network's channels to the trials'.",
                field="trials",
            )
        found.append((x, y))
    return found
