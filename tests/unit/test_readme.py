"""Examples in the README and the pages show what the code prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.figures.look import read_tokens

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_prints_the_output_in_the_readme():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    output = re.search(r"```text\n(.*?)```", README, re.DOTALL)[1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == output
    assert len([line for line in code.splitlines() if line and not line.startswith("import")]) <= 5


@pytest.mark.slow
def test_every_python_block_of_the_readme_runs():
    pytest.importorskip("torch")
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
            exec(compile(code, "README.md", "exec"), names)
    inputs, _ = next(iter(names["loop"]))
    assert inputs.shape[:2] == (1000, 50)


def test_images_of_the_readme_have_two_pixels_for_each_one_shown():
    image = pytest.importorskip("PIL.Image")
    shown = re.findall(r'<img src="([^"]+)" width="(\d+)"', README)
    assert len(shown) >= 2
    for path, width in shown:
        if path.endswith(".svg"):  # sharp at every size, with a version for dark pages
            assert f'(prefers-color-scheme: dark)" srcset="{path.removesuffix(".svg")}_dark.svg"' in README
            continue
        with image.open(ROOT / path) as picture:
            assert picture.width >= 2 * int(width), path


def test_both_versions_of_the_first_picture_are_drawn_in_their_own_ink():
    for dark, name in ((False, "hero.svg"), (True, "hero_dark.svg")):
        text = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        assert read_tokens(dark=dark)["ink"] in text
        assert read_tokens(dark=not dark)["ink"] not in text


def test_badges_say_what_pyproject_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    badges = (ROOT / "docs" / "images" / "badges.svg").read_text(encoding="utf-8")
    assert all(f">{text}<" in badges for text in (", ".join(pythons), project["license"]))


def test_the_readme_has_fewer_than_150_lines():
    assert len(README.splitlines()) < 150


PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not {"generated", "_build"} & set(page.parts)),
]
#: Commands that are not run here: they install packages, serve a page, or run this suite.
NOT_RUN = ("make ", "pip ", "git ", "python -m http", "learncast explore")


def blocks():
    """Every command of a console block with its output."""
    for page in PAGES:
        if "_build" in page.parts:
            continue
        for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for command, output in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                needs_torch = command.split()[1:2] in (["advise"], ["window"], ["check"])
                name = f"{page.relative_to(ROOT)}: {command[:50]}"
                yield pytest.param(command, output, id=name, marks=[pytest.mark.torch] * needs_torch)


@pytest.mark.parametrize(("command", "output"), list(blocks()))
def test_a_command_prints_the_output_on_its_page(command, output, tmp_path, monkeypatch):
    if command.startswith(NOT_RUN):
        assert not output.strip(), "this output cannot be checked"
        return
    program, *words = shlex.split(command, comments=True)
    assert program == "learncast"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for study in (ROOT / "examples").glob("*.toml"):
        shutil.copy(study, tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert " ".join(output.split()) in " ".join(result.output.split())


def test_the_first_result_is_on_the_first_screen_of_the_readme():
    lines = README.splitlines()
    assert next(k for k, line in enumerate(lines) if line.startswith("$ learncast plan")) < 40
    assert next(k for k, line in enumerate(lines) if line.strip().startswith("<img")) < 10


def test_links_of_the_readme_lead_somewhere():
    for place in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / place).exists(), place


def test_the_saving_of_a_fully_trained_first_task_is_in_the_readme():
    target, network = lc.tasks.integration(), lc.LinearRNN.aligned()
    stages = [lc.Stage(target.varied(target_strength=1.5), goal=0.99), lc.Stage(target, goal=0.99)]
    assert f"save {lc.follow(stages, network, learning_rate=1e-3).saving.descent:.0f} steps" in README
