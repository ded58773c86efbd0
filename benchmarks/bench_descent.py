"""Gradients and descent from statistics, against backpropagation through time on the trials.

A gradient, or a whole training, computed from the second moments of the trials, and by backpropagation through time
(BPTT) in torch on 1,000 trials of 50 steps with 128 units. The moments themselves are compared with reading the trials.

Backpropagation through P trials, T steps and H units takes 6 P T H^2 operations, 4.9e9 here; all weights from
statistics take 6 T H^2 and what T calls cost, 5e6: a thousand times fewer, of which thin products leave a part. A
pooled network takes a handful of products of H numbers, so that its steps are calls alone, some forty of a microsecond.
Statistics of P trials of n numbers are one product of n^2 P operations, whose own share of the pace of reading is the
limit and is printed: even for short trials it takes several times as long as reading them. What is added to it are a
check of every number, products with the targets, and means, in chunks that stay near a core.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import torch

import learncast as lc
from benchmarks.timing import interleaved
from learncast.theory import lag_statistics, loss_and_gradient

TRIALS, STEPS, HIDDEN = 1000, 50, 128
ALL = ("input", "recurrent", "output")


def network(inputs: int) -> lc.LinearRNN:
    rng = np.random.default_rng(1)
    return lc.LinearRNN(
        0.3 * rng.standard_normal((HIDDEN, inputs)) / np.sqrt(inputs),
        0.9 * rng.standard_normal((HIDDEN, HIDDEN)) / np.sqrt(HIDDEN),
        0.3 * rng.standard_normal((1, HIDDEN)) / np.sqrt(HIDDEN),
    )


def trials(inputs: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((TRIALS, STEPS, inputs))
    return x, x.sum(axis=(1, 2))[:, None]


def backpropagation(net: lc.LinearRNN, x: np.ndarray, y: np.ndarray, learn: tuple[str, ...]) -> Callable[[], list]:
    """One full-batch gradient by torch, in float64 as the statistics are."""
    given = {name: torch.tensor(np.array(getattr(net, f"{name}_weights"))) for name in ALL}
    moved = [given[name].requires_grad_() for name in learn]
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def gradient() -> list:
        state = torch.zeros(len(inputs), len(given["recurrent"]), dtype=torch.float64)
        for t in range(inputs.shape[1]):
            state = state @ given["recurrent"].T + inputs[:, t] @ given["input"].T
        loss = 0.5 * ((state @ given["output"].T - targets) ** 2).sum() / len(inputs)
        return [g.numpy() for g in torch.autograd.grad(loss, moved)]

    return gradient


def gradients() -> Iterator[tuple[str, str, str]]:
    for inputs in (1, 4):
        net, (x, y) = network(inputs), trials(inputs)
        task = lc.Task.from_samples(x, y)
        statistics = lag_statistics(task)
        weights = (net.input_weights, net.recurrent_weights, net.output_weights)
        through_time = backpropagation(net, x, y, ALL)

        def from_statistics(statistics=statistics, weights=weights):
            return loss_and_gradient(statistics, *weights)[1]

        def from_trials(x=x, y=y, weights=weights):
            return loss_and_gradient(lag_statistics(lc.Task.from_samples(x, y)), *weights)[1]

        for name, wanted in zip(ALL, through_time(), strict=True):
            # both right to some hundred roundings
            assert np.abs(from_statistics()[name] - wanted).max() <= 1e-10 * np.abs(wanted).max()
        bptt, known, fresh = interleaved(through_time, from_statistics, from_trials)
        label = f"BPTT over gradient from statistics, P = {TRIALS}, T = {STEPS}, hidden {HIDDEN}, {inputs} inputs"
        yield f"{label} ({bptt * 1e3:.0f} ms)", f"{bptt / known:.0f}x", "goal >= 100x"
        yield "  BPTT over statistics of the trials and gradient from them", f"{bptt / fresh:.0f}x", ""


def trainings() -> Iterator[tuple[str, str, str]]:
    """Whole runs to 99% of the white integration task; BPTT by a few timed gradients times the number of steps."""
    task, start = lc.tasks.integration(steps=STEPS), lc.LinearRNN.aligned(hidden_size=HIDDEN)
    x, y = task.sample(TRIALS, np.random.default_rng(3))
    cases = (
        ("fixed scalar recurrence, pooled", ("input", "output"), 1e-3, "goal >= 1000x"),
        ("all weights learnable", ALL, 2e-5, "goal >= 300x"),
    )
    for name, learn, rate, goal in cases:

        def descend(learn=learn, rate=rate):
            return lc.descend(task, start, lc.Training(rate, learn=learn), goal=0.99)

        found = descend()
        assert found.status is lc.Status.ok
        whole, one = interleaved(descend, backpropagation(start, x, y, learn), repeats=3)
        ratio = one * found.steps / whole
        label = f"training to 99%, {name}: BPTT (one gradient timed, x {found.steps} steps) over descend"
        yield f"{label} ({whole:.2f} s)", f"{ratio:.0f}x", goal


def memory() -> Iterator[tuple[str, str, str]]:
    peaks = []
    for count in (10**3, 10**5):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((count, STEPS, 1))
        task = lc.Task.from_samples(x, x.sum(axis=(1, 2))[:, None])
        del x
        tracemalloc.start()
        lc.descend(task, network(1), lc.Training(1e-4, learn=ALL), steps=20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    label = f"peak memory of descend, P = 10^5 over P = 10^3 ({peaks[0] / 2**20:.1f} MiB)"
    yield label, f"{peaks[1] / peaks[0]:.2f}x", "goal ~ 1"


def statistics() -> Iterator[tuple[str, str, str]]:
    """A million trials made into a task, in one pass."""
    for steps in (8, STEPS):
        x = np.random.default_rng(5).standard_normal((10**6, steps, 1))
        y, flat = x.sum(axis=1), x.reshape(10**6, steps)
        read, product, whole = interleaved(
            flat.sum, lambda flat=flat: flat.T @ flat, lambda x=x, y=y: lc.Task.from_samples(x, y), repeats=3
        )
        label = f"statistics of a million trials of {steps} steps: pace as a share of reading the trials"
        yield label, f"{read / whole:.2f}", "goal >= 0.5"
        yield (
            "  the matrix product in them, the limit: pace as a share of reading the trials",
            f"{read / product:.2f}",
            "",
        )
        yield "  statistics: pace as a share of that product", f"{product / whole:.2f}", ""


def rows() -> Iterator[tuple[str, str, str]]:
    yield from gradients()
    yield from statistics()
    yield from trainings()
    yield from memory()
