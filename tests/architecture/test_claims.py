"""The index of theorems, lemmas, assumptions and claims is complete, and what it names exists."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from learncast._core.citations import BIBTEX

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import make_claims  # noqa: E402

ENTRIES = make_claims.entries()
WRITTEN = [entry for entry in ENTRIES if "computed" in entry]


@cache
def names_of_tests() -> set[str]:
    names = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return names


def test_no_numbered_statement_is_missing():
    assert make_claims.missing() == []
    named = [(entry["paper"], entry["name"]) for entry in ENTRIES]
    assert len(named) == len(set(named))
    assert (
        {entry["paper"] for entry in ENTRIES} == {"braun2022", "curriculum2025", "livi2025", "proca2025"} <= set(BIBTEX)
    )


def test_statements_that_the_code_and_the_pages_cite_have_an_entry():
    """A theorem, lemma, assumption or definition with a number is in the index, wherever it is mentioned."""
    known = {entry["name"].lower() for entry in ENTRIES}
    pattern = re.compile(r"\b(theorem|lemma|assumption|definition) ([A-Z\d]\.\d)\b", re.IGNORECASE)
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        for kind, number in pattern.findall(path.read_text(encoding="utf-8")):
            assert f"{kind} {number}".lower() in known, path


@pytest.mark.parametrize("entry", WRITTEN, ids=lambda entry: f"{entry['paper']} {entry['name']}")
def test_every_entry_names_code_and_tests_that_exist(entry):
    assert entry["status"] in make_claims.STATUSES
    module, _, name = entry["computed"].rpartition(".")
    assert hasattr(importlib.import_module(module), name)
    assert bool(entry["verified"]) == (entry["status"] != "undecided")
    assert set(entry["verified"]) <= names_of_tests()


def test_every_tested_claim_of_livi2025_has_a_verdict():
    from learncast.papers.learnability.claims import CRITERIA

    assert [entry["name"] for entry in make_claims.tested()] == [claim["name"] for claim in CRITERIA["claim"]]
    assert {entry["status"] for entry in make_claims.tested()} <= {"holds", "fails", "undecided"}


def test_claims_are_quoted_in_full():
    from learncast.papers.learnability.claims import CRITERIA

    assert [entry["says"] for entry in make_claims.tested()] == [claim["says"] for claim in CRITERIA["claim"]]


def test_the_page_is_current():
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == make_claims.page()
