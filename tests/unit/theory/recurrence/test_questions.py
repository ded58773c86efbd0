"""Questions about learned recurrence: what is refused, and how every outcome that is not a number is told."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from learncast._core.errors import InvalidSpec, LearncastError, UnsupportedModel
from learncast.networks import LinearRNN, TwoLayer
from learncast.results import Status
from learncast.tasks import Task, integration, sensory
from learncast.theory.dynamics import recurrent_mode
from learncast.theory.recurrence import feature_learning, long_run, order, stability, tradeoff

LEAKY = 0.8 ** np.arange(10)


def refused(call, error=InvalidSpec):
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, LearncastError)
    assert all((caught.value.required, caught.value.got, caught.value.why, caught.value.remedy))
    return str(caught.value)


def mode(a, b, c):
    return LinearRNN(np.full((1, 1), a), np.full((1, 1), b), np.full((1, 1), c))


# Order


def test_frozen_half_times_broadcast_and_tell_their_status():
    found = order.half_strength_time(
        np.stack([LEAKY, -LEAKY]), recurrence=[[0.5], [0.0]], input_weight=0.1, learning_rate=0.01
    )
    assert found.steps.shape == (2, 2)
    # With a = c the strength cannot turn negative.
    assert (found.steps[:, 1] == np.inf).all()
    assert found.status[0].tolist() == [Status.ok, Status.not_learned]
    u0, P, Q = 0.01, LEAKY @ 0.5 ** np.arange(10), np.sum(0.25 ** np.arange(10))
    assert found.steps[0, 0] == pytest.approx(np.log((P / Q - u0) / u0) / (2 * P) / 0.01, rel=1e-13)


def test_a_start_beyond_half_the_optimum_needs_no_time():
    found = order.half_strength_time(LEAKY, recurrence=0.8, input_weight=[0.9, 2.0])
    assert found.steps.tolist() == [0.0, 0.0]
    opposed = order.half_strength_time(-LEAKY, recurrence=0.8, input_weight=0.9, output_weight=-0.9)
    assert opposed.steps == 0.0


def test_no_input_leaves_times_unknown():
    for learned in (False, True):
        found = order.half_loss_time(
            np.zeros(2), np.zeros((2, 2)), recurrence=0.5, input_weight=0.1, learn_recurrence=learned
        )
        assert found.steps == 0.0  # nothing was asked, and nothing is lost
    found = order.half_strength_time(np.zeros(2), np.zeros((2, 2)), recurrence=0.5, input_weight=0.1)
    assert np.isnan(found.steps)
    assert found.status.item() is Status.outside_theory


@pytest.mark.parametrize(
    ("sig", "start", "steps", "status"),
    [
        (LEAKY, (0.0, 0.5, 0.0), math.inf, Status.not_learned),  # weights of zero
        (-LEAKY, (0.1, 0.5, 0.1), math.inf, Status.not_learned),  # the wrong sign, for ever
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
def test_half_losses_that_are_never_reached(sig, start, steps, status):
    a, b, c = start
    found = order.half_loss_time(sig, recurrence=b, input_weight=a, output_weight=c)
    np.testing.assert_equal(float(found.steps), steps)
    assert found.status.item() is status


def test_an_integration_that_gives_up_is_unknown(monkeypatch):
    monkeypatch.setattr(recurrent_mode, "MOST_STEPS", 20)
    found = order.half_loss_time(LEAKY, recurrence=0.5, input_weight=0.1)
    assert math.isnan(found.steps)
    assert found.status.item() is Status.outside_theory
    end = tradeoff.end_of_training(LEAKY, recurrence=0.5, input_weight=0.1)
    assert math.isnan(end.recurrence)
    assert end.status is Status.outside_theory


def test_a_mode_that_arrived_elsewhere_is_not_followed_further(monkeypatch):
    monkeypatch.setattr(long_run, "DECADES", 2)  # too few to see that nothing moves
    found = order.half_loss_time((np.arange(10) == 4).astype(float), recurrence=0.5, input_weight=0.3)
    assert found.steps == math.inf


def test_a_solver_that_fails_where_nothing_moves_found_the_end(monkeypatch):
    """Steps of 1e12 are too long for it; the flow itself is at rest."""

    def failing(times, *given):
        path = recurrent_mode.mode_trajectory(times, *given)
        return path if np.max(times) < 1e4 else replace(path, status=np.array("diverged"))

    monkeypatch.setattr(long_run, "mode_trajectory", failing)
    end = tradeoff.end_of_training([1.0, 0.0, 2.0, 0.0, 0.0], recurrence=0.0, input_weight=0.1)
    assert (end.recurrence, end.status) == (0.0, Status.not_learned)
    lost = tradeoff.end_of_training(np.array([0.0, 0.0, 1.0, 1.0]), recurrence=0.0, input_weight=0.5)
    assert lost.status is Status.outside_theory  # its strength still falls, as one over time


def test_a_mode_that_is_still_moving_is_unknown(monkeypatch):
    monkeypatch.setattr(long_run, "DECADES", 1)
    found = order.half_loss_time(LEAKY, recurrence=0.5, input_weight=1e-6)
    assert math.isnan(found.steps)
    assert found.status.item() is Status.outside_theory


def test_half_loss_times_scale_with_the_learning_rate_and_shrink_with_the_share():
    times = [
        float(order.half_loss_time(LEAKY, recurrence=0.5, input_weight=0.1, share=share).steps)
        for share in (1.0, 0.9, 0.5, 0.1)
    ]
    assert times[0] == 0
    assert times == sorted(times)
    slow = order.half_loss_time(LEAKY, recurrence=0.5, input_weight=0.1, learning_rate=0.1)
    assert float(slow.steps) == pytest.approx(10 * times[2], rel=1e-13)


def test_modes_that_never_change_order():
    found = order.order_reversal(LEAKY, 2 * LEAKY, initial=0.1, learn_recurrence=False, high=1.0)
    assert math.isnan(found.recurrence)
    assert len(found.recurrences) == 0
    assert found.first_below == "second"
    same = order.order_reversal(LEAKY, LEAKY, initial=0.1, learn_recurrence=False)
    assert same.first_below == "neither"


def test_a_mode_that_is_never_learned_comes_last():
    late = sensory.impulse(4, 0).cross_covariance.dense()[::-1, 0, 0, 0]
    found = order.order_reversal(late, -late, initial=0.1, low=0.1, high=0.9, points=3)
    assert found.first_below == "first"
    assert math.isnan(found.recurrence)


def test_effective_start_of_an_aligned_network_is_itself():
    network = LinearRNN.aligned(recurrence=0.6, initial=0.2, hidden_size=5)
    assert order.effective_start(network) == pytest.approx((0.2, 0.6, 0.2))
    turned = order.effective_start(network, -LEAKY)
    assert turned == pytest.approx((0.0, 0.6, 0.0))  # aligned against the task, it never learns


def test_profiles_of_a_task_with_several_modes_and_targets_at_every_step():
    task = integration(4, input_strength=2.0, target_strength=[3.0, 1.0], targets="every_step")
    one, two = order.mode_profiles(task)
    # Lag k is seen by the 4 - k readouts that come k steps or more after the start.
    np.testing.assert_allclose(one.cross_strengths, 3.0 * np.arange(4, 0, -1))
    np.testing.assert_allclose(two.cross_strengths, 1.0 * np.arange(4, 0, -1))
    np.testing.assert_allclose(one.input_strengths, 2.0 * np.diag(np.arange(4, 0, -1)))


def test_learned_first_waits_for_the_slowest_mode():
    fast, mixed = integration(5, target_strength=[2.0, 2.0]), integration(5, target_strength=[8.0, 1.0], name="mixed")
    network = LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=3, inputs=2, outputs=2)
    found = order.learned_first(fast, mixed, network, learning_rate=0.1)
    assert found.first == "integration"
    assert found.status == (Status.ok, Status.ok)
    alone = order.half_loss_time(np.ones(5), recurrence=0.5, input_weight=0.1, learning_rate=0.1)
    assert found.steps[1] == pytest.approx(float(alone.steps), rel=1e-9)
    names = [a.name for a in found.assumptions]
    assert {"static_geometry", "aligned_start", "normal_recurrence"} <= set(names)


def test_learned_first_with_an_unaligned_network_says_so():
    rng = np.random.default_rng(0)
    network = LinearRNN(0.01 * rng.normal(size=(6, 1)), 0.4 * np.eye(6), 0.01 * rng.normal(size=(1, 6)))
    found = order.learned_first(sensory.leaky(), sensory.primacy(), network)
    assert found.first == "leaky"
    assert found.status == (Status.outside_theory, Status.outside_theory)


def test_reasons_for_ties_and_for_tasks_that_are_never_learned():
    same = order.learned_first(sensory.leaky(), sensory.leaky())
    assert same.first is None
    assert same.reason == "leaky and leaky (second) halve their loss together"
    stuck = sensory.evidence_delay(10, 3, name="delay 3"), sensory.evidence_delay(10, 2, name="delay 2")
    never = order.learned_first(*stuck, recurrence=0.0)
    assert never.reason == "delay 3 and delay 2 never halve their loss from this start"
    assert never.status == (Status.not_learned, Status.not_learned)
    one = order.learned_first(stuck[0], sensory.leaky(), recurrence=0.0)
    assert one.first == "leaky"
    assert "against never for delay 3" in one.reason
    lost = order.learned_first(sensory.integrate(1000), sensory.integrate(3), recurrence=1.5)
    assert lost.first is None
    assert lost.reason == "at least one of the times is not known"
    assert lost.status[0] is Status.diverged


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: order.half_strength_time(LEAKY, recurrence=np.nan, input_weight=0.1), "recurrence must be finite"),
        (lambda: order.half_strength_time([], recurrence=0.1, input_weight=0.1), "at least one of them"),
        (
            lambda: order.half_loss_time(LEAKY, recurrence=0.1, input_weight=0.1, learning_rate=0),
            "learning_rate must be positive",
        ),
        (lambda: order.half_loss_time(LEAKY, recurrence=0.1, input_weight=0.1, share=2), "share must lie between"),
        (lambda: order.half_loss_time(LEAKY, np.eye(3), recurrence=0.1, input_weight=0.1), r"\(10,\) and \(3, 3\)"),
        (lambda: order.order_reversal(LEAKY, LEAKY[:4], initial=0.1), "must have as many lags"),
        (lambda: order.order_reversal(LEAKY, LEAKY, initial=0.0), "weights of exactly 0 never learn"),
        (lambda: order.order_reversal(LEAKY, LEAKY, initial=0.1, low=1, high=0), "low must be below high"),
        (lambda: order.order_reversal(LEAKY, LEAKY, initial=0.1, points=1), "points must be a whole number"),
        (
            lambda: order.learned_first(sensory.leaky(), Task(np.eye(2)[:, None, :, None], np.zeros((2, 1, 1)))),
            "a target that co-varies with no input",
        ),
        (
            lambda: order.learned_first(sensory.leaky(), sensory.leaky(), LinearRNN.aligned(inputs=2, outputs=1)),
            "must have the network's 2 inputs and 1 output",
        ),
    ],
)
def test_questions_of_order_that_mean_nothing_are_refused(call, words):
    import re

    assert re.search(words, refused(call))


def test_effective_start_needs_scalar_channels_and_recurrence():
    words = refused(lambda: order.effective_start(LinearRNN.aligned(inputs=2, outputs=2)), UnsupportedModel)
    assert "one input, one output" in words
    uneven = LinearRNN(np.ones((2, 1)), np.diag([0.5, 0.6]), np.ones((1, 2)))
    assert "a largest deviation of 0.1" in refused(lambda: order.effective_start(uneven), UnsupportedModel)


# Stability


def test_tasks_of_one_step_leave_recurrence_open():
    found = stability.best_recurrence([2.0])
    assert found.flat
    assert (found.best.recurrence, found.best.strength, found.best.loss) == (0.0, 2.0, 0.0)


def test_nothing_to_fit():
    found = stability.best_recurrence(np.zeros(4))
    assert found.flat
    assert found.best.strength == 0
    assert math.isnan(found.best.unexplained)
    assert stability.least_hidden_size(np.zeros(4)) == 0


def test_inputs_that_repeat_each_other_leave_recurrence_open():
    found = stability.best_recurrence(np.ones(6), np.ones((6, 6)))
    assert found.flat
    assert found.best.unexplained == pytest.approx(0, abs=1e-14)


def test_silent_steps_are_left_out():
    """Evidence, then a delay without input: the past is carried by an integrator, which is marginal, not unstable."""
    sig = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    found = stability.best_recurrence(sig, np.diag(sig)).best
    assert (found.recurrence, found.strength, found.stability) == (1.0, 1.0, "marginal")
    early = stability.best_recurrence([1.0, 0.5, 0.0], np.diag([1.0, 1.0, 0.0])).best
    assert (early.recurrence, early.strength) == pytest.approx((0.5, 1.0))
    nothing = stability.best_recurrence(np.zeros(2), np.zeros((2, 2)))
    assert nothing.flat
    decayed = stability.best_recurrence([0.0, 1.0, 0.5], np.diag([0.0, 1.0, 1.0])).best
    assert (decayed.recurrence, decayed.strength) == pytest.approx((0.5, 2.0))  # u b = 1
    beyond = stability.best_recurrence([0.0, 1.0, 2.0], np.diag([0.0, 1.0, 1.0])).best
    assert (beyond.recurrence, beyond.strength) == pytest.approx((2.0, 0.5))


def test_optima_are_sorted_and_the_best_is_one_of_them():
    found = stability.best_recurrence(np.where(np.arange(50) == 0, 1.0, 0.121))
    recurrences = [o.recurrence for o in found.optima]
    assert recurrences == sorted(recurrences)
    assert found.best in found.optima
    assert found.best.loss == min(o.loss for o in found.optima)
    assert [o.stability for o in found.optima] == ["runaway", "stable", "stable"]


def test_equal_optima_of_either_sign_give_the_positive_one():
    found = stability.best_recurrence((np.arange(10) == 4).astype(float))
    assert [round(o.recurrence, 3) for o in found.optima] == [-0.97, 0.97]
    assert found.best.recurrence > 0


@pytest.mark.parametrize("decay", [1e-6, 1e3, 1e5, -1e5])
def test_far_recurrences_keep_their_digits(decay):
    sig = decay ** np.arange(4.0)
    assert stability.best_recurrence(sig / np.abs(sig).max()).best.recurrence == pytest.approx(decay, rel=1e-14)


def test_a_constant_beyond_what_inputs_explain_stays_in_the_loss():
    found = stability.best_recurrence(LEAKY, constant=0.5 * LEAKY @ LEAKY + 1.0).best
    assert found.loss == pytest.approx(1.0)
    assert found.unexplained == pytest.approx(1.0 / (0.5 * LEAKY @ LEAKY + 1.0))


def test_rounding_of_a_profile_is_within_tolerance_and_noise_is_not():
    noisy = LEAKY + 1e-12 * np.random.default_rng(0).normal(size=10)
    assert stability.least_hidden_size(noisy) == 1
    assert stability.least_hidden_size(noisy, tolerance=1e-15) > 1


def test_unstable_responses_overflow_to_infinite_loss():
    found = stability.extrapolation(mode(1.0, 1.5, 0.5), np.ones(4000), [10, 4000], anchor="end")
    assert math.isfinite(found.loss[0])
    assert found.loss[1] == math.inf
    silent = stability.extrapolation(mode(1.0, 1.5, 0.0), np.ones(4000), [4000], anchor="end")
    assert silent.loss[0] in (2000.0, math.inf)
    family = stability.family_extrapolation(mode(1.0, 1.5, 0.5), sensory.leaky(), [10, 2000])
    assert family.loss[1] == math.inf


def test_unknown_target_power_leaves_the_loss_unknown():
    def family(steps):
        return Task(np.eye(steps)[:, None, :, None], np.ones((steps, 1, 1)))

    found = stability.family_extrapolation(mode(1.0, 1.0, 1.0), family, [3])
    assert math.isnan(found.loss[0])


def test_stable_rates_away_from_a_solution_are_marked():
    found = stability.largest_stable_rate(mode(1.0, 0.5, 1.0), sensory.leaky())
    assert found.status is Status.outside_theory
    assert stability.largest_stable_rate(mode(1.0, 0.8, 1.0), sensory.leaky()).status is Status.ok
    nothing = stability.largest_stable_rate(mode(0.0, 0.8, 0.0), steps=5)
    assert (nothing.learning_rate, nothing.sharpness) == (math.inf, 0.0)
    for given in ({"steps": 5}, {"task": sensory.leaky(5)}):
        burst = stability.largest_stable_rate(mode(1.0, 1e200, 1.0), **given)
        assert (burst.learning_rate, burst.status) == (0.0, Status.diverged)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stability.best_recurrence(np.ones((2, 3))), "cross_strengths must have 1 dimension"),
        (lambda: stability.best_recurrence([1.0, np.inf]), "cross_strengths must be finite"),
        (lambda: stability.best_recurrence([]), "at least one of them"),
        (lambda: stability.best_recurrence(np.ones(2), -np.eye(2)), "the loss would have no minimum"),
        (lambda: stability.best_recurrence(np.ones(2), np.diag([1.0, 0.0])), "with silent inputs"),
        (lambda: stability.best_recurrence(np.ones(2), [[1, 0], [1, 1]]), "symmetric in their two lags"),
        (lambda: stability.least_hidden_size(np.ones((3, 0, 1))), "at least one lag, output and input"),
        (lambda: stability.least_hidden_size(LEAKY, tolerance=0), "tolerance must be positive"),
        (lambda: stability.least_hidden_size(np.ones(3), np.ones((3, 3))), "input_strengths must be invertible"),
        (lambda: stability.extrapolation(mode(1, 1, 1), LEAKY, [11], anchor="end"), "reach as far as the horizon"),
        (lambda: stability.extrapolation(mode(1, 1, 1), LEAKY, [5], anchor="ends"), "did you mean 'end'"),
        (lambda: stability.extrapolation(mode(1, 1, 1), LEAKY, [], anchor="end"), "at least one number of steps"),
        (lambda: stability.extrapolation(mode(1, 1, 1), LEAKY, [0], anchor="end"), "horizon must be a whole number"),
        (
            lambda: stability.extrapolation(LinearRNN.aligned(inputs=2), LEAKY, [5], anchor="end"),
            r"with shape (5, 1, 2)",
        ),
        (
            lambda: stability.family_extrapolation(mode(1, 1, 1), Task(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1))), [2]),
            "a task must come from a family",
        ),
        (lambda: stability.largest_stable_rate(mode(1, 1, 1)), "got neither"),
        (lambda: stability.largest_stable_rate(mode(1, 1, 1), sensory.leaky(), steps=3), "got both"),
        (lambda: stability.largest_stable_rate(mode(1, 1, 1), steps=0), "steps must be a whole number"),
        (lambda: stability.largest_stable_rate(mode(1, 1, 1), steps=2, learn=("inputs",)), "did you mean 'input'"),
        (
            lambda: stability.largest_stable_rate(LinearRNN.aligned(inputs=2), sensory.leaky()),
            "must have the network's 2 inputs and 1 output",
        ),
    ],
)
def test_questions_of_stability_that_mean_nothing_are_refused(call, words):
    assert words in refused(call)


# Trade-off


def test_terms_of_a_trajectory_that_stopped_are_unknown():
    path = recurrent_mode.mode_trajectory([0.01, 100.0], 0.5, 0.9, 0.5, np.ones(5), np.zeros((5, 5)), constant=1.0)
    found = tradeoff.loss_terms_over_time(path, np.ones(5), np.zeros((5, 5)), constant=1.0)
    assert np.isfinite(found.data[0])
    assert np.isnan(found.data[1])


def test_ends_of_every_kind():
    assert tradeoff.end_of_training(LEAKY, recurrence=0.1, input_weight=0.1).status is Status.ok
    stuck = tradeoff.end_of_training(-LEAKY, recurrence=0.5, input_weight=0.1)
    assert stuck.status is Status.not_learned
    assert stuck.strength == pytest.approx(0.0, abs=1e-12)
    saddle = tradeoff.end_of_training([1.0, 0.0, 2.0, 0.0, 0.0], recurrence=0.0, input_weight=0.1)
    assert (saddle.recurrence, saddle.status) == (0.0, Status.not_learned)
    assert (saddle.strength, saddle.loss) == pytest.approx((1.0, 2.0))
    opposed = tradeoff.end_of_training(LEAKY, recurrence=-3.0, input_weight=0.5, output_weight=-0.5)
    assert (opposed.recurrence, opposed.status) == (-math.inf, Status.diverged)
    burst = tradeoff.end_of_training(np.ones(2000), recurrence=1.5, input_weight=0.5)
    assert (burst.recurrence, burst.status) == (math.inf, Status.diverged)


def test_a_slow_runaway_is_told_from_a_place_where_nothing_moves(monkeypatch):
    first_input = (np.arange(5) == 4).astype(float)
    monkeypatch.setattr(long_run, "DECADES", 8)  # before the solver gives up
    end = tradeoff.end_of_training(first_input, recurrence=-0.9, input_weight=0.5)
    assert (end.recurrence, end.status) == (-math.inf, Status.diverged)


def test_one_basin_has_no_boundary():
    found = tradeoff.basins(LEAKY, input_weight=0.2, low=0.2, high=0.9, points=3)
    assert len(found.boundaries) == 0
    assert [end.recurrence for end in found.ends] == pytest.approx([0.8])


def test_the_warning_names_what_is_lost():
    words = tradeoff.zero_recurrence_warning(np.array([1.0, 0.0, 0.0, 1.5]))
    assert words is not None
    assert "never leaves it" in words
    assert "69.2% of the target stays unexplained" in words
    silent = tradeoff.zero_recurrence_warning([0.0, 0.0, 1.0], np.diag([0.0, 1.0, 1.0]))
    assert silent is not None
    assert "100.0%" in silent
    assert tradeoff.zero_recurrence_warning([1.0, 0.0, 1.5], recurrence=1e-3) is None
    assert tradeoff.zero_recurrence_warning([1.0]) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tradeoff.loss_terms(np.nan, 1, 1, LEAKY), "input_weight must be finite"),
        (lambda: tradeoff.loss_terms(1, 1, 1, 0.5), "the lags behind the readout"),
        (lambda: tradeoff.transition(lambda x: LEAKY, 1.0, 0.0), "low must be below high"),
        (lambda: tradeoff.transition(lambda x: LEAKY, 0.0, 1.0, points=1), "points must be a whole number"),
        (lambda: tradeoff.transition(lambda x: [[x]], 0.0, 1.0), "cross_strengths must have 1 dimension"),
        (lambda: tradeoff.late_pulse_transition(1), "there must be a past"),
        (lambda: tradeoff.two_pulse_transition(5, 5), "lag must be less than the 5 steps"),
        (lambda: tradeoff.two_pulse_transition(5, 0), "lag must be a whole number"),
        (lambda: tradeoff.end_of_training(LEAKY, recurrence=np.inf, input_weight=1), "the start must be finite"),
        (lambda: tradeoff.basins(LEAKY, input_weight=0.1, low=1.0, high=0.0), "low must be below high"),
        (lambda: tradeoff.basins(LEAKY, input_weight=0.1, tolerance=0), "tolerance must be positive"),
        (lambda: tradeoff.zero_recurrence_warning(np.ones((2, 2))), "cross_strengths must have 1 dimension"),
    ],
)
def test_questions_of_the_trade_off_that_mean_nothing_are_refused(call, words):
    assert words in refused(call)


# Feature learning


def test_blocks_that_were_or_became_nothing():
    dead = feature_learning.kernel_change(mode(0.0, 0.5, 0.0), mode(1.0, 0.5, 1.0), steps=3)
    assert dead.total.movement == math.inf
    assert math.isnan(dead.total.misalignment)
    forgot = feature_learning.kernel_change(mode(1.0, 0.5, 1.0), mode(0.0, 0.5, 0.0), steps=3)
    assert forgot.total.movement == 1.0
    assert math.isnan(forgot.total.final_share)
    one = feature_learning.kernel_change(mode(1.0, 0.5, 1.0), mode(2.0, 0.5, 1.0), steps=1)
    assert math.isnan(one.blocks["recurrent"].movement)  # one step has no recurrence
    assert one.blocks["output"].movement == pytest.approx(3.0)
    assert one.blocks["output"].misalignment == 0.0


def test_only_the_weights_that_learn_are_compared():
    found = feature_learning.kernel_change(mode(1, 0.5, 1), mode(1, 0.9, 1), steps=4, learn=("input", "output"))
    assert list(found.blocks) == ["input", "output"]
    assert sum(block.final_share for block in found.blocks.values()) == pytest.approx(1.0)


def test_tiny_turns_keep_their_digits():
    found = feature_learning.kernel_change(mode(1, 0.5, 1), mode(1, 0.5 + 1e-7, 1), steps=4)
    turned = feature_learning.kernel_change(mode(1, 0.5, 1), mode(1, 0.5 + 1e-6, 1), steps=4)
    assert 0 < found.total.misalignment < 1e-12
    assert turned.total.misalignment / found.total.misalignment == pytest.approx(100, rel=1e-3)


def test_descents_that_diverge_or_stop_short_are_told():
    task = sensory.leaky(5)
    wild = feature_learning.feature_learning(task, mode(1.0, 0.9, 1.0), learning_rate=100.0)
    assert wild.status is Status.diverged
    assert wild.recurrent is None
    assert wild.network is None
    assert wild.losses[0] == math.inf
    short = feature_learning.feature_learning(task, mode(0.1, 0.5, 0.1), learning_rate=0.01, most_steps=5)
    assert short.status is Status.not_learned
    assert (short.losses > 1e-4).all()


def test_frozen_recurrence_trains_the_rest():
    found = feature_learning.feature_learning(
        sensory.leaky(5), mode(0.3, 0.8, 0.3), learning_rate=0.05, learn=("input", "output")
    )
    assert found.status is Status.ok
    assert found.network.recurrent_weights.item() == 0.8
    assert list(found.recurrent.blocks) == ["input", "output"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: feature_learning.kernel_change(mode(1, 1, 1), LinearRNN.aligned(), steps=2), "of one kind and shape"),
        (
            lambda: feature_learning.kernel_change(*[TwoLayer(np.ones((1, 2)), np.ones((1, 1)))] * 2, steps=2),
            "a two-layer network has one step",
        ),
        (lambda: feature_learning.kernel_change(mode(1, 1, 1), mode(1, 1, 1), learn=("all",)), "learn must be one of"),
        (lambda: feature_learning.feedforward_control(mode(1, 1, 1), steps=0), "steps must be a whole number"),
        (
            lambda: feature_learning.feature_learning(
                sensory.leaky(), mode(1, 1, 1), learning_rate=0.1, relative_loss=2
            ),
            "relative_loss must lie between",
        ),
        (
            lambda: feature_learning.feature_learning(sensory.leaky(), mode(1, 1, 1), learning_rate=0),
            "learning_rate must be positive",
        ),
        (
            lambda: feature_learning.feature_learning(
                Task(np.eye(2)[:, None, :, None], np.ones((2, 1, 1))), mode(1, 1, 1), learning_rate=0.1
            ),
            "must know its target covariance",
        ),
    ],
)
def test_questions_of_feature_learning_that_mean_nothing_are_refused(call, words):
    assert words in refused(call)


# Networks beside one mode


def test_a_single_mode_needs_single_channels():
    assert stability.best_mode(sensory.leaky(10)).recurrence == pytest.approx(0.8, rel=1e-9)
    assert "one input and one output" in refused(
        lambda: stability.best_mode(integration(10, target_strength=[1.0, 2.0]))
    )


def test_the_outlier_is_the_eigenvalue_farthest_from_0():
    network = LinearRNN(np.array([[1.0], [2.0]]), np.diag([0.5, -0.9]), np.array([[1.0, 1.0]]))
    assert stability.outlier(network) == pytest.approx(-0.9)


def test_descent_of_a_mode_halves_the_loss_when_told():
    told = order.half_loss_time(LEAKY, recurrence=0.6, input_weight=0.1).steps
    found = order.descent_half_loss_time(sensory.leaky(10), mode(0.1, 0.6, 0.1), learning_rate=1e-4)
    assert found == pytest.approx(float(told), rel=2e-3)  # descent is of first order in the rate


def test_a_rate_is_kept_up_to_the_sharpest():
    solution, task = mode(1.0, 0.8, 1.0), sensory.leaky(10)
    told = stability.largest_stable_rate(solution, task).learning_rate
    found = stability.largest_kept_rate(solution, task, np.random.default_rng(0))
    # A bracket of a ratio of 4.4 halved nine times, 0.15% each way, and 0.4% for growth within 300 steps.
    assert found == pytest.approx(told, rel=6e-3)
