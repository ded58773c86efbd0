"""The prior knowledge panel: what a network that knows one task learns and forgets on the next."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal, cast

import numpy as np

from learncast import Accuracy, Deep, InvalidSpec, Stage, Task, TwoLayer
from learncast._core.validation import FloatArray
from learncast.display import format_loss, plural
from learncast.planning.forecast import Forecast, follow, forecast
from learncast.planning.forget import stages_of
from learncast.planning.run import settling
from learncast.results import Steps
from learncast.study.study_file import to_toml
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.one_step import static
from learncast.theory.assumptions import Trust
from learncast.theory.dynamics.solution import Solution
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import Panel, State, control, help_texts, remembered, settings_line
from learncast.web.view import FRAMES, Clock, Diagram, Edge, Note, Reading, View

NAMES = ("task A", "task B")
#: Points of the curves of each stage.
POINTS = 80
#: Losses below this are rounding errors.
ROUNDING = 1e-12
#: Longest descent that is drawn; of a longer training the flow is drawn.
MOST_STEPS = 100_000
SERIES = (Series.FIRST, Series.TARGET)
TIME = ChartAxis("training time", "steps", clock=True)
LOSS = ChartAxis("half mean squared error", "target^2")

_tasks = partial(control, group="The two tasks")
_strength = partial(_tasks, span=(0.1, 5.0), step=0.05, unit="target/input")
_angle = partial(_tasks, span=(0.0, 180.0), step=1, unit="degrees")
_training = partial(control, group="Training")
_partial_training = partial(_training, when={"knowledge": ("steps",)})
_network = partial(control, group="Initial network", folded=True)
_KNOWLEDGE = {"none": "none", "steps": "some steps of training", "converged": "completely learned"}
_STARTS = {"balanced": "balanced layers", "random": "independent layers (outside the theory)"}


class PriorKnowledgeState(State):
    """Settings of the prior knowledge panel."""

    size: int = _tasks(3, "Inputs and outputs", (2, 5), 1, unit="channels")
    first_strength: float = _strength(2.0, "Strongest mode of task A")
    second_strength: float = _strength(1.5, "Strongest mode of task B")
    decay: float = _tasks(0.6, "Ratio of successive modes", (0.0, 1.0), 0.01)
    input_angle: float = _angle(40.0, "Angle between input directions")
    output_angle: float = _angle(70.0, "Angle between output directions")
    knowledge: Literal["none", "steps", "converged"] = _training(
        "converged", "Prior knowledge of task A", choices=_KNOWLEDGE
    )
    first_steps: float = _partial_training(100.0, "Steps of task A", (1.0, 10_000.0), 0.01, scale="log", unit="steps")
    start: Literal["balanced", "random"] = _network("balanced", "Initial weights", choices=_STARTS)
    start_scale: float = _network(0.1, "Scale of the initial weights", (1e-3, 2.0), 0.01, scale="log")
    layers: int = _network(2, "Layers", (2, 4), 1, unit="layers")
    imbalance: float = _network(
        0.0, "Balance of the layers, lambda", (-4.0, 4.0), 0.05, when={"start": ("balanced",), "layers": ("2",)}
    )
    hidden_size: int = _network(3, "Hidden units", (1, 10), 1, unit="units")
    seed: int = _network(4, "Random seed", (0, 99), 1, unit="seed")
    learning_rate: float = _training(0.05, "Learning rate", (1e-3, 0.5), 0.01, unit="1/step", scale="log")
    accuracy: float = _training(0.99, "Counts as learned at", (0.5, 0.999), 0.001, unit="accuracy")
    time: float = control(1.0, "time shown", (0.0, 1.0), kind="hidden")

    @property
    def weight_scale(self) -> float:
        """Standard deviation of the weights of each layer; the map of more layers begins as large as that of two."""
        return self.start_scale ** (2 / self.layers)

    @property
    def steps_of_a(self) -> float:
        """Steps of training on task A, infinite for convergence."""
        return {"none": 0.0, "steps": self.first_steps, "converged": math.inf}[self.knowledge]


@dataclass(frozen=True, eq=False)
class SequentialLearning:
    """How a network learns the two tasks in turn.

    Attributes
    ----------
    curriculum : Forecast
        Task A for its number of steps, then task B.
    accuracy : float
        Accuracy at which a task counts as learned.
    """

    curriculum: Forecast
    accuracy: float

    @cached_property
    def naive(self) -> Solution:
        """Learning of task B from the initial weights, without task A."""
        second = self.curriculum.tasks[1]
        network = self.curriculum.method.network
        return forecast(second, network, learning_rate=self.curriculum.learning_rate, strict=False).solution

    @cached_property
    def to_goal(self) -> Forecast:
        """The curriculum with a second stage that ends where task B is learned."""
        m, (first, second) = self.curriculum.method.precise, self.curriculum.requested
        stages = [first, Stage(second.task, Accuracy(self.accuracy))]
        return follow(stages, m.network, learning_rate=m.learning_rate, strict=False)

    @cached_property
    def times(self) -> list[Steps]:
        """Steps until A is learned, until B is learned after A, and until B is learned without A."""
        m, goal = self.curriculum.method.precise, Accuracy(self.accuracy)
        direct = [m.train(place, m.start, m.start, goal)[0] for place in (0, 1)]
        return [direct[0], self.to_goal.stages[1].steps, direct[1]]

    @property
    def leaves_saddle(self) -> bool:
        """Whether descent learns task B although the flow rests at a saddle."""
        second = self.times[1]
        return math.isinf(second.flow) and math.isfinite(second.descent)

    @cached_property
    def boundaries(self) -> FloatArray:
        """Gradient steps at which each stage begins, and at which the second one ends.

        Stages to convergence are shown until they have settled, and beyond all learning times.
        """
        ends = []
        for trained, flow, times in zip(
            self.trained, self.curriculum.run.flows, (self.times[:1], self.times[1:]), strict=True
        ):
            learned = [1.15 * number for time in times for number in (time.flow, time.descent) if math.isfinite(number)]
            ends.append(trained if math.isfinite(trained) else max(settling(flow), *learned, 1e-9))
        return np.cumsum([0.0, *ends])

    def at(self, stage: int, steps: FloatArray, *, descent: bool = True) -> FloatArray:
        """Return the states after some steps of a stage, by descent or by the flow."""
        m, run = self.curriculum.method.precise, self.to_goal.run
        if not descent or not self.counted:
            return m.flow_states(self.curriculum.run.flows[stage], steps)
        stops, which = np.unique(np.rint(steps).astype(int), return_inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):  # weights that diverge
            states: FloatArray = m.advance(stage, run.descent_states[stage][None], stops.tolist())[which, 0]
        return states

    def strengths(self, stage: int, steps: FloatArray) -> FloatArray:
        """Return the strengths of the modes of a stage's task after some of its steps, (steps, modes)."""
        networks = [layers_of(self.curriculum.method.precise.network_of(state)) for state in self.at(stage, steps)]
        with np.errstate(over="ignore", invalid="ignore"):
            maps = np.array([np.linalg.multi_dot(layers[::-1]) for layers in networks])
        left, _, right = np.linalg.svd(pooled_statistics(self.curriculum.tasks[stage], 0.0)[0].T)
        return np.einsum("mk,smn,kn->sk", left, maps, right)

    @property
    def counted(self) -> bool:
        """Whether descent is short enough to be drawn."""
        return float(self.boundaries[-1]) <= MOST_STEPS

    @cached_property
    def losses(self) -> FloatArray:
        """Loss of either task before training and after each stage, (3, 2); descent may leave a saddle of the flow."""
        losses = self.curriculum.losses().values.copy()
        if self.leaves_saddle:
            m, begun = self.curriculum.method.precise, self.to_goal.run.descent_states[1]
            states = np.stack([begun, m.converged(1, begun, self.curriculum.run.states[2])])
            losses[1:] = np.stack([m.loss(place, states) for place in (0, 1)], axis=1)
        return losses

    def locate(self, share: float) -> tuple[int, float]:
        """Return the stage, and the steps within it, at a fraction of the time shown."""
        now = share * self.boundaries[-1]
        stage = int(now > self.boundaries[1] or self.boundaries[1] == 0)
        return stage, float(now - self.boundaries[stage])

    @cached_property
    def frames(self) -> dict[str, FloatArray]:
        """Gram matrices, map and loss of the network at each frame."""
        first, last = self.weights[0], self.weights[-1]
        loss = self.curriculum.method.precise.loss
        with np.errstate(over="ignore", invalid="ignore"):  # weights that diverge
            return {
                "input_gram": first.swapaxes(1, 2) @ first,
                "output_gram": last @ last.swapaxes(1, 2),
                "network_function": np.array([np.linalg.multi_dot(w[::-1]) for w in zip(*self.weights, strict=True)]),
                "loss": np.concatenate([loss(stage, states) for stage, states in enumerate(self.states)]),
            }

    @cached_property
    def states(self) -> tuple[FloatArray, ...]:
        """States at the frames within each stage."""
        places = [self.locate(share) for share in np.linspace(0.0, 1.0, FRAMES).tolist()]
        steps = [np.array([own for k, own in places if k == stage]) for stage in range(2)]
        return tuple(
            self.at(stage, own) if len(own) else self.at(stage, np.zeros(1))[:0] for stage, own in enumerate(steps)
        )

    @cached_property
    def weights(self) -> tuple[FloatArray, ...]:
        """Weights of every layer at each frame."""
        networks = [self.curriculum.method.precise.network_of(state) for states in self.states for state in states]
        return tuple(np.array(layer) for layer in zip(*map(layers_of, networks), strict=True))

    @property
    def trained(self) -> tuple[float, ...]:
        """Gradient steps of each stage, infinite for convergence."""
        return tuple(float(stage.steps or 0.0) for stage in self.curriculum.requested)

    @property
    def forgotten(self) -> float:
        """Increase of the loss of task A while task B is learned."""
        return float(self.losses[2, 0] - self.losses[1, 0])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks about modes that are never learned, for the tasks that are trained."""
        untrained = tuple(f"stage {k + 1} (" for k, steps in enumerate(self.trained) if steps == 0)
        return tuple(one for one in self.curriculum.remarks if not (untrained and one.startswith(untrained)))


def layers_of(network: object) -> tuple[FloatArray, ...]:
    """Return the weights of every layer of a network without recurrence."""
    own = cast(TwoLayer | Deep, network)
    return tuple(own.weights) if isinstance(own, Deep) else (own.first, own.second)


def two_tasks(state: PriorKnowledgeState) -> tuple[Task, Task]:
    """Return task A, which maps input k to output k, and task B, which does so in rotated directions."""
    strengths = state.decay ** np.arange(state.size)
    inputs, outputs = (_rotation(state.size, angle) for angle in (state.input_angle, state.output_angle))
    first = static(np.diag(state.first_strength * strengths), name=NAMES[0])
    return first, static(state.second_strength * outputs @ np.diag(strengths) @ inputs.T, name=NAMES[1])


def _rotation(size: int, degrees: float) -> FloatArray:
    """Return the rotation by an angle in the planes of channels 0 and 1, 2 and 3."""
    # Sine and cosine of quarter turns are exact, so that the opposite task is exactly the opposite.
    quarter, rest = divmod(degrees, 90.0)
    c, s = math.cos(math.radians(rest)), math.sin(math.radians(rest))
    for _ in range(int(quarter)):
        c, s = -s, c
    matrix = np.eye(size)
    for k in range(0, size - 1, 2):
        matrix[k : k + 2, k : k + 2] = [[c, -s], [s, c]]
    return matrix


def starting_network(state: PriorKnowledgeState) -> TwoLayer | Deep:
    """Return the network before training, with the weights that a study gives it."""
    if state.layers > 2:
        make = Deep.random if state.start == "random" else Deep.balanced
        hidden = (state.hidden_size,) * (state.layers - 1)
        return make(state.size, hidden, state.size, scale=state.weight_scale, rng=state.seed)
    sizes, rng = (state.size, state.hidden_size, state.size), np.random.default_rng(state.seed)
    if state.start == "random":
        return TwoLayer.random(*sizes, scale=state.start_scale, rng=rng)
    return TwoLayer.balanced(*sizes, scale=state.start_scale, imbalance=state.imbalance, rng=rng)


@remembered(64, except_for="time")
def learning_of(state: PriorKnowledgeState) -> SequentialLearning:
    """Return how the network learns the tasks."""
    network, steps = starting_network(state), (state.steps_of_a, math.inf)
    curriculum = follow(stages_of(two_tasks(state), steps), network, learning_rate=state.learning_rate, strict=False)
    return SequentialLearning(curriculum, state.accuracy)


def study_of(state: PriorKnowledgeState) -> str:
    """Return the study with which `learncast forget` gives the numbers of the panel."""
    network = {"kind": "two-layer", "hidden_size": state.hidden_size, "start": state.start}
    network |= {"scale": state.start_scale, "seed": state.seed}
    if state.layers > 2:
        network |= {"kind": "deep", "layers": state.layers, "scale": state.weight_scale}
    elif state.start == "balanced":
        network["imbalance"] = state.imbalance
    stages: list[dict[str, object]] = []
    for task in two_tasks(state):
        cross = task.cross_covariance.dense()[0, :, 0, :].T.tolist()
        stages.append({"name": task.name, "family": "static", "cross_correlation": cross})
    if math.isfinite(state.steps_of_a):
        stages[0]["train_steps"] = state.steps_of_a
    training = {"learning_rate": state.learning_rate, "accuracy": state.accuracy}
    tables = {"name": "prior knowledge", "network": network, "training": training, "sequence": stages}
    lines = ["# learncast forget this-file.toml", settings_line("prior-knowledge", state)]
    saddle = "# The command ends stages where the gradient flow rests, here at a saddle, which descent leaves."
    with contextlib.suppress(InvalidSpec):  # no layers have this balance
        lines += [saddle] * learning_of(state).leaves_saddle
    return "\n".join([*lines, to_toml(tables)])


#: A function that shows one part, without its validity, notes and clock.
Part = Callable[[PriorKnowledgeState, SequentialLearning], View]


def _complete(show: Part, state: PriorKnowledgeState) -> View:
    """Return the view of a part with its validity, notes and clock."""
    try:
        learning = learning_of(state)
    except InvalidSpec as error:  # these sizes allow no such balance: a valid setting without a network
        answer = f"No layers have this balance with more than {state.size} hidden units."
        return View(trust=Trust((), "outside"), notes=(Note(str(error), "warning"),), answer=answer)
    tone: Literal["warning", "error"] = "warning" if learning.leaves_saddle else "error"
    notes = tuple(Note(f"{remark[:1].upper()}{remark[1:]}.", tone) for remark in learning.remarks)
    clock = Clock.until(float(learning.boundaries[-1]))
    return replace(show(state, learning), trust=learning.curriculum.trust, notes=notes, clock=clock)


def _curves(state: PriorKnowledgeState, learning: SequentialLearning) -> View:
    """Show the losses of both tasks, and the strengths of the modes of the task in training."""
    charts, diagram = (_losses(learning), _strengths(learning)), _diagram(state, learning)
    return View(charts, readings=_readings(learning), answer=_answer(learning), diagram=diagram)


def _grams(state: PriorKnowledgeState, learning: SequentialLearning) -> View:
    """Show the network's gram matrices and map at one time, and the map of the task in training."""
    frames, k = learning.frames, round(state.time * (FRAMES - 1))
    stages = [learning.locate(share)[0] for share in np.linspace(0.0, 1.0, FRAMES).tolist()]
    maps = np.array([pooled_statistics(task, 0.0)[0].T for task in learning.curriculum.tasks])
    layers = [f"W{'₁₂₃₄'[k]}" for k in range(state.layers)]
    product, last = "".join(reversed(layers)), layers[-1]
    matrices = (
        ("network_function", f"Map of the network, {product}", "output", "input", frames["network_function"]),
        ("wanted", "Map of the task in training", "output", "input", maps[stages]),
        ("input_gram", "Input Gram matrix, W₁ᵀW₁", "input", "input", frames["input_gram"]),
        ("output_gram", f"Output Gram matrix, {last}{last}ᵀ", "output", "output", frames["output_gram"]),
    )
    elapsed = np.linspace(0.0, float(learning.boundaries[-1]), FRAMES)
    times = tuple(f"step {time:.4g}, training {NAMES[stage]}" for time, stage in zip(elapsed, stages, strict=True))
    losses = tuple(format_loss(loss) for loss in frames["loss"])
    readings = (
        Reading("time", float(elapsed[k]), "steps", times[k], times),
        Reading("loss of the task in training", float(frames["loss"][k]), LOSS.unit, losses[k], losses),
    )
    # All frames share one colour scale, so that they can be compared.
    largest = float(np.abs(maps).max())
    return View(tuple(_matrix(*matrix, now=k, largest=largest) for matrix in matrices), readings=readings)


