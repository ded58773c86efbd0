"""A paper: its figures, each with labelled data, a picture and numbers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec
from learncast._core.files import write_file
from learncast._core.packages import torch_package
from learncast._core.progress import Progress, silent
from learncast._core.validation import one_of
from learncast.papers.runs import Compute, PaperRun, remembered
from learncast.results import Provenance, described, save_dataset, spec_hash

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Amounts of training: what shows each claim within a minute, the smallest for tests, and the full figure.
PRESETS = ("default", "smoke", "full")
#: Formats of pictures.
FORMATS = ("png", "pdf", "svg")

#: Draws the dataset of a figure.
Paint = Callable[[xr.Dataset], "Figure"]
#: Names and values of a figure's numbers.
Numbers = Iterable[tuple[str, object]]


def captions_of(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the captions in a package's ``captions.toml``, and the phrases that they share."""
    captions = tomllib.loads(files(package).joinpath("captions.toml").read_text(encoding="utf-8"))
    return captions, captions.pop("shared", {})


def painted(draw: Callable[..., object], *, width: float = 3.4, height: float = 2.5, **options: object) -> Paint:
    """Return a function that draws a dataset on one axes."""
    from learncast.figures.page import sheet

    return lambda dataset: sheet(partial(draw, dataset, **options), width=width, height=height)


def schematic(
    draw: Callable[..., object], sizes: Sequence[int]
) -> tuple[Callable[[], xr.Dataset], Paint, Callable[..., Numbers]]:
    """Return data, picture and numbers of a drawing of a network with these numbers of neurons."""
    from learncast.figures.page import sheet

    neurons = xr.Dataset({"neurons": ("layer", list(sizes), described("neurons", "1"))})
    picture = partial(draw, sizes=sizes, title="the network")
    numbers = {"input, hidden and output neurons": list(sizes)}
    return lambda: neurons, lambda _: sheet(picture, width=3.5, height=2.0), lambda _: numbers.items()


def short(value: ArrayLike) -> Any:
    """Return four significant digits of a number or of every number of an array; None for nan, "inf" for infinity."""
    array = np.asarray(value, dtype=float)
    if array.ndim:
        return [short(one) for one in array]
    number = float(array)
    if np.isnan(number):
        return None
    return float(f"{number:.4g}") if np.isfinite(number) else "inf"


@dataclass(frozen=True)
class PaperFigure:
    """One figure.

    Attributes
    ----------
    data : callable
        Makes the dataset: without arguments, or from the results of the runs and the preset.
    paint : callable
        Draws the dataset; `draw` adds the name of the figure.
    summary : callable
        Yields names and values of the numbers in the dataset.
    runs : callable, optional
        Maps a preset to the runs that the figure needs.
    torch : bool
        Whether the runs need torch.

    Examples
    --------
    >>> import learncast as lc
    >>> figure = lc.papers.open_paper("curriculum").figure("3A")
    >>> figure.trained
    False
    >>> dict(figure.make().sizes)
    {'correlation': 5, 'lag': 20}
    """

    name: str
    caption: str
    data: Callable[..., xr.Dataset]
    paint: Callable[[xr.Dataset], Figure]
    summary: Callable[[xr.Dataset], Numbers]
    runs: Callable[[str], Sequence[PaperRun]] | None = None
    torch: bool = True

    @property
    def trained(self) -> bool:
        """Whether the figure needs trained networks."""
        return self.runs is not None

    def make(self, *, preset: str = "smoke", progress: Progress = silent, compute: Compute = remembered) -> xr.Dataset:
        """Return the data; `compute` computes the runs that it needs."""
        if self.runs is None:
            return self.data()
        results = compute(self.runs(preset), progress=progress)
        progress(1.0)
        return self.data(results, preset)

    def draw(self, dataset: xr.Dataset) -> Figure:
        """Draw a dataset, with the name of the figure before the first title."""
        from learncast.figures.page import label

        figure = self.paint(dataset)
        first = figure.axes[0]
        title = f"{self.name}  {first.get_title(loc='left')}"
        label(first, x=first.get_xlabel(), y=first.get_ylabel(), title=title)
        return figure

    def numbers(self, dataset: xr.Dataset) -> dict[str, object]:
        """Return the numbers of a dataset by name."""
        return dict(self.summary(dataset))


