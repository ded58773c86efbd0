"""Every name that a room offers can be had from it."""

import importlib

import pytest

import learncast

ROOMS = sorted(
    name for name in dir(learncast) if hasattr(getattr(learncast, name), "__path__") and name not in {"web", "papers"}
)


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_room_is_there(room):
    module = importlib.import_module(f"learncast.{room}")
    for name in getattr(module, "__all__", ()):
        assert getattr(module, name) is not None


def test_every_name_at_the_top_is_there():
    for name in learncast.__all__:
        assert getattr(learncast, name) is not None
