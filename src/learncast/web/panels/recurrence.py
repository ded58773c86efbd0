"""The Recurrence room: the recurrence that a target asks for, and how it is learned."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field

from learncast._core.validation import FloatArray
from learncast.card import shown, whole
from learncast.networks.linear_rnn import LinearRNN
from learncast.procedure.goals import Loss
from learncast.procedure.training import Training
from learncast.results import STEPS, Status
from learncast.study.study_file import to_toml
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.descent import descend
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.recurrent_mode import ModeTrajectory, mode_trajectory
from learncast.theory.recurrence.long_run import ModeStart, weights_at
from learncast.theory.recurrence.order import crossing_time, half_loss_time
from learncast.theory.recurrence.stability import (
    Optimum,
    RecurrenceFit,
    best_recurrence,
    extrapolation,
    largest_stable_rate,
    least_hidden_size,
)
from learncast.theory.recurrence.tradeoff import Transition, change_of_kind, loss_terms, zero_recurrence_warning
from learncast.web.guide import RECURRENCE as EXAMPLES
from learncast.web.guide import RECURRENCE_WORDS
from learncast.web.panel import (
    MODES,
    MOMENTS,
    TARGET,
    Axis,
    Clock,
    Drawing,
    Edge,
    Note,
    Panel,
    Reading,
    Role,
    Trace,
    View,
    validity_of,
    warnings_of,
)
from learncast.web.room import Room, State, control

#: What a point of the series may be, and the size below which it is 0: nobody drags more finely.
LARGEST, SMALLEST = 5.0, 1e-6
MOST_LAGS = 40
#: Steps of descent that are counted one by one.
MOST_COUNTED = 2_000

Strength = Annotated[
    float, Field(ge=-LARGEST, le=LARGEST), AfterValidator(lambda value: value if abs(value) >= SMALLEST else 0.0)
]

LAG = Axis("lag behind the readout", "steps")
STRENGTH = Axis("strength of the target", "target/input")
RECURRENCE = Axis("recurrence b", "1/step")
SHARE = Axis("unexplained share of the target", "1", span=(0.0, 1.05))
#: Recurrences, and other numbers, that a picture shows at most; further ones are told in words.
WIDEST, HIGHEST = 6.0, 1e6
#: Weights of the past at which the best recurrence is looked for; 1 is the series as it is drawn.
WEIGHTS = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 1.75, 2.0])
WEIGHT = Axis("weight of the past", "of the drawn series", span=(0.0, 2.0))

SILENT = Note("This series asks for nothing: every recurrence does equally well. Drag a point away from 0.", "warning")

_task = partial(control, group="The task")
_start = partial(control, group="The network at the start", folded=True)
_order = partial(control, group="Order of learning", folded=True)
#: What a tab calls each part beside the fit.
TOPICS = {"order": "What is learned first", "stability": "Longer trials", "transition": "When remembering pays"}
_AGE = "covariance of the target with the input so many steps before it; drag the points"
_BEYOND = {"silent": "do not count", "held": "count like the oldest", "repeated": "begin again"}


class RecurrenceState(State):
    """What the room's controls say."""

    series: tuple[Strength, ...] = _task(
        tuple(float(s) for s in 0.8 ** np.arange(10)),
        "Strength of the target by lag, s",
        (-LARGEST, LARGEST),
        kind="numbers",
        lengths=(2, MOST_LAGS),
        unit="target/input",
        help=_AGE,
    )
    beyond: Literal["silent", "held", "repeated"] = _task(
        "silent", "Inputs older than the series", choices=_BEYOND, help="what the task asks of longer trials"
    )
    reach: float = _task(2.5, "Longest trial, of the one trained on", (1.5, 3.0), 0.1, unit="times")
    recurrence: float = _start(0.5, "Recurrence, b", (-0.99, 0.99), 0.01, unit="1/step")
    initial: float = _start(0.1, "Input and output weight", (0.01, 0.5), 0.01, scale="log")
    learning_rate: float = _start(0.01, "Learning rate", (1e-4, 0.1), 0.01, unit="1/step", scale="log")
    steps: float = _order(500.0, "Training shown", (10.0, 10_000.0), 0.01, unit="gradient steps", scale="log")
    modes: int = _order(2, "Modes", (1, 2), 1, unit="modes", help="the series, and a weaker and earlier copy")
    ratio: float = _order(0.6, "Second mode against the first", (0.1, 1.0), 0.01)
    shift: int = _order(0, "Second mode comes earlier by", (0, 10), 1, unit="lags")
    topic: Literal["order", "stability", "transition"] = control("order", "shown below", kind="hidden")
    time: float = control(1.0, "moment of the training shown", (0.0, 1.0), kind="hidden")


