"""Examples and words: each example shows what it says, each word speaks of what is there."""

from __future__ import annotations

import math
import re

import pytest

from learncast.web.app import rooms

ROOMS = {room.name: room for room in rooms()}
EXAMPLES = [(room, example) for room in ROOMS.values() for example in room.examples]

#: What nobody should read on a page.
UNWANTED = re.compile(r"strict|never steps|of the 0 steps|\bnan\b|\binf\b|None|gradient_flow|np\.|learncast\.")


def told(room, example):
    state = room.shown(example)
    return {name: part(state) for name, part in room.parts.items()}


def readings(views):
    return {r.label: r.value for view in views.values() for r in view.readings}


@pytest.mark.parametrize(("room", "example"), EXAMPLES, ids=lambda one: getattr(one, "name", None))
def test_every_example_answers_in_plain_words(room, example):
    views = told(room, example)
    assert any(view.answer for view in views.values())
    texts = [text for view in views.values() for text in (view.answer, view.words, *(n.text for n in view.notes))]
    texts += [r.words for view in views.values() for r in view.readings]
    assert not [text for text in texts if UNWANTED.search(text)]


def example(room, name):
    return next(one for one in ROOMS[room].examples if one.name == name)


def test_each_room_has_four_to_six():
    assert {4 <= len(room.examples) <= 6 for room in ROOMS.values()} == {True}
    for room in ROOMS.values():
        assert len({room.shown(one) for one in room.examples}) == len(room.examples)


def test_curriculum_examples_show_what_they_say():
    def found(name):
        return readings(told(ROOMS["curriculum"], example("curriculum", name)))

    assert found("Pretraining pays")["saved"] > 100
    assert found("It hurts")["saved"] < -100
    late = found("Stop early")
    early = ROOMS["curriculum"].shown(example("curriculum", "Stop early")).model_copy(update={"pin_accuracy": 0.4})
    assert readings({"pinned": ROOMS["curriculum"].parts["pinned"](early)})["both stages"] < late["both stages"] - 50
    assert found("A leaky target")["saved"] > 100
    assert math.isinf(found("Never learns")["direct training"])


def test_prior_knowledge_examples_show_what_they_say():
    def found(name):
        return readings(told(ROOMS["prior-knowledge"], example("prior-knowledge", name)))

    helped, without = "task B is learned in", "task B without prior knowledge"
    assert found("Knowing A helps B")[helped] < 0.5 * found("Knowing A helps B")[without]
    assert found("Reversal is faster")[helped] < found("Reversal is faster")[without]
    assert math.isinf(found("Never learns")[helped])
    assert abs(found("Nothing is forgotten")["forgotten of task A"]) < 1e-12
    assert found("One layer leads")[helped] < 30


def test_recurrence_examples_show_what_they_say():
    def found(name):
        return readings(told(ROOMS["recurrence"], example("recurrence", name)))

    assert found("Remember it all")["best recurrence b"] > 0.9
    assert found("A perfect fit")["unexplained share"] < 1e-12
    assert found("Forget the past")["best recurrence b"] < 0.2
    assert found("Unstable")["best recurrence b"] > 1
    assert math.isinf(found("One lag too far")["best recurrence b"])
    assert found("Two answers")["best recurrence above"] > 1 > found("Two answers")["best recurrence below"]


@pytest.mark.parametrize("room", ROOMS.values(), ids=lambda room: room.name)
def test_words_speak_of_controls_and_curves_that_are_there(room):
    keys = set(room.state.model_fields)
    drawn = {
        trace.name
        for one in room.examples[:4]
        for view in told(room, one).values()
        for panel in view.panels
        for trace in panel.traces
    }
    for word in room.words:
        assert set(word.controls) <= keys, word.terms
        for start in word.traces:
            assert any(name.startswith(start) for name in drawn), start
