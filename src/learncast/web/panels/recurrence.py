"""The recurrence panel: the recurrence that fits a target best, and how it is learned."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from learncast._core.validation import FloatArray
from learncast.display import format_count
from learncast.study.study_file import to_toml
from learncast.theory.assumptions import Trust
from learncast.theory.recurrence.optimum import Optimum, RecurrenceFit
from learncast.theory.recurrence.order import half_loss_time
from learncast.theory.recurrence.stability import extrapolation, least_hidden_size
from learncast.theory.recurrence.tradeoff import (
    RecurrenceTransition,
    change_of_kind,
    loss_terms,
    zero_recurrence_warning,
)
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import Panel, help_texts, settings_line
from learncast.web.panels.drawn_series import (
    LARGEST,
    SMALLEST,
    TIMES,
    LearnedMode,
    RecurrenceState,
    continued,
    fit_of,
    half_loss_descent,
    learned_modes,
    mode_series,
    presets,
    rate_condition,
)
from learncast.web.view import FRAMES, Clock, Diagram, Note, Reading, View

#: Largest recurrences and other numbers that are drawn; larger ones are given as text.
WIDEST, HIGHEST = 6.0, 1e6
#: Weights of the past at which the best recurrence is computed; 1 is the series itself.
WEIGHTS = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 1.75, 2.0])
#: Initial recurrences at which the half-loss times of a fixed recurrence are drawn.
STARTS = np.linspace(-0.99, 0.99, 100)
#: Indices of the frames in `TIMES`.
_FRAME_TIMES = np.searchsorted(TIMES, np.linspace(0.0, 1.0, FRAMES))


LAG = ChartAxis("lag behind the readout", "steps")
STRENGTH = ChartAxis("strength of the target", "target/input")
RECURRENCE = ChartAxis("recurrence b", "1/step")
SHARE = ChartAxis("unexplained fraction of the target", "1", span=(0.0, 1.05))
WEIGHT = ChartAxis("weight of the past", "relative to the series", span=(0.0, 2.0))
TRAINING_TIME = ChartAxis("training time", "steps", clock=True)

EXACT = Trust((), "exact")
ZERO_SERIES = Note("All points are 0, so every recurrence fits equally well. Drag a point away from 0.", "warning")

_STABILITY_NOTES = {
    "runaway": Note("No finite recurrence is best: the loss keeps falling as b grows.", "error"),
    "unstable": Note("The best recurrence is unstable: activity grows on longer trials.", "warning"),
    "marginal": Note("The best recurrence is marginal: activity neither decays nor grows on longer trials."),
}

#: Titles of the parts that are shown one at a time.
TOPICS = {"order": "What is learned first", "stability": "Longer trials", "transition": "When memory pays"}


def study_of(state: RecurrenceState) -> str:
    """Return the study with which `learncast forecast` gives the numbers of the first mode."""
    target = {"name": "drawn series", "family": "sensory", "task": "weighted", "steps": len(state.series)}
    tables = {
        "name": "a learned recurrence",
        "network": {"kind": "linear-rnn", "hidden_size": 1, "recurrence": state.recurrence, "initial": state.initial},
        "training": {"learning_rate": state.learning_rate, "learn": ["input", "recurrent", "output"]},
        "target": {**target, "parameters": {"strengths": list(state.series)}},
    }
    return f"# learncast forecast this-file.toml\n{settings_line('recurrence', state)}\n{to_toml(tables)}"


def fit(state: RecurrenceState) -> View:
    """Show the series with the best exponential, and the loss of every recurrence."""
    s, best = np.array(state.series), fit_of(state.series).best
    lags, limit = np.arange(len(s)), max(1.5, 1.25 * float(np.abs(s).max()))
    traces = [
        Trace("points", "data", "series s", lags, s),
        Trace("line", "best", f"best exponential, {_formula(best)}", lags, _response(best, len(s))),
    ]
    frames = _response_frames(state)
    if frames is not None:
        now = frames[round(state.time * (FRAMES - 1))]
        name = "response of the network at this time"
        traces.append(Trace("line", "descent", name, lags, now, series=Series.MODE, frames=frames))
    title = "The target's strength at each lag"
    axis = ChartAxis(STRENGTH.label, STRENGTH.unit, span=(max(-limit, -LARGEST), min(limit, LARGEST)))
    chart = Chart("series", title, LAG, axis, tuple(traces), drags="series", main=True)
    units = float(least_hidden_size(s)) if s.any() else 0.0
    return View(
        (chart, _loss_chart(state.series)),
        EXACT,
        (*_best_readings(best), _reading("hidden units for an exact fit", units, "units")),
        _notes(state),
        answer=_answer(state, best),
        presets=presets(state.series),
        clock=None if frames is None else Clock.until(state.steps),
        diagram=_diagram(state),
    )


def _response_frames(state: RecurrenceState) -> FloatArray | None:
    """Return the first mode's response at each frame and lag."""
    if not any(state.series):
        return None
    path, lags = learned_modes(state)[0].path, np.arange(len(state.series), dtype=float)
    with np.errstate(over="ignore", invalid="ignore"):
        strength = (path.input * path.output)[_FRAME_TIMES, None]
        return _within(strength * path.recurrence[_FRAME_TIMES, None] ** lags, HIGHEST)


