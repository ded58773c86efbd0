"""Networks: weights, random and aligned starts, responses, and the alignment of any start with modes."""

import numpy as np
import pytest

import learncast as lc
from learncast import InvalidSpec, LinearRNN, TwoLayer, tasks
from learncast.networks import Alignment
from learncast.tasks import Frame, common_frame
from learncast.theory import modes as modes_of_one

# Weights of order one through a handful of matrix products.
CLOSE = {"rtol": 1e-12, "atol": 1e-13}
#: Round-off of a residual that is zero in exact arithmetic; residuals up to 1e-8 count as exact.
ROUND_OFF = 1e-14


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


def turn(size, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 1), (3, 3), (1, 3)),
        ((3, 1), (3, 3), (3, 1)),
        ((3, 1), (3, 2), (1, 3)),
        ((3, 0), (3, 3), (1, 3)),
        ((0, 1), (0, 0), (1, 0)),
    ],
)
def test_weights_must_have_the_same_hidden_units(shapes):
    assert refused(lambda: LinearRNN(*(np.ones(shape) for shape in shapes))) == "weights"


@pytest.mark.parametrize("layer", range(3))
def test_weights_must_be_finite_matrices(layer):
    name = ("input_weights", "recurrent_weights", "output_weights")[layer]
    weights = [np.ones((2, 1)), np.eye(2), np.ones((1, 2))]
    weights[layer] = np.full(weights[layer].shape, np.nan)
    assert refused(lambda: LinearRNN(*weights)) == name
    weights[layer] = np.ones(2)
    assert refused(lambda: LinearRNN(*weights)) == name


def test_weights_from_torch_and_lists():
    torch = pytest.importorskip("torch")
    network = LinearRNN(torch.ones(2, 1, requires_grad=True), [[0.5, 0], [0, 0.5]], torch.ones(1, 2))
    assert (network.inputs, network.hidden_size, network.outputs) == (1, 2, 1)
    assert network.input_weights.dtype == np.float64
    assert repr(network) == "<LinearRNN: 1 input, 2 hidden, 1 output; spectral radius 0.5>"


def test_changing_the_array_afterwards_does_not_change_the_network():
    weights = np.ones((2, 1))
    network = LinearRNN(weights, np.eye(2), np.ones((1, 2)))
    weights[:] = 7.0
    np.testing.assert_array_equal(network.input_weights, 1.0)


def test_the_hash_follows_the_weights():
    one, same, other = (LinearRNN.aligned(hidden_size=3, initial=value) for value in (0.1, 0.1, 0.2))
    assert one.hash == same.hash != other.hash


@pytest.mark.parametrize("every_step", [False, True])
def test_responses_are_those_of_a_plain_loop(every_step):
    rng = np.random.default_rng(0)
    network = LinearRNN(rng.normal(size=(4, 2)), 0.4 * rng.normal(size=(4, 4)), rng.normal(size=(3, 4)))
    x = rng.normal(size=(5, 6, 2))
    found = network.respond(x, every_step=every_step)
    for trial in range(5):
        hidden, outputs = np.zeros(4), []
        for t in range(6):
            hidden = network.recurrent_weights @ hidden + network.input_weights @ x[trial, t]
            outputs.append(network.output_weights @ hidden)
        np.testing.assert_allclose(found[trial], outputs if every_step else outputs[-1], **CLOSE)


def test_a_two_layer_network_responds_with_its_function():
    network, x = TwoLayer.random(3, 4, 2, scale=0.5, rng=1), np.random.default_rng(0).normal(size=(6, 3))
    np.testing.assert_allclose(network.respond(x), x @ network.function.T, **CLOSE)
    np.testing.assert_allclose(network.respond(x[:, None], every_step=True), (x @ network.function.T)[:, None], **CLOSE)


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (LinearRNN.aligned(inputs=2, outputs=2, hidden_size=3), (5, 2)),
        (LinearRNN.aligned(inputs=2, outputs=2, hidden_size=3), (5, 4, 3)),
        (LinearRNN.aligned(inputs=2, outputs=2, hidden_size=3), (5, 0, 2)),
        (TwoLayer([[1.0, 0.0]], [[1.0]]), (5, 3)),
        (TwoLayer([[1.0, 0.0]], [[1.0]]), (5, 4, 2)),
        (lc.Activated(LinearRNN.aligned(hidden_size=2), "relu"), (3, 2)),
        (lc.Activated(LinearRNN.aligned(hidden_size=2), "relu"), (3, 2, 4)),
    ],
)
def test_inputs_of_other_shapes_are_refused(network, shape):
    assert refused(lambda: network.respond(np.ones(shape))) == "inputs"


