"""Tasks, described by second-order statistics of their inputs and targets."""

from learncast.tasks import sensory
from learncast.tasks.best_map import Correlations as Correlations
from learncast.tasks.best_map import best_map as best_map
from learncast.tasks.covariance import Covariance, Kronecker
from learncast.tasks.covariance import Dense as Dense
from learncast.tasks.covariance import Sampled as Sampled
from learncast.tasks.delays import (
    multi_lag,
    multi_lag_trials,
    random_direction,
    sinusoidal_delay,
    sinusoidal_delay_trials,
)
from learncast.tasks.families import integration, leaky_integration
from learncast.tasks.geometry import Frame as Frame
from learncast.tasks.geometry import TaskSimilarity, similarity
from learncast.tasks.geometry import common_frame as common_frame
from learncast.tasks.geometry import pooled_statistics as pooled_statistics
from learncast.tasks.one_step import Hierarchy, Whitened, from_pairs, hierarchy, reversed, static, whitened
from learncast.tasks.recorded.environments import from_environment
from learncast.tasks.recorded.files import from_file
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.recorded.resampling import StandardErrors, resampled, standard_errors
from learncast.tasks.recorded.resampling import halves as halves
from learncast.tasks.recorded.resampling import pooled_recording as pooled_recording
from learncast.tasks.recorded.streams import from_batches
from learncast.tasks.recorded.summary import DataSummary, summary
from learncast.tasks.recorded.tables import from_table
from learncast.tasks.task import Task

__all__ = [
    "Covariance", "DataSummary", "Hierarchy", "Kronecker", "Recording", "StandardErrors",
    "Task", "TaskSimilarity", "Whitened", "from_batches", "from_environment", "from_file", "from_pairs",
    "from_table", "hierarchy", "integration", "leaky_integration", "multi_lag", "multi_lag_trials",
    "random_direction", "resampled", "reversed", "sensory", "similarity", "sinusoidal_delay",
    "sinusoidal_delay_trials", "standard_errors", "static", "summary", "whitened",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
