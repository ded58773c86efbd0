"""A linear recurrent network: frozen weights, no training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.comparison import ABSENT, mode_strengths
from learncast.tasks.covariance import MEMORY_LIMIT
from learncast.tasks.geometry import common_frame
from learncast.tasks.task import Task
from learncast.trajectory import spec_hash
from learncast.validation import FloatArray, count, frozen, real_array


@dataclass(frozen=True, eq=False, repr=False)
class LinearRNN:
    """The network h_t = W_h h_{t-1} + W_x x_t, y = W_y h_T, from h_0 = 0.

    Parameters
    ----------
    input_weights : (hidden, inputs)
    recurrent_weights : (hidden, hidden)
    output_weights : (outputs, hidden)
    """

    input_weights: FloatArray
    recurrent_weights: FloatArray
    output_weights: FloatArray

    def __post_init__(self) -> None:
        for name in ("input_weights", "recurrent_weights", "output_weights"):
            object.__setattr__(self, name, frozen(real_array(name, getattr(self, name), ndim=2)))
        hidden = len(self.recurrent_weights)
        if (
            self.recurrent_weights.shape != (hidden, hidden)
            or self.input_weights.shape[0] != hidden
            or self.output_weights.shape[1] != hidden
            or 0 in self.input_weights.shape + self.output_weights.shape
        ):
            raise InvalidSpec(
                required="weights must be (hidden, inputs), (hidden, hidden) and (outputs, hidden)",
                got=f"{self.input_weights.shape}, {self.recurrent_weights.shape}, {self.output_weights.shape}",
                why="the three layers must meet in the same hidden units",
                remedy="transpose or trim the weights",
            )

    @classmethod
    def aligned(
        cls,
        *,
        recurrence: Any = 0.96,
        initial: Any = 0.01,
        output_initial: Any = None,
        hidden_size: int = 128,
        task: Task | None = None,
        inputs: int = 1,
        outputs: int = 1,
    ) -> LinearRNN:
        """Make a network that starts on a task's modes, mode k in hidden unit k.

        Parameters
        ----------
        recurrence : float, or one per mode, or one per hidden unit
            Eigenvalues b of the recurrent weights, which are diagonal; a single number fills the diagonal.
        initial : float or one per mode
            Initial input weight a of each mode, and output weight c unless `output_initial` is given.
        output_initial : float or one per mode, optional
            Initial output weight c, for an unbalanced start.
        hidden_size : int
            Hidden units; at least one per mode.
        task : Task, optional
            Whose modes to start on. Modes the task does not have start at zero, where they stay.
            Without a task, channel k of the input and of the output are mode k.
        inputs, outputs : int
            Channels, when no task is given.
        """
        hidden = count("hidden_size", hidden_size, why="a network has at least one hidden unit")
        if task is None:
            sizes = (
                count("inputs", inputs, why="a network has at least one input"),
                count("outputs", outputs, why="a network has at least one output"),
            )
            modes = min(sizes)
            left, right, present = np.eye(sizes[0])[:, :modes], np.eye(sizes[1])[:, :modes], np.ones(modes)
        else:
            frame = common_frame([task])
            modes, left, right = frame.modes, frame.mode_inputs, frame.mode_outputs
            strengths, _ = mode_strengths(task, frame)
            present = (strengths > ABSENT * strengths.max(initial=0.0)).astype(float)
        if 8 * hidden**2 > MEMORY_LIMIT:
            raise InvalidSpec(
                required=f"recurrent weights must fit in {MEMORY_LIMIT / 2**30:.3g} GiB",
                got=f"{hidden} hidden units, which take {8 * hidden**2 / 2**30:.3g} GiB",
                why="they would exhaust memory",
                remedy="use fewer hidden units; more than one per mode change nothing here",
            )
        if hidden < modes:
            raise InvalidSpec(
                required=f"hidden_size must be at least the number of modes, {modes}",
                got=f"{hidden}",
                why="each mode needs a hidden direction of its own to start aligned",
                remedy="use more hidden units or fewer channels",
            )
        a = present * _per_mode("initial", initial, modes)
        c = a if output_initial is None else present * _per_mode("output_initial", output_initial, modes)
        return cls(
            np.concatenate([a[:, None] * left.T, np.zeros((hidden - modes, len(left)))]),
            np.diag(_eigenvalues(recurrence, modes, hidden)),
            np.concatenate([right * c, np.zeros((len(right), hidden - modes))], axis=1),
        )

    @property
    def inputs(self) -> int:
        """Input channels."""
        return self.input_weights.shape[1]

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.output_weights.shape[0]

    @property
    def hidden_size(self) -> int:
        """Hidden units."""
        return len(self.recurrent_weights)

    def respond(self, inputs: Any, *, every_step: bool = False) -> FloatArray:
        """Run the network on trials: (trials, steps, inputs) to (trials[, steps], outputs)."""
        x = real_array("inputs", inputs, ndim=3)
        if x.shape[2] != self.inputs or x.shape[1] == 0:
            raise InvalidSpec(
                required=f"inputs must be (trials, steps, {self.inputs} inputs), with at least one step",
                got=f"shape {x.shape}",
                why="the last axis is the network's input channels",
                remedy="check the axis order",
            )
        hidden = np.zeros((len(x), self.hidden_size))
        states = []
        for t in range(x.shape[1]):
            hidden = hidden @ self.recurrent_weights.T + x[:, t] @ self.input_weights.T
            if every_step:
                states.append(hidden)
        final = np.stack(states, axis=1) if every_step else hidden
        return final @ self.output_weights.T

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights."""
        return spec_hash(self.input_weights, self.recurrent_weights, self.output_weights)

    def __repr__(self) -> str:
        radius = float(np.abs(np.linalg.eigvals(self.recurrent_weights)).max())
        return (
            f"<LinearRNN: {self.inputs} inputs, {self.hidden_size} hidden, {self.outputs} outputs; "
            f"spectral radius {radius:.4g}>"
        )


def _per_mode(name: str, value: Any, modes: int) -> FloatArray:
    array = real_array(name, value, ndim=(0, 1))
    if array.ndim and len(array) != modes:
        raise InvalidSpec(
            required=f"{name} must be a number or one for each of the {modes} modes",
            got=f"{len(array)} numbers",
            why="each mode has its own start",
            remedy="give a single number, or match the modes",
        )
    return np.broadcast_to(array, (modes,))


def _eigenvalues(recurrence: Any, modes: int, hidden: int) -> FloatArray:
    array = real_array("recurrence", recurrence, ndim=(0, 1))
    if array.ndim == 0:
        return np.full(hidden, float(array))
    if len(array) == hidden:
        return array
    if len(array) == modes:
        return np.concatenate([array, np.zeros(hidden - modes)])  # idle units: no weights reach them
    raise InvalidSpec(
        required=f"recurrence must be a number, one per mode ({modes}) or one per hidden unit ({hidden})",
        got=f"{len(array)} numbers",
        why="they are the eigenvalues of the recurrent weights",
        remedy="match one of these lengths",
    )
