"""Composed tasks: the sum of parts on shared or separate inputs, with modes that are turned towards each other."""

import numpy as np
import pytest

import learncast as lc


def parts(rng, outputs=2, inputs=2, noise=0.2):
    maps = [rng.standard_normal((outputs, inputs)) for _ in range(2)]
    tasks = [
        lc.tasks.static(m, target_correlation=m @ m.T + noise * np.eye(outputs), name=f"part {k}")
        for k, m in enumerate(maps)
    ]
    return maps, tasks


def moments(task):
    """E[x x^T], E[y x^T] and E[y y^T] of a task of one step."""
    x, c, y = task.input_covariance.dense(), task.cross_covariance.dense(), task.target_covariance.dense()
    return x[0, :, 0, :], c[0, :, 0, :].T, y[0, :, 0, :]


@pytest.mark.parametrize("inputs", ["shared", "separate"])
def test_the_statistics_are_those_of_targets_that_are_added_up(inputs):
    rng, turn = np.random.default_rng(0), np.deg2rad(35)
    (one, two), tasks = parts(rng)
    made = lc.tasks.composed(tasks, inputs=inputs, angle=35.0, strengths=[1.5, 0.8])
    Q = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    if inputs == "shared":
        maps = [1.5 * one, 0.8 * two @ Q.T]
    else:
        zero = np.zeros((2, 2))
        maps = [1.5 * np.hstack([one, zero]), 0.8 * np.hstack([np.sin(turn) * two, np.cos(turn) * two])]
    noise = 0.2 * np.eye(2)
    for task, total, variance in (
        (made.target, sum(maps), 1.5**2 + 0.8**2),
        (made.parts[0], maps[0], 1.5**2),
        (made.parts[1], maps[1], 0.8**2),
    ):
        power, cross, target = moments(task)
        np.testing.assert_allclose(power, np.eye(total.shape[1]), atol=1e-14)
        np.testing.assert_allclose(cross, total, atol=1e-14)
        np.testing.assert_allclose(target, total @ total.T + variance * noise, atol=1e-13)
        least = lc.forecast(task, lc.TwoLayer.random(task.inputs, 3, 2, scale=0.5), learning_rate=1e-2).method
        assert least.least_loss(0) == pytest.approx(variance * 0.2, rel=1e-12)


@pytest.mark.parametrize("angle", [0.0, 30.0, 60.0, 90.0])
def test_overlap_is_the_sine_of_the_angle_between_separate_inputs(angle):
    tasks = [lc.tasks.static([[1.0], [0.0]]), lc.tasks.static([[0.0], [2.0]])]
    made = lc.tasks.composed(tasks, inputs="separate", angle=angle)
    overlap = np.sin(np.deg2rad(angle))
    np.testing.assert_allclose(made.overlap, [[1, overlap], [overlap, 1]], atol=1e-14)


def test_parts_of_several_steps_are_added_up():
    tasks = [lc.tasks.integration(steps=6, target_strength=[s, 0.5]) for s in (1.0, 2.0)]
    made = lc.tasks.composed(tasks, name="both")
    assert (made.target.name, made.target.steps, made.target.inputs) == ("both", 6, 2)
    total = sum(task.cross_covariance.dense() for task in tasks)
    np.testing.assert_allclose(made.target.cross_covariance.dense(), total)
    separate = lc.tasks.composed(tasks, inputs="separate", angle=20.0).target
    assert separate.inputs == 4
    network = lc.LinearRNN.random(4, 4, 2, scale=0.1, recurrence=0.9)
    assert np.isfinite(lc.forecast(separate, network, learning_rate=1e-3, goal=0.8).steps.descent)


def test_parts_that_do_not_interfere_are_best_learned_together():
    tasks = [lc.tasks.static([[1.0], [0.0]], name="one"), lc.tasks.static([[0.0], [0.7]], name="two")]
    for angle, helps in ((0.0, False), (80.0, True)):
        made = lc.tasks.composed(tasks, inputs="separate", angle=angle)
        network = lc.TwoLayer.random(2, 6, 2, scale=0.1, rng=1)
        plan = lc.plan(made.target, made.parts, network, learning_rate=0.02)
        assert (plan.best.total.descent < plan.direct.descent) == helps


def test_a_part_alone_leaves_separate_modes_behind():
    # While a part trains alone, the modes of the other have no target and can only shrink, in flow and in descent.
    tasks = [lc.tasks.static([[1.0], [0.0]]), lc.tasks.static([[0.0], [0.7]])]
    made = lc.tasks.composed(tasks, inputs="separate")
    network = lc.Deep.aligned((2, 2), task=made.target, initial=0.3)
    direct = lc.forecast(made.target, network, learning_rate=0.01, goal=0.95).steps.descent
    for part in made.parts:
        for stop in (0.2, 0.6, 0.95):
            curriculum = lc.follow([lc.Stage(part, stop), lc.Stage(made.target, 0.95)], network, learning_rate=0.01)
            assert curriculum.total.descent >= direct


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parts": []}, "parts"),
        ({"inputs": "mixed"}, "inputs"),
        ({"angle": 1e9}, "angle"),
        ({"strengths": [1.0, 2.0, 3.0]}, "strengths"),
        ({"parts": [lc.tasks.static([[1.0]]), lc.tasks.static([[1.0, 0.0]])]}, "parts"),
        ({"parts": [lc.tasks.static([[1.0]]), lc.tasks.static([[1.0]], [[2.0]])]}, "parts"),
        ({"parts": [lc.tasks.static([[1.0]]), lc.tasks.static([[1.0]], [[2.0]])], "inputs": "separate", "angle": 5.0},
         "angle"),
        ({"parts": [lc.tasks.static([[1.0, 0.0]], np.diag([1.0, 2.0]))] * 2, "angle": 5.0}, "parts"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(change, field):
    given = {"parts": [lc.tasks.static([[1.0]])] * 2, **change}
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.tasks.composed(given.pop("parts"), **given)
    assert caught.value.field == field


def test_a_part_without_targets_overlaps_with_nothing():
    tasks = [lc.tasks.static([[1.0], [0.0]]), lc.tasks.static([[0.0], [0.0]])]
    made = lc.tasks.composed(tasks, inputs="separate", angle=45.0)
    np.testing.assert_array_equal(made.overlap, [[1, 0], [0, 0]])


def test_a_sum_of_recorded_parts_says_what_it_leaves_out():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((50, 4, 2))
    noise = rng.standard_normal((50, 1))
    tasks = [lc.Task.from_samples(inputs, inputs[:, -1, k : k + 1] + noise, name=f"part {k}") for k in range(2)]
    made = lc.tasks.composed(tasks)
    assert made.target.recorded_trials is None
    whole = lc.Task.from_samples(inputs, inputs[:, -1].sum(axis=1, keepdims=True) + 2 * noise)
    # The noise of both parts is the same, which covariances of the parts do not show: 4 instead of 2 times its power.
    assert made.target.target_power < 0.8 * whole.target_power
    assert len(made.remarks) == 1
    assert lc.tasks.composed(parts(rng)[1]).remarks == ()
