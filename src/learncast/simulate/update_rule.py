"""The update rule of a user's training: any torch optimiser, made again for other parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from learncast.errors import InvalidSpec
from learncast.simulate.training import OPTIMISERS, Training
from learncast.validation import one_of, positive

#: Optimisers whose step treats every number by itself, so that stacked copies move as each would alone.
ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
)
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
    """

    name: str
    learning_rate: float
    _make: Make

    @classmethod
    def of(cls, optimiser: Any, learning_rate: float | None, model: nn.Module) -> UpdateRule:
        """Read an optimiser.

        Parameters
        ----------
        optimiser : str, torch optimiser, its class, or a function from parameters to a torch optimiser
            A name is one of sgd (gd), momentum, adam, adamw, rmsprop with torch's own settings. Of an optimiser that
            exists all settings are taken, those of each group of parameters for its own parameters; not its state.
        learning_rate : float, optional
            Needed for a name or a class; an optimiser that exists has its own.
        model : nn.Module
            Whose parameters an optimiser that exists was made for.
        """
        if isinstance(optimiser, torch.optim.Optimizer):
            make = _again(optimiser, learning_rate, model)
        elif isinstance(optimiser, str):
            make = _named(optimiser, learning_rate)
        elif inspect.isclass(optimiser) and issubclass(optimiser, torch.optim.Optimizer):
            make = _of_class(optimiser, learning_rate)
        elif callable(optimiser):
            make = _called(optimiser)
        else:
            raise InvalidSpec(
                required="optimiser must be a name, a torch optimiser, its class, or a function that makes one",
                got=type(optimiser).__name__,
                why="the surrogate is trained as the model will be",
                remedy='use optimiser="adam", or pass the optimiser of your training',
            )
        example = make({name: nn.Parameter(value.detach().clone()) for name, value in model.named_parameters()})
        if type(example) not in ELEMENTWISE:
            raise InvalidSpec(
                required="the optimiser must move every number by itself "
                f"({', '.join(kind.__name__ for kind in ELEMENTWISE)})",
                got=type(example).__name__,
                why="all plans are computed at once, stacked, and must not see each other",
                remedy="ask for advice with the nearest of these",
            )
        return cls(type(example).__name__.lower(), float(example.param_groups[0]["lr"]), make)

    @property
    def adaptive(self) -> bool:
        """Whether steps are divided by the size of past gradients, so that the noise of batches slows them."""
        return self.name != "sgd"

    def made(self, parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        """A fresh optimiser for parameters under the model's names."""
        return self._make(parameters)


def _named(word: str, learning_rate: float | None) -> Make:
    name = one_of("optimiser", ALIASES.get(word, word), OPTIMISERS, why="these are the update rules known by name")
    training = Training(_rate(word, learning_rate), optimiser=name)
    return lambda parameters: training.made_optimiser(parameters.values())  # type: ignore[arg-type]


def _of_class(kind: Any, learning_rate: float | None) -> Make:
    return _called(partial(kind, lr=_rate(kind.__name__, learning_rate)))


def _called(make: Callable[..., torch.optim.Optimizer]) -> Make:
    return lambda parameters: make(list(parameters.values()))


def _rate(name: str, learning_rate: float | None) -> float:
    if learning_rate is None:
        raise InvalidSpec(
            required=f"learning_rate must be given with optimiser {name!r}",
            got="none",
            why="which plan is soonest depends on it, and no default suits every model",
            remedy="give learning_rate=..., or pass the torch optimiser of your training",
        )
    return positive("learning_rate", learning_rate, why="training moves against the gradient")


def _again(optimiser: torch.optim.Optimizer, learning_rate: float | None, model: nn.Module) -> Make:
    """Make the same optimiser for other tensors with the model's names."""
    if learning_rate is not None:
        raise InvalidSpec(
            required="learning_rate must be left out with an optimiser that exists",
            got=f"learning_rate={learning_rate!r} and {type(optimiser).__name__}",
            why="the optimiser has its own",
            remedy="leave it out, or pass the optimiser's name",
        )
    names = {id(value): name for name, value in model.named_parameters()}
    groups = []
    for group in optimiser.param_groups:
        known = [names[id(value)] for value in group["params"] if id(value) in names]
        groups.append((known, {key: value for key, value in group.items() if key != "params"}))
    if not any(known for known, _ in groups):
        raise InvalidSpec(
            required="the optimiser must hold parameters of the model",
            got="none of them",
            why="its groups say which settings each parameter has",
            remedy="make the optimiser from model.parameters(), or pass its name",
        )
    kind: Any = type(optimiser)
    accepted = inspect.signature(kind.__init__).parameters

    def make(parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        found = [_group(known, settings, parameters, accepted) for known, settings in groups]
        return kind([group for group in found if group["params"]])

    return make


def _group(
    known: Sequence[str], settings: Mapping[str, Any], parameters: Mapping[str, Tensor], accepted: Mapping[str, Any]
) -> dict[str, Any]:
    kept = {key: value for key, value in settings.items() if key in accepted}
    return {"params": [parameters[name] for name in known if name in parameters], **kept}
