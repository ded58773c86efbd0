"""A terrain: where training on any task of a pool leads from any network, when modes do not tell."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from learncast.assumptions import Assumption, exact, worst
from learncast.dynamics.descent import descend
from learncast.dynamics.gradient_flow import gradient_flow
from learncast.dynamics.learning_problem import LearningProblem
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.solution import Solution
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.responses.problem import small_problem
from learncast.responses.response import Response, response
from learncast.responses.solution import ResponseFlowSolution
from learncast.tasks.covariance import Dense
from learncast.tasks.task import Task
from learncast.trajectory import Status
from learncast.validation import FloatArray

#: Error per step of flows that are searched, and of the plans that are reported.
SEARCHED = 1e-6
REPORTED = 1e-8

#: Descent steps counted one by one before a count is given up.
MOST_COUNTED = 50_000

Network = Any  # LinearRNN, TwoLayer or Activated: whatever the terrain's own solutions return


class Terrain(ABC):
    """Training on each of several tasks, the target last, from wherever the network is.

    Learned is measured by the loss: a task is learned to an accuracy when the excess loss is (1 - accuracy)^2 of what a
    network that answers nothing has. For one mode that is the tolerance on its strength.

    Attributes
    ----------
    tasks : tuple of Task
        The pool; the target is the last.
    start : LinearRNN, TwoLayer or Activated
    learning_rate : float
    """

    #: What may be promised.
    forecast_class: str
    #: Papers the solutions rest on, and what finds them.
    citations: tuple[str, ...] = ()
    kind: str = "flow"

    def __init__(self, tasks: Sequence[Task], start: Network, learning_rate: float) -> None:
        self.tasks, self.start, self.learning_rate = tuple(tasks), start, learning_rate

    @property
    def precise(self) -> Terrain:
        """The same to the precision of a report, where searching is less precise."""
        return self

    @property
    def target(self) -> int:
        """Place of the target."""
        return len(self.tasks) - 1

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions of the theory at the start, the worst of each over the tasks."""
        return ()

    @abstractmethod
    def course(self, task: int, network: Network) -> Solution:
        """Training on a task from a network."""

    @abstractmethod
    def steps_to(self, task: int, network: Network, accuracy: float, course: Solution | None = None) -> float:
        """Flow steps on a task until it is learned; infinite when never."""

    @abstractmethod
    def excess(self, task: int, network: Network) -> float:
        """Loss on a task above the least."""

    @abstractmethod
    def whole(self, task: int) -> float:
        """Excess loss of a network that answers nothing."""

    @abstractmethod
    def strength(self, network: Network) -> FloatArray:
        """What the network does along the target's modes."""

    @abstractmethod
    def counted(
        self, task: int, network: Network, *, steps: float | None, accuracy: float | None
    ) -> tuple[float, Network]:
        """Whole descent steps of a stage given by steps or accuracy, and the network after them."""

    def accuracy(self, task: int, network: Network) -> float:
        """1 - sqrt(excess loss / that of a network that answers nothing)."""
        whole = self.whole(task)
        return 1.0 - math.sqrt(max(self.excess(task, network), 0.0) / whole) if whole > 0 else 1.0

    def status(self, steps: float) -> Status:
        """What a number of steps means."""
        return Status.not_learned if math.isinf(steps) else Status.outside_theory if math.isnan(steps) else Status.ok


