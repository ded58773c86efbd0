"""Progress display of `learncast sweep`, and its reaction to signals."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from learncast import sweep, sweep_cli
from learncast.cli import app

FUNCTIONS = '''
import os, time

def waiting(spec):
    """Write a line, then wait until it is released."""
    log = os.open(os.environ["SWEEP_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, b"begun\\n")
    os.close(log)
    limit = time.monotonic() + 60
    while os.path.exists(os.environ["SWEEP_LOG"] + ".hold"):
        if time.monotonic() > limit:
            raise TimeoutError("it was not released")
        time.sleep(0.01)
    return {"value": spec["number"], "noise": spec.rng().normal()}
'''
TASKS = 6
#: A process on a terminal of its own: keys pressed there become signals for all processes of its group.
ON_TERMINAL = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


@dataclass(frozen=True)
class HeldSweep:
    """A store with one of its results, whose other tasks wait until they are released."""

    folder: Path
    function: Any

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def begun(self) -> int:
        return (self.folder / "log").read_text().count("begun")

    def wait_until_begun(self, number: int, process: subprocess.Popen[Any]) -> None:
        limit = time.monotonic() + 60
        while self.begun() < number:
            assert process.poll() is None, "the process ended too early"
            assert time.monotonic() < limit, "no task was started"
            time.sleep(0.01)

    @contextmanager
    def held(self) -> Iterator[None]:
        hold = self.folder / "log.hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink()

    def results(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.store / "results").rglob("*.nc")}

    def environment(self) -> dict[str, str]:
        places = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), "TERM": "xterm", "COLUMNS": "100"}


#: The swept function, which a store cannot choose by itself.
OWN = ("--function", "waiting_functions:waiting")


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "learncast.cli", "sweep", *map(str, words)]


def invoke(*words: str | Path):
    return CliRunner().invoke(app, ["sweep", *map(str, words)])


@pytest.fixture
def held_sweep(tmp_path, monkeypatch):
    (tmp_path / "waiting_functions.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.setenv("SWEEP_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "waiting_functions", raising=False)
    import waiting_functions

    held = HeldSweep(tmp_path, waiting_functions.waiting)
    made = sweep.run(
        held.function, {"number": list(range(TASKS))}, store=held.store, executor="in-process", watcher=stop_after_one
    )
    assert (made.done, made.interrupted) == (1, True)
    return held


def stop_after_one(summary: sweep.Summary) -> None:
    if summary.computed:
        raise KeyboardInterrupt


@contextmanager
def driven(held_sweep: HeldSweep, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process that continues the sweep."""
    pipe = subprocess.PIPE
    call = command("resume", held_sweep.store, *OWN, "--batch", "1", *words)
    with subprocess.Popen(call, env=held_sweep.environment(), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def check_resumable(held_sweep: HeldSweep, done: int) -> None:
    """Check the number of results; resuming computes the others and gives the files of an undisturbed sweep."""
    assert sweep.status(held_sweep.store).done == done
    assert not sweep.status(held_sweep.store).driven
    made = invoke("resume", held_sweep.store, *OWN, "--in-process", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["computed"] == TASKS - done
    grid = {"number": list(range(TASKS))}
    sweep.run(held_sweep.function, grid, store=held_sweep.folder / "undisturbed", executor="in-process")
    assert held_sweep.results() == {
        p.name: p.read_bytes() for p in (held_sweep.folder / "undisturbed" / "results").rglob("*.nc")
    }


def check_messages(errors: str, store: Path) -> None:
    """One line after the first signal, and one with the command that continues."""
    first, last = errors.splitlines()
    assert "interrupt again" in first
    assert f"`learncast sweep resume {store}`" in last


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "place"),
    [
        (signal.SIGTERM, ["--in-process"]),
        (signal.SIGINT, ["--workers", "1"]),
        (signal.SIGTERM, ["--workers", "2"]),
        (signal.SIGTERM, ["--cluster", "local", "--workers", "1"]),
    ],
)
def test_after_the_first_signal_running_tasks_finish(held_sweep, number, place):
    with driven(held_sweep, *place) as process:
        with held_sweep.held():
            workers = int(place[-1]) if "--workers" in place else 1
            held_sweep.wait_until_begun(1 + workers, process)
            process.send_signal(number)
            # It does not end while a task runs; an immediate stop takes a tenth of a second.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"{1 + workers} of {TASKS} tasks done" in output
    check_messages(errors, held_sweep.store)
    assert held_sweep.begun() == 1 + workers  # no task was started after the signal
    check_resumable(held_sweep, 1 + workers)


