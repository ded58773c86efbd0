"""Plans by modes: ranking, refusals, and stops against a fine grid and plain descent.

One mode from a balanced start follows the logistic equation du/dtau = 2u (beta - u B). The oracle below is written
from that line alone.
"""

import numpy as np
import pytest

import learncast as lc
from learncast import LinearRNN, Stage, Status, follow, plan, tasks
from learncast.planning.schedules.problem import best_stop
from learncast.theory import Problem, modes_of

RATE = 1e-3
#: Closed forms against closed forms: a few hundred operations of round-off.
CLOSE = 1e-10


def assert_refused(call, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        call()
    assert caught.value.field == field


@pytest.fixture(scope="module")
def target():
    return tasks.integration(steps=50, name="target")


@pytest.fixture(scope="module")
def stronger():
    return tasks.integration(steps=50, target_strength=1.5, name="stronger")


@pytest.fixture(scope="module")
def network():
    return LinearRNN.aligned(hidden_size=4)


@pytest.fixture(scope="module")
def two_modes():
    return LinearRNN.aligned(hidden_size=4, inputs=2, outputs=2)


def logistic(time, start, beta, power):
    """Strength after a flow time."""
    grown = np.exp(-2 * beta * time)
    best = beta / power
    return best / (1 + (best / start - 1) * grown)


def band_time(start, beta, power, tolerance):
    """Flow time to the nearer edge of the band around the optimum, 0 inside it."""
    best = beta / power
    edge = np.where(start < best, (1 - tolerance) * best, (1 + tolerance) * best)
    time = np.log((best / start - 1) / (best / edge - 1)) / (2 * beta)
    return np.where(np.abs(start - best) <= tolerance * best * (1 + 1e-14), 0.0, time)


# --- plans -----------------------------------------------------------------------------------------------------------


def test_candidates_are_ranked_and_the_best_is_followed(target, stronger, network):
    weaker = tasks.integration(input_strength=0.5, name="weaker inputs")
    slower = tasks.integration(target_strength=0.5, name="slower")
    found = plan(target, [slower, weaker, stronger], network, learning_rate=RATE)
    assert [c.task.name for c in found.candidates] == ["stronger", "weaker inputs", "slower"]
    assert [c.helps for c in found.candidates] == [True, True, False]
    assert [o.stage.task.name for o in found.best.stages] == ["stronger", "target"]
    for candidate in found.candidates:
        assert candidate.steps.status is Status.ok
        by_flow = [Stage(candidate.task, steps=t) for t in candidate.flow_route.durations]
        again = follow([*by_flow, Stage(target, goal=0.99)], network, learning_rate=RATE)
        assert candidate.flow_route.total == pytest.approx(again.steps.flow, rel=CLOSE)
        assert candidate.flow_route.total <= candidate.steps.flow * (1 + CLOSE)
        assert candidate.steps.flow == candidate.forecast.steps.flow
        assert candidate.steps.descent == candidate.forecast.steps.descent
        assert candidate.steps.descent <= again.steps.descent
    assert found.total == found.best.steps.descent < found.direct_total == found.direct.descent
    assert found.flow_route.total < found.direct.flow
    assert found.best.speedup_ratio == pytest.approx(found.direct.flow / found.best.steps.flow)
    assert found.forecast_class == "exact"
    assert all(a.holds for a in found.trust.assumptions)


def test_a_candidate_that_hurts_is_not_used(target, network):
    slower = tasks.integration(target_strength=0.5, name="slower")
    found = plan(target, [slower], network, learning_rate=RATE)
    [candidate] = found.candidates
    assert not candidate.helps
    assert candidate.stop_steps == 0
    assert candidate.saving == 0
    assert candidate.saving_ratio == 1
    assert [o.stage.task.name for o in found.best.stages] == ["target"]
    assert found.best.saving.flow == 0
    assert "slower" in candidate.why["sentence"]


def test_the_target_itself_and_an_empty_pool_are_refused(target, network):
    for pool in ([target.renamed("copy")], []):
        assert_refused(lambda pool=pool: plan(target, pool, network, learning_rate=RATE), "candidates")


def test_one_stage_means_direct_training(target, stronger, network):
    for found in (
        plan(target, [], network, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
        plan(target, [stronger], network, learning_rate=RATE, terms=lc.Terms(max_stages=1)),
    ):
        assert found.candidates == ()
        assert found.best.steps.flow == found.direct.flow == found.flow_route.total
        assert found.total == found.direct.descent == 331
        assert found.dataset.sizes["candidate"] == 0
        assert "candidate" not in found.summary  # none was tried
    assert (found.saving, found.forecast_class, found.pretrains) == (0, "exact", False)
    dear = plan(target, [], network, learning_rate=RATE, terms=lc.Terms(max_stages=1, costs=2.0))
    assert dear.total == 2.0 * found.total


def test_unusable_plans_are_refused(target, stronger, network):
    def planned(**keywords):
        return plan(target, [stronger], network, **{"learning_rate": RATE, **keywords})

    assert_refused(lambda: planned(method="guess"), "method")
    assert_refused(lambda: planned(terms={"accuracy": 0.9}), "terms")
    assert_refused(lambda: planned(learning_rate=0.0), "learning_rate")
    with pytest.raises(TypeError):
        planned(max_stages=2)
    wide = tasks.integration(target_strength=[1.0, 2.0], name="wide")
    with pytest.raises(lc.InvalidSpec):
        plan(target, [wide], network, learning_rate=RATE)


def turned(angle, strengths, name):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return tasks.integration(mixing=turn @ np.diag(strengths), name=name)


def test_a_candidate_of_another_geometry_comes_last_and_is_never_chosen(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0], name="goal")
    strange = turned(0.5, [20.0, 10.0], "strange")  # so strong that it would win if its numbers counted
    hurts = tasks.integration(target_strength=[0.2, 0.1], name="hurts")
    helps = tasks.integration(target_strength=[3.0, 1.5], name="helps")
    for strict in (True, False):
        found = plan(goal, [strange, hurts, helps], two_modes, learning_rate=RATE, method="modes", strict=strict)
        assert [c.task.name for c in found.candidates] == ["helps", "hurts", "strange"]
        last = found.candidates[-1]
        assert last.steps.status is Status.outside_theory
        assert last.steps.flow < found.candidates[0].steps.flow
        assert [a.name for a in last.assumptions if not a.holds] == ["static_geometry"]
        assert "static_geometry" in last.why["sentence"]
        assert found.best.stages[0].stage.task.name == "helps"
        only = plan(goal, [strange], two_modes, learning_rate=RATE, method="modes", strict=strict)
        assert len(only.best.stages) == 1
        assert only.forecast_class == "exact"


def test_a_candidate_of_nearly_equal_geometry_competes_only_if_not_strict(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0], name="goal")
    near = turned(0.02, [3.0, 1.5], "near")
    assert len(plan(goal, [near], two_modes, learning_rate=RATE, method="modes").best.stages) == 1
    relaxed = plan(goal, [near], two_modes, learning_rate=RATE, method="modes", strict=False)
    assert relaxed.best.stages[0].stage.task.name == "near"
    assert relaxed.forecast_class == "outside"
    measured = {a.name: a.measured for a in relaxed.trust.assumptions}
    assert measured["static_geometry"] == pytest.approx(np.sin(0.02), rel=1e-6)


