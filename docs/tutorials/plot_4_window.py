"""
How far back does the gradient reach?
=====================================

A recurrent model can learn from past inputs only where the gradient has a signal above its noise. That is necessary, not
sufficient: training may still not get there. How far back the signal is depends on the gates, the optimiser and the number of
sequences. This tutorial measures it for an LSTM during training, in seconds.

Reading time: 7 minutes. It needs ``pip install '.[torch]'``.
"""

# %%
# A task with known lags
# ----------------------
#
# The target at each step is a weighted sum of one direction of the input 2, 6 and 14 steps ago, with noise. So we know how far
# back the task reaches.

# sphinx_gallery_thumbnail_number = 2
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
# The result has conditions, which are measured too. A condition holds if the measured number is at most the allowed one.

for one in early.validity():
    verdict = "holds" if one.holds else "fails"
    if not one.condition.binding:
        verdict += ", but the window does not rest on it"
    print(f"{one.name}: {one.measured:.2g} (allowed {one.allowed:g}): {verdict}")

# %%
# ``silent_null`` says how often data without a signal (sequences with random signs) have a window. ``averaging_helps`` is the share
# of lags whose noise is so heavy-tailed that more sequences would not average it out: here it is one lag of 24, and how many
# sequences this lag needs is unknown. ``noise_apart_from_envelope`` is the largest noise of a lag over the smallest. The noise of a
# lag shrinks with its envelope, and so does its signal. A lag can therefore stand out from its own noise although almost nothing of
# it arrives: compare the two curves below.

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
# The blue curve is the longest lag whose signal exceeds the noise of the same lag: whether the gradient holds any information
# about inputs that far back. The orange curve is the longest lag whose signal exceeds the noise of the whole gradient: whether a
# single training step can see it. Grey is the range of data without a signal.

print(late.summary)
rate = float(late.dataset["decay_rate"].isel(layer=0))
print(f"1 / rate of the decay is {1 / rate:.0f} steps.")
_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
lc.figures.window_curve(late.dataset.isel(layer=0), ax)
plt.show()

# %%
# Here both statements are true: the gradient holds a signal at long lags, and in no single step does it rise above the noise of
# all lags together. The orange curve is what a training step meets, but training adds up many steps, and this LSTM does learn.
# **Neither curve predicts how far training will reach.** In the networks of :doc:`/theory/livi2025`, cells with longer windows did
# not learn longer lags (claims C6 and C9). Compare windows of one model over time or between optimisers instead.
#
# Lags beyond 14 have a signal although the target depends on none of them: the answer of the network still holds inputs from that
# far back, and the gradient changes what it holds.
#
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
# signal, not how far back the task reaches or training will get. :doc:`/theory/livi2025` lists corrections of the published procedure and explains
# why the published rule finds a window in pure noise.
#
# What to do next
# ---------------
#
# - During training: call ``step()`` of ``windows.WindowMonitor(model, optimizer, (x, y))`` after each step of the optimiser, in
#   Lightning from a callback's ``on_train_batch_end``.
# - A stored model: ``learncast window --model net.py:build --weights net.safetensors --data sequences.npz``.
# - Your own cell: :doc:`/how-to/extend`.
