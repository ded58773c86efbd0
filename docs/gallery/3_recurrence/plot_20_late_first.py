"""
Which lag is learned first?
===========================

The target is the input at one lag before the response. With an initial recurrence below 1, recent inputs are learned first,
and each further step takes longer by the same factor. With a recurrence of 1, all lags begin equally fast.
"""

import matplotlib.pyplot as plt
import numpy as np

from learncast.figures import COLOURS
from learncast.theory import half_strength_time

lags = np.arange(8)
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for start, colour in zip(
    [0.6, 0.8, 1.0], [COLOURS[1], COLOURS[4], COLOURS[0]], strict=True
):
    pulses = np.eye(len(lags))
    times = [
        half_strength_time(
            pulse, recurrence=start, input_weight=0.01, learning_rate=1e-2
        ).steps
        for pulse in pulses
    ]
    first, last = np.ravel(times)[[0, -1]]
    print(
        f"initial recurrence {start:g}: {first:.0f} steps at lag 0, {last:.0f} at 7"
    )
    ax.plot(
        lags,
        np.ravel(times),
        "o-",
        color=colour,
        label=f"initial recurrence {start:g}",
    )
ax.set(
    xlabel="lag of the input before the response (steps)",
    ylabel="steps to half of the strength",
    yscale="log",
)
ax.legend()
plt.show()
