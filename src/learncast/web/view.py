"""A view: the charts, numbers and notes that one part of a panel shows for one state."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast.display import bracketed_interval, format_count, format_number, plain
from learncast.results import Steps
from learncast.theory.assumptions import Trust
from learncast.web.chart import Chart, Overlay, Trace

#: Frames of an animation, and positions of the page's time slider.
FRAMES = 201


#: Ends of a 95% interval, if there is one.
Ends = tuple[float, float] | None


@dataclass(frozen=True)
class Note:
    """A sentence beside the charts."""

    text: str
    tone: Literal["plain", "warning", "error"] = "plain"


@dataclass(frozen=True)
class Reading:
    """One labelled number.

    Attributes
    ----------
    label, unit : str
    value : float
        Infinite for never, nan for unknown.
    text : str
        The number as the page shows it.
    frames : tuple of str, optional
        The text at each frame of the view's clock.
    group : str
        Heading under which the page shows the reading with others.
    shown : bool
        Whether the page shows it; otherwise it is only in the table of numbers.
    """

    label: str
    value: float
    unit: str
    text: str
    frames: tuple[str, ...] | None = None
    group: str = ""
    shown: bool = True

    @classmethod
    def steps(cls, label: str, value: float, interval: Ends = None, group: str = "") -> Self:
        """Make a reading of descent steps, with their interval if there is one."""
        return cls(label, value, "steps", format_count(value) + bracketed_interval(interval), group=group)

    @classmethod
    def counted(cls, label: str, steps: Steps, *, interval: bool = True, group: str = "") -> Self:
        """Make a reading of reported steps with their outcome: "never", "diverges" or "not within N" if not reached."""
        ends = bracketed_interval(steps.interval) if interval else ""
        return cls(label, steps.value, "steps", steps.count + ends, group=group)

    @classmethod
    def flow(cls, label: str, value: float, group: str = "") -> Self:
        """Make a reading of flow steps, with at least two digits."""
        return cls(f"{label} (flow)", value, "steps", format_number(value, 0 if value >= 100 else 2), group=group)


@dataclass(frozen=True)
class Clock:
    """Training times of a view's frames."""

    times: ArrayLike
    unit: str

    @classmethod
    def until(cls, last: float) -> Self:
        """Make a clock with evenly spaced frames from 0 to step `last`."""
        return cls(np.linspace(0.0, last, FRAMES), "steps")


@dataclass(frozen=True)
class Edge:
    """A connection in a diagram; `frames` holds its weight at each frame."""

    source: str
    target: str
    label: str
    weight: float
    frames: ArrayLike | None = None


#: Label, numbers and series of the bars of each task.
Strengths = tuple[tuple[str, ArrayLike, int], ...]


@dataclass(frozen=True)
class Diagram:
    """A small diagram of a network and its tasks.

    Attributes
    ----------
    caption : str
    layers : tuple of (name, units)
        Columns of the network from left to right; units are called ``name 0``, ``name 1``...
    edges : tuple of Edge
        Connections between units; one from a unit to itself is drawn as a loop.
    strengths : tuple of (label, numbers, series)
        Weight of each input in each task, drawn as bars.
    """

    caption: str
    layers: tuple[tuple[str, int], ...]
    edges: tuple[Edge, ...]
    strengths: Strengths = ()

    @classmethod
    def single_unit(cls, caption: str, weights: Iterable[tuple[float, ArrayLike | None]], strengths: Strengths) -> Self:
        """Draw one recurrent unit from its input weight, recurrence and output weight, each with its frames."""
        ends = (("input 0", "unit 0"), ("unit 0", "unit 0"), ("unit 0", "output 0"))
        names = ("input weight", "recurrence", "output weight")
        edges = tuple(Edge(*end, name, *weight) for end, name, weight in zip(ends, names, weights, strict=True))
        return cls(caption, (("input", 1), ("unit", 1), ("output", 1)), edges, strengths)


#: What to change on the page if a condition fails.
_ADVICE = {
    "stable_learning_rate": "Lower the learning rate.",
    "balanced_weights": "Choose balanced layers.",
    "aligned_start": "Choose other initial weights.",
}


