"""
Reading a phase portrait
========================

A phase portrait shows a whole family of curricula at once: which first task, stopped when, saves how many steps. This lesson
reads one, point by point.
"""

# %%
# The portrait
# ------------
#
# The target is integration over 50 steps. The first task is the same with targets scaled by a factor. Every point is a
# curriculum: train the first task to the accuracy on the horizontal axis, then train the target to 99%.

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
strengths, stops = np.linspace(0.4, 3, 90), np.linspace(0.05, 0.99, 90)
portrait = lc.phase(target, network, learning_rate=1e-3, vary="target_strength", values=strengths, accuracies=stops)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
lc.figures.portrait(portrait, ax, target_value=1.0)
plt.show()

# %%
# Blue saves steps against training the target alone, red costs steps, white makes no difference. Three things are drawn on it.
#
# - **The dotted line** is the target's own strength. There the first task *is* the target, and nothing is gained.
# - **The bright curve** is where the first task ends exactly on the target's solution.
# - **The black line** is where pretraining breaks even.
#
# Points to try
# -------------
#
# Four points, followed one by one. ``follow`` gives the whole curriculum behind a point.

points = {
    "weak, long": (0.6, 0.95),
    "strong, short": (1.5, 0.3),
    "strong, at the edge": (1.5, 0.662),
    "strong, long": (1.5, 0.97),
}
for name, (strength, stop) in points.items():
    first = target.varied(target_strength=strength).renamed("first")
    way = lc.follow([lc.Stage(first, goal=stop), lc.Stage(target, goal=0.99)], network, learning_rate=1e-3)
    print(f"{name:>20}: {way.steps.descent:.0f} steps instead of {way.direct.descent:.0f}. {way.explanation.sentence}")

# %%
# The same four as paths of the strength. All end in the target's band; what differs is the way.

fig, axes = plt.subplots(1, 4, figsize=(10, 2.6), sharey=True, layout="constrained")
times = np.arange(0, 560)
optimum = float(lc.forecast(target, network, learning_rate=1e-3).solution.optimum[0])
for ax, (name, (strength, stop)) in zip(axes, points.items(), strict=True):
    first = target.varied(target_strength=strength).renamed("first")
    way = lc.follow([lc.Stage(first, goal=stop), lc.Stage(target, goal=0.99)], network, learning_rate=1e-3)
    ax.plot(times, way.at(times)["strength"].values[:, 0], color="#0072B2")
    ax.axhspan(0.99 * optimum, 1.01 * optimum, color="#BBBBBB")
    ax.axvline(way.stages[0].steps.flow, color="#D55E00", linestyle=":")
    ax.set(title=name, xlabel="gradient steps")
axes[0].set_ylabel("strength")
plt.show()

# %%
# Why the best stop is not on the bright curve
# --------------------------------------------
#
# It is a little before it. The target counts as learned once its strength is *within* 1% of the solution. Whoever stops at the
# edge of that band has nothing left to do. On the bright curve itself the steps from the edge to the middle were wasted.

row = portrait.sel(target_strength=1.5, method="nearest")
best = float(row["accuracy"][np.argmax(row["saved_descent_steps"].values)])
print(f"best stop on the grid {best:.3f}; bright curve {float(row['singular_accuracy']):.3f}")

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(row["accuracy"], row["saved_descent_steps"], color="#0072B2")
ax.axvline(float(row["singular_accuracy"]), color="cyan", label="first task ends on the target's solution")
ax.axhline(0, color="grey", linewidth=0.8)
ax.set(xlabel="accuracy at which the first task stops", ylabel="gradient steps saved")
ax.legend()
plt.show()

# %%
# How steep is the ridge?
# -----------------------
#
# Steep at the top, on both sides. A tenth too early or too late loses about half of what was saved. Further left the slope is
# gentle; further right the first task overshoots, the target has to come back down, and in the end all is lost. If you cannot
# stop exactly, stop early. A plan prints what that costs:

plan = lc.plan(target, [target.varied(target_strength=1.5).renamed("stronger targets")], network, learning_rate=1e-3)
for shift in plan.sensitivity:
    print(f"{shift.factor:4.2f} times the planned steps: {shift.extra:.0f} more in all")

# %%
# Another parameter, another portrait
# -----------------------------------
#
# The strength of the *inputs* behaves differently. Here weaker is better, and only if the first task stops early: left of the
# black line.

portrait = lc.phase(
    target, network, learning_rate=1e-3, vary="input_strength", values=np.linspace(0.4, 1.8, 90), accuracies=stops
)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
lc.figures.portrait(portrait, ax, target_value=1.0)
plt.show()

# %%
# What to do next
# ---------------
#
# - From a file: ``learncast phase examples/two_integration_tasks.toml --vary target_strength``.
# - By hand, with a pin to drag: ``learncast explore``.
# - The terms behind the colours: :doc:`/theory/curriculum2025`.
