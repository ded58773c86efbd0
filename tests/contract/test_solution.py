"""Contract of every Solution. To test a new kind of solution, add makers and a `Kind`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import learncast as lc
from learncast.theory import Solution, gradient_flow, modes, response, solve_response

# --- makers: a task, a network and a learning rate ------------------------------------------------------------------


def one_mode():
    return lc.tasks.integration(steps=50), lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=10), 1e-3


def from_above():
    task = lc.tasks.leaky_integration(steps=20, timescale=10.0, correlation=0.5)
    return task, lc.LinearRNN.aligned(recurrence=0.9, initial=1.3, hidden_size=5), 1e-3


def unbalanced_modes():
    task = lc.tasks.leaky_integration(
        steps=8,
        timescale=[3.0, 6.0, 12.0],
        correlation=[0.0, 0.3, 0.6],
        mixing=np.diag([1.4, 1.0, 0.6]),
    )
    network = lc.LinearRNN.aligned(
        recurrence=[0.9, 0.8, 0.7], initial=[0.2, 0.1, 0.5], output_initial=[0.1, 0.3, 0.5], hidden_size=6, task=task
    )
    return task, network, 5e-3


def through_zero():
    task = lc.tasks.integration(steps=5, input_strength=1.5)
    # a c = -.08 must pass zero to reach the positive optimum, which the imbalance lets it do
    return task, lc.LinearRNN([[0.4], [0.0]], np.diag([0.8, 0.8]), [[-0.2, 0.0]]), 1e-2


def every_step_rotated():
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (3, 2))
    task = lc.tasks.leaky_integration(
        steps=6, timescale=4.0, mixing=left[:, :2] @ np.diag([1.3, 0.7]) @ right.T, targets="every_step"
    )
    network = lc.LinearRNN.aligned(
        recurrence=[0.85, 0.6], initial=[0.2, 0.3], output_initial=[0.3, 0.1], hidden_size=7, task=task
    )
    return task, network, 5e-3


def empirical():
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(200, 4, 1)).cumsum(axis=1)
    targets = inputs[:, :, 0] @ [0.1, 0.2, 0.3, 0.4] + 0.1 * rng.normal(size=200)
    task = lc.Task.from_samples(inputs, targets[:, None])
    return task, lc.LinearRNN.aligned(recurrence=0.7, initial=0.1, hidden_size=3), 2e-3


def static_task(seed, outputs, inputs, strengths, *, power=1.0, noise=0.0):
    """A task with given singular values, white inputs of variance `power` and noisy targets."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0][:, : len(strengths)] for n in (outputs, inputs))
    cross = left @ np.diag(strengths) @ right.T
    target = cross @ cross.T / power + noise * np.eye(outputs)
    return lc.tasks.static(cross, power * np.eye(inputs), target_correlation=target)


def zero_balanced():
    # more hidden units than modes, and target noise that leaves a least loss above 0
    task = static_task(1, 4, 3, [1.6, 1.0, 0.5], noise=0.3)
    return task, lc.TwoLayer.balanced(3, 6, 4, scale=0.2, rng=np.random.default_rng(2)), 0.02


def white_with_another_variance():
    # E[x x'] = 2.5 times the identity
    task = static_task(3, 2, 3, [2.0, 1.2], power=2.5)
    return task, lc.TwoLayer.balanced(3, 2, 2, scale=0.4, rng=np.random.default_rng(5)), 0.01


def lambda_balanced_outputs():
    task = static_task(4, 4, 3, [1.4, 0.9, 0.6])
    return task, lc.TwoLayer.balanced(3, 3, 4, scale=0.3, imbalance=0.8, rng=np.random.default_rng(6)), 0.02


def lambda_balanced_inputs():
    task = static_task(5, 2, 4, [1.5, 0.7])
    return task, lc.TwoLayer.balanced(4, 3, 2, scale=0.5, imbalance=-1.1, rng=np.random.default_rng(7)), 0.02


def bottleneck():
    task = static_task(6, 5, 4, [1.8, 1.2, 0.8, 0.4])
    return task, lc.TwoLayer.balanced(4, 2, 5, scale=0.3, rng=np.random.default_rng(8)), 0.02


def rank_deficient():
    task = static_task(7, 4, 5, [1.3, 0.6])
    return task, lc.TwoLayer.balanced(5, 4, 4, scale=0.5, rng=np.random.default_rng(9)), 0.02


def deep_bottleneck():
    task = static_task(8, 3, 4, [1.5, 1.0, 0.6], noise=0.2)
    return task, lc.Deep.random(4, (5, 2, 4), 3, scale=0.5, rng=3), 0.02


def hierarchical():
    return lc.tasks.hierarchy(2), lc.TwoLayer.balanced(4, 6, 4, scale=0.1, rng=np.random.default_rng(2)), 0.05


def prior_knowledge():
    """A tree, revised after it was learned: a colour hierarchy over the same items."""
    tree, start = lc.tasks.hierarchy(3), lc.TwoLayer.balanced(8, 8, 8, scale=0.2, rng=np.random.default_rng(1))
    learned = lc.forecast(tree, start, learning_rate=0.05).solution.network_at(np.inf)
    return tree.shuffled([0, 2, 4, 6, 1, 3, 5, 7]), learned, 0.05


