"""The exact learning of a linear RNN with fixed recurrence, mode by mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from learncast import assumptions as conditions
from learncast.assumptions import Assumption
from learncast.dynamics import mode_equation
from learncast.dynamics.modes import Modes
from learncast.dynamics.solution import LearningTime, Solution, checked_time, checked_times
from learncast.networks.linear_rnn import LinearRNN
from learncast.trajectory import STEPS, Provenance, Status, Trajectory, described, spec_hash
from learncast.validation import FloatArray, between


@dataclass(frozen=True, eq=False, repr=False)
class ModeSolution(Solution):
    """Exact gradient flow of input and output weights under a fixed recurrence.

    Each mode follows `learncast.dynamics.mode_equation`; gradient descent at the learning rate follows the flow to
    first order, and its step counts are predicted with the leading correction.

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
        alignment = self.modes.alignment
        a, c = mode_equation.weights(alignment.input_weight, alignment.output_weight, strengths)
        over = ("time", "mode")
        dataset = xr.Dataset(
            {
                "strength": (over, strengths, described("strength u = a c of each mode", "1")),
                "input_weight": (over, a, described("input weight a of each mode", "1")),
                "output_weight": (over, c, described("output weight c of each mode", "1")),
                "loss": (
                    "time",
                    self.modes.loss(strengths),
                    described("half mean squared error", "target^2"),
                ),
                "excess_loss": (
                    "time",
                    self.modes.excess_loss(strengths),
                    described("loss above the optimum", "target^2"),
                ),
            },
            coords={
                "time": ("time", steps, described("training time", STEPS)),
                "mode": ("mode", np.arange(len(self.modes))),
            },
            attrs={"task": self.modes.task.name, "learning_rate": self.learning_rate},
        )
        return Trajectory(dataset, self.provenance)

    def _strengths(self, steps: FloatArray) -> FloatArray:
        m = self.modes
        return mode_equation.strength(
            steps[:, None] * self.learning_rate, m.start, m.imbalance, m.weighted_cross, m.weighted_input
        )

    def network_at(self, time: float) -> LinearRNN:
        """Return the network as it is after `time` gradient steps of the flow."""
        strengths = self._strengths(np.array([checked_time(time)]))[0]
        alignment, frame = self.modes.alignment, self.modes.frame
        a, c = mode_equation.weights(alignment.input_weight, alignment.output_weight, strengths)
        return LinearRNN(
            (alignment.directions * a) @ frame.mode_inputs.T,
            self.network.recurrent_weights,
            (frame.mode_outputs * c) @ alignment.directions.T,
        )

    def time_to(self, accuracy: float) -> LearningTime:
        """First entry of every mode into |u - u*| <= (1 - accuracy) |u*|, exactly."""
        accuracy = between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        m = self.modes
        arguments = (m.imbalance, m.weighted_cross, m.weighted_input)
        flow, edge = mode_equation.time_to_band(m.start, *arguments, 1.0 - accuracy)
        descent = descent_steps(m.start, edge, *arguments, flow, self.learning_rate)
        return LearningTime(accuracy, flow / self.learning_rate, descent, self._statuses(flow, descent))

    def _statuses(self, flow: FloatArray, descent: FloatArray) -> tuple[Status, ...]:
        flow_is_exact = conditions.exact(self.modes.assumptions)
        fine = Status.ok if flow_is_exact else Status.outside_theory
        return tuple(
            Status.outside_theory
            if np.isnan(t)
            else Status.not_learned
            if np.isinf(t)
            else Status.diverged
            if np.isinf(n)
            else fine
            for t, n in zip(flow, descent, strict=True)
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory, as measured."""
        m = self.modes
        sharp = mode_equation.sharpness(m.start, m.imbalance, m.weighted_cross, m.weighted_input)
        return (*m.assumptions, conditions.stable_learning_rate(self.learning_rate, sharp))

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.modes.task.hash, self.network.hash, self.learning_rate)
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), digest)

    def __repr__(self) -> str:
        return (
            f"<ModeSolution of {self.modes.task.name!r} at learning rate {self.learning_rate:g}: "
            f"{len(self.modes)} modes, {self.forecast_class}>"
        )


def descent_steps(
    start: FloatArray,
    end: FloatArray,
    imbalance: FloatArray,
    cross: FloatArray,
    power: FloatArray,
    flow_time: FloatArray,
    learning_rate: float,
    *,
    whole: bool = True,
) -> FloatArray:
    """Predicted gradient-descent steps for a passage of the flow; infinite where descent diverges.

    Flow time / learning rate plus the first-order correction, rounded up to the first whole step inside the band.
    """
    correction = mode_equation.descent_correction(start, end, imbalance, cross, power, flow_time)
    steps = flow_time / learning_rate + correction
    # Rounding in the band's edge must not turn an exact 331.0 into 332; and any passage takes a step.
    counted = np.where(flow_time > 0, np.maximum(np.ceil(steps - 1e-9), 1.0) if whole else steps, 0.0)
    unstable = learning_rate * mode_equation.sharpness(start, imbalance, cross, power) > 2.0
    counted = np.where(unstable & (flow_time > 0), np.inf, counted)
    return np.where(np.isnan(flow_time), np.nan, counted)
