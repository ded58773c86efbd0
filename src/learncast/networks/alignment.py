"""How a recurrent network's weights lie in a frame of modes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks.geometry import Frame
from learncast.validation import FloatArray

#: Weights of a mode, relative to the largest mode's, that are round-off.
IDLE = 1e-13


@dataclass(frozen=True, eq=False)
class Alignment:
    """A network's start in a frame: W_x = R diag(a) V^T, W_h R = R diag(b), W_y = U diag(c) R^T, and how nearly.

    Attributes
    ----------
    input_weight, output_weight, recurrence : (modes,)
        a, c and b of each mode.
    directions : (hidden, modes)
        R, the hidden direction of each mode.
    start_residual, recurrence_residual : float
        Share of the start (of the recurrence acting on it) that the form above misses; 0 is exact.
    """

    input_weight: FloatArray
    output_weight: FloatArray
    recurrence: FloatArray
    directions: FloatArray
    start_residual: float
    recurrence_residual: float

    @classmethod
    def of(cls, network: LinearRNN, frame: Frame) -> Alignment:
        """Express the network in the frame."""
        reaching = network.input_weights @ frame.inputs  # (hidden, inputs)
        leaving = frame.outputs.T @ network.output_weights  # (outputs, hidden)
        m = frame.modes
        a_vectors, c_vectors = reaching[:, :m], leaving[:m].T
        a = np.linalg.norm(a_vectors, axis=0)
        c_length = np.linalg.norm(c_vectors, axis=0)
        # The direction comes from the longer side, so that a start with a = 0 or c = 0 has one too.
        lead = np.where(a >= c_length, a_vectors, c_vectors)
        length = np.maximum(a, c_length)
        idle = length <= IDLE * length.max(initial=0.0)  # no weights, or round-off of a change of frame
        directions = lead / np.where(idle, 1.0, length)
        a_vectors, c_vectors = np.where(idle, 0.0, a_vectors), np.where(idle, 0.0, c_vectors)
        directions[:, idle] = _spare_directions(directions[:, ~idle], int(idle.sum()))
        overlap = np.einsum("hk,hk->k", a_vectors, directions)
        c = np.einsum("hk,hk->k", c_vectors, directions)
        acted = network.recurrent_weights @ directions
        back = network.recurrent_weights.T @ directions
        b = np.einsum("hk,hk->k", directions, acted)
        missed = np.concatenate([(acted - b * directions)[:, ~idle], (back - b * directions)[:, ~idle]])
        whole = np.concatenate([acted[:, ~idle], back[:, ~idle]])
        return cls(
            input_weight=overlap,
            output_weight=c,
            recurrence=b,
            directions=directions,
            start_residual=_start_residual(reaching, leaving, overlap, c),
            recurrence_residual=float(np.linalg.norm(missed) / (np.linalg.norm(whole) or 1.0)),
        )


def _start_residual(reaching: FloatArray, leaving: FloatArray, a: FloatArray, c: FloatArray) -> float:
    """Distance of the Gram matrix of all input and output vectors from that of an aligned start.

    The Gram matrix holds everything the dynamics can see: vectors of different modes must be orthogonal, those
    of one mode parallel, and inputs or outputs beyond the modes silent.
    """
    n, m = reaching.shape[1], len(leaving)
    everything = np.concatenate([reaching, leaving.T], axis=1)
    gram = everything.T @ everything
    ideal = np.zeros_like(gram)
    k = np.arange(len(a))
    ideal[k, k], ideal[n + k, n + k] = a**2, c**2
    ideal[k, n + k] = ideal[n + k, k] = a * c
    assert ideal.shape == (n + m, n + m)
    return float(np.linalg.norm(gram - ideal) / (np.linalg.norm(gram) or 1.0))


def _spare_directions(used: FloatArray, number: int) -> FloatArray:
    """Orthonormal directions outside those used, for modes that have no weights yet."""
    if not number:
        return np.zeros((len(used), 0))
    full = np.linalg.qr(np.concatenate([used, np.eye(len(used))], axis=1))[0]
    return full[:, used.shape[1] : used.shape[1] + number]
