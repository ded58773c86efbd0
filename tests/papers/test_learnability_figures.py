"""Small versions of the figures of livi2025: numbers against independent computations, and the drawing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import linregress, rankdata

torch = pytest.importorskip("torch")

from learncast import InvalidSpec, UnsupportedModel  # noqa: E402
from learncast.papers import open_paper, reproduce  # noqa: E402
from learncast.papers.learnability.preset import OPTIMIZERS, PRESETS  # noqa: E402
from learncast.papers.learnability.runs import (  # noqa: E402
    DiagnosedRun,
    ValidatedRun,
    _compared,
    diagnose,
    harmonic_trials,
)
from learncast.papers.paper import short  # noqa: E402
from learncast.windows.transport import exact_transport, one_step_jacobians  # noqa: E402

PAPER = open_paper("learnability")


@pytest.fixture(scope="module")
def adaptive():
    return PAPER.figure("1").make()


@pytest.fixture(scope="module")
def table():
    return PAPER.figure("C").make()


def test_the_paper_has_all_figures():
    assert [figure.name for figure in PAPER.figures] == [*(str(k) for k in range(1, 14)), *"CNGT"]
    assert [figure.name for figure in PAPER.chosen("1")] == ["1"]
    assert PAPER.presets == ("smoke", "laptop", "paper")


def test_unknown_presets_are_refused(tmp_path):
    with pytest.raises(InvalidSpec) as error:
        reproduce("learnability", preset="full", out=tmp_path)
    assert error.value.field == "preset"


def test_the_preset_paper_has_the_published_settings():
    preset = PRESETS["paper"]
    size = preset.main
    assert (size.steps, size.hidden_size, preset.diagnosed, len(size.lags)) == (1024, 128, 8000, 128)
    assert preset.main.updates * preset.main.batch == pytest.approx(750 * 8000, rel=0.03)  # whole batches
    assert (preset.main.lags[0], preset.main.lags[-1]) == (4, 256)
    assert set(preset.rates.values()) == {1e-3}
    assert OPTIMIZERS["SGD with momentum"]["momentum"] == 0.9


def test_the_table_has_the_settings_of_the_authors_script():
    """The script is `diagnostics/run_envelope_validation_batch.sh` of commit f43916c."""
    preset = PRESETS["paper"]
    table = preset.validation
    assert (table.steps, table.inputs, table.hidden_size, table.sequences) == (500, 8, 64, 256)
    assert table.lags == (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 245)
    assert (table.updates, table.batch) == (200 * 256 // 32, 32)  # --B is the number of sequences; batches have 32
    assert (preset.exact, preset.times, preset.validation_seeds) == (16, 50, (42, 123, 271, 314, 999))
    runs = [ValidatedRun.from_dict(run.settings) for run in PAPER.figure("C").runs("paper")]
    assert len(runs) == 75
    assert {run.times for run in runs} == {50}
    assert {run.optimizer["learning_rate"] for run in runs} == {1e-3}
    assert {run.optimizer["weight_decay"] for run in runs} == {1e-4}
    [rms] = {(run.optimizer["momentum"], run.optimizer["alpha"]) for run in runs if run.optimizer["kind"] == "rmsprop"}
    assert rms == (0.9, 0.99)
    assert {run.gate for run in runs if run.cell in ("const-gate", "shared-gate", "diag-gate")} == {0.1}
    assert not any(run.normalised for run in runs)


def test_the_harmonic_task_is_its_formula():
    rng, u = np.random.default_rng(3), np.array([0.6, 0.8])
    inputs, targets = harmonic_trials(4, rng, steps=120, direction=u)
    # The generator first draws the phases of every harmonic, trial and channel.
    phases = np.random.default_rng(3).uniform(0, 2 * np.pi, (4, 5, 2))
    for trial, t, channel in ((0, 7, 0), (3, 119, 1)):
        wanted = sum(np.sin(2 * np.pi * k * t / 50 + phases[trial, k - 1, channel]) / k for k in range(1, 6))
        assert inputs[trial, t, channel] == pytest.approx(wanted, abs=1e-12)
    for t in (3, 30, 119):
        signal = sum(c * np.tanh(inputs[2, t - lag] @ u) for lag, c in ((5, 1.0), (20, 0.5), (50, 0.25)) if t >= lag)
        assert targets[2, t, 0] == pytest.approx(signal, abs=0.06)  # six standard deviations of the noise


@pytest.mark.parametrize("name", ["1", "2", "3", "4", "5", "12", "13", "N", "T"])
def test_every_figure_can_be_drawn_and_written(name, adaptive):
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


def test_training_in_parts_gives_the_same_network():
    """Recording a network during training must not change it."""
    settings = PAPER.figure("1").runs("smoke")[0].settings
    run = DiagnosedRun.from_dict(settings)
    once, parts = (run.trainer(lambda: run.trials(32, 3)) for _ in range(2))
    losses = once.train(6)
    np.testing.assert_array_equal(np.concatenate([parts.train(1), parts.train(3), parts.train(2)]), losses)
    for one, other in zip(once.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device exists here")
def test_a_missing_device_is_refused():
    [run, *_] = open_paper("learnability", device="cuda").figure("7").runs("smoke")
    with pytest.raises(UnsupportedModel) as error:
        diagnose(run.settings)
    assert error.value.field == "device"
    # The device "auto" falls back to the processor.
    [run, *_] = open_paper("learnability", device="auto").figure("7").runs("smoke")
    assert DiagnosedRun.from_dict(run.settings).model().weights.device.type == "cpu"


def test_the_table_has_correlations_and_slopes_of_envelopes(table):
    for index in np.ndindex(table["slope"].shape):
        one = table.isel(dict(zip(table["slope"].dims, index, strict=True)))
        first, exact = one["envelope"].values, one["exact_envelope"].values
        line = linregress(np.log(exact), np.log(first))
        # Both are the same sums in a different order.
        assert float(one["slope"]) == pytest.approx(line.slope, rel=1e-9)
        assert float(one["pearson"]) == pytest.approx(line.rvalue, rel=1e-9)
        ranks = np.corrcoef(rankdata(first), rankdata(exact))[0, 1]
        assert float(one["spearman"]) == pytest.approx(ranks, rel=1e-9)


def test_one_step_transport_is_exact_to_first_order(table):
    # Over a single step the expansion A + R has no higher orders, so the diagonals agree to single precision. The
    # auxiliary terms of eq. (58) are not part of it.
    at_one = table.sel(lag=1).drop_sel(cell="GRU, eq. 58")
    np.testing.assert_allclose(at_one["envelope"], at_one["exact_envelope"], rtol=1e-5)


@pytest.mark.parametrize("cell", ["diag-gate", "paper-gru"])
def test_envelopes_at_random_times_are_means_of_products(cell):
    chosen, [lag, other] = {"kind": "sgd", "learning_rate": 0.1}, [2, 5]
    small = replace(PRESETS["smoke"].validation, steps=12, lags=(lag, other), hidden_size=3, updates=1)
    run = ValidatedRun.of(cell, chosen, 4, PRESETS["smoke"], normalised=False, training=small)
    u = np.random.default_rng(0).standard_normal((16, 12, 2))
    trainer = run.trainer(lambda: (u, u[..., :1]))
    trainer.train(1)
    first, _, replay, rates = _compared(trainer, u[:2], [lag, other], 4)
    exact = exact_transport(replay, [lag, other], rates=rates)
    J = one_step_jacobians(replay).double().numpy()  # (time, sequence, 3, 3), J[t] from t - 1 to t
    zeroth, mixing = (np.asarray(part, dtype=float) for part in (replay.retention, replay.mixing))
    for row, k in enumerate((lag, other)):
        chosen_times = np.argwhere(rates[row].numpy().any(axis=-1))
        assert len(chosen_times) == 2 * 4
        assert (chosen_times[:, 0].min() >= 1, chosen_times[:, 0].max() < 12 - k) == (True, True)
        total = np.zeros(2)
        for s, b in chosen_times:
            M = np.linalg.multi_dot([*J[s + 1 : s + k + 1, b][::-1], np.eye(3)])
            A, R = zeroth[s + 1 : s + k + 1, b], mixing[s + 1 : s + k + 1, b]
            gamma = A.prod(0) * (1 + (R / A).sum(0))
            total += 0.1 * np.abs([gamma, np.diag(M)]).sum(axis=1)  # plain descent has one rate
        # Single precision of the model.
        np.testing.assert_allclose([first[row], exact.envelope[row]], total / len(chosen_times), rtol=1e-4)


@pytest.mark.parametrize(("preset", "words"), [("smoke", ["preset smoke"]), ("laptop", [])])
def test_pictures_of_the_smallest_preset_are_marked(table, preset, words):
    figure = PAPER.figure("C")
    drawn = PAPER._stamped(figure.draw(table), preset, figure)
    assert [text.get_text() for text in drawn.texts] == words


def test_the_table_can_be_drawn_and_written(table):
    drawn = PAPER.figure("C").draw(table)
    assert all(ax.has_data() and ax.get_ylabel() for ax in drawn.axes)
    numbers = PAPER.figure("C").numbers(table)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_short_numbers_have_four_digits():
    assert [short(value) for value in (np.nan, np.inf, 1.23456)] == [None, "inf", 1.235]


@pytest.mark.slow
def test_the_full_paper_can_be_reproduced(tmp_path):
    made = reproduce("learnability", preset="smoke", out=tmp_path, formats=("png",))
    assert set(made["figures"]) == {figure.name for figure in PAPER.figures}
    for name in made["figures"]:
        assert (tmp_path / f"figure_{name}.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "numbers.json").read_text())["preset"] == "smoke"


def test_the_terms_of_eq_58_enlarge_the_envelope_of_a_gru(adaptive):
    assert bool(adaptive["envelope_auxiliary"].sel(cell="ConstGate").isnull().all())
    gru = adaptive.sel(cell="GRU")
    assert bool((gru["envelope_auxiliary"] > 1.2 * gru["envelope"]).sel(lag=1).all())
    numbers = PAPER.figure("1").numbers(adaptive)
    first, _ = numbers["GRU: envelope with eq. (58)'s terms over without, first and last lag"]
    assert first > 1.2


def test_figure_g_has_both_initial_gates():
    runs = [DiagnosedRun.from_dict(run.settings) for run in PAPER.figure("G").runs("laptop")]
    starts = {(run.cell, run.gate) for run in runs}
    # None is the default: 0.05 for shared and diagonal gates, random biases for a GRU and an LSTM.
    assert starts == {
        *(("shared-gate", gate) for gate in (0.5, None)),
        *(("diag-gate", gate) for gate in (0.5, None)),
        *(("paper-gru", gate) for gate in (None, 0.05)),
        *(("paper-lstm", gate) for gate in (None, 0.05)),
    }
    first, gates = ({run.text for run in PAPER.figure(name).runs("laptop")} for name in "1G")
    assert len(first & gates) == 4  # these are trained once


def test_lags_beyond_the_task_do_not_depend_on_the_targets():
    """Targets of other sequences change the signal at the lags of the task, but not beyond."""
    run = open_paper("learnability", cells=["const-gate"]).figure("1").runs("smoke")[0]
    settings = {**run.settings, "diagnosed": 2048, "training": {**run.settings["training"], "updates": 60}}
    result = diagnose(settings)
    detected = result["score"] > result["critical_score"]
    change = np.abs(result["unrelated_signal"] / result["signal"] - 1)
    far = result["lag"].values > settings["task_lags"][-1]
    within, beyond = (change.values[mask & detected.values] for mask in (~far, far))
    assert np.median(within) > 0.5
    assert not beyond.size or np.median(beyond) < 0.5
