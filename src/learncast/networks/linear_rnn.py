"""A linear recurrent network, described by its weights, and its alignment with the modes of a task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel, hinted
from learncast._core.validation import FloatArray, frozen, one_of, one_or_each, positive, real_array
from learncast.display import HtmlRepr, Plot, facts, plural
from learncast.networks.two_layer import Activation, LinearNetwork, network_sizes, random_generator
from learncast.results import spec_hash
from learncast.tasks.covariance import check_memory
from learncast.tasks.geometry import ABSENT, Frame, common_frame, mode_strengths, pooled_statistics
from learncast.tasks.task import Task

#: Modes with weights below this share of the largest mode's have round-off only.
IDLE = 1e-13

_WEIGHTS = ("input_weights", "recurrent_weights", "output_weights")


@dataclass(frozen=True, eq=False, repr=False)
class LinearRNN(LinearNetwork):
    """A linear recurrent network: h(t) = W_h h(t-1) + W_x x(t) and y = W_y h(T), from h(0) = 0.

    Parameters
    ----------
    input_weights : (hidden, inputs)
        W_x, from the inputs to the hidden units.
    recurrent_weights : (hidden, hidden)
        W_h, from the hidden units one step ago.
    output_weights : (outputs, hidden)
        W_y, from the hidden units to the outputs.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.LinearRNN([[0.1]], [[0.9]], [[0.1]])
    <LinearRNN: 1 input, 1 hidden, 1 output; spectral radius 0.9>
    >>> lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    <LinearRNN: 1 input, 128 hidden, 1 output; spectral radius 0.96>
    >>> lc.LinearRNN.random(inputs=3, hidden_size=32, outputs=2, rng=0)
    <LinearRNN: 3 inputs, 32 hidden, 2 outputs; spectral radius 0.96>
    """

    input_weights: FloatArray
    recurrent_weights: FloatArray
    output_weights: FloatArray

    def __post_init__(self) -> None:
        for name in _WEIGHTS:
            object.__setattr__(self, name, frozen(real_array(name, getattr(self, name), ndim=2)))
        shapes = [getattr(self, name).shape for name in _WEIGHTS]
        (hidden, inputs), outputs = shapes[0], shapes[2][0]
        if shapes != [(hidden, inputs), (hidden, hidden), (outputs, hidden)] or 0 in (inputs, hidden, outputs):
            raise InvalidSpec(
                f"weights must be (hidden, inputs), (hidden, hidden) and (outputs, hidden), got {shapes}.",
                field="weights",
            )

    @classmethod
    @hinted
    def aligned(
        cls,
        *,
        task: Task | None = None,
        inputs: int = 1,
        hidden_size: int = 128,
        outputs: int = 1,
        recurrence: ArrayLike = 0.96,
        initial: ArrayLike = 0.01,
        output_initial: ArrayLike | None = None,
    ) -> LinearRNN:
        """Make a network whose weights lie on the modes of a task, mode k in hidden unit k.

        Parameters
        ----------
        task : Task, optional
            Its modes are used, each with the sign that the task gives it through this recurrence. Modes that the task
            does not have get weights of zero and stay there. Without a task, channel k of the input and of the output
            are mode k.
        inputs, outputs : int
            Number of channels, if no task is given.
        hidden_size : int
            Number of hidden units; at least one per mode.
        recurrence : float, or one per mode, or one per hidden unit
            Eigenvalues b of the recurrent weights, which are diagonal; a single number fills the diagonal.
        initial : float or one per mode
            Initial input weight a of each mode, and output weight c unless `output_initial` is given.
        output_initial : float or one per mode, optional
            Initial output weight c, for an unbalanced start.
        """
        n, hidden, m = network_sizes(inputs, hidden_size, outputs)
        check_memory(hidden**2, f"recurrent weights of {hidden} hidden units")
        if task is None:
            left, right, present = np.eye(n, min(n, m)), np.eye(m, min(n, m)), np.ones(min(n, m))
        else:
            left, right, present = task_modes(task, real_array("recurrence", recurrence, ndim=(0, 1)))
        modes = len(present)
        if hidden < modes:
            raise InvalidSpec(f"hidden_size must be at least the {modes} modes, got {hidden}.", field="hidden_size")
        b = _eigenvalues(recurrence, modes, hidden)
        if task is not None:
            right = right * mode_signs(task, left, right, b[:modes])
        a = present * one_or_each("initial", initial, modes, of="modes")
        c = a if output_initial is None else present * one_or_each("output_initial", output_initial, modes, of="modes")
        return cls(
            np.concatenate([a[:, None] * left.T, np.zeros((hidden - modes, len(left)))]),
            np.diag(b),
            np.concatenate([right * c, np.zeros((len(right), hidden - modes))], axis=1),
        )

    @classmethod
    @hinted
    def random(
        cls,
        inputs: int,
        hidden_size: int,
        outputs: int,
        *,
        scale: float | str = 0.01,
        recurrence: ArrayLike = 0.96,
        rng: np.random.Generator | int = 0,
    ) -> LinearRNN:
        """Draw random weights, as most training starts with.

        Parameters
        ----------
        inputs, hidden_size, outputs : int
        scale : float or "torch"
            Standard deviation of Gaussian input and output weights; "torch" draws them as `nn.RNN` and `nn.Linear` do,
            uniform within 1 / sqrt(hidden_size).
        recurrence : float, one per hidden unit, or "random"
            Eigenvalues of diagonal recurrent weights; "random" draws a full matrix, uniform within
            1 / sqrt(hidden_size) as torch does.
        rng : numpy Generator or int
            Source of the random numbers, or the seed of one.
        """
        n, h, m = network_sizes(inputs, hidden_size, outputs)
        rng, bound = random_generator(rng), 1 / np.sqrt(h)
        if scale == "torch":
            first, last = rng.uniform(-bound, bound, (h, n)), rng.uniform(-bound, bound, (m, h))
        else:
            size = positive("scale", scale)
            first, last = size * rng.standard_normal((h, n)), size * rng.standard_normal((m, h))
        if isinstance(recurrence, str):
            one_of("recurrence", recurrence, ("random",))
            return cls(first, rng.uniform(-bound, bound, (h, h)), last)
        return cls(first, np.diag(_eigenvalues(recurrence, h, h)), last)

    @property
    def named_weights(self) -> dict[str, FloatArray]:
        return {"input": self.input_weights, "recurrent": self.recurrent_weights, "output": self.output_weights}

    @property
    def scalar_recurrence(self) -> float | None:
        """The number b if the recurrent weights are b times the identity, else None."""
        b = float(self.recurrent_weights[0, 0])
        return b if np.array_equal(self.recurrent_weights, b * np.eye(self.hidden_size)) else None

    def respond(self, inputs: ArrayLike, *, every_step: bool = False, activate: Activation = np.asarray) -> FloatArray:
        """Run the network on trials.

        Parameters
        ----------
        inputs : (trials, steps, inputs)
        every_step : bool
            Whether to return the outputs of every step, (trials, steps, outputs), or of the last, (trials, outputs).
        activate : callable
            Nonlinearity of the hidden units; none by default.
        """
        x = real_array("inputs", inputs, ndim=3)
        if x.shape[2] != self.inputs or x.shape[1] == 0:
            raise InvalidSpec(f"inputs must be (trials, steps, {self.inputs}), got shape {x.shape}.", field="inputs")
        hidden, states = np.zeros((len(x), self.hidden_size)), []
        for t in range(x.shape[1]):
            hidden = activate(hidden @ self.recurrent_weights.T + x[:, t] @ self.input_weights.T)
            if every_step:
                states.append(hidden)
        return (np.stack(states, axis=1) if every_step else hidden) @ self.output_weights.T

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights."""
        return spec_hash(self.input_weights, self.recurrent_weights, self.output_weights)

    def _html_repr(self) -> HtmlRepr:
        radius = self.spectral_radius
        memory = "infinite" if radius >= 1 else f"{-1 / np.log(radius) if radius else 0:.4g} steps"
        rows = [(name.replace("_", " "), " × ".join(map(str, getattr(self, name).shape))) for name in _WEIGHTS]
        rows += [("spectral radius", f"{radius:.4g}"), ("memory time constant", memory)]
        return HtmlRepr.of(self, facts(rows))

    def _plot(self) -> Plot:
        return Plot.of("spectrum", np.linalg.eigvals(self.recurrent_weights), title="Eigenvalues of the recurrence")

    @property
    def spectral_radius(self) -> float:
        """Absolute value of the recurrence's largest eigenvalue."""
        return float(np.abs(np.linalg.eigvals(self.recurrent_weights)).max())

    def __repr__(self) -> str:
        ends = plural(self.inputs, "input"), plural(self.outputs, "output")
        return (
            f"<LinearRNN: {ends[0]}, {self.hidden_size} hidden, {ends[1]}; spectral radius {self.spectral_radius:.4g}>"
        )


