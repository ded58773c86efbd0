"""
What will it forget?
====================

A network that has learned one task is trained on the next. How much of the first does it forget? For two-layer linear
networks the forecast is exact at every time. This tutorial computes it, compares it with gradient descent, and shows initial
weights that cannot learn.

Reading time: 5 minutes.
"""

# %%
# Two hierarchies of the same items
# ---------------------------------
#
# Eight animals form a binary tree of kinds. Then the same animals are sorted by colour: the same tree with other leaves.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

kinds = lc.tasks.hierarchy(3, name="kinds")
colours = kinds.shuffled([0, 2, 4, 6, 1, 3, 5, 7], name="colours")
network = lc.TwoLayer.balanced(
    8, 16, kinds.outputs, scale=0.01, rng=np.random.default_rng(0)
)

_, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for ax, task in zip(axes, [kinds, colours], strict=True):
    ax.imshow(task.features, cmap=lc.figures.SAVED, vmin=-2, vmax=2)
    ax.set(title=task.name, xlabel="item", ylabel="feature")
plt.show()

# %%
# The table of losses
# -------------------
#
# The loss of each task before training and after each stage. Each stage is trained to convergence.

loss = lc.forget([kinds, colours], network, learning_rate=0.05).losses()
loss.to_pandas().round(2)

# %%
# After ``colours`` the loss of ``kinds`` is larger than before training, because the answers are now wrong. In theory, after
# convergence on task j the loss of task i is half the squared distance between the two maps, whatever was trained before.
#
# Over time
# ---------

forecast = lc.forget([kinds, colours], network, learning_rate=0.05)
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
lc.figures.forgetting_curves(forecast.curves(points=120), ax)
plt.show()

# %%
# Forgetting begins immediately and is as fast as learning. Is a shorter second stage a compromise? Give each stage a number
# of steps:

for steps in (10, 20, 40, 80):
    table = lc.forget(
        [kinds, colours], network, learning_rate=0.05, steps=[400, steps]
    ).losses()
    after = table.isel(stage=-1)
    print(
        f"{steps:3d} steps of colours: loss of kinds "
        f"{float(after.sel(task='kinds')):.2f}, "
        f"of colours {float(after.sel(task='colours')):.2f}"
    )

# %%
# Compare with gradient descent
# -----------------------------
#
# Gradient descent on the two tasks, step by step and without a closed form.

first = lc.descend(kinds, network, learning_rate=0.05, steps=400)
second = lc.descend(colours, first.network_at(400), learning_rate=0.05, steps=80)
measured = lc.descend(
    kinds, second.network_at(80), learning_rate=0.05, steps=1
).loss[0]
predicted = float(table.isel(stage=-1).sel(task="kinds"))
print(
    f"loss of kinds after 80 steps of colours: forecast {predicted:.3f}, "
    f"descent {measured:.3f}"
)

# %%
# Initial weights that end on a saddle
# ------------------------------------
#
# In half of all balanced initialisations of a square network a determinant has the wrong sign. The flow then ends on a *saddle*:
# it never learns one mode, and its loss keeps what this mode explains, here 0.125. Descent stalls near the saddle and leaves it
# late, by its finite steps or by the noise of its batches. The forecast shows which initial weights are affected.

starts = [
    lc.TwoLayer.balanced(
        8, 16, kinds.outputs, scale=0.01, rng=np.random.default_rng(seed)
    )
    for seed in range(8)
]
solutions = [
    lc.forecast(kinds, start, learning_rate=0.05).solution for start in starts
]
for seed, solution in enumerate(solutions):
    steps = solution.time_to(0.99).flow_steps
    learned = (
        f"learned after {steps:.0f} steps" if np.isfinite(steps) else "a saddle"
    )
    print(f"seed {seed}: {learned}")

# %%
# The full remark of one that ends on a saddle:

stuck = next(solution for solution in solutions if solution.remarks)
print(stuck.remarks[0])

# %%
# Limit forgetting
# ----------------
#
# A plan can limit the final loss of a candidate. Here a recurrent network is pretrained on stronger targets. The front shows
# the cost of each limit.

target = lc.tasks.integration(steps=50)
stronger = target.varied(target_strength=1.5).renamed("stronger targets")
rnn = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01)
plan = lc.plan(target, [stronger], rnn, learning_rate=1e-3, terms=lc.Terms(0.8))
front = plan.front(stronger, points=8)
print(
    f"Lowering the loss from {max(front.excess_loss):.1f} to "
    f"{min(front.excess_loss):.1f} takes {max(front.total):.0f} instead of "
    f"{min(front.total):.0f} steps."
)
_, ax = plt.subplots(figsize=(7, 3.0), layout="constrained")
ax.plot(front.excess_loss, front.total, "o-", color=lc.figures.COLOURS[0])
ax.set(
    xlabel="excess loss of 'stronger targets' at the end", ylabel="total flow steps"
)
plt.show()

# %%
# What to do next
# ---------------
#
# - From a file: ``learncast forget examples/revised_hierarchy.toml``, and ``learncast plan STUDY --remember TASK``.
# - The mathematics, and misprints in the paper: :doc:`/theory/braun2022`.
# - Interactive: the panel *Prior knowledge* of ``learncast explore``.
