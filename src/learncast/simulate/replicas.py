"""Replicas of a training run: the same settings from several seeds, side by side."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from torch import nn

from learncast.progress import Progress, silent
from learncast.simulate.modules import Network
from learncast.simulate.run import TrainingRun
from learncast.simulate.trainer import train
from learncast.simulate.training import Training
from learncast.threads import one_thread_each
from learncast.validation import count


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
    """
    chosen = list(range(count("seeds", seeds, why="they are counted"))) if isinstance(seeds, int) else list(seeds)
    jobs = [(source, network, training.with_(seed=seed), optima) for seed in chosen]
    return tuple(train_all(jobs, processes=processes, progress=progress))


def train_all(jobs: Sequence[Any], *, processes: int | None = None, progress: Progress = silent) -> list[TrainingRun]:
    """Run (source, network, training, optima) jobs, several at a time, in the order given."""
    workers = min(len(jobs), os.cpu_count() or 1 if processes is None else count("processes", processes, why="a job"))
    if workers <= 1:
        found = []
        for k, job in enumerate(jobs):
            found.append(_trained(job))
            progress((k + 1) / len(jobs))
        return found
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with one_thread_each(), ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = [pool.submit(_trained, job) for job in jobs]
        for k, _ in enumerate(as_completed(waiting)):
            progress((k + 1) / len(jobs))
        return [one.result() for one in waiting]


def _trained(job: Any) -> TrainingRun:
    source, network, training, optima = job
    return train(source, network, training, optima=optima)
