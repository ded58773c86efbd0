"""Schedules, fronts and designs: what they hold, what they refuse, and how they come out."""

import numpy as np
import pytest
from learncast.planning.schedules.schedule import PROOFS
from learncast.planning.schedules.search import best_schedule

import learncast as lc
from learncast._core.errors import InvalidSpec
from learncast.planning import cheapest_path, design, fastest_path, forgetting_front
from learncast.results import Status

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


def schedule(**rules):
    search = {key: rules.pop(key) for key in ("gap", "max_boxes") if key in rules}
    terms = lc.Terms(**{"max_stages": 3, **rules})
    return best_schedule(WHITE, POOL, PAPER, learning_rate=RATE, terms=terms, **search)


def schedules(**rules):
    search = {"gap": 1e-4} | {key: rules.pop(key) for key in ("gap", "max_boxes") if key in rules}
    terms = lc.Terms(**{"max_stages": 3, **rules})
    return best_schedule(THREE, THREES, NETWORK, learning_rate=RATE, terms=terms, **search)


def followed(found, network):
    return lc.follow(found.as_stages(), network, learning_rate=RATE)


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"max_stages": 2},
        {"costs": [2.0, 0.5, 1.0]},
        {"switch_cost": 10.0},
        {"least_accuracy": 0.99},
        {"goal": "loss"},
    ],
    ids=str,
)
def test_one_mode_is_exact_and_follow_reproduces_it(rules):
    found = schedule(**rules)
    # both are the same closed forms on the same numbers
    assert followed(found, PAPER).flow_steps == pytest.approx(found.flow_steps, rel=1e-9)
    switches = len(found.stages) - 1
    assert found.total == pytest.approx(sum(s.cost for s in found.stages) + switches * rules.get("switch_cost", 0))
    assert (found.proof, found.gap, found.status) == ("exact", 0.0, Status.ok)
    assert found.stages[-1].task is WHITE
    assert found.saving == found.direct - found.total >= 0


@pytest.mark.parametrize(
    "rules", [{"max_stages": 2}, {"costs": [1.0, 0.7, 2.0]}, {"goal": "loss", "max_stages": 2, "gap": 1e-3}], ids=str
)
def test_follow_reproduces_a_schedule_of_several_modes(rules):
    found = schedules(**rules)
    path = followed(found, NETWORK)
    assert path.flow_steps == pytest.approx(found.flow_steps, rel=1e-9)
    for stage, outcome in zip(found.stages, path.stages, strict=True):
        np.testing.assert_allclose(outcome.end, stage.strength, rtol=1e-9)
    assert found.proof == "certified"
    assert 0 <= found.gap <= rules.get("gap", 1e-4)
    assert found.lower_bound <= found.total < found.direct


def test_one_mode_by_branch_and_bound_is_the_exact_path():
    """A limit on forgetting that does not bind sends one mode through the search of several."""
    exact, searched = schedule(), schedule(most_excess_loss=[1e6, np.nan], gap=1e-5)
    assert searched.proof == "certified"
    assert exact.total * (1 - 1e-12) <= searched.total <= exact.total * (1 + 1e-5)


def test_a_limit_on_forgetting_is_kept_and_costs():
    free = schedules(max_stages=2)
    limit = 0.98 * free.excess_loss[0] if free.stages[0].task is not THREES[0] else free.excess_loss[0] * 0.999
    front = forgetting_front(THREE, THREES, NETWORK, learning_rate=RATE, terms=lc.Terms(max_stages=2), points=3)
    assert (np.diff(front.total) >= -1e-3 * front.total[:-1]).all()  # the gap each point is searched to
    assert (front.excess_loss <= front.limits * (1 + 1e-9)).all()
    assert front.dataset["total"].dims == ("limit",)
    assert "Front" in repr(front)
    kept = schedules(max_stages=2, most_excess_loss=[limit, np.nan])
    assert kept.total == np.inf or kept.excess_loss[0] <= limit * (1 + 1e-9)


