"""Training of networks on trials, stage by stage."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import Progress, check_time, note, noticed, seconds_left, silent, time_limit
from learncast._core.system import held, one_thread_each, serve, without_script
from learncast._core.validation import FloatArray, count, one_or_each
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import LinearNetwork
from learncast.planning.methods.choice import method_for
from learncast.procedure.goals import Accuracy, Explained, Goal, Plateau, Rule, goal_of
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.theory.dynamics.learning_problem import LearningProblem, loss_scale
from learncast.theory.dynamics.modes import Modes
from learncast.training.learner import Learner
from learncast.training.loop import Loop
from learncast.training.losses import HalfSquaredError, LossFunction, MeanSquaredError
from learncast.training.modules import Network
from learncast.training.remaining import Earlier, as_earlier
from learncast.training.rules import GoalWatch, Learned, PlateauWatch, Stalled, TargetWatch, Watch, watch_of
from learncast.training.run import DTYPES, Execution, History, Records, TrainingRun, training_provenance
from learncast.training.sources import FRESH, Source, Trials
from learncast.training.torch_state import own_threads
from learncast.training.updates import Updates, optimizer_name, training_hash

#: Steps between two calls of the progress report.
REPORT = 64


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """The arguments of `train`, to be run later or in another process by `train_all`.

    Parameters
    ----------
    source, network, training, goal, steps, record, execution, earlier
        As of `train`.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> lc.training.TrainingJob(task, network, lc.Training(0.01, batch=100), steps=20).run()
    <TrainingRun by gd: integration (20); 20 steps, ok>
    """

    source: Trials | Sequence[Stage[object]]
    network: Network | nn.Module
    training: Training
    goal: Rule | float | None = None
    steps: int | None = None
    record: Records | Sequence[str] = Records()  # noqa: RUF009  frozen
    execution: Execution = Execution()  # noqa: RUF009  frozen
    earlier: TrainingRun | Earlier | None = None

    def run(self, progress: Progress = silent) -> TrainingRun:
        """Train."""
        if not isinstance(self.training, Training):
            raise InvalidSpec(f"training must be a Training, got {type(self.training).__name__}.", field="training")
        earlier = None if self.earlier is None else as_earlier(self.earlier)
        recording = self.record if isinstance(self.record, Records) else Records(tuple(self.record))
        stages = self.stages()
        if self.execution.checkpoint is not None and any(stage.task.passes is not None for stage in stages):
            raise InvalidSpec("checkpoint needs a Task, a sampler, arrays or a Dataset as trials.", field="checkpoint")
        with own_threads(self.execution.threads):
            sources, dtype = [stage.task for stage in stages], DTYPES[self.execution.dtype]
            learner = Learner(self.network, sources, self.training, dtype=dtype, evaluation=recording.evaluation)
            recorder = _Recorder(stages, learner, self.training, recording, self.execution, progress)
            recorder.earlier = earlier
            run = recorder.run()
        progress(1.0)
        return run

    def stages(self) -> list[Stage[Source]]:
        """Return the stages, with trials as a `Source`."""
        loss = LossFunction.read(self.training.loss)
        if not isinstance(self.source, list):
            source = Source.of(self.source, loss=loss)
            goal: Any = self.goal
            if goal is not None and not isinstance(goal, Rule):
                recorded = not source.is_sampled or getattr(source.task, "recording", None) is not None
                goal = goal_of(goal, recorded=recorded)
            return [_checked(Stage(source, goal, self.steps))]
        if self.goal is not None or self.steps is not None:
            raise InvalidSpec("The stages of a curriculum have their own goals. Omit goal and steps.", field="goal")
        if not self.source or not all(isinstance(stage, Stage) for stage in self.source):
            got = [type(stage).__name__ for stage in self.source]
            raise InvalidSpec(f"A curriculum must be a list of Stage, got {got}.", field="source")
        return [_checked(replace(stage, task=Source.of(stage.task, loss=loss))) for stage in self.source]


def _checked(stage: Stage[Source]) -> Stage[Source]:
    if stage.steps is not None:
        count("steps", stage.steps, least=0)
    return stage


@noticed("training")
def train(
    source: Trials | Sequence[Stage[object]],
    network: Network | nn.Module,
    training: Training,
    *,
    goal: Rule | float | None = None,
    steps: int | None = None,
    record: Records | Sequence[str] = Records(),  # noqa: B008  frozen
    execution: Execution = Execution(),  # noqa: B008  frozen
    earlier: TrainingRun | Earlier | None = None,
    progress: Progress = silent,
) -> TrainingRun:
    """Train a network on trials, by backpropagation through time.

    Parameters
    ----------
    source : Task, function of (trials, rng), pair of arrays, DataLoader, Dataset, function, or list of Stage
        Trials. A list of stages is a curriculum: weights are carried over, and each stage ends by its own goal. A
        DataLoader, or a function that returns batches, gives batches of its own size; its first trials are kept for
        evaluation. Such a run is reproducible only if its batches are.
    network : LinearRNN, TwoLayer, Activated or nn.Module
        The start. A module maps inputs (trials, steps, inputs) to answers of the targets' shape; it is copied.
    training : Training
        Without a batch, all recorded trials are used at every step, or 1,000 fresh ones.
    goal : Goal, rule or float, optional
        When to stop: a goal, `Learned`, `Stalled` or `Plateau`. A number means `Accuracy` for task families and
        `Explained` for recorded trials.
    steps : int, optional
        Or the number of gradient steps.
    record : Records or sequence of str
        What is recorded and how often.
    execution : Execution
        Precision, threads and checkpoints.
    earlier : TrainingRun or Earlier, optional
        A run of the same task, e.g. with another seed, from which the remaining steps are estimated.
    progress : callable
        Called with the share of steps done, or of `training.most_steps` if a stage ends by a goal. A progress bar also
        shows how many steps are likely to remain.

    Returns
    -------
    TrainingRun
        Reproducible for the same seed, versions and number of threads.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> run = lc.training.train(task, network, lc.Training(1e-3, batch=200), goal=0.9)
    >>> run
    <TrainingRun by gd: integration (279); 279 steps, ok>
    >>> lc.forecast(task, network, learning_rate=1e-3, goal=0.9).steps.descent
    277.0
    """
    return TrainingJob(source, network, training, goal, steps, record, execution, earlier).run(progress)


class _Recorder:
    """Runs a loop with its own updates, records it and writes checkpoints."""

    def __init__(
        self,
        stages: list[Stage[Source]],
        learner: Learner,
        training: Training,
        recording: Records,
        execution: Execution,
        progress: Progress,
    ) -> None:
        self.given, self.learner, self.training = stages, learner, training
        self.recording, self.execution, self.progress = recording, execution, progress
        self.path = execution.checkpoint
        self.earlier: Earlier | None = None
        self.history = History(learner.modes, recording.quantities)
        self.targets: dict[int, TargetWatch] = {}
        settings = recording.quantities, recording.every, recording.evaluation, execution.dtype
        updates = Updates(learner.module, training)
        spec = learner.hash, training_hash(training, updates.named), repr(settings)
        self.loop = Loop.led(
            stages, training, learner, learner.dtype, self._watch, spec, updates=updates, log=recording.log
        )
        self.loop.on_judged, self.loop.on_step = self._record, self._stepped
        if learner.network is not None:
            self.loop.noise_seed = None

    def run(self) -> TrainingRun:
        if not self._resume():
            self.loop.start()
        self.loop.advance()
        self._save()
        return self._packed()

    def _watch(self, k: int, previous: Watch | None) -> Watch:
        rule, source = self.given[k].goal, self.given[k].task
        if not isinstance(rule, Accuracy | Explained):
            return watch_of(rule, self.given[k].steps, source, previous)
        if k not in self.targets:
            self.targets[k] = self._target(k, rule)
            self._save()
        return self.targets[k]

    def _target(self, k: int, goal: Accuracy | Explained) -> TargetWatch:
        learner, source = self.learner, self.given[k].task
        watch, nothing = partial(TargetWatch, source, goal.value), np.full(learner.modes, np.nan)
        optimum = goal.optimum if isinstance(goal, Accuracy) else None
        if isinstance(optimum, tuple) and learner.modes:
            given = optimum[0] if len(optimum) == 1 else optimum
            return watch(one_or_each("optimum", given, learner.modes, of="modes"))
        per_mode = isinstance(goal, Accuracy) and (bool(self._modes) or isinstance(learner.network, Activated))
        # The least loss on other trials than those of training is too low for an accuracy.
        recorded = source.data is not None and source.kept is None
        known = source.task is not None or recorded or isinstance(goal, Explained)
        if known and not isinstance(optimum, Plateau) and (found := self._problem(k)) is not None:
            if per_mode and self._modes:
                return watch(self._modes[k].optimum)
            problem, scale = found
            least = problem.least_loss
            if not math.isnan(least):
                return watch(nothing, scale * goal.target_loss(problem.baseline_loss, least))
            if isinstance(goal, Explained):
                raise InvalidSpec(f"{source.name!r} needs target_covariance for the goal Explained.", field="goal")
        plateau = optimum if isinstance(optimum, Plateau) else Plateau()
        status, began, loss, strength = self._first_training(k, source, plateau)
        if status is not Status.ok:
            return watch(nothing, status=status)
        return watch(strength) if per_mode else watch(nothing, goal.target_loss(began - loss, loss))

    @cached_property
    def _modes(self) -> tuple[Modes, ...]:
        """The modes of each stage's task if forecasts judge the accuracy by modes; otherwise none."""
        learner, training = self.learner, self.training
        if not isinstance(learner.network, LinearRNN) or training.optimizer != "gd" or training.weight_decay:
            return ()
        plain = Training(training.learning_rate, learn=learner.learn)
        return method_for(learner.tasks, learner.network, plain).modes

    def _problem(self, k: int) -> tuple[LearningProblem, float] | None:
        """Return the problem of a linear network and the loss over half the squared error; None for other losses.

        Losses with weights of steps or outputs have other optima.
        """
        learner, names = self.learner, {HalfSquaredError(): "half_mse", MeanSquaredError(): "mse"}
        network, name = learner.network, names.get(learner.loss_function)
        if name is None or not isinstance(network, LinearNetwork):
            return None
        task = learner.tasks[k]
        return LearningProblem.of(task, network, learner.learn), loss_scale(task, Training(1.0, loss=name))

    def _first_training(self, k: int, source: Source, plateau: Plateau) -> tuple[Status, float, float, FloatArray]:
        """Train from the start on one task to a plateau, as the paper does for nonlinear networks.

        Returns the status, the loss at the start, and the loss and the strengths on the plateau.
        """
        path = None if self.path is None else Path(f"{os.fspath(self.path)}.pass{k}")
        learner = Learner(
            self.learner.start, [source], self.training, dtype=self.learner.dtype, evaluation=self.learner.evaluation
        )
        if learner.frame is not None:
            learner.frame = self.learner.frame
        began = learner.loss(source)
        quiet = replace(self.recording, quantities=(), log=silent, writer=None)
        execution = replace(self.execution, checkpoint=path)
        first = _Recorder([Stage(source, plateau)], learner, self.training, quiet, execution, silent)
        status = first.run().status
        if path is not None:
            path.unlink(missing_ok=True)
        watch = first.loop.watch
        assert isinstance(watch, PlateauWatch)
        loss, strength, *_ = watch.means or (np.array(np.nan), np.zeros(0))
        return status, began, float(loss), strength

    def _record(self, ended: bool) -> None:
        """Record the current step."""
        loop, recording = self.loop, self.recording
        k, stage = loop.index, loop.stage
        # The moment between two stages belongs to the first.
        if (stage.steps % recording.every and not ended) or (k and stage.steps == 0):
            return
        loss = self.learner.loss(self.given[k].task) if "loss" in recording.quantities else np.nan
        goal = self._goal() if "goal" in recording.quantities else np.nan
        step = self._begun + stage.steps
        self.history.add(step, k, loss, np.nan, self.learner.strength, goal)
        if recording.writer is not None:
            for name, value in (("loss", loss), ("goal", goal), ("stage", float(k))):
                if not np.isnan(value):
                    recording.writer.add_scalar(name, value, step)

    @property
    def _begun(self) -> int:
        """Steps of the stages before the current one."""
        return sum(self.loop.steps[: self.loop.index])

    def _goal(self) -> float:
        """Measure the last stage's goal on its own task."""
        rule, watch = self.given[-1].goal, self.loop.watch
        goal = rule.goal if isinstance(rule, Learned | Stalled) else rule
        if not isinstance(goal, Goal) or isinstance(goal, Accuracy | Explained):
            return np.nan
        last = self.loop.index == len(self.given) - 1
        if last and isinstance(watch, GoalWatch) and watch.looked == self.loop.stage.steps:
            return watch.latest
        return self.learner.measure(goal, self.given[-1].task)

    def _stepped(self, loss: float) -> None:
        """Keep the loss of the batch; write a checkpoint and report progress if due."""
        loop, rows = self.loop, self.history.rows
        stage = loop.stage
        if rows["time"] and rows["time"][-1] == self._begun + stage.steps - 1:
            rows["batch_loss"][-1] = loss
        if stage.steps % self.execution.checkpoint_every == 0:
            self._save()
        if stage.steps % REPORT == 0:
            check_time()
            steps = self.given[loop.index].steps
            share = stage.steps / max(self.training.most_steps if steps is None else steps, 1)
            left = loop.remaining(self.earlier)
            note(self.progress, "" if left is None else left.text)
            self.progress((loop.index + share) / len(loop.stages))

    def _save(self) -> None:
        if self.path is None:
            return
        history = {key: torch.as_tensor(rows) for key, rows in self.history.arrays().items()}
        targets = {k: (one.optimum.tolist(), one.loss, one.status.name) for k, one in self.targets.items()}
        state = {**self.loop.snapshot(), "history": history, "targets": targets}
        self.execution.save(state, spec=self.loop.spec)

    def _resume(self) -> bool:
        """Restore a saved state, and return whether there was one."""
        saved = self.execution.load(spec=self.loop.spec)
        if saved is None:
            return False
        self.history.rows = {key: list(values.numpy()) for key, values in saved["history"].items()}
        for k, (optimum, loss, status) in saved["targets"].items():
            stage = self.given[k]
            self.targets[k] = TargetWatch(stage.task, stage.goal.value, np.array(optimum), loss, Status[status])
        self.loop.restore(saved)
        if not self.loop.done:
            self.recording.log(f"resumed in stage {self.loop.index + 1} at step {self.loop.stage.steps}")
            self.loop.judge()
        return True

    def _packed(self) -> TrainingRun:
        training, loop = self.training, self.loop
        recorded = not any(stage.task.is_sampled for stage in self.given)
        attributes = {
            "learning_rate": training.learning_rate,
            "optimizer": optimizer_name(training),
            "loss": repr(self.learner.loss_function),
            "batch": training.batch if training.batch is not None else "all" if recorded else FRESH,
            "seed": training.seed,
            "dtype": self.execution.dtype,
            "status": loop.status.name,
            "stage_steps": loop.steps,
            "optimizer_between_stages": "reset" if training.reset_optimizer else "kept",
        }
        optima = np.full((len(self.given), self.learner.modes), np.nan)
        for k, target in self.targets.items():
            optima[k] = target.optimum
        known = "loss" in self.recording.quantities
        least = [self.learner.least_loss(k) if known else np.nan for k in range(len(self.given))]
        names = [stage.task.name for stage in self.given]
        dataset = self.history.dataset(names, optima, least, attributes)
        provenance = training_provenance(loop.spec, training.seed)
        return TrainingRun(dataset, provenance, self.learner.described(), self.learner.module)


