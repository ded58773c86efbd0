"""
My GRU and its curriculum
=========================

You train a GRU on a cognitive task until it makes enough correct decisions. Which learning rate should you use, and do easier
tasks help? This tutorial asks for advice, follows it, and measures the saving.

Reading time: 6 minutes. It needs ``pip install '.[torch]'``. If `neurogym <https://neurogym.github.io>`_ is installed, the trials come from its
environments. Otherwise they are generated below.
"""

# %%
# The task
# --------
#
# Two streams of noisy evidence are followed by a delay and a decision: which stream was stronger? Class 0 means "wait",
# classes 1 and 2 are the two answers. The decision is made at the last step.

# sphinx_gallery_thumbnail_number = 2
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import torch

import learncast as lc

torch.set_num_threads(1)
print(
    "neurogym is installed"
    if find_spec("neurogym")
    else "neurogym is not installed: trials are generated here"
)


def generated(strength, delay, *, name, trials=2000, evidence=5, seed=0):
    """Delayed decisions: inputs (trials, steps, 3) and labels (trials, steps)."""
    rng = np.random.default_rng(seed)
    steps = evidence + delay + 1
    side = rng.integers(1, 3, trials)
    inputs = np.zeros((trials, steps, 3))
    inputs[:, :-1, 0] = 1.0  # fixate until the last step
    inputs[:, :evidence, 1:] = 0.5 * rng.standard_normal((trials, evidence, 2))
    inputs[np.arange(trials), :evidence, side] += strength
    labels = np.zeros((trials, steps), dtype=int)
    labels[:, -1] = side
    return lc.training.trials(
        (inputs.astype("float32"), labels), held_out=0.25, name=name
    )


def from_neurogym(coherences, delay, *, name):
    """Trials of the perceptual decision task of neurogym."""
    import warnings

    import neurogym

    warnings.filterwarnings("ignore", module="gymnasium")
    timing = {"stimulus": 600, "delay": delay}
    environment = neurogym.make(
        "PerceptualDecisionMaking-v0", dt=100, timing=timing
    )
    environment.unwrapped.cohs = np.array(coherences)
    return lc.training.trials(environment, name=name)


if find_spec("neurogym"):
    target = from_neurogym([12.8, 25.6, 51.2], 500, name="weak evidence, delay")
    candidates = {
        "strong evidence": from_neurogym([51.2], 500, name="strong evidence"),
        "no delay": from_neurogym([12.8, 25.6, 51.2], 0, name="no delay"),
    }
else:
    target = generated(0.3, 10, name="weak evidence, delay")
    candidates = {
        "strong evidence": generated(1.0, 10, name="strong evidence", seed=1),
        "no delay": generated(0.3, 0, name="no delay", seed=2),
    }

# %%
# The network and the goal
# ------------------------
#
# You can use your own module: anything that maps (trials, steps, inputs) to (trials, steps, outputs). The goal is 80% correct
# decisions on held-out trials. Steps whose label is "wait" do not count.

model = lc.training.gated_module(
    "gru", inputs=3, hidden_size=24, outputs=3, every_step=True, seed=0
)
goal = lc.training.DecisionAccuracy(0.80, ignore=0, looks=2, every=5)

# %%
# Advice
# ------
#
# Pilots of five steps each look for the best learning rate on the target. Then the target is trained at that
# rate. Easier tasks are mixed in only where it stalls.

training = lc.Training(3e-3, optimizer="adam", loss="cross_entropy", batch=32)
advice = lc.advise(model, target, candidates, training, goal=goal)
print(advice.summary.replace(". ", ".\n"))

# %%
# Sentence by sentence:
#
# - The first sentence says what to train. Here it is the target itself, without an easier task before it.
# - *Rate*: the learning rate to use. The pilots compared it with the given rate and with others. Gradients are clipped where a
#   pilot showed that this is needed.
# - *Help*: what the easier tasks are for. They are mixed into the batches only if training stalls, until the stated share of
#   correct decisions is reached. Here they are an insurance, not a first stage.
# - *Cost*: the steps of the pilots, which are extra training.
# - The last sentence is the record of this procedure. A *pool* is one target with its easier tasks. Nine pools were kept aside
#   while the procedure was tuned, and these are its results on them.
#
# The figure shows the mean loss of each pilot over its learning rate.

_, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
lc.figures.pilot_losses(advice.dataset, ax)
plt.show()

# %%
# Follow the advice, and compare
# ------------------------------
#
# ``advice.train`` trains a copy of the model as advised. We compare it with direct training at the given rate, from the same
# initial weights and with the same batches. In the figure the pilots are the grey curves at negative steps, before training begins.

run = advice.train(most_steps=600)
direct = lc.training.train(target, model, training.with_(most_steps=600), goal=goal)
print(
    f"as advised: {advice.pilot_steps} steps of pilots and {run.steps} of "
    f"training, status {run.status.name}"
)
print(
    f"direct at the given rate: {direct.steps} steps, status {direct.status.name}"
)

_, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
lc.figures.advised_training(advice.carried_out(run).dataset, ax)
plt.show()

# %%
# How far to trust this
# ---------------------
#
# This is one example. On the nine pools that were kept aside, most of what is saved comes from the learning rate, and little from
# the easier tasks, which mainly rescue targets that direct training does not learn. A well-chosen fixed rate is as good. ``python -m benchmarks advice`` prints all results, and :doc:`/start/trust` summarises them.
#
# For goals on a *loss*, on tasks that a linear map solves, rankings are much more reliable (see the same page).
#
# What to do next
# ---------------
#
# - Your own goals, losses and cells: :doc:`/how-to/advice`.
# - A plan in your own training loop, or in Lightning: :doc:`/how-to/carry-out`.
# - How far back the gradient of this GRU carries a signal: :doc:`plot_4_window`.
