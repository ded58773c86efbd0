"""The page of performance: goals are judged by numbers, and rows are known again from version to version."""

from __future__ import annotations

import pytest

report = pytest.importorskip("benchmarks.report", reason="benchmarks are beside the package, in the repository")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.3x", 2.3),
        ("1/172", 1 / 172),
        ("12.5 ms", 0.0125),
        ("1,234 MB", 1.234e9),
        ("3e-14", 3e-14),
        ("-1.5%", -0.015),
    ],
)
def test_values_are_read_in_their_units(text, expected):
    assert report.number(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "was", "change"),
    [("2 s", "1 s", "(+100%)"), ("1/10", "1/20", "(+100%)"), ("1.5/1.4 s", "0.9/2.3 s", ""), ("2.05 s", "2 s", "")],
)
def test_only_single_numbers_and_fractions_have_a_change(value, was, change):
    assert report._against(value, was) == f"{was} {change}".strip()


@pytest.mark.parametrize("text", ["", "kept", "3 lags"])
def test_what_is_no_number_is_not_judged(text):
    assert report.number(text) is None
    assert report.verdict(text, "goal <= 1") == ""


@pytest.mark.parametrize(
    ("value", "goal", "told"),
    [
        ("5.5x", "goal >= 5x", "yes"),
        ("4.9x", "goal >= 5x", "**no**"),
        ("1/250", "goal <= 1/200", "yes"),
        ("1/150", "goal <= 1/200", "**no**"),
        ("90 ms", "<= 0.1 s", "yes"),
        ("0.95 GB", "goal < 1 GB", "yes"),
        ("4.2", "goal ~ 4", "yes"),
        ("3.5", "goal ~ 4", "yes"),
        ("4.9", "goal ~ 4", "**no**"),
        ("4.9", "", ""),
    ],
)
def test_goals(value, goal, told):
    assert report.verdict(value, goal) == told


def test_each_version_is_kept_and_the_newest_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "HISTORY", tmp_path / "results" / "history.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(report, "HERE", tmp_path / "benchmarks")
    for version, seconds, ratio in (("1", 0.5, 10), ("2", 0.7, 20), ("2", 0.8, 12)):
        monkeypatch.setattr(report, "_version", lambda version=version: version)
        rows = [
            (f"a ({seconds} s)", f"{ratio}x", "goal >= 11x"),
            ("  the same", "3x", ""),
            ("b", "1 s", ""),
            ("  the same", "4x", ""),
        ]
        report.keep("curriculum", rows)
    report.keep("two_layer", [("c", "1 ms", "")])
    report.write()
    assert [entry["version"] for entry in report.history()] == ["1", "2"]
    page = (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert "| a (0.8 s) | 12× | ≥ 11× | yes |" in page.replace("\N{NO-BREAK SPACE}", " ")  # the newest only
    assert "| &emsp;the same | 4× |  |  |" in page
    assert page.index("Exact curricula") < page.index("Exact learning")
    assert "performance.md tells of 2 sections" in capsys.readouterr().out


def test_the_page_is_written_from_the_stored_measurements():
    text, sections = report.page()
    assert report.PAGE.read_text(encoding="utf-8") == text
    assert sections == len(report.current())


def test_every_question_of_the_chart_is_measured_and_a_missed_goal_has_a_reason():
    found = report.answers()
    assert [a.question for a in found] == [one for one in report.SUMMARY if one.section in report.current()]
    for answer in found:
        kind, value, goal = answer.bar
        assert answer.met == (value >= goal if kind == "ratio" else value <= goal)
        assert answer.met or answer.question.reason


def test_a_multiple_of_a_limit_is_drawn_as_a_time():
    question = report.Question("q", "s", "r")
    assert report.Answer(question, "30x", "<= 15x", "40 ms").bar == ("time", 0.04, 0.02)
    assert report.Answer(question, "1/400", "<= 1/200", "1 s").bar == pytest.approx(("ratio", 400, 200))
