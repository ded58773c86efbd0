"""Few trials of many channels: descent in the span of the trials is descent on all channels."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy

import learncast as lc
from learncast.planning.generalise import learners
from learncast.theory import LearningProblem, curvature, gradient_flow

RATE, SHARE, B = 0.004, 0.9, 0.9
P, T, N, H = 14, 4, 60, 5


def drawn(centre, kind="recurrent", trials=P, channels=N):
    rng = np.random.default_rng(1)
    steps = T if kind == "recurrent" else 1
    # Channels of very different scales, and one that is a copy of another.
    x = rng.standard_normal((trials, steps, channels)) * np.geomspace(1e-3, 2.0, channels) + 0.3
    x[:, :, 1] = x[:, :, 0]
    y = x[:, :, -2:].sum(axis=1) + 0.1 * rng.standard_normal((trials, 2))
    if kind == "recurrent":
        network = lc.LinearRNN.random(channels, H, 2, recurrence=B, scale=0.3, rng=2)
    elif kind == "two layers":
        network = lc.TwoLayer.random(channels, H, 2, scale=0.3, rng=2)
    else:
        network = lc.Deep.random(channels, [H, H - 1], 2, scale=0.4, rng=2)
    return x, y, lc.Task.from_samples(x, y, centre=centre), network


def pooled(x, y, centre):
    z = np.einsum("t,ptc->pc", B ** np.arange(x.shape[1])[::-1], x)
    return (z - z.mean(axis=0), y - y.mean(axis=0)) if centre else (z, y)


def stepped(z, y, layers):
    """One step of plain descent on all channels."""
    below = [z]
    for w in layers:
        below.append(below[-1] @ w.T)
    pull, moved = (y - below[-1]) / len(z), []
    for w, seen in zip(layers[::-1], below[-2::-1], strict=True):
        moved.append(w + RATE * pull.T @ seen)
        pull = pull @ w
    return moved[::-1]


def descended(z, y, layers, share=SHARE):
    """Plain descent until `share` of the explainable loss is learned: steps and weights."""
    best = z @ np.linalg.lstsq(z, y, rcond=None)[0]
    least = ((best - y) ** 2).sum() / (2 * len(z))
    goal = least + (1 - share) ** 2 * ((y**2).sum() / (2 * len(z)) - least)
    for step in range(100_000):
        answer = z
        for w in layers:
            answer = answer @ w.T
        if ((answer - y) ** 2).sum() / (2 * len(z)) <= goal:
            return step, layers
        layers = stepped(z, y, layers)
    raise AssertionError


KINDS = pytest.mark.parametrize("kind", ["recurrent", "two layers", "deep"])


@KINDS
@pytest.mark.parametrize("centre", [False, True])
def test_counts_weights_and_resamples_are_those_of_plain_descent(centre, kind):
    x, y, task, network = drawn(centre, kind)
    found = lc.forecast(task, network, learning_rate=RATE, goal=lc.Accuracy(SHARE))
    start = list(network.layer_weights)
    steps, layers = descended(*pooled(x, y, centre), start)
    assert found.method.descents[0].inputs <= P  # in the span of the trials
    assert found.steps.descent == steps
    ends = found.method.network_of(found.run.descent_states[-1]).layer_weights
    for own, plain in zip(ends, layers, strict=True):
        np.testing.assert_allclose(own, plain, atol=1e-11)
    flow = found.solution  # of the network on all its channels
    assert [w.shape for w in flow.network_at(3.0).layer_weights] == [w.shape for w in start]
    assert flow.time_to_loss(found.method.goal_excess(0, found.goal)) == pytest.approx(found.steps.flow, rel=1e-5)
    rng, counted = np.random.default_rng(0), found.resampled.stages[0]
    for k in range(12):
        chosen = rng.integers(P, size=P)
        plain = descended(*pooled(x[chosen], y[chosen], centre), start)[0]
        assert counted[k] == pytest.approx(plain, abs=1.5)


@KINDS
@pytest.mark.parametrize("centre", [False, True])
def test_every_number_is_that_of_all_channels(centre, kind):
    _, _, task, network = drawn(centre, kind)
    statistics = task.input_covariance, task.cross_covariance, task.target_covariance
    moments = lc.Task(*(part.dense() for part in statistics))  # without trials, so without their span
    found, other = (lc.forecast(one, network, learning_rate=RATE, goal=lc.Accuracy(SHARE)) for one in (task, moments))
    assert (found.method.descents[0].inputs, other.method.descents[0].inputs) == (P - centre, N)
    assert found.steps.descent == other.steps.descent
    for one, two in zip(found.trust.assumptions, other.trust.assumptions, strict=True):
        assert one.measured == pytest.approx(two.measured, rel=1e-6, abs=1e-12)
    for number in ("flattest", "curvature", "size", "growth", "baseline_loss"):
        own, plain = (getattr(f.method.descents[0], number) for f in (found, other))
        assert own == pytest.approx(plain, rel=1e-6)
    assert found.method.least_loss(0) == pytest.approx(other.method.least_loss(0), rel=1e-9, abs=1e-12)


@KINDS
def test_stages_of_two_recordings_share_one_span(kind):
    x, y, task, network = drawn(False, kind)
    first = lc.Task.from_samples(x[:, :, ::-1].copy(), y[::-1].copy(), name="first")
    found = lc.follow([lc.Stage(first, steps=7), lc.Stage(task, SHARE)], network, learning_rate=RATE)
    layers = list(network.layer_weights)
    for _ in range(7):
        layers = stepped(*pooled(x[:, :, ::-1], y[::-1], False), layers)
    ends = found.method.network_of(found.run.descent_states[1]).layer_weights
    for own, plain in zip(ends, layers, strict=True):
        np.testing.assert_allclose(own, plain, atol=1e-12)


@KINDS
def test_folds_of_many_channels_descend_in_the_span_of_the_trials(kind, monkeypatch):
    monkeypatch.setattr(learners, "MANY", N)
    x, y, _, network = drawn(False, kind)
    z, _ = pooled(x, y, False)
    learner = learners.PooledLearner(network, RATE)
    kept = [np.arange(P) % 3 != k for k in range(3)]
    power, cross = (np.stack([one[k].T @ z[k] / k.sum() for k in kept]) for one in (z, y))
    assert learners.span_of(power).shape == (N, P)
    stops = [0, 5, 300]
    ends = learner.advancing((power, cross))(np.repeat(learner.start[None], 3, axis=0), stops)
    for row, chosen in enumerate(kept):
        layers = list(network.layer_weights)
        for step in range(301):
            if step in stops:
                own, plain = learner.maps(ends[stops.index(step)])[row], np.linalg.multi_dot(layers[::-1])
                np.testing.assert_allclose(own, plain, atol=1e-10)
            layers = stepped(z[chosen], y[chosen], layers)


def slopes(z, y, layers):
    """Gradient of the loss on the trials, flattened."""
    return np.concatenate([((w - v) / RATE).ravel() for w, v in zip(layers, stepped(z, y, layers), strict=True)])


def learned(network):
    return tuple(name for name in network.named_weights if name != "recurrent")


def split(flat, like):
    parts = np.split(flat, np.cumsum([w.size for w in like])[:-1])
    return [part.reshape(w.shape) for part, w in zip(parts, like, strict=True)]


@KINDS
def test_the_flow_is_that_of_all_channels(kind):
    x, y, task, network = drawn(False, kind)
    (z, targets), start = pooled(x, y, False), list(network.layer_weights)
    solution = gradient_flow(task, network, learning_rate=RATE, learn=learned(network))
    flat, steps = np.concatenate([w.ravel() for w in start]), 60
    ode = scipy.integrate.solve_ivp(
        lambda _, w: -slopes(z, targets, split(w, start)), (0, steps * RATE), flat, rtol=1e-10, atol=1e-12
    )
    for own, plain in zip(solution.network_at(steps).layer_weights, split(ode.y[:, -1], start), strict=True):
        np.testing.assert_allclose(own, plain, atol=1e-8)


@KINDS
def test_curvature_best_map_and_modes_are_those_of_all_channels(kind):
    x, y, task, network = drawn(False, kind)
    (z, targets), start = pooled(x, y, False), list(network.layer_weights)
    problem = LearningProblem.of(task, network, learned(network))
    flat, size = np.concatenate([w.ravel() for w in start]), 1e-5
    hessian = [
        (slopes(z, targets, split(flat + move, start)) - slopes(z, targets, split(flat - move, start))) / (2 * size)
        for move in size * np.eye(len(flat))
    ]
    assert curvature(problem) == pytest.approx(np.linalg.eigvalsh(np.array(hessian)).max(), rel=1e-6)
    best = (np.linalg.pinv(z) @ targets).T
    np.testing.assert_allclose(problem.pooled.best, best, atol=1e-8)
    np.testing.assert_allclose(problem.pooled.reachable, best, atol=1e-8)
    maps = np.random.default_rng(3).standard_normal((2, 2, N))
    missed = [((z @ m.T - targets) ** 2).sum() / (2 * P) for m in maps]  # the best map misses nothing
    np.testing.assert_allclose(problem.pooled.excess_of(maps), missed, rtol=1e-8)
    left, _, right = np.linalg.svd(targets.T @ z, full_matrices=False)
    function = np.linalg.multi_dot(start[::-1])
    np.testing.assert_allclose(problem.strengths(problem.start), np.diagonal(left.T @ function @ right.T), atol=1e-10)
    np.testing.assert_allclose(problem.best_strengths, np.diagonal(left.T @ best @ right.T), atol=1e-8)
    np.testing.assert_allclose(problem.frame.inputs.T @ problem.frame.inputs, np.eye(N), atol=1e-12)


@pytest.mark.parametrize("centre", [False, True])
def test_the_summary_leaves_each_trial_out(centre):
    x, y, task, _ = drawn(centre)
    z, targets = pooled(x, y, centre)
    fitted = np.column_stack([z, np.ones(P)]) if centre else z
    missed = 0.0
    for k in range(P):
        others = np.arange(P) != k
        answer = fitted[k] @ (np.linalg.pinv(fitted[others], rcond=1e-10) @ targets[others])
        missed += ((targets[k] - answer) ** 2).sum()
    found = lc.tasks.summary(task, recurrence=B)
    assert found.left_out == pytest.approx(1 - missed / (targets**2).sum(), abs=1e-6)


@pytest.mark.parametrize("kind", ["recurrent", "deep"])
def test_a_recurrence_that_overflows_is_reported(kind):
    _, _, task, _ = drawn(False)
    widths = (N, H, 2) if kind == "recurrent" else (N, [H, H], 2)
    family = lc.LinearRNN if kind == "recurrent" else lc.Deep
    network = family.random(*widths, recurrence=1e150, scale=0.3, rng=2)
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.forecast(task, network, learning_rate=RATE, method="pooled" if kind == "recurrent" else "auto")
    assert caught.value.field == "recurrence"


@pytest.mark.slow
def test_a_thousand_channels_take_seconds():
    _, _, task, network = drawn(False, trials=60, channels=1000)
    begun = time.process_time()
    assert lc.forecast(task, network, goal=SHARE).steps.interval is not None
    assert time.process_time() - begun < 30  # 160 s on matrices of all channels
