"""
How accurately must the target be learned?
==========================================

The horizontal axis is the length of the first stage. The vertical axis is the error that you accept on the target. At every
accepted error, the best stop is at the edge of the target's tolerance band (the dark ridge). The star is the plan. Beyond the
black line pretraining costs steps.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], network, learning_rate=1e-3)
for goal in (0.9, 0.99, 0.999):
    one = lc.plan(
        target, [stronger], network, learning_rate=1e-3, terms=lc.Terms(goal)
    )
    print(
        f"to {goal:.1%}: {one.total:.0f} steps instead of {one.direct_steps:.0f}, "
        f"with the first task stopped at {one.best.stages[0].accuracy:.0%}"
    )

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
lc.figures.stop_map(plan.stop_portrait(), ax)
plt.show()
