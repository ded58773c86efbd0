"""Learnability windows of gated cells, against the published pipeline written plainly.

A window of 32 lags and 256 sequences by learncast (`windows.window`), and by the published pipeline as one would write
it first. The theoretical limit counts the operations of each cell at the rates that this machine reaches in the same
run.

The operations: a window of a lag is one element; each takes 8 operations (product, first order, two sizes, the delta, a
product with each of two directions), once per lag, sequence and unit, 1.0e8 elements in all here. Matrix products take
2 (inputs + units) units operations per sequence, step and block of weights for the forward pass, for the replay and for
each direction, and 2 units^2 for the scan of the total gradient. Both rates are those in cache and on one core. What is
above it: some six passes over every gate and its slope, a dozen calls for each step of the scan, and the products of
the nulls. A busy machine empties the cache on which all this counts: it slows windows down more than the pipeline.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch

from benchmarks import plain_learnability
from benchmarks.timing import most_held
from learncast import tasks, windows
from learncast.windows.detection import detect
from learncast.windows.example_model import build_model
from learncast.windows.layers import capture
from learncast.windows.sequences import half_squared_error
from learncast.windows.transport import lag_sums, sensitivities, unit_directions

STEPS, INPUTS, HIDDEN, SEQUENCES, CHUNK = 256, 16, 64, 256, 64
LAGS = [int(lag) for lag in np.linspace(4, 128, 32).round()]
SIZES = [25, 100, 400, 1600]
REPEATS = 7
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}


#: Blocks of weights, by kind.
BLOCKS = {"const-gate": 1, "shared-gate": 1 + 1 / HIDDEN, "diag-gate": 2, "paper-gru": 3, "paper-lstm": 4}
#: Sequences, steps and units of a large diagnosis; a part of the sequences stands for all unless the preset is full.
LARGE, PART = (8000, 1024, 128), 64


def rows(preset: str | None = None) -> Iterator[tuple[str, str, str]]:
    rng = np.random.default_rng(212)
    x, y = tasks.multi_lag_trials(SEQUENCES, rng, steps=STEPS, direction=INPUTS, lags=(8, 16, 32, 64, 96))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind, name in CELLS.items():
            yield from _cell(kind, name, x, y)
        yield from _exponents()
        yield from _large(LARGE[0] if preset == "full" else PART)
        yield from _two_at_once()
    finally:
        torch.set_num_threads(before)


def _cell(kind: str, name: str, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str, str]]:
    model = build_model(kind, inputs=INPUTS, outputs=1, hidden_size=HIDDEN, seed=1)
    given, told = torch.as_tensor(x).float(), torch.as_tensor(y).float()
    found: dict[str, np.ndarray] = {}

    def plain():
        found["plain"], _ = plain_learnability.diagnosed(model, x, y, LAGS, SIZES)

    def ours():
        whole = windows.window(
            model,
            x,
            y,
            measurement=windows.Measurement(lags=LAGS),
            rule=windows.DetectionRule(sample_sizes=SIZES),
        )
        found["ours"] = whole["envelope"].isel(layer=0).values

    def forward():
        with torch.no_grad():
            model(given)

    published, whole, same, alone = _seconds(plain, ours, lambda: _same(model, given, told), forward)
    # States are in single precision, whose roundings add up over the steps of a lag.
    assert np.abs(found["ours"] / found["plain"] - 1).max() < 1e-4, name
    label = f"{name}: published pipeline ({published:.1f} s) over windows.window, {len(LAGS)} lags"
    yield label, f"{published / whole:.1f}x", "goal >= 10x"
    yield (
        f"{name}: published pipeline over learncast for the same quantities ({same:.2f} s)",
        f"{published / same:.1f}x",
        "",
    )
    label = f"{name}: windows.window ({whole:.2f} s) over the model's forward pass"
    yield label, f"{whole / alone:.1f}x", "goal <= 6x, stretch <= 3x"
    yield (
        f"{name}: windows.window over its theoretical limit",
        f"{whole / (least := _limit(kind)):.1f}x",
        f"{least:.3f} s",
    )


def _seconds(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of the quickest run of each, in turns: with one thread, those of an idle machine."""
    best = [float("inf")] * len(works)
    for _ in range(REPEATS):
        for k, work in enumerate(works):
            begun = time.process_time()
            work()
            best[k] = min(best[k], time.process_time() - begun)
    return best


