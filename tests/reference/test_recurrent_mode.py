"""Modes with learned recurrence against autograd, independent integration and golden numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import LSODA, solve_ivp
from scipy.optimize import brentq

from learncast import InvalidSpec
from learncast.theory import mode_flow, mode_loss, mode_trajectory


def golden(name):
    entries = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())["entries"]
    return {entry["id"]: entry for entry in entries}


RECURRENT, CURRICULUM = golden("recurrent"), golden("curriculum")
WEIGHTS = ("input", "recurrence", "output")


def rows(trajectory):
    return np.stack([getattr(trajectory, name) for name in WEIGHTS], axis=-1)


def random_modes(count, lags, seed):
    """Weights and the statistics of trials, so that the covariance is one and explains the targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 40, lags)) @ rng.normal(size=(count, lags, lags))
    y = (x @ rng.normal(size=(count, lags, 1)))[..., 0]
    a, b, c = rng.normal(size=count), rng.uniform(-1.3, 1.3, count), rng.normal(size=count)
    return (a, b, c), x, y


@pytest.mark.equation("curriculum2025 Eq. (35)")
@pytest.mark.equation("curriculum2025 Eq. (36)")
@pytest.mark.equation("curriculum2025 Eq. (37)")
@pytest.mark.parametrize("lags", [1, 2, 9])
def test_loss_and_flow_equal_backpropagation_on_trials(lags):
    torch = pytest.importorskip("torch")
    weights, x, y = random_modes(70, lags, seed=lags)
    a, b, c = (torch.tensor(w, requires_grad=True) for w in weights)
    h = torch.zeros(70, 40, dtype=torch.float64)
    for k in reversed(range(lags)):  # x holds lags: the last column is the first input
        h = b[:, None] * h + a[:, None] * torch.tensor(x[:, :, k])
    expected = 0.5 * ((c[:, None] * h - torch.tensor(y)) ** 2).mean(dim=1)
    expected.sum().backward()
    sig, S = np.einsum("mp,mpk->mk", y, x) / 40, np.einsum("mpj,mpk->mjk", x, x) / 40
    losses, flow = mode_loss(*weights, sig, S), mode_flow(*weights, sig, S)
    # The pseudo-inverse in the constant loses digits by the condition number of S, up to some 1e6 here.
    np.testing.assert_allclose(losses, expected.detach().numpy(), rtol=1e-8)
    losses = mode_loss(*weights, sig, S, constant=0.5 * (y**2).mean(axis=1))
    # The loss is a difference of terms as large as u² Q: rounding is relative to them.
    size = 0.5 * (y**2).mean(axis=1) + np.abs(losses)
    assert np.abs(losses - expected.detach().numpy()).max() <= 1e-13 * size.max()
    for derivative, weight in zip(flow, (a, b, c), strict=True):
        assert np.abs(derivative + weight.grad.numpy()).max() <= 1e-13 * np.abs(derivative).max()


def test_golden_loss_and_flow():
    entry = CURRICULUM["mode_flow_white"]
    given = entry["inputs"]
    arguments = (given["a"], given["b"], given["c"], given["s_yx"][::-1])  # the file is in time order
    np.testing.assert_allclose(mode_flow(*arguments), entry["expected"]["flow"], rtol=entry["rtol"])
    assert mode_loss(*arguments) == pytest.approx(entry["expected"]["E"], rel=entry["rtol"])
    for name, function in (("energy_white", mode_loss), ("flow_white", mode_flow)):
        entry = RECURRENT[name]
        given = entry["inputs"]
        measured = function(given["a"], given["b"], given["c"], given["sig"])
        np.testing.assert_allclose(measured, entry["expected"], rtol=entry["rtol"])


def test_golden_terms_of_the_loss():
    """Constant, data term and penalty, separated by their power of the output weight."""
    entry = RECURRENT["energy_terms_white"]
    given = entry["inputs"]
    nothing, plus, minus = (mode_loss(given["a"], given["b"], c, given["sig"]) for c in (0.0, given["c"], -given["c"]))
    terms = [nothing, (plus - minus) / 2, (plus + minus) / 2 - nothing]
    np.testing.assert_allclose(terms, entry["expected"], rtol=entry["rtol"])


