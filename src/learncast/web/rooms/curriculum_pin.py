"""One pinned curriculum: its stages, its course, and what makes it pay."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from learncast.answers.answer import shown, within
from learncast.dynamics.modes import Modes
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.curriculum import Curriculum, Stage
from learncast.planning.plans.mode_planner import ModePlanner
from learncast.planning.plans.planner import plan_by
from learncast.planning.plans.recommendation import Plan
from learncast.planning.terms import checked_terms
from learncast.validation import FloatArray
from learncast.web.panel import Axis, Note, Panel, Reading, Trace, View
from learncast.web.rooms.curriculum_descent import descended
from learncast.web.rooms.curriculum_modes import taken_apart
from learncast.web.rooms.curriculum_state import CurriculumState
from learncast.web.verdict import validity_of, warnings_of

#: Points of a curve.
_POINTS = 400


@lru_cache(maxsize=64)
def pinned(state: CurriculumState) -> View:
    """The pinned curriculum beside direct training; a word on how to pin one where none is."""
    if state.pin is None:
        away = state.pin_value is not None and state.pin_accuracy is not None
        text = "The pinned curriculum lies outside this picture: " if away else "Follow one curriculum: "
        return View((), notes=(Note(text + "click the picture to pin one."),))
    found, pair = followed(state, *state.pin)
    alone = found.planner.follow([pair.outcomes[-1].stage])
    kind = "exact" if state.activation == "linear" else "response"
    return View(
        panels=(*_course_panels(pair, alone), _terms_panel(pair)),
        validity=validity_of(kind, pair.assumptions),
        readings=_readings(pair),
        notes=(*warnings_of(pair.assumptions), *_remarks(pair)),
        words=found.summary,
    )


def followed(state: CurriculumState, value: float, stop: float) -> tuple[Plan, Curriculum]:
    """The plan with this first task and stop, and the curriculum of both tasks whether or not it pays."""
    target = state.task()
    network = state.network(target)
    own, first = taken_apart(state, network, target, (value,))
    fixed = _planned(state, network, own, first, stop)
    stages = [Stage(first.task, accuracy=stop), Stage(own.task, accuracy=state.accuracy)]
    pair = fixed.planner.follow(stages)
    # Where the stop does not pay, the paragraph is about the best that the first task could do.
    return fixed if fixed.pretrains else _planned(state, network, own, first, None), pair


def _planned(
    state: CurriculumState, network: LinearRNN | Activated, own: Modes, first: Modes, stop: float | None
) -> Plan:
    """What `learncast.plan` finds, for tasks that have been taken apart already."""
    terms = checked_terms(
        1,
        learning_rate=state.learning_rate,
        accuracy=state.accuracy,
        goal="modes",
        max_stages=2,
        costs=1.0,
        switch_cost=0.0,
        least_accuracy=stop,
        most_accuracy=stop,
        most_excess_loss=None,
    )
    return plan_by(ModePlanner(own, (first,), network, terms, strict=False), own.task, network)


def _course_panels(pair: Curriculum, alone: Curriculum) -> tuple[Panel, Panel]:
    ends = [t for t in (pair.flow_steps, alone.flow_steps) if math.isfinite(t)]
    last = 1.1 * max(ends, default=1000.0) or 1.0
    times = np.linspace(0.0, last, _POINTS)
    target = pair.modes[-1]
    strengths, losses = [], []
    for k, (way, name) in enumerate(((pair, "both stages"), (alone, "target alone"))):
        flow = way.at(times).dataset
        strengths.append(Trace("line", "theory", name, times, flow["strength"].values[:, 0], series=k))
        losses.append(Trace("line", "theory", name, times, flow["target_loss"].values, series=k))
        course = descended(way, last)
        if course is not None:
            strengths.append(Trace("steps", "descent", f"{name}, descent", course.steps, course.strength, series=k))
            loss = target.loss(course.strength[:, None])
            losses.append(Trace("steps", "descent", f"{name}, descent", course.steps, loss, series=k))
    best = float(target.optimum[0])
    strengths.append(Trace("line", "target", "the target's optimum", np.array([0.0, last]), np.full(2, best)))
    x, shades = Axis("training time", "steps", span=(0.0, last)), _stages(pair)
    return (
        Panel("strength", "What the network computes", x, Axis("effective strength", "target/input"), tuple(strengths),
              shades=shades),
        Panel("loss", "Loss of the target", x, Axis("loss of the target", "target^2"), tuple(losses), shades=shades),
    )  # fmt: skip


def _stages(pair: Curriculum) -> tuple[tuple[float, float, str], ...]:
    """Stretches of time in which each task is trained, as far as they end."""
    found, begin = [], 0.0
    for outcome in pair.outcomes:
        end = begin + outcome.flow_steps
        if not math.isfinite(end):
            break
        found.append((begin, end, outcome.stage.task.name))
        begin = end
    return tuple(found)


def _terms_panel(pair: Curriculum) -> Panel:
    """The three terms of the printed speedup, each in the steps that it is worth."""
    why = pair.why
    assert why is not None
    names = ("initial scale", "what the first task spends", "closeness to the target")
    terms = np.array([why.initial_scale, why.cross_ratio, why.closeness])
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = terms / (2 * pair.learning_rate * pair.modes[-1].weighted_cross[why.mode])
    return Panel(
        "terms",
        "Why",
        Axis("term of the speedup"),
        Axis("worth", "steps"),
        (Trace("bars", "theory", "printed speedup, term by term", np.array(names), _finite(steps)),),
    )


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, np.nan)


def _readings(pair: Curriculum) -> tuple[Reading, ...]:
    direct = float("nan") if pair.direct is None else pair.direct.flow_steps
    first, last = pair.outcomes
    total, saved = pair.flow_steps, pair.speedup_steps
    return (
        Reading("both stages", total, "steps", shown(total) + within(pair.interval)),
        Reading("direct training", direct, "steps", shown(direct) + within(pair.direct_interval)),
        Reading("saved", saved, "steps", shown(saved) + within(pair.speedup_interval)),
        Reading("first task", first.flow_steps, "steps", shown(first.flow_steps)),
        Reading("target after it", last.flow_steps, "steps", shown(last.flow_steps)),
        Reading("both stages by descent", pair.descent_steps, "steps", shown(pair.descent_steps)),
    )


def _remarks(pair: Curriculum) -> tuple[Note, ...]:
    why = pair.why
    assert why is not None
    notes = [Note(f"{why.sentence[:1].upper()}{why.sentence[1:]}.")]
    if math.isinf(why.closeness):
        notes.append(Note("The first task ends on the target's optimum: that term has no end, and no bar."))
    if abs(pair.descent_steps - pair.flow_steps) > 0.1 * pair.flow_steps and math.isfinite(pair.flow_steps):
        text = (
            f"Descent at this learning rate takes {shown(pair.descent_steps)} steps where the flow takes "
            f"{shown(pair.flow_steps)}: it ends the first task a little elsewhere, and here a little is much."
        )
        notes.append(Note(text, "warning"))
    if pair.speedup_steps < 0:
        text = f"Stopped here the first task costs {shown(-pair.speedup_steps)} steps more than it saves."
        notes.append(Note(text, "warning"))
    return tuple(notes)
