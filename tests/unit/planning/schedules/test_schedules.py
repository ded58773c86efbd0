"""Schedules and fronts: what they contain and what they refuse."""

import numpy as np
import pytest

import learncast as lc
from learncast.planning import method_for
from learncast.planning.schedules.exact import cheapest_schedule
from learncast.planning.search import usable_candidates

RATE = 1e-3
WHITE = lc.tasks.integration(steps=50)
POOL = [
    WHITE.varied(target_strength=1.5, name="strong"),
    lc.tasks.leaky_integration(steps=50, timescale=20.0, correlation=0.5, name="correlated"),
]
PAPER = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128)
THREE = lc.tasks.integration(steps=50, target_strength=[1.0, 0.7, 0.5])
THREES = [
    THREE.varied(target_strength=[1.5, 0.5, 0.8], name="first"),
    THREE.varied(target_strength=[0.8, 1.2, 0.6], name="second"),
]
NETWORK = lc.LinearRNN.aligned(
    inputs=3, outputs=3, recurrence=[0.96, 0.9, 0.8], initial=[0.01, 0.02, 0.03], hidden_size=16
)


def search(target, pool, network, *, gap=1e-6, max_boxes=100_000, strict=True, **rules):
    """Return the mode method of a pool and the cheapest schedule of it."""
    method = method_for([*pool, target], network, RATE, method="modes")
    terms = lc.Terms(**{"goal": lc.Accuracy(0.99), "max_stages": 3, **rules})
    own, usable = terms.over(len(pool), terms.goal), usable_candidates(method, strict)
    return method, cheapest_schedule(method, own, usable, gap=gap, max_boxes=max_boxes)


def one_mode(**rules):
    return search(WHITE, POOL, PAPER, **rules)


def three_modes(**rules):
    return search(THREE, THREES, NETWORK, **{"gap": 1e-4, **rules})


def follow(method, schedule, goal=lc.Accuracy(0.99)):  # noqa: B008  frozen
    """Forecast the stages of a schedule."""
    route = zip(schedule.route.order, schedule.route.durations, strict=True)
    stages = [*(lc.Stage(method.tasks[k], steps=t) for k, t in route), lc.Stage(method.tasks[-1], goal)]
    return lc.follow(stages, method.network, learning_rate=RATE)


LOSS = lc.Explained(1 - 0.01**2)


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"max_stages": 2},
        {"costs": [2.0, 0.5, 1.0]},
        {"switch_cost": 10.0},
        {"least_accuracy": 0.99},
        {"goal": LOSS},
    ],
    ids=str,
)
def test_a_schedule_of_one_mode_is_exact(rules):
    method, found = one_mode(**rules)
    # both are closed forms on equal numbers
    path = follow(method, found, rules.get("goal", lc.Accuracy(0.99)))
    assert path.steps.flow == pytest.approx(found.route.steps, rel=1e-9)
    costs, order = rules.get("costs", [1.0] * 3), (*found.route.order, method.target)
    spent = sum(costs[k] * t for k, t in zip(order, (*found.route.durations, found.route.rest), strict=True))
    assert found.route.total == pytest.approx(spent + len(found.route.order) * rules.get("switch_cost", 0))
    assert (found.proof, found.lower_bound) == ("certified", found.route.total)
    direct = path.direct.flow * costs[-1]
    assert found.route.total <= direct * (1 + 1e-12)


@pytest.mark.parametrize(
    "rules", [{"max_stages": 2}, {"costs": [1.0, 0.7, 2.0]}, {"goal": LOSS, "max_stages": 2, "gap": 1e-3}], ids=str
)
def test_a_schedule_of_several_modes_takes_the_steps_of_its_stages(rules):
    method, found = three_modes(**rules)
    path = follow(method, found, rules.get("goal", lc.Accuracy(0.99)))
    assert path.steps.flow == pytest.approx(found.route.steps, rel=1e-9)
    assert found.proof == "certified"
    assert found.lower_bound >= found.route.total * (1 - rules.get("gap", 1e-4))
    assert found.lower_bound <= found.route.total < path.direct.flow * rules.get("costs", [1.0])[-1]


