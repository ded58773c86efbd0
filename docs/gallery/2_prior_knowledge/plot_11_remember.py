"""
The cost of remembering
=======================

A plan can limit the loss that a candidate has in the end. Each point is the cheapest plan for one limit. Remembering more costs
more steps, but not many; the vertical axis does not begin at zero.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
weaker = target.varied(target_strength=0.7).renamed("weaker targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(
    target, [stronger, weaker], network, learning_rate=1e-3, terms=lc.Terms(0.8)
)
front = plan.front(stronger, points=8)
print(
    f"Lowering the loss from {max(front.excess_loss):.1f} to "
    f"{min(front.excess_loss):.1f} takes {max(front.total):.0f} instead of "
    f"{min(front.total):.0f} steps, "
    f"{max(front.total) / min(front.total) - 1:.0%} more."
)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(front.excess_loss, front.total, "o-", color=lc.figures.COLOURS[0])
ax.set(
    xlabel="excess loss of 'stronger targets' at the end",
    ylabel="total flow steps",
)
plt.show()
