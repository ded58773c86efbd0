"""Modes: decomposition of a task and a network into independent learning problems, and their closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, between
from learncast.display import plural
from learncast.networks.linear_rnn import Alignment, LinearRNN, check_fit
from learncast.results import Provenance, Status, Trajectory, spec_hash
from learncast.tasks.covariance import Sampled
from learncast.tasks.geometry import ABSENT, Frame, common_frame, pooled_statistics
from learncast.tasks.recorded.resampling import resampled
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.learning_problem import LearningProblem, curvature, sharpest_curvature
from learncast.theory.dynamics.solution import LearningTime, Solution, checked_time, checked_times, status_of
from learncast.theory.dynamics.steps.mode_descent import MOST_STEPS, Problem

__all__ = ["ModeSolution", "Modes", "modes", "modes_of"]

#: Number of bootstrap resamples of a recorded task.
RESAMPLES = 200
#: Share of the weights below which a part across their hidden direction is rounding.
ACROSS = 1e-13


@dataclass(frozen=True, eq=False, repr=False)
class Modes:
    """Learning modes of one task and one network.

    Attributes
    ----------
    task : Task
    frame : Frame
        Input and output directions of the modes.
    alignment : Alignment
        Initial weights of the network in that frame: a, c and b of each mode.
    weighted_cross, weighted_input : (modes,)
        Recurrence-weighted singular values beta_yx and beta_xx.
    assumptions : tuple of Assumption
        Measured deviations from independent modes.
    resamples : pair of (resamples, modes), optional
        Bootstrap resamples of beta_yx and beta_xx in the same frame, if they were estimated from trials.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import modes
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> decomposed = modes(task, network)
    >>> len(decomposed), decomposed.optimum.round(3)
    (1, array([1.735]))
    """

    #: Forecast class if all conditions hold.
    promise: ClassVar[str] = "exact"
    task: Task
    frame: Frame
    alignment: Alignment
    weighted_cross: FloatArray
    weighted_input: FloatArray
    assumptions: tuple[Assumption, ...]
    resamples: tuple[FloatArray, FloatArray] | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return self.frame.modes

    @property
    def recurrence(self) -> FloatArray:
        """Eigenvalue b of the recurrence on each mode."""
        return self.alignment.recurrence

    def with_weights(self, input_weight: FloatArray, output_weight: FloatArray) -> Modes:
        """Return the modes with other initial weights."""
        return replace(self, alignment=replace(self.alignment, input_weight=input_weight, output_weight=output_weight))

    @property
    def start(self) -> FloatArray:
        """Initial strength u_0 = a c."""
        return self.alignment.input_weight * self.alignment.output_weight

    @property
    def imbalance(self) -> FloatArray:
        """Conserved imbalance lambda = a^2 - c^2."""
        return mode_equation.imbalance_of(self.alignment.input_weight, self.alignment.output_weight)

    @property
    def optimum(self) -> FloatArray:
        """Strength u* = beta_yx / beta_xx that minimises the loss; nan for modes without influence on the loss."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.weighted_cross / self.weighted_input

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Modes that the hidden units can hold, (modes,): the most valuable ones, and any that have weights."""
        value, units = self.weighted_input * self._best**2, len(self.alignment.directions)
        held = (value <= 0) | (self.alignment.input_weight != 0) | (self.alignment.output_weight != 0)
        held[np.argsort(-value, kind="stable")[:units]] = True
        return held

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return float((self.weighted_input * self._best**2 / 2)[~self.held].sum())

    @property
    def problem(self) -> Problem:
        """The modes that can be held, as a descent problem; the others have no influence."""
        return Problem(np.where(self.held, self.weighted_cross, 0.0), np.where(self.held, self.weighted_input, 0.0),
                       self.imbalance)  # fmt: skip

    def loss(self, strengths: FloatArray) -> FloatArray:
        """Half mean squared error at strengths (..., modes): E|y|^2 / 2 + sum of (B u^2 / 2 - beta u).

        It is nan if the target covariance of the task is unknown.

        Implements: curriculum2025 Eq. (4), with the 1/2 on the quadratic term only
        """
        quadratic = self.weighted_input * strengths**2 / 2 - self.weighted_cross * strengths
        return np.asarray(self.target_power / 2 + quadratic.sum(axis=-1))

    @property
    def target_power(self) -> float:
        """Mean squared target; nan if unknown."""
        return self.task.target_power

    def excess_loss(self, strengths: FloatArray) -> FloatArray:
        """Loss above the least that the hidden units allow, sum over modes of B (u - u*)^2 / 2.

        Implements: curriculum2025 Eq. (37), completed to a square with the 1/2
        """
        above = (self.weighted_input * (strengths - self._best) ** 2 / 2).sum(axis=-1)
        return np.asarray(above - self.bottleneck_loss)

    @cached_property
    def _best(self) -> FloatArray:
        """Optimum, 0 for modes without influence."""
        return np.where(self.weighted_input > 0, self.optimum, 0.0)

    def accuracy(self, strengths: FloatArray) -> FloatArray:
        """Return 1 - |u - u*| / |u*| of each mode that can be held; if u* = 0, relative to the strongest mode."""
        return np.where(self.held, mode_equation.accuracy(strengths, self.weighted_cross, self.weighted_input), 1.0)

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
        health = "all conditions hold" if not fails else f"fails {', '.join(fails)}"
        return (
            f"<Modes of {self.task.name!r}: {plural(len(self), 'mode')}, optimum {np.round(self.optimum, 6)}, "
            f"start {np.round(self.start, 8)}; {health}>"
        )


def modes(task: Task, network: LinearRNN) -> Modes:
    """Decompose a task and a network into modes, and measure how independent they are.

    Parameters
    ----------
    task : Task
    network : LinearRNN
        Before training.

    Returns
    -------
    Modes

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import modes
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> decomposed = modes(task, network)
    >>> decomposed.weighted_cross.round(3), decomposed.weighted_input.round(3)
    (array([21.753]), array([12.54]))
    """
    return modes_of([task], network)[0]


def modes_of(tasks: Sequence[Task], network: LinearRNN) -> list[Modes]:
    """Decompose several tasks in a common frame, that of the first task.

    Implements: curriculum2025 Eq. (32), with c for the output mode where the paper repeats b

    Parameters
    ----------
    tasks : sequence of Task
    network : LinearRNN
        Before training.

    Returns
    -------
    list of Modes
        One per task.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import modes_of
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=2.0)
    >>> [one.optimum.round(3).tolist() for one in modes_of([task, stronger], network)]
    [[1.735], [3.469]]
    """
    if not isinstance(network, LinearRNN):
        raise UnsupportedModel(f"network must be a LinearRNN, got {type(network).__name__}.", field="network")
    for task in tasks:
        check_fit(task, network)
    with np.errstate(over="ignore", invalid="ignore"):  # `Alignment.of` reports a recurrence that overflows
        once = network.output_weights @ network.input_weights
        twice = network.output_weights @ network.recurrent_weights @ network.input_weights
    maps = [m for m in (once, twice) if np.isfinite(m).all()]
    frame = common_frame(tasks, maps=maps, recurrence=network.scalar_recurrence, reading=network.input_weights)
    alignment = Alignment.of(network, frame)
    shared = (
        Assumption("normal_recurrence", alignment.recurrence_residual),
        conditions.balanced_start(alignment),
    )
    decomposed = []
    for task in tasks:
        strengths = weighted_strengths(task, frame, alignment.recurrence)
        own = (conditions.static_geometry(task, frame), conditions.aligned_input_covariance(task, frame))
        start = max(alignment.start_residual, _misaligned_growth(network, frame, alignment, strengths[0]))
        every = (*own, shared[0], Assumption("aligned_start", start), shared[1])
        decomposed.append(Modes(task, frame, alignment, *strengths, every))
    return decomposed


def _misaligned_growth(network: LinearRNN, frame: Frame, alignment: Alignment, cross: FloatArray) -> float:
    """Largest share across the hidden direction of what grows of a mode, for modes whose weights oppose the task.

    The sum of both weights' vectors grows, and their difference shrinks. In an opposed mode the sum is so small that
    parts across the direction, which are small next to the weights, decide how the mode leaves the saddle.
    """
    a, c, sign = alignment.input_weight, alignment.output_weight, np.sign(cross)
    growing = network.input_weights @ frame.mode_inputs + sign * (network.output_weights.T @ frame.mode_outputs)
    along = a + sign * c
    across = np.linalg.norm(growing - alignment.directions * along, axis=0)
    unsafe = (sign * a * c < 0) & (across > ACROSS * (np.abs(a) + np.abs(c)))
    return float((across / np.where(unsafe, np.hypot(across, along), np.inf)).max(initial=0.0))


def weighted_strengths(task: Task, frame: Frame, recurrence: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the recurrence-weighted singular values of each mode.

    beta_yx = sum_r sum_{t<=r} b^(r-t) s_yx(t, r) and beta_xx = sum_r sum_{t,t'<=r} b^(2r-t-t') s_xx(t, t'), where r
    runs over the readout steps (r = T for a target at the end). beta_yx is exactly 0 for a mode that is absent from the
    task with this recurrence.

    Implements: curriculum2025 Eq. (10), also for targets at every step
    Implements: curriculum2025 Eq. (39), which repeats Eq. (10)
    """
    cross, power = np.empty(frame.modes), np.empty(frame.modes)
    for b in sorted(set(recurrence.tolist())):
        here = recurrence == b
        pooled_cross, pooled_input = pooled_statistics(task, b)
        v, u = frame.mode_inputs[:, here], frame.mode_outputs[:, here]
        cross[here] = without_round_off(((v.T @ pooled_cross) * u.T).sum(axis=1), pooled_cross)
        power[here] = ((v.T @ pooled_input) * v.T).sum(axis=1)
    return cross, np.maximum(power, 0.0)  # round-off may leave -1e-17


