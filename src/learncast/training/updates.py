"""Updates of a module's parameters: optimiser, clipping and learning-rate schedule of a `Training`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast.procedure.training import Training
from learncast.results import spec_hash
from learncast.training.losses import LossFunction
from learncast.training.sources import Batch


class SGD:
    """Plain gradient descent, bit for bit `torch.optim.SGD` without momentum and weight decay.

    The first torch optimiser of a process loads torch's compiler, which takes longer than a small training.

    Parameters
    ----------
    parameters : iterable of parameters
    learning_rate : float

    Attributes
    ----------
    defaults : dict
        As of `torch.optim.SGD`, which identify the optimiser in checkpoints.
    param_groups : list
        One group, as of `torch.optim.SGD`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        off: dict[str, Any] = {"nesterov": False, "maximize": False, "foreach": False, "differentiable": False}
        self.defaults = {"lr": learning_rate, "momentum": 0, "dampening": 0, "weight_decay": 0, "fused": None, **off}
        self.param_groups = [{"params": list(parameters), **self.defaults}]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Delete all gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter against its gradient."""
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-self.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, object]:
        """Return an empty state."""
        return {"state": {}}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Do nothing: there is no state."""


#: Torch classes of the update rules that `Training` knows by name, and the settings that each takes from it.
OPTIMIZERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "gd": (torch.optim.SGD, ()),
    "momentum": (torch.optim.SGD, ("momentum",)),
    "adam": (torch.optim.Adam, ("betas", "eps")),
    "adamw": (torch.optim.AdamW, ("betas", "eps")),
    "rmsprop": (torch.optim.RMSprop, ("eps",)),
}


class OptimizerLike:
    """Makes optimisers with the settings of an existing one, for the same model or for copies of its parameters.

    Use it as ``Training(rate, optimizer=OptimizerLike(optimizer, model))``. The state of the optimiser is not copied.

    Parameters
    ----------
    optimizer : torch optimiser
        Each parameter group keeps its settings.
    model : nn.Module
        The model whose parameters the optimiser holds.

    Attributes
    ----------
    learning_rate : float
        Of the first parameter group.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> like = lc.training.OptimizerLike(torch.optim.Adam(model.parameters(), lr=0.02), model)
    >>> training = lc.Training(like.learning_rate, optimizer=like)
    >>> training.learning_rate
    0.02
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        names = {id(value): name for name, value in model.named_parameters()}
        self.kind: Any = type(optimizer)
        self.__qualname__ = self.kind.__name__
        accepted = inspect.signature(self.kind.__init__).parameters.keys() - {"params"}
        self.groups: list[tuple[list[str], dict[str, object]]] = []
        for group in optimizer.param_groups:
            known = [names[id(value)] for value in group["params"] if id(value) in names]
            self.groups.append((known, {key: value for key, value in group.items() if key in accepted}))
        if not any(known for known, _ in self.groups):
            raise InvalidSpec("optimizer must hold parameters of the model, got none of them.", field="optimizer")
        self.learning_rate = float(optimizer.param_groups[0]["lr"])

    def __call__(self, parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        """Make an optimiser for parameters under the model's names; others get the settings of the first group."""
        named = [([parameters[name] for name in known if name in parameters], own) for known, own in self.groups]
        groups = [{"params": values, **own} for values, own in named if values]
        made: torch.optim.Optimizer = self.kind(groups or [{"params": [*parameters.values()], **self.groups[0][1]}])
        return made


