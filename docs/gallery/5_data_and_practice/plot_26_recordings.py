"""
How many recorded trials are enough?
====================================

The statistics of a recorded task are estimates, so every forecast from them has a sampling error. More trials of the same
experiment give a narrower 95% interval of the number of steps.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

rng = np.random.default_rng(0)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=16)
numbers = [50, 100, 200, 400, 800]
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for trials in numbers:
    evidence = rng.standard_normal((trials, 12, 1))
    answer = evidence.sum(axis=1) + rng.standard_normal((trials, 1))
    task = lc.Task.from_samples(evidence, answer)
    steps = lc.forecast(task, network, learning_rate=2e-3, goal=0.95).steps
    low, high = steps.interval
    ax.plot([trials, trials], [low, high], color=lc.figures.COLOURS[0], linewidth=3)
    ax.plot(trials, steps.descent, "o", color="black")
ax.lines[0].set_label("95% interval")
ax.lines[1].set_label("forecast")
ax.set(
    xscale="log",
    xlabel="recorded trials",
    ylabel="gradient steps to 95%",
    xticks=numbers,
    xticklabels=numbers,
)
ax.minorticks_off()
ax.legend()
plt.show()
