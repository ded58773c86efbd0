"""Lag-space tangent kernels against autograd Jacobians and golden numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import learncast as lc
from learncast.theory import gradient_flow, network_kernel


def golden(name):
    entries = json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())["entries"]
    return {entry["id"]: entry for entry in entries}


RECURRENT, CURRICULUM = golden("recurrent"), golden("curriculum")
BLOCKS = ("output", "input", "recurrent")


def network(inputs, hidden, outputs, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(hidden, inputs)),
        rng.normal(size=(hidden, hidden)) * 0.9 / np.sqrt(hidden),
        rng.normal(size=(outputs, hidden)),
    )


def mode(a, b, c):
    return [[a]], [[b]], [[c]]


def kernel_of(input_weights, recurrent_weights, output_weights, **given):
    return network_kernel(lc.LinearRNN(input_weights, recurrent_weights, output_weights), **given)


def kernel_matrix(kernel, learn=("input", "recurrent", "output")):
    theta = kernel.dense(learn)
    size = int(np.prod(theta.shape[:3]))
    return theta.reshape(size, size)


def jacobians(weights, trials):
    """Return the derivatives of the last output of each trial by each kind of weights, (trials, outputs, -1)."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(trials.copy())

    def last_output(W_x, W_h, W_y):
        h = torch.zeros(len(x), len(W_h), dtype=torch.float64)
        for t in range(x.shape[1]):
            h = h @ W_h.T + x[:, t] @ W_x.T
        return h @ W_y.T

    slopes = torch.func.jacrev(last_output, argnums=(0, 1, 2))(*map(torch.tensor, weights))
    named = dict(zip(("input", "recurrent", "output"), slopes, strict=True))
    return {name: slope.reshape(*slope.shape[:2], -1).numpy() for name, slope in named.items()}


# Fewer and more hidden units than lags × channels: the recurrent block is built in the smaller of the two.
SHAPES = [(1, 1, 1, 1), (1, 1, 1, 5), (2, 3, 1, 1), (2, 3, 2, 6), (1, 4, 3, 2), (3, 40, 2, 4), (2, 9, 3, 4)]


@pytest.mark.parametrize(("inputs", "hidden", "outputs", "steps"), SHAPES)
def test_trial_kernel_equals_the_jacobian(inputs, hidden, outputs, steps):
    rng = np.random.default_rng(1)
    weights = network(inputs, hidden, outputs)
    x, z = rng.normal(size=(4, steps, inputs)), rng.normal(size=(3, steps, inputs))
    kernel = kernel_of(*weights, steps=steps)
    left, right = jacobians(weights, x), jacobians(weights, z)
    for name in BLOCKS:
        expected = np.einsum("aow,bpw->abop", left[name], right[name])
        measured = kernel.between(x, z, learn=(name,))
        assert measured.shape == expected.shape
        # Rounding in sums of a few thousand products, relative to the largest entry.
        assert np.abs(measured - expected).max() <= 1e-13 * max(np.abs(expected).max(), 1e-3), name
    np.testing.assert_allclose(kernel.between(x, z), sum(kernel.between(x, z, learn=(name,)) for name in BLOCKS))


@pytest.mark.parametrize(("inputs", "hidden", "outputs", "steps"), SHAPES)
@pytest.mark.parametrize("learn", [("input", "recurrent", "output"), ("input", "output"), ("recurrent",), ()])
def test_dense_kernel_equals_the_jacobian_on_unit_inputs(inputs, hidden, outputs, steps, learn):
    weights = network(inputs, hidden, outputs, seed=2)
    units = np.eye(steps * inputs).reshape(-1, steps, inputs)[:, ::-1]  # trial (j, i): input i at lag j
    slopes = jacobians(weights, units)
    expected = np.zeros((outputs * steps * inputs,) * 2)
    for name in learn:
        flat = slopes[name].transpose(1, 0, 2).reshape(outputs * steps * inputs, -1)
        expected += flat @ flat.T
    measured = kernel_matrix(kernel_of(*weights, steps=steps), learn)
    assert np.abs(measured - expected).max() <= 1e-13 * max(np.abs(expected).max(), 1e-3)