@pytest.mark.parametrize(
    ("numbers", "place"),
    [
        ([signal.SIGTERM, signal.SIGINT], ["--in-process"]),
        pytest.param([signal.SIGINT, signal.SIGINT], ["--workers", "1"], marks=pytest.mark.slow),
        pytest.param([signal.SIGTERM, signal.SIGTERM], ["--workers", "2"], marks=pytest.mark.slow),
        pytest.param([signal.SIGINT, signal.SIGINT], ["--cluster", "local", "--workers", "1"], marks=pytest.mark.slow),
    ],
)
def test_the_second_signal_stops_immediately(held_sweep, numbers, place):
    with driven(held_sweep, *place) as process, held_sweep.held():
        held_sweep.wait_until_begun(2, process)
        for number in numbers:
            assert process.poll() is None
            process.send_signal(number)
            time.sleep(0.3)  # a signal sent twice at the same moment arrives once
        output, errors = process.communicate(timeout=15)
    assert process.returncode == 130
    assert f"1 of {TASKS} tasks done" in output
    check_messages(errors, held_sweep.store)
    check_resumable(held_sweep, 1)


class Terminal:
    """A process on a terminal."""

    def __init__(self, call: list[str], environment: dict[str, str]) -> None:
        self._ours, theirs = os.openpty()
        words = [sys.executable, "-c", ON_TERMINAL, str(theirs), *call]
        self.process = subprocess.Popen(words, env=environment, pass_fds=[theirs], stdin=subprocess.DEVNULL)
        os.close(theirs)
        self.output = ""

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def end(self, seconds: float) -> int:
        """Read until the process ends."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and self.read(0.1):
            pass
        return self.process.wait(max(0.1, limit - time.monotonic()))

    def read(self, seconds: float) -> bool:
        """Read the output; false if the process has closed the terminal."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            found = os.read(self._ours, 65536)
        except OSError:
            return False
        self.output += found.decode("utf-8", "replace")
        return bool(found)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)


@contextmanager
def terminal(call: list[str], environment: dict[str, str]) -> Iterator[Terminal]:
    found = Terminal(call, environment)
    with contextlib.closing(found):
        yield found


def test_a_terminal_shows_a_bar_and_ctrl_c_does_not_kill_workers(held_sweep):
    call = command("resume", held_sweep.store, *OWN, "--batch", "1", "--workers", "1")
    with terminal(call, held_sweep.environment()) as screen:
        with held_sweep.held():
            held_sweep.wait_until_begun(2, screen.process)
            limit = time.monotonic() + 10
            while f"1/{TASKS}" not in screen.output and time.monotonic() < limit:
                screen.read(0.1)
            screen.press(b"\x03")
            time.sleep(0.3)
            assert screen.process.poll() is None
        assert screen.end(20) == 130
    assert "sweeping" in screen.output
    assert "━" in screen.output
    assert f"1/{TASKS}" in screen.output
    assert f"2/{TASKS}" in screen.output
    assert "-:--:--" in screen.output or "0:00:" in screen.output  # the time left
    assert "Traceback" not in screen.output
    assert "learncast sweep resume" in screen.output
    check_resumable(held_sweep, 2)


def test_without_a_terminal_there_is_one_line_a_minute(held_sweep, monkeypatch):
    # A clock on which every task takes 25 seconds.
    monkeypatch.setattr(sweep_cli, "time", SimpleNamespace(monotonic=lambda: 25.0 * held_sweep.begun()))
    made = invoke("resume", held_sweep.store, *OWN, "--in-process", "--batch", "1")
    assert made.exit_code == 0
    lines = made.stderr.splitlines()
    # It begins at 25 s; at least a minute later four are done.
    assert len(lines) == 1
    assert f"4 of {TASKS}" in lines[0]
    assert lines[0].endswith(" left")


@pytest.mark.parametrize(("quiet", "number"), [(0.0, TASKS - 1), (60.0, 0)])
def test_the_time_between_lines_can_be_set(held_sweep, monkeypatch, quiet, number):
    monkeypatch.setattr(sweep_cli, "QUIET", quiet)
    made = invoke("resume", held_sweep.store, *OWN, "--in-process", "--batch", "1")
    assert made.exit_code == 0
    assert len(made.stderr.splitlines()) == number
    assert "\x1b" not in made.stderr


STUDY = """
[network]
hidden_size = 8
[training]
learning_rate = 1e-7
[target]
family = "integration"
steps = 5
[sweep]
command = "train"
options = {most_steps = 400}
[sweep.grid]
network.recurrence = [0.90, 0.92, 0.94, 0.96]
"""


@pytest.mark.slow
def test_a_swept_study_can_be_interrupted_and_resumed(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    store, environment = tmp_path / "store", {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with terminal(
        command("run", tmp_path / "study.toml", "--store", store, "--batch", "1", "--workers", "1"), environment
    ) as screen:
        limit = time.monotonic() + 90
        while "1/4" not in screen.output and time.monotonic() < limit:
            assert screen.read(0.1), screen.output
        screen.press(b"\x03")
        assert screen.end(60) == 130, screen.output
    # The second task was running (or had just ended), and was finished.
    assert sweep.status(store).done in (2, 3)
    assert sweep.status(store).failed == 0
    for place in (["resume", store], ["run", tmp_path / "study.toml", "--store", tmp_path / "undisturbed"]):
        assert invoke(*place, "--in-process").exit_code == 0
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name / "results").rglob("*.nc")}
        for name in ("store", "undisturbed")
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4
