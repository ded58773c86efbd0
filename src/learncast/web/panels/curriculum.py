"""The curriculum panel: where pretraining pays, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from learncast import Accuracy, Activated, Forecast, LinearRNN, Plan, Stage, Task, Terms, Training
from learncast._core.validation import FloatArray
from learncast.display import format_count
from learncast.planning.defaults import HIDDEN
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.methods.responses import ResponseModeMethod
from learncast.planning.planner import plan_with
from learncast.planning.portrait import PortraitTimes, portrait_times
from learncast.procedure.goals import DATA_GOAL, FAMILY_GOAL
from learncast.study.study_file import to_toml
from learncast.tasks.families import FAMILIES
from learncast.theory.assumptions import Trust
from learncast.theory.dynamics.modes import Modes, modes_of
from learncast.theory.responses.modes import mode_of_response
from learncast.theory.responses.response import TRIALS, Response, response
from learncast.web.chart import Arrow, Chart, ChartAxis, Overlay, Series, Trace
from learncast.web.panel import Panel, State, control, help_texts, remembered, settings_line
from learncast.web.panels import own_data, pinned, planned
from learncast.web.view import Clock, Diagram, Note, Reading, View

#: Keywords for which the responses of ReLU units do not follow from the target's: each value is measured.
_MEASURED = ("timescale", "correlation")
#: Most first tasks whose responses are measured.
MEASURED_COLUMNS = 7
#: Keywords of each family that have controls, with their units; the first task changes one of them.
KEYWORDS: dict[str, dict[str, str]] = {
    "integration": {"target_strength": "target x input", "input_strength": "input^2"},
    "leaky_integration": {
        "timescale": "steps",
        "correlation": "1",
        "noise_strength": "input^2",
        "gain": "target/input",
    },
}
#: Values of the correlation in the chart; other keywords run over multiples of the target's value.
CORRELATIONS = (-0.95, 0.95)
#: Accuracies at which the first task may stop.
STOPS = (0.01, 0.99)
#: Points per side of the grid on which descent is compared with the flow, and relative difference that is marked.
COMPARED, DIFFERENT = 24, 0.05

_UNITS = {"linear": "linear", "relu": "rectified"}
#: Descriptions of a first task with a smaller and with a larger value.
_FIRSTS = {
    "target_strength": ("weaker targets", "stronger targets"),
    "input_strength": ("weaker inputs", "stronger inputs"),
    "timescale": ("a shorter memory", "a longer memory"),
    "correlation": ("less correlated inputs", "more correlated inputs"),
    "noise_strength": ("quieter inputs", "louder inputs"),
    "gain": ("a smaller gain", "a larger gain"),
}

_FAMILIES = {key: key.replace("_", " ") for key in KEYWORDS} | {"composed": "sum of parts"}
_PIN = ("pin_value", "pin_accuracy")
#: Condition of the controls that are hidden while dropped trials are shown.
_MADE = {"data": ("null",)}
#: Condition of the controls of the families with a chart of first tasks.
_CHARTED = {**_MADE, "family": tuple(KEYWORDS)}
_composed = partial(control, when={**_MADE, "family": ("composed",)})
_parts, _layered = partial(_composed, group="Target"), partial(_composed, group="Network")
_target = partial(control, group="Target")
_integration = partial(_target, span=(0.05, 5.0), step=0.05, when={**_MADE, "family": ("integration",)})
_leaky = partial(_target, when={**_MADE, "family": ("leaky_integration",)})
_first = partial(control, group="First task")
_varied = partial(_first, when=_CHARTED)
_network = partial(control, group="Network", when={"family": tuple(KEYWORDS)})
_training = partial(control, group="Training")


def _vary(family: str) -> Any:
    """Make the control that chooses what the first task changes."""
    choices = {key: key.replace("_", " ") for key in KEYWORDS[family]}
    when = {**_MADE, "family": (family,)}
    return _first(next(iter(choices)), "changes", choices=choices, when=when, clears=_PIN)


class CurriculumState(State):
    """Settings of the curriculum panel."""

    family: Literal["integration", "leaky_integration", "composed"] = _target(
        "integration", "family", choices=_FAMILIES, clears=_PIN, when=_MADE
    )
    steps: int = _target(50, "trial length", (1, 100), 1, unit="steps", when=_CHARTED)
    parts: int = _parts(2, "parts", (2, 4), 1, unit="tasks")
    part_inputs: Literal["shared", "separate"] = _parts(
        "separate", "inputs of the parts", choices={"shared": "shared", "separate": "separate"}
    )
    angle: float = _parts(75.0, "angle between parts", (0.0, 90.0), 1, unit="degrees")
    first_part: float = _parts(1.0, "strength of part 1", (0.1, 5.0), 0.05, unit="target/input")
    other_parts: float = _parts(1.0, "strength of the others", (0.1, 5.0), 0.05, unit="target/input")
    layers: int = _layered(3, "layers", (2, 4), 1, unit="layers")
    units: int = _layered(6, "hidden units of a layer", (2, 32), 1, unit="units")
    start_scale: float = _layered(0.25, "scale of the initial weights", (0.01, 1.0), 0.05, scale="log")
    seed: int = _layered(1, "random seed", (0, 99), 1, unit="seed")
    target_strength: float = _integration(1.0, "target strength", unit="target x input")
    input_strength: float = _integration(1.0, "input strength", unit="input^2")
    timescale: float = _leaky(10.0, "timescale", (1.0, 100.0), 0.5, unit="steps")
    correlation: float = _leaky(0.0, "input correlation", CORRELATIONS, 0.01)
    noise_strength: float = _leaky(1.0, "noise strength", (0.05, 5.0), 0.05, unit="input^2")
    gain: float = _leaky(1.0, "gain", (0.05, 5.0), 0.05, unit="target/input")
    vary: Literal["target_strength", "input_strength"] = _vary("integration")
    vary_leaky: Literal["timescale", "correlation", "noise_strength", "gain"] = _vary("leaky_integration")
    least_ratio: float = _varied(0.2, "from", (0.05, 0.9), 0.05, unit="x target's")
    most_ratio: float = _varied(3.0, "to", (1.1, 10.0), 0.1, unit="x target's")
    activation: Literal["linear", "relu"] = _network(
        "linear", "units", choices={"linear": "linear", "relu": "ReLU"}, when=_CHARTED
    )
    recurrence: float = _network(0.96, "recurrence", (0.0, 1.05), 0.01)
    initial: float = _network(0.01, "initial weights", (1e-4, 1.0), 0.05, scale="log", when=_CHARTED)
    hidden_size: int = _network(128, "hidden units", (1, 256), 1, unit="units")
    learning_rate: float = _training(1e-3, "learning rate", (1e-5, 0.1), 0.05, scale="log", allowed=own_data.RATES)
    accuracy: float = _training(FAMILY_GOAL.value, "accuracy to reach", (0.5, 0.999), 0.001, when=_MADE)
    explained: float = _training(
        DATA_GOAL.value, "explained share to reach", (0.5, 0.999), 0.001, when={"data": ("!null",)}
    )
    grid: int = control(120, "grid", (10, 200), 10, unit="points per side", group="Chart", folded=True, when=_CHARTED)
    pin_value: float | None = control(None, "pinned value", (-1000.0, 1000.0), kind="hidden")
    pin_accuracy: float | None = control(None, "pinned stop", (0.0, 0.999), kind="hidden")
    time: float = control(0.0, "time shown", (0.0, 1.0), kind="hidden")
    data: str | None = control(None, "dropped trials", kind="hidden", lengths=(0, 64))

    @property
    def plan(self) -> Plan | None:
        """Plan with given candidates, for dropped trials or a sum of parts."""
        if self.data is not None:
            return own_data.own_plan(self)
        return planned.composed_plan(self) if self.family == "composed" else None

    @property
    def varied(self) -> str:
        """Keyword that the first task changes."""
        return self.vary if self.family == "integration" else self.vary_leaky

    @property
    def unit(self) -> str:
        """Unit of that keyword."""
        return KEYWORDS[self.family][self.varied]

    @property
    def own(self) -> float:
        """The target's value of that keyword."""
        return float(getattr(self, self.varied))

    @property
    def span(self) -> tuple[float, float]:
        """Smallest and largest value of that keyword in the chart."""
        if self.varied == "correlation":
            return CORRELATIONS
        return self.own * self.least_ratio, self.own * self.most_ratio

    @property
    def values(self) -> FloatArray:
        """Values of that keyword in the chart, fewer if the response to each is measured."""
        return np.linspace(*self.span, min(self.grid, MEASURED_COLUMNS) if self.measures_each else self.grid)

    @property
    def measures_each(self) -> bool:
        """Whether the responses to every first task are measured."""
        return self.activation == "relu" and self.varied in _MEASURED

    @property
    def stops(self) -> FloatArray:
        """Accuracies at which the first task stops."""
        return np.linspace(*STOPS, self.grid)

    @property
    def pin(self) -> tuple[float, float] | None:
        """Value and stop of the pinned curriculum; None if there is none within the chart."""
        if self.pin_value is None or self.pin_accuracy is None:
            return None
        low, high = self.span
        return (self.pin_value, self.pin_accuracy) if low <= self.pin_value <= high else None

    def parameters(self, value: float | None = None) -> dict[str, float | int]:
        """Return the keywords of the target, or of the first task with this value."""
        own = {key: float(getattr(self, key)) for key in KEYWORDS[self.family]}
        return {"steps": self.steps, **own, **({} if value is None else {self.varied: value})}

    def task(self, value: float | None = None) -> Task:
        """Return the target, or the first task with this value."""
        return FAMILIES[self.family].build(**self.parameters(value), name=self.name(value))

    def name(self, value: float | None = None) -> str:
        """Return the name of the target, or of the first task with this value."""
        if value is None:
            return self.family.replace("_", " ")
        return f"{self.varied.replace('_', ' ')} {value:.4g}"

    def describe(self, value: float) -> str:
        """Describe the first task with this value."""
        if value == self.own:
            return "the target itself"
        return f"a task with {_FIRSTS[self.varied][value > self.own]} ({value:.3g} instead of {self.own:.3g})"

    def network(self, target: Task) -> LinearRNN | Activated:
        """Return the network before training."""
        weights = LinearRNN.aligned(
            recurrence=self.recurrence, initial=self.initial, hidden_size=self.hidden_size, task=target
        )
        return weights if self.activation == "linear" else Activated(weights, self.activation)

    def modes(self, values: tuple[float, ...] = ()) -> tuple[Modes, ...]:
        """Return the modes of the target, then of the first task with each of the values."""
        target = self.task()
        network = self.network(target)
        if isinstance(network, LinearRNN):
            return tuple(modes_of([target, *(self.task(value) for value in values)], network))
        keywords = [(tuple(sorted(self.parameters(value).items())), self.name(value)) for value in (None, *values)]
        responses = (_measured_response(self.family, *one, self.recurrence) for one in keywords)
        return tuple(mode_of_response(one.moved(network)) for one in responses)

    @property
    def promise(self) -> str:
        """Class of the forecasts if all conditions hold."""
        return "exact" if self.activation == "linear" else "response"


