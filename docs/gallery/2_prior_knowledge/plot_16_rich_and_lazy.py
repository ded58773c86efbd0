"""
Rich and lazy learning
======================

From balanced layers a network learns features: its tangent kernel rotates. If one layer is much larger than the other, the
kernel keeps its direction and only a linear readout is learned. The misalignment is one minus the cosine between the kernel
and the kernel at the start.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.static(np.diag([2.0, 1.0, 0.5, 0.25]), name="four modes")
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
colours = [lc.figures.COLOURS[k] for k in (0, 5, 4, 1)]
for imbalance, colour in zip([0.0, 1.0, 4.0, 16.0], colours, strict=True):
    network = lc.TwoLayer.balanced(
        4, 4, 4, scale=0.05, imbalance=imbalance, rng=np.random.default_rng(2)
    )
    solution = lc.forecast(task, network, learning_rate=0.01).solution
    times = np.linspace(0, solution.time_to(0.99).flow_steps, 60)
    first, *kernels = [
        lc.theory.tangent_kernel(solution, time, np.eye(4)) for time in (0, *times)
    ]
    cosine = [
        np.sum(first * k) / np.linalg.norm(first) / np.linalg.norm(k)
        for k in kernels
    ]
    ax.plot(
        times / times[-1],
        1 - np.array(cosine),
        color=colour,
        label=f"imbalance {imbalance:g}",
    )
ax.set(
    xlabel="fraction of the learning time",
    ylabel="misalignment with the kernel at the start",
)
ax.legend()
plt.show()
