"""A network whose hidden units have a nonlinear activation function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, one_of
from learncast.display import Displayable, HtmlRepr, Plot
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import spec_hash

ACTIVATIONS = ("relu", "tanh")


@dataclass(frozen=True, eq=False, repr=False)
class Activated(Displayable):
    """A linear network's weights with a nonlinearity f on its hidden units.

    Recurrent: h_t = f(W_h h_{t-1} + W_x x_t), y = W_y h_T. Two layers: y = W2 f(W1 x).

    Parameters
    ----------
    network : LinearRNN or TwoLayer
        The weights.
    activation : {"relu", "tanh"}

    Examples
    --------
    >>> import learncast as lc
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, hidden_size=4)
    >>> lc.Activated(network, "relu")
    <Activated by relu: <LinearRNN: 1 input, 4 hidden, 1 output; spectral radius 0.96>>
    """

    network: LinearRNN | TwoLayer
    activation: str

    def __post_init__(self) -> None:
        if not isinstance(self.network, LinearRNN | TwoLayer):
            raise UnsupportedModel(
                f"network must be a LinearRNN or a TwoLayer, got {type(self.network).__name__}.", field="network"
            )
        one_of("activation", self.activation, ACTIVATIONS)

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.network.inputs

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.network.outputs

    @property
    def hidden_size(self) -> int:
        """Number of hidden units."""
        return self.network.hidden_size

    def activate(self, values: FloatArray) -> FloatArray:
        """Apply the nonlinearity."""
        return np.maximum(values, 0.0) if self.activation == "relu" else np.tanh(values)

    def respond(self, inputs: ArrayLike, *, every_step: bool = False) -> FloatArray:
        """Run the network on trials; see `respond` of the wrapped network for the shapes."""
        return self.network.respond(inputs, every_step=every_step, activate=self.activate)

    @cached_property
    def hash(self) -> str:
        """Short hash of the weights and the nonlinearity."""
        return spec_hash(self.network.hash, self.activation)

    def _html_repr(self) -> HtmlRepr:
        return HtmlRepr.of(self, *self.network._html_repr().tables)

    def _plot(self) -> Plot:
        return self.network._plot()

    def __repr__(self) -> str:
        return f"<Activated by {self.activation}: {self.network!r}>"
