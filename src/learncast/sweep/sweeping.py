"""A sweep: a function, a grid and the values that do not vary."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import inspect
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from modulefinder import ModuleFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from learncast import __version__
from learncast._core.errors import InvalidSpec, LearncastError
from learncast._core.files import draft_of
from learncast._core.netcdf import read_sealed
from learncast._core.validation import one_of
from learncast.sweep.driver import Driver, Summary
from learncast.sweep.executors import Cluster, Executor, InProcess, Processes
from learncast.sweep.grid import Grid
from learncast.sweep.inspection import StoreStatus, status
from learncast.sweep.jobs import Fate, Function, Job, Outcome, Work
from learncast.sweep.ledger import Ledger, Row, TaskStatus
from learncast.sweep.spec import Tables, canonical, digest_of, file_hashes
from learncast.sweep.store import PathLike, Store, study_record, tasks_of

#: Error numbers of a full or broken disk.
_FULL = {errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG}
#: Functions that a store may name without the user's consent: they compute only learncast's own results.
_OWN = ("learncast.sweep.studies:asked", "learncast.sweep.reproduction:compute_run")
EXECUTORS = ("processes", "in-process", "dask")


@dataclass(frozen=True)
class Sweep:
    """The definition of a sweep.

    Attributes
    ----------
    function : callable
    grid : Grid
    base : mapping
        Values that all tasks share.
    notes : mapping
        Further parts of the study, such as hashes of its files.
    shard : pair of int, optional
        ``(k, n)``: only the k-th of n shards of the tasks.

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
    base: Mapping[str, object]
    notes: Mapping[str, object]
    shard: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        k, n = self.shard or (1, 1)
        if not 1 <= k <= n:
            raise InvalidSpec(f"shard must be (k, n) with 1 <= k <= n, got ({k}, {n}).", field="shard")

    def study(self) -> Tables:
        """Return everything that the results depend on, as JSON types."""
        described = {"source": _source(self.function), "learncast": __version__, "notes": dict(self.notes)}
        return described | self._computed()

    def _computed(self) -> Tables:
        """Return what determines the tasks."""
        shard = {} if self.shard is None else {"shard": list(self.shard)}
        parts = {"function": function_name(self.function), "base": dict(self.base), "grid": self.grid.to_dict()}
        return parts | shard

    def tasks(self) -> Iterator[tuple[int, str]]:
        """Yield position and hash of every task."""
        return tasks_of(self._computed())


def run(
    function: Function,
    grid: Mapping[str, object] | Grid,
    *,
    store: PathLike,
    base: Mapping[str, object] | None = None,
    seeds: int | None = None,
    zips: Sequence[Sequence[str]] = (),
    conditions: Sequence[str] = (),
    executor: str | Executor = "processes",
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    **options: Any,
) -> Summary:
    """Compute a function over a grid into a store; if it was stopped, run it again to continue.

    Parameters
    ----------
    function : callable
        Maps a `Spec` to a Dataset, a DataArray, a number or a mapping of these. It should draw random numbers from
        ``spec.rng()``, so that results do not depend on the number of workers or on the order.
    grid : mapping or Grid
        Values that vary, as for `Grid.of`.
    store : path
        Folder of the sweep.
    base : mapping, optional
        Values that do not vary.
    seeds, zips, conditions
        As for `Grid.of`.
    executor : {"processes", "in-process", "dask"} or Executor
        Where tasks are computed.
    workers : int, optional
        Number of tasks computed at a time; by default one for each processor.
    attempts : int
        Number of times that a task may raise before it counts as failed.
    fail_fast : bool
        Start no more tasks after a failure.
    retry : bool
        Compute again the tasks that failed in an earlier run.
    batch : int, optional
        Tasks handed out together; by default one to a process, and to a cluster as many as take a fraction of a
        second.
    seconds : float, optional
        Start no more tasks after this time.
    shard : pair of int, optional
        ``(k, n)``: compute the k-th of n shards of the tasks; `gather` joins the stores of all shards.
    watcher : callable
        Called with a `Summary` as the sweep progresses.

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
        raise InvalidSpec("zips, conditions and seeds must be part of the Grid, got them as arguments.", field="grid")
    sweep = Sweep(function, grid, canonical(base or {}, "base"), {}, shard)
    return run_sweep(sweep, store, executor_of(executor, workers), **options)


def resume(
    store: PathLike,
    function: Function | None = None,
    *,
    executor: str | Executor = "processes",
    workers: int | None = None,
    **options: Any,
) -> Summary:
    """Continue the sweep of a store.

    Parameters
    ----------
    store : path
        Folder of the sweep.
    function : callable, optional
        The swept function; not needed for a sweep of a study file.
    executor, workers
        As for `run`.
    **options
        The other keywords of `run`: ``attempts``, ``fail_fast``, ``retry``, ``batch``, ``seconds``, ``watcher``.

    Returns
    -------
    Summary

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
    return run_sweep(stored_sweep(store, function), store, executor_of(executor, workers), **options)


