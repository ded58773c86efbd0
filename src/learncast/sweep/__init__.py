"""Sweeps: compute a function over a grid into a store, each task once, also after a crash."""

from learncast.sweep.driver import Summary
from learncast.sweep.executors import Cluster, Executor, Fate, InProcess, Job, Outcome, Processes, Work
from learncast.sweep.gathering import gather
from learncast.sweep.grid import Grid, GridAxis
from learncast.sweep.ledger import TaskStatus
from learncast.sweep.spec import Spec
from learncast.sweep.store import Damage, Failure, StoreStatus, failures, prune, status, verify
from learncast.sweep.sweeping import Sweep, rebuild, resume, run

__all__ = [
    "Cluster",
    "Damage",
    "Executor",
    "Failure",
    "Fate",
    "Grid",
    "GridAxis",
    "InProcess",
    "Job",
    "Outcome",
    "Processes",
    "Spec",
    "StoreStatus",
    "Summary",
    "Sweep",
    "TaskStatus",
    "Work",
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
