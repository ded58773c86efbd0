"""
Learnability window of a GRU
============================

A GRU is trained for 60 steps on a task that depends on inputs 2, 6 and 12 steps ago. The window is the largest lag at which
the gradient has a detectable signal. Blue: compared with the noise at that lag. Orange: compared with the noise of the whole
gradient, which is what training sees. Grey: range of data without a signal.
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
    rule=windows.DetectionRule(sample_sizes=[16, 64, 256, 1024, 4096, 16384]),
)
print(result.summary)
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
figures.window_curve(result.dataset.isel(layer=0), ax)
plt.show()
