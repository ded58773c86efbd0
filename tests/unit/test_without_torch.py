"""Without torch, every command that needs it exits with one sentence before it does any work."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SWEEP = """
[training]
learning_rate = 0.001
[target]
family = "integration"
[sweep]
command = "{}"
[sweep.grid]
"target.steps" = [5, 6]
"""
#: Hides torch as if it were not installed, then runs one command after another.
PROBE = """
import json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Hidden())
from typer.testing import CliRunner
from learncast.cli import app

for line in sys.stdin:
    result = CliRunner().invoke(app, json.loads(line))
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    print(result.exit_code, result.stderr.strip(), flush=True)
"""


def test_training_without_torch_is_refused_before_any_work(tmp_path):
    for command in ("train", "check", "window"):
        (tmp_path / f"{command}.toml").write_text(SWEEP.format(command))
    model = ["--model", "net.py:build", "--weights", "net.pt", "--data", "data.npz"]
    asked = [
        ["window", str(EXAMPLES / "multi_lag_window.toml")],
        ["window", *model],
        ["check", str(EXAMPLES / "two_integration_tasks.toml")],
        *(["reproduce", paper, "--out", str(tmp_path)] for paper in ("learnability", "curriculum", "prior-knowledge")),
        ["reproduce", "learnability", "--store", str(tmp_path / "store")],
        *(["sweep", "run", str(tmp_path / f"{command}.toml")] for command in ("train", "check", "window")),
    ]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    done = subprocess.run([sys.executable, "-c", PROBE], input=lines, capture_output=True, text=True, check=True)
    outcomes = done.stdout.splitlines()
    assert len(outcomes) == len(asked)
    for line in outcomes:
        assert line.split()[:2] == ["2", "learncast:"], line
        assert "pip install torch" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["check.toml", "train.toml", "window.toml"]
