"""Static tasks, trees, two-layer networks and what is asked of them: results, statuses, words and refusals."""

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
from learncast.theory.representation import similarity as representation

EXAMPLES = Path(__file__).parents[3] / "examples"
RATE = 0.01


def four_parts(error):
    """One sentence of what is required, what came, why it matters and what to do."""
    found = error.value
    assert isinstance(found, lc.LearncastError)
    assert all((found.required, found.got, found.why, found.remedy))
    assert str(found).startswith(found.required)
    return str(found)


def refused(work, *words, kind=lc.InvalidSpec):
    with pytest.raises(kind) as error:
        work()
    said = four_parts(error)
    for word in words:
        assert word in said


def diagonal(*strengths):
    return lc.tasks.static(np.diag(strengths))


def even(scale=0.3, size=2):
    return lc.TwoLayer(scale * np.eye(size), scale * np.eye(size))


def solved(task=None, network=None, **options):
    return lc.solve(task or diagonal(1.0, 0.5), network or even(), learning_rate=RATE, **options)


# --- static tasks ---------------------------------------------------------------------------------------------------


def test_a_static_task_has_the_correlations_given():
    cross, inputs = np.array([[1.0, 0.2, 0.0], [0.3, 0.5, -0.4]]), np.diag([1.0, 2.0, 0.5])
    task = lc.tasks.static(cross, inputs, name="mine")
    assert (task.steps, task.inputs, task.outputs, task.name) == (1, 3, 2, "mine")
    np.testing.assert_array_equal(np.asarray(task.cross_covariance)[0, :, 0].T, cross)
    np.testing.assert_array_equal(np.asarray(task.input_covariance)[0, :, 0], inputs)
    # by default the inputs decide the targets: the best map leaves nothing
    np.testing.assert_allclose(
        np.asarray(task.target_covariance)[0, :, 0], cross @ np.linalg.inv(inputs) @ cross.T, rtol=1e-14
    )
    np.testing.assert_array_equal(np.asarray(lc.tasks.static(cross).input_covariance)[0, :, 0], np.eye(3))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([[1.0, np.nan]],), "cross_correlation must be finite"),
        (([[1.0, 2.0j]],), "cross_correlation must be an array of real numbers"),
        (([1.0, 2.0],), "cross_correlation must have 2 dimensions"),
        ((np.zeros((0, 2)),), "at least one entry"),
        ((np.eye(2), np.eye(3)), "must begin with the input's 1 steps and 3 inputs"),
        ((np.eye(2), [[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
        ((np.eye(2), [[1.0, 2.0], [2.0, 1.0]]), "must be positive semi-definite"),
        ((np.eye(2), np.diag([1.0, 0.0])), "positive semi-definite"),
    ],
)
def test_correlations_that_no_data_have_are_refused(given, said):
    refused(lambda: lc.tasks.static(*given), said)


def test_targets_must_vary_enough_for_what_they_share_with_inputs():
    refused(lambda: lc.tasks.static(np.eye(2), target_correlation=0.1 * np.eye(2)), "than its own variance allows")


@pytest.mark.parametrize("variance", [3e-17, 0.0, -3e-17])
def test_a_channel_that_is_silent_up_to_rounding_is_a_silent_channel(variance):
    """As a rotation of rank-deficient data leaves it: far below the largest variance, of either sign."""
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


def test_pairs_that_do_not_pair_are_refused():
    refused(lambda: lc.tasks.from_pairs(np.ones((4, 2)), np.ones((5, 2))), "same number of trials", "4 and 5")
    refused(lambda: lc.tasks.from_pairs(np.full((4, 2), np.inf), np.ones((4, 2))), "inputs must be finite")
    refused(lambda: lc.tasks.from_pairs(np.ones((4, 2)), np.ones(4)), "targets must be (trials[, steps], outputs)")


@pytest.mark.parametrize("kind", [Dense, Kronecker, Sampled])
def test_the_reverse_asks_for_the_opposite(kind):
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


# --- whitening and its way back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3])
def test_whitened_inputs_are_white_and_find_back(rank):
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((40, rank)) @ rng.standard_normal((rank, 3))
    targets = inputs @ rng.standard_normal((3, 2)) + 0.1 * rng.standard_normal((40, 2))
    task = lc.tasks.from_pairs(inputs, targets, name="raw")
    found = lc.tasks.whitened(task)
    white = found.inputs(inputs)
    assert white.shape == (40, rank)
    assert found.task.name == "raw, whitened"
    # a root and its inverse of a matrix of condition 1e2
    np.testing.assert_allclose(white.T @ white / 40, np.eye(rank), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(found.task.cross_covariance)[0, :, 0], white.T @ targets / 40, rtol=0, atol=1e-12
    )
    if rank == 3:  # the root that is closest to the original coordinates is symmetric
        np.testing.assert_allclose(found.transform, found.transform.T, rtol=0, atol=1e-12)
    # solved there, its limit is least squares in the user's own coordinates, and each weight has its way back
    start = lc.TwoLayer.balanced(rank, 4, 2, scale=0.3, rng=np.random.default_rng(2))
    solution = lc.solve(found.task, start, learning_rate=RATE)
    assert not solution.remarks  # of a start that loses a mode the limit would be another
    network = solution.network_at(np.inf)
    function = found.network_function(network.function)
    best = np.linalg.lstsq(inputs, targets, rcond=None)[0].T
    np.testing.assert_allclose(inputs @ function.T, inputs @ best.T, rtol=0, atol=1e-9)
    np.testing.assert_allclose(network.second @ found.first_weights(network.first), function, rtol=0, atol=1e-12)
    loss = ((inputs @ function.T - targets) ** 2).sum(axis=1).mean() / 2
    assert float(solution.limit()["loss"][0]) == pytest.approx(loss, rel=1e-10)


def test_only_static_tasks_are_whitened():
    refused(lambda: lc.tasks.whitened(lc.tasks.integration(3)), "static task (one step)", "3 steps")


def test_a_task_without_any_input_cannot_be_whitened():
    silent = lc.tasks.static(np.zeros((2, 2)), np.zeros((2, 2)))
    refused(lambda: lc.tasks.whitened(silent), "input")


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


def test_the_first_two_levels_of_a_tree_by_hand():
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
    assert "2 and 3 swapped" in tree.swapped(2, 3).name


def test_a_node_swapped_in_a_shuffled_tree_takes_what_is_below_it_along():
    """Items sit anywhere; the two halves of the tree change places with whichever items they hold."""
    tree = lc.tasks.hierarchy(3).shuffled([0, 2, 4, 6, 1, 3, 5, 7])
    swapped = tree.swapped((1, 0), (1, 1))
    assert swapped.order == tuple((leaf + 4) % 8 for leaf in tree.order)
    # exchanging the halves turns the sign of the first branching and of nothing above it
    np.testing.assert_array_equal(swapped.features[1], -tree.features[1])
    twice = tree.swapped((1, 0), (1, 1)).swapped((1, 0), (1, 1))
    assert twice.order == tree.order


def test_shuffling_places_items_anew():
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
    ("one", "other", "said"),
    [
        (8, 9, "there is no such node"),
        (-1, 0, "there is no such node"),
        ((4, 0), (4, 1), "there is no such node"),
        ((1, 2), (1, 0), "there is no such node"),
        ((1, 0), 3, "two different nodes on one level"),
        (5, 5, "two different nodes on one level"),
        ((0, 0), (0, 0), "two different nodes on one level"),
        ((1, 0, 0), (1, 1, 0), "node"),
        ("fish", "bird", "node"),
        (2.0, 3.0, "node"),
    ],
)
def test_nodes_that_cannot_be_swapped_are_refused(one, other, said):
    refused(lambda: lc.tasks.hierarchy(3).swapped(one, other), said)


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [1, 2, 3, 4], "abcd"])
def test_orders_that_lose_an_item_are_refused(order):
    refused(lambda: lc.tasks.hierarchy(2).shuffled(order), "each of the 4 items once")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"depth": 0}, "depth must be a whole number of at least 1"),
        ({"depth": 2.5}, "depth must be a whole number"),
        ({"depth": 13}, "depth must be at most 12"),
        ({"depth": 20_000}, "depth must be at most 12"),
        ({"depth": 2, "form": "sign"}, "did you mean 'signed'?"),
    ],
)
def test_trees_that_cannot_be_are_refused(given, said):
    refused(lambda: lc.tasks.hierarchy(**given), said)


