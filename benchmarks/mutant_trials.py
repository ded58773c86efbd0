"""Trials of mutants: the fast tests that run a changed line, cheap ones first, until one fails.

Everything is loaded and all tests are collected once. Each mutant is tried in a fork of that process, in which the code
of the changed function is exchanged where it stands. What runs when modules are loaded and tests collected cannot be
exchanged so: those mutants are loaded in the place of their file, in forks of a process that has loaded nothing of the
package. Which tests run which lines is traced once, and again for tests whose file or lines may have changed.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib
import itertools
import json
import operator
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from benchmarks.mutants import PACKAGE, ROOT, Mutant, Verdicts, digest, line_of, sources

#: The fast tests that may notice: those of the numerics, in this process.
TESTS = (
    "contract", "reference", "properties/test_balanced_flow.py", "properties/test_curriculum.py",
    "properties/test_descent.py", "unit/networks", "unit/planning", "unit/study/test_study.py",
    "unit/test_trajectory.py", "unit/theory",
)  # fmt: skip
#: Tests among them that belong to other packages.
OTHERS = (
    "contract/test_compiled_sums.py", "contract/test_recurrent_layers.py", "contract/test_stepped_cells.py",
    "reference/test_detection.py", "reference/test_ensembles.py", "reference/test_interval_coverage.py",
    "reference/test_real_recordings.py", "reference/test_surrogate.py",
    "reference/test_tail_index.py", "reference/test_training.py", "reference/test_transport.py",
    "reference/test_window.py",
)  # fmt: skip
#: Loaded once, before all forks.
HEAVY = ("numpy", "scipy.integrate", "scipy.optimize", "scipy.linalg", "xarray", "pandas", "hypothesis", "torch",
         "matplotlib.pyplot", "h5netcdf", "mpmath", "typer.testing", "sklearn.datasets")  # fmt: skip
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no", "-W", "default")
#: Calls of one function in one test after which it has shown its lines.
CALLS = 200
#: Says a fork that noticed nothing, before the tests it ran.
NOBODY = "nobody\n"


def forked(work: Callable[[], str], seconds: int) -> str:
    """What some work in a fork of this process returns, or that it did not end within so many seconds of computing."""
    answer, told = os.pipe()
    if not (child := os.fork()):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            with os.fdopen(told, "w") as file:
                file.write(work())
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(answer) as said:
        found = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"no end within {seconds} s" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "it crashes"
    return found


class Lines:
    """Lines of the sources that are run inside of functions, while it is entered."""

    def __init__(self) -> None:
        self.names = {str(path): path.relative_to(PACKAGE).as_posix() for path in sources()}
        self.seen: set[tuple[CodeType, int]] = set()
        self.calls = Counter[CodeType]()

    def _line(self, frame: FrameType, event: str, _: object) -> Any:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self._line

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self.names:
            return None
        self.calls[frame.f_code] += 1
        return self._line(frame, event, _) if self.calls[frame.f_code] <= CALLS else None

    def __enter__(self) -> None:
        self.seen.clear()
        self.calls.clear()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def found(self) -> dict[str, list[str]]:
        """Marks of these lines, by file."""
        lines = defaultdict(set)
        for code, line in self.seen:
            if code.co_flags & 1:  # of a function: the bodies of modules and classes have no such flag
                lines[self.names[code.co_filename]].add(marks(self.names[code.co_filename])[line - 1])
        return {name: sorted(of_file) for name, of_file in lines.items()}


@cache
def marks(file: str) -> list[str]:
    """What each line of a source says, in short: the same wherever it moves to."""
    lines = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
    return [hashlib.sha256(line.strip().encode()).hexdigest()[:8] for line in lines]


def marks_of(mutant: Mutant) -> set[str]:
    """Those of the lines of a mutant."""
    return set(marks(mutant.file)[mutant.lines.start - 1 : mutant.lines.stop - 1])


class Map:
    """Which tests run which lines, and for how long, in a file to which every traced test adds a line."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, dict[str, dict[str, Any]]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            self.rows[row["test"]] = row

    def add(self, test: str, seconds: float, lines: dict[str, list[str]]) -> None:
        self.rows[test] = row = {"test": test, "seconds": seconds, "said": said(test), "lines": lines}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def holds(self, test: str) -> bool:
        """Whether the test's file is the same, and all lines that it ran are still there."""
        row = self.rows.get(test)
        if row is None or row["said"] != said(test):
            return False
        return all((PACKAGE / name).exists() and set(ran) <= set(marks(name)) for name, ran in row["lines"].items())

    def noticing(self, mutant: Mutant) -> list[str]:
        """The tests that run the changed line, cheap ones first; other cases of one test come last.

        What is run when the module is loaded, or by no test known, may be noticed by every test of it.
        """
        of_file = {test: row for test, row in self.rows.items() if test and mutant.file in row["lines"]}
        here = {test for test, row in of_file.items() if not marks_of(mutant).isdisjoint(row["lines"][mutant.file])}
        costs = {test: of_file[test]["seconds"] for test in (mutant.called and here) or of_file}
        ordered, functions = [], set()
        for test in sorted(costs, key=costs.__getitem__):
            function = test.partition("[")[0]
            ordered.append((function in functions, test))
            functions.add(function)
        return [test for _, test in sorted(ordered, key=operator.itemgetter(0))]

    def collecting(self, mutant: Mutant) -> bool:
        """Whether tests are collected by the changed line: its results may be among their cases."""
        return not marks_of(mutant).isdisjoint(self.rows[""]["lines"].get(mutant.file, ()))


