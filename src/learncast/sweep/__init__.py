"""Many tasks at once: a grid computed into a store, each task once, whatever dies in between."""

from learncast.sweep.driver import Summary
from learncast.sweep.gathering import gather
from learncast.sweep.grid import Axis, Grid
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.spec import Spec
from learncast.sweep.store import Damage, Failure, StoreStatus, failures, prune, status, verify
from learncast.sweep.sweeping import Sweep, rebuild, resume, run

__all__ = [
    "Axis",
    "Damage",
    "Failure",
    "Grid",
    "Spec",
    "StoreStatus",
    "Summary",
    "Sweep",
    "TaskStatus",
    "failures",
    "gather",
    "prune",
    "rebuild",
    "resume",
    "run",
    "status",
    "verify",
]


def __dir__() -> list[str]:
    return list(__all__)
