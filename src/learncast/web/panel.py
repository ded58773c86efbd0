"""Pictures as plain data: what a panel shows, and nothing about how it is drawn."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast.results import FORECAST_CLASSES
from learncast.theory.assumptions import Assumption, exact

#: How a trace is drawn; colours and widths are the page's.
Kind = Literal["line", "steps", "points", "bars", "heat", "band", "contour"]
#: What a trace stands for, which is what decides its colour and dash.
Role = Literal["theory", "descent", "data", "target", "zero", "best", "pinned", "null", "threshold", "differs"]

#: Series with one meaning, and so one colour, in every room; modes come after them, in their order.
TARGET, FIRST, THIRD, MODES = 0, 1, 2, 3
#: Moments of a film: so many positions has the page's scrub bar.
MOMENTS = 201


@dataclass(frozen=True)
class Axis:
    """A labelled axis.

    Attributes
    ----------
    label, unit : str
        What it measures, and in what; a pure number has the unit ``1``.
    scale : {"linear", "log"}
    span : pair of float, optional
        Where it begins and ends, or what the ends of a colour scale stand for; by default where its traces do.
    clock : bool
        Whether it is the time that the view's clock tells: the page marks the moment on it.
    """

    label: str
    unit: str = "1"
    scale: Literal["linear", "log"] = "linear"
    span: tuple[float, float] | None = None
    clock: bool = False


@dataclass(frozen=True)
class Trace:
    """One thing to be drawn.

    Attributes
    ----------
    kind, role
        How it is drawn, and what it stands for.
    name : str
        What a legend calls it.
    x, y, z : array
        Positions; `z` (rows along y) for a heat. A bar's or a heat's `x` may be words. A band has `y` below and `z`
        above. A contour is where its panel's heat is zero, and has no numbers of its own. Values that are nan are left
        out.
    series : int
        Which of several alike: 0, 1, 2 ...
    legend : bool
        Whether a legend lists it; of several alike one is enough.
    film : array, optional
        What `z` (of a heat) or `y` is at each moment of the view's clock, moments first.
    """

    kind: Kind
    role: Role
    name: str
    x: ArrayLike = ()
    y: ArrayLike = ()
    z: ArrayLike | None = None
    series: int = 0
    legend: bool = True
    film: ArrayLike | None = None


@dataclass(frozen=True)
class Arrow:
    """A word at the edge of a picture about what lies beyond it."""

    x: float
    y: float
    towards: Literal["left", "right", "up", "down"]
    words: str


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes
    ----------
    key : str
        Its name within the room.
    title : str
    x, y : Axis
    traces : tuple of Trace
    z : Axis, optional
        What the colour of a heat measures.
    shades : tuple of (from, to, words, series)
        Stretches of x with a background, such as the stages of a curriculum.
    picks : pair of str, optional
        Keys of the state that a click on the panel sets to its x and y.
    grips : str, optional
        Key of the state (a list of numbers) that dragging the panel's points changes.
    main : bool
        Whether it is the picture of its room, which stays in sight.
    """

    key: str
    title: str
    x: Axis
    y: Axis
    traces: tuple[Trace, ...]
    z: Axis | None = None
    shades: tuple[tuple[float, float, str, int], ...] = ()
    picks: tuple[str, str] | None = None
    grips: str | None = None
    main: bool = False


@dataclass(frozen=True)
class Overlay:
    """What one part draws over the panel of another."""

    traces: tuple[Trace, ...] = ()
    arrows: tuple[Arrow, ...] = ()


@dataclass(frozen=True)
class Note:
    """A sentence beside the pictures; `tone` is how loudly it is said."""

    text: str
    tone: Literal["plain", "warning", "error"] = "plain"


@dataclass(frozen=True)
class Reading:
    """One number in words: what it is, its value as a person reads it, its unit.

    ``value`` is the number itself: inf is never, nan is unknown. ``film`` is what the words are at each moment.
    """

    label: str
    value: float
    unit: str
    words: str
    film: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Clock:
    """The moments of a view's films.

    Attributes
    ----------
    key : str
        Field of the state that says which moment is shown, as a share from 0 to 1 of them.
    times : (MOMENTS,)
    unit : str
    """

    key: str
    times: ArrayLike
    unit: str


@dataclass(frozen=True)
class Edge:
    """A connection of a drawn network; `film` is its weight at each moment."""

    source: str
    target: str
    label: str
    weight: float
    film: ArrayLike | None = None


