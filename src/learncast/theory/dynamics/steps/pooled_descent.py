"""Gradient descent of linear networks of any number of layers on pooled inputs, many networks in parallel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.validation import FloatArray
from learncast.networks.two_layer import product
from learncast.tasks.best_map import Correlations
from learncast.theory.dynamics.steps.strides import MOST_MOVES, UNLEARNED, Descents, Rows

__all__ = ["PooledDescent"]

Array = TypeVar("Array", FloatArray, Rows)
Made = TypeVar("Made")

#: Relative size of the weights below which a hidden direction is round-off.
RANK = 1e-13
#: Step of complex differences, relative to the weights: its square is below round-off.
TINY = 1e-30
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


def hidden_bases(weights: Sequence[FloatArray], span: FloatArray | None = None) -> list[FloatArray]:
    """Directions of the inputs, of each hidden layer and of the outputs in which weights move.

    Inputs vary along `span` only, by default along all directions.
    """
    hidden = [hidden_basis(one, two) for one, two in pairwise(weights)]
    return [np.eye(weights[0].shape[1]) if span is None else span, *hidden, np.eye(len(weights[-1]))]


def in_bases(weights: Sequence[FloatArray], bases: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the small weights of each layer between the directions that they use."""
    return [two.T @ w @ one for two, w, one in zip(bases[1:], weights, bases, strict=False)]


def out_of_bases(
    weights: Sequence[FloatArray], bases: Sequence[FloatArray], first: FloatArray | None = None
) -> list[FloatArray]:
    """Return the weights of all units, given those between the directions that they use.

    Outside the directions of the inputs, the first layer keeps the weights `first`.
    """
    full, span = [two @ w @ one.T for two, w, one in zip(bases[1:], weights, bases, strict=False)], bases[0]
    if first is not None and span.shape[1] < len(span):
        full[0] = full[0] + first - first @ span @ span.T
    return full


def joined(weights: Sequence[FloatArray]) -> FloatArray:
    """Return the weights of all layers as one vector."""
    return np.concatenate([w.ravel() for w in weights])


def largest(matrices: FloatArray) -> FloatArray:
    """Largest eigenvalue of symmetric matrices, at least 0."""
    return np.asarray(np.linalg.eigvalsh(matrices).max(axis=-1, initial=0.0))


