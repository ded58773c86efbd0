"""
A forecast beside real training
===============================

Three channels of evidence, each a mode of the task, are learned one after the other: the strongest first. The dotted lines
were known before training. The coloured lines were trained in torch, by plain gradient descent on batches of 500 trials.
Both keep the recurrent weights fixed, which is the default.
"""

import matplotlib.pyplot as plt

import learncast as lc

task = lc.tasks.integration(steps=20, target_strength=[1.0, 0.6, 0.3])
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=32, task=task)
forecast = lc.forecast(task, network, learning_rate=1e-2).solution
print(forecast.time_to(0.95))

run = lc.training.train(task, network, lc.Training(1e-2, batch=500), steps=250, record=lc.training.Records(every=2))

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
lc.figures.mode_strengths(forecast.at(range(251)).dataset, ax, simulated=run.dataset)
ax.set_title("Dotted: forecast. Colour: trained in torch.")
plt.show()
