"""Steps of all resamples, counted together, equal those of each resample trained by itself."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast.tasks import resampled
from learncast.theory import Problem

RATE, DECAY, COMPARED = 0.01, 0.6, 4
HALF, MOST = lc.Accuracy(0.5), lc.Accuracy(0.8)


def trials(name: str, slope: float, seed: int) -> lc.Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 3, 2)) @ np.array([[1.0, 0.3], [0.0, 0.8]])
    y = slope * x.sum(axis=1) @ np.array([[1.0, -0.4], [0.2, 0.7]]) + 0.3 * rng.normal(size=(80, 2))
    return lc.Task.from_samples(x, y, name=name)


@pytest.fixture(scope="module")
def recorded():
    rng = np.random.default_rng(5)
    network = lc.LinearRNN(0.4 * rng.normal(size=(3, 2)), DECAY * np.eye(3), 0.4 * rng.normal(size=(2, 3)))
    pool = [trials("first", 1.5, 1), trials("goal", 1.0, 2)]
    method = lc.planning.method_for(pool, network, RATE, method="pooled")
    return method, [resampled_statistics(task) for task in pool], network


def resampled_statistics(task: lc.Task) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input power and cross-covariance of the pooled trials of the first resamples."""
    rng, found = np.random.default_rng(0), []
    for _ in range(COMPARED):
        one = resampled(task, rng)
        weights = DECAY ** np.arange(one.steps)[::-1]
        inputs, cross = one.input_covariance.dense(), one.cross_covariance.dense()[:, :, 0, :]
        found.append((np.einsum("s,siuj,u->ij", weights, inputs, weights), np.einsum("s,sio->oi", weights, cross)))
    return found


def plain_descent(moments, maps, steps=None, accuracy=None):
    """Plain descent for some steps or to an accuracy: number of steps, and the maps at the end."""
    (power, cross), (first, second), taken = moments, maps, 0
    best = cross @ np.linalg.inv(power)
    goal = None if accuracy is None else (1 - accuracy) ** 2 * np.trace(best @ power @ best.T) / 2

    def excess():
        gap = second @ first - best
        return np.trace(gap @ power @ gap.T) / 2

    while taken < steps if steps is not None else excess() > goal:
        error = second @ first @ power - cross
        first, second, taken = first - RATE * second.T @ error, second - RATE * error @ first.T, taken + 1
    return taken, (first, second)


@pytest.mark.parametrize("rule", [(HALF, None), (None, 6.5)], ids=["to an accuracy", "for some steps"])
def test_every_resample_takes_the_steps_of_plain_descent(recorded, rule):
    method, statistics, network = recorded
    found = method.resample([0, 1], [rule, (MOST, None)])
    assert found.stages.shape == (2, 100)
    for k in range(COMPARED):
        steps = None if rule[1] is None else 7  # rounded up to whole steps
        first, maps = plain_descent(statistics[0][k], network.maps, steps, rule[0] and 0.5)
        assert found.stages[0, k] == first
        assert found.stages[1, k] == plain_descent(statistics[1][k], maps, accuracy=0.8)[0]
        assert found.direct[k] == plain_descent(statistics[1][k], network.maps, accuracy=0.8)[0]
    assert len(set(found.stages[1])) > 10  # resamples differ


def test_stops_are_compared_on_the_same_resamples(recorded):
    method, statistics, network = recorded
    found = method.resample_stops([0], [[3], [12]], MOST)
    assert found.shape == (2, 2, 24)
    for row, steps in enumerate((3, 12)):
        assert (found[row, 0] == steps).all()
        for k in range(COMPARED):
            _, maps = plain_descent(statistics[0][k], network.maps, steps)
            assert found[row, 1, k] == plain_descent(statistics[1][k], maps, accuracy=0.8)[0]