def test_golden_blocks_of_a_tiny_network():
    entry = CURRICULUM["ntk_tiny"]
    given, expected = entry["inputs"], entry["expected"]
    kernel = kernel_of(given["Wx"], given["Wh"], given["Wy"], steps=4)
    for key, other in (("K12", given["X2"]), ("K11", None)):
        trials, others = np.array([given["X"]]), None if other is None else np.array([other])
        for learn, block in ((("output",), "Wy"), (("input",), "Wx"), (("recurrent",), "Wh"), (BLOCKS, "total")):
            found = kernel.between(trials, others, learn=learn)[0, 0]
            np.testing.assert_allclose(found, expected[key][block], rtol=entry["rtol"], atol=entry["atol"])


def test_golden_sharpness():
    entry = RECURRENT["sharpness"]
    expected = entry["expected"]
    for i, rho in enumerate(entry["inputs"]["rho"]):
        kernel = kernel_of(*mode(1.0, rho, 1.0), steps=entry["inputs"]["T"])
        largest = np.linalg.eigvalsh(kernel_matrix(kernel))[-1]
        assert largest == pytest.approx(expected["lambda_max"][i], rel=entry["rtol"])
        assert 2 / largest == pytest.approx(expected["lr_max"][i], rel=entry["rtol"])


@pytest.mark.parametrize("case", range(3))
def test_golden_change_of_the_kernel_in_one_mode(case):
    entry = RECURRENT["ntk_change_mode"]
    expected = entry["expected"][case]
    u0, b0, s0, rho = entry["inputs"]["cases"][case]
    lags = np.arange(entry["inputs"]["T"])

    def change(before, after):
        size = np.linalg.norm(before)
        alignment = np.sum(before * after) / (size * np.linalg.norm(after))
        return np.linalg.norm(after - before) / size, 1 - alignment

    def recurrent(u, b):
        return kernel_of(*mode(np.sqrt(u), b, np.sqrt(u)), steps=len(lags))

    def feedforward(first, second):
        # A two-layer network on all inputs of a trial is a recurrent network of one step.
        return kernel_of(first[None], [[0.0]], [[second]], steps=1)

    first, second = np.sqrt(u0) * b0**lags, np.sqrt(u0)
    imbalance, target = first @ first - second**2, s0 * rho**lags
    learned = np.sqrt((np.sqrt(imbalance**2 + 4 * target @ target) - imbalance) / 2)
    networks = recurrent(u0, b0), recurrent(s0, rho)
    layers = feedforward(first, second), feedforward(target / learned, learned)
    found = {"lrnn": change(*map(kernel_matrix, networks)), "ff": change(*map(kernel_matrix, layers))}
    for name, numbers in found.items():
        np.testing.assert_allclose(numbers, expected[name], rtol=entry["rtol"])
    for pair in (networks, layers):
        _, misalignment = change(*(kernel_matrix(kernel, ("output",)) for kernel in pair))
        assert misalignment == pytest.approx(expected["feature_gram_both"], rel=entry["rtol"])


def test_golden_hidden_variance_is_the_trace_of_the_output_block():
    entry = RECURRENT["hidden_variance"]
    given = entry["inputs"]
    found = [
        [np.trace(kernel_of(*mode(given["a"], b, 1.0), steps=T).output.reshape(T, T)) for T in given["T"]]
        for b in given["b"]
    ]
    np.testing.assert_allclose(found, entry["expected"], rtol=entry["rtol"])


def test_mode_kernel_is_its_closed_form():
    """(a² + c²) vv' + u² ww' with v_k = b^k and w_k = k b^(k-1), also at b = 0 and if b^k spans 1e20."""
    lags = np.arange(30)
    for a, b, c in ((0.5, 0.2, -0.7), (0.5, 0.0, 0.7), (0.3, -1.5, 0.2)):
        v = b**lags
        w = np.concatenate([[0.0], lags[1:] * v[:-1]])
        expected = (a * a + c * c) * np.outer(v, v) + (a * c) ** 2 * np.outer(w, w)
        # Entry by entry: small entries have the same relative precision.
        np.testing.assert_allclose(kernel_matrix(kernel_of(*mode(a, b, c), steps=30)), expected, rtol=1e-12)


