"""Small versions of the figures of curriculum2025, each with one of its numbers.

Portraits are computed on a coarse grid; the numbers asserted come from the closed-form times of two-task curricula
written out below, not from the portrait's own code.
"""

import csv
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import learncast as lc
from learncast import tasks
from learncast._core.errors import InvalidSpec
from learncast.figures import page, stop_curves
from learncast.papers import open_paper, reproduce
from learncast.papers.curriculum import paper
from learncast.papers.curriculum.pools import Pool, PoolPlan, beside_forecasts, planned, pool_runs, scores

RESOLUTION = 12
STEPS, RECURRENCE, START, RATE = 50, 0.96, 1e-4, 1e-3


@pytest.fixture(scope="module")
def small():
    return paper(resolution=RESOLUTION)


def statistics(s_yx=1.0, s_xx=1.0, correlation=None, timescale=10.0):
    """beta_yx and beta_xx of white integration, or of leaky integration of AR(1) input when a correlation is given."""
    reach = RECURRENCE ** np.arange(STEPS)[::-1]
    if correlation is None:
        return s_yx * reach.sum(), s_xx * (reach**2).sum()
    gap = np.arange(STEPS)[:, None] - np.arange(STEPS)
    noise_to_input = np.where(gap >= 0, float(correlation) ** np.maximum(gap, 0), 0.0)
    covariance = noise_to_input @ noise_to_input.T
    window = np.exp(-np.arange(STEPS)[::-1] / timescale)
    return reach @ covariance @ window, reach @ covariance @ reach


def steps_to(start, beta, power, accuracy):
    """Flow steps of du/dtau = 2u (beta - u B) to the nearer edge of the band, and the strength there."""
    best = beta / power
    if abs(start - best) <= (1 - accuracy) * best * (1 + 1e-12):
        return 0.0, start
    edge = accuracy * best if start < best else (2 - accuracy) * best
    return np.log((best / start - 1) / (best / edge - 1)) / (2 * beta * RATE), edge


def saved(first, target, stop):
    direct, _ = steps_to(START, *target, 0.99)
    one, end = steps_to(START, *first, stop)
    return direct - one - steps_to(end, *target, 0.99)[0]


PORTRAITS = {
    "2A": ("target_strength", lambda v: statistics(s_yx=v), statistics(), 329.98),
    "2D": ("input_strength", lambda v: statistics(s_xx=v), statistics(), 329.98),
    "3D": (
        "timescale",
        lambda v: statistics(correlation=0.0, timescale=v),
        statistics(correlation=0.0, timescale=10.0),
        874.63,
    ),
}


@pytest.mark.parametrize("panel", PORTRAITS)
def test_portraits(small, panel):
    vary, first, target, direct = PORTRAITS[panel]
    figure = small.figure(panel)
    dataset = figure.data()
    assert dataset["speedup_steps"].shape == (RESOLUTION, RESOLUTION)
    numbers = figure.numbers(dataset)
    assert numbers["direct steps"] == pytest.approx(direct, abs=0.005)
    expected = np.array(
        [[saved(first(v), target, stop) for stop in dataset["accuracy"].values] for v in dataset[vary].values]
    )
    # Two closed forms of the same times, in steps of up to a few thousand.
    np.testing.assert_allclose(dataset["speedup_steps"], expected, rtol=1e-8, atol=1e-6)
    assert numbers["largest saving, steps"] == pytest.approx(expected.max(), abs=0.005)
    assert numbers["share of the grid where it helps"] == pytest.approx((expected > 1e-6).mean(), abs=5e-5)
    drawn = figure.draw(dataset)
    assert isinstance(drawn, Figure)
    assert panel in drawn.axes[0].get_title(loc="left")