def reversed_leaves():
    """Two leaves exchanged after learning: the flow ends on a saddle."""
    tree, start = lc.tasks.hierarchy(2), lc.TwoLayer.balanced(4, 5, 4, scale=0.2, rng=np.random.default_rng(0))
    return tree.swapped(0, 1), lc.forecast(tree, start, learning_rate=0.05).solution.network_at(np.inf), 0.05


def pooled(targets):
    """A rotated recurrent task from balanced weights that lie across its modes."""
    rng = np.random.default_rng(10)
    mixing = (
        np.linalg.qr(rng.normal(size=(3, 3)))[0] @ np.diag([1.2, 0.8, 0.5]) @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    )
    task = lc.tasks.leaky_integration(steps=6, timescale=5.0, correlation=0.4, gain=0.3, mixing=mixing, targets=targets)
    start = lc.TwoLayer.balanced(3, 5, 3, scale=0.25, rng=rng)
    # on the side of the saddle from which every mode is learned
    side = np.sign(np.linalg.det(start.function) * np.linalg.det(mixing))
    first = start.first @ np.diag([1.0, 1.0, side])
    return task, lc.LinearRNN(first, 0.8 * np.eye(5), start.second), 2e-3


def bridge_end():
    return pooled("end")


def bridge_every_step():
    return pooled("every_step")


def random_network(seed, inputs, hidden, outputs, *, gain=0.4, recurrent=0.4):
    rng = np.random.default_rng(seed)
    return lc.LinearRNN(
        gain * rng.normal(size=(hidden, inputs)),
        recurrent * rng.normal(size=(hidden, hidden)) / np.sqrt(hidden),
        gain * rng.normal(size=(outputs, hidden)),
    )


MIXING = [[0.9, 0.3], [-0.2, 0.7]]


def leaky_pair(targets="end"):
    return lc.tasks.leaky_integration(steps=5, timescale=3.0, correlation=0.3, mixing=MIXING, targets=targets)


def flow_of_all_weights():
    return leaky_pair(), random_network(3, 2, 3, 2), 5e-3


def flow_at_every_step():
    return leaky_pair("every_step"), random_network(2, 2, 2, 2), 2e-3


def flow_of_input_and_output():
    return leaky_pair(), random_network(1, 2, 2, 2), 5e-3


def flow_of_recurrence_only():
    # input and output weights fit the newest input; the older ones need the recurrence
    turn = np.linalg.qr(np.random.default_rng(4).normal(size=(2, 2)))[0]
    network = lc.LinearRNN(0.9 * turn, [[0.1, 0.2], [-0.3, 0.2]], 1.1 * np.array(MIXING) @ turn.T)
    return leaky_pair("every_step"), network, 2e-3


def flow_of_scalar_recurrence():
    # fixed scalar recurrence with inputs of unequal variance: pooled, but without a closed form
    task = lc.tasks.integration(steps=4, input_strength=[1.0, 2.0], target_strength=[0.7, 0.9])
    network = random_network(5, 2, 3, 2)
    return task, lc.LinearRNN(network.input_weights, 0.7 * np.eye(3), network.output_weights), 5e-3


def flow_of_two_unbalanced_layers():
    rng = np.random.default_rng(11)
    inputs = rng.normal(size=(60, 3)) @ np.diag([1.0, 1.5, 0.6])
    targets = inputs @ rng.normal(size=(3, 2)) + 0.2 * rng.normal(size=(60, 2))
    return lc.tasks.from_pairs(inputs, targets), lc.TwoLayer.random(3, 3, 2, scale=0.4, rng=rng), 1e-2


def flow_of_second_layer():
    task, network, rate = flow_of_two_unbalanced_layers()
    # an orthogonal first layer: otherwise the slowest input would be learned ten thousand times later
    first = 0.8 * np.linalg.qr(np.random.default_rng(14).normal(size=(3, 3)))[0]
    return task, lc.TwoLayer(first, network.second), rate


def flow_of_many_weights():
    # 420 weights: too many for the stiff solver
    task = static_task(8, 10, 10, [1.5, 1.2, 0.9])
    return task, lc.TwoLayer.random(10, 21, 10, scale=0.2, rng=np.random.default_rng(13)), 2e-2


def descent_of_all_weights():
    return leaky_pair(), random_network(3, 2, 3, 2), 1e-2


def descent_of_recurrence():
    task, network, rate = flow_of_recurrence_only()
    return task, network, 2 * rate


def descent_of_two_layers():
    task, network, rate = flow_of_two_unbalanced_layers()
    return task, network, 2 * rate


#: Trials of tasks that nonlinear networks learn, on which their responses are measured.
RECORDED: dict[lc.Task, tuple[np.ndarray, np.ndarray]] = {}


def recorded(seed, steps, outputs, every_step=False):
    """Skewed inputs with lagging, noisy targets."""
    rng = np.random.default_rng(seed)
    inputs = 0.7 * rng.normal(size=(120, steps, 1)) + 0.3 * (rng.exponential(size=(120, steps, 1)) - 1)
    mixing = rng.normal(size=(steps, outputs)) / 2 + 0.8
    lagged = inputs[:, :, :1] * mixing
    targets = lagged.cumsum(axis=1) + 0.1 * rng.normal(size=lagged.shape)
    trials = inputs, targets if every_step else targets[:, -1]
    task = lc.Task.from_samples(*trials, name="recorded trials")
    RECORDED[task] = trials
    return task


