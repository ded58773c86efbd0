"""The Prior knowledge room: what a network that knows one task learns and forgets on the next."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from learncast.answers.answer import shown
from learncast.errors import InvalidSpec
from learncast.trajectory import STEPS
from learncast.validation import FloatArray
from learncast.web.panel import Axis, Note, Panel, Reading, Trace, Validity, View
from learncast.web.room import Room
from learncast.web.rooms.prior_knowledge_setting import (
    NAMES,
    POINTS,
    Course,
    PriorKnowledgeState,
    controls,
    course_of,
    study_of,
)
from learncast.web.verdict import validity_of

#: Losses below this are what rounding leaves of zero.
ROUNDING = 1e-12
CLOCK = Axis("training time", STEPS)
LOSS = Axis("half mean squared error", "target^2")


def _within_theory(
    part: Callable[[PriorKnowledgeState, Course], View],
) -> Callable[[PriorKnowledgeState], View]:
    """Show a part, or say in a note why there is no such start."""

    @functools.wraps(part)
    def shown_part(state: PriorKnowledgeState) -> View:
        try:
            course = course_of(state)
        except InvalidSpec as error:  # a balance that these sizes cannot have: a legal setting without a network
            return View((), validity_of("outside"), notes=(Note(str(error), "warning"),))
        return part(state, course)

    return shown_part


@_within_theory
def learning(state: PriorKnowledgeState, course: Course) -> View:
    """Losses of both tasks, and strengths of the modes of the one in training."""
    return View(
        (_losses(state, course), _strengths(course)),
        _validity(course),
        _readings(course),
        _notes(course),
    )


@_within_theory
def grams(state: PriorKnowledgeState, course: Course) -> View:
    """The network's gram matrices and its map at one moment, beside the map that the task in training asks for."""
    stage, steps = course.moment(state.time)
    solution = course.found.solutions[stage]
    now = solution.at([steps])
    task = NAMES[stage]
    pictures = (
        ("input_gram", "Input gram matrix, W1'W1", "input", "input", now["input_gram"].values[0]),
        ("output_gram", "Output gram matrix, W2 W2'", "output", "output", now["output_gram"].values[0]),
        ("network_function", "Network function, W2 W1", "output", "input", now["network_function"].values[0]),
        ("wanted", f"What {task} asks for", "output", "input", solution.problem.cross),
    )
    elapsed = float(course.begun[stage] + steps)
    readings = (
        Reading("time", elapsed, STEPS, f"{elapsed:.4g}, in the stage of {task}"),
        _loss_reading(f"loss of {task}", now["loss"].values[0]),
    )
    # One scale for all moments, so that colours can be compared while the time is moved.
    wanted = max(float(np.abs(one.problem.cross).max()) for one in course.found.solutions)
    panels = tuple(_matrix(*picture, largest=wanted) for picture in pictures)
    return View(panels, _validity(course), readings, _notes(course))


@_within_theory
def forgetting(state: PriorKnowledgeState, course: Course) -> View:
    """Loss of either task after every stage, and how much each stage changed it."""
    loss, change = course.found.loss, course.found.forgetting
    after = tuple(f"after {name}" for name in NAMES)
    panels = (
        _table("loss_after", "Loss of each task", ("at the start", *after), loss.values, "half mean squared error"),
        _table("forgetting", "Change of loss (above 0: forgotten)", after, change.values, "change of loss"),
    )
    forgotten = float(change.values[1, 0])
    words = (
        f"Learning task B raises the loss of task A by {forgotten:.4g}."
        if forgotten > ROUNDING
        else "Learning task B does not raise the loss of task A: nothing is forgotten."
    )
    return View(panels, _validity(course), _readings(course), _notes(course), words)


def _losses(state: PriorKnowledgeState, course: Course) -> Panel:
    curves = course.curves
    clock, losses = curves["time"].values, curves["loss"].values
    traces = [Trace("line", "theory", f"loss of {name}", clock, losses[:, k], series=k) for k, name in enumerate(NAMES)]
    if course.found.steps[0] > 0:
        after = clock[POINTS:]
        naive = course.naive.at(after - after[0])["loss"].values
        traces.append(Trace("line", "null", "task B unprepared", after, naive, series=2))
    now = state.time * float(course.begun[-1])
    traces.append(Trace("line", "pinned", "time shown below", np.array([now, now]), np.array([0.0, losses.max()])))
    return Panel("losses", "Loss of both tasks", CLOCK, LOSS, tuple(traces), shades=_stages(course))