# --- random starts ----------------------------------------------------------------------------------------------------


def test_every_constructor_takes_inputs_hidden_size_outputs_and_a_generator_or_seed():
    for make, options in (
        (LinearRNN.random, {}),
        (TwoLayer.random, {"scale": 0.1}),
        (TwoLayer.balanced, {"scale": 0.1}),
    ):
        by_name = make(inputs=3, hidden_size=5, outputs=2, rng=7, **options)
        assert (by_name.inputs, by_name.hidden_size, by_name.outputs) == (3, 5, 2)
        assert by_name.hash == make(3, 5, 2, rng=np.random.default_rng(7), **options).hash
        assert make(3, 5, 2, **options).hash == make(3, 5, 2, rng=0, **options).hash != by_name.hash


def test_random_weights_are_those_of_a_numpy_generator():
    rng = np.random.default_rng(5)
    network = LinearRNN.random(3, 4, 2, scale=0.1, recurrence="random", rng=5)
    np.testing.assert_array_equal(network.input_weights, 0.1 * rng.standard_normal((4, 3)))
    np.testing.assert_array_equal(network.output_weights, 0.1 * rng.standard_normal((2, 4)))
    np.testing.assert_array_equal(network.recurrent_weights, rng.uniform(-0.5, 0.5, (4, 4)))


def test_random_weights_have_the_scale_asked_for():
    network = LinearRNN.random(30, 200, 20, scale=0.1)
    np.testing.assert_array_equal(network.recurrent_weights, 0.96 * np.eye(200))
    # 6,000 Gaussian weights: the error of their standard deviation is 0.1 / sqrt(12,000); 6 of these fail by chance
    # less than once in 10^8 runs (and the seed is fixed)
    assert abs(network.input_weights.std() - 0.1) < 6 * 0.1 / np.sqrt(12_000)


def test_the_torch_start_has_the_distribution_of_torch():
    torch = pytest.importorskip("torch")
    ours = LinearRNN.random(40, 50, 30, scale="torch", recurrence="random", rng=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torch.nn.RNN(40, 50), torch.nn.Linear(50, 30)
    pairs = (
        (ours.input_weights, theirs[0].weight_ih_l0),
        (ours.recurrent_weights, theirs[0].weight_hh_l0),
        (ours.output_weights, theirs[1].weight),
    )
    for mine, tensor in pairs:
        other = tensor.detach().numpy()
        assert mine.shape == other.shape
        for weights in (mine, other):
            # uniform within 1 / sqrt(50): 1,500 draws or more reach 1% of the bound but once in 10^6 times
            assert 0.99 < np.abs(weights).max() * np.sqrt(50) <= 1 + 1e-6
            # their mean square is 1 / 150, known to sqrt(0.8 / 1,500) = 2.3% of itself; 6 of that
            assert abs((weights**2).mean() * 150 - 1) < 6 * np.sqrt(0.8 / weights.size)


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"scale": 0}, "scale"),
        ({"scale": "pytorch"}, "scale"),
        ({"recurrence": "dense"}, "recurrence"),
        ({"recurrence": [0.1, 0.2]}, "recurrence"),
        ({"rng": -1}, "rng"),
        ({"hidden_size": 0}, "hidden_size"),
    ],
)
def test_invalid_random_starts_are_refused_by_name(keywords, field):
    assert refused(lambda: LinearRNN.random(**{"inputs": 3, "hidden_size": 4, "outputs": 2, **keywords})) == field


# --- aligned starts --------------------------------------------------------------------------------------------------


def test_the_default_start_is_one_mode_of_the_paper():
    network = LinearRNN.aligned()
    assert (network.inputs, network.hidden_size, network.outputs) == (1, 128, 1)
    np.testing.assert_array_equal(network.recurrent_weights, 0.96 * np.eye(128))
    np.testing.assert_array_equal(network.input_weights[:, 0], [0.01] + [0.0] * 127)
    np.testing.assert_array_equal(network.output_weights[0], [0.01] + [0.0] * 127)


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 2), (2, 3), (2, 2)])
def test_without_a_task_channels_are_modes(inputs, outputs):
    network = LinearRNN.aligned(
        inputs=inputs, outputs=outputs, hidden_size=5, initial=[0.1, 0.2], output_initial=[-0.3, 0.4]
    )
    expected = np.zeros((outputs, inputs))
    expected[0, 0], expected[1, 1] = 0.1 * -0.3, 0.2 * 0.4
    np.testing.assert_allclose(network.output_weights @ network.input_weights, expected, **CLOSE)


