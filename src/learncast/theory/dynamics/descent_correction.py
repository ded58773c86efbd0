"""Steps that gradient descent on one mode needs, predicted from its flow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray
from learncast.theory.dynamics.mode_equation import sharpness, strength

#: Gauss-Legendre nodes for the drift of an unbalanced descent; the integrand is smooth in time.
_DRIFT_NODES = 96


def descent_correction(
    start: ArrayLike, end: ArrayLike, imbalance: ArrayLike, cross: ArrayLike, power: ArrayLike, time: ArrayLike
) -> FloatArray:
    """Return the steps that gradient descent needs in addition to the flow between two strengths, to first order.

    Gradient descent follows the flow of a slightly different equation (backward error analysis). With
    delta = beta - u B its number of steps exceeds tau / learning_rate by

        1/2 ln(delta_1 / delta_0) + 1/4 ln(S_1 / S_0) + lambda^2 int_0^tau I / S^2 dtau,
        I = int_u0^u delta / S du = beta/2 (theta - theta_0) - B/4 (S - S_0),   sinh theta = 2u / |lambda|,

    where the last term is the drift of lambda, which descent does not conserve. The correction does not depend on the
    learning rate; for a balanced start it is 1/4 ln(u_1/u_0) + 1/2 ln((u*-u_1)/(u*-u_0)).

    Parameters
    ----------
    start, end : array_like
        Strengths u_0 and u_1 between which the flow passes.
    imbalance : array_like
        lambda = a^2 - c^2.
    cross, power : array_like
        Recurrence-weighted strengths beta and B.
    time : array_like
        Flow time tau from start to end, from `time_to_band` or `time_between`.

    Returns
    -------
    array
        Steps; 0 if the time is 0 or infinite.

    Examples
    --------
    At a learning rate of 0.1 the flow needs 45.95 steps, and gradient descent about one less:

    >>> from learncast.theory import descent_correction, time_to_band
    >>> time, edge = time_to_band(0.01, 0.0, 1.0, 1.0, 0.01)
    >>> correction = descent_correction(0.01, edge, 0.0, 1.0, 1.0, time)
    >>> float((time / 0.1).round(2)), float(correction.round(2))
    (45.95, -1.15)
    >>> weight, steps = 0.1, 0
    >>> while weight**2 < 0.99:
    ...     weight, steps = weight + 0.1 * weight * (1.0 - weight**2), steps + 1
    >>> steps
    45
    """
    u0, u1, lam, beta, B, tau = np.broadcast_arrays(
        *(np.asarray(v, float) for v in (start, end, imbalance, cross, power, time))
    )
    ell = np.abs(lam)
    moving = (tau > 0) & np.isfinite(tau)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = beta / B
        slowing = 0.5 * np.log((best - u1) / (best - u0))
        growth = 0.25 * np.log(np.hypot(ell, 2 * u1) / np.hypot(ell, 2 * u0))
    correction = np.where(moving, slowing + growth, 0.0)
    drifting = moving & (ell > 0)
    if np.any(drifting):
        correction[drifting] += _drift(*(v[drifting] for v in (u0, ell, beta, B, tau)))
    return correction


def _drift(u0: FloatArray, ell: FloatArray, beta: FloatArray, B: FloatArray, tau: FloatArray) -> FloatArray:
    nodes, weights = np.polynomial.legendre.leggauss(_DRIFT_NODES)
    at = 0.5 * (nodes[:, None] + 1) * tau
    u = strength(at, u0, ell, beta, B)
    S0, S = np.hypot(ell, 2 * u0), np.hypot(ell, 2 * u)
    theta0, theta = np.arcsinh(2 * u0 / ell), np.arcsinh(2 * u / ell)
    integral = beta / 2 * (theta - theta0) - B / 4 * (S - S0)
    return ell**2 * tau / 2 * np.einsum("q,qn->n", weights, integral / S**2)


def descent_steps(
    start: FloatArray,
    end: FloatArray,
    imbalance: FloatArray,
    cross: FloatArray,
    power: FloatArray,
    flow_time: FloatArray,
    learning_rate: float,
) -> FloatArray:
    """Predict the gradient-descent steps of a passage: flow time / learning rate plus `descent_correction`, rounded up.

    Parameters
    ----------
    start, end, imbalance, cross, power : array
        As for `descent_correction`.
    flow_time : array
        Flow time from start to end.
    learning_rate : float

    Returns
    -------
    array
        Whole numbers; infinite if learning rate x curvature exceeds 2, nan if the flow time is nan.

    Examples
    --------
    Ten times the learning rate takes a tenth of the steps, until descent diverges:

    >>> import numpy as np
    >>> from learncast.theory import descent_steps, time_to_band
    >>> start, imbalance, cross, power = (np.array(one) for one in (0.01, 0.0, 1.0, 1.0))
    >>> time, edge = time_to_band(start, imbalance, cross, power, 0.01)
    >>> [float(descent_steps(start, edge, imbalance, cross, power, time, rate)) for rate in (0.01, 0.1, 1.5)]
    [459.0, 45.0, inf]
    """
    correction = descent_correction(start, end, imbalance, cross, power, flow_time)
    steps = flow_time / learning_rate + correction
    # Rounding at the edge of the band must not turn 331.0 into 332, and any passage takes at least one step.
    counted = np.where(flow_time > 0, np.maximum(np.ceil(steps - 1e-9), 1.0), 0.0)
    unstable = learning_rate * sharpness(start, imbalance, cross, power) > 2.0
    counted = np.where(unstable & (flow_time > 0), np.inf, counted)
    return np.where(np.isnan(flow_time), np.nan, counted)
