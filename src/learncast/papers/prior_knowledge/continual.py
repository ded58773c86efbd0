"""Learning tasks in turn by linear, tanh and ReLU networks: figure 5 of braun2022."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import cast

import numpy as np
import xarray as xr

from learncast import Activated, TwoLayer, figures, follow, tasks
from learncast._core.progress import Progress, silent, within
from learncast._core.validation import FloatArray
from learncast.papers.paper import Numbers, short
from learncast.papers.prior_knowledge import descent
from learncast.papers.runs import PaperRun, Settings
from learncast.planning.forget import stages_of
from learncast.results import described

#: Activations in the order of the paper, and their names in pictures.
KINDS = {"linear": "linear", "tanh": "tanh", "relu": "ReLU"}
#: Kinds of targets, and the seeds of 5B and 5D.
TARGETS = {"linear teacher": (6, 7), "random targets": (16, 17)}
#: Number of networks of each kind in 5B and C.
PAIRS = {"default": 25, "smoke": 6, "full": 50}
#: Number of sequences of five tasks for 5D and E; the first is shown.
SEQUENCES = {"default": 1, "smoke": 1, "full": 10}
#: Learning rate and steps of each task in 5B to E.
FAST, STAGE = 0.02, 4000


def of_kind(kind: str, network: TwoLayer) -> TwoLayer | Activated:
    """Return the network with linear, tanh or ReLU hidden units."""
    return network if kind == "linear" else Activated(network, kind)


def loss_on(network: TwoLayer | Activated, pairs: descent.Pairs) -> float:
    """Return half the squared error, summed over outputs and averaged over trials."""
    x, y = pairs
    return float(0.5 * ((network.respond(x) - y) ** 2).sum() / len(x))


def three_tasks() -> xr.Dataset:
    """Figure 5A: three tasks in turn from small balanced weights."""
    rng = np.random.default_rng(5)
    in_turn = [descent.random_task(3, 2, rng, name=f"task {k}") for k in (1, 2, 3)]
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    return descent.training(in_turn, start, learning_rate=descent.RATE, steps=5000, every=25)


def unrelated_pairs(inputs: int, outputs: int, rng: np.random.Generator) -> descent.Pairs:
    """Return 16 exactly white inputs, and independent targets of variance 1."""
    x = np.sqrt(16) * np.linalg.qr(rng.standard_normal((16, inputs)))[0]
    return x, rng.standard_normal((16, outputs))


#: Returns the trials of a task with given numbers of inputs and outputs.
Maker = Callable[[int, int, np.random.Generator], descent.Pairs]
MAKERS: dict[str, Maker] = {"linear teacher": descent.random_pairs, "random targets": unrelated_pairs}
#: Networks by kind and then by sequence.
Trained = list[list[TwoLayer | Activated]]


def trained_in_turn(
    sequences: Sequence[Sequence[descent.Pairs]], starts: Sequence[TwoLayer], progress: Progress
) -> list[Trained]:
    """Return networks of every kind from every start, at the start and after each task of its sequence."""
    from learncast.training.ensembles import train_ensemble

    n, number = len(starts), len(sequences[0])
    networks: Sequence[TwoLayer | Activated] = [of_kind(kind, start) for kind in KINDS for start in starts]
    stages = [[list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))]]
    for task in range(number):
        part = within(progress, task, number)
        pairs = [sequence[task] for sequence in sequences] * len(KINDS)
        rates = np.full(len(networks), FAST)
        _, networks = train_ensemble(pairs, networks, learning_rates=rates, steps=STAGE, every=STAGE, progress=part)
        stages.append([list(networks[k * n : (k + 1) * n]) for k in range(len(KINDS))])
    return stages


@dataclass(frozen=True, eq=False)
class _Samples:
    """Random sequences of tasks and starts that the flow learns in time.

    `losses` are the predicted losses of every task after every stage. `set_aside` counts samples that the flow does not
    learn in time.
    """

    sequences: list[list[descent.Pairs]]
    starts: list[TwoLayer]
    losses: list[FloatArray]
    set_aside: int


def _two_tasks(make: Maker, rng: np.random.Generator) -> tuple[list[descent.Pairs], TwoLayer]:
    inputs, outputs = (int(n) for n in rng.integers(2, 9, 2))
    pairs = [make(inputs, outputs, rng) for _ in (1, 2)]
    hidden = min(inputs, outputs) + int(rng.integers(0, 5))
    return pairs, TwoLayer.balanced(inputs, hidden, outputs, scale=0.1, rng=rng)


def _five_tasks(make: Maker, rng: np.random.Generator) -> tuple[list[descent.Pairs], TwoLayer]:
    pairs = [make(5, 4, rng) for _ in range(5)]
    return pairs, TwoLayer.balanced(5, 6, 4, scale=0.05, rng=rng)


@cache
def _sampled(number: int, length: int) -> list[_Samples]:
    """Return `number` sequences of two or five tasks for each kind of targets."""
    draw, samples = _two_tasks if length == 2 else _five_tasks, []
    for targets, seeds in TARGETS.items():
        rng, make = np.random.default_rng(seeds[length == 5]), MAKERS[targets]
        kept, draws = _Samples([], [], [], 0), 0
        while len(kept.starts) < number:
            (pairs, start), draws = draw(make, rng), draws + 1
            in_turn = [tasks.from_pairs(*one, name=f"task {k}") for k, one in enumerate(pairs, start=1)]
            if descent.learns_all(in_turn, start, learning_rate=FAST, steps=STAGE):
                kept.sequences.append(pairs)
                kept.starts.append(start)
                kept.losses.append(follow(stages_of(in_turn, np.inf), start, learning_rate=FAST).losses()[1:].values)
        samples.append(replace(kept, set_aside=draws - number))
    return samples


def _trained_on(
    samples: Sequence[_Samples], table: Callable[[_Samples, list[Trained]], xr.Dataset], progress: Progress
) -> xr.Dataset:
    """Train the networks of each kind of targets together, and return their tables."""
    parts = []
    for k, one in enumerate(samples):
        stages = trained_in_turn(one.sequences, one.starts, within(progress, k, len(samples)))
        parts.append(table(one, stages))
    return xr.concat(parts, dim="targets").assign_coords(targets=list(TARGETS))


def _forgetting(samples: _Samples, stages: list[Trained]) -> xr.Dataset:
    """Return the predicted and measured forgetting of the first of two tasks, and the balance of the layers."""
    first = [sequence[0] for sequence in samples.sequences]
    losses = np.array([[[loss_on(*one) for one in zip(k, first, strict=True)] for k in stage] for stage in stages])
    linear = [[[cast(TwoLayer, getattr(n, "network", n)) for n in kind] for kind in stage] for stage in stages]
    balance = np.array([[[n.imbalance_share for n in kind] for kind in stage] for stage in linear])
    predicted, over = [table[1, 0] - table[0, 0] for table in samples.losses], ("kind", "network")
    variables: dict[str, object] = {
        "predicted": ("network", predicted, described("predicted forgetting", "target^2")),
        "measured": (over, losses[2] - losses[1], described("measured forgetting", "target^2")),
        "left": (over, losses[1], described("loss of task 1 after learning it", "target^2")),
        "imbalance": (("when", *over), balance, described("imbalance of the layers", "1")),
        "set_aside": ((), samples.set_aside, described("draws set aside", "1")),
    }
    return xr.Dataset(variables, coords={"kind": list(KINDS), "when": ["at the start", "after task 1", "after task 2"]})


def train_pairs(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train on the pairs of tasks of 5B."""
    return _trained_on(_sampled(settings["networks"], 2), _forgetting, progress)


