"""What every Solution owes its user. A new kind of solution joins by adding a maker to MAKERS."""

import numpy as np
import pytest

import learncast as lc


def one_mode():
    return lc.tasks.integration(steps=50), lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=10), 1e-3


def from_above():
    task = lc.tasks.leaky_integration(steps=20, timescale=10.0, correlation=0.5)
    return task, lc.LinearRNN.aligned(recurrence=0.9, initial=1.3, hidden_size=5), 1e-3


def unbalanced_modes():
    task = lc.tasks.leaky_integration(
        steps=8,
        timescale=[3.0, 6.0, 12.0],
        correlation=[0.0, 0.3, 0.6],
        mixing=np.diag([1.4, 1.0, 0.6]),
    )
    network = lc.LinearRNN.aligned(
        recurrence=[0.9, 0.8, 0.7], initial=[0.2, 0.1, 0.5], output_initial=[0.1, 0.3, 0.5], hidden_size=6, task=task
    )
    return task, network, 5e-3


def through_zero():
    task = lc.tasks.integration(steps=5, input_strength=1.5)
    # a c = -.08 must pass zero to reach the positive optimum, which the imbalance lets it do
    return task, lc.LinearRNN([[0.4], [0.0]], np.diag([0.8, 0.8]), [[-0.2, 0.0]]), 1e-2


def every_step_rotated():
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (3, 2))
    task = lc.tasks.leaky_integration(
        steps=6, timescale=4.0, mixing=left[:, :2] @ np.diag([1.3, 0.7]) @ right.T, targets="every_step"
    )
    network = lc.LinearRNN.aligned(
        recurrence=[0.85, 0.6], initial=[0.2, 0.3], output_initial=[0.3, 0.1], hidden_size=7, task=task
    )
    return task, network, 5e-3


def empirical():
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(200, 4, 1)).cumsum(axis=1)
    targets = inputs[:, :, 0] @ [0.1, 0.2, 0.3, 0.4] + 0.1 * rng.normal(size=200)
    task = lc.Task.from_samples(inputs, targets[:, None])
    return task, lc.LinearRNN.aligned(recurrence=0.7, initial=0.1, hidden_size=3), 2e-3


MAKERS = [one_mode, from_above, unbalanced_modes, through_zero, every_step_rotated, empirical]
KEY = "curriculum2025"


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__)
def made(request):
    task, network, learning_rate = request.param()
    return task, network, learning_rate, lc.solve(task, network, learning_rate=learning_rate)


@pytest.fixture
def times(made):
    """Steps on the scale of this solution: from 0 to well after it has learned."""
    learned = lc.time_to_learn(made[-1], 0.99).flow_steps
    assert np.isfinite(learned)
    return learned * np.array([0.0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 3.0])


def weights(network):
    return np.asarray(network.input_weights), np.asarray(network.output_weights)


def loss_gradient(task, network):
    """Gradient of half the mean squared error in W_x and W_y from Cov(x, x') and Cov(x, y), readout by readout.

    y_r = sum_t W_y W_h^(r-t) W_x x_t, so with K_t = W_h^(r-t):
    dL/dW_y = sum_t (sum_s W_y K_s W_x C_st - Cov(y, x_t)) (K_t W_x)^T, and alike for W_x.
    """
    w_in, w_out = weights(network)
    inputs, cross = np.asarray(task.input_covariance), np.asarray(task.cross_covariance)
    steps, readouts = cross.shape[0], cross.shape[2]
    d_in, d_out = np.zeros_like(w_in), np.zeros_like(w_out)
    for readout in range(readouts):
        end = steps - readouts + readout
        powers = [np.linalg.matrix_power(network.recurrent_weights, end - t) for t in range(end + 1)]
        for t, power in enumerate(powers):
            error = sum(w_out @ powers[s] @ w_in @ inputs[s, :, t] for s in range(end + 1)) - cross[t, :, readout].T
            d_out += error @ (power @ w_in).T
            d_in += (w_out @ power).T @ error
    return d_in, d_out


