"""Figures of Start here and of the project pages: recordings in six pictures, learning dynamics, trust and performance."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from drawings import _sized

import learncast as lc
from learncast.figures import key
from learncast.figures.look import COLOURS, DIRECT, FIRST, FORGOTTEN, ON_LIGHT, TARGET, THEORY

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "examples" / "recorded_trials.csv"
INPUTS, TARGETS = ["input_left", "input_right"], ["target_left", "target_right"]
NETWORK = lc.LinearRNN.random(inputs=2, hidden_size=64, outputs=2, recurrence=0.9, scale=0.05, rng=0)
RATE = 2e-3
#: Marker of a plan, as in reports.
STAR = {"color": COLOURS[7], "markeredgecolor": ON_LIGHT, "markersize": 13}


@cache
def recorded() -> lc.Task:
    """The recorded trials as a task."""
    return lc.tasks.from_table(TABLE, inputs=INPUTS, targets=TARGETS, name="recorded")


@cache
def recorded_plan() -> lc.Plan:
    """Plan of the recorded task with three candidates."""
    candidates = [
        lc.tasks.integration(steps=12, target_strength=[strength, strength], name=f"ideal answers x {strength}")
        for strength in (0.7, 1.0, 1.5)
    ]
    return lc.plan(recorded(), candidates, NETWORK, learning_rate=RATE, terms=lc.Terms(0.95))


@_sized(4.4, 1.9)
def recordings_trials(ax: Any) -> None:
    """One of 150 trials: evidence on two channels, and the animal's two estimates at its end."""
    trial = pd.read_csv(TABLE).query("trial == 3")
    for name, colour in (("left", TARGET), ("right", FIRST)):
        ax.plot(trial["step"], trial[f"input_{name}"], "o-", color=colour, markersize=2, label=f"evidence {name}")
        ax.plot(11.6, trial[f"target_{name}"].iloc[-1], "D", color=colour, markersize=5, label=f"estimate {name}")
    ax.axhline(0, color="0.6", lw=0.7)
    ax.set(xlabel="time step", ylabel="value", xlim=(-0.3, 12.2))
    ax.legend(frameon=False, loc="upper left")


@_sized(4.4, 1.9)
def recordings_memory(ax: Any) -> None:
    """Share of the estimates' variance that a linear network can explain, against its memory: best near 0.9, and no worse on held-out trials."""
    memories = np.linspace(0.3, 0.98, 18)
    summaries = [lc.tasks.summary(recorded(), recurrence=memory) for memory in memories]
    ax.plot(memories, [100 * s.explained for s in summaries], color=TARGET, label="these trials")
    ax.plot(memories, [100 * s.left_out for s in summaries], ":", color=FIRST, lw=2.2, label="held-out trials")
    ax.axvline(0.9, color="0.6", lw=0.8)
    ax.set(xlabel="share of the state kept from step to step", ylabel="explained (%)", ylim=(30, 102))
    ax.legend(frameon=False, loc="upper left")


@_sized(4.4, 2.0)
def recordings_forecast(ax: Any) -> None:
    """Forecast of direct training: 95% is learned after 98 steps; resampled trials take 81 to 119."""
    forecast = lc.forecast(recorded(), NETWORK, learning_rate=RATE, goal=0.95)
    steps = np.arange(160)
    loss = forecast.solution.at(steps)["excess_loss"]
    ax.plot(steps, 100 * (1 - loss / loss[0]), color=TARGET)
    ax.axhline(95, color="0.6", ls="--", lw=0.8)
    ax.axvspan(*forecast.steps.interval, color=TARGET, alpha=0.18, lw=0)
    ax.plot(forecast.steps.descent, 95, "o", color=TARGET, markersize=7)
    ax.annotate(
        f"{forecast.steps.descent:.0f} steps",
        (forecast.steps.descent, 95),
        (24, -16),
        textcoords="offset points",
        size=8,
    )
    ax.set(xlabel="gradient steps", ylabel="explainable variance\nlearned (%)", ylim=(0, 104), xlim=(0, 159))


@_sized(4.4, 2.0)
def recordings_candidates(ax: Any) -> None:
    """Total steps with each first task, at its best stop: answers of 1.5 times the strength help, the others do not."""
    plan = recorded_plan()
    names = [candidate.task.name for candidate in plan.candidates]
    firsts = [candidate.stop_steps for candidate in plan.candidates]
    totals = [candidate.total for candidate in plan.candidates]
    rows = np.arange(len(names))
    ax.barh(rows, firsts, color=FIRST, label="on the first task")
    ax.barh(rows, np.subtract(totals, firsts), left=firsts, color=TARGET, label="on the recorded task")
    ax.barh(len(names), plan.direct_steps, color=DIRECT, label="direct training")
    ax.set_yticks([*rows, len(names)], [*names, "no first task"])
    ax.invert_yaxis()
    ax.set(xlabel="gradient steps", xlim=(0, 1.02 * plan.direct_steps))
    key(ax, below=True, ncols=2)


