"""The keys of study files as a table, and as a JSON schema by which editors complete and check them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from learncast._core.validation import one_of
from learncast.study import advice_study, sections
from learncast.study.advice_study import AdviceStudySection, EnvironmentSection
from learncast.study.sections import (
    NETWORKS,
    TASKS,
    DataSection,
    NamedSection,
    StageSection,
    StudySection,
    SweepSection,
    TrainingSection,
    WindowStudySection,
)
from learncast.study.study_file import Section

#: Files that a schema is for, and what describes them.
KINDS: dict[str, type[Section]] = {"study": StudySection, "window": WindowStudySection, "advice": AdviceStudySection}

#: Words that may be written with a hyphen too.
HYPHENED = ("leaky_integration", "every_step")


class Key(NamedTuple):
    """One key of a study file.

    Attributes
    ----------
    table : str
        Where it stands, as the file writes it.
    name, type, default, meaning : str
        A default is empty where the key must be given, or nothing is meant where it is left out.
    required : bool
    """

    table: str
    name: str
    type: str
    default: str
    meaning: str
    required: bool


def schema(kind: str = "study") -> dict[str, Any]:
    """The JSON schema of a study file, or of a learnability window's."""
    section = KINDS[one_of("the kind of file", kind, tuple(KINDS))]
    found = section.model_json_schema()
    found |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"learncast {kind} file"}
    parts = found["$defs"] | {"SweepSection": SweepSection.model_json_schema()}
    for name, part in [*parts.items(), (section.__name__, found)]:
        meanings = _meanings(name)
        for key, one in part.get("properties", {}).items():
            one.pop("title", None)
            one |= {"description": meanings[key]} if key in meanings else {}
    found["$defs"] = parts
    if kind != "advice":
        found["properties"]["sweep"] = {"$ref": "#/$defs/SweepSection", "description": "One question over a grid."}
    if kind == "study":
        # A stage's task stands in the stage's own table; words may be written with hyphens.
        steps = parts.pop("StageSection")["properties"]["train_steps"]
        stages = []
        tasks: list[type[Section]] = [*TASKS.values(), DataSection]
        for name in [one.__name__ for one in tasks]:
            whole = parts[name]
            parts[f"{name}Stage"] = {**whole, "properties": {**whole["properties"], "train_steps": steps}}
            stages.append({"$ref": f"#/$defs/{name}Stage"})
        found["properties"]["sequence"]["items"] = {"anyOf": stages}
    return dict(_plain(found))


def _plain(value: Any) -> Any:
    """The same without what TOML has not: nothing is never written, and words have hyphens or underscores."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _plain(item) for key, item in value.items() if not (key == "default" and item is None)}
    choices = [one for one in kept.get("anyOf", []) if one != {"type": "null"}]
    if "anyOf" in kept:
        kept["anyOf"] = choices
        if len(choices) == 1:
            del kept["anyOf"]
            kept = {**choices[0], **kept}
    if isinstance(kept.get("const"), str):
        kept["enum"] = [kept.pop("const")]
    if isinstance(kept.get("enum"), list):
        hyphened = [word.replace("_", "-") for word in kept["enum"] if word in HYPHENED]
        kept["enum"] = list(dict.fromkeys([*kept["enum"], *hyphened]))
    return kept


def keys(kind: str = "study") -> Iterator[Key]:
    """Every key of a file, table by table, in the order in which one would write them."""
    whole = KINDS[one_of("the kind of file", kind, tuple(KINDS))]
    families = {f'family = "{name}"': one for name, one in TASKS.items()} | {'data = "trials.npz"': DataSection}
    tables: dict[str, type[Section]] = {"": whole}
    if kind == "study":
        tables |= {f'[network] kind = "{name}"': one for name, one in NETWORKS.items()}
        tables |= {"[training]": TrainingSection, "[target], [[candidates]]": NamedSection, **families}
        tables |= {"[[sequence]]": StageSection, "[sweep]": SweepSection}
    else:
        own = {name: field.annotation for name, field in whole.model_fields.items()}
        tables |= {f"[{name}]": one for name, one in own.items() if isinstance(one, type) and issubclass(one, Section)}
    if kind == "advice":
        tables |= {"[target], [[candidates]]": NamedSection, 'environment = "..."': EnvironmentSection, **families}
    for table, section in tables.items():
        described = schema_of(section)
        shared = {} if section is NamedSection or not issubclass(section, NamedSection) else NamedSection.model_fields
        for name, part in described["properties"].items():
            if name in shared or "$ref" in str(part):
                continue  # said once, or a table of its own
            default = part.get("default")
            required = name in described.get("required", ())
            shown = "" if default is None else str(default).lower() if isinstance(default, bool) else repr(default)
            yield Key(table, name, _words(part), shown, _meanings(section.__name__).get(name, ""), required)


def schema_of(section: type[Section]) -> dict[str, Any]:
    """The plain schema of one table."""
    return dict(_plain(section.model_json_schema()))


def _words(part: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_words(one) for one in part["anyOf"]))
    if "enum" in part:
        return " | ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in part["enum"])
    if part.get("type") == "array":
        inside = part.get("items") or {"anyOf": part.get("prefixItems", [{}])}
        return f"list of {_words(inside)}"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true | false"}
    word = words.get(part.get("type", ""), "table" if part.get("type") == "object" else "value")
    bounds = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    told = [text.format(f"{part[key]:g}") for key, text in bounds.items() if key in part]
    return f"{word} {' '.join(told)}".strip()


@cache
def _source() -> dict[str, ast.ClassDef]:
    trees = [ast.parse(inspect.getsource(module)) for module in (sections, advice_study)]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def _meanings(name: str) -> dict[str, str]:
    """What the text below each key of a section says, its parents' keys included."""
    node, found = _source().get(name), dict[str, str]()
    if node is None:
        return found
    for base in node.bases:
        found |= _meanings(ast.unparse(base))
    for one, text in zip(node.body, node.body[1:], strict=False):
        told = text.value if isinstance(text, ast.Expr) else None
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(told, ast.Constant):
            found[one.target.id] = inspect.cleandoc(str(told.value)).replace("\n", " ").strip()
    return found
