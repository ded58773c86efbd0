"""Gradient descent of a pooled problem: a few dozen numbers, many networks side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.tasks.best_map import best_map
from learncast.theory.dynamics.steps.strides import UNLEARNED, Descents

__all__: list[str] = []  # serves the modules around it

#: Share of the largest column of the weights below which a hidden direction is round-off.
RANK = 1e-13
#: Descent steps after which a count is given up.
MOST_STEPS = 2_000_000


def hidden_basis(first: FloatArray, second: FloatArray) -> FloatArray:
    """Orthonormal hidden directions that the weights use, (hidden, rank).

    [A, C^T] = Q [A', C'^T]; (A', C') obeys the same descent on any task, and no direction beyond Q is ever reached.
    """
    q, r, _ = scipy.linalg.qr(np.concatenate([first, second.T], axis=1), mode="economic", pivoting=True)
    size = np.abs(np.diagonal(r))
    return np.asarray(q[:, : max(1, int(np.count_nonzero(size > RANK * size.max(initial=0.0))))])


def pull(states: FloatArray, power: FloatArray, cross: FloatArray, inputs: int) -> FloatArray:
    """Minus the gradient of states [A^T; C] (rows, inputs + outputs, hidden): [G^T C; G A^T] with G = R - M S."""
    found = np.empty_like(states)
    if len(states) == 1 and states.ndim == 3:  # plain matrices: a stack of one takes twice as long
        states, out = states[0], found[0]
        power, cross = power.reshape(power.shape[-2:]), cross.reshape(cross.shape[-2:])
        first, second = states[:inputs], states[inputs:]
        G = np.dot(np.dot(second, first.T), power)
        np.subtract(cross, G, out=G)
        np.dot(G.T, second, out=out[:inputs])
        np.dot(G, first, out=out[inputs:])
        return found
    first, second = states[:, :inputs], states[:, inputs:]
    G = (second @ np.swapaxes(first, 1, 2)) @ power
    np.subtract(cross, G, out=G)
    np.matmul(np.swapaxes(G, 1, 2), second, out=found[:, :inputs])
    np.matmul(G, first, out=found[:, inputs:])
    return found


@dataclass(frozen=True, eq=False)
class PooledDescent:
    """Networks M = C A that learn to map the pooled input z to y: A <- A - eta C^T G, C <- C - eta G A^T, G = M S - R.

    States are (rows, hidden, inputs + outputs), A beside C^T. S and R are those of one task for all rows, or one a row.

    Attributes
    ----------
    power : ([rows,] inputs, inputs)
        S = E[z z^T].
    cross : ([rows,] outputs, inputs)
        R = E[y z^T].
    """

    power: FloatArray
    cross: FloatArray

    @cached_property
    def best(self) -> FloatArray:
        """The best map M* = R S^+."""
        return best_map(self.power, self.cross)

    @property
    def whole(self) -> FloatArray:
        """Excess loss of a network that answers nothing."""
        return np.asarray((self.best * self.cross).sum(axis=(-2, -1)) / 2)

    @property
    def inputs(self) -> int:
        """Channels of the pooled input."""
        return self.power.shape[-1]

    @cached_property
    def growth(self) -> float:
        """Largest rate at which weights grow away from nothing, the first singular value of R."""
        return float(np.linalg.norm(self.cross, 2, axis=(-2, -1)).max(initial=0.0))

    @cached_property
    def _root(self) -> FloatArray:
        """S^1/2."""
        values, vectors = np.linalg.eigh(self.power)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2))

    @cached_property
    def curvature(self) -> float:
        """Largest curvature at the balanced optimum, sigma_1(M*) S + S^1/2 |M*| S^1/2."""
        root = self._root
        _, strengths, right = np.linalg.svd(self.best, full_matrices=False)
        size = np.swapaxes(right, -1, -2) @ (strengths[..., None] * right)
        first = strengths[..., :1, None] * np.eye(self.inputs)
        found = np.linalg.eigvalsh(root @ (first + size) @ root)
        return float(found.max(initial=0.0))

    @cached_property
    def flattest(self) -> float:
        """Largest curvature at the flattest optimum, min over g of g^2 S + g^-2 S^1/2 M*^T M* S^1/2.

        Descent at more than 2 over it settles nowhere. Below, it may leave a sharper optimum for a flatter one, which
        is why its steps are counted.
        """
        inner = self._root @ np.swapaxes(self.best, -1, -2) @ self.best @ self._root

        def largest(log: float) -> float:
            return float(np.linalg.eigvalsh(math.exp(log) * self.power + math.exp(-log) * inner).max(initial=0.0))

        sizes = float(np.linalg.norm(inner)), float(np.linalg.norm(self.power))
        if min(sizes) == 0:
            return 0.0
        middle = math.log(sizes[0] / sizes[1]) / 2  # where both parts are alike
        return float(scipy.optimize.minimize_scalar(largest, bounds=(middle - 5, middle + 5), method="bounded").fun)

    def sharpness(self, states: FloatArray) -> float:
        """Largest curvature of any row without the part of the residual, S^1/2 (|C|^2 + A^T A) S^1/2."""
        first, second = states[..., : self.inputs, :], states[..., self.inputs :, :]
        root = self._root
        size = np.linalg.norm(second, 2, axis=(-2, -1))[..., None, None] ** 2 * np.eye(self.inputs)
        return float(np.linalg.eigvalsh(root @ (size + first @ np.swapaxes(first, -1, -2)) @ root).max(initial=0.0))

    def excess(self, states: FloatArray, rows: NDArray[np.intp] | None = None) -> FloatArray:
        """Loss above the best linear map's."""
        return self.excess_of(self._map(states), rows)

    def excess_of(self, maps: FloatArray, rows: NDArray[np.intp] | None = None) -> FloatArray:
        """The same of maps (..., outputs, inputs)."""
        gap = maps - self._of(self.best, rows)
        return np.asarray((gap @ self._of(self.power, rows) * gap).sum(axis=(-2, -1)) / 2)

    def _map(self, states: FloatArray) -> FloatArray:
        return np.asarray(states[..., self.inputs :, :] @ np.swapaxes(states[..., : self.inputs, :], -1, -2))

    @staticmethod
    def _of(values: FloatArray, rows: NDArray[np.intp] | None) -> FloatArray:
        return values[rows] if values.ndim > 2 and rows is not None else values

    def counted(
        self, states: FloatArray, goal: Any, learning_rate: float, most_steps: int = MOST_STEPS, *, precise: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """Steps of descent until each row's excess loss is down to its goal, and its state then.

        Infinite where descent runs away, unknown (nan) where it does not arrive in time. To a step or so where not
        precise, which is enough for resamplings.
        """
        return self._towards(np.asarray(goal), states, learning_rate).counted(states, most_steps, precise=precise)

    def descended(
        self, states: FloatArray, stops: Sequence[int], learning_rate: float, *, precise: bool = True
    ) -> list[FloatArray]:
        """States after each of these rising numbers of steps; to a step's worth where not precise."""
        return self._towards(np.zeros(()), states, learning_rate).descended(states, stops, precise=precise)

    def rows(self, chosen: NDArray[np.intp]) -> PooledDescent:
        """Some of the rows, each as often as it is named."""
        return PooledDescent(self._of(self.power, chosen), self._of(self.cross, chosen))

    def _towards(self, goal: FloatArray, states: FloatArray, learning_rate: float) -> Descents:
        """Descents to a goal, with strides for the sharpest that these states meet."""
        last: list[Any] = [None, None, None]  # the rows that go on, and their statistics

        def slope(states: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
            if last[0] is not rows:
                last[:] = rows, self._of(self.power, rows), self._of(self.cross, rows)
            return pull(states, last[1], last[2], self.inputs)

        def arrived(states: FloatArray, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            return np.asarray(self.excess(states, rows) <= (goal[rows] if goal.ndim else goal))

        sharp = self.sharpness(states)
        # Where most of what the network does must be unlearned, that takes the time, and no growth.
        unlearns = (self.excess(states) > UNLEARNED * self.whole).any()
        growth = max(self.growth, sharp) if unlearns else self.growth
        return Descents(slope, arrived, max(self.curvature, sharp), growth, learning_rate)
