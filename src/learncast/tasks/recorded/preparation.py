"""Preparation of recorded arrays: order of axes, gaps, a constant input, and trials cut from a recording."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, one_of, positive, real_array
from learncast.tasks.recorded.targets import DIMENSIONS, array_like, as_numpy, axis_of

#: What may be done with missing values.
FILLS = ("zero", "hold", "drop")
#: Relative distance within which a number of samples counts as whole.
ROUND_OFF = 1e-9


def in_axis_order(inputs: object, targets: object, axes: str | None) -> tuple[Any, Any]:
    """Return inputs and targets with axes (trial, step, channel), given their order in words: "time trial channel".

    Targets with fewer axes have the words without the step, and those of one axis are trials.
    """
    if axes is None:
        return inputs, targets
    words = axes.replace(",", " ").lower().split()
    named = [axis_of(word) or word for word in words]
    if len(set(named)) != len(named) or "trial" not in named or not set(named) <= set(DIMENSIONS):
        raise InvalidSpec(f"axes must name trial, time and channel in some order, got {axes!r}.", field="axes")
    x, y = array_like("inputs", inputs), array_like("targets", targets)
    if x.ndim != len(named):
        raise InvalidSpec(f"axes must name the {x.ndim} axes of inputs, got {axes!r}.", field="axes")
    fewer = [axis for axis in named if axis != "step"] if y.ndim == 2 and len(named) == 3 else named
    return _moved(x, named), _moved(y, fewer) if y.ndim == len(fewer) else y


def _moved(array: Any, named: list[str]) -> Any:
    return as_numpy(array).transpose([named.index(axis) for axis in DIMENSIONS if axis in named])


def filled(
    inputs: Any, targets: Any, fill: str | None, mask: Any = None, lengths: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Return trials without missing values, which are zero, held from the step before, or leave their trial out.

    A trial is left out if a value is missing at a step that it has, or a target that counts; `mask` and `lengths` lose
    its row too.
    """
    if fill is None:
        return inputs, targets, mask, lengths
    one_of("fill", fill, FILLS)
    x, y = as_numpy(array_like("inputs", inputs)), as_numpy(array_like("targets", targets))
    if fill != "drop":
        return _without_gaps(x, fill), _without_gaps(y, fill) if y.ndim == 3 else y, mask, lengths
    live = np.ones(x.shape[:2], dtype=bool)
    if lengths is not None:
        live &= np.arange(x.shape[1]) < np.reshape(np.asarray(lengths), (-1, 1))
    counts = live if mask is None or np.ndim(mask) < 2 else live & (as_numpy(mask).reshape(live.shape) == 1)
    complete = _complete(x, live) & _complete(y, counts)
    mask, lengths = (None if rows is None else as_numpy(rows)[complete] for rows in (mask, lengths))
    return x[complete], y[complete], mask, lengths


