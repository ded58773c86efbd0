"""Every public name exists and has a docstring."""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="some packages train networks")
import public_names

import learncast as lc

NAMES = public_names.every()


def test_every_name_has_a_docstring_of_its_own():
    for one in NAMES:
        value = one.value
        if one.documents_itself:
            text = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
            assert text, one.path
            assert not text.startswith(f"{one.name}("), f"{one.path} has the generated docstring of a dataclass"


def test_every_constant_has_a_description():
    docstrings = pytest.importorskip("docstrings", reason="Sphinx is not installed")
    constants = [one for one in NAMES if not one.documents_itself and not callable(one.value)]
    assert len(constants) >= 11
    assert not [one.path for one in constants if not docstrings.comment(one.path, one.value)]


def test_public_methods_have_docstrings():
    missing = [
        f"{one.path}.{key}"
        for one in NAMES
        if one.documents_itself and inspect.isclass(one.value)
        for key, value in vars(one.value).items()
        if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
        if not inspect.getdoc(getattr(one.value, key))
    ]
    assert not missing


def test_all_public_names_are_in_the_reference():
    listed = {one.path for one in NAMES}
    for name in lc.__all__:
        value = getattr(lc, name)
        assert name in public_names.PACKAGES if isinstance(value, ModuleType) else f"learncast.{name}" in listed


def test_a_name_is_not_hidden_by_the_module_it_comes_from():
    assert callable(lc.theory.response)
    assert callable(lc.theory.response), "the second access finds the module"
    for package in lc._PACKAGES:
        module = getattr(lc, package)
        for name in getattr(module, "_HOME", {}):
            assert not isinstance(getattr(module, name), ModuleType), f"{package}.{name}"


def test_examples_can_be_parsed():
    """Sphinx would show an example with a syntax error as text."""
    parser = doctest.DocTestParser()
    for one in NAMES:
        if one.documents_itself:
            parser.get_examples(inspect.getdoc(one.value) or "", one.path)
