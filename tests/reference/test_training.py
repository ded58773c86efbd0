"""Real training: backpropagation through time in torch, in float64, against the theory.

The batches have exactly the task's second moments (an orthogonal design times a factor of the joint covariance), so
the gradient of a batch is the population gradient and what remains between training and theory is the step size.
"""

import functools

import numpy as np
import pytest
import torch

import learncast as lc
from learncast.theory import modes as modes_of_one


@pytest.fixture(autouse=True)
def one_thread():
    """Matrices of 8 x 8: on a busy machine torch's threads wait for one another up to 50 times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def orthogonal(rng, n):
    q, r = np.linalg.qr(rng.normal(size=(n, n)))
    return q * np.sign(np.diag(r))


def joint_covariance(task):
    """Cov of (x_1 .. x_T, y_1 .. y_R), everything written out."""
    inputs = np.asarray(task.input_covariance)
    cross = np.asarray(task.cross_covariance)
    steps, channels, readouts, outputs = cross.shape
    n, m = steps * channels, readouts * outputs
    across = cross.reshape(n, m)
    targets = np.asarray(task.target_covariance).reshape(m, m)
    return np.block([[inputs.reshape(n, n), across], [across.T, targets]])


def exact_batch(task, rng):
    """Inputs (P, T, N) and targets (P, R, M) whose second moments are the task's to rounding."""
    steps, channels, readouts, outputs = np.asarray(task.cross_covariance).shape
    values, vectors = np.linalg.eigh(joint_covariance(task))
    assert values.min() > -1e-12 * values.max()
    factor = vectors * np.sqrt(np.clip(values, 0, None))
    trials = factor.shape[0] + 5
    design = np.sqrt(trials) * np.linalg.qr(rng.normal(size=(trials, factor.shape[0])))[0]
    sample = design @ factor.T
    split = steps * channels
    return sample[:, :split].reshape(trials, steps, channels), sample[:, split:].reshape(trials, readouts, outputs)


def turned_inputs(task, rotation):
    """The same task with its input channels rotated: x -> Q x."""
    inputs = np.einsum("in,tnsm,jm->tisj", rotation, np.asarray(task.input_covariance), rotation)
    cross = np.einsum("in,tnrm->tirm", rotation, np.asarray(task.cross_covariance))
    targets = np.asarray(task.target_covariance)
    if cross.shape[2] == 1:
        return lc.Task(inputs, cross[:, :, 0], targets[0, :, 0], name="turned")
    return lc.Task(inputs, cross, targets, name="turned")


def hidden_rotation(network, rotation):
    """The same network in other hidden coordinates."""
    return lc.LinearRNN(
        rotation @ np.asarray(network.input_weights),
        rotation @ np.asarray(network.recurrent_weights) @ rotation.T,
        np.asarray(network.output_weights) @ rotation.T,
    )


@functools.cache
def case(name):
    """(task, network): three modes, rotated mixing, unbalanced starts, no axis left special."""
    rng = np.random.default_rng(sorted(CASES).index(name))
    left, right = orthogonal(rng, 4), orthogonal(rng, 3)
    if name.startswith("same channels"):
        # one filter for all channels: the mixing may have any singular vectors on both sides
        mixing = left[:, :3] @ np.diag([1.6, 1.1, 0.7]) @ right.T
        plain = lc.tasks.leaky_integration(
            steps=7, timescale=4.0, correlation=0.4, noise_strength=0.8, mixing=mixing, targets=CASES[name]
        )
        task = plain
    else:
        # a filter per channel: modes are the channels, until the inputs are turned
        mixing = left[:, :3] @ np.diag([1.5, 1.0, 0.8])
        plain = lc.tasks.leaky_integration(
            steps=7,
            timescale=[2.0, 5.0, 9.0],
            correlation=[0.0, 0.3, 0.6],
            noise_strength=[1.0, 0.7, 0.5],
            mixing=mixing,
            targets=CASES[name],
        )
        task = turned_inputs(plain, orthogonal(rng, 3))
    network = lc.LinearRNN.aligned(
        recurrence=[0.9, 0.7, 0.5],
        initial=[0.3, 0.1, 0.4],
        output_initial=[0.1, 0.25, 0.4],
        hidden_size=8,
        task=task,
    )
    return task, hidden_rotation(network, orthogonal(rng, 8))


