"""The first second: CPU time of a command from a warm file cache.

Most of the time loads packages; the answer itself takes milliseconds. Every row also gives its multiple of an
interpreter with numpy and xarray, the anchor, because a slow machine slows both.

The limit is what must be loaded: an interpreter, numpy, and for a command its parser (typer, rich) and the study's
checks (pydantic). The last rows count what a reader of one answer has to follow: the functions of learncast that are
called, and the modules in which they are.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

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


def called(*words: str) -> tuple[int, int]:
    """Distinct modules and functions of learncast that a command calls, without comprehensions and class bodies."""
    import learncast

    package, found = str(Path(learncast.__file__).parent), set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        whole = code.co_flags & 1 and not code.co_name.endswith(("comp>", "expr>"))  # 1: has fast local variables
        if event == "call" and whole and code.co_filename.startswith(package):
            found.add((code.co_filename, code.co_firstlineno))

    sys.argv = ["learncast", *words]
    sys.setprofile(note)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            from learncast.cli import main

            main()
    finally:
        sys.setprofile(None)
    return len({file for file, _ in found}), len(found)


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
    count = f"from benchmarks.bench_start import called; print(*called('plan', {str(STUDY)!r}))"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    modules, functions = done.stdout.split()
    yield "learncast plan STUDY: modules of learncast with a function that is called", modules, "<= 32"
    yield "learncast plan STUDY: functions of learncast that are called", functions, "<= 300"
