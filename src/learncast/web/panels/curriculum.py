"""The curriculum room: where pretraining pays, and why."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from learncast._core.validation import FloatArray
from learncast.display import bracketed_interval, format_count, format_number
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curriculum import Curriculum, difference, hardly_pays
from learncast.planning.curriculum import followed as follow_stages
from learncast.planning.methods.choice import mode_ground
from learncast.planning.methods.modal import ModeGround
from learncast.planning.phase import PortraitTimes, portrait_times
from learncast.planning.plans.planner import plan_on
from learncast.planning.plans.recommendation import Plan
from learncast.planning.terms import Terms
from learncast.procedure.stage import Stage
from learncast.study.study_file import to_toml
from learncast.tasks.families import FAMILIES
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes, modes_of
from learncast.theory.responses.modes import mode_of_response
from learncast.theory.responses.response import TRIALS, Response, response
from learncast.web.guide import CURRICULUM, CURRICULUM_WORDS
from learncast.web.panel import (
    FIRST,
    MOMENTS,
    TARGET,
    Arrow,
    Axis,
    Clock,
    Drawing,
    Edge,
    Note,
    Overlay,
    Panel,
    Reading,
    Trace,
    Validity,
    View,
    validity_of,
    warnings_of,
)
from learncast.web.panels import own_data
from learncast.web.room import Example, Room, State, control

#: Keywords whose ReLU responses do not follow from the target's own: each value is measured.
_MEASURED = ("timescale", "correlation")
#: Points of a curve.
_POINTS = 400
#: Steps of a descent that are carried out; a longer course is left to the theory.
MOST_STEPS = 100_000
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
MEASURED_COLUMNS = 7

#: Points a side of the coarser grid on which descent is compared with the flow, and from where a difference is shown.
COMPARED, DIFFERENT = 24, 0.05

_UNITS = {"linear": "linear", "relu": "rectified"}
#: What a first task with less or more of a keyword is.
_FIRSTS = {
    "target_strength": ("weaker targets", "stronger targets"),
    "input_strength": ("weaker inputs", "stronger inputs"),
    "timescale": ("a shorter memory", "a longer memory"),
    "correlation": ("less correlated inputs", "more correlated inputs"),
    "noise_strength": ("quieter inputs", "louder inputs"),
    "gain": ("a smaller gain", "a larger gain"),
}

#: The pin, which is a value of what the first task changes.
_PIN = ("pin_value", "pin_accuracy")

#: What is shown only while no trials were dropped on the page.
_MADE = {"data": ("null",)}
_target = partial(control, group="Target")
_integration = partial(_target, span=(0.05, 5.0), step=0.05, when={**_MADE, "family": ("integration",)})
_leaky = partial(_target, when={**_MADE, "family": ("leaky_integration",)})
_first = partial(control, group="First task")
_varied = partial(_first, when=_MADE)
_network = partial(control, group="Network")
_training = partial(control, group="Training")


def _vary(family: str) -> Any:
    """The choice of what the first task changes; at first the family's first keyword."""
    choices = {key: key.replace("_", " ") for key in KEYWORDS[family]}
    note = "What the first task does differently; all else is as in the target."
    when = {**_MADE, "family": (family,)}
    return _first(next(iter(choices)), "changes", choices=choices, help=note, when=when, clears=_PIN)


