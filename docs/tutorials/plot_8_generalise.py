"""
When does it overfit?
=====================

A two-layer linear network classifies handwritten digits. You have recorded 150 of them. When should training stop, what loss
will new digits have, and what would 100 more trials be worth? Everything is forecast from the 150 trials, without training.
"""

# %%
# The trials
# ----------
#
# Each image is a trial of one step with 64 pixels. The target is its class, as one of ten outputs. The other images of the data
# set are kept to see whether the forecast is right.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

folder = next(
    p
    for p in (Path("examples"), Path("../../examples"), Path("../../../examples"))
    if p.is_dir()
)
with np.load(folder / "digits.npz") as arrays:
    inputs, labels = arrays["inputs"].reshape(-1, 1, 64), arrays["labels"]
order = np.random.default_rng(0).permutation(len(inputs))
own, new = order[:150], order[150:]

task = lc.Task.from_samples(
    inputs[own],
    labels[own],
    classes=10,
    centre=True,
    scale="channel",
    name="150 digits",
)
network = lc.TwoLayer.random(64, 32, 10, scale=0.05, rng=0)

# %%
# When to stop
# ------------
#
# Ten folds are held out in turn. Trials are centred and scaled inside each fold, as they will be when new trials arrive.

held_out = lc.generalise(task, network, learning_rate=0.02, most_steps=5000)
print(held_out.sentence)
held_out.plot()
plt.show()

# %%
# The held-out loss is least at the orange line and rises afterwards: with 150 trials of 64 pixels this network overfits. The grey
# stops are as good as the best one within the noise of the trials. Were 1 inside the interval of the rise, these trials would
# not show whether longer training overfits.
#
# Is it right?
# ------------
#
# The other 1,647 digits tell. With test trials the curve is exact for these trials.

test = lc.Task.from_samples(inputs[new], labels[new], classes=10)
truth = lc.generalise(task, network, learning_rate=0.02, most_steps=5000, test=test)
at_stop = float(truth.curve["held_out"].interp(steps=held_out.stop))
low, high = held_out.loss_interval
print(
    f"forecast {held_out.loss:.3f} ({low:.3f} to {high:.3f}), "
    f"new digits {at_stop:.3f}"
)
print(
    f"the best stop for the new digits is {truth.stop}; "
    f"the forecast loses {at_stop / truth.loss - 1:.1%}"
)

# %%
# Signal and noise
# ----------------
#
# Each mode of the target is learned at its own time. Modes below the edge, which follows from the number of trials, are noise.
# ``learned`` is the step at which half of a mode is learned.

modes = held_out.modes.to_dataframe()
modes.index += 1
modes.round(3)

# %%
# What are 100 more trials worth?
# -------------------------------
#
# The loss at the best stop is fitted on subsets of the trials.

for number in (150, 250, 600):
    expected = held_out.trials(number)
    print(
        f"{number} trials: {expected.value:.3f} ({expected.low:.3f} to "
        f"{expected.high:.3f})"
    )

# %%
# More digits are available here, so the forecast can be compared with them:

for number in (250, 600):
    more = lc.Task.from_samples(
        inputs[order[:number]],
        labels[order[:number]],
        classes=10,
        centre=True,
        scale="channel",
    )
    rest = lc.Task.from_samples(
        inputs[order[600:]], labels[order[600:]], classes=10
    )
    print(
        number,
        round(
            lc.generalise(
                more, network, learning_rate=0.02, most_steps=5000, test=rest
            ).loss,
            3,
        ),
    )

# %%
# Noise
# -----
#
# Weights grow while training goes on, and with them the loss that noise adds. With noisy hidden units, stop earlier:

noise = held_out.noise(hidden=0.1)
print(
    f"best stop {held_out.stop}, with noise in the hidden units "
    f"{int(noise['stop'])}"
)

# %%
# From the command line, for a recurrent network that reads the digits row by row:
# ``learncast generalise examples/sequential_digits.toml``. Its recurrence pools the rows to 8 numbers, so that it
# hardly overfits.
# How the numbers are computed: :doc:`/theory/generalise`.
