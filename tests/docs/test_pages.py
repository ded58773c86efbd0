"""The code on the pages of Start here and How-to runs and prints what is shown.

The Python blocks of a page run in order in a folder with the examples; a block that imports a package that is not
installed is only compiled. A text block must be contained in the output of the block before it. Studies are loaded.
Commands after a `$` are run, and their output must contain the lines below them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from learncast.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "start").glob("*.md")) + sorted((ROOT / "docs" / "how-to").glob("*.md"))
#: Pages whose blocks train networks, run thousands of steps, or answer many studies.
SLOW = {"python": ("advice", "own-cells", "carry-out", "extend", "reproduce"), "console": ("commands",), "toml": ()}
#: Commands that train for minutes, open a browser, or need the reader's files.
UNTRIED = re.compile(r"explore|reproduce (?!.*--dry-run)|check|--model|sweep|pip |make |python ")


class Block(NamedTuple):
    """A fenced block: its language and its lines."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*one) for one in found]


def words(text: str) -> str:
    """Text without line breaks and rules."""
    return " ".join(re.sub(r"[─╭╮╰╯│]", " ", text).split())


def missing(code: str) -> list[str]:
    """Packages that a block imports and that are not installed."""
    tree = ast.parse(code)
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in names if find_spec(name.split(".")[0]) is None]


def pages(language: str):
    for page in PAGES:
        if any(block.language == language for block in blocks(page)):
            marks = [pytest.mark.slow] if page.stem in SLOW[language] else []
            yield pytest.param(page, id=page.stem, marks=marks)


@pytest.fixture
def beside_examples(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", list(pages("python")))
def test_python_runs_and_prints_what_is_shown(page, beside_examples):
    names, printed = {"__name__": "page"}, ""
    for block in blocks(page):
        if block.language == "python":
            code = compile(block.text, page.name, "exec")
            if not missing(block.text):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(code, names)
                printed = out.getvalue()
        elif block.language == "text" and printed:
            assert words(block.text) in words(printed)


@pytest.mark.parametrize("page", list(pages("console")))
def test_commands_print_what_is_shown(page, beside_examples):
    for block in blocks(page):
        if block.language != "console":
            continue
        for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            command = line.split("  #")[0]
            if not command.startswith("learncast ") or UNTRIED.search(command):
                continue
            result = CliRunner().invoke(app, shlex.split(command)[1:])
            assert result.exit_code in (0, 1), f"{command}: {result.output}"
            for part in shown.split("..."):
                assert words(part) in words(result.output), command


@pytest.mark.parametrize("page", list(pages("toml")))
def test_studies_are_read(page, beside_examples):
    from learncast.study import Study
    from learncast.sweep.studies import sweep_of

    for k, block in enumerate(block for block in blocks(page) if block.language == "toml"):
        path = beside_examples / "examples" / f"page-{k}.toml"
        path.write_text(block.text, encoding="utf-8")
        (sweep_of if "[sweep]" in block.text else Study.load)(path)


def test_a_wrong_number_on_a_page_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_python_runs_and_prints_what_is_shown(page, tmp_path)