def presets(series: tuple[float, ...]) -> dict[str, list[float]]:
    """Series to begin with, as long as the present one; and the present one, shorter or longer."""
    lags = np.arange(len(series))
    last = len(series) - 1
    shapes = {
        "decay": 0.8**lags,
        "even": np.ones(len(lags)),
        "growing with age": 1.2 ** (lags - last),
        "oscillating": np.cos(2 * np.pi * lags / 6),
        "alternating": (-0.9) ** lags,
        "late pulse": np.where(lags == 0, 1.0, 0.1),
        "two pulses": np.where((lags == 0) | (lags == min(3, last)), 1.0, 0.0),
        "after a delay": (lags >= min(3, last)).astype(float),
        "first input only": (lags == last).astype(float),
    }
    found = {name: shape.tolist() for name, shape in shapes.items()}
    if len(series) < MOST_LAGS:
        found["this, one lag longer"] = [*series, 0.0]
        found["this, twice as long"] = [*series, *[0.0] * min(len(series), MOST_LAGS - len(series))]
    if len(series) > 2:
        found["this, one lag shorter"] = list(series[:-1])
    return found


@lru_cache(maxsize=1024)
def fit_of(series: tuple[float, ...]) -> RecurrenceFit:
    """Every locally best recurrence of a series."""
    return best_recurrence(series)


def continued(state: RecurrenceState, lags: ArrayLike) -> FloatArray:
    """The series at any lags, also beyond its end."""
    s, k = np.array(state.series), np.asarray(lags, dtype=int)
    if state.beyond == "repeated":
        return s[k % len(s)]
    return np.where(k < len(s), s[np.minimum(k, len(s) - 1)], s[-1] if state.beyond == "held" else 0.0)


def mode_series(state: RecurrenceState) -> tuple[tuple[float, ...], ...]:
    """Strengths by lag of every mode: the series, then copies of it, each weaker and earlier."""
    s, found = np.array(state.series), []
    for k in range(state.modes):
        delay = min(k * state.shift, len(s))
        copy = state.ratio**k * np.concatenate([np.zeros(delay), s[: len(s) - delay]])
        found.append(tuple(float(v) for v in np.where(np.abs(copy) >= SMALLEST, copy, 0.0)))
    return tuple(found)


def _alone(series: tuple[float, ...]) -> Task:
    """A mode as a task of its own: white inputs, and a target that they determine."""
    s = np.array(series)
    return Task(np.eye(len(s))[:, None, :, None], s[::-1, None, None], [[float(s @ s)]], name="drawn series")


def _unit(series: tuple[float, ...], recurrence: float, initial: float) -> LinearRNN:
    return LinearRNN.aligned(recurrence=recurrence, initial=initial, hidden_size=1, task=_alone(series))


@lru_cache(maxsize=256)
def start_of(series: tuple[float, ...], recurrence: float, initial: float) -> ModeStart:
    """Weights of a mode before training, the output weight's sign as an aligned network has it."""
    network = _unit(series, recurrence, initial)
    return ModeStart(float(network.input_weights[0, 0]), recurrence, float(network.output_weights[0, 0]))


def study_of(state: RecurrenceState) -> str:
    """The study with which `learncast forecast` gives the numbers of the room's first mode."""
    target = {"name": "drawn series", "family": "sensory", "task": "drawn", "steps": len(state.series)}
    tables = {
        "name": "a learned recurrence",
        "network": {"kind": "linear-rnn", "hidden_size": 1, "recurrence": state.recurrence, "initial": state.initial},
        "training": {"learning_rate": state.learning_rate, "learn": ["input", "recurrent", "output"]},
        "target": {**target, "parameters": {"strengths": list(state.series)}},
    }
    told = json.dumps(state.model_dump(), separators=(",", ":"))
    return f"# learncast forecast this-file.toml\n# recurrence {told}\n{to_toml(tables)}"


