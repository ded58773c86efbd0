"""A command that is killed at a random moment leaves either all old files or all new ones."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import learncast as lc

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Number of times that each command is stopped by each signal.
MOMENTS = int(os.environ.get("MOMENTS", "20"))


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "learncast", *map(str, words)]


#: A small window study.
WINDOW = """
[model]
kind = "diag-gate"
hidden_size = 4
[training]
steps = 3
batch = 8
[task]
steps = 16
inputs = 2
lags = [2]
coefficients = [1.0]
sequences = 16
[window]
lags = [1, 2, 4]
sequences = 128
nulls = 19
"""


def studies(folder: Path, text: str, key: str, values: tuple[str, str]) -> tuple[Path, Path]:
    """Write two versions of one study, whose answers differ."""
    paths = folder / "old.toml", folder / "new.toml"
    for path, value in zip(paths, values, strict=True):
        lines = [f"{key} = {value}" if line.startswith(f"{key} =") else line for line in text.splitlines()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stopped(call: list[str], number: signal.Signals, after: float) -> tuple[int, str]:
    """Start a command, stop it after some seconds, and wait."""
    with subprocess.Popen(
        call,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Background jobs of a shell and their children ignore SIGINT by default.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            limit = time.monotonic() + after
            while process.poll() is None and time.monotonic() < limit:
                time.sleep(0.005)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    return process.returncode, errors


#: Runs commands: in this process, or in a fork that is killed after some seconds.
FORKS = """
import json, os, signal, sys, time
from learncast.__main__ import main

def run(words):
    sys.argv = ["learncast", *words]
    try:
        main()
    except SystemExit as left:
        return left.code or 0
    return 0

output = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for line in sys.stdin:
    after, words = json.loads(line)
    if after is None:
        code = run(words)
    else:
        child = os.fork()
        if child == 0:
            os._exit(run(words))
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, file=output, flush=True)
"""


class Warm:
    """A process that has imported what a command needs, because imports take most of a short command's time.

    A command that is killed during its imports has written nothing; the tests with SIGINT cover that.
    """

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, out: Path, after: float | None = None) -> int:
        """Run the command to its end, or for some seconds in a fork, and return the exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([after, [*self._words, "--out", str(out)]]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def check_answers(folder: Path, *words: str, window: bool = False, moments: int) -> None:
    """Stop a command whose answer replaces that of another version of its study."""
    example = (EXAMPLES / "two_integration_tasks.toml").read_text(encoding="utf-8")
    for old, new in (("steps = 50", "steps = 10"), ("learning_rate = 1e-3", "learning_rate = 1e-2")):  # quickly trained
        assert old in example
        example = example.replace(old, new)
    changed = (WINDOW, "hidden_size", ("4", "5")) if window else (example, "accuracy", ("0.9", "0.95"))
    old, new = studies(folder, *changed)
    name, *rest = words
    check_replacement(folder, lambda: command(name, old, *rest), lambda: command(name, new, *rest), moments=moments)


def check_replacement(
    folder: Path, old: Callable[[], list[str]], new: Callable[[], list[str]], *, moments: int
) -> None:
    """Stop a command whose files replace those of another, at random moments."""
    out = folder / "out"
    subprocess.run([*old(), "--out", out], check=True, capture_output=True)
    before = content(out)
    shutil.copytree(out, folder / "kept")
    begun = time.monotonic()
    subprocess.run([*new(), "--out", folder / "model"], check=True, capture_output=True)
    length, expected = time.monotonic() - begun, content(folder / "model")
    with contextlib.closing(Warm(new()[3:])) as warm:
        assert warm.run(folder / "warm") == 0
        begun = time.monotonic()
        assert warm.run(folder / "warm") == 0
        warm_length = time.monotonic() - begun
        assert before.keys() == expected.keys()
        assert all(before[name] != expected[name] for name in before)
        rng = random.Random(5)
        for number in (signal.SIGINT, signal.SIGKILL):
            for _ in range(moments):
                # Most of the time is spent on imports and computing; files are written in the last tenth.
                share = rng.choice([rng.uniform(0, 1.1), rng.uniform(0.85, 1.1)])
                if number is signal.SIGKILL:
                    code, errors = warm.run(out, share * warm_length), ""
                    assert code in (0, -number)
                else:
                    code, errors = stopped([*new(), "--out", str(out)], number, share * length)
                assert content(out) in (before, expected)
                # Before the program starts, Python itself prints a traceback.
                assert "Traceback" not in errors or ("<frozen runpy>" in errors and "__main__.py" not in errors)
                if number is signal.SIGINT:
                    assert code in (0, 130, -signal.SIGINT), errors
                if content(out) == expected:
                    shutil.rmtree(out)
                    shutil.copytree(folder / "kept", out)
    subprocess.run([*new(), "--out", out], check=True, capture_output=True)
    assert content(out) == expected
    assert not list(folder.glob(".*.part"))  # drafts of killed processes are gone


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan", "forecast"])
def test_answers_are_replaced_completely_or_not_at_all(tmp_path, name):
    check_answers(tmp_path, name, moments=MOMENTS)


@pytest.mark.slow
def test_checked_answers_are_replaced_completely_or_not_at_all(tmp_path):
    # In one process; tests/unit/test_interrupts.py checks that no worker survives.
    check_answers(tmp_path, "check", "--seeds", "2", "--processes", "1", moments=MOMENTS)


@pytest.mark.slow
def test_windows_are_replaced_completely_or_not_at_all(tmp_path):
    check_answers(tmp_path, "window", window=True, moments=MOMENTS)


@pytest.mark.slow
def test_figures_are_replaced_completely_or_not_at_all(tmp_path):
    """A figure of one paper is replaced by a figure of the same name in another."""
    old, new = (command("reproduce", paper, "--figure", "2A") for paper in ("curriculum", "prior-knowledge"))
    check_replacement(tmp_path, lambda: old, lambda: new, moments=MOMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_training_with_checkpoints_has_the_same_result(tmp_path, number):
    """Training that is stopped twenty times and resumed gives identical results."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    subprocess.run([sys.executable, script, tmp_path / "straight"], check=True, capture_output=True)
    rng, ended = random.Random(7), False
    for _ in range(MOMENTS):
        code, errors = stopped([sys.executable, str(script), str(tmp_path / "stopped")], number, rng.uniform(1.0, 3.0))
        ended = code == 0
        assert code in (0, -number), errors  # no half-written checkpoint was refused
    if not ended:
        subprocess.run([sys.executable, script, tmp_path / "stopped"], check=True, capture_output=True)
    straight, again = (lc.training.TrainingRun.load(tmp_path / f"{name}.nc") for name in ("straight", "stopped"))
    assert straight.dataset.identical(again.dataset)


@pytest.mark.slow
def test_an_interrupted_sweep_has_the_same_results(tmp_path):
    """A sweep that is stopped twenty times and resumed has identical results.

    `test_sweep_drivers.py` tests killed drivers.
    """
    study = (EXAMPLES / "two_integration_tasks.toml").read_text(encoding="utf-8")
    grid = [round(0.90 + 0.004 * k, 3) for k in range(24)]
    text = f'{study}\n[sweep]\ncommand = "plan"\n[sweep.grid]\nnetwork.recurrence = {grid}\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    run = command("sweep", "run", tmp_path / "study.toml", "--workers", "1", "--store")
    begun = time.monotonic()
    subprocess.run([*run, tmp_path / "undisturbed"], check=True, capture_output=True)
    length, expected = time.monotonic() - begun, content(tmp_path / "undisturbed" / "results")
    assert len(expected) == len(grid)
    rng, store = random.Random(9), tmp_path / "store"
    for _ in range(MOMENTS):
        code, errors = stopped([*run, str(store)], signal.SIGINT, rng.uniform(0, 1.1) * length)
        assert code in (0, 130, -signal.SIGINT), errors
        assert "Traceback" not in errors or ("<frozen runpy>" in errors and "__main__.py" not in errors)
        if code == 0:  # it was complete: start again
            assert content(store / "results") == expected
            shutil.rmtree(store)
    subprocess.run([*run, store], check=True, capture_output=True)
    assert lc.sweep.verify(store) == []
    assert content(store / "results") == expected


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_explorer_leaves_no_process(number):
    """Stopped while it starts or answers, it leaves no worker and prints no traceback."""
    call, rng = command("explore", "--port", "0", "--no-browser"), random.Random(3)
    for _ in range(MOMENTS):
        mark = f"{rng.random()}"
        with subprocess.Popen(
            call,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "INTERRUPTED": mark},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                if rng.random() < 0.5:
                    time.sleep(rng.uniform(0, 1.5))
                else:
                    port = int(process.stdout.readline().rpartition(":")[2].partition("/")[0])
                    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                        connection.request(
                            "POST", "/api/curriculum/counted", "{}", {"Content-Type": "application/json"}
                        )
                        time.sleep(rng.uniform(0, 0.4))
                process.send_signal(number)
                process.wait(timeout=60)
                limit = time.monotonic() + 10
                while (left := _marked(mark)) and time.monotonic() < limit:
                    time.sleep(0.05)
                assert not left
                errors = process.stderr.read()
            finally:
                process.kill()
        assert process.returncode in ((130, -number) if number is signal.SIGINT else (-number,)), errors
        assert "Traceback" not in errors or ("<frozen runpy>" in errors and "__main__.py" not in errors)


def _marked(mark: str) -> list[int]:
    """Return the processes with this mark in their environment."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("INTERRUPTED") == mark and process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process.pid)
    return marked


TRAIN = """
import sys
import learncast as lc
task = lc.tasks.integration(steps=20)
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=8)
training = lc.Training(1e-4, batch=64, seed=3, learn=("input", "recurrent", "output"))
execution = lc.training.Execution(checkpoint=sys.argv[1] + ".pt", checkpoint_every=50)
run = lc.training.train(task, network, training, steps=6000, execution=execution)
run.save(sys.argv[1] + ".nc")
"""
