"""Many small recurrent networks trained side by side in plain torch: each has its own task, batches and optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from benchmarks.skill_decisions import DECISION, Draw, Pool

#: Units of every network, its leak (of the rate network), and trials of a batch.
UNITS, LEAK, BATCH = 32, 0.2, 32
#: Steps between two looks at held-out accuracy, and trials of a look; the mean of so many looks counts.
LOOK, JUDGED, LOOKS = 10, 256, 3
CELLS = ("tanh", "rate", "gru")
#: Learning rates by optimiser and loss; SGD has momentum.
RATES = {
    ("adam", "cross_entropy"): 3e-3,
    ("adam", "squared"): 3e-3,
    ("sgd", "cross_entropy"): 0.2,
    ("sgd", "squared"): 0.05,
}
MOMENTUM = 0.9

Weights = dict[str, Tensor]


def start(cell: str, pool: Pool, seed: int) -> Weights:
    """Weights of one network, as torch begins (rate network: Gaussian recurrence of spectral radius about 1)."""
    generator = torch.Generator().manual_seed(1000 + seed)
    bound = 1 / math.sqrt(UNITS)
    gates = 3 if cell == "gru" else 1

    def uniform(*shape: int) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) * bound

    found = {
        "drive": uniform(gates * UNITS, pool.inputs),
        "recur": uniform(gates * UNITS, UNITS),
        "drive_bias": uniform(gates * UNITS),
        "recur_bias": uniform(gates * UNITS),
        "read": uniform(pool.labels, UNITS),
        "read_bias": uniform(pool.labels),
    }
    if cell == "rate":
        found["recur"] = torch.randn((UNITS, UNITS), generator=generator) * bound
        found["drive"] = found["drive"] * math.sqrt(UNITS / pool.inputs)
    return found


def stacked(networks: Sequence[Weights]) -> Weights:
    """Networks with a leading axis."""
    return {name: torch.stack([one[name] for one in networks]) for name in networks[0]}


def answers(cell: str, weights: Weights, x: Tensor) -> Tensor:
    """Answers (networks, trials, steps, labels) to inputs (networks, trials, steps, inputs)."""
    n, trials, steps, _ = x.shape
    driven = torch.baddbmm(weights["drive_bias"][:, None], x.flatten(1, 2), weights["drive"].mT)
    rows = driven.reshape(n, trials, steps, -1).unbind(2)
    recur, bias = weights["recur"].mT, weights["recur_bias"][:, None]
    state = x.new_zeros(n, trials, UNITS)
    states = []
    for row in rows:
        fed = torch.baddbmm(bias, state, recur)
        if cell == "tanh":
            state = torch.tanh(row + fed)
        elif cell == "rate":
            state = (1 - LEAK) * state + LEAK * torch.relu(row + fed)
        else:
            reset, update = torch.sigmoid(row[..., : 2 * UNITS] + fed[..., : 2 * UNITS]).chunk(2, dim=2)
            new = torch.tanh(row[..., 2 * UNITS :] + reset * fed[..., 2 * UNITS :])
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
class Fleet:
    """Networks on their way.

    Attributes
    ----------
    weights : dict of (networks, ...) tensors
    tasks : list of lists of draws
        What each network is trained on; the trials of a batch are dealt to several in turn.
    judged : list of draws
        On what each is judged.
    seeds : list of int
        Of each network's batches.
    """

    cell: str
    rule: str
    pool: Pool
    weights: Weights
    tasks: list[list[Draw]]
    judged: list[Draw]
    seeds: list[int]
    moments: list[Weights] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = {k: v.clone() for k, v in self.weights.items()}
        self.moments = [{k: torch.zeros_like(v) for k, v in self.weights.items()} for _ in range(2)]
        self.steps = torch.zeros(len(self), dtype=torch.float64)
        self.rngs = [np.random.default_rng((seed, place)) for place, seed in enumerate(self.seeds)]
        self.tests = [held_out(draw) for draw in self.judged]

    def __len__(self) -> int:
        return len(self.tasks)

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        """Held-out accuracy and loss of each network on what it is judged by."""
        with torch.no_grad():
            out = answers(self.cell, self.weights, torch.stack([x for x, _ in self.tests]))
            labels = torch.stack([y for _, y in self.tests])
            return right(out, labels).numpy(), losses(self.pool.loss, out, labels).numpy()

    def advance(self, steps: int = LOOK) -> None:
        """Take some steps."""
        drawn = [dealt(tasks, rng, BATCH * steps) for tasks, rng in zip(self.tasks, self.rngs, strict=True)]
        x, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        rate = RATES[self.rule, self.pool.loss]
        for k in range(steps):
            self.steps += 1
            moving = {name: value.requires_grad_() for name, value in self.weights.items()}
            rows = slice(k * BATCH, (k + 1) * BATCH)
            loss = losses(self.pool.loss, answers(self.cell, moving, x[:, rows]), y[:, rows]).sum()
            slopes = torch.autograd.grad(loss, list(moving.values()))
            with torch.no_grad():
                self.weights = {name: value.detach() for name, value in moving.items()}
                for (name, value), slope in zip(self.weights.items(), slopes, strict=True):
                    first, second = self.moments[0][name], self.moments[1][name]
                    if self.rule == "sgd":
                        value.sub_(first.mul_(MOMENTUM).add_(slope), alpha=rate)
                        continue
                    first.mul_(0.9).add_(slope, alpha=0.1)
                    second.mul_(0.999).addcmul_(slope, slope, value=0.001)
                    grown, late = (self._each(1 - share**self.steps, value) for share in (0.9, 0.999))
                    value.sub_(rate * (first / grown) / ((second / late).sqrt_() + 1e-8))

    @staticmethod
    def _each(numbers: Tensor, like: Tensor) -> Tensor:
        return numbers.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1))

    def restart(self, place: int) -> None:
        """Begin one network's optimiser afresh."""
        self.steps[place] = 0
        for one in self.moments:
            for value in one.values():
                value[place] = 0

    def kept(self, places: Sequence[int]) -> None:
        """Go on with some of them."""
        index = torch.tensor(places)
        self.steps = self.steps[index]
        self.weights = {k: v[index] for k, v in self.weights.items()}
        self.moments = [{k: v[index] for k, v in one.items()} for one in self.moments]
        for name in ("tasks", "judged", "seeds", "rngs", "tests"):
            setattr(self, name, [getattr(self, name)[k] for k in places])


