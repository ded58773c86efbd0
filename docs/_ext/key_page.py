"""Every key of the study files, read from the models that validate them, with an example of each."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from learncast.study.schema import KINDS, Key, keys, schema

ROOT = Path(__file__).parents[2]
#: Commands that read each kind of file.
READ_BY = {
    "study": "`learncast forecast`, `plan`, `phase`, `forget`, `generalise`, `check` and `sweep run` read it.",
    "window": "`learncast window` reads it.",
    "advice": "`learncast advise` reads it.",
}
#: Units of keys; other numbers are dimensionless.
UNITS = {
    "learning_rate": "1 / gradient step", "switch_cost": "gradient steps", "train_steps": "gradient steps", "most_steps": "gradient steps",
    "horizons": "time steps", "timescale": "time steps", "steps": "time steps", "lags": "time steps",
    "input_strength": "input²", "noise_strength": "input²", "target_strength": "target · input",
    "cross_correlation": "target · input", "input_correlation": "input²", "most_excess_loss": "target²",
    "most_bytes": "bytes", "cost": "per gradient step", "rate": "1 / s", "window": "s", "bin_width": "s",
}  # fmt: skip
#: Units of keys that differ in one table.
UNITS_IN_TABLE = {("[training]", "steps"): "gradient steps"}
#: Examples of keys that no example file uses.
EXAMPLES = {
    "output_initial": 0.02, "scale": 0.1, "imbalance": 0.5, "weights": "start.npz", "batch": 64, "goal": "loss",
    "least_accuracy": 0.2, "most_accuracy": 0.9, "most_excess_loss": 0.01, "mixing": [[1.0, 0.5]], "gain": 2.0,
    "input_correlation": [[1.0, 0.3], [0.3, 1.0]], "swap": [0, 5], "shuffle": [3, 2, 1, 0, 7, 6, 5, 4],
    "parameters": {"scale": 2.0}, "trial": "trial", "step": "time", "inputs": "rates", "targets": "choice",
    "labels": "label", "classes": 10, "mask": "counts", "lengths": "lengths", "at": "every_step", "most_bytes": 10**9,
    "zips": [["training.learning_rate", "training.accuracy"]], "conditions": ["training.accuracy < 0.99"],
    "options": {"method": "flow"}, "grid": {"training.learning_rate": [1e-3, 1e-2]}, "data": "trials.npz",
    "cross_correlation": [[1.0, 0.0], [0.0, 0.5]], "task": "integrate", "seeds": 5, "threshold": 4.0, "chunk": 64,
    "sample_sizes": [64, 256, 1024], "environment": "PerceptualDecisionMaking-v0", "train_steps": 500,
    "horizons": [100, 200], "learn": ["input", "recurrent", "output"], "seed": 0, "timescale": 20.0, "layers": 2,
    "gate": 0.05, "layer_norm": True, "orthogonal": True, "weight_decay": 1e-2, "momentum": 0.9, "outputs": 3,
    "alpha": 0.2, "rank": 2, "excitatory": 0.8, "nonlinearity": "relu", "clip": 1.0, "decisions": 0.85, "loss": 0.05, "ignore": 0, "r2": 0.9,
    "test": "session2.npz", "groups": "animal", "blocks": 20, "most_steps": 4000, "after": "easy trials",
    "channel": "neuron", "value": "rate", "axes": "time trial channel", "events": "stimulus_on", "rate": 1000.0,
    "window": [-0.2, 1.0], "bin_width": 0.02,
}  # fmt: skip
#: Examples of keys that differ in one table.
IN_TABLE = {("[training]", "shuffle"): True, ("[task]", "labels"): True, ("[task]", "inputs"): 8, ("[goal]", "steps"): [12, 13], ("[goal]", "outputs"): [1, 2]}


def page() -> str:
    """The page in MyST."""
    parts = [
        "# Study files",
        OPENING,
        *(part for kind in KINDS for part in _kind(kind)),
    ]
    return "\n\n".join(parts) + "\n"


OPENING = """\
A study is a TOML file that describes tasks, network and training. An unknown key is an error, which suggests the nearest key. This
page is generated from the models that validate the files. `learncast schema --keys` prints the same list, and `learncast new
plan my_study.toml` writes a study to start from.