def activated(activation, a, b, c):
    weights = np.asarray(a, dtype=float)[:, None], np.diag(np.asarray(b, dtype=float)), np.atleast_2d(c)
    return lc.Activated(lc.LinearRNN(*weights), activation)


def relu_unit():
    return recorded(1, 6, 1), activated("relu", [-0.3, 0.0], [0.8, 0.8], [-0.2, 0.4]), 2e-3


def relu_units_of_one_response():
    return recorded(2, 5, 1), activated("relu", [0.2, 0.4, 0.1], [0.7] * 3, [0.3, -0.1, 0.2]), 2e-3


def relu_units_of_both_signs():
    rng = np.random.default_rng(3)
    return recorded(3, 5, 1), activated("relu", 0.3 * rng.normal(size=6), [0.8] * 6, 0.3 * rng.normal(size=6)), 2e-3


def relu_two_outputs_at_every_step():
    output = 0.3 * np.random.default_rng(5).normal(size=(2, 4))
    return (
        recorded(4, 4, 2, every_step=True),
        activated("relu", [0.3, -0.4, 0.2, -0.3], [0.8, 0.8, 0.3, 0.3], output),
        1e-3,
    )


def tanh_unit():
    # the outputs of another tanh unit, so that the optimal input weight is finite
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(120, 5, 1))
    trials = inputs, activated("tanh", [0.8], [0.9], [1.3]).respond(inputs) + 0.1 * rng.normal(size=(120, 1))
    task = lc.Task.from_samples(*trials, name="recorded trials")
    RECORDED[task] = trials
    return task, activated("tanh", [0.4], [0.9], [0.5]), 5e-3


# --- kinds of solution ----------------------------------------------------------------------------------------------


def layered(task, network, rate):
    return lc.forecast(task, network, learning_rate=rate).solution


def solved(task, network, rate):
    return lc.forecast(task, network, learning_rate=rate).solution


def flow(*learn):
    return lambda task, network, rate: gradient_flow(task, network, learning_rate=rate, learn=learn or None)


def responding(task, network, rate):
    return solve_response(response(task, network), learning_rate=rate)


def descent(*learn):
    return lambda task, network, rate: lc.descend(
        task, network, lc.Training(rate, learn=learn or None), steps=DESCENT_STEPS
    )


#: Steps of a descent, of 0.1 ms each.
DESCENT_STEPS = 1000


@dataclass(frozen=True)
class Kind:
    """Tolerances of a kind of solution, with their reasons."""

    #: allowed difference of numbers of order 1 that are computed in two ways
    rounding: float
    #: weights are known up to a rotation of the hidden space: rotation invariants are compared
    rotated: bool = False
    #: defined at whole steps only
    stepped: bool = False
    #: gradient left at infinity, relative to the largest before
    left: float = 1e-11
    #: allowed difference of the loss from the oracle's, relative to the loss at the start
    loss: float = 1e-12
    #: uses measured statistics
    measured: bool = False


#: Closed forms: products with orthogonal matrices and a Cholesky factor, some hundred roundings.
EXACT = Kind(1e-11)
RICCATI = Kind(1e-11, rotated=True)
#: 1e-11 per step of the integration, over some hundred steps and spread by the flow; at rest by a slope of 1e-9.
INTEGRATED = Kind(3e-9, left=1e-8)
#: No limit: a descent ends after its steps.
STEPPED = Kind(1e-12, stepped=True, left=np.inf)

#: A closed form, or an integration, on statistics that are means over the very trials of the oracle.
RESPONSE = Kind(1e-11, measured=True)
INTEGRATED_RESPONSE = Kind(3e-9, left=1e-8, measured=True)
#: A table interpolated to 1e-8, integrated to 1e-9 per step.
TABULATED = Kind(1e-6, left=1e-6, loss=1e-8, measured=True)

MODES = {m.__name__: m for m in (one_mode, from_above, unbalanced_modes, through_zero, every_step_rotated, empirical)}
CASES: dict[str, tuple[Callable, Callable, Kind, tuple[str, ...]]] = {
    **{name: (maker, solved, EXACT, ("input", "output")) for name, maker in MODES.items()},
    **{
        maker.__name__: (maker, solved, RICCATI, ("first", "second"))
        for maker in (
            zero_balanced,
            white_with_another_variance,
            lambda_balanced_outputs,
            lambda_balanced_inputs,
            bottleneck,
            rank_deficient,
            hierarchical,
            prior_knowledge,
            reversed_leaves,
        )
    },
    **{maker.__name__: (maker, solved, RICCATI, ("input", "output")) for maker in (bridge_end, bridge_every_step)},
    **{
        maker.__name__: (maker, flow(*learn), INTEGRATED, learn)
        for maker, learn in (
            (flow_of_all_weights, ("input", "recurrent", "output")),
            (flow_at_every_step, ("input", "recurrent", "output")),
            (flow_of_input_and_output, ("input", "output")),
            (flow_of_recurrence_only, ("recurrent",)),
            (flow_of_scalar_recurrence, ("input", "output")),
            (flow_of_two_unbalanced_layers, ("first", "second")),
            (flow_of_second_layer, ("second",)),
            (flow_of_many_weights, ("first", "second")),
        )
    },
    "deep_bottleneck": (deep_bottleneck, layered, INTEGRATED, ("layer1", "layer2", "layer3", "layer4")),
    **{
        maker.__name__: (maker, descent(*learn), STEPPED, learn)
        for maker, learn in (
            (descent_of_all_weights, ("input", "recurrent", "output")),
            (descent_of_recurrence, ("recurrent",)),
            (descent_of_two_layers, ("first", "second")),
        )
    },
    **{
        maker.__name__: (maker, responding, kind, ("input", "output"))
        for maker, kind in (
            (relu_unit, RESPONSE),
            (relu_units_of_one_response, RESPONSE),
            (relu_units_of_both_signs, INTEGRATED_RESPONSE),
            (relu_two_outputs_at_every_step, INTEGRATED_RESPONSE),
            (tanh_unit, TABULATED),
        )
    },
}
#: Flows that do not reach the best linear map: too few hidden units, or a saddle.
NEVER_LEARNED = {"reversed_leaves"}
FLOWS = [name for name, case in CASES.items() if not case[2].stepped]


