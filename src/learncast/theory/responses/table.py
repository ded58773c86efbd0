"""The table of a tanh unit's responses over its input weight, grown as far as learning asks for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.results import described
from learncast.theory.responses.bootstrap import Resampling, group_sums
from learncast.theory.responses.features import control_means
from learncast.theory.responses.trials import Trials

__all__ = ["Table"]

#: Chebyshev nodes of a panel.
_NODES = 16

#: Relative size of a panel's last coefficients at which it is fine enough, and halvings after which it is kept anyway.
_ENOUGH, _HALVINGS = 1e-8, 6

#: Multiple of the natural weight at which a unit is saturated: what larger weights explain hardly changes.
_SATURATED = 16.0

#: Golden section, and how often the best weight is bracketed closer by it: to the square root of the last digit.
_GOLDEN, _SECTIONS = (3 - np.sqrt(5)) / 2, 40

#: Bytes of hidden states kept at a time while a panel is measured.
_CHUNK = 2**22


@dataclass(eq=False)
class Table:
    """E[y h(a)] and E[h(a)^2] of one unit h_t = f(b h_{t-1} + a x_t) as smooth functions of its input weight a.

    Every weight sees the same trials, so that the means are as smooth as f. For an odd f they are odd and even in a;
    E[y h] / a and E[h^2] / a^2 are interpolated on panels of Chebyshev nodes, halved until their last coefficients are
    below 1e-8. A weight beyond the last panel adds panels: nothing is extrapolated.

    Attributes
    ----------
    ends : (panels + 1,)
        Edges of the panels, from 0.
    coefficients : (panels, nodes, 1 + outputs, 1 + replicas)
        E[h^2] / a^2 first, then E[y h] / a of each output; the estimate, then its replicas.
    accuracy : float
        Largest relative size of a last coefficient: what the interpolation may be off by.

    Examples
    --------
    A tanh unit's answer co-varies with the target in proportion to a small input weight, and less where it saturates:

    >>> import learncast as lc
    >>> import numpy as np
    >>> from learncast.theory.responses.response import response
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=1), "tanh")
    >>> table = response(lc.tasks.integration(steps=5), network, trials=1000, bootstrap=20).statistics
    >>> for weight in (0.1, 0.2, 2.0):
    ...     cross, _, power, _ = table.moments(np.array([weight]))
    ...     print(weight, float(cross[0, 0].round(2)), float(power[0].round(2)))
    0.1 0.19 0.01
    0.2 0.36 0.05
    2.0 0.9 0.65
    """

    trials: Trials
    network: Activated
    recurrence: float
    resampling: Resampling
    ends: FloatArray = field(default_factory=lambda: np.zeros(1))
    coefficients: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0, 0)))
    accuracy: float = 0.0

    def __post_init__(self) -> None:
        self._control()
        if len(self.coefficients):  # panels that were measured before
            self._powers = _powers(self.coefficients)
        self.reach(self._natural_weight() / 2)

    @property
    def summary(self) -> str:
        """In words."""
        return f"a table to input weight {self.ends[-1]:.4g}, interpolated to {self.accuracy:.1g}"

    def reach(self, weight: float) -> None:
        """Measure further panels until the table covers input weights of the given size."""
        while weight > self.ends[-1]:
            begin = float(self.ends[-1])
            width = float(self.ends[-1] - self.ends[-2]) * 2 if len(self.ends) > 1 else self._natural_weight() / 8
            for halving in range(_HALVINGS + 1):
                panel, tail = self._panel(begin, begin + width)
                if tail <= _ENOUGH or halving == _HALVINGS:
                    break
                width /= 2
            self.coefficients = panel[None] if begin == 0 else np.concatenate([self.coefficients, panel[None]])
            self.ends = np.append(self.ends, begin + width)
            self._powers = _powers(self.coefficients)
            self.accuracy = max(self.accuracy, tail)

    def moments(self, weights: FloatArray, first: int = 0) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """E[y h] (..., outputs), its slope in a, E[h^2] (...) and its slope, one weight for each row.

        The last axis of `weights` runs over rows from `first` on: the estimate and its replicas, or one of them alone.
        """
        size = np.abs(weights)
        self.reach(float(size.max()))
        k = np.clip(np.searchsorted(self.ends, size, side="left") - 1, 0, len(self.ends) - 2)
        half = (self.ends[k + 1] - self.ends[k]) / 2
        x = np.clip((size - self.ends[k]) / half - 1, -1.0, 1.0)
        basis = np.ones((*x.shape, 1, _NODES))
        np.multiply.accumulate(np.broadcast_to(x[..., None], (*x.shape, _NODES - 1)), axis=-1, out=basis[..., 0, 1:])
        both = np.matmul(basis, self._powers[first + np.arange(weights.shape[-1]), k])[..., 0, :]
        p, dp = both[..., : both.shape[-1] // 2], both[..., both.shape[-1] // 2 :] / half[..., None]
        a, s = size[..., None], np.where(weights < 0, -1.0, 1.0)[..., None]
        power, power_slope = size**2 * p[..., 0], s[..., 0] * size * (2 * p[..., 0] + size * dp[..., 0])
        return s * a * p[..., 1:], p[..., 1:] + a * dp[..., 1:], power, power_slope

    def explained(self) -> FloatArray:
        """Largest |E[y h]|^2 / E[h^2] over input weights, the part of the target's power that the best unit explains.

        Small weights count, whose limit is the linear unit. The table grows until the best weight lies inside it, or is
        far into saturation.
        """
        while True:
            places = np.concatenate([self.ends[1:2] * 1e-6, self._grid()])
            shares = np.stack([self._share(np.full(len(self.target_power), a)) for a in places])
            if shares[:, 0].argmax() < len(places) - 1 or self.ends[-1] >= _SATURATED * self._natural_weight():
                break
            self.reach(1.5 * float(self.ends[-1]))
        k = shares.argmax(axis=0)
        low, high = places[np.maximum(k - 1, 0)], places[np.minimum(k + 1, len(places) - 1)]
        for _ in range(_SECTIONS):
            left, right = low + (high - low) * _GOLDEN, high - (high - low) * _GOLDEN
            better = self._share(left) > self._share(right)
            low, high = np.where(better, low, left), np.where(better, right, high)
        return np.maximum(shares.max(axis=0), self._share((low + high) / 2))

    def _share(self, weights: FloatArray) -> FloatArray:
        cross, _, power, _ = self.moments(weights)
        return np.asarray((cross**2).sum(axis=-1) / power)

    def listed(self) -> dict[str, tuple[tuple[str, ...], FloatArray, str, str]]:
        """Variables for a dataset: dimensions, values with replicas, meaning and units."""
        weights = self._grid()
        found = [self.moments(np.full(len(self.target_power), a)) for a in weights]
        cross = np.stack([each[0] for each in found], axis=2)
        power = np.stack([each[2] for each in found], axis=1)
        return {
            "cross": (("output", "input_weight"), cross, "mean of target x response", "target"),
            "power": (("input_weight",), power, "mean squared response", "1"),
            "target_power": ((), self.target_power, "mean squared target", "target^2"),
        }

    def panels(self) -> dict[str, Any]:
        """What a table is rebuilt from, labelled."""
        over = ("panel", "node", "moment", "row")
        return {
            "panel_end": ("panel", self.ends[1:], described("input weight at which a panel ends", "1")),
            "coefficients": (over, self.coefficients, described("Chebyshev coefficients of each panel", "1")),
            "interpolation_error": ((), self.accuracy, described("relative error of the interpolation", "1")),
        }

    def coordinates(self) -> dict[str, Any]:
        """The input weights tabulated."""
        return {"input_weight": ("input_weight", self._grid())}

    def _grid(self) -> FloatArray:
        steps = np.linspace(0.0, 1.0, _NODES + 1)[1:]
        return np.concatenate([a + (b - a) * steps for a, b in pairwise(self.ends)])

    def _natural_weight(self) -> float:
        """Input weight at which the linear response has size 1: the scale on which the table varies."""
        return 1.0 / max(float(np.sqrt(self._linear_power)), 1e-6)

    def _control(self) -> None:
        """Measure what does not depend on the weight: the target's power and the controls."""
        trials, b = self.trials, self.recurrence

        def measure(inputs: FloatArray, targets: FloatArray) -> FloatArray:
            line, cross, power = np.zeros(inputs.shape[1]), np.zeros(trials.outputs), 0.0
            for t, x in enumerate(inputs):
                line = b * line + x
                if trials.every_step or t == len(inputs) - 1:
                    cross += line @ targets[t if trials.every_step else 0]
                    power += line @ line
            return np.concatenate([cross, [power, (targets**2).sum()]])

        with np.errstate(over="ignore", invalid="ignore"):
            sums = group_sums(trials, measure)
        cross, power, target = np.split(sums, [trials.outputs, trials.outputs + 1], axis=1)
        readouts = trials.steps if trials.every_step else 1
        mean = power.sum() / trials.number / readouts
        self._linear_power = float(mean) if np.isfinite(mean) and mean > 0 else 1.0
        self._controls: tuple[FloatArray, FloatArray] | None = None
        if trials.task is not None and np.isfinite(sums).all():
            self._controls = control_means(trials, np.array([b]), cross, power, target)
        self.target_power = self._means(target[:, 0])

    def _means(self, sums: FloatArray) -> FloatArray:
        return (
            self.resampling.means(sums) if self._controls is None else self.resampling.corrected(sums, *self._controls)
        )

    def _panel(self, begin: float, end: float) -> tuple[FloatArray, float]:
        """Coefficients on one panel, and the relative size of the last ones."""
        angles = (np.arange(_NODES) + 0.5) * np.pi / _NODES
        a = begin + (end - begin) * (np.cos(angles) + 1) / 2
        M, trials, b, f = self.trials.outputs, self.trials, self.recurrence, self.network.activate

        def measure(inputs: FloatArray, targets: FloatArray) -> FloatArray:
            found = np.zeros((1 + M, len(a)))
            width = max(1, _CHUNK // (8 * len(a)))
            for first in range(0, inputs.shape[1], width):
                part = slice(first, first + width)
                h = np.zeros((len(a), inputs[0, part].size))
                for t, x in enumerate(inputs[:, part]):
                    h = f(b * h + a[:, None] * x)
                    if trials.every_step or t == len(inputs) - 1:
                        found[0] += np.einsum("nt,nt->n", h, h)
                        found[1:] += targets[t if trials.every_step else 0, part].T @ h.T
            return found.ravel()

        sums = group_sums(trials, measure).reshape(-1, 1 + M, len(a))
        means = self._means(sums) / np.concatenate([a[None] ** 2, np.repeat(a[None], M, axis=0)])
        basis = np.cos(np.outer(np.arange(_NODES), angles)) * 2 / _NODES
        basis[0] /= 2
        coefficients = np.einsum("jn,rkn->jkr", basis, means)
        sizes = np.abs(coefficients[..., 0])
        # An output without covariance has no relative error.
        largest = np.maximum(sizes.max(axis=0), 1e-6 * sizes.max())
        return coefficients, float((sizes[-2:] / largest).max())


def _powers(coefficients: FloatArray) -> FloatArray:
    """The panels as powers of x in [-1, 1], values then slopes: (rows, panels, nodes, 2 x functions).

    Sixteen nodes lose four digits by this, which the table does not have, and are three times faster to evaluate.
    """
    turn = np.zeros((_NODES, _NODES))
    for n in range(_NODES):
        turn[: n + 1, n] = np.polynomial.chebyshev.cheb2poly(np.eye(_NODES)[n, : n + 1])
    powers = np.einsum("pn,jnkr->rjpk", turn, coefficients)
    slopes = np.zeros_like(powers)
    slopes[:, :, :-1] = powers[:, :, 1:] * np.arange(1, _NODES)[:, None]
    return np.concatenate([powers, slopes], axis=-1)
