"""The best linear map from inputs whose channels may have very different scales."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from learncast._core.validation import FloatArray

#: Share of the largest eigenvalue of the correlations below which inputs do not vary along a direction.
SILENT = 1e-12
#: Share of the largest channel's root mean square below which a channel is round-off of centring.
CENTRING_ERROR = 1e-10
#: Share of the largest possible eigenvalue above which inputs clearly vary along a direction.
CLEAR = 1e-6


class Correlations(NamedTuple):
    """Directions along which inputs vary, with each channel scaled to unit power, so that units do not matter.

    Attributes
    ----------
    inverse : ([rows,] inputs)
        D, one over the root mean square of each channel; 0 for a silent channel.
    values, vectors
        Eigenvalues in rising order, and eigenvectors, of D S D.
    live : ([rows,] inputs)
        Whether inputs vary along each of them.

    Examples
    --------
    The second channel is a multiple of the first, in a much smaller unit:

    >>> import numpy as np
    >>> from learncast.tasks.best_map import Correlations
    >>> Correlations.of(np.outer([1.0, 1e-6], [1.0, 1e-6])).rank
    1
    """

    inverse: FloatArray
    values: FloatArray
    vectors: FloatArray
    live: NDArray[np.bool_]

    @classmethod
    def of(cls, power: FloatArray) -> Correlations:
        """Decompose S, ([rows,] inputs, inputs)."""
        size = np.sqrt(np.maximum(np.diagonal(power, axis1=-2, axis2=-1), 0.0))
        audible = size > CENTRING_ERROR * size.max(axis=-1, keepdims=True, initial=0.0)
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=audible)
        values, vectors = np.linalg.eigh(inverse[..., :, None] * power * inverse[..., None, :])
        return cls(inverse, values, vectors, values > SILENT * values[..., -1:])

    @property
    def rank(self) -> int:
        """Number of directions along which inputs vary, for a single S."""
        return int(np.count_nonzero(self.live))

    @property
    def root(self) -> FloatArray:
        """A root of S^-1 on the directions along which inputs vary, ([rows,] inputs, inputs); other columns are 0."""
        sizes = np.sqrt(np.where(self.live, self.values, np.inf))
        return self.inverse[..., :, None] * self.vectors / sizes[..., None, :]

    @property
    def silent(self) -> FloatArray:
        """A basis of the directions without variation among the channels that are not silent, as columns."""
        vectors = np.where(self.live[..., None, :] | (self.inverse == 0)[..., :, None], 0.0, self.vectors)
        # Without the rows of silent channels, singular values are 1, or round-off of 0.
        basis, sizes, _ = np.linalg.svd(vectors)
        return self.inverse[..., :, None] * basis * (sizes > 0.5)[..., None, :]

    def best_map(self, cross: FloatArray) -> FloatArray:
        """Best linear map of least norm, M* = R S^+."""
        root = self.root
        M = np.asarray(cross @ root @ np.swapaxes(root, -1, -2))
        if self.inverse.ndim == 1 and 2 * self.rank < len(self.inverse):  # few trials of many channels: much faster
            size = np.divide(1.0, self.inverse, out=np.zeros_like(self.inverse), where=self.inverse > 0)
            span = np.linalg.qr(size[:, None] * self.vectors[:, self.live])[0]
            return np.asarray(M @ span @ span.T)
        if not self.live.all():  # zero along directions without variation
            silent = self.silent
            M -= M @ silent @ np.linalg.pinv(silent)
        return M


def best_map(power: FloatArray, cross: FloatArray) -> FloatArray:
    """Compute M* = R S^+, the best linear map of least norm.

    Parameters
    ----------
    power : ([rows,] inputs, inputs)
        S, second moment of the inputs.
    cross : ([rows,] outputs, inputs)
        R, second moment of targets with inputs.

    Returns
    -------
    ([rows,] outputs, inputs) array
        M*.

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.tasks.best_map import best_map
    >>> best_map(np.diag([4.0, 1.0]), np.array([[2.0, 1.0]])).round(12)
    array([[0.5, 1. ]])
    """
    if power.ndim == 2 and (found := _definite_map(power, cross)) is not None:
        return found
    return Correlations.of(power).best_map(cross)


def _definite_map(power: FloatArray, cross: FloatArray) -> FloatArray | None:
    """R S^-1 by a Cholesky decomposition, ten times as fast; None unless inputs clearly vary along all directions."""
    size = np.sqrt(np.maximum(np.diagonal(power), 0.0))
    if not (size > CENTRING_ERROR * size.max(initial=0.0)).all():
        return None
    correlation, identity = power / np.outer(size, size), np.eye(len(power))
    try:
        np.linalg.cholesky(correlation - CLEAR * len(power) * identity)
    except np.linalg.LinAlgError:
        return None
    solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(correlation), (cross / size).T)
    return np.asarray(solved.T / size)
