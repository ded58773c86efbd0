"""
My recordings, start to finish
==============================

You have trials from an experiment. You want to know how many steps a network needs to learn them, whether to train another
task first, and how far to trust the answer. This tutorial starts from a CSV file and ends with a forecast that training
confirms.

Reading time: 10 minutes. Install with ``pip install '.[torch]'``; only the section that trains needs torch.
"""

# %%
# The table
# ---------
#
# ``recorded_trials.csv`` has a row for every trial and time step: evidence on two channels and, at the last step of a trial, the
# animal's estimate of the sum on each side. It is in the folder ``examples`` of the repository. If you have downloaded this page
# as a notebook, put the file beside it, or set ``path`` to your own table.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import learncast as lc

path = Path("recorded_trials.csv")  # beside a downloaded notebook
if not path.exists():
    path = Path("..", "..", "examples", path)  # in the repository
table = pd.read_csv(path)
table.head(13).round(2)

# %%
# A *task* holds the second-order statistics of the trials: the covariance of the inputs over time, and the covariance of
# inputs and answers. How a linear network learns depends only on them.

task = lc.tasks.from_table(
    path,
    inputs=["input_left", "input_right"],
    targets=["target_left", "target_right"],
    name="recorded",
)
print(task)

# %%
# How much can a linear network explain?
# --------------------------------------
#
# First ask how much of the variance of the answers a linear network can explain at all. The *recurrence* is the fraction of
# the state that the network keeps from step to step. We try several values.

for recurrence in (0.5, 0.7, 0.9, 0.95):
    summary = lc.tasks.summary(task, recurrence=recurrence)
    print(
        f"recurrence {recurrence}: explains {summary.explained:.0%} of the "
        f"variance, {summary.left_out:.0%} on held-out trials"
    )

# %%
# A recurrence near 0.9 explains most of it. If the value on held-out trials were much lower, more trials would be needed.
# The full summary:

print(lc.tasks.summary(task, recurrence=0.9))

# %%
# How long does learning take?
# ----------------------------
#
# The network has 64 linear units and small random weights.

network = lc.LinearRNN.random(
    inputs=2, hidden_size=64, outputs=2, recurrence=0.9, scale=0.05, rng=0
)
forecast = lc.forecast(task, network, learning_rate=2e-3, goal=0.95)
low, high = forecast.steps.interval
print(
    f"{forecast.steps.descent:.0f} steps to learn 95%, "
    f"95% interval {low:.0f} to {high:.0f}"
)

# %%
# For recorded trials the goal 0.95 means: 95% of the explainable variance is learned. The interval comes from resampling the
# trials. The forecast class says how the number was computed:

print(forecast.forecast_class)
for condition in forecast.trust.assumptions:
    print(f"  {condition.name}: measured {condition.measured:.2g}")

# %%
# ``integrated`` is the class of any linear network on any task. The steps of gradient descent are counted on the exact
# statistics of these trials; the gradient flow is integrated numerically, to the tolerance of the solver.
#
# Should another task come first?
# -------------------------------
#
# The candidates are cheap to make: the same kind of evidence with the noise-free answers of an ideal integrator, stronger or
# weaker than those of the animal.

candidates = [
    lc.tasks.integration(
        steps=12,
        target_strength=[strength, strength],
        name=f"ideal answers x {strength}",
    )
    for strength in (0.7, 1.0, 1.5)
]
plan = lc.plan(task, candidates, network, learning_rate=2e-3, terms=lc.Terms(0.95))
print(plan.summary)

# %%
# The ranking of all candidates: steps on the candidate and on the recorded task.

_, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
lc.figures.ranking(plan.dataset, ax)
ax.set_xlabel("gradient steps")
plt.show()

# %%
# How certain is the saving?
# --------------------------
#
# The saving is an estimate too. If its interval includes zero, pretraining may not help.

low, high = plan.saving_interval
print(f"saves {plan.saving:.0f} steps, 95% interval {low:.0f} to {high:.0f}")

_, ax = plt.subplots(figsize=(7, 1.6), layout="constrained")
ax.plot(
    [low, high],
    [0, 0],
    color=lc.figures.COLOURS[0],
    linewidth=4,
    label="95% interval",
)
ax.plot(plan.saving, 0, "ko", label="estimate")
ax.axvline(0, color="grey", linestyle="--", label="no saving")
ax.set(xlabel="gradient steps saved", yticks=[])
ax.spines["left"].set_visible(False)
lc.figures.key(ax, below=True, ncols=3)
plt.show()

# %%
# Compare with training
# ---------------------
#
# The forecast is for full-batch training on these trials. We train on the same trials in torch, as arrays of shape (trials,
# steps, channels), and compare. Forecast and training both keep the recurrent weights fixed, which is the default.

inputs = table[["input_left", "input_right"]].to_numpy().reshape(-1, 12, 2)
answers = table.groupby("trial")[["target_left", "target_right"]].last().to_numpy()
steps = int(1.3 * plan.direct_steps)
run = lc.training.train((inputs, answers), network, lc.Training(2e-3), steps=steps)
trajectory = forecast.solution.at(np.arange(steps + 1))

_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.plot(
    run.dataset["time"],
    run.dataset["loss"],
    color=lc.figures.COLOURS[0],
    alpha=0.7,
    linewidth=3,
    label="training in torch",
)
ax.plot(trajectory.time, trajectory["loss"], "k:", label="forecast")
ax.axvline(
    plan.direct_steps,
    color="grey",
    linewidth=0.8,
    label=f"95% learned: {plan.direct_steps:.0f} steps",
)
ax.set(xlabel="gradient steps", ylabel="loss (half the mean squared error)")
ax.legend()
plt.show()
difference = (
    abs(run.dataset["loss"].values - trajectory["loss"].values).max()
    / run.dataset["loss"].values[0]
)
print(f"largest difference: {difference:.2%} of the initial loss")

# %%
# The remaining difference arises because the curve is gradient flow and training takes discrete steps. Every forecast reports
# both numbers of steps.
#
# From a study file
# -----------------
#
# ``examples/recorded_target.toml`` asks the same question on the command line. ``learncast plan
# examples/recorded_target.toml --out report`` writes a report with figures. ``learncast check
# examples/recorded_target.toml`` trains every plan, and tests whether a plan made on half of the trials holds on the other half.
# In ``examples/recorded_data.toml`` the roles are swapped: there the recording is the first task, and integration the target.
#
# What to do next
# ---------------
#
# - Labels, masks, trials of different lengths, ``.mat`` and ``.nwb`` files: :doc:`/how-to/recordings`.
# - Nonlinear networks, with your own goal: :doc:`plot_2_gru_curriculum`.
# - How far to trust forecasts and intervals: :doc:`/start/trust`.
