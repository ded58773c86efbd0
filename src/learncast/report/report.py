"""A report: one result as terminal tables, JSON, an HTML page and files."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import numpy as np

from learncast._core.citations import bibliography
from learncast._core.errors import OutOfTime, UnsupportedModel
from learncast._core.files import as_folder, draft_folder
from learncast._core.progress import time_limit
from learncast.display import DISPLAY_SECONDS, HtmlRepr, Table, escape, html_page, plain
from learncast.networks.two_layer import TwoLayer
from learncast.planning.batches import BatchSteps
from learncast.planning.decoding import Decoded
from learncast.planning.methods.method import Method
from learncast.planning.summary import settling_rate
from learncast.procedure.goals import GOALS
from learncast.results import Provenance, Status, Steps, save_dataset
from learncast.tasks.recorded.summary import summary
from learncast.theory.assumptions import Assumption, Trust

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from learncast.tasks.task import Task


#: Most letters of the answer at the top of a page.
ANSWER_LETTERS = 200
#: Most rows of a table that a page shows without a click.
MOST_OPEN = 10
#: Where `learncast explore` serves the explorer, and settings of its curriculum panel that studies have too.
EXPLORER = "http://127.0.0.1:8765/"
SHARED = {"family", "steps", "target_strength", "input_strength", "timescale", "correlation", "noise_strength", "gain",
          "recurrence", "initial", "hidden_size", "activation", "learning_rate", "accuracy"}  # fmt: skip


class FigureWarning(UserWarning):
    """The figure of a report could not be drawn."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """One result in every output format.

    Attributes
    ----------
    kind : str
        Name of the command, used for file names.
    title, lead : str
        Name of the study, and the result in a sentence.
    trust : Trust
        How far the result can be trusted.
    values : dict
        The JSON object.
    tables : sequence of Table
    dataset : Dataset or callable
        The labelled numbers, or a function that makes them.
    draw : callable
        Makes the figure.
    provenance : Provenance
    study : str
        The study with all defaults.
    passed : bool
        Whether a check passed; True for other commands.
    """

    kind: str
    title: str
    lead: str
    trust: Trust
    values: dict[str, object]
    tables: Sequence[Table]
    dataset: xr.Dataset | Callable[[], xr.Dataset]
    draw: Callable[[], Figure]
    provenance: Provenance
    study: str
    passed: bool = True

    def __repr__(self) -> str:
        return f"<Report {self.title}: {self.answer_and_rest[0]}>"

    def _repr_html_(self) -> str:
        shown = HtmlRepr(self.title, self.lead, self.tables, self.trust.standing, self.trust.table)
        try:
            with time_limit(DISPLAY_SECONDS):
                pictures = self._pictures()
        except OutOfTime:
            pictures = None
        return shown.html(pictures and pictures[0])

    @property
    def labelled(self) -> xr.Dataset:
        """The labelled numbers."""
        return self.dataset() if callable(self.dataset) else self.dataset

    @property
    def forecast_class(self) -> str:
        """What may be promised: a key of FORECAST_CLASSES."""
        return self.trust.forecast_class

    @property
    def every_table(self) -> list[Table]:
        """The tables, and last the conditions."""
        return [*self.tables, self.trust.table] if self.trust.assumptions else list(self.tables)

    @property
    def answer_and_rest(self) -> tuple[str, str]:
        """The lead up to a blank line, or as many of its sentences as fit at the top of a page, and what follows."""
        answer, blank, rest = self.lead.partition("\n\n")
        if blank or "\n" in self.lead:
            return answer, rest
        sentences = re.split(r"(?<=[.!?]) ", self.lead)
        ends = np.cumsum([len(one) + 1 for one in sentences])
        fit = max(1, int(np.searchsorted(ends, ANSWER_LETTERS)))
        return " ".join(sentences[:fit]), " ".join(sentences[fit:])

    def json(self) -> str:
        """One JSON object; infinity is the string "inf", unknown the string "nan"."""
        shared = {
            "class": self.forecast_class,
            "promise": self.trust.standing[1],
            "validity": [validity(a) for a in self.trust.assumptions],
        }
        return json.dumps(plain({**self.values, **shared}), indent=2, ensure_ascii=False, allow_nan=False)

    def html(self, figure: str | None) -> str:
        """One self-contained HTML page: the answer, the figure if there is one, how far to trust it, details."""
        warning = "".join(f'<p class="warn">{escape(a.failure)}</p>' for a in self.trust.failed)
        named = f'role="img" aria-label="{escape(self.title)}"'
        picture = "" if figure is None else f'<div class="figure" {named}>{figure}</div>'
        versions = ", ".join(f"{name} {number}" for name, number in self.provenance.versions.items())
        papers = escape(bibliography(*self.provenance.citations))
        origin = f"By {self.provenance.kind}; input {self.provenance.spec_hash}; {versions}."
        forecast_class, promise = self.trust.standing
        answer, rest = self.answer_and_rest
        body = [
            f"<h1>{escape(self.title)}</h1>",
            f'<p class="lead">{escape(answer)}</p>',
            picture,
            *(f"<p>{escape(paragraph)}</p>" for paragraph in rest.split("\n\n") if paragraph),
            f"<h2>How far to trust {'the forecast' if self.kind == 'check' else 'it'}</h2>",
            f'<p><b class="badge">{escape(forecast_class)}</b> {escape(promise[:1].upper() + promise[1:])}.</p>',
            warning,
            _folded(self.trust.table) if self.trust.assumptions else "",
            *(table.html() if len(table.rows) <= MOST_OPEN else _folded(table) for table in self.tables),
            self._explorer,
            f"<details><summary>Study</summary><pre>{escape(self.study)}</pre></details>" if self.study else "",
            f'<details><summary>Where the numbers come from</summary><p class="muted">{escape(origin)}</p>'
            f"{papers and f'<pre>{papers}</pre>'}</details>",
        ]
        return html_page(self.title, "\n".join(part for part in body if part))

    @property
    def _explorer(self) -> str:
        """Link to these results in the explorer; empty if it cannot show them."""
        options, address = (" --window window.nc", "#window") if self.kind == "window" else ("", self._settings)
        link = f'<a href="{escape(EXPLORER + address)}" rel="noreferrer">open in the explorer</a>'
        return f"<p>To explore: run <code>learncast explore{options}</code>, then {link}.</p>" if address else ""

    @property
    def _settings(self) -> str:
        """View of the explorer with the settings of the study; empty for tasks that it does not have."""
        study = tomllib.loads(self.study)
        target, network = study.get("target", {}), study.get("network", {})
        if target.get("family") not in ("integration", "leaky_integration") or network.get("kind") != "linear-rnn":
            return ""
        settings = {**target, **network, **study.get("training", {})}.items()
        return "#curriculum?" + urlencode({k: v for k, v in settings if k in SHARED and not isinstance(v, list | dict)})

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write JSON, NetCDF, PNG, the study and the HTML page; all of them or none.

        If the figure cannot be drawn, everything else is written, with a warning.
        """
        target = as_folder(folder)
        with draft_folder(target) as draft:
            pictures = self._pictures()
            (draft / f"{self.kind}.json").write_text(self.json() + "\n", encoding="utf-8")
            save_dataset(self.labelled, draft / f"{self.kind}.nc", kind=self.kind, provenance=self.provenance)
            if pictures is not None:
                (draft / f"{self.kind}.png").write_bytes(pictures[0])
            if self.study:
                (draft / "study.toml").write_text(self.study, encoding="utf-8")
            (draft / "report.html").write_text(self.html(pictures and pictures[1]), encoding="utf-8")
            names = sorted(file.name for file in draft.iterdir())
        return [target / name for name in names]

    def _pictures(self) -> tuple[bytes, str] | None:
        """The figure as PNG and as HTML for wide and narrow screens; None, with a warning, if it cannot be drawn."""
        from learncast.figures import png, svg
        from learncast.figures.look import themed
        from learncast.figures.page import NARROW, stacked

        try:
            figure = self.draw()
            drawn = themed(svg(figure))
            if figure.get_figwidth() > NARROW:
                with stacked():
                    # Both are in one page: the second has names of its own.
                    narrow = re.sub(r'( id="|url\(#|href="#)', r"\1narrow-", themed(svg(self.draw())))
                drawn = f'<div class="wide">{drawn}</div><div class="narrow">{narrow}</div>'
            return png(figure), drawn
        except OSError:  # a full disk concerns every file
            raise
        except Exception as error:  # whatever fails in a figure must not lose the answer
            warnings.warn(
                f"The figure could not be drawn ({error}). The numbers are complete.", FigureWarning, stacklevel=3
            )
            return None