class LinearTerrain(Terrain):
    """What flows of linear networks share: losses from statistics, and descent on them."""

    def __init__(
        self, tasks: Sequence[Task], start: LinearRNN | TwoLayer, learning_rate: float, learn: tuple[str, ...]
    ) -> None:
        super().__init__(tasks, start, learning_rate)
        self.problems = [LearningProblem.of(_with_target_power(task), start, learn) for task in tasks]
        self.learn = self.problems[0].learn

    def excess(self, task: int, network: Network) -> float:
        """Loss above that of the best the readout can be."""
        problem = self.problems[task]
        return problem.loss_and_slopes(LearningProblem(problem.task, network, self.learn).start)[0] - problem.least_loss

    def whole(self, task: int) -> float:
        """Excess loss of no answer."""
        return self.problems[task].statistics.constant - self.problems[task].least_loss

    def strength(self, network: Network) -> FloatArray:
        """Diagonal of the map in the frame of the target's modes."""
        problem = self.problems[self.target]
        return problem.strengths(LearningProblem(problem.task, network, self.learn).start)

    def goal(self, task: int, accuracy: float) -> float:
        """Excess loss at which a task is learned."""
        return (1.0 - accuracy) ** 2 * self.whole(task)

    def counted(
        self, task: int, network: Network, *, steps: float | None, accuracy: float | None
    ) -> tuple[float, Network]:
        """Exact gradient descent on the statistics; unknown (nan) beyond `MOST_COUNTED` steps."""
        if steps is not None and math.ceil(steps) > MOST_COUNTED:
            return math.nan, network
        rule: dict[str, Any] = (
            {"steps": math.ceil(steps)}
            if steps is not None
            else {"excess_loss": max(self.goal(task, float(accuracy or 0.0)), 1e-300), "most_steps": MOST_COUNTED}
        )
        run = descend(self.problems[task].task, network, learning_rate=self.learning_rate, learn=self.learn, **rule)
        if run.status is Status.diverged:
            return math.inf, network
        if run.status is not Status.ok:
            return math.nan, network
        return float(run.steps), run.network_at(run.steps)


def _with_target_power(task: Task) -> Task:
    """The task with the least target covariance its other statistics allow, where it does not know its own.

    What a target holds beyond its inputs adds the same to every loss, so no excess loss depends on it.
    """
    if task.target_covariance is not None:
        return task
    inputs, cross = task.input_covariance, task.cross_covariance
    steps, channels, readouts, outputs = cross.shape
    flat = cross.dense().reshape(steps * channels, readouts * outputs)
    power = inputs.dense().reshape(steps * channels, steps * channels)
    told = flat.T @ np.linalg.lstsq(power, flat, rcond=None)[0]
    target = Dense(((told + told.T) / 2).reshape(readouts, outputs, readouts, outputs))
    return Task.trusted(inputs, cross, target, name=task.name, trials=task.trials)