def test_a_candidate_on_which_descent_diverges_is_never_chosen(target, network):
    violent = tasks.integration(target_strength=200.0, name="violent")
    for strict in (True, False):
        found = plan(target, [violent], network, learning_rate=RATE, strict=strict)
        [candidate] = found.candidates
        # The first few steps do not diverge yet: they are counted, but not recommended.
        own, other = modes_of([target, violent], network)
        problems = [(m.weighted_cross, m.weighted_input) for m in (other, own)]
        steps = mode_descent(own.start, *problems, 0.01, RATE, int(candidate.stop_steps))
        assert candidate.steps.descent == steps
        assert len(found.best.stages) == 1
        assert "stable_learning_rate" in candidate.why["sentence"]
        assert candidate.steps.status is Status.diverged


def test_a_plan_is_saved_and_read_again(target, stronger, network, tmp_path):
    found = plan(target, [stronger], network, learning_rate=RATE)
    dataset = found.dataset
    assert dataset["candidate"].values.tolist() == ["stronger"]
    assert float(dataset["direct_flow_steps"]) == pytest.approx(329.98, abs=0.005)
    assert float(dataset["direct_steps"]) == 331
    assert dataset["stop_steps"].attrs["units"] == "gradient steps"
    saved = lc.Plan.load(found.save(tmp_path / "plan.nc"))
    assert saved.drop_attrs().identical(dataset.drop_attrs())
    assert (saved.attrs["proof"], saved.attrs["summary"]) == (found.proof, found.summary)
    assert saved["status"].values.tolist() == ["ok"]
    assert saved["stage_task"].values.tolist() == ["stronger", "target"]
    assert saved["stage_steps"].values.tolist() == [168, 0]
    with pytest.raises(lc.SchemaMismatch):
        lc.Plan.load(found.best.save(tmp_path / "forecast.nc"))


