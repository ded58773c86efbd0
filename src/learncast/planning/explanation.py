"""Why a curriculum helps or hurts: the paper's three terms, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.validation import FloatArray


@dataclass(frozen=True)
class Explanation:
    """The three terms of the printed speedup, for the mode that is slowest to learn directly.

    Their sum times 1 / (2 learning_rate beta_yx) of the target is the printed speedup. They explain; they do not
    count: the sum equals the exact speedup only when both tasks are approached from below.

    Attributes
    ----------
    mode : int
    initial_scale : float
        ln|u2*/u0 - 1|: what direct training must cover from its small start.
    cross_ratio : float
        What the first task spends instead, weighed by beta_yx of the second over the first.
    closeness : float
        -ln|u2*/u1 - 1|: how near the first task's end u1 lies to the second's optimum; infinite on it.
    printed_speedup_steps : float
    sentence : str
    """

    mode: int
    initial_scale: float
    cross_ratio: float
    closeness: float
    printed_speedup_steps: float
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(self.__dict__)


def speedup_terms(
    start: Any, first: tuple[Any, Any], second: tuple[Any, Any], tolerance: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Three terms whose sum is 2 beta_yx(2) / gamma times the printed speedup.

    Implements: curriculum2025 Eq. (16)
    Implements: curriculum2025 Eq. (46), the same printed again

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


def closeness(first_optimum: Any, second_optimum: Any, tolerance: Any) -> FloatArray:
    """-ln|u2* / ((1 - eps) u1*) - 1|: infinite when the first task stops on the second's optimum.

    Implements: curriculum2025 Eq. (17)
    """
    u1, u2, eps = (np.asarray(v, dtype=float) for v in (first_optimum, second_optimum, tolerance))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.log(np.abs(u2 / ((1 - eps) * u1) - 1)))


def singular_accuracy(first_optimum: Any, second_optimum: Any) -> FloatArray:
    """Accuracy on the first task at which its end is the second's optimum, u2*/u1*; nan beyond (0, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(second_optimum, dtype=float) / np.asarray(first_optimum, dtype=float)
    return np.where((ratio > 0) & (ratio < 1), ratio, np.nan)


def explain(
    *,
    mode: int,
    start: float,
    end: float,
    first: tuple[float, float],
    second: tuple[float, float],
    tolerance: float,
    target_tolerance: float,
    learning_rate: float,
    names: tuple[str, str],
) -> Explanation:
    """Explain what one intermediate task does to one mode."""
    scale, crossing, near = (float(term) for term in speedup_terms(start, first, second, tolerance))
    with np.errstate(invalid="ignore", divide="ignore"):
        speedup = float(np.float64(scale + crossing + near) / (2 * learning_rate * second[0]))
    sentence = _sentence(end, first, second, target_tolerance, names)
    return Explanation(mode, scale, crossing, near, speedup, sentence)


def _sentence(
    end: float,
    first: tuple[float, float],
    second: tuple[float, float],
    target_tolerance: float,
    names: tuple[str, str],
) -> str:
    one, two = names
    if second[0] == 0 or second[1] == 0:
        return f"{two} asks nothing of this mode"
    ratio, best = first[0] / second[0], second[0] / second[1]
    if ratio <= 0:
        return f"{one} pulls this mode away from {two}"
    if abs(ratio - 1) < 1e-12:
        pace = f"{one} starts as fast as {two}"
    elif ratio > 1:
        pace = f"{one} starts {ratio:.3g} times faster than {two}"
    else:
        pace = f"{one} starts {1 / ratio:.3g} times slower than {two}"
    if abs(end - best) <= target_tolerance * abs(best) * (1 + 1e-9):
        place = f"and ends inside the tolerance of {two}, which then needs no training"
    elif abs(end) < abs(best):
        place = f"and ends at {end / best:.1%} of the way to {two}'s optimum"
    else:
        place = f"and overshoots to {end / best:.1%} of {two}'s optimum, which must be unlearned"
    return f"{pace} {place}"
