"""The responses of a tanh unit as functions of its input weight."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.polynomial import chebyshev

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.tasks.recorded.masked import Mask
from learncast.theory.responses.bootstrap import Measure, Resampling, group_sums, readouts, sample_means
from learncast.theory.responses.features import control_variates
from learncast.theory.responses.trials import TrialStream

__all__ = ["ResponseTable"]

#: Chebyshev nodes of a panel.
_NODES = 16

#: Largest relative size of a panel's last coefficients, and the number of halvings after which it is kept anyway.
_TAIL, _HALVINGS = 1e-8, 6

#: Multiple of the natural weight at which a unit is saturated, so that larger weights hardly explain more.
_SATURATED = 16.0

#: Golden section, and the number of sections: enough for the square root of the machine precision.
_GOLDEN, _SECTIONS = (3 - np.sqrt(5)) / 2, 40

#: Bytes of hidden states held at a time while a panel is measured.
_CHUNK = 2**22


@dataclass(eq=False)
class ResponseTable:
    """E[y h(a)] and E[h(a)^2] of one unit h_t = f(b h_{t-1} + a x_t) as smooth functions of its input weight a.

    All weights see the same trials, so the means are as smooth as f. For an odd f they are odd and even in a;
    E[y h] / a and E[h^2] / a^2 are interpolated on panels of Chebyshev nodes, which are halved until their last
    coefficients are below 1e-8. A weight beyond the last panel adds panels; nothing is extrapolated.

    Attributes
    ----------
    trials : TrialStream
    network : Activated
    recurrence : float
        b.
    resampling : Resampling
    ends : (panels + 1,)
        Edges of the panels, from 0.
    coefficients : (panels, nodes, 1 + outputs, 1 + resamples)
        Of E[h^2] / a^2, then of E[y h] / a for each output; the estimate, then its resamples.
    accuracy : float
        Largest relative size of a last coefficient, which estimates the interpolation error.

    Examples
    --------
    E[y h] is proportional to a small input weight and saturates at a large one:

    >>> import learncast as lc
    >>> import numpy as np
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=1), "tanh")
    >>> table = lc.theory.response(lc.tasks.integration(steps=5), network, trials=1000, bootstrap=20).statistics
    >>> for weight in (0.1, 0.2, 2.0):
    ...     cross, _, power, _ = table.moments(np.array([weight]), 0)
    ...     print(weight, float(cross[0, 0].round(2)), float(power[0].round(2)))
    0.1 0.19 0.01
    0.2 0.36 0.05
    2.0 0.9 0.65
    """

    trials: TrialStream
    network: Activated
    recurrence: float
    resampling: Resampling
    ends: FloatArray = field(default_factory=lambda: np.zeros(1))
    coefficients: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0, 0)))
    accuracy: float = 0.0

    def __post_init__(self) -> None:
        self._measure_controls()
        self.reach(self._natural_weight / 2)

    def reach(self, weight: float) -> None:
        """Measure further panels until the table covers input weights of the given size."""
        while weight > self.ends[-1]:
            begin = float(self.ends[-1])
            width = float(self.ends[-1] - self.ends[-2]) * 2 if len(self.ends) > 1 else self._natural_weight / 8
            for halving in range(_HALVINGS + 1):
                panel, tail = self._panel(begin, begin + width)
                if tail <= _TAIL or halving == _HALVINGS:
                    break
                width /= 2
            self.coefficients = panel[None] if begin == 0 else np.concatenate([self.coefficients, panel[None]])
            self.ends = np.append(self.ends, begin + width)
            self._powers, self._edges = _powers(self.coefficients), self.ends.tolist()
            self.accuracy = max(self.accuracy, tail)

    def moments(self, weights: FloatArray, rows: slice | int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return E[y h] (n, outputs), its derivative by a, E[h^2] (n,) and its derivative at weights (n,).

        Each weight has its own row, the estimate or a resample, or all have the same.
        """
        if len(weights) == 1 and not isinstance(rows, slice):
            return self._moments_of_one(float(weights[0]), rows)
        size = np.abs(weights)
        self.reach(float(size.max()))
        k = np.clip(np.searchsorted(self.ends, size, side="left") - 1, 0, len(self.ends) - 2)
        half = (self.ends[k + 1] - self.ends[k]) / 2
        x = np.clip((size - self.ends[k]) / half - 1, -1.0, 1.0)
        basis = np.ones((*x.shape, 1, _NODES))
        np.multiply.accumulate(np.broadcast_to(x[..., None], (*x.shape, _NODES - 1)), axis=-1, out=basis[..., 0, 1:])
        both = np.matmul(basis, self._powers[np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows, k])[
            ..., 0, :
        ]
        p, dp = both[..., : both.shape[-1] // 2], both[..., both.shape[-1] // 2 :] / half[..., None]
        a, s = size[..., None], np.where(weights < 0, -1.0, 1.0)[..., None]
        power, power_slope = size**2 * p[..., 0], s[..., 0] * size * (2 * p[..., 0] + size * dp[..., 0])
        return s * a * p[..., 1:], p[..., 1:] + a * dp[..., 1:], power, power_slope

    def _moments_of_one(self, weight: float, row: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """`moments` at one weight: descent of one unit asks for thousands of them, one after another."""
        a, s = abs(weight), -1.0 if weight < 0 else 1.0
        self.reach(a)
        k = min(max(bisect.bisect_left(self._edges, a) - 1, 0), len(self._edges) - 2)
        begin, end = self._edges[k], self._edges[k + 1]
        half = (end - begin) / 2
        basis = np.full(_NODES, min(max((a - begin) / half - 1, -1.0), 1.0))
        basis[0] = 1.0
        both = np.dot(np.multiply.accumulate(basis), self._powers[row, k])
        p, dp = both[: len(both) // 2], both[len(both) // 2 :]
        dp /= half
        power, slope = a**2 * p[:1], s * a * (2 * p[:1] + a * dp[:1])
        return s * a * p[None, 1:], (p[1:] + a * dp[1:])[None], power, slope

    @cached_property
    def best(self) -> tuple[FloatArray, FloatArray]:
        """Best input weight of each row, and max_a |E[y h]|^2 / E[h^2], the power that it explains.

        Weights range from one so small that the unit is linear to one far into saturation.
        """
        largest = _SATURATED * self._natural_weight
        self.reach(largest)
        grid = self._grid()[3::4]
        weights = np.concatenate([self.ends[1:2] * 1e-6, grid[grid < largest], [largest]])
        shares = np.stack([self._explained_at(np.full(len(self.target_power), a)) for a in weights])
        k = shares.argmax(axis=0)
        low, high = weights[np.maximum(k - 1, 0)], weights[np.minimum(k + 1, len(weights) - 1)]
        for _ in range(_SECTIONS):
            left, right = low + (high - low) * _GOLDEN, high - (high - low) * _GOLDEN
            better = self._explained_at(left) > self._explained_at(right)
            low, high = np.where(better, low, left), np.where(better, right, high)
        at, middle = weights[k], (low + high) / 2
        better = self._explained_at(middle) > shares.max(axis=0)
        at = np.where(better, middle, at)
        return at, self._explained_at(at)

    @property
    def saturation(self) -> float:
        """Best input weight of the estimate, as a share of the largest that is considered."""
        return float(self.best[0][0]) / (_SATURATED * self._natural_weight)

    def _explained_at(self, weights: FloatArray) -> FloatArray:
        cross, _, power, _ = self.moments(weights, slice(0, len(weights)))
        return np.asarray((cross**2).sum(axis=-1) / power)

    def _grid(self) -> FloatArray:
        steps = np.linspace(0.0, 1.0, _NODES + 1)[1:]
        return np.concatenate([a + (b - a) * steps for a, b in pairwise(self.ends)])

    def _measure_controls(self) -> None:
        """Measure the target's power, the control variates and the natural weight, none of which depends on a.

        The natural weight is the input weight at which the linear response has size 1.
        """
        trials, b = self.trials, self.recurrence

        def measure(inputs: FloatArray, targets: FloatArray, counted: Mask | None) -> FloatArray:
            line, cross, power = np.zeros(inputs.shape[1]), np.zeros(trials.task.outputs), 0.0
            for x, y, live in readouts(inputs, targets, counted):
                line = b * line + x
                if y is not None:
                    cross += line @ y
                    power += float(line @ (live * line))
            return np.concatenate([cross, [power, (targets**2).sum()]])

        with np.errstate(over="ignore", invalid="ignore"):
            sums = group_sums(trials, measure)
        cross, power, target = np.split(sums, [trials.task.outputs, trials.task.outputs + 1], axis=1)
        mean = power.sum() / trials.number / (trials.task.steps if trials.task.targets == "every_step" else 1)
        self._natural_weight = 1.0 / max(float(np.sqrt(mean)), 1e-6) if np.isfinite(mean) and mean > 0 else 1.0
        self._controls: tuple[FloatArray, FloatArray] | None = None
        if trials.gaussian and np.isfinite(sums).all():
            self._controls = control_variates(trials, np.array([b]), cross, power, target)
        self.target_power = self._means(lambda x, y, counted: np.array([(y**2).sum()]))[:, 0]

    def _means(self, measure: Measure) -> FloatArray:
        """Means of the estimate and its resamples, (1 + resamples, numbers)."""
        if self._controls is None:
            return sample_means(self.trials, measure, self.resampling)
        return self.resampling.corrected(group_sums(self.trials, measure), *self._controls)

    def _panel(self, begin: float, end: float) -> tuple[FloatArray, float]:
        """Return the coefficients on one panel, and the relative size of the last ones."""
        angles = (np.arange(_NODES) + 0.5) * np.pi / _NODES
        a = begin + (end - begin) * (np.cos(angles) + 1) / 2
        M, b, f = self.trials.task.outputs, self.recurrence, self.network.activate

        def measure(inputs: FloatArray, targets: FloatArray, counted: Mask | None) -> FloatArray:
            sums = np.zeros((1 + M, len(a)))
            width = max(1, _CHUNK // (8 * len(a)))
            for part in (slice(first, first + width) for first in range(0, inputs.shape[1], width)):
                h = np.zeros((len(a), inputs[0, part].size))
                mask = None if counted is None else counted[:, part]
                for x, y, live in readouts(inputs[:, part], targets[:, part], mask):
                    h = f(b * h + a[:, None] * x)
                    if y is not None:
                        sums[0] += np.einsum("nt,nt->n", h, live * h)
                        sums[1:] += y.T @ h.T
            return sums.ravel()

        means = self._means(measure).reshape(-1, 1 + M, len(a))
        means = means / np.concatenate([a[None] ** 2, np.repeat(a[None], M, axis=0)])
        basis = np.cos(np.outer(np.arange(_NODES), angles)) * 2 / _NODES
        basis[0] /= 2
        coefficients = np.einsum("jn,rkn->jkr", basis, means)
        sizes = np.abs(coefficients[..., 0])
        # An output without covariance has no relative error.
        largest = np.maximum(sizes.max(axis=0), 1e-6 * sizes.max())
        return coefficients, float((sizes[-2:] / largest).max())


def _powers(coefficients: FloatArray) -> FloatArray:
    """Return the panels as polynomials in x in [-1, 1], values then slopes: (rows, panels, nodes, 2 x functions).

    With sixteen nodes the conversion loses four digits, which the table does not have, and evaluation is three
    times faster.
    """
    to_powers = np.zeros((_NODES, _NODES))
    for n in range(_NODES):
        to_powers[: n + 1, n] = chebyshev.cheb2poly(np.eye(_NODES)[n, : n + 1])
    powers = np.einsum("pn,jnkr->rjpk", to_powers, coefficients)
    slopes = np.zeros_like(powers)
    slopes[:, :, :-1] = powers[:, :, 1:] * np.arange(1, _NODES)[:, None]
    return np.concatenate([powers, slopes], axis=-1)