def _same(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """What the published pipeline gives and hardly more: one direction, its rule, the fewest nulls, no other noise."""
    parts = []
    for k in range(0, SEQUENCES, CHUNK):
        seen = capture(model, x[k : k + CHUNK], y[k : k + CHUNK], half_squared_error)
        replay = seen.replay()
        w = unit_directions(seen.layers[0], 1, generator=torch.Generator().manual_seed(0))
        _, found = lag_sums(replay.chain, LAGS, sensitivities=sensitivities(replay, w), deltas=seen.deltas[0])
        parts.append(found[0])
    found = detect(LAGS, np.concatenate(parts), rng=np.random.default_rng(0), method="paper", nulls=19)
    found.windows(np.array(SIZES, dtype=float), 0.1)


def _limit(kind: str) -> float:
    """Seconds of the arithmetic only."""
    elements = sum(STEPS - lag for lag in LAGS) * SEQUENCES * HIDDEN
    affine = 2 * (INPUTS + HIDDEN) * HIDDEN * BLOCKS[kind]
    products = SEQUENCES * STEPS * ((2 + 2) * affine + 2 * HIDDEN**2 * BLOCKS[kind])
    (left, right, out), (a, b) = torch.randn(3, 4096), torch.randn(2, 1024, 1024)
    many = 2000
    vector, matrix = _seconds(lambda: [torch.mul(left, right, out=out) for _ in range(many)], lambda: a @ b)
    # A product of arrays moves three numbers for one operation; an element of the compiled sums moves six.
    return elements * 2 * vector / (many * 4096) + products * matrix / (2 * 1024**3)


def _measured(sequences: int, steps: int, lags: int, hidden: int = HIDDEN, kind: str = "paper-gru") -> float:
    """CPU seconds of one window on random sequences."""
    model = build_model(kind, inputs=INPUTS, outputs=1, hidden_size=hidden, seed=1)
    x = torch.randn(sequences, steps, INPUTS, generator=torch.Generator().manual_seed(0))
    asked = windows.Measurement(lags=[int(lag) for lag in np.linspace(1, steps // 2, lags).round()])
    begun = time.process_time()
    windows.window(model, x, x[..., :1].cumsum(1), measurement=asked)
    return time.process_time() - begun


def _exponents() -> Iterator[tuple[str, str, str]]:
    """Powers with which the time of a window of the GRU grows."""
    base = {"sequences": 128, "steps": 256, "lags": 16}
    for what in base:
        sizes = [base[what] * factor for factor in (1, 2, 4)]
        seconds = _seconds(*(partial(_measured, **{**base, what: size}) for size in sizes))
        power = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        shown = ", ".join(f"{size}: {second:.2f} s" for size, second in zip(sizes, seconds, strict=True))
        yield f"GRU: power of {what} with which time grows ({shown})", f"{power:.2f}", "goal <= 1"


def _large(sequences: int) -> Iterator[tuple[str, str, str]]:
    """A process of its own, so that its memory is its own."""
    number, steps, hidden = LARGE
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, most = pool.apply(_alone, (sequences, steps, 32, hidden))
    minutes = seconds / 60 * number / sequences
    part = "" if sequences == number else f", from {sequences} of them"
    yield f"GRU: {number} sequences of {steps} steps, {hidden} units{part}: CPU minutes", f"{minutes:.1f}", "goal <= 6"
    yield "GRU: memory held for these 8000 sequences", f"{most / 2**30:.2f} GiB", "goal < 1 GB"


def _alone(*size: int) -> tuple[float, int]:
    """CPU seconds and the most bytes held."""
    torch.set_num_threads(1)
    _measured(16, 32, 4)  # whatever is compiled or loaded once
    return _measured(*size), most_held()


def _two_at_once() -> Iterator[tuple[str, str, str]]:
    """Wall-clock time of two windows in two processes over that of one: 1 where each has a core."""
    size = (128, 256, 32, HIDDEN)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_alone, [size] * 2, chunksize=1)
        times = []
        for number in (1, 2):
            begun = time.perf_counter()
            pool.starmap(_alone, [size] * number, chunksize=1)
            times.append(time.perf_counter() - begun)
    yield "two windows in two processes over one, by the clock", f"{times[1] / times[0]:.2f}x", "1x on idle cores"
