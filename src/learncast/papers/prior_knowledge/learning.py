"""Learning one task: figures 1 to 4 of braun2022."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import TwoLayer, descend, figures, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.paper import Numbers, short
from learncast.papers.prior_knowledge import descent
from learncast.papers.prior_knowledge.kingdom import ITEMS, living_kingdom
from learncast.papers.runs import PaperRun, Settings, share_of
from learncast.results import STEPS, described
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.representation.coupling import peak_time, two_mode_coupling
from learncast.theory.representation.similarity import kernel_of_grams

STARTS = {"3C": "small random", "3D": "large random", "3E": "large zero-balanced"}
SCALES = {"small": 0.02, "intermediate": 0.3, "large": 1.5}
TARGETS = {"4D": ((1.5, 0.8), (0.3, 1.2)), "4E": ((2.0, 0.0), (0.0, 1.0)), "4F": ((1.5, 0.0), (0.0, 1.5))}
SHAPES = {"4D": "dense", "4E": "unequal diagonal", "4F": "equal diagonal"}
#: Number of networks in 2C.
NETWORKS = {"default": 50, "smoke": 6, "full": 50}
#: Ratios of the largest to each learning rate of 2C, as in the paper; the largest, and its steps.
FINER, COARSE, ENDS = np.array([1, 2, 5, 10, 20, 50, 100]), 0.05, 240


def outputs_from(panel: str) -> xr.Dataset:
    """Figure 1: one task from small, from large and from already learned weights."""
    rng = np.random.default_rng(1)
    before, task = (descent.random_task(3, 2, rng, name=name) for name in ("earlier task", "task"))
    network = TwoLayer.balanced(3, 5, 2, scale={"1B": 0.02, "1C": 0.8, "1D": 0.02}[panel], rng=rng)
    if panel == "1D":
        network = cast(TwoLayer, descent.solved(before, network, descent.RATE).network_at(np.inf))
    return descent.training([task], network, learning_rate=descent.RATE, steps=4000, every=20)


def everything_from(panel: str) -> xr.Dataset:
    """Figure 2A, B: all quantities of the solution, and the tangent kernel of three items."""
    rng = np.random.default_rng(2)
    task, items = descent.random_task(3, 2, rng), np.sqrt(3) * np.eye(3)
    network = TwoLayer.balanced(3, 4, 2, scale=0.02 if panel == "2A" else 0.8, rng=rng)
    plan: dict[str, Any] = {"learning_rate": descent.RATE, "steps": 4000, "every": 40}
    dataset = descent.training([task], network, **plan, names=list(descent.QUANTITIES))
    grams = zip(dataset["input_gram"].values, dataset["output_gram"].values, strict=True)
    kernels = [[kernel_of_grams(*both, items) for both in zip(*of, strict=True)] for of in grams]
    over = ("source", "time", "output", "output_other")
    return dataset.assign(tangent_kernel=(over, np.array(kernels), described("tangent kernel", "1")))


@cache
def _cases(networks: int) -> tuple[list[descent.Pairs], list[TwoLayerSolution]]:
    """Return random trials and starts from which the flow learns every mode that fits the hidden layer."""
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


def train_architectures(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train the random architectures at every learning rate, and return their losses."""
    from learncast.training.ensembles import train_ensemble

    (pairs, cases), losses = _cases(settings["networks"]), []
    starts, done = [cast(TwoLayer, case.network) for case in cases], np.cumsum([0, *FINER]) / FINER.sum()
    for i, k in enumerate(FINER.tolist()):
        plan: dict[str, Any] = {"learning_rates": np.full(len(starts), COARSE / k), "steps": ENDS * k, "every": k}
        loss, _ = train_ensemble(pairs, starts, **plan, progress=share_of(progress, done[i], done[i + 1]))
        losses.append(loss.T)  # at the times of the largest rate's steps
    return xr.Dataset({"loss": (("learning_rate", "network", "time"), np.stack(losses))})


