"""
Trained on short trials, tested on long ones
============================================

A network of one mode learns to integrate trials of ten steps. What becomes of its error when trials get longer? A learned
recurrence carries over; a fixed one, however well its readout was trained, does not.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc
from learncast.theory.recurrence.stability import family_extrapolation

task = lc.tasks.integration(steps=10)
horizons = np.arange(10, 61, 5)
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for learn, colour in [(("input", "output"), "#D55E00"), (("input", "recurrent", "output"), "#0072B2")]:
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.1, hidden_size=8)
    learned = lc.forecast(task, network, training=lc.Training(1e-3, learn=learn)).solution.network_at(20000)
    reach = family_extrapolation(learned, task, horizons)
    ax.plot(horizons, 100 * np.array(reach.unexplained), "o-", color=colour, label=f"learned: {', '.join(learn)}")
ax.set(xlabel="steps of a trial (trained on 10)", ylabel="target left unexplained (%)")
ax.legend()
plt.show()
