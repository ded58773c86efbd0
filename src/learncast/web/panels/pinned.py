"""The pinned curriculum: charts, numbers and notes about one curriculum and direct training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from learncast._core.validation import FloatArray
from learncast.display import format_count, format_interval, format_number
from learncast.planning.candidate import hardly_pays
from learncast.planning.forecast import Forecast
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.view import FRAMES, Note, Reading

#: Points of a curve.
_POINTS = 400
#: Share by which a pinned stop is slower than the best one before that is said.
SLOWER = 0.05
#: Longest descent that is carried out; of a longer training only the flow is drawn.
MOST_STEPS = 100_000


def answer(curriculum: Forecast, first_task: str, stop: float, best: float) -> str:
    """Say what the curriculum is worth, in descent steps; `best` is the total with this task's best stop."""
    assert curriculum.direct is not None
    direct, total = curriculum.direct.descent, curriculum.steps.descent
    first, last = (stage.steps.descent for stage in curriculum.stages)
    if not math.isfinite(total) and curriculum.direct.outcome == curriculum.steps.outcome:
        return f"Directly or after {first_task}, the target {curriculum.steps.outcome}."
    if not math.isfinite(total) and not math.isfinite(direct):
        return f"Directly, the target {curriculum.direct.outcome}. After {first_task}, it {curriculum.steps.outcome}."
    takes = f"Direct training takes {format_count(direct)} steps."
    directly = takes if math.isfinite(direct) else f"Directly, it {curriculum.direct.outcome}."
    if not math.isfinite(total):
        return f"Do not pretrain on {first_task}: after it, the target {curriculum.steps.outcome}. {directly}"
    better = (
        f"; the best stop of this task takes {format_count(best)}" if (1 + SLOWER) * best < min(total, direct) else ""
    )
    ends = format_interval(curriculum.steps.interval)
    within = f" (95% interval {ends})" if ends else ""
    compared = f"{format_count(total)} steps in total{within}{better}. {directly}"
    if total >= direct:
        return f"Do not pretrain on {first_task} until {stop:.0%} accuracy: training takes {compared}"
    if hardly_pays(direct, total):
        return f"Train the target directly. Pretraining on {first_task} hardly pays: it takes {compared}"
    if better:  # the pinned curriculum is not a recommendation
        stages = f"{format_count(first)} steps on {first_task}, then {format_count(last)} on the target"
        return f"With this stop: {stages}, {compared}"
    first_stage = f"Train on {first_task} for {format_count(first)} steps{within if last == 0 else ''}, then"
    if last == 0:
        return f"{first_stage} stop: the target is already learned. {directly}"
    return f"{first_stage} on the target for {format_count(last)}: {compared}"


def last_step(ways: Iterable[Forecast]) -> float:
    """Return the step up to which the trainings are drawn."""
    ends = [steps for way in ways for steps in (way.steps.flow, way.steps.descent)]
    return 1.15 * max(filter(math.isfinite, ends), default=1000.0) or 1.0


def weights(curriculum: Forecast, last: float) -> FloatArray | None:
    """Return the unit's input and output weight at each frame; None if descent is too long or has several modes."""
    if last > MOST_STEPS or len(curriculum.modes[-1]) != 1:
        return None
    steps, states = descent_states(curriculum, last)
    frames = np.searchsorted(steps, np.linspace(0.0, last, FRAMES), side="right") - 1
    return states[frames][:, :, 0]


def charts(ways: Mapping[str, Forecast], last: float) -> tuple[Chart, ...]:
    """Return the race to the target and its loss over training.

    Parameters
    ----------
    ways : mapping
        Forecasts by name, direct training last.
    last : float
        Step at which the charts end.
    """
    target = next(iter(ways.values())).modes[-1]
    optimum, times = float(target.optimum[0]), np.linspace(0.0, last, _POINTS)
    race, losses = [], []
    for name, way in ways.items():
        series = Series.CURRICULUM if len(way.stages) > 1 else Series.DIRECT
        flow = way.at(times).dataset
        least = float((flow["target_loss"] - flow["target_excess_loss"])[0])
        steps, strength = times, flow["strength"].values[:, 0]
        if last <= MOST_STEPS and len(target) == 1:
            steps, strength = descent_strength(way, last)
            loss = np.maximum(target.loss(strength[:, None]) - least, 0.0)
            losses.append(Trace("steps", "descent", f"{name}, descent", steps, loss, series=series))
        losses.append(Trace("line", "theory", f"{name}, flow", times, flow["target_excess_loss"].values, series=series))
        learned = 100 * strength / optimum
        race.append(Trace("line", "data", name, steps, learned, series=series))
        if math.isfinite(end := way.steps.descent):
            words = (format_count(end),)
            place = np.array([end]), np.interp([end], steps, learned)
            race.append(Trace("points", "finish", f"{name} arrives", *place, series=series, legend=False, labels=words))
    race.append(Trace("line", "target", "target", np.array([0.0, last]), np.full(2, 100.0)))
    x = ChartAxis("training time", "steps", span=(0.0, last), clock=True)
    shades = stage_shades(next(iter(ways.values()))) if len(ways) > 1 else ()
    y, loss_axis = ChartAxis("output", "% of the target's"), ChartAxis("loss above the least", "target^2")
    return (
        Chart("race", "Race to the target", x, y, tuple(race), shades=shades, main=True),
        Chart("loss", "Loss of the target", x, loss_axis, tuple(losses), shades=shades),
    )


