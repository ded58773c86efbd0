"""The published diagnosis of a learnability window, written plainly: what ours is timed against.

One sample per sequence and step, the total derivative of the states along w by forward-mode differentiation, float64
windows made for the envelope and made again for the statistic in a loop over lags, and 50 points of the empirical
characteristic function of all samples of a lag. The transport itself is the exact first order, so that envelopes can be
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from learncast.windows import cells

BATCH, POINTS, THRESHOLD = 128, 50, 0.1


class Steps(NamedTuple):
    """What transport is made of at every step, (batch, time, hidden): keep, mix, and an LSTM's way out of its cell."""

    keep: Tensor
    mix: Tensor
    shown: Tensor | None = None  # e_t
    output: Tensor | None = None  # tanh(c_t) o'_t U_o,qq


def replayed(cell: cells.GatedCell, x: Tensor) -> Steps:
    """Run the cell step by step and write the factors of every step down."""
    width = cell.hidden_size
    weights, bias = cell.recurrent_weights, cell.bias
    blocks, diagonals = weights.split(cell.block_rows()), [b.diagonal() for b in weights.split(cell.block_rows())]
    h = c = torch.zeros(len(x), width)
    rows: list[tuple[Tensor, ...]] = []
    for t in range(x.shape[1]):
        p = x[:, t] @ cell.input_weights.T + bias
        parts = p.split(cell.block_rows(), 1)
        if isinstance(cell, cells.LSTM):
            i, f, g, o = (part + h @ block.T for part, block in zip(parts, blocks, strict=True))
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            u_i, u_f, u_g, u_o = diagonals
            into = c * f * (1 - f) * u_f + g * i * (1 - i) * u_i + i * (1 - g * g) * u_g
            c = f * c + i * g
            seen = c.tanh()
            rows.append((f, into, o * (1 - seen * seen), seen * o * (1 - o) * u_o))
            h = o * seen
        elif isinstance(cell, cells.PaperGRU):
            z, r = (parts[0] + h @ blocks[0].T).sigmoid(), (parts[1] + h @ blocks[1].T).sigmoid()
            g = (parts[2] + (r * h) @ blocks[2].T).tanh()
            through = (h * r * (1 - r)) @ (blocks[2] * blocks[1].T).T
            rows.append((1 - z, (g - h) * z * (1 - z) * diagonals[0] + z * (1 - g * g) * (diagonals[2] * r + through)))
            h = (1 - z) * h + z * g
        else:
            g = (parts[-1] + h @ blocks[-1].T).tanh()
            mix = (1 - g * g) * diagonals[-1]
            if isinstance(cell, cells.ConstGate):
                s = torch.full_like(g, cell.gate)
                mix = s * mix
            else:
                s = (parts[0] + h @ blocks[0].T).sigmoid()
                own = diagonals[0] if isinstance(cell, cells.DiagGate) else blocks[0][0]
                mix = s * mix + (g - h) * s * (1 - s) * own
                s = s.expand_as(g)
            rows.append((1 - s, mix))
            h = (1 - s) * h + s * g
    return Steps(*(torch.stack(column, 1).double() for column in zip(*rows, strict=True)))


class Windows:
    """Transport over any lag from running sums."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        begin = torch.zeros_like(steps.keep[:, :1])
        self.logs = torch.cat([begin, steps.keep.log().cumsum(1)], 1)
        ratio = steps.mix / steps.keep
        if steps.shown is not None:
            ratio = torch.cat([begin, ratio[:, 1:] * steps.shown[:, :-1]], 1)
        self.ratios = torch.cat([begin, ratio.cumsum(1)], 1)

    def __call__(self, lag: int) -> Tensor:
        """First-order transport of every window with a source, (batch, time - lag, hidden)."""
        logs, ratios, steps = self.logs, self.ratios, self.steps
        last = logs.shape[1]
        zeroth = (logs[:, lag + 1 :] - logs[:, 1 : last - lag]).exp()
        if steps.shown is None or steps.output is None:
            return zeroth * (1 + ratios[:, lag + 1 :] - ratios[:, 1 : last - lag])
        if lag == 1:
            return zeroth * steps.shown[:, lag:]
        inner = steps.shown[:, lag:] * (1 + ratios[:, lag + 1 :] - ratios[:, 2 : last - lag + 1])
        return zeroth * (inner + steps.output[:, lag:] * steps.shown[:, lag - 1 : -1] / steps.keep[:, lag:])


def total_answer(cell: nn.Module, x: Tensor, generator: torch.Generator) -> Tensor:
    """Derivative of all states along a random direction w, by forward-mode differentiation."""
    names = dict(cell.named_parameters())
    w = {name: torch.randn(value.shape, generator=generator) for name, value in names.items()}
    length = torch.cat([value.flatten() for value in w.values()]).norm()
    w = {name: value / length for name, value in w.items()}
    held = {name: value.detach() for name, value in names.items()}
    _, answer = torch.func.jvp(lambda given: torch.func.functional_call(cell, given, (x,)), (held,), (w,))
    return answer


def batches(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Iterator[tuple]:
    """Transport, errors and total answers of one batch at a time."""
    for k in range(0, len(inputs), BATCH):
        x, y = (torch.as_tensor(part[k : k + BATCH]).float() for part in (inputs, targets))
        with torch.no_grad():
            steps = replayed(model.block, x)
            states = model.block(x)
            answer = total_answer(model.block, x, torch.Generator().manual_seed(seed))
        states = states.detach().requires_grad_()
        loss = ((nn.functional.linear(states, model.weights, model.bias) - y) ** 2).sum() / 2
        (delta,) = torch.autograd.grad(loss, states)
        yield Windows(steps), delta.double(), answer.double()


def tail(samples: np.ndarray) -> tuple[float, float]:
    """Index and scale by a straight line through 50 points of the empirical characteristic function."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    centred = (samples - middle) / (high - low)
    u = np.linspace(0.1, 1.5, POINTS)
    size = np.array([np.hypot(np.cos(centred * point).mean(), np.sin(centred * point).mean()) for point in u])
    slope, intercept = np.polyfit(np.log(u), np.log(-np.log(size)), 1)
    alpha = float(np.clip(slope, 1.0, 2.0))
    return alpha, float((high - low) * np.exp(intercept / slope))


def diagnosed(
    model: nn.Module, inputs: np.ndarray, targets: np.ndarray, lags: list[int], sizes: list[int], *, seed: int = 212
) -> tuple[np.ndarray, dict[int, int]]:
    """The envelope (summed over units) and the window of every number of samples, by the published rule."""
    envelope, number = np.zeros(len(lags)), len(inputs)
    samples: list[list[np.ndarray]] = [[] for _ in lags]
    for windows, delta, answer in batches(model, inputs, targets, seed):
        for row, lag in enumerate(lags):
            size = windows(lag).abs()
            envelope[row] += float(size.mean(1).sum(1).sum()) / number
        for row, lag in enumerate(lags):
            gamma = windows(lag)
            value = (gamma * delta[:, lag:] * answer[:, : gamma.shape[1]]).sum(2)
            samples[row].append((value * value.mean().sign()).flatten().numpy())
    found = dict.fromkeys(sizes, 0)
    for lag, parts in zip(lags, samples, strict=True):
        values = np.concatenate(parts)
        alpha, sigma = tail(values)
        for n in sizes:
            if abs(values.mean()) * n ** (1 - 1 / alpha) / sigma >= THRESHOLD:
                found[n] = lag
    return envelope, found
