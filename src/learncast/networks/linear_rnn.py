"""A linear recurrent network: frozen weights, no training, and how nearly a start is aligned with modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, count, frozen, one_of, one_or_each, positive, real_array
from learncast.display import Displayable, HtmlRepr, Plot, facts, plural
from learncast.networks.two_layer import TwoLayer
from learncast.results import spec_hash
from learncast.tasks.covariance import check_room
from learncast.tasks.geometry import ABSENT, Frame, common_frame, mode_strengths, pooled_statistics
from learncast.tasks.task import Task


@dataclass(frozen=True, eq=False, repr=False)
class LinearRNN(Displayable):
    """The network h_t = W_h h_{t-1} + W_x x_t, y = W_y h_T, from h_0 = 0.

    Parameters
    ----------
    input_weights : (hidden, inputs)
    recurrent_weights : (hidden, hidden)
    output_weights : (outputs, hidden)

    Examples
    --------
    >>> import learncast as lc
    >>> lc.LinearRNN([[0.1]], [[0.9]], [[0.1]])
    <LinearRNN: 1 input, 1 hidden, 1 output; spectral radius 0.9>
    >>> lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
    <LinearRNN: 1 input, 128 hidden, 1 output; spectral radius 0.96>
    >>> lc.LinearRNN.random(hidden_size=32, inputs=3, outputs=2, seed=0)
    <LinearRNN: 3 inputs, 32 hidden, 2 outputs; spectral radius 0.96>
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
                "weights must be (hidden, inputs), (hidden, hidden) and (outputs, hidden), got "
                f"{self.input_weights.shape}, {self.recurrent_weights.shape}, {self.output_weights.shape}.",
                field="weights",
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
            Whose modes to start on, each with the sign the task has for it through this recurrence. Modes the task does
            not have start at zero, where they stay.
            Without a task, channel k of the input and of the output are mode k.
        inputs, outputs : int
            Channels, when no task is given.
        """
        hidden = count("hidden_size", hidden_size)
        if task is None:
            sizes = (
                count("inputs", inputs),
                count("outputs", outputs),
            )
            modes = min(sizes)
            left, right, present = np.eye(sizes[0])[:, :modes], np.eye(sizes[1])[:, :modes], np.ones(modes)
        else:
            same = np.unique(real_array("recurrence", recurrence, ndim=(0, 1)))
            frame = common_frame([task], recurrence=float(same[0]) if len(same) == 1 else None)
            modes, left, right = frame.modes, frame.mode_inputs, frame.mode_outputs
            strengths, _ = mode_strengths(task, frame)
            present = (strengths > ABSENT * strengths.max(initial=0.0)).astype(float)
        spare = "use fewer hidden units; more than one per mode change nothing here"
        check_room(hidden**2, "recurrent weights", f"{hidden} hidden units", spare)
        if hidden < modes:
            raise InvalidSpec(
                f"hidden_size must be at least the number of modes, {modes}, got {hidden}. Use more hidden units "
                "or fewer channels.",
                field="hidden_size",
            )
        b = _eigenvalues(recurrence, modes, hidden)
        if task is not None:
            right = right * _signs(task, left, right, b[:modes])
        a = present * one_or_each("initial", initial, modes, of="modes")
        c = a if output_initial is None else present * one_or_each("output_initial", output_initial, modes, of="modes")
        return cls(
            np.concatenate([a[:, None] * left.T, np.zeros((hidden - modes, len(left)))]),
            np.diag(b),
            np.concatenate([right * c, np.zeros((len(right), hidden - modes))], axis=1),
        )

    @classmethod
    def random(
        cls,
        hidden_size: int,
        inputs: int,
        outputs: int,
        *,
        recurrence: Any = 0.96,
        scale: float | str | None = None,
        seed: int | None = None,
    ) -> LinearRNN:
        """Make a network that starts at random, as most training does.

        Parameters
        ----------
        hidden_size, inputs, outputs : int
        recurrence : float, one per hidden unit, or "random"
            Eigenvalues of diagonal recurrent weights; "random" draws a full matrix, uniform within
            1 / sqrt(hidden_size) as torch does.
        scale : float or "torch", optional
            Standard deviation of Gaussian input and output weights, 0.01 by default; "torch" draws them as `nn.RNN`
            and `nn.Linear` do, uniform within 1 / sqrt(hidden_size).
        seed : int, optional
            0 by default.
        """
        n, h, m = (
            count(name, value)
            for name, value in (("inputs", inputs), ("hidden_size", hidden_size), ("outputs", outputs))
        )
        rng = np.random.default_rng(count("seed", seed or 0, least=0))
        bound = 1 / np.sqrt(h)
        if scale == "torch":
            first, last = rng.uniform(-bound, bound, (h, n)), rng.uniform(-bound, bound, (m, h))
        else:
            size = 0.01 if scale is None else positive("scale", scale)
            first, last = size * rng.standard_normal((h, n)), size * rng.standard_normal((m, h))
        if isinstance(recurrence, str):
            one_of("recurrence", recurrence, ("random",))
            return cls(first, rng.uniform(-bound, bound, (h, h)), last)
        return cls(first, np.diag(_eigenvalues(recurrence, h, h)), last)

    @property
    def maps(self) -> tuple[FloatArray, FloatArray]:
        """The map into the hidden units and the map out of them."""
        return self.input_weights, self.output_weights

    def with_maps(self, first: FloatArray, second: FloatArray) -> LinearRNN:
        """The network with these maps and the same recurrence."""
        return LinearRNN(first, self.recurrent_weights, second)

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

    @property
    def scalar_recurrence(self) -> float | None:
        """The number b where the recurrent weights are b times the identity; None elsewhere."""
        b = float(self.recurrent_weights[0, 0])
        return b if np.array_equal(self.recurrent_weights, b * np.eye(self.hidden_size)) else None

    def respond(self, inputs: Any, *, every_step: bool = False) -> FloatArray:
        """Run the network on trials: (trials, steps, inputs) to (trials[, steps], outputs)."""
        return self.answers(inputs, every_step)

    def answers(
        self, inputs: Any, every_step: bool, activate: Callable[[FloatArray], FloatArray] = np.asarray
    ) -> FloatArray:
        """The same with a nonlinearity on the hidden units."""
        x = real_array("inputs", inputs, ndim=3)
        if x.shape[2] != self.inputs or x.shape[1] == 0:
            raise mismatched(f"(trials, steps, {self.inputs} inputs), with at least one step", x)
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
        fades = "never" if radius >= 1 else "at once" if radius == 0 else f"{-1 / np.log(radius):.4g} steps"
        layers = ("input_weights", "recurrent_weights", "output_weights")
        rows = [(name.replace("_", " "), " × ".join(map(str, getattr(self, name).shape))) for name in layers]
        rows += [("spectral radius", f"{radius:.4g}"), ("what it remembers fades by e in", fades)]
        return HtmlRepr.of(self, facts(rows))

    def _plot(self) -> Plot:
        return Plot.of("spectrum", np.linalg.eigvals(self.recurrent_weights), title="Eigenvalues of the recurrence")

    @property
    def spectral_radius(self) -> float:
        """Size of the recurrence's largest eigenvalue."""
        return float(np.abs(np.linalg.eigvals(self.recurrent_weights)).max())

    def __repr__(self) -> str:
        ends = plural(self.inputs, "input"), plural(self.outputs, "output")
        return (
            f"<LinearRNN: {ends[0]}, {self.hidden_size} hidden, {ends[1]}; spectral radius {self.spectral_radius:.4g}>"
        )


