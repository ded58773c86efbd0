"""What a drawn problem contains: recorded trials, weights before training, and a question."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class Trials:
    """Recorded trials of one task, as a user holds them.

    `inputs` is (trials, steps, channels) or a list with one (steps, channels) array per trial. `targets` is (trials,
    outputs), (trials, steps, outputs) or integer labels (trials,). `form` says how an interface receives them: arrays,
    list, lengths, table, xarray, batches, pairs or statistics. `mask` (trials,), `centre` and `scale` are options of
    `Task.from_samples`.
    """

    name: str
    inputs: np.ndarray | list[np.ndarray]
    targets: np.ndarray
    form: str = "arrays"
    classes: int | None = None
    mask: np.ndarray | None = None
    centre: bool = False
    scale: str = "none"

    def padded(self) -> np.ndarray:
        """Inputs that count as one array, with zeros before shorter trials, centred and scaled."""
        steps = max(map(len, self.inputs))
        x = np.stack([np.pad(x, ((steps - len(x), 0), (0, 0))) for x in self.inputs]).astype(float)
        x = x if self.mask is None else x[self.mask]
        x = x - x.mean(axis=0) if self.centre else x
        return x / np.sqrt((x**2).mean(axis=(0, 1))) if self.scale == "channel" else x

    def answers(self) -> np.ndarray:
        """Targets as numbers, (trials, readouts, outputs); labels become one-hot vectors."""
        y = np.asarray(self.targets)
        if y.ndim == 1:
            found = np.arange(self.classes) if self.classes else np.unique(y)
            y = (y[:, None] == found).astype(float)
        y = y.astype(float) if y.ndim == 3 else y[:, None].astype(float)
        y = y if self.mask is None else y[self.mask]
        return y - y.mean(axis=0) if self.centre else y


@dataclass(frozen=True)
class Weights:
    """Weights before training; without recurrent weights it is a network of two layers, or more with those between."""

    first: np.ndarray
    second: np.ndarray
    recurrent: np.ndarray | None = None
    activation: str = "linear"
    between: tuple[np.ndarray, ...] = ()

    @property
    def scalar(self) -> float | None:
        """Recurrence of a linear network that is the same number for every unit, else None."""
        if self.activation != "linear":
            return None
        if self.recurrent is None:
            return 0.0
        number = float(self.recurrent[0, 0])
        return number if np.array_equal(self.recurrent, number * np.eye(len(self.recurrent))) else None


@dataclass(frozen=True)
class Stop:
    """When a stage ends: at a goal (accuracy, explained, loss, r2) or after a number of steps."""

    rule: str
    value: float


@dataclass(frozen=True)
class Problem:
    """One question about training `weights` on `tasks`, the last of which is the target.

    `least` is the least loss of the target if it is known from how the trials were made.
    """

    question: str
    weights: Weights
    tasks: tuple[Trials, ...]
    learning_rate: float
    stops: tuple[Stop, ...] = (Stop("accuracy", 0.9),)
    learn_recurrence: bool = False
    batch: int | None = None
    shuffled: bool = False
    costs: tuple[float, ...] = ()
    switch_cost: float = 0.0
    max_stages: int = 2
    least: float | None = None
    limit: int = 20_000
    interfaces: tuple[str, ...] = ("python", "command")
    population: Trials | None = None
    web: dict[str, object] = field(default_factory=dict)
    kind: str = ""
    seed: int = 0

    @property
    def target(self) -> Trials:
        """The task that must be learned in the end."""
        return self.tasks[-1]

    def named(self, kind: str, seed: int) -> Problem:
        """Return the problem with the kind and the seed that draw it again."""
        return replace(self, kind=kind, seed=seed)
