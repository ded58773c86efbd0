"""A paper: its figures, each a spec that makes labelled data, a picture and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.files import write_file
from learncast._core.packages import torch_package
from learncast._core.progress import Progress, silent
from learncast._core.validation import one_of
from learncast.papers.runs import Compute, PaperRun, remembered
from learncast.results import Provenance, save_dataset, spec_hash

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: How much training goes into a figure that needs some: a quick look, or all of it.
PRESETS = ("smoke", "full")
#: Kinds of picture files.
FORMATS = ("png", "pdf", "svg")


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
    torch : bool
        Whether the runs train in torch.

    Examples
    --------
    >>> import learncast as lc
    >>> figure = lc.papers.open_paper("curriculum").figure("3A")
    >>> figure.trained, figure.page
    (False, '3')
    >>> dict(figure.made().sizes)
    {'correlation': 5, 'lag': 20}
    """

    name: str
    caption: str
    data: Callable[..., xr.Dataset]
    draw: Callable[[xr.Dataset], Figure]
    numbers: Callable[[xr.Dataset], dict[str, Any]]
    runs: Callable[[str], Sequence[PaperRun]] | None = None
    torch: bool = True

    @property
    def trained(self) -> bool:
        """Whether networks are trained for it."""
        return self.runs is not None

    @property
    def page(self) -> str:
        """The number of the printed figure it is a panel of, empty where it is a whole figure or none of the print."""
        found = re.fullmatch(r"(S?\d+)[A-Za-z]", self.name)
        return found[1] if found else ""

    def made(self, *, preset: str = "smoke", progress: Progress = silent, compute: Compute = remembered) -> xr.Dataset:
        """The data, for which networks are trained if it needs some: here, or wherever `compute` does it."""
        if self.runs is None:
            return self.data()
        found = compute(self.runs(preset), progress=progress)
        progress(1.0)
        return self.data(found, preset)


