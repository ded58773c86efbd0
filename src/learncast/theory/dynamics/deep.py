"""Gradient flow of linear networks of any number of layers: in closed form on modes, integrated otherwise."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray, between
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import IDLE
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.geometry import share
from learncast.theory.assumptions import Assumption, exact
from learncast.theory.dynamics.gradient_flow import PATIENCE, STIFF_SIZE, FlowCourse
from learncast.theory.dynamics.learning_problem import DeepProblem, curvature
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of
from learncast.theory.dynamics.steps.deep_descent import DeepDescent
from learncast.theory.dynamics.steps.lag_descent import DENSE

__all__ = ["DeepSolution", "deep_mode_time", "deep_mode_weight"]

#: Largest residual of balance and alignment that a start made so has.
ROUNDING = 1e-13
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
    """Balanced layers on the modes of a task: W_l = R_l diag(w) R_{l-1}^T, with R_0 and R_L in the task's directions.

    Attributes
    ----------
    problem : DeepProblem
    """

    problem: DeepProblem

    @cached_property
    def statistics(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cross strengths, powers and the network function in the frame of the task's modes, all as matrices."""
        U, V = self.problem.frame.outputs, self.problem.frame.inputs
        p, function = self.problem.pooled, self.problem.network.function
        return U.T @ p.cross @ V, V.T @ p.power @ V, U.T @ function @ V

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions of the closed form."""
        cross, power, function = self.statistics
        return (
            Assumption("static_geometry", _off_diagonal(cross)),
            Assumption("aligned_input_covariance", _off_diagonal(power)),
            Assumption("aligned_start", _off_diagonal(function)),
            Assumption("balanced_weights", self.problem.network.imbalance_share),
        )

    @cached_property
    def closed(self) -> bool:
        """Whether the flow has a closed form: the layers are balanced and aligned with the modes of the task."""
        return exact(self.assumptions)

    @cached_property
    def directions(self) -> list[FloatArray]:
        """R_0 ... R_L, (width, modes); 0 for modes without weights."""
        result = [self.problem.frame.mode_inputs]
        for w in self.problem.network.weights:
            moved = w @ result[-1]
            size = np.linalg.norm(moved, axis=0)
            result.append(np.divide(moved, size, out=np.zeros_like(moved), where=size > 0))
        return result

    @cached_property
    def modes(self) -> list[tuple[float, float, float]]:
        """Weight before training, beta (negative if the start has the wrong sign) and B of each mode."""
        cross, power, _ = self.statistics
        signs = np.einsum("mk,mk->k", self.directions[-1], self.problem.frame.mode_outputs)
        starts = np.linalg.norm(self.problem.network.weights[0] @ self.directions[0], axis=0) * (signs != 0)
        starts[starts <= IDLE * starts.max(initial=0.0)] = 0.0  # round-off
        k = np.arange(len(signs))
        betas = cross[k, k] * np.where(signs < 0, -1.0, 1.0)
        return list(zip(starts.tolist(), betas.tolist(), power[k, k].tolist(), strict=True))

    def weights(self, time: float) -> FloatArray:
        """All weights after a flow time, flattened."""
        layers = self.problem.network.layers
        w = np.array([deep_mode_weight(time, start, layers, beta, B) for start, beta, B in self.modes])
        pairs = zip(self.directions[1:], self.directions, strict=False)
        return np.concatenate([((two * w) @ one.T).ravel() for two, one in pairs])


def _off_diagonal(matrix: FloatArray) -> float:
    rest = matrix.copy()
    np.fill_diagonal(rest, 0.0)
    return share(float(np.linalg.norm(rest)), float(np.linalg.norm(matrix)))


@dataclass(frozen=True, eq=False, repr=False)
class DeepSolution(Solution):
    """Gradient flow of a linear network of any number of layers.

    Attributes
    ----------
    problem : DeepProblem
    learning_rate : float
    assumptions : tuple of Assumption
        Measured conditions of the theory.
    tolerance : float
        Error per solver step, if the flow is integrated.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.static([[1.0]])
    >>> solution = lc.forecast(task, lc.Deep.aligned((4, 4), task=task), learning_rate=1e-3).solution
    >>> solution.time_to(0.99)
    <LearningTime to 0.99: 10772.6 flow steps, 10773 descent steps, ok>
    """

    problem: DeepProblem
    learning_rate: float
    assumptions: tuple[Assumption, ...] = ()
    tolerance: float = 1e-11

    @cached_property
    def modes(self) -> DeepModes:
        """The network on the modes of the task."""
        return DeepModes(self.problem)

    @property
    def forecast_class(self) -> str:
        """Forecast class, a key of `learncast.results.FORECAST_CLASSES`."""
        return "integrated" if not self.modes.closed else super().forecast_class

    @property
    def descent(self) -> DeepDescent:
        """Gradient descent on the statistics of the task."""
        return self.problem.descent

    @cached_property
    def course(self) -> FlowCourse:
        """The integrated flow."""
        descent, start = self.descent, self.problem.flatten(self.problem.start)
        name = "LSODA" if len(start) <= STIFF_SIZE else "DOP853"
        solver = getattr(scipy.integrate, name)

        def slope(_: float, state: FloatArray) -> FloatArray:
            return descent.pull(state[None], descent.power, descent.cross)[0]

        def loss(state: FloatArray) -> float:
            return float(descent.excess(state[None])[0])

        jacobian = (lambda _, state: -descent.hessian(state)) if len(start) <= DENSE else None
        return FlowCourse(start, slope, loss, self.tolerance, solver, PATIENCE[name], jacobian)

    def state_at(self, time: float) -> FloatArray | None:
        """All weights after a flow time, flattened; None if the integrated flow does not reach it."""
        return self.modes.weights(time) if self.modes.closed else self.course.weights(min(time, self._last))

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strengths, network function and loss at times in gradient steps; at infinity the flow is at rest."""
        steps = checked_times(times)
        unknown = np.full(sum(w.size for w in self.problem.network.weights), np.nan)
        states = [self.state_at(float(step) * self.learning_rate) for step in steps]
        rows = np.stack([unknown if state is None else state for state in states])
        maps, excess = self.descent.maps(rows), self.descent.excess(rows)
        values = {
            "strength": np.stack([self.problem._strengths_of(one) for one in maps]),
            "loss": excess + self.problem.least_loss,
            "excess_loss": excess,
            "network_function": maps,
        }
        status = np.array(["ok" if state is not None else "not_within" for state in states], dtype=str)
        return self._trajectory(steps, values, self.problem.task, coords={"status": ("time", status)})

    def network_at(self, time: float) -> Deep:
        """Return the network after `time` gradient steps of the flow."""
        step = checked_time(time)
        if self.modes.closed:
            state = self.modes.weights(step * self.learning_rate)
        else:
            state = self.course.weights_after(min(step, self._last / self.learning_rate), self.learning_rate)
        return self.problem.network.with_weights(self.problem.unflatten(state, self.problem.start))

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time at which the excess loss is at most (1 - accuracy)^2 of the baseline loss."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        if self.problem.nothing_to_learn:
            return LearningTime(accuracy, np.zeros(1), np.zeros(1), (Status.ok,))
        excess = (1 - accuracy) ** 2 * float(self.descent.baseline_loss)
        flow = self._time_to_loss(excess)
        start = self.problem.flatten(self.problem.start)[None]
        descent = math.inf if excess <= 0 else float(self.descent.steps_to(start, excess, self.learning_rate)[0][0])
        status = status_of(flow, descent, self.conditions_until(flow))
        return LearningTime(accuracy, np.array([flow]), np.array([descent]), (status,))

    @cached_property
    def saddle_loss(self) -> float:
        """Excess loss that a flow of balanced layers never falls below; 0 if it may reach the optimum.

        For as many outputs as inputs, balanced layers keep the sign of the determinant of the network function. If the
        optimum has the other sign, the flow rests at a saddle, which integration would leave by round-off.
        """
        network, best = self.problem.network, self.descent.reachable
        if min(network.widths) < max(best.shape) or not Assumption("balanced_weights", network.imbalance_share).holds:
            return 0.0
        unlike = np.linalg.slogdet(network.function)[0] * np.linalg.slogdet(best)[0] < 0
        return self.descent.loss_without(len(best) - 1) if unlike else 0.0

    @cached_property
    def _last(self) -> float:
        """Flow time at which integration leaves the saddle at which the flow rests; infinite if there is none."""
        return self.course.time_to(self.saddle_loss) if self.saddle_loss > 0 else math.inf

    def _time_to_loss(self, excess: float) -> float:
        if self.modes.closed:
            return super()._time_to_loss(excess)
        return math.inf if excess < self.saddle_loss else self.course.time_to(excess) / self.learning_rate

    def _excess_loss(self, time: float) -> float:
        return float(self.descent.excess(self.modes.weights(time * self.learning_rate)[None])[0])

    @property
    def lost_for_ever(self) -> float:
        """Excess loss of aligned modes that no number of descent steps learns.

        A mode without weights keeps none. A weight of the wrong sign shrinks at every step, and stays positive if
        eta w^(L-2) (|beta| + B w^L) is below 1 at the start. Both need layers balanced and aligned to round-off.
        """
        if any(a.measured > ROUNDING for a in self.modes.assumptions):
            return 0.0
        L, lost = self.problem.network.layers, 0.0
        for w, beta, B in self.modes.modes:
            shrinks = beta < 0 and self.learning_rate * w ** (L - 2) * (-beta + B * w**L) < 1
            lost += beta**2 / B / 2 if B > 0 and (w == 0 or shrinks) else 0.0
        return lost - float(self.descent.bottleneck_loss)

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return curvatures of the loss along the flow up to a number of gradient steps."""
        times = np.linspace(0.0, steps, 7) * self.learning_rate
        states = [state for state in map(self.state_at, times.tolist()) if state is not None]
        weights = [self.problem.unflatten(state, self.problem.start) for state in states]
        return np.array([curvature(self.problem, one) for one in weights])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on the loss that the narrowest layer leaves, and on a saddle at which the flow rests."""
        if not self.saddle_loss:
            return self.problem.remarks
        note = f"the flow rests at a saddle with an excess loss of {self.saddle_loss:.3g}, which finite steps may leave"
        return (*self.problem.remarks, note)

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because the narrowest layer has fewer units than the task has modes."""
        return self.problem.pooled.bottleneck_loss

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        p = self.problem
        digest = spec_hash("deep", p.task.hash, p.network.hash, self.learning_rate, self.tolerance)
        return Provenance("theory" if self.modes.closed else "flow", (), digest)

    def __repr__(self) -> str:
        how = "closed form" if self.modes.closed else "integrated"
        return f"<DeepSolution of {self.problem.task.name!r} at learning rate {self.learning_rate:g}: {how}>"
