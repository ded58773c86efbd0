"""Folds: which trials are held out together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count
from learncast.tasks.recorded.recording import TESTED_TRIALS

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Folds:
    """How trials are divided into folds that are held out in turn.

    Parameters
    ----------
    count : int
        Number of folds.
    groups : sequence, optional
        Group of each trial, such as the animal or the session. Trials of a group are held out together, so that the
        held-out loss is that of a new group.
    blocks : int, optional
        Number of neighbouring trials that are held out together, for trials that depend on their neighbours.
    seed : int
        Seed of the random assignment.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.planning.Folds(5, groups=["a"] * 20 + ["b"] * 20, seed=1).count
    5
    """

    count: int = 10
    groups: Sequence[object] | None = None
    blocks: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        count("folds", self.count, least=3)
        count("seed", self.seed, least=0)
        if self.blocks is not None:
            count("blocks", self.blocks)
            if self.groups is not None:
                raise InvalidSpec("Give either groups or blocks, got both.", field="blocks")

    @classmethod
    def of(cls, folds: Folds | int) -> Folds:
        """Return folds that are given as such, or by their number."""
        return folds if isinstance(folds, Folds) else cls(folds)

    def assign(self, trials: int, classes: Labels | None = None) -> tuple[Labels, Labels]:
        """Return the fold and the unit (trial, group or block) of each trial; trials of a unit share a fold.

        Folds have as many units as possible alike, and single trials of a class are spread over the folds.
        """
        if trials < TESTED_TRIALS:
            raise InvalidSpec(
                f"Folds need at least {TESTED_TRIALS} trials, got {trials}. Give other trials as test.", field="task"
            )
        units = self._units(trials)
        number = int(units.max()) + 1
        if number < self.count:
            what = "trials" if number == trials else "groups" if self.groups is not None else "blocks"
            raise InvalidSpec(f"{self.count} folds need as many {what}, got {number}.", field="folds")
        order = np.random.default_rng(self.seed).permutation(number)
        if number == trials and classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        elif number < trials:  # large groups first, each into the fold that has the fewest trials
            order = order[np.argsort(-np.bincount(units)[order], kind="stable")]
        folds = self._balanced(order, np.bincount(units))[units]
        if classes is not None:
            self._check_classes(folds, classes)
        return folds, units

    def _units(self, trials: int) -> Labels:
        if self.groups is not None:
            if len(self.groups) != trials:
                raise InvalidSpec(
                    f"groups must name the group of each of the {trials} trials, got {len(self.groups)}.",
                    field="groups",
                )
            return np.unique(np.array([str(g) for g in self.groups]), return_inverse=True)[1].astype(np.intp)
        return np.arange(trials) // (self.blocks or 1)

    def _balanced(self, order: Labels, sizes: Labels) -> Labels:
        folds, filled = np.empty(len(order), dtype=np.intp), np.zeros(self.count)
        for unit in order:
            folds[unit] = np.argmin(filled)
            filled[folds[unit]] += sizes[unit]
        return folds

    def _check_classes(self, folds: Labels, classes: Labels) -> None:
        for label in np.unique(classes):
            if len(np.unique(folds[classes == label])) < 2:
                raise InvalidSpec(
                    f"Class number {label} occurs in one fold only, so it is not learned without that fold. Leave the "
                    "class out, record more of its trials or use other groups.",
                    field="folds",
                )


def mean_error(values: FloatArray, units: Labels) -> FloatArray:
    """Return the standard error of means over trials, (...,), of values (trials, ...), with trials of a unit as one.

    It is infinite where descent diverges.
    """
    number = len(np.unique(units))
    with np.errstate(invalid="ignore"):
        gaps = values - values.mean(axis=0)
        if number < len(units):
            sums = np.zeros((int(units.max()) + 1, *gaps.shape[1:]))
            np.add.at(sums, units, gaps)
            gaps = sums
        error = np.sqrt((gaps**2).sum(axis=0) * number / (number - 1)) / len(values)
    return np.where(np.isnan(error), np.inf, error)