def test_one_mode_by_branch_and_bound_is_the_exact_path():
    """A limit on forgetting that does not bind sends one mode through the search of several."""
    (_, exact), (_, searched) = one_mode(), one_mode(most_excess_loss=[1e6, np.nan], gap=1e-5)
    assert searched.proof == "certified"
    assert exact.route.total * (1 - 1e-12) <= searched.route.total <= exact.route.total * (1 + 1e-5)


def test_a_limit_on_forgetting_is_met_and_costs():
    method, free = three_modes(max_stages=2)
    left = method.excess_loss(0, follow(method, free).run.states[-1][None])[0]
    limit = (0.98 if 0 not in free.route.order else 0.999) * left
    front = lc.plan(THREE, THREES, NETWORK, learning_rate=RATE).front(THREES[0], points=3)
    assert (np.diff(front.total) >= -1e-3 * front.total[:-1]).all()  # the gap of each search
    assert (front.excess_loss <= front.limits * (1 + 1e-9)).all()
    assert (front.lower_bound <= front.total).all()
    assert front.dataset["total"].dims == ("limit",)
    assert set(front.dataset["status"].values) == {"ok"}
    assert front.task.name in repr(front)
    _, kept = three_modes(max_stages=2, most_excess_loss=[limit, np.nan])
    end = follow(method, kept).run.states[-1][None]
    assert kept.route.total == np.inf or method.excess_loss(0, end)[0] <= limit * (1 + 1e-9)


def test_no_schedule_meets_impossible_limits():
    for _, found in (
        three_modes(most_excess_loss=[0.0, np.nan]),
        search(WHITE, POOL, lc.LinearRNN.aligned(recurrence=0.96, initial=0.0)),
    ):
        assert (found.route.total, found.lower_bound, found.route.order) == (np.inf, np.inf, ())
        assert found.proof == "certified"


def test_a_search_that_is_cut_short_proves_nothing():
    _, found = three_modes(costs=[0.5, 0.7, 1.0], gap=1e-9, max_boxes=40)
    assert found.proof == "best found"
    assert found.lower_bound < found.route.total < np.inf


def test_candidates_outside_the_theory_are_left_out():
    wild = WHITE.varied(target_strength=1e4, name="wild")  # descent diverges on it
    method, found = search(WHITE, [wild, *POOL], PAPER)
    assert usable_candidates(method, True) == [1, 2]
    assert found.route.total == one_mode()[1].route.total
    method, only = search(WHITE, [wild], PAPER)
    assert only.route.order == ()
    assert only.route.total == pytest.approx(follow(method, only).direct.flow, rel=1e-12)  # two closed forms
    _, lenient = search(WHITE, [wild], PAPER, strict=False)
    assert lenient.route.order == ()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: lc.plan(WHITE, [], PAPER, learning_rate=RATE), "candidates"),
        (lambda: lc.plan(WHITE, [WHITE.renamed("x")], PAPER, learning_rate=RATE), "candidates"),
        (lambda: one_mode(costs=[1.0, 2.0]), "costs"),
        (lambda: one_mode(costs=[1.0, 0.0, 1.0]), "costs"),
        (lambda: one_mode(least_accuracy=[0.5] * 3), "least_accuracy"),
        (lambda: one_mode(least_accuracy=0.9, most_accuracy=0.8), "least_accuracy"),
        (lambda: one_mode(least_accuracy=1.2), "least_accuracy"),
        (lambda: one_mode(most_excess_loss=[1.0]), "most_excess_loss"),
        (lambda: one_mode(most_excess_loss=[-1.0, 1.0]), "most_excess_loss"),
        (lambda: one_mode(switch_cost=-1.0), "switch_cost"),
        (lambda: one_mode(max_stages=0), "max_stages"),
        (lambda: lc.plan(WHITE, POOL, PAPER, learning_rate=RATE).front("unknown"), "task"),
    ],
)
def test_malformed_requests_are_refused(call, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        call()
    assert caught.value.field == field
