"""Modes: a task and a network taken apart into independent learning problems, and their closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, between
from learncast.networks.linear_rnn import Alignment, LinearRNN, check_fit
from learncast.results import Provenance, Trajectory, spec_hash
from learncast.tasks.covariance import Sampled
from learncast.tasks.geometry import ABSENT, Frame, common_frame, pooled_statistics
from learncast.tasks.recorded.resampling import resampled
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.learning_problem import LearningProblem, curvature, sharpest_curvature
from learncast.theory.dynamics.mode_equation import BALANCED, Problem
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of

__all__ = ["ModeSolution", "Modes", "modes", "modes_of"]

#: Replicas drawn of every recorded task.
REPLICAS = 200


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
    drawn : pair of (replicas, modes), optional
        Bootstrap replicas of beta_yx and beta_xx in the estimate's own frame, where they were estimated from trials.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.modes import modes
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> found = modes(task, network)
    >>> len(found), found.optimum.round(3)
    (1, array([1.735]))
    """

    task: Task
    frame: Frame
    alignment: Alignment
    weighted_cross: FloatArray
    weighted_input: FloatArray
    assumptions: tuple[Assumption, ...]
    drawn: tuple[FloatArray, FloatArray] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return self.frame.modes

    @property
    def recurrence(self) -> FloatArray:
        """Eigenvalue b of the recurrence on each mode."""
        return self.alignment.recurrence

    @property
    def promise(self) -> str:
        """What may be promised where every condition holds."""
        return "exact"

    def moved(self, input_weight: FloatArray, output_weight: FloatArray) -> Modes:
        """The same modes from other weights."""
        here = replace(self.alignment, input_weight=input_weight, output_weight=output_weight)
        return replace(self, alignment=here)

    @property
    def replicas(self) -> tuple[FloatArray, FloatArray] | None:
        """Bootstrap replicas of both weighted strengths, (replicas, modes), where they were measured on trials."""
        return self.drawn

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
        return np.asarray((self.weighted_input * (strengths - self._best) ** 2 / 2).sum(axis=-1))

    @cached_property
    def _best(self) -> FloatArray:
        """The optimum, and 0 where there is none; asked for along whole courses."""
        return np.where(self.weighted_input > 0, self.optimum, 0.0)

    def accuracy(self, strengths: FloatArray) -> FloatArray:
        """1 - |u - u*| / |u*| of each mode; of one with nothing to learn, by the strongest mode's optimum."""
        return mode_equation.accuracy(strengths, self.weighted_cross, self.weighted_input)

    @cached_property
    def cross_strength(self) -> FloatArray:
        """s_yx of each mode over time, (modes, steps, readouts)."""
        return self.task.cross_covariance.rotated(self.frame.mode_inputs, self.frame.mode_outputs).diagonal()

    @cached_property
    def input_strength(self) -> FloatArray:
        """s_xx of each mode over time, (modes, steps, steps)."""
        return self.task.input_covariance.rotated(self.frame.mode_inputs, self.frame.mode_inputs).diagonal()

    @property
    def number(self) -> str:
        """How many there are, in words."""
        return "1 mode" if len(self) == 1 else f"{len(self)} modes"

    def __repr__(self) -> str:
        fails = [a.name for a in self.assumptions if not a.holds]
        health = "every condition holds" if not fails else f"fails {', '.join(fails)}"
        return (
            f"<Modes of {self.task.name!r}: {self.number}, optimum {np.round(self.optimum, 6)}, "
            f"start {np.round(self.start, 8)}; {health}>"
        )


def modes(task: Task, network: LinearRNN) -> Modes:
    """Take a task and a network apart into modes, measuring how nearly that is possible.

    Parameters
    ----------
    task : Task
    network : LinearRNN
        Before training.

    Returns
    -------
    Modes

    Raises
    ------
    UnsupportedModel
        If the network is no LinearRNN.
    InvalidSpec
        If the task has other channels than the network.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.modes import modes
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> found = modes(task, network)
    >>> found.weighted_cross.round(3), found.weighted_input.round(3)
    (array([21.753]), array([12.54]))
    """
    return modes_of([task], network)[0]


