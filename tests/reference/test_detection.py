"""Detection of lags against closed forms, golden numbers, plain loops, and data without a signal."""

from __future__ import annotations

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.stats import levy_stable

from learncast.windows import detection, transport

GOLDEN = {
    entry["id"]: entry
    for entry in json.loads((Path(__file__).parent / "golden" / "learnability.json").read_text())["entries"]
}
# A handful of elementary functions in double precision.
ROUNDING = {"rtol": 1e-12, "atol": 0}
ENVELOPES = {
    "exp(-0.05 l)": lambda lag: np.exp(-0.05 * lag),
    "l^-1.2": lambda lag: lag**-1.2,
    "1/log(1+l)": lambda lag: 1 / np.log(1 + lag),
}
LAGS = np.arange(1.0, 33.0)


def golden(name):
    entry = GOLDEN[name]
    return entry["inputs"], entry["expected"], {"rtol": entry["rtol"], "atol": entry["atol"]}


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.equation("livi2025 Eq. (20)")
@pytest.mark.parametrize("name", ["kappa_1.2", "kappa_1.5", "kappa_2.0"])
def test_exponent(name):
    given, expected, close = golden(name)
    np.testing.assert_allclose(detection.sample_exponent(given["alpha"]), expected["kappa"], **close)
    np.testing.assert_allclose(1 / detection.sample_exponent(given["alpha"]), expected["conc_exponent"], **close)


def test_exponent_outside_one_to_two():
    np.testing.assert_array_equal(detection.sample_exponent([0.5, 1.0, 2.3, np.nan]), [np.inf, np.inf, 2.0, np.nan])


@pytest.mark.equation("livi2025 Eq. (19)")
@pytest.mark.equation("livi2025 Eq. (21)")
@pytest.mark.equation("livi2025 Eq. (23)")
@pytest.mark.equation("livi2025 Eq. (28)")
@pytest.mark.parametrize("name", ["n_min_alpha1.3", "n_min_alpha2.0"])
def test_golden_requirement_floor_and_ratio(name):
    given, expected, close = golden(name)
    ratio = detection.least_ratio(given["eps"], information=given["c_alpha"])
    noise = {"scale": given["sigma"], "index": given["alpha"]}
    signal = given["mbar"] * given["f"]
    np.testing.assert_allclose(ratio, expected["snr_threshold"], **close)
    np.testing.assert_allclose(
        detection.required_sequences(signal, threshold=ratio, **noise), expected["N_min"], **close
    )
    floor = detection.envelope_floor(alignment=given["mbar"], sequences=given["N"], threshold=ratio, **noise)
    np.testing.assert_allclose(floor, expected["eps_thr"], **close)
    np.testing.assert_allclose(
        detection.signal_to_noise(signal, sequences=given["N"], **noise), expected["SNR"], **close
    )


@pytest.mark.parametrize("index", [1.05, 1.5, 1.9, 2.0])
def test_requirement_in_high_precision(index):
    with mpmath.workdps(40):
        alpha, sigma, signal, eps = (mpmath.mpf(v) for v in (index, 0.7, 3e-5, 0.03))
        entropy = -eps * mpmath.log(eps) - (1 - eps) * mpmath.log(1 - eps)
        ratio = mpmath.sqrt((mpmath.log(2) - entropy) / mpmath.mpf("0.25"))
        needed = (ratio * sigma / signal) ** (alpha / (alpha - 1))
        reached = signal * 5000 ** (1 - 1 / alpha) / sigma
    np.testing.assert_allclose(detection.least_ratio(0.03), float(ratio), **ROUNDING)
    # The exponent multiplies the rounding of a logarithm near 10, and 21 at index 1.05.
    found = detection.required_sequences(3e-5, scale=0.7, index=index, threshold=detection.least_ratio(0.03))
    np.testing.assert_allclose(found, float(needed), rtol=1e-11)
    np.testing.assert_allclose(
        detection.signal_to_noise(3e-5, scale=0.7, index=index, sequences=5000), float(reached), **ROUNDING
    )
    # After the required number of sequences the ratio is the threshold.
    np.testing.assert_allclose(
        detection.signal_to_noise(3e-5, scale=0.7, index=index, sequences=found), float(ratio), rtol=1e-11
    )


