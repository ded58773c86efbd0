"""
Generalisation to longer trials
===============================

A network with one mode learns to integrate trials of ten steps. How large is its error on longer trials? A learned recurrence
generalises. A fixed recurrence does not, however well the input and output weights were trained.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

task = lc.tasks.integration(steps=10)
horizons = np.arange(10, 61, 5)
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for learn, colour in [
    (("input", "output"), lc.figures.COLOURS[1]),
    (("input", "recurrent", "output"), lc.figures.COLOURS[0]),
]:
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.1, hidden_size=8)
    learned = lc.forecast(
        task, network, lc.Training(1e-3, learn=learn)
    ).solution.network_at(20000)
    result = lc.theory.family_extrapolation(learned, task, horizons)
    print(
        f"{', '.join(learn)}: {result.unexplained[-1]:.2%} unexplained at 60 steps"
    )
    ax.plot(
        horizons,
        100 * np.array(result.unexplained),
        "o-",
        color=colour,
        label=f"learned: {', '.join(learn)}",
    )
ax.set(
    xlabel="steps per trial (trained on 10)",
    ylabel="unexplained target variance (%)",
)
ax.legend()
plt.show()
