"""A plan turned into a loop of one's own training: batches stage by stage, until each stage has done its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isfinite, nan
from typing import Any

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.packages import lightning_package
from learncast._core.validation import FloatArray, count, one_of, positive, real_array
from learncast.practice.measured_accuracy import LossMeasure, LossRange, Measure, StrengthMeasure
from learncast.practice.stage import Stage
from learncast.results import Status
from learncast.tasks.recorded.streams import endless, pair_of
from learncast.theory.dynamics.modes import Modes

CRITERIA = ("strength", "loss", "steps")
#: Steps that a stage may take in any case before it is given up: a forecast of 0 steps allows for some noise.
LEAST_LIMIT = 100
#: Batches that a trainer may fetch before it has reported on the ones it had.
AHEAD = 4


@dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage, and what its plan knows of it.

    Attributes
    ----------
    stage : Stage
    expected_steps : float
        Steps that the plan expects.
    status : Status
        How that forecast came out.
    modes : Modes or None
        The task mode by mode, where the network is linear.
    losses : callable
        Of nothing: what the loss is judged by.
    """

    stage: Stage
    expected_steps: float
    status: Status
    modes: Modes | None
    losses: Callable[[], LossRange]


class TrainingLoop:
    """Leads a training loop of one's own through the stages of a plan.

    A stage that is given by steps ends after as many updates. One that is given by an accuracy ends when the accuracy
    of the network, measured on the batch just trained on, reaches it.

    Parameters
    ----------
    planned : sequence of PlannedStage
    criterion : {"strength", "loss", "steps"}
        What ends a stage given by an accuracy: the strength of every mode, the excess of the loss over its least, or
        simply as many steps as the plan expects.
    spec : str
        Hash of the plan; a state is taken up by the same one only.
    most : float
        A stage that has not reached its accuracy is given up after so many times the steps expected (100 at least),
        with the status ``not_learned`` and a warning in the report.
    window : int, optional
        Batches over which the loss is averaged, by default a twentieth of the steps expected, from 1 to 50. The mean
        lags behind by half of it.
    every : int
        Updates between two measurements.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> import torch
    >>> target = lc.tasks.integration(steps=10)
    >>> stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> plan = lc.plan(target, [stronger], network, learning_rate=0.002)
    >>> loop = plan.training_loop()
    >>> loop
    <TrainingLoop by strength: stronger targets (0 of 155) -> integration (0 of 0)>
    >>> rng, model = np.random.default_rng(0), lc.training.as_module(network, learn=("input", "output"))
    >>> batches = {task.name: [tuple(map(torch.tensor, task.sample(1000, rng)))] for task in (stronger, target)}
    >>> optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.002)
    >>> for stage in loop.stages(batches):
    ...     for inputs, targets in stage:
    ...         output = model(inputs)
    ...         loss = (output - targets).pow(2).sum() / (2 * len(inputs))
    ...         optimizer.zero_grad()
    ...         loss.backward()
    ...         optimizer.step()
    ...         stage.update(loss, output)
    >>> print(loop.report())
    stage             planned    taken  accuracy  ended
    stronger targets      155      153    0.6693  ok
    integration             0        0    0.9961  ok
    """

    def __init__(
        self,
        planned: Sequence[PlannedStage],
        *,
        criterion: str,
        spec: str,
        most: float = 3.0,
        window: int | None = None,
        every: int = 1,
    ) -> None:
        self.criterion = one_of("criterion", criterion, CRITERIA)
        self.planned, self.spec = tuple(planned), spec
        positive("most", most)
        count("every", every)
        _check_names(planned)
        self._stages = [_training_stage(k, one, criterion, most, window, every) for k, one in enumerate(planned)]
        self._current = 0
        self._given: deque[TrainingStage] = deque()

    def __len__(self) -> int:
        return len(self._stages)

    @property
    def stage(self) -> TrainingStage:
        """The stage in training, or the last one."""
        return self._stages[self._current]

    @property
    def done(self) -> bool:
        """Whether nothing is left to train: every stage is over, or one diverged."""
        return all(s.done for s in self._stages) or any(s.status is Status.diverged for s in self._stages)

    def stages(self, loaders: Mapping[str, Any]) -> Iterator[TrainingStage]:
        """The stages that are not over yet, one after the other.

        Parameters
        ----------
        loaders : mapping of task name to batches
            For each task a DataLoader, a Dataset, an iterable of (inputs, targets), or a function of nothing that
            returns one; passed through again and again. A generator that ends before its stage is refused.
        """
        self._check(loaders)
        return self._walk(loaders, 1)

    def dataloader(self, loaders: Mapping[str, Any]) -> FollowingLoader:
        """All stages as one loader, for trainers that want a single one; report with the loop's own `update`."""
        self._check(loaders)
        return FollowingLoader(self, loaders)

    def _walk(self, loaders: Mapping[str, Any], ahead: int) -> Iterator[TrainingStage]:
        for k, stage in enumerate(self._stages):
            if stage.done:
                self._pass_on(k)
                continue
            self._current = k
            stage.begin(loaders[stage.name], ahead=ahead)
            yield stage
            if stage.status is Status.diverged:
                return
            self._pass_on(k)

    def _pass_on(self, k: int) -> None:
        """A next stage whose band the network is in already needs no training."""
        here = self._stages[k].measure
        for following in self._stages[k + 1 : k + 2]:
            measure, untouched = following.measure, following.goal is not None and not following.steps
            if untouched and isinstance(measure, StrengthMeasure) and isinstance(here, StrengthMeasure):
                measure.strength = here.strength
                following.accuracy = measure.accuracy_of(measure.strength)
                following.judge()

    def update(self, loss: Any, output: Any = None) -> None:
        """Report one step on the oldest batch that `dataloader` gave."""
        if not self._given:
            remedy = "train on loop.dataloader(loaders), or call update on a stage"
            raise _without_batch("this loop's dataloader", remedy)
        self._given.popleft().update(loss, output)

    def _check(self, loaders: Mapping[str, Any]) -> None:
        for stage in self._stages:
            if stage.name not in loaders:
                names = tuple(map(str, loaders))
                raise InvalidSpec(
                    f"loaders must have one for task {stage.name!r}, got loaders for "
                    f"{', '.join(map(repr, names)) or 'nothing'}.",
                    field="loaders",
                )

    def report(self) -> str:
        """What was planned and what was done, as a table; below it what went otherwise."""
        width = max(len("stage"), *(len(s.name) for s in self._stages))
        lines = [f"{'stage':<{width}}  planned    taken  accuracy  ended"]
        for s in self._stages:
            accuracy = f"{s.accuracy:8.4f}" if isfinite(s.accuracy) else "       -"
            lines.append(f"{s.name:<{width}}  {s.expected_steps:7.0f}  {s.steps:7d}  {accuracy}  {self._ended(s)}")
        return "\n".join(lines + [f"warning: {s.name}: {text}" for s in self._stages for text in self._warnings(s)])

    def _ended(self, stage: TrainingStage) -> str:
        if stage.status is not None:
            return stage.status.name
        if stage.index < self._current:
            return "left early"
        return "going on" if stage.steps else "not begun"

    def _warnings(self, stage: TrainingStage) -> list[str]:
        found = []
        if stage.status is Status.not_learned:
            found.append(
                f"given up after {stage.steps} steps where the plan expects {stage.expected_steps:.0f}; check that "
                "loader, learning rate and network are those of the plan"
            )
        if stage.status is Status.diverged:
            found.append(f"diverged at step {stage.steps}: the loss is {stage.loss}; lower the learning rate")
        if self._ended(stage) == "left early":
            found.append(f"left after {stage.steps} steps, before it was done")
        if stage.measure is not None and stage.measure.remark:
            found.append(stage.measure.remark)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, as plain numbers and lists, to be saved beside model and optimiser."""
        return {"spec": self.spec, "criterion": self.criterion, "stages": [s.state_dict() for s in self._stages]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state: stages that are over are not trained again. Loaders begin afresh."""
        if (state.get("spec"), state.get("criterion")) != (self.spec, self.criterion):
            raise SchemaMismatch("the state must be one of this very curriculum and criterion, got one of another.")
        for stage, own in zip(self._stages, state["stages"], strict=True):
            stage.load_state_dict(own)
        unfinished = [s.index for s in self._stages if not s.done]
        self._current = unfinished[0] if unfinished else len(self._stages) - 1

    def __repr__(self) -> str:
        parts = " -> ".join(f"{s.name} ({s.steps} of {s.expected_steps:g})" for s in self._stages)
        return f"<TrainingLoop by {self.criterion}: {parts}>"


