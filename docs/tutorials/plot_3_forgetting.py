"""
What will it forget?
====================

A network that knows one task is trained on the next. What is left of the first? For two-layer linear networks the answer is
exact, for every moment of training, before training. This lesson reads it, checks it, and meets a start that cannot learn.
"""

# %%
# Two trees over the same items
# -----------------------------
#
# Eight animals hang in a tree of kinds. Then the same animals are sorted by colour: the same tree, other leaves.

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

kinds = lc.tasks.hierarchy(3, name="kinds")
colours = kinds.shuffled([0, 2, 4, 6, 1, 3, 5, 7], name="colours")
network = lc.TwoLayer.balanced(8, 16, kinds.outputs, scale=0.01, rng=np.random.default_rng(0))

_, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for ax, task in zip(axes, [kinds, colours], strict=True):
    ax.imshow(task.features, cmap="RdBu", vmin=-2, vmax=2)
    ax.set(title=task.name, xlabel="item", ylabel="feature")
plt.show()

# %%
# The table of losses
# -------------------
#
# One call: the loss of each task before training and after each stage, each stage trained to its end.

loss = lc.forget([kinds, colours], network, learning_rate=0.05).losses()
loss.to_pandas().round(3)

# %%
# After ``colours`` the loss of ``kinds`` is larger than before it was ever learned: what is known now is wrong, which is worse
# than knowing nothing. In words of the theory: after converging on task j the loss of task i is half the squared distance of the
# two maps, whatever came before.
#
# Over time
# ---------

course = lc.forget([kinds, colours], network, learning_rate=0.05)
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
lc.figures.forgetting_curves(course.curves(points=120), ax)
plt.show()

# %%
# Forgetting begins at once and is not slower than learning. Is a shorter second stage a compromise? Give each stage a number of
# steps:

for steps in (10, 20, 40, 80):
    table = lc.forget([kinds, colours], network, learning_rate=0.05, steps=[400, steps]).losses()
    after = table.isel(stage=-1)
    print(
        f"{steps:3d} steps of colours: loss of kinds {float(after.sel(task='kinds')):.2f}, "
        f"of colours {float(after.sel(task='colours')):.2f}"
    )

# %%
# Is it true?
# -----------
#
# The same by gradient descent on the two tasks, step by step and without any closed form.

first = lc.descend(kinds, network, learning_rate=0.05, steps=400)
second = lc.descend(colours, first.network_at(400), learning_rate=0.05, steps=80)
kept = lc.descend(kinds, second.network_at(80), learning_rate=0.05, steps=1).loss[0]
told = float(table.isel(stage=-1).sel(task="kinds"))
print(f"loss of kinds after 80 steps of colours: forecast {told:.3f}, descent {kept:.3f}")

# %%
# A start that cannot learn
# -------------------------
#
# Half of all balanced starts of a square network have the wrong sign of a determinant. The flow then ends on a saddle: one
# mode is never learned. The forecast tells you which of your starts these are; real training escapes by the noise of its
# batches, late.

starts = [lc.TwoLayer.balanced(8, 16, kinds.outputs, scale=0.01, rng=np.random.default_rng(seed)) for seed in range(8)]
courses = [lc.forecast(kinds, start, learning_rate=0.05).solution for start in starts]
for seed, course in enumerate(courses):
    print(
        f"seed {seed}:",
        course.remarks[0] if course.remarks else f"learned after {course.time_to(0.99).flow_steps:.0f} steps",
    )

# %%
# When nothing may be forgotten
# -----------------------------
#
# A plan can be told how much of a candidate may be lost in the end. Here a recurrent network is pretrained on stronger targets;
# the front shows what each limit costs.

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
rnn = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], rnn, learning_rate=1e-3, terms=lc.Terms(goal=lc.Accuracy(0.8)))
front = plan.front(stronger, points=8)
_, ax = plt.subplots(figsize=(7, 3.0), layout="constrained")
ax.plot(front.excess_loss, [schedule.total for schedule in front.schedules], "o-", color="#0072B2")
ax.set(xlabel="excess loss of 'stronger targets' at the end", ylabel="steps of the flow in all")
plt.show()

# %%
# What to do next
# ---------------
#
# - From a file: ``learncast forget examples/revised_hierarchy.toml``, and ``learncast plan STUDY --remember TASK``.
# - The mathematics and what the print gets wrong: :doc:`/theory/braun2022`.
# - With your hands: ``learncast explore`` has a panel *Prior knowledge*.