@pytest.mark.parametrize(
    ("recurrence", "diagonal"),
    [
        (0.5, [0.5] * 4),
        ([0.9, 0.8], [0.9, 0.8, 0.0, 0.0]),
        ([0.9, 0.8, 0.7, 0.6], [0.9, 0.8, 0.7, 0.6]),
        (-1.0, [-1.0] * 4),
    ],
)
def test_recurrence_is_a_number_or_one_per_mode_or_unit(recurrence, diagonal):
    network = LinearRNN.aligned(recurrence=recurrence, inputs=2, outputs=2, hidden_size=4)
    np.testing.assert_array_equal(network.recurrent_weights, np.diag(diagonal))


@pytest.mark.parametrize("mixing", [turn(3, 0) @ np.diag([3.0, 2.0, 1.0]), turn(3, 1)[:2], turn(3, 2)[:, :2]])
def test_a_start_on_a_task_meets_every_condition(mixing):
    task = tasks.leaky_integration(5, 3.0, mixing=mixing)
    count = min(mixing.shape)
    network = LinearRNN.aligned(
        task=task, hidden_size=6, initial=np.linspace(0.1, 0.3, count), output_initial=0.2, recurrence=[0.9] * count
    )
    modes = modes_of_one(task, network)
    assert all(a.holds for a in modes.assumptions)
    np.testing.assert_allclose(np.sort(modes.start), np.linspace(0.02, 0.06, count), rtol=1e-9)


def test_modes_a_task_does_not_have_start_at_zero():
    network = LinearRNN.aligned(task=tasks.integration(5, target_strength=[1.0, 0.0]), hidden_size=3, initial=0.1)
    np.testing.assert_allclose(network.output_weights @ network.input_weights, [[0.01, 0.0], [0.0, 0.0]], **CLOSE)
    nothing = LinearRNN.aligned(task=tasks.integration(5, target_strength=0.0), hidden_size=3)
    assert not nothing.input_weights.any()


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"inputs": 0}, "inputs"),
        ({"outputs": 1.5}, "outputs"),
        ({"inputs": 3, "outputs": 3, "hidden_size": 2}, "hidden_size"),
        ({"initial": [0.1, 0.2]}, "initial"),
        ({"output_initial": [0.1, 0.2]}, "output_initial"),
        ({"initial": np.nan}, "initial"),
        ({"initial": [[0.1]]}, "initial"),
        ({"recurrence": [0.1, 0.2]}, "recurrence"),
        ({"recurrence": "fast"}, "recurrence"),
    ],
    ids=str,
)
def test_invalid_aligned_starts_are_refused_by_name(keywords, field):
    assert refused(lambda: LinearRNN.aligned(**keywords)) == field


# --- how far a start is from aligned ---------------------------------------------------------------------------------


@pytest.fixture
def frame():
    return Frame(turn(3, 5), turn(3, 6))


def network_on(frame, a, c, recurrent, directions):
    """W_x = R diag(a) V^T, W_y = U diag(c) R^T."""
    return LinearRNN((directions * a) @ frame.mode_inputs.T, recurrent, (frame.mode_outputs * c) @ directions.T)


def test_an_aligned_start_is_read_exactly(frame):
    a, c, b = np.array([0.1, 0.2, 0.3]), np.array([0.4, -0.2, 0.1]), np.array([0.9, 0.5, -0.3])
    directions = turn(6, 7)[:, :3]
    network = network_on(frame, a, c, (directions * b) @ directions.T, directions)
    found = Alignment.of(network, frame)
    np.testing.assert_allclose(found.input_weight * found.output_weight, a * c, **CLOSE)
    np.testing.assert_allclose(found.input_weight**2 - found.output_weight**2, a**2 - c**2, **CLOSE)
    np.testing.assert_allclose(found.recurrence, b, **CLOSE)
    assert found.start_residual < ROUND_OFF
    assert found.recurrence_residual < ROUND_OFF


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_start_with_one_side_at_zero_still_has_directions(frame, side):
    directions = turn(6, 7)[:, :3]
    a, c = (np.zeros(3), np.full(3, 0.2)) if side == "input" else (np.full(3, 0.2), np.zeros(3))
    found = Alignment.of(network_on(frame, a, c, 0.5 * np.eye(6), directions), frame)
    np.testing.assert_allclose(np.abs(directions.T @ found.directions), np.eye(3), atol=1e-13)
    np.testing.assert_allclose(np.abs(found.input_weight), a, **CLOSE)
    np.testing.assert_allclose(np.abs(found.output_weight), c, **CLOSE)
    assert found.start_residual < ROUND_OFF


