"""Collect numbers of the command line and of the papers' figures, to compare two versions of the code.

python tests/stored/collect.py "forecast rotated readouts"              # print the numbers of one case
python tests/stored/collect.py --out tests/stored/numbers               # store those of all cases
python tests/stored/collect.py --out tests/stored/numbers explain       # store those of some again
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

Value = bool | int | float | str | None

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
STUDIES = HERE / "studies"

#: Text under these keys explains an answer and may be reworded at any time.
PROSE = {"summary", "sentence", "promise", "remarks", "warnings", "study", "notes", "error", "because"}
#: Numbers stored of an array that is too large to store.
SAMPLES = 12


@dataclass(frozen=True)
class Case:
    """A command with its arguments, or a figure of a paper; both give a flat table of numbers."""

    name: str
    group: str
    arguments: tuple[str, ...]
    slow: bool = False
    torch: bool = False

    def numbers(self) -> dict[str, Value]:
        """Answer the question with the code that is installed."""
        if self.group.startswith("figures"):
            return figure_numbers(*self.arguments)
        if self.group == "sweep":
            return sweep_numbers(*self.arguments)
        return dict(flat(answer(*self.arguments)))


def command(name: str, *arguments: str, slow: bool = False, torch: bool = False) -> Case:
    return Case(name, arguments[0], (*arguments, "--json"), slow, torch)


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.toml")


def own(name: str) -> str:
    return str(STUDIES / f"{name}.toml")


def cases() -> list[Case]:
    """Every question whose numbers are stored."""
    two, rotated, recorded = (example(n) for n in ("two_integration_tasks", "rotated_readouts", "recorded_data"))
    pool, digits, learned = (example(n) for n in ("pool_of_twenty", "sequential_digits", "learned_recurrence"))
    hierarchy, tanh, start = example("revised_hierarchy"), own("tanh_units"), own("random_start")
    sequence = own("static_sequence")
    targets = {"two integration tasks": two, "rotated readouts": rotated, "recorded data": recorded}
    targets |= {"pool of twenty": pool, "sequential digits": digits, "tanh units": tanh, "random start": start}
    targets["composed parts"] = example("composed_parts")
    found = []
    for name, path in targets.items():
        found.append(command(f"forecast {name}", "forecast", path, slow=path == tanh))
        if path != tanh:  # a plan through measured responses takes minutes
            found.append(command(f"plan {name}", "plan", path, slow=path in (digits, pool, rotated)))
    found += [
        command("forecast learned recurrence", "forecast", learned, slow=True),
        command("forecast two integration tasks at times", "forecast", two, "--times", "0,10,100,300,inf"),
        command("forecast rotated readouts at times", "forecast", rotated, "--times", "0:2000:9"),
        command("forecast random start at times", "forecast", start, "--times", "0:2000:9"),
        command("forecast weaker inputs", "forecast", two, "--task", "weaker inputs"),
        command("forecast recorded", "forecast", recorded, "--task", "recorded"),
        command("plan remembering the candidate", "plan", two, "--remember", "stronger targets"),
        command("forget revised hierarchy", "forget", hierarchy),
        command("forget static sequence", "forget", sequence),
    ]
    for method in ("modes", "two-layer", "pooled", "flow"):
        found.append(command(f"forecast by {method}", "forecast", two, "--method", method))
        found.append(command(f"plan by {method}", "plan", two, "--method", method))
        if method != "modes":
            found.append(command(f"forecast rotated readouts by {method}", "forecast", rotated, "--method", method))
    grid = ("--values", "0.5:2:5", "--accuracies", "0.1:0.9:5")
    for name in ("two integration tasks", "rotated readouts", "recorded data", "pool of twenty"):
        found.append(command(f"phase {name}", "phase", targets[name], *grid))
    found.append(command("phase input strength", "phase", two, "--vary", "input_strength", *grid))
    for name, path in {"two integration tasks": two, "recorded data": recorded, "learned recurrence": learned}.items():
        found.append(command(f"check {name}", "check", path, "--seeds", "2", "--processes", "1", slow=True, torch=True))
    found += [
        command("advise decision network", "advise", example("decision_network"), slow=True, torch=True),
        command("window multi lag", "window", example("multi_lag_window"), slow=True, torch=True),
        command("window small, sound", "window", own("small_window_sound"), slow=True, torch=True),
        command("window small, paper", "window", own("small_window_paper"), slow=True, torch=True),
        Case("sweep of plans", "sweep", (own("sweep_of_plans"),), slow=True),
    ]
    return found + figures()


def figures() -> list[Case]:
    """The papers' figures whose data are made in less than half a minute each."""
    quick = {"curriculum": "1A 1B 1C 2A 2D 3A 3B 3C 3D", "prior-knowledge": "3B 4C 6B 6C 6D"}
    trained = {
        "curriculum": "2B 2C 4A 4B 4C 4D",
        "prior-knowledge": "1B 1C 1D 2A 2B 2C 2D 3C 4A 4D 4E 4F 5A 5B 5D 6A 6E 6F 6G 6H",
        "linear-rnn": "S1 S2a S2b S3a S3b NTK sensory",
    }
    return [
        Case(f"{paper} {name}", f"figures-{paper}", (paper, name), slow=slow, torch=slow)
        for slow, chosen in ((False, quick), (True, trained))
        for paper, names in chosen.items()
        for name in names.split()
    ]


