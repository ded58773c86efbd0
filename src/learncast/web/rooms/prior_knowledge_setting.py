"""The setting of the Prior knowledge room: two static tasks at an angle, and a network that learns them in turn."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from learncast.dynamics.two_layer import TwoLayerSolution, checked_two_layer
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.forgetting import ContinualLearning, settling
from learncast.planning.solving import solve
from learncast.study.tables import to_toml
from learncast.tasks.one_step import static
from learncast.tasks.task import Task
from learncast.validation import FloatArray
from learncast.web.room import Control, State
from learncast.web.rooms.sliders import chooser, slider

NAMES = ("task A", "task B")
#: Times at which a stage is drawn.
POINTS = 120


class PriorKnowledgeState(State):
    """What the room's controls say."""

    size: int = Field(default=3, ge=2, le=5)
    first_strength: float = Field(default=2.0, ge=0.1, le=5.0)
    second_strength: float = Field(default=1.5, ge=0.1, le=5.0)
    decay: float = Field(default=0.6, ge=0.0, le=1.0)
    input_angle: float = Field(default=40.0, ge=0.0, le=180.0)
    output_angle: float = Field(default=70.0, ge=0.0, le=180.0)
    knowledge: Literal["none", "steps", "converged"] = "converged"
    first_steps: float = Field(default=100.0, ge=1.0, le=10_000.0)
    start: Literal["balanced", "random"] = "balanced"
    start_scale: float = Field(default=0.1, ge=1e-3, le=2.0)
    imbalance: float = Field(default=0.0, ge=-4.0, le=4.0)
    hidden_size: int = Field(default=3, ge=1, le=10)
    seed: int = Field(default=4, ge=0, le=99)
    learning_rate: float = Field(default=0.05, ge=1e-3, le=0.5)
    accuracy: float = Field(default=0.99, ge=0.5, le=0.999)
    time: float = Field(default=1.0, ge=0.0, le=1.0)


def controls() -> tuple[Control, ...]:
    """Controls of the room, in the order of the page."""
    state = PriorKnowledgeState
    tasks, network, training = "The two tasks", "The network at the start", "Training"
    turned = "turns each pair of directions in its plane; an odd one out stays"
    return (
        slider(state, "size", "Inputs and outputs", step=1, unit="channels", group=tasks),
        slider(state, "first_strength", "Strongest mode of task A", step=0.05, unit="target/input", group=tasks),
        slider(state, "second_strength", "Strongest mode of task B", step=0.05, unit="target/input", group=tasks),
        slider(state, "decay", "Each mode against the one before", step=0.01, group=tasks, tip="0 leaves one mode"),
        slider(state, "input_angle", "Angle between input directions", step=1, unit="degrees", group=tasks, tip=turned),
        slider(
            state,
            "output_angle",
            "Angle between output directions",
            step=1,
            unit="degrees",
            group=tasks,
            tip=f"{turned}; 180 beside an input angle of 0 asks for the opposite",
        ),
        chooser(
            state,
            "knowledge",
            "Prior knowledge of task A",
            {"none": "none", "steps": "some steps of training", "converged": "learned to the end"},
            group=training,
        ),
        slider(
            state,
            "first_steps",
            "Steps of task A",
            step=0.01,
            unit="gradient steps",
            scale="log",
            group=training,
            when={"knowledge": ("steps",)},
        ),
        slider(state, "learning_rate", "Learning rate", step=0.01, unit="1/step", scale="log", group=training),
        slider(state, "accuracy", "Counts as learned at", step=0.001, unit="accuracy", group=training),
        slider(state, "time", "Time of the gram matrices", step=0.005, unit="share of training", group=training),
        chooser(
            state,
            "start",
            "Start",
            {"balanced": "balanced layers", "random": "independent layers (outside the theory)"},
            group=network,
        ),
        slider(state, "start_scale", "Scale of the start", step=0.01, scale="log", group=network),
        slider(
            state,
            "imbalance",
            "Balance of the layers, lambda",
            step=0.05,
            group=network,
            tip="W2'W2 - W1 W1' is lambda times the identity; other than 0 needs no more hidden units than channels",
            when={"start": ("balanced",)},
        ),
        slider(state, "hidden_size", "Hidden units", step=1, unit="units", group=network),
        slider(state, "seed", "Which random start", step=1, unit="seed", group=network),
    )