## Editor support

Editors with TOML support (taplo, Even Better TOML) complete and validate keys if the first line of the file names a schema:

```toml
#:schema ./learncast-study.schema.json
name = "my study"
```

Write the schemas next to your studies, or download them: {download}`study <../extra/schema/learncast-study.schema.json>`,
{download}`window <../extra/schema/learncast-window.schema.json>`,
{download}`advice <../extra/schema/learncast-advice.schema.json>`.

```console
$ learncast schema > learncast-study.schema.json
$ learncast schema window > learncast-window.schema.json
```"""


def schemas() -> dict[str, Callable[[], str]]:
    """The JSON schema of each kind of file, by file name."""
    return {f"learncast-{kind}.schema.json": partial(_schema, kind) for kind in KINDS}


def _schema(kind: str) -> str:
    return json.dumps(schema(kind), indent=2) + "\n"


def _kind(kind: str) -> Iterator[str]:
    title = {"study": "Studies", "window": "Studies of a learnability window", "advice": "Studies for advice"}[kind]
    yield f"## {title}\n\n{READ_BY[kind]}"
    for table, listed in groupby(keys(kind), lambda key: key.table):
        rows = ["{.stacked}", "| key | value | unit | default | meaning | example |", "|---|---|---|---|---|---|", *map(_row, listed)]
        yield f"### {_title(table, kind)}\n\n" + "\n".join(rows)


def _title(table: str, kind: str) -> str:
    return (f"`{table}`" if table else "Top level") + ("" if kind == "study" else f" ({kind})")


def _row(key: Key) -> str:
    default = "required" if key.required else f"`{key.default}`" if key.default else "none"
    cells = (f"`{key.name}`", key.type, unit(key), default, key.meaning, f"`{key.name} = {toml(example(key))}`")
    return "| " + " | ".join(cell.replace("|", "\\|").replace("$", "\\$") for cell in cells) + " |"


def unit(key: Key) -> str:
    """Unit of a key, if its value is a number."""
    if "number" not in key.type and "list" not in key.type:
        return ""
    return UNITS_IN_TABLE.get((key.table, key.name), UNITS.get(key.name, "1" if "number" in key.type else ""))


def example(key: Key) -> Any:
    """An example value: from an example file, the default, or a typical one."""
    if key.name in ("family", "kind") and '"' in key.table:
        return key.table.split('"')[1]
    if (key.table, key.name) in IN_TABLE:
        return IN_TABLE[key.table, key.name]
    if key.type.startswith('"'):
        choices = re.findall(r'"([^"]+)"', key.type)
        return next((one for one in choices if one != key.default.strip("'")), choices[0])
    if key.name in EXAMPLES:
        return EXAMPLES[key.name]
    for value in written().get(key.name, ()):
        return value
    return ast.literal_eval(key.default.capitalize() if key.default in ("true", "false") else key.default)


@cache
def written() -> dict[str, list[Any]]:
    """Values of every key in the examples and templates."""
    values: dict[str, list[Any]] = {}
    files = [
        *sorted((ROOT / "examples").glob("*.toml")),
        *sorted((ROOT / "src/learncast/study/templates").glob("*.toml")),
    ]
    for path in files:
        _collect(tomllib.loads(path.read_text(encoding="utf-8")), values)
    return values


def _collect(table: dict[str, Any], values: dict[str, list[Any]]) -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            _collect(value, values)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for one in value:
                _collect(one, values)
        else:
            values.setdefault(name, []).append(value)


def toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        inside = ", ".join(
            f"{name if name.isidentifier() else json.dumps(name)} = {toml(one)}" for name, one in value.items()
        )
        return f"{{ {inside} }}"
    return json.dumps(value)
