"""Checks of arguments: accepted values, rejected values, and the argument that the error names."""

import numpy as np
import pytest

import learncast as lc
from learncast._core import errors, validation


@pytest.mark.parametrize(
    "value", [[1, 2], (1.0, 2.0), np.array([1, 2], dtype=np.int8), np.array([1, 2], dtype=np.float32), [True, 2]]
)
def test_numbers_of_any_type_become_float64(value):
    array = validation.real_array("x", value, ndim=1)
    assert array.dtype == np.float64
    np.testing.assert_array_equal(array, [1.0, 2.0])


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_torch_tensor_with_a_gradient_becomes_an_array(dtype):
    torch = pytest.importorskip("torch")
    array = validation.real_array("x", torch.tensor([1.0, 2.0], requires_grad=True, dtype=getattr(torch, dtype)))
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, [1.0, 2.0])


@pytest.mark.parametrize("value", ["abc", [[1, 2], [3]], [1j], [{}], np.array([object()])])
def test_values_that_are_not_real_numbers_raise(value):
    with pytest.raises(lc.InvalidSpec) as error:
        validation.real_array("x", value)
    assert error.value.field == "x"


@pytest.mark.parametrize("ndim", [1, (3, 4)])
def test_the_number_of_dimensions_is_checked(ndim):
    with pytest.raises(lc.InvalidSpec) as error:
        validation.real_array("weights", np.ones((2, 3)), ndim=ndim)
    assert error.value.field == "weights"
    assert "(2, 3)" in str(error.value)
    assert validation.real_array("weights", np.ones((2, 3)), ndim=(1, 2)).shape == (2, 3)


@pytest.mark.parametrize(
    ("bad", "index", "number"),
    [([[1.0, np.nan], [3.0, 4.0]], "(0, 1)", "1"), ([[1.0, 2.0], [np.inf, -np.inf]], "(1, 0)", "2")],
)
def test_the_first_value_that_is_not_finite_is_located(bad, index, number):
    with pytest.raises(lc.InvalidSpec) as error:
        validation.real_array("inputs", bad)
    assert error.value.field == "inputs"
    assert index in str(error.value)
    assert f" {number} " in str(error.value)
    with pytest.raises(lc.InvalidSpec) as error:  # as a part of a larger array, with names of the axes
        validation.real_array("inputs", bad, numbers=np.array([70, 71]), axes=("trial", "step"))
    assert f"trial {70 + int(index[1])}" in str(error.value)


def test_valid_values_are_converted():
    assert validation.positive("n", "2.5") == 2.5
    assert validation.between("n", 0, 0.0, 1.0) == 0.0
    assert validation.between("n", 1, 0.0, 1.0) == 1.0
    assert validation.count("n", np.int64(3)) == 3
    assert isinstance(validation.count("n", 3.0), int)
    assert validation.count("n", 0, least=0) == 0
    assert validation.one_of("n", "end", ("end", "every_step")) == "end"
    assert validation.increasing("n", np.array([1, 3, 9]), most=9) == (1, 3, 9)
    assert validation.evenly(0, 1, 3) == [0.0, 0.5, 1.0]
    np.testing.assert_array_equal(validation.one_or_each("n", 2, 3, of="modes"), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(validation.one_or_each("n", [1, 2, 3], 3, of="modes"), [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("check", "given"),
    [
        (lambda: validation.positive("n", 0), "0"),
        (lambda: validation.positive("n", -1e-3), "-0.001"),
        (lambda: validation.positive("n", float("nan")), "nan"),
        (lambda: validation.positive("n", float("inf")), "inf"),
        (lambda: validation.positive("n", None), "None"),
        (lambda: validation.positive("n", [1, 2]), "[1, 2]"),
        (lambda: validation.positive("n", 1j), "1j"),
        (lambda: validation.between("n", 1.5, 0, 1), "1.5"),
        (lambda: validation.between("n", np.float64(1.5), 0, 1), "got 1.5."),  # not as a numpy scalar
        (lambda: validation.between("n", float("nan"), 0, 1), "nan"),
        (lambda: validation.count("n", 2.5), "2.5"),
        (lambda: validation.count("n", 0), "0"),
        (lambda: validation.count("n", float("inf")), "inf"),
        (lambda: validation.one_of("n", "endd", ("end", "every")), "'endd'"),
        (lambda: validation.increasing("n", [2, 2]), "[2, 2]"),
        (lambda: validation.increasing("n", [1, 5], most=4), "[1, 5]"),
        (lambda: validation.increasing("n", []), "[]"),
        (lambda: validation.one_or_each("n", [1, 2], 3, of="modes"), "2"),
    ],
)
def test_invalid_values_raise_with_argument_and_value(check, given):
    with pytest.raises(lc.InvalidSpec) as error:
        check()
    assert error.value.field == "n"
    assert given in str(error.value)


@pytest.mark.parametrize(("low", "high", "points", "field"), [(1, 1, 3, "low"), (0, 1, 1, "points")])
def test_an_even_grid_needs_a_range_and_two_points(low, high, points, field):
    with pytest.raises(lc.InvalidSpec) as error:
        validation.evenly(low, high, points)
    assert error.value.field == field


def test_a_long_value_is_cut():
    with pytest.raises(lc.InvalidSpec) as error:
        validation.positive("rate", "x" * 500)
    assert len(str(error.value)) < 100
    assert "..." in str(error.value)


def test_a_frozen_array_is_a_read_only_copy():
    array = np.ones(2)
    copy = validation.frozen(array)
    array[0] = 5.0
    assert copy[0] == 1.0
    assert not copy.flags.writeable


def test_only_close_words_are_suggested():
    assert "'target_strength'" in errors.suggestion("target_strenght", ("target_strength", "steps"))
    assert errors.suggestion("zzz", ("target_strength", "steps")) == ""


def test_numbers_as_text_are_kept_as_numbers():
    training = lc.Training("1e-3", batch="64")
    assert (training.learning_rate, training.batch) == (1e-3, 64)
    assert training.hash == lc.Training(1e-3, batch=64).hash
