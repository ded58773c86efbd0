"""Gradient descent of linear networks of any number of layers on pooled inputs, many networks in parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.two_layer import product
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent
from learncast.theory.dynamics.steps.strides import Descents

__all__: list[str] = []  # internal

#: Step of complex differences, relative to the weights: its square is below round-off.
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class DeepDescent(PooledDescent):
    """Gradient descent of networks M = W_L ... W_1 from pooled inputs z to targets y.

    A step is W_l <- W_l + eta (W_L ... W_{l+1})^T G (W_{l-1} ... W_1)^T with G = R - M S. States are all weights,
    flattened from the inputs to the outputs: (rows, weights).

    Attributes
    ----------
    shapes : tuple of (width, width before)
        Of the layers.
    """

    shapes: tuple[tuple[int, int], ...] = ()

    @property
    def depth(self) -> int:
        """Number of layers, L."""
        return len(self.shapes)

    def layers(self, states: FloatArray) -> list[FloatArray]:
        """Weights of each layer, (..., width, width before)."""
        rows = states.shape[:-1]
        return [states[..., begin:end].reshape(*rows, m, n) for begin, end, m, n in self._spans]

    @cached_property
    def _spans(self) -> list[tuple[int, int, int, int]]:
        """Where each layer begins and ends in a state, and its shape."""
        ends = np.cumsum([m * n for m, n in self.shapes]).tolist()
        return [(end - m * n, end, m, n) for end, (m, n) in zip(ends, self.shapes, strict=True)]

    def maps(self, states: FloatArray) -> FloatArray:
        return product(self.layers(states))

    def pull(self, states: FloatArray, power: FloatArray, cross: FloatArray) -> FloatArray:
        weights = self.layers(states)
        below = [weights[0]]
        for w in weights[1:]:
            below.append(w @ below[-1])
        error, slopes = cross - below.pop() @ power, []
        for w in reversed(weights[1:]):
            slopes.append((error @ np.swapaxes(below.pop(), -1, -2)).reshape(len(states), -1))
            error = np.swapaxes(w, -1, -2) @ error
        slopes.append(error.reshape(len(states), -1))
        return np.concatenate(slopes[::-1], axis=-1)

    def hessian_product(self, state: FloatArray, directions: FloatArray) -> FloatArray:
        """Products of the Hessian at one state, for one task, with directions (rows, weights), exact to round-off."""
        step = TINY * (np.abs(state).max(initial=0.0) or 1.0)
        return np.asarray(-self.pull(state + 1j * step * directions, self.power, self.cross).imag / step)

    def hessian(self, state: FloatArray) -> FloatArray:
        """Hessian of the loss at one state, for one task."""
        H = self.hessian_product(state, np.eye(len(state)))
        return np.asarray((H + H.T) / 2)

    def sharpness(self, states: FloatArray) -> float:
        """Largest curvature of any row without the residual term: at most that of sum_l |W_L..W_{l+1}|^2 P_l^T P_l.

        P_l = W_{l-1} ... W_1 S^1/2 are the inputs of layer l.
        """
        weights, below, total = self.layers(states), self._root, np.zeros(())
        for k, w in enumerate(weights):
            above = 1.0 if k == self.depth - 1 else np.linalg.norm(product(weights[k + 1 :]), 2, axis=(-2, -1)) ** 2
            total = total + np.asarray(above)[..., None, None] * (np.swapaxes(below, -1, -2) @ below)
            below = w @ below
        return float(np.linalg.eigvalsh(total).max(initial=0.0))

    @cached_property
    def curvature(self) -> float:
        """Largest curvature at the balanced optimum, S^1/2 (sum_l sigma_1^(2-2l/L) |M*|^(2(l-1)/L)) S^1/2."""
        _, strengths, right = np.linalg.svd(self.reachable, full_matrices=False)
        strengths, L = np.maximum(strengths, np.finfo(float).tiny), self.depth
        inner = strengths[..., :1, None] ** (2 - 2 / L) * np.eye(self.inputs)
        for k in range(1, L):
            scale = strengths[..., :1] ** (2 - 2 * (k + 1) / L) * strengths ** (2 * k / L)
            inner = inner + np.swapaxes(right, -1, -2) @ (scale[..., None] * right)
        return float(np.linalg.eigvalsh(self._root @ inner @ self._root).max(initial=0.0))

    @cached_property
    def size(self) -> float:
        return float(np.linalg.norm(self.reachable, 2, axis=(-2, -1)).max(initial=0.0) ** (1 / self.depth))

    @cached_property
    def flattest(self) -> float:
        """Curvature that every optimum has at least, max over modes of L |S^1/2 v|^(2/L) s^(2-2/L).

        s and v are singular values and input directions of M* S^1/2. The bound follows from the curvature along the
        move of all layers that changes one mode, by the inequality of the arithmetic and geometric means.
        """
        if self.depth == 2:
            return super().flattest
        L = self.depth
        _, values, right = np.linalg.svd(self.reachable @ self._root, full_matrices=False)
        lengths = np.linalg.norm(right @ self._root, axis=-1)
        return float((L * lengths ** (2 / L) * values ** (2 - 2 / L)).max(initial=0.0))

    def _towards(self, goal: FloatArray, states: FloatArray, learning_rate: float) -> Descents:
        descents = super()._towards(goal, states, learning_rate)
        # Two layers grow at the rate that the others pass on, at the start or at the optimum.
        sizes = np.sort([np.linalg.norm(w, 2, axis=(-2, -1)) for w in self.layers(states)], axis=0)
        passed = max(self.size ** (self.depth - 2), float(np.prod(sizes[2:], axis=0).max()))
        return replace(descents, growth=descents.growth * max((self.depth - 1) * passed, 1.0))