def test_idle_modes_get_directions_of_their_own(frame):
    directions = turn(6, 7)[:, :3]
    weights = np.array([0.2, 0.0, 0.0])
    found = Alignment.of(network_on(frame, weights, weights, 0.5 * np.eye(6), directions), frame)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.eye(3), atol=1e-13)
    assert found.start_residual < ROUND_OFF
    assert found.recurrence_residual < ROUND_OFF


@pytest.mark.parametrize("seed", range(3))
def test_a_mode_without_weights_does_not_make_an_aligned_network_misaligned(seed):
    # One of two modes has no strength and so no weights, up to round-off of the turned geometry.
    task = tasks.integration(5, mixing=turn(2, 1) @ np.diag([1.0, 0.0]) @ turn(2, 2).T)
    start = LinearRNN.aligned(task=task, hidden_size=4, recurrence=[0.9, 0.5, 0.3, 0.2])
    hidden = turn(4, seed)  # which units carry what must not matter either
    network = LinearRNN(
        hidden @ start.input_weights, hidden @ start.recurrent_weights @ hidden.T, start.output_weights @ hidden.T
    )
    measured = {a.name: a.measured for a in modes_of_one(task, network).assumptions}
    assert measured["normal_recurrence"] < 1e-12
    assert measured["aligned_start"] < 1e-12


def test_the_start_residual_is_the_share_of_the_gram_matrix_that_is_off():
    # Two modes along the axes; only the angle between the input vectors is wrong.
    frame, angle = Frame(np.eye(2), np.eye(2)), 0.1
    reaching = np.array([[1.0, np.sin(angle)], [0.0, np.cos(angle)]])
    found = Alignment.of(LinearRNN(reaching, 0.5 * np.eye(2), np.zeros((2, 2))), frame)
    gram = reaching.T @ reaching
    assert found.start_residual == pytest.approx(np.sqrt(2) * np.sin(angle) / np.linalg.norm(gram), rel=1e-12)


def test_a_start_residual_measures_vectors_of_a_mode_that_are_not_parallel():
    frame, angle = Frame(np.eye(1), np.eye(1)), 0.2
    network = LinearRNN([[2.0], [0.0]], 0.5 * np.eye(2), [[np.cos(angle), np.sin(angle)]])
    found = Alignment.of(network, frame)
    assert found.input_weight == pytest.approx([2.0])
    assert found.output_weight == pytest.approx([np.cos(angle)])  # its part along the longer side
    # Gram matrix [[4, 2 cos], [2 cos, 1]] against [[4, 2 cos], [2 cos, cos^2]]
    whole = np.linalg.norm([[4.0, 2 * np.cos(angle)], [2 * np.cos(angle), 1.0]])
    assert found.start_residual == pytest.approx(np.sin(angle) ** 2 / whole, rel=1e-12)


def test_a_start_residual_measures_weights_beyond_the_modes():
    # Two inputs, one output: the second input direction has no mode, so any weight on it counts.
    found = Alignment.of(LinearRNN([[1.0, 0.0], [0.0, 0.5]], np.eye(2), [[1.0, 0.0]]), Frame(np.eye(2), np.eye(1)))
    assert found.start_residual == pytest.approx(0.25 / np.linalg.norm([[1, 0, 1], [0, 0.25, 0], [1, 0, 1]]), rel=1e-12)


def test_a_recurrence_that_is_not_normal_leaks():
    # Mode 0 in unit 0; the recurrence carries a share of it to unit 1, where no mode lives.
    network = LinearRNN([[1.0], [0.0]], [[0.8, 0.0], [0.3, 0.5]], [[1.0, 0.0]])
    found = Alignment.of(network, Frame(np.eye(1), np.eye(1)))
    assert found.recurrence == pytest.approx([0.8])
    # forward (0.8, 0.3) misses 0.3, backward (0.8, 0) misses nothing; the whole could act on either with its full size
    whole = np.sqrt(2) * np.linalg.norm(network.recurrent_weights, 2)
    assert found.recurrence_residual == pytest.approx(0.3 / whole, rel=1e-12)
    assert found.start_residual < ROUND_OFF