CASES = {
    "same channels, end": "end",
    "same channels, every step": "every_step",
    "own channels, end": "end",
    "own channels, every step": "every_step",
}


def squared_error(weights, recurrent, inputs, targets):
    """Half the mean over trials of the squared error, by running the network."""
    w_in, w_out = weights
    state = torch.zeros(inputs.shape[0], recurrent.shape[0], dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    steps, readouts = inputs.shape[1], targets.shape[1]
    for t in range(steps):
        state = state @ recurrent.T + inputs[:, t] @ w_in.T
        readout = t - (steps - readouts)
        if readout >= 0:
            loss = loss + ((state @ w_out.T - targets[:, readout]) ** 2).sum() / 2
    return loss / inputs.shape[0]


def parameters(network):
    tensors = [torch.tensor(np.asarray(w)) for w in (network.input_weights, network.output_weights)]
    return [w.requires_grad_() for w in tensors], torch.tensor(np.asarray(network.recurrent_weights))


def train(network, batch, learning_rate, steps):
    """Yield the weights before each step of plain gradient descent by BPTT."""
    inputs, targets = (torch.tensor(x) for x in batch)
    weights, recurrent = parameters(network)
    optimizer = torch.optim.SGD(weights, lr=learning_rate)
    for step in range(steps + 1):
        yield step, weights[0].detach().numpy(), weights[1].detach().numpy()
        optimizer.zero_grad()
        squared_error(weights, recurrent, inputs, targets).backward()
        optimizer.step()


def steepest(task, network):
    """The largest curvature of a mode at its optimum, B sqrt(lambda^2 + 4 u*^2)."""
    modes = modes_of_one(task, network)
    return float(np.max(modes.weighted_input * np.hypot(2 * modes.optimum, modes.imbalance)))


@pytest.mark.parametrize("name", CASES)
def test_cases_are_inside_the_theory(name):
    task, network = case(name)
    found = lc.forecast(task, network, learning_rate=0.01 / steepest(task, network)).solution
    assert found.forecast_class == "exact"
    modes = modes_of_one(task, network)
    assert modes.start.shape == (3,)
    # unbalanced, or the test would say nothing about it; sorted because the theory does not fix the modes' order
    np.testing.assert_allclose(sorted(modes.start), [0.025, 0.03, 0.16], rtol=1e-12)
    np.testing.assert_allclose(sorted(modes.imbalance), [0.01 - 0.0625, 0.0, 0.08], rtol=1e-12, atol=1e-15)
    # and no weight is zero: nothing is aligned with an axis
    assert min(np.abs(w).min() for w in (network.input_weights, network.output_weights)) > 1e-5


@pytest.mark.equation("curriculum2025 Eq. (10)")
@pytest.mark.equation("curriculum2025 Eq. (39)")
@pytest.mark.parametrize("name", CASES)
def test_weighted_strengths_by_the_sums_themselves(name):
    """beta = sum over readouts r and t <= r of b^(r-t) s; and s itself is what the singular vectors make of Cov."""
    task, network = case(name)
    modes = modes_of_one(task, network)
    steps, readouts = modes.cross_strength.shape[1:]
    for mode, b in enumerate(modes.recurrence):
        cross = power = 0.0
        for readout in range(readouts):
            end = steps - readouts + readout
            for t in range(end + 1):
                cross += b ** (end - t) * modes.cross_strength[mode, t, readout]
                for s in range(end + 1):
                    power += b ** (2 * end - t - s) * modes.input_strength[mode, t, s]
        # sums of at most 7 x 49 terms of one sign or nearly: 1e-12 is thousands of roundings
        assert modes.weighted_cross[mode] == pytest.approx(cross, rel=1e-12)
        assert modes.weighted_input[mode] == pytest.approx(power, rel=1e-12)
    covariance = np.asarray(task.cross_covariance)
    for t in range(steps):
        for readout in range(readouts):
            singular = np.linalg.svd(covariance[t, :, readout], compute_uv=False)
            strengths = np.sort(np.abs(modes.cross_strength[:, t, readout]))[::-1]
            np.testing.assert_allclose(strengths, singular, rtol=1e-10, atol=1e-12)


@pytest.mark.equation("curriculum2025 Eq. (18)")
@pytest.mark.equation("curriculum2025 Eq. (19)")
@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_task_statistics_from_the_recursions(targets):
    """x = K x + w and y = A x as explicit matrices acting on white noise, one trial at a time."""
    steps, channels, outputs = 5, 3, 2
    timescale, correlation, noise, gain = [2.0, 4.0, 8.0], [0.0, 0.5, -0.3], [1.0, 2.0, 0.5], [1.0, 0.7, 1.3]
    mixing = np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.1]])
    task = lc.tasks.leaky_integration(steps, timescale, correlation, noise, gain, mixing=mixing, targets=targets)
    readouts = range(steps) if targets == "every_step" else [steps - 1]
    # every unit of noise in turn, so the responses to all of them give the covariances
    x_rows, y_rows = [], []
    for source in range(steps):
        for channel in range(channels):
            x = np.zeros((steps, channels))
            for t in range(steps):
                shock = np.sqrt(noise[channel]) if t == source else 0.0
                x[t, channel] = (correlation[channel] * x[t - 1, channel] if t else 0.0) + shock
            filtered = [
                [
                    sum(gain[i] * np.exp(-(r - t) / timescale[i]) * x[t, i] for t in range(r + 1))
                    for i in range(channels)
                ]
                for r in readouts
            ]
            x_rows.append(x.ravel())
            y_rows.append((np.array(filtered) @ mixing.T).ravel())
    x_rows, y_rows = np.array(x_rows), np.array(y_rows)
    shape = (steps, channels, len(readouts), outputs)
    # sums of at most 15 products
    exact = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(
        np.asarray(task.input_covariance), (x_rows.T @ x_rows).reshape(steps, channels, steps, channels), **exact
    )
    np.testing.assert_allclose(np.asarray(task.cross_covariance), (x_rows.T @ y_rows).reshape(shape), **exact)
    np.testing.assert_allclose(np.asarray(task.target_covariance), (y_rows.T @ y_rows).reshape(shape[2:] * 2), **exact)


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_white_integration_statistics(targets):
    """White inputs of variance s_xx and Cov(y, x_t) = s_yx at every earlier step, per channel."""
    task = lc.tasks.integration(4, [2.0, 0.5], [1.5, -0.4], targets=targets)
    inputs = np.einsum("ts,ij->tisj", np.eye(4), np.diag([2.0, 0.5]))
    np.testing.assert_allclose(np.asarray(task.input_covariance), inputs, rtol=1e-14)
    past = np.triu(np.ones((4, 4))) if targets == "every_step" else np.ones((4, 1))
    cross = np.einsum("tr,ij->tirj", past, np.diag([1.5, -0.4]))
    np.testing.assert_allclose(np.asarray(task.cross_covariance), cross, rtol=1e-14)


