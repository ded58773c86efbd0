"""
Design the first task
=====================

Which correlation, timescale and gain make the best first task, within given bounds? The bars compare direct training with
pretraining on the designed task. In this family larger values are better: the optimum lies on the bounds, and
``Design.at_bounds`` names them.
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
designs = {name: lc.planning.design(target, network, bounds=b, learning_rate=2e-3) for name, b in bounds.items()}
for name, design in designs.items():
    print(
        name.replace("\n", " "), {k: round(v, 3) for k, v in design.parameters.items()}, "at bounds:", design.at_bounds
    )

_, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
direct = next(iter(designs.values())).direct
ax.barh(
    ["direct training", *designs], [direct, *(d.total for d in designs.values())], color=["#D55E00"] + 3 * ["#0072B2"]
)
ax.invert_yaxis()
ax.set(xlabel="gradient steps until the target is learned")
plt.show()