def _signs(task: Task, left: FloatArray, right: FloatArray, recurrence: FloatArray) -> FloatArray:
    """Sign of each mode's cross strength as the recurrence weights it, which that of the plain sum may oppose.

    A start of the other sign lies on a saddle's stable manifold and would never learn.
    """
    pooled = {b: pooled_statistics(task, b)[0] for b in set(recurrence.tolist())}
    cross = [left[:, k] @ pooled[b] @ right[:, k] for k, b in enumerate(recurrence.tolist())]
    return np.where(np.array(cross) < 0, -1.0, 1.0)


def _eigenvalues(recurrence: Any, modes: int, hidden: int) -> FloatArray:
    array = real_array("recurrence", recurrence, ndim=(0, 1))
    if array.ndim == 0:
        return np.full(hidden, float(array))
    if len(array) == hidden:
        return array
    if len(array) == modes:
        return np.concatenate([array, np.zeros(hidden - modes)])  # idle units: no weights reach them
    raise InvalidSpec(
        f"recurrence must be a number, one per mode ({modes}) or one per hidden unit ({hidden}), got "
        f"{len(array)} numbers.",
        field="recurrence",
    )


def mismatched(required: str, x: FloatArray) -> InvalidSpec:
    """The error of inputs that a network cannot read."""
    return InvalidSpec(f"inputs must be {required}, got shape {x.shape}.", field="inputs")


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
        whole = _largest_factor(network.recurrent_weights) * np.sqrt(missed.shape[1] * 2)
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


def _largest_factor(weights: FloatArray) -> float:
    """Spectral norm, read off where every unit keeps to itself: thousands of units take minutes to factor."""
    kept = np.diagonal(weights)
    if np.count_nonzero(weights) == np.count_nonzero(kept):
        return float(np.abs(kept).max())
    return float(np.linalg.norm(weights, 2))


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
        spare = np.linalg.qr(np.concatenate([used, np.eye(len(used), number)], axis=1))[0][:, used.shape[1] :]
        found[:, : spare.shape[1]] = spare
    return found


def check_fit(task: Task, network: Any, why: str = "only linear networks are told by statistics alone") -> None:
    """Refuse other kinds of networks, other channels, and tasks of several steps for a network without memory."""
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(
            f"the network must be a LinearRNN or a TwoLayer, got {type(network).__name__}. Describe it as "
            "learncast.LinearRNN(...) or learncast.TwoLayer(first, second)."
        )
    if (task.inputs, task.outputs) != (network.inputs, network.outputs):
        raise InvalidSpec(
            f"task {task.name!r} must have the network's {plural(network.inputs, 'input')} and "
            f"{plural(network.outputs, 'output')}, got {task.inputs} and {task.outputs}. Match the network's "
            "inputs and outputs to the task's."
        )
    if isinstance(network, TwoLayer) and task.steps != 1:
        raise InvalidSpec(
            f"a two-layer network needs a static task (one step), got {task.steps} steps. Use tasks.static or "
            "tasks.from_pairs, or a LinearRNN."
        )
