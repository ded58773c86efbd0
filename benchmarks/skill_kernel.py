"""The tangent kernel of one of the small networks: how soon its linearised training would meet a criterion."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.func import jacrev, vmap

from benchmarks.skill_decisions import Draw, Pool
from benchmarks.skill_networks import BATCH, MOMENTUM, RATES, Weights, answers, dealt, losses


def kernel_time(
    cell: str,
    rule: str,
    pool: Pool,
    weights: Weights,
    draw: Draw,
    criterion: float,
    trials: int = 128,
    only: tuple[str, ...] = (),
) -> float:
    rng = np.random.default_rng(7)
    rate = RATES[rule, pool.loss]
    scale: Weights = {}
    if rule == "adam":
        total = {k: torch.zeros_like(v) for k, v in weights.items()}
        for _ in range(8):
            x, y = dealt([draw], rng, BATCH)
            moving = {k: v.clone().requires_grad_() for k, v in weights.items()}
            loss = losses(pool.loss, answers(cell, {k: v[None] for k, v in moving.items()}, x[None]), y[None]).sum()
            for k, g in zip(moving, torch.autograd.grad(loss, list(moving.values())), strict=True):
                total[k] += g.square() / 8
        scale = {k: rate / (v.sqrt() + 1e-8) for k, v in total.items()}
    else:
        scale = {k: torch.full_like(v, rate / (1 - MOMENTUM)) for k, v in weights.items()}
    x, y = dealt([draw], rng, 2 * trials)

    def last(w: Weights, one: Tensor) -> Tensor:
        return answers(cell, {k: v[None] for k, v in w.items()}, one[None, None])[0, 0, -1]

    moved = {k: v for k, v in weights.items() if not only or k in only}
    J = vmap(jacrev(lambda w, one: last({**weights, **w}, one)), (None, 0))(moved, x)
    flat = torch.cat([(J[k] * scale[k].sqrt()).flatten(2) for k in moved], 2)
    n, o, p = flat.shape
    f = vmap(last, (None, 0))(weights, x)
    wanted = torch.nn.functional.one_hot(y[:, -1], o).float()
    if pool.loss == "cross_entropy":
        wanted = wanted * 6 - 2.0
    flat = flat.reshape(n * o, p).double()
    K = 2 * flat @ flat[: trials * o].T / (trials * x.shape[1])
    train, test = K[: trials * o], K[trials * o :]
    val, vec = torch.linalg.eigh((train + train.T) / 2)
    gap = (wanted - f)[:trials].reshape(-1).double()
    c = vec.T @ gap
    base, mixed = f[trials:].double(), test @ vec
    labels = y[trials:, -1]
    best = 0.0
    for t in np.geomspace(1, 1e4, 60):
        share = torch.where(
            val > 1e-9, -torch.expm1(-val.clamp_min(0) * t) / val.clamp_min(1e-12), torch.full_like(val, t)
        )
        out = base + (mixed @ (share * c)).reshape(-1, o)
        acc = float((out.argmax(1) == labels).float().mean())
        best = max(best, acc)
        if acc >= criterion:
            return float(t)
    return 1e4 * (1 + criterion - best)
