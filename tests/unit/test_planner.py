"""Plans beyond one pair of tasks: rules, rotated tasks, learned recurrence, recorded data, and their words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import learncast as lc
from learncast import tasks
from learncast.answers.plan import draw_plan, planned
from learncast.cli import app
from learncast.planning.curricula.passage import Problem
from learncast.planning.curricula.terrain import FlowTerrain, PooledTerrain
from learncast.planning.plans.mode_planner import ModePlanner
from learncast.planning.plans.robust import robust_stop
from learncast.planning.plans.stop_portrait import stop_portrait
from learncast.planning.plans.wording import fraction, percent, steps
from learncast.study import Study

RATE = 1e-3
EXAMPLES = Path(__file__).parents[2] / "examples"


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


# --- three ways to the same answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "kind"), [("two-layer", "exact"), ("flow", "integrated")])
def test_a_pair_that_modes_solve_is_planned_alike_without_them(pair, by, kind):
    target, strong, network = pair
    modes = lc.plan(target, [strong], network, learning_rate=RATE)
    tried = lc.plan(target, [strong], network, learning_rate=RATE, by=by)
    # The stop ends on the edge of the band: it is found to the search's relative precision of 1e-6.
    assert tried.best.flow_steps == pytest.approx(modes.best.flow_steps, rel=1e-5)
    assert tried.direct.flow_steps == pytest.approx(modes.direct.flow_steps, rel=1e-6)
    assert tried.best.descent_steps == pytest.approx(modes.best.descent_steps, abs=1)
    assert (modes.forecast_class, tried.forecast_class) == ("exact", kind)
    assert (modes.proof, tried.proof) == ("exact", "best found")
    assert np.isnan(tried.lower_bound)
    assert modes.lower_bound == pytest.approx(modes.total)


def test_the_way_is_chosen_by_what_holds(rotated, pair):
    assert isinstance(rotated.planner.terrain, PooledTerrain)
    target, strong, network = pair
    assert isinstance(lc.plan(target, [strong], network, learning_rate=RATE).planner, ModePlanner)
    rng = np.random.default_rng(0)
    start = lc.LinearRNN(0.3 * rng.normal(size=(3, 1)), 0.5 * np.eye(3), 0.3 * rng.normal(size=(1, 3)))
    found = lc.plan(target, [strong], start, learning_rate=RATE, accuracy=0.9)
    assert isinstance(found.planner.terrain, FlowTerrain)
    assert found.forecast_class == "integrated"


def test_a_two_layer_network_can_be_planned_for():
    target = tasks.static(np.diag([2.0, 1.0]), name="target")
    other = tasks.static(np.array([[1.5, 0.5], [-0.5, 1.5]]), name="other")
    network = lc.TwoLayer.balanced(2, 3, 2, scale=0.05, rng=np.random.default_rng(0))
    found = lc.plan(target, [other], network, learning_rate=0.01)
    assert found.forecast_class == "exact"
    stages = [lc.Stage(other, steps=found.candidates[0].stop_steps), lc.Stage(target, accuracy=0.99)]
    after = lc.solve(other, network, learning_rate=0.01).network_at(found.candidates[0].stop_steps)
    rest = lc.solve(target, after, learning_rate=0.01).time_to(0.99).flow_steps
    assert lc.follow(stages, network, learning_rate=0.01).flow_steps == pytest.approx(
        found.candidates[0].stop_steps + rest, rel=1e-9
    )
    assert found.total <= found.direct_total


def test_a_rotated_plan_is_what_descent_does(rotated):
    network, total = rotated.network, 0
    first, last = rotated.best.outcomes
    run = lc.descend(
        first.stage.task, network, learning_rate=5e-3, until=first.stage.accuracy, learn=("input", "output")
    )
    total += run.steps
    run = lc.descend(
        last.stage.task, run.network_at(run.steps), learning_rate=5e-3, until=0.99, learn=("input", "output")
    )
    total += run.steps
    assert total == rotated.best.descent_steps
    # At this learning rate descent and flow differ by a few of their steps.
    assert total == pytest.approx(rotated.best.flow_steps, rel=0.02)


def test_following_a_learned_recurrence_needs_the_flow():
    target = tasks.integration(steps=5, name="target")
    strong = target.varied(target_strength=1.5, name="strong")
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2, task=target)
    stages = [lc.Stage(strong, steps=30), lc.Stage(target, accuracy=0.6)]
    everything = ("input", "recurrent", "output")
    found = lc.follow(stages, network, learning_rate=RATE, learn=everything, by="flow")
    assert found.forecast_class == "integrated"
    flow = lc.gradient_flow(strong, network, learning_rate=RATE, learn=everything)
    again = lc.gradient_flow(target, flow.network_at(30), learning_rate=RATE, learn=everything)
    course = found.courses[1].problem
    goal = found.terrain.goal(1, 0.6)
    assert found.outcomes[1].flow_steps == pytest.approx(again.time_to_loss(goal), rel=1e-5)
    assert course.learn == everything
    with pytest.raises(lc.InvalidSpec, match='by="modes" needs a LinearRNN of fixed recurrence'):
        lc.follow(stages, network, learning_rate=RATE, learn=everything, by="modes")


def test_a_flow_reaches_a_loss_where_its_trajectory_does(pair):
    target, _, network = pair
    flow = lc.gradient_flow(target, network, learning_rate=RATE, learn=("input", "output"))
    goal = 0.3 * flow.problem.target_excess(0.0)
    time = flow.time_to_loss(goal)
    assert float(flow.at([time])["excess_loss"][0]) == pytest.approx(goal, rel=1e-9)
    assert flow.time_to_loss(1e9) == 0.0
    run = lc.descend(target, network, learning_rate=RATE, excess_loss=goal, learn=("input", "output"))
    assert run.loss[-1] - run.problem.least_loss <= goal < run.loss[-2] - run.problem.least_loss
    with pytest.raises(lc.InvalidSpec, match="either steps, until or excess_loss"):
        lc.descend(target, network, learning_rate=RATE, steps=3, until=0.5)


def test_tasks_that_do_not_know_their_targets_are_planned_too(pair):
    target, strong, network = pair
    bare = [lc.Task(t.input_covariance.dense(), t.cross_covariance.dense()[:, :, 0, :], name=t.name) for t in pair[:2]]
    known = lc.plan(target, [strong], network, learning_rate=RATE, by="two-layer")
    unknown = lc.plan(bare[0], [bare[1]], network, learning_rate=RATE, by="two-layer")
    assert unknown.best.flow_steps == pytest.approx(known.best.flow_steps, rel=1e-6)


# --- rules and costs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["auto", pytest.param("two-layer", marks=pytest.mark.slow)])
def test_rules_are_kept_whichever_way_a_plan_is_found(pair, by):
    target, strong, network = pair
    full = lc.plan(target, [strong], network, learning_rate=RATE, least_accuracy=0.9, by=by)
    assert full.best.outcomes[0].accuracy == pytest.approx(0.9, abs=1e-4)
    early = lc.plan(target, [strong], network, learning_rate=RATE, most_accuracy=0.4, by=by)
    assert early.best.outcomes[0].accuracy == pytest.approx(0.4, abs=1e-4)
    dear = lc.plan(target, [strong], network, learning_rate=RATE, costs=[30.0, 1.0], by=by)
    assert not dear.pretrains
    assert dear.total == pytest.approx(dear.direct_total, rel=1e-12)
    switching = lc.plan(target, [strong], network, learning_rate=RATE, switch_cost=7.0, by=by)
    assert switching.total == pytest.approx(switching.best.flow_steps + 7.0, rel=1e-9)
    assert switching.cost_of(switching.best) == pytest.approx(switching.total, rel=1e-9)


def test_what_may_be_forgotten_is_a_limit(pair):
    target, strong, network = pair
    free = lc.plan(target, [strong], network, learning_rate=RATE)
    # The two optima differ, so some of the candidate's loss is always left at the end.
    left = lc.best_schedule(target, [strong], network, learning_rate=RATE, max_stages=2).excess_loss[0]
    kept = lc.plan(target, [strong], network, learning_rate=RATE, most_excess_loss=[0.95 * left])
    assert kept.total >= free.total
    assert kept.proof in ("certified", "exact")
    with pytest.raises(lc.InvalidSpec, match="some schedule must meet the limits on forgetting"):
        lc.plan(target, [strong], network, learning_rate=RATE, most_excess_loss=[1e-9])


def test_more_stages_never_cost_more():
    goal = tasks.integration(steps=10, target_strength=[1.0, 2.0], name="goal")
    pool = [tasks.integration(steps=10, target_strength=s, name=str(s)) for s in ([3.0, 1.0], [1.0, 4.0])]
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4, task=goal)
    totals = [lc.plan(goal, pool, network, learning_rate=RATE, max_stages=k).total for k in (1, 2, 3)]
    assert totals[0] > totals[1] >= totals[2] * (1 - 1e-9)
    loss = lc.plan(goal, pool[:1], network, learning_rate=RATE, goal="loss", max_stages=1)
    assert loss.terms.goal == "loss"
    assert loss.direct.flow_steps != lc.plan(goal, pool, network, learning_rate=RATE).direct.flow_steps


def test_a_goal_of_modes_needs_modes(rotated):
    with pytest.raises(lc.InvalidSpec, match='goal must be "loss" where tasks have no common modes'):
        lc.plan(rotated.target, list(rotated.pool), rotated.network, learning_rate=5e-3, goal="modes")


# --- recorded data ---------------------------------------------------------------------------------------------------


def test_a_plan_of_recorded_tasks_has_an_interval(pair):
    target, strong, network = pair
    rng = np.random.default_rng(3)
    goal, first = (lc.Task.from_samples(*t.sample(300, rng), name=f"recorded {t.name}") for t in (target, strong))
    found = lc.plan(goal, [first], network, learning_rate=RATE)
    low, high = found.saving_interval
    assert low < found.saving < high
    assert found.interval[0] <= found.best.flow_steps <= found.interval[1]
    assert found.proof == "robust"
    assert found.forecast_class == "exact"
    assert "95% interval" in found.summary
    assert {"flow_steps_low", "direct_steps_high"} <= set(found.dataset.data_vars)
    again = lc.plan(goal, [first], network, learning_rate=RATE)
    assert again.saving_interval == found.saving_interval
    mixed = lc.plan(target, [first], network, learning_rate=RATE)
    assert mixed.direct_total == pytest.approx(lc.plan(target, [strong], network, learning_rate=RATE).direct_total)
    assert mixed.saving_interval[1] - mixed.saving_interval[0] < high - low


# --- what it says ----------------------------------------------------------------------------------------------------


def test_the_summary_of_the_paper_case():
    answer = planned(Study.load(EXAMPLES / "two_integration_tasks.toml"))
    assert answer.lead.startswith(
        "Pretrain on stronger targets until 66% (166 steps) and integration is already learned: half of the 330 steps "
        "of direct training. Pretraining to 99% would cost 141 steps more. Stopping 10% early costs 80 steps, 10% late "
        "costs 88. Exact for this network; assumes"
    )


def test_alternatives_and_shifts_are_followed(pair):
    target, strong, network = pair
    found = lc.plan(target, [strong], network, learning_rate=RATE)
    assert [a.extra for a in found.alternatives] == sorted(a.extra for a in found.alternatives)
    for other in found.alternatives:
        way = lc.follow(list(other.stages), network, learning_rate=RATE)
        assert other.flow_steps == pytest.approx(way.flow_steps)
        assert other.extra == pytest.approx(way.flow_steps - found.total)
    late = next(s for s in found.sensitivity if s.factor == 1.1)
    stages = [lc.Stage(strong, steps=1.1 * found.best.outcomes[0].flow_steps), lc.Stage(target, accuracy=0.99)]
    assert late.flow_steps == pytest.approx(lc.follow(stages, network, learning_rate=RATE).flow_steps)
    assert all(s.extra >= -1e-9 for s in found.sensitivity)


def test_numbers_in_words():
    assert [percent(v) for v in (0.66, 0.99, 0.999, 0.9999, np.nan)] == [
        "66%",
        "99%",
        "99.9%",
        "99.99%",
        "an unknown accuracy",
    ]
    assert [steps(v) for v in (1.0, 1234.4, np.inf, np.nan)] == [
        "1 step",
        "1,234 steps",
        "no finite number of steps",
        "an unknown number of steps",
    ]
    assert [fraction(a, b) for a, b in ((1, 2), (1, 3), (9, 10), (1, 0))] == [
        "half",
        "a third",
        "90%",
        "an unknown share",
    ]


@pytest.mark.parametrize("kind", ["modes", pytest.param("rotated", marks=pytest.mark.slow)])
def test_a_portrait_agrees_with_the_plan(pair, request, kind):
    target, strong, network = pair
    modal = lc.plan(target, [strong], network, learning_rate=RATE)
    for found in (modal if kind == "modes" else request.getfixturevalue("rotated"),):
        portrait = stop_portrait(found)
        here = portrait["saving_steps"].sel(stop=found.candidates[0].stop_steps, accuracy=0.99)
        # The stop of the first pair is the edge of the band, which rounding may leave by a sliver.
        assert float(here) == pytest.approx(found.candidates[0].speedup_steps, rel=2e-2)
        assert float(portrait["saving_steps"].max("stop").sel(accuracy=0.99)) <= found.saving * (1 + 1e-6)
        draw_plan(found)


def test_a_plan_is_filed(rotated, tmp_path):
    stored = xr.load_dataset(rotated.save(tmp_path / "plan.nc"), engine="h5netcdf")
    assert stored.attrs["summary"] == rotated.summary
    assert stored["stage_task"].values.tolist() == ["turned", "goal"]
    assert repr(rotated).endswith("flow steps; exact>")


def test_the_command_says_all_of_it(tmp_path):
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
    assert stops.get("strong", 0.0) <= 0.5 + 1e-9
    result = CliRunner().invoke(app, ["plan", str(study), "--remember", "stron"])
    assert result.exit_code == 2
    assert "did you mean 'strong'" in result.stderr


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('[target]\nfamily = "integration"\nleast_accuracy = 0.5\n', "least_accuracy belongs to [[candidates]]"),
        ('[target]\nfamily = "integration"\ncost = -1\n', "target.cost"),
        ('[[sequence]]\nfamily = "integration"\ncost = 2.0\n', "cost belongs to [[candidates]]"),
    ],
)
def test_rules_in_the_wrong_place_are_refused(tmp_path, lines, words):
    study = tmp_path / "study.toml"
    study.write_text("[training]\nlearning_rate = 1e-3\n" + lines)
    with pytest.raises(lc.InvalidSpec) as caught:
        Study.load(study)
    assert words in str(caught.value)


def test_a_start_turned_against_the_target_is_named():
    target, other = tasks.static(np.eye(2), name="goal"), tasks.static(2 * np.eye(2), name="other")
    turned_start = lc.TwoLayer(0.1 * np.eye(2), 0.1 * np.diag([1.0, -1.0]))  # det < 0: one mode stays on its saddle
    found = lc.plan(target, [other], turned_start, learning_rate=0.01, strict=False)
    told = "goal is never learned, directly or after any candidate: this start never learns mode 1 under exact"
    assert found.summary.startswith(told)


def test_a_robust_stop_is_the_best_on_average(pair):
    target, strong, network = pair
    own, first = lc.modes(target, network), lc.modes(strong, network)
    spread = np.random.default_rng(0).lognormal(0.0, 0.15, size=(2, 40, 1))
    one, two = (
        Problem(m.weighted_cross * s, np.repeat(m.weighted_input[None], 40, axis=0), m.imbalance)
        for m, s in zip((first, own), spread, strict=True)
    )
    stop, mean, alone = robust_stop(own.start, one, two, 0.01)

    def average(time):
        after = one.strength(np.full(40, time), np.repeat(own.start[None], 40, axis=0))
        return float(np.mean(time + two.arrival(after, 0.01)[0]))

    grid = min(average(time) for time in np.linspace(0.0, 1.5 * stop, 400))
    assert mean == pytest.approx(average(stop), rel=1e-12)
    assert alone == pytest.approx(average(0.0), rel=1e-12)
    # Both look at a grid of their own; the mean is flat about its least.
    assert mean <= grid * (1 + 2e-3)
    assert mean < alone
