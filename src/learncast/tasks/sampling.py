"""Gaussian trials with prescribed second-order statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.tasks.covariance import Covariance, Kronecker, Sampled
from learncast.validation import FloatArray, count

#: Share of a variance below which it counts as round-off of an exactly predictable quantity.
NEGLIGIBLE = 1e-12

#: Steps and channels of one trial's inputs and targets.
Shapes = tuple[tuple[int, int], tuple[int, int]]


def sampler(inputs: Covariance, cross: Covariance, target: Covariance | None) -> ConditionalTrials | MixedTrials:
    """Choose the sampler that uses the statistics' own structure.

    It draws inputs (trials, steps, inputs) and targets (trials, readout steps, outputs).
    """
    shapes = inputs.shape[:2], cross.shape[2:]
    if isinstance(inputs, Sampled) and isinstance(cross, Sampled):
        return MixedTrials(inputs, cross)
    if isinstance(inputs, Kronecker):
        basis = _independent_channels(inputs)
        if basis is not None:
            return ConditionalTrials.of(inputs, cross, target, basis, shapes)
    n, m = inputs.shape[0] * inputs.shape[1], cross.shape[2] * cross.shape[3]
    one = np.ones((1, 1, 1))
    return ConditionalTrials.of(
        Kronecker(inputs.dense().reshape(1, n, n), one),
        Kronecker(cross.dense().reshape(1, n, m), one),
        None if target is None else Kronecker(target.dense().reshape(1, m, m), one),
        np.ones((1, 1)),
        shapes,
    )


@dataclass(frozen=True)
class ConditionalTrials:
    """Inputs that are independent across channels of some basis, then targets given inputs.

    Writing the target as its regression on the input plus a remainder never forms the joint covariance of
    all steps and channels, only one (steps, steps) factor per distinct channel.
    """

    basis: FloatArray  # (inputs, channels): x = basis @ independent channels
    roots: FloatArray  # (channels, steps, steps): x_channel = root @ white
    readers: FloatArray  # (channels, steps, readouts * outputs): target given the white numbers
    remainder: FloatArray | None  # (readouts * outputs, rank): what the input does not explain
    shapes: Shapes

    @classmethod
    def of(
        cls, inputs: Kronecker, cross: Covariance, target: Covariance | None, basis: FloatArray, shapes: Shapes
    ) -> ConditionalTrials:
        channels = inputs.rotated(basis, basis).diagonal()
        rotated = cross.rotated(basis, np.eye(cross.shape[3])).dense().transpose(1, 0, 2, 3)
        readouts, outputs = cross.shape[2:]
        roots = np.empty_like(channels)
        readers = np.empty((*channels.shape[:2], readouts * outputs))
        for k, time in enumerate(channels):
            values, vectors = np.linalg.eigh(time)
            root = np.sqrt(np.clip(values, 0.0, None))
            live = root > np.sqrt(NEGLIGIBLE) * root.max(initial=0.0)
            inverse = np.where(live, 1.0 / np.where(live, root, 1.0), 0.0)
            roots[k] = vectors * root
            # Cov(white, y) = root^-1 Cov(x, y): regression without ever inverting Cov(x).
            readers[k] = (inverse[:, None] * vectors.T) @ rotated[k].reshape(len(time), -1)
        remainder = None if target is None else _remainder(readers, target)
        return cls(basis, roots, readers, remainder, shapes)

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        trials = count("trials", trials, why="a data set has at least one trial")
        channels, steps, _ = self.roots.shape
        white = rng.standard_normal((channels, trials, steps))
        sources = np.matmul(white, self.roots.transpose(0, 2, 1))
        inputs = np.tensordot(sources, self.basis, axes=([0], [1]))
        targets = np.einsum("kpt,ktm->pm", white, self.readers, optimize=True)
        if self.remainder is not None:
            targets += rng.standard_normal((trials, self.remainder.shape[1])) @ self.remainder.T
        return inputs.reshape(trials, *self.shapes[0]), targets.reshape(trials, *self.shapes[1])


@dataclass(frozen=True)
class MixedTrials:
    """New Gaussian trials as random mixtures of recorded ones: they have the recorded second moments."""

    inputs: Sampled
    cross: Sampled

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        trials = count("trials", trials, why="a data set has at least one trial")
        mixing = rng.standard_normal((trials, self.inputs.trials)) / np.sqrt(self.inputs.trials)
        return np.tensordot(mixing, self.cross.left, axes=1), np.tensordot(mixing, self.cross.right, axes=1)


def _independent_channels(inputs: Kronecker) -> FloatArray | None:
    """Orthonormal basis in which all channel patterns are diagonal, or None when there is none."""
    # Fixed weights without accidental ties, so that a weighted sum separates what any term separates.
    weights = 1.0 + np.mod(np.arange(1, len(inputs.channel) + 1) * 0.6180339887498949, 1.0)
    _, basis = np.linalg.eigh(np.tensordot(weights, inputs.channel, axes=1))
    off = inputs.rotated(basis, basis).off_diagonal_norm()
    return basis if off <= np.sqrt(NEGLIGIBLE) * inputs.norm() else None


def _remainder(readers: FloatArray, target: Covariance) -> FloatArray | None:
    """Root of Cov(y | x); None when the inputs determine the target, without writing the covariance out."""
    readouts, outputs = target.shape[:2]
    power = np.trace(target.contracted(np.eye(readouts)))
    explained = float((readers**2).sum())
    if power - explained <= 100 * NEGLIGIBLE * power:
        return None
    m = readouts * outputs
    flat = readers.reshape(-1, m)
    values, vectors = np.linalg.eigh(target.dense().reshape(m, m) - flat.T @ flat)
    keep = values > NEGLIGIBLE * power
    return vectors[:, keep] * np.sqrt(values[keep])
