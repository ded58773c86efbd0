"""Tasks from long tables: one row for every step of every trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.task import Task
from learncast.validation import FloatArray, one_of, suggestion

#: Kinds of table that can be read.
SUFFIXES = (".csv", ".parquet")


def from_table(
    table: str | os.PathLike[str] | Any,
    *,
    trial: str = "trial",
    step: str = "step",
    inputs: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    at: str = "end",
    name: str | None = None,
    centre: bool = False,
) -> Task:
    """Estimate a task from a long table of recorded trials.

    Parameters
    ----------
    table : path or pandas DataFrame
        A .csv or .parquet file, or the frame itself: one row for every trial and step, in any order.
    trial, step : str
        Columns that say which trial (a number or a word) and which step (a number; steps of a trial must follow one
        another by 1, and all trials must have the same ones).
    inputs, targets : str or sequence of str, optional
        Columns of the input and target channels, in order; by default those whose names start with "input" and with
        "target".
    at : {"end", "every_step"}
        When the target is asked for. At the end it is read from each trial's last step, and may be empty before.
    name : str, optional
        What to call it; the file's name by default.
    centre : bool
        Subtract the mean over trials; off by default, as in `Task.from_samples`.
    """
    one_of("at", at, ("end", "every_step"), why="targets come at one of these times")
    source, frame = _frame(table)
    x_names = _columns(frame, inputs, "input", source)
    y_names = _columns(frame, targets, "target", source)
    for column in (trial, step):
        _present(frame, column, source)
    _no_overlap(source, [trial, step, *x_names, *y_names])
    if len(frame) == 0:
        raise InvalidSpec(
            required=f"{source} must have a row for every step of every trial",
            got="no row below its header",
            why="there is nothing to estimate from",
            remedy="write the trials into it",
        )
    order, names, length = _layout(frame, trial, step, source)
    x = _values(frame, x_names, order, length, names, source)
    last = order.reshape(-1, length)[:, -1] if at == "end" else order
    y = _values(frame, y_names, last, 1 if at == "end" else length, names, source)
    if len(names) < 2:
        raise InvalidSpec(
            required=f"{source} must hold at least two trials",
            got=f"one, {names[0]!r} in column {trial!r}",
            why="covariances cannot be estimated from one trial",
            remedy="record more trials, or check that the column tells trials apart",
        )
    default = Path(source).stem if isinstance(table, str | os.PathLike) else "recorded"
    return Task.from_samples(x, y[:, 0] if at == "end" else y, name=name or default, centre=centre)


def _frame(table: Any) -> tuple[str, Any]:
    """What to call the table, and the table as a pandas frame."""
    if not isinstance(table, str | os.PathLike):
        if not (hasattr(table, "columns") and hasattr(table, "to_numpy")):
            raise InvalidSpec(
                required="a table must be a path or a pandas DataFrame",
                got=type(table).__name__,
                why="it needs named columns",
                remedy="arrays go to Task.from_samples, batches to tasks.from_batches",
            )
        return "the table", table
    path = Path(table)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidSpec(
            required=f"a table must be a file of kind {' or '.join(SUFFIXES)}",
            got=path.name,
            why="other kinds cannot be read",
            remedy="write it as csv, or pass a pandas DataFrame",
        )
    if not path.is_file():
        raise InvalidSpec(
            required="the table must exist", got=f"no file {path}", why="it holds the trials", remedy="check the path"
        )
    return str(path), _read(path)


def _read(path: Path) -> Any:
    """A file as a pandas frame, its numbers as they stand there."""
    import pandas  # xarray brings it

    try:
        if path.suffix.lower() == ".csv":
            # As words: some versions' own reader of numbers is off in the last digit.
            return pandas.read_csv(path, dtype=str, skipinitialspace=True)
        if find_spec("pyarrow") is None:
            raise InvalidSpec(
                required="pyarrow must be installed to read .parquet files",
                got="no such package",
                why="it is part of the tables extra",
                remedy="pip install 'learncast[tables]', or write the table as .csv",
            )
        return pandas.read_parquet(path, engine="pyarrow")
    except pandas.errors.EmptyDataError as error:
        raise InvalidSpec(
            required=f"{path} must have a header and a row for every step of every trial",
            got="an empty file",
            why="there is nothing to estimate from",
            remedy="write the trials into it",
        ) from error
    except (OSError, UnicodeDecodeError, pandas.errors.ParserError, _arrow_error()) as error:
        raise InvalidSpec(
            required=f"{path} must be a table",
            got=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            why="it is damaged or of another kind",
            remedy="write it again",
        ) from error


def _arrow_error() -> type[Exception]:
    if find_spec("pyarrow") is None:
        return OSError
    from pyarrow.lib import ArrowException

    found: type[Exception] = ArrowException
    return found


def _columns(frame: Any, named: Sequence[str] | str | None, start: str, source: str) -> list[str]:
    known = [str(column) for column in frame.columns]
    if named is None:
        found = [column for column in known if column.lower().startswith(start)]
        if not found:
            raise InvalidSpec(
                required=f"{source} must have columns whose names start with {start!r}",
                got=f"columns {', '.join(known) or 'none'}",
                why=f"they are the {start} channels unless {start}s names others",
                remedy=f"rename them, or give {start}s",
            )
        return found
    chosen = [named] if isinstance(named, str) else list(named)
    if not chosen:
        raise InvalidSpec(
            required=f"{start}s must name at least one column",
            got="none",
            why="a task has inputs and targets",
            remedy=f"name the {start} columns, or leave {start}s out",
        )
    for column in chosen:
        _present(frame, column, source)
    return chosen


def _present(frame: Any, column: str, source: str) -> None:
    known = tuple(str(known) for known in frame.columns)
    if known.count(column) != 1:
        raise InvalidSpec(
            required=f"{source} must have one column {column!r}",
            got=f"columns {', '.join(known) or 'none'}",
            why="it is read as part of the task",
            remedy=suggestion(column, known) or "name the column as it stands in the header",
        )


def _no_overlap(source: str, columns: list[str]) -> None:
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidSpec(
                required=f"{source}: trial, step, inputs and targets must be different columns",
                got=f"{column!r} named twice",
                why="each column has one meaning",
                remedy="name the input and target columns with inputs and targets",
            )


def _layout(frame: Any, trial: str, step: str, source: str) -> tuple[Any, list[Any], int]:
    """Row numbers sorted by trial and step, the trials' names in order of appearance, and steps in a trial."""
    times = _numbers(frame, step, source)
    labels = frame[trial]
    if bool(labels.isna().any()):
        raise _missing(source, trial, f"row {int(np.argmax(labels.isna().to_numpy())) + 1}")
    numbered: dict[Any, int] = {}
    index = np.array([numbered.setdefault(label, len(numbered)) for label in labels.tolist()])
    names = list(numbered)
    order = np.lexsort((times, index))
    counts = np.bincount(index)
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    for k, (begin, steps) in enumerate(zip(firsts, counts, strict=True)):
        own = times[order[begin : begin + steps]]
        _check_steps(own, names[k], step, source)
        if steps != counts[0] or own[0] != times[order[0]]:
            raise InvalidSpec(
                required=f"{source}: every trial must have the steps of trial {names[0]!r}, {counts[0]} from "
                f"{times[order[0]]:g}",
                got=f"trial {names[k]!r} with {steps} from {own[0]:g}",
                why="statistics over time need the same steps in every trial",
                remedy="pad or cut the trials to one length",
            )
    return order, names, int(counts[0])