def without_round_off(cross: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return the cross strengths with 0 for those that are round-off relative to the matrix they come from.

    Otherwise the modes that a target of low rank lacks would have a tiny optimum of either sign that takes for ever to
    reach.
    """
    return np.where(np.abs(cross) <= ABSENT * np.linalg.norm(matrix), 0.0, cross)


def can_be_resampled(task: Task) -> bool:
    """Return whether a task keeps trials, or blocks of them, so that its sampling error can be estimated."""
    return isinstance(task.cross_covariance, Sampled) or (
        task.recording is not None and (task.recording.blocks is not None or task.recording.masked is not None)
    )


def with_resamples(modes: Modes, rng: np.random.Generator) -> Modes:
    """Return the modes with bootstrap resamples of their strengths, if their task was recorded and they have none."""
    if modes.resamples is not None or not can_be_resampled(modes.task):
        return modes
    draws = (weighted_strengths(resampled(modes.task, rng), modes.frame, modes.recurrence) for _ in range(RESAMPLES))
    cross, power = map(np.stack, zip(*draws, strict=True))
    return replace(modes, resamples=(cross, power))


@dataclass(frozen=True, eq=False, repr=False)
class ModeSolution(Solution):
    """Exact gradient flow of input and output weights under a fixed recurrence.

    Each mode follows `learncast.theory.dynamics.mode_equation`. The steps of gradient descent are counted.

    Assumes: static_geometry, aligned_input_covariance, normal_recurrence, aligned_start, stable_learning_rate

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> solution
    <ModeSolution of 'integration' at learning rate 0.001: 1 mode, exact>
    >>> solution.at([0, 200, 400])["strength"].values.ravel().round(3)
    array([0.   , 0.446, 1.734])
    """

    modes: Modes
    network: LinearRNN
    learning_rate: float

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strength, weights and loss at times in gradient steps.

        Returns
        -------
        Trajectory
            ``strength``, ``input_weight``, ``output_weight`` over (time, mode); ``loss`` and ``excess_loss`` over time.
            The loss is half the mean squared error, summed over outputs and readout steps; nan if the target
            covariance of the task is unknown.
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
        return self._trajectory(steps, values, self.modes.task)

    def _strengths(self, steps: FloatArray) -> FloatArray:
        m = self.modes
        start, earlier = self._resolved_start
        if np.isposinf(steps).all() and ((start * m.optimum > 0) & np.isfinite(m.optimum)).all():  # same sign
            return np.tile(m.optimum, (len(steps), 1))
        time = np.maximum(steps[:, None] * self.learning_rate - earlier, 0.0)
        return mode_equation.strength(time, start, m.imbalance, m.weighted_cross, m.weighted_input)

    @cached_property
    def _resolved_start(self) -> tuple[FloatArray, FloatArray]:
        """Strength of each mode, not underflown, and the flow time until it is reached."""
        alignment = self.modes.alignment
        return mode_equation.resolved_start(alignment.input_weight, alignment.output_weight, self.modes.weighted_cross)

    def weights_at(self, times: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the input and output weight of each mode at times in gradient steps, (times, modes) each."""
        return self._weights(self._strengths(checked_times(times)))

    def _weights(self, strengths: FloatArray) -> tuple[FloatArray, FloatArray]:
        alignment = self.modes.alignment
        return mode_equation.weights(alignment.input_weight, alignment.output_weight, strengths)

    def network_at(self, time: float) -> LinearRNN:
        """Return the network after `time` gradient steps of the flow."""
        return self.network.with_layers(*self._maps_at(checked_time(time)))

    def _maps_at(self, time: float) -> tuple[FloatArray, FloatArray]:
        a, c = self._weights(self._strengths(np.array([time]))[0])
        alignment, frame = self.modes.alignment, self.modes.frame
        return (alignment.directions * a) @ frame.mode_inputs.T, (frame.mode_outputs * c) @ alignment.directions.T

    @property
    def optimum(self) -> FloatArray:
        """Strength of each mode that minimises the loss."""
        return self.modes.optimum

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the time at which each mode first satisfies |u - u*| <= (1 - accuracy) |u*|."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0)
        m = self.modes
        start, earlier = self._resolved_start
        flow, _ = mode_equation.time_to_band(start, m.imbalance, m.weighted_cross, m.weighted_input, 1.0 - accuracy)
        flow = flow + earlier
        descent = self._descent_steps((1.0 - accuracy) * mode_equation.band_scale(m.optimum))
        # Steps so short that they do not change a weight must not look like rest.
        too_many = np.isfinite(flow) & (flow > MOST_STEPS * self.learning_rate)
        descent = np.where(too_many, np.nan, descent)
        if not m.weighted_cross.any():  # nothing to learn
            flow, descent = np.zeros_like(flow), np.zeros_like(descent)
        known = self.conditions_until(float(flow[m.held].max(initial=0.0)) / self.learning_rate)
        status = tuple(status_of(f, d, known) for f, d in zip(flow, descent, strict=True))
        settles = np.array([s is not Status.diverged for s in status])
        descent = np.where(settles | np.isfinite(descent), descent, np.inf)
        return LearningTime(accuracy, flow / self.learning_rate, descent, status, held=m.held)

    def _descent_steps(self, distance: FloatArray) -> FloatArray:
        """Count the descent steps until each mode, in a row of its own, is within the distance of its optimum."""
        m = self.modes
        rows = Problem(m.weighted_cross[:, None], m.weighted_input[:, None], m.imbalance[:, None])
        weights = np.stack([m.alignment.input_weight, m.alignment.output_weight], axis=1)[..., None]
        return rows.steps_to(weights, rows.near(distance[:, None]), self.learning_rate)[0]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Measured conditions of the theory."""
        return (*self.modes.assumptions, conditions.stable_learning_rate(self.learning_rate, self.curvatures))

    def curvatures_until(self, steps: float) -> FloatArray:
        """Return the curvature at the start and at a stop, or the larger of them; it is no larger in between.

        A recurrence matrix is restricted to the hidden directions of the modes.
        """
        m = self.modes
        pooled = LearningProblem.of(m.task, self.network, ("input", "output")).pooled
        if pooled is not None:
            ends = [self.network.maps, self._maps_at(steps)]
            return np.array([sharpest_curvature(pooled.cross, pooled.power, ends)])
        networks = [self.network, self.network_at(steps)]
        if self.network.scalar_recurrence is None:
            to, b = m.alignment.directions, np.diag(m.recurrence)
            networks = [LinearRNN(to.T @ n.input_weights, b, n.output_weights @ to) for n in networks]
        return np.array([curvature(LearningProblem.of(m.task, n, ("input", "output"))) for n in networks])

    @property
    def bottleneck_loss(self) -> float:
        """Loss that is left because there are fewer hidden units than modes."""
        return self.modes.bottleneck_loss

    @property
    def remarks(self) -> tuple[str, ...]:
        """A note on the modes that the hidden units cannot hold."""
        m = self.modes
        if m.held.all():
            return ()
        numbers = ", ".join(map(str, np.flatnonzero(~m.held) + 1))
        return (
            f"{plural(len(m.alignment.directions), 'hidden unit')} cannot hold all {len(m)} modes: mode {numbers} and "
            f"a loss of {m.bottleneck_loss:.3g} are lost to this bottleneck",
        )

    @property
    def provenance(self) -> Provenance:
        """Origin of the numbers."""
        digest = spec_hash("modes", self.modes.task.hash, self.network.hash, self.learning_rate)
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), digest)

    def __repr__(self) -> str:
        return (
            f"<ModeSolution of {self.modes.task.name!r} at learning rate {self.learning_rate:g}: "
            f"{plural(len(self.modes), 'mode')}, {self.forecast_class}>"
        )
