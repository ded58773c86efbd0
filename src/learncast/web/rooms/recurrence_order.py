"""The order in which modes that learn their recurrence are learned."""

from __future__ import annotations

import math

import numpy as np

from learncast.answers.answer import shown
from learncast.recurrence.order import half_loss_time
from learncast.trajectory import STEPS
from learncast.web.panel import Axis, Note, Panel, Reading, Trace, View
from learncast.web.rooms.recurrence_learning import LearnedMode, learned_modes, rate_condition
from learncast.web.rooms.recurrence_setting import RecurrenceState, fit_of, mode_series
from learncast.web.verdict import validity_of

#: Initial recurrences at which the half-loss times of a frozen recurrence are drawn.
STARTS = np.linspace(-0.99, 0.99, 100)


def order(state: RecurrenceState) -> View:
    """Learning curves of the modes, and what is learned first."""
    modes = learned_modes(state)
    silent = len(mode_series(state)) - len(modes)
    notes = [] if not silent else [Note(f"{silent} of the modes ask for nothing and have nothing to learn.", "warning")]
    if not modes:
        return View((), validity_of("integrated"), notes=tuple(notes))
    condition = rate_condition(modes, state.learning_rate)
    if not condition.holds:
        text = f"Outside the theory: {condition.condition.otherwise}; {condition.condition.remedy}."
        notes.append(Note(text, "warning"))
    notes += [
        Note(f"The weights of mode {k} run away before the last step shown.", "error")
        for k, mode in enumerate(modes)
        if str(mode.path.status) != "ok"
    ]
    panels = (_curves(modes, state), _recurrences(modes, state), _times(modes, state))
    return View(panels, validity_of("integrated", (condition,)), _readings(modes, state), tuple(notes), _words(modes))


def _curves(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    traces = tuple(
        Trace("line", "theory", f"mode {k}", m.path.times / state.learning_rate, m.share, series=k)
        for k, m in enumerate(modes)
    )
    half = Trace("line", "threshold", "half", np.array([0.0, state.steps]), np.full(2, 0.5))
    axis = Axis("loss, of the first", "1")
    return Panel("learning", "Learning curves, recurrence learned", Axis("training time", STEPS), axis, (*traces, half))


def _recurrences(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    traces = []
    for k, m in enumerate(modes):
        best = fit_of(m.series).best.recurrence
        clock = m.path.times / state.learning_rate
        traces.append(Trace("line", "theory", f"mode {k}", clock, m.path.recurrence, series=k))
        if math.isfinite(best) and abs(best) <= 10:
            ends = np.array([0.0, state.steps])
            traces.append(Trace("line", "target", f"mode {k}, best", ends, np.full(2, best), series=k))
    axis = Axis("recurrence b", "1/step")
    return Panel("recurrence", "The recurrence while it learns", Axis("training time", STEPS), axis, tuple(traces))


def _times(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    """Half-loss times of a frozen recurrence over its value, and of a learned one from the present start."""
    traces = []
    for k, m in enumerate(modes):
        a, _, c = m.start
        steps = half_loss_time(
            m.series,
            recurrence=STARTS,
            input_weight=a,
            output_weight=c,
            learn_recurrence=False,
            learning_rate=state.learning_rate,
        ).steps
        drawn = np.where(np.isfinite(steps) & (steps > 0), steps, np.nan)
        traces.append(Trace("line", "theory", f"mode {k}, frozen", STARTS, drawn, series=k))
        if math.isfinite(m.half) and m.half > 0:
            now = np.array([state.recurrence]), np.array([m.half / state.learning_rate])
            traces.append(Trace("points", "pinned", f"mode {k}, learned", *now, series=k))
    return Panel(
        "half_loss",
        "Steps to half the loss, by the recurrence at the start",
        Axis("recurrence b at the start", "1/step", span=(-1.0, 1.0)),
        Axis("half-loss time", STEPS, scale="log"),
        tuple(traces),
    )


def _readings(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> tuple[Reading, ...]:
    found = []
    for k, m in enumerate(modes):
        learned, frozen = m.half / state.learning_rate, m.half_frozen / state.learning_rate
        words = shown(learned) if not math.isnan(learned) else f"not within {state.steps:.6g} steps"
        found += [
            Reading(f"mode {k} halves its loss, b learned", learned, STEPS, words),
            Reading(f"mode {k} halves its loss, b frozen", frozen, STEPS, shown(frozen)),
        ]
    last = modes[0].last.recurrence
    found.append(Reading("recurrence of mode 0 at the end shown", last, "1/step", f"{last:.5g}"))
    return tuple(found)


def _words(modes: tuple[LearnedMode, ...]) -> str:
    halved = sorted((m.half, k) for k, m in enumerate(modes) if math.isfinite(m.half))
    if len(modes) == 1 or not halved:
        return "" if halved else "No mode halves its loss in the training shown."
    names = ", then ".join(f"mode {k}" for _, k in halved)
    late = [f"mode {k}" for k, m in enumerate(modes) if not math.isfinite(m.half)]
    return f"Order of learning: {names}." + (f" Not within the training shown: {', '.join(late)}." if late else "")