def test_a_recurrence_that_only_reads_from_idle_units_leaks_backwards():
    network = LinearRNN([[1.0], [0.0]], [[0.8, 0.3], [0.0, 0.5]], [[1.0, 0.0]])
    found = Alignment.of(network, Frame(np.eye(1), np.eye(1)))
    whole = np.sqrt(2) * np.linalg.norm(network.recurrent_weights, 2)
    assert found.recurrence_residual == pytest.approx(0.3 / whole, rel=1e-12)


def test_units_without_weights_do_not_matter():
    recurrent = np.diag([0.8, 0.0, 0.0])
    recurrent[1:, 1:] = [[0.3, 5.0], [-2.0, 0.1]]
    found = Alignment.of(LinearRNN([[1.0], [0.0], [0.0]], recurrent, [[1.0, 0.0, 0.0]]), Frame(np.eye(1), np.eye(1)))
    assert found.recurrence_residual == 0.0


def test_a_misaligned_start_is_refused_with_its_residual():
    task = tasks.integration(5, target_strength=[2.0, 1.0])
    network = LinearRNN(0.1 * turn(4, 3)[:, :2], 0.5 * np.eye(4), 0.1 * turn(4, 4)[:2])
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast(task, network, learning_rate=1e-3, method="modes")
    assert caught.value.assumption == "aligned_start"
    measured = Alignment.of(network, common_frame([task], maps=[network.output_weights @ network.input_weights]))
    assert caught.value.measured == pytest.approx(measured.start_residual, rel=1e-6)
    assert caught.value.measured > 0.1


def test_an_activated_network_responds_as_a_torch_loop():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape) for shape in ((5, 3), (5, 5), (2, 5))]
    x = rng.standard_normal((7, 4, 3))
    for name in ("relu", "tanh"):
        network, f = lc.Activated(lc.LinearRNN(*weights), name), getattr(torch, name)
        W_x, W_h, W_y = map(torch.tensor, weights)
        h, answers = torch.zeros(7, 5, dtype=torch.float64), []
        for t in range(4):
            h = f(h @ W_h.T + torch.tensor(x[:, t]) @ W_x.T)
            answers.append((h @ W_y.T).numpy())
        np.testing.assert_allclose(network.respond(x), answers[-1], atol=1e-13)
        np.testing.assert_allclose(network.respond(x, every_step=True), np.stack(answers, axis=1), atol=1e-13)
        flat = lc.Activated(lc.TwoLayer(weights[0], weights[2]), name)
        expected = (f(torch.tensor(x[:, 0]) @ W_x.T) @ W_y.T).numpy()
        np.testing.assert_allclose(flat.respond(x[:, 0]), expected, atol=1e-13)
        np.testing.assert_allclose(flat.respond(x[:, :1]), expected, atol=1e-13)


def test_activated_networks_refuse_other_activations_and_models():
    assert refused(lambda: lc.Activated(LinearRNN.aligned(hidden_size=2), "gelu")) == "activation"
    with pytest.raises(lc.UnsupportedModel) as caught:
        lc.Activated(object(), "relu")
    assert caught.value.field == "network"


@pytest.mark.parametrize("recurrent", [np.diag([0.2, -0.9, 0.0]), 0.5 * np.eye(3), np.zeros((3, 3)), np.tri(3)])
def test_the_recurrence_residual_is_relative_to_the_spectral_norm(recurrent):
    network = LinearRNN(np.eye(3)[:, :1], recurrent, np.eye(3)[:1])
    residual = Alignment.of(network, Frame(np.eye(1), np.eye(1))).recurrence_residual
    leak = np.concatenate([recurrent[1:, 0], recurrent[0, 1:]])
    expected = np.linalg.norm(leak) / (np.sqrt(2) * (np.linalg.norm(recurrent, 2) or 1.0))
    assert residual == pytest.approx(expected, abs=1e-15)


def test_a_diagonal_recurrence_is_not_factored(monkeypatch):
    plain = np.linalg.norm

    def norm(array, order=None, **given):
        assert order != 2, "factoring thousands of units takes minutes"
        return plain(array, order, **given)

    monkeypatch.setattr(np.linalg, "norm", norm)
    network = LinearRNN.random(1, 50, 1, recurrence=0.9, scale=0.1, rng=0)
    assert Alignment.of(network, Frame(np.eye(1), np.eye(1))).recurrence_residual < 1e-15
