"""
Reading a phase portrait
========================

A phase portrait shows a family of curricula: how many steps each first task saves, for each stop. This tutorial
explains how to read one.

Reading time: 7 minutes.
"""

# %%
# The portrait
# ------------
#
# The target is integration over 50 steps. In the first task, the targets are scaled by a factor. Every point is a curriculum:
# train the first task to the accuracy on the horizontal axis, then train the target to 99%.

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
strengths, stops = np.linspace(0.4, 3, 90), np.linspace(0.05, 0.99, 90)
portrait = lc.phase(
    target,
    network,
    learning_rate=1e-3,
    vary="target_strength",
    values=strengths,
    accuracies=stops,
)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
lc.figures.portrait(portrait, ax)
plt.show()

# %%
# Blue saves steps compared with direct training, red costs steps, and the pale or dark middle makes no difference. Blue and red
# have a scale each ("two scales"), because the largest loss exceeds the largest saving.
#
# - **Target's optimum** (yellow): the first task ends exactly on the target's solution.
# - **Breaks even**: pretraining neither saves nor costs. At strength 1 the first task *is* the target. The hook at the right encloses
#   first tasks that are slightly stronger and trained almost to their end: they overshoot, and cost steps.
#
# Four points
# -----------
#
# ``follow`` forecasts the curriculum of one point.

points = {
    "weak, long": (0.6, 0.95),
    "strong, short": (1.5, 0.3),
    "strong, at the edge": (1.5, 0.662),
    "strong, long": (1.5, 0.97),
}
for name, (strength, stop) in points.items():
    first = target.varied(target_strength=strength).renamed("first")
    forecast = lc.follow(
        [lc.Stage(first, stop), lc.Stage(target, 0.99)], network, learning_rate=1e-3
    )
    print(
        f"{name}: {forecast.steps.descent:.0f} steps; "
        f"direct training {forecast.direct.descent:.0f}."
    )
    print(f"  {forecast.explanation.sentence}.")

# %%
# The strength over time in these four curricula. All end within the target's tolerance band (grey). Dotted: the end of the first task.

fig, axes = plt.subplots(
    2, 2, figsize=(7, 4.4), sharex=True, sharey=True, layout="constrained"
)
times = np.arange(0, 600)
optimum = float(
    lc.forecast(target, network, learning_rate=1e-3).solution.optimum[0]
)
for ax, (name, (strength, stop)) in zip(axes.flat, points.items(), strict=True):
    first = target.varied(target_strength=strength).renamed("first")
    forecast = lc.follow(
        [lc.Stage(first, stop), lc.Stage(target, 0.99)], network, learning_rate=1e-3
    )
    ax.plot(
        times,
        forecast.at(times)["strength"].values[:, 0],
        color=lc.figures.COLOURS[0],
    )
    ax.axhspan(0.99 * optimum, 1.01 * optimum, color="grey", alpha=0.4)
    ax.axvline(
        forecast.stages[0].steps.flow, color=lc.figures.COLOURS[1], linestyle=":"
    )
    ax.set_title(name)
fig.supxlabel("gradient steps", fontsize=8)
fig.supylabel("strength", fontsize=8)
plt.show()

# %%
# Why the best stop is not at the target's optimum
# ------------------------------------------------
#
# The best stop is slightly earlier. The target counts as learned when its strength is *within* 1% of the solution. If the first
# task stops at the edge of this band, the target needs no training. At the target's optimum, the steps from the edge of the band
# to its centre are wasted.

row = portrait.sel(target_strength=1.5, method="nearest")
best = float(row["accuracy"][np.argmax(row["saved_descent_steps"].values)])
print(
    f"best stop on the grid {best:.3f}; "
    f"target's optimum {float(row['singular_accuracy']):.3f}"
)

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.plot(row["accuracy"], row["saved_descent_steps"], color=lc.figures.COLOURS[0])
ax.axvline(
    float(row["singular_accuracy"]),
    color=lc.figures.COLOURS[4],
    label="target's optimum",
)
ax.axhline(0, color="grey", linewidth=0.8)
ax.set(
    xlabel="accuracy at which the first task stops", ylabel="gradient steps saved"
)
lc.figures.key(ax, below=True)
plt.show()

# %%
# How precise must the stop be?
# -----------------------------
#
# A stop 10% too early or too late loses about half of the saving. Much earlier stops lose little more. With much later stops
# the first task overshoots, the target must unlearn the excess, and the saving is lost. If you cannot stop precisely, stop
# early. A plan reports the cost:

plan = lc.plan(
    target,
    [target.varied(target_strength=1.5).renamed("stronger targets")],
    network,
    learning_rate=1e-3,
)
for shift in plan.sensitivity:
    print(
        f"{shift.factor:4.2f} times the planned steps: "
        f"{shift.extra:.0f} more steps in total"
    )

# %%
# Another parameter
# -----------------
#
# The strength of the *inputs* has a different effect. Weaker inputs are better, but only if the first task stops early, left of
# the line on which it breaks even.

portrait = lc.phase(
    target,
    network,
    learning_rate=1e-3,
    vary="input_strength",
    values=np.linspace(0.4, 1.8, 90),
    accuracies=stops,
)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
lc.figures.portrait(portrait, ax)
plt.show()

# %%
# What to do next
# ---------------
#
# - From a file: ``learncast phase examples/two_integration_tasks.toml --vary target_strength``.
# - Interactive: ``learncast explore``.
# - The theory: :doc:`/theory/curriculum2025`.
