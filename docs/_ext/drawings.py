"""Figures of the theory pages, drawn with the functions that the pages describe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import learncast as lc
from learncast.figures.look import DIRECT, STAGED
from learncast.papers.learnability.preset import CELLS as PAPER_CELLS
from learncast.theory.dynamics import mode_equation


def _sized(
    width: float = 4.6, height: float = 2.9, columns: int = 1, heights: tuple[float, ...] = (1,)
) -> Callable[[Any], Any]:
    """Set the size of a figure in inches, its number of axes in a row, and the relative heights of its rows."""

    def mark(draw: Any) -> Any:
        draw.size = width * columns, height
        draw.grid = {"nrows": len(heights), "ncols": columns, "height_ratios": heights}
        return draw

    return mark


def empty(draw: Any) -> tuple[Figure, Any]:
    """Return a figure of the size that a function draws on, and its axes."""
    figure = Figure(figsize=draw.size, layout="constrained")
    return figure, figure.subplots(**draw.grid)


@_sized()
def mode_course(ax: Any) -> None:
    """Strength of one mode by the closed form, from four initial states: small and balanced, unbalanced, above the optimum, and with the wrong sign."""
    times = np.linspace(0, 8, 300)
    starts = {
        "balanced": (0.01, 0.0),
        "unbalanced": (0.01, 1.0),
        "from above": (1.8, 0.0),
        "wrong sign, unbalanced": (-0.4, 0.3),
    }
    for name, (start, imbalance) in starts.items():
        ax.plot(times, mode_equation.strength(times, start, imbalance, 1.0, 1.0), label=name)
    ax.axhspan(0.9, 1.1, alpha=0.15, color="C2", lw=0)
    ax.set(xlabel="time × $\\beta_{yx}/\\gamma$", ylabel="strength $u / u^*$")
    ax.legend(frameon=False)


@_sized()
def printed_time(ax: Any) -> None:
    """Time to come within 10% of the optimum, as a function of the initial strength: first entry into the band, and eq. (12) as printed."""
    starts = np.linspace(0.01, 2.0, 500)
    right, _ = mode_equation.time_to_band(starts, 0.0, 1.0, 1.0, 0.1)
    ax.plot(starts, right, label="first entry")
    ax.plot(starts, mode_equation.printed_time(starts, 1.0, 1.0, 0.1), "--", label="as printed")
    ax.axhline(0, color="0.6", lw=0.8)
    ax.set(xlabel="start $u_0 / u^*$", ylabel="time × $\\beta_{yx}/\\gamma$", ylim=(-1, 3))
    ax.legend(frameon=False)


@_sized()
def best_stop(ax: Any) -> None:
    """Steps of both stages as a function of the first stage's stop. The best stop is the edge of the target's tolerance band (dotted), not its optimum."""
    target = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    stops = np.linspace(0.05, 0.98, 187)
    portrait = lc.phase(
        target, network, learning_rate=1e-3, vary="target_strength", values=[1.5], accuracies=stops
    ).squeeze()
    ax.plot(stops, portrait["total_steps"], label="both stages")
    ax.plot(stops, portrait["first_stage_steps"], label="first stage")
    ax.plot(stops, portrait["second_stage_steps"], label="second stage")
    ax.axvline(0.99 / 1.5, color="0.6", ls=":", lw=1)
    ax.set(xlabel="accuracy at which the first task stops", ylabel="steps", ylim=(0, None))
    ax.legend(frameon=False)


@_sized()
def two_layer_course(ax: Any) -> None:
    """Loss of a two-layer network from regular initial weights, and from initial weights whose determinant has the other sign, which end on a saddle."""
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    for name, sign in {"same sign of the determinants": 1.0, "opposite sign": -1.0}.items():
        weights = 0.1 * np.diag([1.0, sign])
        network = lc.TwoLayer(np.abs(weights), weights)
        trajectory = lc.forecast(task, network, learning_rate=1e-2).solution.at(np.linspace(0, 800, 200))
        ax.plot(trajectory.time, trajectory["excess_loss"], label=name)
    ax.axhline(0.5, color="0.6", ls=":", lw=1)
    ax.annotate("$s_2^2/2$", (700, 0.55))
    ax.set(xlabel="gradient steps", ylabel="excess loss")
    ax.legend(frameon=False)


@_sized()
def forgetting_course(ax: Any) -> None:
    """Losses of two tasks that are learned in sequence. While B is learned, the loss of A rises to half the squared distance of the two maps (dotted)."""
    rng = np.random.default_rng(1)
    tasks = [lc.tasks.static(rng.standard_normal((2, 3)), name=name) for name in "AB"]
    network = lc.TwoLayer.balanced(3, 8, 2, scale=0.2, rng=rng)
    curves = lc.forget(tasks, network, learning_rate=1e-2, steps=600).curves(points=200)
    for name in "AB":
        ax.plot(
            curves["time"], curves["loss"].sel(task=name) - curves["loss"].sel(task=name).min(), label=f"loss of {name}"
        )
    first, second = (task.cross_covariance.dense()[0, :, 0, :] for task in tasks)
    ax.axhline(0.5 * ((first - second) ** 2).sum(), color="0.6", ls=":", lw=1)
    ax.axvline(600, color="0.6", lw=0.8)
    ax.set(xlabel="gradient steps", ylabel="excess loss")
    ax.legend(frameon=False)


@_sized(columns=2, width=3.9)
def recurrence_course(axes: Any) -> None:
    """One mode of a task that weighs inputs by a factor of 0.8 per step: recurrence b and product a·c while all weights learn, from three initial values of b."""
    cross = 0.8 ** np.arange(10)
    times = np.linspace(0, 100, 400)
    for start in (0.3, 0.6, 0.9):
        mode = lc.theory.mode_trajectory(0.1 * times, 0.3, start, 0.3, cross)
        axes[0].plot(times, mode.recurrence, label=f"$b_0$ = {start}")
        axes[1].plot(times, mode.input * mode.output)
    axes[0].set(xlabel="gradient steps", ylabel="recurrence $b$")
    axes[1].set(xlabel="gradient steps", ylabel="strength $u = a c$")
    axes[0].legend(frameon=False)


@_sized()
def relu_course(ax: Any) -> None:
    """Loss of a ReLU network, forecast through its measured response, and of the linear network with the same weights."""
    task = lc.tasks.integration(steps=20)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=64)
    times = np.linspace(0, 1500, 200)
    for name, one in {"linear": network, "ReLU": lc.Activated(network, "relu")}.items():
        trajectory = lc.forecast(task, one, learning_rate=1e-3).solution.at(times)
        ax.plot(times, trajectory["excess_loss"] / trajectory["excess_loss"][0], label=name)
    ax.set(xlabel="gradient steps", ylabel="fraction of the initial excess loss", ylim=(0, None))
    ax.legend(frameon=False)


@_sized()
def surrogate_filters(ax: Any) -> None:
    """Filter of the linear surrogate of an untrained cell: weight of an input at each lag, relative to the newest input."""
    from learncast.advice.surrogate import linear_surrogate

    for kind in ("rnn", "gru", "lstm"):
        surrogate = linear_surrogate(lc.training.gated_module(kind, hidden_size=32, seed=0))
        filters = surrogate.system(surrogate.stacked(1)).filters(12).detach().numpy()[0, 0, :, 0]
        size = np.abs(filters)
        ax.semilogy(range(12), size / size[0], "o-", ms=3, label=kind.upper())
    ax.set(xlabel="lag (time steps)", ylabel="$|K_k| / |K_0|$")
    ax.legend(frameon=False)


@_sized()
def transport_factors(ax: Any) -> None:
    """Transport factors of the gradient for retention 0.9 and mixing 0.3: gates only, and with one pass through the recurrent weights, which first increases."""
    lags = np.arange(1, 25)
    ax.plot(lags, 0.9**lags, "o-", ms=3, label="gates only (order 0)")
    ax.plot(lags, 0.9**lags + lags * 0.3 * 0.9 ** (lags - 1), "s-", ms=3, label="one pass (order 1)")
    ax.axhline(1, color="0.6", lw=0.8)
    ax.set(xlabel="lag (time steps)", ylabel="transport factor")
    ax.legend(frameon=False)


@_sized()
def information_bound(ax: Any) -> None:
    """Mutual information between a sample and which of two unit-variance normal distributions it comes from, and a quarter of their divergence. The printed lower bound lies above the information."""
    apart = np.linspace(0.01, 3, 100)
    x = np.linspace(-12, 12, 4001)

    def density(centre: float) -> Any:
        return np.exp(-0.5 * (x - centre) ** 2) / np.sqrt(2 * np.pi)

    information = []
    for d in apart:
        one, other = density(-d / 2), density(d / 2)
        terms = [0.5 * p * np.log(p / (0.5 * (one + other))) for p in (one, other)]
        information.append(np.trapezoid(sum(terms), x))
    ax.plot(apart, information, label="information")
    ax.plot(apart, apart**2 / 8, "--", label="a quarter of the divergence")
    ax.axhline(np.log(2), color="0.6", ls=":", lw=1)
    ax.set(xlabel="distance (standard deviations)", ylabel="nats", ylim=(0, 1))
    ax.legend(frameon=False)


def _stored(figure: str) -> dict[str, Any]:
    """Stored numbers of one figure of the learnability paper at the preset default."""
    path = Path(__file__).parents[1] / "results/learnability-default.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["figures"][figure]["numbers"])


#: Cells of the paper and their markers.
CELLS = dict(zip(PAPER_CELLS.values(), "os^Dv", strict=True))


@_sized(columns=2, width=3.9)
def default_windows(axes: Any) -> None:
    """Figure 2 at the preset default, from stored numbers: learnability window as a function of the number of sequences, relative to the noise at the lag (first panel) and to the noise of the whole gradient (second). Dotted: longest lag of the task."""
    numbers, titles = (
        _stored("2"),
        {"window": "noise of its own lag", "window against all gradient noise": "noise of the whole gradient"},
    )
    for ax, (name, title) in zip(axes, titles.items(), strict=True):
        for cell, marker in CELLS.items():
            ax.semilogx(numbers["sequences"], numbers[f"{cell}: {name}"], marker=marker, ms=4, label=cell)
        ax.axhline(32, color="0.5", ls=":", lw=1)
        ax.set(xlabel="sequences", ylabel="window (steps)", title=title, ylim=(-2, 67))
    axes[1].legend(frameon=False, fontsize=8)


@_sized(columns=2, width=3.3)
def skill_dots(axes: Any) -> None:
    """Goals on a loss: measured steps of the chosen plan relative to the best plan. Decisions: steps to 85% correct with Adam and 32 units, relative to direct training at the usual rate. Dots are means, lines 95% intervals over resampled trainings; trainings of one pool are alike, so that other pools differ more."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import bench_advice, bench_skill

    part = bench_advice.Part(bench_advice.stored(), "adam", 32)
    other = ("best fixed rate", "mixing", "restart", "largest covariance first")
    decisions = {"advise": part.to_direct(1.0), **{name: part.baseline(name) for name in other}}
    decisions["direct training"] = [1.0]
    ways = [one["ways"] for one in bench_skill.held_out()]
    losses = {name: [way[label]["regret"] for way in ways if label in way] for label, name in STRATEGIES.items()}
    panels = (losses, np.mean, "steps / best plan"), (decisions, bench_advice.geometric, "steps / direct training")
    draws = np.random.default_rng(0)
    for ax, (values, mean, measure), title in zip(axes, panels, ("goals on a loss", "decisions"), strict=True):
        for row, (name, ratios) in enumerate(values.items()):
            resampled = [mean(draws.choice(ratios, len(ratios))) for _ in range(500)]
            colour, centre = STAGED if name == "advise" else DIRECT, float(mean(ratios))
            ax.plot(np.percentile(resampled, [2.5, 97.5]), [row, row], color=colour, lw=2)
            ax.plot(centre, row, "o", color=colour, markersize=6)
            ax.annotate(name, (0, row - 0.3), xycoords=("axes fraction", "data"), size=7.5)
            ax.annotate(f"{centre:.2f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", size=7)
        ax.axvline(1, color=DIRECT, lw=0.8, ls=":")
        ax.margins(x=0.08)
        ax.set(xlabel=measure, title=title, yticks=[], ylim=(len(values) - 0.6, -0.8))
        ax.spines["left"].set_visible(False)


#: Strategies of the benchmark of rankings, as this page calls them.
STRATEGIES = {
    "ours": "advise",
    "closed form, b fitted to the spectrum": "closed form, recurrence fitted to the spectrum",
    "rule of thumb: largest ||Cov(x,y)||, stop at 80%": "heuristic: largest covariance, stop at 80%",
    "always direct": "direct training",
    "noise ceiling: a repeat, new batches": "noise ceiling: a repeat with new batches",
}