def test_at_zero_it_is_the_start(made):
    _, network, _, solution = made
    for found, given in zip(weights(solution.network_at(0)), weights(network), strict=True):
        # the frame of the modes and back: two products with orthogonal matrices
        np.testing.assert_allclose(found, given, rtol=0, atol=1e-13)
    start = solution.at(0)
    product = np.linalg.svd(weights(network)[1] @ weights(network)[0], compute_uv=False)
    strengths = np.sort(np.abs(np.asarray(start["strength"]).ravel()))[::-1]
    np.testing.assert_allclose(strengths, product[: strengths.size], rtol=1e-12)


def test_recurrent_weights_are_left_alone(made, times):
    _, network, _, solution = made
    found = solution.network_at(float(times[5])).recurrent_weights
    # W_h is not trained; it may pass through the modes' frame
    np.testing.assert_allclose(found, network.recurrent_weights, rtol=0, atol=1e-13)


def test_at_infinity_it_is_the_optimum(made):
    task, network, _, solution = made
    limit, at_infinity = solution.limit(), solution.at(np.inf)
    for name in at_infinity.dataset.data_vars:
        np.testing.assert_array_equal(np.asarray(limit[name]), np.asarray(at_infinity[name]))
    np.testing.assert_allclose(np.ravel(limit["strength"]), lc.modes(task, network).optimum, rtol=1e-12)
    loss = np.ravel(solution.at(0)["loss"])[0]
    assert abs(np.ravel(limit["excess_loss"])[0]) <= 1e-12 * loss
    # nothing is left of the gradient: 1e-11 of what it was at the start, or of the covariance it balances
    scale = max(np.abs(g).max() for g in loss_gradient(task, network)) + np.abs(np.asarray(task.cross_covariance)).max()
    for gradient in loss_gradient(task, solution.network_at(np.inf)):
        assert np.abs(gradient).max() <= 1e-11 * scale


def test_late_is_infinity(made, times):
    solution = made[-1]
    # 3 learning times to 99% leave less than 1e-6 in one mode; 30 of them nothing
    late, limit = solution.at(30 * times[7]), solution.limit()
    np.testing.assert_allclose(np.ravel(late["strength"]), np.ravel(limit["strength"]), rtol=1e-10)


def test_many_times_are_one_at_a_time(made, times):
    solution = made[-1]
    # out of order and with a repetition: each time stands for itself
    ask = np.concatenate([times[::-1], times[3:4], [np.inf]])
    many = solution.at(ask)
    np.testing.assert_array_equal(many["time"], ask)
    for i, time in enumerate(ask):
        one = solution.at(float(time))
        assert set(one.dataset.data_vars) == set(many.dataset.data_vars)
        for name in many.dataset.data_vars:
            # elementwise formulas; vectorised exp may differ in the last digit, and the excess loss by a cancellation
            scale = np.abs(np.asarray(many[name])).max()
            np.testing.assert_allclose(
                np.ravel(np.asarray(many[name])[i]), np.ravel(one[name]), rtol=1e-13, atol=1e-15 * scale
            )


def test_trajectory_and_network_agree(made, times):
    solution = made[-1]
    found = solution.at(times)
    for i, time in enumerate(times):
        w_in, w_out = weights(solution.network_at(float(time)))
        for name, given in (("input_weight", w_in), ("output_weight", w_out)):
            listed = np.sort(np.abs(np.asarray(found[name])[i]))[::-1]
            singular = np.linalg.svd(given, compute_uv=False)[: listed.size]
            # numbers of order 1 through a singular value decomposition
            np.testing.assert_allclose(listed, singular, rtol=0, atol=1e-12)
        product = np.asarray(found["input_weight"])[i] * np.asarray(found["output_weight"])[i]
        np.testing.assert_allclose(product, np.asarray(found["strength"])[i], rtol=1e-12, atol=1e-15)


