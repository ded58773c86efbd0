"""What a user asks for is what is advised on and carried out: the goal, the loss, the optimiser, the trials."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast._core.errors import InvalidSpec
from learncast.advice.advice import DIRECT
from learncast.advice.race import run_race
from learncast.advice.request import Request
from learncast.training import DecisionAccuracy, Learned, LossBelow, Training, gated_module
from learncast.training.sources import Source


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


def product(trials, rng):
    """Whether two signs agree: no linear map of them says it."""
    x = np.zeros((trials, STEPS, 3))
    x[:, :-1, 2] = 1.0
    x[:, :2, 0] = rng.choice([-1.0, 1.0], (trials, 2))
    labels = np.zeros((trials, STEPS), dtype=int)
    labels[:, -1] = 1 + (x[:, 0, 0] * x[:, 1, 0] > 0)
    return x, labels


EASY = partial(choice, noise=0.1)


def small(seed=0):
    return gated_module("rnn", inputs=3, hidden_size=12, outputs=3, every_step=True, seed=seed)


def advised(target=choice, candidates=None, **options):
    settings = {"goal": GOAL, "loss": "cross_entropy", "learning_rate": 0.01, "batch": 32, "echo": lambda text: None}
    return lc.advise(small(), target, candidates or {"easy": EASY}, **{**settings, **options})


@pytest.fixture(scope="module")
def advice():
    torch.set_num_threads(1)
    return advised()


def test_the_users_goal_ends_every_plan_and_chance_is_known(advice):
    for plan in advice["plan"].values:
        assert advice.stages(str(plan))[-1][1] == GOAL
    assert advice.dataset.attrs["chance"] == pytest.approx(0.5, abs=0.1)
    assert "fresh optimiser" in advice.summary
    assert all(v.holds for v in advice.validity)


def test_the_target_itself_restarted_is_a_plan_where_the_optimiser_remembers(advice):
    restarted = [str(name) for name in advice["plan"].values if "restarted" in str(name)]
    assert len(restarted) == 1
    first, last = advice.stages(restarted[0])
    assert first[0] is last[0]
    plain = advised(optimizer="sgd", loss="mse", most_steps=50)
    assert not [name for name in plain["plan"].values if "restarted" in str(name)]
    kept = advised(reset_optimizer=False)
    assert not [name for name in kept["plan"].values if "restarted" in str(name)]
    assert "fresh_optimizer" in kept.warnings[0]


def test_a_product_of_inputs_is_warned_of_first():
    found = advised(product)
    assert found.forecast_class == "outside"
    assert found.warnings[0].startswith("linear_decides")
    assert "pilot race" in found.warnings[0]


def test_the_plan_is_carried_out_and_told(advice, tmp_path):
    said, scalars = [], []

    class Writer:
        def add_scalar(self, name, value, step):
            scalars.append((name, value, step))

    plan = "easy until learned"
    run = advice.train(plan, log=said.append, writer=Writer(), most_steps=600)
    assert run.status is lc.Status.ok
    assert len(said) == 4
    assert "easy until 85% right decisions" in said[0]
    assert "optimiser reset" in said[2]
    assert "85% right decisions" in said[2]
    assert {name for name, _, _ in scalars} == {"loss", "goal", "stage"}
    assert [step for name, _, step in scalars if name == "loss"][-1] == run.steps
    x, y, w = advice.request.target.held_out(500, (0, 0), torch.float32)
    with torch.no_grad():
        assert GOAL.met(GOAL.measure(run.module(x), y, w))
    path = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        advice.train(plan, most_steps=600, checkpoint=path, checkpoint_every=5, log=partial(stop_at, "stage 2"))
    resumed = advice.train(plan, most_steps=600, checkpoint=path, checkpoint_every=5)
    assert resumed.stage_steps == run.stage_steps
    for name, value in run.module.state_dict().items():
        assert torch.equal(value, resumed.module.state_dict()[name])


def stop_at(words, text):
    if text.startswith(words):
        raise KeyboardInterrupt


def test_the_race_is_run_to_the_users_goal():
    found = advised(pilot=True, seeds=1, budget=4000)
    assert found.pilot is not None
    assert found.recommended == found.pilot.winner
    winner = found.train(most_steps=600)
    assert winner.status is lc.Status.ok


def test_a_training_says_everything_at_once(advice):
    training = Training(0.01, batch=32, optimizer="adam", loss="cross_entropy", evaluation=500)
    same = lc.advise(small(), choice, {"easy": EASY}, goal=GOAL, training=training, echo=lambda text: None)
    assert same.dataset["score"].equals(advice.dataset["score"])
    with pytest.raises(InvalidSpec, match="learning_rate besides"):
        advised(training=training)


def test_a_mean_squared_error_is_descended_in_its_own_steps():
    """Its slope is a share of the half squared error's, which a larger rate makes up for."""
    half = advised(optimizer="sgd", loss="half_squared_error", learning_rate=0.05, goal=None, accuracy=0.5)
    factor = 2.0 / (STEPS * 3)
    mean = advised(optimizer="sgd", loss="mse", learning_rate=0.05 / factor, goal=None, accuracy=0.5)
    np.testing.assert_allclose(mean["score"], half["score"].sel(plan=mean["plan"]), rtol=1e-9)


