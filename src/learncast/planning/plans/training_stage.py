"""One stage of a plan in training, which gives batches until it has done its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from math import isfinite, nan
from typing import Any

from learncast.errors import InvalidSpec, SchemaMismatch
from learncast.planning.plans.measured_accuracy import Measure
from learncast.tasks.streams import endless, pair_of
from learncast.trajectory import Status
from learncast.validation import FloatArray, real_array


class TrainingStage:
    """One stage in training: iterate over its batches, train on each, and report with `update`; it ends by itself.

    Attributes
    ----------
    index : int
    name : str
        The task.
    goal : float or None
        Accuracy to reach; None where the stage is given by steps.
    expected_steps : float
        Steps that the plan expects.
    limit : float
        Steps after which the stage is given up.
    steps : int
        Updates so far.
    accuracy : float
        Measured on the last batch; nan while unknown.
    done : bool
    status : Status or None
        None while the stage goes on. ``ok`` when it did what was planned, ``not_learned`` when it was given up at its
        limit, ``diverged`` when the loss was no longer a number.
    """

    def __init__(
        self,
        index: int,
        name: str,
        *,
        goal: float | None,
        expected_steps: float,
        limit: float,
        measure: Measure | None,
        every: int = 1,
    ) -> None:
        self.index, self.name, self.goal = index, name, goal
        self.expected_steps, self.limit, self.measure, self.every = expected_steps, limit, measure, every
        self.steps, self.accuracy, self.loss = 0, nan, nan
        self.status: Status | None = None
        self._ahead = 1
        self._batches: Iterator[Any] = iter(())
        self._pending: deque[tuple[Any, Any]] = deque()

    @property
    def done(self) -> bool:
        """Whether the stage is over."""
        return self.status is not None

    def begin(self, source: Any, *, ahead: int = 1) -> None:
        """Take batches from a source; `ahead` of them may be out before the first is reported on."""
        self._batches, self._ahead = endless(source), ahead
        self._pending.clear()
        if self.goal is None and self.steps >= self.expected_steps:
            self.status = self.status or Status.ok

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while not self.done:
            if len(self._pending) >= self._ahead:
                raise InvalidSpec(
                    required=f"stage {self.name!r} must be told of every batch with update(loss, output)",
                    got=f"a batch asked for after {self.steps} updates while {len(self._pending)} wait",
                    why="it could never know when to stop",
                    remedy="call stage.update(loss, output) after the optimiser's step",
                )
            batch = pair_of(next(self._batches), f"a batch of {self.name!r}")
            self._pending.append(batch)
            yield batch

    def update(self, loss: Any, output: Any = None) -> None:
        """Report one step of the optimiser: the loss on the last batch, and what the network answered to it.

        Parameters
        ----------
        loss : number or tensor
            Watched only for being a number.
        output : array or tensor, optional
            Answers in the shape of the batch's targets; a stage given by steps can do without.
        """
        if not self._pending:
            raise InvalidSpec(
                required=f"update must follow a batch of stage {self.name!r}",
                got="one without a batch",
                why="each update reports on one batch",
                remedy="iterate over the stage, and call update once for every batch",
            )
        inputs, targets = self._pending.popleft()
        self.steps += 1
        self.loss = float(loss.detach()) if hasattr(loss, "detach") else float(loss)
        if self.done:  # a batch that was fetched ahead
            return
        if not isfinite(self.loss):
            self.status = Status.diverged
            return
        if self.measure is not None and self.steps % self.every == 0 and (output is not None or self.goal is not None):
            self.accuracy = self.measure.take(*self._arrays(inputs, targets, output))
        self._judge()

    def _judge(self) -> None:
        if self.goal is None:
            self.status = Status.ok if self.steps >= self.expected_steps else None
        elif self.accuracy >= self.goal:
            self.status = Status.ok
        elif self.steps >= self.limit:
            self.status = Status.not_learned

    def _arrays(self, inputs: Any, targets: Any, output: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        y = real_array("targets", targets, ndim=(2, 3))
        if output is None or tuple(output.shape) != y.shape:
            raise InvalidSpec(
                required=f"update must be given answers of the targets' shape {y.shape}",
                got="none" if output is None else f"shape {tuple(output.shape)}",
                why=f"stage {self.name!r} ends by its accuracy, which is measured on them",
                remedy="call update(loss, output), or use criterion='steps'",
            )
        return real_array("inputs", inputs, ndim=(2, 3)), y, real_array("output", output)

    def state_dict(self) -> dict[str, Any]:
        """Where the stage stands, as plain numbers and lists; the place in its loader is not part of it."""
        return {
            "name": self.name,
            "steps": self.steps,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "status": None if self.status is None else self.status.name,
            "measure": None if self.measure is None else self.measure.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        if state.get("name") != self.name or (state.get("measure") is None) != (self.measure is None):
            raise SchemaMismatch(
                required=f"the state must be one of stage {self.name!r} with the same criterion",
                got=f"one of {state.get('name')!r}",
                why="going on from it would mix two stages",
                remedy="load the state that this loop saved",
            )
        self.steps, self.accuracy, self.loss = int(state["steps"]), float(state["accuracy"]), float(state["loss"])
        self.status = None if state["status"] is None else Status[state["status"]]
        if self.measure is not None:
            self.measure.restore(state["measure"])

    def __repr__(self) -> str:
        where = "going on" if self.status is None else self.status.name
        return (
            f"<TrainingStage {self.index} {self.name!r}: {self.steps} of {self.expected_steps:g} expected steps, "
            f"accuracy {self.accuracy:.4g}, {where}>"
        )
