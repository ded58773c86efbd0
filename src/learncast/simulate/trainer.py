"""The trainer: gradient steps on trials, stage after stage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast.errors import InvalidSpec
from learncast.planning.curricula.curriculum import Stage
from learncast.progress import Progress, silent
from learncast.simulate.checkpoints import Checkpoint, optimiser_tensors, restore_optimiser
from learncast.simulate.goals import Goal, Goals
from learncast.simulate.learner import Learner
from learncast.simulate.modules import Network
from learncast.simulate.run import History, TrainingRun, training_provenance
from learncast.simulate.sources import Source
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule, Watch
from learncast.simulate.training import Training
from learncast.trajectory import Status, spec_hash
from learncast.validation import FloatArray, count

#: Steps between two calls of the progress report.
REPORT = 64


def train(
    source: Any,
    network: Network | nn.Module,
    training: Training,
    *,
    optima: Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    progress: Progress = silent,
) -> TrainingRun:
    """Train a network on trials, by backpropagation through time.

    Parameters
    ----------
    source : Task, function of (trials, rng), pair of arrays, DataLoader, Dataset, function of nothing, or list of Stage
        Trials. A list of stages is a curriculum: weights are carried over, and each stage ends by its own rule; a pair
        (trials, rule), as of `Advice.stages`, is a stage too. A
        DataLoader, or a function that returns batches, is passed through again and again with batches of its own size;
        its first `evaluation` trials are kept to judge by. The run is the same again only if its batches are.
    network : LinearRNN, TwoLayer, Activated or nn.Module
        The start. A module takes inputs (trials, steps, inputs) to answers of the targets' shape; it is copied.
    training : Training
    optima : sequence, optional
        For each stage the strength every mode should reach, where an accuracy is asked for; None entries are found.
    checkpoint : path, optional
        A safetensors file written every `checkpoint_every` steps. When it holds a state of this very run, training
        goes on from there, and ends as if it had never stopped.
    progress : callable
        Called with the share of steps done; of a stage that ends by a rule, with the share of `most_steps`.

    Returns
    -------
    TrainingRun
        The same for the same seed, versions and number of threads.
    """
    if not isinstance(training, Training):
        raise InvalidSpec(
            required="training must be a Training",
            got=type(training).__name__,
            why="it says how the network is trained",
            remedy="use learncast.simulate.Training(learning_rate=..., ...)",
        )
    sources, rules = _stages(source, training)
    if checkpoint is not None:
        for one in sources:
            one.check_replayable()
    with _threads(training.threads):
        learner = Learner(network, sources, training)
        given = [None] * len(sources) if optima is None else list(optima)
        if len(given) != len(sources):
            raise InvalidSpec(
                required=f"optima must be one for each of the {len(sources)} stages",
                got=f"{len(given)}",
                why="each stage has its own optimum",
                remedy="give None for a stage whose optimum should be found",
            )

        def first_pass(stage: int, plateau: Plateau) -> tuple[Status, float, float, FloatArray]:
            path = None if checkpoint is None else Path(f"{os.fspath(checkpoint)}.pass{stage}")
            found = _first_pass(network, sources[stage], learner, training, plateau, path, checkpoint_every)
            if path is not None:
                path.unlink(missing_ok=True)
            return found

        goals = Goals(learner, sources, rules, training, given, first_pass)
        run = _Loop(learner, sources, goals, training, checkpoint, checkpoint_every, progress).run()
    progress(1.0)
    return run


def _first_pass(
    network: Network | nn.Module,
    source: Source,
    whole: Learner,
    training: Training,
    plateau: Plateau,
    path: Path | None,
    every: int,
) -> tuple[Status, float, float, FloatArray]:
    settings = training.with_(until=plateau, steps=None, record=())
    learner = Learner(network, [source], settings)
    if learner.frame is not None:
        learner.frame = whole.frame
    began = learner.judge(source)()
    goals = Goals(learner, [source], [(plateau, training.most_steps)], settings, [None], _no_pass)
    loop = _Loop(learner, [source], goals, settings, path, every, silent)
    run = loop.run()
    assert loop.watch is not None
    return run.status, began, loop.watch.loss, loop.watch.strength


def _no_pass(stage: int, plateau: Plateau) -> Any:
    raise AssertionError("a plateau needs no optimum")


def _stages(source: Any, training: Training) -> tuple[list[Source], list[tuple[Rule | None, int]]]:
    if isinstance(source, list):
        if not source or not all(isinstance(stage, Stage) or _is_ruled(stage) for stage in source):
            raise InvalidSpec(
                required="a curriculum must be a list of Stage, or of pairs (trials, rule)",
                got=f"{[type(stage).__name__ for stage in source]}",
                why="each stage needs a task and a rule to stop",
                remedy="use learncast.Stage(task, accuracy=...) or Stage(task, steps=...)",
            )
        if training.steps is not None or training.until is not None:
            raise InvalidSpec(
                required="a curriculum's stages say when they end",
                got=f"steps={training.steps}, until={training.until}",
                why="two rules would contradict each other",
                remedy="leave steps and until out of Training",
            )
        sources = [Source.of(stage.task if isinstance(stage, Stage) else stage[0]) for stage in source]
        rules: list[tuple[Rule | None, int]] = [_stage_rule(stage, training.most_steps) for stage in source]
    else:
        if (training.steps is None) == (training.until is None):
            raise InvalidSpec(
                required="Training must have either steps or until",
                got=f"steps={training.steps}, until={training.until}",
                why="training needs exactly one rule to stop",
                remedy="give a number of steps, or an accuracy to reach",
            )
        sources = [Source.of(source)]
        rules = [(training.rule, training.most_steps if training.steps is None else training.steps)]
    for one in sources:
        one.checked_batch(training.batch)
    return sources, rules


def _is_ruled(stage: Any) -> bool:
    return isinstance(stage, tuple) and len(stage) == 2 and isinstance(stage[1], Accuracy | LossBelow | Plateau)


def _stage_rule(stage: Any, most_steps: int) -> tuple[Rule | None, int]:
    """When a stage ends by itself, and where in any case."""
    if not isinstance(stage, Stage):
        return stage[1], most_steps
    if stage.accuracy is not None:
        return Accuracy(stage.accuracy), most_steps
    return None, count("steps", stage.steps, least=0, why="training counts whole steps")


class _Loop:
    """One run, from its start or from a checkpoint."""

    def __init__(
        self,
        learner: Learner,
        sources: list[Source],
        goals: Goals,
        training: Training,
        checkpoint: str | os.PathLike[str] | None,
        checkpoint_every: int,
        progress: Progress,
    ) -> None:
        self.learner, self.sources, self.goals, self.training = learner, sources, goals, training
        self.path, self.every, self.progress = checkpoint, checkpoint_every, progress
        count("checkpoint_every", checkpoint_every, why="it counts steps")
        self.optimiser = training.made_optimiser(learner.parameters)
        self.history = History(learner.modes, training.record)
        self.watch: Watch | None = None
        self.stage, self.step, self.done = 0, 0, [0] * len(sources)
        self.known: list[dict[str, Any]] = []
        self.status = Status.ok
        rules = [(s.hash, repr(rule), limit) for s, (rule, limit) in zip(sources, goals.rules, strict=True)]
        self.spec = spec_hash(*rules, repr(goals.given), learner.hash, training.hash)

    def run(self) -> TrainingRun:
        resumed = self._resume()
        while self.stage < len(self.sources) and self.status is Status.ok:
            goal = self._goal()
            if not resumed:
                self.watch = Watch(goal.rule) if isinstance(goal.rule, Plateau) else None
                if self.stage and self.training.reset_optimiser:
                    self.optimiser = self.training.made_optimiser(self.learner.parameters)
            resumed = False
            self.status = self._train_stage(goal) if goal.status is Status.ok else goal.status
            self.stage, self.step = self.stage + 1, 0
        if self.path is not None:
            self._save()
        return self._packed()

    def _goal(self) -> Goal:
        """The goal of the stage, found once: a first pass is not repeated after a stop."""
        if len(self.known) > self.stage:
            return self.goals.of(self.stage, self.known[self.stage])
        goal = self.goals.of(self.stage)
        self.known.append(goal.facts())
        if self.path is not None and isinstance(goal.rule, Accuracy):
            self._save()
        return goal

    def _train_stage(self, goal: Goal) -> Status:
        learner, source, settings = self.learner, self.sources[self.stage], self.training
        judge = learner.judge(source)
        wants_loss = "loss" in settings.record
        begun = sum(self.done[: self.stage])
        while True:
            strength = learner.strength
            met = goal.rule is not None and goal.reached(strength, judge, self.watch, learner)
            ended = met or self.step == goal.limit
            noted = self.step % settings.every == 0 or ended
            # The moment between two stages belongs to the first.
            if noted and not (self.stage and self.step == 0):
                loss = judge() if wants_loss else np.nan
                self.history.add(begun + self.step, self.stage, loss, np.nan, strength)
            if ended:
                return Status.ok if met or goal.rule is None else Status.not_learned
            batch_loss = self._step(source)
            if batch_loss is None:
                return Status.diverged
            if noted and self.history.rows["time"] and self.history.rows["time"][-1] == begun + self.step:
                self.history.rows["batch_loss"][-1] = batch_loss
            self.step += 1
            self.done[self.stage] = self.step
            if self.path is not None and self.step % self.every == 0:
                self._save()
            if self.step % REPORT == 0:
                self.progress((self.stage + self.step / max(goal.limit, 1)) / len(self.sources))

    def _step(self, source: Source) -> float | None:
        """One update; None, and the weights as they were, when a number is no longer finite."""
        settings, key, parameters = self.training, (self.training.seed, self.stage), self.learner.parameters
        x, y = source.batch(settings.batch, key, self.step, self.learner.dtype)
        if self.learner.network is None:
            torch.manual_seed((settings.seed * 1_000_003 + self.stage) * 1_000_003 + self.step)  # for its dropout
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.learner.loss(x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        value = float(loss.detach())
        if settings.clip is not None:
            size = float(nn.utils.clip_grad_norm_(parameters, settings.clip))
        else:
            size = _size([p.grad for p in parameters if p.grad is not None])
        if not (np.isfinite(value) and np.isfinite(size)):
            return None
        before = [p.detach().clone() for p in parameters]
        self.optimiser.step()
        if not np.isfinite(_size(parameters)):
            with torch.no_grad():
                for parameter, old in zip(parameters, before, strict=True):
                    parameter.copy_(old)
            return None
        return value

    def _save(self) -> None:
        assert self.path is not None
        tensors = {f"module.{key}": value.clone() for key, value in self.learner.module.state_dict().items()}
        tensors |= optimiser_tensors(self.optimiser)
        tensors |= {f"history.{key}": torch.as_tensor(rows) for key, rows in self.history.arrays().items()}
        if self.watch is not None:
            tensors |= {key: torch.as_tensor(value) for key, value in self.watch.state().items()}
        facts = {
            "stage": self.stage,
            "step": self.step,
            "done": self.done,
            "status": self.status.name,
            "goals": self.known,
        }
        Checkpoint(tensors, facts).save(self.path, spec=self.spec)

    def _resume(self) -> bool:
        """Take up a saved state; say whether a stage is under way."""
        found = None if self.path is None else Checkpoint.load(self.path, spec=self.spec)
        if found is None:
            return False
        module = {k.removeprefix("module."): v for k, v in found.tensors.items() if k.startswith("module.")}
        self.learner.module.load_state_dict(module)
        history = {k.removeprefix("history."): v.numpy() for k, v in found.tensors.items() if k.startswith("history.")}
        self.history.restore(history)
        self.stage, self.step, self.done = found.facts["stage"], found.facts["step"], list(found.facts["done"])
        self.status, self.known = Status[found.facts["status"]], list(found.facts["goals"])
        restore_optimiser(self.optimiser, found.tensors)
        if any(key.startswith("watch_") for key in found.tensors):
            rule = self.goals.rules[min(self.stage, len(self.sources) - 1)][0]
            assert isinstance(rule, Plateau)
            self.watch = Watch(rule)
            self.watch.restore({k: v.numpy() for k, v in found.tensors.items() if k.startswith("watch_")})
        # A state saved before the stage's first step leaves its beginning to be done.
        return self.stage < len(self.sources) and self.step > 0

    def _packed(self) -> TrainingRun:
        names = [source.name for source in self.sources]
        settings = self.training
        attributes = {
            "learning_rate": settings.learning_rate,
            "optimiser": settings.optimiser_name,
            "batch": "all" if settings.batch is None else settings.batch,
            "seed": settings.seed,
            "dtype": settings.dtype,
            "status": self.status.name,
            "stage_steps": list(self.done),
            "optimiser_between_stages": "reset" if settings.reset_optimiser else "kept",
        }
        optima = np.full((len(self.sources), self.learner.modes), np.nan)
        for k, facts in enumerate(self.known):
            optima[k] = np.array(facts["optimum"], dtype=float) if facts["optimum"] else np.nan
        return TrainingRun(
            self.history.dataset(names, optima, attributes),
            training_provenance(self.spec, settings.seed),
            self.status,
            tuple(self.done),
            self.learner.described(),
            self.learner.module,
        )


def _size(tensors: Sequence[torch.Tensor]) -> float:
    return sum(float(t.detach().abs().sum()) for t in tensors)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """So many threads inside, as many as before outside; torch's own random stream is left as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)
