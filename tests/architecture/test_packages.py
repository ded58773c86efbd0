"""Every name that a package exports can be imported from it."""

import importlib
import pkgutil

import pytest

import learncast

PACKAGES = sorted({one.name for one in pkgutil.iter_modules(learncast.__path__) if one.ispkg} - {"web", "papers"})


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists(package):
    module = importlib.import_module(f"learncast.{package}")
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def test_every_top_level_name_exists():
    for name in learncast.__all__:
        assert getattr(learncast, name) is not None