#: Module and function that report each kind of result.
REPORTS = {
    "Advice": ("advise", "of_advice"),
    "Check": ("check", "of_check"),
    "Generalisation": ("generalise", "held_out_report"),
    "HeldOutPlan": ("plan", "of_plan"),
    "Plan": ("plan", "of_plan"),
    "Window": ("window", "of_window"),
}


def report_of(result: object) -> Report:
    """Return the report of a result: terminal tables, JSON, an HTML page and files.

    Parameters
    ----------
    result : Forecast, Plan, Generalisation, Check, Advice or Window

    Returns
    -------
    Report

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.report import report_of
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> report = report_of(lc.forecast(task, network, learning_rate=1e-3))
    >>> report.kind, report.values["descent_steps"]
    ('forecast', 331)
    """
    from learncast.planning.forecast import Forecast

    if isinstance(result, Forecast):
        single = len(result.requested) == 1 and result.requested[0].goal is not None
        module, function = ("forecast", "of_forecast") if single else ("forget", "of_sequence")
    elif type(result).__name__ in REPORTS:
        module, function = REPORTS[type(result).__name__]
    else:
        raise UnsupportedModel(f"result must be one that has a report, got {type(result).__name__}.", field="result")
    made: Report = getattr(import_module(f"learncast.report.{module}"), function)(result)
    return made