class CurriculumState(State):
    """What the controls of the curriculum room say."""

    family: Literal["integration", "leaky_integration"] = _target(
        "integration",
        "family",
        choices={"integration": "integration", "leaky_integration": "leaky integration"},
        help="What the target asks for: the sum of the inputs, or a sum that forgets.",
        clears=_PIN,
        when=_MADE,
    )
    steps: int = _target(50, "trial length", (1, 100), 1, unit="steps", when=_MADE)
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
    least_ratio: float = _varied(
        0.2, "from", (0.05, 0.9), 0.05, unit="x target's", help="The least value, as a multiple of the target's."
    )
    most_ratio: float = _varied(
        3.0, "to", (1.1, 10.0), 0.1, unit="x target's", help="The greatest value, as a multiple of the target's."
    )
    activation: Literal["linear", "relu"] = _network(
        "linear",
        "units",
        choices={"linear": "linear", "relu": "ReLU"},
        help="Linear units are solved exactly; ReLU units through responses measured on trials.",
        when=_MADE,
    )
    recurrence: float = _network(0.96, "recurrence", (0.0, 1.05), 0.01, help="Share of its activity that a unit keeps.")
    initial: float = _network(0.01, "initial weights", (1e-4, 1.0), 0.05, scale="log")
    hidden_size: int = _network(
        128, "hidden units", (1, 256), 1, unit="units", help="One learns; the others stay silent."
    )
    learning_rate: float = _training(1e-3, "learning rate", (1e-5, 0.1), 0.05, scale="log")
    accuracy: float = _training(0.99, "accuracy to reach", (0.5, 0.999), 0.001, help="Of the target, at the end.")
    grid: int = control(120, "grid", (10, 200), 10, unit="points a side", group="Picture", folded=True, when=_MADE)
    pin_value: float | None = control(None, "pinned value", (-1000.0, 1000.0), kind="hidden")
    pin_accuracy: float | None = control(None, "pinned stop", (0.0, 0.999), kind="hidden")
    time: float = control(0.0, "moment of the course", (0.0, 1.0), kind="hidden")
    data: str | None = control(None, "dropped trials", kind="hidden", lengths=(0, 64))

    @property
    def asked(self) -> own_data.Asked:
        """What is asked about dropped trials."""
        assert self.data is not None
        keys = ("data", "recurrence", "initial", "hidden_size", "learning_rate", "accuracy")
        return own_data.Asked(**{key: getattr(self, key) for key in keys})

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

    def words(self, value: float) -> str:
        """What a first task with this value is, beside the target."""
        if value == self.own:
            return "the target itself"
        return f"{_FIRSTS[self.varied][value > self.own]} ({value:.3g} beside {self.own:.3g})"

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
    network = {key: getattr(state, key) for key in ("hidden_size", "recurrence", "initial", "activation")}
    first = {"name": state.name(value), "family": state.family, **state.parameters(value)}
    tables = {
        "name": f"{state.name(value)} before {state.name()}",
        "network": {"kind": "linear-rnn", **network},
        "training": {"learning_rate": state.learning_rate, "accuracy": state.accuracy, "max_stages": 2},
        "target": {"name": state.name(), "family": state.family, **state.parameters()},
        "candidates": [{**first, "least_accuracy": stop, "most_accuracy": stop}],
    }
    by = "" if state.activation == "linear" else " --by modes"
    grid = f"--vary {state.varied} --values {value!r} --accuracies {stop!r}"
    lines = [
        f"# learncast plan this-file.toml{by}",
        f"# explorer, curriculum: {state.model_dump_json(exclude_defaults=True)}",
        "# The stop is fixed as it was on the page. Where it costs steps the plan is to train directly; what it costs:",
        f"# learncast phase this-file.toml {grid}",
        to_toml(tables),
    ]
    return "\n".join(lines)


def portrait_numbers(state: CurriculumState) -> PortraitTimes:
    """The portrait that the room draws; labelled it is what `learncast.phase_portrait` returns."""
    return _portrait_numbers(state.model_copy(update={"pin_value": None, "pin_accuracy": None, "time": 0.0}))


@lru_cache(maxsize=16)
def _portrait_numbers(state: CurriculumState) -> PortraitTimes:
    target = state.task()
    network = state.network(target)
    single = isinstance(network, Activated) and state.varied in _MEASURED
    values = values_measured(state) if single else state.values
    own, *each = taken_apart(state, network, target, tuple(values.tolist()) if single else ())
    return portrait_times(
        mode_ground((own,), network, state.learning_rate),
        vary=state.varied,
        values=values,
        accuracies=state.stops,
        accuracy=state.accuracy,
        firsts=each or None,
        strict=False,
    )


