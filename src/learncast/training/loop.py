"""The stage loop: leads a model through stages of training."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.packages import lightning_package
from learncast._core.progress import silent
from learncast._core.validation import count
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Status, spec_hash
from learncast.training.goals import TrialGoal, checked_measurable
from learncast.training.learner import HeldOutView
from learncast.training.losses import LossFunction
from learncast.training.remaining import Earlier, Remaining, as_earlier
from learncast.training.rules import GoalWatch, Learned, StageRun, Stalled, Watch, chance_of, stage_keys, watch_of
from learncast.training.sources import Source
from learncast.training.torch_state import own_randomness
from learncast.training.updates import Updates, multiply_rates

if TYPE_CHECKING:
    from learncast.training.run import TrainingRun

#: Batches that a trainer may fetch before it reports the first of them.
AHEAD = 4


class Loop:
    """Leads a model through stages of training.

    Iterate over the loop, take a step of your optimiser on each batch, and report it with `update`. The loop decides
    when a stage is over, resets the optimiser and gives the batches of the next stage. `Loop.of` makes a loop from
    stages and a model, `lc.plan(...).loop(loaders)` from a plan.

    Attributes
    ----------
    stages : list of StageRun
    index : int
        Number of the current stage; the number of stages when all are over.
    status : Status
        ``ok`` unless the loop ended early: ``not_within`` if a stage was given up, ``diverged`` if a loss was not
        finite.
    optimizers : list of torch optimisers
        Their state is cleared when a stage begins, if `reset` is true.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(64, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> first = lc.training.trials((inputs, inputs[:, -1]), name="last input")
    >>> then = lc.training.trials((inputs, inputs[:, -2:].sum(1)), name="sum of two")
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    >>> stages = [lc.Stage(first, steps=20), lc.Stage(then, lc.Loss(0.2))]
    >>> loop = lc.training.Loop.of(stages, model, lc.Training(0.02), optimizer=optimizer)
    >>> loss_function = lc.training.HalfSquaredError()
    >>> for inputs, targets, mask in loop:
    ...     loss = loss_function(model(inputs), targets, mask)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     loop.update(loss)
    >>> loop.done, loop.status.name, loop.steps[0], bool(loss < 0.3)
    (True, 'ok', 20, True)
    """

    def __init__(
        self,
        stages: Sequence[StageRun],
        *,
        spec: str,
        view: HeldOutView | None = None,
        reset: bool = False,
        updates: Updates | None = None,
        strict: bool = True,
        log: Callable[[str], object] = silent,
    ) -> None:
        self.stages, self.spec, self.view = list(stages), spec, view
        self.reset, self.updates, self.strict, self.log = reset, updates, strict, log
        self.optimizers: list[torch.optim.Optimizer] = []
        self.index, self.status, self.watch = 0, Status.ok, Watch()
        #: Called with the loop and whether the stage is over, whenever the stage was judged.
        self.on_judged: Callable[[bool], object] = silent
        #: Called with the loss after each step that `advance` took.
        self.on_step: Callable[[float], object] = silent
        #: Seeds torch's random numbers at each step of `advance`, e.g. for dropout; None leaves them alone.
        self.noise_seed: int | None = None
        #: Learning rate, and the goal's measure of a constant answer, for `remaining`; nan if unknown.
        self.learning_rate, self.chance = math.nan, math.nan
        self._pending: deque[tuple[StageRun, Any]] = deque()

    @classmethod
    def of(
        cls,
        stages: Sequence[Stage[object]],
        model: nn.Module,
        training: Training,
        *,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | Updates | None = None,
        evaluation: int = 500,
        log: Callable[[str], object] = silent,
    ) -> Loop:
        """Make a loop over stages for a model.

        Parameters
        ----------
        stages : sequence of Stage
            Each ends by a number of steps, or by Loss, R2, DecisionAccuracy, Measured, Learned or Stalled.
        model : nn.Module
            What is trained. Goals are evaluated on it in evaluation mode.
        training : Training
            Batch, seed, loss of `Loss` goals, `reset_optimizer` and `most_steps` are used.
        optimizer : torch optimiser or list of them, optional
            Its state is cleared when a stage begins, unless `training.reset_optimizer` is false. Lightning's
            optimisers are found by `CurriculumCallback`. With `Updates` the loop takes its own steps: see `advance`.
        evaluation : int
            Held-out trials on which goals are evaluated.
        log : callable
            Called with a sentence when a stage begins and when it ends.
        """
        if not stages:
            raise InvalidSpec("A loop needs at least one stage.", field="stages")
        dtype, loss = next(model.parameters()).dtype, LossFunction.read(training.loss)
        read = [Stage(Source.of(one.task, loss=loss), one.goal, one.steps, one.rate) for one in stages]
        for stage in read:
            if stage.goal is not None and not isinstance(stage.goal, Learned | Stalled):
                checked_measurable(stage.goal)

        def watch(k: int, previous: Watch | None) -> Watch:
            return watch_of(read[k].goal, read[k].steps, read[k].task, previous)

        view = HeldOutView(model, loss, trials=count("evaluation", evaluation), seed=training.seed, most=evaluation)
        updates = optimizer if isinstance(optimizer, Updates) else None
        loop = cls.led(read, training, view, dtype, watch, (training.seed, repr(loss)), updates=updates, log=log)
        if optimizer is not None and not isinstance(optimizer, Updates):
            loop.optimizers = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
        return loop.start()

    @classmethod
    def led(
        cls,
        stages: Sequence[Stage[Source]],
        training: Training,
        view: HeldOutView,
        dtype: torch.dtype,
        watch: Callable[[int, Watch | None], Watch],
        spec: Sequence[str | int],
        **options: Any,
    ) -> Loop:
        """Make a loop over stages with batches of their own; `watch` makes the watch of a stage by its number."""
        runs = [StageRun.of(stage, stage.task, training, k, dtype, partial(watch, k)) for k, stage in enumerate(stages)]
        digest = spec_hash(*stage_keys(stages), *spec)
        loop = cls(runs, spec=digest, view=view, reset=training.reset_optimizer, **options)
        loop.noise_seed, loop.learning_rate = training.seed, training.learning_rate
        loop.chance = chance_of(runs[-1].goal, stages[-1].task, dtype)
        return loop

    def start(self) -> Loop:
        """Begin the first stage."""
        self._enter(None)
        self.judge()
        return self

    @property
    def stage(self) -> StageRun:
        """The current stage, or the last one."""
        return self.stages[min(self.index, len(self.stages) - 1)]

    @property
    def steps(self) -> list[int]:
        """Steps of each stage."""
        return [stage.steps for stage in self.stages]

    @property
    def done(self) -> bool:
        """Whether training is over: after the last stage, or when the loop ended early."""
        return self.index == len(self.stages) or self.status is not Status.ok

    @property
    def latest(self) -> float:
        """Value of the current goal at its last evaluation; nan before."""
        return self.watch.latest

    def remaining(self, earlier: Earlier | TrainingRun | None = None) -> Remaining | None:
        """Estimate the steps that are left until the goal of the last stage.

        Parameters
        ----------
        earlier : TrainingRun or Earlier, optional
            A run of the same task, e.g. with another seed. Without one, the estimate is based on the evaluations of
            this run, which is much less certain, and only goals on decisions are estimated.

        Returns
        -------
        Remaining or None
            None if the loop is over, or before three evaluations.
        """
        if self.done:
            return None
        done = sum(self.steps)
        limit = done - self.stage.steps + self.stage.limit
        if earlier is not None:
            earlier = as_earlier(earlier)
            ratio = 1.0 if math.isnan(self.learning_rate) else self.learning_rate / earlier.learning_rate
            return Remaining.from_earlier(
                earlier.steps, done=done, limit=limit, reached=earlier.reached, rate_ratio=ratio
            )
        goal = self.stages[-1].goal
        if not isinstance(self.watch, GoalWatch) or not isinstance(goal, TrialGoal) or not math.isfinite(self.chance):
            return None
        history = self.watch.history or (self.watch.ahead.history if self.watch.ahead is not None else [])
        shares = [(value - self.chance) / (goal.level - self.chance) for _, value in history]
        return Remaining.from_curve([step for step, _ in history], shares, limit=limit)

    def __iter__(self) -> Iterator[object]:
        """Yield batches of the current stage until the last stage is over."""
        self._pending.clear()
        while not self.done:
            if len(self._pending) >= AHEAD:
                raise InvalidSpec("Call loop.update(loss, output) after the optimiser's step on each batch.")
            stage = self.stage
            # A trainer may fetch ahead: the next batch follows all that were given.
            batch = stage.batch(stage.steps + sum(one is stage for one, _ in self._pending))
            self._pending.append((stage, batch))
            yield batch

    def update(self, loss: float | torch.Tensor, output: object = None) -> None:
        """Report one optimiser step on the oldest batch that was given.

        Parameters
        ----------
        loss : float or tensor
            The loop ends if it is not finite.
        output : array or tensor, optional
            The network's answers to the batch. Loops of plans need them; others do not.
        """
        if not self._pending:
            raise InvalidSpec("update must follow a batch of this loop.", field="update")
        if isinstance(loss, torch.Tensor) and loss.numel() != 1:
            raise InvalidSpec(f"loss must be a number, got shape {tuple(loss.shape)}.", field="loss")
        stage, batch = self._pending.popleft()
        stage.steps += 1
        stage.loss = float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss)
        if self.done or stage is not self.stage:  # a batch that was fetched ahead
            return
        if not math.isfinite(stage.loss):
            self._leave(Status.diverged)
            return
        self.watch.take(stage.steps, batch, output)
        self.judge()

    def advance(self, steps: float = math.inf) -> int:
        """Take steps with the loop's own `Updates`, at most `steps`, and return their number."""
        assert self.updates is not None, "made with Updates"
        taken = 0
        with own_randomness(0):
            while taken < steps and not self.done:
                stage = self.stage
                if self.noise_seed is not None:
                    torch.manual_seed((self.noise_seed * 1_000_003 + self.index) * 1_000_003 + stage.steps)
                loss = self.updates.step(stage.batch(stage.steps))
                taken += 1
                if loss is None:
                    self._leave(Status.diverged)
                    break
                stage.loss = loss
                stage.steps += 1
                self.on_step(loss)
                self.judge()
        return taken

    def judge(self) -> None:
        """Decide whether the current stage is over, and begin the next if it is."""
        while not self.done:
            stage = self.stage
            if self.watch.status is not Status.ok:
                self._leave(self.watch.status)
                continue
            over = self.watch.over(stage.steps, self.view)
            stage.reached = self.watch.latest
            ended = over or stage.steps >= stage.limit
            self.on_judged(ended)
            if not ended:
                return
            self._leave(Status.ok if over else Status.not_within)

    def _leave(self, status: Status) -> None:
        stage = self.stage
        stage.status = status
        reached = "" if math.isnan(stage.reached) else f", at {stage.reached:.4g}"
        self.log(f"stage {self.index + 1} ended after {stage.steps} steps ({status.name}){reached}")
        if status is Status.diverged or (status is not Status.ok and self.strict):
            self.status = status
        else:
            self._next()

    def _next(self) -> None:
        before = self.stage.rate
        self.index += 1
        if self.index < len(self.stages):
            self._begin_updates(before)
            self._enter(self.watch)

    def _begin_updates(self, before: float) -> None:
        """Reset the optimiser if asked to, and set the learning rate of the stage."""
        rate = self.stage.rate
        if self.updates is not None and self.reset:
            self.updates.begin(rate)
            return
        if self.reset:
            for optimizer in self.optimizers:
                optimizer.state.clear()
        for one in self.optimizers if self.updates is None else [self.updates.optimizer]:
            multiply_rates(one, rate / before)

    def _enter(self, previous: Watch | None) -> None:
        stage = self.stage
        self.watch = stage.make_watch(previous)
        kept = "" if self.index == 0 else f", optimiser {'reset' if self.reset else 'kept'}"
        self.log(f"stage {self.index + 1} of {len(self.stages)}: {stage.name} {stage.text}{kept}")

    def state_dict(self) -> dict[str, object]:
        """Return the state as plain numbers and lists, to be saved with model and optimiser."""
        stages = [
            {
                "steps": one.steps,
                "loss": one.loss,
                "reached": one.reached,
                "status": None if one.status is None else one.status.name,
            }
            for one in self.stages
        ]
        watch = None if self.done else self.watch.state()
        return {"spec": self.spec, "stage": self.index, "status": self.status.name, "stages": stages, "watch": watch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        if state.get("spec") != self.spec:
            raise SchemaMismatch("The state belongs to a loop with other stages.")
        for one, saved in zip(self.stages, state["stages"], strict=True):
            one.steps, one.loss, one.reached = int(saved["steps"]), float(saved["loss"]), float(saved["reached"])
            one.status = None if saved["status"] is None else Status[saved["status"]]
        self.index, self.status = int(state["stage"]), Status[state["status"]]
        self._pending.clear()
        if state["watch"] is not None:
            self.watch = self.stage.make_watch(None)
            self.watch.restore(state["watch"])

    def snapshot(self) -> dict[str, object]:
        """Return the state of the loop, the module and the optimiser of `Updates`; see `restore`."""
        assert self.updates is not None, "made with Updates"
        parts = {"module": self.updates.module, "optimizer": self.updates.optimizer, "schedule": self.updates.schedule}
        states = {name: part.state_dict() for name, part in parts.items() if part is not None}
        return copy.deepcopy({"loop": self.state_dict(), **states})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `snapshot`."""
        assert self.updates is not None, "made with Updates"
        self.load_state_dict(state["loop"])
        self.updates.module.load_state_dict(state["module"])
        self.updates.begin(self.stage.rate)
        self.updates.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        if self.updates.schedule is not None:
            self.updates.schedule.load_state_dict(copy.deepcopy(state["schedule"]))

    def report(self) -> str:
        """Return a table of the stages, followed by warnings."""
        width = max(len("stage"), *(len(stage.name) for stage in self.stages))
        lines = [f"{'stage':<{width}}  expected    taken   reached  ended"]
        for one in self.stages:
            expected = "-" if math.isnan(one.expected_steps) else f"{one.expected_steps:.0f}"
            reached = "-" if math.isnan(one.reached) else f"{one.reached:.4f}"
            ended = one.status.name if one.status is not None else "running" if one.steps else "not begun"
            lines.append(f"{one.name:<{width}}  {expected:>8}  {one.steps:7d}  {reached:>8}  {ended}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    @property
    def warnings(self) -> list[str]:
        """What did not go as expected."""
        texts = []
        for one in self.stages:
            if one.status is Status.not_within:
                texts.append(f"{one.name}: given up after {one.steps} steps without reaching its goal")
            if one.status is Status.diverged:
                texts.append(f"{one.name}: diverged at step {one.steps}; lower the learning rate")
            texts += [f"{one.name}: {text}" for text in one.warnings]
        return texts

    def __repr__(self) -> str:
        parts = []
        for one in self.stages:
            of = "" if math.isnan(one.expected_steps) else f" of {one.expected_steps:g}"
            parts.append(f"{one.name} ({one.steps}{of})")
        return f"<Loop: {' -> '.join(parts)}>"


class CurriculumCallback:
    """A Lightning callback that leads a trainer through a loop and stops it at the end.

    Fit the module on the loop: ``trainer.fit(module, loop)``. Its `training_step` returns the loss, or for the loop of
    a plan {"loss": loss, "output": output}. Lightning fetches one batch ahead, so each stage is one step longer than
    necessary. Lightning saves the state of the loop in its own checkpoints.

    Parameters
    ----------
    loop : Loop

    Examples
    --------
    >>> import learncast as lc
    >>> target = lc.tasks.integration(steps=10)
    >>> stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> loaders = {task.name: lambda: iter(()) for task in (stronger, target)}  # your DataLoaders
    >>> loop = lc.plan(target, [stronger], network, learning_rate=0.002).loop(loaders)
    >>> loop
    <Loop: stronger targets (0 of 155) -> integration (0 of 0)>
    >>> callback = lc.training.CurriculumCallback(loop)  # doctest: +SKIP
    >>> trainer = lightning.Trainer(max_epochs=-1, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.fit(module, loop)  # doctest: +SKIP
    >>> print(loop.report())  # doctest: +SKIP
    """

    def __new__(cls, loop: Loop) -> CurriculumCallback:
        # The trainer expects a subclass of Lightning's callback, and Lightning is imported only here.
        kind = cls
        if cls is CurriculumCallback:
            lightning = lightning_package()
            kind = type(cls.__name__, (cls, lightning.Callback), {})
        callback: CurriculumCallback = object.__new__(kind)
        return callback

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop

    def on_train_start(self, trainer: object, pl_module: object) -> None:
        """Find the trainer's optimisers; refuse a trainer that accumulates gradients."""
        accumulated = getattr(trainer, "accumulate_grad_batches", 1)
        if accumulated != 1:
            got = f"accumulate_grad_batches={accumulated}"
            raise InvalidSpec(f"The trainer must step after every batch, got {got}.", field="accumulate_grad_batches")
        if not self.loop.optimizers:
            self.loop.optimizers = list(getattr(trainer, "optimizers", ()))

    def on_train_batch_end(
        self, trainer: Any, pl_module: object, outputs: Any, batch: object, batch_idx: int, *rest: object
    ) -> None:
        """Report a step to the loop, and stop the trainer when the loop is done."""
        loss, output = outputs, None
        if isinstance(outputs, Mapping):
            loss, output = outputs["loss"], outputs.get("output")
        self.loop.update(loss, output)
        if self.loop.done:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, object]:
        """Return the state of the loop."""
        return self.loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Restore the state of the loop."""
        self.loop.load_state_dict(state_dict)
