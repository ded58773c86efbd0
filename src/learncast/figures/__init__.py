"""Drawing only: labelled data in, axes out. Nothing here computes a result."""

from learncast.figures.continual import forgetting_curves, loss_matrix
from learncast.figures.curricula import curriculum_paths, ranking
from learncast.figures.ensembles import agreement_by_kind, escapes, spread_by_kind, told_and_trained
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
from learncast.figures.recurrence import basin_map, networks_on_lines, networks_per_case
from learncast.figures.training import predicted_and_measured, predictions, stop_curves, training_over_theory
from learncast.figures.trajectories import mode_strengths

__all__ = [
    "agreement",
    "agreement_by_kind",
    "basin_map",
    "curriculum_paths",
    "decoupling",
    "deviations",
    "escapes",
    "forgetting_curves",
    "integration_profiles",
    "item_paths",
    "lag_covariances",
    "learning_curves",
    "loss_matrix",
    "matrix",
    "mode_strengths",
    "networks_on_lines",
    "networks_per_case",
    "page",
    "portrait",
    "predicted_and_measured",
    "predictions",
    "ranking",
    "save",
    "split_matrix",
    "spread",
    "spread_by_kind",
    "stop_curves",
    "told_and_trained",
    "training_over_theory",
]
