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
losses = forecast.losses()
print(losses.to_pandas().round(2))
before, after = (float(losses.sel(task="living things")[k]) for k in (0, -1))
print(
    f"After 'colours' the loss of 'living things' is {after:.2f}, more than the "
    f"{before:.2f} of the untrained network."
)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.forgetting_curves(forecast.curves(points=150), ax)
plt.show()
