"""How often intervals of held-out loss, best stop, rise and gain cover the truth, and what the chosen stop loses."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np

import learncast as lc

#: Draws of each setting with each number of trials, and splits of each real set.
REPEATS = {"smoke": 2, "full": 16}
TRIALS = (25, 40, 100, 400)
#: Inputs, outputs, rank and noise of a drawn population, and exponent of the decay of its input variances.
POPULATIONS = {
    "rank 1, noisy": (12, 2, 1, 2.0, 0.0),
    "rank 3": (20, 4, 3, 1.0, 0.0),
    "uneven inputs": (20, 3, 2, 1.0, 0.5),
    "many inputs": (48, 3, 2, 1.5, 0.3),
    "strong signal": (10, 2, 2, 0.5, 0.0),
    "no signal": (15, 2, 0, 1.0, 0.0),
}
#: Most steps of every training, in units of 1 / (learning rate x largest variance).
HORIZON = 2000


def rows(preset: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Coverage on drawn populations for each number of trials, then on real sets."""
    repeats = REPEATS[preset or "full"]
    for trials in TRIALS:
        counts: dict[str, list[float]] = defaultdict(list)
        for k, name in enumerate(POPULATIONS):
            for draw in range(repeats):
                rng = np.random.default_rng((2026, k, trials, draw))
                _judge(counts, *_population(POPULATIONS[name], trials, rng))
        yield from _lines(f"drawn, {trials} trials", counts, {40: 0.05, 100: 0.015}.get(trials))
    counts = defaultdict(list)
    for name, (x, y) in _real_sets().items():
        for draw in range(repeats):
            _judge(counts, *_split(x, y, np.random.default_rng((7, len(name), draw))))
    yield from _lines("six real sets", counts, None)
    gains = [_gain(trials, np.random.default_rng((5, trials, k))) for trials in TRIALS[1:3] for k in range(repeats)]
    yield "gain of a source, 40 and 100 trials: covered", f"{np.mean(gains):.0%}", f"goal 93 to 99%, n = {len(gains)}"


def _network(inputs: int, outputs: int, rng: np.random.Generator) -> lc.TwoLayer:
    return lc.TwoLayer.random(inputs, 2 * outputs + 4, outputs, scale=0.1, rng=rng)


