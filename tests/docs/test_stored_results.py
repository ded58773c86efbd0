"""Results that were made once and are kept as numbers: they are those of the code that stands here, and are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import drawings
import skill_page

from learncast import SchemaMismatch
from learncast.papers import open_paper

DOCS = Path(__file__).parents[2] / "docs"
STORED = json.loads((DOCS / "results/learnability-default.json").read_text(encoding="utf-8"))


def test_stored_numbers_are_those_of_the_stored_results():
    """Captions, numbers and verdicts are what the code makes of the results that come with the package."""
    paper = open_paper("learnability")
    assert set(STORED["figures"]) == {figure.name for figure in paper.selected(None, "default")}
    for figure in paper.figures:
        if figure.name in STORED["figures"]:
            assert STORED["figures"][figure.name]["caption"] == figure.caption
    for name in ("claims", "2"):
        dataset = paper.figure(name).make(preset="default", compute=paper.stored)
        assert json.loads(json.dumps(paper.figure(name).numbers(dataset))) == STORED["figures"][name]["numbers"]


def test_the_coverage_on_the_trust_page_is_that_of_the_stored_output():
    lines = (DOCS / "results/coverage.txt").read_text(encoding="utf-8").splitlines()[1:]
    stored = {line[:80].strip(): line[80:].split()[0] for line in lines if line.strip()}
    page = (DOCS / "start/trust.md").read_text(encoding="utf-8")
    for inputs in ("Gaussian", "counts", "labels", "noisy"):
        shares = [stored[f"{inputs}, {trials} trials: steps"] for trials in (20, 50, 120, 400)]
        assert f"| {inputs} | {' | '.join(shares)} |" in page

    def ends(*words):
        shares = [float(share[:-1]) for name, share in stored.items() if all(word in name for word in words)]
        return f"{min(shares)}%", f"{max(shares)}%"

    assert all(end in page for end in (*ends("by accuracy"), *ends("ReLU"), *ends("total", "by steps")))
    for name in ("start/trust.md", "start/faq.md", "how-to/recordings.md"):
        assert " to ".join(ends("trials: steps")) in (DOCS / name).read_text(encoding="utf-8")


def test_other_seeds_have_no_stored_results():
    paper = open_paper("learnability", seeds=[1, 2])
    with pytest.raises(SchemaMismatch) as error:
        paper.figure("1").make(preset="default", compute=paper.stored)
    assert error.value.field == "stored"


@pytest.mark.parametrize("name", ["default_windows"])
def test_stored_numbers_are_drawn_on_the_page_of_the_theory(name):
    draw = getattr(drawings, name)
    _, axes = drawings.empty(draw)
    draw(axes)
    assert all(len(ax.lines) >= 3 and ax.get_ylabel() for ax in axes)
    assert f"```{{drawn}} {name}\n" in (DOCS / "theory/livi2025.md").read_text(encoding="utf-8")


def test_the_drawn_problems_on_the_pages_are_those_of_the_stored_results():
    stored = json.loads((DOCS / "results/forecasts.json").read_text(encoding="utf-8"))
    rows = stored["rows"]
    near = [row for row in rows if abs(row["forecast"] - row["trained"]) <= max(1, 1e-3 * row["trained"])]
    (far,) = [row for row in rows if row not in near]
    counts = f"{len(near)} of {len(rows)} drawn problems"
    for page in ("docs/start/trust.md", "docs/index.md", "README.md"):
        text = " ".join((DOCS.parent / page).read_text(encoding="utf-8").split())
        assert counts in text, page
    trust = " ".join((DOCS / "start/trust.md").read_text(encoding="utf-8").split())
    shown = [row for row in rows if row["trained"] >= 1]
    kinds = [sum(row["class"] == name for row in rows) for name in ("integrated", "response", "exact")]
    assert f"differs by {abs(far['forecast'] / far['trained'] - 1):.1%}" in trust
    assert f"draws {stored['drawn']} problems" in trust
    assert "{} are `integrated`, {} `response` and {} `exact`".format(*kinds) in trust
    assert f"the {len(shown)} that" in trust
    assert f"{sum(row['forecast'] == row['trained'] for row in shown)} have the same" in trust


def test_the_trained_steps_on_the_pages_are_those_of_the_stored_race():
    trained = json.loads((DOCS / "_static/race.json").read_text(encoding="utf-8"))["trained"]
    text = " ".join((DOCS / "start/trust.md").read_text(encoding="utf-8").split())
    assert (
        "take {} to {}, and {} to {}.".format(*(end(trained[k]) for k in ("direct", "plan") for end in (min, max)))
        in text
    )


def test_the_skill_of_the_advice_on_the_trust_page_is_that_of_the_stored_results():
    """Each number beside those of its strongest simple rivals."""
    from benchmarks import bench_advice as bench

    trust = " ".join((DOCS / "start/trust.md").read_text(encoding="utf-8").split())
    held_out = next(iter(skill_page.rankings().values()))
    regret, ranks = ({row[0]: row[k] for row in held_out} for k in (3, 1))
    closed = next(name for name in ranks if name.startswith("closed form"))
    assert f"(rank correlation {ranks['`advise`']}; closed form {ranks[closed]})" in trust
    assert f"takes {regret['`advise`']} times the steps of the best of 19 plans" in trust
    (rival,) = {value for name, value in regret.items() if name.startswith(("closed form", "heuristic"))}
    assert f"one-line heuristic takes {rival}" in trust
    assert f"rivals take {rival}" in trust
    assert f"direct training takes {regret['direct training']}" in trust
    ours, best, *_ = skill_page.others()
    assert f"takes {ours[1]} of the steps of direct training" in trust
    assert f"fixed rate takes {best[1]}, but" in trust
    assert f"({ours[2]}), and the best fixed rate takes {best[2]}" in trust
    wide = bench.Part(bench.stored(), "adam", 128)
    given, fixed = (bench.geometric(ratios) for ratios in (wide.to_direct(1.0), wide.baseline("best fixed rate")))
    assert f"takes {given:.2f} and the best fixed rate {fixed:.2f}" in trust
    earlier, curve = (float(row[3].removeprefix("1 : ")) for row in skill_page.remaining())
    assert earlier < 3 < curve  # what the page calls useful, and too wide to help
