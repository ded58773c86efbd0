"""How a command delivers its answer: on stdout, as JSON or as files, within limits of time and memory."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from learncast._core.files import as_folder, check_writable
from learncast._core.limits import allowing
from learncast._core.progress import Progress, show_progress, time_limit
from learncast.sweep_cli import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from learncast.display import Table
    from learncast.report.report import Report
    from learncast.study.study_file import Section

Kind = TypeVar("Kind", bound="Section")


@dataclasses.dataclass(frozen=True)
class Delivery:
    """How an answer is delivered: the last options of every question."""

    seconds: Annotated[float | None, typer.Option(help="Time limit; gives the best answer until then, if any.")] = None
    as_json: AsJson = False
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for JSON, NetCDF, PNG and HTML.")] = None
    most_bytes: Annotated[float | None, typer.Option(help="Memory limit of a file or array; 2 GiB by default.")] = None
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key: training.learning_rate=0.01.")
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit 1 if a condition of the theory does not hold; in Python, strict=True is the default and raises.",
        ),
    ] = False

    def read(self, kind: type[Kind], path: Path, *, data: bool = False) -> tuple[Kind, Path, str]:
        """Read a study file, or with `data` a file of trials, and check its keys."""
        from learncast.study.study_file import read_study

        with allowing(self.most_bytes):
            return read_study(kind, path, changes=self.changes or (), data=data)

    def deliver(self, doing: str, answered: Callable[[Progress], Report]) -> None:
        """Compute, write and print an answer; exit 1 if a condition (with --strict) or a check fails."""
        if self.out is not None:
            check_writable(as_folder(self.out))  # an answer that takes hours must not be lost
        with show_progress(doing) as progress, time_limit(self.seconds), allowing(self.most_bytes):
            answer = answered(progress)
        written = answer.write(self.out) if self.out is not None else []
        if self.as_json:
            print(answer.json())
        else:
            _print_answer(answer)
            if written:
                others = ", ".join(p.name for p in written if p.name != "report.html")
                print(f"\nReport: {self.out}/report.html\n(with {others})")
        if self.strict and not answer.trust.holds:
            failed = ", ".join(a.name for a in answer.trust.failed)
            print(f"learncast: conditions of the theory do not hold: {failed}", file=sys.stderr)
            raise typer.Exit(1)
        if not answer.passed:
            print("learncast: training differs from the forecast", file=sys.stderr)
            raise typer.Exit(1)


def _print_answer(answer: Report) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    class PipeConsole(Console):
        """Console that ends quietly if its reader ends early, as with `| head`."""

        def on_broken_pipe(self) -> None:
            exit_quietly()

    console = PipeConsole()
    console.print(Text(answer.title, style="bold"))
    for paragraph in filter(None, answer.answer_and_rest):
        console.print(Padding(Text(paragraph), (0, 0, 1, 0)))
    for table in answer.every_table:
        _print_table(console, table)
    console.print(Text(": ".join(answer.trust.standing)))
    for assumption in answer.trust.failed:
        console.print(Text(str(assumption.violation()), style="bold red"))


def exit_quietly() -> None:
    """Exit after the reader of stdout has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def _print_table(console: Console, table: Table) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    # As Text: names of tasks may look like markup.
    if table.title:
        console.print(Text(table.title, style="bold"))
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(table.columns))
    for k, column in enumerate(table.columns):
        rich.add_column(Text(column), justify="left" if table.is_text(k) else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(*(Text(cell) for cell in row))
    console.print(rich)
    for note in table.notes:
        console.print(Text(note, style="dim"))
    if table.notes:
        console.print()
