"""The exceptions that learncast raises."""

from __future__ import annotations

import difflib
import inspect
import math
import tomllib
from collections.abc import Callable, Iterable
from functools import cache, partial, wraps
from importlib.resources import files
from typing import ParamSpec, TypeVar

Call = ParamSpec("Call")
Result = TypeVar("Result")


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


class UnknownKeyword(InvalidSpec, TypeError):
    """A keyword that a function does not take."""


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
    learning_rate, steps : float
        If the learning rate is too large: one at which training settles, and the steps at it; otherwise nan.

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
        self,
        message: str = "",
        *,
        assumption: str,
        measured: float,
        allowed: float,
        field: str | None = None,
        learning_rate: float = math.nan,
        steps: float = math.nan,
    ) -> None:
        super().__init__(message, field=field)
        self.assumption, self.measured, self.allowed = assumption, measured, allowed
        self.learning_rate, self.steps = learning_rate, steps

    def with_rate(self, learning_rate: float, steps: float, sentence: str) -> AssumptionViolated:
        """Return this error with a learning rate at which training settles, and the steps at it."""
        numbers = {**self.__dict__, "field": "learning_rate", "learning_rate": learning_rate, "steps": steps}
        return AssumptionViolated(f"{self} {sentence}", **numbers)


def suggestion(word: str, choices: tuple[str, ...]) -> str:
    """Return "Did you mean ...?" if a choice, or a word of it, is close to `word`, else an empty string."""

    def likeness(choice: str) -> float:
        parts = {choice, *choice.replace("_", " ").replace("-", " ").split()}
        return max(difflib.SequenceMatcher(None, word.lower(), part.lower()).ratio() for part in parts)

    close = max(choices, key=lambda choice: (likeness(choice), choice[:1] == word[:1]), default="")
    return f"Did you mean {close!r}?" if close and likeness(close) >= 0.6 else ""


@cache
def _habits() -> dict[str, str]:
    return tomllib.loads(files("learncast._core").joinpath("habits.toml").read_text(encoding="utf-8"))


def habit(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean ...?" if a known name stands for a name of other libraries, else an empty string."""
    meant = next((name for name in _habits().get(word, "").split() if name in known), "")
    return f"Did you mean {meant!r}?" if meant else ""


def hint(word: str, known: tuple[str, ...]) -> str:
    """Return a sentence that names what `word` may mean: the name used here, the closest known name, or all of them."""
    return habit(word, known) or suggestion(word, known) or f"Known are {', '.join(known)}."


def check_keywords(given: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise for the first keyword that is not known, with a hint."""
    for key in given:
        if key not in known:
            raise UnknownKeyword(f"{key} is not a known keyword. {hint(key, known)}", field=key)


def hinted(function: Callable[Call, Result]) -> Callable[Call, Result]:
    """Let a function refuse arguments given twice, and unknown keywords with a hint on what they are called here."""
    parameters = inspect.signature(function).parameters
    known = tuple(key for key in parameters if key not in ("self", "cls"))
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    @wraps(function)
    def call(*args: Call.args, **options: Call.kwargs) -> Result:
        if not is_open:
            check_keywords(options, known)
        twice = [key for key in tuple(parameters)[: len(args)] if key in options]
        if twice:
            place, name = args[tuple(parameters).index(twice[0])], options[twice[0]]
            got = f"{type(place).__name__} by place and {type(name).__name__} by name"
            raise UnknownKeyword(f"{twice[0]} is given twice: {got}.", field=twice[0])
        return function(*args, **options)

    return call


def brief(value: object) -> str:
    """Return the repr of a value, cut to 60 characters; numpy scalars are written as Python numbers."""
    scalar = type(value).__module__ == "numpy" and not getattr(value, "ndim", 1)
    text = repr(value.item() if scalar else value)  # type: ignore[attr-defined]
    return text if len(text) <= 60 else text[:57] + "..."
