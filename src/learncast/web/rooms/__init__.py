"""All rooms of the explorer, in the order of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from learncast.web.room import Room
from learncast.web.rooms.curriculum import ROOM as CURRICULUM
from learncast.web.rooms.prior_knowledge import ROOM as PRIOR_KNOWLEDGE
from learncast.web.rooms.recurrence import ROOM as RECURRENCE
from learncast.web.rooms.window import window_room

if TYPE_CHECKING:
    from learncast.learnability.learnability_window import LearnabilityWindow


def rooms(window: LearnabilityWindow | None = None) -> tuple[Room, ...]:
    """Every room; the last shows `window`, or how to open one."""
    return (CURRICULUM, PRIOR_KNOWLEDGE, RECURRENCE, window_room(window))
