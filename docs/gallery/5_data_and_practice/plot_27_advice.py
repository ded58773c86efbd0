"""
How to train a GRU soonest
==========================

All weights of a GRU learn, so there is no exact forecast. Pilots of five steps find a learning rate that the network bears
(left). For a goal on the loss, a linear surrogate then ranks tasks to train first; below 1 is faster than direct training
(right).
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.leaky_integration(steps=12, timescale=10.0, name="slow evidence")
candidates = [
    lc.tasks.leaky_integration(steps=12, timescale=10.0, gain=2.0, name="strong slow evidence"),
    lc.tasks.leaky_integration(steps=12, timescale=2.0, name="fast evidence"),
]
model = lc.training.gated_module("gru", hidden_size=24, seed=0)
advice = lc.advise(model, target, candidates, lc.Training(0.05, batch=64), goal=0.9)
print(advice.summary)

_, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
lc.figures.pilot_losses(advice.dataset, axes[0])
lc.figures.plan_scores(advice.dataset, axes[1])
plt.show()