@dataclass(frozen=True)
class Made:
    name: str
    task: lc.Task
    network: Any
    rate: float
    solution: Solution
    solve: Callable
    kind: Kind
    learn: tuple[str, ...]
    cache: dict = field(default_factory=dict)

    @property
    def times(self):
        """Steps from 0 to well after the loss has covered 99% of its change."""
        if "times" not in self.cache:
            shares = np.array([0.0, 0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 3.0])
            steps = (DESCENT_STEPS / 3 if self.kind.stepped else settling(self.solution)) * shares
            self.cache["times"] = np.round(steps) if self.kind.stepped else steps
        return self.cache["times"]


@functools.cache
def case(name):
    maker, solve, kind, learn = CASES[name]
    task, network, rate = maker()
    return Made(name, task, network, rate, solve(task, network, rate), solve, kind, learn)


def settling(solution):
    """Steps until the loss has covered 99% of its change, on a grid of twelve points per decade."""
    ask = np.append(np.geomspace(1e-1, 1e6, 85), np.inf)
    loss, start = np.asarray(solution.at(ask)["loss"]), float(solution.at(0.0)["loss"][0])
    assert start > loss[-1]
    return float(ask[np.argmax(loss <= loss[-1] + 0.01 * (start - loss[-1]))])


@pytest.fixture(params=CASES)
def made(request):
    return case(request.param)


@pytest.fixture(params=FLOWS)
def flowing(request):
    return case(request.param)


@pytest.fixture(params=[name for name, case in CASES.items() if case[2].rotated])
def rotated(request):
    return case(request.param)


@pytest.fixture(params=[name for name, case in CASES.items() if case[2].stepped])
def stepped(request):
    return case(request.param)


@pytest.fixture(params=MODES)
def by_modes(request):
    return case(request.param)


# --- oracle: loss and gradient, written out --------------------------------------------------------------------------


def weights(network):
    """Weights by the names `learn` uses."""
    if isinstance(network, lc.Activated):
        return weights(network.network)
    if isinstance(network, lc.Deep):
        return {f"layer{k}": w for k, w in enumerate(network.weights, 1)}
    if isinstance(network, lc.TwoLayer):
        return {"first": np.asarray(network.first), "second": np.asarray(network.second)}
    names = ("input", "recurrent", "output")
    return {name: np.asarray(getattr(network, f"{name}_weights")) for name in names}


def loss_and_slopes(task, network):
    """Half the mean squared error and its gradient from Cov(x, x') and Cov(x, y), readout by readout.

    y_r = sum_t W_y W_h^(r-t) W_x x_t. With K_t = W_y W_h^(r-t) W_x and E_t = sum_s K_s Cov(x_s, x_t) - Cov(y, x_t):
    dL/dW_y = sum_t E_t (W_h^(r-t) W_x)^T, dL/dW_x = sum_t (W_y W_h^(r-t))^T E_t, and W_h at each of its places.
    """
    given = weights(network)
    if isinstance(network, lc.Activated):
        return measured_loss_and_slopes(RECORDED[task], network)
    if isinstance(network, lc.Deep):
        return deep_loss_and_slopes(task, network)
    static = isinstance(network, lc.TwoLayer)
    w_in, w_out = (given["first"], given["second"]) if static else (given["input"], given["output"])
    w_hid = np.zeros((len(w_in), len(w_in))) if static else given["recurrent"]
    inputs, cross = np.asarray(task.input_covariance), np.asarray(task.cross_covariance)
    steps, readouts = cross.shape[0], cross.shape[2]
    loss = np.trace(np.einsum("rmrn->mn", np.asarray(task.target_covariance))) / 2
    d_in, d_hid, d_out = np.zeros_like(w_in), np.zeros_like(w_hid), np.zeros_like(w_out)
    for readout in range(readouts):
        end = steps - readouts + readout
        powers = [np.linalg.matrix_power(w_hid, k) for k in range(end + 1)]
        K = np.stack([w_out @ powers[end - t] @ w_in for t in range(end + 1)])
        past = np.einsum("smn,sntk->tmk", K, inputs[: end + 1, :, : end + 1])
        target = cross[: end + 1, :, readout].transpose(0, 2, 1)
        loss += (K * (past / 2 - target)).sum()
        for t, error in enumerate(past - target):
            d_out += error @ (powers[end - t] @ w_in).T
            d_in += (w_out @ powers[end - t]).T @ error
            if not static:
                for k in range(end - t):
                    d_hid += (w_out @ powers[k]).T @ error @ (powers[end - t - 1 - k] @ w_in).T
    slopes = {"first": d_in, "second": d_out} if static else {"input": d_in, "recurrent": d_hid, "output": d_out}
    return loss, slopes


