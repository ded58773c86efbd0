"""
Learning time against scale and balance of the initial weights
==============================================================

Number of steps to learn a hierarchy, computed exactly for many initialisations. White cells never learn all modes, because
the flow ends on a saddle.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.hierarchy(2)
scales, imbalances = np.geomspace(0.01, 1.0, 9), np.linspace(-1.0, 1.0, 9)
results = lc.theory.richness(
    task,
    hidden_size=4,
    scales=scales,
    imbalances=imbalances,
    learning_rate=0.02,
    starts=1,
    rng=np.random.default_rng(0),
)
steps = results["flow_steps"].where(np.isfinite(results["flow_steps"])).isel(start=0)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
steps.transpose("imbalance", "scale").plot(ax=ax, xscale="log", cmap="viridis", cbar_kwargs={"label": "gradient steps"})
ax.set(title="", xlabel="scale of the weights at the start", ylabel="imbalance of the two layers")
plt.show()