def values_measured(state: CurriculumState) -> FloatArray:
    """The fewer values for which responses are measured one by one."""
    return np.linspace(*state.span, min(state.grid, MEASURED_COLUMNS))


@lru_cache(maxsize=64)
def portrait(state: CurriculumState) -> View:
    """Steps saved over the first task's value and its stop, by the flow: quick enough to follow the hand."""
    if state.data is not None:
        return own_data.weighed(state.asked)
    found = portrait_numbers(state)
    picture = Panel(
        "portrait",
        "Steps saved by a first task",
        Axis(f"first task's {state.varied.replace('_', ' ')}", state.unit, span=state.span),
        Axis("accuracy at which it stops", "1", span=(float(found.stops[0]), float(found.stops[-1]))),
        _traces(state, found),
        z=Axis("steps saved", "steps", span=_scale(found.speedup)),
        picks=("pin_value", "pin_accuracy"),
        main=True,
    )
    notes = (*warnings_of(found.assumptions), *_remarks(state, found.speedup))
    return View((picture,), _trusted(state, found), notes=notes, drawing=_drawn(state))


def _trusted(state: CurriculumState, found: PortraitTimes | Curriculum) -> Validity:
    """How far what was found may be trusted."""
    return validity_of("exact" if state.activation == "linear" else "response", found.assumptions)


@lru_cache(maxsize=64)
def counted(state: CurriculumState) -> View:
    """What whole steps of descent say of the portrait: the best of it, and where they are far from the flow."""
    if state.data is not None:  # descent is counted already
        return View(())
    found = portrait_numbers(state)
    best = found.best
    traces = []
    if best is not None:
        place = (np.array([found.values[best[0]]]), np.array([found.stops[best[1]]]))
        traces.append(Trace("points", "best", "saves most", *place))
    rows, columns = (np.unique(np.linspace(0, n - 1, COMPARED).round().astype(int)) for n in found.total.shape)
    i, j = (one.ravel() for one in np.meshgrid(rows, columns, indexing="ij"))
    flow = found.total[i, j]
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.counted(i * found.total.shape[1] + j) - flow) > DIFFERENT * flow
    if apart.any():
        name = "descent and flow differ by more than 5%"
        traces.append(Trace("points", "differs", name, found.values[i[apart]], found.stops[j[apart]]))
    return View(
        (),
        _trusted(state, found),
        _readings(state, found, best),
        answer=_best_answer(state, found, best),
        overlays={"portrait": Overlay(tuple(traces), _beyond(found, best))},
    )


def _scale(saved: FloatArray) -> tuple[float, float]:
    """Ends of the colours: what can be saved, and as much again that can be lost; a first task may cost far more."""
    known = saved[np.isfinite(saved)]
    most = float(known.max(initial=0.0)) or float(np.abs(known).max(initial=0.0)) or 1.0
    return -most, most


def _beyond(found: PortraitTimes, best: tuple[int, int, float] | None) -> tuple[Arrow, ...]:
    """Where the best lies on the picture's edge, a better one may lie beyond."""
    if best is None or best[2] <= 0:
        return ()
    x, y = float(found.values[best[0]]), float(found.stops[best[1]])
    words = "the best lies on the edge: more may be saved beyond"
    if best[0] in (0, len(found.values) - 1):
        return (Arrow(x, y, "right" if best[0] else "left", words),)
    if best[1] in (0, len(found.stops) - 1):
        return (Arrow(x, y, "up" if best[1] else "down", words),)
    return ()


def _best_answer(state: CurriculumState, found: PortraitTimes, best: tuple[int, int, float] | None) -> str:
    direct = found.direct_descent
    if best is not None and best[2] == math.inf:
        value, stop = float(found.values[best[0]]), float(found.stops[best[1]])
        return f"Only after {state.words(value)}, stopped at {stop:.0%}, is the target learned at all."
    if not math.isfinite(direct):
        return "The target is never learned: at this learning rate descent does not settle on it."
    if best is None or best[2] <= 0:
        steps = format_count(direct)
        return f"Do not pretrain: nothing in this picture is quicker than the {steps} steps of direct training."
    value, stop = float(found.values[best[0]]), float(found.stops[best[1]])
    return (
        f"Pretrain on {state.words(value)} until {stop:.0%}: {format_count(direct - best[2])} steps in all instead of "
        f"{format_count(direct)}."
    )


