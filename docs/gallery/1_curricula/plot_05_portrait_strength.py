"""
Phase portrait: how strong should the first task be?
====================================================

Every point is a curriculum of two stages. The horizontal axis is the accuracy at which the first task stops. The vertical axis
is the strength of its targets; the target task has strength 1. Blue saves steps and red costs steps. On the bright curve the
first task ends on the target's solution.
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

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.portrait(portrait, ax, target_value=1.0)
plt.show()
