"""
Initial weights that end on a saddle
====================================

Ten balanced initialisations of the same size. Some learn both modes. In the others a determinant has the wrong sign: the
exact gradient flow ends on a saddle and does not learn one mode. The forecast shows this before training. Descent stalls near the
saddle and leaves it late, by its finite steps or by noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.static(np.diag([1.5, 0.8]), name="two modes")
times = np.linspace(0, 600, 300)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
labelled, saddles = set(), []
for seed in range(10):
    start = lc.TwoLayer.balanced(
        2, 2, 2, scale=0.05, rng=np.random.default_rng(seed)
    )
    solution = lc.forecast(task, start, learning_rate=0.02).solution
    stuck = bool(solution.remarks)
    name = "the flow ends on a saddle" if stuck else "both modes are learned"
    ax.plot(
        times,
        solution.at(times)["excess_loss"],
        color=lc.figures.COLOURS[1] if stuck else lc.figures.COLOURS[0],
        alpha=0.8,
        label=None if name in labelled else name,
    )
    labelled.add(name)
    if stuck:
        saddles.append(seed)
print(
    f"{len(saddles)} of 10 end on a saddle: seeds {', '.join(map(str, saddles))}."
)
ax.set(xlabel="gradient steps of the flow", ylabel="excess loss")
ax.legend()
plt.show()
