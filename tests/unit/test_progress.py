"""Progress of long work, and time limits that return the best answer so far."""

import math
import sys
import time
import types

import numpy as np
import pytest

import learncast as lc
from learncast import OutOfTime, cli, tasks
from learncast._core import progress

TARGET = tasks.integration(3, name="target")
POOL = [tasks.integration(2, name="shorter"), tasks.integration(3, 1.0, 1.5, name="stronger")]
NETWORK = lc.LinearRNN([[0.3]], [[0.4]], [[0.4]])
TRAINED = lc.Training(2e-2, learn=("input", "recurrent", "output"))
ASKED = {"training": TRAINED, "terms": lc.Terms(goal=lc.Accuracy(0.9))}


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(progress, "monotonic", made.monotonic)
    return made


def test_a_time_limit_raises_after_its_time(clock):
    with progress.time_limit(5.0):
        assert progress.seconds_left() == 5.0
        progress.check_time()
        clock.now += 5.1
        assert progress.time_is_up()
        with pytest.raises(OutOfTime) as error:
            progress.check_time()
        assert error.value.field == "seconds"
        with progress.until(math.inf):
            progress.check_time()
    assert not progress.time_is_up()
    assert progress.deadline() == math.inf


def test_the_earlier_of_two_limits_holds(clock):
    with progress.time_limit(5.0), progress.time_limit(50.0):
        assert progress.seconds_left() == 5.0
    with progress.time_limit(None):
        assert progress.seconds_left() == math.inf


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan])
def test_a_time_limit_must_be_positive(seconds):
    with pytest.raises(lc.InvalidSpec) as error, progress.time_limit(seconds):
        pass
    assert error.value.field == "seconds"


def test_without_a_terminal_a_line_is_printed_every_ten_seconds(clock, capsys):
    with progress.show_progress("weighing candidates") as report:
        for second in range(40):
            clock.now = 100.0 + second
            report(second / 40)
    lines = capsys.readouterr().err.splitlines()
    # The first twentieth of the work says too little about the rest.
    assert lines[0] == "learncast: weighing candidates, 5% done, estimating the time left"
    assert "% done, about " in lines[1]
    assert len(lines) == 4


def test_short_work_prints_nothing(clock, capsys):
    with progress.show_progress("weighing candidates") as report:
        for second in range(5):
            clock.now = 100.0 + second
            report(second / 4)
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def complete_plan():
    return lc.plan(TARGET, POOL, NETWORK, **ASKED)


class Hurried:
    """A clock that passes every deadline after a number of readings."""

    def __init__(self, readings):
        self.readings = self.left = readings

    def __call__(self):
        self.left -= 1
        return 0.0 if self.left > 0 else 1e9


@pytest.fixture
def hurried(monkeypatch):
    """Answer a question twice: counting the readings of the clock, then stopped after a share of them."""

    def answer(question, share):
        counter = Hurried(10**9)
        monkeypatch.setattr(progress, "monotonic", counter)
        question()
        monkeypatch.setattr(progress, "monotonic", Hurried(int(share * (counter.readings - counter.left))))
        return question()

    return answer


def test_a_plan_stopped_by_its_limit_is_the_best_so_far(complete_plan, hurried):
    def question():
        with progress.time_limit(60.0):
            return lc.planning.plan_with(complete_plan.method, ASKED["terms"])

    part = hurried(question, 0.3)
    assert part.proof == "out of time"
    assert complete_plan.proof != "out of time"
    assert complete_plan.total - 1e-9 <= part.total <= part.direct_total == complete_plan.direct_total
    assert part.sensitivity == ()
    assert not all(candidate.tried for candidate in part.candidates)


def test_a_plan_without_time_for_a_first_answer_raises():
    with pytest.raises(OutOfTime):
        lc.plan(TARGET, POOL, NETWORK, seconds=1e-6, **ASKED)


def test_a_portrait_stopped_by_its_limit_keeps_the_values_so_far(hurried):
    asked = {"vary": "target_strength", "values": [0.5, 1.5, 2.0], "accuracies": [0.3], "goal": 0.9}
    asked |= {"learning_rate": 2e-2, "method": "flow"}
    complete = lc.phase(TARGET, NETWORK, **asked)
    assert "incomplete" not in complete.attrs
    part = hurried(lambda: lc.phase(TARGET, NETWORK, seconds=60.0, **asked), 0.85)
    known = ~np.isnan(part["total_steps"].values[:, 0])
    assert 0 < known.sum() < 3
    assert f"{known.sum()} of 3" in part.attrs["incomplete"]
    np.testing.assert_array_equal(part["total_steps"].values[known], complete["total_steps"].values[known])


@pytest.mark.parametrize("command", ["forecast", "plan"])
def test_a_command_stopped_by_its_limit_exits_with_2(command, tmp_path, capsys, monkeypatch):
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
        cli.main()
    assert stop.value.code == 2
    assert time.monotonic() - begun < 20
    errors = capsys.readouterr().err
    assert errors.startswith("learncast: ")
    assert errors.count("\n") == 1


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


def test_a_notebook_shows_a_bar_and_removes_it(clock, monkeypatch, capsys):
    notebook = Notebook(monkeypatch, kernel=object())
    with progress.show_progress("weighing <candidates>") as report:
        for second in range(40):
            clock.now = 100.0 + second
            report(second / 40)
    assert (
        notebook.seen[0] == '<progress value="0.050"></progress> weighing &lt;candidates&gt;: estimating the time left'
    )
    assert len(notebook.seen) == 39
    assert notebook.seen[-1] == ""
    assert capsys.readouterr() == ("", "")


def test_an_ipython_terminal_is_not_a_notebook(clock, monkeypatch):
    Notebook(monkeypatch, kernel=None)
    assert not progress.in_notebook()


@progress.noticed("counting")
def counted(number, *, progress=progress.silent):
    """Count, slowly."""
    for k in range(number):
        progress(k / number)
    return progress


def test_a_decorated_function_shows_one_bar_in_a_notebook(clock, monkeypatch):
    assert counted(3) is progress.silent
    Notebook(monkeypatch, kernel=object())
    assert counted(3) is not progress.silent
    mine = [].append
    assert counted(3, progress=mine) is mine
    with progress.show_progress("all of it"):
        assert counted(3) is progress.silent, "one bar at a time"


def test_a_plan_in_a_notebook_shows_its_progress(monkeypatch):
    notebook = Notebook(monkeypatch, kernel=object())
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BLINK", 0.0)
    found = lc.plan(tasks.integration(5), [tasks.integration(5, target_strength=2.0, name="b")],
                    lc.LinearRNN.aligned(hidden_size=2), learning_rate=1e-2)  # fmt: skip
    assert found.pretrains
    assert "<progress value=" in notebook.seen[0]
    assert notebook.seen[-1] == ""