@pytest.mark.parametrize(("reading", "timescale"), [("rate", 2.0), ("steps", 0.5)])
def test_both_readings_of_kappa_are_drawn(small, reading, timescale):
    """Weights exp(-0.5 (T - t)) fall by e in 2 steps, exp(-(T - t) / 0.5) in half a one."""
    figure = small.figure("3B")
    dataset = figure.data()
    one, target = dataset.sel(reading=reading), statistics(correlation=0.5, timescale=timescale)
    direct, _ = steps_to(START, *target, 0.99)
    assert figure.numbers(dataset)[f"kappa as {reading}: direct steps"] == pytest.approx(direct, abs=0.005)
    expected = [
        [saved(statistics(correlation=v, timescale=timescale), target, stop) for stop in one["accuracy"].values]
        for v in one["correlation"].values
    ]
    np.testing.assert_allclose(one["speedup_steps"], expected, rtol=1e-8, atol=1e-6)
    assert [ax.get_title(loc="left") for ax in figure.draw(dataset).axes[:2]] == [
        r"$\mathbf{3B}$  $\kappa$ = 0.5 per step",
        r"$\kappa$ = 0.5 steps",
    ]
    assert "rate per step" in figure.caption


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "flow", "descent"), [("2B", 446.49, 447), ("2C", 241.93, 243)], ids=["weaker", "stronger"]
)
def test_sample_trajectories(small, panel, flow, descent):
    figure = small.figure(panel)
    dataset = figure.made()
    numbers = figure.numbers(dataset)
    assert numbers["direct, flow steps"] == pytest.approx(329.98, abs=0.005)
    assert numbers["curriculum, flow steps"] == pytest.approx(flow, abs=0.005)
    assert numbers["curriculum, descent steps"] == descent
    # Training of three hundred steps on batches of a thousand strays by some hundredths of the optimum.
    assert numbers["largest gap of theory and trained, share of optimum"] < 0.15
    # Descent enters the target's band for good at the predicted step, plus or minus one.
    strengths = dataset["descent_curriculum"].values
    best = dataset.attrs["target_optimum"]
    outside = np.flatnonzero(np.abs(strengths - best) > 0.01 * best)
    assert abs(outside[-1] + 1 - descent) <= 1
    assert (
        numbers["largest gap of theory and descent, share of optimum"] < 0.06
    )  # of order the learning rate x curvature
    assert figure.draw(dataset).axes[0].get_xlabel() == "training time (gradient steps)"


def test_lag_covariances(small):
    figure = small.figure("3A")
    dataset = figure.data()
    # At the last step the finite-time variance is (1 - K^100) / (1 - K^2); summing 20 lags of K^lag gives the rest.
    for correlation in (0.3, 0.5, 0.9):
        variance = (1 - correlation**100) / (1 - correlation**2)
        found = dataset["covariance"].sel(correlation=correlation)
        # x_T-lag is younger by lag steps, so its variance is that of T - lag
        younger = (1 - correlation ** (2 * (STEPS - np.arange(20)))) / (1 - correlation**2)
        np.testing.assert_allclose(found, correlation ** np.arange(20) * younger, rtol=1e-12)
        assert float(found[0]) == pytest.approx(variance, rel=1e-12)
    assert figure.numbers(dataset)["sum at correlation 0.5"] == pytest.approx(2.6667, abs=5e-5)
    assert len(figure.draw(dataset).axes[0].get_lines()) == 5
    assert "(input$^2$)" in figure.draw(dataset).axes[0].get_ylabel()


def test_integration_profiles(small):
    figure = small.figure("3C")
    dataset = figure.data()
    for timescale in dataset["timescale"].values:
        wanted = np.exp(-np.arange(STEPS)[::-1] / timescale)
        np.testing.assert_allclose(dataset["weight"].sel(timescale=timescale), wanted, rtol=1e-12)
    assert figure.numbers(dataset)["sum at timescale 10"] == pytest.approx(10.4375, abs=5e-5)
    assert figure.draw(dataset).axes[0].get_ylabel() == "weight in the target (target / input)"


@pytest.mark.slow
def test_supplement(small):
    figure = small.figure("S5")
    dataset = figure.made()
    assert dataset.sizes["sample"] == 16
    numbers = figure.numbers(dataset)
    for key, flow in (
        ("target_strength 0.75", 446.49),
        ("input_strength 0.5", 304.73),
        ("timescale 20", 538.71),
    ):
        assert numbers[f"{key}, linear, curriculum, flow steps"] == pytest.approx(flow, abs=0.005)
        # ReLU units through their responses, against one real run
        assert numbers[f"{key}, relu, largest gap of theory and trained, share of optimum"] < 0.2
    assert len(figure.draw(dataset).axes) == 16


@pytest.mark.slow
def test_a_pool_of_relu_curricula_is_trained_beside_its_forecast():
    """Shorter trials than the paper's: a task of ten steps is learned in a few hundred."""
    target = tasks.integration(steps=10, name="target")
    pool = Pool("target_strength", target, (1.5,), (1.5,))
    plan = PoolPlan.of(pool, "relu", values=(1.5,), stops=(0.6,))
    runs = lc.training.train_all([plan.job(place, seed) for place in (0, 1) for seed in (0, 1)], processes=1)
    assert all(run.status.name == "ok" for run in runs)
    dataset = beside_forecasts(plan, np.array([float(run.steps) for run in runs]).reshape(2, 2))
    assert dataset["measured"].sizes == {"value": 1, "stop": 1, "seed": 2}
    # batches of a thousand: a standard deviation of about 2% for one run, and two runs
    measured, predicted = dataset["measured"].mean("seed"), dataset["predicted"]
    np.testing.assert_allclose(measured, predicted, rtol=0.1)
    assert (dataset["predicted_low"] <= predicted + 5).all()
    # linear units learn the same task in other times: the response is what makes the forecast
    assert (np.abs(dataset["linear_predicted"] / measured - 1) > 0.3).all()
    drawn = stop_curves(dataset, page()[1][0])
    assert drawn.get_ylabel() == "total gradient steps"


