"""The questions of the command line, asked of one cell of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from learncast.errors import InvalidSpec
from learncast.sweep.grid import SEED
from learncast.sweep.spec import Spec
from learncast.trajectory import STEPS, described

#: What a question may be told beside the study.
OPTIONS: dict[str, tuple[str, ...]] = {
    "forecast": ("task",),
    "plan": ("by", "remember"),
    "check": ("runs", "tolerance"),
    "train": ("most_steps", "every"),
    "window": (),
}
#: What an answer only repeats from the study.
_ECHOES = {"learning_rate", "accuracy", "batch", "seeds", "tolerance", "target", "task"}


def asked(spec: Spec) -> xr.Dataset:
    """Ask the sweep's question of one cell; the numbers of the answer join its dataset."""
    raw = {key: spec[key] for key in spec if key not in ("sweep", SEED)}
    command, options = spec["sweep.command"], spec["sweep.options"]
    if SEED in spec:
        raw = seeded(command, raw, spec.seeds(len(_SEEDS["window"])))
    return _QUESTIONS[command](raw, options, spec)


#: Seeds that a study holds, by command.
_SEEDS = {
    "forecast": ("network",),
    "plan": ("network",),
    "check": (),
    "train": (),
    "window": ("model", "training", "task", "window"),
}


def seeded(command: str, raw: Mapping[str, Any], seeds: list[int]) -> dict[str, Any]:
    """The study with its seeds taken from the task's own stream."""
    found = dict(raw)
    for section, seed in zip(_SEEDS[command], seeds, strict=False):
        table = dict(found.get(section, {}))
        if "seed" in table:
            raise InvalidSpec(
                required=f"either seeds in [sweep] or seed in [{section}] must be given",
                got="both",
                why="each repetition draws its own",
                remedy="leave one of them out, or vary the seed in the grid",
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


def _study(raw: dict[str, Any]) -> Any:
    from learncast.study import Study

    # Files were made absolute when the sweep began.
    return Study.from_dict(raw, folder=Path("/"), source="this cell")


def _forecast(raw: dict[str, Any], options: dict[str, Any], spec: Spec) -> xr.Dataset:
    from learncast.answers.forecast import forecast

    return _labelled(forecast(_study(raw), **options))


def _plan(raw: dict[str, Any], options: dict[str, Any], spec: Spec) -> xr.Dataset:
    from learncast.answers.plan import planned

    return _labelled(planned(_study(raw), **options))


def _check(raw: dict[str, Any], options: dict[str, Any], spec: Spec) -> xr.Dataset:
    from learncast.answers.check import checked

    # One process: the sweep's workers are the others.
    keywords = {**options, "seeds": options.get("runs", 5)}
    keywords.pop("runs", None)
    return _labelled(checked(_study(raw), processes=1, **keywords))


def _window(raw: dict[str, Any], options: dict[str, Any], spec: Spec) -> xr.Dataset:
    from learncast.answers.window import rehearsed_window
    from learncast.study.window_study import WindowStudy

    return _labelled(rehearsed_window(WindowStudy.from_dict(raw, folder=Path("/"), source="this cell")))


def _train(raw: dict[str, Any], options: dict[str, Any], spec: Spec) -> xr.Dataset:
    """Train on the target until the study's accuracy is reached, on batches of the task's own stream."""
    from learncast import simulate
    from learncast.dynamics.learning_problem import LearningProblem
    from learncast.planning.curricula.curriculum import Stage, follow

    study = _study(raw)
    settings = simulate.Training(
        study.learning_rate,
        batch=study.batch,
        learn=study.learn,
        seed=spec.seeds(1)[0],
        most_steps=options.get("most_steps", 200_000),
        every=options.get("every", 10),
    )
    if study.plannable:
        stages = [Stage(study.target, accuracy=study.accuracy)]
        forecast = follow(stages, study.recurrent_network, learning_rate=study.learning_rate, strict=False)
        run = simulate.train(stages, study.network, settings, optima=[m.optimum for m in forecast.modes])
    else:
        problem = LearningProblem.of(study.target, study.linear_network, study.learn)
        goal = simulate.LossBelow(problem.least_loss + problem.target_excess(study.accuracy))
        run = simulate.train(study.target, study.linear_network, settings.with_(until=goal))
    reached = run.status.name == "ok"
    steps = ((), float(run.steps) if reached else float("inf"), described("steps until it was learned", STEPS))
    return run.dataset.assign({"steps": steps, "training_status": run.status.name})


_QUESTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any], Spec], xr.Dataset]] = {
    "forecast": _forecast,
    "plan": _plan,
    "check": _check,
    "train": _train,
    "window": _window,
}


def _labelled(answer: Any) -> xr.Dataset:
    """An answer's dataset with its single numbers and words beside it."""
    dataset: xr.Dataset = answer.dataset
    found: dict[str, Any] = {"forecast_class": answer.forecast_class, "holds": answer.holds, "passed": answer.passed}
    for key, value in answer.values.items():
        parts = {f"{key}_{word}": item for word, item in value.items()} if isinstance(value, dict) else {key: value}
        found |= {name: item for name, item in parts.items() if isinstance(item, bool | int | float | str)}
    kept = {key: item for key, item in found.items() if key not in _ECHOES and key not in dataset.variables}
    return dataset.assign({key: ((), item) for key, item in kept.items() if key not in dataset.dims})
