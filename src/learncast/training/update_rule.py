"""A torch optimiser as an update rule: its settings, and what they mean for copies of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature

import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast.procedure.training import Training
from learncast.training.updates import optimizer_of

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
        if signature(example.step).parameters["closure"].default is Parameter.empty:
            raise InvalidSpec(f"optimizer must take steps without a closure, got {kind}.", field="optimizer")
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