def test_runners_are_left_and_taken_up():
    request = Request.of(
        small(), choice, [EASY], goal=GOAL, learning_rate=0.02, loss="cross_entropy", batch=16, clip=1.0
    )
    one, other = (request.runner([(request.target, 60)], seed=3) for _ in range(2))
    one.advance(25)
    state = one.snapshot()
    one.advance(100)
    other.restore(state)
    other.advance(100)
    assert one.taken == other.taken == 60
    for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(a, b)
    pretrained = request.runner([(request.candidates[0], Learned(LossBelow(0.4), 1.5))])
    pretrained.advance(2000)
    assert pretrained.finished
    before = pretrained.measure(GOAL, request.target)
    pretrained.lead([(request.target, GOAL)])
    pretrained.advance(2000)
    assert pretrained.measure(GOAL, request.target) >= 0.85 > before


def loader(steps_first=False):
    x, y = choice(64, np.random.default_rng(0))
    pair = torch.utils.data.TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    return torch.utils.data.DataLoader(pair, batch_size=16)


def test_a_loader_that_repeats_its_trials_is_remarked_on():
    said = Request.of(small(), loader(), [EASY], learning_rate=0.1).remarks
    assert "held_out" in said[0]
    aside = lc.training.trials(loader(), held_out=choice(32, np.random.default_rng(1)))
    assert not Request.of(small(), aside, [EASY], learning_rate=0.1).remarks


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.readout = nn.RNN(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.readout(self.layer(x)[0])


REFUSED = {
    "labels": (lambda: advised(lambda n, rng: (choice(n, rng)[0], 7 + choice(n, rng)[1])), "output for every class"),
    "loss for a goal": (lambda: advised(goal=nn.CrossEntropyLoss()), r"LossBelow\(0.05, loss="),
    "layout": (
        lambda: lc.advise(Turned(), choice, [EASY], learning_rate=0.1, goal=GOAL, loss="cross_entropy"),
        "TimeFirst|readout",
    ),
    "writer": (lambda: advised().train(writer=3), "add_scalar"),
    "decay": (
        lambda: advised(optimizer=torch.optim.SGD, weight_decay=0.1),
        "leave it out, or pass the optimiser's name",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_refused_with_their_cure(name):
    attempt, words = REFUSED[name]
    with pytest.raises((InvalidSpec, lc.errors.UnsupportedModel), match=words):
        attempt()


class Exploding(nn.Module):
    """One number that doubles its distance at every step."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.value.expand(len(x), 1) ** 3


def test_a_pilot_that_is_no_number_names_the_cure():
    from learncast.advice.update_rule import UpdateRule

    source = Source.of(lambda n, rng: (np.zeros((n, 1, 1)), np.zeros((n, 1)) + 9.0))
    rule = UpdateRule.of("sgd", 50.0, Exploding())
    plans = {"a": [(source, 1e-9)], "b": [(source, 1e-9), (source, 1e-9)]}
    with pytest.raises(InvalidSpec, match=r"NaN or infinity in every plan.*clip"):
        run_race(Exploding(), plans, rule, batch=2, budget=500)


def test_no_pretraining_is_one_stage(advice):
    assert len(advice.stages(DIRECT)) == 1
