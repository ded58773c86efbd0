"""
Training in batches
===================

The steps of a plan are for full batches. With 16, 64 or 256 trials per batch the number of steps varies between runs. Each point
is one simulated run with its own batches.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(
    target, [stronger], network, learning_rate=1e-3, terms=lc.Terms(0.95)
)
print(f"full batches: {plan.total:.0f} steps")

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for k, batch in enumerate([16, 64, 256]):
    runs = plan.best.in_batches(batch)
    steps = runs.steps.sum(axis=0)
    print(f"batches of {batch}: {steps.mean():.0f} +- {steps.std():.0f} steps")
    ax.plot(
        k + np.linspace(-0.15, 0.15, len(steps)),
        steps,
        "o",
        color=lc.figures.COLOURS[0],
        alpha=0.6,
    )
    mean = "mean" if k == 0 else None
    ax.plot([k - 0.25, k + 0.25], [steps.mean()] * 2, color="black", label=mean)
ax.axhline(
    plan.total, color=lc.figures.COLOURS[1], linestyle="--", label="full batches"
)
ax.set(
    xticks=range(3),
    xticklabels=["16", "64", "256"],
    xlabel="trials per batch",
    ylabel="total gradient steps",
)
ax.legend()
plt.show()
