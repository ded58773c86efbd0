"""Where tasks are computed: in this process, in others of this machine, or on a cluster."""

from learncast.sweep.executors.executor import Executor, Fate, InProcess, Job, Outcome, Work, as_dataset, computed
from learncast.sweep.executors.processes import STOPS, Processes

__all__ = ["STOPS", "Executor", "Fate", "InProcess", "Job", "Outcome", "Processes", "Work", "as_dataset", "computed"]
