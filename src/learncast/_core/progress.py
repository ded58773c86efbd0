"""Progress reports and time limits of long work."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from learncast._core.errors import InvalidSpec, OutOfTime

#: Callback that receives the fraction of the work that is done, from 0 to 1.
Progress = Callable[[float], None]

#: Seconds before anything is reported.
PATIENCE = 2.0
#: Work that takes fewer seconds is not reported by lines.
LONG = 5.0
#: Seconds between two lines if there is no terminal.
QUIET = 10.0
#: Seconds between two updates of a bar.
BLINK = 0.2

Call = ParamSpec("Call")
Result = TypeVar("Result")

#: Clock reading at which work must end.
_end: ContextVar[float] = ContextVar("end", default=math.inf)
#: Whether an enclosing function reports progress already.
_reporting: ContextVar[bool] = ContextVar("reporting", default=False)


def now() -> float:
    """Return the clock, in seconds."""
    return monotonic()


class Silence:
    """Progress callback that does nothing; its repr keeps signatures short."""

    def __call__(self, share: object) -> None:
        """Ignore the progress."""

    def __repr__(self) -> str:
        return "silent"


#: Report nothing; in a notebook, functions decorated with `noticed` show a bar instead.
silent = Silence()


def within(progress: Progress, done: int, number: int) -> Progress:
    """Return the callback of piece `done` of `number` equal pieces of work."""
    return partial(_within, progress, done, number)


def _within(progress: Progress, done: int, number: int, share: float) -> None:
    progress((done + share) / number)


def note(progress: Progress, text: str) -> None:
    """Let a bar show how much is left in other units than seconds, e.g. in steps."""
    if isinstance(progress, partial) and progress.func is _within:
        note(progress.args[0], text)
    elif isinstance(progress, _Report):
        progress.note = text


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the time of the work inside the context; an enclosing limit stays in force, None adds none."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise InvalidSpec(f"seconds must be positive, got {seconds!r}.", field="seconds")
    with until(min(deadline(), now() + seconds)):
        yield


@contextmanager
def until(end: float) -> Iterator[None]:
    """Set the clock reading at which the work inside must end; infinity lifts an enclosing limit."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def deadline() -> float:
    """Return the clock reading at which work must end."""
    return _end.get()


def seconds_left() -> float:
    """Return the seconds until the deadline, infinite without a limit."""
    return deadline() - now()


def time_is_up() -> bool:
    """Return whether the deadline has passed."""
    return now() > deadline()


def check_time() -> None:
    """Raise `OutOfTime` if the deadline has passed."""
    if time_is_up():
        raise OutOfTime("the time limit was reached. Allow more seconds, or a lower accuracy.", field="seconds")


def duration(seconds: float) -> str:
    """Return a time with its unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def show_progress(what: str) -> Iterator[Progress]:
    """Show the progress of long work: a bar in a notebook or terminal, otherwise lines on stderr."""
    if in_notebook():
        report: _Report = _NotebookBar(what, BLINK)
    else:
        report = _TerminalBar(what, BLINK) if sys.stderr.isatty() else _Lines(what, QUIET, least=LONG)
    token = _reporting.set(True)
    try:
        yield report
    finally:
        _reporting.reset(token)
        report.close()


def in_notebook() -> bool:
    """Return whether a notebook kernel runs this process."""
    python = sys.modules.get("IPython")
    return getattr(python and python.get_ipython(), "kernel", None) is not None


def noticed(what: str) -> Callable[[Callable[Call, Result]], Callable[Call, Result]]:
    """Let a function with a `progress` argument show a bar in notebooks, unless the caller passes `progress`."""

    def decorate(run: Callable[Call, Result]) -> Callable[Call, Result]:
        @wraps(run)
        def call(*args: Call.args, **options: Call.kwargs) -> Result:
            if "progress" in options or _reporting.get() or not in_notebook():
                return run(*args, **options)
            with show_progress(what) as progress:
                options["progress"] = progress
                return run(*args, **options)

        return call

    return decorate


#: Least share from which the time left is estimated: the first part of the work says little about the rest.
LEAST_ESTIMATED = 0.1
#: Largest share that is shown: what follows the last report takes time too.
MOST_SHOWN = 0.99


class _Report:
    """Progress callback that reports at intervals, once the work has taken longer than `PATIENCE`.

    Work that is expected to take fewer than `least` seconds is not reported.
    """

    def __init__(self, what: str, interval: float, *, least: float = 0.0) -> None:
        self.what, self.interval, self.least = what, interval, least
        self.begun, self.last, self.note = now(), -math.inf, ""

    def __call__(self, share: float) -> None:
        """Report if it is time to."""
        here = now()
        spent = here - self.begun
        if spent < PATIENCE or not 0.0 < share < 1.0 or here - self.last < self.interval:
            return
        left = spent * (1 - share) / share
        if spent + left >= self.least or math.isfinite(self.last):
            self.last = here
            about = f"about {duration(left)} left" if share >= LEAST_ESTIMATED else "estimating the time left"
            self.show(min(share, MOST_SHOWN), self.note or about)

    def show(self, share: float, left: str) -> None:
        """Report the fraction done and the time left."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove the report."""


class _NotebookBar(_Report):
    """Bar in the output of a notebook cell."""

    output: Any = None

    def show(self, share: float, left: str) -> None:
        self._display(f'<progress value="{share:.3f}"></progress> {html.escape(f"{self.what}: {left}")}')

    def _display(self, text: str) -> None:
        from IPython.display import HTML, display

        if self.output is None:
            self.output = display(HTML(text), display_id=True)
        else:
            self.output.update(HTML(text))

    def close(self) -> None:
        if self.output is not None:
            self._display("")


class _Lines(_Report):
    """Lines on stderr: the first as soon as the remaining time is known, then one every ten seconds."""

    def show(self, share: float, left: str) -> None:
        print(f"learncast: {self.what}, {share:.0%} done, {left}", file=sys.stderr, flush=True)


class _TerminalBar(_Report):
    """Bar on a terminal."""

    bar: Any = None

    def show(self, share: float, left: str) -> None:
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.bar.add_task(self.what, total=1.0)
        self.bar.update(
            self.bar.task_ids[0], completed=share, description=f"{self.what}: {left}" if self.note else self.what
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
