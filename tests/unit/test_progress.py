"""Long work says so, and is given up in time with the best so far."""

import math
import sys
import time
import types

import numpy as np
import pytest

import learncast as lc
from learncast import tasks
from learncast._core import progress
from learncast._core.errors import InvalidSpec, OutOfTime
from learncast._core.progress import (
    check_time,
    deadline,
    in_notebook,
    noticed,
    seconds_left,
    shown,
    silent,
    time_is_up,
    time_limit,
    until,
)
from learncast.cli import main

TARGET = tasks.integration(3, name="target")
POOL = [tasks.integration(2, name="shorter"), tasks.integration(3, 1.0, 1.5, name="stronger")]
NETWORK = lc.LinearRNN([[0.3]], [[0.4]], [[0.4]])
ASKED = {"learning_rate": 2e-2, "learn": ("input", "recurrent", "output"), "terms": lc.Terms(accuracy=0.9)}


class Clock:
    """A clock that tests turn themselves."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "monotonic", made.monotonic)
    return made


def test_a_limit_is_up_when_its_time_has_passed(clock):
    with time_limit(5.0):
        assert seconds_left() == 5.0
        check_time()
        clock.now += 5.1
        assert time_is_up()
        with pytest.raises(OutOfTime, match="allow more seconds"):
            check_time()
        with until(math.inf):
            check_time()
    assert not time_is_up()
    assert deadline() == math.inf


def test_the_nearer_of_two_limits_holds(clock):
    with time_limit(5.0), time_limit(50.0):
        assert seconds_left() == 5.0
    with time_limit(None):
        assert seconds_left() == math.inf


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan])
def test_no_time_is_refused(seconds):
    with pytest.raises(InvalidSpec, match="seconds must be a positive number"), time_limit(seconds):
        pass


def test_without_a_terminal_long_work_is_told_of_every_ten_seconds(clock, capsys):
    with shown("weighing candidates") as report:
        for second in range(40):
            clock.now = 100.0 + second
            report(second / 40)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "learncast: weighing candidates, 5% done, about 38 s left"
    assert len(lines) == 4


def test_short_work_says_nothing(clock, capsys):
    with shown("weighing candidates") as report:
        for second in range(5):
            clock.now = 100.0 + second
            report(second / 4)
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def whole():
    return lc.plan(TARGET, POOL, NETWORK, **ASKED)


class Hurried:
    """Lets a search's time run out after so many looks at the clock."""

    def __init__(self, looks):
        self.looks = looks

    def __call__(self):
        self.looks -= 1
        return 0.0 if self.looks > 0 else 1e9


def in_a_hurry(monkeypatch, looks):
    monkeypatch.setattr(progress, "monotonic", Hurried(looks))


def test_a_plan_that_is_given_up_is_the_best_so_far(whole, monkeypatch):
    ground = whole.ground
    looks, ended = 10**6, None
    counter = Hurried(10**9)
    monkeypatch.setattr(progress, "monotonic", counter)
    from learncast.planning.plans.planner import plan_on

    plan_on(ground, whole.terms)
    looks = 10**9 - counter.looks  # what the whole takes
    found = []
    for share in (0.3,):
        in_a_hurry(monkeypatch, int(share * looks))
        with time_limit(60.0):
            ended = plan_on(ground, whole.terms)
        assert ended.given_up
        assert "the best found in the time given" in ended.summary
        assert whole.total - 1e-9 <= ended.total <= ended.direct_total
        assert ended.direct_total == whole.direct_total
        assert ended.sensitivity == ()
        found.append([c.tried for c in ended.candidates])
        for c in ended.candidates:
            assert c.tried or c.why["sentence"] == f"there was no time to try {c.task.name}"
    assert not all(found[0])
    assert not whole.given_up


def test_a_plan_without_time_for_a_first_answer_says_so():
    with pytest.raises(OutOfTime, match="before it came to a first answer"):
        lc.plan(TARGET, POOL, NETWORK, seconds=1e-6, **ASKED)