@lru_cache(maxsize=256)
def _measured_response(family: str, keywords: tuple[tuple[str, float], ...], name: str, recurrence: float) -> Response:
    """Measure the response to a task, which depends only on the recurrence besides the task."""
    task = FAMILIES[family].build(**dict(keywords), name=name)
    weights = LinearRNN.aligned(recurrence=recurrence, hidden_size=1, task=task)
    return response(task, Activated(weights, "relu"), rng=0)


@remembered(16, except_for="pin_value pin_accuracy time")
def portrait_numbers(state: CurriculumState) -> PortraitTimes:
    """Return the numbers of the phase portrait, those of `learncast.phase`."""
    values = state.values
    own, *firsts = state.modes(tuple(values.tolist()) if state.measures_each else ())
    return portrait_times(
        method_of((own,), state.network(own.task), state.learning_rate),
        vary=state.varied,
        values=values,
        accuracies=state.stops,
        accuracy=state.accuracy,
        firsts=firsts or None,
        strict=False,
    )


@lru_cache(maxsize=64)
def portrait(state: CurriculumState) -> View:
    """Show the flow steps saved over the first task's value and its stop."""
    if (plan := state.plan) is not None:
        return planned.comparison(plan)
    numbers = portrait_numbers(state)
    values, stops, saved = numbers.values, numbers.stops, numbers.speedup
    traces = [
        Trace("heat", "theory", "steps saved", stops, values, np.where(np.isfinite(saved), saved, np.nan)),
        Trace("contour", "zero", "neither saves nor costs"),
        Trace("line", "target", "the target itself", stops[[0, -1]], np.full(2, state.own)),
    ]
    if state.pin is not None:
        traces.append(Trace("points", "pinned", "pinned", np.array(state.pin[1:]), np.array(state.pin[:1])))
    known = saved[np.isfinite(saved)]
    # The colours end at the most that can be saved; a first task may cost far more.
    most = float(known.max(initial=0.0)) or float(np.abs(known).max(initial=0.0)) or 1.0
    axes = (
        ChartAxis("accuracy at which it stops", "1", span=(float(stops[0]), float(stops[-1]))),
        ChartAxis(f"first task's {state.varied.replace('_', ' ')}", state.unit, span=state.span),
    )
    z = ChartAxis("steps saved", "steps", span=(-most, most))
    chart = Chart("portrait", "Steps saved by a first task", *axes, tuple(traces), z=z, picks=_PIN[::-1], side=True)
    trust, notes = Trust(tuple(numbers.assumptions), state.promise), _portrait_notes(state, numbers.speedup)
    return View((chart,), trust, notes=notes, diagram=diagram(state))