def _forgetting(_: PriorKnowledgeState, learning: SequentialLearning) -> View:
    """Show the loss of either task after each stage, and its changes."""
    after = tuple(f"after {name}" for name in NAMES)
    loss, change = learning.losses, np.diff(learning.losses, axis=0)
    charts = (
        _table("loss_after", "Loss of each task", ("initially", *after), loss, LOSS.label),
        _table("forgetting", "Change of loss (above 0: forgotten)", after, change, "change of loss", worse_above=True),
    )
    return View(charts, readings=_readings(learning))


def _losses(learning: SequentialLearning) -> Chart:
    m, begins, traces = learning.curriculum.method.precise, learning.boundaries, list[Trace]()
    stages = [(k, np.linspace(0.0, length, POINTS)) for k, length in enumerate(np.diff(begins).tolist())]
    times = np.concatenate([begins[k] + steps for k, steps in stages])
    for descent in (True, False) if learning.counted else (False,):
        states = np.concatenate([learning.at(k, steps, descent=descent) for k, steps in stages])
        for place, name in enumerate(NAMES):
            words = f"loss of {name}" if descent else f"loss of {name}, flow"
            loss = m.loss(place, states)
            traces.append(Trace("line", "descent" if descent else "theory", words, times, loss, series=SERIES[place]))
    if learning.trained[0] > 0:
        naive = learning.naive.at(stages[1][1])["loss"].values
        name = "task B without prior knowledge"
        traces.append(Trace("line", "null", name, begins[1] + stages[1][1], naive, series=Series.TARGET))
    return Chart("losses", "Loss of both tasks", TIME, LOSS, tuple(traces), shades=_stages(learning), main=True)