def test_rules_that_nothing_meets_are_an_outcome():
    for found in (
        schedules(most_excess_loss=[0.0, np.nan]),
        best_schedule(WHITE, POOL, lc.LinearRNN.aligned(recurrence=0.96, initial=0.0), learning_rate=RATE),
    ):
        assert found.status is Status.not_learned
        assert (found.total, found.lower_bound, found.stages) == (np.inf, np.inf, ())
        assert np.isnan(found.gap)
        assert found.proof in PROOFS
        assert found.dataset.attrs["status"] == "not_learned"
        assert "none" in repr(found)
    path = cheapest_path([1.0], [1.0], start=0.1, end=1.5, learning_rate=RATE)
    assert (path.status, path.total, path.flow_steps) == (Status.not_learned, np.inf, np.inf)
    path = cheapest_path(
        [1.0, 2.0], [1.0, 1.0], start=0.1, end=0.5, learning_rate=RATE, least_accuracy=1.0, max_stages=3
    )
    assert path.status is Status.not_learned


def test_a_search_cut_short_says_so():
    found = schedules(costs=[0.5, 0.7, 1.0], gap=1e-9, max_boxes=40)
    assert found.proof == "best found"
    assert found.lower_bound < found.total
    assert found.status is Status.ok


def test_candidates_outside_the_theory_are_left_out_and_named():
    wild = WHITE.varied(target_strength=1e4, name="wild")  # descent diverges on it
    found = best_schedule(WHITE, [wild, *POOL], PAPER, learning_rate=RATE)
    assert found.excluded == ("wild",)
    assert found.total == schedule().total
    alone = best_schedule(WHITE, [wild], PAPER, learning_rate=RATE)
    assert [s.task for s in alone.stages] == [WHITE]
    assert alone.total == pytest.approx(alone.direct, rel=1e-12)  # two closed forms of one time
    admitted = best_schedule(WHITE, [wild], PAPER, learning_rate=RATE, strict=False)
    assert admitted.status is Status.diverged


def test_a_schedule_is_labelled_and_saved(tmp_path):
    found = schedule()
    data = found.dataset
    assert list(data["task"].values) == [s.task.name for s in found.stages]
    assert all({"units", "long_name"} <= set(data[name].attrs) for name in data.data_vars)
    assert found.save(tmp_path / "schedule.nc").exists()


def test_rules_change_the_path():
    tasks = {"cross": [2.0, 4.0], "power": [1.0, 3.0], "start": 0.01, "end": 1.2, "learning_rate": RATE}
    free = cheapest_path(**tasks)
    assert free.total == fastest_path(**tasks).flow_steps
    assert [leg.task for leg in free.legs] == [1, 0]
    assert len(cheapest_path(**tasks, max_stages=1).legs) == 1
    assert len(cheapest_path(**tasks, switch_cost=1e6).legs) == 1
    assert [leg.task for leg in cheapest_path(**tasks, costs=[0.1, 10.0]).legs] == [0]
    assert [leg.task for leg in cheapest_path(**(tasks | {"start": 3.0, "end": 2.2})).legs] == [1]
    still = cheapest_path(**(tasks | {"end": (0.005, 0.02)}))
    assert (still.legs, still.total) == ((), 0.0)


def test_changing_to_a_target_that_needs_no_training_is_a_change_too():
    tasks = {"cross": [4.0, 2.0], "power": [2.0, 2.0], "start": 0.01, "end": (0.99, 1.01), "learning_rate": RATE}
    quick, direct = (fastest_path([b], [2.0], start=0.01, end=0.99, learning_rate=RATE).flow_steps for b in (4.0, 2.0))
    for share, legs in ((0.999, [0, 1]), (1.001, [1])):
        path = cheapest_path(**tasks, last=1, switch_cost=share * (direct - quick))
        assert [leg.task for leg in path.legs] == legs


