"""The golden numbers of curriculum2025, each at the tolerance written beside it in golden/curriculum.json."""

import json
from pathlib import Path

import numpy as np
import pytest

import learncast as lc
from learncast.planning import closeness, singular_accuracy, speedup_terms
from learncast.theory import modes as modes_of_one
from learncast.theory import strength, time_to_band

ENTRIES = {
    entry["id"]: entry
    for entry in json.loads((Path(__file__).parent / "golden" / "curriculum.json").read_text())["entries"]
}
CURRICULA = ("syx1.5_e.01", "syx1.5_e.2", "syx1.5_e.335", "sxx0.5_e.4")
HERE = {
    "cov_ar1_6",
    "cov_leaky_syx_6",
    "betas_white",
    "betas_ar1_K0.5_kappa10",
    "betas_leaky20",
    "betas_b1",
    "betas_b0",
    "u_white_below",
    "u_white_above",
    "time_white",
    "time_white_eq12",
    "u_ar1_below",
    "u_ar1_above",
    "time_ar1",
    "time_ar1_eq12",
    "u_beta_yx_zero",
    "time_u0_zero",
    "gd_steps",
    "cl_syx1.5_e.01",
    "clpaper_syx1.5_e.01",
    "cl_syx1.5_e.2",
    "clpaper_syx1.5_e.2",
    "cl_syx1.5_e.335",
    "clpaper_syx1.5_e.335",
    "cl_sxx0.5_e.4",
    "clpaper_sxx0.5_e.4",
    "eq17",
    "phase_syx",
    "phase_kappa",
    "optimal_up",
}
# tested with the learned recurrence, the tangent kernel and the two-layer network
ELSEWHERE = {
    "mode_flow_white",
    "mode_traj_white",
    "ntk_tiny",
    "rot_pooled",
    "rot_QQT_task1",
    "rot_QQT_task1_then_2",
}
covered = set()


def covers(*names):
    """Record the entries that a test checks, for `test_every_entry_is_covered`."""
    covered.update(names)
    return lambda test: test


def agree(name, found, key=None):
    """Assert the entry (or one key of it) at the entry's own tolerances."""
    entry = ENTRIES[name]
    expected = entry["expected"] if key is None else entry["expected"][key]
    np.testing.assert_allclose(found, expected, rtol=entry["rtol"], atol=entry["atol"], err_msg=name)


WHITE = lc.tasks.integration(steps=50)
TASKS = {
    "white": WHITE,
    "ar1": lc.tasks.leaky_integration(steps=50, timescale=10.0, correlation=0.5),
    "leaky": lc.tasks.leaky_integration(steps=50, timescale=20.0),
}
# the paper's network: one mode of 128 hidden units, b = .96, a = c = .01, learning rate 1/gamma = 1e-3
PAPER = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
LEARNING_RATE = 1e-3


def solution(task, network=PAPER):
    return lc.forecast(task, network, learning_rate=LEARNING_RATE).solution


def at_strength(start):
    """The paper's network moved to u = start, balanced."""
    return lc.LinearRNN.aligned(recurrence=0.96, initial=float(np.sqrt(start)), hidden_size=128)


def test_every_entry_is_covered():
    """Fails for an entry without a test, a name without an entry, and a name that no test here checks."""
    assert set(ENTRIES) == HERE | ELSEWHERE
    assert not HERE & ELSEWHERE
    assert covered == HERE


@pytest.mark.equation("curriculum2025 Eq. (18)")
@covers("cov_ar1_6")
def test_ar1_covariance_of_finite_time():
    task = lc.tasks.leaky_integration(steps=6, timescale=2.5, correlation=0.7, noise_strength=1.3, gain=0.8)
    agree("cov_ar1_6", np.asarray(task.input_covariance)[:, 0, :, 0])


@pytest.mark.equation("curriculum2025 Eq. (19)")
@covers("cov_leaky_syx_6")
def test_leaky_cross_covariance():
    task = lc.tasks.leaky_integration(steps=6, timescale=2.5, correlation=0.7, noise_strength=1.3, gain=0.8)
    agree("cov_leaky_syx_6", np.asarray(task.cross_covariance)[:, 0, 0, 0])


