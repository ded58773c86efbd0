"""Training recurrent networks in torch.

`training.train` is compared with the loop over time that one writes first, with autograd. Nonlinear networks in which
everything is learned gain nothing, because every unit must see every input.

Where the recurrence is a fixed number, all inputs can be pooled before the units see them, which leaves one product of
P T inputs; where it is learned, both do the same 6 P T H^2 operations, and what can be saved is the calls of autograd.
Nonlinear units can pool nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

import learncast as lc
from benchmarks.timing import interleaved

UNITS, STEPS, BATCH, UPDATES, RATE = 128, 50, 1000, 6, 1e-3


def obvious(network: lc.LinearRNN, learn: tuple[str, ...], activation: str | None, data: list) -> list[np.ndarray]:
    """Backpropagation through time as one would write it first."""
    arrays = (network.input_weights, network.recurrent_weights, network.output_weights)
    weights = {
        name: torch.tensor(array, requires_grad=name in learn)
        for name, array in zip(("input", "recurrent", "output"), arrays, strict=True)
    }
    optimizer = torch.optim.SGD([w for w in weights.values() if w.requires_grad], lr=RATE)
    f = {None: lambda h: h, "relu": torch.relu, "tanh": torch.tanh}[activation]
    for x, y in data:
        h = torch.zeros(len(x), UNITS, dtype=torch.float64)
        for t in range(x.shape[1]):
            h = f(h @ weights["recurrent"].T + x[:, t] @ weights["input"].T)
        loss = (h @ weights["output"].T - y).pow(2).sum() / (2 * len(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [w.detach().numpy() for w in weights.values()]


def rows() -> Iterator[tuple[str, str, str]]:
    task, rng = lc.tasks.integration(steps=STEPS), np.random.default_rng(0)
    small = 0.01 * rng.standard_normal((UNITS, 1))
    full = 0.9 * np.linalg.qr(rng.standard_normal((UNITS, UNITS)))[0]
    single = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=UNITS)
    cases = {
        "linear, recurrence 0.96 fixed, one mode as in the paper": (single, ("input", "output"), None),
        "linear, recurrence 0.96 fixed, all units used": (
            lc.LinearRNN(small, 0.96 * np.eye(UNITS), small.T),
            ("input", "output"),
            None,
        ),
        "linear, everything learned": (lc.LinearRNN(small, full, small.T), ("input", "recurrent", "output"), None),
        "ReLU, recurrence 0.96 fixed, one mode": (single, ("input", "output"), "relu"),
        "ReLU, everything learned": (lc.LinearRNN(small, full, small.T), ("input", "recurrent", "output"), "relu"),
    }
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, (network, learn, activation) in cases.items():
            training = lc.Training(RATE, batch=BATCH, learn=learn)
            start = network if activation is None else lc.Activated(network, activation)

            def loop(network=network, learn=learn, activation=activation):
                batches = [task.sample(BATCH, np.random.default_rng([0, 0, k])) for k in range(UPDATES)]
                data = [(torch.tensor(x), torch.tensor(y)) for x, y in batches]
                return obvious(network, learn, activation, data)

            def ours(start=start, training=training):
                return lc.training.train(task, start, training, steps=UPDATES, record=()).network

            trained = ours()
            plain = trained.network if activation else trained
            expected = loop()
            found = (plain.input_weights, plain.recurrent_weights, plain.output_weights)
            assert all(np.abs(a - b).max() < 1e-12 for a, b in zip(found, expected, strict=True))
            slow, fast = interleaved(loop, ours, repeats=3)
            goal = "goal >= 5x" if activation is None else ""
            yield f"{name}: obvious loop over lc.training.train", f"{slow / fast:.1f}x", goal
    finally:
        torch.set_num_threads(before)