@_sized(4.4, 1.15)
def recordings_saving(ax: Any) -> None:
    """The plan saves 34 steps; resampled trials give 13 to 57. The interval excludes 0, so that the saving is not chance."""
    plan = recorded_plan()
    ax.plot(plan.saving_interval, [0, 0], color=TARGET, lw=5, solid_capstyle="butt")
    ax.plot(plan.saving, 0, "o", color=TARGET, markersize=10)
    ax.axvline(0, color=DIRECT, ls="--", lw=1.2)
    ax.annotate("no saving", (0, 0.6), (5, 0), textcoords="offset points", size=7)
    ax.annotate(f"{plan.saving:.0f} steps", (plan.saving, 0), (0, 11), textcoords="offset points", ha="center", size=7)
    ax.set(xlabel="gradient steps saved", yticks=[], ylim=(-1, 1.3), xlim=(-8, 60))
    ax.spines["left"].set_visible(False)


@_sized(4.4, 2.0)
def recordings_training(ax: Any) -> None:
    """Training in torch on the same trials, and the forecast that was made before."""
    table = pd.read_csv(TABLE)
    trials = table[INPUTS].to_numpy().reshape(-1, 12, 2), table.groupby("trial")[TARGETS].last().to_numpy()
    run = lc.training.train(trials, NETWORK, lc.Training(RATE), steps=140)
    forecast = lc.forecast(recorded(), NETWORK, learning_rate=RATE, goal=0.95).solution.at(np.arange(141))
    ax.plot(run.dataset["time"], run.dataset["loss"], color=TARGET, lw=4, alpha=0.6, label="trained in torch")
    ax.plot(forecast.time, forecast["loss"], **{**THEORY, "linewidth": 2}, label="forecast")
    ax.set(xlabel="gradient steps", ylabel="loss", ylim=(0, None), xlim=(0, 140))
    ax.legend(frameon=False)


@_sized(columns=2, width=3.3, height=2.6)
def first_plan(axes: Any) -> None:
    """First panel: strength of the output while the plan or the target alone is trained. Second: total steps for each stop of the first task; the star is the plan."""
    target = lc.tasks.integration(steps=50)
    stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    plan = lc.plan(target, [stronger], network, learning_rate=1e-3)
    first = plan.best.stages[0]
    direct = lc.forecast(target, network, learning_rate=1e-3).solution
    optimum = lc.forecast(stronger, network, learning_rate=1e-3).solution.optimum[0]
    times = np.arange(400)
    lc.figures.curriculum_paths(
        plan.best.at(times).dataset,
        direct.at(times).dataset,
        axes[0],
        optimum=float(direct.optimum[0]),
        tolerance=0.01,
        first_optimum=float(optimum),
        switch=first.steps.flow,
    )
    stops = np.linspace(0.05, 0.98, 94)
    vary = {"vary": "target_strength", "values": [1.5], "accuracies": stops}
    portrait = lc.phase(target, network, learning_rate=1e-3, **vary).squeeze()
    axes[1].plot(100 * stops, portrait["total_steps"], color=TARGET, label="first task, then target")
    axes[1].axhline(plan.direct_steps, color=DIRECT, ls="--", label="direct training")
    axes[1].plot(100 * first.accuracy, plan.total, "*", **STAR, label="plan")
    axes[1].set(xlabel="accuracy at which the first task stops (%)", ylabel="total steps", ylim=(0, None))
    axes[1].legend(frameon=False, loc="lower left")


@_sized(4.4, 2.0)
def dynamics_modes(ax: Any) -> None:
    """A network learns three parts of a task, one after the other: the strongest first. Each is learned in a step-like curve."""
    task = lc.tasks.integration(steps=20, input_strength=[1.0] * 3, target_strength=[1.5, 0.8, 0.4])
    network = lc.LinearRNN.aligned(task=task, recurrence=0.9, initial=0.02, hidden_size=16)
    steps = np.arange(1800)
    solution = lc.forecast(task, network, learning_rate=1e-3).solution
    shares = solution.at(steps)["strength"].values / np.asarray(solution.optimum)
    for k, (colour, name) in enumerate(zip((TARGET, FIRST, DIRECT), ("strong", "medium", "weak"), strict=True)):
        ax.plot(steps, 100 * shares[:, k], color=colour, label=f"{name} part")
    ax.set(xlabel="gradient steps", ylabel="learned (%)", ylim=(0, 104), xlim=(0, steps[-1]))
    ax.legend(frameon=False, loc="lower right")


