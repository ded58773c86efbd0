"""The prior knowledge panel: what a network that knows one task learns and forgets on the next."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from learncast import Accuracy, Deep, InvalidSpec, Stage, Task, TwoLayer
from learncast._core.validation import FloatArray
from learncast.display import format_loss, plural
from learncast.planning.forecast import Forecast, follow, forecast
from learncast.planning.forget import stages_of
from learncast.planning.run import settling
from learncast.results import STEPS, Steps
from learncast.study.study_file import to_toml
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.one_step import static
from learncast.theory.dynamics.solution import Solution
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import Panel, State, control, help_texts
from learncast.web.view import FRAMES, Clock, Diagram, Edge, Note, Reading, View, condition_warnings, validity_report

if TYPE_CHECKING:
    import xarray as xr

NAMES = ("task A", "task B")
#: Points of the curves of each stage.
POINTS = 80
#: Losses below this are rounding errors.
ROUNDING = 1e-12
#: Frames for which the diagram of the weights stays the same.
_HELD = 5
SERIES = (Series.FIRST, Series.TARGET)
TIME = ChartAxis("training time", STEPS, clock=True)
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
    first_steps: float = _partial_training(100.0, "Steps of task A", (1.0, 10_000.0), 0.01, scale="log", unit=STEPS)
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
    def times(self) -> list[Steps]:
        """Steps until A is learned, until B is learned after A, and until B is learned without A."""
        c, goal = self.curriculum, Accuracy(self.accuracy)
        m, (first, second) = c.method.precise, c.requested
        last = follow([first, Stage(second.task, goal)], m.network, learning_rate=m.learning_rate, strict=False)
        return [m.train(0, m.start, m.start, goal)[0], last.stages[1].steps, m.train(1, m.start, m.start, goal)[0]]

    @cached_property
    def curves(self) -> xr.Dataset:
        """Loss of either task over both stages, until they have settled and beyond all learning times."""
        ends = []
        for solution, times in zip(self.curriculum.run.flows, (self.times[:1], self.times[1:]), strict=True):
            learned = (1.15 * time.flow for time in times if math.isfinite(time.flow))
            ends.append(max(settling(solution), *learned, 1e-9))
        return self.curriculum.curves(points=POINTS, horizon=ends)

    @cached_property
    def boundaries(self) -> FloatArray:
        """Gradient steps at which each stage begins, and at which the second one ends."""
        times = self.curves["time"].values
        return np.array([0.0, times[POINTS - 1], times[-1]])

    def locate(self, share: float) -> tuple[int, float]:
        """Return the stage, and the steps within it, at a fraction of the time shown."""
        now = share * self.boundaries[-1]
        stage = int(now > self.boundaries[1] or self.boundaries[1] == 0)
        return stage, float(now - self.boundaries[stage])

    @cached_property
    def frames(self) -> dict[str, FloatArray]:
        """Gram matrices, map and loss of the network at each frame."""
        places = [self.locate(float(share)) for share in np.linspace(0.0, 1.0, FRAMES)]
        rows = []
        for stage, solution in enumerate(self.curriculum.run.flows):
            steps = [steps for k, steps in places if k == stage]
            if steps:
                rows.append(solution.at(steps))
        first, last = self.weights[0], self.weights[-1]
        names = ("input_gram", "output_gram", "network_function", "loss") if len(self.weights) == 2 else ("loss",)
        frames = {name: np.concatenate([row[name].values for row in rows]) for name in names}
        if len(self.weights) > 2:
            products = (np.linalg.multi_dot(one[::-1]) for one in zip(*self.weights, strict=True))
            grams = {"input_gram": first.swapaxes(1, 2) @ first, "output_gram": last @ last.swapaxes(1, 2)}
            frames |= grams | {"network_function": np.array(list(products))}
        return frames

    @cached_property
    def weights(self) -> tuple[FloatArray, ...]:
        """Weights of every layer at each frame, computed at some of them."""
        places = [self.locate(share) for share in np.linspace(0.0, 1.0, FRAMES)[::_HELD].tolist()]
        flows = self.curriculum.run.flows
        networks = [cast(TwoLayer | Deep, flows[stage].network_at(steps)) for stage, steps in places]
        layers = zip(*(n.weights if isinstance(n, Deep) else (n.first, n.second) for n in networks), strict=True)
        return tuple(np.repeat(np.array(layer), _HELD, axis=0)[:FRAMES] for layer in layers)

    @property
    def trained(self) -> tuple[float, ...]:
        """Gradient steps of each stage, infinite for convergence."""
        return tuple(float(stage.steps or 0.0) for stage in self.curriculum.requested)

    @property
    def forgotten(self) -> float:
        """Increase of the loss of task A while task B is learned."""
        return float(self.curriculum.forgetting.values[1, 0])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks about modes that are never learned, for the tasks that are trained."""
        untrained = tuple(f"stage {k + 1} (" for k, steps in enumerate(self.trained) if steps == 0)
        return tuple(one for one in self.curriculum.remarks if not (untrained and one.startswith(untrained)))


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


