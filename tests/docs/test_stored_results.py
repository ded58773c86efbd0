"""Results that were made once and are kept as numbers: they are those of the code that stands here, and are drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import drawings

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
