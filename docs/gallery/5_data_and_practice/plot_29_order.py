"""
Flow and descent agree as the learning rate decreases
=====================================================

The closed form describes gradient *flow*; training takes discrete steps. The difference is proportional to the learning rate,
a line of slope 1.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import linregress

import learncast as lc

task = lc.tasks.integration(steps=20)
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4)


def gap(rate):
    steps = round(0.5 / rate)
    flow = lc.forecast(task, network, learning_rate=rate).solution.at([steps])[
        "strength"
    ]
    descent = lc.descend(task, network, learning_rate=rate, steps=steps).at(
        [steps]
    )["strength"]
    return float(abs(flow - descent).max())


rates = np.array([8e-3, 4e-3, 2e-3, 1e-3, 5e-4])
gaps = np.array([gap(rate) for rate in rates])
fit = linregress(np.log(rates), np.log(gaps))
print(f"The fitted slope is {fit.slope:.2f} +- {fit.stderr:.2f}.")
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.loglog(rates, gaps, "o", color=lc.figures.COLOURS[0], label="measured")
ax.loglog(rates, gaps[-1] * rates / rates[-1], "k:", label="slope 1")
ax.set(
    xlabel="learning rate",
    ylabel="difference of flow and descent",
    xticks=rates,
    xticklabels=[f"{rate:g}" for rate in rates],
)
ax.minorticks_off()
ax.legend()
plt.show()
