"""Terms of a plan: what they refuse, how they hash, and what their files hold."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

import learncast as lc
from learncast import Terms
from learncast.planning.terms import checked_pool

GOAL = lc.Accuracy(0.99)
#: A value of every field that is not its default.
OTHER: dict[str, Any] = {
    "goal": lc.Explained(0.9),
    "max_stages": 3,
    "costs": 2.0,
    "switch_cost": 5.0,
    "least_accuracy": 0.2,
    "most_accuracy": 0.8,
    "most_excess_loss": 1.5,
}


def refused_field(call: Any) -> str | None:
    with pytest.raises(lc.InvalidSpec) as caught:
        call()
    return caught.value.field


# ---- validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"goal": 1.1}, "accuracy"),
        ({"goal": float("nan")}, "accuracy"),
        ({"goal": "high"}, "goal"),
        ({"max_stages": 0}, "max_stages"),
        ({"max_stages": 1.5}, "max_stages"),
        ({"switch_cost": -1.0}, "switch_cost"),
        ({"switch_cost": float("nan")}, "switch_cost"),
        ({"least_accuracy": 1.2}, "least_accuracy"),
        ({"least_accuracy": "high"}, "least_accuracy"),
        ({"most_accuracy": [-0.5, 0.5]}, "most_accuracy"),
        ({"least_accuracy": 0.9, "most_accuracy": 0.8}, "least_accuracy"),
        ({"least_accuracy": [0.1, 0.9], "most_accuracy": [0.5, 0.8]}, "least_accuracy"),
        ({"most_excess_loss": -1.0}, "most_excess_loss"),
        ({"most_excess_loss": [1.0, -1.0]}, "most_excess_loss"),
        ({"costs": 0.0}, "costs"),
        ({"costs": [1.0, -1.0]}, "costs"),
        ({"costs": [1.0, float("nan")]}, "costs"),
        ({"costs": "dear"}, "costs"),
    ],
    ids=str,
)
def test_terms_out_of_range_are_refused_when_they_are_made(given: dict[str, Any], field: str) -> None:
    assert refused_field(lambda: Terms(**given)) == field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"costs": [1.0, 2.0]}, "costs"),
        ({"least_accuracy": [0.5]}, "least_accuracy"),
        ({"most_accuracy": [0.5] * 3}, "most_accuracy"),
        ({"most_excess_loss": [1.0]}, "most_excess_loss"),
    ],
    ids=str,
)
def test_lists_must_match_the_pool(given: dict[str, Any], field: str) -> None:
    assert refused_field(lambda: Terms(**given).over(2, GOAL)) == field


def test_terms_over_a_pool_are_numbers_for_each_candidate() -> None:
    limits = {"least_accuracy": [0.1, np.nan], "most_accuracy": 0.7, "most_excess_loss": [np.nan, 3.0]}
    pool = Terms(costs=2.0, **limits).over(2, GOAL)
    np.testing.assert_array_equal(pool.cost, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(pool.least, [0.1, -np.inf])
    np.testing.assert_array_equal(pool.most, [0.7, 0.7])
    np.testing.assert_array_equal(pool.most_loss, [np.inf, 3.0])
    assert pool.priced
    assert not pool.unrestricted
    assert pool.without_limits.unrestricted
    assert not Terms().over(2, GOAL).priced
    assert Terms().over(2, GOAL).unrestricted
    assert Terms(costs=2.0).over(2, GOAL).unrestricted  # every step costs the same, so the plan does not change
    assert not Terms(costs=[1.0, 1.0, 2.0]).over(2, GOAL).unrestricted
    assert not Terms(switch_cost=1.0).over(2, GOAL).unrestricted


def test_terms_cannot_be_changed() -> None:
    terms = Terms(costs=np.array([1.0, 2.0]))
    assert terms.costs == (1.0, 2.0)
    with pytest.raises(FrozenInstanceError):
        terms.goal = 0.5  # type: ignore[misc]
    assert terms.with_(goal=0.5) == Terms(0.5, costs=[1.0, 2.0])
    assert refused_field(lambda: terms.with_(goal=2.0)) == "accuracy"


def test_direct_training_costs_what_steps_of_the_target_cost() -> None:
    assert Terms(costs=[1.0, 4.0]).direct.over(0, GOAL).cost.tolist() == [4.0]
    assert Terms(costs=3.0, least_accuracy=0.4).direct == Terms(costs=3.0)


# ---- hash and equality ---------------------------------------------------------------------------------------------


def test_every_field_is_in_the_hash() -> None:
    assert set(OTHER) == {f.name for f in fields(Terms)}
    hashes = {"": Terms().hash} | {name: Terms(**{name: value}).hash for name, value in OTHER.items()}
    hashes |= {goal.text: Terms(goal).hash for goal in (lc.Accuracy(0.9), lc.R2(0.9), lc.Loss(0.9))}
    assert len(set(hashes.values())) == len(hashes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"costs": [1.0, 2.0]}, {"costs": np.array([1, 2])}),
        ({"costs": [1, 2]}, {"costs": (1.0, 2.0)}),
        ({"most_accuracy": np.float64(0.5)}, {"most_accuracy": 0.5}),
        ({"max_stages": 3.0}, {"max_stages": 3}),
        ({"switch_cost": 5}, {"switch_cost": 5.0}),
    ],
    ids=str,
)
def test_equal_terms_have_equal_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Terms(**one) == Terms(**other)
    assert Terms(**one).hash == Terms(**other).hash


# ---- files ---------------------------------------------------------------------------------------------------------


# ---- pools ---------------------------------------------------------------------------------------------------------


def test_tasks_of_a_pool_have_different_names() -> None:
    target = lc.tasks.integration(steps=5, name="target")
    strong = target.varied(target_strength=2.0, name="strong")
    assert checked_pool(target, (strong,)) == [strong]
    for pool in ([target.varied(target_strength=2.0)], [strong, strong], [], ["strong"], strong):
        assert refused_field(lambda pool=pool: checked_pool(target, pool)) == "candidates"
    assert refused_field(lambda: checked_pool("target", [strong])) == "target"
