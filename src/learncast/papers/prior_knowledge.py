"""The figures of "Exact learning dynamics of deep linear networks with prior knowledge" (braun2022), made again.

The settings in the print's appendix are unreadable: sizes, scales, learning rates and seeds here are ours. Left out are
the schematics (1A, 3A, 4B, 4C) and the non-linear networks of figure 5, of which the theory is not. The exact flow is
used in place of the printed eq. (11), which has no bottlenecks and no saddles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.figures.page import COLOURS
from learncast.papers import two_layer_descent as trained
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.two_layer_descent import ITEMS, KICK, RATE, SOURCES, STARTS
from learncast.trajectory import described
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What figure 2 shows over training.
QUANTITIES = ("loss", "network_function", "input_gram", "output_gram", "tangent_kernel")


def _structure() -> xr.Dataset:
    """Features, singular value decomposition and similarity matrices of the living kingdom and its revisions."""
    features = np.stack([tree.features for tree in (trained.living_kingdom(), *trained.revisions())])
    cross = features / np.sqrt(len(ITEMS))
    # Features are orthogonal, so U is the identity; a numerical SVD is free to mix those of tied singular values.
    s = np.linalg.norm(cross, axis=2)
    U, Vt = np.broadcast_to(np.eye(len(ITEMS)), cross.shape), cross / s[:, :, None]
    matrices = {
        "features": (features, "features"),
        "output_vectors": (U, "U"),
        "singular_values": (s[:, :, None] * np.eye(len(ITEMS)), "S"),
        "input_vectors": (Vt, "V^T"),
        "input_similarity": (np.swapaxes(Vt, 1, 2) @ (s[:, :, None] * Vt), "V S V^T"),
        "output_similarity": (U @ (s[:, :, None] * np.swapaxes(U, 1, 2)), "U S U^T"),
    }
    return xr.Dataset(
        {name: (("task", "row", "column"), m, described(text, "1")) for name, (m, text) in matrices.items()},
        coords={"task": ["living kingdom", "two fish swapped", "colour hierarchy"]},
    )


def _paths(stage: int, points: int = 25) -> xr.Dataset:
    """Outputs for all items at times equally far along the way, scaled to a plane."""
    runs, panels = trained.revised(), []
    for k in (0, 1):
        functions = runs["network_function"].isel(panel=k, time=runs["stage"].values == stage).values
        way = np.linalg.norm(np.diff(functions[0], axis=0), axis=(1, 2)).cumsum()
        chosen = np.searchsorted(way, np.linspace(0, 0.9999 * way[-1], points))
        outputs = np.sqrt(len(ITEMS)) * np.swapaxes(functions[:, chosen], 2, 3)
        plane, stress = scaled_to_plane(outputs.reshape(-1, outputs.shape[-1]), np.random.default_rng(0))
        over = ("source", "time", "item")
        variables = {
            "points": ((*over, "axis"), plane.reshape(*outputs.shape[:3], 2), described("output", "target")),
            "outputs": ((*over, "feature"), outputs, described("network output", "target")),
            "stress": ((), stress, described("share of squared distances that the plane misses", "1")),
        }
        panels.append(xr.Dataset(variables))
    return xr.concat(panels, dim="panel").assign_coords(source=list(SOURCES), item=list(ITEMS))


def scaled_to_plane(points: FloatArray, rng: np.random.Generator, *, iterations: int = 200) -> tuple[FloatArray, float]:
    """Multidimensional scaling to the plane, and the share of squared distances that it misses.

    Majorisation of Sammon's stress, sum (d_ij - |z_i - z_j|)^2 / d_ij, from classical scaling. All times are scaled at
    once, so that an item that takes another's place is seen to; the weights keep near times near, so that no path is
    torn. Classical scaling alone keeps two of seven axes, and the tree's leaves are on neither.
    """
    centred = points - points.mean(axis=0)
    # The tree's singular values are tied: a little of every axis lets the iteration choose among them.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2].T + 0.01 * rng.standard_normal((points.shape[1], 2))
    plane, distance, mean = centred @ axes, _distances(centred), np.full((len(points), len(points)), 1 / len(points))
    # Points that coincide would weigh infinitely much.
    weight = 1 / np.maximum(distance, 0.05 * distance.mean())
    np.fill_diagonal(weight, 0.0)
    inverse = np.linalg.inv(np.diag(weight.sum(axis=1)) - weight + mean) - mean
    for _ in range(iterations):
        pull = weight * distance / np.maximum(_distances(plane), 1e-9)
        plane = inverse @ (pull.sum(axis=1)[:, None] * plane - pull @ plane)
    return plane, float(((distance - _distances(plane)) ** 2).sum() / (distance**2).sum())


def _distances(points: FloatArray) -> FloatArray:
    square = (points**2).sum(axis=1)
    return np.sqrt(np.maximum(square[:, None] + square - 2 * points @ points.T, 0.0))


def _sheet(*draws: Callable[[Axes], Any], columns: int = 0, width: float = 4.2, height: float = 3.2) -> Figure:
    across = columns or len(draws)
    figure, axes = figures.page(-(-len(draws) // across), across, width=width, height=height)
    for draw, ax in zip(draws, axes, strict=True):
        draw(ax)
    return figure


def _curves(dataset: xr.Dataset, name: str, **options: Any) -> Callable[[Axes], Axes]:
    stage = dataset["stage"].values if "stage" in dataset.coords else np.zeros(1)
    switches = dataset["time"].values[1:][np.diff(stage) > 0].tolist() if len(stage) > 1 else []
    return partial(figures.learning_curves, dataset[name], switches=switches, **options)


def _draw_functions(title: str, dataset: xr.Dataset) -> Figure:
    return _sheet(_curves(dataset, "network_function", title=title), width=4.8)


def _draw_everything(title: str, dataset: xr.Dataset) -> Figure:
    loss, *others = QUANTITIES
    first = _curves(dataset, loss, names=["descent"], title=title)
    return _sheet(first, *(_curves(dataset, name, legend=False) for name in others), width=3.2)


def _draw_deviations(dataset: xr.Dataset) -> Figure:
    return _sheet(partial(figures.deviations, dataset, title="2C  theory against training"), width=4.8)


def _draw_five(dataset: xr.Dataset) -> Figure:
    names = [str(name) for name in dataset["network"].values]
    return _sheet(_curves(dataset, "loss", names=names, title="2D  five networks of 2C"), width=4.8)


def _draw_structure(title: str, shown: slice, dataset: xr.Dataset) -> Figure:
    draws = []
    names = ("output_vectors", "singular_values", "input_vectors", "input_similarity", "output_similarity")
    for task in dataset["task"].values[shown]:
        for name in names:
            values = dataset[name].sel(task=task)
            rows = ITEMS if name == "input_similarity" else None
            columns = ITEMS if name in ("input_vectors", "input_similarity") else None
            heading = f"{title}  {task}: U" if name == names[0] else values.attrs["long_name"]
            draws.append(partial(figures.matrix, values, rows=rows, columns=columns, title=heading))
    return _sheet(*draws, columns=len(names), width=2.9, height=3.0)


def _draw_features(dataset: xr.Dataset) -> Figure:
    named = ((task, dataset["features"].sel(task=task)) for task in dataset["task"].values)
    return _sheet(
        *(partial(figures.matrix, m, columns=ITEMS, title=f"6C  {task}") for task, m in named), width=3.4, height=3.6
    )


def _draw_gram(panel: str, dataset: xr.Dataset) -> Figure:
    one, top = dataset.sel(start=STARTS[panel]), float(np.abs(dataset["task_gram"]).max())
    shown = (
        (one["start_gram"], None, f"{panel}  {STARTS[panel]} start: Q Q^T"),
        (one["end_gram"], None if panel == "3D" else top, "after training"),
        (one["task_gram"], top, "the task's own"),
    )
    draws = (partial(figures.matrix, m, limit=limit, borders=(len(ITEMS),), title=title) for m, limit, title in shown)
    return _sheet(*draws, width=3.2, height=2.8)


def _draw_regimes(dataset: xr.Dataset) -> Figure:
    names, early = list(STARTS.values()), dataset.sel(time=slice(0, 300))
    first = _curves(dataset, "loss", names=names, title="3F  three starts")
    return _sheet(first, _curves(early, "loss", legend=False, title="the first 300 steps"))


def _draw_decoupling(panel: str, dataset: xr.Dataset) -> Figure:
    last = dataset["scale"].values[-1]
    draws = (
        partial(figures.decoupling, dataset.isel(scale=k), legend=scale == last, title=f"{panel}  {scale} start")
        for k, scale in enumerate(dataset["scale"].values)
    )
    return _sheet(*draws, width=3.8)


def _draw_sequence(dataset: xr.Dataset) -> Figure:
    names = [str(name) for name in dataset["task"].values]
    function = _curves(dataset, "network_function", title="5A  three tasks in turn")
    return _sheet(function, _curves(dataset, "loss", names=names), columns=1, width=6.4, height=2.8)


def _draw_forgetting(dataset: xr.Dataset) -> Figure:
    title = "5B  forgetting of the first of two tasks"
    return _sheet(partial(figures.agreement, dataset["predicted"], dataset["measured"], title=title), height=3.6)


def _draw_imbalance(dataset: xr.Dataset) -> Figure:
    return _sheet(partial(figures.spread, dataset["imbalance"], ceiling=1.0, title="5C  balance of the layers"))


def _draw_table(panel: str, name: str, dataset: xr.Dataset) -> Figure:
    upper, lower = dataset[f"predicted_{name}"], dataset[f"measured_{name}"]
    names: dict[str, Any] = {
        "rows": [f"after {stage}" for stage in upper[upper.dims[0]].values],
        "columns": [str(task) for task in upper["task"].values],
        "scale": f"{upper.attrs['long_name']} ({upper.attrs['units']})",
    }
    title = f"{panel}  above: told, below: trained"
    return _sheet(partial(figures.split_matrix, upper, lower, title=title, **names), width=5.2, height=4.2)


def _draw_revision(panel: str, name: str, dataset: xr.Dataset) -> Figure:
    def draw(k: int, ax: Axes) -> None:
        one, what = dataset.isel(panel=k), f": {ITEMS[k]}" if name == "item_output" else ""
        _curves(one, name, title=f"{panel}  living kingdom, then {dataset['panel'].values[k]}{what}")(ax)
        escape = float(one["escape_step"])
        if np.isfinite(escape) and name == "loss_in_training":
            height = float(one[name].sel(source="descent", time=escape))
            ax.plot(escape, height, "o", color=COLOURS[2], markersize=11, markerfacecolor="none", markeredgewidth=1.8)

    return _sheet(partial(draw, 0), partial(draw, 1), columns=1, width=6.4, height=2.9)


def _draw_paths(panel: str, titles: Sequence[str], dataset: xr.Dataset) -> Figure:
    draws = (
        partial(figures.item_paths, dataset["points"].isel(panel=k), names=ITEMS, title=f"{panel}  {title}")
        for k, title in enumerate(titles)
    )
    return _sheet(*draws, width=4.6, height=4.2)


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")


def _gaps(*names: str) -> Callable[[xr.Dataset], dict[str, Any]]:
    """Largest gap of theory and training, as a share of the quantity's own size."""

    def numbers(dataset: xr.Dataset) -> dict[str, Any]:
        found = {}
        for name in names:
            trained_values, theory = (dataset[name].sel(source=source).values for source in SOURCES)
            share = np.nanmax(np.abs(trained_values - theory)) / np.nanmax(np.abs(theory))
            found[f"largest gap of theory and training, {name.replace('_', ' ')}, share"] = _short(share)
        return found

    return numbers


