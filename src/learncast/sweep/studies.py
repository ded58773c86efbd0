"""A study file with a [sweep]: one question over a grid of studies."""

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
from learncast.answers.answer import Answer
from learncast.answers.check import TRAINED
from learncast.answers.check import checked as checked_forecast
from learncast.answers.forecast import forecast
from learncast.answers.plan import planned
from learncast.answers.window import rehearsed_window
from learncast.planning.methods.choice import ground_for
from learncast.procedure.goals import Accuracy, Goal, Loss
from learncast.procedure.training import Training
from learncast.results import STEPS, described
from learncast.study import Study, WindowStudy
from learncast.study.sections import SweepSection
from learncast.study.study_file import absolute, checked, located
from learncast.sweep.grid import SEED, Axis, Grid
from learncast.sweep.spec import Spec, canonical, file_hashes, placed
from learncast.sweep.sweeping import Sweep


def sweep_of(path: str | Path) -> Sweep:
    """Read and check a study file with a [sweep]; every value of the grid is tried once."""
    source = Path(path)
    raw = tables_of(source, "the study file", why="there is nothing to sweep")
    if "sweep" not in raw:
        raise InvalidSpec(
            f"{source} must have a [sweep], got {', '.join(raw) or 'nothing'}. Add [sweep] with command = "
            '"forecast" and [sweep.grid] with what varies.'
        )
    section = checked(SweepSection, raw.pop("sweep"), str(source), "sweep")
    if section.command in ("check", "train", "window"):
        torch_package(f"to sweep {section.command}")
    for key in section.options:
        one_of(f"an option of {section.command}", key, QUESTIONS[section.command].options)
    folder = source.parent.resolve()
    options = dict(section.options)
    seeds = section.seeds
    if section.command == "check" and seeds is not None:
        # A check trains its own repetitions, side by side in one answer.
        options, seeds = {**options, "runs": seeds}, None
    grid = Grid.of(section.grid, zips=section.zips, conditions=section.conditions, seeds=seeds)
    grid = Grid(tuple(_absolute_axis(axis, folder) for axis in grid.axes), grid.conditions)
    base = canonical(absolute(raw, folder), "the study")
    whole = {**base, "sweep": {"command": section.command, "options": options}}
    first = _check_cells(grid, base, section, str(source))
    return Sweep(asked, grid, whole, {"files": file_hashes([base, grid.described()]), "first_cell": first})


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
                    f"{source}: seeds must change the answer of {section.command}, got seeds = {section.seeds} where "
                    "nothing is random. Leave seeds out, or describe a network that is drawn."
                )
            whole = seeded(section.command, whole, [0, 1, 2, 3])
        shown = ", ".join(f"{key} = {value!r}" for key, value in cell.items())
        with located(source, f"cell {shown or 'of no keys'}"):
            text = _study(section.command, whole, "the study").resolved()
        resolved = resolved or tomllib.loads(text)
    return resolved


def _absolute_axis(axis: Axis, folder: Path) -> Axis:
    last = [key.rpartition(".")[2] for key in axis.keys]
    points = [
        tuple(absolute(value, folder, word) for word, value in zip(last, point, strict=True)) for point in axis.points
    ]
    return Axis(axis.keys, tuple(points))


#: What an answer only repeats from the study.
_ECHOES = {"learning_rate", "accuracy", "batch", "seeds", "tolerance", "target", "task"}


def asked(spec: Spec) -> xr.Dataset:
    """Ask the sweep's question of one cell; the numbers of the answer join its dataset."""
    raw = {key: spec[key] for key in spec if key not in ("sweep", SEED)}
    command, options = spec["sweep.command"], spec["sweep.options"]
    if SEED in spec:
        raw = seeded(command, raw, spec.seeds(MOST_SEEDS))
    study, ask = _study(command, raw, "this cell"), QUESTIONS[command].ask
    return _train(study, options, spec) if ask is None else _labelled(ask(study, **options))


