"""Checks of raw values at the public boundary; each raises `InvalidSpec` in four parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast.errors import InvalidSpec

FloatArray = NDArray[np.float64]


def real_array(name: str, value: Any, *, ndim: int | tuple[int, ...] | None = None, first: int = 0) -> FloatArray:
    """Return `value` as a finite float64 array of the given number of dimensions.

    Torch tensors are accepted without importing torch. `first` is the index of the first row, when `value` is a part
    of something larger: a bad entry is then named by its place in the whole.
    """
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = (tensor if tensor.dtype.itemsize > 2 else tensor.float()).numpy()  # numpy has no bfloat16
    try:
        array = np.asarray(value)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers")
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(
            required=f"{name} must be an array of real numbers",
            got=f"{type(value).__name__} ({error})",
            why="the theory works on real second-order statistics and weights",
            remedy=f"pass {name} as a rectangular array of floats",
        ) from error
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(str(n) for n in allowed)
        raise InvalidSpec(
            required=f"{name} must have {wanted} dimension{'' if wanted == '1' else 's'}",
            got=f"shape {array.shape}",
            why="each axis has a fixed meaning",
            remedy="reshape it to the layout the docstring names",
        )
    if not np.isfinite(array).all():
        bad = int(np.size(array) - np.isfinite(array).sum())
        place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
        where = tuple([place[0] + first, *place[1:]] if place else place)
        raise InvalidSpec(
            required=f"{name} must be finite",
            got=f"{bad} NaN or infinite value{'' if bad == 1 else 's'}, the first at index {where}",
            why="one of them would spread to every forecast",
            remedy="remove or impute them before building the task",
        )
    return array


def frozen(array: FloatArray) -> FloatArray:
    """A read-only copy: what is built from it cannot change behind its owner's back."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def positive(name: str, value: Any, *, why: str) -> float:
    """Return `value` as a finite number above zero."""
    number = _number(name, value, why)
    if not number > 0:
        raise InvalidSpec(
            required=f"{name} must be positive", got=_show(value), why=why, remedy=f"choose {name} above 0"
        )
    return number


def between(name: str, value: Any, low: float, high: float, *, why: str) -> float:
    """Return `value` as a number in [low, high]."""
    number = _number(name, value, why)
    if not low <= number <= high:
        raise InvalidSpec(
            required=f"{name} must lie between {low:g} and {high:g}",
            got=_show(value),
            why=why,
            remedy=f"choose {name} in that range",
        )
    return number


def count(name: str, value: Any, *, least: int = 1, why: str) -> int:
    """Return `value` as an integer of at least `least`."""
    number = _number(name, value, why)
    if number != int(number) or number < least:
        raise InvalidSpec(
            required=f"{name} must be a whole number of at least {least}",
            got=_show(value),
            why=why,
            remedy=f"choose a whole number for {name}",
        )
    return int(number)


def one_of(name: str, value: Any, choices: tuple[str, ...], *, why: str) -> str:
    """Return `value` if it is one of `choices`, else suggest the nearest."""
    if value in choices:
        return str(value)
    raise InvalidSpec(
        required=f"{name} must be one of {', '.join(choices)}",
        got=_show(value),
        why=why,
        remedy=suggestion(str(value), choices) or "use one of these words",
    )


def suggestion(word: str, choices: tuple[str, ...]) -> str:
    """Say "did you mean ...?" when a choice is close to `word`, else nothing."""
    import difflib

    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def _number(name: str, value: Any, why: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(
            required=f"{name} must be a number", got=_show(value), why=why, remedy=f"give {name} as a number"
        ) from error
    if not math.isfinite(number):
        raise InvalidSpec(
            required=f"{name} must be finite", got=_show(value), why=why, remedy=f"choose a finite number for {name}"
        )
    return number


def _show(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else text[:57] + "..."
