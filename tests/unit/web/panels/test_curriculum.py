"""The curriculum panel shows the numbers of the Python interface and exports a study that reproduces them."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pytest

import learncast as lc
import learncast.web.panels.curriculum as module
from learncast import LinearRNN, Stage, descend, follow, tasks
from learncast.networks import Activated
from learncast.planning import portrait_times
from learncast.planning.portrait import rescaled
from learncast.report.phase import phase_report
from learncast.report.plan import plan_report
from learncast.study import Study
from learncast.theory import modes_of_responses
from learncast.web import CurriculumState, all_panels

PANEL = all_panels()[0]
#: Two evaluations of one closed form differ by a few rounding errors.
ROUND_OFF = 1e-12


def trace(view, chart, role, kind=None):
    (found,) = (c for c in view.charts if c.key == chart)
    return next(t for t in found.traces if t.role == role and kind in (None, t.kind))


def reading(view, label):
    (found,) = (r for r in view.readings if r.label == label)
    return found.value


def direct_portrait(state, values=None):
    target = state.task()
    return lc.phase(
        target,
        state.network(target),
        learning_rate=state.learning_rate,
        vary=state.varied,
        values=state.values if values is None else values,
        accuracies=state.stops,
        goal=state.accuracy,
        strict=False,
    )


VARIED = [(family, key) for family, keywords in module.KEYWORDS.items() for key in keywords]


@pytest.mark.parametrize(("family", "vary"), VARIED)
def test_the_portrait_is_that_of_the_python_interface(family, vary):
    which = "vary" if family == "integration" else "vary_leaky"
    state = CurriculumState(family=family, **{which: vary}, grid=30, steps=20, correlation=0.3)
    view = PANEL.parts["portrait"](state)
    own = direct_portrait(state)
    heat = trace(view, "portrait", "theory")
    # The axes are those of lc.figures.portrait: the stop across, the first task's value up.
    assert np.array_equal(heat.z, own["speedup_steps"].values)
    assert np.array_equal(heat.x, own["accuracy"].values)
    assert np.array_equal(heat.y, own[vary].values)
    descent = PANEL.parts["descent"](state)
    assert reading(descent, "direct training") == float(own["direct_descent_steps"])
    assert reading(descent, "direct training (flow)") == float(own["direct_steps"])
    saved = own["saved_descent_steps"]
    best = float(saved.max())
    assert reading(descent, "most steps saved") == best
    point = next(t for t in overlay(state).traces if t.role == "best")
    assert float(saved.sel({vary: point.y[0], "accuracy": point.x[0]})) == best
    line = trace(view, "portrait", "target")
    assert set(line.y) == {getattr(state, vary)}
    zero = trace(view, "portrait", "zero")
    assert zero.kind == "contour"
    assert zero.z is None  # the page draws it on the heat map
    (chart,) = view.charts
    assert chart.picks == ("pin_accuracy", "pin_value")
    assert (chart.y.unit, chart.x.unit, chart.z.unit) == (module.KEYWORDS[family][vary], "1", "steps")


def test_the_study_has_the_same_task_and_network():
    state = CurriculumState(family="leaky_integration", timescale=7.0, correlation=-0.2, gain=1.5, recurrence=0.8)
    study = Study.from_dict(tomllib.loads(PANEL.study(state)), folder=None, source="study")
    assert study.target.hash == state.task().hash
    assert study.network.hash == state.network(state.task()).hash


PINS = [
    {"pin_value": 1.5, "pin_accuracy": 0.6},
    {"pin_value": 2.7, "pin_accuracy": 0.35, "recurrence": 0.8, "learning_rate": 3e-3, "accuracy": 0.9},
    {"family": "leaky_integration", "pin_value": 20.0, "pin_accuracy": 0.6, "correlation": 0.4},
    {"family": "leaky_integration", "vary_leaky": "correlation", "pin_value": 0.5, "pin_accuracy": 0.9, "initial": 0.1},
    {"activation": "relu", "pin_value": 1.5, "pin_accuracy": 0.6, "steps": 3},
]


@pytest.mark.parametrize("settings", PINS)
def test_the_study_of_a_pin_plans_the_steps_shown(settings, tmp_path):
    state = CurriculumState(**settings)
    view = PANEL.parts["pinned"](state)
    file = tmp_path / "this-file.toml"
    file.write_text(PANEL.study(state), encoding="utf-8")
    first = file.read_text(encoding="utf-8").splitlines()[0]
    answer = plan_report(Study.load(file), method="modes" if "--method modes" in first else "auto")
    assert first.startswith("# learncast plan this-file.toml")
    assert answer.values["best"]["descent_steps"] == reading(view, "both stages")
    assert answer.values["direct"]["descent_steps"] == reading(view, "direct training")
    assert answer.values["best"]["saving"] == reading(view, "saved")
    assert view.trust.forecast_class == answer.forecast_class
    assert view.trust.forecast_class == ("response" if state.activation == "relu" else "exact")


def test_a_pin_that_costs_steps_gives_a_warning_and_its_phase_command_the_cost(tmp_path):
    state = CurriculumState(pin_value=0.5, pin_accuracy=0.9)
    view = PANEL.parts["pinned"](state)
    assert reading(view, "saved") < 0
    assert [note.tone for note in view.every_note].count("warning") == 1
    file = tmp_path / "this-file.toml"
    file.write_text(PANEL.study(state), encoding="utf-8")
    study = Study.load(file)
    assert plan_report(study).values["best"]["descent_steps"] == reading(view, "direct training")
    line = next(line for line in PANEL.study(state).splitlines() if line.startswith("# learncast phase"))
    vary, value, stop = re.search(r"--vary (\S+) --values (\S+) --accuracies (\S+)", line).groups()
    grid = phase_report(study, vary=vary, values=np.array([float(value)]), accuracies=np.array([float(stop)]))
    saved = grid.values["direct_descent_steps"] - grid.values["total_descent_steps"][0, 0]
    assert saved == reading(view, "saved")


def test_the_study_without_a_pin_is_the_best_point(tmp_path):
    state = CurriculumState(grid=40)
    file = tmp_path / "this-file.toml"
    file.write_text(PANEL.study(state), encoding="utf-8")
    best = reading(PANEL.parts["descent"](state), "most steps saved")
    assert plan_report(Study.load(file)).values["best"]["saving"] == best
    assert PANEL.study(state).splitlines()[1] == '# explorer, curriculum: {"grid":40}'


def test_the_portrait_at_the_pin_is_the_pinned_curriculum():
    state = CurriculumState(grid=30)
    pin = float(state.values[20]), float(state.stops[12])
    pinned = state.model_copy(update={"pin_value": pin[0], "pin_accuracy": pin[1]})
    z = trace(PANEL.parts["portrait"](pinned), "portrait", "theory").z
    own = direct_portrait(pinned)["saved_descent_steps"].values
    assert own[20, 12] == reading(PANEL.parts["pinned"](pinned), "saved")
    assert z[20, 12] == pytest.approx(own[20, 12], abs=3)  # the flow differs by a few steps
    dot = trace(PANEL.parts["portrait"](pinned), "portrait", "pinned")
    assert (dot.y[0], dot.x[0]) == pin


def test_without_a_pin_in_the_chart_direct_training_runs_alone():
    for state in (
        CurriculumState(),
        CurriculumState(pin_value=1.0),
        CurriculumState(pin_value=900.0, pin_accuracy=0.5),
    ):
        view = PANEL.parts["pinned"](state)
        assert [note.tone for note in view.every_note] == ["plain"]
        race, _ = view.charts
        assert [t.name for t in race.traces if t.role == "data"] == ["direct training"]
        assert next(t for t in race.traces if t.role == "finish").labels == ("331",)
        assert view.clock is not None


@pytest.mark.parametrize("rate", [1e-3, 5e-3])
def test_descent_of_the_modes_is_that_of_the_network(rate):
    target, first = tasks.integration(12), tasks.integration(12, target_strength=1.7)
    network = LinearRNN.aligned(recurrence=0.9, initial=0.1, output_initial=0.2, hidden_size=3, task=target)
    way = follow([Stage(first, goal=0.6), Stage(target, goal=0.99)], network, learning_rate=rate, strict=False)
    steps, strength = module.pinned.descent_strength(way, 1.1 * way.steps.flow)
    alone = descend(first, network, learning_rate=rate, steps=int(steps[-1]))
    best = way.modes[0].optimum[0]
    end = int(np.argmax(np.abs(alone.strength[:, 0] - best) <= 0.4 * best))
    two = descend(target, alone.network_at(end), learning_rate=rate, steps=int(steps[-1]) - end)
    expected = np.concatenate([alone.strength[:end, 0], two.strength[:, 0]])
    # Thousands of steps, each with a few roundings of relative size 2e-16 that the approach to the optimum forgets.
    np.testing.assert_allclose(strength, expected[steps.astype(int)], rtol=1e-11)


def test_a_very_long_descent_is_not_drawn():
    view = PANEL.parts["pinned"](
        CurriculumState(learning_rate=1e-5, initial=1e-4, pin_value=1.5, pin_accuracy=0.6, steps=2)
    )
    assert reading(view, "direct training") > module.pinned.MOST_STEPS
    assert {t.role for t in view.charts[1].traces} == {"theory"}


def test_stages_are_shaded_and_theory_follows_descent():
    view = PANEL.parts["pinned"](CurriculumState(pin_value=1.5, pin_accuracy=0.6, learning_rate=1e-4))
    race, loss, _ = view.charts
    assert race.main
    total = reading(view, "both stages (flow)")
    assert race.shades == loss.shades
    assert [shade[2] for shade in race.shades] == ["target strength 1.5", "integration"]
    assert race.shades[0][1] == race.shades[1][0] == reading(view, "first task")
    assert race.shades[1][1] == reading(view, "both stages") == pytest.approx(total, abs=2)
    # Each curve arrives where its accuracy is reached, after its steps.
    finishes = [t for t in race.traces if t.role == "finish"]
    assert [t.x[0] for t in finishes] == [reading(view, "both stages"), reading(view, "direct training")]
    assert [t.labels for t in finishes] == [(f"{t.x[0]:,.0f}",) for t in finishes]
    np.testing.assert_allclose([t.y[0] for t in finishes], 99, atol=0.1)
    theory, descent = trace(view, "loss", "theory"), trace(view, "loss", "descent")
    at = np.interp(descent.x, theory.x, theory.y)
    # Descent lags behind the flow by a share of learning_rate x curvature (0.004 here), most where it is steepest.
    assert np.abs(at - descent.y).max() < 0.02 * np.abs(theory.y).max()


def test_the_three_terms_add_up_to_the_speedup():
    state = CurriculumState(pin_value=1.5, pin_accuracy=0.6)
    view = PANEL.parts["pinned"](state)
    target, first = state.task(), state.task(1.5)
    stages = [Stage(first, goal=0.6), Stage(target, goal=state.accuracy)]
    why = follow(stages, state.network(target), learning_rate=state.learning_rate).explanation
    bars = trace(view, "terms", "theory")
    assert bars.kind == "bars"
    assert float(np.sum(bars.y)) == pytest.approx(why.paper_speedup_steps, rel=ROUND_OFF)
    ratio = np.array([why.initial_scale, why.cross_ratio, why.closeness]) / np.asarray(bars.y)
    np.testing.assert_allclose(ratio, ratio[0], rtol=ROUND_OFF)


def test_the_terms_of_the_opening_add_up_to_what_the_flow_saves():
    state = PANEL.state_of(PANEL.examples[0])
    view = PANEL.parts["pinned"](state)
    saved = reading(PANEL.parts["descent"](state), "direct training (flow)") - reading(view, "both stages (flow)")
    assert float(np.sum(trace(view, "terms", "theory").y)) == pytest.approx(saved, rel=1e-4)
    assert reading(view, "target after it") == 0
    assert reading(view, "saved") == pytest.approx(saved, abs=1.5)  # whole steps


def test_too_large_a_learning_rate_is_outside_the_theory():
    view = PANEL.parts["portrait"](CurriculumState(learning_rate=0.1))
    assert view.trust.forecast_class == "outside"
    assert any(note.tone == "warning" for note in view.every_note)
    failed = view.trust.failed[0]
    assert failed.name == "stable_learning_rate"
    assert failed.measured > failed.allowed == 2.0
    assert PANEL.parts["portrait"](CurriculumState()).trust.forecast_class == "exact"


def relu_state(**settings):
    return CurriculumState(activation="relu", steps=5, recurrence=0.8, grid=10, **settings)


def test_the_relu_portrait_is_that_of_the_python_interface():
    state = relu_state(target_strength=0.8)
    own = direct_portrait(state)
    view = PANEL.parts["portrait"](state)
    # The panel measures the same trials with a network of other weights.
    np.testing.assert_allclose(trace(view, "portrait", "theory").z, own["speedup_steps"].values, rtol=1e-9)
    assert view.trust.forecast_class == "response"
    assert any("65,536" in note.text for note in view.every_note)


def test_the_relu_portrait_of_tasks_that_are_measured_separately(monkeypatch):
    monkeypatch.setattr("learncast.web.panels.curriculum.MEASURED_COLUMNS", 3)
    state = relu_state(family="leaky_integration", vary_leaky="timescale")
    own = direct_portrait(state, values=np.linspace(2.0, 30.0, 3))
    np.testing.assert_allclose(module.portrait_numbers(state).speedup, own["speedup_steps"], rtol=1e-9)


def test_measured_responses_do_not_depend_on_other_settings(monkeypatch):
    state = relu_state(gain=0.7, family="leaky_integration", vary_leaky="gain")
    module.portrait_numbers(state)
    monkeypatch.setattr("learncast.web.panels.curriculum.response", None)
    faster = state.model_copy(update={"learning_rate": 2e-3, "initial": 0.3, "accuracy": 0.9, "hidden_size": 7})
    np.testing.assert_allclose(
        module.portrait_numbers(faster).speedup, direct_portrait(faster)["speedup_steps"], rtol=1e-9
    )


SCALED = [
    (tasks.integration(6, 1.3, 0.8), "target_strength"),
    (tasks.integration(6, 1.3, 0.8, targets="every_step"), "input_strength"),
    (tasks.leaky_integration(6, 4.0, 0.3), "noise_strength"),
    (tasks.leaky_integration(6, 4.0, 0.3), "gain"),
]


@pytest.mark.parametrize(("target", "vary"), SCALED)
def test_rescaled_responses_equal_measured_ones(target, vary):
    network = Activated(LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=target), "relu")
    own = modes_of_responses(network, [target], 3)[0]
    values = [0.4, 1.9]
    quick = rescaled(own, vary, values)
    slow = modes_of_responses(network, [target.varied(**{vary: value}) for value in values], 3)
    state = {"vary": vary, "values": values, "accuracies": [0.3, 0.8]}
    method = module.method_of((own,), network, 1e-3)
    portraits = [portrait_times(method, firsts=firsts, **state).labelled() for firsts in (quick, slow)]
    # An optimum that equals the target's is stopped at accuracy 1, or by a rounding less.
    for name in set(portraits[0].data_vars) - {"singular_accuracy"}:
        # Control variates are fitted to 256 groups: their regression loses a few digits.
        np.testing.assert_allclose(portraits[0][name], portraits[1][name], rtol=1e-9, atol=1e-9)


def test_responses_to_other_keywords_are_notrescaled():
    target = tasks.leaky_integration(6, 4.0, 0.3)
    network = Activated(LinearRNN.aligned(recurrence=0.8, hidden_size=2, task=target), "relu")
    own = modes_of_responses(network, [target])[0]
    for vary in ("timescale", "correlation", "steps"):
        assert rescaled(own, vary, [2, 3]) is None


def test_the_modes_are_those_of_the_planner():
    state = relu_state()
    network = state.network(state.task())
    own, first = state.modes((1.5,))
    again = modes_of_responses(network, [state.task(), state.task(1.5)])
    assert [m.task.name for m in (own, first)] == [m.task.name for m in again]
    np.testing.assert_allclose(first.weighted_cross, again[1].weighted_cross, rtol=ROUND_OFF)


def test_a_large_difference_between_descent_and_flow_gives_a_text_and_no_warning():
    calm = PANEL.parts["pinned"](CurriculumState(pin_value=1.5, pin_accuracy=0.6))
    edge = PANEL.parts["pinned"](CurriculumState(pin_value=3.0, pin_accuracy=0.3312))
    assert len(edge.every_note) == len(calm.every_note)
    assert not calm.text
    assert "126" in edge.text
    assert {note.tone for note in (*calm.every_note, *edge.every_note)} == {"plain"}


def test_the_first_example_has_no_warning():
    state = PANEL.state_of(PANEL.examples[0])
    assert {note.tone for part in PANEL.parts.values() for note in part(state).every_note} == {"plain"}


def overlay(state):
    return PANEL.parts["descent"](state).overlays["portrait"]


def test_an_arrow_points_beyond_the_edge_at_the_best_point():
    over = overlay(CurriculumState())
    (arrow,) = over.arrows
    assert (arrow.y, arrow.towards) == (3.0, "up")
    star = next(t for t in over.traces if t.role == "best")
    assert (arrow.x, arrow.y) == (star.x[0], star.y[0])
    assert not overlay(CurriculumState(learning_rate=0.005, most_ratio=6.0, initial=0.1)).arrows
    # The colours end at the most that can be saved.
    saved = direct_portrait(CurriculumState())["speedup_steps"].values.max()
    assert PANEL.parts["portrait"](CurriculumState()).charts[0].z.span == (-saved, saved)


def test_points_where_descent_and_flow_differ_are_marked():
    state = CurriculumState(grid=24)
    marks = next(t for t in overlay(state).traces if t.role == "differs")
    numbers = direct_portrait(state)
    flow, descent = numbers["total_steps"].values, numbers["total_descent_steps"].values
    i, j = np.nonzero(np.abs(descent - flow) > 0.05 * flow)
    assert len(i) > 3
    np.testing.assert_array_equal(marks.y, state.values[i])
    np.testing.assert_array_equal(marks.x, state.stops[j])
    calm = overlay(CurriculumState(grid=24, learning_rate=1e-4, most_ratio=1.1))
    assert not [t for t in calm.traces if t.role == "differs"]


ANSWERS = [
    ("pinned", {"pin_value": 1.5, "pin_accuracy": 0.65}, ["1.5", "1", "168", "331"]),
    ("pinned", {"pin_value": 2.5, "pin_accuracy": 0.9}, ["120", "2.5", "1", "90", "210", "118", "331"]),
    ("pinned", {"pin_value": 0.5, "pin_accuracy": 0.9}, ["0.5", "1", "90", "628", "331"]),
    ("pinned", {"pin_value": 1.5, "pin_accuracy": 0.65, "learning_rate": 0.05}, ["1.5", "1"]),
    ("descent", {}, ["3", "1", "31", "81", "331"]),
]


@pytest.mark.parametrize(("part", "changes", "numbers"), ANSWERS)
def test_the_answer_gives_descent_steps_only(part, changes, numbers):
    answer = PANEL.parts[part](CurriculumState(**changes)).answer
    assert re.findall(r"\d+(?:\.\d+)?", answer) == numbers


def test_the_diagram_shows_the_weights_of_descent():
    state = CurriculumState(pin_value=1.5, pin_accuracy=0.65)
    view = PANEL.parts["pinned"](state)
    first, loop, last = view.diagram.edges
    target = state.task()
    stages = [Stage(state.task(1.5), goal=0.65), Stage(target, goal=0.99)]
    pair = follow(stages, state.network(target), learning_rate=1e-3)
    assert loop.weight == 0.96
    assert pair.steps.descent == 168
    steps, strength = module.pinned.descent_strength(pair, float(view.clock.times[-1]))
    # The weights do not change between two steps.
    at = np.searchsorted(steps, view.clock.times, side="right") - 1
    np.testing.assert_array_equal(first.frames * last.frames, strength[at])
