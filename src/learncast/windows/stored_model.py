"""A person's own model, read from a Python file and stored weights."""

from __future__ import annotations

import importlib.util
import io
import math
import pickletools
import sys
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec, LearncastError, brief
from learncast._core.limits import check_bytes, file_size, listed, readable, unadvised

SEPARATOR = "|"


@dataclass(frozen=True)
class Wanted:
    """What is wanted of ``file.py:function`` by who asks.

    Attributes
    ----------
    deed : str
        What the function must do.
    why : str
        What it is for.
    """

    deed: str
    why: str

    def missed(self, place: str, got: str, remedy: str) -> InvalidSpec:
        """What to raise where it does something else."""
        return InvalidSpec(f"{place} must {self.deed}, got {got}.")


MODEL = Wanted("build a torch.nn.Module", "there is no model to diagnose")


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
    found = executed(place, MODEL)
    parts = found if isinstance(found, tuple) else (found,)
    if not parts or not isinstance(parts[0], nn.Module) or len(parts) > 3:
        got = f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}"
        raise MODEL.missed(place, got, "return a torch.nn.Module, or (model, optimizer) or (model, optimizer, loss)")
    return StoredModel(*parts)


def executed(place: str, wanted: Wanted) -> Any:
    """What the function returns that ``file.py:function`` names; the file runs with all rights of who asks."""
    path, name = located(place)
    spec: Any = importlib.util.spec_from_file_location(f"_learncast_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # as if it had been run: its own imports are beside it
    try:
        spec.loader.exec_module(module)
        build = getattr(module, name, None)
        if not callable(build):
            raise wanted.missed(place, "no such function", f"define {name}() in {path.name}")
        found = build()
    except LearncastError:
        raise
    except Exception as error:
        at = [
            frame.lineno
            for frame in extract_tb(error.__traceback__)
            if Path(frame.filename).resolve() == path.resolve()
        ]
        line = f" at line {at[-1]} of {path.name}" if at else ""
        raise wanted.missed(place, f"{type(error).__name__}: {error}{line}", "correct the file") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return found


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
        .safetensors, or a .pt file with a state_dict and nothing else. A name that a wrapper put before all of them
        (Lightning, DataParallel, torch.compile) does no harm.
    """
    _put_weights(model, _part(_tensors(path, "weights"), WEIGHTS), path)


#: Names under which training scripts put the two states of a checkpoint.
WEIGHTS = ("state_dict", "model_state_dict", "model")
STATES = ("optimizer_states", "optimizer_state_dict", "optimizer")


def _part(stored: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The table under one of the names; all that is stored where there is none."""
    for name in names:
        found = stored.get(name)
        if isinstance(found, list) and len(found) == 1:  # Lightning lists its optimisers
            found = found[0]
        if isinstance(found, dict):
            return found
    return stored


def _unwrapped(stored: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Weights without what a wrapper puts before every name; as they are where the rest is not the model's names."""
    first = next(iter(own), "")
    prefix = next((str(name).removesuffix(first) for name in stored if str(name).endswith(f".{first}")), "")
    bare = {str(name).removeprefix(prefix): value for name, value in stored.items()}
    return bare if bare.keys() == own.keys() and all(str(name).startswith(prefix) for name in stored) else stored


def _put_weights(model: nn.Module, stored: dict[str, Any], path: Path) -> None:
    try:
        own = model.state_dict()
        stored = _unwrapped(stored, own)
        _check_tensors(stored, own)
        model.load_state_dict(stored)
    except Exception as error:  # a file may hold anything under any name
        raise InvalidSpec(
            f"{path} must hold the weights of this model, got {_words(error)}. Store model.state_dict() of "
            "the model that the function builds."
        ) from error


def load_checkpoint(model: nn.Module, optimizer: optim.Optimizer | None, path: Path) -> None:
    """Put one state of training into a model, and into its optimiser if it has one.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer, optional
        SGD does without a state; of any other the file must hold one.
    path : Path
        Weights as for `load_weights`, or a .pt file with a table of weights and one of the optimiser's state.
    """
    stored = _tensors(path, "weights")
    _put_weights(model, _part(stored, WEIGHTS), path)
    if optimizer is None:
        return
    state = _part(stored, STATES)
    if state is not stored:
        _put_state(optimizer, model, state, path)
    if type(optimizer) is not optim.SGD and (state is stored or not optimizer.state):
        raise InvalidSpec(
            required=f"{path} must hold the state of this {type(optimizer).__name__}, under {STATES[-1]!r}",
            got=f"none among {listed(stored)}" if state is stored else "one from before its first step",
            why="its step sizes are read from it, and another file's would be wrong",
            remedy='store {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, or ask without optimiser',
        )


def _check_tensors(stored: dict[str, Any], own: dict[str, Any]) -> None:
    """Compare what is stored with the model's own tensors, name by name."""
    for name in own:
        if name not in stored:
            raise ValueError(f"no {name!r} among {listed(stored)}")
    for name, value in stored.items():
        if name not in own:
            raise ValueError(f"{name!r}, which the model has not: it has {listed(own)}")
        if isinstance(own[name], Tensor):
            _check_tensor(repr(name), value, own[name])


def _check_tensor(name: str, value: Any, own: Tensor) -> None:
    """Refuse what is no finite tensor of a parameter's shape."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta or value.is_quantized:
        raise ValueError(f"{name}, which is no plain tensor but {brief(value)}")
    if value.shape != own.shape:
        raise ValueError(f"{name} of shape {tuple(value.shape)} instead of {tuple(own.shape)}")
    if value.is_complex() and not own.is_complex():
        raise ValueError(f"{name} of kind {value.dtype} instead of {own.dtype}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{int((~torch.isfinite(value)).sum())} NaN or infinite values in {name}")


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def load_optimizer(optimizer: optim.Optimizer, model: nn.Module, path: Path) -> None:
    """Put a stored state into an optimiser.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of the same kind as the stored one.
    model : torch.nn.Module
        Whose parameters it holds.
    path : Path
        A .pt file of ``optimizer.state_dict()``, alone or in a checkpoint, or .safetensors as `optimizer_tensors` names
        them.
    """
    _put_state(optimizer, model, _part(_tensors(path, "the optimiser's state"), STATES), path)


def _put_state(optimizer: optim.Optimizer, model: nn.Module, stored: dict[str, Any], path: Path) -> None:
    try:
        if path.suffix == ".safetensors":
            _fill(optimizer, model, stored)
        else:
            optimizer.load_state_dict(stored)
        _check_optimizer(optimizer, model)
    except Exception as error:  # a file may hold anything under any name
        raise InvalidSpec(
            f"{path} must hold the state of this {type(optimizer).__name__}, got {type(error).__name__}: "
            f"{_words(error)}. Store optimizer.state_dict() as .pt, or stored_model.optimizer_tensors(...) as "
            ".safetensors."
        ) from error


def _check_optimizer(optimizer: optim.Optimizer, model: nn.Module) -> None:
    """Refuse settings and states that are not of the kind of the optimiser's own."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for key, own in optimizer.defaults.items():
            _check_setting(key, group.get(key), own)
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                name = f"{key!r} of {names.get(id(parameter), 'a parameter')!r}"
                if key == "step" or (isinstance(value, Tensor) and value.dim() == 0):
                    if not math.isfinite(float(value)) or (key == "step" and float(value) < 1):
                        raise ValueError(f"{name} = {float(value):g}")
                elif value is not None:
                    _check_tensor(name, value, parameter)
                    if key.endswith(("_sq", "square_avg")) and bool((value < 0).any()):
                        raise ValueError(f"{name} with negative values, which should be squares")


def _check_setting(key: str, value: Any, own: Any) -> None:
    """Refuse a setting that is no number where the optimiser's own is one, or no pair of numbers."""
    if isinstance(own, tuple) and len(value) == len(own):
        for part, number in zip(value, own, strict=True):
            _check_setting(key, part, number)
    elif isinstance(own, bool) or own is None:
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"{key} = {brief(value)}")
    elif isinstance(own, tuple) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{key} = {brief(value)}")


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
        optimizer.state[parameters[owner]][key] = value


def _tensors(path: Path, what: str) -> dict[str, Any]:
    check_bytes(f"{path}: {what}", file_size(path, f"the file of {what}"), remedy="store less")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        with readable(path):
            return dict(load_file(path))
    if path.suffix not in (".pt", ".pth", ".ckpt"):
        raise InvalidSpec(f"{what} must be a .safetensors or .pt file, got {path.name}.")
    _check_pickled(path)
    try:
        with warnings.catch_warnings():  # torch warns of what is refused below anyway
            warnings.simplefilter("ignore")
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader raises almost anything on files that hold anything else
        raise InvalidSpec(f"{path} must hold tensors and plain numbers only, got {unadvised(error)}.") from error
    if not isinstance(stored, dict):
        raise InvalidSpec(f"{path} must hold a state_dict, got {type(stored).__name__}. Store model.state_dict().")
    return stored


#: What a state_dict is made of, beside storages and numbers.
_PLAIN = {
    "collections": {"OrderedDict"},
    "torch": {"Size", "Tensor", "device"},
    "torch.nn.parameter": {"Parameter"},
    "torch._utils": {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_parameter_with_state"},
    "torch._tensor": {"_rebuild_from_type_v2"},
    "torch.storage": set(),
}


def _check_pickled(path: Path) -> None:
    """Look at a .pt file without reading it: how much it declares, and what it would call."""
    with readable(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
                check_bytes(f"{path}: its tensors", sum(entry.file_size for entry in entries), remedy="store less")
                plans = [io.BytesIO(archive.read(one)) for one in entries if one.filename.endswith("data.pkl")]
                found = {arg for plan in plans for code, arg, _ in pickletools.genops(plan) if code.name == "GLOBAL"}
        else:
            found = set()
            # torch's older files: five pickles, then the numbers
            with path.open("rb") as file, suppress(ValueError):
                if file.peek(2)[:2] == b"PK":
                    raise zipfile.BadZipFile("it is cut off")
                for code, arg, _ in chain.from_iterable(pickletools.genops(file) for _ in range(5)):
                    found |= {arg} if code.name == "GLOBAL" else set()
    for module, _, name in sorted(str(one).partition(" ") for one in found):
        known = name in _PLAIN.get(module, ()) or isinstance(getattr(torch, name, None), torch.dtype)
        if not known and not (module in _PLAIN and name.endswith("Storage")):
            raise InvalidSpec(
                required=f"{path} must hold tensors and plain numbers only",
                got=f"{module}.{name}"[:100],
                why="anything else in a .pt file is code that would run while it is read, and it is not run here",
                remedy="store the state_dict alone, best as .safetensors",
            )
