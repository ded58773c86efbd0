"""How good the advice is, from the stored trainings of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(*words: str) -> str:
    """What a benchmark prints of its stored results."""
    command = [sys.executable, "-m", "benchmarks", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return "\n".join(narrow(line) for line in done.stdout.strip().splitlines())


#: Columns that a benchmark leaves for labels, and that a page has for them.
PRINTED, SHOWN = 80, 56


def narrow(line: str) -> str:
    """A line of the report that fits a page: labels closer to their numbers, sentences on several lines."""
    label, numbers = line[:PRINTED].rstrip(), line[PRINTED:].rstrip()
    if not numbers or len(label) == PRINTED:  # a sentence
        indent = " " * (len(line) - len(line.lstrip()))
        return textwrap.fill(line.strip(), 96, initial_indent=indent, subsequent_indent=f"{indent}  ")
    if len(label) > SHOWN:
        return f"{label}\n{'':<{SHOWN}}{numbers}"
    return f"{label:<{SHOWN}}{numbers}"


def page() -> str:
    """The page in MyST."""
    rankings, decisions = printed("skill", "--from-file"), printed("decisions")
    return PAGE.format(rankings=rankings, decisions=decisions)


PAGE = """\
# Skill

How often `advise` is right, against networks that were really trained by every plan. Exact forecasts need no such page: they are held
to round-off by tests, and `learncast check` trains yours beside its forecast. The numbers below are printed from stored trainings when
this site is built; [the theory page](../../theory/surrogates.md) says how to read them and where they do not hold.

```{{drawn}} skill_bars
:width: 720
```

## Rankings to a loss

`python -m benchmarks skill --from-file` prints this; `--preset full` trains again (about 36 minutes on one core).

```{{code-block}} text
:class: report

{rankings}
```

## Advice for decisions

`python -m benchmarks decisions` prints this; `python -m benchmarks.skill_truth` and then `python -m benchmarks.skill_advised` train
again what is not stored.

```{{code-block}} text
:class: report

{decisions}
```
"""
