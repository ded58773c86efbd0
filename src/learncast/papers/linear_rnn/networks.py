"""Descent of networks with learned recurrence, and the theory of one mode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import LinearRNN, Task, Training
from learncast._core.validation import FloatArray
from learncast.results import described
from learncast.tasks import sensory
from learncast.theory.dynamics.descent import Descent, descend
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.recurrent_mode import mode_trajectory
from learncast.theory.recurrence import optimum, stability, tradeoff
from learncast.theory.recurrence.feature_learning import feature_learning
from learncast.theory.recurrence.order import descent_half_loss_time, half_loss_time, order_reversal

HIDDEN = 64
STEPS = 10
TIME = "steps x learning rate"
#: What learns.
ALL = ("input", "recurrent", "output")


def random_network(rng: np.random.Generator, *, gain: float, recurrent_gain: float) -> LinearRNN:
    """Return random weights of variance gain² / units; the gain of the recurrent ones is their spectral radius."""
    W_x, W_h, W_y = (rng.standard_normal(s) / math.sqrt(HIDDEN) for s in ((HIDDEN, 1), (HIDDEN, HIDDEN), (1, HIDDEN)))
    return LinearRNN(gain * W_x, recurrent_gain * W_h, gain * W_y)


def scalar_network(rng: np.random.Generator, *, recurrence: float, initial: float) -> LinearRNN:
    """Return random, unaligned input and output weights that learn like a mode from a = c = `initial`."""
    W_x, W_y = rng.standard_normal((2, HIDDEN))
    scale = 2 * initial / np.linalg.norm(W_x + W_y)
    return LinearRNN(scale * W_x[:, None], recurrence * np.eye(HIDDEN), scale * W_y[None])


def mode_network(recurrence: float, strength: float = 1.0) -> LinearRNN:
    """Return a network with one balanced mode; its other units are idle."""
    size = math.sqrt(strength)
    return LinearRNN.aligned(recurrence=[recurrence], initial=size, hidden_size=HIDDEN)


def filter_strengths(task: Task) -> FloatArray:
    """Return Cov(y, x) by lag of a task with one input and one output, lag 0 first."""
    return lag_statistics(task).cross[:, 0, 0]


def trained(run: Descent) -> LinearRNN:
    """Return the network at the end of a descent."""
    return cast(LinearRNN, run.network_at(run.steps))


@cache
def fitted(name: str, seed: int, accuracy: float, **given: float) -> LinearRNN:
    """Train a 64-unit network with all gains 0.3 on a sensory task.

    The learning rate is half of the largest stable one, at the start and at the task's best single mode.
    """
    start = random_network(np.random.default_rng(seed), gain=0.3, recurrent_gain=0.3)
    task = getattr(sensory, name)(STEPS, **given)
    best = optimum.best_mode(task)
    ends = start, mode_network(best.recurrence, best.strength)
    rate = 0.5 * min(stability.largest_stable_rate(n, task).learning_rate for n in ends)
    return trained(descend(task, start, Training(rate, learn=ALL, most_steps=60_000), goal=accuracy))


def best(sequences: Iterable[FloatArray]) -> FloatArray:
    """Return the best recurrence for each sequence of strengths by lag."""
    return np.array([optimum.best_recurrence(one).best.recurrence for one in sequences])


def order(seeds: int, points: int, starts: Sequence[float], *, initial: float = 0.03) -> xr.Dataset:
    """S1: half-loss times of a late and an early task over the initial recurrence."""
    family = {"late": sensory.leaky, "early": sensory.primacy}
    cases = {f"{name} x {size:g}": (name, size) for size in (1.0, 1.5) for name in family}
    tasks = {case: family[name](STEPS, decay=0.7, scale=size) for case, (name, size) in cases.items()}
    strengths = np.stack([filter_strengths(task) for task in tasks.values()])
    lines, at = np.linspace(0.3, 1.15, points), np.array(starts)

    def theory(recurrence: FloatArray) -> FloatArray:
        return half_loss_time(strengths[:, None], recurrence=recurrence, input_weight=initial).steps

    predicted, measured, several = theory(at), np.empty((len(tasks), len(at), seeds)), list(tasks.values())
    for i, j, seed in np.ndindex(measured.shape):
        network = scalar_network(np.random.default_rng(seed), recurrence=starts[j], initial=initial)
        rate = min(float(predicted[i, j]) / 600, 5e-3)
        measured[i, j, seed] = descent_half_loss_time(several[i], network, learning_rate=rate)
    return xr.Dataset(
        {
            "theory": (("series", "recurrence"), theory(lines), described("half-loss time", TIME)),
            "networks": (("series", "network_recurrence", "seed"), measured, described("half-loss time", TIME)),
            "told": (("series", "network_recurrence"), predicted, described("half-loss time", TIME)),
        },
        coords={
            "series": list(tasks),
            "recurrence": ("recurrence", lines, described("initial recurrence b0", "1")),
            "network_recurrence": at,
        },
        attrs={"reversal": order_reversal(strengths[0], strengths[1], initial=initial).recurrence, "initial": initial},
    )


def recurrences(sequences: int) -> xr.Dataset:
    """S2a: the best recurrence of named and of random positive sequences against their mean lag."""
    named = {
        "sum": sensory.integrate(STEPS),
        "recency 0.8": sensory.leaky(STEPS),
        "primacy 0.8": sensory.primacy(STEPS),
        "ramp up": sensory.linear_ramp(STEPS),
        "ramp down": sensory.linear_ramp(STEPS, rising=False),
        "delay 3": sensory.evidence_delay(STEPS),
        "pulse at lag 4": sensory.impulse(STEPS, 4),
        "pulse at lag 5": sensory.impulse(STEPS, 5),
    }
    rng = np.random.default_rng(0)
    k = np.arange(STEPS)
    random = rng.random((sequences, STEPS)) * np.exp(rng.uniform(-0.3, 0.3, (sequences, 1)) * k)
    known = np.stack([filter_strengths(task) for task in named.values()])
    text, lag = described("best recurrence b*", "1"), described("mean lag of the target", "steps")
    return xr.Dataset(
        {
            "random": ("sequence", best(random), text),
            "named": ("task", best(known), text),
            "random_mean_lag": ("sequence", random @ k / random.sum(axis=1), lag),
            "named_mean_lag": ("task", known @ k / known.sum(axis=1), lag),
        },
        coords={"task": list(named)},
    )


def horizons(seeds: int, accuracy: float, *, last: int = 50) -> xr.Dataset:
    """S2b: loss on longer trials, by lag (end) and by step (start), of modes and of trained networks."""
    clock, at = np.arange(STEPS, last + 1), np.arange(STEPS, last + 1, 5)
    leaks, decays = (0.99, 1.0, 1.01), (0.9, 1.0, 1.1)
    summed = [fitted("integrate", seed, accuracy) for seed in range(seeds)]

    def ones(k: FloatArray) -> FloatArray:
        return np.ones(len(k))

    def by_step(rho: float) -> object:
        return lambda t: rho ** (STEPS - t)

    def of_mode(b: float, strengths: Any, anchor: str) -> FloatArray:
        return stability.extrapolation(optimum.Optimum(b, 1.0, 0.0, 0.0, ""), strengths, clock, anchor=anchor).loss

    def of_networks(nets: list[LinearRNN], strengths: Any, anchor: str) -> FloatArray:
        return np.transpose([stability.extrapolation(n, strengths, at, anchor=anchor).loss for n in nets])

    by_decay = [[fitted("leaky", k, accuracy, decay=r) for k in range(seeds)] if r != 1 else summed for r in decays]
    started = [of_networks(nets, by_step(r), "start") for r, nets in zip(decays, by_decay, strict=True)]
    text, networks = described("loss", "target^2"), ("network_horizon", "seed")
    return xr.Dataset(
        {
            "end": (("leak", "horizon"), [of_mode(b, ones, "end") for b in leaks], text),
            "start": (("decay", "horizon"), [of_mode(r, by_step(r), "start") for r in decays], text),
            "end_networks": (("exact", *networks), [of_networks(summed, ones, "end")], text),
            "start_networks": (("decay", *networks), started, text),
        },
        coords={
            "leak": list(leaks),
            "exact": [1.0],
            "decay": list(decays),
            "horizon": ("horizon", clock, described("steps in a trial T2", "steps")),
            "network_horizon": at,
        },
    )


def terms(points: int) -> xr.Dataset:
    """S3a: data term and regulariser over training, and the response to earlier inputs if only the last one counts."""
    clock = np.linspace(0.0, 12.0, 12 * points)
    task, last = sensory.leaky(STEPS, decay=0.8), sensory.impulse(STEPS, 0)
    mode = mode_trajectory(clock, 0.1, 0.5, 0.1, filter_strengths(task))
    theory = tradeoff.loss_terms(mode.input, mode.recurrence, mode.output, filter_strengths(task))
    fading = mode_trajectory(clock, 0.03, 0.9, 0.03, filter_strengths(last))
    lags = np.arange(1, 4)
    past = fading.input * fading.output * fading.recurrence ** lags[:, None]
    rate, at = 4e-3, np.linspace(0, 3000, 31, dtype=int)
    learning = Training(rate, learn=ALL)
    runs = [
        descend(t, scalar_network(np.random.default_rng(0), recurrence=b, initial=a), learning, steps=3000)
        for t, b, a in ((task, 0.5, 0.1), (last, 0.9, 0.03))
    ]
    paths = [cast(list[LinearRNN], run.networks_at(at)) for run in runs]
    filters = [np.array([(n.output_weights @ stability.reach(n, STEPS))[:, 0, 0] for n in path]) for path in paths]
    data, power = -filters[0] @ filter_strengths(task), 0.5 * (filters[0] ** 2).sum(axis=1)
    constant, parts = 0.5 * task.target_power, [theory.data, theory.regulariser, theory.loss]
    before, after = (paths[1][n].recurrent_weights for n in (0, -1))
    return xr.Dataset(
        {
            "terms": (("term", "time"), parts, described("part of the loss", "target^2")),
            "network_terms": (("term", "network_time"), [data, power, constant + data + power]),
            "past": (("lag", "time"), past, described("response to earlier inputs", "1")),
            "network_past": (("lag", "network_time"), filters[1][:, 1:4].T),
        },
        coords={
            "term": ["data term -u P", "regulariser u² Q / 2", "loss"],
            "lag": [f"lag {k}" for k in lags],
            "time": ("time", clock, described("training time", TIME)),
            "network_time": rate * at,
        },
        attrs={"recurrent_change": float(np.linalg.norm(after - before) / np.linalg.norm(before))},
    )


def late_pulses(points: int, backgrounds: Sequence[float]) -> xr.Dataset:
    """S3b: the best recurrence of a late pulse over its background, its jump, and the loss at three backgrounds."""
    lengths, grid, b = (10, 20, 50), np.linspace(0.02, 0.3, 3 * points), np.linspace(0.0, 1.1, 221)
    jumps = [tradeoff.late_pulse_transition(T) for T in lengths]

    def pulse(T: int, eps: float) -> FloatArray:
        return np.where(np.arange(T) == 0, 1.0, eps)

    lines = [best(pulse(T, e) for e in grid) for T in lengths]
    shown = np.array([0.08, jumps[-1].parameter, 0.16])
    # At the best strength, where data = -2 regulariser, P² / 2Q of the constant is explained.
    parts = [tradeoff.loss_terms(1.0, b, 1.0, pulse(50, eps)) for eps in shown]
    explained = [part.data**2 / (4 * part.regulariser * part.constant) for part in parts]
    starts, around = (0.1, 0.95), ("below", "above", "bistable_from", "bistable_to")
    tasks = [sensory.late_pulse(20, eps) for eps in backgrounds]
    slow, weak = Training(0.008, learn=ALL), [mode_network(start, 0.01) for start in starts]
    runs = [[descend(task, start, slow, steps=4000) for task in tasks] for start in weak]
    ends = [[float(trained(run).recurrent_weights[0, 0]) for run in row] for row in runs]
    return xr.Dataset(
        {
            "best": (("series", "background"), lines, described("best recurrence b*", "1")),
            "networks": (("start", "network_background"), ends, described("recurrence after training", "1")),
            "unexplained": (("shown", "recurrence"), 1 - np.array(explained), described("unexplained share", "1")),
            "jump": ("series", [jump.parameter for jump in jumps]),
            **{name: ("series", [getattr(jump, name) for jump in jumps]) for name in around},
        },
        coords={
            "series": [f"T = {T}" for T in lengths],
            "background": ("background", grid, described("background eps", "1")),
            "network_background": list(backgrounds),
            "start": list(starts),
            "shown": shown,
            "recurrence": ("recurrence", b, described("recurrence b", "1")),
        },
    )


#: Names of the sensory tasks in the figure, and their functions.
SENSORY = {
    "sum": "integrate",
    "mean": "mean_target",
    "noisy constant": "noisy_constant",
    "recency 0.8": "leaky",
    "primacy 0.8": "primacy",
    "delay 3": "evidence_delay",
}


def sensory_networks(seeds: int, accuracy: float) -> xr.Dataset:
    """Best single modes of the sensory tasks, networks trained on them, and the losses of both on longer trials."""
    clock, at = np.arange(10, 41), np.array([10, 15, 20, 30, 40])
    best = {name: optimum.best_mode(getattr(sensory, family)(STEPS)) for name, family in SENSORY.items()}
    networks = {name: [fitted(family, seed, accuracy) for seed in range(seeds)] for name, family in SENSORY.items()}

    def longer(name: str, network: LinearRNN, where: Any) -> FloatArray:
        return stability.family_extrapolation(network, getattr(sensory, SENSORY[name])(STEPS), where).unexplained

    modes = {name: mode_network(one.recurrence, one.strength) for name, one in best.items()}
    many = [[longer(name, n, at) for n in nets] for name, nets in networks.items()]
    text = described("unexplained share", "1")
    return xr.Dataset(
        {
            "recurrence": ("case", [one.recurrence for one in best.values()], described("recurrence b*", "1")),
            "outlier": (("case", "seed"), [[stability.outlier(n) for n in nets] for nets in networks.values()]),
            "loss": ("case", [one.loss for one in best.values()]),
            "longer": (("case", "horizon"), [longer(name, n, clock) for name, n in modes.items()], text),
            "longer_networks": (("case", "seed", "network_horizon"), many, text),
        },
        coords={
            "case": list(SENSORY),
            "horizon": ("horizon", clock, described("steps in a trial T2", "steps")),
            "network_horizon": at,
        },
    )


def turned_kernels(gains: Sequence[float], seeds: int, *, recurrent_gain: float = 0.6) -> xr.Dataset:
    """1 - alignment of tangent kernels before and after training, of two networks with the same start."""
    task = sensory.leaky(STEPS, decay=0.8)
    kinds, kernels = ("recurrent", "feedforward control"), ("all weights", "W_y block")
    turned, losses = np.empty((2, 2, len(gains), seeds)), np.empty((2, len(gains), seeds))
    for i, seed in np.ndindex(len(gains), seeds):
        network = random_network(np.random.default_rng(seed), gain=gains[i], recurrent_gain=recurrent_gain)
        ends = network, mode_network(0.8)  # before and after training
        rate = 0.25 * min(stability.largest_stable_rate(n, steps=STEPS).learning_rate for n in ends)
        both = feature_learning(task, network, learning_rate=rate)
        for k, change in enumerate((both.recurrent, both.feedforward)):
            assert change is not None
            turned[k, :, i, seed] = change.total.misalignment, change.blocks["output"].misalignment
        losses[:, i, seed] = both.losses
    return xr.Dataset(
        {
            "misalignment": (("network", "kernel", "gain", "seed"), turned, described("1 - alignment of kernels", "1")),
            "relative_loss": (("network", "gain", "seed"), losses),
        },
        coords={
            "network": list(kinds),
            "kernel": list(kernels),
            "gain": ("gain", list(gains), described("gain of input and output weights", "1")),
        },
    )
