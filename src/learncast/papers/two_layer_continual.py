"""Tasks learned in turn by linear, tanh and ReLU networks: the data of braun2022's figure 5."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.papers.runs import Compute, PaperRun
from learncast.papers.two_layer_descent import (
    RATE,
    Pairs,
    imbalance,
    learns_all,
    random_pairs,
    random_task,
    training,
)
from learncast.papers.two_layer_training import (
    KINDS,
    NETWORKS,
    joined,
    loss_on,
    of_kind,
    once,
    parts_of,
    share_of,
    weights_of,
)
from learncast.planning.forgetting import learn_in_sequence
from learncast.progress import Progress, silent
from learncast.trajectory import described
from learncast.validation import FloatArray

#: What the targets of the tasks are, and the seeds of the draws of 5B and 5D.
TARGETS = {"linear teacher": (6, 7), "random targets": (16, 17)}
#: Sequences of five tasks that are trained for 5D and E; the first is drawn.
SEQUENCES = {"smoke": 1, "full": 10}
#: Sequences of five tasks in one run.
FEW = 5
#: Learning rate and steps of each task in 5B to E.
FAST, STAGE = 0.02, 4000


def three_tasks() -> xr.Dataset:
    """Figure 5A: three tasks in turn from small balanced weights."""
    rng = np.random.default_rng(5)
    in_turn = [random_task(3, 2, rng, name=f"task {k}") for k in (1, 2, 3)]
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    return training(in_turn, start, learning_rate=RATE, steps=5000, every=25)


def unrelated_pairs(inputs: int, outputs: int, rng: np.random.Generator) -> Pairs:
    """16 pairs with exactly white inputs and targets that have nothing to do with them, of variance 1."""
    x = np.sqrt(16) * np.linalg.qr(rng.standard_normal((16, inputs)))[0]
    return x, rng.standard_normal((16, outputs))


def _maker(targets: str) -> Callable[[int, int, np.random.Generator], Pairs]:
    return random_pairs if targets == "linear teacher" else unrelated_pairs


#: Networks by kind and then by sequence.
Trained = list[list[TwoLayer | Activated]]


def trained_in_turn(
    sequences: Sequence[Sequence[Pairs]], starts: Sequence[TwoLayer], progress: Progress
) -> list[Trained]:
    """Networks of every kind from every start, at the start and after each task of its sequence."""
    from learncast.simulate.ensembles import train_ensemble

    n, number = len(starts), len(sequences[0])
    networks: Sequence[TwoLayer | Activated] = [of_kind(kind, start) for kind in KINDS for start in starts]
    stages = [[list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))]]
    for task in range(number):
        part = share_of(progress, task / number, (task + 1) / number)
        pairs = [sequence[task] for sequence in sequences] * len(KINDS)
        run = train_ensemble(pairs, networks, learning_rate=FAST, steps=STAGE, every=STAGE, progress=part)
        networks = run.networks
        stages.append([list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))])
    return stages


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sequences of tasks and starts that the flow learns in time, what it tells of each, and how many it did not."""

    sequences: list[list[Pairs]]
    starts: list[TwoLayer]
    told: list[FloatArray]
    set_aside: int

    def part(self, first: int, end: int) -> _Drawn:
        """Some of them."""
        kept = {name: getattr(self, name)[first:end] for name in ("sequences", "starts", "told")}
        return replace(self, **kept)


def _drawn(number: int, draw: Callable[[], tuple[list[Pairs], TwoLayer]]) -> _Drawn:
    """Draw until so many are learned; told is the loss of every task after every stage."""
    found = _Drawn([], [], [], 0)
    set_aside = 0
    while len(found.starts) < number:
        pairs, start = draw()
        in_turn = [tasks.from_pairs(*one, name=f"task {k}") for k, one in enumerate(pairs, start=1)]
        if not learns_all(in_turn, start, learning_rate=FAST, steps=STAGE):
            set_aside += 1
            continue
        found.sequences.append(pairs)
        found.starts.append(start)
        found.told.append(learn_in_sequence(in_turn, start, learning_rate=FAST).loss[1:].values)
    return replace(found, set_aside=set_aside)


def _trained_together(drawn: Sequence[_Drawn], progress: Progress) -> Iterator[tuple[_Drawn, list[Trained]]]:
    """Each of the draws with its networks, all trained at once."""
    sequences, starts = ([x for d in drawn for x in getattr(d, name)] for name in ("sequences", "starts"))
    stages, begun = trained_in_turn(sequences, starts, progress), 0
    for one in drawn:
        here = slice(begun, begun + len(one.starts))
        yield one, [[networks[here] for networks in stage] for stage in stages]
        begun = here.stop


