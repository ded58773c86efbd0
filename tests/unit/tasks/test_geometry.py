"""The common frame of tasks, and the conditions of the theory measured in it."""

import numpy as np
import pytest

from learncast import AssumptionViolated, LinearRNN, Task, tasks
from learncast.networks import Alignment
from learncast.tasks import Frame, common_frame
from learncast.theory import ASSUMPTIONS, Assumption, require, worst
from learncast.theory import assumptions as conditions

#: Orthonormality of a few Householder and Gram-Schmidt steps.
ORTHONORMAL = 1e-13


def turn(size, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def assert_orthonormal(frame, inputs, outputs):
    assert frame.inputs.shape == (inputs, inputs)
    assert frame.outputs.shape == (outputs, outputs)
    np.testing.assert_allclose(frame.inputs.T @ frame.inputs, np.eye(inputs), atol=ORTHONORMAL)
    np.testing.assert_allclose(frame.outputs.T @ frame.outputs, np.eye(outputs), atol=ORTHONORMAL)
    assert frame.modes == min(inputs, outputs)


def mixing_with(singular_values, outputs, inputs, seed=0):
    pattern = np.zeros((outputs, inputs))
    np.fill_diagonal(pattern, singular_values)
    return turn(outputs, seed) @ pattern @ turn(inputs, seed + 1).T


SPECTRA = {
    "distinct": ([3.0, 2.0, 1.0], 3, 3),
    "degenerate": ([2.0, 2.0, 1.0], 3, 3),
    "all equal": ([1.0, 1.0, 1.0], 3, 3),
    "rank deficient": ([2.0, 1.0, 0.0], 3, 3),
    "rank one": ([2.0, 0.0, 0.0], 3, 3),
    "nothing": ([0.0, 0.0, 0.0], 3, 3),
    "more inputs": ([3.0, 1.0], 2, 4),
    "more outputs": ([3.0, 1.0], 4, 2),
    "more inputs, rank one": ([1.0, 0.0], 2, 5),
    "more outputs, degenerate": ([1.0, 1.0], 5, 2),
    "tiny": ([3e-9, 2e-9, 1e-9], 3, 3),
    "steep": ([1.0, 1e-6, 1e-12], 3, 3),
}


@pytest.mark.parametrize("targets", ["end", "every_step"])
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_frame_is_orthonormal_and_separates_the_modes(spectrum, targets):
    values, outputs, inputs = SPECTRA[spectrum]
    task = tasks.leaky_integration(4, 3.0, mixing=mixing_with(values, outputs, inputs), targets=targets)
    frame = common_frame([task])
    assert_orthonormal(frame, inputs, outputs)
    # Directions come from squares, so a mode of 1e-6 is separated from the rest to 1e-16 / 1e-6.
    assert conditions.static_geometry(task, frame).measured < 2e-10
    assert conditions.aligned_input_covariance(task, frame).measured < 1e-12
    diagonal = task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal()
    strengths = diagonal.sum(axis=(1, 2))
    scale = tasks.leaky_integration(4, 3.0, targets=targets).cross_covariance.dense().sum()
    # strongest first; singular values to the precision of an eigenvalue of their square, relative to the largest
    np.testing.assert_allclose(strengths / scale, sorted(values, reverse=True), atol=1e-8 * max(values))
    assert (strengths >= -1e-12 * scale).all()  # output directions are signed so that modes are positive


def test_a_network_decides_directions_of_equal_strength():
    task = tasks.integration(4, mixing=np.eye(3))
    chosen = mixing_with([0.3, 0.2, 0.1], 3, 3, seed=4)
    frame = common_frame([task], maps=[chosen.T @ chosen])  # the task pairs each input with itself
    rotated = frame.outputs.T @ chosen.T @ chosen @ frame.inputs
    np.testing.assert_allclose(rotated, np.diag([0.09, 0.04, 0.01]), atol=1e-13)


def test_other_tasks_decide_directions_of_equal_strength():
    first = tasks.integration(4, mixing=np.eye(2))
    second = tasks.integration(4, mixing=turn(2, 3) @ np.diag([2.0, 1.0]) @ turn(2, 3).T)
    frame = common_frame([first, second])
    for task in (first, second):
        assert conditions.static_geometry(task, frame).measured < 1e-12


def test_the_input_covariance_decides_directions_without_strength():
    left = turn(2, 8)
    covariance = np.einsum("ts,nm->tnsm", np.eye(3), left @ np.diag([2.0, 1.0]) @ left.T)
    cross = np.einsum("tnsm,mo->tno", covariance, 0.0 * np.eye(2))
    task = Task(covariance, cross)
    frame = common_frame([task])
    assert_orthonormal(frame, 2, 2)
    assert conditions.aligned_input_covariance(task, frame).measured < 1e-12


def test_the_next_task_decides_directions_that_the_first_lacks():
    first = tasks.integration(4, mixing=np.diag([2.0, 0.0, 0.0]))
    inner = turn(2, 2) @ np.diag([3.0, 1.0]) @ turn(2, 5).T
    mixing = np.zeros((3, 3))
    mixing[0, 0], mixing[1:, 1:] = 0.5, inner
    second = tasks.integration(4, mixing=mixing)
    frame = common_frame([first, second])
    assert_orthonormal(frame, 3, 3)
    assert conditions.static_geometry(second, frame).measured < 1e-12
    np.testing.assert_allclose(np.abs(frame.inputs[:, 0]), [1.0, 0.0, 0.0], atol=1e-12)


def test_a_target_of_the_opposite_sign_shares_the_frame():
    first, second = tasks.integration(4), tasks.integration(4, target_strength=-1.0)
    frame = common_frame([first, second])
    cross = [
        task.cross_covariance.rotated(frame.mode_inputs, frame.mode_outputs).diagonal() for task in (first, second)
    ]
    np.testing.assert_allclose(cross[1], -cross[0])
    assert (cross[0] > 0).all()


@pytest.mark.parametrize("strengths", [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
def test_a_rotated_task_has_a_rotated_frame(strengths):
    left, right = turn(3, 1), turn(3, 2)
    task = tasks.integration(4, strengths)
    turned = Task(
        task.input_covariance.rotated(left.T, left.T),
        task.cross_covariance.rotated(left.T, right.T),
        task.target_covariance.rotated(right.T, right.T),
    )
    frame = common_frame([turned])
    assert_orthonormal(frame, 3, 3)
    assert conditions.static_geometry(turned, frame).measured < 1e-12
    assert conditions.aligned_input_covariance(turned, frame).measured < 1e-12


@pytest.mark.parametrize(("channels", "seed"), [(2, 0), (8, 0), (8, 1), (16, 0), (16, 1)])
def test_equal_channels_given_one_by_one_are_as_exact_as_one_number(channels, seed):
    turned = turn(channels, seed)
    start = LinearRNN(0.1 * np.diag(np.arange(1, channels + 1)) @ turned.T, 0.9 * np.eye(channels), 0.1 * turned)
    map_ = start.output_weights @ start.input_weights  # any rotation suits a task with equal channels
    for strength in (1.0, [1.0] * channels):
        task = tasks.integration(4, strength, mixing=np.eye(channels))
        frame = common_frame([task], maps=[map_])
        assert conditions.static_geometry(task, frame).measured < 1e-12
        assert conditions.aligned_input_covariance(task, frame).measured < 1e-12


def test_any_task_gets_an_orthonormal_frame():
    rng = np.random.default_rng(3)
    for _ in range(20):
        inputs, outputs = rng.integers(1, 6, size=2)
        samples = rng.normal(size=(40, 4, inputs))
        targets = rng.normal(size=(40, 4, outputs))
        task = Task.from_samples(samples, targets)
        assert_orthonormal(common_frame([task], maps=[rng.normal(size=(outputs, inputs))]), inputs, outputs)


# --- the conditions, measured ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", [0.0, 1e-3, 0.1, 0.7])
def test_the_mismatch_of_a_rotated_task_is_the_sine_of_its_angle(angle):
    first = tasks.integration(4, mixing=np.diag([2.0, 1.0]))
    c, s = np.cos(angle), np.sin(angle)
    second = tasks.integration(4, mixing=np.array([[c, -s], [s, c]]) @ np.diag([2.0, 1.0]))
    frame = common_frame([first, second])
    # |off-diagonal| = sqrt((2 s)^2 + s^2) of |all| = sqrt(5)
    assert conditions.static_geometry(second, frame).measured == pytest.approx(abs(s), abs=1e-12)
    assert conditions.static_geometry(first, frame).measured < 1e-12


def test_a_geometry_that_turns_within_the_trial_is_measured():
    # At step 0 the input drives output 0 with strength 2, at step 1 output 1 with strength 1.
    cross = np.zeros((2, 1, 2))
    cross[0, 0, 0], cross[1, 0, 1] = 2.0, 1.0
    task = Task(np.eye(2).reshape(2, 1, 2, 1), cross)
    frame = common_frame([task])
    assert conditions.static_geometry(task, frame).measured == pytest.approx(1 / np.sqrt(5), rel=1e-12)


@pytest.mark.parametrize("overlap", [0.0, 1e-6, 0.25])
def test_inputs_that_co_vary_between_modes_are_measured(overlap):
    channels = np.array([[1.0, overlap], [overlap, 1.0]])
    covariance = np.einsum("ts,nm->tnsm", np.eye(3), channels)
    task = Task(covariance, np.broadcast_to(np.diag([2.0, 1.0]), (3, 2, 2)))
    frame = Frame(np.eye(2), np.eye(2))
    expected = np.sqrt(2) * overlap / np.sqrt(2 + 2 * overlap**2)
    assert conditions.aligned_input_covariance(task, frame).measured == pytest.approx(expected, abs=1e-15)
    assert conditions.aligned_input_covariance(task, frame).holds == (overlap == 0.0)


def test_inputs_beyond_the_modes_may_co_vary_among_themselves():
    channels = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.5, 1.0]])
    task = Task(np.einsum("ts,nm->tnsm", np.eye(3), channels), np.broadcast_to(np.array([[1.0], [0], [0]]), (3, 3, 1)))
    frame = common_frame([task])
    assert conditions.aligned_input_covariance(task, frame).measured < 1e-15