# --- networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (np.ones((3, 2)), np.ones((2, 2)), "(hidden, inputs) and (outputs, hidden)"),
        (np.ones((0, 2)), np.ones((2, 0)), "(hidden, inputs) and (outputs, hidden)"),
        (np.ones(3), np.ones((2, 3)), "first must have 2 dimensions"),
        (np.ones((3, 2)), np.full((2, 3), np.nan), "second must be finite"),
        ([["a"]], [[1.0]], "first must be an array of real numbers"),
    ],
)
def test_weights_that_are_no_network_are_refused(first, second, said):
    refused(lambda: lc.TwoLayer(first, second), said)


def test_a_network_cannot_be_changed_behind_its_back():
    first = np.ones((2, 2))
    network = lc.TwoLayer(first, np.eye(2))
    first[0, 0] = 7.0
    assert network.first[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        network.first[0, 0] = 7.0
    assert (network.inputs, network.hidden_size, network.outputs) == (2, 2, 2)
    assert network.hash == lc.TwoLayer(np.ones((2, 2)), np.eye(2)).hash
    assert network.hash != lc.TwoLayer(np.ones((2, 2)), 2 * np.eye(2)).hash
    assert "2 inputs, 2 hidden, 2 outputs" in repr(network)


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
    ("given", "said"),
    [
        ({"scale": 0.0}, "scale must be positive"),
        ({"hidden_size": 0}, "hidden_size must be a whole number of at least 1"),
        ({"inputs": 2.5}, "inputs must be a whole number"),
        ({"imbalance": 1.0}, "needs hidden_size <= outputs"),
        ({"imbalance": -1.0}, "needs hidden_size <= inputs"),
        ({"imbalance": np.nan}, "finite"),
        ({"imbalance": np.inf, "hidden_size": 2}, "finite"),
        ({"imbalance": "much"}, "imbalance"),
    ],
    ids=str,
)
def test_starts_that_cannot_be_balanced_are_refused(given, said):
    sizes = {"inputs": 3, "hidden_size": 5, "outputs": 4, "scale": 0.1}
    refused(lambda: lc.TwoLayer.balanced(**{**sizes, **given}, rng=np.random.default_rng(0)), said)


