"""Drawn problems have the same answer from every interface and from plain training on raw trials."""

from __future__ import annotations

import numpy as np
import pytest
from tests.differential.compare import compare
from tests.differential.interfaces import network_of, task_of
from tests.differential.kinds import KINDS, draw
from tests.differential.plain import SLOPES, Plain, Rows, gradient
from tests.differential.problems import Problem, Stop, Trials, Weights

import learncast as lc

#: Kinds that take less than half a second each.
QUICK = (
    *("counts", "labels", "offsets", "unequal_lengths", "few_trials", "every_step", "forms", "one_hot", "starts"),
    *("channel_scales", "zero_targets", "preprocessed", "web_prior_knowledge", "bottlenecks", "recurrence_lists"),
    *("non_normal_recurrence", "learned_recurrence", "relu", "tanh"),
    *("two_layers", "forgetting", "many_stages", "plans", "costly_plans", "batches", "web_uploads", "web_pins"),
    *("deep_layers", "deep_stages"),
)


@pytest.mark.parametrize("kind", QUICK)
def test_a_drawn_problem_has_the_answer_of_plain_training(kind):
    verdict = compare(draw(kind, 1))
    assert verdict.outcome in ("agreed", "slow"), verdict.detail


def test_a_flow_that_passes_a_saddle_is_followed_to_its_rest():
    verdict = compare(draw("non_normal_recurrence", 22))
    assert verdict.outcome in ("agreed", "slow"), verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "intervals"])
def test_no_drawn_problem_has_a_wrong_answer(kind, seed):
    verdict = compare(draw(kind, seed))
    assert verdict.outcome in ("agreed", "slow", "refused"), verdict.detail


@pytest.mark.slow
def test_intervals_cover_the_steps_on_the_population():
    """95% intervals miss more than 9 times of 60 by chance once in 600 runs."""
    missed = sum(compare(draw("intervals", seed)).outcome == "disagreed" for seed in range(60))
    assert missed <= 9


@pytest.mark.parametrize("activation", SLOPES)
def test_the_plain_gradient_is_that_of_finite_differences(activation):
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(4, 6, 2)), rng.normal(size=(2, 6, 3)), 6)
    weights = rng.normal(size=(5, 2)), 0.3 * rng.normal(size=(5, 5)), rng.normal(size=(3, 5))
    slopes = gradient(weights, rows, activation, True)[1]
    for part in range(3):
        direction = rng.normal(size=weights[part].shape)
        sides = []
        for side in (1e-5, -1e-5):
            moved = [w + side * direction if k == part else w for k, w in enumerate(weights)]
            sides.append(gradient(tuple(moved), rows, activation, True)[0])
        # Central differences err by the square of their width.
        assert (slopes[part] * direction).sum() == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6)


def test_descent_that_stays_bounded_along_a_flow_that_is_too_sharp_for_it_is_not_said_to_diverge(monkeypatch):
    monkeypatch.setattr("learncast.planning.methods.linear.MOST_COUNTED", 200)
    rng = np.random.default_rng(74)
    x = rng.exponential(1.0, (80, 5, 2))
    y = 0.05 * x.sum(axis=1) @ rng.normal(size=(2, 1)) + 0.3 * rng.normal(size=(80, 1))
    chain = 0.5 * np.eye(2) + np.triu(rng.normal(size=(2, 2)), 1)
    weights = Weights(0.05 * rng.normal(size=(2, 2)), 0.05 * rng.normal(size=(1, 2)), chain)
    problem = Problem("forecast", weights, (Trials("sharp", x, y),), 0.05)
    forecast = lc.forecast(task_of(problem.target), network_of(weights), lc.Training(0.05), 0.95, strict=False)
    assert not forecast.trust.holds
    assert np.isfinite(forecast.steps.flow)
    assert forecast.steps.status is lc.Status.not_within
    assert np.isnan(forecast.steps.descent)
    assert forecast.steps.tried == 200
    plain = Plain(problem)
    after = plain.loss(plain.train(plain.start, 0, Stop("steps", 200), 200)[1], 0)
    assert forecast.steps.loss == pytest.approx(after, rel=1e-9)
    assert after < plain.loss(plain.start, 0)


def test_training_a_bottleneck_ends_at_the_plain_least_loss():
    plain = Plain(draw("bottlenecks", 0))
    w = plain.start
    for _ in range(5_000):
        loss, slopes = plain.gradient(w, plain.rows[0])
        w = plain.step(w, slopes)
    assert loss >= plain.least_loss(0) * (1 - 1e-9)
    assert loss - plain.least_loss(0) <= 1e-3 * plain.zero_loss(0)
