"""Windows, detection, decay fits and time scales in limiting cases, and their errors."""

import numpy as np
import pytest

from learncast import InvalidSpec
from learncast.results import Status
from learncast.windows import detection, transport

LAGS = np.arange(1.0, 41.0)


# --- windows ---------------------------------------------------------------------------------------------------------


def test_windows_with_and_without_gaps():
    detectable = [[1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    window = detection.window_of([2, 4, 8, 16], detectable)
    assert window.any_lag.tolist() == [16, 16, 0, 16]
    assert window.contiguous.tolist() == [4, 0, 0, 16]


def test_entropy_and_ratio():
    assert detection.least_ratio(0.5) == 0
    assert detection.least_ratio(0.0, information=1.0) == pytest.approx(np.sqrt(np.log(2)), rel=1e-15)
    with pytest.raises(InvalidSpec) as error:
        detection.least_ratio(0.7)
    assert error.value.field == "error"
    assert np.isnan(detection.mean_alignment([0.0, 0.0], [1.0, 2.0]))


# --- detection -------------------------------------------------------------------------------------------------------


def test_a_sequence_does_not_influence_its_own_signs():
    rng = np.random.default_rng(0)
    contributions = rng.standard_normal((20, 3, 4))
    base = detection.detect(LAGS[:3], contributions, rng=rng, nulls=19).statistic
    # Doubling one sequence far enough to decide all signs of its half changes its own value by a factor only.
    loud = contributions.copy()
    loud[6] *= 1000
    changed = detection.detect(LAGS[:3], loud, rng=rng, nulls=19).statistic
    np.testing.assert_allclose(changed[6], 1000 * base[6], rtol=1e-12)
    np.testing.assert_array_equal(np.delete(changed[::2], 3, axis=0), np.delete(base[::2], 3, axis=0))
    np.testing.assert_allclose(changed[1::2], (np.sign(loud[6]) * loud[1::2]).sum(axis=2), rtol=1e-12)


def test_a_lag_without_any_contribution_has_no_signal():
    rng = np.random.default_rng(0)
    contributions = rng.standard_normal((120, 5, 2))
    contributions[:, 2] = 0.0  # a lag that nothing reaches, as when a transport factor underflows
    found = detection.detect(LAGS[:5], contributions, rng=rng)
    assert found.score[2] == 0
    assert not found.significant[2]
    assert found.status[2] == Status.too_few_samples
    assert found.windows(10**6) == (0, 0)
    assert not found.significant.any()


def test_a_signal_with_unknown_noise_gives_an_unknown_window():
    rng = np.random.default_rng(0)
    found = detection.detect(LAGS[:5], rng.standard_normal((60, 5, 1)) + 3.0, rng=rng)
    assert found.significant.all()
    assert set(found.status) == {Status.too_few_samples}
    assert np.isnan(found.windows(100)).all()
    assert np.isnan(found.required()).all()


CONTRIBUTIONS = np.random.default_rng(0).standard_normal((40, 5, 2))


@pytest.mark.parametrize(
    ("contributions", "options", "field"),
    [
        (CONTRIBUTIONS[0], {}, "contributions"),
        (3.0, {}, "contributions"),
        (np.where(CONTRIBUTIONS > 2, np.nan, CONTRIBUTIONS), {}, "contributions"),
        (CONTRIBUTIONS[..., :1] * np.inf, {"signed": True}, "contributions"),
        (CONTRIBUTIONS, {"total": np.full(40, np.inf)}, "total"),
    ],
    ids=["two dimensions", "a number", "nan", "infinity", "infinite total"],
)
def test_invalid_contributions_raise_an_error(contributions, options, field):
    with pytest.raises(InvalidSpec) as error:
        detection.detect(LAGS[:5], contributions, rng=np.random.default_rng(0), **options)
    assert error.value.field == field


def test_tail_indices_of_nan_raise_an_error_and_quantiles_outside_the_table_are_nan():
    with pytest.raises(InvalidSpec) as error:
        detection.fit_tail_index([np.nan] * 200)
    assert error.value.field == "values"
    assert np.isnan(detection.stable_quantiles([0.5, 2.6])).all()


# --- decay -----------------------------------------------------------------------------------------------------------

LAWS = {
    "exponential": transport.Exponential(0.7, 0.08),
    "power": transport.PowerLaw(0.7, 1.3),
    "tempered": transport.TemperedPowerLaw(0.7, 0.9, 0.05),
    "logarithmic": transport.Logarithmic(0.7),
}


@pytest.mark.parametrize("kind", LAWS)
def test_fits_recover_the_law(kind):
    law = LAWS[kind]
    decay = transport.fit_decay(LAGS, law.at(LAGS))
    assert decay.best.kind == kind
    # Least squares on 40 exact points, limited by rounding of logarithms near 5.
    for name, value in vars(law).items():
        assert getattr(decay.best.law, name) == pytest.approx(value, rel=1e-11)
    assert decay.best.r_squared == pytest.approx(1, abs=1e-12)
    assert decay.implication == law.growth
    assert decay.status is Status.ok


@pytest.mark.parametrize("kind", LAWS)
def test_noise_is_not_taken_for_structure(kind):
    rng = np.random.default_rng(4)
    noisy = LAWS[kind].at(LAGS) * np.exp(0.02 * rng.standard_normal((20, 40)))
    # One parameter too many is taken in 5% of sets (chi-squared above log 40); ten of 20 is no false alarm.
    assert sum(transport.fit_decay(LAGS, f).best.kind == kind for f in noisy) > 10


@pytest.mark.parametrize(
    "law",
    [*LAWS.values(), transport.TemperedPowerLaw(2.0, -1.5, 0.2), transport.TemperedPowerLaw(0.3, 1e-3, 0.1)],
    ids=repr,
)
def test_lag_at_inverts_the_law(law):
    levels = np.array([0.3, 0.1, 1e-3])
    lags = law.lag_at(levels)
    finite = np.isfinite(lags)
    np.testing.assert_allclose(law.at(lags[finite]), levels[finite], rtol=1e-9)
    assert (law.at(1.01 * lags[finite]) < levels[finite]).all()
    assert finite.sum() >= 2


def test_levels_that_are_never_or_always_reached():
    assert transport.Exponential(0.5, 0.1).lag_at(0.7) == 0
    assert transport.Exponential(0.5, 0.0).lag_at([0.7, 0.3]).tolist() == [0, np.inf]
    assert transport.Exponential(0.5, -0.1).lag_at(0.7) == np.inf
    assert transport.PowerLaw(0.5, 0.0).lag_at([0.7, 0.3]).tolist() == [0, np.inf]
    assert transport.PowerLaw(0.5, -1.0).lag_at(0.7) == np.inf
    assert transport.TemperedPowerLaw(1.0, -1.0, 1.0).lag_at(0.5) == 0  # its maximum is 1/e, at lag 1
    assert transport.TemperedPowerLaw(1.0, 1.0, -0.1).lag_at(0.5) == np.inf
    assert transport.TemperedPowerLaw(0.7, 1.3, 0.0).lag_at(0.1) == transport.PowerLaw(0.7, 1.3).lag_at(0.1)
    assert transport.TemperedPowerLaw(0.7, 0.0, 0.1).lag_at(0.1) == transport.Exponential(0.7, 0.1).lag_at(0.1)
    assert (
        detection.predicted_window(transport.Exponential(1.0, 0.1), 100, index=1.0, constant=2.0) == 0
    )  # N does not help at index 1


def test_rising_and_vanishing_envelopes():
    rising = transport.fit_decay(LAGS, np.exp(0.1 * LAGS))
    assert rising.status is Status.outside_theory
    empty = transport.fit_decay(LAGS, np.zeros(40))
    assert empty.best is None
    assert empty.status is Status.too_few_samples
    underflown = np.where(LAGS < 20, np.exp(-0.5 * LAGS), 0.0)
    assert transport.fit_decay(LAGS, underflown).best.law.rate == pytest.approx(0.5, rel=1e-11)
    assert transport.fit_decay(LAGS, 1e-250 * np.exp(-0.5 * LAGS)).best.kind == "exponential"  # no floor


# --- time scales -----------------------------------------------------------------------------------------------------


def test_time_scales_of_known_decays():
    true = np.array([2.0, 10.0, 300.0])
    time_scale, status = transport.unit_time_scales(LAGS, 0.3 * np.exp(-LAGS[:, None] / true))
    # Rounding of logarithms near 20 against a slope of 1/300.
    np.testing.assert_allclose(time_scale, true, rtol=1e-11)
    assert set(status) == {Status.ok}


def test_slopes_agree_with_polyfit():
    rng = np.random.default_rng(1)
    sizes = np.exp(-0.1 * LAGS[:, None] + rng.standard_normal((40, 6)))
    sizes[rng.random((40, 6)) < 0.2] = 0.0
    time_scale, _ = transport.unit_time_scales(LAGS, sizes)
    for unit in range(6):
        used = sizes[:, unit] > 0
        slope, _ = np.polyfit(LAGS[used], np.log(sizes[used, unit]), 1)
        assert time_scale[unit] == pytest.approx(-1 / slope, rel=1e-10)


def test_units_that_do_not_decay_or_are_silent():
    sizes = np.stack([np.exp(-LAGS / 5), np.ones(40), np.exp(LAGS / 9), np.zeros(40)], axis=1)
    time_scale, status = transport.unit_time_scales(LAGS, sizes)
    assert time_scale[1:3].tolist() == [np.inf, np.inf]
    assert np.isnan(time_scale[3])
    assert status.tolist() == [Status.ok, Status.not_learned, Status.not_learned, Status.too_few_samples]
