"""The trainer: gradient steps on trials, stage after stage."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec, OutOfTime, SchemaMismatch
from learncast._core.files import draft_of
from learncast._core.progress import Progress, check_time, noticed, seconds_left, silent, time_limit
from learncast._core.system import held, serve
from learncast._core.threads import one_thread_each
from learncast._core.validation import FloatArray, count, one_or_each
from learncast.practice.stage import Stage
from learncast.results import Status, spec_hash
from learncast.training.borrowed import own_threads
from learncast.training.goals import Goal
from learncast.training.learner import Judge, Learner
from learncast.training.modules import Network
from learncast.training.run import History, TrainingRun, training_provenance
from learncast.training.sources import Source
from learncast.training.stopping import Accuracy, GoalWatch, Plateau, Rule, Watch, inside, read_rule, watch_of
from learncast.training.training import Training
from learncast.training.updates import Updates

#: Steps between two calls of the progress report.
REPORT = 64


@noticed("training")
def train(
    source: Any,
    network: Network | nn.Module,
    training: Training,
    *,
    optima: Sequence[Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    log: Callable[[str], object] = silent,
    writer: Any = None,
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
    checkpoint_every : int
        Steps between two writings of it.
    log : callable
        Called with a sentence when a stage begins and when it has ended, e.g. `print`.
    writer : object with add_scalar(name, value, step), optional
        Such as TensorBoard's SummaryWriter: it is given what is recorded, and the stage.
    progress : callable
        Called with the share of steps done; of a stage that ends by a rule, with the share of `most_steps`.

    Returns
    -------
    TrainingRun
        The same for the same seed, versions and number of threads.

    Raises
    ------
    UnsupportedModel
        If the network is neither described nor a torch module.
    SchemaMismatch
        If the checkpoint is one of another run, or damaged.
    OutOfTime
        If a limit of time is set and it is up.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> training = lc.training.Training(learning_rate=1e-3, batch=200, learn=("input", "output"))
    >>> run = lc.training.train([lc.Stage(task, accuracy=0.9)], network, training)
    >>> run
    <TrainingRun by gd: integration (279); 279 steps, ok>
    >>> lc.follow([lc.Stage(task, accuracy=0.9)], network, learning_rate=1e-3).descent_steps
    277.0
    """
    if not isinstance(training, Training):
        raise InvalidSpec(
            f"training must be a Training, got {type(training).__name__}. Use "
            "learncast.training.Training(learning_rate=..., ...).",
            field="training",
        )
    if writer is not None and not callable(getattr(writer, "add_scalar", None)):
        raise InvalidSpec(
            f"writer must have a method add_scalar(name, value, step), got {type(writer).__name__}. Use "
            "torch.utils.tensorboard.SummaryWriter, or an object of your own.",
            field="writer",
        )
    legs = _legs(source, training, optima)
    for leg in legs:
        leg.source.check(training.batch, replayed=checkpoint is not None)
    with own_threads(training.threads):
        learner = Learner(network, [leg.source for leg in legs], training)
        run = _Loop(learner, legs, checkpoint, checkpoint_every, progress, log, writer).run()
    progress(1.0)
    return run


class Leg(NamedTuple):
    """One stage of a run as it is asked for: its trials, when it ends and where in any case, and its optimum if given.

    The rule is None for a number of steps, which is then the limit.
    """

    source: Source
    rule: Rule | None
    limit: int
    optimum: Any = None


class Aim(NamedTuple):
    """What a stage that ends by an accuracy has to reach: strengths, or a loss of its own finding.

    Attributes
    ----------
    optimum : (modes,)
        Strengths to reach; nan where none are asked for.
    loss : float
        Loss to reach instead, for a network without modes.
    status : Status
        Of the first pass that looked for the optimum: the stage cannot be trained to an optimum that was not found.
    """

    optimum: FloatArray
    loss: float = float("nan")
    status: Status = Status.ok


