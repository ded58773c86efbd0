"""
Rich and lazy learning
======================

From balanced layers a network learns features: its tangent kernel rotates. If one layer is much larger than the other, the
kernel keeps its direction and only a linear readout is learned. The misalignment is one minus the cosine between the kernel
and the kernel at the start. With an imbalance of 4 or 16 it stays at zero: the dashed line lies on the other.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.static(np.diag([2.0, 1.0, 0.5, 0.25]), name="four modes")
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
looks = [(0, "-", 2), (5, "-", 2), (4, "-", 4), (1, "--", 2)]
for imbalance, look in zip([0.0, 1.0, 4.0, 16.0], looks, strict=True):
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
    print(f"imbalance {imbalance:g}: {1 - cosine[-1]:.2f} when learned")
    ax.plot(
        times / times[-1],
        1 - np.array(cosine),
        color=lc.figures.COLOURS[look[0]],
        linestyle=look[1],
        linewidth=look[2],
        label=f"imbalance {imbalance:g}",
    )
ax.set(
    xlabel="fraction of the learning time",
    ylabel="misalignment with the kernel at the start",
)
ax.legend()
plt.show()