def _strengths(course: Course) -> Panel:
    traces: list[Trace] = []
    for stage, (solution, name) in enumerate(zip(course.found.solutions, NAMES, strict=True)):
        if course.found.steps[stage] == 0:
            continue
        clock = course.curves["time"].values[stage * POINTS : (stage + 1) * POINTS]
        strength = solution.at(clock - clock[0])["strength"].values
        for k, best in enumerate(solution.optimum):
            label = f"{name}, mode {k}"
            ends = np.array([clock[0], clock[-1]])
            # The shades tell the tasks apart, the dashes what is asked for.
            alone = not any(trace.series == k for trace in traces)
            traces.append(Trace("line", "theory", label, clock, strength[:, k], series=k, legend=alone))
            asked = f"{label}, asked for"
            traces.append(Trace("line", "target", asked, ends, np.full(2, best), series=k, legend=len(traces) == 1))
    axis = Axis("strength of the mode", "target/input")
    return Panel("strengths", "Modes of the task in training", CLOCK, axis, tuple(traces), shades=_stages(course))


def _stages(course: Course) -> tuple[tuple[float, float, str], ...]:
    begun = course.begun.tolist()
    return tuple(
        (begun[k], begun[k + 1], f"training {name}") for k, name in enumerate(NAMES) if begun[k + 1] > begun[k]
    )


def _matrix(key: str, title: str, rows: str, columns: str, values: FloatArray, *, largest: float) -> Panel:
    height, width = values.shape
    x, y = tuple(f"{columns} {k}" for k in range(width)), tuple(f"{rows} {k}" for k in range(height))
    heat = Trace("heat", "theory", title, x, y, np.array(values, dtype=float))
    unit = "target/input" if rows != columns else "1"
    end = max(largest, float(np.abs(values).max()))
    colour = Axis("value", unit, span=(-end, end))
    return Panel(key, title, Axis(columns, "channel"), Axis(rows, "channel"), (heat,), colour)


def _table(key: str, title: str, rows: tuple[str, ...], values: FloatArray, colour: str) -> Panel:
    heat = Trace("heat", "theory", title, NAMES, rows, np.array(values, dtype=float))
    return Panel(key, title, Axis("loss of", "task"), Axis("stage", "task"), (heat,), Axis(colour, LOSS.unit))


def _readings(course: Course) -> tuple[Reading, ...]:
    first, second, naive = course.steps_to_learn
    loss, change = course.found.loss.values, course.found.forgetting.values
    stay = course.found.steps[0]
    late = f", beyond its stage of {stay:.4g}" if math.isfinite(first) and first > stay else ""
    return (
        Reading("task A is learned in", first, STEPS, shown(first) + late),
        Reading("task B is learned in", second, STEPS, shown(second)),
        Reading("task B without prior knowledge", naive, STEPS, shown(naive)),
        _loss_reading("forgotten of task A", change[1, 0]),
        _loss_reading("final loss of task A", loss[-1, 0]),
        _loss_reading("final loss of task B", loss[-1, 1]),
    )


def _loss_reading(label: str, value: float) -> Reading:
    """A loss for people; what rounding leaves of zero is zero."""
    return Reading(label, float(value), LOSS.unit, f"{0.0 if abs(value) < ROUNDING else value:.4g}")


def _validity(course: Course) -> Validity:
    return validity_of(course.found.forecast_class, course.found.assumptions)


def _notes(course: Course) -> tuple[Note, ...]:
    broken = [a for a in course.found.assumptions if a.condition.binding and not a.holds]
    return (
        *(Note(f"{remark[:1].upper()}{remark[1:]}.", "error") for remark in course.remarks),
        *(Note(f"Outside the theory: {a.condition.otherwise}; {a.condition.remedy}.", "warning") for a in broken),
    )


ROOM = Room(
    name="prior-knowledge",
    title="Prior knowledge",
    introduction=(
        "A two-layer linear network learns task A and then task B, whose input and output directions are turned. See "
        "what it already knows, what it forgets, and from which starts it never learns."
    ),
    state=PriorKnowledgeState,
    controls=controls(),
    parts={"learning": learning, "grams": grams, "forgetting": forgetting},
    study=study_of,
)
