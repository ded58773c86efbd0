"""Families of integration tasks: targets that sum the input over time, evenly or with a leak.

A family is a *time profile* of one input channel that broadcasts over leading axes, so that a thousand variants of a
task cost one array operation. Channels are independent; a matrix mixes them into the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.geometry import by_gap
from learncast.tasks.recorded.targets import SMALLEST
from learncast.tasks.task import Task, family

TARGETS = ("end", "every_step")


@dataclass(frozen=True)
class Profile:
    """Second-order statistics over time of one input channel and its filtered target; leading axes broadcast.

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
        if self.input.size == steps**2 and self.filter.ndim >= self.input.ndim:  # one product for all filters
            return np.swapaxes(np.dot(self.filter, self.input.reshape(steps, steps)), -1, -2)
        return self.input @ np.swapaxes(self.filter, -1, -2)

    @property
    def target(self) -> FloatArray:
        """Cov(y_r, y_r'), (..., readouts, readouts)."""
        return self.filter @ self.cross


class WhiteSum(Profile):
    """White input and its even sum, whose covariances need no matrix products."""

    @property
    def cross(self) -> FloatArray:
        return np.diagonal(self.input, axis1=-2, axis2=-1)[..., None] * np.swapaxes(self.filter, -1, -2)

    @property
    def target(self) -> FloatArray:
        if self.filter.shape[-2] == 1:
            return super().target
        # Two sums share the steps of the shorter one.
        variance = np.cumsum(self.filter[..., -1, :] * self.cross[..., -1], axis=-1)
        return np.minimum(variance[..., :, None], variance[..., None, :])


def integration_profile(
    *, steps: int, targets: str, input_strength: FloatArray, target_strength: FloatArray
) -> Profile:
    """White input of variance s_xx and its even sum, scaled to a covariance of s_yx with each input.

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
    variance = q * np.cumsum(powers**2, axis=-1)  # a sum, not (1-K^2m)/(1-K^2), is also right at |K| >= 1
    # The variance increases with time, so the minimum belongs to the earlier step.
    earlier = np.minimum(variance[..., :, None], variance[..., None, :])
    decaying = by_gap(powers)  # K^|t-t'|
    covariance = np.multiply(decaying, earlier, out=earlier if earlier.shape == decaying.shape else None)
    decay = np.asarray(gain)[..., None] * np.exp(-lags / np.asarray(timescale)[..., None])
    if targets == "end":
        return Profile(covariance, decay[..., None, ::-1])
    reach = lags[:, None] - lags
    return Profile(covariance, np.where(reach >= 0, decay[..., np.maximum(reach, 0)], 0.0))


@dataclass(frozen=True)
class Family:
    """A family of tasks: its constructor, its profile, and the keywords that take one number per input channel."""

    build: Callable[..., Task]
    profile: Callable[..., Profile]
    channel_keywords: tuple[str, ...]


@family
def integration(
    steps: int = 50,
    input_strength: ArrayLike = 1.0,
    target_strength: ArrayLike = 1.0,
    *,
    mixing: ArrayLike | None = None,
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
        Weights of the integrated channels in the outputs; one output per channel by default.
    targets : {"end", "every_step"}
        Whether the target is the sum at the end or the running sum at every step.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

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
    timescale: ArrayLike = 10.0,
    correlation: ArrayLike = 0.0,
    noise_strength: ArrayLike = 1.0,
    gain: ArrayLike = 1.0,
    *,
    mixing: ArrayLike | None = None,
    targets: str = "end",
    name: str = "leaky integration",
) -> Task:
    """Leaky integration of an AR(1) input.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    timescale : float or one per input
        Decay time of the integration window, in steps.
    correlation : float or one per input
        K of x_t = K x_{t-1} + w_t, of either sign; 1 is a random walk.
    noise_strength : float or one per input
        Variance of w_t.
    gain : float or one per input
        Weight of the newest input in the target.
    mixing, targets, name
        See `integration`.

    Returns
    -------
    Task
        Exact statistics of the task.

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


def checked_channels(keyword: str, value: ArrayLike) -> FloatArray:
    """Validate the numbers of one channel keyword: one for all inputs, or one per input, with any leading axes."""
    array = real_array(keyword, value)
    if keyword in ("input_strength", "noise_strength", "timescale") and not (array > 0).all():
        raise InvalidSpec(f"{keyword} must be positive, got {float(array.min()):g}.", field=keyword)
    return array


def _build(
    make: Callable[..., Profile],
    steps: int,
    mixing: ArrayLike | None,
    targets: str,
    name: str,
    channels: Mapping[str, ArrayLike],
) -> Task:
    T = count("steps", steps)
    targets = one_of("targets", targets, TARGETS)
    values = {key: checked_channels(key, value) for key, value in channels.items()}
    matrix = _mixing(mixing, values)
    check_steps(T, COPIES[targets] * max(value.size for value in values.values()))
    with np.errstate(over="ignore", invalid="ignore"):
        profile = make(steps=T, targets=targets, **values)
        cross, target = profile.cross, profile.target
    sizes = [np.abs(part).max(initial=0.0) for part in (profile.input, cross, target)]
    least = SMALLEST**2  # of second moments
    if not all(size == 0 or least < size < 1 / least for size in sizes):
        largest = (f"{key} {value.flat[np.abs(value).argmax()]:g}" for key, value in values.items())
        got = f"{T} steps with {', '.join(largest)}"
        raise InvalidSpec(f"the statistics must have sizes between {least:g} and {1 / least:g}, got {got}.")
    eye = np.eye(matrix.shape[1])
    return Task.trusted(
        _terms(profile.input, eye, eye), _terms(cross, eye, matrix), _terms(target, matrix, matrix), name=str(name)
    )


def _mixing(mixing: ArrayLike | None, values: Mapping[str, FloatArray]) -> FloatArray:
    sizes = [value.size for value in values.values() if value.ndim]
    matrix = np.eye(max(sizes, default=1)) if mixing is None else real_array("mixing", mixing, ndim=2)
    outputs, inputs = matrix.shape
    if 0 in matrix.shape:
        raise InvalidSpec(f"a task must have inputs and outputs, got {inputs} and {outputs}.", field="mixing")
    for key, value in values.items():
        if value.shape not in ((), (inputs,)):
            raise InvalidSpec(f"{key} must be one number or {inputs} (inputs), got shape {value.shape}.", field=key)
    return matrix


def _terms(time: FloatArray, left: FloatArray, right: FloatArray) -> Kronecker:
    """Cov = sum_i time_i x left e_i e_i^T right^T; equal channels share one term."""
    if time.ndim == 2:
        return Kronecker(time[None], (left @ right.T)[None])
    return Kronecker(time, np.einsum("ai,bi->iab", left, right))
