"""Two modes of a two-layer network that start coupled, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, positive


def two_mode_coupling(
    time: ArrayLike, first: ArrayLike, second: ArrayLike, coupling: ArrayLike, strengths: tuple[ArrayLike, ArrayLike]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the exact dynamics of two modes that start coupled: a_1, a_2 and b of A^T A = [[a_1, b], [b, a_2]].

    With x_i = exp(-2 s_i t), y_i = (1 - x_i) / s_i, d = a_1 a_2 - b^2 and
    D = x_1 x_2 + x_1 a_2 y_2 + x_2 a_1 y_1 + d y_1 y_2:
    a_1(t) = (x_2 a_1 + d y_2) / D, a_2(t) = (x_1 a_2 + d y_1) / D, b(t) = sqrt(x_1 x_2) b / D.

    Implements: braun2022 Eq. (14), solved for all times
    Implements: braun2022 Eq. (15), exactly; the published limit s a_1 / (a_1 + a_2) is right only for d = 0

    Parameters
    ----------
    time : array_like
        Flow time, steps x learning rate.
    first, second, coupling : array_like
        a_1, a_2 and b at time 0.
    strengths : (s_1, s_2)
        Singular values of the task.

    Returns
    -------
    a_1, a_2, b : array

    Examples
    --------
    >>> from learncast.theory import two_mode_coupling
    >>> [value.round(3).tolist() for value in two_mode_coupling([0.0, 1.0, 9.0], 0.1, 0.2, 0.05, (1.0, 1.0))]
    [[0.1, 0.431, 1.0], [0.2, 0.635, 1.0], [0.05, 0.102, 0.0]]
    """
    t, a1, a2, b = (np.asarray(v, dtype=float) for v in (time, first, second, coupling))
    s1, s2 = (np.asarray(s, dtype=float) for s in strengths)
    x1, x2 = np.exp(-2 * s1 * t), np.exp(-2 * s2 * t)
    y1, y2 = (np.where(s == 0, 2 * t, -np.expm1(-2 * s * t) / np.where(s == 0, 1.0, s)) for s in (s1, s2))
    d = a1 * a2 - b**2
    D = x1 * x2 + x1 * a2 * y2 + x2 * a1 * y1 + d * y1 * y2
    return (x2 * a1 + d * y2) / D, (x1 * a2 + d * y1) / D, np.sqrt(x1 * x2) * b / D


def peak_time(first: float, second: float, coupling: float, strength: float) -> float:
    """Return the flow time at which the coupling of two modes of equal singular value is largest; nan if it only falls.

    t = 1/(4 s) ln[1 + s (s - a_1 - a_2) / (a_1 a_2 - b^2)], which exists for a_1 + a_2 < s. The published time lacks
    the 1, as in the limit of small weights.

    Parameters
    ----------
    first, second, coupling : float
        a_1, a_2 and b at time 0.
    strength : float
        s.

    Returns
    -------
    float

    Examples
    --------
    >>> from learncast.theory import peak_time
    >>> round(peak_time(0.1, 0.2, 0.05, 1.0), 3)
    0.928
    """
    s = positive("strength", strength)
    d = first * second - coupling**2
    if d <= 0:
        raise InvalidSpec(f"The start must be positive definite, got a_1 a_2 - b^2 = {d:.3g}.", field="coupling")
    if first + second >= s:
        return float("nan")
    return float(np.log1p(s * (s - first - second) / d) / (4 * s))
