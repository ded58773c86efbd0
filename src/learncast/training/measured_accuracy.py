"""Accuracy of a network in training, measured on the batches it is trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.best_map import best_map
from learncast.tasks.geometry import pooled_statistics, recurrence_kernel
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes
from learncast.theory.responses.modes import ResponseModes, ResponseModeSolution
from learncast.theory.responses.response import linear_weights
from learncast.training.torch_state import Resumable

#: From inputs, and whether answers are wanted at every step, to answers or features.
Answers = Callable[[FloatArray, bool], FloatArray]

#: Share of the output variance that a linear map of the pooled inputs may leave unexplained without a warning.
LINEAR = 1e-3
#: Rows per feature from which a least-squares fit is used.
ROWS = 4


class StrengthMeasure(Resumable):
    """Accuracy 1 - |u - u*| / |u*| of the worst mode, with strengths u of a linear network read from its outputs.

    With fixed scalar recurrence b, the output is a linear map of the pooled input z = sum_t b^(T-t) x_t. Least squares
    recovers it exactly from a batch with at least as many trials as inputs. Smaller batches are combined with earlier
    ones; the map is then that of a few steps ago. A mode with nothing to learn is measured relative to the largest
    optimum.

    Parameters
    ----------
    modes : Modes
        Of the stage's task.
    """

    kept = ("strength", "unexplained", "_recent")

    def __init__(self, modes: Modes) -> None:
        self.modes, self.strength = modes, np.full(len(modes), np.nan)
        self.unexplained = 0.0
        self._recent: deque[tuple[FloatArray, FloatArray]] = deque()

    def take(self, inputs: FloatArray, targets: FloatArray, output: FloatArray) -> float:
        """Return the accuracy after one more batch."""
        features = mode_features(self.modes, inputs, output.ndim == 3)
        wanted = output.reshape(-1, output.shape[-1]) @ self.modes.frame.outputs
        needed = features.shape[1]
        self._recent.append((features, wanted))
        while sum(len(f) for f, _ in self._recent) - len(self._recent[0][0]) >= needed:
            self._recent.popleft()
        if sum(len(f) for f, _ in self._recent) < needed:
            return float("nan")
        z, o = (np.concatenate(parts) for parts in zip(*self._recent, strict=True))
        fitted = np.linalg.lstsq(z, o, rcond=None)[0]
        self.strength = np.diagonal(fitted)[: len(self.modes)].copy()
        power = float((o**2).sum())
        self.unexplained = float(((o - z @ fitted) ** 2).sum()) / power if power > 0 else 0.0
        return self.accuracy_of(self.strength)

    def accuracy_of(self, strength: FloatArray) -> float:
        """Return the accuracy of the worst mode."""
        return float(self.modes.accuracy(strength).min())

    @property
    def warning(self) -> str:
        """Warns if the network is not the linear one of the plan."""
        if self.unexplained <= LINEAR:
            return ""
        return (
            f"outputs are not a linear map of the pooled inputs ({self.unexplained:.1%} unexplained), so the accuracy "
            "is unreliable; use criterion='loss'"
        )


def mode_features(modes: Modes, inputs: FloatArray, every_step: bool) -> FloatArray:
    """Return pooled inputs along the modes, each with its own recurrence, then along directions without a mode."""
    x = inputs if inputs.ndim == 3 else inputs[:, None, :]
    frame, b = modes.frame, modes.recurrence
    columns, rest = np.empty((len(x) * (x.shape[1] if every_step else 1), frame.modes)), []
    for value in sorted(set(b.tolist())):
        z = pooled_inputs(x, value, every_step).reshape(-1, x.shape[2]) @ frame.inputs
        here = b == value
        columns[:, here] = z[:, : frame.modes][:, here]
        rest.append(z[:, frame.modes :])
    return np.concatenate([columns, *rest], axis=1)


@dataclass(frozen=True, eq=False)
class LossRange:
    """Reference losses of a task.

    Attributes
    ----------
    baseline : float
        Excess loss of the zero map.
    learned : callable
        Answers of a network that has learned the task: (inputs, every_step) to (trials[, steps], outputs).
    learned_excess : float
        Excess loss of that network.
    features : callable or None
        Features of which these answers are the best linear map, so that the error is uncorrelated with them: (inputs,
        every_step) to (rows, features). None if the answers are not the best map.
    """

    baseline: float
    learned: Answers
    learned_excess: float = 0.0
    features: Answers | None = None

    @classmethod
    def of_modes(cls, modes: Modes) -> LossRange:
        """Return the range of a task with modes."""
        baseline = float(modes.excess_loss(np.zeros(len(modes))))
        if isinstance(modes, ResponseModes):
            weights = linear_weights(modes.response.network)
            best = answers_of(ResponseModeSolution(modes, weights, 1.0).network_at(np.inf))  # same for any rate
            return cls(baseline, best, features=lambda x, every_step: best(x, every_step).reshape(-1, 1))
        if len(set(modes.recurrence.tolist())) == 1:
            return cls.pooled(modes.task, float(modes.recurrence[0]))
        optimum = np.where(modes.weighted_input > 0, modes.optimum, 0.0)

        def learned(x: FloatArray, every_step: bool) -> FloatArray:
            rows = mode_features(modes, x, every_step)[:, : len(modes)] * optimum @ modes.frame.mode_outputs.T
            return rows.reshape(len(x), -1, rows.shape[1]) if every_step else rows

        return cls(baseline, learned, features=partial(mode_features, modes))

    @classmethod
    def pooled(cls, task: Task, recurrence: float) -> LossRange:
        """Return the range for one scalar recurrence, where the best map is known without modes."""
        cross, power = pooled_statistics(task, recurrence)
        best = best_map(power, cross.T).T

        def features(x: FloatArray, every_step: bool) -> FloatArray:
            return pooled_inputs(x, recurrence, every_step).reshape(-1, x.shape[2])

        def learned(x: FloatArray, every_step: bool) -> FloatArray:
            rows = pooled_inputs(x, recurrence, every_step) @ best
            return rows if every_step else rows[:, 0]

        return cls(float(np.trace(cross.T @ best)) / 2, learned, features=features)


def answers_of(network: LinearRNN | TwoLayer | Deep | Activated) -> Answers:
    """Return the answers of a described network as a function of trials."""
    if isinstance(network, TwoLayer):
        function = network.second @ network.first
        return lambda x, every_step: x @ function.T if every_step else x[:, 0] @ function.T
    return lambda x, every_step: np.asarray(network.respond(x, every_step=every_step))


def pooled_inputs(x: FloatArray, recurrence: float, every_step: bool) -> FloatArray:
    """Return z_r = sum_{t<=r} b^(r-t) x_t at every readout step, (trials, readouts, inputs)."""
    kernel = recurrence_kernel(recurrence, x.shape[1], x.shape[1] if every_step else 1)
    return np.tensordot(x, kernel, axes=([1], [0])).transpose(0, 2, 1)


class LossMeasure(Resumable):
    """Accuracy 1 - sqrt(excess / baseline), where the excess loss is averaged over the last batches.

    For one mode of a linear network this is 1 - |u - u*| / |u*|. The loss is half the squared error, summed over
    outputs and readout steps, mean over trials, computed from outputs and targets whatever loss is trained on.

    The noise of the targets would hide a small excess. With answers o, and answers p of a network that has learned the
    task, the excess over that network is E|o - p|^2 / 2 + E (o - p) (p - y). In the second term only the part of o - p
    counts that is not a linear map of the features of which p is the best map. On a batch, the term is therefore
    computed from the least-squares residual of o - p.

    Parameters
    ----------
    losses : LossRange
    window : int
        Batches in the mean; the accuracy is nan until there are as many.
    """

    warning = ""

    kept = ("_excess",)

    def __init__(self, losses: LossRange, window: int) -> None:
        self.losses = losses
        self._excess: deque[float] = deque(maxlen=window)

    def take(self, inputs: FloatArray, targets: FloatArray, output: FloatArray) -> float:
        """Return the accuracy after one more batch."""
        x, every_step = inputs if inputs.ndim == 3 else inputs[:, None, :], targets.ndim == 3
        learned = self.losses.learned(x, every_step)
        gap = (output - learned).reshape(-1, output.shape[-1])
        error = (learned - targets).reshape(gap.shape)
        residual, features = gap, None if self.losses.features is None else self.losses.features(x, every_step)
        if features is not None and len(features) >= ROWS * features.shape[1]:
            residual = gap - features @ np.linalg.lstsq(features, gap, rcond=None)[0]
        ahead = float((gap**2).sum() / 2 + (residual * error).sum()) / len(targets)
        self._excess.append(ahead + self.losses.learned_excess)
        if len(self._excess) < (self._excess.maxlen or 1):
            return float("nan")
        excess = max(float(np.mean(self._excess)), 0.0)
        return 1.0 - float(np.sqrt(excess / self.losses.baseline))


#: Measures the accuracy of a network batch by batch.
Measure = StrengthMeasure | LossMeasure
