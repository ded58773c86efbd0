"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025), made again.

The print leaves some settings unreadable; where it does, the values here are ours and each caption says them. Every
portrait is computed from exact first-entry times, not from the printed eq. (12).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.papers.curriculum_runs import ACCURACY, LEARNING_RATE, network, pools, tanh_runs
from learncast.papers.curriculum_samples import (
    SAMPLES,
    draw_sample,
    draw_supplement,
    sample,
    sample_numbers,
    sample_runs,
    sample_target,
    supplement,
    supplement_numbers,
    supplement_runs,
)
from learncast.papers.curriculum_training import (
    draw_panel,
    draw_scoreboard,
    draw_tanh,
    panel,
    panel_numbers,
    panel_runs,
    scoreboard,
    scoreboard_numbers,
    scoreboard_runs,
    tanh_numbers,
    tanh_table,
)
from learncast.papers.paper import Paper, PaperFigure
from learncast.planning.phase import phase_portrait
from learncast.tasks.families import leaky_profile
from learncast.trajectory import described

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    vary = SAMPLES[panel][0]
    dataset = phase_portrait(
        sample_target(panel),
        network("linear"),
        vary=vary,
        values=np.linspace(*values, resolution),
        accuracies=np.linspace(0.005, 0.995, resolution),
        learning_rate=LEARNING_RATE,
        accuracy=ACCURACY,
    )
    recipe = sample_target(panel).recipe
    assert recipe is not None
    return dataset.assign_attrs(target_value=float(recipe.parameters[vary]), panel=panel)


def _draw_portrait(dataset: xr.Dataset) -> Figure:
    from learncast.figures import page, portrait

    figure, (ax,) = page(width=5.4, height=4.0)
    panel, vary = str(dataset.attrs["panel"]), str(dataset.attrs["vary"])
    portrait(
        dataset, ax, target_value=float(dataset.attrs["target_value"]), title=f"{panel}  steps saved by pretraining"
    )
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


def _lag_covariances(steps: int = 50) -> xr.Dataset:
    correlations = np.array([0.0, 0.3, 0.5, 0.7, 0.9])
    ones = np.ones(len(correlations))
    profile = leaky_profile(
        steps=steps, targets="end", timescale=10 * ones, correlation=correlations, noise_strength=ones, gain=ones
    )
    lags = np.arange(20)
    return xr.Dataset(
        {
            "covariance": (
                ("correlation", "lag"),
                profile.input[:, -1, ::-1][:, :20],
                described("Cov(x_T, x_T-lag)", "input^2"),
            )
        },
        coords={"correlation": correlations, "lag": ("lag", lags, described("lag", "steps"))},
    )


def _integration_profiles(steps: int = 50) -> xr.Dataset:
    timescales = np.array([2.0, 5.0, 10.0, 20.0, 40.0])
    ones = np.ones(len(timescales))
    profile = leaky_profile(
        steps=steps, targets="end", timescale=timescales, correlation=0 * ones, noise_strength=ones, gain=ones
    )
    return xr.Dataset(
        {"weight": (("timescale", "step"), profile.filter[:, 0, :], described("weight of an input step", "1"))},
        coords={
            "timescale": ("timescale", timescales, described("timescale", "steps")),
            "step": ("step", np.arange(1, steps + 1), described("step of the trial", "steps")),
        },
    )


def _draw_lags(dataset: xr.Dataset) -> Figure:
    from learncast.figures import lag_covariances, page

    figure, (ax,) = page()
    lag_covariances(dataset, ax, title="3A  AR(1) inputs")
    return figure


def _draw_profiles(dataset: xr.Dataset) -> Figure:
    from learncast.figures import integration_profiles, page

    figure, (ax,) = page()
    integration_profiles(dataset, ax, title="3C  leaky integration")
    return figure


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
    }
    figures = [
        PaperFigure(
            panel,
            captions[panel],
            partial(_portrait, panel, spans[panel], resolution),
            _draw_portrait,
            _portrait_numbers,
        )
        for panel in spans
    ]
    for name, k in (("2B", 0), ("2C", 1)):
        value, stop = SAMPLES["2A"][1][k]
        caption = f"First s_yx = {value:g} to accuracy {stop:g}, then 1: theory over training of 128 units."
        make, runs = partial(sample, "2A", k), partial(sample_runs, "2A", k)
        figures.append(PaperFigure(name, caption, make, draw_sample, sample_numbers, trained=True, runs=runs))
    for name in ("4A", "4B", "4C", "4D"):
        caption = (
            f"Total steps against the first task's stop, {pools()[name].vary.replace('_', ' ')} smaller and larger: "
            "linear units under the linear theory, ReLU units under their response features."
        )
        make, runs = partial(panel, name), partial(panel_runs, name)
        figures.append(PaperFigure(name, caption, make, draw_panel, panel_numbers, trained=True, runs=runs))
    figures += [
        PaperFigure(
            "3A", "Finite-time covariance of AR(1) inputs against lag.", _lag_covariances, _draw_lags, _profile_numbers
        ),
        PaperFigure(
            "3C", "Leaky integration weights over a trial.", _integration_profiles, _draw_profiles, _profile_numbers
        ),
        PaperFigure(
            "4X",
            "Every ReLU curriculum of five pools: forecast against training (ours).",
            scoreboard,
            draw_scoreboard,
            scoreboard_numbers,
            trained=True,
            runs=scoreboard_runs,
        ),
        PaperFigure(
            "4Y",
            "One tanh unit: steps to the same strength by its response table and by training (ours).",
            tanh_table,
            draw_tanh,
            tanh_numbers,
            trained=True,
            runs=tanh_runs,
        ),
        PaperFigure(
            "S5",
            "Weaker and stronger first tasks for each parameter, linear and ReLU units: theory over training.",
            supplement,
            draw_supplement,
            supplement_numbers,
            trained=True,
            runs=supplement_runs,
        ),
    ]
    return Paper("curriculum", "curriculum2025", tuple(sorted(figures, key=lambda f: f.name)))
