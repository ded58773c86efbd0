"""Explanations of two-stage curricula: the three terms of the paper's speedup."""

import numpy as np
import pytest

import learncast as lc
from learncast import LinearRNN, Stage, follow, tasks
from learncast.planning import closeness, singular_accuracy, speedup_terms

RATE = 1e-3


@pytest.fixture(scope="module")
def target():
    return tasks.integration(steps=50, name="target")


@pytest.fixture(scope="module")
def network():
    return LinearRNN.aligned(hidden_size=4)


def test_the_terms_are_those_of_the_papers_speedup():
    u0, (b1, p1), (b2, p2), eps = 1e-4, (30.0, 12.0), (20.0, 11.0), 0.2
    scale, crossing, near = speedup_terms(u0, (b1, p1), (b2, p2), eps)
    u1, u2 = b1 / p1, b2 / p2
    assert scale == pytest.approx(np.log(abs(u2 / u0 - 1)), rel=1e-14)
    assert crossing == pytest.approx(b2 / b1 * np.log(eps * u0 / ((1 - eps) * abs(u1 - u0))), rel=1e-14)
    assert near == pytest.approx(-np.log(abs(u2 / ((1 - eps) * u1) - 1)), rel=1e-14)


def test_the_papers_speedup_is_exact_if_both_optima_are_approached_from_below(target, network):
    slower = tasks.integration(target_strength=0.75, name="slower")
    found = follow([Stage(slower, goal=0.9), Stage(target, goal=0.99)], network, learning_rate=RATE)
    terms = found.explanation
    assert terms.paper_speedup_steps == pytest.approx(found.saving.flow, rel=1e-9)
    beta = found.modes[1].weighted_cross[0]
    total = terms.initial_scale + terms.cross_ratio + terms.closeness
    assert total / (2 * RATE * beta) == pytest.approx(terms.paper_speedup_steps, rel=1e-12)
    assert set(vars(terms)) >= {"mode", "initial_scale", "cross_ratio", "closeness", "sentence"}


def test_closeness_is_infinite_on_the_targets_optimum():
    assert closeness(2.0, 1.0, 0.5) == np.inf
    assert closeness(2.0, 1.0, 0.4) == pytest.approx(-np.log(abs(1 / 1.2 - 1)))
    np.testing.assert_array_equal(singular_accuracy([2.0, 1.0, 0.5, -2.0], 1.0), [0.5, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("strength", "accuracy", "numbers"),
    [
        (1.5, 0.5, ["1.5", "75.0%"]),
        (0.5, 0.9, ["2", "45.0%"]),
        (1.0, 0.5, ["50.0%"]),
        (3.0, 0.9, ["3", "270.0%"]),
        (2.0, 0.5, ["2"]),
        (-1.0, 0.0, []),
    ],
)
def test_the_sentence_names_the_tasks_their_ratio_of_speeds_and_the_end(target, network, strength, accuracy, numbers):
    first = tasks.integration(target_strength=strength, name="first")
    found = follow([Stage(first, goal=accuracy), Stage(target, goal=0.99)], network, learning_rate=RATE)
    words = found.explanation.sentence.replace('"', "").split()
    assert {"first", *numbers} <= set(words)
    assert any(word.startswith("target") for word in words)


def test_a_target_that_does_not_depend_on_the_mode_is_explained(network):
    nothing = tasks.integration(target_strength=0.0, name="nothing")
    stages = [Stage(tasks.integration(), steps=10), Stage(nothing, goal=0.0)]
    assert "nothing" in follow(stages, network, learning_rate=RATE).explanation.sentence


def test_only_curricula_of_two_tasks_are_explained(target, network):
    stronger = target.varied(target_strength=1.5, name="stronger")
    assert follow([Stage(target, goal=0.9)], network, learning_rate=RATE).explanation is None
    stages = [Stage(stronger, goal=0.1), Stage(stronger, goal=0.2), Stage(target, goal=0.9)]
    assert follow(stages, network, learning_rate=RATE).explanation is None


def test_the_explained_mode_is_the_slowest():
    two_modes = LinearRNN.aligned(hidden_size=4, inputs=2, outputs=2)
    goal = tasks.integration(target_strength=[1.0, 2.0])
    first = tasks.integration(target_strength=[2.0, 4.0])
    found = follow([Stage(first, goal=0.3), Stage(goal, goal=0.99)], two_modes, learning_rate=RATE)
    assert found.explanation.mode == int(np.argmax(found.direct_time.mode_flow_steps))


def test_the_papers_time_is_exact_from_below(target, network):
    solution = lc.forecast(target, network, learning_rate=RATE).solution
    assert lc.papers.paper_time(solution, 0.9) == pytest.approx(solution.time_to(0.9).mode_flow_steps, rel=1e-9)
    with pytest.raises(lc.UnsupportedModel) as caught:
        lc.papers.paper_time("no solution")
    assert caught.value.field == "solution"
