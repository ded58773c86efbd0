"""Many small recurrent networks trained side by side in plain torch, each with its own task, rate and batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.decision_pools import CRITERION, DECISION, Draw, Pool

#: Leak of the rate network, and trials of a batch.
LEAK, BATCH = 0.2, 32
#: Steps between two looks at held-out accuracy, and trials of a look; the mean of so many looks counts.
LOOK, JUDGED_TRIALS, LOOKS = 10, 256, 3
CELLS = ("tanh", "rate", "gru")
#: Usual learning rates by optimiser and loss; SGD has momentum.
RATES = {
    ("adam", "cross_entropy"): 3e-3,
    ("adam", "squared"): 3e-3,
    ("sgd", "cross_entropy"): 0.2,
    ("sgd", "squared"): 0.05,
}
MOMENTUM = 0.9

Weights = dict[str, Tensor]


def start(cell: str, pool: Pool, seed: int, units: int) -> Weights:
    """Weights of one network, as torch begins (rate network: Gaussian recurrence of spectral radius about 1)."""
    generator = torch.Generator().manual_seed(1000 + seed)
    bound = 1 / math.sqrt(units)
    gates = 3 if cell == "gru" else 1

    def uniform(*shape: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) * bound

    found = {
        "drive": uniform(gates * units, pool.inputs),
        "recur": uniform(gates * units, units),
        "drive_bias": uniform(gates * units),
        "recur_bias": uniform(gates * units),
        "read": uniform(pool.labels, units),
        "read_bias": uniform(pool.labels),
    }
    if cell == "rate":
        found["recur"] = torch.randn((units, units), generator=generator) * bound
        found["drive"] = found["drive"] * math.sqrt(units / pool.inputs)
    return found


def answers(cell: str, weights: Weights, x: Tensor) -> Tensor:
    """Answers (networks, trials, steps, labels) to inputs (networks, trials, steps, inputs)."""
    n, trials, steps, _ = x.shape
    units = weights["read"].shape[-1]
    driven = torch.baddbmm(weights["drive_bias"][:, None], x.flatten(1, 2), weights["drive"].mT)
    rows = driven.reshape(n, trials, steps, -1).unbind(2)
    recur, bias = weights["recur"].mT, weights["recur_bias"][:, None]
    state = x.new_zeros(n, trials, units)
    states = []
    for row in rows:
        fed = torch.baddbmm(bias, state, recur)
        if cell == "tanh":
            state = torch.tanh(row + fed)
        elif cell == "rate":
            state = (1 - LEAK) * state + LEAK * torch.relu(row + fed)
        else:
            reset, update = torch.sigmoid(row[..., : 2 * units] + fed[..., : 2 * units]).chunk(2, dim=2)
            new = torch.tanh(row[..., 2 * units :] + reset * fed[..., 2 * units :])
            state = new + update * (state - new)
        states.append(state)
    seen = torch.stack(states, 2).flatten(1, 2)
    return torch.baddbmm(weights["read_bias"][:, None], seen, weights["read"].mT).reshape(n, trials, steps, -1)


def losses(kind: str, answered: Tensor, labels: Tensor) -> Tensor:
    """Loss of each network, the mean over trials and steps."""
    if kind == "cross_entropy":
        each = torch.nn.functional.cross_entropy(answered.flatten(0, 2), labels.flatten(), reduction="none")
        return each.reshape(labels.shape).mean((1, 2))
    wanted = torch.nn.functional.one_hot(labels, answered.shape[-1]).to(answered.dtype)
    return (answered - wanted).square().sum(3).mean((1, 2))


def right(answered: Tensor, labels: Tensor) -> Tensor:
    """Share of right decisions of each network."""
    return (answered[:, :, -DECISION:].argmax(3) == labels[:, :, -DECISION:]).float().mean((1, 2))


@dataclass
class Lane:
    """One network of a fleet: its seed, its learning rate and where its gradients are clipped.

    `tasks` are trained on, in equal parts of each batch; `stages` follow when `next_stage` says so.
    """

    seed: int
    rate: float
    clip: float
    tasks: Sequence[Draw]
    stages: Sequence[Sequence[Draw]] = ()


class Fleet:
    """Networks on their way, judged on the target of their pool."""

    def __init__(self, cell: str, rule: str, pool: Pool, units: int, lanes: Sequence[Lane]) -> None:
        self.cell, self.rule, self.pool, self.lanes = cell, rule, pool, list(lanes)
        made = [start(cell, pool, lane.seed, units) for lane in lanes]
        self.weights = {name: torch.stack([one[name] for one in made]) for name in made[0]}
        self.moments = [{k: torch.zeros_like(v) for k, v in self.weights.items()} for _ in range(2)]
        self.steps = torch.zeros(len(lanes), dtype=torch.float64)
        self.rates, self.clips = (torch.tensor([getattr(lane, name) for lane in lanes]) for name in ("rate", "clip"))
        self.rngs = [np.random.default_rng((7, lane.seed)) for lane in lanes]

    def look(self) -> np.ndarray:
        """Held-out accuracy of each network."""
        x, y = (part[None].expand(len(self.lanes), *part.shape) for part in held_out(self.pool.target))
        with torch.no_grad():
            return right(answers(self.cell, self.weights, x), y).numpy()

    def advance(self, steps: int = LOOK) -> None:
        """Take some steps."""
        drawn = [dealt(lane.tasks, rng, BATCH * steps) for lane, rng in zip(self.lanes, self.rngs, strict=True)]
        x, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        for k in range(steps):
            rows = slice(k * BATCH, (k + 1) * BATCH)
            self._step(x[:, rows], y[:, rows])

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.steps += 1
        moving = {name: value.detach().requires_grad_() for name, value in self.weights.items()}
        loss = losses(self.pool.loss, answers(self.cell, moving, x), y).nan_to_num(0.0, 0.0)
        slopes = [slope.nan_to_num(0.0, 0.0, 0.0) for slope in torch.autograd.grad(loss.sum(), list(moving.values()))]
        with torch.no_grad():
            self.weights = {name: value.detach() for name, value in moving.items()}
            size = torch.sqrt(sum((slope.flatten(1).square().sum(1) for slope in slopes), torch.zeros(())))
            shrunk = (self.clips / (size + 1e-6)).clamp(max=1.0)
            for (name, value), raw in zip(self.weights.items(), slopes, strict=True):
                slope, rate = raw * _each(shrunk, raw), _each(self.rates, value)
                first, second = self.moments[0][name], self.moments[1][name]
                if self.rule == "sgd":
                    value.sub_(first.mul_(MOMENTUM).add_(slope) * rate)
                    continue
                first.mul_(0.9).add_(slope, alpha=0.1)
                second.mul_(0.999).addcmul_(slope, slope, value=0.001)
                grown, late = (_each(1 - share**self.steps, value) for share in (0.9, 0.999))
                value.sub_(rate * (first / grown) / ((second / late).sqrt_() + 1e-8))

    def restart(self, place: int) -> None:
        """Begin one network's optimiser afresh."""
        self.steps[place] = 0
        for one in self.moments:
            for value in one.values():
                value[place] = 0

    def keep(self, places: Sequence[int]) -> None:
        """Go on with some of them."""
        index = torch.tensor(places)
        self.weights = {k: v[index] for k, v in self.weights.items()}
        self.moments = [{k: v[index] for k, v in one.items()} for one in self.moments]
        self.steps, self.rates, self.clips = self.steps[index], self.rates[index], self.clips[index]
        self.lanes, self.rngs = ([values[k] for k in places] for values in (self.lanes, self.rngs))