def learning_of(state: PriorKnowledgeState) -> SequentialLearning:
    """Return how the network learns the tasks, which does not depend on the time shown."""
    return _learning_of(state.model_copy(update={"time": 0.0}))


@lru_cache(maxsize=64)
def _learning_of(state: PriorKnowledgeState) -> SequentialLearning:
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
    settings = json.dumps(state.model_dump(), separators=(",", ":"))
    return f"# learncast forget this-file.toml\n# prior-knowledge {settings}\n{to_toml(tables)}"


#: A function that shows one part, without its validity, notes and clock.
Part = Callable[[PriorKnowledgeState, SequentialLearning], View]


def _complete(show: Part, state: PriorKnowledgeState) -> View:
    """Return the view of a part with its validity, notes and clock."""
    try:
        learning = learning_of(state)
    except InvalidSpec as error:  # these sizes allow no such balance: a valid setting without a network
        return View(validity=validity_report("outside"), notes=(Note(str(error), "warning"),))
    curriculum = learning.curriculum
    validity = validity_report(curriculum.forecast_class, curriculum.trust.assumptions)
    remarks = (Note(f"{remark[:1].upper()}{remark[1:]}.", "error") for remark in learning.remarks)
    notes = (*remarks, *condition_warnings(curriculum.trust.assumptions))
    clock = Clock.until(float(learning.boundaries[-1]), STEPS)
    return replace(show(state, learning), validity=validity, notes=notes, clock=clock)


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
        Reading("time", float(elapsed[k]), STEPS, times[k], times),
        Reading("loss of the task in training", float(frames["loss"][k]), LOSS.unit, losses[k], losses),
    )
    # All frames share one colour scale, so that they can be compared.
    largest = float(np.abs(maps).max())
    return View(tuple(_matrix(*matrix, now=k, largest=largest) for matrix in matrices), readings=readings)


def _forgetting(_: PriorKnowledgeState, learning: SequentialLearning) -> View:
    """Show the loss of either task after each stage, and its changes."""
    after = tuple(f"after {name}" for name in NAMES)
    loss, change = learning.curriculum.losses().values, learning.curriculum.forgetting.values
    charts = (
        _table("loss_after", "Loss of each task", ("initially", *after), loss, LOSS.label),
        _table("forgetting", "Change of loss (above 0: forgotten)", after, change, "change of loss", worse_above=True),
    )
    text = "Learning task B does not raise the loss of task A: nothing is forgotten."
    if learning.forgotten > ROUNDING:
        text = f"Learning task B raises the loss of task A by {learning.forgotten:.4g}."
    return View(charts, readings=_readings(learning), text=text)


def _losses(learning: SequentialLearning) -> Chart:
    times, losses = learning.curves["time"].values, learning.curves["loss"].values
    traces = [
        Trace("line", "data", f"loss of {name}", times, losses[:, k], series=SERIES[k]) for k, name in enumerate(NAMES)
    ]
    if learning.trained[0] > 0:
        after = times[POINTS:]
        naive = learning.naive.at(after - after[0])["loss"].values
        traces.append(Trace("line", "null", "task B without prior knowledge", after, naive, series=Series.TARGET))
    return Chart("losses", "Loss of both tasks", TIME, LOSS, tuple(traces), shades=_stages(learning), main=True)


def _strengths(learning: SequentialLearning) -> Chart:
    traces: list[Trace] = []
    for stage, (solution, name) in enumerate(zip(learning.curriculum.run.flows, NAMES, strict=True)):
        if learning.trained[stage] == 0:
            continue
        times = learning.curves["time"].values[stage * POINTS : (stage + 1) * POINTS]
        strength = solution.at(times - times[0])["strength"].values
        for k, optimum in enumerate(solution.optimum):
            series = Series.MODE + k
            # The legend lists each mode once; shades distinguish the tasks and dashes the optima.
            new = not any(trace.series == series for trace in traces)
            label = f"mode {k + 1}" if new else f"mode {k + 1} of {name}"
            traces.append(Trace("line", "data", label, times, strength[:, k], series=series, legend=new))
            level = times[[0, -1]], np.full(2, optimum)
            traces.append(Trace("line", "target", f"{label}, optimum", *level, series=series, legend=len(traces) == 1))
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
    final = learning.curriculum.losses().values[-1].tolist()
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
    if not math.isfinite(second.flow):  # losses are those at which the flow rests
        return learned
    lost = "Nothing is forgotten."
    if learning.forgotten > ROUNDING:
        lost = f"The loss of task A rises by {format_loss(learning.forgotten)}."
    return f"{learned} {lost}"


def _outcome(steps: Steps) -> str:
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
