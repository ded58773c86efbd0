"""
A hierarchy is learned from its root
====================================

Eight items form a binary tree. The network first separates the two halves, then the quarters, then single items. Each level
is a mode of the task.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(3)
network = lc.TwoLayer.balanced(
    8, 16, task.outputs, scale=0.001, rng=np.random.default_rng(0)
)
trajectory = lc.forecast(task, network, learning_rate=0.05).solution.at(
    np.linspace(0, 450, 400)
)
strengths = trajectory["strength"].values
half = trajectory.time[(strengths > strengths[-1] / 2).argmax(axis=0)]
steps = ", ".join(f"{step:.0f}" for step in half)
print(f"Modes 1 to {len(half)} are half learned after {steps} steps.")

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.mode_strengths(trajectory.dataset, ax)
plt.show()
