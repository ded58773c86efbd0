"""The figures of livi2025, small: cached runs, numbers against lines written out here, and the drawing."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import linregress, rankdata

torch = pytest.importorskip("torch")

from learncast.errors import InvalidSpec, UnsupportedModel  # noqa: E402
from learncast.papers import open_paper, reproduce  # noqa: E402
from learncast.papers.learnability.preset import OPTIMIZERS, PRESETS  # noqa: E402
from learncast.papers.learnability.runs import Run, diagnose  # noqa: E402
from learncast.papers.paper import short  # noqa: E402

PAPER = open_paper("learnability")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


@pytest.fixture(scope="module")
def adaptive(folder):
    return PAPER.figure("1").made(folder=folder)


@pytest.fixture(scope="module")
def table(folder):
    return PAPER.figure("C").made(folder=folder)


def test_every_figure_of_the_paper_is_here():
    assert [figure.name for figure in PAPER.figures] == [*(str(k) for k in range(1, 14)), "C"]
    assert [figure.name for figure in PAPER.chosen("1")] == ["1"]
    assert PAPER.presets == ("smoke", "laptop", "paper")


def test_presets_are_the_papers_own(tmp_path):
    with pytest.raises(InvalidSpec, match="smoke"):
        reproduce("learnability", preset="full", out=tmp_path)


def test_the_published_settings_are_kept():
    preset = PRESETS["paper"]
    assert (preset.main.steps, preset.main.hidden_size, preset.diagnosed, len(preset.main.lags)) == (
        1024,
        128,
        8000,
        128,
    )
    assert preset.main.updates * preset.main.batch == pytest.approx(750 * 8000, rel=0.03)  # whole batches
    assert (preset.main.lags[0], preset.main.lags[-1]) == (4, 256)
    assert set(preset.rates.values()) == {1e-3}
    assert OPTIMIZERS["SGD with momentum"]["momentum"] == 0.9


@pytest.mark.parametrize("name", ["1", "2", "3", "4", "5", "12", "13"])
def test_a_figure_is_drawn_and_its_numbers_can_be_written(name, adaptive):
    figure = PAPER.figure(name)
    drawn = figure.draw(adaptive)
    assert all(ax.has_data() and ax.get_ylabel() for ax in drawn.axes)
    assert name in drawn.axes[0].get_title(loc="left")
    numbers = figure.numbers(adaptive)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_fits_are_straight_lines(adaptive):
    numbers = PAPER.figure("1").numbers(adaptive)
    for cell in adaptive["cell"].values:
        f = np.log(adaptive["envelope"].sel(cell=cell).mean("seed").values)
        semilog, double = linregress(adaptive["lag"], f), linregress(np.log(adaptive["lag"]), f)
        # Numbers are written with four digits.
        assert numbers[f"{cell}: exponential rate"] == pytest.approx(-semilog.slope, rel=6e-4)
        assert numbers[f"{cell}: exponential R2"] == pytest.approx(semilog.rvalue**2, rel=6e-4)
        assert numbers[f"{cell}: power exponent"] == pytest.approx(-double.slope, rel=6e-4)
        assert numbers[f"{cell}: power R2"] == pytest.approx(double.rvalue**2, rel=6e-4)


def test_a_stored_run_is_not_trained_again(folder, adaptive, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr("learncast.learnability.rehearsal.rehearsed", forbidden)
    again = PAPER.figure("1").made(folder=folder)
    xr.testing.assert_identical(again, adaptive)
    # Without the diagnosis it is made again from the stored weights and the optimiser's state, to the last digit.
    for file in (folder / "runs").glob("window_const-gate_adamw*.nc"):
        file.unlink()
    xr.testing.assert_allclose(PAPER.figure("1").made(folder=folder), adaptive, rtol=1e-12)


def test_an_interrupted_training_leaves_nothing_behind(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("learncast.learnability.rehearsal.rehearsed", stopped)
    with pytest.raises(KeyboardInterrupt):
        diagnose(Run("const-gate", "SGD", 1, PRESETS["smoke"]).described(), folder=tmp_path)
    assert not list(tmp_path.rglob("*.*"))


def test_other_settings_are_another_run(tmp_path):
    preset = PRESETS["smoke"]
    other = dataclasses.replace(preset, rates={**preset.rates, "SGD": 0.2})
    places = [
        run.place(tmp_path, "lags", run.settings(preset.main))
        for run in (Run("const-gate", "SGD", 1, preset), Run("const-gate", "SGD", 1, other))
    ]
    assert places[0] != places[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device exists here")
def test_a_missing_device_is_named(tmp_path):
    preset = dataclasses.replace(PRESETS["smoke"], device="cuda")
    with pytest.raises(UnsupportedModel, match=r"'cuda'.*laptop"):
        diagnose(Run("const-gate", "SGD", 1, preset).described(), folder=tmp_path)


def test_the_table_compares_envelopes(table):
    for index in np.ndindex(table["slope"].shape):
        one = table.isel(dict(zip(table["slope"].dims, index, strict=True)))
        first, exact = one["envelope"].values, one["exact_envelope"].values
        line = linregress(np.log(exact), np.log(first))
        # Both are the same sums in another order.
        assert float(one["slope"]) == pytest.approx(line.slope, rel=1e-9)
        assert float(one["pearson"]) == pytest.approx(line.rvalue, rel=1e-9)
        ranks = np.corrcoef(rankdata(first), rankdata(exact))[0, 1]
        assert float(one["spearman"]) == pytest.approx(ranks, rel=1e-9)


def test_one_step_transport_is_exact_to_first_order(table):
    # Over a single step the expansion A + R has no higher orders, so the diagonals agree to single precision.
    at_one = table.sel(lag=1)
    np.testing.assert_allclose(at_one["envelope"], at_one["exact_envelope"], rtol=1e-5)


def test_the_table_is_drawn(table):
    drawn = PAPER.figure("C").draw(table)
    assert all(ax.has_data() and ax.get_ylabel() for ax in drawn.axes)
    numbers = PAPER.figure("C").numbers(table)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_numbers_say_what_is_unknown():
    assert [short(value) for value in (np.nan, np.inf, 1.23456)] == [None, "inf", 1.235]


@pytest.mark.slow
def test_all_figures_are_written(tmp_path):
    made = reproduce("learnability", preset="smoke", out=tmp_path)
    assert set(made["figures"]) == {figure.name for figure in PAPER.figures}
    for name in made["figures"]:
        assert (tmp_path / f"figure_{name}.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "numbers.json").read_text())["preset"] == "smoke"
