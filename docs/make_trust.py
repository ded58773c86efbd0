"""Store forecast and trained steps of drawn problems, for the figure of the trust page: python docs/make_trust.py.

The problems, and the plain training in numpy that they are compared with, are those of `make fuzz`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.differential.interfaces import ask  # noqa: E402
from tests.differential.kinds import KINDS, draw  # noqa: E402
from tests.differential.plain import Plain, mode_steps  # noqa: E402
from tests.differential.problems import Problem  # noqa: E402

STORED = Path(__file__).parent / "results" / "forecasts.json"


def compared(problem: Problem) -> dict[str, object] | None:
    """Forecast and trained steps of one problem; None if either is not a number of steps."""
    answer = ask(problem, "python")
    if not answer.steps or not np.isfinite(answer.steps[0]):
        return None
    plain, stop = Plain(problem), problem.stops[-1]
    with np.errstate(all="ignore"):
        trained = plain.train(plain.start, len(problem.tasks) - 1, stop, problem.limit)[0]
        if stop.rule == "accuracy" and answer.method in ("modes", "two-layer"):  # accuracy counts per mode
            trained = min(trained, mode_steps(plain, stop.value), key=lambda steps: abs(steps - answer.steps[0]))
    if not np.isfinite(trained):
        return None
    return {
        "kind": problem.kind,
        "seed": problem.seed,
        "class": answer.forecast_class,
        "forecast": answer.steps[0],
        "interval": [None if np.isnan(end) else round(end, 2) for end in answer.interval],
        "trained": trained,
    }


def main() -> None:
    """Compare problems of every kind in turn, seed by seed, until the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--minutes", type=float, default=20)
    arguments = parser.parse_args()
    end, rows, drawn = time.monotonic() + 60 * arguments.minutes, [], 0
    for seed in range(arguments.seeds):
        for name in KINDS:
            if time.monotonic() > end:
                break
            problem = draw(name, seed)
            if problem.question == "forecast" and "python" in problem.interfaces:
                drawn += 1
                row = compared(problem)
                rows += [] if row is None else [row]
    lines = ",\n".join(map(json.dumps, rows))
    STORED.write_text(f'{{"drawn": {drawn}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(rows)} of {drawn} problems have a number of steps in forecast and training")


if __name__ == "__main__":
    main()
