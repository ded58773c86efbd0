"""The state of the curriculum room: a target, a network, and which first tasks to weigh."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks.families import FAMILIES
from learncast.tasks.task import Task
from learncast.validation import FloatArray
from learncast.web.room import Control, State
from learncast.web.rooms.sliders import chooser, slider

#: Keywords of each family that the room has controls for, with their units; the first task changes one of them.
KEYWORDS: dict[str, dict[str, str]] = {
    "integration": {"target_strength": "target x input", "input_strength": "input^2"},
    "leaky_integration": {
        "timescale": "steps",
        "correlation": "1",
        "noise_strength": "input^2",
        "gain": "target/input",
    },
}

#: Where a keyword of any sign is varied; others run over multiples of the target's own value.
CORRELATIONS = (-0.95, 0.95)

#: Where the first task may stop.
STOPS = (0.01, 0.99)

#: First tasks whose responses are measured one by one, where none follows from another.
MEASURED_COLUMNS = 12


class CurriculumState(State):
    """What the controls of the curriculum room say."""

    family: Literal["integration", "leaky_integration"] = "integration"
    steps: int = Field(default=50, ge=1, le=100)
    target_strength: float = Field(default=1.0, ge=0.05, le=5.0)
    input_strength: float = Field(default=1.0, ge=0.05, le=5.0)
    timescale: float = Field(default=10.0, ge=1.0, le=100.0)
    correlation: float = Field(default=0.0, ge=-0.95, le=0.95)
    noise_strength: float = Field(default=1.0, ge=0.05, le=5.0)
    gain: float = Field(default=1.0, ge=0.05, le=5.0)
    vary: Literal["target_strength", "input_strength"] = "target_strength"
    vary_leaky: Literal["timescale", "correlation", "noise_strength", "gain"] = "timescale"
    least_ratio: float = Field(default=0.2, ge=0.05, le=0.9)
    most_ratio: float = Field(default=3.0, ge=1.1, le=10.0)
    activation: Literal["linear", "relu"] = "linear"
    recurrence: float = Field(default=0.96, ge=0.0, le=1.05)
    initial: float = Field(default=0.01, ge=1e-4, le=1.0)
    hidden_size: int = Field(default=128, ge=1, le=256)
    learning_rate: float = Field(default=1e-3, ge=1e-5, le=0.1)
    accuracy: float = Field(default=0.99, ge=0.5, le=0.999)
    grid: int = Field(default=120, ge=10, le=200)
    pin_value: float | None = Field(default=None, ge=-1000.0, le=1000.0)
    pin_accuracy: float | None = Field(default=None, ge=0.0, le=0.999)

    @property
    def varied(self) -> str:
        """Keyword of the family that the first task changes."""
        return self.vary if self.family == "integration" else self.vary_leaky

    @property
    def unit(self) -> str:
        """Unit of that keyword."""
        return KEYWORDS[self.family][self.varied]

    @property
    def own(self) -> float:
        """The target's own value of that keyword."""
        return float(getattr(self, self.varied))

    @property
    def span(self) -> tuple[float, float]:
        """First and last value of that keyword that are weighed."""
        if self.varied == "correlation":
            return CORRELATIONS
        return self.own * self.least_ratio, self.own * self.most_ratio

    @property
    def values(self) -> FloatArray:
        """Values of that keyword that are weighed."""
        return np.linspace(*self.span, self.grid)

    @property
    def stops(self) -> FloatArray:
        """Accuracies at which the first task stops."""
        return np.linspace(*STOPS, self.grid)

    @property
    def pin(self) -> tuple[float, float] | None:
        """Value and stop of the pinned curriculum; None where nothing in the picture is pinned."""
        if self.pin_value is None or self.pin_accuracy is None:
            return None
        low, high = self.span
        return (self.pin_value, self.pin_accuracy) if low <= self.pin_value <= high else None

    def parameters(self, value: float | None = None) -> dict[str, float | int]:
        """Keywords of the target, or of the first task with this value of the varied one."""
        own = {key: float(getattr(self, key)) for key in KEYWORDS[self.family]}
        return {"steps": self.steps, **own, **({} if value is None else {self.varied: value})}

    def task(self, value: float | None = None) -> Task:
        """The target, or the first task with this value."""
        return FAMILIES[self.family].build(**self.parameters(value), name=self.name(value))

    def name(self, value: float | None = None) -> str:
        """What to call them."""
        if value is None:
            return self.family.replace("_", " ")
        return f"{self.varied.replace('_', ' ')} {value:.4g}"

    def network(self, target: Task) -> LinearRNN | Activated:
        """The network before training."""
        weights = LinearRNN.aligned(
            recurrence=self.recurrence, initial=self.initial, hidden_size=self.hidden_size, task=target
        )
        return weights if self.activation == "linear" else Activated(weights, self.activation)


