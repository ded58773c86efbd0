"""The exact learning of a linear RNN with fixed recurrence, mode by mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast import assumptions as conditions
from learncast.assumptions import Assumption
from learncast.dynamics import mode_equation
from learncast.dynamics.learning_problem import LearningProblem, curvature
from learncast.dynamics.mode_equation import Problem
from learncast.dynamics.modes import Modes
from learncast.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.networks.linear_rnn import LinearRNN
from learncast.trajectory import Provenance, Status, Trajectory, spec_hash
from learncast.validation import FloatArray, between


@dataclass(frozen=True, eq=False, repr=False)
class ModeSolution(Solution):
    """Exact gradient flow of input and output weights under a fixed recurrence.

    Each mode follows `learncast.dynamics.mode_equation`; gradient descent at the learning rate follows the flow to
    first order, and its steps are counted.

    Assumes: static_geometry, aligned_input_covariance, normal_recurrence, aligned_start, stable_learning_rate
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
        a, c = self._weights(self._strengths(np.array([checked_time(time)]))[0])
        alignment, frame = self.modes.alignment, self.modes.frame
        first, second = (
            (alignment.directions * a) @ frame.mode_inputs.T,
            (frame.mode_outputs * c) @ alignment.directions.T,
        )
        return self.network.with_maps(first, second)

    @property
    def optimum(self) -> FloatArray:
        """Strength that minimises the loss, by mode."""
        return self.modes.optimum

    def time_to(self, accuracy: float) -> LearningTime:
        """First entry of every mode into |u - u*| <= (1 - accuracy) |u*|, exactly."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        m = self.modes
        arguments = (m.imbalance, m.weighted_cross, m.weighted_input)
        flow, _ = mode_equation.time_to_band(m.start, *arguments, 1.0 - accuracy)
        descent = self._counted((1.0 - accuracy) * mode_equation.band_scale(m.optimum))
        fine = Status.ok if conditions.exact(m.assumptions) else Status.outside_theory
        # Of what applies to a mode the last says it.
        status = np.full(flow.shape, fine, dtype=object)
        status[np.isinf(descent)] = Status.diverged
        status[np.isinf(flow)] = Status.not_learned
        status[np.isnan(flow)] = Status.outside_theory
        return LearningTime(accuracy, flow / self.learning_rate, descent, tuple(status))

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
        """Curvature of the whole loss at the start and at the end; a mode's growth between them adds nothing to it.

        Recurrent weights that are a matrix are taken as they act on the modes' hidden directions.
        """
        m, networks = self.modes, [self.network, self.network_at(math.inf)]
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
            f"{len(self.modes)} modes, {self.forecast_class}>"
        )