def _strengths(learning: SequentialLearning) -> Chart:
    traces: list[Trace] = []
    for stage, (solution, name) in enumerate(zip(learning.curriculum.run.flows, NAMES, strict=True)):
        if learning.trained[stage] == 0:
            continue
        steps = np.linspace(0.0, float(np.diff(learning.boundaries)[stage]), POINTS)
        times, flow = learning.boundaries[stage] + steps, solution.at(steps)["strength"].values
        strength = learning.strengths(stage, steps)[:, : flow.shape[1]] if learning.counted else flow
        for k, optimum in enumerate(solution.optimum):
            series = Series.MODE + k
            # The legend lists each mode once; shades distinguish the tasks and dashes the optima.
            new = not any(trace.series == series for trace in traces)
            label = f"mode {k + 1}" if new else f"mode {k + 1} of {name}"
            traces.append(Trace("line", "descent", label, times, strength[:, k], series=series, legend=new))
            name = "flow" if len(traces) == 1 else f"{label}, flow"
            traces.append(Trace("line", "theory", name, times, flow[:, k], series=series, legend=len(traces) == 1))
            level = times[[0, -1]], np.full(2, optimum)
            name, listed = ("optimum (dashed)", True) if len(traces) == 2 else (f"{label}, optimum", False)
            traces.append(Trace("line", "target", name, *level, series=series, legend=listed))
    axis = ChartAxis("strength of the mode", "target/input")
    return Chart("strengths", "Modes of the task in training", TIME, axis, tuple(traces), shades=_stages(learning))


