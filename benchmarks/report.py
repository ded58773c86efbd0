"""The page of performance: ratios kept by version, and docs/performance.md made of them."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
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
TIME = re.compile(r"[\d.]+ (?:us|ms|s)")

HEAD = """# Performance

How long each question takes, and how many times as fast that is as the obvious way: backpropagation through time in
torch on the trials, an ODE solver, or the published pipeline. Where a question names another reference, the ratio is to
that one.

{summary}

```{{drawn}} speed_chart
:width: 620
```

`python -m benchmarks --report` writes this page; with the name of a section it measures that section only. Times are
CPU seconds of one thread, the fastest of several runs, and ratios are of alternating runs. {measured}

## All measurements

Open a section for its reference, its theoretical limit and its numbers. A goal that is not met has a bold **no**. The
last column is the same row of the previous measurement, kept in `benchmarks/results/history.json`, with changes above
10%.
"""

#: The table at the top: question, section, beginning of the row with the goal, beginning of the row with the time if it
#: is another one, and why the goal is not met if it is not.
SUMMARY = (
    ("Start the command line and plan a study", "start", "learncast plan STUDY --json", "", ""),
    ("Forecast recorded trials", "recordings", "forecast, in shares", "forecast", ""),
    ("Plan with two candidates and its interval", "recordings", "plan with two", "plan", ""),
    (
        "Plan with 1,000 candidates",
        "curriculum",
        "plan with 1000 candidates",
        "",
        "every candidate is tested for a stable learning rate, and whole steps are searched for the proof",
    ),
    (
        "Phase portrait of 1000 x 1000 curricula, against one logarithm per point",
        "curriculum",
        "1000 x 1000 phase portrait over target_strength",
        "1000 x 1000 phase portrait over target_strength",
        "two stages need a logarithm each, and seven grids of numbers are filled",
    ),
    (
        "Train to 99% from statistics, fixed recurrence",
        "descent",
        "training to 99%, fixed",
        "training to 99%, fixed",
        "",
    ),
    ("Train to 99% from statistics, all weights", "descent", "training to 99%, all", "training to 99%, all", ""),
    (
        "Statistics of a million trials of 8 steps, as a share of the pace of reading them",
        "descent",
        "statistics of 10^6 trials of 8",
        "",
        "they are one matrix product, which alone takes several times as long as reading",
    ),
    ("Train a linear network in torch", "training", "linear, everything learned", "", ""),
    ("Exact two-layer solution at 100 times, 5 x 5", "two_layer", "Q Q^T at 100 times, d = 5,", "", ""),
    (
        "Exact two-layer solution at 100 times, 200 x 200",
        "two_layer",
        "Q Q^T at 100 times, d = 200",
        "",
        "each time takes 12.7 d^3 operations; the ODE solver interpolates between a few dozen steps",
    ),
    (
        "Learnability window of a GRU",
        "learnability",
        "GRU: published pipeline",
        "GRU: windows.window",
        "gates, their slopes and the scan over time remain beside the matrix products",
    ),
    ("One task of a sweep, beside its own work", "sweep", "the same tasks by 2 processes", "", ""),
    ("Picture of the explorer after a slider has moved", "explorer", "portrait of 120 x 120, slider", "", ""),
)


def keep(name: str, rows: list[tuple[str, str, str]]) -> None:
    """Enter the rows of one benchmark under this version."""
    entries = history()
    version = _version()
    if not entries or entries[-1]["version"] != version:
        entries.append({"version": version, "machine": _machine(), "sections": {}})
    entries[-1]["machine"] = _machine()
    entries[-1]["load"] = max(entries[-1].get("load", 0.0), round(os.getloadavg()[1], 1))
    entries[-1]["sections"][name] = [list(row) for row in rows]
    HISTORY.parent.mkdir(exist_ok=True)
    HISTORY.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def history() -> list[dict]:
    """What was measured of every version, oldest first."""
    return json.loads(HISTORY.read_text(encoding="utf-8")) if HISTORY.exists() else []


def write() -> None:
    """Make the page of the newest rows of every section."""
    text, sections = page()
    PAGE.write_text(text, encoding="utf-8")
    print(f"\n{PAGE.relative_to(HERE.parent)} tells of {sections} sections")


def page() -> tuple[str, int]:
    """Text of the page, and its number of sections."""
    having = {name: [entry for entry in history() if name in entry["sections"]] for name in REPORTED}
    having = {name: entries for name, entries in having.items() if entries}
    head = HEAD.format(summary=_summary(having), measured=_measured(having))
    return "\n".join([head, *(_section(name, entries) for name, entries in having.items())]), len(having)


def _summary(having: dict[str, list[dict]]) -> str:
    lines = ["| question | time | times as fast | goal | met |", "|---|--:|--:|---|---|"]
    for question, section, judged, timed, reason in SUMMARY:
        newest = having[section][-1]["sections"][section] if section in having else []
        if row(newest, judged) is None:
            continue
        _, value, goal = row(newest, judged)
        alone = TIME.fullmatch(value)
        time = value if alone else _time(row(newest, timed)) if timed else ""
        met = verdict(value, goal)
        slower = " as long" if value.endswith("x") and "<=" in goal else ""
        texts = (question, time, "" if alone else _ratio(value) + slower, _ratio(goal.removeprefix("goal ")))
        cells = (texts[0], *(text.replace(" ", "\N{NO-BREAK SPACE}") for text in texts[1:]))
        lines.append(f"| {' | '.join(cells)} | {met}{f': {reason}' if met == '**no**' and reason else ''} |")
    return "\n".join(lines)


def row(rows: list[list[str]], beginning: str) -> list[str] | None:
    """The row with a label, or else the first whose label begins so."""
    equal = [one for one in rows if one[0].strip() == beginning]
    return next(iter(equal or [one for one in rows if one[0].strip().startswith(beginning)]), None)


def _time(of: list[str]) -> str:
    """The value of a row if it is a time, or else the time in brackets of its label."""
    return of[1] if TIME.fullmatch(of[1]) else re.findall(rf"\(({TIME.pattern})\)", of[0])[-1]


def _ratio(text: str) -> str:
    """Shares of a training as multiples: at most 1/200 of its time is at least 200 times as fast."""
    text = re.sub(r"1/([\d,]+)", r"\1x", text.replace("<= 1/", ">= 1/"))
    return re.sub(r"(?<=\d)x", "×", text).replace("<=", "≤").replace(">=", "≥")


def _measured(having: dict[str, list[dict]]) -> str:
    now = next((entries[-1] for entries in having.values() if entries[-1]["version"].startswith(__version__)), None)
    older = [name for name, entries in having.items() if not entries[-1]["version"].startswith(__version__)]
    text = "" if now is None else f"Measured for {now['version']} on {_place(now)}."
    if older:
        text += (
            f" These sections are measured by the clock or take long, and keep the numbers of the earlier version that "
            f"they name: {', '.join(older)}."
        )
    return text.strip()


def _place(entry: dict) -> str:
    """The machine, and how many programs shared it if they were more than its cores."""
    cores = int(re.search(r"(\d+) cores", entry["machine"])[1])
    busy = entry.get("load", 0.0) > cores
    return entry["machine"] + (f", shared with other programs (load {entry['load']:g})" if busy else "")


def _section(name: str, having: list[dict]) -> str:
    module = ast.parse(Path(__file__).with_name(f"bench_{name}.py").read_text(encoding="utf-8"))
    title, _, about = ast.get_docstring(module).partition("\n")
    now, before = having[-1], having[-2] if len(having) > 1 else None
    was = {} if before is None else dict(zip(_keys(before["sections"][name]), before["sections"][name], strict=True))
    since = "" if before is None else f"; before: {before['version']}"
    if before is not None and before["machine"] != now["machine"]:
        since += f" on another machine ({before['machine']})"
    lines = [
        *_opened(title.removesuffix("."), now["sections"][name]),
        about.strip(),
        "",
        f"`python -m benchmarks {name}`, {now['version']}{since}. Measured on {_place(now)}.",
        "",
        "| | measured | goal | | before |",
        "|---|--:|---|---|--:|",
    ]
    for key, (label, value, goal) in zip(_keys(now["sections"][name]), now["sections"][name], strict=True):
        told = "" if key not in was else _against(value, was[key][1])
        cells = (_cell(label), _cell(value), _cell(goal.removeprefix("goal ")), verdict(value, goal), told)
        lines.append("| " + " | ".join(cells) + " |")
    if name == "scaling":
        lines += ["", "![Seconds against size, log-log](images/scaling.svg)"]
    return "\n".join([*lines, ":::"]) + "\n"


def _opened(title: str, rows: list) -> list[str]:
    """Begin a folded section whose title counts the goals that are met."""
    verdicts = [verdict(value, goal) for _, value, goal in rows]
    met, goals = verdicts.count("yes"), sum(map(bool, verdicts))
    counted = f"{met} of {goals} goals met" if goals else f"{len(rows)} measurements"
    return [f":::{{dropdown}} {title} ({counted})", ""]


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