def test_a_portrait_that_is_given_up_keeps_what_it_has(monkeypatch):
    asked = {"vary": "target_strength", "values": [0.5, 1.5, 2.0], "accuracies": [0.3], "accuracy": 0.9}
    target, network, asked = TARGET, NETWORK, {**asked, "learning_rate": 2e-2, "by": "flow"}
    whole = lc.phase_portrait(target, network, **asked)
    assert "given_up" not in whole.attrs
    counter = Hurried(10**9)
    monkeypatch.setattr(progress, "monotonic", counter)
    lc.phase_portrait(target, network, seconds=60.0, **asked)
    in_a_hurry(monkeypatch, int(0.85 * (10**9 - counter.looks)))
    part = lc.phase_portrait(target, network, seconds=60.0, **asked)
    known = ~np.isnan(part["total_steps"].values[:, 0])
    assert 0 < known.sum() < 3
    assert part.attrs["given_up"] == f"only {known.sum()} of 3 values were followed in the time given"
    np.testing.assert_array_equal(part["total_steps"].values[known], whole["total_steps"].values[known])


def test_a_design_that_is_given_up_is_the_best_so_far(monkeypatch):
    task = tasks.integration(10)
    network = lc.LinearRNN.aligned(recurrence=0.9, hidden_size=4, task=task)
    asked = {"bounds": {"target_strength": (0.5, 3.0)}, "learning_rate": 1e-3, "evaluations": 4000}
    found = lc.planning.design(task, network, seconds=1e-3, **asked)
    whole = lc.planning.design(task, network, **asked)
    assert found.evaluations < whole.evaluations
    assert whole.total <= found.total + 1e-9
    assert found.total <= found.direct


@pytest.mark.parametrize("command", ["forecast", "plan"])
def test_a_command_without_time_says_so_in_one_sentence(command, tmp_path, capsys, monkeypatch):
    path = tmp_path / "study.toml"
    path.write_text(
        """
name = "learned recurrence"
[network]
kind = "linear-rnn"
hidden_size = 6
initial = "random"
scale = 0.3
[training]
learning_rate = 2e-4
learn = ["input", "recurrent", "output"]
[target]
family = "integration"
steps = 12
[[candidates]]
name = "shorter"
family = "integration"
steps = 6
"""
    )
    monkeypatch.setattr("sys.argv", ["learncast", command, str(path), "--seconds", "0.001"])
    begun = time.monotonic()
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert time.monotonic() - begun < 20
    assert "allow more seconds" in capsys.readouterr().err


class Notebook:
    """A stand-in for IPython's modules, which keeps what is displayed."""

    def __init__(self, monkeypatch, kernel):
        self.seen = []
        running = types.SimpleNamespace(kernel=kernel)
        display = types.SimpleNamespace(HTML=str, display=self.display)
        found = types.SimpleNamespace(get_ipython=lambda: running, display=display)
        monkeypatch.setitem(sys.modules, "IPython", found)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, text, *, display_id):
        assert display_id
        self.seen.append(text)
        return types.SimpleNamespace(update=self.seen.append)


def test_a_notebook_shows_a_bar_and_takes_it_away(clock, monkeypatch, capsys):
    notebook = Notebook(monkeypatch, kernel=object())
    with shown("weighing <candidates>") as report:
        for second in range(40):
            clock.now = 100.0 + second
            report(second / 40)
    assert notebook.seen[0] == '<progress value="0.050"></progress> weighing &lt;candidates&gt;: about 38 s left'
    assert len(notebook.seen) == 39
    assert notebook.seen[-1] == ""
    assert capsys.readouterr() == ("", "")


def test_a_terminal_of_ipython_is_no_notebook(clock, monkeypatch):
    Notebook(monkeypatch, kernel=None)
    assert not in_notebook()


@noticed("counting")
def counted(number, *, progress=silent):
    """Count, slowly."""
    for k in range(number):
        progress(k / number)
    return progress


def test_long_work_shows_itself_in_a_notebook_unless_it_is_told_otherwise(clock, monkeypatch):
    assert counted(3) is silent
    Notebook(monkeypatch, kernel=object())
    assert counted(3) is not silent
    mine = [].append
    assert counted(3, progress=mine) is mine
    with shown("the whole"):
        assert counted(3) is silent, "one bar at a time"


def test_a_plan_in_a_notebook_shows_its_progress(monkeypatch):
    notebook = Notebook(monkeypatch, kernel=object())
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BLINK", 0.0)
    found = lc.plan(tasks.integration(5), [tasks.integration(5, target_strength=2.0, name="b")],
                    lc.LinearRNN.aligned(hidden_size=2), learning_rate=1e-2)  # fmt: skip
    assert found.pretrains
    assert "weighing candidates" in notebook.seen[0]
    assert notebook.seen[-1] == ""