def modes_of(tasks: Sequence[Task], network: LinearRNN) -> list[Modes]:
    """Take several tasks apart in one common frame, that of the first.

    Implements: curriculum2025 Eq. (32), with c for the output mode where the print repeats b

    Parameters
    ----------
    tasks : sequence of Task
    network : LinearRNN
        Before training.

    Returns
    -------
    list of Modes
        One for each task.

    Raises
    ------
    UnsupportedModel
        If the network is no LinearRNN.
    InvalidSpec
        If a task has other channels than the network.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.dynamics.modes import modes_of
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=2.0)
    >>> [one.optimum.round(3).tolist() for one in modes_of([task, stronger], network)]
    [[1.735], [3.469]]
    """
    if not isinstance(network, LinearRNN):
        raise UnsupportedModel(
            f"the network must be a LinearRNN, got {type(network).__name__}. Describe it as "
            "learncast.LinearRNN(input_weights, recurrent_weights, output_weights)."
        )
    for task in tasks:
        check_fit(task, network)
    with np.errstate(over="ignore", invalid="ignore"):  # a recurrence that overflows is refused below, in words
        once = network.output_weights @ network.input_weights
        twice = network.output_weights @ network.recurrent_weights @ network.input_weights
    maps = [m for m in (once, twice) if np.isfinite(m).all()]
    frame = common_frame(tasks, maps=maps, recurrence=network.scalar_recurrence, reading=network.input_weights)
    alignment = Alignment.of(network, frame)
    shared = (
        Assumption("normal_recurrence", alignment.recurrence_residual),
        Assumption("aligned_start", alignment.start_residual),
        conditions.balanced_start(alignment),
    )
    found = []
    for task in tasks:
        cross, power = weighted_strengths(task, frame, alignment.recurrence)
        own = (conditions.static_geometry(task, frame), conditions.aligned_input_covariance(task, frame))
        found.append(Modes(task, frame, alignment, cross, power, own + shared))
    return found


