"""The fastest path of one mode through a pool of tasks, switching freely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.dynamics import mode_equation
from learncast.errors import InvalidSpec
from learncast.validation import FloatArray, positive, real_array


@dataclass(frozen=True)
class Leg:
    """Training on one task of the pool from one strength to another."""

    task: int
    start: float
    end: float
    flow_steps: float


@dataclass(frozen=True)
class FastestPath:
    """The quickest order of tasks and switching points for one mode."""

    legs: tuple[Leg, ...]

    @property
    def flow_steps(self) -> float:
        """Total flow steps."""
        return float(sum(leg.flow_steps for leg in self.legs))


def fastest_path(
    cross: Any, power: Any, *, start: float, end: float, learning_rate: float, imbalance: float = 0.0
) -> FastestPath:
    """Train on whichever task of a pool moves the mode fastest, at every strength on the way.

    The speed du/dtau = S(u) (beta_k - u B_k) differs between tasks only by a straight line in u, so the fastest task is
    the upper envelope of these lines on the way up and the lower envelope on the way down: at most one leg per task,
    found by sorting the slopes (O(n log n)).

    Parameters
    ----------
    cross, power : (tasks,)
        Recurrence-weighted strengths beta_yx and beta_xx of each task on the mode.
    start, end : float
        Strengths to travel between.
    learning_rate : float
    imbalance : float
        a^2 - c^2.

    Returns
    -------
    FastestPath
        With an infinite last leg where no task leads on.
    """
    beta, B = real_array("cross", cross, ndim=1), real_array("power", power, ndim=1)
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if beta.shape != B.shape or not len(beta):
        raise InvalidSpec(
            required="cross and power must list the same tasks, at least one",
            got=f"{len(beta)} and {len(B)}",
            why="each task has one of each",
            remedy="match their lengths",
        )
    if start == end:
        return FastestPath(())
    up = 1.0 if end > start else -1.0
    # On the way down the quickest task has the lowest line; mirroring u makes it the highest.
    tasks, switches = _upper_envelope(up * beta, -B)
    low, high = sorted((up * start, up * end))
    legs, at = [], low
    for k, task in enumerate(tasks):
        stop = min(high, switches[k]) if k < len(switches) else high
        if stop > at:
            time = mode_equation.time_between(up * at, up * stop, imbalance, beta[task], B[task])
            legs.append(Leg(int(task), up * at, up * stop, float(time) / rate))
            at = stop
    return FastestPath(tuple(legs))


def _upper_envelope(height: FloatArray, slope: FloatArray) -> tuple[list[int], list[float]]:
    """Lines height + slope x that are highest somewhere, from left to right, and where they change over."""
    order = np.lexsort((height, slope))
    hull: list[int] = []
    cuts: list[float] = []
    for k in order:
        if hull and slope[hull[-1]] == slope[k]:  # parallel: the higher comes later in the order
            hull.pop()
            if cuts:
                cuts.pop()
        while hull:
            cut = (height[hull[-1]] - height[k]) / (slope[k] - slope[hull[-1]])
            if not cuts or cut > cuts[-1]:
                cuts.append(float(cut))
                break
            hull.pop()
            cuts.pop()
        hull.append(int(k))
    return hull, cuts
