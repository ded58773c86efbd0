"""Every name that a room offers can be had from it."""

import importlib
import pkgutil

import pytest

import learncast

ROOMS = sorted({one.name for one in pkgutil.iter_modules(learncast.__path__) if one.ispkg} - {"web", "papers"})


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_room_is_there(room):
    module = importlib.import_module(f"learncast.{room}")
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def test_every_name_at_the_top_is_there():
    for name in learncast.__all__:
        assert getattr(learncast, name) is not None
