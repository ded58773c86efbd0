"""How is a GRU trained on its target soonest, when all data come in DataLoaders?

Run with: python examples/gru_with_loaders.py
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import learncast
import learncast as lc

STEPS, TRIALS, BATCH, RATE = 15, 2000, 128, 0.05


class Accumulator(nn.Module):
    """A GRU that answers once, at the end of a trial."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.readout = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Answers (trials, 1) to evidence (trials, steps, 1)."""
        hidden, _ = self.gru(x)
        return self.readout(hidden[:, -1])


def loader(kernel: np.ndarray, correlation: float, seed: int) -> DataLoader:
    """Evidence that is correlated over time, and its sum weighted by a kernel."""
    rng = np.random.default_rng(seed)
    evidence = rng.standard_normal((TRIALS, len(kernel), 1))
    for t in range(1, len(kernel)):
        evidence[:, t] = correlation * evidence[:, t - 1] + np.sqrt(1 - correlation**2) * evidence[:, t]
    answer = (evidence[:, :, 0] @ kernel)[:, None]
    trials = TensorDataset(torch.tensor(evidence, dtype=torch.float32), torch.tensor(answer, dtype=torch.float32))
    return DataLoader(trials, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))


def progress(share: float) -> None:
    """A bar on stderr."""
    if sys.stderr.isatty():
        print(f"\r{int(40 * share) * '#':<40}", end="\n" if share == 1 else "", file=sys.stderr)


def main() -> None:
    """Ask for advice, then carry it out beside training directly."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Accumulator()
    even, recent = np.full(STEPS, 0.25), 0.5 * np.exp(-np.arange(STEPS)[::-1] / 3.0)
    target = loader(even, 0.0, seed=1)
    candidates = {
        "correlated evidence": loader(even, 0.7, seed=2),
        "recent evidence": loader(recent, 0.0, seed=3),
        "short trials": loader(np.full(6, 0.4), 0.0, seed=4),
    }
    training = lc.Training(RATE, most_steps=3000)
    advice = learncast.advise(model, target, candidates, training, progress=progress)
    print(advice)

    for name in dict.fromkeys([advice.recommended, "no pretraining"]):
        run = advice.train(name, most_steps=3000, record=lc.training.Records(evaluation=500))
        print(f"{name}: {' + '.join(map(str, run.stage_steps))} gradient steps on the real model ({run.status.name})")


if __name__ == "__main__":
    main()
