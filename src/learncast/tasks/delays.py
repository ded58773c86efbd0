"""Tasks that report inputs from several fixed lags, at every step of a trial.

Each task has a function that makes a `Task` with exact second-order statistics, and one that draws trials directly,
which needs memory for the trials only. The input is zero before a trial begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.task import Task, family

LAGS = (32, 64, 128, 192, 256)
COEFFICIENTS = (0.6, 0.5, 0.4, 0.32, 0.26)
NOISE_STRENGTH = 0.09  # variance: a standard deviation of 0.3


def random_direction(inputs: int, rng: np.random.Generator) -> FloatArray:
    """Draw a unit vector uniformly from the sphere.

    Parameters
    ----------
    inputs : int
        Number of components.
    rng : numpy.random.Generator

    Returns
    -------
    (inputs,) array
        Unit vector.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> float(np.linalg.norm(lc.tasks.random_direction(4, np.random.default_rng(0))).round(12))
    1.0
    """
    size = count("inputs", inputs)
    u = rng.standard_normal(size)
    return np.asarray(u / np.linalg.norm(u))


@family
def multi_lag(
    steps: int = 1024,
    direction: ArrayLike = 16,
    *,
    lags: Sequence[int] = LAGS,
    coefficients: ArrayLike = COEFFICIENTS,
    noise_strength: float = NOISE_STRENGTH,
    name: str = "multi-lag sum",
) -> Task:
    """Weighted sum of one input direction at several lags: y_t = sum_k c_k u.x_{t-lag_k} + noise, x white.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    direction : (inputs,) or int
        u, usually from `random_direction`. An integer is a number of inputs, with equal weights: learning is the same
        for every direction because the inputs are white.
    lags : sequence of int
        Distinct numbers of steps.
    coefficients : one per lag
        c_k.
    noise_strength : float
        Variance of the noise on each target, 0 or more.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.tasks.multi_lag(steps=16, direction=2, lags=(2, 4), coefficients=(0.6, 0.4))
    <Task 'multi-lag sum': 16 steps, 2 inputs, 1 output at every step; multi_lag family>
    """
    T, u, lags, c, variance = _checked(steps, direction, lags, coefficients, noise_strength)
    check_steps(T, COPIES["every_step"])
    delays = sum((weight * np.eye(T, k=-lag) for weight, lag in zip(c, lags, strict=True)), np.zeros((T, T)))
    return Task.trusted(
        Kronecker(np.eye(T)[None], np.eye(len(u))[None]),
        Kronecker(delays.T[None], u[None, :, None]),
        Kronecker((float(u @ u) * delays @ delays.T + variance * np.eye(T))[None], np.ones((1, 1, 1))),
        name=str(name),
    )


def multi_lag_trials(
    trials: int,
    rng: np.random.Generator,
    *,
    steps: int = 1024,
    direction: ArrayLike = 16,
    lags: Sequence[int] = LAGS,
    coefficients: ArrayLike = COEFFICIENTS,
    noise_strength: float = NOISE_STRENGTH,
) -> tuple[FloatArray, FloatArray]:
    """Draw trials of `multi_lag`: all inputs first, then the noise of all targets.

    Parameters
    ----------
    trials : int
    rng : numpy.random.Generator
    steps, direction, lags, coefficients, noise_strength
        See `multi_lag`.

    Returns
    -------
    inputs : (trials, steps, inputs)
    targets : (trials, steps, 1)

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs, targets = lc.tasks.multi_lag_trials(
    ...     10, np.random.default_rng(0), steps=16, direction=2, lags=(2, 4), coefficients=(0.6, 0.4)
    ... )
    >>> inputs.shape, targets.shape
    ((10, 16, 2), (10, 16, 1))
    """
    P = count("trials", trials)
    T, u, lags, c, variance = _checked(steps, direction, lags, coefficients, noise_strength)
    inputs = rng.standard_normal((P, T, len(u)))
    targets = np.sqrt(variance) * rng.standard_normal((P, T, 1))
    projected = inputs @ u
    for weight, lag in zip(c, lags, strict=True):
        targets[:, lag:, 0] += weight * projected[:, : T - lag]
    return inputs, targets


def _checked(
    steps: int, direction: ArrayLike, lags: Sequence[int], coefficients: ArrayLike, noise_strength: float
) -> tuple[int, FloatArray, list[int], FloatArray, float]:
    T = count("steps", steps)
    checked = [lag_within("lags", lag, T) for lag in lags]
    c = real_array("coefficients", coefficients, ndim=1)
    if not checked or len(set(checked)) != len(checked) or len(c) != len(checked):
        got = f"{checked} and {len(c)} coefficients"
        raise InvalidSpec(f"lags must be distinct, with one coefficient each, got {got}.", field="lags")
    if np.ndim(direction) == 0:
        size = count("direction", direction)
        u = np.full(size, size**-0.5)
    else:
        u = real_array("direction", direction, ndim=1)
    if not u.any():
        raise InvalidSpec(f"direction must not be zero, got {len(u)} zeros.", field="direction")
    return T, u, checked, c, between("noise_strength", noise_strength, 0.0, np.inf)


def lag_within(name: str, value: object, steps: int, *, least: int = 0) -> int:
    """Return `value` as a number of steps that is less than the steps of a trial."""
    lag = count(name, value, least=least)
    if lag >= steps:
        raise InvalidSpec(f"{name} must be less than the {steps} steps of a trial, got {lag}.", field=name)
    return lag
