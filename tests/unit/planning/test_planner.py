"""Plans by every method: rules and costs, rotated tasks, learned recurrence and recorded data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast import tasks
from learncast.cli import app
from learncast.planning import summary
from learncast.report import draw_plan, plan_report
from learncast.study import Study
from learncast.theory import Problem, gradient_flow

RATE = 1e-3
EXAMPLES = Path(__file__).parents[3] / "examples"


def turned(angle, strengths, name):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return tasks.integration(steps=8, mixing=turn @ np.diag(strengths), name=name)


@pytest.fixture(scope="module")
def pair():
    target = tasks.integration(steps=20, name="target")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4, task=target)
    return target, target.varied(target_strength=1.5, name="strong"), network


@pytest.fixture(scope="module")
def rotated():
    goal = turned(0.0, [1.0, 0.5], "goal")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4, task=goal)
    return lc.plan(goal, [turned(0.4, [2.0, 1.0], "turned")], network, learning_rate=5e-3)


# --- methods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "kind"), [("two-layer", "exact"), ("flow", "integrated")])
def test_other_methods_plan_a_pair_of_modes_identically(pair, method, kind):
    target, strong, network = pair
    modes = lc.plan(target, [strong], network, learning_rate=RATE)
    tried = lc.plan(target, [strong], network, learning_rate=RATE, method=method)
    # The stop ends on the edge of the band, to the search's relative precision of 1e-6.
    assert tried.flow_route.total == pytest.approx(modes.flow_route.total, rel=1e-5)
    assert tried.direct.flow == pytest.approx(modes.direct.flow, rel=1e-6)
    assert tried.total == modes.total
    assert tried.direct_total == modes.direct_total
    assert (modes.forecast_class, tried.forecast_class) == ("exact", kind)
    assert (modes.proof, tried.proof) == ("exact", "best found")
    assert np.isnan(tried.bound)
    assert modes.bound == pytest.approx(modes.flow_route.total)


@pytest.mark.slow
def test_the_first_method_whose_conditions_hold_is_chosen(rotated, pair):
    assert rotated.method.name == "two-layer"
    target, strong, network = pair
    assert lc.plan(target, [strong], network, learning_rate=RATE).method.name == "modes"
    rng = np.random.default_rng(0)
    first, second = 0.3 * rng.normal(size=(3, 1)), 0.3 * rng.normal(size=(1, 3))
    starts = {
        "pooled": lc.LinearRNN(first, 0.5 * np.eye(3), second),
        "flow": lc.LinearRNN(first, np.diag([0.5, 0.45, 0.55]), second),
    }
    for method, start in starts.items():
        found = lc.plan(target, [strong], start, learning_rate=RATE, terms=lc.Terms(0.9))
        assert found.method.name == method
        assert found.forecast_class == "integrated"


def test_a_plan_for_a_two_layer_network_is_its_exact_flow():
    target = tasks.static(np.diag([2.0, 1.0]), name="target")
    other = tasks.static(np.array([[1.5, 0.5], [-0.5, 1.5]]), name="other")
    network = lc.TwoLayer.balanced(2, 3, 2, scale=0.05, rng=np.random.default_rng(0))
    found = lc.plan(target, [other], network, learning_rate=0.01)
    assert found.forecast_class == "exact"
    [stop] = found.candidates[0].flow_route.durations
    stages = [lc.Stage(other, steps=stop), lc.Stage(target, goal=0.99)]
    after = lc.forecast(other, network, learning_rate=0.01).solution.network_at(stop)
    rest = lc.forecast(target, after, learning_rate=0.01).solution.time_to(0.99).flow_steps
    assert lc.follow(stages, network, learning_rate=0.01).steps.flow == pytest.approx(stop + rest, rel=1e-9)
    assert found.candidates[0].flow_route.total == pytest.approx(stop + rest, rel=1e-9)
    assert found.total < found.direct_total
    assert found.flow_route.total < found.direct_flow_route.total


def two_layer_descent(network, first, last, rate, accuracy, stops):
    """Steps of plain descent of both stages, for each stop: pooled (power, cross) of two tasks, the target last."""
    A, C = np.array(network.input_weights), np.array(network.output_weights)
    best = last[1] @ np.linalg.pinv(last[0])
    goal = (1 - accuracy) ** 2 * np.trace(best @ last[1].T) / 2

    def moved(A, C, power, cross):
        G = cross - C @ A @ power
        return A + rate * C.T @ G, C + rate * G @ A.T

    found = {}
    for n in range(max(stops) + 1):
        if n in stops:
            a, c, steps = A, C, n
            while np.einsum("ij,jk,ik", c @ a - best, last[0], c @ a - best) / 2 > goal:
                a, c = moved(a, c, *last)
                steps += 1
            found[n] = steps
        A, C = moved(A, C, *first)
    return found


def test_no_other_stop_of_a_rotated_plan_takes_fewer_steps_of_descent(rotated):
    """z = sum_t b^(T-t) x_t: white inputs of unit variance pool to a power of sum b^2k, whatever the mixing."""
    weights = 0.9 ** np.arange(8)
    scale = [float(t.input_covariance.dense()[0, 0, 0, 0]) for t in (rotated.pool[0], rotated.target)]
    pooled = []
    for task, variance in zip((rotated.pool[0], rotated.target), scale, strict=True):
        cross = np.einsum("t,tio->oi", weights[::-1], task.cross_covariance.dense()[:, :, 0, :])
        pooled.append((variance * (weights**2).sum() * np.eye(2), cross))
    stop = int(rotated.candidates[0].stop_steps)
    stops = range(max(stop - 60, 0), stop + 60)
    found = two_layer_descent(rotated.network, *pooled, 5e-3, 0.99, {0, *stops})
    assert rotated.total == found[stop] == min(found.values())
    assert rotated.direct_total == found[0]


def test_descent_through_the_stages_of_a_rotated_plan_takes_its_steps(rotated):
    network, total = rotated.network, 0
    for stage in rotated.stages:
        run = lc.descend(stage.task, network, learning_rate=5e-3, goal=stage.goal)
        network, total = run.network_at(run.steps), total + run.steps
    assert total == rotated.best.steps.descent == rotated.total
    # At this learning rate descent and flow differ by a few of their steps.
    assert total == pytest.approx(rotated.best.steps.flow, rel=0.02)


def test_a_curriculum_with_learned_recurrence_is_followed_by_the_flow():
    target = tasks.integration(steps=5, name="target")
    strong = target.varied(target_strength=1.5, name="strong")
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2, task=target)
    stages = [lc.Stage(strong, steps=30), lc.Stage(target, goal=0.6)]
    everything = ("input", "recurrent", "output")
    found = lc.follow(stages, network, lc.Training(RATE, learn=everything), method="flow")
    assert found.forecast_class == "integrated"
    flow = gradient_flow(strong, network, learning_rate=RATE, learn=everything)
    again = gradient_flow(target, flow.network_at(30), learning_rate=RATE, learn=everything)
    # The least loss is where direct training rests.
    rest = gradient_flow(target, network, learning_rate=RATE, learn=everything).limit()["excess_loss"].item()
    baseline = again.problem.statistics.constant - again.problem.least_loss
    limit = rest + 0.4**2 * (baseline - rest)
    assert found.stages[1].steps.flow == pytest.approx(again.time_to_loss(limit), rel=1e-5)
    assert found.run.flows[1].problem.learn == everything
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.follow(stages, network, lc.Training(RATE, learn=everything), method="modes")
    assert caught.value.field == "method"


def test_a_flow_reaches_a_loss_when_its_trajectory_does(pair):
    target, _, network = pair
    flow = gradient_flow(target, network, learning_rate=RATE, learn=("input", "output"))
    goal = 0.3 * (flow.problem.statistics.constant - flow.problem.least_loss)
    time = flow.time_to_loss(goal)
    assert float(flow.at([time])["excess_loss"][0]) == pytest.approx(goal, rel=1e-9)
    assert flow.time_to_loss(1e9) == 0.0
    least = flow.problem.least_loss
    run = lc.descend(target, network, learning_rate=RATE, goal=lc.Loss(least + goal))
    assert run.loss[-1] - least <= goal < run.loss[-2] - least
    with pytest.raises(lc.InvalidSpec):
        lc.descend(target, network, learning_rate=RATE, steps=3, goal=0.5)


@pytest.mark.slow
def test_a_plan_does_not_need_the_variance_of_the_targets(pair):
    target, strong, network = pair
    bare = [lc.Task(t.input_covariance.dense(), t.cross_covariance.dense()[:, :, 0, :], name=t.name) for t in pair[:2]]
    known = lc.plan(target, [strong], network, learning_rate=RATE, method="two-layer")
    unknown = lc.plan(bare[0], [bare[1]], network, learning_rate=RATE, method="two-layer")
    assert unknown.flow_route.total == pytest.approx(known.flow_route.total, rel=1e-6)
    assert unknown.total == known.total


# --- rules and costs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["auto", pytest.param("two-layer", marks=pytest.mark.slow)])
def test_limits_and_costs_hold_for_every_method(pair, name):
    target, strong, network = pair

    def planned(**terms):
        return lc.plan(target, [strong], network, learning_rate=RATE, method=name, terms=lc.Terms(**terms))

    full, early = planned(least_accuracy=0.9), planned(most_accuracy=0.4)
    method = full.method

    def accuracies(found):
        """On the candidate, after the last two steps of its stage, by descent."""
        stop = int(found.route.durations[0])
        return method.accuracy(0, method.advance(0, method.start[None], [stop - 1, stop])[:, 0])

    before, after = accuracies(full)
    assert before < 0.9 <= after + 1e-12  # the first step that meets the limit
    assert after == pytest.approx(0.9, abs=2e-3)
    before, after = accuracies(early)
    assert before <= 0.4 <= after  # the last step begins inside
    assert after == pytest.approx(0.4, abs=2e-2)
    for found, limit in ((full, 0.9), (early, 0.4)):
        # The flow meets a limit exactly.
        state = method.after_flow(0, method.start, found.flow_route.durations[0])
        assert method.accuracy(0, state[None]) == pytest.approx([limit], abs=1e-4)
    dear = planned(costs=[30.0, 1.0])
    assert not dear.pretrains
    assert dear.total == pytest.approx(dear.direct_total, rel=1e-12)
    switching = planned(switch_cost=7.0)
    assert switching.total == switching.best.steps.descent + 7.0
    assert switching.flow_route.total == pytest.approx(switching.flow_route.steps + 7.0, rel=1e-9)
    assert switching.cost_of(switching.best) == pytest.approx(switching.total, rel=1e-9)


def test_forgetting_can_be_limited(pair):
    target, strong, network = pair
    free = lc.plan(target, [strong], network, learning_rate=RATE)
    # The two optima differ, so some of the candidate's loss is always left at the end.
    left = float(free.method.excess_loss(0, free.best.run.states[-1][None])[0])
    kept = lc.plan(target, [strong], network, learning_rate=RATE, terms=lc.Terms(most_excess_loss=[0.95 * left]))
    assert kept.total >= free.total
    assert kept.flow_route.total >= free.flow_route.total
    assert kept.method.excess_loss(0, kept.best.run.descent_states[-1][None])[0] <= 0.95 * left * (1 + 1e-6)
    assert kept.proof in ("certified", "exact")
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.plan(target, [strong], network, learning_rate=RATE, terms=lc.Terms(most_excess_loss=[1e-9]))
    assert caught.value.field == "most_excess_loss"


def test_more_stages_never_cost_more():
    goal = tasks.integration(steps=10, target_strength=[1.0, 2.0], name="goal")
    pool = [tasks.integration(steps=10, target_strength=s, name=str(s)) for s in ([3.0, 1.0], [1.0, 4.0])]
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4, task=goal)
    plans = [lc.plan(goal, pool, network, learning_rate=RATE, terms=lc.Terms(max_stages=k)) for k in (1, 2, 3)]
    for totals in ([p.total for p in plans], [p.flow_route.total for p in plans]):
        assert totals[0] > totals[1] >= totals[2] * (1 - 1e-9)
    loss = lc.plan(goal, pool[:1], network, learning_rate=RATE, terms=lc.Terms(lc.Explained(0.9999), max_stages=1))
    assert loss.direct.flow != plans[0].direct.flow


# --- recorded data ---------------------------------------------------------------------------------------------------


def test_a_plan_of_recorded_tasks_has_an_interval(pair):
    target, strong, network = pair
    rng = np.random.default_rng(3)
    goal, first = (lc.Task.from_samples(*t.sample(300, rng), name=f"recorded {t.name}") for t in (target, strong))
    terms = lc.Terms(lc.Accuracy(0.99))
    found = lc.plan(goal, [first], network, learning_rate=RATE, terms=terms)
    low, high = found.saving_interval
    assert low < found.saving < high
    assert found.interval[0] <= found.best.steps.descent <= found.interval[1]
    assert found.best.steps.interval == found.interval
    assert found.proof == "robust"
    assert found.forecast_class == "exact"
    assert f"{low:,.0f}" in found.summary
    assert {"steps_low", "direct_steps_high", "saving_low"} <= set(found.dataset.data_vars)
    again = lc.plan(goal, [first], network, learning_rate=RATE, terms=terms)
    assert again.saving_interval == found.saving_interval
    mixed = lc.plan(target, [first], network, learning_rate=RATE, terms=terms)
    assert mixed.direct_total == pytest.approx(
        lc.plan(target, [strong], network, learning_rate=RATE, terms=terms).direct_total
    )
    assert mixed.saving_interval[1] - mixed.saving_interval[0] < high - low


# --- reports ---------------------------------------------------------------------------------------------------------


def test_the_paper_case_is_summarised_with_its_numbers():
    report = plan_report(Study.load(EXAMPLES / "two_integration_tasks.toml"))
    for number in ("168 steps", "66%", "331 steps", "138 steps", "79 steps", "87"):
        assert number in report.lead
    for key, value in {"saving": 163, "worthwhile": True, "proof": "exact", "method": "modes"}.items():
        assert report.values[key] == value


def test_alternatives_and_shifts_are_followed(pair):
    target, strong, network = pair
    found = lc.plan(target, [strong], network, learning_rate=RATE)
    assert [a.extra for a in found.alternatives] == sorted(a.extra for a in found.alternatives)
    for other in found.alternatives:
        steps = lc.follow(list(other.stages), network, learning_rate=RATE).steps.descent
        assert other.steps == steps
        assert other.extra == steps - found.total
    late = next(s for s in found.sensitivity if s.factor == 1.1)
    stages = [lc.Stage(strong, steps=round(1.1 * found.route.durations[0])), lc.Stage(target, goal=0.99)]
    assert late.all_steps == lc.follow(stages, network, learning_rate=RATE).steps.descent
    assert all(s.extra >= 0 for s in found.sensitivity)


def test_numbers_in_a_summary_have_enough_digits():
    assert [summary.percent(v) for v in (0.66, 0.99, 0.999, 0.9999)] == ["66%", "99%", "99.9%", "99.99%"]
    assert [summary.steps_text(v) for v in (1.0, 1234.4)] == ["1 step", "1,234 steps"]


@pytest.mark.parametrize("kind", ["modes", pytest.param("rotated", marks=pytest.mark.slow)])
def test_a_stop_portrait_agrees_with_the_plan(pair, request, kind):
    target, strong, network = pair
    modal = lc.plan(target, [strong], network, learning_rate=RATE)
    for found in (modal if kind == "modes" else request.getfixturevalue("rotated"),):
        portrait = found.stop_portrait()
        here = portrait["saving_steps"].sel(stop=found.candidates[0].stop_steps, accuracy=0.99)
        assert float(here) == found.candidates[0].saving
        assert float(portrait["saving_steps"].max("stop").sel(accuracy=0.99)) <= found.saving
        draw_plan(found)


def test_a_stop_portrait_of_a_loss_counts_the_steps_to_that_loss():
    goal, first = (
        tasks.integration(steps=8, target_strength=s, name=name)
        for s, name in (([1.0, 0.5], "goal"), ([2.0, 0.4], "first"))
    )
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4, task=goal)
    asked = lc.Explained(0.999)
    found = lc.plan(goal, [first], network, learning_rate=5e-3, terms=lc.Terms(asked))
    portrait = found.stop_portrait()
    for accuracy in portrait["accuracy"].values[[0, 8, -1]]:
        explained = lc.Explained(1 - (1 - accuracy) ** 2)
        stages = [lc.Stage(first, steps=float(portrait["stop"][20])), lc.Stage(goal, explained)]
        saving = lc.follow(stages, network, learning_rate=5e-3).saving.descent
        assert float(portrait["saving_steps"].sel(accuracy=accuracy)[20]) == saving


def test_a_rotated_plan_is_saved_with_its_summary(rotated, tmp_path):
    saved = lc.Plan.load(rotated.save(tmp_path / "plan.nc"))
    assert saved.attrs["summary"] == rotated.summary
    assert saved["stage_task"].values.tolist() == ["turned", "goal"]
    assert float(saved["plan_total"]) == rotated.total


def test_the_command_reports_limits_costs_and_the_front(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        "[network]\nhidden_size = 4\n[training]\nlearning_rate = 1e-3\nswitch_cost = 5\nmax_stages = 3\n"
        '[target]\nname = "goal"\nfamily = "integration"\n'
        '[[candidates]]\nname = "strong"\nfamily = "integration"\ntarget_strength = 1.5\nmost_accuracy = 0.5\n'
        '[[candidates]]\nname = "short"\nfamily = "integration"\nsteps = 20\ncost = 0.4\n'
    )
    result = CliRunner().invoke(app, ["plan", str(study), "--json", "--remember", "strong"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert {"class", "interval", "alternatives", "sensitivity", "summary", "proof", "front"} <= found.keys()
    assert found["interval"] is None
    assert found["front"]["task"] == "strong"
    stops = {s["task"]: s["accuracy"] for s in found["best"]["stages"]}
    assert stops.get("strong", 0.0) <= 0.5
    result = CliRunner().invoke(app, ["plan", str(study), "--remember", "stron"])
    assert result.exit_code == 2
    assert "'strong'" in result.stderr


@pytest.mark.parametrize(
    "lines",
    [
        '[target]\nfamily = "integration"\nleast_accuracy = 0.5\n',
        '[target]\nfamily = "integration"\ncost = -1\n',
        '[[sequence]]\nfamily = "integration"\ncost = 2.0\n',
    ],
)
def test_rules_in_the_wrong_place_are_refused(tmp_path, lines):
    study = tmp_path / "study.toml"
    study.write_text("[training]\nlearning_rate = 1e-3\n" + lines)
    with pytest.raises(lc.InvalidSpec) as caught:
        Study.load(study)
    assert lines.split("\n")[2].split()[0] in str(caught.value)


def test_a_start_on_a_saddle_is_never_learned():
    target, other = tasks.static(np.eye(2), name="goal"), tasks.static(2 * np.eye(2), name="other")
    start = lc.TwoLayer(0.1 * np.eye(2), 0.1 * np.diag([1.0, -1.0]))  # det < 0: one mode stays on its saddle
    found = lc.plan(target, [other], start, learning_rate=0.01, strict=False)
    assert found.direct.status is lc.Status.not_learned
    assert found.total == found.direct_total == np.inf
    assert any("mode 2" in remark for remark in found.method.remarks)
    assert found.method.remarks[0] in found.summary


@pytest.mark.slow
def test_a_robust_stop_is_best_on_average(pair):
    target, strong, network = pair
    rng = np.random.default_rng(3)
    goal, first = (lc.Task.from_samples(*t.sample(60, rng), name=f"recorded {t.name}") for t in (target, strong))
    found = lc.plan(goal, [first], network, learning_rate=RATE, terms=lc.Terms(lc.Accuracy(0.99)))
    one, two = (Problem(*m.resamples, m.imbalance) for m in found.method.resampled_modes)

    def average(stop):
        """Mean over the resamples of plain descent on both tasks."""
        a, c = (np.repeat(w[None], len(one.cross), axis=0) for w in found.method.start)
        steps, left = np.full(len(a), float(stop)), np.ones(len(a), dtype=bool)
        for _ in range(stop):
            pull = RATE * (one.cross - one.power * a * c)
            a, c = a + c * pull, c + a * pull
        best = two.cross / two.power
        while left.any():
            left &= (np.abs(a * c - best) > 0.01 * np.abs(best)).any(axis=1)
            pull = RATE * (two.cross - two.power * a * c)
            a, c, steps = a + c * pull, c + a * pull, steps + left
        return float(steps.mean())

    stop, m = int(found.route.durations[0]), found.method
    stops = list(range(0, 2 * stop, 3))
    ends = m.advance(0, m.start[None], stops)[:, 0]
    totals = stops + m.steps_to(1, ends, found.terms.goal)[0]
    # On the recorded trials themselves, a robust stop costs at most a tenth more than the best one.
    allowed = [n for n, total in zip(stops, totals, strict=True) if total <= 1.1 * totals.min()]
    # Stops are tried 3% apart; the mean is flat about its least.
    assert average(stop) <= min(map(average, allowed)) * (1 + 2e-3)
    assert average(stop) < average(0)
    assert found.proof == "robust"