def said(test: str) -> str:
    """What the file of a test says, in short."""
    return digest(ROOT / test.partition("::")[0]) if test else ""


@dataclass(frozen=True)
class Trials:
    """Mutants to be tried, what is known of them, and how many seconds of tests each is worth."""

    chosen: Sequence[Mutant]
    verdicts: Verdicts
    map: Map
    seconds: float
    #: Whether mutants that live for a reason are tried as well, which takes the longest.
    thorough: bool

    def left(self, mutant: Mutant) -> list[str]:
        """The tests that may have something new to say of a mutant, whoever noticed last time first."""
        tests, row = self.map.noticing(mutant), self.verdicts.of(mutant)
        last = self.verdicts.known.get(mutant.name, {}).get("by", "")
        if row and last and row["tried"].get(last, "") == (said(last) if last in tests else ""):
            return []
        if row and not last:
            return [test for test in tests if row["tried"].get(test) != said(test)]
        return sorted(tests, key=lambda test: test != last)

    def affordable(self, tests: list[str]) -> list[str]:
        """The first of these tests, as many as there is time for."""
        spent = itertools.accumulate(self.map.rows[test]["seconds"] for test in tests)
        return [test for test, sum_so_far in zip(tests, spent, strict=True) if sum_so_far <= self.seconds]

    def attempt(self, mutant: Mutant, failing: Callable[[Mutant, list[str]], str]) -> None:
        """Try what is left to be tried, and keep what came of it."""
        tests, before = self.left(mutant), self.verdicts.of(mutant)
        if (before and not tests) or (mutant.reason and not self.thorough):
            return
        found = failing(mutant, tests) if tests else NOBODY
        by = "" if found.startswith(NOBODY) else found
        tried = [by] if by else found.removeprefix(NOBODY).split()
        known = {} if by or not before else before["tried"]
        self.verdicts.add(mutant, by, known | {test: said(test) for test in tried if test in self.map.rows})
        print(line_of(mutant, by), flush=True)