@pytest.mark.equation("curriculum2025 Eq. (10)")
@pytest.mark.equation("curriculum2025 Eq. (11)")
@pytest.mark.equation("curriculum2025 Eq. (39)")
@pytest.mark.parametrize(
    ("name", "task", "recurrence"),
    [
        ("betas_white", TASKS["white"], 0.96),
        ("betas_ar1_K0.5_kappa10", TASKS["ar1"], 0.96),
        ("betas_leaky20", TASKS["leaky"], 0.96),
        ("betas_b1", lc.tasks.integration(steps=50, input_strength=2.0, target_strength=0.7), 1.0),
        ("betas_b0", lc.tasks.integration(steps=50, input_strength=2.0, target_strength=0.7), 0.0),
    ],
)
@covers("betas_white", "betas_ar1_K0.5_kappa10", "betas_leaky20", "betas_b1", "betas_b0")
def test_recurrence_weighted_singular_values(name, task, recurrence):
    modes = modes_of_one(task, lc.LinearRNN.aligned(recurrence=recurrence))
    agree(name, [modes.weighted_cross[0], modes.weighted_input[0], modes.optimum[0]])


@pytest.mark.parametrize("timescale", [2.0, 10.0])
def test_correlation_of_inputs_raises_both_weighted_strengths(timescale):
    """So a first task with more correlated inputs helps by its cross strength, not by a smaller input strength."""
    tasks = [lc.tasks.leaky_integration(steps=50, timescale=timescale, correlation=K) for K in (-0.5, 0.0, 0.5, 0.9)]
    modes = [modes_of_one(task, PAPER) for task in tasks]
    for name in ("weighted_cross", "weighted_input"):
        assert (np.diff([getattr(one, name)[0] for one in modes]) > 0).all()


@pytest.mark.equation("curriculum2025 Eq. (9)")
@pytest.mark.equation("curriculum2025 Eq. (42)")
@pytest.mark.parametrize("task", ["white", "ar1"])
@pytest.mark.parametrize("side", ["below", "above"])
@covers("u_white_below", "u_white_above", "u_ar1_below", "u_ar1_above")
def test_strength_over_time(task, side):
    name = f"u_{task}_{side}"
    given = ENTRIES[name]["inputs"]
    tau = np.array(given["tau"], dtype=float)
    agree(name, strength(tau / given["gamma"], given["u0"], 0.0, *given["betas"]))
    agree(name, solution(TASKS[task], at_strength(given["u0"])).at(tau)["strength"][:, 0])


@pytest.mark.equation("curriculum2025 Eq. (12)")
@pytest.mark.equation("curriculum2025 Eq. (41)")
@pytest.mark.parametrize("task", ["white", "ar1"])
@covers("time_white", "time_ar1", "time_white_eq12", "time_ar1_eq12")
def test_time_to_learn_and_the_papers_time(task):
    given = ENTRIES[f"time_{task}"]["inputs"]
    cross, power = given["betas"]
    optimum = cross / power
    cases = [(given["u0"], 0.01), (given["u0"], 0.2), (2 * optimum, 0.01), (2 * optimum, 0.2), (1.005 * optimum, 0.01)]
    start, tolerance = np.transpose(cases)
    agree(f"time_{task}", time_to_band(start, 0.0, cross, power, tolerance)[0] * given["gamma"])
    solutions = [solution(TASKS[task], at_strength(u)) for u in start]
    accuracies = 1 - tolerance
    learned = [s.time_to(accuracy) for s, accuracy in zip(solutions, accuracies, strict=True)]
    agree(f"time_{task}", [time.flow_steps for time in learned])
    paper = [lc.papers.paper_time(s, accuracy)[0] for s, accuracy in zip(solutions, accuracies, strict=True)]
    agree(f"time_{task}_eq12", paper)


@pytest.mark.equation("curriculum2025 Eq. (9)")
@covers("u_beta_yx_zero")
def test_strength_without_a_target():
    given = ENTRIES["u_beta_yx_zero"]["inputs"]
    tau = np.array(given["tau"]) / given["gamma"]
    agree("u_beta_yx_zero", strength(tau, given["u0"], 0.0, given["beta_yx"], given["beta_xx"]))


@covers("time_u0_zero")
def test_nothing_is_learned_from_zero():
    given = ENTRIES["time_u0_zero"]["inputs"]
    assert ENTRIES["time_u0_zero"]["expected"] == "inf"
    assert time_to_band(given["u0"], 0.0, *given["betas"], given["eps"])[0] == np.inf
    learned = solution(WHITE, at_strength(0.0)).time_to(1 - given["eps"])
    assert (learned.flow_steps, learned.descent_steps) == (np.inf, np.inf)
    assert learned.status is lc.Status.not_learned


