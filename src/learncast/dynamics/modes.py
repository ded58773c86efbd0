"""Modes: a task and a network taken apart into independent learning problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from learncast import assumptions as conditions
from learncast.assumptions import Assumption
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.alignment import Alignment
from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.task import Task
from learncast.validation import FloatArray

#: Relative imbalance that is round-off of the change of frame.
BALANCED = 1e-13


@dataclass(frozen=True, eq=False, repr=False)
class Modes:
    """One task seen by one network, mode by mode.

    Attributes
    ----------
    task : Task
    frame : Frame
        Input and output directions of the modes.
    alignment : Alignment
        The network's start in that frame: a, c and b of each mode.
    weighted_cross, weighted_input : (modes,)
        Recurrence-weighted singular values beta_yx and beta_xx.
    assumptions : tuple of Assumption
        How nearly the task and the network fall apart into these modes.
    """

    task: Task
    frame: Frame
    alignment: Alignment
    weighted_cross: FloatArray
    weighted_input: FloatArray
    assumptions: tuple[Assumption, ...]

    def __len__(self) -> int:
        return self.frame.modes

    @property
    def recurrence(self) -> FloatArray:
        """Eigenvalue b of the recurrence on each mode."""
        return self.alignment.recurrence

    @property
    def replicas(self) -> tuple[FloatArray, FloatArray] | None:
        """Bootstrap replicas of both weighted strengths, (replicas, modes), where they were measured on trials."""
        return None

    @property
    def start(self) -> FloatArray:
        """Initial strength u_0 = a c."""
        return self.alignment.input_weight * self.alignment.output_weight

    @property
    def imbalance(self) -> FloatArray:
        """The conserved lambda = a^2 - c^2."""
        a, c = self.alignment.input_weight, self.alignment.output_weight
        difference = (a - c) * (a + c)
        # Rotating weights into the frame leaves round-off, which must not let a balanced start off its separatrix.
        return np.where(np.abs(difference) <= BALANCED * (a**2 + c**2), 0.0, difference)

    @property
    def optimum(self) -> FloatArray:
        """Strength u* = beta_yx / beta_xx that minimises the loss; nan where the mode cannot influence it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.weighted_cross / self.weighted_input

    def loss(self, strengths: FloatArray) -> FloatArray:
        """Half mean squared error at strengths (..., modes): E|y|^2 / 2 + sum of (B u^2 / 2 - beta u).

        Unknown (nan) when the task's target covariance is.

        Implements: curriculum2025 Eq. (4), with the 1/2 on the quadratic term alone
        """
        quadratic = self.weighted_input * strengths**2 / 2 - self.weighted_cross * strengths
        return self.task.target_power / 2 + quadratic.sum(axis=-1)

    def excess_loss(self, strengths: FloatArray) -> FloatArray:
        """Loss above its minimum, sum over modes of B (u - u*)^2 / 2.

        Implements: curriculum2025 Eq. (37), completed to a square with the 1/2
        """
        best = np.where(self.weighted_input > 0, self.optimum, 0.0)
        return np.asarray((self.weighted_input * (strengths - best) ** 2 / 2).sum(axis=-1))

    def accuracy(self, strengths: FloatArray) -> FloatArray:
        """1 - |u - u*| / |u*| of each mode; 1 for a mode with nothing to learn that has learned nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            accuracy = 1 - np.abs(strengths - self.optimum) / np.abs(self.optimum)
        nothing_to_learn = (self.weighted_cross == 0) & ((strengths == 0) | (self.weighted_input == 0))
        return np.where(nothing_to_learn, 1.0, accuracy)

    @cached_property
    def cross_strength(self) -> FloatArray:
        """s_yx of each mode over time, (modes, steps, readouts)."""
        return self.task.cross_covariance.rotated(self.frame.mode_inputs, self.frame.mode_outputs).diagonal()

    @cached_property
    def input_strength(self) -> FloatArray:
        """s_xx of each mode over time, (modes, steps, steps)."""
        return self.task.input_covariance.rotated(self.frame.mode_inputs, self.frame.mode_inputs).diagonal()

    def __repr__(self) -> str:
        fails = [a.name for a in self.assumptions if not a.holds]
        health = "every condition holds" if not fails else f"fails {', '.join(fails)}"
        return (
            f"<Modes of {self.task.name!r}: {len(self)} modes, optimum {np.round(self.optimum, 6)}, "
            f"start {np.round(self.start, 8)}; {health}>"
        )


def modes(task: Task, network: LinearRNN) -> Modes:
    """Take a task and a network apart into modes, measuring how nearly that is possible."""
    return modes_of([task], network)[0]


def modes_of(tasks: Sequence[Task], network: LinearRNN) -> list[Modes]:
    """Take several tasks apart in one common frame, that of the first.

    Implements: curriculum2025 Eq. (32), with c for the output mode where the print repeats b
    """
    if not isinstance(network, LinearRNN):
        raise UnsupportedModel(
            required="the network must be a LinearRNN",
            got=type(network).__name__,
            why="modes are defined by its input, recurrent and output weights",
            remedy="describe it as learncast.LinearRNN(input_weights, recurrent_weights, output_weights)",
        )
    for task in tasks:
        if (task.inputs, task.outputs) != (network.inputs, network.outputs):
            raise InvalidSpec(
                required=f"task {task.name!r} must have the network's {network.inputs} inputs and "
                f"{network.outputs} outputs",
                got=f"{task.inputs} and {task.outputs}",
                why="the network could not be trained on it",
                remedy="match the network's input and output channels to the task's",
            )
    with np.errstate(over="ignore", invalid="ignore"):  # a recurrence that overflows is refused below, in words
        once = network.output_weights @ network.input_weights
        twice = network.output_weights @ network.recurrent_weights @ network.input_weights
    frame = common_frame(tasks, maps=[m for m in (once, twice) if np.isfinite(m).all()])
    alignment = Alignment.of(network, frame)
    shared = (
        conditions.normal_recurrence(alignment),
        conditions.aligned_start(alignment),
        conditions.balanced_start(alignment),
    )
    found = []
    for task in tasks:
        cross, power = weighted_strengths(task, frame, alignment.recurrence)
        own = (conditions.static_geometry(task, frame), conditions.aligned_input_covariance(task, frame))
        found.append(Modes(task, frame, alignment, cross, power, own + shared))
    return found


def recurrence_kernel(recurrence: float, steps: int, readouts: int) -> FloatArray:
    """Weight b^(r-t) with which input step t reaches readout step r >= t, (steps, readouts)."""
    with np.errstate(over="ignore"):
        powers = np.power(recurrence, np.arange(steps))  # 0^0 = 1: at b = 0 the last input counts alone
    if readouts == 1:
        return powers[::-1, None]
    reach = np.arange(steps)[None, :] - np.arange(steps)[:, None]
    return np.where(reach >= 0, powers[np.maximum(reach, 0)], 0.0)


def weighted_strengths(task: Task, frame: Frame, recurrence: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Recurrence-weighted singular values of each mode.

    beta_yx = sum_r sum_{t<=r} b^(r-t) s_yx(t, r) and beta_xx = sum_r sum_{t,t'<=r} b^(2r-t-t') s_xx(t, t'), where
    r runs over the readout steps (r = T alone for a target at the end).

    Implements: curriculum2025 Eq. (10), also for targets at every step
    Implements: curriculum2025 Eq. (39), the same printed again
    """
    cross, power = np.empty(frame.modes), np.empty(frame.modes)
    for b in sorted(set(recurrence.tolist())):
        here = recurrence == b
        pooled_cross, pooled_input = pooled_statistics(task, b)
        v, u = frame.mode_inputs[:, here], frame.mode_outputs[:, here]
        cross[here] = ((v.T @ pooled_cross) * u.T).sum(axis=1)
        power[here] = ((v.T @ pooled_input) * v.T).sum(axis=1)
    return cross, np.maximum(power, 0.0)  # a variance; round-off may leave -1e-17


def pooled_statistics(task: Task, recurrence: float) -> tuple[FloatArray, FloatArray]:
    """Cov(z, y) and Cov(z, z) of the pooled input z_r = sum_{t<=r} b^(r-t) x_t, summed over readout steps r."""
    kernel = recurrence_kernel(recurrence, task.steps, task.cross_covariance.shape[2])
    with np.errstate(over="ignore", invalid="ignore"):
        cross = task.cross_covariance.contracted(kernel)
        power = task.input_covariance.contracted(kernel @ kernel.T)
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(
            required="the recurrence must not overflow over a trial",
            got=f"eigenvalue {recurrence:.4g} over {task.steps} steps",
            why="the response to the first input is beyond the range of floating point",
            remedy="use a smaller recurrence or shorter trials",
        )
    return cross, power
