"""One plan has one total in one unit, in every interface, and its answer is never lost."""

from __future__ import annotations

import json
import math
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.planning import Costs
from learncast.report.plan import draw_plan, plan_report
from learncast.report.report import FigureWarning
from learncast.study import Study
from learncast.web import CurriculumState
from learncast.web.panels import own_data, planned

STUDY = """
name = "one total"

[network]
kind = "linear-rnn"
hidden_size = 4
recurrence = 0.9
initial = 0.1

[training]
learning_rate = 5e-3
explained = 0.95
max_stages = 2
switch_cost = {switch}

[target]
name = "sums"
data = "trials.npz"
inputs = "inputs"
targets = "targets"
cost = {cost}

[[candidates]]
name = "larger sums"
data = "trials.npz"
inputs = "inputs"
targets = "larger"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("trials")
    inputs = rng.normal(size=(60, 8, 1))
    noise = rng.normal(size=(2, 60, 1))
    total = inputs.sum(axis=1)
    np.savez(folder / "trials.npz", inputs=inputs, targets=total + 0.5 * noise[0], larger=1.6 * total + 2 * noise[1])
    return folder


def study(folder: Path, cost: float = 1.0, switch: float = 0.0) -> Study:
    path = folder / "study.toml"
    path.write_text(STUDY.format(cost=cost, switch=switch), encoding="utf-8")
    return Study.load(path)


def python_plan(folder: Path, terms: lc.Terms, **options: float) -> lc.Plan:
    data = np.load(folder / "trials.npz")
    target = lc.Task.from_samples(data["inputs"], data["targets"], name="sums")
    first = lc.Task.from_samples(data["inputs"], data["larger"], name="larger sums")
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    return lc.plan(target, [first], network, learning_rate=5e-3, terms=terms, **options)


@pytest.mark.parametrize(("cost", "switch"), [(1.0, 0.0), (5.0, 0.0), (1.0, 6.0)])
def test_saving_and_intervals_are_costs(folder: Path, cost: float, switch: float) -> None:
    plan = python_plan(folder, lc.Terms(lc.Explained(0.95), costs=(1.0, cost), switch_cost=switch))
    resampled = plan.best.resampled
    assert resampled is not None
    assert plan.pretrains
    saved = cost * resampled.direct - (resampled.stages[0] + cost * resampled.stages[1] + switch)
    low, high = plan.saving_interval
    # The interval contains the central 95% of the resamples.
    assert low <= np.quantile(saved, 0.03)
    assert high >= np.quantile(saved, 0.97)
    assert low <= plan.saving <= high
    assert plan.interval[0] <= plan.total <= plan.interval[1]
    assert plan.saving == pytest.approx(plan.direct_total - plan.total)
    assert plan.total == pytest.approx(plan.cost_of(plan.best))
    assert plan.may_not_pay == (low <= 0)
    found = json.loads(plan_report(study(folder, cost, switch)).json())
    assert found["saving_interval"] == pytest.approx([low, high])
    assert found["best"]["interval"] == found["interval"] == pytest.approx(plan.interval)
    assert found["candidates"][0]["interval"] == pytest.approx(plan.candidates[0].costs.interval)
    assert float(plan.dataset["saving_low"][0]) == pytest.approx(plan.candidates[0].costs.saving_interval[0])


def test_a_switch_cost_moves_the_interval_of_the_saving_by_itself(folder: Path) -> None:
    goal = lc.Explained(0.95)
    free = python_plan(folder, lc.Terms(goal))
    priced = Costs.of(free.best, free.terms.terms.with_(switch_cost=60.0).over(1, goal))
    assert np.subtract(free.saving_interval, priced.saving_interval) == pytest.approx(60.0)


def test_a_robust_plan_and_its_candidate_have_one_total(folder: Path) -> None:
    plan = python_plan(folder, lc.Terms(lc.Explained(0.95)))
    own = next(c for c in plan.candidates if c.route.order == plan.route.order)
    assert own.total == plan.total == plan.cost_of(plan.best) == plan.best.steps.descent
    assert plan.in_sample_route.total <= plan.total
    assert plan.saving == own.saving


@pytest.mark.parametrize(("unlearned", "least"), [(0, -8.0), (1, -8.0), (5, -math.inf)])
def test_resamples_that_are_never_learned_may_save_any_cost(unlearned: int, least: float) -> None:
    direct = np.linspace(90.0, 110.0, 101)
    saved = np.linspace(-8.0, 12.0, 101)
    total = direct - saved
    direct[:unlearned] = total[:unlearned] = math.inf
    costs = Costs(98.0, 100.0, total, direct)
    low, high = costs.saving_interval
    assert low <= 0 < high
    assert math.isinf(low) == math.isinf(least)


def test_every_interface_reports_the_same_totals(folder: Path) -> None:
    plan = python_plan(folder, lc.Terms(lc.Explained(0.95)))
    study(folder)
    result = CliRunner().invoke(app, ["plan", str(folder / "study.toml"), "--json"])
    command = json.loads(result.stdout)
    assert command["best"]["total"] == command["best"]["descent_steps"] == plan.total
    assert command["direct"]["total"] == plan.direct_total
    assert command["saving"] == plan.saving
    assert command["in_sample"]["total"] == plan.in_sample_route.total
    assert [c["total"] for c in command["candidates"]] == [c.total for c in plan.candidates]
    assert sum(s["descent_steps"] for s in command["best"]["stages"]) == plan.total
    assert float(plan.dataset["plan_total"]) == float(plan.dataset["stage_steps"].sum()) == plan.total


def test_the_explorer_reports_the_totals_of_the_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(folder / "trials.npz") as data:
        x, y = data["inputs"], data["targets"]
    tasks = [lc.Task.from_samples(x, s * y, name=f"targets × {s:g}") for s in (1, 1.5, 3)]
    monkeypatch.setattr(own_data, "tasks_of", lambda token: tuple(tasks))
    given = {"recurrence": 0.9, "hidden_size": 64, "learning_rate": 5e-3, "explained": 0.95}
    view = planned.comparison(own_data.own_plan(CurriculumState(data="one total", **given)))
    sizes = tasks[0].inputs, 64, tasks[0].outputs  # the start of learncast.forecast for data alone
    network = lc.LinearRNN.random(*sizes, scale="torch", recurrence=0.9, rng=0)
    plan = lc.plan(tasks[0], tasks[1:], network, learning_rate=5e-3, terms=lc.Terms(lc.Explained(0.95)))
    shown = {reading.label: reading.value for reading in view.readings}
    assert (shown["with the plan"], shown["saved"]) == (plan.total, plan.saving)
    bars = view.charts[0].traces[0]
    totals = dict(zip(bars.x, bars.y, strict=True))
    assert totals == {"train directly": plan.direct_total, **{c.task.name: c.total for c in plan.candidates}}
    assert plan.total in totals.values()


def test_a_figure_that_cannot_be_drawn_does_not_lose_the_answer(folder: Path, tmp_path: Path) -> None:
    report = plan_report(study(folder))

    def fail() -> None:
        raise np.linalg.LinAlgError

    object.__setattr__(report, "draw", fail)
    with pytest.warns(FigureWarning):
        written = report.write(tmp_path / "out")
    assert {path.name for path in written} == {"plan.json", "plan.nc", "study.toml", "report.html"}


def test_a_stop_portrait_covers_stops_after_which_descent_diverges() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.poisson(0.4, size=(80, 12, 6)).astype(float)
    targets = inputs.sum(axis=1) @ rng.normal(size=(6, 2))
    target = lc.Task.from_samples(inputs, targets, name="spikes")
    first = lc.Task.from_samples(inputs, 12 * targets, name="large targets")
    network = lc.LinearRNN.random(6, 8, 2, scale=0.05, recurrence=0.9)
    sharp = lc.forecast(target, network, learning_rate=1e-4, strict=False).trust.assumptions
    rate = 1e-4 * 1.2 / max(a.measured for a in sharp if a.name == "stable_learning_rate")
    plan = lc.plan(target, [first], network, learning_rate=rate, terms=lc.Terms(lc.Explained(0.9)), strict=False)
    portrait = plan.stop_portrait(0)
    assert math.isfinite(plan.direct_total)
    assert np.isneginf(portrait["saving_steps"].values).any()
    assert draw_plan(plan).axes


def test_a_plan_too_long_to_count_compares_other_stops_by_the_flow() -> None:
    target = lc.tasks.integration(steps=50)
    stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    short, long = (
        lc.plan(target, [stronger], network, learning_rate=rate, terms=lc.Terms(max_stages=2)) for rate in (1e-6, 1e-12)
    )
    assert (short.counted, long.counted) == (True, False)
    begun = process_time()
    extra = [shift.extra * 1e-12 for shift in long.sensitivity]
    assert process_time() - begun < 2.0  # counting 1e11 steps of descent would take minutes
    # Flow time is steps times learning rate; counts of descent differ from it by a few steps of 3e5.
    assert extra == pytest.approx([shift.extra * 1e-6 for shift in short.sensitivity], rel=1e-3)
    assert long.proof == "certified"


def test_a_candidate_that_is_left_out_is_named_with_its_reason() -> None:
    target = lc.tasks.integration(steps=50, name="goal")
    wild = target.varied(target_strength=200.0).renamed("wild")  # descent diverges on it
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    plan = lc.plan(target, [wild], network, learning_rate=1e-3)
    (left_out,) = plan.candidates
    assert not left_out.usable
    assert [failure.name for failure in left_out.failures] == ["stable_learning_rate"]
    assert "stable_learning_rate" in left_out.why["sentence"]
    assert not plan.pretrains
    assert left_out.total >= plan.total or "wild" in plan.summary


def test_recorded_tasks_without_common_modes_have_a_front_of_forgetting() -> None:
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(80, 6, 2)) * [1.0, 0.6]
    maps = ([[1.0, 0.2], [0.0, 0.7]], [[1.4, 0.0], [0.4, 1.0]])
    tasks = [
        lc.Task.from_samples(inputs, inputs.sum(axis=1) @ np.array(m), name=f"map {k}") for k, m in enumerate(maps)
    ]
    network = lc.LinearRNN.random(2, 4, 2, scale=0.2, recurrence=0.9)
    plan = lc.plan(tasks[0], tasks[1:], network, learning_rate=5e-3, terms=lc.Terms(lc.Explained(0.9)))
    front = plan.front("map 1", points=3)
    assert not front.by_flow
    assert front.total[0] == plan.in_sample_route.total
    assert np.isfinite(front.total).all()
    assert (front.excess_loss <= front.limits * (1 + 1e-6)).all()
    assert (front.total >= front.total[0]).all()
    # The last schedule, followed step by step, leaves the excess loss that the front reports.
    route = front.schedules[-1].route
    stages = [lc.Stage(plan.method.tasks[k], steps=n) for k, n in zip(route.order, route.durations, strict=True)]
    followed = plan.follow([*stages, lc.Stage(plan.target, steps=route.rest)])
    left = plan.method.excess_loss(0, followed.run.descent_states[-1][None])[0]
    assert left == pytest.approx(front.excess_loss[-1], rel=1e-6)


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "path",
    [
        "examples/two_integration_tasks.toml",
        "examples/recorded_data.toml",
        "tests/stored/studies/random_start.toml",
        pytest.param("examples/composed_parts.toml", marks=pytest.mark.slow),
        pytest.param("examples/rotated_readouts.toml", marks=pytest.mark.slow),
        pytest.param("examples/pool_of_twenty.toml", marks=pytest.mark.slow),
    ],
)
def test_text_json_page_dataset_and_figure_give_one_total(path: str) -> None:
    report = plan_report(Study.load(ROOT / path))
    values, data, figure = json.loads(report.json()), report.labelled, report.draw()
    best, stages = values["best"], values["best"]["stages"]
    own = [c for c in values["candidates"] if len(stages) == 2 and c["task"] == stages[0]["task"]]
    # In steps of descent, and of the flow: the plan, the sum of its stages, its candidate and the dataset.
    for key, in_data in (("descent_steps", "stage_steps"), ("flow_steps", "stage_flow_steps")):
        assert sum(stage[key] for stage in stages) == pytest.approx(best[key], abs=1e-9)
        assert [c[key] for c in own] == pytest.approx([best[key]] * len(own), abs=1e-9)
        assert float(data[in_data].sum()) == pytest.approx(best[key], abs=1e-9)
    assert best["total"] == float(data["plan_total"])
    assert best["total"] == best["descent_steps"] or "pool" in path  # where steps have prices
    # Text and page are made of the same tables.
    do, ranked = report.tables[:2]
    shown = [do.rows[-1][2:4], *(row[2:4] for row in ranked.rows if own and row[0] == own[0]["task"])]
    total = (f"{best['descent_steps']:,}", f"{best['flow_steps']:,.2f}")
    assert {(count.split()[0], flow) for count, flow in shown} == {total}
    assert all(f"<td>{text}</td>" in report.html(None) for text in total)
    bars = figure.axes[1].containers[-1]
    ends = {name: bar.get_x() + bar.get_width() for name, bar in zip(data["candidate"].values, bars, strict=False)}
    for c in own:
        (star,) = (line for line in figure.axes[2].lines if line.get_marker() == "*")
        assert (ends[c["task"]], star.get_ydata()[0]) == pytest.approx((best["total"], best["total"]))
