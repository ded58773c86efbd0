"""A person's own model, read from a Python file and stored weights."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, optim

from learncast.errors import InvalidSpec, LearncastError
from learncast.tasks.recorded.arrays import readable

SEPARATOR = "|"


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a Python file built: a model, and its optimiser and loss if it says so."""

    model: nn.Module
    optimizer: optim.Optimizer | None = None
    loss: Callable[..., Tensor] | None = None


def built_model(place: str) -> StoredModel:
    """Execute a Python file and call the function it names.

    The file runs with all rights of the person who asks: say so before calling this.

    Parameters
    ----------
    place : str
        ``file.py:function``. The function takes nothing and returns the model, or the model followed by its optimiser
        and, after that, its loss.
    """
    path, name = located(place)
    spec: Any = importlib.util.spec_from_file_location(f"_learncast_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # as if it had been run: its own imports are beside it
    try:
        spec.loader.exec_module(module)
        build = getattr(module, name, None)
        if not callable(build):
            raise _unbuilt(place, "no such function", f"define {name}() in {path.name}")
        found = build()
    except LearncastError:
        raise
    except Exception as error:
        raise _unbuilt(place, f"{type(error).__name__}: {error}", "correct the file") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    parts = found if isinstance(found, tuple) else (found,)
    if not parts or not isinstance(parts[0], nn.Module) or len(parts) > 3:
        got = f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}"
        raise _unbuilt(place, got, "return a torch.nn.Module, or (model, optimizer) or (model, optimizer, loss)")
    return StoredModel(*parts)


def located(place: str) -> tuple[Path, str]:
    """The file and the function that ``file.py:function`` names."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or path.suffix != ".py" or not name.isidentifier() or not path.is_file():
        raise InvalidSpec(
            required="--model must be file.py:function, of a file that exists",
            got=repr(place) if not file or path.is_file() else f"no file {path}",
            why="the function in it builds the model",
            remedy="write for example net.py:build",
        )
    return path, name


def load_weights(model: nn.Module, path: Path) -> None:
    """Put stored weights into a model; every parameter must be there and none beside.

    Parameters
    ----------
    model : torch.nn.Module
    path : Path
        .safetensors, or a .pt file with a state_dict and nothing else.
    """
    stored = _tensors(path, "weights")
    if path.suffix != ".safetensors" and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    try:
        model.load_state_dict(stored)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InvalidSpec(
            required=f"{path} must hold the weights of this model",
            got=" ".join(str(error).split()),
            why="weights of another model would be diagnosed in its place",
            remedy="store model.state_dict() of the model that the function builds",
        ) from error


def load_optimizer(optimizer: optim.Optimizer, model: nn.Module, path: Path) -> None:
    """Put a stored state into an optimiser.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of the same kind as the stored one.
    model : torch.nn.Module
        Whose parameters it holds.
    path : Path
        A .pt file of ``optimizer.state_dict()``, or .safetensors as `optimizer_tensors` names them.
    """
    stored = _tensors(path, "the optimiser's state")
    try:
        if path.suffix == ".safetensors":
            _fill(optimizer, model, stored)
        else:
            optimizer.load_state_dict(stored)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidSpec(
            required=f"{path} must hold the state of this {type(optimizer).__name__}",
            got=f"{type(error).__name__}: {error}",
            why="its step sizes are read from it",
            remedy="store optimizer.state_dict() as .pt, or stored_model.optimizer_tensors(...) as .safetensors",
        ) from error


def optimizer_tensors(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """An optimiser's state as named tensors, for .safetensors: parameter and quantity, parted by a bar.

    Learning rates and other settings are no part of it.
    """
    return {
        f"{name}{SEPARATOR}{key}": torch.as_tensor(value).detach().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }


def _fill(optimizer: optim.Optimizer, model: nn.Module, stored: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for name, value in stored.items():
        owner, _, key = name.rpartition(SEPARATOR)
        if owner not in parameters:
            raise KeyError(f"{name} names no parameter of the model")
        if value.dim() and value.shape != parameters[owner].shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)}, its parameter {tuple(parameters[owner].shape)}")
        optimizer.state[parameters[owner]][key] = value


def _tensors(path: Path, what: str) -> dict[str, Any]:
    if not path.is_file():
        raise InvalidSpec(
            required=f"the file of {what} must exist",
            got=f"no file {path}",
            why="they are needed",
            remedy="check the path",
        )
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with readable(path, remedy="write it again with safetensors.torch.save_file"):
            return dict(load_file(path))
    if path.suffix not in (".pt", ".pth"):
        raise InvalidSpec(
            required=f"{what} must be a .safetensors or .pt file",
            got=path.name,
            why="other kinds cannot be read safely",
            remedy="store it with safetensors.torch.save_file",
        )
    try:
        with warnings.catch_warnings():  # torch warns of what is refused below anyway
            warnings.simplefilter("ignore")
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader raises almost anything on files that hold anything else
        raise InvalidSpec(
            required=f"{path} must hold tensors and plain numbers only",
            got=" ".join(str(error).split())[:200],
            why="anything else in a .pt file is code that would run while it is read, and it is not run here",
            remedy="store the state_dict alone, best as .safetensors",
        ) from error
    if not isinstance(stored, dict):
        raise InvalidSpec(
            required=f"{path} must hold a state_dict",
            got=type(stored).__name__,
            why="weights are found by their names",
            remedy="store model.state_dict()",
        )
    return stored


def _unbuilt(place: str, got: str, remedy: str) -> InvalidSpec:
    return InvalidSpec(
        required=f"{place} must build a torch.nn.Module",
        got=got,
        why="there is no model to diagnose",
        remedy=remedy,
    )