@dataclass(frozen=True, eq=False)
class PooledDescent:
    """Gradient descent of networks M = W_L ... W_1 from pooled inputs z to targets y.

    A step is W_l <- W_l + eta (W_L ... W_{l+1})^T G (W_{l-1} ... W_1)^T with G = R - M S. States are all weights,
    flattened from the inputs to the outputs: (rows, weights). All rows share one task, or each row has its own.

    Attributes
    ----------
    power : ([rows,] inputs, inputs)
        S = E[z z^T].
    cross : ([rows,] outputs, inputs)
        R = E[y z^T].
    units : int, optional
        Number of units of the narrowest layer, the largest rank that a map can have; not limited by default.
    shapes : tuple of (width, width before), optional
        Of the layers; by default there are two.
    """

    power: FloatArray
    cross: FloatArray
    units: int | None = None
    shapes: tuple[tuple[int, int], ...] = ()

    @property
    def depth(self) -> int:
        """Number of layers, L."""
        return len(self.shapes) or 2

    @cached_property
    def _spans(self) -> list[tuple[slice, tuple[int, int]]]:
        """Where each layer lies in a state, and its shape."""
        ends = np.cumsum([m * n for m, n in self.shapes]).tolist()
        return [(slice(end - m * n, end), (m, n)) for end, (m, n) in zip(ends, self.shapes, strict=True)]

    @cached_property
    def _last(self) -> list[tuple[FloatArray, list[FloatArray]]]:
        """The last slope of one state and its layers: a single step turns it into the next state."""
        return []

    def layers(self, states: FloatArray) -> list[FloatArray]:
        """Weights of each layer, (..., width, width before)."""
        if not self.shapes:
            outputs, inputs = self.cross.shape[-2:]
            hidden = states.shape[-1] // (inputs + outputs)
            return replace(self, shapes=((hidden, inputs), (outputs, hidden))).layers(states)
        if states.ndim == 1:
            return [states[span].reshape(shape) for span, shape in self._spans]
        rows = states.shape[:-1]
        return [states[..., span].reshape(rows + shape) for span, shape in self._spans]

    def maps(self, states: FloatArray) -> FloatArray:
        """Maps of states, (..., outputs, inputs)."""
        return product(self.layers(states))

    def pull(self, states: FloatArray, power: FloatArray, cross: FloatArray) -> FloatArray:
        """Minus the gradient of states (rows, weights), on these statistics."""
        result = np.empty_like(states)
        multiply: Callable[..., FloatArray] = _multiply
        if len(states) == 1:  # plain matrices are twice as fast as a stack of one
            last, multiply = self._last, np.dot
            weights = last[0][1] if last and states is last[0][0] else self.layers(states[0])
            slopes = self.layers(result[0])
            last[:] = [(result, slopes)]
            if power.ndim > 2:
                power, cross = power[0], cross[0]
        else:
            weights, slopes = self.layers(states), self.layers(result)
        below = weights[:1]
        for w in weights[1:]:
            below.append(multiply(w, below[-1]))
        error = multiply(below.pop(), power)
        np.subtract(cross, error, out=error)
        for k in range(len(weights) - 1, 0, -1):
            multiply(error, below.pop().mT, out=slopes[k])
            error = multiply(weights[k].mT, error, out=slopes[0] if k == 1 else None)
        return result

    def hessian(self, state: FloatArray) -> FloatArray:
        """Hessian of the loss at one state, for one task, by complex differences."""
        step = TINY * (np.abs(state).max(initial=0.0) or 1.0)
        H = -self.pull(state + 1j * step * np.eye(len(state)), self.power, self.cross).imag / step
        return np.asarray((H + H.T) / 2)

    @cached_property
    def best(self) -> FloatArray:
        """Best linear map M* = R S^+ of any rank."""
        return self._correlations.best_map(self.cross)

    @cached_property
    def _correlations(self) -> Correlations:
        return Correlations.of(self.power)

    @cached_property
    def _principal(self) -> tuple[FloatArray, FloatArray]:
        """Left singular vectors and singular values of M* S^1/2: what each rank adds to the best map."""
        left, values, _ = np.linalg.svd(self.cross @ self._correlations.root, full_matrices=False)
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

    @property
    def curvature(self) -> float:
        """Largest curvature of any row at the balanced optimum."""
        return float(self.curvatures.max(initial=0.0))

    @cached_property
    def curvatures(self) -> FloatArray:
        """Largest curvature at the balanced optimum, S^1/2 (sum_l sigma_1^(2-2l/L) |M*|^(2(l-1)/L)) S^1/2, ([rows])."""
        _, strengths, right = np.linalg.svd(self.reachable, full_matrices=False)
        strengths, L = np.maximum(strengths, np.finfo(float).tiny), self.depth
        inner = strengths[..., :1, None] ** (2 - 2 / L) * np.eye(self.inputs)
        for k in range(1, L):
            scale = strengths[..., :1] ** (2 - 2 * (k + 1) / L) * strengths ** (2 * k / L)
            inner = inner + np.swapaxes(right, -1, -2) @ (scale[..., None] * right)
        return largest(self._root @ inner @ self._root)

    @cached_property
    def size(self) -> float:
        """Size of the weights of a balanced optimum."""
        return float(np.linalg.norm(self.reachable, 2, axis=(-2, -1)).max(initial=0.0) ** (1 / self.depth))

    @cached_property
    def flattest(self) -> float:
        """Curvature that every optimum has at least.

        Descent with a learning rate above 2 / flattest never converges. Below, it may leave a sharp optimum for a
        flatter one. For two layers it is min over g of g^2 S + g^-2 S^1/2 M*^T M* S^1/2. For more it is
        max over modes of L |S^1/2 v|^(2/L) s^(2-2/L), where s and v are singular values and input directions of
        M* S^1/2: the curvature along the move of all layers that changes one mode, by the inequality of the arithmetic
        and geometric means.
        """
        seen, L = self.reachable @ self._root, self.depth
        if L > 2:
            _, values, right = np.linalg.svd(seen, full_matrices=False)
            lengths = np.linalg.norm(right @ self._root, axis=-1)
            return float((L * lengths ** (2 / L) * values ** (2 - 2 / L)).max(initial=0.0))
        inner = np.swapaxes(seen, -1, -2) @ seen

        def sharpest(log: float) -> float:
            return float(largest(math.exp(log) * self.power + math.exp(-log) * inner).max(initial=0.0))

        sizes = float(np.linalg.norm(inner)), float(np.linalg.norm(self.power))
        if min(sizes) == 0:
            return 0.0
        middle = math.log(sizes[0] / sizes[1]) / 2  # both terms have equal norm there
        return float(scipy.optimize.minimize_scalar(sharpest, bounds=(middle - 5, middle + 5), method="bounded").fun)

    def sharpness(self, states: FloatArray) -> float:
        """Largest curvature of any row without the residual term."""
        return float(self.sharpnesses(states).max(initial=0.0))

    def sharpnesses(self, states: FloatArray) -> FloatArray:
        """Largest curvature of each row without the residual term: at most that of sum_l |W_L..W_{l+1}|^2 P_l^T P_l.

        P_l = W_{l-1} ... W_1 S^1/2 are the inputs of layer l.
        """
        weights, below, total = self.layers(states), self._root, np.zeros(())
        with np.errstate(over="ignore", invalid="ignore"):  # rows that diverge have no curvature
            for k, w in enumerate(weights):
                above = product(weights[k + 1 :]) if k < self.depth - 1 else np.ones((1, 1))
                if not np.isfinite(above).all():
                    return np.full(len(states), np.inf)
                size = np.linalg.norm(above, 2, axis=(-2, -1)) ** 2
                total = total + size[..., None, None] * (np.swapaxes(below, -1, -2) @ below)
                below = w @ below
        return largest(total) if np.isfinite(total).all() else np.full(len(states), np.inf)

    def excess(self, states: FloatArray, rows: Rows | None = None) -> FloatArray:
        """Loss of states above the least that the hidden units allow; infinite or nan where weights diverge."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.excess_of(self.maps(states), rows)

    def excess_of(self, maps: FloatArray, rows: Rows | None = None) -> FloatArray:
        """Loss of maps (..., outputs, inputs) above the least that the hidden units allow."""
        lost = self.bottleneck_loss
        above = _above(maps, self._of(self.best, rows), self._of(self.power, rows))
        return np.asarray(above - (lost[rows] if lost.ndim and rows is not None else lost))

    @staticmethod
    def _of(values: FloatArray, rows: Rows | None) -> FloatArray:
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

    def falls(self, states: FloatArray, learning_rate: float) -> bool:
        """Whether the loss falls at every step, at the curvatures of the states and of the balanced optimum."""
        return self._towards(np.zeros(()), states, learning_rate).falls

    def advance(
        self, states: FloatArray, stops: Sequence[int], learning_rate: float, *, precise: bool = True
    ) -> list[FloatArray]:
        """Return the states after each of the increasing numbers of steps; within about one step if not precise."""
        descents = Descents(
            self._slope(), lambda states, _: np.zeros(len(states), bool), 0.0, self.growth, learning_rate
        )
        if descents.longest(precise=precise) > 1:  # otherwise growth alone allows single steps only
            descents = self._towards(np.zeros(()), states, learning_rate)
        return descents.states_after(states, stops, precise=precise)

    def rows(self, chosen: NDArray[np.intp]) -> PooledDescent:
        """Return the problem of the chosen rows, with repetitions."""
        if np.array_equal(chosen, np.arange(len(self.power))):  # keep what is known of them
            return self
        return replace(self, power=self._of(self.power, chosen), cross=self._of(self.cross, chosen))

    def _slope(self) -> Callable[[FloatArray, Rows], FloatArray]:
        """Minus the gradient of states and rows; thousands of steps use the same rows, so it keeps their statistics."""

        @_of_last
        def statistics(rows: Rows) -> tuple[FloatArray, FloatArray]:
            return self._of(self.power, rows), self._of(self.cross, rows)

        return lambda states, rows: self.pull(states, *statistics(rows))

    def _towards(self, goal: FloatArray, states: FloatArray, learning_rate: float) -> Descents:
        limits = np.broadcast_to(goal + self.bottleneck_loss, len(states))

        @_of_last
        def aims(rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
            return self._of(self.best, rows), self._of(self.power, rows), limits[rows]

        def arrived(states: FloatArray, rows: Rows) -> NDArray[np.bool_]:
            best, power, limit = aims(rows)
            return np.asarray(_above(self.maps(states), best, power) <= limit)

        curvatures, growth = self._pace(states)
        curvature = max(self.curvature, float(curvatures.max(initial=0.0)))
        return Descents(self._slope(), arrived, curvature, growth, learning_rate, size=self.size, curvatures=curvatures)

    @cached_property
    def _pace(self) -> Callable[[FloatArray], tuple[FloatArray, float]]:
        """Curvature of each row and growth rate of descent from states; those of the last states are remembered."""
        return _of_last(self._pace_from)

    def _pace_from(self, states: FloatArray) -> tuple[FloatArray, float]:
        sharpnesses = self.sharpnesses(states)
        # If the initial loss far exceeds the baseline, unlearning sets the pace instead of growth.
        with np.errstate(invalid="ignore"):
            unlearns = (self.excess(states) > UNLEARNED * self.baseline_loss).any()
        growth = max(self.growth, float(sharpnesses.max(initial=0.0))) if unlearns else self.growth
        if self.depth > 2:  # two layers grow at the rate that the others pass on, at the start or at the optimum
            sizes = np.sort([np.linalg.norm(w, 2, axis=(-2, -1)) for w in self.layers(states)], axis=0)
            passed = max(self.size ** (self.depth - 2), float(np.prod(sizes[2:], axis=0).max()))
            growth *= max((self.depth - 1) * passed, 1.0)
        return np.maximum(self.curvatures, sharpnesses), growth


def _above(maps: FloatArray, best: FloatArray, power: FloatArray) -> FloatArray:
    """Loss of maps above that of the best map of any rank."""
    gap = maps - best
    return np.asarray((gap @ power * gap).sum(axis=(-2, -1)) / 2)


def _multiply(left: FloatArray, right: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Product of stacks of matrices; matmul is slow at outer products."""
    return np.multiply(left, right, out=out) if left.shape[-1] == 1 else np.matmul(left, right, out=out)


def _of_last(made: Callable[[Array], Made]) -> Callable[[Array], Made]:
    """Remember what was made of the last array."""
    last: list[Any] = [None, None]

    def of(array: Array) -> Made:
        if last[0] is not array:
            last[:] = array, made(array)
        return cast("Made", last[1])

    return of
