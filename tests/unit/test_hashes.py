"""The hash of a result depends on everything that changes its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import learncast as lc

RATE = 5e-3
TARGET = lc.tasks.integration(5, target_strength=[1.0, 0.7], name="target")
OTHER = TARGET.varied(target_strength=[2.0, 1.0], name="other")
THIRD = TARGET.varied(target_strength=[1.5, 1.5], name="third")
ALIGNED = {"inputs": 2, "outputs": 2, "hidden_size": 2, "initial": 0.3}
NETWORK = lc.LinearRNN.aligned(recurrence=0.8, **ALIGNED)
#: A network that is not aligned, one whose recurrence is not scalar, and one with activations.
RANDOM = np.random.default_rng(0).normal(size=(3, 2, 2))
LEANING = lc.LinearRNN(0.4 * RANDOM[0], 0.6 * np.eye(2), 0.4 * RANDOM[1])
CROOKED = lc.LinearRNN(0.4 * RANDOM[0], np.diag([0.6, 0.3]), 0.4 * RANDOM[1])
LAYERS = lc.TwoLayer.balanced(2, 3, 2, scale=0.3, rng=np.random.default_rng(1))
STATIC = lc.tasks.static(np.diag([1.0, 0.5]), name="static")
ASKED = lc.Terms(goal=lc.Accuracy(0.9))
SINGLE = lc.tasks.integration(4, name="single")
RECTIFIED = lc.Activated(lc.LinearRNN.aligned(hidden_size=2, recurrence=0.7, initial=0.3), "relu")


def spec(result: Any) -> str:
    if hasattr(result, "attrs"):
        return str(result.attrs["provenance_spec_hash"])
    origin = result.provenance
    return str((origin() if callable(origin) else origin).spec_hash)


def trials(seed: int, name: str, repeats: int = 1, **options: Any) -> lc.Task:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 5, 2))
    y = x.sum(axis=1) * [1.0, 0.7] + 0.1 * rng.normal(size=(50, 2))
    return lc.Task.from_samples(np.tile(x, (repeats, 1, 1)), np.tile(y, (repeats, 1)), name=name, **options)


def solved(task: Any = TARGET, network: Any = NETWORK, rate: float = RATE, **options: Any) -> Any:
    options = {"training": lc.Training(rate), **options}
    return lc.forecast(task, network, strict=False, **options).solution


def followed(
    first: Any = OTHER, target: Any = TARGET, network: Any = NETWORK, rate: float = RATE, accuracy: float = 0.9,
    steps: float = 5, **options: Any,
) -> Any:  # fmt: skip
    stages = [lc.Stage(first, steps=steps), lc.Stage(target, goal=accuracy)]
    options = {"training": lc.Training(rate), **options}
    return lc.follow(stages, network, strict=False, **options)


def planned(
    candidates: Any = (OTHER,), target: Any = TARGET, network: Any = NETWORK, rate: float = RATE,
    terms: Any = ASKED, **options: Any,
) -> Any:  # fmt: skip
    return lc.plan(target, list(candidates), network, learning_rate=rate, terms=terms, strict=False, **options)


def measured(network: Any = RECTIFIED, **options: Any) -> Any:
    """A nonlinear network whose responses are measured on trials."""
    return lc.planning.method_for([SINGLE], network, RATE, **options)


def descended(task: Any = TARGET, seed: int = 0, **settings: Any) -> Any:
    training = lc.Training(RATE, **settings)
    return lc.descend(task, NETWORK, training, steps=3, rng=np.random.default_rng(seed))


def portrayed(target: Any = TARGET, network: Any = NETWORK, rate: float = RATE, **options: Any) -> Any:
    grid = {"vary": "target_strength", "values": [[2.0, 1.0]], "accuracies": [0.5]} | options
    return lc.phase(target, network, learning_rate=rate, strict=False, **grid)


BIGGER = lc.LinearRNN.aligned(recurrence=0.8, **{**ALIGNED, "initial": 0.31})
FASTER = lc.LinearRNN.aligned(recurrence=0.81, **ALIGNED)
TERMS = {
    "goal": lc.Accuracy(0.91), "max_stages": 3, "costs": [1.0, 2.0], "switch_cost": 1.0, "least_accuracy": 0.1,
    "most_accuracy": 0.9, "most_excess_loss": 50.0,
}  # fmt: skip
WEIGHTS = ("input",), ("output",), ("input", "recurrent", "output")
LEARNED = {names: lc.Training(RATE, learn=names) for names in WEIGHTS}
EVERYTHING = LEARNED["input", "recurrent", "output"]
BATCHES = {"batch": 8}, {"batch": 9}, {"batch": 8, "shuffle": True}, {"batch": 8, "seed": 1}
CHANGED_TERMS = [*TERMS.items(), ("goal", lc.Loss(0.02))]

CASES: dict[str, tuple[Callable[..., Any], list[dict[str, Any]]]] = {
    "solution": (
        solved,
        [
            {}, {"task": OTHER}, {"network": BIGGER}, {"network": FASTER}, {"rate": 2 * RATE}, {"method": "two-layer"},
            {"method": "flow"}, *({"training": one} for one in LEARNED.values()),
            {"network": LEANING}, {"network": CROOKED}, {"task": STATIC, "network": LAYERS},
            {"task": STATIC, "network": LAYERS, "method": "flow"}, {"task": trials(0, "target")},
            {"task": trials(1, "target")}, {"task": SINGLE, "network": RECTIFIED},
            {"task": SINGLE, "network": RECTIFIED, "seed": 1}, {"task": trials(0, "target", centre=True)},
            {"task": trials(0, "target", repeats=2)}, {"task": trials(0, "target", repeats=4)},
        ],
    ),
    "curriculum": (
        followed,
        [
            {}, {"first": THIRD}, {"target": THIRD}, {"network": BIGGER}, {"network": FASTER}, {"rate": 2 * RATE},
            {"accuracy": 0.91}, {"steps": 6}, {"method": "two-layer"}, {"method": "pooled"}, {"method": "flow"},
            {"first": TARGET, "target": OTHER}, {"network": LEANING}, {"network": CROOKED, "accuracy": 0.5},
            {"network": LEANING, "training": EVERYTHING, "accuracy": 0.3},
            {"first": trials(0, "a"), "target": trials(1, "b")},
            {"first": trials(0, "a"), "target": trials(1, "b"), "seed": 1},
            *({"training": lc.Training(RATE, **settings)} for settings in BATCHES),
            {"first": SINGLE.varied(target_strength=1.5, name="strong"), "target": SINGLE, "network": RECTIFIED},
            {"first": SINGLE.varied(target_strength=1.5, name="strong"), "target": SINGLE, "network": RECTIFIED,
             "seed": 1},
        ],
    ),
    "plan": (
        planned,
        [
            {}, {"candidates": [THIRD]}, {"candidates": [OTHER, THIRD]}, {"target": THIRD}, {"network": BIGGER},
            {"network": FASTER}, {"rate": 2 * RATE}, {"method": "two-layer"}, {"method": "pooled"},
            *({"terms": ASKED.with_(**{name: value})} for name, value in CHANGED_TERMS),
            {"candidates": [trials(0, "a")], "target": trials(1, "b"), "network": LEANING},
            {"candidates": [trials(0, "a")], "target": trials(1, "b"), "network": LEANING, "seed": 1},
        ],
    ),
    "measured": (
        measured,
        [{}, {"trials": 500}, {"seed": 1}, {"network": lc.Activated(RECTIFIED.network, "tanh")},
         {"network": lc.Activated(RECTIFIED.network, "tanh"), "trials": 500}, {"method": "responses"}],
    ),
    "descent": (
        descended,
        [
            {}, {"task": OTHER}, {"optimizer": "adam"}, {"optimizer": "adam", "betas": (0.8, 0.999)}, *BATCHES[:3],
            {"optimizer": "momentum"}, {"optimizer": "momentum", "momentum": 0.5}, {"batch": 8, "seed": 1},
            {"optimizer": "adam", "eps": 1e-6}, {"optimizer": "adam", "weight_decay": 0.1}, {"learn": ("input",)},
        ],
    ),
    "portrait": (
        portrayed,
        [
            {}, {"target": OTHER}, {"network": BIGGER}, {"rate": 2 * RATE}, {"values": [[2.0, 1.1]]},
            {"accuracies": [0.51]}, {"goal": 0.9}, {"vary": "input_strength", "values": [[2.0, 1.0]]},
            {"method": "two-layer"}, {"method": "pooled"}, {"network": LEANING},
        ],
    ),
}  # fmt: skip


@pytest.mark.slow_cases("plan")
@pytest.mark.parametrize("kind", CASES)
def test_every_change_of_the_question_changes_the_hash(kind: str) -> None:
    make, changes = CASES[kind]
    hashes = [spec(make(**change)) for change in changes]
    twice = [(changes[k], changes[j]) for k in range(len(hashes)) for j in range(k) if hashes[j] == hashes[k]]
    assert not twice


@pytest.mark.parametrize("kind", CASES)
def test_equal_questions_have_equal_hashes(kind: str) -> None:
    make, _ = CASES[kind]
    assert spec(make()) == spec(make())


def test_a_chosen_method_and_the_same_method_by_name_have_equal_hashes() -> None:
    assert spec(followed()) == spec(followed(method="modes"))
    assert spec(followed(network=LEANING)) == spec(followed(network=LEANING, method="pooled"))


def test_the_limit_of_steps_is_part_of_a_hash_because_a_goal_may_lie_beyond_it():
    short, long = (lc.Training(RATE, optimizer="adam", most_steps=most) for most in (10, 10_000))
    found = [lc.forecast(TARGET, NETWORK, training, lc.Explained(0.9)) for training in (short, long)]
    assert [one.steps.status for one in found] == [lc.Status.not_within, lc.Status.ok]
    assert len({one.provenance.spec_hash for one in found}) == 2
