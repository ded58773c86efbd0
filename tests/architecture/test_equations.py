"""Every equation that a docstring claims to implement has a reference test marked with it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from learncast._core.citations import BIBTEX, bibliography
from learncast.theory import ASSUMPTIONS

ROOT = Path(__file__).parents[2]
CLAIM = re.compile(r"^\s*Implements: (\w+) (Eq\. \([\w.]+\)|Thm\. [\w.]+)(?:, .+)?$")
ASSUMES = re.compile(r"^\s*Assumes: (.+)$")


@cache
def docstring_lines() -> list[tuple[str, str]]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found += [(f"{path.name}:{getattr(node, 'name', 'module')}", line) for line in text.splitlines()]
    return found


@cache
def claimed() -> dict[str, str]:
    """Equation to the place that implements it."""
    equations = {}
    for place, line in docstring_lines():
        if "Implements:" in line:
            match = CLAIM.match(line)
            assert match, f"{place}: cannot read {line.strip()!r}"
            equations[f"{match[1]} {match[2]}"] = place
    return equations


@cache
def marked() -> set[str]:
    """Equations named by markers in the reference tests and, for our own equations, in unit tests."""
    found: set[str] = set()
    for path in (*(ROOT / "tests" / "reference").glob("test_*.py"), *(ROOT / "tests" / "unit").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mark.equation" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.equation":
                found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


def test_every_claimed_equation_is_tested():
    missing = {equation: place for equation, place in claimed().items() if equation not in marked()}
    assert not missing


def test_every_tested_equation_is_claimed():
    assert marked() <= set(claimed())


def test_every_equation_is_of_a_cited_paper_or_of_a_page_of_ours():
    pages = {path.stem for path in (ROOT / "docs" / "theory").glob("*.md")}
    assert {equation.split()[0] for equation in claimed()} <= set(BIBTEX) | pages


def test_assumptions_named_in_docstrings_exist():
    named = [
        (place, name.strip())
        for place, line in docstring_lines()
        if (match := ASSUMES.match(line))
        for name in match[1].split(",")
    ]
    assert named
    assert not [(place, name) for place, name in named if name not in ASSUMPTIONS]


def test_the_bibliography_of_the_docs_is_that_of_the_package():
    assert (ROOT / "docs" / "references.bib").read_text(encoding="utf-8") == bibliography(*BIBTEX)


def test_equation_index_of_the_docs_is_current():
    text = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\w+ (?:Eq\. \([\w.]+\)|Thm\. [\w.]+)) \| (`?)", text, flags=re.MULTILINE)
    assert {equation for equation, computed in listed if computed} == set(claimed())
    # Every equation is listed once, either as computed or with a remark.
    assert not {equation for equation, computed in listed if not computed} & set(claimed())
    for paper, last in (("braun2022", 15), ("curriculum2025", 46), ("generalise", 12), ("livi2025", 78)):
        numbers = {int(n) for n in re.findall(rf"^\| {paper} Eq\. \((\d+)\) \|", text, flags=re.MULTILINE)}
        skipped = {74} if paper == "livi2025" else set()  # the paper has no such equation
        assert numbers == set(range(1, last + 1)) - skipped
    page = (ROOT / "docs" / "theory" / "generalise.md").read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r"\\tag\{(\d+)\}", page)] == list(range(1, 13))