def _drawn(state: CurriculumState, film: FloatArray | None = None) -> Drawing:
    """The tasks as what they ask of each input, and the unit that learns; `film` is its input and output weight."""
    own = [("the target asks", state.task(), TARGET)]
    if state.pin is not None:
        own.append((f"the first task, {state.name(state.pin[0])}, asks", state.task(state.pin[0]), FIRST))
    first, last = (state.initial, state.initial) if film is None else (float(film[-1, 0]), float(film[-1, 1]))
    films = (None, None) if film is None else (film[:, 0], film[:, 1])
    silent = f"; {state.hidden_size - 1} more stay silent" if state.hidden_size > 1 else ""
    return Drawing(
        f"A recurrent network with one {_UNITS[state.activation]} unit that learns{silent}",
        (("input", 1), ("unit", 1), ("output", 1)),
        (
            Edge("input 0", "unit 0", "input weight", first, films[0]),
            Edge("unit 0", "unit 0", "recurrence", state.recurrence),
            Edge("unit 0", "output 0", "output weight", last, films[1]),
        ),
        tuple((words, task.cross_covariance.dense()[::-1, 0, 0, 0], series) for words, task, series in own),
    )


def _traces(state: CurriculumState, portrait: PortraitTimes) -> tuple[Trace, ...]:
    values, stops, saved = portrait.values, portrait.stops, portrait.speedup.T
    found = [
        Trace("heat", "theory", "steps saved", values, stops, np.where(np.isfinite(saved), saved, np.nan)),
        Trace("contour", "zero", "neither saves nor costs"),
        Trace("line", "target", "the target itself", np.full(2, state.own), stops[[0, -1]]),
    ]
    if state.pin is not None:
        found.append(Trace("points", "pinned", "pinned", np.array(state.pin[:1]), np.array(state.pin[1:])))
    return tuple(found)


def _readings(state: CurriculumState, found: PortraitTimes, best: tuple[int, int, float] | None) -> tuple[Reading, ...]:
    direct = found.direct_descent
    readings = [Reading("direct training", direct, "steps", format_count(direct))]
    if best is not None:
        value, stop, most = float(found.values[best[0]]), float(found.stops[best[1]]), best[2]
        readings += [
            Reading("most steps saved", most, "steps", format_count(most)),
            Reading(f"at {state.varied.replace('_', ' ')}", value, state.unit, f"{value:.4g}"),
            Reading("stopped at accuracy", stop, "1", f"{stop:.4g}"),
        ]
    return (*readings, Reading("direct training by the flow", found.direct, "steps", format_number(found.direct)))


def _remarks(state: CurriculumState, saved: FloatArray) -> tuple[Note, ...]:
    notes = []
    never = int(np.isneginf(saved).sum() + np.isnan(saved).sum())
    if never:
        notes.append(Note(f"At {never} of {saved.size} points the target is never learned; they are left blank."))
    rescued = int(np.isposinf(saved).sum())
    if rescued:
        notes.append(Note(f"At {rescued} points the target is learned, which directly it never is; they are blank."))
    if (saved[np.isfinite(saved)] <= 0).all():
        notes.append(Note("Nowhere in this picture does pretraining pay."))
    if state.activation == "relu":
        trials = TRIALS["relu"]
        text = f"Responses are measured on {trials:,} trials; the pinned curriculum shows the interval that leaves."
        if state.varied in _MEASURED:
            columns = len(values_measured(state))
            text += f" Each of the {columns} first tasks is measured by itself, which takes a few seconds."
        notes.append(Note(text))
    return tuple(notes)


