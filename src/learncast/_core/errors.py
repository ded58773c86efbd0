"""The exceptions that learncast raises."""

from __future__ import annotations

import difflib
from functools import partial


class LearncastError(Exception):
    """A request that cannot be answered.

    Parameters
    ----------
    message : str
        What is required, what was given and, unless it is obvious, what to do.
    field : str, optional
        Argument or study key that the message is about.

    Examples
    --------
    >>> import learncast as lc
    >>> try:
    ...     lc.tasks.integration(steps=0)
    ... except lc.LearncastError as error:
    ...     print(error.field, "|", error)
    steps | steps must be at least 1, got 0.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments are lost by default when an exception is pickled, and worker processes raise too.
        return (partial(type(self), str(self), **self.__dict__), ())


class InvalidSpec(LearncastError, ValueError):
    """An argument, study key or file that is out of range or inconsistent."""


class UnsupportedModel(LearncastError, TypeError):
    """A network or task of a kind that the function cannot treat."""


class SchemaMismatch(LearncastError, ValueError):
    """A stored object that is missing, damaged or has another layout."""


class NotLearned(LearncastError):
    """A task that is never learned, where a finite answer was required."""


class OutOfTime(LearncastError):
    """Work that exceeded its time limit."""


class AssumptionViolated(LearncastError):
    """A condition of the theory that the task or network fails.

    Attributes
    ----------
    assumption : str
        Name of the condition, a key of `learncast.theory.assumptions.ASSUMPTIONS`.
    measured, allowed : float
        Measured value, and the largest value under which the theory is exact.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> try:
    ...     lc.forecast(task, network, learning_rate=10.0)
    ... except lc.AssumptionViolated as error:
    ...     print(error.assumption, error.allowed)
    stable_learning_rate 2.0
    """

    def __init__(
        self, message: str = "", *, assumption: str, measured: float, allowed: float, field: str | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.assumption, self.measured, self.allowed = assumption, measured, allowed


def suggestion(word: str, choices: tuple[str, ...]) -> str:
    """Return "Did you mean ...?" if a choice is close to `word`, else an empty string."""
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""


def brief(value: object) -> str:
    """Return the repr of a value, cut to 60 characters; numpy scalars are written as Python numbers."""
    scalar = type(value).__module__ == "numpy" and not getattr(value, "ndim", 1)
    text = repr(value.item() if scalar else value)  # type: ignore[attr-defined]
    return text if len(text) <= 60 else text[:57] + "..."
