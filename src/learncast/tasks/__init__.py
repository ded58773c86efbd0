"""Tasks, described by second-order statistics of their inputs and targets."""

from learncast.tasks import sensory
from learncast.tasks.composed import Composition, composed
from learncast.tasks.covariance import Covariance, Dense, Kronecker, Sampled
from learncast.tasks.delays import multi_lag, multi_lag_trials, random_direction
from learncast.tasks.families import integration, leaky_integration
from learncast.tasks.geometry import Frame, common_frame, pooled_statistics
from learncast.tasks.one_step import Hierarchy, Whitened, from_pairs, hierarchy, reversed, static, whitened
from learncast.tasks.recorded.environments import from_environment
from learncast.tasks.recorded.files import from_data, from_file
from learncast.tasks.recorded.preparation import cut_trials
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.recorded.resampling import halves, pooled_recording, resampled
from learncast.tasks.recorded.streams import from_batches
from learncast.tasks.recorded.summary import DataSummary, summary
from learncast.tasks.recorded.tables import from_table
from learncast.tasks.task import Task

__all__ = [
    "Composition", "Covariance", "DataSummary", "Dense", "Frame", "Hierarchy", "Kronecker", "Recording", "Sampled",
    "Task", "Whitened", "common_frame", "composed", "cut_trials", "from_batches", "from_data", "from_environment",
    "from_file", "from_pairs", "from_table", "halves", "hierarchy", "integration", "leaky_integration", "multi_lag",
    "multi_lag_trials", "pooled_recording", "pooled_statistics", "random_direction", "resampled", "reversed",
    "sensory", "static", "summary", "whitened",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
