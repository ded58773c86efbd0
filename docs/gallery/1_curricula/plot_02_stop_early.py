"""
When to stop the first task
===========================

Pretrain on stronger targets, then train the target. The whole way is shortest for one stop, long before the first task is
learned. A little before or after it, much of the gain is lost.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], network, learning_rate=1e-3)

stops = np.linspace(0.02, 0.995, 80)
ways = [
    lc.follow([lc.Stage(stronger, goal=s), lc.Stage(target, goal=0.99)], network, learning_rate=1e-3)
    for s in stops
]

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(100 * stops, [way.descent_steps for way in ways], color="#0072B2", label="pretrained, then the target")
ax.axhline(plan.direct_steps, color="#D55E00", linestyle="--", label="the target alone")
ax.plot(100 * plan.stages[0].accuracy, plan.total, "*", color="black", markersize=12, label="the plan")
ax.set(xlabel="stronger targets are trained until (%)", ylabel="gradient steps in all", ylim=(0, None))
ax.legend()
plt.show()
