"""The figures of proca2025: numbers against reference values or formulas."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from learncast.papers import open_paper, reproduce
from learncast.papers.linear_rnn import experiment, networks, paper, pictures

SMALL = paper()
NAMES = ["S1", "S2a", "S2b", "S3a", "S3b", "NTK", "sensory"]
#: Smaller than the smallest preset.
SIZE = {"seeds": 1, "points": 12, "accuracy": 0.99, "few": True}
GOLDEN = {
    entry["id"]: entry
    for entry in json.loads((Path(__file__).parents[1] / "reference/golden/recurrent.json").read_text())["entries"]
}
#: Numbers are written with four digits.
DIGITS = 6e-4


@functools.cache
def made(name):
    return experiment({"name": name, **SIZE})


def numbers(name):
    return SMALL.figure(name).numbers(made(name))


#: Figures that train many networks.
LONG = ("S1", "S2b", "S3a", "S3b", "sensory", "NTK")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NAMES])
def test_every_figure_can_be_drawn_and_written(name):
    drawn = SMALL.figure(name).draw(made(name))
    assert all(ax.has_data() and ax.get_ylabel() for ax in drawn.axes)
    assert name in drawn.axes[0].get_title(loc="left")
    assert json.loads(json.dumps(numbers(name), allow_nan=False)) == numbers(name)
    assert "Ours: " in SMALL.figure(name).caption


@pytest.mark.slow
def test_half_loss_times_are_the_reference_values(monkeypatch):
    monkeypatch.setattr(networks, "descent_half_loss_time", lambda *_, **__: 1.0)  # only the theory is tested
    dataset = networks.order(1, 18, (1.0,), initial=0.1)
    for recurrence in (0.5, 1.0):
        line = dataset["theory"].sel(recurrence=recurrence, method="nearest", tolerance=1e-9)
        np.testing.assert_allclose(line, GOLDEN[f"half_loss_order_b0_{recurrence}"]["expected"], rtol=1e-8)
    assert dataset.attrs["reversal"] == pytest.approx(0.828, abs=5e-4)


@pytest.mark.slow
def test_networks_learn_in_the_predicted_order():
    # Effective starts are exact for vanishing weights. At 0.03 their error is 1%, and that of descent is as large.
    assert numbers("S1")["largest gap of networks and theory, share"] < 0.02


def test_best_recurrences_are_the_reference_values():
    values = numbers("S2a")
    assert values["ramp up: b*"] == pytest.approx(GOLDEN["best_fit_lin_increasing"]["expected"]["b"], rel=DIGITS)
    assert values["delay 3: b*"] == pytest.approx(GOLDEN["best_fit_delay3"]["expected"]["b"], rel=DIGITS)
    assert values["pulse at lag 4: b*"] == pytest.approx(GOLDEN["best_fit_impulse_lag4"]["expected"]["b"], rel=DIGITS)
    # Reversing time turns b into 1/b.
    assert values["ramp down: b*"] == pytest.approx(1 / values["ramp up: b*"], rel=2 * DIGITS)
    assert values["random sequences for which the rule is right"] >= 0.99 * values["random sequences"]


@pytest.mark.slow
def test_losses_on_longer_trials_have_their_formula():
    values = numbers("S2b")
    leaks = [values[f"sum by b = {b}, loss at T2 = 50"] for b in ("0.99", "1", "1.01")]
    np.testing.assert_allclose(leaks, GOLDEN["extrap_integrator_leak"]["expected"], rtol=DIGITS, atol=1e-12)
    for rho in (0.9, 1.1):
        formula = 0.5 * (rho ** (10 - 20) - 1) ** 2 * (1 - rho**40) / (1 - rho**2)
        assert values[f"weights {rho:g}^(10 - t) by step, loss at T2 = 20"] == pytest.approx(formula, rel=DIGITS)
        at = made("S2b")["start_networks"].sel(decay=rho, network_horizon=20)
        np.testing.assert_allclose(at, formula, rtol=0.05)  # trained to 1% of the map


@pytest.mark.slow
def test_terms_of_the_loss_have_their_formula():
    values, power = numbers("S3a"), (1 - 0.8**20) / (1 - 0.8**2)
    assert values["data term at the end"] == pytest.approx(-power, rel=DIGITS)
    assert values["regulariser at the end"] == pytest.approx(power / 2, rel=DIGITS)
    assert values["last input only: largest such response at the end"] < 1e-3
    dataset = made("S3a")
    at = dataset["network_time"].values
    for name in ("terms", "past"):
        series = dataset[name].values
        theory = np.array([np.interp(at, dataset["time"], line) for line in series])
        # Interpolation of 48 points over 12 units of time, and 1% for the effective start.
        assert np.abs(dataset[f"network_{name}"].values - theory).max() < 0.1 * np.abs(series).max()


@pytest.mark.slow
def test_late_pulses_jump_at_the_reference_values():
    values = numbers("S3b")
    assert values["T = 10: jump at eps"] is None
    assert values["T = 20: jump at eps"] == pytest.approx(0.1710, abs=6e-5)
    assert values["T = 50: jump at eps"] == pytest.approx(0.1210, abs=6e-5)
    assert values["T = 50: b* below and above"] == pytest.approx([0.165, 0.980], abs=6e-4)
    assert values["T = 50: bistable eps"] == pytest.approx([0.0750, 0.2000], abs=6e-5)
    # Networks end where b P'/P = b Q'/2Q, written out for 20 steps.
    k = np.arange(20)
    for ends in made("S3b")["networks"].values:
        for eps, b in zip(made("S3b")["network_background"].values, ends, strict=True):
            target, model = np.where(k == 0, 1.0, eps) * b**k, b ** (2 * k)
            assert (target @ k) / target.sum() == pytest.approx((model @ k) / model.sum(), rel=1e-3)


def test_kernels_change_as_in_the_reference_run():
    total, block = (
        made("NTK")["misalignment"].sel(kernel=kernel).isel(seed=0) for kernel in ("all weights", "W_y block")
    )
    # An independent run with other seeds; at these gains seeds differ by a few per cent, the control's total by half.
    np.testing.assert_allclose(total.sel(network="recurrent"), [0.917, 0.827], rtol=0.05)
    np.testing.assert_allclose(block.sel(network="recurrent"), [0.600, 0.447], rtol=0.1)
    np.testing.assert_allclose(block.sel(network="feedforward control"), [0.577, 0.231], rtol=0.15)
    assert (total.sel(network="feedforward control") < 0.1).all()
    assert float(made("NTK")["relative_loss"].max()) <= 1e-4


def test_sensory_tasks_have_the_reference_modes():
    values = numbers("sensory")
    for name, recurrence in (("sum", 1.0), ("mean", 1.0), ("recency 0.8", 0.8), ("primacy 0.8", 1.25)):
        assert values[f"{name}: b*"] == pytest.approx(recurrence, rel=DIGITS)
        # Networks are trained to 1% of the map.
        assert values[f"{name}: outlier of networks"] == pytest.approx([recurrence] * 2, rel=0.02)
    assert values["noisy constant: loss of the best mode"] == pytest.approx(1 / 12, rel=DIGITS)
    # 0.361 and 3.0 of a target of mean square 1, and 0.025 and 0.1125 of one of mean square 1 / T2.
    assert values["noisy constant: unexplained at T2 = 20 and 40"] == pytest.approx([0.7222, 6.0], rel=DIGITS)
    shares = [2 * 20 * 0.025, 2 * 40 * 0.1125]
    assert values["mean: unexplained at T2 = 20 and 40"] == pytest.approx(shares, rel=DIGITS)
    delay = GOLDEN["best_fit_delay3"]["expected"]
    assert values["delay 3: loss of the best mode"] == pytest.approx(delay["E"], rel=DIGITS)


@pytest.mark.slow
def test_a_figure_can_be_written(tmp_path):
    assert [figure.name for figure in open_paper("linear-rnn").figures] == NAMES
    reproduce("linear-rnn", figure="S2a", out=tmp_path, formats=("png",))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"figure_S2a.{suffix}" for suffix in ("csv", "nc", "png")),
        "numbers.json",
    ]


def test_presets_have_different_numbers_of_networks():
    [smoke], [full] = (SMALL.figure("S1").runs(preset) for preset in ("smoke", "full"))
    assert (smoke.settings["seeds"], full.settings["seeds"]) == (1, 3)
    assert not SMALL.figure("S1").torch


def test_every_experiment_depends_on_the_preset():
    for figure in SMALL.figures:
        assert figure.runs("smoke")[0].settings != figure.runs("full")[0].settings


@pytest.mark.parametrize(("preset", "more"), [("smoke", ", preset smoke"), ("full", "")])
def test_pictures_have_a_note(preset, more):
    figure = SMALL.figure("S2a")
    drawn = SMALL._stamped(figure.draw(made("S2a")), preset, figure)
    assert [text.get_text() for text in drawn.texts] == [SMALL.note + more]


@pytest.mark.slow
def test_the_full_paper_can_be_reproduced(tmp_path):
    summary = reproduce("linear-rnn", preset="smoke", out=tmp_path)
    assert list(summary["figures"]) == NAMES
    assert not re.search(r"NaN|Infinity", (tmp_path / "numbers.json").read_text())


def test_branches_begin_and_end_at_the_jump():
    line = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.8, 0.9])
    at, values = pictures.broken_at(1.5, *line, [0.3, 0.7])
    assert at.tolist() == [0.0, 1.0, 1.5, 1.5, 1.5, 2.0, 3.0]
    np.testing.assert_array_equal(values, [0.1, 0.2, 0.3, np.nan, 0.7, 0.8, 0.9])
    np.testing.assert_array_equal(pictures.broken_at(np.nan, *line, [np.nan, np.nan]), line)