def _answer(state: RecurrenceState, best: Optimum) -> str:
    """Give the best recurrence, and the steps until half is learned."""
    if not any(state.series):
        return "This target is 0: there is nothing to learn."
    if not math.isfinite(best.recurrence):
        return "No finite recurrence is best: one unit cannot remember only the oldest input."
    left = f"{best.unexplained:.0%} of the target stays" if best.unexplained > 5e-5 else "nothing stays"
    text = f"The best recurrence is {best.recurrence:.3g} ({best.stability}), and {left} unexplained."
    steps = half_loss_descent(state.series, state)
    loss = "The loss" if len(learned_modes(state)) == 1 else "The loss of mode 1"
    if math.isfinite(steps):
        return f"{text} {loss} is halved after {steps:.0f} steps."
    return f"{text} {loss} is not halved within {state.steps:.0f} steps."


def _diagram(state: RecurrenceState) -> Diagram:
    strengths = (("target", np.array(state.series), Series.TARGET),)
    modes = learned_modes(state)
    if not modes:
        return Diagram("A target of 0", (), (), strengths)
    path = modes[0].path
    frames = [weight[_FRAME_TIMES] for weight in (path.input, path.recurrence, path.output)]
    own = "" if len(modes) == 1 else "; this is the unit of mode 1, and every mode has its own"
    caption = f"A linear unit with a trained recurrence{own}"
    return Diagram.single_unit(caption, tuple((float(weight[-1]), weight) for weight in frames), strengths)


def stability(state: RecurrenceState) -> View:
    """Show the response of the best exponential on longer trials, and what it leaves unexplained."""
    best, trained = fit_of(state.series).best, len(state.series)
    longest = max(trained + 1, round(state.reach * trained))
    lags = np.arange(longest)
    traces = (
        Trace("points", "data", "series s", lags, continued(state, lags)),
        Trace("line", "best", f"response, {_formula(best)}", lags, _response(best, longest)),
    )
    title, shade = (
        "The series continued, and the response of the best recurrence",
        (0.0, float(trained - 1), "trained on", Series.TARGET),
    )
    responses = Chart("continued", title, LAG, STRENGTH, traces, shades=(shade,))
    if not math.isfinite(best.recurrence):
        return View((responses,), EXACT, _best_readings(best), _notes(state))
    longer = extrapolation(best, lambda index: continued(state, index), range(trained, longest + 1), anchor="end")
    axes = ChartAxis("steps in a trial", "steps"), ChartAxis(SHARE.label, SHARE.unit)
    curve = Trace("line", "theory", "unexplained", longer.horizons, _within(longer.unexplained, HIGHEST))
    chart = Chart("extrapolation", "Unexplained on longer trials", *axes, (curve,))
    readings = (
        *_best_readings(best),
        _reading(f"unexplained at {longest} steps", float(longer.unexplained[-1]), "1"),
        _reading(f"loss at {longest} steps", float(longer.loss[-1]), "target^2"),
    )
    return View((responses, chart), EXACT, readings, _notes(state))


