"""A smooth path between few of its points: interpolated where many times lie close, exact where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from learncast._core.validation import FloatArray

__all__: list[str] = []  # serves the modules around it

#: Chebyshev points of a piece, its ends included: every second one first, which are those of half the degree.
_PLACES = np.concatenate([np.arange(0, 33, 2), np.arange(1, 33, 2)])
_HALF, _ALL = 17, 33
#: Times up to which a piece is not worth the price of its points.
WORTH = 64
#: What may be left out, relative to the size of what is interpolated at every time.
_ALLOWED = 1e-12
#: Rounding of the points, relative to their size.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
#: Size of a point below which it is not interpolated.
_LEAST = 1e-140


def sampled(
    path: Callable[..., None], times: FloatArray, shapes: Sequence[tuple[int, ...]], length: float
) -> list[FloatArray]:
    """Every quantity of a path at many times, to 1e-12 of the first one's size at each of them.

    Pieces of time are covered by polynomials through Chebyshev points. One is taken where its last coefficients have
    vanished: for an analytic path they bound what it leaves out, and a sudden turn between two points keeps them
    large. Near its end a path is interpolated as its distance from there, which keeps the digits of what is still to
    come. Where no polynomial serves, or it would cost more, each time is evaluated by itself.

    Parameters
    ----------
    path : callable
        ``path(times, *values)`` fills an array (times, ...) for each quantity, exactly, at infinity too.
    times : (times,)
        In any order; infinity is evaluated by itself.
    shapes : sequence of tuples
        Of every quantity at one time.
    length : float
        Of the first piece; later ones are as long as their polynomials allow.
    """
    order = np.argsort(times, kind="stable")
    t, alone, first, last = times[order], np.ones(times.size, dtype=bool), 0, int(np.isfinite(times).sum())
    values = [np.empty((t.size, *shape)) for shape in shapes]
    points: list[FloatArray] = []
    end: list[FloatArray] = []
    while last - first > WORTH:
        begin, close = t[first], min(t[first] + length, t[last - 1])
        stop = int(np.searchsorted(t[:last], close, side="right"))
        if stop - first <= WORTH:
            first, length = stop, max(length, close)
            continue
        if not points:
            points = [np.empty((_ALL + 1, *shape)) for shape in shapes]
            final = [np.empty((1, *shape)) for shape in shapes]
            path(np.array([np.inf]), *final)
            end = [one[0] for one in final]
        nodes = begin + (close - begin) * (0.5 - 0.5 * np.cos(np.pi * _PLACES / (_ALL - 1)))
        found, left = _fitted(path, nodes, end, points)
        if found:
            shares = _shares(t[first:stop], nodes[:found])
            for value, known in zip(values, points, strict=True):
                np.matmul(
                    shares, known[: found + 1].reshape(found + 1, -1), out=value[first:stop].reshape(stop - first, -1)
                )
            alone[first:stop], first = False, stop
        # Coefficients fall as fast as the nearest pole is far, in units of the piece.
        reach = np.sinh(-np.log(max(left, 1e-16)) / (_HALF - 1)) / np.sinh(-np.log(_ALLOWED) / (_ALL - 1))
        length = (close - begin) * min(2.0 if found else 0.7, max(0.2, reach))
    exact = values if alone.all() else [np.empty((np.count_nonzero(alone), *shape)) for shape in shapes]
    path(t[alone], *exact)
    for value, own in zip(values, exact, strict=True):
        if own is not value:
            value[alone] = own
    if (order[1:] < order[:-1]).any():
        values = [value[np.argsort(order)] for value in values]
    return values


def _fitted(
    path: Callable[..., None], nodes: FloatArray, end: Sequence[FloatArray], points: Sequence[FloatArray]
) -> tuple[int, float]:
    """How many points serve, none if no number does, and what half of them leave out; the base follows the points.

    Half of them come first: they suffice, or tell whether all will.
    """
    left = half = np.inf
    base = 0.0
    for done, number in ((0, _HALF), (_HALF, _ALL)):
        path(nodes[done:number], *(one[done:number] for one in points))
        if not done:
            base = float(np.linalg.norm(points[0][0] - end[0]) < np.linalg.norm(points[0][0]) / 2)
        for one, last in zip(points, end, strict=True):
            if base:
                one[done:number] -= last
            one[number] = base * last
        left = _left_out(points, number, _ROUNDING * base * float(np.linalg.norm(end[0])))
        if left <= _ALLOWED:
            return number, left if not done else half
        half = half if done else left
        if half**2 > _ALLOWED:
            break
    return 0, half


def _left_out(points: Sequence[FloatArray], number: int, rounding: float) -> float:
    """The largest of a polynomial's last coefficients, relative to the least of its points."""
    flat = [one[:number].reshape(number, -1) for one in points]
    tail = max(float(np.linalg.norm(_tail(number) @ one, axis=1).max()) for one in flat)
    least = float(np.sqrt(np.einsum("ij,ij->i", flat[0], flat[0]).min()))
    if least <= _LEAST:  # squares of less are lost
        return np.inf if tail > rounding or (not rounding and flat[0].any()) else 0.0
    return 0.0 if tail <= rounding else tail / least


@cache
def _tail(number: int) -> FloatArray:
    """Rows that make the last three Chebyshev coefficients of values at the points, but for their sign."""
    steps = number - 1
    places = _PLACES[:number] * steps // (_ALL - 1)
    rows = np.cos(np.pi * np.outer(np.arange(steps - 2, number), places) / steps) * (2.0 / steps)
    rows[:, places % steps == 0] /= 2
    rows[-1] /= 2
    return rows


def _shares(t: FloatArray, nodes: FloatArray) -> FloatArray:
    """Shares of the points at each time, by the barycentric formula, and that of the base, which is 1."""
    steps = nodes.size - 1
    places = _PLACES[: nodes.size] * steps // (_ALL - 1)
    signs = np.where(places % 2, -1.0, 1.0) / np.where(places % steps == 0, 2.0, 1.0)
    distance = t[:, None] - nodes
    there = distance == 0
    shares = np.where(there.any(axis=1)[:, None], there, signs / np.where(there, 1.0, distance))
    return np.hstack([shares / shares.sum(axis=1)[:, None], np.ones((t.size, 1))])
