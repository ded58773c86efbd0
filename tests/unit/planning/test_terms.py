"""Terms of a plan: what they refuse, how they hash, and what a file of them says."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

import learncast as lc
from learncast import Terms
from learncast._core.errors import InvalidSpec
from learncast.planning.terms import check_terms, checked_pool

#: A value of every field that is not its default.
OTHER: dict[str, Any] = {
    "accuracy": 0.9,
    "goal": "loss",
    "max_stages": 3,
    "costs": 2.0,
    "switch_cost": 5.0,
    "least_accuracy": 0.2,
    "most_accuracy": 0.8,
    "most_excess_loss": 1.5,
}


def refused(call: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        call()
    error = caught.value
    assert all((error.required, error.got, error.why, error.remedy))
    return str(error)


# ---- validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"accuracy": 1.1}, "accuracy must lie between 0 and 1, but got 1.1"),
        ({"accuracy": float("nan")}, "accuracy must be finite"),
        ({"accuracy": "high"}, "accuracy must be a number"),
        ({"goal": "mode"}, "did you mean 'modes'"),
        ({"max_stages": 0}, "max_stages must be a whole number of at least 1"),
        ({"max_stages": 1.5}, "max_stages must be a whole number of at least 1"),
        ({"switch_cost": -1.0}, "switch_cost"),
        ({"switch_cost": float("nan")}, "switch_cost"),
        ({"least_accuracy": 1.2}, "least_accuracy must lie between 0 and 1"),
        ({"most_accuracy": [-0.5, 0.5]}, "most_accuracy must lie between 0 and 1"),
        ({"least_accuracy": 0.9, "most_accuracy": 0.8}, "least_accuracy must not exceed most_accuracy"),
        ({"least_accuracy": [0.1, 0.9], "most_accuracy": [0.5, 0.8]}, "0.9 and 0.8 for task 1"),
        ({"most_excess_loss": -1.0}, "most_excess_loss must not be negative"),
        ({"most_excess_loss": [1.0, -1.0]}, "most_excess_loss must not be negative"),
        ({"costs": 0.0}, "costs must be positive"),
        ({"costs": [1.0, -1.0]}, "costs must be positive"),
        ({"costs": [1.0, float("nan")]}, "costs must be finite"),
        ({"costs": "dear"}, "costs"),
    ],
    ids=str,
)
def test_terms_that_mean_nothing_are_refused_when_they_are_made(given: dict[str, Any], words: str) -> None:
    assert words in refused(lambda: Terms(**given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"costs": [1.0, 2.0]}, "costs must be one number or one for each of the 3 tasks"),
        ({"costs": [1.0, 2.0]}, "the candidates in their order, then the target"),
        ({"least_accuracy": [0.5]}, "least_accuracy must be one number or one for each of the 2 tasks"),
        ({"most_accuracy": [0.5] * 3}, "most_accuracy must be one number or one for each of the 2 tasks"),
        ({"most_excess_loss": [1.0]}, "most_excess_loss must be one number or one for each of the 2 candidates"),
    ],
    ids=str,
)
def test_lists_must_match_the_pool(given: dict[str, Any], words: str) -> None:
    assert words in refused(lambda: Terms(**given).over(2))


def test_terms_over_a_pool_are_numbers_for_each_candidate() -> None:
    pool = Terms(costs=2.0, least_accuracy=[0.1, float("nan")], most_accuracy=0.7, most_excess_loss=[np.nan, 3.0]).over(
        2
    )
    np.testing.assert_array_equal(pool.cost, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(pool.least, [0.1, -np.inf])
    np.testing.assert_array_equal(pool.most, [0.7, 0.7])
    np.testing.assert_array_equal(pool.most_loss, [np.inf, 3.0])
    assert pool.priced
    assert not pool.plain
    assert not Terms().over(2).priced
    assert Terms().over(2).plain
    assert Terms(costs=2.0).over(2).plain  # the same for every step: the same plan
    assert not Terms(costs=[1.0, 1.0, 2.0]).over(2).plain
    assert not Terms(switch_cost=1.0).over(2).plain


def test_terms_cannot_be_changed() -> None:
    terms = Terms(costs=np.array([1.0, 2.0]))
    assert terms.costs == (1.0, 2.0)
    with pytest.raises(FrozenInstanceError):
        terms.accuracy = 0.5  # type: ignore[misc]
    assert terms.with_(accuracy=0.5) == Terms(goal=lc.Accuracy(0.5), costs=[1.0, 2.0])
    assert "accuracy" in refused(lambda: terms.with_(accuracy=2.0))


def test_the_target_alone_costs_what_its_steps_cost() -> None:
    assert Terms(costs=[1.0, 4.0]).direct.over(0).cost.tolist() == [4.0]
    assert Terms(costs=3.0, least_accuracy=0.4).direct == Terms(costs=3.0)


# ---- hash and equality ---------------------------------------------------------------------------------------------


def test_every_field_is_in_the_hash() -> None:
    assert set(OTHER) == {f.name for f in fields(Terms)}
    found = {"": Terms().hash} | {name: Terms(**{name: value}).hash for name, value in OTHER.items()}
    assert len(set(found.values())) == len(found)


def test_equal_terms_hash_alike() -> None:
    for one, other in (
        ({"costs": [1.0, 2.0]}, {"costs": np.array([1, 2])}),
        ({"costs": [1, 2]}, {"costs": (1.0, 2.0)}),
        ({"accuracy": 1}, {"accuracy": 1.0}),
        ({"most_accuracy": np.float64(0.5)}, {"most_accuracy": 0.5}),
        ({"max_stages": 3.0}, {"max_stages": 3}),
        ({"switch_cost": 5}, {"switch_cost": 5.0}),
    ):
        assert Terms(**one) == Terms(**other)
        assert Terms(**one).hash == Terms(**other).hash


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms",
    [
        Terms(),
        Terms(**OTHER),
        Terms(costs=[1.0, 0.1, 2.5e-7], least_accuracy=[0.1, np.nan], most_excess_loss=[np.inf, 2.0]),
        Terms(goal=lc.Accuracy(np.float64(0.123456789012345678)), switch_cost=np.float64(1e-12)),
        Terms(costs=np.array([1.0, 2.0]), most_accuracy=np.float32(0.5)),
    ],
    ids=str,
)
def test_a_file_of_terms_says_the_same(terms: Terms, tmp_path: Any) -> None:
    again = Terms.load(terms.save(tmp_path / "terms.toml"))
    assert repr(again) == repr(terms)
    assert again.hash == terms.hash


def test_terms_from_a_table() -> None:
    assert Terms.from_dict({"accuracy": 0.9, "costs": [1.0, 2.0]}) == Terms(goal=lc.Accuracy(0.9), costs=(1.0, 2.0))
    assert Terms.from_dict({}) == Terms()
    words = refused(lambda: Terms.from_dict({"acuracy": 0.9}))
    assert "did you mean 'accuracy'" in words


def test_a_file_that_is_no_terms_is_refused(tmp_path: Any) -> None:
    assert "the file of terms must exist" in refused(lambda: Terms.load(tmp_path / "missing.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("accuracy = ")
    assert "broken.toml must be a TOML file" in refused(lambda: Terms.load(broken))
    other = tmp_path / "other.toml"
    other.write_text("[target]\nfamily = 'integration'\n")
    assert "terms are accuracy" in refused(lambda: Terms.load(other))


# ---- where they are asked for --------------------------------------------------------------------------------------


def test_keywords_that_moved_into_terms_are_named() -> None:
    for name, value in OTHER.items():
        words = refused(lambda name=name, value=value: check_terms(Terms(), {name: value}))
        assert f"{name} is one of the terms of a plan" in words
        assert f"pass terms=learncast.Terms({name}=...)" in words
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        check_terms(Terms(), {"colour": 1})
    assert "terms must be learncast.Terms, but got dict" in refused(lambda: check_terms({"accuracy": 0.9}, {}))
    assert "terms must be learncast.Terms, but got NoneType" in refused(lambda: check_terms(None, {}))


def test_a_plan_refuses_moved_keywords_before_it_looks_at_tasks() -> None:
    words = refused(lambda: lc.plan(None, [], None, learning_rate=1e-3, accuracy=0.9))  # type: ignore[arg-type]
    assert "accuracy is one of the terms of a plan" in words


def test_a_pool_is_of_tasks_with_names_of_their_own() -> None:
    target = lc.tasks.integration(steps=5, name="target")
    strong = target.varied(target_strength=2.0, name="strong")
    assert checked_pool(target, (strong,)) == [strong]
    assert "2 called 'target'" in refused(lambda: checked_pool(target, [target.varied(target_strength=2.0)]))
    assert "2 called 'strong'" in refused(lambda: checked_pool(target, [strong, strong]))