def weighted(series: tuple[float, ...], weight: float) -> tuple[float, ...]:
    """Return the series with everything before the last input multiplied by `weight`."""
    past = (weight * s for s in series[1:])
    return (series[0], *(s if abs(s) >= SMALLEST else 0.0 for s in past))


@lru_cache(maxsize=64)
def transition_of(series: tuple[float, ...]) -> RecurrenceTransition:
    """Return where the best recurrence changes its kind as the weight of the past grows.

    The full search of `learncast.theory.recurrence.tradeoff.transition` takes seconds. For an interactive chart this
    one looks at the largest change only and locates it to 1/4096 of its interval.
    """
    return change_of_kind(lambda w: fit_of(weighted(series, w)), WEIGHTS.tolist(), jumps=1, precision=2.0**-12)


def transition(state: RecurrenceState) -> View:
    """Show how the best recurrence depends on the weight of the past."""
    change, fits = transition_of(state.series), [fit_of(weighted(state.series, w)) for w in WEIGHTS.tolist()]
    best = np.array([fit.best.recurrence for fit in fits])
    span = 1.25 * max(1.0, float(np.abs(best[np.abs(best) <= WIDEST]).max(initial=0.0)))
    w, b = np.array([(w, o.recurrence) for w, fit in zip(WEIGHTS, fits, strict=True) for o in fit.optima]).T
    ends = np.array([-span, span])
    traces = [
        Trace("points", "null", "local optima", w, _within(b, span)),
        Trace("line", "best", "best recurrence", *_best_line(change, best, span)),
        Trace("line", "pinned", "the series itself", np.ones(2), ends),
    ]
    if not math.isnan(change.parameter):
        traces.append(Trace("line", "threshold", f"transition, {change.kind}", np.full(2, change.parameter), ends))
    axis = ChartAxis(RECURRENCE.label, RECURRENCE.unit, span=(-span, span))
    title = "Best recurrence, and other optima in which training can end"
    readings = (
        _reading("transition at a weight of", change.parameter, WEIGHT.unit, unknown="none between 0.05 and 2"),
        _reading("best recurrence below", change.below, RECURRENCE.unit),
        _reading("best recurrence above", change.above, RECURRENCE.unit),
        *_best_readings(fit_of(state.series).best),
    )
    charts = (Chart("best_recurrence", title, WEIGHT, axis, tuple(traces)), _use_of_past(state, fits))
    return View(charts, EXACT, readings, () if any(state.series) else (ZERO_SERIES,), _transition_text(change))


