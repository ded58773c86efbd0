"""
When does it overfit?
=====================

A network learns to read handwritten digits from 150 labelled images. When should training stop, what loss will new images have, and
what would 100 more be worth? Everything is forecast from the 150 images, without training.

Reading time: 6 minutes.
"""

# %%
# The data
# --------
#
# ``digits.npz`` has 1,797 images of 8 × 8 pixels and their labels. We draw 150 of them as our data. The others are kept to check
# the forecast. The file is in the folder ``examples`` of the repository. If you have downloaded this page as a notebook, put it
# beside the notebook.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

path = Path("digits.npz")  # beside a downloaded notebook
if not path.exists():
    path = Path("..", "..", "examples", path)  # in the repository
with np.load(path) as file:
    images, labels = file["inputs"].reshape(1797, 64), file["labels"]
order = np.random.default_rng(0).permutation(1797)
own, new = order[:150], order[150:]


def digits(chosen, **options):
    """Return the task of naming some digits; an image is one time step."""
    pixels = images[chosen][:, np.newaxis]
    return lc.Task.from_samples(pixels, labels[chosen], classes=10, **options)


# %%
# Each pixel is centred and divided by its size, as one would do before training. The network has two linear layers with 32
# hidden units.

task = digits(own, centre=True, scale="channel", name="150 digits")
network = lc.TwoLayer.random(64, 32, 10, scale=0.05, rng=0)

# %%
# When to stop
# ------------
#
# Training is forecast without a tenth of the images, and the loss is taken on this tenth; each tenth has its turn. Pixels are
# centred and scaled anew each time, as they will be when new images arrive.

held_out = lc.generalise(task, network, learning_rate=0.02, most_steps=5000)
print(held_out.sentence)
held_out.plot()
plt.show()

# %%
# The held-out loss is least at the orange line and rises afterwards: with 150 images of 64 pixels this network overfits. The grey
# stops are as good as the best one within the noise of the trials. Were 1 inside the interval of the rise, these trials would
# not show whether longer training overfits.
#
# Is it right?
# ------------
#
# The other 1,647 digits tell. With test trials the curve is exact for these trials.

truth = lc.generalise(
    task, network, learning_rate=0.02, most_steps=5000, test=digits(new)
)
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
# The new digits have a higher loss than forecast, but inside the 95% interval: 150 images determine the loss no better. The forecast
# of the stop is better than that of the loss.
#
# Signal and noise
# ----------------
#
# Each mode of the target is learned at its own time. Modes below the edge, which follows from the number of trials, are noise.
# ``learned`` is the step at which half of a mode is learned. Mode 10 has no strength, because the ten centred labels of an image add
# up to zero: there is nothing to learn.

modes = held_out.modes.to_dataframe()
modes.index += 1
modes.round(3)

# %%
# What are 100 more trials worth?
# -------------------------------
#
# The loss at the best stop is fitted on subsets of the trials, and the fit is read at other numbers. At 150 trials it smooths over
# the loss that was estimated above, so that the two differ.

expected = {number: held_out.trials(number) for number in (150, 250, 600)}
for number, loss in expected.items():
    print(f"{number} trials: {loss.value:.3f} ({loss.low:.3f} to {loss.high:.3f})")
gain = 1 - expected[250].value / expected[150].value
print(f"100 more trials are forecast to lower the loss by {gain:.0%}.")

# %%
# More digits are available here, so the forecast can be compared with them:

for number in (250, 600):
    more = digits(order[:number], centre=True, scale="channel")
    measured = lc.generalise(
        more, network, learning_rate=0.02, most_steps=5000, test=digits(order[600:])
    )
    print(f"{number} trials: {measured.loss:.3f} on new digits")
    if number == 250:
        print(f"  {1 - measured.loss / at_stop:.0%} lower than with 150 trials")

# %%
# As with 150 trials, the new digits have a higher loss than forecast; the gain of 100 more trials is larger than forecast.
#
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
#
# What to do next
# ---------------
#
# - Your own trials: :doc:`/how-to/recordings`.
# - Stops of a plan for the held-out loss: ``lc.Terms(goal="generalise")``, or ``learncast plan --held-out``.
# - How the numbers are computed: :doc:`/theory/generalise`.
