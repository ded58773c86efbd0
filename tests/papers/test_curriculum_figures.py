"""Small versions of the figures of curriculum2025, each with one of its numbers.

Portraits are computed on a coarse grid. The expected numbers come from the closed-form times below, which are
independent of the code under test.
"""

import csv
import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import learncast as lc
from learncast import InvalidSpec, tasks
from learncast.figures import page, stop_curves
from learncast.papers import open_paper, reproduce
from learncast.papers.curriculum import paper
from learncast.papers.curriculum.pools import SIZES, TaskPool, forecasts_of, network, panel, panel_runs, pools
from learncast.papers.curriculum.samples import supplement_runs

RESOLUTION = 12
STEPS, RECURRENCE, START, RATE = 50, 0.96, 1e-4, 1e-3


@pytest.fixture(scope="module")
def small():
    return paper(resolution=RESOLUTION)


def statistics(s_yx=1.0, s_xx=1.0, correlation=None, timescale=10.0):
    """Return beta_yx and beta_xx of white integration or, with a correlation, of leaky integration of AR(1) input."""
    reach = RECURRENCE ** np.arange(STEPS)[::-1]
    if correlation is None:
        return s_yx * reach.sum(), s_xx * (reach**2).sum()
    gap = np.arange(STEPS)[:, None] - np.arange(STEPS)
    noise_to_input = np.where(gap >= 0, float(correlation) ** np.maximum(gap, 0), 0.0)
    covariance = noise_to_input @ noise_to_input.T
    window = np.exp(-np.arange(STEPS)[::-1] / timescale)
    return reach @ covariance @ window, reach @ covariance @ reach


def steps_to(start, beta, power, accuracy):
    """Return the flow steps of du/dtau = 2u (beta - u B) to the nearer edge of the tolerance and the strength there."""
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
def test_portraits_have_the_closed_form_savings(small, panel):
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
def test_3b_shows_both_meanings_of_kappa(small, reading, timescale):
    """Weights exp(-0.5 (T - t)) fall by a factor e in 2 steps, exp(-(T - t) / 0.5) in half a step."""
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "flow", "descent"), [("2B", 446.49, 447), ("2C", 241.93, 243)], ids=["weaker", "stronger"]
)
def test_samples_agree_with_training(small, panel, flow, descent):
    figure = small.figure(panel)
    dataset = figure.make()
    numbers = figure.numbers(dataset)
    assert numbers["direct, flow steps"] == pytest.approx(329.98, abs=0.005)
    assert numbers["curriculum, flow steps"] == pytest.approx(flow, abs=0.005)
    assert numbers["curriculum, descent steps"] == descent
    # With batches of a thousand, three hundred steps of training deviate by some hundredths of the optimum.
    assert numbers["largest gap of theory and training, share of optimum"] < 0.15
    assert figure.draw(dataset).axes[0].get_xlabel() == "training time (gradient steps)"


def test_lag_covariances_have_their_closed_form(small):
    figure = small.figure("3A")
    dataset = figure.data()
    # At the last step the finite-time variance is (1 - K^100) / (1 - K^2); summing 20 lags of K^lag gives the rest.
    for correlation in (0.3, 0.5, 0.9):
        variance = (1 - correlation**100) / (1 - correlation**2)
        covariance = dataset["covariance"].sel(correlation=correlation)
        # x_T-lag has the variance of a process of T - lag steps.
        earlier = (1 - correlation ** (2 * (STEPS - np.arange(20)))) / (1 - correlation**2)
        np.testing.assert_allclose(covariance, correlation ** np.arange(20) * earlier, rtol=1e-12)
        assert float(covariance[0]) == pytest.approx(variance, rel=1e-12)
    assert figure.numbers(dataset)["sum at correlation 0.5"] == pytest.approx(2.6667, abs=5e-5)
    assert len(figure.draw(dataset).axes[0].get_lines()) == 5
    assert "(input$^2$)" in figure.draw(dataset).axes[0].get_ylabel()


def test_integration_profiles_are_exponential(small):
    figure = small.figure("3C")
    dataset = figure.data()
    for timescale in dataset["timescale"].values:
        wanted = np.exp(-np.arange(STEPS)[::-1] / timescale)
        np.testing.assert_allclose(dataset["weight"].sel(timescale=timescale), wanted, rtol=1e-12)
    assert figure.numbers(dataset)["sum at timescale 10"] == pytest.approx(10.4375, abs=5e-5)
    assert "(target / input)" in figure.draw(dataset).axes[0].get_ylabel()


