"""Checks of arguments at the public boundary, which raise `InvalidSpec`."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, brief, suggestion

FloatArray = NDArray[np.float64]


def real_array(
    name: str,
    value: object,
    *,
    ndim: int | tuple[int, ...] | None = None,
    numbers: NDArray[np.int64] | None = None,
    axes: tuple[str, ...] = (),
    remedy: str = "",
) -> FloatArray:
    """Return `value` as a finite float64 array of the given number of dimensions.

    Torch tensors are accepted without importing torch.

    Parameters
    ----------
    numbers : (rows,), optional
        Row numbers to report if `value` is part of a larger array.
    axes : tuple of str
        Names of the axes, for the message.
    remedy : str
        What to do about values that are not finite, for the message.
    """
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = (tensor if tensor.dtype.itemsize > 2 else tensor.float()).numpy()  # numpy has no bfloat16
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiubO":
            raise TypeError(f"got values of type {array.dtype}")
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        problem = str(error).rstrip(".")
        raise InvalidSpec(f"{name} must be an array of real numbers: {problem}.", field=name) from error
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(map(str, allowed))
        plural = "" if wanted == "1" else "s"
        raise InvalidSpec(f"{name} must have {wanted} dimension{plural}, got shape {array.shape}.", field=name)
    finite = np.isfinite(array)
    if not finite.all():
        index = [int(i) for i in np.argwhere(~finite)[0]]
        if numbers is not None:
            index[0] = int(numbers[index[0]])
        meaning = ", ".join(f"{axis} {i}" for axis, i in zip(axes, index, strict=False))
        where = f"{tuple(index)} ({meaning})" if meaning else f"{tuple(index)}"
        bad = int(array.size - finite.sum())
        problem = f"{name} must be finite, got {bad} NaN or infinite, the first at {where}. {remedy}"
        raise InvalidSpec(problem.rstrip(), field=name)
    return array


def frozen(array: FloatArray) -> FloatArray:
    """Return a read-only copy."""
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def positive(name: str, value: object) -> float:
    """Return `value` as a finite number above zero."""
    number = _number(name, value)
    if not number > 0:
        raise InvalidSpec(f"{name} must be positive, got {brief(value)}.", field=name)
    return number


def between(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a number in [low, high]."""
    number = _number(name, value)
    if not low <= number <= high:
        raise InvalidSpec(f"{name} must lie between {low:g} and {high:g}, got {brief(value)}.", field=name)
    return number


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidSpec(f"{name} must be True or False, got {brief(value)}.", field=name)
    return bool(value)


def count(name: str, value: object, *, least: int = 1) -> int:
    """Return `value` as an integer of at least `least`."""
    number = _number(name, value)
    if number != int(number):
        raise InvalidSpec(f"{name} must be a whole number, got {brief(value)}.", field=name)
    if number < least:
        raise InvalidSpec(f"{name} must be at least {least}, got {brief(value)}.", field=name)
    return int(number)


def one_or_each(name: str, value: object, number: int, *, of: str) -> FloatArray:
    """Return `number` values: those given, or a single one repeated."""
    values = real_array(name, value, ndim=(0, 1))
    if values.ndim and len(values) != number:
        raise InvalidSpec(f"{name} must be one number or {number} ({of}), got {len(values)}.", field=name)
    return np.broadcast_to(values, (number,))


def evenly(low: float, high: float, points: int) -> list[float]:
    """Return evenly spaced numbers from `low` to `high`."""
    first, last = real_array("low and high", [low, high]).tolist()
    if not first < last:
        raise InvalidSpec(f"low must be below high, got {first:g} and {last:g}.", field="low")
    return np.linspace(first, last, count("points", points, least=2)).tolist()


def increasing(name: str, values: ArrayLike, *, most: int | None = None) -> tuple[int, ...]:
    """Return `values` as strictly increasing whole numbers from 1, up to `most`."""
    numbers = tuple(count(name, value) for value in np.ravel(np.asarray(values)))
    if not numbers or any(b <= a for a, b in pairwise(numbers)) or (most is not None and numbers[-1] > most):
        limit = "" if most is None else f" and be at most {most}"
        raise InvalidSpec(f"{name} must increase strictly{limit}, got {brief(list(numbers))}.", field=name)
    return numbers


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if value in choices:
        return str(value)
    hint = suggestion(str(value), choices)
    raise InvalidSpec(f"{name} must be one of {', '.join(choices)}, got {brief(value)}. {hint}".strip(), field=name)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{name} must be a number, got {brief(value)}.", field=name) from error
    if not math.isfinite(number):
        raise InvalidSpec(f"{name} must be finite, got {brief(value)}.", field=name)
    return number
