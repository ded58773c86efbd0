"""
Similarity in the hidden layer
==============================

Similarity of eight items in the hidden layer before, during and after learning a hierarchy. Blocks appear in the order in
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

_, axes = plt.subplots(1, 4, figsize=(8, 2.6), layout="constrained")
for k, (time, ax) in enumerate(zip(times, axes, strict=True)):
    lc.figures.matrix(
        similarity.isel(time=k),
        ax,
        limit=float(abs(similarity).max()),
        bar=k == 3,
        title=f"{time} steps",
    )
plt.show()
