"""How cost grows with size.

Every computation is timed at four sizes. The power is the slope of a straight line through the times of the larger
three on log-log axes: with power 1, twice the size takes twice the time.

Expected: linear in lags, candidates, trials and rows, each of which is read once; at most linear in stages, which share
one search, but quadratic in its candidates, each of which may follow each; modes and units by the cost of their
products; the flow of d x d layers like matrix products, d^3, as soon as these outweigh the overhead of calls.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import numpy as np

import learncast as lc
from benchmarks.bench_sweep import nothing
from benchmarks.bench_two_layer import problem
from benchmarks.timing import interleaved
from learncast import sweep
from learncast.theory import BalancedFlow, lag_statistics, loss_and_gradient

#: A question at one size.
Asked = Callable[[int], Callable[[], object]]


def windows(*, units: int | None = None) -> Asked:
    """A window of a GRU: number of lags, or number of units at sixteen lags."""
    import torch

    from learncast import windows
    from learncast.windows.example_model import build_model

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x, y = lc.tasks.multi_lag_trials(64, rng, steps=160, direction=8, lags=(8, 16, 32, 64, 96))

    def at(size: int) -> Callable[[], object]:
        lags, hidden = (16, size) if units else (size, 32)
        model = build_model("paper-gru", inputs=8, outputs=1, hidden_size=hidden, seed=1)
        asked = windows.Measurement(lags=[int(lag) for lag in np.linspace(2, 128, lags).round()])
        return lambda: windows.window(model, x, y, measurement=asked)

    return at


def modes(size: int) -> Callable[[], object]:
    """A portrait of 120 values and stops over tasks with several modes."""
    task = lc.tasks.integration(mixing=np.diag(np.linspace(0.5, 2.0, size)).tolist())
    network = lc.LinearRNN.aligned(hidden_size=size, task=task)
    grid = {"values": np.linspace(0.5, 2.0, 120), "accuracies": np.linspace(0.1, 0.99, 120)}
    return lambda: lc.phase(task, network, learning_rate=1e-4, vary="target_strength", strict=False, **grid)


def candidates(size: int) -> Callable[[], object]:
    pool = [lc.tasks.leaky_integration(timescale=t, name=f"{t:.4f}") for t in np.linspace(1.0, 60.0, size)]
    target, network = lc.tasks.integration(), lc.LinearRNN.aligned()
    return lambda: lc.plan(target, pool, network, learning_rate=1e-3)


def stages(size: int, among: int = 20) -> Callable[[], object]:
    """The plan with the fewest whole steps in a limited number of stages, proved, among candidates of one mode."""
    rng = np.random.default_rng(0)
    pool = [lc.tasks.integration(target_strength=s, name=f"{s:.9f}") for s in rng.uniform(0.5, 5.0, among)]
    target, network = lc.tasks.leaky_integration(), lc.LinearRNN.aligned()
    return lambda: lc.plan(target, pool, network, learning_rate=1e-3, terms=lc.Terms(max_stages=size))


def trials(size: int) -> Callable[[], object]:
    x = np.random.default_rng(0).standard_normal((size, 20, 1))
    y = x.sum(axis=1)
    return lambda: lc.Task.from_samples(x, y)


def layers(size: int) -> Callable[[], object]:
    """The whole flow at twenty times, set-up included."""
    given, times = problem(size), np.linspace(0.0, 10.0, 20)
    return lambda: BalancedFlow(*given).grams(times)


def hidden(size: int) -> Callable[[], object]:
    """A gradient of all weights from statistics of 50 lags."""
    rng = np.random.default_rng(1)
    weights = (rng.standard_normal(shape) / np.sqrt(size) for shape in ((size, 1), (size, size), (1, size)))
    statistics, given = lag_statistics(lc.tasks.integration(steps=50)), tuple(weights)
    return lambda: loss_and_gradient(statistics, *given)


def rows_of_a_sweep(size: int) -> Callable[[], object]:
    def made() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sweep.run(nothing, {"a": list(range(size))}, store=folder, executor="in-process")

    return made


#: name: (question, sizes, largest exponent expected)
SERIES: dict[str, tuple[Callable[[], Asked], tuple[int, ...], float]] = {
    "lags of a window": (windows, (8, 16, 32, 64), 1.0),
    "units of a window": (lambda: windows(units=1), (16, 32, 64, 128), 2.0),
    "hidden units of a gradient": (lambda: hidden, (64, 128, 256, 512), 2.0),
    "modes of a portrait": (lambda: modes, (4, 8, 16, 32), 1.0),
    "candidates of a plan": (lambda: candidates, (100, 200, 400, 800), 1.0),
    "stages of a plan": (lambda: stages, (1, 2, 4, 8), 1.0),
    "candidates of a plan of four stages": (lambda: lambda size: stages(4, size), (10, 20, 40, 80), 2.0),
    "trials of a task": (lambda: trials, (30_000, 100_000, 300_000, 1_000_000), 1.0),
    "d of a two-layer flow": (lambda: layers, (25, 50, 100, 200), 3.0),
    "rows of a sweep": (lambda: rows_of_a_sweep, (50, 100, 200, 400), 1.0),
}


def measured(asked: Asked, sizes: tuple[int, ...]) -> list[float]:
    works = [asked(size) for size in sizes]
    works[0]()  # loads what is loaded once
    return interleaved(*works, repeats=3)


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of the line through all but the smallest."""
    return float(np.polyfit(np.log(sizes[1:]), np.log(seconds[1:]), 1)[0])


def rows() -> Iterator[tuple[str, str, str]]:
    for name, (made, sizes, most) in SERIES.items():
        seconds = measured(made(), sizes)
        # A tenth is what the quickest of three runs scatter by.
        label = (
            f"{name}, {sizes[0]:,} to {sizes[-1]:,} ({seconds[0] * 1e3:.3g} to {seconds[-1] * 1e3:.3g} ms): exponent"
        )
        yield label, f"{exponent(sizes, seconds):.2f}", f"goal <= {most + 0.1:.1f}"
