"""Networks really trained, all at once in torch: what the trained figures of braun2022 share, and the data of 2C, D."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.dynamics.two_layer import TwoLayerSolution, checked_two_layer
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.papers.runs import Compute, PaperRun, one_by_one
from learncast.papers.two_layer_descent import Descent, Pairs, learns_all, over_steps, random_pairs
from learncast.planning.solving import solve
from learncast.progress import Progress, silent
from learncast.trajectory import described
from learncast.validation import FloatArray

#: Hidden units of the networks in figure 5, in the order of the paper.
KINDS = ("linear", "tanh", "relu")
#: Networks of 2C and of each kind in 5B, and the largest of the learning rates of 2C over the smallest, by preset.
NETWORKS, FINEST = {"smoke": 6, "full": 50}, {"smoke": 10, "full": 100}
#: Networks, or sequences of tasks, of one run: enough to train many at once, few enough for several runs.
TOGETHER = 10
#: The largest learning rate of 2C, and its steps.
COARSE, ENDS = 0.05, 240


def once(make: Callable[[str, Progress, Compute], xr.Dataset]) -> Callable[..., xr.Dataset]:
    """Train once for all the panels that show the same networks."""
    found: dict[tuple[str, Compute], xr.Dataset] = {}

    @wraps(make)
    def made(*, preset: str, progress: Progress = silent, compute: Compute = one_by_one) -> xr.Dataset:
        if (preset, compute) not in found:
            found[preset, compute] = make(preset, progress, compute)
        progress(1.0)
        return found[preset, compute]

    return made


def parts_of(number: int, together: int = TOGETHER) -> list[dict[str, int]]:
    """Where each part of so many networks begins and ends."""
    return [{"first": k, "end": min(k + together, number)} for k in range(0, number, together)]


def joined(parts: Sequence[xr.Dataset], dim: str) -> xr.Dataset:
    """Parts side by side; what has no such dimension is the same in all of them."""
    return xr.concat(
        parts, dim, data_vars="minimal", coords="minimal", compat="equals", join="exact", combine_attrs="override"
    )


def share_of(progress: Progress, done: float, until: float) -> Progress:
    """Progress of a part of the work."""

    def report(share: float) -> None:
        progress(done + (until - done) * share)

    return report


def of_kind(kind: str, network: TwoLayer) -> TwoLayer | Activated:
    """The same weights with linear, tanh or ReLU hidden units."""
    return network if kind == "linear" else Activated(network, kind)


def weights_of(network: TwoLayer | Activated) -> TwoLayer:
    """The layers behind the hidden units."""
    found = network.network if isinstance(network, Activated) else network
    assert isinstance(found, TwoLayer)
    return found


def loss_on(network: TwoLayer | Activated, pairs: Pairs) -> float:
    """Half the squared error, summed over outputs, mean over trials."""
    x, y = pairs
    answers = network.respond(x) if isinstance(network, Activated) else x @ network.function.T
    return float(0.5 * ((answers - y) ** 2).sum() / len(x))


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains one linear network on the trials of one task after another, in torch; a `learn` of `training`."""

    pairs: Sequence[Pairs]
    learning_rate: float
    steps: int
    every: int
    progress: Progress = silent
    starts: list[TwoLayer] = field(default_factory=list)

    def __call__(self, stage: int, network: TwoLayer) -> Descent:
        """Weights along the way; the start of every stage is kept in `starts`."""
        from learncast.simulate.ensembles import train_ensemble

        self.starts.append(network)
        run = train_ensemble(
            self.pairs[stage],
            [network],
            learning_rate=self.learning_rate,
            steps=self.steps,
            every=self.every,
            record=("weights",),
            progress=share_of(self.progress, stage / len(self.pairs), (stage + 1) / len(self.pairs)),
        )
        first, second = (run[f"{name}_weights"].values[:, 0] for name in ("first", "second"))
        return Descent(run.time.values.astype(np.intp), first, second)