@pytest.mark.slow
def test_a_panel_of_figure_4_has_linear_and_relu_units(small):
    figure = small.figure("4A")
    dataset = figure.make()
    numbers = figure.numbers(dataset)
    assert numbers["linear: direct, predicted"] == 331
    for kind in ("linear", "relu"):
        # one seed, four curricula
        assert numbers[f"{kind}: median error of total steps"] < 0.15
    assert len(figure.draw(dataset).axes) == 2


def test_the_paper_has_all_figures(small):
    assert [figure.name for figure in small.figures] == [
        *("1A", "1B", "1C", "2A", "2B", "2C", "2D", "3A", "3B", "3C", "3D"),
        *("4A", "4B", "4C", "4D", "S5"),
    ]
    assert [figure.name for figure in small.chosen("4")] == ["4A", "4B", "4C", "4D"]
    assert [figure.name for figure in small.chosen("5")] == ["S5"]
    assert all(figure.caption.endswith(".") for figure in small.figures)
    assert small.citation == "curriculum2025"


def test_reproducing_one_figure_writes_its_files(tmp_path):
    shares = []
    formats = ("png", "pdf", "svg")
    made = reproduce("curriculum", figure="3A", out=tmp_path / "out", progress=shares.append, formats=formats)
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
    # The table has every number of the data with its coordinates.
    rows = list(csv.DictReader((tmp_path / "out" / "figure_3A.csv").read_text().splitlines()))
    assert len(rows) == stored["covariance"].size
    row = next(r for r in rows if (float(r["correlation"]), int(r["lag"])) == (0.5, 3))
    assert float(row["number"]) == pytest.approx(float(stored["covariance"].sel(correlation=0.5, lag=3)), rel=1e-6)
    assert row["units"] == "input^2"


def test_unknown_papers_and_figures_are_refused(small, tmp_path):
    calls = {
        "paper": lambda: open_paper("nonsense"),
        "figure": lambda: reproduce("curriculum", figure="9A", out=tmp_path / "out"),
        "preset": lambda: reproduce("curriculum", figure="3A", preset="huge", out=tmp_path / "out"),
    }
    for field, call in calls.items():
        with pytest.raises(InvalidSpec) as error:
            call()
        assert error.value.field == field
    with pytest.raises(InvalidSpec) as error:  # figure 3 is not trained
        reproduce("curriculum", figure="3", preset="full", out=tmp_path / "out")
    assert error.value.field == "preset"
    assert not (tmp_path / "out").exists()


def test_all_panels_of_a_figure_are_written(tmp_path):
    made = reproduce("curriculum", figure="1", out=tmp_path, formats=("png",))
    assert sorted(made["figures"]) == ["1A", "1B", "1C"]
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [f"figure_1{panel}.png" for panel in "ABC"]
    assert not list(tmp_path.glob("*.pdf"))


def test_the_colour_bar_of_a_covariance_has_its_unit(small):
    figure = small.figure("1C")
    units = [inset.get_ylabel() for ax in figure.draw(figure.data()).axes for inset in ax.child_axes]
    assert units == ["target · input"]


def test_the_data_of_figure_1_have_their_closed_form(small):
    ways = small.figure("1A").data()
    # Closed-form times of the first sample of 2A.
    first, end = steps_to(START, *statistics(s_yx=0.75), 0.9)
    then, _ = steps_to(end, *statistics(), 0.99)
    assert [float(ways[name][0]) for name in ("first", "then")] == pytest.approx([first, then], rel=1e-9)
    assert small.figure("1B").data()["neurons"].values.tolist() == [1, 128, 1]
    numbers = small.figure("1C").numbers(small.figure("1C").data())
    assert numbers["orthogonal vectors: share of the flow from other modes"] == 0
    assert numbers["random vectors: share of the flow from other modes"] > 0.1
    for name in ("1A", "1B", "1C"):
        figure = small.figure(name)
        assert name in figure.draw(figure.data()).axes[0].get_title(loc="left")


