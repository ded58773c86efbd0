"""A network whose hidden units respond through a nonlinearity: frozen weights, no training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, one_of, real_array
from learncast.display import Displayable, HtmlRepr, Plot
from learncast.networks.linear_rnn import LinearRNN, mismatched
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

    Raises
    ------
    UnsupportedModel
        For weights of another kind of network.

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
                f"the weights must be those of a LinearRNN or a TwoLayer, got {type(self.network).__name__}. Wrap "
                "learncast.LinearRNN(...) or learncast.TwoLayer(...)."
            )
        one_of("activation", self.activation, ACTIVATIONS)

    @property
    def inputs(self) -> int:
        """Input channels."""
        return self.network.inputs

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.network.outputs

    @property
    def hidden_size(self) -> int:
        """Hidden units."""
        return self.network.hidden_size

    def activate(self, values: FloatArray) -> FloatArray:
        """The nonlinearity itself."""
        return np.maximum(values, 0.0) if self.activation == "relu" else np.tanh(values)

    def respond(self, inputs: Any, *, every_step: bool = False) -> FloatArray:
        """Run on trials: (trials, steps, inputs), or (trials, inputs) of two layers, to (trials[, steps], outputs)."""
        if isinstance(self.network, TwoLayer):
            x = real_array("inputs", inputs, ndim=(2, 3))
            if x.shape[-1] != self.inputs or (x.ndim == 3 and x.shape[1] != 1):
                raise mismatched(f"(trials, {self.inputs} inputs), or one step of it", x)
            hidden = self.activate(x.reshape(len(x), -1) @ self.network.first.T)
            answer = hidden @ self.network.second.T
            return answer[:, None] if every_step else answer
        return self.network.answers(inputs, every_step, self.activate)

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
