"""Skill of the advice, from the stored results of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(*arguments: str) -> str:
    """Output of a benchmark for its stored results."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return "\n".join(narrow(line) for line in process.stdout.strip().splitlines())


#: Width of labels in the output of a benchmark and on the page.
PRINTED, WIDTH = 80, 56


def narrow(line: str) -> str:
    """A line of the report, narrower: shorter label columns and wrapped sentences."""
    label, numbers = line[:PRINTED].rstrip(), line[PRINTED:].rstrip()
    if not numbers or len(label) == PRINTED:  # a sentence
        indent = " " * (len(line) - len(line.lstrip()))
        return textwrap.fill(line.strip(), 96, initial_indent=indent, subsequent_indent=f"{indent}  ")
    if len(label) > WIDTH:
        return f"{label}\n{'':<{WIDTH}}{numbers}"
    return f"{label:<{WIDTH}}{numbers}"


def page() -> str:
    """The page in MyST."""
    rankings, decisions = printed("skill", "--from-file"), printed("advice")
    return PAGE.format(rankings=rankings, decisions=decisions)


PAGE = """\
# Skill

How good the advice of `advise` is, compared with networks that were trained by every plan. Exact forecasts are tested to round-off,
and `learncast check` compares a forecast with training. The numbers below are printed from stored results when this site is built.
[The theory page](../../theory/surrogates.md) explains them and their limits.

```{{drawn}} skill_bars
:width: 720
```

## Rankings to a loss

Output of `python -m benchmarks skill --from-file`; `--preset full` trains again (about 36 minutes on one core).

```{{code-block}} text
:class: report

{rankings}
```

## Advice for decisions

Output of `python -m benchmarks advice`. `python -m benchmarks.advice_runs` trains what is not stored.

```{{code-block}} text
:class: report

{decisions}
```
"""
