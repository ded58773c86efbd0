"""Forecasts and plans of recorded data, in shares of one direct training of the same network in torch.

The training is a loop over steps of descent and, inside it, over time, with autograd and full batches. It is timed for
200 steps and scaled to the number of steps that the forecast counts.

A test holds that number to plain descent (tests/reference/test_real_recordings.py). Times are CPU seconds of one
thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import learncast as lc

HIDDEN, TIMED = 64, 200


def nine_classes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
    """640 trials, 25 steps, 12 channels whose power falls as recordings' does; which of nine classes, centred."""
    x = rng.normal(size=(640, 25, 12)) * np.geomspace(2, 0.1, 12)
    pool = np.einsum("ptc,t->pc", x, 0.9 ** np.arange(24, -1, -1))
    told = pool / np.geomspace(2, 0.1, 12) @ rng.normal(size=(12, 9)) + 2 * rng.normal(size=(640, 9))
    choice = told.argmax(axis=1)
    y = np.eye(9)[choice]
    return x - x.mean(axis=0), y - y.mean(axis=0), True


def firing_rates(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
    """300 trials, 80 steps, 6 channels of mean 5, which is left in: the pooled input's condition number is some 1e4."""
    x = 5 + rng.normal(size=(300, 80, 6)) * np.linspace(1.5, 0.5, 6)
    pool = np.einsum("ptc,t->pc", x - 5, 0.95 ** np.arange(79, -1, -1))
    return x, pool @ rng.normal(size=(6, 2)) / 5 + rng.normal(size=(300, 2)), False


#: name: (trials, recurrence, learning rate, accuracy)
RECORDINGS = {
    "12 channels x 25 steps x 640 trials, nine classes, centred": (nine_classes, 0.9, 4e-3, 0.9),
    "6 channels x 80 steps x 300 trials, mean 5 left in": (firing_rates, 0.95, 2e-5, 0.9),
}


def training(network: lc.LinearRNN, x: np.ndarray, y: np.ndarray, rate: float, kind: torch.dtype) -> float:
    """CPU seconds of one step of descent, as one would write it first."""
    inputs, targets = (torch.tensor(part, dtype=kind) for part in (x, y))
    A, W, C = (
        torch.tensor(part, dtype=kind)
        for part in (network.input_weights, network.recurrent_weights, network.output_weights)
    )
    A.requires_grad_()
    C.requires_grad_()
    optimizer = torch.optim.SGD([A, C], lr=rate)
    begun = time.process_time()
    for _ in range(TIMED):
        h = torch.zeros(len(inputs), len(W), dtype=kind)
        for t in range(inputs.shape[1]):
            h = h @ W.T + inputs[:, t] @ A.T
        loss = (h @ C.T - targets).pow(2).sum() / (2 * len(inputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.process_time() - begun) / TIMED


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


#: What a child does with 5,000 trials of 200 steps and 32 channels: write them, or read and forecast them.
WRITE = """
import numpy as np
rng = np.random.default_rng(0)
x = rng.standard_normal((5000, 200, 32), dtype=np.float32)
np.savez({path!r}, inputs=x, targets=(x[:, -8:].sum(axis=1) @ rng.normal(size=(32, 2))).astype(np.float32))
"""
READ = """
import time
import learncast as lc
from benchmarks.timing import most_held
begun = time.process_time()
task = lc.tasks.from_file({path!r})
read = time.process_time() - begun
network = lc.LinearRNN.random(32, 64, 2, recurrence=0.8, scale=0.05, rng=0)
found = lc.forecast(task, network, learning_rate=1e-4).solution.time_to(0.9)
spent = time.process_time() - begun - read
print(most_held() / 2**20, read, spent, found.descent_steps)
"""


def child(code: str) -> list[float]:
    """Numbers that a process of its own prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return [float(word) for word in run.stdout.split()]


def rows() -> Iterator[tuple[str, str, str]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, (make, b, rate, accuracy) in RECORDINGS.items():
            x, y, _ = make(np.random.default_rng(1))
            network = lc.LinearRNN.random(x.shape[2], HIDDEN, y.shape[1], recurrence=b, scale=0.05, rng=0)
            half = np.random.default_rng(2).permutation(len(x))[: len(x) // 2]
            target = lc.Task.from_samples(x, y, name="all trials")
            others = [
                lc.Task.from_samples(x[half], y[half], name="half of them"),
                lc.Task.from_samples(x, 1.5 * y, name="stronger targets"),
            ]

            def forecast(target=target, network=network, rate=rate, accuracy=accuracy):
                return lc.forecast(target, network, learning_rate=rate).solution.time_to(accuracy).descent_steps

            def plan(target=target, others=others, network=network, rate=rate, accuracy=accuracy):
                terms = lc.Terms(lc.Accuracy(accuracy))
                return lc.plan(target, others, network, learning_rate=rate, terms=terms)

            lc.forecast(others[0], network, learning_rate=rate).solution.time_to(accuracy)  # loads what is loaded once
            # The quickest of three; a task that was asked before remembers.
            anew = [lc.Task.from_samples(x, y) for _ in range(3)]
            told, steps = min(seconds(lambda task=task: forecast(task)) for task in anew)
            planned, found = seconds(plan)
            single, double = (training(network, x, y, rate, kind) for kind in (torch.float32, torch.float64))
            assert np.isfinite(steps)
            assert found.direct_steps == steps
            whole = min(single, double) * steps
            yield name, "", ""
            yield (
                f"  direct training in torch, {TIMED} steps scaled up to {steps:,.0f}: float32 / double",
                f"{single * steps:.0f}/{double * steps:.0f} s",
                "",
            )
            yield "  forecast over the quicker of both trainings", f"1/{whole / told:,.0f}", "goal <= 1/200"
            yield "  forecast", f"{told:.2f} s", ""
            yield (
                "  plan with two candidates and its interval, over the quicker of both trainings",
                f"1/{whole / planned:,.0f}",
                "goal <= 1/20",
            )
            yield "  plan", f"{planned:.1f} s", "goal < 10 s"
            ends = found.saving_interval
            told = "{:,.0f} to {:,.0f}".format(*ends) if np.isfinite(ends).all() else "no interval"
            yield "  steps that the plan saves", f"{found.saving:,.0f} ({told})", ""
    finally:
        torch.set_num_threads(before)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "large.npz")
        child(WRITE.format(path=path))
        peak, read, spent, _ = child(READ.format(path=path))
    yield (
        "32 channels x 200 steps x 5,000 trials: peak memory of reading and forecasting",
        f"{peak:,.0f} MB",
        "goal < 1 GB",
    )
    yield "  reading / forecasting these trials", f"{read:.1f}/{spent:.1f} s", ""
