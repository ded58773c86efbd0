"""Descents of recurrent networks with learned recurrence, beside what the theory of one mode says of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from learncast.dynamics.descent import Descent, descend
from learncast.dynamics.learning_problem import lag_statistics
from learncast.dynamics.recurrent_mode import mode_trajectory
from learncast.networks.linear_rnn import LinearRNN
from learncast.recurrence.feature_learning import at_once, feedforward_control, kernel_change
from learncast.recurrence.order import half_loss_time, order_reversal
from learncast.recurrence.stability import (
    Optimum,
    best_recurrence,
    extrapolation,
    family_extrapolation,
    largest_stable_rate,
)
from learncast.recurrence.tradeoff import (
    basins,
    late_pulse_transition,
    loss_terms_over_time,
    two_pulse_recurrence,
    two_pulse_transition,
)
from learncast.tasks import sensory
from learncast.tasks.task import Task
from learncast.trajectory import described
from learncast.validation import FloatArray

HIDDEN = 64
STEPS = 10
TIME = "steps x learning rate"
ALL = ("input", "recurrent", "output")


def random_network(rng: np.random.Generator, *, gain: float, recurrent_gain: float) -> LinearRNN:
    """Draw a network: entries of variance gain² / units; the recurrent ones have that spectral radius."""
    W_x, W_h, W_y = (rng.standard_normal(s) / math.sqrt(HIDDEN) for s in ((HIDDEN, 1), (HIDDEN, HIDDEN), (1, HIDDEN)))
    return LinearRNN(gain * W_x, recurrent_gain * W_h, gain * W_y)


def scalar_network(rng: np.random.Generator, *, recurrence: float, initial: float) -> LinearRNN:
    """Draw unaligned input and output weights, at a scale that learns like a mode from a = c = `initial`."""
    W_x, W_y = rng.standard_normal((2, HIDDEN))
    scale = 2 * initial / np.linalg.norm(W_x + W_y)
    return LinearRNN(scale * W_x[:, None], recurrence * np.eye(HIDDEN), scale * W_y[None])


def mode_network(recurrence: float, strength: float = 1.0) -> LinearRNN:
    """Make one balanced mode in a network of which all other units are idle."""
    size = math.sqrt(strength)
    return LinearRNN.aligned(recurrence=[recurrence], initial=size, hidden_size=HIDDEN)


def filter_strengths(task: Task) -> FloatArray:
    """Cov(y, x) of a task with one input and one output by lag, the last input first."""
    return lag_statistics(task).cross[:, 0, 0]


def responses(network: LinearRNN, lags: int) -> FloatArray:
    """W_y W_h^k W_x by lag."""
    found, state = np.empty(lags), network.input_weights
    for k in range(lags):
        found[k] = (network.output_weights @ state).item()
        state = network.recurrent_weights @ state
    return found


def outlier(network: LinearRNN) -> float:
    """Real part of the eigenvalue of W_h that is farthest from 0."""
    values = np.linalg.eigvals(network.recurrent_weights)
    return float(values[np.argmax(np.abs(values))].real)


def trained(run: Descent) -> LinearRNN:
    """The recurrent network at the end of a descent."""
    end = run.network_at(run.steps)
    assert isinstance(end, LinearRNN)
    return end


def half_loss(task: Task, network: LinearRNN, *, learning_rate: float) -> float:
    """Steps times learning rate until descent has halved the loss."""
    first = descend(task, network, learning_rate=learning_rate, steps=0).loss[0]
    accuracy = 1 - math.sqrt(0.5 * first / (0.5 * task.target_power))
    loss = descend(task, network, learning_rate=learning_rate, until=accuracy).loss
    beyond = (loss[-2] - 0.5 * first) / (loss[-2] - loss[-1])
    return float(learning_rate * (len(loss) - 2 + beyond))


def largest_kept_rate(network: LinearRNN, task: Task, rng: np.random.Generator, *, halvings: int) -> float:
    """The learning rate up to which descent stays at a solution that was nudged by 1e-6, by bisection.

    A rate is too large if the loss, instead of falling, grows tenfold within 300 steps.
    """
    nudged = LinearRNN(
        *(
            W + 1e-6 * rng.standard_normal(W.shape)
            for W in (network.input_weights, network.recurrent_weights, network.output_weights)
        )
    )
    middle = largest_stable_rate(network, task).learning_rate
    low, high = 0.5 * middle, 2.2 * middle  # not centred on the prediction, which bisection must not meet by chance
    for _ in range(halvings):
        rate = math.sqrt(low * high)
        loss = descend(task, nudged, learning_rate=rate, steps=300).loss
        grown = not np.isfinite(loss).all() or loss.max() > 10 * loss[0]
        low, high = (low, rate) if grown else (rate, high)
    return math.sqrt(low * high)


def best_mode(task: Task) -> Optimum:
    """The best single mode for a task with one input and one output."""
    statistics = lag_statistics(task)
    inputs = statistics.input
    correlated = None if inputs is None else np.diag(inputs) if inputs.ndim == 1 else inputs[:, 0, :, 0]
    return best_recurrence(statistics.cross[:, 0, 0], correlated, constant=0.5 * task.target_power).best


def fit(task: Task, network: LinearRNN, *, until: float, share: float = 0.5, most_steps: int = 60_000) -> LinearRNN:
    """Train on a task at a share of the largest stable learning rate of its best single mode, or of the start."""
    best = best_mode(task)
    ends = network, mode_network(best.recurrence, best.strength)
    rate = share * min(largest_stable_rate(n, task).learning_rate for n in ends)
    return trained(descend(task, network, learning_rate=rate, until=until, most_steps=most_steps))


@cache
def fitted(name: str, seed: int, accuracy: float, *, recurrent_gain: float = 0.3, **given: float) -> LinearRNN:
    """Train a 64-unit network, input and output gain 0.3, on a sensory task."""
    start = random_network(np.random.default_rng(seed), gain=0.3, recurrent_gain=recurrent_gain)
    return fit(getattr(sensory, name)(STEPS, **given), start, until=accuracy)


def order(seeds: int, points: int, starts: Sequence[float], *, initial: float = 0.03) -> xr.Dataset:
    """S1: half-loss times of a late and an early task over the initial recurrence."""
    family = {"late": sensory.leaky, "early": sensory.primacy}
    cases = {f"{name} x {size:g}": (name, size) for size in (1.0, 1.5) for name in family}
    tasks = {case: family[name](STEPS, decay=0.7, scale=size) for case, (name, size) in cases.items()}
    strengths = np.stack([filter_strengths(task) for task in tasks.values()])
    lines, at = np.linspace(0.3, 1.15, points), np.array(starts)

    def theory(recurrence: FloatArray) -> FloatArray:
        return half_loss_time(strengths[:, None], recurrence=recurrence, input_weight=initial).steps

    told, found = theory(at), np.empty((len(tasks), len(at), seeds))
    for (i, task), (j, b) in ((x, y) for x in enumerate(tasks.values()) for y in enumerate(at)):
        for seed in range(seeds):
            network = scalar_network(np.random.default_rng(seed), recurrence=b, initial=initial)
            found[i, j, seed] = half_loss(task, network, learning_rate=min(told[i, j] / 600, 5e-3))
    gains, random = np.array([0.3, 0.6, 0.9]), np.empty((2, 3, seeds))
    for i, j, seed in np.ndindex(random.shape):
        network = random_network(np.random.default_rng(seed), gain=0.3, recurrent_gain=float(gains[j]))
        random[i, j, seed] = half_loss(tasks[list(tasks)[i]], network, learning_rate=3e-3)
    late, early = strengths[:2]
    return xr.Dataset(
        {
            "theory": (("series", "recurrence"), theory(lines), described("half-loss time", TIME)),
            "networks": (("series", "network_recurrence", "seed"), found, described("half-loss time", TIME)),
            "told": (("series", "network_recurrence"), told, described("half-loss time", TIME)),
            "random": (("order", "gain", "seed"), random, described("half-loss time", TIME)),
        },
        coords={
            "series": list(tasks),
            "order": ["late x 1", "early x 1"],
            "recurrence": ("recurrence", lines, described("initial recurrence b0", "1")),
            "network_recurrence": at,
            "gain": ("gain", gains, described("initial spectral radius, random recurrence", "1")),
        },
        attrs={"reversal": order_reversal(late, early, initial=initial).recurrence, "initial": initial},
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
    drawn = rng.random((sequences, STEPS)) * np.exp(rng.uniform(-0.3, 0.3, (sequences, 1)) * k)
    known = np.stack([filter_strengths(task) for task in named.values()])

    def best(sig: FloatArray) -> FloatArray:
        return np.array([best_recurrence(one).best.recurrence for one in sig])

    text, lag = described("best recurrence b*", "1"), described("mean lag of the target", "steps")
    return xr.Dataset(
        {
            "random": ("sequence", best(drawn), text),
            "named": ("task", best(known), text),
            "random_mean_lag": ("sequence", drawn @ k / drawn.sum(axis=1), lag),
            "named_mean_lag": ("task", known @ k / known.sum(axis=1), lag),
        },
        coords={"task": list(named)},
    )


def horizons(seeds: int, accuracy: float, *, last: int = 50) -> xr.Dataset:
    """S2b: loss on longer trials, by lag (end) and by step (start), of modes and of trained networks."""
    clock, at = np.arange(STEPS, last + 1), np.arange(STEPS, last + 1, 5)
    leaks, decays = (0.99, 1.0, 1.01), (0.9, 1.0, 1.1)

    def ones(k: FloatArray) -> FloatArray:
        return np.ones(len(k))

    def loss(model: Any, strengths: Any, where: Any, anchor: str, share: bool = False) -> FloatArray:
        found = extrapolation(model, strengths, where, anchor=anchor)
        return found.unexplained if share else found.loss

    def by_step(rho: float) -> Any:
        return lambda t: rho ** (STEPS - t)

    def delayed(k: FloatArray) -> FloatArray:
        return (k >= 3).astype(float)

    modes = {b: Optimum(b, 1.0, 0.0, 0.0, "") for b in (*leaks, *decays)}
    delay = best_recurrence(delayed(np.arange(float(STEPS)))).best
    summed = [fitted("integrate", seed, accuracy) for seed in range(seeds)]
    by_decay = {
        rho: [fitted("leaky", seed, accuracy, decay=rho) for seed in range(seeds)] if rho != 1 else summed
        for rho in decays
    }
    radii = (0.3, 0.9)
    waiting = [[fitted("evidence_delay", seed, accuracy, recurrent_gain=g) for seed in range(seeds)] for g in radii]
    text = described("loss", "target^2")
    return xr.Dataset(
        {
            "end": (("leak", "horizon"), np.array([loss(modes[b], ones, clock, "end") for b in leaks]), text),
            "start": (
                ("decay", "horizon"),
                np.array([loss(modes[r], by_step(r), clock, "start") for r in decays]),
                text,
            ),
            "end_networks": (
                ("exact", "network_horizon", "seed"),
                np.array([[loss(n, ones, at, "end") for n in summed]]).transpose(0, 2, 1),
                text,
            ),
            "start_networks": (
                ("decay", "network_horizon", "seed"),
                np.array([[loss(n, by_step(r), at, "start") for n in by_decay[r]] for r in decays]).transpose(0, 2, 1),
                text,
            ),
            "delay": ("horizon", loss(delay, delayed, clock, "end", True), described("unexplained share", "1")),
            "delay_networks": (
                ("radius", "network_horizon", "seed"),
                np.array([[loss(n, delayed, at, "end", True) for n in nets] for nets in waiting]).transpose(0, 2, 1),
                described("unexplained share", "1"),
            ),
        },
        coords={
            "leak": list(leaks),
            "exact": [1.0],
            "radius": list(radii),
            "decay": list(decays),
            "horizon": ("horizon", clock, described("steps in a trial T2", "steps")),
            "network_horizon": at,
        },
    )


def stable_rates(points: int, networks: Sequence[float]) -> xr.Dataset:
    """S2c: the largest stable learning rate at a zero-loss mode, by sharpness and by bisection on descent."""
    decays = np.linspace(0.3, 1.3, points)
    told = [largest_stable_rate(mode_network(r), steps=STEPS).learning_rate for r in decays]
    found = [
        largest_kept_rate(mode_network(r), sensory.leaky(STEPS, decay=r), np.random.default_rng(k), halvings=9)
        for k, r in enumerate(networks)
    ]
    expected = [largest_stable_rate(mode_network(r), steps=STEPS).learning_rate for r in networks]
    text = described("largest stable learning rate", "1")
    return xr.Dataset(
        {
            "theory": (("series", "decay"), [told], text),
            "networks": (("series", "network_decay"), [found], text),
            "told": ("network_decay", expected, text),
        },
        coords={
            "series": ["2 / sharpness"],
            "decay": ("decay", decays, described("recurrence of the solution rho", "1")),
            "network_decay": list(networks),
        },
    )


def terms(points: int) -> xr.Dataset:
    """S3a: data term and regulariser over training, and the fading past of a task that asks for the last input."""
    clock = np.linspace(0.0, 12.0, 4 * points)
    task, last = sensory.leaky(STEPS, decay=0.8), sensory.impulse(STEPS, 0)
    mode = mode_trajectory(clock, 0.1, 0.5, 0.1, filter_strengths(task))
    told = loss_terms_over_time(mode, filter_strengths(task))
    fading = mode_trajectory(clock, 0.03, 0.9, 0.03, filter_strengths(last))
    lags = np.arange(1, 4)
    rate, at = 4e-3, np.linspace(0, 3000, 31, dtype=int)
    runs = [
        descend(t, scalar_network(np.random.default_rng(0), recurrence=b, initial=a), learning_rate=rate, steps=3000)
        for t, b, a in ((task, 0.5, 0.1), (last, 0.9, 0.03))
    ]
    filters = [np.array([responses(_recurrent(run, n), STEPS) for n in at]) for run in runs]
    data, power = -filters[0] @ filter_strengths(task), 0.5 * (filters[0] ** 2).sum(axis=1)
    whole = 0.5 * task.target_power
    before, after = (_recurrent(runs[1], n).recurrent_weights for n in (0, 3000))
    return xr.Dataset(
        {
            "terms": (
                ("term", "time"),
                np.stack([told.data, told.regulariser, told.loss]),
                described("part of the loss", "target^2"),
            ),
            "network_terms": (("term", "network_time"), np.stack([data, power, whole + data + power])),
            "past": (
                ("lag", "time"),
                fading.input * fading.output * fading.recurrence ** lags[:, None],
                described("response to earlier inputs", "1"),
            ),
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
    lengths, grid, b = (10, 20, 50), np.linspace(0.02, 0.3, points), np.linspace(0.0, 1.1, 221)
    jumps = [late_pulse_transition(T) for T in lengths]

    def pulse(T: int, eps: float) -> FloatArray:
        return np.where(np.arange(T) == 0, 1.0, eps)

    best = np.array([[best_recurrence(pulse(T, e)).best.recurrence for e in grid] for T in lengths])
    shown = np.array([0.08, jumps[-1].parameter, 0.16])
    powers = b[:, None] ** np.arange(50)
    explained = [(powers @ pulse(50, e)) ** 2 / (powers**2).sum(axis=1) / (pulse(50, e) ** 2).sum() for e in shown]
    starts = (0.1, 0.95)
    ends = np.empty((len(starts), len(backgrounds)))
    for i, j in np.ndindex(ends.shape):
        task = sensory.late_pulse(20, backgrounds[j])
        run = descend(task, mode_network(starts[i], 0.01), learning_rate=0.008, steps=4000)
        ends[i, j] = trained(run).recurrent_weights[0, 0]
    return xr.Dataset(
        {
            "best": (("series", "background"), best, described("best recurrence b*", "1")),
            "networks": (("start", "network_background"), ends, described("recurrence after training", "1")),
            "unexplained": (
                ("shown", "recurrence"),
                1 - np.array(explained),
                described("unexplained share", "1"),
            ),
            "jump": ("series", [jump.parameter for jump in jumps]),
            "below": ("series", [jump.below for jump in jumps]),
            "above": ("series", [jump.above for jump in jumps]),
            "bistable_from": ("series", [jump.bistable_from for jump in jumps]),
            "bistable_to": ("series", [jump.bistable_to for jump in jumps]),
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


def two_pulses(points: int, rows: int, starts: Sequence[float]) -> xr.Dataset:
    """S3c: the best recurrence of two pulses, and where training ends over its start at lag 3."""
    lags, grid = (1, 2, 3), np.linspace(0.05, 3.0, points)
    k = np.arange(STEPS)

    def pulses(m: int, r: float) -> FloatArray:
        return np.where(k == 0, 1.0, np.where(k == m, r, 0.0))

    best = np.array([[best_recurrence(pulses(m, r)).best.recurrence for r in grid] for m in lags])
    strengths, boundary = np.linspace(0.8, 2.6, rows), np.full(rows, np.nan)
    for n, r in enumerate(strengths):
        found = basins(pulses(3, r), input_weight=0.1, low=0.01, high=0.99, points=5, tolerance=1e-4).boundaries
        boundary[n] = found[0] if len(found) else np.nan
    at = np.linspace(0.9, 2.4, len(starts)).tolist()
    ends = np.empty((len(at), len(at)))
    changes = [two_pulse_transition(STEPS, m) for m in lags]
    for i, j in np.ndindex(ends.shape):
        run = descend(sensory.two_pulse(STEPS, 3, at[j]), mode_network(starts[i], 0.01), learning_rate=0.03, steps=1600)
        ends[i, j] = trained(run).recurrent_weights[0, 0]
    return xr.Dataset(
        {
            "best": (("series", "pulse"), best, described("best recurrence b*", "1")),
            "endless": ("pulse", two_pulse_recurrence(grid)),
            "boundary": ("strength", boundary),
            "network_end": (("network_start", "network_strength"), ends),
            "transition": ("series", [change.parameter for change in changes]),
            "kind": ("series", [change.kind for change in changes]),
        },
        coords={
            "series": [f"lag {m}" for m in lags],
            "pulse": ("pulse", grid, described("strength r of the earlier pulse", "1")),
            "strength": ("strength", strengths, described("strength r of the earlier pulse", "1")),
            "network_start": ("network_start", list(starts), described("initial recurrence b0", "1")),
            "network_strength": at,
        },
    )


#: Sensory tasks of one input by the names they have in the figure.
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
    best = {name: best_mode(getattr(sensory, family)(STEPS)) for name, family in SENSORY.items()}
    networks = {name: [fitted(family, seed, accuracy) for seed in range(seeds)] for name, family in SENSORY.items()}

    def longer(name: str, network: LinearRNN, where: Any) -> FloatArray:
        return family_extrapolation(network, getattr(sensory, SENSORY[name])(STEPS), where).unexplained

    modes = {name: mode_network(one.recurrence, one.strength) for name, one in best.items()}
    text = described("unexplained share", "1")
    return xr.Dataset(
        {
            "recurrence": ("case", [one.recurrence for one in best.values()], described("recurrence b*", "1")),
            "outlier": (("case", "seed"), [[outlier(n) for n in nets] for nets in networks.values()]),
            "unexplained": ("case", [one.unexplained for one in best.values()], text),
            "loss": ("case", [one.loss for one in best.values()]),
            "longer": (("case", "horizon"), [longer(name, n, clock) for name, n in modes.items()], text),
            "longer_networks": (
                ("case", "seed", "network_horizon"),
                [[longer(name, n, at) for n in nets] for name, nets in networks.items()],
                text,
            ),
        },
        coords={
            "case": list(SENSORY),
            "horizon": ("horizon", clock, described("steps in a trial T2", "steps")),
            "network_horizon": at,
        },
    )


def turned_kernels(gains: Sequence[float], seeds: int, *, recurrent_gain: float = 0.6) -> xr.Dataset:
    """1 - alignment of tangent kernels before and after training, of three networks with the same start."""
    task = sensory.leaky(STEPS, decay=0.8)
    kinds, kernels = ("recurrent", "feedforward control", "recurrence frozen"), ("all weights", "W_y block")
    found, losses = np.empty((3, 2, len(gains), seeds)), np.empty((3, len(gains), seeds))
    for i, gain in enumerate(gains):
        for seed in range(seeds):
            network = random_network(np.random.default_rng(seed), gain=gain, recurrent_gain=recurrent_gain)
            rates = [largest_stable_rate(n, steps=STEPS).learning_rate for n in (network, mode_network(0.8))]
            for k, run in enumerate(_three(task, network, 0.25 * min(rates))):
                before, after = run.network_at(0), run.network_at(run.steps)
                learn = ("input", "output") if kinds[k] == "recurrence frozen" else ALL
                change = kernel_change(before, after, steps=1 if k == 1 else STEPS, learn=learn)
                found[k, :, i, seed] = change.total.misalignment, change.blocks["output"].misalignment
                losses[k, i, seed] = run.loss[-1] / (0.5 * task.target_power)
    return xr.Dataset(
        {
            "misalignment": (("network", "kernel", "gain", "seed"), found),
            "relative_loss": (("network", "gain", "seed"), losses),
        },
        coords={
            "network": list(kinds),
            "kernel": list(kernels),
            "gain": ("gain", list(gains), described("gain of input and output weights", "1")),
        },
    )


def _three(task: Task, network: LinearRNN, rate: float) -> tuple[Descent, Descent, Descent]:
    """Recurrent network, feedforward control, and recurrent network with frozen recurrence, to 1e-4 of the loss."""
    whole = descend(task, network, learning_rate=rate, until=0.99)
    control = descend(at_once(task), feedforward_control(network, steps=STEPS), learning_rate=rate, until=0.99)
    # With frozen recurrence the loss need not be reachable; four times the steps of the others are enough to tell.
    most = 4 * max(whole.steps, control.steps)
    frozen = descend(task, network, learning_rate=rate, until=0.99, learn=("input", "output"), most_steps=most)
    return whole, control, frozen


def _recurrent(run: Descent, step: int) -> LinearRNN:
    network = run.network_at(step)
    assert isinstance(network, LinearRNN)
    return network
