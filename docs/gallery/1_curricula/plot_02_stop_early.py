"""
When to stop the first task
===========================

Train a task with stronger targets first, then the target. The total number of steps is smallest for one stop, long before the
first task is learned. Slightly earlier or later stops lose much of the saving.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], network, learning_rate=1e-3)

stops = np.linspace(0.02, 0.995, 80)
curricula = [
    lc.follow(
        [lc.Stage(stronger, s), lc.Stage(target, 0.99)], network, learning_rate=1e-3
    )
    for s in stops
]

print(
    f"The best stop is at {plan.best.stages[0].accuracy:.0%}: "
    f"{plan.total:.0f} steps in all, where direct training takes "
    f"{plan.direct_steps:.0f}."
)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(
    100 * stops,
    [c.steps.descent for c in curricula],
    color=lc.figures.COLOURS[0],
    label="first task, then target",
)
ax.axhline(plan.direct_steps, color="grey", linestyle="--", label="direct training")
ax.plot(
    100 * plan.best.stages[0].accuracy,
    plan.total,
    "*",
    color=lc.figures.COLOURS[7],
    markeredgecolor="0.01",
    markersize=14,
    label="plan",
)
ax.set(
    xlabel="accuracy at which the first task stops (%)",
    ylabel="total gradient steps",
    ylim=(0, None),
)
ax.legend()
plt.show()
