"""Sample curricula with their training: figures 2B, 2C and S5 of curriculum2025."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr

from learncast import Forecast, LinearRNN, Stage, descend, figures, follow
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.curriculum.pools import (
    ACCURACY,
    SAME_TARGET,
    SAMPLES,
    SIZES,
    Network,
    network,
    pools,
    settings_of,
)
from learncast.papers.paper import Numbers
from learncast.papers.runs import PaperRun, Settings
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Training runs of a sample.
SEEDS = {"default": 1, "smoke": 1, "full": 3}


def sample_runs(samples: Sequence[tuple[str, int]], units: Sequence[str], preset: str) -> list[PaperRun]:
    """Return the runs of samples (panel and index) for each activation: the curriculum, and direct training."""
    runs = []
    for (panel, index), unit in product(samples, units):
        name, choices = SAMPLES[panel]
        value, accuracy = choices[index]
        shared = {"activation": unit, "seeds": SEEDS[preset], "rate": SIZES[preset].rate}
        runs.append(PaperRun(train_path, {"pool": name, "value": value, "stop": accuracy, **shared}))
        runs.append(PaperRun(train_path, {"pool": SAME_TARGET.get(name, name), "value": None, "stop": None, **shared}))
    return runs


def sampled(
    samples: Sequence[tuple[str, int]], units: Sequence[str], results: Sequence[xr.Dataset]
) -> list[xr.Dataset]:
    """Return each sample's curriculum and direct training together, in the order of `sample_runs`."""
    pairs = zip(results[::2], results[1::2], strict=True)
    return [
        _sample(panel, index, unit, *pair)
        for ((panel, index), unit), pair in zip(product(samples, units), pairs, strict=True)
    ]


def _sample(panel: str, index: int, activation: str, staged: xr.Dataset, direct: xr.Dataset) -> xr.Dataset:
    """Join a curriculum and direct training over the longer of both times."""
    name, choices = SAMPLES[panel]
    (value, accuracy), target = choices[index], pools()[name].target
    longest = max((staged["time"], direct["time"]), key=len)
    both = (("direct", direct), ("curriculum", staged))
    parts = [
        one.reindex(time=longest).rename({key: f"{key}_{word}" for key in one.data_vars}) for word, one in both[::-1]
    ]
    return xr.merge(parts, combine_attrs="drop").assign_attrs(
        panel=panel,
        vary=pools()[name].vary,
        activation=activation,
        value=value,
        stop_accuracy=accuracy,
        target_value=float(target.recipe.parameters[pools()[name].vary]) if target.recipe else np.nan,
        target_optimum=staged.attrs["optimum"],
        first_optimum=staged.attrs["first_optimum"],
        switch_step=staged.attrs["switch_step"],
        **{f"{word}_steps": one.attrs["flow_steps"] for word, one in both},
        **{f"{word}_descent_steps": one.attrs["steps"] for word, one in both},
    )


