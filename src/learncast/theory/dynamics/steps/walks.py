"""Walks: single steps of descent of learning modes, a <- a + eta c (beta - a c B), c <- c + eta a (beta - a c B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray

__all__: list[str] = []  # serves the modules around it

#: Modes up to which steps are taken number by number: to call numpy takes as long as a hundred products.
_FEW = 16
#: Single steps of one mode, number by number, in the time of a stride.
_IN_A_STRIDE = 250


@dataclass(frozen=True, eq=False)
class ModeWalk:
    """Single steps of modes, the very ones that their slope gives, in something quicker than an array a step.

    Attributes
    ----------
    cross, power : (rows, modes)
    learning_rate : float
    """

    cross: FloatArray
    power: FloatArray
    learning_rate: float

    def in_a_stride(self, modes: int) -> int:
        """Single steps of so many modes that are as quick as a stride; 0 where arrays take them."""
        return _IN_A_STRIDE // max(modes, 1) if modes <= _FEW else 0

    def __call__(self, states: FloatArray, rows: NDArray[np.intp], steps: Sequence[int]) -> list[FloatArray]:
        """States (rows, 2, modes) after each of these rising numbers of steps."""
        spans = [after - before for before, after in pairwise((0, *steps))]
        return (self._by_hand if states.size <= 2 * _FEW else self._abreast)(states, rows, spans)

    def _by_hand(self, states: FloatArray, rows: NDArray[np.intp], spans: Sequence[int]) -> list[FloatArray]:
        cross, power = self._numbers
        found = np.array(
            [
                [self._walked(*mode, spans) for mode in zip(a, c, cross[row], power[row], strict=True)]
                for (a, c), row in zip(states.tolist(), rows.tolist(), strict=True)
            ]
        )
        return list(found.transpose(2, 0, 3, 1))

    @cached_property
    def _numbers(self) -> list[list[list[float]]]:
        """Cross and input strengths of every row and mode."""
        return [self.cross.tolist(), self.power.tolist()]

    def _walked(self, a: float, c: float, beta: float, power: float, spans: Sequence[int]) -> list[tuple[float, float]]:
        rate, found = self.learning_rate, []
        for span in spans:
            for _ in range(span):
                pull = beta - power * (a * c)
                a, c = c * pull * rate + a, a * pull * rate + c
            found.append((a, c))
        return found

    def _abreast(self, states: FloatArray, rows: NDArray[np.intp], spans: Sequence[int]) -> list[FloatArray]:
        cross, power = self.cross[rows], self.power[rows]
        here, found = np.array(states.swapaxes(0, 1)), []
        (a, c), swapped = here, here[::-1]
        pull, moved = np.empty_like(a), np.empty_like(here)
        for span in spans:
            for _ in range(span):
                np.multiply(a, c, out=pull)
                pull *= power
                np.subtract(cross, pull, out=pull)
                np.multiply(swapped, pull, out=moved)
                moved *= self.learning_rate
                here += moved
            found.append(here.copy().swapaxes(0, 1))
        return found
