"""How large the networks, data and training behind the figures of livi2025 are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Name in figures by kind of cell.
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}
#: Kind and settings, other than the learning rate, of each optimiser.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "SGD": {"kind": "sgd"},
    "SGD with momentum": {"kind": "sgd", "momentum": 0.9},
    "RMSprop": {"kind": "rmsprop"},
}
#: Learning rates of the published runs.
PUBLISHED = {"AdamW": 1e-3, "SGD": 1e-3, "SGD with momentum": 1e-3, "RMSprop": 1e-3}
#: At the published rate plain descent would not leave its start within the few steps of a small preset.
FASTER = {**PUBLISHED, "AdamW": 3e-3, "SGD": 0.1, "SGD with momentum": 0.03}


@dataclass(frozen=True)
class Training:
    """Sequences and gradient steps of one kind of run."""

    steps: int  # of a sequence
    hidden_size: int
    sequences: int
    updates: int
    batch: int
    lags: tuple[int, ...]  # to diagnose


@dataclass(frozen=True)
class Preset:
    """Everything that two runs of a figure may differ in.

    Attributes
    ----------
    main : Training
        Of figures 1 to 13, on the multi-lag task.
    validation : Training
        Of the table of appendix C, on the sinusoidal delay task.
    task_lags : tuple of int
        Lags that the multi-lag target reports.
    diagnosed : int
        Sequences that are diagnosed, none of which was trained on.
    sample_sizes : tuple of int
        Numbers of sequences to give windows for.
    exact : int
        Sequences of the table whose Jacobians are multiplied out.
    """

    main: Training
    validation: Training
    task_lags: tuple[int, ...]
    diagnosed: int
    sample_sizes: tuple[int, ...]
    delay: int
    exact: int
    seeds: tuple[int, ...]
    cells: tuple[str, ...] = tuple(CELLS)
    rates: dict[str, float] = field(default_factory=lambda: dict(PUBLISHED))
    inputs: int = 16
    nulls: int = 200
    clip: float = 1.0
    device: str = "cpu"
    memory: int = 2**28


def _spaced(first: int, last: int, number: int) -> tuple[int, ...]:
    return tuple(int(lag) for lag in np.unique(np.linspace(first, last, number).round()))


SIZES = (25, 50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800)

PRESETS = {
    "smoke": Preset(
        main=Training(48, 8, 64, 8, 16, _spaced(1, 24, 8)),
        validation=Training(48, 8, 32, 4, 16, _spaced(1, 40, 8)),
        task_lags=(2, 4, 6, 8, 12),
        diagnosed=256,
        sample_sizes=(16, 64, 256, 1024),
        delay=6,
        exact=2,
        seeds=(212,),
        cells=("const-gate", "paper-gru"),
        rates=FASTER,
        inputs=4,
        nulls=39,
    ),
    "laptop": Preset(
        main=Training(256, 64, 1024, 600, 64, _spaced(4, 128, 32)),
        validation=Training(256, 64, 256, 60, 32, _spaced(1, 245, 12)),
        task_lags=(8, 16, 32, 48, 64),
        diagnosed=512,
        sample_sizes=SIZES[:13],
        delay=32,
        exact=4,
        seeds=(212,),
        rates=FASTER,
    ),
    # 750 epochs of 8000 sequences in batches of 512. Hidden size, length and batch of appendix C are not known: ours.
    "paper": Preset(
        main=Training(1024, 128, 8000, 750 * 16, 512, _spaced(4, 256, 128)),
        validation=Training(256, 64, 800, 200 * 25, 32, _spaced(1, 245, 12)),
        task_lags=(32, 64, 128, 192, 256),
        diagnosed=8000,
        sample_sizes=SIZES,
        delay=32,
        exact=73,  # 800 windows of the longest lag
        seeds=(212, 1001, 2002, 3003, 4004),
        device="cuda",
        memory=2**32,
    ),
}
