"""Errors: a short message, the argument it is about, and the right type, also after pickling."""

import pickle

import pytest

import learncast as lc
from learncast.theory import assumptions

PLAIN = (lc.LearncastError, lc.InvalidSpec, lc.UnsupportedModel, lc.SchemaMismatch, lc.NotLearned)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_error_has_a_message_and_a_field(kind):
    error = kind("steps must be positive, got -3.", field="steps")
    assert str(error) == "steps must be positive, got -3."
    assert error.field == "steps"
    assert kind("no field").field is None


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [(lc.InvalidSpec, ValueError), (lc.SchemaMismatch, ValueError), (lc.UnsupportedModel, TypeError)],
)
def test_errors_are_also_the_builtin_a_caller_expects(kind, builtin):
    assert issubclass(kind, builtin)


@pytest.mark.parametrize("kind", [lc.NotLearned, lc.AssumptionViolated])
def test_an_outcome_of_the_theory_is_not_a_value_error(kind):
    assert issubclass(kind, lc.LearncastError)
    assert not issubclass(kind, (ValueError, TypeError))


@pytest.mark.parametrize("kind", PLAIN)
def test_errors_survive_pickling(kind):
    error = kind("steps must be positive, got -3.", field="steps")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.field) == (kind, str(error), "steps")


def test_a_violated_assumption_keeps_its_numbers_when_pickled():
    error = lc.AssumptionViolated("not aligned", assumption="aligned_start", measured=0.25, allowed=1e-8)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.assumption, copy.measured, copy.allowed) == ("aligned_start", 0.25, 1e-8)
    assert str(copy) == str(error)


@pytest.mark.parametrize("name", assumptions.ASSUMPTIONS)
def test_the_error_of_a_condition_has_its_numbers(name):
    allowed = assumptions.ASSUMPTIONS[name].allowed
    measured = 10 * allowed + 1
    error = assumptions.Assumption(name, measured).violation()
    assert (error.assumption, error.measured, error.allowed) == (name, measured, allowed)
    assert str(error).startswith(name)
    assert f"{measured:.4g}" in str(error)
