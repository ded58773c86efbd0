"""Forecast of the held-out loss along training."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.validation import FloatArray, count
from learncast.networks import Network
from learncast.planning.defaults import Choice, chosen_network, chosen_rate, task_and_network
from learncast.planning.generalise.curve import (
    PER_DECADE,
    HeldOutProblem,
    held_out_curve,
    outer_rows,
    rows_of,
    stop_grid,
)
from learncast.planning.generalise.folds import Folds
from learncast.planning.generalise.learners import MapLearner, learner_for, recorded_trials
from learncast.planning.generalise.result import Generalisation, class_numbers, notes, result_of
from learncast.planning.generalise.subsets import (
    GivenSamples,
    Samples,
    Trials,
    check_alike,
    in_units_of,
    learn,
    raw_trials,
    sample_of,
)
from learncast.planning.generalise.transfer import source_path, source_stops, transfer_of, transfer_table
from learncast.procedure.goals import goal_of
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.tasks.recorded.files import data_keywords, from_data
from learncast.tasks.task import Task

#: Multiple of the steps that learn 99% of the training loss at which a default horizon ends.
HORIZON = 10


class DependentTrials(UserWarning):
    """Neighbouring trials depend on each other, so folds of single trials give a held-out loss that is too low."""


@hinted
def generalise(
    task: Task | ArrayLike | str | os.PathLike[str],
    network: Network | ArrayLike | None = None,
    training: Training | None = None,
    *,
    learning_rate: float | None = None,
    test: Task | ArrayLike | str | os.PathLike[str] | None = None,
    after: Task | ArrayLike | str | os.PathLike[str] | None = None,
    most_steps: int | None = None,
    folds: Folds | int = 10,
    **data: object,
) -> Generalisation:
    """Forecast the held-out loss along training: when to stop, what loss to expect, and whether training on overfits.

    With test trials or test statistics the curve is exact. Otherwise it is estimated from the task's own trials by
    cross-validation with Burman's correction: training without each fold, and without each pair of folds for the
    intervals, descends in one batch. Trials are centred and scaled inside each fold.

    Parameters
    ----------
    task : Task, or recorded trials
        At least 20 recorded trials unless `test` is given. Trials may be inputs (with targets as the second argument),
        a pair (inputs, targets), a data frame or a file, see `learncast.tasks.from_data`.
    network : LinearRNN, TwoLayer, Deep or Activated, optional
        The network before training; Activated with one input and a fixed diagonal recurrence. The default is that of
        `learncast.forecast`.
    training : Training, optional
        Learning rate, weights that learn, and batches.
    learning_rate : float, optional
        Shorthand for ``training=Training(learning_rate)``; half the largest safe rate by default.
    test : Task or recorded trials, optional
        Held-out trials, such as another session, or exact statistics.
    after : Task or recorded trials, optional
        Source task on which the network is trained first; `Generalisation.transfer` compares it with direct training.
    most_steps : int, optional
        Last step; by default ten times the steps in which 99% of the training loss is learned.
    folds : Folds or int
        Number of folds, or how trials are divided into them.
    **data
        Options of recorded trials, for example ``centre=True``; see `learncast.tasks.from_data`.

    Returns
    -------
    Generalisation
        ``stop`` is the best step, ``loss`` the held-out loss there, ``overfits`` whether later stops are worse.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((60, 5, 12))
    >>> targets = inputs.sum(axis=1)[:, :2] + 3 * rng.standard_normal((60, 2))
    >>> network = lc.LinearRNN.random(12, 8, 2, recurrence=0.9, scale=0.1, rng=0)
    >>> g = lc.generalise(lc.Task.from_samples(inputs, targets), network, learning_rate=0.01, most_steps=2000)
    >>> g.stop, g.overfits, round(g.loss, 1)
    (89, 'unclear', 9.5)
    """
    others = [data_keywords(one) for one in (test, after) if one is not None and not isinstance(one, Task)]
    keys = (*tuple(inspect.signature(generalise).parameters)[:-1], *(others[0] if others else ()))
    task, known = task_and_network(task, network, data, keys)
    chosen: list[Choice] = []
    if known is None:
        known, choice = chosen_network(task, "generalise")
        chosen.append(choice)
    if learning_rate is None and training is None:
        goal = goal_of(None, recorded=task.recording is not None)
        learning_rate, choice = chosen_rate(Stage(task, goal), known)
        chosen.append(choice)
    settings = Training.of(training, learning_rate)
    test, after = (None if one is None else _task(one, data) for one in (test, after))
    learner, divided = learner_for(task, known, settings), Folds.of(folds)
    if test is not None:
        samples, units = _with_test(task, test, learner, settings), np.arange(0)
    else:
        assigned, units = divided.assign(len(recorded_trials(task)), class_numbers(task))
        samples = Trials.of(task, learner, settings, assigned)
    most = _horizon(samples, test is not None) if most_steps is None else count("most_steps", most_steps)
    problem = HeldOutProblem(task, known, settings, learner, samples, units, divided, most, test)
    direct = replace(_held_out(problem, None), chosen=tuple(chosen))
    for remark in direct.remarks:
        if remark.startswith("Neighbouring"):
            warnings.warn(remark, DependentTrials, stacklevel=2)
    return direct if after is None else replace(generalise_after(direct, after), chosen=tuple(chosen))


def _task(given: Task | ArrayLike | str | os.PathLike[str], options: dict[str, Any]) -> Task:
    return given if isinstance(given, Task) else from_data(given, **options)


def _held_out(problem: HeldOutProblem, starts: Sequence[FloatArray] | None) -> Generalisation:
    """Held-out curve of training from the learner's start, or from one start for each row."""
    found, stop = held_out_curve(problem.samples, problem.units, problem.most, problem.test is not None, starts)
    if not np.isfinite(found.train).all():
        rate = problem.training.learning_rate
        raise InvalidSpec(
            f"Gradient descent diverges at a learning rate of {rate:g}. Use a lower one.", field="learning_rate"
        )
    return result_of(problem, found, stop, notes(problem, found, stop))