def test_never_and_unknown():
    noise = {"scale": 1.0, "threshold": 0.1}
    assert detection.required_sequences(0.0, index=1.5, **noise) == np.inf
    assert detection.required_sequences(0.01, index=1.0, **noise) == np.inf
    assert np.isnan(detection.required_sequences(0.01, index=np.nan, **noise))
    assert detection.signal_to_noise(0.0, scale=1.0, index=2.0, sequences=100) == 0
    # No floors: in any unit the answer is the same.
    tiny = detection.required_sequences(3e-250, scale=1e-250, index=1.5, threshold=0.1)
    np.testing.assert_allclose(tiny, detection.required_sequences(3.0, scale=1.0, index=1.5, threshold=0.1), rtol=1e-10)


def test_information_constant_is_the_leading_order_of_the_divergence():
    d = mpmath.mpf("1e-3")
    normal = lambda x: mpmath.npdf(x, 0, mpmath.sqrt(2))  # noqa: E731
    cauchy = lambda x: 1 / (mpmath.pi * (1 + x**2))  # noqa: E731
    for density, ends in ((normal, [-30, -3, 0, 3, 30]), (cauchy, [-mpmath.inf, -10, 0, 10, mpmath.inf])):
        divergence = mpmath.quad(lambda x, p=density: p(x) * mpmath.log(p(x) / p(x - d)), ends)
        # The next order is d^4.
        assert float(divergence / d**2) == pytest.approx(detection.INFORMATION, rel=1e-5)


@pytest.mark.equation("livi2025 Eq. (13)")
@pytest.mark.equation("livi2025 Eq. (15)")
def test_golden_matched_statistic():
    given, expected, close = golden("matched_statistic")
    a, mu = np.array(given["alignment"]), np.array(given["mu"])
    m = a.mean(axis=0)
    signs = np.sign((mu * a).mean(axis=0))
    np.testing.assert_allclose(detection.matched_statistic(mu * a, signs), expected["T"], **close)
    np.testing.assert_allclose(detection.matched_statistic(mu * a, np.sign(m)), expected["T_paper_sign"], **close)
    np.testing.assert_allclose(detection.mean_alignment(mu, m), expected["mbar"], **close)
    # Its mean is the envelope times the mean alignment.
    np.testing.assert_allclose(np.abs(mu).sum() * detection.mean_alignment(mu, m), expected["T_mean"], **close)


@pytest.mark.equation("livi2025 Eq. (22)")
@pytest.mark.parametrize("name", ["HN_exp_alpha1.5", "HN_exp_alpha2.0", "HN_poly_alpha1.5", "HN_log_alpha2.0"])
def test_golden_windows(name):
    given, expected, _ = golden(name)
    lags = np.arange(1.0, 257.0)
    f = ENVELOPES[given["f"]](lags)
    sizes = np.array(given["N"], dtype=float)[:, None]
    noise = {"scale": given["sigma"], "index": given["alpha"]}
    by_ratio = detection.signal_to_noise(given["mbar"] * f, sequences=sizes, **noise) >= given["snr_threshold"]
    floor = detection.envelope_floor(
        alignment=given["mbar"], sequences=sizes, threshold=given["snr_threshold"], **noise
    )
    for detectable in (by_ratio, f >= floor):
        window = detection.window_of(lags, detectable)
        assert window.any_lag.tolist() == expected["H_N"]
        assert window.contiguous.tolist() == expected["H_N"]  # these envelopes fall


