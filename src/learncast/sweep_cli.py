"""The sweep commands, and what all commands share."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learncast._core.errors import AssumptionViolated, InvalidSpec, LearncastError
from learncast._core.limits import allowing, format_bytes
from learncast._core.progress import duration
from learncast.cli_values import read_shard, read_words
from learncast.display import plural

if TYPE_CHECKING:
    from learncast.sweep import Executor, Failure, Summary, Sweep

sweep_app = typer.Typer(
    name="sweep", help="Run a command over a grid of studies; it can be stopped and resumed.", no_args_is_help=True
)

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the sweep.", show_default=False)]
Workers = Annotated[int | None, typer.Option("--workers", help="Tasks at a time; by default one per processor.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only one JSON object.")]

#: Failed cells that are listed.
LISTED = 10
#: Seconds between lines of progress if there is no terminal.
QUIET = 60.0


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options that `sweep run`, `sweep resume` and `reproduce` share."""

    workers: Workers = None
    cluster: Annotated[str | None, typer.Option(help="local: start a dask cluster here.")] = None
    scheduler: Annotated[str | None, typer.Option(help="Use a running dask cluster, tcp://host:port.")] = None
    in_process: Annotated[bool, typer.Option("--in-process", help="Compute here, one task after another.")] = False
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Start no more tasks after a failure.")] = False
    retry: Annotated[bool, typer.Option("--retry", help="Compute failed tasks again.")] = False
    batch: Annotated[int | None, typer.Option(help="Tasks handed out together; by their cost by default.")] = None
    most_bytes: Annotated[float | None, typer.Option(help="Memory limit of a file or array; 2 GiB by default.")] = None
    seconds: Annotated[float | None, typer.Option(help="Start no more tasks after this time.")] = None
    as_json: AsJson = False

    def executor(self) -> Executor:
        """Return the executor that the options choose."""
        from learncast._core.validation import one_of
        from learncast.sweep import Cluster, InProcess, Processes

        if sum((self.cluster is not None, self.scheduler is not None, self.in_process)) > 1:
            raise InvalidSpec("--cluster, --scheduler and --in-process exclude each other.", field="executor")
        if self.cluster is not None:
            one_of("--cluster", self.cluster, ("local",))
        if self.cluster is not None or self.scheduler is not None:
            return Cluster(self.scheduler, workers=self.workers)
        return InProcess() if self.in_process else Processes(self.workers)

    def run(self, sweep: Sweep, store: Path) -> None:
        """Compute a sweep and print a summary."""
        from learncast.sweep.sweeping import run_sweep

        executor, options = self.executor(), {"fail_fast": self.fail_fast, "batch": self.batch, "seconds": self.seconds}
        with show_sweep_progress() as watcher, allowing(self.most_bytes):
            made = run_sweep(sweep, store, executor, retry=self.retry, watcher=watcher, **options)
        if self.as_json:
            print(json.dumps({"store": str(store), **dataclasses.asdict(made)}))
        else:
            counts = f"{made.done:,} of {made.total:,} tasks done, {made.failed:,} failed"
            print(f"{store}: {counts}, in {made.seconds:,.1f} s")
        exit_unless_done(made, store, "tasks", stopped=f"stopped; continue with `learncast sweep resume {store}`")


def exit_unless_done(made: Summary, store: Path, what: str, *, stopped: str) -> None:
    """Exit with 130 if a sweep was interrupted, and with 1 if tasks failed or were not started in time."""
    if not made.interrupted and made.complete:
        return
    if made.interrupted:
        message = stopped
    elif made.failed:
        ended = "" if made.missing else "finished, "
        message = f"{ended}{made.failed} {what} failed; see `learncast sweep status {store}`\n{_failed_cells(store)}"
    else:
        message = f"{made.missing:,} {what} were not started in time; {stopped}"
    print(f"learncast: {message}", file=sys.stderr)
    raise typer.Exit(130 if made.interrupted else 1)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error as one line on stderr and exit with its code, without a traceback."""
    try:
        yield
    except (LearncastError, KeyboardInterrupt, MemoryError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        code, message = _exit(error)
        print(f"learncast: {message}", file=sys.stderr)
        raise typer.Exit(code) from error


def _exit(error: BaseException) -> tuple[int, str]:
    """Return the exit code and message of an error."""
    if isinstance(error, OSError):
        return 2, f"{error.filename or 'a file'}: {error.strerror or error}"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, MemoryError):
        return 2, "out of memory"
    return 1 if isinstance(error, AssumptionViolated) else 2, str(error)


def command(
    app: typer.Typer, name: str | None = None, *, example: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function, with an example at the end of its help and plain errors."""
    return lambda run: app.command(name, epilog=f"Example: learncast {example}")(plain_errors()(run))