def _stage(dataset: xr.Dataset, stage: int) -> xr.Dataset:
    return dataset.isel(time=dataset["stage"].values == stage)


def slopes(deviation: xr.DataArray) -> FloatArray:
    """Of each network's deviation against the learning rate, on logarithmic axes."""
    return np.asarray(np.polyfit(np.log(deviation["learning_rate"]), np.log(deviation.values.T), 1)[0])


def _deviation_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found, deviation = slopes(dataset["deviation"]), dataset["deviation"]
    return {
        "networks": len(found),
        "median slope": _short(np.median(found)),
        "smallest and largest slope": [_short(found.min()), _short(found.max())],
        "largest deviation at the largest rate": _short(deviation.isel(learning_rate=0).max()),
        "largest deviation at the smallest rate": _short(deviation.isel(learning_rate=-1).max()),
    }


def _structure_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    values = np.diagonal(dataset["singular_values"].values, axis1=1, axis2=2)
    found: dict[str, Any] = {"singular values": [_short(v) for v in values[0]]}
    for k, task in enumerate(dataset["task"].values[1:], start=1):
        found[f"{task}: items that move"] = int((dataset["features"][k] != dataset["features"][0]).any("row").sum())
        for side in ("input", "output"):
            change = np.abs(dataset[f"{side}_similarity"][k] - dataset[f"{side}_similarity"][0]).max()
            found[f"{task}: largest change of the {side} similarity"] = _short(np.round(change, 12))
    return found


