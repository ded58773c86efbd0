"""Mutants of the core numerics, and whether fast tests notice: python -m benchmarks.mutants [--number 300] [--seed 0].

One operator, comparison, constant or word of a module is changed at a time, and the fast tests that run the changed
line are run on it until one fails (`benchmarks.mutant_trials`). Verdicts are kept in a folder: a run that was
interrupted goes on, and after a change only what it touches is tried again; `--trace` begins anew. What lives is
printed with its line, and with the reason where `mutants.toml` has one.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "learncast"
#: Packages that are changed.
PACKAGES = ("theory/dynamics", "planning/methods")
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Div,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Lt: ast.GtE, ast.LtE: ast.Lt, ast.Gt: ast.LtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


@cache
def digest(path: Path) -> str:
    """What a file says, in short."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@cache
def meanings(path: Path) -> dict[int, str]:
    """What each class, function or other statement of a file does, in short, by its lines: words may change."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), {}
    for part in tree.body:
        lines = range(part.lineno, part.end_lineno + 1)
        for node in ast.walk(part):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        found |= dict.fromkeys(lines, hashlib.sha256(ast.unparse(part).encode()).hexdigest()[:16])
    return found


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the so many-th that can be made, inside of a function or run when the file is loaded."""

    path: Path
    number: int
    lines: range
    change: str
    called: bool
    #: File, line as written, change, and which of several such: the same wherever the line moves to.
    name: str

    @property
    def file(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def place(self) -> str:
        return f"{self.file}:{self.lines.start}"

    @property
    def meaning(self) -> str:
        """What the class or function does that is changed."""
        return meanings(self.path)[self.lines.start]

    @property
    def reason(self) -> str:
        """Why no test can notice, where that was looked into."""
        text = "".join(self.path.read_text(encoding="utf-8").splitlines()[self.lines.start - 1 : self.lines.stop - 1])
        here = (one for one in _reasons() if one["file"] == self.file and one["line"] in text)
        # One of several such changes of a line is named by its number.
        names = {self.change, f"{self.change} #{self.name.rpartition(' | ')[2]}"}
        return next((str(one["why"]) for one in here if not names.isdisjoint(one["changes"])), "")

    @property
    def tree(self) -> ast.Module:
        """The changed file."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        node, _, field, new = list(changes(tree))[self.number]
        setattr(node, field, new)
        return tree


@cache
def _reasons() -> list[dict[str, Any]]:
    return list(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["survives"])


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
    """Nodes that are computed when the module is used: no types, no words of errors.

    Nor what cannot matter: whether a zip would complain, and which negative size numpy shall find by itself.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape":
            yield from (one for one in node.args if isinstance(one, ast.UnaryOp))
            waiting += [node.func, *(one for one in node.args if not isinstance(one, ast.UnaryOp))]
            continue
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "exc"):
                continue
            waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def changes(tree: ast.Module) -> Iterator[tuple[Any, str, str, object]]:
    """Every node that can be changed, what that is in words, and a field of it with its new value."""
    return ((node, *change) for node in _running(tree) for change in of_node(node))


def mutants(path: Path) -> list[Mutant]:
    """Every change of one file."""
    text = path.read_text(encoding="utf-8")
    tree, lines, seen = ast.parse(text), text.splitlines(), Counter[str]()
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.Lambda)]
    called = {node for one in functions for part in ast.iter_child_nodes(one) for node in ast.walk(part)}
    called -= {node for one in functions for node in ast.walk(one.args)}
    found = []
    for k, (node, words, *_) in enumerate(changes(tree)):
        name = f"{path.relative_to(PACKAGE).as_posix()} | {lines[node.lineno - 1].strip()} | {words}"
        seen[name] += 1
        place = range(node.lineno, node.end_lineno + 1)
        found.append(Mutant(path, k, place, words, node in called, f"{name} | {seen[name]}"))
    return found


def sources() -> list[Path]:
    """The files that are changed."""
    return sorted(path for name in PACKAGES for path in (PACKAGE / name).rglob("*.py"))


