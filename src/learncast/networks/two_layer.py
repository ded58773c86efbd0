"""A two-layer linear network: frozen weights, no training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, between, count, frozen, positive, real_array
from learncast.display import Displayable, HtmlRepr, Plot, facts, plural
from learncast.results import spec_hash


@dataclass(frozen=True, eq=False, repr=False)
class TwoLayer(Displayable):
    """The network y = W2 W1 x.

    Parameters
    ----------
    first : (hidden, inputs)
    second : (outputs, hidden)

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.TwoLayer([[0.1, 0.0], [0.0, 0.1]], [[0.1, 0.0]])
    <TwoLayer: 2 inputs, 2 hidden, 1 output; largest singular values 0.1 and 0.1>
    >>> lc.TwoLayer.balanced(4, 3, 2, scale=0.1, rng=np.random.default_rng(0)).imbalance_share < 1e-12
    True
    """

    first: FloatArray
    second: FloatArray

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            object.__setattr__(self, name, frozen(real_array(name, getattr(self, name), ndim=2)))
        if self.first.shape[0] != self.second.shape[1] or 0 in self.first.shape + self.second.shape:
            raise InvalidSpec(
                f"weights must be (hidden, inputs) and (outputs, hidden), got {self.first.shape} and "
                f"{self.second.shape}.",
                field="weights",
            )

    @classmethod
    def random(cls, inputs: int, hidden: int, outputs: int, *, scale: float, rng: np.random.Generator) -> TwoLayer:
        """Independent Gaussian weights of standard deviation `scale`: small is rich, large is lazy.

        Such weights are not balanced; for small ones the imbalance is small too.
        """
        n, h, m = _sizes(inputs, hidden, outputs)
        positive("scale", scale)
        return cls(scale * rng.standard_normal((h, n)), scale * rng.standard_normal((m, h)))

    @classmethod
    def balanced(
        cls,
        inputs: int,
        hidden: int,
        outputs: int,
        *,
        scale: float,
        imbalance: float = 0.0,
        rng: np.random.Generator,
    ) -> TwoLayer:
        """Random weights with W2^T W2 - W1 W1^T = imbalance times the identity.

        Parameters
        ----------
        inputs, hidden, outputs : int
        scale : float
            Singular values are those of a Gaussian matrix with this standard deviation.
        imbalance : float
            lambda. Zero suits any sizes; a positive one needs hidden <= outputs, a negative one hidden <= inputs.
        rng : numpy Generator
        """
        n, h, m = _sizes(inputs, hidden, outputs)
        positive("scale", scale)
        lam = between("imbalance", imbalance, -1e300, 1e300)
        if (lam > 0 and h > m) or (lam < 0 and h > n):
            side, size = ("outputs", m) if lam > 0 else ("inputs", n)
            raise InvalidSpec(
                f"an imbalance of this sign needs hidden <= {side}, got imbalance {lam:g} with {h} hidden units "
                f"and {size} {side}. Use fewer hidden units, the other sign, or imbalance 0."
            )
        rank = min(n, h, m)
        small = np.zeros(h)
        small[:rank] = np.linalg.svd(scale * rng.standard_normal((h, rank)), compute_uv=False)
        large = np.sqrt(small**2 + abs(lam))
        hidden_basis = _orthonormal(h, rng)
        one, two = (small, large) if lam >= 0 else (large, small)
        return cls(
            hidden_basis @ (np.eye(h, n) * one[:, None]) @ _orthonormal(n, rng).T,
            _orthonormal(m, rng) @ (np.eye(h, m) * two[:, None]).T @ hidden_basis.T,
        )

    @classmethod
    def from_module(cls, module: Any) -> TwoLayer:
        """Take the weights of a torch module that is two `nn.Linear` layers without bias in sequence."""
        layers = [m for m in module.modules() if type(m).__name__ == "Linear"] if hasattr(module, "modules") else []
        others = [
            type(m).__name__
            for m in (module.modules() if layers else [])
            if not list(m.children()) and type(m).__name__ not in ("Linear", "Identity")
        ]
        biased = [layer for layer in layers if layer.bias is not None]
        if len(layers) != 2 or biased or others:
            got = f"layers {others}" if others else "a layer with bias" if biased else f"{len(layers)} linear layers"
            raise UnsupportedModel(
                required="the module must be two nn.Linear layers without bias, and nothing between them",
                got=got if layers else type(module).__name__,
                why="the exact theory is about W2 W1 x",
                remedy="use nn.Sequential(nn.Linear(..., bias=False), nn.Linear(..., bias=False))",
            )
        return cls(layers[0].weight, layers[1].weight)

    @property
    def maps(self) -> tuple[FloatArray, FloatArray]:
        """The map into the hidden units and the map out of them."""
        return self.first, self.second

    def with_maps(self, first: FloatArray, second: FloatArray) -> TwoLayer:
        """A network of these maps."""
        return TwoLayer(first, second)

    @property
    def inputs(self) -> int:
        """Inputs."""
        return int(self.first.shape[1])

    @property
    def hidden_size(self) -> int:
        """Hidden units."""
        return int(self.first.shape[0])

    @property
    def outputs(self) -> int:
        """Outputs."""
        return int(self.second.shape[0])

    @property
    def function(self) -> FloatArray:
        """The input-output map W2 W1, (outputs, inputs).

        Implements: braun2022 Eq. (1), as a matrix
        """
        return self.second @ self.first

    @property
    def imbalance_share(self) -> float:
        """|W2^T W2 - W1 W1^T| / |W2^T W2 + W1 W1^T|: 0 if the layers are balanced, at most 1."""
        one, two = self.first @ self.first.T, self.second.T @ self.second
        return float(np.linalg.norm(two - one) / np.linalg.norm(two + one))

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights."""
        return spec_hash(self.first, self.second)

    def _html_repr(self) -> HtmlRepr:
        rows = [(name, " × ".join(map(str, getattr(self, name).shape))) for name in ("first", "second")]
        return HtmlRepr.of(self, facts([*rows, ("imbalance", f"{self.imbalance_share:.3g}")]))

    def _plot(self) -> Plot:
        import xarray as xr

        return Plot.of(
            "matrix", xr.DataArray(self.function, dims=("output", "input")), title="Network function $W_2 W_1$"
        )

    def __repr__(self) -> str:
        ends = plural(self.inputs, "input"), plural(self.outputs, "output")
        return (
            f"<TwoLayer: {ends[0]}, {self.hidden_size} hidden, {ends[1]}; "
            f"largest singular values {np.linalg.norm(self.first, 2):.4g} and {np.linalg.norm(self.second, 2):.4g}>"
        )


def _sizes(inputs: int, hidden: int, outputs: int) -> tuple[int, int, int]:
    why = "a network has at least one of each"
    return count("inputs", inputs), count("hidden", hidden), count("outputs", outputs)


def _orthonormal(size: int, rng: np.random.Generator) -> FloatArray:
    """Orthonormal columns, uniformly distributed (the signs of QR fixed)."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(q * np.sign(np.diag(r)))
