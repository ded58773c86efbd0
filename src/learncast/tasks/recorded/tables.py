"""Tasks from long tables: one row for every step of every trial."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, brief
from learncast._core.limits import allowed, check_bytes, file_size, listed, readable
from learncast._core.packages import package
from learncast._core.validation import FloatArray, one_of
from learncast.tasks.task import Task

#: Kinds of table that can be read.
SUFFIXES = (".csv", ".parquet")
#: Bytes that one cell takes while a table is read.
CELL = 80


def from_table(
    table: str | os.PathLike[str] | Any,
    *,
    trial: str = "trial",
    step: str = "step",
    inputs: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    labels: str | None = None,
    classes: int | Sequence[Any] | None = None,
    mask: str | None = None,
    at: str = "end",
    name: str | None = None,
    centre: bool = False,
    scale: str = "none",
    most_bytes: int | None = None,
) -> Task:
    """Estimate a task from a long table of recorded trials.

    Parameters
    ----------
    table : path or DataFrame
        A .csv or .parquet file, or the frame itself: one row for every trial and step, in any order. Named levels of
        a frame's index count as columns.
    trial, step : str
        Columns that say which trial (a number or a word) and which step (a number; steps of a trial must follow one
        another by 1, and all trials must begin with the same; they may end sooner or later).
    inputs, targets : str or sequence of str, optional
        Columns of the input and target channels, in order; by default those whose names start with "input" and with
        "target".
    labels : str, optional
        Column of class labels (whole numbers or words), which become one-hot targets, instead of `targets`; the
        column "labels" by default, where there are no target columns.
    classes, mask
        As in `Task.from_samples`; `mask` is the column that holds 1 where a target counts and 0 where it does not: at
        the end in each trial's last row, for trials that are left out.
    at : {"end", "every_step"}
        When the target is asked for. At the end it is read from each trial's last step, and may be empty before.
    name : str, optional
        What to call it; the file's name by default.
    centre, scale
        As in `Task.from_samples`, nothing by default.
    most_bytes : int, optional
        Most memory that a file's rows and columns may take; 2 GiB by default.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> import pandas as pd
    >>> rows = [(trial, step, step + trial, float(step == 2)) for trial in range(4) for step in range(3)]
    >>> table = pd.DataFrame(rows, columns=["trial", "step", "x", "y"])
    >>> lc.tasks.from_table(table, inputs="x", targets="y", name="a table")
    <Task 'a table': 3 steps, 1 input, 1 output at the end; estimated from 4 trials>
    """
    one_of("at", at, ("end", "every_step"))
    source, frame = _frame(table, most_bytes)
    # An index with names is columns that were set aside.
    levels = [level for level in frame.index.names if level is not None and level not in frame.columns]
    frame = frame.reset_index(levels) if levels else frame
    x_names = _columns(frame, inputs, "input", source)
    if labels is None and targets is None and "labels" in frame.columns:
        labels = None if any(str(column).lower().startswith("target") for column in frame.columns) else "labels"
    y_names = _columns(frame, targets, "target", source) if labels is None or targets is not None else [labels]
    if labels is not None and targets is not None:
        raise InvalidSpec(
            "a table's targets must be either labels or channels, got both targets and labels. Leave one of them out."
        )
    named = [trial, step, *([labels] if labels else []), *([mask] if mask else [])]
    for column in named:
        _present(frame, column, source)
    _no_overlap(source, [*named, *x_names, *([] if labels else y_names)])
    if len(frame) == 0:
        raise InvalidSpec(f"{source} must have a row for every step of every trial, got no row below its header.")
    rows = _Rows.of(frame, trial, step, source)
    if len(rows.names) < 2:
        raise InvalidSpec(
            f"{source} must hold at least two trials, got one, {brief(rows.names[0])} in column {trial!r}."
        )
    asked = rows if at == "every_step" else rows.last
    every = np.ones(asked.padded, dtype=bool)
    counts = None if mask is None else asked.values([mask], every)[:, :, 0]
    live = every if counts is None else np.asarray(counts != 0)
    kept = np.broadcast_to(live[:, :1] if at == "end" else True, rows.padded)
    y = asked.values(y_names, live) if labels is None else asked.words(labels, live)
    default = Path(source).stem if isinstance(table, str | os.PathLike) else "recorded"
    return Task.from_samples(
        rows.values(x_names, kept),
        y[:, 0] if at == "end" else y,
        name=name or default,
        centre=centre,
        scale=scale,
        mask=counts[:, 0] if at == "end" and counts is not None else counts,
        lengths=rows.lengths,
        labels=labels is not None,
        classes=classes,
    )


def _frame(table: Any, most_bytes: int | None) -> tuple[str, Any]:
    """What to call the table, and the table as a pandas frame."""
    if not isinstance(table, str | os.PathLike):
        if hasattr(table, "columns") and hasattr(table, "to_pandas"):  # of polars or arrow
            package("pyarrow", "to take tables of other libraries", extra="tables")
            table = table.to_pandas()
        if not (hasattr(table, "columns") and hasattr(table, "reset_index")):
            raise InvalidSpec(f"a table must be a path or a pandas DataFrame, got {type(table).__name__}.")
        return "the table", table
    path = Path(table)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidSpec(
            f"a table must be a file of kind {' or '.join(SUFFIXES)}, got {path.name}. Write it as csv, or "
            "pass a pandas DataFrame."
        )
    check_bytes(f"{path}: the table", file_size(path, "the table"), most_bytes)
    return str(path), _read(path, allowed(most_bytes))


def _read(path: Path, most_bytes: int) -> Any:
    """A file as a pandas frame, its numbers as they stand there."""
    import pandas  # xarray brings it

    # As words: some versions' own reader of numbers is off in the last digit.
    read = partial(pandas.read_csv, dtype=str, skipinitialspace=True)
    if path.suffix.lower() != ".csv":
        package("pyarrow", "to read .parquet files", extra="tables")
        read = partial(pandas.read_parquet, engine="pyarrow")
    with readable(path, kind="a table"):
        rows, columns = _counted(path) if path.suffix.lower() == ".csv" else _stated(path)
        taken = rows * columns * CELL + 8 * columns**2  # the covariances of its channels
        check_bytes(f"{path}: a table of {columns:,} columns and {rows:,} rows", taken, most_bytes)
        try:
            return read(path)
        except pandas.errors.EmptyDataError as error:
            raise InvalidSpec(
                f"{path} must have a header and a row for every step of every trial, got an empty file."
            ) from error


def _counted(path: Path) -> tuple[int, int]:
    """Rows and columns that a csv file can have at most, by its line ends and its commas."""
    columns, rows, here = 1, 1, 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            lines = block.replace(b"\r", b"\n").split(b"\n")
            counts = [line.count(b",") for line in lines]
            counts[0] += here
            columns, rows, here = max(columns, 1 + max(counts)), rows + len(lines) - 1, counts[-1]
    return rows, columns


def _stated(path: Path) -> tuple[int, int]:
    """Rows and columns of a Parquet file, as its footer says."""
    from pyarrow.parquet import read_metadata

    footer = read_metadata(path)
    return footer.num_rows, footer.num_columns


def _columns(frame: Any, named: Sequence[str] | str | None, start: str, source: str) -> list[str]:
    known = [str(column) for column in frame.columns]
    if named is None:
        found = [column for column in known if column.lower().startswith(start)]
        if not found:
            raise InvalidSpec(
                f"{source} must have columns whose names start with {start!r}, got columns {listed(known)}."
            )
        return found
    chosen = [named] if isinstance(named, str) else list(named)
    if not chosen:
        raise InvalidSpec(
            f"{start}s must name at least one column, got none. Name the {start} columns, or leave {start}s out."
        )
    for column in dict.fromkeys(chosen):
        _present(frame, column, source)
    return chosen


def _present(frame: Any, column: str, source: str) -> None:
    known = tuple(str(known) for known in frame.columns)
    if known.count(column) != 1:
        raise InvalidSpec(f"{source} must have one column {column!r}, got columns {listed(known)}.")


def _no_overlap(source: str, columns: list[str]) -> None:
    for column, times in Counter(columns).items():
        if times > 1:
            raise InvalidSpec(
                f"{source}: trial, step, inputs and targets must be different columns, got {column!r} named twice."
            )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a table sorted by trial and step, and where they lie in an array (trials, steps).

    Attributes
    ----------
    order : (rows,)
        Row numbers, trial after trial and step after step.
    names : list
        The trials' names in order of appearance.
    lengths : (trials,)
    """

    frame: Any
    source: str
    order: NDArray[np.int64]
    names: list[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, frame: Any, trial: str, step: str, source: str) -> _Rows:
        times, labels = _floats(frame[step]), frame[trial]
        if not np.isfinite(times).all():
            k = int(np.argmin(np.isfinite(times)))
            raise _missing(source, step, f"row {k + 1}", frame[step].iloc[k])
        if bool(labels.isna().any()):
            raise _missing(source, trial, f"row {int(np.argmax(labels.isna().to_numpy())) + 1}")
        index, names = labels.factorize()
        made = cls(frame, source, np.lexsort((times, index)), names.tolist(), np.bincount(index))
        for name, own in zip(made.names, np.split(times[made.order], made._ends[:-1]), strict=True):
            _check_steps(own, name, step, source)
            if own[0] != times[made.order[0]]:
                raise InvalidSpec(
                    f"{source}: every trial must begin with the step of trial {brief(made.names[0])}, "
                    f"{times[made.order[0]]:g}, got trial {brief(name)} with {own[0]:g}. Add the missing rows, or "
                    "number each trial's steps 0, 1, 2, ..."
                )
        return made

    @property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths)

    @property
    def last(self) -> _Rows:
        """The last row of every trial."""
        return replace(self, order=self.order[self._ends - 1], lengths=np.ones_like(self.lengths))

    @property
    def padded(self) -> tuple[int, int]:
        """Trials, and steps of the longest."""
        return len(self.names), int(self.lengths.max())

    @property
    def _place(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Trial and step of every row."""
        trial = np.repeat(np.arange(len(self.names)), self.lengths)
        return trial, np.arange(len(self.order)) - np.repeat(self._ends - self.lengths, self.lengths)

    def values(self, columns: list[str], live: Any) -> FloatArray:
        """Some columns as numbers, (trials, steps, columns), zeros after a trial's end and where they are not live."""
        place = self._place
        found = np.zeros((*self.padded, len(columns)))
        for k, column in enumerate(columns):
            numbers = _floats(self.frame[column].iloc[self.order])
            bad = ~np.isfinite(numbers) & live[place]
            if bad.any():
                raise self._missing(column, int(np.argmax(bad)))
            found[(*place, k)] = np.where(live[place], numbers, 0.0)
        return found

    def words(self, column: str, live: Any) -> Any:
        """A column of labels, (trials, steps): whole numbers where all are, words otherwise."""
        place, chosen = self._place, self.frame[column].iloc[self.order]
        empty = chosen.isna().to_numpy() & live[place]
        if empty.any():
            raise self._missing(column, int(np.argmax(empty)))
        given = [value for value, kept in zip(chosen.tolist(), live[place], strict=True) if kept]
        numbers = [_float(value) for value in given]
        whole = all(number == round(number) for number in numbers if number == number) and not np.isnan(numbers).any()
        found = np.zeros(self.padded, dtype=np.int64) if whole else np.full(self.padded, "", dtype=object)
        found[tuple(part[live[place]] for part in place)] = [int(n) for n in numbers] if whole else [*map(str, given)]
        return found if whole else found.astype(str)

    def _missing(self, column: str, k: int) -> InvalidSpec:
        row = int(self.order[k])
        where = f"trial {brief(self.names[self._place[0][k]])}, row {row + 1}"
        return _missing(self.source, column, where, self.frame[column].iloc[row])


def _check_steps(own: FloatArray, name: Any, step: str, source: str) -> None:
    """Refuse a trial whose sorted steps do not follow one another by 1."""
    gaps = np.diff(own)
    if (gaps == 1).all():
        return
    k = int(np.argmax(gaps != 1))
    twice = gaps[k] == 0
    raise InvalidSpec(
        required=f"{source}: the steps of trial {brief(name)} must follow one another by 1",
        got=f"{step} {own[k]:g} twice" if twice else f"{step} {own[k]:g} and then {own[k + 1]:g}",
        why="one row is one step of one trial" if twice else "a missing step would shift all later ones",
        remedy="remove the duplicate row" if twice else "add the missing rows, or number the steps 0, 1, 2, ...",
    )


def _floats(column: Any) -> FloatArray:
    """A column as numbers, nan for what is none."""
    return np.array([_float(value) for value in column.tolist()], dtype=float)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _missing(source: str, column: str, where: str, value: Any = None) -> InvalidSpec:
    empty = value is None or value != value
    return InvalidSpec(
        required=f"{source}: column {column!r} must hold a finite number"
        if value is not None
        else f"{source}: column {column!r} must name a trial",
        got=f"{'nothing' if empty else brief(value)} in {where}",
        why="one gap would spread to every statistic",
        remedy="fill it, or leave the trial out",
    )
