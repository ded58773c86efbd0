"""The table above a result class lists names that exist, with their types, and nothing that users need is missing."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import fields

import pytest

pytest.importorskip("torch", reason="windows need it")
at_a_glance = pytest.importorskip("at_a_glance", reason="numpydoc is not installed")


@pytest.mark.parametrize("path", at_a_glance.PURPOSES)
def test_every_row_has_a_type_and_a_meaning(path):
    module, name = path.rsplit(".", 1)
    listed = list(at_a_glance.rows(getattr(importlib.import_module(module), name), at_a_glance.PURPOSES[path]))
    purposes = [row for row in listed if not row[2]]
    assert [name for name, *_ in purposes] == list(at_a_glance.PURPOSES[path])
    assert all(kind for _, kind, meaning in listed if meaning)
    assert {"report()", "save(path)"} <= {name for name, *_ in listed}


@pytest.mark.parametrize("path", at_a_glance.PURPOSES)
def test_every_public_attribute_is_described_once(path):
    module, name = path.rsplit(".", 1)
    cls = getattr(importlib.import_module(module), name)
    names = [name for group in at_a_glance.complete(cls, at_a_glance.PURPOSES[path]).values() for name in group]
    assert len(names) == len(set(names))
    own = {name for name, value in vars(cls).items() if isinstance(value, property) or inspect.isroutine(value)}
    assert {name for name in own if not name.startswith("_")} | {field.name for field in fields(cls)} <= set(names)
    below = {name for name in names if at_a_glance.explained_below(cls, name)}
    assert set(at_a_glance.tabled()[path]) == set(names) - below
