"""What a user asks for is what is advised on and carried out: the goal, the loss, the optimiser, the trials."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Stage, Training, UnsupportedModel
from learncast.advice import AdviceTerms, Request
from learncast.advice.advice import DIRECT
from learncast.training import DecisionAccuracy, Execution, Learned, Loop, Records, Source, Updates, gated_module


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


STEPS = 5
GOAL = DecisionAccuracy(0.85, ignore=0)


def choice(trials, rng, noise=0.3):
    """Which of two inputs was larger on the whole; to wait (class 0) while the third is on."""
    x = np.zeros((trials, STEPS, 3))
    side = rng.integers(0, 2, trials)
    x[:, :-1, 2] = 1.0
    x[:, :-1, :2] = noise * rng.standard_normal((trials, STEPS - 1, 2))
    x[np.arange(trials), :-1, side] += 0.5
    labels = np.zeros((trials, STEPS), dtype=int)
    labels[:, -1] = 1 + side
    return x, labels


EASY = partial(choice, noise=0.1)
#: The rate is used as given.
AS_GIVEN = AdviceTerms(find_rate=False)


def small(seed=0):
    return gated_module("rnn", inputs=3, hidden_size=12, outputs=3, every_step=True, seed=seed)


TRAINING = Training(0.01, optimizer="adam", loss="cross_entropy", batch=32)


def advised(target=choice, candidates=None, *, goal=GOAL, terms=None, model=None, **changes):
    tasks, training = candidates or {"easy": EASY}, TRAINING.with_(**changes)
    return lc.advise(model or small(), target, tasks, training, goal=goal, terms=terms or AdviceTerms())


@pytest.fixture(scope="module")
def advice():
    torch.set_num_threads(1)
    return advised()


def test_the_users_goal_ends_every_plan_and_chance_is_known(advice):
    for plan in advice["plan"].values:
        assert advice.stages(str(plan))[-1].goal == GOAL
    assert advice.dataset.attrs["chance"] == pytest.approx(0.5, abs=0.1)
    assert advice.dataset.attrs["optimizer_between_stages"] == "reset"
    assert all(v.holds for v in advice.validity)


def test_the_plan_is_carried_out_and_told(advice, tmp_path):
    said, scalars = [], []

    class Writer:
        def add_scalar(self, name, value, step):
            scalars.append((name, value, step))

    plan = advice.recommended
    record = Records(("loss", "goal"), every=10, evaluation=500, log=said.append, writer=Writer())
    run = advice.train(plan, record=record, most_steps=600)
    assert run.status is lc.Status.ok
    assert len(said) == 2 * len(advice.stages())
    assert {name for name, _, _ in scalars} == {"loss", "goal", "stage"}
    assert [step for name, _, step in scalars if name == "loss"][-1] == run.steps
    x, y, w = advice.request.target.held_out(500, (0, 0), torch.float32)
    with torch.no_grad():
        assert GOAL.met(GOAL.measure(run.module(x), y, w))
    execution = Execution(dtype="float32", checkpoint=tmp_path / "run.pt", checkpoint_every=5)
    stopped = Records(("loss", "goal"), every=10, evaluation=500, log=partial(stop_at, "stage 1 ended"))
    with pytest.raises(KeyboardInterrupt):
        advice.train(plan, most_steps=600, execution=execution, record=stopped)
    resumed = advice.train(plan, most_steps=600, execution=execution)
    assert resumed.stage_steps == run.stage_steps
    for name, value in run.module.state_dict().items():
        assert torch.equal(value, resumed.module.state_dict()[name])


def stop_at(words, text):
    if text.startswith(words):
        raise KeyboardInterrupt


def test_a_mean_squared_error_is_descended_in_its_own_steps():
    """Its slope is a share of the half squared error's, which a larger rate makes up for."""
    half = advised(optimizer="gd", loss="half_mse", learning_rate=0.05, goal=0.5, terms=AS_GIVEN)
    factor = 2.0 / (STEPS * 3)
    mean = advised(optimizer="gd", loss="mse", learning_rate=0.05 / factor, goal=0.5, terms=AS_GIVEN)
    np.testing.assert_allclose(mean["score"], half["score"].sel(plan=mean["plan"]), rtol=1e-9)


def own_loop(stages, model, **changes):
    training = TRAINING.with_(learning_rate=0.02, batch=16, clip=1.0, **changes)
    return Loop.of(stages, model, training, optimizer=Updates(model, training))


def test_a_loop_with_its_own_updates_continues_from_a_snapshot():
    one, other = (own_loop([Stage(choice, steps=60)], small(), seed=3) for _ in range(2))
    one.advance(25)
    state = one.snapshot()
    one.advance(100)
    other.restore(state)
    other.advance(100)
    assert one.steps == other.steps == [60]
    for a, b in zip(one.updates.module.parameters(), other.updates.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_pretrained_model_reaches_the_goal_in_another_loop():
    model, target = small(), Source.of(choice)
    first = own_loop([Stage(EASY, Learned(Loss(0.4), 1.5))], model)
    first.advance(2000)
    assert first.done
    before = first.view.measure(GOAL, target)
    second = own_loop([Stage(target, GOAL)], model)
    second.advance(2000)
    assert second.view.measure(GOAL, target) >= 0.85 > before


def loader(steps_first=False):
    x, y = choice(64, np.random.default_rng(0))
    pair = torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    return torch.utils.data.DataLoader(pair, batch_size=16)


def test_a_loader_that_repeats_its_trials_is_remarked_on():
    assert len(Request.of(small(), loader(), [EASY], TRAINING).remarks) == 1
    aside = lc.training.trials(loader(), held_out=choice(32, np.random.default_rng(1)))
    assert not Request.of(small(), aside, [EASY], TRAINING).remarks


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.readout = nn.RNN(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.readout(self.layer(x)[0])


REFUSED = {
    "labels": (lambda: advised(lambda n, rng: (choice(n, rng)[0], 7 + choice(n, rng)[1])), "labels"),
    "loss for a goal": (lambda: advised(goal=nn.CrossEntropyLoss()), "goal"),
    "layout": (lambda: advised(model=Turned()), "network"),
    "a goal that is only approached": (lambda: advised(goal=1.0), "goal"),
    "no training": (lambda: lc.advise(small(), choice, [EASY], 0.1, goal=GOAL), "training"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_requests_are_refused_by_name(name):
    attempt, field = REFUSED[name]
    with pytest.raises((InvalidSpec, UnsupportedModel)) as caught:
        attempt()
    assert caught.value.field == field


def test_no_pretraining_is_one_stage(advice):
    assert len(advice.stages(DIRECT)) == 1
