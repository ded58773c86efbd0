"""The numbers behind a room's pictures, as one table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from learncast.web.panel import Axis, Panel, Trace, View

COLUMNS = ("part", "panel", "trace", "x", "y", "z")


def csv_of(views: Mapping[str, View]) -> str:
    """Every number that a room shows, one to a row, as CSV.

    Lines that begin with # say before the header what each panel's columns measure, and in what unit. Numbers are
    written so that reading them gives the same bits back. A contour has no numbers of its own.

    Parameters
    ----------
    views : mapping
        From the name of a part to what it shows.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for part, view in views.items():
        for panel in view.panels:
            text.write(f"# {part}, {panel.key}: {_units(panel)}\n")
        for reading in view.readings:
            text.write(f"# {part}: {reading.label} = {reading.value!r} ({reading.unit})\n")
    writer.writerow(COLUMNS)
    for part, view in views.items():
        for panel in view.panels:
            for trace in panel.traces:
                writer.writerows((part, panel.key, trace.name, *row) for row in _rows(trace))
    return text.getvalue()


def _units(panel: Panel) -> str:
    axes: Iterable[tuple[str, Axis | None]] = (("x", panel.x), ("y", panel.y), ("z", panel.z))
    return "; ".join(f"{name} = {axis.label} ({axis.unit})" for name, axis in axes if axis is not None)


def _rows(trace: Trace) -> Iterator[tuple[str, str, str]]:
    """Cells of a trace, row by row of a heat."""
    x, y = _cells(trace.x), _cells(trace.y)
    if trace.kind == "heat":
        grid = np.asarray(trace.z)
        for across, row in zip(y, grid.tolist(), strict=True):
            for along, value in zip(x, row, strict=True):
                yield along, across, repr(value)
        return
    z = [""] * len(x) if trace.z is None else _cells(trace.z)
    yield from zip(x, y, z, strict=True)


def _cells(values: Any) -> list[str]:
    return [value if isinstance(value, str) else repr(value) for value in np.asarray(values).ravel().tolist()]