def dealt(tasks: Sequence[Draw], rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    """Trials, dealt to the tasks in turn."""
    if len(tasks) == 1:
        x, y = tasks[0](rng, n)
    else:
        parts = [draw(rng, -(-n // len(tasks))) for draw in tasks]
        x, y = (np.stack(found, 1).reshape(-1, *found[0].shape[1:])[:n] for found in zip(*parts, strict=True))
    return torch.from_numpy(x), torch.from_numpy(y)


_HELD: dict[tuple[Draw, int], tuple[Tensor, Tensor]] = {}


def held_out(draw: Draw, n: int = JUDGED) -> tuple[Tensor, Tensor]:
    """Trials that nothing is trained on."""
    if (draw, n) not in _HELD:
        _HELD[draw, n] = dealt([getattr(draw, "held_out", draw)], np.random.default_rng(99), n)
    return _HELD[draw, n]


def learned_at(accuracies: Sequence[float], criterion: float) -> int | None:
    """The look at which the mean of the last three meets the criterion; none when it never does."""
    for k in range(LOOKS - 1, len(accuracies)):
        if np.mean(accuracies[k - LOOKS + 1 : k + 1]) >= criterion:
            return k
    return None


def until(fleet: Fleet, stop: Callable[[int, list[float]], bool], limit: Sequence[int]) -> list[dict[str, list[float]]]:
    """Train every network until its own looks say stop, or its limit of steps; the looks of each."""
    curves: list[dict[str, list[float]]] = [{"accuracy": [], "loss": []} for _ in range(len(fleet))]
    alive = list(range(len(fleet)))
    while True:
        accuracy, loss = fleet.look()
        for place, k in enumerate(alive):
            curves[k]["accuracy"].append(float(accuracy[place]))
            curves[k]["loss"].append(float(loss[place]))
        on = [
            place
            for place, k in enumerate(alive)
            if not stop(k, curves[k]["accuracy"]) and (len(curves[k]["loss"]) - 1) * LOOK < limit[k]
        ]
        if not on:
            return curves
        if len(on) < len(alive):
            fleet.kept(on)
            alive = [alive[place] for place in on]
        fleet.advance()