@pytest.mark.equation("livi2025 Eq. (26)")
def test_scaling_laws():
    given, expected, close = golden("scaling_laws_closed_form")
    choices = {"index": given["alpha"], "constant": given["const"]}
    laws = {
        "H_exp": transport.Exponential(1.0, given["lam"]),
        "H_poly": transport.PowerLaw(1.0, given["beta"]),
        "H_log": transport.Logarithmic(1.0),
    }
    for key, law in laws.items():
        window = detection.predicted_window(law, given["N"], **choices)
        np.testing.assert_allclose(window, expected[key], **close)
        np.testing.assert_allclose(law.at(window), expected["level_u"], **close)
        # At the edge of the window the lag needs exactly the sequences there are.
        np.testing.assert_allclose(detection.required_by_envelope(law.at(window), **choices), given["N"], rtol=1e-9)
    # The growth of each: log N / (kappa rate), N^(1/(kappa beta)), exp(N^(1/kappa) / constant).
    one, more = (detection.predicted_window(laws["H_exp"], n, **choices) for n in (1e5, 1e8))
    assert more - one == pytest.approx(np.log(1e3) / (3 * 0.05), rel=1e-12)
    one, more = (detection.predicted_window(laws["H_poly"], n, **choices) for n in (1e5, 1e8))
    assert more / one == pytest.approx(1e3 ** (1 / (3 * 1.2)), rel=1e-12)
    assert np.log1p(detection.predicted_window(laws["H_log"], 1e6, **choices)) == pytest.approx(1e2 / 10, rel=1e-12)


def test_golden_decay_fits():
    given, expected, close = golden("decay_fits")
    fits = transport.fit_decay(given["ells"], given["f"]).fits
    np.testing.assert_allclose(fits["exponential"].law.rate, expected["exp_rate"], **close)
    np.testing.assert_allclose(1 / fits["exponential"].law.rate, expected["tau"], **close)
    np.testing.assert_allclose(fits["exponential"].r_squared, expected["exp_r2"], **close)
    np.testing.assert_allclose(fits["power"].law.exponent, expected["pow_beta"], **close)
    np.testing.assert_allclose(fits["power"].r_squared, expected["pow_r2"], **close)


# --- noise without a signal -------------------------------------------------------------------------


def normal(rng, sequences, units):
    return rng.standard_normal((sequences, len(LAGS), units))


def heavy(rng, sequences, units):
    return levy_stable.rvs(1.5, 0.0, size=(sequences, len(LAGS), units), random_state=rng)


def correlated(rng, sequences, units):
    """Units share most of their noise, lags some, and the scale falls with the lag."""
    shared = 0.5 * rng.standard_normal((sequences, 1, 1)) + rng.standard_normal((sequences, len(LAGS), 1))
    own = 0.5 * rng.standard_normal((sequences, len(LAGS), units))
    return np.exp(-0.1 * LAGS)[:, None] * (shared + own)


NOISES = [normal, heavy, correlated]


def scores_by_loop(contributions):
    """Mean and score of a lag: signs of one half on the other, an ordinary standard error over sequences."""
    statistic = np.empty(contributions.shape[:2])
    for p in range(len(contributions)):
        others = [c for k, c in enumerate(contributions) if (k - p) % 2]
        statistic[p] = (np.sign(np.sum(others, axis=0)) * contributions[p]).sum(axis=1)
    mean = statistic.mean(axis=0)
    return statistic, mean, mean / (statistic.std(axis=0, ddof=1) / np.sqrt(len(statistic)))


@pytest.mark.parametrize("noise", NOISES)
def test_scores_of_flips_agree_with_a_plain_loop(noise):
    contributions = noise(np.random.default_rng(1), 21, 3)
    found = detection.detect(LAGS, contributions, rng=np.random.default_rng(2), nulls=19)
    statistic, mean, score = scores_by_loop(contributions)
    # Sums of at most 21 products; a heavy-tailed one may be a thousand times the rest.
    close = {"rtol": 1e-9, "atol": 1e-12 * np.abs(contributions).max()}
    np.testing.assert_allclose(found.statistic, statistic, **close)
    np.testing.assert_allclose(found.mean, mean, **close)
    np.testing.assert_allclose(found.score, score, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.standard_error, mean / score, rtol=1e-7)
    signs = np.random.default_rng(2).integers(0, 2, size=(38, 21)) * 2 - 1
    loops = [scores_by_loop(flip[:, None, None] * contributions) for flip in signs]
    assert found.critical == pytest.approx(max(3.0, max(score.max() for _, _, score in loops[:19])), rel=1e-7)
    np.testing.assert_allclose(found.null_mean, [mean for _, mean, _ in loops[19:]], **close)
    np.testing.assert_allclose(found.null_score, [score for _, _, score in loops[19:]], rtol=1e-7, atol=1e-9)


