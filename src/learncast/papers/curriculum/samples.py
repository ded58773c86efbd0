"""Sample trajectories of curriculum2025: one curriculum and direct training, theory over training of 128 units."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import figures
from learncast.dynamics.descent import descend
from learncast.networks.linear_rnn import LinearRNN
from learncast.papers.curriculum.pools import ACCURACY, LEARNING_RATE, network, pools, settings_of
from learncast.papers.runs import PaperRun
from learncast.planning.curriculum import Curriculum, follow
from learncast.practice.stage import Stage
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, described

#: The pool of a portrait and of its samples, and value and stop of a weaker and a stronger first task (ours).
SAMPLES = {
    "2A": ("4A", ((0.75, 0.9), (1.5, 0.8))),
    "2D": ("4B", ((0.5, 0.4), (1.5, 0.9))),
    "3B": ("4C", ((0.3, 0.9), (0.7, 0.7))),
    "3D": ("4D", ((5.0, 0.9), (20.0, 0.7))),
}
#: Training runs of a sample.
SEEDS = {"smoke": 1, "full": 3}


def sample_runs(panel: str, index: int, preset: str) -> list[PaperRun]:
    """One sample of linear units."""
    return [_run(panel, index, "linear", preset)]


def supplement_runs(preset: str) -> list[PaperRun]:
    """What `supplement` needs."""
    return [_run(panel, k, unit, preset) for panel in SAMPLES for k in range(2) for unit in ("linear", "relu")]


def _run(panel: str, index: int, activation: str, preset: str) -> PaperRun:
    settings = {"panel": panel, "index": index, "activation": activation, "seeds": SEEDS[preset]}
    return PaperRun(train_sample, settings)


def train_sample(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Curriculum and direct training: theory, training, and for linear units descent on the same statistics."""
    panel, activation = settings["panel"], settings["activation"]
    name, choices = SAMPLES[panel]
    value, accuracy = choices[settings["index"]]
    pool, net = pools()[name], network(activation)
    vary, target = pool.vary, pool.target
    forecast = partial(follow, network=net, learning_rate=LEARNING_RATE)
    staged = forecast([Stage(pool.first(value), accuracy=accuracy), Stage(target, accuracy=ACCURACY)])
    alone = forecast([Stage(target, accuracy=ACCURACY)])
    assert staged.direct is not None
    horizon = int(1.15 * max(staged.flow_steps, staged.direct.flow_steps)) + 20
    times = np.arange(horizon + 1.0)
    variables: dict[str, Any] = {}
    for k, (name, curriculum) in enumerate((("curriculum", staged), ("direct", alone))):
        theory = curriculum.at(times)["strength"].values[:, 0]
        variables[f"theory_{name}"] = ("time", theory, described(f"theory, {name}", "1"))
        trained = _trained(curriculum, net, horizon, settings["seeds"])
        variables[f"trained_{name}"] = (("seed", "time"), trained, described(f"training, {name}", "1"))
        if isinstance(net, LinearRNN):
            descent = _descended(curriculum, net, horizon)
            variables[f"descent_{name}"] = ("time", descent, described(f"descent, {name}", "1"))
        progress((k + 1) / 2)
    return xr.Dataset(
        variables,
        coords={"time": ("time", times, described("training time", STEPS))},
        attrs={
            "panel": panel,
            "vary": vary,
            "activation": activation,
            "value": value,
            "stop_accuracy": accuracy,
            "target_value": float(target.recipe.parameters[vary]) if target.recipe else np.nan,
            "target_optimum": float(staged.modes[1].optimum[0]),
            "first_optimum": float(staged.modes[0].optimum[0]),
            "switch_step": float(staged.outcomes[0].descent_steps),
            "direct_steps": staged.direct.flow_steps,
            "curriculum_steps": staged.flow_steps,
            "direct_descent_steps": staged.direct.descent_steps,
            "curriculum_descent_steps": staged.descent_steps,
        },
    )


def _schedule(curriculum: Curriculum, horizon: int) -> list[Stage]:
    """The stages by predicted whole steps; the last one fills the horizon."""
    stages, left = [], horizon
    for outcome in curriculum.outcomes[:-1]:
        steps = min(int(outcome.descent_steps), left)
        stages.append(Stage(outcome.stage.task, steps=steps))
        left -= steps
    return [*stages, Stage(curriculum.outcomes[-1].stage.task, steps=left)]


