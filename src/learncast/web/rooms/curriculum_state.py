"""The state of the curriculum room: a target, a network, and which first tasks to weigh."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from learncast.dynamics.modes import Modes, modes_of
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.responses.modes import mode_of_response
from learncast.responses.response import Response, response
from learncast.study.study_file import to_toml
from learncast.tasks.families import FAMILIES
from learncast.tasks.task import Task
from learncast.validation import FloatArray
from learncast.web.room import State, control

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

#: The pin, which is a value of what the first task changes.
_PIN = ("pin_value", "pin_accuracy")

_target = partial(control, group="Target")
_integration = partial(_target, span=(0.05, 5.0), step=0.05, when={"family": ("integration",)})
_leaky = partial(_target, when={"family": ("leaky_integration",)})
_first = partial(control, group="First task")
_network = partial(control, group="Network")
_training = partial(control, group="Training")


def _vary(family: str) -> Any:
    """The choice of what the first task changes; at first the family's first keyword."""
    choices = {key: key.replace("_", " ") for key in KEYWORDS[family]}
    note = "What the first task does differently; all else is as in the target."
    when = {"family": (family,)}
    return _first(next(iter(choices)), "changes", choices=choices, help=note, when=when, clears=_PIN)


class CurriculumState(State):
    """What the controls of the curriculum room say."""

    family: Literal["integration", "leaky_integration"] = _target(
        "integration",
        "family",
        choices={"integration": "integration", "leaky_integration": "leaky integration"},
        help="What the target asks for: the sum of the inputs, or a sum that forgets.",
        clears=_PIN,
    )
    steps: int = _target(50, "trial length", (1, 100), 1, unit="steps")
    target_strength: float = _integration(
        1.0, "target strength", unit="target x input", help="Covariance with each input."
    )
    input_strength: float = _integration(1.0, "input strength", unit="input^2", help="Variance of the input.")
    timescale: float = _leaky(10.0, "timescale", (1.0, 100.0), 0.5, unit="steps", help="How long an input counts.")
    correlation: float = _leaky(
        0.0, "input correlation", (-0.95, 0.95), 0.01, help="Of each input with the one before."
    )
    noise_strength: float = _leaky(
        1.0, "noise strength", (0.05, 5.0), 0.05, unit="input^2", help="Variance of what is new in each input."
    )
    gain: float = _leaky(1.0, "gain", (0.05, 5.0), 0.05, unit="target/input", help="Weight of the newest input.")
    vary: Literal["target_strength", "input_strength"] = _vary("integration")
    vary_leaky: Literal["timescale", "correlation", "noise_strength", "gain"] = _vary("leaky_integration")
    least_ratio: float = _first(
        0.2, "from", (0.05, 0.9), 0.05, unit="x target's", help="The least value, as a multiple of the target's."
    )
    most_ratio: float = _first(
        3.0, "to", (1.1, 10.0), 0.1, unit="x target's", help="The greatest value, as a multiple of the target's."
    )
    activation: Literal["linear", "relu"] = _network(
        "linear",
        "units",
        choices={"linear": "linear", "relu": "ReLU"},
        help="Linear units are solved exactly; ReLU units through responses measured on trials.",
    )
    recurrence: float = _network(0.96, "recurrence", (0.0, 1.05), 0.01, help="Share of its activity that a unit keeps.")
    initial: float = _network(0.01, "initial weights", (1e-4, 1.0), 0.05, scale="log")
    hidden_size: int = _network(
        128, "hidden units", (1, 256), 1, unit="units", help="One learns; the others stay silent."
    )
    learning_rate: float = _training(1e-3, "learning rate", (1e-5, 0.1), 0.05, scale="log")
    accuracy: float = _training(0.99, "accuracy to reach", (0.5, 0.999), 0.001, help="Of the target, at the end.")
    grid: int = control(120, "grid", (10, 200), 10, unit="points a side", group="Picture")
    pin_value: float | None = control(None, "pinned value", (-1000.0, 1000.0), kind="hidden")
    pin_accuracy: float | None = control(None, "pinned stop", (0.0, 0.999), kind="hidden")

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


def taken_apart(
    state: CurriculumState, network: LinearRNN | Activated, target: Task, values: tuple[float, ...]
) -> tuple[Modes, ...]:
    """Modes of the target, then of the first task with each of the values."""
    if isinstance(network, LinearRNN):
        return tuple(modes_of([target, *(state.task(value) for value in values)], network))
    return tuple(_response_mode(state, network, value) for value in (None, *values))


def _response_mode(state: CurriculumState, network: Activated, value: float | None) -> Modes:
    keywords = tuple(sorted(state.parameters(value).items()))
    found = _measured(state.family, keywords, state.name(value), state.recurrence)
    return mode_of_response(found.moved(network))


@lru_cache(maxsize=256)
def _measured(family: str, keywords: tuple[tuple[str, float | int], ...], name: str, recurrence: float) -> Response:
    """Responses depend on the task and the recurrence alone, so that other sliders move without measuring again."""
    task = FAMILIES[family].build(**dict(keywords), name=name)
    weights = LinearRNN.aligned(recurrence=recurrence, hidden_size=1, task=task)
    return response(task, Activated(weights, "relu"), rng=0)


def study_of(state: CurriculumState, value: float, stop: float) -> str:
    """A study whose plan is the target after a first task with this value, stopped at this accuracy.

    Parameters
    ----------
    state : CurriculumState
    value : float
        Of the varied keyword, on the first task.
    stop : float
        Accuracy at which the first task stops.
    """
    by = "" if state.activation == "linear" else " --by modes"
    grid = f"--vary {state.varied} --values {value!r} --accuracies {stop!r}"
    lines = [
        f"# learncast plan this-file.toml{by}",
        f"# explorer, curriculum: {state.model_dump_json(exclude_defaults=True)}",
        "# The stop is fixed as it was on the page. Where it costs steps the plan is to train directly; what it costs:",
        f"# learncast phase this-file.toml {grid}",
        to_toml(_tables(state, value, stop)),
    ]
    return "\n".join(lines)


def _tables(state: CurriculumState, value: float, stop: float) -> dict[str, Any]:
    return {
        "name": f"{state.name(value)} before {state.name()}",
        "network": {
            "kind": "linear-rnn",
            "hidden_size": state.hidden_size,
            "recurrence": state.recurrence,
            "initial": state.initial,
            "activation": state.activation,
        },
        "training": {"learning_rate": state.learning_rate, "accuracy": state.accuracy, "max_stages": 2},
        "target": {"name": state.name(), "family": state.family, **state.parameters()},
        "candidates": [
            {
                "name": state.name(value),
                "family": state.family,
                **state.parameters(value),
                "least_accuracy": stop,
                "most_accuracy": stop,
            }
        ],
    }
