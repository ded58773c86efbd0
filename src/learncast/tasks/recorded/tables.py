"""Tasks from long tables, with one row for every step of every trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, brief
from learncast._core.isolation import read_apart
from learncast._core.limits import allowed, check_bytes, file_size, listed, natural_key
from learncast._core.packages import package
from learncast._core.validation import FloatArray, one_of, positive
from learncast.tasks.recorded.masked import Mask
from learncast.tasks.task import Task

#: Share of an interval by which times may deviate from even spacing.
UNEVEN = 0.02
#: Share of a bin by which times may lie before it because of round-off.
ROUND_OFF = 1e-6
#: Kinds of table files.
SUFFIXES = (".csv", ".tsv", ".parquet")


def from_table(
    table: str | os.PathLike[str] | object,
    *,
    trial: str = "trial",
    step: str | None = None,
    channel: str | None = None,
    value: str | None = None,
    inputs: Sequence[str] | str | None = None,
    targets: Sequence[str] | str | None = None,
    labels: str | bool | None = None,
    classes: int | Sequence[object] | None = None,
    mask: str | None = None,
    at: str = "end",
    name: str | None = None,
    centre: bool = False,
    scale: str = "none",
    fill: str | None = None,
    bias: bool = False,
    bin_width: float | None = None,
    most_bytes: int | None = None,
) -> Task:
    """Estimate a task from a long table of recorded trials.

    Parameters
    ----------
    table : path or DataFrame
        A .csv or .parquet file, or a data frame, with one row for every trial and step in any order. Named levels of a
        frame's index are used as columns.
    trial, step : str
        Columns with the trial (a number or a string) and the step (a number; "step" or "time" by default). Steps of a
        trial must increase by 1, or by a constant number of seconds, and all trials must begin with the same step;
        their lengths may differ.
    channel, value : str, optional
        Columns of a tidy table, with one row for every trial, step and channel: the name of the channel, which then
        serves as a column, and its value. "channel" and "value" by default if there are such columns.
    inputs, targets : str or sequence of str, optional
        Columns of the input and target channels, in order; by default those whose names start with "input" and with
        "target".
    labels : str or bool, optional
        Column of class labels (integers or strings), which become one-hot targets, instead of `targets`; the column
        "labels" by default if there are no target columns. A single target column of integers or words is read as
        by `Task.from_samples`: `labels=True` if they are classes, `labels=False` if they are numbers.
    classes
        See `Task.from_samples`.
    mask : str, optional
        Column with 1 for targets that count and 0 for others. With targets at the end, the last row of a trial decides
        whether the trial is used.
    at : {"end", "every_step"}
        When there is a target. A target at the end is read from the last step of each trial.
    name : str, optional
        Name of the task; the file's name by default.
    centre, scale, fill, bias
        See `Task.from_samples`.
    bin_width : float, optional
        Length of a step in units of the column `step`, e.g. seconds: rows of a trial are averaged over it, so they may
        be unevenly spaced, and channels of a tidy table may have different sampling rates. Every bin needs a row.
        Labels, masks and targets at the end are those of the last row.
    most_bytes : int, optional
        Most memory for the rows and columns of a file; 2 GiB by default.

    Returns
    -------
    Task
        Statistics of the trials.

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
    levels = [level for level in frame.index.names if level is not None and level not in frame.columns]
    frame = frame.reset_index(levels) if levels else frame
    step = step or ("time" if "step" not in frame.columns and "time" in frame.columns else "step")
    tidy = bool(channel or value or {"channel", "value"} <= set(map(str, frame.columns)))
    if bin_width is not None:
        read_out = _starting_with(frame, "target") if targets is None else targets
        means = [value or "value"] if tidy else _columns(frame, inputs, "input", source)
        means += [] if at == "end" or labels else ([read_out] if isinstance(read_out, str) else list(read_out))
        keys = [trial, step, *([channel or "channel"] if tidy else [])]
        _check_columns(frame, [*keys, *means], source)
        if frame.duplicated(keys).any():
            raise InvalidSpec(f"{source} must have one row for every {', '.join(keys)}, got two.", field=keys[-1])
        frame = _binned(frame, keys, means, positive("bin_width", bin_width))
    if tidy:
        frame, channels = _wide(frame, (trial, step), channel or "channel", value or "value", source)
        named = _starting_with(frame, "target") if targets is None and labels is None else targets or ()
        used = {*([named] if isinstance(named, str) else named), labels, mask}
        inputs = [name for name in channels if name not in used] if inputs is None else inputs
    if isinstance(labels, str) and targets is not None:
        raise InvalidSpec(f"{source}: give either targets or labels, not both.", field="labels")
    if labels is None and targets is None and "labels" in frame.columns and not _starting_with(frame, "target"):
        labels = "labels"
    x_names = _columns(frame, inputs, "input", source)
    y_names = [labels] if isinstance(labels, str) else _columns(frame, targets, "target", source)
    _check_columns(frame, [trial, step, *([mask] if mask else []), *x_names, *y_names], source)
    rows = _TrialRows.of(frame, trial, step, source)
    read = rows if at == "every_step" else rows.last
    every = np.ones(read.size, dtype=bool)
    counts = None if mask is None else read.numbers([mask], every)[:, :, 0]
    live = every if counts is None else counts != 0
    gaps = fill is not None
    undecided = labels is None and len(y_names) == 1 and read.may_be_labels(y_names[0])
    y = read.labels(y_names[0], live) if labels or undecided else read.numbers(y_names, live, gaps)
    default = Path(source).stem if isinstance(table, str | os.PathLike) else "recorded"
    return Task.from_samples(
        rows.numbers(x_names, np.broadcast_to(live if at == "end" else True, rows.size), gaps),
        y[:, 0] if at == "end" else y,
        name=name or default,
        centre=centre,
        scale=scale,
        mask=counts[:, 0] if at == "end" and counts is not None else counts,
        lengths=rows.lengths,
        labels=None if undecided else bool(labels),
        classes=classes,
        fill=fill,
        bias=bias,
    )