def with_options(options: type[Any], function: Callable[..., Any]) -> Callable[..., None]:
    """Return a command whose last parameter, an `options` object, is replaced by the fields of that class."""
    own, shared = (list(inspect.signature(one, eval_str=True).parameters.values()) for one in (function, options))

    def called(**given: Any) -> None:
        chosen = options(**{one.name: given.pop(one.name) for one in shared})
        function(**given, **{own[-1].name: chosen})

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own[:-1], *shared)]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


@command(sweep_app, "run", example="sweep run study.toml --workers 4")
@partial(with_options, RunOptions)
def begin(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file with a sweep table.", show_default=False)],
    store: Annotated[Path | None, typer.Option(metavar="DIR", help="Where results go; STUDY.sweep by default.")] = None,
    shard: Annotated[str | None, typer.Option(metavar="K/N", help="Only the K-th of N shards.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Try a few tasks and estimate the cost of all.")] = False,
    *,
    options: RunOptions,
) -> None:
    """Start a sweep, or continue it."""
    from learncast.sweep.studies import sweep_of

    with allowing(options.most_bytes):
        sweep = dataclasses.replace(sweep_of(study), shard=read_shard(shard))
        if dry_run:
            _print_estimate(sweep, options.workers, options.as_json)
            return
    options.run(sweep, store or study.with_suffix(".sweep"))


@command(sweep_app, example="sweep resume study.sweep --retry")
@partial(with_options, RunOptions)
def resume(
    store: StoreFolder,
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY]", help="Its study file, to compare with.")] = None,
    *,
    function: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="The swept function, if a script started the sweep.")
    ] = None,
    options: RunOptions,
) -> None:
    """Continue a sweep that was stopped."""
    from learncast.sweep.studies import sweep_of
    from learncast.sweep.sweeping import stored_sweep

    sweep = stored_sweep(store, function)
    if study is not None:
        with allowing(options.most_bytes):
            sweep = dataclasses.replace(sweep_of(study), shard=sweep.shard)
    options.run(sweep, store)


@command(sweep_app, example="sweep status study.sweep")
def status(
    store: StoreFolder,
    errors: Annotated[int, typer.Option(help="Tracebacks of failed tasks to print.")] = 1,
    as_json: AsJson = False,
) -> None:
    """How far is it, and what failed?"""
    from learncast import sweep

    now = sweep.status(store)
    failed = list(islice(sweep.failures(store), max(errors, 0)))
    if as_json:
        print(json.dumps({**dataclasses.asdict(now), "failures": [dataclasses.asdict(one) for one in failed]}))
        return
    state = "running" if now.driven else "stopped" if now.missing else "finished" if now.failed else "complete"
    print(f"{store}: {state}; {now.done:,} of {now.total:,} tasks done, {now.failed:,} failed")
    print(f"{now.cells:,} cells; {now.seconds:,.1f} s computed, {format_bytes(now.bytes)}")
    for one in failed:
        print(f"\nfailed: {_values(one)}\n{one.error.strip()}")
    if now.failed:
        print(f"\n{_failed_cells(store)}")


def _values(failure: Failure) -> str:
    return ", ".join(f"{key} = {value}" for key, value in failure.cell.items())


def _failed_cells(store: Path) -> str:
    """Return the failed cells with the last lines of their tracebacks, and the command that retries them."""
    from learncast.sweep import failures

    rows = list(islice(failures(store), LISTED + 1))
    lines = [f"  {_values(one)}: {(one.error.strip().splitlines() or ['unknown'])[-1]}" for one in rows[:LISTED]]
    more = ["  ..."] if len(rows) > LISTED else []
    return "\n".join(["Failed:", *lines, *more, f"Retry them with `learncast sweep resume {store} --retry`."])


@command(sweep_app, example="sweep rebuild study.sweep")
def rebuild(store: StoreFolder) -> None:
    """Write a new ledger from the study and the results, if the old one was damaged or lost."""
    from learncast import sweep

    now = sweep.rebuild(store)
    print(f"{store}: {now.done:,} of {now.total:,} results entered; continue with `learncast sweep resume {store}`.")


