"""
One task, four optimisers
=========================

Descent on the exact statistics of a task with two modes, by four update rules and without the noise of batches. Closed-form
forecasts are for plain gradient descent.
"""

import matplotlib.pyplot as plt

import learncast as lc

task = lc.tasks.integration(steps=20, target_strength=[1.0, 0.3])
network = lc.LinearRNN.aligned(
    recurrence=0.9, initial=0.05, hidden_size=8, task=task
)
rates = {"gd": 5e-3, "momentum": 5e-4, "adam": 1e-2, "adamw": 1e-2}

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for name, rate in rates.items():
    run = lc.descend(task, network, lc.Training(rate, optimizer=name), steps=500)
    loss = run.at(range(501))["excess_loss"].values.clip(min=1e-12)
    learned = int((loss < 0.01 * loss[0]).argmax())
    print(f"{name}: 99% of the excess loss is gone after {learned} steps")
    ax.semilogy(
        loss,
        label=f"{name}, rate {rate:g}",
    )
ax.set(xlabel="steps", ylabel="excess loss", ylim=(1e-8, None))
lc.figures.key(ax, below=True, ncols=2)
plt.show()
