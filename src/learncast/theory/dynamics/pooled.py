"""Pooled problem: a linear network whose inputs over time reach the output through one map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.display import plural
from learncast.networks.deep import Linear
from learncast.networks.linear_rnn import check_fit
from learncast.networks.two_layer import product
from learncast.tasks.geometry import pooled_statistics, share
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.steps.pooled_descent import RANK, PooledDescent, hidden_bases, in_bases, joined


@dataclass(frozen=True, eq=False)
class PooledProblem:
    """Linear network of layers that learns to map z to y.

    A linear RNN with W_h = b I is a network of two layers on the pooled input z = sum_t b^(T-t) x_t. With a target at
    every step r the statistics of z_r = sum_{t<=r} b^(r-t) x_t are summed over r. A network without recurrence is the
    case of one step.

    Attributes
    ----------
    task : Task
    network : LinearRNN, TwoLayer or Deep
        Before training.
    cross : (outputs, inputs)
        E[y z^T].
    power : (inputs, inputs)
        E[z z^T].
    span : (inputs, directions), optional
        Orthonormal basis of the directions along which z varies, in which `descent` runs; by default all directions.

    Examples
    --------
    An integrating network reduces 50 inputs to one scalar. Best weight and least loss:

    >>> import learncast as lc
    >>> from learncast.theory import PooledProblem
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> problem = PooledProblem.of(lc.tasks.integration(steps=50), network)
    >>> best = problem.cross / problem.power
    >>> best.round(3), float(problem.loss(best).round(3)), round(problem.least_loss, 3)
    (array([[1.735]]), 6.133, 6.133)
    """

    task: Task
    network: Linear
    cross: FloatArray
    power: FloatArray
    span: FloatArray | None = None

    @classmethod
    def of(cls, task: Task, network: Linear, span: FloatArray | None = None) -> PooledProblem:
        """Pool the inputs of a task as the network does."""
        check_fit(task, network)
        cross, power = pooled_statistics(task, _mean_recurrence(network))
        return cls(task, network, cross.T, power, span)

    @property
    def recurrence(self) -> float:
        """Scalar recurrence b, the mean over hidden units if it is not scalar."""
        return _mean_recurrence(self.network)

    @property
    def variance(self) -> float:
        """Mean variance sigma^2 of the pooled input over its directions."""
        return float(np.trace(self.power)) / len(self.power)

    @property
    def best_if_white(self) -> FloatArray:
        """Best map of an input with equal variance in all directions, cross / variance."""
        return self.cross / (self.variance or 1.0)

    @property
    def scalar_recurrence(self) -> Assumption:
        """Measured deviation of the recurrence from a scalar."""
        if self.network.scalar_recurrence is not None:
            return Assumption("scalar_recurrence", 0.0)
        W_h = self.network.named_weights["recurrent"]
        gap = W_h - self.recurrence * np.eye(len(W_h))
        return Assumption("scalar_recurrence", share(float(np.linalg.norm(gap)), float(np.linalg.norm(W_h))))

    @property
    def whitened_input(self) -> Assumption:
        """Measured deviation of the pooled input from equal variance in all directions."""
        gap = self.power - self.variance * np.eye(len(self.power))
        return Assumption("whitened_input", share(float(np.linalg.norm(gap)), float(np.linalg.norm(self.power))))

    @property
    def least_loss(self) -> float:
        """Loss of the best linear map of the rank that the hidden units allow; nan if E|y|^2 is unknown."""
        return self.task.target_power / 2 - float(self.descent.baseline_loss)

    def least_loss_of(self, learns: Sequence[bool]) -> float | None:
        """Least loss if some layers learn; None if it is not known, because others lie between them."""
        weights, chosen = self.network.layer_weights, np.flatnonzero(learns)
        first, end = int(chosen[0]), int(chosen[-1]) + 1
        if len(chosen) < end - first:
            return None
        cross, power, widths = self.cross, self.power, self.network.widths[first + 1 : end]
        if first > 0:
            below = product(weights[:first])
            cross, power = cross @ below.T, below @ power @ below.T
        if end < len(weights):  # outputs in the span of the columns of the layers above
            left, sizes, _ = np.linalg.svd(product(weights[end:]), full_matrices=False)
            cross = left[:, sizes > RANK * sizes.max(initial=0.0)].T @ cross
        reached = PooledDescent(power, cross, min(widths, default=None)).baseline_loss
        return self.task.target_power / 2 - float(reached)

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return float(self.descent.bottleneck_loss) if self.descent.rank > self.network.hidden_size else 0.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the loss that is left because there are fewer hidden units than modes."""
        rank, units, lost = self.descent.rank, self.network.hidden_size, self.bottleneck_loss
        if not lost:
            return ()
        share = lost / (lost + float(self.descent.baseline_loss))
        return (
            f"{plural(units, 'hidden unit')} can hold {units} of the {rank} modes of this task: "
            f"a loss of {lost:.3g} ({share:.2g} of what a linear map can explain) is lost to this bottleneck",
        )

    @cached_property
    def descent(self) -> PooledDescent:
        """Gradient descent on these statistics, in the bases."""
        shapes = tuple((two.shape[1], one.shape[1]) for one, two in pairwise(self.bases))
        power, cross, span = self.power, self.cross, self.span
        if span is not None:
            power, cross = span.T @ power @ span, cross @ span
        return PooledDescent(power, cross, self.network.hidden_size, shapes)

    @property
    def best(self) -> FloatArray:
        """Best linear map of any rank."""
        return self.descent.best if self.span is None else self.descent.best @ self.span.T

    @property
    def reachable(self) -> FloatArray:
        """Best linear map of the rank that the hidden units allow."""
        return self.descent.reachable if self.span is None else self.descent.reachable @ self.span.T

    def excess_of(self, maps: FloatArray) -> FloatArray:
        """Loss of maps (..., outputs, inputs) above the least that the hidden units allow."""
        return self.descent.excess_of(maps if self.span is None else maps @ self.span)

    @cached_property
    def bases(self) -> list[FloatArray]:
        """Directions of the inputs, of each hidden layer and of the outputs in which weights move."""
        return hidden_bases(self.network.layer_weights, self.span)

    def count(self, excess: float, learning_rate: float) -> tuple[float, float, float]:
        """Descent steps to an excess loss (infinite if never, nan if not within those tried), steps tried and loss.

        The last two are nan if the steps are known.
        """
        if self.never_reaches(excess):
            return math.inf, math.nan, math.nan
        state = joined(in_bases(self.network.layer_weights, self.bases))[None]
        (steps,), end = self.descent.steps_to(state, excess, learning_rate)
        if not math.isnan(steps):
            return float(steps), math.nan, math.nan
        loss = float(self.descent.excess(end)[0]) + (0.0 if math.isnan(self.least_loss) else self.least_loss)
        return math.nan, float(self.descent.most_counted(state, learning_rate)), loss

    def never_reaches(self, excess: float) -> bool:
        """Whether it is proved that descent at any learning rate never reaches an excess loss.

        Descent never leaves the hidden directions of its start. In two layers on white inputs a mode (u, v) has the
        hidden vectors p = W2^T u and q = W1 v. If both are 0, they stay 0. If q = p or q = -p in every mode, this also
        stays so, and the modes with q = -p are not learned. An optimum takes infinitely many steps. A saddle of the
        flow alone is no proof, because finite steps may leave it.
        """
        weights = self.network.layer_weights
        pairs = zip(self.bases[1:-1], weights, weights[1:], strict=False)
        rank = min(basis.shape[1] if one.any() or two.any() else 0 for basis, one, two in pairs)
        return bool(excess <= 0 or self.descent.loss_without(rank) > excess or self._loss_of_fixed_modes() > excess)

    def _loss_of_fixed_modes(self) -> float:
        """Excess loss that is left by modes which descent cannot learn; 0 if unknown: more layers, or not white."""
        if len(self.network.layer_weights) > 2 or not self.whitened_input.holds or self.variance == 0:
            return 0.0
        one, two = self.network.layer_weights
        size = float(np.linalg.norm(one) + np.linalg.norm(two))
        left, strengths, right = np.linalg.svd(self.best_if_white, full_matrices=True)
        second, first = two.T @ left, one @ right.T
        modes, rounding = len(strengths), 16 * sum(self.cross.shape) * np.finfo(float).eps * size

        def small(vectors: FloatArray) -> NDArray[np.bool_]:
            return np.asarray(np.linalg.norm(vectors, axis=0) <= rounding)

        p, q = second[:, :modes], first[:, :modes]
        silent, opposed = small(p) & small(q), small(p + q)
        outside = small(second[:, modes:]).all() and small(first[:, modes:]).all()
        fixed = silent | opposed if outside and (opposed | small(p - q)).all() else silent
        lost = self.variance * float((strengths[fixed] ** 2).sum()) / 2
        return lost - float(self.descent.bottleneck_loss)

    def loss(self, function: FloatArray) -> FloatArray:
        """Half mean squared error of maps (..., outputs, inputs); nan if E|y|^2 is unknown.

        Implements: braun2022 Eq. (2), from second-order statistics
        """
        quadratic = np.einsum("...mn,nk,...mk->...", function, self.power, function, optimize=True) / 2
        return np.asarray(self.task.target_power / 2 + quadratic - np.einsum("...mn,mn->...", function, self.cross))


def _mean_recurrence(network: Linear) -> float:
    b = network.scalar_recurrence
    return float(np.trace(network.named_weights["recurrent"])) / network.hidden_size if b is None else b
