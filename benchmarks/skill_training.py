"""Batched training of small recurrent networks: each plan of a pool, from several initial weights, to one loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import learncast as lc
from learncast.tasks import Task

UNITS, BATCH, EVALUATION, LOOK = 64, 64, 256, 5
STOPS = (0.5, 0.8, 0.95)
#: Accuracies at which a plan has learned the target: the share of the loss at the start that is gone.
ACCURACIES = (0.9, 0.95)
#: Held-out trials by which every plan is judged on the target.
JUDGE = 50
#: A plan is given up at this multiple of the steps direct training takes.
CENSOR = 3.0
#: Chosen once, so that training directly takes a few hundred steps.
RATES = {
    ("tanh", "sgd"): 0.005,
    ("tanh", "adam"): 3e-4,
    ("gru", "sgd"): 0.03,
    ("gru", "adam"): 3e-4,
    ("lstm", "sgd"): 0.1,
    ("lstm", "adam"): 5e-4,
    ("relu", "sgd"): 0.005,
    ("relu", "adam"): 3e-4,
}
KINDS = {"tanh": ("rnn", {}), "relu": ("rnn", {"nonlinearity": "relu"}), "gru": ("gru", {}), "lstm": ("lstm", {})}
Weights = dict[str, torch.Tensor]


def start(kind: str, seed: int) -> torch.nn.Module:
    """The model a user would bring: torch's layer with its own initial weights and a linear readout."""
    name, keywords = KINDS[kind]
    return lc.training.gated_module(name, hidden_size=UNITS, seed=1000 + seed, **keywords)


def stacked(models: list[torch.nn.Module]) -> Weights:
    """Weights of several models, one axis more."""
    states = [dict(m.named_parameters()) for m in models]
    return {key: torch.stack([s[key].detach() for s in states]) for key in states[0]}


def answers(kind: str, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Answers (models, trials, outputs) at the end of inputs (trials, steps, inputs) that all models share."""
    hidden = w["layer.weight_hh_l0"].shape[-1]
    bias = w["layer.bias_ih_l0"] if kind == "gru" else w["layer.bias_ih_l0"] + w["layer.bias_hh_l0"]
    flat = x.transpose(0, 1).reshape(1, -1, x.shape[2])
    drive = torch.baddbmm(bias[:, None, :], flat.expand(len(bias), -1, -1), w["layer.weight_ih_l0"].transpose(1, 2))
    drive = drive.reshape(len(bias), x.shape[1], len(x), -1)
    recurrent = w["layer.weight_hh_l0"].transpose(1, 2)
    h = drive.new_zeros(len(bias), len(x), hidden)
    c = h
    back = w["layer.bias_hh_l0"][:, None, :]
    for u in drive.unbind(1):
        if kind in ("tanh", "relu"):
            pre = torch.baddbmm(u, h, recurrent)
            h = pre.tanh() if kind == "tanh" else pre.relu()
        elif kind == "gru":
            own = torch.baddbmm(back, h, recurrent)
            gates = (u[..., : 2 * hidden] + own[..., : 2 * hidden]).sigmoid()
            r, z = gates[..., :hidden], gates[..., hidden:]
            n = torch.addcmul(u[..., 2 * hidden :], r, own[..., 2 * hidden :]).tanh()
            h = torch.lerp(n, h, z)
        else:
            pre = torch.baddbmm(u, h, recurrent)
            i, f, g, o = pre.split(hidden, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
    return torch.baddbmm(w["readout.bias"][:, None, :], h, w["readout.weight"].transpose(1, 2))


def losses(kind: str, w: Weights, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Half mean squared error of each model."""
    return (answers(kind, w, x) - y).pow(2).sum(-1).mean(-1) / 2


@dataclass
class Rule:
    """SGD or Adam on stacked weights, as torch does it."""

    name: str
    rate: float
    first: Weights
    second: Weights
    steps: int = 0

    @classmethod
    def fresh(cls, name: str, rate: float, w: Weights) -> Rule:
        zero = {k: torch.zeros_like(v) for k, v in w.items()} if name == "adam" else {}
        return cls(name, rate, zero, {k: v.clone() for k, v in zero.items()})

    def step(self, w: Weights, slopes: Weights) -> None:
        self.steps += 1
        for k, g in slopes.items():
            if self.name == "sgd":
                w[k].sub_(g, alpha=self.rate)
                continue
            self.first[k].lerp_(g, 0.1)
            self.second[k].mul_(0.999).addcmul_(g, g, value=0.001)
            root = self.second[k].sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
            w[k].addcdiv_(self.first[k], root, value=-self.rate / (1 - 0.9**self.steps))

    def kept(self, index: torch.Tensor) -> None:
        self.first = {k: v[index] for k, v in self.first.items()}
        self.second = {k: v[index] for k, v in self.second.items()}


@dataclass(frozen=True)
class Trials:
    """Batches of a task that every model sees, and held-out trials that are the same in every repeat.

    Attributes
    ----------
    key : int
        Of the batches.
    start, judge : int
        Of the trials on which the loss at the start is measured, and of those by which progress is judged.
    """

    task: Task
    key: int
    start: int
    judge: int

    def batch(self, step: int) -> Any:
        x, y = self.task.sample(BATCH, np.random.default_rng([self.key, step]))
        return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)

    def held_out(self, key: int) -> Any:
        x, y = self.task.sample(EVALUATION, np.random.default_rng([7, key, 1]))
        return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)


