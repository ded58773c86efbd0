"""
Starts of every scale and balance
=================================

Many exact courses at once: the number of steps until a hierarchy is learned, over the scale of the start and the imbalance
of its layers. White cells never learn all of it: the flow ends on a saddle.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(2)
scales, imbalances = np.geomspace(0.01, 1.0, 9), np.linspace(-1.0, 1.0, 9)
found = lc.theory.richness(
    task,
    hidden_size=4,
    scales=scales,
    imbalances=imbalances,
    learning_rate=0.02,
    starts=1,
    rng=np.random.default_rng(0),
)
steps = found["flow_steps"].where(np.isfinite(found["flow_steps"])).isel(start=0)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
steps.transpose("imbalance", "scale").plot(ax=ax, xscale="log", cmap="viridis", cbar_kwargs={"label": "gradient steps"})
ax.set(title="", xlabel="scale of the weights at the start", ylabel="imbalance of the two layers")
plt.show()
