"""Mutants of the core numerics, and whether fast tests notice: python -m benchmarks.mutants [--number 300] [--seed 0].

One operator, comparison, constant or word of a module is changed at a time, and the fast tests that run the changed
line are run on it until one fails, each mutant in a process forked from one that has everything else imported. Which
tests run which lines is traced once (`--trace`), and kept in a file. What survives is printed with its line, and with
the reason where `mutants.toml` has one.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import operator
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "learncast"
#: What is changed.
ROOMS = ("dynamics", "planning/grounds")
#: The fast tests that may notice: those of the numerics, in this process.
TESTS = (
    "contract", "reference", "properties/test_balanced_flow.py", "properties/test_curriculum.py",
    "properties/test_descent.py", "unit/dynamics", "unit/networks", "unit/planning", "unit/recurrence",
    "unit/responses", "unit/study/test_study.py", "unit/test_trajectory.py",
)  # fmt: skip
#: Loaded once, before all forks.
HEAVY = ("numpy", "scipy.integrate", "scipy.optimize", "scipy.linalg", "xarray", "pandas", "hypothesis", "torch",
         "matplotlib.pyplot", "h5netcdf", "mpmath", "typer.testing", "sklearn.datasets")  # fmt: skip
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no", "-W", "default")
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Div,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Lt: ast.GtE, ast.LtE: ast.Lt, ast.Gt: ast.LtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the so many-th that can be made, inside of a function or run when the file is loaded."""

    path: Path
    number: int
    lines: range
    change: str
    called: bool

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(PACKAGE).as_posix()}:{self.lines.start}"

    @property
    def reason(self) -> str:
        """Why no test can notice, where that was looked into."""
        lines = self.path.read_text(encoding="utf-8").splitlines()[self.lines.start - 1 : self.lines.stop - 1]
        known = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["survives"]
        found = (one["why"] for one in known if self.place.startswith(one["file"]) and one["line"] in "".join(lines))
        return next(found, "")

    @property
    def text(self) -> str:
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        node, _, field, new = list(changes(tree))[self.number]
        setattr(node, field, new)
        return ast.unparse(tree)


def of_node(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """What can be changed here: a name in words, a field of the node, and its new value."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        new = OPERATORS[type(node.op)]
        yield f"{type(node.op).__name__} to {new.__name__}", "op", new()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        new = OPERATORS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} to {new.__name__}", "ops", [new(), *node.ops[1:]]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "minus to plus", "op", ast.UAdd()
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        new = node.value + 1 if node.value + 1 != node.value else 2 * node.value
        yield f"{node.value} to {new}", "value", new
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"{node.value} to {not node.value}", "value", not node.value


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are computed when the module is used: no types, no words of errors."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "exc") or isinstance(
                node, ast.JoinedStr
            ):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def changes(tree: ast.Module) -> Iterator[tuple[Any, str, str, object]]:
    """Every node that can be changed, what that is in words, and a field of it with its new value."""
    return ((node, *change) for node in _running(tree) for change in of_node(node))


def mutants(path: Path) -> list[Mutant]:
    """Every change of one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.Lambda)]
    called = {node for one in functions for part in ast.iter_child_nodes(one) for node in ast.walk(part)}
    called -= {node for one in functions for node in ast.walk(one.args)}
    return [
        Mutant(path, k, range(node.lineno, node.end_lineno + 1), words, node in called)
        for k, (node, words, *_) in enumerate(changes(tree))
    ]


def sources() -> list[Path]:
    """The files that are changed."""
    return sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))


def drawn(number: int, seed: int) -> list[Mutant]:
    """So many changes, over all files alike."""
    every = [one for path in sources() for one in mutants(path)]
    return random.Random(seed).sample(every, min(number, len(every)))


class Tracer:
    """Which lines of the sources each test runs, and what it costs, as a plugin of pytest."""

    def __init__(self) -> None:
        self.names = {str(path): path.relative_to(PACKAGE).as_posix() for path in sources()}
        self.seen: set[tuple[CodeType, int]] = set()
        self.tests: dict[str, dict[str, Any]] = {}

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self._line

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        return self._line(frame, event, _) if frame.f_code.co_filename in self.names else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.seen, begun = set(), time.process_time()
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            lines = defaultdict(set)
            for code, line in self.seen:
                lines[self.names[code.co_filename]].add(line)
            seconds = time.process_time() - begun
            if lines:
                self.tests[item.nodeid] = {"seconds": seconds, "lines": {k: sorted(v) for k, v in lines.items()}}


def trace(path: Path) -> None:
    """Run all tests once, which must pass, and keep what they ran."""
    tracer = Tracer()
    if code := pytest.main([*OPTIONS, *(str(ROOT / "tests" / test) for test in TESTS)], plugins=[tracer]):
        raise SystemExit(f"a test fails on the sources as they are (pytest says {code}): mutants would be killed by it")
    path.write_text(json.dumps(tracer.tests), encoding="utf-8")


