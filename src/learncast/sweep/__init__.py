"""Sweeps: compute a function over a grid into a store, each task once, also after a crash."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "driver": "Summary",
        "executors": "Cluster Executor InProcess Processes",
        "gathering": "gather",
        "grid": "Grid GridAxis",
        "jobs": "Fate Job Outcome Work",
        "ledger": "TaskStatus",
        "spec": "Spec",
        "inspection": "Damage Failure StoreStatus failures prune status verify",
        "sweeping": "Sweep rebuild resume run",
    },
)
