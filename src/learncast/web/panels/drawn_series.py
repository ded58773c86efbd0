"""The settings of the recurrence panel: a drawn series, its best recurrence and how its modes are learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field

from learncast import LinearRNN, Loss, Task, Training, descend
from learncast._core.validation import FloatArray
from learncast.results import Status
from learncast.theory.assumptions import Assumption, stable_learning_rate
from learncast.theory.dynamics.recurrent_mode import ModeStart, ModeTrajectory, mode_trajectory, weights_at
from learncast.theory.recurrence.optimum import RecurrenceFit, best_recurrence
from learncast.theory.recurrence.order import crossing_time, half_loss_time
from learncast.theory.recurrence.stability import largest_stable_rate
from learncast.web.panel import State, control
from learncast.web.view import FRAMES

#: Largest point of the series, and the size below which a point is set to 0.
LARGEST, SMALLEST = 5.0, 1e-6


MOST_LAGS = 40


#: Most steps of descent that are carried out.
MOST_DESCENT_STEPS = 2_000


#: Fractions of the training time at which learning is computed: evenly, and densely near 0 for modes that learn soon.
TIMES = np.unique(np.concatenate([np.linspace(0.0, 1.0, FRAMES), np.geomspace(1e-7, 1.0, 240)]))


SeriesPoint = Annotated[
    float, Field(ge=-LARGEST, le=LARGEST), AfterValidator(lambda value: value if abs(value) >= SMALLEST else 0.0)
]


_task = partial(control, group="The task")


_start = partial(control, group="Initial network", folded=True)


_order = partial(control, group="Order of learning", folded=True)


_BEYOND = {"silent": "have no weight", "held": "have the weight of the oldest", "repeated": "repeat the series"}


class RecurrenceState(State):
    """Settings of the recurrence panel."""

    series: tuple[SeriesPoint, ...] = _task(
        tuple(float(s) for s in 0.8 ** np.arange(10)),
        "Strength of the target by lag, s",
        (-LARGEST, LARGEST),
        kind="numbers",
        lengths=(2, MOST_LAGS),
        unit="target/input",
    )
    beyond: Literal["silent", "held", "repeated"] = _task("silent", "Inputs older than the series", choices=_BEYOND)
    reach: float = _task(2.5, "Longest trial, relative to training", (1.5, 3.0), 0.1, unit="times")
    recurrence: float = _start(0.5, "Recurrence, b", (-0.99, 0.99), 0.01, unit="1/step")
    initial: float = _start(0.1, "Input and output weight", (0.01, 0.5), 0.01, scale="log")
    learning_rate: float = _start(0.01, "Learning rate", (1e-4, 0.1), 0.01, unit="1/step", scale="log")
    steps: float = _order(500.0, "Training shown", (10.0, 10_000.0), 0.01, unit="gradient steps", scale="log")
    modes: int = _order(2, "Modes", (1, 2), 1, unit="modes")
    ratio: float = _order(0.6, "Second mode relative to the first", (0.1, 1.0), 0.01)
    shift: int = _order(0, "Second mode is earlier by", (0, 10), 1, unit="lags")
    topic: Literal["order", "stability", "transition"] = control("order", "topic shown", kind="hidden")
    time: float = control(1.0, "time shown", (0.0, 1.0), kind="hidden")


def presets(series: tuple[float, ...]) -> dict[str, list[float]]:
    """Return series of the same length to start from, and this series, shorter or longer."""
    lags = np.arange(len(series))
    last = len(series) - 1
    shapes = {
        "decay": 0.8**lags,
        "constant": np.ones(len(lags)),
        "growing with the lag": 1.2 ** (lags - last),
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
    """Return every locally best recurrence of a series."""
    return best_recurrence(series)


def continued(state: RecurrenceState, lags: ArrayLike) -> FloatArray:
    """Return the series at any lags, also beyond its end."""
    s, k = np.array(state.series), np.asarray(lags, dtype=int)
    if state.beyond == "repeated":
        return s[k % len(s)]
    return np.where(k < len(s), s[np.minimum(k, len(s) - 1)], s[-1] if state.beyond == "held" else 0.0)


def mode_series(state: RecurrenceState) -> tuple[tuple[float, ...], ...]:
    """Return the strengths by lag of every mode: the series, then weaker and earlier copies of it."""
    s, found = np.array(state.series), []
    for k in range(state.modes):
        delay = min(k * state.shift, len(s))
        copy = state.ratio**k * np.concatenate([np.zeros(delay), s[: len(s) - delay]])
        found.append(tuple(float(v) for v in np.where(np.abs(copy) >= SMALLEST, copy, 0.0)))
    return tuple(found)


def _single_mode(series: tuple[float, ...], recurrence: float, initial: float) -> tuple[Task, LinearRNN]:
    """Return a mode as a task with white inputs, and the aligned unit that learns it."""
    s = np.array(series)
    task = Task(np.eye(len(s))[:, None, :, None], s[::-1, None, None], [[float(s @ s)]], name="drawn series")
    return task, LinearRNN.aligned(recurrence=recurrence, initial=initial, hidden_size=1, task=task)


def half_loss_descent(series: tuple[float, ...], state: RecurrenceState) -> float:
    """Return the descent steps until a mode's loss is halved; nan if they are more than are carried out."""
    most = min(int(state.steps), MOST_DESCENT_STEPS)
    return _half_loss_descent(series, state.recurrence, state.initial, state.learning_rate, most)