class FollowingLoader:
    """One loader that gives the batches of whichever stage is in training, and ends with the last.

    A trainer that fetches a batch ahead trains each stage one step longer.
    """

    def __init__(self, loop: TrainingLoop, loaders: Mapping[str, Any]) -> None:
        self.loop, self.loaders = loop, loaders

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.loop._given.clear()
        for stage in self.loop._walk(self.loaders, AHEAD):
            for batch in stage:
                self.loop._given.append(stage)
                yield batch


def _without_batch(of: str, remedy: str) -> InvalidSpec:
    return InvalidSpec(f"update must follow a batch of {of}, got one without a batch.", field="update")


def _training_stage(
    index: int, planned: PlannedStage, criterion: str, most: float, window: int | None, every: int
) -> TrainingStage:
    expected, name = planned.expected_steps, planned.stage.task.name
    if not isfinite(expected):
        raise InvalidSpec(
            "every stage of a training loop must end by the plan's own forecast, got "
            f"{'no end' if expected == inf else 'no forecast'} for {name!r} ({planned.status.value}). Ask for "
            "a lower accuracy, another learning rate, or a number of steps."
        )
    goal = None if criterion == "steps" else planned.stage.accuracy
    limit = max(ceil(most * expected), LEAST_LIMIT)
    return TrainingStage(index, name, goal, expected, limit, _measure(planned, criterion, goal, window), every)


