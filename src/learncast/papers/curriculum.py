"""The figures of "Theoretical foundations of curriculum learning in linear RNNs" (curriculum2025), made again.

The print leaves some settings unreadable; where it does, the values here are ours and each caption says them. Every
portrait is computed from exact first-entry times, not from the printed eq. (12).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.dynamics.descent import descend
from learncast.networks.linear_rnn import LinearRNN
from learncast.papers.paper import Paper, PaperFigure
from learncast.planning.curriculum import Curriculum, Stage, follow
from learncast.planning.phase import phase_portrait
from learncast.tasks.families import leaky_profile
from learncast.trajectory import STEPS, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNING_RATE = 1e-3
ACCURACY = 0.99

#: First-task settings of the sample trajectories, a weaker and a stronger one for each portrait (ours).
SAMPLES = {
    "2A": ("target_strength", ((0.75, 0.9), (1.5, 0.8))),
    "2D": ("input_strength", ((0.5, 0.4), (1.5, 0.9))),
    "3B": ("correlation", ((0.3, 0.9), (0.7, 0.7))),
    "3D": ("timescale", ((5.0, 0.9), (20.0, 0.7))),
}


def network() -> LinearRNN:
    """128 units, recurrence 0.96, input and output weights 0.01 on one mode."""
    return LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)


def _target(panel: str) -> tasks.Task:
    if panel in ("2A", "2D"):
        return tasks.integration(steps=50, name="target")
    return tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.5 if panel == "3B" else 0.0, name="target")


def _portrait(panel: str, values: tuple[float, float], resolution: int) -> xr.Dataset:
    vary = SAMPLES[panel][0]
    dataset = phase_portrait(
        _target(panel),
        network(),
        vary=vary,
        values=np.linspace(*values, resolution),
        accuracies=np.linspace(0.005, 0.995, resolution),
        learning_rate=LEARNING_RATE,
        accuracy=ACCURACY,
    )
    recipe = _target(panel).recipe
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


def _trajectories(panel: str, index: int) -> xr.Dataset:
    """Curriculum and direct training: theory, and descent of the full 128-unit network on the same statistics."""
    vary, settings = SAMPLES[panel]
    value, accuracy = settings[index]
    target, net = _target(panel), network()
    first = target.varied(**{vary: value, "name": f"{vary} {value:g}"})
    staged = follow(
        [Stage(first, accuracy=accuracy), Stage(target, accuracy=ACCURACY)], net, learning_rate=LEARNING_RATE
    )
    assert staged.direct is not None
    alone = follow([Stage(target, accuracy=ACCURACY)], net, learning_rate=LEARNING_RATE)
    horizon = int(1.15 * max(staged.flow_steps, staged.direct.flow_steps)) + 20
    times = np.arange(horizon + 1.0)
    return xr.Dataset(
        {
            "theory_curriculum": (
                "time",
                staged.at(times)["strength"].values[:, 0],
                described("theory, curriculum", "1"),
            ),
            "theory_direct": ("time", alone.at(times)["strength"].values[:, 0], described("theory, direct", "1")),
            "descent_curriculum": ("time", _descended(staged, net, horizon), described("descent, curriculum", "1")),
            "descent_direct": ("time", _descended(alone, net, horizon), described("descent, direct", "1")),
        },
        coords={"time": ("time", times, described("training time", STEPS))},
        attrs={
            "panel": panel,
            "vary": vary,
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


def _descended(curriculum: Curriculum, net: LinearRNN, horizon: int) -> np.ndarray[Any, Any]:
    """Strength at every descent step, tasks switched after the predicted whole number of steps."""
    parts, left = [], horizon
    for k, outcome in enumerate(curriculum.outcomes):
        last = k == len(curriculum.outcomes) - 1
        steps = left if last else min(int(outcome.descent_steps), left)
        run = descend(outcome.stage.task, net, learning_rate=LEARNING_RATE, steps=steps, learn=("input", "output"))
        parts.append(run.strength[:, 0] if last else run.strength[:-1, 0])
        end = run.network_at(steps)
        assert isinstance(end, LinearRNN)
        net, left = end, left - steps
    return np.concatenate(parts)


def _draw_trajectories(dataset: xr.Dataset) -> Figure:
    from learncast.figures import page

    figure, (ax,) = page(width=4.8, height=3.6)
    draw_paths(dataset, ax)
    return figure


def draw_paths(dataset: xr.Dataset, ax: Any) -> None:
    """One sample: curriculum and direct, theory dotted over descent."""
    from learncast.figures import curriculum_paths

    def path(name: str) -> xr.Dataset:
        return xr.Dataset({"strength": dataset[name].expand_dims(mode=[0], axis=1)})

    a = dataset.attrs
    first = f"{str(a['vary']).replace('_', ' ')} {a['value']:g} to {a['stop_accuracy']:g}"
    curriculum_paths(
        path("theory_curriculum"),
        path("theory_direct"),
        ax,
        optimum=float(a["target_optimum"]),
        tolerance=1 - ACCURACY,
        first_optimum=float(a["first_optimum"]),
        switch=float(a["switch_step"]),
        simulated={"staged": path("descent_curriculum"), "direct": path("descent_direct")},
        title=f"{first}, then {a['target_value']:g}",
    )


def _trajectory_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    gaps = [
        float(np.abs(dataset[f"theory_{k}"] - dataset[f"descent_{k}"]).max()) / float(dataset.attrs["target_optimum"])
        for k in ("curriculum", "direct")
    ]
    a = dataset.attrs
    return {
        "direct, flow steps": round(float(a["direct_steps"]), 2),
        "curriculum, flow steps": round(float(a["curriculum_steps"]), 2),
        "direct, descent steps": int(a["direct_descent_steps"]),
        "curriculum, descent steps": int(a["curriculum_descent_steps"]),
        "largest gap of theory and descent, share of optimum": round(max(gaps), 4),
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


def _supplement() -> xr.Dataset:
    """All eight sample trajectories, side by side along a `sample` axis."""
    samples = [(panel, k) for panel in SAMPLES for k in range(2)]
    parts = [_trajectories(panel, k) for panel, k in samples]
    longest = max(part.sizes["time"] for part in parts)
    padded = [
        part.pad(time=(0, longest - part.sizes["time"])).assign_coords(time=np.arange(float(longest))) for part in parts
    ]
    joined = xr.concat([p.drop_attrs() for p in padded], dim="sample")
    keys = [k for k in parts[0].attrs if k not in ("panel", "vary")]
    return joined.assign_coords(
        {key: ("sample", [part.attrs[key] for part in parts]) for key in keys}
        | {"panel": ("sample", [p for p, _ in samples]), "vary": ("sample", [SAMPLES[p][0] for p, _ in samples])}
    )


def _sample(dataset: xr.Dataset, k: int) -> xr.Dataset:
    one = dataset.isel(sample=k)
    attrs = {name: one[name].item() for name in one.coords if name != "time"}
    return one.reset_coords(drop=True).dropna("time").assign_attrs(attrs)


def _draw_supplement(dataset: xr.Dataset) -> Figure:
    from learncast.figures import page

    figure, axes = page(4, 2, width=4.8, height=2.8)
    for k, ax in enumerate(axes):
        draw_paths(_sample(dataset, k), ax)
    return figure


def _supplement_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    return {
        f"{s.attrs['vary']} {s.attrs['value']:g}, {key}": value
        for s in (_sample(dataset, k) for k in range(dataset.sizes["sample"]))
        for key, value in _trajectory_numbers(s).items()
    }


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
        caption = f"First s_yx = {value:g} to accuracy {stop:g}, then 1: theory over descent of 128 units."
        make = partial(_trajectories, "2A", k)
        figures.append(PaperFigure(name, caption, make, _draw_trajectories, _trajectory_numbers))
    figures += [
        PaperFigure(
            "3A", "Finite-time covariance of AR(1) inputs against lag.", _lag_covariances, _draw_lags, _profile_numbers
        ),
        PaperFigure(
            "3C", "Leaky integration weights over a trial.", _integration_profiles, _draw_profiles, _profile_numbers
        ),
        PaperFigure(
            "S5",
            "Weaker and stronger first tasks for each parameter: theory over descent.",
            _supplement,
            _draw_supplement,
            _supplement_numbers,
        ),
    ]
    return Paper("curriculum", "curriculum2025", tuple(sorted(figures, key=lambda f: f.name)))