def _binned(frame: Any, keys: list[str], means: list[str], width: float) -> Any:
    """Return a table whose steps (the second key) are bins: means of some columns, the last value of the others."""
    times = _floats(frame[keys[1]])
    order = np.argsort(times, kind="stable")
    bins = np.floor((times - np.nanmin(times)) / width + ROUND_OFF)
    rows = frame.assign(**{keys[1]: bins}).iloc[order]
    number = rows.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    size, last = np.bincount(number), np.zeros(int(number.max()) + 1, dtype=np.int64)
    np.maximum.at(last, number, np.arange(len(rows)))
    # A mean with a missing value is missing.
    values = {name: np.bincount(number, weights=_floats(rows[name])) / size for name in means}
    return rows.iloc[last].assign(**values)


def _wide(frame: Any, rows: tuple[str, str], channel: str, value: str, source: str) -> tuple[Any, list[str]]:
    """Return a tidy table with one column for every channel, and the names of these columns."""
    _check_columns(frame, [*rows, channel, value], source)
    others = [column for column in frame.columns if column not in (*rows, channel, value)]
    if frame.duplicated([*rows, channel]).any():
        raise InvalidSpec(f"{source} must have one row for every trial, step and channel, got two.", field=channel)
    wide = frame.pivot(index=list(rows), columns=channel, values=value)
    wide.columns = [str(name) for name in wide.columns]
    channels = list(wide.columns)
    if others:
        wide = wide.join(frame.groupby(list(rows))[others].first())
    return wide.reset_index(), channels


def column_of_trials(path: Path, column: str, trial: str, most_bytes: int | None) -> list[object]:
    """Return the value of a column that is the same in all rows of a trial, in the order of the trials."""
    source, frame = _frame(path, most_bytes)
    _check_columns(frame, [trial, column], source)
    index, names = _in_order(*frame[trial].factorize())
    values = frame[column].astype(str).to_numpy()
    found: dict[int, object] = {}
    for place, value in zip(index.tolist(), values.tolist(), strict=True):
        if found.setdefault(place, value) != value:
            got = f"{brief(value)} and {brief(found[place])} in trial {brief(names[place])}"
            raise InvalidSpec(f"{source}: {column!r} must be the same in all rows of a trial, got {got}.", field=column)
    return [found[k] for k in range(len(names))]


def _frame(table: object, most_bytes: int | None) -> tuple[str, Any]:
    """Name of the table in messages, and the table as a pandas frame."""
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if path.suffix.lower() not in SUFFIXES:
            raise InvalidSpec(f"table must be a {' or '.join(SUFFIXES)} file, got {path.name}.", field="table")
        check_bytes(f"{path}: the table", file_size(path, "the table"), most_bytes)
        return str(path), _read(path, allowed(most_bytes))
    if hasattr(table, "columns") and hasattr(table, "to_pandas"):  # polars or arrow
        package("pyarrow", "to read tables of other libraries", extra="tables")
        table = table.to_pandas()
    if not (hasattr(table, "columns") and hasattr(table, "reset_index")):
        raise InvalidSpec(f"table must be a path or a pandas DataFrame, got {type(table).__name__}.", field="table")
    return "the table", table