def noticing(mutant: Mutant, traced: dict[str, Any]) -> list[tuple[str, float]]:
    """The tests that run the changed line, with their seconds, cheap ones first; other cases of one test come last.

    What is run when the module is loaded may be noticed by every test of it.
    """
    name = mutant.path.relative_to(PACKAGE).as_posix()
    of_file = {test: row for test, row in traced.items() if name in row["lines"]}
    found = {test: row for test, row in of_file.items() if not set(mutant.lines).isdisjoint(row["lines"][name])}
    costs = {test: row["seconds"] for test, row in (found if mutant.called else of_file).items()}
    ordered, functions = [], set()
    for test in sorted(costs, key=costs.__getitem__):
        function = test.partition("[")[0]
        ordered.append((function in functions, test))
        functions.add(function)
    return [(test, costs[test]) for _, test in sorted(ordered, key=operator.itemgetter(0))]


class Changed(SourceFileLoader):
    """Loads the text of a mutant in the place of its file."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(mutant.path))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return SourceLoader.source_to_code(self, self.mutant.text.encode(), str(self.mutant.path))


class Finder:
    """Finds the mutant when its module is imported."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        parts = mutant.path.relative_to(PACKAGE.parent).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return spec_from_file_location(name, self.mutant.path, loader=Changed(name, self.mutant))


class Chosen:
    """Runs these tests alone, in this order, and remembers the first that failed, as a plugin of pytest."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {test: k for k, test in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.order), key=lambda one: self.order[one.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def failing(mutant: Mutant, tests: list[tuple[str, float]]) -> str:
    """The first of these tests that fails on a mutant, or nothing; one that never ends is noticed too."""
    seconds = int(20 + 5 * sum(cost for _, cost in tests))
    answer, told = os.pipe()
    if not (child := os.fork()):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        sys.meta_path.insert(0, Finder(mutant))
        chosen = Chosen([test for test, _ in tests])
        files = dict.fromkeys(str(ROOT / test.partition("::")[0]) for test, _ in tests)
        try:
            code = pytest.main([*OPTIONS, *files], plugins=[chosen])
            known = (
                pytest.ExitCode.OK,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            )  # none where the map is older than the tests
            os.write(told, (chosen.failed or ("" if code in known else f"pytest says {code}")).encode())
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(answer) as said:
        found = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"no end within {seconds} s" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "it crashes"
    return found


def killed(mutant: Mutant, traced: dict[str, Any], seconds: float) -> tuple[str, bool]:
    """The first test that notices, or nothing, and whether all were tried: a few seconds' worth, then more."""
    tests, spent, batch, most = noticing(mutant, traced), 0.0, [], min(4.0, seconds)
    for k, (test, cost) in enumerate(tests):
        if spent + cost > seconds:
            return (failing(mutant, batch) if batch else ""), False
        batch.append((test, cost))
        spent += cost
        if spent > most or k + 1 == len(tests):
            if found := failing(mutant, batch):
                return found, True
            batch, most = [], 4 * most
    return "", True


def table(rows: list[tuple[Mutant, str]]) -> Iterator[str]:
    """How many were killed, module by module."""
    names = [mutant.path.relative_to(PACKAGE).as_posix() for mutant, _ in rows]
    drawn_of, killed_of = Counter(names), Counter(name for name, (_, by) in zip(names, rows, strict=True) if by)
    yield f"{'module':<44} {'mutants':>8} {'killed':>8}"
    for name in sorted(drawn_of):
        yield f"{name:<44} {drawn_of[name]:>8} {killed_of[name]:>8}"
    number, reasons = sum(killed_of.values()), sum(not by and bool(mutant.reason) for mutant, by in rows)
    yield f"{number} of {len(rows)} mutants killed ({number / max(len(rows), 1):.1%}); {reasons} live for a reason"


def main() -> None:
    """Draw mutants, try each, and print the share that was noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="Try mutants on the fast tests.")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of those that are drawn")
    parser.add_argument("--last", type=int, help="and all from this one on")
    parser.add_argument("--only", help="mutants of places that begin so, such as dynamics/pooled.py:3")
    parser.add_argument("--seconds", type=float, default=600.0, help="of tests for one mutant")
    parser.add_argument("--map", type=Path, default=ROOT / ".mutants.json", help="which tests run which lines")
    parser.add_argument("--trace", action="store_true", help="make the map anew")
    asked = parser.parse_args()
    if asked.trace or not asked.map.exists():
        # In a process of its own: what it loads must not be loaded before a mutant is.
        if not (child := os.fork()):
            trace(asked.map)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit("no map was made")
    traced = json.loads(asked.map.read_text(encoding="utf-8"))
    for name in HEAVY:
        importlib.import_module(name)
    rows = []
    for mutant in drawn(asked.number, asked.seed)[asked.first : asked.last]:
        if asked.only and not mutant.place.startswith(asked.only):
            continue
        by, all_tried = killed(mutant, traced, asked.seconds)
        rows.append((mutant, by))
        verdict = "killed" if by else "SURVIVED" if all_tried else "SO FAR"
        print(f"{verdict:<9} {mutant.place:<44} {mutant.change:<20} {by or mutant.reason}", flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
