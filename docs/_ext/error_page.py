"""Errors, statuses and conditions with remedies, read from the code that raises them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import learncast
from learncast import Status
from learncast._core import errors
from learncast.results import FORECAST_CLASSES
from learncast.theory.assumptions import ASSUMPTIONS

SOURCE = Path(learncast.__file__).parent
#: What to do about each status; a test checks that all are here.
REMEDIES = {
    Status.ok: "Nothing.",
    Status.not_learned: "Use other initial weights (a larger `initial`, other signs), let more weights learn, or require less accuracy. "
    "`solution.remarks` says where learning ends.",
    Status.not_within: "Allow more steps (`most_steps`), use a larger learning rate, or require less accuracy; the result has the loss "
    "that was reached.",
    Status.diverged: "Use a smaller learning rate; the condition `stable_learning_rate` says how much smaller.",
    Status.outside_theory: "See which condition fails. Use `method='auto'`, or treat the number as an approximation.",
    Status.too_few_samples: "Use more sequences or trials, or a smaller lag.",
}


class Raised(NamedTuple):
    """One place where an error is raised."""

    kind: str
    package: str
    message: str
    field: str


def raised() -> Iterator[Raised]:
    """Yield every error with its message, as the source writes it, and the argument it is about."""
    kinds = {
        name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, errors.LearncastError)
    }
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in kinds and node.args and (message := _text(node.args[0])):
                field = next((_text(one.value) for one in node.keywords if one.arg == "field"), "")
                yield Raised(name, package, message, field)


def _text(node: ast.expr) -> str:
    """Return a string of the source, with the names of inserted values in brackets."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    if isinstance(node, ast.FormattedValue):
        names = [one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)]
        return f"‹{names[-1] if names else '…'}›"
    return ""


def page() -> str:
    """The page in MyST."""
    return "\n\n".join([OPENING, _kinds(), _statuses(), _classes(), _conditions(), _messages()]) + "\n"


OPENING = """\
# Errors and statuses

A request that cannot be answered raises an error. Its message says what is required and what was given, and its `field` names
the argument or study key. An unusual number is not an error: *never* is `inf` and *unknown* is `nan`, each with a status."""


def _kinds() -> str:
    rows = []
    for name, one in vars(errors).items():
        if inspect.isclass(one) and issubclass(one, errors.LearncastError):
            bases = ", ".join(f"`{base.__name__}`" for base in one.__bases__)
            rows.append((f"`{name}`", (one.__doc__ or "").split("\n")[0], bases))
    text = "```python\ntry:\n    plan = lc.plan(target, candidates, network, learning_rate=rate)\nexcept lc.LearncastError as error:\n    print(error.field, error)\n```"
    return f"## Kinds of errors\n\n{_table(('error', 'raised for', 'base class'), rows)}\n\n{text}"


def _statuses() -> str:
    rows = [(f"`{one.name}`", one.value, REMEDIES[one]) for one in Status]
    return f"## Statuses\n\n{_table(('status', 'means', 'what to do'), rows)}"


def _classes() -> str:
    rows = [(f"`{name}`", text) for name, text in FORECAST_CLASSES.items()]
    return f"## Forecast classes\n\nEvery result has a class.\n\n{_table(('class', 'what it promises'), rows)}"


def _conditions() -> str:
    rows = [(f"`{name}`", one.requires, one.otherwise, one.remedy) for name, one in ASSUMPTIONS.items()]
    heads = ("condition", "requires", "otherwise", "what to do")
    return f"## Conditions of the theory\n\nEach condition is measured as one number.\n\n{_table(heads, rows)}"


def _messages() -> str:
    packages: dict[str, list[Raised]] = {}
    for one in dict.fromkeys(raised()):
        packages.setdefault(one.package, []).append(one)
    parts = ["## Every error", "The messages of each package; inserted values are in ‹brackets›."]
    for package, listed in packages.items():
        rows = [(f"`{one.kind}`", one.message, f"`{one.field}`" if one.field else "") for one in listed]
        table = _table(("error", "message", "field"), rows)
        parts.append(f":::{{dropdown}} {package} ({len(listed)})\n{table}\n:::")
    return "\n\n".join(parts)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [heads, tuple("---" for _ in heads), *rows]
    return "{.stacked}\n" + "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells)


def _cell(text: str) -> str:
    marks = str.maketrans({"|": "\\|", "$": "\\$", "\n": " ", "<": "&lt;", "*": "\\*"})
    return text.translate(marks)