def _read(path: Path, most_bytes: int) -> object:
    """Read a file as a pandas frame."""
    import pandas

    if path.suffix.lower() == ".parquet":
        package("pyarrow", "to read .parquet files", extra="tables")
    columns = read_apart(read_columns, path, kind="a table", most_bytes=most_bytes)
    if not columns:
        raise InvalidSpec(f"{path} must have a header and rows, got an empty file.", field="table")
    width, rows = len(columns), len(columns[0][1])
    needed = 8 * width * (rows + width)  # numbers, and covariances of the channels
    check_bytes(f"{path}: a table of {width:,} columns and {rows:,} rows", needed, most_bytes)
    frame = pandas.DataFrame({k: values for k, (_, values) in enumerate(columns)})
    frame.columns = pandas.Index([name for name, _ in columns])
    return frame


def read_columns(path: Path) -> list[tuple[str, NDArray[Any]]]:
    """Names and values of the columns of a file; values that are neither numbers nor strings become strings."""
    import pandas

    if path.suffix.lower() != ".parquet":
        try:
            # Cells stay strings: the number parser of some pandas versions is wrong in the last digit.
            tabs = "\t" if path.suffix.lower() == ".tsv" else ","
            frame = pandas.read_csv(path, dtype=str, skipinitialspace=True, sep=tabs)
        except pandas.errors.EmptyDataError:
            return []
    else:
        frame = pandas.read_parquet(path, engine="pyarrow")
        frame = frame.reset_index([level for level in frame.index.names if level is not None])
    return [(str(name), _plain(frame.iloc[:, k].to_numpy())) for k, name in enumerate(frame.columns)]


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "biuf":
        return values
    known = (str, int, float, bool, type(None))
    return np.array([value if isinstance(value, known) else str(value) for value in values.tolist()], dtype=object)


def _starting_with(frame: Any, start: str) -> list[str]:
    return [str(column) for column in frame.columns if str(column).lower().startswith(start)]


def _columns(frame: Any, names: Sequence[str] | str | None, start: str, source: str) -> list[str]:
    """Columns that are named, or whose names start with a word."""
    names = [names] if isinstance(names, str) else names
    chosen = _starting_with(frame, start) if names is None else list(names)
    if not chosen:
        named = f"columns named by {start}s or by names that start with {start!r}"
        raise InvalidSpec(f"{source} must have {named}, got {listed(frame.columns)}.", field=f"{start}s")
    return chosen


def _check_columns(frame: Any, names: list[str], source: str) -> None:
    """Require that the frame has each column once, that none is named twice, and that there are rows."""
    known = [str(column) for column in frame.columns]
    for column in names:
        if known.count(column) != 1:
            remedy = f" Name another with {column}=." if column in ("trial", "step", "channel", "value") else ""
            got = f"{listed(known)}.{remedy}"
            raise InvalidSpec(f"{source} must have one column {column!r}, got columns {got}", field=column)
        if names.count(column) > 1:
            raise InvalidSpec(f"{source}: column {column!r} must be named for one purpose only.", field=column)
    if len(frame) == 0:
        raise InvalidSpec(f"{source} must have a row for every step of every trial, got none.", field="table")


def _in_order(index: NDArray[np.int64], names: Any) -> tuple[NDArray[np.int64], list[object]]:
    """Trials of rows (-1 if unknown) and names in the order of the names, so that the order of rows does not matter."""
    known = names.tolist()
    order = sorted(range(len(known)), key=lambda k: natural_key(known[k]))
    place = np.append(np.argsort(order), -1)
    return place[index], [known[k] for k in order]


