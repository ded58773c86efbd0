"""The learners of linear networks, and the choice of the learner of a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep, product
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.planning.generalise.map_learner import MapLearner, recorded_trials
from learncast.planning.generalise.response_learners import ReluLearner, TanhLearner
from learncast.planning.methods.choice import check_plain_descent, default_learn
from learncast.procedure.training import Training
from learncast.tasks.covariance import check_memory
from learncast.tasks.geometry import pooled_statistics, recurrence_kernel
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import (
    AS_RECURRENT,
    LearningProblem,
    checked_learn,
    lag_statistics,
)
from learncast.theory.dynamics.steps.deep_descent import DeepDescent
from learncast.theory.dynamics.steps.lag_descent import LagDescent
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, hidden_basis, pull
from learncast.theory.responses.response import check_network


class PooledLearner(MapLearner):
    """Fixed scalar recurrence: a two-layer network on the pooled input.

    A state is [A^T; C] in the hidden directions that the start uses.
    """

    name = "pooled"
    most_steps = 100_000

    def __init__(self, network: LinearRNN | TwoLayer, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.recurrence = 0.0 if isinstance(network, TwoLayer) else float(network.scalar_recurrence or 0.0)
        first, second = network.maps
        self.inputs, self.units = first.shape[1], network.hidden_size
        self.start = np.asarray(np.concatenate([first.T, second]) @ hidden_basis(first, second))

    def windows(self, trials: MaskedTrials) -> FloatArray:
        return trials.pooled(recurrence_kernel(self.recurrence, trials.inputs.shape[1], trials.targets.shape[1]))[0]

    def moments(self, task: Task) -> tuple[FloatArray, FloatArray]:
        cross, power = pooled_statistics(task, self.recurrence)
        return power, cross.T

    def maps(self, states: FloatArray) -> FloatArray:
        return np.asarray(states[..., self.inputs :, :] @ np.swapaxes(states[..., : self.inputs, :], -1, -2))

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        gains = states[..., self.inputs :, :] if hidden else self.maps(states)
        return np.power(self.recurrence, np.arange(steps))[:, None, None] * gains[:, None]

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        return states + self.learning_rate * pull(states, power, cross, self.inputs)

    def advance(
        self, power: FloatArray, cross: FloatArray, states: FloatArray, stops: Sequence[int]
    ) -> list[FloatArray]:
        return self._descent(power, cross).advance(states, stops, self.learning_rate)

    def _descent(self, power: FloatArray, cross: FloatArray) -> PooledDescent:
        return PooledDescent(power, cross, self.units)


class DeepLearner(PooledLearner):
    """Any number of layers on the pooled input. A state is all weights, flattened."""

    name = "deep"

    def __init__(self, network: Deep, learning_rate: float) -> None:
        MapLearner.__init__(self, learning_rate)
        self.recurrence, self.units = network.scalar_recurrence, network.hidden_size
        self.shapes = tuple(w.shape for w in network.weights)
        self.start = np.concatenate([w.ravel() for w in network.weights])

    def _descent(self, power: FloatArray, cross: FloatArray) -> DeepDescent:
        return DeepDescent(power, cross, self.units, self.shapes)

    def maps(self, states: FloatArray) -> FloatArray:
        return self._descent(np.zeros((1, 1)), np.zeros((1, 1))).maps(states)

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        layers = self._descent(np.zeros((1, 1)), np.zeros((1, 1))).layers(states)
        return np.power(self.recurrence, np.arange(steps))[:, None, None] * product(layers[hidden:])[:, None]

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        return states + self.learning_rate * self._descent(power, cross).pull(states, power, cross)


class LagLearner(MapLearner):
    """Any weights of a linear network learn. A state is the weights that learn, flattened."""

    name = "flow"

    def __init__(self, task: Task, network: LinearRNN | TwoLayer, learn: tuple[str, ...], learning_rate: float) -> None:
        super().__init__(learning_rate)
        problem = LearningProblem(task, network, learn)
        self.recurrence = problem.pooled_recurrence
        names, weights = [AS_RECURRENT[name] for name in learn], problem.start
        first, second = (weights[name] for name in problem.map_names)
        kept = weights.get("recurrent", np.zeros((len(first), len(first))))
        learns = "input" in names, "recurrent" in names, "output" in names
        self.values = task.inputs * (1 if self.recurrence is not None else task.steps)
        empty = np.zeros((len(second), self.values))
        self.descent = LagDescent(np.zeros((1, 1)), empty, np.zeros(()), (first, kept, second), learns)
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
        s = lag_statistics(task)
        return s.input.reshape(self.values, self.values), s.cross.transpose(1, 0, 2).reshape(s.outputs, self.values)

    def maps(self, states: FloatArray) -> FloatArray:
        flat = self.descent.maps(states.reshape(-1, states.shape[-1]))
        return flat.reshape(*states.shape[:-1], *flat.shape[1:])

    def filters(self, states: FloatArray, steps: int, *, hidden: bool) -> FloatArray:
        by_lag = self.descent if self.recurrence is None else self._unpooled(steps)
        gains = by_lag.filters(states)[0].transpose(1, 0, 2, 3)
        return gains if hidden else np.asarray(gains @ by_lag.parts(states)[0][:, None])

    def _unpooled(self, steps: int) -> LagDescent:
        """The descent with a window of every lag."""
        A, W, C = self.descent.weights
        return replace(self.descent, cross=np.zeros((len(C), steps * A.shape[1])), weights=(A, W, C))

    def step(self, power: FloatArray, cross: FloatArray, states: FloatArray) -> FloatArray:
        descent = replace(self.descent, power=power, cross=cross, constant=np.zeros(len(states)))
        return np.asarray(states - self.learning_rate * descent.loss_and_slopes(states)[1])


def learner_for(task: Task, network: Network, training: Training) -> MapLearner:
    """Return the learner of a network and of the weights that learn."""
    default = default_learn(network)
    check_plain_descent(training)
    plain = Training(training.learning_rate)
    for key in ("optimizer", "weight_decay", "loss"):
        if getattr(training, key) != getattr(plain, key):
            given = f"{key}={getattr(training, key)!r:.40}"
            raise InvalidSpec(f"Held-out losses need gradient descent on half_mse, got {given}.", field=key)
    if isinstance(network, Activated):
        return _activated_learner(task, network, training)
    check_fit(task, network)
    learn = checked_learn(network, training.learn or default)
    if isinstance(network, Deep):
        LearningProblem.of(task, network, learn)
        return DeepLearner(network, training.learning_rate)
    if learn == default and (isinstance(network, TwoLayer) or network.scalar_recurrence is not None):
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
