from __future__ import annotations

import itertools
import json
import math
import tomllib

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import solve_ivp

from learncast.answers.forecast import forecast
from learncast.study import Study
from learncast.theory import best_recurrence, half_loss_time, least_hidden_size, transition
from learncast.web.panel import View, plain
from learncast.web.panels.recurrence import ROOM, WEIGHTS, RecurrenceState, learned_modes, presets, turn_of, weighed
from learncast.web.room import complaint

DEFAULT = RecurrenceState()
PRESETS = {name: tuple(series) for name, series in presets(DEFAULT.series).items()}
WHOLE = ("modes", "shift")
SLIDERS = [c for c in ROOM.controls if c.kind not in ("numbers", "hidden")]
EXTREMES = [
    (c.key, int(value) if c.key in WHOLE else value)
    for c in SLIDERS
    for value in ((c.least, c.most) if c.kind == "range" else [key for key, _ in c.choices])
]
#: Series at the ends of what is allowed: shortest and longest, largest, silent, and of every kind of end.
CORNERS = {
    "shortest": (1.0, -0.4),
    "longest, largest": (5.0,) * 40,
    "alternating, largest": tuple(5.0 * (-1) ** k for k in range(40)),
    "silent": (0.0,) * 7,
    "first of forty": (0.0,) * 39 + (5.0,),
    "smallest": (1e-6,) * 3,
    "largest beside smallest": (5.0, 0.0, 1e-6),
    "drawn": (0.3, -1.2, 2.0, 0.0, 0.7, -0.1),
}


def checked(view: View) -> View:
    """Every axis has a unit, the class is told, arrays fit each other, and it can be sent."""
    assert view.validity is not None
    assert view.validity.sentence
    for panel in view.panels:
        assert all(axis.unit and axis.label for axis in (panel.x, panel.y))
        for trace in panel.traces:
            assert np.shape(trace.x) == np.shape(trace.y)
    json.dumps(plain(view), allow_nan=False)
    return view


def shown(state: RecurrenceState) -> dict[str, View]:
    return {name: checked(part(state)) for name, part in ROOM.parts.items()}


def reading(view: View, label: str) -> float:
    return next(r.value for r in view.readings if r.label == label)


def trace(view: View, key: str, name: str):
    panel = next(p for p in view.panels if p.key == key)
    return next(t for t in panel.traces if t.name.startswith(name))


def best_by_roots(series: tuple[float, ...]) -> tuple[float, float]:
    """The best finite recurrence and its loss, from all roots of the derivative of P²/Q to 30 digits."""
    with mpmath.workdps(30):
        s = [mpmath.mpf(v) for v in series]
        lags = len(s)
        gain = lambda b: (sum(v * b**k for k, v in enumerate(s))) ** 2 / sum(b ** (2 * k) for k in range(lags))  # noqa: E731
        slope = [mpmath.mpf(0)] * (3 * lags)
        for k, v in enumerate(s):  # 2 P'Q - P Q' by its terms
            for j in range(lags):
                if k + 2 * j >= 1:
                    slope[k + 2 * j - 1] += 2 * (k - j) * v
        while slope[-1] == 0:
            slope.pop()
        roots = mpmath.polyroots(slope[::-1], maxsteps=500, extraprec=200)
        real = [mpmath.re(r) for r in roots if abs(mpmath.im(r)) < 1e-20]
        best = max(real, key=gain)
        return float(best), float((sum(v * v for v in s) - gain(best)) / 2)


def test_every_field_of_the_state_has_a_control_with_its_bounds():
    assert {c.key for c in ROOM.controls} == set(RecurrenceState.model_fields)
    for control in ROOM.controls:
        assert getattr(DEFAULT, control.key) == control.default
        if control.kind == "range":
            for beyond in (control.least - 1.0, control.most + 1.0):
                with pytest.raises(ValidationError, match=control.key):
                    RecurrenceState(**{control.key: beyond})


