"""Loss and gradients from lag statistics against backpropagation through time on the same trials."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

from learncast import InvalidSpec
from learncast.theory import LagStatistics, loss_and_gradient

torch = pytest.importorskip("torch")

GOLDEN = {
    entry["id"]: entry
    for entry in json.loads((Path(__file__).parent / "golden" / "recurrent.json").read_text())["entries"]
}
WEIGHTS = ("input", "recurrent", "output")
# Both sides are sums of at most a few thousand products of order 1, in different orders: rounding leaves some 1e-14.
ROUNDING = 1e-12


def white(steps):
    return np.eye(steps).reshape(steps, 1, steps, 1)


def backpropagated(inputs, targets, weights, importance):
    """Loss and gradients by torch on trials; `targets` (trials, steps, outputs)."""
    W_x, W_h, W_y = (torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in weights)
    x, y = torch.tensor(inputs), torch.tensor(targets)
    h = torch.zeros(len(x), len(W_h), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for t in range(x.shape[1]):
        h = h @ W_h.T + x[:, t] @ W_x.T
        if t in importance:
            total = total + importance[t] * 0.5 * ((h @ W_y.T - y[:, t]) ** 2).sum(dim=1).mean()
    total.backward()
    slopes = (W_x.grad, W_h.grad, W_y.grad)
    return total.item(), {
        name: np.zeros_like(w) if g is None else g.numpy() for name, w, g in zip(WEIGHTS, weights, slopes, strict=True)
    }


def covariances(inputs, targets):
    trials = len(inputs)
    return (
        np.einsum("pti,psj->tisj", inputs, inputs) / trials,
        np.einsum("pti,pro->tiro", inputs, targets) / trials,
        (targets**2).sum(axis=2).mean(axis=0),
    )


def collected(inputs, targets, kind):
    """The statistics of the trials, through the constructor a user would call for this kind of target."""
    covariance, cross, power = covariances(inputs, targets)
    if kind == "end":
        return LagStatistics.from_covariances(covariance, cross[:, :, -1], target_power=power[-1])
    return LagStatistics.from_covariances(covariance, cross, target_power=power)


def problem(seed, kind, *, sizes=None):
    rng = np.random.default_rng(seed)
    inputs, hidden, outputs, steps = sizes or (rng.integers(1, high) for high in (5, 10, 5, 14))
    x = np.cumsum(rng.normal(size=(30, steps, inputs)), axis=1) * 0.5  # correlated in time
    y = rng.normal(size=(30, steps, outputs)) + x[:, :, :1]
    weights = (
        rng.normal(size=(hidden, inputs)),
        rng.normal(size=(hidden, hidden)) * 0.8 / np.sqrt(hidden),
        rng.normal(size=(outputs, hidden)),
    )
    importance = {int(steps) - 1: 1.0} if kind == "end" else dict.fromkeys(range(steps), 1.0)
    return x, y, weights, importance


def assert_same(measured, expected, *, tolerance=ROUNDING):
    value, slopes = measured
    expected_value, expected_slopes = expected
    assert value == pytest.approx(expected_value, rel=tolerance)
    for name, slope in slopes.items():
        wanted = expected_slopes[name]
        assert slope.shape == wanted.shape
        assert np.abs(slope - wanted).max() <= tolerance * max(np.abs(wanted).max(), 1e-3), name


@pytest.mark.equation("curriculum2025 Eq. (4)")
@pytest.mark.equation("curriculum2025 Eq. (28)")
@pytest.mark.equation("curriculum2025 Eq. (29)")
@pytest.mark.parametrize("kind", ["end", "every"])
@pytest.mark.parametrize("seed", range(25))
def test_equals_backpropagation_through_time(seed, kind):
    x, y, weights, importance = problem(seed, kind)
    statistics = collected(x, y, kind)
    expected = backpropagated(x, y, weights, importance)
    measured = loss_and_gradient(statistics, *weights)
    assert set(measured[1]) == set(WEIGHTS)
    assert_same(measured, expected)


@pytest.mark.parametrize("kind", ["end", "every"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 1, 1), (1, 2, 3, 1), (1, 1, 1, 2), (2, 128, 1, 50)])
def test_equals_backpropagation_at_the_extremes(sizes, kind):
    x, y, weights, importance = problem(3, kind, sizes=sizes)
    assert_same(
        loss_and_gradient(collected(x, y, kind), *weights),
        backpropagated(x, y, weights, importance),
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 17])
def test_gradients_of_trials_of_any_length(steps):
    for sizes in ((2, 3, 1, steps), (1, 3, 2, steps)):
        x, y, weights, importance = problem(steps, "every", sizes=sizes)
        assert_same(
            loss_and_gradient(collected(x, y, "every"), *weights),
            backpropagated(x, y, weights, importance),
        )


def test_gradients_of_long_trials():
    x, y, weights, importance = problem(5, "end", sizes=(1, 16, 1, 150))
    assert_same(
        loss_and_gradient(collected(x, y, "end"), *weights),
        backpropagated(x, y, weights, importance),
    )


@pytest.mark.parametrize("sizes", [(2, 4, 3, 6), (3, 4, 2, 6)])
@pytest.mark.parametrize("learn", list(chain.from_iterable(combinations(WEIGHTS, n) for n in range(4))))
def test_gradients_of_some_weights_are_those_of_all(learn, sizes):
    x, y, weights, importance = problem(11, "end", sizes=sizes)
    statistics = collected(x, y, "end")
    value, slopes = loss_and_gradient(statistics, *weights, learn=learn)
    assert tuple(slopes) == learn
    assert_same((value, slopes), backpropagated(x, y, weights, importance))


@pytest.mark.parametrize("kind", ["end", "every"])
@pytest.mark.parametrize("sizes", [(3, 5, 2, 9), (2, 5, 3, 9), (1, 1, 1, 6)])
@pytest.mark.parametrize("b", [0.0, -0.7, 0.96, 1.0, 1.1])
def test_scalar_recurrence_is_pooled(b, sizes, kind):
    x, y, weights, importance = problem(7, kind, sizes=sizes)
    weights = (weights[0], b * np.eye(sizes[1]), weights[2])
    statistics = collected(x, y, kind)
    expected = backpropagated(x, y, weights, importance)
    powers = float(b) ** np.arange(statistics.lags)
    A = np.einsum("j,jikm,k->im", powers, statistics.input, powers)[None, :, None, :]
    B = np.tensordot(powers, statistics.cross, axes=1)[None]
    for given in (statistics, LagStatistics(A, B, statistics.constant)):  # with one lag the recurrence does not act
        measured = loss_and_gradient(given, *weights, learn=("input", "output"))
        assert set(measured[1]) == {"input", "output"}
        assert_same(measured, expected)
    # A learned recurrence leaves the identity, so its gradient needs the full recursion.
    assert_same(loss_and_gradient(statistics, *weights), expected)


def test_pooling_follows_the_recurrence():
    x, y, weights, importance = problem(8, "end", sizes=(2, 3, 1, 5))
    statistics = collected(x, y, "end")
    for b in (0.5, 0.9, 0.5):
        changed = (weights[0], b * np.eye(3), weights[2])
        assert_same(
            loss_and_gradient(statistics, *changed, learn=("input",)),
            backpropagated(x, y, changed, importance),
        )


def test_nearly_scalar_recurrence_is_not_pooled():
    x, y, weights, importance = problem(9, "end", sizes=(2, 3, 1, 5))
    statistics = collected(x, y, "end")
    off_diagonal, uneven = 0.9 * np.eye(3), np.diag([0.9, 0.9, 0.8])
    off_diagonal[0, 2] = 0.1
    for W_h in (off_diagonal, uneven, np.diag([0.0, 0.0, 0.8])):
        changed = (weights[0], W_h, weights[2])
        assert_same(
            loss_and_gradient(statistics, *changed, learn=("output",)),
            backpropagated(x, y, changed, importance),
        )


@pytest.mark.parametrize("kind", ["end", "every"])
def test_row_and_column_recursions_agree(kind):
    """Silent inputs change nothing, but make inputs outnumber outputs and so switch the recursion."""
    x, y, weights, _ = problem(13, kind, sizes=(2, 6, 4, 8))
    columns = loss_and_gradient(collected(x, y, kind), *weights)
    padded = np.concatenate([x, np.zeros((*x.shape[:2], 5))], axis=2)
    W_x = np.concatenate([weights[0], np.ones((6, 5))], axis=1)
    value, slopes = loss_and_gradient(collected(padded, y, kind), W_x, *weights[1:])
    assert np.abs(slopes["input"][:, 2:]).max() == 0
    slopes["input"] = slopes["input"][:, :2]
    assert_same((value, slopes), columns)


def test_golden_loss_and_gradient():
    expected = GOLDEN["full_loss_grad"]["expected"]

    def numbers(rows, columns):
        return np.arange(rows * columns, dtype=float).reshape(rows, columns)

    W_x, W_h, W_y = np.sin(1 + numbers(5, 2)), 0.4 * np.sin(2 + 1.3 * numbers(5, 5)), np.cos(0.7 * numbers(2, 5))
    B = np.sin(0.3 + 0.9 * numbers(2, 12)).reshape(2, 6, 2).transpose(1, 0, 2)
    A = (0.6 ** np.abs(np.subtract.outer(np.arange(12), np.arange(12)))).reshape(6, 2, 6, 2)
    value, slopes = loss_and_gradient(LagStatistics(A, B, 0.0), W_x, W_h, W_y)
    measured = {
        "loss": value,
        "gWx_fro": np.linalg.norm(slopes["input"]),
        "gWh_fro": np.linalg.norm(slopes["recurrent"]),
        "gWy_fro": np.linalg.norm(slopes["output"]),
        "gWh_00": slopes["recurrent"][0, 0],
        "gWh_23": slopes["recurrent"][2, 3],
        "gWx_10": slopes["input"][1, 0],
        "gWy_14": slopes["output"][1, 4],
    }
    assert measured == pytest.approx(expected, rel=1e-11)  # the precision the golden file states


@pytest.mark.parametrize("sizes", [(2, 5, 3, 7), (3, 5, 2, 7)])
def test_gradient_conserves_the_weight_imbalance(sizes):
    """A change of hidden basis does not change the loss, so W_x W_x' - W_y' W_y + W_h W_h' - W_h' W_h is conserved."""
    x, y, (W_x, W_h, W_y), _ = problem(17, "every", sizes=sizes)
    _, g = loss_and_gradient(collected(x, y, "every"), W_x, W_h, W_y)
    terms = [g["input"] @ W_x.T, -W_y.T @ g["output"], g["recurrent"] @ W_h.T, -W_h.T @ g["recurrent"]]
    assert np.abs(sum(terms)).max() <= ROUNDING * max(np.abs(term).max() for term in terms)


def test_unknown_target_power_leaves_the_gradient_known():
    x, y, weights, importance = problem(23, "end", sizes=(2, 3, 1, 4))
    covariance, cross, _ = covariances(x, y)
    value, slopes = loss_and_gradient(LagStatistics.from_covariances(covariance, cross[:, :, -1]), *weights)
    assert np.isnan(value)
    assert_same((0.0, slopes), (0.0, backpropagated(x, y, weights, importance)[1]))


@pytest.mark.parametrize("W_h", [1e200 * np.eye(2), 1e200 * np.ones((2, 2)), np.full((2, 2), np.nan)])
@pytest.mark.parametrize("learn", [WEIGHTS, ("input", "output")])
def test_exploding_weights_give_a_loss_that_is_not_finite(W_h, learn):
    statistics = LagStatistics(white(5), np.ones((5, 1, 1)), 2.5)
    value, _ = loss_and_gradient(statistics, np.ones((2, 1)), W_h, np.ones((1, 2)), learn=learn)
    assert not np.isfinite(value)


def test_torch_weights_are_accepted():
    x, y, weights, _ = problem(29, "end", sizes=(2, 3, 1, 4))
    statistics = collected(x, y, "end")
    tensors = [torch.tensor(w, requires_grad=True) for w in weights]
    assert loss_and_gradient(statistics, *tensors)[0] == loss_and_gradient(statistics, *weights)[0]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"input": np.arange(16.0).reshape(2, 2, 2, 2)}, "input"),
        ({"input": np.ones((2, 1, 2, 1))}, "input"),
        ({"input": np.ones(3)}, "input"),
        ({"cross": np.ones((2, 2))}, "cross"),
        ({"cross": np.ones((2, 0, 2))}, "cross"),
    ],
)
def test_inconsistent_statistics_raise(arguments, field):
    with pytest.raises(InvalidSpec) as error:
        LagStatistics(
            **{"input": np.eye(4).reshape(2, 2, 2, 2), "cross": np.ones((2, 1, 2)), "constant": 1.0, **arguments}
        )
    assert error.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_power", [1.0]),
        ("input_covariance", np.ones((2, 1, 2, 1))),
        ("cross_covariance", np.ones((3, 1, 2, 1))),
    ],
)
def test_inconsistent_covariances_raise(field, value):
    with pytest.raises(InvalidSpec) as error:
        LagStatistics.from_covariances(
            **{"input_covariance": white(3), "cross_covariance": np.ones((3, 1, 3, 1)), field: value}
        )
    assert error.value.field == field


@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ((np.ones((2, 2)), np.eye(2), np.ones((1, 2))), "input_weights"),
        ((np.ones((2, 1)), np.ones((2, 3)), np.ones((1, 2))), "recurrent_weights"),
        ((np.ones((2, 1)), np.eye(2), np.ones((3, 2))), "output_weights"),
    ],
)
def test_inconsistent_weights_raise(weights, field):
    with pytest.raises(InvalidSpec) as error:
        loss_and_gradient(LagStatistics(white(4), np.ones((4, 1, 1)), 1.0), *weights)
    assert error.value.field == field


def test_unknown_names_of_weights_raise():
    statistics = LagStatistics(white(4), np.ones((4, 1, 1)), 1.0)
    with pytest.raises(InvalidSpec) as error:
        loss_and_gradient(statistics, np.ones((2, 1)), np.eye(2), np.ones((1, 2)), learn=("recurent",))
    assert error.value.field == "learn"


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_tolerance_of_symmetry_is_relative(size):
    root = np.random.default_rng(1).normal(size=(4, 4))
    A = size * root @ root.T
    A[0, 1] *= 1 + 1e-12  # rounding
    LagStatistics(A.reshape(2, 2, 2, 2), np.ones((2, 1, 2)), 1.0)
    A[0, 1] += 1e-5 * size
    with pytest.raises(InvalidSpec) as error:
        LagStatistics(A.reshape(2, 2, 2, 2), np.ones((2, 1, 2)), 1.0)
    assert error.value.field == "input"