def _legs(source: Any, training: Training, optima: Sequence[Any] | None) -> list[Leg]:
    staged = isinstance(source, list)
    if staged and not (source and all(isinstance(stage, Stage) or _is_ruled(stage) for stage in source)):
        raise InvalidSpec(
            "a curriculum must be a list of Stage, or of pairs (trials, rule), got "
            f"{[type(stage).__name__ for stage in source]}. Use learncast.Stage(task, accuracy=...) or "
            "Stage(task, steps=...)."
        )
    if (training.steps is not None) + (training.until is not None) != (0 if staged else 1):
        required = "a curriculum's stages say when they end" if staged else "Training must have either steps or until"
        raise InvalidSpec(f"{required}, got steps={training.steps}, until={training.until}.")
    limit = training.most_steps if training.steps is None else training.steps
    legs = [_leg(stage, limit) for stage in source] if staged else [Leg(Source.of(source), training.rule, limit)]
    if optima is None:
        return legs
    if len(optima) != len(legs):
        raise InvalidSpec(f"optima must be one for each of the {len(legs)} stages, got {len(optima)}.", field="optima")
    return [leg._replace(optimum=optimum) for leg, optimum in zip(legs, optima, strict=True)]


def _is_ruled(stage: Any) -> bool:
    """Whether this is a pair of trials and a rule, and not of arrays, which say no rule."""
    return isinstance(stage, tuple) and len(stage) == 2 and isinstance(stage[1], Rule | int | float)


def _leg(stage: Any, most_steps: int) -> Leg:
    if not isinstance(stage, Stage):
        source, rule = Source.of(stage[0]), stage[1]
        if isinstance(rule, int):
            return Leg(source, None, count("steps", rule, least=0))
        return Leg(source, read_rule(rule), most_steps)
    if stage.until is not None:
        return Leg(Source.of(stage.task), read_rule(stage.until), most_steps)
    if stage.accuracy is not None:
        return Leg(Source.of(stage.task), Accuracy(stage.accuracy), most_steps)
    return Leg(Source.of(stage.task), None, count("steps", stage.steps, least=0))