def deep_loss_and_slopes(task, network):
    """Half the mean squared error of W_L ... W_1 and its gradient, layer by layer."""
    layers = list(network.weights)
    S, R = (np.asarray(c)[0, :, 0] for c in (task.input_covariance, task.cross_covariance))
    M = np.linalg.multi_dot(layers[::-1])
    slopes = {}
    for k in range(len(layers)):
        below, above = np.eye(len(S)), np.eye(len(M))
        for w in layers[:k]:
            below = w @ below
        for w in layers[:k:-1]:
            above = above @ w
        slopes[f"layer{k + 1}"] = above.T @ (M @ S - R.T) @ below.T
    power = np.trace(np.asarray(task.target_covariance)[0, :, 0])
    return power / 2 + (M * (M @ S / 2 - R.T)).sum(), slopes


def measured_loss_and_slopes(trials, network):
    """Half the mean squared error on the trials and its gradient, back through time."""
    (inputs, targets), given = trials, weights(network)
    w_in, w_hid, w_out = given["input"], given["recurrent"], given["output"]
    every_step = targets.ndim == 3
    hidden = [np.zeros((len(inputs), len(w_in)))]
    for t in range(inputs.shape[1]):
        hidden.append(network.activate(hidden[-1] @ w_hid.T + inputs[:, t] @ w_in.T))
    slopes = {name: np.zeros_like(value) for name, value in given.items()}
    loss, back = 0.0, np.zeros_like(hidden[0])
    for t in range(inputs.shape[1], 0, -1):
        h = hidden[t]
        if every_step or t == inputs.shape[1]:
            error = h @ w_out.T - (targets[:, t - 1] if every_step else targets)
            loss += (error**2).sum() / 2 / len(inputs)
            slopes["output"] += error.T @ h / len(inputs)
            back = back + error @ w_out / len(inputs)
        back = back * ((h > 0) if network.activation == "relu" else 1 - h**2)
        slopes["input"] += back.T @ inputs[:, t - 1]
        slopes["recurrent"] += back.T @ hidden[t - 1]
        back = back @ w_hid
    return loss, slopes


def layers(found):
    """First and second weights, by either pair of names."""
    return (found["first"], found["second"]) if "first" in found else (found["input"], found["output"])


def gram(network):
    """Invariant under rotations of the hidden space: Q Q^T with Q = [W1^T; W2]."""
    first, second = layers(weights(network))
    Q = np.concatenate([first.T, second])
    return Q @ Q.T


def state(made, network):
    """The part of a network that the solution determines."""
    return {"gram": gram(network)} if made.kind.rotated else weights(network)


def velocity(made, network):
    """Change of that state per step, from the gradient."""
    _, slopes = loss_and_slopes(made.task, network)
    moved = {name: -made.rate * slopes[name] * (name in made.learn) for name in slopes}
    if not made.kind.rotated:
        return moved
    (first, second), (d_first, d_second) = layers(weights(network)), layers(moved)
    Q, dQ = np.concatenate([first.T, second]), np.concatenate([d_first.T, d_second])
    return {"gram": dQ @ Q.T + Q @ dQ.T}


def rebuilt(network, moved):
    """A network of equal type with other weights."""
    if isinstance(network, lc.Activated):
        return lc.Activated(rebuilt(network.network, moved), network.activation)
    return lc.Deep(tuple(moved.values())) if isinstance(network, lc.Deep) else type(network)(*moved.values())


def sharpness(made):
    """Largest curvature of the loss at the start, on the way and at the end, by power iteration on its gradient."""
    rng, sizes = np.random.default_rng(0), []
    for time in (0.0, made.times[4], np.inf):
        network = made.solution.network_at(time)
        base = weights(network)
        turn = {name: rng.normal(size=base[name].shape) for name in made.learn}
        for _ in range(12):
            size = np.sqrt(sum((w**2).sum() for w in turn.values()))
            around = []
            for sign in (1, -1):
                moved = {**base, **{k: base[k] + sign * 1e-5 * w / size for k, w in turn.items()}}
                around.append(loss_and_slopes(made.task, rebuilt(network, moved))[1])
            turn = {name: (around[0][name] - around[1][name]) / 2e-5 for name in made.learn}
        sizes.append(np.sqrt(sum((w**2).sum() for w in turn.values())))
    return max(sizes)


def largest(found):
    return max(np.abs(value).max() for value in found.values())


# --- the contract ---------------------------------------------------------------------------------------------------


def test_state_at_zero_is_the_start(made):
    found, given = weights(made.solution.network_at(0)), weights(made.network)
    assert type(made.solution.network_at(0)) is type(made.network)
    for name, value in given.items():
        # modes: into their frame and back, two products with orthogonal matrices
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-13)
    loss, _ = loss_and_slopes(made.task, made.network)
    assert float(made.solution.at(0)["loss"][0]) == pytest.approx(loss, rel=made.kind.loss)