@lru_cache(maxsize=64)
def pinned(state: CurriculumState) -> View:
    """The pinned curriculum beside direct training; a word on how to pin one where none is."""
    if state.data is not None:
        return own_data.course(state.asked)
    if state.pin is None:
        away = state.pin_value is not None and state.pin_accuracy is not None
        text = "The pinned curriculum lies outside this picture: " if away else "Follow one curriculum: "
        return View((), notes=(Note(text + "click the picture to pin one."),))
    found, pair = followed(state, *state.pin)
    alone = found.follow([pair.outcomes[-1].stage])
    last = _last(pair, alone)
    trust = _trusted(state, pair)
    return View(
        panels=(*_course_panels(pair, alone, last), _terms_panel(pair)),
        validity=trust,
        readings=_pin_readings(pair),
        notes=(*warnings_of(pair.assumptions), *_pin_remarks(pair)),
        # Where the theory does not hold, the plan's paragraph would repeat the warnings.
        words=found.summary if trust.kind != "outside" else "",
        answer=_pin_answer(state, pair),
        clock=Clock("time", np.linspace(0.0, last, MOMENTS), "steps"),
        drawing=_drawn(state, _weights(pair, last)),
    )


def _pin_answer(state: CurriculumState, pair: Curriculum) -> str:
    """What the pinned curriculum is worth, in whole steps; the flow's beside it."""
    assert state.pin is not None
    assert pair.direct is not None
    words, stop = state.words(state.pin[0]), state.pin[1]
    direct, total = pair.direct.descent_steps, pair.descent_steps
    first, last = (o.descent_steps for o in pair.outcomes)
    if not math.isfinite(total) and not math.isfinite(direct):
        why = "" if math.isinf(pair.direct.flow_steps) else ": at this learning rate descent does not settle"
        return f"The target is never learned, directly or after {words}{why}."
    if not math.isfinite(total):
        alone = f"directly it takes {format_count(direct)} steps"
        return f"Do not pretrain on {words}: after it the target is never learned; {alone}."
    instead = f"instead of {format_count(direct)}" if math.isfinite(direct) else "where directly it is never learned"
    flow = f" (flow: {format_number(pair.flow_steps, 0)} instead of {format_number(pair.direct.flow_steps, 0)})"
    if total >= direct:
        return f"Do not pretrain on {words} until {stop:.0%}: {format_count(total)} steps in all {instead}{flow}."
    if hardly_pays(direct, total):
        spared = f"{format_count(total)} steps in all {instead}"
        return f"Train the target directly: pretraining on {words} until {stop:.0%} hardly pays, {spared}{flow}."
    then = "" if last == 0 else f", then on the target for {format_count(last)}"
    return f"Pretrain on {words} for {format_count(first)} steps{then}: {format_count(total)} {instead} in all{flow}."


def followed(state: CurriculumState, value: float, stop: float) -> tuple[Plan, Curriculum]:
    """The plan with this first task and stop, and the curriculum of both tasks whether or not it pays."""
    target = state.task()
    network = state.network(target)
    own, first = taken_apart(state, network, target, (value,))
    ground = mode_ground((first, own), network, state.learning_rate)
    stages = [Stage(first.task, goal=stop), Stage(own.task, goal=state.accuracy)]
    pair = follow_stages(stages, [0, 1], ground)
    fixed = _planned(state, ground, stop)
    # Where the stop does not pay, the paragraph is about the best that the first task could do.
    return fixed if fixed.pretrains else _planned(state, ground, None), pair


def _planned(state: CurriculumState, ground: ModeGround, stop: float | None) -> Plan:
    """What `learncast.plan` finds, for tasks that have been taken apart already."""
    terms = Terms(accuracy=state.accuracy, goal="modes", least_accuracy=stop, most_accuracy=stop)
    return plan_on(ground, terms.over(1), strict=False)


def _last(pair: Curriculum, alone: Curriculum) -> float:
    """Steps up to which the courses are drawn."""
    ends = [t for way in (pair, alone) for t in (way.flow_steps, way.descent_steps) if math.isfinite(t)]
    return 1.1 * max(ends, default=1000.0) or 1.0


