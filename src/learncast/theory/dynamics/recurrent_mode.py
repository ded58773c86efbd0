"""Mode of a linear RNN that learns its recurrence together with its input and output weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray, real_array

__all__ = [
    "Decade", "ModeStart", "ModeTrajectory", "long_run", "mode_flow", "mode_loss", "mode_trajectory", "weights_at",
]  # fmt: skip

#: Error per solver step; the weights are then accurate to about 1e-10.
ERROR = 1e-13
#: A recurrence or a product of weights beyond this size has diverged.
LARGEST = 1e8
#: Largest number of solver steps per mode. Ordinary modes take about a thousand.
MOST_STEPS = 50_000
#: Powers of ten of its time scale over which a mode is followed.
DECADES = 16
#: Relative change of every weight over a decade below which the mode is at rest.
SETTLED = 1e-9


@dataclass(frozen=True, eq=False)
class ModeTrajectory:
    """Weights of modes over time.

    Attributes
    ----------
    times : array (times,)
        Flow time, steps x learning rate.
    input, recurrence, output, loss : array (..., times)
        Weights a, b and c of each mode, and its loss; nan after the end of the integration.
    status : array of str (...)
        "ok"; "diverged" if the weights exceed `LARGEST` or the solver fails; "unfinished" if `MOST_STEPS` solver steps
        do not reach the last time.

    Examples
    --------
    >>> from learncast.theory import mode_trajectory
    >>> path = mode_trajectory([0.0, 5.0, 100.0], 0.2, 0.3, 0.2, [1.0, 0.5, 0.25])
    >>> path.recurrence.round(3), str(path.status)
    (array([0.3  , 0.502, 0.5  ]), 'ok')
    """

    times: FloatArray
    input: FloatArray
    recurrence: FloatArray
    output: FloatArray
    loss: FloatArray
    status: NDArray[np.str_]


def mode_loss(
    input_weight: ArrayLike,
    recurrence: ArrayLike,
    output_weight: ArrayLike,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> FloatArray:
    """Return the loss of modes: constant - u P(b) + u² Q(b)/2 with u = a c.

    P = sum_k b^k sig_k and Q = sum_jk b^(j+k) S_jk, by lag. All arrays broadcast over modes.

    Implements: curriculum2025 Eq. (37), with the 1/2 and the matrix square roots that the paper omits

    Parameters
    ----------
    input_weight, recurrence, output_weight : array (...)
        a, b and c of each mode.
    cross_strengths : array (..., lags)
        sig_k = E[y x_{T-k}], from lag 0, the last input.
    input_strengths : array (..., lags, lags), optional
        S_jk = E[x_{T-j} x_{T-k}]; by default white inputs of variance 1.
    constant : array (...), optional
        Half the mean square of the target; by default sig' S^-1 sig / 2, for a target that the inputs determine.

    Returns
    -------
    array (...)

    Examples
    --------
    >>> from learncast.theory import mode_loss
    >>> mode_loss(1.0, [0.0, 0.5], 1.0, [1.0, 0.5, 0.25]).round(4)
    array([0.1562, 0.    ])
    """
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    sig, S = checked_strengths(cross_strengths, input_strengths)
    return _loss(a * c, b, polynomials_of(sig, S), loss_constant(sig, S, constant))


def mode_flow(
    input_weight: ArrayLike,
    recurrence: ArrayLike,
    output_weight: ArrayLike,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the gradient flow (da, db, dc) of modes, per unit of steps times learning rate.

    da = c (P - u Q), dc = a (P - u Q), db = u P' - u² Q'/2, with u, P, Q and the parameters of `mode_loss`.
    a² - c² is conserved.

    Implements: curriculum2025 Eq. (35), with the cross strengths counted once
    Implements: curriculum2025 Eq. (36), with the cross strengths counted once

    Parameters
    ----------
    input_weight, recurrence, output_weight, cross_strengths, input_strengths
        As in `mode_loss`.

    Returns
    -------
    da, db, dc : array (...)

    Examples
    --------
    >>> from learncast.theory import mode_flow
    >>> [round(float(slope), 4) for slope in mode_flow(0.5, 0.0, 0.5, [1.0, 0.5, 0.25])]
    [0.375, 0.125, 0.375]
    """
    a, b, c = checked_weights(input_weight, recurrence, output_weight)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        P, dP, _, Q, dQ, _ = polynomial_values(polynomials_of(*checked_strengths(cross_strengths, input_strengths)), b)
        u = a * c
        pull = P - u * Q
        return c * pull, u * dP - 0.5 * u * u * dQ, a * pull


