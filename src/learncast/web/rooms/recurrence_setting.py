"""The setting of the Recurrence room: a target's strength by lag, drawn by hand, and modes that start to learn it."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field

from learncast.networks.linear_rnn import LinearRNN
from learncast.recurrence.order import ModeStart
from learncast.recurrence.stability import RecurrenceFit, best_recurrence
from learncast.tasks.task import Task
from learncast.validation import FloatArray
from learncast.web.room import Control, State
from learncast.web.rooms.sliders import chooser, slider

#: What a point of the series may be, and the size below which it is 0: nobody drags more finely.
LARGEST, SMALLEST = 5.0, 1e-6
MOST_LAGS = 40

Strength = Annotated[
    float, Field(ge=-LARGEST, le=LARGEST), AfterValidator(lambda value: value if abs(value) >= SMALLEST else 0.0)
]


class RecurrenceState(State):
    """What the room's controls say."""

    series: tuple[Strength, ...] = Field(
        default=tuple(float(s) for s in 0.8 ** np.arange(10)), min_length=2, max_length=MOST_LAGS
    )
    beyond: Literal["silent", "held", "repeated"] = "silent"
    reach: float = Field(default=2.5, ge=1.5, le=3.0)
    recurrence: float = Field(default=0.5, ge=-0.99, le=0.99)
    initial: float = Field(default=0.1, ge=0.01, le=0.5)
    modes: int = Field(default=2, ge=1, le=2)
    ratio: float = Field(default=0.6, ge=0.1, le=1.0)
    shift: int = Field(default=0, ge=0, le=10)
    learning_rate: float = Field(default=0.01, ge=1e-4, le=0.1)
    steps: float = Field(default=500.0, ge=10.0, le=10_000.0)


def controls() -> tuple[Control, ...]:
    """Controls of the room, in the order of the page."""
    state = RecurrenceState
    task, start, order = "The task", "The network at the start", "Order of learning"
    return (
        Control(
            "series",
            "Strength of the target by lag, s",
            "numbers",
            state.model_fields["series"].default,
            "target/input",
            "covariance of the target with the input so many steps before it; drag the points",
            -LARGEST,
            LARGEST,
            group=task,
        ),
        chooser(
            state,
            "beyond",
            "Inputs older than the series",
            {"silent": "do not count", "held": "count like the oldest", "repeated": "begin again"},
            help="what the task asks of longer trials",
            group=task,
        ),
        slider(state, "reach", "Longest trial, of the one trained on", step=0.1, unit="times", group=task),
        slider(state, "recurrence", "Recurrence, b", step=0.01, unit="1/step", group=start),
        slider(state, "initial", "Input and output weight", step=0.01, scale="log", group=start),
        slider(state, "learning_rate", "Learning rate", step=0.01, unit="1/step", scale="log", group=start),
        slider(state, "steps", "Training shown", step=0.01, unit="gradient steps", scale="log", group=order),
        slider(
            state, "modes", "Modes", step=1, unit="modes", group=order, tip="the series, and a weaker and earlier copy"
        ),
        slider(state, "ratio", "Second mode against the first", step=0.01, group=order),
        slider(state, "shift", "Second mode comes earlier by", step=1, unit="lags", group=order),
    )


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


def task_of(series: tuple[float, ...], name: str = "drawn series") -> Task:
    """The task of white inputs, of variance 1, whose target weighs them by the series."""
    s, T = np.array(series), len(series)
    return Task(np.eye(T)[:, None, :, None], s[::-1, None, None], [[float(s @ s)]], name=name)


@lru_cache(maxsize=256)
def start_of(series: tuple[float, ...], recurrence: float, initial: float) -> ModeStart:
    """Weights of a mode before training, the output weight's sign as an aligned network has it."""
    network = LinearRNN.aligned(recurrence=recurrence, initial=initial, hidden_size=1, task=task_of(series))
    return ModeStart(float(network.input_weights[0, 0]), recurrence, float(network.output_weights[0, 0]))