def _use_of_past(state: RecurrenceState, fits: list[RecurrenceFit]) -> Chart:
    """Show the unexplained fraction with the best recurrence, and without recurrence."""
    terms = loss_terms(1.0, 0.0, 1.0, [weighted(state.series, w) for w in WEIGHTS.tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):  # nan for a series of zeros
        feedforward = terms.least_loss / terms.constant
    traces = (
        Trace("line", "null", "without recurrence", WEIGHTS, feedforward),
        Trace("line", "best", "best recurrence", WEIGHTS, np.array([fit.best.unexplained for fit in fits])),
        Trace("line", "pinned", "the series itself", np.ones(2), np.array([0.0, 1.0])),
    )
    return Chart("use_of_past", "Value of memory", WEIGHT, SHARE, traces)


def _best_line(change: RecurrenceTransition, best: FloatArray, span: float) -> tuple[FloatArray, FloatArray]:
    """Return the best recurrence over the weights, with a gap at a jump."""
    if change.kind != "first order":
        return WEIGHTS, _within(best, span)
    n = [int(np.searchsorted(WEIGHTS, change.parameter))] * 3
    sides = np.array([change.below, np.nan, change.above])
    return np.insert(WEIGHTS, n, change.parameter), _within(np.insert(best, n, sides), span)


def _transition_text(change: RecurrenceTransition) -> str:
    if change.kind == "first order":
        jump = f"the best recurrence jumps from {_number(change.below)} to {_number(change.above)}"
        return f"At a weight of {change.parameter:.6g} {jump}. Near it the initial weights decide where training ends."
    if change.kind == "continuous":
        return f"The best recurrence departs continuously from 0 at a weight of {change.parameter:.4g}."
    return "The best recurrence changes smoothly: there is no transition in this range."


def _loss_chart(series: tuple[float, ...]) -> Chart:
    """Show the loss of every recurrence with the best strength for it."""
    best, optima = fit_of(series).best, fit_of(series).optima
    finite = [o for o in optima if abs(o.recurrence) <= WIDEST]
    span = 1.25 * max([1.0, *(abs(o.recurrence) for o in finite)])
    grid = np.linspace(-span, span, 401)
    traces = [Trace("line", "theory", "loss at the best strength", grid, loss_terms(1.0, grid, 1.0, series).least_loss)]
    others, chosen = ([o for o in finite if (o is best) == own] for own in (False, True))
    if others:
        traces.append(Trace("points", "null", "other minima", *np.array([(o.recurrence, o.loss) for o in others]).T))
    if chosen:
        traces.append(Trace("points", "best", "best", np.array([best.recurrence]), np.array([best.loss])))
    axis = ChartAxis("half mean squared error", "target^2")
    return Chart("loss", "Loss against the recurrence", RECURRENCE, axis, tuple(traces))


def _best_readings(best: Optimum) -> tuple[Reading, ...]:
    return (
        _reading("best recurrence b", best.recurrence, RECURRENCE.unit, more=f" ({best.stability})"),
        _reading("best strength a", best.strength, STRENGTH.unit),
        _reading("unexplained fraction", best.unexplained, "1"),
    )


def _reading(label: str, value: float, unit: str, *, more: str = "", unknown: str = "unknown") -> Reading:
    return Reading(label, value, unit, unknown if math.isnan(value) else _number(value) + more)


def _number(value: float) -> str:
    if math.isinf(value):
        return "infinite" if value > 0 else "infinite, negative"
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"


def _notes(state: RecurrenceState) -> tuple[Note, ...]:
    if not any(state.series):
        return (ZERO_SERIES,)
    best, notes = fit_of(state.series).best, []
    if best.stability in _STABILITY_NOTES:
        notes.append(_STABILITY_NOTES[best.stability])
    stuck = zero_recurrence_warning(state.series, recurrence=state.recurrence)
    if stuck:
        notes.append(Note(f"{stuck[0].upper()}{stuck[1:]}.", "error"))
    return tuple(notes)


def _formula(best: Optimum) -> str:
    return f"{_number(best.strength)} × ({_number(best.recurrence)})^lag"


def _response(best: Optimum, lags: int) -> FloatArray:
    """Return the response of a mode at each lag, nan if it is too large to draw."""
    if not math.isfinite(best.recurrence) or not math.isfinite(best.strength):
        return np.full(lags, np.nan)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _within(best.strength * best.recurrence ** np.arange(lags, dtype=float), HIGHEST)


def _within(values: FloatArray, span: float) -> FloatArray:
    """Replace values beyond `span` by nan, which is not drawn."""
    return np.where(np.abs(values) <= span, values, np.nan)


def order(state: RecurrenceState) -> View:
    """Show the learning curves of the modes, and which is learned first."""
    modes = learned_modes(state)
    silent = len(mode_series(state)) - len(modes)
    notes = [Note(f"{silent} of the modes are 0 and have nothing to learn.", "warning")] if silent else []
    if not modes:
        return View(trust=Trust((), "integrated"), notes=tuple(notes))
    diverging = [k for k, mode in enumerate(modes) if str(mode.path.status) != "ok"]
    notes += [Note(f"The weights of mode {k + 1} diverge before the last step shown.", "error") for k in diverging]
    return View(
        (*_training_charts(modes, state), _half_loss_times(modes, state)),
        Trust((rate_condition(modes, state.learning_rate),), "integrated"),
        _order_readings(modes, state),
        tuple(notes),
        _order_text(modes),
        clock=Clock.until(state.steps),
    )


def _training_charts(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> tuple[Chart, Chart]:
    """Show the loss and the recurrence of every mode during training."""
    losses, recurrences, ends = [], [], np.array([0.0, state.steps])
    for k, mode in enumerate(modes):
        path, series, best = mode.path, Series.MODE + k, fit_of(mode.series).best.recurrence
        times = path.times / state.learning_rate
        losses.append(Trace("line", "data", f"mode {k + 1}", times, path.loss / path.loss[0], series=series))
        recurrences.append(Trace("line", "data", f"mode {k + 1}", times, path.recurrence, series=series))
        if math.isfinite(best) and abs(best) <= 10:
            recurrences.append(Trace("line", "target", f"mode {k + 1}, best", ends, np.full(2, best), series=series))
    losses.append(Trace("line", "threshold", "half", ends, np.full(2, 0.5)))
    axis = ChartAxis("loss relative to the initial loss", "1")
    return (
        Chart("learning", "Learning curves, recurrence trained", TRAINING_TIME, axis, tuple(losses)),
        Chart("recurrence", "Recurrence during training", TRAINING_TIME, RECURRENCE, tuple(recurrences)),
    )


def _half_loss_times(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Chart:
    """Show the half-loss times over the initial recurrence if it is fixed, and from this one if it is trained."""
    traces, least = [], state.recurrence
    for k, mode in enumerate(modes):
        start = mode.start._asdict() | {"recurrence": STARTS}
        steps = half_loss_time(mode.series, **start, learn_recurrence=False, learning_rate=state.learning_rate).steps
        positive = np.where(np.isfinite(steps) & (steps > 0), steps, np.nan)
        traces.append(Trace("line", "data", f"mode {k + 1}, fixed", STARTS, positive, series=Series.MODE + k))
        least = min([least, *STARTS[np.isfinite(positive)]])
        if math.isfinite(mode.half) and mode.half > 0:
            now = np.array([state.recurrence]), np.array([mode.half / state.learning_rate])
            traces.append(Trace("points", "pinned", f"mode {k + 1}, trained", *now, series=Series.MODE + k))
    axes = (
        ChartAxis("initial recurrence b", "1/step", span=(max(-1.0, float(least) - 0.05), 1.0)),
        ChartAxis("half-loss time", "steps", scale="log"),
    )
    return Chart("half_loss", "Steps to half the loss, by initial recurrence", *axes, tuple(traces))


def _order_readings(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> tuple[Reading, ...]:
    readings = []
    for k, mode in enumerate(modes):
        trained, fixed = mode.half / state.learning_rate, mode.half_fixed / state.learning_rate
        descent, label = half_loss_descent(mode.series, state), f"mode {k + 1} halves its loss, b"
        descent_text = "not computed" if math.isnan(descent) else format_count(descent)
        flow, late = Reading.flow(f"{label} trained", trained), f"not within {state.steps:.6g} steps"
        readings += [
            Reading(f"{label} trained", descent, "steps", descent_text),
            Reading(flow.label, trained, "steps", late) if math.isnan(trained) else flow,
            Reading.flow(f"{label} fixed", fixed),
        ]
    return (*readings, _reading("final recurrence of mode 1", modes[0].last.recurrence, "1/step"))


def _order_text(modes: tuple[LearnedMode, ...]) -> str:
    halved = sorted((mode.half, k) for k, mode in enumerate(modes) if math.isfinite(mode.half))
    if len(modes) == 1 or not halved:
        return "" if halved else "No mode halves its loss in the training shown."
    names = ", then ".join(f"mode {k + 1}" for _, k in halved)
    late = [f"mode {k + 1}" for k, mode in enumerate(modes) if not math.isfinite(mode.half)]
    return f"Order of learning: {names}." + (f" Not within the training shown: {', '.join(late)}." if late else "")


PANEL = Panel(
    name="recurrence",
    **help_texts("recurrence"),
    state=RecurrenceState,
    parts={"fit": fit, "stability": stability, "transition": transition, "order": order},
    study=study_of,
    topics=TOPICS,
)
