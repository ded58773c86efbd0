"""
ReLU units, with an interval
============================

Units that are not linear but keep their recurrence fixed are forecast through their measured response. What is measured is
uncertain: the forecast carries a 95% interval, which shrinks with the trials it was measured on.
"""

import matplotlib.pyplot as plt

import learncast as lc

task = lc.tasks.integration(steps=20)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
relu = lc.Activated(network, "relu")
trials = [250, 1000, 4000, 16000]
found = [lc.planning.method_for([task], relu, 2e-3, trials=n, strict=True).solution().time_to(0.95) for n in trials]
linear = lc.forecast(task, network, learning_rate=2e-3).solution.time_to(0.95)

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for n, time in zip(trials, found, strict=True):
    low, high = time.interval
    ax.plot([n, n], [low, high], color="#0072B2", linewidth=3)
    ax.plot(n, time.flow_steps, "o", color="black")
ax.axhline(linear.flow_steps, color="#D55E00", linestyle="--", label="the same network with linear units")
ax.set(xscale="log", xlabel="trials the response was measured on", ylabel="gradient steps to 95%")
ax.legend()
plt.show()