def _gram_numbers(panel: str, dataset: xr.Dataset) -> dict[str, Any]:
    own, n = dataset["task_gram"].values, len(ITEMS)
    end = dataset["end_gram"].sel(start=STARTS[panel]).values
    found: dict[str, Any] = {"final loss": _short(dataset["final_loss"].sel(start=STARTS[panel]))}
    for name, block in {"input": np.s_[:n, :n], "output": np.s_[n:, n:], "function": np.s_[n:, :n]}.items():
        distance = np.linalg.norm(end[block] - own[block]) / np.linalg.norm(own[block])
        found[f"distance from the task's own, {name} block, share"] = _short(distance)
    if panel == "3E":
        found["largest gap of the flow's limit and the task's own"] = _short(np.abs(dataset["limit_gram"] - own).max())
    return found


def _regime_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    learned = (dataset["loss"].sel(source="descent") < 0.01).values.argmax(axis=0)
    found = {
        f"{start}: steps to 1% of the loss": int(dataset["time"][k])
        for start, k in zip(STARTS.values(), learned, strict=True)
    }
    return found | _gaps("loss")(dataset)


def _decoupling_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found = _gaps("diagonal", "coupling")(dataset)
    size = np.abs(dataset["coupling"].sel(source="descent").values)
    for k, scale in enumerate(dataset["scale"].values):
        found[f"{scale} start: largest coupling"] = _short(size[:, k].max())
        found[f"{scale} start: at step"] = int(dataset["time"][size[:, k].argmax()])
        if np.isfinite(dataset["peak_step"][k]):
            found[f"{scale} start: predicted peak, step"] = round(float(dataset["peak_step"][k]), 2)
    return found


