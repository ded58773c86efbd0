"""A two-layer linear network, described by its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, UnsupportedModel, hinted
from learncast._core.validation import FloatArray, between, count, frozen, positive, real_array
from learncast.display import Displayable, HtmlRepr, Plot, facts, plural
from learncast.results import spec_hash

Activation = Callable[[FloatArray], FloatArray]


class LinearNetwork(Displayable, ABC):
    """A linear network with weights into its hidden units and weights out of them."""

    #: Whether the network remembers earlier inputs of a trial.
    remembers: bool = True

    @property
    @abstractmethod
    def named_weights(self) -> dict[str, FloatArray]:
        """All weights by their names, from the inputs to the outputs."""

    @property
    @abstractmethod
    def scalar_recurrence(self) -> float | None:
        """The recurrence b if it is a scalar, 0 without memory; None if it is a matrix."""

    def with_weights(self, weights: Mapping[str, FloatArray]) -> Self:
        """Return a network with other weights, given by their names."""
        return type(self)(*(weights[name] for name in self.named_weights))

    @property
    def layer_weights(self) -> tuple[FloatArray, ...]:
        """Weights of the layers from the inputs to the outputs, without those of the recurrence."""
        return tuple(w for name, w in self.named_weights.items() if name != "recurrent")

    def with_layers(self, *weights: FloatArray) -> Self:
        """Return a network with these weights from the inputs to the outputs, and the same recurrence."""
        names = (name for name in self.named_weights if name != "recurrent")
        return self.with_weights({**self.named_weights, **dict(zip(names, weights, strict=True))})

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of inputs, of units of each hidden layer, and of outputs."""
        weights = self.layer_weights
        return (weights[0].shape[1], *map(len, weights))

    @property
    def maps(self) -> tuple[FloatArray, FloatArray]:
        """Maps into the units of the narrowest hidden layer and out of them."""
        cut, weights = 1 + int(np.argmin(self.widths[1:-1])), self.layer_weights
        return product(weights[:cut]), product(weights[cut:])

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.widths[0]

    @property
    def hidden_size(self) -> int:
        """Number of hidden units, of the narrowest layer if there are several."""
        return min(self.widths[1:-1])

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.widths[-1]