@dataclass(frozen=True)
class Drawing:
    """A task and a network, small enough to stand beside the controls.

    Attributes
    ----------
    words : str
        What is drawn, for those who cannot see it.
    layers : tuple of (name, units)
        Columns of the network from left to right; units are named ``name 0``, ``name 1``...
    edges : tuple of Edge
        Between units; one from a unit to itself is a loop.
    strengths : tuple of (words, numbers, series)
        What each task asks of its inputs, as small bars.
    """

    words: str
    layers: tuple[tuple[str, int], ...]
    edges: tuple[Edge, ...]
    strengths: tuple[tuple[str, ArrayLike, int], ...] = ()


@dataclass(frozen=True)
class Validity:
    """How far a view may be trusted: the class of the answer, and what was measured.

    Attributes
    ----------
    kind : str
        exact, integrated, response, surrogate, outside or measured.
    sentence : str
        What that promises.
    rows : tuple of (assumption, measured, allowed, holds, sentence)
    """

    kind: str
    sentence: str
    rows: tuple[tuple[str, float, float, bool, str], ...] = ()


@dataclass(frozen=True)
class View:
    """What one part of a room shows for one state.

    Attributes
    ----------
    answer : str
        The room's question answered in one sentence, steps of descent first.
    overlays : mapping
        From the key of a panel, whichever part shows it, to what is drawn over it.
    """

    panels: tuple[Panel, ...]
    validity: Validity | None = None
    readings: tuple[Reading, ...] = ()
    notes: tuple[Note, ...] = ()
    words: str = ""
    extras: dict[str, Any] = field(default_factory=dict)
    answer: str = ""
    clock: Clock | None = None
    drawing: Drawing | None = None
    overlays: dict[str, Overlay] = field(default_factory=dict)


def validity_of(kind: str, assumptions: Iterable[Assumption] = ()) -> Validity:
    """The class of an answer with what it promises, and each condition as it was measured.

    Parameters
    ----------
    kind : str
        Class of the answer, a key of `learncast.results.FORECAST_CLASSES`. A forecast is outside the theory as soon
        as a binding condition fails; what was measured stays measured.
    assumptions : iterable of Assumption
        As a solution, curriculum or plan carries them.
    """
    measured = tuple(assumptions)
    promised = kind if kind == "measured" or exact(measured) else "outside"
    return Validity(promised, FORECAST_CLASSES[promised], tuple(map(_condition, measured)))


def _condition(a: Assumption) -> tuple[str, float, float, bool, str]:
    """A row of the validity: what the condition asks where it is met, and what follows where it is not."""
    said = a.condition.requires if a.holds else a.condition.otherwise
    return a.name.replace("_", " "), float(a.measured), a.allowed, a.holds, said


#: What to do on the page about a condition that fails; where there is nothing, it is only said.
_ADVICE = {
    "stable_learning_rate": "lower the learning rate",
    "balanced_weights": "choose balanced layers",
    "aligned_start": "choose other initial weights",
}


def warnings_of(assumptions: Iterable[Assumption]) -> tuple[Note, ...]:
    """A warning for each binding condition that fails: what was measured, what follows, and which control mends it."""
    found = []
    for a in assumptions:
        if a.condition.binding and not a.holds:
            text = f"{a.name.replace('_', ' ')} measures {a.measured:.3g}, more than the {a.allowed:g} allowed"
            text = f"Outside the theory, {text}: {a.condition.otherwise}"
            found.append(Note(f"{text}; {_ADVICE[a.name]}." if a.name in _ADVICE else f"{text}.", "warning"))
    return tuple(found)


def refusal(error: InvalidSpec) -> Note:
    """Why there is no answer to a legal setting; what to do about it in Python is left out."""
    why = getattr(error, "why", "")
    return Note(f"{error.required[:1].upper()}{error.required[1:]}, not {error.got}: {why}.", "warning")


_PARTS = (Panel, Trace, Axis, Arrow, Overlay, Note, Reading, Clock, Edge, Drawing, Validity, View)


def plain(value: Any) -> Any:
    """A view as JSON holds it: arrays of numbers as base64 of their bytes, nan and inf as words.

    Numbers in arrays keep every bit, and a grid of 120 x 120 takes no time to write.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:  # most of a view, and it is asked for often
        return value
    if isinstance(value, _PARTS):
        return {key: plain(item) for key, item in vars(value).items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
        packed = np.ascontiguousarray(value, dtype="<f8")
        data = base64.b64encode(packed.tobytes()).decode("ascii")
        return {"dtype": "f8", "bdata": data, "shape": ", ".join(map(str, packed.shape))}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


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
        drawn = [(panel.key, trace) for panel in view.panels for trace in panel.traces]
        drawn += [(key, trace) for key, over in view.overlays.items() for trace in over.traces]
        for key, trace in drawn:
            writer.writerows((part, key, trace.name, *row) for row in _rows(trace))
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
