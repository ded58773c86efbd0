"""The figures of braun2022: each number against something that does not use the exact flow."""

import functools
import json

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm

import learncast as lc
from learncast.networks import TwoLayer
from learncast.papers import open_paper, reproduce
from learncast.papers.prior_knowledge import CAPTIONS, TRAINED, descent, paper
from learncast.papers.prior_knowledge.continual import loss_on, of_kind, unrelated_pairs
from learncast.papers.prior_knowledge.kingdom import BY_COLOUR, living_kingdom
from learncast.papers.prior_knowledge.learning import TARGETS, slopes
from learncast.theory import scaled_to_plane

SMALL = paper()
#: Descent follows the flow to first order: at the rates used, which are 0.002 times O(1) curvatures, to half a percent.
FIRST_ORDER = 5e-3


@functools.cache
def made(name):
    return SMALL.figure(name).made()


def numbers(name):
    return SMALL.figure(name).numbers(made(name))


def cross(task):
    """S from the task's own statistics."""
    return np.asarray(task.cross_covariance)[0, :, 0, :].T


#: Figures that train many networks; the others stand for them in the fast suite.
LONG = ("5B", "5C", "5D", "5E", "6A")


@pytest.mark.slow_cases("2C", "6E", "6G", "6D", "4D", "4E", "4F", "5A", "3C", "6F")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in CAPTIONS])
def test_figure_is_drawn_and_its_numbers_are_numbers(name):
    figure, dataset = SMALL.figure(name), made(name)
    drawn = figure.draw(dataset)
    assert drawn.axes
    assert all(ax.has_data() for ax in drawn.axes)
    titles = [ax.get_title(loc="left") for ax in drawn.axes]
    assert titles[0].startswith(rf"$\mathbf{{{name}}}$")
    assert json.loads(json.dumps(figure.numbers(dataset)))
    assert not np.isnan([v for v in figure.numbers(dataset).values() if isinstance(v, float)]).any()
    for variable in dataset.data_vars.values():
        assert {"long_name", "units"} <= set(variable.attrs)


@pytest.mark.slow_cases("5A")
@pytest.mark.parametrize("name", ["1B", "1C", "1D", "2A", "2B", "5A"])
def test_training_follows_theory(name):
    gaps = [v for k, v in numbers(name).items() if k.startswith("largest gap")]
    assert gaps
    assert max(gaps) < FIRST_ORDER
    assert min(gaps) > 1e-6  # descent is a computation of its own, a step size away from the flow