def _portrait_notes(state: CurriculumState, saved: FloatArray) -> tuple[Note, ...]:
    never, rescued = (np.isneginf(saved) | np.isnan(saved)).sum(), np.isposinf(saved).sum()
    measured = f"Responses are measured on {TRIALS['relu']:,} trials; the pinned curriculum shows the interval."
    if state.measures_each:
        measured += f" Each of {len(state.values)} first tasks is measured, which takes a few seconds."
    notes = {
        f"At {never} of {saved.size} points, left blank, the target is not learned.": never > 0,
        f"At {rescued} points, left blank, the target is learned only with pretraining.": rescued > 0,
        "Pretraining does not pay anywhere in this chart.": (saved[np.isfinite(saved)] <= 0).all(),
        measured: state.activation == "relu",
    }
    return tuple(Note(text) for text, holds in notes.items() if holds)


@lru_cache(maxsize=64)
def descent(state: CurriculumState) -> View:
    """Show the best point of the portrait in steps of descent, and where descent and flow differ."""
    if state.data is not None or state.family == "composed":  # the comparison counts descent steps already
        return View()
    numbers = portrait_numbers(state)
    best, traces = numbers.best, []
    if best is not None:
        point = np.array([numbers.stops[best[1]]]), np.array([numbers.values[best[0]]])
        traces.append(Trace("points", "best", "saves most", *point))
    rows, columns = (np.unique(np.linspace(0, n - 1, COMPARED).round().astype(int)) for n in numbers.total.shape)
    i, j = (index.ravel() for index in np.meshgrid(rows, columns, indexing="ij"))
    flow = numbers.total[i, j]
    with np.errstate(invalid="ignore"):
        differs = np.abs(numbers.descent_steps(i * numbers.total.shape[1] + j) - flow) > DIFFERENT * flow
    if differs.any() and math.isfinite(numbers.direct_descent):
        name = "descent and flow differ by more than 5%"
        traces.append(Trace("points", "differs", name, numbers.stops[j[differs]], numbers.values[i[differs]]))
    return View(
        trust=Trust(tuple(numbers.assumptions), state.promise),
        readings=_best_readings(state, numbers),
        answer=_best_answer(state, numbers),
        overlays={"portrait": Overlay(tuple(traces), _edge_arrows(numbers), _best_caption(state, numbers))},
    )


