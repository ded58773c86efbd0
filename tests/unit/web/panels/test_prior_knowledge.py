"""The prior knowledge panel shows the numbers of the Python interface and of an independent integration."""

from __future__ import annotations

import json
import math
import re
import tomllib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import solve_ivp

import learncast as lc
import learncast.web.panels.prior_knowledge as module
from learncast import TwoLayer
from learncast.report.forget import forget_report as forgotten
from learncast.study import Study
from learncast.tasks import static
from learncast.web import FRAMES, PriorKnowledgeState, View, all_panels, to_plain

PANEL = next(panel for panel in all_panels() if panel.name == "prior-knowledge")
DEFAULT = PriorKnowledgeState()
RANGES = [c for c in PANEL.controls if c.kind == "range"]
WHOLE = ("size", "layers", "hidden_size", "seed")
#: Each control at its bounds or with each of its choices.
EXTREMES = [
    (c.key, int(value) if c.key in WHOLE else value)
    for c in PANEL.controls
    for value in ((c.least, c.most) if c.kind == "range" else [key for key, _ in c.choices])
]


def checked(view: View) -> View:
    """Check that axes have units, arrays have equal shapes, and the view can be sent as JSON."""
    assert view.trust is not None
    assert view.trust.standing[1]
    for chart in view.charts:
        axes = [chart.x, chart.y, *([chart.z] if chart.z else [])]
        assert all(axis.unit and axis.label for axis in axes)
        for trace in chart.traces:
            if trace.kind == "heat":
                assert np.shape(trace.z) == (len(trace.y), len(trace.x))
            else:
                assert np.shape(trace.x) == np.shape(trace.y)
    json.dumps(to_plain(view), allow_nan=False)
    return view


def shown(state: PriorKnowledgeState) -> dict[str, View]:
    return {name: checked(part(state)) for name, part in PANEL.parts.items()}


def reading(view: View, label: str) -> float:
    return next(r.value for r in view.readings if r.label == label)


def chart(view: View, key: str):
    return next(c for c in view.charts if c.key == key)


def rotation(size: int, degrees: float) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    matrix = np.eye(size)
    matrix[:2, :2] = [[c, -s], [s, c]]
    if size >= 4:
        matrix[2:4, 2:4] = [[c, -s], [s, c]]
    return matrix


def expected_maps(state: PriorKnowledgeState) -> list[np.ndarray]:
    strengths = np.diag([state.decay**k for k in range(state.size)])
    rotated = rotation(state.size, state.output_angle) @ strengths @ rotation(state.size, state.input_angle).T
    return [state.first_strength * strengths, state.second_strength * rotated]


def test_every_field_of_the_state_has_a_control_with_its_bounds():
    assert {c.key for c in PANEL.controls} == set(PriorKnowledgeState.model_fields)
    for control in PANEL.controls:
        assert getattr(DEFAULT, control.key) == control.default
    for control in RANGES:
        for beyond in (control.least - 1e-3 - abs(control.least), control.most * 1.01 + 1):
            with pytest.raises(ValidationError) as error:
                PriorKnowledgeState(**{control.key: beyond})
            assert error.value.errors()[0]["loc"] == (control.key,)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_tasks_are_rotated_by_the_chosen_angles(size):
    state = PriorKnowledgeState(size=size, input_angle=25.0, output_angle=130.0)
    for task, cross in zip(module.two_tasks(state), expected_maps(state), strict=True):
        found = task.cross_covariance.dense()[0, :, 0, :].T
        np.testing.assert_allclose(found, cross, atol=1e-15 * 10)  # sums of three roundings of numbers up to 2


