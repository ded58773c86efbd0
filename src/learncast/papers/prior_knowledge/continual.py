"""Learning tasks in turn by linear, tanh and ReLU networks: braun2022's figure 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures, tasks
from learncast._core.progress import Progress, silent, within
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.two_layer import TwoLayer
from learncast.papers.paper import short
from learncast.papers.prior_knowledge import descent
from learncast.papers.prior_knowledge.learning import NETWORKS
from learncast.papers.runs import PaperRun, parts_of
from learncast.planning.forgetting import in_sequence
from learncast.results import described

#: Hidden units of the networks, in the order of the paper, and how they are written.
KINDS = {"linear": "linear", "tanh": "tanh", "relu": "ReLU"}
#: What the targets of the tasks are, and the seeds of the draws of 5B and 5D.
TARGETS = {"linear teacher": (6, 7), "random targets": (16, 17)}
#: Sequences of five tasks that are trained for 5D and E; the first is drawn.
SEQUENCES = {"smoke": 1, "full": 10}
#: Sequences of five tasks in one run.
FEW = 5
#: Learning rate and steps of each task in 5B to E.
FAST, STAGE = 0.02, 4000


def of_kind(kind: str, network: TwoLayer) -> TwoLayer | Activated:
    """The same weights with linear, tanh or ReLU hidden units."""
    return network if kind == "linear" else Activated(network, kind)


def _imbalance(network: TwoLayer | Activated) -> float:
    """Of the layers, whatever the hidden units between them."""
    layers = network.network if isinstance(network, Activated) else network
    assert isinstance(layers, TwoLayer)
    return layers.imbalance_share


def loss_on(network: TwoLayer | Activated, pairs: descent.Pairs) -> float:
    """Half the squared error, summed over outputs, mean over trials."""
    x, y = pairs
    answers = network.respond(x) if isinstance(network, Activated) else x @ network.function.T
    return float(0.5 * ((answers - y) ** 2).sum() / len(x))


def three_tasks() -> xr.Dataset:
    """Figure 5A: three tasks in turn from small balanced weights."""
    rng = np.random.default_rng(5)
    in_turn = [descent.random_task(3, 2, rng, name=f"task {k}") for k in (1, 2, 3)]
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    return descent.training(in_turn, start, learning_rate=descent.RATE, steps=5000, every=25)


def unrelated_pairs(inputs: int, outputs: int, rng: np.random.Generator) -> descent.Pairs:
    """16 pairs with exactly white inputs and targets that have nothing to do with them, of variance 1."""
    x = np.sqrt(16) * np.linalg.qr(rng.standard_normal((16, inputs)))[0]
    return x, rng.standard_normal((16, outputs))


#: What makes the trials of a task with so many inputs and outputs.
Maker = Callable[[int, int, np.random.Generator], descent.Pairs]
MAKERS: dict[str, Maker] = {"linear teacher": descent.random_pairs, "random targets": unrelated_pairs}
#: Networks by kind and then by sequence.
Trained = list[list[TwoLayer | Activated]]


def trained_in_turn(
    sequences: Sequence[Sequence[descent.Pairs]], starts: Sequence[TwoLayer], progress: Progress
) -> list[Trained]:
    """Networks of every kind from every start, at the start and after each task of its sequence."""
    from learncast.training.ensembles import train_ensemble

    n, number = len(starts), len(sequences[0])
    networks: Sequence[TwoLayer | Activated] = [of_kind(kind, start) for kind in KINDS for start in starts]
    stages = [[list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))]]
    for task in range(number):
        part = within(progress, task, number)
        pairs = [sequence[task] for sequence in sequences] * len(KINDS)
        run = train_ensemble(pairs, networks, learning_rate=FAST, steps=STAGE, every=STAGE, progress=part)
        networks = run.networks
        stages.append([list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))])
    return stages


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sequences of tasks and starts that the flow learns in time, what it tells of each, and how many it did not."""

    sequences: list[list[descent.Pairs]]
    starts: list[TwoLayer]
    told: list[FloatArray]
    set_aside: int

    def part(self, first: int, end: int) -> _Drawn:
        """Some of them."""
        return _Drawn(self.sequences[first:end], self.starts[first:end], self.told[first:end], self.set_aside)


def _two_tasks(make: Maker, rng: np.random.Generator) -> tuple[list[descent.Pairs], TwoLayer]:
    inputs, outputs = (int(n) for n in rng.integers(2, 9, 2))
    pairs = [make(inputs, outputs, rng) for _ in (1, 2)]
    hidden = min(inputs, outputs) + int(rng.integers(0, 5))
    return pairs, TwoLayer.balanced(inputs, hidden, outputs, scale=0.1, rng=rng)


