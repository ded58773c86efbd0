"""The recurrence panel shows the numbers of the Python interface and of independent computations."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import solve_ivp

import learncast.web.panels.recurrence as module
from learncast.report.forecast import forecast_report as forecast
from learncast.study import Study
from learncast.theory import best_recurrence, half_loss_time, least_hidden_size
from learncast.theory.recurrence import tradeoff
from learncast.web import RecurrenceState, View, all_panels, invalid_state, to_plain

PANEL = next(panel for panel in all_panels() if panel.name == "recurrence")
DEFAULT = RecurrenceState()
PRESETS = {name: tuple(series) for name, series in module.presets(DEFAULT.series).items()}
WHOLE = ("modes", "shift")
SLIDERS = [c for c in PANEL.controls if c.kind not in ("numbers", "hidden")]
EXTREMES = [
    (c.key, int(value) if c.key in WHOLE else value)
    for c in SLIDERS
    for value in ((c.least, c.most) if c.kind == "range" else [key for key, _ in c.choices])
]
#: Series at the bounds: shortest, longest, largest, smallest and zero.
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
    """Check that axes have units, arrays have equal shapes, and the view can be sent as JSON."""
    assert view.trust is not None
    assert view.trust.standing[1]
    for chart in view.charts:
        assert all(axis.unit and axis.label for axis in (chart.x, chart.y))
        for trace in chart.traces:
            assert np.shape(trace.x) == np.shape(trace.y)
    json.dumps(to_plain(view), allow_nan=False)
    return view


def shown(state: RecurrenceState) -> dict[str, View]:
    return {name: checked(part(state)) for name, part in PANEL.parts.items()}


def reading(view: View, label: str) -> float:
    return next(r.value for r in view.readings if r.label == label)


def trace(view: View, key: str, name: str):
    chart = next(c for c in view.charts if c.key == key)
    return next(t for t in chart.traces if t.name.startswith(name))


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
    assert {c.key for c in PANEL.controls} == set(RecurrenceState.model_fields)
    for control in PANEL.controls:
        assert getattr(DEFAULT, control.key) == control.default
        if control.kind == "range":
            for beyond in (control.least - 1.0, control.most + 1.0):
                with pytest.raises(ValidationError) as error:
                    RecurrenceState(**{control.key: beyond})
                assert error.value.errors()[0]["loc"] == (control.key,)


@pytest.mark.parametrize("series", [[1.0], [0.1] * 41, [1.0, 5.1], [1.0, math.nan], [-math.inf, 0.0], ["a", "b"]])
def test_an_invalid_series_is_rejected(series):
    with pytest.raises(ValidationError) as error:
        RecurrenceState.model_validate({"series": series})
    assert invalid_state(error.value, RecurrenceState).field == "series"


def test_points_below_the_smallest_size_are_zero():
    assert RecurrenceState(series=[1.0, 9e-7, -1e-300, 1e-6]).series == (1.0, 0.0, 0.0, 1e-6)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_a_valid_series(name):
    state = RecurrenceState(series=PRESETS[name])
    assert state.series == PRESETS[name]
    assert 9 <= len(state.series) <= 20
    assert PANEL.parts["fit"](state).presets


def test_presets_stay_within_the_bounds():
    assert "this, one lag shorter" not in module.presets((1.0, 0.0))
    assert "this, one lag longer" not in module.presets((1.0,) * 40)
    assert len(module.presets((1.0,) * 30)["this, twice as long"]) == 40


@pytest.mark.parametrize("series", [CORNERS["drawn"], (1.0, 0.5, 0.8), PRESETS["late pulse"], PRESETS["oscillating"]])
def test_the_best_recurrence_is_the_best_root(series):
    view = PANEL.parts["fit"](RecurrenceState(series=series))
    b, loss = best_by_roots(series)
    assert reading(view, "best recurrence b") == pytest.approx(b, rel=1e-10)  # a root polished to rounding
    assert reading(view, "unexplained fraction") == pytest.approx(loss / (0.5 * np.dot(series, series)), rel=1e-10)
    assert reading(view, "best recurrence b") == best_recurrence(series).best.recurrence
    assert reading(view, "hidden units for an exact fit") == least_hidden_size(series)
    curve = trace(view, "loss", "loss at the best strength")
    assert curve.y.min() >= loss * (1 - 1e-12)


def test_the_loss_against_the_recurrence_is_that_of_least_squares():
    s = np.array(CORNERS["drawn"])
    curve = trace(PANEL.parts["fit"](RecurrenceState(series=tuple(s))), "loss", "loss at the best strength")
    for b, loss in list(zip(curve.x, curve.y, strict=True))[::25]:
        powers = b ** np.arange(len(s))
        u = np.linalg.lstsq(powers[:, None], s, rcond=None)[0][0]
        assert loss == pytest.approx(0.5 * np.sum((s - u * powers) ** 2), rel=1e-9)  # differences of sums near 3


def test_the_fit_follows_a_dragged_point():
    view = PANEL.parts["fit"](DEFAULT)
    chart = next(c for c in view.charts if c.key == "series")
    assert chart.drags == "series"
    np.testing.assert_array_equal(chart.traces[0].y, DEFAULT.series)
    # The default is an exact exponential: its fit goes through every point, to rounding.
    np.testing.assert_allclose(chart.traces[1].y, DEFAULT.series, rtol=1e-12)
    dragged = RecurrenceState(series=(*DEFAULT.series[:-1], 1.0))
    assert reading(PANEL.parts["fit"](dragged), "best recurrence b") > 0.8


@pytest.mark.parametrize("beyond", ["silent", "held", "repeated"])
def test_longer_trials_match_a_plain_loop(beyond):
    series = (1.0, 0.7, 0.2, 0.4)
    state = RecurrenceState(series=series, beyond=beyond, reach=2.5)
    view = PANEL.parts["stability"](state)
    b, u = reading(view, "best recurrence b"), reading(view, "best strength a")
    curve = trace(view, "extrapolation", "unexplained")
    assert curve.x.tolist() == list(range(4, 11))
    for horizon, share in zip(curve.x, curve.y, strict=True):
        loss = power = 0.0
        for k in range(int(horizon)):
            oldest = {"silent": 0.0, "held": series[-1], "repeated": series[k % 4]}[beyond]
            wanted = series[k] if k < 4 else oldest
            loss, power = loss + (wanted - u * b**k) ** 2, power + wanted**2
        assert share == pytest.approx(loss / power, rel=1e-12)  # the same ten sums
    assert reading(view, "unexplained at 10 steps") == curve.y[-1]


@pytest.mark.parametrize(
    ("name", "tones"),
    [("growing with the lag", ["warning"]), ("constant", ["plain"]), ("first input only", ["error"]), ("decay", [])],
)
def test_an_unstable_recurrence_gives_a_note(name, tones):
    for part in ("fit", "stability"):
        notes = PANEL.parts[part](RecurrenceState(series=PRESETS[name])).every_note
        assert [note.tone for note in notes] == tones


def test_a_recurrence_that_stays_at_zero_gives_an_error_note():
    stuck = RecurrenceState(series=PRESETS["after a delay"], recurrence=0.0)
    assert any(note.tone == "error" for note in PANEL.parts["fit"](stuck).every_note)
    for state in (RecurrenceState(recurrence=0.0), RecurrenceState(series=PRESETS["after a delay"], recurrence=0.1)):
        assert not any(note.tone == "error" for note in PANEL.parts["fit"](state).every_note)


def test_a_series_of_zeros_gives_a_warning():
    views = shown(RecurrenceState(series=CORNERS["silent"]))
    assert all(any(note.tone == "warning" for note in view.every_note) for view in views.values())


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
    full = tradeoff.transition(
        lambda w: module.weighted(series, w), float(module.WEIGHTS[0]), 2.0, points=len(module.WEIGHTS)
    )
    view = PANEL.parts["transition"](RecurrenceState(series=series))
    found = module.transition_of(series)
    assert found.kind == full.kind == kind
    # A tie is found to 1e-9 by the secant; where b leaves 0, to 0.15 / 2^12 by halving.
    tolerance = 1e-8 if kind == "first order" else 1e-4
    assert reading(view, "transition at a weight of") == pytest.approx(full.parameter, abs=tolerance, nan_ok=True)
    assert found.below == pytest.approx(full.below, abs=1e-6)
    assert found.above == pytest.approx(full.above, abs=1e-6)
    best = trace(view, "best_recurrence", "best recurrence")
    assert best.y[list(best.x).index(1.0)] == best_recurrence(series).best.recurrence
    assert np.isnan(best.y).any() == (kind == "first order")  # a line would hide a jump
    assert (np.diff(best.x) >= 0).all()


def test_without_recurrence_only_the_last_input_is_used():
    s = np.array(CORNERS["drawn"])
    view = PANEL.parts["transition"](RecurrenceState(series=tuple(s)))
    curve = trace(view, "use_of_past", "without recurrence")
    for w, share in zip(curve.x, curve.y, strict=True):
        past = w**2 * np.sum(s[1:] ** 2)
        assert share == pytest.approx(past / (s[0] ** 2 + past), rel=1e-12)


ORDERS = [
    {},
    {"series": CORNERS["drawn"], "recurrence": -0.3, "initial": 0.3, "steps": 2000.0},
    {"series": (-1.0, -0.5, -0.2), "modes": 1},
    {"shift": 2, "ratio": 1.0, "steps": 3000.0},
    {"series": PRESETS["constant"], "steps": 10_000.0, "learning_rate": 0.1},
]


@pytest.mark.parametrize("changes", ORDERS, ids=str)
def test_half_loss_times_are_those_of_the_python_interface(changes):
    state = RecurrenceState(**changes)
    view = PANEL.parts["order"](state)
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
        assert reading(view, f"mode {k + 1} halves its loss, b trained (flow)") == pytest.approx(learned, rel=1e-7)
        assert reading(view, f"mode {k + 1} halves its loss, b fixed (flow)") == pytest.approx(frozen, rel=1e-9)


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

    view = PANEL.parts["order"](DEFAULT)
    curve, course = trace(view, "learning", "mode 1"), trace(view, "recurrence", "mode 1")
    start = np.array([DEFAULT.initial, DEFAULT.recurrence, DEFAULT.initial])
    run = solve_ivp(flow, (0, DEFAULT.steps), start, method="DOP853", rtol=1e-11, atol=1e-13, t_eval=curve.x)
    shares = np.array([loss(y) for y in run.y.T]) / loss(start)
    np.testing.assert_allclose(curve.y, shares, atol=1e-8)  # the oracle's tolerance over a hundred of its steps
    np.testing.assert_allclose(course.y, run.y[1], atol=1e-7)


@pytest.mark.parametrize("series", [(1.0, *[0.1] * 9), (1.0, *[0.5] * 9), tuple(0.5**k for k in range(10))])
def test_steps_to_half_the_loss_are_those_of_plain_descent(series):
    s, lags = np.array(series), np.arange(10)
    a, b, c = DEFAULT.initial, DEFAULT.recurrence, DEFAULT.initial
    losses = []
    while not losses or losses[-1] > losses[0] / 2:
        error, slope = s - a * c * b**lags, lags * b ** np.maximum(lags - 1.0, 0.0)
        losses.append(0.5 * error @ error)
        steps = np.array([c * error @ b**lags, a * c * error @ slope, a * error @ b**lags])
        a, b, c = np.array([a, b, c]) + DEFAULT.learning_rate * steps
    view = PANEL.parts["order"](RecurrenceState(series=series))
    assert reading(view, "mode 1 halves its loss, b trained") == len(losses) - 1


def test_a_late_mode_is_unknown_and_a_stuck_mode_is_never():
    label = "mode 1 halves its loss, b trained"
    view = PANEL.parts["order"](RecurrenceState(steps=20.0))
    assert math.isnan(reading(view, label))
    assert math.isnan(reading(view, f"{label} (flow)"))
    assert "20" in next(r.text for r in view.readings if r.label == f"{label} (flow)")
    never = PANEL.parts["order"](RecurrenceState(series=PRESETS["oscillating"]))
    assert reading(never, f"{label} (flow)") == math.inf


def test_too_large_a_learning_rate_is_outside_the_theory():
    view = PANEL.parts["order"](RecurrenceState(series=CORNERS["longest, largest"], learning_rate=0.1, steps=100.0))
    assert view.trust.forecast_class == "outside"
    assert [a.name for a in view.trust.failed] == ["stable_learning_rate"]
    assert any(note.tone == "warning" for note in view.every_note)
    assert PANEL.parts["order"](DEFAULT).trust.forecast_class == "integrated"


def answered(text: str, folder) -> dict:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return forecast(Study.load(path)).values


@pytest.mark.slow_cases("after a delay")
@pytest.mark.parametrize("name", ["decay", "after a delay", "oscillating", "by hand"])
def test_the_study_gives_the_numbers_of_the_panel(name, tmp_path):
    series = (1.0, 0.9, 0.2, 0.5) if name == "by hand" else PRESETS[name]
    state = RecurrenceState(series=series, modes=1, steps=3000.0)
    text = PANEL.study(state)
    assert text.startswith("# learncast forecast ")
    settings = text.splitlines()[1].removeprefix("# explorer, recurrence: ")
    assert RecurrenceState(**json.loads(settings)) == state
    values, view = answered(text, tmp_path), PANEL.parts["order"](state)
    mode = values["modes"][0]
    assert reading(view, "mode 1 halves its loss, b trained (flow)") == pytest.approx(mode["half_loss_steps"], rel=1e-7)
    assert reading(view, "mode 1 halves its loss, b fixed (flow)") == pytest.approx(
        mode["half_loss_steps_frozen"], rel=1e-9
    )
    if name != "oscillating":  # of which training finds another optimum than the best
        best = reading(PANEL.parts["fit"](state), "best recurrence b")
        assert best == pytest.approx(values["final"]["recurrence"][0], rel=1e-6)  # where the flow counts as settled


@pytest.mark.slow_cases("alternating, largest", "longest, largest")
@pytest.mark.parametrize("name", list(CORNERS))
def test_series_at_the_bounds_give_views(name):
    state = RecurrenceState(series=CORNERS[name])
    shown(state)
    assert tomllib.loads(PANEL.study(state))["target"]


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
@given(st.fixed_dictionaries({c.key: between(c) for c in PANEL.controls}))
def test_any_state_gives_a_view(values):
    state = RecurrenceState(**values)
    shown(state)
    assert tomllib.loads(PANEL.study(state))["network"]["recurrence"] == state.recurrence


def test_half_loss_steps_match_a_plain_descent_loop():
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
    assert reading(PANEL.parts["order"](state), "mode 1 halves its loss, b trained") == steps
    assert str(steps) in re.findall(r"\d+", PANEL.parts["fit"](state).answer)


def test_the_last_frame_shows_the_final_weights():
    view = PANEL.parts["fit"](RecurrenceState())
    frames = next(t for t in view.charts[0].traces if t.frames is not None).frames
    a, b, c = module.learned_modes(RecurrenceState())[0].last
    assert frames.shape == (len(view.clock.times), 10)
    np.testing.assert_array_equal(frames[-1], a * c * b ** np.arange(10.0))
    np.testing.assert_allclose(frames[0], 0.01 * 0.5 ** np.arange(10), rtol=1e-12)
