"""The small learning problem that responses leave: the loss of a few weights, from measured statistics alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.theory.responses.features import Features
from learncast.theory.responses.response import Response, active_units, linear_weights
from learncast.theory.responses.table import Table

__all__: list[str] = []  # serves the modules around it

#: Share of the largest eigenvalue of E[z z'] below which a combination of features does not vary.
_SILENT = 1e-12

#: Descent whose loss has grown by this factor has diverged.
_DIVERGED = 1e6


@dataclass(frozen=True, eq=False)
class FeatureProblem:
    """Loss and slopes of states (rows, units + outputs x units): input weights a, then output weights c.

    Row 0 is the estimate, the others its replicas; a single row is the estimate. With ReLU units
    L = E|y|^2 / 2 - sum U . E[y z] + U E[z z'] U^T / 2, U[o, f] = sum of c_i |a_i| over units of f.

    A unit belongs to the feature of its recurrence and of its input weight's sign; a descent step across 0 moves it to
    the other sign's, exactly as in the network itself. At a = 0 the slope is 0.

    Attributes
    ----------
    features : Features
    place : (units,)
        Index of each unit's recurrence.
    held : (features,)
        Features that the units hold at the start.
    """

    features: Features
    place: NDArray[np.intp]
    held: NDArray[np.bool_]
    outputs: int

    @property
    def units(self) -> int:
        """Units that learn."""
        return len(self.place)

    @property
    def constant(self) -> FloatArray:
        """Loss of a silent network."""
        return self.features.target_power / 2

    def _split(self, state: FloatArray, signs: FloatArray | None) -> tuple[FloatArray, ...]:
        a, c = state[:, : self.units], state[:, self.units :].reshape(len(state), self.outputs, self.units)
        s = np.sign(a) if signs is None else np.broadcast_to(signs, a.shape)
        mask = (2 * self.place + (s < 0))[..., None] == np.arange(2 * len(self.features.recurrences))
        return s, s * a, c, mask.astype(float)

    def loss_and_slopes(self, state: FloatArray, signs: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Loss and gradient; with `signs`, on the smooth continuation of these signs' responses."""
        s, w, c, mask = self._split(state, signs)
        rows = len(state)
        beta, B = self.features.cross[:rows], self.features.power[:rows]
        U = np.matmul(c * w[:, None], mask)
        UB = np.matmul(U, B)
        loss = self.constant[:rows] + (U * (UB / 2 - beta)).sum(axis=(1, 2))
        missing = np.matmul(beta - UB, mask.transpose(0, 2, 1))  # (rows, outputs, units)
        da = -s * (c * missing).sum(axis=1)
        dc = -w[:, None] * missing
        return loss, np.concatenate([da, dc.reshape(rows, -1)], axis=1)

    def pull(self, state: FloatArray) -> FloatArray:
        """Velocity of each |a| were it on the side of either sign, (2, units), of a single row."""
        _, w, c, mask = self._split(state, None)
        missing = self.features.cross[:1] - np.matmul(np.matmul(c * w[:, None], mask), self.features.power[:1])
        return np.stack([(c[0] * missing[0][:, 2 * self.place + k]).sum(axis=0) for k in (0, 1)])

    def strengths(self, state: FloatArray) -> FloatArray:
        """U, (rows, outputs, features)."""
        _, w, c, mask = self._split(state, None)
        return np.matmul(c * w[:, None], mask)

    def row(self, index: int) -> FeatureProblem:
        """The problem of one row alone."""
        f, here = self.features, slice(index, index + 1)
        return replace(self, features=Features(f.recurrences, f.cross[here], f.power[here], f.target_power[here]))

    def least_loss(self) -> FloatArray:
        """Least squares on the features that the units hold at the start."""
        B = self.features.power[:, self.held][:, :, self.held]
        beta = self.features.cross[:, :, self.held]
        values, vectors = np.linalg.eigh(B)
        live = values > _SILENT * values[:, -1:]
        turned = np.matmul(beta, vectors) ** 2 / np.where(live, values, np.inf)[:, None, :]
        return self.constant - turned.sum(axis=(1, 2)) / 2


@dataclass(frozen=True, eq=False)
class TableProblem:
    """The same of one tabulated unit: L = E|y|^2 / 2 - c . E[y h(a)] + |c|^2 E[h(a)^2] / 2."""

    table: Table
    outputs: int
    units: int = 1
    first: int = 0

    @property
    def constant(self) -> FloatArray:
        """Loss of a silent network."""
        return self.table.target_power / 2

    def loss_and_slopes(self, state: FloatArray, signs: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Loss and gradient, from the table and its slope; a table has no signs to keep."""
        a, c = state[:, 0], state[:, 1:]
        g1, d1, g2, d2 = self.table.moments(a, self.first)
        size = (c**2).sum(axis=1)
        loss = self.constant[self.first : self.first + len(state)] - (c * g1).sum(axis=1) + size * g2 / 2
        da = -(c * d1).sum(axis=1) + size * d2 / 2
        return loss, np.concatenate([da[:, None], g2[:, None] * c - g1], axis=1)

    def strengths(self, state: FloatArray) -> FloatArray:
        """What the output makes of a small input, a c."""
        return (state[:, :1] * state[:, 1:])[:, :, None]

    def row(self, index: int) -> TableProblem:
        """The problem of one row alone."""
        return replace(self, first=index)

    def least_loss(self) -> FloatArray:
        """Loss of the best readout of the best input weight in the table, from 0 on."""
        return self.constant - self.table.explained() / 2


SmallProblem = FeatureProblem | TableProblem


def small_problem(response: Response) -> tuple[SmallProblem, FloatArray]:
    """The small problem of a response, and its network's weights as a state (1, weights)."""
    active, w = active_units(response.network), linear_weights(response.network)
    a, c = w.input_weights[active, 0], w.output_weights[:, active]
    state = np.concatenate([a, c.ravel()])[None]
    if isinstance(response.statistics, Table):
        return TableProblem(response.statistics, w.outputs), state
    features = response.statistics
    place = np.searchsorted(features.recurrences, np.diagonal(w.recurrent_weights)[active])
    held = np.zeros(2 * len(features.recurrences), dtype=bool)
    held[2 * place + (a < 0)] = True
    return FeatureProblem(features, place, held, w.outputs), state


def network_of(network: Activated, state: FloatArray) -> Activated:
    """The network whose active units have the weights of one state."""
    active, w = active_units(network), linear_weights(network)
    inputs, outputs = np.array(w.input_weights), np.array(w.output_weights)
    inputs[active, 0] = state[: len(active)]
    outputs[:, active] = state[len(active) :].reshape(w.outputs, len(active))
    return Activated(LinearRNN(inputs, w.recurrent_weights, outputs), network.activation)


def descended(problem: SmallProblem, state: FloatArray, learning_rate: float, steps: int) -> FloatArray:
    """States of gradient descent, (steps + 1, rows, weights)."""
    found = np.empty((steps + 1, *state.shape))
    found[0] = state
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(steps):
            found[n + 1] = found[n] - learning_rate * problem.loss_and_slopes(found[n])[1]
    return found


@dataclass(frozen=True, eq=False)
class Arrival:
    """Gradient descent to a goal, by row.

    Attributes
    ----------
    steps : (rows,)
        Whole steps; infinite where descent diverges, nan where it was given up.
    between : (rows,)
        The same as a real number: the loss is taken as linear between steps.
    state, state_between : (rows, weights)
        Weights after these steps, and at the real number of them.
    """

    steps: FloatArray
    between: FloatArray
    state: FloatArray
    state_between: FloatArray


def arrival(
    problem: SmallProblem, state: FloatArray, learning_rate: float, goal: FloatArray, most: int, *, late: float = np.inf
) -> Arrival:
    """Descend until the loss is at most the goal, row by row; rows `late` times slower than row 0 are given up."""
    rows = len(state)
    steps, between = np.full(rows, np.nan), np.full(rows, np.nan)
    state, before, previous, inside = state.copy(), np.full(rows, np.nan), state.copy(), state.copy()
    going, first = np.ones(rows, dtype=bool), None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for n in range(most + 1):
            loss, slopes = problem.loss_and_slopes(state)
            first = loss if first is None else first
            there = going & (loss <= goal)
            if there.any():
                steps[there] = n
                share = (before - goal) / (before - loss) if n else np.zeros(rows)
                between[there] = np.maximum(n - 1 + share, 0.0)[there]
                inside[there] = (previous + share[:, None] * (state - previous))[there]
            lost = going & ~(loss <= _DIVERGED * np.maximum(first, np.abs(goal)))
            steps[lost] = between[lost] = np.inf
            going &= ~(there | lost)
            if not going.any() or (not going[0] and n >= late * between[0] + 100):
                break
            before, previous = loss, state
            state = np.where(going[:, None], state - learning_rate * slopes, state)
    return Arrival(steps, between, state, inside)


def sharpness(problem: SmallProblem, states: FloatArray) -> float:
    """Largest curvature of the loss at any of some states (places, weights), by power iteration."""
    largest = 0.0
    for state in states:
        scale = 1e-5 * max(float(np.abs(state).max()), 1e-3)
        direction = np.cos(np.arange(len(state)) + 1.0)
        curvature = 0.0
        for _ in range(30):
            direction = direction / (np.linalg.norm(direction) or 1.0)
            ahead, behind = (problem.loss_and_slopes((state + k * scale * direction)[None])[1][0] for k in (1, -1))
            direction = (ahead - behind) / (2 * scale)
            curvature = float(np.linalg.norm(direction))
        largest = max(largest, curvature)
    return largest
