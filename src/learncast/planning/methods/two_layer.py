"""The method for white pooled inputs and a balanced start: the exact two-layer flow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.deep import Deep
from learncast.planning.methods.linear import PooledMethod
from learncast.planning.methods.method import CONVERGED, Method
from learncast.procedure.goals import Goal
from learncast.results import Status
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.solution import Solution


class TwoLayerMethod(PooledMethod):
    """White pooled input and a balanced start: the exact flow for tasks of any geometry."""

    name = "two-layer"
    promise = "exact"
    kind = "theory"
    counts_many = False

    @property
    def citations(self) -> tuple[str, ...]:  # type: ignore[override]
        """Papers of the two-layer theory."""
        return self.flow(self.target, self.start).provenance.citations

    def flow(self, task: int, state: FloatArray) -> TwoLayerSolution:
        return cast(TwoLayerSolution, super().flow(task, state))

    def _flow(self, task: int, state: FloatArray) -> TwoLayerSolution:
        network = self.network_of(state)
        assert not isinstance(network, Deep)
        return TwoLayerSolution(replace(self.pooled[task], network=network), network, self.learning_rate, None)

    def solution(self) -> Solution:
        return self.flow(self.target, self.start)

    @property
    def for_plans(self) -> Method:
        """Descent counted on pooled statistics, if the flow from the start rests at a saddle that descent may leave."""
        saddles = [k for k in range(len(self.tasks)) if self.flow(k, self.start).orientation_margin == 0]
        if all(self.proved_never(k, self.start, CONVERGED) for k in saddles):
            return self
        return _PastSaddles(self)

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        return self.flow(task, self.start).assumptions

    def mode_rows(self, task: int, goal: Goal) -> list[dict[str, Any]]:
        solution = self.flow(task, self.start)
        status = self.learning_time(task, goal).status
        begin, end = solution.at([0.0, np.inf])["strength"].values
        # A mode at a saddle of the flow is lost unless descent leaves the saddle.
        left = status is not Status.not_learned and solution.orientation_margin == 0
        p, lost = solution.problem, set() if left else set(solution.flow.lost_modes.tolist())
        return [
            {
                "mode": k,
                "recurrence": p.recurrence,
                "weighted_cross": optimum * p.variance,
                "weighted_input": p.variance,
                "optimum": optimum,
                "initial": begin[k],
                "final": end[k],
                **({"flow_steps": math.inf, "descent_steps": math.inf} if k in lost else {}),
                "status": Status.not_learned.name if k in lost else status.name,
            }
            for k, optimum in enumerate(solution.optimum)
        ]


class _PastSaddles(PooledMethod):
    """Plans by descent that leaves saddles of the exact flow; direct training is reported by the exact flow."""

    def __init__(self, exact: TwoLayerMethod) -> None:
        super().__init__(exact.tasks, exact.network, exact.training, exact._resampling_seed)
        self._exact = exact

    @property
    def precise(self) -> Method:
        return self._exact
