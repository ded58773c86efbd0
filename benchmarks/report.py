"""The page of performance: ratios kept by version, and docs/performance.md made of them."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import date
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
#: Speed-up below which the page says so.
SLOW = 5.0
#: The obvious way of each section, and the rows that are compared with it.
OBVIOUS = {
    "descent": "backpropagation through time in torch on the trials",
    "two_layer": "an ODE solver for two-layer solutions",
    "learnability": "the published pipeline for windows",
}
COMPARED = re.compile(r"(?:ODE solver|BPTT|obvious loop|published pipeline)\b.* over ")

HEAD = """# Performance

{headline}

{measured}

```{{drawn}} speed_chart
:width: 540
```

The obvious way is {obvious}.

## How long will my problem take?

{sizes}

Every command shows its progress, and most take `--seconds`, which ends them with the best answer so far.

## Where it is slower, or not much faster

{slower}

## All measurements

`python -m benchmarks --report` measures everything and writes this page; with the name of a section it measures that
section only. Ratios are of alternating runs{shared}.
A time in brackets is that of the computation that a row names first.
Earlier measurements are kept in `benchmarks/results/history.json`.

:::{{dropdown}} Goals of the developers

{goals}

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
    def unit(self) -> bool:
        """Whether the value is a multiple of a unit of time, so that the goal is a time too."""
        return "<=" in self.goal and self.value.endswith("x")

    @property
    def limit(self) -> str:
        """The goal, in the unit of the chart."""
        return f"≤ {self.bar[2] * 1e3:.1f} ms" if self.unit else _symbols(_ratio(self.goal))

    @property
    def bar(self) -> tuple[str, float, float]:
        """What the chart draws: "ratio" or "time", how much of it, and the goal."""
        value, goal = number(self.value), number(re.split(">=|<=", self.goal)[1])
        if TIME.fullmatch(self.value):
            return "time", value, goal
        if self.unit:
            return "time", number(self.time), number(self.time) * goal / value
        return "ratio", *((value, goal) if ">=" in self.goal else (1 / value, 1 / goal))


SUMMARY = (
    Question("Forecast recorded trials", "recordings", "forecast over", "forecast"),
    Question("Plan recorded trials, with interval", "recordings", "plan with two", "plan"),
    Question(
        "Train to 99% from statistics, fixed recurrence",
        "descent",
        "training to 99%, fixed",
        "training to 99%, fixed",
    ),
    Question("Train to 99% from statistics, all weights", "descent", "training to 99%, all", "training to 99%, all"),
    Question("Train a linear network in torch", "training", "linear, everything learned"),
    Question("Two-layer solution at 100 times, 5 × 5", "two_layer", "100 times, 5 x 5"),
    Question(
        "Two-layer solution at 100 times, 200 × 200",
        "two_layer",
        "100 times, 200 x 200: ODE",
        reason="Each time costs products of matrices, while the ODE solver interpolates between a few dozen steps.",
    ),
    Question(
        "Two-layer solution at 1,000 times, 50 × 50",
        "two_layer",
        "1000 times, 50 x 50",
        reason="Its 13 digits need 33 evaluations per piece of time; the ODE solver takes one step there for 9 digits.",
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
        "portrait of 1,000 x 1,000 curricula over target_strength",
        "portrait of 1,000 x 1,000 curricula over target_strength",
        "Each of two stages needs a logarithm per point, and seven grids of numbers are filled.",
    ),
    Question("One task of a sweep, beside its own work", "sweep", "400 empty tasks by 2 processes"),
    Question("Picture of the explorer after a slider moved", "explorer", "portrait of 120 x 120, slider"),
)


def keep(name: str, rows: list[tuple[str, str, str]]) -> None:
    """Enter the rows of one benchmark under this version."""
    entries = history()
    version = _version()
    if not entries or entries[-1]["version"] != version:
        entries.append({"version": version, "date": "", "machine": _machine(), "sections": {}})
    entries[-1]["machine"] = _machine()
    entries[-1]["date"] = date.today().isoformat()
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
    having = current()
    head = HEAD.format(
        headline=_headline(),
        measured=_measured(),
        obvious=" and ".join(way for name, way in OBVIOUS.items() if name in having),
        sizes=_sizes(),
        slower=_slower(),
        shared=_shared(),
        goals=_goals(answers()),
    )
    sections = [_section(name) for name in having]
    return "\n".join([head, *sections, *_not_measured()]), len(having)


def current() -> dict[str, dict]:
    """The newest measurement of every section on the newest day, all with one release."""
    entries = history()
    release, day = (_release(entries[-1]), entries[-1]["date"]) if entries else ("", "")
    newest = [entry for entry in entries if _release(entry) == release and entry["date"] == day]
    having = {name: entry for entry in newest for name in entry["sections"]}
    return {name: having[name] for name in REPORTED if name in having}


def _release(entry: dict) -> str:
    return entry["version"].partition(" at ")[0]


