"""
What it costs not to forget
===========================

A plan may be asked to keep the loss of a candidate small until the end. Each point is the cheapest plan for one limit: less
forgotten is dearer.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
weaker = target.varied(target_strength=0.7).renamed("weaker targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger, weaker], network, learning_rate=1e-3, terms=lc.Terms(goal=lc.Accuracy(0.8)))
front = plan.front(stronger, points=8)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(front.excess_loss, [schedule.total for schedule in front.schedules], "o-", color="#0072B2")
ax.set(xlabel="excess loss of 'stronger targets' at the end", ylabel="flow steps in all", ylim=(0, None))
plt.show()
