"""Examples and glossary: each example shows what it says, each term refers to existing controls and curves."""

from __future__ import annotations

import math
import re

import pytest

from learncast.web import all_panels

PANELS = {panel.name: panel for panel in all_panels()}
EXAMPLES = [(panel, example) for panel in PANELS.values() for example in panel.examples]

#: Internal words and numbers that must not appear on the page.
UNWANTED = re.compile(r"strict|never steps|of the 0 steps|\bnan\b|\binf\b|None|gradient_flow|np\.|learncast\.")


def views_of(panel, example):
    state = panel.state_of(example)
    return {name: part(state) for name, part in panel.parts.items()}


def readings(views):
    return {r.label: r.value for view in views.values() for r in view.readings}


@pytest.mark.slow_cases("curriculum-Diverges", "curriculum-Rectified units", "generalise-Many trials")
@pytest.mark.parametrize(("panel", "example"), EXAMPLES, ids=lambda one: getattr(one, "name", None))
def test_every_example_has_an_answer_without_internal_words(panel, example):
    views = views_of(panel, example)
    assert any(view.answer for view in views.values())
    texts = [text for view in views.values() for text in (view.answer, view.text, *(n.text for n in view.every_note))]
    texts += [r.text for view in views.values() for r in view.readings]
    assert not [text for text in texts if UNWANTED.search(text)]


def example(panel, name):
    return next(one for one in PANELS[panel].examples if one.name == name)


def test_each_panel_has_four_to_seven_different_examples():
    for panel in PANELS.values():
        assert 4 <= len(panel.examples) <= 7
        assert len({panel.state_of(one) for one in panel.examples}) == len(panel.examples)


def test_curriculum_examples_show_what_they_say():
    def found(name):
        return readings(views_of(PANELS["curriculum"], example("curriculum", name)))

    assert found("Pretraining pays")["saved"] > 100
    assert found("It hurts")["saved"] < -100
    late = found("Stop early")
    early = PANELS["curriculum"].state_of(example("curriculum", "Stop early")).model_copy(update={"pin_accuracy": 0.4})
    assert readings({"pinned": PANELS["curriculum"].parts["pinned"](early)})["both stages"] < late["both stages"] - 50
    assert found("A leaky target")["saved"] > 100
    assert math.isinf(found("Diverges")["direct training"])


def test_prior_knowledge_examples_show_what_they_say():
    def found(name):
        return readings(views_of(PANELS["prior-knowledge"], example("prior-knowledge", name)))

    helped, without = "task B is learned in", "task B without prior knowledge"
    assert found("Knowing A helps B")[helped] < 0.5 * found("Knowing A helps B")[without]
    assert found("Reversal is faster")[helped] < found("Reversal is faster")[without]
    assert math.isfinite(found("The opposite task")[helped])
    assert abs(found("Nothing is forgotten")["forgotten of task A"]) < 1e-12
    assert found("One layer leads")[helped] < 30


def test_recurrence_examples_show_what_they_say():
    def found(name):
        return readings(views_of(PANELS["recurrence"], example("recurrence", name)))

    assert found("Remember it all")["best recurrence b"] > 0.9
    assert found("A perfect fit")["unexplained fraction"] < 1e-12
    assert found("Forget the past")["best recurrence b"] < 0.2
    assert found("Unstable")["best recurrence b"] > 1
    assert math.isinf(found("One lag too far")["best recurrence b"])
    assert found("Two answers")["best recurrence above"] > 1 > found("Two answers")["best recurrence below"]


@pytest.mark.parametrize("panel", PANELS.values(), ids=lambda panel: panel.name)
def test_terms_and_help_texts_refer_to_existing_controls_and_curves(panel):
    keys = set(panel.state.model_fields)
    assert set(panel.help) <= keys
    traces = {
        trace.name
        for one in panel.examples[:4]
        for view in views_of(panel, one).values()
        for chart in view.charts
        for trace in chart.traces
    }
    for term in panel.terms:
        assert set(term.controls) <= keys, term.terms
        for start in term.traces:
            assert any(name.startswith(start) for name in traces), start
