"""Figures draw the data that they are given, label their axes and do not change the data."""

import io

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.contour import QuadContourSet

import learncast as lc
from learncast import figures, tasks
from learncast.figures import COLOURS, THEORY, axis_label
from learncast.figures.maps import OWN

RATE = 1e-3


@pytest.fixture
def ax():
    figure, (axes,) = figures.page()
    yield axes
    figure.savefig(io.BytesIO(), format="png", dpi=50)  # a figure that cannot be rendered fails here


@pytest.fixture(scope="module")
def target():
    return tasks.integration(20, name="target")


@pytest.fixture(scope="module")
def network():
    return lc.LinearRNN.aligned(hidden_size=3, recurrence=0.9)


@pytest.fixture(scope="module")
def trajectory(network, target):
    return lc.forecast(target, network, learning_rate=RATE).solution.at(np.linspace(0, 1500, 50)).dataset


@pytest.fixture(scope="module")
def two_modes():
    task = tasks.integration(20, target_strength=[2.0, 1.0])
    network = lc.LinearRNN.aligned(task=task, hidden_size=3)
    return lc.forecast(task, network, learning_rate=RATE).solution.at(np.linspace(0, 500, 50)).dataset


def lines_with_many_points(ax):
    return [line for line in ax.get_lines() if len(line.get_xdata()) > 2]


def legend(ax):
    drawn = ax.get_legend()
    return [] if drawn is None else [text.get_text() for text in drawn.get_texts()]


def assert_labelled(ax, *, y=True):
    assert ax.get_xlabel()
    assert ax.get_ylabel() or not y


# --- learning over time ----------------------------------------------------------------------------------------------


def test_mode_strengths_of_one_mode(trajectory, ax):
    before = trajectory.copy(deep=True)
    optimum = xr.DataArray([1.5], dims="mode")
    assert figures.mode_strengths(trajectory, ax, optimum=optimum, title="Learning") is ax
    assert ax.get_xlabel() == "training time (gradient steps)"
    assert ax.get_ylabel() == "strength $u$ (dashed: optimum)"
    assert ax.get_title(loc="left") == "Learning"
    [curve] = lines_with_many_points(ax)
    np.testing.assert_array_equal(curve.get_ydata(), trajectory["strength"].isel(mode=0))
    np.testing.assert_array_equal(curve.get_xdata(), trajectory["time"])
    assert any(line.get_ydata()[0] == 1.5 for line in ax.get_lines() if len(line.get_xdata()) == 2)
    assert ax.get_legend() is None  # a single line has no legend
    xr.testing.assert_identical(trajectory, before)


def test_mode_strengths_of_several_modes_are_named_and_coloured(two_modes, ax):
    figures.mode_strengths(two_modes, ax)
    assert [to_hex(line.get_color()) for line in lines_with_many_points(ax)] == [c.lower() for c in COLOURS[:2]]
    assert legend(ax) == ["mode 1", "mode 2"]


def test_theory_is_dotted_black_over_coloured_simulation(two_modes, ax):
    simulated = two_modes * 1.02
    figures.mode_strengths(two_modes, ax, simulated=simulated)
    drawn = lines_with_many_points(ax)
    assert len(drawn) == 4
    for k in range(2):
        training, theory = drawn[2 * k : 2 * k + 2]
        assert to_hex(training.get_color()) == COLOURS[k].lower()
        assert theory.get_color() == THEORY["color"] == "black"
        assert theory.get_linestyle() != "-"
        np.testing.assert_array_equal(training.get_ydata(), simulated["strength"].isel(mode=k))
        np.testing.assert_array_equal(theory.get_ydata(), two_modes["strength"].isel(mode=k))
    assert legend(ax).count("theory") == 1


