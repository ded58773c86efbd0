"""Drawing only: labelled data in, axes out. Nothing here computes a result."""

from learncast.figures.continual import forgetting_curves, loss_matrix
from learncast.figures.curricula import curriculum_paths, ranking
from learncast.figures.learning_curves import (
    agreement,
    decoupling,
    deviations,
    item_paths,
    learning_curves,
    spread,
)
from learncast.figures.matrices import matrix, split_matrix
from learncast.figures.page import page, save
from learncast.figures.portraits import portrait
from learncast.figures.profiles import integration_profiles, lag_covariances
from learncast.figures.trajectories import mode_strengths

__all__ = [
    "agreement",
    "curriculum_paths",
    "decoupling",
    "deviations",
    "forgetting_curves",
    "integration_profiles",
    "item_paths",
    "lag_covariances",
    "learning_curves",
    "loss_matrix",
    "matrix",
    "mode_strengths",
    "page",
    "portrait",
    "ranking",
    "save",
    "split_matrix",
    "spread",
]
