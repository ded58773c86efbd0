"""A paper's figures as a sweep: its runs are the tasks of a store, and gathering them draws the figures."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr

from learncast import papers
from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.progress import Progress, silent
from learncast.papers import Paper, PaperRun, open_paper, reproduce
from learncast.sweep.driver import Summary
from learncast.sweep.executors import Executor
from learncast.sweep.grid import Axis, Grid
from learncast.sweep.ledger import Row, TaskStatus
from learncast.sweep.spec import canonical, digest_of, text_of
from learncast.sweep.store import Place, Store
from learncast.sweep.sweeping import Sweep, carry_out, executor_of, function_name, outlook

_KEYS = ("function", "settings")
#: Where a result says what it took.
CPU = "cpu_seconds"


def computed_run(spec: Mapping[str, Any]) -> xr.Dataset:
    """One run of a paper, its function looked up by name, with the CPU seconds it took."""
    module, _, name = str(spec["function"]).partition(":")
    # A store that somebody else made could name any function of this machine.
    function = getattr(import_module(module), name, None) if module.startswith(f"{papers.__name__}.") else None
    if not inspect.isfunction(function) or function.__module__ != module:
        raise InvalidSpec(
            required="a run of a paper must name one of its functions",
            got=repr(spec["function"])[:100],
            why="it is looked up by that name and called",
            remedy="begin the reproduction anew in another store",
        )
    begun = time.process_time()
    found: xr.Dataset = function(spec["settings"])
    return found.assign_attrs({CPU: time.process_time() - begun})


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
    stores : tuple of Path
        Folders of the sweep. Runs that are in none of them are computed into the first. Other figures, seeds and
        cells of the same preset share it: only what is missing is computed.
    choices : mapping
        As for `papers.open_paper`.
    shard : pair of int, optional
        ``(k, n)``: compute only the k-th of n shares; the stores of all shares together draw the figures.
    """

    paper: str
    figure: str | None
    preset: str
    stores: tuple[Path, ...]
    choices: Mapping[str, Any] = field(default_factory=dict)
    shard: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        paper: str,
        *,
        figure: str | None = None,
        preset: str = "smoke",
        store: Place | Sequence[Place],
        shard: tuple[int, int] | None = None,
        **choices: Any,
    ) -> Reproduction:
        """Check that there are such figures."""
        places = (store,) if isinstance(store, str | Path) or not isinstance(store, Sequence) else tuple(store)
        found = cls(paper, figure, preset, tuple(Path(place) for place in places), choices, shard)
        found.runs()
        return found

    def runs(self) -> list[PaperRun]:
        """What must be computed for the figures, each run once."""
        paper = self._opened()
        return _distinct(paper, [figure.name for figure in paper.selected(self.figure, self.preset)], self.preset)

    def missing(self) -> list[PaperRun]:
        """Those of the runs that no store has."""
        done = _finished(self.stores, self._base())
        return [one for one in self.runs() if text_of(_cell(one)) not in done]

    def train(
        self, *, executor: str | Executor = "processes", workers: int | None = None, **options: Any
    ) -> Summary | None:
        """Compute the runs that the stores have not got; what an earlier call gave up is tried again.

        Parameters
        ----------
        executor, workers, fail_fast, watcher
            As for `sweep.run`.

        Returns
        -------
        Summary or None
            None where nothing had to be computed.
        """
        missing = self.missing()
        if not missing:
            return None
        sweep = self._sweep(missing)
        # One at a time: runs are long, and some much longer than others.
        given = {"batch": 1, **{key: value for key, value in options.items() if value is not None}}
        return carry_out(sweep, self.stores[0], executor_of(executor, workers), retry=True, **given)

    def draw(self, *, out: Place = "reproduced", progress: Progress = silent, **options: Any) -> dict[str, Any]:
        """Make the figures from the stored runs; the rest is as for `papers.reproduce`.

        The CPU seconds of the runs are with the figures, as ``cpu_seconds``.
        """
        gathering = Gathering(self.stores, self._base())
        made = reproduce(
            self.paper,
            figure=self.figure,
            preset=self.preset,
            out=Path(out),
            progress=progress,
            compute=gathering,
            **options,
            **self.choices,
        )
        return made | {CPU: sum(gathering.seconds.values())}

    def outlook(self, *, workers: int) -> dict[str, Any]:
        """What is left to compute will take: ``runs``, ``missing``, ``cpu_seconds`` and ``seconds`` with the workers.

        Runs that say themselves what they take are asked, one of each kind; of the others a few are tried.
        """
        missing, cpu, known = self.missing(), 0.0, dict[str, float]()
        for one in missing:
            if one.estimate is not None:
                kind = text_of([one.name, {key: v for key, v in one.settings.items() if key != "seed"}])
                cpu += known.setdefault(kind, one.estimate(one.settings) if kind not in known else 0.0)
        tried = [one for one in missing if one.estimate is None]
        found: dict[str, Any] = {"pilot": 0, "failed": 0, "error": ""}
        if tried:
            found |= outlook(Sweep(computed_run, _grid_of(tried), self._base(), {}, self.shard), workers=workers)
            cpu += found["task_seconds"] * len(tried)
        told = {key: found[key] for key in ("pilot", "failed", "error")}
        return {"runs": len(self.runs()), "missing": len(missing), CPU: cpu, "seconds": cpu / workers, **told}

    def _opened(self) -> Paper:
        return open_paper(self.paper, **self.choices)

    def _sweep(self, missing: Sequence[PaperRun]) -> Sweep:
        """The sweep of the first store, which is made to hold the missing runs too."""
        place = Store(self.stores[0])
        begun, base = place.study() if place.begun() else None, self._base()
        if begun is None or begun["function"] != function_name(computed_run):
            return Sweep(computed_run, _grid_of(missing), base, {}, self.shard)
        before = Grid.from_described(begun["grid"])
        held = {text_of(before.cell(k)) for k in range(before.size)}
        new = _grid_of([one for one in missing if text_of(_cell(one)) not in held])
        grid = Grid((Axis(_KEYS, (*before.axes[0].points, *new.axes[0].points)),))
        sweep = Sweep(computed_run, grid, base, {}, self.shard)
        as_it_was = replace(sweep, grid=before)
        if new.size and digest_of(as_it_was.study()) == digest_of(begun):
            with place.locked():
                place.extend(sweep.study(), sweep.tasks())
            return sweep
        # Another paper, preset or version is the sweep's to refuse: it says what changed.
        return as_it_was

    def _base(self) -> dict[str, Any]:
        """What all runs share; the text of their modules too, since results of two versions must not be mixed."""
        paper = open_paper(self.paper)
        every = _distinct(paper, [figure.name for figure in paper.figures], self.preset)
        names = sorted({one.function.__module__ for one in every})
        sources = {name.rpartition(".")[2]: digest_of(inspect.getsource(import_module(name))) for name in names}
        return {"paper": self.paper, "preset": self.preset, "sources": sources}