@pytest.mark.equation("curriculum2025 Eq. (32)")
@pytest.mark.parametrize("name", CASES)
def test_aligned_network_puts_each_mode_on_its_own_hidden_direction(name):
    task, _ = case(name)
    initial, output_initial = np.array([0.3, 0.1, 0.4]), np.array([0.1, 0.25, 0.4])
    network = lc.LinearRNN.aligned(
        recurrence=[0.9, 0.7, 0.5], initial=initial, output_initial=output_initial, hidden_size=8, task=task
    )
    w_in, w_out, w_hid = (
        np.asarray(w) for w in (network.input_weights, network.output_weights, network.recurrent_weights)
    )
    assert (w_in.shape, w_hid.shape, w_out.shape) == ((8, 3), (8, 8), (4, 8))
    # orthonormal r: the singular values of W_x = sum a r v^T and W_y = sum c u r^T are the coefficients
    np.testing.assert_allclose(np.linalg.svd(w_in)[1], np.sort(initial)[::-1], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.svd(w_out)[1][:3], np.sort(output_initial)[::-1], rtol=1e-12)
    np.testing.assert_allclose(np.linalg.svd(w_out @ w_in)[1], np.sort(initial * output_initial)[::-1], rtol=1e-12)
    # the same r in both, each an eigenvector of W_h: powers of W_h in between weigh the modes by b^k. Weighed by the
    # time-summed Cov(x, y) the modes are diagonal, so the trace below is sum a c b^k s.
    cross = np.asarray(task.cross_covariance).sum(axis=(0, 2))
    modes = modes_of_one(task, network)
    summed = modes.cross_strength.sum(axis=(1, 2))
    for k in range(4):
        trace = np.trace(w_out @ np.linalg.matrix_power(w_hid, k) @ w_in @ cross)
        assert trace == pytest.approx(np.sum(modes.start * modes.recurrence**k * summed), rel=1e-11)
    np.testing.assert_allclose(sorted(modes.start), sorted(initial * output_initial), rtol=1e-12)


