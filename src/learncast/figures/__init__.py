"""Drawing only: labelled data in, axes out. Nothing here computes a result."""

# What the room shows is imported under its own name; sorting would take each such import apart.
# isort: skip_file

from types import ModuleType as _Module

from matplotlib.figure import Figure as Figure

from learncast.figures.courses import (
    curriculum_paths as curriculum_paths,
    decoupling as decoupling,
    deviations as deviations,
    forgetting_curves as forgetting_curves,
    goal_curves as goal_curves,
    integration_profiles as integration_profiles,
    item_paths as item_paths,
    lag_covariances as lag_covariances,
    learning_curves as learning_curves,
    loss_curve as loss_curve,
    loss_paths as loss_paths,
    mode_strengths as mode_strengths,
    plan_scores as plan_scores,
    predicted_and_measured as predicted_and_measured,
    predictions as predictions,
    ranking as ranking,
    step_profile as step_profile,
    stop_curve as stop_curve,
    stop_curves as stop_curves,
    training_over_theory as training_over_theory,
)
from learncast.figures.learnability import (
    envelope as envelope,
    courses_by_cell as courses_by_cell,
    envelope_agreement as envelope_agreement,
    envelopes_by_cell as envelopes_by_cell,
    envelopes_by_gate as envelopes_by_gate,
    noise_scales_by_cell as noise_scales_by_cell,
    requirements_by_cell as requirements_by_cell,
    statistic_by_cell as statistic_by_cell,
    survivals_by_cell as survivals_by_cell,
    tail_indices_by_cell as tail_indices_by_cell,
    time_scale_courses as time_scale_courses,
    time_scale_histogram as time_scale_histogram,
    time_scale_spectra as time_scale_spectra,
    time_scale_survival as time_scale_survival,
    window_course as window_course,
    window_curve as window_curve,
    windows_by_cell as windows_by_cell,
)
from learncast.figures.maps import (
    basin_map as basin_map,
    portrait as portrait,
    stop_map as stop_map,
)
from learncast.figures.matrices import (
    agreement as agreement,
    agreement_by_kind as agreement_by_kind,
    escapes as escapes,
    loss_matrix as loss_matrix,
    matrix as matrix,
    network_scheme as network_scheme,
    networks_on_lines as networks_on_lines,
    networks_per_case as networks_per_case,
    split_matrix as split_matrix,
    spectrum as spectrum,
    spread as spread,
    spread_by_kind as spread_by_kind,
    told_and_trained as told_and_trained,
)
from learncast.figures.page import (
    composite as composite,
    key as key,
    label as label,
    new_axes as new_axes,
    page as page,
    png as png,
    save as save,
    sheet as sheet,
    style as style,
)


def __dir__() -> list[str]:
    return [name for name, one in globals().items() if not name.startswith("_") and not isinstance(one, _Module)]