@_sized(4.4, 2.0)
def dynamics_start(ax: Any) -> None:
    """One task from five initial sizes of the weights. Weights of a quarter of the size delay learning by the same number of steps each time."""
    task, steps = lc.tasks.integration(steps=50), np.arange(500)
    for shade, initial in zip(np.linspace(0.35, 1, 5), np.geomspace(0.001, 0.3, 5), strict=True):
        network = lc.LinearRNN.aligned(recurrence=0.96, initial=initial, hidden_size=16)
        solution = lc.forecast(task, network, learning_rate=1e-3).solution
        learned = 100 * solution.at(steps)["strength"].values[:, 0] / float(np.asarray(solution.optimum)[0])
        ax.plot(steps, learned, color=TARGET, alpha=shade, label=f"{initial:.3f}")
    ax.set(xlabel="gradient steps", ylabel="learned (%)", ylim=(0, 104), xlim=(0, 499))
    ax.legend(title="initial size", frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


@_sized(4.6, 3.6, heights=(1, 1, 1))
def forecast_and_trained(axes: Any) -> None:
    """How far the forecast is from the steps of plain training in numpy on the same raw trials. Each stroke is one drawn problem; those on the line have the same number of steps in both."""
    stored = json.loads((ROOT / "docs/results/forecasts.json").read_text(encoding="utf-8"))
    rows = [row for row in stored["rows"] if row["trained"] >= 1]
    looks = {"integrated": TARGET, "response": FIRST, "exact": FORGOTTEN}
    for ax, (name, colour) in zip(axes, looks.items(), strict=True):
        chosen = [row for row in rows if row["class"] == name]
        trained, forecast = np.array([(row["trained"], row["forecast"]) for row in chosen]).T
        ax.scatter(trained, 100 * (forecast / trained - 1), s=170, marker="|", color=colour, lw=0.9)
        equal = f"{np.sum(forecast == trained)} of {len(chosen)} equal"
        ax.annotate(f"{name}: {equal}", (0.02, 0.97), xycoords="axes fraction", va="top", size=8, color=colour)
        for row in (row for row in chosen if row["forecast"] != row["trained"]):
            place = row["trained"], 100 * (row["forecast"] / row["trained"] - 1)
            words = f"{row['forecast']:,.0f} forecast, {row['trained']:,.0f} trained"
            ax.annotate(words, place, (-6, 0), textcoords="offset points", ha="right", va="center", size=7)
        ax.set(xscale="log", xlim=(1.4, 1.6 * max(row["trained"] for row in rows)), ylim=(-0.75, 0.75))
        ax.set(yticks=[-0.5, 0, 0.5])
        ax.tick_params(labelbottom=ax is axes[-1])
    axes[1].set_ylabel("error (%)")
    axes[-1].set_xlabel("trained gradient steps")


@_sized(4.6, 5.6, heights=(8, 3.4))
def speed_chart(axes: Any) -> None:
    """Above: how many times as fast as the obvious way each question is answered; left of 1 it is slower. Below: time of the answers that have no such counterpart."""
    sys.path.append(str(ROOT))
    from benchmarks.report import answers

    for ax, kind in zip(axes, ("ratio", "time"), strict=True):
        chosen = sorted((a for a in answers() if a.bar[0] == kind), key=lambda a: -a.bar[1])
        for row, answer in enumerate(chosen):
            value, start = answer.bar[1], 1 if kind == "ratio" else 0
            ax.barh(row, value - start, 0.4, left=start, color=FIRST if value < start else TARGET)
            # The name is above the bar, where it is readable on a phone.
            ax.annotate(answer.question.question, (0, row - 0.34), xycoords=("axes fraction", "data"), size=7.5)
            said = answer.time if kind == "time" else f"{value:,.0f}×" if value >= 10 else f"{value:.1f}×"
            ax.annotate(said, (max(value, start), row), (5, 0), textcoords="offset points", va="center", size=7)
            if kind == "ratio":
                ax.plot([1, 1], [row - 0.2, row + 0.2], color="0.45", lw=0.8)
        ax.set(xscale="log", yticks=[], ylim=(len(chosen) - 0.6, -0.9))
        ax.spines["left"].set_visible(False)
    axes[0].set_xticks([1, 10, 100, 1000], ["1×", "10×", "100×", "1,000×"])
    axes[1].set_xticks([1e-3, 1e-2, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    axes[0].set(xlabel="times as fast as the obvious way", xlim=(0.4, 8000))
    axes[1].set(xlabel="seconds for one answer", xlim=(1e-3, 5))
