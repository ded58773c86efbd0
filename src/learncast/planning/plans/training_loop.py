"""A plan turned into a loop of one's own training: batches stage by stage, until each stage has done its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from math import ceil, inf, isfinite, isnan
from typing import Any

from learncast.assumptions import exact
from learncast.errors import InvalidSpec, SchemaMismatch
from learncast.planning.curricula.curriculum import Curriculum
from learncast.planning.plans.measured_accuracy import LossMeasure, LossRange, Measure, StrengthMeasure, is_linear
from learncast.planning.plans.training_stage import TrainingStage
from learncast.trajectory import Status
from learncast.validation import count, one_of, positive, suggestion

CRITERIA = ("strength", "loss", "steps")
#: Steps that a stage may take in any case before it is given up: a forecast of 0 steps allows for some noise.
LEAST_LIMIT = 100
#: Batches that a trainer may fetch before it has reported on the ones it had.
AHEAD = 4


class TrainingLoop:
    """Leads a training loop of one's own through the stages of a curriculum; made by `training_loop_of`.

    Attributes
    ----------
    curriculum : Curriculum
    criterion : str
        What ends the stages that are given by an accuracy.
    """

    def __init__(self, curriculum: Curriculum, criterion: str, stages: tuple[TrainingStage, ...]) -> None:
        self.curriculum, self.criterion, self._stages = curriculum, criterion, stages
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
        here, following = self._stages[k], self._stages[k + 1 : k + 2]
        if not following or following[0].goal is None or following[0].steps:
            return
        measure, goal = following[0].measure, following[0].goal
        if isinstance(measure, StrengthMeasure) and isinstance(here.measure, StrengthMeasure):
            measure.strength = here.measure.strength
            following[0].accuracy = measure.accuracy_of(measure.strength)
            if following[0].accuracy >= goal:
                following[0].status = Status.ok

    def update(self, loss: Any, output: Any = None) -> None:
        """Report one step on the oldest batch that `dataloader` gave."""
        if not self._given:
            raise InvalidSpec(
                required="update must follow a batch of this loop's dataloader",
                got="one without a batch",
                why="each update reports on one batch",
                remedy="train on loop.dataloader(loaders), or call update on a stage",
            )
        self._given.popleft().update(loss, output)

    def _check(self, loaders: Mapping[str, Any]) -> None:
        for stage in self._stages:
            if stage.name not in loaders:
                names = tuple(map(str, loaders))
                raise InvalidSpec(
                    required=f"loaders must have one for task {stage.name!r}",
                    got=f"loaders for {', '.join(map(repr, names)) or 'nothing'}",
                    why=f"stage {stage.index} trains on it",
                    remedy=suggestion(stage.name, names) or f"add loaders[{stage.name!r}]",
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
        digest = self.curriculum.provenance.spec_hash
        return {"spec": digest, "criterion": self.criterion, "stages": [s.state_dict() for s in self._stages]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state: stages that are over are not trained again. Loaders begin afresh."""
        if (state.get("spec"), state.get("criterion")) != (self.curriculum.provenance.spec_hash, self.criterion):
            raise SchemaMismatch(
                required="the state must be one of this very curriculum and criterion",
                got="one of another",
                why="going on from it would mix two runs",
                remedy="build the loop as it was built when the state was saved",
            )
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


def training_loop_of(
    curriculum: Curriculum,
    *,
    criterion: str | None = None,
    most: float = 3.0,
    window: int | None = None,
    every: int = 1,
) -> TrainingLoop:
    """Turn a curriculum into a loop that says what to train on, and for how long.

    A stage that is given by steps ends after as many updates. One that is given by an accuracy ends when the accuracy
    of the network, measured on the batch just trained on, reaches it.

    Parameters
    ----------
    curriculum : Curriculum
        From `follow`.
    criterion : {"strength", "loss", "steps"}, optional
        What ends a stage given by an accuracy: the strength of every mode, the excess of the loss over its least, or
        simply as many steps as the plan expects. By default strength for a linear network on which the theory is
        exact, and loss for any other.
    most : float
        A stage that has not reached its accuracy is given up after so many times the steps expected (100 at least),
        with the status ``not_learned`` and a warning in the report.
    window : int, optional
        Batches over which the loss is averaged, by default a twentieth of the steps expected, from 1 to 50. The mean
        lags behind by half of it.
    every : int
        Updates between two measurements.
    """
    if criterion is None:
        criterion = "strength" if is_linear(curriculum) and exact(curriculum.assumptions) else "loss"
    one_of("criterion", criterion, CRITERIA, why="a stage can be ended by one of these")
    positive("most", most, why="a stage needs time to learn")
    count("every", every, why="it counts updates")
    _check_names(curriculum)
    stages = []
    for k, outcome in enumerate(curriculum.outcomes):
        expected, task = float(outcome.descent_steps), outcome.stage.task
        if isnan(expected):  # too many steps to be counted one by one, which the flow need not
            expected = float(outcome.flow_steps)
        if not isfinite(expected):
            raise InvalidSpec(
                required="every stage of a training loop must end by the plan's own forecast",
                got=f"{'no end' if expected == inf else 'no forecast'} for {task.name!r} ({outcome.status.value})",
                why="training would never go on to the next stage",
                remedy="ask for a lower accuracy, another learning rate, or a number of steps",
            )
        by_steps = outcome.stage.accuracy is None or criterion == "steps"
        stages.append(
            TrainingStage(
                k,
                task.name,
                goal=None if by_steps else outcome.stage.accuracy,
                expected_steps=expected,
                limit=max(ceil(most * expected), LEAST_LIMIT),
                measure=_measure(curriculum, k, criterion, by_steps, window, expected),
                every=every,
            )
        )
    return TrainingLoop(curriculum, criterion, tuple(stages))


def _measure(
    curriculum: Curriculum, k: int, criterion: str, by_steps: bool, window: int | None, expected: float
) -> Measure | None:
    if criterion == "strength" or (by_steps and is_linear(curriculum)):
        if not is_linear(curriculum):
            raise InvalidSpec(
                required="criterion 'strength' must be used with a linear network",
                got=f"a curriculum of class {curriculum.forecast_class!r} without such modes",
                why="strengths are read from a linear map of pooled inputs",
                remedy="use criterion='loss' or 'steps'",
            )
        return StrengthMeasure(curriculum.modes[k])
    if by_steps:
        return None
    losses = LossRange.of(curriculum, k)
    if not losses.whole > 0:
        raise InvalidSpec(
            required=f"criterion 'loss' needs a task with something to learn in stage {k}",
            got=f"{losses.whole:g} between its least loss and that of a silent network",
            why="the excess that is left is measured against it",
            remedy="leave the stage out, or use criterion='steps'",
        )
    batches = min(max(round(expected / 20), 1), 50) if window is None else count("window", window, why="it is a mean")
    return LossMeasure(losses, batches)


def _check_names(curriculum: Curriculum) -> None:
    """Refuse different tasks of one name: their loaders could not be told apart."""
    tasks = {id(o.stage.task): o.stage.task for o in curriculum.outcomes}.values()
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSpec(
                required="every task of a training loop must have its own name",
                got=f"two tasks called {name!r}",
                why="loaders are given by the names of their tasks",
                remedy="rename one with task.renamed(...)",
            )
