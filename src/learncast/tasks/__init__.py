"""What is to be learned: tasks as second-order statistics of inputs and targets."""

from learncast.tasks.comparison import TaskSimilarity, similarity
from learncast.tasks.covariance import Covariance, Dense, Kronecker, Sampled
from learncast.tasks.families import integration, leaky_integration
from learncast.tasks.task import Task

__all__ = [
    "Covariance",
    "Dense",
    "Kronecker",
    "Sampled",
    "Task",
    "TaskSimilarity",
    "integration",
    "leaky_integration",
    "similarity",
]
