"""The keys of study files: as a list, and as a JSON schema with which editors complete and check them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from learncast._core.validation import one_of
from learncast.study import sections
from learncast.study.advice_sections import AdviceStudySection, EnvironmentSection
from learncast.study.network_sections import NETWORKS
from learncast.study.study_file import Section
from learncast.study.window_sections import WindowStudySection

#: Kinds of study files.
KINDS: dict[str, type[Section]] = {
    "study": sections.StudySection,
    "window": WindowStudySection,
    "advice": AdviceStudySection,
}

#: Words that may be written with a hyphen too.
HYPHENED = ("leaky_integration", "every_step")


class Key(NamedTuple):
    """One key of a study file.

    Attributes
    ----------
    table : str
        Table of the key, as it is written in the file.
    name, type, default, meaning : str
        The default is empty if there is none.
    required : bool
    """

    table: str
    name: str
    type: str
    default: str
    meaning: str
    required: bool


def schema(kind: str = "study") -> dict[str, object]:
    """Return the JSON schema of a study file.

    Parameters
    ----------
    kind : str
        study, window or advice.
    """
    found = _section(kind).model_json_schema()
    found |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"learncast {kind} file"}
    parts = found["$defs"]
    if kind != "advice":
        parts["SweepSection"] = sections.SweepSection.model_json_schema()
        found["properties"]["sweep"] = {"$ref": "#/$defs/SweepSection", "description": "One question over a grid."}
    if kind == "study":
        # The keys of a task are written in the table of its stage.
        steps = parts.pop("StageSection")["properties"]["train_steps"]
        tasks = [*(section.__name__ for section in sections.TASKS.values()), sections.DataSection.__name__]
        for name in tasks:
            parts[f"{name}Stage"] = {**parts[name], "properties": {**parts[name]["properties"], "train_steps": steps}}
        found["properties"]["sequence"]["items"] = {"anyOf": [{"$ref": f"#/$defs/{name}Stage"} for name in tasks]}
    return dict(_toml_schema(found))


def _section(kind: str) -> type[Section]:
    return KINDS[one_of("kind", kind, tuple(KINDS))]


def _toml_schema(value: object) -> Any:
    """Adapt a schema to TOML, which has no null, and to words with hyphens."""
    if isinstance(value, list):
        return [_toml_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _toml_schema(item) for key, item in value.items() if not (key == "default" and item is None)}
    for one in kept.get("properties", {}).values():
        one.pop("title", None)
        one["description"] = one.get("description", "").replace("\n", " ")
    if "anyOf" in kept:
        kept["anyOf"] = [one for one in kept["anyOf"] if one != {"type": "null"}]
        if len(kept["anyOf"]) == 1:
            kept |= kept.pop("anyOf")[0]
    if isinstance(kept.get("const"), str):
        kept["enum"] = [kept.pop("const")]
    if isinstance(kept.get("enum"), list):
        hyphened = [word.replace("_", "-") for word in kept["enum"] if word in HYPHENED]
        kept["enum"] = list(dict.fromkeys([*kept["enum"], *hyphened]))
    return kept


def keys(kind: str = "study") -> Iterator[Key]:
    """Yield every key of a file, table by table."""
    named = sections.NamedSection
    for table, section in _tables(kind).items():
        described = dict(_toml_schema(section.model_json_schema()))
        shared = named.model_fields if issubclass(section, named) and section is not named else {}
        for name, part in described["properties"].items():
            if name in shared or "$ref" in str(part):
                continue  # listed once for all tasks, or a table of its own
            default = part.get("default")
            text = "" if default is None else str(default).lower() if isinstance(default, bool) else repr(default)
            yield Key(table, name, value_type(part), text, part["description"], name in described.get("required", ()))


def _tables(kind: str) -> dict[str, type[Section]]:
    """Return the tables of a file in the order in which they are usually written."""
    whole = _section(kind)
    families = {f'family = "{name}"': one for name, one in sections.TASKS.items()}
    families['data = "trials.npz"'] = sections.DataSection
    tasks: dict[str, type[Section]] = {"[target], [[candidates]]": sections.NamedSection}
    if kind == "study":
        networks = {f'[network] kind = "{name}"': one for name, one in NETWORKS.items()}
        end: dict[str, type[Section]] = {
            "[[sequence]]": sections.StageSection,
            "[generalise]": sections.GeneraliseSection,
            "[sweep]": sections.SweepSection,
        }
        return {"": whole, **networks, "[training]": sections.TrainingSection, **tasks, **families, **end}
    own = {f"[{name}]": field.annotation for name, field in whole.model_fields.items()}
    tables = {table: one for table, one in own.items() if isinstance(one, type) and issubclass(one, Section)}
    tasks = {**tasks, 'environment = "..."': EnvironmentSection, **families} if kind == "advice" else {}
    return {"": whole, **tables, **tasks}


def value_type(part: dict[str, Any]) -> str:
    """Return the type of the values of a key, from its schema, as text."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(value_type(one) for one in part["anyOf"]))
    if "enum" in part:
        return " | ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in part["enum"])
    if part.get("type") == "array":
        items = part.get("items") or {"anyOf": part.get("prefixItems", [{}])}
        return f"list of {value_type(items)}"
    names = {"integer": "whole number", "string": "text", "boolean": "true | false", "object": "table"}
    name = names.get(part.get("type", "value"), part.get("type", "value"))
    bounds = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    return " ".join([name, *(text.format(f"{part[key]:g}") for key, text in bounds.items() if key in part)])