def _measure(planned: PlannedStage, criterion: str, goal: float | None, window: int | None) -> Measure | None:
    if planned.modes is not None and (criterion == "strength" or goal is None):
        return StrengthMeasure(planned.modes)
    if criterion == "strength":
        raise InvalidSpec(
            "criterion 'strength' must be used with a linear network, got a plan for "
            f"{planned.stage.task.name!r} without such modes. Use criterion='loss' or 'steps'."
        )
    if goal is None:
        return None
    losses = planned.losses()
    if not losses.whole > 0:
        raise InvalidSpec(
            f"criterion 'loss' needs a task with something to learn, in place of {planned.stage.task.name!r}, "
            f"got {losses.whole:g} between its least loss and that of a silent network. Leave the stage out, "
            "or use criterion='steps'."
        )
    usual = min(max(round(planned.expected_steps / 20), 1), 50)
    return LossMeasure(losses, usual if window is None else count("window", window))


def _check_names(planned: Sequence[PlannedStage]) -> None:
    """Refuse different tasks of one name: their loaders could not be told apart."""
    tasks = {id(one.stage.task): one.stage.task for one in planned}.values()
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSpec(
                f"every task of a training loop must have its own name, got two tasks called {name!r}. Rename one "
                "with task.renamed(...)."
            )