@pytest.mark.parametrize("name", ["1B", "1C", "1D"])
def test_outputs_solve_the_differential_equation(name):
    dataset = made(name)
    rng = np.random.default_rng(1)
    before, task = (descent.random_task(3, 2, rng, name=n) for n in ("earlier task", "task"))
    network = TwoLayer.balanced(3, 5, 2, scale=0.8 if name == "1C" else 0.02, rng=rng)

    def flow(S, first, second, times):
        def slope(_, w):
            W1, W2 = w[:15].reshape(5, 3), w[15:].reshape(2, 5)
            error = S - W2 @ W1
            return np.concatenate([(W2.T @ error).ravel(), (error @ W1.T).ravel()])

        start = np.concatenate([first.ravel(), second.ravel()])
        found = solve_ivp(slope, (0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-12).y
        return found[:15].T.reshape(-1, 5, 3), found[15:].T.reshape(-1, 2, 5)

    first, second = network.first, network.second
    if name == "1D":
        W1, W2 = flow(cross(before), first, second, np.array([0.0, 60.0]))
        first, second = W1[-1], W2[-1]
    W1, W2 = flow(cross(task), first, second, dataset["time"].values * descent.RATE)
    theory = dataset["network_function"].sel(source="theory").values
    np.testing.assert_allclose(theory, W2 @ W1, atol=1e-7)  # the integrator's tolerance, grown along the path


def test_deviation_is_of_first_order():
    dataset = made("2C")
    # Second-order terms bend the line: 0.05 is the largest rate's own size.
    np.testing.assert_allclose(slopes(dataset["deviation"]), 1.0, atol=0.05)
    assert numbers("2C")["median slope"] == pytest.approx(1.0, abs=0.02)
    assert made("2D").sizes["network"] == 5
    # The paper's rates.
    np.testing.assert_allclose([dataset["learning_rate"].max(), dataset["learning_rate"].min()], [0.05, 0.0005])


def test_hierarchy_has_the_tree_s_singular_values_and_similarities():
    one = made("3B").isel(task=0)
    S = one["features"].values / np.sqrt(8)
    np.testing.assert_allclose(np.diagonal(one["singular_values"]), np.linalg.svd(S, compute_uv=False), rtol=1e-12)
    built = one["output_vectors"].values @ one["singular_values"].values @ one["input_vectors"].values
    np.testing.assert_allclose(built, S, atol=1e-14)
    np.testing.assert_allclose(one["input_similarity"], sqrtm(S.T @ S).real, atol=1e-7)
    np.testing.assert_allclose(one["output_similarity"], sqrtm(S @ S.T).real, atol=1e-7)


def test_rich_and_lazy_ends():
    small, lazy, balanced = (numbers(name) for name in ("3C", "3D", "3E"))
    blocks = [f"distance from the task's own, {side} block, share" for side in ("input", "output")]
    for block in blocks:
        assert small[block] < 1e-3  # (weights at the start)^2 over the task's
        assert balanced[block] < 0.01  # the balance that the finite learning rate loses
        assert lazy[block] > 1
    assert max(n["final loss"] for n in (small, lazy, balanced)) < 1e-8
    assert balanced["largest gap of the flow's limit and the task's own"] < 1e-12
    steps = numbers("3F")
    slow = steps["small random: steps to 1% of the loss"]
    assert slow > 5 * steps["large zero-balanced: steps to 1% of the loss"]
    assert slow > 5 * steps["large random: steps to 1% of the loss"]


@pytest.mark.slow_cases("4D", "4E", "4F")
@pytest.mark.parametrize("name", ["4A", "4D", "4E", "4F"])
def test_decoupling_is_the_inverse_of_the_print(name):
    """Eq. (13), evaluated as printed."""
    dataset = made(name)
    s = np.linalg.svd(np.array(TARGETS["4E" if name == "4A" else name]), compute_uv=False)
    for k in range(dataset.sizes["scale"]):
        start = dataset.isel(source=1, scale=k, time=0)
        a, b = start["diagonal"].values, float(start["coupling"])
        inverse = np.linalg.inv(np.array([[a[0], b], [b, a[1]]]))
        for i in (100, 400, 800):
            t = float(dataset["time"][i]) * descent.RATE
            decay = np.diag(np.exp(-s * t))
            expected = np.linalg.inv(decay @ inverse @ decay + np.diag((1 - np.exp(-2 * s * t)) / s))
            here = dataset.isel(source=1, scale=k, time=i)
            # The printed form loses the inverse's condition number, about 1e3 here.
            np.testing.assert_allclose(here["diagonal"], np.diagonal(expected), rtol=1e-10)
            np.testing.assert_allclose(here["coupling"], expected[0, 1], rtol=1e-9, atol=1e-15)
    assert max(v for k, v in numbers(name).items() if k.startswith("largest gap")) < FIRST_ORDER


def test_coupling_peaks_when_predicted():
    dataset, found = made("4F"), numbers("4F")
    for scale in ("small", "intermediate"):
        # Recorded every 5 steps, and 0.3% late as descent is.
        assert found[f"{scale} start: at step"] == pytest.approx(found[f"{scale} start: predicted peak, step"], abs=8)
    assert np.isnan(dataset["peak_step"].sel(scale="large"))
    assert found["large start: at step"] == 0


def test_losses_in_sequence_are_distances_of_tasks():
    rng = np.random.default_rng(5)
    goals = [cross(descent.random_task(3, 2, rng)) for _ in range(3)]
    dataset = made("5A")
    ends = [int(np.flatnonzero(dataset["stage"].values == k)[-1]) for k in range(3)]
    loss = dataset["loss"].sel(source="descent").values[ends]
    own = np.diagonal(loss)
    expected = [[0.5 * np.sum((after - of) ** 2) for of in goals] for after in goals]
    np.testing.assert_allclose(loss - own, expected, atol=0.02)  # a stage of 5000 steps is not quite the end


@pytest.mark.slow
def test_linear_forgetting_is_told_before_training():
    dataset = made("5B")
    # learns_all asks each stage to be within 1e-8 of its end; forgetting is off by its root, 1e-4, at most.
    linear = dataset["measured"].sel(kind="linear")
    np.testing.assert_allclose(linear, dataset["predicted"], atol=5e-4)
    assert (dataset["predicted"] > 0).all()
    for kind in ("tanh", "relu"):
        assert np.abs(dataset["measured"].sel(kind=kind) - dataset["predicted"]).max() > 0.05


@pytest.mark.slow
def test_other_networks_forget_more_where_they_fit_what_no_linear_map_can():
    """The paper's claim, and where it fails: of targets that a linear teacher made, nothing more is forgotten."""
    found, networks = numbers("5B"), numbers("5B")["networks of each kind"]
    for kind in ("tanh", "ReLU"):
        # Seeds are fixed; of the 50 networks of the full set all forget more than told, 2.7 and 4.1 times as much.
        assert found[f"random targets, {kind}: networks that forget 1% more than told"] == networks
        assert found[f"random targets, {kind}: median measured / told"] > 1.5
        assert 0.8 < found[f"linear teacher, {kind}: median measured / told"] < 1.1
        fitted, least = (
            found[f"random targets, {k}: median loss of task 1 after learning it"] for k in (kind, "linear")
        )
        assert fitted < 0.8 * least
    assert found["random targets, linear: networks that forget 1% more than told"] == 0
    assert found["random targets, linear: mean absolute gap"] < 1e-4


@pytest.mark.slow
def test_five_losses_are_distances_of_tasks():
    rng = np.random.default_rng(7)
    in_turn = [descent.random_task(5, 4, rng) for _ in range(5)]
    goals, floors = [cross(task) for task in in_turn], [0.5 * task.target_power for task in in_turn]
    expected = [
        [0.5 * np.sum((after - of) ** 2) + floor - 0.5 * np.sum(of**2) for of, floor in zip(goals, floors, strict=True)]
        for after in goals
    ]
    table = made("5D").sel(targets="linear teacher").isel(sequence=0)
    np.testing.assert_allclose(table["predicted_loss"], expected, rtol=1e-10)
    # 4000 steps end within 1e-8 of each task's least loss, and so within its root of the others'.
    np.testing.assert_allclose(table["measured_loss"].sel(kind="linear"), expected, atol=5e-4)
    change = made("5E")["measured_forgetting"].sel(targets="linear teacher", kind="linear").isel(sequence=0)
    np.testing.assert_allclose(change, np.diff(expected, axis=0), atol=1e-3)
    found = numbers("5E")
    for kind in ("tanh", "ReLU"):
        assert found[f"random targets, {kind}: task just learned, mean gap of measured and told"] > 0.5
        assert found[f"random targets, {kind}: task just learned, share forgotten more than told"] > 0.7


def test_loss_is_half_the_mean_squared_error():
    rng = np.random.default_rng(0)
    x, y = unrelated_pairs(3, 2, rng)
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(3), atol=1e-14)
    net = TwoLayer.random(3, 4, 2, scale=0.5, rng=rng)
    for kind, bend in (("linear", lambda z: z), ("tanh", np.tanh), ("relu", lambda z: z * (z > 0))):
        errors = [0.5 * np.sum((net.second @ bend(net.first @ a) - b) ** 2) for a, b in zip(x, y, strict=True)]
        assert loss_on(of_kind(kind, net), (x, y)) == pytest.approx(np.mean(errors), rel=1e-12)


