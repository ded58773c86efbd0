"""Sensory tasks: targets that weigh a stream of evidence by when it came.

Unless a family says otherwise, inputs are white with variance 1 and the target is y = sum_t s_t x_t at the end of the
trial, so that Cov(y, x_t) = s_t and Var(y) = sum_t s_t^2 exactly. Steps are counted t = 1 ... T; the lag of step t is
T - t, so that the last input has lag 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, positive, real_array
from learncast.tasks.covariance import COPIES, Kronecker, check_steps
from learncast.tasks.delays import lag_within
from learncast.tasks.task import Task, family

__all__ = [
    "cosine", "drawn", "evidence_delay", "impulse", "integrate", "late_pulse",
    "leaky", "linear_ramp", "mean_target", "noisy_constant", "primacy", "two_pulse",
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
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    A recurrence of 1 forgets nothing:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    The same as the sum, asked for more quietly:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> best = best_mode(lc.tasks.sensory.mean_target(10))
    >>> round(best.recurrence, 6), round(best.strength, 6)
    (1.0, 0.1)
    """
    return _white(steps, scale, name, lambda lags: np.full(len(lags), 1.0 / len(lags)))


@family
def noisy_constant(
    steps: int = 10, *, signal_variance: float = 1.0, noise_variance: float = 2.0, name: str = "noisy constant"
) -> Task:
    """Report a constant m that every input shows with fresh noise: x_t = m + n_t, y = m.

    Cov(x_t, x_t') = signal_variance + noise_variance delta_tt', Cov(y, x_t) = Var(y) = signal_variance. The inputs
    never tell m for certain, so the least loss is above 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    signal_variance, noise_variance : float
        Variance of m over trials, and of the noise at each step.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    With four looks at it a third of the constant's variance stays unknown:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
        Factor per step of age; beyond 1 old evidence counts more, below 0 signs alternate.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    A mode that forgets as the task does is all it takes:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    What comes first must grow until the end: the best recurrence is unstable.

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
    """Sum the evidence that comes before a delay: s_t = scale for t <= T - delay, else 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    delay : int
        Steps at the end that do not count, fewer than all.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    One mode cannot tell the delay from the evidence, and a seventh of the target is lost:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
    """Weigh evidence by a wave over its age: s_t = scale cos(2 pi (T - t) / period).

    Parameters
    ----------
    steps : int
        Steps in a trial.
    period : float
        Steps after which the weights repeat.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    A real mode decays and cannot swing: half of the target stays unexplained.

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> best = best_mode(lc.tasks.sensory.cosine(10))
    >>> round(best.recurrence, 2), round(best.unexplained, 2)
    (0.63, 0.5)
    """
    length = positive("period", period)
    return _white(steps, scale, name, lambda lags: np.cos(2 * np.pi * lags / length))


@family
def linear_ramp(steps: int = 10, *, rising: bool = True, scale: float = 1.0, name: str = "linear ramp") -> Task:
    """Weigh evidence by a straight line over time: s_t = scale t / T, or scale (T - t + 1) / T if it falls.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    rising : bool
        Whether later evidence counts more.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    A decay is nearly a ramp; upside down it is one that grows.

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> for rising in (True, False):
    ...     best = best_mode(lc.tasks.sensory.linear_ramp(4, rising=rising))
    ...     print(round(best.recurrence, 2), round(best.unexplained, 3))
    0.68 0.005
    1.48 0.005
    """
    return _white(steps, scale, name, lambda lags: ((lags[::-1] if rising else lags) + 1) / len(lags))


@family
def late_pulse(steps: int = 10, background: float = 0.1, *, scale: float = 1.0, name: str = "late pulse") -> Task:
    """Count the last input fully and all before it a little: s_T = scale, s_t = scale background for t < T.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    background : float
        Weight of every earlier input in units of the last one's.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    Where the past counts little the best network forgets it; where it counts half, it remembers:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> [round(best_mode(lc.tasks.sensory.late_pulse(10, background)).recurrence, 2) for background in (0.1, 0.5)]
    [0.13, 0.94]
    """
    eps = _number("background", background)
    return _white(steps, scale, name, lambda lags: np.where(lags == 0, 1.0, eps))