@dataclass(frozen=True, eq=False)
class Course:
    """How a network learns the two tasks in turn.

    Attributes
    ----------
    found : ContinualLearning
        Of task A, for as long as it is trained, and then of task B.
    accuracy : float
        At which a task counts as learned.
    """

    found: ContinualLearning
    accuracy: float

    @cached_property
    def curves(self) -> xr.Dataset:
        """Loss of either task over both stages."""
        first, second, naive = self.steps_to_learn
        ends = ((first,), (second, naive))
        return self.found.curves(
            points=POINTS, horizon=[_until(s, times) for s, times in zip(self.found.solutions, ends, strict=True)]
        )

    @cached_property
    def begun(self) -> FloatArray:
        """Gradient steps at which each stage begins, and at which the last one is left."""
        clock = self.curves["time"].values
        return np.array([0.0, clock[POINTS - 1], clock[-1]])

    @cached_property
    def steps_to_learn(self) -> tuple[float, float, float]:
        """Steps of its own stage until A is learned, until B is, and until B would be without any of A."""
        first, second = (s.time_to(self.accuracy).flow_steps for s in self.found.solutions)
        return first, second, self.naive.time_to(self.accuracy).flow_steps

    @cached_property
    def naive(self) -> TwoLayerSolution:
        """Learning task B from the start, without any of task A."""
        first, second = self.found.solutions
        return _solution(second.problem.task, first.network, self.found.learning_rate)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is never learned, of the tasks that are trained at all."""
        idle = tuple(f"stage {k + 1} (" for k, steps in enumerate(self.found.steps) if steps == 0)
        return tuple(remark for remark in self.found.remarks if not (idle and remark.startswith(idle)))

    def moment(self, share: float) -> tuple[int, float]:
        """Stage, and steps within it, at a share of the training shown."""
        now = share * self.begun[-1]
        stage = int(now > self.begun[1] or (self.begun[1] == 0))
        return stage, float(now - self.begun[stage])


def _until(solution: TwoLayerSolution, times: tuple[float, ...]) -> float:
    """Steps of a stage to be drawn: until it has settled, and beyond whatever is said to be learned in it."""
    return max(settling(solution), *(1.15 * time for time in times if math.isfinite(time)), 1e-9)


def two_tasks(state: PriorKnowledgeState) -> tuple[Task, Task]:
    """Task A joins channel k of the input to channel k of the output; task B does so in turned directions."""
    falling = state.decay ** np.arange(state.size)
    inputs, outputs = (_turn(state.size, angle) for angle in (state.input_angle, state.output_angle))
    maps = (np.diag(state.first_strength * falling), state.second_strength * outputs @ np.diag(falling) @ inputs.T)
    first, second = (static(cross, name=name) for cross, name in zip(maps, NAMES, strict=True))
    return first, second


def starting_network(state: PriorKnowledgeState) -> TwoLayer:
    """The network before any training, drawn as a study draws it."""
    sizes, rng = (state.size, state.hidden_size, state.size), np.random.default_rng(state.seed)
    if state.start == "random":
        return TwoLayer.random(*sizes, scale=state.start_scale, rng=rng)
    return TwoLayer.balanced(*sizes, scale=state.start_scale, imbalance=state.imbalance, rng=rng)


def course_of(state: PriorKnowledgeState) -> Course:
    """How the network of a state learns its tasks; the moment to look at changes nothing in it."""
    return _course(state.model_copy(update={"time": 0.0}))


@lru_cache(maxsize=64)
def _course(state: PriorKnowledgeState) -> Course:
    # Not `learn_in_sequence`: it warns of what the room says in a note, and warnings cannot be silenced in one of
    # several threads alone.
    network: TwoLayer | LinearRNN = starting_network(state)
    durations = _first_steps(state), math.inf
    solutions = []
    for task, duration in zip(two_tasks(state), durations, strict=True):
        solutions.append(_solution(task, network, state.learning_rate))
        network = solutions[-1].network_at(duration)
    return Course(ContinualLearning(tuple(solutions), durations, state.learning_rate), state.accuracy)


def _solution(task: Task, network: TwoLayer | LinearRNN, learning_rate: float) -> TwoLayerSolution:
    return checked_two_layer(solve(task, network, learning_rate=learning_rate, strict=False))


def _first_steps(state: PriorKnowledgeState) -> float:
    return {"none": 0.0, "steps": state.first_steps, "converged": math.inf}[state.knowledge]


def _turn(size: int, degrees: float) -> FloatArray:
    """Rotation by an angle in the planes of channels 0 and 1, 2 and 3."""
    # In quarter turns the sine and cosine are exact, so that the opposite task is exactly the opposite.
    quarter, rest = divmod(degrees, 90.0)
    c, s = math.cos(math.radians(rest)), math.sin(math.radians(rest))
    for _ in range(int(quarter)):
        c, s = -s, c
    matrix = np.eye(size)
    for k in range(0, size - 1, 2):
        matrix[k : k + 2, k : k + 2] = [[c, -s], [s, c]]
    return matrix


def study_of(state: PriorKnowledgeState) -> str:
    """The study with which `learncast forget` gives the numbers of the room."""
    first, second = (task.cross_covariance.dense()[0, :, 0, :].T.tolist() for task in two_tasks(state))
    steps = _first_steps(state)
    network: dict[str, Any] = {"kind": "two-layer", "hidden_size": state.hidden_size, "start": state.start}
    network |= {"scale": state.start_scale, "seed": state.seed}
    if state.start == "balanced":
        network["imbalance"] = state.imbalance
    stages: list[dict[str, Any]] = [
        {"name": name, "family": "static", "cross_correlation": cross}
        for name, cross in zip(NAMES, (first, second), strict=True)
    ]
    if math.isfinite(steps):
        stages[0]["train_steps"] = steps
    training = {"learning_rate": state.learning_rate, "accuracy": state.accuracy}
    tables = {"name": "prior knowledge", "network": network, "training": training, "sequence": stages}
    told = json.dumps(state.model_dump(), separators=(",", ":"))
    return f"# learncast forget this-file.toml\n# prior-knowledge {told}\n{to_toml(tables)}"