# --- curricula -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paths(target, network):
    stronger = target.varied(target_strength=1.5, name="stronger")
    stages = [lc.Stage(stronger, goal=0.5), lc.Stage(target, goal=0.99)]
    staged = lc.follow(stages, network, learning_rate=RATE)
    direct = lc.follow(stages[1:], network, learning_rate=RATE)
    times = np.linspace(0.0, 1.2 * direct.steps.flow, 60)
    return staged, staged.at(times).dataset, direct.at(times).dataset


def test_curriculum_paths_draw_both_paths_band_and_switch(paths, ax):
    curriculum, staged, direct = paths
    before = staged.copy(deep=True), direct.copy(deep=True)
    optimum, switch = float(curriculum.modes[1].optimum[0]), curriculum.stages[0].steps.flow
    drawn = figures.curriculum_paths(
        staged, direct, ax, optimum=optimum, tolerance=0.01, first_optimum=2 * optimum, switch=switch, title="Plan"
    )
    assert drawn is ax
    assert_labelled(ax)
    assert sorted(legend(ax)) == ["curriculum", "direct", "switch"]
    curves = {line.get_label(): line for line in lines_with_many_points(ax)}
    np.testing.assert_array_equal(curves["curriculum"].get_ydata(), staged["strength"].isel(mode=0))
    np.testing.assert_array_equal(curves["direct"].get_ydata(), direct["strength"].isel(mode=0))
    [band] = ax.patches  # the tolerance band
    low, high = band.get_extents().transformed(ax.transData.inverted()).intervaly
    assert (low, high) == (pytest.approx(0.99 * optimum), pytest.approx(1.01 * optimum))
    straight = [line for line in ax.get_lines() if len(line.get_xdata()) == 2]
    assert any(line.get_xdata()[0] == line.get_xdata()[1] == switch for line in straight)
    assert {text.get_text() for text in ax.texts} == {"target's optimum", "first task's optimum"}
    xr.testing.assert_identical(staged, before[0])
    xr.testing.assert_identical(direct, before[1])


def test_curriculum_paths_over_training(paths, ax):
    _, staged, direct = paths
    simulated = {"staged": staged * 0.99, "direct": direct * 0.99}
    figures.curriculum_paths(staged, direct, ax, optimum=1.0, tolerance=0.01, simulated=simulated)
    assert sorted(legend(ax)) == ["curriculum, descent", "direct, descent", "theory"]
    theory = [line for line in lines_with_many_points(ax) if line.get_color() == "black"]
    assert len(theory) == 2


def test_optima_close_together_have_one_label(paths, ax):
    _, staged, direct = paths
    figures.curriculum_paths(staged, direct, ax, optimum=1.0, tolerance=0.01, first_optimum=1.02)
    assert [text.get_text() for text in ax.texts] == ["target's optimum"]


def test_an_unknown_first_optimum_is_not_drawn(paths, ax):
    _, staged, direct = paths
    figures.curriculum_paths(staged, direct, ax, optimum=1.0, tolerance=0.01, first_optimum=np.nan)
    assert len([line for line in ax.get_lines() if len(line.get_xdata()) == 2]) == 1


@pytest.fixture(scope="module")
def planned(target, network):
    pool = [
        target.varied(target_strength=1.5, name="stronger"),
        target.varied(target_strength=0.5, name="a name that goes on and on and on"),
    ]
    return lc.plan(target, pool, network, learning_rate=RATE).dataset


def test_ranking_draws_stops_totals_and_savings(planned, ax):
    before = planned.copy(deep=True)
    assert figures.ranking(planned, ax, title="Candidates") is ax
    assert ax.get_xlabel() == "steps to the target's accuracy"
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[0] == "stronger"
    assert names[1] == "a name that goes on\nand on and on"  # broken, so that nothing is cut off
    first, second = ax.containers
    widths = [[bar.get_width() for bar in bars] for bars in (first, second)]
    np.testing.assert_allclose(np.sum(widths, axis=0), planned["descent_steps"])
    np.testing.assert_allclose(widths[0], planned["stop_steps"])
    assert [text.get_text() for text in ax.texts] == [f"saves {float(planned['saving'][0]):.0f}", "no gain"]
    assert {"on the candidate", "on the target", "direct training"} == set(legend(ax))
    assert ax.yaxis_inverted()  # best on top
    xr.testing.assert_identical(planned, before)


