"""Measured responses against backpropagation through time, integrals and repeated sampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import learncast as lc
from learncast.theory import ResponseFlowSolution, ResponseModeSolution, bounds, response, solve_response
from learncast.theory.responses.problem import descent_states, full_weights, reduced_problem

torch = pytest.importorskip("torch")


def network(activation, a, b, c):
    weights = np.asarray(a, dtype=float)[:, None], np.diag(np.asarray(b, dtype=float)), np.atleast_2d(c)
    return lc.Activated(lc.LinearRNN(*weights), activation)


def trials(seed, *, steps=8, outputs=1, every_step=False, number=200):
    """Skewed inputs, and targets that no single feature determines."""
    rng = np.random.default_rng(seed)
    inputs = 0.8 * rng.normal(size=(number, steps, 1)) + 0.4 * (rng.exponential(size=(number, steps, 1)) - 1)
    targets = (inputs * (0.7 + rng.normal(size=(steps, outputs)) / 3)).cumsum(axis=1) + 0.2 * rng.normal(size=outputs)
    return inputs, targets if every_step else targets[:, -1]


def bptt(pair, start, rate, steps, batches=None):
    """Train input and output weights in torch by backpropagation through time; return them after every step."""
    act = {"relu": torch.relu, "tanh": torch.tanh}[start.activation]
    w = start.network
    w_in, w_out = (torch.tensor(np.array(m), requires_grad=True) for m in (w.input_weights, w.output_weights))
    w_hid = torch.tensor(np.array(w.recurrent_weights))
    found = [(w_in.detach().numpy().copy(), w_out.detach().numpy().copy())]
    for n in range(steps):
        x, y = (torch.tensor(part) for part in (pair if batches is None else batches(n)))
        hidden, answers = torch.zeros(len(x), len(w_hid), dtype=torch.float64), []
        for t in range(x.shape[1]):
            hidden = act(hidden @ w_hid.T + x[:, t] @ w_in.T)
            answers.append(hidden @ w_out.T)
        answer = torch.stack(answers, dim=1) if y.ndim == 3 else answers[-1]
        loss = ((answer - y) ** 2).sum() / (2 * len(x))
        loss.backward()
        with torch.no_grad():
            for weight in (w_in, w_out):
                weight -= rate * weight.grad
                weight.grad = None
        found.append((w_in.detach().numpy().copy(), w_out.detach().numpy().copy()))
    return tuple(np.stack(part) for part in zip(*found, strict=True))


RNG = np.random.default_rng(11)
CASES = {
    "one unit": (trials(1), network("relu", [-0.2, 0.0], [0.9, 0.9], [0.3, 0.5]), 5e-3),
    "units of one response": (trials(2), network("relu", [0.2, 0.3, 0.1], [0.8] * 3, [0.1, -0.2, 0.3]), 5e-3),
    "sixteen of random sign": (
        trials(3),
        network("relu", 0.3 * RNG.normal(size=16), [0.9] * 16, 0.3 * RNG.normal(size=16)),
        5e-3,
    ),
    "several recurrences": (
        trials(4),
        network("relu", 0.3 * RNG.normal(size=6), [0.9, 0.5, -0.4, 0.9, 0.5, 0.0], 0.3 * RNG.normal(size=6)),
        5e-3,
    ),
    "several outputs": (
        trials(5, outputs=3),
        network("relu", 0.3 * RNG.normal(size=5), [0.8] * 5, 0.3 * RNG.normal(size=(3, 5))),
        5e-3,
    ),
    "targets at every step": (
        trials(6, outputs=2, every_step=True),
        network("relu", 0.3 * RNG.normal(size=5), [0.8, 0.8, 0.3, 0.3, 0.3], 0.3 * RNG.normal(size=(2, 5))),
        1e-3,
    ),
    "through zero": (trials(7), network("relu", [0.1], [0.9], [-0.6]), 5e-3),
}


def descended(solution, steps):
    """Input and output weights after each step of descent on the measured statistics."""
    problem, start = reduced_problem(solution.response)
    states = descent_states(problem.row(0), start, solution.learning_rate, steps)[:, 0]
    return full_weights(solution.response.network, states)


@pytest.mark.parametrize("name", CASES)
def test_descent_of_responses_is_backpropagation_through_time(name):
    pair, start, rate = CASES[name]
    solution = solve_response(response(lc.Task.from_samples(*pair), start, bootstrap=2), learning_rate=rate)
    expected = bptt(pair, start, rate, 400)
    inputs, outputs = descended(solution, 400)
    # Sums over the same 200 trials in another order: rounding, accumulated over 400 steps.
    np.testing.assert_allclose(inputs, expected[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(outputs, expected[1], rtol=0, atol=1e-10)
    assert np.abs(expected[0][-1] - expected[0][0]).max() > 0.05  # it learned something
    assert name not in FLIPPING or (expected[0][0] * expected[0][-1] < 0).any()


#: Cases in which a unit changes to the response of the other sign.
FLIPPING = {"sixteen of random sign", "several outputs", "through zero"}


@pytest.mark.slow_cases("2-True")
@pytest.mark.parametrize(("outputs", "every_step"), [(1, False), (2, True)])
def test_descent_of_a_tabulated_unit_is_backpropagation_through_time(outputs, every_step):
    pair = trials(8, outputs=outputs, every_step=every_step)
    start = network("tanh", [0.0, 0.2], [0.9, 0.9], np.full((outputs, 2), [0.0, 0.3]))
    found = response(lc.Task.from_samples(*pair), start, bootstrap=2)
    steps, rate = 600, 2e-3
    solution = solve_response(found, learning_rate=rate)
    descent, expected = descended(solution, steps), bptt(pair, start, rate, steps)
    stated = found.statistics.accuracy
    assert stated <= 1e-8
    # The error of an interpolant's slope is nodes^2 times that of its value; weights and steps x rate are of order 1.
    allowed = 256 * stated * steps * rate + 1e-12
    for weights, value in zip(descent, expected, strict=True):
        np.testing.assert_allclose(weights, value, rtol=0, atol=allowed)
    assert np.abs(expected[0]).max() > 0.3  # the responses saturate


def test_table_is_the_mean_response():
    pair = trials(9)
    start = network("tanh", [0.2], [0.9], [0.3])
    table = response(lc.Task.from_samples(*pair), start, bootstrap=2).statistics
    for a in (1e-3, 0.1, -0.7, 3.0):
        cross, _, power, _ = (part[0] for part in table.moments(np.array([a]), 0))
        h = network("tanh", [a], [0.9], [1.0]).respond(pair[0])
        assert cross == pytest.approx((h * pair[1]).mean(), rel=10 * table.accuracy)
        assert power == pytest.approx((h**2).mean(), rel=10 * table.accuracy)


# --- closed form, flow and descent ----------------------------------------------------------------------------------


STARTS = {
    "one unit": ([-0.2, 0.0], [0.9, 0.9], [-0.1, 0.5]),
    "output weight changes sign": ([0.4], [0.9], [-0.2]),
    "units of opposite output sign": ([0.2, 0.3, 0.1], [0.8] * 3, [0.3, -0.1, 0.2]),
}


@pytest.mark.parametrize("name", STARTS)
def test_closed_form_is_the_integrated_flow(name):
    rate = 5e-3
    found = response(lc.Task.from_samples(*trials(1)), network("relu", *STARTS[name]))
    closed, flow = solve_response(found, learning_rate=rate), ResponseFlowSolution.of(found, rate)
    assert isinstance(closed, ResponseModeSolution)
    ask = np.array([0.0, 3.0, 30.0, 100.0, 300.0, 1000.0])
    # An error of 1e-11 per integration step, over a few hundred steps.
    np.testing.assert_allclose(closed.at(ask)["loss"], flow.at(ask)["loss"], rtol=0, atol=1e-9)
    for time in ask:
        one, two = closed.network_at(time).network, flow.network_at(time).network
        np.testing.assert_allclose(one.input_weights, two.input_weights, rtol=0, atol=1e-9)
        np.testing.assert_allclose(one.output_weights, two.output_weights, rtol=0, atol=1e-9)
    times, other = closed.time_to(0.99), flow.time_to(0.99)
    assert times.flow_steps == pytest.approx(other.flow_steps, rel=1e-8)
    # The closed form is right to one step; the flow solution follows descent itself.
    assert abs(times.descent_steps - other.descent_steps) <= 1
    # The flow solution's resamples descend in steps of 0.05 / curvature, whose effect on the spread mostly cancels.
    width = times.interval[1] - times.interval[0]
    np.testing.assert_allclose(other.interval, times.interval, rtol=0, atol=0.05 * width)


@pytest.mark.slow_cases("sixteen of random sign")
@pytest.mark.parametrize("name", ["through zero", "sixteen of random sign", "several recurrences"])
def test_descent_converges_to_the_flow_at_small_learning_rates(name):
    """The gap between descent and flow is proportional to the learning rate, also if weights pass through 0."""
    pair, start, _ = CASES[name]
    found, gaps, rates = response(lc.Task.from_samples(*pair), start, bootstrap=2), [], (4e-3, 2.5e-4)
    for rate in rates:
        steps = round(1.5 / rate)
        solution = ResponseFlowSolution.of(found, rate)
        end = descended(solution, steps)[0][-1]
        gaps.append(np.abs(end - solution.network_at(steps).network.input_weights).max())
    # Slope 1 in log-log axes; a step that crosses 0 adds an error that depends irregularly on the rate.
    assert np.log(gaps[0] / gaps[1]) / np.log(rates[0] / rates[1]) == pytest.approx(1.0, abs=0.25)


def test_a_unit_pushed_to_zero_from_both_sides_rests_there():
    """The target is never negative and the output weight starts negative: both responses silence the unit."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 4, 1))
    pair = inputs, np.abs(inputs.sum(axis=1))
    start = network("relu", [0.1], [0.8], [-0.5])
    solution = solve_response(response(lc.Task.from_samples(*pair), start, bootstrap=10), learning_rate=1e-3)
    assert isinstance(solution, ResponseFlowSolution)
    assert solution.network_at(np.inf).network.input_weights[0, 0] == 0.0
    assert solution.time_to(0.9).status is lc.Status.not_learned
    weights, _ = bptt(pair, start, 1e-3, 400)
    # Descent oscillates about 0 by one step: rate x |c| x E|y z| of order 1e-3.
    assert np.abs(weights[-100:]).max() < 5e-3


