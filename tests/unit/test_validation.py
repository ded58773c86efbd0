"""Checks at the public boundary: what passes, what does not, and what the sentence says."""

import numpy as np
import pytest

from learncast._core.errors import InvalidSpec, suggestion
from learncast._core.validation import between, count, one_of, positive, real_array


@pytest.mark.parametrize(
    "value", [[1, 2], (1.0, 2.0), np.array([1, 2], dtype=np.int8), np.array([1, 2], dtype=np.float32), [True, 2]]
)
def test_numbers_of_any_kind_become_float64(value):
    array = real_array("x", value, ndim=1)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, [1.0, 2.0])


def test_a_torch_tensor_with_a_gradient_becomes_an_array():
    torch = pytest.importorskip("torch")
    array = real_array("x", torch.tensor([1.0, 2.0], requires_grad=True))
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, [1.0, 2.0])


@pytest.mark.parametrize("value", ["abc", [[1, 2], [3]], [1j], [{}], np.array([object()])])
def test_what_is_not_real_numbers_is_refused(value):
    with pytest.raises(InvalidSpec, match=r"^x must be an array of real numbers, but got .+; pass x as a rectangular"):
        real_array("x", value)


@pytest.mark.parametrize(
    ("ndim", "words"),
    [(1, "must have 1 dimension, but got shape (2, 3)"), ((3, 4), "must have 3 or 4 dimensions, but got shape (2, 3)")],
)
def test_the_number_of_axes_is_checked(ndim, words):
    with pytest.raises(InvalidSpec) as caught:
        real_array("weights", np.ones((2, 3)), ndim=ndim)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([[1.0, np.nan], [3.0, 4.0]], "1 NaN or infinite value, the first at index (0, 1)"),
        ([[1.0, 2.0], [np.inf, -np.inf]], "2 NaN or infinite values, the first at index (1, 0)"),
    ],
)
def test_the_first_value_that_is_not_finite_is_named(bad, words):
    with pytest.raises(InvalidSpec) as caught:
        real_array("inputs", bad)
    assert words in str(caught.value)
    assert caught.value.required == "inputs must be finite"


def test_good_numbers_pass():
    assert positive("n", "2.5", why="w") == 2.5
    assert between("n", 0, 0.0, 1.0, why="w") == 0.0
    assert between("n", 1, 0.0, 1.0, why="w") == 1.0
    assert count("n", np.int64(3), why="w") == 3
    assert isinstance(count("n", 3.0, why="w"), int)
    assert count("n", 0, least=0, why="w") == 0
    assert one_of("n", "end", ("end", "every_step"), why="w") == "end"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            lambda: positive("rate", 0, why="it moves"),
            "rate must be positive, but got 0: it moves; choose rate above 0.",
        ),
        (lambda: positive("rate", -1e-3, why="w"), "rate must be positive, but got -0.001"),
        (lambda: positive("rate", float("nan"), why="w"), "rate must be finite, but got nan"),
        (lambda: positive("rate", float("inf"), why="w"), "rate must be finite, but got inf"),
        (lambda: positive("rate", None, why="w"), "rate must be a number, but got None"),
        (lambda: positive("rate", [1, 2], why="w"), "rate must be a number, but got [1, 2]"),
        (lambda: positive("rate", 1j, why="w"), "rate must be a number, but got 1j"),
        (lambda: between("accuracy", 1.5, 0, 1, why="w"), "accuracy must lie between 0 and 1, but got 1.5"),
        (lambda: between("accuracy", float("nan"), 0, 1, why="w"), "accuracy must be finite, but got nan"),
        (lambda: count("steps", 2.5, why="w"), "steps must be a whole number of at least 1, but got 2.5"),
        (lambda: count("steps", 0, why="w"), "steps must be a whole number of at least 1, but got 0"),
        (lambda: count("steps", float("inf"), why="w"), "steps must be finite, but got inf"),
        (lambda: one_of("when", "endd", ("end", "every"), why="w"), "when must be one of end, every, but got 'endd'"),
    ],
)
def test_bad_numbers_are_refused_in_words(check, words):
    with pytest.raises(InvalidSpec) as caught:
        check()
    assert str(caught.value).startswith(words)
    assert all((caught.value.required, caught.value.got, caught.value.why, caught.value.remedy))


def test_a_number_from_numpy_is_shown_as_a_number():
    with pytest.raises(InvalidSpec) as caught:
        between("accuracy", np.float64(1.5), 0, 1, why="w")
    assert caught.value.got == "1.5"


def test_a_long_value_is_cut():
    with pytest.raises(InvalidSpec) as caught:
        positive("rate", "x" * 500, why="w")
    assert len(caught.value.got) == 60
    assert caught.value.got.endswith("...")


def test_suggestions_name_a_close_word_and_only_a_close_one():
    assert suggestion("target_strenght", ("target_strength", "steps")) == "did you mean 'target_strength'?"
    assert suggestion("zzz", ("target_strength", "steps")) == ""


def test_a_choice_far_from_all_words_gets_no_guess():
    with pytest.raises(InvalidSpec, match="use one of these words"):
        one_of("when", "zzz", ("end", "every_step"), why="w")
