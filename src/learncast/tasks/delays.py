"""Tasks that report inputs from several fixed lags, at every step of a trial.

Each exists as a `Task` (exact second-order statistics, in structured form) and as a function that draws its trials
directly, which costs no more than the trials themselves. Before a trial begins there is no input: a lag that reaches
further back contributes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, positive, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.task import Task, family

LAGS = (32, 64, 128, 192, 256)
COEFFICIENTS = (0.6, 0.5, 0.4, 0.32, 0.26)
NOISE_STRENGTH = 0.09  # variance: a standard deviation of 0.3
PERIODS = (20.0,)
SHORTER = "use shorter trials, or draw trials directly, without a Task"


def random_direction(inputs: int, rng: np.random.Generator) -> FloatArray:
    """A unit vector drawn evenly from the sphere.

    Parameters
    ----------
    inputs : int
        Components.
    rng : numpy.random.Generator

    Returns
    -------
    (inputs,) array
        Of length 1.

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
    direction: Any = 16,
    *,
    lags: Sequence[int] = LAGS,
    coefficients: Any = COEFFICIENTS,
    noise_strength: float = NOISE_STRENGTH,
    name: str = "multi-lag sum",
) -> Task:
    """Weighted sum of one input direction at several lags: y_t = sum_k c_k u.x_{t-lag_k} + noise, x white.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    direction : (inputs,) or int
        u, usually from `random_direction`. A number of inputs stands for the direction along which all are equal:
        white inputs look alike from every direction, so the statistics of learning are the same.
    lags : sequence of int
        Steps back, distinct.
    coefficients : one per lag
        c_k.
    noise_strength : float
        Variance of the noise on each target, 0 or more.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.tasks.multi_lag(steps=16, direction=2, lags=(2, 4), coefficients=(0.6, 0.4))
    <Task 'multi-lag sum': 16 steps, 2 inputs, 1 output at every step; multi_lag family>
    """
    T, u, ages, c, variance = _checked(steps, direction, lags, coefficients, noise_strength)
    check_steps(T, COPIES["every_step"], SHORTER)
    delays = sum((weight * np.eye(T, k=-age) for weight, age in zip(c, ages, strict=True)), np.zeros((T, T)))
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
    direction: Any = 16,
    lags: Sequence[int] = LAGS,
    coefficients: Any = COEFFICIENTS,
    noise_strength: float = NOISE_STRENGTH,
) -> tuple[FloatArray, FloatArray]:
    """Draw trials of `multi_lag`: all inputs first, then the noise of all targets.

    Parameters
    ----------
    trials : int
    rng : numpy.random.Generator
    steps, direction, lags, coefficients, noise_strength
        As for `multi_lag`.

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
    number = count("trials", trials)
    T, u, ages, c, variance = _checked(steps, direction, lags, coefficients, noise_strength)
    inputs = rng.standard_normal((number, T, len(u)))
    targets = np.sqrt(variance) * rng.standard_normal((number, T, 1))
    seen = inputs @ u
    for weight, age in zip(c, ages, strict=True):
        targets[:, age:, 0] += weight * seen[:, : T - age]
    return inputs, targets


@family
def sinusoidal_delay(
    steps: int = 256,
    delay: int = 32,
    *,
    periods: Any = PERIODS,
    weights: Any = None,
    noise_strength: float = 0.01,
    name: str = "sinusoidal delay",
) -> Task:
    """Report, after a delay, a sum of sine waves that are seen in noise: y_t = sum_i w_i s_i(t - delay).

    One input per period, x_i(t) = s_i(t) + noise with s_i(t) = sqrt(2) sin(2 pi t / period_i + phase), the phase
    drawn evenly anew for each wave and trial: Cov(s_i(t), s_i(t')) = cos(2 pi (t - t') / period_i). The statistics are
    exact; `Task.sample` draws a Gaussian process that has them, `sinusoidal_delay_trials` the waves themselves.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    delay : int
        Steps by which the target lags behind, less than `steps`.
    periods : one per input
        In steps.
    weights : one per input, optional
        w_i; equal and of unit norm by default.
    noise_strength : float
        Variance of the white noise on each input, 0 or more.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.tasks.sinusoidal_delay(steps=24, delay=4)
    <Task 'sinusoidal delay': 24 steps, 1 input, 1 output at every step; sinusoidal_delay family>
    """
    T, age, omega, w, variance = _checked_waves(steps, delay, periods, weights, noise_strength)
    check_steps(T, COPIES["every_step"] * len(w), SHORTER)
    gaps = np.subtract.outer(np.arange(T), np.arange(T))
    waves = np.cos(omega[:, None, None] * gaps)
    shown = np.eye(T, k=-age)  # row r picks step r - delay
    every = np.eye(len(w))
    return Task.trusted(
        Kronecker(waves + variance * np.eye(T), every[:, :, None] * every[:, None, :]),
        Kronecker(waves @ shown.T, (every * w)[:, :, None]),
        Kronecker((shown @ np.tensordot(w**2, waves, axes=1) @ shown.T)[None], np.ones((1, 1, 1))),
        name=str(name),
    )


def sinusoidal_delay_trials(
    trials: int,
    rng: np.random.Generator,
    *,
    steps: int = 256,
    delay: int = 32,
    periods: Any = PERIODS,
    weights: Any = None,
    noise_strength: float = 0.01,
) -> tuple[FloatArray, FloatArray]:
    """Draw sine waves with random phases, all phases first: the trials of `sinusoidal_delay`, which are not Gaussian.

    Parameters
    ----------
    trials : int
    rng : numpy.random.Generator
    steps, delay, periods, weights, noise_strength
        As for `sinusoidal_delay`.

    Returns
    -------
    inputs : (trials, steps, inputs)
    targets : (trials, steps, 1)

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs, targets = lc.tasks.sinusoidal_delay_trials(5, np.random.default_rng(0), steps=24, delay=4)
    >>> inputs.shape, targets.shape
    ((5, 24, 1), (5, 24, 1))
    """
    number = count("trials", trials)
    T, age, omega, w, variance = _checked_waves(steps, delay, periods, weights, noise_strength)
    phases = rng.uniform(0.0, 2 * np.pi, size=(number, 1, len(w)))
    waves = np.sqrt(2) * np.sin(np.arange(T)[:, None] * omega + phases)
    targets = np.zeros((number, T, 1))
    targets[:, age:, 0] = waves[:, : T - age] @ w
    return waves + np.sqrt(variance) * rng.standard_normal(waves.shape), targets


def _checked(
    steps: Any, direction: Any, lags: Any, coefficients: Any, noise_strength: Any
) -> tuple[int, FloatArray, tuple[int, ...], FloatArray, float]:
    T = count("steps", steps)
    ages = tuple(lag_within("lags", age, T) for age in lags)
    c = real_array("coefficients", coefficients, ndim=1)
    if not ages or len(set(ages)) != len(ages) or len(c) != len(ages):
        raise InvalidSpec(
            f"lags must be distinct, with one coefficient each, got lags {ages} and {len(c)} coefficients.",
            field="lags",
        )
    return T, _direction(direction), ages, c, _variance(noise_strength)


def _direction(direction: Any) -> FloatArray:
    if np.ndim(direction) == 0:
        size = count("direction", direction)
        return np.full(size, size**-0.5)
    u = real_array("direction", direction, ndim=1)
    if not u.any():
        raise InvalidSpec(f"direction must not be zero, got {len(u)} zeros.", field="direction")
    return u


def _checked_waves(
    steps: Any, delay: Any, periods: Any, weights: Any, noise_strength: Any
) -> tuple[int, int, FloatArray, FloatArray, float]:
    lengths = np.atleast_1d(real_array("periods", periods, ndim=(0, 1)))
    for length in lengths:
        positive("periods", length)
    w = np.full(len(lengths), len(lengths) ** -0.5) if weights is None else real_array("weights", weights, ndim=1)
    if not len(w) or len(w) != len(lengths):
        raise InvalidSpec(
            f"weights must have one number for each period, got {len(w)} for {len(lengths)} periods. Give two "
            "lists of one length, or leave weights out.",
            field="weights",
        )
    T = count("steps", steps)
    return T, lag_within("delay", delay, T), 2 * np.pi / lengths, w, _variance(noise_strength)


def _variance(noise_strength: Any) -> float:
    variance = float(real_array("noise_strength", noise_strength, ndim=0))
    return variance if variance == 0 else positive("noise_strength", variance)


def lag_within(name: str, value: Any, steps: int, *, least: int = 0) -> int:
    """Validate a number of steps back, less than a trial has."""
    lag = count(name, value, least=least)
    if lag >= steps:
        raise InvalidSpec(f"{name} must be less than the {steps} steps of a trial, got {lag}.", field=name)
    return lag