# --- solving: conditions, statuses, words ---------------------------------------------------------------------------


def test_an_unbalanced_start_is_refused_with_its_residual_and_the_remedy():
    network = lc.TwoLayer.random(3, 3, 3, scale=0.5, rng=np.random.default_rng(5))
    with pytest.raises(lc.AssumptionViolated) as error:
        lc.solve(diagonal(1.0, 0.7, 0.4), network, learning_rate=RATE, by="two-layer")
    said = four_parts(error)
    assert error.value.assumption == "balanced_weights"
    assert error.value.measured > 0.05
    assert error.value.allowed == 1e-8
    assert f"{error.value.measured:.4g}" in said
    assert "TwoLayer.balanced" in said
    assert "gradient_flow" in said


def test_unwhite_inputs_are_refused_and_named():
    task = lc.tasks.static(np.diag([1.0, 0.5]), np.diag([1.0, 2.0]))
    with pytest.raises(lc.AssumptionViolated, match=r"tasks\.whitened") as error:
        lc.solve(task, even(), learning_rate=RATE, by="two-layer")
    assert error.value.assumption == "whitened_input"
    loose = lc.solve(task, even(), learning_rate=RATE, by="two-layer", strict=False)
    assert loose.forecast_class == "outside"
    assert loose.time_to(0.9).status is lc.Status.outside_theory
    assert not loose.holds


def descended(network, task, steps=np.inf, excess=-np.inf, rate=RATE):
    """Steps of plain descent on a static task, and both maps then: for so many steps, or down to an excess loss."""
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
def test_what_has_no_exact_flow_is_counted_by_descent(task, network):
    found = lc.solve(task, network, learning_rate=RATE)
    assert found.forecast_class == "integrated"
    power, cross = np.asarray(task.input_covariance)[0, :, 0, :], np.asarray(task.cross_covariance)[0, :, 0].T
    whole = np.trace(cross @ np.linalg.solve(power, cross.T))
    goal = 0.05**2 * whole / 2
    steps, first, second = descended(network, task, excess=goal)
    assert found.time_to(0.95).descent_steps == steps
    followed = lc.follow([lc.Stage(task, goal=0.95)], network, learning_rate=RATE)
    assert followed.ground.by == "pooled"
    assert followed.descent_steps == steps
    ended = followed.descent_states[-1]
    np.testing.assert_allclose(ended.function, second @ first, rtol=0, atol=1e-9)


def test_a_learning_rate_beyond_the_sharpest_curvature_is_refused():
    with pytest.raises(lc.AssumptionViolated, match="stable_learning_rate"):
        lc.solve(diagonal(1.0, 0.5), even(), learning_rate=1.1)
    # at the optimum |W1|^2 + |W2|^2 = 2 s_max
    assert solved().sharpness == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: solved(learn=("furst",)), "learn"),
        (lambda: solved(learn=("first",), by="two-layer"), "needs input and output weights that learn, and no others"),
        (lambda: solved(network=even(size=3)), "must have the network's 3 inputs and 3 outputs"),
        (lambda: solved(task=lc.tasks.integration(4, [1.0, 1.0])), "needs a static task (one step)"),
        (lambda: solved(separatrix_tolerance=2.0), "separatrix_tolerance must lie between 0 and 1"),
        (lambda: solved().at([0.0], include=("input_weight",)), "did you mean 'input_weights'?"),
        (lambda: solved().time_to_loss(0.0), "tolerance must be positive"),
        (lambda: solved().time_to(1.5), "accuracy must lie between 0 and 1"),
        (lambda: lc.solve(diagonal(1.0, 0.5), even(), learning_rate=-1.0), "learning_rate must be positive"),
    ],
)
def test_bad_questions_are_refused_in_words(work, said):
    def asked():
        found = work()
        return found.limit() if isinstance(found, TwoLayerSolution) else found

    refused(asked, said)


def test_other_networks_have_no_exact_solution():
    refused(
        lambda: lc.solve(diagonal(1.0, 0.5), object(), learning_rate=RATE),
        "LinearRNN, a TwoLayer or an Activated",
        kind=lc.UnsupportedModel,
    )


def test_statuses_of_learning():
    fine = solved().time_to(0.99)
    assert fine.status is lc.Status.ok
    assert fine.descent_steps == descended(even(), diagonal(1.0, 0.5), excess=0.01**2 * 1.25 / 2)[0]
    stuck = solved(network=lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3]))).time_to(0.99)
    assert (stuck.status, stuck.flow_steps) == (lc.Status.not_learned, np.inf)
    # no accuracy of 1 in finite time, and one of 0 is nearly there from the start
    assert solved().time_to(1.0).status is lc.Status.not_learned
    learned = solved(network=lc.TwoLayer(np.diag(np.sqrt([1.0, 0.5])), np.diag(np.sqrt([1.0, 0.5]))))
    assert learned.time_to(0.9).flow_steps == 0.0
    assert learned.time_to_loss(1e-3) == 0.0


