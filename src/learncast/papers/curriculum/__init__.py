"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025), made again.

The print leaves some settings unreadable; where it does, the values here are ours and each caption says them. Every
portrait is computed from exact first-entry times, not from the printed eq. (12).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast._core.validation import one_of
from learncast.papers.curriculum import alignment, pools, rotated
from learncast.papers.curriculum.pools import ACCURACY, OPTIMA, READINGS, SAMPLES, sample_runs, sampled
from learncast.papers.paper import Paper, PaperFigure
from learncast.results import described
from learncast.tasks.families import leaky_profile


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    pool = pools.pools()[SAMPLES[panel][0]]
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    dataset, recipe = pools.portrait_of(pool, "linear", *grid), pool.target.recipe
    assert recipe is not None
    return dataset.assign_attrs(target_value=float(recipe.parameters[pool.vary]), panel=panel)


def _both_readings(values: tuple[float, float], resolution: int) -> xr.Dataset:
    """The portrait of 3B for each reading of the print's kappa = 0.5."""
    pool, parts = pools.pools()["4C"], []
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    for timescale in READINGS.values():
        read = replace(pool, target=pool.target.varied(timescale=timescale, name="target"))
        parts.append(pools.portrait_of(read, "linear", *grid))
    whole = xr.concat(parts, "reading", combine_attrs="override").assign_coords(reading=list(READINGS))
    return whole.assign_attrs(target_value=0.5, panel="3B")


#: What is varied, as it is written beside an axis.
SYMBOLS = {
    "target_strength": r"first task's cross strength $s_{yx}$",
    "input_strength": r"first task's input strength $s_{xx}$ (input$^2$)",
    "correlation": r"first task's correlation $K$",
    "timescale": r"first task's timescale $\kappa$ (steps)",
}


def _draw_portrait(dataset: xr.Dataset) -> figures.Figure:
    panel, vary = str(dataset.attrs["panel"]), str(dataset.attrs["vary"])
    own = float(dataset.attrs["target_value"])
    readings = dataset["reading"].values if "reading" in dataset.dims else [None]
    words = {"rate": r"$\kappa$ = 0.5 per step", "steps": r"$\kappa$ = 0.5 steps", None: "steps saved"}
    heads = [f"{panel}  {words[readings[0]]}", *(words[reading] for reading in readings[1:])]

    def draw(reading: Any, title: str, ax: Any) -> None:
        one = dataset if reading is None else dataset.sel(reading=reading)
        figures.portrait(one, ax, target_value=own, y=SYMBOLS[vary], title=title)
        # The samples are trained on the first reading.
        for marker, (value, accuracy) in zip(
            "so", SAMPLES[panel][1] if reading in (None, "rate") else (), strict=False
        ):
            if float(dataset[vary].min()) <= value <= float(dataset[vary].max()):
                look: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black", "markersize": 5.5}
                ax.plot(accuracy, value, marker=marker, linestyle="none", **look)

    draws = (partial(draw, reading, head) for reading, head in zip(readings, heads, strict=True))
    return figures.sheet(*draws, width=3.5, height=2.9)


def _portrait_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    if "reading" in dataset.dims:
        return {
            f"kappa as {reading}: {key}": value
            for reading in dataset["reading"].values
            for key, value in _portrait_numbers(dataset.sel(reading=reading)).items()
        }
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