def run_sweep(sweep: Sweep, store: PathLike, executor: Executor, *, retry: bool = False, **options: Any) -> Summary:
    """Compute the open tasks of a sweep; the keywords are those of `run`."""
    place = Store(store)
    driver = Driver(place, sweep.grid, executor, **options)
    try:
        with place.locked():
            place.begin(sweep.study(), sweep.tasks())
            return driver.drive(Work(sweep.function, sweep.base), retry=retry)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        remedy = "Raise the limit on file sizes (ulimit -f)" if error.errno == errno.EFBIG else "Free some space"
        problem = f"{place.folder} cannot be written: {error.strerror}. {remedy}, then resume."
        raise InvalidSpec(problem, field="store") from error


def rebuild(store: PathLike) -> StoreStatus:
    """Write a new ledger from the study and the results, if the old one was damaged or lost.

    Results that cannot be read are moved to quarantine. Computing times and failures are lost.

    Parameters
    ----------
    store : path
        Folder of the sweep.

    Returns
    -------
    StoreStatus

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
    study = _study_to_rebuild(place)
    with place.locked(), draft_of(place.ledger_path, sole=True) as draft:
        draft.unlink(missing_ok=True)
        with Ledger(draft, write=True) as ledger:
            ledger.enter(tasks_of(study), study_record(study))
            with Ledger(draft) as reader:
                ledger.record(filter(None, (_recovered(place, row) for row in reader.rows(TaskStatus.missing))))
        _keep_old(place)
    return status(store)


def _keep_old(place: Store) -> None:
    """Rename the old ledger and its journals."""
    number = 1 + len(list(place.folder.glob("ledger.sqlite.old-*")))
    for file in place.folder.glob("ledger.sqlite*"):
        suffix = file.name.removeprefix("ledger.sqlite")
        if suffix in ("", "-wal", "-shm"):
            file.rename(place.folder / f"ledger.sqlite.old-{number}{suffix}")


def _study_to_rebuild(place: Store) -> Tables:
    """Return the study in ``study.json``, if the ledger is not readable."""
    if not any(path.exists() for path in (place.study_path, place.ledger_path, place.results)):
        raise InvalidSpec(f"{place.folder} must hold a sweep.", field="store")
    try:
        place.check_ledger()
    except LearncastError:
        pass
    else:
        raise InvalidSpec(f"{place.folder} must have a lost or damaged ledger, got an intact one.", field="store")
    study: Tables = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        study = json.loads(place.study_path.read_text(encoding="utf-8"))
    if not study or study.pop("fingerprint", "") != digest_of(study):
        raise InvalidSpec(f"{place.study_path} must be the original study: it is missing or changed.", field="study")
    return study


def _recovered(place: Store, row: Row) -> dict[str, object] | None:
    """Return the ledger entry of a task whose result exists; an unreadable result is moved to quarantine."""
    path = place.path(row.digest)
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        intact = read_sealed(path)[1] is not None
    except LearncastError:
        intact = False
    if not intact:
        place.move_to_quarantine(path)
        return None
    written = {"seconds": 0.0, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"position": row.position, "attempts": 1, "status": TaskStatus.done.code, **written}


def stored_sweep(store: PathLike, function: Function | str | None = None) -> Sweep:
    """Return the sweep of a store; `function` or its name is needed unless it is one of learncast's own."""
    study = Store(store).study()
    name = function if function is None or isinstance(function, str) else function_name(function)
    if study["function"] != name and (name is not None or study["function"] not in _OWN):
        wanted = study["function"]
        raise InvalidSpec(f"function must be {wanted}, got {name}. Pass it (--function MODULE:NAME).", field="function")
    given = _imported(study["function"]) if function is None or isinstance(function, str) else function
    shard = tuple(study["shard"]) if "shard" in study else None
    notes = dict(study["notes"])
    if "files" in notes:  # hash them again: a file with new content is a new study
        notes["files"] = file_hashes([study["base"], study["grid"]])
    return Sweep(given, Grid.from_dict(study["grid"]), study["base"], notes, shard)


def _imported(function: str) -> Any:
    module, _, name = function.partition(":")
    try:
        value: object = import_module(module) if module != "__main__" else None
        for word in name.split("."):
            value = getattr(value, word)
    except (ImportError, AttributeError) as error:
        raise InvalidSpec(f"{function} must be importable, got {error}.", field="function") from error
    return value


