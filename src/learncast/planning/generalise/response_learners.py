"""The learners of networks with ReLU or tanh units."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.planning.generalise.map_learner import MapLearner
from learncast.tasks.covariance import check_memory
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.theory.responses.response import active_units, linear_weights

#: Numbers of coefficients of the response of a tanh unit, and largest size of the last ones; responses are up to 1.
COEFFICIENTS, TAIL = [round(24 * 2 ** (k / 2)) for k in range(12)], 1e-11
#: Multiple of this size that other trials may have.
ENOUGH = 30
#: Factor by which a learner reaches farther than what is known to be needed.
WIDER = 1.7

Result = TypeVar("Result")


class ResponseLearner(MapLearner):
    """Nonlinear units with fixed recurrence on one input. A state is the input weights a, then the output weights c.

    The response of a unit is linear in the window, h(a) = v(a) . w, so the map is the sum of c v(a)^T over units.
    """

    name = "responses"
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
