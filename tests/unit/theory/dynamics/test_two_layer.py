"""Static tasks, hierarchies and two-layer networks: results, statuses and invalid arguments."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.planning import IrregularSwitch
from learncast.tasks.covariance import Dense, Kronecker, Sampled
from learncast.theory import TwoLayerSolution, kernel_of_grams, peak_time, shallow, two_mode_coupling

EXAMPLES = Path(__file__).parents[4] / "examples"
RATE = 0.01


def assert_raises(call, field=None, *, kind=lc.InvalidSpec):
    """Check the type of the exception and, if given, the argument that it names."""
    with pytest.raises(kind) as error:
        call()
    if field is not None:
        assert error.value.field == field


def diagonal(*strengths):
    return lc.tasks.static(np.diag(strengths))


def even(scale=0.3, size=2):
    return lc.TwoLayer(scale * np.eye(size), scale * np.eye(size))


def solved(task=None, network=None, *, learn=None, method="auto"):
    training = lc.Training(RATE, learn=learn)
    chosen = lc.planning.method_for(
        [task or diagonal(1.0, 0.5)], network or even(), training, method=method, strict=True
    )
    return chosen.solution()


# --- static tasks ---------------------------------------------------------------------------------------------------


def test_static_task_has_the_given_correlations():
    cross, inputs = np.array([[1.0, 0.2, 0.0], [0.3, 0.5, -0.4]]), np.diag([1.0, 2.0, 0.5])
    task = lc.tasks.static(cross, inputs, name="mine")
    assert (task.steps, task.inputs, task.outputs, task.name) == (1, 3, 2, "mine")
    np.testing.assert_array_equal(np.asarray(task.cross_covariance)[0, :, 0].T, cross)
    np.testing.assert_array_equal(np.asarray(task.input_covariance)[0, :, 0], inputs)
    # By default the inputs determine the targets, so the least loss is 0.
    np.testing.assert_allclose(
        np.asarray(task.target_covariance)[0, :, 0], cross @ np.linalg.inv(inputs) @ cross.T, rtol=1e-14
    )
    np.testing.assert_array_equal(np.asarray(lc.tasks.static(cross).input_covariance)[0, :, 0], np.eye(3))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (([[1.0, np.nan]],), "cross_correlation"),
        (([[1.0, 2.0j]],), "cross_correlation"),
        (([1.0, 2.0],), "cross_correlation"),
        ((np.zeros((0, 2)),), None),
        ((np.eye(2), np.eye(3)), None),
        ((np.eye(2), [[1.0, 0.5], [0.0, 1.0]]), "input_covariance"),
        ((np.eye(2), [[1.0, 2.0], [2.0, 1.0]]), None),
        ((np.eye(2), np.diag([1.0, 0.0])), None),
    ],
)
def test_correlations_that_no_data_can_have_raise(given, field):
    assert_raises(lambda: lc.tasks.static(*given), field)


def test_target_variance_below_the_explained_variance_raises():
    assert_raises(lambda: lc.tasks.static(np.eye(2), target_correlation=0.1 * np.eye(2)))


@pytest.mark.parametrize("variance", [3e-17, 0.0, -3e-17])
def test_a_channel_with_a_variance_of_round_off_is_accepted(variance):
    """A rotation of rank-deficient data leaves such variances, of either sign."""
    task = lc.tasks.static([[1.0, 5e-17]], [[1.0, 4e-17], [4e-17, variance]])
    assert task.inputs == 2


def test_pairs_are_samples_of_one_step():
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((7, 3)) + 1.0, rng.standard_normal((7, 2))
    task = lc.tasks.from_pairs(inputs, targets, name="seven")
    assert (task.steps, task.trials, task.name) == (1, 7, "seven")
    np.testing.assert_allclose(np.asarray(task.cross_covariance)[0, :, 0], inputs.T @ targets / 7, rtol=1e-14)
    centred = lc.tasks.from_pairs(inputs, targets, centre=True)
    np.testing.assert_allclose(
        np.asarray(centred.input_covariance)[0, :, 0], np.cov(inputs.T, bias=True), rtol=1e-12, atol=1e-14
    )


def test_invalid_pairs_raise():
    assert_raises(lambda: lc.tasks.from_pairs(np.ones((4, 2)), np.ones((5, 2))))
    assert_raises(lambda: lc.tasks.from_pairs(np.full((4, 2), np.inf), np.ones((4, 2))), "inputs")
    assert_raises(lambda: lc.tasks.from_pairs(np.ones((4, 2)), np.ones((4, 1, 1, 1))), "targets")


@pytest.mark.parametrize("kind", [Dense, Kronecker, Sampled])
def test_reversed_task_has_the_opposite_cross_covariance(kind):
    task = {
        Dense: lambda: lc.tasks.static(np.diag([1.0, 0.5])),
        Kronecker: lambda: lc.tasks.leaky_integration(3, mixing=[[1.0, 0.5]]),
        Sampled: lambda: lc.Task.from_samples(np.random.default_rng(0).standard_normal((3, 6, 2)), np.ones((3, 1))),
    }[kind]()
    assert isinstance(task.cross_covariance, kind)
    other = lc.tasks.reversed(task)
    assert isinstance(other.cross_covariance, kind)
    np.testing.assert_array_equal(np.asarray(other.cross_covariance), -np.asarray(task.cross_covariance))
    assert other.input_covariance is task.input_covariance
    assert (other.target_power, other.trials) == (task.target_power, task.trials)
    assert other.name == f"{task.name}, reversed"
    assert lc.tasks.reversed(task, name="no").name == "no"


# --- whitening and its inverse --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3])
def test_whitening_and_its_inverse(rank):
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((40, rank)) @ rng.standard_normal((rank, 3))
    targets = inputs @ rng.standard_normal((3, 2)) + 0.1 * rng.standard_normal((40, 2))
    task = lc.tasks.from_pairs(inputs, targets, name="raw")
    found = lc.tasks.whitened(task)
    white = inputs @ found.transform.T
    assert white.shape == (40, rank)
    assert found.task.name == "raw, whitened"
    # a root and its inverse of a matrix of condition 1e2
    np.testing.assert_allclose(white.T @ white / 40, np.eye(rank), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(found.task.cross_covariance)[0, :, 0], white.T @ targets / 40, rtol=0, atol=1e-12
    )
    if rank == 3:  # the root that is closest to the original coordinates is symmetric
        np.testing.assert_allclose(found.transform, found.transform.T, rtol=0, atol=1e-12)
    # The solution of the whitened task is least squares in the original coordinates.
    start = lc.TwoLayer.balanced(rank, 4, 2, scale=0.3, rng=np.random.default_rng(2))
    solution = lc.forecast(found.task, start, learning_rate=RATE).solution
    assert not solution.remarks
    network = solution.network_at(np.inf)
    function = network.function @ found.transform
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
    np.testing.assert_allclose(inputs @ function.T, inputs @ best.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(network.second @ (network.first @ found.transform), function, rtol=0, atol=1e-12)
    loss = ((inputs @ function.T - targets) ** 2).sum(axis=1).mean() / 2
    assert float(solution.limit()["loss"][0]) == pytest.approx(loss, rel=1e-10)


def test_only_static_tasks_are_whitened():
    assert_raises(lambda: lc.tasks.whitened(lc.tasks.integration(3)))


def test_a_task_without_any_input_cannot_be_whitened():
    silent = lc.tasks.static(np.zeros((2, 2)), np.zeros((2, 2)))
    assert_raises(lambda: lc.tasks.whitened(silent))


# --- trees ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_trees_have_a_feature_per_branching_or_node(depth):
    items = 2**depth
    signed, membership = lc.tasks.hierarchy(depth), lc.tasks.hierarchy(depth, form="membership")
    assert signed.features.shape == (items, items)
    assert membership.features.shape == (2 * items - 1, items)
    # branchings are orthogonal; nodes nest
    overlap = signed.features @ signed.features.T
    np.testing.assert_array_equal(overlap, np.diag(np.diag(overlap)))
    assert set(np.unique(signed.features)) <= {-1.0, 0.0, 1.0}
    np.testing.assert_array_equal(membership.features[-items:], np.eye(items))
    np.testing.assert_array_equal(membership.features.sum(axis=0), depth + 1)
    for tree in (signed, membership):
        answers = tree.items @ np.asarray(tree.cross_covariance)[0, :, 0]
        # white inputs: the best map answers each item by its features
        np.testing.assert_allclose(answers, tree.features.T, rtol=0, atol=1e-13)
        np.testing.assert_allclose(tree.items.T @ tree.items / items, np.eye(items), rtol=0, atol=1e-14)


def test_features_of_a_tree_of_two_levels():
    np.testing.assert_array_equal(
        lc.tasks.hierarchy(2).features, [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]
    )


def test_swapping_exchanges_items_and_subtrees():
    tree = lc.tasks.hierarchy(3)
    assert tree.swapped(2, 3).order == (0, 1, 3, 2, 4, 5, 6, 7)
    assert tree.swapped((3, 2), (3, 3)).order == tree.swapped(2, 3).order
    assert tree.swapped((1, 0), (1, 1)).order == (4, 5, 6, 7, 0, 1, 2, 3)
    assert tree.swapped((2, 0), (2, 3)).order == (6, 7, 2, 3, 4, 5, 0, 1)
    np.testing.assert_array_equal(tree.swapped(2, 3).features, tree.features[:, [0, 1, 3, 2, 4, 5, 6, 7]])
    assert tree.swapped(2, 3).swapped(2, 3).order == tree.order
    assert tree.swapped(2, 3).name != tree.name


def test_swapping_nodes_of_a_shuffled_tree_swaps_their_items():
    tree = lc.tasks.hierarchy(3).shuffled([0, 2, 4, 6, 1, 3, 5, 7])
    swapped = tree.swapped((1, 0), (1, 1))
    assert swapped.order == tuple((leaf + 4) % 8 for leaf in tree.order)
    # Swapping the halves changes the sign of the first branching.
    np.testing.assert_array_equal(swapped.features[1], -tree.features[1])
    twice = tree.swapped((1, 0), (1, 1)).swapped((1, 0), (1, 1))
    assert twice.order == tree.order


def test_shuffling_permutes_the_items():
    tree = lc.tasks.hierarchy(2)
    order = [2, 0, 3, 1]
    found = tree.shuffled(order)
    np.testing.assert_array_equal(found.features, tree.features[:, order])
    assert found.shuffled(np.argsort(order)).order == tree.order
    assert found.name == "hierarchy, shuffled"
    assert tree.shuffled(order, name="colours").name == "colours"


def test_items_may_be_numpy_integers():
    tree = lc.tasks.hierarchy(2)
    assert tree.swapped(np.int64(0), np.int64(3)).order == tree.swapped(0, 3).order


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (8, 9),
        (-1, 0),
        ((4, 0), (4, 1)),
        ((1, 2), (1, 0)),
        ((1, 0), 3),
        (5, 5),
        ((0, 0), (0, 0)),
        ((1, 0, 0), (1, 1, 0)),
        ("fish", "bird"),
        (2.0, 3.0),
    ],
)
def test_invalid_nodes_raise(one, other):
    assert_raises(lambda: lc.tasks.hierarchy(3).swapped(one, other))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [1, 2, 3, 4], "abcd"])
def test_orders_that_are_no_permutation_raise(order):
    assert_raises(lambda: lc.tasks.hierarchy(2).shuffled(order))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 2.5}, "depth"),
        ({"depth": 13}, None),
        ({"depth": 20_000}, None),
        ({"depth": 2, "form": "sign"}, "form"),
    ],
)
def test_invalid_trees_raise(given, field):
    assert_raises(lambda: lc.tasks.hierarchy(**given), field)


# --- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        (np.ones((3, 2)), np.ones((2, 2)), "weights"),
        (np.ones((0, 2)), np.ones((2, 0)), "weights"),
        (np.ones(3), np.ones((2, 3)), "first"),
        (np.ones((3, 2)), np.full((2, 3), np.nan), "second"),
        ([["a"]], [[1.0]], "first"),
    ],
)
def test_invalid_weights_raise(first, second, field):
    assert_raises(lambda: lc.TwoLayer(first, second), field)


def test_networks_are_immutable():
    first = np.ones((2, 2))
    network = lc.TwoLayer(first, np.eye(2))
    first[0, 0] = 7.0
    assert network.first[0, 0] == 1.0
    assert not network.first.flags.writeable
    assert (network.inputs, network.hidden_size, network.outputs) == (2, 2, 2)
    assert network.hash == lc.TwoLayer(np.ones((2, 2)), np.eye(2)).hash
    assert network.hash != lc.TwoLayer(np.ones((2, 2)), 2 * np.eye(2)).hash
    assert "2 hidden" in repr(network)


@pytest.mark.parametrize(
    ("sizes", "imbalance"),
    [((3, 5, 4), 0.0), ((4, 2, 3), 0.0), ((1, 1, 1), 0.0), ((3, 3, 4), 0.7), ((4, 3, 2), -0.7), ((2, 4, 4), 1.3)],
)
def test_balanced_starts_are_balanced(sizes, imbalance):
    network = lc.TwoLayer.balanced(*sizes, scale=0.3, imbalance=imbalance, rng=np.random.default_rng(2))
    assert (network.inputs, network.hidden_size, network.outputs) == sizes
    gap = network.second.T @ network.second - network.first @ network.first.T
    np.testing.assert_allclose(gap, imbalance * np.eye(sizes[1]), rtol=0, atol=1e-14)
    again = lc.TwoLayer.balanced(*sizes, scale=0.3, imbalance=imbalance, rng=np.random.default_rng(2))
    assert again.hash == network.hash


def test_scale_is_the_size_of_the_weights():
    rng = np.random.default_rng(3)
    large = lc.TwoLayer.random(40, 50, 30, scale=0.2, rng=rng)
    # 3500 weights: their deviation is known to 1.2%, and 5 of those are passed with probability 6e-7
    assert np.concatenate([large.first.ravel(), large.second.ravel()]).std() == pytest.approx(0.2, rel=0.06)
    ratio = [
        np.linalg.norm(lc.TwoLayer.balanced(4, 4, 4, scale=s, rng=np.random.default_rng(4)).first) for s in (0.1, 0.2)
    ]
    assert ratio[1] / ratio[0] == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"scale": 0.0}, "scale"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"inputs": 2.5}, "inputs"),
        ({"imbalance": 1.0}, None),
        ({"imbalance": -1.0}, None),
        ({"imbalance": np.nan}, "imbalance"),
        ({"imbalance": np.inf, "hidden_size": 2}, "imbalance"),
        ({"imbalance": "much"}, "imbalance"),
    ],
    ids=str,
)
def test_invalid_balanced_starts_raise(given, field):
    sizes = {"inputs": 3, "hidden_size": 5, "outputs": 4, "scale": 0.1}
    assert_raises(lambda: lc.TwoLayer.balanced(**{**sizes, **given}, rng=np.random.default_rng(0)), field)


# --- solving: conditions and statuses -------------------------------------------------------------------------------


def test_an_unbalanced_start_violates_a_condition():
    network = lc.TwoLayer.random(3, 3, 3, scale=0.5, rng=np.random.default_rng(5))
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(diagonal(1.0, 0.7, 0.4), network, learning_rate=RATE, method="two-layer")
    assert error.value.assumption == "balanced_weights"
    assert error.value.measured > 0.05
    assert error.value.allowed == 1e-8
    assert f"{error.value.measured:.4g}" in str(error.value)


def test_inputs_that_are_not_white_violate_a_condition():
    task = lc.tasks.static(np.diag([1.0, 0.5]), np.diag([1.0, 2.0]))
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(task, even(), learning_rate=RATE, method="two-layer")
    assert error.value.assumption == "whitened_input"
    loose = lc.forecast(task, even(), learning_rate=RATE, method="two-layer", strict=False).solution
    assert loose.forecast_class == "outside"
    assert loose.time_to(0.9).status is lc.Status.outside_theory
    assert not loose.holds


def descended(network, task, steps=np.inf, excess=-np.inf, rate=RATE):
    """Return steps and weights of plain descent on a static task, for a number of steps or to an excess loss."""
    first, second = np.array(network.first), np.array(network.second)
    power = np.asarray(task.input_covariance)[0, :, 0, :]
    cross = np.asarray(task.cross_covariance)[0, :, 0].T
    best, taken = cross @ np.linalg.pinv(power), 0
    while taken < steps:
        gap = second @ first - best
        if np.einsum("ij,jk,ik", gap, power, gap) / 2 <= excess:
            break
        slope = cross - second @ first @ power
        first, second, taken = first + rate * second.T @ slope, second + rate * slope @ first.T, taken + 1
    return taken, first, second


@pytest.mark.parametrize(
    ("task", "network"),
    [
        (diagonal(1.0, 0.7, 0.4), lc.TwoLayer.random(3, 3, 3, scale=0.5, rng=np.random.default_rng(5))),
        (lc.tasks.static(np.diag([1.0, 0.5]), np.diag([1.0, 2.0])), even()),
    ],
    ids=["unbalanced", "not white"],
)
def test_starts_without_an_exact_flow_are_counted_by_descent(task, network):
    found = lc.forecast(task, network, learning_rate=RATE).solution
    assert found.forecast_class == "integrated"
    power, cross = np.asarray(task.input_covariance)[0, :, 0, :], np.asarray(task.cross_covariance)[0, :, 0].T
    goal = 0.05**2 * np.trace(cross @ np.linalg.solve(power, cross.T)) / 2
    steps, first, second = descended(network, task, excess=goal)
    assert found.time_to(0.95).descent_steps == steps
    followed = lc.follow([lc.Stage(task, goal=0.95)], network, learning_rate=RATE)
    assert followed.method.name == "pooled"
    assert followed.steps.descent == steps
    ended = followed.method.network_of(followed.run.descent_states[-1])
    np.testing.assert_allclose(ended.function, second @ first, rtol=0, atol=1e-9)


def test_an_unstable_learning_rate_violates_a_condition():
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(diagonal(1.0, 0.5), even(), learning_rate=1.1)
    assert error.value.assumption == "stable_learning_rate"
    # At the optimum |W1|^2 + |W2|^2 = 2 s_max.
    assert solved().curvatures.max() == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: solved(learn=("furst",)), "learn"),
        (lambda: solved(learn=("first",), method="two-layer"), None),
        (lambda: solved(network=even(size=3)), None),
        (lambda: solved(task=lc.tasks.integration(4, [1.0, 1.0])), None),
        (lambda: solved().time_to_loss(0.0), "tolerance"),
        (lambda: solved().time_to(1.5), "accuracy"),
        (lambda: lc.forecast(diagonal(1.0, 0.5), even(), learning_rate=-1.0).solution, "learning_rate"),
    ],
)
def test_invalid_arguments_of_solutions_raise(call, field):
    def evaluated():
        solution = call()
        return solution.limit() if isinstance(solution, TwoLayerSolution) else solution

    assert_raises(evaluated, field)


def test_other_networks_have_no_exact_solution():
    assert_raises(
        lambda: lc.forecast(diagonal(1.0, 0.5), object(), learning_rate=RATE).solution, kind=lc.UnsupportedModel
    )


def test_statuses_of_learning():
    fine = solved().time_to(0.99)
    assert fine.status is lc.Status.ok
    assert fine.descent_steps == descended(even(), diagonal(1.0, 0.5), excess=0.01**2 * 1.25 / 2)[0]
    stuck = solved(network=lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3]))).time_to(0.99)
    assert (stuck.status, stuck.flow_steps) == (lc.Status.not_learned, np.inf)
    # An accuracy of 1 is not reached in finite time.
    assert solved().time_to(1.0).status is lc.Status.not_learned
    learned = solved(network=lc.TwoLayer(np.diag(np.sqrt([1.0, 0.5])), np.diag(np.sqrt([1.0, 0.5]))))
    assert learned.time_to(0.9).flow_steps == 0.0
    assert learned.time_to_loss(1e-3) == 0.0


def test_a_zero_start_never_learns():
    solution = solved(network=lc.TwoLayer(np.zeros((2, 2)), np.zeros((2, 2))))
    assert solution.time_to(0.9).status is lc.Status.not_learned
    assert solution.flow.lost_modes.tolist() == [0, 1]
    assert "1, 2" in solution.remarks[0]
    assert float(solution.limit()["excess_loss"][0]) == pytest.approx(0.625, rel=1e-14)


def test_a_task_without_targets_is_learned_by_decay():
    solution = solved(task=diagonal(0.0, 0.0))
    assert float(solution.limit()["loss"][0]) == 0.0
    assert solution.remarks == ()
    assert 0 < solution.time_to_loss(1e-4) < np.inf


def test_remarks_name_lost_modes_and_the_step_of_the_stall():
    solution = solved(network=lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3])))
    [remark] = solution.remarks
    assert solution.flow.lost_modes.tolist() == [1]
    for number in ("mode 2 ", "0.125", f"{solution.time_to_loss(1.01 * 0.125):.0f} steps"):
        assert number in remark
    assert solved().remarks == ()
    both = lc.forecast(diagonal(1.0, 0.5), lc.TwoLayer(0.3 * np.eye(2), -0.3 * np.eye(2)), learning_rate=RATE).solution
    assert both.flow.lost_modes.tolist() == [0, 1]
    assert "0.625" in both.remarks[0]


@pytest.mark.parametrize(("units", "loss"), [(2, "0.125"), (1, "0.445")])
def test_remarks_name_the_bottleneck_and_the_loss_that_it_costs(units, loss):
    network = lc.TwoLayer.balanced(3, units, 3, scale=0.2, rng=np.random.default_rng(6))
    [remark] = lc.forecast(diagonal(1.0, 0.8, 0.5), network, learning_rate=RATE).solution.remarks
    assert remark.startswith(f"{units} hidden unit")
    assert loss in remark


def test_orientation_is_measured_but_not_required():
    turned = solved(network=lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3])))
    orientation = {a.name: a for a in turned.assumptions}["regular_orientation"]
    assert (orientation.measured, orientation.holds, turned.holds) == (1.0, False, True)
    assert turned.orientation_margin == 0.0
    assert solved().orientation_margin == pytest.approx(1.0)
    # A task without targets cannot be opposed.
    assert solved(lc.tasks.static(np.zeros((2, 2)), np.eye(2))).orientation_margin == 1.0


def test_repr_of_a_solution_has_its_sizes():
    assert repr(solved()) == ("<TwoLayerSolution of 'static' at learning rate 0.01: 2-2-2, imbalance 0, exact>")


# --- hidden representations ----------------------------------------------------------------------------------------


def recurrent():
    return lc.forecast(
        lc.tasks.integration(4), lc.LinearRNN.aligned(hidden_size=2, initial=0.1), learning_rate=1e-3
    ).solution


SAMPLES = np.random.default_rng(7).standard_normal((4, 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, SAMPLES),
        lc.theory.representation_distance,
    ],
)
def test_representations_need_a_two_layer_solution(ask):
    assert_raises(lambda: ask(recurrent()), "solution")


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda s: lc.theory.tangent_kernel(s, 0.0, np.ones((4, 3))), "inputs"),
        (lambda s: lc.theory.tangent_kernel(s, 0.0, np.full((4, 2), np.nan)), "inputs"),
        (lambda s: lc.theory.tangent_kernel(s, -1.0, SAMPLES), "times"),
        (lambda s: lc.theory.tangent_kernel(s, [0.0, 1.0], SAMPLES), "times"),
        (lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES.T, SAMPLES), "inputs"),
        (lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, np.ones((4, 3))), "targets"),
        (lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, np.ones((5, 2))), "targets"),
        (lambda s: lc.theory.representation_distance(s, time=-1.0), "times"),
    ],
)
def test_invalid_samples_and_times_raise(ask, field):
    assert_raises(lambda: ask(solved()), field)


def test_huge_kernels_raise_before_they_are_formed():
    many = np.ones((20_000, 2))
    assert_raises(lambda: lc.theory.tangent_kernel(solved(), 0.0, many))
    assert_raises(lambda: lc.theory.hidden_similarity(solved(), [0.0], many, many))


def test_distance_separates_rich_and_lazy_learning():
    small = lc.theory.representation_distance(solved(network=even(0.01)))
    assert float(small["input_distance"]) < 1e-12
    # Unbalanced layers stay unbalanced: lazy learning.
    lazy = solved(network=lc.TwoLayer(0.1 * np.eye(2), np.sqrt(4.01) * np.eye(2)))
    assert float(lc.theory.representation_distance(lazy)["output_distance"]) > 1.0
    start = lc.theory.representation_distance(solved(network=even(0.01)), time=0.0)
    assert float(start["input_distance"]) == pytest.approx(1.0, abs=1e-3)
    # For a task without targets, distances are absolute.
    assert np.isfinite(lc.theory.representation_distance(solved(task=diagonal(0.0, 0.0)))["input_distance"].values)


def test_datasets_have_units_and_names():
    solution = solved()
    for found in (
        lc.theory.hidden_similarity(solution, [0.0, 5.0], SAMPLES, SAMPLES),
        lc.theory.representation_distance(solution),
        shallow(diagonal(1.0, 0.5), np.zeros((2, 2)), [0.0, 5.0], learning_rate=RATE),
    ):
        assert isinstance(found, xr.Dataset)
        assert all({"units", "long_name"} <= set(v.attrs) for v in found.data_vars.values())


# --- coupling and shallow networks ----------------------------------------------------------------------------------


def test_peak_time_of_a_coupling():
    assert np.isnan(peak_time(0.7, 0.6, 0.1, 1.0))
    assert peak_time(0.01, 0.02, 0.005, 1.0) > 0
    # the sign of the coupling does not matter
    assert peak_time(0.01, 0.02, -0.005, 1.0) == peak_time(0.01, 0.02, 0.005, 1.0)
    assert_raises(lambda: peak_time(0.1, 0.1, 0.2, 1.0))
    assert_raises(lambda: peak_time(0.1, 0.1, 0.01, 0.0), "strength")


def test_coupled_modes_at_zero_and_infinity():
    start = two_mode_coupling(0.0, 0.2, 0.1, 0.05, (1.0, 0.5))
    np.testing.assert_allclose(start, [0.2, 0.1, 0.05], rtol=1e-15)
    np.testing.assert_allclose(two_mode_coupling(np.inf, 0.2, 0.1, 0.05, (1.0, 0.5)), [1.0, 0.5, 0.0], atol=1e-15)
    many = two_mode_coupling(np.array([0.0, 1.0, 3.0]), 0.2, 0.1, 0.05, (1.0, 0.5))
    assert all(value.shape == (3,) for value in many)


def test_coupling_with_an_absent_mode():
    """s_2 = 0, so y_2 = 2 t."""
    exact = solved(task=diagonal(1.0, 0.0), network=lc.TwoLayer([[0.4, 0.1], [0.0, 0.3]], [[0.4, 0.0], [0.1, 0.3]]))
    gram = exact.network.first.T @ exact.network.first
    wanted = exact.at([3.0 / RATE])["network_function"].values[0]
    a1, a2, b = two_mode_coupling(3.0, gram[0, 0], gram[1, 1], gram[0, 1], (1.0, 0.0))
    np.testing.assert_allclose([[a1, b], [b, a2]], wanted, rtol=0, atol=1e-12)


def test_a_shallow_network_decays_to_the_optimum():
    cross, inputs = np.array([[1.0, 0.3], [0.2, 0.5]]), np.array([[2.0, 0.5], [0.5, 1.0]])
    task, start = lc.tasks.static(cross, inputs), np.array([[0.5, -0.2], [0.1, 0.3]])
    times = np.array([0.0, 10.0, 60.0, np.inf])
    found = shallow(task, start, times, learning_rate=RATE)
    np.testing.assert_allclose(found["network_function"][0], start, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found["network_function"][-1], cross @ np.linalg.inv(inputs), rtol=0, atol=1e-14)
    assert float(found["excess_loss"][-1]) == 0.0
    # The equation W' = S - W C, by a central difference of relative error 1e-6 / 6.
    h = 1e-3
    around = shallow(task, start, [10.0 - h, 10.0 + h], learning_rate=RATE)["network_function"].values
    slope = RATE * (cross - found["network_function"].values[1] @ inputs)
    np.testing.assert_allclose((around[1] - around[0]) / (2 * h), slope, rtol=1e-6)


def test_weights_of_an_input_without_variance_do_not_change():
    task = lc.tasks.static([[1.0, 0.0]], np.diag([1.0, 0.0]))
    found = shallow(task, [[0.2, 0.7]], [0.0, 50.0, np.inf], learning_rate=RATE)
    np.testing.assert_array_equal(found["network_function"][:, 0, 1], 0.7)
    assert float(found["network_function"][-1, 0, 0]) == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", np.zeros((3, 2))),
        ("start", np.full((2, 2), np.nan)),
        ("times", [-1.0]),
        ("learning_rate", 0.0),
        ("task", lc.tasks.integration(3, [1.0, 1.0])),
    ],
)
def test_invalid_arguments_of_shallow_raise(field, value):
    given = {"task": diagonal(1.0, 0.5), "start": np.zeros((2, 2)), "times": [0.0], "learning_rate": RATE, field: value}
    assert_raises(lambda: shallow(**given), field)


# --- sequences and forgetting ---------------------------------------------------------------------------------------


def tasks():
    return [
        lc.tasks.static(np.diag([1.0, 0.5]), name="first"),
        lc.tasks.static([[0.6, 0.3], [0.2, 0.9]], name="second"),
    ]


def test_a_sequence_to_convergence():
    found = lc.forget(tasks(), even(), learning_rate=RATE)
    assert [o.steps.flow for o in found.stages] == [np.inf, np.inf]
    assert found.losses().dims == ("stage", "task")
    assert found.losses()["stage"].values.tolist() == ["start", "first", "second"]
    between = 0.5 * ((np.diag([1.0, 0.5]) - [[0.6, 0.3], [0.2, 0.9]]) ** 2).sum()
    np.testing.assert_allclose(found.losses().values[1:], [[0.0, between], [between, 0.0]], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.forgetting.values[1], [between, -between], rtol=1e-12)
    assert found.forgetting["stage"].values.tolist() == ["first", "second"]
    assert found.remarks == ()
    assert found.forecast_class == "exact"
    assert repr(found).startswith("<Forecast first (inf) -> second (inf)")
    xr.testing.assert_identical(lc.forget(tasks(), even(), learning_rate=RATE).losses(), found.losses())


@pytest.mark.parametrize("steps", [50.0, [50.0, 120.0], (0, np.inf), np.array([30, 20])])
def test_a_sequence_by_steps(steps):
    found = lc.forget(tasks(), even(), learning_rate=RATE, steps=steps)
    durations = np.broadcast_to(steps, (2,)).astype(float)
    assert [o.steps.flow for o in found.stages] == durations.tolist()
    np.testing.assert_array_equal(found.losses()["steps"], [0.0, *durations])
    flow_losses, losses = found.losses(descent=False), found.losses()
    trained = even()
    for k, (task, duration) in enumerate(zip(tasks(), durations, strict=True), start=1):
        if np.isfinite(duration):  # by default the losses are those of gradient descent
            trained = lc.TwoLayer(*descended(trained, task, int(duration))[1:])
            for j, other in enumerate(tasks()):
                gap = trained.function - np.asarray(other.cross_covariance)[0, :, 0].T
                assert losses.values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9, abs=1e-13)
    network = even()
    for k, (task, duration) in enumerate(zip(tasks(), durations, strict=True), start=1):
        network = lc.forecast(task, network, learning_rate=RATE).solution.network_at(duration)
        for j, other in enumerate(tasks()):
            gap = network.function - np.asarray(other.cross_covariance)[0, :, 0].T
            assert flow_losses.values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9, abs=1e-13)


def test_a_sequence_of_a_recurrent_network():
    pair = [
        lc.tasks.leaky_integration(4, timescale=3.0, mixing=[[1.0, 0.2], [0.1, 0.7]], name="a"),
        lc.tasks.leaky_integration(4, timescale=3.0, mixing=[[0.5, -0.4], [0.3, 0.9]], name="b"),
    ]
    layers = lc.TwoLayer(0.3 * np.eye(2), 0.3 * np.eye(2))
    network = lc.LinearRNN(layers.first, 0.7 * np.eye(2), layers.second)
    found = lc.forget(pair, network, learning_rate=1e-3)
    assert all(isinstance(s.network_at(1.0), lc.LinearRNN) for s in found.run.flows)
    # The recurrence b = 0.7 differs from exp(-1/3), so the least loss is not 0.
    assert 0 < found.losses().sel(stage="a", task="a") < found.losses().sel(stage="b", task="a")
    np.testing.assert_allclose(found.run.flows[1].network_at(np.inf).recurrent_weights, 0.7 * np.eye(2))


@pytest.mark.parametrize(
    "given",
    [
        {"steps": [1.0]},
        {"steps": [[1.0, 2.0]]},
        {"steps": -1.0},
        {"steps": [1.0, np.nan]},
        {"steps": "long"},
        {"learning_rate": 0.0},
        {"tasks": []},
        {"tasks": [*tasks(), lc.tasks.static(np.eye(3))]},
        {"network": lc.TwoLayer(np.eye(3), np.eye(3))},
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_sequences_raise(given):
    arguments = {"tasks": tasks(), "network": even(), "learning_rate": RATE, **given}
    assert_raises(lambda: lc.forget(arguments.pop("tasks"), arguments.pop("network"), **arguments))


def test_a_sequence_needs_a_network():
    assert_raises(lambda: lc.forget(tasks(), object(), learning_rate=RATE), kind=lc.LearncastError)


def test_an_unbalanced_sequence_raises_only_if_strict():
    network = lc.TwoLayer.random(2, 3, 2, scale=0.5, rng=np.random.default_rng(8))
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forget(tasks(), network, learning_rate=RATE, method="two-layer")
    assert error.value.assumption == "balanced_weights"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrregularSwitch)
        loose = lc.forget(tasks(), network, learning_rate=RATE, method="two-layer", strict=False)
    assert loose.forecast_class == "outside"
    counted = lc.forget(tasks(), network, learning_rate=RATE, steps=(80, 60))
    assert counted.forecast_class == "integrated"
    first = lc.TwoLayer(*descended(network, tasks()[0], 80)[1:])
    second = lc.TwoLayer(*descended(first, tasks()[1], 60)[1:])
    for k, ended in enumerate((first, second), start=1):
        for j, task in enumerate(tasks()):
            gap = ended.function - np.asarray(task.cross_covariance)[0, :, 0].T
            assert counted.losses().values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9)


def test_an_irregular_switch_warns():
    task = lc.tasks.static(np.diag([1.0, 0.5]), name="way")
    pair = [task, lc.tasks.reversed(task, name="back")]
    with pytest.warns(IrregularSwitch) as caught:
        found = lc.forget(pair, even(), learning_rate=RATE)
    losses = found.losses()
    assert [str(w.message) for w in caught] == list(found.remarks)
    assert found.remarks[0].startswith("stage 2 (back): ")
    assert "1, 2" in found.remarks[0]
    assert caught[0].filename == __file__
    # The saddle: the first task is forgotten and its reverse is not learned.
    np.testing.assert_allclose(losses.values[2], [0.625, 0.625], rtol=1e-12)
    orientation = {a.name: a for a in found.trust.assumptions}["regular_orientation"]
    assert not orientation.holds
    # Opposite signs of single modes are kept by descent too, so that the end is exact.
    assert found.forecast_class == "exact"


def test_an_end_on_a_saddle_that_descent_leaves_is_exact_for_the_flow_only():
    orders = ([0, 2, 4, 6, 1, 3, 5, 7], [0, 2, 6, 4, 1, 3, 5, 7])
    trees = [lc.tasks.hierarchy().shuffled(order) for order in orders]
    network = lc.TwoLayer.balanced(8, 16, trees[0].outputs, scale=0.01, rng=np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrregularSwitch)
        ended, counted = (lc.forget(trees, network, learning_rate=0.05, steps=n) for n in (np.inf, [300, 20_000]))
    assert [one.forecast_class for one in (ended, counted)] == ["flow", "exact"]
    # Descent leaves the saddle on which the flow ends.
    assert counted.losses().values[-1, -1] < 0.01 * ended.losses().values[-1, -1]


def test_a_regular_sequence_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lc.forget(tasks(), even(), learning_rate=RATE).losses()


def test_losses_without_target_covariance_are_excess_losses():
    pair = [lc.Task(np.eye(2)[None, :, None], np.diag(s)[None], name=str(s)) for s in ([1.0, 0.5], [0.4, 0.8])]
    found = lc.forget(pair, even(), learning_rate=RATE)
    known = lc.forget([diagonal(1.0, 0.5), diagonal(0.4, 0.8)], even(), learning_rate=RATE)
    np.testing.assert_allclose(found.losses().values, known.losses().values, rtol=0, atol=1e-14)
    curves = found.curves(points=5)
    assert np.isfinite(curves["loss"].values).all()


def test_curves_cover_every_stage():
    found = lc.forget(tasks(), even(), learning_rate=RATE)
    curves = found.curves(points=20)
    assert curves["loss"].dims == ("time", "task")
    assert curves.sizes == {"time": 40, "task": 2}
    assert curves["stage"].values.tolist() == [0] * 20 + [1] * 20
    assert np.all(np.diff(curves["time"].values) >= 0)
    # By default until the loss is within 1% of its final value.
    for k in (0, 1):
        own = curves["loss"].values[20 * k : 20 * (k + 1), k]
        assert own[-1] <= own[0] * 0.01 + 1e-12
        assert np.all(np.diff(own) <= 1e-14)
    assert found.curves(points=3, horizon=7.0)["time"].values.tolist() == [0.0, 3.5, 7.0, 7.0, 10.5, 14.0]


def test_curves_are_continuous_where_the_task_changes():
    # The loss of the first task still rises when that of the second is learned.
    found = lc.forget(tasks(), even(), learning_rate=RATE)
    loss = found.curves(points=20)["loss"].values
    np.testing.assert_allclose(loss[19], loss[20], rtol=0, atol=0.01 * loss.max())
    np.testing.assert_allclose(loss[-1], found.losses().values[-1], rtol=0, atol=0.01 * loss.max())


def test_a_stage_already_learned_still_has_a_curve():
    learned = lc.TwoLayer(np.diag(np.sqrt([1.0, 0.5])), np.diag(np.sqrt([1.0, 0.5])))
    curves = lc.forget([diagonal(1.0, 0.5)], learned, learning_rate=RATE).curves(points=4)
    assert curves["time"].values[-1] > 0
    np.testing.assert_allclose(curves["loss"].values, 0.0, atol=1e-14)


# --- the command line -----------------------------------------------------------------------------------------------


def run(*arguments):
    """Run a command; an exception that is not an exit is a traceback for the user, so let the test see it."""
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["forget", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


STUDY = """
[network]
kind = "two-layer"
hidden_size = 3
scale = 0.3
[training]
learning_rate = 0.01
"""
STATIC = '[[sequence]]\nname = "one"\nfamily = "static"\ncross_correlation = [[1.0, 0.0], [0.0, 0.5]]\n'


def written(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_forget_on_the_example():
    result = run(EXAMPLES / "revised_hierarchy.toml", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer["tasks"] == ["living things", "colours", "colours, two items swapped"]
    assert answer["loss_rows"] == ["start", *answer["tasks"]]
    loss = np.array(answer["loss"])
    # By hand, from |S_j - S_i|^2 / 2: the colours lie 2.75 from the living things and 0.75 from their revision, which
    # ends 0.125 above its optimum on a saddle.
    np.testing.assert_allclose(loss[1:3, :2], [[0.0, 2.75], [2.75, 0.0]], rtol=0, atol=1e-12)
    np.testing.assert_allclose(loss[2:, 2], [0.75, 0.125], rtol=1e-10)
    np.testing.assert_allclose(answer["forgetting"], np.diff(loss, axis=0), rtol=0, atol=1e-12)
    assert [stage["steps"] for stage in answer["stages"]] == ["inf"] * 3
    [remark] = answer["remarks"]
    assert remark.startswith("stage 3 (colours, two items swapped): ")
    assert "0.125" in remark
    assert answer["class"] == "flow"
    validity = {row["assumption"]: row["holds"] for row in answer["validity"]}
    assert validity == {
        "whitened_input": True,
        "balanced_weights": True,
        "regular_orientation": False,
        "stable_learning_rate": True,
    }


def test_forget_writes_text_and_files(tmp_path):
    result = run(EXAMPLES / "revised_hierarchy.toml", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "2.75" in result.stdout
    assert "after colours" in result.stdout
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert "report.html" in names
    assert any(name.endswith(".nc") for name in names)
    assert any(name.endswith(".png") for name in names)
    assert any(name.endswith(".json") for name in names)


def test_forget_takes_steps(tmp_path):
    text = STUDY + STATIC + "train_steps = 100\n" + STATIC.replace('"one"', '"two"') + "reversed = true\n"
    answer = json.loads(run(written(tmp_path, text), "--json").stdout)
    assert [stage["steps"] for stage in answer["stages"]] == [100, "inf"]
    assert answer["loss"][1][0] > 1e-3


def test_forget_on_a_single_stage(tmp_path):
    study = written(tmp_path, STUDY + STATIC)
    assert run(study).exit_code == 0
    assert len(json.loads(run(study, "--json").stdout)["stages"]) == 1


@pytest.mark.parametrize("study", [EXAMPLES / "two_integration_tasks.toml", "missing.toml"])
def test_forget_without_a_sequence_exits_with_2(study):
    result = run(study)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("learncast: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (STUDY + STATIC + STATIC, ""),
        (STUDY + STATIC.replace("0.5]", "inf]"), "cross_correlation"),
        (STUDY + '[[sequence]]\nfamily = "hierachy"\n', "sequence"),
        (STUDY + '[[sequence]]\nfamily = "hierarchy"\ndepth = 2\nshuffle = [0, 0, 1, 2]\n', ""),
        (STUDY + STATIC + "train_steps = -3\n", "train_steps"),
        (STUDY + STATIC + '[[sequence]]\nfamily = "hierarchy"\ndepth = 2\n', ""),
        (STUDY.replace("two-layer", "two-layers") + STATIC, "network"),
        (STUDY.replace("0.3", "0.0") + STATIC, "scale"),
        (STUDY.replace("hidden_size = 3", "imbalance = 1.0") + STATIC, "imbalance"),
    ],
)
def test_invalid_studies_exit_with_2_and_one_line(tmp_path, text, key):
    result = run(written(tmp_path, text))
    assert (result.exit_code, result.stdout) == (2, "")
    assert key in result.stderr
    assert result.stderr.count("\n") == 1


def test_forget_from_a_random_start_uses_descent(tmp_path):
    study = written(tmp_path, STUDY.replace("scale", 'start = "random"\nscale') + STATIC)
    loose = run(study, "--json")
    assert loose.exit_code == 0
    assert json.loads(loose.stdout)["class"] == "integrated"
    assert run(study, "--strict").exit_code == 0


def test_forget_outside_the_theory_fails_only_if_strict(tmp_path):
    wild = STUDY.replace("learning_rate = ", "learning_rate = 10") + STATIC
    assert wild != STUDY + STATIC
    study = written(tmp_path, wild)
    assert json.loads(run(study, "--json").stdout)["class"] == "outside"
    strict = run(study, "--strict")
    assert strict.exit_code == 1
    assert "stable_learning_rate" in strict.stderr


def test_imbalance_share():
    rng = np.random.default_rng(0)
    assert lc.TwoLayer.balanced(3, 4, 2, scale=0.5, rng=rng).imbalance_share < 1e-14  # rounding
    assert lc.TwoLayer(np.ones((2, 3)), 1e-3 * np.ones((2, 2))).imbalance_share == pytest.approx(1.0, abs=1e-5)
    # |2 - 1| / |2 + 1| of one unit with squared weights 1 and 2
    assert lc.TwoLayer([[1.0]], [[np.sqrt(2)]]).imbalance_share == pytest.approx(1 / 3, rel=1e-15)


def test_kernel_of_grams_equals_the_product_of_derivatives():
    rng = np.random.default_rng(1)
    network, items = lc.TwoLayer.random(3, 4, 2, scale=0.7, rng=rng), rng.standard_normal((5, 3))
    by_first = np.einsum("oh,pi->ophi", network.second, items).reshape(10, -1)
    by_second = np.einsum("oq,ph->opqh", np.eye(2), items @ network.first.T).reshape(10, -1)
    grams = network.first.T @ network.first, network.second @ network.second.T
    found = kernel_of_grams(*grams, items)
    np.testing.assert_allclose(found, by_first @ by_first.T + by_second @ by_second.T, rtol=1e-12)


def test_forgetting_at_an_unstable_rate_needs_strict_false():
    tasks = [lc.tasks.integration(steps=20), lc.tasks.integration(steps=20, target_strength=2, name="stronger")]
    start = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forget(tasks, start, learning_rate=0.5).losses()
    assert error.value.assumption == "stable_learning_rate"
    slow = lc.forget(tasks, start, learning_rate=1e-4).losses()
    np.testing.assert_allclose(lc.forget(tasks, start, learning_rate=0.5, strict=False).losses(), slow, rtol=1e-9)


def test_results_do_not_depend_on_the_unit_of_the_inputs():
    cross, power, unit = np.array([[1.0, 0.2], [0.3, 0.5]]), np.array([[1.0, 0.3], [0.3, 0.6]]), 1e-24
    usual = shallow(lc.tasks.static(cross, power), np.zeros((2, 2)), [0.0, 7.0, np.inf], learning_rate=RATE)
    faint = lc.tasks.static(np.sqrt(unit) * cross, unit * power)
    found = shallow(faint, np.zeros((2, 2)), [0.0, 7.0, np.inf], learning_rate=RATE / unit)
    np.testing.assert_allclose(
        np.sqrt(unit) * found["network_function"], usual["network_function"], rtol=1e-9, atol=1e-12
    )


@pytest.mark.filterwarnings("error")
def test_inputs_in_a_tiny_unit_are_solved_without_a_warning():
    """In tiny units learning rates are large, and so are their products with long times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    task = lc.tasks.from_pairs(1e-9 * x, x[:, :2] + 0.3 * rng.standard_normal((40, 2)))
    network = lc.TwoLayer.random(3, 8, 2, scale=0.1, rng=rng)
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.forecast(task, network, learning_rate=3e15)
    assert error.value.assumption == "stable_learning_rate"
