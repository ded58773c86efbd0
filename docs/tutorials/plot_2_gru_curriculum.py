"""
My GRU and its curriculum
=========================

You train a GRU on a cognitive task, by decisions and not by a loss. Which easier task should it see first? This lesson asks for
advice, carries it out, and measures what it was worth.

It needs ``pip install 'learncast[torch]'``. With `neurogym <https://neurogym.github.io>`_ installed the trials come from its
environments; without it they are drawn here, and the lesson says which.
"""

# %%
# The task
# --------
#
# Two streams of noisy evidence, then a delay, then a decision: which stream was stronger? Class 0 means "wait", classes 1 and 2
# are the answers. Only the last step decides.

from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
import torch

import learncast as lc

torch.set_num_threads(1)
print("neurogym is installed" if find_spec("neurogym") else "neurogym is not installed: trials are drawn here")


def drawn(strength, delay, *, name, trials=1000, evidence=5, seed=0):
    """Trials of a delayed decision: inputs (trials, steps, 3) and labels (trials, steps)."""
    rng = np.random.default_rng(seed)
    steps = evidence + delay + 1
    side = rng.integers(1, 3, trials)
    inputs = np.zeros((trials, steps, 3))
    inputs[:, :-1, 0] = 1.0  # fixate until the last step
    inputs[:, :evidence, 1:] = 0.5 * rng.standard_normal((trials, evidence, 2))
    inputs[np.arange(trials), :evidence, side] += strength
    labels = np.zeros((trials, steps), dtype=int)
    labels[:, -1] = side
    return lc.training.trials((inputs.astype("float32"), labels), name=name)


def from_neurogym(coherences, delay, *, name):
    """The trials of neurogym's perceptual decision, with coherences and a delay of one's choice."""
    import warnings

    import neurogym

    warnings.filterwarnings("ignore", module="gymnasium")
    timing = {"stimulus": 600, "delay": delay}
    environment = neurogym.make("PerceptualDecisionMaking-v0", dt=100, timing=timing)
    environment.unwrapped.cohs = np.array(coherences)
    return lc.training.trials(environment, name=name)


if find_spec("neurogym"):
    target = from_neurogym([12.8, 25.6, 51.2], 500, name="weak evidence, delay")
    candidates = {
        "strong evidence": from_neurogym([51.2], 500, name="strong evidence"),
        "no delay": from_neurogym([12.8, 25.6, 51.2], 0, name="no delay"),
    }
else:
    target = drawn(0.3, 10, name="weak evidence, delay")
    candidates = {
        "strong evidence": drawn(1.0, 10, name="strong evidence", seed=1),
        "no delay": drawn(0.3, 0, name="no delay", seed=2),
    }

# %%
# The network and the goal
# ------------------------
#
# Your own module serves as well: anything that maps (trials, steps, inputs) to (trials, steps, outputs). The goal is what you
# would report: 80% right decisions on trials that were not trained on. Answers that ask for waiting do not count.

model = lc.training.gated_module("gru", inputs=3, hidden_size=24, outputs=3, every_step=True, seed=0)
goal = lc.training.DecisionAccuracy(0.80, ignore=0, looks=2, every=5)

# %%
# Advice
# ------
#
# No gradient step is taken for it: each task is shown once to the untrained network.

training = lc.Training(3e-3, optimizer="adam", loss="cross_entropy", batch=32)
advice = lc.advise(model, target, candidates, training, goal=goal, log=lambda text: None)
print(advice.summary)

# %%
# Every plan, best first. There are no step counts: where everything learns, only an order can be had.

_, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
lc.figures.plan_scores(advice.dataset, ax)
plt.show()

# %%
# Carry it out, and compare
# -------------------------
#
# ``advice.train`` follows a plan with your settings. We train the recommended plan and direct training from the same start.

runs = {}
for name in dict.fromkeys([advice.recommended, "no pretraining"]):
    runs[name] = advice.train(name, most_steps=600)
    print(f"{name}: {' + '.join(str(n) for n in runs[name].stage_steps)} steps, {runs[name].status.name}")

_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
lc.figures.goal_curves(runs, ax, level=goal.level, chance=float(advice.dataset.attrs["chance"]))
plt.show()

# %%
# How far to trust this
# ---------------------
#
# One start is an anecdote, and this one is not a fair draw: the delay of the target was made longer until direct training was slow,
# which is where help pays; with a delay of five steps an earlier advice lost to direct training. On ten pools of public environments that it was not tuned on the advice for decisions took 0.90 of the
# steps of direct training with one restart of its optimiser, and 1.27 in the worst pool: **it does not pay everywhere**.
# ``python -m benchmarks decisions --from-file`` prints all of it, and :doc:`/start/trust` sums it up. When an hour of training is at
# stake, race the shortlist on the real model: ``lc.advise(..., terms=lc.advice.AdviceTerms(pilot=True))``.
#
# To a goal of a *loss*, on tasks that a linear map solves, rankings are much better (see the same page).
#
# What to do next
# ---------------
#
# - Goals, losses and cells of your own: :doc:`/how-to/advice`.
# - The plan in your own loop, or in Lightning: :doc:`/how-to/carry-out`.
# - How far back this GRU can learn: :doc:`plot_4_window`.
