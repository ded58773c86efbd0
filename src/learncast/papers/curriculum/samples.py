"""Sample curricula with their training: figures 2B and 2C of curriculum2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast import Forecast, Stage, figures, follow
from learncast._core.progress import Progress, silent
from learncast.papers.curriculum.pools import ACCURACY, LEARNING_RATE, network, pools, settings_of
from learncast.papers.paper import Numbers
from learncast.papers.runs import PaperRun, Settings
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Value and stop of a weaker and of a stronger first task of 4A, by panel (our choice).
SAMPLES = {"2B": (0.75, 0.9), "2C": (1.5, 0.8)}
#: Training runs of a sample.
SEEDS = {"default": 1, "smoke": 1, "full": 3}


def curricula(name: str) -> dict[str, Forecast]:
    """Return direct training and the curriculum of a panel."""
    pool, (value, stop), target = pools()["4A"], SAMPLES[name], Stage(pools()["4A"].target, goal=ACCURACY)
    plans = {"direct": [target], "curriculum": [Stage(pool.first(value), goal=stop), target]}
    return {word: follow(stages, network("linear"), learning_rate=LEARNING_RATE) for word, stages in plans.items()}


def sample_runs(name: str, preset: str) -> list[PaperRun]:
    """Return the run of a panel."""
    return [PaperRun(train_sample, {"name": name, "seeds": SEEDS[preset]})]


def train_sample(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Return the strength by theory and by training, during a curriculum and during direct training."""
    from learncast.training import train

    name, seeds, net = settings["name"], range(settings["seeds"]), network("linear")
    both = curricula(name)
    horizon = int(1.15 * max(one.steps.flow for one in both.values())) + 20
    times, variables = np.arange(horizon + 1.0), dict[str, object]()
    for word, one in both.items():
        stages = _schedule(one, horizon)
        runs = [train(stages, net, settings_of(seed), record=("strength",)) for seed in seeds]
        trained = np.stack([run["strength"].values[:, 0] for run in runs])
        variables[f"theory_{word}"] = ("time", one.at(times)["strength"].values[:, 0], described("theory", "1"))
        variables[f"trained_{word}"] = (("seed", "time"), trained, described("training", "1"))
        progress(0.5 if word == "direct" else 1.0)
    staged, (value, stop) = both["curriculum"], SAMPLES[name]
    attrs = {
        "value": value,
        "stop_accuracy": stop,
        "target_optimum": float(staged.modes[-1].optimum[0]),
        "first_optimum": float(staged.modes[0].optimum[0]),
        "switch_step": float(staged.stages[0].steps.descent),
        **{f"{word}_steps": one.steps.flow for word, one in both.items()},
        **{f"{word}_descent_steps": one.steps.descent for word, one in both.items()},
    }
    return xr.Dataset(variables, {"time": ("time", times, described("training time", STEPS))}, attrs)


def _schedule(curriculum: Forecast, horizon: int) -> list[Stage]:
    """Return the stages with their predicted steps; the last one fills the horizon."""
    stages, left = [], horizon
    for one in curriculum.stages[:-1]:
        stages.append(Stage(one.task, steps=int(one.steps.descent)))
        left -= int(one.steps.descent)
    return [*stages, Stage(curriculum.target, steps=left)]


def draw_paths(dataset: xr.Dataset, ax: Axes) -> None:
    """Draw a curriculum and direct training, theory dotted over training."""

    def path(name: str) -> xr.Dataset:
        series = dataset[name].isel(seed=0) if "seed" in dataset[name].dims else dataset[name]
        return xr.Dataset({"strength": series.expand_dims(mode=[0], axis=1)})

    a = dataset.attrs
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
        title=f"$s_{{yx}}$ {a['value']:g} to {a['stop_accuracy']:g}, then 1",
    )


def sample_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield steps, and the largest gap between theory and training."""
    a = dataset.attrs
    for word in ("direct", "curriculum"):
        yield f"{word}, flow steps", round(float(a[f"{word}_steps"]), 2)
        yield f"{word}, descent steps", int(a[f"{word}_descent_steps"])
    gaps = [np.abs(dataset[f"theory_{k}"] - dataset[f"trained_{k}"]).max() for k in ("curriculum", "direct")]
    yield "largest gap of theory and training, share of optimum", round(float(max(gaps)) / a["target_optimum"], 4)
