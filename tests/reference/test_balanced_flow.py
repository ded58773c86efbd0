"""The exact two-layer flow against golden numbers, ODE integration, high precision and the printed equations."""

from __future__ import annotations

import json
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm, sqrtm
from scipy.optimize import brentq

from learncast import InvalidSpec
from learncast.theory import BalancedFlow

FOLDER = Path(__file__).parent / "golden"
GOLDEN = {entry["id"]: entry for entry in json.loads((FOLDER / "two_layer.json").read_text())["entries"]}
POOLED = {entry["id"]: entry for entry in json.loads((FOLDER / "curriculum.json").read_text())["entries"]}
EPS = np.finfo(float).eps
# A few hundred roundings of quantities of order 1.
ROUNDING = 1e-13


def golden(name):
    """Inputs as arrays and expected values of one entry, with its own comparison."""
    entry = GOLDEN[name]

    def agrees(got, key, scale=1.0):
        wanted = np.asarray(entry["expected"][key], dtype=float)
        # The rule the golden file states for itself.
        allowed = entry["atol"] + entry["rtol"] * np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(got) * scale, wanted, rtol=0, atol=allowed, err_msg=f"{name}: {key}")

    inputs = {
        key: np.asarray(value, dtype=float) if isinstance(value, list) else value
        for key, value in entry["inputs"].items()
    }
    return inputs, entry["expected"], agrees


def learned(S, hidden=None):
    """Zero-balanced weights that have learned S."""
    U, s, Vt = np.linalg.svd(S, full_matrices=False)
    first, second = np.sqrt(s)[:, None] * Vt, U * np.sqrt(s)
    if hidden is not None:
        first = np.vstack([first, np.zeros((hidden - len(s), S.shape[1]))])
        second = np.hstack([second, np.zeros((S.shape[0], hidden - len(s)))])
    return first, second


def blocks(P, inputs):
    return P[:, :inputs, :inputs], P[:, inputs:, :inputs], P[:, inputs:, inputs:]


def time_to(flow, loss, latest=1e3):
    return brentq(lambda t: flow.losses(t) - loss, 0.0, latest, xtol=1e-13, rtol=4 * EPS)


def orthonormal(rng, size, columns):
    Q, R = np.linalg.qr(rng.standard_normal((size, columns)))
    return Q * np.sign(np.diagonal(R))  # of either orientation


def random_network(rng, most=10):
    """A random task and start: any sizes, rank and scale, zero-balanced or lambda-balanced of either sign."""
    inputs, hidden, outputs = rng.integers(1, most + 1, 3)
    full = min(inputs, outputs)
    rank = rng.integers(0, full + 1) if rng.random() < 0.3 else full
    S = (orthonormal(rng, outputs, rank) * rng.uniform(0.2, 2.0, rank)) @ orthonormal(rng, inputs, rank).T
    scale = 10 ** rng.uniform(-2, np.log10(3))
    kind = rng.choice(["zero", "positive", "negative"])
    if kind == "positive" and hidden <= outputs:
        imbalance = 10 ** rng.uniform(-2, 0.5)
        first = scale * rng.standard_normal((hidden, inputs)) / np.sqrt(hidden)
        second = orthonormal(rng, outputs, hidden) @ root(first @ first.T + imbalance * np.eye(hidden))
    elif kind == "negative" and hidden <= inputs:
        imbalance = -(10 ** rng.uniform(-2, 0.5))
        second = scale * rng.standard_normal((outputs, hidden)) / np.sqrt(hidden)
        first = root(second.T @ second - imbalance * np.eye(hidden)) @ orthonormal(rng, inputs, hidden).T
    else:
        imbalance, size = 0.0, min(inputs, hidden, outputs)
        strengths, shared = scale * rng.uniform(0.3, 1.0, size), orthonormal(rng, hidden, size)
        first = (shared * strengths) @ orthonormal(rng, inputs, size).T
        second = (orthonormal(rng, outputs, size) * strengths) @ shared.T
    return S, first, second, imbalance


def root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def integrated(S, first, second, times):
    """Q Q^T and W2 W1 from the differential equation of the weights."""
    outputs, inputs = S.shape
    hidden, cut = len(first), first.size

    def velocity(_, y):
        W1, W2 = y[:cut].reshape(hidden, inputs), y[cut:].reshape(outputs, hidden)
        error = S - W2 @ W1
        return np.concatenate([(W2.T @ error).ravel(), (error @ W1.T).ravel()])

    y0 = np.concatenate([first.ravel(), second.ravel()])
    y = solve_ivp(velocity, (0, times[-1]), y0, method="DOP853", rtol=1e-12, atol=1e-14, t_eval=times).y.T
    W1, W2 = y[:, :cut].reshape(-1, hidden, inputs), y[:, cut:].reshape(-1, outputs, hidden)
    Q = np.concatenate([W1.transpose(0, 2, 1), W2], axis=1)
    return Q @ Q.transpose(0, 2, 1), W2 @ W1


