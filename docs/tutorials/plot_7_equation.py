r"""
From the paper's equation to the number
=======================================

How does an equation of the paper become a number of gradient steps? This tutorial computes one forecast in a few lines of
numpy and compares it with the library, an ODE solver, gradient descent, the formula as printed, and training in torch.

Reading time: 7 minutes.
"""

# %%
# The mode
# --------
#
# The network is :math:`h_t = b\,h_{t-1} + a\,x_t` with the output :math:`y = c\,h_T` at the last step. The task is to integrate
# white noise over :math:`T` steps. Learning depends on the recurrence :math:`b` and two sums over lags,
#
# .. math:: \beta_{yx} = \sum_t b^{T-t} s_{yx}(t),
#
# .. math:: \beta_{xx} = \sum_{t,t'} b^{T-t} b^{T-t'} s_{xx}(t,t').

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import learncast as lc

steps, b, start, rate, accuracy = 50, 0.96, 0.01, 1e-3, 0.99
powers = b ** np.arange(steps)[::-1]
beta_yx = powers.sum()  # the target is the sum of all inputs: s_yx(t) = 1
beta_xx = (powers**2).sum()  # white noise: s_xx(t, t') = 1 where t = t'
optimum = beta_yx / beta_xx
print(
    f"beta_yx = {beta_yx:.3f}, beta_xx = {beta_xx:.3f}, "
    f"optimal strength u = ac is {optimum:.4f}"
)

# %%
# The equation
# ------------
#
# From balanced initial weights (:math:`a = c`) the strength :math:`u = ac` is a logistic function of time under gradient flow:
#
# .. math:: u(t) = \frac{u^*}{1 + (u^*/u_0 - 1)\,e^{-2\beta_{yx}\eta t}}
#
# where :math:`\eta` is the learning rate. The time at which :math:`u` reaches :math:`u^*(1 - \epsilon)` is:

u0 = start**2
by_hand = np.log((optimum / u0 - 1) * accuracy / (1 - accuracy)) / (
    2 * beta_yx * rate
)
print(f"by hand: {by_hand:.3f} flow steps")

# %%
# One number in six ways
# ----------------------

task = lc.tasks.integration(steps=steps)
network = lc.LinearRNN.aligned(recurrence=b, initial=start, hidden_size=128)
forecast = lc.forecast(task, network, learning_rate=rate, goal=accuracy)


def slope(_, weights):
    a, c = weights
    error = beta_yx - a * c * beta_xx
    return [rate * c * error, rate * a * error]


def entered(_, weights):
    return weights[0] * weights[1] - accuracy * optimum


entered.terminal = True
ode = solve_ivp(
    slope,
    (0, 1000),
    [start, start],
    events=entered,
    rtol=1e-12,
    atol=1e-14,
    dense_output=True,
)
descent = lc.descend(task, network, learning_rate=rate, steps=500)
inside = descent.strength[:, 0] >= accuracy * optimum
rows = {
    "by hand": by_hand,
    "learncast, flow": forecast.steps.flow,
    "ODE solver": float(ode.t_events[0][0]),
    "eq. (12) as printed": float(
        lc.papers.paper_time(forecast.solution, accuracy)[0]
    ),
    "learncast, descent": forecast.steps.descent,
    "descent, counted": float(np.argmax(inside)),
}
for name, value in rows.items():
    print(f"{name:>22}: {value:.3f}")

# %%
# Gradient flow is a continuous-time limit, but training takes discrete steps. So every forecast has two numbers: descent steps
# and flow steps.
#
# Compare with training
# ---------------------
#
# Backpropagation through time on batches of 1,000 trials.

record = lc.training.Records(("strength",), every=4)
run = lc.training.train(
    task, network, lc.Training(rate, batch=1000), steps=400, record=record
)
t = np.arange(401)
logistic = optimum / (1 + (optimum / u0 - 1) * np.exp(-2 * beta_yx * rate * t))

_, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.plot(
    run.dataset["time"],
    run.dataset["strength"].values[:, 0],
    color=lc.figures.COLOURS[0],
    linewidth=3,
    alpha=0.7,
    label="torch",
)
ax.plot(
    t,
    ode.sol(np.minimum(t, ode.t[-1])).prod(axis=0),
    color=lc.figures.COLOURS[4],
    label="ODE solver, to the band",
)
ax.plot(t, logistic, "k:", label="equation")
ax.axhspan(0.99 * optimum, 1.01 * optimum, color="grey", alpha=0.4, label="learned")
ax.set(xlabel="gradient steps", ylabel="strength $u$")
lc.figures.key(ax, below=True, ncols=2)
plt.show()

# %%
# Where the printed formula fails
# -------------------------------
#
# The printed time assumes that the strength starts below the optimum. From above, as after a stronger first task, it is too
# short, and inside the band it is negative. The library uses a formula that holds in all cases.

above = lc.LinearRNN.aligned(
    recurrence=b, initial=float(np.sqrt(1.8 * optimum)), hidden_size=128
)
solution = lc.forecast(task, above, learning_rate=rate).solution
for band in (0.99, 0.9, 0.7):
    print(
        f"to {band:.0%} from above: {solution.time_to(band).flow_steps:.2f} steps, "
        f"as printed {float(lc.papers.paper_time(solution, band)[0]):.2f}"
    )

# %%
# The loss
# --------
#
# These times are for *half* the mean squared error. ``torch.nn.MSELoss`` has no factor of one half: with one output it halves
# every time at the same learning rate. This is a common mistake.
#
# What to do next
# ---------------
#
# - Symbols and misprints: :doc:`/theory/curriculum2025`.
# - Which function computes which equation: :doc:`/equations`.
# - Figures of the paper: :doc:`/how-to/reproduce`.
