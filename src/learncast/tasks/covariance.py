"""The time-resolved covariance of two vector sequences, dense or in a structured form.

A covariance holds Cov(left_t, right_s) for every pair of steps. As a dense array it has shape (left steps, left
channels, right steps, right channels), which takes 2 GB for 1000 steps of 16 channels. The structured forms are made
dense only on request, and only up to a memory limit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from learncast._core.errors import InvalidSpec
from learncast._core.limits import check_made
from learncast._core.validation import FloatArray

#: Most bytes of one array: 1 GiB fits on a laptop.
MEMORY_LIMIT = 2**30

Shape = tuple[int, int, int, int]


def check_memory(numbers: int, what: str, *, limit: int = MEMORY_LIMIT) -> None:
    """Refuse an array of `numbers` float64 numbers that takes more than `limit` bytes."""
    if 8 * numbers > limit:
        raise InvalidSpec(f"{what} must fit in {limit / 2**30:.3g} GiB, got {8 * numbers / 2**30:.3g} GiB.")


def check_steps(steps: int, copies: int) -> None:
    """Refuse trials for which `copies` matrices of (steps, steps) exceed the memory limit."""
    check_made(f"the covariances of trials of {steps} steps", 8 * copies * steps**2, remedy="use shorter trials")


#: Number of (steps, steps) matrices that a forecast holds in memory at the same time, by the kind of target.
COPIES = {"end": 2, "every_step": 7}


class Covariance(ABC):
    """Cov(left_t, right_s) for all steps t, s.

    Tasks store their statistics in this form. `contracted` sums over steps with the weights of a network's recurrence,
    `rotated` changes the basis of the channels; neither needs the dense array.

    Examples
    --------
    Power of 50 steps of white input, summed by a recurrence of 0.96 as in a forecast:

    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = lc.tasks.integration(steps=50).input_covariance
    >>> inputs.shape
    (50, 1, 50, 1)
    >>> reach = 0.96 ** np.arange(49, -1, -1)
    >>> inputs.contracted(np.outer(reach, reach)).round(2)
    array([[12.54]])
    """

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """(left steps, left channels, right steps, right channels)."""

    @abstractmethod
    def contracted(self, kernel: FloatArray) -> FloatArray:
        """Return sum over t, s of kernel[t, s] Cov(left_t, right_s), (left channels, right channels)."""

    @abstractmethod
    def rotated(self, left: FloatArray, right: FloatArray) -> Covariance:
        """Covariance of left.T @ left_t with right.T @ right_s."""

    @abstractmethod
    def transposed(self) -> Covariance:
        """Cov(right_s, left_t)."""

    @abstractmethod
    def diagonal(self) -> FloatArray:
        """Cov of channel k on both sides, (channels, left steps, right steps)."""

    @abstractmethod
    def left_factor(self) -> FloatArray:
        """A matrix A (left, any) with A A^T = sum over t, s of Cov(left_t, right_s) Cov(left_t, right_s)^T.

        Its singular vectors are exact to round-off; eigenvectors of A A^T would lose half the digits.
        """

    @abstractmethod
    def off_diagonal_norm(self) -> float:
        """Frobenius norm of the entries between different channels."""

    @abstractmethod
    def _dense(self) -> FloatArray: ...

    def norm(self) -> float:
        """Frobenius norm of all entries."""
        return float(np.linalg.norm(self.left_factor()))

    def dense(self, *, limit: int = MEMORY_LIMIT) -> FloatArray:
        """Return the dense array, unless it takes more than `limit` bytes."""
        check_memory(math.prod(self.shape), f"a dense covariance of shape {self.shape}", limit=limit)
        return self._dense()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return np.array(self.dense(), dtype=dtype)


@dataclass(frozen=True, eq=False)
class Dense(Covariance):
    """A covariance stored as a dense array.

    Attributes
    ----------
    values : (left steps, left channels, right steps, right channels)

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> covariance = lc.tasks.Dense(np.eye(6).reshape(3, 2, 3, 2))
    >>> covariance.contracted(np.ones((3, 3)))
    array([[3., 0.],
           [0., 3.]])
    """

    values: FloatArray

    @property
    def shape(self) -> Shape:
        t, n, s, m = self.values.shape
        return t, n, s, m

    def contracted(self, kernel: FloatArray) -> FloatArray:
        return np.tensordot(self.values, kernel, axes=([0, 2], [0, 1]))

    def rotated(self, left: FloatArray, right: FloatArray) -> Dense:
        half = np.tensordot(self.values, right, axes=([3], [0]))
        return Dense(np.ascontiguousarray(np.tensordot(half, left, axes=([1], [0])).transpose(0, 3, 1, 2)))

    def transposed(self) -> Dense:
        return Dense(self.values.transpose(2, 3, 0, 1))

    def diagonal(self) -> FloatArray:
        channels = min(self.shape[1], self.shape[3])
        return np.ascontiguousarray(np.einsum("tksk->kts", self.values[:, :channels, :, :channels]))

    def left_factor(self) -> FloatArray:
        t, n, s, m = self.shape
        return np.moveaxis(self.values, 1, 0).reshape(n, t * s * m)

    def off_diagonal_norm(self) -> float:
        mask = ~np.eye(self.shape[1], self.shape[3], dtype=bool)
        return float(np.sqrt((np.moveaxis(self.values, 2, 1)[:, :, mask] ** 2).sum()))

    def _dense(self) -> FloatArray:
        return self.values


@dataclass(frozen=True, eq=False)
class Kronecker(Covariance):
    """A sum of (time pattern) x (channel pattern) terms.

    Attributes
    ----------
    time : (terms, left steps, right steps)
    channel : (terms, left channels, right channels)

    Examples
    --------
    Inputs of 16 channels with a correlation time of ten steps, and the mean of the first channel as the target. The
    dense array would take 2 GB:

    >>> import learncast as lc
    >>> import numpy as np
    >>> steps = np.arange(1000)
    >>> memory = 0.9 ** abs(np.subtract.outer(steps, steps))
    >>> inputs = lc.tasks.Kronecker(memory[None], np.eye(16)[None])
    >>> average = lc.tasks.Kronecker(memory.mean(axis=1)[None, :, None], np.eye(16)[None, :, :1])
    >>> lc.Task(inputs, average, name="average")
    <Task 'average': 1,000 steps, 16 inputs, 1 output at the end; given statistics>
    """

    time: FloatArray
    channel: FloatArray

    @property
    def shape(self) -> Shape:
        return self.time.shape[1], self.channel.shape[1], self.time.shape[2], self.channel.shape[2]

    def contracted(self, kernel: FloatArray) -> FloatArray:
        weights = self.time.reshape(len(self.time), -1) @ kernel.ravel()
        return (weights @ self.channel.reshape(len(weights), -1)).reshape(self.channel.shape[1:])

    def rotated(self, left: FloatArray, right: FloatArray) -> Kronecker:
        return Kronecker(self.time, left.T @ self.channel @ right)

    def transposed(self) -> Kronecker:
        return Kronecker(np.swapaxes(self.time, 1, 2), np.swapaxes(self.channel, 1, 2))

    def diagonal(self) -> FloatArray:
        strengths = np.diagonal(self.channel, axis1=1, axis2=2)
        return np.tensordot(strengths.T, self.time, axes=1)

    def left_factor(self) -> FloatArray:
        terms, left, right = self.channel.shape
        # The triangular factor stands for orthonormal time patterns, so that nothing is squared.
        mixed = (self._time_root() @ self.channel.reshape(terms, -1)).reshape(-1, left, right)
        return np.moveaxis(mixed, 1, 0).reshape(left, -1)

    def off_diagonal_norm(self) -> float:
        if self.channel.shape[1:] == (1, 1):
            return 0.0
        # Zeroing the diagonal first keeps exact zeros exact; subtracting two norms would leave 1e-8.
        off = np.where(np.eye(self.channel.shape[1], self.channel.shape[2], dtype=bool), 0.0, self.channel)
        return float(np.linalg.norm(self._time_root() @ off.reshape(len(off), -1)))

    def _time_root(self) -> FloatArray:
        """R of a QR factorisation of the time patterns, (rank, terms), so that R^T R are their overlaps."""
        if len(self.time) == 1:
            return np.array([[np.linalg.norm(self.time)]])
        return np.asarray(np.linalg.qr(self.time.reshape(len(self.time), -1).T, mode="r"))

    def _dense(self) -> FloatArray:
        return np.einsum("rts,rnm->tnsm", self.time, self.channel, optimize=True)


@dataclass(frozen=True, eq=False)
class Sampled(Covariance):
    """The second moment of recorded trials, stored as the trials themselves.

    Smaller than the dense array if there are fewer trials than steps x channels.

    Attributes
    ----------
    left : (trials, left steps, left channels)
    right : (trials, right steps, right channels)

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> trials = np.array([[[1.0], [2.0]], [[3.0], [0.0]]])
    >>> lc.tasks.Sampled(trials, trials).dense()[:, 0, :, 0]
    array([[5., 1.],
           [1., 2.]])
    """

    left: FloatArray
    right: FloatArray

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.left)

    @property
    def shape(self) -> Shape:
        return self.left.shape[1], self.left.shape[2], self.right.shape[1], self.right.shape[2]

    def contracted(self, kernel: FloatArray) -> FloatArray:
        pooled = np.tensordot(self.right, kernel, axes=([1], [1]))  # (trials, right channels, left steps)
        return np.einsum("ptn,pmt->nm", self.left, pooled, optimize=True) / self.trials

    def rotated(self, left: FloatArray, right: FloatArray) -> Sampled:
        return Sampled(self.left @ left, self.right @ right)

    def transposed(self) -> Sampled:
        return Sampled(self.right, self.left)

    def diagonal(self) -> FloatArray:
        channels = min(self.shape[1], self.shape[3])
        return np.stack([self._block(k, k) for k in range(channels)])

    def left_factor(self) -> FloatArray:
        flat = self.right.reshape(self.trials, -1)
        q, r = np.linalg.qr(flat)  # the overlaps of `flat` are those of r
        half = np.tensordot(self.left, q, axes=([0], [0]))  # (steps, channels, rank)
        weighed = np.tensordot(half, r, axes=([2], [0])) / self.trials
        return np.moveaxis(weighed, 1, 0).reshape(self.shape[1], -1)

    def off_diagonal_norm(self) -> float:
        pairs = [(i, j) for i in range(self.shape[1]) for j in range(self.shape[3]) if i != j]
        return float(np.sqrt(sum((self._block(i, j) ** 2).sum() for i, j in pairs)))

    def _block(self, i: int, j: int) -> FloatArray:
        return self.left[:, :, i].T @ self.right[:, :, j] / self.trials

    def _dense(self) -> FloatArray:
        flat_left = self.left.reshape(self.trials, -1)
        flat_right = self.right.reshape(self.trials, -1)
        return (flat_left.T @ flat_right / self.trials).reshape(self.shape)