def _weights(pair: Curriculum, last: float) -> FloatArray | None:
    """Input and output weight of the unit at each moment; None where descent is too long, or has several modes."""
    if last > MOST_STEPS or len(pair.modes[-1]) != 1:
        return None
    steps, states = descent_states(pair, last)
    at = np.searchsorted(steps, np.linspace(0.0, last, MOMENTS), side="right") - 1
    return states[at][:, :, 0]


def _course_panels(pair: Curriculum, alone: Curriculum, last: float) -> tuple[Panel, Panel]:
    times = np.linspace(0.0, last, _POINTS)
    target = pair.modes[-1]
    strengths, losses = [], []
    for k, way, name in ((FIRST, pair, "both stages"), (TARGET, alone, "target alone")):
        if last <= MOST_STEPS and len(target) == 1:
            steps, strength = descent_of(way, last)
            strengths.append(Trace("steps", "descent", f"{name}, descent", steps, strength, series=k))
            loss = target.loss(strength[:, None])
            losses.append(Trace("steps", "descent", f"{name}, descent", steps, loss, series=k))
        flow = way.at(times).dataset
        strengths.append(Trace("line", "theory", f"{name}, flow", times, flow["strength"].values[:, 0], series=k))
        losses.append(Trace("line", "theory", f"{name}, flow", times, flow["target_loss"].values, series=k))
    best = float(target.optimum[0])
    strengths.append(Trace("line", "target", "the target's optimum", np.array([0.0, last]), np.full(2, best)))
    x, shades = Axis("training time", "steps", span=(0.0, last), clock=True), _stages(pair)
    return (
        Panel("strength", "What the network computes", x, Axis("effective strength", "target/input"), tuple(strengths),
              shades=shades),
        Panel("loss", "Loss of the target", x, Axis("loss of the target", "target^2"), tuple(losses), shades=shades),
    )  # fmt: skip


def descent_of(way: Curriculum, last: float) -> tuple[FloatArray, FloatArray]:
    """Some of the steps of a curriculum of one mode up to `last`, and the strength after each."""
    steps, states = descent_states(way, last)
    return steps, np.array([float(way.ground.strength(state)[0]) for state in states])


@lru_cache(maxsize=2)
def descent_states(way: Curriculum, last: float) -> tuple[FloatArray, FloatArray]:
    """Some of the steps of a curriculum of one mode up to `last`, and the weights (2, 1) after each."""
    ground, most, begun = way.ground, math.ceil(last), 0
    lengths = [o.descent_steps if math.isfinite(o.descent_steps) else most for o in way.outcomes]
    steps, states = [0.0], [np.asarray(ground.start)]
    # Beyond the last stage its task goes on.
    stages = zip((*way.places, way.places[-1]), (*lengths, most), way.descent_states, strict=True)
    for place, whole_length, state in stages:
        length = min(int(whole_length), most - begun)
        kept = np.unique(np.linspace(0, length, min(_POINTS, length + 1)).round().astype(int))[1:].tolist()
        steps += [float(begun + stop) for stop in kept]
        states += [np.asarray(there[0]) for there in ground.descended(place, [state], kept)]
        begun += length
    return np.array(steps), np.array(states)


def _stages(pair: Curriculum) -> tuple[tuple[float, float, str, int], ...]:
    """Stretches of time in which descent trains each task, as far as they end."""
    found, begin = [], 0.0
    for outcome, series in zip(pair.outcomes, (FIRST, TARGET), strict=True):
        end = begin + outcome.descent_steps
        if not math.isfinite(end):
            break
        if end > begin:
            found.append((begin, end, outcome.stage.task.name, series))
        begin = end
    return tuple(found)


def _terms_panel(pair: Curriculum) -> Panel:
    """The three terms of the printed speedup, each in the steps that it is worth."""
    why = pair.why
    assert why is not None
    names = np.array(["initial scale", "what the first task spends", "closeness to the target"])
    terms = np.array([why.initial_scale, why.cross_ratio, why.closeness])
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = terms / (2 * pair.learning_rate * pair.modes[-1].weighted_cross[why.mode])
    bars = Trace("bars", "theory", "printed speedup, term by term", names, np.where(np.isfinite(steps), steps, np.nan))
    return Panel("terms", "Why", Axis("term of the speedup"), Axis("worth", "steps"), (bars,))


