"""An answer: one result as tables for people, JSON for programs, a page and files for the record."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learncast._core.citations import bibliography
from learncast._core.errors import InvalidSpec
from learncast._core.files import draft_folder
from learncast.display import Table, data_uri, escape
from learncast.planning.batches import BatchSteps
from learncast.planning.methods.ground import Ground
from learncast.results import FORECAST_CLASSES, Provenance, save_dataset
from learncast.tasks.recorded.summary import summary
from learncast.theory.assumptions import Assumption, Trust

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

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


@dataclass(frozen=True, eq=False)
class Answer:
    """One result in all its forms.

    Attributes
    ----------
    kind : str
        The command's name, which names the files too.
    title, lead : str
        The study's name and the answer in a sentence.
    trust : Trust
        How far it can be trusted: table, class, footer and exit code all repeat it.
    values : dict
        The JSON object.
    tables : sequence of Table
    dataset : Dataset or callable
        The numbers, labelled; or what labels them when they are wanted.
    draw : callable
        Makes the figure; called only when one is wanted.
    provenance : Provenance
    study : str
        The study with every default resolved.
    passed : bool
        Whether a check came out well; answers that check nothing always do.
    """

    kind: str
    title: str
    lead: str
    trust: Trust
    values: dict[str, Any]
    tables: Sequence[Table]
    dataset: xr.Dataset | Callable[[], xr.Dataset]
    draw: Callable[[], Figure]
    provenance: Provenance
    study: str
    passed: bool = True

    @property
    def labelled(self) -> xr.Dataset:
        """The numbers, labelled."""
        return self.dataset() if callable(self.dataset) else self.dataset

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return self.trust.forecast_class

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Every condition, as measured."""
        return self.trust.assumptions

    @property
    def every_table(self) -> list[Table]:
        """The tables, and last how far to trust them."""
        return [*self.tables, self.trust.table] if self.assumptions else list(self.tables)

    @property
    def footer(self) -> str:
        """Class and promise in a line."""
        return f"{self.forecast_class}: {FORECAST_CLASSES[self.forecast_class]}"

    def json(self) -> str:
        """The answer as one JSON object; infinity is the string "inf", unknown the string "nan"."""
        shared = {
            "class": self.forecast_class,
            "promise": FORECAST_CLASSES[self.forecast_class],
            "validity": [validity(a) for a in self.assumptions],
        }
        return json.dumps(plain({**self.values, **shared}), indent=2, ensure_ascii=False, allow_nan=False)

    def html(self, figure: bytes) -> str:
        """One self-contained page with the figure; it loads nothing from anywhere."""
        warning = "".join(
            f'<p class="warn"><b>{escape(a.name)}</b> measures {a.measured:.3g}, more than the {a.allowed:g} '
            f"allowed: {escape(a.condition.otherwise)}.</p>"
            for a in self.trust.failed
        )
        picture = data_uri(figure)
        versions = ", ".join(f"{name} {number}" for name, number in self.provenance.versions.items())
        origin = f"By {self.provenance.kind}; input {self.provenance.spec_hash}; {versions}."
        body = [
            f"<h1>{escape(self.title)}</h1>",
            f'<p class="lead">{escape(self.lead)}</p>',
            f"<p><b>Class of this forecast: {escape(self.forecast_class)}</b>, "
            f"{escape(FORECAST_CLASSES[self.forecast_class])}.</p>",
            warning,
            f'<p><img alt="{escape(self.title)}" src="{picture}"></p>',
            *(table.html() for table in self.every_table),
            "<h2>Study</h2>",
            f"<pre>{escape(self.study)}</pre>",
            "<h2>Where the numbers come from</h2>",
            f'<p class="muted">{escape(origin)}</p>',
            f"<pre>{escape(bibliography(*self.provenance.citations))}</pre>",
        ]
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            + "\n".join(part for part in body if part)
            + "\n</body>\n</html>\n"
        )

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write JSON, NetCDF, PNG, the resolved study and the report; all of them or none."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise InvalidSpec(f"--out must name a folder, got the file {target}.")
        with draft_folder(target) as draft:
            from learncast.figures import png

            picture = png(self.draw())
            (draft / f"{self.kind}.json").write_text(self.json() + "\n", encoding="utf-8")
            save_dataset(self.labelled, draft / f"{self.kind}.nc", kind=self.kind, provenance=self.provenance)
            (draft / f"{self.kind}.png").write_bytes(picture)
            (draft / "study.toml").write_text(self.study, encoding="utf-8")
            (draft / "report.html").write_text(self.html(picture), encoding="utf-8")
            names = sorted(file.name for file in draft.iterdir())
        return [target / name for name in names]


#: Share of a recorded target below which what a linear network can explain is the first thing to say.
LITTLE = 0.05


def data_said(ground: Ground, task: int) -> tuple[str, list[str]]:
    """What recorded data allow, sentence by sentence; before them the one that must come first, if any must."""
    own, recurrence = ground.tasks[task], getattr(ground.network, "scalar_recurrence", None)
    if own.recording is None or recurrence is None:
        return "", []
    found = summary(own, recurrence=recurrence)
    shares = [share for share in (found.left_out, found.explained) if math.isfinite(share)]
    first = f"{found.sentences[0]} " if shares and shares[0] < LITTLE else ""
    done = own.recording.sentences(own.trials or 0)
    return first, [sentence.removesuffix(".") for sentence in (*done, *found.sentences)]


def batch_values(found: BatchSteps) -> dict[str, Any]:
    """Steps in batches, for JSON."""
    return {
        "batch": found.batch, "runs": found.runs, "mean_steps": found.mean, "spread": found.spread,
        "interval": list(found.interval), "noise_floor": found.floor, "by_chance": found.by_chance,
        "stage_steps": found.steps.mean(axis=1).tolist(),
    }  # fmt: skip


def validity(assumption: Assumption) -> dict[str, Any]:
    """One row of the validity block."""
    return {
        "assumption": assumption.name,
        "measured": assumption.measured,
        "allowed": assumption.allowed,
        "holds": assumption.holds,
        "needed": assumption.condition.binding,
    }


def plain(value: Any) -> Any:
    """Turn arrays and numpy numbers into JSON values, infinities and nan into words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def counted(steps: float) -> float | int:
    """A count as an integer where it is one."""
    return int(steps) if math.isfinite(steps) else steps


#: How an answer was found, where that is not by common modes.
_WAYS = {
    "two-layer": " (No common modes: by the exact flow of a two-layer network.)",
    "pooled": " (No common modes: by descent on the pooled statistics of these tasks.)",
    "flow": " (No closed form: by the integrated flow of the weights that learn.)",
    "responses": " (Through the measured responses of the units.)",
}


def way_taken(ground: Ground, trust: Trust, place: int = -1) -> str:
    """The way, in a bracket behind an answer; the condition that fails where one does, which then is the answer."""
    if trust.holds:
        return _WAYS.get(ground.by, "")
    failed = trust.failed[0]
    if failed.name == "stable_learning_rate":
        rate, most = ground.learning_rate, ground.largest_rate(place)
        return (
            f"Gradient descent does not settle at a learning rate of {rate:g}: it times the largest curvature is "
            f"{failed.measured:.3g}, and must stay below {failed.allowed:g}. Below a learning rate of {most:.2g} "
            "it is sure to settle."
        )
    name = failed.name.replace("_", " ")
    return (
        f"An approximation, asked for by name: {name} measures {failed.measured:.3g}, more than the {failed.allowed:g} "
        f"allowed; {failed.condition.otherwise}."
    )
