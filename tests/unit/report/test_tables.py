"""Tables of reports are short: equal rows are merged, losses are rounded, and the files keep every number."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import learncast as lc
from learncast.display import Table, format_loss, format_number
from learncast.figures.page import NARROW
from learncast.theory import Assumption, Trust


def test_equal_modes_share_a_row() -> None:
    task = lc.tasks.integration(steps=20, target_strength=[2.0, 1.0, 1.0, 1.0])
    network = lc.LinearRNN.aligned(task=task, hidden_size=4, recurrence=0.9, initial=0.05)
    report = lc.forecast(task, network, learning_rate=1e-3).report()
    (table,) = report.tables
    assert [row[0] for row in table.rows] == ["1", "2–4"]
    assert [mode["mode"] for mode in json.loads(report.json())["modes"]] == [0, 1, 2, 3]
    assert "status" not in table.columns  # every mode is learned


def test_losses_of_a_sequence_have_three_digits_in_text_and_all_in_json() -> None:
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    report = lc.forget([task, task.varied(target_strength=1.7)], network, steps=[300, 150], learning_rate=1e-3).report()
    cells = [cell for table in report.tables for row in table.rows for cell in row[1:]]
    numbers = [re.sub(r"e.*|[^\d]", "", cell).lstrip("0") for cell in cells]
    assert max(map(len, numbers)) == 3
    assert any(len(str(value)) > 10 for row in json.loads(report.json())["loss"] for value in row)


@pytest.mark.parametrize(
    ("loss", "text"), [(1234.5, "1,234"), (-0.123456, "-0.123"), (1e-15, "0"), (float("nan"), "unknown")]
)
def test_a_loss_in_text(loss: float, text: str) -> None:
    assert format_loss(loss) == text


def test_zero_steps_are_a_plain_zero() -> None:
    assert [format_number(value) for value in (0.0, -0.0, 0.004, 2.5)] == ["0", "0", "0.00", "2.50"]


def test_learning_curves_mark_the_steps_of_the_answer() -> None:
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    plan = lc.plan(task, [task.varied(target_strength=1.5).renamed("stronger")], network, learning_rate=1e-3)
    for result, marked in ((plan.best, []), (plan, [331, 168]), (plan.follow([plan.stages[-1]]), [331])):
        axes = result.report().draw().axes[0]
        dots = [int(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"]
        assert dots == marked


def test_a_curve_marks_full_batches_if_batches_arrive_by_chance() -> None:
    task, network = lc.tasks.integration(steps=50), lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    forecast = lc.forecast(task, network, lc.Training(1e-3, batch=64))
    assert forecast.batches is not None
    assert forecast.batches.by_chance
    assert forecast.drawn_steps.descent == forecast.full_batch.steps.descent != forecast.steps.descent


def test_a_page_folds_long_tables() -> None:
    task, network = lc.tasks.integration(steps=20), lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4)
    report = lc.forecast(task, network, learning_rate=1e-3).report()
    long, short = (Table("", ("k",), [(str(k),) for k in range(n)]) for n in (11, 10))
    for table, folded in ((long, True), (short, False)):
        text = replace(report, tables=[table]).html(None)
        details = "".join(re.findall(r"<details>.*?</details>", text, re.DOTALL))
        assert (table.html() in details) == folded
        assert table.html() in text


def test_a_page_has_a_figure_in_one_column_for_narrow_screens(tmp_path) -> None:
    task = lc.tasks.integration(steps=20)
    network = lc.LinearRNN.aligned(task=task, hidden_size=4, recurrence=0.9, initial=0.05)
    lc.forecast(task, network, learning_rate=1e-3).report().write(tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    (wide, _), (narrow, high) = ((float(w), float(h)) for w, h in re.findall(r'viewBox="0 0 (\S+) (\S+)"', text))
    assert narrow <= 72 * NARROW < wide
    assert high > narrow  # two axes, one below the other
    names = re.findall(r'<[^>]* id="([^"]*)"', text)
    assert len(names) == len(set(names))
    used = set(re.findall(r'(?:url\(|href=")#([^")]*)', text))
    assert used <= set(names)


def test_a_condition_that_fails_by_little_shows_digits_that_exceed_the_limit() -> None:
    for measured in (1.0, 0.99999999995, 0.9999999999, 0.9):
        condition = Assumption("regular_orientation", measured)
        assert (float(condition.measured_text) <= condition.allowed) == condition.holds


def test_a_failing_condition_that_is_not_needed_is_a_note() -> None:
    table = Trust((Assumption("aligned_start", 0.3), Assumption("regular_orientation", 1.0)), "exact").table
    assert [row[0] for row in table.rows] == ["aligned start"]
    assert len(table.notes) == 1


@pytest.fixture(scope="module")
def priced():
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    terms = lc.Terms(costs=[0.25, 0.5, 1.0], switch_cost=7.0)
    return lc.plan(task, pool, network, learning_rate=1e-3, terms=terms)


def test_candidates_are_listed_by_what_the_plan_minimises(priced) -> None:
    table = priced.ranking_table
    assert table.columns[2:4] == ("cost", "steps")
    assert [row[2] for row in table.rows[:-1]] == [format_number(c.total) for c in priced.candidates]


def test_the_pictures_of_a_stop_show_what_the_plan_minimises(priced) -> None:
    portrait = priced.stop_portrait()
    best = priced.candidates[0]
    planned = portrait.sel(accuracy=portrait.attrs["accuracy"])
    saved = float(planned["saving_cost"].sel(stop=round(best.stop_steps)))
    assert saved == pytest.approx(best.saving, abs=1.0)  # whole steps
    assert float(planned["saving_cost"].sel(stop=0.0)) == 0.0
    assert portrait.attrs["plan"] == (len(priced.best.stages) == 2)


def test_the_colours_of_a_stop_reach_what_the_plan_saves() -> None:
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    plan = lc.plan(task, [task.varied(target_strength=1.5).renamed("stronger")], network, learning_rate=1e-3)
    _, (ax,) = lc.figures.page()
    lc.figures.stop_map(plan.stop_portrait(), ax)
    assert ax.collections[0].get_clim()[1] >= plan.saving


def test_a_report_cites_only_the_papers_that_it_uses():
    task = lc.tasks.integration(steps=10)
    aligned = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    drawn = lc.LinearRNN.random(1, 4, 1, recurrence=0.9, scale=0.1)
    reports = [lc.forecast(task, network, learning_rate=1e-2).report() for network in (aligned, drawn)]
    cited = [re.findall(r"@\w+\{(\w+),", report.html(None)) for report in reports]
    assert cited == [["curriculum2025", "proca2025", "saxe2014"], []]