@pytest.mark.parametrize("name", ["traj_leaky", "traj_integrate"])
def test_golden_trajectories(name):
    entry = RECURRENT[name]
    given = entry["inputs"]
    found = mode_trajectory(given["taus"], given["a0"], given["b0"], given["c0"], given["sig"])
    assert found.status == "ok"
    # The file promises 1e-7; both integrations run at 1e-12 or better.
    np.testing.assert_allclose(rows(found), entry["expected"], rtol=1e-9)


def test_golden_trajectory_of_a_curriculum_task():
    entry = CURRICULUM["mode_traj_white"]
    found = mode_trajectory([1, 5, 10, 20], 0.05, 0.5, 0.05, entry["inputs"]["s_yx"][::-1])
    np.testing.assert_allclose(rows(found), entry["expected"], rtol=1e-9)


@pytest.mark.parametrize("name", ["half_loss_order_b0_0.5", "half_loss_order_b0_1.0"])
def test_golden_order_of_learning(name):
    entry = RECURRENT[name]
    given = entry["inputs"]
    start = (given["a0"], given["b0"], given["c0"])

    def half_loss_time(sig):
        half = 0.5 * mode_loss(*start, sig)
        return brentq(
            lambda t: mode_trajectory(t, *start, sig).loss[0] - half, 0, 2 * max(entry["expected"]), rtol=1e-10
        )

    times = [half_loss_time(scale * np.array(given[order])) for scale in given["scales"] for order in ("late", "early")]
    np.testing.assert_allclose(times, entry["expected"], rtol=entry["rtol"])


def test_golden_unbounded_growth():
    entry = RECURRENT["impulse_earliest_runaway"]
    given, expected = entry["inputs"], entry["expected"]
    found = mode_trajectory(given["tau"], given["a0"], given["b0"], given["c0"], given["sig"])
    assert found.status == "ok"
    # The loss is some 1e-3 of terms of order 1, and stiff: 1e-8 is what the solver's 1e-10 leaves.
    assert found.recurrence[0] == pytest.approx(expected["b"], rel=1e-8)
    assert found.loss[0] == pytest.approx(expected["E"], rel=1e-8)
    much_later = mode_trajectory(1e10, given["a0"], given["b0"], given["c0"], given["sig"])
    assert much_later.recurrence[0] == pytest.approx((4e10) ** 0.25, rel=1e-6)  # next order: tau^(-1/2)


@pytest.mark.parametrize("name", ["extrap_geometric_end", "extrap_integrator_leak", "mean_target"])
def test_golden_extrapolation(name):
    """The loss on longer trials is the loss of the same mode with more lags."""
    entry = RECURRENT[name]
    given = entry["inputs"]
    if name == "extrap_geometric_end":
        found = [mode_loss(1.0, given["b"], given["u"], given["rho"] ** np.arange(T)) for T in given["T2"]]
    elif name == "extrap_integrator_leak":
        found = mode_loss(1.0, given["b"], given["u"], np.ones(given["T2"]))
    else:
        found = [mode_loss(1.0, 1.0, 1 / given["T"], np.full(T, 1 / T)) for T in given["T2"]]
    np.testing.assert_allclose(found, entry["expected"], rtol=entry["rtol"], atol=entry["atol"])


@pytest.mark.parametrize("name", ["best_fit_lin_increasing", "best_fit_delay3", "best_fit_impulse_lag4"])
def test_golden_best_fits_are_where_the_flow_rests(name):
    entry = RECURRENT[name]
    sig, best = np.array(entry["inputs"]["sig"]), entry["expected"]
    size = np.sqrt(best["u"])
    flow = mode_flow(size, best["b"], size, sig)
    # The golden recurrence is good to 1e-8 and the loss is some tens times as steep.
    np.testing.assert_allclose(flow, 0, atol=1e-6)
    loss = mode_loss(size, best["b"], size, sig)
    assert loss == pytest.approx(best["E"], rel=1e-8)
    assert loss / mode_loss(0, 0, 0, sig) == pytest.approx(best["rel"], rel=1e-8)


