"""Tests, packages and commands that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import package_map
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_every_misprint_names_an_existing_test():
    text = (DOCS / "theory" / "misprints.md").read_text(encoding="utf-8")
    cited = set(re.findall(r"`(test_\w+)`", text))
    written = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        written |= set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.M))
    assert len(cited) > 15
    assert cited <= written, cited - written


def test_every_misprint_has_its_evidence():
    rows = [
        line
        for line in (DOCS / "theory" / "misprints.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| where"))
    ]
    assert len(rows) >= 20
    assert all("`test_" in row for row in rows)


def test_the_map_shows_every_package_on_its_level():
    rows = re.findall(r"<li>(.*?)</li>", package_map.html())
    found = {path.stem for path in (ROOT / "src" / "learncast").iterdir() if path.suffix == ".py" or path.is_dir()}
    packages = [package for level in package_map.layers() for package in level]
    assert sorted(packages) == sorted(found - {"__init__", "__pycache__", "py"})
    assert [re.findall(r">(\w+)</code>", row) for row in rows[::-1]] == package_map.layers()


def test_files_that_pages_name_exist():
    for page in ("reliability", "contributing"):
        text = (DOCS / "project" / f"{page}.md").read_text(encoding="utf-8")
        for path in re.findall(r"`((?:tests|docs|examples|src)/[\w/.-]+)`", text):
            assert (ROOT / path).exists(), path


def test_the_front_page_asks_the_readmes_eleven_questions():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\|[^|]+\| `learncast (\w+)`", readme, flags=re.M)
    assert len(commands) == 11
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    for command in commands:
        assert f"{{ref}}`learncast {command} <command-{command}>`" in front


def test_dollars_in_prose_are_formulas_that_can_be_translated():
    latex2mathml = pytest.importorskip("latex2mathml.converter")
    for path in sorted((DOCS / "theory").glob("*.md")):
        text = re.sub(r"```(?!\{glossary).*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
        formulas = re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, flags=re.S)
        assert text.replace("$$", "").count("$") % 2 == 0, path.name
        for formula in (one or other for one, other in formulas):
            assert "<math" in latex2mathml.convert(formula), formula