def _teacher(inputs: int, outputs: int, rank: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((outputs, rank)) @ rng.standard_normal((rank, inputs)) / np.sqrt(inputs)


def _drawn(
    teacher: np.ndarray, sizes: np.ndarray, noise: float, trials: int, rng: np.random.Generator
) -> tuple[lc.Task, lc.Task]:
    """Trials of a population, and its statistics."""
    x = sizes * rng.standard_normal((trials, len(sizes)))
    y = x @ teacher.T + noise * rng.standard_normal((trials, len(teacher)))
    power, target = np.diag(sizes**2), (teacher * sizes**2) @ teacher.T + noise**2 * np.eye(len(teacher))
    population = lc.Task(power[None, :, None, :], (power @ teacher.T)[None], target)
    return lc.Task.from_samples(x[:, None], y), population


def _population(
    setting: tuple[int, int, int, float, float], trials: int, rng: np.random.Generator
) -> tuple[lc.planning.Generalisation, lc.planning.Generalisation]:
    inputs, outputs, rank, noise, decay = setting
    sizes = np.arange(1, inputs + 1) ** -decay
    task, population = _drawn(_teacher(inputs, outputs, rank, rng), sizes, noise, trials, rng)
    how = partial(lc.generalise, task, _network(inputs, outputs, rng), learning_rate=0.05, most_steps=HORIZON)
    return how(), how(test=population)


def _real_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn import datasets

    digits = datasets.load_digits()
    found = {
        "digits by rows": (digits.images / 16, digits.target),
        "digits by pixels": (digits.data[:, None] / 16, digits.target),
    }
    for name in ("diabetes", "wine", "breast_cancer", "iris"):
        own = getattr(datasets, f"load_{name}")()
        target = own.target / own.target.std() if name == "diabetes" else own.target
        found[name] = own.data[:, None], target
    return found


def _split(
    x: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> tuple[lc.planning.Generalisation, lc.planning.Generalisation]:
    """Half of the trials, at most 200, for training, and the others to test."""
    order = rng.permutation(len(x))
    number = min(len(x) // 2, 200)
    labels = y.dtype.kind in "iu"
    classes = {"classes": int(y.max()) + 1} if labels else {}
    target = y if labels else y[:, None]
    train, test = (
        lc.Task.from_samples(x[part], target[part], centre=True, scale="channel", **classes)
        for part in (order[:number], order[number:])
    )
    network = lc.LinearRNN.random(x.shape[2], 16, train.outputs, recurrence=0.9, scale=0.05, rng=rng)
    how = partial(lc.generalise, train, network, learning_rate=0.01, most_steps=HORIZON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return how(), how(test=test)


def _judge(counts: dict[str, list[float]], told: lc.planning.Generalisation, truth: lc.planning.Generalisation) -> None:
    """Compare what folds tell with the truth on the population or on the test trials."""
    curve = truth.curve["held_out"]
    steps = curve["steps"].values
    at_stop = float(np.interp(told.stop, steps, curve.values))
    # A test set of finite size has an error of its own.
    noise = truth.loss_interval[1] / truth.loss
    rise_noise = truth.rise_interval[1] / truth.rise if np.isfinite(truth.rise) else 1.0
    low, high = told.stop_set
    alike = truth.stop_set
    counts["stop"].append(low <= alike[1] and alike[0] <= high)
    counts["loss"].append(told.loss_interval[0] / noise <= at_stop <= told.loss_interval[1] * noise)
    counts["rise"].append(told.rise_interval[0] / rise_noise <= truth.rise <= told.rise_interval[1] * rise_noise)
    counts["regret"].append(at_stop / truth.loss - 1)
    counts["overfits"].append(told.overfits == "yes")
    counts["really"].append(truth.rise > 1.001)
    counts["falsely"].append(told.overfits == "yes" and truth.rise <= 1.001)


def _lines(name: str, counts: dict[str, list[float]], most: float | None) -> Iterator[tuple[str, str, str]]:
    number = f"n = {len(counts['stop'])}"
    for what in ("stop", "loss", "rise"):
        yield f"{name}: {what} covered", f"{np.mean(counts[what]):.0%}", f"goal 93 to 99%, {number}"
    goal = "" if most is None else f"goal below {most:g}"
    yield f"{name}: mean regret of the chosen stop", f"{np.mean(counts['regret']):.3f}", goal
    claims = f"true in {np.mean(counts['really']):.0%}, falsely in {np.mean(counts['falsely']):.1%}"
    yield f"{name}: overfitting claimed", f"{np.mean(counts['overfits']):.0%}", claims


def _gain(trials: int, rng: np.random.Generator) -> bool:
    """Whether the interval of the gain of a related source covers the true gain."""
    teacher, sizes = _teacher(16, 3, 2, rng), np.ones(16)
    task, population = _drawn(teacher, sizes, 1.5, trials, rng)
    other = teacher * rng.choice([1.0, 2.0, -1.0]) + 0.5 * _teacher(16, 3, 2, rng)
    source = _drawn(other, sizes, 0.5, 300, rng)[0].renamed("source")
    how = partial(lc.generalise, task, _network(16, 3, rng), learning_rate=0.05, most_steps=HORIZON)
    told = how(after=source).transfer
    assert told is not None
    truth = how(test=population, after=source).transfer
    assert truth is not None
    # The true gain of the stops that were chosen.
    chosen = truth.table.sel(source_steps=told.source_stop).min("steps")
    gain = 1 - float(chosen) / truth.direct.loss
    low, high = told.gain_interval
    return low - 1e-3 <= gain <= high + 1e-3
