"""A card: what an object says of itself where it is shown, in a sentence, tables and a picture."""

from __future__ import annotations

import base64
import html
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from learncast._core.errors import OutOfTime
from learncast._core.progress import time_limit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Seconds that showing an object may take: nobody asked for more than a glance.
GLANCE = 10.0
#: Rows of a table on a card.
FEW = 8

# Colours are the page's own, or stand out from light and dark ones alike; pictures keep their white sheet.
_STYLE = """
.learncast { max-width: 62rem; font-size: .9rem; line-height: 1.4; }
.learncast p { margin: .2rem 0 .6rem; max-width: 46rem; } .learncast h4 { margin: .4rem 0 .2rem; font-size: .9rem; }
.learncast .parts { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; align-items: flex-start; }
.learncast .parts > div { max-width: 100%; }
.learncast .scroll { overflow-x: auto; } .learncast table { border-collapse: collapse; margin: 0 0 .5rem; }
.learncast th, .learncast td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid rgba(128,128,128,.4);
  font-variant-numeric: tabular-nums; background: transparent; color: inherit; }
.learncast th:first-child, .learncast td:first-child, .learncast td.text { text-align: left; }
.learncast img { max-width: 100%; width: 24rem; height: auto; background: #fff; border-radius: 4px; }
.learncast .muted { opacity: .75; font-size: .85rem; } .learncast summary { cursor: pointer; }
.learncast .badge { border: 1px solid currentColor; border-radius: 1rem; padding: 0 .5rem; font-weight: 600; }
"""


def so_many(number: int, word: str) -> str:
    """A number of things in words."""
    return f"{number:,} {word}" + "s" * (number != 1)


@dataclass(frozen=True)
class Table:
    """A table for people: a heading, columns, and rows of formatted cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def html(self, heading: str = "h2") -> str:
        """The table as HTML, under a heading of that rank."""
        head = "".join(f"<th>{escaped(column)}</th>" for column in self.columns)
        rows = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in self.rows)
        note = "".join(f'<p class="muted">{escaped(line)}</p>' for line in self.notes)
        title = f"<{heading}>{escaped(self.title)}</{heading}>\n" if self.title else ""
        return (
            f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody></table></div>{note}"
        )

    def few(self, most: int = FEW) -> Table:
        """The first rows, and a word about the others."""
        left = len(self.rows) - most
        notes = (f"{left} more.",) if left > 0 else ()
        return Table(self.title, self.columns, self.rows[:most], notes)


@dataclass(frozen=True)
class Card:
    """What is said of an object.

    Attributes
    ----------
    title, lead : str
        What it is, and the sentence to read first.
    tables : sequence of Table
    standing : (str, str), optional
        The class of a forecast and what that promises.
    conditions : Table, optional
        What it rests on, as measured.
    """

    title: str
    lead: str
    tables: Sequence[Table] = ()
    standing: tuple[str, str] | None = None
    conditions: Table | None = None

    @classmethod
    def of(cls, shown: object, *tables: Table, **options: Any) -> Card:
        """A card that says what the object's repr says."""
        title, _, lead = repr(shown).strip("<>").partition(": ")
        return cls(title, lead.strip("<>"), tables, **options)

    def html(self, picture: bytes | None) -> str:
        """The card as HTML, for a page of any colour."""
        drawn = "" if picture is None else f'<div><img alt="{escaped(self.title)}" src="{inlined(picture)}"></div>'
        tables = "".join(table.few().html("h4") for table in self.tables)
        return (
            f'<div class="learncast"><style>{_STYLE}</style><b>{escaped(self.title)}</b><p>{escaped(self.lead)}</p>'
            f'<div class="parts"><div>{tables}</div>{drawn}</div>{self._trust()}</div>'
        )

    def _trust(self) -> str:
        if self.standing is None:
            return ""
        said = f'<span class="badge">{escaped(self.standing[0])}</span> {escaped(self.standing[1])}'
        if self.conditions is None or not self.conditions.rows:
            return f"<div>{said}</div>"
        return f"<details><summary>{said}</summary>{self.conditions.html('h4')}</details>"


@dataclass(frozen=True)
class Picture:
    """A picture to come: which drawing of `learncast.figures` makes it, and from what."""

    drawing: str
    data: Any
    options: dict[str, Any]

    @classmethod
    def of(cls, drawing: str, *data: Any, **options: Any) -> Picture:
        """What `figures.<drawing>(*data, ax, **options)` will draw."""
        return cls(drawing, data, options)

    def on(self, ax: Axes | None, **options: Any) -> Axes:
        """Draw it on axes, or on new ones of pyplot's, which a notebook shows."""
        from learncast import figures

        with figures.style():
            chosen = figures.new_axes() if ax is None else ax
            drawn: Axes = getattr(figures, self.drawing)(*self.data, chosen, **{**self.options, **options})
        return drawn

    def png(self) -> bytes:
        """The same as a small file."""
        from learncast import figures

        return figures.png(figures.sheet(self.on, width=4.2, height=2.8))


class Shown:
    """What has a card and a picture: a table and a figure in notebooks, and `plot`."""

    @abstractmethod
    def _card(self) -> Card:
        """What is said of it."""

    @abstractmethod
    def _picture(self) -> Picture:
        """What is drawn of it."""

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where; new ones of pyplot's by default.
        **options
            Of the drawing in `learncast.figures` that makes the picture, such as ``title``.

        Returns
        -------
        Axes
            Those drawn on.
        """
        return self._picture().on(ax, **options)

    def _repr_html_(self) -> str:
        """What a notebook shows; without the picture where that would take longer than a glance."""
        try:
            with time_limit(GLANCE):
                return self._card().html(self._picture().png())
        except OutOfTime:
            said = f"{self!r}; its numbers take longer than {GLANCE:g} s: ask for them by name, or plot it."
            return Card(type(self).__name__, said).html(None)


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """A table of what is known, without those that are not."""
    return Table("", ("", ""), [row for row in rows if row[1]])


def escaped(value: str) -> str:
    """Text that HTML takes for nothing else."""
    return html.escape(value, quote=True)


def inlined(picture: bytes) -> str:
    """A PNG as the address of an image that needs no file."""
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def _cell(value: str) -> str:
    return f'<td class="text">{escaped(value)}</td>' if " " in value else f"<td>{escaped(value)}</td>"


def shown(value: float, digits: int = 2) -> str:
    """A number of steps for people: two decimals, or the word for never and unknown."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    text = f"{value:,.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.,") else text  # nothing has no sign


def whole(value: float) -> str:
    """A whole number of steps for people."""
    return shown(value, 0)


def between(interval: tuple[float, float] | None) -> str:
    """An interval of steps for people; nothing where there is none."""
    return "" if interval is None else f"{shown(interval[0], 1)} to {shown(interval[1], 1)}"


def within(interval: tuple[float, float] | None) -> str:
    """The same in brackets, to stand behind a number."""
    return "" if interval is None else f" ({between(interval)})"