def _edge_arrows(numbers: PortraitTimes) -> tuple[Arrow, ...]:
    """Point beyond the chart if the best point lies on its edge."""
    best = numbers.best
    if best is None or best[2] <= 0:
        return ()
    x, y = float(numbers.stops[best[1]]), float(numbers.values[best[0]])
    text = "more may be saved beyond this edge"
    if best[0] in (0, len(numbers.values) - 1):
        return (Arrow(x, y, "up" if best[0] else "down", text),)
    return (Arrow(x, y, "right" if best[1] else "left", text),) if best[1] in (0, len(numbers.stops) - 1) else ()


def _best_answer(state: CurriculumState, numbers: PortraitTimes) -> str:
    best, direct = numbers.best, numbers.direct_descent
    if not math.isfinite(direct) and (best is None or best[2] != math.inf):
        if math.isinf(numbers.direct):
            return "The target is never learned, neither by the flow nor by descent."
        return "The target is not learned: at this learning rate descent does not converge."
    if best is None or best[2] <= 0:
        return f"Train the target directly: no first task in this chart needs fewer than {format_count(direct)} steps."
    stop = float(numbers.stops[best[1]])
    first = f"Train on {state.describe(float(numbers.values[best[0]]))} until {stop:.0%} accuracy first"
    if best[2] == math.inf:
        return f"{first}: without it the target is not learned."
    return f"{first}: {format_count(direct - best[2])} steps in total. Direct training takes {format_count(direct)}."


