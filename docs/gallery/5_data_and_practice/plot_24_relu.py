"""
ReLU units, with an interval
============================

Networks of nonlinear units with fixed recurrence are forecast through their measured responses. The measurement has a
sampling error, so the forecast has a 95% interval. The interval shrinks with the number of measured trials.
"""

import matplotlib.pyplot as plt

import learncast as lc

task = lc.tasks.integration(steps=20)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
relu = lc.Activated(network, "relu")
trials = [250, 1000, 4000, 16000]
methods = [
    lc.planning.method_for([task], relu, lc.Training(2e-3), trials=n)
    for n in trials
]
times = [method.solution().time_to(0.95) for method in methods]
linear = lc.forecast(task, network, learning_rate=2e-3, goal=0.95).steps
print(f"linear units: {linear.flow:.0f} steps")
for n, time in zip(trials, times, strict=True):
    low, high = time.interval
    print(f"{n} trials: {time.flow_steps:.0f} steps ({low:.0f} to {high:.0f})")

_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for n, time in zip(trials, times, strict=True):
    low, high = time.interval
    ax.plot([n, n], [low, high], color=lc.figures.COLOURS[0], linewidth=3)
    ax.plot(n, time.flow_steps, "o", color="black")
ax.lines[0].set_label("95% interval")
ax.lines[1].set_label("forecast")
ax.axhline(
    linear.flow, color=lc.figures.COLOURS[1], linestyle="--", label="linear units"
)
ax.set(
    xscale="log",
    xlabel="trials on which the responses are measured",
    ylabel="gradient steps to 95%",
)
ax.legend()
plt.show()