def weighted_strengths(task: Task, frame: Frame, recurrence: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Recurrence-weighted singular values of each mode.

    beta_yx = sum_r sum_{t<=r} b^(r-t) s_yx(t, r) and beta_xx = sum_r sum_{t,t'<=r} b^(2r-t-t') s_xx(t, t'), where
    r runs over the readout steps (r = T alone for a target at the end). beta_yx is exactly 0 for a mode that the task,
    seen through this recurrence, does not have.

    Implements: curriculum2025 Eq. (10), also for targets at every step
    Implements: curriculum2025 Eq. (39), the same printed again
    """
    cross, power = np.empty(frame.modes), np.empty(frame.modes)
    for b in sorted(set(recurrence.tolist())):
        here = recurrence == b
        pooled_cross, pooled_input = pooled_statistics(task, b)
        v, u = frame.mode_inputs[:, here], frame.mode_outputs[:, here]
        cross[here] = without_round_off(((v.T @ pooled_cross) * u.T).sum(axis=1), pooled_cross)
        power[here] = ((v.T @ pooled_input) * v.T).sum(axis=1)
    return cross, np.maximum(power, 0.0)  # a variance; round-off may leave -1e-17


def without_round_off(cross: FloatArray, whole: FloatArray) -> FloatArray:
    """Cross strengths with 0 for those that are a round-off of the matrix they are a part of.

    A target of lower rank than its channels leaves such, of either sign: modes with nothing to learn would otherwise
    have an optimum that takes for ever to reach. Frames do not tell weaker modes apart.
    """
    return np.where(np.abs(cross) <= ABSENT * np.linalg.norm(whole), 0.0, cross)


def can_be_resampled(task: Task) -> bool:
    """Whether a task keeps the trials, or blocks of them, that tell its sampling error."""
    return isinstance(task.cross_covariance, Sampled) or (
        task.recording is not None and (task.recording.blocks is not None or task.recording.masked is not None)
    )


def with_replicas(m: Modes, rng: np.random.Generator, replicas: int = REPLICAS) -> Modes:
    """The same modes with replicas where their task was recorded; as they are otherwise."""
    if m.replicas is not None or not can_be_resampled(m.task):
        return m
    rows = [weighted_strengths(resampled(m.task, rng), m.frame, m.recurrence) for _ in range(replicas)]
    cross, power = (np.stack([row[k] for row in rows]) for k in (0, 1))
    return replace(m, drawn=(cross, power))


@dataclass(frozen=True, eq=False, repr=False)
class ModeSolution(Solution):
    """Exact gradient flow of input and output weights under a fixed recurrence.

    Each mode follows `learncast.theory.dynamics.mode_equation`; gradient descent at the learning rate follows the flow to
    first order, and its steps are counted.

    Assumes: static_geometry, aligned_input_covariance, normal_recurrence, aligned_start, stable_learning_rate

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> solution
    <ModeSolution of 'integration' at learning rate 0.001: 1 mode, exact>
    >>> solution.at([0, 200, 400])["strength"].values.ravel().round(3)
    array([0.   , 0.446, 1.734])
    """

    modes: Modes
    network: LinearRNN
    learning_rate: float

    def at(self, times: Any) -> Trajectory:
        """Strength, weights and loss at times in gradient steps.

        Returns
        -------
        Trajectory
            ``strength``, ``input_weight``, ``output_weight`` over (time, mode); ``loss`` and ``excess_loss`` over
            time. The loss is half the mean squared error summed over outputs (and readout steps); nan
            when the task's target covariance is unknown.
        """
        steps = checked_times(times)
        strengths = self._strengths(steps)
        a, c = self._weights(strengths)
        values = {
            "strength": strengths,
            "input_weight": a,
            "output_weight": c,
            "loss": self.modes.loss(strengths),
            "excess_loss": self.modes.excess_loss(strengths),
        }
        return Trajectory.of(
            steps, values, self.provenance, task=self.modes.task.name, learning_rate=self.learning_rate
        )

    def _strengths(self, steps: FloatArray) -> FloatArray:
        m = self.modes
        return mode_equation.strength(
            steps[:, None] * self.learning_rate, m.start, m.imbalance, m.weighted_cross, m.weighted_input
        )

    def weights_at(self, times: Any) -> tuple[FloatArray, FloatArray]:
        """Input and output weight of each mode at times in gradient steps, (times, modes) each."""
        return self._weights(self._strengths(checked_times(times)))

    def _weights(self, strengths: FloatArray) -> tuple[FloatArray, FloatArray]:
        alignment = self.modes.alignment
        return mode_equation.weights(alignment.input_weight, alignment.output_weight, strengths)

    def network_at(self, time: float) -> LinearRNN:
        """Return the network as it is after `time` gradient steps of the flow."""
        return self.network.with_maps(*self._maps_at(checked_time(time)))

    def _maps_at(self, time: float) -> tuple[FloatArray, FloatArray]:
        a, c = self._weights(self._strengths(np.array([time]))[0])
        alignment, frame = self.modes.alignment, self.modes.frame
        return (alignment.directions * a) @ frame.mode_inputs.T, (frame.mode_outputs * c) @ alignment.directions.T

    @property
    def optimum(self) -> FloatArray:
        """Strength that minimises the loss, by mode."""
        return self.modes.optimum

    def time_to(self, accuracy: float) -> LearningTime:
        """First entry of every mode into |u - u*| <= (1 - accuracy) |u*|, exactly."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        m = self.modes
        arguments = (m.imbalance, m.weighted_cross, m.weighted_input)
        flow, _ = mode_equation.time_to_band(m.start, *arguments, 1.0 - accuracy)
        descent = self._counted((1.0 - accuracy) * mode_equation.band_scale(m.optimum))
        status = tuple(status_of(f, d, self.assumptions) for f, d in zip(flow, descent, strict=True))
        return LearningTime(accuracy, flow / self.learning_rate, descent, status)

    def _counted(self, room: FloatArray) -> FloatArray:
        """Steps of gradient descent until each mode by itself is so near its optimum."""
        m = self.modes
        apart = Problem(m.weighted_cross[:, None], m.weighted_input[:, None], m.imbalance[:, None])
        weights = np.stack([m.alignment.input_weight, m.alignment.output_weight], axis=1)[..., None]
        return apart.counted(weights, apart.near(room[:, None]), self.learning_rate)[0]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory, as measured."""
        return (*self.modes.assumptions, conditions.stable_learning_rate(self.learning_rate, self.curvatures))

    @cached_property
    def curvatures(self) -> FloatArray:
        """Curvature of the whole loss at the start and at the end, or the larger of them; growth in between adds none.

        Recurrent weights that are a matrix are taken as they act on the modes' hidden directions.
        """
        m = self.modes
        pooled = LearningProblem.of(m.task, self.network, ("input", "output")).pooled_recurrence
        if pooled is not None:
            cross, power = pooled_statistics(m.task, pooled)
            return np.array([sharpest_curvature(cross.T, power, [self.network.maps, self._maps_at(math.inf)])])
        networks = [self.network, self.network_at(math.inf)]
        if self.network.scalar_recurrence is None:
            to, b = m.alignment.directions, np.diag(m.recurrence)
            networks = [LinearRNN(to.T @ n.input_weights, b, n.output_weights @ to) for n in networks]
        return np.array([curvature(LearningProblem.of(m.task, n, ("input", "output"))) for n in networks])

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash("modes", self.modes.task.hash, self.network.hash, self.learning_rate)
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), digest)

    def __repr__(self) -> str:
        return (
            f"<ModeSolution of {self.modes.task.name!r} at learning rate {self.learning_rate:g}: "
            f"{self.modes.number}, {self.forecast_class}>"
        )
