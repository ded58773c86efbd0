"""Goals on recorded trials: steps until the share of correct decisions, held to plain descent on the raw trials."""

import json

import numpy as np
import pytest

import learncast as lc
from learncast.cli import app
from learncast.training import DecisionAccuracy, Measured


def labelled(every_step=False):
    rng = np.random.default_rng(0)
    labels = rng.choice(3, size=(200, 5) if every_step else 200, p=[0.5, 0.3, 0.2])
    signal = np.eye(3)[labels] if every_step else np.repeat(np.eye(3)[labels][:, None], 5, axis=1)
    return 0.5 * signal @ rng.normal(size=(3, 6)) + rng.normal(size=(200, 5, 6)), labels


def first_passage(x, labels, found, level, every=1, centre=False):
    """Steps of descent on the raw trials in numpy until the share of correct decisions reaches the level."""
    network, steps, y = found.method.network, x.shape[1], np.eye(3)[labels]
    mean = y.mean(axis=0) if centre else 0.0
    x, y = (x - x.mean(axis=0), y - mean) if centre else (x, y)
    b = network.scalar_recurrence
    readouts = range(steps) if labels.ndim == 2 else [steps - 1]
    pooled = np.stack([sum(b ** (r - t) * x[:, t] for t in range(r + 1)) for r in readouts], axis=1)
    y = y.reshape(*pooled.shape[:2], 3)
    first, second = (w.copy() for w in network.maps)
    for n in range(5000):
        answers = pooled @ first.T @ second.T
        right = (answers.reshape(*labels.shape, 3) + mean).argmax(axis=-1) == labels
        if n % every == 0 and right.mean() >= level:
            return n
        slope = np.einsum("pro,prc->oc", answers - y, pooled) / len(x)
        first, second = (
            first - found.learning_rate * second.T @ slope,
            second - found.learning_rate * slope @ first.T,
        )
    return np.inf


@pytest.mark.parametrize(
    ("every_step", "centre", "every", "level"), [(False, False, 1, 0.8), (True, True, 1, 0.55), (False, True, 7, 0.75)]
)
def test_steps_to_correct_decisions_are_those_of_plain_descent_on_the_trials(every_step, centre, every, level):
    x, labels = labelled(every_step)
    goal = DecisionAccuracy(level, every=every)
    found = lc.forecast(x, labels, goal=goal, learning_rate=1e-3, centre=centre)
    expected = first_passage(x, labels, found, level, every, centre)
    assert 10 < expected < 5000
    assert found.steps.descent == expected
    assert found.steps.interval is None
    assert found.classes.accuracy >= level


def test_trials_of_one_step_and_a_measured_function():
    x, labels = labelled()
    goal = Measured(lambda answers, targets: ((answers - targets) ** 2).sum(dim=-1).mean(), at_most=0.68, every=1)
    found = lc.forecast(x[:, 0], labels, goal=goal)
    same = lc.forecast(x[:, 0], labels, goal=lc.Loss(0.34), learning_rate=found.learning_rate)
    assert found.steps.descent == same.steps.descent


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 1e-4), ("momentum", 1e-3)])
def test_optimisers_are_followed_through_the_whole_descent(optimizer, rate):
    x, labels = labelled()
    network = lc.LinearRNN.random(6, 16, 3, scale=0.05, recurrence=0.8, rng=0)
    training = lc.Training(rate, optimizer=optimizer)
    found = lc.forecast((x, labels), network, training, goal=DecisionAccuracy(0.78, every=1))
    run = lc.descend(found.target, network, training, steps=int(found.steps.descent))
    share = [(n.respond(x).argmax(axis=1) == labels).mean() for n in run.networks_at(range(int(run.steps) + 1))]
    assert len(share) > 51
    assert np.flatnonzero(np.array(share) >= 0.78).tolist() == [len(share) - 1]


def test_the_command_takes_decisions_as_a_goal(tmp_path, capsys):
    x, labels = labelled()
    np.savez(tmp_path / "choices.npz", inputs=x, labels=labels)
    app(["forecast", str(tmp_path / "choices.npz"), "--set", "training.decisions=0.8", "--json"], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)
    found = lc.forecast(x, labels, goal=DecisionAccuracy(0.8, every=1))
    assert (answer["decisions"], answer["descent_steps"]) == (0.8, found.steps.descent)
    assert answer["classes"]["accuracy"] == found.classes.accuracy >= 0.8


def test_what_cannot_be_reached_or_measured_is_refused():
    x, labels = labelled()
    goal = DecisionAccuracy(0.99)
    with pytest.raises(lc.NotLearned) as never:
        lc.forecast(x, labels, goal=goal)
    task, network = lc.tasks.integration(steps=5), lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    with pytest.raises(lc.InvalidSpec) as unmeasured:
        lc.forecast(task, network, learning_rate=1e-3, goal=goal)
    with pytest.raises(lc.AssumptionViolated) as unstable:
        lc.forecast(x, labels, goal=DecisionAccuracy(0.7), learning_rate=10.0, strict=False)
    with pytest.raises(lc.InvalidSpec) as batches:
        lc.forecast((x, labels), lc.LinearRNN.random(6, 8, 3, recurrence=0.8), lc.Training(1e-3, batch=10), goal=goal)
    fields = [one.value.field for one in (never, unmeasured, unstable, batches)]
    assert fields == ["goal", "goal", "learning_rate", "batch"]


def test_readouts_that_a_mask_leaves_out_are_no_decisions():
    x, labels = labelled(every_step=True)
    mask = np.ones((200, 5))
    mask[:, 0], mask[::3, 3] = 0, 0
    found = lc.forecast(x, labels, mask=mask, goal=DecisionAccuracy(0.55, every=1), learning_rate=1e-3)
    run = lc.descend(found.target, found.method.network, found.training, steps=int(found.steps.descent))
    right = [
        (n.respond(x, every_step=True).argmax(axis=2) == labels)[mask == 1].mean()
        for n in run.networks_at(range(int(run.steps) + 1))
    ]
    assert len(right) > 5
    assert np.flatnonzero(np.array(right) >= 0.55).tolist() == [len(right) - 1]
    with pytest.raises(lc.InvalidSpec) as caught:
        found.in_batches(10)
    assert caught.value.field == "batch"