#: The pin, which is a value of what the first task changes.
_PIN = ("pin_value", "pin_accuracy")
_INTEGRATION: dict[str, tuple[str, ...]] = {"family": ("integration",)}
_LEAKY: dict[str, tuple[str, ...]] = {"family": ("leaky_integration",)}
_WORDS = {"target_strength": "target strength", "input_strength": "input strength", "noise_strength": "noise strength"}


def _sliders(group: str, *rows: tuple[str, str, str, float, str, dict[str, tuple[str, ...]] | None]) -> list[Control]:
    """Ranges of one group: key, label, unit, step, help, and for which families."""
    return [
        slider(CurriculumState, key, label, unit=unit, step=step, tip=tip, group=group, when=when)
        for key, label, unit, step, tip, when in rows
    ]


def _vary(key: str, family: str) -> Control:
    choices = tuple((word, _WORDS.get(word, word)) for word in KEYWORDS[family])
    note = "What the first task does differently; all else is as in the target."
    default = CurriculumState.model_fields[key].default
    return Control(
        key,
        "changes",
        "choice",
        default,
        help=note,
        choices=choices,
        group="First task",
        when={"family": (family,)},
        clears=_PIN,
    )


CONTROLS = (
    chooser(
        CurriculumState,
        "family",
        "family",
        {"integration": "integration", "leaky_integration": "leaky integration"},
        help="What the target asks for: the sum of the inputs, or a sum that forgets.",
        group="Target",
        clears=_PIN,
    ),
    *_sliders(
        "Target",
        ("steps", "trial length", "steps", 1, "", None),
        ("target_strength", "target strength", "target x input", 0.05, "Covariance with each input.", _INTEGRATION),
        ("input_strength", "input strength", "input^2", 0.05, "Variance of the input.", _INTEGRATION),
        ("timescale", "timescale", "steps", 0.5, "How long an input counts.", _LEAKY),
        ("correlation", "input correlation", "1", 0.01, "Of each input with the one before.", _LEAKY),
        ("noise_strength", "noise strength", "input^2", 0.05, "Variance of what is new in each input.", _LEAKY),
        ("gain", "gain", "target/input", 0.05, "Weight of the newest input.", _LEAKY),
    ),
    _vary("vary", "integration"),
    _vary("vary_leaky", "leaky_integration"),
    *_sliders(
        "First task",
        ("least_ratio", "from", "x target's", 0.05, "The least value, as a multiple of the target's.", None),
        ("most_ratio", "to", "x target's", 0.1, "The greatest value, as a multiple of the target's.", None),
    ),
    chooser(
        CurriculumState,
        "activation",
        "units",
        {"linear": "linear", "relu": "ReLU"},
        help="Linear units are solved exactly; ReLU units through responses measured on trials.",
        group="Network",
    ),
    *_sliders("Network", ("recurrence", "recurrence", "1", 0.01, "Share of its activity that a unit keeps.", None)),
    slider(CurriculumState, "initial", "initial weights", step=0.05, scale="log", group="Network"),
    *_sliders("Network", ("hidden_size", "hidden units", "units", 1, "One learns; the others stay silent.", None)),
    slider(CurriculumState, "learning_rate", "learning rate", step=0.05, scale="log", group="Training"),
    *_sliders("Training", ("accuracy", "accuracy to reach", "1", 0.001, "Of the target, at the end.", None)),
    *_sliders("Picture", ("grid", "grid", "points a side", 10, "", None)),
    Control("pin_value", "pinned value", "hidden", None),
    Control("pin_accuracy", "pinned stop", "hidden", None),
)
