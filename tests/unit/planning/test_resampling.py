"""Steps in every resampling, counted together, are those of each resampling trained alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import learncast as lc
from learncast.planning.methods import linear
from learncast.tasks import resampled
from learncast.theory import Problem

RATE, DECAY, SHOWN = 0.01, 0.6, 4


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
    ground = lc.planning.method_for(pool, network, RATE, method="pooled")
    return ground, [draws(task) for task in pool], network


def draws(task: lc.Task) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input power and cross-covariance of the pooled trials in the first resamplings."""
    rng, found = np.random.default_rng(0), []
    for _ in range(SHOWN):
        one = resampled(task, rng)
        weights = DECAY ** np.arange(one.steps)[::-1]
        inputs, cross = one.input_covariance.dense(), one.cross_covariance.dense()[:, :, 0, :]
        found.append((np.einsum("s,siuj,u->ij", weights, inputs, weights), np.einsum("s,sio->oi", weights, cross)))
    return found


def descended(statistics, maps, steps=None, accuracy=None):
    """Plain descent for so many steps, or until so accurate; how many, and where it ends."""
    (power, cross), (first, second), taken = statistics, maps, 0
    best = cross @ np.linalg.inv(power)
    goal = None if accuracy is None else (1 - accuracy) ** 2 * np.trace(best @ power @ best.T) / 2

    def excess():
        gap = second @ first - best
        return np.trace(gap @ power @ gap.T) / 2

    while taken < steps if steps is not None else excess() > goal:
        error = second @ first @ power - cross
        first, second, taken = first - RATE * second.T @ error, second - RATE * error @ first.T, taken + 1
    return taken, (first, second)


@pytest.mark.parametrize("rule", [(0.5, None), (None, 6.5)], ids=["until an accuracy", "for some steps"])
def test_every_resampling_takes_the_steps_of_plain_descent(recorded, rule):
    ground, drawn, network = recorded
    found = ground.replicated([0, 1], [rule, (0.8, None)])
    assert found.descent.shape == (2, 100)
    for k in range(SHOWN):
        steps = None if rule[1] is None else 7  # begun steps are taken whole
        first, maps = descended(drawn[0][k], network.maps, steps, rule[0])
        assert found.descent[0, k] == first
        assert found.descent[1, k] == descended(drawn[1][k], maps, accuracy=0.8)[0]
        assert found.direct_descent[k] == descended(drawn[1][k], network.maps, accuracy=0.8)[0]
    assert len(set(found.descent[1])) > 10  # resamplings differ


def test_stops_are_compared_on_the_same_resamplings(recorded):
    ground, drawn, network = recorded
    found = ground.replica_steps([0], [[3], [12]], 0.8)
    assert found.shape == (2, 2, 24)
    for row, steps in enumerate((3, 12)):
        assert (found[row, 0] == steps).all()
        for k in range(SHOWN):
            _, maps = descended(drawn[0][k], network.maps, steps)
            assert found[row, 1, k] == descended(drawn[1][k], maps, accuracy=0.8)[0]


def test_stops_of_several_stages_may_be_left_out(recorded):
    ground, drawn, network = recorded
    lengths = [[0, 4], [1, 0], [2, 3]]
    found = ground.replica_steps([0, 0], lengths, 0.8)
    assert found.shape == (3, 3, 100)
    for row, steps in enumerate(lengths):
        assert (found[row, :2] == np.array(steps)[:, None]).all()
        for k in range(SHOWN):
            _, maps = descended(drawn[0][k], network.maps, sum(steps))
            assert found[row, 2, k] == descended(drawn[1][k], maps, accuracy=0.8)[0]


def flowed(statistics, maps, accuracy):
    """Steps of the flow until so accurate, by another solver, and where it ends."""
    (power, cross), shapes = statistics, [one.shape for one in maps]
    best = cross @ np.linalg.inv(power)

    def cut(flat):
        return flat[: maps[0].size].reshape(shapes[0]), flat[maps[0].size :].reshape(shapes[1])

    def excess(_, flat):
        gap = cut(flat)[1] @ cut(flat)[0] - best
        return np.trace(gap @ power @ gap.T) / 2 - (1 - accuracy) ** 2 * np.trace(best @ power @ best.T) / 2

    def slope(_, flat):
        first, second = cut(flat)
        error = second @ first @ power - cross
        return -np.concatenate([(second.T @ error).ravel(), (error @ first.T).ravel()])

    excess.terminal = True
    begin = np.concatenate([one.ravel() for one in maps])
    run = solve_ivp(slope, (0.0, 1e3), begin, rtol=1e-9, atol=1e-11, events=excess)
    return run.t[-1] / RATE, cut(run.y[:, -1])


