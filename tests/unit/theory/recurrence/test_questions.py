"""Order, stability, trade-off and feature learning: special cases, statuses and rejected arguments."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from learncast import InvalidSpec, LinearRNN, Status, Task, Training, TwoLayer, theory
from learncast.tasks import integration, sensory
from learncast.theory import mode_trajectory

LEAKY = 0.8 ** np.arange(10)


def rejected(field, call, error=InvalidSpec):
    """Check that a call raises an error about this argument; None for errors that other packages raise."""
    with pytest.raises(error) as caught:
        call()
    assert field is None or caught.value.field == field


def mode(a, b, c):
    return LinearRNN(np.full((1, 1), a), np.full((1, 1), b), np.full((1, 1), c))


# Order


def test_frozen_half_times_broadcast_and_have_a_status():
    found = theory.half_strength_time(
        np.stack([LEAKY, -LEAKY]), recurrence=[[0.5], [0.0]], input_weight=0.1, learning_rate=0.01
    )
    assert found.steps.shape == (2, 2)
    # With a = c the strength cannot become negative.
    assert (found.steps[:, 1] == np.inf).all()
    assert found.status[0].tolist() == [Status.ok, Status.not_learned]
    u0, P, Q = 0.01, LEAKY @ 0.5 ** np.arange(10), np.sum(0.25 ** np.arange(10))
    assert found.steps[0, 0] == pytest.approx(np.log((P / Q - u0) / u0) / (2 * P) / 0.01, rel=1e-13)


def test_a_start_beyond_half_the_optimum_takes_no_time():
    found = theory.half_strength_time(LEAKY, recurrence=0.8, input_weight=[0.9, 2.0])
    assert found.steps.tolist() == [0.0, 0.0]
    opposed = theory.half_strength_time(-LEAKY, recurrence=0.8, input_weight=0.9, output_weight=-0.9)
    assert opposed.steps == 0.0


def test_half_strength_times_without_input_are_unknown():
    for learned in (False, True):
        found = theory.half_loss_time(
            np.zeros(2), np.zeros((2, 2)), recurrence=0.5, input_weight=0.1, learn_recurrence=learned
        )
        assert found.steps == 0.0  # the loss is 0 from the start
    found = theory.half_strength_time(np.zeros(2), np.zeros((2, 2)), recurrence=0.5, input_weight=0.1)
    assert np.isnan(found.steps)
    assert found.status.item() is Status.outside_theory


@pytest.mark.parametrize(
    ("sig", "start", "steps", "status"),
    [
        (LEAKY, (0.0, 0.5, 0.0), math.inf, Status.not_learned),  # weights of zero
        (-LEAKY, (0.1, 0.5, 0.1), math.inf, Status.not_learned),  # u cannot change sign
        (sensory.impulse(10, 4).cross_covariance.dense()[::-1, 0, 0, 0], (0.3, 0.5, 0.3), math.inf, Status.not_learned),
        (
            sensory.evidence_delay(10, 3).cross_covariance.dense()[::-1, 0, 0, 0],
            (0.1, 0.0, 0.1),
            math.inf,
            Status.not_learned,
        ),
        (np.ones(2000), (0.5, 1.5, 0.5), math.nan, Status.diverged),  # overflow within one trial
    ],
)
def test_half_losses_that_are_not_reached(sig, start, steps, status):
    a, b, c = start
    found = theory.half_loss_time(sig, recurrence=b, input_weight=a, output_weight=c)
    np.testing.assert_equal(float(found.steps), steps)
    assert found.status.item() is status


def test_times_are_unknown_if_the_integration_stops(monkeypatch):
    monkeypatch.setattr("learncast.theory.dynamics.recurrent_mode.MOST_STEPS", 20)
    found = theory.half_loss_time(LEAKY, recurrence=0.5, input_weight=0.1)
    assert math.isnan(found.steps)
    assert found.status.item() is Status.outside_theory


def test_a_mode_at_a_higher_optimum_is_not_followed_further(monkeypatch):
    monkeypatch.setattr("learncast.theory.dynamics.recurrent_mode.DECADES", 2)  # too few to see that the mode rests
    found = theory.half_loss_time((np.arange(10) == 4).astype(float), recurrence=0.5, input_weight=0.3)
    assert found.steps == math.inf


def test_a_solver_failure_at_rest_is_ignored(monkeypatch):
    def failing(times, *given):
        path = mode_trajectory(times, *given)
        return path if np.max(times) < 1e4 else replace(path, status=np.array("diverged"))

    monkeypatch.setattr("learncast.theory.dynamics.recurrent_mode.mode_trajectory", failing)
    *_, last = theory.long_run(theory.ModeStart(0.1, 0.0, 0.1), np.array([1.0, 0.0, 2.0, 0.0, 0.0]), None)
    assert (str(last.path.status), last.moved) == ("ok", False)
    *_, lost = theory.long_run(theory.ModeStart(0.5, 0.0, 0.5), np.array([0.0, 0.0, 1.0, 1.0]), None)
    assert lost.path.status == "diverged"  # its strength still falls like 1 / time


def test_a_mode_that_is_still_moving_is_unknown(monkeypatch):
    monkeypatch.setattr("learncast.theory.dynamics.recurrent_mode.DECADES", 1)
    found = theory.half_loss_time(LEAKY, recurrence=0.5, input_weight=1e-6)
    assert math.isnan(found.steps)
    assert found.status.item() is Status.outside_theory


def test_half_loss_times_scale_with_the_learning_rate():
    one, slow = (theory.half_loss_time(LEAKY, recurrence=0.5, input_weight=0.1, learning_rate=r) for r in (1.0, 0.1))
    assert float(slow.steps) == pytest.approx(10 * float(one.steps), rel=1e-13)


def test_modes_of_one_shape_keep_their_order():
    found = theory.order_reversal(LEAKY, 2 * LEAKY, initial=0.1, learn_recurrence=False, high=1.0)
    assert math.isnan(found.recurrence)
    assert len(found.recurrences) == 0
    same = theory.order_reversal(LEAKY, LEAKY, initial=0.1, learn_recurrence=False)
    assert len(same.recurrences) == 0


def test_a_mode_that_is_never_learned_comes_last():
    late = sensory.impulse(4, 0).cross_covariance.dense()[::-1, 0, 0, 0]
    found = theory.order_reversal(late, -late, initial=0.1, low=0.1, high=0.9, points=3)
    assert len(found.recurrences) == 0
    assert math.isnan(found.recurrence)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.half_strength_time(LEAKY, recurrence=np.nan, input_weight=0.1), "recurrence"),
        (lambda: theory.half_strength_time([], recurrence=0.1, input_weight=0.1), "cross_strengths"),
        (
            lambda: theory.half_loss_time(LEAKY, recurrence=0.1, input_weight=0.1, learning_rate=0),
            "learning_rate",
        ),
        (lambda: theory.half_loss_time(LEAKY, np.eye(3), recurrence=0.1, input_weight=0.1), "input_strengths"),
        (lambda: theory.order_reversal(LEAKY, LEAKY[:4], initial=0.1), "second_strengths"),
        (lambda: theory.order_reversal(LEAKY, LEAKY, initial=0.0), "initial"),
        (lambda: theory.order_reversal(LEAKY, LEAKY, initial=0.1, low=1, high=0), "low"),
        (lambda: theory.order_reversal(LEAKY, LEAKY, initial=0.1, points=1), "points"),
    ],
)
def test_arguments_of_order_are_checked(call, field):
    rejected(field, call)


# Stability


def test_all_recurrences_are_equal_on_one_step():
    found = theory.best_recurrence([2.0])
    assert found.flat
    assert (found.best.recurrence, found.best.strength, found.best.loss) == (0.0, 2.0, 0.0)


def test_a_zero_target_has_a_flat_fit():
    found = theory.best_recurrence(np.zeros(4))
    assert found.flat
    assert found.best.strength == 0
    assert math.isnan(found.best.unexplained)
    assert theory.least_hidden_size(np.zeros(4)) == 0


def test_all_recurrences_are_equal_for_repeated_inputs():
    found = theory.best_recurrence(np.ones(6), np.ones((6, 6)))
    assert found.flat
    assert found.best.unexplained == pytest.approx(0, abs=1e-14)


def test_silent_steps_do_not_change_the_best_recurrence():
    # Evidence, then a delay without input: the best recurrence is a perfect integrator.
    sig = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    found = theory.best_recurrence(sig, np.diag(sig)).best
    assert (found.recurrence, found.strength, found.stability) == (1.0, 1.0, "marginal")
    early = theory.best_recurrence([1.0, 0.5, 0.0], np.diag([1.0, 1.0, 0.0])).best
    assert (early.recurrence, early.strength) == pytest.approx((0.5, 1.0))
    nothing = theory.best_recurrence(np.zeros(2), np.zeros((2, 2)))
    assert nothing.flat
    decayed = theory.best_recurrence([0.0, 1.0, 0.5], np.diag([0.0, 1.0, 1.0])).best
    assert (decayed.recurrence, decayed.strength) == pytest.approx((0.5, 2.0))  # u b = 1
    beyond = theory.best_recurrence([0.0, 1.0, 2.0], np.diag([0.0, 1.0, 1.0])).best
    assert (beyond.recurrence, beyond.strength) == pytest.approx((2.0, 0.5))


def test_optima_are_sorted_and_the_best_is_one_of_them():
    found = theory.best_recurrence(np.where(np.arange(50) == 0, 1.0, 0.121))
    recurrences = [o.recurrence for o in found.optima]
    assert recurrences == sorted(recurrences)
    assert found.best in found.optima
    assert found.best.loss == min(o.loss for o in found.optima)
    assert [o.stability for o in found.optima] == ["runaway", "stable", "stable"]


def test_of_tied_optima_the_positive_one_is_best():
    found = theory.best_recurrence((np.arange(10) == 4).astype(float))
    assert [round(o.recurrence, 3) for o in found.optima] == [-0.97, 0.97]
    assert found.best.recurrence > 0


@pytest.mark.parametrize("decay", [1e-6, 1e3, 1e5, -1e5])
def test_extreme_recurrences_have_full_precision(decay):
    sig = decay ** np.arange(4.0)
    assert theory.best_recurrence(sig / np.abs(sig).max()).best.recurrence == pytest.approx(decay, rel=1e-14)


def test_an_unexplainable_constant_stays_in_the_loss():
    found = theory.best_recurrence(LEAKY, constant=0.5 * LEAKY @ LEAKY + 1.0).best
    assert found.loss == pytest.approx(1.0)
    assert found.unexplained == pytest.approx(1.0 / (0.5 * LEAKY @ LEAKY + 1.0))


def test_least_hidden_size_ignores_noise_below_the_tolerance():
    noisy = LEAKY + 1e-12 * np.random.default_rng(0).normal(size=10)
    assert theory.least_hidden_size(noisy) == 1
    assert theory.least_hidden_size(LEAKY + 1e-6 * (noisy - LEAKY) / 1e-12) > 1


def test_responses_that_overflow_have_infinite_loss():
    found = theory.extrapolation(mode(1.0, 1.5, 0.5), np.ones(4000), [10, 4000], anchor="end")
    assert math.isfinite(found.loss[0])
    assert found.loss[1] == math.inf
    silent = theory.extrapolation(mode(1.0, 1.5, 0.0), np.ones(4000), [4000], anchor="end")
    assert silent.loss[0] in (2000.0, math.inf)
    family = theory.family_extrapolation(mode(1.0, 1.5, 0.5), sensory.leaky(), [10, 2000])
    assert family.loss[1] == math.inf


def test_the_loss_is_unknown_without_target_power():
    def family(steps):
        return Task(np.eye(steps)[:, None, :, None], np.ones((steps, 1, 1)))

    found = theory.family_extrapolation(mode(1.0, 1.0, 1.0), family, [3])
    assert math.isnan(found.loss[0])


def test_stable_rates_have_a_status():
    found = theory.largest_stable_rate(mode(1.0, 0.5, 1.0), sensory.leaky())
    assert found.status is Status.outside_theory
    assert theory.largest_stable_rate(mode(1.0, 0.8, 1.0), sensory.leaky()).status is Status.ok
    nothing = theory.largest_stable_rate(mode(0.0, 0.8, 0.0), steps=5)
    assert (nothing.learning_rate, nothing.sharpness) == (math.inf, 0.0)
    for given in ({"steps": 5}, {"task": sensory.leaky(5)}):
        burst = theory.largest_stable_rate(mode(1.0, 1e200, 1.0), **given)
        assert (burst.learning_rate, burst.status) == (0.0, Status.diverged)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.best_recurrence(np.ones((2, 3))), "cross_strengths"),
        (lambda: theory.best_recurrence([1.0, np.inf]), "cross_strengths"),
        (lambda: theory.best_recurrence([]), "cross_strengths"),
        (lambda: theory.best_recurrence(np.ones(2), -np.eye(2)), "input_strengths"),
        (lambda: theory.best_recurrence(np.ones(2), np.diag([1.0, 0.0])), "input_strengths"),
        (lambda: theory.best_recurrence(np.ones(2), [[1, 0], [1, 1]]), "input_strengths"),
        (lambda: theory.least_hidden_size(np.ones((3, 0, 1))), "cross_strengths"),
        (lambda: theory.extrapolation(mode(1, 1, 1), LEAKY, [11], anchor="end"), "strengths"),
        (lambda: theory.extrapolation(mode(1, 1, 1), LEAKY, [5], anchor="ends"), "anchor"),
        (lambda: theory.extrapolation(mode(1, 1, 1), LEAKY, [], anchor="end"), "horizons"),
        (lambda: theory.extrapolation(mode(1, 1, 1), LEAKY, [0], anchor="end"), "horizons"),
        (
            lambda: theory.extrapolation(LinearRNN.aligned(inputs=2), LEAKY, [5], anchor="end"),
            "strengths",
        ),
        (
            lambda: theory.family_extrapolation(mode(1, 1, 1), Task(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1))), [2]),
            None,
        ),
        (lambda: theory.largest_stable_rate(mode(1, 1, 1)), "steps"),
        (lambda: theory.largest_stable_rate(mode(1, 1, 1), sensory.leaky(), steps=3), "steps"),
        (lambda: theory.largest_stable_rate(mode(1, 1, 1), steps=0), "steps"),
        (lambda: theory.largest_stable_rate(mode(1, 1, 1), steps=2, learn=("inputs",)), "learn"),
        (
            lambda: theory.largest_stable_rate(LinearRNN.aligned(inputs=2), sensory.leaky()),
            None,
        ),
    ],
)
def test_arguments_of_stability_are_checked(call, field):
    rejected(field, call)


# Trade-off


def test_the_zero_recurrence_warning_gives_the_unexplained_share():
    warning = theory.zero_recurrence_warning(np.array([1.0, 0.0, 0.0, 1.5]))
    assert warning is not None
    assert "69.2%" in warning
    silent = theory.zero_recurrence_warning([0.0, 0.0, 1.0], np.diag([0.0, 1.0, 1.0]))
    assert silent is not None
    assert "100.0%" in silent
    assert theory.zero_recurrence_warning([1.0, 0.0, 1.5], recurrence=1e-3) is None
    assert theory.zero_recurrence_warning([1.0]) is None


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.loss_terms(np.nan, 1, 1, LEAKY), "input_weight"),
        (lambda: theory.loss_terms(1, 1, 1, 0.5), "cross_strengths"),
        (lambda: theory.transition(lambda x: LEAKY, 1.0, 0.0), "low"),
        (lambda: theory.transition(lambda x: LEAKY, 0.0, 1.0, points=1), "points"),
        (lambda: theory.transition(lambda x: [[x]], 0.0, 1.0), "cross_strengths"),
        (lambda: theory.late_pulse_transition(1), "steps"),
        (lambda: theory.two_pulse_transition(5, 5), "lag"),
        (lambda: theory.two_pulse_transition(5, 0), "lag"),
        (lambda: theory.zero_recurrence_warning(np.ones((2, 2))), "cross_strengths"),
    ],
)
def test_arguments_of_the_trade_off_are_checked(call, field):
    rejected(field, call)


# Feature learning


def test_kernel_change_from_and_to_zero():
    dead = theory.kernel_change(mode(0.0, 0.5, 0.0), mode(1.0, 0.5, 1.0), steps=3)
    assert dead.total.movement == math.inf
    assert math.isnan(dead.total.misalignment)
    forgot = theory.kernel_change(mode(1.0, 0.5, 1.0), mode(0.0, 0.5, 0.0), steps=3)
    assert forgot.total.movement == 1.0
    one = theory.kernel_change(mode(1.0, 0.5, 1.0), mode(2.0, 0.5, 1.0), steps=1)
    assert math.isnan(one.blocks["recurrent"].movement)  # with one step there is no recurrence
    assert one.blocks["output"].movement == pytest.approx(3.0)
    assert one.blocks["output"].misalignment == 0.0


def test_only_the_weights_that_learn_are_compared():
    found = theory.kernel_change(mode(1, 0.5, 1), mode(1, 0.9, 1), steps=4, learn=("input", "output"))
    assert list(found.blocks) == ["input", "output"]


def test_small_misalignments_have_full_precision():
    found = theory.kernel_change(mode(1, 0.5, 1), mode(1, 0.5 + 1e-7, 1), steps=4)
    turned = theory.kernel_change(mode(1, 0.5, 1), mode(1, 0.5 + 1e-6, 1), steps=4)
    assert 0 < found.total.misalignment < 1e-12
    assert turned.total.misalignment / found.total.misalignment == pytest.approx(100, rel=1e-3)


def test_feature_learning_reports_divergence():
    task = sensory.leaky(5)
    wild = theory.feature_learning(task, mode(1.0, 0.9, 1.0), learning_rate=100.0)
    assert wild.status is Status.diverged
    assert wild.recurrent is None
    assert wild.losses[0] == math.inf


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: theory.kernel_change(mode(1, 1, 1), LinearRNN.aligned(), steps=2), "after"),
        (
            lambda: theory.kernel_change(*[TwoLayer(np.ones((1, 2)), np.ones((1, 1)))] * 2, steps=2),
            "after",
        ),
        (lambda: theory.kernel_change(mode(1, 1, 1), mode(1, 1, 1), learn=("all",)), "learn"),
        (lambda: theory.feedforward_control(mode(1, 1, 1), steps=0), "steps"),
        (
            lambda: theory.feature_learning(sensory.leaky(), mode(1, 1, 1), learning_rate=0.1, relative_loss=2),
            "relative_loss",
        ),
        (
            lambda: theory.feature_learning(sensory.leaky(), mode(1, 1, 1), learning_rate=0),
            "learning_rate",
        ),
        (
            lambda: theory.feature_learning(
                Task(np.eye(2)[:, None, :, None], np.ones((2, 1, 1))), mode(1, 1, 1), learning_rate=0.1
            ),
            None,
        ),
    ],
)
def test_arguments_of_feature_learning_are_checked(call, field):
    rejected(field, call)


# Networks and single modes


def test_best_mode_needs_single_channels():
    assert theory.best_mode(sensory.leaky(10)).recurrence == pytest.approx(0.8, rel=1e-9)
    rejected("task", lambda: theory.best_mode(integration(10, target_strength=[1.0, 2.0])))


def test_the_outlier_has_the_largest_modulus():
    network = LinearRNN(np.array([[1.0], [2.0]]), np.diag([0.5, -0.9]), np.array([[1.0, 1.0]]))
    assert theory.outlier(network) == pytest.approx(-0.9)


def test_descent_halves_the_loss_at_the_predicted_time():
    predicted = theory.half_loss_time(LEAKY, recurrence=0.6, input_weight=0.1).steps
    found = theory.descent_half_loss_time(sensory.leaky(10), mode(0.1, 0.6, 0.1), learning_rate=1e-4)
    assert found == pytest.approx(float(predicted), rel=2e-3)  # the error is of first order in the rate


def test_descent_stays_up_to_the_predicted_rate():
    solution, task = mode(1.0, 0.8, 1.0), sensory.leaky(10)
    predicted = theory.largest_stable_rate(solution, task).learning_rate
    rng = np.random.default_rng(0)
    weights = solution.input_weights, solution.recurrent_weights, solution.output_weights
    perturbed = LinearRNN(*(W + 1e-6 * rng.standard_normal(W.shape) for W in weights))
    low, high = 0.5 * predicted, 2.2 * predicted  # not centred on the prediction
    for _ in range(9):
        rate = math.sqrt(low * high)
        losses = theory.descend(task, perturbed, Training(rate, learn=("input", "recurrent", "output")), steps=300).loss
        unstable = not np.isfinite(losses).all() or losses.max() > 10 * losses[0]
        low, high = (low, rate) if unstable else (rate, high)
    found = math.sqrt(low * high)
    # Nine bisections of a factor of 4.4 leave 0.15%; growth within 300 steps adds 0.4%.
    assert found == pytest.approx(predicted, rel=6e-3)
