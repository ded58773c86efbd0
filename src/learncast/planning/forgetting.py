"""What is forgotten when tasks are learned one after another."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption, exact, require, worst
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.errors import InvalidSpec
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, Provenance, described, spec_hash
from learncast.validation import FloatArray, positive


class IrregularSwitch(UserWarning):
    """A switch of tasks from which the exact flow never learns a mode."""


@dataclass(frozen=True, eq=False, repr=False)
class ContinualLearning:
    """An exact forecast of learning tasks in sequence with a balanced network.

    Attributes
    ----------
    solutions : tuple of TwoLayerSolution
        One per stage, each from where the one before stopped.
    steps : tuple of float
        Gradient steps of each stage; infinite for a stage to convergence.
    """

    solutions: tuple[TwoLayerSolution, ...]
    steps: tuple[float, ...]
    learning_rate: float

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks in the order they are learned."""
        return tuple(s.problem.task for s in self.solutions)

    @cached_property
    def loss(self) -> xr.DataArray:
        """Loss of every task before training and after every stage, (stage, task).

        Stage 0 is the start. After converging on task j the loss of task i is 1/2 |S_j - S_i|^2 above its least.
        """
        networks = [
            self.solutions[0].network,
            *(s.network_at(t) for s, t in zip(self.solutions, self.steps, strict=True)),
        ]
        functions = [_function(network) for network in networks]
        table = np.stack([_told_loss(s.problem, np.stack(functions)) for s in self.solutions], axis=1)
        unknown = [np.isnan(s.problem.target_power) for s in self.solutions]
        return xr.DataArray(
            table,
            dims=("stage", "task"),
            coords={
                "stage": ["start", *(t.name for t in self.tasks)],
                "task": [t.name for t in self.tasks],
                "steps": ("stage", [0.0, *self.steps]),
            },
            name="loss",
            attrs=described(
                "loss above the best linear map's" if any(unknown) else "half mean squared error", "target^2"
            ),
        )

    @property
    def forgetting(self) -> xr.DataArray:
        """Change of every task's loss over every stage, (stage, task): positive is forgotten."""
        change = self.loss.diff("stage", label="upper")
        return change.rename("forgetting").assign_attrs(described("change of loss over the stage", "target^2"))

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Switches that never learn a mode, in words."""
        return tuple(
            f"stage {k + 1} ({s.problem.task.name}): {remark}"
            for k, s in enumerate(self.solutions)
            for remark in s.remarks
        )

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """For each condition the worst measured over the stages."""
        return worst(s.assumptions for s in self.solutions)

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return "exact" if exact(self.assumptions) else "outside"

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(*(t.hash for t in self.tasks), self.solutions[0].network.hash, self.learning_rate)
        return Provenance("theory", ("braun2022",), digest)

    def curves(self, *, points: int = 200, horizon: float | Sequence[float] | None = None) -> xr.Dataset:
        """Loss of every task at times across all stages, (time, task), with the stage in training.

        Parameters
        ----------
        points : int
            Per stage.
        horizon : float or sequence of float, optional
            Steps to show of a stage that runs to convergence, or of each stage; by default until its loss is within 1%
            of its end.
        """
        times: list[FloatArray] = []
        values: list[FloatArray] = []
        stage: list[FloatArray] = []
        begun = 0.0
        for k, (solution, steps) in enumerate(zip(self.solutions, self.steps, strict=True)):
            shown = horizon[k] if isinstance(horizon, Sequence) else horizon
            span = steps if np.isfinite(steps) else (shown or settling(solution))
            local = np.linspace(0.0, span, points)
            functions = solution.at(local)["network_function"].values
            values.append(np.stack([_told_loss(s.problem, functions) for s in self.solutions], axis=1))
            times.append(begun + local)
            stage.append(np.full(points, k))
            begun += span
        return xr.Dataset(
            {"loss": (("time", "task"), np.concatenate(values), self.loss.attrs)},
            coords={
                "time": ("time", np.concatenate(times), described("training time", STEPS)),
                "task": [t.name for t in self.tasks],
                "stage": ("time", np.concatenate(stage).astype(int), described("stage in training", "1")),
            },
        )

    def __repr__(self) -> str:
        order = " -> ".join(t.name for t in self.tasks)
        return f"<ContinualLearning {order}: {self.forecast_class}; {len(self.remarks)} irregular switches>"


def learn_in_sequence(
    tasks: Sequence[Task],
    network: TwoLayer | LinearRNN,
    *,
    learning_rate: float,
    steps: Any = np.inf,
    strict: bool = True,
    separatrix_tolerance: float | None = None,
) -> ContinualLearning:
    """Learn tasks one after another, exactly.

    Parameters
    ----------
    tasks : sequence of Task
    network : TwoLayer or LinearRNN
        Balanced; a recurrent one with scalar recurrence.
    learning_rate : float
    steps : float or one per task
        Gradient steps of each stage; infinite (the default) trains to convergence.
    strict : bool
        Raise when a condition of the theory fails at the start.
    separatrix_tolerance : float, optional
        As for `learncast.solve`.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if not tasks:
        raise InvalidSpec(
            required="a sequence must have at least one task",
            got="none",
            why="there is nothing to learn",
            remedy="pass a list of tasks",
        )
    durations = _durations(steps, len(tasks))
    solutions: list[TwoLayerSolution] = []
    for task, duration in zip(tasks, durations, strict=True):
        solution = TwoLayerSolution(PooledProblem.of(task, network), network, rate, separatrix_tolerance)
        if strict:
            require(solution.assumptions)
        solutions.append(solution)
        network = solution.network_at(duration)
    found = ContinualLearning(tuple(solutions), durations, rate)
    for remark in found.remarks:
        warnings.warn(remark, IrregularSwitch, stacklevel=2)
    return found


