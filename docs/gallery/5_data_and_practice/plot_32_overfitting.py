"""
When to stop, from 150 trials
=============================

A network learns to read a reach from the rates of 60 noisy neurons. The loss on new trials is forecast from the 150 recorded trials
(blue, with its 95% interval) and measured on a thousand new ones (dotted).
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

rng = np.random.default_rng(0)
tuning = rng.normal(size=(2, 60))


def record(trials):
    """Return the rates of 60 neurons and the two coordinates of the reach."""
    reach = rng.normal(size=(trials, 2))
    rates = reach @ tuning + 5 * rng.normal(size=(trials, 60))
    return rates[:, np.newaxis], reach  # one time step


recorded, new = record(150), record(1000)
network = lc.TwoLayer.random(60, 8, 2, scale=0.05, rng=0)

options = {"learning_rate": 0.005, "most_steps": 1000}
held_out = lc.generalise(recorded, network, **options)
truth = lc.generalise(recorded, network, test=new, **options)
print(held_out.sentence)

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
held_out.plot(ax, title=f"Stop after about {held_out.stop} steps")
ax.plot(
    truth.curve["steps"][1:],
    truth.curve["held_out"][1:],
    **lc.figures.THEORY,
    label="new trials",
)
lc.figures.key(ax, below=True, ncols=3)
plt.show()