def paper(resolution: int = 240, optimum: str = "response") -> Paper:
    """All figures.

    Parameters
    ----------
    resolution : int
        Grid points along each axis of a portrait.
    optimum : {"response", "trained"}
        Where ReLU networks of figure 4 have learned: at the optimum of their response features, or where training
        itself converges, as in the paper.
    """
    one_of("optimum", optimum, OPTIMA)
    spans = {"2A": (0.1, 3.0), "2D": (0.1, 3.0), "3B": (-0.5, 0.9), "3D": (1.0, 50.0)}
    ends = {
        "response": "runs end within 1% of the optimum of those features (the paper: of where training converges)",
        "trained": "runs end within 1% of where training converged before, as in the paper",
    }[optimum]
    shown = "red: costs, on a scale of its own; beyond the ends of the scale the colours stay"
    captions = {
        "1A": "The time to learn a target directly, and by two curricula.",
        "1B": "The network: 128 hidden units, W_h = 0.96 fixed, W_x and W_y learned from one mode of 0.01.",
        "1C": "A task's covariance before and after rotation to its modes, and what other modes add to the flow (eqs. "
        "33 and 34) from orthogonal and from random vectors. Ours: the task.",
        "2A": f"Steps saved over the first task's cross strength s_yx and stop (target: s_yx = 1); {shown}. Ours: the "
        "target, the spans and the samples (square, circle).",
        "2D": f"Steps saved over the first task's input strength s_xx and stop (target: s_xx = 1); {shown}. Ours: the "
        "target, the spans and the samples (square, circle).",
        "3B": "Steps saved over the first task's correlation K and stop (target: K = 0.5), with the integration's "
        "kappa = 0.5 read as a rate per step (a timescale of 2 steps), which 4C and S5 follow, and as steps; "
        f"{shown}. Ours: the target's K, and both readings.",
        "3D": f"Steps saved over the first task's timescale and stop (target: 10 steps; K = 0); {shown}. Ours: the "
        "target's timescale and K, which the print has unreadable.",
        "3A": "Finite-time covariance of AR(1) inputs against lag. Ours: the values of K.",
        "3C": "Leaky integration weights over a trial. Ours: the timescales, in steps.",
        "4X": f"Every ReLU curriculum of five pools: forecast against training (ours); {ends}.",
        "4Y": "One tanh unit: steps to the same strength by its response table and by training (ours).",
        "R": "Ours: a two-layer network learns one task, then another that is turned against it and twice as strong, "
        "on inputs of equal and of different variances: until its map points right, until it has learned (both to "
        "95%), and how long it would take if it need not turn; bands over two draws. The times do not add up, for it "
        "grows while it turns: learning takes about as long as the longer of both. White inputs exactly, others "
        "integrated with the error that the numbers tell.",
        "S5": "Weaker and stronger first tasks for each parameter, linear and ReLU units: theory over training.",
    }
    every, units = list(product(SAMPLES, range(2))), ("linear", "relu")
    scores = partial(pools.scoreboard, optimum), partial(pools.scoreboard_runs, optimum)
    made: dict[str, tuple[Any, ...]] = {
        "1A": (alignment.two_ways, alignment.draw_two_ways, alignment.two_way_numbers),
        "1B": (alignment.architecture, alignment.draw_architecture, alignment.architecture_numbers),
        "1C": (alignment.rotated_frame, alignment.draw_rotated_frame, alignment.rotated_numbers),
        "3A": (_lag_covariances, _draw_lags, _profile_numbers),
        "3C": (_integration_profiles, _draw_profiles, _profile_numbers),
        "4X": (scores[0], pools.draw_scoreboard, pools.scoreboard_numbers, scores[1]),
        "4Y": (pools.tanh_table, pools.draw_tanh, pools.tanh_numbers, pools.tanh_runs),
        "R": (rotated.times, rotated.draw, rotated.numbers),
        "S5": (partial(supplement, every), draw_supplement, supplement_numbers, partial(sample_runs, every, units)),
    }
    for name, span in spans.items():
        portrait = partial(_both_readings if name == "3B" else partial(_portrait, name), span, resolution)
        made[name] = (portrait, _draw_portrait, _portrait_numbers)
    for k, name in enumerate(("2B", "2C")):
        value, stop = SAMPLES["2A"][1][k]
        captions[name] = f"First s_yx = {value:g} to accuracy {stop:g}, then 1: theory over training of 128 units."
        chosen: list[tuple[str, int]] = [("2A", k)]
        data = partial(_only_sample, chosen)
        made[name] = (data, partial(draw_sample, name), sample_numbers, partial(sample_runs, chosen, ("linear",)))
    for name in ("4A", "4B", "4C", "4D"):
        captions[name] = (
            f"Total steps against the first task's stop, {pools.pools()[name].vary.replace('_', ' ')} smaller and "
            f"larger: linear units under the linear theory, ReLU units under their response features; {ends}."
        )
        runs = partial(pools.panel_runs, name, optimum)
        made[name] = (partial(pools.panel, name, optimum), pools.draw_panel, pools.panel_numbers, runs)
    made_figures = (PaperFigure(name, captions[name], *parts) for name, parts in sorted(made.items()))
    return Paper("curriculum", "curriculum2025", tuple(made_figures))


