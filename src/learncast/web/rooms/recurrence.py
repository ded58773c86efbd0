"""The Recurrence room: the recurrence that a target asks for, and how it is learned."""

from __future__ import annotations

import math

import numpy as np

from learncast.recurrence.stability import Optimum, extrapolation, least_hidden_size
from learncast.recurrence.tradeoff import loss_terms, zero_recurrence_warning
from learncast.validation import FloatArray
from learncast.web.panel import Axis, Note, Panel, Reading, Role, Trace, View
from learncast.web.room import Room
from learncast.web.rooms.recurrence_order import order
from learncast.web.rooms.recurrence_setting import LARGEST, RecurrenceState, continued, controls, fit_of, presets
from learncast.web.rooms.recurrence_study import study_of
from learncast.web.rooms.recurrence_transition import WEIGHTS, Turn, turn_of, weighed
from learncast.web.verdict import validity_of

LAG = Axis("lag behind the readout", "steps")
STRENGTH = Axis("strength of the target", "target/input")
RECURRENCE = Axis("recurrence b", "1/step")
SHARE = Axis("unexplained share of the target", "1", span=(0.0, 1.05))
#: Recurrences that a picture shows at most; further ones are told in words.
WIDEST = 6.0

SILENT = Note("This series asks for nothing: every recurrence does equally well. Drag a point away from 0.", "warning")


def fit(state: RecurrenceState) -> View:
    """The series with the best exponential through it, and the loss of every recurrence."""
    s, found = np.array(state.series), fit_of(state.series)
    lags, best = np.arange(len(s)), found.best
    reach = max(1.5, 1.25 * float(np.abs(s).max()))
    series = Panel(
        "series",
        "Drag the points: what the target asks for",
        LAG,
        Axis(STRENGTH.label, STRENGTH.unit, span=(max(-reach, -LARGEST), min(reach, LARGEST))),
        (
            Trace("points", "data", "series s", lags, s),
            Trace("line", "best", f"best exponential, {_geometric(best)}", lags, _response(best, len(s))),
        ),
        grips="series",
    )
    readings = (
        *_best_readings(best),
        _reading("hidden units for an exact fit", float(least_hidden_size(s)) if s.any() else 0.0, "units"),
    )
    return View(
        (series, _loss_panel(state.series)),
        validity_of("exact"),
        readings,
        _notes(state),
        _sentence(state),
        {"presets": presets(state.series)},
    )


def stability(state: RecurrenceState) -> View:
    """The best exponential on longer trials: what it answers, and what it leaves unexplained."""
    best, trained = fit_of(state.series).best, len(state.series)
    longest = max(trained + 1, round(state.reach * trained))
    lags = np.arange(longest)
    answers = Panel(
        "continued",
        "The series continued, and the response of the best recurrence",
        LAG,
        STRENGTH,
        (
            Trace("points", "data", "series s", lags, continued(state, lags)),
            Trace("line", "best", f"response, {_geometric(best)}", lags, _response(best, longest)),
        ),
        shades=((0.0, float(trained - 1), "trained on"),),
    )
    if not math.isfinite(best.recurrence):
        return View((answers,), validity_of("exact"), _best_readings(best), _notes(state))
    horizons = range(trained, longest + 1)
    told = extrapolation(best, lambda index: continued(state, index), horizons, anchor="end")
    reach = Panel(
        "extrapolation",
        "Unexplained on longer trials",
        Axis("steps in a trial", "steps"),
        Axis(SHARE.label, SHARE.unit),
        (Trace("line", "theory", "unexplained", told.horizons, _drawable(told.unexplained)),),
    )
    readings = (
        *_best_readings(best),
        _reading(f"unexplained at {longest} steps", float(told.unexplained[-1]), "1"),
        _reading(f"loss at {longest} steps", float(told.loss[-1]), "target^2"),
    )
    return View((answers, reach), validity_of("exact"), readings, _notes(state))


