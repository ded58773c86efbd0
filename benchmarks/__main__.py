"""Print every ratio: python -m benchmarks [name ...] [--preset smoke|full] [--from-file]."""

from __future__ import annotations

import argparse
import inspect
from importlib import import_module
from pathlib import Path

parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Print every ratio.")
parser.add_argument("names", nargs="*", help="which benchmarks; all by default")
parser.add_argument("--preset", choices=("smoke", "full"), help="of benchmarks that train: how much")
parser.add_argument("--from-file", action="store_true", help="print stored results again, without training")
arguments = parser.parse_args()
names = arguments.names or sorted(p.stem for p in Path(__file__).parent.glob("bench_*.py"))
for name in names:
    module = import_module(f"benchmarks.{name if name.startswith('bench_') else 'bench_' + name}")
    print(f"\n{module.__doc__.strip().splitlines()[0]}")
    options = {"preset": arguments.preset, "from_file": arguments.from_file}
    accepted = inspect.signature(module.rows).parameters
    for label, value, goal in module.rows(**{key: value for key, value in options.items() if key in accepted}):
        print(f"  {label:<78} {value:>12}   {goal}", flush=True)