def function_name(function: Function) -> str:
    """Return the name under which a function can be imported."""
    name = getattr(function, "__qualname__", "")
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise InvalidSpec(f"function must not be a method of an object, got {name}.", field="function")
    if not name or "<" in name:
        raise InvalidSpec(f"function must be at the top of a module, got {name or function!r}.", field="function")
    return f"{function.__module__}:{name}"


def _source(function: Function) -> dict[str, str]:
    """Return hashes of the function's source and of the local modules that it may use, by name.

    Results of two versions must not be mixed. Local modules are those in the folder of the function's module, or of
    its package, that the module imports directly or through others.
    """
    try:
        source = {"function": digest_of(inspect.getsource(function))}
        path = Path(inspect.getsourcefile(function) or "").absolute()
    except (OSError, TypeError):
        return {}
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    if package == "learncast" or not path.is_file():  # learncast's version is part of the study
        return source
    root = next((folder.parent for folder in path.parents if folder.name == package), path.parent)
    finder = ModuleFinder(path=[str(root)])
    try:
        finder.run_script(str(path))
    except (OSError, SyntaxError, ValueError):
        return source
    files = {name: file for name, one in finder.modules.items() if (file := getattr(one, "__file__", None))}
    return source | {name: hashlib.sha256(Path(file).read_bytes()).hexdigest() for name, file in sorted(files.items())}


def executor_of(executor: str | Executor, workers: int | None) -> Executor:
    """Return the executor with a name and number of workers, or the one that is given."""
    if not isinstance(executor, str):
        return executor
    kind = one_of("executor", executor, EXECUTORS)
    if kind == "dask":
        return Cluster(workers=workers)
    return InProcess() if kind == "in-process" else Processes(workers)


#: Tasks of a pilot. The first is computed twice, because its first run includes imports.
PILOT = 4


def estimate_cost(sweep: Sweep, *, workers: int) -> Tables:
    """Estimate what a sweep takes, from a few tasks spread over the grid; nothing is stored.

    Returns
    -------
    dict
        Number of ``tasks``, and of ``pilot`` tasks; how many of these ``failed``, and the first traceback as ``error``;
        mean ``task_seconds`` of computing a task, and ``entry_seconds`` of writing its result, which one process does
        for all workers; total ``seconds``, whichever of the two takes longer; and ``bytes`` on the disk. Numbers are
        nan if the whole pilot failed.
    """
    tasks = list(sweep.tasks())
    picks = sorted({int(k) for k in np.linspace(0, len(tasks) - 1, PILOT)}) if tasks else []
    jobs = [Job(*tasks[k], sweep.grid.cell(tasks[k][0])) for k in picks]
    outcomes = _computed(Work(sweep.function, sweep.base), jobs[:1] + jobs)[1:]
    done = [one for one in outcomes if one.fate is Fate.done]
    seconds, size = (
        np.mean([[one.seconds, len(one.content)] for one in done], axis=0).tolist() if done else [float("nan")] * 2
    )
    entry = _entry_seconds(done)
    return {
        "tasks": len(tasks),
        "pilot": len(outcomes),
        "failed": len(outcomes) - len(done),
        "task_seconds": seconds,
        "entry_seconds": entry,
        "seconds": max(seconds / workers, entry) * len(tasks),
        "bytes": size * len(tasks),
        "error": next((one.error for one in outcomes if one.fate is not Fate.done), ""),
    }


def _computed(work: Work, jobs: Sequence[Job]) -> list[Outcome]:
    """Compute jobs one after another in one worker process."""
    executor, outcomes = Processes(1), list[Outcome]()
    executor.start(work)
    try:
        executor.submit(jobs)
        while len(outcomes) < len(jobs):
            outcomes += executor.wait(0.5)
    finally:
        executor.close(now=True)
    return outcomes


def _entry_seconds(outcomes: list[Outcome]) -> float:
    """Return the mean time of writing one of these results to the disk."""
    if not outcomes:
        return float("nan")
    rows = [(k, f"{k:032x}") for k in range(len(outcomes))]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        with store.ledger(write=True) as ledger:
            ledger.enter(rows, {})
            begun = time.perf_counter()
            for (position, digest), outcome in zip(rows, outcomes, strict=True):
                hashes = store.write({digest: outcome.content})
                ledger.record([{"position": position, "status": TaskStatus.done.code, "sha256": hashes[digest]}])
            return (time.perf_counter() - begun) / len(outcomes)
