"""Sizes of the networks, data and training of the figures of livi2025."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

#: Names of the cells in pictures.
CELLS = {
    "const-gate": "ConstGate",
    "shared-gate": "SharedGate",
    "diag-gate": "DiagGate",
    "paper-gru": "GRU",
    "paper-lstm": "LSTM",
}
#: Kind and settings, except the learning rate, of each optimiser of figures 1 to 13.
OPTIMIZERS: dict[str, dict[str, object]] = {
    "AdamW": {"kind": "adamw", "weight_decay": 1e-4},
    "SGD": {"kind": "sgd", "weight_decay": 1e-4},
    "SGD with momentum": {"kind": "sgd", "weight_decay": 1e-4, "momentum": 0.9},
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
    task_lags: tuple[int, ...]  # in the multi-lag target

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
    diagnosed : int
        Sequences on which trained networks are diagnosed; none was used in training.
    sample_sizes : tuple of int
        Numbers of sequences for which windows are computed.
    exact : int
        Sequences whose Jacobians are multiplied.
    seeds : tuple of int
    stack : int
        Networks of different seeds that are trained in one tensor.
    watched : int
        Sequences on which losses are measured.
    early : int
        Update after which the windows of AdamW are measured as well as at the end.
    dial : tuple of float
        Constant gates whose envelope and learning are compared; none if empty.
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` is a graphics card if the training process has one.
    """

    sizes: tuple[RunSize, ...]
    schedules: dict[str, Schedule]
    diagnosed: int
    sample_sizes: tuple[int, ...]
    exact: int
    seeds: tuple[int, ...]
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

    @property
    def main(self) -> RunSize:
        """Size of figures 1 to 13."""
        return self.sizes[0]

    def cells_of(self, optimizer: str) -> tuple[str, ...]:
        """Return the cells that an optimiser trains."""
        return tuple(cell for cell in self.schedules[optimizer].cells if cell in self.cells)


def _lags(given: list[Any]) -> tuple[int, ...]:
    """Return lags from single ones and from [first, last, number]."""
    parts = [np.linspace(*one).round() if isinstance(one, list) else [one] for one in given]
    return tuple(int(lag) for lag in np.unique(np.concatenate(parts)))


def _size(given: dict[str, Any]) -> RunSize:
    return RunSize(**given | {name: _lags(given[name]) for name in ("lags", "task_lags")})


def _preset(given: dict[str, Any]) -> Preset:
    """Return a preset from its table in `presets.toml`."""
    own: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    own["sizes"] = tuple(_size(one) for one in given["sizes"])
    schedules = {name: {"cells": tuple(CELLS), **one} for name, one in given["schedules"].items()}
    own["schedules"] = {name: Schedule(**one | {"cells": tuple(one["cells"])}) for name, one in schedules.items()}
    return Preset(**own)


_TABLES = tomllib.loads(files("learncast.papers.learnability").joinpath("presets.toml").read_text(encoding="utf-8"))
PRESETS = {name: _preset(_TABLES["default"] | table) for name, table in _TABLES.items()}