def _check_steps(own: FloatArray, name: Any, step: str, source: str) -> None:
    """Refuse a trial whose sorted steps do not follow one another by 1."""
    gaps = np.diff(own)
    if (gaps == 1).all():
        return
    k = int(np.argmax(gaps != 1))
    twice = gaps[k] == 0
    raise InvalidSpec(
        required=f"{source}: the steps of trial {name!r} must follow one another by 1",
        got=f"{step} {own[k]:g} twice" if twice else f"{step} {own[k]:g} and then {own[k + 1]:g}",
        why="one row is one step of one trial" if twice else "a missing step would shift all later ones",
        remedy="remove the duplicate row" if twice else "add the missing rows, or number the steps 0, 1, 2, ...",
    )


def _numbers(frame: Any, column: str, source: str) -> FloatArray:
    """A column as finite numbers."""
    found = _floats(frame[column])
    bad = ~np.isfinite(found)
    if bad.any():
        k = int(np.argmax(bad))
        raise _missing(source, column, f"row {k + 1}", frame[column].iloc[k])
    return found


def _floats(column: Any) -> FloatArray:
    """A column as numbers, nan for what is none."""
    return np.array([_float(value) for value in column.tolist()], dtype=float)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _values(frame: Any, columns: list[str], rows: Any, length: int, names: list[Any], source: str) -> FloatArray:
    """Some columns of the rows in order, (trials, length, columns)."""
    found = np.empty((len(rows) // length, length, len(columns)))
    for k, column in enumerate(columns):
        chosen = frame[column].iloc[rows]
        numbers = _floats(chosen)
        bad = ~np.isfinite(numbers)
        if bad.any():
            j = int(np.argmax(bad))
            raise _missing(source, column, f"trial {names[j // length]!r}, row {int(rows[j]) + 1}", chosen.iloc[j])
        found[:, :, k] = numbers.reshape(-1, length)
    return found


def _missing(source: str, column: str, where: str, value: Any = None) -> InvalidSpec:
    empty = value is None or value != value
    return InvalidSpec(
        required=f"{source}: column {column!r} must hold a finite number"
        if value is not None
        else f"{source}: column {column!r} must name a trial",
        got=f"{'nothing' if empty else repr(value)} in {where}",
        why="one gap would spread to every statistic",
        remedy="fill it, or leave the trial out",
    )
