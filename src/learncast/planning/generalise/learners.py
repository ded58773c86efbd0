"""Learners: how a network reads trials, and how many copies of it descend in parallel, each on its own statistics."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TypeVar

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.deep import Linear
from learncast.networks.linear_rnn import check_fit
from learncast.networks.two_layer import product
from learncast.planning.methods.choice import check_plain_descent, default_learn
from learncast.procedure.training import Training
from learncast.tasks.covariance import check_memory
from learncast.tasks.geometry import pooled_statistics, recurrence_kernel
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import LearningProblem, checked_learn, lag_statistics
from learncast.theory.dynamics.steps.lag_descent import LagDescent
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, hidden_bases, in_bases, joined
from learncast.theory.responses.response import active_units, check_network, linear_weights

#: Bytes of the states of all rows that are kept at a time.
STATE_MEMORY = 2**26
#: Number of inputs from which the span of the trials is sought, and share of the largest power below which it ends.
MANY, SILENT_POWER = 128, 1e-14
#: Learning rate x curvature below which descent settles at an optimum.
STABLE = 2.0
#: Numbers of coefficients of the response of a tanh unit, and largest size of the last ones; responses are up to 1.
COEFFICIENTS, TAIL = [round(24 * 2 ** (k / 2)) for k in range(12)], 1e-11
#: Multiple of this size that other trials may have.
ENOUGH = 30
#: Factor by which a learner reaches farther than what is known to be needed.
WIDER = 1.7

Result = TypeVar("Result")
#: S and R of every row.
Moments = tuple[FloatArray, FloatArray]
#: States of rows after each of several increasing numbers of steps.
Advance = Callable[[FloatArray, Sequence[int]], list[FloatArray]]


class MapLearner(ABC):
    """A network that answers M w to a window w of inputs, where the map M follows from its state.

    Rows of states descend in parallel. Row r has the statistics S_r = E[w w^T] and R_r = E[y w^T].
    """

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

    def follow(self, moments: Iterator[Moments], states: FloatArray, stops: Sequence[int]) -> list[FloatArray]:
        """States of rows after each of these increasing numbers of steps, each step on the next statistics."""
        results, done = [], 0
        with np.errstate(over="ignore", invalid="ignore"):
            for stop in stops:
                for _ in range(stop - done):
                    check_time()
                    states = self.step(*next(moments), states)
                results.append(states)
                done = stop
        return results

    def advancing(self, moments: Moments) -> Advance:
        """A function that returns the states of rows after increasing numbers of steps on their statistics."""
        return partial(self.follow, repeat(moments))

    def most_fall(self, moments: Moments, state: FloatArray) -> float:
        """Most that the loss can still fall from a state; infinite if the state is unstable or the least is unknown."""
        return math.inf

    def sharpness(self, moments: Moments, states: FloatArray) -> float:
        """Largest curvature of the training loss at states; nan if it is not measured."""
        return math.nan


def in_parts(advance: Advance, states: FloatArray, stops: Sequence[int]) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the states after increasing numbers of steps, (stops, rows, ...), some stops at a time."""
    size = max(1, int(STATE_MEMORY // max(states.nbytes, 1)))
    for first in range(0, len(stops), size):
        before = stops[first - 1] if first else 0
        part = slice(first, min(first + size, len(stops)))
        after = advance(states, [n - before for n in stops[part]])
        states = after[-1]
        yield part, np.stack(after)


def span_of(power: FloatArray) -> FloatArray | None:
    """Orthonormal basis of the directions along which the inputs of any row vary; None if they are most directions."""
    values, vectors = np.linalg.eigh(power.reshape(-1, *power.shape[-2:]).sum(axis=0))
    basis = vectors[:, values > SILENT_POWER * values[-1]]
    return np.asarray(basis) if 0 < 2 * basis.shape[1] <= len(values) else None


class PooledLearner(MapLearner):
    """Fixed scalar recurrence: a network of layers on the pooled input.

    A state is all weights in the hidden directions that the start uses, flattened.
    """

    most_steps = 100_000

    def __init__(self, network: Linear, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.recurrence, weights = network.scalar_recurrence or 0.0, network.layer_weights
        small = in_bases(weights, hidden_bases(weights))
        self.start, self.units = joined(small), network.hidden_size
        self._nothing = PooledDescent(np.zeros((1, 1)), np.zeros((1, 1)), self.units, tuple(w.shape for w in small))

    def windows(self, trials: MaskedTrials) -> FloatArray:
        return trials.pooled(recurrence_kernel(self.recurrence, trials.inputs.shape[1], trials.targets.shape[1]))[0]

    def moments(self, task: Task) -> tuple[FloatArray, FloatArray]:
        cross, power = pooled_statistics(task, self.recurrence)
        return power, cross.T

    def layers(self, states: FloatArray) -> list[FloatArray]:
        """Weights of each layer of states."""
        return self._nothing.layers(states)

    def maps(self, states: FloatArray) -> FloatArray:
        return product(self.layers(states))

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        gains = product(self.layers(states)[hidden:])
        return np.power(self.recurrence, np.arange(steps))[:, None, None] * gains[:, None]

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        return states + self.learning_rate * self._nothing.pull(states, power, cross)

    def advancing(self, moments: Moments) -> Advance:
        power, cross = moments
        basis = span_of(power) if power.shape[-1] >= MANY else None
        if basis is None:
            descent = replace(self._nothing, power=power, cross=cross)
            return lambda states, stops: descent.advance(states, stops, self.learning_rate)
        (width, inputs), *others = self._nothing.shapes
        size = width * basis.shape[1]
        own = PooledDescent(basis.T @ power @ basis, cross @ basis, self.units, ((width, basis.shape[1]), *others))

        def advance(states: FloatArray, stops: Sequence[int]) -> list[FloatArray]:
            first, rest = np.split(states, [width * inputs], axis=-1)
            layer = first.reshape(*first.shape[:-1], width, inputs)
            small = layer @ basis
            constant = layer - small @ basis.T  # descent never changes it

            def lifted(end: FloatArray) -> FloatArray:
                moved = end[..., :size].reshape(small.shape) @ basis.T + constant
                return np.concatenate([moved.reshape(first.shape), end[..., size:]], axis=-1)

            begin = np.concatenate([small.reshape(*first.shape[:-1], size), rest], axis=-1)
            return [lifted(end) for end in own.advance(begin, stops, self.learning_rate)]

        return advance

    def most_fall(self, moments: Moments, state: FloatArray) -> float:
        if not self.learning_rate * self.sharpness(moments, state[None]) < STABLE:
            return math.inf
        power, cross = moments
        return max(float(replace(self._nothing, power=power, cross=cross).excess(state[None])[0]), 0.0)

    def sharpness(self, moments: Moments, states: FloatArray) -> float:
        descent = replace(self._nothing, power=moments[0], cross=moments[1])
        return max(descent.sharpness(state[None]) for state in states)


class LagLearner(MapLearner):
    """Any weights of a linear network learn. A state is the weights that learn, flattened."""

    def __init__(self, task: Task, network: Linear, learn: tuple[str, ...], learning_rate: float) -> None:
        super().__init__(learning_rate)
        problem = LearningProblem(task, network, learn)
        self.recurrence = problem.pooled_recurrence
        self.values = task.inputs * (1 if self.recurrence is not None else task.steps)
        empty = np.zeros((task.outputs, self.values))
        self.descent = LagDescent(np.zeros((1, 1)), empty, np.zeros(()), *problem.parts)
        self.start = self.descent.start

    def windows(self, trials: MaskedTrials) -> FloatArray:
        if self.recurrence is not None:
            kernel = recurrence_kernel(self.recurrence, trials.inputs.shape[1], trials.targets.shape[1])
            return trials.pooled(kernel)[0]
        number, steps, inputs = trials.inputs.shape
        readouts = trials.targets.shape[1]
        check_memory(number * readouts * steps * inputs, f"the inputs before each of {number * readouts} readouts")
        windows = np.zeros((number, readouts, steps, inputs))
        for r in range(readouts):
            end = r + 1 if readouts > 1 else steps
            windows[:, r, :end] = trials.inputs[:, :end][:, ::-1]
        windows *= trials.counted[:, :, None, None]
        return windows.reshape(number, readouts, -1)

    def moments(self, task: Task) -> tuple[FloatArray, FloatArray]:
        if self.recurrence is not None:
            cross, power = pooled_statistics(task, self.recurrence)
            return power, cross.T
        return lag_statistics(task).moments

    def maps(self, states: FloatArray) -> FloatArray:
        flat = self.descent.maps(states.reshape(-1, states.shape[-1]))
        return flat.reshape(*states.shape[:-1], *flat.shape[1:])

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        by_lag = self.descent if self.recurrence is None else self._unpooled(steps)
        gains = by_lag.filters(states)[0].transpose(1, 0, 2, 3)
        return gains if hidden else np.asarray(gains @ by_lag.parts(states)[0][:, None])

    def _unpooled(self, steps: int) -> LagDescent:
        """The descent with a window of every lag."""
        weights = self.descent.weights
        return replace(self.descent, cross=np.zeros((len(weights[-1]), steps * weights[0].shape[1])))

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        descent = replace(self.descent, power=power, cross=cross, constant=np.zeros(len(states)))
        return np.asarray(states - self.learning_rate * descent.loss_and_slopes(states)[1])


class ResponseLearner(MapLearner):
    """Nonlinear units with fixed recurrence on one input. A state is the input weights a, then the output weights c.

    The response of a unit is linear in the window, h(a) = v(a) . w, so the map is the sum of c v(a)^T over units.
    """

    linear = False

    def __init__(self, network: Activated, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.activate = network.activate
        active, w = active_units(network), linear_weights(network)
        a, c = w.input_weights[active, 0], w.output_weights[:, active]
        own = np.diagonal(w.recurrent_weights)[active]
        self.recurrences = np.unique(own)
        self.place = np.searchsorted(self.recurrences, own)
        self.start = np.concatenate([a, c.ravel()])

    def _responses(self, trials: MaskedTrials, decay: FloatArray, gain: FloatArray) -> FloatArray:
        """Activity of units h_t = f(decay h_{t-1} + gain x_t) at every readout, (trials, readouts, units)."""
        (number, steps, _), readouts = trials.inputs.shape, trials.targets.shape[1]
        h, windows = np.zeros((number, len(decay))), np.zeros((number, readouts, len(decay)))
        for t in range(steps):
            h = self.activate(decay * h + gain * trials.inputs[:, t])
            if t >= steps - readouts:
                windows[:, t - steps + readouts] = h
        return windows * trials.counted[:, :, None]

    @abstractmethod
    def basis(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """v(a) and its slope at input weights (rows, units), (rows, units, values) each."""

    def _split(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        units = len(self.place)
        return states[:, :units], states[:, units:].reshape(len(states), -1, units)

    def maps(self, states: FloatArray) -> FloatArray:
        a, c = self._split(states.reshape(-1, states.shape[-1]))
        maps = c @ self.basis(a)[0]
        return maps.reshape(*states.shape[:-1], *maps.shape[1:])

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        a, c = self._split(states)
        value, slope = self.basis(a)
        residual = c @ value @ power - cross
        da = np.einsum("gou,gov,guv->gu", c, residual, slope, optimize=True)
        dc = residual @ np.swapaxes(value, 1, 2)
        return states - self.learning_rate * np.concatenate([da, dc.reshape(len(states), -1)], axis=1)


class ReluLearner(ResponseLearner):
    """ReLU units. A window holds the responses of both signs for each recurrence."""

    def windows(self, trials: MaskedTrials) -> FloatArray:
        decay, sign = np.repeat(self.recurrences, 2), np.tile([1.0, -1.0], len(self.recurrences))
        return self._responses(trials, decay, sign)

    def basis(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        own = (2 * self.place + (weights < 0))[..., None] == np.arange(2 * len(self.recurrences))
        return own * np.abs(weights)[..., None], own * np.sign(weights)[..., None]


class OutOfReach(Exception):
    """An input weight or an input is too large for a learner, but not for `learner`."""

    def __init__(self, learner: MapLearner) -> None:
        super().__init__(learner)
        self.learner = learner


def within_reach(learner: MapLearner, run: Callable[[MapLearner], Result]) -> Result:
    """Run with a learner or, if it does not reach, with one that does."""
    while True:
        try:
            return run(learner)
        except OutOfReach as error:
            learner = error.learner


class TanhLearner(ResponseLearner):
    """Tanh units. A window holds the coefficients q_n of the response as a function of the input weight a.

    The response is odd in a, so h(a) = sum_n q_n T_n(a / reach) over odd Chebyshev polynomials, for every |a| up to
    `reach`. The answer c h(a) is then a map of the window, and the loss depends on second moments only. There are as
    many coefficients as trials of inputs up to `largest` need.

    Attributes
    ----------
    reach, largest : float
        Largest input weight and input.
    orders : (coefficients,)
        n.
    """

    any_map = False

    def __init__(
        self, network: Activated, learning_rate: float, trials: MaskedTrials, reach: float = 0.0, largest: float = 0.0
    ) -> None:
        super().__init__(network, learning_rate)
        self._given = network, learning_rate, trials
        strongest = float(np.abs(trials.inputs).max()) or 1.0
        self.reach = reach or WIDER * max(float(np.abs(self.start[: len(self.place)]).max()), 1 / strongest)
        self.largest = largest or strongest
        scaled = replace(trials, inputs=trials.inputs * (self.largest / strongest))
        for number in COEFFICIENTS:
            self.orders = 1.0 + 2 * np.arange(number)
            if np.abs(self._coefficients(scaled)[..., -4:]).max() <= TAIL:
                return
        raise UnsupportedModel(
            f"Tanh units of input weight {self.reach:.3g} are saturated by inputs of {self.largest:.3g}, and not "
            "forecast there. Use fewer steps or a lower learning rate.",
            field="network",
        )

    def windows(self, trials: MaskedTrials) -> FloatArray:
        found = self._coefficients(trials)
        if np.abs(found[..., -4:]).max() > ENOUGH * TAIL:
            raise OutOfReach(TanhLearner(*self._given, self.reach, WIDER * self.largest))
        return found.reshape(*trials.targets.shape[:2], -1)

    def _coefficients(self, trials: MaskedTrials) -> FloatArray:
        """Coefficients of the response at every readout, (trials, readouts, recurrences, n)."""
        number, units = len(self.orders), len(self.recurrences)
        check_memory(len(trials) * trials.targets.shape[1] * units * number, f"the responses to {len(trials)} trials")
        nodes = (np.arange(number) + 0.5) * np.pi / (2 * number)
        gains = np.tile(self.reach * np.cos(nodes), units)
        values = self._responses(trials, np.repeat(self.recurrences, number), gains)
        return values.reshape(*values.shape[:2], units, number) @ (np.cos(np.outer(nodes, self.orders)) * 2 / number)

    def basis(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        if (np.abs(weights) >= self.reach).any():
            largest = float(np.fmax.reduce(np.abs(weights).ravel()))
            raise OutOfReach(TanhLearner(*self._given, WIDER * largest, self.largest))
        angle = np.arccos(weights / self.reach)[..., None]
        value = np.cos(self.orders * angle)
        slope = self.orders * np.sin(self.orders * angle) / (self.reach * np.sin(angle))
        own = self.place[:, None, None] == np.arange(len(self.recurrences))[:, None]
        value, slope = ((own * part[:, :, None]).reshape(*weights.shape, -1) for part in (value, slope))
        return value, slope


def learner_for(task: Task, network: Network, training: Training) -> MapLearner:
    """Return the learner of a network and of the weights that learn."""
    default = default_learn(network)
    check_plain_descent(training)
    if isinstance(network, Activated):
        return _activated_learner(task, network, training)
    check_fit(task, network)
    learn = checked_learn(network, training.learn or default)
    if learn == default and network.scalar_recurrence is not None:
        return PooledLearner(network, training.learning_rate)
    return LagLearner(task, network, learn, training.learning_rate)


def _activated_learner(task: Task, network: Activated, training: Training) -> MapLearner:
    if training.learn is not None and set(training.learn) != set(default_learn(network)):
        raise InvalidSpec(f"Activated networks need a fixed recurrence, got learn={training.learn!r}.", field="learn")
    check_network(network, most_tanh_units=None)
    check_fit(task, network.network)
    if network.activation == "tanh":
        return TanhLearner(network, training.learning_rate, recorded_trials(task))
    return ReluLearner(network, training.learning_rate)


def recorded_trials(task: Task) -> MaskedTrials:
    """Return the trials of a task, prepared as its statistics are."""
    if task.recorded_trials is None:
        stored = task.recording is not None and task.recording.blocks is not None
        why = "its trials are too large to be stored" if stored else "it has no recorded trials"
        made = (
            " Make a task of trials with learncast.tasks.from_data(inputs, targets); in a study file, give this task "
            "data = FILE instead of family."
        )
        made = "" if stored else made
        raise InvalidSpec(f"Held-out losses need the trials of {task.name!r}, but {why}.{made}", field="task")
    return task.recorded_trials
