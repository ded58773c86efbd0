"""Print every ratio: python -m benchmarks [name ...]."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

names = sys.argv[1:] or sorted(p.stem for p in Path(__file__).parent.glob("bench_*.py"))
for name in names:
    module = import_module(f"benchmarks.{name if name.startswith('bench_') else 'bench_' + name}")
    print(f"\n{module.__doc__.strip().splitlines()[0]}")
    for label, value, goal in module.rows():
        print(f"  {label:<78} {value:>12}   {goal}")
