"""How a network that starts across a task's modes sorts itself into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from learncast.dynamics.balanced.two_layer import checked_two_layer
from learncast.dynamics.solution import Solution
from learncast.errors import InvalidSpec
from learncast.trajectory import described
from learncast.validation import FloatArray, positive


def off_diagonal_strength(solution: Solution, times: Any) -> xr.Dataset:
    """Strength within and between the task's singular modes over training.

    Returns
    -------
    xarray.Dataset
        ``mode_map`` U^T W2 W1 V over (time, mode, mode_other); ``diagonal`` and ``off_diagonal``, the root-mean-square
        of its entries within and between modes.
    """
    exact = checked_two_layer(solution)
    trajectory = exact.at(times)
    U, V = exact.mode_vectors
    mode_map = np.einsum("mk,tmn,nl->tkl", U, trajectory["network_function"].values, V, optimize=True)
    k = mode_map.shape[-1]
    within = np.diagonal(mode_map, axis1=1, axis2=2)
    # Masking before squaring keeps a small coupling exact beside a large strength.
    between = np.where(np.eye(k, dtype=bool), 0.0, mode_map)
    return xr.Dataset(
        {
            "mode_map": (("time", "mode", "mode_other"), mode_map, described("map between singular modes", "1")),
            "diagonal": ("time", np.sqrt((within**2).mean(axis=1)), described("strength within modes", "1")),
            "off_diagonal": (
                "time",
                np.sqrt((between**2).sum(axis=(1, 2)) / max(k * (k - 1), 1)),
                described("strength between modes", "1"),
            ),
        },
        coords={"time": trajectory.time},
    )


def two_mode_coupling(
    time: Any, first: Any, second: Any, coupling: Any, strengths: tuple[Any, Any]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Exact course of two modes that start coupled: a_1, a_2 and b of A^T A = [[a_1, b], [b, a_2]].

    With x_i = exp(-2 s_i t), y_i = (1 - x_i) / s_i, d = a_1 a_2 - b^2 and
    D = x_1 x_2 + x_1 a_2 y_2 + x_2 a_1 y_1 + d y_1 y_2:
    a_1(t) = (x_2 a_1 + d y_2) / D, a_2(t) = (x_1 a_2 + d y_1) / D, b(t) = sqrt(x_1 x_2) b / D.

    Implements: braun2022 Eq. (14), solved for all times
    Implements: braun2022 Eq. (15), exactly; the print tends to s a_1 / (a_1 + a_2), which is right only for d = 0

    Parameters
    ----------
    time : array_like
        Flow time, steps x learning rate.
    first, second, coupling : array_like
        a_1, a_2 and b at time 0.
    strengths : (s_1, s_2)
        Singular values of the task.
    """
    t, a1, a2, b = (np.asarray(v, dtype=float) for v in (time, first, second, coupling))
    s1, s2 = (np.asarray(s, dtype=float) for s in strengths)
    x1, x2 = np.exp(-2 * s1 * t), np.exp(-2 * s2 * t)
    y1, y2 = (np.where(s == 0, 2 * t, -np.expm1(-2 * s * t) / np.where(s == 0, 1.0, s)) for s in (s1, s2))
    d = a1 * a2 - b**2
    D = x1 * x2 + x1 * a2 * y2 + x2 * a1 * y1 + d * y1 * y2
    return (x2 * a1 + d * y2) / D, (x1 * a2 + d * y1) / D, np.sqrt(x1 * x2) * b / D


def peak_time(first: float, second: float, coupling: float, strength: float) -> float:
    """Flow time at which the coupling of two modes of equal singular value is largest; nan when it only falls.

    t = 1/(4 s) ln[1 + s (s - a_1 - a_2) / (a_1 a_2 - b^2)], which exists for a_1 + a_2 < s. The printed time lacks
    the 1: it is the limit of small weights.
    """
    s = positive("strength", strength, why="a task's singular value is positive")
    d = first * second - coupling**2
    if d <= 0:
        raise InvalidSpec(
            required="the start must be positive definite, a_1 a_2 > b^2",
            got=f"a_1 a_2 - b^2 = {d:.3g}",
            why="A^T A is a Gram matrix",
            remedy="check the three numbers",
        )
    if first + second >= s:
        return float("nan")
    return float(np.log1p(s * (s - first - second) / d) / (4 * s))