class Warm:
    """Tries mutants of functions in forks of a process that has collected all tests, as a plugin of pytest."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.lines, self.failed = trials, Lines(), ""
        self.functions: dict[str, list[FunctionType]] = defaultdict(list)
        self.items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Any:
        with self.lines:
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for path in sources():
            importlib.import_module(module_of(path))
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename in self.lines.names:
                self.functions[one.__code__.co_filename].append(one)
        self.items = {item.nodeid: item for item in items if not item.get_closest_marker("slow")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self.trace()
        for mutant in self.trials.chosen:
            if mutant.called and not self.trials.map.collecting(mutant):
                self.trials.attempt(mutant, self.failing)
        os._exit(0)

    def trace(self) -> None:
        """Bring the map up to date, by tests that must pass."""
        known, everything = self.trials.map, self.items
        known.add("", 0.0, self.lines.found)

        def work() -> str:
            begun = time.process_time()
            self.lines.__enter__()
            for test in self.run([test for test in everything if not known.holds(test)]):
                self.lines.__exit__()
                known.add(test, time.process_time() - begun, self.lines.found)
                begun = time.process_time()
                self.lines.__enter__()
            return self.failed

        if failed := forked(work, resource.RLIM_INFINITY):
            print(f"{failed} fails on the sources as they are: mutants would be killed by it", flush=True)
            os._exit(1)
        traced = Map(known.path)
        known.rows = {test: row for test, row in traced.rows.items() if not test or test in everything}

    def run(self, tests: list[str]) -> Iterator[str]:
        """Run tests one by one, until one fails."""
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item.nodeid
            if self.failed:
                return

    def failing(self, mutant: Mutant, tests: list[str]) -> str:
        """The first of these tests that fails on a mutant, or all that were run."""

        def work() -> str:
            exchange(mutant, self.functions[str(mutant.path)])
            ran = []
            for test in self.run(tests):
                ran.append(test)
                if time.process_time() > self.trials.seconds:
                    break
            return self.failed or NOBODY + "\n".join(ran)

        return forked(work, int(20 + 2 * self.trials.seconds))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def exchange(mutant: Mutant, functions: list[FunctionType]) -> None:
    """Give the functions of a file their changed code."""
    trees = ast.parse(mutant.path.read_text(encoding="utf-8")), mutant.tree
    old, new = (_codes(compile(tree, str(mutant.path), "exec", dont_inherit=True)) for tree in trees)
    changed = {before: after for before, after in zip(old, new, strict=True) if before != after}
    found = [one for one in functions if one.__code__ in changed]
    assert found, f"no function has the line {mutant.place}"
    for one in found:
        one.__code__ = changed[one.__code__]


class Changed(SourceFileLoader):
    """Loads a mutant in the place of its file."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(mutant.path))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return SourceLoader.source_to_code(self, ast.unparse(self.mutant.tree).encode(), str(self.mutant.path))


class Finder:
    """Finds the mutant when its module is imported."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant, self.name = mutant, module_of(mutant.path)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return spec_from_file_location(name, self.mutant.path, loader=Changed(name, self.mutant))


def module_of(path: Path) -> str:
    """The name under which a source is loaded."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def failing_when_loaded(mutant: Mutant, tests: list[str]) -> str:
    """The first of these tests that fails on a mutant that is loaded in its file's place, or all of them.

    File by file, those with most of the tests first: to collect them takes longer than to run them.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.partition("::")[0]].append(test)
    for file, some in sorted(files.items(), key=lambda item: -len(item[1])):

        def work(file: str = file, some: list[str] = some) -> str:
            sys.meta_path.insert(0, Finder(mutant))
            chosen = Chosen(some)
            code = pytest.main([*OPTIONS, "-x", str(ROOT / file)], plugins=[chosen])
            return chosen.failed or (f"pytest says {code}" if code else NOBODY)

        if (found := forked(work, 600)) != NOBODY:
            return found
    return NOBODY + "\n".join(tests)


def try_all(chosen: Sequence[Mutant], verdicts: Verdicts, map_path: Path, seconds: float, *, thorough: bool) -> None:
    """Try mutants, and keep what came of each."""
    for name in HEAVY:
        importlib.import_module(name)
    if not (child := os.fork()):
        files = [str(ROOT / "tests" / test) for test in TESTS]
        files += [f"--ignore={ROOT / 'tests' / test}" for test in OTHERS]
        pytest.main([*OPTIONS, *files], plugins=[Warm(Trials(chosen, verdicts, Map(map_path), seconds, thorough))])
        os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("no mutant was tried")
    loaded = Trials(chosen, verdicts, Map(map_path), seconds, thorough)
    for mutant in chosen:
        if not mutant.called or loaded.map.collecting(mutant):
            loaded.attempt(mutant, lambda one, tests: failing_when_loaded(one, loaded.affordable(tests)))