@noticed("training")
def train_all(
    jobs: Sequence[TrainingJob], *, processes: int | None = None, progress: Progress = silent
) -> list[TrainingRun]:
    """Run several jobs in parallel, e.g. one for each of several seeds.

    Parameters
    ----------
    jobs : sequence of TrainingJob
    processes : int, optional
        Number of parallel processes; by default one per processor. With 1, runs take place in this process. With more,
        sources and networks must be picklable; a script that defines them itself needs ``if __name__ == "__main__":``.
    progress : callable
        Called with the share of jobs done.

    Returns
    -------
    list of TrainingRun
        In the order of the jobs.

    Raises
    ------
    OutOfTime
        If a time limit is set and it is up.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> trainings = [lc.Training(0.01, batch=20, seed=seed) for seed in range(3)]
    >>> jobs = [lc.training.TrainingJob(task, network, training, goal=0.9) for training in trainings]
    >>> [run.steps for run in lc.training.train_all(jobs, processes=1)]
    [49, 54, 57]
    """
    runs = [run for run in train_in_time(jobs, processes=processes, progress=progress) if run is not None]
    if len(runs) < len(jobs):
        check_time()
    return runs


def train_in_time(
    jobs: Sequence[TrainingJob], *, processes: int | None = None, progress: Progress = silent
) -> list[TrainingRun | None]:
    """Run several jobs in parallel, as `train_all`; return None for those that a time limit stopped.

    Parameters
    ----------
    jobs : sequence of TrainingJob
    processes : int, optional
    progress : callable

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
    >>> jobs = [lc.training.TrainingJob(task, network, lc.Training(0.01, batch=100), steps=20)]
    >>> with time_limit(1e-6):
    ...     lc.training.train_in_time(jobs, processes=1)
    [None]
    """
    end = time.time() + seconds_left()  # wall clock, which processes share
    workers = min(len(jobs), os.cpu_count() or 1 if processes is None else count("processes", processes))
    if workers <= 1:
        runs = []
        for k, job in enumerate(jobs):
            runs.append(_run_until(job, end))
            progress((k + 1) / len(jobs))
        return runs
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with one_thread_each(), ProcessPoolExecutor(workers, mp_context=context, initializer=serve) as pool:
        try:
            with held(), without_script(jobs):  # until they serve
                waiting = [pool.submit(_run_until, job, end) for job in jobs]
            for k, _ in enumerate(as_completed(waiting)):
                progress((k + 1) / len(jobs))
            return [one.result() for one in waiting]
        except BaseException:  # do not wait for jobs whose result is lost
            for process in list(pool._processes.values()):
                process.kill()
            raise


def _run_until(job: TrainingJob, end: float) -> TrainingRun | None:
    try:
        with time_limit(max(end - time.time(), 1e-9)):
            check_time()
            return job.run()
    except OutOfTime:
        return None