def _five_tasks(make: Maker, rng: np.random.Generator) -> tuple[list[descent.Pairs], TwoLayer]:
    pairs = [make(5, 4, rng) for _ in range(5)]
    return pairs, TwoLayer.balanced(5, 6, 4, scale=0.05, rng=rng)


@cache
def _drawn(number: int, length: int) -> list[_Drawn]:
    """Sequences of two or five tasks of each kind of targets, drawn until the flow learns so many in time.

    Told is the loss of every task after every stage.
    """
    draw, drawn = _two_tasks if length == 2 else _five_tasks, []
    for targets, seeds in TARGETS.items():
        rng, make = np.random.default_rng(seeds[length == 5]), MAKERS[targets]
        found, draws = _Drawn([], [], [], 0), 0
        while len(found.starts) < number:
            (pairs, start), draws = draw(make, rng), draws + 1
            in_turn = [tasks.from_pairs(*one, name=f"task {k}") for k, one in enumerate(pairs, start=1)]
            if descent.learns_all(in_turn, start, learning_rate=FAST, steps=STAGE):
                found.sequences.append(pairs)
                found.starts.append(start)
                found.told.append(in_sequence(in_turn, start, learning_rate=FAST).losses()[1:].values)
        drawn.append(replace(found, set_aside=draws - number))
    return drawn


def _trained_part(
    drawn: Sequence[_Drawn],
    settings: Mapping[str, Any],
    table: Callable[[_Drawn, list[Trained]], xr.Dataset],
    progress: Progress,
) -> xr.Dataset:
    """What a table says of a part of the draws, whose networks are all trained at once."""
    here = [one.part(settings["first"], settings["end"]) for one in drawn]
    sequences, starts = ([x for d in here for x in getattr(d, name)] for name in ("sequences", "starts"))
    stages, begun, parts = trained_in_turn(sequences, starts, progress), 0, []
    for one in here:
        own = slice(begun, begun + len(one.starts))
        parts.append(table(one, [[networks[own] for networks in stage] for stage in stages]))
        begun = own.stop
    return xr.concat(parts, dim="targets").assign_coords(targets=list(TARGETS))


def _forgetting(drawn: _Drawn, stages: list[Trained]) -> xr.Dataset:
    """What the first of two tasks loses to the second, told and measured, and the balance of the layers."""
    first = [sequence[0] for sequence in drawn.sequences]
    losses = np.array([[[loss_on(*one) for one in zip(k, first, strict=True)] for k in stage] for stage in stages])
    balance = np.array([[[_imbalance(network) for network in kind] for kind in stage] for stage in stages])
    told, over = [table[1, 0] - table[0, 0] for table in drawn.told], ("kind", "network")
    variables: dict[str, Any] = {
        "predicted": ("network", told, described("forgetting told before training", "target^2")),
        "measured": (over, losses[2] - losses[1], described("forgetting measured", "target^2")),
        "left": (over, losses[1], described("loss of task 1 after learning it", "target^2")),
        "imbalance": (("when", *over), balance, described("imbalance of the layers", "1")),
        "set_aside": ((), drawn.set_aside, described("draws set aside", "1")),
    }
    return xr.Dataset(variables, coords={"kind": list(KINDS), "when": ["at the start", "after task 1", "after task 2"]})


