"""One self-contained HTML page for an answer: figure, table, validity, provenance."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO

from matplotlib.figure import Figure

from learncast.assumptions import Assumption
from learncast.citations import bibliography
from learncast.trajectory import FORECAST_CLASSES, Provenance

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1b1b; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.lead { font-size: 1.15rem; background: #eef4fa; border-left: 4px solid #0072B2; padding: .7rem 1rem; }
.warn { background: #fdf1e7; border-left: 4px solid #D55E00; padding: .7rem 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { text-align: right; padding: .3rem .8rem; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, td.text { text-align: left; }
img { max-width: 100%; height: auto; } pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .85rem; }
.muted { color: #666; font-size: .9rem; }
"""


@dataclass(frozen=True)
class Table:
    """A table for people: a heading, columns, and rows of formatted cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """What the page says.

    Attributes
    ----------
    title, lead : str
        The question's name and its answer in one or two sentences.
    forecast_class : str
        What may be promised.
    tables : sequence of Table
    assumptions : sequence of Assumption
    figure : Figure or bytes
        Drawn, or as a PNG already.
    provenance : Provenance
    study : str
        The study with every default resolved.
    """

    title: str
    lead: str
    forecast_class: str
    tables: Sequence[Table]
    assumptions: Sequence[Assumption]
    figure: Figure | bytes
    provenance: Provenance
    study: str
    notes: Sequence[str] = field(default=())

    def html(self) -> str:
        """The whole page; it loads nothing from anywhere."""
        failed = [a for a in self.assumptions if not a.holds and a.condition.binding]
        warning = "".join(
            f'<p class="warn"><b>{_text(a.name)}</b> measures {a.measured:.3g}, more than the {a.allowed:g} '
            f"allowed: {_text(a.condition.otherwise)}.</p>"
            for a in failed
        )
        notes = "".join(f"<p>{_text(note)}</p>" for note in self.notes)
        body = [
            f"<h1>{_text(self.title)}</h1>",
            f'<p class="lead">{_text(self.lead)}</p>',
            f"<p><b>Class of this forecast: {_text(self.forecast_class)}</b>, "
            f"{_text(FORECAST_CLASSES[self.forecast_class])}.</p>",
            warning,
            f'<p><img alt="{_text(self.title)}" src="{_embedded(self.figure)}"></p>',
            notes,
            *(_table(table) for table in self.tables),
            _table(validity_table(self.assumptions)) if self.assumptions else "",
            "<h2>Study</h2>",
            f"<pre>{_text(self.study)}</pre>",
            "<h2>Where the numbers come from</h2>",
            f'<p class="muted">{_text(_origin(self.provenance))}</p>',
            f"<pre>{_text(bibliography(*self.provenance.citations))}</pre>",
        ]
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{_text(self.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            + "\n".join(part for part in body if part)
            + "\n</body>\n</html>\n"
        )


def validity_table(assumptions: Sequence[Assumption]) -> Table:
    """What the theory assumes, and what was measured."""
    rows = [
        (a.name.replace("_", " "), f"{a.measured:.3g}", f"{a.allowed:g}", "yes" if a.holds else "NO")
        for a in assumptions
    ]
    return Table("How far to trust it", ("assumption", "measured", "allowed", "holds"), rows)


def _origin(provenance: Provenance) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in provenance.versions.items())
    return f"By {provenance.kind}; input {provenance.spec_hash}; {versions}."


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in table.columns)
    rows = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in table.rows)
    note = "".join(f'<p class="muted">{_text(line)}</p>' for line in table.notes)
    return (
        f'<h2>{_text(table.title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _cell(value: str) -> str:
    return f'<td class="text">{_text(value)}</td>' if " " in value else f"<td>{_text(value)}</td>"


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def rendered(figure: Figure, *, dpi: int = 150) -> bytes:
    """A figure as a PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _embedded(figure: Figure | bytes) -> str:
    picture = figure if isinstance(figure, bytes) else rendered(figure)
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
