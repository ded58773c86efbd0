"""The Prior knowledge room: what a network that knows one task learns and forgets on the next."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray
from learncast.display import format_count, format_number
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curriculum import Curriculum, settling
from learncast.planning.forgetting import in_sequence
from learncast.planning.solving import solve
from learncast.results import STEPS
from learncast.study.study_file import to_toml
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.one_step import static
from learncast.tasks.task import Task
from learncast.theory.dynamics.solution import Solution
from learncast.web.guide import PRIOR_KNOWLEDGE, PRIOR_KNOWLEDGE_WORDS
from learncast.web.panel import (
    FIRST,
    MODES,
    MOMENTS,
    TARGET,
    Axis,
    Clock,
    Drawing,
    Edge,
    Note,
    Panel,
    Reading,
    Trace,
    View,
    refusal,
    validity_of,
    warnings_of,
)
from learncast.web.room import Room, State, control

if TYPE_CHECKING:
    import xarray as xr

NAMES = ("task A", "task B")
#: Times at which a stage is drawn.
POINTS = 80
#: Losses below this are what rounding leaves of zero.
ROUNDING = 1e-12
CLOCK = Axis("training time", STEPS, clock=True)
#: Series of each task, by which it has its colour.
SERIES = (FIRST, TARGET)
LOSS = Axis("half mean squared error", "target^2")

_tasks = partial(control, group="The two tasks")
_strength = partial(_tasks, span=(0.1, 5.0), step=0.05, unit="target/input")
_angle = partial(_tasks, span=(0.0, 180.0), step=1, unit="degrees")
_training = partial(control, group="Training")
_some_training = partial(_training, when={"knowledge": ("steps",)})
_network = partial(control, group="The network at the start", folded=True)
_TURNED = "turns each pair of directions in its plane; an odd one out stays"
_KNOWLEDGE = {"none": "none", "steps": "some steps of training", "converged": "learned to the end"}
_STARTS = {"balanced": "balanced layers", "random": "independent layers (outside the theory)"}
_OPPOSITE = f"{_TURNED}; 180 beside an input angle of 0 asks for the opposite"
_BALANCE = "W2'W2 - W1 W1' is lambda times the identity; other than 0 needs no more hidden units than channels"


class PriorKnowledgeState(State):
    """What the room's controls say."""

    size: int = _tasks(3, "Inputs and outputs", (2, 5), 1, unit="channels")
    first_strength: float = _strength(2.0, "Strongest mode of task A")
    second_strength: float = _strength(1.5, "Strongest mode of task B")
    decay: float = _tasks(0.6, "Each mode against the one before", (0.0, 1.0), 0.01, help="0 leaves one mode")
    input_angle: float = _angle(40.0, "Angle between input directions", help=_TURNED)
    output_angle: float = _angle(70.0, "Angle between output directions", help=_OPPOSITE)
    knowledge: Literal["none", "steps", "converged"] = _training(
        "converged", "Prior knowledge of task A", choices=_KNOWLEDGE
    )
    first_steps: float = _some_training(
        100.0, "Steps of task A", (1.0, 10_000.0), 0.01, unit="gradient steps", scale="log"
    )
    start: Literal["balanced", "random"] = _network("balanced", "Start", choices=_STARTS)
    start_scale: float = _network(0.1, "Scale of the start", (1e-3, 2.0), 0.01, scale="log")
    imbalance: float = _network(
        0.0, "Balance of the layers, lambda", (-4.0, 4.0), 0.05, help=_BALANCE, when={"start": ("balanced",)}
    )
    hidden_size: int = _network(3, "Hidden units", (1, 10), 1, unit="units")
    seed: int = _network(4, "Which random start", (0, 99), 1, unit="seed")
    learning_rate: float = _training(0.05, "Learning rate", (1e-3, 0.5), 0.01, unit="1/step", scale="log")
    accuracy: float = _training(0.99, "Counts as learned at", (0.5, 0.999), 0.001, unit="accuracy")
    time: float = control(1.0, "moment of the course", (0.0, 1.0), kind="hidden")


#: What moves with the time shown; and for how many moments a drawing of the weights stands still.
_MOVING = ("input_gram", "output_gram", "network_function", "loss")
_HELD = 5