def answers() -> list[Answer]:
    """The measurement of every question of the chart."""
    having, found = current(), []
    for question in SUMMARY:
        rows = having[question.section]["sections"][question.section] if question.section in having else []
        judged = row(rows, question.judged)
        if judged is not None:
            _, value, goal = judged
            timed = row(rows, question.timed) if question.timed else None
            time = value if TIME.fullmatch(value) else _time(timed) if timed else ""
            found.append(Answer(question, value, goal.removeprefix("goal ").split(",")[0], time))
    return found


@dataclass(frozen=True)
class Recording:
    """Recorded trials, and the seconds that each computation takes on them."""

    trials: str
    forecast: float
    plan: float
    training: float
    timed: str  #: steps of the training that were timed
    interval: bool  #: whether the plan has an interval


def recordings() -> list[Recording]:
    """The recordings of the benchmark, with the times of a forecast, of a plan and of training.

    The time of the forecast follows from those of training and their ratio, which have more digits.
    """
    rows = current().get("recordings", {"sections": {"recordings": []}})["sections"]["recordings"]
    starts = [k for k, (label, value, _) in enumerate(rows) if not value and re.match(r"\d+ channels x", label)]
    found = []
    for start in starts:
        own = [(label.strip(), value, goal) for label, value, goal in rows[start + 1 : start + 7]]
        named = {begin: row(own, begin) for begin in ("direct training in torch", "forecast over", "plan")}
        saved = row(own, "steps that the plan saves")
        if saved and all(named.values()):
            trained, ratio, plan = (one[1] for one in named.values())
            quicker = min(map(number, trained.removesuffix(" s").split("/")))
            timed = re.search(r"([\d,]+) steps scaled", named["direct training in torch"][0])[1]
            channels, steps, trials = re.match(r"(\d+) channels x (\d+) steps x ([\d,]+)", rows[start][0]).groups()
            label = f"{trials} trials of {steps} steps, {channels} channels"
            found.append(
                Recording(label, quicker * number(ratio), number(plan), quicker, timed, "no interval" not in saved[1])
            )
    return found


def _headline() -> str:
    """What is reached, and for whom."""
    known = recordings()
    if not known:
        return "Times of the computations and of their obvious counterparts."
    one = known[0]
    return (
        f"**For recorded trials ({one.trials}) a forecast takes {one.forecast:.3g} s, and a plan"
        f"{' with its interval' * one.interval} {one.plan:.2g} s. Training on them in torch would take "
        f"{one.training:.0f} s** ({one.timed} steps timed), {one.training / one.forecast:,.0f} times as long as the "
        f"forecast."
    )


def _sizes() -> str:
    """The recordings in a table."""
    lines = ["| recorded trials | forecast | plan | training in torch |", "|---|--:|--:|--:|"]
    lines += [
        f"| {one.trials} | {one.forecast:.3g} s | {one.plan:.2g} s, {'with' if one.interval else 'no'} interval "
        f"| {one.training:,.0f} s |"
        for one in recordings()
    ]
    timed = {one.timed for one in recordings()}
    note = f"Of a training {' or '.join(sorted(timed))} steps were timed, and scaled to all that it needs."
    return "\n".join([*lines, "", note]) if timed else "Not measured yet."


def _slower() -> str:
    """Rows that the obvious way answers sooner, or not much later."""
    slow = [
        (number(value), name, label, value)
        for name, entry in current().items()
        for label, value, _ in entry["sections"][name]
        if COMPARED.match(_way(label)) and number(value) < SLOW
    ]
    lines = []
    for _, name, label, value in sorted(slow):
        reason = next((q.reason for q in SUMMARY if q.section == name and label.startswith(q.judged)), "")
        case = f"{_about(name)[0]}, {_cell(label.partition(':')[0])}"
        lines.append(f"- **{case}**: {_symbols(value)}. {reason}".rstrip())
    head = f"These are less than {SLOW:g} times as fast as the obvious way:\n\n"
    return head + "\n".join(lines) if lines else f"Nothing is less than {SLOW:g} times as fast as the obvious way."


def _way(label: str) -> str:
    """What a row that is not indented compares, after the case that it names."""
    return label if label.startswith(("  ", "BPTT")) else label.rpartition(": ")[2]


def _goals(found: list[Answer]) -> str:
    """How many goals are met, which are not and why, and all as a table."""
    verdicts = [_counted(entry["sections"][name]) for name, entry in current().items()]
    met, goals = (sum(numbers) for numbers in zip(*verdicts, strict=True))
    counts = (
        f"{sum(answer.met for answer in found)} of {len(found)} questions of the chart meet their goal; of all {goals} "
        f"goals, {met} are met. A goal that is not met has a bold **no**."
    )
    return "\n\n".join([counts, _missed(found), _table(found)])


def _missed(found: list[Answer]) -> str:
    lines = [
        f"- **{answer.question.question}**: {_achieved(answer)}, where the goal is {answer.limit}. "
        f"{answer.question.reason}"
        for answer in found
        if not answer.met
    ]
    return "\n".join([*lines]) if lines else "Every question of the chart meets its goal."