@pytest.mark.slow_cases("flow_at_every_step")
def test_fixed_weights_do_not_change(made):
    found, given = weights(made.solution.network_at(made.times[5])), weights(made.network)
    assert set(found) == set(given)
    for name in set(given) - set(made.learn):
        # modes: into their frame and back
        np.testing.assert_allclose(found[name], given[name], rtol=0, atol=1e-13)
    for name in made.learn:
        assert np.abs(found[name] - given[name]).max() > 1e-3


def test_limit_is_the_state_at_infinity(made):
    limit, at_infinity = made.solution.limit(), made.solution.at(np.inf)
    assert set(limit.dataset.data_vars) == set(at_infinity.dataset.data_vars)
    for name in at_infinity.dataset.data_vars:
        np.testing.assert_array_equal(np.asarray(limit[name]), np.asarray(at_infinity[name]))
    loss, _ = loss_and_slopes(made.task, made.solution.network_at(np.inf))
    start = float(made.solution.at(0)["loss"][0])
    assert float(limit["loss"][0]) == pytest.approx(loss, abs=made.kind.rounding * start)


def test_gradient_vanishes_at_infinity(flowing):
    # the gradient that is left, relative to the largest gradient and the covariance
    moved = [velocity(flowing, flowing.solution.network_at(t)) for t in (*flowing.times[:8], np.inf)]
    balanced = flowing.rate * np.abs(np.asarray(flowing.task.cross_covariance)).max()
    assert largest(moved[-1]) <= flowing.kind.left * (max(largest(m) for m in moved[:-1]) + balanced)


def test_late_times_approach_infinity(flowing):
    # modes without a target decay as 1 / t, so only very late times are close to infinity
    late, limit = flowing.solution.at(1e13 * flowing.times[7]), flowing.solution.limit()
    slack = 1e-11
    np.testing.assert_allclose(np.ravel(late["strength"]), np.ravel(limit["strength"]), rtol=slack, atol=slack)
    start = float(flowing.solution.at(0)["loss"][0])
    assert float(late["loss"][0]) == pytest.approx(float(limit["loss"][0]), abs=slack * start)


def test_many_times_equal_single_times(made):
    # out of order and with a repetition
    ask = np.concatenate([made.times[::-1], made.times[3:4], [np.inf]])
    many = made.solution.at(ask)
    np.testing.assert_array_equal(many["time"], ask)
    for i, time in enumerate(ask):
        one = made.solution.at(float(time))
        assert set(one.dataset.data_vars) == set(many.dataset.data_vars)
        for name in many.dataset.data_vars:
            # the order of summation may change the last digits, and the excess loss is a difference
            scale = np.abs(np.asarray(many[name])).max()
            np.testing.assert_allclose(
                np.ravel(np.asarray(many[name])[i]), np.ravel(one[name]), rtol=1e-13, atol=3e-14 * scale
            )


def test_trajectory_and_network_agree(made):
    found = made.solution.at(made.times)
    start = float(found["loss"][0])
    for i, time in enumerate(made.times):
        network = made.solution.network_at(float(time))
        loss, _ = loss_and_slopes(made.task, network)
        # the loss is a difference of terms as large as the loss at the start
        assert float(found["loss"][i]) == pytest.approx(loss, abs=made.kind.loss * start)
        first, second = network.network.maps if isinstance(network, lc.Activated) else network.maps
        if made.kind.rotated:
            for name, value in (
                ("network_function", second @ first),
                ("input_gram", first.T @ first),
                ("output_gram", second @ second.T),
            ):
                np.testing.assert_allclose(found[name][i], value, rtol=0, atol=made.kind.rounding)
        for name in made.learn:
            if f"{name}_weights" in found.dataset:
                np.testing.assert_array_equal(found[f"{name}_weights"][i], weights(network)[name])
        if isinstance(network, lc.TwoLayer):
            left, _, right = np.linalg.svd(np.asarray(made.task.cross_covariance)[0, :, 0].T, full_matrices=False)
            strengths = np.diagonal(left.T @ second @ first @ right.T)
            distinct = len(strengths) if made.name not in ("hierarchical", "prior_knowledge", "reversed_leaves") else 0
            # modes of a repeated singular value are not unique: compare the distinct ones, largest first
            rank = np.linalg.matrix_rank(np.asarray(made.task.cross_covariance)[0, :, 0])
            keep = min(distinct, rank)
            np.testing.assert_allclose(found["strength"][i][:keep], strengths[:keep], rtol=0, atol=1e-11)


def test_derivative_follows_the_gradient(flowing):
    """d(state)/d(step) follows from -learning_rate dL/d(weights), by a fourth-order difference.

    With h = 1e-2 of the fastest time scale the difference is right to h^4 = 1e-8 times a constant, and the roundings of
    the solution are divided by h. The tolerance of 1e-6 of the largest slope includes the constant.
    """
    h = 1e-2 / (flowing.rate * sharpness(flowing))
    rounding = 1e-13 if flowing.kind is EXACT else flowing.kind.rounding / 30
    for time in np.maximum(flowing.times[1:8], 3 * h):
        around = [state(flowing, flowing.solution.network_at(float(time + k * h))) for k in (-2, -1, 1, 2)]
        fields = velocity(flowing, flowing.solution.network_at(float(time)))
        size = largest(fields)
        for name, expected in fields.items():
            two, one, plus, plus_two = (found[name] for found in around)
            slope = (two - 8 * one + 8 * plus - plus_two) / (12 * h)
            assert np.abs(slope - expected).max() <= 1e-6 * size + rounding / h


