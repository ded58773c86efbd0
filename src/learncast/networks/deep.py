"""A linear network of any number of layers, described by its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.validation import FloatArray, between, count, frozen, one_or_each, positive, real_array
from learncast.display import plural
from learncast.networks.linear_rnn import LinearRNN, mode_signs, task_modes
from learncast.networks.two_layer import (
    Layered,
    TwoLayer,
    module_weights,
    orthonormal,
    random_generator,
    random_layers,
)
from learncast.results import spec_hash
from learncast.tasks.task import Task


@dataclass(frozen=True, eq=False, repr=False)
class Deep(Layered):
    """A linear network of any number of layers.

    Its answer is y = W_L ... W_2 W_1 z. The input z is that of a trial of one step or, with a recurrence b,
    z = sum_t b^(T-t) x_t: the hidden units of the first layer then add up their inputs, h_t = b h_{t-1} + W_1 x_t, and
    the other layers read h_T.

    Parameters
    ----------
    weights : sequence of (width of the layer, width of the layer before)
        At least two, from the inputs to the outputs.
    recurrence : float, optional
        Fixed scalar recurrence b of the first layer; by default the network has no memory.

    Examples
    --------
    >>> import learncast as lc
    >>> network = lc.Deep.balanced(4, (3, 3), 2, scale=0.1, rng=0)
    >>> network
    <Deep: 4 inputs, 3 layers of 3, 3 and 2 units; imbalance 0>
    >>> task = lc.tasks.static([[2.0, 0.0], [0.0, 1.0]])
    >>> [lc.forecast(task, lc.Deep.aligned((2,) * (n - 1), task=task, initial=0.3), learning_rate=1e-3).steps.descent
    ...  for n in (2, 3, 4)]
    [3045.0, 3791.0, 6299.0]
    """

    weights: tuple[FloatArray, ...]
    recurrence: float | None = None

    def __post_init__(self) -> None:
        names = [f"weights[{k}]" for k in range(len(self.weights))]
        weights = tuple(frozen(real_array(n, w, ndim=2)) for n, w in zip(names, self.weights, strict=True))
        object.__setattr__(self, "weights", weights)
        shapes = [w.shape for w in weights]
        fits = all(one[0] == two[1] for one, two in pairwise(shapes))
        if len(shapes) < 2 or not fits or 0 in sum(shapes, ()):
            raise InvalidSpec(
                f"weights must be at least two matrices (width, width before) that fit, got {shapes}.", field="weights"
            )
        if self.recurrence is not None:
            object.__setattr__(self, "recurrence", between("recurrence", self.recurrence, -1e300, 1e300))

    @classmethod
    @hinted
    def random(
        cls,
        inputs: int,
        hidden_sizes: Sequence[int],
        outputs: int,
        *,
        scale: float | str,
        recurrence: float | None = None,
        rng: np.random.Generator | int = 0,
    ) -> Deep:
        """Draw independent weights.

        Parameters
        ----------
        inputs, outputs : int
        hidden_sizes : sequence of int
            Width of each hidden layer; there is one more layer of weights.
        scale : float or "torch"
            Standard deviation of Gaussian weights; "torch" draws them as `nn.Linear` does.
        recurrence : float, optional
            Fixed scalar recurrence of the first layer.
        rng : numpy Generator or int
            Source of the random numbers, or the seed of one.
        """
        return cls(random_layers(_widths(inputs, hidden_sizes, outputs), scale, rng), recurrence)

    @classmethod
    @hinted
    def balanced(
        cls,
        inputs: int,
        hidden_sizes: Sequence[int],
        outputs: int,
        *,
        scale: float,
        recurrence: float | None = None,
        rng: np.random.Generator | int = 0,
    ) -> Deep:
        """Draw random weights with equal singular values in all layers, W_{l+1}^T W_{l+1} = W_l W_l^T.

        Parameters
        ----------
        inputs, outputs : int
        hidden_sizes : sequence of int
            Width of each hidden layer.
        scale : float
            Singular values are those of a Gaussian matrix with this standard deviation.
        recurrence : float, optional
            Fixed scalar recurrence of the first layer.
        rng : numpy Generator or int
            Source of the random numbers, or the seed of one.
        """
        widths = _widths(inputs, hidden_sizes, outputs)
        size, rng, rank = positive("scale", scale), random_generator(rng), min(widths)
        values = np.linalg.svd(size * rng.standard_normal((widths[1], rank)), compute_uv=False)
        hidden = [orthonormal(width, rng) for width in widths[1:-1]]
        bases = [orthonormal(widths[0], rng), *hidden, orthonormal(widths[-1], rng)]
        layers = ((two[:, :rank] * values) @ one[:, :rank].T for one, two in pairwise(bases))
        return cls(tuple(layers), recurrence)

    @classmethod
    @hinted
    def aligned(
        cls,
        hidden_sizes: Sequence[int],
        *,
        task: Task | None = None,
        inputs: int = 1,
        outputs: int = 1,
        initial: ArrayLike = 0.1,
        recurrence: float | None = None,
    ) -> Deep:
        """Make a balanced network whose weights lie on the modes of a task, mode k in unit k of every hidden layer.

        Parameters
        ----------
        hidden_sizes : sequence of int
            Width of each hidden layer; at least one unit per mode.
        task : Task, optional
            Its modes are used, each with the sign that the task gives it. Without a task, channel k of the input and
            of the output are mode k.
        inputs, outputs : int
            Number of channels, if no task is given.
        initial : float or one per mode
            Initial weight of each mode in every layer. The strength of the mode is this to the power of the layers.
        recurrence : float, optional
            Fixed scalar recurrence of the first layer.
        """
        b = np.array(0.0 if recurrence is None else recurrence)
        if task is None:
            modes = min(count("inputs", inputs), count("outputs", outputs))
            left, right, present = np.eye(inputs, modes), np.eye(outputs, modes), np.ones(modes)
        else:
            left, right, present = task_modes(task, b)
            right = right * mode_signs(task, left, right, np.full(len(present), float(b)))
        widths, modes = _widths(len(left), hidden_sizes, len(right)), len(present)
        if min(widths[1:-1]) < modes:
            raise InvalidSpec(f"hidden_sizes must be at least the {modes} modes.", field="hidden_sizes")
        w = present * one_or_each("initial", initial, modes, of="modes")
        bases = [left, *(np.eye(width, modes) for width in widths[1:-1]), right]
        return cls(tuple((two * w) @ one.T for one, two in pairwise(bases)), recurrence)

    @classmethod
    def from_module(cls, module: object) -> Deep:
        """Copy the weights of a torch module that consists of `nn.Linear` layers without bias."""
        return cls(tuple(module_weights(module)))

    @property
    def named_weights(self) -> dict[str, FloatArray]:
        return {f"layer{k}": w for k, w in enumerate(self.weights, 1)}

    def with_weights(self, weights: Mapping[str, FloatArray]) -> Deep:
        return Deep(tuple(weights[name] for name in self.named_weights), self.recurrence)

    @property
    def layers(self) -> int:
        """Number of layers of weights, L."""
        return len(self.weights)

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """Whether the network remembers earlier inputs of a trial."""
        return self.recurrence is not None

    @property
    def scalar_recurrence(self) -> float:
        return self.recurrence or 0.0

    def respond(self, inputs: ArrayLike, *, every_step: bool = False) -> FloatArray:
        """Run the network on trials.

        Parameters
        ----------
        inputs : (trials, steps, inputs)
            (trials, inputs) too, if the network has no memory.
        every_step : bool
            Whether to return the outputs of every step, (trials, steps, outputs), or of the last, (trials, outputs).
        """
        x = real_array("inputs", inputs, ndim=3 if self.remembers else (2, 3))
        x = x[:, None] if x.ndim == 2 else x
        if x.shape[2] != self.inputs or x.shape[1] == 0 or not (self.remembers or x.shape[1] == 1):
            raise InvalidSpec(f"inputs must be (trials, steps, {self.inputs}), got shape {x.shape}.", field="inputs")
        states = [x[:, 0]]
        for t in range(1, x.shape[1]):
            states.append(self.scalar_recurrence * states[-1] + x[:, t])
        return (np.stack(states, axis=1) if every_step else states[-1]) @ self.function.T

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights and the recurrence."""
        return spec_hash("deep", *self.weights, self.recurrence)

    def __repr__(self) -> str:
        *first, last = map(str, self.widths[1:])
        memory = "" if self.recurrence is None else f"recurrence {self.recurrence:.4g}, "
        return (
            f"<Deep: {plural(self.inputs, 'input')}, {self.layers} layers of {', '.join(first)} and {last} units; "
            f"{memory}imbalance {round(self.imbalance_share, 10):.3g}>"
        )


#: Linear networks.
Linear = LinearRNN | TwoLayer | Deep


def _widths(inputs: int, hidden_sizes: Sequence[int], outputs: int) -> list[int]:
    """Validate the widths of all layers."""
    try:
        hidden = [count("hidden_sizes", n) for n in hidden_sizes]
    except TypeError as error:
        raise InvalidSpec(f"hidden_sizes must be a list, got {hidden_sizes!r:.40}.", field="hidden_sizes") from error
    if not hidden:
        raise InvalidSpec("hidden_sizes must name at least one hidden layer, got none.", field="hidden_sizes")
    return [count("inputs", inputs), *hidden, count("outputs", outputs)]
