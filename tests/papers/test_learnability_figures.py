"""Small versions of the figures of livi2025: numbers against independent computations, and the drawing."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy.stats import linregress

torch = pytest.importorskip("torch")

from learncast import InvalidSpec, UnsupportedModel  # noqa: E402
from learncast.papers import open_paper, reproduce  # noqa: E402
from learncast.papers.learnability import claims  # noqa: E402
from learncast.papers.learnability.preset import OPTIMIZERS, PRESETS  # noqa: E402
from learncast.papers.learnability.runs import (  # noqa: E402
    DiagnosedRun,
    diagnose,
    epochs,
)
from learncast.papers.paper import short  # noqa: E402

PAPER = open_paper("learnability")


@pytest.fixture(scope="module")
def adaptive():
    return PAPER.figure("1").make()


def test_the_paper_has_all_figures():
    assert [figure.name for figure in PAPER.figures] == [*(str(k) for k in range(1, 14)), "claims", "T"]
    assert [figure.name for figure in PAPER.chosen("1")] == ["1"]
    assert PAPER.presets == ("default", "night", "smoke", "paper")


def test_unknown_presets_are_refused(tmp_path):
    with pytest.raises(InvalidSpec) as error:
        reproduce("learnability", preset="full", out=tmp_path)
    assert error.value.field == "preset"


def test_the_preset_paper_has_the_published_settings():
    preset = PRESETS["paper"]
    size = preset.main
    assert (size.steps, size.hidden_size, preset.diagnosed, len(size.lags)) == (1024, 128, 8000, 128)
    for schedule in preset.schedules.values():
        assert schedule.updates * size.batch == pytest.approx(750 * 8000, rel=0.03)  # whole batches
        assert schedule.rate == 1e-3
    assert (size.lags[0], size.lags[-1]) == (4, 256)
    assert size.gate == pytest.approx(0.05)  # scaled for other sizes, see below
    assert OPTIMIZERS["SGD with momentum"]["momentum"] == 0.9


@pytest.mark.parametrize("name", ["1", "2", "3", "4", "5", "12", "13", "T"])
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
        lags = adaptive["lag"].values[adaptive["lag"] <= 12]  # the task's longest
        f = np.log(adaptive["envelope"].sel(cell=cell, lag=lags).mean("seed").values)
        semilog, double = linregress(lags, f), linregress(np.log(lags), f)
        # Numbers are written with four digits.
        assert numbers[f"{cell}: exponential rate"] == pytest.approx(-semilog.slope, rel=6e-4)
        assert numbers[f"{cell}: exponential R2"] == pytest.approx(semilog.rvalue**2, rel=6e-4)
        assert numbers[f"{cell}: power exponent"] == pytest.approx(-double.slope, rel=6e-4)
        assert numbers[f"{cell}: power R2"] == pytest.approx(double.rvalue**2, rel=6e-4)


def test_training_in_parts_gives_the_same_network():
    """Recording a network during training must not change it."""
    settings = PAPER.figure("1").runs("smoke")[0].settings
    run = DiagnosedRun.from_dict(settings)
    once, parts = (run.trainer(32) for _ in range(2))
    losses = once.train(6)
    np.testing.assert_array_equal(np.concatenate([parts.train(1), parts.train(3), parts.train(2)]), losses)
    for one, other in zip(once.stack.model.parameters(), parts.stack.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("cell", ["const-gate", "shared-gate", "diag-gate", "paper-gru", "paper-lstm"])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_stacked_networks_learn_as_they_do_alone(cell, kind):
    settings = PAPER.figure("1").runs("smoke")[0].settings
    gates = (None,) if cell in ("paper-gru", "paper-lstm") else (0.2,)
    chosen = {"kind": kind, "learning_rate": 0.01, "weight_decay": 1e-4}
    run = DiagnosedRun.from_dict({**settings, "cell": cell, "gates": gates, "seeds": (3, 4), "optimizer": chosen})
    trainer = run.trainer(32)
    losses = trainer.train(4)
    for k, seed in enumerate(run.seeds):
        # Plain training of one network: its own batches, loss, clipping and optimiser.
        model = run.model(gates[0], seed)
        optimizer = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind](
            model.parameters(), lr=0.01, weight_decay=1e-4
        )
        x, y = (torch.as_tensor(part).float() for part in run.trials(32, 3, seed))
        batches = epochs(np.random.default_rng([seed, 2]), 32, run.training.batch)
        for step in range(4):
            rows = torch.as_tensor(next(batches))
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x[rows]), y[rows])
            assert float(loss.detach()) == pytest.approx(losses[step, k], rel=1e-5)  # single precision
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), run.clip)
            optimizer.step()
        for one, other in zip(model.parameters(), trainer.stack.models[k].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
            mine, theirs = (o.state[p] for o, p in ((optimizer, one), (trainer.stack.optimizers[k], other)))
            assert mine.keys() == theirs.keys()


def test_every_epoch_visits_each_sequence_once():
    batches = epochs(np.random.default_rng(0), 12, 4)
    first, second = (np.concatenate([next(batches) for _ in range(3)]) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first.tolist() != second.tolist()


def test_networks_start_as_the_authors_do():
    """Readout rows have norm 1; candidate biases are 0, those of a GRU are below 1 / sqrt(inputs) in size."""
    const, gru = (DiagnosedRun.from_dict(run.settings) for run in PAPER.figure("1").runs("smoke"))
    for run in (const, gru):
        model = run.model(run.gates[0], 1)
        assert float(model.weights.detach().norm()) == pytest.approx(1, rel=1e-6)
        bias = model.block.bias.detach().abs()
        assert (float(bias.max()) == 0) == (run.cell == "const-gate")
        assert float(bias.max()) <= 1 / np.sqrt(run.training.inputs)


@pytest.mark.parametrize(("longest", "gate"), [(32, 0.3366), (64, 0.1855), (128, 0.0975)])
def test_gates_scale_with_the_longest_lag(longest, gate):
    [size] = [one for one in PRESETS["night"].sizes if one.task_lags[-1] == longest]
    assert size.gate == pytest.approx(gate, abs=5e-5)
    # The share of the state that the longest lag keeps is the scripts' for lags to 256.
    assert (1 - size.gate) ** longest == pytest.approx(0.95**256)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device exists here")
def test_training_slows_the_decay_of_envelopes_except_with_a_shared_gate():
    """The conjecture of section 7, in the stored results: the drop of the envelope falls in every seed, or in none."""
    figure = PAPER.figure("T")
    dataset = figure.make(preset="default", compute=PAPER.stored)
    drop = dataset["watched_drop"].transpose("cell", "seed", "update")
    # The last record is the diagnosed envelope's drop, measured on fewer sequences and five digits.
    f = dataset["envelope"].transpose("cell", "seed", "lag")
    np.testing.assert_allclose(drop[..., -1], np.log(f.sel(lag=1) / f.sel(lag=32)), rtol=0.1)
    falls = (drop[..., -1] < drop[..., 0]).sum("seed").values
    wanted = {"ConstGate": 5, "SharedGate": 0, "DiagGate": 5, "GRU": 5, "LSTM": 5}
    assert dict(zip(dataset["cell"].values, falls, strict=True)) == wanted
    assert figure.numbers(dataset)["SharedGate: seeds in which the drop falls, of 5"] == 0


def test_a_missing_device_is_refused():
    [run, *_] = open_paper("learnability", device="cuda").figure("7").runs("smoke")
    with pytest.raises(UnsupportedModel) as error:
        diagnose(run.settings)
    assert error.value.field == "device"
    # The device "auto" falls back to the processor.
    [run, *_] = open_paper("learnability", device="auto").figure("7").runs("smoke")
    assert DiagnosedRun.from_dict(run.settings).model(0.1, 0).weights.device.type == "cpu"


@pytest.mark.parametrize(("preset", "words"), [("smoke", ["preset smoke"]), ("default", [])])
def test_pictures_of_the_smallest_preset_are_marked(adaptive, preset, words):
    figure = PAPER.figure("3")
    drawn = PAPER._stamped(figure.draw(adaptive), preset, figure)
    assert [text.get_text() for text in drawn.texts] == words


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


def test_presets_leave_out_figures_of_optimisers_that_they_do_not_have():
    names = {figure.name for figure in PAPER.selected(None, "default")}
    assert {figure.name for figure in PAPER.figures} - names == {"9", "10", "11"}
    with pytest.raises(InvalidSpec) as error:
        PAPER.selected("9", "default")
    assert error.value.field == "preset"
    assert len(PAPER.selected(None, "night")) == len(PAPER.figures)


def table_of(**columns):
    """Measures of the five cells, five seeds each."""
    cells = [*claims.CRITERIA["homogeneous"], *claims.CRITERIA["heterogeneous"]]
    shared = {"loss_fall": np.full((5, 5), 0.5)}
    made = {name: (("cell", "seed"), np.asarray(values, float)) for name, values in (shared | columns).items()}
    return xr.Dataset(made, {"cell": cells, "seed": range(5)}, {"longest_lag": 64.0})


def verdict(name, table):
    [one] = [row for row in claims.verdicts({"AdamW": table}) if row["name"] == name]
    return one["verdict"]


def test_orders_need_every_cell_on_the_stated_side_of_both_others():
    apart = np.array([[11.0], [40], [4], [5], [6]]) + np.linspace(0, 0.4, 5)
    shares = np.array([[0.0], [-0.1], [0.5], [0.4], [0.6]]) + np.linspace(0, 0.04, 5)
    assert verdict("C2", table_of(drop=apart, power_share=shares)) == "holds"
    overlapping = apart.copy()
    overlapping[4] += 7
    assert verdict("C2", table_of(drop=overlapping, power_share=shares)) == "fails"
    # Of five against five seeds, an exact test cannot reach 0.05 / 6 if one pair is in the wrong order.
    assert verdict("C3", table_of(drop=apart, power_share=-shares)) == "fails"


def test_untrained_and_saturated_networks_decide_nothing():
    apart = np.array([[11.0], [40], [4], [5], [6]]) + np.linspace(0, 0.4, 5)
    assert verdict("C2", table_of(drop=apart, loss_fall=np.full((5, 5), 0.1))) == "undecided"
    assert verdict("C6", table_of(early_window=np.full((5, 5), 64.0))) == "undecided"
    assert verdict("C6", table_of(early_window=np.full((5, 5), 63.0))) == "fails"
    assert verdict("C8", table_of(drop=apart)) == "undecided"  # no SGD runs


def test_conditions_need_enough_seeds_of_every_cell():
    good = np.full((5, 5), 0.995)
    bad = good.copy()
    bad[1, 0] = 0.98
    margin = np.full((5, 5), 0.1)
    assert verdict("C1", table_of(exponential_r_squared=good, exponential_margin=margin)) == "holds"
    assert verdict("C1", table_of(exponential_r_squared=bad, exponential_margin=margin)) == "fails"


def test_measures_of_known_envelopes():
    lags = np.arange(1.0, 33)
    curves = np.stack([np.exp(-0.3 * lags), lags**-1.5, lags**-1.5 * np.exp(-0.1 * lags)])
    drop, share, exponential, power = claims._laws(lags, curves)
    np.testing.assert_allclose(drop, [9.3, 1.5 * np.log(32), 1.5 * np.log(32) + 3.1], rtol=1e-12)
    np.testing.assert_allclose(share, [0, 1, 1.5 * np.log(32) / (1.5 * np.log(32) + 3.1)], atol=1e-10)
    np.testing.assert_allclose([exponential[0], power[1]], 1, rtol=1e-12)
    for curve, r2, law in ((1, exponential, lags), (0, power, np.log(lags))):
        assert r2[curve] == pytest.approx(linregress(law, np.log(curves[curve])).rvalue ** 2, rel=1e-10)


def test_single_terms_of_a_gradient_add_up_to_its_lag_sums():
    """The tail index is that of the terms whose mean over steps is the contribution of a lag."""
    from learncast.windows import layers, sequences, transport
    from learncast.windows.transport.derivative import gradient_terms

    run = DiagnosedRun.from_dict(PAPER.figure("1").runs("smoke")[1].settings)
    model, (x, y) = run.model(None, 1), run.trials(12, 6, 1)
    seen = layers.capture(model, *(model.weights.new_tensor(v) for v in (x, y)), sequences.half_squared_error)
    replay = seen.replay()
    along = transport.unit_directions(seen.layers[0], 1, generator=torch.Generator().manual_seed(0))
    sources = transport.sensitivities(replay, along)
    _, sums = transport.accumulator.lag_sums(replay.chain, [3], sensitivities=sources, deltas=seen.deltas[0])
    for lag, terms in gradient_terms(model, x, y, [3], seed=0):
        np.testing.assert_allclose(terms.sum(0) / (run.training.steps - lag), sums[0, :, 0].sum(-1), rtol=1e-4)


def test_lags_of_the_task_are_attributed_to_it():
    """Targets of other sequences change the signal at the lags of the task, but not beyond."""
    run = open_paper("learnability", cells=["const-gate"]).figure("1").runs("smoke")[0]
    result = diagnose({**run.settings, "diagnosed": 1024, "updates": 60}).isel(gate=0, seed=0)
    longest = run.settings["training"]["task_lags"][-1]
    # The lag after the longest is still due to the task, through gates that depend on the inputs.
    assert 0 < float(result["attributable_reach"]) <= 1.25 * longest
    change = np.abs(result["control_signal"] / result["signal"] - 1)
    assert float(change.where(result["attributable"]).min()) > 0.2


def test_claims_are_decided_at_every_size_of_a_ladder():
    """The stored results serve as those of two sizes; at the second, laws are fitted to lags up to 16."""
    preset = PRESETS["default"]
    ladder = replace(preset, sizes=(preset.main, replace(preset.main, task_lags=(4, 8, 16))))
    stored = PAPER.stored(claims.claim_runs(preset))
    dataset = claims.claims([*stored, *stored], ladder)
    assert dataset["size"].values.tolist() == [32, 16]
    alone = claims.claims(stored, preset)
    assert dataset["verdict"].sel(size=32).values.tolist() == alone["verdict"].values[0].tolist()
    # Shorter lags, smaller drops.
    assert bool((dataset["drop"].sel(size=16) < dataset["drop"].sel(size=32)).all())
    numbers = dict(claims.claim_numbers(dataset))
    assert {f"C1 lags to {size}" for size in (16, 32)} <= set(numbers)
    assert PAPER.figure("claims").draw(dataset).axes