@pytest.mark.parametrize("series", [[1.0], [0.1] * 41, [1.0, 5.1], [1.0, math.nan], [-math.inf, 0.0]])
def test_series_beyond_the_bounds_are_refused(series):
    with pytest.raises(ValidationError, match="series"):
        RecurrenceState(series=series)


def test_what_no_hand_can_drag_is_nothing():
    assert RecurrenceState(series=[1.0, 9e-7, -1e-300, 1e-6]).series == (1.0, 0.0, 0.0, 1e-6)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_a_series_that_can_be_set(name):
    state = RecurrenceState(series=PRESETS[name])
    assert state.series == PRESETS[name]
    assert 9 <= len(state.series) <= 20
    assert ROOM.parts["fit"](state).extras["presets"]


def test_presets_never_leave_the_bounds():
    assert "this, one lag shorter" not in presets((1.0, 0.0))
    assert "this, one lag longer" not in presets((1.0,) * 40)
    assert len(presets((1.0,) * 30)["this, twice as long"]) == 40


@pytest.mark.parametrize("series", [CORNERS["drawn"], (1.0, 0.5, 0.8), PRESETS["late pulse"], PRESETS["oscillating"]])
def test_the_best_recurrence_is_the_best_root(series):
    view = ROOM.parts["fit"](RecurrenceState(series=series))
    b, loss = best_by_roots(series)
    assert reading(view, "best recurrence b") == pytest.approx(b, rel=1e-10)  # a root polished to rounding
    assert reading(view, "unexplained share") == pytest.approx(loss / (0.5 * np.dot(series, series)), rel=1e-10)
    assert reading(view, "best recurrence b") == best_recurrence(series).best.recurrence
    assert reading(view, "hidden units for an exact fit") == least_hidden_size(series)
    curve = trace(view, "loss", "loss at the best strength")
    assert curve.y.min() >= loss * (1 - 1e-12)


def test_the_loss_against_the_recurrence_is_that_of_least_squares():
    s = np.array(CORNERS["drawn"])
    curve = trace(ROOM.parts["fit"](RecurrenceState(series=tuple(s))), "loss", "loss at the best strength")
    for b, loss in list(zip(curve.x, curve.y, strict=True))[::25]:
        powers = b ** np.arange(len(s))
        u = np.linalg.lstsq(powers[:, None], s, rcond=None)[0][0]
        assert loss == pytest.approx(0.5 * np.sum((s - u * powers) ** 2), rel=1e-9)  # differences of sums near 3


def test_dragging_changes_the_series_and_the_fit_goes_with_it():
    view = ROOM.parts["fit"](DEFAULT)
    panel = next(p for p in view.panels if p.key == "series")
    assert panel.grips == "series"
    np.testing.assert_array_equal(panel.traces[0].y, DEFAULT.series)
    # The default is an exact exponential: its fit goes through every point, to rounding.
    np.testing.assert_allclose(panel.traces[1].y, DEFAULT.series, rtol=1e-12)
    dragged = RecurrenceState(series=(*DEFAULT.series[:-1], 1.0))
    assert reading(ROOM.parts["fit"](dragged), "best recurrence b") > 0.8


@pytest.mark.parametrize("beyond", ["silent", "held", "repeated"])
def test_longer_trials_are_those_of_a_loop(beyond):
    series = (1.0, 0.7, 0.2, 0.4)
    state = RecurrenceState(series=series, beyond=beyond, reach=2.5)
    view = ROOM.parts["stability"](state)
    b, u = reading(view, "best recurrence b"), reading(view, "best strength a")
    told = trace(view, "extrapolation", "unexplained")
    assert told.x.tolist() == list(range(4, 11))
    for horizon, share in zip(told.x, told.y, strict=True):
        loss = whole = 0.0
        for k in range(int(horizon)):
            oldest = {"silent": 0.0, "held": series[-1], "repeated": series[k % 4]}[beyond]
            wanted = series[k] if k < 4 else oldest
            loss, whole = loss + (wanted - u * b**k) ** 2, whole + wanted**2
        assert share == pytest.approx(loss / whole, rel=1e-12)  # the same ten sums
    assert reading(view, "unexplained at 10 steps") == told.y[-1]