@pytest.mark.slow
def test_imbalance_is_what_the_learning_rate_adds_and_what_other_units_make():
    found = numbers("5C")
    for targets in ("linear teacher", "random targets"):
        start, end = (
            found[f"{targets}, linear, {when}: median and largest"] for when in ("at the start", "after task 2")
        )
        assert start[1] < 1e-14
        assert 1e-5 < end[1] < 0.02  # of the rate's size, 0.02
        for kind in ("tanh", "ReLU"):
            assert found[f"{targets}, {kind}, after task 1: median and largest"][0] > 0.1
    rng = np.random.default_rng(0)
    task, net = descent.random_task(3, 3, rng), TwoLayer.balanced(3, 4, 3, scale=0.3, rng=rng)
    lost = [
        lc.descend(task, net, learning_rate=0.02 / k, steps=500 * k).network_at(np.inf).imbalance_share for k in (1, 4)
    ]
    assert lost[0] / lost[1] == pytest.approx(4.0, rel=0.1)  # first order, with second-order terms at rate 0.02


@pytest.mark.slow
def test_reversal_ends_on_the_saddle_and_training_leaves_it():
    found = numbers("6A")
    norm = 0.5 * np.sum(cross(descent.random_task(3, 2, np.random.default_rng(8))) ** 2)
    assert found["excess loss, flow at its end"] == pytest.approx(norm, rel=1e-3)  # four digits are reported
    assert abs(found["excess loss, training at its end"]) < 1e-6
    assert found["training leaves the saddle, steps after the switch"] > 500
    saddle = made("6A")["network_function"].sel(source="theory").isel(time=-1)
    np.testing.assert_allclose(saddle, 0.0, atol=1e-12)