def drawn(number: int, seed: int) -> list[Mutant]:
    """So many changes, over all files alike; a line more or less somewhere leaves the others drawn as they were."""
    every = [one for path in sources() for one in mutants(path)]
    return sorted(every, key=lambda one: random.Random(f"{seed} {one.name}").random())[:number]


class Verdicts:
    """What was found of each mutant, in a file to which every trial adds a line."""

    def __init__(self, path: Path) -> None:
        self.path, self.known = path, dict[str, dict[str, Any]]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            self.known[row["mutant"]] = row

    def of(self, mutant: Mutant) -> dict[str, Any]:
        """The verdict on a mutant of a class or function as it is, or nothing."""
        row = self.known.get(mutant.name, {})
        return row if row.get("source") == mutant.meaning else {}

    def add(self, mutant: Mutant, by: str, tried: dict[str, str]) -> None:
        """Keep who noticed, or nobody, of these tests, each with what its file said."""
        row = {"mutant": mutant.name, "source": mutant.meaning, "by": by, "tried": tried}
        self.known[mutant.name] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def line_of(mutant: Mutant, by: str) -> str:
    """One mutant and what became of it."""
    fate = "killed" if by else "reason" if mutant.reason else "LIVES"
    return f"{fate:<7} {mutant.place:<42} {mutant.change:<20} {by or mutant.reason}"


def table(chosen: list[Mutant], verdicts: Verdicts) -> Iterator[str]:
    """How many were killed, live for a reason, or just live: module by module, and together."""
    fates: dict[str, Counter[str]] = {}
    for mutant in chosen:
        row = verdicts.of(mutant)
        fate = "killed" if row.get("by") else "reason" if mutant.reason else "live" if row else "untried"
        for name in (mutant.file, "all"):
            fates.setdefault(name, Counter())[fate] += 1
    kinds = ("killed", "reason", "live", "untried")
    yield f"{'module':<44} {'mutants':>8} " + " ".join(f"{kind:>8}" for kind in kinds)
    for name in [*sorted(set(fates) - {"all"}), "all"]:
        yield f"{name:<44} {fates[name].total():>8} " + " ".join(f"{fates[name][kind]:>8}" for kind in kinds)
    whole = fates["all"]
    tried = max(whole.total() - whole["untried"], 1)
    yield (
        f"{whole['killed']} of {tried} mutants killed ({whole['killed'] / tried:.1%}), {whole['reason']} live for a "
        f"reason (with them {(whole['killed'] + whole['reason']) / tried:.1%}), {whole['live']} live"
        + (f", {whole['untried']} not tried yet" if whole["untried"] else "")
    )


def main() -> None:
    """Draw mutants, try each, and print the share that was noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description="Try mutants on the fast tests.")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of drawn mutants to skip")
    parser.add_argument("--last", type=int, help="and all from this one on")
    parser.add_argument("--only", default="", help="mutants of places that begin so, such as dynamics/pooled.py:3")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="what was found")
    parser.add_argument("--trace", action="store_true", help="forget what was found")
    parser.add_argument("--thorough", action="store_true", help="try also what lives for a reason, which takes longest")
    parser.add_argument("--told", action="store_true", help="try nothing: print what was found")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    kept = asked.folder / "verdicts.jsonl"
    if asked.trace:
        for path in asked.folder.glob("*.json*"):
            path.unlink()
    chosen = drawn(asked.number, asked.seed)[asked.first : asked.last]
    chosen = [one for one in chosen if one.place.startswith(asked.only)]
    if not asked.told:
        from benchmarks.mutant_trials import try_all

        try_all(chosen, Verdicts(kept), asked.folder / "map.jsonl", asked.seconds, thorough=asked.thorough)
    verdicts = Verdicts(kept)
    living = [one for one in chosen if one.reason or verdicts.of(one)]
    living = [one for one in living if not verdicts.of(one).get("by")]
    print("\n".join([*(line_of(one, "") for one in living), *table(chosen, verdicts)]))


if __name__ == "__main__":
    main()
