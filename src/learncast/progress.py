"""How long work reports that it goes on, and how it is given up in time."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any

from learncast.errors import InvalidSpec, OutOfTime

#: Called now and then with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]

#: Seconds of silence before a bar appears, or before how long it will take is said.
PATIENCE = 2.0
#: Work that takes less, in seconds, is not announced.
LONG = 5.0
#: Seconds between two lines where there is no terminal.
QUIET = 10.0

#: The clock's reading at which work is given up.
_end: ContextVar[float] = ContextVar("end", default=math.inf)


def now() -> float:
    """The clock, in seconds."""
    return monotonic()


def silent(share: float) -> None:
    """Report nothing."""


def within(progress: Progress, done: int, number: int) -> Progress:
    """Progress of one of several pieces of work."""
    return partial(_within, progress, done, number)


def _within(progress: Progress, done: int, number: int, share: float) -> None:
    progress((done + share) / number)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Give up what runs inside after so many seconds; a limit outside holds too. None sets no limit of its own."""
    if seconds is None:
        yield
        return
    if not seconds > 0:
        raise InvalidSpec(
            required="seconds must be a positive number",
            got=repr(seconds),
            why="nothing is answered in no time",
            remedy="give the seconds you would wait, or leave it out",
        )
    with until(min(deadline(), now() + seconds)):
        yield


@contextmanager
def until(end: float) -> Iterator[None]:
    """Give up what runs inside when the clock reads so much; infinity lets it finish, whatever the limit outside."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def deadline() -> float:
    """The clock's reading at which work is given up."""
    return _end.get()


def seconds_left() -> float:
    """What is left of the time that was given; infinite where none was set."""
    return deadline() - now()


def time_is_up() -> bool:
    """Whether the time that was given has passed."""
    return now() > deadline()


def check_time() -> None:
    """Give up where the time that was given has passed."""
    if time_is_up():
        raise OutOfTime(
            required="the answer must be there in the time that was given",
            got="work that is not done",
            why="it was given up before it came to a first answer",
            remedy="allow more seconds, or ask for less: a lower accuracy, fewer tasks, a larger learning rate",
        )


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def shown(what: str) -> Iterator[Progress]:
    """Progress on stderr, for long work: a bar with the time left on a terminal, a line now and then elsewhere."""
    show = _Bar(what) if sys.stderr.isatty() else _Lines(what)
    try:
        yield show
    finally:
        show.close()


class _Lines:
    """How long it will take as soon as that can be told, then a line every ten seconds."""

    def __init__(self, what: str) -> None:
        self.what, self.begun, self.last = what, now(), -math.inf

    def __call__(self, share: float) -> None:
        here = now()
        spent = here - self.begun
        if spent < PATIENCE or not 0.0 < share < 1.0 or here - self.last < QUIET:
            return
        left = spent * (1 - share) / share
        if math.isinf(self.last) and spent + left < LONG:
            return
        self.last = here
        print(f"learncast: {self.what}, {share:.0%} done, about {duration(left)} left", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left open."""


class _Bar:
    """A bar that appears when work is long."""

    def __init__(self, what: str) -> None:
        self.what, self.begun = what, now()
        self.bar: Any = None
        self.line: Any = None

    def __call__(self, share: float) -> None:
        if self.bar is None and (now() - self.begun < PATIENCE or share >= 1.0):
            return
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self.bar = Bar(console=Console(stderr=True), transient=True)
            self.bar.start()
            self.line = self.bar.add_task(self.what, total=1.0)
        self.bar.update(self.line, completed=share)

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
