"""Families of integration tasks: targets that sum the input over time, evenly or with a leak.

Every family is written once, as *time profiles* that broadcast over leading axes, so that a thousand variants
of a task cost one array operation. A profile belongs to one input channel; channels are independent and are
mixed into the outputs by a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.task import Task, family

TARGETS = ("end", "every_step")


@dataclass(frozen=True)
class Profile:
    """Second-order time course of one input channel and its filtered target; leading axes broadcast.

    Attributes
    ----------
    input : (..., steps, steps)
        Cov(x_t, x_t').
    filter : (..., readouts, steps)
        The target is y_r = sum_t filter[r, t] x_t.
    """

    input: FloatArray
    filter: FloatArray

    @property
    def cross(self) -> FloatArray:
        """Cov(x_t, y_r) = sum over t' of Cov(x_t, x_t') filter[r, t'], (..., steps, readouts)."""
        steps = self.input.shape[-1]
        if self.input.size == steps**2 and self.filter.ndim >= self.input.ndim:  # filters that share it: one product
            return np.swapaxes(np.dot(self.filter, self.input.reshape(steps, steps)), -1, -2)
        return self.input @ np.swapaxes(self.filter, -1, -2)

    @property
    def target(self) -> FloatArray:
        """Cov(y_r, y_r'), (..., readouts, readouts)."""
        return self.filter @ self.cross


class WhiteSum(Profile):
    """White input and its even sum, whose covariances take no products of matrices."""

    @property
    def cross(self) -> FloatArray:
        return np.diagonal(self.input, axis1=-2, axis2=-1)[..., None] * np.swapaxes(self.filter, -1, -2)

    @property
    def target(self) -> FloatArray:
        if self.filter.shape[-2] == 1:
            return super().target
        # A sum and a longer one share the steps of the shorter.
        variance = np.cumsum(self.filter[..., -1, :] * self.cross[..., -1], axis=-1)
        return np.minimum(variance[..., :, None], variance[..., None, :])


def integration_profile(
    *, steps: int, targets: str, input_strength: FloatArray, target_strength: FloatArray
) -> Profile:
    """White input of variance s_xx and the even sum that co-varies with each input by s_yx.

    y = (s_yx / s_xx) sum_t x_t, so Cov(x_t, x_t') = s_xx delta_tt' and Cov(y, x_t) = s_yx.
    """
    s_xx, s_yx = np.asarray(input_strength), np.asarray(target_strength)
    even = np.ones((1, steps)) if targets == "end" else np.tri(steps)
    white = np.zeros((*s_xx.shape, steps, steps))
    white[..., range(steps), range(steps)] = s_xx[..., None]
    return WhiteSum(white, (s_yx / s_xx)[..., None, None] * even)


def leaky_profile(
    *,
    steps: int,
    targets: str,
    timescale: FloatArray,
    correlation: FloatArray,
    noise_strength: FloatArray,
    gain: FloatArray,
) -> Profile:
    """AR(1) input and its leaky integral.

    x_t = K x_{t-1} + w_t from x_0 = 0 with Var(w) = q, so with m = min(t, t') the finite-time covariance is
    Cov(x_t, x_t') = q K^|t-t'| (1 + K^2 + ... + K^(2m-2)), and y_r = sum_{t<=r} A_0 exp(-(r-t)/timescale) x_t.

    Implements: curriculum2025 Eq. (18), from x_0 = 0 at finite time instead of the stationary limit
    Implements: curriculum2025 Eq. (19), with the timescale in steps
    """
    K, q = np.asarray(correlation)[..., None], np.asarray(noise_strength)[..., None]
    lags = np.arange(steps)
    powers = K**lags
    variance = q * np.cumsum(powers**2, axis=-1)  # summed, not (1-K^2m)/(1-K^2): right at |K| = 1 and above
    # The variance only grows, so that of the earlier step is the smaller; views and minima beat index arrays.
    earlier = np.minimum(variance[..., :, None], variance[..., None, :])
    both_ways = np.concatenate([powers[..., :0:-1], powers], axis=-1)
    by_gap = np.lib.stride_tricks.sliding_window_view(both_ways, steps, axis=-1)[..., ::-1, :]  # K^|t-t'|
    covariance = np.multiply(by_gap, earlier, out=earlier if earlier.shape == by_gap.shape else None)
    decay = np.asarray(gain)[..., None] * np.exp(-lags / np.asarray(timescale)[..., None])
    if targets == "end":
        return Profile(covariance, decay[..., None, ::-1])
    reach = lags[:, None] - lags
    return Profile(covariance, np.where(reach >= 0, decay[..., np.maximum(reach, 0)], 0.0))


@dataclass(frozen=True)
class Family:
    """A named family of tasks: its profile and which keywords are numbers per input channel."""

    build: Callable[..., Task]
    profile: Callable[..., Profile]
    channel_keywords: tuple[str, ...]


@family
def integration(
    steps: int = 50,
    input_strength: Any = 1.0,
    target_strength: Any = 1.0,
    *,
    mixing: Any = None,
    targets: str = "end",
    name: str = "integration",
) -> Task:
    """Perfect integration of white noise.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    input_strength : float or one per input
        Variance of the input, s_xx.
    target_strength : float or one per input
        Covariance of the target with each input step, s_yx.
    mixing : (outputs, inputs), optional
        How integrated channels add up to outputs; one output per channel by default.
    targets : {"end", "every_step"}
        Whether the sum is asked for at the end or the running sum at every step.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.tasks.integration(steps=50, target_strength=1.5)
    <Task 'integration': 50 steps, 1 input, 1 output at the end; integration family>
    """
    channels = {"input_strength": input_strength, "target_strength": target_strength}
    return _build(integration_profile, steps, mixing, targets, name, channels)


@family
def leaky_integration(
    steps: int = 50,
    timescale: Any = 10.0,
    correlation: Any = 0.0,
    noise_strength: Any = 1.0,
    gain: Any = 1.0,
    *,
    mixing: Any = None,
    targets: str = "end",
    name: str = "leaky integration",
) -> Task:
    """Leaky integration of an AR(1) input.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    timescale : float or one per input
        Decay of the integration window, in steps.
    correlation : float or one per input
        K of x_t = K x_{t-1} + w_t; any sign, 1 (a random walk) included.
    noise_strength : float or one per input
        Variance of w_t.
    gain : float or one per input
        Weight of the newest input in the target.
    mixing, targets, name
        As for `integration`.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.tasks.leaky_integration(steps=50, timescale=10.0)
    <Task 'leaky integration': 50 steps, 1 input, 1 output at the end; leaky_integration family>
    """
    channels = {"timescale": timescale, "correlation": correlation, "noise_strength": noise_strength, "gain": gain}
    return _build(leaky_profile, steps, mixing, targets, name, channels)


FAMILIES: Mapping[str, Family] = {
    "integration": Family(integration, integration_profile, ("input_strength", "target_strength")),
    "leaky_integration": Family(
        leaky_integration, leaky_profile, ("timescale", "correlation", "noise_strength", "gain")
    ),
}

_POSITIVE = {
    "input_strength": "a variance of zero leaves nothing to learn from",
    "noise_strength": "a variance of zero leaves nothing to learn from",
    "timescale": "the window decays as exp(-lag / timescale)",
}


def checked_channels(keyword: str, value: Any) -> FloatArray:
    """Validate one channel keyword: a number, or one per input (more leading axes for variants)."""
    array = real_array(keyword, value)
    if keyword in _POSITIVE and not (array > 0).all():
        raise InvalidSpec(f"{keyword} must be positive, got {float(array.min()):g}.")
    return array


def _build(
    make: Callable[..., Profile], steps: Any, mixing: Any, targets: str, name: str, channels: dict[str, Any]
) -> Task:
    T = count("steps", steps)
    targets = one_of("targets", targets, TARGETS)
    values = {key: checked_channels(key, value) for key, value in channels.items()}
    mixing = _mixing(mixing, values)
    most = max(value.size for value in values.values())
    check_steps(T, COPIES[targets] * most)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported below, in words
        profile = make(steps=T, targets=targets, **values)
        cross, target = profile.cross, profile.target
    if not np.isfinite(target).all():
        largest = (f"{key} {value.flat[np.abs(value).argmax()]:g}" for key, value in values.items())
        raise InvalidSpec(
            f"the statistics must be finite, got an overflow at {T} steps with {', '.join(largest)}. Shorten "
            "the trial or use smaller numbers."
        )
    every = np.eye(mixing.shape[1])
    return Task.trusted(
        _terms(profile.input, every, every),
        _terms(cross, every, mixing),
        _terms(target, mixing, mixing),
        name=str(name),
    )


def _mixing(mixing: Any, values: Mapping[str, FloatArray]) -> FloatArray:
    lengths = {key: value.size for key, value in values.items() if value.ndim}
    for key, value in values.items():
        if value.ndim > 1:
            raise InvalidSpec(
                f"{key} must be a number or a list with one number per input, got shape {value.shape}.", field=key
            )
    matrix = np.eye(max(lengths.values(), default=1)) if mixing is None else real_array("mixing", mixing, ndim=2)
    if 0 in matrix.shape:
        raise InvalidSpec(
            f"a task must have at least one input and one output, got {matrix.shape[1]} and {matrix.shape[0]}."
        )
    for key, length in lengths.items():
        if length != matrix.shape[1]:
            raise InvalidSpec(
                f"{key} must have one number for each of the {matrix.shape[1]} inputs, got {length}. Give a "
                "single number, or match the columns of mixing.",
                field=key,
            )
    return matrix


def _terms(time: FloatArray, left: FloatArray, right: FloatArray) -> Kronecker:
    """Cov = sum_i time_i x left e_i e_i^T right^T; equal channels share one term."""
    if time.ndim == 2:
        return Kronecker(time[None], (left @ right.T)[None])
    return Kronecker(time, np.einsum("ai,bi->iab", left, right))