@pytest.mark.equation("curriculum2025 Eq. (4)")
@pytest.mark.equation("curriculum2025 Eq. (37)")
@pytest.mark.parametrize("name", CASES)
def test_loss_is_that_of_the_running_network(name):
    """Half the mean squared error of a network run on an exact batch, at the start, on the way and at the end."""
    task, network = case(name)
    inputs, targets = (torch.tensor(x) for x in exact_batch(task, np.random.default_rng(5)))
    solved = lc.forecast(task, network, learning_rate=0.02 / steepest(task, network)).solution
    times = np.array([0.0, 20.0, 100.0, 1000.0])
    found = solved.at(times)
    losses = []
    for time in times:
        weights, recurrent = parameters(solved.network_at(time))
        losses.append(float(squared_error(weights, recurrent, inputs, targets).detach()))
    # the batch's covariances are exact to some 1e-15 of the largest
    np.testing.assert_allclose(found["loss"], losses, rtol=1e-11)
    # Eq. (37) mode by mode: (u - u*)^2 B / 2 above the floor
    modes = modes_of_one(task, network)
    excess = ((np.asarray(found["strength"]) - modes.optimum) ** 2 * modes.weighted_input).sum(axis=1) / 2
    np.testing.assert_allclose(found["excess_loss"], excess, rtol=1e-11)
    np.testing.assert_allclose(np.diff(found["loss"]), np.diff(excess), rtol=1e-9)


@pytest.mark.equation("curriculum2025 Eq. (37)")
def test_loss_of_a_noiseless_mode_is_the_energy_with_matrix_roots():
    """E = 1/2 |u S^(1/2) p - S^(-1/2) s|^2 with p_t = b^(T-t): matrix roots, and the half the print lacks."""
    task = lc.tasks.leaky_integration(steps=6, timescale=3.0, correlation=0.6, noise_strength=1.2, gain=0.9)
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.3, hidden_size=6)
    values, vectors = np.linalg.eigh(np.asarray(task.input_covariance)[:, 0, :, 0])
    root = (vectors * np.sqrt(values)) @ vectors.T
    cross = np.asarray(task.cross_covariance)[:, 0, 0, 0]
    found = lc.forecast(task, network, learning_rate=1e-3).solution.at([0.0, 50.0, 200.0, np.inf])
    for u, loss in zip(found["strength"][:, 0], found["loss"], strict=True):
        energy = np.sum((float(u) * root @ 0.8 ** np.arange(5, -1, -1) - np.linalg.solve(root, cross)) ** 2) / 2
        # the root of a 6 x 6 matrix of condition < 100
        assert float(loss) == pytest.approx(energy, rel=1e-11)


