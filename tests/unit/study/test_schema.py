"""Schema, templates and explanations agree with the studies that are read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.study import Study, new_study, schema, template
from learncast.sweep_cli import sweep_app

jsonschema = pytest.importorskip("jsonschema")
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def problems(raw, kind):
    return [error.message for error in jsonschema.Draft202012Validator(schema.schema(kind)).iter_errors(raw)]


@pytest.mark.parametrize("kind", schema.KINDS)
def test_a_schema_is_a_valid_json_schema_without_null(kind):
    jsonschema.Draft202012Validator.check_schema(schema.schema(kind))
    assert json.loads(run("schema", kind).stdout) == schema.schema(kind)
    assert '"null"' not in json.dumps(schema.schema(kind))  # TOML has no null


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_under_the_schema(path):
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    kind = "window" if "window" in raw else "advice" if "goal" in raw else "study"
    assert problems(raw, kind) == []
    if kind == "study":  # also with every default written out
        resolved = Study.load(path).resolved()
        assert problems(tomllib.loads(resolved), kind) == []
        again = Study.from_dict(tomllib.loads(resolved), folder=path.parent, source="again")
        assert again.resolved() == resolved


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"trianing": {}}, "trianing"),
        ({"training": {"learning_rate": -1.0}}, "-1.0"),
        ({"training": {"learning_rate": 1e-3, "accuracy": 2}}, "2"),
        ({"network": {"kind": "transformer"}}, "transformer"),
        ({"target": {"family": "juggling"}}, "juggling"),
        ({"sequence": [{"family": "integration", "train_stps": 3}]}, "train_stps"),
    ],
)
def test_the_schema_rejects_what_a_study_rejects(change, token):
    raw = {"training": {"learning_rate": 1e-3}, "target": {"family": "integration"}}
    assert problems(raw, "study") == []
    found = problems({**raw, **change}, "study")
    assert any(token in one for one in found)
    with pytest.raises(lc.InvalidSpec):
        Study.from_dict({**raw, **change}, folder=Path(), source="file")


def test_words_may_have_hyphens():
    raw = {"training": {"learning_rate": 1e-3}, "target": {"family": "leaky-integration", "targets": "every-step"}}
    assert problems(raw, "study") == []
    Study.from_dict(raw, folder=Path(), source="file")


def test_every_key_of_every_table_has_a_description():
    listed = [key for kind in schema.KINDS for key in schema.keys(kind)]
    assert not [key for key in listed if not key.meaning]
    known = {key.name for key in listed}
    tables = {"network", "training", "target", "candidates", "sequence"}
    tables |= {"task", "window", "model", "goal", "generalise"}
    for kind in schema.KINDS:
        for part in schema.schema(kind)["$defs"].values():
            assert part.get("properties", {}).keys() <= known | tables
    rate = next(key for key in listed if key.name == "learning_rate")
    assert (rate.table, rate.type, rate.default, rate.required) == ("[training]", "number above 0", "", False)


def test_the_list_of_keys_has_a_line_for_each_key_below_its_table():
    lines = run("schema", "--keys").stdout.splitlines()
    keys = list(schema.keys("study"))
    assert lines[0].startswith("  name: ")
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  ")] == [key.name for key in keys]
    tables = [line for line in lines if line and not line.startswith("  ")]
    assert tables == list(dict.fromkeys(key.table for key in keys if key.table))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.torch] * (kind == "window")) for kind in template.TEMPLATES]
)
def test_a_template_runs_as_it_is(kind, tmp_path):
    path = tmp_path / "mine.toml"
    made = run("new", kind, path)
    assert made.exit_code == 0, made.output
    question = made.output.strip().splitlines()[-1].partition("learncast ")[2].split()
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    assert problems(raw, {"window": "window", "advise": "advice"}.get(kind, "study")) == []
    extra = ["--dry-run", "--json"] if kind == "sweep" else ["--json"]
    answer = run(*question, *extra)
    assert answer.exit_code == 0, answer.output
    json.loads(answer.stdout)


def test_a_template_overwrites_nothing(tmp_path):
    new_study("recordings", tmp_path / "mine.toml")
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    (tmp_path / "mine.toml").unlink()
    with pytest.raises(lc.InvalidSpec):  # because of the trials
        new_study("recordings", tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_bytes(before[tmp_path / "mine.toml"])
    assert run("new", "plan", tmp_path / "mine.toml").exit_code == 2
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_an_unknown_kind_of_template_raises(tmp_path):
    with pytest.raises(lc.InvalidSpec) as error:
        new_study("plans", tmp_path / "mine.toml")
    assert error.value.field == "kind"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "method", "others"),
    [
        ("two_integration_tasks", "modes", []),
        ("recorded_data", "pooled", ["modes", "two-layer"]),
        ("rotated_readouts", "two-layer", ["modes"]),
        ("learned_recurrence", "flow", ["modes", "two-layer", "pooled"]),
        ("revised_hierarchy", "two-layer", ["modes"]),
    ],
)
def test_a_study_is_answered_by_the_first_method_whose_conditions_hold(name, method, others):
    own = Study.load(next(one for one in EXAMPLES if one.stem == name))
    tasks = [one for one, _ in own.sequence] or [*own.candidates, own.target]

    def applies(other):
        try:
            return lc.planning.method_for(tasks, own.network, own.training, method=other).applies
        except lc.InvalidSpec:  # a network without this method
            return False

    assert lc.planning.method_for(tasks, own.network, own.training).name == method
    assert applies(method)
    assert not any(map(applies, others))


def test_every_command_ends_its_help_with_an_example():
    for group, words in ((app, []), (sweep_app, ["sweep"])):
        for one in group.registered_commands:
            name = one.name or one.callback.__name__
            assert one.epilog.startswith(f"Example: learncast {' '.join([*words, name])}")


def test_a_portrait_has_default_values():
    path = next(one for one in EXAMPLES if one.stem == "two_integration_tasks")
    found = json.loads(run("phase", path, "--json").stdout)
    assert found["vary"] == "target_strength"
    assert min(found["values"]) == 0.25
    assert max(found["values"]) == 4.0
