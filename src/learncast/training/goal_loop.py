"""Stages that end by goals, led through a training loop of one's own: batches one after the other, and who is next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.progress import silent
from learncast._core.validation import count
from learncast.results import Status, spec_hash
from learncast.training.borrowed import at_rest
from learncast.training.goals import Goal, LossBelow
from learncast.training.losses import Loss
from learncast.training.sources import Batch, Source
from learncast.training.stopping import GoalWatch, Learned, Stalled, watch_of


class GoalLoop:
    """Leads one's own loop, or Lightning's, through stages: iterate over it, train on each batch, and report.

    ::

        loop = GoalLoop(advice.stages(), model, optimizer=optimizer, batch=64)
        for x, y, mask in loop:
            ...  # a step of the optimiser
            loop.update(loss)

    Parameters
    ----------
    stages : sequence of (trials, rule)
        A rule is a Goal, a Learned, a Stalled, or a number of steps; `Advice.stages` returns such.
    model : nn.Module
        What is trained, and judged by the goals in the mode of evaluation; it is left in its own.
    optimizer : torch optimiser or list of them, optional
        Whose state is cleared when a stage begins, unless told to keep it. Lightning's own are found by its callback.
    reset_optimizer : bool
    loss : as of `Training`
        By which a LossBelow is judged that names no other.
    batch : int, optional
        Trials of a batch; None for all recorded ones or a loader's own.
    most_steps : int
        Where a stage is given up that does not reach its goal.
    evaluation : int
        Held-out trials.
    seed : int
        Of the batches.
    log : callable
        Called with a sentence when a stage begins and when it has ended.

    Raises
    ------
    InvalidSpec
        If there is no stage, a stage ends by no such rule, or trials and batch do not fit.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(64, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> first = lc.training.trials((inputs, inputs[:, -1]), name="last input")
    >>> then = lc.training.trials((inputs, inputs[:, -2:].sum(1)), name="sum of two")
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    >>> loop = lc.training.GoalLoop([(first, 20), (then, lc.training.LossBelow(0.2))], model, optimizer=optimizer)
    >>> for inputs, targets, mask in loop:
    ...     loss = loop.loss(model(inputs), targets, mask)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     loop.update(loss)
    >>> loop.done, loop.status.name, loop.steps[0], bool(loss < 0.3)
    (True, 'ok', 20, True)
    """

    def __init__(
        self,
        stages: Sequence[tuple[Any, Any]],
        model: nn.Module,
        *,
        optimizer: Any = None,
        reset_optimizer: bool = True,
        loss: Any = "half_squared_error",
        batch: int | None = None,
        most_steps: int = 20_000,
        evaluation: int = 500,
        seed: int = 0,
        log: Callable[[str], object] = silent,
    ) -> None:
        self.legs = [(Source.of(trials), _checked(rule)) for trials, rule in stages]
        if not self.legs:
            raise InvalidSpec("a loop needs a stage, got none.")
        for source, _ in self.legs:
            source.check(batch)
        self.model, self.loss, self.reset_optimizer, self.log = model, Loss.read(loss), reset_optimizer, log
        self.optimizers = [] if optimizer is None else optimizer if isinstance(optimizer, list) else [optimizer]
        self.batch, self.seed = batch, seed
        self.most_steps = count("most_steps", most_steps)
        self.evaluation = count("evaluation", evaluation)
        self.stage, self.steps, self.status = 0, [0] * len(self.legs), Status.ok
        self.spec = spec_hash(*((source.hash, repr(rule)) for source, rule in self.legs), seed, repr(self.loss))
        self._given = 0
        self._watch: GoalWatch | None = None
        self._watch = self._watching()
        self._trials: dict[str, Batch] = {}
        self._say()
        self._judge()

    @property
    def done(self) -> bool:
        """Whether nothing is left to train: every stage is over, or one was given up or diverged."""
        return self.stage == len(self.legs) or self.status is not Status.ok

    @property
    def latest(self) -> float:
        """The measure of the stage's goal at the last look; nan before the first."""
        return self._watch.latest if self._watch is not None else math.nan

    def __iter__(self) -> Iterator[Batch]:
        """Batches of whichever stage is in training, until the last has ended."""
        self._given = 0
        dtype = next(self.model.parameters()).dtype
        while not self.done:
            source, _ = self.legs[self.stage]
            # A trainer may fetch ahead: the next batch is the one after all that were given.
            place = self.steps[self.stage] + self._given
            self._given += 1
            yield source.batch(self.batch, (self.seed, self.stage), place, dtype)

    def update(self, loss: Any, output: Any = None) -> None:
        """Report one step of the optimiser; the loss is watched for being a number, the output not needed."""
        if self.done:  # a batch that was fetched ahead
            return
        value = float(loss.detach()) if hasattr(loss, "detach") else float(loss)
        self._given = max(self._given - 1, 0)
        self.steps[self.stage] += 1
        if not math.isfinite(value):
            self.status = Status.diverged
            self.log(f"stage {self.stage + 1} diverged at step {self.steps[self.stage]}; lower the learning rate")
            return
        self._judge()

    def _judge(self) -> None:
        while not self.done:
            step, rule = self.steps[self.stage], self.legs[self.stage][1]
            ended = self._watch.settled(step, self._look) if self._watch is not None else step >= rule
            if not ended:
                if step >= self.most_steps:
                    self.status = Status.not_learned
                    self.log(f"stage {self.stage + 1} given up after {step} steps, at {self.latest:.4g}")
                return
            self.log(f"stage {self.stage + 1} ended after {step} steps, at {self.latest:.4g}")
            self.stage, self._given = self.stage + 1, 0
            self._watch = self._watching()
            if not self.done:
                if self.reset_optimizer:
                    for optimizer in self.optimizers:
                        optimizer.state.clear()
                self._say()

    def _look(self, goal: Goal, source: Source) -> float:
        if source.hash not in self._trials:
            dtype = next(self.model.parameters()).dtype
            found = source.held_out(self.evaluation, (self.seed, 0), dtype)
            self._trials[source.hash] = found.rows(slice(0, self.evaluation))
        x, y, w = self._trials[source.hash]
        if isinstance(goal, LossBelow):
            goal = goal.of(self.loss)
        with at_rest(self.model):
            return goal.measure(self.model(x), y, w)

    def _watching(self) -> GoalWatch | None:
        if self.stage == len(self.legs):
            return None
        source, rule = self.legs[self.stage]
        found = watch_of(rule, source, self._watch)
        return found if isinstance(found, GoalWatch) else None

    def _say(self) -> None:
        source, rule = self.legs[self.stage]
        until = f"until {rule.words}" if self._watch is not None else f"for {rule} steps"
        self.log(f"stage {self.stage + 1} of {len(self.legs)}: {source.name} {until}")

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, as plain numbers and lists, to be saved beside model and optimiser."""
        watch = None if self._watch is None else self._watch.state()
        kept = None if watch is None else {key: np.asarray(value).tolist() for key, value in watch.items()}
        return {
            "spec": self.spec,
            "stage": self.stage,
            "steps": list(self.steps),
            "status": self.status.name,
            "watch": kept,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from such a state."""
        if state.get("spec") != self.spec:
            raise SchemaMismatch("the state must be one of a loop of these very stages, got one of another.")
        self.stage, self.steps = int(state["stage"]), [int(n) for n in state["steps"]]
        self.status, self._watch, self._given = Status[state["status"]], self._watching(), 0
        if state["watch"] is not None and self._watch is not None:
            self._watch.restore(dict(state["watch"]))

    def report(self) -> str:
        """What was done, as a table."""
        width = max(len("stage"), *(len(source.name) for source, _ in self.legs))
        lines = [f"{'stage':<{width}}    taken  ended"]
        for k, (source, _) in enumerate(self.legs):
            here = "ok" if k < self.stage else "not begun" if k > self.stage else self.status.name
            going = "going on" if k == self.stage and self.status is Status.ok else here
            lines.append(f"{source.name:<{width}}  {self.steps[k]:7d}  {going}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        parts = " -> ".join(f"{source.name} ({n})" for (source, _), n in zip(self.legs, self.steps, strict=True))
        return f"<GoalLoop: {parts}>"


def _checked(rule: Any) -> Any:
    if isinstance(rule, Goal | Learned | Stalled):
        return rule
    if isinstance(rule, int) and not isinstance(rule, bool):
        return count("steps", rule, least=0)
    raise InvalidSpec(
        "a stage of a loop must end by a goal, a Learned, a Stalled, or a number of steps, got "
        f"{type(rule).__name__}. Use LossBelow, DecisionAccuracy, Measured, Learned or Stalled."
    )
