"""
What depth changes
==================

Linear networks of two to five layers learn the same task with two modes, of strengths 2 and 1. All start with weights of 0.35
per layer on the modes. With more layers the modes wait longer, rise more steeply and lie further apart: the loss has longer
plateaus. Pretraining on a stronger version of the task shortens the waiting, so it saves more steps the deeper the network is.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

layers, rate = (2, 3, 4, 5), 2e-3
task = lc.tasks.static(np.diag([2.0, 1.0]), name="target")
stronger = lc.tasks.static(np.diag([4.0, 2.0]), name="twice as strong")

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
saved = []
for number in layers:
    network = lc.Deep.aligned([2] * (number - 1), task=task, initial=0.35)
    forecast = lc.forecast(task, network, learning_rate=rate, goal=0.95)
    plan = lc.plan(
        task, [stronger], network, learning_rate=rate, terms=lc.Terms(goal=0.95)
    )
    saved.append(forecast.steps.descent - plan.best.total.descent)
    print(
        f"{number} layers: {forecast.steps.descent:.0f} steps directly, "
        f"{plan.best.total.descent:.0f} with pretraining"
    )
    steps = np.linspace(0, 5000, 400)
    strengths = forecast.solution.at(steps)["strength"].values
    lines = ax.plot(steps, strengths[:, 0], label=f"{number} layers")
    ax.plot(steps, strengths[:, 1], "--", color=lines[0].get_color())

ax.set(
    xlabel="gradient steps",
    ylabel="strength of the mode",
    title="First mode (solid) and second (dashed)",
)
lc.figures.key(ax, below=True, ncols=4)
plt.show()

# %%
# Steps that pretraining on the stronger task saves.

_, ax = plt.subplots(figsize=(6, 3.0), layout="constrained")
bars = ax.bar(
    [str(number) for number in layers], saved, color=lc.figures.COLOURS[0]
)
ax.bar_label(bars, fmt="{:,.0f}")
ax.set(xlabel="layers", ylabel="steps saved by pretraining")
ax.margins(y=0.12)
plt.show()
