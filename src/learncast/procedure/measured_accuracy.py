"""The accuracy of a network in training, measured on the batches it is trained on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.geometry import pooled_statistics, recurrence_kernel
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes
from learncast.theory.responses.modes import ResponseModes, ResponseModeSolution
from learncast.theory.responses.response import linear_weights

#: From inputs, and whether answers are wanted at every step, to answers or features.
Answers = Callable[[FloatArray, bool], FloatArray]

#: Share of a batch's outputs that a linear map of pooled inputs may leave unexplained before the report says so.
LINEAR = 1e-3
#: Rows per feature from which a fit leaves what the features do not say.
ROWS = 4


class StrengthMeasure:
    """The worst mode's 1 - |u - u*| / |u*|, with the strengths u of a linear network seen in its outputs.

    With fixed recurrence b the output is a linear map of the pooled input z = sum_t b^(T-t) x_t, which least squares
    recovers exactly from a batch of at least as many trials as inputs. Smaller batches are put together with the ones
    before until there are enough; the map is then that of a few steps ago. A mode with nothing to learn is measured
    against the largest optimum.

    Parameters
    ----------
    modes : Modes
        The stage's task, as the plan saw it.
    """

    def __init__(self, modes: Modes) -> None:
        self.modes, self.strength = modes, np.full(len(modes), np.nan)
        self.unexplained = 0.0
        self._recent: deque[tuple[FloatArray, FloatArray]] = deque()

    def take(self, inputs: FloatArray, targets: FloatArray, output: FloatArray) -> float:
        """The accuracy after one more batch."""
        features = mode_features(self.modes, inputs, output.ndim == 3)
        wanted = output.reshape(-1, output.shape[-1]) @ self.modes.frame.outputs
        needed = features.shape[1]
        self._recent.append((features, wanted))
        while sum(len(f) for f, _ in self._recent) - len(self._recent[0][0]) >= needed:
            self._recent.popleft()
        if sum(len(f) for f, _ in self._recent) < needed:
            return float("nan")
        z, o = (np.concatenate(parts) for parts in zip(*self._recent, strict=True))
        found = np.linalg.lstsq(z, o, rcond=None)[0]
        self.strength = np.diagonal(found)[: len(self.modes)].copy()
        power = float((o**2).sum())
        self.unexplained = float(((o - z @ found) ** 2).sum()) / power if power > 0 else 0.0
        return self.accuracy_of(self.strength)

    def accuracy_of(self, strength: FloatArray) -> float:
        """Accuracy of the worst mode at given strengths."""
        return float(self.modes.accuracy(strength).min())

    @property
    def remark(self) -> str:
        """Says when the network is not the linear one that was planned for."""
        if self.unexplained <= LINEAR:
            return ""
        return (
            f"its outputs are not a linear map of the pooled inputs ({self.unexplained:.1%} unexplained), so its "
            "accuracy is doubtful; use criterion='loss'"
        )

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        recent = [[features.tolist(), wanted.tolist()] for features, wanted in self._recent]
        return {"strength": self.strength.tolist(), "unexplained": self.unexplained, "recent": recent}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.strength, self.unexplained = np.array(state["strength"]), float(state["unexplained"])
        self._recent = deque((np.array(f), np.array(w)) for f, w in state["recent"])


def mode_features(modes: Modes, inputs: FloatArray, every_step: bool) -> FloatArray:
    """Pooled inputs along the modes, each with its own recurrence, then along what no mode reads."""
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
    """What a loss is judged by.

    Attributes
    ----------
    whole : float
        Loss of a network that answers nothing, above the least loss on the task.
    learned : callable
        What a network that has learned the task answers: (inputs, every_step) to outputs, (trials[, steps], outputs).
    learned_excess : float
        The loss of that network above the least.
    features : callable or None
        What its error is uncorrelated with, since it is the best map of them: (inputs, every_step) to (rows, features);
        None where it is not quite the best.
    """

    whole: float
    learned: Answers
    learned_excess: float = 0.0
    features: Answers | None = None

    @classmethod
    def of_modes(cls, modes: Modes) -> LossRange:
        """That of a task taken apart into modes."""
        whole = float(modes.excess_loss(np.zeros(len(modes))))
        if isinstance(modes, ResponseModes):
            weights = linear_weights(modes.response.network)
            best = answers_of(ResponseModeSolution(modes, weights, 1.0).network_at(np.inf))  # the same at any rate
            return cls(whole, best, features=lambda x, every_step: best(x, every_step).reshape(-1, 1))
        if len(set(modes.recurrence.tolist())) == 1:
            return cls.pooled(modes.task, float(modes.recurrence[0]))
        optimum = np.where(modes.weighted_input > 0, modes.optimum, 0.0)

        def learned(x: FloatArray, every_step: bool) -> FloatArray:
            rows = mode_features(modes, x, every_step)[:, : len(modes)] * optimum @ modes.frame.mode_outputs.T
            return rows.reshape(len(x), -1, rows.shape[1]) if every_step else rows

        return cls(whole, learned, features=partial(mode_features, modes))

    @classmethod
    def pooled(cls, task: Task, recurrence: float) -> LossRange:
        """One recurrence for all inputs: the best map is known even where modes mix."""
        cross, power = pooled_statistics(task, recurrence)
        best = np.linalg.pinv(power, hermitian=True) @ cross

        def features(x: FloatArray, every_step: bool) -> FloatArray:
            return pooled_inputs(x, recurrence, every_step).reshape(-1, x.shape[2])

        def learned(x: FloatArray, every_step: bool) -> FloatArray:
            rows = pooled_inputs(x, recurrence, every_step) @ best
            return rows if every_step else rows[:, 0]

        return cls(float(np.trace(cross.T @ best)) / 2, learned, features=features)


def answers_of(network: Any) -> Answers:
    """What a described network answers to trials."""
    if isinstance(network, TwoLayer):
        whole = network.second @ network.first
        return lambda x, every_step: x @ whole.T if every_step else x[:, 0] @ whole.T
    return lambda x, every_step: np.asarray(network.respond(x, every_step=every_step))


def pooled_inputs(x: FloatArray, recurrence: float, every_step: bool) -> FloatArray:
    """The pooled input z_r = sum_{t<=r} b^(r-t) x_t at every readout step, (trials, readouts, inputs)."""
    kernel = recurrence_kernel(recurrence, x.shape[1], x.shape[1] if every_step else 1)
    return np.tensordot(x, kernel, axes=([1], [0])).transpose(0, 2, 1)


class LossMeasure:
    """1 - sqrt(excess / whole), where the excess of the loss over its least is a mean over the last batches.

    The excess is at most (1 - accuracy)^2 of what a silent network exceeds the least loss by; for one mode of a linear
    network that is |u - u*| <= (1 - accuracy) |u*|. The loss is half the squared error, summed over outputs and readout
    steps, mean over trials, and is computed here from outputs and targets, whatever loss is trained on.

    Noise of the targets would hide the last of the excess. With o the answers and p those of a network that has learned
    the task, the excess over its loss is E|o - p|^2 / 2 + E (o - p) (p - y), and in the second term only that part of
    o - p counts which is no linear map of the features that p is the best map of: none for a network of the planned
    kind. On a batch the term is therefore taken of what least squares leave of o - p.

    Parameters
    ----------
    losses : LossRange
    window : int
        Batches in the mean; the accuracy is unknown before there are as many.
    """

    def __init__(self, losses: LossRange, window: int) -> None:
        self.losses = losses
        self.remark = ""  # a loss needs no caution
        self._excess: deque[float] = deque(maxlen=window)

    def take(self, inputs: FloatArray, targets: FloatArray, output: FloatArray) -> float:
        """The accuracy after one more batch."""
        x, every_step = inputs if inputs.ndim == 3 else inputs[:, None, :], targets.ndim == 3
        learned = self.losses.learned(x, every_step)
        gap = (output - learned).reshape(-1, output.shape[-1])
        error = (learned - targets).reshape(gap.shape)
        odd, features = gap, None if self.losses.features is None else self.losses.features(x, every_step)
        if features is not None and len(features) >= ROWS * features.shape[1]:
            odd = gap - features @ np.linalg.lstsq(features, gap, rcond=None)[0]
        ahead = float((gap**2).sum() / 2 + (odd * error).sum()) / len(targets)
        self._excess.append(ahead + self.losses.learned_excess)
        if len(self._excess) < (self._excess.maxlen or 1):
            return float("nan")
        excess = max(float(np.mean(self._excess)), 0.0)
        return 1.0 - float(np.sqrt(excess / self.losses.whole))

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        return {"excess": list(self._excess)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._excess.extend(float(value) for value in state["excess"])


#: What tells how accurate a network is, batch by batch.
Measure = StrengthMeasure | LossMeasure