def run(
    kind: str,
    rule: str,
    weights: Weights,
    trials: Trials,
    goals: torch.Tensor,
    limits: np.ndarray,
) -> tuple[np.ndarray, list[list[Weights | None]]]:
    """Train each model until its loss has passed all its goals (models, goals), or its limit of steps.

    Returns the steps to each goal, interpolated between two looks at the loss, and the weights there.
    """
    n, many = goals.shape
    steps = np.full((n, many), np.inf)
    states: list[list[Weights | None]] = [[None] * many for _ in range(n)]
    w = {k: v.clone().requires_grad_() for k, v in weights.items()}
    optimizer = Rule.fresh(rule, RATES[kind, rule], w)
    alive = np.arange(n)
    x_eval, y_eval = trials.held_out(trials.judge)
    before = np.full(n, np.nan)
    step = 0
    while len(alive):
        if step % LOOK == 0:
            with torch.no_grad():
                now = losses(kind, w, x_eval, y_eval).double().numpy()
            for place, model in enumerate(alive):
                for g in range(many):
                    if math.isinf(steps[model, g]) and now[place] <= goals[model, g]:
                        steps[model, g] = _crossing(step, before[place], now[place], float(goals[model, g]))
                        states[model][g] = {k: v[place].detach().clone() for k, v in w.items()}
            on = np.isinf(steps[alive]).any(1) & (limits[alive] > step) & np.isfinite(now)
            before = now
            if not on.any():
                break
            if on.sum() <= 0.85 * len(alive):
                index = torch.as_tensor(np.flatnonzero(on))
                w = {k: v.detach()[index].requires_grad_() for k, v in w.items()}
                optimizer.kept(index)
                alive, before = alive[on], now[on]
        x, y = trials.batch(step)
        total = losses(kind, w, x, y).sum()
        slopes = dict(zip(w, torch.autograd.grad(total, list(w.values())), strict=True))
        with torch.no_grad():
            optimizer.step(w, slopes)
        step += 1
    return steps, states


def _crossing(step: int, before: float, now: float, goal: float) -> float:
    """Where the logarithm of the loss met the goal between two looks."""
    if step == 0 or not now < before:
        return float(step)
    share = (math.log(before) - math.log(goal)) / (math.log(before) - math.log(max(now, 1e-300)))
    return step - LOOK * (1 - min(max(share, 0.0), 1.0))


def measured(
    kind: str, rule: str, target: Task, candidates: list[Task], seeds: list[int], repeat: int
) -> dict[str, Any]:
    """Steps of every plan (direct first, then each candidate at each stop) from each seed to each accuracy.

    None where a plan was given up, at `CENSOR` times the steps of direct training to the last accuracy.
    """
    first = stacked([start(kind, seed) for seed in seeds])
    on_target = Trials(target, 100 * repeat, 0, JUDGE)
    goal = _goals(kind, first, on_target, ACCURACIES)
    direct, _ = run(kind, rule, first, on_target, goal, np.full(len(seeds), 20_000.0))
    limit = CENSOR * direct[:, -1]
    plans: list[tuple[int, int, float, Weights]] = []
    for c, candidate in enumerate(candidates):
        trials = Trials(candidate, 100 * repeat + c + 1, c + 1, c + 1)
        found, states = run(kind, rule, first, trials, _goals(kind, first, trials, STOPS), limit)
        plans += [
            (s, 1 + c * len(STOPS) + g, found[s, g], state)
            for s in range(len(seeds))
            for g, state in enumerate(states[s])
            if state is not None
        ]
    total = np.full((len(seeds), 1 + len(candidates) * len(STOPS), len(ACCURACIES)), np.inf)
    total[:, 0] = direct
    if plans:
        w = {k: torch.stack([p[3][k] for p in plans]) for k in first}
        of = [p[0] for p in plans]
        limits = limit[of] - np.array([p[2] for p in plans])
        found, _ = run(kind, rule, w, Trials(target, 100 * repeat + 50, 0, JUDGE), goal[of], limits)
        for (s, place, before, _), after in zip(plans, found, strict=True):
            total[s, place] = before + after
    known = total <= limit[:, None, None]
    return {
        "steps": [
            [[round(v, 1) if k else None for v, k in zip(*row, strict=True)] for row in zip(a, b, strict=True)]
            for a, b in zip(total.tolist(), known.tolist(), strict=True)
        ]
    }


def _goals(kind: str, first: Weights, trials: Trials, accuracies: tuple[float, ...]) -> torch.Tensor:
    """Losses that remain when each accuracy is reached; the least loss of these tasks is 0."""
    with torch.no_grad():
        return losses(kind, first, *trials.held_out(trials.start))[:, None] * (1 - torch.tensor(accuracies))
