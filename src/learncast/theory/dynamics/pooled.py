"""Pooled problem: a linear network whose inputs over time reach the output through one map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray
from learncast.display import plural
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import LinearRNN, check_fit
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.geometry import pooled_statistics, share
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.steps.pooled_descent import RANK, PooledDescent, hidden_basis


@dataclass(frozen=True, eq=False)
class PooledProblem:
    """Two-layer linear network that learns to map z to y.

    A linear RNN with W_h = b I is such a network on the pooled input z = sum_t b^(T-t) x_t. With a target at every step
    r the statistics of z_r = sum_{t<=r} b^(r-t) x_t are summed over r. A two-layer network is the case of one step.

    Attributes
    ----------
    cross : (outputs, inputs)
        E[y z^T].
    power : (inputs, inputs)
        E[z z^T].
    target_power : float
        E|y|^2; nan if unknown.
    recurrence : float
        b.
    first, second
        The two weight matrices.
    recurrence_residual : float
        Relative norm of W_h - b I.

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
    cross: FloatArray
    power: FloatArray
    target_power: float
    recurrence: float
    first: FloatArray
    second: FloatArray
    recurrence_residual: float

    @classmethod
    def of(cls, task: Task, network: LinearRNN | TwoLayer | Deep) -> PooledProblem:
        """Pool the inputs of a task as the network does."""
        check_fit(task, network)
        b, residual = network.scalar_recurrence, 0.0
        if b is None:
            assert isinstance(network, LinearRNN)
            W_h = network.recurrent_weights
            b = float(np.trace(W_h)) / len(W_h)
            residual = share(float(np.linalg.norm(W_h - b * np.eye(len(W_h)))), float(np.linalg.norm(W_h)))
        cross, power = pooled_statistics(task, b)
        return cls(task, cross.T, power, task.target_power, b, *network.maps, residual)

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
        return Assumption("scalar_recurrence", self.recurrence_residual)

    @property
    def whitened_input(self) -> Assumption:
        """Measured deviation of the pooled input from equal variance in all directions."""
        gap = self.power - self.variance * np.eye(len(self.power))
        return Assumption("whitened_input", share(float(np.linalg.norm(gap)), float(np.linalg.norm(self.power))))

    @property
    def least_loss(self) -> float:
        """Loss of the best linear map of the rank that the hidden units allow; nan if E|y|^2 is unknown."""
        return self.target_power / 2 - float(self.descent.baseline_loss)

    def least_loss_of_one_layer(self, first: bool) -> float:
        """Least loss if only the first layer learns, or only the second."""
        if first:  # outputs in the span of the second layer's columns
            left, sizes, _ = np.linalg.svd(self.second, full_matrices=False)
            kept = left[:, sizes > RANK * sizes.max(initial=0.0)]
            return self.target_power / 2 - float(PooledDescent(self.power, kept.T @ self.cross).baseline_loss)
        hidden = self.first @ self.power @ self.first.T, self.cross @ self.first.T
        return self.target_power / 2 - float(PooledDescent(*hidden).baseline_loss)

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return float(self.descent.bottleneck_loss) if self.descent.rank > len(self.first) else 0.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the loss that is left because there are fewer hidden units than modes."""
        rank, lost = self.descent.rank, self.bottleneck_loss
        if not lost:
            return ()
        share = lost / (lost + float(self.descent.baseline_loss))
        return (
            f"{plural(len(self.first), 'hidden unit')} can hold {len(self.first)} of the {rank} modes of this task: "
            f"a loss of {lost:.3g} ({share:.2g} of what a linear map can explain) is lost to this bottleneck",
        )

    @cached_property
    def descent(self) -> PooledDescent:
        """Gradient descent on these statistics."""
        return PooledDescent(self.power, self.cross, len(self.first))

    def count(self, excess: float, learning_rate: float) -> tuple[float, float, float]:
        """Descent steps to an excess loss (infinite if never, nan if not within those tried), steps tried and loss.

        The last two are nan if the steps are known.
        """
        if self.never_reaches(excess):
            return math.inf, math.nan, math.nan
        state = (np.concatenate([self.first.T, self.second]) @ hidden_basis(self.first, self.second))[None]
        (steps,), end = self.descent.steps_to(state, excess, learning_rate)
        if not math.isnan(steps):
            return float(steps), math.nan, math.nan
        loss = float(self.descent.excess(end)[0]) + (0.0 if math.isnan(self.least_loss) else self.least_loss)
        return math.nan, float(self.descent.most_counted(state, learning_rate)), loss

    def never_reaches(self, excess: float) -> bool:
        """Whether it is proved that descent at any learning rate never reaches an excess loss.

        Descent never leaves the hidden directions of its start. On white inputs a mode (u, v) has the hidden vectors
        p = W2^T u and q = W1 v. If both are 0, they stay 0. If q = p or q = -p in every mode, this also stays so, and
        the modes with q = -p are not learned. An optimum takes infinitely many steps. A saddle of the flow alone
        is no proof, because finite steps may leave it.
        """
        size = float(np.linalg.norm(self.first) + np.linalg.norm(self.second))
        rank = hidden_basis(self.first, self.second).shape[1] if size > 0 else 0
        return bool(excess <= 0 or self.descent.loss_without(rank) > excess or self._loss_of_fixed_modes(size) > excess)

    def _loss_of_fixed_modes(self, size: float) -> float:
        """Excess loss that is left by modes which descent cannot learn; 0 if the inputs are not white."""
        if not self.whitened_input.holds or self.variance == 0:
            return 0.0
        left, strengths, right = np.linalg.svd(self.best_if_white, full_matrices=True)
        second, first = self.second.T @ left, self.first @ right.T
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
        return np.asarray(self.target_power / 2 + quadratic - np.einsum("...mn,mn->...", function, self.cross))