def fit(state: RecurrenceState) -> View:
    """The series with the best exponential through it, and the loss of every recurrence."""
    s, found = np.array(state.series), fit_of(state.series)
    lags, best = np.arange(len(s)), found.best
    reach = max(1.5, 1.25 * float(np.abs(s).max()))
    film = answered(state)
    now = round(state.time * (MOMENTS - 1))
    series = Panel(
        "series",
        "Drag the points: what the target asks for",
        LAG,
        Axis(STRENGTH.label, STRENGTH.unit, span=(max(-reach, -LARGEST), min(reach, LARGEST))),
        (
            Trace("points", "data", "series s", lags, s, series=TARGET),
            Trace("line", "best", f"best exponential, {_geometric(best)}", lags, _response(best, len(s))),
            *(
                Trace(
                    "line", "descent", "what the network answers at this moment", lags, one[now], series=MODES, film=one
                )
                for one in (film,)
                if one is not None
            ),
        ),
        grips="series",
        main=True,
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
        answer=_answer(state, best),
        clock=None if film is None else Clock("time", np.linspace(0.0, state.steps, MOMENTS), "steps"),
        drawing=_drawn(state),
    )


def answered(state: RecurrenceState) -> FloatArray | None:
    """What the first mode answers to each lag at each moment of the training shown, (moments, lags)."""
    modes = learned_modes(state)
    if not modes or not any(state.series):
        return None
    path, lags = modes[0].path, np.arange(len(state.series), dtype=float)
    at = np.searchsorted(CLOCK, np.linspace(0.0, 1.0, MOMENTS))
    with np.errstate(over="ignore", invalid="ignore"):
        strength = (path.input * path.output)[at, None]
        return _within(strength * path.recurrence[at, None] ** lags, HIGHEST)


def _answer(state: RecurrenceState, best: Optimum) -> str:
    """The best recurrence, and after how many steps half is learned."""
    if not any(state.series):
        return "This target asks for nothing."
    if not math.isfinite(best.recurrence):
        return "No finite recurrence is best: only the oldest input counts, and one unit cannot wait."
    words = f"Keep {best.recurrence:.3g} of the activity at each step ({best.stability}): "
    left = (
        f"{best.unexplained:.0%} of the target stays unexplained" if best.unexplained > 5e-5 else "nothing is left over"
    )
    counted = halved_by_descent(state.series, state)
    if math.isfinite(counted):
        flow = learned_modes(state)[0].half / state.learning_rate
        return f"{words}{left}; half is learned after {counted:.0f} steps (flow: {flow:.0f})."
    return f"{words}{left}; half is not learned within {state.steps:.0f} steps."


def halved_by_descent(series: tuple[float, ...], state: RecurrenceState) -> float:
    """Whole steps of descent until a mode's loss is half of its first; nan where that is later than is counted."""
    return _halved(series, state.recurrence, state.initial, state.learning_rate, min(int(state.steps), MOST_COUNTED))


@lru_cache(maxsize=256)
def _halved(series: tuple[float, ...], recurrence: float, initial: float, learning_rate: float, most: int) -> float:
    mode = _learned(series, recurrence, initial, most * learning_rate)
    # Where the flow is far from half, or never comes there, descent need not be tried.
    if not mode.half <= most * learning_rate:
        return math.nan
    task, unit = _alone(series), _unit(series, recurrence, initial)
    training = Training(learning_rate, learn=("input", "recurrent", "output"), most_steps=most)
    least = LearningProblem.of(task, unit, training.learn).least_loss
    found = descend(task, unit, training, goal=Loss(least + 0.5 * float(mode.path.loss[0])))
    return float(found.steps) if found.status is Status.ok else math.nan