@cache
def _cases(networks: int, rate: float) -> tuple[list[Pairs], list[TwoLayerSolution]]:
    """Random architectures, trials and starts from which the flow learns every mode there is room for."""
    rng = np.random.default_rng(3)
    pairs: list[Pairs] = []
    cases: list[TwoLayerSolution] = []
    while len(cases) < networks:
        inputs, hidden, outputs = (int(n) for n in rng.integers(2, 9, 3))
        trials, scale = random_pairs(inputs, outputs, rng), float(np.exp(rng.uniform(np.log(0.05), np.log(0.3))))
        task, start = tasks.from_pairs(*trials), TwoLayer.balanced(inputs, hidden, outputs, scale=scale, rng=rng)
        if learns_all([task], start, learning_rate=rate):
            cases.append(checked_two_layer(solve(task, start, learning_rate=rate)))
            pairs.append(trials)
    return pairs, cases


def _trained_losses(
    pairs: list[Pairs], cases: Sequence[TwoLayerSolution], finer: FloatArray, ends: int, progress: Progress
) -> FloatArray:
    """Losses over (rate, network, time), at the times of the largest rate's steps."""
    from learncast.simulate.ensembles import train_ensemble

    starts, losses, done = [cast(TwoLayer, case.network) for case in cases], [], np.cumsum([0, *finer]) / finer.sum()
    for i, k in enumerate(finer.astype(int)):
        run = train_ensemble(
            pairs,
            starts,
            learning_rate=cases[0].learning_rate / k,
            steps=ends * k,
            every=k,
            progress=share_of(progress, done[i], done[i + 1]),
        )
        losses.append(run["loss"].values.T)
    return np.stack(losses)


def _finer(finest: int) -> FloatArray:
    """How many times smaller than the largest each learning rate is."""
    return np.array([k for k in (1, 2, 5, 10, 20, 50, 100) if k <= finest], dtype=float)


def train_architectures(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Losses of some of the random architectures at every learning rate."""
    pairs, cases = _cases(settings["networks"], COARSE)
    here = slice(settings["first"], settings["end"])
    losses = _trained_losses(pairs[here], cases[here], _finer(settings["finest"]), ENDS, progress)
    return xr.Dataset({"loss": (("learning_rate", "network", "time"), losses)})


def architecture_runs(preset: str) -> list[PaperRun]:
    """What `architectures` needs."""
    size = {"networks": NETWORKS[preset], "finest": FINEST[preset]}
    return [PaperRun(train_architectures, size | part) for part in parts_of(NETWORKS[preset])]


@once
def architectures(preset: str, progress: Progress, compute: Compute) -> xr.Dataset:
    """Figure 2C, D: random architectures, trained at learning rates from 0.05 down."""
    losses = joined(compute(architecture_runs(preset), progress=progress), "network")["loss"].values
    steps, cases, finer = np.arange(ENDS + 1), _cases(NETWORKS[preset], COARSE)[1], _finer(FINEST[preset])
    theory = np.stack([case.at(steps)["loss"].values for case in cases])
    gap, both = np.abs(losses - theory).max(axis=2).T, np.stack([losses[0].T, theory.T])
    sizes = [(case.network.inputs, case.network.hidden_size, case.network.outputs) for case in cases]
    return xr.Dataset(
        {
            "loss": (("source", "time", "network"), both, described("loss", "target^2")),
            "deviation": (("network", "learning_rate"), gap, described("largest deviation of the loss", "target^2")),
        },
        coords=over_steps(steps)
        | {
            "learning_rate": ("learning_rate", COARSE / finer, described("learning rate", "1 / gradient steps")),
            "network": ["-".join(map(str, size)) for size in sizes],
        },
    )


def five_architectures(*, preset: str, progress: Progress = silent, compute: Compute = one_by_one) -> xr.Dataset:
    """Figure 2D: learning curves of the first five of them at the largest rate."""
    return architectures(preset=preset, progress=progress, compute=compute)[["loss"]].isel(network=slice(0, 5))
