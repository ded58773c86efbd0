"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025).

Some settings are unreadable in the paper. There the values are ours, and the captions list them. Portraits are computed
from exact first-entry times, not from eq. (12).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast._core.validation import one_of
from learncast.papers.curriculum import alignment, pools, rotated, samples
from learncast.papers.curriculum.pools import OPTIMA, READINGS, SAMPLES
from learncast.papers.paper import Numbers, Paper, PaperFigure, captions_of, painted
from learncast.results import described
from learncast.tasks.families import leaky_profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    pool = pools.pools()[SAMPLES[panel][0]]
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    dataset, recipe = pools.portrait_of(pool, "linear", *grid), pool.target.recipe
    assert recipe is not None
    return dataset.assign_attrs(target_value=float(recipe.parameters[pool.vary]), panel=panel)


def _both_readings(values: tuple[float, float], resolution: int) -> xr.Dataset:
    """Return the portrait of 3B for each meaning of the paper's kappa = 0.5."""
    pool, parts = pools.pools()["4C"], []
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    for timescale in READINGS.values():
        read = replace(pool, target=pool.target.varied(timescale=timescale, name="target"))
        parts.append(pools.portrait_of(read, "linear", *grid))
    both = xr.concat(parts, "reading", combine_attrs="override").assign_coords(reading=list(READINGS))
    return both.assign_attrs(target_value=0.5, panel="3B")


#: Axis labels and symbols of the parameters that vary.
LABELS = {
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

    def draw(reading: object, title: str, ax: Axes) -> None:
        one = dataset if reading is None else dataset.sel(reading=reading)
        figures.portrait(one, ax, target_value=own, y=LABELS[vary], title=title)
        # The samples are trained with the first reading.
        samples = SAMPLES[panel][1] if reading in (None, "rate") else ()
        for marker, letter, (value, accuracy) in zip("so", "BC", samples, strict=False):
            name = f"2{letter}" if panel == "2A" else "S5"
            look: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black", "markersize": 5.5}
            ax.plot(accuracy, value, marker=marker, linestyle="none", **look)
            beside = (-5, -9) if accuracy > 0.85 else (6, -3)
            ax.annotate(name, (accuracy, value), xytext=beside, textcoords="offset points", fontsize=7, weight="bold")

    draws = (partial(draw, reading, words[reading]) for reading in readings)
    return figures.sheet(*draws, width=3.5, height=2.9)


def _portrait_numbers(dataset: xr.Dataset) -> Numbers:
    if "reading" in dataset.dims:
        for reading in dataset["reading"].values:
            for key, value in _portrait_numbers(dataset.sel(reading=reading)):
                yield f"kappa as {reading}: {key}", value
        return
    speedup = dataset["speedup_steps"]
    vary = str(dataset.attrs["vary"])
    i, j = np.unravel_index(int(np.argmax(speedup.values)), speedup.shape)
    yield "direct steps", round(float(dataset["direct_steps"]), 2)
    yield "largest saving, steps", round(float(speedup[i, j]), 2)
    yield f"there: {vary}", round(float(dataset[vary][i]), 4)
    yield "there: stop at accuracy", round(float(dataset["accuracy"][j]), 4)
    yield "share of the grid where it helps", round(float((speedup > 0).mean()), 4)


def _profile(steps: int, timescale: Any, correlation: Any) -> Any:
    """Return statistics of leaky integration for each pair of settings."""
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


def _profile_numbers(dataset: xr.Dataset) -> Numbers:
    [name] = dataset.data_vars
    axis = str(dataset[name].dims[0])
    total = dataset[name].sum(str(dataset[name].dims[1]))
    for k, value in enumerate(dataset[axis].values):
        yield f"sum at {axis} {value:g}", round(float(total[k]), 4)


def paper(resolution: int = 240, optimum: str = "response") -> Paper:
    """Return all figures.

    Parameters
    ----------
    resolution : int
        Grid points along each axis of a portrait.
    optimum : {"response", "trained"}
        When ReLU networks of figure 4 have learned: at the optimum of their response features, or where training
        converges, as in the paper.
    """
    one_of("optimum", optimum, OPTIMA)
    captions, shared = captions_of(__name__)
    runs_of = partial(partial, samples.sample_runs)
    values: dict[str, dict[str, object]] = {}
    every, units = list(product(SAMPLES, range(2))), ("linear", "relu")
    scores = partial(pools.scoreboard, optimum), partial(pools.scoreboard_runs, optimum)
    profiles = painted(figures.integration_profiles, title="leaky integration")
    paths = painted(samples.draw_paths, width=3.5, height=2.7)
    parts: dict[str, tuple[Any, ...]] = {
        "1A": (alignment.two_ways, alignment.draw_two_ways, alignment.two_way_numbers),
        "1B": (alignment.architecture, alignment.draw_architecture, alignment.architecture_numbers),
        "1C": (alignment.rotated_frame, alignment.draw_rotated_frame, alignment.rotated_numbers),
        "3A": (_lag_covariances, painted(figures.lag_covariances, title="AR(1) inputs"), _profile_numbers),
        "3C": (_integration_profiles, profiles, _profile_numbers),
        "4X": (scores[0], pools.draw_scoreboard, pools.scoreboard_numbers, scores[1]),
        "4Y": (pools.tanh_table, pools.draw_tanh, pools.tanh_numbers, pools.tanh_runs),
        "R": (rotated.times, rotated.draw, rotated.numbers),
        "S5": (
            partial(samples.supplement, every),
            samples.draw_supplement,
            samples.supplement_numbers,
            runs_of(every, units),
        ),
    }
    for name, span in {"2A": (0.1, 3.0), "2D": (0.1, 3.0), "3B": (-0.5, 0.9), "3D": (1.0, 50.0)}.items():
        values[name] = {"samples": "2B (square) and 2C (circle)" if name == "2A" else "S5"}
        portrait = partial(_both_readings if name == "3B" else partial(_portrait, name), span, resolution)
        parts[name] = (portrait, _draw_portrait, _portrait_numbers)
    for k, name in enumerate(("2B", "2C")):
        values[name] = dict(zip(("value", "stop"), SAMPLES["2A"][1][k], strict=True))
        chosen: list[tuple[str, int]] = [("2A", k)]
        data = partial(samples.only_sample, chosen)
        parts[name] = (data, paths, samples.sample_numbers, runs_of(chosen, ("linear",)))
    for name in ("4A", "4B", "4C", "4D"):
        values[name] = {"vary": pools.pools()[name].vary.replace("_", " ")}
        runs = partial(pools.panel_runs, name, optimum)
        parts[name] = (partial(pools.panel, name, optimum), pools.draw_panel, pools.panel_numbers, runs)
    shared["end"] = shared[optimum]
    made = (
        PaperFigure(name, text.format(**shared, **values.get(name, {})), *parts[name])
        for name, text in captions.items()
    )
    return Paper("curriculum", "curriculum2025", tuple(made))