def test_ranking_is_cut_to_the_best_candidates(planned, ax):
    figures.ranking(planned, ax, most=1)
    assert len(ax.get_yticklabels()) == 1


def test_ranking_without_candidates_draws_empty_axes(planned, ax):
    assert figures.ranking(planned.isel(candidate=slice(0, 0)), ax) is ax


def test_ranking_of_a_task_that_is_never_learned_has_finite_limits(target, ax):
    never = lc.LinearRNN.aligned(hidden_size=3, initial=0.0)
    dataset = lc.plan(target, [target.varied(input_strength=2.0, name="other")], never, learning_rate=RATE).dataset
    assert float(dataset["direct_steps"]) == np.inf
    assert figures.ranking(dataset, ax) is ax
    assert np.isfinite(ax.get_xlim()).all()


def test_ranking_of_a_task_learned_at_the_start_has_a_positive_range(target, network, ax):
    pool = [target.varied(input_strength=2.0, name="other")]
    dataset = lc.plan(target, pool, network, learning_rate=RATE, terms=lc.Terms(0.0)).dataset
    assert float(dataset["direct_steps"]) == 0.0
    figures.ranking(dataset, ax)
    low, high = ax.get_xlim()
    assert low < high


# --- portraits -------------------------------------------------------------------------------------------------------


def portrait_of(speedup, *, singular=np.nan, values=None, accuracies=None):
    speedup = np.asarray(speedup, dtype=float)
    rows, columns = speedup.shape
    values = np.linspace(0.5, 2.0, rows) if values is None else values
    accuracies = np.linspace(0.1, 0.9, columns) if accuracies is None else accuracies
    return xr.Dataset(
        {
            "speedup_steps": (("target_strength", "accuracy"), speedup),
            "singular_accuracy": ("target_strength", np.broadcast_to(singular, rows).astype(float)),
        },
        coords={"target_strength": values, "accuracy": accuracies},
        attrs={"vary": "target_strength"},
    )


def mesh_of(ax):
    [mesh] = [item for item in ax.collections if isinstance(item, QuadMesh)]
    return mesh


def test_a_portrait_draws_mesh_contour_lines_and_colour_bar(target, network, ax):
    values, accuracies = np.linspace(0.5, 2.0, 8), np.linspace(0.1, 0.9, 9)
    grid = {"vary": "target_strength", "values": values, "accuracies": accuracies, "learning_rate": RATE}
    dataset = lc.phase(target, network, **grid)
    before = dataset.copy(deep=True)
    assert figures.portrait(dataset, ax, target_value=1.0, title="2A") is ax
    assert ax.get_xlabel() == "accuracy at which it stops"
    assert ax.get_ylabel() == "first task's target strength"
    assert ax.get_title(loc="left") == "2A"
    np.testing.assert_array_equal(mesh_of(ax).get_array(), dataset["speedup_steps"])
    assert len(ax.collections) == 2  # the mesh and the break-even contour
    colours = [line.get_color() for line in ax.get_lines()]
    assert set(colours) == {COLOURS[7], OWN}  # the singular stop and the target's value
    [own] = [line for line in ax.get_lines() if line.get_color() == OWN]
    assert list(own.get_ydata()) == [1.0, 1.0]
    singular, star = (line for line in ax.get_lines() if line.get_color() == COLOURS[7])
    finite = np.isfinite(singular.get_xdata().astype(float))
    np.testing.assert_allclose(singular.get_xdata()[finite], 1 / values[finite])
    saved, point = dataset["saved_descent_steps"], (*star.get_xdata(), *star.get_ydata())
    assert float(saved.sel(accuracy=point[0], target_strength=point[1])) == float(saved.max())
    [bar] = [other for other in ax.figure.axes if other is not ax]
    assert bar.get_ylabel() == "steps saved (two scales)"
    assert sorted(legend(ax)) == ["breaks even", "saves most", "target's optimum", "target's own value"]
    xr.testing.assert_identical(dataset, before)


