"""How a recurrent network's weights lie in a frame of modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.geometry import Frame
from learncast.tasks.task import Task
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
        R, the hidden direction of each mode; 0 for a mode without weights that no unit is left for.
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
        # Against the recurrence as a whole: on directions that it maps to 0 what is left of it is round-off.
        whole = float(np.linalg.norm(network.recurrent_weights, 2)) * np.sqrt(missed.shape[1] * 2)
        lacking = ~directions.any(axis=0)
        b = np.where(lacking, np.trace(network.recurrent_weights) / network.hidden_size, b)
        return cls(
            input_weight=overlap,
            output_weight=c,
            recurrence=b,
            directions=directions,
            start_residual=_start_residual(reaching, leaving, overlap, c),
            recurrence_residual=float(np.linalg.norm(missed) / (whole or 1.0)),
        )


def _start_residual(reaching: FloatArray, leaving: FloatArray, a: FloatArray, c: FloatArray) -> float:
    """Distance of the Gram matrix of all input and output vectors from that of an aligned start.

    The Gram matrix holds everything the dynamics can see: vectors of different modes must be orthogonal, those
    of one mode parallel, and inputs or outputs beyond the modes silent.
    """
    n = reaching.shape[1]
    everything = np.concatenate([reaching, leaving.T], axis=1)
    gram = everything.T @ everything
    ideal = np.zeros_like(gram)
    k = np.arange(len(a))
    ideal[k, k], ideal[n + k, n + k] = a**2, c**2
    ideal[k, n + k] = ideal[n + k, k] = a * c
    return float(np.linalg.norm(gram - ideal) / (np.linalg.norm(gram) or 1.0))


def _spare_directions(used: FloatArray, number: int) -> FloatArray:
    """Orthonormal directions outside those used, for modes that have no weights yet; 0 where there are no more."""
    found = np.zeros((len(used), number))
    if number:
        full = np.linalg.qr(np.concatenate([used, np.eye(len(used))], axis=1))[0]
        spare = full[:, used.shape[1] : used.shape[1] + number]
        found[:, : spare.shape[1]] = spare
    return found


def check_fit(task: Task, network: Any, why: str = "only linear networks are told by statistics alone") -> None:
    """Refuse other kinds of networks, other channels, and tasks of several steps for a network without memory."""
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(
            required="the network must be a LinearRNN or a TwoLayer",
            got=type(network).__name__,
            why=why,
            remedy="describe it as learncast.LinearRNN(...) or learncast.TwoLayer(first, second)",
        )
    if (task.inputs, task.outputs) != (network.inputs, network.outputs):
        raise InvalidSpec(
            required=f"task {task.name!r} must have the network's {network.inputs} inputs and "
            f"{network.outputs} outputs",
            got=f"{task.inputs} and {task.outputs}",
            why="the network could not be trained on it",
            remedy="match the network's inputs and outputs to the task's",
        )
    if isinstance(network, TwoLayer) and task.steps != 1:
        raise InvalidSpec(
            required="a two-layer network needs a static task (one step)",
            got=f"{task.steps} steps",
            why="it has no memory",
            remedy="use tasks.static or tasks.from_pairs, or a LinearRNN",
        )
