"""Conserved imbalance of two layers, and the bounds on learning times that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learncast._core.validation import FloatArray
from learncast.tasks.best_map import Correlations
from learncast.tasks.geometry import share
from learncast.theory.assumptions import EXACT
from learncast.theory.dynamics.balanced.flow import BalancedFlow
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.steps.pooled_descent import hidden_basis

#: Number of times at which the deviation from the balanced flow is bounded, and their range relative to its time.
POINTS, RANGE = 1000, 2.0
#: Largest inputs + outputs for this bound; beyond, its eigenvalues take longer than the flow itself.
LARGEST_SIZE = 64
#: Relative imbalance that is round-off.
ROUNDED = 1e-13


@dataclass(frozen=True, eq=False)
class Imbalance:
    """Imbalance D = W2^T W2 - W1 W1^T, conserved by the flow for any input covariance and any target.

    It bounds both layers and thereby the decay of the excess loss L: -2 `fastest` L <= L' <= -2 `slowest` L. The flow
    of balanced layers from the same start differs from the true flow by a drive of size |D - lambda I|. The nonlinear
    part of the flow is contracting, which bounds the difference of the solutions.

    Attributes
    ----------
    problem : PooledProblem
        Task and initial weights.
    learning_rate : float
        Times are counted in its steps.

    Examples
    --------
    Bounds on the time at which the loss reaches 0.01, known before any integration, and the integrated time:

    >>> import learncast as lc
    >>> import numpy as np
    >>> network = lc.TwoLayer(np.zeros((3, 2)), [[2.0, 0.0, 0.0], [0.0, 2.5, 0.0]])
    >>> solution = lc.forecast(lc.tasks.static(np.diag([3.0, 1.0])), network, learning_rate=1e-2).solution
    >>> low, high = solution.imbalance.interval(0.01)
    >>> round(low), round(high), round(solution.time_to_loss(0.01))
    (19, 78, 54)
    """

    problem: PooledProblem
    learning_rate: float

    @cached_property
    def matrix(self) -> FloatArray:
        """D, (hidden, hidden), restricted to inputs with variance: other weights never change."""
        return self.problem.second.T @ self.problem.second - self._first @ self._first.T

    @cached_property
    def share(self) -> float:
        """|D - lambda I| / |W2^T W2 + W1 W1^T| with the best-fitting lambda: 0 for balanced layers."""
        total = self.problem.second.T @ self.problem.second + self._first @ self._first.T
        return share(float(np.linalg.norm(self._gap)), float(np.linalg.norm(total)))

    @cached_property
    def _gap(self) -> FloatArray:
        """D - lambda I on the hidden directions in use, which the flow never leaves."""
        basis = hidden_basis(self.problem.first, self.problem.second)
        return basis.T @ self.matrix @ basis - self.flow.imbalance * np.eye(basis.shape[1])

    @cached_property
    def _inputs(self) -> tuple[FloatArray, FloatArray]:
        """Nonzero input variances in ascending order, and their directions."""
        values, vectors = np.linalg.eigh(self.problem.power)
        used = slice(len(values) - Correlations.of(self.problem.power).rank, None)
        return np.maximum(values[used], 0.0), vectors[:, used]  # round-off may be negative

    @property
    def _first(self) -> FloatArray:
        return self.problem.first @ self._inputs[1]

    @cached_property
    def flow(self) -> BalancedFlow:
        """Exact flow of balanced layers with whitened input from the same start."""
        return BalancedFlow(self.problem.best_if_white, self.problem.first, self.problem.second)

    @cached_property
    def excess(self) -> float:
        """Excess loss at the start."""
        descent = self.problem.descent
        return float(descent.excess_of(self.problem.second @ self.problem.first) + descent.bottleneck_loss)

    @cached_property
    def slowest(self) -> float:
        """Half the smallest relative decay rate of the excess loss at any time; 0 if the imbalance guarantees none.

        W2^T W2 = D + W1 W1^T is at least D, and W1 W1^T is at least -D. So their `outputs` and `inputs` largest
        eigenvalues are at least those of D and -D.
        """
        rising, variances = np.linalg.eigvalsh(self.matrix), self._inputs[0]
        hidden, outputs, inputs = len(rising), len(self.problem.second), len(variances)
        below = max(rising[hidden - outputs], 0.0) if outputs <= hidden else 0.0
        above = max(-rising[inputs - 1], 0.0) if 0 < inputs <= hidden else 0.0
        return float(variances[0] * (below + above)) if inputs else 0.0

    @cached_property
    def fastest(self) -> float:
        """Half the largest relative decay rate of the excess loss at any time.

        The loss never rises, which bounds the map. For the largest eigenvalue a of W1 W1^T with eigenvector u and its
        input v, |W2 W1 v|^2 = a u^T D u + a^2 bounds a by the positive root; likewise for W2.
        """
        variances, directions = self._inputs
        if not len(variances):
            return 0.0
        size = float(np.linalg.norm(self.problem.descent.best @ (directions * np.sqrt(variances)), 2))
        if not variances[0] > 0:
            return math.inf
        largest = (size + math.sqrt(2 * self.excess)) / math.sqrt(variances[0])
        rising = np.linalg.eigvalsh(self.matrix)
        ends = max(-rising[0], 0.0), max(rising[-1], 0.0)
        return float(variances[-1] * sum((end + math.hypot(end, 2 * largest)) / 2 for end in ends))

    def deviation(self, steps: FloatArray) -> FloatArray:
        """Return a bound on the distance of W2 W1 from the balanced flow, in the norm of the loss, for white inputs.

        The steps must increase; closer steps give a closer bound. The difference e of Q = [W1^T; W2] from the balanced
        flow Q^ with the same start is driven by J Q^ (D - lambda I) / 2, so |e|' <= (k + d) |e| + d |Q^| with
        d = |D - lambda I| / 2. Because
        <e, Q Q^T Q - Q^ Q^^T Q^> = <e, (Q Q^T + Q^ Q^^T) e> / 2 + |Q Q^T - Q^ Q^^T|^2 / 2, its growth rate k is at most
        the largest eigenvalue of F - Q^ Q^^T / 4, and at most that of F - Q^ Q^^T / 2 plus |e|^2 / 16.
        """
        times = np.concatenate([[0.0], np.asarray(steps, dtype=float) * self.learning_rate * self.problem.variance])
        drive, spans = float(np.linalg.norm(self._gap, 2)) / 2, np.diff(times)
        if self.share <= ROUNDED:
            return np.zeros(len(spans))
        grams, inputs = self.flow.grams(times), self.problem.first.shape[1]
        far, near = self._growth(grams, spans)
        sizes, e = np.sqrt(np.trace(grams, axis1=1, axis2=2)), np.zeros(len(times))
        fastest = self._fastest_mode
        with np.errstate(over="ignore", invalid="ignore"):
            for k, span in enumerate(spans):
                pushed = drive * span * sizes[k] * np.exp(fastest * span)
                kappa = far[k] + drive
                once = np.exp(max(kappa, 0.0) * span) * (e[k] + pushed)
                closer = np.exp(max(near[k] + drive + once**2 / 16, 0.0) * span) * (e[k] + pushed)
                e[k + 1] = min(once, closer) if np.isfinite(once) else np.inf
            blocks = grams[:, :inputs, :inputs], grams[:, inputs:, inputs:]
            layers = np.sqrt(sum(np.linalg.norm(block, 2, axis=(1, 2)) for block in blocks))
            bound = math.sqrt(self.problem.variance) * (e * layers + e**2 / 2)
        return np.where(np.isnan(bound), np.inf, bound)[1:]

    @property
    def _fastest_mode(self) -> float:
        """Largest eigenvalue of F, the largest growth rate of balanced weights."""
        return math.hypot(float(self.flow.singular_values[0]), self.flow.imbalance / 2)

    def _growth(self, grams: FloatArray, spans: FloatArray) -> list[FloatArray]:
        """Return bounds of the largest eigenvalues of F - Q Q^T / 4 and F - Q Q^T / 2 within each span."""
        p, fastest, size = self.problem, self._fastest_mode, grams.shape[1]
        inputs, half = p.first.shape[1], self.flow.imbalance / 2
        F = np.diag(np.where(np.arange(size) < inputs, -half, half))
        F[inputs:, :inputs] = p.best_if_white
        F[:inputs, inputs:] = F[inputs:, :inputs].T
        with np.errstate(over="ignore"):
            largest = np.linalg.norm(grams[:-1], 2, axis=(1, 2)) * np.exp(2 * fastest * spans)
            moved = (2 * fastest * largest + largest**2) * spans / 2  # change of Q Q^T from the nearer end of the span
        bounds = []
        for part in (0.25, 0.5):
            top = np.linalg.eigvalsh(F - part * grams)[:, -1]
            bounds.append(np.minimum(np.maximum(top[1:], top[:-1]) + part * moved, fastest))
        return bounds

    def remarks(self, accuracy: float) -> tuple[str, ...]:
        """Return a note on unbalanced layers and the bounds of the time to an accuracy."""
        baseline = float(self.problem.descent.baseline_loss)
        if self.share <= EXACT or not baseline > 0:
            return ()
        low, high = self.interval((1 - accuracy) ** 2 * baseline)
        bounds = f"; it bounds the flow time to an accuracy of {accuracy:g} between {low:.4g} and {high:.4g} steps"
        return (
            f"the layers are unbalanced ({self.share:.2g} of their size), so the flow is integrated; gradient flow "
            f"conserves the imbalance{bounds if math.isfinite(high) else ''}",
        )

    def interval(self, excess: float) -> tuple[float, float]:
        """Return bounds of the flow time, in steps, at which the excess loss first falls to `excess`."""
        excess += float(self.problem.descent.bottleneck_loss)
        if self.excess <= excess:
            return 0.0, 0.0
        needed = math.log(self.excess / excess) / (2 * self.learning_rate)
        low, high = needed / self.fastest, needed / self.slowest if self.slowest > 0 else math.inf
        if self.problem.whitened_input.holds and sum(self.problem.cross.shape) <= LARGEST_SIZE:
            near = self._near_balanced(excess)
            low, high = max(low, near[0]), min(high, near[1])
        return low, high

    def _near_balanced(self, excess: float) -> tuple[float, float]:
        """Return bounds of the flow time from the exact flow of balanced layers and the bound on its deviation."""
        clock, scale = self.learning_rate * self.problem.variance, self.problem.variance
        if scale * self.flow.final_loss >= excess:
            return 0.0, math.inf
        late = 1.0 / clock
        while scale * float(self.flow.losses([late * clock])[0]) > excess:
            late *= 2.0
        steps = np.linspace(0.0, RANGE * late, POINTS)
        off, size = self.deviation(steps), np.sqrt(2 * scale * self.flow.losses(steps * clock))
        goal = math.sqrt(2 * excess)
        surely, perhaps = np.flatnonzero(size + off <= goal), np.flatnonzero(size - off <= goal)
        first = steps[max(int(perhaps[0]) - 1, 0)] if len(perhaps) else steps[-1]
        return float(first), float(steps[surely[0]]) if len(surely) else math.inf
