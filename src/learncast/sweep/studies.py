"""A study file with a [sweep] table: one command over a grid of studies."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.limits import tables_of
from learncast._core.packages import torch_package
from learncast._core.validation import one_of
from learncast.planning.methods.choice import method_for
from learncast.report.check import check_report
from learncast.report.forecast import forecast_report
from learncast.report.generalise import generalise_report
from learncast.report.plan import plan_report
from learncast.report.report import Report
from learncast.report.window import window_report
from learncast.results import STEPS, described
from learncast.study import Study, WindowStudy
from learncast.study.sections import SweepSection
from learncast.study.study_file import absolute, checked, located
from learncast.sweep.grid import SEED, Grid, GridAxis
from learncast.sweep.spec import Spec, Tables, canonical, file_hashes, merged
from learncast.sweep.sweeping import Sweep


def sweep_of(path: str | Path) -> Sweep:
    """Read and check a study file with a [sweep] table; every value of the grid is tried once."""
    source = Path(path)
    raw = tables_of(source, "the study file")
    if "sweep" not in raw:
        raise InvalidSpec(f"{source} must have a [sweep] table, got {', '.join(raw) or 'no table'}.", field="sweep")
    section = checked(SweepSection, raw.pop("sweep"), str(source), "sweep")
    if section.command in ("check", "train", "window"):
        torch_package(f"to sweep {section.command}")
    for key in section.options:
        one_of(f"an option of {section.command}", key, COMMANDS[section.command].options)
    folder = source.parent.resolve()
    options, seeds = dict(section.options), section.seeds
    if section.command == "check" and seeds is not None:
        # A check trains its own repetitions.
        options, seeds = {**options, "runs": seeds}, None
    grid = Grid.of(section.grid, zips=section.zips, conditions=section.conditions, seeds=seeds)
    grid = Grid(tuple(_absolute_axis(axis, folder) for axis in grid.axes), grid.conditions)
    base = canonical(absolute(raw, folder), "the study")
    first = _check_cells(grid, base, section, str(source))
    notes = {"files": file_hashes([base, grid.to_dict()]), "first_cell": first}
    return Sweep(asked, grid, {**base, "sweep": {"command": section.command, "options": options}}, notes)


def _check_cells(grid: Grid, base: Tables, section: SweepSection, source: str) -> Tables:
    """Check each value of each axis once, and return the first cell with its defaults."""
    positions, stride = [0], grid.size
    for axis in grid.axes:
        stride //= len(axis.points)
        positions += [k * stride for k in range(1, len(axis.points))]
    resolved: Tables = {}
    for cell in map(grid.cell, positions):
        if not grid.includes(cell, base):
            continue
        raw = merged(base, cell)
        if SEED in grid.keys and section.seeds is not None:
            raw.pop(SEED)
            if not repeatable(section.command, raw):
                raise InvalidSpec(f"{source}: {section.command} has nothing random for seeds to vary.", field="seeds")
            raw = seeded(section.command, raw, [0, 1, 2, 3])
        values = ", ".join(f"{key} = {value!r}" for key, value in cell.items())
        with located(source, f"cell {values}"):
            text = _study(section.command, raw, "the study").resolved()
        resolved = resolved or tomllib.loads(text)
    return resolved


def _absolute_axis(axis: GridAxis, folder: Path) -> GridAxis:
    """Return the axis with absolute paths of files."""
    last = [key.rpartition(".")[2] for key in axis.keys]
    points = [
        tuple(absolute(value, folder, word) for word, value in zip(last, one, strict=True)) for one in axis.points
    ]
    return GridAxis(axis.keys, tuple(points))


#: Values of an answer that only repeat the study.
_ECHOES = {"learning_rate", "accuracy", "batch", "seeds", "tolerance", "target", "task"}


def asked(spec: Spec) -> xr.Dataset:
    """Run the sweep's command on one cell and return its dataset with the scalars of its answer.

    The name of this function is part of every task's hash, so renaming it would change the tasks' random numbers.
    """
    raw = {key: spec[key] for key in spec if key not in ("sweep", SEED)}
    name, options = spec["sweep.command"], spec["sweep.options"]
    if SEED in spec:
        raw = seeded(name, raw, spec.seeds(MOST_SEEDS))
    study, ask = _study(name, raw, "this cell"), COMMANDS[name].ask
    return _train(study, options, spec) if ask is None else _labelled(ask(study, **options))


def _study(command: str, raw: Mapping[str, object], source: str) -> Any:
    """Return the study of a cell, whose paths are absolute."""
    kind: Any = WindowStudy if command == "window" else Study
    return kind.from_dict(dict(raw), folder=Path("/"), source=source)


def _checked(study: Study, *, runs: int = 5, **options: Any) -> Report:
    # One process, because the sweep has workers of its own.
    return check_report(study, processes=1, seeds=runs, **options)


class SweptCommand(NamedTuple):
    """A command that can be swept.

    Attributes
    ----------
    options : tuple of str
        Options that the command accepts besides the study.
    seeds : tuple of str
        Sections of the study that have a seed.
    ask : callable or None
        Maps a study to an answer; None if a network is trained.
    """

    options: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    ask: Callable[..., Report] | None = None


COMMANDS = {
    "forecast": SweptCommand(("task",), ("network",), forecast_report),
    "plan": SweptCommand(("method", "remember"), ("network",), plan_report),
    "generalise": SweptCommand(("test", "most_steps", "after"), ("generalise",), generalise_report),
    "check": SweptCommand(("runs", "tolerance"), ask=_checked),
    "train": SweptCommand(("most_steps", "every")),
    "window": SweptCommand(seeds=("model", "training", "task", "window"), ask=window_report),
}
MOST_SEEDS = max(len(one.seeds) for one in COMMANDS.values())


def seeded(command: str, raw: Mapping[str, Any], seeds: list[int]) -> Tables:
    """Return the study with its seeds taken from the task's random stream."""
    study = dict(raw)
    for section, seed in zip(COMMANDS[command].seeds, seeds, strict=False):
        table = dict(study.get(section, {}))
        if "seed" in table:
            raise InvalidSpec(f"seeds in [sweep] and seed in [{section}] must not both be given.", field="seeds")
        recorded = section == "task" and "data" in table
        if not recorded:
            study[section] = {**table, "seed": seed}
    return study