def generalise_after(direct: Generalisation, source: Task) -> Generalisation:
    """Held-out curve after the best number of steps on a source, compared with direct training."""
    problem = direct.asked
    samples, test = problem.samples, problem.test is not None
    check_alike(problem.task, source, "after")
    if samples.training.batch is not None:
        raise InvalidSpec("after is forecast for full batches.", field="after")
    stops, outer = source_stops(problem.most), outer_rows(samples, test)
    path = source_path(problem, source, outer, stops)
    if not np.isfinite(path).all():
        raise InvalidSpec(f"Gradient descent on {source.name!r} diverges. Use a lower learning rate.", field="after")
    table = transfer_table(samples, path, outer, stops, problem.most, test)
    best = 1 + int(np.argmin(table.min("steps").values[1:]))
    rows = outer if test else rows_of(samples.number)
    starts = source_path(problem, source, rows, [stops[best]])[0]
    result = _held_out(problem, list(starts))
    return replace(result, transfer=transfer_of(direct, result, stops[best], table, source, starts[0]))


def _horizon(samples: Samples, test: bool) -> int:
    """Ten times the steps in which 99% of the training loss is learned, of what the most steps allow."""
    most = samples.learner.most_steps
    if samples.training.batch is not None:
        samples = replace(samples, training=samples.training.with_(batch=None))  # type: ignore[type-var]
    grid, kept = np.array(stop_grid(most)), np.arange(samples.number) < samples.number - test
    moments, start, train, done = samples.moments(kept), samples.learner.start, np.zeros(0), 0
    for stops in np.split(grid, range(2 * PER_DECADE, len(grid), PER_DECADE // 3)):
        found = learn(samples, [kept], (stops - done).tolist(), starts=[start])
        train = np.append(train, np.average(found.losses[0][kept], axis=0, weights=samples.weights[kept]))
        with np.errstate(invalid="ignore"):
            fall, start, done = train[0] - train, found.first[-1], stops[-1]
        if not np.isfinite(train[-1]):  # it diverges
            break
        # The fall at the last stop is at least that until now, and at most that with what is left.
        left = samples.learner.most_fall(moments, start)
        learned, surely = (np.flatnonzero(fall >= 0.99 * end)[:1] for end in (fall[-1], fall[-1] + left))
        if fall[-1] > 0 and np.array_equal(learned, surely):
            break
    if not np.isfinite(train).all() or fall[-1] <= 0:
        return min(most, 1000)
    return min(most, HORIZON * max(int(grid[learned[0]]), 1))


def _target_steps(task: Task) -> int:
    """Steps at which a trial may have a target; statistics of masked trials do not say how many."""
    if task.recorded_trials is not None:
        return int(task.recorded_trials.targets.shape[1])
    return 1 if task.targets == "end" else task.steps


def _with_test(task: Task, test: Task, learner: MapLearner, training: Training) -> Samples:
    """Training and test trials as two folds; statistics where trials are not stored."""
    check_alike(task, test, "test")
    trained, tested = ((t.steps, _target_steps(t)) for t in (task, test))
    if trained != tested:
        raise InvalidSpec(
            f"test must have the {trained[0]} steps of the task and targets at {trained[1]} of them, got {tested[0]} "
            f"and {tested[1]}.",
            field="test",
        )
    classes = [t.recording.classes for t in (task, test) if t.recording is not None and t.recording.classes]
    if len(classes) == 2 and classes[0] != classes[1]:
        raise InvalidSpec(
            f"test must have the classes of the task, {classes[0]!r:.60}, got {classes[1]!r:.60}. Name the classes of "
            "both.",
            field="test",
        )
    raw = raw_trials(test)
    prepared = task.recording is not None and (task.recording.centred or task.recording.scaled)
    if raw is None and prepared:
        raise InvalidSpec(
            f"test must have recorded trials, because {task.name!r} is centred or scaled by its own.", field="test"
        )
    held_out = None if raw is None else in_units_of(raw, task.recording)
    if task.recorded_trials is not None and held_out is not None:
        return Trials.of(task, learner, training, test=held_out)
    return GivenSamples([sample_of(task, learner, None), sample_of(test, learner, held_out)], learner, training)
