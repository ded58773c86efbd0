"""How often 95% intervals of forecasts and plans cover what training takes on the population."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

REPEATS = {"smoke": 20, "full": 300}


def rows(preset: str | None = None) -> Iterator[tuple[str, str, str]]:
    """The table of the test of the same name, with more repeats."""
    place = Path(__file__).parents[1] / "tests" / "reference" / "test_interval_coverage.py"
    spec = importlib.util.spec_from_file_location("test_interval_coverage", place)
    assert spec is not None
    assert spec.loader is not None
    test = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = test
    spec.loader.exec_module(test)
    for name in test.CASES:
        for what, number, covered, below, above in test.tabulated(name, REPEATS[preset or "full"]).shares():
            goal = "goal >= 93%" if "stops by" in what else "goal 95 +- 2%"  # one interval holds for both stops
            tails = f"truth below {below:.1%}, above {above:.1%}, n = {number}"
            yield f"{name}: {what}", f"{covered:.1%}", f"{goal} {tails}"
