"""
Which task first, for a GRU?
============================

All weights of a GRU learn, so there is no exact forecast. A linear surrogate, trained on the statistics of the tasks with the
optimiser of the GRU, still ranks the plans. Scores are relative to direct training: below 1 is faster.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.leaky_integration(steps=12, timescale=10.0, name="slow evidence")
candidates = [
    lc.tasks.leaky_integration(
        steps=12, timescale=10.0, gain=2.0, name="strong slow evidence"
    ),
    lc.tasks.leaky_integration(steps=12, timescale=2.0, name="fast evidence"),
]
model = lc.training.gated_module("gru", hidden_size=24, seed=0)
advice = lc.advise(model, target, candidates, lc.Training(0.05, batch=64), goal=0.9)
print(advice.summary)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
lc.figures.plan_scores(advice.dataset, ax)
plt.show()