def _not_measured() -> list[str]:
    """Sections that an earlier version was measured with, and only that."""
    names = [f"`{name}`" for name in REPORTED if name not in current()]
    return [f"Not measured with this version: {', '.join(names)}.\n"] if names else []


def _achieved(answer: Answer) -> str:
    """What was measured, in the unit of the chart and of the goal."""
    return answer.time if answer.bar[0] == "time" else _symbols(_ratio(answer.value))


def _table(found: list[Answer]) -> str:
    lines = ["| question | time | times as fast | goal | met |", "|---|--:|--:|---|---|"]
    for answer in found:
        ratio = "" if answer.bar[0] == "time" else _symbols(_ratio(answer.value))
        met = "yes" if answer.met else "**no**"
        joined = " | ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in (answer.time, ratio, answer.limit, met))
        lines.append(f"| {answer.question.question} | {joined} |")
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
    return re.sub(r"1/([\d,]+)", r"\1x", text.replace("<= 1/", ">= 1/"))


def _symbols(text: str) -> str:
    """Text with the signs of print."""
    text = re.sub(r"(?<=\d)x\b|(?<=\d )x(?= \d)", "×", text)
    return re.sub(r"([≤≥]) ", "\\1\N{NO-BREAK SPACE}", text.replace("<=", "≤").replace(">=", "≥"))


def _day(iso: str) -> str:
    day = date.fromisoformat(iso)
    return f"{day.day} {day:%B %Y}"


def _measured() -> str:
    """Day, version and machine of all numbers of the page."""
    entries = list({id(entry): entry for entry in current().values()}.values())
    if not entries:
        return ""
    machines = " and ".join(dict.fromkeys(entry["machine"] for entry in entries))
    return (
        f"Everything on this page was measured on {_day(entries[-1]['date'])} with version {_release(entries[-1])}"
        f", in CPU seconds of one thread, the fastest of several runs. Machine: {machines}."
    )


def _shared() -> str:
    """That other programs used the machine during a measurement."""
    busy = [entry["load"] for entry in current().values() if _busy(entry)]
    return f", in CPU time, because other programs used the machine too (load {max(busy):g})" if busy else ""


def _busy(entry: dict) -> bool:
    """Whether more programs shared the machine than it has cores."""
    return entry.get("load", 0.0) > int(re.search(r"(\d+) cores", entry["machine"])[1])


def _about(name: str) -> tuple[str, str]:
    """Title and first paragraph of the docstring of a benchmark; its other paragraphs are for its readers."""
    module = ast.parse(Path(__file__).with_name(f"bench_{name}.py").read_text(encoding="utf-8"))
    title, about = ast.get_docstring(module).split("\n\n")[:2]
    return title.removesuffix("."), about


def _before(name: str) -> dict | None:
    """The last measurement before the one of the page that is like it: on the same machine, both without company."""
    now = current()[name]
    alike = [
        entry
        for entry in history()
        if name in entry["sections"] and entry["machine"] == now["machine"] and not _busy(entry) and "load" in entry
    ]
    earlier = [entry for entry in alike if (entry["date"], entry["version"]) < (now["date"], now["version"])]
    return earlier[-1] if earlier and not _busy(now) else None


def _section(name: str) -> str:
    title, about = _about(name)
    now, before = current()[name]["sections"][name], _before(name)
    was = {} if before is None else dict(zip(_keys(before["sections"][name]), before["sections"][name], strict=True))
    head = ["", "measured", "goal", "", *([] if before is None else [f"{_day(before['date'])}"])]
    lines = [
        *_opened(title, now),
        f"{about} `python -m benchmarks {name}`",
        "",
        f"| {' | '.join(head)} |",
        f"|---|--:|---|---|{'--:|' if was else ''}",
    ]
    for key, (label, value, goal) in zip(_keys(now), now, strict=True):
        if number(value) == 0 and not goal:  # nothing at the precision that is shown
            continue
        cells = [_cell(label), _cell(value), _cell(goal.removeprefix("goal ")), verdict(value, goal)]
        if was:
            cells.append("" if key not in was else _against(value, was[key][1]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ":::"]) + "\n"


def _opened(title: str, rows: list) -> list[str]:
    """Begin a folded section whose title counts the goals that are met."""
    met, goals = _counted(rows)
    counted = f"{met} of {goals} goals met" if goals else f"{len(rows)} measurements"
    return [f":::{{dropdown}} {title} ({counted})", ""]


def _counted(rows: list) -> tuple[int, int]:
    """Number of goals that are met, and of goals."""
    verdicts = [verdict(value, goal) for _, value, goal in rows]
    return verdicts.count("yes"), sum(map(bool, verdicts))


def _cell(text: str) -> str:
    indent = "&emsp;" if text.startswith("  ") else ""
    return indent + _symbols(text.strip()).replace("|", r"\|").replace("<", "&lt;")


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
