"""Strides: one evaluation that replaces many steps of gradient descent, to count thousands of steps quickly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.progress import check_time
from learncast._core.validation import FloatArray

__all__: list[str] = []  # internal

#: Stability limits of a stride: steps x learning rate x curvature, and steps x learning rate x growth rate.
STIFF, GROWTH = 1.8, 0.4
#: Error allowed over an entire descent: as a share of one step if steps are counted, and of the weights if weights are
#: returned. A stride of h growth times errs by about h^4 growth times. A growth time is 1 / (learning rate x growth).
STEP_ERROR, WEIGHT_ERROR = 0.05, 1e-8
#: Error, as a share of one step, of a count in strides of the second kind. Goals closer to a step are counted in steps.
PRECISE_STEP_ERROR = 0.002
#: Longest descents that are counted again if in doubt; an error of one step in longer ones does not matter.
MOST_RECOUNTED = 1_000_000
#: Largest number of moves, strides or single steps, in a count.
MOST_MOVES = 1_000_000
#: Largest number of strides, each of which takes as long as many single steps in floats.
MOST_STRIDES = 100_000
#: Largest number of moves at a learning rate at which the loss may rise.
MOST_UNSETTLED = 40_000
#: Shortest stride: four gradients replace fewer steps without gain.
LEAST = 8
#: Length at which the bisection of a stride changes to single steps.
SINGLE = 64
#: Single steps before the first stride, for up to `FEW` descents and for more.
FIRST_STEPS = {"few": 1024, "many": 256}
FEW = 4
#: Single steps between two checks of the goal, and those without strides in Python floats.
BLOCK, LONG_BLOCK = 64, 512
#: Largest states (in numbers) whose single steps are faster in Python floats: a numpy call costs a hundred products.
SMALL = 32
#: Steps x numbers in Python floats that take as long as one stride.
FLOAT_STEPS = 500
#: Learning rate x curvature up to which the loss falls at every step. (Convergence needs 2.)
SURE = 1.5
#: Ratio of the initial loss to the baseline loss above which descent mostly unlearns.
UNLEARNED = 4.0
#: Growth factor of the weights at which descent counts as diverged.
RUNAWAY = 1e8

Rows = NDArray[np.intp]
#: Minus the gradient, given states (rows, ...) and row numbers.
Slope = Callable[[FloatArray, Rows], FloatArray]
#: States after each of several increasing numbers of single steps.
SingleSteps = Callable[[FloatArray, Rows, Sequence[int]], list[FloatArray]]

#: Diverging weights overflow; the caller detects that by their size.
_overflowing = np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True)
class Stride:
    """Four gradients that replace m steps of descent, to fourth order in m x learning rate.

    The order conditions are those of a Runge-Kutta method with the integrals replaced by sums over the m steps:
    sum b c = sum_{i<m} i / m^2 and so on. For large m they are the classical conditions.

    Attributes
    ----------
    steps : int
        m.
    inner : (4, 4)
        Runge-Kutta matrix a.
    outer : (4,)
        Runge-Kutta weights b.
    """

    steps: int
    inner: FloatArray
    outer: FloatArray

    def apply(self, slope: Slope, states: FloatArray, rows: Rows, learning_rate: float) -> FloatArray:
        """Return the states after the stride."""
        reach, slopes = self.steps * learning_rate, np.empty((4, states.size))
        for k, weights in enumerate(reach * self.inner):
            at = states if k == 0 else states + (weights[:k] @ slopes[:k]).reshape(states.shape)
            slopes[k] = slope(at, rows).ravel()
        return np.asarray(states + (reach * self.outer @ slopes).reshape(states.shape))


@lru_cache(maxsize=4096)
def stride_of(steps: int) -> Stride:
    """Solve the order conditions of a stride."""
    m = float(steps)
    F1, F2, F3 = m * (m - 1) / 2, (m - 1) * m * (2 * m - 1) / 6, (m * (m - 1) / 2) ** 2
    single = np.array([1.0, F1 / m**2, F2 / m**3, F3 / m**4])  # sums of b, b c, b c^2, b c^3
    double = np.array([math.comb(steps, 3) / m**3, (F3 - F2) / (2 * m**4)])  # of b (a c), b c (a c)
    squared = (2 * F3 - 3 * F2 + F1) / (6 * m**4)  # of b (a c^2)
    triple = math.comb(steps, 4) / m**4  # of b (a (a c))

    def solve(last: float) -> tuple[float, FloatArray, FloatArray]:
        c = np.array([0.0, 1 / 3, 2 / 3, last])
        b = np.linalg.solve(np.vander(c, 4, increasing=True).T, single)
        through = np.linalg.solve(np.array([b[2:], b[2:] * c[2:]]), double)  # (a c) of the third and fourth
        a = np.zeros((4, 4))
        a[1, 0], a[2, 1] = c[1], through[0] / c[1]
        a[3, 2] = triple / (b[3] * through[0])
        a[3, 1] = (through[1] - a[3, 2] * c[2]) / c[1]
        a[2, 0], a[3, 0] = c[2] - a[2, 1], c[3] - a[3, 1] - a[3, 2]
        return float(b @ (a @ c**2)) - squared, a, b

    # The position of the last gradient is the remaining unknown; it tends to 1, the end of the stride.
    ends = np.linspace(0.7, 1.05, 36)
    misses = [solve(float(end))[0] for end in ends]
    k = max(k for k, (miss, following) in enumerate(pairwise(misses)) if miss * following <= 0)
    last = scipy.optimize.brentq(lambda end: solve(end)[0], ends[k], ends[k + 1], xtol=1e-15)
    return Stride(steps, *solve(float(last))[1:])


def _first_strides(longest: int) -> list[int]:
    """Return the shorter strides to begin with: fast changes occur at the start."""
    return [longest // share for share in (8, 8, 4, 4, 2, 2) if longest // share >= LEAST]


def _split(steps: int, longest: int, single: int, *, begun: bool) -> list[int]:
    """Split a number of steps into `single` single steps and strides; `begun` omits the shorter first strides."""
    if longest < LEAST:
        return [1] * steps
    single = min(steps, single)
    first = [] if begun and not single else _first_strides(longest)
    lengths, left = [1] * single, steps - single
    for stride in first:
        if left >= stride:
            lengths.append(stride)
            left -= stride
    if left // longest > 100 * MOST_MOVES:
        raise InvalidSpec(f"learning_rate must be larger, got descents of {steps:.3g} steps.", field="learning_rate")
    lengths += [longest] * (left // longest)
    left %= longest
    return [*lengths, left] if left >= LEAST else lengths + [1] * left


@dataclass(frozen=True, eq=False)
class Descents:
    """Gradient descents in parallel, one per row of states (rows, ...).

    Attributes
    ----------
    slope : callable
        Minus the gradient of each row's loss.
    reached : callable
        Whether each row has reached its goal.
    curvature : float
        Largest curvature of the loss along the way.
    growth : float
        Largest rate at which weights grow away from a saddle.
    learning_rate : float
    single_steps : callable, optional
        Implementation of single steps in Python floats, faster for small states.
    size : float
        Size of the weights at the goal: much larger weights have diverged.
    curvatures : (rows,), optional
        Largest curvature of each row, to tell those whose loss may rise.
    """

    slope: Slope
    reached: Callable[[FloatArray, Rows], NDArray[np.bool_]]
    curvature: float
    growth: float
    learning_rate: float
    single_steps: SingleSteps | None = None
    size: float = 0.0
    curvatures: FloatArray | None = None

    def longest(self, *, precise: bool = False) -> int:
        """Largest number of steps per stride: to count steps or, if precise, to compute weights."""
        # Errors in stiff directions decay, so there a stride must only be stable. Growth limits its accuracy.
        stiff, growth = self.learning_rate * self.curvature, self.learning_rate * self.growth
        steps = STIFF / stiff if stiff > 0 else math.inf
        if growth > 0:
            error = WEIGHT_ERROR if precise else STEP_ERROR * growth
            steps = min(steps, min(GROWTH, error**0.25) / growth)
        return int(min(steps, 1e6)) if steps >= LEAST else 1

    def most_counted(self, states: FloatArray, most: int, moves: int = MOST_MOVES) -> int:
        """Largest number of steps that are counted: single steps take too long to count as many as strides do."""
        if not self.falls:
            moves = min(moves, MOST_UNSETTLED)
        length = self._stride_length(states)
        return min(most, (min(moves, MOST_STRIDES) if length > 1 else moves) * length)

    def _stride_length(self, states: FloatArray, *, precise: bool = False) -> int:
        steps = self.longest(precise=precise)
        return 1 if self._in_floats(states) and steps < FLOAT_STEPS // max(states.size, 1) else steps

    def _in_floats(self, states: FloatArray) -> bool:
        return self.single_steps is not None and states.size <= SMALL

    @property
    def falls(self) -> bool:
        """Whether the loss falls at every step, so that a goal once reached stays reached."""
        return self.learning_rate * self.curvature < SURE

    def _rising(self, rows: Rows) -> Rows:
        """Places of the rows whose loss may rise, so that a goal once reached may be left again."""
        if self.falls or self.curvatures is None:
            return np.arange(0 if self.falls else len(rows))
        return np.flatnonzero(self.learning_rate * self.curvatures[rows] >= SURE)

    def _move(self, states: FloatArray, rows: Rows, steps: int) -> FloatArray:
        if steps == 1:
            moved = self.slope(states, rows)
            moved *= self.learning_rate
            moved += states
            return moved
        return stride_of(steps).apply(self.slope, states, rows, self.learning_rate)

    def _step(self, states: FloatArray, rows: Rows, steps: Sequence[int]) -> list[FloatArray]:
        """Return the states after each of several increasing numbers of single steps."""
        if self.single_steps is not None and states.size <= SMALL:
            return self.single_steps(states, rows, steps)
        results = []
        for before, after in pairwise((0, *steps)):
            for _ in range(after - before):
                states = self._move(states, rows, 1)
            results.append(states)
        return results

    @_overflowing
    def states_after(self, states: FloatArray, stops: Sequence[int], *, precise: bool = True) -> list[FloatArray]:
        """Return the states after each of several increasing numbers of steps; within about a step if not precise."""
        rows, longest = np.arange(len(states)), self._stride_length(states, precise=precise)
        single = _single_steps_first(len(states)) if longest >= LEAST else max(stops, default=0)
        results, done = [], 0
        for stop in stops:
            for length, group in groupby(_split(stop - done, longest, max(single - done, 0), begun=done > single)):
                number = len(list(group))
                for first in range(0, number, LONG_BLOCK):
                    check_time()
                    block = min(LONG_BLOCK, number - first)
                    if length == 1:
                        (states,) = self._step(states, rows, [block])
                    else:
                        for _ in range(block):
                            states = self._move(states, rows, length)
            results.append(states)
            done = stop
        return results

    @_overflowing
    def steps_to_goal(self, states: FloatArray, most: int, *, precise: bool = True) -> tuple[FloatArray, FloatArray]:
        """Count the steps until each row reaches its goal; return the counts and the final states.

        A count is infinite if the descent diverges or stops elsewhere, and nan if `most` steps are not enough. If not
        precise, it may be off by about one step. The first steps are single. Strides follow up to the one in which the
        goal is reached, which is bisected. If a goal lies so close to a step that strides may have missed it, the row
        is counted again in shorter strides and finally in single steps.
        """
        counts = np.full(len(states), np.nan), states.copy()
        rows, most = np.arange(len(states)), self.most_counted(states, most)
        shorter = ((self._stride_length(states, precise=True), PRECISE_STEP_ERROR), (1, 0.0)) if precise else ()
        for longest, error in ((self._stride_length(states), STEP_ERROR), *shorter):
            rows = self._count(states, rows, most, longest, error, counts)
            rows = rows[counts[0][rows] <= MOST_RECOUNTED]
            if not len(rows):
                break
        return counts

    def _count(
        self,
        start: FloatArray,
        rows: Rows,
        most: int,
        longest: int,
        error: float,
        counts: tuple[FloatArray, FloatArray],
    ) -> Rows:
        """Fill in steps and final states of some rows, in strides of at most `longest`; return the rows in doubt."""
        (steps, ends), states = counts, start[rows]
        limit = RUNAWAY * float(np.abs(states).max(initial=self.size))
        strided = longest >= LEAST
        taken, single = 0, _single_steps_first(len(start)) if strided else most
        first_strides = _first_strides(longest)
        last_strides: dict[int, list[tuple[Rows, FloatArray, int]]] = {}
        inside = self.reached(states, rows)
        steps[rows[inside]] = 0.0
        rows, states = rows[~inside], states[~inside]
        block, longest_block = 4, LONG_BLOCK if not strided and self._in_floats(states) else BLOCK
        while len(rows) and taken < most:
            check_time()
            if taken < single:
                block = min(2 * block, longest_block, single - taken, most - taken)
                length, strides = block, [1] * block
            else:
                length = min(first_strides.pop(0) if first_strides else longest, most - taken)
                strides = [length] if length >= LEAST else [1] * length
            before, passed, rising = states, np.zeros(len(rows), dtype=bool), self._rising(rows)
            if not len(rising) and taken < single:
                last, states = self._step(states, rows, (length - 1, length))
            else:
                watched = rows[rising]
                for stride in strides:
                    last, states = states, self._move(states, rows, stride)
                    if len(rising):
                        passed[rising] |= self.reached(states[rising], watched)
            diverged = ~(np.abs(states).reshape(len(rows), -1).max(axis=1) < limit)
            inside = (self.reached(states, rows) | passed) & ~diverged
            resting = (states == last).reshape(len(rows), -1).all(axis=1) & ~inside
            going = ~(diverged | inside | resting)
            if not going.all():
                never = diverged | resting
                steps[rows[never]], ends[rows[never]] = np.inf, states[never]
                if inside.any():
                    last_strides.setdefault(length, []).append((rows[inside], before[inside], taken))
                rows, states = rows[going], states[going]
            taken += length
        steps[rows], ends[rows] = np.nan, states
        switch = SINGLE if strided else LONG_BLOCK
        doubtful = [self._locate(n, groups, single, error, counts, switch) for n, groups in last_strides.items()]
        return np.concatenate([rows[:0], *doubtful])

    def _locate(
        self,
        stride: int,
        groups: list[tuple[Rows, FloatArray, int]],
        single: int,
        error: float,
        counts: tuple[FloatArray, FloatArray],
        switch: int,
    ) -> Rows:
        """Locate the step within the last stride of some rows, given their states and step number before it.

        The stride is bisected, below `switch` in single steps, and the rest is taken step by step. Because of rounding
        the goal may be reached at the very end only. Return the rows that may have reached it a step earlier or later,
        given the error of strides as a share of one step.
        """
        (steps, ends), doubtful = counts, []
        rows, states = (np.concatenate([group[k] for group in groups]) for k in (0, 1))
        done = np.concatenate([np.full(len(some), before) for some, _, before in groups])
        while stride > (1 if self.falls else SINGLE):
            half = stride // 2
            after = self._move(states, rows, half) if stride > switch else self._step(states, rows, (half,))[0]
            inside = self.reached(after, rows)
            column = (slice(None),) + (None,) * (states.ndim - 1)
            states, done = np.where(inside[column], states, after), np.where(inside, done, done + half)
            stride -= half  # the longer half for all rows: an extra step does no harm
        for n in range(1, stride + 1):
            last, states = states, self._move(states, rows, 1)
            inside = self.reached(states, rows) | (n == stride)
            if inside.any():
                steps[rows[inside]], ends[rows[inside]] = done[inside] + n, states[inside]
                part = error * (states - last)
                doubt = self.reached(last + part, rows) | ~self.reached(states - part, rows)
                doubtful.append(rows[inside & doubt & (done + n > single)])
                rows, states, done = rows[~inside], states[~inside], done[~inside]
            if not len(rows):
                break
        return np.concatenate([rows[:0], *doubtful])


def _single_steps_first(rows: int) -> int:
    return FIRST_STEPS["few" if rows <= FEW else "many"]
