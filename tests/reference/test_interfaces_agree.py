"""Commands, Python and the explorer give the same steps of direct training, on drawn studies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.report import forecast_report, forget_report, plan_report
from learncast.study import Study

KINDS = ("modes", "rotated", "two-layer", "recorded", "random start", "unbalanced two-layer")


def tables(kind: str, rng: np.random.Generator, folder: Path, goal: str = "accuracy") -> dict:
    """A drawn study of a target and one candidate."""
    rate, value = float(10 ** rng.uniform(-2.6, -1.8)), float(rng.choice([0.8, 0.9, 0.95]))
    network = {"hidden_size": 6, "recurrence": float(rng.uniform(0.5, 0.9)), "initial": float(rng.uniform(0.05, 0.3))}
    training = {"learning_rate": rate, goal: value}
    if kind in ("modes", "rotated", "random start"):
        strengths = np.sort(rng.uniform(0.5, 1.5, size=2))[::-1].tolist()
        target = {"family": "integration", "steps": 5, "target_strength": strengths, "input_strength": [1.0, 1.0]}
        other = {**target, "target_strength": [1.5 * s for s in strengths]}
        if kind == "rotated":
            angle = rng.uniform(0.2, 1.0)
            turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            other = {**other, "mixing": np.array(turn).tolist()}
        if kind == "random start":
            network |= {"initial": "random", "scale": 0.3, "seed": int(rng.integers(99))}
    elif kind == "recorded":
        x = rng.normal(size=(60, 6, 3)) * rng.uniform(0.5, 1.5, size=3) + rng.normal(size=3) * 0.3
        for name, map_ in (("a", rng.normal(size=(3, 2))), ("b", rng.normal(size=(3, 2)))):
            np.savez(folder / f"{name}.npz", inputs=x, targets=x.sum(axis=1) @ map_ + 0.1 * rng.normal(size=(60, 2)))
        target, other = {"data": "a.npz"}, {"data": "b.npz"}
    else:
        start = "random" if kind.startswith("unbalanced") else "balanced"
        network = {"kind": "two-layer", "hidden_size": 4, "scale": 0.3, "start": start, "seed": int(rng.integers(99))}
        maps = rng.normal(size=(2, 3, 3))
        target, other = ({"family": "static", "cross_correlation": m.tolist()} for m in maps)
    return {
        "network": network,
        "training": training,
        "target": {"name": "goal", **target},
        "candidates": [{"name": "other", **other}],
    }


def sequence_of(raw: dict, steps: int) -> dict:
    """The study in which only the target is trained, for some steps."""
    return {
        "network": raw["network"],
        "training": {"learning_rate": raw["training"]["learning_rate"]},
        "sequence": [{"train_steps": steps, **raw["target"]}],
    }


def assert_one_number(kind: str, seed: int, folder: Path, goal: str = "accuracy") -> None:
    raw = tables(kind, np.random.default_rng([seed, KINDS.index(kind)]), folder, goal)
    study = Study.from_dict(raw, folder=folder, source="drawn")
    forecast, plan = forecast_report(study), plan_report(study)
    assert forecast.trust.holds == plan.trust.holds
    steps = forecast.values["descent_steps"]
    assert plan.values["direct"]["descent_steps"] == steps
    assert plan.values["direct"]["flow_steps"] == pytest.approx(forecast.values["flow_steps"], rel=1e-6)
    if forecast.trust.holds and np.isfinite(steps):
        assert f"{steps:,}" in forecast.lead
    # Without the candidates the target may have modes that the pool does not share: name the method of the pool.
    options = {"learning_rate": study.learning_rate, "method": forecast.values["method"]}
    found = lc.forecast(study.target, study.network, goal=study.goal, **options)
    assert found.steps.descent == steps
    assert lc.follow([lc.Stage(study.target, study.goal)], study.network, **options).steps.descent == steps
    if 1 < steps < np.inf and not found.method.per_mode(study.goal):
        limit = found.method.goal_loss(0, study.goal)
        before, after = (
            forget_report(
                Study.from_dict(sequence_of(raw, n), folder=folder, source="drawn"), method=options["method"]
            ).values["loss"][1, 0]
            for n in (int(steps) - 1, int(steps))
        )
        assert after <= limit * (1 + 1e-9) < before * (1 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_commands_and_python_give_one_number(kind, tmp_path):
    assert_one_number(kind, 0, tmp_path)


@pytest.mark.parametrize("goal", ["explained", "r2"])
@pytest.mark.parametrize("kind", ["modes", "random start", "recorded"])
def test_commands_and_python_give_one_number_for_other_goals(kind, goal, tmp_path):
    assert_one_number(kind, 0, tmp_path, goal)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_commands_and_python_give_one_number_for_two_hundred_pools(kind, tmp_path):
    for seed in range(1, 38):
        assert_one_number(kind, seed, tmp_path)


@pytest.mark.parametrize("kind", ["modes", "recorded"])
def test_the_command_line_prints_the_number_of_a_plan(kind, tmp_path):
    raw = tables(kind, np.random.default_rng(7), tmp_path)
    study = Study.from_dict(raw, folder=tmp_path, source="drawn")
    file = tmp_path / "study.toml"
    file.write_text(study.resolved(), encoding="utf-8")
    found = {
        name: json.loads(CliRunner().invoke(app, [name, str(file), "--json"]).stdout) for name in ("forecast", "plan")
    }
    steps = found["forecast"]["descent_steps"]
    assert found["plan"]["direct"]["descent_steps"] == steps
    text = CliRunner().invoke(app, ["forecast", str(file)]).stdout
    assert f"{steps:,} gradient steps" in " ".join(text.split())


@pytest.mark.parametrize("seed", [3, *(pytest.param(k, marks=pytest.mark.slow) for k in range(4, 8))])
def test_the_explorer_shows_the_number_of_a_forecast(seed):
    pytest.importorskip("starlette")
    from learncast.web import CurriculumState, all_panels

    rng = np.random.default_rng(seed)
    for _ in range(2):
        state = CurriculumState(
            steps=int(rng.integers(5, 40)),
            target_strength=round(float(rng.uniform(0.5, 2.0)), 2),
            recurrence=round(float(rng.uniform(0.5, 0.98)), 2),
            learning_rate=float(10 ** rng.uniform(-4, -2.5)),
            grid=20,
        )
        view = all_panels()[0].parts["descent"](state)
        number = next(r.value for r in view.readings if r.label == "direct training")
        target, options = state.task(), {"learning_rate": state.learning_rate, "strict": False}
        assert number == lc.forecast(target, state.network(target), goal=state.accuracy, **options).steps.descent
