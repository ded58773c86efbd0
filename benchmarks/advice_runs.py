"""Trainings that judge `learncast.advise`: python -m benchmarks.advice_runs, resumed where it was ended."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import learncast as lc
from benchmarks.decision_networks import (
    BATCH,
    CELLS,
    LEAK,
    LOOK,
    LOOKS,
    MOMENTUM,
    RATES,
    Fleet,
    Lane,
    Weights,
    dealt,
    held_out,
    met,
    start,
    trained,
)
from benchmarks.decision_pools import CRITERION, JUDGED, Draw, Pool

RESULTS = Path(__file__).parent / "results" / "advice.json"
SEEDS, GIVEN = (0, 1, 2), (0.1, 1.0, 5.0)
#: Fixed learning rates with clipped gradients, as multiples of the usual one.
FACTORS, CLIP = (0.1, 1.0, 2.0, 3.3, 5.0, 6.7, 10.0), 0.3
#: Optimiser and units of each part, and steps after which a training is given up.
PARTS, MOST = (("adam", 32), ("adam", 128), ("sgd", 32)), 1500
#: Files that make up the procedure; the hash of their code is stored with the results.
PROCEDURE = ("advice/pilots.py", "advice/help.py", "training/rules.py")


def procedure_hash(folder: Path = Path(lc.__file__).parent) -> str:
    """Hash of the code of the procedure, without comments and docstrings."""
    found = hashlib.sha256()
    for name in PROCEDURE:
        tree = ast.parse((folder / name).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        found.update(ast.dump(tree).encode())
    return found.hexdigest()[:16]


def chance(pool: Pool) -> float:
    """Share of the most frequent decision."""
    labels = held_out(pool.target)[1][:, -1].numpy()
    return float(np.bincount(labels).max() / len(labels))


def fixed(pool: Pool, cell: str, rule: str, units: int) -> dict[str, list[int | None]]:
    """Steps of direct training at fixed rates, clipped and not."""
    usual = RATES[rule, pool.loss]
    names = [(f"{f:g} clipped", f, CLIP) for f in FACTORS] + [(f"{f:g}", f, np.inf) for f in GIVEN]
    lanes = [(name, Lane(seed, usual * f, clip, [pool.target])) for name, f, clip in names for seed in SEEDS]
    steps, _ = trained(Fleet(cell, rule, pool, units, [lane for _, lane in lanes]), MOST)
    found: dict[str, list[int | None]] = {}
    for (name, _), taken in zip(lanes, steps, strict=True):
        found.setdefault(name, []).append(taken)
    return found


def curves(pool: Pool, cell: str, rule: str, units: int) -> dict[str, Any]:
    """Steps of direct training at the usual rate, clipped, and held-out accuracy every ten steps."""
    lanes = [Lane(seed, RATES[rule, pool.loss], CLIP, [pool.target]) for seed in SEEDS]
    steps, looks = trained(Fleet(cell, rule, pool, units, lanes), MOST)
    return {"chance": chance(pool), "steps": steps, "looks": [[round(v, 3) for v in seen] for seen in looks]}


def baselines(pool: Pool, cell: str, rule: str, units: int) -> dict[str, list[int | None]]:
    """Steps of other procedures at the usual rate."""
    usual, half = RATES[rule, pool.loss], chance(pool) + 0.5 * (CRITERION - chance(pool))
    easiest, all_of_them = pool.candidates[largest_covariance(pool)], list(pool.candidates.values())
    mixed = [draw for one in all_of_them for draw in (pool.target, one)]
    plans = {
        "restart": ([pool.target], [[pool.target]]),
        "mixing": (mixed, [[pool.target]]),
        "largest covariance first": ([easiest], [[pool.target]]),
    }
    lanes = [Lane(seed, usual, np.inf, first, rest) for first, rest in plans.values() for seed in SEEDS]
    steps, _ = trained(Fleet(cell, rule, pool, units, lanes), MOST, lambda looks: met(looks, half))
    return {name: steps[k * len(SEEDS) : (k + 1) * len(SEEDS)] for k, name in enumerate(plans)}


def largest_covariance(pool: Pool) -> str:
    """The candidate whose choice has the largest covariance with its inputs."""
    sizes = {}
    for name, draw in pool.candidates.items():
        x, y = draw(np.random.default_rng(5), 2000)
        wanted, flat = np.eye(pool.labels)[y[:, -1]], x.reshape(len(x), -1)
        sizes[name] = np.linalg.norm((flat - flat.mean(0)).T @ (wanted - wanted.mean(0)) / len(x))
    return max(sizes, key=sizes.__getitem__)


class Network(nn.Module):
    """One of the fleet's networks as a module that a user would write."""

    def __init__(self, cell: str, pool: Pool, units: int, weights: Weights) -> None:
        super().__init__()
        layers = {"tanh": nn.RNN, "gru": nn.GRU, "rate": partial(lc.training.RateRNN, alpha=LEAK)}
        batch_first = {} if cell == "rate" else {"batch_first": True}
        self.layer, self.read = layers[cell](pool.inputs, units, **batch_first), nn.Linear(units, pool.labels)
        known = [weights[name] for name in ("drive", "recur", "drive_bias", "recur_bias")]
        if cell == "rate":
            known = [known[0], known[2] + known[3], known[1]]
        with torch.no_grad():
            for own, value in zip(self.layer.parameters(), known, strict=True):
                own.copy_(value)
            self.read.weight.copy_(weights["read"])
            self.read.bias.copy_(weights["read_bias"])

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.layer(x)[0])