def test_saddle_holds_as_long_as_the_flow_tells():
    dataset, found = made("6A"), numbers("6A")
    # The first order in the rate, 0.01 times a curvature of about 2.
    assert found["steps on the saddle, largest gap of integrated flow and training, share"] < 0.02
    steps = dataset["measured_escape"].values
    assert (np.diff(steps, axis=1) > 0).all()  # less noise, longer
    # Noise grows as exp(s t): ten times less of it holds the saddle ln(10) / s longer, and s is below the largest.
    largest = np.linalg.svd(cross(descent.random_task(3, 2, np.random.default_rng(8))), compute_uv=False)[0]
    decades = -np.diff(np.log10(dataset["noise"].values))
    np.testing.assert_allclose(np.diff(steps, axis=1) / decades, np.log(10) / (largest * 0.01), rtol=0.1)
    assert found["without noise: steps on the saddle until round-off ends it"] > steps.max()
    assert found["one layer: steps to the same loss"] < steps.min()


def _first_below(rate):
    """Steps of one weight from 1 to -1 until its loss is half of what it is at 0."""
    w, steps = 1.0, 0
    while (w + 1) ** 2 > 0.5:
        w, steps = w + rate * (-1 - w), steps + 1
    return steps


def test_one_layer_does_not_slow():
    dataset = made("6B")
    S = cross(descent.random_task(3, 2, np.random.default_rng(8)))
    second = dataset.isel(time=dataset["stage"].values == 1, source=0)
    t = 0.01 * (second["time"].values - 1000)
    decay = np.exp(-t)[:, None, None]
    assert numbers("6B")["steps after the switch to half of the loss without weights"] == _first_below(0.01)
    # 1000 steps leave exp(-10) of the first task; descent is 0.4% from the flow.
    np.testing.assert_allclose(second["network_function"], -S + 2 * S * decay, atol=0.01)


