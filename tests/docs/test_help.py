"""Docstrings of public names: complete, with an example that runs, and without addresses."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="some packages train networks")
import public_names

import learncast as lc

NAMES = [one for one in public_names.every() if one.documents_itself]
LOOSE = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def has(one, section):
    return re.search(rf"^{section}\n-+$", inspect.getdoc(one.value) or "", re.MULTILINE) is not None


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.path)
def test_docstrings_have_the_required_sections(one):
    plain_error = inspect.isclass(one.value) and issubclass(one.value, lc.LearncastError) and not has(one, "Attributes")
    sections = [] if plain_error and one.value is not lc.LearncastError else ["Examples"]
    if inspect.isfunction(one.value):
        signature = inspect.signature(one.value)
        sections += ["Parameters"] if signature.parameters else []
        sections += ["Returns"] if signature.return_annotation != "None" else []
    assert not [section for section in sections if not has(one, section)]


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.path)
def test_every_argument_is_documented(one):
    if not (inspect.isfunction(one.value) or has(one, "Parameters")):
        return
    text = inspect.getdoc(one.value)
    given = [p.name for p in inspect.signature(one.value).parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert not [name for name in given if not re.search(rf"^(.*, )?\*?{name}\b", text, re.MULTILINE)]


@pytest.fixture
def lightning(monkeypatch):
    """Replace Lightning by its one base class of callbacks, unless it is installed."""
    if find_spec("lightning") is None:
        made = {name: ModuleType(name) for name in ("lightning", "lightning.pytorch")}
        made["lightning.pytorch"].Callback = type("Callback", (), {})
        for name, module in made.items():
            module.__spec__ = ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("lightning")
@pytest.mark.parametrize("one", [n for n in NAMES if ">>>" in (inspect.getdoc(n.value) or "")], ids=lambda n: n.path)
def test_examples_give_the_output_they_show(one):
    home = vars(import_module(one.value.__module__))
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(one.value), {}, one.path, home.get("__file__"), 0)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=LOOSE).run(test, out=output.append, clear_globs=True)
    assert not result.failed, "".join(output)


def test_no_signature_has_an_address():
    for one in NAMES:
        try:
            signature = str(inspect.signature(one.value))
        except ValueError:  # an exception with the signature of the builtin
            continue
        assert " at 0x" not in signature, one.path
        assert "<function" not in signature, one.path


def test_packages_list_only_public_names():
    for package in lc._PACKAGES:
        module = getattr(lc, package)
        names = dir(module)
        assert set(getattr(module, "__all__", names)) == set(names), package
        assert not [n for n in names if n.startswith("_")], package
        assert not [n for n in names if isinstance(getattr(module, n), ModuleType)] or package == "tasks"