@pytest.mark.equation("livi2025 Eq. (29)")
def test_flips_in_single_precision_agree_with_double():
    contributions = 1e-60 * correlated(np.random.default_rng(1), 64, 6)  # below the range of single precision
    one, two = (
        detection.detect(LAGS, contributions, rng=np.random.default_rng(2), precision=precision, nulls=50)
        for precision in (np.float32, np.float64)
    )
    np.testing.assert_array_equal(one.statistic, two.statistic)
    np.testing.assert_array_equal(one.score, two.score)
    # Sums of 64 x 6 numbers rounded to 6e-8; a sign may differ where a sum is as close to 0 as that.
    np.testing.assert_allclose(one.null_score, two.null_score, rtol=0, atol=1e-4)
    np.testing.assert_allclose(one.null_mean, two.null_mean, rtol=0, atol=1e-4 * np.abs(two.null_mean).max())
    assert one.critical == pytest.approx(two.critical, rel=1e-4)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("units", [1, 8])
def test_sign_flipped_sequences_show_no_window(noise, units):
    rng = np.random.default_rng(40 + units)
    found = detection.detect(LAGS, noise(rng, 256, units), rng=rng)
    window = found.null_windows([100, 12800])
    assert window.any_lag.shape == (2, 200)
    # More than ten of 200 pass only if the eleven largest of 400 flips are all in this half: 1 in 2000.
    assert ((window.any_lag == 0).mean(axis=1) >= 0.95).all()
    assert ((window.contiguous == 0).mean(axis=1) >= 0.95).all()


@pytest.mark.slow_cases("heavy")
@pytest.mark.parametrize("noise", NOISES)
def test_fresh_noise_shows_no_window(noise):
    windows, naive = [], []
    for seed in range(200):
        rng = np.random.default_rng([seed, 9])
        found = detection.detect(
            LAGS, noise(rng, 96, 4), rng=rng, nulls=100
        )  # too few for a tail index: a pass is not 0
        windows.append(found.windows(12800).any_lag)
        naive.append((found.score > 3).any())
    # Each passes with probability 1/101, so more than ten of 200 do so with probability 6e-6.
    assert np.mean(np.array(windows) == 0) >= 0.95
    if noise is normal:
        # Three standard errors are not enough at 32 lags, with halves that take their signs from each other.
        assert np.mean(naive) > 0.1


def test_the_published_rule_finds_a_window_in_noise():
    rng = np.random.default_rng(3)
    contributions = normal(rng, 256, 8)
    assert detection.detect(LAGS, contributions, rng=rng, method="paper").windows(1600).any_lag == 32
    assert detection.detect(LAGS, contributions, rng=rng).windows(1600).any_lag == 0


# --- signals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
def test_exactly_the_lags_with_a_signal_are_detected(noise):
    rng = np.random.default_rng(17)
    contributions = noise(rng, 512, 6)
    shape = np.exp(-0.1 * LAGS) if noise is correlated else np.ones_like(LAGS)
    size = 3.0 if noise is heavy else 0.6  # a mean of heavy-tailed values is less accurate
    effect = np.where(LAGS <= 12, size, 0.0) * shape
    contributions += effect[:, None] * rng.choice([-1.0, 1.0], size=6)
    found = detection.detect(LAGS, contributions, rng=rng)
    # At each of the 12 lags the signal is many standard errors; beyond them one lag passes in 1 of 201 runs.
    assert found.windows(1e6) == (12, 12)
    if noise is not correlated:  # signs of correlated units carry little information
        np.testing.assert_allclose(found.mean[:12], 6 * size, atol=6 * found.standard_error.max())
    assert np.isnan(found.required()[12:]).all()
    needed = found.required()[:12]
    np.testing.assert_allclose(found.signal_to_noise(needed)[np.arange(12), np.arange(12)], 0.1, rtol=1e-9)