@covers("gd_steps")
def test_descent_counts():
    learned = [solution(task).time_to(0.99) for task in TASKS.values()]
    agree("gd_steps", [time.descent_steps for time in learned])


def first_task(name):
    """The first task of an entry "syx1.5_e.2": white, with its target or input strength changed."""
    what, value = name.split("_")[0][:3], float(name.split("_")[0][3:])
    return WHITE.varied(**{"syx": {"target_strength": value}, "sxx": {"input_strength": value}}[what])


@pytest.mark.equation("curriculum2025 Eq. (13)")
@pytest.mark.equation("curriculum2025 Eq. (15)")
@pytest.mark.parametrize("name", CURRICULA)
@covers(*(f"cl_{name}" for name in CURRICULA))
def test_curriculum_by_exact_hitting_times(name):
    given = ENTRIES[f"cl_{name}"]["inputs"]
    first = first_task(name)
    modes = modes_of_one(first, PAPER)
    # the entry's strengths are those of the family's closed forms to the last digits
    np.testing.assert_allclose([modes.weighted_cross[0], modes.weighted_input[0]], given["task1"], rtol=1e-13)
    stages = [lc.Stage(first, goal=1 - given["eps1"]), lc.Stage(WHITE, goal=1 - given["eps2"])]
    curriculum = lc.follow(stages, PAPER, learning_rate=1 / given["gamma"])
    found = {
        "t02": curriculum.direct.flow,
        "t01": curriculum.stages[0].steps.flow,
        "t12": curriculum.stages[1].steps.flow,
        "u1": curriculum.stages[0].end[0],
        "t_cl": curriculum.steps.flow,
        "speedup": curriculum.saving.flow,
        "ratio": curriculum.speedup_ratio,
    }
    assert set(found) == set(ENTRIES[f"cl_{name}"]["expected"])
    for key, value in found.items():
        agree(f"cl_{name}", value, key)


@pytest.mark.equation("curriculum2025 Eq. (12)")
@pytest.mark.equation("curriculum2025 Eq. (14)")
@pytest.mark.equation("curriculum2025 Eq. (16)")
@pytest.mark.equation("curriculum2025 Eq. (46)")
@pytest.mark.parametrize("name", CURRICULA)
@covers(*(f"clpaper_{name}" for name in CURRICULA))
def test_curriculum_by_the_papers_equations(name):
    entry = f"clpaper_{name}"
    given = ENTRIES[entry]["inputs"]
    first, accuracies = first_task(name), (1 - given["eps1"], 1 - given["eps2"])
    stages = [lc.Stage(first, goal=accuracies[0]), lc.Stage(WHITE, goal=accuracies[1])]
    curriculum = lc.follow(stages, PAPER, learning_rate=1 / given["gamma"])
    direct = lc.papers.paper_time(solution(WHITE), accuracies[1])[0]
    one = lc.papers.paper_time(solution(first), accuracies[0])[0]
    two = lc.papers.paper_time(solution(WHITE, at_strength(curriculum.stages[0].end[0])), accuracies[1])[0]
    agree(entry, direct, "t02")
    agree(entry, one, "t01")
    agree(entry, two, "t12")
    agree(entry, direct - one - two, "speedup")
    agree(entry, curriculum.explanation.paper_speedup_steps, "speedup")
    terms = [curriculum.explanation.initial_scale, curriculum.explanation.cross_ratio, curriculum.explanation.closeness]
    agree(entry, terms, "terms_eq16")
    agree(entry, sum(terms), "sum_eq16")
    computed = np.array(speedup_terms(given["u0"], given["task1"], given["task2"], given["eps1"])).ravel()
    agree(entry, computed, "terms_eq16")
    # Eq. (16): the sum of the terms is 2 beta_yx / gamma times the speedup
    agree(entry, sum(terms) * given["gamma"] / (2 * given["task2"][0]), "speedup")


@pytest.mark.equation("curriculum2025 Eq. (17)")
@covers("eq17")
def test_closeness_and_its_singularity():
    given = ENTRIES["eq17"]["inputs"]
    optima = (given["u1star"], given["u2star"])
    agree("eq17", closeness(*optima, np.array(given["eps1"], dtype=float)), "values")
    agree("eq17", 1 - singular_accuracy(*optima), "singular_eps1")


PHASES = {
    "phase_syx": (WHITE, "target_strength"),
    "phase_kappa": (lc.tasks.leaky_integration(steps=50, timescale=10.0), "timescale"),
}


