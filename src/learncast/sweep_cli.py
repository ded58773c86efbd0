"""The sweep commands: one question over a grid of studies."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learncast._core.errors import AssumptionViolated, InvalidSpec, LearncastError
from learncast._core.limits import allowing
from learncast._core.progress import duration
from learncast.display import plural

if TYPE_CHECKING:
    from learncast.sweep import Failure, Summary, Sweep
    from learncast.sweep.executors import Executor

sweep_app = typer.Typer(
    name="sweep", help="Ask a question over a grid of studies, and go on after any stop.", no_args_is_help=True
)

StoreFolder = Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the sweep.", show_default=False)]
Workers = Annotated[int | None, typer.Option("--workers", help="Tasks at a time; one for each processor by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

#: Failed cells that are listed.
LISTED = 10
#: Seconds between lines of progress where there is no terminal.
QUIET = 60.0


@dataclasses.dataclass(frozen=True)
class Way:
    """How a sweep is carried out, as the options of `run` and `resume` say it."""

    workers: Workers = None
    cluster: Annotated[str | None, typer.Option(help="local: start a dask cluster here.")] = None
    scheduler: Annotated[str | None, typer.Option(help="Use a running dask cluster, tcp://host:port.")] = None
    in_process: Annotated[bool, typer.Option("--in-process", help="Compute here, one task after another.")] = False
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Begin no more tasks once one has failed.")] = False
    retry: Annotated[bool, typer.Option("--retry", help="Try again what failed before.")] = False
    batch: Annotated[int | None, typer.Option(help="Tasks handed out at a time; 1, or on a cluster by their cost.")] = (
        None
    )
    most_bytes: Annotated[
        float | None, typer.Option(help="Memory that one file, array or table may take in a task; 2 GiB by default.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option(help="Begin no more tasks after so many seconds; resume goes on.")
    ] = None
    as_json: AsJson = False

    def executor(self) -> Executor:
        """Where tasks are computed."""
        from learncast._core.validation import one_of
        from learncast.sweep.executors import Cluster, InProcess, Processes

        if sum((self.cluster is not None, self.scheduler is not None, self.in_process)) > 1:
            raise InvalidSpec("at most one of --cluster, --scheduler and --in-process must be given, got several.")
        if self.cluster is not None:
            one_of("--cluster", self.cluster, ("local",))
        if self.cluster is not None or self.scheduler is not None:
            return Cluster(self.scheduler, workers=self.workers)
        return InProcess() if self.in_process else Processes(self.workers)

    def drive(self, sweep: Sweep, store: Path) -> None:
        """Carry it out, and say how it ended."""
        from learncast.sweep.sweeping import carry_out

        executor, options = self.executor(), {"fail_fast": self.fail_fast, "batch": self.batch, "seconds": self.seconds}
        with watching() as watcher, allowing(self.most_bytes):
            made = carry_out(sweep, store, executor, retry=self.retry, watcher=watcher, **options)
        if self.as_json:
            print(json.dumps({"store": str(store), **dataclasses.asdict(made)}))
        else:
            words = f"{made.done:,} of {made.total:,} tasks done, {made.failed:,} failed, in {made.seconds:,.1f} s"
            print(f"{store}: {words}")
        exit_unless_done(made, store, "tasks", stopped=f"stopped; go on with `learncast sweep resume {store}`")


def exit_unless_done(made: Summary, store: Path, what: str, *, stopped: str) -> None:
    """Exit 130 where a sweep was stopped, and 1 where some of it failed or was not done in time."""
    if made.interrupted:
        print(f"learncast: {stopped}", file=sys.stderr)
        raise typer.Exit(130)
    if made.failed:
        ended = f"finished, {made.failed} {what} failed" if not made.missing else f"{made.failed} {what} failed"
        print(f"learncast: {ended}; see `learncast sweep status {store}`\n{_failed_cells(store)}", file=sys.stderr)
        raise typer.Exit(1)
    if made.missing:
        print(f"learncast: {made.missing:,} {what} were not begun in time; {stopped}", file=sys.stderr)
        raise typer.Exit(1)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Bad input is one sentence on stderr and exit code 2, never a traceback."""
    try:
        yield
    except AssumptionViolated as error:
        print(f"learncast: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    except LearncastError as error:
        print(f"learncast: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as error:
        print("learncast: interrupted", file=sys.stderr)
        raise typer.Exit(130) from error
    except MemoryError as error:
        print("learncast: this takes more than the memory holds; ask for less of it", file=sys.stderr)
        raise typer.Exit(2) from error
    except OSError as error:
        print(f"learncast: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(2) from error


def command(
    app: typer.Typer, name: str | None = None, *, example: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function, whose help ends with an example; bad input is one sentence, never a traceback."""
    return lambda run: app.command(name, epilog=f"Example: learncast {example}")(plain_errors()(run))


def taking(options: type[Any], told: Callable[..., Any]) -> Callable[..., None]:
    """A command with the parameters of `told`, the last of which, `options`, gives way to the fields of that class."""
    own, shared = (list(inspect.signature(one, eval_str=True).parameters.values()) for one in (told, options))

    def called(**given: Any) -> None:
        chosen = options(**{one.name: given.pop(one.name) for one in shared})
        told(**given, **{own[-1].name: chosen})

    called.__name__, called.__doc__ = told.__name__, told.__doc__
    every = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own[:-1], *shared)]
    called.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in every}
    return called


@command(sweep_app, "run", example="sweep run study.toml --workers 4")
@partial(taking, Way)
def begin(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file with a sweep table.", show_default=False)],
    store: Annotated[Path | None, typer.Option(metavar="DIR", help="Where results go; STUDY.sweep by default.")] = None,
    shard: Annotated[str | None, typer.Option(metavar="K/N", help="Only the K-th of N shares.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Try a few tasks and say what all would take.")] = False,
    *,
    way: Way,
) -> None:
    """Begin a sweep, or go on with it."""
    from learncast.sweep.studies import sweep_of

    with allowing(way.most_bytes):
        sweep = dataclasses.replace(sweep_of(study), shard=share_of_tasks(shard))
    if dry_run:
        with allowing(way.most_bytes):
            _print_outlook(sweep, way.workers, way.as_json)
    else:
        way.drive(sweep, store or study.with_suffix(".sweep"))


@command(sweep_app, example="sweep resume study.sweep --retry")
@partial(taking, Way)
def resume(
    store: StoreFolder,
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY]", help="Its study file, to be compared.")] = None,
    *,
    function: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="The function of a sweep that a script began; it is run."),
    ] = None,
    way: Way,
) -> None:
    """Go on with a sweep that was stopped."""
    from learncast.sweep.studies import sweep_of
    from learncast.sweep.sweeping import stored_sweep

    sweep = stored_sweep(store, function)
    if study is not None:
        with allowing(way.most_bytes):
            sweep = dataclasses.replace(sweep_of(study), shard=sweep.shard)
    way.drive(sweep, store)


@command(sweep_app, example="sweep status study.sweep")
def status(
    store: StoreFolder,
    errors: Annotated[int, typer.Option(help="Tracebacks of failed tasks to print.")] = 1,
    as_json: AsJson = False,
) -> None:
    """How far is it, and what failed?"""
    from itertools import islice

    from learncast.sweep import failures
    from learncast.sweep import status as look

    found = look(store)
    failed = list(islice(failures(store), max(errors, 0)))
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "failures": [dataclasses.asdict(one) for one in failed]}))
        return
    ended = {found.failed: f"finished, {found.failed:,} failed", 0: "complete"}  # which is also where none failed
    state = "running" if found.driven else ended.get(found.total - found.done, "stopped")
    print(f"{store}: {state}; {found.done:,} of {found.total:,} tasks done, {found.failed:,} failed")
    print(
        f"{found.cells:,} cells, {found.copies:,} of them copies; {found.seconds:,.1f} s computed, {_size(found.bytes)}"
    )
    for one in failed:
        print(f"\nfailed: {_told(one)}\n{one.error.strip()}")
    if found.failed:
        print(f"\n{_failed_cells(store)}")


def _told(failure: Failure) -> str:
    return ", ".join(f"{key} = {value}" for key, value in failure.cell.items())


def _failed_cells(store: Path) -> str:
    """Cells that failed, each with the last line of what it raised, and how to try them again."""
    from itertools import islice

    from learncast.sweep import failures

    rows = list(islice(failures(store), LISTED + 1))
    lines = [f"  {_told(one)}: {(one.error.strip().splitlines() or ['no reason'])[-1]}" for one in rows[:LISTED]]
    more = ["  ..."] if len(rows) > LISTED else []
    retry = f"Try them again with `learncast sweep resume {store} --retry`."
    return "\n".join(["Failed:", *lines, *more, retry])


@command(sweep_app, example="sweep rebuild study.sweep")
def rebuild(store: StoreFolder) -> None:
    """Make a damaged or lost ledger anew, from the study and the result files."""
    from learncast.sweep import rebuild as make

    found = make(store)
    print(f"{store}: {found.done:,} of {found.total:,} results entered; `learncast sweep resume {store}` goes on.")


@command(sweep_app, example="sweep verify study.sweep")
def verify(store: StoreFolder, as_json: AsJson = False) -> None:
    """Are all result files what was written? Damaged ones are set apart; exit 1 when there are any."""
    from learncast.sweep import verify as check

    found = check(store)
    if as_json:
        print(json.dumps({"damaged": [dataclasses.asdict(one) for one in found]}))
    else:
        for one in found:
            print(f"{one.digest}.nc {one.what}")
        again = f"{len(found):,} set apart; resume computes {'it' if len(found) == 1 else 'them'} again."
        print(again if found else "All results are whole.")
    if found:
        raise typer.Exit(1)


@command(sweep_app, example="sweep gather study.sweep --out all.nc")
def gather(
    stores: Annotated[
        list[Path],
        typer.Argument(metavar="STORE...", help="Folder of the sweep, or of all its shares.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.nc", help="One NetCDF file.")] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One row for each cell: CSV if it ends in .csv, or .parquet.")
    ] = None,
    variables: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
) -> None:
    """Put all results into one dataset over the grid."""
    from learncast.sweep import gather as collect

    wanted = None if variables is None else [word.strip() for word in variables.split(",")]
    found = collect(stores, out=out, table=table, variables=wanted)
    print(found)
    for path in filter(None, (out, table)):
        print(f"Wrote {path}")


@command(sweep_app, example="sweep prune study.sweep --dry-run")
def prune(
    store: StoreFolder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and keep it.")] = False,
) -> None:
    """Remove drafts, files that no task needs, and quarantine."""
    from learncast.sweep import prune as remove

    found = remove(store, dry_run=dry_run)
    for path in found:
        print(path)
    print(f"{plural(len(found), 'file')} {'would be ' if dry_run else ''}removed.")


def share_of_tasks(words: str | None) -> tuple[int, int] | None:
    """Which of how many shares of the tasks, as K/N says it."""
    if words is None:
        return None
    share, _, shares = words.partition("/")
    if not (share.isdecimal() and shares.isdecimal()):
        raise InvalidSpec(f"--shard must be K/N, like 3/100, got {words!r}.")
    return int(share), int(shares)


def _print_outlook(sweep: Sweep, workers: int | None, as_json: bool) -> None:
    from learncast.sweep.executors import Processes
    from learncast.sweep.sweeping import outlook

    number = Processes(workers).workers
    found = outlook(sweep, workers=number)
    pilot, failed = found["pilot"], found["failed"]
    if as_json:
        values = {key: None if value != value else value for key, value in found.items()}
        print(json.dumps({**values, "workers": number}))
        return
    print(f"{found['tasks']:,} tasks in {found['cells']:,} cells")
    if failed:
        print(f"{failed} of {pilot} tried tasks failed:\n{found['error'].strip()}")
    if failed < pilot:
        each = f"{found['task_seconds'] * 1000:,.0f} ms each, from {pilot - failed} tried"
        print(f"about {duration(found['seconds'])} with {number} workers ({each})")
        print(f"about {_size(found['bytes'])} on the disk")


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


@contextmanager
def watching() -> Iterator[Callable[[Summary], None]]:
    """A bar with the time left on a terminal, a line a minute elsewhere, both on stderr."""
    told: list[str] = [""]

    def notices(summary: Summary) -> None:
        words = "finishing what runs; again to stop now" if summary.interrupted else summary.trouble
        if words and words not in told:
            told.append(words)
            print(f"learncast: {words}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        line = _line_a_minute()

        def both(summary: Summary) -> None:
            notices(summary)
            line(summary)

        yield both
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.description}")
    with Progress(words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        lines: list[Any] = []

        def show(summary: Summary) -> None:
            notices(summary)
            if not lines:
                lines.append(bar.add_task("sweeping", total=summary.total, completed=summary.done))
            failed = f", {summary.failed} failed" if summary.failed else ""
            bar.update(lines[0], completed=summary.done + summary.failed, description=f"sweeping{failed}")

        yield show


def _line_a_minute() -> Callable[[Summary], None]:
    last = [time.monotonic()]

    def show(summary: Summary) -> None:
        if time.monotonic() - last[0] < QUIET:
            return
        last[0] = time.monotonic()
        left = summary.missing * summary.seconds / summary.computed if summary.computed else math.nan
        about = "" if math.isnan(left) else f", about {duration(left)} left"
        line = f"learncast: {summary.done:,} of {summary.total:,} tasks done, {summary.failed:,} failed{about}"
        print(line, file=sys.stderr, flush=True)

    return show
