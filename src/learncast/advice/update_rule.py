"""The update rule of a user's training: any torch optimiser, made again for other parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast._core.validation import one_of, positive
from learncast.training.training import OPTIMIZERS, Training

#: Optimisers of torch whose step treats every number by itself, so that stacked copies move as each would alone.
ELEMENTWISE = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
#: Makes an optimiser for tensors under the model's names.
Make = Callable[[Mapping[str, Tensor]], torch.optim.Optimizer]
#: Other names in common use.
ALIASES = {"sgd": "gd"}


@dataclass(frozen=True, eq=False)
class UpdateRule:
    """A torch optimiser with its settings.

    Attributes
    ----------
    name : str
        Name of the optimiser's class, in small letters.
    learning_rate : float
        That of its first group of parameters.
    made : callable
        From parameters under the model's names to a fresh optimiser.
    remembers : bool
        Whether it keeps something of past gradients, so that a fresh one is another.
    """

    name: str
    learning_rate: float
    made: Make
    remembers: bool = True

    @classmethod
    def of(
        cls, optimizer: Any, learning_rate: float | None, model: nn.Module, *, weight_decay: float | None = None
    ) -> UpdateRule:
        """Read an optimiser.

        Parameters
        ----------
        optimizer : str, torch optimiser, its class, or a function from parameters to a torch optimiser
            A name is one of sgd (gd), momentum, adam, adamw, rmsprop with torch's own settings. Of an optimiser that
            exists all settings are taken, those of each group of parameters for its own parameters; not its state.
        learning_rate : float, optional
            Needed for a name or a class; an optimiser that exists has its own.
        model : nn.Module
            Whose parameters an optimiser that exists was made for.
        weight_decay : float, optional
            With a name.
        """
        if isinstance(optimizer, torch.optim.Optimizer):
            made = _again(optimizer, learning_rate, model)
        else:
            make = _maker(optimizer, learning_rate, weight_decay)

            def made(parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
                return make(list(parameters.values()))

        example = made({name: nn.Parameter(value.detach().clone()) for name, value in model.named_parameters()})
        kind = type(example).__name__
        if kind not in ELEMENTWISE or type(example) is not getattr(torch.optim, kind):
            raise InvalidSpec(f"the optimiser must move every number by itself ({', '.join(ELEMENTWISE)}), got {kind}.")
        remembers = kind != "SGD" or any(group["momentum"] for group in example.param_groups)
        return cls(kind.lower(), float(example.param_groups[0]["lr"]), made, remembers)

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by the size of past gradients, so that the noise of batches slows them."""
        return self.name != "sgd"


def _maker(optimizer: Any, learning_rate: float | None, decay: float | None) -> Callable[..., torch.optim.Optimizer]:
    """From a list of parameters to an optimiser."""
    if isinstance(optimizer, str):
        name = one_of("optimizer", ALIASES.get(optimizer, optimizer), tuple(OPTIMIZERS))
        return Training(_rate(optimizer, learning_rate), optimizer=name, weight_decay=decay).made_optimizer
    if inspect.isclass(optimizer) and issubclass(optimizer, torch.optim.Optimizer):
        kind: Any = optimizer
        return partial(kind, lr=_rate(optimizer.__name__, learning_rate))
    if callable(optimizer):
        return cast(Callable[..., torch.optim.Optimizer], optimizer)
    raise InvalidSpec(
        "optimizer must be a name, a torch optimiser, its class, or a function that makes one, got "
        f'{type(optimizer).__name__}. Use optimizer="adam", or pass the optimiser of your training.',
        field="optimizer",
    )


def _rate(name: str, learning_rate: float | None) -> float:
    if learning_rate is None:
        raise InvalidSpec(
            f"learning_rate must be given with optimizer {name!r}, got none. Give learning_rate=..., or pass "
            "the torch optimiser of your training.",
            field="learning_rate",
        )
    return positive("learning_rate", learning_rate)


def _again(optimizer: torch.optim.Optimizer, learning_rate: float | None, model: nn.Module) -> Make:
    """Make the same optimiser for other tensors with the model's names."""
    if learning_rate is not None:
        raise InvalidSpec(
            "learning_rate must be left out with an optimiser that exists, got "
            f"learning_rate={learning_rate!r} and {type(optimizer).__name__}. Leave it out, or pass the "
            "optimiser's name.",
            field="learning_rate",
        )
    names = {id(value): name for name, value in model.named_parameters()}
    groups = []
    for group in optimizer.param_groups:
        known = [names[id(value)] for value in group["params"] if id(value) in names]
        groups.append((known, {key: value for key, value in group.items() if key != "params"}))
    if not any(known for known, _ in groups):
        raise InvalidSpec(
            "the optimiser must hold parameters of the model, got none of them. Make the optimiser from "
            "model.parameters(), or pass its name."
        )
    kind: Any = type(optimizer)
    accepted = inspect.signature(kind.__init__).parameters

    def made(parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        found = []
        for known, settings in groups:
            kept = {key: value for key, value in settings.items() if key in accepted}
            found.append({"params": [parameters[name] for name in known if name in parameters], **kept})
        return kind([group for group in found if group["params"]])

    return made
