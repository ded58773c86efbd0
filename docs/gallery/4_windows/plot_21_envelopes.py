"""
Envelopes of five recurrent cells
=================================

The envelope is the effective learning rate at each lag: how much of a gradient arrives from that far back. Before training it
depends on the gates only. GRU and LSTM start with gates near 0.5, and their envelopes decay within a few steps. The three
other cells start with a gate of 0.05 and decay slowly; their envelopes are the same before training, so their lines lie on each
other.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from learncast import tasks, windows

torch.manual_seed(0)
inputs, targets = tasks.multi_lag_trials(
    128,
    np.random.default_rng(0),
    steps=64,
    direction=4,
    lags=(2, 8, 16),
    coefficients=(0.6, 0.5, 0.4),
)
inputs, targets = (
    torch.as_tensor(inputs, dtype=torch.float32),
    torch.as_tensor(targets, dtype=torch.float32),
)


class Model(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.readout = cell, nn.Linear(24, 1)

    def forward(self, x):
        states = self.cell(x)
        return self.readout(states[0] if isinstance(states, tuple) else states)


def generator():
    return torch.Generator().manual_seed(0)


cells = {
    "constant gate": windows.ConstGate(4, 24, generator=generator()),
    "shared gate": windows.SharedGate(4, 24, generator=generator()),
    "gate per unit": windows.DiagGate(4, 24, generator=generator()),
    "GRU": nn.GRU(4, 24, batch_first=True),
    "LSTM": nn.LSTM(4, 24, batch_first=True),
}
looks = iter([("-", 7), ("-", 3), ("-", 1.2), ("o-", 2), ("s-", 2)])
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, cell in cells.items():
    model = Model(cell)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    measurement = windows.Measurement(lags=[1, 2, 4, 8, 12, 16, 24, 32])
    result = windows.window(
        model, inputs, targets, optimizer=optimizer, measurement=measurement
    )
    envelope = result.dataset.isel(layer=0)["envelope"]
    print(
        f"{name}: at lag 16 the envelope is "
        f"{float(envelope.sel(lag=16) / envelope[0]):.1g} of that at lag 1"
    )
    style, width = next(looks)
    ax.semilogy(
        envelope["lag"],
        envelope / float(envelope[0]),
        style,
        linewidth=width,
        markersize=5,
        label=name,
    )
ax.set(xlabel="lag (steps)", ylabel="envelope, relative to lag 1", ylim=(1e-9, 2))
ax.legend()
plt.show()