@pytest.mark.parametrize(
    ("name", "tone", "words"),
    [
        ("growing with age", "warning", "unstable"),
        ("even", "plain", "marginal"),
        ("first input only", "error", "No finite recurrence"),
    ],
)
def test_what_is_not_stable_is_said(name, tone, words):
    for part in ("fit", "stability"):
        notes = ROOM.parts[part](RecurrenceState(series=PRESETS[name])).notes
        assert any(note.tone == tone and words in note.text for note in notes)


def test_a_start_at_zero_that_never_leaves_it_is_said():
    state = RecurrenceState(series=PRESETS["after a delay"], recurrence=0.0)
    assert any(note.tone == "error" for note in ROOM.parts["fit"](state).notes)
    assert not any(note.tone == "error" for note in ROOM.parts["fit"](RecurrenceState(recurrence=0.0)).notes)


def test_a_silent_series_is_said_to_ask_for_nothing():
    views = shown(RecurrenceState(series=CORNERS["silent"]))
    assert all(any(note.tone == "warning" for note in view.notes) for view in views.values())


@pytest.mark.parametrize(
    ("series", "kind"),
    [
        ((1.0, *[0.2] * 14), "first order"),
        (PRESETS["two pulses"], "first order"),
        ((1.0, 0.0, 0.6, 0.0, 0.0, 0.0), "continuous"),
        (DEFAULT.series, "none"),
    ],
    ids=["late pulse", "two pulses", "two pulses at lag 2", "decay"],
)
def test_the_transition_is_the_one_of_the_full_search(series, kind):
    full = transition(lambda w: weighed(series, w), float(WEIGHTS[0]), 2.0, points=len(WEIGHTS))
    view = ROOM.parts["transition"](RecurrenceState(series=series))
    found = turn_of(series)
    assert found.kind == full.kind == kind
    # A tie is found to 1e-9 by the secant; where b leaves 0, to 0.15 / 2^12 by halving.
    room = 1e-8 if kind == "first order" else 1e-4
    assert reading(view, "transition at a weight of") == pytest.approx(full.parameter, abs=room, nan_ok=True)
    assert found.below == pytest.approx(full.below, abs=1e-6)
    assert found.above == pytest.approx(full.above, abs=1e-6)
    best = trace(view, "best_recurrence", "best recurrence")
    assert best.y[list(best.x).index(1.0)] == best_recurrence(series).best.recurrence
    assert np.isnan(best.y).any() == (kind == "first order")  # a line would hide a jump
    assert (np.diff(best.x) >= 0).all()


def test_without_recurrence_only_the_last_input_is_used():
    s = np.array(CORNERS["drawn"])
    view = ROOM.parts["transition"](RecurrenceState(series=tuple(s)))
    told = trace(view, "use_of_past", "without recurrence")
    for w, share in zip(told.x, told.y, strict=True):
        past = w**2 * np.sum(s[1:] ** 2)
        assert share == pytest.approx(past / (s[0] ** 2 + past), rel=1e-12)


ORDERS = [
    {},
    {"series": CORNERS["drawn"], "recurrence": -0.3, "initial": 0.3, "steps": 2000.0},
    {"series": (-1.0, -0.5, -0.2), "modes": 1},
    {"shift": 2, "ratio": 1.0, "steps": 3000.0},
    {"series": PRESETS["even"], "steps": 10_000.0, "learning_rate": 0.1},
]