def precise(S, first, second, imbalance, time):
    """Q Q^T by equation 5, with enough digits for its cancellations."""
    outputs, inputs = S.shape
    size, hidden = inputs + outputs, len(first)
    largest = np.linalg.norm(S, 2) + abs(imbalance)
    with mp.workdps(60 + int(2 * largest * time / np.log(10))):
        F = mp.zeros(size, size)
        for i in range(size):
            F[i, i] = mp.mpf(float(imbalance)) / (-2 if i < inputs else 2)
        for i, j in np.ndindex(outputs, inputs):
            F[inputs + i, j] = F[j, inputs + i] = mp.mpf(float(S[i, j]))
        rates, vectors = mp.eigsy(F)
        t = mp.mpf(float(time))
        X = vectors.T * mp.matrix(np.concatenate([first.T, second]).tolist())
        # An eigenvalue that is 0 comes out as round-off of the working precision; g is continuous there.
        g = [mp.expm1(2 * rate * t) / (2 * rate) if abs(rate) > mp.mpf(10) ** -40 else t for rate in rates]
        G = mp.matrix(
            [
                [(a == b) + mp.fsum(g[i] * X[i, a] * X[i, b] for i in range(size)) for b in range(hidden)]
                for a in range(hidden)
            ]
        )
        Y = vectors * mp.matrix([[mp.exp(rates[i] * t) * X[i, a] for a in range(hidden)] for i in range(size)])
        return np.array((Y * (mp.inverse(G) * Y.T)).tolist(), dtype=float)


def relative_error(got, wanted):
    """Largest difference over the largest entry, per time."""
    axes = (-2, -1)
    return np.abs(got - wanted).max(axis=axes) / np.abs(wanted).max(axis=axes)


TRAJECTORIES = [name for name, entry in GOLDEN.items() if "W1tW1" in entry["expected"]]


@pytest.mark.equation("braun2022 Eq. (6)")
@pytest.mark.equation("braun2022 Eq. (7)")
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_golden_trajectories(name):
    given, _, agrees = golden(name)
    flow = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"])
    t = given["t"] / given["tau"]
    first, function, second = blocks(flow.grams(t), given["W1"].shape[1])
    agrees(first, "W1tW1")
    agrees(second, "W2W2t")
    agrees(function, "W2W1")
    agrees(flow.network_functions(t), "W2W1")
    agrees(flow.losses(t), "excess_loss")
    # The weights in the file are rounded to 16 digits, and lambda is a difference of their squares.
    assert flow.imbalance == pytest.approx(given["lam"], abs=1e-13 * max(1.0, abs(given["lam"])))
    assert flow.balance_residual < ROUNDING


def test_golden_trajectories_are_all_there():
    assert len(TRAJECTORIES) == 9


def test_golden_separatrix():
    given, _, agrees = golden("separatrix_diag")
    flow = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"])
    agrees(flow.losses(given["t"]), "excess_loss")
    agrees(flow.network_functions(np.inf), "limit_W2W1")
    agrees(flow.final_loss, "limit_excess_loss")
    assert flow.lost_modes.tolist() == [2]


@pytest.mark.equation("braun2022 Eq. (13)")
@pytest.mark.parametrize("name", ["thm51", "thm51_singular_A0"])
def test_golden_decoupling(name):
    given, _, agrees = golden(name)
    S, A = np.diag(given["s"]), given["A0"]
    AtA, function, _ = blocks(BalancedFlow(S, A, A.T).grams(given["t"]), len(S))
    agrees(AtA, "AtA")
    agrees(function, "AtA")


def coupled(given):
    """The flow whose W2 W1 starts at [[a1, b], [b, a2]] on a task s I."""
    A = np.real(sqrtm([[given["a1"], given["b"]], [given["b"], given["a2"]]]))
    return BalancedFlow(given["s"] * np.eye(2), A, A.T)


def test_golden_peak_of_the_coupling():
    given, expected, agrees = golden("t_peak_0")
    flow = coupled(given)
    agrees(flow.network_functions(expected["t_peak"])[0, 1], "b_at_peak")
    # b'' / b is of order s^2 there, so a hundredth of a time unit lowers b by some 1e-5, far above round-off.
    around = flow.network_functions(expected["t_peak"] + np.array([-0.01, 0.0, 0.01]))[:, 0, 1]
    assert around[1] > around[0]
    assert around[1] > around[2]


def test_golden_coupling_without_a_peak():
    given, expected, _ = golden("t_peak_none")
    b = coupled(given).network_functions(np.linspace(0, 5, 200))[:, 0, 1]
    assert not expected["has_peak"]
    assert (np.diff(b) < 0).all()


def test_golden_diagonal_of_the_coupled_flow():
    given, _, agrees = golden("eq15")
    flow = coupled(given)
    agrees(flow.network_functions(given["t"])[:, 0, 0], "exact")
    agrees(flow.network_functions(np.inf)[0, 0], "exact_limit")


def test_golden_loss_and_similarity_of_data():
    given, expected, agrees = golden("data_ntk_rsm_loss")
    X, Y = given["X"], given["Y"]
    S = Y @ X.T / X.shape[1]
    agrees(S, "Sigma_yx")
    flow = BalancedFlow(S, given["W1"], given["W2"])
    agrees(flow.losses(given["t"]) + expected["loss_constant_c"], "loss")
    agrees(X.T @ flow.grams(given["t"])[: len(X), : len(X)] @ X, "RSM_I")


def test_golden_losses_after_other_tasks():
    given, _, agrees = golden("continual_matrix")
    tasks = given["tasks"]
    rng = np.random.default_rng(1)
    shared = 0.1 * orthonormal(rng, 4, 2)
    first, second = shared @ orthonormal(rng, 2, 2).T, orthonormal(rng, 3, 2) @ shared.T
    after = np.empty((3, 3))
    for j, task in enumerate(tasks):
        first, second = BalancedFlow(task, first, second).weights(np.inf)
        after[:, j] = [BalancedFlow(other, first, second).losses(0.0) for other in tasks]
    agrees(after, "L_i_after_j")
    agrees(after[0, 2] - after[0, 1], "forgetting_0_after_1_then_2")


