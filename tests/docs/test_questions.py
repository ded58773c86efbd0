"""Every page asks the same questions in the same words."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from learncast.cli import app

ROOT = Path(__file__).parents[2]


def test_pages_and_help_ask_the_questions_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    questions = dict(re.findall(r"^\| ([^|]+\?) \| `learncast (\w+)`", readme, flags=re.M))
    assert len(questions) == 11
    commands = typer.main.get_command(app).commands
    front, start, pages = (
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("index.md", "start/index.md", "how-to/commands.md")
    )
    for question, command in questions.items():
        assert f"| {question} | {{ref}}`learncast {command} " in front
        assert f":::{{grid-item-card}} {question}\n" in start
        assert f"## {command}\n\n*{question}*\n" in pages
        asked = commands[command].help or ""
        assert "?" not in asked or asked.startswith(question)
