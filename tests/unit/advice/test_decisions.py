"""Advice for decisions: pilots, candidates that help, and how it is carried out."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Stage, Training, UnsupportedModel
from learncast.advice import AdviceTerms, find_rate
from learncast.advice.help import HALFWAY, NEAR, on_the_way
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


def flipped(trials, rng):
    """The same trials as the target's, with the other answer."""
    x, y = signs(trials, rng)
    y[:, -1] = 3 - y[:, -1]
    return x, y


TRAINING = Training(0.001, optimizer="adam", loss="cross_entropy", batch=32)


def target():
    return lc.training.trials(signs, name="noisy")


def advised(candidates, *, goal=GOAL, terms=AdviceTerms(), **changes):  # noqa: B008  frozen
    return lc.advise(made(), target(), candidates, TRAINING.with_(**changes), goal=goal, terms=terms)


@pytest.fixture(scope="module")
def advice():
    return advised({"same": same, "clear": clear, "flipped": flipped})


def test_candidates_that_teach_nothing_or_the_opposite_are_left_out(advice):
    assert advice.helpers == ("clear",)
    assert [str(name) for name in advice["plan"].values] == [advice.recommended, "no pretraining"]


def test_pilots_raise_a_rate_that_is_too_low_and_leave_the_model_alone():
    model = made()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    state = torch.random.get_rng_state()
    found = lc.advise(model, target(), [clear], TRAINING.with_(learning_rate=1e-5), goal=GOAL)
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert found.learning_rate > 1e-3
    assert found.pilot_steps == found.dataset["pilot_loss"].size == 5 * found.dataset.sizes["pilot"]
    assert found.dataset.attrs["clip"] == 0.3


def test_pilots_lower_a_rate_that_diverges():
    found = find_rate(made(), target(), TRAINING.with_(optimizer="gd", learning_rate=1e4))
    assert found.factor < 0.1
    best = int(found.losses.mean(1).argmin())
    assert np.isfinite(found.losses[best]).all()
    assert 0.3 < found.factor / found.factors[best] < 1.5


def test_the_pilots_losses_are_those_of_plain_training():
    source, model = target(), made()
    found = find_rate(model, source, TRAINING)
    copy = made()
    adam = torch.optim.Adam(copy.parameters(), TRAINING.learning_rate * found.factors[-1])
    for k in range(found.losses.shape[1]):
        x, y, _ = source.batch(32, (TRAINING.seed, 0), k, torch.float32)
        loss = nn.functional.cross_entropy(copy(x).flatten(0, 1), y.flatten())
        assert float(loss.detach()) == pytest.approx(found.losses[-1, k], rel=1e-5)
        adam.zero_grad()
        loss.backward()
        adam.step()


def test_training_goes_on_from_the_best_pilot():
    found, copied = advised([clear]), made()
    rates, losses = found.dataset["pilot_rate"].values, found.dataset["pilot_loss"].values
    adam = torch.optim.Adam(copied.parameters(), rates[losses.mean(1).argmin()])
    for k in range(losses.shape[1]):
        x, y, _ = found.request.target.batch(32, (TRAINING.seed, 0), k, torch.float32)
        adam.zero_grad()
        nn.functional.cross_entropy(copied(x).flatten(0, 1), y.flatten()).backward()
        nn.utils.clip_grad_norm_(copied.parameters(), 0.3)
        adam.step()
    for own, other in zip(found.request.model.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)


def test_the_rate_of_a_stage_is_followed_by_own_and_other_optimisers():
    stages = [Stage(signs, steps=2), Stage(signs, steps=2, rate=0.5), Stage(signs, steps=2)]
    seen = {}
    for reset in (True, False):
        model = made()
        training = TRAINING.with_(optimizer="adam", reset_optimizer=reset)
        loop = Loop.of(stages, model, training, optimizer=lc.training.Updates(model, training))
        seen[reset] = []
        while not loop.done:
            seen[reset].append(loop.updates.optimizer.param_groups[0]["lr"] / TRAINING.learning_rate)
            loop.advance(2)
    assert seen == {True: [1.0, 0.5, 1.0], False: [1.0, 0.5, 1.0]}
    with pytest.raises(InvalidSpec) as caught:
        lc.Stage(lc.tasks.integration(), 0.9, rate=0.5).check_forecast()
    assert caught.value.field == "rate"


