"""Exact curricula in linear RNNs.

A phase portrait is compared with one logarithm per point, because each of its two stages needs at least one. Two
logarithms and the seven grids that it fills are timed as well: no portrait can take less.

A portrait fills seven grids (both stages, their sum, the saving, the ratio, and two of descent, of which 200 points are
counted step by step). With vector instructions for eight logarithms at a time, most of this is memory, and the time for
new memory differs between runs by a factor of several. The parts of a portrait are timed as well: its two stages, which
besides the logarithm pass about ten times over each block of points, and the points counted step by step. The rest is
the grids of descent and the labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import learncast as lc
from benchmarks.timing import fastest, interleaved
from learncast.planning.portrait import BEST_COUNTED, portrait_times
from learncast.theory import time_to_band


def filled(numbers: np.ndarray) -> list[np.ndarray]:
    """What every portrait has to do: a logarithm for each stage, and its grids."""
    return [np.log1p(numbers), np.log1p(numbers), *(np.full(numbers.size, 1.0) for _ in range(5))]


def rows() -> Iterator[tuple[str, str, str]]:
    network = lc.LinearRNN.aligned()
    numbers = np.random.default_rng(0).uniform(0.1, 3.0, 10**6)
    stops = np.linspace(0.001, 0.999, 1000)
    portraits = {
        "target_strength": (lc.tasks.integration(), np.linspace(0.1, 3.0, 1000)),
        "correlation": (lc.tasks.leaky_integration(), np.linspace(-0.5, 0.9, 1000)),
        "timescale": (lc.tasks.leaky_integration(), np.linspace(1.0, 60.0, 1000)),
    }
    for vary, (target, values) in portraits.items():

        def portray(target=target, vary=vary, values=values):
            grid = {"vary": vary, "values": values, "accuracies": stops}
            return lc.phase(target, network, learning_rate=1e-3, **grid, strict=False)

        method = lc.planning.method_for([target], network, 1e-3, method="modes")

        def stages(method=method, vary=vary, values=values):
            return portrait_times(method, vary=vary, values=values, accuracies=stops, strict=False)

        known = stages()
        best = np.argsort(-known.speedup, axis=None)[:BEST_COUNTED]
        log, portrait, staged, counted, least = interleaved(
            lambda: np.log(numbers),
            portray,
            stages,
            lambda known=known, best=best: known.descent_steps(best),
            lambda: filled(numbers),
            repeats=9,
        )
        label = f"portrait of 1,000 x 1,000 curricula over {vary}: time over one logarithm per point"
        yield f"{label} ({portrait * 1e3:.1f} ms)", f"{portrait / log:.1f}x", "goal <= 15x"
        yield "  its two stages over one logarithm per point", f"{staged / log:.1f}x", ""
        yield "  its points counted step by step over one logarithm per point", f"{counted / log:.1f}x", ""
        yield "  two logarithms and seven new grids over one logarithm per point", f"{least / log:.1f}x", ""
    target = lc.tasks.integration()
    solution = lc.forecast(target, network, learning_rate=1e-3).solution
    m = solution.modes
    arguments = (m.start, m.imbalance, m.weighted_cross, m.weighted_input)
    closed = fastest(lambda: [time_to_band(*arguments, 0.01) for _ in range(1000)]) / 1000
    yield "closed-form time of one task", f"{closed * 1e6:.0f} us", "goal <= 100 us"
    seconds = fastest(lambda: [solution.time_to(0.99) for _ in range(200)]) / 200
    yield "time of one task with descent steps and status (solution.time_to)", f"{seconds * 1e6:.0f} us", ""
    pool = [lc.tasks.leaky_integration(timescale=t, name=f"{t:.3f}") for t in np.linspace(1.0, 60.0, 1000)]
    sizes = (250, 500, 1000)
    plans = interleaved(*(lambda n=n: lc.plan(target, pool[:n], network, learning_rate=1e-3) for n in sizes))
    for n, seconds in zip(sizes, plans, strict=True):
        yield f"plan with {n} candidates", f"{seconds:.3f} s", "goal <= 0.5 s" if n == 1000 else ""
    yield "plan with 1000 candidates over plan with 250 (4 is linear)", f"{plans[2] / plans[0]:.2f}", "goal ~ 4"
    mixing = [[1.0, 0.2], [0.1, 0.7]]
    pair = [lc.tasks.leaky_integration(timescale=t, mixing=mixing, name=f"{t:.3f}") for t in np.linspace(1, 60, 100)]
    two = lc.tasks.integration(mixing=mixing)
    net = lc.LinearRNN.aligned(task=two, hidden_size=16)
    several = fastest(lambda: lc.plan(two, pair, net, learning_rate=1e-3), repeats=3)
    yield "plan with 100 candidates of two modes", f"{several:.3f} s", ""
