"""HTML repr of results for notebooks: a summary line, tables and a plot."""

from __future__ import annotations

import base64
import html
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from learncast._core.errors import OutOfTime
from learncast._core.progress import time_limit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from learncast.report.report import Report

#: Seconds that computing an HTML repr may take.
DISPLAY_SECONDS = 10.0
#: Rows of a table in an HTML repr, and letters of a number or an interval.
MOST_ROWS, LONGEST_NUMBER = 8, 24
#: Size from which numbers are written with an exponent.
TOO_LONG = 1e15
#: Size from which numbers have no decimals.
NO_DECIMALS = 1e6


def _style() -> str:
    """Read the style sheet; the tokens apply to learncast's own elements only, and follow the page to light or dark."""
    sheet = Path(__file__).with_suffix(".css")
    tokens = sheet.with_name("tokens.css").read_text(encoding="utf-8")
    tokens = re.sub(r"/\*.*?\*/", "", tokens[: tokens.index("}") + 1], flags=re.DOTALL)
    own = re.sub(r"\s*\n\s*", "", tokens).replace(":root", ".learncast").replace("color-scheme: light dark;", "")
    return f"{own}\n{sheet.read_text(encoding='utf-8')}"


#: Style sheet of notebook reprs and HTML reports.
STYLE = _style()


def html_page(title: str, body: str) -> str:
    """Return one self-contained HTML page for light and dark screens of any width."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f'<body class="learncast page">\n{body}\n</body>\n</html>\n'
    )


def plain(value: object, pack: Callable[[Any], object] | None = None) -> object:
    """Convert a value to what JSON can hold; infinities and nan become the strings "inf", "-inf" and "nan".

    Parameters
    ----------
    value : object
        Numbers, strings, arrays, and sequences, mappings and dataclasses of them.
    pack : callable, optional
        Converts numeric arrays; by default they become lists.
    """
    if value is None or type(value) in (str, int, bool):  # most values
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if hasattr(value, "tolist"):  # an array or a number of numpy
        array: Any = value
        packs = pack is not None and array.ndim and array.dtype.kind in "iufb"
        return pack(array) if pack is not None and packs else plain(array.tolist(), pack)
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, pack) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, pack) for item in value]
    return value


def plural(number: int, word: str) -> str:
    """Return a count with its noun: "1 step", "2,000 steps"."""
    return f"{number:,} {word}" + "s" * (number != 1)


#: Columns of a table: heading, values, and the function that writes a value.
Columns = Mapping[str, tuple[Iterable[object], Callable[..., str]]]


@dataclass(frozen=True)
class Table:
    """Table of formatted cells with a title, column names and notes."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, title: str, columns: Columns, notes: Sequence[str] = ()) -> Table:
        """State a table by its columns: heading, values, and the function that writes a value.

        Examples
        --------
        >>> from learncast.display import Table
        >>> Table.of("Losses", {"step": ([1, 1000], "{:,}".format), "loss": ([0.51234, 0.1], "{:.2g}".format)}).rows
        [('1', '0.51'), ('1,000', '0.1')]
        """
        cells = ([text(value) for value in values] for values, text in columns.values())
        return cls(title, tuple(columns), list(zip(*cells, strict=True)), notes)

    def is_text(self, column: int) -> bool:
        """Whether a column is aligned to the left: the first, and those with cells that are too long for a number."""
        return column == 0 or any(len(row[column]) > LONGEST_NUMBER for row in self.rows)

    def html(self, heading: str = "h2") -> str:
        """Return the table as HTML under a title of the given heading level."""
        cells = ['<td class="text">{}</td>' if self.is_text(k) else "<td>{}</td>" for k in range(len(self.columns))]
        names = "".join(cells).replace("td", "th").format(*map(escape, self.columns))
        head = f"<thead><tr>{names}</tr></thead>\n" if any(self.columns) else ""
        rows = "\n".join(f"<tr>{''.join(cells).format(*map(escape, row))}</tr>" for row in self.rows)
        notes = "".join(f'<p class="muted">{escape(line)}</p>' for line in self.notes)
        title = f"<{heading}>{escape(self.title)}</{heading}>\n" if self.title else ""
        return f'{title}<div class="scroll"><table>{head}<tbody>\n{rows}\n</tbody></table></div>{notes}'

    def head(self, rows: int = MOST_ROWS) -> Table:
        """Return the first rows and the notes, after one that counts the other rows."""
        left = len(self.rows) - rows
        more = (f"{left} more.",) if left > 0 else ()
        return Table(self.title, self.columns, self.rows[:rows], (*more, *self.notes))


