"""The reduced learning problem: the loss of a few weights, given measured responses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.theory.responses.features import Features
from learncast.theory.responses.response import Response, active_units, linear_weights
from learncast.theory.responses.table import ResponseTable

__all__: list[str] = []  # internal to the package

#: Share of the largest eigenvalue of E[z z'] below which a combination of features does not vary.
_SILENT = 1e-12

#: Factor by which the loss must grow for descent to count as diverged.
_DIVERGED = 1e6


@dataclass(frozen=True, eq=False)
class FeatureProblem:
    """Loss and gradient of ReLU units at states (rows, units + outputs x units): input weights a, output weights c.

    Row 0 is the estimate and the others are its resamples. With U[o, f] the sum of c_i |a_i| over the units of
    feature f, L = E|y|^2 / 2 - sum U . E[y z] + U E[z z'] U^T / 2.

    A unit belongs to the feature of its recurrence and of the sign of its input weight. A descent step across 0 moves
    it to the feature of the other sign, exactly as in the network itself. The gradient at a = 0 is 0.

    Attributes
    ----------
    features : Features
    place : (units,)
        Index of each unit's recurrence.
    held : (features,)
        Features that units have at the start.
    """

    features: Features
    place: NDArray[np.intp]
    held: NDArray[np.bool_]

    @property
    def units(self) -> int:
        """Number of units that learn."""
        return len(self.place)

    @property
    def constant(self) -> FloatArray:
        """Loss of a silent network."""
        return self.features.target_power / 2

    def _split(self, state: FloatArray, signs: FloatArray | None = None) -> tuple[FloatArray, ...]:
        """Return sign, |a|, c, membership of units in features, and U."""
        a, c = state[:, : self.units], state[:, self.units :].reshape(len(state), -1, self.units)
        s = np.sign(a) if signs is None else np.broadcast_to(signs, a.shape)
        mask = (2 * self.place + (s < 0))[..., None] == np.arange(2 * len(self.features.recurrences))
        w, member = s * a, mask.astype(float)
        return s, w, c, member, np.matmul(c * w[:, None], member)

    def loss_and_slopes(self, state: FloatArray, signs: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return loss and gradient; with `signs`, of the smooth continuation of the features of these signs."""
        s, w, c, member, U = self._split(state, signs)
        rows = len(state)
        beta, B = self.features.cross[:rows], self.features.power[:rows]
        UB = np.matmul(U, B)
        loss = self.constant[:rows] + (U * (UB / 2 - beta)).sum(axis=(1, 2))
        residual = np.matmul(beta - UB, member.transpose(0, 2, 1))  # (rows, outputs, units)
        da = -s * (c * residual).sum(axis=1)
        dc = -w[:, None] * residual
        return loss, np.concatenate([da, dc.reshape(rows, -1)], axis=1)

    def pull(self, state: FloatArray) -> FloatArray:
        """Return the velocity that each |a| of a single row would have with either sign, (2, units)."""
        *_, c, _, U = self._split(state)
        residual = self.features.cross[:1] - np.matmul(U, self.features.power[:1])
        return np.stack([(c[0] * residual[0][:, 2 * self.place + k]).sum(axis=0) for k in (0, 1)])

    def strengths(self, state: FloatArray) -> FloatArray:
        """Return U, (rows, outputs, features)."""
        return self._split(state)[-1]

    def row(self, index: int) -> FeatureProblem:
        """Return the problem of a single row."""
        f, one = self.features, slice(index, index + 1)
        return replace(self, features=Features(f.recurrences, f.cross[one], f.power[one], f.target_power[one]))

    @cached_property
    def _best(self) -> FloatArray:
        """Least-squares readout of the features that units have at the start, (rows, outputs, held features)."""
        values, vectors = np.linalg.eigh(self.features.power[:, self.held][:, :, self.held])
        live = values > _SILENT * values[:, -1:]
        along = np.matmul(self.features.cross[:, :, self.held], vectors) / np.where(live, values, np.inf)[:, None, :]
        return np.matmul(along, vectors.transpose(0, 2, 1))

    @cached_property
    def least_loss(self) -> FloatArray:
        """Least loss of any readout of the features that units have at the start, (rows,)."""
        return self.constant - (self._best * self.features.cross[:, :, self.held]).sum(axis=(1, 2)) / 2

    @property
    def loss_bound(self) -> FloatArray:
        """Least loss of any readout of the features that units can get, for they may change their signs, (rows,)."""
        return replace(self, held=np.repeat(self.held.reshape(-1, 2).any(axis=1), 2)).least_loss

    @property
    def optimum(self) -> FloatArray:
        """Strengths of the estimate at the least loss, (outputs, features)."""
        best = np.zeros(self.features.cross.shape[1:])
        best[:, self.held] = self._best[0]
        return best


@dataclass(frozen=True, eq=False)
class TableProblem:
    """Loss and gradient of one tabulated unit: L = E|y|^2 / 2 - c . E[y h(a)] + |c|^2 E[h(a)^2] / 2.

    States are (rows, 1 + outputs), the input weight first. Rows are those of the table, or all are its row `single`.
    """

    table: ResponseTable
    single: int | None = None
    units = 1

    @property
    def constant(self) -> FloatArray:
        """Loss of a silent network."""
        return self.table.target_power / 2

    def loss_and_slopes(self, state: FloatArray, signs: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return loss and gradient; the responses are smooth, so `signs` are ignored."""
        a, c = state[:, 0], state[:, 1:]
        rows = slice(0, len(state)) if self.single is None else self.single
        g1, d1, g2, d2 = self.table.moments(a, rows)
        size, along, turned = (np.einsum("no,no->n", c, other) for other in (c, g1, d1))
        loss = self.constant[rows] - along + size * g2 / 2
        da = size * d2 / 2 - turned
        return loss, np.concatenate([da[:, None], g2[:, None] * c - g1], axis=1)

    def strengths(self, state: FloatArray) -> FloatArray:
        """Return the gain of a small input, a c, (rows, outputs, 1)."""
        return (state[:, :1] * state[:, 1:])[:, :, None]

    def row(self, index: int) -> TableProblem:
        """Return the problem of a single row."""
        return replace(self, single=index)

    @property
    def least_loss(self) -> FloatArray:
        """Loss of the best readout of the best input weight, (rows,)."""
        return self.constant - self.table.best[1] / 2

    @property
    def loss_bound(self) -> FloatArray:
        """Least loss that the unit can reach, (rows,)."""
        return self.least_loss

    @property
    def optimum(self) -> FloatArray:
        """Gain of a small input of the estimate at the least loss, (outputs, 1)."""
        weight = self.table.best[0][:1]
        cross, _, power, _ = self.table.moments(weight, 0)
        return (weight * cross / power[:, None]).T


ReducedProblem = FeatureProblem | TableProblem


def reduced_problem(response: Response) -> tuple[ReducedProblem, FloatArray]:
    """Return the reduced problem of a response, and the weights of its network as a state (1, weights)."""
    active, w = active_units(response.network), linear_weights(response.network)
    a, c = w.input_weights[active, 0], w.output_weights[:, active]
    state = np.concatenate([a, c.ravel()])[None]
    features = response.statistics
    if isinstance(features, ResponseTable):
        return TableProblem(features), state
    place = np.searchsorted(features.recurrences, np.diagonal(w.recurrent_weights)[active])
    held = np.zeros(2 * len(features.recurrences), dtype=bool)
    held[2 * place + (a < 0)] = True
    return FeatureProblem(features, place, held), state


def full_weights(network: Activated, states: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the input and output weights, (n, ...) each, of a network whose active units have states (n, weights)."""
    active, w = active_units(network), linear_weights(network)
    inputs, outputs = (np.repeat(weights[None], len(states), axis=0) for weights in (w.input_weights, w.output_weights))
    inputs[:, active, 0] = states[:, : len(active)]
    outputs[:, :, active] = states[:, len(active) :].reshape(len(states), w.outputs, len(active))
    return inputs, outputs


def network_of(network: Activated, state: FloatArray) -> Activated:
    """Return a network whose active units have the weights of one state (weights,)."""
    (inputs,), (outputs,) = full_weights(network, state[None])
    return Activated(LinearRNN(inputs, linear_weights(network).recurrent_weights, outputs), network.activation)


def descent_states(problem: ReducedProblem, state: FloatArray, learning_rate: float, steps: int) -> FloatArray:
    """Return the states of gradient descent, (steps + 1, rows, weights)."""
    states = np.empty((steps + 1, *state.shape))
    states[0] = state
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(steps):
            states[n + 1] = states[n] - learning_rate * problem.loss_and_slopes(states[n])[1]
    return states


@dataclass(frozen=True, eq=False)
class Arrival:
    """Gradient descent to a goal, by row.

    Attributes
    ----------
    steps : (rows,)
        Number of steps; infinite if descent diverges, nan if it was stopped before.
    crossing : (rows,)
        Real number of steps at which the loss, interpolated linearly between steps, is the goal.
    state, crossing_state : (rows, weights)
        Weights after `steps` and at `crossing`.
    """

    steps: FloatArray
    crossing: FloatArray
    state: FloatArray
    crossing_state: FloatArray


def descend_to(
    problem: ReducedProblem, state: FloatArray, rate: float, goal: FloatArray, most: int, *, late: float = np.inf
) -> Arrival:
    """Descend until the loss of each row is at most its goal.

    Descent stops after `most` steps, or when the rows that remain take more than `late` times as long as row 0.
    """
    rows = len(state)
    steps, crossing = np.full(rows, np.nan), np.full(rows, np.nan)
    state, loss_before, before, crossing_state = state.copy(), np.full(rows, np.nan), state.copy(), state.copy()
    going, first = np.ones(rows, dtype=bool), None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for n in range(most + 1):
            loss, slopes = problem.loss_and_slopes(state)
            first = loss if first is None else first
            arrived = going & (loss <= goal)
            if arrived.any():
                steps[arrived] = n
                share = (loss_before - goal) / (loss_before - loss) if n else np.zeros(rows)
                crossing[arrived] = np.maximum(n - 1 + share, 0.0)[arrived]
                crossing_state[arrived] = (before + share[:, None] * (state - before))[arrived]
            diverged = going & ~(loss <= _DIVERGED * np.maximum(first, np.abs(goal)))
            steps[diverged] = crossing[diverged] = np.inf
            going &= ~(arrived | diverged)
            if n == most or not going.any() or (not going[0] and n >= late * crossing[0] + 100):
                break
            loss_before, before = loss, state
            state = np.where(going[:, None], state - rate * slopes, state)
    return Arrival(steps, crossing, state, crossing_state)


def sharpness(problem: ReducedProblem, states: FloatArray) -> float:
    """Return the largest curvature of the loss at any of some states (n, weights), by power iteration.

    The slope jumps where the input weight of a ReLU unit is 0, which is no curvature: units keep their signs.
    """
    largest = 0.0
    for state in states:
        signs = np.sign(state[: problem.units])
        scale = 1e-5 * max(float(np.abs(state).max()), 1e-3)
        direction = np.cos(np.arange(len(state)) + 1.0)
        curvature = 0.0
        for _ in range(30):
            direction = direction / (np.linalg.norm(direction) or 1.0)
            places = ((state + k * scale * direction)[None] for k in (1, -1))
            ahead, behind = (problem.loss_and_slopes(place, signs)[1][0] for place in places)
            direction = (ahead - behind) / (2 * scale)
            curvature = float(np.linalg.norm(direction))
        largest = max(largest, curvature)
    return largest
