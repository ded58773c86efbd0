"""
Similarity in the hidden layer
==============================

Similarity (products of the activities) of eight items in the hidden layer before, during and after learning a hierarchy. Blocks appear in the order in
which the levels are learned.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(3)
network = lc.TwoLayer.balanced(
    8, 16, task.outputs, scale=0.05, rng=np.random.default_rng(0)
)
solution = lc.forecast(task, network, learning_rate=0.05).solution
times = [0, 60, 140, 500]
similarity = lc.theory.hidden_similarity(
    solution, times, task.items, task.features.T
)["hidden_similarity_input"]
item = np.arange(8)
pair, half = (item[:, None] // size == item // size for size in (2, 4))
for time, matrix in zip(times, similarity.values, strict=True):
    print(
        f"{time} steps: mean similarity {matrix[pair].mean():.2f} within pairs, "
        f"{matrix[half & ~pair].mean():.2f} within halves, "
        f"{matrix[~half].mean():.2f} across"
    )

_, axes = plt.subplots(1, 4, figsize=(8, 2.3), layout="constrained")
for k, (time, ax) in enumerate(zip(times, axes, strict=True)):
    lc.figures.matrix(
        similarity.isel(time=k),
        ax,
        limit=float(abs(similarity).max()),
        bar=k == 3,
        title=f"{time} steps",
    )
    ax.set(xlabel="item", ylabel="item" if k == 0 else "")
plt.show()
