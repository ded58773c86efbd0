"""One stage of training, for one problem or for a million at once.

Arrays end in the modes axis; any leading axes are separate problems. All modes of a problem share the stage's clock:
the stage ends when its slowest mode has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.dynamics import mode_equation
from learncast.dynamics.linear_rnn import descent_steps
from learncast.validation import FloatArray

#: Rounds of the fixed point that turns whole descent steps into flow time; each gains learning_rate x curvature.
_ROUNDS = 6


@dataclass(frozen=True)
class Problem:
    """Modes under one task: their recurrence-weighted strengths and conserved imbalance."""

    cross: FloatArray
    power: FloatArray
    imbalance: FloatArray

    def strength(self, time: Any, start: FloatArray) -> FloatArray:
        """Strengths after a flow time shared by the modes."""
        return mode_equation.strength(np.asarray(time)[..., None], start, self.imbalance, self.cross, self.power)

    def arrival(self, start: FloatArray, tolerance: Any) -> tuple[FloatArray, FloatArray]:
        """Flow time until all modes are within the tolerance, and the strengths then."""
        times, edges = mode_equation.time_to_band(
            start, self.imbalance, self.cross, self.power, np.asarray(tolerance)[..., None]
        )
        if times.shape[-1] == 1:  # one mode ends on the edge itself, no exponential needed
            return times[..., 0], edges
        last = times.max(axis=-1)
        return last, np.where(times == last[..., None], edges, self.strength(last, start))

    def passage(self, start: FloatArray, time: Any, learning_rate: float) -> FloatArray:
        """Descent steps (not rounded) that correspond to a flow time, per mode."""
        time = np.asarray(time)[..., None]
        end = self.strength(time[..., 0], start)
        return descent_steps(
            start,
            end,
            self.imbalance,
            self.cross,
            self.power,
            np.broadcast_to(time, end.shape),
            learning_rate,
            whole=False,
        )

    def descent_arrival(self, start: FloatArray, tolerance: Any, learning_rate: float) -> tuple[FloatArray, FloatArray]:
        """Whole descent steps until all modes are within the tolerance, and the strengths after them."""
        times, edges = mode_equation.time_to_band(
            start, self.imbalance, self.cross, self.power, np.asarray(tolerance)[..., None]
        )
        steps = descent_steps(start, edges, self.imbalance, self.cross, self.power, times, learning_rate).max(axis=-1)
        return steps, self.after_descent(start, steps, learning_rate)

    def after_descent(self, start: FloatArray, steps: Any, learning_rate: float) -> FloatArray:
        """Strengths after whole descent steps: the flow's at the time whose corrected count is those steps."""
        steps = np.asarray(steps, dtype=float)
        flow = np.where(np.isfinite(steps), steps, 0.0)[..., None] * learning_rate * np.ones_like(start)
        counted = flow / learning_rate
        for _ in range(_ROUNDS):
            end = mode_equation.strength(flow, start, self.imbalance, self.cross, self.power)
            correction = mode_equation.descent_correction(start, end, self.imbalance, self.cross, self.power, flow)
            # A mode already at its optimum to the last digit has no correction left to make.
            flow = np.where(np.isfinite(correction), learning_rate * np.maximum(counted - correction, 0.0), flow)
        end = mode_equation.strength(flow, start, self.imbalance, self.cross, self.power)
        forever = self.strength(np.full(steps.shape, np.inf), start)
        return np.where(np.isfinite(steps)[..., None], end, forever)