class Layered(LinearNetwork):
    """A linear network of successive layers."""

    @property
    def function(self) -> FloatArray:
        """Input-output map, the product of all layers, (outputs, inputs).

        Implements: braun2022 Eq. (1), as a matrix
        """
        return product(self.layer_weights)

    @property
    def imbalance_share(self) -> float:
        """Largest |W_{l+1}^T W_{l+1} - W_l W_l^T| / |W_{l+1}^T W_{l+1} + W_l W_l^T|: 0 if the layers are balanced."""
        pairs = [(one @ one.T, two.T @ two) for one, two in pairwise(self.named_weights.values())]
        sizes = [(float(np.linalg.norm(two - one)), float(np.linalg.norm(two + one))) for one, two in pairs]
        return max(gap / (total or 1.0) for gap, total in sizes)

    def _html_repr(self) -> HtmlRepr:
        rows = [(name, " × ".join(map(str, w.shape))) for name, w in self.named_weights.items()]
        return HtmlRepr.of(self, facts([*rows, ("imbalance", f"{self.imbalance_share:.3g}")]))

    def _plot(self) -> Plot:
        import xarray as xr

        data = xr.DataArray(self.function, dims=("output", "input"))
        return Plot.of("matrix", data, title="Network function $W_L \\ldots W_1$")


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayer(Layered):
    """A linear network of two layers, y = W2 W1 x.

    Parameters
    ----------
    first : (hidden, inputs)
    second : (outputs, hidden)

    Examples
    --------
    >>> import learncast as lc
    >>> lc.TwoLayer([[0.1, 0.0], [0.0, 0.1]], [[0.1, 0.0]])
    <TwoLayer: 2 inputs, 2 hidden, 1 output; largest singular values 0.1 and 0.1>
    >>> lc.TwoLayer.balanced(4, 3, 2, scale=0.1, rng=0).imbalance_share < 1e-12
    True
    """

    remembers = False
    first: FloatArray
    second: FloatArray

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, frozen(real_array(name, getattr(self, name), ndim=2)))
        one, two = self.first.shape, self.second.shape
        if one[0] != two[1] or 0 in one + two:
            raise InvalidSpec(
                f"weights must be (hidden, inputs) and (outputs, hidden), got {one} and {two}.", field="weights"
            )

    @classmethod
    @hinted
    def random(
        cls, inputs: int, hidden_size: int, outputs: int, *, scale: float | str, rng: np.random.Generator | int = 0
    ) -> TwoLayer:
        """Draw independent weights.

        Such weights are not balanced. The imbalance is small if `scale` is small.

        Parameters
        ----------
        inputs, hidden_size, outputs : int
        scale : float or "torch"
            Standard deviation of Gaussian weights: small values give rich learning, large ones lazy learning. "torch"
            draws them as `nn.Linear` does, uniform within 1 / sqrt(inputs of the layer).
        rng : numpy Generator or int
            Source of the random numbers, or the seed of one.
        """
        return cls(*random_layers(network_sizes(inputs, hidden_size, outputs), scale, rng))

    @classmethod
    @hinted
    def balanced(
        cls,
        inputs: int,
        hidden_size: int,
        outputs: int,
        *,
        scale: float,
        imbalance: float = 0.0,
        rng: np.random.Generator | int = 0,
    ) -> TwoLayer:
        """Draw random weights with W2^T W2 - W1 W1^T = imbalance times the identity.

        Parameters
        ----------
        inputs, hidden_size, outputs : int
        scale : float
            Singular values are those of a Gaussian matrix with this standard deviation.
        imbalance : float
            lambda. Zero suits any sizes; a positive value needs hidden_size <= outputs, a negative one
            hidden_size <= inputs.
        rng : numpy Generator or int
            Source of the random numbers, or the seed of one.
        """
        n, h, m = network_sizes(inputs, hidden_size, outputs)
        size, rng = positive("scale", scale), random_generator(rng)
        lam = between("imbalance", imbalance, -1e300, 1e300)
        if (lam > 0 and h > m) or (lam < 0 and h > n):
            limit = f"outputs ({m})" if lam > 0 else f"inputs ({n})"
            raise InvalidSpec(f"imbalance {lam:g} needs hidden_size <= {limit}, got {h}.", field="imbalance")
        rank = min(n, h, m)
        small = np.zeros(h)
        small[:rank] = np.linalg.svd(size * rng.standard_normal((h, rank)), compute_uv=False)
        large = np.sqrt(small**2 + abs(lam))
        hidden_basis = orthonormal(h, rng)
        one, two = (small, large) if lam >= 0 else (large, small)
        return cls(
            hidden_basis @ (np.eye(h, n) * one[:, None]) @ orthonormal(n, rng).T,
            orthonormal(m, rng) @ (np.eye(h, m) * two[:, None]).T @ hidden_basis.T,
        )

    @classmethod
    def from_module(cls, module: object) -> TwoLayer:
        """Copy the weights of a torch module that consists of two `nn.Linear` layers without bias."""
        weights = module_weights(module)
        if len(weights) != 2:
            raise UnsupportedModel(f"module must have two layers, got {len(weights)}. Use Deep.", field="module")
        return cls(*weights)

    @property
    def named_weights(self) -> dict[str, FloatArray]:
        return {"first": self.first, "second": self.second}

    @property
    def scalar_recurrence(self) -> float:
        return 0.0

    def respond(self, inputs: ArrayLike, *, every_step: bool = False, activate: Activation = np.asarray) -> FloatArray:
        """Run the network on trials.

        Parameters
        ----------
        inputs : (trials, inputs) or (trials, 1, inputs)
        every_step : bool
            Whether to return (trials, 1, outputs) instead of (trials, outputs).
        activate : callable
            Nonlinearity of the hidden units; none by default.
        """
        x = real_array("inputs", inputs, ndim=(2, 3))
        if x.shape[-1] != self.inputs or (x.ndim == 3 and x.shape[1] != 1):
            raise InvalidSpec(f"inputs must be (trials, {self.inputs}), got shape {x.shape}.", field="inputs")
        answers = activate(x.reshape(len(x), -1) @ self.first.T) @ self.second.T
        return answers[:, None] if every_step else answers

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights."""
        return spec_hash(self.first, self.second)

    def __repr__(self) -> str:
        ends = plural(self.inputs, "input"), plural(self.outputs, "output")
        return (
            f"<TwoLayer: {ends[0]}, {self.hidden_size} hidden, {ends[1]}; "
            f"largest singular values {np.linalg.norm(self.first, 2):.4g} and {np.linalg.norm(self.second, 2):.4g}>"
        )


def product(weights: Sequence[FloatArray]) -> FloatArray:
    """Product W_L ... W_1 of layers, the first of which is next to the inputs; stacks of layers are allowed."""
    return reduce(lambda below, above: above @ below, weights)


def random_layers(widths: Sequence[int], scale: float | str, rng: np.random.Generator | int) -> tuple[FloatArray, ...]:
    """Draw independent weights of layers between these widths: Gaussian, or as `nn.Linear` does."""
    rng, shapes = random_generator(rng), [(m, n) for n, m in pairwise(widths)]
    if scale == "torch":
        return tuple(rng.uniform(-1 / np.sqrt(n), 1 / np.sqrt(n), (m, n)) for m, n in shapes)
    size = positive("scale", scale)
    return tuple(size * rng.standard_normal(shape) for shape in shapes)


def module_weights(module: object) -> list[FloatArray]:
    """Weights of a torch module that consists of at least two `nn.Linear` layers without bias."""
    parts = [m for m in module.modules() if not list(m.children())] if hasattr(module, "modules") else []
    parts = [m for m in parts if type(m).__name__ != "Identity"]
    if len(parts) < 2 or any(type(m).__name__ != "Linear" or m.bias is not None for m in parts):
        given = ", ".join(type(m).__name__ for m in parts) or type(module).__name__
        raise UnsupportedModel(f"module must be nn.Linear layers with bias=False only, got {given}.", field="module")
    return [real_array("module", m.weight, ndim=2) for m in parts]


def network_sizes(inputs: int, hidden_size: int, outputs: int) -> tuple[int, int, int]:
    """Validate the sizes of a network."""
    return count("inputs", inputs), count("hidden_size", hidden_size), count("outputs", outputs)


def random_generator(rng: np.random.Generator | int) -> np.random.Generator:
    """Return `rng` if it is a generator, else a new one with that seed."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(count("rng", rng, least=0))


def orthonormal(size: int, rng: np.random.Generator) -> FloatArray:
    """Draw a uniformly distributed orthogonal matrix; the signs of the QR factorisation are fixed."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(q * np.sign(np.diag(r)))
