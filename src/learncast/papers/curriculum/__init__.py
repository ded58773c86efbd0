"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025).

Some settings are unreadable in the paper. There the values are ours, and the captions list them. Portraits are computed
from exact first-entry times, not from eq. (12).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import figures
from learncast.papers.curriculum import alignment, pools, samples
from learncast.papers.curriculum.pools import LEARNING_RATE, READINGS
from learncast.papers.curriculum.samples import SAMPLES
from learncast.papers.paper import Numbers, Paper, PaperFigure, captions_of, painted, schematic
from learncast.papers.runs import only
from learncast.results import described
from learncast.tasks.families import leaky_profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    """Return the steps saved over the value and the stop of the first task; 3B for each meaning of kappa = 0.5."""
    pool, parts = pools.pools()[PORTRAITS[panel]], []
    grid = np.linspace(*values, resolution), np.linspace(0.005, 0.995, resolution)
    targets = [pool.target]
    if panel == "3B":
        targets = [pool.target.varied(timescale=timescale, name="target") for timescale in READINGS.values()]
    for target in targets:
        every = pools.portrait_of(replace(pool, target=target), "linear", *grid, LEARNING_RATE)
        parts.append(every[["speedup_steps", "direct_steps", "singular_accuracy"]])
    both = xr.concat(parts, "reading", combine_attrs="override").assign_coords(reading=list(READINGS)[: len(parts)])
    recipe = pool.target.recipe
    assert recipe is not None
    attrs = {"target_value": float(recipe.parameters[pool.vary]), "panel": panel}
    return (both if len(parts) > 1 else both.isel(reading=0, drop=True)).assign_attrs(attrs)


#: Pool of each portrait.
PORTRAITS = {"2A": "4A", "2D": "4B", "3B": "4C", "3D": "4D"}
#: Axis labels of the parameters that vary.
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
        for marker, (name, (value, accuracy)) in zip("so", SAMPLES.items() if panel == "2A" else (), strict=False):
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


def paper(resolution: int = 240) -> Paper:
    """Return all figures.

    Parameters
    ----------
    resolution : int
        Grid points along each axis of a portrait.
    """
    captions, shared = captions_of(__name__)
    values: dict[str, dict[str, object]] = {}
    profiles = painted(figures.integration_profiles, title="leaky integration")
    parts: dict[str, tuple[Any, ...]] = {
        "1A": (alignment.two_ways, alignment.draw_two_ways, alignment.two_way_numbers),
        "1B": schematic(figures.network_scheme, (1, 128, 1)),
        "1C": (alignment.rotated_frame, alignment.draw_rotated_frame, alignment.rotated_numbers),
        "3A": (_lag_covariances, painted(figures.lag_covariances, title="AR(1) inputs"), _profile_numbers),
        "3C": (_integration_profiles, profiles, _profile_numbers),
        "S5": (samples.supplement, samples.draw_supplement, samples.supplement_numbers, samples.supplement_runs),
    }
    for name, span in {"2A": (0.1, 3.0), "2D": (0.1, 3.0), "3B": (-0.5, 0.9), "3D": (1.0, 50.0)}.items():
        parts[name] = (partial(_portrait, name, span, resolution), _draw_portrait, _portrait_numbers)
    for name, (value, stop) in SAMPLES.items():
        values[name] = {"value": value, "stop": stop}
        title = f"$s_{{yx}}$ = {value:g} to accuracy {stop:g}, then 1"
        paths = painted(samples.draw_paths, width=3.5, height=2.7, title=title)
        parts[name] = (only, paths, samples.sample_numbers, partial(samples.sample_runs, name))
    for name, pool in pools.pools().items():
        values[name] = {"vary": pool.vary.replace("_", " ")}
        data, runs = partial(pools.panel, name), partial(pools.panel_runs, name)
        parts[name] = (data, pools.draw_panel, pools.panel_numbers, runs)
    made = (
        PaperFigure(name, text.format(**shared, **values.get(name, {})), *parts[name])
        for name, text in captions.items()
    )
    return Paper("curriculum", "curriculum2025", tuple(made))