def source_of(pool: Pool, draw: Draw, name: str) -> lc.training.Source:
    """A task's trials as the library reads them."""

    def written(y: Tensor) -> Tensor:
        return y if pool.loss == "cross_entropy" else nn.functional.one_hot(y, pool.labels).float()

    def drawn(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        x, y = dealt([draw], rng, n)
        return x, written(y)

    x, y = held_out(draw)
    return lc.training.trials(drawn, held_out=(x, written(y)), name=name)


def advised(pool: Pool, cell: str, rule: str, units: int) -> list[dict[str, Any]]:
    """What the library advises and how long it takes, from every given rate and seed."""
    # The fleet's squared error is summed over labels, the library's is their mean.
    usual = RATES[rule, pool.loss] * (pool.labels if rule == "sgd" and pool.loss == "squared" else 1)
    goal = lc.training.DecisionAccuracy(CRITERION, ignore=0, looks=LOOKS, every=LOOK)
    loss = "cross_entropy" if pool.loss == "cross_entropy" else "mse"
    rows = []
    for given in GIVEN:
        for seed in SEEDS:
            training = lc.Training(
                given * usual,
                optimizer="adam" if rule == "adam" else "momentum",
                momentum=MOMENTUM,
                loss=loss,
                batch=BATCH,
                seed=400 + seed,
            )
            network = Network(cell, pool, units, start(cell, pool, seed, units))
            tasks = [source_of(pool, draw, name) for name, draw in pool.candidates.items()]
            advice = lc.advise(network, source_of(pool, pool.target, pool.name), tasks, training, goal=goal)
            run = advice.train(most_steps=MOST, record=())
            total = advice.pilot_steps + run.steps
            arrived = run.status.name == "ok" and total <= MOST
            rows.append(
                {
                    "given": given,
                    "seed": seed,
                    "steps": total if arrived else None,
                    "pilots": advice.pilot_steps,
                    "factor": round(advice.learning_rate / usual, 4),
                    "stages": list(run.stage_steps),
                }
            )
    return rows


def stored() -> dict[str, Any]:
    """All that was measured."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def main() -> None:
    """Train what is not stored yet; an optimiser and a number of units may be named to do a part."""
    torch.set_num_threads(1)
    wanted = [part for part in PARTS if not sys.argv[1:] or [part[0], str(part[1])] == sys.argv[1:]]
    measures = {"fixed": fixed, "baselines": baselines, "advised": advised, "curves": curves}
    for rule, units in wanted:
        for pool in JUDGED:
            for cell in CELLS:
                for name, measure in measures.items():
                    key = f"{pool.name}/{cell}/{rule}/{units}"
                    everything = stored()
                    if key in everything.get(name, {}) or (name in ("baselines", "curves") and units != 32):
                        continue
                    begun = time.process_time()
                    everything.setdefault(name, {})[key] = measure(pool, cell, rule, units)
                    everything.setdefault("procedure", procedure_hash())
                    draft = RESULTS.with_suffix(".part")
                    draft.write_text(json.dumps(everything))
                    draft.replace(RESULTS)
                    print(name, key, f"{time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
