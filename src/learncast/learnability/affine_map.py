"""An affine map from features to the pre-activation of a gate, with any values in the place of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """One summand of an affine map: rows of a parameter acting on a feature.

    Parameters
    ----------
    name : str
        The parameter's name in the model.
    rows : slice
        Its rows that belong to the map.
    feature : (time, batch, columns) tensor, optional
        What the rows act on; None for a bias.
    elementwise : bool
        The parameter scales the feature instead of multiplying it as a matrix.
    """

    name: str
    rows: slice
    feature: Tensor | None
    elementwise: bool = False


def affine(terms: tuple[Term, ...], values: Mapping[str, Tensor], *, square: Callable[[Tensor], Tensor]) -> Tensor:
    """The affine map with `values` in the place of its parameters and each feature passed through `square`.

    Only the base rate needs squared features; the pre-activation and its directional derivative pass `unchanged`.
    """
    products = [term for term in terms if term.feature is not None]
    shift = sum((values[term.name][term.rows] for term in terms if term.feature is None), torch.zeros(()))
    total: Tensor | None = None
    for term in products:
        assert term.feature is not None
        feature, value = square(term.feature), values[term.name][term.rows]
        if term.elementwise:
            part = feature * value + shift
            total = part if total is None else total + part
        elif total is None:
            flat, start = feature.reshape(-1, feature.shape[2]), shift.to(value)
            total = torch.addmm(start.expand(value.shape[0]), flat, value.t()).view(*feature.shape[:2], -1)
        else:
            total.view(-1, total.shape[2]).addmm_(feature.reshape(-1, feature.shape[2]), value.t())
    assert total is not None
    return total


def unchanged(feature: Tensor) -> Tensor:
    """The feature itself."""
    return feature
