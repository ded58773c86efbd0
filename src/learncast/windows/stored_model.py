"""A user's own model, built by a Python file and loaded from stored weights."""

from __future__ import annotations

import importlib.util
import math
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec, LearncastError, brief
from learncast._core.isolation import read_apart
from learncast._core.limits import check_bytes, file_size, readable

#: Names under which training scripts store the two states of a checkpoint.
WEIGHTS = ("state_dict", "model_state_dict", "model")
STATES = ("optimizer_states", "optimizer_state_dict", "optimizer")


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model built by a Python file, with its optimiser and loss if the file returns them."""

    model: nn.Module
    optimizer: optim.Optimizer | None = None
    loss: Callable[..., Tensor] | None = None


def built_model(place: str) -> StoredModel:
    """Execute a Python file and call a function that builds a model.

    The file runs with all rights of the user: say so before calling this.

    Parameters
    ----------
    place : str
        ``file.py:function``. The function takes no arguments and returns a model, (model, optimizer) or
        (model, optimizer, loss).
    """
    purpose = "return a torch.nn.Module, (model, optimizer) or (model, optimizer, loss)"
    built = call_builder(place, purpose)
    parts = built if isinstance(built, tuple) else (built,)
    if not parts or not isinstance(parts[0], nn.Module) or len(parts) > 3:
        raise builder_error(place, purpose, ", ".join(type(part).__name__ for part in parts) or "nothing")
    return StoredModel(*parts)


def builder_error(place: str, purpose: str, got: str) -> InvalidSpec:
    """The error for a function that does not serve its purpose."""
    return InvalidSpec(f"{place} must {purpose}, got {got}.", field="model")


def call_builder(place: str, purpose: str) -> Any:
    """Execute a Python file, which runs with all rights of the user, and call the function that `place` names."""
    path, name = located(place)
    spec: Any = importlib.util.spec_from_file_location(f"_learncast_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # as for a script: it may import modules from its folder
    try:
        spec.loader.exec_module(module)
        build = getattr(module, name, None)
        if not callable(build):
            raise builder_error(place, purpose, f"no function {name}")
        return build()
    except LearncastError:
        raise
    except Exception as error:
        frames = [
            frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).resolve() == path.resolve()
        ]
        line = f" at line {frames[-1].lineno} of {path.name}" if frames else ""
        raise builder_error(place, purpose, f"{type(error).__name__}: {error}{line}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))


def located(place: str) -> tuple[Path, str]:
    """The file and the function that ``file.py:function`` names."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    if path.suffix != ".py" or not name.isidentifier() or not path.is_file():
        raise InvalidSpec(f"--model must be file.py:function with an existing file, got {place!r}.", field="model")
    return path, name


def load_weights(model: nn.Module, path: Path) -> None:
    """Load stored weights into a model.

    Parameters
    ----------
    model : torch.nn.Module
        The file must hold all of its parameters and no others. A prefix that a wrapper adds to all names (Lightning,
        DataParallel, torch.compile) is removed.
    path : Path
        .safetensors, or a .pt file with a state_dict or with one table of weights and one of the optimiser's state.
    """
    stored = _part(_tensors(path, "weights"), WEIGHTS)
    try:
        own = model.state_dict()
        weights = _without_prefix(stored, own)
        for name in weights.keys() & own.keys():
            if isinstance(own[name], Tensor):
                _check_tensor(repr(name), weights[name], own[name])
        model.load_state_dict(weights)
    except Exception as error:  # a file may hold anything under any name
        raise InvalidSpec(f"{path} must hold this model's weights, got {_brief(error)}.", field="weights") from error


def load_optimizer(optimizer: optim.Optimizer, model: nn.Module, path: Path) -> None:
    """Load a stored state into an optimiser.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of the same kind as the stored one.
    model : torch.nn.Module
        Whose parameters it holds.
    path : Path
        A .pt file of ``optimizer.state_dict()`` or of a checkpoint.
    """
    stored = _part(_tensors(path, "the optimiser's state"), STATES)
    try:
        optimizer.load_state_dict(stored)
        _check_optimizer(optimizer, model)
    except Exception as error:  # a file may hold anything under any name
        kind, got = type(optimizer).__name__, f"{type(error).__name__}: {_brief(error)}"
        remedy = "Store optimizer.state_dict() as .pt."
        raise InvalidSpec(f"{path} must hold a state of {kind}, got {got}. {remedy}", field="optimizer") from error