@pytest.mark.parametrize(
    ("initial", "output_initial", "expected"),
    [(0.1, 0.1, 0.0), (0.1, -0.1, 0.0), (0.2, 0.1, 0.6), (0.2, 0.0, 1.0), (0.0, 0.0, 0.0)],
)
def test_imbalance_is_measured_and_accepted(initial, output_initial, expected):
    task = tasks.integration(4)
    network = LinearRNN.aligned(hidden_size=3, initial=initial, output_initial=output_initial)
    measured = conditions.balanced_start(Alignment.of(network, common_frame([task])))
    assert measured.measured == pytest.approx(expected, abs=1e-12)
    require([measured])


def test_the_learning_rate_is_measured_against_the_sharpest_curvature():
    measured = conditions.stable_learning_rate(0.1, np.array([3.0, 25.0]))
    assert measured.measured == pytest.approx(2.5)
    assert not measured.holds
    assert conditions.stable_learning_rate(0.1, np.array([20.0])).holds  # 2 is the limit itself
    with pytest.raises(AssumptionViolated) as caught:
        require([measured])
    assert caught.value.assumption == "stable_learning_rate"
    assert caught.value.measured == pytest.approx(2.5)


def test_the_first_condition_that_fails_is_raised():
    fails = [Assumption("aligned_start", 0.2), Assumption("static_geometry", 0.5)]
    with pytest.raises(AssumptionViolated) as caught:
        require([Assumption("normal_recurrence", 0.0), *fails])
    assert (caught.value.assumption, caught.value.measured, caught.value.allowed) == ("aligned_start", 0.2, 1e-8)


def test_an_unknown_measurement_does_not_hold():
    assert not Assumption("aligned_start", float("nan")).holds


def test_the_worst_of_several_measurements_is_kept():
    groups = [
        [Assumption("aligned_start", 0.1), Assumption("static_geometry", 0.3)],
        [Assumption("static_geometry", 0.2), Assumption("aligned_start", float("nan"))],
    ]
    measured = {a.name: a.measured for a in worst(groups)}
    assert list(measured) == ["aligned_start", "static_geometry"]
    assert measured["static_geometry"] == 0.3
    assert np.isnan(measured["aligned_start"])  # unknown is worse than any number


def test_every_condition_says_what_it_requires_and_what_to_do():
    for name, condition in ASSUMPTIONS.items():
        assert name.isidentifier()
        assert condition.allowed > 0
        assert all(len(text) > 5 for text in (condition.requires, condition.otherwise, condition.remedy))
