"""The setting of the Recurrence room: a target's strength by lag, drawn by hand, and modes that start to learn it."""

from __future__ import annotations

import json
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field

from learncast.networks.linear_rnn import LinearRNN
from learncast.recurrence.long_run import ModeStart
from learncast.recurrence.stability import RecurrenceFit, best_recurrence
from learncast.study.study_file import to_toml
from learncast.tasks.task import Task
from learncast.validation import FloatArray
from learncast.web.room import State, control

#: What a point of the series may be, and the size below which it is 0: nobody drags more finely.
LARGEST, SMALLEST = 5.0, 1e-6
MOST_LAGS = 40

Strength = Annotated[
    float, Field(ge=-LARGEST, le=LARGEST), AfterValidator(lambda value: value if abs(value) >= SMALLEST else 0.0)
]


_task = partial(control, group="The task")
_start = partial(control, group="The network at the start")
_order = partial(control, group="Order of learning")
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


@lru_cache(maxsize=256)
def start_of(series: tuple[float, ...], recurrence: float, initial: float) -> ModeStart:
    """Weights of a mode before training, the output weight's sign as an aligned network has it."""
    s = np.array(series)
    task = Task(np.eye(len(s))[:, None, :, None], s[::-1, None, None], [[float(s @ s)]], name="drawn series")
    network = LinearRNN.aligned(recurrence=recurrence, initial=initial, hidden_size=1, task=task)
    return ModeStart(float(network.input_weights[0, 0]), recurrence, float(network.output_weights[0, 0]))


def study_of(state: RecurrenceState) -> str:
    """The study with which `learncast forecast` gives the numbers of the room's first mode."""
    tables: dict[str, Any] = {
        "name": "a learned recurrence",
        "network": {"kind": "linear-rnn", "hidden_size": 1, "recurrence": state.recurrence, "initial": state.initial},
        "training": {"learning_rate": state.learning_rate, "learn": ["input", "recurrent", "output"]},
        "target": {
            "name": "drawn series",
            "family": "sensory",
            "task": "drawn",
            "steps": len(state.series),
            "parameters": {"strengths": list(state.series)},
        },
    }
    told = json.dumps(state.model_dump(), separators=(",", ":"))
    return f"# learncast forecast this-file.toml\n# recurrence {told}\n{to_toml(tables)}"
