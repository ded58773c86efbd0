"""Every function and every method that applies gives the same steps of direct training, on drawn problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import learncast as lc
from learncast.theory.dynamics.descent import MOST_COUNTED


@dataclass(frozen=True)
class Question:
    """A target, a network and an accuracy, with the method that should be chosen and others that apply."""

    target: lc.Task
    others: list[lc.Task]
    network: Any
    rate: float
    accuracy: float
    method: str
    others_apply: tuple[str, ...]
    learn: tuple[str, ...] | None = None
    vary: dict[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        return {"training": lc.Training(self.rate, learn=self.learn)}

    @property
    def goal(self) -> lc.Goal:
        return lc.Accuracy(self.accuracy)


def turn(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


# ---- kinds of problems ---------------------------------------------------------------------------------------------


def one_mode(rng: np.random.Generator) -> Question:
    target = lc.tasks.integration(int(rng.integers(3, 20)), target_strength=rng.uniform(0.5, 2), name="target")
    other = target.varied(target_strength=rng.uniform(0.5, 3), name="other")
    network = lc.LinearRNN.aligned(
        recurrence=rng.uniform(0.5, 0.95), initial=rng.uniform(0.02, 0.3), hidden_size=3, task=target
    )
    rate, accuracy = 10.0 ** rng.uniform(-3.3, -2.3), float(rng.choice([0.8, 0.95, 0.99]))
    vary = {"vary": "target_strength", "values": [1.5]}
    # With one mode, the accuracies of the mode and of the loss are equal.
    return Question(target, [other], network, rate, accuracy, "modes", ("two-layer", "pooled", "flow"), vary=vary)


def common_modes(rng: np.random.Generator) -> Question:
    """Several unbalanced modes with different recurrences: only modes measure the accuracy of each."""
    size = int(rng.integers(2, 4))
    target = lc.tasks.integration(8, target_strength=rng.uniform(0.5, 2, size), name="target")
    others = [lc.tasks.integration(8, target_strength=rng.uniform(0.5, 3, size), name=f"other {k}") for k in range(2)]
    network = lc.LinearRNN.aligned(
        recurrence=rng.uniform(0.4, 0.9, size), initial=rng.uniform(0.05, 0.4, size),
        output_initial=rng.uniform(0.05, 0.4, size), hidden_size=size + 1, inputs=size, outputs=size,
    )  # fmt: skip
    return Question(target, others, network, 10.0 ** rng.uniform(-3, -2.3), 0.95, "modes", ("modes",))


def rotated(rng: np.random.Generator) -> Question:
    """White inputs and a balanced start that is not aligned with the target."""
    size = int(rng.integers(2, 4))

    def mixing() -> np.ndarray:
        return turn(rng, size) @ np.diag(rng.uniform(0.5, 1.5, size)) @ turn(rng, size)

    first = mixing()
    start = lc.TwoLayer.balanced(size, size + 1, size, scale=rng.uniform(0.1, 0.4), rng=rng)
    if np.linalg.det(start.function) * np.linalg.det(first) < 0:  # otherwise a mode would stay on its saddle
        start = lc.TwoLayer(start.first @ np.diag([-1.0, *np.ones(size - 1)]), start.second)
    target = lc.tasks.integration(5, mixing=first, name="target")
    other = lc.tasks.integration(5, mixing=mixing(), name="other")
    network = lc.LinearRNN(start.first, rng.uniform(0.3, 0.9) * np.eye(size + 1), start.second)
    rate = 10.0 ** rng.uniform(-2.7, -2)
    vary = {"vary": "mixing", "values": [mixing()]}
    return Question(target, [other], network, rate, 0.95, "two-layer", ("pooled", "flow"), vary=vary)


def two_layers(rng: np.random.Generator) -> Question:
    """A two-layer network of random weights on inputs that are not white."""
    inputs, outputs = (int(n) for n in rng.integers(2, 4, 2))

    def static(name: str) -> lc.Task:
        frame = turn(rng, inputs)
        power = (frame * rng.uniform(0.3, 2.0, inputs)) @ frame.T
        return lc.tasks.static(rng.normal(size=(outputs, inputs)) @ power, power, name=name)

    network = lc.TwoLayer.random(inputs, 3, outputs, scale=rng.uniform(0.2, 0.6), rng=rng)
    return Question(
        static("target"), [static("other")], network, 10.0 ** rng.uniform(-2.3, -1.7), 0.8, "pooled", ("flow",)
    )


def recorded(rng: np.random.Generator) -> Question:
    """Trials with any covariance, and a random start with scalar recurrence."""
    inputs, mix = int(rng.integers(2, 4)), rng.normal(size=(3, 2, 3))

    def trials(name: str, k: int) -> lc.Task:
        colour = np.eye(inputs) + 0.4 * rng.normal(size=(inputs, inputs))
        x = rng.normal(size=(60, 4, inputs)) @ colour
        y = x.sum(axis=1) @ mix[k, :, :inputs].T + 0.3 * rng.normal(size=(60, 2))
        return lc.Task.from_samples(x, y, name=name)

    hidden = 3
    network = lc.LinearRNN(
        0.4 * rng.normal(size=(hidden, inputs)),
        rng.uniform(0.3, 0.8) * np.eye(hidden),
        0.4 * rng.normal(size=(2, hidden)),
    )
    rate = 10.0 ** rng.uniform(-3, -2.5)
    return Question(trials("target", 0), [trials("other", 1)], network, rate, 0.8, "pooled", ("flow",))


def any_recurrence(rng: np.random.Generator) -> Question:
    """A fixed recurrence that is not scalar, and weights that are not aligned."""
    target = lc.tasks.leaky_integration(4, timescale=rng.uniform(1, 4), name="target")
    other = target.varied(gain=1.5, name="other")
    network = lc.LinearRNN(
        0.5 * rng.normal(size=(2, 1)), np.diag(rng.uniform(0.3, 0.8, 2)), 0.5 * rng.normal(size=(1, 2))
    )
    return Question(target, [other], network, 1e-2, 0.7, "flow", ("flow",))


def learned_recurrence(rng: np.random.Generator) -> Question:
    target = lc.tasks.leaky_integration(4, timescale=rng.uniform(1, 3), name="target")
    other = target.varied(gain=1.5, name="other")
    network = lc.LinearRNN(
        0.5 * rng.normal(size=(2, 1)), np.diag(rng.uniform(0.2, 0.6, 2)), 0.5 * rng.normal(size=(1, 2))
    )
    learn = ("input", "recurrent", "output")
    return Question(target, [other], network, 1e-2, 0.7, "flow", ("flow",), learn=learn)


def rectified(rng: np.random.Generator) -> Question:
    target = lc.tasks.integration(int(rng.integers(3, 8)), name="target")
    other = target.varied(target_strength=1.5, name="other")
    start = lc.LinearRNN.aligned(hidden_size=2, recurrence=rng.uniform(0.5, 0.8), initial=rng.uniform(0.1, 0.4))
    vary = {"vary": "target_strength", "values": [1.5]}
    return Question(target, [other], lc.Activated(start, "relu"), 5e-3, 0.95, "modes", ("modes",), vary=vary)


KINDS: dict[str, tuple[Callable[[np.random.Generator], Question], int, int]] = {
    "one mode": (one_mode, 1, 40),
    "common modes": (common_modes, 2, 40),
    "rotated": (rotated, 1, 40),
    "two layers": (two_layers, 1, 40),
    "recorded": (recorded, 1, 30),
    "any recurrence": (any_recurrence, 1, 8),
    "learned recurrence": (learned_recurrence, 1, 8),
    "rectified": (rectified, 1, 10),
}


# ---- every function ------------------------------------------------------------------------------------------------


def answers(q: Question, *, searched: bool) -> dict[str, tuple[float, float]]:
    """Flow and descent steps of direct training by every function; plans by the flow only if `searched`."""
    found: dict[str, tuple[float, float]] = {}
    terms = lc.Terms(q.goal)

    def keep(name: str, steps: lc.Steps) -> None:
        found[name] = steps.flow, steps.descent

    last = lc.Stage(q.target, q.goal)
    forecast = lc.forecast(q.target, q.network, goal=q.goal, **q.options, strict=False)
    keep("forecast", forecast.steps)
    keep("forecast.direct", forecast.direct)
    time = forecast.direct_time
    found["forecast.direct_time"] = time.flow_steps, time.descent_steps
    if forecast.method.per_mode(q.goal) or forecast.method.name == "two-layer":
        time = forecast.solution.time_to(q.accuracy)
        found["solution.time_to"] = time.flow_steps, time.descent_steps
    staged = lc.follow([lc.Stage(q.others[0], steps=3), last], q.network, **q.options, strict=False)
    assert staged.method.name == q.method
    keep("follow.direct", staged.direct)
    direct = lc.plan(q.target, [], q.network, **q.options, terms=terms.with_(max_stages=1), strict=False)
    assert direct.method.name == q.method
    keep("plan of one stage", direct.direct)
    assert direct.counted == np.isfinite(direct.direct.descent)
    reported = direct.direct.descent if direct.counted else direct.direct.flow
    assert {direct.total, direct.direct_total, direct.direct_steps} == {reported}
    assert len({x.status for x in (direct.best.steps, direct.direct, forecast.steps)}) == 1
    if searched or q.method != "flow":
        planned = lc.plan(q.target, q.others, q.network, **q.options, terms=terms, strict=False)
        assert planned.method.name == q.method
        keep("plan.direct", planned.direct)
        assert planned.direct_total == (planned.direct.descent if planned.counted else planned.direct.flow)
    for method in q.others_apply:
        if method != "flow" or q.target.trials is None:  # otherwise the flow would be integrated for every resample
            named = lc.follow([last], q.network, method=method, strict=False, **q.options)
            assert named.method.name == method
            keep(f"follow by {method}", named.steps)
    if q.vary:
        portrait = lc.phase(q.target, q.network, accuracies=[0.3], goal=q.goal, strict=False, **q.options, **q.vary)
        found["phase"] = float(portrait["direct_steps"]), float(portrait["direct_descent_steps"])
    return found


def assert_one_answer(q: Question, *, searched: bool) -> None:
    found = answers(q, searched=searched)
    flow, descent = found["forecast"]
    assert np.isfinite(flow)
    # Without scalar recurrence descent is counted step by step, up to a limit.
    known = q.method != "flow" or flow <= MOST_COUNTED
    assert np.isfinite(descent) == known
    assert not known or descent == int(descent) > 0
    for name, (other_flow, other_descent) in found.items():
        assert other_descent == descent or not (known or np.isfinite(other_descent)), (name, found)
        # Flows are integrated with a tolerance of 1e-8 or less, and with 1e-6 in a search.
        assert other_flow == pytest.approx(flow, rel=1e-6), (name, found)
    if known:
        assert_learned_at(q, int(descent))


def assert_learned_at(q: Question, steps: int) -> None:
    """The goal lies between the losses after these steps and one step before, by `forget`."""
    if q.learn is not None or isinstance(q.network, lc.Activated):
        return
    options = {**q.options, "method": q.method}
    forecasts = [lc.forget([q.target], q.network, steps=n, **options) for n in (steps, steps - 1)]
    method = forecasts[0].method
    accuracy = [float(method.accuracy(0, f.run.descent_states[-1][None])[0]) for f in forecasts]
    assert accuracy[1] < q.accuracy <= accuracy[0] + 1e-9
    losses = [f.losses().values[-1, 0] for f in forecasts]
    assert losses[0] < losses[1]
    if q.method != "modes" or len(method.modes[0]) == 1:
        goal = method.goal_loss(0, q.goal)
        if np.isfinite(goal):
            assert losses[0] <= goal * (1 + 1e-9) < losses[1] * (1 + 2e-9)


@pytest.mark.slow_cases("any recurrence", "learned recurrence")
@pytest.mark.parametrize("kind", KINDS)
def test_every_function_gives_one_answer(kind: str) -> None:
    draw, few, _ = KINDS[kind]
    for seed in range(few):
        assert_one_answer(draw(np.random.default_rng([seed, len(kind)])), searched=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_function_gives_one_answer_to_many_questions(kind: str) -> None:
    draw, _, many = KINDS[kind]
    for seed in range(100, 100 + many):
        assert_one_answer(draw(np.random.default_rng([seed, len(kind)])), searched=True)