class _Loop:
    """One run, from its start or from a checkpoint."""

    def __init__(
        self,
        learner: Learner,
        legs: list[Leg],
        path: str | os.PathLike[str] | None,
        every: int,
        progress: Progress,
        log: Callable[[str], object] = silent,
        writer: Any = None,
    ) -> None:
        self.learner, self.legs, self.training = learner, legs, learner.training
        self.path, self.progress, self.log, self.writer = path, progress, log, writer
        self.every = count("checkpoint_every", every)
        self.updates = Updates(learner.module, self.training)
        self.history = History(learner.modes, self.training.record)
        self.watch: Watch | GoalWatch | None = None
        self.stage, self.step, self.done = 0, 0, [0] * len(legs)
        self.goals: list[Aim] = []
        self.status = Status.ok
        self._judges: list[tuple[tuple[Any, ...], Judge]] = []
        asked = [(leg.source.hash, repr(leg.rule), leg.limit, repr(leg.optimum)) for leg in legs]
        self.spec = spec_hash(*asked, learner.hash, self.training.hash)

    def run(self) -> TrainingRun:
        resumed = self._resume()
        while self.stage < len(self.legs) and self.status is Status.ok:
            goal, rule = self._goal(), self.legs[self.stage].rule
            if not resumed:
                self.watch = watch_of(rule, self.legs[self.stage].source, self.watch)
                if self.stage and self.training.reset_optimizer:
                    self.updates.begin()
            self.log(self._begun(resumed))
            resumed = False
            self.status = self._train_stage(goal) if goal.status is Status.ok else goal.status
            self.log(self._ended())
            self.stage, self.step = self.stage + 1, 0
        if self.path is not None:
            self._save()
        return self._packed()

    def _begun(self, resumed: bool) -> str:
        """The stage that begins, in a sentence."""
        leg, number = self.legs[self.stage], f"stage {self.stage + 1} of {len(self.legs)}"
        until = f"for {leg.limit} steps" if leg.rule is None else f"until {getattr(leg.rule, 'words', leg.rule)}"
        again = f", taken up at step {self.step}" if resumed else ""
        optimizer = ""
        if self.stage and not resumed:
            optimizer = f", optimiser {'reset' if self.training.reset_optimizer else 'kept'}"
        return f"{number}: {leg.source.name} {until}{again}{optimizer}"

    def _ended(self) -> str:
        """How the stage ended, in a sentence."""
        found = f"stage {self.stage + 1} ended after {self.step} steps ({self.status.name})"
        reached = self.watch.latest if isinstance(self.watch, GoalWatch) else np.nan
        return found if np.isnan(reached) else f"{found}, at {reached:.4g}"

    def _write(self, step: int, loss: float, goal: float) -> None:
        for name, value in (("loss", loss), ("goal", goal), ("stage", float(self.stage))):
            if not np.isnan(value):
                self.writer.add_scalar(name, value, step)

    def _aimed(self) -> Judge:
        """What tells the measure of the last stage's goal on its own task, whatever stage is trained."""
        leg = self.legs[-1]
        last = watch_of(leg.rule, leg.source)
        if not isinstance(last, GoalWatch):
            return lambda: np.nan
        look, own = self.learner.look(last.goal, leg.source), self.watch

        def measured() -> float:
            # The stage itself may have looked at this very step.
            fresh = self.stage == len(self.legs) - 1 and isinstance(own, GoalWatch) and own.looked == self.step
            return own.latest if fresh and isinstance(own, GoalWatch) else look()

        return measured

    def _goal(self) -> Aim:
        """The goal of the stage, found once: a first pass is not repeated after a stop."""
        if len(self.goals) == self.stage:
            self.goals.append(self._found_goal())
            if self.path is not None and isinstance(self.legs[self.stage].rule, Accuracy):
                self._save()
        return self.goals[self.stage]

    def _found_goal(self) -> Aim:
        leg, modes = self.legs[self.stage], self.learner.modes
        rule, nothing = leg.rule, np.full(modes, np.nan)
        if not isinstance(rule, Accuracy):
            return Aim(nothing)
        asked = rule.optimum if leg.optimum is None else leg.optimum
        if asked is not None and modes:
            return Aim(one_or_each("optimum", asked, modes, of="modes"))
        if (known := self.learner.optimum(self.stage)) is not None:
            return Aim(known)
        status, began, loss, strength = self._first_pass(rule.plateau)
        if status is not Status.ok:
            return Aim(nothing, status=status)
        return Aim(strength) if modes else Aim(nothing, loss + (1 - rule.accuracy) ** 2 * (began - loss))

    def _first_pass(self, plateau: Plateau) -> tuple[Status, float, float, FloatArray]:
        """Train from the start on this stage's source alone, to a plateau, as the paper does for nonlinear networks.

        Gives the status, the loss at the start, and the loss and the strengths on the plateau.
        """
        source, settings = self.legs[self.stage].source, self.training.with_(until=plateau, steps=None, record=())
        path = None if self.path is None else Path(f"{os.fspath(self.path)}.pass{self.stage}")
        learner = Learner(self.learner.start, [source], settings)
        if learner.frame is not None:
            learner.frame = self.learner.frame
        began = learner.judge(source)()
        loop = _Loop(learner, [Leg(source, plateau, settings.most_steps)], path, self.every, silent)
        status = loop.run().status
        if path is not None:
            path.unlink(missing_ok=True)
        assert isinstance(loop.watch, Watch)
        loss, strength, *_ = loop.watch.means or (np.nan, np.zeros(0))
        return status, began, float(loss), strength

    def _look(self, goal: Goal, source: Source) -> float:
        """A goal's measure on held-out trials, which are drawn once."""
        key = (source.hash, goal.asked)
        found = next((judge for known, judge in self._judges if known == key), None)
        if found is None:
            found = self.learner.look(goal, source)
            self._judges.append((key, found))
        return found()

    def _met(self, goal: Aim, strength: FloatArray, judge: Judge) -> bool:
        """Whether the stage has what it was to reach at this step; a plateau takes the step into account."""
        rule = self.legs[self.stage].rule
        if isinstance(rule, Accuracy):
            return judge() <= goal.loss if np.isfinite(goal.loss) else inside(strength, goal.optimum, rule.accuracy)
        if isinstance(self.watch, GoalWatch):
            return self.watch.settled(self.step, self._look)
        return self.watch is not None and self.watch.settled(judge, self.learner.weights, strength)

    def _train_stage(self, goal: Aim) -> Status:
        learner, settings = self.learner, self.training
        source, rule, limit, _ = self.legs[self.stage]
        judge = learner.judge(source)
        wants_loss, aim = "loss" in settings.record, self._aimed()
        begun = sum(self.done[: self.stage])
        while True:
            strength = learner.strength
            met = self._met(goal, strength, judge)
            ended = met or self.step == limit
            noted = self.step % settings.every == 0 or ended
            # The moment between two stages belongs to the first.
            if noted and not (self.stage and self.step == 0):
                loss = judge() if wants_loss else np.nan
                reached = aim() if "goal" in settings.record else np.nan
                self.history.add(begun + self.step, self.stage, loss, np.nan, strength, reached)
                if self.writer is not None:
                    self._write(begun + self.step, loss, reached)
            if ended:
                return Status.ok if met or rule is None else Status.not_learned
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
                check_time()
                self.progress((self.stage + self.step / max(limit, 1)) / len(self.legs))

    def _step(self, source: Source) -> float | None:
        """One update; None, and the weights as they were, when a number is no longer finite."""
        settings = self.training
        batch = source.batch(settings.batch, (settings.seed, self.stage), self.step, self.learner.dtype)
        if self.learner.network is None:
            torch.manual_seed((settings.seed * 1_000_003 + self.stage) * 1_000_003 + self.step)  # for its dropout
        return self.updates.step(batch)

    def _save(self) -> None:
        assert self.path is not None
        tensors = {f"module.{key}": value.clone() for key, value in self.learner.module.state_dict().items()}
        tensors |= self.updates.tensors()
        tensors |= {f"history.{key}": torch.as_tensor(rows) for key, rows in self.history.arrays().items()}
        if self.watch is not None:
            tensors |= {f"watch.{key}": torch.as_tensor(value) for key, value in self.watch.state().items()}
        facts = {
            "stage": self.stage,
            "step": self.step,
            "done": self.done,
            "status": self.status.name,
            "updates": self.updates.facts(),
            "goals": [(goal.optimum.tolist(), goal.loss, goal.status.name) for goal in self.goals],
        }
        Checkpoint({key: value.contiguous() for key, value in tensors.items()}, facts).save(self.path, spec=self.spec)

    def _resume(self) -> bool:
        """Take up a saved state; say whether a stage is under way."""
        found = None if self.path is None else Checkpoint.load(self.path, spec=self.spec)
        if found is None:
            return False
        self.learner.module.load_state_dict(found.under("module."))
        self.history.restore({key: value.numpy() for key, value in found.under("history.").items()})
        self.stage, self.step, self.done = found.facts["stage"], found.facts["step"], list(found.facts["done"])
        self.status = Status[found.facts["status"]]
        for optimum, loss, status in found.facts["goals"]:
            self.goals.append(Aim(np.array(optimum, dtype=float), float(loss), Status[status]))
        self.updates.restore(found.under("optimizer."), found.facts.get("updates", {}))
        watched = {key: value.numpy() for key, value in found.under("watch.").items()}
        if watched:
            leg = self.legs[min(self.stage, len(self.legs) - 1)]
            self.watch = watch_of(leg.rule, leg.source)
            assert self.watch is not None
            self.watch.restore(watched)
        # A state saved before the stage's first step leaves its beginning to be done.
        return self.stage < len(self.legs) and self.step > 0

    def _packed(self) -> TrainingRun:
        names = [leg.source.name for leg in self.legs]
        settings = self.training
        attributes = {
            "learning_rate": settings.learning_rate,
            "optimizer": settings.optimizer_name,
            "loss": repr(self.learner.loss),
            "batch": "all" if settings.batch is None else settings.batch,
            "seed": settings.seed,
            "dtype": settings.dtype,
            "status": self.status.name,
            "stage_steps": list(self.done),
            "optimizer_between_stages": "reset" if settings.reset_optimizer else "kept",
        }
        optima = np.full((len(self.legs), self.learner.modes), np.nan)
        for k, goal in enumerate(self.goals):
            optima[k] = goal.optimum
        # Unknown where the network is not linear, or no loss was asked for.
        known = "loss" in settings.record
        least = [self.learner.least_loss(k) if known else np.nan for k in range(len(self.legs))]
        dataset = self.history.dataset(names, optima, least, attributes)
        provenance = training_provenance(self.spec, settings.seed)
        return TrainingRun(dataset, provenance, self.learner.described(), self.learner.module)


