"""How a network is trained: the settings of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from learncast.dynamics.steps.optimizer import Optimizer
from learncast.errors import InvalidSpec
from learncast.simulate.sources import EVALUATION
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule
from learncast.trajectory import spec_hash
from learncast.validation import count, one_of, positive

#: The update rules known by name, with the defaults of `torch.optim`.
OPTIMIZERS: dict[str, Any] = {
    "gd": torch.optim.SGD,
    "momentum": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
DTYPES = {"float64": torch.float64, "float32": torch.float32}
#: What can be recorded along a run.
RECORDS = ("loss", "strength", "batch_loss")


@dataclass(frozen=True)
class Training:
    """Settings of a training run.

    Parameters
    ----------
    learning_rate : float
    batch : int, optional
        Trials per step. Fresh ones for a task or a sampler; for recorded trials shuffled batches, or with None all of
        them at every step.
    steps : int, optional
        Number of gradient steps; or
    until : float, Accuracy, LossBelow or Plateau, optional
        when to stop. A number is the accuracy to reach.
    optimizer : str or callable
        One of gd, momentum, adam, adamw, rmsprop with the defaults of `torch.optim`, or a function from parameters to
        a torch optimiser.
    momentum, betas, weight_decay, clip
        Of the optimiser; `clip` is the largest gradient norm.
    learn : tuple of str, optional
        Weights that learn, for a described network; all by default.
    seed : int
        Decides every batch.
    dtype : {"float64", "float32"}
    threads : int
        Of torch while it trains.
    record : tuple of {"loss", "strength", "batch_loss"}
        ``loss`` is the half mean squared error on the task itself: exact for linear networks, on the recorded trials
        where there are such, on `evaluation` held-out trials otherwise. ``strength`` is that of each mode, where the
        network is described by its weights.
    every : int
        Steps between records.
    evaluation : int
        Held-out trials.
    reset_optimizer : bool
        Whether a curriculum's next stage starts with a fresh optimiser or goes on with its moments.
    most_steps : int
        Where a stage that should stop by itself is given up.
    """

    learning_rate: float
    batch: int | None = 1000
    steps: int | None = None
    until: float | Rule | None = None
    optimizer: str | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] = "gd"
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float | None = None
    clip: float | None = None
    learn: tuple[str, ...] | None = None
    seed: int = 0
    dtype: str = "float64"
    threads: int = 1
    record: tuple[str, ...] = ("loss", "strength")
    every: int = 1
    evaluation: int = EVALUATION
    reset_optimizer: bool = True
    most_steps: int = 200_000

    def __post_init__(self) -> None:
        # It checks the numbers that all update rules have in common.
        Optimizer("gd", self.learning_rate, self.momentum, self.betas, weight_decay=self.weight_decay)
        if not callable(self.optimizer):
            one_of("optimizer", self.optimizer, tuple(OPTIMIZERS), why="these are the update rules known here")
        one_of("dtype", self.dtype, tuple(DTYPES), why="these are the precisions torch trains in on any machine")
        for name in self.record:
            one_of("record", name, RECORDS, why="these can be recorded")
        for name, value in (("threads", self.threads), ("every", self.every), ("evaluation", self.evaluation)):
            count(name, value, why="less is nothing")
        count("seed", self.seed, least=0, why="it numbers a random stream")
        count("most_steps", self.most_steps, why="a run takes at least one step")
        if self.clip is not None:
            positive("clip", self.clip, why="a gradient cut to nothing moves nothing")
        if self.steps is not None:
            count("steps", self.steps, least=0, why="it counts updates")
        self.rule  # noqa: B018  a bad rule is refused here, not when training begins

    @property
    def rule(self) -> Rule | None:
        """When to stop, if not after a number of steps."""
        if isinstance(self.until, int | float):
            return Accuracy(float(self.until))
        if self.until is None or isinstance(self.until, Accuracy | LossBelow | Plateau):
            return self.until
        raise InvalidSpec(
            required="until must be an accuracy or a rule (Accuracy, LossBelow, Plateau)",
            got=type(self.until).__name__,
            why="it decides when training ends",
            remedy="use until=0.99, or one of learncast.simulate's rules",
        )

    @property
    def optimizer_name(self) -> str:
        """What to call the optimiser."""
        return self.optimizer if isinstance(self.optimizer, str) else getattr(self.optimizer, "__name__", "custom")

    def made_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh torch optimiser."""
        if callable(self.optimizer):
            return self.optimizer(parameters)
        settings: dict[str, Any] = {"foreach": False}
        if self.weight_decay is not None:
            settings["weight_decay"] = self.weight_decay
        if self.optimizer == "momentum":
            settings["momentum"] = self.momentum
        if self.optimizer in ("adam", "adamw"):
            settings["betas"] = self.betas
        made: torch.optim.Optimizer = OPTIMIZERS[self.optimizer](parameters, self.learning_rate, **settings)
        return made

    @property
    def hash(self) -> str:
        """Short hash of the settings that decide the outcome, which the stopping rule is not one of."""
        skipped = ("steps", "until", "most_steps", "threads", "optimizer")
        kept = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name not in skipped]
        rule = self.made_optimizer([torch.nn.Parameter(torch.zeros(1))])  # two functions may share a name
        return spec_hash(*kept, type(rule).__qualname__, repr(sorted(rule.defaults.items())))

    def with_(self, **changes: Any) -> Training:
        """The same settings with some changed."""
        for key in changes:
            one_of("the setting", key, tuple(f.name for f in fields(self)), why="a training run has no other")
        return replace(self, **changes)
