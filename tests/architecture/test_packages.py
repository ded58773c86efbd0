"""Every name that a package exports can be imported from it, in any order."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import learncast

PACKAGES = sorted({one.name for one in pkgutil.iter_modules(learncast.__path__) if one.ispkg} - {"web"})


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package):
    module = importlib.import_module(f"learncast.{package}")
    for one in pkgutil.iter_modules(module.__path__):
        importlib.import_module(f"{module.__name__}.{one.name}")
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        assert value is not None
        # An imported module is an attribute of its package and would hide a function of the same name.
        assert not isinstance(value, ModuleType) or hasattr(value, "__all__")


def test_every_top_level_name_exists():
    for name in learncast.__all__:
        assert getattr(learncast, name) is not None
    assert set(learncast.__all__) <= set(dir(learncast))
