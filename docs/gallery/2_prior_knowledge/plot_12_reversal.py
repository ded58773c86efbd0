"""
Reversal learning passes a saddle
=================================

After a task is learned, all answers are reversed. The weights must pass through zero, where the gradient vanishes. With
balanced layers the gradient flow stays there. The more the two layers are unbalanced, the shorter the plateau.
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
    loss = solution.at(times)["excess_loss"].values
    learned = times[loss < 0.01 * loss[0]]
    print(
        f"imbalance {imbalance:g}: 99% of the loss is gone after",
        f"{learned[0]:.0f} steps" if learned.size else "more than 400 steps",
    )
    ax.plot(
        times,
        loss,
        color=colour,
        label=f"imbalance {imbalance:g}" + (": stays" if imbalance == 0 else ""),
    )
ax.set(
    xlabel="gradient steps since the reversal",
    ylabel="excess loss of the reversed task",
)
ax.legend()
plt.show()
