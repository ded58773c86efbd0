"""
Why pretraining is faster
=========================

A task with stronger targets increases the weights faster. The plan stops it at the edge of the target's tolerance band, so
that the target needs no further training.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], network, learning_rate=1e-3)
direct = lc.forecast(target, network, learning_rate=1e-3).solution
print(plan.best.explanation.sentence)

times = np.arange(0, 400)
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.curriculum_paths(
    plan.best.at(times).dataset,
    direct.at(times).dataset,
    ax,
    optimum=float(direct.optimum[0]),
    tolerance=0.01,
    first_optimum=float(
        lc.forecast(stronger, network, learning_rate=1e-3).solution.optimum[0]
    ),
    switch=plan.best.stages[0].steps.flow,
)
plt.show()
