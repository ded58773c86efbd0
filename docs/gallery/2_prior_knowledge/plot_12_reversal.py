"""
Reversal learning passes a saddle
=================================

After a task is learned, all answers are reversed. The weights must pass through zero, where the gradient vanishes. With
balanced layers they stay there forever. The more the two layers are unbalanced, the shorter the plateau.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.static(np.diag([2.0, 1.0]), name="first")
back = lc.tasks.reversed(task, name="reversed")
times = np.linspace(0, 400, 400)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
colours = [lc.figures.COLOURS[k] for k in (0, 2, 4, 1)]
for imbalance, colour in zip([0.0, 0.01, 0.1, 1.0], colours, strict=True):
    start = lc.TwoLayer.balanced(
        2, 2, 2, scale=0.1, imbalance=imbalance, rng=np.random.default_rng(1)
    )
    learned = lc.forecast(task, start, learning_rate=0.02).solution.network_at(
        np.inf
    )
    solution = lc.forecast(back, learned, learning_rate=0.02).solution
    ax.plot(
        times,
        solution.at(times)["excess_loss"],
        color=colour,
        label=f"imbalance {imbalance:g}",
    )
ax.set(
    xlabel="gradient steps since the reversal",
    ylabel="excess loss of the reversed task",
)
ax.legend()
plt.show()
