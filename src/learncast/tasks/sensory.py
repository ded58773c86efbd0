"""Sensory tasks: targets that weight a stream of evidence by its time.

Unless stated otherwise, inputs are white with variance 1 and the target is y = sum_t s_t x_t at the end of the trial,
so that Cov(y, x_t) = s_t and Var(y) = sum_t s_t^2. Steps are t = 1 ... T. The lag of step t is T - t, so that the last
input has lag 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, positive, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.delays import lag_within
from learncast.tasks.task import Task, family

__all__ = [
    "cosine", "evidence_delay", "impulse", "integrate", "late_pulse", "leaky",
    "linear_ramp", "mean_target", "noisy_constant", "primacy", "two_pulse", "weighted",
]  # fmt: skip


@family
def integrate(steps: int = 10, *, scale: float = 1.0, name: str = "integrate") -> Task:
    """Sum all evidence: s_t = scale.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    The best recurrence is 1, which forgets nothing:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.integrate(10))
    >>> round(best.recurrence, 6), best.stability
    (1.0, 'marginal')
    """
    return _white(steps, scale, name, lambda lags: np.ones(len(lags)))


@family
def mean_target(steps: int = 10, *, scale: float = 1.0, name: str = "mean target") -> Task:
    """Report the mean of the evidence: s_t = scale / steps.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    A sum with a smaller target strength:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.mean_target(10))
    >>> round(best.recurrence, 6), round(best.strength, 6)
    (1.0, 0.1)
    """
    return _white(steps, scale, name, lambda lags: np.full(len(lags), 1.0 / len(lags)))


@family
def noisy_constant(
    steps: int = 10, *, signal_variance: float = 1.0, noise_variance: float = 2.0, name: str = "noisy constant"
) -> Task:
    """Report a constant m that every input contains with independent noise: x_t = m + n_t, y = m.

    Cov(x_t, x_t') = signal_variance + noise_variance delta_tt', Cov(y, x_t) = Var(y) = signal_variance. The inputs do
    not determine m, so the least loss is above 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    signal_variance, noise_variance : float
        Variance of m over trials, and of the noise at each step.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    After four observations a third of the constant's variance is unknown:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.noisy_constant(4))
    >>> round(best.recurrence, 6), round(best.unexplained, 6)
    (1.0, 0.333333)
    """
    T = _steps(steps)
    signal = positive("signal_variance", signal_variance)
    noise = positive("noise_variance", noise_variance)
    return _task(name, signal * np.ones((T, T)) + noise * np.eye(T), np.full(T, signal), signal)


@family
def leaky(steps: int = 10, *, decay: float = 0.8, scale: float = 1.0, name: str = "leaky") -> Task:
    """Favour recent evidence: s_t = scale decay^(T - t).

    Parameters
    ----------
    steps : int
        Steps in a trial.
    decay : float
        Factor per step of lag; above 1 old evidence counts more, below 0 signs alternate.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    One mode with the task's decay solves it:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.leaky(10, decay=0.8))
    >>> round(best.recurrence, 6), round(best.unexplained, 6)
    (0.8, 0.0)
    """
    rate = _number("decay", decay)
    return _white(steps, scale, name, lambda lags: rate**lags)


@family
def primacy(steps: int = 10, *, decay: float = 0.8, scale: float = 1.0, name: str = "primacy") -> Task:
    """Favour early evidence: s_t = scale decay^(t - 1).

    Parameters
    ----------
    steps : int
        Steps in a trial.
    decay : float
        Factor per step from the first input on.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    The first input must grow until the end, so the best recurrence is unstable:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.primacy(10, decay=0.8))
    >>> round(best.recurrence, 6), best.stability
    (1.25, 'unstable')
    """
    rate = _number("decay", decay)
    return _white(steps, scale, name, lambda lags: rate ** lags[::-1])


@family
def evidence_delay(
    steps: int = 10, delay: int = 3, *, scale: float = 1.0, name: str = "evidence, delay, decide"
) -> Task:
    """Sum the evidence before a delay: s_t = scale for t <= T - delay, else 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    delay : int
        Number of steps at the end that do not count, less than `steps`.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    One mode cannot separate the delay from the evidence, and a seventh of the target's variance is lost:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> task = lc.tasks.sensory.evidence_delay(6, delay=2)
    >>> task.cross_covariance.dense().ravel()
    array([1., 1., 1., 1., 0., 0.])
    >>> round(best_mode(task).unexplained, 2)
    0.15
    """
    D = lag_within("delay", delay, _steps(steps))
    return _white(steps, scale, name, lambda lags: (lags >= D).astype(float))


@family
def cosine(steps: int = 10, *, period: float = 20.0, scale: float = 1.0, name: str = "cosine") -> Task:
    """Weight evidence by a cosine of its lag: s_t = scale cos(2 pi (T - t) / period).

    Parameters
    ----------
    steps : int
        Steps in a trial.
    period : float
        Steps after which the weights repeat.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    A real mode cannot oscillate: half of the target stays unexplained.

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.cosine(10))
    >>> round(best.recurrence, 2), round(best.unexplained, 2)
    (0.63, 0.5)
    """
    length = positive("period", period)
    return _white(steps, scale, name, lambda lags: np.cos(2 * np.pi * lags / length))


@family
def linear_ramp(steps: int = 10, *, rising: bool = True, scale: float = 1.0, name: str = "linear ramp") -> Task:
    """Weight evidence by a linear function of time: s_t = scale t / T, or scale (T - t + 1) / T if not `rising`.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    rising : bool
        Whether later evidence counts more.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    A decay approximates a rising ramp, a growing mode a falling one:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> for rising in (True, False):
    ...     best = best_mode(lc.tasks.sensory.linear_ramp(4, rising=rising))
    ...     print(round(best.recurrence, 2), round(best.unexplained, 3))
    0.68 0.005
    1.48 0.005
    """
    return _white(steps, scale, name, lambda lags: ((lags[::-1] if rising else lags) + 1) / len(lags))


@family
def late_pulse(steps: int = 10, background: float = 0.1, *, scale: float = 1.0, name: str = "late pulse") -> Task:
    """Count the last input fully and the earlier ones by a small weight: s_T = scale, s_t = scale background for t < T.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    background : float
        Weight of every earlier input relative to the last.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    The best network forgets the past if it counts little, and remembers it if it counts half:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> [round(best_mode(lc.tasks.sensory.late_pulse(10, background)).recurrence, 2) for background in (0.1, 0.5)]
    [0.13, 0.94]
    """
    eps = _number("background", background)
    return _white(steps, scale, name, lambda lags: np.where(lags == 0, 1.0, eps))


@family
def two_pulse(
    steps: int = 10, lag: int = 3, strength: float = 1.0, *, scale: float = 1.0, name: str = "two pulses"
) -> Task:
    """Count the last input and one earlier input: s_T = scale, s_{T-lag} = scale strength, else 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    lag : int
        Steps between the two inputs that count, 1 to steps - 1.
    strength : float
        Weight of the earlier input relative to the last.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    One mode that remembers the earlier input also remembers those between, so ignoring it is better:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> best = best_mode(lc.tasks.sensory.two_pulse(10, lag=3))
    >>> round(best.recurrence, 6), round(best.unexplained, 6)
    (0.0, 0.5)
    """
    m, r = lag_within("lag", lag, _steps(steps), least=1), _number("strength", strength)
    return _white(steps, scale, name, lambda lags: np.where(lags == 0, 1.0, np.where(lags == m, r, 0.0)))


@family
def impulse(steps: int = 10, lag: int = 0, *, scale: float = 1.0, name: str = "impulse") -> Task:
    """Report one single input: s_{T-lag} = scale, else 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    lag : int
        Lag of the input to report, 0 (the last) to steps - 1 (the first).
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    One mode cannot implement a pure delay:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> task = lc.tasks.sensory.impulse(4, lag=2)
    >>> task.cross_covariance.dense().ravel()
    array([0., 1., 0., 0.])
    >>> round(best_mode(task).unexplained, 2)
    0.72
    """
    m = lag_within("lag", lag, _steps(steps))
    return _white(steps, scale, name, lambda lags: (lags == m).astype(float))


@family
def weighted(steps: int, strengths: ArrayLike, *, scale: float = 1.0, name: str = "weighted") -> Task:
    """Weight evidence by given numbers: s_{T-k} = scale strengths[k], and 0 at larger lags.

    Parameters
    ----------
    steps : int
        Steps in a trial, at least as many as strengths.
    strengths : (lags,)
        Weight of the input k steps before the last.
    scale : float
        Factor on all target strengths.
    name : str
        Name of the task.

    Returns
    -------
    Task
        Exact statistics of the task.

    Examples
    --------
    Weights of a fitted filter, newest input first; one mode approximates them closely:

    >>> import learncast as lc
    >>> from learncast.theory import best_mode
    >>> task = lc.tasks.sensory.weighted(5, [1.0, 0.5, 0.25])
    >>> task.cross_covariance.dense().ravel()
    array([0.  , 0.  , 0.25, 0.5 , 1.  ])
    >>> best = best_mode(task)
    >>> round(best.recurrence, 2), round(best.unexplained, 2)
    (0.45, 0.01)
    """
    T, weights = _steps(steps), real_array("strengths", strengths, ndim=1)
    if not 1 <= len(weights) <= T:
        raise InvalidSpec(f"strengths must be 1 to {T} numbers, got {len(weights)}.", field="strengths")
    padded = np.concatenate([weights, np.zeros(T - len(weights))])
    return _white(steps, scale, name, lambda lags: padded[lags.astype(int)])


def _white(steps: int, scale: float, name: str, shape: Callable[[FloatArray], FloatArray]) -> Task:
    """Make a task with white inputs and target strengths that are a function of the lags, in time order."""
    T = _steps(steps)
    with np.errstate(over="ignore", invalid="ignore"):
        s = _number("scale", scale) * shape(np.arange(T - 1, -1, -1, dtype=np.float64))
        power = float(np.dot(s, s))
    if not np.isfinite(power):
        raise InvalidSpec(f"the target's variance overflows for {name} at {T} steps. Use fewer steps.", field="steps")
    return _task(name, np.eye(T), s, power)


def _task(name: str, inputs: FloatArray, cross: FloatArray, power: float) -> Task:
    one = np.ones((1, 1, 1))
    return Task.trusted(
        Kronecker(inputs[None], one), Kronecker(cross[None, :, None], one), Kronecker(power * one, one), name=str(name)
    )


def _steps(steps: int) -> int:
    T = count("steps", steps)
    check_steps(T, COPIES["end"])
    return T


def _number(name: str, value: float) -> float:
    return float(real_array(name, value, ndim=0))
