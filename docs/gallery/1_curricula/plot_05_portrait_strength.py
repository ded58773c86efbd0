"""
Phase portrait: how strong should the first task be?
====================================================

Every point is a curriculum of two stages. The horizontal axis is the accuracy at which the first task stops. The vertical axis
is the strength of its targets; the target task has strength 1. Blue saves steps and red costs steps, each on a scale of its own,
because the largest loss exceeds the largest saving. On the yellow curve, *target's optimum*, the first task ends on the target's
solution. The star is the best curriculum of the map.

Where it *breaks even*, pretraining neither saves nor costs; at strength 1 the first task is the target itself. The hook of this line at the right encloses first tasks that are slightly stronger and trained almost to their end: they overshoot and cost steps.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
values, accuracies = np.linspace(0.4, 3, 80), np.linspace(0.05, 0.99, 80)
portrait = lc.phase(
    target,
    network,
    learning_rate=1e-3,
    vary="target_strength",
    values=values,
    accuracies=accuracies,
)

saved = portrait["saved_descent_steps"]
best = saved.isel(saved.argmax(...))
print(
    f"Training strength {float(best['target_strength']):.3g} until "
    f"{float(best['accuracy']):.0%} is learned saves {int(best)} of "
    f"{int(portrait['direct_descent_steps'])} steps."
)

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.portrait(portrait, ax)
place = float(best["accuracy"]), float(best["target_strength"])
ax.plot(
    *place, "*", color=lc.figures.COLOURS[7], markersize=13, markeredgecolor="0.01"
)
ax.annotate(
    f"saves {int(best)}",
    place,
    xytext=(-6, -18),
    textcoords="offset points",
    ha="right",
    color="0.01",
    bbox={"facecolor": "0.99", "edgecolor": "none", "alpha": 0.85, "pad": 2},
)
plt.show()
