"""Gradient descent of two-layer linear networks on pooled inputs, many networks in parallel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.validation import FloatArray
from learncast.tasks.best_map import Correlations, best_map
from learncast.theory.dynamics.steps.strides import MOST_MOVES, UNLEARNED, Descents

__all__ = ["PooledDescent"]

#: Relative size of the weights below which a hidden direction is round-off.
RANK = 1e-13
#: Share of the strongest mode's part of the answer below which a mode is round-off.
SILENT_MODE = 1e-7
#: Largest number of descent steps that are counted.
MOST_STEPS = 2_000_000


def hidden_basis(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return an orthonormal basis Q of the hidden directions that the weights use, (hidden, rank).

    With [A, C^T] = Q [A', C'^T] the small weights (A', C') follow the same descent, and training never leaves Q.
    """
    q, r, _ = scipy.linalg.qr(np.concatenate([first, second.T], axis=1), mode="economic", pivoting=True)
    size = np.abs(np.diagonal(r))
    return np.asarray(q[:, : max(1, int(np.count_nonzero(size > RANK * size.max(initial=0.0))))])


def pull(states: FloatArray, power: FloatArray, cross: FloatArray, inputs: int) -> FloatArray:
    """Return minus the gradient of states [A^T; C], (rows, inputs + outputs, hidden): [G^T C; G A^T], G = R - M S."""
    result = np.empty_like(states)
    if len(states) == 1 and states.ndim == 3:  # plain matrices are twice as fast as a stack of one
        states, out = states[0], result[0]
        power, cross = power.reshape(power.shape[-2:]), cross.reshape(cross.shape[-2:])
        first, second = states[:inputs], states[inputs:]
        G = np.dot(np.dot(second, first.T), power)
        np.subtract(cross, G, out=G)
        np.dot(G.T, second, out=out[:inputs])
        np.dot(G, first, out=out[inputs:])
        return result
    first, second = states[:, :inputs], states[:, inputs:]
    G = (second @ np.swapaxes(first, 1, 2)) @ power
    np.subtract(cross, G, out=G)
    np.matmul(np.swapaxes(G, 1, 2), second, out=result[:, :inputs])
    np.matmul(G, first, out=result[:, inputs:])
    return result


