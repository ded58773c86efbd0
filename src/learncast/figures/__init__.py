"""Drawing only: labelled data in, axes out. Nothing here computes a result."""

from learncast.figures.curricula import curriculum_paths, ranking
from learncast.figures.page import page, save
from learncast.figures.portraits import portrait
from learncast.figures.profiles import integration_profiles, lag_covariances
from learncast.figures.trajectories import mode_strengths

__all__ = [
    "curriculum_paths",
    "integration_profiles",
    "lag_covariances",
    "mode_strengths",
    "page",
    "portrait",
    "ranking",
    "save",
]
