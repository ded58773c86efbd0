"""The trainer: gradient steps on trials, stage after stage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast.dynamics.modes import modes_of
from learncast.errors import InvalidSpec
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curriculum import Stage
from learncast.progress import Progress, silent
from learncast.simulate.checkpoints import Checkpoint, optimiser_tensors, restore_optimiser
from learncast.simulate.learner import Judge, Learner
from learncast.simulate.modules import Network
from learncast.simulate.run import History, TrainingRun, training_provenance
from learncast.simulate.sources import Source
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule, Watch, checked_optimum, inside
from learncast.simulate.training import Training
from learncast.trajectory import Status, spec_hash
from learncast.validation import FloatArray, count

#: Steps between two calls of the progress report.
REPORT = 64


@dataclass(frozen=True, eq=False)
class _Goal:
    """When one stage ends."""

    rule: Rule | None
    limit: int
    optimum: FloatArray
    loss: float = float("nan")

    def reached(self, strength: FloatArray, judge: Judge, watch: Watch | None, learner: Learner) -> bool:
        rule = self.rule
        if isinstance(rule, Accuracy):
            return judge() <= self.loss if np.isfinite(self.loss) else inside(strength, self.optimum, rule.accuracy)
        if isinstance(rule, LossBelow):
            return judge() <= rule.tolerance
        return watch is not None and watch.settled(judge, learner.weights, strength)


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
    source : Task, function of (trials, rng), pair of arrays, or list of Stage
        Trials. A list of stages is a curriculum: weights are carried over, and each stage ends by its own rule.
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
    sources, rules = _stages(source, training)
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
        goals = _Goals(network, learner, sources, rules, training, given)
        return _Loop(learner, sources, goals, training, checkpoint, checkpoint_every, progress).run()


def _stages(source: Any, training: Training) -> tuple[list[Source], list[tuple[Rule | None, int]]]:
    if isinstance(source, list):
        if not source or not all(isinstance(stage, Stage) for stage in source):
            raise InvalidSpec(
                required="a curriculum must be a list of Stage",
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
        sources = [Source.of(stage.task) for stage in source]
        rules: list[tuple[Rule | None, int]] = [
            (Accuracy(stage.accuracy), training.most_steps)
            if stage.accuracy is not None
            else (None, count("steps", stage.steps, least=0, why="training counts whole steps"))
            for stage in source
        ]
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


class _Goals:
    """Finds, stage by stage, when it ends."""

    def __init__(
        self,
        network: Network | nn.Module,
        learner: Learner,
        sources: list[Source],
        rules: list[tuple[Rule | None, int]],
        training: Training,
        given: list[Any],
    ) -> None:
        self.network, self.learner, self.sources = network, learner, sources
        self.rules, self.training, self.given = rules, training, given

    def of(self, stage: int) -> _Goal:
        rule, limit = self.rules[stage]
        optimum = np.full(self.learner.modes, np.nan)
        if not isinstance(rule, Accuracy):
            return _Goal(rule, limit, optimum)
        known = self.given[stage] if self.given[stage] is not None else rule.optimum
        if known is not None and self.learner.modes:
            return _Goal(rule, limit, checked_optimum(known, self.learner.modes))
        theory = self._theory(stage)
        if theory is not None:
            return _Goal(rule, limit, theory)
        return self._two_passes(rule, limit, stage)

    def _theory(self, stage: int) -> FloatArray | None:
        """The optimum of a linear network with fixed recurrence, from the task's statistics."""
        network, task = self.learner.network, self.learner.tasks[stage] if self.learner.tasks else None
        learn = self.training.learn
        frame = self.learner.frame
        if frame is None or task is None:
            return None
        if isinstance(network, TwoLayer) and (learn is None or len(learn) == 2):
            power = task.input_covariance.dense()[0, :, 0, :]
            best = np.linalg.lstsq(power, task.cross_covariance.dense()[0, :, 0, :], rcond=None)[0].T
            return np.asarray(np.einsum("mk,mn,nk->k", frame.mode_outputs, best, frame.mode_inputs))
        if isinstance(network, LinearRNN) and learn is not None and set(learn) == {"input", "output"}:
            return modes_of([*self.learner.tasks[:1], task], network)[-1].optimum
        return None

    def _two_passes(self, rule: Accuracy, limit: int, stage: int) -> _Goal:
        """Train to the plateau from scratch for the optimum, as the paper does for nonlinear networks."""
        first = self.training.with_(until=rule.plateau, steps=None, record=("loss",))
        source = self.sources[stage]
        learner = Learner(self.network, [source], first)
        if learner.frame is not None:
            learner.frame = self.learner.frame
        loop = _Loop(learner, [source], _Fixed(_Goal(rule.plateau, limit, np.zeros(0))), first, None, 1, silent)
        began, run = learner.judge(source, 0)(), loop.run()
        watch = loop.watch
        assert watch is not None
        if run.status is not Status.ok:
            return _Goal(rule, limit, np.full(self.learner.modes, np.nan), -np.inf)
        if self.learner.modes:
            return _Goal(rule, limit, watch.strength)
        excess = (1 - rule.accuracy) ** 2 * (began - watch.loss)
        return _Goal(rule, limit, np.zeros(0), watch.loss + excess)