def test_scores_of_a_forecast():
    """Two tasks of three stops: the second forecast errs by 10% throughout and picks a wrong stop once."""
    measured = np.array([100.0, 80.0, 90.0, 200.0, 150.0, 180.0])
    response = measured * np.array([1.1, 1.1, 1.1, 0.9, 0.9, 0.7])
    dataset = xr.Dataset(
        {
            "measured": ("curriculum", measured),
            "response": ("curriculum", response),
            "value": ("curriculum", [1.0] * 3 + [2.0] * 3),
            "direct_measured": ("pool_name", [120.0]),
            "direct_response": ("pool_name", [120.0]),
        },
        coords={"pool": ("curriculum", ["a"] * 6), "pool_name": ["a"]},
    )
    found = scores(dataset, "response")
    assert found["curricula"] == 6
    assert found["sign of the speedup right"] == 1.0
    assert found["median error"] == pytest.approx(0.1)
    assert found["regret of the stop, largest"] == pytest.approx(180 / 150)
    assert found["regret of the stop, mean"] == pytest.approx((1 + 180 / 150) / 2)


@pytest.mark.slow
def test_one_tanh_unit_is_forecast_by_its_table(small):
    figure = small.figure("4Y")
    dataset = figure.made()
    # one run of three thousand steps strays by about a hundredth
    assert figure.numbers(dataset)["largest error"] < 0.03
    assert isinstance(figure.draw(dataset), Figure)


@pytest.mark.slow
def test_a_panel_shows_linear_and_relu_units(small):
    figure = small.figure("4A")
    dataset = figure.made()
    numbers = figure.numbers(dataset)
    assert numbers["linear: direct, predicted"] == 331
    for kind in ("linear", "relu"):
        # one seed, four curricula
        assert numbers[f"{kind}: median error of total steps"] < 0.15
    assert len(figure.draw(dataset).axes) == 2


def test_every_figure_of_the_paper_is_here(small):
    assert [figure.name for figure in small.figures] == [
        *("1A", "1B", "1C", "2A", "2B", "2C", "2D", "3A", "3B", "3C", "3D"),
        *("4A", "4B", "4C", "4D", "4X", "4Y", "R", "S5"),
    ]
    assert [figure.name for figure in small.chosen("4")] == ["4A", "4B", "4C", "4D", "4X", "4Y"]
    assert all(figure.caption.endswith(".") for figure in small.figures)
    assert small.citation == "curriculum2025"


def test_reproducing_one_figure_writes_its_files(tmp_path):
    shares = []
    made = reproduce("curriculum", figure="3A", out=tmp_path / "out", progress=shares.append)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(f"figure_3A.{suffix}" for suffix in ("csv", "nc", "pdf", "png", "svg")),
        "numbers.json",
    ]
    assert json.loads((tmp_path / "out" / "numbers.json").read_text()) == made
    assert made["figures"]["3A"]["numbers"]["sum at correlation 0"] == 1.0
    stored = xr.load_dataset(tmp_path / "out" / "figure_3A.nc", engine="h5netcdf")
    assert stored.attrs["learncast_object"] == "figure"
    assert (tmp_path / "out" / "figure_3A.png").read_bytes().startswith(b"\x89PNG")
    assert shares == [1.0]
    # Every number of the data is in the table beside it, with its place.
    rows = list(csv.DictReader((tmp_path / "out" / "figure_3A.csv").read_text().splitlines()))
    assert len(rows) == stored["covariance"].size
    row = next(r for r in rows if (float(r["correlation"]), int(r["lag"])) == (0.5, 3))
    assert float(row["number"]) == pytest.approx(float(stored["covariance"].sel(correlation=0.5, lag=3)), rel=1e-6)
    assert row["units"] == "input^2"