def _drawn(state: RecurrenceState) -> Drawing:
    modes = learned_modes(state)
    if not modes:
        return Drawing("A task that asks for nothing", (), (), (("the target asks", np.array(state.series), TARGET),))
    path = modes[0].path
    at = np.searchsorted(CLOCK, np.linspace(0.0, 1.0, MOMENTS))
    edges = (
        Edge("input 0", "unit 0", "input weight", float(path.input[at[-1]]), path.input[at]),
        Edge("unit 0", "unit 0", "recurrence b", float(path.recurrence[at[-1]]), path.recurrence[at]),
        Edge("unit 0", "output 0", "output weight", float(path.output[at[-1]]), path.output[at]),
    )
    return Drawing(
        "A recurrent network of one linear unit whose recurrence learns too",
        (("input", 1), ("unit", 1), ("output", 1)),
        edges,
        (("the target asks", np.array(state.series), TARGET),),
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
            Trace("points", "data", "series s", lags, continued(state, lags), series=TARGET),
            Trace("line", "best", f"response, {_geometric(best)}", lags, _response(best, longest)),
        ),
        shades=((0.0, float(trained - 1), "trained on", TARGET),),
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
        (Trace("line", "theory", "unexplained", told.horizons, _within(told.unexplained, HIGHEST)),),
    )
    readings = (
        *_best_readings(best),
        _reading(f"unexplained at {longest} steps", float(told.unexplained[-1]), "1"),
        _reading(f"loss at {longest} steps", float(told.loss[-1]), "target^2"),
    )
    return View((answers, reach), validity_of("exact"), readings, _notes(state))


def weighed(series: tuple[float, ...], weight: float) -> tuple[float, ...]:
    """The series with everything before the last input counted so many times."""
    past = (weight * s for s in series[1:])
    return (series[0], *(s if abs(s) >= SMALLEST else 0.0 for s in past))


@lru_cache(maxsize=64)
def turn_of(series: tuple[float, ...]) -> Transition:
    """Where the best recurrence changes its kind as the past counts more.

    The whole search of `learncast.theory.recurrence.tradeoff.transition` takes seconds; a picture that follows the hand has
    room for the largest change, and for a place to a 4096th of its interval.
    """
    return change_of_kind(lambda w: fit_of(weighed(series, w)), WEIGHTS.tolist(), jumps=1, precision=2.0**-12)


def transition(state: RecurrenceState) -> View:
    """How the best recurrence changes as everything before the last input counts more or less."""
    found, fits = turn_of(state.series), [fit_of(weighed(state.series, w)) for w in WEIGHTS.tolist()]
    best = np.array([fit.best.recurrence for fit in fits])
    span = 1.25 * max(1.0, float(np.abs(best[np.abs(best) <= WIDEST]).max(initial=0.0)))
    w, b = np.array([(w, o.recurrence) for w, fit in zip(WEIGHTS, fits, strict=True) for o in fit.optima]).T
    ends = np.array([-span, span])
    traces = [
        Trace("points", "null", "local optima", w, _within(b, span)),
        Trace("line", "best", "best recurrence", *_best_line(found, best, span)),
        Trace("line", "pinned", "the series as drawn", np.ones(2), ends),
    ]
    if not math.isnan(found.parameter):
        traces.append(Trace("line", "threshold", f"transition, {found.kind}", np.full(2, found.parameter), ends))
    axis = Axis(RECURRENCE.label, RECURRENCE.unit, span=(-span, span))
    title = "Best recurrence, and rivals that training can end in"
    readings = (
        _reading("transition at a weight of", found.parameter, WEIGHT.unit, none="none found from 0.05 to 2"),
        _reading("best recurrence below", found.below, RECURRENCE.unit),
        _reading("best recurrence above", found.above, RECURRENCE.unit),
        *_best_readings(fit_of(state.series).best),
    )
    return View(
        (Panel("best_recurrence", title, WEIGHT, axis, tuple(traces)), _use_of_past(state, fits)),
        validity_of("exact"),
        readings,
        () if any(state.series) else (SILENT,),
        _turn_words(found),
    )


