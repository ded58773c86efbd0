"""
How exactly must the target be learned?
=======================================

Across: how long the first task is trained. Up: how small an error you ask for. Whatever you ask for, a stop at the edge of
the target's tolerance band saves most (the dark ridge); the star is the plan. Past the black line pretraining costs steps.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], network, learning_rate=1e-3)

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.stop_map(plan.stop_portrait(), ax)
plt.show()
