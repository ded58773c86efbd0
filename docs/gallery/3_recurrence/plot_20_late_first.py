"""
What is learned first: late or early evidence?
==============================================

The answer asks for one pulse of evidence, some steps back. With a recurrence below 1 recent evidence is learned first, and
each step further back takes longer by the same factor. With a recurrence of 1 all lags start alike.
"""

import matplotlib.pyplot as plt
import numpy as np

from learncast.theory.recurrence.order import half_strength_time

lags = np.arange(8)
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for start, colour in zip([0.6, 0.8, 1.0], ["#D55E00", "#E69F00", "#0072B2"], strict=True):
    pulses = np.eye(len(lags))
    found = [
        half_strength_time(pulse, recurrence=start, input_weight=0.01, learning_rate=1e-2).steps for pulse in pulses
    ]
    ax.plot(lags, np.ravel(found), "o-", color=colour, label=f"recurrence {start:g} at the start")
ax.set(xlabel="lag of the evidence behind the answer (steps)", ylabel="steps until half learned", yscale="log")
ax.legend()
plt.show()
