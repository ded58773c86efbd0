"""Every result shows itself in a notebook and draws itself on axes, in one way."""

import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import learncast as lc
from learncast._core.errors import OutOfTime
from learncast.card import GLANCE, Card, Shown, Table, facts

HOSTILE = "<script>alert(1)</script> & 'more'"
TARGET = lc.tasks.integration(steps=10)
STRONGER = TARGET.varied(target_strength=1.5).renamed(HOSTILE)
NETWORK = lc.LinearRNN.aligned(recurrence=0.9, hidden_size=4)
PLAN = lc.plan(TARGET, [STRONGER], NETWORK, learning_rate=1e-2)
TWO = lc.TwoLayer.balanced(3, 2, 4, scale=0.3, rng=np.random.default_rng(0))
SOLUTION = lc.solve(TARGET, NETWORK, learning_rate=1e-2)
OBJECTS = {
    "task": STRONGER,
    "static task": lc.tasks.static(np.ones((2, 3))),
    "task with targets at every step": lc.Task(np.eye(8).reshape(4, 2, 4, 2), np.eye(8).reshape(4, 2, 4, 2)),
    "recurrent network": NETWORK,
    "two layers": TWO,
    "activated": lc.Activated(NETWORK, "relu"),
    "solution": SOLUTION,
    "flow": lc.solve(TARGET, NETWORK, learning_rate=1e-2, by="flow"),
    "response": lc.solve(TARGET, lc.Activated(NETWORK, "relu"), learning_rate=1e-2, strict=False),
    "descent": lc.descend(TARGET, NETWORK, learning_rate=1e-3, steps=5),
    "trajectory": SOLUTION.at(range(20)),
    "curriculum": PLAN.best,
    "endless curriculum": lc.planning.in_sequence([TARGET, STRONGER], NETWORK, learning_rate=1e-2),
    "plan": PLAN,
    "plan on the loss": lc.plan(TARGET, [STRONGER], NETWORK, learning_rate=1e-2, by="pooled"),
}  # fmt: skip
FORECASTS = [name for name, one in OBJECTS.items() if hasattr(one, "forecast_class")]


@pytest.mark.parametrize("name", OBJECTS)
def test_it_shows_a_table_and_a_picture_and_nothing_of_its_own_markup(name):
    html = OBJECTS[name]._repr_html_()
    assert html.count("<table>") >= 1
    assert re.search(r'<img alt="[^"]*" src="data:image/png;base64,[A-Za-z0-9+/=]+">', html)
    assert "<script" not in html
    assert "http" not in html
    assert html.count("<div") == html.count("</div>")


def test_names_are_escaped():
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#x27;more&#x27;" in PLAN._repr_html_()


@pytest.mark.parametrize("name", FORECASTS)
def test_a_forecast_says_its_class_and_its_conditions(name):
    one = OBJECTS[name]
    html = one._repr_html_()
    assert f'<span class="badge">{one.forecast_class}</span>' in html
    for assumption in one.assumptions:
        assert assumption.name.replace("_", " ") in html


@pytest.mark.parametrize("name", OBJECTS)
def test_it_draws_on_axes_that_are_given(name):
    ax = Figure().subplots()
    assert OBJECTS[name].plot(ax, title="mine") is ax
    assert ax.get_title(loc="left") == "mine"
    assert ax.lines or ax.images


def test_without_axes_it_draws_on_new_ones_that_a_notebook_shows():
    before = pyplot.get_fignums()
    ax = PLAN.plot()
    assert isinstance(ax, Axes)
    assert pyplot.get_fignums() == [*before, ax.figure.number]
    pyplot.close(ax.figure)


def test_what_is_drawn_is_what_was_computed():
    ax = SOLUTION.plot(Figure().subplots())
    line = ax.lines[0]
    np.testing.assert_array_equal(line.get_ydata(), SOLUTION.at(line.get_xdata())["strength"].values[:, 0])
    assert line.get_xdata()[-1] > SOLUTION.time_to(0.99).flow_steps


def test_the_report_of_a_command_and_the_card_have_the_same_tables():
    from learncast.answers.plan import planned
    from learncast.study import Study

    raw = {
        "network": {"kind": "linear-rnn", "recurrence": 0.9, "hidden_size": 4},
        "training": {"learning_rate": 1e-2},
        "target": {"name": "integration", "family": "integration", "steps": 10},
        "candidates": [{"name": HOSTILE, "family": "integration", "steps": 10, "target_strength": 1.5}],
    }
    answer = planned(Study.from_dict(raw, folder=None, source="here"))
    assert list(answer.tables[:2]) == list(PLAN._card().tables)
    assert answer.lead == PLAN.summary


def test_a_saving_that_is_not_worth_it_is_not_recommended():
    target = lc.tasks.integration(steps=10, name="target")
    almost = target.varied(target_strength=1.001).renamed("almost the same")
    found = lc.plan(target, [almost], NETWORK, learning_rate=1e-3)
    assert found.pretrains
    assert 0 < found.saving < 0.02 * found.direct_total
    assert not found.worthwhile
    direct, saved = f"{found.direct_steps:,.0f}", f"{found.saving:.0f} step"
    assert found.summary.startswith(
        f"Train target directly, {direct} steps: pretraining hardly pays. At best it saves {saved}"
    )
    assert "which hardly pays" in repr(found)
    assert found._card().tables[0].title == "The best plan, which hardly pays"
    assert PLAN.worthwhile


def test_a_few_rows_say_how_many_are_left():
    table = Table("many", ("a",), [(str(k),) for k in range(11)])
    assert table.few(8).notes == ("3 more.",)
    assert len(table.few(8).rows) == 8
    assert facts([("known", "1"), ("unknown", "")]).rows == [("known", "1")]


class Slow(Shown):
    """What takes too long to show."""

    def __repr__(self):
        return "<Slow: thing>"

    def _card(self):
        return Card.of(self)

    def _picture(self):
        raise OutOfTime(required="a", got="b", why="c", remedy="d")


def test_what_takes_longer_than_a_glance_says_so():
    html = Slow()._repr_html_()
    assert f"longer than {GLANCE:g} s" in html
    assert "<img" not in html


def test_nothing_loads_matplotlib_before_a_picture_is_asked_for():
    code = (
        "import sys, learncast as lc; t = lc.tasks.integration(steps=5); n = lc.LinearRNN.aligned(hidden_size=2);"
        "s = lc.solve(t, n, learning_rate=1e-2); p = lc.plan(t, [t.varied(target_strength=2.0).renamed('b')], n,"
        "learning_rate=1e-2); repr((t, n, s, p)); assert 'matplotlib' not in sys.modules;"
        "t._repr_html_(); assert 'matplotlib' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