def test_golden_reversal():
    given, _, agrees = golden("reversal_exact")
    flow = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"])
    agrees(flow.network_functions(given["t"]), "W2W1")
    agrees(flow.final_loss, "limit_excess_loss")
    agrees(flow.losses(np.inf), "limit_excess_loss")
    assert flow.lost_modes.tolist() == [0, 1]
    assert not flow.limit().any()


def test_golden_escape_from_the_saddle():
    given, expected, agrees = golden("reversal_escape_scalar")
    flow = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"], imbalance=given["lam"])
    agrees(flow.network_functions(given["t"])[:, 0, 0], "w")
    agrees(flow.network_functions(expected["t_half"])[0, 0], "t_half", scale=-2 * expected["t_half"])


def test_golden_zero_task():
    given, _, agrees = golden("zero_task_scalar")
    flow = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"])
    agrees(flow.network_functions(given["t"])[:, 0, 0], "w")
    assert not flow.limit().any()


@pytest.mark.parametrize(("name", "lost"), [("semantic_leaf_swap", 1), ("semantic_colour", 0)])
def test_golden_revised_hierarchies(name, lost):
    given, _, agrees = golden(name)
    old, new = (given[key] / np.sqrt(8) for key in ("Y_old", "Y_new"))  # Cov(y, x) for X = sqrt(8) I
    flow = BalancedFlow(new, *learned(old))
    agrees(flow.losses(given["t"]), "excess_loss")
    assert flow.lost_modes.size == lost
    if lost:
        agrees(flow.final_loss, "limit_excess_loss")
        agrees(flow.losses(np.inf), "limit_excess_loss")
    else:
        agrees(time_to(flow, 1e-4), "time_to_1e_4")


