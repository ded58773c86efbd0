"""Steps of descent and of the flow against plain integration of the mode equation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import learncast as lc

RATE = 1e-3


@pytest.fixture(scope="module")
def task():
    return lc.tasks.integration(steps=20, name="target")


@pytest.fixture(scope="module")
def network():
    return lc.LinearRNN.aligned(recurrence=0.9, initial=0.02, hidden_size=4)


def test_descent_converges_to_the_flow_with_order_one(task, network):
    def gap(rate: float) -> float:
        steps = round(0.05 / rate)
        run = lc.descend(task, network, learning_rate=rate, steps=steps)
        end = lc.forecast(task, network, learning_rate=rate).solution.at([steps])
        return float(np.abs(run.strength[-1] - end["strength"].values[0]).max())

    # Euler's method; the second-order term is the rate times the sharpness, 3% here at most.
    rates = [1e-3, 5e-4, 2.5e-4]
    order = np.polyfit(np.log(rates), np.log([gap(rate) for rate in rates]), 1)[0]
    assert order == pytest.approx(1.0, abs=0.05)


class PlainCurriculum:
    """One mode, trained through stages on its own equations: da/dt = c (beta - B a c), dc/dt = a (beta - B a c)."""

    def __init__(self, network):
        weights = network.input_weights, network.output_weights
        self.decay = float(network.recurrent_weights[0, 0])
        self.state = np.array([np.linalg.norm(w) for w in weights])

    def moments(self, task):
        lags = self.decay ** np.arange(task.steps)[::-1]
        power = np.einsum("s,su,u", lags, task.input_covariance.dense()[:, 0, :, 0], lags)
        return np.einsum("s,s", lags, task.cross_covariance.dense()[:, 0, 0, 0]), power

    def slope(self, state, beta, power):
        return state[::-1] * (beta - power * state[0] * state[1])

    def descend(self, stage):
        beta, power = self.moments(stage.task)
        steps = 0
        while self._outside(self.state, stage, beta / power) if stage.steps is None else steps < stage.steps:
            self.state = self.state + RATE * self.slope(self.state, beta, power)
            steps += 1
        return steps

    def flow(self, stage):
        beta, power = self.moments(stage.task)

        def edge(_, state):
            return (1 - stage.goal.value) * beta / power - abs(state[0] * state[1] - beta / power)

        edge.terminal = True
        span = (0.0, 1e3 if stage.steps is None else stage.steps * RATE)
        events = edge if stage.steps is None else None
        run = solve_ivp(
            lambda _, s: self.slope(s, beta, power), span, self.state, rtol=1e-12, atol=1e-14, events=events
        )
        self.state = run.y[:, -1]
        return run.t[-1] / RATE

    @staticmethod
    def _outside(state, stage, best):
        return abs(state[0] * state[1] - best) > (1 - stage.goal.value) * best


@pytest.mark.parametrize("stages", [("target",), ("first", "target"), ("steps", "target")], ids=" then ".join)
def test_a_curriculum_takes_the_steps_of_its_mode_equation(task, network, stages):
    first = task.varied(target_strength=1.6, name="first")
    known = {
        "first": lc.Stage(first, goal=0.6),
        "steps": lc.Stage(first, steps=70),
        "target": lc.Stage(task, goal=0.98),
    }
    curriculum = [known[name] for name in stages]
    theory = lc.follow(curriculum, network, learning_rate=RATE)
    flow, descent = PlainCurriculum(network), PlainCurriculum(network)
    np.testing.assert_allclose([flow.flow(s) for s in curriculum], [s.steps.flow for s in theory.stages], rtol=1e-8)
    assert [descent.descend(stage) for stage in curriculum] == [s.steps.descent for s in theory.stages]
    assert theory.steps.status is lc.Status.ok


def test_a_curriculum_that_never_ends_has_no_later_stages(task):
    start = lc.LinearRNN.aligned(recurrence=0.9, initial=0.0, hidden_size=4)
    found = lc.follow([lc.Stage(task, goal=0.9), lc.Stage(task, goal=0.99)], start, learning_rate=RATE)
    assert found.steps.flow == found.steps.descent == np.inf
    assert found.steps.status is lc.Status.not_learned
