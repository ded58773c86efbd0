"""The method for linear networks of any number of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.deep import Deep
from learncast.planning.methods.linear import PRECISE, TOLERANCE, PooledMethod
from learncast.planning.methods.method import Method
from learncast.procedure.goals import Goal
from learncast.procedure.training import Training
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.deep import DeepModes, DeepSolution
from learncast.theory.dynamics.learning_problem import DeepProblem
from learncast.theory.dynamics.solution import Solution
from learncast.theory.dynamics.steps.deep_descent import DeepDescent
from learncast.theory.dynamics.steps.pooled_descent import PooledDescent, hidden_basis


class DeepMethod(PooledMethod):
    """Any number of layers on the pooled input: descent counted on the statistics, for any covariance and start.

    A state is all weights, flattened, each layer in the hidden directions that the layers around it use: descent never
    leaves these. The flow has a closed form if the layers are balanced and aligned with the modes of the task.
    """

    name = "deep"
    network: Deep

    def __init__(self, tasks: Sequence[Task], network: Deep, training: Training, seed: int = 0) -> None:
        super().__init__(tasks, network, training, seed)
        if all(modes.closed for modes in self._modes):
            self.promise, self.kind = "exact", "theory"

    @cached_property
    def _modes(self) -> list[DeepModes]:
        """The start on the modes of each task."""
        return [DeepModes(cast(DeepProblem, problem)) for problem in self.problems]

    @cached_property
    def _bases(self) -> list[FloatArray]:
        """Directions of the inputs, of each hidden layer and of the outputs in which weights move."""
        weights = self.network.weights
        hidden = [hidden_basis(one, two) for one, two in pairwise(weights)]
        return [np.eye(self.network.inputs), *hidden, np.eye(self.network.outputs)]

    def _descent(self, power: FloatArray, cross: FloatArray) -> PooledDescent:
        widths = [basis.shape[1] for basis in self._bases]
        return DeepDescent(power, cross, self.network.hidden_size, tuple((m, n) for n, m in pairwise(widths)))

    def _state_of(self, network: Deep) -> FloatArray:  # type: ignore[override]
        layers = zip(self._bases[1:], network.weights, self._bases, strict=False)
        return np.concatenate([(two.T @ w @ one).ravel() for two, w, one in layers])

    def _weights(self, state: FloatArray) -> dict[str, FloatArray]:
        descent = self.descents[0]
        assert isinstance(descent, DeepDescent)
        layers = zip(self._bases[1:], descent.layers(state), self._bases, strict=False)
        return dict(zip(self.learn, (two @ w @ one.T for two, w, one in layers), strict=True))

    def network_of(self, state: FloatArray) -> Deep:
        return self.network if state is self.start else self.network.with_weights(self._weights(state))

    def proved_never(self, task: int, state: FloatArray, goal: Goal) -> bool:
        """Whether the weights stay in too few hidden directions, or aligned modes shrink at every step."""
        if Method.proved_never(self, task, state, goal):
            return True
        network = self.network_of(state)
        limit, weights = self.goal_excess(task, goal), network.weights
        pairs = zip(self._bases[1:-1], weights, weights[1:], strict=False)
        rank = min(basis.shape[1] if one.any() or two.any() else 0 for basis, one, two in pairs)
        if limit <= 0 or self.descents[task].loss_without(rank) > limit:
            return True
        solution = self._solution(task, network, TOLERANCE)
        return solution.modes.closed and solution.lost_for_ever > limit

    def measure_conditions(self, task: int) -> tuple[Assumption, ...]:
        modes = self._modes[task]
        return (*(modes.assumptions if modes.closed else ()), *super().measure_conditions(task))

    def _solution(self, task: int, network: Deep, tolerance: float) -> DeepSolution:
        problem = replace(cast(DeepProblem, self.problems[task]), network=network)
        return DeepSolution(problem, self.learning_rate, self.conditions(task), tolerance)

    def _flow(self, task: int, state: FloatArray) -> Solution:
        return self._solution(task, self.network_of(state), TOLERANCE)

    def solution(self) -> Solution:
        return self._solution(self.target, self.network, PRECISE)