@pytest.mark.parametrize("name", ["convergence_time_0", "convergence_time_scalar"])
def test_golden_convergence_times(name):
    given, _, agrees = golden(name)
    agrees(time_to(BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"]), given["tol"]), "t")


@pytest.mark.parametrize("name", ["curriculum_direct", "curriculum_steps"])
def test_golden_curricula(name):
    given, _, agrees = golden(name)
    weights, spent = (given["W1"], given["W2"]), []
    for task in given["tasks"]:
        flow = BalancedFlow(task, *weights)
        spent.append(time_to(flow, given["tol"]))
        weights = flow.weights(spent[-1])
    agrees(spent, "stage_times")
    agrees(sum(spent), "total")


def test_golden_descent_reaches_the_flow():
    given, expected, agrees = golden("gd_order")
    function = BalancedFlow(given["Sigma_yx"], given["W1"], given["W2"]).network_functions(given["t"])
    agrees(function[None], "W2W1")
    gaps = np.abs(np.array(expected["W2W1_gd"]) - function).max(axis=(1, 2))
    agrees(gaps, "max_dev")
    slopes = np.diff(np.log(gaps)) / np.diff(np.log(given["eta_n"][:, 0]))
    # First order with a second-order term of relative size eta = 0.04.
    np.testing.assert_allclose(slopes, 1.0, atol=0.02)


def test_golden_limit_is_the_rich_solution():
    given, _, agrees = golden("rsm_converged")
    S = given["Sigma_yx"]
    rng = np.random.default_rng(3)
    shared = 0.3 * orthonormal(rng, 5, 2)
    flow = BalancedFlow(S, shared @ orthonormal(rng, 2, 2).T, orthonormal(rng, 3, 2) @ shared.T)
    Q = flow.limit()
    agrees(Q[:2] @ Q[:2].T, "W1tW1_limit")
    agrees(Q[2:] @ Q[2:].T, "W2W2t_limit")
    assert flow.lost_modes.size == 0


def pooled_task(inputs, mixing, correlation, timescale):
    """Cov(y, z) and sigma^2 = Var(z) of the input pooled by the recurrence, z = sum_t b^(T-t) x_t."""
    steps = np.arange(1, inputs["T"] + 1)
    covariance = np.empty((len(steps), len(steps)))
    for i, j in np.ndindex(covariance.shape):
        early, late = min(steps[i], steps[j]), max(steps[i], steps[j])
        covariance[i, j] = correlation ** (late - early) * sum(correlation ** (2 * k) for k in range(early))
    pool = inputs["b"] ** (inputs["T"] - steps)
    read = 0.2 * np.exp(-(inputs["T"] - steps) / timescale)
    return read @ covariance @ pool * np.array(mixing), pool @ covariance @ pool


@pytest.mark.parametrize("scaling", [0.0, 0.5, 1.0])
def test_golden_isotropic_inputs_are_a_change_of_units(scaling):
    """For Cov(z) = sigma^2 I keep the weights, divide S by sigma^2, multiply time by sigma^2.

    dW1 = W2^T (S - sigma^2 W2 W1) dt = W2^T (S / sigma^2 - W2 W1) d(sigma^2 t), and likewise W2. Weights may be
    scaled as well: a W, S a^2 / sigma^2 and sigma^2 t / a^2 are the same flow for any a; here a = sigma^scaling.
    """
    inputs = POOLED["rot_pooled"]["inputs"]
    expected = POOLED["rot_pooled"]["expected"]
    first = np.vstack([np.diag([0.2, 0.15, 0.1]), np.zeros((5, 3))])
    second = first.T
    stages = [("A_task1", 0.4, 4.0, 0.8, "rot_QQT_task1"), ("A_task2", 0.1, 8.0, 0.5, "rot_QQT_task1_then_2")]
    for number, (mixing, correlation, timescale, time, name) in enumerate(stages, start=1):
        S, power = pooled_task(inputs, inputs[mixing], correlation, timescale)
        # The tolerances of the golden entries.
        np.testing.assert_allclose(S, expected[f"Syz{number}"], rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(power, expected[f"sig2_{number}"], rtol=1e-11)
        a = power ** (scaling / 2)
        flow = BalancedFlow(S * a**2 / power, a * first, a * second)
        wanted, allowed = np.array(POOLED[name]["expected"]), POOLED[name]
        np.testing.assert_allclose(
            flow.grams(power * time / a**2) / a**2, wanted, rtol=allowed["rtol"], atol=allowed["atol"]
        )
        first, second = (W / a for W in flow.weights(power * time / a**2))


SEEDS = range(8)
PER_SEED = 40


def sample(seed):
    rng = np.random.default_rng([2022, seed])
    return [random_network(rng) for _ in range(PER_SEED)]


@pytest.mark.equation("braun2022 Eq. (5)")
@pytest.mark.parametrize("seed", SEEDS)
def test_any_architecture_follows_the_gradient(seed):
    times = np.array([0.05, 0.5, 2.0, 4.0])
    for S, first, second, imbalance in sample(seed):
        flow = BalancedFlow(S, first, second)
        grams, functions = integrated(S, first, second, times)
        # The integrator makes 1e-12 per step, which grows along unstable directions; measured: 4e-11, all of it the
        # integrator's (high precision agrees to 1e-14 there).
        assert relative_error(flow.grams(times), grams).max() < 1e-10
        # W2 W1 is a block of the same matrix, compared on that matrix's scale.
        size = np.abs(grams).max(axis=(1, 2))
        assert (np.abs(flow.network_functions(times) - functions).max(axis=(1, 2)) < 1e-10 * size).all()
        excess = 0.5 * ((functions - S) ** 2).sum(axis=(1, 2))
        np.testing.assert_allclose(flow.losses(times), excess, rtol=1e-9, atol=1e-10 * size.max() ** 2)
        # lambda is a difference of squares of the weights.
        assert flow.imbalance == pytest.approx(imbalance, abs=ROUNDING * np.linalg.norm(first) ** 2 + ROUNDING)
        assert (flow.imbalance == 0.0) is (imbalance == 0.0)
        assert flow.balance_residual < ROUNDING


def test_random_problems_cover_all_kinds():
    networks = [network for seed in SEEDS for network in sample(seed)]
    assert len(networks) >= 300
    bottleneck = sum(len(first) < np.linalg.matrix_rank(S) for S, first, *_ in networks)
    deficient = sum(np.linalg.matrix_rank(S) < min(S.shape) for S, *_ in networks)
    signs = [sum(np.sign(imbalance) == sign for *_, imbalance in networks) for sign in (-1, 0, 1)]
    wide = sum(S.shape[0] < S.shape[1] for S, *_ in networks)
    assert min(bottleneck, deficient, *signs, wide, len(networks) - wide) > 20


@pytest.mark.equation("braun2022 Eq. (5)")
@pytest.mark.parametrize("size", [0.3, 3.0, 30.0, 300.0])
def test_small_networks_against_many_digits(size):
    rng = np.random.default_rng(11)
    for _ in range(12):
        S, first, second, imbalance = random_network(rng, most=4)
        time = size / max(np.linalg.norm(S, 2), abs(imbalance), 0.1)
        wanted = precise(S, first, second, imbalance, time)
        got = BalancedFlow(S, first, second, imbalance=imbalance).grams(time)
        # Some ten roundings, amplified where a start comes near a separatrix; measured: 2e-15.
        assert relative_error(got, wanted) < 3e-14


STIFF = {
    # Singular values, scale of the start, imbalance, time. The fast mode is done, the slow one half-way.
    "s t = 1e4": ([1.0, 1e-3], 1e-6, 0.0, 1e4),
    "s t = 3e3": ([3.0, 3e-4], 0.02, 0.0, 1e3),
    "large imbalance": ([1.0, 0.01], 0.1, 20.0, 0.05),
    "large negative imbalance": ([1.0, 0.01], 0.1, -20.0, 0.05),
    "tiny imbalance, long done": ([1.0, 0.5], 0.1, 1e-9, 200.0),
}


@pytest.mark.slow_cases("s t = 1e4")
@pytest.mark.equation("braun2022 Eq. (11)")
@pytest.mark.parametrize("case", STIFF)
def test_stiff_and_late(case):
    values, scale, imbalance, time = STIFF[case]
    rng = np.random.default_rng(5)
    S = (orthonormal(rng, 2, 2) * values) @ orthonormal(rng, 2, 2).T
    first = scale * rng.standard_normal((2, 2))
    second = orthonormal(rng, 2, 2) @ root(first @ first.T)
    if imbalance > 0:
        second = orthonormal(rng, 2, 2) @ root(first @ first.T + imbalance * np.eye(2))
    elif imbalance < 0:
        first = root(second.T @ second - imbalance * np.eye(2)) @ orthonormal(rng, 2, 2)
    if np.linalg.det(second @ first) * np.linalg.det(S) < 0:
        second[0] *= -1  # on the side from which both modes are learned
    flow = BalancedFlow(S, first, second, imbalance=imbalance)
    wanted = precise(S, first, second, imbalance, time)
    # Relative to the largest weight; measured: 1e-15.
    assert relative_error(flow.grams(time), wanted) < 1e-14
    # The slow mode alone, on its own scale: roundings of S move its s t by up to eps s_max t = 2e-12; measured: 1e-13.
    U, _, Vt = np.linalg.svd(S)
    slow = wanted[2:, :2]
    got, exact = (U[:, 1] @ function @ Vt[1] for function in (flow.network_functions(time), slow))
    assert got == pytest.approx(exact, rel=1e-12)


@pytest.mark.slow_cases(*(f"{distance}-{gap}-4-7" for distance in (0.1, 1e-3, 1e-6) for gap in (1.0, 1e-2, 1e-6)))
@pytest.mark.parametrize(("size", "seed"), [(3, 1), (4, 7)])
@pytest.mark.parametrize("gap", [1.0, 1e-2, 1e-6, 0.0])
@pytest.mark.parametrize("distance", [1e-1, 1e-3, 1e-6, 1e-10])
def test_near_a_separatrix_with_nearly_equal_modes(distance, gap, size, seed):
    # Rows that are small at first and then dominate, in competition with equally fast ones, are what one fixed pivot
    # order cannot do: without a new order for such times C is singular to working precision.
    rng = np.random.default_rng(seed)
    values = np.array([2.0, 2.0 - gap, 2.0 - 2 * gap, 0.7])[:size]
    U, V, turn = orthonormal(rng, size, size), orthonormal(rng, size, size), rng.standard_normal((size, size))
    reflected = np.diag([-1.0, -1.0, 1.0, 1.0][:size]) @ expm(distance * (turn - turn.T))
    S = (U * values) @ V.T
    first = 0.3 * rng.standard_normal((size, size))
    second = U @ reflected @ V.T @ first.T
    flow = BalancedFlow(S, first, second, imbalance=0.0)
    for time in (1.0, 6.0, 20.0, 60.0):
        # A rounding of the weights is eps / distance of their distance from the separatrix, which the network feels
        # once that distance has grown by exp(s t); measured: a quarter of this.
        allowed = 40 * EPS * min(1 / distance, np.exp(2 * time))
        assert relative_error(flow.grams(time), precise(S, first, second, 0.0, time)) < allowed


def printed_equation_11(S, first, second, t):
    """Theorem 3.1 as printed, for invertible B."""
    rank = min(S.shape)
    U, s, Vt = np.linalg.svd(second @ first)
    U, s, V = U[:, :rank], s[:rank], Vt[:rank].T
    task_U, task_s, task_Vt = np.linalg.svd(S)
    U_rest, V_rest = task_U[:, rank:], task_Vt[rank:].T
    task_U, task_V = task_U[:, :rank], task_Vt[:rank].T
    B, C = U.T @ task_U + V.T @ task_V, U.T @ task_U - V.T @ task_V
    fall, inverse = np.diag(np.exp(-task_s * t)), np.linalg.inv(B)
    one, over = np.eye(rank), np.diag(1 / task_s)
    rest = V.T @ V_rest @ V_rest.T @ V + U.T @ U_rest @ U_rest.T @ U
    middle = (
        4 * fall @ inverse @ np.diag(1 / s) @ inverse.T @ fall
        + (one - fall**2) @ over
        - fall @ inverse @ C @ (fall**2 - one) @ over @ C.T @ inverse.T @ fall
        + 4 * t * fall @ inverse @ rest @ inverse.T @ fall
    )
    turned = fall @ C.T @ inverse.T @ fall
    Z = np.vstack(
        [
            task_V @ (one - turned) + 2 * V_rest @ V_rest.T @ V @ inverse.T @ fall,
            task_U @ (one + turned) + 2 * U_rest @ U_rest.T @ U @ inverse.T @ fall,
        ]
    )
    return Z @ np.linalg.inv(middle) @ Z.T


@pytest.mark.equation("braun2022 Eq. (11)")
@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (3, 5)])
def test_printed_theorem_where_it_holds(sizes):
    inputs, outputs = sizes
    rng = np.random.default_rng(0)
    checked = 0
    while checked < 10:
        S = rng.standard_normal((outputs, inputs))
        rank = min(sizes)
        shared, strengths = orthonormal(rng, 6, rank), rng.uniform(0.3, 1.0, rank)
        first = (shared * strengths) @ orthonormal(rng, inputs, rank).T
        second = (orthonormal(rng, outputs, rank) * strengths) @ shared.T
        flow = BalancedFlow(S, first, second)
        if flow.lost_modes.size:
            continue
        checked += 1
        for t in (0.0, 0.3, 1.0, 5.0):
            # The print loses eps cond(B)^2, and cond(B) reaches 50 in this sample; measured: 6e-13.
            assert relative_error(flow.grams(t), printed_equation_11(S, first, second, t)) < 1e-11


@pytest.mark.equation("braun2022 Eq. (5)")
def test_printed_riccati_solution_where_it_holds():
    rng = np.random.default_rng(2)
    S = np.diag([1.5, 0.8, 0.4]) @ orthonormal(rng, 3, 3)
    first = 0.3 * rng.standard_normal((4, 3))
    second = orthonormal(rng, 3, 3) @ first.T
    Q, F = np.vstack([first.T, second]), np.block([[np.zeros((3, 3)), S.T], [S, np.zeros((3, 3))]])
    flow = BalancedFlow(S, first, second)
    for t in (0.1, 1.0, 3.0):
        E, inverse = expm(F * t), np.linalg.inv(F)
        printed = E @ Q @ np.linalg.inv(np.eye(4) + Q.T @ (E @ inverse @ E - inverse) @ Q / 2) @ Q.T @ E
        # The print cancels terms of size exp(2 s t) = 1e4; measured: 3e-14.
        assert relative_error(flow.grams(t), printed) < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_limit_at_infinity(seed):
    rng = np.random.default_rng([3, seed])
    for _ in range(25):
        S, first, second, _ = random_network(rng)
        flow = BalancedFlow(S, first, second)
        late = flow.grams([1e300, np.inf])
        assert np.isfinite(late).all()
        # Where F has eigenvalue 0 the weights still fall as 1 / t: 1e-300.
        np.testing.assert_allclose(late[0], late[1], rtol=0, atol=1e-290)
        size = max(np.abs(late).max(), np.abs(S).max(initial=0.0))
        np.testing.assert_allclose(flow.losses(np.inf), flow.final_loss, rtol=0, atol=ROUNDING * max(size, 1.0) ** 2)
        Q = flow.limit()
        np.testing.assert_allclose(Q @ Q.T, late[1], rtol=0, atol=ROUNDING * max(size, 1.0))
        # A rest point: the velocity vanishes, saddle or not.
        W1, W2 = flow.weights(np.inf)
        error = S - W2 @ W1
        assert max(np.abs(W2.T @ error).max(), np.abs(error @ W1.T).max()) < ROUNDING * max(size, 1.0) ** 1.5


def test_opposite_determinants_lose_the_weakest_mode():
    rng = np.random.default_rng(9)
    lost = 0
    for _ in range(60):
        size = int(rng.integers(1, 7))
        S = (orthonormal(rng, size, size) * rng.uniform(0.3, 2.0, size)) @ orthonormal(rng, size, size)
        first = 0.2 * rng.standard_normal((size, size))
        second = orthonormal(rng, size, size) @ first.T
        flow = BalancedFlow(S, first, second)
        weakest = np.linalg.svd(S, compute_uv=False)[-1]
        opposite = np.linalg.det(second @ first) * np.linalg.det(S) < 0
        lost += opposite
        assert flow.lost_modes.tolist() == ([size - 1] if opposite else [])
        assert flow.final_loss == pytest.approx(weakest**2 / 2 if opposite else 0.0, rel=ROUNDING)
        assert flow.losses(np.inf) == pytest.approx(flow.final_loss, abs=ROUNDING)
    # Half of random starts: 60 fair coins fall outside 15..45 with probability 1e-4, and the seed is fixed.
    assert 15 <= lost <= 45


def test_round_off_leaves_the_saddle_without_tolerance():
    given, *_ = golden("separatrix_diag")
    turned = orthonormal(np.random.default_rng(4), 3, 3)
    S, first, second = turned @ given["Sigma_yx"], given["W1"], turned @ given["W2"]
    kept = BalancedFlow(S, first, second, separatrix_tolerance=0.0)
    assert BalancedFlow(S, first, second).lost_modes.tolist() == [2]
    assert kept.losses(10.0) == pytest.approx(0.125, abs=1e-3)
    assert kept.lost_modes.size == 0
    assert kept.losses(np.inf) == pytest.approx(0.0, abs=ROUNDING)


@pytest.mark.parametrize("size", [2, 5])
def test_reversal_ends_on_the_saddle(size):
    S = np.random.default_rng(size).standard_normal((size + 1, size))
    flow = BalancedFlow(S, *BalancedFlow(-S, *learned(-S, hidden=size + 2)).weights(3.0))
    assert flow.lost_modes.tolist() == list(range(size))
    assert flow.final_loss == pytest.approx(0.5 * (S**2).sum(), rel=ROUNDING)
    assert flow.losses(np.inf) == pytest.approx(flow.final_loss, rel=ROUNDING)
    s = flow.singular_values
    # Each mode alone: s / (2 exp(2 s t) - 1).
    strengths = np.linalg.svd(flow.network_functions(0.7), compute_uv=False)
    np.testing.assert_allclose(np.sort(strengths), np.sort(s / (2 * np.exp(1.4 * s) - 1)), rtol=1e-12)


def test_a_bottleneck_learns_the_strongest_modes():
    rng = np.random.default_rng(8)
    S = rng.standard_normal((6, 5))
    shared = 0.1 * orthonormal(rng, 2, 2)
    flow = BalancedFlow(S, shared @ orthonormal(rng, 5, 2).T, orthonormal(rng, 6, 2) @ shared.T)
    U, s, Vt = np.linalg.svd(S)
    assert flow.lost_modes.tolist() == [2, 3, 4]
    np.testing.assert_allclose(flow.network_functions(np.inf), (U[:, :2] * s[:2]) @ Vt[:2], atol=ROUNDING)
    assert flow.final_loss == pytest.approx(0.5 * (s[2:] ** 2).sum(), rel=ROUNDING)


def test_tied_modes_share_a_bottleneck():
    # Two equal modes and one hidden unit: the flow ends on the mixture its start points to, not on either mode.
    first, second = np.array([[0.3, 0.1]]), np.array([[0.2], [0.4]])
    second *= np.linalg.norm(first) / np.linalg.norm(second)
    flow = BalancedFlow(1.5 * np.eye(2), first, second)
    direction = first.ravel() + second.ravel()
    wanted = 1.5 * np.outer(direction, direction) / (direction @ direction)
    np.testing.assert_allclose(flow.network_functions(np.inf), wanted, atol=ROUNDING)
    assert flow.lost_modes.size == 1


@pytest.mark.parametrize("time", [100.0, 1e300, np.inf])
def test_a_mode_that_starts_much_smaller_than_one_of_equal_strength(time):
    # The first mode must not be a pivot: its 1e-9 would be all that tells the two hidden units apart.
    start = np.array([[1e-9, 0.0], [0.3, 0.2]])
    flow = BalancedFlow(1.5 * np.eye(2), start.T, start)
    np.testing.assert_allclose(flow.network_functions(time), 1.5 * np.eye(2), atol=ROUNDING)


SHARED = {
    # Singular values, then the modes' rows on the hidden units: three modes on two units, the fastest of them tiny.
    "nearly equal": ([2.0, 2.0 - 1e-6, 2.0 - 2e-6, 0.5], [[0.003, 0, 0], [0.3, 0.1, 0], [0.1, 0.3, 0], [0, 0, 0.2]]),
    "two equal": ([2.0, 1.5, 1.5, 0.5], [[3e-5, 0, 0], [0.3, 0.1, 0], [0.1, 0.3, 0], [0, 0, 0.2]]),
    "beside a nearly equal pair": (
        [2.0, 1.5, 1.4, 1.0, 1.0 - 1e-6, 0.5],
        [
            [3e-5, 0, 0, 0, 0],
            [0.3, 0.1, 0, 0, 0],
            [0.1, 0.3, 0, 0, 0],
            [0, 0, 0, 1e-3, 0],
            [0, 0, 0, 0.3, 0.1],
            [0, 0, 0.2, 0, 0],
        ],
    ),
}


@pytest.mark.parametrize("case", SHARED)
def test_round_off_counts_as_zero(case):
    # Exactly, the three modes stay on their two units for ever. Rotated weights have a round-off of 1e-17 elsewhere,
    # 1e-13 once the tiny row is taken out of the others, that would overtake the slow mode on its own unit by t = 60.
    values, start = SHARED[case]
    S, start, size = np.diag(values), np.array(start), len(values)
    rng = np.random.default_rng(0)
    U, V, H = (orthonormal(rng, n, n) for n in (size, size, start.shape[1]))
    flow = BalancedFlow(U @ S @ V.T, H @ start.T @ V.T, U @ start @ H.T)
    outer = np.block([[V, np.zeros((size, size))], [np.zeros((size, size)), U]])
    for time in (10.0, 30.0, 60.0):
        wanted = outer @ precise(S, start.T, start, 0.0, time) @ outer.T
        # The tiny row is known to eps / 3e-5.
        assert relative_error(flow.grams(time), wanted) < 1e-11
    assert flow.lost_modes.size == 1
    assert flow.lost_modes[0] in (1, 2)


def test_zero_weights_stay_zero():
    flow = BalancedFlow(np.ones((2, 3)), np.zeros((4, 3)), np.zeros((2, 4)))
    assert not flow.grams([0.0, 1.0, np.inf]).any()
    assert flow.weights(1.0)[0].shape == (4, 3)
    assert flow.balance_residual == 0.0
    np.testing.assert_allclose(flow.losses([0.0, np.inf]), 3.0, rtol=1e-15)


def test_the_start_is_returned_as_given():
    S, first, second, _ = random_network(np.random.default_rng(6))
    got = BalancedFlow(S, first, second).weights(0.0)
    np.testing.assert_array_equal(got[0], first)
    np.testing.assert_array_equal(got[1], second)
    kept = BalancedFlow(S, first, second)
    first *= 2.0
    np.testing.assert_array_equal(kept.weights(0.0)[0], first / 2)


@pytest.mark.parametrize(("inputs", "hidden", "outputs"), [(40, 38, 36), (80, 75, 70)])
def test_large_networks_agree_with_integration(inputs, hidden, outputs):
    # Sizes at which the triangular solves, then all products, are handed to BLAS in other portions.
    rng = np.random.default_rng(12)
    S = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
    shared = 0.2 * orthonormal(rng, hidden, outputs)
    first, second = shared @ orthonormal(rng, inputs, outputs).T, orthonormal(rng, outputs, outputs) @ shared.T
    flow, times = BalancedFlow(S, first, second), np.array([0.5, 2.0])
    grams, functions = integrated(S, first, second, times)
    # As for the small ones.
    assert relative_error(flow.grams(times), grams).max() < 1e-10
    assert relative_error(flow.network_functions(times), functions).max() < 1e-10
    np.testing.assert_allclose(flow.losses(times), 0.5 * ((functions - S) ** 2).sum(axis=(1, 2)), rtol=1e-10)


def test_one_hidden_unit_is_always_balanced():
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((1, 3)), rng.standard_normal((2, 1))
    flow = BalancedFlow(rng.standard_normal((2, 3)), first, second)
    assert flow.imbalance == pytest.approx((second**2).sum() - (first**2).sum())
    assert flow.balance_residual < ROUNDING


def test_zero_layers_are_balanced():
    flow = BalancedFlow(np.eye(2), np.zeros((3, 2)), np.zeros((2, 3)))
    assert flow.imbalance == 0
    assert flow.balance_residual == 0


def test_residual_of_unrelated_layers():
    rng = np.random.default_rng(1)
    for size in (5, 100):
        first, second = rng.standard_normal((2, size, size))
        assert 0.1 < BalancedFlow(np.eye(size), first, second).balance_residual < 1.0


def test_unused_hidden_units_do_not_affect_the_balance():
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((1, 3)), rng.standard_normal((4, 1))
    turn = orthonormal(rng, 3, 3)
    padded = turn @ np.vstack([first, np.zeros((2, 3))]), np.hstack([second, np.zeros((4, 2))]) @ turn.T
    S = rng.standard_normal((4, 3))
    small, wide = BalancedFlow(S, first, second), BalancedFlow(S, *padded)
    assert wide.imbalance == pytest.approx(small.imbalance, rel=1e-14)
    assert wide.balance_residual < ROUNDING
    np.testing.assert_allclose(wide.grams([0.3, 3.0]), small.grams([0.3, 3.0]), atol=ROUNDING)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"first_weights": np.ones((2, 4))}, "weights"),
        ({"second_weights": np.ones((2, 3))}, "weights"),
        ({"cross_covariance": np.ones(3)}, "cross_covariance"),
        ({"first_weights": np.full((2, 3), np.nan)}, "first_weights"),
        ({"separatrix_tolerance": -1.0}, "separatrix_tolerance"),
        ({"imbalance": np.inf}, "imbalance"),
    ],
)
def test_invalid_starts_raise(change, field):
    given = {"cross_covariance": np.ones((4, 3)), "first_weights": np.ones((2, 3)), "second_weights": np.ones((4, 2))}
    with pytest.raises(InvalidSpec) as error:
        BalancedFlow(**(given | change))
    assert error.value.field == field


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda flow: flow.losses([0.0, -1.0]), "times"),
        (lambda flow: flow.weights(np.nan), "times"),
        (lambda flow: flow.factor([1.0, 2.0]), "time"),
    ],
)
def test_invalid_times_raise(call, field):
    with pytest.raises(InvalidSpec) as error:
        call(BalancedFlow([[1.0]], [[0.1]], [[0.1]]))
    assert error.value.field == field