def test_values_that_are_even_in_their_logarithm_are_drawn_so(target, network, ax):
    grid = {"vary": "target_strength", "values": np.geomspace(0.25, 4.0, 9), "accuracies": [0.3, 0.6, 0.9]}
    figures.portrait(lc.phase(target, network, **grid, learning_rate=RATE), ax)
    assert ax.get_yscale() == "log"
    rows = np.unique(mesh_of(ax).get_coordinates()[..., 1])
    np.testing.assert_allclose(np.diff(np.log(rows)), np.log(2) / 2)


def test_the_break_even_line_follows_a_curve_on_a_fine_grid(ax):
    values, accuracies = np.linspace(0.0, 1.0, 200), np.linspace(0.0, 1.0, 200)
    figures.portrait(portrait_of(values[:, None] - accuracies**3, values=values, accuracies=accuracies), ax)
    [contour] = [item for item in ax.collections if isinstance(item, QuadContourSet)]
    x, y = np.concatenate([path.vertices for path in contour.get_paths()]).T
    np.testing.assert_allclose(y, x**3, atol=0.01)  # two cells of the grid
    assert np.abs(np.diff(x)).max() < 0.02  # without long straight pieces


def test_white_is_no_gain_and_blue_saves(ax):
    figures.portrait(portrait_of([[-300.0, -100.0], [10.0, 20.0]]), ax)
    mesh = mesh_of(ax)
    middle, gain, loss = (np.array(mesh.cmap(mesh.norm(v))) for v in (0.0, 20.0, -300.0))
    assert (middle[:3] > 0.95).all()
    assert gain[2] > gain[0] + 0.2  # blue over red
    assert loss[0] > loss[2] + 0.2


@pytest.mark.parametrize(
    "speedup",
    [
        np.array([[-5.0, 3.0, 8.0]]),
        np.array([[-5.0], [3.0]]),
        np.array([[2.0]]),
        np.full((3, 4), np.nan),
        np.full((3, 4), -np.inf),
        np.arange(1.0, 13.0).reshape(3, 4),
        -np.arange(1.0, 13.0).reshape(3, 4),
        np.zeros((3, 4)),
        np.where(np.arange(12).reshape(3, 4) % 2, np.nan, np.arange(12.0).reshape(3, 4) - 5),
        np.where(np.arange(12).reshape(3, 4) % 2, -np.inf, np.arange(12.0).reshape(3, 4) - 5),
    ],
    ids=[
        "one row",
        "one column",
        "one point",
        "all nan",
        "all infinite",
        "all positive",
        "all negative",
        "all zero",
        "some nan",
        "some infinite",
    ],
)
def test_portraits_draw_every_kind_of_grid(speedup, ax):
    dataset = portrait_of(speedup)
    before = dataset.copy(deep=True)
    assert figures.portrait(dataset, ax, target_value=1.0) is ax
    assert mesh_of(ax).get_array().shape == speedup.shape
    corners = mesh_of(ax).get_coordinates()
    assert (np.ptp(corners, axis=(0, 1)) > 0).all()  # a single value has a visible cell
    assert_labelled(ax)
    xr.testing.assert_identical(dataset, before)


def test_a_portrait_without_both_signs_has_no_contour(ax):
    figures.portrait(portrait_of(np.arange(1.0, 13.0).reshape(3, 4)), ax)
    assert len(ax.collections) == 1


def test_the_singular_stop_is_drawn_only_inside_the_axes(ax):
    figures.portrait(portrait_of(np.ones((3, 4)), singular=0.95), ax)
    assert ax.get_lines() == []


