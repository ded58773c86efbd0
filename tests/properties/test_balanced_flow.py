"""Properties of balanced two-layer flows of any size, task and start."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learncast.theory import BalancedFlow

run = settings(derandomize=True, deadline=None, max_examples=60 * settings().max_examples // 300)

# Starts are random in direction, so their distance from any separatrix they are not exactly on is of order 1/size or,
# rarely, 1e-3; round-off of some 1e-15 is then amplified to 1e-12.
AMPLIFIED = 1e-11

TIMES = np.array([0.0, 0.02, 0.3, 1.0, 4.0, 20.0, 300.0, np.inf])


def orthonormal(rng, size, columns):
    Q, R = np.linalg.qr(rng.standard_normal((size, columns)))
    return Q * np.sign(np.diagonal(R))  # of either orientation


def root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


@st.composite
def networks(draw):
    """Task and start: any sizes, rank, scale, and imbalance of either sign where the sizes allow it."""
    inputs, hidden, outputs = (draw(st.integers(1, 6)) for _ in range(3))
    rank = draw(st.integers(0, min(inputs, outputs)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.01, 0.1, 0.5, 1.0, 3.0]))
    S = (orthonormal(rng, outputs, rank) * rng.uniform(0.2, 2.0, rank)) @ orthonormal(rng, inputs, rank).T
    imbalance = draw(st.sampled_from([0.0, 0.0, 0.3, 4.0, -0.3, -4.0]))
    if imbalance > 0 and hidden <= outputs:
        first = scale * rng.standard_normal((hidden, inputs))
        second = orthonormal(rng, outputs, hidden) @ root(first @ first.T + imbalance * np.eye(hidden))
    elif imbalance < 0 and hidden <= inputs:
        second = scale * rng.standard_normal((outputs, hidden))
        first = root(second.T @ second - imbalance * np.eye(hidden)) @ orthonormal(rng, inputs, hidden).T
    else:
        size = min(inputs, hidden, outputs)
        shared = orthonormal(rng, hidden, size) * rng.uniform(0.3 * scale, scale, size)
        first = shared @ orthonormal(rng, inputs, size).T
        second = orthonormal(rng, outputs, size) @ shared.T
    return S, first, second, rng


def size_of(S, first, second):
    """Scale of Q Q^T along the path."""
    return max(np.abs(S).max(), (first**2).sum(), (second**2).sum())


@run
@given(networks())
def test_rotating_inputs_and_outputs_rotates_the_solution(network):
    S, first, second, rng = network
    turn_in, turn_out = orthonormal(rng, S.shape[1], S.shape[1]), orthonormal(rng, S.shape[0], S.shape[0])
    plain = BalancedFlow(S, first, second)
    turned = BalancedFlow(turn_out @ S @ turn_in.T, first @ turn_in.T, turn_out @ second)
    allowed = AMPLIFIED * size_of(*network[:3])
    wanted = turn_out @ plain.network_functions(TIMES) @ turn_in.T
    np.testing.assert_allclose(turned.network_functions(TIMES), wanted, rtol=0, atol=allowed)
    np.testing.assert_allclose(turned.losses(TIMES), plain.losses(TIMES), rtol=0, atol=allowed * size_of(*network[:3]))
    assert turned.lost_modes.size == plain.lost_modes.size


@run
@given(networks())
def test_rotating_the_hidden_space_changes_nothing(network):
    S, first, second, rng = network
    turn = orthonormal(rng, len(first), len(first))
    got = BalancedFlow(S, turn @ first, second @ turn.T).grams(TIMES)
    wanted = BalancedFlow(S, first, second).grams(TIMES)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=AMPLIFIED * size_of(*network[:3]))


@run
@given(networks())
def test_swapping_inputs_and_outputs_transposes_the_solution(network):
    S, first, second, _ = network
    plain, swapped = BalancedFlow(S, first, second), BalancedFlow(S.T, second.T, first.T)
    wanted = plain.network_functions(TIMES).transpose(0, 2, 1)
    np.testing.assert_allclose(swapped.network_functions(TIMES), wanted, rtol=0, atol=AMPLIFIED * size_of(*network[:3]))
    np.testing.assert_allclose(swapped.imbalance, -plain.imbalance, rtol=1e-14)


@run
@given(networks(), st.sampled_from([0.01, 0.5, 7.0, 1000.0]))
def test_scaling_the_task_scales_time(network, factor):
    # S, W, t -> c S, sqrt(c) W, t / c leaves the equations as they are.
    S, first, second, _ = network
    plain = BalancedFlow(S, first, second)
    strong = BalancedFlow(factor * S, np.sqrt(factor) * first, np.sqrt(factor) * second)
    np.testing.assert_allclose(
        strong.grams(TIMES / factor) / factor, plain.grams(TIMES), rtol=0, atol=AMPLIFIED * size_of(*network[:3])
    )


@run
@given(networks())
def test_the_loss_never_rises(network):
    S, first, second, _ = network
    losses = BalancedFlow(S, first, second).losses(np.append(np.geomspace(1e-3, 1e3, 60), np.inf))
    # Rounding of W2 W1 - S, squared or times the error itself.
    noise = 1e-13 * size_of(S, first, second)
    assert (np.diff(losses) <= noise * (np.sqrt(losses[:-1]) + noise)).all()


@run
@given(networks(), st.sampled_from([0.02, 0.5, 3.0, 40.0, np.inf]))
def test_balance_is_conserved(network, time):
    S, first, second, _ = network
    flow = BalancedFlow(S, first, second)
    W1, W2 = flow.weights(time)
    D, Q = W2.T @ W2 - W1 @ W1.T, np.vstack([W1.T, W2])
    # Round-off of the squares of the weights, measured against their size on the path.
    scale = size_of(S, first, second)
    np.testing.assert_allclose(Q @ D, flow.imbalance * Q, rtol=0, atol=1e-12 * scale**1.5)


@run
@given(networks(), st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.2, 2.0, 30.0]))
def test_flows_can_be_continued(network, time, more):
    S, first, second, _ = network
    flow = BalancedFlow(S, first, second)
    onwards = BalancedFlow(S, *flow.weights(time))
    allowed = AMPLIFIED * size_of(S, first, second)
    np.testing.assert_allclose(onwards.grams(more), flow.grams(time + more), rtol=0, atol=allowed)
    assert onwards.lost_modes.tolist() == flow.lost_modes.tolist()


@run
@given(networks())
def test_weights_factor_the_gram(network):
    S, first, second, _ = network
    flow = BalancedFlow(S, first, second)
    for time, gram in zip(TIMES, flow.grams(TIMES), strict=True):
        W1, W2 = flow.weights(time)
        Q = flow.factor(time)
        allowed = 1e-13 * size_of(S, first, second)
        np.testing.assert_allclose(np.vstack([W1.T, W2]) @ np.hstack([W1, W2.T]), gram, rtol=0, atol=allowed)
        np.testing.assert_allclose(Q @ Q.T, gram, rtol=0, atol=allowed)


@run
@given(networks())
def test_the_derivative_is_the_gradient(network):
    S, first, second, _ = network
    flow, time, step = BalancedFlow(S, first, second), 0.4, 1e-3
    W1, W2 = flow.weights(time)
    error = S - W2 @ W1
    velocity = W2 @ W2.T @ error + error @ W1.T @ W1
    # Differences over four points leave step^4 / 30 times the fifth derivative, which is at most rate^5; round-off adds
    # 1e-15 / step.
    M = flow.network_functions(time + step * np.array([-2, -1, 1, 2]))
    slope = (M[0] - 8 * M[1] + 8 * M[2] - M[3]) / (12 * step)
    rate = 2 * (np.abs(S).sum() + size_of(S, W1, W2) + abs(flow.imbalance))
    np.testing.assert_allclose(slope, velocity, rtol=0, atol=size_of(S, W1, W2) * (step**4 * rate**5 + 1e-11))


@run
@given(networks(), st.permutations(range(len(TIMES))))
def test_many_times_equal_single_times(network, order):
    S, first, second, _ = network
    flow, times = BalancedFlow(S, first, second), TIMES[list(order)]
    # The same formula; only the way exp((a - b) t) is split depends on which times are asked for together.
    allowed = 1e-13 * size_of(S, first, second)
    for quantity in (flow.grams, flow.network_functions, flow.losses):
        together = quantity(times)
        alone = np.array([quantity(time) for time in times])
        np.testing.assert_allclose(together, alone, rtol=0, atol=allowed * max(1.0, size_of(S, first, second)))
        np.testing.assert_array_equal(quantity(times.reshape(2, 4)).reshape(together.shape), together)