def transition(state: RecurrenceState) -> View:
    """How the best recurrence changes as everything before the last input counts more or less."""
    found = turn_of(state.series)
    weight = Axis("weight of the past", "of the drawn series", span=(0.0, 2.0))
    now = fit_of(state.series).best
    heights = found.best[np.abs(found.best) <= WIDEST]
    span = 1.25 * max(1.0, float(np.abs(heights).max(initial=0.0)))
    optima = [(w, o.recurrence) for w, f in zip(WEIGHTS, found.fits, strict=True) for o in f.optima]
    w, b = (np.array(column) for column in zip(*optima, strict=True))
    marks = (
        Trace("line", "pinned", "the series as drawn", np.ones(2), np.array([-span, span])),
        *_threshold(found, span),
    )
    picture = Panel(
        "best_recurrence",
        "Best recurrence, and rivals that training can end in",
        weight,
        Axis(RECURRENCE.label, RECURRENCE.unit, span=(-span, span)),
        (
            Trace("points", "null", "local optima", w, _within(b, span)),
            Trace("line", "best", "best recurrence", *_best_line(found, span)),
            *marks,
        ),
    )
    notes = () if any(state.series) else (SILENT,)
    readings = (
        _reading("transition at a weight of", found.weight, weight.unit, none="none found from 0.05 to 2"),
        _reading("best recurrence below", found.below, RECURRENCE.unit),
        _reading("best recurrence above", found.above, RECURRENCE.unit),
        *_best_readings(now),
    )
    return View((picture, _use_of_past(state, found)), validity_of("exact"), readings, notes, _turn_words(found))


def _use_of_past(state: RecurrenceState, found: Turn) -> Panel:
    """What is left unexplained with the best recurrence, and with none."""
    series = np.array([weighed(state.series, w) for w in WEIGHTS.tolist()])
    terms = loss_terms(1.0, 0.0, 1.0, series)
    with np.errstate(divide="ignore", invalid="ignore"):  # a series of zeros leaves an unknown share
        feedforward = 1 - terms.data**2 / (4 * terms.regulariser * terms.constant)
    recurrent = np.array([f.best.unexplained for f in found.fits])
    return Panel(
        "use_of_past",
        "What remembering is worth",
        Axis("weight of the past", "of the drawn series", span=(0.0, 2.0)),
        SHARE,
        (
            Trace("line", "null", "without recurrence", WEIGHTS, feedforward),
            Trace("line", "best", "best recurrence", WEIGHTS, recurrent),
            Trace("line", "pinned", "the series as drawn", np.ones(2), np.array([0.0, 1.0])),
        ),
    )


def _best_line(found: Turn, span: float) -> tuple[FloatArray, FloatArray]:
    """The best recurrence over the weights, broken where it jumps."""
    weights, best = WEIGHTS, _within(found.best, span)
    if found.kind == "first order":
        n = int(np.searchsorted(WEIGHTS, found.weight))
        sides = _within(np.array([found.below, np.nan, found.above]), span)
        weights, best = np.insert(weights, [n] * 3, found.weight), np.insert(best, [n] * 3, sides)
    return weights, best


def _threshold(found: Turn, span: float) -> tuple[Trace, ...]:
    if math.isnan(found.weight):
        return ()
    ends = np.array([-span, span])
    return (Trace("line", "threshold", f"transition, {found.kind}", np.full(2, found.weight), ends),)


def _turn_words(found: Turn) -> str:
    if found.kind == "first order":
        return (
            f"At a weight of {found.weight:.6g} the best recurrence jumps from {_number(found.below)} to "
            f"{_number(found.above)}; around it both are optima, and the end of training depends on its start."
        )
    if found.kind == "continuous":
        return f"The best recurrence leaves 0 without a jump at a weight of {found.weight:.4g}."
    return "The best recurrence changes smoothly: there is no transition in this range."


