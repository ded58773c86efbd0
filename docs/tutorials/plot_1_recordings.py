"""
My recordings, start to finish
==============================

You have trials from an experiment. You want to know how long a network takes to learn them, whether another task should come
first, and how far to trust the answer. This lesson goes from a table on the disk to a plan that was checked by training.

It takes about ten minutes to read. You need ``pip install 'learncast[torch]'``; nothing before the last section needs torch.
"""

# %%
# The table
# ---------
#
# ``examples/recorded_trials.csv`` is what a rig may have logged: a row for every trial and step, evidence on two channels, and
# at the last step of a trial the animal's estimate of the sum on each side.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import learncast as lc

path = Path("..", "..", "examples", "recorded_trials.csv")
table = pd.read_csv(path)
table.head(13)

# %%
# Trials become a *task*: how the inputs covary over time, and how they covary with what was answered. A linear network sees
# nothing else of them, so nothing is lost for it.

task = lc.tasks.from_table(
    path,
    inputs=["input_left", "input_right"],
    targets=["target_left", "target_right"],
    name="recorded",
)
print(task)

# %%
# What can these trials teach?
# ----------------------------
#
# Before any forecast, ask how much of the answers a linear network could explain at all. A network keeps a share of its state
# from step to step, its *recurrence*; we try several.

for recurrence in (0.5, 0.7, 0.9, 0.95):
    found = lc.tasks.summary(task, recurrence=recurrence)
    print(
        f"recurrence {recurrence}: explains {found.explained:.0%} on these trials, {found.left_out:.0%} on trials left out"
    )

# %%
# Most of it, with a recurrence near 0.9. If the share on trials left out were much lower than the share on the trials
# themselves, more trials would be needed. The whole summary says so in words:

print(lc.tasks.summary(task, recurrence=0.9))

# %%
# How long does learning take?
# ----------------------------
#
# We describe the network that will be trained: 64 linear units, small random weights.

network = lc.LinearRNN.random(inputs=2, hidden_size=64, outputs=2, recurrence=0.9, scale=0.05, rng=0)
way = lc.follow([lc.Stage(task, goal=0.95)], network, learning_rate=2e-3)
low, high = way.steps.interval
print(f"{way.steps.descent:.0f} steps to 95%, with a 95% interval from {low:.0f} to {high:.0f}")

# %%
# The interval comes from drawing the trials again. The number is a count of gradient steps, and its class says how it was
# found:

print(way.forecast_class)
for condition in way.trust.assumptions:
    print(f"  {condition.name}: measured {condition.measured:.2g}")

# %%
# ``integrated`` means: steps of descent were counted on the statistics of these trials. No training was done, and no
# approximation either.
#
# Should another task come first?
# -------------------------------
#
# A candidate that costs nothing to make: the same evidence, with noise-free answers of a perfect integrator, stronger or
# weaker than the animal's.

candidates = [
    lc.tasks.integration(steps=12, target_strength=[strength, strength], name=f"ideal answers x {strength}")
    for strength in (0.7, 1.0, 1.5)
]
plan = lc.plan(task, candidates, network, learning_rate=2e-3, terms=lc.Terms(goal=0.95))
print(plan.summary)

# %%
# The ranking of all candidates, as bars. Blue is spent on the candidate, orange on the recorded task.

_, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
lc.figures.ranking(plan.dataset, ax)
plt.show()

# %%
# How sure is the saving?
# -----------------------
#
# With recorded trials a saving is an estimate too. If its interval includes zero, pretraining may not pay.

low, high = plan.saving_interval
print(f"saves {plan.saving:.0f} steps, 95% interval {low:.0f} to {high:.0f}")

_, ax = plt.subplots(figsize=(7, 1.6), layout="constrained")
ax.plot([low, high], [0, 0], color="#0072B2", linewidth=4)
ax.plot(plan.saving, 0, "ko")
ax.axvline(0, color="#D55E00", linestyle="--")
ax.set(xlabel="gradient steps saved", yticks=[])
plt.show()

# %%
# Is it true?
# -----------
#
# The forecast promised full-batch training on these very trials. So we train in torch, on these very trials, and compare: as
# arrays of shape (trials, steps, channels). Training and forecast both keep the recurrence fixed, unless ``learn`` names it.

inputs = table[["input_left", "input_right"]].to_numpy().reshape(-1, 12, 2)
answers = table.groupby("trial")[["target_left", "target_right"]].last().to_numpy()
steps = int(1.3 * plan.direct_steps)
training = lc.training.Training(2e-3, batch=None, steps=steps, learn=("input", "output"))
run = lc.training.train((inputs, answers), network, training)
forecast = lc.forecast(task, network, learning_rate=2e-3).solution.at(np.arange(steps + 1))

_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.plot(run.dataset["time"], run.dataset["loss"], color="#0072B2", alpha=0.7, linewidth=3, label="trained in torch")
ax.plot(forecast.time, forecast["loss"], "k:", label="forecast")
ax.axvline(plan.direct_steps, color="grey", linewidth=0.8)
ax.set(xlabel="gradient steps", ylabel="loss (half the mean squared error)")
ax.legend()
plt.show()
gap = float(abs(run.dataset["loss"].values - forecast["loss"].values).max() / run.dataset["loss"].values[0])
print(f"largest gap: {gap:.2%} of the loss at the start")

# %%
# What is left of that gap is that the curve is of the flow, training takes whole steps; both counts are in every answer.
#
# From a study file
# -----------------
#
# The same as a file, to keep beside the data and to run without Python: ``examples/recorded_data.toml``. Then
# ``learncast plan examples/recorded_data.toml --out report`` writes a page with figures, and ``learncast check`` trains every
# plan and says whether a plan made on half of the trials comes true on the other half.
#
# What to do next
# ---------------
#
# - Labels, masks, trials of different length, ``.mat`` and ``.nwb`` files: :doc:`/how-to/recordings`.
# - Networks that are not linear, with your own goal: :doc:`plot_2_gru_curriculum`.
# - What intervals are worth: :doc:`/start/trust`.