@pytest.mark.parametrize("changes", ORDERS, ids=str)
def test_half_loss_times_are_those_of_the_python_interface(changes):
    state = RecurrenceState(**changes)
    view = ROOM.parts["order"](state)
    s = np.array(state.series)
    for k in range(state.modes):
        lag = k * state.shift
        mode = state.ratio**k * np.concatenate([np.zeros(lag), s[: len(s) - lag]])
        sign = 1.0 if mode.sum() >= 0 else -1.0  # an aligned network's output weight has the sign of its mode
        given = {
            "recurrence": state.recurrence,
            "input_weight": state.initial,
            "output_weight": sign * state.initial,
            "learning_rate": state.learning_rate,
        }
        learned = float(half_loss_time(mode, **given).steps)
        frozen = float(half_loss_time(mode, **given, learn_recurrence=False).steps)
        # Cubics through intervals of 1% of the loss leave about 1e-8 of a step's size.
        assert reading(view, f"mode {k} halves its loss, b learned") == pytest.approx(learned, rel=1e-7)
        assert reading(view, f"mode {k} halves its loss, b frozen") == pytest.approx(frozen, rel=1e-9)


def test_learning_is_that_of_an_integrated_flow():
    s, rate = np.array(DEFAULT.series), DEFAULT.learning_rate
    lags = np.arange(len(s))

    def loss(y):
        return 0.5 * np.sum((s - y[0] * y[2] * y[1] ** lags) ** 2)

    def flow(_, y):  # the slope of the loss, lag by lag
        a, b, c = y
        error = s - a * c * b**lags
        slope = np.where(lags > 0, lags * b ** np.maximum(lags - 1, 0), 0.0)
        return rate * np.array([c * error @ b**lags, a * c * error @ slope, a * error @ b**lags])

    view = ROOM.parts["order"](DEFAULT)
    curve, course = trace(view, "learning", "mode 0"), trace(view, "recurrence", "mode 0")
    start = np.array([DEFAULT.initial, DEFAULT.recurrence, DEFAULT.initial])
    run = solve_ivp(flow, (0, DEFAULT.steps), start, method="DOP853", rtol=1e-11, atol=1e-13, t_eval=curve.x)
    shares = np.array([loss(y) for y in run.y.T]) / loss(start)
    np.testing.assert_allclose(curve.y, shares, atol=1e-8)  # the oracle's tolerance over a hundred of its steps
    np.testing.assert_allclose(course.y, run.y[1], atol=1e-7)
    assert view.words == "Order of learning: mode 0, then mode 1."


def test_a_mode_that_is_late_is_not_said_to_be_never():
    view = ROOM.parts["order"](RecurrenceState(steps=20.0))
    assert math.isnan(reading(view, "mode 0 halves its loss, b learned"))
    assert "not within 20 steps" in next(r.words for r in view.readings if r.label.endswith("b learned"))
    assert math.isnan(reading(view, "mode 0 halves its loss, b learned, by descent"))
    never = ROOM.parts["order"](RecurrenceState(series=PRESETS["oscillating"]))
    assert reading(never, "mode 0 halves its loss, b learned") == math.inf


def test_too_large_a_learning_rate_is_outside_the_theory():
    view = ROOM.parts["order"](RecurrenceState(series=CORNERS["longest, largest"], learning_rate=0.1, steps=100.0))
    assert view.validity.kind == "outside"
    assert any(note.tone == "warning" and "oscillates" in note.text for note in view.notes)
    assert ROOM.parts["order"](DEFAULT).validity.kind == "integrated"


def answered(text: str, folder) -> dict:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return forecast(Study.load(path)).values


@pytest.mark.slow_cases("after a delay")
@pytest.mark.parametrize("name", ["decay", "after a delay", "oscillating", "by hand"])
def test_the_study_gives_the_numbers_on_the_screen(name, tmp_path):
    series = (1.0, 0.9, 0.2, 0.5) if name == "by hand" else PRESETS[name]
    state = RecurrenceState(series=series, modes=1, steps=3000.0)
    text = ROOM.study(state)
    assert text.startswith("# learncast forecast ")
    told = text.splitlines()[1].removeprefix("# recurrence ")
    assert RecurrenceState(**json.loads(told)) == state
    values, view = answered(text, tmp_path), ROOM.parts["order"](state)
    mode = values["modes"][0]
    assert reading(view, "mode 0 halves its loss, b learned") == pytest.approx(mode["half_loss_steps"], rel=1e-7)
    assert reading(view, "mode 0 halves its loss, b frozen") == pytest.approx(mode["half_loss_steps_frozen"], rel=1e-9)
    if name != "oscillating":  # of which training finds another optimum than the best
        best = reading(ROOM.parts["fit"](state), "best recurrence b")
        assert best == pytest.approx(values["final"]["recurrence"][0], rel=1e-6)  # where the flow counts as settled


