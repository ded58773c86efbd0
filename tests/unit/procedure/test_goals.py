"""Goals mean the same for forecasts and for training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import learncast as lc
from learncast import R2, Accuracy, Explained, InvalidSpec, Loss, Stage, Training
from learncast.training import train

#: Trials with noise that no linear map explains.
RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 4, 1))
Y = X.sum(axis=1) + 0.5 * RNG.standard_normal((80, 1))
NETWORK = lc.LinearRNN.aligned(recurrence=0.9, initial=0.2, hidden_size=3)


@pytest.mark.parametrize(
    ("goal", "excess"),
    [(Accuracy(0.9), 0.04), (Explained(0.9), 0.4), (Loss(1.5), 0.5), (R2(0.7), 0.5)],
    ids=["accuracy", "explained", "loss", "r2"],
)
def test_the_excess_loss_of_each_goal(goal, excess):
    """With a baseline of 4 above a least loss of 1."""
    assert goal.excess(4.0, 1.0) == pytest.approx(excess, rel=1e-12)
    assert goal.target_loss(4.0, 1.0) == pytest.approx(1.0 + excess, rel=1e-12)
    assert not goal.needs_training


@pytest.mark.parametrize("goal", [Loss(0.1), R2(0.5)])
def test_goals_on_the_users_scale_need_the_variance_of_targets(goal):
    with pytest.raises(InvalidSpec) as caught:
        goal.excess(1.0, np.nan)
    assert caught.value.field == "goal"


def test_a_number_means_accuracy_for_families_and_explained_for_recordings():
    family, recording = lc.tasks.integration(steps=4), lc.Task.from_samples(X, Y)
    assert Stage(family, 0.9).goal == Accuracy(0.9)
    assert Stage(recording, 0.9).goal == Explained(0.9)
    run = train((X, Y), NETWORK, Training(0.02), goal=0.9)
    again = train((X, Y), NETWORK, Training(0.02), goal=Explained(0.9))
    assert run.steps == again.steps > 0


@pytest.mark.parametrize("goal", [Explained(0.8), Loss(0.6), R2(0.7)], ids=["explained", "loss", "r2"])
def test_training_ends_at_the_same_step_as_descent_on_the_same_trials(goal):
    """A full batch is descent on its statistics, so both reach a goal at the same step."""
    training = Training(0.02)
    descent = lc.descend(lc.Task.from_samples(X, Y), NETWORK, training, goal=goal)
    run = train((X, Y), NETWORK, training, goal=goal)
    assert run.status is descent.status is lc.Status.ok
    assert run.steps == descent.steps > 0


def test_a_module_without_known_optimum_is_trained_to_a_plateau_first():
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 1, bias=False))
    torch.nn.init.constant_(module[1].weight, 0.01)
    run = train((X, Y), module, Training(0.05, most_steps=3000), goal=Explained(0.9))
    best = np.linalg.lstsq(X[:, :, 0], Y, rcond=None)[0]
    least = 0.5 * np.mean((X[:, :, 0] @ best - Y) ** 2)
    loss = run["loss"].values
    # the loss on the plateau is within 0.2% of the least, less than 1% of the excess at the start
    assert (loss[-1] - least) / (loss[0] - least) <= 0.1 + 0.01
    assert (loss[-2] - least) / (loss[0] - least) > 0.1 - 0.01


def test_networks_learn_the_same_weights_in_theory_and_in_torch_by_default():
    task = lc.tasks.integration(steps=4)
    run = train(task, NETWORK, Training(0.02, batch=50), steps=3)
    np.testing.assert_array_equal(run.network.recurrent_weights, NETWORK.recurrent_weights)
    assert not np.array_equal(run.network.input_weights, NETWORK.input_weights)
    assert lc.descend(task, NETWORK, learning_rate=0.02, steps=3).problem.learn == ("input", "output")


def test_without_a_batch_a_family_draws_a_thousand_fresh_trials():
    task = lc.tasks.integration(steps=4)
    plain, thousand = (train(task, NETWORK, Training(0.02, batch=batch), steps=4) for batch in (None, 1000))
    np.testing.assert_array_equal(plain["strength"], thousand["strength"])
    assert plain.dataset.attrs["batch"] == 1000


@pytest.mark.parametrize("kind", [lc.Accuracy, lc.Explained, lc.R2])
def test_a_goal_close_to_one_is_not_written_as_one(kind):
    texts = {kind(value).text for value in (0.9999, 0.99999, 0.9999999, 1.0)}
    assert len(texts) == 4
    assert "0.99999" in kind(0.99999).text


@pytest.mark.parametrize("make", [lc.Accuracy, lc.Explained, lc.R2, lc.Loss])
def test_a_truth_value_is_not_a_number(make):
    with pytest.raises(lc.InvalidSpec):
        make(True)
