"""`learncast advise`: a study or a file of your own gives the advice of the Python interface; bad input is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.study import AdviceStudy
from learncast.tasks import leaky_integration

STUDY = """
name = "small"
[model]
kind = "rnn"
hidden_size = 6
[training]
optimizer = "sgd"
learning_rate = 0.1
batch = 16
[goal]
explained = 0.5
[target]
name = "slow"
family = "leaky-integration"
steps = 6
timescale = 5.0
[[candidates]]
name = "quick"
family = "leaky-integration"
steps = 6
timescale = 1.0
"""

BUILD = """
import learncast as lc
import numpy as np

import learncast as lc

def choice(trials, rng, noise=0.3):
    x = np.zeros((trials, 4, 2))
    side = rng.integers(0, 2, trials)
    x[:, :-1] = noise * rng.standard_normal((trials, 3, 2))
    x[np.arange(trials), :-1, side] += 0.5
    return x, 1 * side

def easy(trials, rng):
    return choice(trials, rng, 0.1)

def build():
    model = lc.training.gated_module("rnn", inputs=2, hidden_size=6, outputs=2, seed=0)
    goal = lc.training.DecisionAccuracy(0.85)
    training = lc.Training(0.3, loss="cross_entropy", batch=32)
    return dict(model=model, target=choice, candidates={"easy": easy}, training=training, goal=goal)

def lone():
    return build()["model"]

def misspelt():
    return {**build(), "gaol": 3}

def misnamed():
    found = build()
    return {"model": found["model"], "target": choice, "training": found["training"], "candidate": {"easy": easy}}

def broken():
    raise ValueError("no luck")

def recorded(targets, others=None, outputs=2):
    x = np.random.default_rng(0).standard_normal((20, 4, 2))
    model = lc.training.gated_module("rnn", inputs=2, hidden_size=6, outputs=outputs, seed=0)
    candidates = {"easy": (x + 1, targets if others is None else others)}
    training = lc.Training(0.3, optimizer="adam", loss="cross_entropy")
    return dict(model=model, target=(x, targets), candidates=candidates, training=training,
                goal=lc.training.DecisionAccuracy(0.8))

def hole():
    return recorded(np.ones((20, 2)), np.full((20, 2), np.nan))

def hole_in_target():
    return recorded(np.full((20, 2), np.nan))

def hole_in_sampler():
    def missing(trials, rng):
        return np.full((trials, 4, 2), np.nan), easy(trials, rng)[1]
    return {**build(), "candidates": {"easy": missing}}

def words():
    return recorded(np.array(["left", "right"] * 10))

def words_of_sampler():
    def sides(trials, rng):
        return easy(trials, rng)[0], np.array(["left"] * trials)
    return {**build(), "target": sides}

def binary():
    return recorded(np.array([0, 1] * 10), outputs=1)
