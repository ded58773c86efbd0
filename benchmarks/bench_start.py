"""The first second: CPU time of a command from a warm file cache.

The limit is what must be loaded: an interpreter, numpy, and for a command its parser (typer, rich) and the study's
checks (pydantic). What remains is the answer itself, which takes milliseconds; every row says its multiple of numpy and
xarray, the anchor, so that a slow machine moves both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

STUDY = Path(__file__).parents[1] / "examples" / "two_integration_tasks.toml"
REPEATS = 5


def seconds(*words: str, code: int = 0) -> float:
    """CPU seconds of the quickest of some runs of the interpreter, which must end with this exit code."""
    best = float("inf")
    for _ in range(REPEATS):
        before = os.times()
        done = subprocess.run([sys.executable, *words], capture_output=True)
        after = os.times()
        assert done.returncode == code, done.stderr
        spent = (getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system"))
        best = min(best, sum(spent))
    return best


def rows() -> Iterator[tuple[str, str, str]]:
    anchor = seconds("-c", "import numpy, xarray")
    yield "an interpreter with numpy and xarray, the anchor", f"{anchor:.2f} s", ""
    with tempfile.TemporaryDirectory() as folder:
        slip = Path(folder) / "slip.toml"
        slip.write_text("[training]\nlearning_rat = 1e-3\n", encoding="utf-8")
        asked = {
            "import learncast; learncast.plan": (("-c", "import learncast; learncast.plan"), 0, f"<= {anchor:.2f} s"),
            "learncast --help": (("-m", "learncast", "--help"), 0, ""),
            "learncast plan STUDY --json": (("-m", "learncast", "plan", str(STUDY), "--json"), 0, "<= 0.8 s"),
            "learncast plan, a path that is not there": (("-m", "learncast", "plan", f"{slip}x"), 2, "<= 0.4 s"),
            "learncast plan, a key that is not known": (("-m", "learncast", "plan", str(slip)), 2, "<= 0.4 s"),
        }
        for label, (words, code, goal) in asked.items():
            taken = seconds(*words, code=code)
            yield f"{label} ({taken / anchor:.2f} of the anchor)", f"{taken:.2f} s", goal