@lru_cache(maxsize=256)
def _half_loss_descent(series: tuple[float, ...], recurrence: float, initial: float, rate: float, most: int) -> float:
    mode = _learned(series, recurrence, initial, most * rate)
    if not mode.half <= most * rate:  # descent does not get there either
        return math.nan
    task, unit = _single_mode(series, recurrence, initial)
    training = Training(rate, learn=("input", "recurrent", "output"), most_steps=most)
    run = descend(task, unit, training, goal=Loss(0.5 * float(mode.path.loss[0])))
    return float(run.steps) if run.status is Status.ok else math.nan


@dataclass(frozen=True, eq=False)
class LearnedMode:
    """The learning of one mode in flow time: gradient steps times learning rate.

    Attributes
    ----------
    series : tuple of float
        Strength by lag.
    start : ModeStart
    path : ModeTrajectory
        Weights and loss with a trained recurrence.
    half, half_fixed : float
        Time to half of the initial loss with a trained and with a fixed recurrence; infinite for never, nan if it is
        later than the training shown.
    """

    series: tuple[float, ...]
    start: ModeStart
    path: ModeTrajectory
    half: float
    half_fixed: float

    @property
    def last(self) -> ModeStart:
        """Weights at the last time that the integration reached."""
        return weights_at(self.path, int(np.flatnonzero(np.isfinite(self.path.loss))[-1]))


def learned_modes(state: RecurrenceState) -> tuple[LearnedMode, ...]:
    """Return the learning of every mode that is not 0."""
    span = state.steps * state.learning_rate
    return tuple(_learned(s, state.recurrence, state.initial, span) for s in mode_series(state) if any(s))


def rate_condition(modes: tuple[LearnedMode, ...], learning_rate: float) -> Assumption:
    """Measure the learning rate against its stability limit at the beginning and at the end of the training shown."""
    sharpness = [
        largest_stable_rate(LinearRNN(*np.reshape(weights, (3, 1, 1))), steps=len(mode.series)).sharpness
        for mode in modes
        for weights in (mode.start, mode.last)
    ]
    return stable_learning_rate(learning_rate, np.array(sharpness))


@lru_cache(maxsize=256)
def _learned(series: tuple[float, ...], recurrence: float, initial: float, span: float) -> LearnedMode:
    _, unit = _single_mode(series, recurrence, initial)
    start = ModeStart(float(unit.input_weights[0, 0]), recurrence, float(unit.output_weights[0, 0]))
    path = mode_trajectory(span * TIMES, *start, series)
    # Only the training shown is integrated: a mode can take seconds to its half loss.
    level = 0.5 * float(path.loss[0])
    never = min(o.loss for o in fit_of(series).optima) >= level
    half = math.inf if never else crossing_time(path, level, series)
    fixed = half_loss_time(series, **start._asdict(), learn_recurrence=False)
    return LearnedMode(series, start, path, half, float(fixed.steps))