def _two_tasks(targets: str) -> Callable[[], tuple[list[Pairs], TwoLayer]]:
    rng, make = np.random.default_rng(TARGETS[targets][0]), _maker(targets)

    def draw() -> tuple[list[Pairs], TwoLayer]:
        inputs, outputs = (int(n) for n in rng.integers(2, 9, 2))
        pairs = [make(inputs, outputs, rng) for _ in (1, 2)]
        hidden = min(inputs, outputs) + int(rng.integers(0, 5))
        return pairs, TwoLayer.balanced(inputs, hidden, outputs, scale=0.1, rng=rng)

    return draw


def _forgetting(drawn: _Drawn, stages: list[Trained]) -> xr.Dataset:
    """What the first of two tasks loses to the second, told and measured, and the balance of the layers."""
    first = [sequence[0] for sequence in drawn.sequences]
    losses = np.array([[[loss_on(*one) for one in zip(k, first, strict=True)] for k in stage] for stage in stages])
    layers = [[[weights_of(network) for network in kind] for kind in stage] for stage in stages]
    balance = np.array([[[imbalance(w.first, w.second) for w in kind] for kind in stage] for stage in layers])
    told, over = [table[1, 0] - table[0, 0] for table in drawn.told], ("kind", "network")
    variables: dict[str, Any] = {
        "predicted": ("network", told, described("forgetting told before training", "target^2")),
        "measured": (over, losses[2] - losses[1], described("forgetting measured", "target^2")),
        "left": (over, losses[1], described("loss of task 1 after learning it", "target^2")),
        "imbalance": (("when", *over), balance, described("imbalance of the layers", "1")),
        "set_aside": ((), drawn.set_aside, described("draws set aside", "1")),
    }
    return xr.Dataset(variables, coords={"kind": list(KINDS), "when": ["at the start", "after task 1", "after task 2"]})


@cache
def _pairs_drawn(number: int) -> list[_Drawn]:
    return [_drawn(number, _two_tasks(targets)) for targets in TARGETS]


def train_pairs(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Some of the pairs of tasks of 5B, learned in turn."""
    drawn = [one.part(settings["first"], settings["end"]) for one in _pairs_drawn(settings["networks"])]
    parts = [_forgetting(*one) for one in _trained_together(drawn, progress)]
    return xr.concat(parts, dim="targets").assign_coords(targets=list(TARGETS))


def pair_runs(preset: str) -> list[PaperRun]:
    """What `forgotten` needs."""
    number = NETWORKS[preset]
    return [PaperRun(train_pairs, {"networks": number, **part}) for part in parts_of(number)]


@once
def forgotten(preset: str, progress: Progress, compute: Compute) -> xr.Dataset:
    """Figure 5B, C: pairs of random tasks in turn; forgetting told and measured, balance measured."""
    return joined(compute(pair_runs(preset), progress=progress), "network")


def _five(targets: str) -> Callable[[], tuple[list[Pairs], TwoLayer]]:
    rng, make = np.random.default_rng(TARGETS[targets][1]), _maker(targets)

    def draw() -> tuple[list[Pairs], TwoLayer]:
        pairs = [make(5, 4, rng) for _ in range(5)]
        return pairs, TwoLayer.balanced(5, 6, 4, scale=0.05, rng=rng)

    return draw


def _tables(drawn: _Drawn, stages: list[Trained]) -> xr.Dataset:
    """Loss of every task after every stage, and its changes, told and measured."""
    measured = [
        [
            [[loss_on(stage[k][i], pairs) for pairs in sequence] for stage in stages[1:]]
            for i, sequence in enumerate(drawn.sequences)
        ]
        for k in range(len(KINDS))
    ]
    names, variables = [f"task {k}" for k in range(1, len(stages))], dict[str, Any]()
    for name, over, table in (("predicted", (), drawn.told), ("measured", ("kind",), measured)):
        dims, change = (*over, "sequence"), described("change of loss", "target^2")
        variables[f"{name}_loss"] = ((*dims, "stage", "task"), np.array(table), described("loss", "target^2"))
        variables[f"{name}_forgetting"] = ((*dims, "later", "task"), np.diff(np.array(table), axis=-2), change)
    return xr.Dataset(variables, coords={"kind": list(KINDS), "stage": names, "task": names, "later": names[1:]})


@cache
def _fives_drawn(number: int) -> list[_Drawn]:
    return [_drawn(number, _five(targets)) for targets in TARGETS]


def train_fives(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Some of the sequences of five tasks of 5D, learned in turn."""
    drawn = [one.part(settings["first"], settings["end"]) for one in _fives_drawn(settings["sequences"])]
    parts = [_tables(*one) for one in _trained_together(drawn, progress)]
    return xr.concat(parts, dim="targets").assign_coords(targets=list(TARGETS))


def five_runs(preset: str) -> list[PaperRun]:
    """What `five_tasks` needs."""
    number = SEQUENCES[preset]
    return [PaperRun(train_fives, {"sequences": number, **part}) for part in parts_of(number, FEW)]


@once
def five_tasks(preset: str, progress: Progress, compute: Compute) -> xr.Dataset:
    """Figure 5D, E: loss of each of five tasks after each has been learned in turn."""
    return joined(compute(five_runs(preset), progress=progress), "sequence")
