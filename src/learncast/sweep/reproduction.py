"""The reproduction of a paper's figures as a sweep over the runs they need."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr

from learncast import papers
from learncast._core.errors import InvalidSpec, SchemaMismatch, brief
from learncast._core.progress import Progress, silent
from learncast.papers import PaperFigure, PaperRun, open_paper, reproduce
from learncast.sweep.driver import Summary
from learncast.sweep.executors import Executor
from learncast.sweep.grid import Grid, GridAxis
from learncast.sweep.ledger import Row, TaskStatus
from learncast.sweep.spec import Tables, canonical, digest_of, json_text
from learncast.sweep.store import PathLike, Store
from learncast.sweep.sweeping import Sweep, estimate_cost, executor_of, function_name, run_sweep

_KEYS = ("function", "settings")
#: Attribute of a result with its CPU seconds.
CPU = "cpu_seconds"


def compute_run(spec: Mapping[str, object]) -> xr.Dataset:
    """Compute one run of a paper, and note the CPU seconds it took."""
    module, _, name = str(spec["function"]).partition(":")
    # A store from somebody else could name any function.
    function = getattr(import_module(module), name, None) if module.startswith(f"{papers.__name__}.") else None
    if not inspect.isfunction(function) or function.__module__ != module:
        raise InvalidSpec(f"function must be a run of a paper, got {brief(spec['function'])}.", field="function")
    begun = time.process_time()
    result: xr.Dataset = function(spec["settings"])
    return result.assign_attrs({CPU: time.process_time() - begun})


class Reproduction:
    """Figures of a paper whose runs are the tasks of a sweep.

    Parameters
    ----------
    paper : str
        A key of `papers.PAPERS`.
    figure : str, optional
        As for `papers.reproduce`.
    preset : str, optional
        One of `Paper.presets`; by default the first.
    store : path or sequence of paths
        Folders of the sweep. Runs that are in none of them are computed into the first. Other figures, seeds and
        cells of one preset share the store, and only missing runs are computed.
    shard : pair of int, optional
        ``(k, n)``: compute only the k-th of n shards. The figures need the stores of all shards.
    **choices
        As for `papers.open_paper`.

    Attributes
    ----------
    runs : list of PaperRun
        Runs that the figures need, without duplicates.
    stores : tuple of Path
    """

    def __init__(
        self,
        paper: str,
        *,
        figure: str | None = None,
        preset: str | None = None,
        store: PathLike | Sequence[PathLike],
        shard: tuple[int, int] | None = None,
        **choices: object,
    ) -> None:
        opened = open_paper(paper, **choices)
        self.paper, self.figure, self.shard, self.choices = paper, figure, shard, choices
        self.preset = preset or opened.presets[0]
        self.stores = tuple(map(Path, [store] if isinstance(store, str | os.PathLike) else store))
        self.runs = _distinct(opened.selected(figure, self.preset), self.preset)

    def missing(self) -> list[PaperRun]:
        """Return the runs that no store has."""
        done = _finished(self.stores, run_base(self.paper, self.preset))
        return [one for one in self.runs if json_text(_cell(one)) not in done]

    def train(
        self, *, executor: str | Executor = "processes", workers: int | None = None, **options: object
    ) -> Summary | None:
        """Compute the missing runs, including those that failed before.

        Parameters
        ----------
        executor, workers, fail_fast, watcher
            As for `sweep.run`.

        Returns
        -------
        Summary or None
            None if no run was missing.
        """
        missing = self.missing()
        if not missing:
            return None
        # One at a time: runs are long, and some much longer than others.
        given = {"batch": 1, **{key: value for key, value in options.items() if value is not None}}
        sweep = self._sweep(missing)
        return run_sweep(sweep, self.stores[0], executor_of(executor, workers), retry=True, **given)

    def draw(self, *, out: PathLike = "reproduced", progress: Progress = silent, **options: Any) -> Tables:
        """Make the figures from the stored runs, as `papers.reproduce` does.

        The result also has the total ``cpu_seconds`` of the runs.
        """
        done, seconds = _finished(self.stores, run_base(self.paper, self.preset)), dict[str, float]()

        def stored(runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
            results = []
            for k, one in enumerate(runs):
                text = json_text(_cell(one))
                if text not in done:
                    wanted = f"{one.name} with {brief(dict(one.settings))}"
                    raise SchemaMismatch(f"The store must have {wanted}. Run `learncast sweep verify`.", field="store")
                place, row = done[text]
                results.append(place.result(row))
                seconds[text] = float(results[-1].attrs.pop(CPU, 0.0))
                progress((k + 1) / len(runs))
            return results

        options |= {"figure": self.figure, "preset": self.preset, "compute": stored, **self.choices}
        made = reproduce(self.paper, out=Path(out), progress=progress, **options)
        return made | {CPU: sum(seconds.values())}

    def estimate(self, *, workers: int) -> Tables:
        """Return what is left to compute: ``runs``, ``missing``, ``cpu_seconds`` and ``seconds``.

        Runs that have an estimate are asked for it; a few of the others are tried.
        """
        missing = self.missing()
        cpu = sum((one.estimate(one.settings) for one in missing if one.estimate is not None), 0.0)
        untried = [one for one in missing if one.estimate is None]
        pilot: Tables = {"pilot": 0, "failed": 0, "error": ""}
        if untried:
            sweep = Sweep(compute_run, _grid(untried), run_base(self.paper, self.preset), {}, self.shard)
            cost = estimate_cost(sweep, workers=workers)
            pilot = {key: cost[key] for key in pilot}
            cpu += cost["task_seconds"] * len(untried)
        return {"runs": len(self.runs), "missing": len(missing), CPU: cpu, "seconds": cpu / workers, **pilot}

    def _sweep(self, missing: Sequence[PaperRun]) -> Sweep:
        """Return the sweep of the first store, extended by the missing runs."""
        place = Store(self.stores[0])
        stored, base = place.study() if place.begun() else None, run_base(self.paper, self.preset)
        if stored is None or stored["function"] != function_name(compute_run):
            return Sweep(compute_run, _grid(missing), base, {}, self.shard)
        before = Grid.from_dict(stored["grid"])
        known = {json_text(before.cell(k)) for k in range(before.size)}
        new = _grid([one for one in missing if json_text(_cell(one)) not in known])
        grid = Grid((GridAxis(_KEYS, (*before.axes[0].points, *new.axes[0].points)),))
        sweep = Sweep(compute_run, grid, base, {}, self.shard)
        unchanged = replace(sweep, grid=before)
        if new.size and digest_of(unchanged.study()) == digest_of(stored):
            with place.locked():
                place.extend(sweep.study(), sweep.tasks())
            return sweep
        # If the paper, preset or version differs, running this sweep reports what changed.
        return unchanged


def run_base(paper: str, preset: str) -> Tables:
    """Return what all runs share, with a hash of their source: results of two versions must not be mixed."""
    names = sorted({one.function.__module__ for one in _distinct(open_paper(paper).figures, preset)})
    sources = {name.rpartition(".")[2]: digest_of(inspect.getsource(import_module(name))) for name in names}
    return {"paper": paper, "preset": preset, "sources": sources}


def default_store(paper: str, preset: str, out: PathLike) -> Path:
    """Return the default store of the runs, next to the folder of the figures.

    It is not inside that folder, because only a folder without subfolders can be replaced atomically.
    """
    figures = Path(out).absolute()
    return figures.with_name(f"{figures.name}-runs") / f"{preset}-{digest_of(run_base(paper, preset))[:8]}"


def _finished(stores: Sequence[Path], base: Mapping[str, Any]) -> dict[str, tuple[Store, Row]]:
    """Return the location of every finished run; those of another version, paper or preset do not count."""
    finished: dict[str, tuple[Store, Row]] = {}
    for place in map(Store, stores):
        if not place.begun() or place.study()["base"] != base:
            continue
        grid = place.grid()
        with place.ledger() as ledger:
            finished |= {json_text(grid.cell(row.position)): (place, row) for row in ledger.rows(TaskStatus.done)}
    return finished


def _distinct(figures: Sequence[PaperFigure], preset: str) -> list[PaperRun]:
    """Return the runs of figures, without duplicates."""
    runs: dict[str, PaperRun] = {}
    for figure in figures:
        for one in figure.runs(preset) if figure.runs is not None else ():
            runs.setdefault(json_text(_cell(one)), one)
    return list(runs.values())


def _grid(runs: Sequence[PaperRun]) -> Grid:
    return Grid((GridAxis(_KEYS, tuple(tuple(_cell(one).values()) for one in runs)),))


def _cell(one: PaperRun) -> Tables:
    return dict(zip(_KEYS, (one.name, canonical(one.settings, "settings")), strict=True))
