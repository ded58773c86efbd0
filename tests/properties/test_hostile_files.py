"""Whatever a file holds, a command answers or refuses it in one sentence, within bounds, and runs nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "hostile_files.py"
#: Bytes that the process may take at any time, and those of them that are torch's and pandas' own.
MOST, LIBRARIES = 10**9, 5 * 10**8


def tried(kind: str, first: int, last: int) -> list[dict]:
    """How the mutants of these seeds were taken by every command that reads them, in one process of their own."""
    command = [sys.executable, "-W", "ignore", str(PROGRAM), kind, str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == last - first, f"{kind} seed {first + len(rows)}: {done.stderr[-2000:]}"
    print(done.stderr.strip().splitlines()[-1])
    return rows


def check(kind: str, first: int, last: int) -> None:
    rows = tried(kind, first, last)
    problems = [f"{kind} seed {row['seed']}: {row['problem']}" for row in rows if row["problem"]]
    assert not problems, "\n".join(problems[:3])
    # torch for graphics cards is larger by itself, whatever it reads.
    assert max(row["bytes"] for row in rows) < MOST + max(rows[0]["loaded"] - LIBRARIES, 0)


@pytest.mark.torch
def test_some_mutated_files_of_every_kind():
    check("any", 0, 18)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"),
    [("study", 2000), ("nc", 1000), ("npz", 1000), ("csv", 1000), ("safetensors", 1000), ("pt", 1000)],
)
def test_thousands_of_mutated_files(kind, number):
    check(kind, 0, number)
