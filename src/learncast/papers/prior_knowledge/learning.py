"""Learning one task: braun2022's figures 1 to 4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import figures, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.networks.two_layer import TwoLayer
from learncast.papers.paper import short
from learncast.papers.prior_knowledge import descent
from learncast.papers.prior_knowledge.kingdom import ITEMS, living_kingdom
from learncast.papers.runs import PaperRun, joined, parts_of, share_of
from learncast.results import STEPS, described
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.descent import descend
from learncast.theory.representation.similarity import kernel_of_grams, peak_time, two_mode_coupling

STARTS = {"3C": "small random", "3D": "large random", "3E": "large zero-balanced"}
SCALES = {"small": 0.02, "intermediate": 0.3, "large": 1.5}
TARGETS = {"4D": ((1.5, 0.8), (0.3, 1.2)), "4E": ((2.0, 0.0), (0.0, 1.0)), "4F": ((1.5, 0.0), (0.0, 1.5))}
SHAPES = {"4D": "dense", "4E": "unequal diagonal", "4F": "equal diagonal"}
#: Networks of 2C and of each kind in 5B, by preset.
NETWORKS = {"smoke": 6, "full": 50}
#: The largest of the learning rates of 2C over the smallest, as in the paper; the largest, and its steps.
FINEST, COARSE, ENDS = 100, 0.05, 240


def outputs_from(panel: str) -> xr.Dataset:
    """Figure 1: one task from small, from large and from already learned weights."""
    rng = np.random.default_rng(1)
    before, task = (descent.random_task(3, 2, rng, name=name) for name in ("earlier task", "task"))
    network = TwoLayer.balanced(3, 5, 2, scale={"1B": 0.02, "1C": 0.8, "1D": 0.02}[panel], rng=rng)
    network = descent.learned(before, network, descent.RATE) if panel == "1D" else network
    return descent.training([task], network, learning_rate=descent.RATE, steps=4000, every=20)


def everything_from(panel: str) -> xr.Dataset:
    """Figure 2A, B: all that the solution gives, the tangent kernel of three items too."""
    rng = np.random.default_rng(2)
    task, items = descent.random_task(3, 2, rng), np.sqrt(3) * np.eye(3)
    network = TwoLayer.balanced(3, 4, 2, scale=0.02 if panel == "2A" else 0.8, rng=rng)
    found = descent.training([task], network, learning_rate=descent.RATE, steps=4000, every=40)
    grams = zip(found["input_gram"].values, found["output_gram"].values, strict=True)
    kernels = [[kernel_of_grams(*both, items) for both in zip(*of, strict=True)] for of in grams]
    over = ("source", "time", "output", "output_other")
    return found.assign(tangent_kernel=(over, np.array(kernels), described("tangent kernel", "1")))


@cache
def _cases(networks: int) -> tuple[list[descent.Pairs], list[TwoLayerSolution]]:
    """Random architectures, trials and starts from which the flow learns every mode there is room for."""
    rng = np.random.default_rng(3)
    pairs: list[descent.Pairs] = []
    cases: list[TwoLayerSolution] = []
    while len(cases) < networks:
        inputs, hidden, outputs = (int(n) for n in rng.integers(2, 9, 3))
        trials = descent.random_pairs(inputs, outputs, rng)
        scale = float(np.exp(rng.uniform(np.log(0.05), np.log(0.3))))
        task, start = tasks.from_pairs(*trials), TwoLayer.balanced(inputs, hidden, outputs, scale=scale, rng=rng)
        if descent.learns_all([task], start, learning_rate=COARSE):
            cases.append(descent.solved(task, start, COARSE))
            pairs.append(trials)
    return pairs, cases


def _finer(finest: int) -> FloatArray:
    """How many times smaller than the largest each learning rate is."""
    return np.array([k for k in (1, 2, 5, 10, 20, 50, 100) if k <= finest], dtype=float)


def train_architectures(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Losses of some of the random architectures at every learning rate."""
    from learncast.training.ensembles import train_ensemble

    pairs, cases = _cases(settings["networks"])
    here, finer, losses = slice(settings["first"], settings["end"]), _finer(settings["finest"]), []
    starts, done = [cast(TwoLayer, case.network) for case in cases[here]], np.cumsum([0, *finer]) / finer.sum()
    for i, k in enumerate(finer.astype(int)):
        plan: dict[str, Any] = {"learning_rate": COARSE / k, "steps": ENDS * k, "every": k}
        run = train_ensemble(pairs[here], starts, **plan, progress=share_of(progress, done[i], done[i + 1]))
        losses.append(run["loss"].values.T)  # at the times of the largest rate's steps
    return xr.Dataset({"loss": (("learning_rate", "network", "time"), np.stack(losses))})


