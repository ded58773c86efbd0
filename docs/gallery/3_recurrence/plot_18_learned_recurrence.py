"""
Learned recurrence
==================

The target weighs evidence with a leak of 0.8. The network starts with a recurrence of 0.5, and all weights learn. The
forecast integrates the exact gradient flow. The recurrence converges to the leak of the task.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.sensory.leaky(10, decay=0.8)
network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=16)
training = lc.Training(1e-2, learn=("input", "recurrent", "output"))
solution = lc.forecast(task, network, training).solution

times = np.linspace(0, 700, 80)
largest = [
    max(abs(np.linalg.eigvals(solution.network_at(t).recurrent_weights)))
    for t in times
]
print(
    f"The recurrence grows from {largest[0]:.2f} to {max(largest):.2f} "
    f"and settles at {largest[-1]:.3f}."
)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.plot(times, largest, color=lc.figures.COLOURS[0])
ax.axhline(
    0.8, color=lc.figures.COLOURS[1], linestyle="--", label="leak of the task"
)
ax.set(xlabel="gradient steps", ylabel="spectral radius of the recurrence")
ax.legend()
plt.show()

# %%
# The loss falls in the same time.

_, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(times, solution.at(times)["loss"], color=lc.figures.COLOURS[0])
ax.set(xlabel="gradient steps", ylabel="loss", yscale="log")
plt.show()
