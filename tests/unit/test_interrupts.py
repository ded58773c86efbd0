"""Ctrl-C leaves every command with one line and exit code 130."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from learncast import cli, sweep_cli

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDY = str(EXAMPLES / "pool_of_twenty.toml")
QUESTIONS = {
    "forecast": [STUDY],
    "plan": [STUDY],
    "advise": [str(EXAMPLES / "decision_network.toml")],
    "phase": [STUDY, "--vary", "target_strength", "--values", "1", "--accuracies", "0.5"],
    "forget": [STUDY],
    "check": [STUDY],
    "window": [str(EXAMPLES / "multi_lag_window.toml")],
    "reproduce": ["curriculum"],
    "explore": ["--no-browser"],
    "new": ["plan", "new.toml"],
    "schema": [],
    "explain": [STUDY],
    "version": [],
}
SWEEPS = {name: [STUDY] for name in ("run", "resume", "status", "rebuild", "verify", "gather", "prune")}


def test_every_command_is_asked():
    assert {one.name or one.callback.__name__ for one in cli.app.registered_commands} == QUESTIONS.keys()
    assert {one.name or one.callback.__name__ for one in sweep_cli.sweep_app.registered_commands} == SWEEPS.keys()


@pytest.mark.parametrize(
    "words", [*([name, *rest] for name, rest in QUESTIONS.items()), *(["sweep", n, *r] for n, r in SWEEPS.items())]
)
def test_an_interrupted_command_says_so_in_one_line(words, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for place in (
        "learncast.study.study_file.Given.read",
        "learncast.sweep.reproduction.Reproduction.of",
        "learncast.web.app.explored",
        "learncast.study.beginning.begin",
        "learncast.study.schema.schema",
        "learncast.sweep.studies.sweep_of",
        "learncast.sweep.sweeping.stored_sweep",
        *(f"learncast.sweep.{name}" for name in ("status", "rebuild", "verify", "gather", "prune")),
    ):
        monkeypatch.setattr(place, interrupted)
    if words == ["version"]:
        monkeypatch.setattr("builtins.print", lambda *_, **given: None if given else interrupted())
        assert CliRunner().invoke(cli.app, words).exit_code == 130
        return
    result = CliRunner().invoke(cli.app, words)
    assert (result.exit_code, result.stderr) == (130, "learncast: interrupted\n")


@pytest.mark.parametrize("seconds", [0.5, 1.5])
def test_a_process_ends_so_while_it_starts_and_while_it_works(seconds):
    command = [sys.executable, "-m", "learncast", "check", STUDY, "--seeds", "50"]
    # A shell's background jobs are born deaf to the key, and so are their children.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    # Python itself ends by the signal where one arrived inside of an import; a shell calls both 130.
    assert process.returncode in (130, -signal.SIGINT)
    assert errors in ("learncast: interrupted\n", "")