def test_revisions_keep_the_tree():
    dataset, found = made("6D"), numbers("6C")
    assert found["two fish swapped: items that move"] == 2
    assert found["colour hierarchy: items that move"] == 6
    living, swapped, colour = dataset["input_similarity"].values
    order = np.array(BY_COLOUR)
    np.testing.assert_allclose(colour, living[np.ix_(order, order)], atol=1e-14)
    np.testing.assert_allclose(swapped, living, atol=1e-14)


def test_swapped_leaves_cost_an_eighth_for_ever():
    found = numbers("6E")
    # The mode of two leaves has singular value 1/2, and half its square is lost.
    assert found["then two fish swapped: final loss, theory"] == pytest.approx(1 / 8, abs=1e-9)
    assert found["then two fish swapped: steps to a loss of 0.01, theory"] is None
    assert found["then two fish swapped: final loss, descent"] < 1e-6
    assert found["then colour hierarchy: final loss, theory"] < 1e-6
    # Noise of 1e-6 on 16 units, 8e-6 at most, grows as exp(t / 2) to sqrt(1/2); the rate is 0.01.
    latest, earliest = (np.log(np.sqrt(0.5) / noise) / (0.5 * 0.01) for noise in (1e-6, 1.6e-5))
    escape = float(made("6E")["escape_step"][0]) - 6000
    assert earliest < escape < latest
    told = found["then two fish swapped: the same, told by the flow from the same weights"]
    # Recorded every 20 steps; growth by 1 + 0.005 a step is 0.25% slower than the flow's.
    assert told == pytest.approx(escape, abs=20 + 0.01 * escape)
    outputs = made("6F")["item_output"].isel(panel=0, time=-1)
    np.testing.assert_allclose(outputs.sel(source="theory"), [1, 1, 1, 0, 0, 0, 0, 0], atol=1e-9)
    np.testing.assert_allclose(outputs.sel(source="descent"), [1, 1, 1, 0, -1, 0, 0, 0], atol=1e-3)


def test_fish_meet_on_the_saddle():
    living, revised = numbers("6G"), numbers("6H")
    # Two fish differ in one feature, +1 against -1.
    assert living["panel 1: distance of the two fish at the end, descent"] == pytest.approx(2.0, abs=0.01)
    assert revised["panel 1: distance of the two fish at the end, theory"] == pytest.approx(0.0, abs=1e-6)
    assert revised["panel 1: distance of the two fish at the end, descent"] == pytest.approx(2.0, abs=0.01)
    # By colour they share the first two features and differ in one branching and in a leaf each: sqrt(4 + 1 + 1).
    assert revised["panel 2: distance of the two fish at the end, descent"] == pytest.approx(np.sqrt(6), abs=0.01)
    # One map for both starts: what has learned the same is in one place.
    small, large = made("6G")["points"].sel(source="descent").isel(time=-1).values
    np.testing.assert_allclose(small, large, atol=0.02 * np.abs(large).max())
    for name in ("6G", "6H"):
        dataset = made(name)
        on_plane, in_outputs = (
            np.linalg.norm(np.diff(dataset[v].values, axis=2), axis=-1) for v in ("points", "outputs")
        )
        # Paths are continuous: the plane may stretch a step, but tears none (without weights one is torn sixfold).
        assert (on_plane < 2.5 * in_outputs + 0.1 * in_outputs.max()).all()


def test_scaling_keeps_the_distances_of_a_plane():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((20, 2)) @ np.linalg.qr(rng.standard_normal((6, 2)))[0].T
    plane, stress = scaled_to_plane(flat, rng)

    def distances(z):
        return np.linalg.norm(z[:, None] - z, axis=-1)

    assert stress < 1e-9
    np.testing.assert_allclose(distances(plane), distances(flat), atol=1e-3)  # majorisation converges linearly


def test_a_kick_needs_its_generator():
    with pytest.raises(AssertionError, match="generator"):
        descent.training(
            [living_kingdom()] * 2,
            TwoLayer.balanced(8, 8, 8, scale=0.1, rng=np.random.default_rng(0)),
            learning_rate=0.01,
            steps=1,
            kick=1e-6,
        )