@dataclass(frozen=True)
class HtmlRepr:
    """Content of the HTML repr of an object.

    Attributes
    ----------
    title, summary : str
        What the object is, and one sentence about it.
    tables : sequence of Table
    standing : (str, str), optional
        Forecast class and its meaning.
    conditions : Table, optional
        Measured conditions of the theory.
    """

    title: str
    summary: str
    tables: Sequence[Table] = ()
    standing: tuple[str, str] | None = None
    conditions: Table | None = None

    @classmethod
    def of(
        cls, value: object, *tables: Table, standing: tuple[str, str] | None = None, conditions: Table | None = None
    ) -> HtmlRepr:
        """Take title and summary from the repr of an object, "<title: summary>"."""
        title, _, summary = repr(value).strip("<>").partition(": ")
        return cls(title, summary.strip("<>"), tables, standing, conditions)

    def html(self, png: bytes | None) -> str:
        """Return the HTML, with an image if one is given; it suits light and dark pages."""
        image = "" if png is None else f'<div><img alt="{escape(self.title)}" src="{data_uri(png)}"></div>'
        tables = "".join(table.head().html("h4") for table in self.tables)
        return (
            f'<div class="learncast"><style>{STYLE}</style><b>{escape(self.title)}</b><p>{escape(self.summary)}</p>'
            f'<div class="parts"><div>{tables}</div>{image}</div>{self._trust()}</div>'
        )

    def _trust(self) -> str:
        if self.standing is None:
            return ""
        badge = f'<span class="badge">{escape(self.standing[0])}</span> {escape(self.standing[1])}'
        if self.conditions is None or not self.conditions.rows:
            return f"<div>{badge}</div>"
        return f"<details><summary>{badge}</summary>{self.conditions.html('h4')}</details>"


@dataclass(frozen=True)
class Plot:
    """Name of a drawing function in `learncast.figures`, and its arguments."""

    drawing: str
    data: tuple[object, ...]
    options: dict[str, object]

    @classmethod
    def of(cls, drawing: str, *data: object, **options: object) -> Plot:
        """Plan the call ``figures.<drawing>(*data, ax, **options)``."""
        return cls(drawing, data, options)

    def on(self, ax: Axes | None, **options: object) -> Axes:
        """Draw on the given axes, or on new pyplot axes."""
        from learncast import figures

        with figures.style():
            axes: Axes = figures.new_axes() if ax is None else ax
            return cast("Axes", getattr(figures, self.drawing)(*self.data, axes, **{**self.options, **options}))

    def png(self) -> bytes:
        """Return a small PNG."""
        from learncast import figures

        return figures.png(figures.sheet(self.on, width=4.2, height=2.8))


class Reported:
    """Mixin that gives a result its report, and an HTML repr with the same answer and tables."""

    def report(self) -> Report:
        """Return the report of this result: one object for the terminal, JSON, an HTML page and files.

        Returns
        -------
        Report
        """
        from learncast.report import report_of

        made: Report = report_of(self)
        return made

    def _html_repr(self) -> HtmlRepr:
        report = self.report()
        return HtmlRepr(report.title, report.lead, report.tables, report.trust.standing, report.trust.table)


class Displayable:
    """Mixin that gives a result its HTML repr and `plot`."""

    @abstractmethod
    def _html_repr(self) -> HtmlRepr:
        """Title, summary and tables."""

    @abstractmethod
    def _plot(self) -> Plot:
        """Plot of the HTML repr and of `plot`."""

    def plot(self, ax: Axes | None = None, **options: object) -> Axes:
        """Draw this result.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new pyplot axes by default.
        **options
            Passed to the drawing function in `learncast.figures`, for example ``title``.

        Returns
        -------
        Axes
        """
        return self._plot().on(ax, **options)

    def _repr_html_(self) -> str:
        try:
            with time_limit(DISPLAY_SECONDS):
                return self._html_repr().html(self._plot().png())
        except OutOfTime:
            summary = f"{self!r}. Not computed for display: it takes longer than {DISPLAY_SECONDS:g} s."
            return HtmlRepr(type(self).__name__, summary).html(None)


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and values, without those whose value is empty."""
    return Table("", ("", ""), [row for row in rows if row[1]])


def escape(value: str) -> str:
    """Return HTML-escaped text."""
    return html.escape(value, quote=True)


def data_uri(png: bytes) -> str:
    """Return a PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def format_number(value: float, digits: int = 2) -> str:
    """Return a number of steps with `digits` decimals; "never" if infinite, "unknown" if nan."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "never" if value > 0 else "-inf"
    if abs(value) >= TOO_LONG:
        return f"{value:.3g}"
    digits = 0 if abs(value) >= NO_DECIMALS else digits
    text = f"{value:,.{digits}f}" if value else "0"
    return text[1:] if text.startswith("-") and not text.strip("-0.,") else text  # no "-0.00"


def format_loss(value: float, *, size: float = 1.0) -> str:
    """Return a loss with three significant digits; round-off of a loss of this size is shown as 0."""
    if not math.isfinite(value) or abs(value) >= 1000:
        return format_number(value, 0)
    return f"{0.0 if abs(value) < 1e-12 * size else value:.3g}"


def format_count(value: float) -> str:
    """Return a number of steps without decimals."""
    return format_number(value, 0)


def format_interval(interval: tuple[float, float] | None) -> str:
    """Return "low to high" in whole steps that contain the interval; empty if there is none or both ends are equal."""
    if interval is None or interval[0] == interval[1]:
        return ""
    ends = (way(end) if math.isfinite(end) else end for end, way in zip(interval, (math.floor, math.ceil), strict=True))
    return " to ".join(map(format_count, ends))


def bracketed_interval(interval: tuple[float, float] | None) -> str:
    """Return " (low to high)" to follow a number; empty if `format_interval` is."""
    text = format_interval(interval)
    return f" ({text})" if text else ""
