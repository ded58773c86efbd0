"""
When to stop, from 60 trials
============================

The held-out loss is estimated from the trials themselves, by folds that descend on their statistics. The population from which these
trials were drawn is known here, so the estimate (blue, with its 95% band) can be compared with the truth (dotted).
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

rng = np.random.default_rng(3)
teacher = np.outer(rng.standard_normal(2), rng.standard_normal(20)) / 4
inputs = rng.standard_normal((60, 20))
targets = inputs @ teacher.T + 1.5 * rng.standard_normal((60, 2))
task = lc.Task.from_samples(inputs[:, None], targets, name="60 trials")
population = lc.Task(
    np.eye(20)[None, :, None, :],
    teacher.T[None],
    teacher @ teacher.T + 1.5**2 * np.eye(2),
)
network = lc.TwoLayer.random(20, 8, 2, scale=0.1, rng=rng)

held_out = lc.generalise(task, network, learning_rate=0.05, most_steps=2000)
truth = lc.generalise(
    task, network, learning_rate=0.05, most_steps=2000, test=population
).curve

_, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
held_out.plot(ax, title=f"Stop after about {held_out.stop} steps")
ax.plot(
    truth["steps"][1:],
    truth["held_out"][1:],
    **lc.figures.THEORY,
    label="population",
)
lc.figures.key(ax, below=True, ncols=3)
plt.show()