def pair_runs(preset: str) -> list[PaperRun]:
    """Figure 5B, C: pairs of random tasks in turn."""
    return [PaperRun(train_pairs, {"networks": PAIRS[preset]})]


def _tables(samples: _Samples, stages: list[Trained]) -> xr.Dataset:
    """Return the predicted and measured loss of every task after every stage, and its changes."""
    measured = [
        [
            [[loss_on(stage[k][i], pairs) for pairs in sequence] for stage in stages[1:]]
            for i, sequence in enumerate(samples.sequences)
        ]
        for k in range(len(KINDS))
    ]
    names, variables = [f"task {k}" for k in range(1, len(stages))], dict[str, object]()
    for name, over, table in (("predicted", (), samples.losses), ("measured", ("kind",), measured)):
        dims, change = (*over, "sequence"), described("change of loss", "target^2")
        variables[f"{name}_loss"] = ((*dims, "stage", "task"), np.array(table), described("loss", "target^2"))
        variables[f"{name}_forgetting"] = ((*dims, "later", "task"), np.diff(np.array(table), axis=-2), change)
    return xr.Dataset(variables, coords={"kind": list(KINDS), "stage": names, "task": names, "later": names[1:]})


def train_fives(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train on the sequences of five tasks of 5D."""
    return _trained_on(_sampled(settings["sequences"], 5), _tables, progress)


def five_runs(preset: str) -> list[PaperRun]:
    """Figure 5D, E: loss of each of five tasks after each has been learned in turn."""
    return [PaperRun(train_fives, {"sequences": SEQUENCES[preset]})]


def draw_sequence(dataset: xr.Dataset) -> figures.Figure:
    """Draw network function and losses while three tasks are learned in turn."""
    names = [str(name) for name in dataset["task"].values]
    function = descent.curves(dataset, "network_function", title="three tasks in turn")
    return figures.sheet(function, descent.curves(dataset, "loss", names=names), columns=1, width=5.6, height=1.9)


def draw_forgetting(dataset: xr.Dataset) -> figures.Figure:
    """Draw measured against predicted forgetting, one panel for each kind of targets."""
    return _by_targets(dataset, lambda one: partial(figures.agreement_by_kind, one["predicted"], one["measured"]))


def draw_imbalance(dataset: xr.Dataset) -> figures.Figure:
    """Draw the imbalance of the layers before and after training, one panel for each kind of targets."""
    return _by_targets(dataset, lambda one: partial(figures.spread_by_kind, one["imbalance"], ceiling=1.0))


def _by_targets(dataset: xr.Dataset, draw: Callable[[xr.Dataset], Callable[..., object]]) -> figures.Figure:
    """Draw a panel for each kind of targets, the last with the legend."""
    kinds = [str(targets) for targets in dataset["targets"].values]
    draws = (partial(draw(dataset.sel(targets=k)), title=k, legend=k == kinds[-1]) for k in kinds)
    return figures.sheet(*draws, width=3.5, height=2.4)


def draw_table(name: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw the predicted and measured table of the first sequence for each kind of targets and of network."""
    one, last = dataset.isel(sequence=0), dataset["kind"].values[-1]
    draws: list[object] = []
    for targets in dataset["targets"].values:
        predicted, trained = (one[f"{source}_{name}"].sel(targets=targets) for source in ("predicted", "measured"))
        limit = float(max(np.abs(predicted).max(), np.abs(trained).max()))
        for kind in dataset["kind"].values:
            first = kind == dataset["kind"].values[0]
            rows = [f"after {stage}" if first else "" for stage in predicted[predicted.dims[0]].values]
            title = f"{KINDS[str(kind)]}, {targets}"
            table = partial(figures.predicted_and_trained, predicted, trained.sel(kind=kind), rows=rows, limit=limit)
            draws.append(partial(table, bar=kind == last, title=title))
    return figures.sheet(*draws, columns=dataset.sizes["kind"], width=2.36, height=2.2)


def forgetting_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the agreement of predicted and measured forgetting for each kind of targets and of network."""
    yield "networks of each kind", dataset.sizes["network"]
    for targets in dataset["targets"].values:
        one = dataset.sel(targets=targets)
        predicted = one["predicted"].values
        yield f"{targets}: draws set aside", int(one["set_aside"])
        yield f"{targets}: median predicted forgetting", short(np.median(predicted))
        for kind in dataset["kind"].values:
            measured, case = one["measured"].sel(kind=kind).values, f"{targets}, {KINDS[str(kind)]}"
            yield f"{case}: correlation of predicted and measured", short(np.corrcoef(predicted, measured)[0, 1])
            yield f"{case}: mean absolute gap", short(np.abs(measured - predicted).mean())
            yield f"{case}: median measured / predicted", short(np.median(measured / predicted))
            # Linear networks differ by rounding, which does not count.
            yield f"{case}: networks that forget 1% more than predicted", int((measured > 1.01 * predicted).sum())
            yield f"{case}: median loss of task 1 after learning it", short(np.median(one["left"].sel(kind=kind)))


def imbalance_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the median and largest imbalance after each stage, for each kind of targets and of network."""
    for targets, kind, when in product(*(dataset[dim].values for dim in ("targets", "kind", "when"))):
        values = dataset["imbalance"].sel(targets=targets, kind=kind, when=when)
        yield f"{targets}, {KINDS[str(kind)]}, {when}: median and largest", short([np.median(values), values.max()])


def table_numbers(name: str, dataset: xr.Dataset) -> Numbers:
    """Yield the gaps between prediction and training over all sequences, for each kind of targets and of network."""
    yield "sequences", dataset.sizes["sequence"]
    for targets in dataset["targets"].values:
        predicted = dataset[f"predicted_{name}"].sel(targets=targets).values
        for kind in dataset["kind"].values:
            gap = dataset[f"measured_{name}"].sel(targets=targets, kind=kind).values - predicted
            case = f"{targets}, {KINDS[str(kind)]}"
            yield f"{case}: largest gap of predicted and measured", short(np.abs(gap).max())
            if name == "forgetting":
                # The diagonal is the task that was learned just before; others had been forgotten already.
                fresh = np.diagonal(gap, axis1=-2, axis2=-1)
                yield f"{case}: task just learned, mean gap of measured and predicted", short(fresh.mean())
                yield f"{case}: task just learned, share forgotten more than predicted", short((fresh > 1e-3).mean())
