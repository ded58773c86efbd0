"""Sizes of the networks, data and training of the figures of livi2025."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

#: Names of the cells in pictures.
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}
#: Cells whose gates are learned, so that their initial value can be chosen.
LEARNED_GATES = ("shared-gate", "diag-gate", "paper-gru", "paper-lstm")
#: Kind and settings, except the learning rate, of each optimiser of figures 1 to 13.
OPTIMIZERS: dict[str, dict[str, object]] = {
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "SGD": {"kind": "sgd"},
    "SGD with momentum": {"kind": "sgd", "momentum": 0.9},
}
#: Optimisers of appendix C, from `diagnostics/run_envelope_validation_batch.sh` of the authors' commit f43916c.
VALIDATED: dict[str, dict[str, object]] = {
    "SGD": {"kind": "sgd", "weight_decay": 1e-4},
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "RMSprop": {"kind": "rmsprop", "weight_decay": 1e-4, "momentum": 0.9, "alpha": 0.99},
}
#: Learning rates of the published runs.
PUBLISHED = {"AdamW": 1e-3, "SGD": 1e-3, "SGD with momentum": 1e-3}
#: Learning rates of small presets, whose few steps would not be enough at the published rates.
FASTER = {"AdamW": 3e-3, "SGD": 0.1, "SGD with momentum": 0.03}


@dataclass(frozen=True)
class RunSize:
    """Size of the data, the network and the training of one kind of run."""

    steps: int  # of a sequence
    inputs: int
    hidden_size: int
    sequences: int
    updates: int
    batch: int
    lags: tuple[int, ...]  # to diagnose


@dataclass(frozen=True)
class Preset:
    """Settings of all runs of a paper.

    Attributes
    ----------
    main : RunSize
        Runs of figures 1 to 13, on the multi-lag task.
    validation : RunSize
        Runs of the table of appendix C, on its task of harmonics.
    task_lags : tuple of int
        Lags in the multi-lag target.
    diagnosed : int
        Sequences on which trained networks are diagnosed; none was used in training.
    sample_sizes : tuple of int
        Numbers of sequences for which windows are computed.
    exact : int
        Sequences of the table whose Jacobians are multiplied.
    times : int, optional
        Number of random times of each of these sequences for a lag; all by default.
    seeds, validation_seeds : tuple of int
        Seeds of figures 1 to 13, and of the table.
    watched : int
        Sequences on which a network is diagnosed during training.
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` is a graphics card if the training process has one.
    """

    main: RunSize
    validation: RunSize
    task_lags: tuple[int, ...]
    diagnosed: int
    sample_sizes: tuple[int, ...]
    exact: int
    seeds: tuple[int, ...]
    validation_seeds: tuple[int, ...]
    cells: tuple[str, ...] = tuple(CELLS)
    rates: dict[str, float] = field(default_factory=lambda: dict(PUBLISHED))
    nulls: int = 200
    watched: int = 128
    clip: float = 1.0
    device: str = "cpu"
    memory: int = 2**28
    times: int | None = None


def _spaced(first: int, last: int, number: int) -> tuple[int, ...]:
    return tuple(int(lag) for lag in np.unique(np.linspace(first, last, number).round()))


SIZES = (25, 50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800)
#: Lags of appendix C in the authors' script.
FIBONACCI = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 245)

PRESETS = {
    "smoke": Preset(
        main=RunSize(48, 4, 8, 64, 8, 16, _spaced(1, 24, 8)),
        validation=RunSize(64, 2, 8, 32, 4, 16, FIBONACCI[:8]),
        task_lags=(2, 4, 6, 8, 12),
        diagnosed=256,
        sample_sizes=(16, 64, 256, 1024),
        exact=2,
        seeds=(212,),
        validation_seeds=(42,),
        cells=("const-gate", "paper-gru"),
        rates=FASTER,
        nulls=39,
    ),
    "laptop": Preset(
        main=RunSize(256, 16, 64, 1024, 400, 32, _spaced(4, 128, 32)),
        validation=RunSize(250, 8, 64, 256, 80, 32, FIBONACCI[:11]),
        task_lags=(8, 16, 32, 48, 64),
        diagnosed=512,
        sample_sizes=SIZES[:13],
        exact=4,
        seeds=(212,),
        validation_seeds=(42,),
        rates=FASTER,
    ),
    # 750 epochs of 8000 sequences in batches of 512. Appendix C: 256 sequences in batches of 32, the default of the
    # authors' training loop; the 256 sequences that the text calls a batch are all sequences.
    "paper": Preset(
        main=RunSize(1024, 16, 128, 8000, 750 * 16, 512, _spaced(4, 256, 128)),
        validation=RunSize(500, 8, 64, 256, 200 * 8, 32, FIBONACCI),
        task_lags=(32, 64, 128, 192, 256),
        diagnosed=8000,
        sample_sizes=SIZES,
        exact=16,
        times=50,
        seeds=(212, 1001, 2002, 3003, 4004),
        validation_seeds=(42, 123, 271, 314, 999),
        watched=512,
        device="auto",
        memory=2**32,
    ),
}
