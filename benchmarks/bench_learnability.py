"""Learnability windows of gated cells, against the published pipeline written plainly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks import plain_learnability
from learncast import learnability, tasks
from learncast.learnability.detection.detection import detect
from learncast.learnability.rehearsal import build_model
from learncast.learnability.replay.capture import capture, half_squared_error
from learncast.learnability.transport.derivative import sensitivities, unit_directions
from learncast.learnability.transport.factor import walk_lags
from learncast.learnability.transport.gathering import Contributions, TransportMeans

STEPS, INPUTS, HIDDEN, SEQUENCES, CHUNK = 256, 16, 64, 256, 64
LAGS = [int(lag) for lag in np.linspace(4, 128, 32).round()]
SIZES = [25, 100, 400, 1600]
REPEATS = 3
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}


def rows() -> Iterator[tuple[str, str, str]]:
    rng = np.random.default_rng(212)
    x, y = tasks.multi_lag_trials(SEQUENCES, rng, steps=STEPS, direction=INPUTS, lags=(8, 16, 32, 64, 96))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind, name in CELLS.items():
            yield from _cell(kind, name, x, y)
    finally:
        torch.set_num_threads(before)


def _cell(kind: str, name: str, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, str, str]]:
    model = build_model(kind, inputs=INPUTS, outputs=1, hidden_size=HIDDEN, seed=1)
    given, told = torch.as_tensor(x).float(), torch.as_tensor(y).float()
    found: dict[str, np.ndarray] = {}

    def plain():
        found["plain"], _ = plain_learnability.diagnosed(model, x, y, LAGS, SIZES)

    def ours():
        whole = learnability.window(
            model,
            x,
            y,
            measurement=learnability.Measurement(lags=LAGS),
            rule=learnability.DetectionRule(sample_sizes=SIZES),
        )
        found["ours"] = whole["envelope"].isel(layer=0).values

    def forward():
        with torch.no_grad():
            model(given)

    published, whole, same, alone = _seconds(plain, ours, lambda: _same(model, given, told), forward)
    # States are in single precision, whose roundings add up over the steps of a lag.
    assert np.abs(found["ours"] / found["plain"] - 1).max() < 1e-4, name
    label = f"{name}: published pipeline ({published:.1f} s) over learnability.window, {len(LAGS)} lags"
    yield label, f"{published / whole:.1f}x", "goal >= 10x"
    yield f"{name}: published pipeline over its own quantities alone ({same:.2f} s)", f"{published / same:.1f}x", ""
    label = f"{name}: learnability.window ({whole:.2f} s) over the model's forward pass"
    yield label, f"{whole / alone:.1f}x", "stretch goal <= 3x"


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
        means = TransportMeans(replay, LAGS, 1.0)
        answers = sensitivities(replay, w)
        gathered = Contributions(replay, LAGS, sensitivities=answers, deltas=seen.deltas[0], rates=1.0)
        walk_lags(replay, LAGS, [means, gathered], order=1, auxiliary=False)
        parts.append(gathered.found[0])
    found = detect(LAGS, np.concatenate(parts), rng=np.random.default_rng(0), method="paper", nulls=19)
    found.windows(np.array(SIZES, dtype=float), 0.1)
