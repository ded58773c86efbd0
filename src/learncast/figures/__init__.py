"""Figures: functions that draw labelled data on matplotlib axes."""

from learncast._core.lazy import exported
from learncast.figures.page import page as page  # eager: the module of this name would hide a lazy one

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "cells": "dial envelopes_by_cell networks_by_cell noise_scales_by_cell tail_indices_by_cell verdicts "
        "windows_by_cell",
        "curves": "decoupling forgetting_curves held_out_curve item_paths learning_curve learning_curves loss_curve "
        "mode_strengths step_count",
        "maps": "portrait stop_map",
        "matrices": "loss_matrix matrix predicted_and_trained spectrum",
        "networks": "agreement_by_kind networks_on_lines networks_per_case spread_by_kind",
        "look": "COLOURS SAVED THEORY",
        "page": "Figure axis_label key label new_axes page png save sheet style svg",
        "profiles": "integration_profiles lag_covariances step_profile",
        "plans": "advised_training curriculum_paths loss_paths pilot_losses plan_scores ranking stop_curve",
        "runs": "deviations goal_curves predicted_and_measured stop_curves training_over_theory",
        "schematics": "decoupling_scheme layer_scheme mode_scheme network_scheme tree",
        "windows": "envelope time_scale_histogram time_scale_survival window_curve",
    },
)