def test_a_zero_start_never_learns_and_says_so():
    solution = solved(network=lc.TwoLayer(np.zeros((2, 2)), np.zeros((2, 2))))
    assert solution.time_to(0.9).status is lc.Status.not_learned
    assert "never learns modes 0, 1" in solution.remarks[0]
    assert float(solution.limit()["excess_loss"][0]) == pytest.approx(0.625, rel=1e-14)


def test_a_task_of_nothing_is_learned_by_forgetting():
    solution = solved(task=diagonal(0.0, 0.0))
    assert float(solution.limit()["loss"][0]) == 0.0
    assert solution.remarks == ()
    assert 0 < solution.time_to_loss(1e-4) < np.inf


def test_remarks_say_what_is_lost_and_where_training_stalls():
    network = lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3]))
    [remark] = solved(network=network).remarks
    stall = solved(network=network).time_to_loss(1.01 * 0.125)
    assert remark == (
        "this start never learns mode 1 under exact gradient flow: final excess loss 0.125; real training will stall "
        f"near step {stall:.4g} and escape by noise"
    )
    assert solved().remarks == ()
    both = lc.solve(diagonal(1.0, 0.5), lc.TwoLayer(0.3 * np.eye(2), -0.3 * np.eye(2)), learning_rate=RATE)
    assert "never learns modes 0, 1 under exact gradient flow: final excess loss 0.625" in both.remarks[0]


def test_remarks_say_when_units_are_wanting():
    task = diagonal(1.0, 0.8, 0.5)
    network = lc.TwoLayer.balanced(3, 2, 3, scale=0.2, rng=np.random.default_rng(6))
    [remark] = lc.solve(task, network, learning_rate=RATE).remarks
    assert remark == "2 hidden units cannot hold every mode: mode 2 stays unlearned, final excess loss 0.125"
    one = lc.TwoLayer.balanced(3, 1, 3, scale=0.2, rng=np.random.default_rng(6))
    [remark] = lc.solve(task, one, learning_rate=RATE).remarks
    assert remark == "1 hidden unit cannot hold every mode: modes 1, 2 stay unlearned, final excess loss 0.445"


def test_orientation_is_told_but_not_required():
    turned = solved(network=lc.TwoLayer(0.3 * np.eye(2), np.diag([0.3, -0.3])))
    orientation = {a.name: a for a in turned.assumptions}["regular_orientation"]
    assert (orientation.measured, orientation.holds, turned.holds) == (1.0, False, True)
    assert turned.orientation_margin == 0.0
    assert solved().orientation_margin == pytest.approx(1.0)
    # there is nothing to be turned against
    assert solved(lc.tasks.static(np.zeros((2, 2)), np.eye(2))).orientation_margin == 1.0


def test_a_solution_shows_its_shape():
    assert repr(solved()) == ("<TwoLayerSolution of 'static' at learning rate 0.01: 2-2-2, imbalance 0, exact>")


# --- what the hidden layer represents -------------------------------------------------------------------------------


def recurrent():
    return lc.solve(lc.tasks.integration(4), lc.LinearRNN.aligned(hidden_size=2, initial=0.1), learning_rate=1e-3)


SAMPLES = np.random.default_rng(7).standard_normal((4, 2))


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, SAMPLES),
        lambda s: lc.theory.tangent_kernel_summary(s, [0.0], SAMPLES),
        lc.theory.representation_distance,
        lambda s: lc.theory.off_diagonal_strength(s, [0.0]),
    ],
)
def test_questions_about_two_layers_need_two_layers(ask):
    refused(lambda: ask(recurrent()), "a solution of a two-layer network is needed", "ModeSolution")


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda s: lc.theory.tangent_kernel(s, 0.0, np.ones((4, 3))), "inputs must be (samples, 2)"),
        (lambda s: lc.theory.tangent_kernel(s, 0.0, np.full((4, 2), np.nan)), "inputs must be finite"),
        (
            lambda s: lc.theory.tangent_kernel(s, -1.0, SAMPLES),
            "times must be a list of gradient steps from 0 on",
        ),
        (lambda s: lc.theory.tangent_kernel(s, [0.0, 1.0], SAMPLES), "times must be a list"),
        (
            lambda s: lc.theory.tangent_kernel_summary(s, [0.0], np.ones(4)),
            "inputs must have 2 dimensions",
        ),
        (
            lambda s: lc.theory.tangent_kernel_summary(s, [0.0], SAMPLES, eigenvalues=-1),
            "eigenvalues must be a whole number",
        ),
        (lambda s: lc.theory.tangent_kernel_summary(s, [np.nan], SAMPLES), "times must be a list"),
        (lambda s: lc.theory.tangent_kernel_summary(s, "soon", SAMPLES), "times must be numbers"),
        (
            lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES.T, SAMPLES),
            "inputs must be (samples, 2)",
        ),
        (lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, np.ones((4, 3))), "targets"),
        (lambda s: lc.theory.hidden_similarity(s, [0.0], SAMPLES, np.ones((5, 2))), "targets"),
        (lambda s: lc.theory.representation_distance(s, time=-1.0), "times must be a list"),
        (lambda s: lc.theory.off_diagonal_strength(s, "soon"), "times must be numbers"),
    ],
)
def test_bad_samples_and_times_are_refused(ask, said):
    refused(lambda: ask(solved()), said)