def _stages(learning: SequentialLearning) -> tuple[tuple[float, float, str, int], ...]:
    bounds = learning.boundaries.tolist()
    shades = zip(bounds[:-1], bounds[1:], (f"training {name}" for name in NAMES), SERIES, strict=True)
    return tuple(shade for shade in shades if shade[1] > shade[0])


def _matrix(key: str, title: str, rows: str, columns: str, values: FloatArray, *, now: int, largest: float) -> Chart:
    """Show matrices (frames, rows, columns) at the frame `now`."""
    _, height, width = values.shape
    x, y = tuple(f"{columns} {k + 1}" for k in range(width)), tuple(f"{rows} {k + 1}" for k in range(height))
    heat = Trace("heat", "theory", title, x, y, np.array(values[now], dtype=float), frames=values)
    end = max(largest, float(np.abs(values).max()))
    colour = ChartAxis("value", "target/input" if rows != columns else "1", span=(-end, end))
    return Chart(key, title, ChartAxis(columns, "channel"), ChartAxis(rows, "channel"), (heat,), colour)


def _table(
    key: str, title: str, rows: tuple[str, ...], values: FloatArray, colour: str, *, worse_above: bool = False
) -> Chart:
    heat = Trace("heat", "theory", title, NAMES, rows, np.array(values, dtype=float))
    axes = ChartAxis("loss of", "task"), ChartAxis("stage", "task")
    return Chart(key, title, *axes, (heat,), ChartAxis(colour, LOSS.unit, worse_above=worse_above))


