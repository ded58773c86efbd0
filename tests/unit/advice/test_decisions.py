"""Advice for decisions: what is filtered, chosen, warned of and carried out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import Loss, Stage, Training
from learncast.advice import Request
from learncast.advice.advice import DIRECT
from learncast.advice.decisions import HALFWAY, HELPED, NEAR, UNSURE, Outlook, decision_plans
from learncast.training import (
    DecisionAccuracy,
    Execution,
    Learned,
    Lookahead,
    Loop,
    Measured,
    Source,
    Stalled,
    train,
)
from learncast.training.rules import LOOKS, GoalWatch

STEPS = 5
GOAL = DecisionAccuracy(0.85, ignore=0)


def signs(trials, rng, noise=0.8, constant=False):
    """The sign of a noisy input, at the last step; or always the same answer."""
    side = rng.integers(0, 2, trials)
    x = noise * rng.standard_normal((trials, STEPS, 2))
    x[:, :, 0] += 2.0 * side[:, None] - 1.0
    y = np.zeros((trials, STEPS), dtype=np.int64)
    y[:, -1] = 1 if constant else 1 + side
    x[:, -1, 1] = 3.0
    return x, y


def clear(trials, rng):
    return signs(trials, rng, noise=0.1)


def same(trials, rng):
    return signs(trials, rng, noise=0.1, constant=True)


class OwnCell(nn.Module):
    """A recurrence that no surrogate knows, read out behind another layer."""

    def __init__(self):
        super().__init__()
        self.into, self.own = nn.Linear(2, 10), nn.Parameter(torch.eye(10) * 0.7)
        self.head = nn.Sequential(nn.Linear(10, 6), nn.Softplus(), nn.Linear(6, 3))

    def forward(self, x):
        state, found = x.new_zeros(len(x), 10), []
        for step in range(x.shape[1]):
            state = torch.sin(self.into(x[:, step]) + state @ self.own)
            found.append(self.head(state))
        return torch.stack(found, 1)


def made(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return OwnCell()


TRAINING = Training(0.01, optimizer="adam", loss="cross_entropy", batch=32)


def advised(candidates, **changes):
    source, training = lc.training.trials(signs, name="noisy"), TRAINING.with_(**changes)
    return lc.advise(made(), source, candidates, training, goal=GOAL, log=lambda text: None)


@pytest.fixture(scope="module")
def advice():
    return advised({"same": same, "clear": clear})


def test_a_constant_answer_is_left_out_and_said(advice):
    plans = [HELPED, "noisy itself, restarted", DIRECT, "clear until learned"]
    assert [str(name) for name in advice["plan"].values] == plans
    assert any(text.startswith("constant: same") for text in advice.warnings)


def test_a_cell_of_ones_own_is_advised_on_without_a_step(advice):
    assert advice.recommended == HELPED
    assert advice.score < 1
    assert "\n" not in advice.summary


def test_help_comes_when_the_target_stalls_and_ends_when_learned_or_when_the_target_is_half_way(advice):
    own, first, last = advice.stages()
    stalled, rule = own.goal, first.goal
    assert [stage.task.name for stage in (own, first, last)] == ["noisy", "clear", "noisy"]
    assert last.goal == GOAL
    assert rule.goal == replace(GOAL, looks=LOOKS)
    chance = GOAL.chance(torch.from_numpy(signs(256, np.random.default_rng(0))[1]))
    assert rule.ahead.goal.value == pytest.approx(chance + HALFWAY * (0.85 - chance), abs=0.02)
    assert rule.ahead.source is last.task
    assert isinstance(stalled, Stalled)
    assert stalled.goal == GOAL
    assert stalled.near.value == pytest.approx(chance + NEAR * (0.85 - chance), abs=0.02)


class Seen:
    """A view in which goals have given values, by the name of the trials."""

    def __init__(self, usual, **named):
        self.usual, self.named = usual, named

    def measure(self, goal, source):
        return self.named.get(source.name, self.usual)


def test_a_goal_that_is_met_passes_through_the_stages_that_are_left(advice):
    """The looks at the target go on from stage to stage: no step is spent on help that is not needed."""
    run = advice.train(most_steps=800)
    steps = list(run.stage_steps)
    assert run.status is lc.Status.ok
    if steps[1] == 0:
        assert steps[2] == 0
    first, second = advice.stages()[:2]
    own, ahead = (GoalWatch(stage.goal, stage.task) for stage in (first, second))
    for step in range(0, 15, 5):
        assert not own.over(step, Seen(0.8))
    helped = GoalWatch(second.goal, second.task, own)
    assert helped.over(0, Seen(0.3, noisy=0.8))
    assert not ahead.over(0, Seen(0.3, noisy=0.8))


def test_it_is_carried_out_and_saved(advice, tmp_path):
    run = advice.train(most_steps=800)
    assert run.status is lc.Status.ok
    assert len(run.stage_steps) == 3
    advice.save(tmp_path / "advice.nc")
    assert lc.advise.__module__ == "learncast.advice.adviser"
    assert type(advice).load(tmp_path / "advice.nc").summary == advice.summary


def test_an_optimiser_that_it_was_not_tuned_with_is_warned_of():
    plain = advised({"clear": clear}, optimizer="gd", learning_rate=0.1)
    adam = advised({"clear": clear})
    assert any(text.startswith("not_adaptive:") for text in plain.warnings)
    assert not any(text.startswith("not_adaptive:") for text in adam.warnings)


def outlook(**changes):
    usual = Outlook(GOAL, ("target", "a", "b"), (12e3, 50.0, 20.0), (0.5, 0.5, 0.6), 1.0, 0.9, 0.95)
    return replace(usual, **changes)


WARNED = {
    "linear_decides": {"linear": 0.55},
    "chance": {"chances": (0.9, 0.5, 0.5)},
    "constant": {"chances": (0.5, 0.5, 0.95)},
    "none": {"chances": (0.5, 0.9, 0.95)},
    "no_easier": {"times": (10.0, 50.0, 20.0)},
    "never": {"times": (14e3, 13e3, 12e3)},
    "close": {"times": (30.0, 50.0, 20.0)},
    "relevance": {"transferred": 0.5},
}


@pytest.mark.parametrize("name", WARNED)
def test_each_warning_has_its_reason(name):
    assert outlook().warnings == (UNSURE,)
    assert any(text.startswith(f"{name}:") for text in outlook(**WARNED[name]).warnings)


def test_what_linear_moments_do_not_decide_is_said_first():
    assert outlook(linear=0.55, transferred=0.5, times=(30.0, 50.0, 20.0)).warnings[0].startswith("linear_decides")


def test_candidates_help_in_the_order_in_which_they_are_read():
    request = Request.of(made(), signs, {"a": clear, "b": same}, TRAINING, goal=GOAL)
    plans = decision_plans(request, outlook(names=("target", "a", "b"), times=(60.0, 50.0, 20.0)))
    assert [stage.task.name for stage in plans[HELPED].stages[1::2]] == ["b", "a"]
    none = decision_plans(request, outlook(chances=(0.5, 0.9, 0.95)))
    assert next(iter(none)).endswith("restarted")


def test_measured_goals_are_met_on_the_way_as_well():
    least = Measured(len, at_most=0.2, chance_level=0.5)
    assert outlook(goal=least, chances=(0.5, 0.5, 0.5)).on_the_way(0.5).at_most == pytest.approx(0.35)
    assert outlook(goal=least, chances=(np.nan,) * 3).on_the_way(0.5) is None


def labelled(mark, name):
    def draw(trials, rng):
        return np.full((trials, 4, 2), float(mark)), np.full((trials, 4), mark, dtype=np.int64)

    draw.__qualname__ = name
    return Source.of(draw)


class Constant(nn.Module):
    """Answers that do not look at their inputs."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.logits.expand(*x.shape[:2], 3)