def forgetting(
    tasks: Sequence[Task], network: TwoLayer | LinearRNN, *, learning_rate: float, steps: Any = np.inf
) -> xr.DataArray:
    """Loss of every task after every stage of learning them in sequence, exact and before any training.

    Warns (`IrregularSwitch`) where a switch ends on a saddle. Parameters as for `learn_in_sequence`.

    Returns
    -------
    xarray.DataArray over (stage, task)
        Stage ``"start"`` first. Differences along ``stage`` are what is forgotten.
    """
    return learn_in_sequence(tasks, network, learning_rate=learning_rate, steps=steps).loss


def _durations(steps: Any, number: int) -> tuple[float, ...]:
    try:
        array = np.asarray(steps, dtype=float)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != number) or np.isnan(array).any() or (array < 0).any():
        raise InvalidSpec(
            required=f"steps must be one number or one for each of the {number} tasks, from 0 on",
            got=repr(steps)[:60],
            why="each stage lasts so long",
            remedy="use infinity for a stage to convergence",
        )
    return tuple(np.broadcast_to(array, (number,)).tolist())


def _function(network: TwoLayer | LinearRNN) -> FloatArray:
    return network.function if isinstance(network, TwoLayer) else network.output_weights @ network.input_weights


def _told_loss(problem: PooledProblem, functions: FloatArray) -> FloatArray:
    """Loss of maps (..., outputs, inputs); where E|y|^2 is unknown, the loss above the best linear map's."""
    if not np.isnan(problem.target_power):
        return problem.loss(functions)
    gap = functions - problem.cross @ np.linalg.pinv(problem.power, hermitian=True)
    return np.asarray(np.einsum("...mn,nk,...mk->...", gap, problem.power, gap, optimize=True) / 2)


def settling(solution: TwoLayerSolution) -> float:
    """Steps until the loss has done 99% of its way."""
    first, last = solution.at([0.0, np.inf])["excess_loss"].values
    if first <= last * (1 + 1e-9):
        return 1.0 / solution.learning_rate
    time = solution.time_to_loss(float(last + 0.01 * (first - last)))
    return 1.3 * time if np.isfinite(time) and time > 0 else 1.0 / solution.learning_rate
