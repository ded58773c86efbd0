"""What `help` says of every public name: whole, with an example that runs, and without addresses."""

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

pytest.importorskip("torch", reason="some rooms train")
import public_names

import learncast as lc

NAMES = [one for one in public_names.every() if one.documents_itself]
LOOSE = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def has(one, section):
    return re.search(rf"^{section}\n-+$", inspect.getdoc(one.value) or "", re.MULTILINE) is not None


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.path)
def test_names_are_documented_whole(one):
    sections = ["Examples", "See Also"]
    if inspect.isfunction(one.value):
        signature = inspect.signature(one.value)
        sections += ["Parameters"] if signature.parameters else []
        sections += ["Returns"] if signature.return_annotation != "None" else []
    assert not [section for section in sections if not has(one, section)]


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.path)
def test_every_argument_is_documented(one):
    if not (inspect.isfunction(one.value) or has(one, "Parameters")):
        return
    told = inspect.getdoc(one.value)
    given = [p.name for p in inspect.signature(one.value).parameters.values() if p.kind is not p.VAR_KEYWORD]
    assert not [name for name in given if not re.search(rf"^(.*, )?\*?{name}\b", told, re.MULTILINE)]


def test_names_to_see_also_are_there():
    """As they are imported, or from `learncast` or the module on; a method by its class."""
    known = {one.path: one.value for one in public_names.every()}

    def is_there(path):
        owner, _, method = path.rpartition(".")
        return path in known or hasattr(known.get(owner), method)

    for one in NAMES:
        told = re.search(r"^See Also\n-+\n(.*?)(\n\n|\Z)", inspect.getdoc(one.value), re.DOTALL | re.MULTILINE)
        for name in re.split(r",\s+", told[1]):
            places = ("learncast.", f"{one.module}.", f"{one.value.__module__}.", "")
            assert any(is_there(place + name) for place in places), f"{one.path} says {name}"


@pytest.fixture
def lightning(monkeypatch):
    """Where Lightning is not installed, the one class of it that its callbacks are made from."""
    if find_spec("lightning") is None:
        made = {name: ModuleType(name) for name in ("lightning", "lightning.pytorch")}
        made["lightning.pytorch"].Callback = type("Callback", (), {})
        for name, module in made.items():
            module.__spec__ = ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("lightning")
@pytest.mark.parametrize("one", [n for n in NAMES if ">>>" in (inspect.getdoc(n.value) or "")], ids=lambda n: n.path)
def test_examples_run_and_give_what_they_show(one):
    home = vars(import_module(one.value.__module__))
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(one.value), {}, one.path, home.get("__file__"), 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=LOOSE).run(test, out=told.append, clear_globs=True)
    assert not result.failed, "".join(told)


def test_no_signature_has_an_address():
    for one in NAMES:
        try:
            signature = str(inspect.signature(one.value))
        except ValueError:  # an exception that takes what it is given
            continue
        assert " at 0x" not in signature, one.path
        assert "<function" not in signature, one.path


def test_rooms_show_what_people_use():
    for room in lc._ROOMS:
        module = getattr(lc, room)
        shown = dir(module)
        assert set(getattr(module, "__all__", shown)) == set(shown), room
        assert not [n for n in shown if n.startswith("_")], room
        assert not [n for n in shown if isinstance(getattr(module, n), ModuleType)] or room == "tasks"
