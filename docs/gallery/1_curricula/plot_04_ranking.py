"""
Rank a pool of candidates
=========================

Twelve tasks could be trained before the target. A step costs in proportion to the length of its trials, and each change of
task costs as much as twenty steps on the target. Each bar is the cost of the best plan with one candidate: T is the
number of time steps of its trials, the factor the strength of its targets.
"""

from itertools import product

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.leaky_integration(
    steps=50, timescale=[10.0, 20.0], gain=[1.0, 0.8], name="two channels"
)
pool = [
    lc.tasks.integration(
        steps=steps,
        target_strength=[strength] * 2,
        name=f"T = {steps}, × {strength:g}",
    )
    for steps, strength in product([10, 25, 50], [0.6, 1.0, 1.5, 2.0])
]
network = lc.LinearRNN.aligned(
    recurrence=0.96, initial=0.01, hidden_size=64, task=target
)
terms = lc.Terms(
    costs=[task.steps / 50 for task in [*pool, target]], switch_cost=20.0
)
plan = lc.plan(target, pool, network, learning_rate=5e-4, terms=terms)
print(plan.summary)

_, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
lc.figures.ranking(plan.dataset, ax, most=12, priced=True)
plt.show()
