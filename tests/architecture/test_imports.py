"""Importing learncast is cheap and loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import json, sys, time
import numpy, scipy, scipy.linalg, xarray
begun = time.perf_counter()
import learncast
seconds = time.perf_counter() - begun
learncast.solve, learncast.plan, learncast.phase_portrait, learncast.tasks
heavy = [m for m in ("torch", "matplotlib", "pydantic", "typer", "rich", "dask", "fastapi") if m in sys.modules]
print(json.dumps({"seconds": seconds, "heavy": heavy}))
"""


def probe(code: str) -> dict:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_is_cheap_and_light():
    # The best of three: a loaded machine may delay one start, not all.
    runs = (probe(PROBE) for _ in range(3))
    first = next(runs)
    assert first["heavy"] == []
    assert first["seconds"] < 0.5 or any(run["seconds"] < 0.5 for run in runs)


def test_help_answers_at_once():
    code = """
import json, sys, time
begun = time.perf_counter()
from typer.testing import CliRunner
from learncast.cli import app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0 and "plan" in result.output
loaded = [m for m in ("torch", "xarray", "scipy", "matplotlib") if m in sys.modules]
print(json.dumps({"seconds": time.perf_counter() - begun, "loaded": loaded}))
"""
    runs = [probe(code) for _ in range(3)]
    assert min(run["seconds"] for run in runs) < 1.0
    assert runs[0]["loaded"] == []


def test_public_names_resolve():
    import learncast

    for name in learncast.__all__:
        assert getattr(learncast, name) is not None
    assert set(learncast.__all__) <= set(dir(learncast))