def _each(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1))


def dealt(tasks: Sequence[Draw], rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    """Trials, dealt to the tasks in turn."""
    parts = [draw(rng, -(-n // len(tasks))) for draw in tasks]
    x, y = (np.stack(found, 1).reshape(-1, *found[0].shape[1:])[:n] for found in zip(*parts, strict=True))
    return torch.from_numpy(x), torch.from_numpy(y)


_HELD: dict[Draw, tuple[Tensor, Tensor]] = {}


def held_out(draw: Draw) -> tuple[Tensor, Tensor]:
    """Trials that nothing is trained on."""
    if draw not in _HELD:
        _HELD[draw] = dealt([draw], np.random.default_rng(99), JUDGED_TRIALS)
    return _HELD[draw]


def met(accuracies: Sequence[float], level: float = CRITERION) -> bool:
    """Whether the mean of the last looks reaches a level."""
    return len(accuracies) >= LOOKS and bool(np.mean(accuracies[-LOOKS:]) >= level)


def trained(
    fleet: Fleet, most: int, next_stage: Callable[[Sequence[float]], bool] = lambda looks: False
) -> tuple[list[int | None], list[list[float]]]:
    """Train every network until the goal or `most` steps; return its steps (None if not there) and its looks."""
    looks: list[list[float]] = [[] for _ in fleet.lanes]
    steps: list[int | None] = [None] * len(looks)
    alive, now = list(range(len(looks))), 0
    while True:
        on = []
        for place, (k, accuracy) in enumerate(zip(alive, fleet.look(), strict=True)):
            looks[k].append(float(accuracy))
            lane = fleet.lanes[place]
            if met(looks[k]):
                steps[k] = now
            elif now < most:
                on.append(place)
                if lane.stages and next_stage(looks[k]):
                    lane.tasks, *lane.stages = lane.stages
                    fleet.restart(place)
        if not on:
            return steps, looks
        if len(on) < len(alive):
            fleet.keep(on)
            alive = [alive[place] for place in on]
        fleet.advance()
        now += LOOK
