"""Gradient descent of a linear RNN on a task's statistics: what training on endless data would do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.dynamics.modes import Modes
from learncast.dynamics.statistics import LagStatistics, loss_and_gradient
from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks.task import Task
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False)
class Descent:
    """Every step of a descent: the networks' mode strengths and losses, and the last network.

    Attributes
    ----------
    strength : (steps + 1, modes)
        Diagonal of the network's first-lag map in the frame of its modes.
    loss : (steps + 1,)
    network : LinearRNN
    """

    strength: FloatArray
    loss: FloatArray
    network: LinearRNN


def lag_statistics(task: Task) -> LagStatistics:
    """The task's statistics by lag behind the readout."""
    cross = task.cross_covariance.dense()
    power = None
    if task.target_covariance is not None:
        blocks = task.target_covariance.dense()
        per_step = np.einsum("rmrm->r", blocks)
        power = per_step[0] if task.targets == "end" else per_step
    return LagStatistics.from_covariances(
        task.input_covariance.dense(),
        cross[:, :, 0, :]
        if task.targets == "end" and task.steps > 1
        else cross
        if task.steps > 1
        else cross[:, :, 0, :],
        target_power=power,
    )


def descend_fixed_recurrence(
    task: Task, network: LinearRNN, modes: Modes, *, learning_rate: float, steps: int
) -> Descent:
    """Take whole gradient steps on input and output weights of the full network."""
    statistics = lag_statistics(task)
    W_x, W_h, W_y = network.input_weights.copy(), network.recurrent_weights, network.output_weights.copy()
    V, U = modes.frame.mode_inputs, modes.frame.mode_outputs
    strength, losses = np.empty((steps + 1, len(modes))), np.empty(steps + 1)
    for n in range(steps + 1):
        losses[n], slopes = loss_and_gradient(statistics, W_x, W_h, W_y, learn=("input", "output"))
        strength[n] = np.einsum("mk,mh,hn,nk->k", U, W_y, W_x, V, optimize=True)
        if n < steps:
            W_x = W_x - learning_rate * slopes["input"]
            W_y = W_y - learning_rate * slopes["output"]
    return Descent(strength, losses, LinearRNN(W_x, W_h, W_y))
