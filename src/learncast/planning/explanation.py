"""Why a curriculum helps or hurts: the three terms of the paper's speedup, with a sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.validation import FloatArray
from learncast.theory.dynamics.modes import Modes

Strengths = tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True)
class Explanation:
    """The three terms of the paper's speedup, for the mode that is slowest to learn directly.

    Their sum times 1 / (2 learning_rate beta_yx) of the target is the paper's speedup. It equals the exact speedup only
    if both tasks are approached from below.

    Attributes
    ----------
    mode : int
    initial_scale : float
        ln|u2*/u0 - 1|: distance that direct training covers from its small start.
    cross_ratio : float
        Distance that the first task covers, weighted by beta_yx of the second over the first.
    closeness : float
        -ln|u2*/u1 - 1|: how close the first task's end u1 is to the second's optimum; infinite on it.
    paper_speedup_steps : float
    sentence : str
    """

    mode: int
    initial_scale: float
    cross_ratio: float
    closeness: float
    paper_speedup_steps: float
    sentence: str


def speedup_terms(
    start: ArrayLike, first: Strengths, second: Strengths, tolerance: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Three terms whose sum is 2 beta_yx(2) / gamma times the paper's speedup.

    Implements: curriculum2025 Eq. (16)
    Implements: curriculum2025 Eq. (46), repeated in the appendix

    Parameters
    ----------
    start : array_like
        u_0.
    first, second : (beta_yx, beta_xx)
        Weighted strengths of the two tasks.
    tolerance : array_like
        eps of the first task.
    """
    u0, eps = np.asarray(start, dtype=float), np.asarray(tolerance, dtype=float)
    b1, B1, b2, B2 = (np.asarray(v, dtype=float) for v in (*first, *second))
    with np.errstate(divide="ignore", invalid="ignore"):
        u1, u2 = b1 / B1, b2 / B2
        initial_scale = np.log(np.abs(u2 / u0 - 1))
        cross_ratio = b2 / b1 * np.log(np.abs(eps * u0 / ((1 - eps) * (u1 - u0))))
    return initial_scale, cross_ratio, closeness(u1, u2, eps)


def closeness(first_optimum: ArrayLike, second_optimum: ArrayLike, tolerance: ArrayLike) -> FloatArray:
    """-ln|u2* / ((1 - eps) u1*) - 1|: infinite when the first task stops on the second's optimum.

    Implements: curriculum2025 Eq. (17)
    """
    u1, u2, eps = (np.asarray(v, dtype=float) for v in (first_optimum, second_optimum, tolerance))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.log(np.abs(u2 / ((1 - eps) * u1) - 1)))


def singular_accuracy(first_optimum: ArrayLike, second_optimum: ArrayLike) -> FloatArray:
    """Accuracy on the first task at which it ends on the second's optimum, u2*/u1*; nan outside (0, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(second_optimum, dtype=float) / np.asarray(first_optimum, dtype=float)
    return np.where((ratio > 0) & (ratio < 1), ratio, np.nan)


def explain(
    first: Modes, second: Modes, mode: int, end: FloatArray, accuracy: float, learning_rate: float
) -> Explanation:
    """Explain the effect of one intermediate task on one mode, given its strengths at the end and the goal after it."""
    one, two = ((float(m.weighted_cross[mode]), float(m.weighted_input[mode])) for m in (first, second))
    tolerance = 1 - first.accuracy(end)[mode]
    scale, crossing, near = (float(term) for term in speedup_terms(first.start[mode], one, two, tolerance))
    with np.errstate(invalid="ignore", divide="ignore"):
        speedup = float(np.float64(scale + crossing + near) / (2 * learning_rate * two[0]))
    sentence = _sentence(float(end[mode]), one, two, 1 - accuracy, (first.task.name, second.task.name))
    return Explanation(mode, scale, crossing, near, speedup, sentence)


def _sentence(
    end: float, first: tuple[float, float], second: tuple[float, float], target_tolerance: float, names: tuple[str, str]
) -> str:
    one, two = (f'"{name}"' for name in names)
    if second[0] == 0 or second[1] == 0:
        return f"{two} does not depend on this mode"
    ratio, best = first[0] / second[0], second[0] / second[1]
    if ratio <= 0:
        return f"{one} drives this mode away from {two}"
    if abs(ratio - 1) < 1e-12:
        pace = f"{one} starts as fast as {two}"
    elif ratio > 1:
        pace = f"{one} starts {ratio:.3g} times faster than {two}"
    else:
        pace = f"{one} starts {1 / ratio:.3g} times slower than {two}"
    if abs(end - best) <= target_tolerance * abs(best) * (1 + 1e-9):
        place = f"and ends within the tolerance of {two}, which then needs no training"
    elif abs(end) < abs(best):
        place = f"and ends at {end / best:.1%} of the way to the optimum of {two}"
    else:
        place = f"and overshoots to {end / best:.1%} of the optimum of {two}, which must be unlearned"
    return f"{pace} {place}"
