"""How one mode learns a series together with its recurrence, as far as it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicHermiteSpline

from learncast.assumptions import Assumption, stable_learning_rate
from learncast.dynamics.recurrent_mode import ModeTrajectory, mode_flow, mode_trajectory
from learncast.networks.linear_rnn import LinearRNN
from learncast.recurrence.order import ModeStart, half_loss_time
from learncast.recurrence.stability import largest_stable_rate
from learncast.validation import FloatArray
from learncast.web.rooms.recurrence_setting import RecurrenceState, fit_of, mode_series, start_of

#: Times at which learning is looked at, as shares of the last: evenly, and closer and closer towards the start, where
#: a mode that learns soon does all it does.
CLOCK = np.unique(np.concatenate([np.linspace(0.0, 1.0, 121), np.geomspace(1e-7, 1.0, 240)]))
#: Times at which an interval that holds the half-loss time is looked at again.
FINER = 17
#: Share of the level over which the loss is straight enough for a cubic: its error is of the fourth power.
STRAIGHT = 1e-2


@dataclass(frozen=True, eq=False)
class LearnedMode:
    """The learning of one mode, in flow time: gradient steps times learning rate.

    Attributes
    ----------
    series : tuple of float
        Strength by lag.
    start : ModeStart
    path : ModeTrajectory
        Weights and loss while the recurrence learns too.
    half, half_frozen : float
        Time to half of the first loss, with learned and with frozen recurrence: infinite for never, `nan` if not yet.
    """

    series: tuple[float, ...]
    start: ModeStart
    path: ModeTrajectory
    half: float
    half_frozen: float

    @property
    def share(self) -> FloatArray:
        """Loss over time as a share of the first."""
        return self.path.loss / self.path.loss[0]

    @property
    def last(self) -> ModeStart:
        """Weights at the last time shown that the integration reached."""
        n = int(np.flatnonzero(np.isfinite(self.path.loss))[-1])
        return ModeStart(float(self.path.input[n]), float(self.path.recurrence[n]), float(self.path.output[n]))


def learned_modes(state: RecurrenceState) -> tuple[LearnedMode, ...]:
    """The learning of every mode that asks for something; silent ones have nothing to learn."""
    span = state.steps * state.learning_rate
    return tuple(_learned(s, state.recurrence, state.initial, span) for s in mode_series(state) if any(s))


def rate_condition(modes: tuple[LearnedMode, ...], learning_rate: float) -> Assumption:
    """How near the learning rate comes to where descent leaves the flow, at the start and at the end shown."""
    sharpness = [
        largest_stable_rate(_network(weights), steps=len(mode.series)).sharpness
        for mode in modes
        for weights in (mode.start, mode.last)
    ]
    return stable_learning_rate(learning_rate, np.array(sharpness))


def _network(weights: ModeStart) -> LinearRNN:
    return LinearRNN(*(np.array([[weight]]) for weight in weights))


@lru_cache(maxsize=256)
def _learned(series: tuple[float, ...], recurrence: float, initial: float, span: float) -> LearnedMode:
    start = start_of(series, recurrence, initial)
    path = mode_trajectory(span * CLOCK, *start, series)
    frozen = half_loss_time(series, **start._asdict(), learn_recurrence=False)
    return LearnedMode(series, start, path, _half_time(series, path), float(frozen.steps))


def _half_time(series: tuple[float, ...], path: ModeTrajectory) -> float:
    """Time at which the loss is half of the first, within the times of a path.

    `learncast.recurrence.order.half_loss_time` follows a mode for as long as it takes, which can be seconds;
    within the path a few passes, each through the interval that the one before found, find the same number.
    """
    level = 0.5 * float(path.loss[0])
    if min(o.loss for o in fit_of(series).optima) >= level:
        return math.inf
    begun, times = 0.0, path.times
    while True:
        below = np.flatnonzero(path.loss <= level)
        if not len(below):
            return math.nan
        n = max(1, int(below[0]))
        gap = float(times[n] - times[n - 1])
        if path.loss[n - 1] - path.loss[n] <= STRAIGHT * level or gap <= 1e-12 * (begun + times[n]):
            return begun + _crossing(series, path, n, level)
        begun, times = begun + float(times[n - 1]), np.linspace(0.0, gap, FINER)
        path = mode_trajectory(times, path.input[n - 1], path.recurrence[n - 1], path.output[n - 1], series)


def _crossing(series: tuple[float, ...], path: ModeTrajectory, n: int, level: float) -> float:
    """Where a cubic through the losses before and at time n and their slopes, dE/dtau = -|flow|², meets a level."""
    pair = slice(n - 1, n + 1)
    flow = mode_flow(path.input[pair], path.recurrence[pair], path.output[pair], series)
    curve = CubicHermiteSpline(path.times[pair], path.loss[pair] - level, -np.sum(np.square(flow), axis=0))
    roots = curve.roots(extrapolate=False)
    return float(roots[0]) if len(roots) else float(path.times[n])