def test_numbers_are_those_of_the_python_interface():
    first, second = (static(c, name=n) for c, n in zip(expected_maps(DEFAULT), "AB", strict=True))
    network = TwoLayer.balanced(3, 3, 3, scale=0.1, rng=np.random.default_rng(DEFAULT.seed))
    loss = lc.forget([first, second], network, learning_rate=0.05).losses().values
    views = shown(DEFAULT)
    # The tasks are the same to rounding, which the exact flow does not amplify beyond a few digits.
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(chart(views["forgetting"], "loss_after").traces[0].z, loss, **close)
    np.testing.assert_allclose(chart(views["forgetting"], "forgetting").traces[0].z, np.diff(loss, axis=0), **close)
    learned = lc.forecast(first, network, learning_rate=0.05).solution
    then = lc.forecast(second, learned.network_at(math.inf), learning_rate=0.05).solution
    naive = lc.forecast(second, network, learning_rate=0.05).solution
    for view in (views["learning"], views["forgetting"]):
        labels = ("task A is learned in", "task B is learned in", "task B without prior knowledge")
        for label, way in zip(labels, (learned, then, naive), strict=True):
            times = way.time_to(0.99)
            assert reading(view, label) == times.descent_steps
            assert reading(view, f"{label} (flow)") == pytest.approx(times.flow_steps, rel=1e-9)
        assert reading(view, "forgotten of task A") == pytest.approx(loss[2, 0] - loss[1, 0], rel=1e-9)
    assert views["learning"].trust.forecast_class == "exact"
    assert not views["learning"].every_note


def integrated(state: PriorKnowledgeState, spans: list[float]) -> list[tuple[np.ndarray, np.ndarray]]:
    """First and second weights after each stage, by integrating the gradient of the loss itself."""
    network = module.starting_network(state)
    shapes = network.first.shape, network.second.shape
    cut = network.first.size
    y, found = np.concatenate([network.first.ravel(), network.second.ravel()]), []
    for cross, span in zip(expected_maps(state), spans, strict=True):

        def flow(_, y, cross=cross):
            first, second = y[:cut].reshape(shapes[0]), y[cut:].reshape(shapes[1])
            error = cross - second @ first
            return np.concatenate([(second.T @ error).ravel(), (error @ first.T).ravel()])

        run = solve_ivp(flow, (0, state.learning_rate * span), y, method="DOP853", rtol=1e-11, atol=1e-13)
        y = run.y[:, -1]
        found.append((y[:cut].reshape(shapes[0]), y[cut:].reshape(shapes[1])))
    return found