def test_huge_kernels_are_refused_before_they_are_formed():
    many = np.ones((20_000, 2))
    refused(
        lambda: lc.theory.tangent_kernel(solved(), 0.0, many),
        "the kernel must fit in 1 GiB",
        "tangent_kernel_summary",
    )
    refused(
        lambda: lc.theory.hidden_similarity(solved(), [0.0], many, many),
        "the similarities must fit",
        "fewer samples",
    )


def test_the_summary_of_a_kernel_has_a_limit_too(monkeypatch):
    """It forms samples x samples at every time: with so many that memory would not do, it must say so."""
    monkeypatch.setattr("learncast.theory.representation.lag_kernel.MEMORY_LIMIT", 10**6)
    refused(
        lambda: lc.theory.tangent_kernel_summary(solved(), np.arange(20.0), np.ones((300, 2))),
        "must fit in",
    )


@pytest.mark.parametrize("samples", [np.zeros((3, 2)), np.zeros((0, 2))])
def test_a_kernel_of_nothing_does_not_move(samples):
    """Silent samples, or none: no nan, but a kernel that stays as it was, or a refusal in words."""
    try:
        found = lc.theory.tangent_kernel_summary(solved(), [0.0, 10.0], samples)
    except lc.InvalidSpec:
        return
    assert np.isfinite(found["trace"].values).all()
    assert np.isfinite(found["movement"].values).all()


def test_rich_and_lazy_by_their_distance():
    small = lc.theory.representation_distance(solved(network=even(0.01)))
    assert float(small["input_distance"]) < 1e-12
    # unequal layers keep their imbalance: lazy
    lazy = solved(network=lc.TwoLayer(0.1 * np.eye(2), np.sqrt(4.01) * np.eye(2)))
    assert float(lc.theory.representation_distance(lazy)["output_distance"]) > 1.0
    start = lc.theory.representation_distance(solved(network=even(0.01)), time=0.0)
    assert float(start["input_distance"]) == pytest.approx(1.0, abs=1e-3)
    # a task of nothing: distances are absolute
    assert np.isfinite(lc.theory.representation_distance(solved(task=diagonal(0.0, 0.0)))["input_distance"].values)


def test_every_answer_is_labelled():
    solution = solved()
    for found in (
        lc.theory.hidden_similarity(solution, [0.0, 5.0], SAMPLES, SAMPLES),
        lc.theory.tangent_kernel_summary(solution, [0.0, 5.0], SAMPLES),
        lc.theory.representation_distance(solution),
        lc.theory.off_diagonal_strength(solution, [0.0, 5.0]),
        shallow(diagonal(1.0, 0.5), np.zeros((2, 2)), [0.0, 5.0], learning_rate=RATE),
    ):
        assert isinstance(found, xr.Dataset)
        assert all({"units", "long_name"} <= set(v.attrs) for v in found.data_vars.values())


# --- coupling and shallow networks ----------------------------------------------------------------------------------


def test_the_peak_of_a_coupling():
    assert np.isnan(peak_time(0.7, 0.6, 0.1, 1.0))
    assert peak_time(0.01, 0.02, 0.005, 1.0) > 0
    # the sign of the coupling does not matter
    assert peak_time(0.01, 0.02, -0.005, 1.0) == peak_time(0.01, 0.02, 0.005, 1.0)
    refused(lambda: peak_time(0.1, 0.1, 0.2, 1.0), "positive definite", "-0.03")
    refused(lambda: peak_time(0.1, 0.1, 0.01, 0.0), "strength must be positive")


def test_coupled_modes_start_where_they_start_and_end_at_the_task():
    start = two_mode_coupling(0.0, 0.2, 0.1, 0.05, (1.0, 0.5))
    np.testing.assert_allclose(start, [0.2, 0.1, 0.05], rtol=1e-15)
    np.testing.assert_allclose(two_mode_coupling(np.inf, 0.2, 0.1, 0.05, (1.0, 0.5)), [1.0, 0.5, 0.0], atol=1e-15)
    many = two_mode_coupling(np.array([0.0, 1.0, 3.0]), 0.2, 0.1, 0.05, (1.0, 0.5))
    assert all(value.shape == (3,) for value in many)


def test_a_mode_the_task_does_not_have_is_coupled_too():
    """s_2 = 0: y_2 = 2 t, as in a task that asks nothing of the second mode."""
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
    # its own equation, W' = S - W C, by a central difference of relative error 1e-6 / 6
    h = 1e-3
    around = shallow(task, start, [10.0 - h, 10.0 + h], learning_rate=RATE)["network_function"].values
    slope = RATE * (cross - found["network_function"].values[1] @ inputs)
    np.testing.assert_allclose((around[1] - around[0]) / (2 * h), slope, rtol=1e-6)