def _trained(curriculum: Curriculum, net: Any, horizon: int, seeds: int) -> np.ndarray[Any, Any]:
    """Strength at every step of real training, (seeds, steps)."""
    from learncast import simulate

    stages = _schedule(curriculum, horizon)
    runs = [simulate.train(stages, net, settings_of(seed, record=("strength",))) for seed in range(seeds)]
    return np.stack([run["strength"].values[:, 0] for run in runs])


def _descended(curriculum: Curriculum, net: LinearRNN, horizon: int) -> np.ndarray[Any, Any]:
    """Strength at every step of descent on the exact statistics."""
    parts = []
    for stage in _schedule(curriculum, horizon):
        assert stage.steps is not None
        run = descend(stage.task, net, learning_rate=LEARNING_RATE, steps=int(stage.steps), learn=("input", "output"))
        parts.append(run.strength[:, 0])
        net = cast(LinearRNN, run.network_at(stage.steps))
    return np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])


def draw_sample(dataset: xr.Dataset) -> figures.Figure:
    """One sample."""
    return figures.sheet(partial(draw_paths, dataset), width=4.8, height=3.6)


def draw_paths(dataset: xr.Dataset, ax: Any) -> None:
    """Curriculum and direct, theory dotted over training."""

    def path(name: str) -> xr.Dataset:
        series = dataset[name].isel(seed=0) if "seed" in dataset[name].dims else dataset[name]
        return xr.Dataset({"strength": series.expand_dims(mode=[0], axis=1)})

    a = dataset.attrs
    first = f"{str(a['vary']).replace('_', ' ')} {a['value']:g} to {a['stop_accuracy']:g}"
    units = "" if a["activation"] == "linear" else ", ReLU"
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
        title=f"{first}, then {a['target_value']:g}{units}",
    )


def sample_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Steps, and the largest gap of theory, descent and training."""
    a = dataset.attrs
    found = {
        "direct, flow steps": round(float(a["direct_steps"]), 2),
        "curriculum, flow steps": round(float(a["curriculum_steps"]), 2),
        "direct, descent steps": int(a["direct_descent_steps"]),
        "curriculum, descent steps": int(a["curriculum_descent_steps"]),
    }
    for kind in ("descent", "trained"):
        if f"{kind}_direct" in dataset:
            gaps = [
                float(np.abs(dataset[f"theory_{k}"] - dataset[f"{kind}_{k}"]).max()) / float(a["target_optimum"])
                for k in ("curriculum", "direct")
            ]
            found[f"largest gap of theory and {kind}, share of optimum"] = round(max(gaps), 4)
    return found


def supplement(found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """All sixteen sample trajectories, linear and ReLU, side by side along a `sample` axis."""
    parts = [part.drop_vars([v for v in part.data_vars if str(v).startswith("descent")]) for part in found]
    joined = xr.concat([part.drop_attrs() for part in parts], dim="sample", join="outer")  # nan beyond a sample's end
    return joined.assign_coords({key: ("sample", [part.attrs[key] for part in parts]) for key in parts[0].attrs})


def _one(dataset: xr.Dataset, k: int) -> xr.Dataset:
    one = dataset.isel(sample=k)
    attrs = {name: one[name].item() for name in one.coords if name not in ("time", "seed")}
    return one.reset_coords(drop=True).dropna("time").assign_attrs(attrs)


def draw_supplement(dataset: xr.Dataset) -> figures.Figure:
    """Four rows of a weaker and a stronger first task, each with linear and with ReLU units."""
    draws = (partial(draw_paths, _one(dataset, k)) for k in range(dataset.sizes["sample"]))
    return figures.sheet(*draws, columns=4, width=4.4, height=2.8)


def supplement_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The numbers of every sample."""
    return {
        f"{s.attrs['vary']} {s.attrs['value']:g}, {s.attrs['activation']}, {key}": value
        for s in (_one(dataset, k) for k in range(dataset.sizes["sample"]))
        for key, value in sample_numbers(s).items()
    }
