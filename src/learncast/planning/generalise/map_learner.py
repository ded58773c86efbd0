"""A learner: how a network reads trials, and how many copies of it descend in parallel, each on its own statistics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task

#: Bytes of the states of all rows that are kept at a time.
STATE_MEMORY = 2**26


class MapLearner(ABC):
    """A network that answers M w to a window w of inputs, where the map M follows from its state.

    Rows of states descend in parallel. Row r has the statistics S_r = E[w w^T] and R_r = E[y w^T].
    """

    #: Name of the method.
    name: str
    #: Whether windows are linear in the inputs.
    linear = True
    #: Whether any map of the window can be learned, up to a rank.
    any_map = True
    #: Steps of descent up to which a default horizon may reach.
    most_steps = 10_000
    #: State before training.
    start: FloatArray

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    @abstractmethod
    def windows(self, trials: MaskedTrials) -> FloatArray:
        """Windows of inputs of every readout, (trials, readouts, values); 0 at readouts that do not count."""

    def moments(self, task: Task) -> tuple[FloatArray, FloatArray] | None:
        """E[w w^T] and E[y w^T] from the statistics of a task; None if its trials are needed."""
        return None

    @abstractmethod
    def maps(self, states: FloatArray) -> FloatArray:
        """Map of each state, (..., outputs, values)."""

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        """Answer to a unit pulse in each input, or hidden unit, at each lag, (stops, lags, outputs, channels)."""
        raise NotImplementedError

    @abstractmethod
    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        """States of rows after one step on their statistics."""

    def advance(
        self, power: FloatArray, cross: FloatArray, states: FloatArray, stops: Sequence[int]
    ) -> list[FloatArray]:
        """States of rows after each of these increasing numbers of steps on their statistics."""
        results, done = [], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for stop in stops:
                for _ in range(stop - done):
                    states = self.step(power, cross, states)
                results.append(states)
                done = stop
        return results

    def path(
        self, power: FloatArray, cross: FloatArray, states: FloatArray, stops: Sequence[int]
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the states after increasing numbers of steps, (stops, rows, ...), some stops at a time."""
        size = max(1, int(STATE_MEMORY // max(states.nbytes, 1)))
        for first in range(0, len(stops), size):
            before = stops[first - 1] if first else 0
            part = slice(first, min(first + size, len(stops)))
            after = self.advance(power, cross, states, [n - before for n in stops[part]])
            states = after[-1]
            yield part, np.stack(after)


def recorded_trials(task: Task) -> MaskedTrials:
    """Return the trials of a task, prepared as its statistics are."""
    if task.recorded_trials is None:
        stored = task.recording is not None and task.recording.blocks is not None
        why = "its trials are too large to be stored" if stored else "it has no recorded trials"
        raise InvalidSpec(f"Held-out losses need the trials of {task.name!r}, but {why}.", field="task")
    return task.recorded_trials
