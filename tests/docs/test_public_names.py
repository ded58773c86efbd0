"""Every public name is what it says, and is documented."""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="some rooms train")
import public_names

import learncast as lc

NAMES = public_names.every()


def test_every_name_has_a_docstring_of_its_own():
    for one in NAMES:
        value = one.value
        if one.documents_itself:
            told = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
            assert told, one.path
            assert not told.startswith(f"{one.name}("), f"{one.path} has the docstring that a dataclass writes itself"


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


def test_all_names_of_the_rooms_are_in_the_reference():
    listed = {one.path for one in NAMES}
    for name in lc.__all__:
        value = getattr(lc, name)
        assert name in public_names.ROOMS if isinstance(value, ModuleType) else f"learncast.{name}" in listed


def test_a_name_is_not_hidden_by_the_module_it_comes_from():
    assert callable(lc.theory.richness)
    assert callable(lc.theory.richness), "the second look finds the module"
    for room in lc._ROOMS:
        module = getattr(lc, room)
        for name in getattr(module, "_HOME", {}):
            assert not isinstance(getattr(module, name), ModuleType), f"{room}.{name}"


def test_examples_can_be_parsed():
    """A fault in one would be shown as text."""
    parser = doctest.DocTestParser()
    for one in NAMES:
        if one.documents_itself:
            parser.get_examples(inspect.getdoc(one.value) or "", one.path)
