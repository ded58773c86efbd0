"""The page of performance: ratios kept by version, and docs/performance.md made of them."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from importlib import import_module
from pathlib import Path

from learncast import __version__

HERE = Path(__file__).parent
HISTORY = HERE / "results" / "history.json"
PAGE = HERE.parent / "docs" / "performance.md"

#: What the page tells of, in its order; together a quarter of an hour.
REPORTED = (
    "start",
    "curriculum",
    "two_layer",
    "descent",
    "training",
    "recordings",
    "learnability",
    "sweep",
    "explorer",
    "scaling",
)

UNITS = {"x": 1.0, "": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "%": 1e-2, "MB": 1e6, "GB": 1e9, "MiB": 2.0**20}
NUMBER = re.compile(r"([-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?))(?:/([\d.,]+))?\s*([a-zA-Z%]*)")

HEAD = """# Performance

```{drawn} speed_chart
:width: 620
```

A forecast of recorded trials takes a fraction of a second. One training of the same network in torch takes a minute or
more.

`python -m benchmarks --report` writes this page; with the name of a section it measures that section only. Times are
CPU seconds of one thread, the fastest of several runs, and ratios are of alternating runs. Open a
section for its reference, its theoretical limit and its numbers. A goal that is not met has a bold **no**. The last
column is the same row of the previous version, kept in `benchmarks/results/history.json`, with changes above 10%.
"""


def keep(name: str, rows: list[tuple[str, str, str]]) -> None:
    """Enter the rows of one benchmark under this version."""
    entries = history()
    version = _version()
    if not entries or entries[-1]["version"] != version:
        entries.append({"version": version, "machine": _machine(), "sections": {}})
    entries[-1]["machine"] = _machine()
    entries[-1]["sections"][name] = [list(row) for row in rows]
    HISTORY.parent.mkdir(exist_ok=True)
    HISTORY.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def history() -> list[dict]:
    """What was measured of every version, oldest first."""
    return json.loads(HISTORY.read_text(encoding="utf-8")) if HISTORY.exists() else []


def write() -> None:
    """Make the page of the newest rows of every section."""
    entries = history()
    parts = [HEAD]
    for name in REPORTED:
        having = [entry for entry in entries if name in entry["sections"]]
        if having:
            parts.append(_section(name, having))
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(f"\n{PAGE.relative_to(HERE.parent)} tells of {len(parts) - 1} sections")


def _section(name: str, having: list[dict]) -> str:
    title, _, about = import_module(f"benchmarks.bench_{name}").__doc__.strip().partition("\n")
    now, before = having[-1], having[-2] if len(having) > 1 else None
    was = {} if before is None else dict(zip(_keys(before["sections"][name]), before["sections"][name], strict=True))
    since = "" if before is None else f"; before: {before['version']}"
    if before is not None and before["machine"] != now["machine"]:
        since += f" on another machine ({before['machine']})"
    lines = [
        f"## {title.removesuffix('.')}",
        "",
        *_opened(now["sections"][name]),
        about.strip(),
        "",
        f"`python -m benchmarks {name}`, {now['version']}{since}. Measured on {now['machine']}.",
        "",
        "| | measured | goal | | before |",
        "|---|--:|---|---|--:|",
    ]
    for key, (label, value, goal) in zip(_keys(now["sections"][name]), now["sections"][name], strict=True):
        told = "" if key not in was else _against(value, was[key][1])
        cells = (_cell(label), _cell(value), _cell(goal.removeprefix("goal ")), verdict(value, goal), told)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [":::"]
    if name == "scaling":
        lines += ["", "![Seconds against size, log-log](images/scaling.svg)"]
    return "\n".join(lines) + "\n"


def _opened(rows: list) -> list[str]:
    """Begin a folded table whose title counts the goals that are met."""
    verdicts = [verdict(value, goal) for _, value, goal in rows]
    met, goals = verdicts.count("yes"), sum(map(bool, verdicts))
    return [f":::{{dropdown}} {len(rows)} measurements" + (f", {met} of {goals} goals met" if goals else ""), ""]


def _cell(text: str) -> str:
    indent = "&emsp;" if text.startswith("  ") else ""
    return indent + text.strip().replace("|", r"\|").replace("<", "&lt;")


def _keys(rows: list) -> list[str]:
    """What a row is known by from version to version: its label under the last one that is not indented."""
    found, over = [], ""
    for label, *_ in rows:
        plain = re.sub(r"\s*\([^()]*\)", "", label).strip()
        over = over if label.startswith("  ") else plain
        key = plain if plain == over else f"{over} / {plain}"
        found.append(key + "'" * sum(known.rstrip("'") == key for known in found))
    return found


def number(text: str) -> float | None:
    """The first number of a value, in its base unit; None where it has none."""
    found = NUMBER.search(text)
    if found is None or (found[3] not in UNITS and found[3]):
        return None
    value = float(found[1].replace(",", ""))
    return (value / float(found[2].replace(",", "")) if found[2] else value) * UNITS[found[3]]


def verdict(value: str, goal: str) -> str:
    """Whether a goal is met, where both are numbers."""
    got = number(value)
    sense = re.search(r"(>=|<=|<|~)", goal)
    if got is None or sense is None:
        return ""
    wanted = number(goal[sense.end() :])
    if wanted is None:
        return ""
    most = 1.1 * wanted if sense[1] == "~" else wanted  # what should be about so much may be less
    return "yes" if (got >= wanted if sense[1] == ">=" else got <= most) else "**no**"


def _against(value: str, was: str) -> str:
    new, old = number(value), number(was)
    if not new or not old or abs(new / old - 1) < 0.1:
        return _cell(was)
    return f"{_cell(was)} ({new / old - 1:+.0%})"


def _version() -> str:
    asked = ["git", "-C", str(HERE), "rev-parse", "--short=7", "HEAD"]
    try:
        commit = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__} at {commit}"


def _machine() -> str:
    import numpy as np

    kind = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        named = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        kind = named[1] if named else kind
    return f"{kind}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"
