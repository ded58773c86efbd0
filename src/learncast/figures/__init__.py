"""Figures: functions that draw labelled data on matplotlib axes."""

from learncast._core.lazy import exported
from learncast.figures.page import page as page  # eager: the module of this name would hide a lazy one

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "curves": "curriculum_paths decoupling deviations forgetting_curves goal_curves held_out_curve integration_profiles "
        "item_paths lag_covariances learning_curves loss_curve loss_paths mode_strengths plan_scores "
        "predicted_and_measured predictions ranking step_profile stop_curve stop_curves training_over_theory",
        "learnability": "curves_by_cell envelope envelope_agreement envelopes_by_cell envelopes_by_gate "
        "noise_scales_by_cell requirements_by_cell statistic_by_cell survivals_by_cell tail_indices_by_cell "
        "time_scale_histogram time_scale_spectra time_scale_survival time_scales_over_training window_curve "
        "window_over_training windows_by_cell",
        "maps": "basin_map portrait stop_map",
        "matrices": "agreement_by_kind escapes loss_matrix matrix network_scheme networks_on_lines "
        "networks_per_case predicted_and_trained spectrum spread_by_kind",
        "page": "COLOURS Figure THEORY axis_label composite key label new_axes page png save sheet style",
    },
)
