"""
The fastest path through a pool of tasks
========================================

If a change of task is free, always train the task that increases the present strength fastest. The speed of the fastest path
is the upper envelope of the speeds of all tasks.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

names, cross, power = ["strong", "medium", "weak"], np.array([3.0, 2.0, 1.2]), np.array([2.2, 0.9, 0.3])
path = lc.planning.fastest_path(cross, power, start=0.01, end=3.0, learning_rate=1e-2)

strength = np.linspace(0.0, 3.2, 200)
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for k, name in enumerate(names):
    ax.plot(strength, 2 * strength * (cross[k] - power[k] * strength), linestyle=":", color=f"C{k}")
for leg in path.legs:
    u = np.linspace(leg.start, leg.end, 50)
    ax.plot(
        u,
        2 * u * (cross[leg.task] - power[leg.task] * u),
        linewidth=3,
        color=f"C{leg.task}",
        label=f"{names[leg.task]}: {leg.flow_steps:.0f} steps",
    )
ax.set(xlabel="strength $u$ of the mode", ylabel="speed $du/dt$ (learning rate 1)", ylim=(0, 3.5))
ax.legend(title="train on", loc="upper right")
plt.show()
