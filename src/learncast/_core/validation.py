"""Checks of raw values at the public boundary; each raises `InvalidSpec` in four parts."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, brief, suggestion

FloatArray = NDArray[np.float64]


def real_array(
    name: str,
    value: Any,
    *,
    ndim: int | tuple[int, ...] | None = None,
    numbers: NDArray[np.int64] | None = None,
    axes: tuple[str, ...] = (),
) -> FloatArray:
    """Return `value` as a finite float64 array of the given number of dimensions.

    Torch tensors are accepted without importing torch. `numbers` are those of the rows, when `value` is a part of
    something larger: a bad entry is then named by its place in the whole. `axes` say what its index stands for.
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
        if numbers is not None:
            place[0] = int(numbers[place[0]])
        meant = ", ".join(f"{axis} {index}" for axis, index in zip(axes, place, strict=False))
        raise InvalidSpec(
            required=f"{name} must be finite",
            got=f"{bad} NaN or infinite value{'' if bad == 1 else 's'}, the first at index {tuple(place)}"
            + (f" ({meant})" if meant else ""),
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
        raise _refused(value, f"{name} must be positive", why, f"choose {name} above 0")
    return number


def between(name: str, value: Any, low: float, high: float, *, why: str) -> float:
    """Return `value` as a number in [low, high]."""
    number = _number(name, value, why)
    if not low <= number <= high:
        raise _refused(value, f"{name} must lie between {low:g} and {high:g}", why, f"choose {name} in that range")
    return number


def count(name: str, value: Any, *, least: int = 1, why: str) -> int:
    """Return `value` as an integer of at least `least`."""
    number = _number(name, value, why)
    if number != int(number) or number < least:
        required = f"{name} must be a whole number of at least {least}"
        raise _refused(value, required, why, f"choose a whole number for {name}")
    return int(number)


def one_or_each(name: str, value: Any, number: int, *, of: str) -> FloatArray:
    """Return `number` values, of things called `of`: as many as are given, or a single one for all."""
    found = real_array(name, value, ndim=(0, 1))
    if found.ndim and len(found) != number:
        raise InvalidSpec(
            required=f"{name} must be a number or one for each of the {number} {of}",
            got=f"{len(found)} numbers",
            why="each has its own",
            remedy=f"give a single number, or match the {of}",
        )
    return np.broadcast_to(found, (number,))


def evenly(low: Any, high: Any, points: Any, *, why: str) -> list[float]:
    """Return so many evenly spaced numbers from `low` to `high`."""
    first, last = real_array("low and high", [low, high]).tolist()
    if not first < last:
        raise InvalidSpec(
            required="low must be below high",
            got=f"{first:g} and {last:g}",
            why="they bound the search",
            remedy="exchange them",
        )
    return np.linspace(first, last, count("points", points, least=2, why=why)).tolist()


def growing(name: str, values: Any, *, most: int | None = None, why: str) -> tuple[int, ...]:
    """Return `values` as whole numbers that grow from 1 or more, up to `most` if it is given."""
    numbers = tuple(count(name, value, why=why) for value in np.ravel(np.asarray(values)))
    if not numbers or any(b <= a for a, b in pairwise(numbers)) or (most is not None and numbers[-1] > most):
        raise InvalidSpec(
            required=f"{name} must grow" + ("" if most is None else f" and stay within {most}"),
            got=f"{list(numbers)}" if len(numbers) < 9 else f"{len(numbers)} from {numbers[0]} to {numbers[-1]}",
            why=why,
            remedy=f"sort {name} and drop those that are repeated or too large",
        )
    return numbers


def one_of(name: str, value: Any, choices: tuple[str, ...], *, why: str) -> str:
    """Return `value` if it is one of `choices`, else suggest the nearest."""
    if value in choices:
        return str(value)
    remedy = suggestion(str(value), choices) or "use one of these words"
    raise _refused(value, f"{name} must be one of {', '.join(choices)}", why, remedy)


def _number(name: str, value: Any, why: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise _refused(value, f"{name} must be a number", why, f"give {name} as a number") from error
    if not math.isfinite(number):
        raise _refused(value, f"{name} must be finite", why, f"choose a finite number for {name}")
    return number


def _refused(value: Any, required: str, why: str, remedy: str) -> InvalidSpec:
    return InvalidSpec(required=required, got=brief(value), why=why, remedy=remedy)