@pytest.mark.parametrize(("inputs", "hidden", "outputs"), [(3, 2, 5), (6, 7, 4), (80, 60, 70)])
def test_course_equals_its_parts(inputs, hidden, outputs):
    rng = np.random.default_rng(3)
    shared, wide = 0.4 * rng.standard_normal((hidden, min(inputs, outputs))), min(inputs, outputs)
    first, second = shared @ orthonormal(rng, inputs, wide).T, orthonormal(rng, outputs, wide) @ shared.T
    flow = BalancedFlow(rng.standard_normal((outputs, inputs)), first, second)
    times = np.array([0.0, 0.3, 2.0, np.inf])
    grams, strengths, losses = flow.course(times)
    U, V = flow.modes
    np.testing.assert_array_equal(grams, flow.grams(times))
    np.testing.assert_array_equal(grams, np.swapaxes(grams, 1, 2))
    expected = np.einsum("mk,tmn,nk->tk", U, flow.network_functions(times), V, optimize=True)
    np.testing.assert_allclose(strengths, expected, atol=1e3 * EPS)
    np.testing.assert_allclose(losses, flow.losses(times), rtol=1e-11, atol=1e-20)


# --- near a separatrix -----------------------------------------------------------------------------------------------


def near_separatrix(angle):
    """Zero-balanced layers opposed to the strongest mode up to a small angle."""
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in range(2))
    return (U * [1.0, 0.5]) @ V.T, 0.3 * V.T, 0.3 * U @ np.array([[-1.0, -angle], [-angle, 1.0]])


