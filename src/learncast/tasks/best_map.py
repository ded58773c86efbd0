"""The best linear map of inputs whose channels may be of very different size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learncast._core.validation import FloatArray

#: Share of the largest eigenvalue of the channels' correlations below which inputs do not vary along a direction.
SILENT = 1e-12
#: Share of the largest channel's root mean square below which a channel is what subtracting its mean has left over.
LEFT_OVER = 1e-10


class Correlations(NamedTuple):
    """Directions along which inputs vary, each channel measured by its own size: a small unit is not silence.

    Attributes
    ----------
    inverse : ([rows,] inputs)
        One over the root mean square of each channel, D; 0 where it is silent.
    values, vectors
        Eigenvalues, rising, and eigenvectors of D S D.
    live : ([rows,] inputs)
        Along which of them inputs vary.
    """

    inverse: FloatArray
    values: FloatArray
    vectors: FloatArray
    live: NDArray[np.bool_]

    @classmethod
    def of(cls, power: FloatArray) -> Correlations:
        """Those of S, ([rows,] inputs, inputs)."""
        size = np.sqrt(np.maximum(np.diagonal(power, axis1=-2, axis2=-1), 0.0))
        heard = size > LEFT_OVER * size.max(axis=-1, keepdims=True, initial=0.0)
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=heard)
        values, vectors = np.linalg.eigh(inverse[..., :, None] * power * inverse[..., None, :])
        return cls(inverse, values, vectors, values > SILENT * values[..., -1:])

    @property
    def rank(self) -> int:
        """Number of directions along which the inputs of one row vary."""
        return int(np.count_nonzero(self.live))

    @property
    def root(self) -> FloatArray:
        """A root of S^-1 on the directions that vary, ([rows,] inputs, inputs); columns of others are 0."""
        sizes = np.sqrt(np.where(self.live, self.values, np.inf))
        return self.inverse[..., :, None] * self.vectors / sizes[..., None, :]


def best_map(power: FloatArray, cross: FloatArray) -> FloatArray:
    """M* = R S^+ of S ([rows,] inputs, inputs) and R ([rows,] outputs, inputs): the least of the maps that do best."""
    found = Correlations.of(power)
    root = found.root
    M = np.asarray(cross @ root @ np.swapaxes(root, -1, -2))
    if not found.live.all():  # along what does not vary the best map answers nothing
        silent = np.where(found.live[..., None, :], 0.0, found.inverse[..., :, None] * found.vectors)
        M -= M @ silent @ np.linalg.pinv(silent)
    return M
