"""
Gradient transport, order by order
==================================

Transport of a gradient from a unit to itself over a lag: along the gates only (zeroth order), with one pass through the
recurrent weights (first order), and by the full product of Jacobians (exact). With strong recurrent weights the exact
transport decays much more slowly than the first two orders.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from learncast.figures import COLOURS
from learncast.windows.layers import replays
from learncast.windows.transport import exact_transport, transport_factors

torch.manual_seed(0)
layer = nn.GRU(4, 32, batch_first=True).double()
with torch.no_grad():
    layer.weight_hh_l0 *= 4  # recurrent weights as large as training makes them
replay = replays(layer, torch.randn(16, 60, 4, dtype=torch.float64))[0]
lags = [1, 2, 3, 4, 6, 8, 10, 12]

zeroth, first = zip(
    *(
        (gates.abs().mean().item(), both.abs().mean().item())
        for _, gates, both in transport_factors(replay, lags)
    ),
    strict=True,
)
exact = exact_transport(replay, lags).diagonal.mean(axis=1)
print(
    f"At lag 12 the exact transport is {exact[-1] / first[-1]:.0f} times "
    "that of the first order."
)
_, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.semilogy(lags, zeroth, "o-", color=COLOURS[5], label="gates only")
ax.semilogy(lags, first, "o-", color=COLOURS[0], label="first order")
ax.semilogy(lags, exact, "k:", label="exact")
ax.set(xlabel="lag (steps)", ylabel="mean transport of a unit to itself")
ax.legend()
plt.show()
