"""The advice for decisions, asked of the library and carried out by it: python -m benchmarks.skill_advised."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import learncast
from benchmarks.skill_decisions import CRITERION, Draw, Pool
from benchmarks.skill_kernel import kernel_time
from benchmarks.skill_networks import BATCH, LEAK, LOOK, LOOKS, MOMENTUM, RATES, UNITS, Weights, dealt, held_out, start
from benchmarks.skill_truth import SEEDS, jobs, store, stored
from learncast.advice import decisions
from learncast.training import DecisionAccuracy, RateRNN, Source, trials

GOAL = DecisionAccuracy(CRITERION, ignore=0, looks=LOOKS, every=LOOK)


class Network(nn.Module):
    """One of the fleet's networks as a module that a user would write."""

    def __init__(self, cell: str, pool: Pool, weights: Weights) -> None:
        super().__init__()
        layers = {"tanh": nn.RNN, "gru": nn.GRU, "rate": partial(RateRNN, alpha=LEAK)}
        batch_first = {} if cell == "rate" else {"batch_first": True}
        self.layer, self.read = layers[cell](pool.inputs, UNITS, **batch_first), nn.Linear(UNITS, pool.labels)
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


def source_of(pool: Pool, draw: Draw, name: str) -> Source:
    """A task's trials as the library reads them; those of the fleet's looks are judged by."""

    def written(y: Tensor) -> Tensor:
        return y if pool.loss == "cross_entropy" else nn.functional.one_hot(y, pool.labels).float()

    def drawn(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        x, y = dealt([draw], rng, n)
        return x, written(y)

    x, y = held_out(draw)
    return trials(drawn, held_out=(x, written(y)), name=name)


def advised(pool: Pool, cell: str, rule: str, seed: int) -> tuple[learncast.advice.Advice, float]:
    """What the library advises for one network, and the seconds it takes."""
    # The fleet's squared error is summed over labels, the library's is their mean.
    rate = RATES[rule, pool.loss] * (pool.labels if rule == "sgd" and pool.loss == "squared" else 1)
    made = {"adam": partial(torch.optim.Adam, lr=rate), "sgd": partial(torch.optim.SGD, lr=rate, momentum=MOMENTUM)}
    network = Network(cell, pool, start(cell, pool, seed))
    tasks = {name: source_of(pool, draw, name) for name, draw in pool.candidates.items()}
    target, begun = source_of(pool, pool.target, pool.name), time.process_time()
    found = learncast.advise(
        network,
        target,
        list(tasks.values()),
        learncast.Training(
            rate,
            optimizer=made[rule],
            loss="cross_entropy" if pool.loss == "cross_entropy" else "mse",
            batch=BATCH,
            seed=400 + seed,
        ),
        goal=GOAL,
        log=lambda _: None,
    )
    return found, time.process_time() - begun


def carried_out(pool: Pool, cell: str, rule: str, most: int) -> dict[str, Any]:
    """Steps to the goal on every seed, those of every stage, and what was said."""
    steps, stages, says = [], [], []
    for seed in SEEDS:
        found, seconds = advised(pool, cell, rule, seed)
        run = found.train(most_steps=most, record=())
        taken = [int(n) for n in run.dataset.attrs["stage_steps"]]
        arrived = run.dataset.attrs["status"] == "ok" and sum(taken) <= most
        steps.append(sum(taken) if arrived else None)
        stages.append(taken)
        warned = [text.partition(":")[0] for text in found.warnings if text != decisions.UNSURE]
        says.append({"recommended": found.recommended, "warned": warned, "seconds": round(seconds, 2)})
    return {"steps": steps, "stages": stages, "says": says}


def kernels(pool: Pool, cell: str, rule: str, most: int) -> list[list[float]]:
    """The tangent kernel's time of each candidate on its own task, for every seed: the choice of S1."""
    starts = [start(cell, pool, seed) for seed in SEEDS]
    draws = list(pool.candidates.values())
    return [[round(kernel_time(cell, rule, pool, one, draw, CRITERION), 1) for draw in draws] for one in starts]


def largest_covariance(pool: Pool) -> str:
    """The candidate whose choice has the largest covariance with its inputs."""
    sizes = {}
    for name, draw in pool.candidates.items():
        x, y = draw(np.random.default_rng(5), 2000)
        wanted, flat = np.eye(pool.labels)[y[:, -1]], x.reshape(len(x), -1)
        sizes[name] = np.linalg.norm((flat - flat.mean(0)).T @ (wanted - wanted.mean(0)) / len(x))
    return max(sizes, key=sizes.__getitem__)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for pool in dict.fromkeys(pool for pool, _, _ in jobs()):
        if pool.name not in stored().get("covariance", {}):
            store(pool.name, "covariance", largest_covariance(pool))
    for part, measure in (("helped", carried_out), ("kernel", kernels)):
        for pool, cell, rule in jobs():
            key = f"{pool.name}/{cell}/{rule}"
            everything = stored()
            if key in everything["truth"] and key not in everything.get(part, {}):
                result = measure(pool, cell, rule, int(everything["truth"][key]["most"]))
                store(key, part, result)
                print(key, result if part == "kernel" else result["steps"], file=sys.stderr, flush=True)
