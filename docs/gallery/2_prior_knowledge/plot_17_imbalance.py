"""
Learning time against scale and balance of the initial weights
==============================================================

Number of steps to learn a hierarchy, computed exactly for many initialisations. Grey cells never learn all modes, because
the flow ends on a saddle.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(2)
scales, imbalances = np.geomspace(0.01, 1.0, 9), np.linspace(-1.0, 1.0, 9)
rng = np.random.default_rng(0)


def steps(scale, imbalance):
    """Return the flow steps from one start."""
    network = lc.TwoLayer.balanced(
        task.inputs, 4, task.outputs, scale=scale, imbalance=imbalance, rng=rng
    )
    return lc.forecast(task, network, learning_rate=0.02, strict=False).steps.flow


times = np.array(
    [[steps(scale, imbalance) for imbalance in imbalances] for scale in scales]
).T

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
colours = plt.get_cmap().with_extremes(bad="0.5")
mesh = ax.pcolormesh(scales, imbalances, np.ma.masked_invalid(times), cmap=colours)
ax.figure.colorbar(mesh, label="gradient steps of the flow")
ax.set(
    xscale="log",
    xlabel="scale of the weights at the start",
    ylabel="imbalance of the two layers",
)
plt.show()
