"""Print every ratio: python -m benchmarks [name ...] [--report] [--preset smoke|full] [--from-file]."""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

# One thread: CPU seconds are then those of an idle machine, whatever else it does.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Print every ratio.")
parser.add_argument("names", nargs="*", help="benchmarks to run; all by default")
parser.add_argument("--report", action="store_true", help="store the ratios and write docs/performance.md")
parser.add_argument("--preset", choices=("smoke", "full"), help="amount of training")
parser.add_argument("--from-file", action="store_true", help="print stored results without training")
arguments = parser.parse_args()


def printed(name: str) -> Iterator[tuple[str, str, str]]:
    """The rows of one benchmark, shown as they come."""
    module = import_module(f"benchmarks.bench_{name}")
    print(f"\n{module.__doc__.strip().splitlines()[0]}")
    options = {"preset": arguments.preset, "from_file": arguments.from_file}
    accepted = inspect.signature(module.rows).parameters
    for label, value, goal in module.rows(**{key: value for key, value in options.items() if key in accepted}):
        print(f"  {label:<78} {value:>12}   {goal}", flush=True)
        yield label, value, goal


names = [name.removeprefix("bench_") for name in arguments.names]
if arguments.report:
    from benchmarks.report import REPORTED, keep, write

    for name in () if arguments.from_file else names or REPORTED:
        keep(name, list(printed(name)))
    write()
else:
    for name in names or sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py")):
        for _ in printed(name):
            pass