@dataclass(eq=False, repr=False)
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
    status : Status or None
        None while the stage goes on. ``ok`` when it did what was planned, ``not_learned`` when it was given up at its
        limit, ``diverged`` when the loss was no longer a number.
    """

    index: int
    name: str
    goal: float | None
    expected_steps: float
    limit: float
    measure: Measure | None
    every: int = 1
    steps: int = 0
    accuracy: float = nan
    loss: float = nan
    status: Status | None = None
    _ahead: int = 1
    _batches: Iterator[Any] = field(default_factory=lambda: iter(()))
    _pending: deque[tuple[Any, Any]] = field(default_factory=deque)

    @property
    def done(self) -> bool:
        """Whether the stage is over."""
        return self.status is not None

    def begin(self, source: Any, *, ahead: int = 1) -> None:
        """Take batches from a source; `ahead` of them may be out before the first is reported on."""
        self._batches, self._ahead = endless(source), ahead
        self._pending.clear()
        self.judge()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while not self.done:
            if len(self._pending) >= self._ahead:
                raise InvalidSpec(
                    f"stage {self.name!r} must be told of every batch with update(loss, output), got a batch asked "
                    f"for after {self.steps} updates while {len(self._pending)} wait. Call stage.update(loss, output) "
                    "after the optimiser's step."
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
            remedy = "iterate over the stage, and call update once for every batch"
            raise _without_batch(f"stage {self.name!r}", remedy)
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
        self.judge()

    def judge(self) -> None:
        """End the stage where it has done what was planned, or cannot."""
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
            **{key: getattr(self, key) for key in ("name", "steps", "accuracy", "loss")},
            "status": None if self.status is None else self.status.name,
            "measure": None if self.measure is None else self.measure.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        if state.get("name") != self.name or (state.get("measure") is None) != (self.measure is None):
            raise SchemaMismatch(
                f"the state must be one of stage {self.name!r} with the same criterion, got one of "
                f"{state.get('name')!r}."
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


class CurriculumCallback:
    """A Lightning callback that leads a trainer through a plan and stops it at the end.

    The module is trained on `loop.dataloader(loaders)`, which follows the stage in training, and its `training_step`
    returns {"loss": loss, "output": output}; a loop by steps can do without the output. Lightning fetches one batch
    ahead, so each stage is trained one step longer than it need be. Lightning saves the loop's state in its own
    checkpoints.

    Parameters
    ----------
    loop : TrainingLoop, or learncast.training.GoalLoop
        A goal loop is trained on itself, ``trainer.fit(module, loop)``, and judges its own model; the state of the
        trainer's optimisers is cleared at every switch, unless it is told to keep it.

    Raises
    ------
    InvalidSpec
        If Lightning is not installed.

    Examples
    --------
    >>> import learncast as lc
    >>> target = lc.tasks.integration(steps=10)
    >>> stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> loop = lc.plan(target, [stronger], network, learning_rate=0.002).training_loop()
    >>> callback = lc.practice.CurriculumCallback(loop)
    >>> callback.loop
    <TrainingLoop by strength: stronger targets (0 of 155) -> integration (0 of 0)>
    >>> trainer = lightning.Trainer(max_epochs=-1, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.fit(module, loop.dataloader(loaders))  # doctest: +SKIP
    >>> print(loop.report())  # doctest: +SKIP
    """

    def __new__(cls, loop: Any) -> CurriculumCallback:
        # The trainer wants one of Lightning's own callbacks, and Lightning is loaded only now.
        made = cls
        if cls is CurriculumCallback:
            made = type(cls.__name__, (cls, lightning_package().Callback), {})
        callback: CurriculumCallback = object.__new__(made)
        return callback

    def __init__(self, loop: Any) -> None:
        super().__init__()
        self.loop = loop

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a trainer that makes several batches one step."""
        together = getattr(trainer, "accumulate_grad_batches", 1)
        if together != 1:
            raise InvalidSpec(
                "a trainer that follows a plan must take one step for every batch, got "
                f"accumulate_grad_batches={together}. Leave it out, and give the loaders larger batches."
            )
        if getattr(self.loop, "optimizers", None) == []:
            self.loop.optimizers = list(trainer.optimizers)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *rest: Any
    ) -> None:
        """Report a step to the loop, and stop when it is done."""
        loss, output = outputs, None
        if isinstance(outputs, Mapping):
            loss, output = outputs["loss"], outputs.get("output")
        self.loop.update(loss, output)
        if self.loop.done:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands."""
        return self.loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.loop.load_state_dict(state_dict)