def _complete(values: NDArray[Any], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each trial has all its values; at live steps only, if there is a value at every step."""
    if values.dtype.kind != "f":
        return np.ones(len(values), dtype=bool)
    known = np.isfinite(values)
    if values.shape[:2] == live.shape:
        known |= ~live.reshape(live.shape + (1,) * (values.ndim - 2))
    return np.asarray(known.reshape(len(values), -1).all(axis=1))


def _without_gaps(values: Any, fill: str) -> Any:
    if values.dtype.kind != "f":
        return values
    known = np.isfinite(values)
    if fill == "hold" and values.ndim == 3:
        steps = np.where(known, np.arange(values.shape[1])[None, :, None], -1)
        last = np.maximum.accumulate(steps, axis=1)
        values = np.take_along_axis(values, np.maximum(last, 0), axis=1)
        known = last >= 0
    return np.where(known, values, 0.0)


def with_constant(inputs: object) -> Any:
    """Return inputs with a last channel that is 1 at every step: its weights are the biases of the hidden units."""
    x = as_numpy(array_like("inputs", inputs))
    return np.concatenate([x, np.ones((*x.shape[:-1], 1), dtype=x.dtype)], axis=-1)


def binned(inputs: object, targets: object, rate: float | None, bin_width: float | None) -> tuple[Any, Any]:
    """Return trials sampled `rate` times per second with steps of `bin_width` seconds, over which samples are averaged.

    Targets at every step are averaged as well. If the bins do not fit, the samples after the last full bin are left
    out; with targets at the end the last bin ends with the trial, and the first samples are left out.
    """
    if bin_width is None:
        return inputs, targets
    if rate is None:
        raise InvalidSpec("bin_width needs rate, the samples per second of the trials.", field="rate")
    x, y = as_numpy(array_like("inputs", inputs)), as_numpy(array_like("targets", targets))
    if x.ndim != 3 or x.dtype == object:
        raise InvalidSpec("bin_width needs inputs (trials, steps, inputs) of equal length.", field="bin_width")
    size = _samples_per_bin(rate, bin_width)
    edges = _edges(x.shape[1] / size, size)
    if len(edges) < 2:
        got = f"{x.shape[1]} samples for bins of {size:g} (rate {rate:g} per second, bin_width {bin_width:g} s)"
        raise InvalidSpec(f"trials must hold at least one bin, got {got}.", field="bin_width")
    if y.ndim == 2 and y.dtype.kind in "iubUSO" and y.shape == x.shape[:2]:
        raise InvalidSpec("bin_width cannot average labels at every step. Resample them first.", field="bin_width")
    if y.ndim == 3 and y.shape[1] == x.shape[1]:
        return _bin_means(x, edges), _bin_means(y, edges)
    return _bin_means(x[:, x.shape[1] - edges[-1] :], edges), y


def _samples_per_bin(rate: float, bin_width: float) -> float:
    """Samples per bin, whole if they are so up to round-off."""
    size = positive("rate", rate) * positive("bin_width", bin_width)
    size = round(size) if abs(size - round(size)) < ROUND_OFF * size else size
    if size < 1:
        raise InvalidSpec(f"a bin must hold at least one sample, got {size:.3g}. Widen it.", field="bin_width")
    return size


def _edges(bins: float, size: float) -> NDArray[np.int64]:
    """First sample of every full bin, and of the one after the last: bin k has the samples from k x size on."""
    return np.ceil(np.arange(int(bins * (1 + ROUND_OFF)) + 1) * size * (1 - ROUND_OFF)).astype(np.int64)


def _bin_means(values: NDArray[Any], edges: NDArray[np.int64]) -> FloatArray:
    """Means (trials, bins, channels) of samples (trials, samples, channels) between edges."""
    sums = np.add.reduceat(values[:, : edges[-1]].astype(float), edges[:-1], axis=1)
    return np.asarray(sums / np.diff(edges)[:, None])


def cut_trials(
    signal: ArrayLike,
    events: ArrayLike,
    *,
    rate: float,
    window: tuple[float, float],
    bin_width: float | None = None,
    start: float = 0.0,
) -> FloatArray:
    """Cut a continuous recording into trials around events.

    Parameters
    ----------
    signal : (samples, channels) or (samples,)
        The recording.
    events : (trials,)
        Times of the events in seconds.
    rate : float
        Samples per second.
    window : (float, float)
        First and last time of a trial in seconds, relative to its event.
    bin_width : float, optional
        Seconds of a bin, over which samples are averaged; one sample by default. Bins need not hold a whole number of
        samples, so recordings with different rates can share their bins.
    start : float
        Time of the first sample in seconds.

    Returns
    -------
    (trials, steps, channels)

    Raises
    ------
    InvalidSpec
        If a window leaves the recording.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> recording = np.arange(20.0)[:, None]
    >>> lc.tasks.cut_trials(recording, [0.5, 1.0], rate=10, window=(0.0, 0.4), bin_width=0.2)[:, :, 0]
    array([[ 5.5,  7.5],
           [10.5, 12.5]])
    """
    values, times = real_array("signal", signal, ndim=(1, 2)), real_array("events", events)
    values, times, rate = values.reshape(len(values), -1), times.ravel(), positive("rate", rate)
    first, last = real_array("window", window, ndim=1).tolist()
    size = 1.0 if bin_width is None else _samples_per_bin(rate, bin_width)
    edges = _edges(round(rate * (last - first)) / size, size)
    if len(edges) < 2:
        raise InvalidSpec(f"window must hold a bin of samples, got {window} and {bin_width}.", field="window")
    begin = np.rint((times + first - start) * rate).astype(int)
    outside = (begin < 0) | (begin + edges[-1] > len(values))
    if outside.any():
        k = int(np.argmax(outside))
        place = f"event {k} at {times[k]:g} s of {len(values) / rate:g} s"
        raise InvalidSpec(f"the window of every event must lie in the recording, got {place}.", field="events")
    return _bin_means(values[begin[:, None] + np.arange(edges[-1])], edges)