def _loss_panel(series: tuple[float, ...]) -> Panel:
    """Loss of every recurrence with the best strength for it: constant + data + regulariser at u = -data / 2 reg."""
    optima, best = fit_of(series).optima, fit_of(series).best
    finite = [o for o in optima if abs(o.recurrence) <= WIDEST]
    span = 1.25 * max([1.0, *(abs(o.recurrence) for o in finite)])
    grid = np.linspace(-span, span, 401)
    unit = loss_terms(1.0, grid, 1.0, series)
    u = -unit.data / (2 * unit.regulariser)
    loss = unit.constant + u * unit.data + u * u * unit.regulariser
    others = [o for o in finite if o is not best]
    marks: tuple[tuple[Role, str, list[Optimum]], ...] = (
        ("null", "other minima", others),
        ("best", "best", [best] if best in finite else []),
    )
    traces = [
        Trace("points", role, name, np.array([o.recurrence for o in of]), np.array([o.loss for o in of]))
        for role, name, of in marks
        if of
    ]
    curve = Trace("line", "theory", "loss at the best strength", grid, loss)
    axis = Axis("half mean squared error", "target^2")
    return Panel("loss", "Loss against the recurrence", RECURRENCE, axis, (curve, *traces))


def _best_readings(best: Optimum) -> tuple[Reading, ...]:
    return (
        _reading("best recurrence b", best.recurrence, RECURRENCE.unit, more=f" ({best.stability})"),
        _reading("best strength a", best.strength, STRENGTH.unit),
        _reading("unexplained share", best.unexplained, "1"),
    )


def _reading(label: str, value: float, unit: str, *, more: str = "", none: str = "unknown") -> Reading:
    return Reading(label, value, unit, none if math.isnan(value) else _number(value) + more)


def _number(value: float) -> str:
    if math.isinf(value):
        return "without bound" if value > 0 else "without bound, negative"
    return f"{0.0 if abs(value) < 1e-12 else value:.5g}"


def _notes(state: RecurrenceState) -> tuple[Note, ...]:
    if not any(state.series):
        return (SILENT,)
    best, found = fit_of(state.series).best, []
    if best.stability == "runaway":
        found.append(Note("No finite recurrence is best: the loss keeps falling as b grows without bound.", "error"))
    elif best.stability == "unstable":
        found.append(Note("The best recurrence is unstable: activity grows on longer trials.", "warning"))
    elif best.stability == "marginal":
        found.append(Note("The best recurrence is marginal: activity neither decays nor grows on longer trials."))
    stuck = zero_recurrence_warning(state.series, recurrence=state.recurrence)
    if stuck:
        found.append(Note(f"{stuck[0].upper()}{stuck[1:]}.", "error"))
    return tuple(found)


def _sentence(state: RecurrenceState) -> str:
    best = fit_of(state.series).best
    if not any(state.series) or not math.isfinite(best.recurrence):
        return ""
    return f"The best exponential is {_geometric(best)}; it leaves {best.unexplained:.2%} of the target unexplained."


def _geometric(best: Optimum) -> str:
    return f"{_number(best.strength)} × ({_number(best.recurrence)})^lag"


def _response(best: Optimum, lags: int) -> FloatArray:
    """Response of a mode at each lag; left out where it is beyond drawing."""
    if not math.isfinite(best.recurrence) or not math.isfinite(best.strength):
        return np.full(lags, np.nan)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _drawable(best.strength * best.recurrence ** np.arange(lags, dtype=float))


def _drawable(values: FloatArray) -> FloatArray:
    """Values of a size that can be drawn; others are left out."""
    return np.where(np.abs(values) <= 1e6, values, np.nan)


def _within(values: FloatArray, span: float) -> FloatArray:
    return np.where(np.abs(values) <= span, values, np.nan)


ROOM = Room(
    name="recurrence",
    title="Recurrence",
    introduction=(
        "A target weighs white inputs by their age. Drag its strengths and see the recurrence that fits them best, "
        "whether it is stable on longer trials, when remembering pays, and what is learned first."
    ),
    state=RecurrenceState,
    controls=controls(),
    parts={"fit": fit, "stability": stability, "transition": transition, "order": order},
    study=study_of,
)