class _Fixed(_Goals):
    """One stage whose end is known."""

    def __init__(self, goal: _Goal) -> None:
        self.goal = goal

    def of(self, stage: int) -> _Goal:
        return self.goal


class _Loop:
    """One run, from its start or from a checkpoint."""

    def __init__(
        self,
        learner: Learner,
        sources: list[Source],
        goals: _Goals,
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
        self.optima = np.full((len(sources), learner.modes), np.nan)
        self.status = Status.ok
        rules = [(s.hash, repr(rule), limit) for s, (rule, limit) in zip(sources, self._rules, strict=True)]
        self.spec = spec_hash(*rules, learner.hash, training.hash)

    @property
    def _rules(self) -> list[tuple[Rule | None, int]]:
        if isinstance(self.goals, _Fixed):
            return [(self.goals.goal.rule, self.goals.goal.limit)]
        return self.goals.rules

    def run(self) -> TrainingRun:
        resumed = self._resume()
        while self.stage < len(self.sources) and self.status is Status.ok:
            goal = self.goals.of(self.stage)
            self.optima[self.stage] = goal.optimum if goal.optimum.size else np.nan
            if not resumed:
                self.watch = Watch(goal.rule) if isinstance(goal.rule, Plateau) else None
                if self.stage and self.training.reset_optimiser:
                    self.optimiser = self.training.made_optimiser(self.learner.parameters)
            resumed = False
            self.status = self._train_stage(goal)
            self.stage, self.step = self.stage + 1, 0
        if self.path is not None:
            self._save()
        return self._packed()

    def _train_stage(self, goal: _Goal) -> Status:
        learner, source, settings = self.learner, self.sources[self.stage], self.training
        judge = learner.judge(source, self.stage)
        wants_loss = "loss" in settings.record
        begun = sum(self.done[: self.stage])
        while True:
            strength = learner.strength
            ended = (goal.rule is not None and goal.reached(strength, judge, self.watch, learner)) or (
                self.step == goal.limit
            )
            noted = self.step % settings.every == 0 or ended
            if noted:
                # The moment between two stages belongs to the first.
                loss = judge() if wants_loss else np.nan
                if not (self.stage and self.step == 0):
                    self.history.add(begun + self.step, self.stage, loss, np.nan, strength)
            if ended:
                met = goal.rule is None or self.step < goal.limit or goal.reached(strength, judge, None, learner)
                return Status.ok if met else Status.not_learned
            batch_loss = self._step(source)
            if batch_loss is None:
                return Status.diverged
            if noted and self.history.rows["time"][-1] == begun + self.step:
                self.history.rows["batch_loss"][-1] = batch_loss
            self.step += 1
            self.done[self.stage] = self.step
            if self.path is not None and self.step % self.every == 0:
                self._save()
            if self.step % REPORT == 0:
                self.progress((self.stage + self.step / max(goal.limit, 1)) / len(self.sources))

    def _step(self, source: Source) -> float | None:
        """One update; None, and no update, when the loss or its slope is no longer finite."""
        settings, key = self.training, (self.training.seed, self.stage)
        x, y = source.batch(settings.batch, key, self.step, self.learner.dtype)
        if self.learner.network is None:
            torch.manual_seed((settings.seed * 1_000_003 + self.stage) * 1_000_003 + self.step)  # for its dropout
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.learner.loss(x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        value = float(loss.detach())
        if settings.clip is not None:
            size = float(nn.utils.clip_grad_norm_(self.learner.parameters, settings.clip))
        else:
            size = sum(float(p.grad.abs().sum()) for p in self.learner.parameters if p.grad is not None)
        if not (np.isfinite(value) and np.isfinite(size)):
            return None
        self.optimiser.step()
        return value

    def _save(self) -> None:
        assert self.path is not None
        tensors = {f"module.{key}": value.clone() for key, value in self.learner.module.state_dict().items()}
        tensors |= optimiser_tensors(self.optimiser)
        tensors |= {f"history.{key}": torch.as_tensor(rows) for key, rows in self.history.arrays().items()}
        tensors["optima"] = torch.as_tensor(self.optima)
        if self.watch is not None:
            tensors |= {key: torch.as_tensor(value) for key, value in self.watch.state().items()}
        facts = {"stage": self.stage, "step": self.step, "done": self.done, "status": self.status.name}
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
        self.status = Status[found.facts["status"]]
        self.optima = found.tensors["optima"].numpy().copy()
        restore_optimiser(self.optimiser, found.tensors)
        if self.stage < len(self.sources) and isinstance(self._rules[self.stage][0], Plateau):
            self.watch = Watch(self._rules[self.stage][0])  # type: ignore[arg-type]
            self.watch.restore({k: v.numpy() for k, v in found.tensors.items() if k.startswith("watch_")})
        return self.stage < len(self.sources)

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
        return TrainingRun(
            self.history.dataset(names, self.optima, attributes),
            training_provenance(self.spec, settings.seed),
            self.status,
            tuple(self.done),
            self.learner.described(),
            self.learner.module,
        )


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
