"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025), made again.

The print leaves some settings unreadable; where it does, the values here are ours and each caption says them. Every
portrait is computed from exact first-entry times, not from the printed eq. (12).
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.curriculum import pools
from learncast.papers.curriculum.pools import ACCURACY, SAMPLES, sample_runs
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.runs import only
from learncast.tasks.families import leaky_profile
from learncast.trajectory import described


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    pool = pools.pools()[SAMPLES[panel][0]]
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    dataset, recipe = pools.portrait_of(pool, "linear", *grid), pool.target.recipe
    assert recipe is not None
    return dataset.assign_attrs(target_value=float(recipe.parameters[pool.vary]), panel=panel)


def _draw_portrait(dataset: xr.Dataset) -> figures.Figure:
    figure, (ax,) = figures.page(width=5.4, height=4.0)
    panel, vary = str(dataset.attrs["panel"]), str(dataset.attrs["vary"])
    own = float(dataset.attrs["target_value"])
    figures.portrait(dataset, ax, target_value=own, title=f"{panel}  steps saved by pretraining")
    for marker, (value, accuracy) in zip("so", SAMPLES[panel][1], strict=True):
        low, high = float(dataset[vary].min()), float(dataset[vary].max())
        if low <= value <= high:
            ax.plot(accuracy, value, marker=marker, markersize=7, markerfacecolor="white", markeredgecolor="black")
    return figure


def _portrait_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    speedup = dataset["speedup_steps"]
    vary = str(dataset.attrs["vary"])
    i, j = np.unravel_index(int(np.argmax(speedup.values)), speedup.shape)
    return {
        "direct steps": round(float(dataset["direct_steps"]), 2),
        "largest saving, steps": round(float(speedup[i, j]), 2),
        f"there: {vary}": round(float(dataset[vary][i]), 4),
        "there: stop at accuracy": round(float(dataset["accuracy"][j]), 4),
        "share of the grid where it helps": round(float((speedup > 0).mean()), 4),
    }


def _profile(steps: int, timescale: Any, correlation: Any) -> Any:
    """Statistics of leaky integration, one for each pair of settings."""
    ones = np.ones(np.broadcast_shapes(np.shape(timescale), np.shape(correlation)))
    settings = {"timescale": timescale * ones, "correlation": correlation * ones}
    return leaky_profile(steps=steps, targets="end", **settings, noise_strength=ones, gain=ones)


def _lag_covariances(steps: int = 50) -> xr.Dataset:
    correlations = np.array([0.0, 0.3, 0.5, 0.7, 0.9])
    covariance = _profile(steps, 10.0, correlations).input[:, -1, ::-1][:, :20]
    return xr.Dataset(
        {"covariance": (("correlation", "lag"), covariance, described("Cov(x_T, x_T-lag)", "input^2"))},
        coords={"correlation": correlations, "lag": ("lag", np.arange(20), described("lag", "steps"))},
    )


def _integration_profiles(steps: int = 50) -> xr.Dataset:
    timescales = np.array([2.0, 5.0, 10.0, 20.0, 40.0])
    weights = _profile(steps, timescales, 0.0).filter[:, 0, :]
    return xr.Dataset(
        {"weight": (("timescale", "step"), weights, described("weight of an input step", "1"))},
        coords={
            "timescale": ("timescale", timescales, described("timescale", "steps")),
            "step": ("step", np.arange(1, steps + 1), described("step of the trial", "steps")),
        },
    )


def _draw_lags(dataset: xr.Dataset) -> figures.Figure:
    return figures.sheet(partial(figures.lag_covariances, dataset, title="3A  AR(1) inputs"))


def _draw_profiles(dataset: xr.Dataset) -> figures.Figure:
    return figures.sheet(partial(figures.integration_profiles, dataset, title="3C  leaky integration"))


def _profile_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    [name] = dataset.data_vars
    axis = str(dataset[name].dims[0])
    total = dataset[name].sum(str(dataset[name].dims[1]))
    return {f"sum at {axis} {v:g}": round(float(total[k]), 4) for k, v in enumerate(dataset[axis].values)}


