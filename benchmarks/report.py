"""The page of performance: ratios kept by version, and docs/performance.md made of them."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
from dataclasses import dataclass
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

{headline}

```{{drawn}} speed_chart
:width: 540
```

`python -m benchmarks --report` writes this page; with the name of a section it measures that section only. Times are
CPU seconds of one thread, the fastest of several runs, and ratios are of alternating runs. {measured}

## All measurements

Open a section for its reference, its theoretical limit and its numbers. A goal that is not met has a bold **no**. The
last column is the same row of the previous measurement, kept in `benchmarks/results/history.json`, with changes above
10%.

:::{{dropdown}} The questions of the chart ({met} of {goals} goals met)

{summary}

{missed}
:::
"""


@dataclass(frozen=True)
class Question:
    """A question of the chart: where its numbers stand, and why its goal is missed where it is."""

    question: str
    section: str
    judged: str  #: beginning of the label of the row that has the goal
    timed: str = ""  #: beginning of the label of the row that has the time, where it is another one
    reason: str = ""


@dataclass(frozen=True)
class Answer:
    """Measured time and ratio of a question, and its goal."""

    question: Question
    value: str
    goal: str
    time: str

    @property
    def met(self) -> bool:
        """Whether the goal is met."""
        return verdict(self.value, self.goal) == "yes"

    @property
    def bar(self) -> tuple[str, float, float]:
        """What the chart draws: "ratio" or "time", how much of it, and the goal."""
        value, goal = number(self.value), number(re.split(">=|<=", self.goal)[1])
        if TIME.fullmatch(self.value):
            return "time", value, goal
        if "<=" in self.goal and self.value.endswith("x"):  # a multiple of a limit: the goal is a time too
            return "time", number(self.time), number(self.time) * goal / value
        return "ratio", *((value, goal) if ">=" in self.goal else (1 / value, 1 / goal))


SUMMARY = (
    Question("Forecast recorded trials", "recordings", "forecast, in shares", "forecast"),
    Question("Plan recorded trials, with interval", "recordings", "plan with two", "plan"),
    Question(
        "Train to 99% from statistics, fixed recurrence",
        "descent",
        "training to 99%, fixed",
        "training to 99%, fixed",
    ),
    Question("Train to 99% from statistics, all weights", "descent", "training to 99%, all", "training to 99%, all"),
    Question("Train a linear network in torch", "training", "linear, everything learned"),
    Question("Two-layer solution at 100 times, 5 × 5", "two_layer", "Q Q^T at 100 times, d = 5,"),
    Question(
        "Two-layer solution at 100 times, 200 × 200",
        "two_layer",
        "Q Q^T at 100 times, d = 200",
        reason="Each time costs products of matrices, while the ODE solver interpolates between a few dozen steps.",
    ),
    Question(
        "Two-layer solution at 1,000 times, 50 × 50",
        "two_layer",
        "Q Q^T at 1000 times, d = 50",
        reason="Each time is computed by itself, while the ODE solver interpolates between a few dozen steps.",
    ),
    Question(
        "Learnability window of a GRU",
        "learnability",
        "GRU: published pipeline",
        "GRU: windows.window",
        "Gates, their slopes and the scan over time remain beside the matrix products.",
    ),
    Question("Start the command line and plan a study", "start", "learncast plan STUDY --json"),
    Question(
        "Plan with 1,000 candidates",
        "curriculum",
        "plan with 1000 candidates",
        reason="Every candidate is tested for a stable learning rate, and whole steps are searched for the proof.",
    ),
    Question(
        "Phase portrait of 1,000 × 1,000 curricula",
        "curriculum",
        "1000 x 1000 phase portrait over target_strength",
        "1000 x 1000 phase portrait over target_strength",
        "The unit is the time of one logarithm per point. Each stage needs one, and seven grids of numbers are filled.",
    ),
    Question("One task of a sweep, beside its own work", "sweep", "the same tasks by 2 processes"),
    Question("Picture of the explorer after a slider moved", "explorer", "portrait of 120 x 120, slider"),
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
    found = answers()
    head = HEAD.format(
        headline=_headline(found),
        missed=_missed(found),
        measured=_measured(having),
        summary=_table(found),
        met=sum(answer.met for answer in found),
        goals=len(found),
    )
    return "\n".join([head, *(_section(name, entries) for name, entries in having.items())]), len(having)


def answers() -> list[Answer]:
    """The newest measurement of every question of the chart."""
    newest = {name: rows for entry in history() for name, rows in entry["sections"].items()}
    found = []
    for question in SUMMARY:
        judged = row(newest.get(question.section, []), question.judged)
        if judged is not None:
            _, value, goal = judged
            timed = row(newest[question.section], question.timed) if question.timed else None
            time = value if TIME.fullmatch(value) else _time(timed) if timed else ""
            found.append(Answer(question, value, goal.removeprefix("goal ").split(",")[0], time))
    return found


def _headline(found: list[Answer]) -> str:
    text = (
        "The first panel shows how many times as fast a question is answered as in the obvious way: backpropagation "
        "through time in torch on the trials, an ODE solver for two-layer solutions, the published pipeline for "
        "windows. The second panel shows the time of questions that have no such counterpart."
    )
    forecast = next((answer for answer in found if answer.question == SUMMARY[0]), None)
    if forecast is not None:
        text = (
            f"A forecast of recorded trials takes {forecast.time}: {forecast.bar[1]:,.0f} times as fast as training on "
            f"them in torch, of which 200 steps are timed. {text}"
        )
    return text


def _missed(found: list[Answer]) -> str:
    lines = [
        f"- **{answer.question.question}**: {_ratio(answer.value)}{_as_long(answer)} where the goal is "
        f"{_ratio(answer.goal)}. {answer.question.reason}"
        for answer in found
        if not answer.met
    ]
    return "\n".join(["Our goals that are missed, and why:", "", *lines]) if lines else "Every goal is met."


def _as_long(answer: Answer) -> str:
    return " as long" if answer.value.endswith("x") and "<=" in answer.goal else ""


def _table(found: list[Answer]) -> str:
    lines = ["| question | time | times as fast | goal | met |", "|---|--:|--:|---|---|"]
    for answer in found:
        ratio = "" if TIME.fullmatch(answer.value) else _ratio(answer.value) + _as_long(answer)
        cells = (text.replace(" ", "\N{NO-BREAK SPACE}") for text in (answer.time, ratio, _ratio(answer.goal)))
        lines.append(f"| {answer.question.question} | {' | '.join(cells)} | {'yes' if answer.met else '**no**'} |")
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
    pair = "/" in value and not value.startswith("1/")  # two numbers in one cell have no change in common
    if pair or not new or not old or abs(new / old - 1) < 0.1:
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