def answer(*arguments: str) -> dict[str, object]:
    """The JSON that a command prints, and its exit code."""
    from typer.testing import CliRunner

    from learncast.cli import app

    result = CliRunner().invoke(app, list(arguments))
    if result.exit_code not in (0, 1) or not result.stdout.startswith("{"):
        raise RuntimeError(f"learncast {' '.join(arguments)}: exit {result.exit_code}\n{result.stderr}")
    return {"exit_code": result.exit_code, **json.loads(result.stdout)}


def figure_numbers(paper: str, name: str) -> dict[str, Value]:
    """Summaries of all arrays of one figure's dataset."""
    from learncast.papers import open_paper

    return dict(summary(open_paper(paper).figure(name).make(preset="smoke")))


def sweep_numbers(study: str) -> dict[str, Value]:
    """Summaries of the gathered results of a sweep."""
    from typer.testing import CliRunner

    from learncast import sweep
    from learncast.cli import app

    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        result = CliRunner().invoke(app, ["sweep", "run", study, "--store", store, "--in-process"])
        if result.exit_code:
            raise RuntimeError(result.stderr)
        gathered = sweep.gather([store])
        return dict(summary(gathered.load()))


def flat(answer: object, path: str = "") -> Iterator[tuple[str, Value]]:
    """Path and value of every number, status and name; sentences are left out."""
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if key not in PROSE:
                yield from flat(value, f"{path}/{key}" if path else str(key))
    elif isinstance(answer, list):
        for k, value in enumerate(answer):
            yield from flat(value, f"{path}/{k}")
    elif not isinstance(answer, str) or not is_sentence(answer):
        yield path, answer  # type: ignore[misc]


def is_sentence(text: str) -> bool:
    return len(text) > 60 or text.endswith(".") or bool(re.search(r"[.;:] ", text))


def summary(dataset: xr.Dataset) -> Iterator[tuple[str, Value]]:
    """Shape, mean, spread and evenly spaced samples of every array; all of a small one."""
    for name, array in dataset.variables.items():
        values = np.asarray(array.values).ravel()
        yield f"{name}/shape", "x".join(map(str, array.shape))
        if values.dtype.kind in "biuf":
            numbers = values.astype(float)
            finite = numbers[np.isfinite(numbers)]
            if finite.size < numbers.size:
                yield f"{name}/finite", finite.size
            if numbers.size > SAMPLES and finite.size:
                yield f"{name}/mean", float(finite.mean())
                yield f"{name}/standard deviation", float(finite.std())
        places = np.unique(np.linspace(0, values.size - 1, min(values.size, SAMPLES)).round().astype(int))
        for k in places if values.size else ():
            value = values[k].item() if hasattr(values[k], "item") else values[k]
            if isinstance(value, float) and not np.isfinite(value):
                value = str(value)
            yield f"{name}/{k}", value


def store(folder: Path, chosen: list[Case]) -> None:
    """Write the chosen cases to one file for each command and each paper; other cases there stay as they are."""
    folder.mkdir(exist_ok=True)
    for group in dict.fromkeys(case.group for case in chosen):
        path = folder / f"{group}.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        stored = {}
        for case in cases():
            if case in chosen and case.group == group:
                print(case.name, file=sys.stderr, flush=True)
                stored[case.name] = case.numbers()
            elif case.name in before:
                stored[case.name] = before[case.name]
        rows = (f"{json.dumps(name)}: {json.dumps(numbers, separators=(',', ':'))}" for name, numbers in stored.items())
        path.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="Cases, or the first words of their names; all by default.")
    parser.add_argument("--out", type=Path, help="Write the numbers to this folder instead of printing them.")
    given = parser.parse_args()
    chosen = [case for case in cases() if not given.names or case.name.startswith(tuple(given.names))]
    if given.out is not None:
        store(given.out, chosen)
        return
    for case in chosen:
        print(json.dumps({case.name: case.numbers()}, indent=1))


if __name__ == "__main__":
    main()
