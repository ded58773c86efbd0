"""A learning problem for any linear network: weights, their loss and its slope, from statistics alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.statistics import LagStatistics, loss_and_gradient
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.task import Task
from learncast.validation import FloatArray, one_of

Weights = dict[str, FloatArray]

#: Weights by kind of network, in the order of the network's own arguments.
KINDS = {LinearRNN: ("input", "recurrent", "output"), TwoLayer: ("first", "second")}

#: A two-layer network is a recurrent one of one step; its weights under the names the statistics use.
_AS_RECURRENT = {"first": "input", "second": "output"}


@dataclass(frozen=True, eq=False)
class LearningProblem:
    """A task, a network and the weights that learn.

    Attributes
    ----------
    task : Task
    network : LinearRNN or TwoLayer
        Before training.
    learn : tuple of str
        Names of the weights that learn: of "input", "recurrent", "output" (or "first", "second").
    """

    task: Task
    network: LinearRNN | TwoLayer
    learn: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, network: LinearRNN | TwoLayer, learn: tuple[str, ...] | None) -> LearningProblem:
        """Check that the three fit together."""
        if not isinstance(network, LinearRNN | TwoLayer):
            raise UnsupportedModel(
                required="the network must be a LinearRNN or a TwoLayer",
                got=type(network).__name__,
                why="the gradient is computed from the statistics of linear networks",
                remedy="describe it as learncast.LinearRNN(...) or learncast.TwoLayer(first, second)",
            )
        chosen = checked_learn(network, learn)
        if (task.inputs, task.outputs) != (network.inputs, network.outputs):
            raise InvalidSpec(
                required=f"task {task.name!r} must have the network's {network.inputs} inputs and "
                f"{network.outputs} outputs",
                got=f"{task.inputs} and {task.outputs}",
                why="the network could not be trained on it",
                remedy="match the network's inputs and outputs to the task's",
            )
        if isinstance(network, TwoLayer) and task.steps != 1:
            raise InvalidSpec(
                required="a two-layer network needs a static task (one step)",
                got=f"{task.steps} steps",
                why="it has no memory",
                remedy="use tasks.static or tasks.from_pairs, or a LinearRNN",
            )
        return cls(task, network, chosen)

    @property
    def start(self) -> Weights:
        """All weights before training."""
        if isinstance(self.network, TwoLayer):
            return {"first": self.network.first, "second": self.network.second}
        n = self.network
        return {"input": n.input_weights, "recurrent": n.recurrent_weights, "output": n.output_weights}

    def built(self, weights: Weights) -> LinearRNN | TwoLayer:
        """The network with these weights."""
        if isinstance(self.network, TwoLayer):
            return TwoLayer(weights["first"], weights["second"])
        return LinearRNN(weights["input"], weights["recurrent"], weights["output"])

    @cached_property
    def statistics(self) -> LagStatistics:
        """The task by lag behind the readout, pooled to one lag where recurrence is a fixed number."""
        whole = lag_statistics(self.task)
        b = self.pooled_recurrence
        return whole if b is None or whole.lags == 1 else whole.pooled(b)

    @cached_property
    def pooled_recurrence(self) -> float | None:
        """The fixed number that is the recurrence; None when it is learned or a matrix."""
        if isinstance(self.network, TwoLayer):
            return 0.0
        if "recurrent" in self.learn:
            return None
        W_h = self.network.recurrent_weights
        b = float(W_h[0, 0])
        scalar = np.array_equal(W_h, b * np.eye(len(W_h)))
        # Powers that overflow are an outcome of training, not of the statistics.
        return b if scalar and 2 * self.task.steps * np.log2(max(abs(b), 1.0)) < 900 else None

    def loss_and_slopes(self, weights: Weights, statistics: LagStatistics | None = None) -> tuple[float, Weights]:
        """Loss and the slopes of the weights that learn, on the task or on sampled statistics of it."""
        using = self.statistics if statistics is None else statistics
        if isinstance(self.network, TwoLayer):
            W_x, W_y = weights["first"], weights["second"]
        else:
            W_x, W_y = weights["input"], weights["output"]
        # With one (pooled) lag the recurrence no longer acts; a zero stands in for it.
        W_h = weights["recurrent"] if using.lags > 1 else np.zeros((len(W_x), len(W_x)))
        names = tuple(_AS_RECURRENT.get(name, name) for name in self.learn)
        value, slopes = loss_and_gradient(using, W_x, W_h, W_y, learn=names)
        return value, {name: slopes[_AS_RECURRENT.get(name, name)] for name in self.learn}

    @cached_property
    def frame(self) -> Frame:
        """Input and output directions of the task's modes, suited to the start."""
        maps = (self.function(self.start),)
        return common_frame([self.task], maps=maps)

    def function(self, weights: Weights) -> FloatArray:
        """The map of the newest input to the output, W_y W_x (W2 W1), (outputs, inputs)."""
        if isinstance(self.network, TwoLayer):
            return weights["second"] @ weights["first"]
        return weights["output"] @ weights["input"]

    def strengths(self, weights: Weights) -> FloatArray:
        """Strength of each mode: the diagonal of that map in the modes' frame."""
        f = self.frame
        return np.einsum("mk,mn,nk->k", f.mode_outputs, self.function(weights), f.mode_inputs)

    @cached_property
    def least_loss(self) -> float:
        """Loss of the best linear map that the readout can be: of the pooled input, or of all lags.

        Where recurrence is a fixed number the network can reach it (with enough hidden units). Where recurrence is a
        matrix or is learned it is the best any linear filter of the input does: a bound.
        """
        if self.pooled_recurrence is not None:
            return PooledProblem.of(self.task, self.network).least_loss
        s = self.statistics
        n = s.lags * s.inputs
        B = s.cross.transpose(0, 2, 1).reshape(n, s.outputs)
        if s.input is None:
            explained = float((B**2).sum())
        elif s.input.ndim == 1:
            scale = np.repeat(s.input, s.inputs)[:, None]
            explained = float((B**2 / np.where(scale > 0, scale, np.inf)).sum())
        else:
            A = s.input.reshape(n, n)
            explained = float(np.sum(B * np.linalg.lstsq(A, B, rcond=None)[0]))
        return s.constant - explained / 2

    def target_excess(self, accuracy: float) -> float:
        """Excess loss at which the learned map is within 1 - accuracy of the best one, in the task's own measure."""
        return (1 - accuracy) ** 2 * (self.statistics.constant - self.least_loss)


def checked_learn(network: LinearRNN | TwoLayer, learn: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the weights that learn, in the network's own order; all of them unless told."""
    names = KINDS[type(network)]
    chosen = names if learn is None else tuple(learn)
    for name in chosen:
        one_of("learn", name, names, why=f"these are the weights of a {type(network).__name__}")
    if not chosen:
        raise InvalidSpec(
            required="at least one kind of weights must learn",
            got="none",
            why="nothing would ever change",
            remedy=f"name some of {', '.join(names)}",
        )
    return tuple(name for name in names if name in chosen)


def lag_statistics(task: Task) -> LagStatistics:
    """A task's statistics by lag behind the readout."""
    cross = task.cross_covariance.dense()
    end = task.targets == "end"
    power = None
    if task.target_covariance is not None:
        per_step = np.einsum("rmrm->r", task.target_covariance.dense())
        power = per_step[0] if end else per_step
    return LagStatistics.from_covariances(
        task.input_covariance.dense(), cross[:, :, 0, :] if end else cross, target_power=power
    )