def architecture_runs(preset: str) -> list[PaperRun]:
    """What `architectures` needs."""
    size = {"networks": NETWORKS[preset], "finest": FINEST}
    return [PaperRun(train_architectures, size | part) for part in parts_of(NETWORKS[preset])]


def architectures(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Figure 2C, D: random architectures, trained at learning rates from 0.05 down."""
    losses = joined("network", found)["loss"].values
    steps, cases, finer = np.arange(ENDS + 1), _cases(NETWORKS[preset])[1], _finer(FINEST)
    theory = np.stack([case.at(steps)["loss"].values for case in cases])
    gap, both = np.abs(losses - theory).max(axis=2).T, np.stack([losses[0].T, theory.T])
    sizes = [(case.network.inputs, case.network.hidden_size, case.network.outputs) for case in cases]
    return xr.Dataset(
        {
            "loss": (("source", "time", "network"), both, described("loss", "target^2")),
            "deviation": (("network", "learning_rate"), gap, described("largest deviation of the loss", "target^2")),
        },
        coords=descent.over_steps(steps)
        | {
            "learning_rate": ("learning_rate", COARSE / finer, described("learning rate", "1 / gradient steps")),
            "network": ["-".join(map(str, size)) for size in sizes],
        },
    )


def five_architectures(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Figure 2D: learning curves of the first five of them at the largest rate."""
    return architectures(found, preset)[["loss"]].isel(network=slice(0, 5))


@cache
def regimes() -> xr.Dataset:
    """Figure 3C to F: the hierarchy from small random, large random and large balanced weights."""
    rng, tree, rate = np.random.default_rng(4), living_kingdom(), 0.005
    starts = [TwoLayer.random(8, 32, 8, scale=scale, rng=rng) for scale in (0.002, 0.35)]
    starts.append(descent.regular_start([tree], 32, rng, scale=0.35, learning_rate=rate))
    exact, steps = descent.solved(tree, starts[2], rate), np.arange(0, 4001, 2)
    runs, S = [descend(tree, start, learning_rate=rate, steps=4000) for start in starts], exact.problem.cross
    ends = [cast(TwoLayer, run.network_at(4000)) for run in runs]
    loss = np.stack([run.at(steps)["excess_loss"] for run in runs], axis=1)
    # Only the balanced start has a theory.
    predicted = np.full(loss.shape, np.nan)
    predicted[:, 2] = exact.at(steps)["excess_loss"]
    U, s, Vt = np.linalg.svd(S)
    own = np.vstack([Vt.T, U]) * np.sqrt(s)
    shares, grams = np.stack([loss / loss[0], predicted / loss[0]]), ("start", "row", "column")
    final = [0.5 * ((end.function - S) ** 2).sum() for end in ends]
    return xr.Dataset(
        {
            "loss": (("source", "time", "start"), shares, described("loss, share of the start's", "1")),
            "start_gram": (grams, [_gram(start) for start in starts], described("Q Q^T at the start", "1")),
            "end_gram": (grams, [_gram(end) for end in ends], described("after training", "1")),
            "task_gram": (("row", "column"), own @ own.T, described("the task's own", "1")),
            "limit_gram": (("row", "column"), exact.flow.grams(np.inf), described("limit of the balanced flow", "1")),
            "final_loss": (("start",), final, described("final loss", "target^2")),
        },
        coords=descent.over_steps(steps) | {"start": list(STARTS.values())},
    )


def _gram(network: TwoLayer) -> FloatArray:
    """Q Q^T with Q = [W1^T; W2]."""
    factor = np.vstack([network.first.T, network.second])
    return np.asarray(factor @ factor.T)


def decoupling_from(panel: str) -> xr.Dataset:
    """Figure 4: A^T A in the singular basis of a 2 x 2 target, from one shape of start at several sizes."""
    scales = {"intermediate": 0.3} if panel == "4A" else SCALES
    S, steps = np.array(TARGETS["4E" if panel == "4A" else panel]), np.arange(0, 4001, 5)
    U, s, Vt = np.linalg.svd(S)
    A = np.array(list(scales.values()))[:, None, None] * np.array([[0.9, 0.5], [-0.1, 0.7]])
    paths = [descent.descended(tasks.static(S), TwoLayer(one @ Vt, U @ one.T), descent.RATE, steps) for one in A]
    trained = U.T @ np.array([[network.function for network in path] for path in paths]).swapaxes(0, 1) @ Vt.T
    gram = np.swapaxes(A, 1, 2) @ A
    a1, a2, b = gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1]
    exact = two_mode_coupling(descent.RATE * steps[:, None], a1, a2, b, (s[0], s[1]))
    within = np.stack([np.diagonal(trained, axis1=-2, axis2=-1), np.stack(exact[:2], axis=-1)])
    between = np.stack([trained[..., 0, 1], exact[2]])
    tied = np.isclose(s[0], s[1])
    peaks = [peak_time(*start, s[0]) / descent.RATE if tied else np.nan for start in zip(a1, a2, b, strict=True)]
    return xr.Dataset(
        {
            "diagonal": (("source", "time", "scale", "mode"), within, described("A^T A within modes", "1")),
            "coupling": (("source", "time", "scale"), between, described("A^T A between modes", "1")),
            "peak_step": (("scale",), peaks, described("predicted time of the largest coupling", STEPS)),
        },
        coords=descent.over_steps(steps) | {"scale": list(scales)},
    )