@dataclass(frozen=True, eq=False)
class PooledDescent:
    """Gradient descent of networks M = C A from pooled inputs z to targets y.

    A step is A <- A - eta C^T G, C <- C - eta G A^T with G = M S - R. States [A^T; C] are
    (rows, inputs + outputs, hidden). All rows share one task, or each row has its own.

    Attributes
    ----------
    power : ([rows,] inputs, inputs)
        S = E[z z^T].
    cross : ([rows,] outputs, inputs)
        R = E[y z^T].
    units : int, optional
        Number of hidden units, the largest rank that a map can have; not limited by default.
    """

    power: FloatArray
    cross: FloatArray
    units: int | None = None

    @cached_property
    def best(self) -> FloatArray:
        """Best linear map M* = R S^+ of any rank."""
        return best_map(self.power, self.cross)

    @cached_property
    def _principal(self) -> tuple[FloatArray, FloatArray]:
        """Left singular vectors and singular values of M* S^1/2: what each rank adds to the best map."""
        left, values, _ = np.linalg.svd(self.cross @ Correlations.of(self.power).root, full_matrices=False)
        return left, values

    @cached_property
    def reachable(self) -> FloatArray:
        """Best linear map of the rank that the hidden units allow."""
        if self.units is None or self.units >= min(self.best.shape[-2:]):
            return self.best
        kept = self._principal[0][..., : self.units]
        return np.asarray(kept @ (np.swapaxes(kept, -1, -2) @ self.best))

    @cached_property
    def bottleneck_loss(self) -> FloatArray:
        """Loss of the best map that the hidden units allow, above that of the best map of any rank."""
        values = self._principal[1]
        return np.asarray((values[..., self.units :] ** 2).sum(axis=-1) / 2 if self.units else 0.0 * values[..., 0])

    def loss_without(self, rank: int) -> float:
        """Least excess loss of maps of a rank, for one task."""
        return float((self._principal[1][rank : self.units] ** 2).sum() / 2)

    @property
    def rank(self) -> int:
        """Number of modes of the best map of any rank, for one task."""
        values = self._principal[1]
        return int(np.count_nonzero(values > SILENT_MODE * values.max(initial=0.0)))

    @cached_property
    def baseline_loss(self) -> FloatArray:
        """Excess loss of the zero map."""
        return np.asarray((self._principal[1][..., : self.units] ** 2).sum(axis=-1) / 2)

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.power.shape[-1]

    @cached_property
    def growth(self) -> float:
        """Largest growth rate of small weights, the first singular value of R."""
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
        _, strengths, right = np.linalg.svd(self.reachable, full_matrices=False)
        size = np.swapaxes(right, -1, -2) @ (strengths[..., None] * right)
        first = strengths[..., :1, None] * np.eye(self.inputs)
        return float(np.linalg.eigvalsh(root @ (first + size) @ root).max(initial=0.0))

    @cached_property
    def size(self) -> float:
        """Size of the weights of a balanced optimum."""
        return math.sqrt(float(np.linalg.norm(self.reachable, 2, axis=(-2, -1)).max(initial=0.0)))

    @cached_property
    def flattest(self) -> float:
        """Largest curvature at the flattest optimum, min over g of g^2 S + g^-2 S^1/2 M*^T M* S^1/2.

        Descent with a learning rate above 2 / flattest never converges. Below, it may leave a sharp optimum for a
        flatter one.
        """
        inner = self._root @ np.swapaxes(self.reachable, -1, -2) @ self.reachable @ self._root

        def largest(log: float) -> float:
            return float(np.linalg.eigvalsh(math.exp(log) * self.power + math.exp(-log) * inner).max(initial=0.0))

        sizes = float(np.linalg.norm(inner)), float(np.linalg.norm(self.power))
        if min(sizes) == 0:
            return 0.0
        middle = math.log(sizes[0] / sizes[1]) / 2  # both terms have equal norm there
        return float(scipy.optimize.minimize_scalar(largest, bounds=(middle - 5, middle + 5), method="bounded").fun)

    def sharpness(self, states: FloatArray) -> float:
        """Largest curvature of any row without the residual term, S^1/2 (|C|^2 + A^T A) S^1/2."""
        first, second = states[..., : self.inputs, :], states[..., self.inputs :, :]
        root = self._root
        size = np.linalg.norm(second, 2, axis=(-2, -1))[..., None, None] ** 2 * np.eye(self.inputs)
        curvature = root @ (size + first @ np.swapaxes(first, -1, -2)) @ root
        return float(np.linalg.eigvalsh(curvature).max(initial=0.0)) if np.isfinite(curvature).all() else math.inf

    def excess(self, states: FloatArray, rows: NDArray[np.intp] | None = None) -> FloatArray:
        """Loss of states above the least that the hidden units allow."""
        return self.excess_of(self.maps(states), rows)

    def maps(self, states: FloatArray) -> FloatArray:
        """Maps C A of states, (..., outputs, inputs)."""
        return np.asarray(states[..., self.inputs :, :] @ np.swapaxes(states[..., : self.inputs, :], -1, -2))

    def pull(self, states: FloatArray, power: FloatArray, cross: FloatArray) -> FloatArray:
        """Minus the gradient of states, on these statistics."""
        return pull(states, power, cross, self.inputs)

    def excess_of(self, maps: FloatArray, rows: NDArray[np.intp] | None = None) -> FloatArray:
        """Loss of maps (..., outputs, inputs) above the least that the hidden units allow."""
        gap, lost = maps - self._of(self.best, rows), self.bottleneck_loss
        above = (gap @ self._of(self.power, rows) * gap).sum(axis=(-2, -1)) / 2
        return np.asarray(above - (lost[rows] if lost.ndim and rows is not None else lost))

    @staticmethod
    def _of(values: FloatArray, rows: NDArray[np.intp] | None) -> FloatArray:
        return values[rows] if values.ndim > 2 and rows is not None else values

    def steps_to(
        self,
        states: FloatArray,
        goal: ArrayLike,
        learning_rate: float,
        most_steps: int = MOST_STEPS,
        *,
        precise: bool = True,
    ) -> tuple[FloatArray, FloatArray]:
        """Count the descent steps until the excess loss of each row is at most its goal; return steps and final states.

        Steps are infinite if descent diverges, and nan if the goal is not reached within `most_steps`. Counts that are
        not precise may be off by about one step.
        """
        return self._towards(np.asarray(goal), states, learning_rate).steps_to_goal(states, most_steps, precise=precise)

    def most_counted(self, states: FloatArray, learning_rate: float, moves: int = MOST_MOVES) -> int:
        """Steps that a number of strides or single steps can count, by default those after which `steps_to` ends."""
        return self._towards(np.zeros(()), states, learning_rate).most_counted(states, MOST_STEPS, moves)

    def advance(
        self, states: FloatArray, stops: Sequence[int], learning_rate: float, *, precise: bool = True
    ) -> list[FloatArray]:
        """Return the states after each of the increasing numbers of steps; within about one step if not precise."""
        return self._towards(np.zeros(()), states, learning_rate).states_after(states, stops, precise=precise)

    def rows(self, chosen: NDArray[np.intp]) -> PooledDescent:
        """Return the problem of the chosen rows, with repetitions."""
        if np.array_equal(chosen, np.arange(len(self.power))):  # keep what is known of them
            return self
        return replace(self, power=self._of(self.power, chosen), cross=self._of(self.cross, chosen))

    def _towards(self, goal: FloatArray, states: FloatArray, learning_rate: float) -> Descents:
        last: list[Any] = [None, None, None]  # thousands of steps use the same rows: keep their statistics

        def slope(states: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
            if last[0] is not rows:
                last[:] = rows, self._of(self.power, rows), self._of(self.cross, rows)
            return self.pull(states, last[1], last[2])

        def arrived(states: FloatArray, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            return np.asarray(self.excess(states, rows) <= (goal[rows] if goal.ndim else goal))

        sharp = self.sharpness(states)
        # If the initial loss far exceeds the baseline, unlearning sets the pace instead of growth.
        unlearns = (self.excess(states) > UNLEARNED * self.baseline_loss).any()
        growth = max(self.growth, sharp) if unlearns else self.growth
        return Descents(slope, arrived, max(self.curvature, sharp), growth, learning_rate, size=self.size)