def mode_trajectory(
    times: ArrayLike,
    input_weight: ArrayLike,
    recurrence: ArrayLike,
    output_weight: ArrayLike,
    cross_strengths: ArrayLike,
    input_strengths: ArrayLike | None = None,
    *,
    constant: ArrayLike | None = None,
) -> ModeTrajectory:
    """Integrate `mode_flow` from the given weights at time 0, separately for each mode.

    A mode may have no finite minimum: if only the first input matters, b grows like (4 tau)^(1/4) without bound. It is
    then integrated as far as `LARGEST` and `MOST_STEPS` allow, and the status tells whether that is the last time.

    Parameters
    ----------
    times : array (times,)
        Ascending flow times of at least 0, steps x learning rate.
    input_weight, recurrence, output_weight, cross_strengths, input_strengths, constant
        As in `mode_loss`.

    Returns
    -------
    ModeTrajectory

    Examples
    --------
    >>> from learncast.theory import mode_trajectory
    >>> path = mode_trajectory([0.0, 5.0, 100.0], 0.2, 0.3, 0.2, [1.0, 0.5, 0.25])
    >>> path.recurrence.round(3)
    array([0.3  , 0.502, 0.5  ])
    >>> abs(path.loss.round(3))
    array([0.61, 0.  , 0.  ])
    """
    clock = np.atleast_1d(real_array("times", times, ndim=(0, 1)))
    if (clock < 0).any() or (np.diff(clock) < 0).any():
        raise InvalidSpec(f"times must ascend from at least 0, got {clock.min():g} to {clock.max():g}.", field="times")
    start = checked_weights(input_weight, recurrence, output_weight)
    sig, S = checked_strengths(cross_strengths, input_strengths)
    polynomials, level = polynomials_of(sig, S), loss_constant(sig, S, constant)
    batch = np.broadcast_shapes(*(w.shape for w in start), polynomials.shape[:-2], level.shape)
    a, b, c = (np.broadcast_to(w, batch) for w in start)
    polynomials = np.broadcast_to(polynomials, batch + polynomials.shape[-2:])
    path = np.empty((*batch, 3, len(clock)))
    status = np.empty(batch, dtype="U10")
    for mode in np.ndindex(batch):
        weights = float(a[mode]), float(b[mode]), float(c[mode])
        path[mode], status[mode] = _integrate(clock, *weights, polynomials[mode])
    a, b, c = (path[..., i, :] for i in range(3))
    losses = _loss(a * c, b, polynomials[..., None, :, :], level[..., None])
    return ModeTrajectory(clock, a, b, c, losses, status)


class ModeStart(NamedTuple):
    """Weights a, b and c of a mode before training.

    Examples
    --------
    >>> from learncast.theory import ModeStart
    >>> ModeStart(input_weight=0.2, recurrence=0.5, output_weight=0.3).strength
    0.06
    """

    input_weight: float
    recurrence: float
    output_weight: float

    @property
    def strength(self) -> float:
        """The product u = a c."""
        return self.input_weight * self.output_weight


class Decade(NamedTuple):
    """One power of ten of the flow: start time, trajectory, and whether any weight moved.

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import ModeStart, long_run
    >>> first = next(long_run(ModeStart(0.2, 0.5, 0.2), np.array([1.0, 0.8, 0.64]), None))
    >>> first.begun, first.moved
    (0.0, True)
    """

    begun: float
    path: ModeTrajectory
    moved: bool


def long_run(start: ModeStart, sig: FloatArray, S: FloatArray | None) -> Iterator[Decade]:
    """Follow a mode with finite loss decade by decade, until the solver fails.

    A failing decade of a mode at rest is omitted, since the solver fails on steps of 1e12 that change nothing.

    Parameters
    ----------
    start : ModeStart
        Weights before training.
    sig : (lags,)
        Cross strengths, lag 0 first.
    S : (lags, lags) or None
        Input strengths; None for white inputs of variance 1.

    Returns
    -------
    iterator of Decade
        Each ends at ten times the time at which it begins.

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import ModeStart, long_run, weights_at
    >>> decades = list(long_run(ModeStart(0.2, 0.5, 0.2), np.array([1.0, 0.8, 0.64]), None))
    >>> decades[-1].moved
    False
    >>> end = weights_at(decades[-1].path, -1)
    >>> round(end.recurrence, 6), round(end.strength, 6)
    (0.8, 1.0)
    """
    P, dP, _, Q, _, _ = (abs(float(v)) for v in polynomial_values(polynomials_of(sig, S), np.asarray(start.recurrence)))
    begun, span, moved = 0.0, 1.0 / (max(P, dP, abs(start.strength) * Q) or 1.0), True
    for _ in range(DECADES):
        path = mode_trajectory(span * np.linspace(0.0, 1.0, 65), *start, sig, S)
        if path.status != "ok" and not moved:
            return
        end = weights_at(path, -1)
        moved = any(abs(x - y) > SETTLED * abs(y) for x, y in zip(end, start, strict=True))
        yield Decade(begun, path, moved)
        if path.status != "ok":
            return
        begun, start = begun + span, end
        span = 9 * begun


