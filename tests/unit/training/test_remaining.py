"""Estimates of the remaining steps: their distribution, their limits, and where they are shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec
from learncast.training import DecisionAccuracy, Earlier, Loop, Remaining, Updates


def drawn(done, total=300.0, power=5.0, number=40_000):
    """Totals from the stated distribution around an earlier run, given that `done` steps were not enough."""
    rng = np.random.default_rng(0)
    totals = total * (1 / rng.random(number) - 1) ** (1 / power)
    return totals[totals > done] - done


@pytest.mark.parametrize("done", [0, 150, 400])
def test_an_earlier_run_gives_the_quantiles_of_its_distribution(done):
    left, rest = Remaining.from_earlier(300, done=done, limit=900), drawn(done)
    for found, share in ((left.low, 0.1), (left.median, 0.5), (left.high, 0.9)):
        assert found == pytest.approx(np.quantile(rest, share), rel=0.05)
    assert left.late == pytest.approx(np.mean(rest > 900 - done), abs=0.01)


def test_another_rate_or_an_unfinished_run_widens_and_moves_the_estimate():
    same = Remaining.from_earlier(300, done=0)
    faster = Remaining.from_earlier(300, done=0, rate_ratio=4.0)
    unfinished = Remaining.from_earlier(300, done=0, reached=False)
    assert same.median == pytest.approx(300)
    assert faster.median == pytest.approx(150)
    assert faster.high / faster.low > same.high / same.low
    assert unfinished.median == pytest.approx(1.4 * 300)
    assert math.isnan(same.late)
    assert (same.source, faster.source) == ("earlier run", "earlier run at another rate")


def test_no_number_is_given_where_lateness_is_likely():
    late = Remaining.from_earlier(900, done=0, limit=500)
    assert late.late > 0.6
    assert math.isnan(late.median)
    over = Remaining.from_earlier(900, done=500, limit=500)
    assert over.late == 1.0


def test_a_curve_says_nothing_before_three_evaluations():
    assert Remaining.from_curve([0, 10], [0.0, 0.1]) is None
    assert Remaining.from_curve([0, 10, 20], [0.0, 0.1, 0.2]) is not None
    with pytest.raises(InvalidSpec):
        Remaining.from_curve([0, 10, 20], [0.0, 0.1])


def test_a_curve_that_is_nearer_to_its_goal_has_less_to_go():
    steps = [10 * k for k in range(20)]
    slow, fast = (Remaining.from_curve(steps, np.linspace(0, end, 20)) for end in (0.3, 0.9))
    assert fast.median < slow.median
    assert 0 < slow.low < slow.median < slow.high < math.inf
    flat, near = (Remaining.from_curve(steps, np.full(20, way), limit=1e9) for way in (0.0, 0.2))
    assert flat.late == pytest.approx(0.12, abs=0.01), "a network at chance may never learn"
    assert near.late == pytest.approx(0.0, abs=0.01)
    assert flat.high / flat.low == pytest.approx(81 ** (1 / 1.7))
    assert flat.source == "curve"


def sides(trials, rng):
    side = rng.integers(0, 2, trials)
    x = rng.standard_normal((trials, 4, 1)) + (2.0 * side[:, None, None] - 1.0)
    return x, side


def made():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def started(goal, training):
    model = made()
    return Loop.of([lc.Stage(sides, goal)], model, training, optimizer=Updates(model, training), evaluation=50)


def test_a_loop_estimates_from_its_evaluations_or_from_an_earlier_run():
    goal = DecisionAccuracy(0.95, every=2)
    training = lc.Training(1e-3, optimizer="adam", loss="cross_entropy", batch=16, most_steps=2000)
    loop = started(goal, training)
    assert loop.remaining() is None
    loop.advance(20)
    assert loop.remaining().source == "curve"
    known = loop.remaining(Earlier(400, learning_rate=1e-3))
    assert known.source == "earlier run"
    assert known.median == Remaining.from_earlier(400, done=20, limit=2000).median
    loop.advance()
    assert loop.done
    assert loop.remaining() is None


def test_an_earlier_run_without_steps_is_refused_at_once():
    training = lc.Training(1e-3, loss="cross_entropy", batch=16, most_steps=5)
    for wrong in (Earlier(0, learning_rate=1e-3), 5):
        with pytest.raises(InvalidSpec) as caught:
            lc.training.train(sides, made(), training, goal=DecisionAccuracy(0.95), earlier=wrong)
        assert caught.value.field == "earlier"


def test_a_loop_takes_a_run_as_the_earlier_one():
    training = lc.Training(1e-3, loss="cross_entropy", batch=16, most_steps=50)
    run = lc.training.train(sides, made(), training, goal=DecisionAccuracy(0.99, every=20), record=())
    assert started(DecisionAccuracy(0.99), training).remaining(run).source == "earlier run"


def test_goals_on_the_loss_are_not_estimated_from_the_curve():
    loop = started(lc.Loss(1e-6), lc.Training(1e-3, loss="cross_entropy", batch=16))
    loop.advance(30)
    assert loop.remaining() is None
    assert loop.remaining(Earlier(400, learning_rate=1e-3)) is not None


@pytest.mark.slow
def test_a_bar_shows_the_remaining_steps(monkeypatch):
    from learncast._core import progress

    shown = []
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    report = progress._Lines("training", 0.0)
    monkeypatch.setattr(report, "show", lambda share, left: shown.append(left))
    training = lc.Training(1e-4, optimizer="adam", loss="cross_entropy", batch=4, most_steps=200)
    first = lc.training.train(sides, made(), training, goal=DecisionAccuracy(0.99, every=20), record=())
    lc.training.train(
        sides, made(), training, goal=DecisionAccuracy(0.99, every=20), record=(), earlier=first, progress=report
    )
    assert len(shown) == 3
    assert all("step" in text for text in shown)


@pytest.mark.slow
def test_a_long_training_keeps_few_evaluations():
    training = lc.Training(1e-9, loss="cross_entropy", batch=4, most_steps=450)
    loop = started(DecisionAccuracy(0.99, every=1), training)
    loop.advance()
    steps = [step for step, _ in loop.watch.history]
    assert len(steps) <= 200
    assert steps[-3:] == [448, 449, 450]
    assert steps == sorted(steps)