def repeatable(command: str, raw: Mapping[str, object]) -> bool:
    """Return whether the answer depends on a seed."""
    if command in ("forecast", "plan"):
        network = raw.get("network", {})
        kind = network.get("kind") if isinstance(network, Mapping) and "weights" not in network else None
        return kind in ("two-layer", "deep")
    return command != "check"


def _train(study: Study, options: Tables, spec: Spec) -> xr.Dataset:
    """Train on the target until the study's accuracy is reached, with batches from the task's random stream."""
    from learncast import training
    from learncast.training.check import training_goal

    recorded = {key: options[key] for key in ("every", "evaluation") if key in options}
    given = {key: value for key, value in options.items() if key not in recorded}
    method = method_for([study.target], study.network, study.training).precise
    settings = study.training.with_(batch=study.batch, learn=method.learn, seed=spec.seeds(1)[0], **given)
    record = training.Records(**{"every": 10, **recorded})
    goal = training_goal(method, 0, study.goal)
    run = training.train(study.target, study.network, settings, goal=goal, record=record)
    reached = run.status.name == "ok"
    steps = ((), float(run.steps) if reached else float("inf"), described("steps until it was learned", STEPS))
    return run.dataset.assign({"steps": steps, "training_status": run.status.name})


def _labelled(answer: Report) -> xr.Dataset:
    """Return an answer's dataset with its scalar numbers and strings."""
    dataset: xr.Dataset = answer.labelled
    scalars: dict[str, object] = {
        "forecast_class": answer.forecast_class,
        "holds": answer.trust.holds,
        "passed": answer.passed,
    }
    for key, value in answer.values.items():
        parts = {f"{key}_{word}": item for word, item in value.items()} if isinstance(value, dict) else {key: value}
        scalars |= {name: item for name, item in parts.items() if isinstance(item, bool | int | float | str)}
    kept = {key: item for key, item in scalars.items() if key not in _ECHOES and key not in dataset.variables}
    return dataset.assign({key: ((), item) for key, item in kept.items() if key not in dataset.dims})
