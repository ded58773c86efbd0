"""A paper: its figures, each a spec that makes labelled data, a picture and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.errors import InvalidSpec, suggestion
from learncast.files import write_file
from learncast.packages import torch_package
from learncast.papers.runs import Compute, PaperRun, one_by_one, remembered
from learncast.progress import Progress, silent
from learncast.trajectory import Provenance, save_dataset, spec_hash
from learncast.validation import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: How much training goes into a figure that needs some: a quick look, or all of it.
PRESETS = ("smoke", "full")


def short(value: Any) -> float | str | None:
    """Four digits of a number; None for unknown, a word for infinite."""
    number = float(value)
    if np.isnan(number):
        return None
    return float(f"{number:.4g}") if np.isfinite(number) else "inf"


@dataclass(frozen=True)
class PaperFigure:
    """One figure: data from a spec, a drawing from the data, numbers from the data.

    Attributes
    ----------
    data : callable
        Makes the dataset: of nothing, or when the figure is `trained` of the results of its runs and the preset.
    runs : callable, optional
        From a preset to what must be computed for it.
    compute : Compute
        What computes the runs, unless they are computed elsewhere.
    stored : bool
        Whether the runs' functions also take ``folder``, in which trained networks are kept for the next time.
    """

    name: str
    caption: str
    data: Callable[..., xr.Dataset]
    draw: Callable[[xr.Dataset], Figure]
    numbers: Callable[[xr.Dataset], dict[str, Any]]
    runs: Callable[[str], Sequence[PaperRun]] | None = None
    compute: Compute = one_by_one
    stored: bool = False

    @property
    def trained(self) -> bool:
        """Whether networks are trained for it."""
        return self.runs is not None

    def made(
        self,
        *,
        preset: str = "smoke",
        folder: Path | None = None,
        progress: Progress = silent,
        compute: Compute | None = None,
    ) -> xr.Dataset:
        """The data, for which networks are trained if it needs some: here, or wherever `compute` does it."""
        if self.runs is None:
            return self.data()
        here = partial(one_by_one, folder=folder) if self.stored else partial(remembered, self.compute)
        found = (compute or here)(self.runs(preset), progress=progress)
        progress(1.0)
        return self.data(found, preset)


@dataclass(frozen=True)
class Paper:
    """A paper's figures under its citation key."""

    name: str
    citation: str
    figures: tuple[PaperFigure, ...]
    presets: tuple[str, ...] = PRESETS

    def selected(self, name: str | None, preset: str) -> tuple[PaperFigure, ...]:
        """The figures of that name or number, or all; the preset must be one of the paper's."""
        one_of("preset", preset, self.presets, why="it says how much is trained for a figure")
        found = self.figures if name is None else self.chosen(name)
        trained = [figure.name for figure in found if figure.trained]
        if trained:
            torch_package(f"for figure {trained[0]} of {self.name}")
        return found

    def chosen(self, name: str) -> tuple[PaperFigure, ...]:
        """The figure of that name, or all panels of the figure of that number."""
        known = [f for f in self.figures if f.name.lower().startswith(name.lower()) and name.isdigit()]
        panels = tuple(f for f in known if not f.name[len(name) :][:1].isdigit())  # 12 is no panel of 1
        return panels or (self.figure(name),)

    def figure(self, name: str) -> PaperFigure:
        """The figure of that name."""
        known = {figure.name.lower(): figure for figure in self.figures}
        if name.lower() not in known:
            raise InvalidSpec(
                required=f"the paper {self.name} must have the figure",
                got=repr(name),
                why=f"it has {', '.join(f.name for f in self.figures)}",
                remedy=suggestion(name.upper(), tuple(f.name for f in self.figures)) or "use one of these",
            )
        return known[name.lower()]

    def write(
        self,
        figure: PaperFigure,
        folder: Path,
        *,
        preset: str = "smoke",
        progress: Progress = silent,
        compute: Compute | None = None,
    ) -> dict[str, Any]:
        """Make one figure: picture and data to files, caption and numbers returned."""
        dataset = figure.made(preset=preset, folder=folder, progress=progress, compute=compute)
        stem = f"figure_{figure.name}"
        numbers, picture = figure.numbers(dataset), BytesIO()
        figure.draw(dataset).savefig(picture, format="png", dpi=160)
        # No figure is written before everything is made.
        kind = "training" if figure.trained else "theory"
        provenance = Provenance(kind, (self.citation,), spec_hash(self.name, figure.name, preset))
        save_dataset(dataset, folder / f"{stem}.nc", kind="figure", provenance=provenance)
        write_file(folder / f"{stem}.png", picture.getvalue())
        return {"caption": figure.caption, "numbers": numbers, "files": [f"{stem}.png", f"{stem}.nc"]}