def architecture_runs(preset: str) -> list[PaperRun]:
    """Return the run of `architectures`."""
    return [PaperRun(train_architectures, {"networks": NETWORKS[preset]})]


def architectures(results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Figure 2C, D: random architectures, trained at several learning rates."""
    losses = results[0]["loss"].values
    steps, cases = np.arange(ENDS + 1), _cases(NETWORKS[preset])[1]
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
            "learning_rate": ("learning_rate", COARSE / FINER, described("learning rate", "1")),
            "network": ["-".join(map(str, size)) for size in sizes],
        },
    )


def five_architectures(results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Figure 2D: learning curves of the first five networks at the largest rate."""
    return architectures(results, preset)[["loss"]].isel(network=slice(0, 5))


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
    # There is a theory only for the balanced start.
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
    """Return Q Q^T with Q = [W1^T; W2]."""
    factor = np.vstack([network.first.T, network.second])
    return np.asarray(factor @ factor.T)


@cache
def decoupling_from(panel: str) -> xr.Dataset:
    """Figure 4: A^T A in the singular basis of a 2 x 2 target, from one start at several scales."""
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
    """Draw the three matrices on one scale."""
    top, names = float(np.abs(dataset["target"]).max()), [str(name) for name in dataset["panel"].values]
    draws = (
        partial(figures.matrix, one, limit=top, bar=name == names[-1], title=f"{SHAPES[name]} ({name})")
        for name, one in zip(names, dataset["target"], strict=True)
    )
    return figures.sheet(*draws, width=2.3, height=1.8)


def target_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the singular values of each target."""
    for name in dataset["panel"].values:
        values = np.linalg.svd(dataset["target"].sel(panel=name), compute_uv=False)
        yield f"{name}, {SHAPES[name]}: singular values", short(values)


#: Quantities of figure 2.
QUANTITIES = ("loss", "network_function", "input_gram", "output_gram", "tangent_kernel")


def draw_everything(title: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw loss, network function, similarities and tangent kernel over training."""
    loss, *others = QUANTITIES
    first = descent.curves(dataset, loss, title=title)
    rest = (descent.curves(dataset, name, legend=False) for name in others)
    return figures.sheet(first, *rest, columns=3, width=2.36, height=2.0)


def draw_structure(which: slice, dataset: xr.Dataset) -> figures.Figure:
    """Draw singular value decomposition and similarity matrices of tasks."""
    draws: list[object] = []
    letters = {
        "output_vectors": "$U$",
        "singular_values": "$S$",
        "input_vectors": r"$V^\top$",
        "input_similarity": r"$VSV^\top$",
        "output_similarity": r"$USU^\top$",
    }
    for task in dataset["task"].values[which]:
        for name, letter in letters.items():
            rows = ITEMS if name == "input_similarity" else None
            last = task == dataset["task"].values[which][-1]
            columns = ITEMS if last and name in ("input_vectors", "input_similarity") else None
            heading = f"{task}\n{letter}" if name == "output_vectors" else letter
            look: dict[str, Any] = {"rows": rows, "columns": columns, "title": heading}
            draws.append(partial(figures.matrix, dataset[name].sel(task=task), **look))
    return figures.sheet(*draws, columns=len(letters), width=1.42, height=1.75)


def draw_gram(panel: str, dataset: xr.Dataset) -> figures.Figure:
    """Draw Q Q^T before and after training, and that of the task; blocks of 3D have scales of their own."""
    one, top = dataset.sel(start=STARTS[panel]), float(np.abs(dataset["task_gram"]).max())
    blocks = {"blocks": True} if panel == "3D" else {}
    panels: tuple[tuple[object, dict[str, Any], str], ...] = (
        (one["start_gram"], blocks, rf"{STARTS[panel]} start: $QQ^\top$"),
        (one["end_gram"], blocks or {"limit": top}, "after training"),
        (one["task_gram"], blocks or {"limit": top}, "the task's own"),
    )
    draws = (partial(figures.matrix, m, **look, borders=(len(ITEMS),), title=title) for m, look, title in panels)
    return figures.sheet(*draws, width=2.36, height=1.9)


def draw_regimes(dataset: xr.Dataset) -> figures.Figure:
    """Draw the learning curves from three starts."""
    names, early = list(STARTS.values()), dataset.sel(time=slice(0, 300))
    first = descent.curves(dataset, "loss", names=names, title="three starts")
    rest = descent.curves(early, "loss", legend=False, title="the first 300 steps")
    return figures.sheet(first, rest, width=3.5, height=2.3)


def draw_decoupling(dataset: xr.Dataset) -> figures.Figure:
    """Draw the strengths within and between two modes, one panel for each scale."""
    scales = [str(scale) for scale in dataset["scale"].values]
    draws = (
        partial(figures.decoupling, dataset.isel(scale=k), legend=scale == scales[-1], title=f"{scale} start")
        for k, scale in enumerate(scales)
    )
    return figures.sheet(*draws, width=2.36 if len(dataset["scale"]) > 1 else 3.4, height=2.0)


def slopes(deviation: xr.DataArray) -> FloatArray:
    """Return the slope of each network's deviation against the learning rate on logarithmic axes."""
    return np.asarray(np.polyfit(np.log(deviation["learning_rate"]), np.log(deviation.values.T), 1)[0])


def deviation_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield slopes of the deviation against the learning rate."""
    deviation, slope = dataset["deviation"], slopes(dataset["deviation"])
    yield "networks", len(slope)
    yield "median slope", short(np.median(slope))
    yield "smallest and largest slope", short([slope.min(), slope.max()])
    yield "largest deviation at the largest rate", short(deviation.isel(learning_rate=0).max())
    yield "largest deviation at the smallest rate", short(deviation.isel(learning_rate=-1).max())


def structure_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield singular values, and the changes by the revisions."""
    yield "singular values", short(np.diagonal(dataset["singular_values"].values[0]))
    for k, task in enumerate(dataset["task"].values[1:], start=1):
        yield f"{task}: items that move", int((dataset["features"][k] != dataset["features"][0]).any("row").sum())
        for side in ("input", "output"):
            change = np.abs(dataset[f"{side}_similarity"][k] - dataset[f"{side}_similarity"][0]).max()
            yield f"{task}: largest change of the {side} similarity", short(np.round(change, 12))


def gram_numbers(panel: str, dataset: xr.Dataset) -> Numbers:
    """Yield the distance of the final similarities from the task's own."""
    own, n = dataset["task_gram"].values, len(ITEMS)
    end = dataset["end_gram"].sel(start=STARTS[panel]).values
    yield "final loss", short(dataset["final_loss"].sel(start=STARTS[panel]))
    for name, block in {"input": np.s_[:n, :n], "output": np.s_[n:, n:], "function": np.s_[n:, :n]}.items():
        distance = np.linalg.norm(end[block] - own[block]) / np.linalg.norm(own[block])
        yield f"distance from the task's own, {name} block, share", short(distance)
    if panel == "3E":
        yield "largest gap of the flow's limit and the task's own", short(np.abs(dataset["limit_gram"] - own).max())


def regime_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the steps to learn from each start."""
    learned = (dataset["loss"].sel(source="descent") < 0.01).values.argmax(axis=0)
    for start, k in zip(STARTS.values(), learned, strict=True):
        yield f"{start}: steps to 1% of the loss", int(dataset["time"][k])
    yield from descent.gaps(["loss"], dataset)


def decoupling_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the gaps between theory and training, and the peaks of the coupling."""
    yield from descent.gaps(["diagonal", "coupling"], dataset)
    size = np.abs(dataset["coupling"].sel(source="descent").values)
    for k, scale in enumerate(dataset["scale"].values):
        yield f"{scale} start: largest coupling", short(size[:, k].max())
        yield f"{scale} start: at step", int(dataset["time"][size[:, k].argmax()])
        if np.isfinite(dataset["peak_step"][k]):
            yield f"{scale} start: predicted peak, step", round(float(dataset["peak_step"][k]), 2)