def test_unknown_papers_and_figures_are_refused(small, tmp_path):
    with pytest.raises(InvalidSpec, match="paper must be one of curriculum"):
        open_paper("nonsense")
    with pytest.raises(InvalidSpec, match="the paper curriculum must have the figure, but got '9A'"):
        small.figure("9A")
    with pytest.raises(InvalidSpec):
        reproduce("curriculum", figure="9A", out=tmp_path / "out")
    with pytest.raises(InvalidSpec, match="preset must be one of smoke, full"):
        reproduce("curriculum", figure="3A", preset="huge", out=tmp_path / "out")
    with pytest.raises(InvalidSpec, match="the preset would change nothing"):
        reproduce("curriculum", figure="3", preset="full", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_panels_of_a_printed_figure_are_on_one_page(tmp_path):
    made = reproduce("curriculum", figure="1", out=tmp_path, formats=("png",))
    assert made["pages"] == {"1": ["figure_1.png"]}
    assert (tmp_path / "figure_1.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.pdf"))
    assert reproduce("curriculum", figure="3A", out=tmp_path, formats=("png",))["pages"] == {}


def test_colours_of_a_covariance_have_its_unit(small):
    figure = small.figure("1C")
    units = [inset.get_ylabel() for ax in figure.draw(figure.data()).axes for inset in ax.child_axes]
    assert units == ["target · input"]


def test_figure_1_is_data(small):
    ways = small.figure("1A").data()
    # Closed-form times of the first of the samples of 2A, written out above.
    first, end = steps_to(START, *statistics(s_yx=0.75), 0.9)
    then, _ = steps_to(end, *statistics(), 0.99)
    assert [float(ways[name][0]) for name in ("first", "then")] == pytest.approx([first, then], rel=1e-9)
    weights = small.figure("1B").data()
    assert (weights["input_weights"].shape, weights["recurrent_weights"].shape) == ((128, 1), (128, 128))
    np.testing.assert_array_equal(weights["recurrent_weights"], 0.96 * np.eye(128))
    numbers = small.figure("1C").numbers(small.figure("1C").data())
    assert numbers["orthogonal vectors: share of the flow from other modes"] == 0
    assert numbers["random vectors: share of the flow from other modes"] > 0.1
    for name in ("1A", "1B", "1C"):
        figure = small.figure(name)
        assert name in figure.draw(figure.data()).axes[0].get_title(loc="left")


@pytest.mark.slow
def test_relu_runs_may_end_where_training_converges(monkeypatch):
    """The paper's way, with a pool of ten steps: each task is trained to its optimum once, for all curricula."""
    target = tasks.integration(steps=10, name="target")
    pool = Pool("target_strength", target, (1.5,), (1.5,))
    monkeypatch.setattr("learncast.papers.curriculum.pools.pools", lambda: {"ten": pool})
    planned.cache_clear()
    [run] = pool_runs("ten", "relu", "smoke", "trained")
    found = run.function(run.settings)
    planned.cache_clear()
    assert found["steps"].shape == (3,)  # direct, and two stops
    assert bool(found["learned"].all())
    # The response optimum is the best strength of one ReLU unit; training ends within its own noise of it.
    best = float(PoolPlan.of(pool, "relu", values=(1.5,), stops=(0.5,)).forecasts[0].modes[-1].optimum[0])
    assert float(found["optimum"].sel(task="target")) == pytest.approx(best, rel=0.03)


def test_the_caption_says_where_relu_runs_end():
    captions = [paper(resolution=RESOLUTION, optimum=o).figure("4A").caption for o in ("response", "trained")]
    assert "as in the paper" in captions[1]
    assert captions[0] != captions[1]


def test_turning_and_growing_do_not_add_up(small, monkeypatch):
    monkeypatch.setattr("learncast.papers.curriculum.rotated.ANGLES", np.array([0.0, 1.2]))
    monkeypatch.setattr("learncast.papers.curriculum.rotated.SPREADS", (1.0, 3.0))
    monkeypatch.setattr("learncast.papers.curriculum.rotated.DRAWS", 1)
    figure = small.figure("R")
    dataset = figure.made()
    assert (dataset["aligned"] <= dataset["learned"]).all()
    assert (dataset["aligned"].sel(angle=0) == 0).all()
    np.testing.assert_allclose(dataset["learned"].sel(angle=0), dataset["growing_alone"].sel(angle=0))
    assert float(dataset["error"].sel(spread=1).max()) == 0  # exact
    numbers = figure.numbers(dataset)
    for spread in ("1", "3"):
        least, most = numbers[f"variances 1 to {spread}: learning over the longer of both, least and most"]
        assert 0.9 < least <= most < 1.1
        assert numbers[f"variances 1 to {spread}: learning over the sum of both, least and most"][1] < 0.8
    assert len(figure.draw(dataset).axes) == 2
