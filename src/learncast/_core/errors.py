"""The errors learncast raises, each one sentence in four parts."""

from __future__ import annotations

from functools import partial
from typing import Any


class LearncastError(Exception):
    """A request that cannot be answered, and why.

    Parameters
    ----------
    required : str
        What was asked for, as a full clause ("learning_rate must be positive").
    got : str
        What arrived instead.
    why : str
        Why it matters.
    remedy : str
        What the caller can do about it.

    See Also
    --------
    InvalidSpec, UnsupportedModel, SchemaMismatch, AssumptionViolated, NotLearned

    Examples
    --------
    >>> import learncast as lc
    >>> try:
    ...     lc.tasks.integration(steps=0)
    ... except lc.LearncastError as error:
    ...     print(error.required, "|", error.remedy)
    ...
    steps must be a whole number of at least 1 | choose a whole number for steps
    """

    def __init__(self, *, required: str, got: str, why: str, remedy: str) -> None:
        self.required, self.got, self.why, self.remedy = required, got, why, remedy
        end = "" if remedy.endswith("?") else "."
        super().__init__(f"{required}, but got {got}: {why}; {remedy}{end}")

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only constructors do not survive pickling by default, and worker processes raise too.
        return (partial(type(self), **self.__dict__), ())


class InvalidSpec(LearncastError, ValueError):
    """An input value that means nothing here.

    See Also
    --------
    LearncastError

    Examples
    --------
    >>> import learncast as lc
    >>> try:
    ...     lc.Stage(lc.tasks.integration(), accuracy=1.5)
    ... except lc.InvalidSpec as error:
    ...     print(error.got)
    ...
    1.5
    """


class UnsupportedModel(LearncastError, TypeError):
    """A network or task of a kind this function has no theory for.

    See Also
    --------
    LearncastError

    Examples
    --------
    >>> import learncast as lc
    >>> try:
    ...     lc.Activated("my network", "relu")
    ... except lc.UnsupportedModel as error:
    ...     print(error.required)
    ...
    the weights must be those of a LinearRNN or a TwoLayer
    """


class SchemaMismatch(LearncastError, ValueError):
    """A stored or foreign object whose layout is not ours.

    See Also
    --------
    LearncastError, Trajectory

    Examples
    --------
    >>> import learncast as lc
    >>> try:
    ...     lc.Trajectory.load("no such file.nc")
    ... except lc.SchemaMismatch as error:
    ...     print(error.why)
    ...
    there is nothing to load
    """


class NotLearned(LearncastError):
    """A task that is never learned, where an answer was required.

    See Also
    --------
    LearncastError, time_to_learn

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, lc.LinearRNN.aligned(recurrence=0.96, initial=0.0, hidden_size=4), learning_rate=1e-3)
    >>> try:
    ...     lc.time_to_learn(solution, strict=True)
    ... except lc.NotLearned as error:
    ...     print(error.required)
    ...
    every mode must reach accuracy 0.99
    """


class OutOfTime(LearncastError):
    """Work that was given up because the time it was given had passed.

    See Also
    --------
    LearncastError

    Examples
    --------
    >>> from learncast._core.errors import OutOfTime
    >>> from learncast._core.progress import check_time, time_limit
    >>> try:
    ...     with time_limit(1e-9):
    ...         check_time()
    ... except OutOfTime as error:
    ...     print(error.required)
    the answer must be there in the time that was given
    """


class AssumptionViolated(LearncastError):
    """A condition of the theory that the task or network measurably fails.

    Attributes
    ----------
    assumption : str
        Name of the condition, a key of `learncast.theory.assumptions.ASSUMPTIONS`.
    measured, allowed : float
        The measured number and the largest one under which the theory is exact.

    See Also
    --------
    LearncastError, solve

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> try:
    ...     lc.solve(task, network, learning_rate=10.0)
    ... except lc.AssumptionViolated as error:
    ...     print(error.assumption, error.allowed)
    ...
    stable_learning_rate 2.0
    """

    def __init__(self, *, assumption: str, measured: float, allowed: float, **parts: str) -> None:
        super().__init__(**parts)
        self.assumption, self.measured, self.allowed = assumption, measured, allowed


def suggestion(word: str, choices: tuple[str, ...]) -> str:
    """Say "did you mean ...?" when a choice is close to `word`, else nothing.

    Parameters
    ----------
    word : str
        What was written.
    choices : tuple of str
        What could have been meant.

    Returns
    -------
    str

    See Also
    --------
    LearncastError

    Examples
    --------
    >>> from learncast._core.errors import suggestion
    >>> suggestion("learning_rat", ("learning_rate", "accuracy"))
    "did you mean 'learning_rate'?"
    >>> suggestion("colour", ("learning_rate", "accuracy"))
    ''
    """
    import difflib

    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def brief(value: Any) -> str:
    """A value as it is written in Python, cut where it is long; numpy's numbers as plain ones.

    Parameters
    ----------
    value
        Anything.

    Returns
    -------
    str
        At most sixty letters.

    See Also
    --------
    LearncastError

    Examples
    --------
    >>> import numpy as np
    >>> from learncast._core.errors import brief
    >>> brief(np.float64(0.5)), brief("a" * 100)[-5:]
    ('0.5', 'aa...')
    """
    text = repr(value.item() if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1) else value)
    return text if len(text) <= 60 else text[:57] + "..."
