"""
Forgetting
==========

A network learns one hierarchy of eight items, then another one of the same items. While it learns the second, the loss of the
first rises again. Solid: the task in training. Dotted: the other task.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

living = lc.tasks.hierarchy(3, name="living things")
colours = living.shuffled([0, 2, 4, 6, 1, 3, 5, 7], name="colours")
network = lc.TwoLayer.balanced(
    8, 16, living.outputs, scale=0.01, rng=np.random.default_rng(0)
)
forecast = lc.forget([living, colours], network, learning_rate=0.05)
print(forecast.losses().to_pandas().round(3))

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.forgetting_curves(forecast.curves(points=150), ax)
plt.show()