def default_store(paper: str, preset: str, out: Place) -> Path:
    """Where runs are kept when no store is named: beside the figures' folder, in one for this version of the runs.

    Not inside of it: a folder that holds no other can be replaced at once.
    """
    base, figures = Reproduction(paper, None, preset, ())._base(), Path(out).absolute()
    return figures.with_name(f"{figures.name}-runs") / f"{preset}-{digest_of(base)[:8]}"


@dataclass(eq=False)
class Gathering:
    """Results of runs in their order, read from stores: the `Compute` of figures whose runs are done.

    Attributes
    ----------
    stores, base
        Where they are, and what all of them must have been computed with.
    seconds : dict
        CPU seconds of every run that was read.
    """

    stores: Sequence[Path]
    base: Mapping[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._done = _finished(self.stores, self.base)

    def __call__(self, runs: Sequence[PaperRun], *, progress: Progress = silent) -> list[xr.Dataset]:
        """Read the results."""
        found = []
        for k, one in enumerate(runs):
            text = text_of(_cell(one))
            if text not in self._done:
                raise SchemaMismatch(
                    required=f"{', '.join(map(str, self.stores))} must hold the results of these runs",
                    got=f"no result of {one.name} with {dict(one.settings)!r}"[:200],
                    why="a figure needs all of them",
                    remedy="run `learncast sweep verify` on the store, then the same command again",
                )
            place, row = self._done[text]
            result = place.result(row)
            self.seconds[text] = float(result.attrs.pop(CPU, 0.0))
            found.append(result)
            progress((k + 1) / len(runs))
        return found


def _finished(stores: Sequence[Path], base: Mapping[str, Any]) -> dict[str, tuple[Store, Row]]:
    """Where the result of every finished run is; what another version, paper or preset computed does not count."""
    found: dict[str, tuple[Store, Row]] = {}
    for place in map(Store, stores):
        if not place.begun() or place.study()["base"] != base:
            continue
        grid = place.grid()
        with place.ledger() as ledger:
            found |= {text_of(grid.cell(row.position)): (place, row) for row in ledger.rows(TaskStatus.done)}
    return found


def _distinct(paper: Paper, names: Sequence[str], preset: str) -> list[PaperRun]:
    found: dict[str, PaperRun] = {}
    for name in names:
        planned = paper.figure(name).runs
        for one in planned(preset) if planned is not None else ():
            found.setdefault(text_of(_cell(one)), one)
    return list(found.values())


def _grid_of(runs: Sequence[PaperRun]) -> Grid:
    return Grid((Axis(_KEYS, tuple(tuple(_cell(one).values()) for one in runs)),))


def _cell(one: PaperRun) -> dict[str, Any]:
    return dict(zip(_KEYS, (one.name, canonical(one.settings, "settings")), strict=True))
