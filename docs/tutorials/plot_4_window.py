"""
How far back can it learn?
==========================

A recurrent model learns from the past only as far as its gradients carry a signal out of their noise. How far that is depends
on its gates, its optimiser and the number of sequences. This lesson measures it for an LSTM, in seconds, during training.

It needs ``pip install 'learncast[torch]'``.
"""

# %%
# A task with known lags
# ----------------------
#
# The answer at each step is a weighted sum of one direction of the input 2, 6 and 14 steps ago, with noise. So we know how far
# back there is something to learn.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import learncast as lc
from learncast import windows

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = lc.tasks.multi_lag_trials(
    256, np.random.default_rng(0), steps=48, direction=4, lags=(2, 6, 14), coefficients=(0.6, 0.5, 0.4)
)
x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


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
# ``window`` needs the model, sequences, targets and the optimiser with its state: Adam divides every gradient by its own size,
# which changes what arrives from far back.

train(20)
question = {
    "measurement": windows.Measurement(lags=list(range(1, 25))),
    "rule": windows.DetectionRule(sample_sizes=[16, 64, 256, 1024, 4096]),
}
early = windows.window(model, x, y, optimizer=optimizer, **question)
print(early.summary)

# %%
# Its class is ``measured``, and its conditions were measured too. One of them is that data without any signal (sequences whose
# signs are drawn at random) almost never show a window.

for condition in early.validity():
    print(f"{condition.name}: {condition.measured:.2g}")

# %%
# The envelope: what arrives from each lag
# ----------------------------------------

train(130)
late = windows.window(model, x, y, optimizer=optimizer, **question)
_, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for name, found, colour in [("after 20 steps", early, "#56B4E9"), ("after 150 steps", late, "#0072B2")]:
    layer = found.dataset.isel(layer=0)
    ax.semilogy(layer["lag"], layer["envelope"], "o-", color=colour, markersize=4, label=name)
ax.set(xlabel="lag (steps)", ylabel="envelope: effective learning rate")
ax.legend()
plt.show()

# %%
# The window: how far, from how many sequences
# --------------------------------------------
#
# Blue asks at each lag whether its signal stands out of the noise of that lag. Orange asks whether it stands out of the noise of
# the whole gradient, which is what a step of training sees. Grey is the band that data without signal stay in.

print(late.summary)
_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
lc.figures.window_curve(late.dataset.isel(layer=0), ax)
plt.show()

# %%
# What would lengthen it?
# -----------------------
#
# Gates that begin nearly closed forget less. The same task, a cell with a gate of its own for every unit, before any training,
# from two initial gates:


class Gated(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.cell = windows.DiagGate(4, 24, gate=gate, generator=torch.Generator().manual_seed(0))
        self.readout = nn.Linear(24, 1)

    def forward(self, x):
        return self.readout(self.cell(x))


_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for gate, colour in [(0.5, "#D55E00"), (0.05, "#0072B2")]:
    cell = Gated(gate)
    found = windows.window(cell, x, y, optimizer=torch.optim.SGD(cell.parameters(), lr=0.1), **question)
    layer = found.dataset.isel(layer=0)
    ax.semilogy(layer["lag"], layer["envelope"], "o-", color=colour, markersize=4, label=f"gates begin at {gate:g}")
ax.set(xlabel="lag (steps)", ylabel="envelope")
ax.legend()
plt.show()

# %%
# How far to trust this
# ---------------------
#
# A window is a scaling index at a stated threshold, not a guarantee: below it learning is hopeless, above it is possible. It says
# how far back gradients carry a signal, not how far back the task reaches. :doc:`/theory/livi2025` says what was corrected in the
# published procedure, and why the published rule finds a window in pure noise.
#
# What to do next
# ---------------
#
# - Follow it during training: ``windows.WindowMonitor(model, optimizer, (x, y))``, a call of ``step()`` after each of the
#   optimiser's; in Lightning ``windows.lightning_callback``.
# - A model on the disk: ``learncast window --model net.py:build --weights net.safetensors --data sequences.npz``.
# - A cell of your own: :doc:`/how-to/extend`.