def test_a_design_saves_what_it_says():
    found = design(WHITE, PAPER, bounds={"target_strength": (0.5, 2.0)}, learning_rate=RATE, evaluations=300)
    # faster all the way up to the band: the strongest target wins
    assert found.parameters["target_strength"] == pytest.approx(2.0)
    assert found.at_bounds == ("target_strength",)
    assert found.forecast.flow_steps == pytest.approx(found.total, rel=1e-9)
    assert found.helps
    assert found.saving == pytest.approx(found.forecast.speedup_steps, rel=1e-9)
    fine = [
        lc.plan(
            WHITE,
            [WHITE.varied(target_strength=v, name="first")],
            PAPER,
            learning_rate=RATE,
            terms=lc.Terms(goal=lc.Accuracy(0.99)),
        ).flow.best.total
        for v in np.linspace(0.5, 2.0, 30)
    ]
    assert found.total <= min(fine) * (1 + 1e-9)


def test_a_design_of_several_keywords_and_modes():
    found = design(
        THREE,
        NETWORK,
        bounds={"steps": (20, 50), "target_strength": (0.3, 2.0)},
        learning_rate=RATE,
        evaluations=60,
        cost="trial_steps",
    )
    assert isinstance(found.task, lc.Task)
    assert found.task.steps == found.parameters["steps"]
    first, second = (outcome.steps.flow for outcome in found.forecast.stages)
    assert found.total == pytest.approx(first * found.task.steps / 50 + second, rel=1e-9)
    assert found.saving > 0


def test_a_design_that_cannot_help_is_the_target():
    found = design(WHITE, PAPER, bounds={"target_strength": (0.1, 0.2)}, learning_rate=RATE, evaluations=100)
    assert found.task is WHITE
    assert (found.stop_steps, found.saving, found.helps) == (0.0, 0.0, False)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: best_schedule(WHITE, [], PAPER, learning_rate=RATE), "at least one candidate"),
        (lambda: best_schedule(WHITE, [WHITE.renamed("x")], PAPER, learning_rate=RATE), "differ from the target"),
        (lambda: schedule(costs=[1.0, 2.0]), "one for each of the 3 tasks"),
        (lambda: schedule(costs=[1.0, 0.0, 1.0]), "costs must be positive"),
        (lambda: schedule(least_accuracy=[0.5] * 3), "least_accuracy must be one number or one for each of the 2"),
        (lambda: schedule(least_accuracy=0.9, most_accuracy=0.8), "must not exceed"),
        (lambda: schedule(least_accuracy=1.2), "between 0 and 1"),
        (lambda: schedule(most_excess_loss=[1.0]), "most_excess_loss must be one number or one for each"),
        (lambda: schedule(most_excess_loss=[-1.0, 1.0]), "must not be negative"),
        (lambda: schedule(goal="mode"), "did you mean 'modes'"),
        (lambda: schedule(switch_cost=-1.0), "switch_cost"),
        (lambda: schedule(max_stages=0), "max_stages"),
        (lambda: cheapest_path([1.0, 2.0], [1.0], start=0.1, end=0.5, learning_rate=RATE), "same tasks"),
        (lambda: cheapest_path([], [], start=0.1, end=0.5, learning_rate=RATE), "at least one"),
        (lambda: cheapest_path([1.0], [0.0], start=0.1, end=0.5, learning_rate=RATE), "power must be positive"),
        (lambda: cheapest_path([1.0], [1.0], start=0.1, end=(0.5, 0.4), learning_rate=RATE), "rising order"),
        (lambda: cheapest_path([1.0], [1.0], start=0.1, end=0.5, learning_rate=RATE, last=1), "last must lie"),
        (lambda: design(WHITE, PAPER, bounds={}, learning_rate=RATE), "at least one keyword"),
        (lambda: design(WHITE, PAPER, bounds={"steps": (9,)}, learning_rate=RATE), "low and a high end"),
        (lambda: design(WHITE, PAPER, bounds={"stepz": (9, 20)}, learning_rate=RATE), "did you mean 'steps'"),
        (
            lambda: forgetting_front(WHITE, POOL, PAPER, learning_rate=RATE, remember=2),
            "place of a candidate",
        ),
    ],
)
def test_malformed_requests_are_refused_in_four_parts(call, words):
    with pytest.raises(InvalidSpec, match=r"(?s)but got .*: .*; ") as raised:
        call()
    assert words in str(raised.value)
