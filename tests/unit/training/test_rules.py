"""Rules of stopping: when a task has stalled, and what goes on from stage to stage."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Stage, Training
from learncast.training import DecisionAccuracy, Execution, Loop, Records, Source, Stalled, train
from learncast.training.rules import LOOKS, TRAINED_LOSS, GoalWatch

GOAL = DecisionAccuracy(0.9, every=5)
NEAR = DecisionAccuracy(0.6, every=5)

LOSSES = {
    "slows down": (lambda t: np.exp(-t / 20), True),
    "slows down at any rate": (lambda t: np.exp(-t / 0.5), True),
    "along a line": (lambda t: 1 - t / 400, False),
    "ever faster": (lambda t: 1 - (t / 200) ** 2, False),
    "stands still": (lambda t: 1.0, True),
    "rises": (lambda t: 1 + t, True),
}


def stalled_at(loss, reached=0.5, **options):
    """The step at which a loss is said to stall; None when it is not within 200."""
    rule = Stalled(GOAL, **{"near": NEAR, "share": 0.45, **options})
    watch, steps = GoalWatch(rule, SimpleNamespace(hash="trials")), range(0, 201, 5)
    view = SimpleNamespace()
    for step in steps:
        view.measure = lambda goal, source, step=step: loss(step) if goal is TRAINED_LOSS else reached
        if watch.over(step, view):
            return step
    return None


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_stalls_when_it_falls_ever_more_slowly(name):
    loss, expected = LOSSES[name]
    assert stalled_at(loss) == (30 if expected else None)


def test_nothing_is_said_before_the_least_steps_or_near_the_goal():
    slow = LOSSES["slows down"][0]
    assert stalled_at(slow, least=60) == 60
    assert stalled_at(slow, reached=0.7) is None
    assert stalled_at(slow, reached=0.7, near=None) == 30
    assert stalled_at(slow, share=0.05) is not None
    assert stalled_at(slow, share=0.05) > stalled_at(slow, share=0.3)


def test_unknown_accuracy_does_not_count_as_near():
    assert stalled_at(LOSSES["stands still"][0], reached=np.nan) == 30


class Seen:
    """A view in which every goal has a given value."""

    def __init__(self, value):
        self.value = value

    def measure(self, goal, source):
        return self.value(goal)


class Drifting(nn.Module):
    """Answers (trials, steps, 2) that do not look at their inputs."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.0, 0.5]))

    def forward(self, x):
        return self.logits.expand(*x.shape[:2], 2)


def coin(trials, rng):
    """Random labels: the loss falls to its floor and stays there."""
    return np.zeros((trials, 2, 1)), rng.integers(0, 2, (trials, 2))


def zeros(trials, rng):
    return np.zeros((trials, 2, 1)), np.zeros((trials, 2), dtype=np.int64)


def stages():
    stalled = Stalled(DecisionAccuracy(0.9, every=5), near=DecisionAccuracy(0.7, every=5), least=20)
    return [Stage(Source.of(coin), stalled), Stage(Source.of(zeros), DecisionAccuracy(0.9, every=5))]


def test_a_task_that_cannot_be_learned_is_left_and_the_loop_of_ones_own_leaves_it_as_well():
    settings = Training(0.05, optimizer="adam", batch=16, loss="cross_entropy", most_steps=400, seed=3)
    run = train(stages(), Drifting(), settings, record=(), execution=Execution(dtype="float32"))
    assert run.status is lc.Status.ok
    assert 20 <= run.stage_steps[0] < 200

    model = Drifting()
    adam = torch.optim.Adam(model.parameters(), 0.05)
    loop = Loop.of(stages(), model, settings, optimizer=adam, evaluation=Records().evaluation)
    for x, y, _ in loop:
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        adam.step()
        loop.update(loss)
    assert loop.steps == list(run.stage_steps)


def test_a_stalling_stage_is_taken_up_where_it_was_left():
    source, rule = stages()[0].task, stages()[0].goal
    measures = [(0.5, float(np.exp(-k / 8))) for k in range(12)]

    def looks(k):
        return Seen(lambda goal: measures[k][isinstance(goal, Loss)])

    whole = GoalWatch(rule, source)
    ends = [whole.over(5 * k, looks(k)) for k in range(12)]
    assert True in ends
    for cut in range(1, ends.index(True)):
        first = GoalWatch(rule, source)
        for k in range(cut):
            first.over(5 * k, looks(k))
        again = GoalWatch(rule, source)
        again.restore(first.state())
        assert [again.over(5 * k, looks(k)) for k in range(cut, ends.index(True) + 1)][-1]


def test_looks_go_on_from_stage_to_stage_only_where_the_same_is_asked():
    source, other = Source.of(coin), Source.of(zeros)
    strict = DecisionAccuracy(0.8, looks=LOOKS, every=5)
    before = GoalWatch(GOAL, source)
    for step in (0, 5):
        before.over(step, Seen(lambda goal: 0.85))
    assert GoalWatch(strict, source, before).over(0, Seen(lambda goal: 0.85))
    assert not GoalWatch(strict, other, before).over(0, Seen(lambda goal: 0.85))
    late = DecisionAccuracy(0.8, steps=[-1], looks=LOOKS, every=5)
    assert not GoalWatch(late, source, before).over(0, Seen(lambda goal: 0.85))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Stalled(GOAL, share=1.5), "share"),
        (lambda: Stalled(GOAL, least=0), "least"),
        (lambda: Stalled("soon"), "goal"),
        (lambda: Stage(coin, "soon"), "goal"),
    ],
)
def test_invalid_rules_are_refused(make, field):
    with pytest.raises(InvalidSpec) as caught:
        make()
    assert caught.value.field == field


def test_the_rule_as_text():
    assert Stalled(GOAL).text == "90% correct decisions, or until it stalls"