@command(sweep_app, example="sweep verify study.sweep")
def verify(store: StoreFolder, as_json: AsJson = False) -> None:
    """Are all results intact? Damaged ones are moved to quarantine; exit 1 if there are any."""
    from learncast import sweep

    damaged = sweep.verify(store)
    if as_json:
        print(json.dumps({"damaged": [dataclasses.asdict(one) for one in damaged]}))
    else:
        for one in damaged:
            print(f"{one.digest}.nc {one.what}")
        print(f"{plural(len(damaged), 'result')} moved to quarantine." if damaged else "All results are intact.")
    if damaged:
        raise typer.Exit(1)


@command(sweep_app, example="sweep gather study.sweep --out all.nc")
def gather(
    stores: Annotated[
        list[Path],
        typer.Argument(metavar="STORE...", help="Folder of the sweep, or of all its shards.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.nc", help="NetCDF file to write.")] = None,
    table: Annotated[Path | None, typer.Option(metavar="FILE", help="Table to write, .csv or .parquet.")] = None,
    variables: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
) -> None:
    """Collect all results in one dataset over the grid."""
    from learncast import sweep

    print(sweep.gather(stores, out=out, table=table, variables=read_words(variables)))
    for path in filter(None, (out, table)):
        print(f"Wrote {path}")


@command(sweep_app, example="sweep prune study.sweep --dry-run")
def prune(
    store: StoreFolder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files, and keep them.")] = False,
) -> None:
    """Remove files that no task needs, and the quarantine."""
    from learncast import sweep

    removed = sweep.prune(store, dry_run=dry_run)
    for path in removed:
        print(path)
    print(f"{plural(len(removed), 'file')} {'would be ' if dry_run else ''}removed.")


def _print_estimate(sweep: Sweep, workers: int | None, as_json: bool) -> None:
    from learncast.sweep import Processes
    from learncast.sweep.sweeping import estimate_cost

    number = Processes(workers).workers
    cost = estimate_cost(sweep, workers=number)
    if as_json:
        values = {key: None if value != value else value for key, value in cost.items()}
        print(json.dumps({**values, "workers": number}))
        return
    pilot, failed = cost["pilot"], cost["failed"]
    print(f"{cost['tasks']:,} tasks")
    if failed:
        print(f"{failed} of {pilot} tried tasks failed:\n{cost['error'].strip()}")
    if failed < pilot:
        each = f"{cost['task_seconds'] * 1000:,.0f} ms each, from {pilot - failed} tried"
        print(f"about {duration(cost['seconds'])} with {plural(number, 'worker')} ({each})")
        print(f"about {format_bytes(cost['bytes'])} on the disk")


@contextmanager
def show_sweep_progress() -> Iterator[Callable[[Summary], None]]:
    """Yield a watcher that shows progress on stderr: a bar on a terminal, elsewhere a line a minute."""
    shown = {""}

    def notify(summary: Summary) -> None:
        text = "finishing running tasks; interrupt again to stop now" if summary.interrupted else summary.warning
        if text not in shown:
            shown.add(text)
            print(f"learncast: {text}", file=sys.stderr, flush=True)

    with _progress_bar() if sys.stderr.isatty() else _progress_lines() as show:

        def watch(summary: Summary) -> None:
            notify(summary)
            show(summary)

        yield watch


@contextmanager
def _progress_bar() -> Iterator[Callable[[Summary], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    with Progress(text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:

        def show(summary: Summary) -> None:
            if not bar.task_ids:  # the results of earlier runs do not count for the speed
                bar.add_task("sweeping", total=summary.total, completed=summary.done)
            failed = f", {summary.failed} failed" if summary.failed else ""
            bar.update(bar.task_ids[0], completed=summary.done + summary.failed, description=f"sweeping{failed}")

        yield show


@contextmanager
def _progress_lines() -> Iterator[Callable[[Summary], None]]:
    last = time.monotonic()

    def show(summary: Summary) -> None:
        nonlocal last
        if time.monotonic() - last < QUIET:
            return
        last = time.monotonic()
        left = summary.missing * summary.seconds / summary.computed if summary.computed else math.nan
        about = "" if math.isnan(left) else f", about {duration(left)} left"
        line = f"learncast: {summary.done:,} of {summary.total:,} tasks done, {summary.failed:,} failed{about}"
        print(line, file=sys.stderr, flush=True)

    yield show
