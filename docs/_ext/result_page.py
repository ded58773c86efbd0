"""Variables and attributes of every kind of result, from the schema and from small results computed when the site is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

import learncast as lc
from learncast.results import ALWAYS, SCHEMA

RATE = 1e-3


def _target() -> lc.Task:
    return lc.tasks.integration(steps=20, target_strength=[1.0, 0.7], name="target")


def _candidate() -> lc.Task:
    return _target().varied(target_strength=[1.5, 0.9], name="stronger")


def _network() -> lc.LinearRNN:
    return lc.LinearRNN.aligned(inputs=2, outputs=2, recurrence=0.9, initial=0.01, hidden_size=8)


def _forecast() -> xr.Dataset:
    stages = [lc.Stage(_candidate(), 0.5), lc.Stage(_target(), 0.99)]
    return lc.follow(stages, _network(), learning_rate=RATE).dataset


def _plan() -> xr.Dataset:
    return lc.plan(_target(), [_candidate()], _network(), learning_rate=RATE).dataset


def _portrait() -> xr.Dataset:
    grid: dict[str, Any] = {"vary": "target_strength", "values": [0.5, 1.5], "accuracies": [0.5, 0.9]}
    one = lc.tasks.integration(steps=20)
    return lc.phase(one, lc.LinearRNN.aligned(recurrence=0.9, initial=0.01), learning_rate=RATE, **grid)


def _forgetting() -> xr.Dataset:
    tasks = [lc.tasks.static(cross, name=name) for name, cross in (("A", [[2.0, 1.0]]), ("B", [[1.0, 2.0]]))]
    network = lc.TwoLayer.balanced(2, 4, 1, scale=0.3, rng=np.random.default_rng(0))
    return lc.forget(tasks, network, learning_rate=RATE, steps=5000).losses().to_dataset(name="loss")


def _front() -> xr.Dataset:
    plan = lc.plan(_target(), [_candidate()], _network(), learning_rate=RATE)
    return plan.front(_candidate(), points=3).dataset


def _generalisation() -> xr.Dataset:
    inputs = np.random.default_rng(0).standard_normal((40, 3, 2))
    task = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    network = lc.LinearRNN.random(2, 3, 2, recurrence=0.9, scale=0.3, rng=0)
    return lc.generalise(task, network, learning_rate=0.05, most_steps=20).dataset


def _window() -> xr.Dataset:
    from learncast.windows.example_model import build_model

    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((64, 16, 2)), rng.standard_normal((64, 16, 1))
    model = build_model("gru", inputs=2, outputs=1, hidden_size=4, seed=0).double()
    options = {
        "measurement": lc.windows.Measurement(lags=[1, 2, 4], directions=1),
        "rule": lc.windows.DetectionRule(nulls=19),
    }
    return lc.windows.window(model, inputs, targets, optimizer=_sgd(model), **options).dataset


def _sgd(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=1e-2)


def _advice() -> xr.Dataset:
    tasks = [lc.tasks.integration(6, 1.0, strength, name=name) for strength, name in ((0.3, "sum"), (0.9, "stronger"))]
    model = lc.training.gated_module("gru", hidden_size=6, seed=2)
    return lc.advise(model, tasks[0], tasks[1:], lc.Training(0.3, batch=32)).dataset


#: Kinds of results: the function that returns them, and how to compute a small one.
KINDS: dict[str, tuple[str, Callable[[], xr.Dataset]]] = {
    "Forecast": (
        "`.dataset` of the result of {py:func}`learncast.forecast` and {py:func}`learncast.follow`:",
        _forecast,
    ),
    "Plan": ("`.dataset` of the result of {py:func}`learncast.plan`:", _plan),
    "Phase portrait": ("Result of {py:func}`learncast.phase`:", _portrait),
    "Forgetting": ("`.losses()` of the result of {py:func}`learncast.forget`:", _forgetting),
    "Front": ("`.dataset` of the result of {py:meth}`learncast.Plan.front`:", _front),
    "Held-out loss": ("`.dataset` of the result of {py:func}`learncast.generalise`:", _generalisation),
    "Learnability window": ("`.dataset` of the result of {py:func}`learncast.window`:", _window),
    "Advice": ("`.dataset` of the result of {py:func}`learncast.advise`:", _advice),
}


def page() -> str:
    """The page in MyST."""
    sections = [_section(name, *made) for name, made in KINDS.items()]
    return "\n\n".join([OPENING, _trajectory(), *sections]) + "\n"


OPENING = """\
# Datasets

Results hold an `xarray.Dataset` whose variables have `units` and `long_name`. `result.save("file.nc")` writes NetCDF atomically;
`load` of the class reads it. This page is generated from the schema and from small results that are computed when the site is
built.

## In every file

| attribute | meaning |
|---|---|
| `learncast_format` | version of the file layout |
| `learncast_object` | kind of result |
| `provenance_kind` | how the numbers were computed, such as `theory` |
| `provenance_citations` | keys of the papers whose equations were used |
| `provenance_spec_hash` | hash of all inputs that affect the numbers |
| `provenance_seed` | random seed, if any |
| `provenance_versions` | versions of Python, learncast, numpy and scipy |"""


def _trajectory() -> str:
    rows = [
        (f"`{name}`", ", ".join(dims), units, meaning, "always" if name in ALWAYS else "")
        for name, (dims, meaning, units) in SCHEMA.items()
    ]
    heads = ("variable", "dimensions", "units", "meaning", "present")
    text = (
        "Theory, descent and training share one schema, so that two trajectories can be subtracted. `solution.at(times)`, "
        "`descend(...).at(times)` and `training.train(...)` return it. `time` is in gradient steps; `mode`, `stage` and "
        "`status` are coordinates."
    )
    return f"## Trajectory\n\n{text}\n\n{_table(heads, rows)}"


def _section(name: str, text: str, make: Callable[[], xr.Dataset]) -> str:
    dataset = make()
    rows = [
        (f"`{key}`", ", ".join(map(str, one.dims)), one.attrs.get("units", ""), one.attrs.get("long_name", ""))
        for key, one in dataset.data_vars.items()
    ]
    rows += [
        (
            f"`{key}` (coordinate)",
            ", ".join(map(str, one.dims)),
            one.attrs.get("units", ""),
            one.attrs.get("long_name", ""),
        )
        for key, one in dataset.coords.items()
    ]
    parts = [f"## {name}", text, _table(("variable", "dimensions", "units", "meaning"), rows)]
    if dataset.attrs:
        parts.append("Attributes: " + ", ".join(f"`{key}`" for key in dataset.attrs) + ".")
    return "\n\n".join(parts)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [heads, tuple("---" for _ in heads), *rows]
    return "{.stacked}\n" + "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in row) + " |" for row in cells
    )
