"""Strides: many steps of gradient descent at once, so that thousands of steps are counted without taking them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.progress import check_time
from learncast._core.validation import FloatArray

__all__: list[str] = []  # serves the modules around it

#: Steps of a stride times learning rate and curvature, and times learning rate and growth, at most: beyond them a
#: stride of four slopes is unstable, or of no order.
STIFF, GROWTH = 1.8, 0.4
#: What strides may go astray over a whole descent: as a share of one step where steps are counted, and of the weights
#: where the weights after them are asked for. A stride of h growth times errs by about h^4 of one, and a growth time is
#: as many steps as one over learning rate and growth.
ASTRAY, PRECISE = 0.05, 1e-8
#: The same of a count in precise strides, by far: what arrives nearer to the edge of a step is taken step by step.
HARDLY = 0.002
#: Of longer descents the last step is not worth the time that all of them would take.
WALKED = 1_000_000
#: Fewer steps than this are taken one by one: four slopes would not pay.
LEAST = 8
#: Steps to which the stride of an arrival is halved before it is taken step by step.
SINGLE = 64
#: Steps taken one by one before strides begin: of few descents together, and of many.
PLAIN = {"few": 1024, "many": 256}
FEW = 4
#: Single steps after which arrivals are looked for, at most: before strides, and where there are none; and those that
#: are taken together where nothing is looked for.
BLOCK, LONG, TOGETHER = 64, 512, 4096
#: Learning rate times curvature up to which the loss surely falls at every step; at 2 it need not.
SURE = 1.5
#: Excess loss at the start over that of a network which answers nothing, above which descent is mostly unlearning.
UNLEARNED = 4.0
#: Weights that have grown by this factor have run away.
RUNAWAY = 1e8

#: Of states (rows, ...) and the numbers of these rows, minus the gradient of each row's loss.
Slope = Callable[[FloatArray, NDArray[np.intp]], FloatArray]


class Walk(Protocol):
    """Takes the single steps that a slope gives, to the bit, in something quicker than an array a step."""

    def in_a_stride(self, modes: int, /) -> int:
        """Single steps of so many modes that are as quick as a stride; 0 where none are."""
        ...

    def __call__(self, states: FloatArray, rows: NDArray[np.intp], steps: Sequence[int], /) -> list[FloatArray]:
        """States after each of these rising numbers of steps."""
        ...


@dataclass(frozen=True)
class Stride:
    """Four slopes that stand for m steps of descent, to fourth order in m times the learning rate.

    The order conditions of a Runge-Kutta step with the flow's weights replaced by the sums that m steps of the discrete
    map leave: sum b c = sum of i / m^2 and so on, over i < m. As m grows they become the classical ones.

    Attributes
    ----------
    steps : int
        m.
    inner : (4, 4)
        Where each slope is taken, as multiples of the slopes before it.
    outer : (4,)
    """

    steps: int
    inner: FloatArray
    outer: FloatArray

    def taken(self, slope: Slope, states: FloatArray, rows: NDArray[np.intp], learning_rate: float) -> FloatArray:
        """States after the stride."""
        reach = self.steps * learning_rate
        slopes: list[FloatArray] = []
        for weights in self.inner:
            at = states
            for weight, one in zip(weights, slopes, strict=False):
                at = at + (reach * weight) * one
            slopes.append(slope(at, rows))
        return states + reach * sum(weight * one for weight, one in zip(self.outer, slopes, strict=True))


#: Weights that run away overflow, and are told by that.
_overflowing = np.errstate(over="ignore", invalid="ignore")


@lru_cache(maxsize=4096)
def stride_of(steps: int) -> Stride:
    """The stride of so many steps; solved once."""
    m = float(steps)
    F1, F2, F3 = m * (m - 1) / 2, (m - 1) * m * (2 * m - 1) / 6, (m * (m - 1) / 2) ** 2
    single = np.array([1.0, F1 / m**2, F2 / m**3, F3 / m**4])  # sums of b, b c, b c^2, b c^3
    double = np.array([math.comb(steps, 3) / m**3, (F3 - F2) / (2 * m**4)])  # of b (a c), b c (a c)
    squared = (2 * F3 - 3 * F2 + F1) / (6 * m**4)  # of b (a c^2)
    triple = math.comb(steps, 4) / m**4  # of b (a (a c))

    def solved(last: float) -> tuple[float, FloatArray, FloatArray]:
        c = np.array([0.0, 1 / 3, 2 / 3, last])
        b = np.linalg.solve(np.vander(c, 4, increasing=True).T, single)
        through = np.linalg.solve(np.array([b[2:], b[2:] * c[2:]]), double)  # (a c) of the third and fourth
        a = np.zeros((4, 4))
        a[1, 0], a[2, 1] = c[1], through[0] / c[1]
        a[3, 2] = triple / (b[3] * through[0])
        a[3, 1] = (through[1] - a[3, 2] * c[2]) / c[1]
        a[2, 0], a[3, 0] = c[2] - a[2, 1], c[3] - a[3, 1] - a[3, 2]
        return float(b @ (a @ c**2)) - squared, a, b

    # The place of the last slope is what is left free; it tends to 1, the end of the stride.
    ends = np.linspace(0.7, 1.05, 36)
    misses = [solved(float(end))[0] for end in ends]
    k = max(k for k, (miss, following) in enumerate(pairwise(misses)) if miss * following <= 0)
    last = scipy.optimize.brentq(lambda end: solved(end)[0], ends[k], ends[k + 1], xtol=1e-15)
    _, inner, outer = solved(float(last))
    return Stride(steps, inner, outer)


def _graded(most: int) -> list[int]:
    """Strides to begin with: what changes quickly changes at the start."""
    return [most // share for share in (8, 8, 4, 4, 2, 2) if most // share >= LEAST]


def _plain(rows: int) -> int:
    """Steps that so many descents take one by one before strides begin."""
    return PLAIN["few" if rows <= FEW else "many"]


def _cut(steps: int, most: int, plain: int, *, begun: bool) -> list[int]:
    """Strides that make up a number of steps, of which the first are taken one by one."""
    if most < LEAST:
        return [1] * steps
    graded = [] if begun and not plain else _graded(most)
    plain = min(steps, plain)
    found, left = [1] * plain, steps - plain
    for stride in graded:
        if left >= stride:
            found.append(stride)
            left -= stride
    found += [most] * (left // most)
    left %= most
    return [*found, left] if left >= LEAST else found + [1] * left


@dataclass(frozen=True, eq=False)
class Descents:
    """Gradient descents that run side by side, one a row of states (rows, ...).

    Attributes
    ----------
    slope : callable
        Minus the gradient of each row's loss.
    arrived : callable
        Whether each row's task is learned.
    curvature : float
        Largest curvature of the loss along the way.
    growth : float
        Largest rate at which weights grow away from a saddle.
    learning_rate : float
    walk : Walk, optional
    """

    slope: Slope
    arrived: Callable[[FloatArray, NDArray[np.intp]], NDArray[np.bool_]]
    curvature: float
    growth: float
    learning_rate: float
    walk: Walk | None = None

    def longest(self, *, precise: bool = False) -> int:
        """Most steps that one stride may stand for: to count steps, or to know the weights after them."""
        # What is stiff decays, and its errors with it: there a stride must be stable; it is right where growth is slow.
        stiff, growth = self.learning_rate * self.curvature, self.learning_rate * self.growth
        steps = STIFF / stiff if stiff > 0 else math.inf
        if growth > 0:
            error = PRECISE if precise else ASTRAY * growth
            steps = min(steps, min(GROWTH, error**0.25) / growth)
        return int(min(steps, 1e6)) if steps >= LEAST else 1

    def _worth(self, states: FloatArray, *, precise: bool = False) -> int:
        """The same, or 1 where single steps are as quick."""
        steps = self.longest(precise=precise)
        return steps if steps >= self._in_a_stride(states) else 1

    def _in_a_stride(self, states: FloatArray) -> int:
        return self.walk.in_a_stride(states.size // 2) if self.walk else 0

    def _moved(self, states: FloatArray, rows: NDArray[np.intp], steps: int) -> FloatArray:
        if steps == 1:
            moved = self.slope(states, rows)
            moved *= self.learning_rate
            moved += states
            return moved
        return stride_of(steps).taken(self.slope, states, rows, self.learning_rate)

    def _walked(self, states: FloatArray, rows: NDArray[np.intp], steps: Sequence[int]) -> list[FloatArray]:
        """States after each of these rising numbers of single steps."""
        if self.walk is not None:
            return self.walk(states, rows, steps)
        found = []
        for before, after in pairwise((0, *steps)):
            for _ in range(after - before):
                states = self._moved(states, rows, 1)
            found.append(states)
        return found

    @_overflowing
    def descended(self, states: FloatArray, stops: Sequence[int], *, precise: bool = True) -> list[FloatArray]:
        """States of every row after each of these rising numbers of steps; to a step's worth where not precise."""
        rows, most, done = np.arange(len(states)), self._worth(states, precise=precise), 0
        alone = _plain(len(states)) if most >= LEAST else stops[-1] if len(stops) else 0
        known, early = {0: states}, {stop for stop in stops if 0 < stop <= alone}
        marks = sorted(early.union(range(TOGETHER, max(early, default=0), TOGETHER)))
        for _, some in groupby(marks, key=lambda mark: (mark - 1) // TOGETHER):
            check_time()
            near = list(some)
            visited = self._walked(states, rows, [mark - done for mark in near])
            known |= {mark: there for mark, there in zip(near, visited, strict=True) if mark in early}
            states, done = visited[-1], near[-1]
        for stop in stops:
            if stop in known:
                continue
            for steps, run in groupby(_cut(stop - done, most, max(alone - done, 0), begun=done > alone)):
                number = len(list(run))
                for first in range(0, number, BLOCK):
                    check_time()
                    some_of = min(BLOCK, number - first)
                    if steps == 1:
                        (states,) = self._walked(states, rows, [some_of])
                    else:
                        for _ in range(some_of):
                            states = self._moved(states, rows, steps)
            known[stop], done = states, stop
        return [known[stop] for stop in stops]

    @_overflowing
    def counted(self, states: FloatArray, most_steps: int, *, precise: bool = True) -> tuple[FloatArray, FloatArray]:
        """Steps of descent until each row has arrived, and its state then; to a step or so where not precise.

        Infinite where descent runs away or rests elsewhere, unknown (nan) where `most_steps` are not enough. Short
        descents are taken step by step. Long ones go on in strides up to the stride in which they arrive, which is
        taken again step by step; one that arrives so near to the edge of a step that strides might have gone past it is
        counted again in shorter ones, and at last in single steps.
        """
        found = np.full(len(states), np.nan), states.copy()
        rows = np.arange(len(states))
        shorter = ((self._worth(states, precise=True), HARDLY), (1, 0.0)) if precise else ()
        for most, astray in ((self._worth(states), ASTRAY), *shorter):
            rows = self._counted(states, rows, most_steps, most, astray, found)
            rows = rows[found[0][rows] <= WALKED]
            if not len(rows):
                break
        return found

    def _counted(
        self,
        begun: FloatArray,
        rows: NDArray[np.intp],
        most_steps: int,
        most: int,
        astray: float,
        found: tuple[FloatArray, FloatArray],
    ) -> NDArray[np.intp]:
        """Fill in steps and states of some rows, in strides of at most so many steps; rows that are left in doubt."""
        (steps, ends), states = found, begun[rows]
        limit = RUNAWAY * float(np.abs(states).max(initial=1.0))
        strided = most >= LEAST
        taken, plain = 0, _plain(len(begun)) if strided else most_steps
        grades = _graded(most)
        late: dict[int, list[tuple[NDArray[np.intp], FloatArray, int]]] = {}
        inside = self.arrived(states, rows)
        steps[rows[inside]] = 0.0
        rows, states = rows[~inside], states[~inside]
        block = 4
        while len(rows) and taken < most_steps:
            check_time()
            if taken < plain:
                longest = LONG if not strided and self._in_a_stride(states) else BLOCK
                block = min(2 * block, longest, plain - taken, most_steps - taken)
                length, strides = block, [1] * block
            else:
                length = grades.pop(0) if grades else most
                strides = [length]
            before, dips = states, np.zeros(len(rows), dtype=bool)
            if self.falls and taken < plain:
                last, states = self._walked(states, rows, (length - 1, length))
            else:
                for stride in strides:
                    last, states = states, self._moved(states, rows, stride)
                    if not self.falls:
                        dips |= self.arrived(states, rows)
            gone = ~(np.abs(states).reshape(len(rows), -1).max(axis=1) < limit)
            inside = (self.arrived(states, rows) | dips) & ~gone
            # What no longer moves at all has come to rest somewhere else.
            still = (states == last).reshape(len(rows), -1).all(axis=1) & ~inside
            going = ~(gone | inside | still)
            if not going.all():
                never = gone | still
                steps[rows[never]], ends[rows[never]] = np.inf, states[never]
                late.setdefault(length, []).append((rows[inside], before[inside], taken))
                rows, states = rows[going], states[going]
            taken += length
        steps[rows], ends[rows] = np.nan, states
        single = SINGLE if strided else LONG
        doubtful = [self._arrive(length, groups, plain, astray, found, single) for length, groups in late.items()]
        return np.concatenate([rows[:0], *doubtful])

    @property
    def falls(self) -> bool:
        """Whether the loss cannot rise again: then a task that is learned after some steps was not before and lost."""
        return self.learning_rate * self.curvature < SURE

    def _arrive(
        self,
        stride: int,
        groups: list[tuple[NDArray[np.intp], FloatArray, int]],
        plain: int,
        astray: float,
        found: tuple[FloatArray, FloatArray],
        single: int,
    ) -> NDArray[np.intp]:
        """Find the step within the last stride of some rows, from the states and the step before it.

        The stride is halved, from `single` on in single steps, and what is left taken step by step; rounding may leave
        an arrival to its end. What is returned are the rows that might have arrived a step before or after, if strides
        went astray so far.
        """
        (steps, ends), doubtful = found, []
        rows, states = (np.concatenate([group[k] for group in groups]) for k in (0, 1))
        begun_at = np.concatenate([np.full(len(who), begun) for who, _, begun in groups])
        # Where the loss cannot rise again, what is learned stays so, and single steps are halved like strides.
        while stride > (1 if self.falls else SINGLE):
            half = stride // 2
            after = self._moved(states, rows, half) if stride > single else self._walked(states, rows, (half,))[0]
            inside = self.arrived(after, rows)
            going = (slice(None),) + (None,) * (states.ndim - 1)
            states, begun_at = np.where(inside[going], states, after), np.where(inside, begun_at, begun_at + half)
            stride -= half  # the longer half stands for both: a step more does no harm
        for n in range(1, stride + 1):
            last, states = states, self._moved(states, rows, 1)
            inside = self.arrived(states, rows) | (n == stride)
            if inside.any():
                steps[rows[inside]], ends[rows[inside]] = begun_at[inside] + n, states[inside]
                part = astray * (states - last)
                doubt = self.arrived(last + part, rows) | ~self.arrived(states - part, rows)
                doubtful.append(rows[inside & doubt & (begun_at + n > plain)])
                rows, states, begun_at = rows[~inside], states[~inside], begun_at[~inside]
            if not len(rows):
                break
        return np.concatenate([rows[:0], *doubtful])