def task_modes(task: Task, recurrence: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Input and output directions of a task's modes, and 1 for each mode that it has, 0 for the others."""
    values = np.unique(recurrence)
    frame = common_frame([task], recurrence=float(values[0]) if len(values) == 1 else None)
    strengths, _ = mode_strengths(task, frame)
    present = (strengths > ABSENT * strengths.max(initial=0.0)).astype(float)
    return frame.mode_inputs, frame.mode_outputs, present


def mode_signs(task: Task, left: FloatArray, right: FloatArray, recurrence: FloatArray) -> FloatArray:
    """Sign of each mode's cross strength as the recurrence weights it, which may differ from that of the plain sum.

    A start with the opposite sign lies on a saddle's stable manifold and never learns.
    """
    pooled = {b: pooled_statistics(task, b)[0] for b in set(recurrence.tolist())}
    cross = [left[:, k] @ pooled[b] @ right[:, k] for k, b in enumerate(recurrence.tolist())]
    return np.where(np.array(cross) < 0, -1.0, 1.0)


def _eigenvalues(recurrence: ArrayLike, modes: int, hidden: int) -> FloatArray:
    array = real_array("recurrence", recurrence, ndim=(0, 1))
    if array.ndim == 0:
        return np.full(hidden, float(array))
    if len(array) == hidden:
        return array
    if len(array) == modes:
        return np.concatenate([array, np.zeros(hidden - modes)])  # units without weights
    raise InvalidSpec(
        f"recurrence must be one number, {modes} (one per mode) or {hidden} (one per hidden unit), got {len(array)}.",
        field="recurrence",
    )


@dataclass(frozen=True, eq=False)
class Alignment:
    """A network in a frame: W_x = R diag(a) V^T, W_h R = R diag(b), W_y = U diag(c) R^T, up to residuals.

    Attributes
    ----------
    input_weight, output_weight, recurrence : (modes,)
        a, c and b of each mode.
    directions : (hidden, modes)
        R, the hidden direction of each mode; 0 for a mode without weights if all hidden directions are in use.
    start_residual, recurrence_residual : float
        Share of the weights (of the recurrence acting on them) that this form does not describe; 0 is exact.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=3)
    >>> alignment = lc.networks.Alignment.of(network, lc.tasks.Frame(np.eye(1), np.eye(1)))
    >>> alignment.input_weight, alignment.recurrence, alignment.start_residual
    (array([0.1]), array([0.9]), 0.0)
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
        # Squares of weights below 1e-150 would underflow.
        scale = max(np.abs(network.input_weights).max(), np.abs(network.output_weights).max()) or 1.0
        reaching = network.input_weights / scale @ frame.inputs  # (hidden, inputs)
        leaving = frame.outputs.T @ (network.output_weights / scale)  # (outputs, hidden)
        a_vectors, c_vectors = reaching[:, : frame.modes], leaving[: frame.modes].T
        a_length, c_length = np.linalg.norm(a_vectors, axis=0), np.linalg.norm(c_vectors, axis=0)
        # The longer side gives the direction, so that a start with a = 0 or c = 0 has one too.
        lead, length = np.where(a_length >= c_length, a_vectors, c_vectors), np.maximum(a_length, c_length)
        idle = length <= IDLE * length.max(initial=0.0)
        directions = lead / np.where(idle, 1.0, length)
        directions[:, idle] = _spare_directions(directions[:, ~idle], int(idle.sum()))
        a = np.einsum("hk,hk->k", np.where(idle, 0.0, a_vectors), directions)
        c = np.einsum("hk,hk->k", np.where(idle, 0.0, c_vectors), directions)
        b, residual = _acting_recurrence(network.recurrent_weights, directions, idle)
        return cls(a * scale, c * scale, b, directions, _start_residual(reaching, leaving, a, c), residual)


def _acting_recurrence(W: FloatArray, directions: FloatArray, idle: NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """Eigenvalue of the recurrence along each direction, and the share of its action that leaves the directions."""
    acted, back = W @ directions, W.T @ directions
    b = np.einsum("hk,hk->k", directions, acted)
    missed = np.concatenate([(acted - b * directions)[:, ~idle], (back - b * directions)[:, ~idle]])
    # Relative to the spectral norm: along directions that the recurrence maps to 0 only round-off is left.
    scale = _spectral_norm(W) * np.sqrt(missed.shape[1] * 2)
    b = np.where(directions.any(axis=0), b, np.trace(W) / len(W))
    return b, float(np.linalg.norm(missed) / (scale or 1.0))


def _spectral_norm(weights: FloatArray) -> float:
    """Spectral norm, read from the diagonal of a diagonal matrix: factoring thousands of units takes minutes."""
    diagonal = np.diagonal(weights)
    if np.count_nonzero(weights) == np.count_nonzero(diagonal):
        return float(np.abs(diagonal).max())
    return float(np.linalg.norm(weights, 2))


def _start_residual(reaching: FloatArray, leaving: FloatArray, a: FloatArray, c: FloatArray) -> float:
    """Distance of the Gram matrix of all input and output vectors from that of an aligned start.

    The dynamics depend on the weights through the Gram matrix only: vectors of different modes must be orthogonal,
    those of one mode parallel, and inputs or outputs beyond the modes must have no weights.
    """
    n = reaching.shape[1]
    vectors = np.concatenate([reaching, leaving.T], axis=1)
    gram = vectors.T @ vectors
    ideal = np.zeros_like(gram)
    k = np.arange(len(a))
    ideal[k, k], ideal[n + k, n + k] = a**2, c**2
    ideal[k, n + k] = ideal[n + k, k] = a * c
    return float(np.linalg.norm(gram - ideal) / (np.linalg.norm(gram) or 1.0))


def _spare_directions(used: FloatArray, number: int) -> FloatArray:
    """Orthonormal directions outside those used, for modes without weights; 0 if there are no more."""
    spare = np.zeros((len(used), number))
    if number:
        free = np.linalg.qr(np.concatenate([used, np.eye(len(used), number)], axis=1))[0][:, used.shape[1] :]
        spare[:, : free.shape[1]] = free
    return spare


def check_fit(task: object, network: object) -> None:
    """Require a task, a linear network with its channels, and one step of the task if the network has no memory."""
    if not isinstance(task, Task):
        made = "Make one from trials with learncast.tasks.from_data(inputs, targets)."
        raise InvalidSpec(f"task must be a Task, got {type(task).__name__}. {made}", field="task")
    if not isinstance(network, LinearNetwork):
        given = type(network).__name__
        raise UnsupportedModel(f"network must be a LinearRNN, a TwoLayer or a Deep, got {given}.", field="network")
    if (task.inputs, task.outputs) != (network.inputs, network.outputs):
        raise InvalidSpec(
            f"task {task.name!r} must have the network's {plural(network.inputs, 'input')} and "
            f"{plural(network.outputs, 'output')}, got {task.inputs} and {task.outputs}.",
            field="task",
        )
    if not network.remembers and task.steps != 1:
        raise InvalidSpec(
            f"a {type(network).__name__} network without recurrence needs a task of one step, got {task.steps} steps. "
            "Use a LinearRNN, or a Deep network with a recurrence.",
            field="task",
        )
