"""The update rule of a training: its optimiser, applied to any parameters of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

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
    """An elementwise torch optimiser with its settings.

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
    """

    name: str
    learning_rate: float
    made: Make
    remembers: bool = True

    @classmethod
    def of(cls, training: Training, model: nn.Module) -> UpdateRule:
        """Return the update rule of a training; refuse optimisers that couple parameters."""
        made = partial(optimizer_of, training)
        example = made({name: nn.Parameter(value.detach().clone()) for name, value in model.named_parameters()})
        kind = type(example).__name__
        if kind not in ELEMENTWISE or type(example) is not getattr(torch.optim, kind):
            raise InvalidSpec(f"optimizer must be one of {', '.join(ELEMENTWISE)}, got {kind}.", field="optimizer")
        remembers = kind != "SGD" or any(group["momentum"] for group in example.param_groups)
        return cls(kind.lower(), float(example.param_groups[0]["lr"]), made, remembers)

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by the size of past gradients, so that the noise of batches slows them."""
        return self.name != "sgd"
