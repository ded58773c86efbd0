"""
Similarity of tasks and forgetting
==================================

Two tasks map one input to different directions of the output. The larger the angle between the directions, the more of the
first task is forgotten when the second is trained.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

first = lc.tasks.static([[1.0], [0.0]], name="first")
network = lc.TwoLayer.balanced(1, 6, 2, scale=0.05, rng=np.random.default_rng(2))
directions = np.linspace(0, 90, 13)
losses = []
for angle in np.deg2rad(directions):
    second = lc.tasks.static([[np.cos(angle)], [np.sin(angle)]], name="second")
    table = lc.forget([first, second], network, learning_rate=0.02).losses()
    losses.append(float(table.sel(task="first").isel(stage=-1)))
print(
    f"Loss of the first task: {losses[0]:.2f} after the same task, "
    f"{losses[len(losses) // 2]:.2f} at 45 degrees, {losses[-1]:.2f} at 90 degrees."
)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(directions, losses, "o-", color=lc.figures.COLOURS[0])
ax.set(
    xlabel="angle between the directions of the output (degrees)",
    ylabel="loss of the first task after the second",
)
plt.show()