def _told_numbers(name: str, dataset: xr.Dataset) -> dict[str, Any]:
    """Forecasts of `name` against training; the empty name is that of the pairs of tasks."""
    told, measured = (dataset[f"{kind}_{name}".rstrip("_")] for kind in ("predicted", "measured"))
    found = {
        "smallest and largest measured": [_short(measured.min()), _short(measured.max())],
        "largest gap of told and measured": _short(np.abs(told - measured).max()),
    }
    return found | {key: int(value) for key, value in dataset.attrs.items()}


def _imbalance_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    largest = dataset["imbalance"].max("network")
    return {f"largest {when}": _short(value) for when, value in zip(dataset["when"].values, largest, strict=True)}


def _reversal_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    first, last = _stage(dataset, 0), dataset.isel(time=-1)
    learned = first.isel(time=-1).sel(source="theory")
    least = float(learned["loss"].isel(task=0))
    return {
        "half the squared norm of the task": _short(0.5 * (learned["network_function"] ** 2).sum()),
        "excess loss, flow at its end": _short(last["loss"].sel(source="theory").isel(task=1) - least),
        "excess loss, training at its end": _short(np.round(last["loss"].sel(source="descent")[1] - least, 12)),
        "training leaves the saddle, steps after the switch": int(dataset["escape_step"] - first["time"][-1]),
    } | _gaps("network_function")(first)


def _revision_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["panel"].values):
        for stage, words in enumerate((f"living kingdom before {name}", f"then {name}")):
            part = _stage(dataset.isel(panel=k), stage)
            for source in SOURCES:
                loss = part["loss_in_training"].sel(source=source).values
                learned = np.flatnonzero(loss < 0.01)
                steps = int(part["time"][learned[0]] - part["time"][0]) if learned.size else None
                found[f"{words}: steps to a loss of 0.01, {source}"] = steps
                if stage:
                    found[f"{words}: final loss, {source}"] = _short(np.round(loss[-1], 9))
    return found