@family
def two_pulse(
    steps: int = 10, lag: int = 3, strength: float = 1.0, *, scale: float = 1.0, name: str = "two pulses"
) -> Task:
    """Count the last input and one before it: s_T = scale, s_{T-lag} = scale strength, else 0.

    Parameters
    ----------
    steps : int
        Steps in a trial.
    lag : int
        Steps between the two inputs that count, 1 to steps - 1.
    strength : float
        Weight of the earlier one in units of the last one's.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    To remember the earlier input is to remember those between: one mode does better to ignore it.

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
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
        Age of the input to report, 0 (the last) to steps - 1 (the first).
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    A delay by itself is no task for one mode:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> task = lc.tasks.sensory.impulse(4, lag=2)
    >>> task.cross_covariance.dense().ravel()
    array([0., 1., 0., 0.])
    >>> round(best_mode(task).unexplained, 2)
    0.72
    """
    m = lag_within("lag", lag, _steps(steps))
    return _white(steps, scale, name, lambda lags: (lags == m).astype(float))


@family
def drawn(steps: int, strengths: ArrayLike, *, scale: float = 1.0, name: str = "drawn") -> Task:
    """Weigh evidence as given: s_{T-k} = scale strengths[k], and 0 for what is older.

    Parameters
    ----------
    steps : int
        Steps in a trial, at least as many as strengths.
    strengths : (lags,)
        Weight of the input k steps before the last.
    scale : float
        Factor on all target strengths.
    name : str
        What to call the task.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    Weights of a filter that was fitted elsewhere, newest first; one mode comes close to them:

    >>> import learncast as lc
    >>> from learncast.theory.recurrence.stability import best_mode
    >>> task = lc.tasks.sensory.drawn(5, [1.0, 0.5, 0.25])
    >>> task.cross_covariance.dense().ravel()
    array([0.  , 0.  , 0.25, 0.5 , 1.  ])
    >>> best = best_mode(task)
    >>> round(best.recurrence, 2), round(best.unexplained, 2)
    (0.45, 0.01)
    """
    T, weights = _steps(steps), real_array("strengths", strengths, ndim=1)
    if not 1 <= len(weights) <= T:
        raise InvalidSpec(f"strengths must hold 1 to {T} numbers, got {len(weights)}.", field="strengths")
    padded = np.concatenate([weights, np.zeros(T - len(weights))])
    return _white(steps, scale, name, lambda lags: padded[lags.astype(int)])


def _white(steps: Any, scale: Any, name: str, shape: Callable[[FloatArray], FloatArray]) -> Task:
    """Make a task of white inputs from its strengths, given as a function of the lags in time order."""
    T = _steps(steps)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported below, in words
        s = _number("scale", scale) * shape(np.arange(T - 1, -1, -1, dtype=np.float64))
        power = float(np.dot(s, s))
    if not np.isfinite(power):
        raise InvalidSpec(
            f"the target must have a finite variance, got an overflow of {name} at {T} steps. Shorten the "
            "trial or use smaller numbers."
        )
    return _task(name, np.eye(T), s, power)


def _task(name: str, inputs: FloatArray, cross: FloatArray, power: float) -> Task:
    one = np.ones((1, 1, 1))
    return Task.trusted(
        Kronecker(inputs[None], one), Kronecker(cross[None, :, None], one), Kronecker(power * one, one), name=str(name)
    )


def _steps(steps: Any) -> int:
    T = count("steps", steps)
    check_steps(T, COPIES["end"])
    return T


def _number(name: str, value: Any) -> float:
    return float(real_array(name, value, ndim=0))
