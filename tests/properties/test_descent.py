"""Properties of descent and the numerical flow on any task, for any sizes, covariances and learning weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import learncast as lc
from learncast.theory import LearningProblem, gradient_flow

run = settings(derandomize=True, deadline=None, max_examples=60 * settings().max_examples // 300)
few = settings(derandomize=True, deadline=None, max_examples=12 * settings().max_examples // 300)

RECURRENT, LAYERS = ("input", "recurrent", "output"), ("first", "second")
# Products of at most six matrices of order 1 in different orders, over a few steps.
ROUNDING = 1e-11


@dataclass(frozen=True)
class Case:
    """A task by a root of its joint second moments, a network and the weights that learn."""

    root: np.ndarray
    sizes: tuple[int, int, int, int]  # inputs, hidden, outputs, steps
    targets: str
    weights: dict[str, np.ndarray]
    learn: tuple[str, ...]
    rng: np.random.Generator

    @property
    def joint(self):
        return self.root @ self.root.T

    @property
    def readouts(self):
        return self.sizes[3] if self.targets == "every_step" else 1

    @property
    def task(self):
        inputs, _, outputs, steps = self.sizes
        n, r = inputs * steps, self.readouts
        joint = self.joint
        xx, xy, yy = joint[:n, :n], joint[:n, n:], joint[n:, n:]
        cross = xy.reshape(steps, inputs, r, outputs)
        if r == 1:  # also for a single step, where the two kinds of targets are one
            return lc.Task(xx.reshape(steps, inputs, steps, inputs), cross[:, :, 0], yy)
        return lc.Task(xx.reshape(steps, inputs, steps, inputs), cross, yy.reshape(r, outputs, r, outputs))

    @property
    def network(self):
        return built(self.weights)

    @property
    def problem(self):
        return LearningProblem.of(self.task, self.network, self.learn)

    def turned(self, inputs=None, hidden=None, outputs=None):
        """Return the problem in other coordinates, and the map of weights into them."""
        sizes = self.sizes
        A, R, B = (
            np.eye(size) if turn is None else turn
            for size, turn in zip(sizes[:3], (inputs, hidden, outputs), strict=True)
        )
        block = np.block(
            [
                [np.kron(np.eye(sizes[3]), A), np.zeros((sizes[3] * sizes[0], self.readouts * sizes[2]))],
                [np.zeros((self.readouts * sizes[2], sizes[3] * sizes[0])), np.kron(np.eye(self.readouts), B)],
            ]
        )
        maps = {
            "input": lambda w: R @ w @ A.T,
            "first": lambda w: R @ w @ A.T,
            "recurrent": lambda w: R @ w @ R.T,
            "output": lambda w: B @ w @ R.T,
            "second": lambda w: B @ w @ R.T,
        }
        moved = {name: maps[name](w) for name, w in self.weights.items()}
        return Case(block @ self.root, sizes, self.targets, moved, self.learn, self.rng), maps


def built(weights):
    return lc.TwoLayer(*weights.values()) if "first" in weights else lc.LinearRNN(*weights.values())


def weights_of(network):
    if isinstance(network, lc.TwoLayer):
        return {"first": network.first, "second": network.second}
    return {name: getattr(network, f"{name}_weights") for name in RECURRENT}


def orthonormal(rng, size):
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


@st.composite
def cases(draw, *, most_steps=5, recurrent=None):
    """Any sizes, any subset of weights, joint covariances of any rank."""
    is_recurrent = draw(st.booleans()) if recurrent is None else recurrent
    inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    hidden = draw(st.integers(1, 4))
    steps = draw(st.integers(1, most_steps)) if is_recurrent else 1
    targets = draw(st.sampled_from(["end", "every_step"]))
    names = RECURRENT if is_recurrent else LAYERS
    learn = tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=1)), key=names.index))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    readouts = steps if targets == "every_step" else 1
    size = steps * inputs + readouts * outputs
    rank = draw(st.integers(1, size))
    root = rng.standard_normal((size, rank)) / np.sqrt(rank)
    first, second = rng.standard_normal((hidden, inputs)) / 2, rng.standard_normal((outputs, hidden)) / 2
    if not is_recurrent:
        weights = {"first": first, "second": second}
    else:
        # a number for the recurrence takes the pooled way, a matrix the other
        one = draw(st.booleans())
        W_h = draw(st.sampled_from([0.0, 0.5, -0.7, 1.1])) * np.eye(hidden)
        if not one:
            W_h = 0.6 * rng.standard_normal((hidden, hidden)) / np.sqrt(hidden)
        weights = {"input": first, "recurrent": W_h, "output": second}
    return Case(root, (inputs, hidden, outputs, steps), targets, weights, learn, rng)


def slope_size(slopes):
    return np.sqrt(sum((s**2).sum() for s in slopes.values()))


@run
@given(cases())
def test_gradient_equals_differences_of_the_loss(case):
    problem = case.problem
    loss, slopes = problem.loss_and_slopes(problem.start)
    assert set(slopes) == set(case.learn)
    way = {name: case.rng.standard_normal(case.weights[name].shape) for name in case.learn}
    size = slope_size(way)
    way = {name: w / size for name, w in way.items()}

    def at(h):
        return problem.loss_and_slopes({**problem.start, **{k: problem.start[k] + h * w for k, w in way.items()}})[0]

    h = 1e-3
    difference = (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h)
    expected = sum((slopes[name] * w).sum() for name, w in way.items())
    # Fourth order: h^4 = 1e-12 times a fifth derivative of a polynomial in weights of order 1; rounding of the loss
    # over h, 1e-12. Measured over thousands: 4e-12.
    scale = abs(loss) + slope_size(slopes) + 1.0
    assert abs(difference - expected) <= 1e-10 * scale


@run
@given(cases())
def test_loss_equals_that_of_trials_with_the_same_moments(case):
    """Trials whose second moments are exactly the joint covariance, run through the network one by one."""
    inputs, _, outputs, steps = case.sizes
    values, vectors = np.linalg.eigh(case.joint)
    rows = len(values)
    trials = np.sqrt(rows) * (vectors * np.sqrt(np.clip(values, 0, None))).T
    x = trials[:, : inputs * steps].reshape(rows, steps, inputs)
    y = trials[:, inputs * steps :].reshape(rows, case.readouts, outputs)
    if "first" in case.weights:
        answers = (x[:, 0] @ case.network.function.T)[:, None]
    else:
        answers = case.network.respond(x, every_step=True)[:, steps - case.readouts :]
    wanted = ((answers - y) ** 2).sum(axis=(1, 2)).mean() / 2
    loss, _ = case.problem.loss_and_slopes(case.problem.start)
    scale = wanted + (y**2).sum(axis=(1, 2)).mean()
    assert abs(loss - wanted) <= ROUNDING * scale
    # and no linear map does better than the least loss
    assert case.problem.least_loss <= wanted + ROUNDING * scale
    assert case.problem.least_loss >= -1e-7 * scale  # of rank-deficient statistics half the digits are left


@run
@given(cases())
def test_gradients_of_some_weights_are_those_of_all(case):
    names = tuple(case.weights)
    whole = LearningProblem.of(case.task, case.network, names)
    loss, slopes = whole.loss_and_slopes(whole.start)
    part_loss, part = case.problem.loss_and_slopes(whole.start)
    # the loss rounds at the size of its terms
    scale = 1.0 + abs(loss) + max(np.abs(s).max() for s in slopes.values())
    assert abs(part_loss - loss) <= ROUNDING * scale
    for name in case.learn:
        np.testing.assert_allclose(part[name], slopes[name], rtol=0, atol=ROUNDING * scale)
    ends = weights_of(lc.descend(case.task, case.network, lc.Training(1e-3, learn=case.learn), steps=3).network_at(3))
    for name in set(names) - set(case.learn):
        np.testing.assert_array_equal(ends[name], case.weights[name])


@run
@given(cases())
def test_a_small_step_lowers_the_loss(case):
    problem = case.problem
    _, slopes = problem.loss_and_slopes(problem.start)
    size = slope_size(slopes)
    assume(size > 1e-3)
    # curvature along the slope, by a difference; then a step that is a tenth of the best and moves no weight by 1e-2
    ahead = {**problem.start, **{k: problem.start[k] + 1e-5 * s / size for k, s in slopes.items()}}
    _, there = problem.loss_and_slopes(ahead)
    curvature = abs(sum(((there[k] - s) * s).sum() for k, s in slopes.items())) / (1e-5 * size)
    rate = min(0.1 / max(curvature, 1e-3), 1e-2 / size)
    found = lc.descend(case.task, case.network, lc.Training(rate, learn=case.learn), steps=1)
    drop = found.loss[0] - found.loss[1]
    # first order rate |g|^2, and less than half of it lost to second order
    assert drop >= 0.5 * rate * size**2 - 1e-13 * (1 + abs(found.loss[0]))


@run
@given(cases(), st.sampled_from(["gd", "momentum"]))
def test_rotating_inputs_outputs_and_hidden_units_rotates_the_solution(case, optimizer):
    turn = {
        name: orthonormal(case.rng, size)
        for name, size in zip(("inputs", "hidden", "outputs"), case.sizes[:3], strict=True)
    }
    other, maps = case.turned(**turn)
    rate = 0.01
    plain, turned = (
        lc.descend(c.task, c.network, lc.Training(rate, learn=c.learn, optimizer=optimizer), steps=20)
        for c in (case, other)
    )
    assume(plain.status is lc.Status.ok and np.abs(plain.loss).max() < 1e3)
    scale = 1.0 + np.abs(plain.loss).max()
    np.testing.assert_allclose(turned.loss, plain.loss, rtol=0, atol=ROUNDING * scale)
    for name, end in weights_of(plain.network_at(20)).items():
        np.testing.assert_allclose(
            weights_of(turned.network_at(20))[name], maps[name](end), rtol=0, atol=ROUNDING * (1 + np.abs(end).max())
        )


@run
@given(cases(), st.sampled_from(["gd", "momentum", "adam", "adamw"]))
def test_permuting_hidden_units_permutes_their_weights(case, optimizer):
    """A permutation commutes with elementwise updates, including Adam."""
    order = case.rng.permutation(case.sizes[1])
    other, maps = case.turned(hidden=np.eye(case.sizes[1])[order])
    training = lc.Training(1e-3, learn=case.learn, optimizer=optimizer)
    plain, turned = (lc.descend(c.task, c.network, training, steps=10) for c in (case, other))
    assume(optimizer in ("gd", "momentum") or well_sloped(plain))
    for name, end in weights_of(plain.network_at(10)).items():
        np.testing.assert_allclose(weights_of(turned.network_at(10))[name], maps[name](end), rtol=0, atol=1e-9)


def well_sloped(run):
    """Whether no gradient is round-off of 0, from which Adam would make a full step."""
    slopes = [run.problem.loss_and_slopes(dict(weights_of(run.network_at(n))))[1] for n in (0, 5)]
    return min(np.abs(s).min() for pair in slopes for s in pair.values()) > 1e-5


@run
@given(cases(recurrent=False))
def test_two_layers_equal_a_recurrent_network_with_one_step(case):
    names = {"first": "input", "second": "output"}
    W_h = case.rng.standard_normal((case.sizes[1],) * 2)  # never used: there is no step before the first
    network = lc.LinearRNN(case.weights["first"], W_h, case.weights["second"])
    learn = tuple(names[name] for name in case.learn)
    one = lc.descend(case.task, case.network, lc.Training(0.01, learn=case.learn), steps=10)
    other = lc.descend(case.task, network, lc.Training(0.01, learn=learn), steps=10)
    np.testing.assert_allclose(other.loss, one.loss, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(other.network_at(10).input_weights, one.network_at(10).first, rtol=0, atol=1e-12)


@few
@given(cases(most_steps=3))
def test_flow_under_rotation_and_change_of_learning_rate(case):
    turn = orthonormal(case.rng, case.sizes[0])
    other, maps = case.turned(inputs=turn, hidden=orthonormal(case.rng, case.sizes[1]))
    options = {"learn": case.learn, "tolerance": 1e-10}
    plain = gradient_flow(case.task, case.network, learning_rate=0.1, **options)
    assume(plain.at([5.0])["status"].values[0] == "ok")
    turned = gradient_flow(other.task, other.network, learning_rate=0.1, **options)
    slower = gradient_flow(case.task, case.network, learning_rate=0.05, **options)
    end = weights_of(plain.network_at(5.0))
    # the integration's 1e-10 per step, spread by half a unit of flow time
    for name, value in end.items():
        np.testing.assert_allclose(weights_of(turned.network_at(5.0))[name], maps[name](value), rtol=0, atol=1e-7)
        np.testing.assert_allclose(weights_of(slower.network_at(10.0))[name], value, rtol=0, atol=1e-12)
    loss = plain.at(np.linspace(0, 5, 20))["loss"].values
    assert np.all(np.diff(loss) <= 1e-9 * (1 + loss[0]))