@dataclass(frozen=True)
class Paper:
    """A paper's figures under its citation key.

    Attributes
    ----------
    note : str
        What stands on every picture, so that it is not taken for the paper's.

    Examples
    --------
    >>> import learncast as lc
    >>> paper = lc.papers.open_paper("curriculum")
    >>> paper.citation
    'curriculum2025'
    >>> [figure.name for figure in paper.chosen("2")]
    ['2A', '2B', '2C', '2D']
    """

    name: str
    citation: str
    figures: tuple[PaperFigure, ...]
    presets: tuple[str, ...] = PRESETS
    note: str = ""

    def selected(self, name: str | None, preset: str) -> tuple[PaperFigure, ...]:
        """The figures of that name or number, or all; the preset must be one of the paper's."""
        one_of("preset", preset, self.presets)
        found = self.figures if name is None else self.chosen(name)
        if preset != self.presets[0] and not any(figure.trained for figure in found):
            raise InvalidSpec(
                f"a preset other than {self.presets[0]} must be for a figure that is trained, got preset "
                f"{preset!r} for figure {name}. Leave the preset out."
            )
        trained = [figure.name for figure in found if figure.trained and figure.torch]
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
            raise InvalidSpec(f"the paper {self.name} must have the figure, got {name!r}.")
        return known[name.lower()]

    def pages(self, chosen: Sequence[PaperFigure]) -> dict[str, list[PaperFigure]]:
        """Numbers of the printed figures of which all panels are chosen, with the panels; two at least."""
        found: dict[str, list[PaperFigure]] = {}
        for figure in self.figures:
            if figure.page:
                found.setdefault(figure.page, []).append(figure)
        return {n: panels for n, panels in found.items() if len(panels) > 1 and all(p in chosen for p in panels)}

    def write(
        self, figure: PaperFigure, dataset: xr.Dataset, folder: Path, *, preset: str, formats: Sequence[str] = FORMATS
    ) -> dict[str, Any]:
        """Write one figure's picture, data and table to files; caption and numbers are returned."""
        stem, numbers = f"figure_{figure.name}", figure.numbers(dataset)
        drawn = pictures(self._drawn(figure, preset), dataset, formats)
        # No figure is written before everything is made.
        kind = "training" if figure.trained else "theory"
        provenance = Provenance(kind, (self.citation,), spec_hash(self.name, figure.name, preset))
        save_dataset(dataset, folder / f"{stem}.nc", kind="figure", provenance=provenance)
        write_file(folder / f"{stem}.csv", table_of(dataset))
        for suffix, content in drawn.items():
            write_file(folder / f"{stem}.{suffix}", content)
        files = [*(f"{stem}.{suffix}" for suffix in drawn), f"{stem}.nc", f"{stem}.csv"]
        return {"caption": figure.caption, "numbers": numbers, "files": files}

    def write_page(
        self,
        number: str,
        panels: Sequence[tuple[PaperFigure, xr.Dataset]],
        folder: Path,
        *,
        preset: str,
        formats: Sequence[str] = FORMATS,
    ) -> list[str]:
        """Write one page with all panels of a printed figure; the names of its files."""
        from learncast.figures.page import composite, stamped, style

        draws = [(figure.draw, dataset) for figure, dataset in panels]
        words = self._stamp(preset, *(figure for figure, _ in panels))
        with style():
            sheets = [stamped(page, words) if words else page for page in composite(draws)]
        names = []
        for k, page in enumerate(sheets):
            stem = f"figure_{number}" if len(sheets) == 1 else f"figure_{number}_page{k + 1}"
            for suffix, content in pictures(lambda drawn: drawn, page, formats).items():
                write_file(folder / f"{stem}.{suffix}", content)
                names.append(f"{stem}.{suffix}")
        return names

    def _drawn(self, figure: PaperFigure, preset: str) -> Callable[[xr.Dataset], Figure]:
        """What draws a figure, with its stamp."""
        from learncast.figures.page import stamped

        words = self._stamp(preset, figure)
        return (lambda dataset: stamped(figure.draw(dataset), words)) if words else figure.draw

    def _stamp(self, preset: str, *figures: PaperFigure) -> str:
        """Whose experiment it is, and the smallest preset where it has changed what is seen."""
        least = preset == self.presets[0] and any(figure.trained for figure in figures)
        return ", ".join(filter(None, (self.note, f"preset {preset}" if least else "")))


def pictures(draw: Callable[[Any], Figure], dataset: Any, formats: Sequence[str]) -> dict[str, bytes]:
    """The picture of each format, by its suffix; the same data give the same bytes."""
    from learncast.figures.page import DPI, style

    found = {}
    with style():
        drawn = draw(dataset)
        for suffix in formats:
            one_of("format", suffix, FORMATS)
            content = BytesIO()
            # No dates: equal numbers give equal files.
            dated: Mapping[str, Any] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[suffix]
            drawn.savefig(content, format=suffix, dpi=DPI, metadata=dict(dated))
            found[suffix] = content.getvalue()
            drawn.set_layout_engine("none")  # all formats have one layout, found once
    return found


def table_of(dataset: xr.Dataset) -> str:
    """All numbers of a dataset as comma-separated values, one row for each, with its place along every dimension."""
    import pandas as pd

    parts = []
    for name, values in dataset.data_vars.items():
        plain = values.drop_vars([c for c in values.coords if c not in values.dims])
        single = pd.DataFrame({"number": [plain.values[()]]})
        frame = plain.to_dataframe(name="number").reset_index() if values.ndim else single
        frame.insert(0, "variable", str(name))
        frame.insert(1, "units", str(values.attrs.get("units", "1")))
        parts.append(frame.astype({"number": object}))
    whole = pd.concat(parts, ignore_index=True)
    order = ["variable", "units", *(c for c in whole.columns if c not in ("variable", "units", "number")), "number"]
    text = whole[order].map(lambda v: f"{v:.7g}" if isinstance(v, float) else v).to_csv(index=False)
    return str(text)