def descended(state: PriorKnowledgeState, steps: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """First and second weights after whole steps of plain descent on each task."""
    network, rate = module.starting_network(state), state.learning_rate
    first, second = network.first, network.second
    for cross, number in zip(expected_maps(state), steps, strict=True):
        for _ in range(number):
            error = cross - second @ first
            first, second = first + rate * second.T @ error, second + rate * error @ first.T
    return first, second


@pytest.mark.parametrize(
    "state",
    [
        PriorKnowledgeState(knowledge="steps", first_steps=60.0, time=0.7),
        PriorKnowledgeState(
            knowledge="steps", first_steps=25.0, imbalance=1.5, size=4, hidden_size=3, start_scale=0.3, time=0.8
        ),
        PriorKnowledgeState(
            knowledge="steps", first_steps=40.0, imbalance=-0.7, size=2, hidden_size=2, start_scale=0.5, time=0.9
        ),
    ],
    ids=["balanced", "positive imbalance, bottleneck", "negative imbalance"],
)
def test_losses_and_grams_are_those_of_descent_with_the_flow_behind(state):
    view = PANEL.parts["grams"](state)
    clock = chart(PANEL.parts["learning"](state), "losses").traces[0].x
    assert reading(view, "time") == pytest.approx(state.time * clock[-1], rel=1e-12)  # one sum and one difference
    now = state.time * clock[-1] - state.first_steps
    assert now > 0  # in the second stage
    first, second = descended(state, [int(state.first_steps), round(now)])
    # Hundreds of steps add up roundings of weights of order 1.
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(chart(view, "input_gram").traces[0].z, first.T @ first, **close)
    np.testing.assert_allclose(chart(view, "output_gram").traces[0].z, second @ second.T, **close)
    np.testing.assert_allclose(chart(view, "network_function").traces[0].z, second @ first, **close)
    # The dotted curves are the flow: the integration is good to about 1e-9 of weights of order 1.
    curves = chart(PANEL.parts["learning"](state), "losses")
    for trace, cross in zip([t for t in curves.traces if t.role == "theory"], expected_maps(state), strict=True):
        _, (one, two) = integrated(state, [state.first_steps, trace.x[-1] - state.first_steps])
        assert trace.y[-1] == pytest.approx(0.5 * np.sum((two @ one - cross) ** 2), rel=1e-6, abs=1e-8)
    # The losses after a number of steps are those of descent, not of the flow.
    losses = chart(PANEL.parts["forgetting"](state), "loss_after").traces[0].z
    network, tasks = module.starting_network(state), expected_maps(state)
    first, second = network.first, network.second
    for _ in range(int(state.first_steps)):
        error = tasks[0] - second @ first
        first, second = first + state.learning_rate * second.T @ error, second + state.learning_rate * error @ first.T
    for k, cross in enumerate(tasks):
        assert losses[1, k] == pytest.approx(0.5 * np.sum((second @ first - cross) ** 2), rel=1e-9, abs=1e-12)


def test_the_time_setting_spans_the_training():
    network = module.starting_network(DEFAULT)
    first = PANEL.parts["grams"](DEFAULT.model_copy(update={"time": 0.0}))
    np.testing.assert_allclose(
        chart(first, "input_gram").traces[0].z, network.first.T @ network.first, atol=1e-14
    )  # the start itself, to the rounding of one product
    last = PANEL.parts["grams"](DEFAULT)
    curves = chart(PANEL.parts["learning"](DEFAULT), "losses")
    assert reading(last, "time") == curves.traces[0].x[-1]
    assert reading(last, "loss of the task in training") == pytest.approx(curves.traces[1].y[-1], rel=1e-9)
    np.testing.assert_allclose(chart(last, "wanted").traces[0].z, expected_maps(DEFAULT)[1], atol=1e-14)


def test_strengths_approach_their_optima():
    traces = chart(PANEL.parts["learning"](DEFAULT), "strengths").traces
    for found, flow, wanted in zip(traces[::3], traces[1::3], traces[2::3], strict=True):
        assert (found.role, flow.role, wanted.role) == ("descent", "theory", "target")
        # Descent lags behind the flow by a share of learning rate x curvature (0.2 here) where it is steepest.
        np.testing.assert_allclose(found.y, flow.y, atol=0.2 * abs(wanted.y[-1]) + 0.05)
        # A stage is drawn for 1.3 times the time in which the loss covers 99% of its way.
        assert found.y[-1] == pytest.approx(wanted.y[-1], rel=0.1)


def test_only_trained_stages_are_shaded():
    both = chart(PANEL.parts["learning"](DEFAULT), "losses").shades
    assert [shade[2] for shade in both] == ["training task A", "training task B"]
    assert both[0][1] == both[1][0]
    none = PANEL.parts["learning"](DEFAULT.model_copy(update={"knowledge": "none"}))
    assert [shade[2] for shade in chart(none, "losses").shades] == ["training task B"]
    assert reading(none, "task B is learned in") == reading(none, "task B without prior knowledge")


STUDIES = [
    {},
    {"knowledge": "none"},
    {"knowledge": "steps", "first_steps": 33.3},
    {"imbalance": -2.5, "size": 4, "hidden_size": 4, "output_angle": 180.0},
    {"input_angle": 0.0, "output_angle": 180.0},
    {"hidden_size": 1, "size": 5},
    {"start": "random", "seed": 3},
    {"seed": 0},
    {"layers": 3, "start_scale": 0.5, "knowledge": "steps", "first_steps": 50.0},
    {"layers": 4, "start": "random", "start_scale": 0.6},
]


@pytest.mark.parametrize("changes", STUDIES, ids=str)
def test_the_study_gives_the_numbers_of_the_panel(changes, tmp_path):
    state = PriorKnowledgeState(**changes)
    text = PANEL.study(state)
    assert text.startswith("# learncast forget ")
    settings = text.splitlines()[1].removeprefix("# explorer, prior-knowledge: ")
    assert PriorKnowledgeState(**json.loads(settings)) == state
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    values = forgotten(Study.load(path)).values
    view = PANEL.parts["forgetting"](state)
    if module.learning_of(state).leaves_saddle:
        # The command follows the flow to its saddle; the panel shows descent, which learns both tasks.
        assert float(reading(view, "final loss of task B")) < 1e-9 < values["loss"][-1, -1] + values["loss"][1, 0]
        assert "saddle" in text
    else:
        assert np.array_equal(values["loss"], chart(view, "loss_after").traces[0].z)
        assert np.array_equal(values["forgetting"], chart(view, "forgetting").traces[0].z)
        assert values["forgetting"][1][0] == reading(view, "forgotten of task A")
    errors = {note.text for note in view.every_note if note.tone == "error"}
    assert errors <= {f"{remark[:1].upper()}{remark[1:]}." for remark in values["remarks"]}


@pytest.mark.parametrize(
    "changes",
    [{"input_angle": 0.0, "output_angle": 180.0, "size": 2, "hidden_size": 2}, {"seed": 0}],
    ids=["the opposite task", "a start rotated against the task"],
)
def test_a_loss_that_the_flow_keeps_gives_an_error_note_and_descent_is_counted(changes):
    state = PriorKnowledgeState(**changes)
    views = shown(state)
    for view in views.values():
        assert any(note.tone == "warning" for note in view.every_note)
    network, rate, steps = module.starting_network(state), state.learning_rate, []
    first, second = network.first, network.second
    for task, share in zip(module.two_tasks(state), (1e-12, (1 - state.accuracy) ** 2), strict=True):
        target = task.cross_covariance.dense()[0, :, 0, :].T
        sizes = np.linalg.svd(target, compute_uv=False) ** 2
        goal = sizes[state.hidden_size :].sum() + share * sizes[: state.hidden_size].sum()
        steps.append(0)
        while ((target - second @ first) ** 2).sum() > goal:
            gap, n = target - second @ first, steps.pop()
            first, second = first + rate * second.T @ gap, second + rate * gap @ first.T
            steps.append(n + 1)
    assert reading(views["learning"], "task B is learned in") == steps[1]
    # The picture shows what the sentence counts: the loss meets the goal at that step, and not before.
    losses, begin = chart(views["learning"], "losses"), chart(views["learning"], "losses").shades[-1][0]
    drawn = next(t for t in losses.traces if t.role == "descent" and t.name == "loss of task B")
    after = drawn.x - begin
    assert after[-1] > steps[1]
    assert (drawn.y[after > steps[1] + 1] <= 0.5 * goal).all()
    assert (drawn.y[(after > 0) & (after < steps[1] - 1)] > 0.5 * goal).all()
    assert reading(views["learning"], "final loss of task B") < 0.5 * goal


def test_an_untrained_task_gives_no_error_note():
    silent = PriorKnowledgeState(seed=0, knowledge="none")
    assert not any("task A" in note.text for note in PANEL.parts["forgetting"](silent).every_note)
    assert any("task B" in note.text for note in PANEL.parts["forgetting"](silent).every_note)


def test_an_impossible_balance_gives_a_warning(tmp_path):
    state = PriorKnowledgeState(imbalance=1.0, hidden_size=6)
    for view in shown(state).values():
        assert view.trust.forecast_class == "outside"
        assert not view.charts
        assert view.every_note[0].tone == "warning"
    assert tomllib.loads(PANEL.study(state))["network"]["imbalance"] == 1.0


def test_too_large_a_learning_rate_is_outside_the_theory():
    for view in shown(PriorKnowledgeState(learning_rate=0.5, first_strength=5.0)).values():
        assert view.trust.forecast_class == "outside"
        assert any(note.tone == "warning" for note in view.every_note)
        assert [a.name for a in view.trust.failed] == ["stable_learning_rate"]


@pytest.mark.parametrize(("key", "value"), EXTREMES)
def test_every_bound_gives_a_view(key, value):
    shown(PriorKnowledgeState(**{key: value}))
    assert tomllib.loads(PANEL.study(PriorKnowledgeState(**{key: value})))["sequence"]


@pytest.mark.slow
@pytest.mark.parametrize("one", EXTREMES, ids=str)
def test_any_two_bounds_together_give_a_view(one):
    for other in EXTREMES[EXTREMES.index(one) + 1 :]:
        if other[0] != one[0]:
            shown(PriorKnowledgeState(**dict([one, other])))


def between(control) -> st.SearchStrategy:
    if control.kind == "choice":
        return st.sampled_from([key for key, _ in control.choices])
    if control.key in WHOLE:
        return st.integers(int(control.least), int(control.most))
    least, most = (0.0, 1.0) if control.key == "time" else (control.least, control.most)
    return st.one_of(st.sampled_from([least, most]), st.floats(least, most))


STATES = st.fixed_dictionaries({c.key: between(c) for c in PANEL.controls})


@settings(max_examples=5, deadline=None, derandomize=True)
@given(STATES)
def test_any_state_gives_a_view(values):
    check_state(values)


@pytest.mark.slow
@settings(max_examples=40 * settings().max_examples // 300, deadline=None, derandomize=True)
@given(STATES)
def test_any_of_many_states_gives_a_view(values):
    check_state(values)


def check_state(values):
    state = PriorKnowledgeState(**values)
    views = shown(state)
    for view in views.values():
        for r in view.readings:
            assert not math.isnan(r.value)
    assert tomllib.loads(PANEL.study(state))["training"]["learning_rate"] == state.learning_rate


@pytest.mark.parametrize("changes", [{}, {"start_scale": 0.5}, {"accuracy": 0.999}], ids=str)
def test_curves_extend_beyond_the_learning_times(changes):
    view = PANEL.parts["learning"](PriorKnowledgeState(**changes))
    (_, first, *_), (begin, end, *_) = chart(view, "losses").shades
    assert first >= reading(view, "task A is learned in (flow)")
    assert end - begin >= reading(view, "task B is learned in (flow)")
    assert end - begin >= reading(view, "task B without prior knowledge (flow)")


def test_unbalanced_layers_are_integrated():
    state = PriorKnowledgeState(start="random", knowledge="steps", first_steps=50.0)
    view = PANEL.parts["forgetting"](state)
    assert view.trust.forecast_class == "integrated"
    assert not any(note.tone == "warning" for note in view.every_note)


def test_frames_are_descent_at_their_times():
    learning = module.learning_of(DEFAULT)
    view = PANEL.parts["grams"](DEFAULT)
    times = view.clock.times
    assert len(times) == FRAMES
    for k in (0, 40, 100, 160, FRAMES - 1):
        stage = int(times[k] > learning.boundaries[1])
        own = round(times[k] - learning.boundaries[stage])
        # After a converged stage descent begins where the flow rests, which 3,000 steps reach to rounding.
        first, second = descended(DEFAULT, [own, 0] if stage == 0 else [3000, own])
        now = {"input_gram": first.T @ first, "output_gram": second @ second.T, "network_function": second @ first}
        for name, values in now.items():
            atol = 1e-9 if name == "network_function" or stage == 0 else 0.02  # finite steps unbalance the layers
            np.testing.assert_allclose(chart(view, name).traces[0].frames[k], values, atol=max(atol, 0.02 * stage))
    weights = PANEL.parts["learning"](DEFAULT).diagram
    into = np.array([[e.frames[100] for e in weights.edges if e.source == f"input {i}"] for i in range(3)]).T
    out = np.array([[e.frames[100] for e in weights.edges if e.target == f"output {o}"] for o in range(3)])
    np.testing.assert_allclose(out @ into, chart(view, "network_function").traces[0].frames[100], atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({}, ["40", "181", "1.02"]),
        ({"output_angle": 180.0, "input_angle": 0.0}, ["183", "113", "8.35"]),
        ({"knowledge": "none"}, ["181"]),
    ],
    ids=["after task A", "after the opposite task", "without task A"],
)
def test_the_answer_gives_descent_steps_only(changes, numbers):
    answer = PANEL.parts["learning"](PriorKnowledgeState(**changes)).answer
    assert re.findall(r"\d+(?:\.\d+)?", answer) == numbers


@pytest.mark.slow
def test_more_layers_take_the_steps_of_descent_on_every_layer():
    state = PriorKnowledgeState(layers=3, start_scale=0.6, knowledge="steps", first_steps=40.0)
    views = shown(state)
    weights, (cross, _) = list(module.starting_network(state).weights), expected_maps(state)
    assert len(weights) == 3
    for _ in range(40):
        W1, W2, W3 = weights
        error = state.learning_rate * (cross - W3 @ W2 @ W1)
        weights = [W1 + (W3 @ W2).T @ error, W2 + W3.T @ error @ W1.T, W3 + error @ (W2 @ W1).T]
    expected = 0.5 * np.sum((weights[2] @ weights[1] @ weights[0] - cross) ** 2)
    assert chart(views["forgetting"], "loss_after").traces[0].z[1, 0] == pytest.approx(expected, rel=1e-9)
    assert len({edge.label for edge in views["learning"].diagram.edges}) == 3
