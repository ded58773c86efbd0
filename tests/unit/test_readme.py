"""The README's example is what the code prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from typer.testing import CliRunner

from learncast.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_example_prints_what_the_readme_shows():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)[1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == shown
    assert len([line for line in code.splitlines() if line and not line.startswith("import")]) <= 5


def test_command_prints_what_the_readme_shows():
    shown = re.search(r"\$ learncast plan examples.*?\n(.*?)```", README, re.DOTALL)[1]
    result = CliRunner().invoke(app, ["plan", str(ROOT / "examples" / "two_integration_tasks.toml")])
    assert result.exit_code == 0
    assert " ".join(shown.split()) in " ".join(result.output.split())


def test_saving_of_a_fully_trained_first_task_is_as_the_readme_says():
    import learncast as lc

    target, network = lc.tasks.integration(), lc.LinearRNN.aligned()
    stages = [lc.Stage(target.varied(target_strength=1.5), accuracy=0.99), lc.Stage(target, accuracy=0.99)]
    way = lc.follow(stages, network, learning_rate=1e-3)
    assert f"save {way.direct.descent_steps - way.descent_steps:.0f} steps" in README
