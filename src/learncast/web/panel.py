"""Pictures as plain data: what a panel shows, and nothing about how it is drawn."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

#: How a trace is drawn; colours and widths are the page's.
Kind = Literal["line", "steps", "points", "bars", "heat", "band", "contour"]
#: What a trace stands for, which is what decides its colour and dash.
Role = Literal["theory", "descent", "data", "target", "zero", "best", "pinned", "null", "threshold"]


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
    """

    label: str
    unit: str = "1"
    scale: Literal["linear", "log"] = "linear"
    span: tuple[float, float] | None = None


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
    """

    kind: Kind
    role: Role
    name: str
    x: ArrayLike = ()
    y: ArrayLike = ()
    z: ArrayLike | None = None
    series: int = 0
    legend: bool = True


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
    shades : tuple of (from, to, words)
        Stretches of x with a background, such as the stages of a curriculum.
    picks : pair of str, optional
        Keys of the state that a click on the panel sets to its x and y.
    grips : str, optional
        Key of the state (a list of numbers) that dragging the panel's points changes.
    """

    key: str
    title: str
    x: Axis
    y: Axis
    traces: tuple[Trace, ...]
    z: Axis | None = None
    shades: tuple[tuple[float, float, str], ...] = ()
    picks: tuple[str, str] | None = None
    grips: str | None = None


@dataclass(frozen=True)
class Note:
    """A sentence beside the pictures; `tone` is how loudly it is said."""

    text: str
    tone: Literal["plain", "warning", "error"] = "plain"


@dataclass(frozen=True)
class Reading:
    """One number in words: what it is, its value as a person reads it, its unit.

    ``value`` is the number itself: inf is never, nan is unknown.
    """

    label: str
    value: float
    unit: str
    words: str


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
    """What one part of a room shows for one state."""

    panels: tuple[Panel, ...]
    validity: Validity | None = None
    readings: tuple[Reading, ...] = ()
    notes: tuple[Note, ...] = ()
    words: str = ""
    extras: dict[str, Any] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """A view as JSON holds it: arrays of numbers as base64 of their bytes, nan and inf as words.

    Numbers in arrays keep every bit, and a grid of 120 x 120 takes no time to write.
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:  # most of a view, and it is asked for often
        return value
    if isinstance(value, Panel | Trace | Axis | Note | Reading | Validity | View):
        return {key: plain(item) for key, item in vars(value).items()}
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _array(values: np.ndarray) -> Any:
    if values.dtype.kind not in "iufb":
        return plain(values.tolist())
    packed = np.ascontiguousarray(values, dtype="<f8")
    return {
        "dtype": "f8",
        "bdata": base64.b64encode(packed.tobytes()).decode("ascii"),
        "shape": ", ".join(map(str, packed.shape)),
    }