def _only_sample(samples: list[tuple[str, int]], found: list[xr.Dataset], preset: str) -> xr.Dataset:
    return sampled(samples, ("linear",), found)[0]


def draw_sample(panel: str, dataset: xr.Dataset) -> figures.Figure:
    """One sample."""
    return figures.sheet(partial(draw_paths, dataset, panel=panel), width=3.5, height=2.7)


def draw_paths(dataset: xr.Dataset, ax: Any, *, panel: str = "", legend: bool = True) -> None:
    """Curriculum and direct, theory dotted over training."""

    def path(name: str) -> xr.Dataset:
        series = dataset[name].isel(seed=0) if "seed" in dataset[name].dims else dataset[name]
        return xr.Dataset({"strength": series.expand_dims(mode=[0], axis=1)})

    a = dataset.attrs
    letters = {
        "target_strength": "$s_{yx}$",
        "input_strength": "$s_{xx}$",
        "correlation": "$K$",
        "timescale": r"$\kappa$",
    }
    first = f"{letters[str(a['vary'])]} {a['value']:g} to {a['stop_accuracy']:g}"
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
        title=f"{panel}  {title}" if panel else title,
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
                float(np.nanmax(np.abs(dataset[f"theory_{k}"] - dataset[f"{kind}_{k}"]))) / float(a["target_optimum"])
                for k in ("curriculum", "direct")
            ]
            found[f"largest gap of theory and {kind}, share of optimum"] = round(max(gaps), 4)
    return found


def supplement(samples: list[tuple[str, int]], found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """All sixteen sample trajectories, linear and ReLU, side by side along a `sample` axis."""
    every = sampled(samples, ("linear", "relu"), found)
    parts = [part.drop_vars([v for v in part.data_vars if str(v).startswith("descent")]) for part in every]
    joined = xr.concat([part.drop_attrs() for part in parts], dim="sample", join="outer")  # nan beyond a sample's end
    return joined.assign_coords({key: ("sample", [part.attrs[key] for part in parts]) for key in parts[0].attrs})


def _samples(dataset: xr.Dataset) -> list[xr.Dataset]:
    """The trajectories of a supplement one by one, each with its own settings."""
    found = []
    for k in range(dataset.sizes["sample"]):
        one = dataset.isel(sample=k)
        attrs = {name: one[name].item() for name in one.coords if name not in ("time", "seed")}
        found.append(one.reset_coords(drop=True).dropna("time", how="all").assign_attrs(attrs))
    return found


def draw_supplement(dataset: xr.Dataset) -> figures.Figure:
    """Four rows of a weaker and a stronger first task, each with linear and with ReLU units."""

    def draw(k: int, one: xr.Dataset, ax: Any) -> None:
        draw_paths(one, ax, panel="" if k else "S5", legend=False)
        ax.set_title(ax.get_title(loc="left").replace(", then", ",\nthen"), loc="left")
        ax.set_xlabel("gradient steps")

    draws = (partial(draw, k, one) for k, one in enumerate(_samples(dataset)))
    figure = figures.sheet(*draws, columns=4, width=1.77, height=1.85)
    with figures.style():
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def supplement_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The numbers of every sample."""
    return {
        f"{one.attrs['vary']} {one.attrs['value']:g}, {one.attrs['activation']}, {key}": value
        for one in _samples(dataset)
        for key, value in sample_numbers(one).items()
    }