def test_unsorted_values_are_sorted(ax):
    values = np.array([1.5, 0.5, 1.0])
    dataset = portrait_of(np.array([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]]), values=values, accuracies=[0.9, 0.1])
    figures.portrait(dataset, ax)
    mesh = mesh_of(ax)
    heights = mesh.get_coordinates()[:-1, 0, 1]
    order = np.argsort(heights)
    np.testing.assert_array_equal(np.asarray(mesh.get_array())[order, 0], [1.0, 2.0, 3.0])


# --- tasks over time -------------------------------------------------------------------------------------------------


def test_lag_covariances_draw_one_line_per_correlation(ax):
    dataset = xr.Dataset(
        {"covariance": (("correlation", "lag"), [[1.0, 0.0, 0.0], [1.3, 0.6, 0.3]])},
        coords={"correlation": [0.0, 0.5], "lag": [0, 1, 2]},
    )
    before = dataset.copy(deep=True)
    assert figures.lag_covariances(dataset, ax, title="3A") is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lag (steps)", "covariance with the last input\n(input$^2$)")
    assert legend(ax) == ["$K$ = 0", "$K$ = 0.5"]
    np.testing.assert_array_equal([line.get_ydata() for line in ax.get_lines()], dataset["covariance"])
    xr.testing.assert_identical(dataset, before)


def test_integration_profiles_draw_one_line_per_timescale(ax):
    weights = np.exp(-np.arange(4)[::-1] / np.array([[2.0], [5.0]]))
    dataset = xr.Dataset(
        {"weight": (("timescale", "step"), weights)}, coords={"timescale": [2.0, 5.0], "step": [1, 2, 3, 4]}
    )
    before = dataset.copy(deep=True)
    assert figures.integration_profiles(dataset, ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step of the trial (steps)", "weight in the target\n(target / input)")
    assert legend(ax) == ["2 steps", "5 steps"]
    np.testing.assert_array_equal([line.get_ydata() for line in ax.get_lines()], weights)
    xr.testing.assert_identical(dataset, before)


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_is_a_grid_of_axes_without_pyplot_state():
    import matplotlib.pyplot as plt

    figure, axes = figures.page(2, 3)
    assert len(axes) == 6
    assert plt.get_fignums() == []
    assert figure.axes == axes


def test_save_creates_the_folder(tmp_path):
    figure, _ = figures.page()
    path = figures.save(figure, tmp_path / "deep" / "figure.png", dpi=40)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_axis_labels_carry_units():
    array = xr.DataArray([1.0], name="flow_steps", attrs={"long_name": "flow steps", "units": "gradient steps"})
    assert axis_label(array) == "flow steps (gradient steps)"
    assert axis_label(xr.DataArray([1.0], name="speedup_ratio", attrs={"units": "1"})) == "speedup ratio"


def test_colours_differ():
    assert len(set(COLOURS)) == len(COLOURS) >= 6


def test_labels_of_a_plan_do_not_cross_lines_or_titles():
    task = lc.tasks.integration(steps=50)
    pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 3.0, 0.5)]
    plan = lc.plan(task, pool, lc.LinearRNN.aligned(hidden_size=2), learning_rate=1e-3)
    figure, (paths, ranked) = figures.page(1, 2)
    plan.plot(paths)
    figures.ranking(plan.dataset, ranked)
    figure.canvas.draw()
    direct = ranked.transData.transform((float(plan.dataset["direct_steps"]), 0))[0]
    for text in ranked.texts:
        assert text.get_window_extent().x0 > direct
    label = next(t for t in paths.texts if t.get_text() == "first task's optimum")
    assert label.get_window_extent().y1 < paths.get_window_extent().y1


def test_interactive_figures_switched_on_inside_the_style_stay_on():
    before = matplotlib.is_interactive()
    try:
        matplotlib.interactive(False)
        with lc.figures.style():
            matplotlib.interactive(True)  # as the inline backend of notebooks does with the first figure
        assert matplotlib.is_interactive()
    finally:
        matplotlib.interactive(before)
