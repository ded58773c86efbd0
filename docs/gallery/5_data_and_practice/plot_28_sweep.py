"""
A forecast over a grid
======================

Number of steps to learn, over the recurrence and the size of the initial weights. A sweep stores every result, so that it can
be interrupted and resumed.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc


def steps_to_learn(spec):
    network = lc.LinearRNN.aligned(
        recurrence=spec["recurrence"], initial=spec["initial"], hidden_size=16
    )
    return lc.forecast(
        lc.tasks.integration(steps=50), network, learning_rate=1e-3
    ).steps.descent


grid = {
    "recurrence": np.linspace(0.9, 0.98, 9).tolist(),
    "initial": np.geomspace(0.001, 0.3, 8).tolist(),
}
with tempfile.TemporaryDirectory() as folder:
    lc.sweep.run(
        steps_to_learn, grid, store=f"{folder}/store", executor="in-process"
    )
    steps = lc.sweep.gather(f"{folder}/store")["value"]
print(
    f"From {int(steps.min())} steps (large weights, strong recurrence) "
    f"to {int(steps.max())} (small weights, weak recurrence)."
)

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
steps.transpose("initial", "recurrence").plot(
    ax=ax, yscale="log", cbar_kwargs={"label": "gradient steps to 99%"}
)
ax.set(xlabel="recurrence", ylabel="size of the initial weights")
plt.show()
