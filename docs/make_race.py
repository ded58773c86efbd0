"""Compute the picture of the front page: python docs/make_race.py.

Two trainings race to the target: direct training, and training that first sees stronger targets. The reader chooses
where the first task stops. Every stop is computed here with learncast and stored in `docs/_static/race.json`; `--train`
also trains both in torch and stores the measured steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import learncast as lc

STORED = Path(__file__).parent / "_static" / "race.json"
GOAL, RATE = 0.99, 1e-3
#: Steps between stored points of a curve.
EVERY = 4

TARGET = lc.tasks.integration(steps=50)
FIRST = lc.tasks.integration(steps=50, target_strength=1.5, name="stronger targets")
NETWORK = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
DIRECT = lc.forecast(TARGET, NETWORK, learning_rate=RATE, goal=GOAL)
PLAN = lc.plan(TARGET, [FIRST], NETWORK, learning_rate=RATE)
OPTIMUM = float(np.asarray(DIRECT.solution.optimum)[0])


def output(task: lc.Task, network: lc.LinearRNN, steps: int) -> np.ndarray:
    """Strength of the network's output after every step of training on a task, as a share of what the target asks."""
    if steps == 0:
        return output(task, network, 1)[:1]
    strengths = lc.descend(task, network, learning_rate=RATE, steps=steps).strength
    return np.asarray(strengths)[:, 0] / OPTIMUM


def sampled(values: np.ndarray) -> list[float]:
    """Every fourth value and the last, in thousandths."""
    kept = [*values[:-1:EVERY], values[-1]]
    return [round(1000 * float(value)) for value in kept]


def stop_at(percent: int) -> dict[str, object]:
    """Both stages of the training that stops the first task when this percentage of it is learned."""
    stages = [lc.Stage(FIRST, percent / 100), lc.Stage(TARGET, GOAL)]
    first, second = (int(stage.steps.value) for stage in lc.follow(stages, NETWORK, learning_rate=RATE).stages)
    network = lc.descend(FIRST, NETWORK, learning_rate=RATE, steps=max(first, 1)).network_at(first)
    return {"percent": percent, "first": first, "second": second, "curve": sampled(output(TARGET, network, second))}


def trained() -> dict[str, list[int]]:
    """Steps of three trainings in torch on fresh trials, directly and by the plan."""
    checked = lc.check(PLAN, seeds=3, processes=1).curricula
    return {name: [int(n) for n in one.measured] for name, one in zip(("direct", "plan"), checked, strict=False)}


def main() -> None:
    """Write the curves of every stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", action="store_true", help="also train in torch (a minute)")
    measured = trained() if parser.parse_args().train else json.loads(STORED.read_text(encoding="utf-8"))["trained"]
    direct = int(DIRECT.steps.value)
    stops = [stop_at(percent) for percent in range(1, 100)]
    longest = max(int(stop["first"]) for stop in stops)
    race = {
        "every": EVERY,
        "direct": direct,
        "best": round(100 * PLAN.best.stages[0].accuracy),
        "directCurve": sampled(output(TARGET, NETWORK, direct)),
        "firstCurve": [round(1000 * float(value)) for value in output(FIRST, NETWORK, longest)],
        "stops": stops,
        "trained": measured,
    }
    STORED.write_text(json.dumps(race, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{STORED.name}: {len(stops)} stops, direct {direct}, best at {race['best']}%")


if __name__ == "__main__":
    main()
