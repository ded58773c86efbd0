"""
The fastest path through a pool of tasks
========================================

If a change of task is free, always train the task that increases the present strength fastest. The speed of the fastest path
is the upper envelope of the speeds of all tasks.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

names, cross, power = (
    ["strong", "medium", "weak"],
    np.array([3.0, 2.0, 1.2]),
    np.array([2.2, 0.9, 0.3]),
)
rate, start = 1e-2, 0.01
*pool, target = [
    lc.tasks.static([[b]], [[p]], name=name)
    for name, b, p in zip(names, cross, power, strict=True)
]
network = lc.LinearRNN.aligned(recurrence=0.9, initial=start**0.5, hidden_size=1)
route = lc.plan(
    target, pool, network, learning_rate=rate, terms=lc.Terms(0.75, max_stages=3)
).flow_route
total = sum(route.durations) + route.rest
direct = lc.forecast(target, network, learning_rate=rate, goal=0.75)
print(
    f"The fastest path takes {total:.0f} steps of the flow, "
    f"training on the target only {direct.steps.flow:.0f}."
)

strength = np.linspace(0.0, 3.2, 200)
_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for k in range(len(names)):
    ax.plot(
        strength,
        2 * strength * (cross[k] - power[k] * strength),
        linestyle=":",
        color=f"C{k}",
    )
for k, steps in zip((*route.order, 2), (*route.durations, route.rest), strict=True):
    u = lc.theory.strength(
        np.linspace(0, steps * rate, 50), start, 0.0, cross[k], power[k]
    )
    ax.plot(
        u,
        2 * u * (cross[k] - power[k] * u),
        linewidth=3,
        color=f"C{k}",
        label=f"{names[k]}: {steps:.0f} steps",
    )
    start = u[-1]
ax.set(
    xlabel="strength $u$ of the mode",
    ylabel="speed $du/dt$ (learning rate 1)",
    ylim=(0, 3.5),
)
ax.legend(title="train on", loc="upper right")
plt.show()