@dataclass(frozen=True, eq=False)
class _TrialRows:
    """Rows of a table and their places in an array (trials, steps).

    Attributes
    ----------
    place : two (rows,) arrays
        Trial and step of each row.
    rows : (rows,)
        Row numbers in the table, for messages.
    names : list
        Names of the trials, in order.
    lengths : (trials,)
        Number of rows of each trial.
    """

    frame: Any
    source: str
    place: tuple[NDArray[np.int64], NDArray[np.int64]]
    rows: NDArray[np.int64]
    names: list[object]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, frame: Any, trial: str, step: str, source: str) -> _TrialRows:
        times, rows = _floats(frame[step]), np.arange(len(frame))
        index, names = _in_order(*frame[trial].factorize())
        lengths = np.bincount(np.maximum(index, 0), minlength=len(names))
        made = cls(frame, source, (index, np.zeros_like(index)), rows, names, lengths)
        made._check_cells(step, ~np.isfinite(times))
        times = _as_steps(times, step, source)
        made._check_cells(trial, index < 0)
        if len(names) < 2:
            raise InvalidSpec(f"{source} must have at least two trials, got {brief(names[0])} only.", field=trial)
        order = np.lexsort((times, index))
        position = np.empty_like(rows)
        position[order] = rows - np.repeat(np.cumsum(lengths) - lengths, lengths)
        gaps = np.diff(times[order], prepend=0.0)[np.argsort(order)]
        wrong = np.where(position == 0, times != times[order[0]], gaps != 1)
        if wrong.any():
            k = order[np.argmax(wrong[order])]
            got = f"{times[k]:g} as step {position[k]} of trial {brief(names[index[k]])}"
            raise InvalidSpec(f"{source}: {step!r} must count the steps of a trial, got {got}.", field=step)
        return replace(made, place=(index, position))

    @property
    def last(self) -> _TrialRows:
        """The last row of every trial, as trials of one step."""
        trial, step = self.place
        last = step == self.lengths[trial] - 1
        place = trial[last], np.zeros_like(trial[last])
        return _TrialRows(self.frame[last], self.source, place, self.rows[last], self.names, np.ones_like(self.lengths))

    @property
    def size(self) -> tuple[int, int]:
        """Number of trials, and of steps of the longest."""
        return len(self.names), int(self.lengths.max())

    def numbers(self, columns: list[str], live: Mask, gaps: bool = False) -> FloatArray:
        """Columns of numbers, (trials, steps, columns), with zeros after a trial's end and in unused cells.

        Missing cells raise, or are NaN if `gaps` are allowed.
        """
        values = np.zeros((*self.size, len(columns)))
        for k, column in enumerate(columns):
            numbers = _floats(self.frame[column])
            if not gaps:
                self._check_cells(column, ~np.isfinite(numbers) & live[self.place])
            values[(*self.place, k)] = np.where(live[self.place], numbers, 0.0)
        return values

    def labels(self, column: str, live: Mask) -> NDArray[Any]:
        """A column of labels, (trials, steps): integers if all are, else strings."""
        cells, used = self.frame[column], live[self.place]
        self._check_cells(column, cells.isna().to_numpy() & used)
        given = cells[used].tolist()
        numbers = np.array([_float(value) for value in given])
        integers = bool((np.isfinite(numbers) & (numbers == np.round(numbers))).all())
        values = np.zeros(self.size, dtype=np.int64) if integers else np.full(self.size, "", dtype=object)
        values[tuple(part[used] for part in self.place)] = numbers if integers else [*map(str, given)]
        return values if integers else values.astype(str)

    def may_be_labels(self, column: str) -> bool:
        """Whether a column holds integers, as numbers or as text, or words only."""
        cells = self.frame[column]
        digits = (isinstance(cell, str) and cell.strip("+- ").isdigit() for cell in cells)
        return cells.dtype.kind in "iub" or all(digits) or all(map(_is_word, cells.dropna()))

    def _check_cells(self, column: str, bad: Mask) -> None:
        if bad.any():
            k = int(np.argmax(bad))
            place, value = self.place[0][k], self.frame[column].iloc[k]
            trial = self.names[place] if 0 <= place < len(self.names) else None
            got = f"{brief(value)} in row {self.rows[k] + 1}, trial {brief(trial)}"
            wanted = "must be a number" if _is_word(value) else "must not be missing or infinite"
            raise InvalidSpec(f"{self.source}: {column!r} {wanted}, got {got}.", field=column)


def _as_steps(times: FloatArray, step: str, source: str) -> FloatArray:
    """Return times in seconds as steps from 0; whole numbers are steps already."""
    if (times == np.round(times)).all():
        return times
    known = np.unique(times.round(9))
    width = float(np.median(np.diff(known)))
    steps = (times - known[0]) / width
    if np.abs(steps - np.round(steps)).max() > UNEVEN:
        raise InvalidSpec(f"{source}: {step!r} must be evenly spaced, got other intervals. Resample it.", field=step)
    return np.round(steps)


def _floats(column: Any) -> FloatArray:
    """A column as numbers, with nan for other cells."""
    return np.array([_float(value) for value in column.tolist()], dtype=float)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and np.isnan(_float(value))


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
