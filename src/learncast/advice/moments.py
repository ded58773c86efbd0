"""Second moments of a task by lag, for linear networks with biases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.tasks.covariance import check_memory
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import lag_statistics

#: Variables, targets and weights of readouts.
Rows = tuple[FloatArray, FloatArray, FloatArray | None]


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments by lag behind the readout of the input and a constant 1, summed over the readouts.

    The loss of a network whose answer is K times these variables is <K S, K>/2 - <K, X> + constant.

    Attributes
    ----------
    square : (variables, variables)
        S, with variables = lags x (inputs + 1), the constant 1 being the last input of each lag.
    cross : (outputs, variables)
        X.
    constant : float
        Half the mean squared target.
    least : float
        Loss of the best linear map with an offset.
    """

    square: FloatArray
    cross: FloatArray
    constant: float
    least: float
    lags: int
    inputs: int

    @classmethod
    def of(cls, task: Task, *, means: tuple[FloatArray, FloatArray] | None = None, affine: bool = True) -> Moments:
        """Collect a task's moments.

        Parameters
        ----------
        task : Task
        means : (steps, inputs) and (readouts, outputs) arrays, optional
            Mean input and target; zeros by default.
        affine : bool
            Whether the network, and so the best linear map, has an offset.
        """
        check_memory((task.steps * (task.inputs + 1)) ** 2, f"the moments of {task.name!r}")
        statistics = lag_statistics(task)
        lags, n, m = statistics.lags, task.inputs, task.outputs
        if np.isnan(statistics.constant):
            raise InvalidSpec(f"Task {task.name!r} needs target_covariance.", field="target_covariance")
        square, cross = np.zeros((lags, n + 1, lags, n + 1)), np.zeros((m, lags, n + 1))
        square[:, :n, :, :n] = statistics.input
        cross[:, :, :n] = statistics.cross.transpose(1, 0, 2)
        readouts = range(lags) if task.targets == "every_step" else [lags - 1]
        mean_x, mean_y = means if means is not None else (np.zeros((lags, n)), np.zeros((len(readouts), m)))
        for place, r in enumerate(readouts):
            reach = slice(0, r + 1)
            square[reach, n, reach, n] += 1.0  # lags before the first step have no constant
            square[reach, n, reach, :n] += mean_x[r::-1]
            square[reach, :n, reach, n] += mean_x[r::-1, :, None]
            cross[:, reach, n] += mean_y[place][:, None]
        flat, B = square.reshape(lags * (n + 1), -1), cross.reshape(m, -1)
        return cls._solved(flat, B, float(statistics.constant), lags, n, affine=affine)

    @classmethod
    def of_rows(cls, parts: Iterable[Rows], *, trials: int, lags: int, inputs: int, affine: bool = True) -> Moments:
        """Sum the moments of rows of variables, with targets and weights (rows, outputs).

        A readout with different weights of outputs gets the largest weight.
        """
        size = lags * (inputs + 1)
        check_memory(size**2, f"the moments of trials of {lags} steps and {inputs} inputs")
        square, cross, constant = np.zeros((size, size)), np.zeros(0), 0.0
        for rows, wanted, weights in parts:
            w = np.ones((len(rows), 1)) if weights is None else weights.max(1, keepdims=True)
            square += (rows * w).T @ rows
            cross = (cross if cross.size else 0.0) + (wanted * w).T @ rows
            constant += 0.5 * float((w * wanted**2).sum())
        return cls._solved(square / trials, cross / trials, constant / trials, lags, inputs, affine=affine)

    @classmethod
    def _solved(
        cls, square: FloatArray, cross: FloatArray, constant: float, lags: int, inputs: int, *, affine: bool
    ) -> Moments:
        """Add the loss of the best map."""
        used = np.ones(len(square), dtype=bool) if affine else np.tile(np.arange(inputs + 1) < inputs, lags)
        best = np.linalg.lstsq(square[np.ix_(used, used)], cross[:, used].T, rcond=None)[0]
        least = max(constant - 0.5 * float(np.sum(cross[:, used].T * best)), 0.0)
        return cls(square, cross, constant, least, lags, inputs)


@dataclass(frozen=True, eq=False)
class MomentStack:
    """Stacked moments of several tasks; shorter trials are padded with zeros."""

    square: Tensor
    cross: Tensor
    constant: Tensor
    lags: int

    @classmethod
    def of(cls, moments: Sequence[Moments]) -> MomentStack:
        """Stack moments; those of a single task serve any number of copies."""
        lags, width, outputs = max(m.lags for m in moments), moments[0].inputs + 1, len(moments[0].cross)
        size = lags * width
        square, cross = (torch.zeros(len(moments), n, size, dtype=torch.float64) for n in (size, outputs))
        for k, one in enumerate(moments):
            n = len(one.square)
            square[k, :n, :n] = torch.from_numpy(one.square)
            cross[k, :, :n] = torch.from_numpy(one.cross)
        return cls(square, cross, torch.tensor([m.constant for m in moments], dtype=torch.float64), lags)

    def loss_and_slope(self, filters: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each copy and its gradient in the copy's filters (copies, outputs, variables)."""
        slope = filters @ self.square - self.cross
        return self.constant + ((slope - self.cross) * filters).sum((1, 2)) / 2, slope

    def kept(self, index: Tensor) -> MomentStack:
        """Return the moments of some copies."""
        if len(self.constant) == 1:
            return self
        return MomentStack(self.square[index], self.cross[index], self.constant[index], self.lags)
