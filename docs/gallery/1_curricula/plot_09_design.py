"""
Design the first task
=====================

Within the bounds of what the experiment allows, which correlation, timescale and gain make the best first task? The bars
compare training directly with pretraining on the designed task. In this family more is better: the design goes to its
bounds, and says so.
"""

import matplotlib.pyplot as plt

import learncast as lc

target = lc.tasks.leaky_integration(steps=40, timescale=10.0)
network = lc.LinearRNN.aligned(recurrence=0.95, initial=0.01)
bounds = {
    "gain up to 1.2": {"gain": (1.0, 1.2)},
    "gain up to 2": {"gain": (1.0, 2.0)},
    "gain up to 2,\ncorrelation up to 0.5": {"gain": (1.0, 2.0), "correlation": (0.0, 0.5)},
}
found = {name: lc.planning.design(target, network, bounds=b, learning_rate=2e-3) for name, b in bounds.items()}
for name, design in found.items():
    print(
        name.replace("\n", " "), {k: round(v, 3) for k, v in design.parameters.items()}, "at bounds:", design.at_bounds
    )

_, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
direct = next(iter(found.values())).direct
ax.barh(["the target alone", *found], [direct, *(d.total for d in found.values())], color=["#D55E00"] + 3 * ["#0072B2"])
ax.invert_yaxis()
ax.set(xlabel="gradient steps until the target is learned")
plt.show()