@pytest.mark.equation("curriculum2025 Eq. (15)")
@pytest.mark.parametrize("name", PHASES)
@covers(*PHASES)
def test_phase_portraits(name):
    (target, vary), given = PHASES[name], ENTRIES[name]["inputs"]
    values, accuracies = given["task1_grid"], given["accuracy"]
    portrait = lc.phase(
        target,
        PAPER,
        learning_rate=1 / given["gamma"],
        vary=vary,
        values=values,
        accuracies=accuracies,
        goal=1 - given["eps2"],
    )
    assert portrait["speedup_steps"].dims == (vary, "accuracy")
    agree(name, portrait["speedup_steps"], "exact")
    agree(name, portrait["direct_steps"], "t02")
    stages = portrait["first_stage_steps"] + portrait["second_stage_steps"]
    np.testing.assert_allclose(stages, portrait["total_steps"], rtol=1e-14)
    np.testing.assert_allclose(portrait["direct_steps"] - stages, portrait["speedup_steps"], rtol=1e-9)
    candidates = [target.varied(**{vary: value}) for value in values]
    modes = [modes_of_one(candidate, PAPER) for candidate in candidates]
    agree(name, [2 * m.weighted_cross[0] * LEARNING_RATE for m in modes], "gd_stability_2_beta_yx_over_gamma")
    second = modes_of_one(target, PAPER)
    strengths = (second.weighted_cross[0], second.weighted_input[0])
    sums = [
        [
            sum(speedup_terms(given["u0"], (m.weighted_cross[0], m.weighted_input[0]), strengths, 1 - accuracy))[()]
            for accuracy in accuracies
        ]
        for m in modes
    ]
    agree(name, np.array(sums) * given["gamma"] / (2 * strengths[0]), "paper_eq12")
    singular = [m.optimum[0] for m in modes] / second.optimum[0]
    expected = np.where(singular > 1, 1 / singular, np.nan)
    # one quotient of two sums of 50 terms
    np.testing.assert_allclose(portrait["singular_accuracy"], expected, rtol=1e-12)


@covers("optimal_up")
def test_fastest_path():
    """3.92 is 2% below the last task's optimum of 4, so the plan for that task at 98% is the path."""
    given = ENTRIES["optimal_up"]["inputs"]
    cross, power = np.transpose(given["tasks"])
    pool = [lc.tasks.static([[b]], [[p]], name=f"task {k}") for k, (b, p) in enumerate(given["tasks"])]
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=1e-3**0.5, hidden_size=1)
    plan = lc.plan(pool[2], pool[:2], network, learning_rate=1 / given["gamma"], terms=lc.Terms(0.98, max_stages=3))
    route = plan.flow_route
    agree("optimal_up", route.total, "time")
    legs, at = [], 1e-3
    for task, steps in zip((*route.order, 2), (*route.durations, route.rest), strict=True):
        end = float(strength(steps / given["gamma"], at, 0.0, cross[task], power[task]))
        legs.append([task, at, end])
        at = end
    agree("optimal_up", legs, "plan")


def test_overshooting_pays_above_the_strength_of_the_theory_page():
    """To 99% first, then down to the target, beats direct training iff s_yx > 1.3006 (4 decimals)."""
    for value, pays in ((1.30055, False), (1.30065, True)):
        stages = [lc.Stage(WHITE.varied(target_strength=value), goal=0.99), lc.Stage(WHITE, goal=0.99)]
        assert (lc.follow(stages, PAPER, learning_rate=LEARNING_RATE).saving.flow > 0) is pays


def test_the_best_stop_is_the_edge_of_the_band():
    """As on the theory page: eps1 = 1 - (1 - eps2) u2*/u1*, not the singularity; the target is not trained."""
    first = WHITE.varied(target_strength=1.5, name="first")
    found = lc.plan(WHITE, [first], PAPER, learning_rate=LEARNING_RATE)
    # the stop is where a straight line meets the edge of the band, to the precision of a search
    route, method = found.candidates[0].flow_route, found.method
    state = method.after_flow(0, method.start, route.durations[0])
    assert method.accuracy(0, state[None]) == pytest.approx([0.99 / 1.5], rel=1e-6)
    assert route.rest == pytest.approx(0, abs=1e-3)
    # in whole steps of descent: the first step inside
    before, after = method.accuracy(
        1, method.advance(0, method.start[None], [int(found.total) - 1, int(found.total)])[:, 0]
    )
    assert before < 0.99 <= after
    assert found.route.rest == 0