@pytest.mark.parametrize("name", list(CORNERS))
def test_series_at_the_bounds_give_views(name):
    state = RecurrenceState(series=CORNERS[name])
    shown(state)
    assert tomllib.loads(ROOM.study(state))["target"]


@pytest.mark.parametrize(("key", "value"), EXTREMES)
def test_every_bound_gives_a_view(key, value):
    shown(RecurrenceState(**{key: value}))


@pytest.mark.slow
@pytest.mark.parametrize("one", EXTREMES, ids=str)
def test_any_two_bounds_together_give_a_view(one):
    series = itertools.cycle((DEFAULT.series, *CORNERS.values()))
    for other in EXTREMES[EXTREMES.index(one) + 1 :]:
        if other[0] != one[0]:
            shown(RecurrenceState(**dict([one, other]), series=next(series)))


def between(control) -> st.SearchStrategy:
    if control.kind == "numbers":
        strength = st.one_of(st.sampled_from([0.0, 5.0, -5.0, 1e-6]), st.floats(control.least, control.most))
        return st.lists(strength, min_size=2, max_size=40)
    if control.kind == "choice":
        return st.sampled_from([key for key, _ in control.choices])
    if control.key in ("topic", "time"):
        return st.just(control.default)
    if control.key in WHOLE:
        return st.integers(int(control.least), int(control.most))
    return st.one_of(st.sampled_from([control.least, control.most]), st.floats(control.least, control.most))


@settings(max_examples=12 * settings().max_examples // 300, deadline=None, derandomize=True)
@given(st.fixed_dictionaries({c.key: between(c) for c in ROOM.controls}))
def test_any_state_gives_a_view(values):
    state = RecurrenceState(**values)
    shown(state)
    assert tomllib.loads(ROOM.study(state))["network"]["recurrence"] == state.recurrence


@pytest.mark.parametrize("series", [[1.0], [9.0, 1.0], ["a", "b"], [0.0] * 41], ids=["short", "large", "words", "long"])
def test_a_series_that_is_none_is_said_with_what_may_be(series):
    with pytest.raises(ValidationError) as caught:
        RecurrenceState.model_validate({"series": series})
    assert "series may be 2 to 40 numbers, each -5 to 5" in str(complaint(caught.value, RecurrenceState))


def test_half_is_counted_in_steps_of_descent():
    """Beside a plain loop over the three weights of one mode."""
    state = RecurrenceState()
    s, rate = np.array(state.series), state.learning_rate
    lags = np.arange(len(s))

    def loss(a, b, c):
        return 0.5 * np.square(s - a * c * b**lags).sum()

    weights = np.array([0.1, 0.5, 0.1])
    first, steps = loss(*weights), 0
    while loss(*weights) > 0.5 * first:
        a, b, c = weights
        gap = a * c * b**lags - s
        powers = lags * b ** np.maximum(lags - 1, 0)
        weights -= rate * np.array([(gap * c * b**lags).sum(), (gap * a * c * powers).sum(), (gap * a * b**lags).sum()])
        steps += 1
    assert reading(ROOM.parts["order"](state), "mode 0 halves its loss, b learned, by descent") == steps
    assert f"half is learned after {steps} steps" in ROOM.parts["fit"](state).answer


def test_the_film_ends_where_training_does():
    view = ROOM.parts["fit"](RecurrenceState())
    film = next(t for t in view.panels[0].traces if t.film is not None).film
    a, b, c = learned_modes(RecurrenceState())[0].last
    assert film.shape == (len(view.clock.times), 10)
    np.testing.assert_array_equal(film[-1], a * c * b ** np.arange(10.0))
    np.testing.assert_allclose(film[0], 0.01 * 0.5 ** np.arange(10), rtol=1e-12)
