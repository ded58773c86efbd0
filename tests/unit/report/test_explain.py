"""`learncast explain`: the method of a study, the methods before it, and the cost of an answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.report import explain_study, explanation_text
from learncast.study import Study

HEAD = "[network]\nhidden_size = 3\nrecurrence = 0.8\ninitial = 0.2\n[training]\nlearning_rate = 0.01\naccuracy = 0.9\n"
TARGET = '[target]\nname = "goal"\nfamily = "integration"\nsteps = 4\nmixing = [[1.0, 0.0], [0.0, 0.5]]\n'
ROTATED = '[[candidates]]\nname = "rotated"\nfamily = "integration"\nsteps = 4\nmixing = [[1.8, -0.4], [0.8, 0.9]]\n'
STRONGER = '[[candidates]]\nname = "stronger"\nfamily = "integration"\nsteps = 4\nmixing = [[1.5, 0.0], [0.0, 1.0]]\n'


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_the_first_method_rejects_none(write):
    study = Study.load(write(HEAD + TARGET + STRONGER))
    found = explain_study(study)
    assert (found["method"], found["class"], found["rejected"]) == ("modes", "exact", [])
    assert [task["name"] for task in found["tasks"]] == ["goal", "stronger"]
    assert found["orders"] == 1
    assert found["direct_steps"] == lc.forecast(study.target, study.network, study.training, study.goal).steps.descent
    assert all(condition["holds"] for condition in found["conditions"])
    assert f"{found['direct_steps']:,.0f}" in explanation_text(study, found)


def test_methods_whose_conditions_fail_are_rejected(write):
    path = write(HEAD + TARGET + ROTATED)
    result = CliRunner().invoke(app, ["explain", str(path), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["method"] == "two-layer"
    assert [one["method"] for one in found["rejected"]] == ["modes"]
    named = json.loads(CliRunner().invoke(app, ["explain", str(path), "--method", "flow", "--json"]).stdout)
    assert (named["method"], named["class"], named["rejected"]) == ("flow", "integrated", [])
    assert named["direct_steps"] == found["direct_steps"]
    text = CliRunner().invoke(app, ["explain", str(path)]).stdout
    assert all(token in text for token in ("two-layer", "modes", "static geometry", "rotated"))


def test_a_sequence_is_explained_without_a_cost(write):
    sequence = TARGET.replace("[target]", "[[sequence]]") + ROTATED.replace("[[candidates]]", "[[sequence]]")
    head = HEAD.replace("accuracy = 0.9\n", "")
    found = explain_study(Study.load(write(head + sequence)))
    assert [task["name"] for task in found["tasks"]] == ["goal", "rotated"]
    assert found["method"] == "two-layer"
    assert "direct_steps" not in found
