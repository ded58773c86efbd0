"""Drawing only: labelled data in, axes out. Nothing here computes a result."""

from learncast.figures.continual import forgetting_curves, loss_matrix
from learncast.figures.curricula import curriculum_paths, loss_paths, ranking, stop_curve, stop_map
from learncast.figures.ensembles import agreement_by_kind, escapes, spread_by_kind, told_and_trained
from learncast.figures.learnability import envelope, time_scale_survival, window_curve
from learncast.figures.learnability_paper import (
    envelope_agreement,
    envelopes_by_cell,
    noise_scales_by_cell,
    statistic_by_cell,
    survivals_by_cell,
    tail_indices_by_cell,
    time_scale_histogram,
    windows_by_cell,
)
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
    "envelope",
    "envelope_agreement",
    "envelopes_by_cell",
    "escapes",
    "forgetting_curves",
    "integration_profiles",
    "item_paths",
    "lag_covariances",
    "learning_curves",
    "loss_matrix",
    "loss_paths",
    "matrix",
    "mode_strengths",
    "networks_on_lines",
    "networks_per_case",
    "noise_scales_by_cell",
    "page",
    "portrait",
    "predicted_and_measured",
    "predictions",
    "ranking",
    "save",
    "split_matrix",
    "spread",
    "spread_by_kind",
    "statistic_by_cell",
    "stop_curve",
    "stop_curves",
    "stop_map",
    "survivals_by_cell",
    "tail_indices_by_cell",
    "time_scale_histogram",
    "time_scale_survival",
    "told_and_trained",
    "training_over_theory",
    "window_curve",
    "windows_by_cell",
]
