"""
What is forgotten
=================

A network learns one hierarchy of eight items, then another over the same items. While the second is learned, the loss of
the first rises again. Solid: the task in training. Dotted: the others.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

living = lc.tasks.hierarchy(3, name="living things")
colours = living.shuffled([0, 2, 4, 6, 1, 3, 5, 7], name="colours")
network = lc.TwoLayer.balanced(8, 16, living.outputs, scale=0.01, rng=np.random.default_rng(0))
course = lc.forget([living, colours], network, learning_rate=0.05)
print(course.losses().to_pandas().round(3))

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.forgetting_curves(course.curves(points=150), ax)
plt.show()
