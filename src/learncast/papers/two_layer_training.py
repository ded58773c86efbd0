"""Networks really trained, all at once in torch: what the trained figures of braun2022 share, and the data of 2C, D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import cast

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.dynamics.exact import solve
from learncast.dynamics.two_layer import TwoLayerSolution, checked_two_layer
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.papers.two_layer_descent import Descent, Pairs, learns_all, over_steps, random_pairs
from learncast.progress import Progress, silent
from learncast.trajectory import described
from learncast.validation import FloatArray

#: Hidden units of the networks in figure 5, in the order of the paper.
KINDS = ("linear", "tanh", "relu")
#: Networks of 2C and of each kind in 5B, and the largest of the learning rates of 2C over the smallest, by preset.
NETWORKS, FINEST = {"smoke": 6, "full": 50}, {"smoke": 10, "full": 100}


def once(make: Callable[[str, Progress], xr.Dataset]) -> Callable[..., xr.Dataset]:
    """Train once for all the panels that show the same networks."""
    found: dict[str, xr.Dataset] = {}

    @wraps(make)
    def made(*, preset: str, progress: Progress = silent) -> xr.Dataset:
        if preset not in found:
            found[preset] = make(preset, progress)
        progress(1.0)
        return found[preset]

    return made


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


@once
def architectures(preset: str, progress: Progress) -> xr.Dataset:
    """Figure 2C, D: random architectures, trained at learning rates from 0.05 down."""
    coarse, steps = 0.05, np.arange(241)
    pairs, cases = _cases(NETWORKS[preset], coarse)
    finer = np.array([k for k in (1, 2, 5, 10, 20, 50, 100) if k <= FINEST[preset]], dtype=float)
    losses = _trained_losses(pairs, cases, finer, 240, progress)
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
            "learning_rate": ("learning_rate", coarse / finer, described("learning rate", "1 / gradient steps")),
            "network": ["-".join(map(str, size)) for size in sizes],
        },
    )


def five_architectures(*, preset: str, progress: Progress = silent) -> xr.Dataset:
    """Figure 2D: learning curves of the first five of them at the largest rate."""
    return architectures(preset=preset, progress=progress)[["loss"]].isel(network=slice(0, 5))
