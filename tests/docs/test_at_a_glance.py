"""The table above a result class lists names that exist, with their types, and nothing that users need is missing."""

from __future__ import annotations

import importlib

import at_a_glance
import pytest

pytest.importorskip("torch", reason="windows need it")


@pytest.mark.parametrize("path", at_a_glance.PURPOSES)
def test_every_row_has_a_type_and_a_meaning(path):
    module, name = path.rsplit(".", 1)
    listed = list(at_a_glance.rows(getattr(importlib.import_module(module), name), at_a_glance.PURPOSES[path]))
    purposes = [row for row in listed if not row[2]]
    assert [name for name, *_ in purposes] == list(at_a_glance.PURPOSES[path])
    assert all(kind for _, kind, meaning in listed if meaning)
    assert {"report()", "save()"} <= {name for name, *_ in listed}