def descent_strength(curriculum: Forecast, last: float) -> tuple[FloatArray, FloatArray]:
    """Return some steps up to `last` of a curriculum with one mode, and the strength after each."""
    steps, states = descent_states(curriculum, last)
    return steps, curriculum.method.strengths(states)[:, 0]


@lru_cache(maxsize=2)
def descent_states(curriculum: Forecast, last: float) -> tuple[FloatArray, FloatArray]:
    """Return some steps up to `last` of a curriculum with one mode, and the weights (2, 1) after each."""
    method, most, begun = curriculum.method, math.ceil(last), 0
    lengths = [s.steps.descent if math.isfinite(s.steps.descent) else most for s in curriculum.stages]
    steps, states = [0.0], [method.start]
    # The last task goes on after its stage.
    places = (*curriculum.places, curriculum.places[-1])
    for place, length, state in zip(places, (*lengths, most), curriculum.run.descent_states, strict=True):
        length = min(int(length), most - begun)
        kept = np.unique(np.linspace(0, length, min(_POINTS, length + 1)).round().astype(int))[1:].tolist()
        steps += [float(begun + step) for step in kept]
        states += list(method.advance(place, state[None], kept)[:, 0]) if kept else []
        begun += length
    return np.array(steps), np.array(states)


def stage_shades(curriculum: Forecast) -> tuple[tuple[float, float, str, int], ...]:
    """Return the descent steps in which each task of a curriculum is trained, up to a stage that does not end."""
    shades, begin = [], 0.0
    for stage, series in zip(curriculum.stages, (Series.FIRST, Series.TARGET), strict=True):
        end = begin + stage.steps.descent
        if not math.isfinite(end):
            break
        if end > begin:
            shades.append((begin, end, stage.task.name, series))
        begin = end
    return tuple(shades)


def terms_chart(curriculum: Forecast) -> Chart:
    """Show the three terms of the paper's speedup in steps."""
    why = curriculum.explanation
    assert why is not None
    names = np.array(["initial scale", "cost of the first task", "closeness to the target"])
    terms = np.array([why.initial_scale, why.cross_ratio, why.closeness])
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = terms / (2 * curriculum.learning_rate * curriculum.modes[-1].weighted_cross[why.mode])
    bars = Trace("bars", "theory", "terms of the speedup", names, np.where(np.isfinite(steps), steps, np.nan))
    axes = ChartAxis("term of the speedup"), ChartAxis("contribution", "steps")
    return Chart("terms", "Why (by the flow)", *axes, (bars,))


def readings(curriculum: Forecast) -> tuple[Reading, ...]:
    """Return the steps of the curriculum, of its stages and of direct training."""
    assert curriculum.direct is not None
    steps, direct, saving, (first, last) = curriculum.steps, curriculum.direct, curriculum.saving, curriculum.stages
    group = "At the pin"
    return (
        Reading.counted("both stages", steps, group=group),
        Reading.counted("direct training", direct, group=group),
        Reading.steps("saved", saving.descent, saving.interval, group),
        Reading.counted("first task", first.steps, interval=False, group=group),
        Reading.counted("target after it", last.steps, interval=False, group=group),
        Reading.flow("both stages", steps.flow, group),
    )


def notes(curriculum: Forecast) -> tuple[Note, ...]:
    """Explain why the curriculum helps or hurts."""
    why = curriculum.explanation
    assert why is not None
    found = [Note(f"{why.sentence[:1].upper()}{why.sentence[1:]}.")]
    if math.isinf(why.closeness):
        found.append(Note("The first task ends exactly on the target's optimum: that term is infinite and has no bar."))
    saved = curriculum.saving.descent
    if saved < 0:
        text = f"With this stop the first task costs {format_count(-saved)} steps more than it saves."
        found.append(Note(text, "warning"))
    return tuple(found)


def difference(curriculum: Forecast) -> str:
    """Say by how much descent and flow differ, if that is much."""
    descent, flow = curriculum.steps.descent, curriculum.steps.flow
    if not math.isfinite(descent - flow) or abs(descent - flow) <= 0.1 * flow:
        return ""
    return (
        f"Descent takes {format_count(descent)} steps at this learning rate, the flow {format_number(flow)}. Small "
        "differences at the switch matter here, so discrete steps and the continuous flow differ."
    )
