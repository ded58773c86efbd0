"""How long work reports that it goes on, and how it is given up in time."""

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

#: Called now and then with the share of the work that is done, from 0 to 1.
Progress = Callable[[float], None]

#: Seconds of silence before a bar appears, or before how long it will take is said.
PATIENCE = 2.0
#: Work that takes less, in seconds, is not announced.
LONG = 5.0
#: Seconds between two lines where there is no terminal.
QUIET = 10.0
#: Seconds between two states of a notebook's bar.
BLINK = 0.2

Call = ParamSpec("Call")
Found = TypeVar("Found")

#: The clock's reading at which work is given up.
_end: ContextVar[float] = ContextVar("end", default=math.inf)
#: Whether some work shows its progress already.
_shown: ContextVar[bool] = ContextVar("shown", default=False)


def now() -> float:
    """The clock, in seconds."""
    return monotonic()


class Silence:
    """What reports nothing; as a default it prints as a word."""

    def __call__(self, share: Any) -> None:
        """Hear it, and say nothing."""

    def __repr__(self) -> str:
        return "silent"


#: Report nothing; in a notebook the functions that are `noticed` show a bar instead.
silent = Silence()


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
            f"seconds must be a positive number, got {seconds!r}. Give the seconds you would wait, or leave it out.",
            field="seconds",
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
            "the answer must be there in the time that was given, got work that is not done. Allow more "
            "seconds, or ask for less: a lower accuracy, fewer tasks, a larger learning rate."
        )


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def shown(what: str) -> Iterator[Progress]:
    """Progress of long work: a bar in a notebook or on a terminal, elsewhere a line on stderr now and then."""
    show = _Display(what) if in_notebook() else _Bar(what) if sys.stderr.isatty() else _Lines(what)
    token = _shown.set(True)
    try:
        yield show
    finally:
        _shown.reset(token)
        show.close()


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this."""
    python = sys.modules.get("IPython")
    return getattr(python and python.get_ipython(), "kernel", None) is not None


def noticed(what: str) -> Callable[[Callable[Call, Found]], Callable[Call, Found]]:
    """Let a function that takes `progress` show it by itself in a notebook, where nobody gave another."""

    def told(run: Callable[Call, Found]) -> Callable[Call, Found]:
        @wraps(run)
        def called(*args: Call.args, **options: Call.kwargs) -> Found:
            if "progress" in options or _shown.get() or not in_notebook():
                return run(*args, **options)
            with shown(what) as progress:
                options["progress"] = progress
                return run(*args, **options)

        return called

    return told


class _Display:
    """A bar in a notebook's output, which appears when work is long and goes when it is done."""

    def __init__(self, what: str) -> None:
        self.what, self.begun, self.last = what, now(), -math.inf
        self.place: Any = None

    def __call__(self, share: float) -> None:
        here = now()
        if here - self.begun < PATIENCE or not 0.0 < share < 1.0 or here - self.last < BLINK:
            return
        self.last = here
        left = duration((here - self.begun) * (1 - share) / share)
        self._show(f'<progress value="{share:.3f}"></progress> {html.escape(self.what)}: about {left} left')

    def _show(self, text: str) -> None:
        from IPython.display import HTML, display

        if self.place is None:
            self.place = display(HTML(text), display_id=True)
        else:
            self.place.update(HTML(text))

    def close(self) -> None:
        """Take the bar away."""
        if self.place is not None:
            self._show("")


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