def train_pairs(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Some of the pairs of tasks of 5B, learned in turn."""
    return _trained_part(_drawn(settings["networks"], 2), settings, _forgetting, progress)


def pair_runs(preset: str) -> list[PaperRun]:
    """Figure 5B, C: pairs of random tasks in turn; forgetting told and measured, balance measured."""
    number = NETWORKS[preset]
    return [PaperRun(train_pairs, {"networks": number, **part}) for part in parts_of(number)]


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


def train_fives(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Some of the sequences of five tasks of 5D, learned in turn."""
    return _trained_part(_drawn(settings["sequences"], 5), settings, _tables, progress)


def five_runs(preset: str) -> list[PaperRun]:
    """Figure 5D, E: loss of each of five tasks after each has been learned in turn."""
    number = SEQUENCES[preset]
    return [PaperRun(train_fives, {"sequences": number, **part}) for part in parts_of(number, FEW)]


def draw_sequence(dataset: xr.Dataset) -> figures.Figure:
    """Network function and losses while three tasks are learned in turn."""
    names = [str(name) for name in dataset["task"].values]
    function = descent.curves(dataset, "network_function", title="5A  three tasks in turn")
    return figures.sheet(function, descent.curves(dataset, "loss", names=names), columns=1, width=5.6, height=1.9)


def draw_forgetting(dataset: xr.Dataset) -> figures.Figure:
    """Forgetting measured against told, one panel for each kind of targets."""
    return _by_targets(
        "5B", dataset, 2.4, lambda one: partial(figures.agreement_by_kind, one["predicted"], one["measured"])
    )


def draw_imbalance(dataset: xr.Dataset) -> figures.Figure:
    """Imbalance of the layers before and after training, one panel for each kind of targets."""
    return _by_targets("5C", dataset, 2.3, lambda one: partial(figures.spread_by_kind, one["imbalance"], ceiling=1.0))


def _by_targets(
    panel: str, dataset: xr.Dataset, height: float, draw: Callable[[xr.Dataset], Callable[..., Any]]
) -> figures.Figure:
    """A panel for each kind of targets, the last with the legend."""
    *others, last = dataset["targets"].values
    titles = {targets: f"{panel}  {targets}" for targets in others} | {last: str(last)}
    shown = (partial(draw(dataset.sel(targets=k)), title=t, legend=k == last) for k, t in titles.items())
    return figures.sheet(*shown, width=3.5, height=height)


def draw_table(panel: str, name: str, dataset: xr.Dataset) -> figures.Figure:
    """Told and measured table of the first sequence for each kind of targets and of network."""
    one, last = dataset.isel(sequence=0), dataset["kind"].values[-1]
    draws: list[Any] = []
    for targets in dataset["targets"].values:
        told, trained = (one[f"{source}_{name}"].sel(targets=targets) for source in ("predicted", "measured"))
        limit = float(max(np.abs(told).max(), np.abs(trained).max()))
        for kind in dataset["kind"].values:
            first = kind == dataset["kind"].values[0]
            rows = [f"after {stage}" if first else "" for stage in told[told.dims[0]].values]
            title = f"{'' if draws else f'{panel}  '}{KINDS[str(kind)]}, {targets}"
            table = partial(figures.predicted_and_trained, told, trained.sel(kind=kind), rows=rows, limit=limit)
            draws.append(partial(table, bar=kind == last, title=title))
    return figures.sheet(*draws, columns=dataset.sizes["kind"], width=2.36, height=2.2)


def forgetting_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Agreement of told and measured forgetting for each kind of targets and of network."""
    found: dict[str, Any] = {"networks of each kind": dataset.sizes["network"]}
    for targets in dataset["targets"].values:
        one = dataset.sel(targets=targets)
        told = one["predicted"].values
        found[f"{targets}: draws set aside"] = int(one["set_aside"])
        found[f"{targets}: median forgetting told"] = short(np.median(told))
        for kind in dataset["kind"].values:
            measured, words = one["measured"].sel(kind=kind).values, f"{targets}, {KINDS[str(kind)]}"
            found[f"{words}: correlation of told and measured"] = short(np.corrcoef(told, measured)[0, 1])
            found[f"{words}: mean absolute gap"] = short(np.abs(measured - told).mean())
            found[f"{words}: median measured / told"] = short(np.median(measured / told))
            # Linear networks differ by round-off alone, which is not forgetting more.
            found[f"{words}: networks that forget 1% more than told"] = int((measured > 1.01 * told).sum())
            found[f"{words}: median loss of task 1 after learning it"] = short(np.median(one["left"].sel(kind=kind)))
    return found


def imbalance_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Median and largest imbalance at each moment, for each kind of targets and of network."""
    found: dict[str, Any] = {}
    for targets, kind, when in product(*(dataset[dim].values for dim in ("targets", "kind", "when"))):
        values = dataset["imbalance"].sel(targets=targets, kind=kind, when=when)
        words = f"{targets}, {KINDS[str(kind)]}, {when}"
        found[f"{words}: median and largest"] = [short(np.median(values)), short(values.max())]
    return found


def table_numbers(name: str, dataset: xr.Dataset) -> dict[str, Any]:
    """Gaps of told and measured over all sequences, for each kind of targets and of network."""
    found: dict[str, Any] = {"sequences": dataset.sizes["sequence"]}
    for targets in dataset["targets"].values:
        told = dataset[f"predicted_{name}"].sel(targets=targets).values
        for kind in dataset["kind"].values:
            gap = dataset[f"measured_{name}"].sel(targets=targets, kind=kind).values - told
            words = f"{targets}, {KINDS[str(kind)]}"
            found[f"{words}: largest gap of told and measured"] = short(np.abs(gap).max())
            if name == "forgetting":
                # On the diagonal is the task that was learned just before; others had been forgotten already.
                fresh = np.diagonal(gap, axis1=-2, axis2=-1)
                found[f"{words}: task just learned, mean gap of measured and told"] = short(fresh.mean())
                found[f"{words}: task just learned, share forgotten more than told"] = short((fresh > 1e-3).mean())
    return found
