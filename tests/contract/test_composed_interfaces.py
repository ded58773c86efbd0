"""A sum of parts has one plan: in Python, on the command line, in the web app and in the study that it saves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app

pytest.importorskip("starlette")

STATES = (
    {"angle": 75.0},  # the example study
    {"angle": 60.0, "parts": 3, "layers": 2, "start_scale": 0.1, "seed": 3, "other_parts": 1.5},
    {"angle": 30.0, "part_inputs": "shared", "layers": 2, "units": 4},
)


def in_python(*, parts, part_inputs, angle, strengths, layers, units, scale, seed, learning_rate, accuracy):
    """The plan of parts that are written out here, not made by the panel."""
    made = []
    for k in range(parts):
        cross = np.zeros((parts, 1 if part_inputs == "separate" else parts))
        cross[k, 0 if part_inputs == "separate" else k] = 1.0
        made.append(lc.tasks.static(cross, name=f"part {k + 1}"))
    whole = lc.tasks.composed(made, inputs=part_inputs, angle=angle, strengths=strengths)
    if layers == 2:
        network = lc.TwoLayer.random(parts, units, parts, scale=scale, rng=seed)
    else:
        network = lc.Deep.random(parts, (units,) * (layers - 1), parts, scale=scale, rng=seed)
    terms = lc.Terms(lc.Accuracy(accuracy), max_stages=2)
    return lc.plan(whole.target, whole.parts, network, learning_rate=learning_rate, terms=terms)


@pytest.mark.parametrize("changes", STATES, ids=["example", "three parts", "shared inputs"])
def test_python_the_command_line_and_the_web_app_give_one_plan(changes, tmp_path):
    from learncast.web import CurriculumState, all_panels

    panel = all_panels()[0]
    state = CurriculumState(family="composed", learning_rate=0.01, accuracy=0.95, **changes)
    view = panel.parts["portrait"](state)
    shown = {reading.label: reading.value for reading in view.readings}
    bars = dict(zip(view.charts[0].traces[0].x, view.charts[0].traces[0].y, strict=True))
    plan = in_python(
        **{key: getattr(state, key) for key in ("parts", "part_inputs", "angle", "layers", "units", "seed")},
        **{key: getattr(state, key) for key in ("learning_rate", "accuracy")},
        strengths=[state.first_part, *[state.other_parts] * (state.parts - 1)],
        scale=state.start_scale,
    )
    file = tmp_path / "this-file.toml"
    file.write_text(panel.study(state), encoding="utf-8")
    told = json.loads(CliRunner().invoke(app, ["plan", str(file), "--json"]).stdout)
    assert shown["direct training"] == plan.direct_steps == told["direct"]["descent_steps"]
    assert shown["with the plan"] == plan.total == told["best"]["descent_steps"]
    assert shown["saved"] == plan.saving == told["best"]["saving"]
    assert {c.task.name: c.forecast.steps.descent for c in plan.candidates}.items() <= bars.items()
    assert view.trust.forecast_class == plan.forecast_class


def test_the_web_app_gives_the_steps_of_the_example_study():
    from learncast.web import CurriculumState, all_panels

    study = lc.study.Study.load("examples/composed_parts.toml")
    state = CurriculumState(family="composed", learning_rate=0.01, accuracy=0.95)
    view = all_panels()[0].parts["portrait"](state)
    plan = lc.plan(study.target, study.candidates, study.network, study.training, terms=study.terms)
    shown = {reading.label: reading.value for reading in view.readings}
    # The file rounds the sine and cosine of the angle to three digits.
    assert shown["direct training"] == pytest.approx(plan.direct_steps, rel=0.01)
    assert shown["with the plan"] == pytest.approx(plan.total, rel=0.01)
