"""A study file with a [sweep]: one question over a grid of studies."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from learncast.errors import InvalidSpec, LearncastError
from learncast.study import Study
from learncast.study.files import tables_from
from learncast.study.sections import Section
from learncast.study.window_study import WindowStudy
from learncast.sweep.files import file_hashes
from learncast.sweep.grid import SEED, Axis, Grid
from learncast.sweep.questions import OPTIONS, asked, repeatable, seeded
from learncast.sweep.spec import canonical, placed
from learncast.sweep.sweeping import Sweep
from learncast.validation import one_of, suggestion

#: Keys of a study whose values name files.
FILES = ("data", "weights")


class SweepSection(Section):
    """The [sweep] table."""

    command: Literal["forecast", "plan", "check", "train", "window"]
    grid: dict[str, Any]
    seeds: int | None = Field(default=None, ge=1)
    zips: list[list[str]] = Field(default=[])
    conditions: list[str] = Field(default=[])
    options: dict[str, Any] = Field(default={})


def sweep_of(path: str | Path) -> Sweep:
    """Read and check a study file with a [sweep]; every value of the grid is tried once."""
    source = Path(path)
    raw = tables_from(source, why="there is nothing to sweep")
    if "sweep" not in raw:
        raise InvalidSpec(
            required=f"{source} must have a [sweep]",
            got=f"{', '.join(raw) or 'nothing'}",
            why="it says what varies",
            remedy='add [sweep] with command = "forecast" and [sweep.grid] with what varies',
        )
    section = _section(raw.pop("sweep"), str(source))
    for key in section.options:
        one_of(f"an option of {section.command}", key, OPTIONS[section.command], why="it would be ignored")
    folder = source.parent.resolve()
    options = dict(section.options)
    seeds = section.seeds
    if section.command == "check" and seeds is not None:
        # A check trains its own repetitions, side by side in one answer.
        options, seeds = {**options, "runs": seeds}, None
    grid = Grid.of(section.grid, zips=section.zips, conditions=section.conditions, seeds=seeds)
    grid = Grid(tuple(_absolute_axis(axis, folder) for axis in grid.axes), grid.conditions)
    base = canonical(_absolute(raw, folder), "the study")
    whole = {**base, "sweep": {"command": section.command, "options": options}}
    first = _check_cells(grid, base, section, str(source))
    return Sweep(asked, grid, whole, {"files": file_hashes([base, grid.described()]), "first_cell": first})


def _section(raw: Any, source: str) -> SweepSection:
    try:
        return SweepSection.model_validate(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        words = [str(part) for part in problem["loc"]]
        key = ".".join(["sweep", *words])
        known = tuple(SweepSection.model_fields)
        unknown = problem["type"] == "extra_forbidden"
        raise InvalidSpec(
            required=f"{source}: {key} must be {'a known key' if unknown else 'valid'}",
            got=repr(problem.get("input"))[:60],
            why="a misspelt key would be ignored silently" if unknown else str(problem["msg"]).lower(),
            remedy=(suggestion(words[-1], known) if unknown else "") or f"use {', '.join(known)}",
        ) from error


def _check_cells(grid: Grid, base: dict[str, Any], section: SweepSection, source: str) -> dict[str, Any]:
    """Try each value of each axis once, and give the first cell with its defaults written out."""
    places = [0]
    stride = grid.size
    for axis in grid.axes:
        stride //= len(axis.points)
        places += [k * stride for k in range(1, len(axis.points))]
    resolved: dict[str, Any] = {}
    known_seed = any(SEED in axis.keys for axis in grid.axes)
    for place in places:
        cell = grid.cell(place)
        if not grid.includes(cell, base):
            continue
        whole = placed(base, cell)
        if known_seed and section.seeds is not None:
            whole.pop(SEED)
            if not repeatable(section.command, whole):
                raise InvalidSpec(
                    required=f"{source}: seeds must change the answer of {section.command}",
                    got=f"seeds = {section.seeds} where nothing is random",
                    why="the same numbers would be computed again",
                    remedy="leave seeds out, or describe a network that is drawn",
                )
            whole = seeded(section.command, whole, [0, 1, 2, 3])
        shown = ", ".join(f"{key} = {value!r}" for key, value in cell.items())
        try:
            text = _checked(whole, section.command)
        except LearncastError as error:
            raise InvalidSpec(
                required=f"{source}, cell {shown or 'of no keys'}: {error.required}",
                got=error.got,
                why=error.why,
                remedy=error.remedy,
            ) from error
        resolved = resolved or tomllib.loads(text)
    return resolved


def _checked(whole: dict[str, Any], command: str) -> str:
    kind: Any = WindowStudy if command == "window" else Study
    return str(kind.from_dict(whole, folder=Path("/"), source="the study").resolved())


def _absolute(value: Any, folder: Path, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {word: _absolute(item, folder, word) for word, item in value.items()}
    if isinstance(value, list):
        return [_absolute(item, folder, key) for item in value]
    return str((folder / value).resolve()) if key in FILES and isinstance(value, str) else value


def _absolute_axis(axis: Axis, folder: Path) -> Axis:
    last = [key.rpartition(".")[2] for key in axis.keys]
    points = [
        tuple(_absolute(value, folder, word) for word, value in zip(last, point, strict=True)) for point in axis.points
    ]
    return Axis(axis.keys, tuple(points))
