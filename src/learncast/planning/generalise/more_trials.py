"""Held-out loss against the number of trials, from subsets of the trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.planning.generalise.curve import NORMAL, HeldOutProblem
from learncast.planning.generalise.subsets import Trials, learn

#: Subsets that are drawn: their sizes, as shares of the trials, and draws of each.
SMALLEST, LARGEST, SIZES, DRAWS = 1 / 6, 0.8, 5, 6
#: Fewest trials of a subset.
LEAST = 8
#: Multiple of the trials up to which losses are claimed, if the loss of unlimited trials is known, and if it is fitted.
KNOWN, FITTED = 100, 2
#: Bounds of the exponent c.
EXPONENTS = (0.3, 3.0)


class Expected(NamedTuple):
    """A forecast number with the ends of its 95% band.

    Examples
    --------
    >>> from learncast.planning import Expected
    >>> Expected(0.18, 0.16, 0.2).high
    0.2
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TrialCurve:
    """Held-out loss at the best stop, L(p) = a + (L0 - a) / (1 + (p / p0)^c), against the number of trials p.

    Implements: generalise Eq. (9), against training on four times the trials

    Attributes
    ----------
    trials : int
        P, the number of trials.
    loss, error : float
        L(P) and its standard error.
    start, end : float
        L0, the loss of the untrained network, and a, the loss of unlimited trials.
    half, exponent : float
        p0 and c.
    known : bool
        Whether a follows from residuals instead of being fitted.
    sizes, losses : (subsets,)
        Subsets of the trials and their losses, P last.
    """

    trials: int
    loss: float
    error: float
    start: float
    end: float
    half: float
    exponent: float
    known: bool
    sizes: FloatArray
    losses: FloatArray

    @property
    def most(self) -> int:
        """Largest number of trials for which a loss is claimed."""
        return (KNOWN if self.known else FITTED) * self.trials

    def at(self, number: FloatArray | float) -> FloatArray:
        """Loss and the ends of its band, (3, ...)."""
        p = np.asarray(number, dtype=float)
        loss = _falling(p, self.start, self.end, self.half, self.exponent)
        half = NORMAL * np.sqrt(self.error**2 + (np.maximum(self.loss - loss, 0.0) / 2) ** 2)
        return np.stack([loss, np.maximum(loss - half, 0.0), loss + half])

    def loss_of(self, number: float) -> Expected:
        """Loss expected from a number of trials."""
        if not LEAST <= number <= self.most:
            why = "" if self.known else ", because too few trials tell what unlimited trials would leave"
            raise InvalidSpec(
                f"Losses are forecast for {LEAST} to {self.most:,} trials{why}, got {number:g}.", field="trials"
            )
        return Expected(*self.at(number).tolist())

    def inverse(self, loss: float) -> float:
        """Trials at which the fitted loss is reached; infinite if never, nan if beyond what is claimed."""
        if loss <= self.end:
            return math.inf if self.known else math.nan
        if loss >= self.start:
            return 0.0
        number = float(self.half * ((self.start - self.end) / (loss - self.end) - 1) ** (1 / self.exponent))
        return number if number <= self.most else math.inf if self.known else math.nan

    def trials_for(self, loss: float) -> Expected:
        """Trials until the loss is expected; infinite if never, nan if beyond the largest number that is claimed."""
        grid = np.unique(np.geomspace(LEAST, self.most, 4000).round())
        curves = self.at(grid)
        never = math.inf if self.known else math.nan
        found = [float(grid[np.argmax(c <= loss)]) if (c <= loss).any() else never for c in curves]
        value, low, high = found
        if loss <= self.end and self.known:
            value = math.inf
        return Expected(value, low, high)


def _falling(p: FloatArray, start: float, end: float, half: float, exponent: float) -> FloatArray:
    return np.asarray(end + (start - end) / (1 + (p / half) ** exponent))


def trial_curve(problem: HeldOutProblem, stops: tuple[int, ...], start: float, loss: float, error: float) -> TrialCurve:
    """Fit the held-out loss against the number of trials on subsets of the trials."""
    if not isinstance(problem.samples, Trials):
        raise InvalidSpec(f"The trials of {problem.task.name!r} are not stored.", field="task")
    P = problem.trials
    sizes = np.unique(np.geomspace(max(LEAST, SMALLEST * P), LARGEST * P, SIZES).round().astype(int))
    # Subsets that run away at this learning rate have an infinite loss; they stop before.
    means = [_subset_curve(problem, int(p), stops).min() for p in sizes]
    p, losses = np.append(sizes, P).astype(float), np.append(means, loss)
    known = math.isfinite(problem.noise_loss)
    end = min(problem.noise_loss, 0.98 * losses.min()) if known else math.nan
    live = np.isfinite(losses) & (losses < start)
    if live.sum() < 3:
        raise InvalidSpec("More trials are forecast where training lowers the held-out loss, but it does not here.",
                          field="task")  # fmt: skip

    def gaps(x: FloatArray) -> FloatArray:
        a, c = (end, x[1]) if known else (x[1] * losses.min(), 1.0)
        return np.log(_falling(p[live], start, a, math.exp(x[0]), c) / losses[live])

    low, high = (EXPONENTS[0], EXPONENTS[1]) if known else (0.0, 0.999)
    bounds = ([math.log(1e-3), low], [math.log(1e3 * P), high])
    fit = scipy.optimize.least_squares(gaps, [math.log(P / 2), 1.0 if known else 0.5], bounds=bounds)
    a, c = (end, float(fit.x[1])) if known else (float(fit.x[1]) * float(losses.min()), 1.0)
    return TrialCurve(P, loss, error, start, a, math.exp(fit.x[0]), c, known, p, losses)


def _subset_curve(problem: HeldOutProblem, size: int, stops: tuple[int, ...]) -> FloatArray:
    """Mean held-out loss along training on subsets of a size; held out are the test trials or all others."""
    samples = problem.samples
    assert isinstance(samples, Trials)
    test = problem.test is not None
    training = np.flatnonzero(samples.folds == 0) if test else np.arange(len(samples.folds))
    units = np.arange(len(training)) if test else problem.units
    rng, curves = np.random.default_rng((problem.folds.seed, size)), []
    for _ in range(DRAWS):
        order = np.argsort(rng.permutation(units.max() + 1)[units], kind="stable")  # trials of a unit together
        folds = np.ones_like(samples.folds)
        if test:
            folds[training] = 2
        folds[training[order[:size]]] = 0
        own = replace(samples, folds=folds)
        kept = np.arange(own.number) == 0
        curves.append(learn(own, [kept], stops).losses[0, 1])
    return np.asarray(np.mean(curves, axis=0))
