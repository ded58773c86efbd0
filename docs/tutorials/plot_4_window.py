"""
How far back can it learn?
==========================

A recurrent model can learn from past inputs only where the gradient has a signal above its noise. How far back that is depends
on the gates, the optimiser and the number of sequences. This tutorial measures it for an LSTM during training, in seconds.

It needs ``pip install '.[torch]'``.
"""

# %%
# A task with known lags
# ----------------------
#
# The target at each step is a weighted sum of one direction of the input 2, 6 and 14 steps ago, with noise. So we know how far
# back the task reaches.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import learncast as lc
from learncast import windows

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = lc.tasks.multi_lag_trials(
    256,
    np.random.default_rng(0),
    steps=48,
    direction=4,
    lags=(2, 6, 14),
    coefficients=(0.6, 0.5, 0.4),
)
x, y = (
    torch.as_tensor(x, dtype=torch.float32),
    torch.as_tensor(y, dtype=torch.float32),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.readout = nn.LSTM(4, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        return self.readout(self.lstm(x)[0])


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (model(x) - y) ** 2).mean().backward()
        optimizer.step()


# %%
# One diagnosis
# -------------
#
# ``window`` needs the model, sequences, targets and the optimiser with its state. Adam rescales every gradient, which changes
# the contribution of large lags.

train(20)
options = {
    "measurement": windows.Measurement(lags=list(range(1, 25))),
    "rule": windows.DetectionRule(sample_sizes=[16, 64, 256, 1024, 4096]),
}
early = windows.window(model, x, y, optimizer=optimizer, **options)
print(early.summary)

# %%
# The result has conditions, which are measured too. One of them is that data without a signal (sequences with random signs)
# almost never have a window.

for condition in early.validity():
    print(f"{condition.name}: {condition.measured:.2g}")

# %%
# The envelope: effective learning rate at each lag
# -------------------------------------------------

train(130)
late = windows.window(model, x, y, optimizer=optimizer, **options)
_, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for name, result, colour in [
    ("after 20 steps", early, lc.figures.COLOURS[5]),
    ("after 150 steps", late, lc.figures.COLOURS[0]),
]:
    layer = result.dataset.isel(layer=0)
    ax.semilogy(
        layer["lag"],
        layer["envelope"],
        "o-",
        color=colour,
        markersize=4,
        label=name,
    )
ax.set(xlabel="lag (steps)", ylabel="envelope: effective learning rate")
ax.legend()
plt.show()

# %%
# The window: how far, from how many sequences
# --------------------------------------------
#
# Blue compares the signal at each lag with the noise at that lag. Orange compares it with the noise of the whole gradient,
# which is what a training step sees. Grey is the range of data without a signal.

print(late.summary)
_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
lc.figures.window_curve(late.dataset.isel(layer=0), ax)
plt.show()

# %%
# How to extend the window
# ------------------------
#
# Cells whose gates start nearly closed forget less. The figure shows the envelope of a cell with one gate per unit, before
# training, for two initial gates.


class Gated(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.cell = windows.DiagGate(
            4, 24, gate=gate, generator=torch.Generator().manual_seed(0)
        )
        self.readout = nn.Linear(24, 1)

    def forward(self, x):
        return self.readout(self.cell(x))


_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for gate, colour in [(0.5, lc.figures.COLOURS[1]), (0.05, lc.figures.COLOURS[0])]:
    cell = Gated(gate)
    result = windows.window(
        cell, x, y, optimizer=torch.optim.SGD(cell.parameters(), lr=0.1), **options
    )
    layer = result.dataset.isel(layer=0)
    ax.semilogy(
        layer["lag"],
        layer["envelope"],
        "o-",
        color=colour,
        markersize=4,
        label=f"initial gate {gate:g}",
    )
ax.set(xlabel="lag (steps)", ylabel="envelope")
ax.legend()
plt.show()

# %%
# How far to trust this
# ---------------------
#
# A window is a scaling index at a stated threshold, not a guarantee. It says how far back the gradient has a detectable
# signal, not how far back the task reaches. :doc:`/theory/livi2025` lists corrections of the published procedure and explains
# why the published rule finds a window in pure noise.
#
# What to do next
# ---------------
#
# - During training: call ``step()`` of ``windows.WindowMonitor(model, optimizer, (x, y))`` after each step of the optimiser; in
#   Lightning use ``windows.lightning_callback``.
# - A stored model: ``learncast window --model net.py:build --weights net.safetensors --data sequences.npz``.
# - Your own cell: :doc:`/how-to/extend`.