def rejected(field, call):
    with pytest.raises(lc.InvalidSpec) as caught:
        call()
    assert caught.value.field == field


def test_too_large_kernels_are_rejected_before_they_are_allocated():
    rejected("most_bytes", lambda: kernel_of(*network(16, 8, 4), steps=1000))
    kernel = kernel_of(*network(1, 2, 1), steps=3)
    rejected("most_bytes", lambda: kernel.between(np.zeros((100_000, 3, 1))))


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("steps", lambda: kernel_of(*mode(1, 1, 1), steps=0)),
        ("learn", lambda: kernel_of(*mode(1, 1, 1), steps=2).dense(("inputs",))),
        ("inputs", lambda: kernel_of(*mode(1, 1, 1), steps=2).between(np.ones((1, 3, 1)))),
    ],
)
def test_arguments_of_kernels_are_checked(field, call):
    rejected(field, call)


# --- tangent_kernel of networks and solutions ----------------------------------------------------------------------


def expected_kernel(weights, x, learn):
    slopes = jacobians(weights, x)
    flat = [slopes[name].transpose(1, 0, 2).reshape(-1, slopes[name].shape[2]) for name in learn]
    return sum(rows @ rows.T for rows in flat)


@pytest.mark.parametrize("learn", [None, ("input", "output"), ("recurrent",)])
def test_the_kernel_of_a_recurrent_network_equals_the_jacobian(learn):
    weights = network(2, 5, 3)
    x = np.random.default_rng(4).normal(size=(4, 6, 2))
    found = lc.theory.tangent_kernel(lc.LinearRNN(*weights), 0.0, x, learn=learn)
    wanted = expected_kernel(weights, x, learn or BLOCKS)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


def solutions():
    task = lc.tasks.integration(steps=4, target_strength=[2.0, 1.0])
    start = lc.LinearRNN.aligned(recurrence=0.8, initial=0.2, hidden_size=3, task=task)
    yield lc.forecast(task, start, learning_rate=1e-3).solution, ("input", "output")
    yield gradient_flow(task, start, learning_rate=1e-3), BLOCKS
    yield gradient_flow(task, start, learning_rate=1e-3, learn=("input",)), ("input",)
    yield lc.descend(task, start, lc.Training(1e-3, learn=BLOCKS), steps=80), BLOCKS


def test_the_kernel_of_a_solution_is_that_of_its_network():
    x = np.random.default_rng(5).normal(size=(3, 4, 2))
    for solution, learn in solutions():
        later = solution.network_at(80)
        weights = (later.input_weights, later.recurrent_weights, later.output_weights)
        wanted = expected_kernel(weights, x, learn)
        np.testing.assert_allclose(
            lc.theory.tangent_kernel(solution, 80, x), wanted, rtol=0, atol=1e-13 * np.abs(wanted).max()
        )


def test_kernels_of_a_two_layer_solution_and_of_its_network_are_equal():
    rng = np.random.default_rng(6)
    start = lc.TwoLayer.balanced(3, 4, 2, scale=0.4, rng=rng)
    x = rng.normal(size=(5, 3))
    solution = lc.forecast(lc.tasks.static(rng.normal(size=(2, 3))), start, learning_rate=1e-3).solution
    np.testing.assert_allclose(
        lc.theory.tangent_kernel(start, 0.0, x), lc.theory.tangent_kernel(solution, 0.0, x), rtol=0, atol=1e-13
    )


def test_arguments_of_tangent_kernel_are_checked():
    x, rnn = np.ones((3, 4, 2)), lc.LinearRNN(*network(2, 3, 1))
    rejected("time", lambda: lc.theory.tangent_kernel(rnn, 5.0, x))
    rejected("inputs", lambda: lc.theory.tangent_kernel(rnn, 0.0, x[0]))
    rejected("learn", lambda: lc.theory.tangent_kernel(rnn, 0.0, x, learn=("inputs",)))