def three_targets() -> xr.Dataset:
    """Figure 4C: the target matrices of 4D, E and F."""
    about = described("target matrix", "target input")
    return xr.Dataset(
        {"target": (("panel", "row", "column"), np.array(list(TARGETS.values())), about)},
        coords={"panel": list(TARGETS)},
    )


def draw_targets(dataset: xr.Dataset) -> figures.Figure:
    """The three matrices on one scale."""
    top, last = float(np.abs(dataset["target"]).max()), dataset["panel"].values[-1]
    draws = (
        partial(
            figures.matrix,
            dataset["target"].sel(panel=name),
            limit=top,
            bar=name == last,
            title=f"{'' if k else '4C  '}{SHAPES[name]} ({name})",
        )
        for k, name in enumerate(dataset["panel"].values)
    )
    return figures.sheet(*draws, width=2.3, height=1.8)


def target_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Singular values of each."""
    return {
        f"{name}, {SHAPES[name]}: singular values": [
            short(v) for v in np.linalg.svd(dataset["target"].sel(panel=name), compute_uv=False)
        ]
        for name in dataset["panel"].values
    }


#: What figure 2 shows over training.
QUANTITIES = ("loss", "network_function", "input_gram", "output_gram", "tangent_kernel")


def draw_everything(title: str, dataset: xr.Dataset) -> figures.Figure:
    """Loss, network function, similarities and tangent kernel over training."""
    loss, *others = QUANTITIES
    first = descent.curves(dataset, loss, title=title)
    rest = (descent.curves(dataset, name, legend=False) for name in others)
    return figures.sheet(first, *rest, columns=3, width=2.36, height=2.0)


def draw_deviations(dataset: xr.Dataset) -> figures.Figure:
    """Deviation of theory and training against the learning rate."""
    return figures.sheet(
        partial(figures.deviations, dataset, title="2C  theory against training"), width=3.5, height=2.6
    )


def draw_five(dataset: xr.Dataset) -> figures.Figure:
    """Learning curves of a few networks."""
    names = [str(name) for name in dataset["network"].values]
    return figures.sheet(
        descent.curves(dataset, "loss", names=names, title="2D  five networks of 2C"), width=3.5, height=2.6
    )


def draw_structure(title: str, shown: slice, dataset: xr.Dataset) -> figures.Figure:
    """Singular value decomposition and similarity matrices of tasks."""
    draws: list[Any] = []
    names = ("output_vectors", "singular_values", "input_vectors", "input_similarity", "output_similarity")
    for task in dataset["task"].values[shown]:
        for name in names:
            values = dataset[name].sel(task=task)
            rows = ITEMS if name == "input_similarity" else None
            columns = ITEMS if name in ("input_vectors", "input_similarity") else None
            letters = dict(zip(names, ("$U$", "$S$", r"$V^\top$", r"$VSV^\top$", r"$USU^\top$"), strict=True))
            first = name == names[0]
            tag = f"{title}  " if not draws else ""
            heading = f"{tag}{task}\n{letters[name]}" if first else letters[name]
            draws.append(partial(figures.matrix, values, rows=rows, columns=columns, title=heading))
    return figures.sheet(*draws, columns=len(names), width=1.42, height=1.75)


def draw_gram(panel: str, dataset: xr.Dataset) -> figures.Figure:
    """Q Q^T before and after training, and the task's own; blocks on scales of their own where they differ much."""
    one, top = dataset.sel(start=STARTS[panel]), float(np.abs(dataset["task_gram"]).max())
    blocks = {"blocks": True} if panel == "3D" else {}
    shown: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (one["start_gram"], blocks, rf"{panel}  {STARTS[panel]} start: $QQ^\top$"),
        (one["end_gram"], blocks or {"limit": top}, "after training"),
        (one["task_gram"], blocks or {"limit": top}, "the task's own"),
    )
    draws = (partial(figures.matrix, m, **look, borders=(len(ITEMS),), title=title) for m, look, title in shown)
    return figures.sheet(*draws, width=2.36, height=1.9)


