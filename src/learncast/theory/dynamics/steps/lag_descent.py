"""Gradient descent of linear recurrent networks on statistics by lag, many networks in parallel."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray
from learncast.networks.two_layer import product
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent
from learncast.theory.dynamics.steps.strides import Descents, Rows

__all__: list[str] = []  # internal

#: Step of complex differences, relative to the weights: its square is below round-off.
TINY = 1e-30
#: Largest number of weights for a dense Hessian, and of solver steps along a flow to its rest.
DENSE, MOST_MOVES = 150, 1000
#: Error of a solver step towards the rest, relative, and steps between two tests of the rest.
FLOW_ERROR, CHECKED = 1e-4, 10
#: Newton steps to the end of a long valley.
NEWTON_STEPS = 200
#: Share of the baseline by which the loss may still fall at rest, and where Newton steps take over from the flow.
SETTLED, NEARLY_SETTLED = 1e-13, 1e-9
#: Eigenvalues of the Hessian below this share of the largest count as 0, and those that show a saddle.
FLAT, SADDLE = 1e-12, 1e-6
#: Eigenvalues of the Hessian along which a rest moves with the statistics, as a share of the largest.
CURVED = 1e-6
#: Tests after which a flow that rests on a saddle stays there.
ESCAPE = 20
#: Largest number of strides of a long descent.
MOST_STRIDED = 20_000
#: Growth factor of the loss at which descent counts as diverged.
RUNAWAY = 1e6
#: Largest number of values in the powers of a fixed recurrence that stay in the cache of a core.
CACHED = 2**17


#: Diverging weights overflow, which is an outcome of training.
_overflowing = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, eq=False)
class LagDescent:
    """Gradient descent of networks h <- W h + A x with outputs C h, C = C_k ... C_1, on statistics by lag.

    States are the weights that learn, flattened in the order A, W, C_1, ..., C_k: (rows, weights). All rows share one
    task, or each row has its own.

    Attributes
    ----------
    power : ([rows,] lags x inputs, lags x inputs)
        E[x_j x_k^T], summed over readouts.
    cross : ([rows,] outputs, lags x inputs)
        E[y x_k^T], summed over readouts.
    constant : float or (rows,)
        Loss of the zero map.
    weights : (A, W, C_1, ..., C_k)
        Before training.
    learns : as many bools
        Which of them learn.
    """

    power: FloatArray
    cross: FloatArray
    constant: FloatArray
    weights: tuple[FloatArray, ...]
    learns: tuple[bool, ...]

    @property
    def start(self) -> FloatArray:
        """The weights that learn, before training."""
        learned = [w.ravel() for w, learns in zip(self.weights, self.learns, strict=True) if learns]
        return np.concatenate([np.empty(0), *learned])

    def parts(self, states: FloatArray) -> list[FloatArray]:
        """A, W, C_1, ..., C_k of each row; those that do not learn have one row."""
        parts, at = [], 0
        for w, learns in zip(self.weights, self.learns, strict=True):
            size = w.size if learns else 0
            parts.append(states[:, at : at + size].reshape(-1, *w.shape) if learns else w[None])
            at += size
        return parts

    @cached_property
    def _powers(self) -> FloatArray | None:
        """W^k of each lag k side by side, (hidden, lags x hidden), if W is fixed and they are few."""
        _, W, *_ = self.weights
        lags = self.cross.shape[-1] // self.weights[0].shape[1]
        if self.learns[1] or lags * W.size > CACHED:
            return None
        powers = [np.eye(len(W))]
        for _ in range(lags - 1):
            powers.append(powers[-1] @ W)
        return np.concatenate(powers, axis=1)

    def filters(self, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        """C W^k of each lag k and row, (lags, rows, outputs, hidden), and C W^k A, (rows, outputs, lags x inputs)."""
        A, W, *out = self.parts(states)
        C = product(out)
        number, lags = len(states), self.cross.shape[-1] // A.shape[2]
        J = np.empty((lags, number, *C.shape[1:]), dtype=states.dtype)
        J[0] = C
        for k in range(1, lags):
            np.matmul(J[k - 1], W, out=J[k])
        return J, np.matmul(J, A).transpose(1, 2, 0, 3).reshape(number, C.shape[1], -1)

    @_overflowing
    def maps(self, states: FloatArray) -> FloatArray:
        """Maps from the inputs of all lags to the outputs, (rows, outputs, lags x inputs)."""
        return self.filters(states)[1]

    @_overflowing
    def loss_and_slopes(self, states: FloatArray, rows: Rows | None = None) -> tuple[FloatArray, FloatArray]:
        """Loss (rows,) and its gradient (rows, weights); see `learncast.theory.loss_and_gradient`."""
        power, cross, constant = self.power, self.cross, self.constant
        if rows is not None and power.ndim == 3 and len(rows) < len(power):
            power, cross, constant = power[rows], cross[rows], constant[rows]
        flat, lead = np.empty_like(states), [len(states)]
        parts, slopes = self.parts(states), self.parts(flat)
        multiply: Callable[..., FloatArray] = np.matmul
        if len(states) == 1:  # products of plain matrices take half the time of stacks of one
            parts, slopes, multiply, lead = [part[0] for part in parts], [part[0] for part in slopes], np.dot, []
            power, cross = power.reshape(-1, power.shape[-1]), cross.reshape(-1, cross.shape[-1])
        A, W, *out = parts
        below = [out[0]]  # C_i ... C_1
        for part in out[1:]:
            below.append(multiply(part, below[-1]))
        (outputs, hidden), inputs, powers = below[-1].shape[-2:], A.shape[-1], self._powers
        lags, C = cross.shape[-1] // inputs, np.broadcast_to(below[-1], (*lead, outputs, hidden)) if lead else below[-1]
        if powers is None:
            J = np.empty((*lead, lags, outputs, hidden), dtype=np.result_type(C, W))
            gains = [*J.swapaxes(0, -3)]  # C W^k
            gains[0][...] = C
            for before, after in pairwise(gains):
                multiply(before, W, out=after)
            J = J.reshape(*lead, lags * outputs, hidden)
        else:  # of all rows and lags together
            J = (C.reshape(-1, hidden) @ powers).reshape(*lead, outputs, lags, hidden)
            J = J.swapaxes(-3, -2).reshape(*lead, lags * outputs, hidden)
        K = multiply(J, A).reshape(*lead, lags, outputs, inputs).swapaxes(-3, -2).reshape(*lead, outputs, lags * inputs)
        D = multiply(K, power)
        D -= cross
        change = D - cross
        loss = (np.einsum("roi,roi->r", K, change) if lead else np.dot(K.ravel(), change.ravel())) / 2 + constant
        D = D.reshape(*lead, outputs, lags, inputs).swapaxes(-3, -2).reshape(*lead, lags * outputs, inputs)
        if self.learns[0]:
            multiply(J.swapaxes(-1, -2), D, out=slopes[0])
        if any(self.learns[1:]):
            M = multiply(D, A.swapaxes(-1, -2))
            if powers is None:
                lag, back = [*M.reshape(*lead, lags, outputs, hidden).swapaxes(0, -3)], W.swapaxes(-1, -2)
                for after, before in pairwise(lag[::-1]):
                    before += multiply(after, back)
                if self.learns[1]:
                    multiply(J[..., :-outputs, :].swapaxes(-1, -2), M[..., outputs:, :], out=slopes[1])
                error = lag[0]
            else:
                M = M.reshape(*lead, lags, outputs, hidden).swapaxes(-3, -2).reshape(-1, lags * hidden)
                error = (M @ powers.T).reshape(*lead, outputs, hidden)
            for k in range(len(out) - 1, -1, -1):
                if self.learns[2 + k]:
                    slopes[2 + k][...] = multiply(error, below[k - 1].swapaxes(-1, -2)) if k else error
                error = multiply(out[k].swapaxes(-1, -2), error) if any(self.learns[2 : 2 + k]) else error
        return loss.reshape(len(states)), flat

    def losses(self, maps: FloatArray) -> FloatArray:
        """Loss of maps (..., outputs, lags x inputs), for one task."""
        return np.asarray(((maps @ self.power / 2 - self.cross) * maps).sum(axis=(-2, -1)) + self.constant)

    def hessian_product(self, state: FloatArray, directions: FloatArray) -> FloatArray:
        """Products of the Hessian at one state with directions (rows, weights), exact to round-off."""
        size = np.abs(state).max(initial=0.0) or 1.0
        step = TINY * size / np.maximum(np.abs(directions).max(axis=1, keepdims=True), np.finfo(float).tiny)
        return np.asarray(self.loss_and_slopes(state + 1j * step * directions)[1].imag / step)

    def hessian(self, state: FloatArray) -> FloatArray:
        """Hessian of the loss at one state."""
        H = self.hessian_product(state, np.eye(len(state)))
        return np.asarray((H + H.T) / 2)

    @cached_property
    def rest(self) -> tuple[FloatArray, float]:
        """State and loss at which training from the start rests; nan if it overflows or a variance is unknown."""
        finite = np.isfinite(self.loss_and_slopes(self.start[None])[0]).all()
        if np.isnan(self.constant) or not finite:
            return self.start, math.nan
        if len(self.start) <= DENSE:
            return self._bottom(*self._follow(self.start))
        scale = float(self.constant) or 1.0

        def loss(flat: FloatArray) -> tuple[float, FloatArray]:
            value, slopes = self.loss_and_slopes(flat[None])
            return float(value[0]) / scale, slopes[0] / scale

        options = {"maxiter": 5_000, "maxfun": 10_000, "ftol": 1e-16, "gtol": 0.0}
        found = scipy.optimize.minimize(loss, self.start, jac=True, method="L-BFGS-B", options=options)
        return found.x, scale * float(found.fun)

    @_overflowing
    def fall_left(self, state: FloatArray) -> float:
        """Amount by which the loss may still fall from a state, by its curvature in units of each weight."""
        H, slope = self.hessian(state), self.loss_and_slopes(state[None])[1][0]
        weight = np.sqrt(np.abs(np.diagonal(H)))
        unit = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
        values, vectors = np.linalg.eigh(unit[:, None] * H * unit)
        along, bends = vectors.T @ (unit * slope), np.abs(values) > FLAT
        return float((along[bends] ** 2 / np.abs(values[bends])).sum() / 2)

    def rest_losses(self, others: LagDescent) -> FloatArray:
        """Losses at which training on slightly different statistics, one per row of `others`, rests, (rows,).

        They follow from one Newton step at the rest of these statistics.
        """
        state = self.rest[0]
        losses, slopes = others.loss_and_slopes(np.repeat(state[None], len(others.cross), axis=0))
        if len(state) <= DENSE:
            values, vectors = np.linalg.eigh(self.hessian(state))
            curved = values > CURVED * values[-1]
            losses = losses - ((slopes @ vectors[:, curved]) ** 2 / values[curved]).sum(axis=1) / 2
        best = others.constant - PooledDescent(others.power, others.cross).baseline_loss
        return np.asarray(np.maximum(losses, best))

    @_overflowing
    def _bottom(self, state: FloatArray, now: float) -> tuple[FloatArray, float]:
        """State and loss at the end of a long valley, by damped Newton steps; units of the weights do not matter."""
        damping = 1e-6
        for _ in range(NEWTON_STEPS):
            H = self.hessian(state)
            weight = np.sqrt(np.abs(np.diagonal(H)))
            unit = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
            slope = unit * self.loss_and_slopes(state[None])[1][0]
            values, vectors = np.linalg.eigh(unit[:, None] * H * unit)
            size = np.abs(values).max(initial=0.0) or 1.0
            while damping < 1.0:
                moved = state - unit * (vectors @ ((vectors.T @ slope) / (np.abs(values) + damping * size)))
                then = float(self.loss_and_slopes(moved[None])[0][0])
                # A longer move may leave the valley for a distant one.
                if then < now and np.linalg.norm(weight * (moved - state)) <= np.linalg.norm(weight * state):
                    break
                damping *= 8
            else:
                break
            fell, state, now, damping = now - then, moved, then, max(damping / 8, FLAT)
            if fell <= SETTLED * self.constant:
                break
        return state, now

    def _follow(self, state: FloatArray) -> tuple[FloatArray, float]:
        """Follow the flow until its loss hardly falls any more; return the last state and its loss."""
        weight = np.sqrt(np.abs(np.diagonal(self.hessian(state))))
        size = float((weight * np.abs(state)).max(initial=0.0))
        # Errors in the units of each weight: those of inputs of unequal scale differ by many orders of magnitude.
        unit = np.divide(size, weight, out=np.full(len(state), np.abs(state).max(initial=0.0)), where=weight > 0)
        solver = scipy.integrate.LSODA(
            lambda _, flat: -self.loss_and_slopes(flat[None])[1][0],
            0.0,
            state,
            np.inf,
            rtol=FLOW_ERROR,
            atol=0.01 * FLOW_ERROR * np.where(unit > 0, unit, 1.0),
            jac=lambda _, flat: -self.hessian(flat),
        )
        waited = 0
        for step in range(MOST_MOVES):
            if step % CHECKED == 0:
                check_time()
                values, vectors = np.linalg.eigh(self.hessian(solver.y))
                along = vectors.T @ self.loss_and_slopes(solver.y[None])[1][0]
                size = np.abs(values).max(initial=0.0)
                steep = np.abs(values) > FLAT * size
                left = (along[steep] ** 2 / np.abs(values[steep])).sum() / 2  # by which the loss may still fall
                saddle = values.min(initial=0.0) < -SADDLE * size and along.any()
                waited += left <= NEARLY_SETTLED * self.constant
                if waited > (ESCAPE if saddle else 0):
                    break
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # near the rest, steps become too long to converge
                solver.step()
            if solver.status != "running":
                break
        return np.asarray(solver.y), float(self.loss_and_slopes(solver.y[None])[0][0])

    def steps_to(
        self, states: FloatArray, goal: FloatArray, learning_rate: float, most: int
    ) -> tuple[FloatArray, FloatArray]:
        """Count the descent steps until the loss of each row is at most its goal; return steps and final states.

        Steps are infinite if descent diverges, and nan if the goal is not reached within `most` steps.
        """
        steps, ends, rows = np.full(len(states), np.nan), states.copy(), np.arange(len(states))
        goals, limits = goal, RUNAWAY * np.maximum(self.loss_and_slopes(states, rows)[0], self.constant)
        for step in range(most + 1):
            if step % 256 == 0:
                check_time()
            loss, slopes = self.loss_and_slopes(states, rows)
            going = (loss > goals) & (loss <= limits)
            if not going.all():
                inside = loss <= goals
                steps[rows] = np.where(going, np.nan, np.where(inside, step, np.inf))
                ends[rows[inside]] = states[inside]
                rows, states, slopes = rows[going], states[going], slopes[going]
                goals, limits = goals[going], limits[going]
            if not len(rows) or step == most:
                break
            states = states - learning_rate * slopes
        ends[rows] = states
        return steps, ends

    def strides_to(
        self, start: FloatArray, goal: float, learning_rate: float, most: int, curvature: float
    ) -> tuple[float, FloatArray]:
        """Count the steps of one long descent in strides; return steps, nan if too many to count, and the final state.

        The largest curvature on the way also bounds the rate at which the weights grow.
        """

        def reached(states: FloatArray, rows: Rows) -> NDArray[np.bool_]:
            return np.asarray(self.loss_and_slopes(states)[0] <= goal)

        def slope(states: FloatArray, rows: Rows) -> FloatArray:
            return -self.loss_and_slopes(states)[1]

        descents = Descents(slope, reached, curvature, curvature, learning_rate)
        if not descents.falls or descents.most_counted(start[None], most, MOST_STRIDED) < most:
            return math.nan, start
        steps, ends = descents.steps_to_goal(start[None], most)
        return float(steps[0]), ends[0]

    @_overflowing
    def advance(self, states: FloatArray, stops: Sequence[int], learning_rate: float) -> list[FloatArray]:
        """States after each of the increasing numbers of steps."""
        results, rows = [], np.arange(len(states))
        for before, after in pairwise((0, *stops)):
            for step in range(before, after):
                if step % 256 == 0:
                    check_time()
                states = states - learning_rate * self.loss_and_slopes(states, rows)[1]
            results.append(states)
        return results
