"""Every result has an HTML repr with tables and a plot, and a `plot` method."""

import html
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import learncast as lc
from learncast import OutOfTime
from learncast.display import (
    DISPLAY_SECONDS,
    Displayable,
    HtmlRepr,
    Table,
    facts,
    format_interval,
    format_loss,
    format_number,
)
from learncast.report import report_of
from learncast.results import Steps

HOSTILE = "<script>alert(1)</script> & 'more'"
TARGET = lc.tasks.integration(steps=10)
STRONGER = TARGET.varied(target_strength=1.5).renamed(HOSTILE)
NETWORK = lc.LinearRNN.aligned(recurrence=0.9, hidden_size=4)
PLAN = lc.plan(TARGET, [STRONGER], NETWORK, learning_rate=1e-2)
TWO = lc.TwoLayer.balanced(3, 2, 4, scale=0.3, rng=np.random.default_rng(0))
SOLUTION = lc.forecast(TARGET, NETWORK, learning_rate=1e-2).solution
OBJECTS = {
    "task": STRONGER,
    "static task": lc.tasks.static(np.ones((2, 3))),
    "task with targets at every step": lc.Task(np.eye(8).reshape(4, 2, 4, 2), np.eye(8).reshape(4, 2, 4, 2)),
    "recurrent network": NETWORK,
    "two layers": TWO,
    "activated": lc.Activated(NETWORK, "relu"),
    "solution": SOLUTION,
    "flow": lc.forecast(TARGET, NETWORK, learning_rate=1e-2, method="flow").solution,
    "response": lc.forecast(TARGET, lc.Activated(NETWORK, "relu"), learning_rate=1e-2, strict=False).solution,
    "descent": lc.descend(TARGET, NETWORK, learning_rate=1e-3, steps=5),
    "trajectory": SOLUTION.at(range(20)),
    "curriculum": PLAN.best,
    "curriculum without a goal": lc.forget([TARGET, STRONGER], NETWORK, learning_rate=1e-2),
    "plan": PLAN,
    "plan on the loss": lc.plan(TARGET, [STRONGER], NETWORK, learning_rate=1e-2, method="pooled"),
}  # fmt: skip
FORECASTS = [name for name, one in OBJECTS.items() if hasattr(one, "forecast_class")]


@pytest.mark.parametrize("name", OBJECTS)
def test_html_repr_has_a_table_and_an_image_and_no_foreign_markup(name):
    html = OBJECTS[name]._repr_html_()
    assert html.count("<table>") >= 1
    assert re.search(r'<img alt="[^"]*" src="data:image/png;base64,[A-Za-z0-9+/=]+">', html)
    assert "<script" not in html
    assert "http" not in html
    assert html.count("<div") == html.count("</div>")


def test_names_are_html_escaped():
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#x27;more&#x27;" in PLAN._repr_html_()


@pytest.mark.parametrize("name", FORECASTS)
def test_html_repr_of_a_forecast_names_its_class_and_conditions(name):
    one = OBJECTS[name]
    html = one._repr_html_()
    assert f'<span class="badge">{one.forecast_class}</span>' in html
    for assumption in (one.trust if hasattr(one, "trust") else one).assumptions:
        assert assumption.name.replace("_", " ") in html


@pytest.mark.parametrize("name", OBJECTS)
def test_plot_draws_on_the_given_axes(name):
    ax = Figure().subplots()
    assert OBJECTS[name].plot(ax, title="mine") is ax
    assert ax.get_title(loc="left") == "mine"
    assert ax.lines or ax.images


def test_plot_without_axes_opens_a_pyplot_figure():
    before = pyplot.get_fignums()
    ax = PLAN.plot()
    assert isinstance(ax, Axes)
    assert pyplot.get_fignums() == [*before, ax.figure.number]
    pyplot.close(ax.figure)


def test_plot_shows_the_computed_strengths():
    ax = SOLUTION.plot(Figure().subplots())
    line = ax.lines[0]
    np.testing.assert_array_equal(line.get_ydata(), SOLUTION.at(line.get_xdata())["strength"].values[:, 0])
    assert line.get_xdata()[-1] > SOLUTION.time_to(0.99).flow_steps


def test_report_of_a_command_and_html_repr_have_the_same_tables():
    from learncast.report.plan import plan_report as planned
    from learncast.study import Study

    raw = {
        "network": {"kind": "linear-rnn", "recurrence": 0.9, "hidden_size": 4},
        "training": {"learning_rate": 1e-2},
        "target": {"name": "integration", "family": "integration", "steps": 10},
        "candidates": [{"name": HOSTILE, "family": "integration", "steps": 10, "target_strength": 1.5}],
    }
    answer = planned(Study.from_dict(raw, folder=None, source="here"))
    assert list(answer.tables[:2]) == list(PLAN._html_repr().tables)
    assert answer.lead.replace("\n\n", " ") == PLAN.summary


def test_the_html_repr_of_a_recorded_forecast_has_the_interval_and_the_tables_of_its_report():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 10, 3))
    task = lc.Task.from_samples(x, x.sum(axis=1) + rng.standard_normal((120, 3)))
    network = lc.LinearRNN.random(3, 8, 3, recurrence=0.9, scale=0.1, rng=1)
    single = lc.forecast(task, network, learning_rate=5e-3)
    stages = [lc.Stage(task.renamed("first"), 0.5), lc.Stage(task, 0.9)]
    for found in (single, lc.follow(stages, network, learning_rate=5e-3)):
        own, within = found.report(), format_interval(found.steps.interval)
        assert within
        assert within in own.lead
        assert within in repr(found)
        content = found._repr_html_()
        assert html.escape(own.lead) in content
        assert [table for table in own.tables if f"<h4>{html.escape(table.title)}</h4>" not in content] == []


