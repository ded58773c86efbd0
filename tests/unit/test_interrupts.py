"""Ctrl-C ends every command with one line and exit code 130."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
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
    "generalise": [str(EXAMPLES / "recorded_data.toml")],
    "check": [STUDY],
    "window": [str(EXAMPLES / "multi_lag_window.toml")],
    "reproduce": ["curriculum"],
    "explore": ["--no-browser"],
    "new": ["plan", "new.toml"],
    "schema": [],
    "version": [],
}
SWEEPS = {name: [STUDY] for name in ("run", "resume", "status", "rebuild", "verify", "gather", "prune")}


def test_every_command_is_covered():
    assert {one.name or one.callback.__name__ for one in cli.app.registered_commands} == QUESTIONS.keys()
    assert {one.name or one.callback.__name__ for one in sweep_cli.sweep_app.registered_commands} == SWEEPS.keys()


@pytest.mark.parametrize(
    "words", [*([name, *rest] for name, rest in QUESTIONS.items()), *(["sweep", n, *r] for n, r in SWEEPS.items())]
)
def test_an_interrupted_command_prints_one_line(words, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for place in (
        "learncast.study.study_file.read_study",
        "learncast.sweep.reproduction.Reproduction.__init__",
        "learncast.web.app.serve",
        "learncast.study.template.new_study",
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


def crew_of(process: subprocess.Popen, number: int) -> list[psutil.Process]:
    """Wait until a number of its workers have loaded their modules; return the workers."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        crew = [one for one in psutil.Process(process.pid).children() if "spawn_main" in " ".join(one.cmdline())]
        if len(crew) >= number and all(one.cpu_times().user > 1.5 for one in crew):
            return crew
        time.sleep(0.02)
    raise AssertionError("no workers")


@pytest.mark.torch
@pytest.mark.slow_cases("None")
@pytest.mark.parametrize("seconds", [0.5, 1.5, None])
def test_a_process_ends_while_it_starts_works_or_waits_for_workers(seconds):
    """Training fifty seeds would take minutes."""
    command = [sys.executable, "-m", "learncast", "check", STUDY, "--seeds", "50"]
    # Background jobs of a shell, and their children, ignore SIGINT unless it is reset.
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            crew = [] if seconds is not None else crew_of(process, min(os.cpu_count() or 1, 2))
            time.sleep(seconds or 0.0)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert not any(one.is_running() for one in crew)
    # Python ends by the signal itself if it arrives during an import; a shell reports both as 130. Before learncast is
    # loaded, Python prints a traceback of runpy.
    assert process.returncode in (130, -signal.SIGINT)
    assert errors in ("learncast: interrupted\n", "") or ("<frozen runpy>" in errors and "__main__.py" not in errors)


LET_GO = """
import time, weakref
import learncast.__main__, learncast.cli

class Held:
    pass

def interrupted(_):
    raise KeyboardInterrupt

def work():
    held = Held()
    seen = weakref.ref(held, interrupted)
    del held
    for _ in range(GOING):
        time.sleep(0.01)

learncast.cli.main = work
learncast.__main__.main()
"""


@pytest.mark.parametrize(("going", "expected"), [(1000, (130, "learncast: interrupted\n")), (0, (0, ""))])
def test_an_interrupt_in_a_weak_reference_callback_ends_the_program(going, expected):
    """Unless the work is complete by then."""
    script = LET_GO.replace("GOING", str(going))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    )
    assert (done.returncode, done.stderr) == expected


NOT_LOADED = """
import signal
import learncast.__main__, learncast.cli

def work():
    try:
        raise FIRST
    except BaseException as first:
        raise ImportError("initialization failed") from first

learncast.cli.main = work
learncast.__main__.main()
"""


@pytest.mark.parametrize("cause", ["from first", "from None"])
@pytest.mark.parametrize("first", ["signal.raise_signal(signal.SIGINT)", "raise ValueError"])
def test_an_interrupt_during_the_import_of_a_compiled_module_ends_the_program(first, cause):
    """Compiled modules convert it to another error, or lose it; other import errors are shown."""
    script = NOT_LOADED.replace("raise FIRST", first).replace("from first", cause)
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # background jobs ignore it
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, **heard)
    interrupted = "SIGINT" in first
    assert (done.returncode, done.stderr) == ((130, "learncast: interrupted\n") if interrupted else (1, done.stderr))
    assert ("ImportError: initialization failed" in done.stderr) != interrupted


def test_an_interrupt_that_a_module_loses_is_raised_again():
    code = (
        "import os, signal, sys, time, types\n"
        "import learncast.__main__ as command\n"
        "command.AGAIN = 0.3\n"
        "def run():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(1)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "    for _ in range(300):\n"
        "        time.sleep(0.1)\n"
        "sys.modules['learncast.cli'] = types.SimpleNamespace(main=run)\n"
        "command.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == 130
