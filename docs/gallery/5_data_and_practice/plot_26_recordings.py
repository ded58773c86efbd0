"""
How many recorded trials are enough?
====================================

The statistics of a recorded task are estimates, so every forecast from them has a sampling error. More trials of the same
experiment give a narrower 95% interval of the number of steps. A single forecast may move away from the truth with more trials, as here
from 400 to 800; the interval says how far it can be off.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

rng = np.random.default_rng(0)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=16)
numbers = [50, 100, 200, 400, 800]


def steps_from(trials):
    """Draw trials of the experiment, and forecast from them."""
    evidence = rng.standard_normal((trials, 12, 1))
    answer = evidence.sum(axis=1) + rng.standard_normal((trials, 1))
    task = lc.Task.from_samples(evidence, answer)
    return lc.forecast(task, network, learning_rate=2e-3, goal=0.95).steps


_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for trials in numbers:
    steps = steps_from(trials)
    low, high = steps.interval
    print(f"{trials} trials: {steps.descent:.0f} steps ({low:.0f} to {high:.0f})")
    ax.plot([trials, trials], [low, high], color=lc.figures.COLOURS[0], linewidth=3)
    ax.plot(trials, steps.descent, "o", color="black")
ax.lines[0].set_label("95% interval")
ax.lines[1].set_label("forecast")
truth = steps_from(100_000).descent
print(f"100,000 trials: {truth:.0f} steps")
ax.axhline(truth, color="grey", linestyle="--", label="100,000 trials")
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
