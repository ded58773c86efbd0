"""What training must do on any data, whatever their sizes and the network's weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import learncast as lc
from learncast import Training
from learncast.training import train

few = settings(derandomize=True, deadline=None, max_examples=8 * settings().max_examples // 300)

STEPS = 6
# Six steps of products of numbers of order 1, summed in another order.
ROUNDING = 1e-11


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another up to 50 times longer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Case:
    """Recorded trials, a network by its weights and how it is trained."""

    x: np.ndarray
    y: np.ndarray
    into: np.ndarray
    between: np.ndarray
    out: np.ndarray
    activation: str | None
    learn: tuple[str, ...]
    training: Training
    rng: np.random.Generator

    def network(self, into, between, out):
        network = lc.LinearRNN(into, between, out)
        return network if self.activation is None else lc.Activated(network, self.activation)

    @property
    def start(self):
        return self.network(self.into, self.between, self.out)


@st.composite
def cases(draw, optimizers=("gd", "momentum", "adam")):
    sizes = {name: draw(st.integers(1, 4), label=name) for name in ("steps", "inputs", "hidden", "outputs")}
    trials = draw(st.integers(2, 7), label="trials")
    every_step, diagonal = draw(st.booleans(), label="every step"), draw(st.booleans(), label="diagonal")
    activation = draw(st.sampled_from([None, "relu", "tanh"]))
    learn = draw(st.sampled_from([("input", "output"), ("input", "recurrent", "output"), ("recurrent",)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20), label="seed"))
    hidden = sizes["hidden"]
    return Case(
        rng.standard_normal((trials, sizes["steps"], sizes["inputs"])),
        rng.standard_normal((trials, *([sizes["steps"]] if every_step else []), sizes["outputs"])),
        0.5 * rng.standard_normal((hidden, sizes["inputs"])),
        np.diag(rng.uniform(-0.9, 0.9, hidden)) if diagonal else 0.4 * rng.standard_normal((hidden, hidden)),
        0.5 * rng.standard_normal((sizes["outputs"], hidden)),
        activation,
        learn,
        Training(0.01, learn=learn, optimizer=draw(st.sampled_from(optimizers))),
        rng,
    )


def inner(run):
    return run.network.network if isinstance(run.network, lc.Activated) else run.network


def close(one, other, scale=1.0):
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=ROUNDING * scale)


def size(run):
    return max(1.0, float(np.abs(run["loss"]).max()))


@few
@given(cases(optimizers=("gd", "momentum")))
def test_the_order_of_trials_is_of_no_consequence(case):
    run = train((case.x, case.y), case.start, case.training, steps=STEPS)
    order = case.rng.permutation(len(case.x))
    again = train((case.x[order], case.y[order]), case.start, case.training, steps=STEPS)
    close(run["loss"], again["loss"], size(run))
    for name in ("input_weights", "recurrent_weights", "output_weights"):
        close(getattr(inner(run), name), getattr(inner(again), name))


@few
@given(cases())
def test_hidden_units_have_no_names(case):
    """Another order of hidden units: the same record, and the same weights in that order.

    Adam divides by the size of each slope, so that rounding of a slope near zero is blown up; here the smallest
    slopes are far above rounding.
    """
    order = case.rng.permutation(len(case.into))
    run = train((case.x, case.y), case.start, case.training, steps=STEPS)
    network = case.network(case.into[order], case.between[np.ix_(order, order)], case.out[:, order])
    again = train((case.x, case.y), network, case.training, steps=STEPS)
    close(run["loss"], again["loss"], size(run))
    close(run["strength"], again["strength"])
    close(inner(run).input_weights[order], inner(again).input_weights)
    close(inner(run).recurrent_weights[np.ix_(order, order)], inner(again).recurrent_weights)
    close(inner(run).output_weights[:, order], inner(again).output_weights)
    probe = case.rng.standard_normal((3, 5, case.x.shape[2]))
    close(run.network.respond(probe), again.network.respond(probe))


@few
@given(cases(optimizers=("gd",)), st.floats(0.3, 3.0))
def test_targets_and_readout_have_a_common_unit(case, unit):
    """Targets and output weights in another unit: answers scale with it, and the loss with its square.

    With y -> k y and W_y -> k W_y the slope of W_y scales by k, as W_y does, and those of the others by k^2. So the
    readout alone at the same rate, and the others alone at a rate of 1/k^2, trace the same path.
    """
    for learn, rate in ((("output",), 1.0), (("input", "recurrent"), unit**-2)):
        training = case.training.with_(learn=learn)
        run = train((case.x, case.y), case.start, training, steps=STEPS)
        scaled = train(
            (case.x, unit * case.y),
            case.network(case.into, case.between, unit * case.out),
            training.with_(learning_rate=rate * training.learning_rate),
            steps=STEPS,
        )
        close(unit**2 * run["loss"], scaled["loss"], 10 * size(run))
        close(unit * inner(run).output_weights, inner(scaled).output_weights, 10)
        close(inner(run).input_weights, inner(scaled).input_weights, 10)
        close(unit * run.network.respond(case.x), scaled.network.respond(case.x), 10 * size(run))


@few
@given(cases(optimizers=("gd",)))
def test_a_small_full_batch_step_lowers_the_loss(case):
    """Descent: over one step of 1e-5 the loss falls by the rate times the squared slope, to the order of the step."""
    run = train((case.x, case.y), case.start, case.training.with_(learning_rate=1e-5), steps=1)
    moved = sum(
        ((getattr(inner(run), f"{name}_weights") - w) ** 2).sum()
        for name, w in (("input", case.into), ("recurrent", case.between), ("output", case.out))
    )
    fell = float(run["loss"][0] - run["loss"][1])
    # second order: rate * curvature, at most 1e-5 * 1e3; a kinked rectifier adds as little
    assert fell == pytest.approx(moved / 1e-5, rel=1e-2, abs=1e-13 * size(run))


@few
@given(cases(), st.integers(1, STEPS - 1))
def test_two_stages_of_the_same_data_are_one_long_stage(case, cut):
    """With the moments kept, a border between stages changes nothing, to the last bit."""
    whole = train((case.x, case.y), case.start, case.training, steps=STEPS)
    stages = [lc.Stage((case.x, case.y), steps=cut), lc.Stage((case.x, case.y), steps=STEPS - cut)]
    pieces = train(stages, case.start, case.training.with_(reset_optimizer=False))
    np.testing.assert_array_equal(whole["loss"], pieces["loss"])
    np.testing.assert_array_equal(whole["strength"], pieces["strength"])
    np.testing.assert_array_equal(inner(whole).output_weights, inner(pieces).output_weights)
