"""Sample curricula with their training: figures 2B, 2C and S5 of curriculum2025."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast import Forecast, Stage, figures, follow
from learncast._core.progress import Progress, silent
from learncast.papers.curriculum import pools
from learncast.papers.curriculum.pools import ACCURACY, LEARNING_RATE, UNITS, network
from learncast.papers.paper import Numbers
from learncast.papers.runs import PaperRun, Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Value and stop of a weaker and of a stronger first task of 4A, by panel (our choice).
SAMPLES = {"2B": (0.75, 0.9), "2C": (1.5, 0.8)}
#: Symbols of the parameters that vary in figure 4.
SYMBOLS = {"target_strength": "$s_{yx}$", "input_strength": "$s_{xx}$", "correlation": "$K$", "timescale": r"$\kappa$"}


def curricula(name: str) -> dict[str, Forecast]:
    """Return direct training and the curriculum of a panel."""
    pool, (value, stop), target = pools.pools()["4A"], SAMPLES[name], Stage(pools.pools()["4A"].target, goal=ACCURACY)
    plans = {"direct": [target], "curriculum": [Stage(pool.first(value), goal=stop), target]}
    return {word: follow(stages, network("linear"), learning_rate=LEARNING_RATE) for word, stages in plans.items()}


def sample_runs(name: str, preset: str) -> list[PaperRun]:
    """Return the run of a panel."""
    return [PaperRun(train_sample, {"name": name}, lambda _: 2 * pools.SECONDS["linear"])]


def train_sample(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Return the paths of direct training and of a curriculum, with their predicted steps."""
    net, both = network("linear"), curricula(settings["name"]).values()
    optima = pools.optima_of(both, net, LEARNING_RATE)
    paths = [pools.path_of(one, pools.trained(one, net, optima, LEARNING_RATE, 0)) for one in both]
    progress(1.0)
    return xr.concat(paths, "sample", join="outer")


def draw_paths(dataset: xr.Dataset, ax: Axes, *, title: str, legend: bool = True) -> None:
    """Draw direct training and a curriculum (`sample`), theory dotted over training."""

    def path(sample: int, name: str) -> xr.Dataset:
        series = dataset[name].isel(sample=sample).dropna("time")
        return xr.Dataset({"strength": series.expand_dims(mode=[0], axis=1)})

    figures.curriculum_paths(
        path(1, "theory"),
        path(0, "theory"),
        ax,
        optimum=float(dataset["target_optimum"][0]),
        tolerance=1 - ACCURACY,
        first_optimum=float(dataset["first_optimum"][1]),
        switch=float(dataset["switch"][1]),
        simulated={"staged": path(1, "trained"), "direct": path(0, "trained")},
        simulated_by="trained",
        legend=legend,
        title=title,
    )


def sample_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps, and the largest gap between theory and training."""
    for k, word in enumerate(("direct", "curriculum")):
        yield f"{word}, flow steps", round(float(dataset["flow_steps"][k]), 2)
        yield f"{word}, descent steps", int(dataset["descent_steps"][k])
    gap = np.abs(dataset["theory"] - dataset["trained"]).max() / dataset["target_optimum"][0]
    yield "largest gap of theory and training, share of optimum", round(float(gap), 4)


def supplement_runs(preset: str) -> list[PaperRun]:
    """Return the runs of all panels of figure 4, which keep the paths."""
    return [run for name in pools.pools() for run in pools.panel_runs(name, preset)]


def supplement(results: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Figure S5: direct training and two first tasks (`sample`) in each panel of figure 4, linear and ReLU units."""
    plain, panels = [one.drop_vars("steps") for one in results], list(pools.pools())
    pairs = [xr.concat(plain[k : k + 2], "activation", join="outer") for k in range(0, len(plain), 2)]
    # Paths are nan after their end.
    return xr.concat(pairs, "panel", join="outer").assign_coords(panel=panels, activation=list(UNITS))


def _each(dataset: xr.Dataset, symbols: Settings) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield title and paths of every first task: smaller, then larger, each with linear and ReLU units."""
    for (name, pool), k, unit in product(pools.pools().items(), range(2), UNITS):
        one = dataset.sel(panel=name, activation=unit).isel(sample=[0, k + 1])
        yield f"{symbols.get(pool.vary, pool.vary)} = {pool.values[k]:g}, {unit.replace('relu', 'ReLU')}", one


def draw_supplement(dataset: xr.Dataset) -> figures.Figure:
    """Draw a row for each panel of figure 4."""
    draws = (partial(draw_paths, one, title=name, legend=False) for name, one in _each(dataset, SYMBOLS))
    figure = figures.sheet(*draws, columns=4, width=1.85, height=1.7)
    for ax in figure.axes:
        ax.set_xlabel("gradient steps")
    with figures.style():
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def supplement_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the steps saved by every first task, by theory and in training."""
    for name, one in _each(dataset, {}):
        predicted, trained = one["descent_steps"].values, one["trained"].count("time").values - 1
        both = [int(steps[0] - steps[1]) for steps in (predicted, trained)]
        yield f"{name}: steps saved, predicted and trained", both
