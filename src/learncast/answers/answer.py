"""An answer: one result as tables for people, JSON for programs and files for the record."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption, exact
from learncast.errors import InvalidSpec
from learncast.report import Report, Table, rendered
from learncast.trajectory import FORECAST_CLASSES, Provenance, Status, save_dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Answer:
    """One result in all its forms.

    Attributes
    ----------
    kind : str
        The command's name, which names the files too.
    title, lead : str
        The study's name and the answer in a sentence.
    forecast_class : str
        What may be promised.
    values : dict
        The JSON object.
    tables : sequence of Table
    assumptions : sequence of Assumption
    dataset : Dataset
        The numbers, labelled.
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
    forecast_class: str
    values: dict[str, Any]
    tables: Sequence[Table]
    assumptions: Sequence[Assumption]
    dataset: xr.Dataset
    draw: Callable[[], Figure]
    provenance: Provenance
    study: str
    passed: bool = True

    @property
    def holds(self) -> bool:
        """Whether every condition of the theory is met."""
        return exact(self.assumptions)

    def json(self) -> str:
        """The answer as one JSON object; infinity is the string "inf", unknown the string "nan"."""
        shared = {
            "class": self.forecast_class,
            "promise": FORECAST_CLASSES[self.forecast_class],
            "validity": [validity(a) for a in self.assumptions],
        }
        return json.dumps(plain({**self.values, **shared}), indent=2, ensure_ascii=False, allow_nan=False)

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write JSON, NetCDF, PNG, the resolved study and the report; all of them or none."""
        target = Path(folder)
        if target.exists() and not target.is_dir():
            raise InvalidSpec(
                required="--out must name a folder",
                got=f"the file {target}",
                why="several files go there",
                remedy="choose another name",
            )
        # The draft lies beside what exists already, so that a failure leaves no new folder behind.
        beside = next(folder for folder in target.absolute().parents if folder.is_dir())
        draft = Path(tempfile.mkdtemp(prefix=".learncast-", dir=beside))
        try:
            figure = rendered(self.draw())
            (draft / f"{self.kind}.json").write_text(self.json() + "\n", encoding="utf-8")
            save_dataset(self.dataset, draft / f"{self.kind}.nc", kind=self.kind, provenance=self.provenance)
            (draft / f"{self.kind}.png").write_bytes(figure)
            (draft / "study.toml").write_text(self.study, encoding="utf-8")
            report = Report(
                self.title,
                self.lead,
                self.forecast_class,
                self.tables,
                self.assumptions,
                figure,
                self.provenance,
                self.study,
            )
            (draft / "report.html").write_text(report.html(), encoding="utf-8")
            target.mkdir(parents=True, exist_ok=True)
            written = []
            for file in sorted(draft.iterdir()):
                os.replace(file, target / file.name)
                written.append(target / file.name)
            return written
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def validity(assumption: Assumption) -> dict[str, Any]:
    """One row of the validity block."""
    return {
        "assumption": assumption.name,
        "measured": assumption.measured,
        "allowed": assumption.allowed,
        "holds": assumption.holds,
    }


def plain(value: Any) -> Any:
    """Turn arrays and numpy numbers into JSON values, infinities and nan into words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


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


def descended(steps: float, status: Status) -> str:
    """Descent steps for people; a descent that diverges is not the same as one that never arrives."""
    return "diverges" if status is Status.diverged and math.isinf(steps) else whole(steps)


def counted(steps: float) -> float | int:
    """A count as an integer where it is one."""
    return int(steps) if math.isfinite(steps) else steps


def between(interval: tuple[float, float] | None) -> str:
    """An interval of steps for people; nothing where there is none."""
    return "" if interval is None else f"{shown(interval[0], 1)} to {shown(interval[1], 1)}"


def within(interval: tuple[float, float] | None) -> str:
    """The same in brackets, to stand behind a number."""
    return "" if interval is None else f" ({between(interval)})"
