"""
A hierarchy is learned from its root
====================================

Eight items hang in a binary tree. The network first tells the two halves apart, then the quarters, then single items. Each
level is a step of the loss.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(3)
network = lc.TwoLayer.balanced(8, 16, task.outputs, scale=0.001, rng=np.random.default_rng(0))
course = lc.forecast(task, network, learning_rate=0.05).solution.at(np.linspace(0, 450, 400))

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.mode_strengths(course.dataset, ax)
plt.show()