@pytest.mark.parametrize(("seeds", "bars"), [(1, 0), (3, 1)])
def test_error_bars_are_drawn_only_where_there_are_several_seeds(seeds, bars):
    rng = np.random.default_rng(0)
    dataset = xr.Dataset(
        {
            "measured": (("value", "stop", "seed"), 60 + rng.random((1, 2, seeds))),
            "curve": (("value", "fine_stop"), [[84.0, 70.0, 61.0]]),
            "direct_measured": ("seed", np.full(seeds, 99.0)),
            "direct_predicted": 100.0,
        },
        coords={"value": [1.5], "stop": [0.5, 0.9], "fine_stop": [0.5, 0.7, 0.9]},
    )
    _, (ax,) = page()
    stop_curves(dataset, ax)
    [container] = ax.containers
    assert container.has_yerr == bool(bars)


@pytest.fixture
def short_pool(monkeypatch):
    """The trials are shorter than in the paper, so that a few hundred steps of training are enough."""
    pool = TaskPool("target_strength", tasks.integration(steps=10, name="target"), (1.5,))
    monkeypatch.setattr("learncast.papers.curriculum.pools.pools", lambda: {"ten": pool})
    forecasts_of.cache_clear()
    yield pool
    forecasts_of.cache_clear()


def test_the_supplement_needs_no_training_of_its_own():
    own = {run.text for run in supplement_runs("default")}
    assert own == {run.text for name in pools() for run in panel_runs(name, "default")}


def synthetic_run(settings):
    """Paths of one panel of figure 4 that rise to 1; those of first tasks end later."""
    parts = []
    for k in range(3):
        time = np.arange(20.0 + k + (settings["activation"] == "relu"))
        variables = {"trained": ("time", 1 - np.exp(-time)), "theory": ("time", 1 - np.exp(-time / 2))}
        numbers = {"first_optimum": 0.5 + k, "target_optimum": 1.0, "switch": 5.0, "descent_steps": 18.0}
        parts.append(xr.Dataset(variables | numbers, {"time": time}))
    return xr.concat(parts, "sample", join="outer").assign(steps=(("curriculum", "seed"), np.ones((3, 1))))


def test_the_supplement_has_both_first_tasks_of_every_panel(small):
    figure = small.figure("S5")
    dataset = figure.data([synthetic_run(run.settings) for run in figure.runs("smoke")], "smoke")
    assert (dataset.sizes["panel"], dataset.sizes["activation"], dataset.sizes["sample"]) == (4, 2, 3)
    numbers = figure.numbers(dataset)
    assert numbers["target_strength = 0.75, linear: steps saved, predicted and trained"] == [0, -1]
    assert numbers["timescale = 20, ReLU: steps saved, predicted and trained"] == [0, -2]
    drawn = figure.draw(dataset)
    assert len(drawn.axes) == len(numbers) == 16
    drawn.draw_without_rendering()
    titles = [ax._left_title.get_window_extent() for ax in drawn.axes]
    assert all(titles[k].x1 < titles[k + 1].x0 for k in range(15) if k % 4 < 3)  # titles of a row do not overlap


@pytest.mark.slow
def test_relu_curricula_are_learned_when_forecast(short_pool):
    """As in the paper, a stage ends near the strength at which training of its task converges."""
    runs = panel_runs("ten", "smoke")
    dataset = panel("ten", [run.function(run.settings) for run in runs], "smoke").sel(activation="relu")
    measured, predicted = dataset["measured"].isel(seed=0), dataset["predicted"]
    # One run with batches of a thousand has a standard deviation of about 2%, and so has its optimum.
    np.testing.assert_allclose(measured, predicted, rtol=0.15)
    np.testing.assert_allclose(dataset["direct_measured"], dataset["direct_predicted"], rtol=0.15)
    # The linear theory is wrong here, so the agreement is due to the response theory.
    stages = [lc.Stage(short_pool.first(1.5), goal=0.9), lc.Stage(short_pool.target, goal=0.99)]
    linear = lc.follow(stages, network("linear"), learning_rate=1e-3).steps.descent
    assert abs(linear / float(measured.sel(value=1.5, stop=0.9)) - 1) > 0.3
    assert stop_curves(dataset, page()[1][0]).get_ylabel()


def test_the_default_has_a_range_of_stops_with_seeds():
    size = SIZES["default"]
    assert len(size.stops) == 3
    assert size.seeds["relu"] > 1
    assert len(forecasts_of("4A", "relu", "default")) == 1 + 2 * 3  # direct, then two first tasks
    assert size.rate == 5e-3


def test_samples_in_the_portrait_are_named_by_the_figure_that_trains_them(small):
    figure = small.figure("2A")
    drawn = figure.draw(figure.data())
    assert {"2B", "2C"} <= {text.get_text() for text in drawn.axes[0].texts}
