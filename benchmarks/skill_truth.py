"""What every plan of the decision pools really takes: python -m benchmarks.skill_truth, resumed where it was ended."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.skill_decisions import CRITERION, FRESH, POOLS, Pool
from benchmarks.skill_environments import ENVIRONMENTS
from benchmarks.skill_networks import CELLS, LOOK, Fleet, learned_at, stacked, start, until

RESULTS = Path(__file__).parent / "results" / "decisions.json"
SEEDS = (0, 1, 2)
OPTIMIZERS = ("adam", "sgd")
#: Most steps of direct training and of pretraining; plans slower than this multiple of direct training are given up.
MOST, MOST_BEFORE, SLOW = 2000, 1500, 1.5
#: Stops of pretraining: the share of the loss's way to where it is learned, or multiples of the steps until learned.
STOPS = ("80%", "1", "1.5", "2.5", "4")
#: Stops of the target itself before its restart: shares of the loss's way to where it is learned.
RESTARTS = ("50%", "80%", "90%")
TARGET, MIXED, JOINT = "the target", "all candidates mixed", "target and candidates mixed"


class Keeping(Fleet):
    """A fleet that keeps the weights of every look."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.places, self.seen = list(range(len(self))), [[] for _ in range(len(self))]

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        for place, k in enumerate(self.places):
            self.seen[k].append({name: value[place].clone() for name, value in self.weights.items()})
        return super().look()

    def kept(self, places: Any) -> None:
        super().kept(places)
        self.places = [self.places[k] for k in places]


def stop_look(curve: dict[str, list[float]], stop: str) -> int | None:
    """The look at which a stop is met; none when it never is."""
    learned = learned_at(curve["accuracy"], CRITERION)
    if learned is None:
        return None
    if not stop.endswith("%"):
        look = round(float(stop) * learned)
        return look if look < len(curve["loss"]) else None
    loss = np.array(curve["loss"])
    level = loss[0] - float(stop[:-1]) / 100 * (loss[0] - loss[learned])
    return int(np.argmax(loss <= level)) if (loss <= level).any() else None


def measured(pool: Pool, cell: str, rule: str) -> dict[str, Any]:
    """Pretrain on everything with checkpoints, then continue on the target from each with a fresh optimiser."""
    tasks = {TARGET: [pool.target], **{name: [draw] for name, draw in pool.candidates.items()}}
    tasks[MIXED] = list(pool.candidates.values())
    tasks[JOINT] = [pool.target, *pool.candidates.values()]
    lanes = [(name, seed) for seed in SEEDS for name in tasks]
    goal = {name: draws[0] if len(draws) == 1 or name == JOINT else _mixed(draws) for name, draws in tasks.items()}
    fleet = Keeping(
        cell,
        rule,
        pool,
        stacked([start(cell, pool, seed) for _, seed in lanes]),
        [tasks[name] for name, _ in lanes],
        [goal[name] for name, _ in lanes],
        [seed for _, seed in lanes],
    )

    def enough(k: int, accuracy: list[float]) -> bool:
        learned = learned_at(accuracy, CRITERION)
        return learned is not None and (lanes[k][0] in (TARGET, JOINT) or len(accuracy) > 4 * learned)

    begun = time.process_time()
    limit = [MOST if name in (TARGET, JOINT) else MOST_BEFORE for name, _ in lanes]
    curves = dict(zip(lanes, until(fleet, enough, limit), strict=True))
    weights = dict(zip(lanes, fleet.seen, strict=True))
    direct = [learned_at(curves[TARGET, seed]["accuracy"], CRITERION) for seed in SEEDS]
    most = min(MOST, SLOW * max(MOST if d is None else d * LOOK for d in direct))
    plans: list[tuple[str, int, str, int]] = []
    for name, seed in lanes:
        if name != JOINT:
            for stop in RESTARTS if name == TARGET else STOPS:
                look = stop_look(curves[name, seed], stop)
                if look is not None and look * LOOK < most:
                    plans.append((name, seed, stop, look))
    if not plans:  # nothing was learned at all
        return {
            "direct": [None] * len(SEEDS),
            "most": most,
            "learned": {name: [None] * len(SEEDS) for name in tasks},
            "plans": [],
            "seconds": round(time.process_time() - begun, 1),
        }
    after = Fleet(
        cell,
        rule,
        pool,
        stacked([weights[name, seed][look] for name, seed, _, look in plans]),
        [[pool.target]] * len(plans),
        [pool.target] * len(plans),
        [100 + seed for _, seed, _, _ in plans],
    )
    left = [int(most - look * LOOK) for _, _, _, look in plans]
    found = until(after, lambda k, accuracy: learned_at(accuracy, CRITERION) is not None, left)
    rows = []
    for (name, seed, stop, look), curve in zip(plans, found, strict=True):
        rest = learned_at(curve["accuracy"], CRITERION)
        rows.append([name, stop, seed, look * LOOK, None if rest is None else rest * LOOK])
    return {
        "direct": [None if d is None else d * LOOK for d in direct],
        "most": most,
        "learned": {
            name: [_steps(learned_at(curves[name, seed]["accuracy"], CRITERION)) for seed in SEEDS] for name in tasks
        },
        "plans": rows,
        "seconds": round(time.process_time() - begun, 1),
    }


def _steps(look: int | None) -> int | None:
    return None if look is None else look * LOOK


def _mixed(draws: list[Any]) -> Any:
    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [one(rng, -(-n // len(draws))) for one in draws]
        x, y = (np.stack(found, 1).reshape(-1, *found[0].shape[1:])[:n] for found in zip(*parts, strict=True))
        return x, y

    return draw


def stored() -> dict[str, Any]:
    """All that was measured."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"truth": {}}


def store(key: str, part: str, value: Any) -> None:
    """Add one measurement."""
    everything = stored()
    everything.setdefault(part, {})[key] = value
    RESULTS.parent.mkdir(exist_ok=True)
    draft = RESULTS.with_suffix(".part")
    draft.write_text(json.dumps(everything, indent=None))
    draft.replace(RESULTS)


def jobs() -> list[tuple[Pool, str, str]]:
    """Every pool with every cell and optimiser."""
    return [(pool, cell, rule) for rule in OPTIMIZERS for cell in CELLS for pool in (*ENVIRONMENTS, *FRESH, *POOLS)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for pool, cell, rule in jobs():
        key = f"{pool.name}/{cell}/{rule}"
        if key not in stored()["truth"]:
            result = measured(pool, cell, rule)
            store(key, "truth", result)
            print(key, result["direct"], len(result["plans"]), result["seconds"], file=sys.stderr, flush=True)