#: Explainable share of a recorded target below which the report begins with it.
LITTLE = 0.05


def _folded(table: Table) -> str:
    """Return a table as HTML that opens on a click on its title."""
    return f"<details><summary>{escape(table.title)}</summary>{replace(table, title='').html()}</details>"


def fields(source: object, names: str) -> dict[str, object]:
    """Return attributes of an object as JSON values, by their names, which are separated by spaces."""
    values = {name: getattr(source, name) for name in names.split()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def picture(*draws: Callable[[Axes], object], columns: int = 0, width: float, height: float) -> Figure:
    """Return a figure with one axes for each function that draws; importing matplotlib waits until then."""
    from learncast.figures import sheet

    return sheet(*draws, columns=columns, width=width, height=height)


def data_notes(method: Method, task: int) -> tuple[str, list[str]]:
    """Sentences about recorded data, and the one that the report must begin with, if any."""
    own, network = method.tasks[task], method.network
    recurrence = None if isinstance(network, TwoLayer) else getattr(network, "scalar_recurrence", None)
    if method.assumes_gaussian(task):
        return f"Gaussian trials assumed, because only the second moments of {own.name} are known. ", []
    if own.recording is None or recurrence is None:
        return "", []
    data = summary(own, recurrence=recurrence)
    shares = [share for share in (data.left_out, data.explained) if math.isfinite(share)]
    first = f"{data.sentences[0]} " if shares and shares[0] < LITTLE else ""
    done = own.recording.sentences(own.trials or 0, own.target_power)
    return first, [sentence.removesuffix(".") for sentence in (*done, *data.sentences)]


def data_tables(task: Task, notes: Sequence[str]) -> list[Table]:
    """What the trials of a recorded task allow, a sentence in each row; none without sentences."""
    return [Table(f'What the trials of "{task.name}" allow', ("",), [(line,) for line in notes])] if notes else []


def batch_values(steps: BatchSteps) -> dict[str, object]:
    """JSON values of steps in batches."""
    own = fields(steps, "batch shuffle gaussian runs spread interval by_chance")
    stages = steps.steps.mean(axis=1).tolist()
    return own | {"mean_steps": steps.mean, "noise_floor": steps.floor, "stage_steps": stages}


def spread_rows(number: int, most: int) -> tuple[list[int], tuple[str, ...]]:
    """Return the numbers of at most `most` rows of a table, evenly spread, and a note if some are left out."""
    rows = np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)).tolist()
    return rows, () if len(rows) == number else (f"{len(rows)} of {number} rows shown; all are in the files.",)


def validity(assumption: Assumption) -> dict[str, object]:
    """JSON values of one condition."""
    own = fields(assumption, "measured allowed holds")
    return {"assumption": assumption.name, **own, "needed": assumption.condition.binding}


def as_count(steps: float) -> float | int:
    """Return a finite count as an integer."""
    return int(steps) if math.isfinite(steps) else steps


def goal_values(goal: object) -> dict[str, float]:
    """JSON value of a goal, under its key in a study; empty for other goals."""
    if isinstance(goal, Decoded):
        return {goal.kind: goal.value}
    return {key: float(goal.value) for key, kind in GOALS.items() if type(goal) is kind and hasattr(goal, "value")}


def outcome_values(steps: Steps) -> dict[str, object]:
    """JSON values of the status; with the steps tried and the loss then, if the goal was not reached within them."""
    if steps.status is not Status.not_within:
        return {"status": steps.status.name}
    return {"status": steps.status.name, "tried": as_count(steps.tried), "loss_reached": steps.loss}


#: Notes on methods other than modes.
_METHODS = {
    "two-layer": "\n\nMethod: the exact flow of two layers, because the study's tasks and start have no common modes.",
    "pooled": "\n\nMethod: descent on pooled statistics, because the study's tasks and start have no common modes.",
    "deep": "\n\nMethod: descent on the statistics of these tasks, because the network has several layers.",
    "flow": "\n\nMethod: the integrated flow of all weights that learn, because it has no closed form.",
    "responses": "\n\nMethod: the measured responses of the units.",
}


def method_note(method: Method, trust: Trust, place: int = -1) -> str:
    """Note on the method; if a condition fails, the sentence that says so."""
    if trust.holds:
        return _METHODS.get(method.name, "")
    failed = trust.failed[0]
    if failed.name == "stable_learning_rate":
        rate, most = method.learning_rate, settling_rate(method, place, trust)
        return (
            f"Gradient descent does not settle at a learning rate of {rate:g}: times the largest curvature it is "
            f"{failed.measured:.3g} and must stay below {failed.allowed:g}. Below a learning rate of {most:.2g} it is "
            "sure to settle."
        )
    return f"An approximation: {failed.failure}"