@pytest.mark.slow_cases("own channels, every step", "same channels, every step")
@pytest.mark.equation("curriculum2025 Eq. (9)")
@pytest.mark.parametrize("name", CASES)
def test_training_approaches_the_theory_in_proportion_to_the_learning_rate(name):
    """Gap between BPTT and the flow over a fixed flow time, halving the step: slope 1 on log-log axes.

    Descent is the Euler method of the flow, so its gap is proportional to the learning rate with relative corrections
    of the order of lr * sharpness, at most .08 here: slopes between .9 and 1.1. A flaw of theory would leave a gap
    that does not shrink.
    """
    task, network = case(name)
    batch = exact_batch(task, np.random.default_rng(6))
    sharpness = steepest(task, network)
    coarse = 120
    rates, gaps, strength_gaps = [], [], []
    for halving in range(3):
        learning_rate = 0.08 / sharpness / 2**halving
        steps = coarse * 2**halving
        solved = lc.forecast(task, network, learning_rate=learning_rate).solution
        ask = np.arange(0, coarse + 1, 6) * 2**halving
        strengths = np.sort(np.abs(np.asarray(solved.at(ask)["strength"])), axis=1)[:, ::-1]
        gap = strength_gap = 0.0
        for step, w_in, w_out in train(network, batch, learning_rate, steps):
            where = np.flatnonzero(ask == step)
            if where.size:
                theory = solved.network_at(float(step))
                gap = max(gap, np.abs(w_in - theory.input_weights).max(), np.abs(w_out - theory.output_weights).max())
                trained = np.linalg.svd(w_out @ w_in, compute_uv=False)[:3]
                strength_gap = max(strength_gap, np.abs(trained - strengths[where[0]]).max())
        rates.append(learning_rate)
        gaps.append(gap)
        strength_gaps.append(strength_gap)
    for what in (gaps, strength_gaps):
        slope = np.polyfit(np.log(rates), np.log(what), 1)[0]
        assert 0.9 < slope < 1.1
    # and the gap is small in itself: 1% of the largest weight at the smallest step
    largest = np.abs(solved.network_at(np.inf).input_weights).max()
    assert gaps[-1] < 0.01 * largest


@pytest.mark.parametrize("name", CASES)
def test_training_is_done_at_the_step_forecast(name):
    """Every mode enters its band within one step of the forecast count (lr * sharpness = .1)."""
    task, network = case(name)
    batch = exact_batch(task, np.random.default_rng(7))
    learning_rate = 0.1 / steepest(task, network)
    accuracy = 0.95
    solved = lc.forecast(task, network, learning_rate=learning_rate).solution
    learned = solved.time_to(accuracy)
    modes = modes_of_one(task, network)
    limit = solved.network_at(np.inf)
    # a mode's direction in (outputs, inputs) is read off the limit, whose singular values are the optima
    u, s, vt = np.linalg.svd(np.asarray(limit.output_weights) @ np.asarray(limit.input_weights))
    order = np.argsort(-modes.optimum)
    np.testing.assert_allclose(s, modes.optimum[order], rtol=1e-9)
    counted = np.full(3, np.inf)
    for step, w_in, w_out in train(network, batch, learning_rate, int(learned.flow_steps) + 20):
        strengths = np.einsum("om,oh,hi,mi->m", u[:, :3], w_out, w_in, vt)
        inside = np.abs(strengths - s) <= (1 - accuracy) * s
        counted[inside & np.isinf(counted)] = step
    assert np.max(np.abs(learned.mode_descent_steps[order] - counted)) <= 1
    assert learned.descent_steps == np.max(learned.mode_descent_steps)