def test_derivative_is_the_vector_field(made, times):
    """d(weights)/d(step) = -learning_rate dL/d(weights), by a fourth-order difference.

    With h = 1e-2 of the fastest time scale the difference is right to h^4 = 1e-8 times a constant, and its roundings
    are 1e-16 / h = 1e-14: 1e-6 of the largest slope has room for the constant.
    """
    task, network, learning_rate, solution = made
    modes = lc.modes(task, network)
    size = np.hypot(2 * np.maximum(np.abs(modes.start), np.abs(modes.optimum)), modes.imbalance)
    h = 1e-2 / (learning_rate * np.max(modes.weighted_input * size))
    for time in (*times[1:8],):
        assert time > 2 * h
        around = [weights(solution.network_at(float(time + k * h))) for k in (-2, -1, 1, 2)]
        gradient = loss_gradient(task, solution.network_at(float(time)))
        for which in (0, 1):
            two, one, plus, plus_two = (w[which] for w in around)
            slope = (two - 8 * one + 8 * plus - plus_two) / (12 * h)
            field = -learning_rate * gradient[which]
            assert np.abs(slope - field).max() <= 1e-6 * max(np.abs(field).max(), np.abs(slope).max()) + 1e-13 / h


def test_loss_never_rises(made, times):
    solution = made[-1]
    loss = np.asarray(solution.at(np.append(np.linspace(0, times[-1], 200), np.inf))["loss"])
    assert np.all(np.isfinite(loss))
    # equal at the end to rounding of the loss itself
    assert np.all(np.diff(loss) <= 1e-14 * loss[0])
    assert loss[-1] < loss[0]


def test_loss_is_excess_over_a_constant_floor(made, times):
    found = made[-1].at(np.append(times, np.inf))
    floor = np.asarray(found["loss"]) - np.asarray(found["excess_loss"])
    np.testing.assert_allclose(floor, floor[-1], rtol=0, atol=1e-13 * np.abs(found["loss"]).max())
    assert np.all(np.asarray(found["excess_loss"]) >= 0)


def test_going_on_is_going_straight(made, times):
    task, _, learning_rate, solution = made
    half = float(times[4])
    again = lc.solve(task, solution.network_at(half), learning_rate=learning_rate)
    for later in (0.1 * half, half, 3 * half):
        on, straight = weights(again.network_at(later)), weights(solution.network_at(half + later))
        # the second solution starts from rounded weights, which the flow may spread by the e-foldings left: < 1e4
        for a, b in zip(on, straight, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-11)


def test_save_and_load(made, times, tmp_path):
    found = made[-1].at(np.append(times, np.inf))
    path = tmp_path / "trajectory.nc"
    found.save(path)
    again = lc.Trajectory.load(path)
    assert again.dataset.identical(found.dataset)
    for name in found.dataset.variables:
        assert again.dataset[name].attrs == found.dataset[name].attrs
    assert repr(again) == repr(found)
    # only what was asked for is left behind
    assert [p.name for p in tmp_path.iterdir()] == ["trajectory.nc"]


def test_citation_names_its_source(made):
    assert KEY in made[-1].citation()


def test_assumptions_are_measured(made):
    solution = made[-1]
    names = {assumption.name for assumption in solution.assumptions}
    assert {"static_geometry", "aligned_input_covariance", "normal_recurrence", "aligned_start"} <= names
    assert all(np.isfinite(assumption.measured) and assumption.holds for assumption in solution.assumptions)
    assert solution.forecast_class == "exact"


@pytest.mark.parametrize("bad", [-1.0, [0.0, -1e-9], np.nan, [1.0, np.nan], -np.inf, [[0.0, 1.0]], "soon", None])
def test_bad_times_are_refused(made, bad):
    with pytest.raises(lc.InvalidSpec):
        made[-1].at(bad)


@pytest.mark.parametrize("bad", [-1.0, np.nan, "soon"])
def test_bad_time_of_a_network_is_refused(made, bad):
    with pytest.raises(lc.InvalidSpec):
        made[-1].network_at(bad)