"""


@pytest.fixture(autouse=True)
def one_thread():
    """One thread: torch's threads wait for one another on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["advise", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def write(tmp_path):
    def written(text, name="study.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_a_study_gives_the_advice_of_the_python_interface(write, tmp_path):
    path = write(STUDY)
    result = run(path, "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    question = AdviceStudy.load(path).question()
    direct = lc.advise(**question)
    assert found["recommended"] == direct.recommended
    assert found["learning_rate"] == direct.learning_rate
    np.testing.assert_allclose([p["score"] for p in found["plans"]], direct["score"].values)
    names = ["advise.json", "advise.nc", "advise.png", "report.html", "study.toml"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    again = run(tmp_path / "out" / "study.toml", "--json")
    assert json.loads(again.stdout) == found


def test_a_file_of_your_own_is_advised_on(write):
    path = write(BUILD, "net.py")
    result = run("--model", f"{path}:build", "--train", "--most-steps", 300, "--json")
    assert result.exit_code == 0, result.stderr
    assert str(path) in result.stderr  # what is executed is printed
    found = json.loads(result.stdout)
    assert found["run_status"] in ("ok", "not_within")
    assert found["run_steps"] > 0


def test_recorded_trials_and_labels_are_used_as_they_are(write, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5, 2))
    for name, lengths in (("target", np.full(60, 5)), ("short", rng.integers(3, 6, 60))):
        np.savez(tmp_path / f"{name}.npz", inputs=x, labels=(x.sum((1, 2)) > 0).astype(int), lengths=lengths)
    head = STUDY[: STUDY.index("[goal]")]
    text = head + '[goal]\ndecisions = 0.8\n[target]\ndata = "target.npz"\n[[candidates]]\ndata = "short.npz"\n'
    question = AdviceStudy.load(write(text)).question()
    target, candidates = question["target"], question["candidates"]
    assert not target.batch(4, (0, 0), 0, torch.float32).targets.is_floating_point()
    assert len(target.held_out(500, (0, 0), torch.float32).inputs) == 12
    assert list(candidates) == ["short"]
    assert question["model"].readout.out_features == 2
    assert question["goal"].value == 0.8
    assert run(write(text), "--json").exit_code == 0


#: Options, and tokens of the error.
REFUSED = {
    "both": (("study.toml", "--model", "net.py:build"), ["STUDY", "--model"]),
    "neither": ((), ["STUDY", "--model"]),
    "changed keys of no study": (("--model", "net.py:build", "--set", "training.learning_rate=0.5"), ["--set"]),
    "no dictionary": (("--model", "net.py:lone"), ["net.py:lone", "training"]),
    "unknown keyword": (("--model", "net.py:misspelt"), ["'gaol'"]),
    "misnamed keyword": (("--model", "net.py:misnamed"), ["'candidate'"]),
    "no function": (("--model", "net.py:absent"), ["net.py:absent"]),
    "function that raises": (
        ("--model", "net.py:broken"),
        ["ValueError: no luck", f"line {len(BUILD.split('no luck')[0].splitlines())} "],
    ),
    "missing numbers of a candidate": (("--model", "net.py:hole"), ["targets", "'easy'"]),
    "missing numbers of the target": (("--model", "net.py:hole_in_target"), ["targets"]),
    "missing numbers of a sampler": (("--model", "net.py:hole_in_sampler"), ["inputs", "'easy'"]),
    "words": (("--model", "net.py:words"), ["labels", "'left'"]),
    "words of a sampler": (("--model", "net.py:words_of_sampler"), ["sides"]),
    "one output": (("--model", "net.py:binary"), ["output"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(write, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write(STUDY)
    write(BUILD, "net.py")
    arguments, tokens = REFUSED[name]
    result = run(*arguments)
    assert result.exit_code == 2
    assert all(token in result.stderr for token in tokens), result.stderr


@pytest.mark.parametrize(("place", "is_executed"), [("nofile.py:build", False), ("net.py:lone", True)])
def test_only_a_file_that_exists_is_announced_as_executed(write, tmp_path, monkeypatch, place, is_executed):
    monkeypatch.chdir(tmp_path)
    write(BUILD, "net.py")
    result = run("--model", place)
    assert result.exit_code == 2
    assert ("executing" in result.stderr) == is_executed


BAD = {
    "a key of another kind": ("hidden_size = 6\nalpha = 0.2", "alpha"),
    "a misspelt key": ("hidden_size = 6\nhiden = 3", "'hidden_size'"),
    "two goals": ("hidden_size = 6\n[goal]\nloss = 0.1\ndecisions = 0.8", "decisions"),
    "steps without decisions": ("hidden_size = 6\n[goal]\nloss = 0.1\nsteps = [-1]", "decisions"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_keys_are_refused_with_their_file(write, name):
    text, token = BAD[name]
    own = STUDY.replace("[goal]\nexplained = 0.5\n", "") if "[goal]" in text else STUDY
    result = run(write(own.replace("hidden_size = 6", text)))
    assert result.exit_code == 2
    assert token in result.stderr
    assert "study.toml" in result.stderr


def test_a_study_builds_the_tasks_of_the_python_interface(write):
    study = AdviceStudy.load(write(STUDY))
    assert study.question()["target"].task.hash == leaky_integration(6, timescale=5.0).hash