def train_path(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Return the strength during one curriculum or direct training: theory, training and, for linear units, descent."""
    pool, net = pools()[settings["pool"]], network(settings["activation"])
    value, accuracy, target = settings["value"], settings["stop"], Stage(pool.target, goal=ACCURACY)
    stages = [target] if value is None else [Stage(pool.first(value), goal=accuracy), target]
    curriculum = follow(stages, network=net, learning_rate=settings["rate"])
    horizon = int(1.15 * curriculum.steps.flow) + 20
    times, trained = np.arange(horizon + 1.0), _trained(curriculum, net, horizon, settings)
    variables: dict[str, object] = {
        "theory": ("time", curriculum.at(times)["strength"].values[:, 0], described("theory", "1")),
        "trained": (("seed", "time"), trained, described("training", "1")),
    }
    if isinstance(net, LinearRNN):
        variables["descent"] = (
            "time",
            _descended(curriculum, net, horizon, settings["rate"]),
            described("descent", "1"),
        )
    progress(1.0)
    return xr.Dataset(
        variables,
        coords={"time": ("time", times, described("training time", STEPS))},
        attrs={
            "optimum": float(curriculum.modes[-1].optimum[0]),
            "first_optimum": float(curriculum.modes[0].optimum[0]),
            "switch_step": float(curriculum.stages[0].steps.descent),
            "flow_steps": curriculum.steps.flow,
            "steps": curriculum.steps.descent,
        },
    )


def _schedule(curriculum: Forecast, horizon: int) -> list[Stage]:
    """Return the stages with their predicted steps; the last one fills the horizon."""
    stages, left = [], horizon
    for one in curriculum.stages[:-1]:
        steps = min(int(one.steps.descent), left)
        stages.append(Stage(one.task, steps=steps))
        left -= steps
    return [*stages, Stage(curriculum.target, steps=left)]


def _trained(curriculum: Forecast, net: Network, horizon: int, settings: Settings) -> FloatArray:
    """Return the strength at every step of training, (seeds, steps)."""
    from learncast.training import train

    stages = _schedule(curriculum, horizon)
    runs = [
        train(stages, net, settings_of(k, settings["rate"]), record=("strength",)) for k in range(settings["seeds"])
    ]
    return np.stack([run["strength"].values[:, 0] for run in runs])


def _descended(curriculum: Forecast, net: LinearRNN, horizon: int, rate: float) -> FloatArray:
    """Return the strength at every step of descent on the exact statistics."""
    parts = []
    for stage in _schedule(curriculum, horizon):
        assert stage.steps is not None
        run = descend(stage.task, net, learning_rate=rate, steps=int(stage.steps))
        parts.append(run.strength[:, 0])
        net = cast(LinearRNN, run.network_at(stage.steps))
    return np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])


SYMBOLS = {"target_strength": "$s_{yx}$", "input_strength": "$s_{xx}$", "correlation": "$K$", "timescale": r"$\kappa$"}


def only_sample(samples: list[tuple[str, int]], results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return the data of a figure with a single sample."""
    return sampled(samples, ("linear",), results)[0]


def draw_paths(dataset: xr.Dataset, ax: Axes, *, legend: bool = True) -> None:
    """Draw a curriculum and direct training, theory dotted over training."""

    def path(name: str) -> xr.Dataset:
        series = dataset[name].isel(seed=0) if "seed" in dataset[name].dims else dataset[name]
        return xr.Dataset({"strength": series.expand_dims(mode=[0], axis=1)})

    a = dataset.attrs
    first = f"{SYMBOLS[str(a['vary'])]} {a['value']:g} to {a['stop_accuracy']:g}"
    units = "" if a["activation"] == "linear" else ", ReLU"
    title = f"{first}, then {a['target_value']:g}{units}"
    figures.curriculum_paths(
        path("theory_curriculum"),
        path("theory_direct"),
        ax,
        optimum=float(a["target_optimum"]),
        tolerance=1 - ACCURACY,
        first_optimum=float(a["first_optimum"]),
        switch=float(a["switch_step"]),
        simulated={"staged": path("trained_curriculum"), "direct": path("trained_direct")},
        simulated_by="trained",
        legend=legend,
        title=title,
    )


def sample_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps, and the largest gaps between theory, descent and training."""
    a = dataset.attrs
    yield "direct, flow steps", round(float(a["direct_steps"]), 2)
    yield "curriculum, flow steps", round(float(a["curriculum_steps"]), 2)
    yield "direct, descent steps", int(a["direct_descent_steps"])
    yield "curriculum, descent steps", int(a["curriculum_descent_steps"])
    for kind in ("descent", "trained"):
        if f"{kind}_direct" in dataset:
            gaps = [
                float(np.nanmax(np.abs(dataset[f"theory_{k}"] - dataset[f"{kind}_{k}"]))) / float(a["target_optimum"])
                for k in ("curriculum", "direct")
            ]
            yield f"largest gap of theory and {kind}, share of optimum", round(max(gaps), 4)


def supplement(samples: list[tuple[str, int]], results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Return all sixteen sample trajectories, linear and ReLU, along a `sample` axis."""
    every = sampled(samples, ("linear", "relu"), results)
    parts = [part.drop_vars([v for v in part.data_vars if str(v).startswith("descent")]) for part in every]
    joined = xr.concat([part.drop_attrs() for part in parts], dim="sample", join="outer")  # nan after a sample's end
    return joined.assign_coords({key: ("sample", [part.attrs[key] for part in parts]) for key in parts[0].attrs})


def _samples(dataset: xr.Dataset) -> list[xr.Dataset]:
    """Return the trajectories of a supplement, each with its own settings as attributes."""
    samples = []
    for k in range(dataset.sizes["sample"]):
        one = dataset.isel(sample=k)
        attrs = {name: one[name].item() for name in one.coords if name not in ("time", "seed")}
        samples.append(one.reset_coords(drop=True).dropna("time", how="all").assign_attrs(attrs))
    return samples


def draw_supplement(dataset: xr.Dataset) -> figures.Figure:
    """Draw four rows: a weaker and a stronger first task, each with linear and with ReLU units."""

    def draw(one: xr.Dataset, ax: Axes) -> None:
        draw_paths(one, ax, legend=False)
        ax.set_title(ax.get_title(loc="left").replace(", then", "\nthen"), loc="left", fontsize=7)
        ax.set_xlabel("gradient steps")

    draws = (partial(draw, one) for one in _samples(dataset))
    figure = figures.sheet(*draws, columns=4, width=1.77, height=1.85)
    with figures.style():
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def supplement_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the numbers of every sample."""
    for one in _samples(dataset):
        for key, value in sample_numbers(one):
            yield f"{one.attrs['vary']} {one.attrs['value']:g}, {one.attrs['activation']}, {key}", value