def written(S, start, *, learning_rate, steps):
    """W2 W1 after every step of W1 += rate W2^T (S - W2 W1), W2 += rate (S - W2 W1) W1^T."""
    W1, W2, found = start.first, start.second, [start.function]
    for _ in range(steps):
        error = learning_rate * (S - W2 @ W1)
        W1, W2 = W1 + W2.T @ error, W2 + error @ W1.T
        found.append(W2 @ W1)
    return np.array(found)


@pytest.mark.parametrize("name", ["1B", "1C"])
def test_descent_is_the_written_one(name):
    """Function by function, to the rounding of 4000 steps."""
    rng = np.random.default_rng(1)
    _, task = (descent.random_task(3, 2, rng) for _ in (1, 2))
    start = TwoLayer.balanced(3, 5, 2, scale=0.8 if name == "1C" else 0.02, rng=rng)
    expected = written(cross(task), start, learning_rate=descent.RATE, steps=4000)[::20]
    np.testing.assert_allclose(made(name)["network_function"].sel(source="descent"), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["2C", "6E"])
def test_training_in_torch_is_the_written_descent(name):
    """On trials whose second moments are the task's, training is descent on these to rounding."""
    if name == "2C":
        rng = np.random.default_rng(3)
        inputs, hidden, outputs = (int(n) for n in rng.integers(2, 9, 3))
        task, scale = descent.random_task(inputs, outputs, rng), float(np.exp(rng.uniform(np.log(0.05), np.log(0.3))))
        start = TwoLayer.balanced(inputs, hidden, outputs, scale=scale, rng=rng)
        functions = written(cross(task), start, learning_rate=0.05, steps=240)
        excess = 0.5 * ((functions - cross(task)) ** 2).sum(axis=(1, 2))
        expected = excess + 0.5 * task.target_power - 0.5 * np.sum(cross(task) ** 2)
        np.testing.assert_allclose(made("2C")["loss"].isel(source=0, network=0), expected, rtol=1e-11)
        return
    tree, rng = living_kingdom(), np.random.default_rng(10)
    start = descent.regular_start([tree], 16, rng, scale=0.25, learning_rate=descent.RATE)
    functions = written(cross(tree), start, learning_rate=descent.RATE, steps=6000)[::20]
    found = made("6E").isel(panel=1, source=0, time=slice(0, 301))["network_function"]
    np.testing.assert_allclose(found, functions, atol=1e-11)


def test_training_is_done_once_and_reported(monkeypatch):
    shares, first = [], made("5B")
    monkeypatch.delattr("learncast.training.ensembles.train_ensemble")  # nothing can be trained again
    xr.testing.assert_identical(SMALL.figure("5C").made(progress=shares.append), first)
    assert shares == [1.0]
    assert {figure.name for figure in SMALL.figures if figure.trained} == set(TRAINED)


@pytest.mark.slow
def test_full_set(tmp_path):
    summary = reproduce("prior-knowledge", preset="full", out=tmp_path)
    assert list(summary["figures"]) == list(CAPTIONS)
    for ending in ("png", "nc"):
        assert {f"figure_{name}.{ending}" for name in CAPTIONS} <= {path.name for path in tmp_path.iterdir()}
    found = summary["figures"]["2C"]["numbers"]
    assert found["networks"] == 50
    assert found["median slope"] == pytest.approx(1.0, abs=0.01)
    told = summary["figures"]["5B"]["numbers"]
    assert told["networks of each kind"] == 50
    for targets in ("linear teacher", "random targets"):
        assert told[f"{targets}, linear: mean absolute gap"] < 1e-3
    for kind in ("tanh", "ReLU"):
        assert told[f"random targets, {kind}: networks that forget 1% more than told"] >= 45
    assert summary["figures"]["6A"]["numbers"]["networks pushed off the saddle by noise"] == 50


def test_command_line_name_opens_the_paper():
    assert open_paper("prior-knowledge").citation == "braun2022"
