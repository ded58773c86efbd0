"""The advice for decisions, chosen by the library and carried out to the goal: python -m benchmarks.skill_advised."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch

from benchmarks.skill_decisions import CRITERION, Draw, Pool
from benchmarks.skill_kernel import kernel_time
from benchmarks.skill_networks import (
    JUDGED,
    LOOK,
    LOOKS,
    MOMENTUM,
    RATES,
    UNITS,
    Fleet,
    Weights,
    answers,
    dealt,
    held_out,
    right,
    stacked,
    start,
)
from benchmarks.skill_truth import SEEDS, jobs, store, stored
from learncast.advice.decisions import ARRIVED, MIXED
from learncast.advice.readout import PROBED, Probe, linear_share, readout_time
from learncast.simulate import CrossEntropy, DecisionAccuracy, MeanSquaredError
from learncast.simulate.sources import Batch

GOAL = DecisionAccuracy(CRITERION, ignore=0)


def batch_of(pool: Pool, draw: Draw, trials: int, seed: int) -> Batch:
    """Trials as the library reads them."""
    x, y = dealt([draw], np.random.default_rng((seed, 7)), trials)
    return Batch(x, y if pool.loss == "cross_entropy" else torch.nn.functional.one_hot(y, pool.labels).float())


def forecast(pool: Pool, cell: str, rule: str, weights: Weights, seed: int) -> dict[str, Any]:
    """What the library reads from one pass forward for target and candidates."""
    one = {name: value[None] for name, value in weights.items()}
    bare = {**one, "read": torch.eye(UNITS)[None], "read_bias": torch.zeros(1, UNITS)}
    loss = CrossEntropy() if pool.loss == "cross_entropy" else MeanSquaredError()
    rate = RATES[rule, pool.loss] / (1.0 if rule == "adam" else 1 - MOMENTUM)
    times, chances, begun = [], [], time.process_time()
    for draw in (pool.target, *pool.candidates.values()):
        trials = batch_of(pool, draw, PROBED, seed)
        with torch.no_grad():
            seen = [answers(cell, w, trials.inputs[None])[0] for w in (bare, one)]
        times.append(readout_time(Probe(trials, *seen), GOAL, loss, learning_rate=rate, adaptive=rule == "adam"))
        chances.append(GOAL.chance(trials.targets))
    many = batch_of(pool, pool.target, 2000, seed)
    linear = linear_share(many, GOAL)
    seconds = time.process_time() - begun
    return {
        "times": [round(t, 1) for t in times],
        "chances": [round(c, 3) for c in chances],
        "linear": round(linear, 3),
        "seconds": round(seconds, 2),
    }


def carried_out(pool: Pool, cell: str, rule: str, most: int) -> dict[str, Any]:
    """Steps to the goal on every seed, and the steps at which the first stage ended."""
    draws = list(pool.candidates.values())
    says, pairs = [], []
    for seed in SEEDS:
        says.append(forecast(pool, cell, rule, start(cell, pool, seed), seed))
        open_ = [k for k in range(len(draws)) if says[-1]["chances"][1 + k] < CRITERION]
        pairs.append(sorted(open_, key=lambda k, now=says[-1]: now["times"][1 + k])[:MIXED])
    fleet = Fleet(
        cell,
        rule,
        pool,
        stacked([start(cell, pool, seed) for seed in SEEDS]),
        [[draws[k] for k in pair] for pair in pairs],
        [pool.target] * len(SEEDS),
        [200 + seed for seed in SEEDS],
    )
    trials = [[held_out(pool.target), *(held_out(draws[k], JUDGED // MIXED) for k in pair)] for pair in pairs]
    level = [one["chances"][0] + ARRIVED * (CRITERION - one["chances"][0]) for one in says]
    looks: list[list[tuple[float, float]]] = [[] for _ in SEEDS]
    switched: list[int | None] = [None] * len(SEEDS)
    done: list[int | None] = [None] * len(SEEDS)
    alive = list(range(len(SEEDS)))
    for look in range(most // LOOK + 1):
        keep = []
        for place, k in enumerate(alive):
            weights = {name: value[place : place + 1] for name, value in fleet.weights.items()}
            with torch.no_grad():
                found = [float(right(answers(cell, weights, x[None]), y[None])) for x, y in trials[k]]
            looks[k].append((found[0], float(np.mean(found[1:]))))
            target, own = np.mean(looks[k][-LOOKS:], 0) if len(looks[k]) >= LOOKS else (0.0, 0.0)
            if target >= CRITERION:
                done[k] = look * LOOK
                continue
            if switched[k] is None and (own >= CRITERION or target >= level[k]):
                switched[k] = look * LOOK
                fleet.restart(place)
                fleet.tasks[place] = [pool.target]
            keep.append(place)
        if not keep:
            break
        if len(keep) < len(alive):
            fleet.kept(keep)
            alive = [alive[place] for place in keep]
        fleet.advance()
    return {"steps": done, "switched": switched, "pairs": pairs, "says": says}


def kernels(pool: Pool, cell: str, rule: str, most: int) -> list[list[float]]:
    """The tangent kernel's time of each candidate on its own task, for every seed: the choice of S1."""
    starts = [start(cell, pool, seed) for seed in SEEDS]
    draws = list(pool.candidates.values())
    return [[round(kernel_time(cell, rule, pool, one, draw, CRITERION), 1) for draw in draws] for one in starts]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for part, measure in (("advised", carried_out), ("kernel", kernels)):
        for pool, cell, rule in jobs():
            key = f"{pool.name}/{cell}/{rule}"
            everything = stored()
            if key in everything["truth"] and key not in everything.get(part, {}):
                result = measure(pool, cell, rule, int(everything["truth"][key]["most"]))
                store(key, part, result)
                print(key, result if part == "kernel" else result["steps"], file=sys.stderr, flush=True)