def _pin_readings(pair: Curriculum) -> tuple[Reading, ...]:
    assert pair.direct is not None
    direct, (first, last) = pair.direct, pair.outcomes
    saved = difference(direct.descent_steps, pair.descent_steps)
    rows = (
        ("both stages", pair.descent_steps, pair.descent_interval),
        ("direct training", direct.descent_steps, pair.alone_interval),
        ("saved", saved, pair.saving_interval),
        ("first task", first.descent_steps, None),
        ("target after it", last.descent_steps, None),
    )
    counted = (
        Reading(label, steps, "steps", format_count(steps) + bracketed_interval(interval))
        for label, steps, interval in rows
    )
    flow = format_number(pair.flow_steps) + bracketed_interval(pair.interval)
    return (*counted, Reading("both stages by the flow", pair.flow_steps, "steps", flow))


def _pin_remarks(pair: Curriculum) -> tuple[Note, ...]:
    why = pair.why
    assert why is not None
    notes = [Note(f"{why.sentence[:1].upper()}{why.sentence[1:]}.")]
    if math.isinf(why.closeness):
        notes.append(Note("The first task ends on the target's optimum: that term has no end, and no bar."))
    apart = abs(pair.descent_steps - pair.flow_steps)
    if math.isfinite(apart) and apart > 0.1 * pair.flow_steps:
        text = (
            f"Descent at this learning rate takes {format_count(pair.descent_steps)} steps where the flow takes "
            f"{format_number(pair.flow_steps)}: it ends the first task a little elsewhere, and here a little is much."
        )
        notes.append(Note(text, "warning"))
    assert pair.direct is not None
    saved = difference(pair.direct.descent_steps, pair.descent_steps)
    if saved < 0:
        text = f"Stopped here the first task costs {format_count(-saved)} steps more than it saves."
        notes.append(Note(text, "warning"))
    return tuple(notes)


@lru_cache(maxsize=64)
def _study(state: CurriculumState) -> str:
    if state.data is not None:
        return own_data.study_of(state.asked)
    if state.pin is not None:
        return study_of(state, *state.pin)
    found = portrait_numbers(state)
    value, stop, _ = found.best or (None, -1, 0.0)
    return study_of(state, state.own if value is None else float(found.values[value]), float(found.stops[stop]))


def _opened(token: str) -> Room:
    """The room as dropped trials open it: its examples are still there."""
    task, *_ = own_data.tasks_of(token)
    look = (
        f"{task.trials} trials of {task.steps} steps: move the network and its training, and see when they are learned."
    )
    own = Example("Your trials", look, {"data": token})
    others = tuple(replace(one, changes={**ROOM.opening, **one.changes}) for one in ROOM.examples)
    return replace(ROOM, examples=(own, *others))


def _slow(state: CurriculumState) -> str:
    if state.data is not None:
        return "planning on your trials, resampled for the intervals"
    if state.activation == "linear":
        return ""
    tasks = 1 + (len(values_measured(state)) if state.varied in _MEASURED else 0) + (state.pin is not None)
    return f"measuring the responses of rectified units to {tasks} tasks, {TRIALS['relu']:,} trials each"


ROOM = Room(
    name="curriculum",
    title="Curriculum",
    introduction=(
        "Which first task shortens the way to the target, and when should it stop? Colours say how many steps are "
        "saved; drag the pin to follow one curriculum."
    ),
    state=CurriculumState,
    parts={"portrait": portrait, "counted": counted, "pinned": pinned},
    study=_study,
    slow=_slow,
    examples=CURRICULUM,
    words=CURRICULUM_WORDS,
    drops="trials (.npz with inputs and targets, or .csv with a row for each trial and step)",
    opened=_opened,
)