def multiply_rates(optimizer: torch.optim.Optimizer | SGD, factor: float) -> None:
    """Multiply the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] *= factor


class ScaledOptimizer:
    """Makes the optimisers of a function, with the learning rate of every parameter group multiplied by a factor.

    Parameters
    ----------
    made : callable
        From parameters to an optimiser.
    factor : float
    """

    def __init__(self, made: Callable[..., Any], factor: float) -> None:
        self.made, self.factor = made, factor
        self.__qualname__ = getattr(made, "__qualname__", "custom")

    def __call__(self, parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        """Make an optimiser."""
        optimizer = _made_by(self.made, parameters, {})
        multiply_rates(optimizer, self.factor)
        return optimizer


def scaled(training: Training, factor: float) -> Training:
    """Return the training with all its learning rates multiplied by a factor."""
    rule = training.optimizer
    if callable(rule) and not takes_rate(rule):
        rule = ScaledOptimizer(rule, factor)
    return training.with_(learning_rate=training.learning_rate * factor, optimizer=rule)


def takes_rate(rule: object) -> bool:
    """Whether an optimiser is made with the learning rate of the training: by a class, or a partial of one without."""
    kind = rule.func if isinstance(rule, partial) and "lr" not in rule.keywords else rule
    return isinstance(kind, type)


def optimizer_of(training: Training, parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    """Return a new torch optimiser of parameters, given by the names they have in the model."""
    rule: Any = training.optimizer
    settings = dict[str, object]()
    if isinstance(rule, str):
        kind, names = OPTIMIZERS[rule]
        settings = {"foreach": False, **{name: getattr(training, name) for name in names}}
        if training.weight_decay is not None:
            settings["weight_decay"] = training.weight_decay
        rule = kind
    if takes_rate(rule):
        settings["lr"] = training.learning_rate
    try:
        made = _made_by(rule, parameters, settings)
        closure = inspect.signature(made.step).parameters.get("closure")
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        wanted, got = "a torch optimiser of the model's parameters", f"{type(error).__name__}: {error}".rstrip(".")
        raise InvalidSpec(f"optimizer must make {wanted}, got {got}.", field="optimizer") from error
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InvalidSpec(f"optimizer must step without a closure, got {type(made).__name__}.", field="optimizer")
    groups = [own for _, own in rule.groups] if isinstance(rule, OptimizerLike) else made.param_groups
    rates = np.array([group["lr"] for group in groups], dtype=float)
    if not isinstance(rule, ScaledOptimizer) and not np.isclose(rates, training.learning_rate, rtol=1e-9, atol=0).any():
        wanted = f"that of a parameter group of the optimiser, {rates[0]:g}"
        raise InvalidSpec(f"learning_rate must be {wanted}, got {training.learning_rate:g}.", field="learning_rate")
    return made


def _made_by(
    rule: Callable[..., torch.optim.Optimizer], parameters: Mapping[str, Tensor], settings: Mapping[str, object]
) -> torch.optim.Optimizer:
    """Return the optimiser that a class or function makes of parameters, or of their values if it knows no names."""
    by_name = isinstance(rule, OptimizerLike | ScaledOptimizer)
    return rule(parameters if by_name else list(parameters.values()), **settings)


def update_rule_of(training: Training, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer | SGD:
    """Return a new optimiser, without torch's own where plain descent is enough."""
    if training.optimizer == "gd" and training.weight_decay is None and training.schedule is None:
        return SGD(parameters.values(), training.learning_rate)
    return optimizer_of(training, parameters)


def schedule_of(training: Training, optimizer: object) -> torch.optim.lr_scheduler.LRScheduler | None:
    """Return a new learning-rate schedule, or None."""
    if training.schedule is None:
        return None
    made = training.schedule(optimizer)
    kinds = torch.optim.lr_scheduler
    if not isinstance(made, kinds.LRScheduler) or isinstance(made, kinds.ReduceLROnPlateau):
        raise InvalidSpec(f"schedule must make an LRScheduler by steps, got {type(made).__name__}.", field="schedule")
    return made


def optimizer_name(training: Training) -> str:
    """Return the name of the optimiser."""
    rule = training.optimizer
    if isinstance(rule, str):
        return rule
    return getattr(rule.func if isinstance(rule, partial) else rule, "__qualname__", "custom").split(".")[-1]


def training_hash(training: Training, parameters: Mapping[str, nn.Parameter]) -> str:
    """Return a hash of the settings that decide a run; functions are identified by what they make of parameters."""
    skipped = ("most_steps", "optimizer", "loss", "schedule")
    parts = [f"{f.name}={getattr(training, f.name)!r}" for f in fields(training) if f.name not in skipped]
    if isinstance(training.optimizer, OptimizerLike):
        parts += [repr(training.optimizer.groups)]
    rule = update_rule_of(training, parameters)
    parts += [type(rule).__qualname__, repr(sorted(rule.defaults.items()))]
    schedule = schedule_of(training, rule)
    if schedule is not None:
        parts += [type(schedule).__qualname__, repr(sorted(schedule.state_dict().items(), key=lambda item: item[0]))]
    return spec_hash(*parts, repr(LossFunction.read(training.loss)))


