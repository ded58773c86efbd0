"""`learncast generalise`: studies, options, sweeps and the section of forecasts give the numbers of the library."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.planning import Folds
from learncast.report import forecast_report, generalise_report, plan_report
from learncast.study import Study

STUDY = """
name = "mine"
[network]
hidden_size = 6
recurrence = 0.8
initial = "random"
scale = 0.2
seed = 1
[training]
learning_rate = 0.02
explained = 0.9
[target]
name = "all"
data = "trials.npz"
centre = true
[[candidates]]
name = "doubled"
data = "doubled.npz"
centre = true
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 3, 4))
    y = x.sum(axis=1)[:, :2] + rng.standard_normal((90, 2))
    animals = np.array([f"animal {k % 9}" for k in range(60)])
    np.savez(tmp_path / "trials.npz", inputs=x[:60], targets=y[:60], animal=animals)
    np.savez(tmp_path / "doubled.npz", inputs=x[:40], targets=2 * y[:40])
    np.savez(tmp_path / "session2.npz", inputs=x[60:], targets=y[60:])
    return tmp_path


def study_of(folder, text=""):
    (folder / "study.toml").write_text(STUDY + text, encoding="utf-8")
    return Study.load(folder / "study.toml")


def run(folder, *options):
    result = CliRunner().invoke(app, ["generalise", str(folder / "study.toml"), "--json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_gives_the_numbers_of_the_library(folder):
    study = study_of(folder, "[generalise]\nfolds = 5\nmost_steps = 300\nseed = 2\n")
    g = lc.generalise(study.target, study.network, learning_rate=0.02, folds=Folds(5, seed=2), most_steps=300)
    values = run(folder)
    assert (values["stop"], values["loss"], values["rise"]) == (g.stop, g.loss, g.rise)
    assert values["loss_interval"] == list(g.loss_interval)
    assert values["overfits"] == g.overfits


def test_groups_and_test_files_are_keys_of_the_study(folder):
    study = study_of(folder, '[generalise]\nfolds = 3\ngroups = "animal"\nmost_steps = 100\n')
    assert study.held_out["folds"].groups == tuple(f"animal {k % 9}" for k in range(60))
    study = study_of(folder, '[generalise]\ntest = "session2.npz"\nmost_steps = 100\n')
    found = run(folder)
    assert found == run(folder, "--test", str(folder / "session2.npz"))
    assert found["held_out"] == "test trials"
    test = lc.tasks.from_file(folder / "session2.npz")
    g = lc.generalise(study.target, study.network, learning_rate=0.02, test=test, most_steps=100)
    assert found["loss"] == pytest.approx(g.loss, rel=1e-12)


def test_groups_are_a_column_of_a_table(folder):
    lines = ["trial,step,input 0,target 0,animal"]
    rng = np.random.default_rng(0)
    for trial in range(30):
        for step in range(2):
            a, b = rng.standard_normal(2)
            lines.append(f"{trial},{step},{a:.5f},{b:.5f},animal {trial % 10}")
    (folder / "trials.csv").write_text("\n".join(lines), encoding="utf-8")
    text = STUDY.replace('"trials.npz"', '"trials.csv"').split("[[candidates]]")[0]
    (folder / "study.toml").write_text(text + '[generalise]\ngroups = "animal"\n', encoding="utf-8")
    study = Study.load(folder / "study.toml")
    assert study.held_out["folds"].groups == tuple(f"animal {k % 10}" for k in range(30))
    changed = "\n".join([*lines[:-1], lines[-1].replace("animal 9", "animal 1")])
    (folder / "trials.csv").write_text(changed, encoding="utf-8")
    with pytest.raises(lc.InvalidSpec):
        _ = study.held_out


def test_a_source_and_a_plan_for_the_held_out_loss(folder):
    study = study_of(folder, "[generalise]\nfolds = 3\nmost_steps = 100\n")
    values = run(folder, "--after", "doubled")
    direct = generalise_report(study).values
    assert values["after"]["direct_loss"] == direct["loss"]
    assert values["after"]["gain"] == pytest.approx(1 - values["loss"] / direct["loss"])
    plan = plan_report(study, held_out=True).values
    assert plan["held_out"]["direct"]["loss"] == direct["loss"]
    assert plan["held_out"]["after"][0]["loss"] == values["loss"]


@pytest.mark.slow
def test_plans_for_the_held_out_loss_agree_between_study_command_and_library(folder):
    study = study_of(folder, "[generalise]\nplan = true\n")
    assert study.terms.goal == "generalise"
    by_key = CliRunner().invoke(app, ["plan", str(folder / "study.toml"), "--json"])
    study_of(folder)
    by_option = CliRunner().invoke(app, ["plan", str(folder / "study.toml"), "--held-out", "--json"])
    assert (by_key.exit_code, by_key.stdout) == (0, by_option.stdout)
    values = json.loads(by_key.stdout)
    plan = lc.plan(study.target, study.candidates, study.network, learning_rate=0.02, terms=lc.Terms(goal="generalise"))
    assert values["best"]["total"] == plan.total
    assert values["held_out"]["recommended"]["loss"] == plan.chosen.loss
    assert values["held_out"]["after"][0]["loss"] == plan.after[0].loss
    assert values["held_out"]["fastest"] == {"total": plan.fastest.total, "loss": plan.fastest_loss}


def test_a_plan_of_one_stage_for_the_held_out_loss_is_direct_training(folder):
    study = study_of(folder, "[generalise]\nplan = true\nmost_steps = 100\nfolds = 3\n")
    tables = tomllib.loads(study.resolved())
    tables["training"]["max_stages"] = 1
    values = plan_report(Study.from_dict(tables, folder=folder, source="study")).values
    assert values["held_out"]["after"] == []
    assert values["best"]["total"] == values["held_out"]["direct"]["stop"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[generalise]\nfolds = 2\n", "generalise.folds"),
        ('[generalise]\nanimals = "x"\n', "generalise.animals"),
        ('[generalise]\ngroups = "animal"\nblocks = 3\n', "generalise"),
    ],
)
def test_wrong_keys_are_refused(folder, text, field):
    with pytest.raises(lc.InvalidSpec) as error:
        study_of(folder, text)
    assert error.value.field == field
    result = CliRunner().invoke(app, ["generalise", str(folder / "study.toml")])
    assert result.exit_code == 2


def test_forecasts_of_recorded_tasks_have_a_section(folder):
    study = study_of(folder)
    values = forecast_report(study).values
    # Both commands look equally far ahead, so they report the same stop and the same loss.
    g = lc.generalise(study.target, study.network, learning_rate=0.02)
    assert values["held_out"]["loss"] == g.loss
    assert values["held_out"]["most_steps"] == g.most_steps
    assert values["held_out"]["stop_set"] == list(g.stop_set)


def test_the_question_can_be_swept(folder, tmp_path):
    sweep = '[sweep]\ncommand = "generalise"\ngrid = { "training.learning_rate" = [0.01, 0.02] }\n'
    text = STUDY + "[generalise]\nfolds = 3\nmost_steps = 50\n"
    (folder / "study.toml").write_text(text + sweep, encoding="utf-8")
    words = ["sweep", "run", str(folder / "study.toml"), "--store", str(tmp_path / "store"), "--in-process"]
    assert CliRunner().invoke(app, words).exit_code == 0
    found = lc.sweep.gather(tmp_path / "store")["loss"]
    assert found.size == 2
    (folder / "study.toml").write_text(text, encoding="utf-8")
    assert found.values.ravel()[1] == run(folder)["loss"]


def test_a_mode_that_is_not_half_learned_in_time_is_not_called_never_learned(folder):
    report = generalise_report(study_of(folder), most_steps=3)
    [modes] = [table for table in report.tables if table.columns[0] == "mode"]
    learned = [row[-1] for row in modes.rows]
    assert learned
    assert all("3" in text and "never" not in text for text in learned)