def test_every_resampling_takes_the_steps_of_its_own_flow(recorded, monkeypatch):
    _, drawn, network = recorded
    pool = [trials("first", 1.5, 1), trials("goal", 1.0, 2)]
    assert len(lc.planning.method_for(pool, network, RATE, method="flow").replicas) == 40
    monkeypatch.setattr(linear, "REPLICAS", {True: 100, False: 2})
    ground = lc.planning.method_for(pool, network, RATE, method="flow")
    found = ground.replicated([0, 1], [(0.5, None), (0.8, None)])
    assert found.flow.shape == found.descent.shape == (2, 2)
    assert np.isnan(found.descent).all()
    for k in range(2):
        first, maps = flowed(drawn[0][k], network.maps, 0.5)
        # flows that are searched are integrated to 1e-6 a step
        assert found.flow[0, k] == pytest.approx(first, rel=1e-4)
        assert found.flow[1, k] == pytest.approx(flowed(drawn[1][k], maps, 0.8)[0], rel=1e-4)
        assert found.direct[k] == pytest.approx(flowed(drawn[1][k], network.maps, 0.8)[0], rel=1e-4)


def test_what_runs_away_in_a_first_stage_never_learns():
    pool = [trials("first", 1.5, 1), trials("goal", 1.0, 2)]
    network = lc.LinearRNN(np.full((3, 2), 0.4), DECAY * np.eye(3), np.full((2, 3), 0.3))
    ground = lc.planning.method_for(pool, network, 1e18, method="pooled")
    for rule in ((0.5, None), (None, 40.0)):
        assert np.isinf(ground.replicated([0, 1], [rule, (0.8, None)]).descent[1]).all()
    assert np.isinf(ground.replica_steps([0], [[40]], 0.8)[:, 1]).all()


def test_resampled_modes_are_counted_to_a_step(monkeypatch):
    """A step more or less is nothing to an interval; to be sure of it all steps would have to be taken."""
    rng, asked = np.random.default_rng(8), []
    pool = []
    for name, slope in (("first", 2.0), ("goal", 1.0)):
        x = rng.normal(size=200)
        pool.append(lc.Task.from_samples(x[:, None, None], slope * x[:, None] + rng.normal(size=(200, 1)), name=name))
    start = lc.LinearRNN.aligned(recurrence=0.5, initial=0.01, hidden_size=1, task=pool[1])
    ground = lc.planning.ground_for(pool, start, learning_rate=2e-4)
    problems, plainly = ground.replica_problems([0, 1]), Problem.steps_to

    def counted(self, weights, *rest, precise=True, **options):
        asked.append(precise)
        return plainly(self, weights, *rest, precise=precise, **options)

    monkeypatch.setattr(Problem, "steps_to", counted)
    found = ground.replicated([0, 1], [(0.5, None), (0.9, None)])
    assert asked == [False, False, False]
    rows = np.broadcast_to(ground.start, (len(found.direct), *ground.start.shape))
    first, ends = problems[0].steps_to(rows, problems[0].within(0.5), 2e-4)
    second, _ = problems[1].steps_to(ends, problems[1].within(0.1), 2e-4)
    direct, _ = problems[1].steps_to(rows, problems[1].within(0.1), 2e-4)
    assert np.abs(found.descent - [first, second]).max() <= 1
    assert np.abs(found.direct_descent - direct).max() <= 1
    assert direct.min() > 10_000  # of so many
    timed = ground.replicated([0, 1], [(None, 5000.0), (0.9, None)])
    after = problems[0].advance(rows, [5000], 2e-4)[0]
    assert np.abs(timed.descent[1] - problems[1].steps_to(after, problems[1].within(0.1), 2e-4)[0]).max() <= 1
