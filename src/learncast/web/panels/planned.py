"""A plan whose candidates are given, such as the parts of a sum: its first tasks, and the loss over training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from learncast import Accuracy, Deep, Plan, Terms, Training, TwoLayer, plan
from learncast.planning.summary import recommendation
from learncast.tasks import Composition, composed
from learncast.tasks.one_step import static
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import remembered
from learncast.web.panels.pinned import stage_shades
from learncast.web.view import Clock, Note, Reading, View

if TYPE_CHECKING:
    from learncast.web.panels.curriculum import CurriculumState

#: Points of a curve, and the least share of its largest value that is drawn.
_POINTS, _LEAST = 200, 1e-5
#: Seconds that a plan for the sum of parts may take.
SECONDS = 8.0


def _composition(state: CurriculumState) -> Composition:
    """Parts with one input and one output each, composed by `learncast.tasks.composed`."""
    eye = np.eye(state.parts)
    # A part alone maps its input to its output; with shared inputs it ignores the inputs of the others.
    maps = [np.outer(out, out if state.part_inputs == "shared" else [1.0]) for out in eye]
    made = [static(one, name=f"part {k}") for k, one in enumerate(maps, 1)]
    strengths = [state.first_part, *[state.other_parts] * (state.parts - 1)]
    return composed(made, inputs=state.part_inputs, angle=state.angle, strengths=strengths, name="all parts")


#: A plan of many steps holds up to 100 MB.
@remembered(8, "parts part_inputs angle first_part other_parts layers units start_scale seed learning_rate accuracy")
def composed_plan(state: CurriculumState) -> Plan:
    """Return the plan of `learncast.plan` for a sum of parts, with the parts as candidates."""
    made, n, scale = _composition(state), state.parts, state.start_scale
    network: TwoLayer | Deep = TwoLayer.random(n, state.units, n, scale=scale, rng=state.seed)
    if state.layers > 2:
        network = Deep.random(n, (state.units,) * (state.layers - 1), n, scale=scale, rng=state.seed)
    terms, training = Terms(Accuracy(state.accuracy)), Training(state.learning_rate)
    return plan(made.target, made.parts, network, training, terms=terms, strict=False, seconds=SECONDS)


def composed_study(state: CurriculumState) -> dict[str, object]:
    """Return the tables of the study with which `learncast plan` gives that plan."""
    made = _composition(state)
    target, *parts = (
        {"name": t.name, "family": "static", "cross_correlation": t.cross_covariance.dense()[0, :, 0, :].T.tolist()}
        for t in (made.target, *made.parts)
    )
    kind = {"kind": "two-layer"} if state.layers == 2 else {"kind": "deep", "layers": state.layers}
    how = {"hidden_size": state.units, "start": "random", "scale": state.start_scale, "seed": state.seed}
    return {
        "name": "composed of parts",
        "network": {**kind, **how},
        "training": {"learning_rate": state.learning_rate, "accuracy": state.accuracy, "max_stages": 2},
        "target": target,
        "candidates": parts,
    }


def comparison(best: Plan) -> View:
    """Show the total steps of direct training and after each first task."""
    totals = {"train directly": best.direct_steps}
    for candidate in best.candidates:
        totals[candidate.task.name] = candidate.forecast.steps.descent
    steps = np.array(list(totals.values()), dtype=float)
    bars = Trace("bars", "data", "total steps", tuple(totals), np.where(np.isfinite(steps), steps, np.nan))
    title = f"Steps to learn {best.target.name}, by first task"
    chart = Chart("firsts", title, ChartAxis("first task"), ChartAxis("total steps", "steps"), (bars,), side=True)
    answer = recommendation(best)
    none = (Note("Targets that are classes cannot be scaled, so no first task is compared."),)
    rest = best.summary.removeprefix(answer).strip()
    return View((chart,), best.trust, _readings(best), () if best.candidates else none, rest, answer=answer)


def _readings(best: Plan) -> tuple[Reading, ...]:
    target = best.target
    direct = Reading.counted("direct training", best.direct)
    counts = (
        direct if best.counted else Reading.steps("direct training", best.direct_steps),
        Reading.steps("with the plan", best.total, best.interval),
        Reading.steps("saved", best.saving, best.saving_interval),
        Reading.flow("direct training", best.direct.flow),
    )
    if target.recording is None:
        return counts
    trials = f"{target.trials:,}" if target.trials else "unknown"
    return (
        *counts,
        Reading("trials", float(target.trials or math.nan), "trials", trials),
        Reading("steps in a trial", float(target.steps), "steps", f"{target.steps}"),
    )


def loss_curves(best: Plan) -> View:
    """Show the loss of the target above its least over training, with the plan and directly, and the goal."""
    direct, method, goal = best.follow([best.stages[-1]]), best.method, best.stages[-1].goal
    curves = [(Series.CURRICULUM, best.best, "curriculum"), (Series.DIRECT, direct, "direct training")]
    ends = [curve.steps.flow for _, curve, _ in curves if math.isfinite(curve.steps.flow)]
    last = 1.1 * max(ends, default=0.0) or 1.0
    times, least = np.linspace(0.0, last, _POINTS), method.least_loss(method.target)
    traces = []
    for series, curve, name in curves if best.pretrains else curves[1:]:
        above = curve.at(times).dataset["target_loss"].values - least
        drawn = np.where(above > _LEAST * np.nanmax(above), above, np.nan)
        traces.append(Trace("line", "data", name, times, drawn, series=series))
    if not method.per_mode(goal):
        level = np.full(2, method.goal_excess(method.target, goal))
        traces.append(Trace("line", "target", "learned", np.array([0.0, last]), level))
    x = ChartAxis("training time", "steps", span=(0.0, last), clock=True)
    y = ChartAxis("loss above the least", "target^2", "log")
    shades = stage_shades(best.best) if best.pretrains else ()
    chart = Chart("loss", f"Loss of {best.target.name}", x, y, tuple(traces), shades=shades, main=True)
    return View((chart,), clock=Clock.until(last))