def test_a_saving_below_two_percent_is_not_recommended():
    target = lc.tasks.integration(steps=10, name="target")
    almost = target.varied(target_strength=1.001).renamed("almost the same")
    found = lc.plan(target, [almost], NETWORK, learning_rate=1e-3)
    assert found.pretrains
    assert 0 < found.saving < 0.02 * found.direct_total
    assert not found.worthwhile
    assert f"{found.direct_steps:,.0f}" in found.summary
    assert found._html_repr().tables[0].title != PLAN._html_repr().tables[0].title
    assert PLAN.worthwhile


def test_head_of_a_table_counts_the_remaining_rows():
    table = Table("many", ("a",), [(str(k),) for k in range(11)], ["a note"])
    assert table.head(8).notes == ("3 more.", "a note")
    assert table.head(11).notes == ("a note",)
    assert len(table.head(8).rows) == 8
    assert facts([("known", "1"), ("unknown", "")]).rows == [("known", "1")]


class Slow(Displayable):
    """Object whose plot exceeds the time limit."""

    def __repr__(self):
        return "<Slow: thing>"

    def _html_repr(self):
        return HtmlRepr.of(self)

    def _plot(self):
        raise OutOfTime("too slow")


def test_html_repr_that_takes_too_long_has_no_image():
    html = Slow()._repr_html_()
    assert "Slow: thing" in html
    assert f"{DISPLAY_SECONDS:g} s" in html
    assert "<img" not in html


def test_matplotlib_loads_only_when_a_plot_is_requested():
    code = (
        "import sys, learncast as lc; t = lc.tasks.integration(steps=5); n = lc.LinearRNN.aligned(hidden_size=2);"
        "s = lc.forecast(t, n, learning_rate=1e-2).solution;"
        "p = lc.plan(t, [t.varied(target_strength=2.0).renamed('b')], n,"
        "learning_rate=1e-2); repr((t, n, s, p)); assert 'matplotlib' not in sys.modules;"
        "t._repr_html_(); assert 'matplotlib' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_result_has_a_report_with_its_own_numbers():
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    forecast = lc.forecast(task, network, learning_rate=1e-3)
    stages = [lc.Stage(task.varied(target_strength=1.5).renamed("stronger"), 0.5), lc.Stage(task, 0.99)]
    sequence = lc.follow(stages, network, learning_rate=1e-3)
    found = {one.report().kind: one.report() for one in (forecast, sequence, PLAN)}
    assert set(found) == {"forecast", "forget", "plan"}
    assert found["forecast"].values["descent_steps"] == forecast.steps.descent == 331
    assert found["forecast"].values["accuracy"] == 0.99
    assert [stage["steps"] for stage in found["forget"].values["stages"]] == [s.steps.descent for s in sequence.stages]
    assert found["plan"].values["best"]["total"] == PLAN.total
    for one in found.values():
        assert one.trust.forecast_class == json.loads(one.json())["class"]
        assert one.title in one.html(None)
    with pytest.raises(lc.UnsupportedModel) as error:
        report_of(task)
    assert error.value.field == "result"


def test_a_page_gives_the_answer_the_figure_the_doubt_and_the_details_in_this_order():
    page = PLAN.report().html("<svg></svg>")
    places = [page.index(part) for part in ('class="lead"', "<svg>", 'class="badge"', "<details>", "<table>", "<pre>")]
    assert places == sorted(places)
    lead = page.partition('class="lead">')[2].partition("</p>")[0]
    report = PLAN.report()
    assert html.unescape(lead) == report.lead.partition("\n\n")[0]
    assert len(lead) < len(report.lead)


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (None, ""),
        ((11709.24, 22046.01), "11,709 to 22,047"),
        ((-120.5, -100.4), "-121 to -100"),
        ((41.5, 120.3), "41 to 121"),
        ((5.0, 5.0), ""),
        ((0.0393, 25.42), "0 to 26"),
        ((41.52, 99.5), "41 to 100"),
        ((3.0, math.inf), "3 to never"),
        ((math.nan, 500.5), "unknown to 501"),
    ],
)
def test_ends_of_an_interval_of_steps_are_whole(interval, shown):
    assert format_interval(interval) == shown


def test_a_table_is_stated_by_its_columns():
    table = Table.of(
        "Losses", {"step": ([0, 1000], "{:,}".format), "loss": (np.array([0.5, 1e-9]), format_loss)}, ["n"]
    )
    assert table == Table("Losses", ("step", "loss"), [("0", "0.5"), ("1,000", "1e-09")], ["n"])
    with pytest.raises(ValueError):  # columns of different lengths
        Table.of("Losses", {"step": ([0, 1], str), "loss": ([0.5], str)})


def test_counts_have_neither_empty_intervals_nor_decimals_nor_unknown_parts():
    assert str(Steps(1.0, 0.7, low=1.0, high=1.0)) == "1 step"
    assert format_number(1_690_266_931.2) == "1,690,266,931"
    task = lc.tasks.integration(steps=10)
    shown = repr(lc.forget([task, task.varied(target_strength=0.5).renamed("later")], NETWORK, learning_rate=1e-3))
    assert "nan" not in shown
    assert "inf descent" not in shown


def test_a_report_has_a_repr_and_an_html_repr_of_its_own():
    report = PLAN.report()
    assert "lambda" not in repr(report)
    assert "\n" not in repr(report)
    content = report._repr_html_()
    assert html.escape(report.lead) in content
    assert 'src="data:image/png' in content