class PooledTerrain(LinearTerrain):
    """Two-layer networks, and linear RNNs that are such: the exact flow for tasks of any geometry."""

    forecast_class = "exact"
    citations = ("curriculum2025", "braun2022")
    kind = "theory"

    @cached_property
    def pooled(self) -> list[PooledProblem]:
        """Each task as the start sees it; the recurrence stays, so only the two maps move on."""
        return [PooledProblem.of(task, self.start) for task in self.tasks]

    def course(self, task: int, network: Network) -> TwoLayerSolution:
        """The exact solution."""
        maps = (
            (network.first, network.second)
            if isinstance(network, TwoLayer)
            else (network.input_weights, network.output_weights)
        )
        problem = replace(self.pooled[task], first=maps[0], second=maps[1])
        return TwoLayerSolution(problem, network, self.learning_rate, None)

    def steps_to(self, task: int, network: Network, accuracy: float, course: Solution | None = None) -> float:
        """By root finding on the exact loss."""
        found = self.course(task, network) if course is None else course
        return found.time_to(accuracy).flow_steps

    @cached_property
    def _assumptions(self) -> tuple[Assumption, ...]:
        return worst(self.course(k, self.start).assumptions for k in range(len(self.tasks)))

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The worst of each condition over the tasks; balance is kept from stage to stage."""
        return self._assumptions

    @property
    def solved(self) -> bool:
        """Whether the exact flow is that of this network on every task, whatever becomes of descent on it."""
        others = ("stable_learning_rate", "regular_orientation")
        return exact(a for a in self.assumptions if a.name not in others)


class FlowTerrain(LinearTerrain):
    """Any linear network and any weights that learn: gradient flow, integrated.

    A learned recurrence may never come down to the best linear filter. The target's loss is therefore measured from
    where direct training comes to rest, for every plan alike.
    """

    forecast_class = "integrated"
    tolerance = SEARCHED

    @cached_property
    def precise(self) -> FlowTerrain:
        """The same flows, integrated to the precision of a report; learned is what it was."""
        found = FlowTerrain(self.tasks, self.start, self.learning_rate, self.learn)
        found.problems, found.tolerance = self.problems, REPORTED
        found.floors = self.floors
        return found

    @cached_property
    def floors(self) -> list[float]:
        """Excess loss at which training on each task from the start comes to rest."""
        return [self._floor(k) for k in range(len(self.tasks))]

    def _floor(self, task: int) -> float:
        if self.problems[task].pooled_recurrence is not None:
            return 0.0  # the readout can be any map of the pooled input
        flow = self.course(task, self.start)
        left = float(flow.limit().dataset["excess_loss"][0])
        return max(left, 0.0) if math.isfinite(left) else 0.0

    def whole(self, task: int) -> float:
        """Excess loss of no answer above where training rests."""
        return super().whole(task) - self.floors[task]

    def excess(self, task: int, network: Network) -> float:
        """Loss above where training rests; a plan may end below it."""
        return super().excess(task, network) - self.floors[task]

    def goal(self, task: int, accuracy: float) -> float:
        """Loss above the best linear filter's at which a task is learned."""
        return self.floors[task] + (1.0 - accuracy) ** 2 * self.whole(task)

    def course(self, task: int, network: Network) -> Solution:
        """The integrated flow."""
        return gradient_flow(
            self.problems[task].task,
            network,
            learning_rate=self.learning_rate,
            learn=self.learn,
            tolerance=self.tolerance,
        )

    def steps_to(self, task: int, network: Network, accuracy: float, course: Solution | None = None) -> float:
        """Integrated as far as needed."""
        flow = self.course(task, network) if course is None else course
        found: float = flow.time_to_loss(max(self.goal(task, accuracy), 1e-300))  # type: ignore[attr-defined]
        return found


class ResponseTerrain(Terrain):
    """Nonlinear units of fixed recurrence, through their measured responses."""

    forecast_class = "response"

    def __init__(self, tasks: Sequence[Task], start: Activated, learning_rate: float, seed: int) -> None:
        super().__init__(tasks, start, learning_rate)
        self.seed = seed
        self.responses: list[Response] = [response(task, start, rng=seed) for task in tasks]

    def course(self, task: int, network: Network) -> ResponseFlowSolution:
        """The integrated flow of the response's weights."""
        return ResponseFlowSolution.of(self.responses[task].moved(network), self.learning_rate)

    def steps_to(self, task: int, network: Network, accuracy: float, course: Solution | None = None) -> float:
        """Integrated as far as needed; nan when given up."""
        flow = self.course(task, network) if course is None else course
        assert isinstance(flow, ResponseFlowSolution)
        return flow.flow_steps_to(flow.goals(accuracy))

    def excess(self, task: int, network: Network) -> float:
        """Loss above the least on the same responses."""
        problem, state = small_problem(self.responses[task].moved(network))
        return float(problem.loss_and_slopes(state)[0][0] - problem.least_loss()[0])

    def whole(self, task: int) -> float:
        """Excess loss of a silent network."""
        problem, _ = small_problem(self.responses[task])
        return float(problem.constant[0] - problem.least_loss()[0])

    def strength(self, network: Network) -> FloatArray:
        """What the output makes of each response feature."""
        problem, state = small_problem(self.responses[self.target].moved(network))
        return np.ravel(problem.strengths(state))

    def counted(
        self, task: int, network: Network, *, steps: float | None, accuracy: float | None
    ) -> tuple[float, Network]:
        """Not counted here: `follow` counts descent with its intervals."""
        return math.nan, network