def test_every_parameter_group_and_the_schedule_are_respected():
    model = made()
    groups = [{"params": model.head.parameters(), "lr": 1e-3}, {"params": [model.own, *model.into.parameters()]}]
    existing = torch.optim.AdamW(groups, lr=1e-4)
    like = lc.training.OptimizerLike(existing, model)
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
    training = TRAINING.with_(optimizer=like, learning_rate=like.learning_rate, schedule=schedule)
    found = lc.advise(model, target(), [clear], training, goal=GOAL)
    factor = found.dataset.attrs["factor"]
    updates = lc.training.Updates(copy.deepcopy(model), found.request.training)
    assert [group["lr"] for group in updates.optimizer.param_groups] == pytest.approx([1e-3 * factor, 1e-4 * factor])
    batch = target().batch(8, (0, 0), 0, torch.float32)
    for _ in range(2):
        updates.step(batch)
    assert updates.optimizer.param_groups[0]["lr"] == pytest.approx(0.5e-3 * factor)


def test_help_comes_when_the_target_stalls_and_ends_when_the_target_is_half_way(advice):
    own, first, last = advice.stages()
    stalled, rule = own.goal, first.goal
    assert own.task is last.task
    assert first.task.target is own.task
    assert [stage.rate for stage in (own, first, last)] == [1.0, 0.5, 0.5]
    assert [one.name for one in first.task.others] == ["clear"]
    assert last.goal == GOAL
    assert rule.goal == replace(GOAL, looks=LOOKS)
    chance = advice.dataset.attrs["chance"]
    assert chance == pytest.approx(0.5, abs=0.1)
    assert rule.ahead.goal.value == pytest.approx(chance + HALFWAY * (0.85 - chance), abs=0.02)
    assert rule.ahead.source is last.task
    assert isinstance(stalled, Stalled)
    assert stalled.goal == GOAL
    assert stalled.near.value == pytest.approx(chance + NEAR * (0.85 - chance), abs=0.02)


def test_half_of_a_mixed_batch_comes_from_the_target(advice):
    mixture = advice.stages()[1].task
    batch = mixture.batch(32, (0, 1), 3, torch.float32)
    own = mixture.target.batch(16, (0, 1), 3, torch.float32)
    assert batch.inputs.shape == (32, STEPS, 2)
    assert torch.equal(batch.inputs[:16], own.inputs)
    assert torch.equal(batch.targets[:16], own.targets)
    held = mixture.held_out(64, (0, 0), torch.float32)
    assert torch.equal(held.inputs, mixture.target.held_out(64, (0, 0), torch.float32).inputs)


def test_batches_alternate_where_trials_have_other_lengths():
    def longer(trials, rng):
        x, y = clear(trials, rng)
        return np.repeat(x, 2, axis=1), np.repeat(y, 2, axis=1)

    mixture = advised([longer]).stages()[1].task
    steps = [mixture.batch(32, (0, 1), k, torch.float32).inputs.shape[1] for k in range(4)]
    assert sorted(steps) == [STEPS, STEPS, 2 * STEPS, 2 * STEPS]


class Seen:
    """A view in which goals have given values, by the name of the trials."""

    def __init__(self, usual, **named):
        self.usual, self.named = usual, named

    def measure(self, goal, source):
        return self.named.get(source.name, self.usual)


def test_a_goal_that_is_met_passes_through_the_stages_that_are_left(advice):
    """Evaluations of the target go on from stage to stage: no step is spent on help that is not needed."""
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
    assert helped.ahead.history[0] == (0, 0.8)


def test_it_is_carried_out_reported_and_saved(advice, tmp_path):
    run = advice.train(most_steps=800)
    assert run.status is lc.Status.ok
    done = advice.carried_out(run)
    values = done.report().values
    assert values["run_steps"] == run.steps
    assert values["pilot_steps"] == advice.pilot_steps
    assert {one["learning_rate"] for one in values["pilots"]} == set(advice.dataset["pilot_rate"].values)
    done.save(tmp_path / "advice.nc")
    assert type(advice).load(tmp_path / "advice.nc").summary == done.summary
    assert advice.forecast_class == "measured"


def test_an_own_loop_gets_the_rate_and_the_stages(advice):
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=TRAINING.learning_rate)
    loop = advice.loop(model, optimizer)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(advice.learning_rate)
    assert len(loop.stages) == 3
    for x, y, _ in loop:
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loop.update(loss)
    assert loop.status is lc.Status.ok


def test_without_candidates_it_finds_the_rate():
    found = advised([])
    assert found.helpers == ()
    assert len(found.stages()) == 1
    assert found.train(most_steps=800).status is lc.Status.ok
    loss = advised([], goal=Loss(0.2))
    assert loss.train(most_steps=800).status is lc.Status.ok


def test_the_steps_of_the_training_limit_the_advised_training():
    found = lc.advise(made(), target(), [], TRAINING.with_(most_steps=3), goal=replace(GOAL, value=0.999))
    assert found.train().stage_steps == (3,)
    assert found.train(most_steps=5).stage_steps == (5,)


def test_pilots_may_be_left_out():
    found = advised([clear], terms=AdviceTerms(find_rate=False))
    assert found.learning_rate == TRAINING.learning_rate
    assert found.pilot_steps == 0
    assert found.request.training.clip is None