def _study(command: str, raw: Mapping[str, Any], source: str) -> Any:
    """A cell's study; its files were made absolute when the sweep began."""
    kind: Any = WindowStudy if command == "window" else Study
    return kind.from_dict(dict(raw), folder=Path("/"), source=source)


def _checked(study: Study, *, runs: int = 5, **options: Any) -> Answer:
    # One process: the sweep's workers are the others.
    return checked_forecast(study, processes=1, seeds=runs, **options)


class Question(NamedTuple):
    """What a sweep can ask of a study.

    Attributes
    ----------
    options : tuple of str
        What the question may be told beside the study.
    seeds : tuple of str
        Sections of the study that hold a seed; what is trained for real takes its own from the task's stream.
    ask : callable or None
        From a study to an answer; None where a network is trained instead.
    """

    options: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    ask: Callable[..., Answer] | None = None


QUESTIONS = {
    "forecast": Question(("task",), ("network",), forecast),
    "plan": Question(("by", "remember"), ("network",), planned),
    "check": Question(("runs", "tolerance"), ask=_checked),
    "train": Question(("most_steps", "every")),
    "window": Question(seeds=("model", "training", "task", "window"), ask=rehearsed_window),
}
MOST_SEEDS = max(len(one.seeds) for one in QUESTIONS.values())


def seeded(command: str, raw: Mapping[str, Any], seeds: list[int]) -> dict[str, Any]:
    """The study with its seeds taken from the task's own stream."""
    found = dict(raw)
    for section, seed in zip(QUESTIONS[command].seeds, seeds, strict=False):
        table = dict(found.get(section, {}))
        if "seed" in table:
            raise InvalidSpec(
                f"either seeds in [sweep] or seed in [{section}] must be given, got both. Leave one of them out, "
                "or vary the seed in the grid."
            )
        recorded = section == "task" and "data" in table
        if not recorded:
            found[section] = {**table, "seed": seed}
    return found


def repeatable(command: str, raw: Mapping[str, Any]) -> bool:
    """Whether the answer depends on a seed at all."""
    if command in ("forecast", "plan"):
        network = raw.get("network", {})
        return isinstance(network, Mapping) and network.get("kind") == "two-layer" and "weights" not in network
    return command != "check"


def _train(study: Study, options: dict[str, Any], spec: Spec) -> xr.Dataset:
    """Train on the target until the study's accuracy is reached, on batches of the task's own stream."""
    from learncast import training

    record = training.Records(every=options.get("every", 10))
    given = {"most_steps": options["most_steps"]} if "most_steps" in options else {}
    settings = Training(
        study.learning_rate, batch=study.batch or TRAINED, learn=study.learn, seed=spec.seeds(1)[0], **given
    )
    ground = ground_for(
        [study.target], study.network, learning_rate=study.learning_rate, learn=study.named_learn
    ).precise
    if ground.goal == "modes":
        goal: Goal = Accuracy(study.accuracy, optimum=tuple(ground.modes[0].optimum))
    else:
        goal = Loss(ground.goal_loss(0, study.accuracy))
    run = training.train(study.target, study.network, settings, goal=goal, record=record)
    reached = run.status.name == "ok"
    steps = ((), float(run.steps) if reached else float("inf"), described("steps until it was learned", STEPS))
    return run.dataset.assign({"steps": steps, "training_status": run.status.name})


def _labelled(answer: Any) -> xr.Dataset:
    """An answer's dataset with its single numbers and words beside it."""
    dataset: xr.Dataset = answer.labelled
    found: dict[str, Any] = {
        "forecast_class": answer.forecast_class,
        "holds": answer.trust.holds,
        "passed": answer.passed,
    }
    for key, value in answer.values.items():
        parts = {f"{key}_{word}": item for word, item in value.items()} if isinstance(value, dict) else {key: value}
        found |= {name: item for name, item in parts.items() if isinstance(item, bool | int | float | str)}
    kept = {key: item for key, item in found.items() if key not in _ECHOES and key not in dataset.variables}
    return dataset.assign({key: ((), item) for key, item in kept.items() if key not in dataset.dims})
