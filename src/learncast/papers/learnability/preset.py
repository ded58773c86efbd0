"""Sizes of the networks, data and training of the figures of livi2025."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

#: Names of the cells in pictures.
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}
#: Cells whose units have gates of their own.
HETEROGENEOUS = ("diag-gate", "paper-gru", "paper-lstm")
#: Kind and settings, except the learning rate, of each optimiser of figures 1 to 13.
OPTIMIZERS: dict[str, dict[str, object]] = {
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "SGD": {"kind": "sgd", "weight_decay": 1e-4},
    "SGD with momentum": {"kind": "sgd", "weight_decay": 1e-4, "momentum": 0.9},
}
#: Optimisers of appendix C, from `diagnostics/run_envelope_validation_batch.sh` of the authors' commit f43916c.
VALIDATED: dict[str, dict[str, object]] = {
    "SGD": {"kind": "sgd", "weight_decay": 1e-4},
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "RMSprop": {"kind": "rmsprop", "weight_decay": 1e-4, "momentum": 0.9, "alpha": 0.99},
}


@dataclass(frozen=True)
class Schedule:
    """Training by one optimiser: its learning rate, its updates and the cells that it trains."""

    rate: float
    updates: int
    cells: tuple[str, ...] = tuple(CELLS)


@dataclass(frozen=True)
class RunSize:
    """Size of the data and the network of one kind of run."""

    steps: int  # of a sequence
    inputs: int
    hidden_size: int
    sequences: int
    batch: int
    lags: tuple[int, ...]  # to diagnose
    task_lags: tuple[int, ...] = ()  # in the multi-lag target

    @property
    def gate(self) -> float:
        """Constant gate, or initial shared and diagonal gates: the scripts' 0.05 for lags to 256, scaled to the task's.

        A gate s keeps (1 - s)^lag, so the same share of the longest lag is kept if log(1 - s) scales with 1 / lag.
        """
        return 1 - 0.95 ** (256 / self.task_lags[-1])


@dataclass(frozen=True)
class Preset:
    """Settings of all runs of a paper.

    Attributes
    ----------
    sizes : tuple of RunSize
        Runs on the multi-lag task; figures 1 to 13 show the first size, claims are tested at all.
    schedules : dict
        Training by each optimiser; the figures of others are left out.
    validation : RunSize
        Runs of the table of appendix C, on its task of harmonics, for `validation_updates` updates.
    diagnosed : int
        Sequences on which trained networks are diagnosed; none was used in training.
    sample_sizes : tuple of int
        Numbers of sequences for which windows are computed.
    exact : int
        Sequences whose Jacobians are multiplied.
    seeds, validation_seeds : tuple of int
        Seeds of figures 1 to 13, and of the table.
    stack : int
        Networks of different seeds that are trained in one tensor.
    watched, moments : int, tuple of int
        Sequences on which a network is diagnosed during training, and the updates at which it is.
    early : int
        Update after which the windows of AdamW are measured as well as at the end.
    dial : tuple of float
        Constant gates whose envelope and learning are compared; none if empty.
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` is a graphics card if the training process has one.
    """

    sizes: tuple[RunSize, ...]
    schedules: dict[str, Schedule]
    validation: RunSize
    validation_updates: int
    diagnosed: int
    sample_sizes: tuple[int, ...]
    exact: int
    seeds: tuple[int, ...]
    validation_seeds: tuple[int, ...]
    moments: tuple[int, ...]
    early: int
    dial: tuple[float, ...] = ()
    dial_updates: int = 0
    cells: tuple[str, ...] = tuple(CELLS)
    stack: int = 5
    nulls: int = 200
    watched: int = 128
    clip: float = 1.0
    device: str = "cpu"
    memory: int = 2**28
    main: RunSize = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "main", self.sizes[0])

    def cells_of(self, optimizer: str) -> tuple[str, ...]:
        """Return the cells that an optimiser trains."""
        return tuple(cell for cell in self.schedules[optimizer].cells if cell in self.cells)


def _spaced(first: int, last: int, number: int) -> tuple[int, ...]:
    return tuple(int(lag) for lag in np.unique(np.linspace(first, last, number).round()))


def _rung(longest: int, hidden_size: int) -> RunSize:
    """Return the size for a longest task lag; lags to twice as long are diagnosed, so that windows can end."""
    fifth = _spaced(longest // 8, longest, 5)
    lags = (*_spaced(1, longest, 32), *_spaced(longest + longest // 8, 2 * longest, 8))
    return RunSize(4 * longest, 4, hidden_size, 1024, 32, lags, fifth)


SIZES = (25, 50, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800)
#: Lags of appendix C in the authors' script.
FIBONACCI = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 245)

DEFAULT = Preset(
    sizes=(_rung(32, 32),),
    schedules={"AdamW": Schedule(3e-3, 2000), "SGD": Schedule(0.5, 800, HETEROGENEOUS)},
    validation=RunSize(128, 8, 32, 256, 32, FIBONACCI[:9]),
    validation_updates=25,
    diagnosed=400,
    sample_sizes=SIZES[:13],
    exact=2,
    seeds=(101, 102, 103, 104, 105),
    validation_seeds=(42, 123, 271, 314, 999),
    moments=(1, 100, 200, 300, 500, 700, 1000, 1400, 2000),
    early=100,
    dial=(0.05, 0.1, 0.2, 0.336, 0.6),
    dial_updates=400,
)
PRESETS = {
    "default": DEFAULT,
    "night": replace(
        DEFAULT,
        sizes=(_rung(32, 32), _rung(64, 64), _rung(128, 64)),
        schedules={
            "AdamW": Schedule(3e-3, 4000),
            "SGD": Schedule(0.5, 2000),
            "SGD with momentum": Schedule(0.05, 2000),
        },
        validation=RunSize(250, 8, 64, 256, 32, FIBONACCI[:11]),
        validation_updates=200,
        moments=(*DEFAULT.moments, 2800, 4000),
        dial_updates=2000,
    ),
    "smoke": replace(
        DEFAULT,
        sizes=(RunSize(48, 4, 8, 64, 16, _spaced(1, 24, 8), (2, 4, 6, 8, 12)),),
        schedules={
            "AdamW": Schedule(3e-3, 8),
            "SGD": Schedule(0.1, 8),
            "SGD with momentum": Schedule(0.03, 8),
        },
        validation=RunSize(64, 2, 8, 32, 16, FIBONACCI[:8]),
        validation_updates=4,
        diagnosed=256,
        sample_sizes=(16, 64, 256, 1024),
        seeds=(212,),
        validation_seeds=(42,),
        cells=("const-gate", "paper-gru"),
        stack=1,
        nulls=39,
        moments=(1, 2, 4, 8),
        early=2,
        dial=(0.1, 0.5),
        dial_updates=4,
    ),
    # 750 epochs of 8000 sequences in batches of 512. Appendix C: 256 sequences in batches of 32, the default of the
    # authors' training loop; the 256 sequences that the text calls a batch are all sequences.
    "paper": replace(
        DEFAULT,
        sizes=(RunSize(1024, 16, 128, 8000, 512, _spaced(4, 256, 128), (32, 64, 128, 192, 256)),),
        schedules={name: Schedule(1e-3, 750 * 16) for name in OPTIMIZERS},
        validation=RunSize(500, 8, 64, 256, 32, FIBONACCI),
        validation_updates=200 * 8,
        diagnosed=8000,
        sample_sizes=SIZES,
        exact=16,
        seeds=(212, 1001, 2002, 3003, 4004),
        stack=1,
        watched=512,
        moments=(1, 1500, 3000, 6000, 12000),
        early=1500,
        dial=(),
        device="auto",
        memory=2**32,
    ),
}