def _item_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    ends = np.ptp(dataset["item_output"].isel(time=-1).transpose("source", "panel", "row").values, axis=0).max(axis=1)
    found = {
        f"then {name}: largest gap at the end": _short(v) for name, v in zip(dataset["panel"].values, ends, strict=True)
    }
    return _gaps("item_output")(_stage(dataset, 0)) | found


def _path_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    fish = dataset["outputs"].isel(item=0, time=-1) - dataset["outputs"].isel(item=1, time=-1)
    apart = np.sqrt((fish**2).sum("feature"))
    found: dict[str, Any] = {}
    for k in (0, 1):
        found[f"panel {k + 1}: share of squared distances missed"] = _short(dataset["stress"][k])
        for i, source in enumerate(SOURCES):
            found[f"panel {k + 1}: distance of the two fish at the end, {source}"] = _short(np.round(apart[k, i], 9))
    return found


_KICKED = f"the flow switches when all is learned, and in training every weight then gets noise of {KICK:g}"
_SCALED = "scaled to a plane, all times at once, by Sammon's stress from classical scaling; open circles at the start"
_GRAMS = "Q Q^T before and after training. Ours: 32 hidden units, weights of 0.002 or 0.35, rate 0.005."
_COUPLED = f"Ours: the target, the shape of the start, its scales 0.02, 0.3 and 1.5, rate {RATE:g}."
_REVISED = (
    "first the living kingdom, then its revision; from small weights above, from large below. After the swap the flow "
    "ends on a saddle that training leaves. Ours: 16 hidden units, weights of 0.003 and 0.25, rates 0.01 and "
    f"{RATE:g}; {_KICKED}."
)

CAPTIONS = {
    "1B": f"Outputs for unit inputs over training from small balanced weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "1C": f"Outputs for unit inputs over training from large balanced weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "1D": f"Outputs for unit inputs over training from another task's weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "2A": f"Loss, function, similarities and tangent kernel from small balanced weights. Ours: 3-4-2, rate {RATE:g}.",
    "2B": f"Loss, function, similarities and tangent kernel from large balanced weights. Ours: 3-4-2, rate {RATE:g}.",
    "2C": "Largest deviation of the flow's loss from training's against the learning rate, a line per random network. "
    "Ours: 2 to 8 inputs, hidden units and outputs, bottlenecks too; starts that never learn a mode are left out.",
    "2D": "Learning curves of the networks marked in 2C (inputs-hidden-outputs) at the largest rate, 0.05.",
    "3B": "Singular value decomposition and similarity matrices of the hierarchy. Ours: the names of the items.",
    "3C": f"Small random weights end with the task's own similarities: {_GRAMS}",
    "3D": f"Large random weights, unbalanced and so trained without theory, keep their own similarities: {_GRAMS}",
    "3E": f"Large zero-balanced weights end with the task's own similarities: {_GRAMS}",
    "3F": "Learning curves from the starts of 3C, 3D and 3E; theory for the balanced one.",
    "4A": f"Strength within and between two modes, unequal diagonal target. {_COUPLED}",
    "4D": f"Strength within and between two modes, dense target. {_COUPLED}",
    "4E": f"Strength within and between two modes, unequal diagonal target. {_COUPLED}",
    "4F": f"Strength within and between two modes, equal diagonal target; exact time of the peak (dashed). {_COUPLED}",
    "5A": f"Three tasks in turn: network function, and loss of each task. Ours: 3-5-2 network, rate {RATE:g}.",
    "5B": "Forgetting of a first task by learning a second, told before training and measured, linear networks. Ours: "
    "2 to 8 inputs and outputs, rate 0.02, 4000 steps a task; draws that need longer are set aside.",
    "5C": "Imbalance of the layers in the networks of 5B, |W2^T W2 - W1 W1^T| / |W2^T W2 + W1 W1^T|; the flow keeps "
    "it, the finite learning rate adds to it. Ours: the measure.",
    "5D": "Loss of five tasks after each was learned, told before training and measured. Ours: 5-6-4, rate 0.02.",
    "5E": "Change of the losses of 5D from stage to stage: positive is forgotten.",
    "6A": "A task and its opposite: the flow ends on a saddle, training goes on. Ours: 3-5-2 network, rate 0.01; "
    f"{_KICKED}.",
    "6B": "The same with one layer: nothing slows. Ours: rate 0.01.",
    "6C": "Features (rows) of the items in the living kingdom and its revisions. Ours: the order by colour.",
    "6D": "Singular value decomposition and similarity matrices of the two revisions.",
    "6E": f"Loss: {_REVISED}",
    "6F": f"Outputs for one item: {_REVISED}",
    "6G": f"Outputs for the items while the living kingdom is learned, {_SCALED}.",
    "6H": f"Outputs for the items while the revision is learned, {_SCALED}, a cross where the flow is stuck.",
}