class Updates:
    """Takes optimiser steps on a module.

    Parameters
    ----------
    module : nn.Module
        Changed in place.
    training : Training
        Loss, optimiser, clipping and learning-rate schedule.

    Attributes
    ----------
    optimizer : torch optimiser

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> model, source = torch.nn.Linear(1, 1), lc.training.Source.of((torch.ones(4, 1), torch.ones(4, 1)))
    >>> updates = lc.training.Updates(model, lc.Training(0.1))
    >>> batch = source.batch(None, (0, 0), 0, torch.float32)
    >>> updates.step(batch) > updates.step(batch)
    True
    """

    def __init__(self, module: nn.Module, training: Training) -> None:
        self.module, self.training, self.loss = module, training, LossFunction.read(training.loss)
        self.named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.parameters = list(self.named.values())
        self.begin()

    def begin(self, factor: float = 1.0) -> None:
        """Start with a new optimiser, its learning rates multiplied by a factor, and a new schedule."""
        self.optimizer = update_rule_of(self.training, self.named)
        multiply_rates(self.optimizer, factor)
        self.schedule = schedule_of(self.training, self.optimizer)

    def step(self, batch: Batch) -> float | None:
        """Take one step and return the loss before it; return None, and restore the weights, if it is not finite."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.module(batch.inputs), batch.targets, batch.weights)
        if not loss.requires_grad:
            raise UnsupportedModel("The loss does not depend on any weight that learns.", field="model")
        loss.backward()  # type: ignore[no-untyped-call]
        value, clip = float(loss.detach()), self.training.clip
        if clip is not None:
            size = float(nn.utils.clip_grad_norm_(self.parameters, clip))
        else:
            size = _size([p.grad for p in self.parameters if p.grad is not None])
        if not (np.isfinite(value) and np.isfinite(size)):
            return None
        before = [p.detach().clone() for p in self.parameters]
        self.optimizer.step()
        if not np.isfinite(_size(self.parameters)):
            with torch.no_grad():
                for parameter, old in zip(self.parameters, before, strict=True):
                    parameter.copy_(old)
            return None
        if self.schedule is not None:
            self.schedule.step()
        return value


def _size(tensors: Sequence[Any]) -> float:
    return sum(float(t.detach().abs().sum()) for t in tensors)


#: Torch optimisers that update every number independently, so that stacked copies move as single ones.
ELEMENTWISE = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
#: Makes an optimiser for tensors under the model's parameter names.
Make = Callable[[Mapping[str, Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True, eq=False)
class UpdateRule:
    """A torch optimiser with its settings.

    Attributes
    ----------
    name : str
        Name of the optimiser's class, in lower case.
    learning_rate : float
        Of its first parameter group.
    made : callable
        From parameters under the model's names to a new optimiser.
    remembers : bool
        Whether the optimiser has a state, so that resetting it matters.
    elementwise : bool
        Whether every number is updated independently of the others.
    """

    name: str
    learning_rate: float
    made: Make
    remembers: bool
    elementwise: bool

    @classmethod
    def of(cls, training: Training, model: nn.Module) -> UpdateRule:
        """Return the update rule of a training."""
        made = partial(optimizer_of, training)
        example = made({name: nn.Parameter(value.detach().clone()) for name, value in model.named_parameters()})
        kind = type(example).__name__
        remembers = kind != "SGD" or any(group["momentum"] for group in example.param_groups)
        elementwise = kind in ELEMENTWISE and type(example) is getattr(torch.optim, kind)
        return cls(kind.lower(), float(example.param_groups[0]["lr"]), made, remembers, elementwise)

    def check_elementwise(self) -> None:
        """Refuse optimisers that couple parameters."""
        if not self.elementwise:
            names = ", ".join(ELEMENTWISE)
            raise InvalidSpec(f"optimizer must be one of {names}, got {self.name}.", field="optimizer")

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by the size of past gradients, so that the noise of batches slows them."""
        return self.name != "sgd"
