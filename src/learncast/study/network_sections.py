"""Tables of a study file that describe a network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from learncast._core.errors import suggestion
from learncast.study.study_file import Section

PerChannel = float | list[float]
Activation = Literal["linear", "relu", "tanh"]


def section_of(sections: dict[str, type[Section]], word: object, problem: str) -> type[Section]:
    """Return the section that a word of the table selects."""
    if not isinstance(word, str) or word not in sections:
        raise ValueError(f"{problem}, got {word}. {suggestion(str(word), tuple(sections))}".strip())
    return sections[word]


class RecurrentSection(Section):
    """A linear RNN."""

    kind: Literal["linear-rnn"] = "linear-rnn"
    """A linear RNN: h <- W h + A x, output C h."""
    hidden_size: int = Field(default=128, ge=1)
    """Number of hidden units."""
    recurrence: PerChannel | Literal["random"] = 0.96
    """Eigenvalues of the recurrent weights: one number, one for each input channel, or "random" (a random matrix)."""
    initial: PerChannel | Literal["random"] = 0.01
    """Weights before training: the strength of an aligned start (one number or one for each mode), or "random"."""
    output_initial: PerChannel | None = None
    """Strength of the output weights of an aligned start, if it differs from that of the input weights."""
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] | None = None
    """Standard deviation of random weights, or "torch" for torch's own initialisation."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of random weights."""
    activation: Activation = "linear"
    """Activation function; relu and tanh are forecast through measured responses."""
    weights: str | None = None
    """A .npz or .safetensors file with the weights before training, relative to the study file."""

    @model_validator(mode="after")
    def _random_keys(self) -> RecurrentSection:
        if self.initial == "random":
            if self.output_initial is not None:
                raise ValueError('output_initial needs an aligned start, not initial = "random"')
        elif self.recurrence == "random":
            raise ValueError('recurrence = "random" needs initial = "random"')
        elif self.scale is not None or self.seed is not None:
            raise ValueError('scale and seed need initial = "random"')
        return self


class TwoLayerSection(Section):
    """A two-layer linear network with balanced or random weights."""

    kind: Literal["two-layer"]
    """A two-layer linear network: output = second x first x input."""
    hidden_size: int = Field(default=16, ge=1)
    """Number of hidden units."""
    activation: Activation = "linear"
    """Activation function of the hidden units."""
    start: Literal["balanced", "random"] = "balanced"
    """balanced: W2^T W2 = W1 W1^T; random: independent weights."""
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] = 0.01
    """Standard deviation of the weights, or "torch" for torch's own initialisation of a random start."""
    imbalance: float = 0.0
    """Strength of the second layer beyond the first: lambda in W2^T W2 - W1 W1^T = lambda I."""
    seed: int = Field(default=0, ge=0)
    """Seed of the weights."""
    weights: str | None = None
    """A .npz or .safetensors file with the weights before training, relative to the study file."""

    @model_validator(mode="after")
    def _torch_is_random(self) -> TwoLayerSection:
        if self.scale == "torch" and self.start != "random":
            raise ValueError('scale = "torch" needs start = "random"')
        return self


class DeepSection(Section):
    """A linear network of any number of layers."""

    kind: Literal["deep"]
    """A linear network of several layers: output = W_L x ... x W_1 x input."""
    layers: int = Field(default=3, ge=2, le=64)
    """Number of layers of weights; there is one hidden layer fewer."""
    hidden_size: Annotated[int, Field(ge=1)] | list[Annotated[int, Field(ge=1)]] = 16
    """Units of every hidden layer: one number, or one for each hidden layer."""
    recurrence: float | None = None
    """Fixed scalar recurrence of the first layer, for trials of several steps; none by default."""
    start: Literal["aligned", "balanced", "random"] = "balanced"
    """aligned: on the modes of the task; balanced: equal singular values in all layers; random: independent weights."""
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] = 0.1
    """Weight of each mode and layer of an aligned start, else standard deviation; "torch" for a random start."""
    seed: int = Field(default=0, ge=0)
    """Seed of the weights."""
    activation: Literal["linear"] = "linear"
    """Activation function; linear only."""
    weights: str | None = None
    """A .npz or .safetensors file with the weights layer1, layer2, ... before training, relative to the study file."""

    @model_validator(mode="after")
    def _fits(self) -> DeepSection:
        if isinstance(self.hidden_size, list) and len(self.hidden_size) != self.layers - 1:
            raise ValueError(f"hidden_size needs {self.layers - 1} numbers for {self.layers} layers")
        if self.scale == "torch" and self.start != "random":
            raise ValueError('scale = "torch" needs start = "random"')
        return self

    @property
    def hidden_sizes(self) -> list[int]:
        """Units of each hidden layer."""
        return self.hidden_size if isinstance(self.hidden_size, list) else [self.hidden_size] * (self.layers - 1)


class DefaultNetworkSection(Section):
    """The network for data of this size: a linear RNN, or a two-layer network if trials have one step."""

    kind: Literal["default"]
    """A linear RNN with fixed recurrence, or a two-layer network if trials have one step."""
    hidden_size: int | None = Field(default=None, ge=1)
    """Number of hidden units; 64 by default, or as many as the smaller of inputs and outputs."""
    recurrence: float | None = None
    """Eigenvalue of the recurrent weights; 1 - 1/steps by default."""
    scale: Annotated[float, Field(gt=0)] | Literal["torch"] = "torch"
    """Standard deviation of random weights, or "torch" for torch's own initialisation."""
    seed: int = Field(default=0, ge=0)
    """Seed of the weights."""
    activation: Activation = "linear"
    """Activation function of the hidden units."""


NetworkSection = RecurrentSection | TwoLayerSection | DeepSection | DefaultNetworkSection
NETWORKS: dict[str, type[Section]] = {
    "linear-rnn": RecurrentSection,
    "two-layer": TwoLayerSection,
    "deep": DeepSection,
    "default": DefaultNetworkSection,
}


def network_section(value: object) -> object:
    """Return the section of a network that a table describes."""
    if isinstance(value, Section):
        return value
    if not isinstance(value, dict):
        raise ValueError("a network must be a table with a kind and its keys")
    kind = value.get("kind", "linear-rnn")
    return section_of(NETWORKS, kind, f"kind must be one of {', '.join(NETWORKS)}").model_validate(value)