def test_stops_of_several_stages_may_be_left_out(recorded):
    method, statistics, network = recorded
    lengths = [[0, 4], [1, 0], [2, 3]]
    found = method.resample_stops([0, 0], lengths, MOST)
    assert found.shape == (3, 3, 100)
    for row, steps in enumerate(lengths):
        assert (found[row, :2] == np.array(steps)[:, None]).all()
        for k in range(COMPARED):
            _, maps = plain_descent(statistics[0][k], network.maps, sum(steps))
            assert found[row, 2, k] == plain_descent(statistics[1][k], maps, accuracy=0.8)[0]


def test_every_resample_of_statistics_by_lag_takes_the_steps_of_plain_descent(recorded):
    _, statistics, network = recorded
    pool = [trials("first", 1.5, 1), trials("goal", 1.0, 2)]
    method = lc.planning.method_for(pool, network, RATE, method="flow")
    found = method.resample([0, 1], [(HALF, None), (MOST, None)])
    assert found.stages.shape == (2, 40)
    for k in range(COMPARED):
        first, maps = plain_descent(statistics[0][k], network.maps, accuracy=0.5)
        # resamples take longer steps if the learning rate is small
        assert found.stages[0, k] == pytest.approx(first, rel=0.03, abs=2)
        assert found.stages[1, k] == pytest.approx(
            plain_descent(statistics[1][k], maps, accuracy=0.8)[0], rel=0.03, abs=2
        )
        assert found.direct[k] == pytest.approx(
            plain_descent(statistics[1][k], network.maps, accuracy=0.8)[0], rel=0.03, abs=2
        )


def test_a_resample_that_diverges_in_the_first_stage_never_learns():
    pool = [trials("first", 1.5, 1), trials("goal", 1.0, 2)]
    network = lc.LinearRNN(np.full((3, 2), 0.4), DECAY * np.eye(3), np.full((2, 3), 0.3))
    method = lc.planning.method_for(pool, network, 1e18, method="pooled")
    for rule in ((HALF, None), (None, 40.0)):
        assert np.isinf(method.resample([0, 1], [rule, (MOST, None)]).stages[1]).all()
    assert np.isinf(method.resample_stops([0], [[40]], MOST)[:, 1]).all()


def test_resampled_modes_are_counted_to_one_step(monkeypatch):
    """An error of one step does not matter to an interval; a precise count would take every step."""
    rng, asked = np.random.default_rng(8), []
    pool = []
    for name, slope in (("first", 2.0), ("goal", 1.0)):
        x = rng.normal(size=200)
        pool.append(lc.Task.from_samples(x[:, None, None], slope * x[:, None] + rng.normal(size=(200, 1)), name=name))
    start = lc.LinearRNN.aligned(recurrence=0.5, initial=0.01, hidden_size=1, task=pool[1])
    method = lc.planning.method_for(pool, start, 2e-4)
    one, two = (Problem(*m.resamples, m.imbalance) for m in method.resampled_modes)
    steps_to, goals = Problem.steps_to, [(HALF, None), (lc.Accuracy(0.9), None)]

    def counted(self, weights, *rest, precise=True, **options):
        asked.append(precise)
        return steps_to(self, weights, *rest, precise=precise, **options)

    monkeypatch.setattr(Problem, "steps_to", counted)
    found = method.resample([0, 1], goals)
    assert asked == [False, False, False]
    rows = np.broadcast_to(method.start, (len(found.direct), *method.start.shape))
    first, ends = steps_to(one, rows, one.within(0.5), 2e-4)
    second, _ = steps_to(two, ends, two.within(0.1), 2e-4)
    direct, _ = steps_to(two, rows, two.within(0.1), 2e-4)
    assert np.abs(found.stages - [first, second]).max() <= 1
    assert np.abs(found.direct - direct).max() <= 1
    assert direct.min() > 10_000  # so that one step is a small share
    timed = method.resample([0, 1], [(None, 5000.0), goals[1]])
    after = one.advance(rows, [5000], 2e-4)[0]
    assert np.abs(timed.stages[1] - steps_to(two, after, two.within(0.1), 2e-4)[0]).max() <= 1