def _readings(learning: SequentialLearning) -> tuple[Reading, ...]:
    labels = ("task A is learned in", "task B is learned in", "task B without prior knowledge")
    times = list(zip(labels, learning.times, strict=True))
    descent, flow = [Reading.counted(label, t) for label, t in times], learning.times[0].flow
    if learning.trained[0] < flow < math.inf:
        late = f"{descent[0].text}, after its stage of {learning.trained[0]:.4g}"
        descent[0] = replace(descent[0], text=late)
    final = learning.losses[-1].tolist()
    losses = zip(("forgotten of", "final loss of", "final loss of"), "AAB", (learning.forgotten, *final), strict=True)
    return (
        *descent,
        *(Reading(f"{label} task {task}", loss, LOSS.unit, format_loss(loss)) for label, task, loss in losses),
        *(Reading.flow(label, time.flow) for label, time in times),
    )


def _answer(learning: SequentialLearning) -> str:
    """Say how many steps prior knowledge saves on task B, and what is forgotten."""
    second, naive = learning.times[1:]
    if learning.trained[0] == 0:
        return f"Without prior knowledge task B {_outcome(second)}."
    learned = f"After task A, task B {_outcome(second)}; without task A it {_outcome(naive)}."
    if not math.isfinite(second.flow) and not learning.leaves_saddle:  # losses are those at which the flow rests
        return learned
    lost = "Nothing is forgotten."
    if learning.forgotten > ROUNDING:
        lost = f"The loss of task A rises by {format_loss(learning.forgotten)}."
    return f"{learned} {lost}"


