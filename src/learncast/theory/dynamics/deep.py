"""Gradient flow of linear networks of any number of layers in closed form: balanced layers on the modes of a task."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy

from learncast._core.validation import FloatArray
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import IDLE
from learncast.networks.two_layer import product
from learncast.tasks.geometry import share
from learncast.theory.assumptions import Assumption, exact
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.dynamics.solution import first_time
from learncast.theory.dynamics.steps.pooled_descent import joined

__all__ = ["deep_mode_time", "deep_mode_weight"]

#: Largest residual of balance and alignment that a start made so has.
ROUNDING = 1e-13
#: Number of times at which the curvature along the flow is measured.
PLACES = 7
#: Largest log-odds of the way that a weight has gone.
MOST_ODDS = 600.0


@lru_cache(maxsize=64)
def _roots(layers: int, sign: float) -> tuple[complex, ...]:
    """Roots of s^L = sign, without s = 1."""
    angles = ((2 * k + (sign < 0)) * math.pi / layers for k in range(layers))
    return tuple(cmath.exp(1j * angle) for angle in angles if angle)


def _elapsed(share: float, gap: float, layers: int, sign: float) -> float:
    """Integral of ds / (s^(L-1) (sign - s^L)) up to `share`, without its constant, by partial fractions.

    `gap` is 1 - share, known without cancellation.
    """
    first = math.log(share) if layers == 2 else share ** (2 - layers) / (2 - layers)
    logs = sum((root**2 * cmath.log(1 - share / root)).real for root in _roots(layers, sign))
    return sign * first - (logs + (math.log(abs(gap)) if sign > 0 else 0.0)) / layers


def deep_mode_time(start: float, end: float, layers: int, cross: float, power: float) -> float:
    """Flow time of a balanced mode from one weight per layer to another.

    All layers of the mode have the same weight w > 0, which follows dw/dt = w^(L-1) (beta - B w^L). The strength
    u = w^L then follows du/dt = L u^(2-2/L) (beta - B u).

    Parameters
    ----------
    start, end : float
        Weights at both ends.
    layers : int
        L.
    cross, power : float
        beta, negative if the start has the wrong sign, and B > 0.

    Returns
    -------
    float
        Infinite if the mode never gets there.

    Examples
    --------
    More layers make small weights wait longer:

    >>> from learncast.theory import deep_mode_time
    >>> [round(deep_mode_time(0.1, 0.9, layers, 1.0, 1.0), 2) for layers in (2, 3, 4)]
    [3.02, 9.53, 49.94]
    """
    if start == end:
        return 0.0
    velocity = [w ** (layers - 1) * (cross - power * w**layers) * (end - start) for w in (start, end)]
    if not velocity[0] > 0 or not velocity[1] > 0:
        return math.inf
    if cross == 0:
        return (end ** (2.0 - 2 * layers) - start ** (2.0 - 2 * layers)) / ((2 * layers - 2) * power)
    best = (abs(cross) / power) ** (1 / layers)
    sign = math.copysign(1.0, cross)
    before, after = (_elapsed(w / best, 1 - w / best, layers, sign) for w in (start, end))
    return (after - before) / (power * best ** (2 * layers - 2))


def deep_mode_weight(time: float, start: float, layers: int, cross: float, power: float) -> float:
    """Weight of a balanced mode in every layer after a flow time, the inverse of `deep_mode_time`.

    Parameters
    ----------
    time : float
        Infinity is allowed.
    start : float
        Weight before, at least 0.
    layers, cross, power
        As for `deep_mode_time`.

    Returns
    -------
    float

    Examples
    --------
    >>> from learncast.theory import deep_mode_weight
    >>> round(deep_mode_weight(9.53, 0.1, 3, 1.0, 1.0), 2)
    0.9
    """
    if start == 0 or time == 0 or power == 0:  # inputs without power have no cross strength
        return start
    end = (max(cross, 0.0) / power) ** (1 / layers)
    if time == math.inf or start == end:
        return end
    if cross == 0:
        return (start ** (2.0 - 2 * layers) + (2 * layers - 2) * power * time) ** (-1 / (2 * layers - 2))

    best, sign = (abs(cross) / power) ** (1 / layers), math.copysign(1.0, cross)
    first, last = start / best, 1.0 if cross > 0 else 0.0
    due = _elapsed(first, 1 - first, layers, sign) + time * power * best ** (2 * layers - 2)

    def late(odds: float) -> float:
        """Time at which the weight has gone a share of its way, given by log-odds, beyond the time that is due."""
        left = (first - last) * float(scipy.special.expit(-odds))
        return _elapsed(last + left, 1 - last - left, layers, sign) - due

    low, high = -1.0, 1.0
    while late(low) > 0:
        low *= 2
        if low < -MOST_ODDS:
            return start
    while late(high) < 0:
        high *= 2
        if high > MOST_ODDS:
            return end
    odds = scipy.optimize.brentq(late, low, high, xtol=1e-14, rtol=1e-15, maxiter=500)
    return float(best * (last + (first - last) * scipy.special.expit(-odds)))


@dataclass(frozen=True, eq=False)
class DeepModes:
    """Course of balanced layers on the modes of a task: W_l = R_l diag(w) R_{l-1}^T, R_0 and R_L in its directions.

    Attributes
    ----------
    problem : LearningProblem
        Of a Deep network, all layers of which learn.
    """

    state = "closed form"
    problem: LearningProblem

    @property
    def network(self) -> Deep:
        """The network before training."""
        network = self.problem.network
        assert isinstance(network, Deep)
        return network

    @property
    def _pooled(self) -> PooledProblem:
        pooled = self.problem.map_problem
        assert pooled is not None
        return pooled

    @cached_property
    def statistics(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cross strengths, powers and the network function in the frame of the task's modes, all as matrices."""
        U, V, p = self.problem.frame.outputs, self.problem.frame.inputs, self._pooled
        return U.T @ p.cross @ V, V.T @ p.power @ V, U.T @ self.network.function @ V

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions of the closed form."""
        cross, power, function = self.statistics
        return (
            Assumption("static_geometry", _off_diagonal(cross)),
            Assumption("aligned_input_covariance", _off_diagonal(power)),
            Assumption("aligned_start", _off_diagonal(function)),
            Assumption("balanced_weights", self.network.imbalance_share),
        )

    @cached_property
    def closed(self) -> bool:
        """Whether the flow has a closed form: the layers are balanced and aligned with the modes of the task."""
        return exact(self.assumptions)

    @cached_property
    def directions(self) -> list[FloatArray]:
        """R_0 ... R_L, (width, modes); 0 for modes without weights."""
        result = [self.problem.frame.mode_inputs]
        for w in self.network.weights:
            moved = w @ result[-1]
            size = np.linalg.norm(moved, axis=0)
            result.append(np.divide(moved, size, out=np.zeros_like(moved), where=size > 0))
        return result

    @cached_property
    def modes(self) -> list[tuple[float, float, float]]:
        """Weight before training, beta (negative if the start has the wrong sign) and B of each mode."""
        cross, power, _ = self.statistics
        signs = np.einsum("mk,mk->k", self.directions[-1], self.problem.frame.mode_outputs)
        starts = np.linalg.norm(self.network.weights[0] @ self.directions[0], axis=0) * (signs != 0)
        starts[starts <= IDLE * starts.max(initial=0.0)] = 0.0  # round-off
        k = np.arange(len(signs))
        betas = cross[k, k] * np.where(signs < 0, -1.0, 1.0)
        return list(zip(starts.tolist(), betas.tolist(), power[k, k].tolist(), strict=True))

    @cached_property
    def start(self) -> FloatArray:
        """All weights before training, flattened."""
        return self.problem.flatten(self.problem.start)

    def _layers(self, time: float) -> list[FloatArray]:
        """Weights of each layer after a flow time."""
        L = self.network.layers
        w = np.array([deep_mode_weight(time, start, L, beta, B) for start, beta, B in self.modes])
        return [(two * w) @ one.T for two, one in zip(self.directions[1:], self.directions, strict=False)]

    def weights(self, time: float) -> FloatArray:
        """All weights after a flow time, flattened."""
        return joined(self._layers(time))

    def weights_after(self, step: float, learning_rate: float) -> FloatArray:
        """All weights after a number of gradient steps."""
        return self.weights(step * learning_rate)

    def time_to(self, goal: float) -> float:
        """First flow time with a loss of at most `goal`; infinite if never."""
        excess = goal - self.problem.least_loss
        return first_time(lambda time: float(self._pooled.excess_of(product(self._layers(time)))) - excess)

    def times_until(self, time: float) -> list[float]:
        """Flow times up to one at which the flow is looked at."""
        times: list[float] = np.linspace(0.0, time, PLACES).tolist()
        return times

    def lost_for_ever(self, learning_rate: float) -> float:
        """Excess loss of modes that no number of descent steps learns.

        A mode without weights keeps none. A weight of the wrong sign shrinks at every step, and stays positive if
        eta w^(L-2) (|beta| + B w^L) is below 1 at the start. Both need layers balanced and aligned to round-off.
        """
        if any(a.measured > ROUNDING for a in self.assumptions):
            return 0.0
        L, lost = self.network.layers, 0.0
        for w, beta, B in self.modes:
            shrinks = beta < 0 and learning_rate * w ** (L - 2) * (-beta + B * w**L) < 1
            lost += beta**2 / B / 2 if B > 0 and (w == 0 or shrinks) else 0.0
        return lost - float(self._pooled.descent.bottleneck_loss)


def closed_form(problem: LearningProblem) -> DeepModes | None:
    """Return the closed form of the flow of a Deep network; None if it has none."""
    if not isinstance(problem.network, Deep) or problem.map_problem is None:
        return None
    if not Assumption("balanced_weights", problem.network.imbalance_share).holds:
        return None
    modes = DeepModes(problem)
    return modes if modes.closed else None


def _off_diagonal(matrix: FloatArray) -> float:
    rest = matrix.copy()
    np.fill_diagonal(rest, 0.0)
    return share(float(np.linalg.norm(rest)), float(np.linalg.norm(matrix)))