# --- intervals ------------------------------------------------------------------------------------------------------


def true_two_step_statistics(b):
    """E[y z] and E[z^2] of z = relu(b relu(x1) + x2), y = x1 + x2, by quadrature."""

    def mean(value):
        def integrand(x2, x1):
            z = max(b * max(x1, 0.0) + x2, 0.0)
            return value(x1 + x2, z) * np.exp(-(x1**2 + x2**2) / 2) / (2 * np.pi)

        # Kinks lie on the edges of the two regions.
        upper = integrate.dblquad(integrand, 0, 9, lambda x1: -b * x1, 9, epsabs=1e-9)[0]
        return upper + integrate.dblquad(integrand, -9, 0, 0, 9, epsabs=1e-9)[0]

    return mean(lambda y, z: y * z), mean(lambda y, z: z * z)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Gaussian", "recorded"])
def test_intervals_have_their_nominal_coverage(kind):
    """At least 85 of 100 intervals at 95% cover the truth.

    The coverage of a percentile bootstrap over 256 groups is about 94% or more. At 94%, fewer than 85 of 100 cover with
    probability 4e-4 (binomial), for each of six quantities.
    """
    b, task = 0.9, lc.tasks.integration(steps=2)
    cross, power = true_two_step_statistics(b)
    start = network("relu", [0.05], [b], [0.05])
    u0, best = 0.05**2, cross / power
    steps = np.log(0.99 * best * (best - u0) / (u0 * 0.01 * best)) / (2 * cross * 1e-2)  # closed form
    hits = np.zeros(3, dtype=int)
    for seed in range(100):
        own, number = task, 1024
        if kind == "recorded":
            own, number = lc.Task.from_samples(*task.sample(1024, np.random.default_rng(seed))), None
        found = response(own, start, trials=number, rng=seed, bootstrap=200)
        ends = [bounds(part[1:, 0, 0]) for part in (found.features.cross, found.features.power)]
        ends.append(solve_response(found, learning_rate=1e-2).time_to(0.99).interval)
        hits += [low <= truth <= high for (low, high), truth in zip(ends, (cross, power, steps), strict=True)]
    assert stats.binom.cdf(84, 100, 0.94) < 1e-3
    assert np.all(hits >= 85), hits