def _outcome(steps: Steps) -> str:
    if steps.descent == 0:
        return "is already learned"
    return f"is learned in {plural(int(steps.descent), 'step')}" if math.isfinite(steps.descent) else steps.outcome


def _diagram(state: PriorKnowledgeState, learning: SequentialLearning) -> Diagram:
    """Draw every layer at each frame."""
    hidden = ["hidden"] if state.layers == 2 else [f"hidden layer {k}" for k in range(1, state.layers)]
    names = ["input", *hidden, "output"]
    edges = tuple(
        Edge(f"{source} {i}", f"{target} {j}", f"W{k}", float(weights[-1, j, i]), weights[:, j, i])
        for k, ((source, target), weights) in enumerate(zip(pairwise(names), learning.weights, strict=True), start=1)
        for j in range(weights.shape[1])
        for i in range(weights.shape[2])
    )
    sizes = [state.size, *(state.hidden_size for _ in hidden), state.size]
    title = f"A linear network of {state.layers} layers with {plural(sum(sizes[1:-1]), 'hidden unit')}"
    return Diagram(title, tuple(zip(names, sizes, strict=True)), edges)


_PARTS = {"grams": _grams, "learning": _curves, "forgetting": _forgetting}

PANEL = Panel(
    name="prior-knowledge",
    **help_texts("prior-knowledge"),
    state=PriorKnowledgeState,
    parts={name: partial(_complete, show) for name, show in _PARTS.items()},
    study=study_of,
)
