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

from learncast.errors import InvalidSpec
from learncast.tasks.covariance import Kronecker, check_room
from learncast.tasks.delays import lag_within
from learncast.tasks.task import Task, family
from learncast.validation import FloatArray, count, positive, real_array


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
    """
    return _white(steps, scale, name, lambda lags: np.ones(len(lags)))


@family
def mean_target(steps: int = 10, *, scale: float = 1.0, name: str = "mean target") -> Task:
    """Report the mean of the evidence: s_t = scale / steps. Parameters as for `integrate`."""
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
    """
    T = _steps(steps)
    signal = positive("signal_variance", signal_variance, why="a constant that never varies teaches nothing")
    noise = positive("noise_variance", noise_variance, why="without noise every input repeats the first")
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
    """
    rate = _number("decay", decay)
    return _white(steps, scale, name, lambda lags: rate**lags)


@family
def primacy(steps: int = 10, *, decay: float = 0.8, scale: float = 1.0, name: str = "primacy") -> Task:
    """Favour early evidence: s_t = scale decay^(t - 1). Parameters as for `leaky`."""
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
    """
    length = positive("period", period, why="the weights repeat after so many steps")
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
    """
    T, weights = _steps(steps), real_array("strengths", strengths, ndim=1)
    if not 1 <= len(weights) <= T:
        raise InvalidSpec(
            required=f"strengths must hold 1 to {T} numbers",
            got=f"{len(weights)}",
            why="a trial has no other inputs",
            remedy="lengthen the trial, or leave out what is older than it",
        )
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
            required="the target must have a finite variance",
            got=f"an overflow of {name} at {T} steps",
            why="it is beyond the range of floating point",
            remedy="shorten the trial or use smaller numbers",
        )
    return _task(name, np.eye(T), s, power)


def _task(name: str, inputs: FloatArray, cross: FloatArray, power: float) -> Task:
    one = np.ones((1, 1, 1))
    return Task.trusted(
        Kronecker(inputs[None], one), Kronecker(cross[None, :, None], one), Kronecker(power * one, one), name=str(name)
    )


def _steps(steps: Any) -> int:
    T = count("steps", steps, why="a trial has at least one step")
    check_room(T**2, "the time covariance", f"{T} steps", "use shorter trials or larger time steps")
    return T


def _number(name: str, value: Any) -> float:
    return float(real_array(name, value, ndim=0))
