"""
Phase portrait: should the first inputs be weaker?
==================================================

The first task has weaker or stronger inputs than the target, with the same targets. Blue saves steps and red costs steps, each on
a scale of its own. Weaker inputs help only if the first task stops early, left of the lower line. On the lines
pretraining breaks even; at strength 1 the first task is the target itself. The star is the best curriculum of the map.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
values, accuracies = np.linspace(0.4, 1.8, 80), np.linspace(0.05, 0.99, 80)
portrait = lc.phase(
    target,
    network,
    learning_rate=1e-3,
    vary="input_strength",
    values=values,
    accuracies=accuracies,
)

saved = portrait["saved_descent_steps"]
best = saved.isel(saved.argmax(...))
print(
    f"Training inputs of strength {float(best['input_strength']):.3g} until "
    f"{float(best['accuracy']):.0%} is learned saves {int(best)} of "
    f"{int(portrait['direct_descent_steps'])} steps."
)

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.portrait(portrait, ax)
place = float(best["accuracy"]), float(best["input_strength"])
ax.plot(
    *place, "*", color=lc.figures.COLOURS[7], markersize=13, markeredgecolor="0.01"
)
ax.annotate(
    f"saves {int(best)}",
    place,
    xytext=(-12, 4),
    textcoords="offset points",
    ha="right",
    color="0.01",
    bbox={"facecolor": "0.99", "edgecolor": "none", "alpha": 0.85, "pad": 2},
)
plt.show()
