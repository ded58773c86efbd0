"""What is to be learned: tasks as second-order statistics of inputs and targets."""

from learncast.tasks import sensory
from learncast.tasks.comparison import TaskSimilarity, similarity
from learncast.tasks.covariance import Covariance, Dense, Kronecker, Sampled
from learncast.tasks.delays import (
    multi_lag,
    multi_lag_trials,
    random_direction,
    sinusoidal_delay,
    sinusoidal_delay_trials,
)
from learncast.tasks.environments import from_environment
from learncast.tasks.families import integration, leaky_integration
from learncast.tasks.one_step import Whitened, from_pairs, reversed, static, whitened
from learncast.tasks.resampling import StandardErrors, resampled, standard_errors
from learncast.tasks.streams import from_batches
from learncast.tasks.tables import from_table
from learncast.tasks.task import Task
from learncast.tasks.trees import Hierarchy, hierarchy

__all__ = [
    "Covariance",
    "Dense",
    "Hierarchy",
    "Kronecker",
    "Sampled",
    "StandardErrors",
    "Task",
    "TaskSimilarity",
    "Whitened",
    "from_batches",
    "from_environment",
    "from_pairs",
    "from_table",
    "hierarchy",
    "integration",
    "leaky_integration",
    "multi_lag",
    "multi_lag_trials",
    "random_direction",
    "resampled",
    "reversed",
    "sensory",
    "similarity",
    "sinusoidal_delay",
    "sinusoidal_delay_trials",
    "standard_errors",
    "static",
    "whitened",
]