def _best_caption(state: CurriculumState, numbers: PortraitTimes) -> str:
    """Name the best point of the portrait below it; the answer is about the pinned curriculum."""
    best = numbers.best
    if best is None or not 0 < best[2] < math.inf:
        return ""
    first, stop = state.describe(float(numbers.values[best[0]])), float(numbers.stops[best[1]])
    total = format_count(numbers.direct_descent - best[2])
    return f"★ Best in this map: {first} until {stop:.0%} accuracy, {total} steps in total."


def _best_readings(state: CurriculumState, numbers: PortraitTimes) -> tuple[Reading, ...]:
    direct = Reading.steps("direct training", numbers.direct_descent), Reading.flow("direct training", numbers.direct)
    if state.pin is not None:  # its readings are shown
        direct = replace(direct[0], shown=False), replace(direct[1], shown=False)
    if numbers.best is None:
        return direct
    row, column, saved = numbers.best
    value, stop = float(numbers.values[row]), float(numbers.stops[column])
    best = partial(Reading, group="Best in the portrait", shown=False)  # the portrait's caption shows them
    return (
        best("most steps saved", saved, "steps", format_count(saved) if saved < math.inf else "all"),
        best(f"at {state.varied.replace('_', ' ')}", value, state.unit, f"{value:.4g}"),
        best("stopped at accuracy", stop, "1", f"{stop:.3g}"),
        *direct,
    )


def diagram(state: CurriculumState, weights: FloatArray | None = None) -> Diagram:
    """Draw the tasks and the unit that learns; `weights` are its input and output weight at each frame."""
    tasks = [("target", state.task(), Series.TARGET)]
    if state.pin is not None:
        tasks.append((f"first task, {state.name(state.pin[0])}", state.task(state.pin[0]), Series.FIRST))
    initial = (state.initial, None)
    first, last = (initial, initial) if weights is None else ((float(w[-1]), w) for w in (weights[:, 0], weights[:, 1]))
    silent = f"; the other {state.hidden_size - 1} stay silent" if state.hidden_size > 1 else ""
    caption = f"A recurrent network with one {_UNITS[state.activation]} unit that learns{silent}"
    strengths = ((label, task.cross_covariance.dense()[::-1, 0, 0, 0], series) for label, task, series in tasks)
    return Diagram.single_unit(caption, (first, (state.recurrence, None), last), tuple(strengths))


@lru_cache(maxsize=64)
def pinned_curriculum(state: CurriculumState) -> View:
    """Show the pinned curriculum and direct training, or how to pin one."""
    if (plan := state.plan) is not None:
        return planned.loss_curves(plan)
    if state.pin is None:
        return _direct_training(state)
    plan, curriculum = followed(state, *state.pin)
    best = plan_with(plan.method, Terms(plan.goal), strict=False)
    direct = plan.follow([curriculum.requested[-1]])
    last = pinned.last_step((curriculum, direct))
    return View(
        charts=(
            *pinned.charts({"curriculum": curriculum, "direct training": direct}, last),
            pinned.terms_chart(curriculum),
        ),
        trust=curriculum.trust,
        readings=pinned.readings(curriculum),
        notes=pinned.notes(curriculum),
        text=pinned.difference(curriculum),
        answer=pinned.answer(curriculum, state.describe(state.pin[0]), state.pin[1], best.total),
        clock=Clock.until(last),
        diagram=diagram(state, pinned.weights(curriculum, last)),
    )


