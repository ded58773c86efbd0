"""
Learnability window of a GRU
============================

A GRU is trained for 60 steps on a task that depends on inputs 2, 6 and 12 steps ago. The window is the largest lag at which
the gradient has a detectable signal. Blue: compared with the noise at the same lag, that is, whether the gradient holds any
information about that lag. Orange: compared with the noise of the whole gradient, that is, whether one training step can see it.
Grey: range of data without a signal. Green: the lags of the task.

Neither curve predicts how far training will reach: it adds up many steps, and in tested networks longer windows did not mean that
longer lags were learned (:doc:`/theory/livi2025`, claims C6 and C9).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from learncast import figures, tasks, windows

torch.manual_seed(0)
inputs, targets = tasks.multi_lag_trials(
    256,
    np.random.default_rng(0),
    steps=40,
    direction=4,
    lags=(2, 6, 12),
    coefficients=(0.6, 0.5, 0.4),
)
inputs, targets = (
    torch.as_tensor(inputs, dtype=torch.float32),
    torch.as_tensor(targets, dtype=torch.float32),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.readout = nn.GRU(4, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        return self.readout(self.cell(x)[0])


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(60):
    optimizer.zero_grad()
    ((model(inputs) - targets) ** 2).mean().backward()
    optimizer.step()

result = windows.window(
    model,
    inputs,
    targets,
    optimizer=optimizer,
    measurement=windows.Measurement(lags=list(range(1, 25))),
    rule=windows.DetectionRule(sample_sizes=[4, 8, 16, 32, 64, 256, 1024, 4096]),
)
gru = result.dataset.isel(layer=0)
per_lag, total = gru["window"].sel(sample_size=256).values
print(f"256 sequences: up to lag {per_lag:.0f}, compared with noise at the lag")
print(f"256 sequences: up to lag {total:.0f}, compared with all noise")
print(
    f"time scale of the decay (1 / rate): {1 / float(gru['decay_rate']):.0f} steps"
)
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
figures.window_curve(gru, ax)
for lag in (2, 6, 12):
    ax.axhline(lag, color=figures.COLOURS[2], linewidth=0.8, zorder=0)
    ax.annotate(
        f"lag {lag}",
        (1.01, lag),
        xycoords=("axes fraction", "data"),
        va="center",
        size=7,
        color=figures.COLOURS[2],
    )
plt.show()
