"""Errors: one sentence in four parts, of the right kind, whole after pickling."""

import pickle

import pytest

from learncast._core.errors import (
    AssumptionViolated,
    InvalidSpec,
    LearncastError,
    NotLearned,
    SchemaMismatch,
    UnsupportedModel,
)
from learncast.theory import ASSUMPTIONS, Assumption

PARTS = {
    "required": "steps must be positive",
    "got": "-3",
    "why": "time runs forward",
    "remedy": "choose steps above 0",
}
PLAIN = (LearncastError, InvalidSpec, UnsupportedModel, SchemaMismatch, NotLearned)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_is_one_sentence_in_four_parts(kind):
    error = kind(**PARTS)
    assert str(error) == "steps must be positive, but got -3: time runs forward; choose steps above 0."
    assert {key: getattr(error, key) for key in PARTS} == PARTS


def test_a_question_keeps_its_own_mark():
    assert str(InvalidSpec(**{**PARTS, "remedy": "did you mean 'steps'?"})).endswith("; did you mean 'steps'?")


@pytest.mark.parametrize("missing", PARTS)
def test_no_part_may_be_left_out(missing):
    with pytest.raises(TypeError, match=missing):
        InvalidSpec(**{key: value for key, value in PARTS.items() if key != missing})


@pytest.mark.parametrize(
    ("kind", "builtin"), [(InvalidSpec, ValueError), (SchemaMismatch, ValueError), (UnsupportedModel, TypeError)]
)
def test_errors_are_also_the_builtin_a_caller_expects(kind, builtin):
    with pytest.raises(builtin):
        raise kind(**PARTS)


@pytest.mark.parametrize("kind", [NotLearned, AssumptionViolated])
def test_an_outcome_of_the_theory_is_not_a_value_error(kind):
    assert issubclass(kind, LearncastError)
    assert not issubclass(kind, (ValueError, TypeError))


@pytest.mark.parametrize("kind", PLAIN)
def test_errors_cross_process_boundaries(kind):
    error = kind(**PARTS)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.remedy == error.remedy


def test_a_violated_assumption_keeps_its_numbers_across_processes():
    error = AssumptionViolated(assumption="aligned_start", measured=0.25, allowed=1e-8, **PARTS)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.assumption, copy.measured, copy.allowed) == ("aligned_start", 0.25, 1e-8)
    assert str(copy) == str(error)


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_every_condition_can_say_that_it_fails(name):
    allowed = ASSUMPTIONS[name].allowed
    error = Assumption(name, 10 * allowed + 1).violation()
    assert error.assumption == name
    assert error.measured == 10 * allowed + 1
    assert error.allowed == allowed
    assert str(error).startswith(f"{name} requires that ")
    assert f"{10 * allowed + 1:.4g}" in error.got
    assert all(len(part) > 5 for part in (error.required, error.why, error.remedy))
