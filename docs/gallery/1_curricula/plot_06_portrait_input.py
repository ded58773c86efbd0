"""
Phase portrait: should the first inputs be weaker?
==================================================

The first task has weaker or stronger inputs than the target, with the same targets. Blue saves steps and red costs steps.
Weaker inputs help only if the first task stops early, well before it is learned.
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

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.portrait(portrait, ax, target_value=1.0)
plt.show()
