"""
A start that never learns
=========================

Two balanced starts of the same size. One learns both modes. The other has the wrong sign of the determinant and ends on a
saddle, one mode short, however long it trains under the exact flow. The forecast says so before training.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.static(np.diag([1.5, 0.8]), name="two modes")
times = np.linspace(0, 600, 300)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
told = set()
for seed in range(10):
    start = lc.TwoLayer.balanced(2, 2, 2, scale=0.05, rng=np.random.default_rng(seed))
    course = lc.forecast(task, start, learning_rate=0.02).solution
    stuck = bool(course.remarks)
    name = "one mode is never learned" if stuck else "both modes are learned"
    ax.plot(
        times,
        course.at(times)["excess_loss"],
        color="#D55E00" if stuck else "#0072B2",
        alpha=0.8,
        label=None if name in told else name,
    )
    told.add(name)
    if stuck:
        print(f"seed {seed}: {course.remarks[0]}")
ax.set(xlabel="gradient steps of the flow", ylabel="excess loss")
ax.legend()
plt.show()