def arrays(trials=200, flip=False):
    x, y = signs(trials, np.random.default_rng(3), noise=3.0)
    y[:, -1] = 3 - y[:, -1] if flip else y[:, -1]
    return x.astype("float32"), y


def test_the_targets_own_inputs_with_other_answers_are_left_out():
    found = lc.advise(made(), arrays(), {"flipped": arrays(flip=True), "clear": clear}, TRAINING, goal=GOAL)
    assert found.helpers == ("clear",)


def test_a_goal_that_is_evaluated_on_training_trials_is_remarked_on():
    found = lc.advise(made(), arrays(), {}, TRAINING, goal=GOAL)
    assert len(found.warnings) == 1
    aside = lc.training.trials(arrays(), held_out=0.2)
    assert lc.advise(made(), aside, {}, TRAINING, goal=GOAL).warnings == ()


def test_help_ends_when_a_goal_without_known_chance_is_met():
    def share(answers, targets):
        return (answers[:, -1].argmax(1) == targets[:, -1]).float().mean()

    advice = advised([clear], goal=Measured(share, at_least=0.75))
    steps = advice.train(most_steps=400).stage_steps
    assert steps[1:] == (0, 0) or steps[0] >= 60


def test_an_own_loop_sets_the_same_rate_twice(advice):
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    for _ in range(2):
        advice.loop(model, optimizer)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(advice.learning_rate)


def test_a_search_that_ends_at_its_edge_is_warned_of():
    found = advised([], learning_rate=1e-12, optimizer="gd", terms=AdviceTerms())
    assert any(text.startswith("rate:") for text in found.warnings)
    assert not any(text.startswith("rate:") for text in advised([]).warnings)


def test_parts_in_evaluation_mode_stay_frozen():
    class Normed(OwnCell):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(10)

        def forward(self, x):
            return super().forward(x) + 0 * self.norm(self.into(x[:, 0])).sum()

    model = Normed()
    model.norm.eval()
    run = lc.advise(model, target(), {}, TRAINING, goal=GOAL).train(most_steps=30)
    assert torch.equal(run.module.norm.running_mean, model.norm.running_mean)


def test_a_noisy_model_leaves_the_random_numbers_alone():
    class Noisy(OwnCell):
        def forward(self, x):
            return super().forward(x + 0.1 * torch.randn_like(x))

    model, state = Noisy(), torch.random.get_rng_state()
    lc.advise(model, target(), [clear], TRAINING, goal=GOAL)
    assert torch.equal(torch.random.get_rng_state(), state)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer, self.read = nn.Embedding(5, 4), nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.read(self.layer(self.table(x[..., 0].long()))[0][:, -1])


def test_models_of_tokens_are_advised_on():
    x = np.random.default_rng(0).integers(0, 5, (300, 6, 1)).astype("float32")
    found = lc.advise(Tokens(), (x, (x.sum((1, 2)) > 12).astype(int)), {}, TRAINING, goal=DecisionAccuracy(0.7))
    assert found.learning_rate > 0


class Broken(nn.Module):
    """Answers that are never finite."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.scale.log().sub(1).sqrt() * torch.ones(*x.shape[:2], 3)


def wrong_label(trials, rng):
    x, y = signs(trials, rng)
    return x, y + 5


REFUSED = {
    "a constant answer meets the goal": ({"goal": DecisionAccuracy(0.4, ignore=0)}, "goal"),
    "a loss that is never finite": ({"model": Broken()}, "model"),
    "a label that is no output": ({"target": wrong_label}, None),
    "several answers": ({"model": nn.RNN(2, 3, batch_first=True)}, "network"),
    "no decision": ({"target": lambda n, rng: (signs(n, rng)[0], np.full((n, STEPS), -100))}, "goal"),
    "an optimiser with a closure": ({"training": TRAINING.with_(optimizer=torch.optim.LBFGS)}, "optimizer"),
    "nothing learns": ({"model": made().requires_grad_(False)}, "model"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_without_answer_is_refused_by_field(case):
    changed, field = REFUSED[case]
    given = {"model": made(), "target": target(), "candidates": [clear], "training": TRAINING, "goal": GOAL, **changed}
    with pytest.raises((InvalidSpec, UnsupportedModel)) as caught:
        lc.advise(**given)
    if field is not None:
        assert caught.value.field == field


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.35), (0.3, 0.41)])
def test_goals_on_the_way_lie_between_chance_and_goal(share, bound):
    least = Measured(len, at_most=0.2, chance_level=0.5)
    assert on_the_way(least, 0.5, share).at_most == pytest.approx(bound)
    assert on_the_way(least, np.nan, share) is None
    assert on_the_way(least, 0.1, share) is None


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
