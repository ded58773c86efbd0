"""Schema, first studies and explanations: what they say of study files is what study files are."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from learncast._core.errors import InvalidSpec
from learncast.cli import app
from learncast.study import Study, advice_study, sections
from learncast.study.beginning import BEGINNINGS, begin
from learncast.study.schema import KINDS, keys, schema
from learncast.study.study_file import Section
from learncast.sweep_cli import sweep_app

jsonschema = pytest.importorskip("jsonschema")
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def problems(raw, kind):
    return [error.message for error in jsonschema.Draft202012Validator(schema(kind)).iter_errors(raw)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one(kind):
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    assert json.loads(run("schema", kind).stdout) == schema(kind)
    assert '"null"' not in json.dumps(schema(kind))  # TOML has nothing of the kind


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_what_the_schema_says(path):
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    kind = "window" if "window" in raw else "advice" if "goal" in raw else "study"
    assert problems(raw, kind) == []
    if kind == "study":  # and so are they with every default written out
        resolved = Study.load(path).resolved()
        assert problems(tomllib.loads(resolved), kind) == []
        again = Study.from_dict(tomllib.loads(resolved), folder=path.parent, source="again")
        assert again.resolved() == resolved


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trianing": {}}, "trianing"),
        ({"training": {"learning_rate": -1.0}}, "-1.0"),
        ({"training": {"learning_rate": 1e-3, "accuracy": 2}}, "2"),
        ({"network": {"kind": "transformer"}}, "transformer"),
        ({"target": {"family": "juggling"}}, "juggling"),
        ({"sequence": [{"family": "integration", "train_stps": 3}]}, "train_stps"),
    ],
)
def test_what_a_study_refuses_the_schema_refuses(change, words):
    raw = {"training": {"learning_rate": 1e-3}, "target": {"family": "integration"}}
    assert problems(raw, "study") == []
    found = problems({**raw, **change}, "study")
    assert any(words in one for one in found)
    with pytest.raises(InvalidSpec):
        Study.from_dict({**raw, **change}, folder=Path(), source="file")


def test_hyphens_are_words_too():
    raw = {"training": {"learning_rate": 1e-3}, "target": {"family": "leaky-integration", "targets": "every-step"}}
    assert problems(raw, "study") == []
    Study.from_dict(raw, folder=Path(), source="file")


def test_every_key_of_every_table_has_a_meaning():
    listed = [key for kind in KINDS for key in keys(kind)]
    assert all(key.meaning for key in listed), [key for key in listed if not key.meaning]
    named = {key.name for key in listed}
    both = {**vars(sections), **vars(advice_study)}.values()
    for section in [one for one in both if isinstance(one, type) and issubclass(one, Section)]:
        for name, field in section.model_fields.items():
            table = isinstance(field.default, Section) or name in (
                "network", "training", "target", "candidates", "sequence", "task", "window", "model", "goal"
            )  # fmt: skip
            assert name in named or table, (section, name)
    text = run("schema", "--keys").stdout
    assert "learning_rate: number above 0; must be given. Step size of gradient descent" in text
    assert "[training]" in text


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_first_study_runs_as_it_is(kind, tmp_path):
    path = tmp_path / "mine.toml"
    made = run("new", kind, path)
    assert made.exit_code == 0, made.output
    question = made.output.strip().splitlines()[-1].removeprefix("Ask it: learncast ").split()
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    assert problems(raw, "window" if kind == "window" else "study") == []
    extra = ["--dry-run", "--json"] if kind == "sweep" else ["--json"]
    answer = run(*question, *extra)
    assert answer.exit_code == 0, answer.output
    json.loads(answer.stdout)
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    again = run("new", kind, path)
    assert again.exit_code == 2
    assert "must not be there yet" in again.stderr
    assert {one: one.read_bytes() for one in tmp_path.iterdir() if one in before} == before


def test_a_first_study_of_an_unknown_kind(tmp_path):
    with pytest.raises(InvalidSpec, match="the kind of study must be"):
        begin("plans", tmp_path / "mine.toml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "way", "words"),
    [
        ("two_integration_tasks", "modes", "331 steps (reached"),
        ("recorded_data", "pooled", "not modes: static geometry measures"),
        ("rotated_readouts", "two-layer", "12 orders of pretraining"),
        ("learned_recurrence", "flow", "not pooled: by="),
        ("revised_hierarchy", "two-layer", "colours, two items swapped: 1 step, 8 inputs, 8 outputs"),
    ],
)
def test_an_explanation_names_the_way_and_what_speaks_against_others(name, way, words):
    path = next(one for one in EXAMPLES if one.stem == name)
    text = run("explain", path)
    assert text.exit_code == 0, text.output
    assert f"Way: {way} (" in text.stdout
    assert words in text.stdout
    found = json.loads(run("explain", path, "--json").stdout)
    assert found["by"] == way
    own = Study.load(path)
    if own.section.target is not None:
        assert own.ground().by == way


def test_an_explanation_of_what_is_never_learned_promises_no_steps(tmp_path):
    text = next(one for one in EXAMPLES if one.stem == "two_integration_tasks").read_text(encoding="utf-8")
    path = tmp_path / "never.toml"
    path.write_text(text.replace("learning_rate = 1e-3", "learning_rate = 10.0"), encoding="utf-8")
    said = run("explain", path).stdout
    assert "direct training is forecast never to reach its goal (gradient descent diverges" in said
    assert "inf" not in said
    assert "trains for real" not in said


def test_every_command_ends_its_help_with_an_example():
    for group, words in ((app, []), (sweep_app, ["sweep"])):
        for one in group.registered_commands:
            name = one.name or one.callback.__name__
            assert one.epilog.startswith(f"Example: learncast {' '.join([*words, name])}")
    assert "Example: learncast plan" in run("plan", "--help").output


def test_a_portrait_needs_no_options():
    path = next(one for one in EXAMPLES if one.stem == "two_integration_tasks")
    found = json.loads(run("phase", path, "--json").stdout)
    assert found["vary"] == "target_strength"
    assert min(found["values"]) == 0.25
    assert max(found["values"]) == 4.0