@dataclass(frozen=True)
class View:
    """What one part of a panel shows for one state.

    Attributes
    ----------
    charts : tuple of Chart
    trust : Trust, optional
        How far the part can be trusted; a failed condition is a warning before the notes.
    readings : tuple of Reading
    notes : tuple of Note
    text : str
        A closing paragraph.
    answer : str
        The panel's answer in one or two sentences, descent steps first.
    presets : mapping
        Named values for the setting that the chart's points change.
    clock : Clock, optional
    diagram : Diagram, optional
    overlays : mapping
        Traces to add to charts of this or another part, by the chart's key.
    """

    charts: tuple[Chart, ...] = ()
    trust: Trust | None = None
    readings: tuple[Reading, ...] = ()
    notes: tuple[Note, ...] = ()
    text: str = ""
    answer: str = ""
    presets: Mapping[str, list[float]] = field(default_factory=dict)
    clock: Clock | None = None
    diagram: Diagram | None = None
    overlays: Mapping[str, Overlay] = field(default_factory=dict)

    @property
    def every_note(self) -> tuple[Note, ...]:
        """A warning for each binding condition that fails, and the notes."""
        failed = self.trust.failed if self.trust else ()
        texts = (f"Outside the theory: {a.failure} {_ADVICE.get(a.name, '')}".rstrip() for a in failed)
        return (*(Note(text, "warning") for text in texts), *self.notes)


def _validity(trust: Trust) -> dict[str, object]:
    """Return the class of a forecast, what it promises, and name, sizes, verdict and meaning of every condition."""
    rows = [
        (a.name.replace("_", " "), float(a.measured), a.allowed, a.holds,
         a.condition.requires if a.holds else a.condition.otherwise) for a in trust.assumptions
    ]  # fmt: skip
    return {"kind": trust.forecast_class, "sentence": trust.standing[1], "rows": rows}


def to_plain(value: object) -> object:
    """Convert a view or a part of it to values that JSON can hold.

    Numeric arrays become base64 of their bytes, which keeps every bit and is fast for large grids.
    """
    if isinstance(value, View):
        trust = {"validity": value.trust and _validity(value.trust), "notes": value.every_note}
        value = {key: part for key, part in vars(value).items() if key != "trust"} | trust
    return plain(value, _packed)


def _packed(array: NDArray[np.generic]) -> dict[str, str]:
    numbers = np.ascontiguousarray(array, dtype="<f8")
    data = base64.b64encode(numbers.tobytes()).decode("ascii")
    return {"dtype": "f8", "bdata": data, "shape": ", ".join(map(str, numbers.shape))}


def to_csv(views: Mapping[str, View]) -> str:
    """Write every number of a panel as CSV, one data point in each row.

    Comment lines before the header name the quantity and unit of each chart's columns. Numbers are written with all
    digits.

    Parameters
    ----------
    views : mapping
        View of each part of the panel.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for part, view in views.items():
        for chart in view.charts:
            axes = {"x": chart.x, "y": chart.y, "z": chart.z}
            units = "; ".join(f"{name} = {axis.label} ({axis.unit})" for name, axis in axes.items() if axis)
            text.write(f"# {part}, {chart.key}: {units}\n")
        for reading in view.readings:
            text.write(f"# {part}: {reading.label} = {reading.value!r} ({reading.unit})\n")
    writer.writerow(("part", "chart", "trace", "x", "y", "z"))
    for part, view in views.items():
        traces = [(chart.key, trace) for chart in view.charts for trace in chart.traces]
        traces += [(key, trace) for key, overlay in view.overlays.items() for trace in overlay.traces]
        for key, trace in traces:
            writer.writerows((part, key, trace.name, *row) for row in _rows(trace))
    return text.getvalue()


def _rows(trace: Trace) -> Iterator[tuple[str, str, str]]:
    x, y = _cells(trace.x), _cells(trace.y)
    if trace.kind == "heat":
        x, y = x * len(y), [value for value in y for _ in x]
    z = [""] * len(x) if trace.z is None else _cells(trace.z)
    return zip(x, y, z, strict=True)


def _cells(values: ArrayLike) -> list[str]:
    return [value if isinstance(value, str) else repr(value) for value in np.asarray(values).ravel().tolist()]
