"""The page of performance is what its writer makes of the stored measurements; its numbers agree with each other."""

from __future__ import annotations

import re

import pytest
from benchmarks import report

PAGE = report.PAGE.read_text(encoding="utf-8")


def test_the_page_is_written_from_the_stored_measurements():
    assert report.page()[0] == PAGE


def test_counts_of_goals_agree():
    """The totals of the folded part are the sums over the sections and over the questions of the chart."""
    parts = re.findall(r"\((\d+) of (\d+) goals met\)", PAGE)
    met, goals = (sum(map(int, numbers)) for numbers in zip(*parts, strict=True))
    found = report.answers()
    (line,) = (line for line in PAGE.splitlines() if "meet their goal" in line)
    assert list(map(int, re.findall(r"\d+", line))) == [sum(one.met for one in found), len(found), goals, met]
    missed = [line for line in PAGE.splitlines() if line.startswith("- **") and "where the goal is" in line]
    assert len(missed) == sum(not one.met for one in found)


def test_every_question_of_the_chart_has_one_unit():
    for answer in report.answers():
        kind, value, goal = answer.bar
        assert answer.met == (value <= goal if kind == "time" else value >= goal)
        assert ("s" in answer.limit) == (kind == "time")


def test_all_numbers_are_of_one_day_and_one_release():
    entries = report.current().values()
    assert {(entry["date"], entry["version"].split(" at ")[0]) for entry in entries} == {
        (report.history()[-1]["date"], report.history()[-1]["version"].split(" at ")[0])
    }
    assert report.PAGE.read_text(encoding="utf-8").count("measured on") == 1


@pytest.mark.parametrize(("load", "cores", "like"), [(0.5, 2, True), (5.0, 2, False), (0.5, 4, False)])
def test_a_section_is_compared_only_with_one_that_was_measured_alike(monkeypatch, load, cores, like):
    entries = [
        {"version": f"1.{k} at a", "date": f"2026-01-0{k}", "machine": f"x, {n} cores", "load": most}
        | {"sections": {"start": [["import", "1.0 s", ""]]}}
        for k, n, most in ((1, cores, load), (2, 2, 0.5))
    ]
    monkeypatch.setattr(report, "history", lambda: entries)
    assert (report._before("start") is not None) == like


def test_the_first_sentence_has_the_stored_times_of_one_recording():
    """The forecast takes the time of training over their ratio, so that the three numbers of the sentence agree."""
    rows = report.current()["recordings"]["sections"]["recordings"]
    quicker = min(map(int, report.row(rows, "direct training in torch")[1].removesuffix(" s").split("/")))
    ratio = int(report.row(rows, "forecast over")[1].removeprefix("1/").replace(",", ""))
    first = PAGE.splitlines()[2]
    assert f"{quicker / ratio:.3g} s" in first
    assert f"{quicker} s" in first
    assert f"{ratio} times" in first


def test_no_row_is_nothing_at_its_precision():
    assert not re.search(r"\| 0\.0+\S* \|  \|", PAGE)
