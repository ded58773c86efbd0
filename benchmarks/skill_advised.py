"""The advice for decisions, chosen by the library and carried out to the goal: python -m benchmarks.skill_advised."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.skill_decisions import CRITERION, Draw, Pool
from benchmarks.skill_kernel import kernel_time
from benchmarks.skill_networks import (
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
from learncast.advice.decisions import ARRIVED, RESTARTED, Outlook
from learncast.advice.readout import PROBED, Probe, readout_time
from learncast.advice.relevance import TRIALS, answer_share
from learncast.simulate import CrossEntropy, DecisionAccuracy, MeanSquaredError
from learncast.simulate.sources import Batch

GOAL = DecisionAccuracy(CRITERION, ignore=0)


def batch_of(pool: Pool, draw: Draw, trials: int, seed: int) -> Batch:
    """Trials as the library reads them."""
    x, y = dealt([draw], np.random.default_rng((seed, 7)), trials)
    return Batch(x, y if pool.loss == "cross_entropy" else torch.nn.functional.one_hot(y, pool.labels).float())


def forecast(pool: Pool, cell: str, rule: str, weights: Weights, seed: int) -> tuple[Outlook, float]:
    """What the library makes of target and candidates before any training, and the seconds it takes."""
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
    names = (pool.name, *pool.candidates)
    found = Outlook(GOAL, names, tuple(times), tuple(chances), math.nan, math.nan, math.nan)
    first, judged = (batch_of(pool, pool.target, TRIALS, seed + k) for k in (10, 20))
    learned = batch_of(pool, pool.candidates[found.order[0]], TRIALS, seed + 30)
    told = answer_share(learned, judged, GOAL, power=2)
    own, linear = (answer_share(first, judged, GOAL, power=power) for power in (2, 1))
    return replace(found, told=told, own=own, linear=linear), time.process_time() - begun


def carried_out(pool: Pool, cell: str, rule: str, most: int) -> dict[str, Any]:
    """Steps to the goal on every seed, and the steps at which the first stage ended."""
    says = [forecast(pool, cell, rule, start(cell, pool, seed), seed) for seed in SEEDS]
    # Where nothing is easier than the target it is trained from the start, and restarted on its way.
    firsts = [pool.candidates[one.order[0]] if one.easier else pool.target for one, _ in says]
    levels = [one.on_the_way(ARRIVED if one.easier else RESTARTED).level for one, _ in says]
    fleet = Fleet(
        cell,
        rule,
        pool,
        stacked([start(cell, pool, seed) for seed in SEEDS]),
        [[draw] for draw in firsts],
        [pool.target] * len(SEEDS),
        [400 + seed for seed in SEEDS],
    )
    trials = [[held_out(draw) for draw in (pool.target, first)] for first in firsts]
    looks: list[list[list[float]]] = [[] for _ in SEEDS]
    switched: list[int | None] = [None] * len(SEEDS)
    done: list[int | None] = [None] * len(SEEDS)
    alive = list(range(len(SEEDS)))
    for look in range(most // LOOK + 1):
        keep = []
        for place, k in enumerate(alive):
            weights = {name: value[place : place + 1] for name, value in fleet.weights.items()}
            with torch.no_grad():
                looks[k].append([float(right(answers(cell, weights, x[None]), y[None])) for x, y in trials[k]])
            target, own = np.mean(looks[k][-LOOKS:], 0) if len(looks[k]) >= LOOKS else (0.0, 0.0)
            if target >= CRITERION:
                done[k] = look * LOOK
                continue
            if switched[k] is None and (own >= CRITERION or target >= levels[k]):
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
    kept = ("times", "chances", "own", "told", "linear")
    said = [
        {name: np.round(getattr(one, name), 4).tolist() for name in kept} | {"seconds": round(seconds, 2)}
        for one, seconds in says
    ]
    return {"steps": done, "switched": switched, "says": said}


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
