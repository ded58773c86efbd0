"""The flow of one mode over many powers of ten of its time scale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from learncast._core.validation import FloatArray
from learncast.theory.dynamics.recurrent_mode import ModeTrajectory, mode_trajectory, polynomial_values, polynomials_of

#: Powers of ten of its time scale over which a mode is followed.
DECADES = 16
#: Relative change of every weight over a decade below which the mode is at rest.
SETTLED = 1e-9


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
