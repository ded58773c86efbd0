"""
Learn the parts first?
======================

The target is the sum of two parts. The second part reads a channel of its own, turned by an angle towards the channel of the
first. At 0 degrees the parts share nothing: direct training learns both at the same time, and learning one first only costs
steps. The closer the parts, the weaker the mode that tells them apart and the slower direct training. A short stage on one part
then separates them, but learning a part to the end still rarely pays. Means over four random starts.
"""

import matplotlib.pyplot as plt
import numpy as np

import learncast as lc

parts = [
    lc.tasks.static([[1.0], [0.0]], name="one"),
    lc.tasks.static([[0.0], [1.0]], name="two"),
]
networks = [lc.TwoLayer.random(2, 8, 2, scale=0.1, rng=seed) for seed in range(4)]
angles, rate = (0, 30, 60, 75, 85), 0.02
steps = {"one part to 99%, then both": [], "direct training": [], "best plan": []}
for angle in angles:
    made = lc.tasks.composed(parts, inputs="separate", angle=angle)
    plans = [
        lc.plan(made.target, made.parts, network, learning_rate=rate)
        for network in networks
    ]
    stages = [lc.Stage(made.parts[0], 0.99), lc.Stage(made.target, 0.99)]
    first = [
        lc.follow(stages, network, learning_rate=rate).total.descent
        for network in networks
    ]
    steps["one part to 99%, then both"].append(np.mean(first))
    steps["direct training"].append(
        np.mean([plan.direct.descent for plan in plans])
    )
    steps["best plan"].append(np.mean([plan.best.total.descent for plan in plans]))

_, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for (name, values), style, colour in zip(
    steps.items(), ("s--", "o-", "o-"), ("C1", "grey", "C0"), strict=True
):
    ax.plot(angles, values, style, color=colour, label=name)
    steps_ = ", ".join(f"{value:.0f}" for value in values)
    print(f"{name}: {steps_} steps")
ax.set(
    xlabel="angle between the parts' own inputs (degrees)",
    ylabel="gradient steps",
    ylim=(0, None),
)
ax.set_title("At 90 the inputs would be the same.")
ax.legend(frameon=False)
plt.show()