@dataclass(frozen=True, eq=False)
class Course:
    """How a network learns the two tasks in turn.

    Attributes
    ----------
    found : Curriculum
        Of task A, for as long as it is trained, and then of task B.
    accuracy : float
        At which a task counts as learned.
    """

    found: Curriculum
    accuracy: float

    @cached_property
    def curves(self) -> xr.Dataset:
        """Loss of either task over both stages."""
        first, second, naive = self.steps_to_learn
        ends = ((first,), (second, naive))
        return self.found.curves(
            points=POINTS, horizon=[_until(s, times) for s, times in zip(self.found.courses, ends, strict=True)]
        )

    @cached_property
    def begun(self) -> FloatArray:
        """Gradient steps at which each stage begins, and at which the last one is left."""
        clock = self.curves["time"].values
        return np.array([0.0, clock[POINTS - 1], clock[-1]])

    @cached_property
    def steps_to_learn(self) -> tuple[float, float, float]:
        """Steps of its own stage until A is learned, until B is, and until B would be without any of A."""
        first, second = (s.time_to(self.accuracy).flow_steps for s in self.found.courses)
        return first, second, self.naive.time_to(self.accuracy).flow_steps

    @cached_property
    def descent_to_learn(self) -> tuple[float, float, float]:
        """The same three in whole steps of descent."""
        ways = (*self.found.courses, self.naive)
        first, second, naive = (way.time_to(self.accuracy).descent_steps for way in ways)
        return first, second, naive

    @cached_property
    def moments(self) -> dict[str, FloatArray]:
        """What the network is at each moment of the training shown, from the solution of its stage."""
        clock = np.linspace(0.0, 1.0, MOMENTS)
        places = [self.moment(float(share)) for share in clock]
        found: dict[str, list[FloatArray]] = {name: [] for name in _MOVING}
        for stage, solution in enumerate(self.found.courses):
            steps = [steps for k, steps in places if k == stage]
            if steps:
                at = solution.at(steps)
                for name in _MOVING:
                    found[name].append(at[name].values)
        return {name: np.concatenate(rows) for name, rows in found.items()}

    @cached_property
    def layers(self) -> tuple[FloatArray, FloatArray]:
        """Weights of both layers at some of the moments, each held until the next."""
        places = [self.moment(share) for share in np.linspace(0.0, 1.0, MOMENTS)[::_HELD].tolist()]
        networks = [self.found.courses[stage].network_at(steps) for stage, steps in places]
        first, second = (np.array([getattr(one, name) for one in networks]) for name in ("first", "second"))
        return np.repeat(first, _HELD, axis=0)[:MOMENTS], np.repeat(second, _HELD, axis=0)[:MOMENTS]

    @cached_property
    def naive(self) -> Solution:
        """Learning task B from the start, without any of task A."""
        second = self.found.outcomes[1].stage.task
        return solve(second, self.found.ground.network, learning_rate=self.found.learning_rate, strict=False)

    @property
    def trained(self) -> tuple[float, ...]:
        """Gradient steps of each stage; infinite for one to convergence."""
        return tuple(float(o.stage.steps or 0.0) for o in self.found.outcomes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is never learned, of the tasks that are trained at all."""
        idle = tuple(f"stage {k + 1} (" for k, steps in enumerate(self.trained) if steps == 0)
        return tuple(remark for remark in self.found.remarks if not (idle and remark.startswith(idle)))

    def moment(self, share: float) -> tuple[int, float]:
        """Stage, and steps within it, at a share of the training shown."""
        now = share * self.begun[-1]
        stage = int(now > self.begun[1] or (self.begun[1] == 0))
        return stage, float(now - self.begun[stage])


def _until(solution: Solution, times: tuple[float, ...]) -> float:
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
    network, steps = starting_network(state), (_first_steps(state), math.inf)
    found = in_sequence(two_tasks(state), network, learning_rate=state.learning_rate, steps=steps, strict=False)
    return Course(found, state.accuracy)


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


#: What a part makes of a state and its course: pictures, readings, and a sentence.
Shown = tuple[tuple[Panel, ...], tuple[Reading, ...], str]


def _within_theory(part: Callable[[PriorKnowledgeState, Course], Shown]) -> Callable[[PriorKnowledgeState], View]:
    """Show a part with how far it may be trusted, or say in a note why there is no such start."""

    @functools.wraps(part)
    def view(state: PriorKnowledgeState) -> View:
        try:
            course = course_of(state)
        except InvalidSpec as error:  # a balance that these sizes cannot have: a legal setting without a network
            return View((), validity_of("outside"), notes=(refusal(error),))
        panels, readings, words = part(state, course)
        validity = validity_of(course.found.forecast_class, course.found.assumptions)
        clock = Clock("time", np.linspace(0.0, float(course.begun[-1]), MOMENTS), STEPS)
        first = part.__name__ == "learning"
        return View(
            panels,
            validity,
            readings,
            _notes(course),
            words,
            answer=_answer(course) if first else "",
            clock=clock,
            drawing=_drawn(state, course) if first else None,
        )

    return view


@_within_theory
def learning(state: PriorKnowledgeState, course: Course) -> Shown:
    """Losses of both tasks, and strengths of the modes of the one in training."""
    return (_losses(state, course), _strengths(course)), _readings(course), ""


@_within_theory
def grams(state: PriorKnowledgeState, course: Course) -> Shown:
    """The network's gram matrices and its map at one moment, beside the map that the task in training asks for."""
    film, k = course.moments, round(state.time * (MOMENTS - 1))
    stages = [course.moment(share)[0] for share in np.linspace(0.0, 1.0, MOMENTS).tolist()]
    wanted = np.array([pooled_statistics(o.stage.task, 0.0)[0].T for o in course.found.outcomes])
    pictures = (
        ("network_function", "Network function, W2 W1", "output", "input", film["network_function"]),
        ("wanted", "What the task in training asks for", "output", "input", wanted[stages]),
        ("input_gram", "Input gram matrix, W1'W1", "input", "input", film["input_gram"]),
        ("output_gram", "Output gram matrix, W2 W2'", "output", "output", film["output_gram"]),
    )
    elapsed = np.linspace(0.0, float(course.begun[-1]), MOMENTS)
    times = tuple(f"{time:.4g}, in the stage of {NAMES[stage]}" for time, stage in zip(elapsed, stages, strict=True))
    losses = tuple(_loss_words(loss) for loss in film["loss"])
    readings = (
        Reading("time", float(elapsed[k]), STEPS, times[k], times),
        Reading("loss of the task in training", float(film["loss"][k]), LOSS.unit, losses[k], losses),
    )
    # One scale for all moments, so that colours can be compared while the time is moved.
    largest = float(np.abs(wanted).max())
    return tuple(_matrix(*picture, now=k, largest=largest) for picture in pictures), readings, ""


@_within_theory
def forgetting(state: PriorKnowledgeState, course: Course) -> Shown:
    """Loss of either task after every stage, and how much each stage changed it."""
    loss, change = course.found.losses(), course.found.forgetting
    after = tuple(f"after {name}" for name in NAMES)
    panels = (
        _table("loss_after", "Loss of each task", ("at the start", *after), loss.values, "half mean squared error"),
        _table("forgetting", "Change of loss (above 0: forgotten)", after, change.values, "change of loss"),
    )
    forgotten = float(change.values[1, 0])
    words = (
        f"Learning task B raises the loss of task A by {forgotten:.4g}."
        if forgotten > ROUNDING
        else "Learning task B does not raise the loss of task A: nothing is forgotten."
    )
    return panels, _readings(course), words


def _losses(state: PriorKnowledgeState, course: Course) -> Panel:
    curves = course.curves
    clock, losses = curves["time"].values, curves["loss"].values
    traces = [
        Trace("line", "data", f"loss of {name}", clock, losses[:, k], series=SERIES[k]) for k, name in enumerate(NAMES)
    ]
    if course.trained[0] > 0:
        after = clock[POINTS:]
        naive = course.naive.at(after - after[0])["loss"].values
        traces.append(Trace("line", "null", "task B unprepared", after, naive, series=TARGET))
    return Panel("losses", "Loss of both tasks", CLOCK, LOSS, tuple(traces), shades=_stages(course), main=True)


def _strengths(course: Course) -> Panel:
    traces: list[Trace] = []
    for stage, (solution, name) in enumerate(zip(course.found.courses, NAMES, strict=True)):
        if course.trained[stage] == 0:
            continue
        clock = course.curves["time"].values[stage * POINTS : (stage + 1) * POINTS]
        strength = solution.at(clock - clock[0])["strength"].values
        for k, best in enumerate(solution.optimum):
            label = f"{name}, mode {k}"
            ends = np.array([clock[0], clock[-1]])
            # The shades tell the tasks apart, the dashes what is asked for.
            alone = not any(trace.series == MODES + k for trace in traces)
            traces.append(Trace("line", "data", label, clock, strength[:, k], series=MODES + k, legend=alone))
            asked = f"{label}, asked for"
            traces.append(
                Trace("line", "target", asked, ends, np.full(2, best), series=MODES + k, legend=len(traces) == 1)
            )
    axis = Axis("strength of the mode", "target/input")
    return Panel("strengths", "Modes of the task in training", CLOCK, axis, tuple(traces), shades=_stages(course))


def _stages(course: Course) -> tuple[tuple[float, float, str, int], ...]:
    begun = course.begun.tolist()
    return tuple(
        (begun[k], begun[k + 1], f"training {name}", SERIES[k])
        for k, name in enumerate(NAMES)
        if begun[k + 1] > begun[k]
    )


def _matrix(key: str, title: str, rows: str, columns: str, values: FloatArray, *, now: int, largest: float) -> Panel:
    """A matrix at each moment (moments, rows, columns), with that of this moment."""
    _, height, width = values.shape
    x, y = tuple(f"{columns} {k}" for k in range(width)), tuple(f"{rows} {k}" for k in range(height))
    heat = Trace("heat", "theory", title, x, y, np.array(values[now], dtype=float), film=values)
    unit = "target/input" if rows != columns else "1"
    end = max(largest, float(np.abs(values).max()))
    colour = Axis("value", unit, span=(-end, end))
    return Panel(key, title, Axis(columns, "channel"), Axis(rows, "channel"), (heat,), colour)


def _table(key: str, title: str, rows: tuple[str, ...], values: FloatArray, colour: str) -> Panel:
    heat = Trace("heat", "theory", title, NAMES, rows, np.array(values, dtype=float))
    return Panel(key, title, Axis("loss of", "task"), Axis("stage", "task"), (heat,), Axis(colour, LOSS.unit))


def _readings(course: Course) -> tuple[Reading, ...]:
    flows = course.steps_to_learn
    loss, change = course.found.losses().values, course.found.forgetting.values
    stay = course.trained[0]
    late = f", beyond its stage of {stay:.4g}" if math.isfinite(flows[0]) and flows[0] > stay else ""
    labels = ("task A is learned in", "task B is learned in", "task B without prior knowledge")
    return (
        *(
            Reading(label, steps, "steps", format_count(steps) + more)
            for label, steps, more in zip(labels, course.descent_to_learn, (late, "", ""), strict=True)
        ),
        _loss_reading("forgotten of task A", change[1, 0]),
        _loss_reading("final loss of task A", loss[-1, 0]),
        _loss_reading("final loss of task B", loss[-1, 1]),
        *(
            Reading(f"{label}, by the flow", steps, "steps", format_number(steps))
            for label, steps in zip(labels, flows, strict=True)
        ),
    )


def _loss_reading(label: str, value: float) -> Reading:
    return Reading(label, float(value), LOSS.unit, _loss_words(value))


def _loss_words(value: float) -> str:
    """A loss for people; what rounding leaves of zero is zero."""
    return f"{0.0 if abs(value) < ROUNDING else value:.3g}"


def _notes(course: Course) -> tuple[Note, ...]:
    return (
        *(Note(f"{remark[:1].upper()}{remark[1:]}.", "error") for remark in course.remarks),
        *warnings_of(course.found.assumptions),
    )


def _answer(course: Course) -> str:
    """What knowing task A is worth to task B, in whole steps, and what it costs."""
    _, second, naive = course.descent_to_learn
    flows = course.steps_to_learn
    flow = f" (flow: {format_number(flows[1], 0)} instead of {format_number(flows[2], 0)})"
    if course.trained[0] == 0:
        return f"Without prior knowledge task B is learned in {_steps(second)}."
    forgotten = float(course.found.forgetting.values[1, 0])
    lost = (
        f"; {_loss_words(forgotten)} of task A's loss comes back" if forgotten > ROUNDING else "; nothing is forgotten"
    )
    if not math.isfinite(second):
        beside = "" if not math.isfinite(naive) else f"; without it B takes {_steps(naive)}"
        return f"After task A this network never learns task B{beside}."
    if not math.isfinite(naive):
        return f"After task A, task B is learned in {_steps(second)}; without it never{lost}."
    compared = "instead of" if second < naive else "where without it it takes"
    return f"After task A, task B is learned in {_steps(second)} {compared} {format_count(naive)}{lost}{flow}."


def _steps(number: float) -> str:
    return (
        f"{format_count(number)} {'step' if number == 1 else 'steps'}"
        if math.isfinite(number)
        else "no number of steps"
    )


def _drawn(state: PriorKnowledgeState, course: Course) -> Drawing:
    """Both layers, at each moment."""
    into, out = course.layers
    edges = [
        Edge(f"input {i}", f"hidden {h}", "W1", float(into[-1, h, i]), into[:, h, i])
        for h in range(into.shape[1])
        for i in range(into.shape[2])
    ] + [
        Edge(f"hidden {h}", f"output {o}", "W2", float(out[-1, o, h]), out[:, o, h])
        for o in range(out.shape[1])
        for h in range(out.shape[2])
    ]
    words = f"A two-layer linear network of {state.hidden_size} hidden units"
    return Drawing(words, (("input", state.size), ("hidden", state.hidden_size), ("output", state.size)), tuple(edges))


ROOM = Room(
    name="prior-knowledge",
    title="Prior knowledge",
    introduction=(
        "A two-layer linear network learns task A and then task B, whose input and output directions are turned. See "
        "what it already knows, what it forgets, and from which starts it never learns."
    ),
    state=PriorKnowledgeState,
    # What moves with the time stands right below it.
    parts={"grams": grams, "learning": learning, "forgetting": forgetting},
    study=study_of,
    examples=PRIOR_KNOWLEDGE,
    words=PRIOR_KNOWLEDGE_WORDS,
)
