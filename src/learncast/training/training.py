"""How a network is trained: the settings of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from learncast._core.errors import InvalidSpec
from learncast._core.validation import count, one_of, positive
from learncast.results import spec_hash
from learncast.theory.dynamics.steps.optimizer import Optimizer
from learncast.training.losses import Loss
from learncast.training.sources import EVALUATION
from learncast.training.stopping import Rule, read_rule


class SGD:
    """Plain gradient descent, bit for bit `torch.optim.SGD` without momentum and decay.

    The first optimiser of torch's own that a process makes loads its compiler, which takes longer than a small
    training.

    Parameters
    ----------
    parameters : iterable of parameters
    learning_rate : float

    Attributes
    ----------
    defaults : dict
        Those of torch's, by which runs are known.
    param_groups : list
        Of one group, as torch has them.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float) -> None:
        off: dict[str, Any] = {"nesterov": False, "maximize": False, "foreach": False, "differentiable": False}
        self.defaults = {"lr": learning_rate, "momentum": 0, "dampening": 0, "weight_decay": 0, "fused": None, **off}
        self.param_groups = [{"params": list(parameters), **self.defaults}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter against its gradient."""
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-self.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Nothing: it has no memory."""
        return {"state": {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on; there is nothing to remember."""


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
RECORDS = ("loss", "strength", "batch_loss", "goal")


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
    until : float, Accuracy, Goal, Learned or Plateau, optional
        when to stop. A number is the accuracy to reach; goals are `LossBelow`, `DecisionAccuracy` and `Measured`.
    loss : str, Loss, or function of (answers, targets)
        What is made small: half_squared_error, mean_squared_error (mse) or cross_entropy, one of these with weights of
        steps and outputs, nn.MSELoss() or nn.CrossEntropyLoss(), or a function of one's own.
    optimizer : str or callable
        One of gd, momentum, adam, adamw, rmsprop with the defaults of `torch.optim`, or a function from parameters to
        a torch optimiser.
    momentum, betas, weight_decay, clip
        Of the optimiser; `clip` is the largest gradient norm.
    schedule : callable, optional
        From a torch optimiser to one of `torch.optim.lr_scheduler`, which takes a step after every update, e.g.
        ``partial(StepLR, step_size=100)``. It begins again where the optimiser does.
    learn : tuple of str, optional
        Weights that learn, for a described network; all by default.
    seed : int
        Decides every batch.
    dtype : {"float64", "float32"}
    threads : int
        Of torch while it trains.
    record : tuple of {"loss", "strength", "batch_loss", "goal"}
        ``loss`` is that on the task itself: exact for linear networks and half the squared error, on the recorded
        trials where there are such, on `evaluation` held-out trials otherwise. ``strength`` is that of each mode, where
        the network is described by its weights. ``goal`` is the measure of the last stage's goal on its own task.
    every : int
        Steps between records.
    evaluation : int
        Held-out trials.
    reset_optimizer : bool
        Whether a curriculum's next stage starts with a fresh optimiser or goes on with its moments.
    most_steps : int
        Where a stage that should stop by itself is given up.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.training.Training(learning_rate=1e-2, optimizer="adam").optimizer
    'adam'
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
    loss: Any = "half_squared_error"
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    most_steps: int = 200_000

    def __post_init__(self) -> None:
        # It checks the numbers that all update rules have in common.
        Optimizer("gd", self.learning_rate, self.momentum, self.betas, weight_decay=self.weight_decay)
        if not callable(self.optimizer):
            one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        one_of("dtype", self.dtype, tuple(DTYPES))
        for name in self.record:
            one_of("record", name, RECORDS)
        for name, value in (("threads", self.threads), ("every", self.every), ("evaluation", self.evaluation)):
            count(name, value)
        count("seed", self.seed, least=0)
        count("most_steps", self.most_steps)
        if self.clip is not None:
            positive("clip", self.clip)
        if self.steps is not None:
            count("steps", self.steps, least=0)
        # A bad rule, loss or schedule is refused here, not when training begins.
        self.rule  # noqa: B018
        self.loss_object  # noqa: B018
        if self.schedule is not None:
            self.made_schedule(self.made_optimizer([torch.nn.Parameter(torch.zeros(1))]))

    @property
    def rule(self) -> Rule | None:
        """When to stop, if not after a number of steps."""
        return None if self.until is None else read_rule(self.until)

    @property
    def loss_object(self) -> Loss:
        """What is made small."""
        return Loss.read(self.loss)

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

    def made_update(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer | SGD:
        """The same, without torch's optimiser where gradient and rate are all there is."""
        if self.optimizer == "gd" and self.weight_decay is None and self.schedule is None:
            return SGD(parameters, self.learning_rate)
        return self.made_optimizer(parameters)

    def made_schedule(self, optimizer: Any) -> Any:
        """A fresh schedule of an optimiser's rate; None where it stays."""
        if self.schedule is None:
            return None
        made = self.schedule(optimizer)
        known = isinstance(made, torch.optim.lr_scheduler.LRScheduler)
        if not known or isinstance(made, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise InvalidSpec(
                "schedule must make a schedule of torch.optim.lr_scheduler that counts steps, got "
                f"{type(made).__name__}.",
                field="schedule",
            )
        return made

    @property
    def hash(self) -> str:
        """Short hash of the settings that decide the outcome, which the stopping rule is not one of."""
        skipped = ("steps", "until", "most_steps", "threads", "optimizer", "loss", "schedule")
        kept = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name not in skipped]
        rule = self.made_update([torch.nn.Parameter(torch.zeros(1))])  # two functions may share a name
        parts = [*kept, type(rule).__qualname__, repr(sorted(rule.defaults.items()))]
        if self.schedule is not None:
            made = self.made_schedule(rule)
            parts += [type(made).__qualname__, repr(sorted(made.state_dict().items(), key=lambda item: item[0]))]
        return spec_hash(*parts, repr(self.loss_object))

    def with_(self, **changes: Any) -> Training:
        """The same settings with some changed."""
        for key in changes:
            one_of("the setting", key, tuple(f.name for f in fields(self)))
        return replace(self, **changes)