def _part(stored: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The table under one of the names, or `stored` itself if there is none."""
    for name in names:
        part = stored.get(name)
        if isinstance(part, list) and len(part) == 1:  # Lightning lists its optimisers
            part = part[0]
        if isinstance(part, dict):
            return part
    return stored


def _without_prefix(stored: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Weights without the prefix of a wrapper; unchanged if the remaining names are not the model's."""
    first = next(iter(own), "")
    prefix = next((str(name).removesuffix(first) for name in stored if str(name).endswith(f".{first}")), "")
    bare = {str(name).removeprefix(prefix): value for name, value in stored.items()}
    return bare if bare.keys() == own.keys() and all(str(name).startswith(prefix) for name in stored) else stored


def _check_tensor(name: str, value: object, own: Tensor) -> None:
    """Raise an error unless `value` is a finite tensor of a parameter's shape."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta or value.is_quantized:
        raise ValueError(f"{name}, which is not a plain tensor but {brief(value)}")
    if value.shape != own.shape:
        raise ValueError(f"{name} of shape {tuple(value.shape)} instead of {tuple(own.shape)}")
    if value.is_complex() and not own.is_complex():
        raise ValueError(f"{name} of type {value.dtype} instead of {own.dtype}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{int((~torch.isfinite(value)).sum())} NaN or infinite values in {name}")


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _check_optimizer(optimizer: optim.Optimizer, model: nn.Module) -> None:
    """Raise an error unless settings and states have the types and shapes that the optimiser expects."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for key, default in optimizer.defaults.items():
            _check_setting(key, group.get(key), default)
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                name = f"{key!r} of {names.get(id(parameter), 'a parameter')!r}"
                if key == "step" or (isinstance(value, Tensor) and value.dim() == 0):
                    if not math.isfinite(float(value)) or (key == "step" and float(value) < 1):
                        raise ValueError(f"{name} = {float(value):g}")
                elif value is not None:
                    _check_tensor(name, value, parameter)
                    if key.endswith(("_sq", "square_avg")) and bool((value < 0).any()):
                        raise ValueError(f"{name} with negative values, which must be squares")


def _check_setting(key: str, value: Any, default: Any) -> None:
    """Raise an error unless a setting is a number, a pair of numbers or a flag, as its default is."""
    if isinstance(default, tuple) and len(value) == len(default):
        for part, number in zip(value, default, strict=True):
            _check_setting(key, part, number)
    elif isinstance(default, bool) or default is None:
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{key} = {brief(value)}")
    elif isinstance(default, tuple) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{key} = {brief(value)}")


def _tensors(path: Path, content: str) -> dict[str, Any]:
    size = file_size(path, f"the file of {content}")
    check_bytes(f"{path}: {content}", size, remedy="store less")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with readable(path):
            return dict(load_file(path))
    if path.suffix not in (".pt", ".pth", ".ckpt"):
        raise InvalidSpec(f"{content} must be a .safetensors or .pt file, got {path.name}.")
    stored = _restored(read_apart(torch_values, path, kind="a file of tensors and plain numbers"))
    if not isinstance(stored, dict):
        raise InvalidSpec(f"{path} must hold a state_dict, got {type(stored).__name__}.")
    return stored


def torch_values(path: Path) -> object:
    """The content of a .pt file, with every tensor as its type, shape, strides and bytes."""
    if zipfile.is_zipfile(path):  # torch does not compare the checksums
        with zipfile.ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                raise InvalidSpec(f"{path} is damaged: {damaged} does not have its checksum.", field="weights")
    return _plain(torch.load(path, map_location="cpu", weights_only=True))


#: Marks a tensor among the values of a .pt file.
_TENSOR = "a tensor"


def _plain(value: object) -> object:
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise TypeError(f"a tensor of layout {value.layout}")
        content = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).numpy()
        place = tuple(value.shape), value.stride(), value.storage_offset()
        return (_TENSOR, str(value.dtype).removeprefix("torch."), place, content)
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else [*map(_plain, value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"an object of type {type(value).__name__}")


def _restored(value: Any) -> Any:
    if isinstance(value, tuple) and value[:1] == (_TENSOR,):
        _, name, place, content = value
        dtype = getattr(torch, name)
        return (
            torch.from_numpy(content[: len(content) // dtype.itemsize * dtype.itemsize]).view(dtype).as_strided(*place)
        )
    if isinstance(value, dict):
        return {key: _restored(item) for key, item in value.items()}
    return type(value)(map(_restored, value)) if isinstance(value, list | tuple) else value