def test_golden_transitions_are_where_the_flow_rests():
    """In long trials, where b^T vanishes, at the best product u = P/Q."""

    def rest(b, sig):
        nothing, one, two = (float(mode_loss(1.0, b, u, sig)) for u in (0.0, 1.0, 2.0))
        Q = two - 2 * one + nothing
        u = (nothing - one + Q / 2) / Q
        return mode_flow(1.0, b, u, sig)[1], mode_loss(1.0, b, u, sig)

    lags = np.arange(400)  # .83^400 = 4e-33
    late = RECURRENT["late_pulse_inf"]
    pulse = np.where(lags == 0, 1.0, late["inputs"]["eps"])
    for name in ("b_ff", "b_barrier"):
        # The constant of this target is 5, of which rest() differs losses: 1e-12 is rounding.
        assert rest(late["expected"][name], pulse)[0] == pytest.approx(0, abs=1e-12)
    for m, (r, b) in zip((3, 4, 5), RECURRENT["two_pulse_inf"]["expected"], strict=True):
        two = np.where(lags == 0, 1.0, np.where(lags == m, r, 0.0))
        force, loss = rest(b, two)
        assert force == pytest.approx(0, abs=1e-12)
        assert loss == pytest.approx(mode_loss(1, 0, 1, two), rel=1e-12)  # ties with ignoring the past
    entry = RECURRENT["two_pulse_m2_continuous"]
    for r, b in zip(entry["inputs"]["r"], entry["expected"], strict=True):
        two = np.where(lags == 0, 1.0, np.where(lags == 2, r, 0.0))
        assert rest(b, two)[0] == pytest.approx(0, abs=1e-12)


def independent(taus, start, sig, S):
    """Integrate (a, b, c) as the theory writes the flow, with an explicit high-order solver."""
    k = np.arange(len(sig))

    def flow(_, y):
        a, b, c = y
        v = b**k
        w = np.concatenate([[0.0], k[1:] * v[:-1]])
        error = sig @ v - a * c * (v @ S @ v)
        return [c * error, a * c * (sig @ w) - (a * c) ** 2 * (v @ S @ w), a * error]

    found = solve_ivp(flow, (0, taus[-1]), start, method="DOP853", t_eval=taus, rtol=1e-13, atol=1e-16)
    assert found.success
    return found.y.T


@pytest.mark.parametrize(
    "start", [(0.1, 0.5, 0.1), (0.4, 0.3, -0.2), (0.1, -0.3, 0.5), (0.2, 0.6, 0.0), (-0.3, 0.4, -0.3)]
)
def test_trajectory_with_correlated_inputs_equals_independent_integration(start):
    taus = np.array([0.5, 1.0, 2.0, 4.0])
    k = np.arange(6)
    S = 0.5 ** np.abs(np.subtract.outer(k, k))
    sig = S @ 0.7**k
    found = mode_trajectory(taus, *start, sig, S)
    # Both solvers control errors of 1e-13 a step over some hundreds of steps; growth amplifies them.
    np.testing.assert_allclose(rows(found), independent(taus, start, sig, S), rtol=1e-9)
    np.testing.assert_allclose(found.input**2 - found.output**2, start[0] ** 2 - start[2] ** 2, atol=1e-14)
    np.testing.assert_allclose(found.loss, mode_loss(*rows(found).T, sig, S), rtol=1e-12)
    assert (np.diff(found.loss) < 0).all()


def test_opposed_weights_decay_and_never_cross_zero():
    """With a = -c the product u stays negative; an integration of a, b, c drifts through zero and learns."""
    found = mode_trajectory([1, 10, 100], 0.3, 0.5, -0.3, 0.8 ** np.arange(10))
    assert (found.input > 0).all()
    np.testing.assert_array_equal(found.output, -found.input)
    assert found.input[-1] < 1e-20


def test_zero_weights_stay_zero():
    found = mode_trajectory([0, 1, 100], 0.0, 0.3, 0.0, np.ones(4))
    np.testing.assert_array_equal(rows(found), np.tile([0.0, 0.3, 0.0], (3, 1)))
    assert found.status == "ok"


def test_batches_equal_modes_one_at_a_time():
    (a, b, c), x, y = random_modes(4, 5, seed=3)
    sig, S = np.einsum("mp,mpk->mk", y, x) / 40, np.einsum("mpj,mpk->mjk", x, x) / 40
    times = [0, 0.01, 0.1]
    together = mode_trajectory(times, a[:, None], b[:, None], [0.2, -0.4], sig[:, None], S[:, None])
    assert together.input.shape == (4, 2, 3)
    for m in range(4):
        for n, c in enumerate((0.2, -0.4)):
            alone = mode_trajectory(times, a[m], b[m], c, sig[m], S[m])
            for name in (*WEIGHTS, "loss"):
                np.testing.assert_array_equal(getattr(together, name)[m, n], getattr(alone, name))
    assert rows(together)[:, 0, 0].tolist() == np.stack([a, b, np.full(4, 0.2)], axis=1).tolist()


