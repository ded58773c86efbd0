"""A paper's figures from runs that are kept in a store, and so survive being stopped."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr

from learncast.errors import InvalidSpec, SchemaMismatch
from learncast.papers import Paper, PaperRun, open_paper, reproduce
from learncast.progress import Progress, silent
from learncast.sweep.driver import Summary
from learncast.sweep.grid import Axis, Grid
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.spec import canonical, digest_of, text_of
from learncast.sweep.store import Place, Store
from learncast.sweep.sweeping import function_name, run

_KEYS = ("function", "settings")


def computed_run(spec: Mapping[str, Any]) -> xr.Dataset:
    """One run of a paper, its function looked up by name."""
    module, _, name = spec["function"].partition(":")
    found: xr.Dataset = getattr(import_module(module), name)(spec["settings"])
    return found


@dataclass(frozen=True)
class Reproduction:
    """Figures of a paper, whose runs are the tasks of a sweep.

    Attributes
    ----------
    paper : str
        A key of `papers.PAPERS`.
    figure : str or None
        As for `papers.reproduce`.
    preset : str
    store : Path
        Folder of the sweep. Other figures of the same preset can be drawn from it if it has all their runs.
    """

    paper: str
    figure: str | None
    preset: str
    store: Path

    @classmethod
    def of(cls, paper: str, *, figure: str | None = None, preset: str = "smoke", store: Place) -> Reproduction:
        """Check that there are such figures, and that something is run for them."""
        found = cls(paper, figure, preset, Path(store))
        if not found.runs():
            raise InvalidSpec(
                required="a store must be given only for figures with runs",
                got=f"figure {figure}" if figure else f"{paper}, of which no figure has any",
                why="there is nothing to keep in it",
                remedy="leave the store out: the figure is made in this process",
            )
        return found

    def runs(self) -> list[PaperRun]:
        """What must be computed for the figures, each run once."""
        paper = open_paper(self.paper)
        return _distinct(paper, [figure.name for figure in paper.selected(self.figure, self.preset)], self.preset)

    def train(self, **options: Any) -> Summary:
        """Compute the runs that the store has not got; what an earlier call gave up is tried again.

        Parameters
        ----------
        executor, workers, watcher
            As for `sweep.run`.
        """
        # One at a time: runs are long, and some much longer than others.
        return run(computed_run, self._grid(), store=self.store, base=self._base(), retry=True, batch=1, **options)

    def draw(self, *, out: Place = "reproduced", progress: Progress = silent) -> dict[str, Any]:
        """Make the figures from the stored runs; the rest is as for `papers.reproduce`."""
        results = partial(stored_runs, self.store)
        return reproduce(
            self.paper, figure=self.figure, preset=self.preset, out=Path(out), progress=progress, compute=results
        )

    def _grid(self) -> Grid:
        """The runs; of a store that was begun with more runs than these, all of them."""
        points = [_point(one) for one in self.runs()]
        own, place = Grid((Axis(_KEYS, tuple(points)),)), Store(self.store)
        if not place.begun():
            return own
        begun = place.study()
        grid = Grid.from_described(begun["grid"])
        known = {text_of(grid.cell(k)) for k in range(grid.size)}
        if all(text_of(own.cell(k)) in known for k in range(own.size)):
            return grid
        # Another paper, preset or version is the sweep's to refuse: it says what changed.
        if begun["base"] == self._base() and begun["function"] == function_name(computed_run):
            raise InvalidSpec(
                required=f"{self.store} must have been begun with all runs of these figures",
                got=f"a store of {grid.size} other runs",
                why="the runs of a store are fixed when it is begun",
                remedy="use another folder, or begin one without --figure",
            )
        return own

    def _base(self) -> dict[str, Any]:
        """What all runs share; the text of their modules too, since results of two versions must not be mixed."""
        paper = open_paper(self.paper)
        every = _distinct(paper, [figure.name for figure in paper.figures], self.preset)
        names = sorted({one.function.__module__ for one in every})
        sources = {name.rpartition(".")[2]: digest_of(inspect.getsource(import_module(name))) for name in names}
        return {"paper": self.paper, "preset": self.preset, "sources": sources}


def stored_runs(store: Path, runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
    """Results of runs in their order, read from a store: the `Compute` of figures whose runs are done."""
    place = Store(store)
    grid = place.grid()
    with place.ledger() as ledger:
        done = {text_of(grid.cell(row.position)): row for row in ledger.rows(TaskStatus.done)}
    found = []
    for k, one in enumerate(runs):
        row = done.get(text_of(dict(zip(_KEYS, _point(one), strict=True))))
        if row is None:
            raise SchemaMismatch(
                required=f"{store} must hold the results of these runs",
                got=f"no result of {one.name} with {dict(one.settings)!r}"[:200],
                why="a figure needs all of them",
                remedy="run `learncast sweep verify` on the store, then the same command again",
            )
        found.append(place.result(row))
        progress((k + 1) / len(runs))
    return found


def _distinct(paper: Paper, names: Sequence[str], preset: str) -> list[PaperRun]:
    found: dict[str, PaperRun] = {}
    for name in names:
        planned = paper.figure(name).runs
        for one in planned(preset) if planned is not None else ():
            found.setdefault(text_of(_point(one)), one)
    return list(found.values())


def _point(one: PaperRun) -> tuple[str, Any]:
    return one.name, canonical(one.settings, "settings")