@pytest.mark.equation("curriculum2025 Eq. (13)")
@pytest.mark.equation("curriculum2025 Eq. (15)")
def test_a_curriculum_trained_for_real():
    """Pretraining to 80% on a stronger task, then the target: each stage within one step of its forecast."""
    target = lc.tasks.leaky_integration(steps=6, timescale=4.0, correlation=0.3)
    first = target.varied(gain=1.7)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=6)
    learning_rate = 0.05 / steepest(first, network)
    stages = [(first, 0.8), (target, 0.98)]
    curriculum = lc.follow(
        [lc.Stage(task, goal=accuracy) for task, accuracy in stages], network, learning_rate=learning_rate
    )
    here, counted = network, []
    for task, accuracy in stages:
        optimum = modes_of_one(task, network).optimum[0]
        batch = exact_batch(task, np.random.default_rng(8))
        for step, w_in, w_out in train(here, batch, learning_rate, 2000):
            if abs((w_out @ w_in).item() - optimum) <= (1 - accuracy) * optimum:
                counted.append(step)
                here = lc.LinearRNN(w_in.copy(), network.recurrent_weights, w_out.copy())
                break
    assert len(counted) == 2
    forecast = [outcome.steps.descent for outcome in curriculum.stages]
    np.testing.assert_allclose(forecast, counted, rtol=0, atol=1)
    assert curriculum.steps.descent == sum(forecast)
    # the curriculum pays, in training as in theory
    batch = exact_batch(target, np.random.default_rng(8))
    optimum = modes_of_one(target, network).optimum[0]
    direct = next(
        step
        for step, w_in, w_out in train(network, batch, learning_rate, 2000)
        if abs((w_out @ w_in).item() - optimum) <= 0.02 * optimum
    )
    assert curriculum.direct.descent == pytest.approx(direct, abs=1)
    assert direct > sum(counted)
    assert curriculum.saving.flow > 0


@pytest.mark.parametrize("name", CASES)
def test_from_samples_recovers_the_task(name):
    task, _ = case(name)
    inputs, targets = exact_batch(task, np.random.default_rng(9))
    again = lc.Task.from_samples(inputs, targets[:, 0] if targets.shape[1] == 1 else targets)
    scale = np.abs(joint_covariance(task)).max()
    # the batch is exact to rounding
    np.testing.assert_allclose(joint_covariance(again), joint_covariance(task), rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_covariances_of_the_task(name):
    """Every second moment of 20,000 Gaussian trials within 6.7 standard errors.

    Each of at most (21 + 28)(21 + 28 + 1)/2 = 1,225 moments is a mean of 20,000 products, normal to this accuracy,
    with variance (S_ii S_jj + S_ij^2)/trials (Isserlis). P(|z| > 6.7) = 2.1e-11, so by Bonferroni a right sampler
    fails with probability below 3e-8 per case and seed. A covariance wrong by 10% of S_ii is 10 standard errors off.
    """
    task, _ = case(name)
    trials = 20_000
    inputs, targets = task.sample(trials, np.random.default_rng(10))
    sample = np.concatenate([inputs.reshape(trials, -1), targets.reshape(trials, -1)], axis=1)
    expected = joint_covariance(task)
    assert sample.shape == (trials, expected.shape[0])
    variance = np.diag(expected)
    error = np.sqrt((np.outer(variance, variance) + expected**2) / trials)
    assert np.abs((sample.T @ sample / trials - expected) / error).max() < 6.7
    # mean zero: the same bound, 49 more comparisons
    assert np.abs(sample.mean(axis=0) / np.sqrt(variance / trials)).max() < 6.7
    # the same generator gives the same trials, another does not
    again = task.sample(trials, np.random.default_rng(10))
    np.testing.assert_array_equal(again[0], inputs)
    assert not np.array_equal(task.sample(trials, np.random.default_rng(11))[0], inputs)