def draw_regimes(dataset: xr.Dataset) -> figures.Figure:
    """Learning curves from three starts."""
    names, early = list(STARTS.values()), dataset.sel(time=slice(0, 300))
    first = descent.curves(dataset, "loss", names=names, title="3F  three starts")
    rest = descent.curves(early, "loss", legend=False, title="the first 300 steps")
    return figures.sheet(first, rest, width=3.5, height=2.3)


def draw_decoupling(panel: str, dataset: xr.Dataset) -> figures.Figure:
    """Strengths within and between two modes, a panel for each scale."""
    last = dataset["scale"].values[-1]
    draws = (
        partial(
            figures.decoupling,
            dataset.isel(scale=k),
            legend=scale == last,
            title=f"{'' if k else f'{panel}  '}{scale} start",
        )
        for k, scale in enumerate(dataset["scale"].values)
    )
    return figures.sheet(*draws, width=2.36 if len(dataset["scale"]) > 1 else 3.4, height=2.0)


def slopes(deviation: xr.DataArray) -> FloatArray:
    """Of each network's deviation against the learning rate, on logarithmic axes."""
    return np.asarray(np.polyfit(np.log(deviation["learning_rate"]), np.log(deviation.values.T), 1)[0])


def deviation_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Slopes of the deviation against the learning rate."""
    found, deviation = slopes(dataset["deviation"]), dataset["deviation"]
    return {
        "networks": len(found),
        "median slope": short(np.median(found)),
        "smallest and largest slope": [short(found.min()), short(found.max())],
        "largest deviation at the largest rate": short(deviation.isel(learning_rate=0).max()),
        "largest deviation at the smallest rate": short(deviation.isel(learning_rate=-1).max()),
    }


def structure_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Singular values, and what the revisions change."""
    values = np.diagonal(dataset["singular_values"].values, axis1=1, axis2=2)
    found: dict[str, Any] = {"singular values": [short(v) for v in values[0]]}
    for k, task in enumerate(dataset["task"].values[1:], start=1):
        found[f"{task}: items that move"] = int((dataset["features"][k] != dataset["features"][0]).any("row").sum())
        for side in ("input", "output"):
            change = np.abs(dataset[f"{side}_similarity"][k] - dataset[f"{side}_similarity"][0]).max()
            found[f"{task}: largest change of the {side} similarity"] = short(np.round(change, 12))
    return found


def gram_numbers(panel: str, dataset: xr.Dataset) -> dict[str, Any]:
    """Distance of the similarities at the end from the task's own."""
    own, n = dataset["task_gram"].values, len(ITEMS)
    end = dataset["end_gram"].sel(start=STARTS[panel]).values
    found: dict[str, Any] = {"final loss": short(dataset["final_loss"].sel(start=STARTS[panel]))}
    for name, block in {"input": np.s_[:n, :n], "output": np.s_[n:, n:], "function": np.s_[n:, :n]}.items():
        distance = np.linalg.norm(end[block] - own[block]) / np.linalg.norm(own[block])
        found[f"distance from the task's own, {name} block, share"] = short(distance)
    if panel == "3E":
        found["largest gap of the flow's limit and the task's own"] = short(np.abs(dataset["limit_gram"] - own).max())
    return found


def regime_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps to learn from each start."""
    learned = (dataset["loss"].sel(source="descent") < 0.01).values.argmax(axis=0)
    found = {
        f"{start}: steps to 1% of the loss": int(dataset["time"][k])
        for start, k in zip(STARTS.values(), learned, strict=True)
    }
    return found | descent.gaps("loss")(dataset)


def decoupling_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Gaps of theory and training, and peaks of the coupling."""
    found = descent.gaps("diagonal", "coupling")(dataset)
    size = np.abs(dataset["coupling"].sel(source="descent").values)
    for k, scale in enumerate(dataset["scale"].values):
        found[f"{scale} start: largest coupling"] = short(size[:, k].max())
        found[f"{scale} start: at step"] = int(dataset["time"][size[:, k].argmax()])
        if np.isfinite(dataset["peak_step"][k]):
            found[f"{scale} start: predicted peak, step"] = round(float(dataset["peak_step"][k]), 2)
    return found