def riccati(S, first, second, time):
    """W2 W1 by the solution of P' = F P + P F - P^2 with sixty digits, the imbalance included."""
    with mp.workdps(60):
        S, V, U = (mp.matrix(m.tolist()) for m in (S, first.T, second))
        D = U.T * U - V.T * V
        half = (D[0, 0] + D[1, 1]) / 4
        F = mp.diag([-half, -half, half, half])
        F[2:, :2], F[:2, 2:] = S, S.T
        Q = mp.zeros(4, 2)
        Q[:2, :], Q[2:, :] = V, U
        L, T = mp.eigsy(F)
        grown = T * mp.diag([mp.exp(x * time) for x in L]) * T.T * Q
        spent = T * mp.diag([mp.expm1(2 * x * time) / (2 * x) for x in L]) * T.T
        P = grown * mp.inverse(mp.eye(2) + Q.T * spent * Q) * grown.T
        return np.array(P[2:, :2].tolist(), dtype=float)


@pytest.mark.parametrize("angle", [10.0**-k for k in range(4, 15)])
def test_accuracy_near_a_separatrix_is_that_of_the_start(angle):
    S, first, second = near_separatrix(angle)
    flow = BalancedFlow(S, first, second)
    # eight roundings; an angle of 1e-14 is exactly on the separatrix by its tolerance, 64 of them
    assert np.abs(flow.network_functions(0.0) - second @ first).max() <= (8 if angle > 1e-14 else 64) * EPS
    # until the mode has left the separatrix and is learned
    times = np.concatenate([[1e-8, 1e-3, 0.1], np.linspace(0.5, min(1.4 * np.log(1 / angle), 33.0), 12)])
    if angle == 1e-14:
        times = times[:5]
    for time, found in zip(times, flow.network_functions(times), strict=True):
        # A rounding of the start grows like exp(t) until the angle has; across it, where it is squared, for ever.
        allowed = 16 * EPS * min(np.exp(time), 1 / angle) + (EPS * np.exp(time)) ** 2
        if angle == 1e-14:
            allowed = 64 * EPS * np.exp(time)
        assert np.abs(found - riccati(S, first, second, time)).max() <= allowed
        # one time by itself may take another order of rows
        np.testing.assert_allclose(flow.network_functions(time), found, rtol=0, atol=allowed)


def test_limit_of_a_start_near_a_separatrix():
    S, first, second = near_separatrix(1e-11)
    flow = BalancedFlow(S, first, second)
    U, s, Vt = np.linalg.svd(S)
    assert flow.lost_modes.tolist() == [1]
    expected = s[0] * np.outer(U[:, 0], Vt[0])
    for time in (1e3, np.inf):
        np.testing.assert_allclose(flow.network_functions(time), expected, rtol=0, atol=ROUNDING)
        weights = flow.weights(time)
        np.testing.assert_allclose(weights[1] @ weights[0], expected, rtol=0, atol=ROUNDING)
    assert flow.losses(np.inf) == pytest.approx(flow.final_loss, rel=1e-12)