def test_symmetrised_and_controlled_means_are_unbiased():
    """500,000 trials against quadrature."""
    cross, power = true_two_step_statistics(0.9)
    found = response(lc.tasks.integration(steps=2), network("relu", [1.0], [0.9], [1.0]), trials=500_000).features
    for estimate, truth in ((found.cross[:, 0, 0], cross), (found.power[:, 0, 0], power)):
        # Five standard errors: one false alarm in 2e6.
        assert abs(estimate[0] - truth) <= 5 * estimate[1:].std()
        assert estimate[1:].std() < 1e-3 * truth


# --- training on fresh batches --------------------------------------------------------------------------------------


def trained_steps(task, start, rate, goal, most, seed):
    """Return the steps of training on fresh batches of 500 until the weights satisfy `goal`."""
    rng = np.random.default_rng(seed)
    for first in range(0, most, 100):
        w_in, w_out = bptt(None, start, rate, 100, batches=lambda _: task.sample(500, rng))
        for k in range(101):
            if goal(w_in[k], w_out[k]):
                return first + k
        start = lc.Activated(lc.LinearRNN(w_in[-1], start.network.recurrent_weights, w_out[-1]), start.activation)
    return np.inf


@pytest.mark.slow
def test_fresh_batches_take_the_forecast_steps():
    task, rate = lc.tasks.integration(steps=50), 2e-3
    start = network("relu", [0.05], [0.96], [0.05])
    solution = lc.forecast(task, start, learning_rate=rate).solution
    best = solution.modes.optimum[0]
    forecast = solution.time_to(0.9)
    found = [trained_steps(task, start, rate, lambda a, c: a[0, 0] * c[0, 0] >= 0.9 * best, 1000, s) for s in range(4)]
    # The noise of batches of 500 changes one count by a few per cent, and the mean of four by half of that.
    assert np.mean(found) == pytest.approx(forecast.descent_steps, rel=0.06)


@pytest.mark.slow
def test_fresh_batches_of_a_tanh_unit_take_the_forecast_steps():
    task, rate = lc.tasks.leaky_integration(steps=20, timescale=3.0), 5e-3
    start = network("tanh", [0.05], [0.9], [0.05])
    solution = lc.forecast(task, start, learning_rate=rate).solution
    forecast = solution.time_to(0.7)
    least = float(solution.problem.least_loss[0])
    goal = least + (1 - 0.7) ** 2 * (float(solution.problem.constant[0]) - least)

    def learned(a, c):
        return solution.problem.row(0).loss_and_slopes(np.array([[a[0, 0], c[0, 0]]]))[0][0] <= goal

    found = [trained_steps(task, start, rate, learned, 4000, seed) for seed in range(3)]
    # Batch noise, as above.
    assert np.mean(found) == pytest.approx(forecast.descent_steps, rel=0.06)