def paper(resolution: int = 240) -> Paper:
    """All figures; `resolution` is the number of grid points along each axis of a portrait."""
    spans = {"2A": (0.1, 3.0), "2D": (0.1, 3.0), "3B": (-0.5, 0.9), "3D": (1.0, 50.0)}
    captions = {
        "2A": "Steps saved over the first task's cross strength s_yx and stop (target: s_yx = 1).",
        "2D": "Steps saved over the first task's input strength s_xx and stop (target: s_xx = 1).",
        "3B": "Steps saved over the first task's correlation K and stop (target: K = 0.5; timescale 10).",
        "3D": "Steps saved over the first task's timescale and stop (target: 10 steps; K = 0).",
        "3A": "Finite-time covariance of AR(1) inputs against lag.",
        "3C": "Leaky integration weights over a trial.",
        "4X": "Every ReLU curriculum of five pools: forecast against training (ours).",
        "4Y": "One tanh unit: steps to the same strength by its response table and by training (ours).",
        "S5": "Weaker and stronger first tasks for each parameter, linear and ReLU units: theory over training.",
    }
    several, every = pools.several_at_a_time, list(product(SAMPLES, range(2)))
    made: dict[str, tuple[Any, ...]] = {
        "3A": (_lag_covariances, _draw_lags, _profile_numbers),
        "3C": (_integration_profiles, _draw_profiles, _profile_numbers),
        "4X": (pools.scoreboard, pools.draw_scoreboard, pools.scoreboard_numbers, pools.scoreboard_runs, several),
        "4Y": (pools.tanh_table, pools.draw_tanh, pools.tanh_numbers, pools.tanh_runs, several),
        "S5": (supplement, draw_supplement, supplement_numbers, partial(sample_runs, every, ("linear", "relu"))),
    }
    for name, span in spans.items():
        made[name] = (partial(_portrait, name, span, resolution), _draw_portrait, _portrait_numbers)
    for k, name in enumerate(("2B", "2C")):
        value, stop = SAMPLES["2A"][1][k]
        captions[name] = f"First s_yx = {value:g} to accuracy {stop:g}, then 1: theory over training of 128 units."
        made[name] = (only, draw_sample, sample_numbers, partial(sample_runs, [("2A", k)], ("linear",)))
    for name in ("4A", "4B", "4C", "4D"):
        captions[name] = (
            f"Total steps against the first task's stop, {pools.pools()[name].vary.replace('_', ' ')} smaller and "
            "larger: linear units under the linear theory, ReLU units under their response features."
        )
        runs = partial(pools.panel_runs, name)
        made[name] = (partial(pools.panel, name), pools.draw_panel, pools.panel_numbers, runs, several)
    made_figures = (PaperFigure(name, captions[name], *parts) for name, parts in sorted(made.items()))
    return Paper("curriculum", "curriculum2025", tuple(made_figures))


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


def _samples(dataset: xr.Dataset) -> list[xr.Dataset]:
    """The trajectories of a supplement one by one, each with its own settings."""
    found = []
    for k in range(dataset.sizes["sample"]):
        one = dataset.isel(sample=k)
        attrs = {name: one[name].item() for name in one.coords if name not in ("time", "seed")}
        found.append(one.reset_coords(drop=True).dropna("time").assign_attrs(attrs))
    return found


def draw_supplement(dataset: xr.Dataset) -> figures.Figure:
    """Four rows of a weaker and a stronger first task, each with linear and with ReLU units."""
    return figures.sheet(*(partial(draw_paths, one) for one in _samples(dataset)), columns=4, width=4.4, height=2.8)


def supplement_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The numbers of every sample."""
    return {
        f"{one.attrs['vary']} {one.attrs['value']:g}, {one.attrs['activation']}, {key}": value
        for one in _samples(dataset)
        for key, value in sample_numbers(one).items()
    }
