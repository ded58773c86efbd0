"""Sensory tasks: their statistics follow the formulas in their docstrings."""

from __future__ import annotations

import numpy as np
import pytest

from learncast import InvalidSpec, tasks
from learncast.study import Study
from learncast.tasks import Task, sensory

STEPS = (1, 2, 5, 10, 33)


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


def strengths(task):
    return task.cross_covariance.dense()[:, 0, 0, 0]


#: Strengths s_t in time order, t = 1 ... T, written out one step at a time.
FAMILIES = {
    "integrate": (lambda T: sensory.integrate(T), lambda t, T: 1.0),
    "mean_target": (lambda T: sensory.mean_target(T), lambda t, T: 1.0 / T),
    "leaky": (lambda T: sensory.leaky(T, decay=0.7), lambda t, T: 0.7 ** (T - t)),
    "alternating": (lambda T: sensory.leaky(T, decay=-0.7), lambda t, T: (-0.7) ** (T - t)),
    "primacy": (lambda T: sensory.primacy(T, decay=0.7), lambda t, T: 0.7 ** (t - 1)),
    "evidence_delay": (
        lambda T: sensory.evidence_delay(T, min(3, T - 1)),
        lambda t, T: float(t <= T - min(3, T - 1)),
    ),
    "cosine": (lambda T: sensory.cosine(T, period=7.0), lambda t, T: np.cos(2 * np.pi * (T - t) / 7)),
    "weighted": (
        lambda T: sensory.weighted(T, [1.0, -0.5, 0.25][:T], scale=2.0),
        lambda t, T: [2.0, -1.0, 0.5, 0.0][min(T - t, 3)],
    ),
    "rising": (lambda T: sensory.linear_ramp(T), lambda t, T: t / T),
    "falling": (lambda T: sensory.linear_ramp(T, rising=False), lambda t, T: (T - t + 1) / T),
    "late_pulse": (lambda T: sensory.late_pulse(T, 0.2), lambda t, T: 1.0 if t == T else 0.2),
    "impulse": (lambda T: sensory.impulse(T, T // 2), lambda t, T: float(t == T - T // 2)),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", FAMILIES)
def test_white_families_have_the_strengths_of_their_formula(name, steps):
    make, shape = FAMILIES[name]
    task = make(steps)
    expected = np.array([shape(t, steps) for t in range(1, steps + 1)])
    np.testing.assert_allclose(strengths(task), expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(task.input_covariance.dense()[:, 0, :, 0], np.eye(steps))
    assert task.target_power == pytest.approx(np.sum(expected**2), rel=1e-13)
    assert (task.steps, task.inputs, task.outputs, task.targets) == (steps, 1, 1, "end")


@pytest.mark.parametrize("steps", STEPS[1:])
def test_two_pulses(steps):
    task = sensory.two_pulse(steps, steps - 1, 1.5, scale=2.0)
    expected = np.zeros(steps)
    expected[-1], expected[0] = 2.0, 3.0
    np.testing.assert_array_equal(strengths(task), expected)
    assert task.target_power == 13.0


@pytest.mark.parametrize("steps", STEPS)
def test_noisy_constant(steps):
    task = sensory.noisy_constant(steps, signal_variance=0.5, noise_variance=3.0)
    np.testing.assert_array_equal(task.input_covariance.dense()[:, 0, :, 0], 0.5 + 3.0 * np.eye(steps))
    np.testing.assert_array_equal(strengths(task), np.full(steps, 0.5))
    assert task.target_power == 0.5


@pytest.mark.parametrize(
    "make",
    [
        sensory.integrate,
        sensory.mean_target,
        sensory.noisy_constant,
        sensory.leaky,
        sensory.primacy,
        sensory.evidence_delay,
        sensory.cosine,
        sensory.linear_ramp,
        sensory.late_pulse,
        sensory.two_pulse,
        sensory.impulse,
    ],
)
def test_statistics_are_valid_and_trials_have_them(make):
    """A family is not checked when it is made, so the validating constructor checks it here."""
    task = make()
    checked = Task(
        task.input_covariance.dense(), task.cross_covariance.dense(), task.target_covariance.dense()[0, :, 0, :]
    )
    assert checked.target_power == task.target_power
    x, y = task.sample(40_000, np.random.default_rng(0))
    measured = (x[:, :, 0] * y).mean(axis=0)
    # A product of two unit Gaussians has variance at most 1 + 1 here, times the target's power: five standard errors
    # of 40 000 trials, which eleven families of ten steps exceed by chance in 1 of 16 000 runs.
    error = 5 * np.sqrt(2 * max(1.0, float(task.input_covariance.dense().max())) * task.target_power / 40_000)
    assert np.abs(measured - strengths(task)).max() < error
    assert (y**2).mean() == pytest.approx(task.target_power, rel=5 * np.sqrt(2 / 40_000))


def test_families_are_a_namespace_of_tasks():
    assert tasks.sensory is sensory
    assert "sensory" in tasks.__all__


def test_a_family_can_be_varied():
    task = sensory.evidence_delay(10, 3, name="delayed")
    longer = task.varied(steps=12, delay=5)
    assert (longer.steps, longer.name) == (12, "delayed")
    assert strengths(longer).sum() == 7
    assert refused(lambda: task.varied(dely=2)) == "dely"


def test_scale_multiplies_the_target():
    np.testing.assert_array_equal(strengths(sensory.leaky(scale=3.0)), 3.0 * strengths(sensory.leaky()))
    assert sensory.integrate(4, scale=-2.0).target_power == 16.0


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: sensory.integrate(0), "steps"),
        (lambda: sensory.integrate(2.5), "steps"),
        (lambda: sensory.integrate(scale=np.nan), "scale"),
        (lambda: sensory.leaky(decay="fast"), "decay"),
        (lambda: sensory.leaky(400, decay=10.0), "steps"),
        (lambda: sensory.primacy(decay=[0.1, 0.2]), "decay"),
        (lambda: sensory.evidence_delay(10, 10), "delay"),
        (lambda: sensory.evidence_delay(10, -1), "delay"),
        (lambda: sensory.cosine(period=0), "period"),
        (lambda: sensory.late_pulse(background=np.inf), "background"),
        (lambda: sensory.two_pulse(10, 0), "lag"),
        (lambda: sensory.two_pulse(3, 3), "lag"),
        (lambda: sensory.impulse(4, 4), "lag"),
        (lambda: sensory.noisy_constant(noise_variance=0), "noise_variance"),
        (lambda: sensory.noisy_constant(signal_variance=-1), "signal_variance"),
        (lambda: sensory.weighted(3, [1.0, 2.0, 3.0, 4.0]), "strengths"),
        (lambda: sensory.weighted(3, []), "strengths"),
    ],
)
def test_invalid_parameters_are_refused_by_name(call, field):
    assert refused(call) == field


def test_a_trial_that_exceeds_the_memory_limit_is_refused():
    with pytest.raises(InvalidSpec):
        sensory.integrate(100_000)


def test_a_study_accepts_weighted_strengths_and_its_resolved_form_is_the_same_study(tmp_path):
    text = """
[network]
hidden_size = 1
[training]
learning_rate = 0.01
learn = ["input", "recurrent", "output"]
[target]
family = "sensory"
task = "weighted"
steps = 4
parameters = {strengths = [1.0, 0.9, 0.2], scale = 2}
"""
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    study = Study.load(tmp_path / "study.toml")
    np.testing.assert_array_equal(study.target.cross_covariance.dense()[:, 0, 0, 0], [0.0, 0.4, 1.8, 2.0])
    (tmp_path / "resolved.toml").write_text(study.resolved(), encoding="utf-8")
    again = Study.load(tmp_path / "resolved.toml")
    assert again.resolved() == study.resolved()
    np.testing.assert_array_equal(again.target.cross_covariance.dense(), study.target.cross_covariance.dense())
