"""
Which task first, for a GRU?
============================

Everything in a GRU learns, so no exact forecast exists. Its linear part, trained on the statistics of the tasks with the
GRU's own optimiser, still ranks the plans. Scores are relative to training directly: below 1 is quicker.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.leaky_integration(steps=12, timescale=10.0, name="slow evidence")
candidates = [
    lc.tasks.leaky_integration(steps=12, timescale=10.0, gain=2.0, name="strong slow evidence"),
    lc.tasks.leaky_integration(steps=12, timescale=2.0, name="quick evidence"),
]
model = lc.training.gated_module("gru", hidden_size=24, seed=0)
advice = lc.advise(model, target, candidates, lc.Training(0.05, batch=64), goal=0.9)
print(advice.summary)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
lc.figures.plan_scores(advice.dataset, ax)
plt.show()