def weights_at(path: ModeTrajectory, n: int) -> ModeStart:
    """Return the weights of a single mode at the nth time of its trajectory.

    Parameters
    ----------
    path : ModeTrajectory
        Trajectory of one mode.
    n : int
        Index of the time.

    Returns
    -------
    ModeStart

    Examples
    --------
    >>> from learncast.theory import weights_at
    >>> from learncast.theory.dynamics.recurrent_mode import mode_trajectory
    >>> path = mode_trajectory([0.0, 1.0], 0.2, 0.5, 0.2, [1.0, 0.8, 0.64])
    >>> weights_at(path, 0)
    ModeStart(input_weight=0.2, recurrence=0.5, output_weight=0.2)
    """
    return ModeStart(float(path.input[n]), float(path.recurrence[n]), float(path.output[n]))


class _Hyperbola:
    """Curve of constant lam = a² - c² on which a mode moves, with the hyperbolic angle s as coordinate.

    u = lam/2 sinh(s), or u = ±exp(s) if lam = 0, and ds = ±2 (P - u Q) with the sign of lam, or of u. If a and c were
    integrated, the error of lam would grow until it exceeds a small weight, or moves a mode with a = -c through zero.
    """

    def __init__(self, a: float, c: float) -> None:
        self.lam = (a - c) * (a + c)
        self.sign = math.copysign(1.0, self.lam if self.lam else a * c)
        self.start = math.asinh(2 * a * c / self.lam) if self.lam else math.log(abs(a)) + math.log(abs(c))
        # The larger of |a| and |c| never changes sign.
        self.larger_is_input = abs(a) >= abs(c)
        size = math.sqrt(abs(self.lam)) if self.lam else 1.0
        self.size = math.copysign(size, a if self.larger_is_input else c)

    def product(self, s: float) -> float:
        """Return u = a c."""
        return 0.5 * self.lam * np.sinh(s) if self.lam else self.sign * np.exp(s)

    def weights(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a and c."""
        larger = self.size * (np.cosh(s / 2) if self.lam else np.exp(s / 2))
        smaller = self.sign * self.size * (np.sinh(s / 2) if self.lam else np.exp(s / 2))
        return (larger, smaller) if self.larger_is_input else (smaller, larger)


def _integrate(taus: FloatArray, a: float, b: float, c: float, polynomials: FloatArray) -> tuple[FloatArray, str]:
    """Integrate one mode; return its weights (3, times) and the status."""
    start = np.array([a, b, c])[:, None]
    if a * c == 0 == (a - c) * (a + c) or not taus.any():
        return start + np.zeros(len(taus)), "ok"
    curve = _Hyperbola(a, c)
    exponents = np.arange(polynomials.shape[1], dtype=np.float64)

    def flow(_: float, y: FloatArray) -> list[float]:
        P, dP, _, Q, dQ, _ = (polynomials @ y[1] ** exponents).tolist()
        u = float(curve.product(y[0]))
        return [2 * curve.sign * (P - u * Q), u * dP - 0.5 * u * u * dQ]

    def jacobian(_: float, y: FloatArray) -> list[list[float]]:
        _, dP, ddP, Q, dQ, ddQ = (polynomials @ y[1] ** exponents).tolist()
        u = float(curve.product(y[0]))
        slope = math.copysign(0.5 * math.hypot(curve.lam, 2 * u), curve.sign)  # du/ds
        pull = dP - u * dQ
        return [
            [-2 * curve.sign * Q * slope, 2 * curve.sign * pull],
            [pull * slope, u * ddP - 0.5 * u * u * ddQ],
        ]

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # failures are read from the status
        solver = scipy.integrate.LSODA(flow, 0.0, [curve.start, b], taus[-1], rtol=ERROR, atol=ERROR, jac=jacobian)
        states, end = _run(solver, taus, curve)
    input_weight, output_weight = curve.weights(states[0])
    return np.where(taus == 0, start, np.stack([input_weight, states[1], output_weight])), end


def _run(solver: scipy.integrate.LSODA, taus: FloatArray, curve: _Hyperbola) -> tuple[FloatArray, str]:
    """Step to the last time or as far as possible; return angle and recurrence (2, times) and the status."""
    states = np.full((2, len(taus)), np.nan)
    for _ in range(MOST_STEPS):
        check_time()
        solver.step()
        size = max(abs(curve.product(solver.y[0])), abs(solver.y[1]))
        if solver.status == "failed" or not size < LARGEST:
            return states, "diverged"
        inside = (taus > solver.t_old) & (taus <= solver.t)
        if inside.any():
            states[:, inside] = solver.dense_output()(taus[inside])
        if solver.status == "finished":
            return states, "ok"
    return states, "unfinished"


def _loss(u: FloatArray, b: FloatArray, polynomials: FloatArray, constant: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        P, _, _, Q, _, _ = polynomial_values(polynomials, b)
        E: FloatArray = constant - u * P + 0.5 * u * u * Q
    return E


def polynomials_of(sig: FloatArray, S: FloatArray | None) -> FloatArray:
    """Return the coefficients in b of P, P', P'', Q, Q', Q'', (..., 6, 2 lags - 1)."""
    lags = sig.shape[-1]
    batch = sig.shape[:-1] if S is None else np.broadcast_shapes(sig.shape[:-1], S.shape[:-2])
    rows = np.zeros((*batch, 6, 2 * lags - 1))
    rows[..., 0, :lags] = sig
    if S is None:
        rows[..., 3, ::2] = 1.0
    else:
        for j in range(lags):
            rows[..., 3, j : j + lags] += S[..., j, :]
    for row in (1, 2, 4, 5):
        rows[..., row, :-1] = rows[..., row - 1, 1:] * np.arange(1, 2 * lags - 1)
    return rows


def polynomial_values(polynomials: FloatArray, b: FloatArray) -> FloatArray:
    """Return P, P', P'', Q, Q', Q'' at b, along a new first axis."""
    powers = np.asarray(b)[..., None] ** np.arange(polynomials.shape[-1])
    return np.moveaxis(np.vecdot(polynomials, powers[..., None, :]), -1, 0)


def loss_constant(sig: FloatArray, S: FloatArray | None, constant: ArrayLike | None) -> FloatArray:
    """Return the loss of the zero output: as given, or half the power that the best filter explains."""
    if constant is not None:
        return real_array("constant", constant)
    # The pseudo-inverse allows linearly dependent inputs.
    filters = sig if S is None else (np.linalg.pinv(S, hermitian=True) @ sig[..., None])[..., 0]
    return 0.5 * np.asarray(np.vecdot(sig, filters))


def checked_weights(
    input_weight: ArrayLike, recurrence: ArrayLike, output_weight: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Validate a, b and c of modes; c = a if it is None."""
    a, b = real_array("input_weight", input_weight), real_array("recurrence", recurrence)
    return a, b, a if output_weight is None else real_array("output_weight", output_weight)


def checked_strengths(
    cross_strengths: ArrayLike, input_strengths: ArrayLike | None, *, ndim: int | None = None
) -> tuple[FloatArray, FloatArray | None]:
    """Validate cross strengths (..., lags) and input strengths (..., lags, lags) or None; ndim=1 requires one mode."""
    sig = real_array("cross_strengths", cross_strengths, ndim=ndim)
    S = None if input_strengths is None else real_array("input_strengths", input_strengths)
    lags = sig.shape[-1] if sig.ndim else 0
    if lags == 0:
        raise InvalidSpec(f"cross_strengths must have shape (..., lags), got {sig.shape}.", field="cross_strengths")
    if S is not None and S.shape[-2:] != (lags, lags):
        raise InvalidSpec(f"input_strengths must be (..., {lags}, {lags}), got {S.shape}.", field="input_strengths")
    if S is not None and (gap := np.abs(S - S.swapaxes(-1, -2)).max()) > 1e-8 * np.abs(S).max():
        raise InvalidSpec(f"input_strengths must be symmetric, got a difference of {gap:.3g}.", field="input_strengths")
    return sig, S
