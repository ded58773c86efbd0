"""Gaussian trials with the statistics of a task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from learncast._core.validation import FloatArray
from learncast.tasks.covariance import Covariance, Kronecker, Sampled, check_steps

#: Share of a variance below which it counts as round-off of an exactly predictable quantity.
NEGLIGIBLE = 1e-12


def sampler(inputs: Covariance, cross: Covariance, target: Covariance | None) -> ConditionalSampler | MixingSampler:
    """Choose a sampler that uses the structure of the statistics."""
    if isinstance(inputs, Sampled) and isinstance(cross, Sampled):
        return MixingSampler(cross)
    if isinstance(inputs, Kronecker):
        basis = _independent_channels(inputs)
        if basis is not None:
            if not all(_is_white(time) for time in inputs.time):
                check_steps(inputs.shape[0], 5)  # matrices of an eigendecomposition and its inverse
            return ConditionalSampler.of(inputs, cross, target, basis)

    def flat(covariance: Covariance) -> Kronecker:
        """All steps and channels as the steps of a single channel."""
        size = math.prod(covariance.shape[:2])
        return Kronecker(covariance.dense().reshape(1, size, -1), np.ones((1, 1, 1)))

    return ConditionalSampler.of(flat(inputs), flat(cross), None if target is None else flat(target), np.ones((1, 1)))


@dataclass(frozen=True)
class ConditionalSampler:
    """Draw inputs that are independent across the channels of a basis, then targets given the inputs.

    The target is its regression on the input plus a remainder. This needs one (steps, steps) factor per channel, not
    the joint covariance of all steps and channels.

    Attributes
    ----------
    basis : (inputs, channels)
        x = basis @ independent channels.
    roots : one (steps, steps) array per channel
        channel = root @ white; a scalar if the channel is white.
    readers : (channels, steps, readouts * outputs)
        Regression of the target on the white numbers.
    remainder : (readouts * outputs, rank) or None
        Root of the covariance that the input does not explain.
    """

    basis: FloatArray
    roots: tuple[FloatArray, ...]
    readers: FloatArray
    remainder: FloatArray | None

    @classmethod
    def of(
        cls, inputs: Kronecker, cross: Covariance, target: Covariance | None, basis: FloatArray
    ) -> ConditionalSampler:
        """Factor the statistics, given a basis in which the channels of the inputs are independent."""
        channels = inputs.rotated(basis, basis).diagonal()
        rotated = cross.rotated(basis, np.eye(cross.shape[3])).dense().transpose(1, 0, 2, 3)
        roots = []
        readers = np.empty((*channels.shape[:2], math.prod(cross.shape[2:])))
        for k, time in enumerate(channels):
            # Cov(white, y) = root^-1 Cov(x, y): regression without inverting Cov(x).
            root, inverse = _root(time)
            covariance = rotated[k].reshape(len(time), -1)
            roots.append(root)
            readers[k] = inverse @ covariance if inverse.ndim else inverse * covariance
        return cls(basis, tuple(roots), readers, None if target is None else _remainder(readers, target))

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw inputs and targets; the caller gives them the task's shape."""
        white = rng.standard_normal((len(self.roots), trials, self.readers.shape[1]))
        sources = [one @ root.T if root.ndim else one * root for one, root in zip(white, self.roots, strict=True)]
        inputs = np.tensordot(np.stack(sources), self.basis, axes=([0], [1]))
        targets = np.einsum("kpt,ktm->pm", white, self.readers, optimize=True)
        if self.remainder is not None:
            targets += rng.standard_normal((trials, self.remainder.shape[1])) @ self.remainder.T
        return inputs, targets


@dataclass(frozen=True)
class MixingSampler:
    """Draw random mixtures of recorded trials, which have the recorded second moments."""

    recorded: Sampled

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw inputs and targets."""
        mixing = rng.standard_normal((trials, self.recorded.trials)) / np.sqrt(self.recorded.trials)
        return np.tensordot(mixing, self.recorded.left, axes=1), np.tensordot(mixing, self.recorded.right, axes=1)


def _root(time: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A root of one channel's covariance over time and its pseudo-inverse; scalars if the channel is white."""
    if _is_white(time):
        deviation = np.sqrt(np.asarray(time[0, 0]))
        return deviation, np.asarray(1.0 / deviation)
    values, vectors = np.linalg.eigh(time)
    root = np.sqrt(np.clip(values, 0.0, None))
    live = root > np.sqrt(NEGLIGIBLE) * root.max(initial=0.0)
    inverse = np.where(live, 1.0 / np.where(live, root, 1.0), 0.0)
    return np.ascontiguousarray(vectors * root), inverse[:, None] * vectors.T


def _is_white(time: FloatArray) -> bool:
    return bool(np.count_nonzero(time) == len(time) and (np.diagonal(time) == time[0, 0]).all())


def _independent_channels(inputs: Kronecker) -> FloatArray | None:
    """Orthonormal basis in which all channel patterns are diagonal, or None if there is none."""
    # Irrational weights without ties: the weighted sum separates channels that any term separates.
    weights = 1.0 + np.mod(np.arange(1, len(inputs.channel) + 1) * 0.6180339887498949, 1.0)
    _, basis = np.linalg.eigh(np.tensordot(weights, inputs.channel, axes=1))
    off = inputs.rotated(basis, basis).off_diagonal_norm()
    return basis if off <= np.sqrt(NEGLIGIBLE) * inputs.norm() else None


def _remainder(readers: FloatArray, target: Covariance) -> FloatArray | None:
    """Root of Cov(y | x), or None if the inputs determine the target."""
    readouts, outputs = target.shape[:2]
    power = np.trace(target.contracted(np.eye(readouts)))
    if power - float((readers**2).sum()) <= 100 * NEGLIGIBLE * power:
        return None
    m = readouts * outputs
    flat = readers.reshape(-1, m)
    values, vectors = np.linalg.eigh(target.dense().reshape(m, m) - flat.T @ flat)
    keep = values > NEGLIGIBLE * power
    return vectors[:, keep] * np.sqrt(values[keep])