def test_the_tail_index_of_the_noise_is_estimated():
    rng = np.random.default_rng(6)
    gaussian = detection.detect(LAGS, normal(rng, 2000, 2), rng=rng)
    assert (gaussian.noise.index == 2).all()
    # Two units of variance 1: variance 2 = 2 scale^2, known to 1 / sqrt(2 n) = 1.6%; six of that.
    np.testing.assert_allclose(gaussian.noise.scale, 1.0, rtol=0.1)
    stable = detection.detect(LAGS[:6], heavy(rng, 2000, 1)[:, :6], rng=rng)
    # 1.5 with standard error 0.035 (the theory page), five of them.
    np.testing.assert_allclose(stable.noise.index, 1.5, atol=0.18)


def test_noise_of_one_lag_hides_the_envelope_and_total_noise_shows_it():
    rng = np.random.default_rng(12)
    envelope = np.exp(-0.3 * LAGS)
    # Signal and noise of each lag fall together, as those of a real network do.
    contributions = envelope[:, None] * (0.5 + rng.standard_normal((600, len(LAGS), 1)))
    found = detection.detect(LAGS, contributions, rng=rng, total=rng.standard_normal(600))
    assert found.windows(1000).any_lag == 32
    sizes = np.array([10.0, 100.0, 1000.0, 10000.0])
    seen = found.windows(sizes, noise="total").any_lag
    # f = exp(-0.3 lag) must exceed a level that falls as 1/sqrt(N): log(10) / (2 x 0.3) = 3.8 lags per decade. Means
    # and scale are known to 8% and 3%, which moves a window by half a lag, and windows are integers.
    np.testing.assert_allclose(np.diff(seen), np.log(10) / 0.6, atol=1.9)
    assert found.total_index == 2
    missing = detection.detect(LAGS, contributions, rng=rng)
    assert np.isnan(missing.windows(1000, noise="total").any_lag)


def test_blocks_of_lags_and_fixed_signs_agree_with_one_pass(monkeypatch):
    rng = np.random.default_rng(30)
    contributions = correlated(rng, 240, 5)
    full = detection.detect(LAGS, contributions, rng=np.random.default_rng(1))
    monkeypatch.setattr(detection.detection, "_BLOCK", 240 * 5 * 7)  # seven lags at a time
    cut = detection.detect(LAGS, contributions, rng=np.random.default_rng(1))
    for name in ("statistic", "mean", "score", "null_mean", "null_score"):
        np.testing.assert_allclose(getattr(cut, name), getattr(full, name), rtol=1e-9, atol=1e-12)
    signs = np.sign(contributions[:120].sum(axis=0))
    projected = np.concatenate([detection.matched_statistic(b, signs) for b in np.array_split(contributions[120:], 5)])
    found = detection.detect(LAGS, projected[..., None], rng=np.random.default_rng(1), signed=True)
    np.testing.assert_allclose(found.mean, projected.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(
        found.score, projected.mean(axis=0) / (projected.std(axis=0, ddof=1) / np.sqrt(120)), rtol=1e-9
    )
    np.testing.assert_array_equal(found.statistic, projected)


@pytest.mark.parametrize("factor", [2.0**-700, 2.0**300])
def test_results_scale_with_the_unit_of_the_contributions(factor):
    rng = np.random.default_rng(5)
    contributions = normal(rng, 128, 3) + 0.3
    base, scaled = (
        detection.detect(LAGS, c, rng=np.random.default_rng(2)) for c in (contributions, factor * contributions)
    )
    np.testing.assert_array_equal(scaled.score, base.score)
    np.testing.assert_array_equal(scaled.mean, factor * base.mean)
    assert scaled.windows(500) == base.windows(500)
    # The floor of the published code would have been crossed hundreds of orders of magnitude ago.
    np.testing.assert_allclose(scaled.required(), base.required(), rtol=1e-9)