@dataclass(frozen=True)
class Paper:
    """A paper's figures and citation key.

    Attributes
    ----------
    presets : tuple of str
        Amounts of training, the default first.
    note : str
        Text on every picture that is not a reproduction.
    stored : callable, optional
        Returns results of the default preset that come with the package.

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
    stored: Compute | None = None

    def selected(self, name: str | None, preset: str) -> tuple[PaperFigure, ...]:
        """Return the figures with a name or number, or all that a preset has; check that torch is installed."""
        one_of("preset", preset, self.presets)
        asked = self.figures if name is None else self.chosen(name)
        figures = tuple(figure for figure in asked if figure.runs is None or figure.runs(preset))
        if not figures:
            raise InvalidSpec(f"preset must have figure {name}: {preset} has none.", field="preset")
        if preset != self.presets[0] and not any(figure.trained for figure in figures):
            raise InvalidSpec(f"preset must be left out: figure {name} needs no training.", field="preset")
        trained = [figure.name for figure in figures if figure.trained and figure.torch]
        if trained:
            torch_package(f"for figure {trained[0]} of {self.name}")
        return figures

    def chosen(self, name: str) -> tuple[PaperFigure, ...]:
        """Return the figure with a name, or all panels of the figure with a number."""
        if not name.isdigit():
            return (self.figure(name),)
        # 12 is not a panel of 1; a supplementary figure has its number too.
        numbered = [[f for f in self.figures if re.fullmatch(rf"{start}{name}\D*", f.name)] for start in ("", "S")]
        return tuple(numbered[0] or numbered[1]) or (self.figure(name),)

    def figure(self, name: str) -> PaperFigure:
        """Return the figure with a name."""
        known = {figure.name.lower(): figure for figure in self.figures}
        # An unknown name is refused with the list of names.
        return known.get(name.lower()) or known[one_of("figure", name, tuple(one.name for one in self.figures))]

    def write(
        self, figure: PaperFigure, dataset: xr.Dataset, folder: Path, *, preset: str, formats: Sequence[str]
    ) -> dict[str, object]:
        """Write one figure's pictures, data and table, and return its caption, numbers and files."""
        from learncast.figures.page import style

        stem, numbers = f"figure_{figure.name}", figure.numbers(dataset)
        with style():
            names = _write_pictures(self._stamped(figure.draw(dataset), preset, figure), folder / stem, formats)
        kind = "training" if figure.trained else "theory"
        provenance = Provenance(kind, (self.citation,), spec_hash(self.name, figure.name, preset))
        save_dataset(dataset, folder / f"{stem}.nc", kind="figure", provenance=provenance)
        write_file(folder / f"{stem}.csv", table_of(dataset))
        return {"caption": figure.caption, "numbers": numbers, "files": [*names, f"{stem}.nc", f"{stem}.csv"]}

    def _stamped(self, page: Figure, preset: str, *figures: PaperFigure) -> Figure:
        """Print the note on a picture, and the preset if it is smoke and networks were trained."""
        from learncast.figures.page import stamped

        least = preset == "smoke" and any(figure.trained for figure in figures)
        text = ", ".join(filter(None, (self.note, f"preset {preset}" if least else "")))
        return stamped(page, text) if text else page


def _write_pictures(figure: Figure, path: Path, formats: Sequence[str]) -> list[str]:
    """Write the picture in each format, without a date: equal data give equal bytes. Return the names of the files."""
    from learncast.figures.page import DPI

    dates: dict[str, dict[str, object]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    for suffix in formats:
        one_of("format", suffix, FORMATS)
        fast: dict[str, Any] = {"pil_kwargs": {"compress_level": 2}} if suffix == "png" else {}
        figure.savefig(path.with_name(f"{path.name}.{suffix}"), dpi=DPI, metadata=dates[suffix], **fast)
        figure.set_layout_engine("none")  # the layout is computed once for all formats
    return [f"{path.name}.{suffix}" for suffix in formats]


def table_of(dataset: xr.Dataset) -> str:
    """Return all numbers of a dataset as comma-separated values, one row for each."""
    parts = []
    for name, values in dataset.data_vars.items():
        plain = values.drop_vars([c for c in values.coords if c not in values.dims])
        single = pd.DataFrame({"number": [plain.values[()]]})
        frame = plain.to_dataframe(name="number").reset_index() if values.ndim else single
        frame.insert(0, "variable", str(name))
        frame.insert(1, "units", str(values.attrs.get("units", "1")))
        parts.append(frame)
    order = ["variable", "units", *dict.fromkeys(c for part in parts for c in part.columns[2:-1]), "number"]
    look: dict[str, Any] = {"index": False, "na_rep": "nan", "float_format": "%.7g"}
    return "".join(part.reindex(columns=order).to_csv(header=part is parts[0], **look) for part in parts)
