"""How a network is trained: the settings of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch

from learncast.errors import InvalidSpec
from learncast.simulate.sources import EVALUATION
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau, Rule
from learncast.trajectory import spec_hash
from learncast.validation import between, count, one_of, positive

OPTIMISERS = ("gd", "momentum", "adam", "adamw", "rmsprop")
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
    optimiser : str or callable
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
    reset_optimiser : bool
        Whether a curriculum's next stage starts with a fresh optimiser or goes on with its moments.
    most_steps : int
        Where a stage that should stop by itself is given up.
    """

    learning_rate: float
    batch: int | None = 1000
    steps: int | None = None
    until: float | Rule | None = None
    optimiser: str | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] = "gd"
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
    reset_optimiser: bool = True
    most_steps: int = 200_000

    def __post_init__(self) -> None:
        positive("learning_rate", self.learning_rate, why="training moves against the gradient")
        if not callable(self.optimiser):
            one_of("optimiser", self.optimiser, OPTIMISERS, why="these are the update rules known here")
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
        between("momentum", self.momentum, 0.0, 1.0, why="it is the share of the last step that is kept")
        if self.weight_decay is not None:
            between("weight_decay", self.weight_decay, 0.0, 1e300, why="it pulls weights towards 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InvalidSpec(
                required="betas must lie between 0 and 1, below 1, and be two",
                got=repr(self.betas)[:60],
                why="each is the share of a moment that is kept; 1 would keep the past for ever",
                remedy="use (0.9, 0.999)",
            )
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
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch names it."""
        return DTYPES[self.dtype]

    @property
    def optimiser_name(self) -> str:
        """What to call the optimiser."""
        return self.optimiser if isinstance(self.optimiser, str) else getattr(self.optimiser, "__name__", "custom")

    def made_optimiser(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh torch optimiser."""
        if callable(self.optimiser):
            return self.optimiser(parameters)
        rate, decay = self.learning_rate, self.weight_decay
        if self.optimiser in ("gd", "momentum"):
            kept = self.momentum if self.optimiser == "momentum" else 0.0
            return torch.optim.SGD(parameters, rate, momentum=kept, weight_decay=decay or 0.0, foreach=False)
        if self.optimiser == "rmsprop":
            return torch.optim.RMSprop(parameters, rate, weight_decay=decay or 0.0, foreach=False)
        make = torch.optim.Adam if self.optimiser == "adam" else torch.optim.AdamW
        default = 0.0 if self.optimiser == "adam" else 0.01
        chosen = default if decay is None else decay
        return make(parameters, rate, betas=self.betas, weight_decay=chosen, foreach=False)

    @property
    def hash(self) -> str:
        """Short hash of the settings that decide the outcome, which the stopping rule is not one of."""
        skipped = ("steps", "until", "most_steps", "threads", "optimiser")
        kept = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name not in skipped]
        rule = self.made_optimiser([torch.nn.Parameter(torch.zeros(1))])  # two functions may share a name
        return spec_hash(*kept, type(rule).__qualname__, repr(sorted(rule.defaults.items())))

    def with_(self, **changes: Any) -> Training:
        """The same settings with some changed."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for key in changes:
            one_of("the setting", key, tuple(values), why="a training run has no other")
        return Training(**{**values, **changes})