def test_a_silent_input_keeps_its_shallow_weight():
    task = lc.tasks.static([[1.0, 0.0]], np.diag([1.0, 0.0]))
    found = shallow(task, [[0.2, 0.7]], [0.0, 50.0, np.inf], learning_rate=RATE)
    np.testing.assert_array_equal(found["network_function"][:, 0, 1], 0.7)
    assert float(found["network_function"][-1, 0, 0]) == 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"start": np.zeros((3, 2))}, "a start of shape (2, 2)"),
        ({"start": np.full((2, 2), np.nan)}, "start must be finite"),
        ({"times": [-1.0]}, "times must be a list"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"task": lc.tasks.integration(3, [1.0, 1.0])}, "3 steps"),
    ],
)
def test_bad_shallow_questions_are_refused(given, said):
    whole = {"task": diagonal(1.0, 0.5), "start": np.zeros((2, 2)), "times": [0.0], "learning_rate": RATE, **given}
    refused(lambda: shallow(whole.pop("task"), whole.pop("start"), whole.pop("times"), **whole), said)


# --- sequences and forgetting ---------------------------------------------------------------------------------------


def tasks():
    return [
        lc.tasks.static(np.diag([1.0, 0.5]), name="first"),
        lc.tasks.static([[0.6, 0.3], [0.2, 0.9]], name="second"),
    ]


def test_a_sequence_to_convergence():
    found = lc.planning.in_sequence(tasks(), even(), learning_rate=RATE)
    assert [o.flow_steps for o in found.outcomes] == [np.inf, np.inf]
    assert found.losses().dims == ("stage", "task")
    assert found.losses()["stage"].values.tolist() == ["start", "first", "second"]
    between = 0.5 * ((np.diag([1.0, 0.5]) - [[0.6, 0.3], [0.2, 0.9]]) ** 2).sum()
    np.testing.assert_allclose(found.losses().values[1:], [[0.0, between], [between, 0.0]], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.forgetting.values[1], [between, -between], rtol=1e-12)
    assert found.forgetting["stage"].values.tolist() == ["first", "second"]
    assert found.remarks == ()
    assert found.forecast_class == "exact"
    assert repr(found).startswith("<Curriculum first (inf) -> second (inf)")
    xr.testing.assert_identical(lc.forgetting(tasks(), even(), learning_rate=RATE), found.losses())


@pytest.mark.parametrize("steps", [50.0, [50.0, 120.0], (0, np.inf), np.array([30, 20])])
def test_a_sequence_by_steps(steps):
    found = lc.planning.in_sequence(tasks(), even(), learning_rate=RATE, steps=steps)
    durations = np.broadcast_to(steps, (2,)).astype(float)
    assert [o.flow_steps for o in found.outcomes] == durations.tolist()
    np.testing.assert_array_equal(found.losses()["steps"], [0.0, *durations])
    told, losses = found.losses(descent=False), found.losses()
    whole = even()
    for k, (task, duration) in enumerate(zip(tasks(), durations, strict=True), start=1):
        if np.isfinite(duration):  # what is told first is what that many steps of descent leave
            whole = lc.TwoLayer(*descended(whole, task, int(duration))[1:])
            for j, other in enumerate(tasks()):
                gap = whole.function - np.asarray(other.cross_covariance)[0, :, 0].T
                assert losses.values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9, abs=1e-13)
    network = even()
    for k, (task, duration) in enumerate(zip(tasks(), durations, strict=True), start=1):
        network = lc.solve(task, network, learning_rate=RATE).network_at(duration)
        for j, other in enumerate(tasks()):
            gap = network.function - np.asarray(other.cross_covariance)[0, :, 0].T
            assert told.values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9, abs=1e-13)


