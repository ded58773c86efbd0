"""
Learning time against scale and balance of the initial weights
==============================================================

Steps to learn a hierarchy, computed exactly for sixteen random initialisations per point: median (line) and range (area).
With imbalance the scale hardly matters. Without it, the steps grow as the weights shrink, and the flow from about half of
all initialisations ends on a saddle and never learns all modes.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(2)
scales = np.geomspace(0.01, 1.0, 7)
rng = np.random.default_rng(0)


def steps(scale, imbalance):
    """Return the flow steps from one start; infinite if it ends on a saddle."""
    network = lc.TwoLayer.balanced(
        task.inputs, 4, task.outputs, scale=scale, imbalance=imbalance, rng=rng
    )
    return lc.forecast(task, network, learning_rate=0.02, strict=False).steps.flow


_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for imbalance, colour in zip((0.0, 0.3, 1.0), lc.figures.COLOURS):
    times = np.array([[steps(one, imbalance) for _ in range(16)] for one in scales])
    never = np.isinf(times).sum()
    times[np.isinf(times)] = np.nan
    low, middle, high = np.nanquantile(times, (0, 0.5, 1), axis=1)
    print(
        f"imbalance {imbalance:g}: medians from {min(middle):.0f} to "
        f"{max(middle):.0f} steps, {never} of {times.size} never"
    )
    ax.fill_between(scales, low, high, color=colour, alpha=0.2, linewidth=0)
    label = f"imbalance {imbalance:g}: {never} of {times.size} never"
    ax.plot(scales, middle, "o-", color=colour, label=label)
ax.set(
    xscale="log",
    ylim=(0, None),
    xlabel="scale of the weights at the start",
    ylabel="gradient steps of the flow",
)
lc.figures.key(ax, below=True, ncols=1)
plt.show()
