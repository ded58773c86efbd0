"""A sweep: many tasks computed once each, whatever dies in between."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import inspect
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from learncast import __version__
from learncast._core.errors import InvalidSpec, LearncastError
from learncast._core.files import draft_of
from learncast._core.netcdf import read
from learncast._core.validation import one_of
from learncast.sweep.driver import Driver, Summary
from learncast.sweep.executors import Cluster, Executor, Fate, InProcess, Job, Outcome, Processes, Work
from learncast.sweep.grid import Grid
from learncast.sweep.ledger import Ledger, Row, TaskStatus
from learncast.sweep.spec import Spec, canonical, digest_of, file_hashes, placed
from learncast.sweep.store import Place, Store, StoreStatus, described, status

Function = Callable[[Spec], Any]
#: How the system says that a disk takes no more.
_FULL = {errno.ENOSPC, errno.EIO, errno.EDQUOT}
#: Functions that a store may name without anybody giving them: they act on plain values.
_OWN = ("learncast.sweep.studies:asked", "learncast.sweep.reproduction:computed_run")
EXECUTORS = ("processes", "in-process", "dask")


@dataclass(frozen=True)
class Sweep:
    """What is to be swept, before anything is computed.

    Attributes
    ----------
    function : callable
    grid : Grid
    base : mapping
        What every task shares.
    notes : mapping
        What else belongs to the study: a change of it is a change of the study.
    shard : pair of int, optional
        ``(k, n)``: only the k-th of n shares of the tasks, which belong together by their hashes.

    Raises
    ------
    InvalidSpec
        If `shard` is not ``(k, n)`` with 1 <= k <= n.

    Examples
    --------
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> grid = lc.sweep.Grid.of({"steps": [1, 2, 3]})
    >>> sweep = lc.sweep.Sweep(halved, grid, base={}, notes={})
    >>> [position for position, _ in sweep.tasks()]
    [0, 1, 2]
    """

    function: Function
    grid: Grid
    base: Mapping[str, Any]
    notes: Mapping[str, Any]
    shard: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.shard is None:
            return
        k, n = self.shard
        if not 1 <= k <= n:
            raise InvalidSpec(f"a shard must be (k, n) with 1 <= k <= n, got ({k}, {n}).")

    def study(self) -> dict[str, Any]:
        """All that results depend on, as plain values."""
        return {
            "function": function_name(self.function),
            "source": _source(self.function),
            "learncast": __version__,
            "base": dict(self.base),
            "grid": self.grid.described(),
            "notes": dict(self.notes),
            **({} if self.shard is None else {"shard": list(self.shard)}),
        }

    def tasks(self) -> Iterator[tuple[int, str]]:
        """Position and hash of every task."""
        return _tasks(function_name(self.function), self.grid, self.base, self.shard)


def _tasks(
    function: str, grid: Grid, base: Mapping[str, Any], shard: Sequence[int] | None
) -> Iterator[tuple[int, str]]:
    share, shares = shard or (1, 1)
    for position, cell in grid.cells(base):
        digest = digest_of([function, placed(base, cell)])
        if int(digest, 16) % shares == share - 1:
            yield position, digest


def run(
    function: Function,
    grid: Mapping[str, Any] | Grid,
    *,
    store: Place,
    base: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    zips: Sequence[Sequence[str]] = (),
    conditions: Sequence[str] = (),
    executor: str | Executor = "processes",
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    **options: Any,
) -> Summary:
    """Compute a function over a grid into a store; run again, it goes on where it was stopped.

    Parameters
    ----------
    function : callable
        From a `Spec` to a Dataset, a DataArray, a number or a mapping of these. It takes its random numbers from
        ``spec.rng()``, so results depend neither on the number of workers nor on the order.
    grid : mapping or Grid
        What varies, as for `Grid.of`.
    store : path
        Folder of the results.
    base : mapping, optional
        What does not vary.
    seeds, zips, conditions
        As for `Grid.of`.
    executor : {"processes", "in-process", "dask"} or Executor
        Where tasks are computed.
    workers : int, optional
        How many at a time, by default one for each processor.
    attempts : int
        Times a task may raise before it is given up.
    fail_fast : bool
        Begin no more tasks once one is given up.
    retry : bool
        Try again what an earlier run gave up.
    batch : int, optional
        Tasks handed out at a time; by default one to a process, and as many as take a fraction of a second to a
        cluster.
    seconds : float, optional
        Begin no more tasks after so long; run again, it goes on.
    shard : pair of int, optional
        ``(k, n)``: compute the k-th of n shares of the tasks; `gather` puts the stores of all shares together.
    watcher : callable
        Called with a `Summary` as the sweep goes on.

    Returns
    -------
    Summary

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     found = lc.sweep.gather(folder)
    >>> summary.done, summary.failed
    (2, 0)
    >>> found["value"].values
    array([0.5 , 0.25])
    """
    if not isinstance(grid, Grid):
        grid = Grid.of(grid, zips=zips, conditions=conditions, seeds=seeds)
    elif zips or conditions or seeds is not None:
        raise InvalidSpec("a Grid must say its zips, conditions and seeds itself, got them beside it.")
    sweep = Sweep(function, grid, canonical(base or {}, "base"), {}, shard)
    return carry_out(sweep, store, executor_of(executor, workers), **options)


def resume(
    store: Place,
    function: Function | None = None,
    *,
    executor: str | Executor = "processes",
    workers: int | None = None,
    **options: Any,
) -> Summary:
    """Go on with the sweep of a store; what it computes is read from there.

    Parameters
    ----------
    store : path
        Folder of the results.
    function : callable, optional
        The one that it was begun with; a sweep of a study needs none.
    executor, workers
        As for `run`.
    **options
        The other keywords of `run`: ``attempts``, ``fail_fast``, ``retry``, ``batch``, ``seconds``, ``watcher``.

    Returns
    -------
    Summary
        How the sweep stands at the end of this run.

    Raises
    ------
    InvalidSpec
        If the folder holds no sweep, `function` is not the one it was begun with, another driver is at work, or the
        disk is full.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> grid = {"steps": [1, 2]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     begun = lc.sweep.run(halved, grid, store=folder, executor="in-process", seconds=1e-6)
    ...     ended = lc.sweep.resume(folder, halved, executor="in-process")
    >>> begun.done, ended.done
    (0, 2)
    """
    return carry_out(stored_sweep(store, function), store, executor_of(executor, workers), **options)


def carry_out(sweep: Sweep, store: Place, executor: Executor, *, retry: bool = False, **options: Any) -> Summary:
    """Compute what a plan's store has not got; the keywords are those of `run`."""
    place = Store(store)
    driver = Driver(place, sweep.grid, executor, **options)
    try:
        with place.locked():
            place.begin(sweep.study(), sweep.tasks())
            return driver.drive(Work(sweep.function, sweep.base), retry=retry)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise InvalidSpec(
            f"the disk of {place.folder} must take what is written, got '{error.strerror}'. Make room, then "
            "resume: what was entered is kept."
        ) from error


def rebuild(store: Place) -> StoreStatus:
    """Make the ledger of a store anew, from its study and its results, where it was damaged or lost.

    A result that can be read is entered under the task that its name is the hash of; one that cannot goes to
    quarantine. How long each took, and what had failed, is not known any more.

    Parameters
    ----------
    store : path
        Folder of the results.

    Returns
    -------
    StoreStatus
        How the store stands with its new ledger.

    Raises
    ------
    InvalidSpec
        If there is no sweep, the ledger can be read, ``study.json`` is missing or was changed, or a driver is at
        work.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import learncast as lc
    >>> def halved(spec):
    ...     return 0.5 ** spec["steps"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = lc.sweep.run(halved, {"steps": [1, 2]}, store=folder, executor="in-process")
    ...     Path(folder, "ledger.sqlite").unlink()
    ...     print(lc.sweep.rebuild(folder).done)
    2
    """
    place = Store(store)
    page, ledger = place.folder / "study.json", place.folder / "ledger.sqlite"
    if not any(path.exists() for path in (page, ledger, place.results)):
        raise InvalidSpec(
            required=f"{place.folder} must hold a sweep",
            got="nothing of one" if place.folder.is_dir() else "no such folder",
            why="there is nothing to make a ledger from",
            remedy="check the path",
        )
    whole = False
    with contextlib.suppress(LearncastError):
        whole = bool(place.study())
    if whole:
        raise InvalidSpec(
            f"the ledger of {place.folder} must be damaged or lost, got one that can be read. Check the "
            "results with `learncast sweep verify`."
        )
    study: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        study = json.loads(page.read_text(encoding="utf-8"))
    if not study or study.pop("fingerprint", "") != digest_of(study):
        raise InvalidSpec(
            f"{page} must be the study that the sweep was begun with, got a file that is missing or was changed."
        )
    with place.locked(), draft_of(ledger, sole=True) as draft:
        draft.unlink(missing_ok=True)
        with Ledger(draft, write=True) as made:
            grid = Grid.from_described(study["grid"])
            made.fill(_tasks(study["function"], grid, study["base"], study.get("shard")), described(study))
            with Ledger(draft) as reader:
                made.record(filter(None, (_found_again(place, row) for row in reader.rows(TaskStatus.missing))))
        for journal in place.folder.glob("ledger.sqlite-*"):
            journal.unlink()
    return status(store)


def _found_again(place: Store, row: Row) -> dict[str, object] | None:
    """What to enter of a task whose result is there; what cannot be read is set apart."""
    path = place.path(row.digest)
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        read(content)
    except (LearncastError, OSError, ValueError, KeyError, RuntimeError):
        place.set_apart(path)
        return None
    written = {"seconds": 0.0, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"position": row.position, "attempts": 1, "status": TaskStatus.done.code, **written}


def stored_sweep(store: Place, function: Function | str | None = None) -> Sweep:
    """What a store's sweep computes; `function` is its own, or the name of it, where it is none of learncast's."""
    study = Store(store).study()
    told = function if function is None or isinstance(function, str) else function_name(function)
    if study["function"] != told and (told is not None or study["function"] not in _OWN):
        raise InvalidSpec(
            f"the function of {store} must be given by whoever goes on with it, got {told or 'none'}, where "
            f"the store names {study['function']}. Run the script that began the sweep again, or pass the "
            "function (--function MODULE:NAME)."
        )
    found = _looked_up(study["function"]) if function is None or isinstance(function, str) else function
    shard = tuple(study["shard"]) if "shard" in study else None
    notes = dict(study["notes"])
    if "files" in notes:  # as they are now: another file under an old name is another study
        notes["files"] = file_hashes([study["base"], study["grid"]])
    return Sweep(found, Grid.from_described(study["grid"]), study["base"], notes, shard)


def _looked_up(function: str) -> Any:
    module, _, name = function.partition(":")
    try:
        found: Any = import_module(module) if module != "__main__" else None
        for word in name.split("."):
            found = getattr(found, word)
        return found
    except (ImportError, AttributeError) as error:
        raise InvalidSpec(f"the function {function} must be importable, got {error!s}.") from error


def function_name(function: Function) -> str:
    """The name by which a function is found again."""
    name = getattr(function, "__qualname__", "")
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise InvalidSpec(f"the function must depend on its spec alone, got a method of {type(owner).__name__}.")
    if not name or "<" in name:
        raise InvalidSpec(
            required="the function must have a name that can be imported",
            got=name or type(function).__name__,
            why="tasks are known by it",
            remedy="define it with def at the top of a module",
        )
    return f"{function.__module__}:{name}"


def _source(function: Function) -> str:
    """Hash of the function's own text: results of two versions must not be mixed."""
    try:
        return digest_of(inspect.getsource(function))
    except (OSError, TypeError):
        return ""


def executor_of(executor: str | Executor, workers: int | None) -> Executor:
    """The executor of that name with so many workers, or the one that is given."""
    if not isinstance(executor, str):
        return executor
    kind = one_of("executor", executor, EXECUTORS)
    if kind == "dask":
        return Cluster(workers=workers)
    return InProcess() if kind == "in-process" else Processes(workers)


#: Tasks of a pilot, beside the first: that one pays for imports and is not counted.
PILOT = 4


def outlook(sweep: Sweep, *, workers: int) -> dict[str, Any]:
    """Try a few tasks, spread over the grid, in one process and without storing anything.

    Returns
    -------
    dict
        What the sweep will take: ``cells`` that meet every condition, and different ``tasks`` among them; tasks of the
        ``pilot``, and how many of these ``failed``, with the first traceback as ``error``; ``task_seconds`` of
        computing one on average, and ``entry_seconds`` of putting its result on the disk, which one process does for
        all workers; ``seconds`` of all with this many workers, whichever of the two takes longer; and ``bytes`` on the
        disk. Numbers are nan when the whole pilot failed.
    """
    places: dict[str, int] = {}
    cells = 0
    for position, digest in sweep.tasks():
        cells += 1
        places.setdefault(digest, position)
    tasks = list(places.items())
    picks = sorted({int(k) for k in np.linspace(0, len(tasks) - 1, PILOT)}) if tasks else []
    jobs = [Job(tasks[k][1], tasks[k][0], sweep.grid.cell(tasks[k][1])) for k in picks]
    outcomes = []
    executor = Processes(1)
    executor.start(Work(sweep.function, sweep.base))
    try:
        # The first twice: its first time loads what all tasks need.
        for job in jobs[:1] + jobs:
            executor.submit([job])
            while not (found := executor.wait(0.5)):
                pass
            outcomes += found
    finally:
        executor.close(now=True)
    counted = outcomes[1:]
    done = [one for one in counted if one.fate is Fate.done]
    mean = float(np.mean([one.seconds for one in done])) if done else float("nan")
    entry = _entering(done)
    size = float(np.mean([len(one.content) for one in done])) if done else float("nan")
    return {
        "cells": cells,
        "tasks": len(tasks),
        "pilot": len(counted),
        "failed": len(counted) - len(done),
        "task_seconds": mean,
        "entry_seconds": entry,
        "seconds": max(mean / workers, entry) * len(tasks),
        "bytes": size * len(tasks),
        "error": next((one.error for one in counted if one.fate is not Fate.done), ""),
    }


def _entering(outcomes: list[Outcome]) -> float:
    """Seconds that putting one of these results on the disk takes."""
    if not outcomes:
        return float("nan")
    rows = [(k, f"{k:032x}") for k in range(len(outcomes))]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        with store.ledger(write=True) as ledger:
            ledger.fill(rows, {})
            begun = time.perf_counter()
            for (position, digest), outcome in zip(rows, outcomes, strict=True):
                hashes = store.write({digest: outcome.content})
                ledger.record([{"position": position, "status": TaskStatus.done.code, "sha256": hashes[digest]}])
            return (time.perf_counter() - begun) / len(outcomes)