def test_a_step_follows_the_gradient(stepped):
    for step in (0, 1, DESCENT_STEPS // 4, DESCENT_STEPS - 1):
        here, there = (stepped.solution.network_at(step + k) for k in (0, 1))
        moved = velocity(stepped, here)
        for name, value in weights(there).items():
            # one update: two roundings
            np.testing.assert_allclose(value, weights(here)[name] + moved[name], rtol=0, atol=1e-14)


def test_loss_never_rises(made):
    # also in descents: their learning rates are far below the stable limit
    late = made.times[-1]
    ask = np.arange(0, int(late) + 1, 10.0) if made.kind.stepped else np.linspace(0, late, 200)
    loss = np.asarray(made.solution.at(np.append(ask, np.inf))["loss"])
    assert np.all(np.isfinite(loss))
    # equal at the end to rounding of the loss itself, or to the integration's error
    assert np.all(np.diff(loss) <= (1e-11 if made.kind is INTEGRATED or made.kind.measured else 1e-14) * loss[0])
    assert loss[-1] < loss[0]


def test_loss_is_excess_over_a_constant_floor(made):
    found = made.solution.at(np.append(made.times, np.inf))
    floor = np.asarray(found["loss"]) - np.asarray(found["excess_loss"])
    scale = np.abs(found["loss"]).max()
    np.testing.assert_allclose(floor, floor[-1], rtol=0, atol=1e-13 * scale)
    # a difference of losses may leave their rounding below 0
    assert np.all(np.asarray(found["excess_loss"]) >= (-1e-13 * float(scale) if made.kind.left > 1e-10 else 0))


def test_solutions_can_be_continued(made):
    half = float(made.times[4])
    again = made.solve(made.task, made.solution.network_at(half), made.rate)
    for later in (0.2, 1.0, 3.0):
        later = round(later * half) if made.kind.stepped else later * half
        on, straight = (
            state(made, network) for network in (again.network_at(later), made.solution.network_at(half + later))
        )
        # the second solution starts from rounded weights, and the flow amplifies the rounding by less than 1e4
        for name, value in straight.items():
            np.testing.assert_allclose(on[name], value, rtol=0, atol=made.kind.rounding)


@pytest.mark.slow_cases("relu_two_outputs_at_every_step", "flow_at_every_step")
def test_time_to_is_the_first_entry(made):
    times = made.solution.time_to(0.9)
    steps = times.descent_steps if made.kind.stepped else times.flow_steps
    if made.name in NEVER_LEARNED:
        assert (steps, times.status) == (np.inf, lc.Status.not_learned)
        return
    assert times.status is lc.Status.ok
    assert 0 < steps < np.inf
    before, after = (steps - 1, steps) if made.kind.stepped else (steps * (1 - 1e-6), steps * (1 + 1e-6))
    goal = band(made, 0.9)
    excess = np.asarray(made.solution.at([before, after])["excess_loss"])
    if goal is not None:
        assert excess[1] <= goal < excess[0]
    assert excess[1] < excess[0]
    np.testing.assert_array_equal(made.solution.time_to(0.0).status, lc.Status.ok)


def band(made, accuracy):
    """Excess loss at which the accuracy is reached; None for modes, which have a band each."""
    if made.name in MODES:
        return None
    limit = made.solution.limit()
    floor = float(limit["loss"][0] - limit["excess_loss"][0])
    zero = float(np.trace(np.einsum("rmrn->mn", np.asarray(made.task.target_covariance)))) / 2
    if made.kind is INTEGRATED:  # measured from where this flow rests
        rest = float(limit["loss"][0])
        return (1 - accuracy) ** 2 * (zero - rest) + rest - floor
    return (1 - accuracy) ** 2 * (zero - floor)


def test_save_and_load(made, tmp_path):
    found = made.solution.at(np.append(made.times, np.inf))
    path = tmp_path / "trajectory.nc"
    found.save(path)
    again = lc.Trajectory.load(path)
    assert again.dataset.identical(found.dataset)
    for name in found.dataset.variables:
        assert again.dataset[name].attrs == found.dataset[name].attrs
    assert again.provenance == found.provenance
    assert repr(again) == repr(found)
    # no temporary files are left
    assert [p.name for p in tmp_path.iterdir()] == ["trajectory.nc"]


def test_variables_have_units_and_names(made):
    found = made.solution.at([0.0, np.inf]).dataset
    assert {"strength", "loss", "excess_loss"} <= set(found.data_vars)
    assert all({"units", "long_name"} <= set(found[name].attrs) for name in (*found.data_vars, "time"))
    assert found.attrs["task"] == made.task.name
    assert found.attrs["learning_rate"] == made.rate


def test_provenance_and_citation(made):
    solution, again = made.solution, made.solve(made.task, made.network, made.rate)
    assert solution.provenance == again.provenance
    other = made.solve(made.task, made.network, made.rate / 2)
    assert solution.provenance.spec_hash != other.provenance.spec_hash
    keys = {EXACT: ("curriculum2025",), RICCATI: ("braun2022",)}.get(made.kind, ())
    assert all(key in solution.citation() for key in keys)
    promised = "response" if made.kind.measured else "exact" if keys else "integrated"
    assert solution.forecast_class == promised
    assert made.task.name in repr(solution)


def test_assumptions_are_measured(made):
    solution = made.solution
    needed = {
        EXACT: {"static_geometry", "aligned_input_covariance", "normal_recurrence", "aligned_start"},
        RICCATI: {"whitened_input", "balanced_weights", "regular_orientation"},
    }.get(made.kind, set())
    measured = {assumption.name: assumption for assumption in solution.assumptions}
    assert needed <= set(measured)
    assert all(np.isfinite(a.measured) for a in measured.values())
    # conditions that are not binding may fail
    assert all(a.holds or not a.condition.binding for a in measured.values())
    assert solution.holds
    if made.kind is RICCATI:
        assert measured["regular_orientation"].holds == (made.name != "reversed_leaves")
        assert bool(solution.remarks) == (made.name in {"bottleneck", "reversed_leaves"})


def test_invalid_times_raise(made):
    for bad in (-1.0, [0.0, -1e-9], np.nan, [1.0, np.nan], -np.inf, [[0.0, 1.0]], "soon", None):
        with pytest.raises(lc.InvalidSpec):
            made.solution.at(bad)
    for bad in (-1.0, np.nan, "soon"):
        with pytest.raises(lc.InvalidSpec):
            made.solution.network_at(bad)


@pytest.mark.parametrize("bad", [[0.0, 1.0], []])
@pytest.mark.parametrize("name", ["one_mode", "zero_balanced", "flow_of_second_layer", "descent_of_two_layers"])
def test_network_at_needs_one_time(name, bad):
    with pytest.raises(lc.InvalidSpec):
        case(name).solution.network_at(bad)


def test_descents_are_defined_at_whole_steps_only(stepped):
    with pytest.raises(lc.InvalidSpec) as error:
        stepped.solution.at([0.0, 0.5])
    assert error.value.field == "times"
    for bad in (0.5, DESCENT_STEPS + 1):
        with pytest.raises(lc.InvalidSpec) as error:
            stepped.solution.network_at(bad)
        assert error.value.field == "time"
    beyond = stepped.solution.at([DESCENT_STEPS, DESCENT_STEPS + 1])
    assert np.isfinite(beyond["loss"][0])
    assert np.isnan(beyond["loss"][1])


# --- closed forms against the numerical solution --------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in FLOWS if CASES[n][1] is solved])
def test_closed_forms_equal_the_integrated_flow(name):
    made = case(name)
    numerical = gradient_flow(made.task, made.network, learning_rate=made.rate, learn=made.learn)
    ask = made.times[:8]
    exact, integrated = made.solution.at(ask)["loss"], numerical.at(ask)["loss"]
    # an error of 1e-11 in each step of the integration, spread by the flow; measured: 4e-10
    np.testing.assert_allclose(integrated, exact, rtol=0, atol=1e-9 * float(exact[0]))
    for time in ask:
        pair = [state(made, s.network_at(float(time))) for s in (made.solution, numerical)]
        for key, value in pair[0].items():
            np.testing.assert_allclose(pair[1][key], value, rtol=0, atol=made.kind.rounding + 3e-9)


# --- solutions made of modes ----------------------------------------------------------------------------------------


def test_initial_strengths_are_singular_values_of_the_network(by_modes):
    given = weights(by_modes.network)
    product = np.linalg.svd(given["output"] @ given["input"], compute_uv=False)
    strengths = np.sort(np.abs(np.asarray(by_modes.solution.at(0)["strength"]).ravel()))[::-1]
    np.testing.assert_allclose(strengths, product[: strengths.size], rtol=1e-12)


def test_modes_end_at_their_optimum(by_modes):
    limit = by_modes.solution.limit()
    np.testing.assert_allclose(np.ravel(limit["strength"]), modes(by_modes.task, by_modes.network).optimum, rtol=1e-12)
    loss = np.ravel(by_modes.solution.at(0)["loss"])[0]
    assert abs(np.ravel(limit["excess_loss"])[0]) <= 1e-12 * loss


def test_mode_weights_are_singular_values_of_the_network(by_modes):
    found = by_modes.solution.at(by_modes.times)
    for i, time in enumerate(by_modes.times):
        given = weights(by_modes.solution.network_at(float(time)))
        for name, value in (("input_weight", given["input"]), ("output_weight", given["output"])):
            listed = np.sort(np.abs(np.asarray(found[name])[i]))[::-1]
            singular = np.linalg.svd(value, compute_uv=False)[: listed.size]
            # numbers of order 1 through a singular value decomposition
            np.testing.assert_allclose(listed, singular, rtol=0, atol=1e-12)
        product = np.asarray(found["input_weight"])[i] * np.asarray(found["output_weight"])[i]
        np.testing.assert_allclose(product, np.asarray(found["strength"])[i], rtol=1e-12, atol=1e-15)
