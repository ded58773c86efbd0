"""Published equations against automatic differentiation, an ODE solver and explicit sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.stats import norm

from learncast import TwoLayer, tasks
from learncast.papers.curriculum.alignment import mode_updates
from learncast.papers.prior_knowledge.paper_solution import paper_grams, paper_overlaps

torch = pytest.importorskip("torch")


@pytest.mark.equation("curriculum2025 Eq. (33)")
@pytest.mark.equation("curriculum2025 Eq. (34)")
@pytest.mark.parametrize("seed", range(3))
def test_own_and_cross_mode_terms_are_the_gradient(seed):
    """The loss of eq. (27), a sum over steps, is differentiated by torch; strengths differ by mode and step."""
    rng = np.random.default_rng(seed)
    modes, hidden, steps = 3, 5, 4
    a, c = rng.standard_normal((2, modes, hidden))
    b = rng.uniform(0.5, 1.1, hidden)
    cross = rng.standard_normal((modes, steps))
    root = rng.standard_normal((modes, steps, steps))
    power = root @ root.swapaxes(1, 2)
    W_x, W_y = (torch.tensor(w, requires_grad=True) for w in (a.T.copy(), c))
    reach = [W_y @ torch.diag(torch.tensor(b ** (steps - 1 - t))) @ W_x for t in range(steps)]  # (outputs, inputs)
    loss = sum(
        0.5 * torch.trace(reach[t] @ torch.diag(torch.tensor(power[:, t, u])) @ reach[u].T)
        for t in range(steps)
        for u in range(steps)
    ) - sum((torch.diagonal(reach[t]) * torch.tensor(cross[:, t])).sum() for t in range(steps))
    loss.backward()
    own_a, cross_a, own_c, cross_c = mode_updates(a, c, b, cross, power)
    # Rounding in sums of a few hundred products of order 1.
    np.testing.assert_allclose(own_a + cross_a, -W_x.grad.numpy().T, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(own_c + cross_c, -W_y.grad.numpy(), rtol=1e-11, atol=1e-11)
    assert np.abs(cross_a).max() > 0.1


def test_cross_mode_terms_vanish_between_orthogonal_vectors():
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3)))[0].T
    strengths = np.random.default_rng(1).standard_normal((3, 4)), np.repeat(np.eye(4)[None], 3, axis=0)
    _, cross_a, _, cross_c = mode_updates(vectors, 2 * vectors, np.full(6, 0.9), *strengths)
    np.testing.assert_allclose([cross_a, cross_c], 0.0, atol=1e-13)
    # Orthogonality is not enough if hidden units decay at different rates.
    _, cross_a, _, _ = mode_updates(vectors, 2 * vectors, np.linspace(0.5, 1.0, 6), *strengths)
    assert np.abs(cross_a).max() > 1e-3


def integrated(S, network, time):
    """Return Q Q^T of the flow, integrated on the weights."""
    shapes = network.first.shape, network.second.shape
    cut = network.first.size

    def slope(_, y):
        W1, W2 = y[:cut].reshape(shapes[0]), y[cut:].reshape(shapes[1])
        error = S - W2 @ W1
        return np.concatenate([(W2.T @ error).ravel(), (error @ W1.T).ravel()])

    start = np.concatenate([network.first.ravel(), network.second.ravel()])
    y = solve_ivp(slope, (0, time), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    Q = np.vstack([y[:cut].reshape(shapes[0]).T, y[cut:].reshape(shapes[1])])
    return Q @ Q.T


@pytest.mark.equation("braun2022 Eq. (4)")
@pytest.mark.equation("braun2022 Eq. (11)")
@pytest.mark.equation("braun2022 Eq. (12)")
@pytest.mark.parametrize("sizes", [(3, 4, 3), (4, 6, 3), (3, 5, 5), (2, 2, 4)], ids=str)
def test_the_published_solution_holds_under_its_assumptions(sizes):
    rng, left = np.random.default_rng(0), 3
    while left:
        S = rng.standard_normal((sizes[2], sizes[0]))
        network = TwoLayer.balanced(*sizes, scale=0.5, rng=rng)
        if np.linalg.cond(paper_overlaps(S, network)[0]) > 100:
            continue
        left -= 1
        for time in (0.3, 2.0):
            # The solver's own error, and cond(B)^2 roundings of the print's.
            np.testing.assert_allclose(paper_grams(S, network, time), integrated(S, network, time), atol=1e-9)


def test_b_is_singular_when_the_determinants_differ_in_sign():
    """Assumption 3.1 then fails, so theorem 3.2 does not apply to "any zero-balanced start"."""
    rng, signs = np.random.default_rng(5), []
    for _ in range(40):
        S, network = rng.standard_normal((3, 3)), TwoLayer.balanced(3, 4, 3, scale=0.5, rng=rng)
        singular = np.linalg.cond(paper_overlaps(S, network)[0]) > 1e10
        signs.append(np.linalg.det(network.function) * np.linalg.det(S) < 0)
        assert singular == signs[-1]
    assert 10 <= sum(signs) <= 30  # half are expected; false alarm 0.1%


@pytest.mark.equation("braun2022 Eq. (1)")
@pytest.mark.equation("braun2022 Eq. (3)")
def test_network_function_and_correlations_are_plain_sums():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    task, network = tasks.from_pairs(x, y), TwoLayer.random(3, 4, 2, scale=1.0, rng=rng)
    pairs = {"xx": (x, x), "yx": (y, x)}
    sums = {key: sum(np.outer(u, v) for u, v in zip(*both, strict=True)) / 7 for key, both in pairs.items()}
    np.testing.assert_allclose(task.input_covariance.dense()[0, :, 0, :], sums["xx"], rtol=1e-12)
    np.testing.assert_allclose(task.cross_covariance.dense()[0, :, 0, :].T, sums["yx"], rtol=1e-12)
    answer = [sum(network.second[i, k] * network.first[k] @ x[4] for k in range(4)) for i in range(2)]
    np.testing.assert_allclose(network.function @ x[4], answer, rtol=1e-12)


def test_lemma_5_1_fails_to_first_order():
    """Retention 0.9 and mixing 0.3 at rest: with one visit to the recurrent weights the factors rise with the lag."""
    from learncast.windows import example_model, layers, transport

    model = example_model.build_model("const-gate", inputs=1, outputs=1, hidden_size=1, seed=0, gate=0.1).double()
    with torch.no_grad():
        model.block.recurrent_weights.fill_(3.0)  # times the gate and a slope of 1: mixing 0.3
        model.block.bias.fill_(0.0)
    (replay,) = layers.replays(model, torch.zeros(1, 8, 1, dtype=torch.float64))
    found = transport.mean_transport(replay, [1, 2, 3]).total[:, 0]
    told = [0.9**lag + lag * 0.3 * 0.9 ** (lag - 1) for lag in (1, 2, 3)]
    np.testing.assert_allclose(found, told, rtol=1e-7)  # the gate is kept in single precision
    np.testing.assert_allclose(found, [1.20, 1.35, 1.458], rtol=1e-6)
    assert (np.diff(found) > 0).all()


def test_the_information_bound_is_on_the_wrong_side():
    """Eq. (73) claims that a quarter of the divergence is a lower bound; normals at -0.5 and 0.5 violate it."""
    one, other = norm(-0.5), norm(0.5)

    def integrand(x):
        mixture = 0.5 * (one.pdf(x) + other.pdf(x))
        return 0.5 * sum(p.pdf(x) * np.log(p.pdf(x) / mixture) for p in (one, other))

    information, _ = quad(integrand, -12, 12, epsabs=1e-12)
    divergence = 0.5  # half the squared distance of unit normals
    assert information == pytest.approx(0.111, abs=5e-4)
    assert information < divergence / 4 == 0.125