def test_a_sequence_of_a_recurrent_network():
    pair = [
        lc.tasks.leaky_integration(4, timescale=3.0, mixing=[[1.0, 0.2], [0.1, 0.7]], name="a"),
        lc.tasks.leaky_integration(4, timescale=3.0, mixing=[[0.5, -0.4], [0.3, 0.9]], name="b"),
    ]
    layers = lc.TwoLayer(0.3 * np.eye(2), 0.3 * np.eye(2))
    network = lc.LinearRNN(layers.first, 0.7 * np.eye(2), layers.second)
    found = lc.planning.in_sequence(pair, network, learning_rate=1e-3)
    assert all(isinstance(s.network_at(1.0), lc.LinearRNN) for s in found.courses)
    # the same window, but seen through b = 0.7 instead of exp(-1/3): a least loss is left
    assert 0 < found.losses().sel(stage="a", task="a") < found.losses().sel(stage="b", task="a")
    np.testing.assert_allclose(found.courses[1].network_at(np.inf).recurrent_weights, 0.7 * np.eye(2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": [1.0]}, "one for each of the 2 tasks"),
        ({"steps": [[1.0, 2.0]]}, "one for each of the 2 tasks"),
        ({"steps": -1.0}, "from 0 on"),
        ({"steps": [1.0, np.nan]}, "from 0 on"),
        ({"steps": "long"}, "steps must be"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"tasks": []}, "at least one task"),
        ({"tasks": [*tasks(), lc.tasks.static(np.eye(3))]}, "must have the network's 2 inputs and 2 outputs"),
        ({"network": lc.TwoLayer(np.eye(3), np.eye(3))}, "must have the network's 3 inputs"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_sequences_that_cannot_be_are_refused(given, said):
    whole = {"tasks": tasks(), "network": even(), "learning_rate": RATE, **given}
    refused(lambda: lc.planning.in_sequence(whole.pop("tasks"), whole.pop("network"), **whole), said)


def test_a_sequence_needs_a_network():
    refused(lambda: lc.planning.in_sequence(tasks(), object(), learning_rate=RATE), "network", kind=lc.LearncastError)


def test_an_unbalanced_sequence_is_refused_unless_told_otherwise():
    network = lc.TwoLayer.random(2, 3, 2, scale=0.5, rng=np.random.default_rng(8))
    with pytest.raises(lc.AssumptionViolated, match="balanced_weights"):
        lc.planning.in_sequence(tasks(), network, learning_rate=RATE, by="two-layer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrregularSwitch)
        loose = lc.planning.in_sequence(tasks(), network, learning_rate=RATE, by="two-layer", strict=False)
    assert loose.forecast_class == "outside"
    told = lc.planning.in_sequence(tasks(), network, learning_rate=RATE, steps=(80, 60))
    assert told.forecast_class == "integrated"
    first = lc.TwoLayer(*descended(network, tasks()[0], 80)[1:])
    second = lc.TwoLayer(*descended(first, tasks()[1], 60)[1:])
    for k, ended in enumerate((first, second), start=1):
        for j, task in enumerate(tasks()):
            gap = ended.function - np.asarray(task.cross_covariance)[0, :, 0].T
            assert told.losses().values[k, j] == pytest.approx(0.5 * (gap**2).sum(), rel=1e-9)


def test_an_irregular_switch_warns_in_words():
    task = lc.tasks.static(np.diag([1.0, 0.5]), name="way")
    pair = [task, lc.tasks.reversed(task, name="back")]
    found = lc.planning.in_sequence(pair, even(), learning_rate=RATE)
    with pytest.warns(IrregularSwitch) as caught:
        losses = lc.forgetting(pair, even(), learning_rate=RATE)
    assert [str(w.message) for w in caught] == list(found.remarks)
    assert found.remarks[0].startswith("stage 2 (back): this start never learns modes 0, 1 under exact gradient flow")
    assert caught[0].filename == __file__
    # on the saddle: nothing is left of the first task, and nothing learned of its reverse
    np.testing.assert_allclose(losses.values[2], [0.625, 0.625], rtol=1e-12)
    orientation = {a.name: a for a in found.assumptions}["regular_orientation"]
    assert not orientation.holds


def test_a_regular_sequence_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lc.forgetting(tasks(), even(), learning_rate=RATE)


def test_without_target_covariance_the_loss_above_the_best_is_told():
    pair = [lc.Task(np.eye(2)[None, :, None], np.diag(s)[None], name=str(s)) for s in ([1.0, 0.5], [0.4, 0.8])]
    found = lc.planning.in_sequence(pair, even(), learning_rate=RATE)
    assert found.losses().attrs["long_name"] == "loss above the best linear map's"
    known = lc.planning.in_sequence([diagonal(1.0, 0.5), diagonal(0.4, 0.8)], even(), learning_rate=RATE)
    np.testing.assert_allclose(found.losses().values, known.losses().values, rtol=0, atol=1e-14)
    curves = found.curves(points=5)
    assert np.isfinite(curves["loss"].values).all()


def test_curves_cover_every_stage():
    found = lc.planning.in_sequence(tasks(), even(), learning_rate=RATE)
    curves = found.curves(points=20)
    assert curves["loss"].dims == ("time", "task")
    assert curves.sizes == {"time": 40, "task": 2}
    assert curves["stage"].values.tolist() == [0] * 20 + [1] * 20
    assert np.all(np.diff(curves["time"].values) >= 0)
    # by default until the loss is within 1% of its end
    for k in (0, 1):
        own = curves["loss"].values[20 * k : 20 * (k + 1), k]
        assert own[-1] <= own[0] * 0.01 + 1e-12
        assert np.all(np.diff(own) <= 1e-14)
    assert found.curves(points=3, horizon=7.0)["time"].values.tolist() == [0.0, 3.5, 7.0, 7.0, 10.5, 14.0]


def test_a_stage_already_learned_still_has_a_curve():
    learned = lc.TwoLayer(np.diag(np.sqrt([1.0, 0.5])), np.diag(np.sqrt([1.0, 0.5])))
    curves = lc.planning.in_sequence([diagonal(1.0, 0.5)], learned, learning_rate=RATE).curves(points=4)
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


def test_forget_answers_the_example():
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
    assert remark.startswith("stage 3 (colours, two items swapped): this start never learns mode")
    assert "final excess loss 0.125" in remark
    assert answer["class"] == "exact"
    validity = {row["assumption"]: row["holds"] for row in answer["validity"]}
    assert validity == {
        "whitened_input": True,
        "balanced_weights": True,
        "regular_orientation": False,
        "stable_learning_rate": True,
    }


def test_forget_answers_people_too(tmp_path):
    result = run(EXAMPLES / "revised_hierarchy.toml", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "Training colours raises the loss of living things by 2.75" in result.stdout
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


def test_forget_of_a_single_stage_forgets_nothing(tmp_path):
    result = run(written(tmp_path, STUDY + STATIC))
    assert result.exit_code == 0
    assert "one is learned alone; nothing can be forgotten" in result.stdout


@pytest.mark.parametrize("study", [EXAMPLES / "two_integration_tasks.toml", "missing.toml"])
def test_forget_refuses_what_is_no_sequence(study):
    result = run(study)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("learncast: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STUDY + STATIC + STATIC, "two tasks are called 'one'"),
        (STUDY + STATIC.replace("0.5]", "inf]"), "cross_correlation"),
        (STUDY + '[[sequence]]\nfamily = "hierachy"\n', "did you mean 'hierarchy'?"),
        (STUDY + '[[sequence]]\nfamily = "hierarchy"\ndepth = 2\nshuffle = [0, 0, 1, 2]\n', "each of the 4 items once"),
        (STUDY + STATIC + "train_steps = -3\n", "train_steps"),
        (STUDY + STATIC + '[[sequence]]\nfamily = "hierarchy"\ndepth = 2\n', "4 and 4"),
        (STUDY.replace("two-layer", "two-layers") + STATIC, "did you mean 'two-layer'?"),
        (STUDY.replace("0.3", "0.0") + STATIC, "scale"),
        (STUDY.replace("hidden_size = 3", "imbalance = 1.0") + STATIC, "needs hidden <= outputs"),
    ],
)
def test_forget_refuses_bad_studies_in_one_sentence(tmp_path, text, said):
    result = run(written(tmp_path, text))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_forget_from_a_random_start_goes_by_descent(tmp_path):
    study = written(tmp_path, STUDY.replace("scale", 'start = "random"\nscale') + STATIC)
    loose = run(study, "--json")
    assert loose.exit_code == 0
    assert json.loads(loose.stdout)["class"] == "integrated"
    assert run(study, "--strict").exit_code == 0


def test_forget_outside_the_theory_answers_and_fails_when_strict(tmp_path):
    wild = STUDY.replace("learning_rate = ", "learning_rate = 10") + STATIC
    assert wild != STUDY + STATIC
    study = written(tmp_path, wild)
    assert json.loads(run(study, "--json").stdout)["class"] == "outside"
    strict = run(study, "--strict")
    assert strict.exit_code == 1
    assert "stable_learning_rate" in strict.stderr


def test_imbalance_is_a_share():
    rng = np.random.default_rng(0)
    assert lc.TwoLayer.balanced(3, 4, 2, scale=0.5, rng=rng).imbalance_share < 1e-14  # rounding
    assert lc.TwoLayer(np.ones((2, 3)), 1e-3 * np.ones((2, 2))).imbalance_share == pytest.approx(1.0, abs=1e-5)
    # |2 - 1| / |2 + 1| of one unit with squared weights 1 and 2
    assert lc.TwoLayer([[1.0]], [[np.sqrt(2)]]).imbalance_share == pytest.approx(1 / 3, rel=1e-15)


def test_a_kernel_of_grams_is_that_of_all_derivatives():
    rng = np.random.default_rng(1)
    network, items = lc.TwoLayer.random(3, 4, 2, scale=0.7, rng=rng), rng.standard_normal((5, 3))
    by_first = np.einsum("oh,pi->ophi", network.second, items).reshape(10, -1)
    by_second = np.einsum("oq,ph->opqh", np.eye(2), items @ network.first.T).reshape(10, -1)
    grams = network.first.T @ network.first, network.second @ network.second.T
    found = kernel_of_grams(*grams, items)
    np.testing.assert_allclose(found, by_first @ by_first.T + by_second @ by_second.T, rtol=1e-12)


def test_what_a_refusal_advises_can_be_done():
    """A learning rate that descent does not settle at is refused, and `strict=False` gives the flow's losses."""
    tasks = [lc.tasks.integration(steps=20), lc.tasks.integration(steps=20, target_strength=2, name="stronger")]
    start = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    with pytest.raises(lc.errors.AssumptionViolated, match="strict=False"):
        lc.forgetting(tasks, start, learning_rate=0.5)
    slow = lc.forgetting(tasks, start, learning_rate=1e-4)
    np.testing.assert_allclose(lc.forgetting(tasks, start, learning_rate=0.5, strict=False), slow, rtol=1e-9)


def test_the_unit_of_the_inputs_is_free():
    """Inputs a million million times weaker are learned as fast at a larger rate: no power is small in itself."""
    cross, power, unit = np.array([[1.0, 0.2], [0.3, 0.5]]), np.array([[1.0, 0.3], [0.3, 0.6]]), 1e-24
    usual = shallow(lc.tasks.static(cross, power), np.zeros((2, 2)), [0.0, 7.0, np.inf], learning_rate=RATE)
    faint = lc.tasks.static(np.sqrt(unit) * cross, unit * power)
    found = shallow(faint, np.zeros((2, 2)), [0.0, 7.0, np.inf], learning_rate=RATE / unit)
    np.testing.assert_allclose(
        np.sqrt(unit) * found["network_function"], usual["network_function"], rtol=1e-9, atol=1e-12
    )


@pytest.mark.filterwarnings("error")
def test_inputs_in_a_tiny_unit_are_solved_without_a_warning():
    """In nanounits rates are large, and so is their product with the last of times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3))
    task = lc.tasks.from_pairs(1e-9 * x, x[:, :2] + 0.3 * rng.standard_normal((40, 2)))
    network = lc.TwoLayer.random(3, 8, 2, scale=0.1, rng=rng)
    with pytest.raises(lc.AssumptionViolated, match="stable_learning_rate"):
        lc.solve(task, network, learning_rate=3e15)