def _direct_training(state: CurriculumState) -> View:
    """Show direct training only, and how to race a curriculum against it."""
    (own,) = state.modes(())
    method = method_of((own,), state.network(own.task), state.learning_rate)
    direct = Forecast(method, (Stage(own.task, Accuracy(state.accuracy)),), (0,))
    last = pinned.last_step((direct,))
    outside = state.pin_value is not None and state.pin_accuracy is not None
    text = "The pinned curriculum lies outside the portrait. " if outside else ""
    return View(
        charts=pinned.charts({"direct training": direct}, last),
        notes=(Note(f"{text}Click the portrait to race a curriculum against direct training."),),
        clock=Clock.until(last),
    )


def followed(state: CurriculumState, value: float, stop: float) -> tuple[Plan, Forecast]:
    """Return the curriculum with this first task and stop, and the plan to compare it with.

    The plan has the same stop if that pays; otherwise it is the best plan with this first task.
    """
    own, first = state.modes((value,))
    method = method_of((first, own), state.network(own.task), state.learning_rate)
    goal = Accuracy(state.accuracy)
    stages = (Stage(first.task, Accuracy(stop)), Stage(own.task, goal))
    plan = plan_with(method, Terms(goal, least_accuracy=stop, most_accuracy=stop), strict=False)
    if not plan.pretrains:
        plan = plan_with(method, Terms(goal), strict=False)
    return plan, Forecast(method, stages, (0, 1))


def method_of(modes: tuple[Modes, ...], network: LinearRNN | Activated, learning_rate: float) -> ModeMethod:
    """Return the method of modes that have been computed already, the target's last."""
    kind = ResponseModeMethod if isinstance(network, Activated) else ModeMethod
    return kind(modes, network, Training(learning_rate))


@lru_cache(maxsize=64)
def study_of(state: CurriculumState) -> str:
    """Return the study of the pinned curriculum, of the best one if none is pinned, or of dropped trials."""
    if state.data is not None:
        return own_data.study_of(state)
    settings = settings_line("curriculum", state)
    if state.family == "composed":
        return f"# learncast plan this-file.toml\n{settings}\n{to_toml(planned.composed_study(state))}"
    if state.pin is None:
        numbers = portrait_numbers(state)
        best = numbers.best
        value = state.own if best is None else float(numbers.values[best[0]])
        stop = float(numbers.stops[-1 if best is None else best[1]])
    else:
        value, stop = state.pin
    network = {key: getattr(state, key) for key in ("hidden_size", "recurrence", "initial", "activation")}
    first = {"name": state.name(value), "family": state.family, **state.parameters(value)}
    tables = {
        "name": f"{state.name(value)} before {state.name()}",
        "network": {"kind": "linear-rnn", **network},
        "training": {"learning_rate": state.learning_rate, "accuracy": state.accuracy, "max_stages": 2},
        "target": {"name": state.name(), "family": state.family, **state.parameters()},
        "candidates": [{**first, "least_accuracy": stop, "most_accuracy": stop}],
    }
    method = "" if state.activation == "linear" else " --method modes"
    lines = [
        f"# learncast plan this-file.toml{method}",
        settings,
        "# The stop is fixed. If it costs steps, the plan is to train directly; this command shows the cost:",
        f"# learncast phase this-file.toml --vary {state.varied} --values {value!r} --accuracies {stop!r}",
        to_toml(tables),
    ]
    return "\n".join(lines)


def _open_trials(token: str) -> Panel:
    """Return the panel for dropped trials; its other examples stay."""
    changes, look = own_data.opening(token)
    return PANEL.opened("Your trials", look, {**changes, "hidden_size": HIDDEN})


def _slow(state: CurriculumState) -> str:
    if state.data is not None:
        return "planning on your trials, resampled for the intervals"
    if state.family == "composed":
        return "planning the order of the parts"
    if state.activation == "linear":
        return ""
    tasks = 1 + (len(state.values) if state.measures_each else 0) + (state.pin is not None)
    return f"measuring the responses of rectified units to {tasks} tasks, {TRIALS['relu']:,} trials each"


PANEL = Panel(
    name="curriculum",
    **help_texts("curriculum"),
    state=CurriculumState,
    parts={"portrait": portrait, "descent": descent, "pinned": pinned_curriculum},
    study=study_of,
    slow=_slow,
    drops="trials (.npz with inputs and targets, or .csv with a row for each trial and step)",
    open_file=_open_trials,
)