FORMAT = "learncast-training-2"


@dataclass(frozen=True)
class Checkpoint:
    """A run's state: named tensors, and facts about where it stands.

    Attributes
    ----------
    tensors : dict of str to Tensor
    facts : dict
        Anything JSON can hold.
    """

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]

    def save(self, path: str | os.PathLike[str], *, spec: str) -> None:
        """Write through a temporary file and a rename; `spec` is the hash of what is trained and how."""
        from safetensors.torch import save

        facts = {"format": FORMAT, "spec": spec, "facts": json.dumps(self.facts), "digest": self.digest}
        with draft_of(path, sole=True) as draft:
            # Its own save_file writes through a draft of its own, which a killed process leaves behind.
            Path(draft).write_bytes(save(self.tensors, metadata=facts))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, spec: str) -> Checkpoint | None:
        """Read the state of the same run; None when there is none yet."""
        from safetensors import SafetensorError, safe_open

        source = Path(path)
        if not source.exists():
            return None
        try:
            with safe_open(source, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dict
        except (OSError, SafetensorError) as error:
            raise _refused(f"{source} must be a checkpoint", f"{type(error).__name__}: {error}") from error
        if facts.get("format") != FORMAT or facts.get("spec") != spec:
            same = facts.get("format") == FORMAT
            got = "one of another task, network or training" if same else "a file of another kind"
            raise _refused(f"{source} must be a checkpoint of this very run", got)
        found = cls(tensors, json.loads(facts["facts"]))
        if found.digest != facts.get("digest"):
            raise _refused(f"{source} must hold what was written to it", "tensors that have changed since")
        return found

    def under(self, prefix: str) -> dict[str, torch.Tensor]:
        """The tensors whose names begin so, by the rest of their names."""
        return {key.removeprefix(prefix): value for key, value in self.tensors.items() if key.startswith(prefix)}

    @property
    def digest(self) -> str:
        """Checksum of the tensors, which the file format does not have."""
        from safetensors.torch import save

        return hashlib.sha256(save(self.tensors)).hexdigest()


def _refused(required: str, got: str) -> SchemaMismatch:
    return SchemaMismatch(f"{required}, got {got}. Name another file, or remove this one to train afresh.")


@noticed("training")
def train_replicas(
    source: Any,
    network: Network | nn.Module,
    training: Training,
    *,
    seeds: int | Sequence[int] = 5,
    processes: int | None = None,
    optima: Sequence[Any] | None = None,
    progress: Progress = silent,
) -> tuple[TrainingRun, ...]:
    """Train the same start on the trials of several seeds.

    Parameters
    ----------
    source, network, training, optima
        As of `train`; the seed of `training` is replaced.
    seeds : int or sequence of int
        Which seeds; a number n means 0 ... n - 1.
    processes : int, optional
        Replicas at a time, each in a process of one thread; as many as there are processors by default. With 1 they
        run in this process one after another. What is trained must then be picklable: functions at the top of a module.
    progress : callable
        Called with the share of replicas done.

    Returns
    -------
    tuple of TrainingRun
        One for each seed, in their order.

    Raises
    ------
    UnsupportedModel
        If the network is neither described nor a torch module.
    OutOfTime
        If a limit of time is set and it is up.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> training = lc.training.Training(learning_rate=0.01, batch=20, until=0.9, learn=("input", "output"))
    >>> runs = lc.training.train_replicas(task, network, training, seeds=3, processes=1)
    >>> [run.steps for run in runs]
    [49, 54, 57]
    """
    chosen = list(range(count("seeds", seeds))) if isinstance(seeds, int) else list(seeds)
    jobs = [(source, network, training.with_(seed=seed), optima) for seed in chosen]
    return tuple(train_all(jobs, processes=processes, progress=progress))


@noticed("training")
def train_all(jobs: Sequence[Any], *, processes: int | None = None, progress: Progress = silent) -> list[TrainingRun]:
    """Run (source, network, training, optima) jobs, several at a time, in the order given.

    Parameters
    ----------
    jobs : sequence of (source, network, training, optima)
        As of `train`; optima may be None.
    processes : int, optional
        Jobs at a time, as of `train_replicas`.
    progress : callable
        Called with the share of jobs done.

    Returns
    -------
    list of TrainingRun
        In the order of the jobs.

    Raises
    ------
    OutOfTime
        If a limit of time is set and it is up.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> training = lc.training.Training(learning_rate=0.005, batch=100, until=0.9, learn=("input", "output"))
    >>> jobs = [(task, network, training, None), (task, network, training.with_(learning_rate=0.01), None)]
    >>> [run.steps for run in lc.training.train_all(jobs, processes=1)]
    [112, 55]
    """
    found = [run for run in trained_in_time(jobs, processes=processes, progress=progress) if run is not None]
    if len(found) < len(jobs):
        check_time()
    return found


def trained_in_time(
    jobs: Sequence[Any], *, processes: int | None = None, progress: Progress = silent
) -> list[TrainingRun | None]:
    """The same; None for those that were not done when their time was up.

    Parameters
    ----------
    jobs : sequence of (source, network, training, optima)
        As of `train`; optima may be None.
    processes : int, optional
        Jobs at a time, as of `train_replicas`.
    progress : callable
        Called with the share of jobs done.

    Returns
    -------
    list of TrainingRun or None
        In the order of the jobs.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast._core.progress import time_limit
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> jobs = [(task, network, lc.training.Training(learning_rate=0.01, batch=100, steps=20), None)]
    >>> lc.training.trained_in_time(jobs, processes=1)
    [<TrainingRun by gd: integration (20); 20 steps, ok>]
    >>> with time_limit(1e-6):
    ...     lc.training.trained_in_time(jobs, processes=1)
    [None]
    """
    end = time.time() + seconds_left()  # of the clock on the wall, which processes share
    workers = min(len(jobs), os.cpu_count() or 1 if processes is None else count("processes", processes))
    if workers <= 1:
        found = []
        for k, job in enumerate(jobs):
            found.append(_trained(job, end))
            progress((k + 1) / len(jobs))
        return found
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with one_thread_each(), ProcessPoolExecutor(workers, mp_context=context, initializer=serve) as pool:
        try:
            with held():  # until they serve
                waiting = [pool.submit(_trained, job, end) for job in jobs]
            for k, _ in enumerate(as_completed(waiting)):
                progress((k + 1) / len(jobs))
            return [one.result() for one in waiting]
        except BaseException:  # nobody will see what still runs, and nobody should wait for it
            for process in list(pool._processes.values()):
                process.kill()
            raise


def _trained(job: Any, end: float) -> TrainingRun | None:
    source, network, training, optima = job
    try:
        with time_limit(max(end - time.time(), 1e-9)):
            check_time()
            return train(source, network, training, optima=optima)
    except OutOfTime:
        return None
