"""
A forecast and real training
============================

A task with three channels of evidence has three modes. The network learns the strongest mode first. Dotted lines are the
forecast of gradient descent, computed before training from the statistics of the task. Coloured lines are a torch training on
batches of 500 trials. In both, the input and output weights learn and the recurrent weights stay fixed, which is the default
for a ``LinearRNN``.
"""

import matplotlib.pyplot as plt

import learncast as lc

task = lc.tasks.integration(steps=20, target_strength=[1.0, 0.6, 0.3])
network = lc.LinearRNN.aligned(
    recurrence=0.9, initial=0.02, hidden_size=32, task=task
)
print(lc.forecast(task, network, learning_rate=1e-2, goal=0.95))
descent = lc.descend(task, network, learning_rate=1e-2, steps=250)

record = lc.training.Records(("strength",), every=2)
run = lc.training.train(
    task, network, lc.Training(1e-2, batch=500), steps=250, record=record
)
forecast = descent.at(run.dataset["time"])["strength"].values
difference = abs(run.dataset["strength"].values - forecast) / forecast[-1]
print(f"Training is within {difference.max():.1%} of the forecast on every mode.")

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.mode_strengths(descent.at(range(251)).dataset, ax, simulated=run.dataset)
ax.set_title("Dotted: forecast. Coloured: training in torch.")
plt.show()