def paper(networks: int = 50, finest: int = 100) -> Paper:
    """All figures; `networks` random networks in 2C and 5B, rates down to 1 / `finest` of the largest in 2C."""
    many, pairs = partial(trained.architectures, networks, finest), partial(trained.forgotten, networks)
    both, all_five = _gaps("network_function", "loss"), _gaps(*QUANTITIES)
    made: dict[str, tuple[Any, Any, Any]] = {
        "1B": (partial(trained.outputs_from, "1B"), partial(_draw_functions, "1B  from small weights"), both),
        "1C": (partial(trained.outputs_from, "1C"), partial(_draw_functions, "1C  from large weights"), both),
        "1D": (partial(trained.outputs_from, "1D"), partial(_draw_functions, "1D  from learned weights"), both),
        "2A": (partial(trained.everything_from, "2A"), partial(_draw_everything, "2A  small start"), all_five),
        "2B": (partial(trained.everything_from, "2B"), partial(_draw_everything, "2B  large start"), all_five),
        "2C": (many, _draw_deviations, _deviation_numbers),
        "2D": (lambda: many()[["loss"]].isel(network=slice(0, 5)), _draw_five, _gaps("loss")),
        "3B": (lambda: _structure().isel(task=[0]), partial(_draw_structure, "3B", slice(0, 1)), _structure_numbers),
        "3F": (trained.regimes, _draw_regimes, _regime_numbers),
        "5A": (trained.three_tasks, _draw_sequence, both),
        "5B": (pairs, _draw_forgetting, partial(_told_numbers, "")),
        "5C": (pairs, _draw_imbalance, _imbalance_numbers),
        "5D": (trained.five_tasks, partial(_draw_table, "5D", "loss"), partial(_told_numbers, "loss")),
        "5E": (trained.five_tasks, partial(_draw_table, "5E", "forgetting"), partial(_told_numbers, "forgetting")),
        "6A": (trained.reversal, partial(_draw_functions, "6A  reversal, two layers"), _reversal_numbers),
        "6B": (
            trained.shallow_reversal,
            partial(_draw_functions, "6B  reversal, one layer"),
            _gaps("network_function"),
        ),
        "6C": (_structure, _draw_features, _structure_numbers),
        "6D": (_structure, partial(_draw_structure, "6D", slice(1, 3)), _structure_numbers),
        "6E": (trained.revised, partial(_draw_revision, "6E", "loss_in_training"), _revision_numbers),
        "6F": (trained.revised, partial(_draw_revision, "6F", "item_output"), _item_numbers),
        "6G": (partial(_paths, 0), partial(_draw_paths, "6G", ("small weights", "large weights")), _path_numbers),
        "6H": (partial(_paths, 1), partial(_draw_paths, "6H", ("two fish swapped", "colour hierarchy")), _path_numbers),
    }
    made |= {name: (trained.regimes, partial(_draw_gram, name), partial(_gram_numbers, name)) for name in STARTS}
    for name in ("4A", "4D", "4E", "4F"):
        made[name] = (partial(trained.decoupling_from, name), partial(_draw_decoupling, name), _decoupling_numbers)
    return Paper(
        "prior-knowledge", "braun2022", tuple(PaperFigure(name, CAPTIONS[name], *made[name]) for name in CAPTIONS)
    )