def test_a_stage_ends_when_what_lies_ahead_is_met():
    # While 2 is trained, its loss never falls to 1e-6, and that of 2 under another name falls below 0.9 soon.
    first, later = labelled(2, "first"), labelled(2, "later")
    settings = Training(0.05, batch=8, optimizer="adam", loss="cross_entropy", most_steps=60)
    ended, not_ended = (
        train(
            [Stage(first, Learned(Loss(1e-6), ahead=ahead)), Stage(later, Loss(0.5))],
            Constant(),
            settings,
            record=(),
            execution=Execution(dtype="float32"),
        )
        for ahead in (Lookahead(later, Loss(0.9, function="cross_entropy")), None)
    )
    assert ended.status is lc.Status.ok
    assert ended.stage_steps[0] < 20
    assert not_ended.status is lc.Status.not_within
    assert not_ended.stage_steps[0] == 60


def test_a_loop_of_ones_own_looks_ahead_as_well():
    first, later = labelled(2, "first"), labelled(2, "later")
    rule = Learned(Loss(1e-6), ahead=Lookahead(later, Loss(0.9, function="cross_entropy", looks=2)))
    model = Constant()
    training = Training(0.05, loss="cross_entropy", batch=4)
    loop = Loop.of([Stage(first, rule), Stage(later, steps=3)], model, training)
    adam = torch.optim.Adam(model.parameters(), 0.05)
    for x, y, _ in loop:
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        adam.step()
        loop.update(loss)
        json.dumps(loop.state_dict())
    assert loop.status is lc.Status.ok
    assert loop.steps[0] < 20


def test_rules_ahead_are_told_apart_by_their_trials():
    one, other = (repr(Learned(Loss(0.1), ahead=Lookahead(labelled(k, "task"), Loss(0.9)))) for k in (1, 2))
    assert one != other
    assert "0x" not in one