def test_integration_can_be_continued():
    sig = 0.8 ** np.arange(10)
    straight = rows(mode_trajectory([1.0, 3.0], 0.1, 0.5, 0.2, sig))
    stop = straight[0]
    # A restart repeats the solver's 1e-10, amplified by less than 10.
    np.testing.assert_allclose(rows(mode_trajectory(2.0, *stop, sig))[0], straight[1], rtol=1e-9)


@pytest.mark.parametrize("input_strength", [0.0, -1.0])
def test_unbounded_loss_is_reported_as_divergence(input_strength):
    found = mode_trajectory([0.01, 100.0], 0.5, 0.9, 0.5, np.ones(5), input_strength * np.eye(5), constant=1.0)
    assert found.status == "diverged"
    assert np.isfinite(rows(found)[0]).all()
    assert np.isnan(rows(found)[1]).all()
    assert np.isnan(found.loss[1])


def test_overflow_is_reported_as_divergence():
    assert mode_trajectory([1.0], 0.5, 1.5, 0.5, np.ones(2000)).status == "diverged"


def test_divergence_of_one_mode_does_not_affect_others():
    S = np.stack([np.zeros((5, 5)), np.eye(5)])
    found = mode_trajectory([100.0], 0.5, 0.9, 0.5, np.ones(5), S)
    assert found.status.tolist() == ["diverged", "ok"]
    assert found.recurrence[1, 0] == pytest.approx(1, rel=1e-9)


def test_too_many_solver_steps_are_reported(monkeypatch):
    monkeypatch.setattr("learncast.theory.dynamics.recurrent_mode.MOST_STEPS", 20)
    found = mode_trajectory([1e-9, 100.0], 0.5, 0.9, 0.5, np.ones(5))
    assert found.status == "unfinished"
    assert np.isfinite(rows(found)[0]).all()
    assert np.isnan(rows(found)[1]).all()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: mode_loss(1, 1, 1, 0.5), "cross_strengths"),
        (lambda: mode_loss(1, 1, 1, []), "cross_strengths"),
        (lambda: mode_flow(1, 1, 1, np.ones(3), np.eye(2)), "input_strengths"),
        (lambda: mode_flow(1, 1, 1, np.ones(2), [[1, 0], [1, 1]]), "input_strengths"),
        (lambda: mode_flow(np.nan, 1, 1, np.ones(2)), "input_weight"),
        (lambda: mode_trajectory([-1.0], 1, 1, 1, np.ones(2)), "times"),
        (lambda: mode_trajectory([2.0, 1.0], 1, 1, 1, np.ones(2)), "times"),
    ],
)
def test_invalid_arguments_raise(call, field):
    with pytest.raises(InvalidSpec) as error:
        call()
    assert error.value.field == field


@pytest.mark.parametrize(("a", "c"), [(0.7, 0.4), (0.4, -0.7), (0.5, 0.5), (0.5, -0.5)])
def test_jacobian_equals_differences_of_the_flow(monkeypatch, a, c):
    """A wrong Jacobian would only cost solver steps, which is otherwise unnoticed."""
    given = {}

    def solver(slope, *arguments, jac, **options):
        given.update(slope=slope, jacobian=jac)
        return LSODA(slope, *arguments, jac=jac, **options)

    monkeypatch.setattr("scipy.integrate.LSODA", solver)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    mode_trajectory([0.1], a, 0.6, c, rng.normal(size=4), root @ root.T)
    step = 1e-6
    for y in rng.normal(size=(5, 2)) * 0.7:
        moved = [(np.array(given["slope"](0, y + d)) - given["slope"](0, y - d)) / (2 * step) for d in step * np.eye(2)]
        expected = np.transpose(moved)
        # differences of second order know nine digits or so
        np.testing.assert_allclose(given["jacobian"](0, y), expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_tolerance_of_symmetry_is_relative(size):
    root = np.random.default_rng(1).normal(size=(3, 4, 4))
    S = size * root @ root.swapaxes(1, 2)
    S[1, 0, 1] *= 1 + 1e-12  # rounding
    mode_flow(1.0, 0.5, 1.0, np.ones(4), S)
    S[1, 0, 1] += 1e-5 * size
    with pytest.raises(InvalidSpec) as error:
        mode_flow(1.0, 0.5, 1.0, np.ones(4), S)
    assert error.value.field == "input_strengths"