def test_progress_is_reported_up_to_the_end(two_modes):
    goal = tasks.integration(target_strength=[2.0, 1.0])
    pool = [tasks.integration(target_strength=[k, 1.0], name=str(k)) for k in (1.5, 2.5, 3.5)]
    shares = []
    plan(goal, pool, two_modes, learning_rate=RATE, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# --- the best stop, against a grid -----------------------------------------------------------------------------------


def totals(stops, start, first, second, tolerance):
    """Total flow time when the first task is trained for each of `stops`, by the logistic oracle."""
    after = logistic(stops[:, None], start, *first)
    return stops + band_time(after, *second, tolerance).max(axis=1)


@pytest.mark.parametrize("modes", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_no_stop_on_a_fine_grid_beats_the_best_stop(modes, seed):
    rng = np.random.default_rng([modes, seed])
    start = 10.0 ** rng.uniform(-4, 0.3, modes)  # from far below to above the optimum
    first, second = (10.0 ** rng.uniform(-0.7, 0.7, (2, modes)) for _ in range(2))
    tolerance = 10.0 ** rng.uniform(-3, -0.5)
    zero = np.zeros(modes)
    stop, best = best_stop(start, Problem(*first, zero), Problem(*second, zero), tolerance)
    direct = totals(np.zeros(1), start, first, second, tolerance)[0]
    grid = np.concatenate([np.linspace(0.0, 1.2 * direct, 20_001), stop + direct * np.linspace(-1e-3, 1e-3, 2001)])
    tried = totals(grid[grid >= 0], start, first, second, tolerance)
    assert best <= tried.min() * (1 + 1e-9)
    # and it is what that stop really takes; a stop on a band's edge may fall outside it by one rounding
    nearby = stop + direct * np.array([-1e-12, 0.0, 1e-12])
    reached = totals(np.maximum(nearby, 0.0), start, first, second, tolerance)
    assert reached.min() - 1e-9 * direct <= best <= direct * (1 + 1e-12)


@pytest.mark.parametrize("points", [17, pytest.param(101, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strengths", [[1.0], [1.0, 2.0]])
def test_the_plan_uses_the_best_stop(strengths, points):
    goal = tasks.integration(target_strength=strengths)
    first = tasks.integration(target_strength=[3.0] * len(strengths), name="first")
    network = LinearRNN.aligned(task=goal, hidden_size=3)
    [candidate] = plan(goal, [first], network, learning_rate=RATE).candidates
    trials = [
        follow([Stage(first, steps=steps), Stage(goal, goal=0.99)], network, learning_rate=RATE).steps.flow
        for steps in np.linspace(0.5, 1.5, points) * candidate.flow_route.durations[0]
    ]
    assert candidate.flow_route.total <= min(trials) * (1 + 1e-9)


def mode_descent(start, first, second, tolerance, rate, stop):
    """Steps of plain descent when the first task is trained for a whole number of them, the target then learned."""
    a, c = np.sqrt(start), np.sqrt(start)
    for _ in range(stop):
        pull = rate * (first[0] - first[1] * a * c)
        a, c = a + c * pull, c + a * pull
    best, steps = second[0] / second[1], stop
    while (np.abs(a * c - best) > tolerance * best).any():
        pull = rate * (second[0] - second[1] * a * c)
        a, c, steps = a + c * pull, c + a * pull, steps + 1
    return steps


@pytest.mark.parametrize("strengths", [[1.0], [1.0, 2.0], [1.0, 0.6, 2.0]], ids=str)
def test_no_other_stop_takes_fewer_steps_of_descent(strengths):
    goal = tasks.integration(target_strength=strengths)
    first = tasks.integration(target_strength=[3.0 - 0.4 * k for k in range(len(strengths))], name="first")
    network = LinearRNN.aligned(task=goal, hidden_size=3, initial=0.1)
    found = plan(goal, [first], network, learning_rate=RATE)
    own, other = modes_of([goal, first], network)
    problems = [(m.weighted_cross, m.weighted_input) for m in (other, own)]
    stop = int(found.candidates[0].stop_steps)
    steps = [mode_descent(own.start, *problems, 0.01, RATE, n) for n in range(2 * stop + 20)]
    assert stop > 0
    assert found.total == steps[stop]
    assert found.total == min(steps)
    assert found.direct_total == steps[0]


def test_without_gain_the_best_stop_is_none():
    zero = np.zeros(1)
    same = Problem(np.ones(1), np.ones(1), zero)
    slower = Problem(0.5 * np.ones(1), np.ones(1), zero)
    for first in (same, slower):
        stop, best = best_stop(np.full(1, 0.01), first, same, 0.01)
        assert stop == 0.0
        assert best == pytest.approx(float(band_time(0.01, 1.0, 1.0, 0.01)), rel=CLOSE)
    stop, best = best_stop(np.full(1, -0.01), same, same, 0.01)  # a balanced mode never changes its sign
    assert (stop, best) == (0.0, np.inf)


def test_a_goal_is_named_in_its_own_unit(target):
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    stronger = target.varied(target_strength=1.5).renamed("stronger")
    for goal, words in ((0.99, "99%"), (lc.Explained(0.95), lc.Explained(0.95).text), (lc.Loss(9.0), "loss 9")):
        found = plan(target, [stronger], network, learning_rate=RATE, terms=lc.Terms(goal))
        assert found.goal_text == words
        assert [a.name for a in found.alternatives if a.in_full and words in a.name]