def _use_of_past(state: RecurrenceState, fits: list[RecurrenceFit]) -> Panel:
    """What is left unexplained with the best recurrence, and with none."""
    terms = loss_terms(1.0, 0.0, 1.0, [weighed(state.series, w) for w in WEIGHTS.tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):  # a series of zeros leaves an unknown share
        feedforward = terms.least_loss / terms.constant
    traces = (
        Trace("line", "null", "without recurrence", WEIGHTS, feedforward),
        Trace("line", "best", "best recurrence", WEIGHTS, np.array([fit.best.unexplained for fit in fits])),
        Trace("line", "pinned", "the series as drawn", np.ones(2), np.array([0.0, 1.0])),
    )
    return Panel("use_of_past", "What remembering is worth", WEIGHT, SHARE, traces)


def _best_line(found: Transition, best: FloatArray, span: float) -> tuple[FloatArray, FloatArray]:
    """The best recurrence over the weights, broken where it jumps."""
    if found.kind != "first order":
        return WEIGHTS, _within(best, span)
    n = [int(np.searchsorted(WEIGHTS, found.parameter))] * 3
    sides = np.array([found.below, np.nan, found.above])
    return np.insert(WEIGHTS, n, found.parameter), _within(np.insert(best, n, sides), span)


def _turn_words(found: Transition) -> str:
    if found.kind == "first order":
        return (
            f"At a weight of {found.parameter:.6g} the best recurrence jumps from {_number(found.below)} to "
            f"{_number(found.above)}; around it both are optima, and the end of training depends on its start."
        )
    if found.kind == "continuous":
        return f"The best recurrence leaves 0 without a jump at a weight of {found.parameter:.4g}."
    return "The best recurrence changes smoothly: there is no transition in this range."


def _loss_panel(series: tuple[float, ...]) -> Panel:
    """Loss of every recurrence with the best strength for it."""
    best, optima = fit_of(series).best, fit_of(series).optima
    finite = [o for o in optima if abs(o.recurrence) <= WIDEST]
    span = 1.25 * max([1.0, *(abs(o.recurrence) for o in finite)])
    grid = np.linspace(-span, span, 401)
    loss = loss_terms(1.0, grid, 1.0, series).least_loss
    traces = [Trace("line", "theory", "loss at the best strength", grid, loss)]
    marks: tuple[tuple[Role, str, bool], ...] = (("null", "other minima", False), ("best", "best", True))
    for role, name, chosen in marks:
        places = [(o.recurrence, o.loss) for o in finite if (o is best) == chosen]
        if places:
            traces.append(Trace("points", role, name, *np.array(places).T))
    axis = Axis("half mean squared error", "target^2")
    return Panel("loss", "Loss against the recurrence", RECURRENCE, axis, tuple(traces))


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
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"


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
        return _within(best.strength * best.recurrence ** np.arange(lags, dtype=float), HIGHEST)


def _within(values: FloatArray, span: float) -> FloatArray:
    """Values of a size that can be drawn; others are left out."""
    return np.where(np.abs(values) <= span, values, np.nan)


TRAINING = Axis("training time", STEPS, clock=True)
#: Initial recurrences at which the half-loss times of a frozen recurrence are drawn.
STARTS = np.linspace(-0.99, 0.99, 100)
#: Times at which learning is looked at, as shares of the last: evenly, and closer and closer towards the start, where
#: a mode that learns soon does all it does.
CLOCK = np.unique(np.concatenate([np.linspace(0.0, 1.0, MOMENTS), np.geomspace(1e-7, 1.0, 240)]))


@dataclass(frozen=True, eq=False)
class LearnedMode:
    """The learning of one mode, in flow time: gradient steps times learning rate.

    Attributes
    ----------
    series : tuple of float
        Strength by lag.
    start : ModeStart
    path : ModeTrajectory
        Weights and loss while the recurrence learns too.
    half, half_frozen : float
        Time to half of the first loss, with learned and with frozen recurrence: infinite for never, `nan` if not yet.
    """

    series: tuple[float, ...]
    start: ModeStart
    path: ModeTrajectory
    half: float
    half_frozen: float

    @property
    def share(self) -> FloatArray:
        """Loss over time as a share of the first."""
        return self.path.loss / self.path.loss[0]

    @property
    def last(self) -> ModeStart:
        """Weights at the last time shown that the integration reached."""
        return weights_at(self.path, int(np.flatnonzero(np.isfinite(self.path.loss))[-1]))


def learned_modes(state: RecurrenceState) -> tuple[LearnedMode, ...]:
    """The learning of every mode that asks for something; silent ones have nothing to learn."""
    span = state.steps * state.learning_rate
    return tuple(_learned(s, state.recurrence, state.initial, span) for s in mode_series(state) if any(s))


def rate_condition(modes: tuple[LearnedMode, ...], learning_rate: float) -> Assumption:
    """How near the learning rate comes to where descent leaves the flow, at the start and at the end shown."""
    sharpness = [
        largest_stable_rate(LinearRNN(*np.reshape(weights, (3, 1, 1))), steps=len(mode.series)).sharpness
        for mode in modes
        for weights in (mode.start, mode.last)
    ]
    return stable_learning_rate(learning_rate, np.array(sharpness))


@lru_cache(maxsize=256)
def _learned(series: tuple[float, ...], recurrence: float, initial: float, span: float) -> LearnedMode:
    start = start_of(series, recurrence, initial)
    path = mode_trajectory(span * CLOCK, *start, series)
    # Training that is not shown is not integrated: a mode can take seconds to its half, or to where it never comes.
    level = 0.5 * float(path.loss[0])
    never = min(o.loss for o in fit_of(series).optima) >= level
    half = math.inf if never else crossing_time(path, level, series)
    frozen = half_loss_time(series, **start._asdict(), learn_recurrence=False)
    return LearnedMode(series, start, path, half, float(frozen.steps))


def order(state: RecurrenceState) -> View:
    """Learning curves of the modes, and what is learned first."""
    modes = learned_modes(state)
    silent = len(mode_series(state)) - len(modes)
    notes = [] if not silent else [Note(f"{silent} of the modes ask for nothing and have nothing to learn.", "warning")]
    if not modes:
        return View((), validity_of("integrated"), notes=tuple(notes))
    condition = rate_condition(modes, state.learning_rate)
    notes += warnings_of((condition,))
    notes += [
        Note(f"The weights of mode {k} run away before the last step shown.", "error")
        for k, mode in enumerate(modes)
        if str(mode.path.status) != "ok"
    ]
    panels = (_curves(modes, state), _recurrences(modes, state), _times(modes, state))
    trust = validity_of("integrated", (condition,))
    clock = Clock("time", np.linspace(0.0, state.steps, MOMENTS), "steps")
    return View(panels, trust, _readings(modes, state), tuple(notes), _words(modes), clock=clock)


def _curves(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    traces = tuple(
        Trace("line", "data", f"mode {k}", m.path.times / state.learning_rate, m.share, series=MODES + k)
        for k, m in enumerate(modes)
    )
    half = Trace("line", "threshold", "half", np.array([0.0, state.steps]), np.full(2, 0.5))
    axis = Axis("loss, of the first", "1")
    return Panel("learning", "Learning curves, recurrence learned", TRAINING, axis, (*traces, half))


def _recurrences(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    traces = []
    for k, m in enumerate(modes):
        best = fit_of(m.series).best.recurrence
        clock = m.path.times / state.learning_rate
        traces.append(Trace("line", "data", f"mode {k}", clock, m.path.recurrence, series=MODES + k))
        if math.isfinite(best) and abs(best) <= 10:
            ends = np.array([0.0, state.steps])
            traces.append(Trace("line", "target", f"mode {k}, best", ends, np.full(2, best), series=MODES + k))
    axis = Axis("recurrence b", "1/step")
    return Panel("recurrence", "The recurrence while it learns", TRAINING, axis, tuple(traces))


def _times(modes: tuple[LearnedMode, ...], state: RecurrenceState) -> Panel:
    """Half-loss times of a frozen recurrence over its value, and of a learned one from the present start."""
    traces = []
    for k, m in enumerate(modes):
        starts: dict[str, Any] = {**m.start._asdict(), "recurrence": STARTS}
        steps = half_loss_time(m.series, **starts, learn_recurrence=False, learning_rate=state.learning_rate).steps
        drawn = np.where(np.isfinite(steps) & (steps > 0), steps, np.nan)
        traces.append(Trace("line", "data", f"mode {k}, frozen", STARTS, drawn, series=MODES + k))
        if math.isfinite(m.half) and m.half > 0:
            now = np.array([state.recurrence]), np.array([m.half / state.learning_rate])
            traces.append(Trace("points", "pinned", f"mode {k}, learned", *now, series=MODES + k))
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
        counted = halved_by_descent(m.series, state)
        told = "not counted" if math.isnan(counted) else whole(counted)
        found += [
            Reading(f"mode {k} halves its loss, b learned, by descent", counted, "steps", told),
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


ROOM = Room(
    name="recurrence",
    title="Recurrence",
    introduction=(
        "A target weighs white inputs by their age. Drag its strengths and see the recurrence that fits them best, "
        "whether it is stable on longer trials, when remembering pays, and what is learned first."
    ),
    state=RecurrenceState,
    parts={"fit": fit, "stability": stability, "transition": transition, "order": order},
    study=study_of,
    examples=EXAMPLES,
    words=RECURRENCE_WORDS,
    topics=TOPICS,
)
