"""The curriculum room: where pretraining pays, and why."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from learncast.answers.answer import shown
from learncast.networks.activated import Activated
from learncast.planning.phase import PortraitTimes, portrait_times
from learncast.responses.response import TRIALS
from learncast.validation import FloatArray
from learncast.web.panel import Axis, Note, Panel, Reading, Trace, View
from learncast.web.room import Room
from learncast.web.rooms.curriculum_modes import taken_apart
from learncast.web.rooms.curriculum_pin import pinned
from learncast.web.rooms.curriculum_state import CONTROLS, MEASURED_COLUMNS, CurriculumState
from learncast.web.rooms.curriculum_study import study_of
from learncast.web.verdict import validity_of, warnings_of

#: Keywords whose ReLU responses do not follow from the target's own: each value is measured.
_MEASURED = ("timescale", "correlation")


def portrait_numbers(state: CurriculumState) -> PortraitTimes:
    """The portrait that the room draws; labelled it is what `learncast.phase_portrait` returns."""
    target = state.task()
    network = state.network(target)
    single = isinstance(network, Activated) and state.varied in _MEASURED
    values = values_measured(state) if single else state.values
    own, *each = taken_apart(state, network, target, tuple(values.tolist()) if single else ())
    return portrait_times(
        own,
        network,
        vary=state.varied,
        values=values,
        accuracies=state.stops,
        learning_rate=state.learning_rate,
        accuracy=state.accuracy,
        firsts=each or None,
        strict=False,
    )


def values_measured(state: CurriculumState) -> FloatArray:
    """The fewer values for which responses are measured one by one."""
    return np.linspace(*state.span, min(state.grid, MEASURED_COLUMNS))


@lru_cache(maxsize=64)
def portrait(state: CurriculumState) -> View:
    """Steps saved over the first task's value and its stop."""
    found = portrait_numbers(state)
    values, stops, saved = found.values, found.stops, found.speedup.T
    drawn = np.where(np.isfinite(saved), saved, np.nan)
    best = best_place(found)
    axis = state.varied.replace("_", " ")
    kind = "exact" if state.activation == "linear" else "response"
    return View(
        panels=(
            Panel(
                "portrait",
                "Steps saved by a first task",
                Axis(f"first task's {axis}", state.unit, span=state.span),
                Axis("accuracy at which it stops", "1", span=(float(stops[0]), float(stops[-1]))),
                _traces(state, values, stops, drawn, best),
                z=Axis("steps saved", "steps"),
                picks=("pin_value", "pin_accuracy"),
            ),
        ),
        validity=validity_of(kind, found.assumptions),
        readings=_readings(state, found, best),
        notes=(*warnings_of(found.assumptions), *_remarks(state, saved)),
    )


def best_place(found: PortraitTimes) -> tuple[int, int] | None:
    """Indices of the value and the stop that save most; None where nothing is known to be reached."""
    known = np.where(np.isnan(found.speedup), -np.inf, found.speedup)
    row, column = np.unravel_index(int(known.argmax()), known.shape)
    return (int(row), int(column)) if known[row, column] > -np.inf else None


def _traces(
    state: CurriculumState, values: FloatArray, stops: FloatArray, drawn: FloatArray, best: tuple[int, int] | None
) -> tuple[Trace, ...]:
    ends = np.array([stops[0], stops[-1]])
    found = [
        Trace("heat", "theory", "steps saved", values, stops, drawn),
        Trace("contour", "zero", "neither saves nor costs"),
        Trace("line", "target", "the target itself", np.full(2, state.own), ends),
    ]
    if best is not None:
        found.append(Trace("points", "best", "saves most", values[best[0] : best[0] + 1], stops[best[1] : best[1] + 1]))
    if state.pin is not None:
        found.append(Trace("points", "pinned", "pinned", np.array(state.pin[:1]), np.array(state.pin[1:])))
    return tuple(found)


def _readings(state: CurriculumState, found: PortraitTimes, best: tuple[int, int] | None) -> tuple[Reading, ...]:
    readings = [Reading("direct training", found.direct, "steps", shown(found.direct))]
    if best is not None:
        most, value, stop = (float(part) for part in (found.speedup[best], found.values[best[0]], found.stops[best[1]]))
        readings += [
            Reading("most steps saved", most, "steps", shown(most)),
            Reading(f"at {state.varied.replace('_', ' ')}", value, state.unit, f"{value:.4g}"),
            Reading("stopped at accuracy", stop, "1", f"{stop:.4g}"),
        ]
    return tuple(readings)


def _remarks(state: CurriculumState, saved: FloatArray) -> tuple[Note, ...]:
    notes = []
    never = int(np.isneginf(saved).sum() + np.isnan(saved).sum())
    if never:
        notes.append(Note(f"At {never} of {saved.size} points the target is never learned; they are left blank."))
    rescued = int(np.isposinf(saved).sum())
    if rescued:
        notes.append(Note(f"At {rescued} points the target is learned, which directly it never is; they are blank."))
    if (saved[np.isfinite(saved)] <= 0).all():
        notes.append(Note("Nowhere in this picture does pretraining pay."))
    if state.activation == "relu":
        trials = TRIALS["relu"]
        text = f"Responses are measured on {trials:,} trials; the pinned curriculum shows the interval that leaves."
        if state.varied in _MEASURED:
            columns = len(values_measured(state))
            text += f" Each of the {columns} first tasks is measured by itself, which takes a few seconds."
        notes.append(Note(text))
    return tuple(notes)


@lru_cache(maxsize=64)
def _study(state: CurriculumState) -> str:
    if state.pin is not None:
        return study_of(state, *state.pin)
    found = portrait_numbers(state)
    best = best_place(found)
    if best is None:
        return study_of(state, state.own, float(state.stops[-1]))
    return study_of(state, float(found.values[best[0]]), float(found.stops[best[1]]))


ROOM = Room(
    name="curriculum",
    title="Curriculum",
    introduction=(
        "Which first task shortens the way to the target, and when should it stop? Colours say how many steps are "
        "saved; click to follow one curriculum."
    ),
    state=CurriculumState,
    controls=CONTROLS,
    parts={"portrait": portrait, "pinned": pinned},
    study=_study,
    slow=lambda state: state.activation != "linear",
)
