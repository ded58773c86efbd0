"""Sweeps: compute a function over a grid into a store, each task once, also after a crash."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "driver": "Summary",
        "executors": "Cluster Executor Fate InProcess Job Outcome Processes Work",
        "gathering": "gather",
        "grid": "Grid GridAxis",
        "ledger": "TaskStatus",
        "spec": "Spec",
        "store": "Damage Failure StoreStatus failures prune status verify",
        "sweeping": "Sweep rebuild resume run",
    },
)
